//! The run matrix: every run of an experiment, over all cores, into a store.
//!
//! A run on the model is on one core from beginning to end. It shares at most its beginning with others that are alike
//! at first, so what a store holds of them in the end does not depend on the number of workers, on what was there
//! before, or on interruptions. Those on real kernels come after them: first guests, few at once, then the host's, alone.

use crate::experiment::{Experiment, Scale, Variant};
use crate::family::{self, Idle, Made, families};
use crate::run_inputs::{kernel_values, machine_values};
use crate::start::Start;
use crate::target::{NO_FOLDER, Ready, Real, RealError, RealOptions, Target, different};
use crate::trace_text::{self, Whose};
use crate::{block_lives, memory_map};
use highorder_input::InputError;
use highorder_kernels::KernelFile;
use highorder_mm::Memory;
use highorder_model::{self as model, Found, ModelSpec, knob_scaling};
use highorder_record::{Identity, Inputs, Named, Record, Source, Store, StoreError};
use highorder_sim::kernel::Kernel;
use highorder_sim::kernel::demand::Demand;
use highorder_sim::{Machine, Ns, RunError};
use highorder_workload::Configured;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Values by name.
type Values = BTreeMap<String, String>;

/// All runs of an experiment at one scale.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The runs: by step of threads, then seed, then boot, then column, so that what is compared comes
    /// together.
    pub runs: Vec<Run>,
    /// The columns' names, the base first: variants by targets.
    pub columns: Vec<String>,
}

/// One run that is to be.
#[derive(Clone, Debug)]
pub struct Run {
    /// What determines it.
    pub inputs: Inputs,
    /// Which of the plan's columns it belongs to.
    pub column: usize,
    /// None on the model.
    real: Option<Real>,
    machine: Machine,
    kernel: KernelFile,
    knobs: BTreeMap<String, String>,
    /// What a reader of its results should know.
    notes: Vec<String>,
    demands: Vec<Demand>,
    workload: Configured,
    sample_interval: Ns,
    /// Its record is to show what became of pageblocks.
    shows_blocks: bool,
    /// Invariants are checked on the way.
    is_checked: bool,
    /// The memory that it begins in, if that is not a machine's at boot.
    start: Option<Arc<Start>>,
}

/// What runs have in common that take about as long.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunKind {
    /// What is run, and where: the workload, the machine and the kind of system.
    pub workload: String,
    /// The workload's parameters, but for the number of threads, which share the work.
    pub values: String,
}

/// Who looks on while runs are made, from whatever thread.
pub trait Watch: Sync {
    /// A run begins.
    fn begun(&self, run: &Run) {
        let _ = run;
    }

    /// A run has ended, and its record is in the store; its model, if it had one, was of this size.
    fn ended(&self, run: &Run, record: &Record, size: Option<ModelSize>) {
        let _ = (run, record, size);
    }

    /// Whether a run on the model, though it may be in the store already, is to be made for its events.
    fn wants_trace(&self, run: &Run) -> bool {
        let _ = run;
        false
    }

    /// The events of a run that were wanted, as ftrace's text. Whether the runs go on.
    fn traced(&self, run: &Run, text: &[u8]) -> bool {
        let _ = (run, text);
        true
    }

    /// Whether no more runs shall begin.
    fn should_stop(&self) -> bool {
        false
    }
}

/// What a model of a machine's memory takes on the machine that it runs on: no part of a record, for it
/// says nothing of what was modelled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModelSize {
    /// Frames of the modelled machine, holes included.
    pub nr_frames: u64,
    /// Bytes of the frame table.
    pub frame_table_bytes: u64,
    /// Bytes a frame, of the frame table and the pageblocks together.
    pub bytes_per_frame: f64,
}

impl ModelSize {
    fn of(memory: &Memory) -> Self {
        Self {
            nr_frames: memory.frames().len() as u64,
            frame_table_bytes: memory.frames().bytes() as u64,
            bytes_per_frame: memory.bytes_per_frame(),
        }
    }

    pub(crate) const BYTES: usize = 24;

    /// For another process of this program.
    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let Self { nr_frames, frame_table_bytes, bytes_per_frame } = self;
        let words = [nr_frames, frame_table_bytes, bytes_per_frame.to_bits()];
        let mut bytes = [0; Self::BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// What [`Self::to_bytes`] made.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        let bytes_per_frame = f64::from_bits(word(16)?);
        Some(Self { nr_frames: word(0)?, frame_table_bytes: word(8)?, bytes_per_frame })
    }
}

