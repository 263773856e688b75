//! The memory of the running machine as it goes.
//!
//! | module | what it does |
//! |---|---|
//! | [`sample`] | what `/proc` says at one moment |
//! | [`screen`] | a screen of text from two of them: zones against their watermarks, free blocks, stalls, rates |
//! | [`threshold`] | `compact_stall/s > 10` |
//! | [`series`] | a history in a folder, which `compare` reads as what was captured before, during and after |
//! | [`openmetrics`] | a sample as OpenMetrics text, under node_exporter's names |
//! | [`serve`] | that text over HTTP |
//!
//! Nothing here prints, reads a clock or knows a terminal: equal arguments give equal text.

pub mod openmetrics;
pub mod sample;
pub mod screen;
pub mod series;
pub mod serve;
pub mod threshold;

pub use sample::Sample;
pub use series::Series;
pub use threshold::Threshold;
