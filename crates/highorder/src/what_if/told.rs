//! Answers as tables and sentences.

use highorder_lab::what_if::{
    Agreement, Answer, CREDIBLE, JUDGED_LEAST, MEASURES, Measure, measure, median_error,
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
        let shown = |value: f64| format!("{value:.2} s");
        parts.push(match shown(a[0]) == shown(b[0]) && is_same(a, b) {
            true => format!("tasks would wait for memory as long as now, {}", shown(b[0])),
            false => format!(
                "tasks would wait {} for memory instead of {}{}",
                shown(b[0]),
                shown(a[0]),
                chance(a, b, shown)
            ),
        });
    }
    if let Some((a, b)) = of("Areas with a huge page") {
        let shown = |value: f64| format!("{value:.0} %");
        let areas = "of the areas that want a huge page would get one";
        parts.push(match shown(a[0]) == shown(b[0]) && is_same(a, b) {
            true => format!("{} {areas}, as now", shown(b[0])),
            false => {
                format!("{} {areas} instead of {}{}", shown(b[0]), shown(a[0]), chance(a, b, shown))
            }
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

/// What is to be said beside two values that count as one and do not look it: what the seeds span, from the least to the
/// most.
fn chance(a: [f64; 3], b: [f64; 3], shown: impl Fn(f64) -> String) -> String {
    if !is_same(a, b) {
        return String::new();
    }
    if !overlap(a, b) {
        return ", within a hundredth".to_owned();
    }
    let span = |values: [f64; 3]| format!("{} to {}", shown(values[1]), shown(values[2]));
    format!(", which is within the spread of the seeds ({} now, {} then)", span(a), span(b))
}

/// Whether the spreads of the seeds overlap, or the medians are within a hundredth of each other.
pub(super) fn is_same(a: [f64; 3], b: [f64; 3]) -> bool {
    overlap(a, b) || (a[0] - b[0]).abs() <= 0.01 * a[0].abs().max(b[0].abs())
}

fn overlap(a: [f64; 3], b: [f64; 3]) -> bool {
    a[1] <= b[2] && b[1] <= a[2]
}

/// How the model repeats what the recorded kernel counted.
pub(super) struct AgreementShown {
    pub(super) rows: Vec<Agreement>,
    pub(super) is_credible: bool,
}

impl AgreementShown {
    pub(super) fn new(rows: Vec<Agreement>) -> Self {
        let is_near = median_error(&rows).is_some_and(|error| error <= CREDIBLE);
        Self { is_credible: is_near && nr_judged(&rows) >= JUDGED_LEAST, rows }
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
        let nr_judged = nr_judged(&self.rows);
        match median_error(&self.rows) {
            _ if !self.rows.is_empty() && nr_judged < JUDGED_LEAST => format!(
                "No advice: too little happened while it was recorded to judge the model. Counters that changed enough to \
                 be compared: {nr_judged}, expected at least {JUDGED_LEAST}."
            ),
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

/// Counters that have an error.
fn nr_judged(rows: &[Agreement]) -> usize {
    rows.iter().filter(|row| row.error().is_some()).count()
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
    fn what_chance_may_have_done_is_told_with_what_the_seeds_span() {
        let shown = |value: f64| format!("{value:.2} s");
        let told = chance([1.37, 1.1, 1.8], [1.7, 1.2, 2.1], shown);
        let span = "(1.10 s to 1.80 s now, 1.20 s to 2.10 s then)";
        assert_eq!(told, format!(", which is within the spread of the seeds {span}"));
        assert_eq!(chance([100.0; 3], [100.5; 3], shown), ", within a hundredth");
        assert_eq!(chance([1.0; 3], [2.0; 3], shown), "");
    }

    #[test]
    fn a_model_that_is_far_off_gives_no_advice() {
        let off = |model: f64| {
            let row = Agreement { name: "pgfault", recorded: 1000.0, model };
            AgreementShown::new(vec![row; JUDGED_LEAST])
        };
        assert!(off(1200.0).is_credible);
        assert!(!off(1300.0).is_credible);
        assert!(off(1300.0).verdict().starts_with("No advice: "));
        assert!(!AgreementShown::new(Vec::new()).is_credible);
    }

    #[test]
    fn where_too_little_happened_nothing_is_to_be_believed() {
        let few = |recorded: f64| Agreement { name: "pgfault", recorded, model: recorded };
        let mut rows = vec![few(3.0); 10];
        rows.push(few(1000.0));
        let shown = AgreementShown::new(rows);
        assert!(!shown.is_credible);
        assert!(
            shown.verdict().starts_with("No advice: too little happened"),
            "{}",
            shown.verdict()
        );
    }
}
