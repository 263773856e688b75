//! What a comparison says, in a few plain sentences: who was killed or ended early, what is better and what is worse by more
//! than noise, which variants did not differ, what was not measured.
//!
//! What is asked of noise here are *repeats*: runs of other seeds or repetitions. A run on the model takes
//! thousands of samples that are no repeats of each other, and tables test them all the same; a sentence that
//! people act on does not. With too few repeats it says so, and what would decide.
//!
//! Runs in which a process was killed, or whose workload ended early, did less work than the others, so nothing is
//! concluded from them.

use std::collections::{BTreeMap, BTreeSet};

use highorder_tables::text::{count, counted};
use serde::Serialize;

use crate::compare::{Comparison, Group, names, row_of_totals, threads_of};
use crate::end_state::{self, EndState, Reading};
use crate::ended::ended_early;
use crate::identical::{Identical, identical};
use crate::killed::{KILLED_MARK, OOM_KILL, counts_killed, killed_process, nr_killed};
use crate::latencies::Latencies;
use crate::matrix::{self, BETWEEN_PARTS, FIGURES, STALLS};
use crate::noise::{self, ALPHA, Verdict};
use crate::record::{Record, Source};
use crate::stats::{Better, Sorted, Statistic};
use crate::vmstat_rows::{Form, vmstat_rows};

/// Lines at most, so that it is read. Our choice, as are the others of this kind here.
const LINES_MAX: usize = 12;
/// Lines that are kept for what is told beside the differences.
const LINES_KEPT: usize = 4;
/// Variants that are told pair by pair, the base among them; of more, the best and the worst.
const PAIRS_MAX: usize = 4;
/// Names in a list, before it says how many more there are.
const NAMES_MAX: usize = 3;
/// Where repeats are too few, what differs by less than this share of itself is not worth a line.
const WORTH_A_LINE: f64 = 0.05;
/// How strong a change from or to 0 counts: as one to so many times.
const FROM_ZERO_TIMES: f64 = 20.0;
/// Columns of the matrix that say whether a machine stalls, and what for: its stall time, its huge pages, and the
/// latencies that nearly all stay under.
const MATRIX_FIGURES: [(&str, &str, &str); 3] = [
    ("latency_us_p99", "99 % of latencies below", "us"),
    ("stall_time_s", "time in stalls", "s"),
    ("huge_percent", "memory in huge pages", "%"),
];

/// What a comparison says.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Findings {
    /// The variant that the others are compared with; none if there is but one.
    pub base: Option<String>,
    /// Variants in whose runs processes were killed.
    pub killed: Vec<Killed>,
    /// Variants whose workload ended early in some of their runs.
    pub ended_early: Vec<EndedEarly>,
    /// Each of the other variants beside the base; empty if there are too many for that.
    pub compared: Vec<Compared>,
    /// The best and the worst variant of each of the quantities that matter most, where there are many.
    pub extremes: Vec<Extremes>,
    /// Variants whose results are the same throughout, and what was different all the same.
    pub identical: Vec<Identical>,
    /// Variants that lack what others have.
    pub not_measured: Vec<NotMeasured>,
    /// All of it as sentences.
    pub text: Vec<Paragraph>,
}

/// A variant in whose runs processes were killed for want of memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Killed {
    /// The variant.
    pub variant: String,
    /// Who, as far as it is known; else the workload.
    pub processes: Vec<String>,
    /// At which numbers of threads.
    pub steps: Vec<KilledStep>,
    /// Of its runs.
    pub nr_runs: usize,
    /// In so many of them.
    pub nr_killed_runs: usize,
}

/// The runs of one number of threads in which processes were killed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KilledStep {
    /// The threads; none if the workload has no such number.
    pub threads: Option<u64>,
    /// How many of its runs.
    pub nr_killed_runs: usize,
    /// Seconds from the beginning in which the first was killed, as far as the timeline says.
    pub within_s: Option<f64>,
}

/// A variant whose workload could not go on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EndedEarly {
    /// The variant.
    pub variant: String,
    /// Why, for each reason once.
    pub reasons: Vec<String>,
    /// Of its runs.
    pub nr_runs: usize,
    /// In so many of them.
    pub nr_ended_runs: usize,
}

/// A variant beside the base.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The variant.
    pub variant: String,
    /// Repeats of the base, and of the variant: of those in which nobody was killed.
    pub nr_repeats: [usize; 2],
    /// Rows that are better by more than noise.
    pub nr_better: usize,
    /// Rows that are worse by more than noise.
    pub nr_worse: usize,
    /// Rows that may differ by noise alone.
    pub nr_within_noise: usize,
    /// Rows that are equal.
    pub nr_equal: usize,
    /// Rows that differ, with too few repeats to tell.
    pub nr_too_few: usize,
    /// Of these, the better ones.
    pub nr_perhaps_better: usize,
    /// The worse ones.
    pub nr_perhaps_worse: usize,
    /// The rows that differ, those first that are told before others.
    pub differences: Vec<Difference>,
}

/// A row in which a variant differs from the base.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The row.
    pub row: String,
    /// Of what.
    pub unit: String,
    /// The base's value.
    pub base: f64,
    /// The variant's.
    pub value: f64,
    /// Whether that is better.
    pub is_better: bool,
    /// What that is known by.
    pub known: Known,
    /// The rank test's p over repeats.
    pub p: Option<f64>,
}

/// By what a difference is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Known {
    /// Repeats differ by more than noise.
    MoreThanNoise,
    /// The samples of these runs do, and there are too few repeats.
    InTheseRuns,
    /// Nothing but the values: there are too few repeats.
    TooFewRepeats,
}

/// The best and the worst variant by one quantity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Extremes {
    /// What the variants have in common that were compared, such as their workload; empty for nothing.
    pub among: String,
    /// The row.
    pub row: String,
    /// Of what.
    pub unit: String,
    /// The best variant, and how many are as good.
    pub best: (String, f64, usize),
    /// The worst variant, and how many are as bad.
    pub worst: (String, f64, usize),
    /// Whether these two differ by more than noise; none with too few repeats.
    pub is_more_than_noise: Option<bool>,
}

/// What a variant lacks that another one of the same workload has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NotMeasured {
    /// The variant.
    pub variant: String,
    /// The rows.
    pub rows: Vec<String>,
    /// Whether its runs lack them because processes were killed.
    pub was_killed: bool,
}