/// What is done with a run's events, as ftrace's text.
type OnTrace<'a> = dyn FnMut(&[u8]) + 'a;

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
    /// A real kernel left no record of a run.
    Real {
        /// What a person would call the run.
        name: String,
        /// Why.
        error: RealError,
    },
}

impl fmt::Display for ExecuteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Run { name, error } => write!(f, "run {name}: {error}"),
            Self::Real { name, error } => write!(f, "run {name}: {error}"),
        }
    }
}

impl std::error::Error for ExecuteError {}

impl From<StoreError> for ExecuteError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Why what was asked for has no answer.
#[derive(Debug)]
pub enum Failed {
    /// What was given cannot be used.
    Input(InputError),
    /// A run of it could not be made.
    Run(ExecuteError),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(error) => error.fmt(f),
            Self::Run(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Failed {}

impl From<InputError> for Failed {
    fn from(error: InputError) -> Self {
        Self::Input(error)
    }
}

impl From<ExecuteError> for Failed {
    fn from(error: ExecuteError) -> Self {
        Self::Run(error)
    }
}

impl Experiment {
    /// All its runs on the model, with memory and sizes at `scale`.
    ///
    /// # Errors
    /// The scale leaves a variant no machine that could run.
    pub fn plan(&self, scale: Scale) -> Result<Plan, InputError> {
        self.plan_on(&[Target::Model], scale, &RealOptions::default())
    }

    /// All its runs on each of the targets, with memory and sizes at `scale`.
    ///
    /// # Errors
    /// The scale leaves a variant no machine that could run, or a target is not there or was given twice.
    pub fn plan_on(
        &self,
        targets: &[Target],
        scale: Scale,
        options: &RealOptions,
    ) -> Result<Plan, InputError> {
        let scaled: Vec<Variant> =
            self.variants.iter().map(|variant| variant.scaled(scale)).collect::<Result<_, _>>()?;
        let (mut columns, mut labels) = (Vec::new(), Vec::new());
        for (number, target) in targets.iter().enumerate() {
            if targets[..number].contains(target) {
                return Err(InputError::other(format!("{target} was given twice, expected once")));
            }
            if *target == Target::Host && options.host_folder.is_none() {
                check_needs_no_folder(&scaled)?;
            }
            let ready = target.ready(options, scale)?;
            let is_model = *target == Target::Model;
            let name = target.name();
            let is_name_of_others = targets.iter().filter(|other| other.name() == name).count() > 1;
            let heading = if is_name_of_others { target.to_string() } else { name.clone() };
            let variants = if is_model { (0..scaled.len()).collect() } else { different(&scaled) };
            for variant in variants.into_iter().map(|number| &scaled[number]) {
                labels.push(match is_model && targets.len() == 1 {
                    true => variant.name.clone(),
                    false => target.column(&heading, variant),
                });
                columns.push((ready.clone(), variant, target.column(&name, variant)));
            }
        }
        let nr_boots = if columns.iter().all(|(ready, ..)| matches!(ready, Ready::Model)) {
            1
        } else {
            options.boots
        };
        let mut runs = Vec::new();
        for &threads in &self.threads {
            for &seed in &self.seeds {
                for boot in 0..nr_boots {
                    for (number, (ready, variant, name)) in columns.iter().enumerate() {
                        let mut run = self.run(variant, number, threads, seed, scale);
                        let real = ready.real(
                            name.clone(),
                            variant,
                            options,
                            seed,
                            run.sample_interval,
                        )?;
                        match real {
                            // On the model repetitions differ by their seeds alone.
                            None if boot > 0 => continue,
                            None => {}
                            Some((machine, kernel, real)) => {
                                let source = match real {
                                    Real::Host(_) => Source::Host,
                                    Real::Vm(_) => Source::Vm,
                                };
                                run.inputs = Inputs {
                                    source,
                                    machine,
                                    kernel,
                                    iteration: boot,
                                    ..run.inputs
                                };
                                run.real = Some(real);
                            }
                        }
                        runs.push(run);
                    }
                }
            }
        }
        Ok(Plan { runs, columns: labels })
    }

    /// A run on the model.
    fn run(
        &self,
        variant: &Variant,
        column: usize,
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
            experiment_text: format!(
                "sample_interval_ns = {}\n{}",
                sample_interval.0,
                demands_text(&variant.demands)
            ),
            machine: Named {
                name: variant.machine_name(),
                values: machine_values(&variant.machine),
            },
            kernel: Named {
                name: variant.name.clone(),
                values: kernel_values(&variant.kernel, &variant.knob_texts()),
            },
            workload: Named { name: workload.name().to_owned(), values: workload.values() },
            seed,
            iteration: 0,
            scale: scale.into(),
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            program_sources: String::new(),
        };
        Run {
            inputs,
            column,
            real: None,
            machine: variant.machine.clone(),
            kernel: variant.kernel.clone(),
            knobs: variant.knobs.clone(),
            notes: variant.knob_notes(),
            demands: variant.demands.clone(),
            workload,
            sample_interval,
            shows_blocks: self.block_lives,
            is_checked: false,
            start: None,
        }
    }
}

/// Refuses workloads with files on a host that has no folder for them.
fn check_needs_no_folder(variants: &[Variant]) -> Result<(), InputError> {
    let Some(variant) = variants.iter().find(|variant| variant.workload.needs_files()) else {
        return Ok(());
    };
    let name = variant.workload.name();
    Err(InputError::other(format!("the workload `{name}` needs files, and {NO_FOLDER}")))
}

/// Demands as text: equal texts mean equal demands.
fn demands_text(demands: &[Demand]) -> String {
    let lines = demands.iter().map(|demand| {
        let Demand { kind, order, bytes, sleeps, gap, lifetime } = demand;
        let size = if *bytes > 0 { format!(" size {bytes}") } else { String::new() };
        format!(
            "demand = {} order {}{size} sleeps {sleeps} gap_ns {} lifetime_ns {}\n",
            kind.name(),
            order.0,
            gap.0,
            lifetime.0
        )
    });
    lines.collect()
}

impl Variant {
    fn scaled(&self, scale: Scale) -> Result<Self, InputError> {
        let (numerator, denominator) = (scale.numerator(), scale.denominator());
        let (knobs, knobs_at_full_scale) = self.scaled_knobs(scale)?;
        Ok(Self {
            machine: self.machine.scaled(numerator, denominator)?,
            knobs,
            knobs_at_full_scale,
            workload: self.workload.clone().scaled(numerator, denominator),
            demands: self
                .demands
                .iter()
                .map(|demand| demand.scaled(numerator, denominator))
                .collect(),
            ..self.clone()
        })
    }
}

impl Variant {
    /// The knobs at a scale, and the former values of those that it changes.
    fn scaled_knobs(&self, scale: Scale) -> Result<(Values, Values), InputError> {
        let (mut scaled, mut at_full_scale) = (self.knobs.clone(), BTreeMap::new());
        for (name, value) in &mut scaled {
            let (numerator, denominator) = (scale.numerator(), scale.denominator());
            let new = knob_scaling::scaled(name, value, numerator, denominator);
            let new = new.map_err(|why| {
                InputError::other(format!("scale {scale} of the variant `{}`: {why}", self.name))
            })?;
            if new != *value {
                at_full_scale.insert(name.clone(), std::mem::replace(value, new));
            }
        }
        Ok((scaled, at_full_scale))
    }

