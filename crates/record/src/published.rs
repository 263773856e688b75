//! The form of published tables: which rows they have, in which order and with how many digits.
//!
//! Postings about memory management print the same few tables again and again: the benchmark's own rows,
//! how long it took, what the kernel counted. An experiment that repeats one names the published form, and
//! its results are printed so: these rows, in this order. A row that nobody measured reads `-`.
//!
//! The rows come from the files in `published/`. Only their names and digits are read here, never a value.

use crate::vmstat_rows::Form;

/// The tables that postings printed of one benchmark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedForm {
    /// By what an experiment names it: `003_fsmark`.
    pub name: &'static str,
    /// Whose report it is.
    pub form: Form,
    /// The tables, in order.
    pub tables: Vec<PublishedTable>,
}

/// One table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedTable {
    /// Its heading.
    pub title: &'static str,
    /// The headings of its columns, the base first.
    pub columns: Vec<&'static str>,
    /// Its rows.
    pub rows: Vec<PublishedRow>,
    /// Whether it has changes in brackets.
    pub has_brackets: bool,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedRow {
    /// The metric, with its thread count: `System-48`.
    pub metric: String,
    /// The statistic in front of it or behind it; empty for a plain value.
    pub statistic: &'static str,
    /// Of what: `seconds`, `pages` and others.
    pub unit: &'static str,
    /// Digits after the point.
    pub decimals: u8,
}

/// What is told of a table that is no benchmark's own: not a statistic of samples.
const TOTALS: [&str; 2] = ["delta", "total"];

macro_rules! files {
    ($($file:literal),* $(,)?) => { &[$(include_str!(concat!("../../../published/", $file, ".csv"))),*] };
}

/// The forms, by name: whose report, and the files.
const FORMS: [(&str, Form, &[&str]); 7] = [
    (
        "000_stutter",
        Form::Y2016,
        files!["000_stutter_mmap_latency", "000_stutter_duration", "000_stutter_vmstat"],
    ),
    (
        "000_thpscale",
        Form::Y2016,
        files![
            "000_thpscale_fault_latencies",
            "000_thpscale_percentage_huge",
            "000_thpscale_vmstat"
        ],
    ),
    (
        "000_usemem",
        Form::Y2016,
        files!["000_usemem_times", "000_usemem_duration", "000_usemem_vmstat"],
    ),
    ("003_fsmark", Form::Y2012, files!["003_fsmark", "003_fsmark_duration", "003_fsmark_vmstat"]),
    (
        "003_highalloc",
        Form::Y2012,
        files![
            "003_highalloc_success",
            "003_highalloc_duration",
            "003_highalloc_vmstat",
            "003_highalloc_writepage",
            "003_highalloc_congestion_wait"
        ],
    ),
    (
        "003_micro",
        Form::Y2012,
        files!["003_micro_duration", "003_micro_vmstat", "003_micro_congestion_wait"],
    ),
    (
        "003_postmark",
        Form::Y2012,
        files!["003_postmark", "003_postmark_duration", "003_postmark_vmstat"],
    ),
];

/// The forms there are, in alphabetical order.
#[must_use]
pub fn names() -> Vec<&'static str> {
    FORMS.iter().map(|(name, ..)| *name).collect()
}

/// The form of this name.
#[must_use]
pub fn find(name: &str) -> Option<PublishedForm> {
    let (name, form, files) = FORMS.iter().find(|(known, ..)| *known == name)?;
    Some(PublishedForm {
        name,
        form: *form,
        tables: files.iter().map(|text| table(text)).collect(),
    })
}

/// The table of a file: long CSV without quotes, the rows of a table's columns one after another.
fn table(text: &'static str) -> PublishedTable {
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let at = |column: &str| {
        let found = header.iter().position(|name| *name == column);
        found.unwrap_or_else(|| panic!("a published table without the column {column}"))
    };
    let [title, metric, stat, threads, variant, value, unit, change] =
        ["table", "metric", "stat", "threads", "variant", "value", "unit", "published_delta_pct"]
            .map(at);
    let mut table =
        PublishedTable { title: "", columns: Vec::new(), rows: Vec::new(), has_brackets: false };
    for line in lines {
        let cells: Vec<&'static str> = line.split(',').collect();
        assert_eq!(cells.len(), header.len(), "a published row of another length: {line}");
        table.title = cells[title];
        table.has_brackets |= !cells[change].is_empty();
        if !table.columns.contains(&cells[variant]) {
            table.columns.push(cells[variant]);
        }
        let metric = match cells[threads] {
            "" => cells[metric].to_owned(),
            threads => format!("{}-{threads}", cells[metric]),
        };
        let statistic = if TOTALS.contains(&cells[stat]) { "" } else { cells[stat] };
        let decimals = cells[value].split_once('.').map_or(0, |(_, digits)| digits.len() as u8);
        let row = PublishedRow { metric, statistic, unit: cells[unit], decimals };
        let is_same =
            |other: &PublishedRow| (&other.metric, other.statistic) == (&row.metric, row.statistic);
        match table.rows.iter_mut().find(|other| is_same(other)) {
            Some(other) => other.decimals = other.decimals.max(row.decimals),
            None => table.rows.push(row),
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_every_form_has_rows_and_columns() {
        assert!(names().is_sorted());
        for name in names() {
            let form = find(name).unwrap();
            assert!(form.tables.len() >= 3, "{name}");
            for table in &form.tables {
                assert!(!table.title.is_empty() && table.columns.len() >= 2, "{name}: {table:?}");
                assert!(!table.rows.is_empty(), "{name}: {table:?}");
            }
        }
        assert_eq!(find("003_fsmrk"), None);
    }

    #[test]
    fn a_table_has_the_published_rows_in_order_each_once() {
        let fsmark = find("003_fsmark").unwrap();
        let rows: Vec<_> = fsmark.tables[0]
            .rows
            .iter()
            .map(|row| (row.metric.as_str(), row.statistic, row.decimals))
            .collect();
        let four = |metric| ["min", "mean", "stddev", "max"].map(|stat| (metric, stat, 2));
        assert_eq!(rows, [four("Files/s"), four("Overhead")].concat());
        assert!(fsmark.tables[0].has_brackets && !fsmark.tables[2].has_brackets);
        let velocity = fsmark.tables[2].rows.iter().find(|row| row.metric == "Kswapd velocity");
        assert_eq!(velocity.unwrap().decimals, 3);
        let usemem = find("000_usemem").unwrap();
        assert_eq!(usemem.tables[0].rows[6].metric, "System-48");
        assert_eq!(usemem.tables[0].columns, ["kcompactd-v1r1", "nodefrag-v1r3"]);
    }
}
