//! The running kernel as a system: threads of the operating system, real memory, real time.
//!
//! A workload's threads are threads, its processes are processes, and each access is a load or a store. The
//! counters are those of the whole machine: whatever else runs is in them.
//!
//! Departs: the workload runs in processes forked from this one, which carry what the program has mapped.
//! Visible as: a process of the workload has some MiB resident before it maps anything; `resident_kib_max`
//! is the largest of one process. Its memory is mapped so that forks do not share it.
//! Departs: a killed process's last latencies, up to 512 of a class, are lost with it. Visible as: fewer
//! latencies in runs that end in want of memory.

mod blocks;
mod files;
mod memory;
mod message;
pub(crate) mod process;
mod shared;
mod thread;

use crate::knobs::{Journal, KnobError, Knobs};
use crate::proc::{self, Stat};
use crate::signals::Watch;
use files::Files;
pub use files::remove_left;
use highorder_input::InputError;
use highorder_record::{Durations, Inputs, Metric, Record, Source, State, read_proc};
use highorder_system::{Code, Ns, ThreadSpec};
use message::{Listener, Message};
pub use process::is_fork;
use process::{First, World};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, waitpid};
use rustix::thread::sched_getaffinity;
use shared::{Mapping, state};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// What a run leaves to others if nothing else is said: 1 GiB.
pub const LEAVE_BYTES: u64 = 1 << 30;

/// How often the run is looked at.
const LOOK: Ns = Ns::from_millis(50);
/// How often memory is looked at.
const LOOK_AT_MEMORY: Ns = Ns::from_millis(500);

/// How much of the machine's memory a workload may map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryRule {
    /// The machine serves others: this much stays available to them. What is mapped counts as used.
    Leave {
        /// Bytes.
        bytes: u64,
        /// Whether the workload may count on swap, so that the machine swaps.
        may_swap: bool,
    },
    /// The machine is the workload's alone.
    All,
}

impl Default for MemoryRule {
    fn default() -> Self {
        Self::Leave { bytes: LEAVE_BYTES, may_swap: false }
    }
}

/// How a workload is run on this machine.
#[derive(Clone, Debug)]
pub struct HostSpec {
    /// Settings for the time of the run, by the kernel's names.
    pub knobs: BTreeMap<String, String>,
    /// Whether settings may be changed, by these knobs or by the workload; takes root. If not, knobs have
    /// to be what they are already.
    pub apply_knobs: bool,
    /// Where it is kept what settings were: see [`crate::knobs`].
    pub state_folder: PathBuf,
    /// The folder that holds `proc/sys` and `sys/kernel/mm`: `/`, but in tests.
    pub knob_root: PathBuf,
    /// Where a folder is made for the workload's files, which is gone afterwards whatever happens; without
    /// one it has no files.
    pub folder: Option<PathBuf>,
    /// What a workload that wants files is told if it has none.
    pub no_folder: String,
    /// The root of the workload's random streams.
    pub seed: u64,
    /// How often the timeline is sampled; never if it is 0.
    pub sample_interval: Ns,
    /// How much memory it may map.
    pub memory: MemoryRule,
    /// A run that takes longer is ended, and there is no record.
    pub time_limit: Option<Ns>,
    /// Whether whoever is killed counts as killed by the kernel for want of memory, whatever the kernel counts: for
    /// tests, which cannot have it do so.
    pub kills_are_the_kernels: bool,
}

impl HostSpec {
    /// Changes no settings, leaves 1 GiB, samples once a second.
    #[must_use]
    pub fn new(state_folder: impl Into<PathBuf>) -> Self {
        Self {
            knobs: BTreeMap::new(),
            apply_knobs: false,
            state_folder: state_folder.into(),
            knob_root: PathBuf::from("/"),
            folder: None,
            no_folder: "this run was given no folder for files".to_owned(),
            seed: 0,
            sample_interval: Ns::from_secs(1),
            memory: MemoryRule::default(),
            time_limit: None,
            kills_are_the_kernels: false,
        }
    }
}

/// A knob that is not as a run wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherKnob {
    /// The knob.
    pub name: String,
    /// What it is to be.
    pub value: String,
    /// What it is.
    pub now: String,
}

impl fmt::Display for OtherKnob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, now } = self;
        write!(f, "{name} is `{now}` and not `{value}`")
    }
}

