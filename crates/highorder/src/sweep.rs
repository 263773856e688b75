//! Results of a sweep, and their picture: over one key a table for each thing that is measured, with a row for each value;
//! over several keys one table of all points, the best first, and one of what each value does in the mean of all others.

use crate::failure::Failure;
use crate::output::{self, VERSION};
use crate::results::{Format, Printing, Results, verdict_markdown, verdict_text};
use highorder_input::InputError;
use highorder_lab::{Axis, Sweep};
use highorder_page::reproduction::{self, Section};
use highorder_record::compare::{Comparison, ComparisonRow};
use highorder_record::killed::{KILLED_MARK, KILLED_MEANS};
use highorder_record::stats::Better;
use highorder_record::verdict::{self, Paragraph};
use highorder_report::{Caption, LineChart, Panel, Series};
use highorder_tables::{Column, Table, Value};
use serde_json::json;
use std::cmp::Ordering;

/// One point of the sweep in one variant.
struct Point<'a> {
    variant: &'a str,
    values: &'a [String],
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
        let mut findings = self.findings();
        let told = self.not_measured(sweep, &rows).into_iter().map(Paragraph::new);
        findings.text.splice(0..0, told);
        let means =
            if findings.killed.is_empty() { String::new() } else { format!("{KILLED_MEANS}\n\n") };
        let tables: Vec<Table> = match sweep.one_axis() {
            Some(axis) => rows.iter().map(|row| self.table_over(sweep, axis, row)).collect(),
            None => vec![self.ranking(sweep, &rows), self.means(sweep, &rows)],
        };
        let tables = tables.into_iter();
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
            Format::Csv => {
                self.not_measured(sweep, &rows).iter().for_each(|line| output::say(line));
                self.long_table(sweep, &rows).csv()
            }
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

    /// A curve for each variant, in a panel for each thing that is measured; over several keys the points stand in the order
    /// of the ranking, so that one sees what the best cost.
    ///
    /// # Errors
    /// Some value of the one key is no number.
    pub(crate) fn sweep_picture(&self, sweep: &Sweep) -> Result<String, Failure> {
        let rows = self.measured(sweep);
        // Over one key its values; over several the places in the ranking.
        let (x_label, at): (String, Vec<(f64, Point<'_>)>) = match sweep.one_axis() {
            Some(axis) => {
                let numbers = sweep_numbers(sweep)?;
                let points = self.points(sweep).into_iter().filter_map(|point| {
                    let at = axis.values.iter().position(|value| *value == point.values[0])?;
                    Some((numbers[at], point))
                });
                (axis.key.clone(), points.collect())
            }
            None => {
                let ranked = self.ranked(sweep, &rows).into_iter();
                let places = ranked.enumerate().map(|(place, point)| (place as f64 + 1.0, point));
                ("place in the ranking".to_owned(), places.collect())
            }
        };
        let panel = |row: &ComparisonRow| {
            let series = sweep.variants.iter().map(|variant| {
                let of_variant = at.iter().filter(|(_, point)| point.variant == variant);
                let points =
                    of_variant.filter_map(|(x, point)| Some((*x, row.cells[point.column].value?)));
                Series { name: variant.clone(), points: points.collect() }
            });
            Panel { title: name(row), unit: row.unit.clone(), series: series.collect() }
        };
        let chart = LineChart {
            title: self.title(),
            x_label,
            panels: rows.iter().map(panel).collect(),
            caption: Caption {
                lines: vec![VERSION.to_owned()],
                command: Some(self.command.clone()),
            },
        };
        Ok(chart.svg())
    }

    /// The tables whose rows a sweep can show: those of comparisons, and what the verdict tells of stalls.
    fn measurable(&self) -> Vec<Comparison> {
        let mut tables = self.unpublished();
        tables.push(verdict::stall_table("Stalls", &self.groups()));
        tables
    }

    /// What the sweep wants to be shown, of the rows that comparisons and the verdict have; where it names none of them, what would be shown
    /// if it named nothing.
    fn measured(&self, sweep: &Sweep) -> Vec<ComparisonRow> {
        let tables = self.measurable();
        let rows = || tables.iter().flat_map(|table| &table.rows);
        let find = |wanted: &String| rows().find(|row| is_called(row, wanted)).cloned();
        let found: Vec<ComparisonRow> = sweep.measure.iter().filter_map(find).collect();
        match (found.is_empty(), tables.first()) {
            (true, Some(metrics)) => metrics.rows.clone(),
            _ => found,
        }
    }

    /// A sentence for each name that the sweep wants to be shown and that no row has, and one if others are shown instead.
    fn not_measured(&self, sweep: &Sweep, shown: &[ComparisonRow]) -> Vec<String> {
        let known = self.known_names();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let is_missing = |wanted: &&String| !known.contains(&wanted.as_str());
        let missing: Vec<&String> = sweep.measure.iter().filter(is_missing).collect();
        let instead = (!missing.is_empty() && missing.len() == sweep.measure.len()).then(|| {
            let first = shown.first().map(name).unwrap_or_default();
            format!("Shown instead is what the workload measures, {first} first.")
        });
        let told = |wanted: &String| {
            let meant = highorder_input::did_you_mean(wanted, &known);
            let meant = meant.map(|meant| format!(", {meant}")).unwrap_or(".".to_owned());
            format!("Not measured: `{wanted}`{meant}")
        };
        missing.into_iter().map(told).chain(instead).collect()
    }

    /// What rows that a sweep can show are called.
    fn known_names(&self) -> Vec<String> {
        self.measurable().iter().flat_map(|table| &table.rows).flat_map(names).collect()
    }

    /// Refuses the first name that the sweep wants to be shown and that no row has. What a workload reports is known when it
    /// has run, not before. Where a run was killed or ended early the row may be one that it would have left: that is told
    /// in the results alone.
    ///
    /// # Errors
    /// There is such a name.
    pub(crate) fn check_measured(&self, sweep: &Sweep) -> Result<(), Failure> {
        let findings = self.findings();
        if !findings.killed.is_empty() || !findings.ended_early.is_empty() {
            return Ok(());
        }
        let known = self.known_names();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let mut wanted = sweep.measure.iter().zip(&sweep.measure_places);
        let missing = wanted.find(|(name, _)| !known.contains(&name.as_str()));
        let Some((name, (file, line))) = missing else { return Ok(()) };
        let expected = highorder_input::did_you_mean(name, &known)
            .unwrap_or_else(|| "expected one of a comparison's tables".to_owned());
        let message =
            format!("`measure` has `{name}`, which no row of the results is called, {expected}");
        Err(InputError::line(file, *line, message).into())
    }

    /// Where the sweep's values are among the results' columns, value by value.
    fn points<'a>(&self, sweep: &'a Sweep) -> Vec<Point<'a>> {
        let mut points = Vec::new();
        for values in &sweep.points {
            for variant in &sweep.variants {
                let label = Sweep::label(variant, values);
                let column = self.variants.iter().position(|column| column.label == label);
                points.extend(column.map(|column| Point { variant, values, column }));
            }
        }
        points
    }

    /// The points, the best first by the first thing that is measured, then by the next; where nothing is better, the least.
    /// Those without a value come last.
    fn ranked<'a>(&self, sweep: &'a Sweep, rows: &[ComparisonRow]) -> Vec<Point<'a>> {
        let mut points = self.points(sweep);
        let order = |row: &ComparisonRow, a: &Point<'_>, b: &Point<'_>| match (
            row.cells[a.column].value,
            row.cells[b.column].value,
        ) {
            (Some(a), Some(b)) if matches!(row.better, Better::Higher | Better::Points) => {
                b.total_cmp(&a)
            }
            (Some(a), Some(b)) => a.total_cmp(&b),
            (a, b) => a.is_none().cmp(&b.is_none()),
        };
        points.sort_by(|a, b| {
            rows.iter().map(|row| order(row, a, b)).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
        });
        points
    }

    /// All points, the best first.
    fn ranking(&self, sweep: &Sweep, rows: &[ComparisonRow]) -> Table {
        let has_variants = sweep.variants.len() > 1;
        let keys = sweep.axes.iter().map(|axis| axis.key.clone());
        let headings = keys.chain(has_variants.then(|| "variant".to_owned()));
        let columns = headings.map(column).chain(rows.iter().map(measured_column)).collect();
        let by = rows.first().map(|row| format!(" by {}", name(row))).unwrap_or_default();
        let title = format!("Ranked{by}, the best first");
        let mut table = Table { title, columns, rows: Vec::new() };
        for point in self.ranked(sweep, rows) {
            let values = point.values.iter().map(|value| Value::from(value.as_str()));
            let variant = has_variants.then(|| Value::from(point.variant));
            let cells = rows.iter().map(|row| cell(row, point.column));
            table.push(values.chain(variant).chain(cells).collect());
        }
        table
    }

    /// What each value of each key does, in the mean of all points that have it.
    fn means(&self, sweep: &Sweep, rows: &[ComparisonRow]) -> Table {
        let headings = ["key", "value", "points"].map(|text| column(text.to_owned()));
        let columns = headings.into_iter().chain(rows.iter().map(measured_column)).collect();
        let title = "Each value, in the mean of all points that have it".to_owned();
        let mut table = Table { title, columns, rows: Vec::new() };
        let points = self.points(sweep);
        for (at, axis) in sweep.axes.iter().enumerate() {
            for value in &axis.values {
                let here: Vec<&Point<'_>> =
                    points.iter().filter(|point| point.values[at] == *value).collect();
                let mean = |row: &ComparisonRow| {
                    let found: Vec<f64> =
                        here.iter().filter_map(|point| row.cells[point.column].value).collect();
                    match found.len() {
                        0 => Value::Missing,
                        nr => {
                            let mean = found.iter().sum::<f64>() / nr as f64;
                            Value::Real(mean, row.decimals.into())
                        }
                    }
                };
                let head = [
                    axis.key.as_str().into(),
                    value.as_str().into(),
                    Value::Count(here.len() as i64),
                ];
                table.push(head.into_iter().chain(rows.iter().map(mean)).collect());
            }
        }
        table
    }

    /// One thing that is measured: a row for each value, a column for each variant.
    fn table_over(&self, sweep: &Sweep, axis: &Axis, row: &ComparisonRow) -> Table {
        let headings = std::iter::once(&axis.key).chain(&sweep.variants);
        let columns = headings.cloned().map(column).collect();
        let unit = if row.unit.is_empty() { String::new() } else { format!(" ({})", row.unit) };
        let mut table = Table { title: format!("{}{unit}", name(row)), columns, rows: Vec::new() };
        let points = self.points(sweep);
        for value in &axis.values {
            let cell = |variant: &String| {
                let here =
                    |point: &&Point<'_>| point.variant == variant && point.values[0] == *value;
                points.iter().find(here).map_or(Value::Missing, |point| cell(row, point.column))
            };
            let cells = sweep.variants.iter().map(cell);
            table.push(std::iter::once(Value::from(value.as_str())).chain(cells).collect());
        }
        table
    }

    /// All that is measured, a row for each number: for programs.
    fn long_table(&self, sweep: &Sweep, rows: &[ComparisonRow]) -> Table {
        let keys = sweep.axes.iter().map(|axis| axis.key.as_str());
        let headings = ["measured", "unit", "variant"].into_iter().chain(keys).chain(["value"]);
        let columns = headings.map(|key| column(key.to_owned())).collect();
        let mut table = Table { title: self.title(), columns, rows: Vec::new() };
        for row in rows {
            for point in self.points(sweep) {
                let words = [name(row), row.unit.clone(), point.variant.into()].into_iter();
                let words = words.chain(point.values.iter().cloned()).map(Value::from);
                table.push(words.chain([cell(row, point.column)]).collect());
            }
        }
        table
    }
}

