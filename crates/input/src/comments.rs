//! The values of a TOML file with the comments beside them, which say where a value is from.

use crate::based::line_of;
use serde_spanned::Spanned;
use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// A value of a file, and what is said of it there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commented {
    /// The tables it is in and its key: `compaction.free_scan`, `node.1.memory_mib`.
    pub key: String,
    /// The value as it is written.
    pub text: String,
    /// The line of its key, counted from 1.
    pub line: usize,
    /// The comment behind it, or the lines of comment above it, or what is said in these places of its table.
    pub comment: Option<String>,
}

/// All values of a TOML text in the order in which they stand there.
///
/// # Errors
/// The text is no TOML.
pub fn commented_values(text: &str) -> Result<Vec<Commented>, toml::de::Error> {
    let root = DeTable::parse(text)?;
    let mut found = Vec::new();
    collect(text, "", root.get_ref(), None, &mut found);
    found.sort_by_key(|(start, _)| *start);
    Ok(found.into_iter().map(|(_, value)| value).collect())
}

/// Adds a table's values; `said` is the comment of what is around it.
fn collect(
    text: &str,
    prefix: &str,
    table: &DeTable<'_>,
    said: Option<&str>,
    found: &mut Vec<(usize, Commented)>,
) {
    for (key, value) in table {
        let name = match prefix {
            "" => key.get_ref().to_string(),
            prefix => format!("{prefix}.{}", key.get_ref()),
        };
        add(text, &name, key.span(), value, said, found);
    }
}

fn add(
    text: &str,
    name: &str,
    key: Range<usize>,
    value: &Spanned<DeValue<'_>>,
    said: Option<&str>,
    found: &mut Vec<(usize, Commented)>,
) {
    let span = value.span();
    let own = comment_behind(text, span.end).or_else(|| comment_above(text, key.start));
    let comment = own.or_else(|| said.map(ToOwned::to_owned));
    match value.get_ref() {
        DeValue::Table(table) => collect(text, name, table, comment.as_deref(), found),
        DeValue::Array(array) if array.iter().any(|one| one.get_ref().is_table()) => {
            for (number, one) in array.iter().enumerate() {
                // The key's own span is that in the first header.
                add(text, &format!("{name}.{number}"), one.span(), one, None, found);
            }
        }
        _ => {
            let line = line_of(text, key.start);
            let text = text[span].to_owned();
            found.push((key.start, Commented { key: name.to_owned(), text, line, comment }));
        }
    }
}

/// The comment at the end of the line in which something ends.
fn comment_behind(text: &str, end: usize) -> Option<String> {
    let rest = text.get(end..)?.lines().next()?;
    words(rest.trim_start().strip_prefix('#')?)
}

/// The lines above that are nothing but comment.
fn comment_above(text: &str, start: usize) -> Option<String> {
    let before = &text[..text[..start].rfind('\n')?];
    let above = before.lines().rev().map_while(|line| line.trim_start().strip_prefix('#'));
    let mut lines: Vec<&str> = above.map(str::trim).collect();
    lines.reverse();
    words(&lines.join(" "))
}

/// A comment's text, if it has any.
fn words(comment: &str) -> Option<String> {
    let comment = comment.trim_start_matches('#').trim();
    (!comment.is_empty()).then(|| comment.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comments(text: &str) -> Vec<(String, String, Option<String>)> {
        let values = commented_values(text).unwrap();
        values.into_iter().map(|value| (value.key, value.text, value.comment)).collect()
    }

    fn said(key: &str, text: &str, comment: &str) -> (String, String, Option<String>) {
        let comment = (!comment.is_empty()).then(|| comment.to_owned());
        (key.to_owned(), text.to_owned(), comment)
    }

    #[test]
    fn a_comment_belongs_to_the_value_that_it_stands_behind_or_above() {
        let text = "# The file.\n\nname = \"a # b\" # why\nplain = 1\n\n[t] # of all\n# first\n# second\n\
                    x = [\n  1, # one\n  2,\n] # behind\n# above\ny = 2\n\n[u]\nz = true\n";
        let expected = [
            said("name", "\"a # b\"", "why"),
            said("plain", "1", ""),
            said("t.x", "[\n  1, # one\n  2,\n]", "behind"),
            said("t.y", "2", "above"),
            said("u.z", "true", ""),
        ];
        assert_eq!(comments(text), expected);
    }

    #[test]
    fn values_take_the_comment_of_their_table_if_they_have_none() {
        let text = "[t] # of all\nx = 1\n\ny = 2 # own\n\n# each\n[[d]]\nz = 1\n\n[[d]]\nz = 2\n\n\
                    [c]\np = { ns = 1, source = \"s\" } # beside\nq.r = 3 # dotted\n";
        let expected = [
            said("t.x", "1", "of all"),
            said("t.y", "2", "own"),
            said("d.0.z", "1", "each"),
            said("d.1.z", "2", ""),
            said("c.p.ns", "1", "beside"),
            said("c.p.source", "\"s\"", "beside"),
            said("c.q.r", "3", "dotted"),
        ];
        assert_eq!(comments(text), expected);
    }

    #[test]
    fn lines_are_those_of_the_keys() {
        let values = commented_values("a = 1\r\n\r\n[t]\r\nb = 2 # c\r\n").unwrap();
        assert_eq!(values.iter().map(|value| value.line).collect::<Vec<_>>(), [1, 4]);
        assert_eq!(values[1].comment.as_deref(), Some("c"));
    }
}
