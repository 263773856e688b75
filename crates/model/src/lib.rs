//! The model as a system: workloads in virtual time.
//!
//! A thread is a task of the simulation, a process a number that its mappings bear. What the workload
//! reports is gathered beside the simulated machine and becomes the record with it. What memory looks like is
//! drawn for the record where [`ModelSpec::draw`] says how: by looking, in no virtual time.

mod compaction;
mod fragmentation;
mod handles;
pub mod knob_scaling;
mod knobs;
mod pageblocks;
mod residents;
mod settings;
mod state;
mod thread;

pub use knobs::{Knob, KnobValue, knob_scaling, knobs, sets_marks};
pub use residents::{Found, Residents};
pub use settings::{check_knob, check_knob_of};

use highorder_mm::policy::Policy;
use highorder_record::killed::killed_note;
use highorder_record::{Durations, Inputs, Latencies, Metric, Record, State};
use highorder_sim::kernel::demand::{self, Demand};
use highorder_sim::kernel::trace::Traced;
use highorder_sim::kernel::{self, Flows, Kernel};
use highorder_sim::{Machine, Ns, RunError, Sim, TaskId, TaskSpec, WaitQueue};
use highorder_system::{Code, CpuId, Failure, MachineInfo, NodeId, NodeInfo, ThreadId};
use settings::Settings;
use state::Sampler;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Everything that determines a run on the model, but the workload.
#[derive(Clone, Debug)]
pub struct ModelSpec {
    /// The machine.
    pub machine: Machine,
    /// The allocator's and reclaim's decisions.
    pub policy: Policy,
    /// The flows' decisions.
    pub flows: Flows,
    /// Knobs that differ from what the kernel sets at boot, by the kernel's names.
    pub knobs: BTreeMap<String, String>,
    /// The root of the workload's random streams.
    pub seed: u64,
    /// What the kernel wants for itself besides.
    pub demands: Vec<Demand>,
    /// How often the timeline is sampled.
    pub sample_interval: Ns,
    /// Draws memory for the record, if it shall have a picture; changes nothing in it.
    pub draw: Option<Draw>,
    /// Makes who looks at memory whenever the timeline is sampled, if the record shall have a picture over time.
    pub watch: Option<NewWatch>,
}

/// Makes who looks at the memory of a run, before it begins.
pub type NewWatch = fn(&Kernel) -> Box<dyn Watch>;

/// Somebody who looks at memory from time to time, changes nothing in it, and draws what became of it in the end.
pub trait Watch {
    /// Looks at a moment, later than any before.
    fn look(&mut self, now: Ns, kernel: &Kernel);

    /// The picture's name in the record, and the picture as SVG; equal looks have to give equal text.
    fn draw(&self, inputs: &Inputs) -> (&'static str, String);
}

/// Draws what the memory of a run with these inputs holds, as SVG; equal memory has to give equal text.
pub type Draw = fn(&Kernel, &Inputs, Moment) -> String;

/// Asked once, when the workload says that parameters matter from now on which did not before
/// ([`System::part`](highorder_system::System::part)): returns the inputs of the run that goes on, whose record it will
/// be. It may return more than once, each time in a process of its own.
pub type Part = Box<dyn FnOnce() -> Inputs>;

/// When memory is drawn: when the workload notes that its mappings are there, and the last such time counts;
/// at the end, if it never does so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The workload's mappings are there.
    Held,
    /// The workload has ended.
    End,
}

impl Moment {
    /// The picture's name in the record.
    #[must_use]
    pub const fn picture(self) -> &'static str {
        match self {
            Self::Held => "memory-held",
            Self::End => "memory-end",
        }
    }
}

/// Time since the beginning, all CPUs together where it is theirs.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    elapsed: Ns,
    /// In programs' own code, and in the kernel on their behalf.
    programs: [Ns; 2],
    /// Idle, and idle while a task waited for a device.
    idle: [Ns; 2],
}

