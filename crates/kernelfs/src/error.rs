//! The one error type: every bad line of a file, each with what was found and what was expected.

use highorder_files::ReadError;
use std::fmt;
use std::io;
use std::path::Path;

/// How many bad lines of a trace are printed; a table prints all of its bad lines.
pub(crate) const TRACE_PROBLEMS_SHOWN: usize = 20;

/// How much of a bad line an error quotes, in characters.
const QUOTE_CHARS_MAX: usize = 120;

/// One thing wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file's name, as the caller gave it.
    pub file: String,
    /// The line, counted from 1; 0 if the file as a whole is meant.
    pub line: u64,
    /// What the file has there.
    pub found: String,
    /// What the format wants there.
    pub expected: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}, expected {}", self.found, self.expected)
    }
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system said no.
    #[error("{file}: {source}")]
    Io {
        /// The file's name.
        file: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// The content is not what the format allows.
    #[error("{}", list(problems, *shown))]
    Bad {
        /// All bad lines, in file order; never empty.
        problems: Vec<Problem>,
        /// How many of them `Display` prints; it counts the rest.
        shown: usize,
    },
}

impl Error {
    /// An error of a file that cannot be read at all.
    pub(crate) fn read(path: &Path, error: ReadError) -> Error {
        let file = path.display().to_string();
        match error {
            ReadError::Io(source) => Error::Io { file, source },
            ReadError::Unfit { found, expected } => Error::whole(&file, found, expected),
        }
    }

    /// An error about a file as a whole.
    pub(crate) fn whole(
        file: &str,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Error {
        let problem =
            Problem { file: file.into(), line: 0, found: found.into(), expected: expected.into() };
        Error::Bad { problems: vec![problem], shown: usize::MAX }
    }

    /// Returns the bad lines; empty for an I/O error.
    pub fn problems(&self) -> &[Problem] {
        match self {
            Error::Io { .. } => &[],
            Error::Bad { problems, .. } => problems,
        }
    }
}

fn list(problems: &[Problem], shown: usize) -> String {
    let mut text =
        problems.iter().take(shown).map(Problem::to_string).collect::<Vec<_>>().join("\n");
    if let Some(rest) = problems.len().checked_sub(shown).filter(|&rest| rest > 0) {
        text.push_str(&format!("\n... and {rest} more bad lines"));
    }
    text
}

/// Returns a piece of a file fit for an error message: printable, not too long, in quotes.
pub(crate) fn quote(bytes: &[u8]) -> String {
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
        Problem {
            file: "tests/data/buddyinfo.txt".into(),
            line,
            found: "zone Normal has 9 order columns".into(),
            expected: "11".into(),
        }
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
    }

    #[test]
    fn a_long_list_prints_the_first_and_counts_the_rest() {
        let error = Error::Bad { problems: (1..=23).map(problem).collect(), shown: 20 };
        let text = error.to_string();
        assert_eq!(text.lines().count(), 21);
        assert!(text.ends_with("\n... and 3 more bad lines"), "{text}");
        assert_eq!(error.problems().len(), 23);
    }

    #[test]
    fn a_quoted_line_is_short_and_printable() {
        assert_eq!(quote(b"a\tb\xff"), "`a\\tb\u{fffd}`");
        assert!(quote(&[b'x'; 1000]).chars().count() < 130);
    }
}
