//! What is wrong with an input: the file, the line where there is one, what was found and what was expected.

use crate::printable::printable;
use highorder_files::{ReadError, WriteError};
use std::fmt;
use std::io;
use std::path::Path;

/// How much of a bad line a problem quotes, in characters.
const QUOTE_CHARS_MAX: usize = 120;
/// How many problems are printed, unless a reader says otherwise; the rest is counted.
const SHOWN_MAX: usize = 50;

/// One thing that is wrong with an input. However long a line it is about, and whatever that holds, its texts are
/// short and [`printable`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, as a path or as `container:section`; `None` if what was found says itself where.
    pub file: Option<String>,
    /// The line, counted from 1; `None` if the file as a whole is meant.
    pub line: Option<u64>,
    /// What there is.
    pub found: String,
    /// What there should be, if `found` does not say it.
    pub expected: Option<String>,
}

impl Problem {
    /// A problem with one line of a file, or with the file as a whole.
    pub fn new(
        file: impl Into<String>,
        line: Option<u64>,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Self {
            file: Some(printable(&file.into())),
            line,
            found: printable(&found.into()),
            expected: Some(printable(&expected.into())),
        }
    }

    /// A problem whose message says what was found and what was expected.
    pub fn message(file: impl Into<String>, line: Option<u64>, message: impl Into<String>) -> Self {
        let (file, found) = (printable(&file.into()), printable(&message.into()));
        Self { file: Some(file), line, found, expected: None }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            f.write_str(file)?;
            if let Some(line) = self.line {
                write!(f, ":{line}")?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.found)?;
        match &self.expected {
            Some(expected) => write!(f, ", expected {expected}"),
            None => Ok(()),
        }
    }
}

/// Why an input cannot be used: every problem that was found, one a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputError {
    problems: Vec<Problem>,
    /// How many of them are printed.
    shown: usize,
    /// How many more were found and not kept.
    dropped: usize,
    refused: Option<io::ErrorKind>,
}

impl InputError {
    /// The error that consists of these problems, at least one; the first 50 are printed.
    ///
    /// # Panics
    /// There is no problem.
    #[must_use]
    pub fn new(problems: Vec<Problem>) -> Self {
        assert!(!problems.is_empty(), "an input was refused without saying why");
        Self { problems, shown: SHOWN_MAX, dropped: 0, refused: None }
    }

    /// A problem with a file as a whole, told in a message.
    pub fn file(path: impl AsRef<Path>, message: impl fmt::Display) -> Self {
        Self::new(vec![Problem::message(named(path), None, message.to_string())])
    }

    /// A problem with one line, counted from 1, told in a message.
    pub fn line(path: impl AsRef<Path>, line: usize, message: impl fmt::Display) -> Self {
        Self::new(vec![Problem::message(named(path), Some(line as u64), message.to_string())])
    }

    /// A problem with a file as a whole: what it is, and what it should be.
    pub fn whole(
        file: impl Into<String>,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Self::new(vec![Problem::new(file, None, found, expected)])
    }

    /// A problem that names its place itself.
    pub fn other(message: impl fmt::Display) -> Self {
        let found = printable(&message.to_string());
        Self::new(vec![Problem { file: None, line: None, found, expected: None }])
    }

    /// A file that cannot be read.
    pub fn read(path: impl AsRef<Path>, error: ReadError) -> Self {
        match error {
            ReadError::Io(source) => Self::io(path, "read", &source),
            ReadError::Unfit { found, expected } => Self::whole(named(path), found, expected),
        }
    }

    /// A file that the system would not let us `action` (open, read, write).
    pub fn io(path: impl AsRef<Path>, action: &str, source: &io::Error) -> Self {
        let mut error = Self::file(path, format!("cannot {action}: {source}"));
        error.refused = Some(source.kind());
        error
    }

    /// The same error, of which these many problems are printed.
    #[must_use]
    pub const fn showing(mut self, shown: usize) -> Self {
        self.shown = shown;
        self
    }