    /// What tables call its machine.
    fn machine_name(&self) -> String {
        match self.drawn {
            None => self.machine.name.clone(),
            Some(number) => format!("{}, machine {number}", self.machine.name),
        }
    }

    /// The knobs as inputs of a run tell them.
    pub(crate) fn knob_texts(&self) -> Values {
        let text = |(name, value): (&String, &String)| {
            let text = match self.knobs_at_full_scale.get(name) {
                Some(full) => format!("{value}, scaled from {full}"),
                None => value.clone(),
            };
            (name.clone(), text)
        };
        self.knobs.iter().map(text).collect()
    }

    /// What a reader of a run's results should know of knobs that were scaled.
    fn knob_notes(&self) -> Vec<String> {
        let note = |(name, full): (&String, &String)| {
            format!("{name} is {}, scaled from {full} as memory is", self.knobs[name])
        };
        self.knobs_at_full_scale.iter().map(note).collect()
    }
}

impl Run {
    /// What it has in common with runs that take about as long.
    #[must_use]
    pub fn kind(&self) -> RunKind {
        let Inputs { source, workload, .. } = &self.inputs;
        let values = workload.values.iter().filter(|(name, _)| *name != "threads");
        RunKind {
            workload: format!("{source:?} {} {}", self.machine.name, workload.name),
            values: format!("{:?}", values.collect::<Vec<_>>()),
        }
    }

