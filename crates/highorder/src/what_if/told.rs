//! Answers as tables and sentences.

use highorder_lab::what_if::{
    Agreement, Answer, CREDIBLE, MEASURES, Measure, measure, median_error,
};
use highorder_tables::{Table, Value};

/// A row for each measure, a column for each setting: the median of the seeds, and their spread behind it.
pub(super) fn measures(title: &str, labels: &[&str], answers: &[Answer]) -> Table {
    let mut columns = vec![("", "measure"), ("unit", "unit"), ("now", "now")];
    columns.extend(labels.iter().map(|&label| (label, label)));
    let mut table = Table::new(title, &columns);
    for measure in &MEASURES {
        let found: Vec<_> = answers.iter().map(|answer| measure.of(answer)).collect();
        if found.iter().flatten().all(|values| values[2] == 0.0) {
            continue;
        }
        let mut row = vec![Value::from(measure.name), Value::from(measure.unit)];
        row.extend(found.into_iter().map(|values| shown(measure, values)));
        table.push(row);
    }
    table
}

/// Whole numbers where that is what is counted.
pub(super) fn shown(measure: &Measure, values: Option<[f64; 3]>) -> Value {
    match (values, measure.unit) {
        (None, _) => Value::Missing,
        (Some([median, ..]), "") => Value::Count(median.round() as i64),
        (Some([median, ..]), "s") => Value::Real(median, 3),
        (Some([median, ..]), _) => Value::Real(median, 1),
    }
}

/// A sentence for each setting: what tasks would wait, what huge pages they would get, and what that would cost.
pub(super) fn changes_told(labels: &[&str], answers: &[Answer]) -> Vec<String> {
    let Some((now, proposed)) = answers.split_first() else { return Vec::new() };
    labels.iter().zip(proposed).map(|(label, answer)| change_told(label, now, answer)).collect()
}

fn change_told(label: &str, now: &Answer, then: &Answer) -> String {
    let of = |name: &str| Some((measure(name).of(now)?, measure(name).of(then)?));
    let mut parts = Vec::new();
    if let Some((a, b)) = of("Time in stalls") {
        parts.push(match is_same(a, b) {
            true => format!("tasks would wait for memory as long as now, {:.2} s", b[0]),
            false => format!("tasks would wait {:.2} s for memory instead of {:.2} s", b[0], a[0]),
        });
    }
    if let Some((a, b)) = of("Areas with a huge page") {
        parts.push(match is_same(a, b) {
            true => {
                format!("{:.0} % of the areas that want a huge page would get one, as now", b[0])
            }
            false => format!(
                "{:.0} % of the areas that want a huge page would get one instead of {:.0} %",
                b[0], a[0]
            ),
        });
    }
    if let Some((a, b)) = of("CPU of kernel threads")
        && !is_same(a, b)
    {
        parts
            .push(format!("kswapd and kcompactd would run {:.2} s instead of {:.2} s", b[0], a[0]));
    }
    if let Some((a, b)) = of("Pages swapped out")
        && !is_same(a, b)
    {
        parts.push(format!("{:.0} pages would be swapped out instead of {:.0}", b[0], a[0]));
    }
    format!("With {label}, {}.", parts.join("; "))
}

/// Whether the spreads of the seeds overlap, or the medians are within a hundredth of each other.
pub(super) fn is_same(a: [f64; 3], b: [f64; 3]) -> bool {
    let overlap = a[1] <= b[2] && b[1] <= a[2];
    overlap || (a[0] - b[0]).abs() <= 0.01 * a[0].abs().max(b[0].abs())
}

/// How the model repeats what the recorded kernel counted.
pub(super) struct AgreementShown {
    pub(super) rows: Vec<Agreement>,
    pub(super) is_credible: bool,
}

impl AgreementShown {
    pub(super) fn new(rows: Vec<Agreement>) -> Self {
        let is_credible = median_error(&rows).is_some_and(|error| error <= CREDIBLE);
        Self { rows, is_credible }
    }

    pub(super) fn table(&self) -> Table {
        let columns = [
            ("counter", "counter"),
            ("recorded", "recorded"),
            ("model", "model"),
            ("error", "error_percent"),
        ];
        let mut table = Table::new("Under the present settings", &columns);
        for row in &self.rows {
            table.push(vec![
                row.name.into(),
                Value::Count(row.recorded as i64),
                Value::Count(row.model as i64),
                row.error().map_or(Value::Missing, |error| Value::Percent(100.0 * error)),
            ]);
        }
        table
    }

    /// Whether the model is to be believed here.
    pub(super) fn verdict(&self) -> String {
        match median_error(&self.rows) {
            None => "No advice: the recording has no counters of its own before and after, so that nothing says how far \
                     the model is to be believed."
                .to_owned(),
            Some(error) if self.is_credible => format!(
                "Under the present settings the model is {:.0} % off the recorded counters in the median: it is to be \
                 believed about the direction of what it says.",
                100.0 * error
            ),
            Some(error) => format!(
                "No advice: under the present settings the model is {:.0} % off the recorded counters in the median, \
                 more than {:.0} %.",
                100.0 * error,
                100.0 * CREDIBLE
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_apart_by_more_than_the_seeds_do_is_another_value() {
        assert!(is_same([2.0, 1.0, 3.0], [3.5, 2.5, 4.0]));
        assert!(is_same([100.0; 3], [100.5; 3]));
        assert!(!is_same([100.0; 3], [102.0; 3]));
        assert!(!is_same([2.0, 1.0, 2.4], [3.5, 2.5, 4.0]));
    }

    #[test]
    fn a_model_that_is_far_off_gives_no_advice() {
        let off = |model: f64| {
            AgreementShown::new(vec![Agreement { name: "pgfault", recorded: 1000.0, model }])
        };
        assert!(off(1200.0).is_credible);
        assert!(!off(1300.0).is_credible);
        assert!(off(1300.0).verdict().starts_with("No advice: "));
        assert!(!AgreementShown::new(Vec::new()).is_credible);
    }
}
