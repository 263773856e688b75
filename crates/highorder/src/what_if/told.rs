//! Answers as tables and sentences.

use highorder_lab::what_if::{
    Agreement, Answer, CREDIBLE, JUDGED_LEAST, MEASURES, Measure, STALLED, measure, median_error,
};
use highorder_tables::{Table, Value, text};

/// What is counted of the runs under a setting.
type CountOf<'a> = &'a dyn Fn(&Answer) -> usize;

/// A row for each measure, a column for each setting: the median of the seeds in which all was done that was recorded.
/// Where in some less was done, the first rows say so.
pub(super) fn measures(title: &str, labels: &[&str], answers: &[Answer]) -> Table {
    let mut columns = vec![("", "measure"), ("unit", "unit"), ("now", "now")];
    columns.extend(labels.iter().map(|&label| (label, label)));
    let mut table = Table::new(title, &columns);
    if answers.iter().any(|answer| !answer.unfinished.is_empty()) {
        let nr_runs = |answer: &Answer| answer.unfinished.len();
        let nr_tasks = |answer: &Answer| answer.nr_unfinished_tasks().map_or(0, |(_, most)| most);
        let rows: [(&str, CountOf<'_>); 2] =
            [("Runs that did less", &nr_runs), ("Tasks that did not finish there", &nr_tasks)];
        for (name, of) in rows {
            let mut row = vec![Value::from(name), Value::from("")];
            row.extend(answers.iter().map(|answer| Value::Count(of(answer) as i64)));
            table.push(row);
        }
    }
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

/// A sentence for each setting: what tasks would wait, what huge pages they would get, and what that would cost. Of one
/// under which less was done than was recorded, that alone is told; of the others nothing where the model is not credible.
pub(super) fn changes_told(
    labels: &[&str],
    answers: &[Answer],
    nr_tasks: usize,
    shown: &AgreementShown,
) -> Vec<String> {
    let Some((now, proposed)) = answers.split_first() else { return Vec::new() };
    let told = labels.iter().zip(proposed).filter_map(|(label, answer)| {
        let unfinished = unfinished_told(&format!("with {label}"), answer, nr_tasks);
        let change = || shown.is_credible.then(|| change_told(label, now, answer, shown));
        unfinished.map(|told| sentence(&told)).or_else(change)
    });
    let present = unfinished_told("under the present settings", now, nr_tasks)
        .filter(|_| shown.is_credible)
        .map(|told| sentence(&told));
    told.chain(present).collect()
}

/// What is told of a setting under which less was done than was recorded, in some runs or in all.
pub(super) fn unfinished_told(under: &str, answer: &Answer, nr_tasks: usize) -> Option<String> {
    let (least, most) = answer.nr_unfinished_tasks()?;
    let tasks = match (least, most) {
        (_, 0) => "programs that ran before would be killed".to_owned(),
        _ => {
            let some =
                if least == most { text::count(most as u64) } else { format!("{least} to {most}") };
            let all = text::counted(nr_tasks as u64, "task");
            format!("{some} of {all} would not finish what was recorded")
        }
    };
    let nr_runs = text::counted(answer.nr_runs() as u64, "run");
    let why = &answer.unfinished[0].why;
    Some(format!(
        "{under}, {tasks}, in {} of {nr_runs}: {why}. Such runs give no figures.",
        answer.unfinished.len()
    ))
}

/// With a capital letter.
fn sentence(told: &str) -> String {
    let mut letters = told.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// What the model has now stands behind `instead of`; where its own counters are further off than a model may be that is to
/// be believed, that is told there.
fn change_told(label: &str, now: &Answer, then: &Answer, agreement: &AgreementShown) -> String {
    if MEASURES.iter().all(|measure| is_equal(measure.of(now), measure.of(then))) {
        return format!(
            "With {label}, every figure is as now in every run: nothing that was recorded depends on it."
        );
    }
    let of = |name: &str| Some((measure(name).of(now)?, measure(name).of(then)?));
    let mut parts = Vec::new();
    if let Some((a, b)) = of("Time in stalls") {
        let shown = |value: f64| format!("{value:.2} s");
        let off = agreement.off(&[STALLED]);
        parts.push(match shown(a[0]) == shown(b[0]) && is_same(a, b) {
            true => format!("tasks would wait for memory as long as now, {}{off}", shown(b[0])),
            false => format!(
                "tasks would wait {} for memory instead of {}{off}{}",
                shown(b[0]),
                shown(a[0]),
                chance(a, b, shown)
            ),
        });
    }
    if let Some((a, b)) = of("Areas with a huge page") {
        let shown = |value: f64| format!("{value:.0} %");
        let areas = "of the areas that want a huge page would get one";
        let off = agreement.off(&["thp_fault_alloc", "thp_fault_fallback"]);
        parts.push(match shown(a[0]) == shown(b[0]) && is_same(a, b) {
            true => format!("{} {areas}, as now{off}", shown(b[0])),
            false => format!(
                "{} {areas} instead of {}{off}{}",
                shown(b[0]),
                shown(a[0]),
                chance(a, b, shown)
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
        let off = agreement.off(&["pswpout"]);
        parts.push(format!("{:.0} pages would be swapped out instead of {:.0}{off}", b[0], a[0]));
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

/// Whether least, median and most of the seeds are within a thousandth of each other.
fn is_equal(a: Option<[f64; 3]>, b: Option<[f64; 3]>) -> bool {
    let near = |(a, b): (f64, f64)| (a - b).abs() <= 0.001 * a.abs().max(b.abs());
    match (a, b) {
        (Some(a), Some(b)) => a.into_iter().zip(b).all(near),
        (a, b) => a.is_none() && b.is_none(),
    }
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
    /// What is told of the present settings if no run under them did all that was recorded.
    unfinished: Option<String>,
}

impl AgreementShown {
    pub(super) fn new(rows: Vec<Agreement>, unfinished: Option<String>) -> Self {
        let is_near = median_error(&rows).is_some_and(|error| error <= CREDIBLE);
        let is_judged = nr_judged(&rows) >= JUDGED_LEAST;
        Self { is_credible: is_near && is_judged && unfinished.is_none(), rows, unfinished }
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

    /// What is said beside a figure that hangs on these counters: how far the model is off the worst of them, if that is
    /// too far.
    fn off(&self, counters: &[&str]) -> String {
        let rows = self.rows.iter().filter(|row| counters.contains(&row.name));
        match rows.filter_map(Agreement::error).max_by(f64::total_cmp) {
            Some(error) if error > CREDIBLE => {
                format!(" (the model is {:.0} % off here)", 100.0 * error)
            }
            _ => String::new(),
        }
    }

    /// Whether the model is to be believed here.
    pub(super) fn verdict(&self) -> String {
        if let Some(told) = &self.unfinished {
            return format!("No advice: {told}");
        }
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
    use highorder_lab::what_if::Unfinished;

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
    fn of_runs_that_did_less_it_is_told_how_much_and_why() {
        let run = |nr_tasks| Unfinished { nr_tasks, why: "killed".to_owned(), is_halted: true };
        let answer = |unfinished| Answer { records: Vec::new(), unfinished };
        let told = |runs| unfinished_told("with a=1", &answer(runs), 14);
        let all = "with a=1, 14 of 14 tasks would not finish what was recorded, in 2 of 2 runs: killed. Such runs give no \
                   figures.";
        assert_eq!(told(vec![run(14), run(14)]).as_deref(), Some(all));
        assert!(told(vec![run(2), run(14)]).is_some_and(|told| told.contains("2 to 14 of 14")));
        assert!(told(vec![run(0)]).is_some_and(|told| told.contains("would be killed")));
        assert_eq!(told(Vec::new()), None);
        assert_eq!(answer(vec![run(1)]).halted(), Some("killed"));
        assert_eq!(answer(Vec::new()).halted(), None);
        let of_none = AgreementShown::new(Vec::new(), told(vec![run(14)]));
        assert!(of_none.verdict().starts_with("No advice: with a=1, 14 of 14 tasks"));
        assert_eq!(sentence("with"), "With");
    }

    #[test]
    fn a_figure_whose_counter_is_far_off_is_told_with_that() {
        let row = |name, recorded, model| Agreement { name, recorded, model };
        let rows = vec![
            row("pswpout", 515.0, 0.0),
            row("thp_fault_alloc", 100.0, 110.0),
            row("thp_fault_fallback", 100.0, 160.0),
            row(STALLED, 1000.0, 1200.0),
            row("pswpin", 8.0, 0.0),
        ];
        let shown = AgreementShown::new(rows, None);
        assert_eq!(shown.off(&["pswpout"]), " (the model is 100 % off here)");
        let huge = ["thp_fault_alloc", "thp_fault_fallback"];
        assert_eq!(shown.off(&huge), " (the model is 60 % off here)");
        // Near enough, too few to tell, and not compared.
        for near in [&[STALLED][..], &["thp_fault_alloc"], &["pswpin"], &["pgfault"]] {
            assert_eq!(shown.off(near), "", "{near:?}");
        }
    }

    #[test]
    fn a_model_that_is_far_off_gives_no_advice() {
        let off = |model: f64| {
            let row = Agreement { name: "pgfault", recorded: 1000.0, model };
            AgreementShown::new(vec![row; JUDGED_LEAST], None)
        };
        assert!(off(1200.0).is_credible);
        assert!(!off(1300.0).is_credible);
        assert!(off(1300.0).verdict().starts_with("No advice: "));
        assert!(!AgreementShown::new(Vec::new(), None).is_credible);
    }

    #[test]
    fn where_too_little_happened_nothing_is_to_be_believed() {
        let few = |recorded: f64| Agreement { name: "pgfault", recorded, model: recorded };
        let mut rows = vec![few(3.0); 10];
        rows.push(few(1000.0));
        let shown = AgreementShown::new(rows, None);
        assert!(!shown.is_credible);
        assert!(
            shown.verdict().starts_with("No advice: too little happened"),
            "{}",
            shown.verdict()
        );
    }
}