/// Why there is no record of a run.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// Knobs are to be set, and may not.
    #[error("{}; changing that has to be allowed (apply_knobs)", listed(knobs))]
    KnobsNotApplied {
        /// The knobs, by name.
        knobs: Vec<OtherKnob>,
    },
    /// A setting could not be changed or put back.
    #[error(transparent)]
    Knob(#[from] KnobError),
    /// No folder for files could be made.
    #[error("{}: no folder for files can be made there: {source}", path.display())]
    Folder {
        /// Where.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The machine has not enough memory to begin with.
    #[error(
        "{available_mib} MiB of memory are available, expected more than the {leave_mib} MiB that a run leaves to others"
    )]
    NoMemory {
        /// What is available.
        available_mib: u64,
        /// What is to stay so.
        leave_mib: u64,
    },
    /// While it ran, others came to need the memory that it was to leave them.
    #[error(
        "ended: {available_mib} MiB of memory were available, expected that {leave_mib} MiB stay so"
    )]
    MemoryLow {
        /// What was available.
        available_mib: u64,
        /// What was to stay so.
        leave_mib: u64,
    },
    /// The system refused what the workload needs.
    #[error("the workload was refused: {0}")]
    Refused(String),
    /// The workload's code panicked, or a process of it ended in a way that nobody asked for.
    #[error("thread {thread} of the workload {message}")]
    Broken {
        /// The thread.
        thread: String,
        /// What is known.
        message: String,
    },
    /// Processes of the workload were killed, and not by the kernel for want of memory.
    #[error(
        "{nr} of the workload's processes were killed from outside: the kernel counts fewer that it killed for want of \
         memory; there is no record of such a run"
    )]
    Killed {
        /// How many were killed in all.
        nr: u32,
    },
    /// The process that looks after the others was killed.
    #[error("the process that looks after the workload's was killed: the run was ended")]
    Warden,
    /// Every thread waits, and none will be woken.
    #[error("every thread waits: {}", list(.0))]
    Deadlock(Vec<(String, String)>),
    /// It took too long.
    #[error("ended after {0}, the limit")]
    TimedOut(Ns),
    /// A signal asked the program to end.
    #[error("interrupted by signal {0}")]
    Interrupted(i32),
    /// A file of the kernel's could not be read.
    #[error(transparent)]
    Kernel(#[from] InputError),
    /// The operating system said no.
    #[error("{what}: {source}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
}

fn list(waiting: &[(String, String)]) -> String {
    let each = waiting.iter().map(|(name, what)| format!("{name} for {what}"));
    each.collect::<Vec<_>>().join(", ")
}

fn os<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> HostError {
    move |source| HostError::Os { what, source: source.into() }
}

/// Runs a workload to its end and returns what it left.
///
/// All it does happens in processes of their own, which are gone when this returns. Settings are put back
/// before: also if there is an error, if this thread panics, or if SIGINT, SIGTERM or SIGHUP comes, which
/// then ends the program unless it has a handler of its own; and if the program is killed, right after.
///
/// A workload that was killed for want of memory leaves a record, with a note of it.
///
/// # Errors
/// [`HostError`]; nothing of the workload is left running.
pub fn run(spec: &HostSpec, inputs: Inputs, workload: Code) -> Result<Record, HostError> {
    let watch = Watch::new();
    let outcome = run_watched(spec, inputs, workload, &watch);
    drop(watch);
    outcome
}

