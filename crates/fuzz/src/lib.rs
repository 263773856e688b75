//! Every reader of the workspace as a function of bytes.
//!
//! A [`Target`] reads bytes and drops what came of it: bad bytes are an error, never a panic, never endless, never more
//! memory than the stated limits. It knows a corpus, which is made of the project's test data. What has checksums is
//! read behind them: bytes are the content, and the checksums are made to fit, or no mutation would ever get further.
//!
//! Two programs call them: `tests/mutated.rs`, a bounded test on any compiler that [mutates](mutate) the corpus from a
//! seed; and `fuzz/`, with libFuzzer (`make fuzz`).

pub mod mutate;
mod parts;
mod targets;

pub use targets::TARGETS;

use std::path::{Path, PathBuf};

/// A reader.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, as `make fuzz` has it.
    pub name: &'static str,
    /// Good inputs, from the project's folder.
    pub corpus: fn(&Path) -> Vec<Vec<u8>>,
    /// Reads bytes.
    pub read: fn(&[u8]),
}

/// The reader of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// The project's folder.
#[must_use]
pub fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
