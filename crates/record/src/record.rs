//! What one run leaves behind.
//!
//! A [`Record`] says what determined the run ([`Inputs`], and their hash, the [`Identity`]) and what
//! came of it: counters and free lists before and after, samples of each metric, latencies by class,
//! durations, a timeline in virtual time, and pictures of memory. The model, the host, a guest and a folder of somebody
//! else's `/proc` captures all give the same type, so any of them compares with any other.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::latencies::Latencies;
use crate::stats::{Better, Statistic};
use crate::timeline::Timeline;

/// The first line of the text that is hashed. Another number makes every record another one.
const CANONICAL_FORM: &str = "highorder-record 1\n";

/// Bytes of a base page on x86-64.
pub const PAGE_BYTES: u32 = 4096;

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Everything that determined the run.
    pub inputs: Inputs,
    /// Bytes of a base page.
    pub page_bytes: u32,
    /// Memory right before the workload.
    pub before: State,
    /// Memory at the workload's end, while its mappings still were there.
    pub held: Option<State>,
    /// Memory right after the workload.
    pub after: State,
    /// Where the time went.
    pub durations: Durations,
    /// The most memory that the workload had resident at once, in KiB (`ru_maxrss`).
    pub resident_kib_max: Option<u64>,
    /// The workload's own results, in the order it reports them; no name twice.
    pub metrics: Vec<Metric>,
    /// Latencies by class, such as `fault-huge` or `direct-reclaim`.
    pub latencies: BTreeMap<String, Latencies>,
    /// Counters sampled in virtual time.
    pub timeline: Timeline,
    /// What a reader should know, a paragraph each.
    pub notes: Vec<String>,
    /// Pictures by name, such as `memory-held`: the text of SVG files. Names are lowercase letters, digits
    /// and `-`.
    pub pictures: BTreeMap<String, String>,
    /// Which column of its experiment it belongs to, from 0: in which order variants are to stand. It says nothing
    /// of the run, so it is no part of the [`Inputs`]. None where nobody knows it.
    pub column: Option<u32>,
}

/// Whether a picture may have this name: it is one of a file too.
pub(crate) fn is_picture_name(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !name.is_empty() && name.bytes().all(fits)
}

/// Everything that determines a run: two runs with equal inputs are the same run.
///
/// Whatever stands in `experiment_text` is part of the identity, so it should hold only what this run
/// depends on: with the whole file in it, one more thread step runs every other step again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inputs {
    /// What ran the workload.
    pub source: Source,
    /// The experiment's name.
    pub experiment: String,
    /// The experiment as it was written.
    pub experiment_text: String,
    /// The machine and its properties.
    pub machine: Named,
    /// The kernel, or variant of one, and all its values.
    pub kernel: Named,
    /// The workload and its parameters, `threads` for one.
    pub workload: Named,
    /// The root of every random stream.
    pub seed: u64,
    /// Which repetition this is, from 0; on a real kernel runs with one seed differ.
    pub iteration: u32,
    /// How far memory and sizes were shrunk together.
    pub scale: Scale,
    /// The version of the program that ran it.
    pub program_version: String,
    /// The hash of the sources that it was built from: what another program made of the same inputs is another run.
    /// Empty in records before `highorder-record 2`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub program_sources: String,
}

/// A name and the values behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// What a table's heading shows.
    pub name: String,
    /// Values by key, as text in a form that its writer keeps the same.
    pub values: BTreeMap<String, String>,
}

/// What ran a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The model, in virtual time.
    #[default]
    Model,
    /// The kernel of this machine.
    Host,
    /// A kernel in a virtual machine.
    Vm,
    /// Captures that somebody else made.
    Foreign,
}

impl Source {
    fn word(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Host => "host",
            Self::Vm => "vm",
            Self::Foreign => "foreign",
        }
    }
}

/// A ratio, such as 1/16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// Above the line.
    pub numerator: u32,
    /// Below the line.
    pub denominator: u32,
}

impl Default for Scale {
    fn default() -> Self {
        Self { numerator: 1, denominator: 1 }
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.denominator {
            1 => write!(f, "{}", self.numerator),
            _ => write!(f, "{}/{}", self.numerator, self.denominator),
        }
    }
}

