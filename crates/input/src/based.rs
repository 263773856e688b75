//! Files that may be based on one another: how a file names its base, and where that is found.

use crate::names::{expected_or_file, shortened};
use crate::printable::is_harmless;
use crate::problem::InputError;
use highorder_files::limits::{self, Count};
use serde::de::DeserializeOwned;
use serde_spanned::Spanned;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// A kind of file of which some come with the program.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// What such a file describes, such as `machine`; the files lie in the folder `machines`.
    pub word: &'static str,
    /// Those that come with the program: names and texts.
    pub built_in: &'static [(&'static str, &'static str)],
}

/// Reads values out of a TOML text; the path is for messages.
///
/// # Errors
/// The line of what is no TOML, misspelt, missing or of another type.
pub fn read_toml<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, InputError> {
    Source { path: path.to_owned(), text: text.to_owned(), is_built_in: false }.values()
}

/// Text of a file and where it is from.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its path; of a file that comes with the program, where the project has it.
    pub path: PathBuf,
    /// What it says.
    pub text: String,
    /// Whether it came with the program: then its path is a name, and nothing is looked for beside it.
    pub is_built_in: bool,
}

impl Kind {
    /// The file of this name: a path, or one that comes with the program.
    ///
    /// # Errors
    /// The file cannot be read, or there is no such name.
    pub fn find(&self, name: &str) -> Result<Source, InputError> {
        if is_path(name) {
            read(Path::new(name))
        } else {
            self.built_in(name).map_err(InputError::other)
        }
    }

    /// The file that another one is based on: a path, relative to that one's folder; or the name of a file
    /// beside it, or of one that comes with the program. `named_at` is where the other one's text says so.
    ///
    /// # Errors
    /// The line that names what cannot be read, or what there is not.
    pub fn find_base(
        &self,
        name: &str,
        named_in: &Source,
        named_at: &Range<usize>,
    ) -> Result<Source, InputError> {
        let refuse = |message: String| named_in.refuse(named_at, format!("`based_on`: {message}"));
        let folder = named_in.path.parent().unwrap_or(Path::new(""));
        if is_path(name) {
            return read(&folder.join(name)).map_err(|error| refuse(error.to_string()));
        }
        let beside = folder.join(format!("{name}.toml"));
        // A file of the name of its base is based on the one that comes with the program.
        if !named_in.is_built_in && beside != named_in.path && beside.is_file() {
            return read(&beside).map_err(|error| refuse(error.to_string()));
        }
        self.built_in(name).map_err(refuse)
    }

    /// A file, what it is based on, what that is based on, and so on. `base_of` tells what a file says of its base,
    /// and where it says so.
    ///
    /// # Errors
    /// As `base_of` and [`find_base`](Self::find_base), or the line that names a file that led to it.
    pub fn chain<E: From<InputError>>(
        &self,
        file: Source,
        base_of: impl Fn(&Source) -> Result<Option<(String, Range<usize>)>, E>,
    ) -> Result<Vec<Source>, E> {
        let mut sources = vec![file];
        loop {
            let last = &sources[sources.len() - 1];
            let Some((name, span)) = base_of(last)? else { return Ok(sources) };
            let base = self.find_base(&name, last, &span)?;
            if let Some(at) = sources.iter().position(|source| source.is_same_file(&base)) {
                let circle = sources[at..].iter().chain([&base]);
                let paths: Vec<String> = circle.map(|s| s.path.display().to_string()).collect();
                let message = format!("`based_on` goes round in a circle: {}", paths.join(", "));
                return Err(last.refuse(&span, message).into());
            }
            sources.push(base);
        }
    }

    fn built_in(&self, name: &str) -> Result<Source, String> {
        let Self { word, built_in } = self;
        match built_in.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Ok(Source {
                path: format!("{word}s/{name}.toml").into(),
                text: (*text).to_owned(),
                is_built_in: true,
            }),
            None => {
                let names: Vec<&str> = built_in.iter().map(|(name, _)| *name).collect();
                let expected = expected_or_file(name, &names);
                Err(format!("no {word} `{name}`, {expected}"))
            }
        }
    }
}