    /// Whether it is on the model.
    #[must_use]
    pub const fn is_model(&self) -> bool {
        self.real.is_none()
    }

    /// Has it begin in the memory of a machine that was looked at.
    pub(crate) fn begin_in(&mut self, start: &Arc<Start>) -> Result<(), InputError> {
        if self.real.is_some() {
            let name = self.inputs.readable_name();
            return Err(InputError::other(format!(
                "run {name} is on a real kernel, expected the model: only its memory can begin as {}",
                start.name
            )));
        }
        self.machine = start.machine(&self.machine)?;
        self.found(start)?;
        self.inputs.machine.values = machine_values(&self.machine);
        self.inputs.machine.name = format!("{} in {}", self.inputs.machine.name, start.name);
        self.inputs.machine.values.insert("begins_in".to_owned(), start.identity.clone());
        self.notes.push(format!(
            "begins in the memory of {}, with the knobs of the experiment",
            start.name
        ));
        self.start = Some(start.clone());
        Ok(())
    }

    fn found(&self, start: &Start) -> Result<Found, InputError> {
        let mut found = start.found(&self.kernel, &self.machine)?;
        found.sets_marks = model::sets_marks(self.knobs.keys());
        Ok(found)
    }

    /// What it runs.
    pub(crate) const fn workload(&self) -> &Configured {
        &self.workload
    }

    /// Whether its record is to show what became of pageblocks.
    pub(crate) const fn shows_blocks(&self) -> bool {
        self.shows_blocks
    }

    /// Whether what it does at first may serve others, too: nobody looks at it or keeps something of it meanwhile.
    const fn may_share(&self) -> bool {
        self.real.is_none() && self.start.is_none() && !self.is_checked
    }

    /// Everything that determines it on the model, but the workload.
    pub(crate) fn model_spec(&self) -> ModelSpec {
        ModelSpec {
            machine: self.machine.clone(),
            policy: self.kernel.policy.clone(),
            flows: self.kernel.flows.clone(),
            knobs: self.knobs.clone(),
            seed: self.inputs.seed,
            demands: self.demands.clone(),
            sample_interval: self.sample_interval,
            draw: Some(memory_map::draw),
            watch: self.shows_blocks.then_some(block_lives::watch),
        }
    }

    /// Puts into a store what a model left of it.
    pub(crate) fn put(
        &self,
        mut record: Record,
        kernel: &Kernel,
        store: &Store,
    ) -> Result<ModelSize, StoreError> {
        self.finish(&mut record);
        store.put(&record)?;
        Ok(ModelSize::of(&kernel.memory))
    }

    /// Adds to its record what its plan knows of it.
    fn finish(&self, record: &mut Record) {
        record.notes.splice(0..0, self.notes.iter().cloned());
        record.column = Some(self.column as u32);
    }

    /// Makes the run, on this thread; a model's record has a picture of memory. `traced` is given its
    /// events, if that is wanted.
    fn make(
        &self,
        traced: Option<&mut OnTrace<'_>>,
    ) -> Result<(Record, Option<ModelSize>), ExecuteError> {
        let (mut record, size) = self.make_unfinished(traced)?;
        self.finish(&mut record);
        Ok((record, size))
    }