impl Spent {
    /// What was spent since then.
    fn since(self, then: Self) -> Durations {
        let [user_ns, system_ns] = [0, 1].map(|n| Some((self.programs[n] - then.programs[n]).0));
        let [idle_ns, iowait_ns] = [0, 1].map(|n| Some((self.idle[n] - then.idle[n]).0));
        let elapsed_ns = Some((self.elapsed - then.elapsed).0);
        Durations { user_ns, system_ns, elapsed_ns, iowait_ns, idle_ns }
    }
}

/// What threads share beside the machine.
struct Shared {
    machine: MachineInfo,
    seed: u64,
    settings: Settings,
    metrics: Vec<Metric>,
    latencies: BTreeMap<String, Latencies>,
    held: Option<State>,
    /// Where the run's counters begin, if that is not its beginning.
    before: Option<State>,
    /// What had been spent by then.
    so_far: Spent,
    inputs: Inputs,
    /// Who is asked when the workload's ways part.
    part: Option<Part>,
    draw: Option<Draw>,
    pictures: BTreeMap<String, String>,
    threads: Vec<ThreadState>,
    barriers: Vec<Barrier>,
    /// Files by name.
    files: BTreeMap<String, highorder_mm::filemap::FileId>,
    /// Those of the file system that the kernel started from.
    unpacked: BTreeMap<String, highorder_mm::filemap::FileId>,
    /// Living threads of each process.
    living: Vec<u32>,
    /// Where threads wait that a kill ends: they look around when woken.
    waiting: WaitQueue,
    /// What the main thread ended with, if not well.
    failure: Option<String>,
}

struct ThreadState {
    outcome: Option<Result<(), Failure>>,
}

struct Barrier {
    parties: u32,
    arrived: u32,
    round: u64,
}

type SharedRef = Rc<RefCell<Shared>>;

/// Runs a workload to its end and returns what it left.
///
/// # Errors
/// A task panicked, or nothing would ever have happened again.
///
/// # Panics
/// If a knob is unknown or a value impossible: see [`check_knob_of`].
pub fn run(spec: ModelSpec, inputs: Inputs, workload: Code) -> Result<Record, RunError> {
    run_on(spec, inputs, workload).map(|(record, _)| record)
}

/// As [`run`]; also returns the machine as the workload left it, for those who look closer.
///
/// # Errors
/// As [`run`].
///
/// # Panics
/// As [`run`].
pub fn run_on(
    spec: ModelSpec,
    inputs: Inputs,
    workload: Code,
) -> Result<(Record, Kernel), RunError> {
    let (sim, settings, course) = boot(spec);
    run_in(sim, settings, course, inputs, workload)
}

/// As [`run_on`]; whenever the timeline is sampled, and at the end, every invariant of memory is checked, and that the
/// time of all CPUs is what elapsed.
///
/// # Errors
/// As [`run`].
///
/// # Panics
/// As [`run`]; and if an invariant does not hold.
pub fn run_checked(
    spec: ModelSpec,
    inputs: Inputs,
    workload: Code,
) -> Result<(Record, Kernel), RunError> {
    let (sim, settings, course) = boot(spec);
    run_in(sim, settings, Course { is_checked: true, ..course }, inputs, workload)
}

/// As [`run_on`], of several runs that are alike until the workload parts: `inputs` are those of the one whose record it
/// is if the workload ends before. `done` is given what the workload left, before the machine is taken apart; returns
/// what it returns.
///
/// # Errors
/// As [`run`].
///
/// # Panics
/// As [`run`].
pub fn run_parting<T>(
    spec: ModelSpec,
    inputs: Inputs,
    workload: Code,
    part: Part,
    done: impl FnOnce(Record, &Kernel) -> T,
) -> Result<T, RunError> {
    let (mut sim, settings, course) = boot(spec);
    let course = Course { part: Some(part), ..course };
    let record = run_to_end(&mut sim, settings, course, inputs, workload)?;
    Ok(done(record, sim.world()))
}

