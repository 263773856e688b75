//! The run matrix: every run of an experiment, over all cores, into a store.
//!
//! A run is on one core from beginning to end and shares nothing with the others, so what a store holds
//! in the end does not depend on the number of workers, on what was there before, or on interruptions.

use crate::experiment::{Experiment, Scale, Variant};
use crate::run_inputs::{kernel_values, machine_values};
use crate::{InputError, Kernel};
use highorder_record::{Inputs, Named, Record, Source, Store, StoreError};
use highorder_sim::{Machine, Ns, RunError};
use highorder_system::model::{self, ModelSpec};
use highorder_workload::Configured;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// All runs of an experiment at one scale.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The runs: by step of threads, then seed, then variant, so that what is compared comes together.
    pub runs: Vec<Run>,
    /// The variants' names, the base first.
    pub variants: Vec<String>,
}

/// One run that is to be.
#[derive(Clone, Debug)]
pub struct Run {
    /// What determines it.
    pub inputs: Inputs,
    /// Which of the plan's variants it belongs to.
    pub variant: usize,
    machine: Machine,
    kernel: Kernel,
    knobs: BTreeMap<String, String>,
    workload: Configured,
    sample_interval: Ns,
}

/// Who looks on while runs are made, from whatever thread.
pub trait Watch: Sync {
    /// A run begins.
    fn begun(&self, run: &Run) {
        let _ = run;
    }

    /// A run has ended, and its record is in the store.
    fn ended(&self, run: &Run, record: &Record) {
        let _ = (run, record);
    }

    /// Whether no more runs shall begin.
    fn should_stop(&self) -> bool {
        false
    }
}

/// Nobody looks on.
impl Watch for () {}

/// How far [`Plan::execute`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Executed {
    /// Runs that the store had already.
    pub nr_there: usize,
    /// Runs that were made.
    pub nr_made: usize,
    /// Runs that were not begun, because they were to stop.
    pub nr_left: usize,
}

/// Why a plan could not be carried out. What was made until then is in the store.
#[derive(Debug)]
pub enum ExecuteError {
    /// The store could not be read or written.
    Store(StoreError),
    /// A run could not go on.
    Run {
        /// What a person would call the run.
        name: String,
        /// Why.
        error: RunError,
    },
}

impl fmt::Display for ExecuteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Run { name, error } => write!(f, "run {name}: {error}"),
        }
    }
}

impl std::error::Error for ExecuteError {}

impl From<StoreError> for ExecuteError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Experiment {
    /// All its runs, with memory and sizes at `scale`.
    ///
    /// # Errors
    /// The scale leaves a variant no machine that could run.
    pub fn plan(&self, scale: Scale) -> Result<Plan, InputError> {
        let scaled: Vec<Variant> =
            self.variants.iter().map(|variant| variant.scaled(scale)).collect::<Result<_, _>>()?;
        let mut runs = Vec::new();
        for &threads in &self.threads {
            for &seed in &self.seeds {
                for (number, variant) in scaled.iter().enumerate() {
                    runs.push(self.run(variant, number, threads, seed, scale));
                }
            }
        }
        Ok(Plan { runs, variants: self.variants.iter().map(|v| v.name.clone()).collect() })
    }

