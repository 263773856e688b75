//! Values by the name that published tables have for them.
//!
//! A published table's cell has a file, a metric, a statistic, a thread count and a variant. What runs measured
//! gets the same names, so that whatever reads the one can read the other.

use crate::compare::{self, Group};
use crate::published::{self, PublishedForm, PublishedRow, PublishedTable, at, csv};
use crate::record::Scale;
use crate::stats::Better;

/// Columns that only some files have, and by which claims choose cells.
pub(crate) use crate::published::SETTINGS;

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The file, without its ending.
    pub file: String,
    /// The metric.
    pub metric: String,
    /// The statistic; empty for a plain value.
    pub stat: String,
    /// The thread count, if there is one.
    pub threads: Option<u32>,
    /// The kernel or setting.
    pub variant: String,
    /// The machine, the configuration and the posting; empty where a file has no such column.
    pub settings: [String; 3],
    /// The value, in the file's unit.
    pub value: f64,
}

/// Values of published tables, or measured ones under their names. Several of one name are samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cells(pub Vec<Cell>);

/// Which cells are meant. What is left out may be anything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// The file, without its ending.
    pub file: String,
    /// The metric; a `*` in front stands for any beginning.
    pub metric: String,
    /// The statistic.
    pub stat: Option<String>,
    /// The thread count.
    pub threads: Option<u32>,
    /// The kernel or setting; `*` for all.
    pub variant: String,
    /// The machine, the configuration and the posting.
    pub settings: [Option<String>; 3],
}

/// What was measured for columns of published tables.
#[derive(Clone, Debug)]
pub struct Measured<'a> {
    /// The published columns that these runs stand for.
    pub columns: &'a [String],
    /// The runs.
    pub group: Group<'a>,
    /// Their scale.
    pub scale: Scale,
}

/// The power of the scale with which values in a unit of `published/` go, where sizes shrink with memory: 1 for
/// amounts, -1 for files by second, which are smaller ones, and 0 for the rest.
#[must_use]
pub fn power_of_scale(unit: &str) -> i32 {
    match unit {
        "KiB" | "MiB" | "bytes" | "pages" | "512B_blocks" | "faults" | "events" | "huge_pages"
        | "inodes" | "slab_objects" | "seconds" | "milliseconds" | "pages_per_minute"
        | "pfns_per_minute" => 1,
        "files_per_second" | "transactions_per_second" => -1,
        // Shares, bytes by second, times of a single thing, tasks at one moment.
        _ => 0,
    }
}

impl Wanted {
    fn fits(&self, cell: &Cell) -> bool {
        let metric = match self.metric.strip_prefix('*') {
            Some(ending) => cell.metric.ends_with(ending),
            None => cell.metric == self.metric,
        };
        let mut settings = self.settings.iter().zip(&cell.settings);
        metric
            && self.file == cell.file
            && self.stat.as_ref().is_none_or(|stat| *stat == cell.stat)
            && self.threads.is_none_or(|threads| cell.threads == Some(threads))
            && (self.variant == "*" || self.variant == cell.variant)
            && settings.all(|(wanted, found)| wanted.as_ref().is_none_or(|w| w == found))
    }
}

impl Cells {
    /// All published cells.
    #[must_use]
    pub fn published() -> Self {
        Self(published::all_files().flat_map(|(file, text)| of_file(file, text)).collect())
    }

