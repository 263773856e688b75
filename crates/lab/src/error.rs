//! What is wrong with an input: the file, the line where there is one, what was found and expected.

use std::fmt;
use std::path::Path;

/// Why an input could not be used. Its text is complete: one problem a line, each with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputError(String);

impl InputError {
    /// A problem with a file as a whole.
    pub fn file(path: impl AsRef<Path>, message: impl fmt::Display) -> Self {
        Self(format!("{}: {message}", path.as_ref().display()))
    }

    /// A problem with one line, counted from 1.
    pub fn line(path: impl AsRef<Path>, line: usize, message: impl fmt::Display) -> Self {
        Self(format!("{}:{line}: {message}", path.as_ref().display()))
    }

    /// A problem that names its place itself.
    pub fn other(message: impl fmt::Display) -> Self {
        Self(message.to_string())
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InputError {}

impl From<highorder_kernelfs::Error> for InputError {
    fn from(error: highorder_kernelfs::Error) -> Self {
        Self::other(error)
    }
}

impl From<highorder_mm::MachineError> for InputError {
    fn from(error: highorder_mm::MachineError) -> Self {
        Self::other(error)
    }
}

impl From<highorder_snapshot::Error> for InputError {
    fn from(error: highorder_snapshot::Error) -> Self {
        Self::other(error)
    }
}
