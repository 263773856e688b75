//! Collecting what is wrong with a snapshot.

use highorder_input::{InputError, Problem};

/// Collects problems while parsing goes on.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<Problem>);

impl Problems {
    pub(crate) fn add(&mut self, file: &str, message: impl Into<String>) {
        self.0.push(Problem::message(file, None, message));
    }

    pub(crate) fn add_line(&mut self, file: &str, line: u64, message: impl Into<String>) {
        self.0.push(Problem::message(file, Some(line), message));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `Ok(value)` if nothing was wrong.
    pub(crate) fn into_result<T>(self, value: Option<T>) -> Result<T, InputError> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(InputError::new(self.0)),
        }
    }
}
