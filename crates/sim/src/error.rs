//! How a run can fail.

use highorder_words::Ns;
use std::fmt;

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
    /// The machine that is simulated has come to its end, as a kernel that panics.
    Halted {
        /// When.
        at: Ns,
        /// Why.
        message: String,
    },
    /// Nothing will ever happen again, and tasks are waiting.
    Deadlock {
        /// When.
        at: Ns,
        /// Each waiting task that is not a kernel thread: its name and what it waits for.
        waiting: Vec<(String, String)>,
    },
    /// Tasks go on for ever and no time passes.
    Livelock {
        /// When.
        at: Ns,
        /// The tasks that went on last, by name.
        tasks: Vec<String>,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked { task, at, message } => {
                write!(f, "task {task} panicked at {at}: {message}")
            }
            Self::Halted { at, message } => {
                write!(f, "at {at} the machine came to its end: {message}")
            }
            Self::Deadlock { at, waiting } => {
                write!(f, "at {at} every task waits and nothing will wake one:")?;
                for (n, (task, what)) in waiting.iter().enumerate() {
                    write!(f, "{} {task} for {what}", if n == 0 { "" } else { "," })?;
                }
                Ok(())
            }
            Self::Livelock { at, tasks } => {
                write!(f, "at {at} time stands still: {} go on for ever", tasks.join(", "))
            }
        }
    }
}

impl std::error::Error for RunError {}
