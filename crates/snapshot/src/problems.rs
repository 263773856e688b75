//! Collecting what is wrong with a snapshot.

use highorder_files::limits;
use highorder_input::{InputError, Problem};

/// Collects problems while parsing goes on: the first ones, and how many more there are.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    kept: Vec<Problem>,
    dropped: usize,
}

impl Problems {
    pub(crate) fn add(&mut self, file: &str, message: impl Into<String>) {
        self.keep(|| Problem::message(file, None, message));
    }

    pub(crate) fn add_line(&mut self, file: &str, line: u64, message: impl Into<String>) {
        self.keep(|| Problem::message(file, Some(line), message));
    }

    /// Takes over what another reader found.
    pub(crate) fn append(&mut self, error: &InputError) {
        error.problems().iter().for_each(|problem| self.keep(|| problem.clone()));
    }

    fn keep(&mut self, problem: impl FnOnce() -> Problem) {
        match limits::PROBLEMS.check(self.kept.len() as u64 + 1) {
            Ok(()) => self.kept.push(problem()),
            Err(_) => self.dropped += 1,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// `Ok(value)` if nothing was wrong.
    pub(crate) fn into_result<T>(self, value: Option<T>) -> Result<T, InputError> {
        match value {
            Some(value) if self.kept.is_empty() => Ok(value),
            _ => Err(InputError::new(self.kept).and_more(self.dropped)),
        }
    }
}
