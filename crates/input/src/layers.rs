//! A file and those that it is based on, laid over one another.
//!
//! Places count through all of the texts, the file's own first, so that whatever is wrong with a value is told with
//! the file and the line that say it.

use crate::based::{Kind, Source};
use crate::names::shortened;
use crate::problem::InputError;
use serde::de::DeserializeOwned;
use serde_spanned::Spanned;
use std::ops::Range;
use toml::de::{DeArray, DeString, DeTable, DeValue};

/// The key by which a file names its base.
const BASED_ON: &str = "based_on";

/// A table with its place.
pub type Table<'i> = Spanned<DeTable<'i>>;
/// A value with its place.
pub type Value<'i> = Spanned<DeValue<'i>>;

/// The texts of a file and its bases.
#[derive(Debug)]
pub struct Layers(Vec<Source>);

impl Layers {
    /// The file and all that it is based on.
    ///
    /// # Errors
    /// The line of what is no TOML, or of a `based_on` that names no file, or one of those that led to it.
    pub fn read(kind: &Kind, file: Source) -> Result<Self, InputError> {
        kind.chain(file, base_of).map(Self)
    }

    /// These files under a text that somebody else lays over them; it has the name of the file.
    #[must_use]
    pub fn under(mut self, text: String) -> Self {
        self.0.insert(0, Source { text, ..self.0[0].clone() });
        self
    }

    /// The file, what it is based on, and so on.
    #[must_use]
    pub fn sources(&self) -> &[Source] {
        &self.0
    }

    /// The file itself.
    #[must_use]
    pub fn file(&self) -> &Source {
        &self.0[0]
    }

    /// What the file is based on.
    #[must_use]
    pub fn base(&self) -> Option<&Source> {
        self.0.get(1)
    }

    /// A problem at a place of one of the texts.
    pub fn refuse(&self, span: &Range<usize>, message: impl std::fmt::Display) -> InputError {
        let (at, start) = self.source_at(span.start);
        let span = span.start - start..span.end.saturating_sub(start);
        if at == 0 {
            return self.0[0].refuse(&span, message);
        }
        let file = self.file().path.display();
        self.0[at].refuse(&span, format!("{message} ({file} is based on this file)"))
    }

    /// The number of the source in which a byte lies, and where that begins.
    fn source_at(&self, byte: usize) -> (usize, usize) {
        let mut start = 0;
        for (at, source) in self.0.iter().enumerate() {
            let end = start + source.text.len() + 1;
            if byte < end || at + 1 == self.0.len() {
                return (at, start);
            }
            start = end;
        }
        (0, 0)
    }

    /// The file's values over those of its bases: `lay` adds to a table what only the table of its base says.
    ///
    /// # Errors
    /// The line of what is no TOML.
    pub fn merged<'i>(
        &'i self,
        mut lay: impl FnMut(&mut DeTable<'i>, DeTable<'i>),
    ) -> Result<Table<'i>, InputError> {
        let mut start = 0;
        let mut tables = Vec::new();
        for source in &self.0 {
            tables.push(shifted(parse(source)?, start));
            start += source.text.len() + 1;
        }
        let mut merged = tables.pop().expect("a file is there");
        for mut own in tables.into_iter().rev() {
            own.get_mut().remove(BASED_ON);
            lay(own.get_mut(), merged.into_inner());
            merged = own;
        }
        merged.get_mut().remove(BASED_ON);
        Ok(merged)
    }

    /// The values of a merged table.
    ///
    /// # Errors
    /// The file and line of one that is misspelt, missing or of another type.
    pub fn values<T: DeserializeOwned>(&self, merged: &Table<'_>) -> Result<T, InputError> {
        let values = toml::de::Deserializer::from(merged.clone());
        T::deserialize(values).map_err(|error: toml::de::Error| {
            let span = error.span().unwrap_or_default();
            let key = key_at("", merged.get_ref(), &span).unwrap_or_default();
            self.refuse(&span, told(error.message().trim_end(), &key))
        })
    }
}

/// What is wrong with the value or the table of this key, so that it says which.
///
/// A bound that is not kept reads "is 3, expected 4..=5": it is the value's own type that knows no more.
fn told(message: &str, key: &str) -> String {
    if message.starts_with("is ") {
        return format!("`{key}` {message}");
    }
    let missing = message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
    match missing {
        Some(name) => {
            let dot = if key.is_empty() { "" } else { "." };
            format!("`{key}{dot}{name}` is set neither here nor in what this file is based on")
        }
        None => shortened(message),
    }
}

/// The key of what has this place, `outer.inner` for one in a table.
fn key_at(prefix: &str, table: &DeTable<'_>, span: &Range<usize>) -> Option<String> {
    table.iter().find_map(|(key, value)| {
        let dot = if prefix.is_empty() { "" } else { "." };
        let name = format!("{prefix}{dot}{}", key.get_ref());
        match value.get_ref() {
            _ if value.span() == *span => Some(name),
            DeValue::Table(inner) => key_at(&name, inner, span),
            _ => None,
        }
    })
}

/// Adds to a table those keys of another that it lacks and that are wanted.
pub fn lay_keys<'i>(own: &mut Value<'i>, base: Value<'i>, wants: impl Fn(&str) -> bool) {
    if let (DeValue::Table(own), DeValue::Table(base)) = (own.get_mut(), base.into_inner()) {
        for (key, value) in base {
            if wants(key.get_ref()) && !own.contains_key(&**key.get_ref()) {
                own.insert(key, value);
            }
        }
    }
}

/// The file that a file says it is based on, and where it says so.
fn base_of(source: &Source) -> Result<Option<(String, Range<usize>)>, InputError> {
    let table = parse(source)?;
    let Some(value) = table.get_ref().get(BASED_ON) else { return Ok(None) };
    match value.get_ref() {
        DeValue::String(name) => Ok(Some((name.to_string(), value.span()))),
        other => {
            let found = other.type_str();
            let message =
                format!("`{BASED_ON}` is of type {found}, expected a file's name as text");
            Err(source.refuse(&value.span(), message))
        }
    }
}

fn parse(source: &Source) -> Result<Table<'_>, InputError> {
    source.table()
}

/// The same table with every place later by so many bytes.
fn shifted(table: Table<'_>, by: usize) -> Table<'_> {
    Spanned::new(moved(table.span(), by), shifted_entries(table.into_inner(), by))
}

fn shifted_entries(table: DeTable<'_>, by: usize) -> DeTable<'_> {
    let entries = table.into_iter();
    entries.map(|(key, value)| (shifted_key(key, by), shifted_value(value, by))).collect()
}

fn shifted_key(key: Spanned<DeString<'_>>, by: usize) -> Spanned<DeString<'_>> {
    Spanned::new(moved(key.span(), by), key.into_inner())
}

fn shifted_value(value: Value<'_>, by: usize) -> Value<'_> {
    let span = moved(value.span(), by);
    let value = match value.into_inner() {
        DeValue::Array(items) => {
            let mut moved = DeArray::new();
            for item in items {
                moved.push(shifted_value(item, by));
            }
            DeValue::Array(moved)
        }
        DeValue::Table(table) => DeValue::Table(shifted_entries(table, by)),
        other => other,
    };
    Spanned::new(span, value)
}

fn moved(span: Range<usize>, by: usize) -> Range<usize> {
    span.start + by..span.end + by
}