/// Events of a run, in the order in which they happened.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// The events.
    pub events: Vec<Traced>,
    /// Names of the tasks, by number.
    pub tasks: Vec<String>,
}

/// As [`run_on`]; also keeps events.
///
/// # Errors
/// As [`run`].
///
/// # Panics
/// As [`run`].
pub fn run_traced(
    spec: ModelSpec,
    inputs: Inputs,
    workload: Code,
) -> Result<(Record, Kernel, Trace), RunError> {
    let (mut sim, settings, course) = boot(spec);
    sim.world_mut().keep_trace();
    let (record, mut kernel, tasks) = run_named(sim, settings, course, inputs, workload)?;
    let events = kernel.trace.take().unwrap_or_default();
    Ok((record, kernel, Trace { events, tasks }))
}

/// As [`run`], with memory in a state that was found somewhere else: its policy stays as it is but for the knobs given,
/// and so do its marks, unless they are to be set. Those whose pages they are live beside the workload.
///
/// # Errors
/// As [`run`].
///
/// # Panics
/// As [`run`]; and if the memory is of other CPUs than the machine.
pub fn run_from(
    found: Found,
    spec: ModelSpec,
    inputs: Inputs,
    workload: Code,
) -> Result<(Record, Kernel), RunError> {
    let Found { mut memory, residents, sets_marks } = found;
    let ModelSpec { machine, policy: _, flows, knobs, seed, demands, sample_interval, draw, watch } =
        spec;
    let settings = settings_of(&memory.policy, &flows, &knobs);
    settings.apply(&mut memory.policy);
    let mut sim = kernel::start(&machine, memory, flows, settings.knobs);
    if sets_marks {
        settings.apply_to_marks(sim.world_mut());
    }
    let course =
        Course { seed, demands, sample_interval, draw, watch, is_checked: false, part: None };
    if residents.is_empty() {
        return run_in(sim, settings, course, inputs, workload);
    }
    residents::settle(sim.world_mut(), &residents, !machine.disks.is_empty());
    run_in(sim, settings, course, inputs, residents::beside(workload, residents.freed))
}

/// The machine of a specification as its kernel finds it, and what else is said of the run.
fn boot(spec: ModelSpec) -> (Sim<Kernel>, Settings, Course) {
    let ModelSpec {
        machine,
        mut policy,
        flows,
        knobs,
        seed,
        demands,
        sample_interval,
        draw,
        watch,
    } = spec;
    let settings = settings_of(&policy, &flows, &knobs);
    settings.apply(&mut policy);
    let mut sim = kernel::boot(&machine, policy, flows, settings.knobs);
    settings.apply_to_marks(sim.world_mut());
    (
        sim,
        settings,
        Course { seed, demands, sample_interval, draw, watch, is_checked: false, part: None },
    )
}

fn settings_of(policy: &Policy, flows: &Flows, knobs: &BTreeMap<String, String>) -> Settings {
    let mut settings = Settings::of(policy, flows);
    for (name, value) in knobs {
        settings.set(name, value).unwrap_or_else(|error| panic!("{error}"));
    }
    settings
}

/// What of a specification still matters once the machine is there.
struct Course {
    seed: u64,
    demands: Vec<Demand>,
    sample_interval: Ns,
    draw: Option<Draw>,
    watch: Option<NewWatch>,
    /// Whether invariants are checked on the way.
    is_checked: bool,
    part: Option<Part>,
}

fn run_in(
    sim: Sim<Kernel>,
    settings: Settings,
    course: Course,
    inputs: Inputs,
    workload: Code,
) -> Result<(Record, Kernel), RunError> {
    run_named(sim, settings, course, inputs, workload).map(|(record, kernel, _)| (record, kernel))
}

