//! Experiments: which runs there shall be, as `experiments/*.toml` say it.
//!
//! An experiment names a machine, a workload and its variants, each a kernel with knobs; how many threads
//! there are, step by step; and the seeds. `docs/experiments.md` describes the file. Everything it names
//! is read and checked before anything runs, and what is wrong is told all at once, each with its line.

use crate::demands::DemandValues;
use crate::sweep::{self, Place, Setting, Sweep, SweepValues};
use crate::unknowns::MachineNumber;
use crate::{Target, catalogue};
use highorder_files::limits;
use highorder_input::{InputError, Source};
use highorder_kernels::KernelFile;
use highorder_kernels::machine;
use highorder_model::{check_knob, check_knob_of};
use highorder_real::knobs::Knobs;
use highorder_record::matrix::BETWEEN_PARTS;
use highorder_record::{PublishedForm, published};
use highorder_sim::kernel::demand::Demand;
use highorder_sim::{Machine, Ns};
use highorder_workload::{Configured, ParameterError, Value};
use serde::Deserialize;
use serde_spanned::Spanned;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The experiments that come with the program, by name.
pub const BUILT_IN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/experiments.rs"));

/// Threads of a step: up to the most CPUs that x86-64 kernels are built for (`NR_CPUS`).
const THREADS: RangeInclusive<u32> = 1..=8192;
/// Repetitions: more would take weeks.
const ITERATIONS: RangeInclusive<u64> = 1..=10_000;
/// Up to an hour between two samples.
const SAMPLE_INTERVAL_MS: RangeInclusive<u64> = 1..=3_600_000;
/// As vmstat(8) is mostly used.
const SAMPLE_INTERVAL_MS_DEFAULT: u64 = 1000;
const MIB: u64 = 1 << 20;

/// What shall be run and compared.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Name of the file, without its ending.
    pub name: String,
    /// One line for people.
    pub description: String,
    /// Threads of each step; a single `None` where the workload's own number holds.
    pub threads: Vec<Option<u32>>,
    /// The root of a run's random streams, for each repetition.
    pub seeds: Vec<u64>,
    /// Virtual time between two samples of the timeline, at full scale.
    pub sample_interval: Ns,
    /// Records of the model have a picture of what became of pageblocks.
    pub block_lives: bool,
    /// The published tables in whose form results are printed.
    pub published: Option<&'static str>,
    /// What the parts of variants' names are, where results are one table with a row for each; else empty.
    pub matrix: Vec<String>,
    /// The key of which each variant is run at several values.
    pub sweep: Option<Sweep>,
    /// What is compared; the first is the base.
    pub variants: Vec<Variant>,
}

/// One of the things that an experiment compares.
#[derive(Clone, Debug)]
pub struct Variant {
    /// What a table's heading shows.
    pub name: String,
    /// The machine at full scale, with the variant's swap.
    pub machine: Machine,
    /// Which of the machines that were drawn from what is unknown it is; none if it is as its file says.
    pub drawn: Option<MachineNumber>,
    /// The kernel.
    pub kernel: KernelFile,
    /// Knobs that differ from what the kernel sets at boot.
    pub knobs: BTreeMap<String, String>,
    /// Of knobs that a scale has changed, the values at full scale.
    pub knobs_at_full_scale: BTreeMap<String, String>,
    /// The workload at full scale.
    pub workload: Configured,
    /// What the kernel wants for itself besides, at full scale.
    pub demands: Vec<Demand>,
    /// The columns of the published tables that it stands for: those that the file names, or the one of its own
    /// name, if there is one.
    pub published: Vec<String>,
}

/// How far memory and sizes shrink together: more than 0, at most 1, in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    numerator: u32,
    denominator: u32,
}

impl Scale {
    /// Nothing shrinks.
    pub const FULL: Self = Self { numerator: 1, denominator: 1 };

    /// Above the line.
    #[must_use]
    pub const fn numerator(self) -> u32 {
        self.numerator
    }

    /// Below the line.
    #[must_use]
    pub const fn denominator(self) -> u32 {
        self.denominator
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        highorder_record::Scale::from(*self).fmt(f)
    }
}

