//! An experiment: what it compares, how it is run, and about how long that takes.

use super::{Shown, begun};
use crate::failure::Failure;
use crate::output::shell_command;
use highorder_lab::catalogue::Kind;
use highorder_lab::times::{self, Time};
use highorder_lab::{Experiment, Scale, Variant};
use highorder_workload::describe;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

/// The scale that is tried first where nobody has measured anything.
const SMALL: &str = "1/16";

/// All that there is to say of an experiment.
pub(super) fn shown(name: &str) -> Result<Shown, Failure> {
    let experiment = Experiment::load(name)?;
    let is_built_in = name == experiment.name;
    let mut sheet = begun(Kind::Experiment, &experiment.name, &experiment.description);
    let machines = each_once(&experiment, |variant| variant.machine.name.clone());
    let workloads = each_once(&experiment, |variant| variant.workload.name().to_owned());
    let nr_runs = experiment.plan(Scale::FULL)?.runs.len();
    let threads: Vec<String> =
        experiment.threads.iter().flatten().map(ToString::to_string).collect();
    let factors = [
        (experiment.variants.len(), "variant"),
        (experiment.threads.len(), "step of threads"),
        (experiment.seeds.len(), "seed"),
    ];
    let several: Vec<String> =
        factors.into_iter().filter(|(nr, _)| *nr > 1).map(|(nr, what)| counted(nr, what)).collect();
    let runs = match several.is_empty() {
        true => nr_runs.to_string(),
        false => format!("{nr_runs}: {}", several.join(" x ")),
    };
    let mut rows = vec![
        ("machine", machines.join(", ")),
        ("workload", workloads.join(", ")),
        (
            "threads",
            if threads.is_empty() {
                "the workload's own number".to_owned()
            } else {
                threads.join(", ")
            },
        ),
        ("runs", runs),
    ];
    rows.extend(
        experiment.published.map(|form| ("published", format!("it repeats the tables {form}"))),
    );
    sheet.line("");
    sheet.fields("", &rows);
    let common = common_values(&experiment);
    sheet.heading("Parameters that all variants share");
    sheet.paragraph("  ", &listed(&common));
    let knobs = common_knobs(&experiment);
    if !knobs.is_empty() {
        sheet.heading("Knobs that all variants share");
        sheet.paragraph("  ", &listed(&knobs));
    }
    sheet.heading("Variants, the first being the base");
    let rows: Vec<(&str, String)> = experiment
        .variants
        .iter()
        .map(|variant| (variant.name.as_str(), differing(variant, &experiment, &common, &knobs)))
        .collect();
    sheet.fields("  ", &rows);
    sheet.heading("To run it");
    let commands = commands(name, &experiment.name, is_built_in);
    let rows: Vec<(&str, String)> =
        commands.iter().map(|command| (command.words.as_str(), command.duration())).collect();
    sheet.fields("  ", &rows);
    sheet.paragraph("  ", note(&commands));
    let json = json!({
        "kind": "experiment",
        "name": experiment.name,
        "about": experiment.description,
        "machines": machines,
        "workloads": workloads,
        "threads": experiment.threads,
        "seeds": experiment.seeds,
        "nr_runs": nr_runs,
        "published": experiment.published,
        "parameters": common,
        "variants": experiment.variants.iter().map(variant_json).collect::<Vec<_>>(),
        "commands": commands.iter().map(Command::json).collect::<Vec<_>>(),
    });
    Ok(Shown { sheet, json })
}

/// A way to run it.
struct Command {
    words: String,
    scale: String,
    time: Option<&'static Time>,
}

impl Command {
    fn duration(&self) -> String {
        match self.time {
            Some(time) => format!("about {}", in_words(time.cpu_seconds)),
            None => "not measured".to_owned(),
        }
    }

    fn json(&self) -> Json {
        json!({
            "command": self.words,
            "scale": self.scale,
            "cpu_seconds": self.time.map(|time| time.cpu_seconds),
        })
    }
}

/// The command lines: small ones first.
fn commands(given: &str, name: &str, is_built_in: bool) -> Vec<Command> {
    let times = times::times().iter();
    let times: Vec<&Time> = times.filter(|time| is_built_in && time.experiment == name).collect();
    let command = |scale: &str| {
        let scaled = ["--scale", scale];
        let words = ["highorder", "run", given].into_iter();
        let words = words.chain(scaled.into_iter().filter(|_| scale != "1"));
        Command {
            words: shell_command(words),
            scale: scale.to_owned(),
            time: times.iter().copied().find(|time| time.scale == scale),
        }
    };
    let small = times.iter().map(|time| time.scale).find(|scale| *scale != "1");
    vec![command(small.unwrap_or(SMALL)), command("1")]
}