/// The values of a sweep's only key, which a picture needs as numbers; nothing of one over several keys.
///
/// # Errors
/// One is none.
pub(crate) fn sweep_numbers(sweep: &Sweep) -> Result<Vec<f64>, Failure> {
    let Some(axis) = sweep.one_axis() else { return Ok(Vec::new()) };
    let number = |value: &String| {
        let expected = "expected numbers: there is nothing to draw over texts";
        value.parse().map_err(|_| {
            Failure::input(format!(
                "a picture over `{}` with the value `{value}`, {expected}",
                axis.key
            ))
        })
    };
    axis.values.iter().map(number).collect()
}

fn column(text: String) -> Column {
    Column { heading: text.clone(), key: text }
}

fn measured_column(row: &ComparisonRow) -> Column {
    let unit = if row.unit.is_empty() { String::new() } else { format!(" ({})", row.unit) };
    Column { heading: format!("{}{unit}", name(row)), key: name(row) }
}

/// Whether a row is called so, with its statistic or without.
fn is_called(row: &ComparisonRow, wanted: &str) -> bool {
    names(row).iter().any(|name| name == wanted)
}

/// As tables have it, without the statistic, and as the verdict has it.
fn names(row: &ComparisonRow) -> [String; 3] {
    let as_in_verdict = format!("{} {}", row.metric, row.statistic).trim_end().to_owned();
    [name(row), row.metric.clone(), as_in_verdict]
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