fn run_watched(
    spec: &HostSpec,
    inputs: Inputs,
    workload: Code,
    watch: &Watch,
) -> Result<Record, HostError> {
    let knobs = Knobs::new(&spec.knob_root);
    let machine = proc::machine()?;
    let mapping = Mapping::new().map_err(os("mmap"))?;
    mapping.allowed_pages.store(allowed_pages(spec.memory, machine.page_bytes)?, SeqCst);
    let journal = match spec.apply_knobs {
        true => Some(Journal::open(knobs.clone(), &spec.state_folder)?),
        false => None,
    };
    // Dropped after the run, which may still write there.
    let files = spec.folder.as_deref().map(Files::new).transpose()?;
    let folder = files.as_ref().map(Files::whole);
    let (ours, theirs) = message::channel().map_err(os("pipe"))?;
    let world = World {
        shared: mapping.forever(),
        told: theirs,
        seed: spec.seed,
        cpus: sched_getaffinity(None).map_err(os("sched_getaffinity"))?,
        knobs: knobs.clone(),
        may_set_knobs: spec.apply_knobs,
        folder: folder.ok_or_else(|| spec.no_folder.clone()),
        memory_rule: memory_rule(spec.memory),
        machine,
    };
    let page_bytes = world.machine.page_bytes as u32;
    let nr_oom_kills_before = proc::nr_oom_kills()?;
    let run = Run::start(world, workload, journal.as_ref())?;
    match &journal {
        Some(journal) => {
            spec.knobs.iter().try_for_each(|(name, value)| journal.set(name, value))?;
        }
        None => refuse_other_knobs(&knobs, &spec.knobs)?,
    }

    let watcher = Watcher {
        spec,
        watch,
        shared: &mapping,
        journal: journal.as_ref(),
        stat_prepared: Cell::new(None),
    };
    watcher.wait_ready(&run)?;
    let stat_before = Stat::read().map_err(os("/proc/stat"))?;
    let mut record = Record::new(Inputs { source: source(inputs.source), ..inputs });
    record.page_bytes = page_bytes;
    record.before = read_proc(Path::new("/proc"))?;
    mapping.open_gate();
    watcher.serve(ours, &mut record, &run)?;
    run.wait()?;
    if !spec.kills_are_the_kernels {
        check_kills(mapping.nr_killed.load(SeqCst), nr_oom_kills_before, proc::nr_oom_kills()?)?;
    }
    record.after = read_proc(Path::new("/proc"))?;
    let stat = Stat::read().map_err(os("/proc/stat"))?;
    let stat_before = watcher.stat_prepared.take().unwrap_or(stat_before);
    if let Some(journal) = journal {
        journal.restore()?;
    }

    let ns = |word: &std::sync::atomic::AtomicU64| word.load(SeqCst);
    let since = |now: u64, then: u64| Some(now.saturating_sub(then));
    let began = ns(&mapping.began_ns).max(ns(&mapping.prepared_ns));
    record.durations = Durations {
        user_ns: since(ns(&mapping.user_ns), ns(&mapping.prepared_user_ns)),
        system_ns: since(ns(&mapping.system_ns), ns(&mapping.prepared_system_ns)),
        elapsed_ns: since(ns(&mapping.ended_ns), began),
        idle_ns: since(stat.idle_ns, stat_before.idle_ns),
        iowait_ns: since(stat.iowait_ns, stat_before.iowait_ns),
    };
    record.resident_kib_max = Some(ns(&mapping.resident_kib_max));
    finish(&mapping, record)
}

/// Refuses a run of which a process was killed by somebody else than the kernel for want of memory. A kernel that does
/// not count whom it kills is believed.
fn check_kills(nr_killed: u32, before: Option<u64>, after: Option<u64>) -> Result<(), HostError> {
    let Some((before, after)) = before.zip(after) else { return Ok(()) };
    match u64::from(nr_killed) <= after.saturating_sub(before) {
        true => Ok(()),
        false => Err(HostError::Killed { nr: nr_killed }),
    }
}

/// A record says host unless the caller, in a guest, says vm.
fn source(source: Source) -> Source {
    if source == Source::Vm { Source::Vm } else { Source::Host }
}

fn allowed_pages(rule: MemoryRule, page_bytes: u64) -> Result<u64, HostError> {
    let MemoryRule::Leave { bytes, may_swap } = rule else { return Ok(u64::MAX) };
    let meminfo = proc::meminfo_kib()?;
    let of = |name: &str| meminfo.get(name).copied().unwrap_or(0) << 10;
    let available = of("MemAvailable") + if may_swap { of("SwapFree") } else { 0 };
    match available.checked_sub(bytes) {
        Some(free) if free > 0 => Ok(free / page_bytes),
        _ => Err(HostError::NoMemory { available_mib: available >> 20, leave_mib: bytes >> 20 }),
    }
}

fn memory_rule(rule: MemoryRule) -> String {
    match rule {
        MemoryRule::All => "there is no limit".to_owned(),
        MemoryRule::Leave { bytes, may_swap } => {
            let swap = if may_swap { "" } else { ", and may not make the machine swap" };
            format!("it leaves {} MiB to others{swap}", bytes >> 20)
        }
    }
}

fn refuse_other_knobs(knobs: &Knobs, wanted: &BTreeMap<String, String>) -> Result<(), HostError> {
    let mut others = Vec::new();
    for (name, value) in wanted {
        let now = knobs.get(name)?;
        if now != *value {
            others.push(OtherKnob { name: name.clone(), value: value.clone(), now });
        }
    }
    match others.is_empty() {
        true => Ok(()),
        false => Err(HostError::KnobsNotApplied { knobs: others }),
    }
}

fn listed(knobs: &[OtherKnob]) -> String {
    knobs.iter().map(OtherKnob::to_string).collect::<Vec<_>>().join(", ")
}