fn note(commands: &[Command]) -> &'static str {
    match commands.iter().any(|command| command.time.is_some()) {
        true => times::NOTE,
        false => "While it runs, the bar says how long is left.",
    }
}

/// A duration as people say it: two digits at most.
fn in_words(seconds: u32) -> String {
    match seconds {
        0..=1 => "a second".to_owned(),
        2..=99 => format!("{seconds} seconds"),
        100..=5999 => format!("{} minutes", (seconds + 30) / 60),
        _ => format!("{} hours", (seconds + 1800) / 3600),
    }
}

fn each_once(experiment: &Experiment, of: impl Fn(&Variant) -> String) -> Vec<String> {
    let mut found = Vec::new();
    for value in experiment.variants.iter().map(of) {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// The workload's parameters that are the same in all variants.
fn common_values(experiment: &Experiment) -> BTreeMap<String, String> {
    let mut variants = experiment.variants.iter().map(|variant| variant.workload.values());
    let mut common = variants.next().unwrap_or_default();
    for values in variants {
        common.retain(|key, value| values.get(key) == Some(value));
    }
    // Steps of threads set it.
    if experiment.threads.iter().any(Option::is_some) {
        common.remove("threads");
    }
    common
}

/// The knobs that all variants set alike.
fn common_knobs(experiment: &Experiment) -> BTreeMap<String, String> {
    let mut common = experiment.variants[0].knobs.clone();
    for variant in &experiment.variants {
        common.retain(|knob, value| variant.knobs.get(knob) == Some(value));
    }
    common
}

/// What a variant is, but for what all share.
fn differing(
    variant: &Variant,
    experiment: &Experiment,
    common: &BTreeMap<String, String>,
    knobs: &BTreeMap<String, String>,
) -> String {
    let all = &experiment.variants;
    let mut parts = vec![variant.kernel.name.clone()];
    let mut add = |text: fn(&Variant) -> String| {
        if all.iter().any(|other| text(other) != text(&all[0])) {
            parts.push(text(variant));
        }
    };
    add(|variant| variant.machine.name.clone());
    add(|variant| {
        let bytes: u64 = variant.machine.swap.iter().map(|area| area.bytes).sum();
        format!("{} MiB of swap", bytes >> 20)
    });
    add(|variant| variant.workload.name().to_owned());
    let own: BTreeMap<String, String> = variant
        .workload
        .values()
        .into_iter()
        .filter(|(key, value)| !common.contains_key(key) && is_told(variant, key, value, all))
        .collect();
    if !own.is_empty() {
        parts.push(listed(&own));
    }
    let knobs = variant.knobs.iter().filter(|(knob, _)| !knobs.contains_key(*knob));
    parts.extend(knobs.map(|(knob, value)| format!("{knob} = {value}")));
    parts.join("; ")
}

/// Whether a parameter of a variant is worth telling: it is not what the workload has by default, or another variant
/// with this workload has another value.
fn is_told(variant: &Variant, key: &str, value: &str, all: &[Variant]) -> bool {
    if key == "threads" && all.iter().all(|variant| variant.workload.wants_threads()) {
        return false;
    }
    let workload = describe(variant.workload.name());
    let default = workload.and_then(|workload| {
        let parameter = workload.parameters.into_iter().find(|parameter| parameter.name == key);
        parameter.map(|parameter| parameter.default.trim_matches('"').to_owned())
    });
    let mut alike = all.iter().filter(|other| other.workload.name() == variant.workload.name());
    default.as_deref() != Some(value)
        || alike.any(|other| other.workload.values().get(key).is_none_or(|other| other != value))
}

fn listed(values: &BTreeMap<String, String>) -> String {
    let values: Vec<String> =
        values.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    if values.is_empty() { "none".to_owned() } else { values.join(", ") }
}

fn counted(nr: usize, what: &str) -> String {
    match (nr, what.split_once(' ')) {
        (1, _) => format!("1 {what}"),
        (_, Some((first, rest))) => format!("{nr} {first}s {rest}"),
        (_, None) => format!("{nr} {what}s"),
    }
}

fn variant_json(variant: &Variant) -> Json {
    json!({
        "name": variant.name,
        "kernel": variant.kernel.name,
        "machine": variant.machine.name,
        "workload": variant.workload.name(),
        "parameters": variant.workload.values(),
        "knobs": variant.knobs,
        "published": variant.published,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_told_roughly() {
        let said = [0, 1, 59, 100, 600, 6000, 20_000].map(in_words);
        assert_eq!(
            said,
            ["a second", "a second", "59 seconds", "2 minutes", "10 minutes", "2 hours", "6 hours"]
        );
    }
}
