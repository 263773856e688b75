//! [`Sim`]: a world, its tasks and their time; [`Cx`]: what a task sees of it.
//!
//! A task is a stackful coroutine: straight-line code that does something to the world, says how long
//! that takes, and waits for things. The world and the scheduler are handed to whichever task's code runs,
//! and handed back when it suspends; so there is no sharing, no lock and no unsafe code, and since every
//! method that may suspend needs the whole [`Cx`], the compiler refuses to keep a borrow of the world
//! across one:
//!
//! ```compile_fail
//! # use highorder_sim::{Cx, Mode, Ns};
//! fn task(cx: &mut Cx<'_, Vec<u32>>) {
//!     let first = &mut cx.world()[0];
//!     cx.spend(Ns(10), Mode::User);
//!     *first += 1; // somebody else may have had the world meanwhile
//! }
//! ```

use crate::device::{Class, Completion, Device, Io, Ticket};
use crate::error::RunError;
use crate::sched::{
    BarrierId, DeviceId, LockId, LockKind, LockStats, Next, Scheduler, SimSpec, WaitQueue,
};
use crate::task::{Affinity, CpuTimes, Mode, Resumption, TaskId, TaskSpec, TaskTimes, Wakeup};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use highorder_mm::types::NodeId;
use highorder_mm::warm::AHEAD;
use highorder_words::{CpuId, Ns};
use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Resumptions at one moment after which tasks wake each other for ever: of our choice, a thousand times what a run
/// with hundreds of tasks begins with.
const STILL_MAX: u32 = 1_000_000;
/// Resumptions after that whose tasks are named.
const STILL_NAMED: u32 = 1000;

/// What is handed to the task whose code runs.
struct Core<W: 'static> {
    world: W,
    sched: Scheduler,
    /// Code of tasks that were created and have no coroutine yet, in order of their numbers.
    spawned: Vec<Code<W>>,
    /// What the last task to suspend found to be next, if that was not itself.
    next: Option<Next>,
}