    fn make_unfinished(
        &self,
        traced: Option<&mut OnTrace<'_>>,
    ) -> Result<(Record, Option<ModelSize>), ExecuteError> {
        let name = || self.inputs.readable_name();
        if let Some(real) = &self.real {
            let made = real.make(self.inputs.clone(), &self.workload);
            let made = made.map_err(|error| ExecuteError::Real { name: name(), error })?;
            return Ok((made, None));
        }
        let spec = self.model_spec();
        let failed = |error| ExecuteError::Run { name: name(), error };
        let code = self.workload.code();
        if let Some(start) = &self.start {
            let found =
                self.found(start).expect("the plan has looked whether the kernel can have it");
            let made = model::run_from(found, spec, self.inputs.clone(), code).map_err(failed)?;
            return Ok((made.0, Some(ModelSize::of(&made.1.memory))));
        }
        let Some(traced) = traced else {
            let run = if self.is_checked { model::run_checked } else { model::run_on };
            let made = run(spec, self.inputs.clone(), code);
            let (record, world) = made.map_err(failed)?;
            return Ok((record, Some(ModelSize::of(&world.memory))));
        };
        let made = model::run_traced(spec, self.inputs.clone(), code);
        let (record, world, trace) = made.map_err(failed)?;
        let memory = &world.memory;
        let zones = memory.zones.iter().map(|zone| (zone.node, zone.kind, zone.start..zone.end));
        let whose = Whose {
            release: &self.kernel.release,
            tasks: &trace.tasks,
            zones: &zones.collect::<Vec<_>>(),
            nr_cpus: memory.machine.cpu_nodes.len() as u32,
        };
        traced(&trace_text::text(&trace.events, whose));
        Ok((record, Some(ModelSize::of(memory))))
    }
}

impl Plan {
    /// The runs that a store does not have.
    #[must_use]
    pub fn missing(&self, store: &Store) -> Vec<&Run> {
        self.runs.iter().filter(|run| !store.has(&run.inputs)).collect()
    }

    /// Makes the runs that the store does not have, as many at once as there are workers; of those that it has,
    /// it writes down in which column they stand now.
    ///
    /// # Errors
    /// The failure of the first run that failed, in the order in which they are begun; runs under way are finished.
    pub fn execute(
        &self,
        store: &Store,
        workers: NonZeroUsize,
        watch: &dyn Watch,
    ) -> Result<Executed, ExecuteError> {
        self.note_columns(store)?;
        let is_wanted =
            |run: &&Run| !store.has(&run.inputs) || run.is_model() && watch.wants_trace(run);
        let missing: Vec<_> = self.runs.iter().filter(is_wanted).collect();
        let nr_missing = missing.len();
        let (mut model, mut guests, mut host) = (Vec::new(), Vec::new(), Vec::new());
        for run in missing {
            match run.real {
                None => model.push(run),
                Some(Real::Vm(_)) => guests.push(run),
                Some(Real::Host(_)) => host.push(run),
            }
        }
        let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let mut nr_made = 0;
        // One of each kind first: then it is known early how long the others will take. No run depends on another.
        let model = first_of_each_kind_first(model);
        for runs in [model, guests, host] {
            let real = runs.iter().filter_map(|run| run.real.as_ref());
            let at_once = real.map(|real| real.at_once(cpus)).min();
            let workers = workers.get().min(at_once.unwrap_or(usize::MAX));
            let nr_of_these = make_all(&runs, store, workers, watch)?;
            nr_made += nr_of_these;
            if nr_of_these < runs.len() {
                break;
            }
        }
        Ok(Executed {
            nr_there: self.runs.len() - nr_missing,
            nr_made,
            nr_left: nr_missing - nr_made,
        })
    }

    /// Writes down in which column each run stands that a store has, so that whoever compares its records later
    /// has them in this order.
    ///
    /// # Errors
    /// A record cannot be read or written.
    pub fn note_columns(&self, store: &Store) -> Result<(), StoreError> {
        for run in &self.runs {
            store.set_column(&run.inputs, run.column as u32)?;
        }
        Ok(())
    }

    /// The same plan, of a program that was built from sources with this hash.
    #[must_use]
    pub fn of_program(mut self, sources: &str) -> Self {
        self.runs.iter_mut().for_each(|run| sources.clone_into(&mut run.inputs.program_sources));
        self
    }

    /// Takes for runs that the store does not have what another build of the program left of the same inputs; returns
    /// for how many.
    ///
    /// # Errors
    /// A record cannot be read, or was damaged.
    pub fn reuse_old(&mut self, store: &Store) -> Result<usize, StoreError> {
        let mut nr_reused = 0;
        for run in &mut self.runs {
            if !store.has(&run.inputs)
                && let Some(record) = store.of_another_program(&run.inputs)?
            {
                run.inputs = record.inputs;
                nr_reused += 1;
            }
        }
        Ok(nr_reused)
    }

    /// The same plan, of which runs on the model check every invariant whenever they sample the timeline.
    #[must_use]
    pub fn checked(mut self) -> Self {
        self.runs.iter_mut().for_each(|run| run.is_checked = true);
        self
    }

