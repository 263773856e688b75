//! One table, four forms: text, Markdown, CSV, JSON.
//!
//! Text and Markdown are for reading: numbers are rounded and aligned to the right, and a change is
//! signed. CSV and JSON are for machines: numbers are as precise as they came, and empty where they
//! are missing.

use serde_json::{Value as Json, json};

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Printed above, where not empty.
    pub title: String,
    /// The header.
    pub columns: Vec<Column>,
    /// Rows with one value for each column.
    pub rows: Vec<Vec<Value>>,
}

/// A column's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// What the reader sees, unit included.
    pub heading: String,
    /// The name in CSV and JSON, unit last.
    pub key: String,
}

/// What a cell holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Words; aligned to the left.
    Text(String),
    /// A whole number.
    Count(i64),
    /// A measured number, shown with so many decimals.
    Real(f64, usize),
    /// A share in percent: `12.34 %`.
    Percent(f64),
    /// A difference in percent, with its sign: `+12.34 %`; from eleven times the base on as [`multiple`].
    Change(f64),
    /// A value with a mark behind it, such as `†`, that a sentence near the table explains. Programs read the
    /// value alone.
    Marked(Box<Value>, char),
    /// Not measured.
    Missing,
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u32> for Value {
    fn from(n: u32) -> Self {
        Self::Count(n.into())
    }
}

impl From<i64> for Value {
    fn from(n: i64) -> Self {
        Self::Count(n)
    }
}

impl Value {
    /// What the reader sees.
    #[must_use]
    pub fn show(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Count(n) => n.to_string(),
            Self::Real(x, decimals) => unsigned_zero(format!("{x:.decimals$}")),
            Self::Percent(x) => format!("{} %", unsigned_zero(format!("{x:.2}"))),
            Self::Change(x) => match (multiple(*x), unsigned_zero(format!("{x:+.2}"))) {
                (Some(times), _) => times,
                (None, zero) if zero.trim_start_matches('+') == "0.00" => "0.00 %".to_owned(),
                (None, signed) => format!("{signed} %"),
            },
            Self::Marked(value, mark) => format!("{}{mark}", value.show()),
            Self::Missing => "-".to_owned(),
        }
    }

    /// What a program reads: the number without rounding; empty where missing.
    #[must_use]
    pub fn raw(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Count(n) => n.to_string(),
            Self::Real(x, _) | Self::Percent(x) | Self::Change(x) => x.to_string(),
            Self::Marked(value, _) => value.raw(),
            Self::Missing => String::new(),
        }
    }

    fn json(&self) -> Json {
        match self {
            Self::Text(text) => json!(text),
            Self::Count(n) => json!(n),
            // JSON has no infinities: they become null.
            Self::Real(x, _) | Self::Percent(x) | Self::Change(x) => json!(x),
            Self::Marked(value, _) => value.json(),
            Self::Missing => Json::Null,
        }
    }

    fn is_text(&self) -> bool {
        match self {
            Self::Text(_) => true,
            Self::Marked(value, _) => value.is_text(),
            _ => false,
        }
    }
}

/// From so many percent on, a change is easier to read as a multiple. Our choice: what takes eleven times as long
/// is no longer thought of in percent.
const MULTIPLE_FROM_PERCENT: f64 = 1000.0;

/// How many times the base a value is that changed by so many percent, as `24.3x`; none below eleven times.
///
/// Whether the change is signed as the value's or as an improvement (where less is better, the value rose if it is
/// negative) makes no difference: nothing falls by more than 100 %.
#[must_use]
pub fn multiple(change_percent: f64) -> Option<String> {
    let is_multiple = change_percent.is_finite() && change_percent.abs() >= MULTIPLE_FROM_PERCENT;
    let times = 1.0 + change_percent.abs() / 100.0;
    is_multiple.then(|| match times {
        // Beyond that a tenth is not worth its place.
        1000.0.. => format!("{times:.0}x"),
        _ => format!("{times:.1}x"),
    })
}

/// Takes the sign from a number that rounding made zero.
fn unsigned_zero(shown: String) -> String {
    match shown.strip_prefix('-') {
        Some(rest) if rest.chars().all(|c| matches!(c, '0' | '.')) => rest.to_owned(),
        _ => shown,
    }
}

