//! Workloads, written once as plain blocking code against [`highorder_system::System`].
//!
//! | name | what it does |
//! | --- | --- |
//! | `churn` | threads map, touch and unmap areas of random sizes around a given live set |
//! | `dd` | one file is written from beginning to end, and read again |
//! | `fleet` | services keep a machine nearly full, and replace areas and files period after period |
//! | `fsmark` | threads write files of one size, iteration after iteration |
//! | `memhog` | one process writes its memory once and sleeps with it |
//! | `micro` | processes write every page of sparse files that they have mapped |
//! | `mmap-demo` | one thread on one node's CPUs fills a buffer larger than that node |
//! | `numa-thp-bench` | one thread writes at random, with huge pages and without, near and far |
//! | `postmark` | files of random sizes are created, read, made longer and deleted |
//! | `small-files` | very many small files are written, read at random, and deleted |
//! | `stress-highalloc` | a module asks for most of memory in huge pages, pass after pass |
//! | `stutter` | mappings of 128 MiB are timed while most of memory is taken and a file is copied |
//! | `thpfioscale` | threads ask for huge pages while very many small files are read |
//! | `thpscale` | threads ask for huge pages in memory full of holes and page cache |
//! | `usemem` | threads write to each page of their memory, while others read a mapped file |
//!
//! A workload is a table of parameters and a function. [`find`] checks values against the table and gives
//! a [`Configured`] workload, whose [`Configured::code`] any system runs.
//!
//! A process of a workload that is killed because memory ran out is a result, not an error: it is reported
//! as a row `Killed`, and times of work that was not done are not reported. What a system refuses is an
//! error of the run.
//!
//! ```
//! use highorder_workload::{Value, find};
//! use std::collections::BTreeMap;
//!
//! let values = BTreeMap::from([("memory".to_owned(), Value::Float(0.8))]);
//! let usemem = find("usemem", &values).unwrap().with_threads(48);
//! assert_eq!(usemem.values()["passes"], "30");
//! ```

mod background;
mod churn;
mod dd;
mod files;
mod fleet;
mod fragment;
mod fsmark;
mod kernel_build;
mod memhog;
mod micro;
mod mmap_demo;
mod numa_thp_bench;
mod parameters;
mod postmark;
mod process;
pub mod recorded;
mod small_files;
mod stress_highalloc;
mod stutter;
mod thpfioscale;
mod thpscale;
mod trees;
mod usemem;

pub use parameters::{ParameterError, ParameterInfo, Value};

use highorder_system::{Code, Failure, System};
use parameters::{Parameter, Setting, Settings};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A workload: its parameters and what it does.
#[derive(Debug)]
struct Workload {
    name: &'static str,
    /// What it does, in one line.
    about: &'static str,
    parameters: &'static [Parameter],
    /// Those that it looks at in [`Settings::later`] alone: what it does until then serves all runs that differ in
    /// nothing else.
    late: &'static [&'static str],
    /// Says what is wrong with values that are each possible, but not together.
    check: fn(&Settings) -> Result<(), ParameterError>,
    run: fn(&mut dyn System, &Settings) -> Result<(), Failure>,
    /// Whether it needs a file system, with these values.
    needs_files: fn(&Settings) -> bool,
}

const WORKLOADS: [&Workload; 15] = [
    &churn::WORKLOAD,
    &dd::WORKLOAD,
    &fleet::WORKLOAD,
    &fsmark::WORKLOAD,
    &memhog::WORKLOAD,
    &micro::WORKLOAD,
    &mmap_demo::WORKLOAD,
    &numa_thp_bench::WORKLOAD,
    &postmark::WORKLOAD,
    &small_files::WORKLOAD,
    &stress_highalloc::WORKLOAD,
    &stutter::WORKLOAD,
    &thpfioscale::WORKLOAD,
    &thpscale::WORKLOAD,
    &usemem::WORKLOAD,
];

const NAMES: [&str; WORKLOADS.len()] = {
    let mut names = [""; WORKLOADS.len()];
    let mut n = 0;
    while n < names.len() {
        names[n] = WORKLOADS[n].name;
        n += 1;
    }
    names
};

/// The parameter that [`Configured::with_threads`] sets.
const THREADS: &str = "threads";

/// The workloads there are, in alphabetical order.
#[must_use]
pub fn names() -> &'static [&'static str] {
    &NAMES
}

