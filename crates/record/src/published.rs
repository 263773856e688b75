//! The form of published tables: which rows they have, in which order and with how many digits.
//!
//! Postings about memory management print the same few tables again and again: the benchmark's own rows,
//! how long it took, what the kernel counted. An experiment that repeats one names the published form, and
//! its results are printed so: these rows, in this order. A row that nobody measured reads `-`.
//!
//! The rows come from the files in `published/`. Only their names and digits are read here, never a value: that
//! does [`score`](crate::score).

use crate::stats::{Better, change_percent};
use crate::vmstat_rows::Form;
use std::sync::OnceLock;

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
    /// The file that it comes from, in `published/`.
    pub file: &'static str,
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
    /// What its cells are called in the file.
    pub cells: CellNames,
}

/// What the cells of a row are called in their file; the column adds the variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellNames {
    /// The metric.
    pub metric: &'static str,
    /// The statistic; empty for a plain value.
    pub stat: &'static str,
    /// The thread count; empty if there is none.
    pub threads: &'static str,
    /// The word with which the variant begins, where it is no part of the column's heading; else empty.
    pub variant_begins: &'static str,
    /// The machine, the configuration and the posting; empty where the file has no such column.
    pub settings: [&'static str; 3],
}

impl CellNames {
    /// The variant that the file has for a cell in this column.
    #[must_use]
    pub fn variant(&self, column: &str) -> String {
        match self.variant_begins {
            "" => column.to_owned(),
            word => format!("{word} {column}"),
        }
    }
}

/// What is told of a table that is no benchmark's own: not a statistic of samples.
const TOTALS: [&str; 3] = ["count", "delta", "total"];
/// Where the first word of a variant says what was measured: it goes in front of the row.
const MEASURED_FIRST: &str = "002_numa_thp_bench";
/// What a row of samples says that are no statistic: its smallest and its largest are shown.
const SAMPLE: &str = "sample";
/// vmstat(8)'s first line, which is of the time before the run.
const SINCE_BOOT: &str = "since_boot";

/// A file of `published/`: its name without its ending, and its text.
type File = (&'static str, &'static str);

macro_rules! files {
    ($($file:literal),* $(,)?) => {
        &[$(($file, include_str!(concat!("../../../published/", $file, ".csv")))),*]
    };
}

/// The forms, by name: whose report, and the files.
const FORMS: [(&str, Form, &[File]); 12] = [
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
    ("001_compaction", Form::Y2016, files!["001_compaction_free_scan_rates"]),
    ("002_mmap_demo", Form::Y2016, files!["002_mmap_demo_time", "002_mmap_demo_vmstat"]),
    ("002_numa_bench", Form::Y2016, files!["002_numa_thp_bench"]),
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
    ("004_frag_1socket", Form::Y2016, FRAGMENTATION),
    ("004_frag_2socket", Form::Y2016, FRAGMENTATION),
];

/// What postings printed of fragmentation, on both machines, with advice and without.
const FRAGMENTATION: &[File] =
    files!["public_004_extfrag_events", "public_004_thpfioscale", "public_004_breakdowns"];
/// Which machine's lines of these a form has, of which posting; some breakdowns are of a later one.
const CHOSEN: [(&str, &str, &str); 2] = [
    ("004_frag_1socket", "1-socket Skylake", "2018-11-07"),
    ("004_frag_2socket", "2-socket Haswell", "2018-11-07"),
];
const CHOSEN_BREAKDOWNS: (&str, &str) = ("public_004_breakdowns", "2018-11-23");
/// By which columns lines are chosen, and rows told apart.
pub(crate) const SETTINGS: [&str; 3] = ["machine", "config", "posting"];

/// Files that are of no form: nothing runs what they tell of.
const OTHER_FILES: &[File] = files![
    "002_zone_reclaim_mode_bits",
    "003_kernel_size",
    "004_diffstat",
    "004_prose_numbers",
    "public_004_fragmentation_stalls",
];

/// The forms there are, in alphabetical order.
#[must_use]
pub fn names() -> Vec<&'static str> {
    FORMS.iter().map(|(name, ..)| *name).collect()
}

/// The form of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static PublishedForm> {
    /// Those that were asked for: each claim asks for its own.
    static FOUND: [OnceLock<PublishedForm>; FORMS.len()] = [const { OnceLock::new() }; FORMS.len()];
    let at = FORMS.iter().position(|(known, ..)| *known == name)?;
    Some(FOUND[at].get_or_init(|| read(FORMS[at])))
}

