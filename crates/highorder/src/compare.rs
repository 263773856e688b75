//! `highorder compare`: records of a store, or of real machines, side by side.

use crate::complete;
use crate::failure::Failure;
use crate::output;
use crate::results::{Printing, Results, Variant};
use clap_complete::engine::ArgValueCompleter;
use highorder_lab::Experiment;
use highorder_lab::experiment::BUILT_IN;
use highorder_record::{Entry, Inputs, Record, Store, read_foreign, store};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Where `run` keeps its records and `compare` looks for them, if not told otherwise.
pub(crate) const DEFAULT_STORE: &str = "highorder-store";

/// What to compare.
#[derive(clap::Args)]
#[command(after_help = "\
Each of A, B ... is one of

  usemem-anon:swappiness-*  EXPERIMENT:VARIANT; * is any text, ? any character
  swappiness-10             a variant, of whatever experiment
  fe309f66                  the beginning of a record's identity, or its name
  DIRECTORY                 a record, a store, or a real machine's /proc

Such a folder of /proc has what was captured before/ and after/ a workload.

Records that differ only in threads, seed or repetition are one column. Columns stand in the order of \
these arguments, and those of one argument in the order of their experiment. The first is the base: \
changes are in percent of it, and positive where they are improvements.

Examples:
  highorder compare 'mmap-demo:*' --noise
  highorder compare usemem-anon:swappiness-60 usemem-anon:swappiness-10")]
pub(crate) struct Arguments {
    /// What to compare; the first is the base
    #[arg(value_name = "A B", required = true, add = ArgValueCompleter::new(complete::columns))]
    what: Vec<String>,
    /// The folder of records
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STORE)]
    store: PathBuf,
    #[command(flatten)]
    printing: Printing,
}

/// Finds, reads and compares.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let out = arguments.printing.destination()?;
    let mut groups = Vec::new();
    for what in &arguments.what {
        groups.extend(in_order(grouped(find(what, &arguments.store)?)));
    }
    let labels = labels(&groups.iter().map(|records| &records[0].inputs).collect::<Vec<_>>());
    let experiments: Vec<String> =
        groups.iter().map(|records| records[0].inputs.experiment.clone()).collect();
    let variants = labels.into_iter().zip(groups);
    let variants = variants.map(|(label, records)| Variant { label, records }).collect();
    let mut words = vec!["highorder".to_owned(), "compare".to_owned()];
    words.extend(arguments.what.iter().cloned());
    words.extend(store_words(&arguments.store));
    words.extend(arguments.printing.shown_words());
    let command = output::shell_command(words.iter().map(String::as_str));
    let experiment = experiment(experiments.iter().map(String::as_str));
    let published = experiment.as_ref().and_then(|experiment| experiment.published);
    let sweep = experiment.as_ref().and_then(|experiment| experiment.sweep.clone());
    let matrix = experiment.map_or(Vec::new(), |experiment| experiment.matrix);
    Results { variants, published, matrix, sweep, command }.show(
        &arguments.printing,
        out.as_ref(),
        [],
    )
}

/// The experiment that comes with the program, if all runs are of it: records do not say how they are to be
/// shown.
fn experiment<'a>(mut experiments: impl Iterator<Item = &'a str>) -> Option<Experiment> {
    let first = experiments.next()?;
    let is_built_in = BUILT_IN.iter().any(|(name, _)| *name == first);
    if !is_built_in || experiments.any(|other| other != first) {
        return None;
    }
    Experiment::load(first).ok()
}

/// The words that name a store, if it is not the default.
pub(crate) fn store_words(store: &Path) -> Vec<String> {
    match store == Path::new(DEFAULT_STORE) {
        true => Vec::new(),
        false => vec!["--store".to_owned(), store.display().to_string()],
    }
}

