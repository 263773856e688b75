//! What was measured, in the form of the published files: the same columns, rows and spellings, so that whoever can
//! score the one can score the other.

use super::cells::{Cells, Wanted, better_of};
use crate::published::{self, SETTINGS, at, csv, printed_change_percent};
use std::fmt::Write as _;

/// The text of each published file of which something was measured, by its name without its ending.
///
/// A line stands for a cell. It says what the published one says but for `value`, which is the measured one to the last
/// digit, `published_delta_pct`, which is worked out from it as reports do, and `source`, which is given; what was said
/// of the published number alone, as `bound`, is empty. Of a listing's samples only the smallest and the largest are
/// known: they stand in the lines of its first two samples.
#[must_use]
pub fn files(cells: &Cells, source: &str) -> Vec<(&'static str, String)> {
    let all = published::all_files();
    let files = all.map(|(name, text)| (name, file(name, text, cells, source)));
    files.filter_map(|(name, text)| Some((name, text?))).collect()
}

fn file(name: &str, text: &'static str, cells: &Cells, source: &str) -> Option<String> {
    let (header, lines) = csv(text);
    let columns = Columns::of(&header);
    let mut out = header.join(",");
    out.push('\n');
    let mut nr_lines = 0;
    // Of cells of one name, samples, the next value for the next line.
    let mut seen: Vec<(Wanted, usize)> = Vec::new();
    // The base of each row is what its first line says.
    let mut base: Option<(Wanted, f64)> = None;
    for line in lines {
        let wanted = columns.wanted(name, &line);
        let before = match seen.iter_mut().find(|(known, _)| *known == wanted) {
            Some((_, nr)) => {
                *nr += 1;
                *nr - 1
            }
            None => {
                seen.push((wanted.clone(), 1));
                0
            }
        };
        let Some(value) = cells.find(&wanted).get(before).copied() else { continue };
        let row = Wanted { variant: String::new(), ..wanted };
        if base.as_ref().is_none_or(|(known, _)| *known != row) {
            base = Some((row, value));
        }
        let change = base
            .as_ref()
            .map(|(_, base)| printed_change_percent(better_of(line[columns.better]), *base, value));
        let cell = |(at, published): (usize, &&str)| match at {
            at if at == columns.value => value.to_string(),
            at if at == columns.change => match change.flatten() {
                Some(change) if !published.is_empty() => format!("{change:.2}"),
                _ => String::new(),
            },
            at if at == columns.source => source.to_owned(),
            at if Some(at) == columns.bound => String::new(),
            _ => (*published).to_owned(),
        };
        let words: Vec<String> = line.iter().enumerate().map(cell).collect();
        let _ = writeln!(out, "{}", words.join(","));
        nr_lines += 1;
    }
    (nr_lines > 0).then_some(out)
}

/// Where a file's columns are.
struct Columns {
    metric: usize,
    stat: usize,
    threads: usize,
    variant: usize,
    value: usize,
    better: usize,
    change: usize,
    source: usize,
    bound: Option<usize>,
    settings: [Option<usize>; 3],
}

impl Columns {
    fn of(header: &[&str]) -> Self {
        let optional = |column: &str| header.iter().position(|name| *name == column);
        Self {
            metric: at(header, "metric"),
            stat: at(header, "stat"),
            threads: at(header, "threads"),
            variant: at(header, "variant"),
            value: at(header, "value"),
            better: at(header, "better"),
            change: at(header, "published_delta_pct"),
            source: at(header, "source"),
            bound: optional("bound"),
            settings: SETTINGS.map(optional),
        }
    }

    fn wanted(&self, file: &str, line: &[&str]) -> Wanted {
        let setting = |at: Option<usize>| {
            let text = at.map_or("", |at| line[at]);
            Some(text.to_owned()).filter(|text| !text.is_empty())
        };
        Wanted {
            file: file.to_owned(),
            metric: line[self.metric].to_owned(),
            stat: Some(line[self.stat].to_owned()),
            threads: line[self.threads].parse().ok(),
            variant: line[self.variant].to_owned(),
            settings: self.settings.map(setting),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::Claims;

    /// The published cells in their own form are the published files, so whatever reads these reads ours.
    #[test]
    fn the_published_cells_come_out_as_they_went_in() {
        let written = files(&Cells::published(), "x");
        assert_eq!(written.len(), published::all_files().count());
        for (name, text) in published::all_files() {
            let (_, ours) = written.iter().find(|(known, _)| *known == name).unwrap();
            let columns = Columns::of(&csv(text).0);
            assert_eq!(ours.lines().count(), text.lines().count(), "{name}");
            for (ours, published) in ours.lines().zip(text.lines()).skip(1) {
                let ours: Vec<&str> = ours.split(',').collect();
                for (at, published) in published.split(',').enumerate() {
                    if at == columns.value && !published.contains(|c: char| c.is_ascii_alphabetic())
                    {
                        let number = |text: &str| text.parse::<f64>().ok();
                        assert_eq!(number(ours[at]), number(published), "{name}: {ours:?}");
                    } else if at == columns.source {
                        assert_eq!(ours[at], "x");
                    } else if at != columns.change
                        && Some(at) != columns.bound
                        && at != columns.value
                    {
                        assert_eq!(ours[at], published, "{name}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_was_not_measured_has_no_line_and_no_file() {
        let mut cells = Cells::published();
        cells.0.retain(|cell| cell.file == "000_usemem_times" && cell.threads == Some(1));
        let written = files(&cells, "a run");
        assert_eq!(written.len(), 1);
        let (name, text) = &written[0];
        assert_eq!(*name, "000_usemem_times");
        assert_eq!(text.lines().count(), 1 + 4, "two rows of two columns: {text}");
        let last = text.lines().nth(2).unwrap();
        assert!(
            last.starts_with("usemem,usemem times,System,Amean,1,nodefrag-v1r3,46.81,"),
            "{last}"
        );
        assert!(last.ends_with(",54.49,a run"), "worked out of what is written: {last}");
        assert!(Claims::built_in().0.len() > 200);
    }
}