/// The hash of a run's inputs: xxh3 with 128 bits, printed as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity(u128);

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A text that is no identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}`, expected 32 hexadecimal digits in lower case")]
pub struct NotAnIdentity(pub String);

impl FromStr for Identity {
    type Err = NotAnIdentity;

    fn from_str(text: &str) -> Result<Self, NotAnIdentity> {
        let digits = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        match u128::from_str_radix(text, 16) {
            Ok(hash) if digits && text.len() == 32 => Ok(Self(hash)),
            _ => Err(NotAnIdentity(text.to_owned())),
        }
    }
}

impl Inputs {
    /// Returns the hash of the canonical form.
    #[must_use]
    pub fn identity(&self) -> Identity {
        Identity(xxh3_128(self.canonical().as_bytes()))
    }

    /// Returns the text that [`identity`](Self::identity) hashes.
    ///
    /// Each value is a line `length:key=length:value`, lengths in bytes: no two inputs share a form,
    /// whatever their values hold. Keys of one kind come sorted.
    #[must_use]
    pub fn canonical(&self) -> String {
        let mut text = CANONICAL_FORM.to_owned();
        let mut line = |key: &str, value: &str| {
            text.push_str(&format!("{}:{key}={}:{value}\n", key.len(), value.len()));
        };
        line("source", self.source.word());
        line("experiment", &self.experiment);
        line("experiment_text", &self.experiment_text);
        for (kind, named) in
            [("machine", &self.machine), ("kernel", &self.kernel), ("workload", &self.workload)]
        {
            line(kind, &named.name);
            for (key, value) in &named.values {
                line(&format!("{kind} {key}"), value);
            }
        }
        line("seed", &self.seed.to_string());
        line("iteration", &self.iteration.to_string());
        line("scale", &format!("{}/{}", self.scale.numerator, self.scale.denominator));
        line("program_version", &self.program_version);
        if !self.program_sources.is_empty() {
            line("program_sources", &self.program_sources);
        }
        text
    }

    /// Whether both are the same run but for the program that made them.
    #[must_use]
    pub fn is_same_but_for_program(&self, other: &Self) -> bool {
        let of_no_program = |inputs: &Self| {
            let none = String::new;
            Self { program_version: none(), program_sources: none(), ..inputs.clone() }
        };
        of_no_program(self) == of_no_program(other)
    }

    /// Returns what a person would call the run: experiment, kernel, thread count, seed.
    ///
    /// Holds only letters, digits and `.+_-`, at most 100 of them, and does not begin with a dot: fit
    /// for a folder's name.
    #[must_use]
    pub fn readable_name(&self) -> String {
        let mut parts = vec![self.experiment.clone(), self.kernel.name.clone()];
        if let Some(threads) = self.workload.values.get("threads") {
            parts.push(format!("threads-{threads}"));
        }
        parts.push(format!("seed-{}", self.seed));
        if self.iteration > 0 {
            parts.push(format!("iteration-{}", self.iteration));
        }
        parts.retain(|part| !part.is_empty());
        let keep = |c: char| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '+' | '_' | '-' => c,
            _ => '_',
        };
        let name: String = parts.join(".").chars().map(keep).take(100).collect();
        name.trim_start_matches('.').to_owned()
    }
}

/// The state of memory at one moment, as `/proc` tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// `/proc/vmstat`: counters by the kernel's name, in the kernel's unit.
    pub counters: BTreeMap<String, u64>,
    /// `/proc/meminfo`: by name, KiB (`HugePages_*`: huge pages).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub meminfo: BTreeMap<String, u64>,
    /// The statistics by node of `/proc/zoneinfo`; none before 4.8.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<u32, BTreeMap<String, u64>>,
    /// Order of a pageblock (`/proc/pagetypeinfo`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pageblock_order: Option<u8>,
    /// The zones, by node and then in the kernel's order.
    pub zones: Vec<ZoneState>,
}

/// One zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZoneState {
    /// The NUMA node.
    pub node: u32,
    /// The kernel's name, such as `DMA32`.
    pub zone: String,
    /// The page marks of `/proc/zoneinfo`, in base pages: `free`, `boost`, `min`, `low`, `high`,
    /// `spanned`, `present`, `managed` and others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pages: BTreeMap<String, u64>,
    /// Base pages kept back from requests that prefer each zone (`protection`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protection_pages: Vec<u64>,
    /// The zone's own counters in `/proc/zoneinfo`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, u64>,
    /// Free blocks of each order, order 0 first (`/proc/buddyinfo`); not base pages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub free_blocks: Vec<u64>,
    /// The same by migratetype (`/proc/pagetypeinfo`); the kernel stops counting at 100000.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub free_blocks_by_migratetype: BTreeMap<String, Vec<u64>>,
    /// Pageblocks by migratetype.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pageblocks: BTreeMap<String, u64>,
    /// What the pageblocks hold: known of the model alone, and not of old records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pageblock_use: Option<PageblockUse>,
}

/// What the pageblocks of a zone hold; [`end_state`](crate::end_state) says what the words mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageblockUse {
    /// Those that hold allocated memory of more than one mobility.
    pub mixed: u64,
    /// Those that compaction could empty together.
    pub could_be_emptied: u64,
}

impl State {
    /// Returns one zone.
    #[must_use]
    pub fn zone(&self, node: u32, zone: &str) -> Option<&ZoneState> {
        self.zones.iter().find(|z| z.node == node && z.zone == zone)
    }

    /// Returns one zone to fill, added at the end if it is not there.
    pub fn zone_mut(&mut self, node: u32, zone: &str) -> &mut ZoneState {
        let at = self.zones.iter().position(|z| z.node == node && z.zone == zone);
        let at = at.unwrap_or_else(|| {
            let zone = zone.to_owned();
            self.zones.push(ZoneState { node, zone, ..ZoneState::default() });
            self.zones.len() - 1
        });
        &mut self.zones[at]
    }
}

/// Where the time of a run went, in nanoseconds: virtual on the model, the clock's elsewhere.
///
/// User and system are those of the workload's own tasks, as time(1) counts them; kernel threads are
/// in neither. Iowait and idle are summed over CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Durations {
    /// In the workload's own code.
    pub user_ns: Option<u64>,
    /// In the kernel on its behalf.
    pub system_ns: Option<u64>,
    /// From beginning to end.
    pub elapsed_ns: Option<u64>,
    /// CPUs idle while a task waited for a device.
    pub iowait_ns: Option<u64>,
    /// CPUs idle otherwise.
    pub idle_ns: Option<u64>,
}

/// One metric and its samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// The row's name; a thread count follows after `-`, as in `System-48`.
    pub name: String,
    /// What a sample is counted in, such as `s`, `us` or `%`.
    pub unit: String,
    /// Which direction is the good one.
    pub better: Better,
    /// Digits after the point where it is printed.
    pub decimals: u8,
    /// The rows that a table shows of it.
    pub statistics: Vec<Statistic>,
    /// The samples, in the order they were taken; none if what it measures never happened.
    pub samples: Vec<f64>,
}

impl Metric {
    /// A metric without samples, shown as its arithmetic mean with two decimals.
    #[must_use]
    pub fn new(name: impl Into<String>, unit: impl Into<String>, better: Better) -> Self {
        Self {
            name: name.into(),
            unit: unit.into(),
            better,
            decimals: 2,
            statistics: vec![Statistic::Amean],
            samples: Vec::new(),
        }
    }

    /// Chooses the rows that a table shows.
    #[must_use]
    pub fn shown_as(mut self, statistics: &[Statistic], decimals: u8) -> Self {
        self.statistics = statistics.to_vec();
        self.decimals = decimals;
        self
    }

    /// Replaces the samples.
    #[must_use]
    pub fn with_samples(mut self, samples: impl IntoIterator<Item = f64>) -> Self {
        self.samples = samples.into_iter().collect();
        self
    }
}

impl Record {
    /// A record of a run of which nothing is known but what determined it.
    #[must_use]
    pub fn new(inputs: Inputs) -> Self {
        Self {
            inputs,
            page_bytes: PAGE_BYTES,
            before: State::default(),
            held: None,
            after: State::default(),
            durations: Durations::default(),
            resident_kib_max: None,
            metrics: Vec::new(),
            latencies: BTreeMap::new(),
            timeline: Timeline::default(),
            notes: Vec::new(),
            pictures: BTreeMap::new(),
            column: None,
        }
    }

    /// Returns the hash of what determined the run.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.inputs.identity()
    }

    /// Returns a metric.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<&Metric> {
        self.metrics.iter().find(|metric| metric.name == name)
    }

    /// Returns how far a counter rose from before to after, in the kernel's unit; `None` if the
    /// kernel has no such counter. One that is there only afterwards began at 0.
    #[must_use]
    pub fn delta(&self, counter: &str) -> Option<i64> {
        delta(&self.before.counters, &self.after.counters, counter)
    }

    /// Returns what is wrong with the record, a sentence each; nothing if it is whole.
    ///
    /// The store refuses a record with problems: they are faults of what made it.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (i, metric) in self.metrics.iter().enumerate() {
            if self.metrics[..i].iter().any(|other| other.name == metric.name) {
                problems.push(format!("metric `{}` is there twice, expected once", metric.name));
            }
            if let Some(bad) = metric.samples.iter().find(|sample| !sample.is_finite()) {
                problems.push(format!(
                    "metric `{}` has a sample of {bad}, expected a finite number",
                    metric.name
                ));
            }
        }
        problems.extend(self.timeline.problems());
        for name in self.pictures.keys().filter(|name| !is_picture_name(name)) {
            problems.push(format!("picture `{name}`, expected a name of a-z, 0-9 and `-`"));
        }
        problems
    }
}

/// Returns how far one counter rose; `None` if it is in neither map.
pub(crate) fn delta(
    before: &BTreeMap<String, u64>,
    after: &BTreeMap<String, u64>,
    counter: &str,
) -> Option<i64> {
    match (before.get(counter), after.get(counter)) {
        (None, None) => None,
        (before, after) => {
            let of = |value: Option<&u64>| value.copied().unwrap_or(0);
            Some(of(after).wrapping_sub(of(before)).cast_signed())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs() -> Inputs {
        let values = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        Inputs {
            source: Source::Model,
            experiment: "usemem-anon".into(),
            experiment_text: "threads = [1, 48]\n".into(),
            machine: Named {
                name: "two-node".into(),
                values: values(&[("nodes", "2"), ("memory_bytes", "68719476736")]),
            },
            kernel: Named {
                name: "linux-4.4".into(),
                values: values(&[("vm.swappiness", "60"), ("thp.defrag", "always")]),
            },
            workload: Named { name: "usemem".into(), values: values(&[("threads", "48")]) },
            seed: 7,
            iteration: 0,
            scale: Scale { numerator: 1, denominator: 16 },
            program_version: "0.1.0".into(),
            program_sources: String::new(),
        }
    }

    #[test]
    fn an_identity_is_the_same_on_every_machine_and_in_every_release() {
        assert_eq!(inputs().identity().to_string(), "fe309f666003d6d0b1979cf412d821fd");
    }

    #[test]
    fn the_canonical_form_is_lines_of_lengths_keys_and_values() {
        insta::assert_snapshot!(inputs().canonical());
    }

    #[test]
    fn whatever_determines_a_run_changes_its_identity() {
        let changes: [fn(&mut Inputs); 15] = [
            |i| i.source = Source::Vm,
            |i| i.experiment.push('x'),
            |i| i.experiment_text.push('#'),
            |i| i.machine.name.push('x'),
            |i| *i.machine.values.get_mut("nodes").unwrap() = "1".into(),
            |i| i.kernel.name.push('x'),
            |i| drop(i.kernel.values.insert("vm.swappiness".into(), "10".into())),
            |i| drop(i.kernel.values.remove("vm.swappiness")),
            |i| i.workload.name.push('x'),
            |i| drop(i.workload.values.insert("threads".into(), "1".into())),
            |i| i.seed = 8,
            |i| i.iteration = 1,
            |i| i.scale.denominator = 8,
            |i| i.program_version = "0.1.1".into(),
            |i| i.program_sources = "1f".into(),
        ];
        let mut seen = vec![inputs().identity()];
        for change in changes {
            let mut changed = inputs();
            change(&mut changed);
            let identity = changed.identity();
            assert!(!seen.contains(&identity), "{changed:?}");
            seen.push(identity);
        }
    }

    #[test]
    fn a_value_cannot_pass_for_two() {
        let mut one = inputs();
        one.kernel.values = [("a".to_owned(), "1\n8:kernel b=1:2".to_owned())].into();
        let mut two = inputs();
        two.kernel.values =
            [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())].into();
        assert_ne!(one.canonical(), two.canonical());
        assert_ne!(one.identity(), two.identity());
    }

    #[test]
    fn an_identity_reads_back_and_nothing_else_does() {
        let identity = inputs().identity();
        assert_eq!(identity.to_string().parse(), Ok(identity));
        for bad in ["", "12", &"F".repeat(32), &"g".repeat(32), &"0".repeat(33)] {
            assert_eq!(bad.parse::<Identity>(), Err(NotAnIdentity(bad.to_owned())));
        }
    }

    #[test]
    fn a_readable_name_is_fit_for_a_folder() {
        assert_eq!(inputs().readable_name(), "usemem-anon.linux-4.4.threads-48.seed-7");
        let mut odd = inputs();
        odd.experiment = "../Über all/".into();
        odd.kernel.name = "k".repeat(200);
        let name = odd.readable_name();
        assert!(name.starts_with("_") && name.is_ascii() && name.len() <= 100, "{name}");
        assert!(!name.contains('/'), "{name}");
    }

    #[test]
    fn a_counter_that_no_kernel_has_is_missing_and_not_zero() {
        let mut record = Record::new(inputs());
        record.before.counters = [("pgfault".to_owned(), 10)].into();
        record.after.counters =
            [("pgfault".to_owned(), 25), ("thp_fault_alloc".to_owned(), 3)].into();
        assert_eq!(record.delta("pgfault"), Some(15));
        assert_eq!(record.delta("thp_fault_alloc"), Some(3));
        assert_eq!(record.delta("allocstall"), None);
        record.after.counters.insert("pgfault".to_owned(), 4);
        assert_eq!(record.delta("pgfault"), Some(-6), "levels fall as well");
    }

    #[test]
    fn a_sample_that_is_no_number_is_a_problem() {
        let mut record = Record::new(inputs());
        let metric = Metric::new("System-1", "s", Better::Lower);
        record.metrics.push(metric.clone().with_samples([1.0, f64::NAN]));
        record.metrics.push(metric);
        assert_eq!(
            record.problems(),
            [
                "metric `System-1` has a sample of NaN, expected a finite number",
                "metric `System-1` is there twice, expected once"
            ]
        );
    }
}