/// What the workload's end means for the record.
fn finish(shared: &Mapping, mut record: Record) -> Result<Record, HostError> {
    if let Some((thread, message)) = shared.broken() {
        return Err(HostError::Broken { thread, message });
    }
    let first = shared.task(0);
    let kernel = rustix::system::uname();
    record.notes.push(format!(
        "Linux {} {}",
        kernel.release().to_string_lossy(),
        kernel.version().to_string_lossy()
    ));
    match first.state.load(SeqCst) {
        state::DONE => {}
        state::KILLED => record.notes.push("The workload ended: killed: out of memory.".to_owned()),
        _ => return Err(HostError::Refused(first.text.get())),
    }
    match shared.nr_killed.load(SeqCst) {
        0 => {}
        1 => record.notes.push("A process of the workload was killed.".to_owned()),
        many => record.notes.push(format!("{many} processes of the workload were killed.")),
    }
    Ok(record)
}

/// A run under way. Dropped, it is ended: its processes killed and settings put back.
struct Run {
    warden: Pid,
    /// As long as it is open and nothing is written to it, the run may go on.
    lifeline: OwnedFd,
    warden_end: Cell<Option<WardenEnd>>,
    /// The workload's first process, whose group all others are in.
    first: &'static shared::Process,
}

impl Run {
    fn start(world: World, code: Code, journal: Option<&Journal>) -> Result<Self, HostError> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(os("pipe"))?;
        let refused = |failure: highorder_system::Failure| HostError::Refused(failure.to_string());
        let process = world.shared.new_process(0).map_err(refused)?;
        let spec = ThreadSpec::process("workload");
        let task = world.shared.new_task(process, &spec.name).map_err(refused)?;
        let first = First { spec, code, task, process };
        let shared = world.shared;
        let (warden, lifeline) =
            process::start(Arc::new(world), first, (read, write), journal).map_err(os("fork"))?;
        Ok(Self { warden, lifeline, warden_end: Cell::new(None), first: shared.process(process) })
    }

    /// How the warden has ended, if it has.
    fn warden_end(&self) -> Option<WardenEnd> {
        if self.warden_end.get().is_none() {
            match waitpid(Some(self.warden), WaitOptions::NOHANG) {
                Ok(None) => {}
                Ok(Some((_, status))) => self.warden_end.set(Some(WardenEnd::of(status))),
                Err(_) => self.warden_end.set(Some(WardenEnd::Broken)),
            }
        }
        self.warden_end.get()
    }

    /// Waits for the warden, whose children have ended.
    fn wait(&self) -> Result<(), HostError> {
        while self.warden_end.get().is_none() {
            match waitpid(Some(self.warden), WaitOptions::empty()) {
                Err(Errno::INTR) | Ok(None) => {}
                Err(error) => return Err(os("waitpid")(error)),
                Ok(Some((_, status))) => self.warden_end.set(Some(WardenEnd::of(status))),
            }
        }
        match self.warden_end.get() {
            Some(WardenEnd::Broken) => Err(HostError::Warden),
            _ => Ok(()),
        }
    }
}

/// How a warden ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WardenEnd {
    /// By itself: all processes of the workload had ended.
    Done,
    /// It was killed, or panicked.
    Broken,
}

impl WardenEnd {
    fn of(status: WaitStatus) -> Self {
        if status.exit_status() == Some(0) { Self::Done } else { Self::Broken }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // To close it would not be enough: a process that another run forked meanwhile has a copy.
        let _ = rustix::io::write(&self.lifeline, &[0]);
        // Nothing is to be done about a warden that cannot be waited for.
        let _ = self.wait();
        // What a warden leaves that was killed.
        if let Some(first) = Pid::from_raw(self.first.pid.load(SeqCst) as i32) {
            let _ = rustix::process::kill_process_group(first, Signal::KILL);
        }
    }
}

/// Looks after a run.
struct Watcher<'a> {
    spec: &'a HostSpec,
    watch: &'a Watch,
    shared: &'a Mapping,
    journal: Option<&'a Journal>,
    /// What CPUs had done when the workload had prepared itself.
    stat_prepared: Cell<Option<Stat>>,
}