type Code<W> = Box<dyn FnOnce(&mut Cx<'_, W>)>;
type Handler<W> = Box<dyn FnMut(&mut W, &mut Waker<'_>, DeviceId, Completion)>;
type Handed<W> = Box<Core<W>>;

/// How a task's code ended. The core is missing when the code was unwound by dropping the simulation.
type Ended<W> = (Option<Handed<W>>, Result<(), Failed>);

type TaskCoroutine<W> = Coroutine<Handed<W>, Handed<W>, Ended<W>>;

/// Why a task's code could not go on.
enum Failed {
    /// It panicked with this message.
    Panicked(String),
    /// It ended the simulation.
    Halted(Halt),
}

/// Unwinds a task's code to its end.
struct ExitTask;

/// Unwinds a task's code to the simulation's end, and says why.
struct Halt(String);

/// A simulation: a world `W` and tasks that work on it in virtual time.
///
/// The same world, tasks and specification give the same course of events, always.
pub struct Sim<W: 'static> {
    core: Option<Handed<W>>,
    /// By task number; none when the task is done.
    coroutines: Vec<Option<TaskCoroutine<W>>>,
    on_completion: Option<Handler<W>>,
    on_expected: Option<fn(&W, &Completion)>,
    failed: Option<RunError>,
    still: Still,
}

/// How long time has stood still.
#[derive(Default)]
struct Still {
    since: Ns,
    /// Resumptions since then.
    nr: u32,
    /// The tasks of the last ones, once there are too many.
    tasks: BTreeSet<u32>,
}

impl<W: 'static> Sim<W> {
    /// A simulation at the moment 0, without tasks.
    ///
    /// # Panics
    /// If there are no CPUs, or the shortest slice is no time.
    #[must_use]
    pub fn new(spec: SimSpec, world: W) -> Self {
        let sched = Scheduler::new(spec);
        let core = Core { world, sched, spawned: Vec::new(), next: None };
        Self {
            core: Some(Box::new(core)),
            coroutines: Vec::new(),
            on_completion: None,
            on_expected: None,
            failed: None,
            still: Still::default(),
        }
    }

    /// The world.
    #[must_use]
    pub fn world(&self) -> &W {
        &self.core().world
    }

    /// The world, to be prepared before a run or between two.
    pub fn world_mut(&mut self) -> &mut W {
        &mut self.core_mut().world
    }

    /// Ends the simulation: drops its tasks and returns the world.
    #[must_use]
    pub fn into_world(mut self) -> W {
        self.coroutines.clear();
        match self.core.take() {
            Some(core) => core.world,
            None => unreachable!("no task runs"),
        }
    }

    /// Creates a task, ready to run at the present moment.
    ///
    /// # Panics
    /// If there is no CPU where it may run.
    pub fn spawn(&mut self, spec: TaskSpec, code: impl FnOnce(&mut Cx<'_, W>) + 'static) -> TaskId {
        self.core_mut().spawn(spec, Box::new(code))
    }

    /// Sets what is done to the world when a transfer is done, before any task runs that waited for it.
    pub fn on_completion(
        &mut self,
        handler: impl FnMut(&mut W, &mut Waker<'_>, DeviceId, Completion) + 'static,
    ) {
        self.on_completion = Some(Box::new(handler));
    }

    /// Sets who is told of a completion a few completions before it is handled, to have at hand what is needed then.
    pub fn on_expected(&mut self, handler: fn(&W, &Completion)) {
        self.on_expected = Some(handler);
    }

    /// Creates a queue to wait in.
    pub fn add_queue(&mut self, name: impl Into<String>) -> WaitQueue {
        self.core_mut().sched.add_queue(name)
    }

    /// Creates a lock.
    pub fn add_lock(&mut self, name: impl Into<String>, kind: LockKind) -> LockId {
        self.core_mut().sched.add_lock(name, kind)
    }

    /// Creates a barrier for this many tasks.
    ///
    /// # Panics
    /// If it is for none.
    pub fn add_barrier(&mut self, name: impl Into<String>, parties: usize) -> BarrierId {
        self.core_mut().sched.add_barrier(name, parties)
    }

    /// Runs until every task that is not a kernel thread is done, and returns when that was.
    ///
    /// # Errors
    /// A task panicked, or nothing will ever happen again. After a panic each further run fails alike.
    pub fn run(&mut self) -> Result<Ns, RunError> {
        self.run_until(Ns::MAX)
    }

    /// Runs as [`Sim::run`] does, but not beyond `limit`; everything that happens at `limit` is done.
    /// Returns where it stopped.
    ///
    /// # Errors
    /// As [`Sim::run`].
    pub fn run_until(&mut self, limit: Ns) -> Result<Ns, RunError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        self.core_mut().sched.set_until(limit);
        while self.core().sched.nr_live_users() > 0 {
            self.start_coroutines();
            let core = self.core_mut();
            match core.next.take().unwrap_or_else(|| core.sched.advance()) {
                Next::Resume(task) => {
                    self.note_progress(task)?;
                    self.resume(task)?;
                }
                Next::Device(device) => self.complete(device),
                Next::Limit => {
                    core.sched.reach_limit();
                    break;
                }
                Next::Nothing => {
                    core.sched.settle();
                    let (at, waiting) = (core.sched.now(), core.sched.waiting());
                    return Err(RunError::Deadlock { at, waiting });
                }
            }
        }
        let sched = &mut self.core_mut().sched;
        sched.settle();
        Ok(sched.now())
    }

    /// The present moment.
    #[must_use]
    pub fn now(&self) -> Ns {
        self.core().sched.now()
    }

    /// Number of CPUs.
    #[must_use]
    pub fn nr_cpus(&self) -> usize {
        self.core().sched.nr_cpus()
    }

    /// Number of tasks ever created; their numbers are below it.
    #[must_use]
    pub fn nr_tasks(&self) -> usize {
        self.core().sched.nr_tasks()
    }

    /// A task's name.
    #[must_use]
    pub fn task_name(&self, task: TaskId) -> &str {
        self.core().sched.name_of(task)
    }

    /// Whether a task is done.
    #[must_use]
    pub fn is_done(&self, task: TaskId) -> bool {
        self.core().sched.is_done(task)
    }

    /// What a task has done with its time, up to where the last run stopped.
    #[must_use]
    pub fn task_times(&self, task: TaskId) -> TaskTimes {
        self.core().sched.task_times(task)
    }

    /// What a CPU has done with its time, up to where the last run stopped.
    #[must_use]
    pub fn cpu_times(&self, cpu: CpuId) -> CpuTimes {
        self.core().sched.cpu_times(cpu)
    }

    /// Programs' tasks that are not done.
    #[must_use]
    pub fn nr_live_users(&self) -> u32 {
        self.core().sched.nr_live_users()
    }

    /// User and system time of all tasks that are no kernel threads, up to where the last run stopped.
    #[must_use]
    pub fn programs_times(&self) -> [Ns; 2] {
        self.core().sched.programs_times()
    }

    /// How long CPUs were idle, and idle while a task waited for a device: sums over all.
    #[must_use]
    pub fn idle_times(&self) -> [Ns; 2] {
        self.core().sched.idle_times()
    }

    /// How many tasks run or could run, how many wait for a device, and how often CPUs went from one task
    /// to another (`procs_running`, `procs_blocked`, `ctxt` in `/proc/stat`).
    #[must_use]
    pub fn activity(&self) -> [u64; 3] {
        self.core().sched.activity()
    }

    /// How a lock was used.
    #[must_use]
    pub fn lock_stats(&self, lock: LockId) -> LockStats {
        self.core().sched.lock_stats(lock)
    }

    /// The block devices, by number.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        self.core().sched.devices()
    }

    /// Begins (or ends, and forgets) to record each resumption of a task.
    pub fn record_resumptions(&mut self, on: bool) {
        self.core_mut().sched.record_resumptions(on);
    }

    /// The recorded resumptions, in order.
    #[must_use]
    pub fn resumptions(&self) -> &[Resumption] {
        self.core().sched.resumptions()
    }

    fn core(&self) -> &Core<W> {
        match &self.core {
            Some(core) => core,
            None => unreachable!("a task has the core only while it runs"),
        }
    }

    fn core_mut(&mut self) -> &mut Core<W> {
        match &mut self.core {
            Some(core) => core,
            None => unreachable!("a task has the core only while it runs"),
        }
    }

    fn start_coroutines(&mut self) {
        while let Some(code) = {
            let core = self.core_mut();
            (!core.spawned.is_empty()).then(|| core.spawned.remove(0))
        } {
            let number = self.coroutines.len() as u32;
            self.coroutines.push(Some(coroutine(number, code)));
        }
    }

    /// Counts a resumption at this moment; an error, once there were too many.
    fn note_progress(&mut self, task: u32) -> Result<(), RunError> {
        let now = self.now();
        if now != self.still.since {
            self.still = Still { since: now, ..Still::default() };
        }
        self.still.nr += 1;
        if self.still.nr > STILL_MAX {
            self.still.tasks.insert(task);
        }
        if self.still.nr <= STILL_MAX + STILL_NAMED {
            return Ok(());
        }
        let sched = &self.core().sched;
        let name = |&task: &u32| sched.name_of(TaskId(task)).to_owned();
        let tasks = self.still.tasks.iter().map(name).collect();
        let failed = RunError::Livelock { at: now, tasks };
        self.failed = Some(failed.clone());
        Err(failed)
    }

    /// Lets a task's code run until it suspends or ends.
    fn resume(&mut self, task: u32) -> Result<(), RunError> {
        let slot = &mut self.coroutines[task as usize];
        let (Some(mut core), Some(coroutine)) = (self.core.take(), slot.as_mut()) else {
            unreachable!("only tasks that are not done are resumed");
        };
        core.sched.resume(task);
        let outcome = match coroutine.resume(core) {
            CoroutineResult::Yield(core) => {
                self.core = Some(core);
                return Ok(());
            }
            CoroutineResult::Return((core, outcome)) => {
                self.core = core;
                outcome
            }
        };
        *slot = None;
        let sched = &mut self.core_mut().sched;
        match outcome {
            Ok(()) => {
                sched.exit();
                Ok(())
            }
            Err(why) => {
                let at = sched.now();
                let failed = match why {
                    Failed::Halted(Halt(message)) => RunError::Halted { at, message },
                    Failed::Panicked(message) => {
                        let task = sched.name_of(TaskId(task)).to_owned();
                        RunError::Panicked { task, at, message }
                    }
                };
                self.failed = Some(failed.clone());
                Err(failed)
            }
        }
    }

    fn complete(&mut self, device: u32) {
        let Some(core) = &mut self.core else { unreachable!("no task runs") };
        core.sched.complete(device);
        while let Some(completion) = core.sched.completed.pop_front() {
            if let Some(handler) = &mut self.on_completion {
                if let (Some(expect), Some(soon)) =
                    (self.on_expected, core.sched.completed.get(AHEAD))
                {
                    expect(&core.world, soon);
                }
                let waker = &mut Waker { sched: &mut core.sched };
                handler(&mut core.world, waker, DeviceId(device), completion);
            }
            core.sched.transfer_done(completion.ticket);
        }
    }
}