/// A sentence, and what is listed below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Paragraph {
    /// The sentence.
    pub text: String,
    /// The list.
    pub items: Vec<String>,
}

impl Paragraph {
    /// Sentences without a list.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), items: Vec::new() }
    }
}

impl Findings {
    /// The sentences as lines of text, the lists indented.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let lines = self.text.iter().flat_map(|paragraph| {
            let items = paragraph.items.iter().map(|item| format!("  {item}"));
            std::iter::once(paragraph.text.clone()).chain(items)
        });
        lines.collect()
    }
}

/// What the groups say beside each other. `is_matrix` says that their names have parts, of which the first is what
/// may be compared: [`matrix`] has a row for each.
#[must_use]
pub fn find(groups: &[Group<'_>], is_matrix: bool) -> Findings {
    let sound: Vec<Sound<'_>> = groups.iter().map(Sound::new).collect();
    let quantities = quantities(&sound);
    let killed: Vec<Killed> = groups.iter().filter_map(killed).collect();
    let mut findings = Findings {
        base: groups.first().filter(|_| groups.len() > 1).map(|group| group.label.clone()),
        identical: identical(groups),
        not_measured: not_measured(groups),
        killed,
        ended_early: groups.iter().filter_map(ended).collect(),
        ..Findings::default()
    };
    if is_matrix {
        findings.extremes = matrix_extremes(&sound);
    } else if groups.len() > PAIRS_MAX {
        findings.extremes = extremes(&sound, &quantities);
    } else {
        let others = 1..groups.len();
        findings.compared = others.map(|i| compared(&sound, &quantities, i)).collect();
    }
    findings.text = text(&findings, &sound, &quantities);
    findings
}

// The runs.

/// A group's runs in which nobody was killed, and whose workload came to its end.
struct Sound<'a> {
    label: &'a str,
    /// By repeat.
    repeats: Vec<Vec<&'a Record>>,
    /// What would repeat them.
    source: Source,
}

impl<'a> Sound<'a> {
    fn new(group: &'a Group<'a>) -> Self {
        let mut repeats: BTreeMap<(u64, u32, Option<&str>), Vec<&Record>> = BTreeMap::new();
        let is_sound = |record: &&&Record| nr_killed(record) == 0 && ended_early(record).is_none();
        let sound = group.records.iter().filter(is_sound);
        for record in sound {
            let inputs = &record.inputs;
            // Of what was captured elsewhere no seed is known.
            let captured = inputs.workload.values.get("captured").map(String::as_str);
            repeats.entry((inputs.seed, inputs.iteration, captured)).or_default().push(record);
        }
        Self {
            label: &group.label,
            repeats: repeats.into_values().collect(),
            source: group.records.first().map_or(Source::Model, |record| record.inputs.source),
        }
    }

    fn nr_runs(&self) -> usize {
        self.repeats.iter().map(Vec::len).sum()
    }

    fn as_group(&self) -> Group<'a> {
        let records = self.repeats.iter().flatten().copied().collect();
        Group { label: self.label.to_owned(), records }
    }
}

fn threads(record: &Record) -> Option<u64> {
    record.inputs.workload.values.get("threads")?.parse().ok()
}

fn killed(group: &Group<'_>) -> Option<Killed> {
    let runs: Vec<&Record> =
        group.records.iter().copied().filter(|record| nr_killed(record) > 0).collect();
    let first = runs.first()?;
    let notes = runs.iter().flat_map(|record| &record.notes);
    let mut processes: Vec<String> = Vec::new();
    for process in notes.filter_map(|note| killed_process(note)) {
        if !processes.iter().any(|known| known == process) {
            processes.push(process.to_owned());
        }
    }
    if processes.is_empty() {
        let name = first.inputs.workload.name.as_str();
        processes.push(if name.is_empty() { "a process" } else { name }.to_owned());
    }
    let mut steps: Vec<KilledStep> = Vec::new();
    let counts: BTreeSet<Option<u64>> = runs.iter().map(|record| threads(record)).collect();
    for count in counts {
        let of_step: Vec<&&Record> = runs.iter().filter(|run| threads(run) == count).collect();
        let times = of_step.iter().filter_map(|record| first_killed_s(record));
        steps.push(KilledStep {
            threads: count,
            nr_killed_runs: of_step.len(),
            within_s: times.reduce(f64::min),
        });
    }
    Some(Killed {
        variant: group.label.clone(),
        processes,
        steps,
        nr_runs: group.records.len(),
        nr_killed_runs: runs.len(),
    })
}

fn ended(group: &Group<'_>) -> Option<EndedEarly> {
    // Of those who were killed this is told already.
    let runs = group.records.iter().filter(|record| nr_killed(record) == 0);
    let why: Vec<&str> = runs.filter_map(|record| ended_early(record)).collect();
    let reasons: BTreeSet<&str> = why.iter().copied().collect();
    (!why.is_empty()).then(|| EndedEarly {
        variant: group.label.clone(),
        reasons: reasons.into_iter().map(str::to_owned).collect(),
        nr_runs: group.records.len(),
        nr_ended_runs: why.len(),
    })
}

/// When the timeline first shows that a process was killed, in seconds.
fn first_killed_s(record: &Record) -> Option<f64> {
    let timeline = &record.timeline;
    let before = record.before.counters.get(OOM_KILL).copied().unwrap_or(0) as f64;
    let is_later = |at: &usize| timeline.get(OOM_KILL, *at).is_some_and(|kills| kills > before);
    let at = (0..timeline.len()).find(is_later)?;
    Some(timeline.time_ns[at] as f64 / 1e9)
}

fn not_measured(groups: &[Group<'_>]) -> Vec<NotMeasured> {
    let workload =
        |group: &Group<'_>| group.records.first().map(|r| r.inputs.workload.name.clone());
    let has = |group: &Group<'_>, name: &str| {
        let metrics = group.records.iter().filter_map(|record| record.metric(name));
        metrics.into_iter().any(|metric| !metric.samples.is_empty())
    };
    let all = names(groups);
    let of_group = |group: &Group<'_>| {
        let like: Vec<&Group<'_>> =
            groups.iter().filter(|other| workload(other) == workload(group)).collect();
        let is_missing = |name: &str| {
            !counts_killed(name) && !has(group, name) && like.iter().any(|other| has(other, name))
        };
        let rows = all.iter().map(|metric| metric.name.clone());
        let rows: Vec<String> = rows.filter(|name| is_missing(name)).collect();
        (!rows.is_empty()).then(|| NotMeasured {
            variant: group.label.clone(),
            rows,
            was_killed: group.records.iter().any(|record| nr_killed(record) > 0),
        })
    };
    groups.iter().filter_map(of_group).collect()
}