/// The records that an argument names: at least one.
pub(crate) fn find(what: &str, folder: &Path) -> Result<Vec<Record>, Failure> {
    let path = Path::new(what);
    if path.join("record.json").is_file() {
        return Ok(vec![store::read_record(path)?]);
    }
    if path.join("before").is_dir() {
        let foreign = read_foreign(path);
        return Ok(vec![foreign.map_err(|error| Failure::input(error.to_string()))?]);
    }
    if path.is_dir() {
        let store = Store::to_read(path);
        let records = read(&store, &store.list()?)?;
        return match records.is_empty() {
            true => Err(Failure::input(format!(
                "{what}: holds no record, expected a store, a record's folder, or a folder with \
                 before/ and after/"
            ))),
            false => Ok(records),
        };
    }
    if !folder.is_dir() {
        return Err(Failure::input(format!(
            "`{what}`: there is no such folder, and no store {}, expected one of them",
            folder.display()
        )));
    }
    let store = Store::to_read(folder);
    if let Some((experiment, variant)) = what.split_once(':') {
        return select(&store, what, |inputs| {
            fits(experiment, &inputs.experiment) && fits(variant, &inputs.kernel.name)
        });
    }
    let named = store.find(what)?;
    match named.is_empty() {
        true => select(&store, what, |inputs| fits(what, &inputs.kernel.name)),
        false => read(&store, &named),
    }
}

fn read(store: &Store, entries: &[Entry]) -> Result<Vec<Record>, Failure> {
    Ok(entries.iter().map(|entry| store.read(entry)).collect::<Result<_, _>>()?)
}

/// The store's records whose inputs are wanted.
fn select(
    store: &Store,
    what: &str,
    is_wanted: impl Fn(&Inputs) -> bool,
) -> Result<Vec<Record>, Failure> {
    let mut records = read(store, &store.list()?)?;
    let there: BTreeSet<String> = records
        .iter()
        .map(|record| format!("{}:{}", record.inputs.experiment, record.inputs.kernel.name))
        .collect();
    records.retain(|record| is_wanted(&record.inputs));
    if records.is_empty() {
        return Err(Failure::input(format!(
            "`{what}` names nothing in the store {}; {}",
            store.folder().display(),
            what_is_there(what, &there)
        )));
    }
    Ok(records)
}

/// What a store has in place of what was asked for.
fn what_is_there(what: &str, there: &BTreeSet<String>) -> String {
    if there.is_empty() {
        return "it is empty".to_owned();
    }
    let whole: Vec<&str> = there.iter().map(String::as_str).collect();
    // A variant may be named without its experiment.
    let variants: BTreeSet<&str> =
        whole.iter().filter_map(|name| Some(name.split_once(':')?.1)).collect();
    let variants: Vec<&str> = variants.into_iter().collect();
    let known = if what.contains(':') { &whole } else { &variants };
    highorder_input::did_you_mean(what, known)
        .unwrap_or_else(|| format!("there are {}", whole.join(", ")))
}

/// Whether a text fits a pattern in which `*` stands for any text and `?` for any character.
fn fits(pattern: &str, text: &str) -> bool {
    let mut rest = text.chars();
    match pattern.chars().next() {
        None => text.is_empty(),
        Some('*') => {
            let behind = &pattern[1..];
            let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            ends.into_iter().any(|at| fits(behind, &text[at..]))
        }
        Some(wanted) => {
            let found = rest.next();
            found.is_some_and(|found| wanted == '?' || wanted == found)
                && fits(&pattern[wanted.len_utf8()..], rest.as_str())
        }
    }
}