    /// The same error, with so many problems more that were found and not kept.
    #[must_use]
    pub const fn and_more(mut self, dropped: usize) -> Self {
        self.dropped = dropped;
        self
    }

    /// Several errors as one.
    ///
    /// # Panics
    /// There is none.
    #[must_use]
    pub fn all(errors: Vec<Self>) -> Self {
        let problems = errors.into_iter().flat_map(|error| error.problems).collect();
        Self::new(problems).showing(usize::MAX)
    }

    /// All problems, in the order of the file.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The same error with another line for all its problems: of a reader that knows better.
    #[must_use]
    pub fn at_line(mut self, line: u64) -> Self {
        self.problems.iter_mut().for_each(|problem| problem.line = Some(line));
        self
    }

    /// What the system said, if it is the system that refused the file.
    #[must_use]
    pub const fn refused(&self) -> Option<io::ErrorKind> {
        self.refused
    }
}

fn named(path: impl AsRef<Path>) -> String {
    path.as_ref().display().to_string()
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().take(self.shown).enumerate() {
            let separator = if at > 0 { "\n" } else { "" };
            write!(f, "{separator}{problem}")?;
        }
        match self.problems.len().saturating_sub(self.shown) + self.dropped {
            0 => Ok(()),
            rest => write!(f, "\n... and {rest} more"),
        }
    }
}

impl std::error::Error for InputError {}

impl From<WriteError> for InputError {
    fn from(error: WriteError) -> Self {
        let (WriteError::IsThere { name }
        | WriteError::Unfit { name, .. }
        | WriteError::Io { name, .. }) = &error;
        let told = error.to_string();
        let message = told.trim_start_matches(&named(name)).trim_start_matches(": ");
        Self::file(name, message)
    }
}

/// Returns a piece of a file fit for an error message: printable, not too long, in quotes.
#[must_use]
pub fn quote(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * QUOTE_CHARS_MAX)]);
    let mut quoted: String =
        text.chars().take(QUOTE_CHARS_MAX).flat_map(char::escape_debug).collect();
    if text.chars().count() > QUOTE_CHARS_MAX {
        quoted.push_str("...");
    }
    format!("`{quoted}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(line: u64) -> Problem {
        let line = Some(line).filter(|line| *line > 0);
        Problem::new("tests/data/buddyinfo.txt", line, "zone Normal has 9 order columns", "11")
    }

    #[test]
    fn a_problem_reads_as_file_line_found_expected() {
        assert_eq!(
            problem(3).to_string(),
            "tests/data/buddyinfo.txt:3: zone Normal has 9 order columns, expected 11"
        );
        assert_eq!(
            problem(0).to_string(),
            "tests/data/buddyinfo.txt: zone Normal has 9 order columns, expected 11"
        );
        assert_eq!(InputError::other("no kernel `plan-9`").to_string(), "no kernel `plan-9`");
    }

    #[test]
    fn a_long_list_prints_the_first_and_counts_the_rest() {
        let error = InputError::new((1..=23).map(problem).collect()).showing(20);
        let text = error.to_string();
        assert_eq!(text.lines().count(), 21);
        assert!(text.ends_with("\n... and 3 more"), "{text}");
        assert_eq!(error.problems().len(), 23);
    }

    #[test]
    fn what_the_system_refuses_is_told_apart() {
        let error = InputError::io("memory", "read", &io::ErrorKind::PermissionDenied.into());
        assert_eq!(error.refused(), Some(io::ErrorKind::PermissionDenied));
        assert!(error.to_string().starts_with("memory: cannot read: "), "{error}");
        assert_eq!(InputError::file("memory", "is empty").refused(), None);
    }

    #[test]
    fn a_quoted_line_is_short_and_printable() {
        assert_eq!(quote(b"a\tb\xff"), "`a\\tb\u{fffd}`");
        assert!(quote(&[b'x'; 1000]).chars().count() < 130);
    }
}
