//! What was run: what the runs share, and what the variants differ in.

use std::collections::BTreeMap;

use highorder_record::{Group, Inputs, Named, Source};
use serde::Serialize;

use crate::series_class;

/// Something that is known of all runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Fact {
    pub(crate) name: &'static str,
    pub(crate) value: String,
}

/// One variant.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Variant {
    pub(crate) label: String,
    /// The class of its colour.
    pub(crate) class: String,
    pub(crate) kernel: String,
    /// `7 runs`.
    pub(crate) runs: String,
    /// Whether the others are compared with it.
    pub(crate) is_base: bool,
}

/// A value that is not the same in all variants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Difference {
    pub(crate) kind: &'static str,
    pub(crate) key: String,
    /// For each variant; empty where it has none.
    pub(crate) values: Vec<String>,
}

/// What all runs were given alike, and the experiment as it was written.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Given {
    pub(crate) values: Vec<(&'static str, String, String)>,
    pub(crate) texts: Vec<String>,
}

/// Values that are told elsewhere, or say nothing to a reader: the steps have the thread counts, and
/// `captured` is a hash of somebody else's files.
const TOLD_ELSEWHERE: [&str; 2] = ["threads", "captured"];

fn inputs<'a>(groups: &'a [Group<'_>]) -> impl Iterator<Item = &'a Inputs> {
    groups.iter().flat_map(|group| group.records.iter().map(|record| &record.inputs))
}

fn distinct(values: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = Vec::new();
    for value in values {
        if !value.is_empty() && !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

/// Numbers as `1–7, 9`, in order.
fn ranges(mut numbers: Vec<u64>) -> String {
    numbers.sort_unstable();
    numbers.dedup();
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let run = |(first, last): &(u64, u64)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}–{last}"),
    };
    runs.iter().map(run).collect::<Vec<_>>().join(", ")
}

/// What the heading lists.
pub(crate) fn facts(groups: &[Group<'_>]) -> Vec<Fact> {
    let list = |of: &dyn Fn(&Inputs) -> String| distinct(inputs(groups).map(of)).join(", ");
    let threads: Vec<String> = distinct(
        inputs(groups).filter_map(|inputs| inputs.workload.values.get("threads").cloned()),
    );
    let mut counts: Vec<u64> = threads.iter().filter_map(|count| count.parse().ok()).collect();
    counts.sort_unstable();
    let threads = match counts.len() == threads.len() {
        true => counts.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
        false => threads.join(", "),
    };
    let foreign = inputs(groups).all(|inputs| inputs.source == Source::Foreign);
    let source = |inputs: &Inputs| match inputs.source {
        Source::Model => "the model, virtual time".to_owned(),
        Source::Host => "this host's kernel".to_owned(),
        Source::Vm => "a kernel in a virtual machine".to_owned(),
        Source::Foreign => "captures made elsewhere".to_owned(),
    };
    let iterations = inputs(groups).map(|inputs| u64::from(inputs.iteration) + 1).max();
    let seeds = ranges(inputs(groups).map(|inputs| inputs.seed).collect());
    let facts = [
        ("Experiment", list(&|inputs| inputs.experiment.clone())),
        ("Machine", list(&|inputs| inputs.machine.name.clone())),
        ("Workload", list(&|inputs| inputs.workload.name.clone())),
        ("Threads", threads),
        // Of somebody else's captures no seed, iteration or scale is known.
        ("Seeds", if foreign { String::new() } else { seeds }),
        ("Iterations", if foreign { String::new() } else { iterations.unwrap_or(1).to_string() }),
        ("Scale", if foreign { String::new() } else { list(&|inputs| inputs.scale.to_string()) }),
        ("Run by", list(&source)),
        ("Version", list(&|inputs| inputs.program_version.clone())),
    ];
    let known = facts.into_iter().filter(|(_, value)| !value.is_empty());
    known.map(|(name, value)| Fact { name, value }).collect()
}

/// The variants, the base first.
pub(crate) fn variants(groups: &[Group<'_>]) -> Vec<Variant> {
    let variant = |(i, group): (usize, &Group<'_>)| {
        let kernels = group.records.iter().map(|record| record.inputs.kernel.name.clone());
        let kernels: Vec<String> =
            distinct(kernels).into_iter().filter(|kernel| *kernel != group.label).collect();
        Variant {
            label: group.label.clone(),
            class: series_class(i),
            kernel: kernels.join(", "),
            runs: match group.records.len() {
                1 => "1 run".to_owned(),
                n => format!("{n} runs"),
            },
            is_base: i == 0,
        }
    };
    groups.iter().enumerate().map(variant).collect()
}

/// A part of what determines a run.
type Part = fn(&Inputs) -> &Named;

const KINDS: [(&str, Part); 3] = [
    ("kernel", |inputs| &inputs.kernel),
    ("workload", |inputs| &inputs.workload),
    ("machine", |inputs| &inputs.machine),
];

/// For each key of a kind its values in each variant, those of several runs joined.
fn values(groups: &[Group<'_>], of: Part) -> BTreeMap<String, Vec<String>> {
    let mut values: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
    for (i, group) in groups.iter().enumerate() {
        for record in &group.records {
            for (key, value) in &of(&record.inputs).values {
                let of_key =
                    values.entry(key.clone()).or_insert_with(|| vec![Vec::new(); groups.len()]);
                if !of_key[i].contains(value) {
                    of_key[i].push(value.clone());
                }
            }
        }
    }
    let told = |key: &String| !TOLD_ELSEWHERE.contains(&key.as_str());
    let join = |of_key: Vec<Vec<String>>| of_key.iter().map(|v| v.join(", ")).collect();
    values.into_iter().filter(|(key, _)| told(key)).map(|(key, v)| (key, join(v))).collect()
}

/// What the variants differ in, key by key.
pub(crate) fn differences(groups: &[Group<'_>]) -> Vec<Difference> {
    let differing = KINDS.iter().flat_map(|(kind, of)| {
        let values = values(groups, *of).into_iter();
        let values = values.filter(|(_, values)| values.iter().any(|value| *value != values[0]));
        values.map(|(key, values)| Difference { kind, key, values })
    });
    differing.collect()
}

/// What all variants have alike.
pub(crate) fn given(groups: &[Group<'_>]) -> Given {
    let alike = KINDS.iter().flat_map(|(kind, of)| {
        let values = values(groups, *of).into_iter();
        let values = values.filter(|(_, values)| values.iter().all(|value| *value == values[0]));
        values.map(|(key, mut values)| (*kind, key, values.swap_remove(0)))
    });
    let texts = inputs(groups).map(|inputs| inputs.experiment_text.clone());
    Given { values: alike.collect(), texts: distinct(texts) }
}

#[cfg(test)]
mod tests {
    use highorder_record::Record;

    use super::*;

    fn record(swappiness: &str, seed: u64) -> Record {
        let mut inputs = Inputs { seed, experiment: "usemem".into(), ..Inputs::default() };
        for (key, value) in [("vm.swappiness", swappiness), ("thp.enabled", "always")] {
            inputs.kernel.values.insert(key.into(), value.into());
        }
        inputs.workload.values.insert("threads".into(), (10 - seed).to_string());
        Record::new(inputs)
    }

    #[test]
    fn what_differs_is_told_apart_from_what_is_alike() {
        let records = [record("60", 1), record("60", 2), record("1", 1)];
        let groups = [
            Group { label: "a".into(), records: records[..2].iter().collect() },
            Group { label: "b".into(), records: records[2..].iter().collect() },
        ];
        assert_eq!(
            differences(&groups),
            [Difference {
                kind: "kernel",
                key: "vm.swappiness".into(),
                values: vec!["60".into(), "1".into()]
            }]
        );
        let given = given(&groups);
        assert_eq!(given.values, [("kernel", "thp.enabled".into(), "always".into())]);
        let facts = facts(&groups);
        let of = |name: &str| facts.iter().find(|fact| fact.name == name).map(|f| f.value.as_str());
        assert_eq!((of("Threads"), of("Seeds"), of("Machine")), (Some("8, 9"), Some("1, 2"), None));
    }

    #[test]
    fn numbers_in_a_row_are_written_as_a_range() {
        assert_eq!(ranges(vec![9, 3, 1, 2, 11, 12, 3]), "1–3, 9, 11, 12");
        assert_eq!(ranges(vec![u64::MAX, 0]), format!("0, {}", u64::MAX));
    }
}
