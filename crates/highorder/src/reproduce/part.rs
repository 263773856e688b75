//! One experiment beside its published tables, on every machine.

use super::across::lies;
use highorder_lab::Plan;
use highorder_lab::reproduce::Reproduction;
use highorder_lab::unknowns::MachineNumber;
use highorder_record::published::{PublishedRow, PublishedTable};
use highorder_record::score::{Cells, Direction, Measured, Tally, directions};
use highorder_record::{Group, PublishedForm, Record, Scale};
use highorder_report::{DotPanel, DotRow};
use highorder_tables::{Column, Table, Value};
use std::collections::BTreeSet;

/// One experiment beside its published tables.
pub(super) struct Part {
    pub(super) form: &'static PublishedForm,
    pub(super) experiment: String,
    pub(super) description: String,
    pub(super) origin: String,
    /// What was measured on each machine, under the published names; the nominal one first.
    pub(super) ours: Vec<Cells>,
    pub(super) directions: Vec<Direction>,
    /// On how many machines each of these is the same way.
    pub(super) tallies: Vec<Tally>,
    /// Published columns that have runs.
    pub(super) columns: BTreeSet<String>,
    /// The runs on the nominal machine, for each column.
    pub(super) records: Vec<(String, Vec<Record>)>,
}

impl Part {
    /// Of an experiment without runs yet.
    pub(super) fn new(reproduction: &Reproduction, scale: Scale) -> Self {
        let Reproduction { experiment, form } = reproduction;
        let machines: BTreeSet<&str> =
            experiment.variants.iter().map(|variant| variant.machine.name.as_str()).collect();
        let machines: Vec<&str> = machines.into_iter().collect();
        Self {
            form,
            experiment: experiment.name.clone(),
            description: experiment.description.clone(),
            origin: format!("{} at scale {scale}", machines.join(", ")),
            ours: Vec::new(),
            directions: Vec::new(),
            tallies: Vec::new(),
            columns: BTreeSet::new(),
            records: Vec::new(),
        }
    }

    /// Adds what was measured on the next machine, the nominal one first.
    pub(super) fn add(
        &mut self,
        reproduction: &Reproduction,
        scale: Scale,
        plan: &Plan,
        records: Vec<Vec<Record>>,
    ) {
        let variants = &reproduction.experiment.variants;
        let measured: Vec<Measured<'_>> = variants
            .iter()
            .zip(&records)
            // A column of which some steps are missing has no sums.
            .filter(|(_, records)| records.len() * plan.columns.len() == plan.runs.len())
            .map(|(variant, records)| Measured {
                columns: &variant.published,
                group: Group { label: variant.name.clone(), records: records.iter().collect() },
                scale,
            })
            .collect();
        let ours = Cells::measured(self.form, &measured);
        if self.ours.is_empty() {
            self.columns = measured.iter().flat_map(|one| one.columns.iter().cloned()).collect();
        }
        drop(measured);
        let found = directions(self.form, &Cells::published(), &ours);
        if self.ours.is_empty() {
            self.tallies = vec![Tally::default(); found.len()];
            let labels = variants.iter().map(|variant| variant.name.clone());
            self.records = labels.zip(records).collect();
        }
        for (tally, direction) in self.tallies.iter_mut().zip(&found) {
            let here = Tally::of([direction.is_same()]);
            tally.held += here.held;
            tally.judged += here.judged;
        }
        if self.ours.is_empty() {
            self.directions = found;
        }
        self.ours.push(ours);
    }

    pub(super) fn document(&self) -> &str {
        self.form.name.split('_').next().unwrap_or_default()
    }

    /// Which run a table of a machine is from, without commas.
    pub(super) fn source(&self, number: MachineNumber, version: &str) -> String {
        let origin = self.origin.replace(',', " and");
        format!("{version}: {} on {origin}; machine {number}", self.experiment)
    }

    /// The published tables, ours beside them: one for each column with runs, but for the first. A table whose
    /// columns share no row with the first has one for each.
    pub(super) fn tables(&self, published: &Cells) -> Vec<Table> {
        let mut tables = Vec::new();
        for table in &self.form.tables {
            let Some((base, others)) = table.columns.split_first() else { continue };
            let ran: Vec<&str> =
                others.iter().filter(|column| self.columns.contains(**column)).copied().collect();
            let shown = match ran.is_empty() {
                true => others.first().copied().into_iter().collect(),
                false => ran,
            };
            for column in shown {
                tables.push(self.table(published, table, base, column));
            }
        }
        tables
    }