impl From<Scale> for highorder_record::Scale {
    fn from(Scale { numerator, denominator }: Scale) -> Self {
        Self { numerator, denominator }
    }
}

impl FromStr for Scale {
    type Err = String;

    /// Reads `1/16`, `0.0625`, or `1`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}`, expected a ratio up to 1, such as 1/16 or 0.25");
        let part = |text: &str| match text.bytes().all(|b| b.is_ascii_digit()) {
            true => text.parse::<u32>().map_err(|_| wrong()),
            false => Err(wrong()),
        };
        let (numerator, denominator) = if let Some((whole, decimals)) = text.split_once('.') {
            let denominator = 10_u32.checked_pow(decimals.len() as u32).ok_or_else(wrong)?;
            let whole = part(whole)?.checked_mul(denominator);
            let decimals = part(decimals)?;
            (whole.and_then(|whole| whole.checked_add(decimals)).ok_or_else(wrong)?, denominator)
        } else {
            let (numerator, denominator) = text.split_once('/').unwrap_or((text, "1"));
            (part(numerator)?, part(denominator)?)
        };
        if numerator == 0 || numerator > denominator {
            return Err(wrong());
        }
        let (mut divisor, mut rest) = (denominator, numerator);
        while rest > 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        Ok(Self { numerator: numerator / divisor, denominator: denominator / divisor })
    }
}

impl Experiment {
    /// The experiment of this name: a file's path, or one that comes with the program.
    ///
    /// # Errors
    /// The file and line of everything that is misspelt, missing or impossible, in the file itself and in
    /// the machine and kernel files that it names.
    pub fn load(name: &str) -> Result<Self, InputError> {
        Self::load_for(name, &[Target::Model])
    }

    /// The experiment of this name, to be run there. Real kernels have knobs that the model lacks: where
    /// the model is none of the targets, a knob may have any name and value.
    ///
    /// # Errors
    /// As [`Experiment::load`].
    pub fn load_for(name: &str, targets: &[Target]) -> Result<Self, InputError> {
        if is_path(name) {
            let path = Path::new(name);
            let text = highorder_files::read_text(path, limits::SETUP)
                .map_err(|error| InputError::file(path, error))?;
            return Self::parse_for(path, &text, targets);
        }
        match BUILT_IN.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => {
                let path = PathBuf::from(format!("experiments/{name}.toml"));
                Self::parse_for(&path, text, targets)
            }
            None => Err(InputError::other(format!(
                "no experiment `{name}`, {}",
                highorder_input::expected_or_file(name, &names(BUILT_IN))
            ))),
        }
    }

    /// Memory of its largest machine at full scale, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.variants.iter().map(|variant| variant.machine.memory_bytes()).max().unwrap_or(0)
    }

    /// The experiment that a file's text describes; the path is for its name, for the files that it names,
    /// and for messages.
    ///
    /// # Errors
    /// As [`Experiment::load`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, InputError> {
        Self::parse_for(path, text, &[Target::Model])
    }

    fn parse_for(path: &Path, text: &str, targets: &[Target]) -> Result<Self, InputError> {
        let source = Source { path: path.to_owned(), text: text.to_owned(), is_built_in: false };
        let values: Values =
            source.values().map_err(|error| other_kind(&source).unwrap_or(error))?;
        let is_for_model = targets.contains(&Target::Model);
        let is_for_others = targets.iter().any(|target| *target != Target::Model);
        let wants_disk = targets.iter().any(|target| *target != Target::Host);
        let mut checks = Checks {
            source: &source,
            is_for_model,
            is_for_others,
            wants_disk,
            problems: Vec::new(),
        };
        let experiment = values.finish(&mut checks);
        match checks.problems.is_empty() {
            true => Ok(experiment),
            false => Err(InputError::all(checks.problems)),
        }
    }
}

/// The error of a file that is another kind's: it has a key that experiments lack.
fn other_kind(source: &Source) -> Option<InputError> {
    let table: toml::Table = source.values().ok()?;
    if !["based_on", "release", "node"].iter().any(|key| table.contains_key(*key)) {
        return None;
    }
    match catalogue::kind_of_file(&source.path) {
        Ok(catalogue::Kind::Experiment) => None,
        Ok(kind) => {
            Some(InputError::file(&source.path, format!("a {kind}, expected an experiment")))
        }
        Err(error) => Some(error),
    }
}

