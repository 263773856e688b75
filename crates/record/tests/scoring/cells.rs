//! The published tables' cells.

use std::path::Path;

/// One cell, everything as printed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cell {
    pub(crate) metric: String,
    pub(crate) threads: String,
    pub(crate) variant: String,
    pub(crate) value: String,
    pub(crate) unit: String,
    pub(crate) better: String,
    pub(crate) delta_percent: String,
    /// What sets its row apart from all others of the file.
    row: Vec<String>,
}

impl Cell {
    /// The value.
    pub(crate) fn number(&self) -> f64 {
        self.value.parse().unwrap()
    }

    /// Values that print so: the lowest, the printed one, the highest. 0 is only itself.
    pub(crate) fn possible_values(&self) -> Vec<f64> {
        let decimals = self.value.split_once('.').map_or(0, |(_, digits)| digits.len());
        let half = 0.5 * 10_f64.powi(-(decimals as i32));
        match self.number() {
            0.0 => vec![0.0],
            x => vec![x - half, x, x + half],
        }
    }
}

/// Reads a file of `published/`.
pub(crate) fn published(file: &str) -> Vec<Cell> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../published");
    let mut reader = csv::Reader::from_path(folder.join(file)).unwrap();
    let headers = reader.headers().unwrap().clone();
    let at = |name: &str| headers.iter().position(|header| header == name);
    let cell = |record: csv::StringRecord| {
        let field = |name: &str| at(name).map_or(String::new(), |i| record[i].to_owned());
        let row = ["table", "metric", "stat", "threads", "machine", "config", "posting", "msgid"];
        Cell {
            metric: field("metric"),
            threads: field("threads"),
            variant: field("variant"),
            value: field("value"),
            unit: field("unit"),
            better: field("better"),
            delta_percent: field("published_delta_pct"),
            row: row.iter().map(|name| field(name)).collect(),
        }
    };
    reader.records().map(|record| cell(record.unwrap())).collect()
}

/// The cells by row; the first of each is the base.
pub(crate) fn row_groups(cells: &[Cell]) -> impl Iterator<Item = &[Cell]> {
    cells.chunk_by(|a, b| a.row == b.row)
}