impl Source {
    /// The values that the text has.
    ///
    /// # Errors
    /// As [`read_toml`].
    pub fn values<T: DeserializeOwned>(&self) -> Result<T, InputError> {
        self.table()?;
        toml::from_str(&self.text).map_err(|error| self.refuse_toml(&error))
    }

    /// The text as a table, every value with its place.
    ///
    /// # Errors
    /// The line of what is no TOML, or of a text that is too long or would not only be printed.
    pub(crate) fn table(&self) -> Result<Spanned<DeTable<'_>>, InputError> {
        let table = DeTable::parse(&self.text).map_err(|error| self.refuse_toml(&error))?;
        self.check_texts(table.get_ref())?;
        Ok(table)
    }

    fn check_texts(&self, table: &DeTable<'_>) -> Result<(), InputError> {
        for (key, value) in table {
            self.check_text(key.get_ref(), &key.span(), limits::NAME_CHARS)?;
            self.check_value(value)?;
        }
        Ok(())
    }

    fn check_value(&self, value: &Spanned<DeValue<'_>>) -> Result<(), InputError> {
        match value.get_ref() {
            DeValue::String(text) => self.check_text(text, &value.span(), limits::TEXT_CHARS),
            DeValue::Array(values) => values.iter().try_for_each(|value| self.check_value(value)),
            DeValue::Table(table) => self.check_texts(table),
            _ => Ok(()),
        }
    }

    fn check_text(&self, text: &str, at: &Range<usize>, limit: Count) -> Result<(), InputError> {
        let is_fit = |c: &char| is_harmless(*c) || *c == '\n';
        if let Some(found) = text.chars().find(|c| !is_fit(c)) {
            let message = format!("a text with {found:?}, expected no control characters");
            return Err(self.refuse(at, message));
        }
        limit.check(text.chars().count() as u64).map_err(|message| self.refuse(at, message))
    }

    /// A problem at a place of the text.
    #[must_use]
    pub fn refuse(&self, span: &Range<usize>, message: impl std::fmt::Display) -> InputError {
        InputError::line(&self.path, self.line(span.start), message)
    }

    /// What reading the text as TOML found wrong; a near miss is told what was meant.
    #[must_use]
    pub fn refuse_toml(&self, error: &toml::de::Error) -> InputError {
        self.refuse(&error.span().unwrap_or_default(), shortened(error.message().trim_end()))
    }

    /// The line of a byte of the text, counted from 1.
    #[must_use]
    pub fn line(&self, byte: usize) -> usize {
        line_of(&self.text, byte)
    }

    /// Name of the file, without its ending.
    #[must_use]
    pub fn name(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Whether both are the same file, whatever the way to it.
    #[must_use]
    pub fn is_same_file(&self, other: &Self) -> bool {
        let place = |source: &Self| std::fs::canonicalize(&source.path).ok();
        self.is_built_in == other.is_built_in
            && (self.path == other.path
                || (!self.is_built_in && place(self).is_some() && place(self) == place(other)))
    }
}

/// Whether this names a file, not something that comes with the program.
#[must_use]
pub fn is_path(name: &str) -> bool {
    name.contains('/') || Path::new(name).extension().is_some_and(|e| e == "toml")
}

fn read(path: &Path) -> Result<Source, InputError> {
    let text = highorder_files::read_text(path, limits::SETUP)
        .map_err(|error| InputError::read(path, error))?;
    Ok(Source { path: path.to_owned(), text, is_built_in: false })
}

/// The line of a byte of a text, counted from 1.
pub(crate) fn line_of(text: &str, byte: usize) -> usize {
    let until = text.as_bytes().get(..byte).unwrap_or(text.as_bytes());
    until.iter().filter(|byte| **byte == b'\n').count() + 1
}
