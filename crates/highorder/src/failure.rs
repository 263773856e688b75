//! Why a verb ended early, and with which exit code.

use highorder_files::WriteError;
use highorder_input::printable;
use std::fmt;
use std::process::ExitCode;

/// Why a verb ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// What was given cannot be used: an argument, a file, a place to write to, a machine that does
    /// not tell what was asked for. The message says what was found and what was expected.
    Input(String),
    /// Something of ours went wrong.
    Internal(String),
    /// A threshold that was watched for was crossed. The message says which.
    Crossed(String),
    /// The user stopped it. The message says what there is, and how to go on.
    Interrupted(String),
}

impl Failure {
    /// The exit code of what was interrupted, as a shell has it: 128 and SIGINT.
    pub(crate) const INTERRUPTED: u8 = 130;

    /// The exit code of a threshold that was crossed: ours, and no other's.
    pub(crate) const CROSSED: u8 = 3;

    /// A [`Failure::Input`].
    pub(crate) fn input(message: impl Into<String>) -> Self {
        Self::Input(message.into())
    }

    /// A [`Failure::Internal`].
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::Internal(message.into())
    }

    /// 2 for bad input, as clap does for bad arguments, 3 for a threshold, 130 for an interrupt, and 1 for the rest.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Input(_) => ExitCode::from(2),
            Self::Internal(_) => ExitCode::FAILURE,
            Self::Crossed(_) => ExitCode::from(Self::CROSSED),
            Self::Interrupted(_) => ExitCode::from(Self::INTERRUPTED),
        }
    }

    /// The line that standard error gets.
    pub(crate) fn told(&self) -> String {
        match self {
            Self::Interrupted(message) | Self::Crossed(message) => message.clone(),
            _ => printable(&format!("error: {self}")),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Input(message)
        | Self::Internal(message)
        | Self::Crossed(message)
        | Self::Interrupted(message)) = self;
        f.write_str(message)
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::IsThere { .. } => Self::input(format!("{error}; --force replaces it")),
            _ => Self::input(error.to_string()),
        }
    }
}

impl From<highorder_input::InputError> for Failure {
    fn from(error: highorder_input::InputError) -> Self {
        Self::input(error.to_string())
    }
}

impl From<highorder_report::RasterError> for Failure {
    fn from(error: highorder_report::RasterError) -> Self {
        Self::internal(error.to_string())
    }
}