// The rows.

/// What kind of row it is: results come before what the kernel did for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// What the workload measured.
    Result,
    /// What the kernel counted, and how long it kept tasks.
    Kernel,
}

/// A row that is compared, over the sound runs alone.
struct Quantity {
    name: String,
    unit: String,
    better: Better,
    kind: Kind,
    groups: Vec<Values>,
}

/// A row's values in one group.
#[derive(Default)]
struct Values {
    /// As tables show it, where they do.
    shown: Option<f64>,
    /// For each repeat.
    repeats: Vec<f64>,
    /// The samples of all runs together, where the row has such.
    samples: Sorted,
    /// Whether the value is a sum over so many runs.
    sum_of: Option<usize>,
}

/// The rows in which something is better or worse.
fn quantities(sound: &[Sound<'_>]) -> Vec<Quantity> {
    let mut all = metrics(sound);
    all.extend(stalls(sound));
    all.extend(counters(sound));
    all.extend(end_states(sound));
    all
}

/// What metrics begin with that the model reports of the kernel, for any workload.
const KERNEL_METRICS: [&str; 2] = ["Fragmentation events", "Compact "];

/// What the metrics begin with whose 0 says that there was no fault of the kind: thpscale's reports have it, and it
/// is no time that anything took.
const FAULTS: [&str; 2] = ["fault-base", "fault-huge"];

fn metrics(sound: &[Sound<'_>]) -> Vec<Quantity> {
    let groups: Vec<Group<'_>> = sound.iter().map(Sound::as_group).collect();
    let mut all = Vec::new();
    for like in names(&groups) {
        if like.better == Better::Neutral || counts_killed(&like.name) {
            continue;
        }
        let is_kernels = KERNEL_METRICS.iter().any(|begins| like.name.starts_with(begins));
        // What is a part of a row that is there.
        if is_kernels && like.name.starts_with("Fragmentation events ") {
            continue;
        }
        let is_fault = FAULTS.iter().any(|begins| like.name.starts_with(begins));
        let mean = match like.statistics.contains(&Statistic::Hmean) {
            true => Statistic::Hmean,
            false => Statistic::Amean,
        };
        let tail = Statistic::MaxPercent(99);
        let tail = like.statistics.contains(&tail).then_some(tail);
        for statistic in std::iter::once(mean).chain(tail) {
            let samples = |runs: &mut dyn Iterator<Item = &&Record>| -> Sorted {
                let metrics = runs.filter_map(|record| record.metric(&like.name));
                let samples = metrics.flat_map(|metric| metric.samples.iter().copied());
                samples.filter(|sample| !(is_fault && *sample == 0.0)).collect()
            };
            let values = |group: &Sound<'_>| {
                let pooled = samples(&mut group.repeats.iter().flatten());
                let repeats = group.repeats.iter().map(|runs| samples(&mut runs.iter()));
                Values {
                    shown: statistic.of(&pooled),
                    repeats: repeats.filter_map(|samples| statistic.of(&samples)).collect(),
                    // The tail of many samples is one value.
                    samples: if statistic == mean { pooled } else { Sorted::default() },
                    sum_of: None,
                }
            };
            all.push(Quantity {
                name: match statistic == mean {
                    true => like.name.clone(),
                    false => format!("{} {statistic}", like.name),
                },
                unit: like.unit.clone(),
                better: statistic.better(like.better),
                kind: if is_kernels { Kind::Kernel } else { Kind::Result },
                groups: sound.iter().map(values).collect(),
            });
        }
    }
    all
}

/// What is told of stalls: the row, its unit, digits after the point where it is a table's, and how it is read off.
type StallRow = (&'static str, &'static str, u8, fn(&Latencies) -> f64);

/// How long requests for memory were kept, which the model alone tells.
const STALL_ROWS: [StallRow; 2] = [
    ("time in stalls", "s", 6, |stalls| stalls.sum_ns() as f64 / 1e9),
    ("longest stall", "ms", 3, |stalls| stalls.max_ns().unwrap_or(0) as f64 / 1e6),
];

/// The stalls of runs together.
fn stalls_of(runs: &[&Record]) -> Latencies {
    let mut pooled = Latencies::new();
    let classes = runs
        .iter()
        .flat_map(|record| STALLS.iter().filter_map(|class| record.latencies.get(*class)));
    classes.for_each(|latencies| pooled.merge(latencies));
    pooled
}

/// What is told of stalls as a table like those of [`compare`](crate::compare), over all of each group's runs; rows that
/// no group can tell are left out.
#[must_use]
pub fn stall_table(title: &str, groups: &[Group<'_>]) -> Comparison {
    let mut table = Comparison::new(title, groups, false);
    for (name, unit, decimals, reading) in STALL_ROWS {
        let of_group = |group: &Group<'_>| {
            let is_known = !group.records.is_empty()
                && group.records.iter().all(|record| record.inputs.source == Source::Model);
            is_known.then(|| reading(&stalls_of(&group.records)))
        };
        let values: Vec<Option<f64>> = groups.iter().map(of_group).collect();
        if values.iter().any(Option::is_some) {
            table.rows.push(row_of_totals(name, unit, Better::Lower, decimals, values, groups));
        }
    }
    table
}

fn stalls(sound: &[Sound<'_>]) -> Vec<Quantity> {
    let row = |(name, unit, _, reading): StallRow| {
        let values = |group: &Sound<'_>| {
            if group.source != Source::Model || group.repeats.is_empty() {
                return Values::default();
            }
            let all: Vec<&Record> = group.repeats.iter().flatten().copied().collect();
            Values {
                shown: Some(reading(&stalls_of(&all))),
                repeats: group.repeats.iter().map(|runs| reading(&stalls_of(runs))).collect(),
                samples: Sorted::default(),
                sum_of: Some(group.nr_runs()),
            }
        };
        Quantity {
            name: name.to_owned(),
            unit: unit.to_owned(),
            better: Better::Lower,
            kind: Kind::Kernel,
            groups: sound.iter().map(values).collect(),
        }
    };
    STALL_ROWS.map(row).into()
}

/// What the kernel counted, summed over runs.
fn counters(sound: &[Sound<'_>]) -> Vec<Quantity> {
    let rows_of = |runs: &[&Record]| {
        let delta = |name: &str| {
            let rises: Option<Vec<i64>> = runs.iter().map(|record| record.delta(name)).collect();
            rises.map(|rises| rises.iter().sum())
        };
        vmstat_rows(&delta, None, Form::default())
    };
    // Of groups without runs nothing is known; then the rows serve as names.
    let all: Vec<Vec<_>> = sound
        .iter()
        .map(|group| rows_of(&group.repeats.iter().flatten().copied().collect::<Vec<_>>()))
        .collect();
    let by_repeat: Vec<Vec<Vec<_>>> = sound
        .iter()
        .map(|group| group.repeats.iter().map(|runs| rows_of(runs)).collect())
        .collect();
    let Some(first) = all.first() else { return Vec::new() };
    let is_wanted = |(_, row): &(usize, &crate::vmstat_rows::VmstatRow)| {
        // Shares follow from other rows; what reclaim writes is what is swapped out, or in rare cases more.
        row.better != Better::Neutral && row.unit != "%" && !row.label.starts_with("Page writes")
    };
    let wanted = first.iter().enumerate().filter(is_wanted);
    let quantity = |(at, like): (usize, &crate::vmstat_rows::VmstatRow)| {
        let values = |group: usize| Values {
            shown: all[group][at].value.filter(|_| !sound[group].repeats.is_empty()),
            repeats: by_repeat[group].iter().filter_map(|rows| rows[at].value).collect(),
            samples: Sorted::default(),
            sum_of: Some(sound[group].nr_runs()),
        };
        Quantity {
            name: like.label.to_owned(),
            unit: like.unit.to_owned(),
            better: like.better,
            kind: Kind::Kernel,
            groups: (0..sound.len()).map(values).collect(),
        }
    };
    wanted.map(quantity).collect()
}

/// The state in which runs left memory, the mean of them.
fn end_states(sound: &[Sound<'_>]) -> Vec<Quantity> {
    let row = |(name, unit, better, reading): (&str, &str, Better, Reading)| {
        let of_runs = |runs: &[&Record]| -> Option<f64> {
            let of_run =
                |record: &&Record| reading(&EndState::of(&record.after, record.page_bytes));
            runs.iter().map(of_run).collect::<Option<Sorted>>()?.amean()
        };
        let values = |group: &Sound<'_>| Values {
            shown: of_runs(&group.repeats.iter().flatten().copied().collect::<Vec<_>>()),
            repeats: group.repeats.iter().filter_map(|runs| of_runs(runs)).collect(),
            samples: Sorted::default(),
            sum_of: None,
        };
        Quantity {
            name: format!("{name} after"),
            unit: unit.to_owned(),
            better,
            kind: Kind::Kernel,
            groups: sound.iter().map(values).collect(),
        }
    };
    end_state::rows().map(row).collect()
}

impl Quantity {
    /// The values of two groups, if both are known and can be compared.
    fn pair(&self, base: usize, new: usize) -> Option<[f64; 2]> {
        let (a, b) = (&self.groups[base], &self.groups[new]);
        // Sums over different numbers of runs say nothing.
        if a.sum_of != b.sum_of {
            return None;
        }
        Some([a.shown?, b.shown?])
    }

    fn is_better(&self, [base, new]: [f64; 2]) -> bool {
        if self.better == Better::Lower { new < base } else { new > base }
    }

    /// What tells the two groups apart: repeats, their samples, or nothing; none if nothing differs or it may well
    /// be noise. And the p over repeats.
    fn known(&self, base: usize, new: usize) -> (Option<Known>, Option<f64>) {
        let (a, b) = (&self.groups[base], &self.groups[new]);
        let sorted = |values: &[f64]| -> Sorted { values.iter().copied().collect() };
        let (verdict, p) = noise::judge(&sorted(&a.repeats), &sorted(&b.repeats));
        let known = match verdict {
            Verdict::Difference => Some(Known::MoreThanNoise),
            Verdict::NoDifference => None,
            Verdict::TooFewSamples if a.shown == b.shown => None,
            Verdict::TooFewSamples => {
                let (of_samples, _) = noise::judge(&a.samples, &b.samples);
                match of_samples {
                    Verdict::Difference => Some(Known::InTheseRuns),
                    Verdict::NoDifference => None,
                    Verdict::TooFewSamples => Some(Known::TooFewRepeats),
                }
            }
        };
        (known, p)
    }

    /// What rows of one metric have in common: its name without a thread count.
    fn family(&self) -> &str {
        match threads_of(&self.name) {
            Some(_) => self.name.rsplit_once('-').map_or(&self.name, |(stem, _)| stem),
            None => &self.name,
        }
    }
}

/// How far apart two values are, as the logarithm of their ratio.
fn strength([a, b]: [f64; 2]) -> f64 {
    match (a == b, a == 0.0 || b == 0.0) {
        (true, _) => 0.0,
        (_, true) => FROM_ZERO_TIMES.ln(),
        _ => (a / b).abs().ln().abs(),
    }
}

/// A variant beside the base.
fn compared(sound: &[Sound<'_>], quantities: &[Quantity], i: usize) -> Compared {
    let mut found = Compared {
        variant: sound[i].label.to_owned(),
        nr_repeats: [sound[0].repeats.len(), sound[i].repeats.len()],
        nr_better: 0,
        nr_worse: 0,
        nr_within_noise: 0,
        nr_equal: 0,
        nr_too_few: 0,
        nr_perhaps_better: 0,
        nr_perhaps_worse: 0,
        differences: Vec::new(),
    };
    let mut differing: Vec<(&Quantity, Difference)> = Vec::new();
    for quantity in quantities {
        let Some(pair) = quantity.pair(0, i) else { continue };
        // A counter that stands still says nothing of noise.
        if pair == [0.0, 0.0] {
            continue;
        }
        let (known, p) = quantity.known(0, i);
        let is_better = quantity.is_better(pair);
        match known {
            None if pair[0] == pair[1] => found.nr_equal += 1,
            None => found.nr_within_noise += 1,
            Some(Known::MoreThanNoise) if is_better => found.nr_better += 1,
            Some(Known::MoreThanNoise) => found.nr_worse += 1,
            Some(Known::InTheseRuns | Known::TooFewRepeats) => {
                found.nr_too_few += 1;
                match is_better {
                    true => found.nr_perhaps_better += 1,
                    false => found.nr_perhaps_worse += 1,
                }
            }
        }
        if let Some(known) = known {
            let [base, value] = pair;
            let (row, unit) = (quantity.name.clone(), quantity.unit.clone());
            differing.push((quantity, Difference { row, unit, base, value, is_better, known, p }));
        }
    }
    found.differences = in_order(differing);
    found
}

/// First what is known best, of that results, of these the strongest of each metric: that which is better and that which
/// is worse, side by side; each third is the kernel's.
fn in_order(mut all: Vec<(&Quantity, Difference)>) -> Vec<Difference> {
    let certainty = |known: Known| match known {
        Known::MoreThanNoise => 0,
        Known::InTheseRuns | Known::TooFewRepeats => 1,
    };
    // Sorting is stable: of equals the table's order holds.
    all.sort_by(|(_, a), (_, b)| {
        let by_strength = strength([b.base, b.value]).total_cmp(&strength([a.base, a.value]));
        certainty(a.known).cmp(&certainty(b.known)).then(by_strength)
    });
    // Metrics in the order of their strongest rows, and what was met of each.
    let mut families: Vec<&str> = Vec::new();
    let mut seen: Vec<(&str, bool)> = Vec::new();
    let mut ranked: Vec<(i32, bool, usize, Kind, Difference)> = Vec::new();
    for (quantity, difference) in all {
        let family = quantity.family();
        let known_place = families.iter().position(|known| *known == family);
        let place = known_place.unwrap_or(families.len());
        if known_place.is_none() {
            families.push(family);
        }
        let direction = (family, difference.is_better);
        let is_later = seen.contains(&direction);
        if !is_later {
            seen.push(direction);
        }
        // What comes later stays by strength.
        let place = if is_later { 0 } else { place };
        ranked.push((certainty(difference.known), is_later, place, quantity.kind, difference));
    }
    ranked.sort_by_key(|(certainty, is_later, place, ..)| (*certainty, *is_later, *place));
    let mut ordered = Vec::new();
    for rank in 0..2 {
        for is_later in [false, true] {
            let of = |wanted: Kind| {
                let mine = ranked.iter().filter(move |(certainty, later, _, kind, _)| {
                    (*certainty, *later, *kind) == (rank, is_later, wanted)
                });
                mine.map(|(.., difference)| difference.clone())
            };
            let (mut results, mut kernels) = (of(Kind::Result), of(Kind::Kernel));
            loop {
                let before = ordered.len();
                ordered.extend(results.by_ref().take(2));
                ordered.extend(kernels.by_ref().take(1));
                if ordered.len() == before {
                    break;
                }
            }
        }
    }
    ordered
}

// Many variants.

/// The variants with the best and the worst value of one row, if any two differ.
fn extremes_of(
    quantity: &Quantity,
    among: &str,
    members: &[usize],
    label: impl Fn(usize) -> String,
) -> Option<Extremes> {
    let known: Vec<(usize, f64)> =
        members.iter().filter_map(|&i| Some((i, quantity.groups[i].shown?))).collect();
    let first = quantity.groups[known.first()?.0].sum_of;
    let is_fair = known.iter().all(|(i, _)| quantity.groups[*i].sum_of == first);
    let pick = |want_better: bool| {
        let mut best = *known.first()?;
        for &(i, value) in &known[1..] {
            let is_better = quantity.is_better([best.1, value]);
            if value != best.1 && is_better == want_better {
                best = (i, value);
            }
        }
        let nr_alike = known.iter().filter(|(_, value)| *value == best.1).count() - 1;
        Some((best.0, best.1, nr_alike))
    };
    let (best, worst) = (pick(true)?, pick(false)?);
    if best.1 == worst.1 || !is_fair {
        return None;
    }
    let sorted = |i: usize| -> Sorted { quantity.groups[i].repeats.iter().copied().collect() };
    let (verdict, _) = noise::judge(&sorted(worst.0), &sorted(best.0));
    Some(Extremes {
        among: among.to_owned(),
        row: quantity.name.clone(),
        unit: quantity.unit.clone(),
        best: (label(best.0), best.1, best.2),
        worst: (label(worst.0), worst.1, worst.2),
        is_more_than_noise: match verdict {
            Verdict::Difference => Some(true),
            Verdict::NoDifference => Some(false),
            Verdict::TooFewSamples => None,
        },
    })
}

/// Of each metric the row that differs most, results first.
fn extremes(sound: &[Sound<'_>], quantities: &[Quantity]) -> Vec<Extremes> {
    let members: Vec<usize> = (0..sound.len()).collect();
    let label = |i: usize| sound[i].label.to_owned();
    let mut found: Vec<(Kind, &str, f64, Extremes)> = Vec::new();
    for quantity in quantities {
        let Some(extremes) = extremes_of(quantity, "", &members, label) else { continue };
        let strength = strength([extremes.best.1, extremes.worst.1]);
        let family = quantity.family();
        match found.iter_mut().find(|(_, known, ..)| *known == family) {
            Some(known) if known.2 >= strength => {}
            Some(known) => (known.2, known.3) = (strength, extremes),
            None => found.push((quantity.kind, family, strength, extremes)),
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0).then(b.2.total_cmp(&a.2)));
    let room = LINES_MAX - LINES_KEPT - 1;
    let nr_results = found.iter().filter(|(kind, ..)| *kind == Kind::Result).count();
    let nr_kernel = found.len() - nr_results;
    // A third is the kernel's, and what the others leave.
    let nr_results = nr_results.min(room - nr_kernel.min(room / 3));
    let split = found.iter().filter(|(kind, ..)| *kind == Kind::Result).count();
    let kernel = found.split_off(split);
    found.truncate(nr_results);
    let rest = kernel.into_iter().take(room - nr_results);
    found.into_iter().chain(rest).map(|(.., extremes)| extremes).collect()
}

/// The best and the worst among the variants of each first part, by the figures that matter most.
fn matrix_extremes(sound: &[Sound<'_>]) -> Vec<Extremes> {
    let mut panels: Vec<(&str, Vec<usize>)> = Vec::new();
    for (i, group) in sound.iter().enumerate() {
        let first = group.label.split(BETWEEN_PARTS).next().unwrap_or_default();
        match panels.iter_mut().find(|(known, _)| *known == first) {
            Some((_, members)) => members.push(i),
            None => panels.push((first, vec![i])),
        }
    }
    let values_of = |records: Vec<&Record>| {
        let group = Group { label: String::new(), records };
        matrix::rows(&[group]).remove(0)
    };
    let rows: Vec<_> = sound.iter().map(|group| values_of(group.as_group().records)).collect();
    let by_repeat: Vec<Vec<_>> = sound
        .iter()
        .map(|group| group.repeats.iter().map(|runs| values_of(runs.clone())).collect())
        .collect();
    let mut found = Vec::new();
    for (first, members) in &panels {
        for (key, name, unit) in MATRIX_FIGURES {
            let Some(at) = FIGURES.iter().position(|figure| figure.key == key) else { continue };
            let timed = members.iter().map(|&i| rows[i].timed).find(|timed| !timed.is_empty());
            let values = |i: usize| Values {
                shown: rows[i].values[at].filter(|_| !sound[i].repeats.is_empty()),
                repeats: by_repeat[i].iter().filter_map(|row| row.values[at]).collect(),
                ..Values::default()
            };
            let quantity = Quantity {
                name: match timed.filter(|_| key.starts_with("latency")) {
                    Some(timed) => format!("99 % of latencies (of a {timed}) below"),
                    None => name.to_owned(),
                },
                unit: unit.to_owned(),
                better: FIGURES[at].better,
                kind: Kind::Result,
                groups: (0..sound.len()).map(values).collect(),
            };
            let label = |i: usize| {
                let rest = sound[i].label.strip_prefix(first).unwrap_or(sound[i].label);
                rest.strip_prefix(BETWEEN_PARTS).unwrap_or(sound[i].label).to_owned()
            };
            found.extend(extremes_of(&quantity, first, members, label));
        }
    }
    let each = ((LINES_MAX - 3) / panels.len().max(1)).max(1);
    let mut shown: Vec<Extremes> = Vec::new();
    for extremes in found {
        let nr_shown = shown.iter().filter(|other| other.among == extremes.among).count();
        if nr_shown < each && shown.len() < LINES_MAX - 3 {
            shown.push(extremes);
        }
    }
    shown
}

// The sentences.

fn text(findings: &Findings, sound: &[Sound<'_>], quantities: &[Quantity]) -> Vec<Paragraph> {
    let mut text: Vec<Paragraph> = Vec::new();
    text.extend(killed_text(&findings.killed));
    text.extend(ended_text(&findings.ended_early));
    if let ([only], []) = (sound, &findings.extremes[..]) {
        text.push(single_text(only, quantities));
    }
    let is_said = |variant: &str| {
        let base = findings.base.as_deref().unwrap_or_default();
        let has = |class: &Identical, name: &str| class.labels.iter().any(|label| label == name);
        findings.identical.iter().any(|class| has(class, base) && has(class, variant))
    };
    text.extend(identical_text(&findings.identical));
    let last = [decide_text(findings, sound), not_measured_text(findings)];
    let last: Vec<Paragraph> = last.into_iter().flatten().collect();
    let nr_lines: usize = text.iter().map(|paragraph| 1 + paragraph.items.len()).sum();
    let room = LINES_MAX.saturating_sub(nr_lines + last.len());
    let pairs: Vec<&Compared> =
        findings.compared.iter().filter(|pair| !is_said(&pair.variant)).collect();
    let nr_items = (room / pairs.len().max(1)).saturating_sub(1);
    let base = findings.base.as_deref().unwrap_or_default();
    text.extend(pairs.iter().map(|pair| pair_text(pair, base, nr_items)));
    text.extend(extremes_text(&findings.extremes, room.saturating_sub(1)));
    text.extend(last);
    text
}

fn identical_text(classes: &[Identical]) -> impl Iterator<Item = Paragraph> {
    let hidden = classes.len().saturating_sub(NAMES_MAX);
    let more = (hidden > 0).then(|| {
        Paragraph::new(format!("So have variants of {} more.", counted(hidden as u64, "set")))
    });
    classes.iter().take(NAMES_MAX).map(|class| Paragraph::new(class.sentence())).chain(more)
}

fn killed_text(killed: &[Killed]) -> Option<Paragraph> {
    let of_variant = |killed: &Killed| {
        let step = |step: &KilledStep| {
            let threads = step.threads.map(|nr| counted(nr, "thread"));
            let within = step.within_s.map(|s| format!("within {} s", number(s)));
            match (threads, within) {
                (Some(threads), Some(within)) => format!("{threads} ({within})"),
                (Some(threads), None) => threads,
                (None, within) => within.unwrap_or_default(),
            }
        };
        let steps: Vec<String> =
            killed.steps.iter().map(step).filter(|text| !text.is_empty()).collect();
        let has_threads = killed.steps.iter().any(|step| step.threads.is_some());
        let steps = match (steps.is_empty(), has_threads) {
            (true, _) => String::new(),
            (_, true) => format!(" with {}", listed(&steps, NAMES_MAX)),
            (_, false) => format!(" {}", listed(&steps, NAMES_MAX)),
        };
        let runs =
            format!("{} of {}", killed.nr_killed_runs, counted(killed.nr_runs as u64, "run"));
        let processes = listed(&killed.processes, NAMES_MAX);
        format!("{processes} under {}{steps}, in {runs}", killed.variant)
    };
    let all: Vec<String> = killed.iter().map(of_variant).collect();
    let first = all.first()?;
    let mark = format!("Values of killed runs have the mark {KILLED_MARK}.");
    let mut paragraph = Paragraph::new(match all.len() {
        1 => format!("The OOM killer ended {first}. {mark}"),
        nr => format!("The OOM killer ended processes under {nr} variants. {mark}"),
    });
    if all.len() > 1 {
        let hidden = all.len().saturating_sub(NAMES_MAX);
        // One more stands in the place of the line that counts it.
        let shown = if hidden == 1 { all.len() } else { NAMES_MAX };
        paragraph.items.extend(all.iter().take(shown).cloned());
        if hidden > 1 {
            paragraph.items.push(format!("and under {hidden} variants more"));
        }
    }
    Some(paragraph)
}

fn ended_text(ended: &[EndedEarly]) -> Option<Paragraph> {
    let of_variant = |ended: &EndedEarly| {
        let runs = format!("{} of {}", ended.nr_ended_runs, counted(ended.nr_runs as u64, "run"));
        format!("{}, in {runs}: {}", ended.variant, listed(&ended.reasons, NAMES_MAX))
    };
    let all: Vec<String> = ended.iter().map(of_variant).collect();
    match &all[..] {
        [] => None,
        [only] => Some(Paragraph::new(format!("The workload ended early under {only}."))),
        all => {
            let hidden = all.len().saturating_sub(NAMES_MAX + 1);
            let shown = if hidden == 0 { all.len() } else { NAMES_MAX };
            let mut items = all[..shown].to_vec();
            items.extend((hidden > 0).then(|| format!("and under {} variants more", hidden + 1)));
            let text = format!("The workload ended early under {} variants:", all.len());
            Some(Paragraph { text, items })
        }
    }
}

/// One variant alone: whether it stalled.
fn single_text(only: &Sound<'_>, quantities: &[Quantity]) -> Paragraph {
    let mut paragraph =
        Paragraph::new(format!("{} stands alone: nothing to compare it with.", only.label));
    if only.repeats.is_empty() {
        return paragraph;
    }
    let wanted = ["time in stalls", "longest stall", "Allocation stalls", "Major Faults"];
    for name in wanted {
        let found = quantities.iter().find(|quantity| quantity.name == name);
        if let Some((quantity, value)) = found.and_then(|q| Some((q, q.groups[0].shown?))) {
            let value = with_unit(value, &quantity.unit);
            paragraph.items.push(format!("{name}: {value}"));
        }
    }
    paragraph
}

fn pair_text(pair: &Compared, base: &str, nr_items: usize) -> Paragraph {
    let Compared {
        variant,
        nr_repeats,
        nr_better,
        nr_worse,
        nr_within_noise,
        nr_equal,
        nr_too_few,
        nr_perhaps_better,
        nr_perhaps_worse,
        ..
    } = pair;
    let without_runs = match nr_repeats {
        [0, 0] => Some(format!("{base} and {variant}")),
        [0, _] => Some(base.to_owned()),
        [_, 0] => Some(variant.clone()),
        _ => None,
    };
    if let Some(whose) = without_runs {
        return Paragraph::new(format!(
            "{variant} is not compared with {base}: no run of {whose} came to its end."
        ));
    }
    let nr_quiet = nr_within_noise + nr_equal;
    let nr_tested = nr_better + nr_worse + nr_quiet;
    if nr_tested + nr_too_few == 0 {
        return Paragraph::new(format!("{variant} and {base} have no row in common."));
    }
    let is_tested = nr_better + nr_worse > 0 || *nr_too_few == 0;
    let text = match (is_tested, nr_better + nr_worse) {
        (true, 0) if *nr_within_noise == 0 => {
            format!("{variant} against {base}: no row differs ({nr_tested} compared).")
        }
        (true, 0) => format!(
            "{variant} against {base}: no row differs by more than noise ({nr_tested} compared)."
        ),
        (true, _) => {
            let by_chance = (nr_tested as f64 * ALPHA).round() as u64;
            let by_chance = match by_chance {
                0 => String::new(),
                nr => format!("; of equal kernels about {nr} would seem to differ"),
            };
            format!(
                "{variant} against {base}, of {}: {nr_better} better and {nr_worse} worse by more \
                 than noise, {nr_quiet} within it{by_chance}.",
                counted(nr_tested as u64, "row")
            )
        }
        (false, _) => format!(
            "{variant} against {base}: {} {}, {}, and may do so by noise alone{}.",
            counted(*nr_too_few as u64, "row"),
            if *nr_too_few == 1 { "differs" } else { "differ" },
            match (*nr_perhaps_better, *nr_perhaps_worse) {
                (1, 0) => "for the better".to_owned(),
                (0, 1) => "for the worse".to_owned(),
                (_, 0) => "all for the better".to_owned(),
                (0, _) => "all for the worse".to_owned(),
                (better, worse) => format!("{better} for the better and {worse} for the worse"),
            },
            match nr_quiet {
                0 => String::new(),
                1 => "; 1 more does not".to_owned(),
                nr => format!("; {nr} more do not"),
            }
        ),
    };
    let is_worth = |difference: &&Difference| {
        let apart = strength([difference.base, difference.value]);
        is_tested && difference.known == Known::MoreThanNoise
            || !is_tested && apart >= (1.0 + WORTH_A_LINE).ln()
    };
    let worth: Vec<&Difference> = pair.differences.iter().filter(is_worth).collect();
    if worth.len() <= nr_items {
        return Paragraph { text, items: worth.into_iter().map(item).collect() };
    }
    // The last line is left for how many have none.
    let nr_shown = if nr_items < 2 { nr_items } else { nr_items - 1 };
    let (strongest, hidden) = worth.split_at(nr_shown);
    let mut shown = strongest.to_vec();
    // However many are stronger: where there are both directions, both are seen.
    let is_unseen = |other: &&&Difference| {
        strongest.iter().all(|difference| difference.is_better != other.is_better)
    };
    if let (Some(other), [_, .., last]) = (hidden.iter().find(is_unseen), &mut shown[..]) {
        *last = *other;
    }
    let all = match is_tested {
        true => [*nr_better, *nr_worse],
        false => [*nr_perhaps_better, *nr_perhaps_worse],
    };
    let more = more(all, &shown, is_tested);
    let mut items: Vec<String> = shown.into_iter().map(item).collect();
    if nr_items >= 2 {
        items.push(more);
    } else if let Some(only) = items.last_mut() {
        only.push_str(&format!("; {more}"));
    }
    Paragraph { text, items }
}

/// `and 22 more: 12 perhaps better, 10 perhaps worse`: what of the better and worse rows has no line.
fn more([nr_better, nr_worse]: [usize; 2], shown: &[&Difference], is_tested: bool) -> String {
    let nr_shown =
        |is_better: bool| shown.iter().filter(|other| other.is_better == is_better).count();
    let (better, worse) = (nr_better - nr_shown(true), nr_worse - nr_shown(false));
    let perhaps = if is_tested { "" } else { "perhaps " };
    match (better, worse) {
        (nr, 0) => format!("and {nr} more, {perhaps}better"),
        (0, nr) => format!("and {nr} more, {perhaps}worse"),
        _ => {
            format!("and {} more: {better} {perhaps}better, {worse} {perhaps}worse", better + worse)
        }
    }
}

/// `better: System-48 102.9 -> 46.8 s, 54.5 % less`.
fn item(difference: &Difference) -> String {
    let Difference { row, unit, base, value, is_better, known, .. } = difference;
    let word = if *is_better { "better" } else { "worse" };
    let word = match known {
        Known::MoreThanNoise => word.to_owned(),
        Known::InTheseRuns => format!("{word} in these runs"),
        Known::TooFewRepeats => format!("perhaps {word}"),
    };
    let change = match by_how_much(*base, *value) {
        Some(change) => format!(", {change}"),
        None => String::new(),
    };
    let (base, value) = numbers([*base, *value]);
    format!("{word}: {row} {base} -> {}{change}", with_word(&value, unit))
}

/// By how much a value rose or fell; none if it rose from 0.
fn by_how_much(base: f64, value: f64) -> Option<String> {
    if base == 0.0 {
        return None;
    }
    let ratio = value / base;
    Some(match ratio {
        11.0.. => format!("{} times as much", number(ratio)),
        1.0.. => format!("{} % more", number(100.0 * (ratio - 1.0))),
        _ => format!("{} % less", number(100.0 * (1.0 - ratio))),
    })
}

fn extremes_text(extremes: &[Extremes], most: usize) -> Option<Paragraph> {
    if extremes.is_empty() || most == 0 {
        return None;
    }
    let item = |extremes: &Extremes| {
        let among = match extremes.among.as_str() {
            "" => String::new(),
            among => format!("{among}, "),
        };
        let ((best, best_value, nr_best), (worst, worst_value, nr_worst)) =
            (&extremes.best, &extremes.worst);
        let alike = |nr: usize| if nr == 0 { String::new() } else { format!(" and {nr} more") };
        let (best_shown, worst_shown) = numbers([*best_value, *worst_value]);
        let known = match extremes.is_more_than_noise {
            Some(true) => "; more than noise",
            Some(false) => "; may be noise",
            None => "",
        };
        format!(
            "{among}{}: best {best}{} with {}, worst {worst}{} with {}{known}",
            extremes.row,
            alike(*nr_best),
            with_word(&best_shown, &extremes.unit),
            alike(*nr_worst),
            with_word(&worst_shown, &extremes.unit),
        )
    };
    let items = extremes.iter().take(most).map(item).collect();
    Some(Paragraph { text: "The best and the worst variant:".to_owned(), items })
}

/// What would tell differences from noise, where there are too few repeats.
fn decide_text(findings: &Findings, sound: &[Sound<'_>]) -> Option<Paragraph> {
    let is_undecided = findings.compared.iter().any(|pair| pair.nr_too_few > 0)
        || findings.extremes.iter().any(|extremes| extremes.is_more_than_noise.is_none());
    if !is_undecided {
        return None;
    }
    let counts: BTreeSet<usize> =
        sound.iter().map(|group| group.repeats.len()).filter(|&nr| nr > 0).collect();
    let (least, most) = (*counts.first()?, *counts.last()?);
    let nr = if least == most { least.to_string() } else { format!("{least} to {most}") };
    let needed = noise::samples_needed();
    let sources: BTreeSet<&str> = sound.iter().map(|group| how_to_repeat(group.source)).collect();
    let how = sources.into_iter().map(|how| how.replace('N', &needed.to_string()));
    let repeats = if most == 1 { "repeat" } else { "repeats" };
    Some(Paragraph::new(format!(
        "{nr} {repeats} of each run cannot tell a difference from noise; {needed} can: {}.",
        how.collect::<Vec<_>>().join(", ")
    )))
}

/// What gives N repeats.
fn how_to_repeat(source: Source) -> &'static str {
    match source {
        Source::Model => "`iterations = N` in the experiment, or N seeds",
        Source::Host | Source::Vm => "`--boots N`",
        Source::Foreign => "N captures of the same work",
    }
}

fn not_measured_text(findings: &Findings) -> Option<Paragraph> {
    let of_variant = |missing: &NotMeasured| {
        let why = if missing.was_killed { ", whose processes were killed" } else { "" };
        format!("under {}{why}: {}", missing.variant, listed(&missing.rows, NAMES_MAX))
    };
    let all: Vec<String> = findings.not_measured.iter().map(of_variant).collect();
    let hidden = all.len().saturating_sub(NAMES_MAX);
    let shown = all.iter().take(NAMES_MAX).cloned().collect::<Vec<_>>().join("; ");
    let more = match hidden {
        0 => String::new(),
        1 => "; and rows of 1 variant more".to_owned(),
        nr => format!("; and rows of {nr} variants more"),
    };
    (!all.is_empty()).then(|| Paragraph::new(format!("Not measured {shown}{more}.")))
}

// Words and numbers.

/// `a, b and c`; of many the first, and how many more.
fn listed(names: &[String], most: usize) -> String {
    let (shown, hidden) = match names.len() > most.saturating_add(1) {
        true => (&names[..most], names.len() - most),
        false => (names, 0),
    };
    match (shown, hidden) {
        (_, 1..) => format!("{} and {hidden} more", shown.join(", ")),
        ([one], 0) => one.clone(),
        ([first @ .., last], 0) => format!("{} and {last}", first.join(", ")),
        ([], _) => String::new(),
    }
}

fn with_unit(value: f64, unit: &str) -> String {
    with_word(&number(value), unit)
}

fn with_word(value: &str, unit: &str) -> String {
    if unit.is_empty() { value.to_owned() } else { format!("{value} {unit}") }
}

/// Two numbers that are seen to differ where they do.
fn numbers([a, b]: [f64; 2]) -> (String, String) {
    let digits = (3..=9).find(|&digits| a == b || digits_of(a, digits) != digits_of(b, digits));
    let digits = digits.unwrap_or(9);
    (digits_of(a, digits), digits_of(b, digits))
}

/// A number with three significant digits, and all of them before the point.
fn number(value: f64) -> String {
    digits_of(value, 3)
}

fn digits_of(value: f64, digits: i32) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.abs().to_string();
    }
    let decimals = (digits - 1 - value.abs().log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{value:.decimals$}");
    if decimals == 0 && (10_000.0..1e18).contains(&value) {
        return count(value.round() as u64);
    }
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}