/// The thread counts that mmtests (2016) goes through up to `max`.
///
/// Above 32: 1, 4, 7, then 12, 21, 30, then 48, 79 and so on; 9 to 32: 1, 3, 5, 7, then 12, 18, 24, 30; up
/// to 8 the odd numbers. `max` itself is always the last.
#[must_use]
pub fn thread_steps(max: u32) -> Vec<u32> {
    let sections: &[(Range<u32>, usize)] = match max {
        0..=8 => &[(1..9, 2)],
        9..=32 => &[(1..9, 2), (12..33, 6)],
        _ => &[(1..9, 3), (12..33, 9), (48..u32::MAX, 31)],
    };
    let steps = sections.iter().flat_map(|(range, by)| range.clone().step_by(*by));
    let mut steps: Vec<u32> = steps.take_while(|&threads| threads < max).collect();
    steps.push(max);
    steps
}

// The file's form.

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Values {
    description: String,
    machine: Spanned<String>,
    threads: Option<Spanned<toml::Value>>,
    iterations: Option<Spanned<u64>>,
    seed: Option<Spanned<u64>>,
    seeds: Option<Spanned<Vec<u64>>>,
    sample_interval_ms: Option<Spanned<u64>>,
    #[serde(default)]
    block_lives: bool,
    published: Option<Spanned<String>>,
    matrix: Option<Spanned<Vec<String>>>,
    sweep: Option<Spanned<SweepValues>>,
    workload: Spanned<Parameters>,
    #[serde(rename = "demand", default)]
    demands: Vec<DemandValues>,
    #[serde(rename = "variant", default)]
    variants: Vec<VariantValues>,
}

/// A workload's table: its name and its parameters.
type Parameters = BTreeMap<Spanned<String>, Spanned<toml::Value>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VariantValues {
    name: Option<Spanned<String>>,
    kernel: Spanned<String>,
    machine: Option<Spanned<String>>,
    swap_mib: Option<Spanned<u64>>,
    #[serde(default)]
    knobs: BTreeMap<Spanned<String>, Spanned<toml::Value>>,
    #[serde(default)]
    workload: Parameters,
    published: Option<Spanned<toml::Value>>,
}

/// What variants have that say nothing else.
#[derive(Clone, Copy)]
struct Common<'a> {
    machine: (&'a Spanned<String>, Option<&'a Machine>),
    workload: &'a Spanned<Parameters>,
}

/// Gathers what is wrong, with its line.
struct Checks<'a> {
    source: &'a Source,
    /// Whether the model has to know every knob.
    is_for_model: bool,
    /// Whether it is run on real kernels too.
    is_for_others: bool,
    /// Whether it is run where files lie on the machine file's first disk: anywhere but on the host.
    wants_disk: bool,
    problems: Vec<InputError>,
}

