//! The state of every page of a machine: read from a recording, taken live, kept in a file.
pub mod state;
pub use state::*;
