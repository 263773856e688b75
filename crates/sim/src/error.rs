//! What can be wrong with a machine file, and how a run can fail.

use highorder_words::Ns;
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

    /// Several problems as one, a line each.
    #[must_use]
    pub fn all(problems: &[Self]) -> Self {
        Self(problems.iter().map(|p| p.0.as_str()).collect::<Vec<_>>().join("\n"))
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InputError {}

/// Why a run could not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// A task's code panicked; the simulation cannot be continued.
    Panicked {
        /// Name of the task.
        task: String,
        /// When.
        at: Ns,
        /// What the panic said.
        message: String,
    },
    /// Nothing will ever happen again, and tasks are waiting.
    Deadlock {
        /// When.
        at: Ns,
        /// Each waiting task that is not a kernel thread: its name and what it waits for.
        waiting: Vec<(String, String)>,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked { task, at, message } => {
                write!(f, "task {task} panicked at {at}: {message}")
            }
            Self::Deadlock { at, waiting } => {
                write!(f, "at {at} every task waits and nothing will wake one:")?;
                for (n, (task, what)) in waiting.iter().enumerate() {
                    write!(f, "{} {task} for {what}", if n == 0 { "" } else { "," })?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for RunError {}
