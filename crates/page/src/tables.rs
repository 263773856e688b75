//! Comparisons as the page's tables: values, signed changes, and what the noise test says.

use highorder_record::noise::Verdict;
use highorder_record::{Better, Comparison};
use highorder_tables::multiple;
use highorder_tables::text::significant;
use serde::Serialize;

/// A table of more rows is folded at first.
const ROWS_OPEN: usize = 60;

/// A table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TableView {
    pub(crate) id: String,
    pub(crate) title: String,
    /// What a reader should know of it; empty for nothing.
    pub(crate) note: String,
    pub(crate) is_open: bool,
    /// Whether the noise test was made of any row.
    pub(crate) has_noise: bool,
    /// Whether any row has a change.
    pub(crate) has_changes: bool,
    pub(crate) labels: Vec<String>,
    pub(crate) rows: Vec<RowView>,
}

/// A row.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RowView {
    pub(crate) statistic: String,
    pub(crate) metric: String,
    pub(crate) unit: String,
    /// Whether another metric begins here.
    pub(crate) is_first: bool,
    pub(crate) cells: Vec<CellView>,
}

/// A cell.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CellView {
    pub(crate) value: String,
    /// The change with its sign and unit; empty where there is none.
    pub(crate) change: String,
    /// `better`, `worse`, or `quiet` where it may be noise.
    pub(crate) class: &'static str,
    /// What the noise test says, in a word; empty where it was not made.
    pub(crate) verdict: &'static str,
    /// Interval and p; empty where there are none.
    pub(crate) detail: String,
    /// Whether killed runs have part in the value.
    pub(crate) is_killed: bool,
}

/// How the rows that were tested came out for one variant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Tally {
    pub(crate) label: String,
    /// The class of the variant's colour.
    pub(crate) class: String,
    pub(crate) better: usize,
    pub(crate) worse: usize,
    pub(crate) differs: usize,
    pub(crate) noise: usize,
    pub(crate) too_few: usize,
}

/// The metric's name without its thread count: rows of one stand together.
fn stem(metric: &str) -> &str {
    match metric.rsplit_once('-') {
        Some((stem, threads)) if threads.parse::<u64>().is_ok() => stem,
        _ => metric,
    }
}

/// Makes a table for the page.
pub(crate) fn table(id: &str, title: &str, note: &str, comparison: &Comparison) -> TableView {
    // Of plain values, such as those of vmstat, none begins anything.
    let has_statistics = comparison.rows.iter().any(|row| !row.statistic.is_empty());
    let mut last = None;
    let rows = comparison.rows.iter().map(|row| {
        let before = last.replace(stem(&row.metric));
        let is_first = has_statistics && before.is_some_and(|before| before != stem(&row.metric));
        let decimals = row.decimals_shown();
        let cells = row.cells.iter().enumerate().map(|(i, cell)| {
            let is_base = i == 0;
            let change = cell.change_percent.filter(|_| !is_base);
            let unit = if row.better == Better::Points { "pp" } else { "%" };
            let verdict = cell.noise.filter(|_| !is_base).map(|noise| noise.verdict);
            let (class, verdict) = match (verdict, row.is_better(i)) {
                (Some(Verdict::Difference), Some(true)) => ("better", "better"),
                (Some(Verdict::Difference), Some(false)) => ("worse", "worse"),
                (Some(Verdict::Difference), _) => ("differs", "differs"),
                (Some(Verdict::NoDifference), _) => ("quiet", "noise"),
                (Some(Verdict::TooFewSamples), _) => ("quiet", "too few"),
                (None, _) => ("quiet", ""),
            };
            let mut detail = Vec::new();
            if let Some(interval) = cell.change_interval.filter(|_| !is_base) {
                detail.push(format!(
                    "{} … {}",
                    signed(interval.low, unit),
                    signed(interval.high, unit)
                ));
            }
            if let Some(p) = cell.noise.and_then(|noise| noise.p).filter(|_| !is_base) {
                detail.push(if p < 0.0001 {
                    "p < 0.0001".into()
                } else {
                    format!("p {}", significant(p))
                });
            }
            CellView {
                value: cell.value.map_or("–".to_owned(), |value| decimal(value, decimals)),
                change: change.map_or(String::new(), |change| signed(change, unit)),
                class,
                verdict,
                detail: detail.join(", "),
                is_killed: cell.killed_runs > 0,
            }
        });
        RowView {
            statistic: row.statistic.clone(),
            metric: row.metric.clone(),
            unit: row.unit.clone(),
            is_first,
            cells: cells.collect(),
        }
    });
    let rows: Vec<RowView> = rows.collect();
    let cells = || rows.iter().flat_map(|row| &row.cells);
    TableView {
        id: id.to_owned(),
        title: title.to_owned(),
        note: note.to_owned(),
        is_open: rows.len() <= ROWS_OPEN,
        has_noise: cells().any(|cell| !cell.verdict.is_empty()),
        has_changes: cells().any(|cell| !cell.change.is_empty()),
        labels: comparison.labels.clone(),
        rows,
    }
}