fn read((name, form, files): (&'static str, Form, &'static [File])) -> PublishedForm {
    PublishedForm {
        name,
        form,
        tables: files
            .iter()
            .flat_map(|file| chosen(name, file.0).into_iter().map(|chosen| table(*file, chosen)))
            .filter(|table| !table.rows.is_empty())
            .collect(),
    }
}

/// The names of all files, without their ending.
#[must_use]
pub fn file_names() -> Vec<&'static str> {
    all_files().map(|(name, _)| name).collect()
}

/// All files, each once.
pub(crate) fn all_files() -> impl Iterator<Item = File> {
    let of_one = FORMS.iter().filter(|(name, ..)| *name != CHOSEN[1].0);
    of_one.flat_map(|(.., files)| files.iter()).chain(OTHER_FILES).copied()
}

/// The machine and the posting whose lines of a file a form has, or all lines; a table each.
fn chosen(form: &str, file: &str) -> Vec<Option<[&'static str; 2]>> {
    let Some((_, machine, posting)) = CHOSEN.iter().find(|(name, ..)| *name == form) else {
        return vec![None];
    };
    let later = Some(CHOSEN_BREAKDOWNS.1).filter(|_| file == CHOSEN_BREAKDOWNS.0);
    [Some(*posting), later].into_iter().flatten().map(|posting| Some([*machine, posting])).collect()
}

/// The table of a file: long CSV without quotes, the rows of a table's columns one after another.
fn table((file, text): File, chosen: Option<[&str; 2]>) -> PublishedTable {
    let (header, lines) = csv(text);
    let [title, metric, stat, threads, variant, value, unit, change] =
        ["table", "metric", "stat", "threads", "variant", "value", "unit", "published_delta_pct"]
            .map(|column| at(&header, column));
    let settings = SETTINGS.map(|column| header.iter().position(|name| *name == column));
    let settings_of =
        |cells: &[&'static str]| settings.map(|at| at.map_or("", |column| cells[column]));
    let is_chosen = |cells: &Vec<&'static str>| {
        let [machine, _, posting] = settings_of(cells);
        chosen.is_none_or(|chosen| chosen == [machine, posting])
    };
    let lines: Vec<Vec<&'static str>> = lines.filter(is_chosen).collect();
    let one_count = lines.iter().all(|cells| cells[threads] == lines[0][threads]);
    let mut table = PublishedTable {
        file,
        title: "",
        columns: Vec::new(),
        rows: Vec::new(),
        has_brackets: false,
    };
    for cells in lines {
        if cells[stat] == SINCE_BOOT {
            continue;
        }
        table.title = cells[title];
        table.has_brackets |= !cells[change].is_empty();
        let (begins, column) = match cells[variant].split_once(' ') {
            Some((word, rest)) if file == MEASURED_FIRST => (word, rest),
            _ => ("", cells[variant]),
        };
        if !table.columns.contains(&column) {
            table.columns.push(column);
        }
        let names = CellNames {
            metric: cells[metric],
            stat: cells[stat],
            threads: cells[threads],
            variant_begins: begins,
            settings: settings_of(&cells),
        };
        let metric = match (begins, cells[threads]) {
            ("", "") => cells[metric].to_owned(),
            ("", _) if one_count => cells[metric].to_owned(),
            ("", threads) => format!("{}-{threads}", cells[metric]),
            (begins, _) => begins.to_owned(),
        };
        let metric = match names.settings[1] {
            "" => metric,
            config => format!("{metric}, {config}"),
        };
        let statistics: &[&'static str] = match cells[stat] {
            SAMPLE => &["Min", "Max"],
            stat if TOTALS.contains(&stat) => &[""],
            _ => &[cells[stat]],
        };
        let decimals = cells[value].split_once('.').map_or(0, |(_, digits)| digits.len() as u8);
        for statistic in statistics {
            let is_same = |row: &PublishedRow| row.metric == metric && row.statistic == *statistic;
            match table.rows.iter_mut().find(|row| is_same(row)) {
                Some(row) => row.decimals = row.decimals.max(decimals),
                None => table.rows.push(PublishedRow {
                    metric: metric.clone(),
                    statistic,
                    unit: cells[unit],
                    decimals,
                    cells: names,
                }),
            }
        }
    }
    table
}

