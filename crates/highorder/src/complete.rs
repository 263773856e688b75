//! What a shell is offered in place of names: those that there are, and paths.

use crate::compare::DEFAULT_STORE;
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};
use highorder_lab::catalogue::{self, Entry, Kind};
use highorder_record::{Store, published};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

/// Experiments, and files.
pub(crate) fn experiments(begun: &OsStr) -> Vec<CompletionCandidate> {
    named(&[Kind::Experiment], begun)
}

/// Kernels, and files.
pub(crate) fn kernels(begun: &OsStr) -> Vec<CompletionCandidate> {
    named(&[Kind::Kernel], begun)
}

/// Machines, and files.
pub(crate) fn machines(begun: &OsStr) -> Vec<CompletionCandidate> {
    named(&[Kind::Machine], begun)
}

/// Whatever has a name, and files.
pub(crate) fn anything(begun: &OsStr) -> Vec<CompletionCandidate> {
    named(&Kind::ALL, begun)
}

/// What the default store has runs of, as `compare` names it, and folders.
pub(crate) fn columns(begun: &OsStr) -> Vec<CompletionCandidate> {
    let mut found = BTreeSet::new();
    let folder = Path::new(DEFAULT_STORE);
    if folder.is_dir() {
        let store = Store::to_read(folder);
        for entry in store.list().unwrap_or_default() {
            let Ok(record) = store.read(&entry) else { continue };
            found.insert(format!("{}:{}", record.inputs.experiment, record.inputs.kernel.name));
        }
    }
    let mut candidates = fitting(found.into_iter().map(CompletionCandidate::new), begun);
    candidates.extend(PathCompleter::any().complete(begun));
    candidates
}

/// The forms of published tables.
pub(crate) fn forms(begun: &OsStr) -> Vec<CompletionCandidate> {
    fitting(published::names().into_iter().map(CompletionCandidate::new), begun)
}

fn named(kinds: &[Kind], begun: &OsStr) -> Vec<CompletionCandidate> {
    let mut candidates = Vec::new();
    for kind in kinds {
        let entries = catalogue::entries(*kind).unwrap_or_default().into_iter();
        let candidate =
            |Entry { name, about, .. }| CompletionCandidate::new(name).help(Some(about.into()));
        candidates.extend(fitting(entries.map(candidate), begun));
    }
    // A name of several kinds is offered once.
    let mut seen = BTreeSet::new();
    candidates.retain(|candidate| seen.insert(candidate.get_value().to_owned()));
    candidates.extend(PathCompleter::any().complete(begun));
    candidates
}

fn fitting(
    candidates: impl Iterator<Item = CompletionCandidate>,
    begun: &OsStr,
) -> Vec<CompletionCandidate> {
    let begun = begun.to_string_lossy();
    candidates
        .filter(|candidate| candidate.get_value().to_string_lossy().starts_with(&*begun))
        .collect()
}
