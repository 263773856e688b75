//! Records the memory of a running kernel: every page before and after, and each event between.
//!
//! | module | what it does |
//! |---|---|
//! | [`tracefs`] | a tracefs instance of our own, which goes however the recording ends |
//! | [`mod@record`] | takes the states and the events between into a recording file |
//! | [`lines`] | takes names of processes, and more where asked for, out of what the kernel printed |
//!
//! Nothing else that traces is disturbed: events are enabled in the instance alone, and its buffers are its own.

pub mod lines;
pub mod record;
pub mod tracefs;

pub use lines::Keep;
pub use record::{Options, Overhead, RecordError, Recorded, record, settings};
pub use tracefs::{TraceError, remove_left};