/// As [`run_in`]; also returns the names of all tasks, by number.
fn run_named(
    mut sim: Sim<Kernel>,
    settings: Settings,
    course: Course,
    inputs: Inputs,
    workload: Code,
) -> Result<(Record, Kernel, Vec<String>), RunError> {
    let record = run_to_end(&mut sim, settings, course, inputs, workload)?;
    let tasks = (0..sim.nr_tasks() as u32).map(|task| sim.task_name(TaskId(task)).to_owned());
    let tasks = tasks.collect();
    Ok((record, sim.into_world(), tasks))
}

/// Runs a workload to its end; the machine stays as the workload left it.
fn run_to_end(
    sim: &mut Sim<Kernel>,
    settings: Settings,
    course: Course,
    inputs: Inputs,
    workload: Code,
) -> Result<Record, RunError> {
    let shared = Rc::new(RefCell::new(Shared {
        machine: machine_info(sim.world()),
        seed: course.seed,
        settings,
        metrics: Vec::new(),
        latencies: BTreeMap::new(),
        held: None,
        before: None,
        so_far: Spent::default(),
        inputs: inputs.clone(),
        part: course.part,
        draw: course.draw,
        pictures: BTreeMap::new(),
        threads: Vec::new(),
        barriers: Vec::new(),
        files: BTreeMap::new(),
        unpacked: BTreeMap::new(),
        living: Vec::new(),
        waiting: sim.add_queue("threads that wait"),
        failure: None,
    }));
    let observer = shared.clone();
    sim.world_mut().on_stall = Box::new(move |stall, time| {
        let latencies = &mut observer.borrow_mut().latencies;
        latencies.entry(stall.name().to_owned()).or_default().record(time.0);
    });
    let waiting = shared.borrow().waiting;
    sim.world_mut().interruptible.push(waiting);
    // Counts are enough: of a week's fallbacks a list would grow without end.
    let kernel = sim.world_mut();
    kernel.memory.keeps_extfrag = kernel.trace.is_some();
    let mut record = Record::new(inputs);
    record.before = state::of(sim.world());
    demand::start(sim, &course.demands, course.seed);
    start_main(sim, &shared, workload);
    let mut watch = course.watch.map(|begin| begin(sim.world()));
    let mut look = |now: Ns, sim: &Sim<Kernel>| {
        if course.is_checked {
            check(now, sim);
        }
        if let Some(watch) = &mut watch {
            watch.look(now, sim.world());
        }
    };
    let elapsed = run_and_sample(sim, course.sample_interval, &mut record, &mut look)?;
    finish(sim, &shared, elapsed, &mut record);
    if let Some(watch) = watch {
        let (name, picture) = watch.draw(&record.inputs);
        record.pictures.insert(name.to_owned(), picture);
    }
    Ok(record)
}

fn start_main(sim: &mut Sim<Kernel>, shared: &SharedRef, workload: Code) {
    let process = sim.world_mut().add_process("main");
    let id = shared.borrow_mut().add_thread(process);
    let shared = shared.clone();
    sim.spawn(TaskSpec::user("main"), move |cx| {
        thread::run(cx, shared, process, id, workload);
    });
}

/// Runs to the end and samples on the way. Returns how long it took.
fn run_and_sample(
    sim: &mut Sim<Kernel>,
    interval: Ns,
    record: &mut Record,
    look: &mut dyn FnMut(Ns, &Sim<Kernel>),
) -> Result<Ns, RunError> {
    let mut sampler = Sampler::new(sim.world());
    let mut limit = Ns::ZERO;
    loop {
        let now = sim.run_until(limit)?;
        sampler.sample(sim, now, &mut record.timeline);
        look(now, sim);
        if now < limit || sim.nr_live_users() == 0 {
            return Ok(now);
        }
        limit = limit.saturating_add(interval);
    }
}