impl Checks<'_> {
    fn refuse(&mut self, span: Range<usize>, message: impl fmt::Display) {
        self.add(self.source.refuse(&span, message));
    }

    /// Adds a problem; what variants share is told once.
    fn add(&mut self, problem: InputError) {
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// Keeps the value, or its problem.
    fn keep<T>(&mut self, value: Result<T, InputError>) -> Option<T> {
        value.map_err(|error| self.add(error)).ok()
    }

    fn within<T>(&mut self, key: &str, value: &Spanned<T>, range: &RangeInclusive<T>) -> T
    where
        T: Copy + fmt::Display + PartialOrd,
    {
        let found = *value.get_ref();
        if range.contains(&found) {
            return found;
        }
        let (start, end) = (range.start(), range.end());
        self.refuse(value.span(), format!("`{key}` is {found}, expected {start}..={end}"));
        *start
    }

    /// What [`load`](KernelFile::load) of a machine or kernel is to be given: the name of a built-in one, or a
    /// path, relative to the experiment's folder.
    fn source(
        &mut self,
        key: &str,
        name: &Spanned<String>,
        built_in: &[(&str, &str)],
    ) -> Option<String> {
        let text = name.get_ref();
        if is_path(text) {
            let path = self.source.path.parent().unwrap_or(Path::new("")).join(text);
            if let Err(error) = highorder_files::check_readable(&path) {
                let message = format!(
                    "`{key}` is `{text}`, expected a file that can be read; {}: {error}",
                    path.display()
                );
                self.refuse(name.span(), message);
                return None;
            }
            return Some(path.to_string_lossy().into_owned());
        }
        if !built_in.iter().any(|(known, _)| known == text) {
            let expected = highorder_input::expected_or_file(text, &names(built_in));
            let message = format!("`{key}` is `{text}`, {expected}");
            self.refuse(name.span(), message);
            return None;
        }
        Some(text.clone())
    }

    /// The published form of this name.
    fn published(&mut self, name: &Spanned<String>) -> Option<&'static str> {
        let (text, known) = (name.get_ref(), published::names());
        let found = known.iter().find(|known| *known == text).copied();
        if found.is_none() {
            let expected = highorder_input::expected(text, &known);
            self.refuse(name.span(), format!("`published` is `{text}`, {expected}"));
        }
        found
    }

    fn machine(&mut self, name: &Spanned<String>, settings: &[Setting<'_>]) -> Option<Machine> {
        let source = self.source("machine", name, machine::BUILT_IN)?;
        let machine = self.keep(machine::load(&source))?;
        let load = |text| machine::load_under(&source, text);
        self.with_set(Place::Machine, settings, load).unwrap_or(Some(machine))
    }

    fn kernel(&mut self, name: &Spanned<String>, settings: &[Setting<'_>]) -> Option<KernelFile> {
        let source = self.source("kernel", name, highorder_kernels::BUILT_IN)?;
        let kernel = self.keep(KernelFile::load(&source))?;
        let load = |text| KernelFile::load_under(&source, text);
        self.with_set(Place::Kernel, settings, load).unwrap_or(Some(kernel))
    }

    /// What a file is with all that a sweep sets in it, if it sets something there; each value is tried by itself first.
    fn with_set<T>(
        &mut self,
        place: Place,
        settings: &[Setting<'_>],
        load: impl Fn(String) -> Result<T, InputError>,
    ) -> Option<Option<T>> {
        let here: Vec<Setting<'_>> =
            settings.iter().copied().filter(|setting| setting.place == place).collect();
        let (last, others) = here.split_last()?;
        for set in others {
            if self.keep_set(set, load(sweep::text(&[*set]))).is_none() {
                return Some(None);
            }
        }
        if !others.is_empty() && self.keep_set(last, load(sweep::text(&[*last]))).is_none() {
            return Some(None);
        }
        Some(self.keep_set(last, load(sweep::text(&here))))
    }

    /// Keeps what a sweep has set, or the problem at the sweep's value: without it there was none.
    fn keep_set<T>(&mut self, set: &Setting<'_>, value: Result<T, InputError>) -> Option<T> {
        let told = |error: InputError| {
            let found = error.problems().first().map(|problem| problem.found.clone());
            format!("`{}` of the sweep: {}", set.value.get_ref(), found.unwrap_or_default())
        };
        value.map_err(|error| self.refuse(set.value.span(), told(error))).ok()
    }

    /// The workload with the variant's parameters over the experiment's.
    fn workload(
        &mut self,
        common: &Spanned<Parameters>,
        variant: &Parameters,
        settings: &[Setting<'_>],
    ) -> Option<Configured> {
        let swept: Vec<_> = settings.iter().filter_map(|set| set.within(Place::Workload)).collect();
        let mut values = BTreeMap::new();
        let mut name: Option<&Spanned<toml::Value>> = None;
        for (key, value) in common.get_ref().iter().chain(variant) {
            if key.get_ref() == "name" {
                name = Some(value);
                continue;
            }
            match parameter(value.get_ref()) {
                Some(value) => drop(values.insert(key.get_ref().clone(), value)),
                None => {
                    let found = value.get_ref().type_str();
                    let message = format!(
                        "`{key}` is of type {found}, expected a number, a text, true or false",
                        key = key.get_ref()
                    );
                    self.refuse(value.span(), message);
                    return None;
                }
            }
        }
        for &(key, value) in &swept {
            match parameter(value.get_ref()) {
                Some(value) => drop(values.insert(key.to_owned(), value)),
                None => {
                    let found = value.get_ref().type_str();
                    let message = format!(
                        "a value of the sweep is of type {found}, expected a number, a text, true or false"
                    );
                    self.refuse(value.span(), message);
                    return None;
                }
            }
        }
        let Some(name) = name else {
            let known = highorder_workload::names().join(", ");
            self.refuse(common.span(), format!("no `name` of a workload, expected one of {known}"));
            return None;
        };
        let Some(text) = name.get_ref().as_str() else {
            let found = name.get_ref().type_str();
            self.refuse(name.span(), format!("`name` is of type {found}, expected a text"));
            return None;
        };
        let found = highorder_workload::find(text, &values);
        found
            .map_err(|error| {
                match swept.iter().find(|(key, _)| error.key.as_deref() == Some(*key)) {
                    Some((_, value)) => self.refuse(value.span(), &error.message),
                    None => self.parameter_error(&error, common, name.span(), variant),
                }
            })
            .ok()
    }

    fn parameter_error(
        &mut self,
        error: &ParameterError,
        common: &Spanned<Parameters>,
        name: Range<usize>,
        variant: &Parameters,
    ) {
        let at = |table: &Parameters, key: &str| table.get_key_value(key).map(|(k, _)| k.span());
        let span = match &error.key {
            None => name,
            // A default may be what does not fit: then it is the table.
            Some(key) => at(variant, key)
                .or_else(|| at(common.get_ref(), key))
                .unwrap_or_else(|| common.span()),
        };
        self.refuse(span, &error.message);
    }
}

impl Values {
    fn finish(self, checks: &mut Checks<'_>) -> Experiment {
        let stem = checks.source.path.file_stem().unwrap_or_default();
        let name = stem.to_string_lossy().into_owned();
        let seeds = self.seeds(checks);
        let interval = self.sample_interval_ms.as_ref();
        let interval = interval.map_or(SAMPLE_INTERVAL_MS_DEFAULT, |interval| {
            checks.within("sample_interval_ms", interval, &SAMPLE_INTERVAL_MS)
        });
        let machine = checks.machine(&self.machine, &[]);
        let published = self.published.as_ref().and_then(|name| checks.published(name));
        let threads = match &self.threads {
            None => vec![None],
            Some(threads) => steps(threads, checks).into_iter().map(Some).collect(),
        };
        if self.variants.is_empty() {
            checks.add(InputError::file(
                &checks.source.path,
                "no `[[variant]]`, expected at least one",
            ));
        }
        let of_sweep = |sweep: &Spanned<SweepValues>| sweep.get_ref().problems(&sweep.span());
        for (span, message) in self.sweep.iter().flat_map(of_sweep) {
            checks.refuse(span, message);
        }
        let form = published.and_then(published::find);
        let swept = self.sweep.as_ref().map(|sweep| sweep.get_ref().settings());
        let (mut variants, mut labels) = (Vec::new(), Vec::new());
        for values in &self.variants {
            let label = values.label(checks);
            let heading = values.name.as_ref().unwrap_or(&values.kernel);
            if labels.contains(&label) {
                let message =
                    format!("there is a variant `{label}` already, expected another `name`");
                checks.refuse(heading.span(), message);
            }
            let common =
                Common { machine: (&self.machine, machine.as_ref()), workload: &self.workload };
            match &swept {
                None => {
                    let variant = values.finish(&label, common, &[], checks);
                    let published = values.columns(&label, form, checks);
                    variants.extend(variant.map(|variant| Variant { published, ..variant }));
                }
                Some(points) => {
                    if let Some(columns) = &values.published {
                        let message = format!(
                            "`published` of a variant is {}, expected none beside a `[sweep]`: no published column \
                             is of several values",
                            columns.get_ref()
                        );
                        checks.refuse(columns.span(), message);
                    }
                    for (point, settings) in points {
                        let label = Sweep::label(&label, point);
                        variants.extend(values.finish(&label, common, settings, checks));
                    }
                }
            }
            labels.push(label);
        }
        let sweep = self.sweep.as_ref().zip(swept).map(|(sweep, points)| {
            let points = points.into_iter().map(|(values, _)| values).collect();
            sweep.get_ref().finish(labels, points, checks.source)
        });
        let matrix = self.matrix(&variants, checks);
        let demands = self.demands(checks);
        for variant in &mut variants {
            variant.demands.clone_from(&demands);
        }
        self.check_threads(&variants, checks);
        let nr_runs = [variants.len(), seeds.len(), threads.len()].iter().product::<usize>();
        if let Err(message) = limits::RUNS.check(nr_runs as u64) {
            checks.add(InputError::file(&checks.source.path, message));
        }
        Experiment {
            name,
            description: self.description,
            threads,
            seeds,
            sample_interval: Ns(interval * 1_000_000),
            block_lives: self.block_lives,
            published,
            matrix,
            sweep,
            variants,
        }
    }

    /// The parts of variants' names, of which all variants have as many.
    fn matrix(&self, variants: &[Variant], checks: &mut Checks<'_>) -> Vec<String> {
        let Some(parts) = &self.matrix else { return Vec::new() };
        let nr = parts.get_ref().len();
        let parts_of = |variant: &Variant| variant.name.split(BETWEEN_PARTS).count();
        if let Some(variant) = variants.iter().find(|variant| parts_of(variant) != nr || nr == 0) {
            let message = format!(
                "`matrix` has {nr} parts and the variant `{}` {}, expected as many, with `{BETWEEN_PARTS}` \
                 between them",
                variant.name,
                parts_of(variant)
            );
            checks.refuse(parts.span(), message);
        }
        parts.get_ref().clone()
    }

    /// What the kernel wants for itself, which only the model can be made to want.
    fn demands(&self, checks: &mut Checks<'_>) -> Vec<Demand> {
        let mut demands = Vec::new();
        for values in &self.demands {
            if checks.is_for_others {
                let message =
                    "a `[[demand]]` is for the model alone, expected none for host and vm";
                checks.refuse(values.span(), message);
            }
            match values.finish() {
                Ok(demand) => demands.push(demand),
                Err(problems) => {
                    for (span, message) in problems {
                        checks.refuse(span, message);
                    }
                }
            }
        }
        demands
    }

    /// One seed for each repetition.
    fn seeds(&self, checks: &mut Checks<'_>) -> Vec<u64> {
        let iterations = self.iterations.as_ref();
        let first = self.seed.as_ref().map_or(1, |seed| *seed.get_ref());
        let Some(seeds) = &self.seeds else {
            let count = iterations.map_or(1, |n| checks.within("iterations", n, &ITERATIONS));
            return (0..count).map(|n| first.wrapping_add(n)).collect();
        };
        for (key, other) in [("iterations", iterations), ("seed", self.seed.as_ref())] {
            if let Some(other) = other {
                let message =
                    format!("`{key}` beside `seeds`, expected either the list or the other two");
                checks.refuse(other.span(), message);
            }
        }
        let list = seeds.get_ref();
        if list.is_empty() {
            checks.refuse(seeds.span(), "`seeds` is empty, expected at least one");
        }
        if let Some(twice) = first_repeated(list) {
            let message = format!(
                "`seeds` has {twice} twice, expected each once: runs with equal \
                 seeds are the same run"
            );
            checks.refuse(seeds.span(), message);
        }
        list.clone()
    }

    /// Steps of threads are for workloads that have threads, and set what the file must not set as well.
    fn check_threads(&self, variants: &[Variant], checks: &mut Checks<'_>) {
        let Some(threads) = &self.threads else { return };
        if let Some(variant) = variants.iter().find(|v| !v.workload.wants_threads()) {
            let message = format!(
                "`threads` beside the workload `{}`, expected none: it has no number of threads",
                variant.workload.name()
            );
            checks.refuse(threads.span(), message);
        }
        let tables = self.variants.iter().map(|variant| &variant.workload);
        for table in std::iter::once(self.workload.get_ref()).chain(tables) {
            if let Some((key, _)) = table.get_key_value("threads") {
                let message =
                    "`threads` of the workload beside the experiment's, expected one of them";
                checks.refuse(key.span(), message);
            }
        }
    }
}

impl VariantValues {
    /// The name given, or else the kernel's.
    fn label(&self, checks: &mut Checks<'_>) -> String {
        let Some(name) = &self.name else {
            let kernel = self.kernel.get_ref();
            let stem = Path::new(kernel).file_stem().filter(|_| is_path(kernel));
            return stem.map_or(kernel.clone(), |stem| stem.to_string_lossy().into_owned());
        };
        if name.get_ref().trim().is_empty() {
            checks.refuse(name.span(), "`name` is empty, expected what a table shall show");
        }
        if name.get_ref().contains('\n') {
            checks.refuse(name.span(), "`name` has more than one line, expected one");
        }
        if let Err(message) = limits::NAME_CHARS.check(name.get_ref().chars().count() as u64) {
            checks.refuse(name.span(), format!("`name`: {message}"));
        }
        name.get_ref().clone()
    }

    fn finish(
        &self,
        label: &str,
        common: Common<'_>,
        settings: &[Setting<'_>],
        checks: &mut Checks<'_>,
    ) -> Option<Variant> {
        let kernel = checks.kernel(&self.kernel, settings);
        let is_set = settings.iter().any(|setting| setting.place == Place::Machine);
        let machine = match &self.machine {
            Some(name) => checks.machine(name, settings),
            None if is_set => checks.machine(common.machine.0, settings),
            None => common.machine.1.cloned(),
        };
        let machine = machine.map(|machine| self.with_swap(machine, checks));
        let mut knobs = BTreeMap::new();
        let own = self.knobs.iter().map(|(key, value)| (key.get_ref().as_str(), key.span(), value));
        let swept = settings.iter().filter_map(|set| set.within(Place::Knobs));
        for (key, span, value) in own.chain(swept.map(|(key, value)| (key, value.span(), value))) {
            let text = match value.get_ref() {
                toml::Value::String(text) => text.clone(),
                toml::Value::Integer(number) => number.to_string(),
                other => {
                    let found = other.type_str();
                    let message =
                        format!("`{key}` is of type {found}, expected a text or a whole number");
                    checks.refuse(value.span(), message);
                    continue;
                }
            };
            let checked = match (checks.is_for_model, &kernel) {
                (true, Some(kernel)) => check_knob_of(&kernel.policy, &kernel.flows, key, &text),
                (true, None) => check_knob(key, &text),
                (false, _) => Knobs::new("/").path(key).map(drop).map_err(|e| e.to_string()),
            };
            if let Err(message) = checked {
                checks.refuse(span, message);
            }
            knobs.insert(key.to_owned(), text);
        }
        let workload = checks.workload(common.workload, &self.workload, settings);
        if let (Some(machine), Some(workload)) = (&machine, &workload) {
            self.check_disk(machine, workload, common.machine.0, checks);
        }
        Some(Variant {
            name: label.to_owned(),
            machine: machine?,
            drawn: None,
            kernel: kernel?,
            knobs,
            knobs_at_full_scale: BTreeMap::new(),
            workload: workload?,
            demands: Vec::new(),
            published: Vec::new(),
        })
    }

    /// Refuses a workload with files on a machine that has no disk for them.
    fn check_disk(
        &self,
        machine: &Machine,
        workload: &Configured,
        common_machine: &Spanned<String>,
        checks: &mut Checks<'_>,
    ) {
        if !checks.wants_disk || !machine.disks.is_empty() || !workload.needs_files() {
            return;
        }
        let message = format!(
            "the machine `{}` has no disk, expected one with a `[[disk]]`: the workload `{}` needs a file \
             system",
            machine.name,
            workload.name()
        );
        checks.refuse(self.machine.as_ref().unwrap_or(common_machine).span(), message);
    }

    /// The columns of the published tables that the variant stands for.
    fn columns(
        &self,
        label: &str,
        form: Option<&PublishedForm>,
        checks: &mut Checks<'_>,
    ) -> Vec<String> {
        let columns: Vec<&str> =
            form.iter().flat_map(|form| &form.tables).flat_map(|t| t.columns.clone()).collect();
        let Some(values) = &self.published else {
            return columns.contains(&label).then(|| label.to_owned()).into_iter().collect();
        };
        let found = values.get_ref();
        let names: Option<Vec<&str>> = match found {
            toml::Value::String(name) => Some(vec![name]),
            toml::Value::Array(names) => names.iter().map(toml::Value::as_str).collect(),
            _ => None,
        };
        let names = names.filter(|names| names.iter().all(|name| columns.contains(name)));
        let Some(names) = names else {
            let expected = match columns.is_empty() {
                true => "none: the experiment has no published tables".to_owned(),
                false => {
                    let known: BTreeSet<&str> = columns.into_iter().collect();
                    format!("of {}", known.into_iter().collect::<Vec<_>>().join(", "))
                }
            };
            checks.refuse(
                values.span(),
                format!("`published` of a variant is {found}, expected columns {expected}"),
            );
            return Vec::new();
        };
        names.into_iter().map(ToOwned::to_owned).collect()
    }

    /// The machine with the variant's swap: so much on its first area, and no other area.
    fn with_swap(&self, mut machine: Machine, checks: &mut Checks<'_>) -> Machine {
        let Some(swap_mib) = &self.swap_mib else { return machine };
        let mib = *swap_mib.get_ref();
        machine.swap.truncate(if mib > 0 { 1 } else { 0 });
        let Some(area) = machine.swap.first_mut() else {
            if mib > 0 {
                let message = format!(
                    "`swap_mib` is {mib}, expected 0: {} has no swap area to resize",
                    machine.name
                );
                checks.refuse(swap_mib.span(), message);
            }
            return machine;
        };
        let disk = &machine.disks[area.device.0 as usize];
        let most = (disk.capacity_bytes - area.offset_bytes) / MIB;
        if mib > most {
            let message = format!(
                "`swap_mib` is {mib}, expected at most {most}: there disk `{}` ends",
                disk.name
            );
            checks.refuse(swap_mib.span(), message);
        } else {
            area.bytes = mib * MIB;
        }
        machine
    }
}

/// The steps that a file gives: a list, or `{ max = N }`.
fn steps(threads: &Spanned<toml::Value>, checks: &mut Checks<'_>) -> Vec<u32> {
    let expected = format!(
        "a list of thread counts, {}..={}, or {{ max = COUNT }} of one",
        THREADS.start(),
        THREADS.end()
    );
    let count = |value: &toml::Value| {
        let count = value.as_integer().and_then(|n| u32::try_from(n).ok());
        count.filter(|count| THREADS.contains(count))
    };
    let found = threads.get_ref();
    let steps = match found {
        toml::Value::Array(list) => list.iter().map(count).collect(),
        toml::Value::Table(table) if table.len() == 1 => {
            table.get("max").and_then(count).map(thread_steps)
        }
        _ => None,
    };
    let Some(steps) = steps.filter(|steps: &Vec<u32>| !steps.is_empty()) else {
        checks.refuse(threads.span(), format!("`threads` is {found}, expected {expected}"));
        return Vec::new();
    };
    if let Some(twice) = first_repeated(&steps) {
        let message = format!("`threads` has {twice} twice, expected each count once");
        checks.refuse(threads.span(), message);
    }
    steps
}

/// A parameter's value as workloads take it, if it has one of their types.
fn parameter(value: &toml::Value) -> Option<Value> {
    match value {
        toml::Value::Integer(number) => Some(Value::Integer(*number)),
        toml::Value::Float(number) => Some(Value::Float(*number)),
        toml::Value::String(text) => Some(Value::Text(text.clone())),
        toml::Value::Boolean(is_so) => Some(Value::Bool(*is_so)),
        _ => None,
    }
}

fn first_repeated<T: PartialEq>(list: &[T]) -> Option<&T> {
    list.iter().enumerate().find(|(n, value)| list[..*n].contains(value)).map(|(_, value)| value)
}

/// Whether a name is a file's path rather than that of something that comes with the program.
fn is_path(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|e| e == "toml") || name.contains('/')
}

fn names<'a>(built_in: &[(&'a str, &str)]) -> Vec<&'a str> {
    built_in.iter().map(|(name, _)| *name).collect()
}