impl<W: 'static> Core<W> {
    fn spawn(&mut self, spec: TaskSpec, code: Code<W>) -> TaskId {
        self.spawned.push(code);
        self.sched.add_task(spec)
    }
}

/// A coroutine for a task's code, which carries panics out as text.
fn coroutine<W: 'static>(task: u32, code: Code<W>) -> TaskCoroutine<W> {
    Coroutine::new(move |yielder: &Yielder<Handed<W>, Handed<W>>, core| {
        let mut cx = Cx { yielder, core: Some(core), task };
        let result = catch_unwind(AssertUnwindSafe(|| code(&mut cx)));
        let core = cx.core.take();
        match result {
            Ok(()) => (core, Ok(())),
            // Dropping the simulation unwinds suspended tasks, which do not have the core.
            Err(payload) if core.is_none() => resume_unwind(payload),
            Err(payload) if payload.is::<ExitTask>() => (core, Ok(())),
            Err(payload) => {
                let failed = match payload.downcast::<Halt>() {
                    Ok(halt) => Failed::Halted(*halt),
                    Err(payload) => Failed::Panicked(text_of(payload.as_ref())),
                };
                (core, Err(failed))
            }
        }
    })
}

fn text_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}

/// Wakes tasks from outside of any task: when a transfer is done.
pub struct Waker<'a> {
    sched: &'a mut Scheduler,
}

