//! What postings published, and whether runs show it too.
//!
//! - [`cells`]: values by the name that published tables have for them, be they published or measured.
//! - [`relation`]: the language in which a claim says what has to be true of cells.
//! - [`claims`]: the claims, and what becomes of one on given cells.
//! - [`mod@directions`]: published rows that changed, and whether ours changed the same way.
//! - [`machines`]: where a claim holds among many machines, and which unknown decides it.
//! - [`tidy`]: what was measured, in the form of the published files.
//!
//! This is the only code that reads a published figure. Nothing that runs depends on it.
//!
//! # Scale
//!
//! Runs at less than full scale have less memory, and do less on it. So that the amounts which claims name mean
//! the same, measured amounts are brought to full size before anything is compared: pages, bytes, faults, events
//! and seconds are divided by the scale, and files by second, which are smaller files, multiplied
//! ([`cells::power_of_scale`]); shares, bytes by second and the time of a single fault stay.

pub mod cells;
pub mod claims;
pub mod directions;
pub mod machines;
pub mod relation;
pub mod tidy;

pub use cells::{Cell, Cells, Measured};
pub use claims::{Claim, Claims, Instead, Judged, Number, Strength, Verdict};
pub use directions::{Direction, directions};
pub use machines::{Decision, Side, Standing, Tally, decision};
pub use relation::{Relation, RelationError};
