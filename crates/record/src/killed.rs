//! Runs in which the OOM killer ended a process: they did less than was asked of them.

use crate::record::Record;

/// Stands behind values that such runs have part in.
pub const KILLED_MARK: char = '†';

/// What the mark means, in a sentence.
pub const KILLED_MEANS: &str =
    "† Runs have part in this value in which the OOM killer ended a process: they did less work.";

/// By what the metrics begin that workloads count killed processes with: `Killed`, `Killed-48`, `Killed test`.
const KILLED: &str = "Killed";
/// The kernel's counter, since 4.13.
pub(crate) const OOM_KILL: &str = "oom_kill";

/// What follows a process's name in the note of its end.
const KILLED_NOTE: &str = " was killed: out of memory";

/// The note that a run's record carries of a process that was killed.
#[must_use]
pub fn killed_note(process: &str) -> String {
    format!("{process}{KILLED_NOTE}")
}

/// The process that a note says was killed, if it says so.
#[must_use]
pub fn killed_process(note: &str) -> Option<&str> {
    note.strip_suffix(KILLED_NOTE)
}

/// Whether a metric counts killed processes.
#[must_use]
pub fn counts_killed(metric: &str) -> bool {
    let rest = metric.strip_prefix(KILLED);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', ' ']))
}

/// How many processes were killed in a run: those that the workload counted, or else those that the kernel did,
/// which counts all of the machine's.
#[must_use]
pub fn nr_killed(record: &Record) -> u64 {
    let counts = record.metrics.iter().filter(|metric| counts_killed(&metric.name));
    let counted: f64 = counts.flat_map(|metric| &metric.samples).sum();
    match counted > 0.0 {
        true => counted.round() as u64,
        false => record.delta(OOM_KILL).and_then(|n| u64::try_from(n).ok()).unwrap_or(0),
    }
}
