//! Results of a sweep: a table for each thing that is measured, with a row for each value of the key, and their picture.

use crate::failure::Failure;
use crate::output::VERSION;
use crate::results::{Format, Printing, Results, verdict_markdown, verdict_text};
use highorder_lab::Sweep;
use highorder_page::reproduction::{self, Section};
use highorder_record::compare::ComparisonRow;
use highorder_record::killed::{KILLED_MARK, KILLED_MEANS};
use highorder_report::{Caption, LineChart, Panel, Series};
use highorder_tables::{Column, Table, Value};
use serde_json::json;

/// One value of the sweep in one variant.
struct Point<'a> {
    variant: &'a str,
    value: &'a str,
    /// Which of the results' columns it is.
    column: usize,
}

impl Results {
    /// The sweep that results are shown over: if the experiment has one, and nobody asked for another form.
    pub(crate) fn shown_sweep(&self, printing: &Printing) -> Option<&Sweep> {
        self.sweep.as_ref().filter(|_| !printing.has_other_form())
    }

    pub(crate) fn sweep_as(&self, sweep: &Sweep, format: Format) -> Result<String, Failure> {
        let rows = self.measured(sweep);
        let findings = self.findings();
        let means =
            if findings.killed.is_empty() { String::new() } else { format!("{KILLED_MEANS}\n\n") };
        let tables = rows.iter().map(|row| self.table_over(sweep, row));
        Ok(match format {
            Format::Text => {
                let tables: Vec<String> = tables.map(|table| table.text()).collect();
                let verdict = verdict_text(&findings);
                let (tables, command) = (tables.join("\n"), &self.command);
                format!("{verdict}{tables}\n{means}{VERSION}; again with: {command}\n")
            }
            Format::Md => {
                let tables: Vec<String> = tables.map(|table| table.markdown()).collect();
                let verdict = verdict_markdown(&findings);
                let (tables, command) = (tables.join("\n"), &self.command);
                format!("{verdict}{tables}\n{means}{VERSION}; again with: `{command}`\n")
            }
            Format::Csv => self.long_table(sweep, &rows).csv(),
            Format::Json => {
                self.long_table(sweep, &rows).json_with(&[("verdict", json!(findings))])
            }
            Format::Html => {
                let page = reproduction::Page {
                    kind: "sweep",
                    title: &self.title(),
                    command: &self.command,
                    version: VERSION,
                    verdict: &findings.text,
                    notes: &[],
                    links: &[],
                    picture: &self.sweep_picture(sweep)?,
                    picture_description: "What was measured, over the values of the key",
                    sections: &[Section { heading: self.title(), tables: tables.collect() }],
                };
                reproduction::render(&page).map_err(|error| Failure::internal(error.to_string()))?
            }
        })
    }

    /// A curve for each variant, in a panel for each thing that is measured.
    ///
    /// # Errors
    /// Some value of the key is no number.
    pub(crate) fn sweep_picture(&self, sweep: &Sweep) -> Result<String, Failure> {
        let numbers = sweep_numbers(sweep)?;
        let panel = |row: &ComparisonRow| {
            let series = sweep.variants.iter().map(|variant| {
                let of_variant = self.points(sweep).into_iter().filter(|p| p.variant == variant);
                let points = of_variant.filter_map(|point| {
                    let at = sweep.values.iter().position(|value| value == point.value)?;
                    Some((numbers[at], row.cells[point.column].value?))
                });
                Series { name: variant.clone(), points: points.collect() }
            });
            Panel { title: name(row), unit: row.unit.clone(), series: series.collect() }
        };
        let chart = LineChart {
            title: self.title(),
            x_label: sweep.key.clone(),
            panels: self.measured(sweep).iter().map(panel).collect(),
            caption: Caption {
                lines: vec![VERSION.to_owned()],
                command: Some(self.command.clone()),
            },
        };
        Ok(chart.svg())
    }

    /// What the sweep wants to be shown, of the rows that comparisons have.
    fn measured(&self, sweep: &Sweep) -> Vec<ComparisonRow> {
        let tables = self.unpublished();
        if sweep.measure.is_empty() {
            return tables.into_iter().next().map_or(Vec::new(), |metrics| metrics.rows);
        }
        let rows: Vec<ComparisonRow> = tables.into_iter().flat_map(|table| table.rows).collect();
        let find = |wanted: &String| {
            rows.iter().find(|row| name(row) == *wanted || row.metric == *wanted).cloned()
        };
        sweep.measure.iter().filter_map(find).collect()
    }

    /// Where the sweep's values are among the results' columns, value by value.
    fn points<'a>(&self, sweep: &'a Sweep) -> Vec<Point<'a>> {
        let mut points = Vec::new();
        for value in &sweep.values {
            for variant in &sweep.variants {
                let label = Sweep::label(variant, value);
                let column = self.variants.iter().position(|column| column.label == label);
                points.extend(column.map(|column| Point { variant, value, column }));
            }
        }
        points
    }

    /// One thing that is measured: a row for each value, a column for each variant.
    fn table_over(&self, sweep: &Sweep, row: &ComparisonRow) -> Table {
        let heading = |text: &String| Column { heading: text.clone(), key: text.clone() };
        let columns = std::iter::once(&sweep.key).chain(&sweep.variants).map(heading).collect();
        let unit = if row.unit.is_empty() { String::new() } else { format!(" ({})", row.unit) };
        let mut table = Table { title: format!("{}{unit}", name(row)), columns, rows: Vec::new() };
        let points = self.points(sweep);
        for value in &sweep.values {
            let cell = |variant: &String| {
                let here = |point: &&Point<'_>| point.variant == variant && point.value == value;
                points.iter().find(here).map_or(Value::Missing, |point| cell(row, point.column))
            };
            let cells = sweep.variants.iter().map(cell);
            table.push(std::iter::once(Value::from(value.as_str())).chain(cells).collect());
        }
        table
    }

    /// All that is measured, a row for each number: for programs.
    fn long_table(&self, sweep: &Sweep, rows: &[ComparisonRow]) -> Table {
        let columns = ["measured", "unit", "variant", &sweep.key, "value"];
        let columns = columns.map(|key| Column { heading: key.to_owned(), key: key.to_owned() });
        let mut table = Table { title: self.title(), columns: columns.into(), rows: Vec::new() };
        for row in rows {
            for point in self.points(sweep) {
                let words = [name(row), row.unit.clone(), point.variant.into(), point.value.into()];
                let number = cell(row, point.column);
                table.push(words.into_iter().map(Value::from).chain([number]).collect());
            }
        }
        table
    }
}

/// The values of a sweep's key, which a picture needs as numbers.
///
/// # Errors
/// One is none.
pub(crate) fn sweep_numbers(sweep: &Sweep) -> Result<Vec<f64>, Failure> {
    let number = |value: &String| {
        let expected = "expected numbers: there is nothing to draw over texts";
        value.parse().map_err(|_| {
            Failure::input(format!(
                "a picture over `{}` with the value `{value}`, {expected}",
                sweep.key
            ))
        })
    };
    sweep.values.iter().map(number).collect()
}

/// What a row is called: its statistic and its metric.
fn name(row: &ComparisonRow) -> String {
    format!("{} {}", row.statistic, row.metric).trim_start().to_owned()
}

fn cell(row: &ComparisonRow, column: usize) -> Value {
    let cell = &row.cells[column];
    match cell.value {
        None => Value::Missing,
        Some(value) if cell.killed_runs > 0 => {
            Value::Marked(Box::new(Value::Real(value, row.decimals.into())), KILLED_MARK)
        }
        Some(value) => Value::Real(value, row.decimals.into()),
    }
}
