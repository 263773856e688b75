//! Variants whose runs came out alike.
//!
//! On the model equal inputs give equal results, and so do different ones if what differs does not matter to the
//! workload. A reader who expected a change wants to know which of both it was.

use crate::compare::Group;
use crate::record::{Inputs, Named, Record, Source};
use serde::Serialize;
use std::collections::BTreeSet;

/// Inputs that are named; of more only their number is told.
const INPUTS_NAMED: usize = 4;

/// Variants with identical results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Identical {
    /// The variants, in the order of the comparison: two or more.
    pub labels: Vec<String>,
    /// Inputs that differ between them all the same, such as `kernel vm.swappiness`. What a thing is called is
    /// no input.
    pub inputs: Vec<String>,
}

impl Identical {
    /// A sentence that says it.
    #[must_use]
    pub fn sentence(&self) -> String {
        // Where names have commas, only marks tell where one ends.
        let has_commas = self.labels.iter().any(|label| label.contains(','));
        let mark = if has_commas { "`" } else { "" };
        let marked: Vec<String> =
            self.labels.iter().map(|label| format!("{mark}{label}{mark}")).collect();
        let (last, others) = marked.split_last().expect("two variants or more");
        let who = format!("{} and {last} have identical results", others.join(", "));
        let named: Vec<&str> = self.inputs.iter().take(INPUTS_NAMED).map(String::as_str).collect();
        let named = named.join(", ");
        match self.inputs.len() {
            0 => format!("{who}: their inputs do not differ but in names."),
            nr if nr > INPUTS_NAMED => {
                format!(
                    "{who}, though their inputs differ: {named} and {} more.",
                    nr - INPUTS_NAMED
                )
            }
            _ => format!("{who}, though their inputs differ: {named}."),
        }
    }
}

