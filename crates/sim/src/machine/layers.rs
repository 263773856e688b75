//! A machine file and those that it is based on, laid over one another.
//!
//! What a file says stands, and the rest is its base's:
//!
//! - A key of `[memory]`, `[in_use]` and `[sched]`. Whoever changes one says where the table's values are from.
//! - A cost, whole: its number and its source.
//! - All entries of `[[node]]`, of `[[disk]]` or of `[[swap]]`, each list for itself. An entry has what it does not
//!   say from the base's entry of the same number, and a node beyond those from the base's first.
//! - No description: it is of another machine.

use crate::error::InputError;
use crate::input_file::{Kind, Source};
use serde_spanned::Spanned;
use std::ops::Range;
use toml::de::{DeArray, DeString, DeTable, DeValue};

/// Tables whose values have one source.
const SOURCED: [&str; 3] = ["memory", "in_use", "sched"];
/// Tables whose values have a source each.
const COSTS: &str = "costs";
const DESCRIPTION: &str = "description";
const BASED_ON: &str = "based_on";
/// Lists of tables.
const LISTS: [&str; 3] = [NODE, DISK, SWAP];
const NODE: &str = "node";
const DISK: &str = "disk";
const SWAP: &str = "swap";
const SOURCE: &str = "source";
/// What a node has of a base only if that has as many nodes.
const DISTANCES: &str = "distances";
/// The kinds of disks, and what goes with them.
const DISK_KINDS: [&str; 2] = ["rotating", "flash"];
const SAYS_ROTATIONAL: &str = "says_rotational";

type Table<'i> = Spanned<DeTable<'i>>;
type Value<'i> = Spanned<DeValue<'i>>;

/// The texts of a file and its bases. Spans count through all of them, the file's own first.
pub(super) struct Layers(Vec<Source>);

impl Layers {
    /// The file and all that it is based on.
    ///
    /// # Errors
    /// The line of what is no TOML, or of a `based_on` that names no file, or one of those that led to it.
    pub(super) fn read(kind: &Kind, file: Source) -> Result<Self, InputError> {
        kind.chain(file, base_of).map(Self)
    }

    /// The file itself.
    pub(super) fn file(&self) -> &Source {
        &self.0[0]
    }

    /// What the file is based on.
    pub(super) fn base(&self) -> Option<&Source> {
        self.0.get(1)
    }

    /// A problem at a place of one of the texts.
    pub(super) fn refuse(
        &self,
        span: &Range<usize>,
        message: impl std::fmt::Display,
    ) -> InputError {
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

    /// The file's values over those of its bases.
    ///
    /// # Errors
    /// A table that changes what its base says and does not say where its values are from.
    pub(super) fn merged(&self) -> Result<Table<'_>, InputError> {
        let mut start = 0;
        let mut tables = Vec::new();
        for source in &self.0 {
            tables.push(shifted(parse(source)?, start));
            start += source.text.len() + 1;
        }
        let mut problems = Vec::new();
        let mut merged = tables.pop().expect("a file is there");
        for mut own in tables.into_iter().rev() {
            self.lay(own.get_mut(), merged.into_inner(), &mut problems);
            merged = own;
        }
        if problems.is_empty() { Ok(merged) } else { Err(InputError::all(&problems)) }
    }

    /// Adds to a file's values what only its base says.
    fn lay<'i>(&self, own: &mut DeTable<'i>, base: DeTable<'i>, problems: &mut Vec<InputError>) {
        own.remove(BASED_ON);
        for (key, base) in base {
            let name = key.get_ref().to_string();
            let Some(own) = own.get_mut(name.as_str()) else {
                if name != DESCRIPTION {
                    own.insert(key, base);
                }
                continue;
            };
            if LISTS.contains(&name.as_str()) {
                self.lay_list(&name, own, base, problems);
            } else if SOURCED.contains(&name.as_str()) || name == COSTS {
                if name != COSTS {
                    self.expect_source(&format!("[{name}]"), own, problems);
                }
                lay_keys(own, base, |_| true);
            }
        }
    }

    /// Adds to the entries of a list what they have from the base's.
    fn lay_list<'i>(
        &self,
        name: &str,
        own: &mut Value<'i>,
        base: Value<'i>,
        problems: &mut Vec<InputError>,
    ) {
        let (DeValue::Array(own), DeValue::Array(base)) = (own.get_mut(), base.into_inner()) else {
            return;
        };
        let nr_own = own.len();
        for (number, own) in own.iter_mut().enumerate() {
            let same = base.get(number).or_else(|| base.first().filter(|_| name == NODE));
            let Some(same) = same.cloned() else { continue };
            match name {
                NODE => {
                    let is_same_shape = nr_own == base.len();
                    lay_keys(own, same, |key| key != DISTANCES || is_same_shape);
                }
                DISK => {
                    self.expect_source("[[disk]]", own, problems);
                    lay_disk(own, same);
                }
                _ => lay_keys(own, same, |_| true),
            }
        }
    }

    /// Refuses a table that changes values and does not say where they are from.
    fn expect_source(&self, name: &str, own: &Value<'_>, problems: &mut Vec<InputError>) {
        if let DeValue::Table(table) = own.get_ref()
            && !table.is_empty()
            && !table.contains_key(SOURCE)
        {
            let message = format!(
                "`{name}` changes what the file is based on, expected a `source` of its own"
            );
            problems.push(self.refuse(&own.span(), message));
        }
    }
}

/// Adds to a table those keys of another that it lacks and that are wanted.
fn lay_keys<'i>(own: &mut Value<'i>, base: Value<'i>, wants: impl Fn(&str) -> bool) {
    if let (DeValue::Table(own), DeValue::Table(base)) = (own.get_mut(), base.into_inner()) {
        for (key, value) in base {
            if wants(key.get_ref()) && !own.contains_key(&**key.get_ref()) {
                own.insert(key, value);
            }
        }
    }
}

/// The same for a disk: one of another kind has nothing of the base's kind, one of the same kind the rest of it.
fn lay_disk<'i>(own: &mut Value<'i>, base: Value<'i>) {
    let (DeValue::Table(table), DeValue::Table(of_base)) = (own.get_mut(), base.get_ref()) else {
        return;
    };
    let kind_of =
        |table: &DeTable<'_>| DISK_KINDS.into_iter().find(|kind| table.contains_key(*kind));
    let own_kind = kind_of(table);
    let is_other_kind = own_kind.is_some() && own_kind != kind_of(of_base);
    if let Some(kind) = own_kind.filter(|_| !is_other_kind)
        && let (Some(own), Some(base)) = (table.get_mut(kind), of_base.get(kind))
    {
        lay_keys(own, base.clone(), |_| true);
    }
    lay_keys(own, base, |key| {
        !is_other_kind || !(DISK_KINDS.contains(&key) || key == SAYS_ROTATIONAL)
    });
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
    DeTable::parse(&source.text).map_err(|error| {
        source.refuse(&error.span().unwrap_or_default(), error.message().trim_end())
    })
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