    fn run(
        &self,
        variant: &Variant,
        number: usize,
        threads: Option<u32>,
        seed: u64,
        scale: Scale,
    ) -> Run {
        let workload = match threads {
            Some(threads) => variant.workload.clone().with_threads(threads),
            None => variant.workload.clone(),
        };
        // Runs shorten as memory does: so there are about as many samples at any scale.
        let interval = u128::from(self.sample_interval.0) * u128::from(scale.numerator())
            / u128::from(scale.denominator());
        let sample_interval = Ns((interval as u64).max(1));
        let inputs = Inputs {
            source: Source::Model,
            experiment: self.name.clone(),
            experiment_text: format!("sample_interval_ns = {}\n", sample_interval.0),
            machine: Named {
                name: variant.machine.name.clone(),
                values: machine_values(&variant.machine),
            },
            kernel: Named {
                name: variant.name.clone(),
                values: kernel_values(&variant.kernel, &variant.knobs),
            },
            workload: Named { name: workload.name().to_owned(), values: workload.values() },
            seed,
            // On the model repetitions differ by their seeds alone.
            iteration: 0,
            scale: scale.into(),
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        Run {
            inputs,
            variant: number,
            machine: variant.machine.clone(),
            kernel: variant.kernel.clone(),
            knobs: variant.knobs.clone(),
            workload,
            sample_interval,
        }
    }
}

impl Variant {
    fn scaled(&self, scale: Scale) -> Result<Self, InputError> {
        let (numerator, denominator) = (scale.numerator(), scale.denominator());
        Ok(Self {
            machine: self.machine.scaled(numerator, denominator)?,
            workload: self.workload.clone().scaled(numerator, denominator),
            ..self.clone()
        })
    }
}

impl Run {
    /// Makes the run, on this thread.
    ///
    /// # Errors
    /// A task of the simulation panicked, or nothing would ever have happened again.
    pub fn make(&self) -> Result<Record, RunError> {
        let spec = ModelSpec {
            machine: self.machine.clone(),
            policy: self.kernel.policy.clone(),
            flows: self.kernel.flows.clone(),
            knobs: self.knobs.clone(),
            seed: self.inputs.seed,
            sample_interval: self.sample_interval,
        };
        model::run(spec, self.inputs.clone(), self.workload.code())
    }
}

impl Plan {
    /// The runs that a store does not have.
    #[must_use]
    pub fn missing(&self, store: &Store) -> Vec<&Run> {
        self.runs.iter().filter(|run| !store.has(&run.inputs)).collect()
    }

    /// Makes the runs that the store does not have, as many at once as there are workers.
    ///
    /// # Errors
    /// The failure of the first run in the plan's order that failed; runs under way are finished.
    pub fn execute(
        &self,
        store: &Store,
        workers: NonZeroUsize,
        watch: &dyn Watch,
    ) -> Result<Executed, ExecuteError> {
        let missing = self.missing(store);
        let (next, nr_made) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let failures: Mutex<Vec<(usize, ExecuteError)>> = Mutex::default();
        let work = || {
            loop {
                let has_failed = !lock(&failures).is_empty();
                if has_failed || watch.should_stop() {
                    return;
                }
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(run) = missing.get(number) else { return };
                watch.begun(run);
                match make_and_put(run, store) {
                    Ok(record) => {
                        nr_made.fetch_add(1, Ordering::Relaxed);
                        watch.ended(run, &record);
                    }
                    Err(error) => lock(&failures).push((number, error)),
                }
            }
        };
        thread::scope(|scope| {
            for _ in 0..workers.get().min(missing.len()) {
                scope.spawn(work);
            }
        });
        let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, error)) = failures.into_iter().min_by_key(|(number, _)| *number) {
            return Err(error);
        }
        let nr_made = nr_made.into_inner();
        Ok(Executed {
            nr_there: self.runs.len() - missing.len(),
            nr_made,
            nr_left: missing.len() - nr_made,
        })
    }

    /// The records that a store has of this plan, for each variant, in the plan's order.
    ///
    /// # Errors
    /// A record cannot be read, or was damaged.
    pub fn records(&self, store: &Store) -> Result<Vec<Vec<Record>>, StoreError> {
        let entries = store.list()?;
        let entries: BTreeMap<_, _> = entries.iter().map(|entry| (entry.identity, entry)).collect();
        let mut records = vec![Vec::new(); self.variants.len()];
        for run in &self.runs {
            if let Some(entry) = entries.get(&run.inputs.identity()) {
                records[run.variant].push(store.read(entry)?);
            }
        }
        Ok(records)
    }
}

fn make_and_put(run: &Run, store: &Store) -> Result<Record, ExecuteError> {
    let made = run.make();
    let record =
        made.map_err(|error| ExecuteError::Run { name: run.inputs.readable_name(), error })?;
    store.put(&record)?;
    Ok(record)
}

/// Locks; a worker that panicked ends the program in any case.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