/// Puts records together that differ only in threads, seed or repetition; in order of threads, then
/// seeds.
fn grouped(records: Vec<Record>) -> Vec<Vec<Record>> {
    let mut groups: Vec<(Inputs, Vec<Record>)> = Vec::new();
    for record in records {
        let variant = variant_of(&record.inputs);
        match groups.iter_mut().find(|(known, _)| *known == variant) {
            Some((_, records)) => records.push(record),
            None => groups.push((variant, vec![record])),
        }
    }
    let mut groups: Vec<Vec<Record>> = groups.into_iter().map(|(_, records)| records).collect();
    for records in &mut groups {
        records.sort_by_key(|record| {
            let Inputs { workload, seed, iteration, .. } = &record.inputs;
            let threads = workload.values.get("threads").and_then(|text| text.parse::<u64>().ok());
            (threads, *seed, *iteration)
        });
    }
    groups
}

/// Puts what one argument names into the order of its experiments, so that the base of a comparison is that of the
/// run: as records say it, or of old records the experiment that comes with the program. What neither knows stays
/// where it is, behind what is known.
fn in_order(mut groups: Vec<Vec<Record>>) -> Vec<Vec<Record>> {
    let mut experiments: Vec<(String, Vec<String>)> = Vec::new();
    for records in &groups {
        let name = &records[0].inputs.experiment;
        if !experiments.iter().any(|(known, _)| known == name) {
            let known = experiment([name.as_str()].into_iter());
            let variants = known.map_or(Vec::new(), |experiment| experiment.variants);
            let variants = variants.into_iter().map(|variant| variant.name).collect();
            experiments.push((name.clone(), variants));
        }
    }
    // Sorting is stable.
    groups.sort_by_cached_key(|records| {
        let Inputs { experiment, kernel, source, .. } = &records[0].inputs;
        let at = experiments.iter().position(|(name, _)| name == experiment);
        let built_in = at.map_or(&[][..], |at| &experiments[at].1);
        let place = |name: &String| built_in.iter().position(|variant| variant == name);
        let written = records.iter().filter_map(|record| record.column).min();
        let column = written.map(|column| column as usize).or_else(|| place(&kernel.name));
        // What was made by one command has columns of its own; beside what was made by another, the model first.
        (at, column.unwrap_or(usize::MAX), *source as u8)
    });
    groups
}

/// What the runs of one variant have in common.
fn variant_of(inputs: &Inputs) -> Inputs {
    let mut variant = Inputs { seed: 0, iteration: 0, ..inputs.clone() };
    // Of what was captured elsewhere, the hash tells repetitions apart.
    ["threads", "captured"].iter().for_each(|key| drop(variant.workload.values.remove(*key)));
    variant
}

/// Headings that tell the columns apart: the variant's name, with as much more as that takes.
fn labels(columns: &[&Inputs]) -> Vec<String> {
    type Part = fn(&Inputs) -> String;
    let parts: [Part; 4] = [
        full_name,
        |inputs| format!("{} {}", full_name(inputs), inputs.scale),
        |inputs| {
            let (machine, version) = (&inputs.machine.name, &inputs.program_version);
            format!("{} {} {machine} {version}", full_name(inputs), inputs.scale)
        },
        |inputs| inputs.identity().to_string()[..8].to_owned(),
    ];
    let mut labels: Vec<String> = columns.iter().map(|inputs| inputs.kernel.name.clone()).collect();
    for part in parts {
        let is_clear = |label: &String| {
            !label.is_empty() && labels.iter().filter(|other| *other == label).count() == 1
        };
        if labels.iter().all(is_clear) {
            break;
        }
        labels = columns.iter().map(|inputs| part(inputs)).collect();
    }
    labels
}