/// Makes sure that memory is as it can be, and that no time was lost or made.
fn check(now: Ns, sim: &Sim<Kernel>) {
    let memory = &sim.world().memory;
    for (what, held) in [("lists and blocks", memory.validate()), ("user memory", memory.audit())] {
        held.unwrap_or_else(|why| panic!("at {now}, {what}: {why}"));
    }
    for cpu in (0..sim.nr_cpus() as u32).map(CpuId) {
        let total = sim.cpu_times(cpu).total();
        assert!(total == now, "at {now}, the time of CPU {} sums to {total}", cpu.0);
    }
}

fn finish(sim: &Sim<Kernel>, shared: &SharedRef, elapsed: Ns, record: &mut Record) {
    let kernel = sim.world();
    record.after = state::of(kernel);
    let mut shared = shared.borrow_mut();
    record.inputs = shared.inputs.clone();
    record.held = shared.held.take();
    if let Some(before) = shared.before.take() {
        record.before = before;
    }
    if shared.pictures.is_empty() {
        shared.draw(kernel, Moment::End);
    }
    record.pictures = std::mem::take(&mut shared.pictures);
    record.metrics = std::mem::take(&mut shared.metrics);
    record.metrics.extend(fragmentation::metrics(record));
    record.metrics.extend(compaction::metrics(kernel, record, shared.so_far.elapsed));
    record.latencies = std::mem::take(&mut shared.latencies);
    let all = Spent { elapsed, programs: sim.programs_times(), idle: sim.idle_times() };
    record.durations = all.since(shared.so_far);
    // time(1) shows the largest of a program's processes.
    let pages = kernel.processes.iter().map(|process| process.resident_max).max();
    record.resident_kib_max = pages.map(|pages| pages * 4);
    let killed = kernel.processes.iter().filter(|process| process.killed);
    for process in killed {
        record.notes.push(killed_note(&process.name));
    }
    for (number, (demand, stats)) in kernel.demands.iter().enumerate() {
        record.notes.push(format!(
            "demand {number} ({}): {} requests, {} of them served with less, {} not at all",
            demand.kind.name(),
            stats.nr_asked,
            stats.nr_smaller,
            stats.nr_failed
        ));
    }
    record.notes.extend(shared.failure.take());
}

fn machine_info(kernel: &Kernel) -> MachineInfo {
    let memory = &kernel.memory;
    let cpu_nodes = &memory.machine.cpu_nodes;
    let cpus = |node: NodeId| {
        CpuId::all(cpu_nodes.len()).filter(|cpu| cpu_nodes[cpu.index()] == node).collect()
    };
    let pages = |node: NodeId| {
        memory.zones.iter().filter(|zone| zone.node == node).map(|zone| zone.managed_pages).sum()
    };
    let nodes = NodeId::all(memory.machine.nr_nodes());
    MachineInfo {
        total_pages: memory.zones.iter().map(|zone| zone.managed_pages).sum(),
        nodes: nodes
            .map(|number| NodeInfo { number, total_pages: pages(number), cpus: cpus(number) })
            .collect(),
        page_bytes: u64::from(highorder_record::record::PAGE_BYTES),
        huge_pages: 512,
    }
}

impl Shared {
    /// Keeps a picture of memory at this moment, in place of an earlier one, if there are to be pictures.
    fn draw(&mut self, kernel: &Kernel, moment: Moment) {
        if let Some(draw) = self.draw {
            let picture = draw(kernel, &self.inputs, moment);
            self.pictures.insert(moment.picture().to_owned(), picture);
        }
    }

    fn add_thread(&mut self, process: highorder_mm::vma::ProcessId) -> ThreadId {
        self.threads.push(ThreadState { outcome: None });
        let process = process.0 as usize;
        if self.living.len() <= process {
            self.living.resize(process + 1, 0);
        }
        self.living[process] += 1;
        ThreadId(self.threads.len() as u32 - 1)
    }
}
