//! Errors that carry the place: file, line, what was found, what was expected.

use highorder_files::{ReadError, WriteError};
use std::fmt;
use std::path::Path;

/// Problems printed in full before the rest is only counted.
const PROBLEMS_SHOWN_MAX: usize = 50;

/// One thing that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, as a path or as `container:section`.
    pub file: String,
    /// Line from 1, where the file has lines.
    pub line: Option<u64>,
    /// What was found and what was expected.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.message),
            None => write!(f, "{}: {}", self.file, self.message),
        }
    }
}

/// Why a snapshot could not be read, written or taken: every problem that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// At least one.
    pub problems: Vec<Problem>,
}

impl Error {
    /// The error that consists of one problem of a whole file.
    pub(crate) fn new(file: impl Into<String>, message: impl Into<String>) -> Self {
        Self { problems: vec![Problem { file: file.into(), line: None, message: message.into() }] }
    }

    /// The error of a file that cannot be read.
    pub(crate) fn read(path: &Path, error: &ReadError) -> Self {
        let message = match error {
            ReadError::Io(source) => format!("cannot read: {source}"),
            ReadError::Unfit { .. } => error.to_string(),
        };
        Self::new(path.display().to_string(), message)
    }

    /// The error of a file that the system would not let us `action` (open, read, write).
    pub(crate) fn io(path: &Path, action: &str, source: &std::io::Error) -> Self {
        Self::new(path.display().to_string(), format!("cannot {action}: {source}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().take(PROBLEMS_SHOWN_MAX).enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        match self.problems.len().saturating_sub(PROBLEMS_SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for Error {}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Self {
        let (WriteError::IsThere { name }
        | WriteError::Unfit { name, .. }
        | WriteError::Io { name, .. }) = &error;
        let name = name.display().to_string();
        let told = error.to_string();
        Self::new(name.as_str(), told.trim_start_matches(&name).trim_start_matches(": "))
    }
}

/// Collects problems while parsing goes on.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<Problem>);

impl Problems {
    pub(crate) fn add(&mut self, file: &str, message: impl Into<String>) {
        self.0.push(Problem { file: file.to_owned(), line: None, message: message.into() });
    }

    pub(crate) fn add_line(&mut self, file: &str, line: u64, message: impl Into<String>) {
        self.0.push(Problem { file: file.to_owned(), line: Some(line), message: message.into() });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `Ok(value)` if nothing was wrong.
    pub(crate) fn into_result<T>(self, value: Option<T>) -> Result<T, Error> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => {
                assert!(!self.0.is_empty(), "a parse failed without saying why");
                Err(Error { problems: self.0 })
            }
        }
    }
}