/// Returns the percentage that a published table has in its brackets.
///
/// Models: mmtests' `pndiff` and `pdiff` (2012 to 2018), which have sentinels where [`change_percent`] has a
/// number or none: if more is better, a value that fell to 0 reads 0, and one beside a base of 0 reads 100; if
/// less is better, one beside a base of 0 reads -99. Published tables are checked by this; nobody is shown it.
#[must_use]
pub fn printed_change_percent(better: Better, base: f64, new: f64) -> Option<f64> {
    match better {
        Better::Lower if base == 0.0 && new != 0.0 => Some(-99.0),
        Better::Higher if new == 0.0 => Some(0.0),
        Better::Higher if base == 0.0 => Some(100.0),
        _ => change_percent(better, base, new),
    }
}

/// The header of a published file, and its other lines: long CSV without quotes.
///
/// # Panics
/// At a line of another length.
pub(crate) fn csv(
    text: &'static str,
) -> (Vec<&'static str>, impl Iterator<Item = Vec<&'static str>>) {
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let nr = header.len();
    let lines = lines.map(move |line| {
        let cells: Vec<&'static str> = line.split(',').collect();
        assert_eq!(cells.len(), nr, "a published row of another length: {line}");
        cells
    });
    (header, lines)
}

/// Where a column is.
///
/// # Panics
/// If there is none of the name.
pub(crate) fn at(header: &[&str], column: &str) -> usize {
    let found = header.iter().position(|name| *name == column);
    found.unwrap_or_else(|| panic!("a published table without the column {column}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_every_form_has_rows_and_columns() {
        assert!(names().is_sorted());
        for name in names() {
            let form = find(name).unwrap();
            assert!(!form.tables.is_empty(), "{name}");
            for table in &form.tables {
                assert!(!table.title.is_empty() && table.columns.len() >= 2, "{name}: {table:?}");
                assert!(!table.rows.is_empty(), "{name}: {table:?}");
            }
        }
        assert_eq!(find("003_fsmrk"), None);
    }

    #[test]
    fn printed_percentages_keep_the_sentinels_of_the_reports() {
        let lower = |base, new| printed_change_percent(Better::Lower, base, new).unwrap();
        let higher = |base, new| printed_change_percent(Better::Higher, base, new).unwrap();
        assert_eq!((lower(200.0, 150.0), lower(10.0, 100.0)), (25.0, -900.0));
        assert_eq!((lower(0.0, 0.0), lower(7.0, 0.0), lower(0.0, 7.0)), (0.0, 100.0, -99.0));
        assert_eq!(higher(200.0, 150.0), -25.0);
        assert_eq!((higher(0.0, 0.0), higher(7.0, 0.0), higher(0.0, 7.0)), (0.0, 0.0, 100.0));
        assert_eq!(printed_change_percent(Better::Points, 81.0, 28.0), Some(-53.0));
        assert_eq!(printed_change_percent(Better::Neutral, 1.0, 2.0), None);
    }

    #[test]
    fn a_listing_of_samples_is_its_smallest_and_largest_values() {
        let listing = &find("002_mmap_demo").unwrap().tables[1];
        let rows: Vec<_> =
            listing.rows[..4].iter().map(|row| (row.statistic, row.metric.as_str())).collect();
        assert_eq!(rows, [("Min", "r"), ("Max", "r"), ("Min", "b"), ("Max", "b")]);
        assert_eq!(listing.rows.len(), 2 * 17, "vmstat's columns");
    }

    #[test]
    fn what_a_variants_first_word_measures_is_the_row() {
        let bench = &find("002_numa_bench").unwrap().tables[0];
        assert_eq!(bench.columns, ["local (-m 0 -C 0)", "remote (-m 0 -C 64)"]);
        let rows: Vec<_> =
            bench.rows.iter().map(|row| (row.statistic, row.metric.as_str())).collect();
        let [huge, base] = ["MADV_HUGEPAGE", "MADV_NOHUGEPAGE"];
        assert_eq!(rows, [("run1", huge), ("run1", base), ("run2", base), ("run2", huge)]);
        let variant = bench.rows[1].cells.variant(bench.columns[1]);
        assert_eq!(variant, "MADV_NOHUGEPAGE remote (-m 0 -C 64)");
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