    /// What runs measured of a published form, at full size.
    #[must_use]
    pub fn measured(form: &PublishedForm, all: &[Measured<'_>]) -> Self {
        let mut cells = Vec::new();
        for Measured { columns, group, scale } in all {
            let tables = compare::in_published_form(form, std::slice::from_ref(group));
            for (published, measured) in form.tables.iter().zip(&tables) {
                for (row, found) in published.rows.iter().zip(&measured.rows) {
                    let Some(value) = found.cells[0].value else { continue };
                    let scale = f64::from(scale.numerator) / f64::from(scale.denominator);
                    let value = value / scale.powi(power_of_scale(row.unit));
                    let here = columns.iter().filter(|c| published.columns.contains(&c.as_str()));
                    cells.extend(here.map(|column| cell(published, row, column, value)));
                }
            }
        }
        Self(cells)
    }

    /// The values of the cells that are meant.
    #[must_use]
    pub fn find(&self, wanted: &Wanted) -> Vec<f64> {
        self.0.iter().filter(|cell| wanted.fits(cell)).map(|cell| cell.value).collect()
    }

    /// The value of a row of a form in one of its columns: that of its only cell, or for a listing of samples
    /// the smallest or the largest.
    #[must_use]
    pub fn of_row(&self, table: &PublishedTable, row: &PublishedRow, column: &str) -> Option<f64> {
        let values = self.find(&wanted(table, row, column));
        match row.statistic {
            "Min" => values.into_iter().reduce(f64::min),
            "Max" => values.into_iter().reduce(f64::max),
            _ => values.first().copied(),
        }
    }
}

/// The name of a row's cell in one column.
fn wanted(table: &PublishedTable, row: &PublishedRow, column: &str) -> Wanted {
    Wanted {
        file: table.file.to_owned(),
        metric: row.cells.metric.to_owned(),
        stat: Some(row.cells.stat.to_owned()),
        threads: row.cells.threads.parse().ok(),
        variant: row.cells.variant(column),
        settings: row
            .cells
            .settings
            .map(|setting| Some(setting.to_owned()).filter(|setting| !setting.is_empty())),
    }
}

fn cell(table: &PublishedTable, row: &PublishedRow, column: &str, value: f64) -> Cell {
    Cell {
        file: table.file.to_owned(),
        metric: row.cells.metric.to_owned(),
        stat: row.cells.stat.to_owned(),
        threads: row.cells.threads.parse().ok(),
        variant: row.cells.variant(column),
        settings: row.cells.settings.map(str::to_owned),
        value,
    }
}

/// The cells of a published file.
///
/// # Panics
/// At a value that is no number: the files come with the program.
fn of_file(file: &str, text: &'static str) -> Vec<Cell> {
    let (header, lines) = csv(text);
    let [metric, stat, threads, variant, value, unit] =
        ["metric", "stat", "threads", "variant", "value", "unit"].map(|column| at(&header, column));
    let settings = SETTINGS.map(|column| header.iter().position(|name| *name == column));
    let cell = |line: Vec<&'static str>| Cell {
        file: file.to_owned(),
        metric: line[metric].to_owned(),
        stat: line[stat].to_owned(),
        threads: line[threads].parse().ok(),
        variant: line[variant].to_owned(),
        settings: settings.map(|at| at.map_or(String::new(), |at| line[at].to_owned())),
        value: number(line[value], line[unit])
            .unwrap_or_else(|| panic!("{file}: a value of `{}`, expected a number", line[value])),
    };
    lines.map(cell).collect()
}

/// A number; size(1) prints one of its columns in hexadecimal digits.
fn number(text: &str, unit: &str) -> Option<f64> {
    match unit {
        "hex_bytes" => u32::from_str_radix(text, 16).ok().map(f64::from),
        _ => text.parse().ok(),
    }
}

/// Which direction is good for a published row: its file says so in the column `better`.
#[must_use]
pub(crate) fn better(table: &PublishedTable, row: &PublishedRow) -> Better {
    let text =
        published::all_files().find(|(file, _)| *file == table.file).map_or("", |(_, text)| text);
    let (header, mut lines) = csv(text);
    let [metric, stat, better] = ["metric", "stat", "better"].map(|column| at(&header, column));
    let line = lines.find(|line| line[metric] == row.cells.metric && line[stat] == row.cells.stat);
    better_of(line.map_or("", |line| line[better]))
}

/// What a word of the column `better` means.
pub(crate) fn better_of(word: &str) -> Better {
    match word {
        "lower" => Better::Lower,
        "higher" => Better::Higher,
        _ => Better::Neutral,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_every_form_has_its_published_cells() {
        let cells = Cells::published();
        for name in published::names() {
            let form = published::find(name).unwrap();
            for table in &form.tables {
                for row in &table.rows {
                    let found = table.columns.iter().filter_map(|c| cells.of_row(table, row, c));
                    assert!(found.count() > 0, "{name}: {row:?}");
                }
            }
        }
    }

    #[test]
    fn cells_are_found_by_what_is_said_of_them() {
        let cells = Cells::published();
        let wanted = Wanted {
            file: "000_usemem_times".into(),
            metric: "Elapsd".into(),
            stat: Some("Amean".into()),
            threads: Some(1),
            variant: "kcompactd-v1r1".into(),
            ..Wanted::default()
        };
        assert_eq!(cells.find(&wanted).len(), 1);
        assert_eq!(cells.find(&Wanted { threads: None, ..wanted.clone() }).len(), 7, "all counts");
        assert_eq!(cells.find(&Wanted { variant: "*".into(), ..wanted.clone() }).len(), 2);
        assert_eq!(cells.find(&Wanted { metric: "*psd".into(), ..wanted.clone() }).len(), 1);
        assert_eq!(cells.find(&Wanted { metric: "*sed".into(), ..wanted }).len(), 0);
    }

    #[test]
    fn the_largest_of_samples_is_the_rows_value() {
        let form = published::find("002_mmap_demo").unwrap();
        let listing = &form.tables[1];
        let row = |statistic, metric| {
            let is_it =
                |row: &&PublishedRow| (row.statistic, row.metric.as_str()) == (statistic, metric);
            listing.rows.iter().find(is_it).unwrap()
        };
        let cells = Cells(
            [3.0, 9.0, 4.0].map(|value| cell(listing, row("Max", "swpd"), "default", value)).into(),
        );
        assert_eq!(cells.of_row(listing, row("Max", "swpd"), "default"), Some(9.0));
        assert_eq!(cells.of_row(listing, row("Min", "swpd"), "default"), Some(3.0));
        assert_eq!(cells.of_row(listing, row("Max", "swpd"), "MADV_HUGEPAGE"), None);
        assert_eq!(cells.of_row(listing, row("Max", "so"), "default"), None);
    }
}
