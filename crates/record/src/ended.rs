//! Runs whose workload ended early: of their numbers nothing is known but that they are of what was done until then.

use crate::record::Record;

/// What the note begins with.
const ENDED_EARLY: &str = "the workload ended early: ";

/// The note that a run's record carries of a workload that could not go on, and why.
#[must_use]
pub fn ended_early_note(why: impl std::fmt::Display) -> String {
    format!("{ENDED_EARLY}{why}")
}

/// Why a run's workload ended early, if it did.
#[must_use]
pub fn ended_early(record: &Record) -> Option<&str> {
    record.notes.iter().find_map(|note| note.strip_prefix(ENDED_EARLY))
}