/// Finds the groups whose runs came out alike, run by run. Each group is told of once.
#[must_use]
pub fn identical(groups: &[Group<'_>]) -> Vec<Identical> {
    let mut found: Vec<(&Group<'_>, Vec<&Group<'_>>)> = Vec::new();
    for group in groups.iter().filter(|group| !group.records.is_empty()) {
        match found.iter_mut().find(|(first, _)| are_alike(first, group)) {
            Some((_, others)) => others.push(group),
            None => found.push((group, Vec::new())),
        }
    }
    let told = |(first, others): (&Group<'_>, Vec<&Group<'_>>)| {
        let mut inputs = BTreeSet::new();
        for other in &others {
            for (a, b) in first.records.iter().zip(&other.records) {
                inputs.extend(differing(&a.inputs, &b.inputs));
            }
        }
        let labels = std::iter::once(first).chain(others).map(|group| group.label.clone());
        Identical { labels: labels.collect(), inputs: inputs.into_iter().collect() }
    };
    found.into_iter().filter(|(_, others)| !others.is_empty()).map(told).collect()
}

fn are_alike(a: &Group<'_>, b: &Group<'_>) -> bool {
    a.records.len() == b.records.len()
        && a.records.iter().zip(&b.records).all(|(a, b)| came_out_alike(a, b))
}

/// Whether two runs left the same, whatever they were given. Notes and pictures repeat inputs and counters.
fn came_out_alike(a: &Record, b: &Record) -> bool {
    // Taken apart whole, so that a field to come cannot be forgotten here.
    let Record {
        inputs: _,
        page_bytes,
        before,
        held,
        after,
        durations,
        resident_kib_max,
        metrics,
        latencies,
        timeline,
        notes: _,
        pictures: _,
        column: _,
    } = a;
    *durations == b.durations
        && *after == b.after
        && *metrics == b.metrics
        && *before == b.before
        && *held == b.held
        && *latencies == b.latencies
        && *timeline == b.timeline
        && (*page_bytes, *resident_kib_max) == (b.page_bytes, b.resident_kib_max)
}

/// What differs between the inputs of two runs, but for names.
fn differing(a: &Inputs, b: &Inputs) -> BTreeSet<String> {
    let mut differing = BTreeSet::new();
    let is_model = a.source == Source::Model && b.source == Source::Model;
    let of = |kind: &str, a: &Named, b: &Named| {
        let keys: BTreeSet<&String> = a.values.keys().chain(b.values.keys()).collect();
        // The model does what the values say, whatever the file and the release are called.
        let is_name =
            |key: &str| is_model && kind == "kernel" && ["kernel", "release"].contains(&key);
        let keys = keys.into_iter().filter(|key| !is_name(key));
        let keys = keys.filter(|key| a.values.get(*key) != b.values.get(*key));
        keys.map(|key| format!("{kind} {key}")).collect::<Vec<_>>()
    };
    differing.extend(of("machine", &a.machine, &b.machine));
    differing.extend(of("kernel", &a.kernel, &b.kernel));
    differing.extend(of("workload", &a.workload, &b.workload));
    for (what, differs) in [
        ("where they ran", a.source != b.source),
        ("workload", a.workload.name != b.workload.name),
        ("demands or sampling", a.experiment_text != b.experiment_text),
        ("seed", a.seed != b.seed),
        ("scale", a.scale != b.scale),
        ("version of highorder", a.program_version != b.program_version),
        ("build of highorder", a.program_sources != b.program_sources),
    ] {
        if differs {
            differing.insert(what.to_owned());
        }
    }
    differing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(knobs: &[(&str, &str)], faults: u64) -> Record {
        let mut inputs = Inputs::default();
        inputs.kernel.values =
            knobs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let mut record = Record::new(inputs);
        record.after.counters = [("pgfault".to_owned(), faults)].into();
        record
    }

    fn group<'a>(label: &str, records: &'a [Record]) -> Group<'a> {
        Group { label: label.to_owned(), records: records.iter().collect() }
    }

    fn sentences(groups: &[Group<'_>]) -> Vec<String> {
        identical(groups).iter().map(Identical::sentence).collect()
    }

    #[test]
    fn equal_results_are_told_with_the_inputs_that_differ_all_the_same() {
        let a = [record(&[("vm.swappiness", "60")], 7)];
        let b = [record(&[("vm.swappiness", "10")], 7)];
        let c = [record(&[("vm.swappiness", "1")], 8)];
        assert_eq!(
            sentences(&[group("calm", &a), group("busy", &c), group("idle", &b)]),
            [
                "calm and idle have identical results, though their inputs differ: kernel vm.swappiness."
            ]
        );
        assert_eq!(sentences(&[group("calm", &a), group("busy", &c)]), [""; 0]);
    }

    #[test]
    fn variants_that_are_the_same_by_another_name_are_told_to_be() {
        let mut twice = [record(&[("kernel", "linux-4.4")], 7), record(&[("kernel", "mine")], 7)];
        twice[1].inputs.kernel.name = "mine".to_owned();
        twice[1].notes.push("a note".to_owned());
        let (a, b) = twice.split_at(1);
        assert_eq!(
            sentences(&[group("linux-4.4", a), group("mine", b)]),
            ["linux-4.4 and mine have identical results: their inputs do not differ but in names."]
        );
    }

    #[test]
    fn three_are_told_of_once_and_many_inputs_by_their_number() {
        let knobs = [("a", "1"), ("b", "1"), ("c", "1"), ("d", "1"), ("e", "1"), ("f", "1")];
        let (a, b, c) = ([record(&knobs, 7)], [record(&[], 7)], [record(&[], 7)]);
        assert_eq!(
            sentences(&[group("x", &a), group("y", &b), group("z", &c)]),
            [
                "x, y and z have identical results, though their inputs differ: kernel a, kernel b, kernel c, \
              kernel d and 2 more."
            ]
        );
    }

    #[test]
    fn one_run_that_differs_is_enough_and_no_runs_are_not_identical() {
        let a = [record(&[], 7), record(&[], 8)];
        let b = [record(&[], 7), record(&[], 9)];
        assert_eq!(sentences(&[group("a", &a), group("b", &b)]), [""; 0]);
        assert_eq!(sentences(&[group("a", &a), group("b", &a[..1])]), [""; 0]);
        assert_eq!(sentences(&[group("a", &[]), group("b", &[])]), [""; 0]);
    }
}