impl Waker<'_> {
    /// The present moment.
    #[must_use]
    pub fn now(&self) -> Ns {
        self.sched.now()
    }

    /// Wakes the task that has waited longest in a queue, if there is one.
    pub fn wake_one(&mut self, queue: WaitQueue) -> bool {
        self.sched.wake_one(queue)
    }

    /// Wakes every task in a queue, and returns how many.
    pub fn wake_all(&mut self, queue: WaitQueue) -> usize {
        self.sched.wake_all(queue)
    }

    /// How many tasks wait in a queue.
    #[must_use]
    pub fn nr_waiting(&self, queue: WaitQueue) -> usize {
        self.sched.queue_len(queue)
    }
}

/// What a task sees of the simulation.
///
/// Methods that may suspend the task say so; between two of them nobody else runs and no time passes.
pub struct Cx<'a, W: 'static> {
    yielder: &'a Yielder<Handed<W>, Handed<W>>,
    core: Option<Handed<W>>,
    task: u32,
}

impl<W: 'static> Cx<'_, W> {
    /// The world.
    #[inline]
    pub fn world(&mut self) -> &mut W {
        &mut self.core_mut().world
    }

    /// The present moment: this task's clock.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Ns {
        self.core().sched.now()
    }

    /// This task.
    #[must_use]
    pub fn task(&self) -> TaskId {
        TaskId(self.task)
    }

    /// The CPU this task runs on.
    #[must_use]
    pub fn cpu(&self) -> CpuId {
        self.core().sched.cpu_of(self.task())
    }

    /// The node of that CPU.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.core().sched.node_of(self.cpu())
    }

    /// Does work that costs so much time of the CPU. It takes longer only where a [`Host`] has other work as well. Suspends
    /// if somebody else's turn comes before its end.
    ///
    /// [`Host`]: crate::Host
    #[inline]
    pub fn spend(&mut self, cost: Ns, mode: Mode) {
        let time = self.core().sched.work_takes(cost);
        self.keep_busy(time, mode);
    }

    /// Keeps the CPU busy until this task has used so much of its time, whatever work gets done meanwhile. Suspends if
    /// somebody else's turn comes before its end.
    #[inline]
    pub fn keep_busy(&mut self, time: Ns, mode: Mode) {
        if !self.core_mut().sched.spend_alone(time, mode) {
            self.spend_among_others(time, mode);
        }
    }

    #[cold]
    #[inline(never)]
    fn spend_among_others(&mut self, time: Ns, mode: Mode) {
        self.core_mut().sched.begin_to_spend(time, mode);
        self.suspend();
    }

    /// Sleeps for this long. Suspends.
    pub fn sleep(&mut self, time: Ns) {
        self.core_mut().sched.sleep(time);
        self.suspend();
    }

    /// Waits in a queue until woken. Suspends.
    ///
    /// Whoever looked at the world just before misses no wakeup: nobody runs between.
    pub fn wait(&mut self, queue: WaitQueue) {
        self.core_mut().sched.wait(queue, false, None);
        self.suspend();
    }

    /// Waits in a queue until woken, but not longer than this. Suspends.
    pub fn wait_timeout(&mut self, queue: WaitQueue, timeout: Ns) -> Wakeup {
        self.core_mut().sched.wait(queue, false, Some(timeout));
        self.suspend();
        self.core().sched.wakeup()
    }

    /// Waits in a queue for something a device does, which counts as iowait (`io_schedule`,
    /// `io_schedule_timeout`). Suspends.
    pub fn wait_for_io_in(&mut self, queue: WaitQueue, timeout: Option<Ns>) -> Wakeup {
        self.core_mut().sched.wait(queue, true, timeout);
        self.suspend();
        self.core().sched.wakeup()
    }

    /// Wakes the task that has waited longest in a queue, if there is one.
    pub fn wake_one(&mut self, queue: WaitQueue) -> bool {
        self.core_mut().sched.wake_one(queue)
    }

    /// Wakes every task in a queue, and returns how many.
    pub fn wake_all(&mut self, queue: WaitQueue) -> usize {
        self.core_mut().sched.wake_all(queue)
    }

    /// How many tasks wait in a queue (`waitqueue_active`).
    #[must_use]
    pub fn nr_waiting(&self, queue: WaitQueue) -> usize {
        self.core().sched.queue_len(queue)
    }

    /// Creates a queue to wait in.
    pub fn add_queue(&mut self, name: impl Into<String>) -> WaitQueue {
        self.core_mut().sched.add_queue(name)
    }

    /// Takes a lock. Suspends while another task has it; the time spent spinning is system time.
    ///
    /// # Panics
    /// If this task has it already. A task that holds a spinlock must not sleep or end.
    pub fn lock(&mut self, lock: LockId) {
        if self.core_mut().sched.lock(lock) {
            self.suspend();
        }
    }

    /// Releases a lock.
    ///
    /// # Panics
    /// If this task does not have it.
    pub fn unlock(&mut self, lock: LockId) {
        self.core_mut().sched.unlock(lock);
    }

    /// Takes a spinlock, keeps it for `time` and releases it, all as system time. May suspend.
    ///
    /// The same as `lock`, `spend`, `unlock`, but with at most one suspension: tasks queue up by the
    /// moment at which the lock will be free.
    ///
    /// # Panics
    /// If this task has the lock already, or it is not a spinlock.
    pub fn hold(&mut self, lock: LockId, time: Ns) {
        match self.core_mut().sched.hold(lock, time) {
            Some(time) => self.spend(time, Mode::System),
            None => self.suspend(),
        }
        self.core_mut().sched.enable_preemption();
    }

    /// The tasks that other CPUs run.
    pub fn running_elsewhere(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.core().sched.running_but_for(self.cpu())
    }

    /// How much longer than its cost it takes now to make other CPUs flush translations.
    pub(crate) fn flush_wait(&self) -> Ns {
        self.core().sched.flush_wait(self.cpu())
    }

    /// Whether another task has a spinlock, or waits for it (`spin_trylock` would fail).
    #[must_use]
    pub fn is_taken(&self, lock: LockId) -> bool {
        self.core().sched.is_taken(lock)
    }

    /// Waits at a barrier for the other tasks. Suspends, but for the last one to come, for which it is
    /// true.
    pub fn barrier(&mut self, barrier: BarrierId) -> bool {
        let is_last = self.core_mut().sched.arrive(barrier);
        if !is_last {
            self.suspend();
        }
        is_last
    }

    /// Lets another task of this CPU go on if this one's turn is over: its slice, or because somebody was woken who has
    /// run less. May suspend.
    pub fn cond_resched(&mut self) {
        self.spend(Ns::ZERO, Mode::System);
    }

    /// Changes where this task may run. Suspends if it has to move.
    ///
    /// # Panics
    /// If there is no such CPU.
    pub fn set_affinity(&mut self, affinity: Affinity) {
        if self.core_mut().sched.set_affinity(affinity) {
            self.suspend();
        }
    }

    /// Goes to an idle CPU of a node, if there is one where this task may run. Suspends if it does; whether it did.
    pub fn move_to_node(&mut self, node: NodeId) -> bool {
        let moves = self.core_mut().sched.move_to_node(node);
        if moves {
            self.suspend();
        }
        moves
    }

    /// Creates a task, ready to run at the present moment.
    ///
    /// # Panics
    /// If there is no CPU where it may run.
    pub fn spawn(&mut self, spec: TaskSpec, code: impl FnOnce(&mut Cx<'_, W>) + 'static) -> TaskId {
        self.core_mut().spawn(spec, Box::new(code))
    }

    /// Waits for another task's end. Suspends if it is not done yet.
    ///
    /// # Panics
    /// If it is this task.
    pub fn join(&mut self, task: TaskId) {
        if self.core_mut().sched.join(task) {
            self.suspend();
        }
    }

    /// Ends this task, unwinding its code.
    pub fn exit(&mut self) -> ! {
        resume_unwind(Box::new(ExitTask))
    }

    /// Ends the simulation: the machine cannot go on, for this reason.
    pub fn halt(&mut self, why: String) -> ! {
        resume_unwind(Box::new(Halt(why)))
    }

    /// Submits a transfer and lets the device begin. Suspends, as iowait, if the device's queue is full.
    ///
    /// # Panics
    /// If the transfer is empty or reaches beyond the device.
    pub fn submit(&mut self, device: DeviceId, io: Io) -> Ticket {
        let ticket = self.submit_one(device, io);
        self.core_mut().sched.dispatch(device);
        ticket
    }

    /// Submits several transfers before the device begins with any of them, so that neighbours merge
    /// (`blk_start_plug`). Suspends, as iowait, if the device's queue is full.
    ///
    /// # Panics
    /// As [`Cx::submit`].
    pub fn submit_all(&mut self, device: DeviceId, ios: &[Io]) -> Vec<Ticket> {
        let tickets = ios.iter().map(|&io| self.submit_one(device, io)).collect();
        self.core_mut().sched.dispatch(device);
        tickets
    }

    /// Waits for a transfer. Suspends, as iowait, if it is not done yet.
    pub fn wait_io(&mut self, ticket: Ticket) {
        if self.core_mut().sched.wait_io(ticket) {
            self.suspend();
        }
    }

    /// Waits until a device leaves congestion, but not longer than this (`congestion_wait`). Suspends, as
    /// iowait.
    pub fn congestion_wait(&mut self, class: Class, timeout: Ns) -> Wakeup {
        let queue = self.core().sched.congestion_queue(class);
        self.wait_for_io_in(queue, Some(timeout))
    }

    /// Number of block devices.
    #[must_use]
    pub fn nr_devices(&self) -> usize {
        self.core().sched.devices().len()
    }

    /// A block device.
    #[must_use]
    pub fn device(&self, device: DeviceId) -> &Device {
        self.core().sched.device(device)
    }

    /// What this task has done with its time.
    pub fn times(&mut self) -> TaskTimes {
        let task = self.task();
        let sched = &mut self.core_mut().sched;
        sched.account_current();
        sched.task_times(task)
    }

    /// User and system time of all tasks that are no kernel threads, those that are done included.
    pub fn programs_times(&mut self) -> [Ns; 2] {
        let sched = &mut self.core_mut().sched;
        sched.settle();
        sched.programs_times()
    }

    /// How long CPUs were idle until now, and idle while a task waited for a device: sums over all.
    pub fn idle_times(&mut self) -> [Ns; 2] {
        let sched = &mut self.core_mut().sched;
        sched.settle();
        sched.idle_times()
    }

    fn submit_one(&mut self, device: DeviceId, io: Io) -> Ticket {
        loop {
            match self.core_mut().sched.submit(device, io) {
                Ok(ticket) => return ticket,
                Err(_full) => self.suspend(),
            }
        }
    }

    /// Lets others run until it is this task's turn again.
    ///
    /// If it is already, nothing is switched.
    fn suspend(&mut self) {
        let task = self.task;
        let core = self.core_mut();
        let next = core.sched.advance();
        if next == Next::Resume(task) {
            core.sched.resume(task);
            return;
        }
        core.next = Some(next);
        if let Some(core) = self.core.take() {
            self.core = Some(self.yielder.suspend(core));
        }
        debug_assert_eq!(self.core().sched.current(), self.task());
    }

    #[inline]
    fn core(&self) -> &Core<W> {
        match &self.core {
            Some(core) => core,
            None => gone(),
        }
    }

    #[inline]
    fn core_mut(&mut self) -> &mut Core<W> {
        match &mut self.core {
            Some(core) => core,
            None => gone(),
        }
    }
}

#[cold]
fn gone() -> ! {
    panic!("a task goes on although its simulation is being dropped")
}