/// Counts what the noise test said, for each variant but the first.
pub(crate) fn tallies(table: &TableView, class: impl Fn(usize) -> String) -> Vec<Tally> {
    let tally = |i: usize| {
        let mut tally =
            Tally { label: table.labels[i].clone(), class: class(i), ..Tally::default() };
        for row in &table.rows {
            match row.cells[i].verdict {
                "better" => tally.better += 1,
                "worse" => tally.worse += 1,
                "differs" => tally.differs += 1,
                "noise" => tally.noise += 1,
                "too few" => tally.too_few += 1,
                _ => {}
            }
        }
        tally
    };
    (1..table.labels.len()).map(tally).collect()
}

/// A number with its decimals, thousands apart by a narrow space.
fn decimal(value: f64, decimals: u8) -> String {
    let text = format!("{value:.*}", usize::from(decimals));
    let (sign, digits) = match text.strip_prefix('-') {
        // What rounds to zero has no sign.
        Some(digits) if digits.chars().all(|c| matches!(c, '0' | '.')) => ("", digits),
        Some(digits) => ("−", digits),
        None => ("", text.as_str()),
    };
    let (whole, fraction) = match digits.split_once('.') {
        Some((whole, fraction)) => (whole, format!(".{fraction}")),
        None => (digits, String::new()),
    };
    let mut out = sign.to_owned();
    for (i, digit) in whole.chars().enumerate() {
        // Four digits read well without.
        if i > 0 && whole.len() > 4 && (whole.len() - i).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out + &fraction
}

/// A change with its sign; or, where it is a large one in percent, how many times the base that is.
fn signed(value: f64, unit: &str) -> String {
    if let Some(times) = multiple(value).filter(|_| unit == "%") {
        return times.replace('x', "\u{202f}×");
    }
    let text = decimal(value, 2);
    match text.as_str() {
        "0.00" => format!("0.00\u{202f}{unit}"),
        _ if value > 0.0 => format!("+{text}\u{202f}{unit}"),
        _ => format!("{text}\u{202f}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use highorder_record::compare::row_of_samples;
    use highorder_record::{Sorted, Statistic, compare};

    use super::*;

    #[test]
    fn a_change_carries_its_sign_and_zero_has_none() {
        assert_eq!(signed(54.5, "%"), "+54.50\u{202f}%");
        assert_eq!(signed(-0.001, "%"), "0.00\u{202f}%");
        assert_eq!(signed(-12_345.678, "pp"), "−12\u{202f}345.68\u{202f}pp");
        assert_eq!(signed(-12_345.678, "%"), "124.5\u{202f}×");
        assert_eq!(decimal(1234.0, 0), "1234");
        assert_eq!(decimal(1_234_567.0, 0), "1\u{202f}234\u{202f}567");
    }

    #[test]
    fn the_sign_of_what_is_more_than_noise_decides_better_or_worse() {
        let samples = |from: f64| -> Sorted { (0..8).map(|i| from + f64::from(i)).collect() };
        let row = |better, metric: &str, other: f64| {
            let both = [samples(100.0), samples(other)];
            row_of_samples(metric, "s", better, 2, Statistic::Amean, &both)
        };
        let rows = [
            row(Better::Lower, "a-1", 50.0),
            row(Better::Lower, "a-12", 150.0),
            row(Better::Higher, "b", 150.0),
            row(Better::Higher, "c", 101.0),
            row(Better::Neutral, "d", 500.0),
        ];
        let table = table("t", "", "", &compare::values("", &["x", "y"], rows));
        let verdicts: Vec<&str> = table.rows.iter().map(|row| row.cells[1].verdict).collect();
        assert_eq!(verdicts, ["better", "worse", "better", "noise", "differs"]);
        let firsts: Vec<bool> = table.rows.iter().map(|row| row.is_first).collect();
        assert_eq!(firsts, [false, false, true, true, true]);
        assert!(table.rows.iter().all(|row| row.cells[0].change.is_empty()));
        let tallies = tallies(&table, |i| format!("s{i}"));
        assert_eq!(
            tallies,
            [Tally {
                label: "y".into(),
                class: "s1".into(),
                better: 2,
                worse: 1,
                differs: 1,
                noise: 1,
                too_few: 0
            }]
        );
    }
}
