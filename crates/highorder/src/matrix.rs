//! Results as one table with a row for each variant, and its picture.

use crate::failure::Failure;
use crate::output::VERSION;
use crate::results::{Format, Printing, Results, verdict_markdown, verdict_text};
use highorder_page::reproduction::{self, Section};
use highorder_record::Better;
use highorder_record::end_state::{self, QUANTITIES};
use highorder_record::killed::{KILLED_MARK, KILLED_MEANS, nr_killed};
use highorder_record::matrix::{self, FIGURES, MatrixRow};
use highorder_report::{Caption, HeatColumn, HeatPanel, HeatRow, HeatTable};
use highorder_tables::{Column, Table, Value};
use serde_json::json;

const EXPLANATION: &str = "A stall is one direct reclaim or direct compaction; kswapd's work is in pages. Huge \
    is the share of the memory that faults brought. Latencies are those that the workload takes, or those of stalls.";
const MEMORY_TITLE: &str = "Memory before -> after";
const MEMORY_EXPLANATION: &str = "Unusable is the share of free memory in blocks that are smaller than a huge page; \
    with compaction are the huge pages that free blocks hold, and those that compaction could make.";

impl Results {
    /// Whether they are shown so: if the experiment says so, and nobody asked for another form.
    pub(crate) fn is_matrix(&self, printing: &Printing) -> bool {
        !self.matrix.is_empty() && !printing.has_other_form()
    }

    pub(crate) fn matrix_as(&self, format: Format) -> Result<String, Failure> {
        let table = self.matrix_table();
        let findings = self.findings();
        let memory = self.matrix_memory();
        let mut explanation = EXPLANATION.to_owned();
        for more in [
            memory.as_ref().map(|_| MEMORY_EXPLANATION),
            (!findings.killed.is_empty()).then_some(KILLED_MEANS),
        ] {
            explanation.extend(more.map(|more| format!(" {more}")));
        }
        let ending = format!("{explanation}\n\n{VERSION}; again with: ");
        Ok(match format {
            Format::Text => {
                let verdict = verdict_text(&findings);
                let memory = memory.map_or(String::new(), |memory| format!("\n{}", memory.text()));
                format!("{verdict}{}{memory}\n{ending}{}\n", table.text(), self.command)
            }
            Format::Md => {
                let verdict = verdict_markdown(&findings);
                let memory =
                    memory.map_or(String::new(), |memory| format!("\n{}", memory.markdown()));
                format!("{verdict}{}{memory}\n{ending}`{}`\n", table.markdown(), self.command)
            }
            Format::Csv => self.with_memory(table).csv(),
            Format::Json => self.with_memory(table).json_with(&[("verdict", json!(findings))]),
            Format::Html => {
                let page = reproduction::Page {
                    kind: "matrix",
                    title: &self.title(),
                    command: &self.command,
                    version: VERSION,
                    verdict: &findings.text,
                    notes: &[explanation],
                    picture: &self.matrix_picture(),
                    picture_description: "The table, darker where a value is larger",
                    links: &[],
                    sections: &[Section {
                        heading: self.title(),
                        tables: std::iter::once(table).chain(memory).collect(),
                    }],
                };
                reproduction::render(&page).map_err(|error| Failure::internal(error.to_string()))?
            }
        })
    }

    /// Each value in a cell that is darker the larger it is among those of the same workload.
    pub(crate) fn matrix_picture(&self) -> String {
        let column = |figure: &matrix::Figure| HeatColumn {
            heading: figure.heading.to_owned(),
            is_good: figure.better == Better::Higher,
        };
        let mut panels: Vec<HeatPanel> = Vec::new();
        for MatrixRow { parts, timed, values } in matrix::rows(&self.groups()) {
            let (first, others) = parts.split_first().expect("a name has a part");
            let (label, middle) = others.split_last().unwrap_or((first, &[]));
            let row = HeatRow {
                group: middle.join(matrix::BETWEEN_PARTS),
                label: label.clone(),
                values: values.to_vec(),
            };
            match panels.iter_mut().find(|panel| panel.title == *first) {
                Some(panel) => panel.rows.push(row),
                None => panels.push(HeatPanel {
                    title: first.clone(),
                    subtitle: match timed {
                        "" => String::new(),
                        timed => format!("latencies: of a {timed}"),
                    },
                    rows: vec![row],
                }),
            }
        }
        let table = HeatTable {
            title: self.title(),
            explanation: format!(
                "{EXPLANATION} A cell is the darker, the more it is of its column's largest."
            ),
            columns: FIGURES.iter().map(column).collect(),
            panels,
            caption: Caption {
                lines: vec![VERSION.to_owned()],
                command: Some(self.command.clone()),
            },
        };
        table.svg()
    }