    fn table(&self, published: &Cells, like: &PublishedTable, base: &str, column: &str) -> Table {
        let mut columns = vec![("", "row")];
        let are_many = self.ours.len() > 1;
        let ranges = |keys: [&'static str; 3]| {
            let headings = ["least", "most", "published is"];
            headings.into_iter().zip(keys).filter(move |_| are_many)
        };
        columns.extend([(base, "base_published"), ("ours", "base_ours")]);
        columns.extend(ranges(["base_least", "base_most", "base_published_is"]));
        columns.extend([(column, "new_published"), ("ours", "new_ours")]);
        columns.extend(ranges(["new_least", "new_most", "new_published_is"]));
        columns.extend([
            ("changed by", "change_published_percent"),
            ("ours", "change_ours_percent"),
            ("same way", "is_same_way"),
        ]);
        let columns = columns
            .into_iter()
            .map(|(heading, key)| Column { heading: heading.to_owned(), key: key.to_owned() });
        let title = format!("{} ({})", like.title, like.file);
        let mut table = Table { title, columns: columns.collect(), rows: Vec::new() };
        for row in &like.rows {
            let of = |cells: &Cells, column| cells.of_row(like, row, column);
            let values = [base, column].map(|c| [of(published, c), of(self.nominal(), c)]);
            if values.iter().flatten().all(Option::is_none) {
                continue;
            }
            let value = |value: Option<f64>| match value {
                Some(value) => Value::Real(value, row.decimals.into()),
                None => Value::Missing,
            };
            let [base_values, new_values] = values;
            let changes = [0, 1].map(|i| Some((base_values[i]?, new_values[i]?)));
            let mut line = vec![row_name(row).into()];
            for (column, values) in [(base, base_values), (column, new_values)] {
                line.extend(values.map(value));
                if are_many {
                    let ours = || self.ours.iter().filter_map(|cells| of(cells, column));
                    let ends = ours().reduce(f64::min).zip(ours().reduce(f64::max));
                    line.extend(ends.map_or([Value::Missing, Value::Missing], |(least, most)| {
                        [value(Some(least)), value(Some(most))]
                    }));
                    let is = values[0].zip(ends);
                    line.push(is.map_or(Value::Missing, |(value, (least, most))| {
                        lies(value, least, most).into()
                    }));
                }
            }
            line.extend([change(changes[0]), change(changes[1]), same_way(row, changes).into()]);
            table.push(line);
        }
        table
    }

    fn nominal(&self) -> &Cells {
        static NOTHING: Cells = Cells(Vec::new());
        self.ours.first().unwrap_or(&NOTHING)
    }

    /// Published columns that nothing was run for.
    pub(super) fn missing_columns(&self) -> Vec<&str> {
        let mut missing = Vec::new();
        for column in self.form.tables.iter().flat_map(|table| &table.columns) {
            if !self.columns.contains(*column) && !missing.contains(column) {
                missing.push(*column);
            }
        }
        missing
    }

    pub(super) fn heading(&self) -> String {
        let missing = self.missing_columns();
        let missing = match missing.is_empty() {
            true => String::new(),
            false => format!("; not run: {}", missing.join(", ")),
        };
        format!("{}: experiment {}, {}{missing}", self.form.name, self.experiment, self.origin)
    }

    pub(super) fn panels(&self) -> Vec<DotPanel> {
        let mut panels: Vec<DotPanel> = Vec::new();
        for direction in &self.directions {
            if direction.ours.is_none() {
                continue;
            }
            let title = direction.table.to_owned();
            let subtitle = direction.column.to_owned();
            let is_it =
                |panel: &&mut DotPanel| (&panel.title, &panel.subtitle) == (&title, &subtitle);
            let row = DotRow {
                label: direction.row.clone(),
                ratios: [Some(direction.published), direction.ours].map(|both| both.map(ratio)),
            };
            match panels.iter_mut().find(is_it) {
                Some(panel) => panel.rows.push(row),
                None => panels.push(DotPanel { title, subtitle, rows: vec![row] }),
            }
        }
        panels
    }
}

/// Whether ours changed as the published value did; empty where nobody said which way.
fn same_way(row: &PublishedRow, changes: [Option<(f64, f64)>; 2]) -> &'static str {
    match changes {
        // Of a listing's extremes nobody said where they go.
        _ if row.cells.stat == "sample" => "",
        [Some((a, b)), Some((c, d))] if a != b => match (d - c) * (b - a) > 0.0 {
            true => "yes",
            false => "no",
        },
        [Some((a, b)), None] if a != b => "-",
        _ => "",
    }
}

/// The new value over the base's; equal values are no change, 0 and 0 too.
fn ratio([base, new]: [f64; 2]) -> f64 {
    if base == new { 1.0 } else { new / base }
}

fn change(values: Option<(f64, f64)>) -> Value {
    match values {
        None => Value::Missing,
        Some((base, new)) if base == new => Value::Change(0.0),
        Some((0.0, _)) => Value::Text("from 0".to_owned()),
        Some((base, new)) => Value::Text(Value::Change(100.0 * (new / base - 1.0)).show()),
    }
}

fn row_name(row: &PublishedRow) -> String {
    [row.statistic, &row.metric].join(" ").trim().to_owned()
}