    /// The records that a store has of this plan, for each column, in the plan's order.
    ///
    /// # Errors
    /// A record cannot be read, or was damaged.
    pub fn records(&self, store: &Store) -> Result<Vec<Vec<Record>>, StoreError> {
        let entries = store.list()?;
        let entries: BTreeMap<_, _> = entries.iter().map(|entry| (entry.identity, entry)).collect();
        let mut records = vec![Vec::new(); self.columns.len()];
        for run in &self.runs {
            if let Some(entry) = entries.get(&run.inputs.identity()) {
                records[run.column].push(store.read(entry)?);
            }
        }
        Ok(records)
    }
}

/// The same runs in the same order, but for one of each kind, which come before all others.
fn first_of_each_kind_first(runs: Vec<&Run>) -> Vec<&Run> {
    let mut kinds = BTreeSet::new();
    let (mut first, others): (Vec<&Run>, Vec<&Run>) =
        runs.into_iter().partition(|run| kinds.insert(run.kind()));
    first.extend(others);
    first
}

/// Makes runs, so many at once, and returns how many it made before it was to stop.
fn make_all(
    runs: &[&Run],
    store: &Store,
    workers: usize,
    watch: &dyn Watch,
) -> Result<usize, ExecuteError> {
    let families = families(runs, |run| !run.may_share() || watch.wants_trace(run));
    let next = AtomicUsize::new(0);
    let work = Work {
        store,
        watch,
        idle: Idle::new(workers.saturating_sub(families.len())),
        nr_made: AtomicUsize::new(0),
        has_ended: AtomicBool::new(false),
        failures: Mutex::default(),
    };
    let work_on = || {
        while !work.is_over() {
            let Some(family) = families.get(next.fetch_add(1, Ordering::Relaxed)) else {
                work.idle.add();
                return;
            };
            work.make(family);
        }
    };
    thread::scope(|scope| {
        for _ in 0..workers.min(families.len()) {
            scope.spawn(work_on);
        }
    });
    let failures = work.failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    let number = |failed: Identity| runs.iter().position(|run| run.inputs.identity() == failed);
    match failures.into_iter().min_by_key(|(failed, _)| number(*failed)) {
        Some((_, error)) => Err(error),
        None => Ok(work.nr_made.into_inner()),
    }
}

/// Runs that are being made, on whatever thread.
struct Work<'a> {
    store: &'a Store,
    watch: &'a dyn Watch,
    idle: Idle,
    nr_made: AtomicUsize,
    /// Nobody begins another.
    has_ended: AtomicBool,
    failures: Mutex<Vec<(Identity, ExecuteError)>>,
}

impl Work<'_> {
    fn is_over(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed) || self.watch.should_stop()
    }

    /// Makes runs that are alike at first.
    fn make(&self, family: &[&Run]) {
        self.watch.begun(family[0]);
        if let [run] = family {
            return self.make_alone(run);
        }
        let is_over = || self.is_over();
        let Made { made, lost } =
            family::make(family, self.store, self.watch, &self.idle, &is_over);
        for (number, run) in family.iter().enumerate() {
            if made.contains(&number) {
                self.note(run, Ok(()));
            } else if lost.contains(&number) {
                self.make_alone(run);
            } else if !self.is_over() {
                self.watch.begun(run);
                self.make_alone(run);
            }
        }
    }

    /// Makes a run that has begun.
    fn make_alone(&self, run: &Run) {
        let mut goes_on = true;
        let mut traced = |text: &[u8]| goes_on = self.watch.traced(run, text);
        let is_traced = run.is_model() && self.watch.wants_trace(run);
        let made = run.make(is_traced.then_some(&mut traced)).and_then(|(record, size)| {
            self.store.put(&record)?;
            self.watch.ended(run, &record, size);
            Ok(())
        });
        if !goes_on {
            self.has_ended.store(true, Ordering::Relaxed);
        }
        self.note(run, made);
    }

    /// Notes what became of a run.
    fn note(&self, run: &Run, made: Result<(), ExecuteError>) {
        match made {
            Ok(()) => {
                self.nr_made.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Err(ExecuteError::Real { error, .. }) if error.is_interrupt() => {}
            Err(error) => lock(&self.failures).push((run.inputs.identity(), error)),
        }
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

/// Locks; a worker that panicked ends the program in any case.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