/// The experiment and the variant; of what was captured without notes, as a history is, there is the folder's name alone.
fn full_name(inputs: &Inputs) -> String {
    match (inputs.experiment.as_str(), inputs.kernel.name.as_str()) {
        ("", "") => "unnamed".to_owned(),
        (experiment, "") => experiment.to_owned(),
        (experiment, kernel) => format!("{experiment}:{kernel}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(experiment: &str, variant: &str, threads: &str, seed: u64) -> Inputs {
        let mut inputs = Inputs { experiment: experiment.into(), seed, ..Inputs::default() };
        inputs.kernel.name = variant.into();
        inputs.workload.values.insert("threads".into(), threads.into());
        inputs
    }

    #[test]
    fn patterns_fit_as_a_shell_has_them() {
        for (pattern, text) in
            [("", ""), ("*", ""), ("*", "abc"), ("a*c", "abbc"), ("a?c", "abc"), ("*b*", "abc")]
        {
            assert!(fits(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("", "a"), ("a", ""), ("a?", "a"), ("a*c", "ab"), ("?", "")] {
            assert!(!fits(pattern, text), "{pattern} {text}");
        }
        assert!(fits("?ber", "über") && fits("*ß", "groß"));
    }

    #[test]
    fn runs_that_differ_in_threads_and_seeds_are_one_column() {
        let all = [("a", "10", 1), ("b", "1", 1), ("a", "9", 2), ("a", "9", 1)];
        let records = all.map(|(v, threads, seed)| Record::new(inputs("x", v, threads, seed)));
        let groups = grouped(records.into());
        let told = |records: &Vec<Record>| -> Vec<String> {
            records.iter().map(|record| record.inputs.readable_name()).collect()
        };
        let expected = [
            vec!["x.a.threads-9.seed-1", "x.a.threads-9.seed-2", "x.a.threads-10.seed-1"],
            vec!["x.b.threads-1.seed-1"],
        ];
        assert_eq!(groups.iter().map(told).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn columns_of_one_argument_stand_as_in_their_experiment() {
        let record = |experiment: &str, variant: &str, column| Record {
            column,
            ..Record::new(inputs(experiment, variant, "1", 1))
        };
        let ordered = |records: Vec<Record>| -> Vec<String> {
            let groups = in_order(grouped(records));
            groups.iter().map(|records| records[0].inputs.kernel.name.clone()).collect()
        };
        // As records say it, whatever they are called.
        let written = vec![record("x", "a", Some(1)), record("x", "b", Some(0))];
        assert_eq!(ordered(written), ["b", "a"]);
        // Of old records of an experiment that comes with the program, as that has them.
        let variants = Experiment::load("thp-numa-policies").expect("it comes along").variants;
        let names: Vec<String> = variants.into_iter().map(|variant| variant.name).collect();
        let mut by_name = names.clone();
        by_name.sort();
        assert_ne!(by_name, names, "else this shows nothing");
        let old = by_name.iter().map(|name| record("thp-numa-policies", name, None)).collect();
        assert_eq!(ordered(old), names);
        // Of others as they came, behind what is known.
        let some = vec![record("x", "b", None), record("x", "a", None), record("x", "c", Some(7))];
        assert_eq!(ordered(some), ["c", "b", "a"]);
    }

    #[test]
    fn headings_say_no_more_than_it_takes_to_tell_columns_apart() {
        let (a, b, c) =
            (inputs("x", "a", "1", 1), inputs("x", "b", "1", 1), inputs("y", "a", "1", 1));
        assert_eq!(labels(&[&a, &b]), ["a", "b"]);
        assert_eq!(labels(&[&a, &c]), ["x:a", "y:a"]);
        let mut small = a.clone();
        small.scale.denominator = 16;
        assert_eq!(labels(&[&a, &small]), ["x:a 1", "x:a 1/16"]);
        // A history has the name of its folder alone.
        let (history, next) = (inputs("hist", "", "1", 1), inputs("next", "", "1", 1));
        assert_eq!(labels(&[&history]), ["hist"]);
        assert_eq!(labels(&[&history, &next]), ["hist", "next"]);
        assert_eq!(labels(&[&a, &history]), ["x:a", "hist"]);
        let other = inputs("x", "a", "2", 1);
        let found = labels(&[&a, &other]);
        assert_eq!(found, [&a, &other].map(|i| i.identity().to_string()[..8].to_owned()));
    }
}