impl Watcher<'_> {
    /// Waits until the workload's process stands ready.
    fn wait_ready(&self, run: &Run) -> Result<(), HostError> {
        while !self.shared.is_ready() {
            self.shared.wait_ready(LOOK);
            if let Some(signal) = self.watch.came() {
                return Err(HostError::Interrupted(signal));
            }
            if run.warden_end().is_some() && !self.shared.is_ready() {
                let source = io::Error::other("the workload's process ended before it began");
                return Err(HostError::Os { what: "fork", source });
            }
        }
        Ok(())
    }

    /// Takes samples and what the workload tells until it has ended.
    fn serve(&self, mut told: Listener, record: &mut Record, run: &Run) -> Result<(), HostError> {
        let mut next_sample = if self.spec.sample_interval.0 > 0 { Ns::ZERO } else { Ns::MAX };
        let mut next_memory = Ns::ZERO;
        loop {
            let now = self.shared.now();
            if now >= next_sample {
                self.sample(record)?;
                next_sample = now + self.spec.sample_interval;
            }
            if now >= next_memory {
                self.check_memory()?;
                next_memory = now + LOOK_AT_MEMORY;
            }
            self.check(now)?;
            // It waits for all of the workload's processes: once it has ended nobody can tell anything, even if a
            // process that another run forked meanwhile still has a copy of this run's pipe.
            let warden_end = run.warden_end();
            let wait = crate::clock::timespec(LOOK.min(next_sample.saturating_sub(now)));
            let mut fds = [PollFd::new(&told, PollFlags::IN)];
            // Interrupted by a signal: looked at in the next round.
            let _ = poll(&mut fds, Some(&wait));
            loop {
                match (told.receive(), warden_end) {
                    (Ok(Some(message)), _) => self.act(message, record)?,
                    (Ok(None), None) => break,
                    (Ok(None), Some(WardenEnd::Broken)) => return Err(HostError::Warden),
                    (Ok(None), Some(WardenEnd::Done)) | (Err(message::Gone), _) => {
                        if next_sample < Ns::MAX {
                            self.sample(record)?;
                        }
                        return Ok(());
                    }
                }
            }
        }
    }

    fn sample(&self, record: &mut Record) -> Result<(), HostError> {
        let row = proc::sample()?;
        let time = self.shared.now().0;
        if record.timeline.time_ns.last().is_none_or(|&last| last < time) {
            record.timeline.push(time, row.iter().map(|(name, value)| (name.as_str(), *value)));
        }
        Ok(())
    }

    fn check(&self, now: Ns) -> Result<(), HostError> {
        if let Some(signal) = self.watch.came() {
            return Err(HostError::Interrupted(signal));
        }
        if let Some((thread, message)) = self.shared.broken() {
            return Err(HostError::Broken { thread, message });
        }
        if let Some(limit) = self.spec.time_limit.filter(|&limit| now > limit) {
            return Err(HostError::TimedOut(limit));
        }
        // Twice the same: a task may be on its way from one waiting to the next.
        if let Some(waiting) = self.shared.deadlock() {
            std::thread::sleep(std::time::Duration::from_millis(10));
            if self.shared.deadlock().as_ref() == Some(&waiting) {
                return Err(HostError::Deadlock(waiting));
            }
        }
        Ok(())
    }

    /// Half of what is left to others may be used up by them; beyond, the run makes room.
    fn check_memory(&self) -> Result<(), HostError> {
        let MemoryRule::Leave { bytes, may_swap: false } = self.spec.memory else { return Ok(()) };
        let available = proc::available_bytes()?;
        if available < bytes / 2 {
            let (available_mib, leave_mib) = (available >> 20, bytes >> 20);
            return Err(HostError::MemoryLow { available_mib, leave_mib });
        }
        Ok(())
    }

    fn act(&self, message: Message, record: &mut Record) -> Result<(), HostError> {
        match message {
            Message::Sample { like, bits } => {
                let like = like.metric();
                let metric = metric(&mut record.metrics, like);
                metric.samples.push(f64::from_bits(bits));
            }
            Message::Latencies { class, ns } => {
                let latencies = record.latencies.entry(class).or_default();
                ns.into_iter().for_each(|ns| latencies.record(ns));
            }
            Message::Held { task } => {
                let held: State = read_proc(Path::new("/proc"))?;
                record.held = Some(held);
                self.shared.answer(task, Ok(()));
            }
            Message::Before { task } => {
                record.before = read_proc(Path::new("/proc"))?;
                self.stat_prepared.set(Some(Stat::read().map_err(os("/proc/stat"))?));
                self.shared.answer(task, Ok(()));
            }
            Message::SetKnob { task, name, value } => {
                let done = self.journal.map(|journal| journal.set(&name, &value));
                let done = done.expect("asked only where settings may be changed");
                self.shared.answer(task, done.map_err(|error| error.to_string()));
            }
        }
        Ok(())
    }
}

/// The metric of this name, added if it is the first sample.
fn metric(metrics: &mut Vec<Metric>, like: Metric) -> &mut Metric {
    let at = metrics.iter().position(|metric| metric.name == like.name);
    let at = at.unwrap_or_else(|| {
        metrics.push(like);
        metrics.len() - 1
    });
    &mut metrics[at]
}