    fn matrix_table(&self) -> Table {
        let names = self.matrix.iter().map(|name| (name.clone(), name.clone()));
        let timed = ("latency of".to_owned(), "latency_of".to_owned());
        let figures = FIGURES.iter().map(|f| (f.heading.to_owned(), f.key.to_owned()));
        let killed = ("killed runs".to_owned(), "killed_runs".to_owned());
        let columns = names.chain(figures).chain([timed, killed]);
        let columns = columns.map(|(heading, key)| Column { heading, key }).collect();
        let mut table = Table { title: self.title(), columns, rows: Vec::new() };
        let groups = self.groups();
        for (group, row) in groups.iter().zip(matrix::rows(&groups)) {
            let MatrixRow { parts, timed, values } = row;
            let nr_killed_runs =
                group.records.iter().filter(|record| nr_killed(record) > 0).count() as i64;
            let number = |(figure, value): (&matrix::Figure, Option<f64>)| match value {
                Some(value) => {
                    let value = Value::Real(value, figure.decimals.into());
                    match nr_killed_runs {
                        0 => value,
                        _ => Value::Marked(Box::new(value), KILLED_MARK),
                    }
                }
                None => Value::Missing,
            };
            let mut row: Vec<Value> = parts.into_iter().map(Value::from).collect();
            row.resize(self.matrix.len(), Value::from(""));
            row.extend(FIGURES.iter().zip(values).map(number));
            row.extend([timed.into(), Value::Count(nr_killed_runs)]);
            table.push(row);
        }
        table
    }
    /// The state of memory before and after the workload, a row for each variant; none where nobody knows it.
    fn matrix_memory(&self) -> Option<Table> {
        let groups = self.groups();
        let known: Vec<_> = groups.iter().map(end_state::before_and_after).collect();
        let is_known = |at: &usize| known.iter().any(|values| values[*at] != [None, None]);
        let shown: Vec<usize> = (0..QUANTITIES.len()).filter(is_known).collect();
        if shown.is_empty() {
            return None;
        }
        let names = self.matrix.iter().map(|name| (name.clone(), name.clone()));
        let quantities = shown.iter().map(|at| QUANTITIES[*at]);
        let quantities = quantities.map(|q| (q.heading.to_owned(), q.key.to_owned()));
        let columns = names.chain(quantities).map(|(heading, key)| Column { heading, key });
        let mut table =
            Table { title: MEMORY_TITLE.to_owned(), columns: columns.collect(), rows: Vec::new() };
        for ((group, row), values) in groups.iter().zip(matrix::rows(&groups)).zip(known) {
            let mut cells: Vec<Value> = row.parts.into_iter().map(Value::from).collect();
            cells.resize(self.matrix.len(), Value::from(""));
            let was_killed = group.records.iter().any(|record| nr_killed(record) > 0);
            cells.extend(shown.iter().map(|at| {
                let decimals = usize::from(QUANTITIES[*at].decimals);
                let word = |value: Option<f64>| {
                    value.map_or("-".to_owned(), |value| format!("{value:.decimals$}"))
                };
                let [before, after] = values[*at].map(word);
                let mark = if was_killed { KILLED_MARK.to_string() } else { String::new() };
                Value::from(format!("{before} -> {after}{mark}"))
            }));
            table.push(cells);
        }
        Some(table)
    }

    /// The table for programs: with a column for each moment's state of memory.
    fn with_memory(&self, mut table: Table) -> Table {
        for quantity in QUANTITIES {
            for when in ["before", "after"] {
                let heading = format!("{} {when}", quantity.heading);
                let key = format!("{}_{when}", quantity.key);
                table.columns.push(Column { heading, key });
            }
        }
        for (group, row) in self.groups().iter().zip(&mut table.rows) {
            for (quantity, moments) in QUANTITIES.iter().zip(end_state::before_and_after(group)) {
                let number = |value| Value::Real(value, quantity.decimals.into());
                row.extend(moments.map(|value| value.map_or(Value::Missing, number)));
            }
        }
        table
    }
}