/// What a user is told of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadInfo {
    /// Its name in experiments.
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// Its parameters, in alphabetical order.
    pub parameters: Vec<ParameterInfo>,
}

/// What there is to say of the workload of this name.
#[must_use]
pub fn describe(name: &str) -> Option<WorkloadInfo> {
    let workload = WORKLOADS.into_iter().find(|workload| workload.name == name)?;
    let mut parameters: Vec<_> = workload.parameters.iter().map(Parameter::info).collect();
    parameters.sort_by_key(|parameter| parameter.name);
    Some(WorkloadInfo { name: workload.name, about: workload.about, parameters })
}

/// The workload of this name with these values of its parameters; what is not given has its default.
///
/// # Errors
/// An unknown workload or parameter, or a value that is impossible: what was found and what was expected.
pub fn find(name: &str, values: &BTreeMap<String, Value>) -> Result<Configured, ParameterError> {
    let workload = WORKLOADS.into_iter().find(|workload| workload.name == name);
    let workload = workload.ok_or_else(|| ParameterError {
        key: None,
        message: format!("no workload `{name}`, {}", highorder_input::expected(name, &NAMES)),
    })?;
    let settings = Settings::read(workload.name, workload.parameters, values)?;
    (workload.check)(&settings)?;
    Ok(Configured { workload, settings })
}

/// A workload with values for all its parameters.
#[derive(Clone, Debug)]
pub struct Configured {
    workload: &'static Workload,
    settings: Settings,
}

impl Configured {
    /// The workload's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.workload.name
    }

    /// All parameters, defaults included, as canonical text: equal texts mean equal work.
    #[must_use]
    pub fn values(&self) -> BTreeMap<String, String> {
        self.settings.iter().map(|(name, value)| (name.to_owned(), value.to_string())).collect()
    }

    /// Whether it has a number of threads, which steps of threads then set.
    #[must_use]
    pub fn wants_threads(&self) -> bool {
        self.workload.parameters.iter().any(|parameter| parameter.name == THREADS)
    }

    /// Whether it needs a file system: on a machine without one it can do nothing.
    #[must_use]
    pub fn needs_files(&self) -> bool {
        (self.workload.needs_files)(&self.settings)
    }

    /// The same with this many threads, at least one; the same as it was if it has no such number.
    #[must_use]
    pub fn with_threads(mut self, threads: u32) -> Self {
        if self.wants_threads() {
            self.settings.set(THREADS, Setting::Count(u64::from(threads.max(1))));
        }
        self
    }

    /// The same on a machine with `numerator / denominator` of the memory: sizes in bytes shrink in
    /// proportion, but not to nothing. Shares of memory and counts stay.
    ///
    /// # Panics
    /// If the denominator is 0.
    #[must_use]
    pub fn scaled(mut self, numerator: u32, denominator: u32) -> Self {
        assert!(denominator > 0, "a scale of {numerator}/0");
        self.settings.scale(numerator, denominator);
        self
    }

    /// What its first thread runs.
    #[must_use]
    pub fn code(&self) -> Code {
        let Self { workload, settings } = self.clone();
        Box::new(move |sys| (workload.run)(sys, &settings))
    }

    /// What of its parameters matters until its system parts ([`System::part`]): workloads of one name for which this
    /// is equal do the same until then. `None` if all of them matter from the start.
    #[must_use]
    pub fn values_at_first(&self) -> Option<BTreeMap<String, String>> {
        let late = self.workload.late;
        let is_early = |(name, _): &(String, String)| !late.contains(&name.as_str());
        (!late.is_empty()).then(|| self.values().into_iter().filter(is_early).collect())
    }

    /// As [`Self::code`], for a system that parts: which workload it goes on as then has to be chosen by the time that
    /// [`System::part`] returns.
    #[must_use]
    pub fn code_until_chosen(&self, choice: &Choice) -> Code {
        let Self { workload, settings } = self.clone();
        let settings = settings.until_chosen(workload.late, choice);
        Box::new(move |sys| (workload.run)(sys, &settings))
    }
}

/// Which workload a run goes on as that was alike for several.
#[derive(Clone, Debug, Default)]
pub struct Choice(Arc<Mutex<Option<Settings>>>);

impl Choice {
    /// Has the run go on as this one.
    pub fn choose(&self, workload: &Configured) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(workload.settings.clone());
    }

    fn chosen(&self) -> Option<Settings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