impl Table {
    /// A table without rows; each column is its heading and its key.
    #[must_use]
    pub fn new(title: impl Into<String>, columns: &[(&str, &str)]) -> Self {
        let column = |(heading, key): &(&str, &str)| Column {
            heading: (*heading).to_owned(),
            key: (*key).to_owned(),
        };
        let columns = columns.iter().map(column).collect();
        Self { title: title.into(), columns, rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it has not one value for each column.
    pub fn push(&mut self, row: Vec<Value>) {
        assert_eq!(
            row.len(),
            self.columns.len(),
            "a row of `{}` has one value per column",
            self.title
        );
        self.rows.push(row);
    }

    /// Columns two blanks apart, the header underlined.
    #[must_use]
    pub fn text(&self) -> String {
        let shown = self.shown();
        let headings: Vec<String> = self.columns.iter().map(|c| c.heading.clone()).collect();
        let widths = self.widths(&headings, &shown);
        let line = |cells: &[String]| {
            let cells =
                cells.iter().enumerate().map(|(i, cell)| pad(cell, widths[i], self.is_text(i)));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let rule: usize = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        let mut lines = Vec::new();
        if !self.title.is_empty() {
            lines.extend([self.title.clone(), String::new()]);
        }
        lines.extend([line(&headings), "-".repeat(rule)]);
        lines.extend(shown.iter().map(|row| line(row)));
        lines.join("\n") + "\n"
    }

    /// A Markdown table with its columns lined up, under a heading in bold.
    #[must_use]
    pub fn markdown(&self) -> String {
        let escape =
            |cell: &String| cell.replace('\\', "\\\\").replace('|', "\\|").replace('\n', " ");
        let shown: Vec<Vec<String>> =
            self.shown().iter().map(|row| row.iter().map(escape).collect()).collect();
        let headings: Vec<String> = self.columns.iter().map(|c| escape(&c.heading)).collect();
        let widths: Vec<usize> =
            self.widths(&headings, &shown).into_iter().map(|width| width.max(3)).collect();
        let line = |cells: &[String]| {
            let cells =
                cells.iter().enumerate().map(|(i, cell)| pad(cell, widths[i], self.is_text(i)));
            format!("| {} |", cells.collect::<Vec<_>>().join(" | "))
        };
        let rule: Vec<String> = widths
            .iter()
            .enumerate()
            .map(|(i, &w)| if self.is_text(i) { "-".repeat(w) } else { "-".repeat(w - 1) + ":" })
            .collect();
        let mut lines = Vec::new();
        if !self.title.is_empty() {
            lines.extend([format!("**{}**", self.title), String::new()]);
        }
        lines.extend([line(&headings), line(&rule)]);
        lines.extend(shown.iter().map(|row| line(row)));
        lines.join("\n") + "\n"
    }

    /// RFC 4180 with the keys as header; the title is left out.
    #[must_use]
    pub fn csv(&self) -> String {
        let quote = |field: String| match field.contains(['"', ',', '\n', '\r']) {
            true => format!("\"{}\"", field.replace('"', "\"\"")),
            false => field,
        };
        let line = |fields: Vec<String>| {
            fields.into_iter().map(quote).collect::<Vec<_>>().join(",") + "\n"
        };
        let header = line(self.columns.iter().map(|c| c.key.clone()).collect());
        let rows = self.rows.iter().map(|row| line(row.iter().map(Value::raw).collect()));
        std::iter::once(header).chain(rows).collect()
    }

    /// An object with the title, the columns, and an object for each row in column order.
    #[must_use]
    pub fn json(&self) -> String {
        self.json_with(&[])
    }

    /// The same object with more keys, which come last.
    #[must_use]
    pub fn json_with(&self, more: &[(&str, Json)]) -> String {
        let text = |s: &str| Json::from(s).to_string();
        let columns = self.columns.iter().map(|c| {
            format!("    {{\"key\": {}, \"heading\": {}}}", text(&c.key), text(&c.heading))
        });
        // Written by hand: serde_json's own map would sort the keys of a row.
        let rows = self.rows.iter().map(|row| {
            let fields = self.columns.iter().zip(row);
            let fields = fields.map(|(c, value)| format!("{}: {}", text(&c.key), value.json()));
            format!("    {{{}}}", fields.collect::<Vec<_>>().join(", "))
        });
        let list = |items: Vec<String>| match items.is_empty() {
            true => "[]".to_owned(),
            false => format!("[\n{}\n  ]", items.join(",\n")),
        };
        let more = more.iter().map(|(key, value)| format!(",\n  {}: {value}", text(key)));
        format!(
            "{{\n  \"title\": {},\n  \"columns\": {},\n  \"rows\": {}{}\n}}\n",
            text(&self.title),
            list(columns.collect()),
            list(rows.collect()),
            more.collect::<String>()
        )
    }

    fn shown(&self) -> Vec<Vec<String>> {
        self.rows.iter().map(|row| row.iter().map(Value::show).collect()).collect()
    }

    /// Whether a column holds words and so is aligned to the left.
    fn is_text(&self, column: usize) -> bool {
        self.rows.iter().any(|row| row[column].is_text())
    }

    fn widths(&self, headings: &[String], shown: &[Vec<String>]) -> Vec<usize> {
        let width = |i: usize| {
            let cells = shown.iter().map(|row| row[i].chars().count());
            cells.chain([headings[i].chars().count()]).max().unwrap_or(0)
        };
        (0..headings.len()).map(width).collect()
    }
}

fn pad(cell: &str, width: usize, left: bool) -> String {
    if left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(
            "fault latency",
            &[
                ("kernel", "kernel"),
                ("faults", "nr_faults"),
                ("mean (µs)", "mean_us"),
                ("change", "change_percent"),
            ],
        );
        table.push(vec![
            "6.12".into(),
            Value::Count(1024),
            Value::Real(12.3456, 2),
            Value::Change(0.0),
        ]);
        table.push(vec![
            "6.12, boost | \"off\"".into(),
            Value::Count(7),
            Value::Real(9.5, 2),
            Value::Change(-23.049),
        ]);
        table.push(vec!["3.3".into(), Value::Missing, Value::Missing, Value::Change(4.2)]);
        table
    }

    #[test]
    fn text_aligns_numbers_to_the_right() {
        insta::assert_snapshot!(table().text());
    }

    #[test]
    fn markdown_keeps_its_bars() {
        insta::assert_snapshot!(table().markdown());
    }

    #[test]
    fn csv_reads_back_as_it_was() {
        let csv = table().csv();
        insta::assert_snapshot!(csv);
        let mut reader = csv::Reader::from_reader(csv.as_bytes());
        let records: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        assert_eq!(&records[1][0], "6.12, boost | \"off\"");
        assert_eq!(&records[1][3], "-23.049");
    }

    #[test]
    fn json_reads_back_as_it_was() {
        let text = table().json();
        insta::assert_snapshot!(text);
        let json: Json = serde_json::from_str(&text).unwrap();
        assert_eq!(json["rows"][0]["mean_us"], json!(12.3456));
        assert!(json["rows"][2]["nr_faults"].is_null());
    }

    #[test]
    fn an_empty_table_still_has_a_header() {
        let table = Table::new("", &[("a", "a")]);
        assert_eq!(table.text(), "a\n-\n");
        assert_eq!(table.csv(), "a\n");
        assert!(serde_json::from_str::<Json>(&table.json()).is_ok());
    }

    #[test]
    fn a_change_that_rounds_to_nothing_has_no_sign() {
        assert_eq!(Value::Change(-0.001).show(), "0.00 %");
        assert_eq!(Value::Change(0.001).show(), "0.00 %");
        assert_eq!(Value::Change(0.01).show(), "+0.01 %");
        assert_eq!(Value::Real(-0.04, 1).show(), "0.0");
    }

    #[test]
    fn a_change_by_a_large_factor_reads_as_that_factor() {
        assert_eq!(Value::Change(-999.0).show(), "-999.00 %");
        assert_eq!(Value::Change(-2330.0).show(), "24.3x", "less is better, and it rose");
        assert_eq!(Value::Change(2330.0).show(), "24.3x");
        assert_eq!(Value::Change(-3_232_397.0).show(), "32325x");
        assert_eq!(Value::Change(-3_232_397.0).raw(), "-3232397");
        assert_eq!(Value::Change(f64::NEG_INFINITY).show(), "-inf %");
    }

    #[test]
    fn a_mark_is_for_people_alone() {
        let value = Value::Marked(Box::new(Value::Real(1.234, 2)), '†');
        assert_eq!((value.show().as_str(), value.raw().as_str()), ("1.23†", "1.234"));
        let mut table = Table::new("", &[("a", "a")]);
        table.push(vec![value]);
        assert!(table.json().contains("{\"a\": 1.234}"), "{}", table.json());
    }

    #[test]
    #[should_panic(expected = "one value per column")]
    fn a_short_row_is_refused() {
        table().push(vec![Value::Missing]);
    }
}
