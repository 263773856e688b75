//! The scheduler: whose turn it is, on which CPU, and on whose account time goes.
//!
//! Time moves from moment to moment. Each task on a CPU has the moment at which what it is spending ends;
//! each sleeping task may have one at which it wakes; each device has one at which it completes a request.
//! The first of all is next, devices before tasks, lower numbers before higher. A task's code runs at one
//! moment and takes no time itself: it says with `spend` how long what it just did takes. Time that is
//! being spent is charged when it has passed, so a task can lose its CPU in the middle of it.
//!
//! Models: kernel/sched/fair.c for tasks of equal weight. v2.6.23 to v6.5 (CFS): the task that has run
//! least goes next, for a slice of latency / tasks but not less than the minimum granularity; a woken task
//! is placed up to half a latency before the others, and takes the CPU if it is more than the wakeup
//! granularity behind the running one. Since v6.6 (EEVDF): `deadline`. A slice ends at a tick of the timer
//! ([`TICK`]). kernel/sched/cputime.c (`account_idle_time`): idle time counts as
//! iowait while a task that last ran on the CPU waits for a device.
//! Load is balanced when tasks wake, when they are preempted, when CPUs fall idle, and from time to time
//! (`balance`).
//! Departs: nice values, groups, real-time classes and interrupts are left out; one does not see them.

mod balance;
mod deadline;
mod transfers;

use crate::device::{Class, Completion, Device, DeviceSpec, Freed, Ticket};
use crate::events::{Events, NEVER};
use crate::task::{Affinity, CpuTimes, Mode, Resumption, TaskId, TaskSpec, TaskTimes, Wakeup};
use balance::{Load, Rota};
use deadline::Request;
use highorder_mm::types::NodeId;
use highorder_words::{CpuId, Ns};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::ops::{Deref, Index, IndexMut};
use transfers::Transfers;

/// The timer ticks this often on every CPU, at the same moments (`CONFIG_HZ=250`, as Debian has it).
pub const TICK: Ns = Ns::from_millis(4);

/// The first tick at a moment or after it.
const fn tick_from(moment: u64) -> u64 {
    moment.div_ceil(TICK.0) * TICK.0
}

/// Which of a CPU's tasks goes next, and when one that is woken takes the CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Picks {
    /// The one that has run least; one that is woken goes at once if it is clearly behind (CFS, before 6.6).
    #[default]
    LeastRun,
    /// Of those that have not had more than their share, the one whose slice is to end first; one that is woken waits
    /// until the slice of who runs is over (EEVDF, 147f3efaa241, 6.6).
    EarliestDeadline,
}

/// Times of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SchedSpec {
    /// In this time every runnable task of a CPU runs once: `sched_latency_ns`.
    pub latency: Ns,
    /// But each for at least this long: `sched_min_granularity_ns`. Since 6.6 each slice: `base_slice_ns`.
    pub min_granularity: Ns,
    /// A woken task takes the CPU if it has run less than the running one by more than this:
    /// `sched_wakeup_granularity_ns`.
    pub wakeup_granularity: Ns,
    /// Cost of switching a CPU from one task to another, charged as system time to the incoming task.
    pub context_switch: Ns,
    /// The host that emulates the CPUs, if it has other work as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
}

/// A host that emulates CPUs, each with a thread, and has other work as well.
///
/// Threads that want more than it has wait in turn: work takes longer, an interrupt reaches its CPU late, and so does a disk
/// that is emulated too.
/// Departs: all CPUs slow down alike and evenly, by how many have work when a piece of work begins; a host lets each run for
/// 4 ms and wait for 4 to 12 (measured of busy threads of QEMU, beside those of another guest). Visible as: what depends on
/// which of two CPUs is first differs less from run to run; and where kswapd frees blocks of a file beside two writers, its
/// pages come in smaller pieces between theirs, so that fewer make a huge page: 224 to 268 of 4.20's 325 with
/// `defrag=defer`, and 236 to 305 if CPUs take such turns in an order drawn by lot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Host {
    /// How long work takes, in hundredths of its cost.
    pub work_percent: ByBusy<u64>,
    /// How much longer than its cost it takes to make other CPUs flush translations.
    pub flush_wait: ByBusy<Ns>,
    /// How much longer a disk's access takes.
    pub access_wait: ByBusy<Ns>,
}

impl Host {
    /// The most busy CPUs that may have a value of their own.
    pub const MOST_BUSY: usize = 8;
}

/// A value for each number of CPUs that have work: for one, for two and so on. The last is that of all larger numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ByBusy<T>([T; Host::MOST_BUSY]);

impl<T: Copy + PartialEq> ByBusy<T> {
    /// # Panics
    /// If there is no value, or more than [`Host::MOST_BUSY`].
    #[must_use]
    pub fn new(values: &[T]) -> Self {
        assert!(values.len() <= Host::MOST_BUSY, "{} values", values.len());
        let last = values.last().expect("there is a value");
        Self(std::array::from_fn(|at| *values.get(at).unwrap_or(last)))
    }

    /// The value where so many CPUs have work, of which there is at least one.
    #[must_use]
    pub fn at(&self, busy: usize) -> T {
        self.0[busy.clamp(1, Host::MOST_BUSY) - 1]
    }

    /// Each value changed so.
    #[must_use]
    pub fn map<U>(self, change: impl FnMut(T) -> U) -> ByBusy<U> {
        ByBusy(self.0.map(change))
    }

    /// From how many CPUs with work on the value no longer changes.
    #[must_use]
    pub fn settles_at(&self) -> usize {
        let last = self.0[Host::MOST_BUSY - 1];
        self.0.iter().rposition(|&value| value != last).map_or(1, |differs| differs + 2)
    }
}

impl SchedSpec {
    /// With the times that a kernel has for so many CPUs.
    ///
    /// Models: kernel/sched/fair.c, v2.6.38 to v6.12: 6, 0.75 and 1 ms, times 1 + log2(CPUs), of which at most 8 count
    /// (`get_update_sysctl_factor`).
    #[doc(alias = "get_update_sysctl_factor")]
    #[must_use]
    pub fn of_cpus(self, nr: u32) -> Self {
        let times = 1 + u64::from(nr.clamp(1, 8).ilog2());
        Self {
            latency: Ns(6_000_000 * times),
            min_granularity: Ns(750_000 * times),
            wakeup_granularity: Ns(1_000_000 * times),
            ..self
        }
    }
}

/// What a simulated machine consists of, as far as time goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimSpec {
    /// The node of each CPU.
    pub cpu_nodes: Vec<NodeId>,
    /// Times of the scheduler.
    pub sched: SchedSpec,
    /// What it picks.
    pub picks: Picks,
    /// Block devices.
    pub devices: Vec<DeviceSpec>,
}

/// Names a queue of waiting tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitQueue(pub(crate) u32);

/// Names a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockId(pub(crate) u32);

/// Names a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BarrierId(pub(crate) u32);

/// Names a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct DeviceId(pub u32);

/// What a task does while a lock is held by another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// It keeps its CPU and spins; nor can the holder lose its CPU: `zone->lock`, the LRU lock.
    Spin,
    /// It sleeps: a mutex.
    Sleep,
}

/// How a lock was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockStats {
    /// Times it was taken.
    pub taken: u64,
    /// Times a task had to wait for it.
    pub contended: u64,
    /// Time that tasks waited for it, all together.
    pub waited: Ns,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// This task's code goes on.
    Resume(u32),
    /// This device completes requests.
    Device(u32),
    /// The limit of the run is reached.
    Limit,
    /// Nothing will ever happen.
    Nothing,
}

/// What a blocked task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitFor {
    Time,
    Queue(u32),
    Lock(u32),
    Barrier(u32),
    Exit(u32),
    Io(Ticket),
    Request(u32, Class),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In the queue of its CPU.
    Ready,
    /// On its CPU.
    Running,
    /// Somewhere else.
    Blocked(WaitFor, bool),
    Done,
}

#[derive(Clone, Debug)]
struct Task {
    name: String,
    is_kernel_thread: bool,
    affinity: Affinity,
    state: State,
    /// Where it runs or ran last.
    cpu: CpuId,
    /// Until when its time is accounted for.
    since: u64,
    /// Time of the switch to it that is still to pass, before what it spends.
    switch_left: u64,
    /// Time that it spends and that is still to pass.
    left: u64,
    mode: Mode,
    /// Time it has run, comparable among the tasks of its CPU.
    vruntime: i64,
    /// What it asked of its CPU, where that goes by deadlines.
    request: Request,
    load: Load,
    /// Spinlocks it holds or spins on.
    preempt_off: u32,
    wakeup: Wakeup,
    joiners: Vec<u32>,
    times: TaskTimes,
}

#[derive(Clone, Debug)]
struct Cpu {
    node: NodeId,
    running: Option<u32>,
    last: Option<u32>,
    queue: BTreeSet<(i64, u32)>,
    min_vruntime: i64,
    /// When its task was given it.
    picked_at: u64,
    slice_end: u64,
    /// Its task keeps it until the end of the slice that it began.
    is_kept: bool,
    /// Tasks that sleep, and count among its tasks until it would be their turn.
    lingering: Vec<u32>,
    /// When it was last looked at how long its task has run, but for ticks.
    looked_at: u64,
    rota: Rota,
    /// Until when its idle time is accounted for.
    idle_since: u64,
    nr_iowait: u32,
    times: CpuTimes,
}

/// Every CPU, in order of their numbers.
#[derive(Clone, Debug)]
struct Cpus(Vec<Cpu>);

impl Cpus {
    fn ids(&self) -> impl DoubleEndedIterator<Item = CpuId> + use<> {
        CpuId::all(self.0.len())
    }
}

impl Deref for Cpus {
    type Target = [Cpu];

    #[inline]
    fn deref(&self) -> &[Cpu] {
        &self.0
    }
}

impl Index<CpuId> for Cpus {
    type Output = Cpu;

    #[inline]
    fn index(&self, id: CpuId) -> &Cpu {
        &self.0[id.index()]
    }
}

impl IndexMut<CpuId> for Cpus {
    #[inline]
    fn index_mut(&mut self, id: CpuId) -> &mut Cpu {
        &mut self.0[id.index()]
    }
}

impl Cpu {
    fn is_idle(&self) -> bool {
        self.running.is_none()
    }

    /// Whether its task is not the only one that counts.
    fn is_wanted(&self) -> bool {
        !self.queue.is_empty() || !self.lingering.is_empty()
    }
}

#[derive(Clone, Debug)]
struct Lock {
    name: String,
    kind: LockKind,
    owner: Option<u32>,
    /// Until when it is held by tasks that said for how long.
    free_at: u64,
    /// In order of arrival: the task, since when, and for how long it will hold it, if it said so.
    waiters: VecDeque<(u32, u64, Option<u64>)>,
    stats: LockStats,
}

#[derive(Clone, Debug)]
struct Queue {
    name: String,
    tasks: VecDeque<u32>,
}

#[derive(Clone, Debug)]
struct Barrier {
    name: String,
    parties: usize,
    waiting: Vec<u32>,
}

/// The current task is none of them: a device, or the time before the start.
const NOBODY: u32 = u32::MAX;

/// By how many percent of the other node's load a node may be above it and still keep a new task of its own:
/// 100 and half of what `imbalance_pct` is beyond it, which is 125 between nodes (`find_idlest_group`,
/// `sd_init`, v4.4). `task_numa_migrate` takes the same.
const FORK_IMBALANCE: u64 = 112;

/// Tasks, CPUs, locks, queues and devices, and the present moment.
#[derive(Debug)]
pub(crate) struct Scheduler {
    /// The present moment; the clock of the current task.
    now: u64,
    /// The current task may spend up to before this moment without anybody else's turn coming.
    limit: u64,
    /// What the current task has spent and is not accounted for yet, by [`Mode`].
    unaccounted: [u64; 2],
    /// The task whose code runs.
    current: u32,
    /// The last moment of this run.
    until: u64,
    nr_live_users: u32,
    /// Ready tasks in all queues.
    nr_ready: u32,
    spec: SchedSpec,
    picks: Picks,
    tasks: Vec<Task>,
    cpus: Cpus,
    nr_nodes: usize,
    node_rotas: Vec<Rota>,
    events: Events,
    queues: Vec<Queue>,
    locks: Vec<Lock>,
    barriers: Vec<Barrier>,
    devices: Vec<Device>,
    /// By device and class: tasks that wait for a request to be freed.
    request_waiters: Vec<[VecDeque<u32>; 2]>,
    /// Tasks that wait for any device to leave congestion, by class.
    congestion_waiters: [WaitQueue; 2],
    transfers: Transfers,
    pub(crate) completed: VecDeque<Completion>,
    resumptions: Option<Vec<Resumption>>,
}

impl Scheduler {
    pub(crate) fn new(spec: SimSpec) -> Self {
        assert!(!spec.cpu_nodes.is_empty(), "a machine has at least one CPU");
        assert!(spec.sched.min_granularity > Ns::ZERO, "a slice of no time would never end");
        let cpu = |node| Cpu {
            node,
            running: None,
            last: None,
            queue: BTreeSet::new(),
            min_vruntime: 0,
            picked_at: 0,
            slice_end: 0,
            is_kept: false,
            lingering: Vec::new(),
            looked_at: 0,
            rota: Rota::default(),
            idle_since: 0,
            nr_iowait: 0,
            times: CpuTimes::default(),
        };
        let mut events = Events::new();
        events.grow(spec.devices.len());
        let nr_nodes = spec.cpu_nodes.iter().max().map_or(0, |&node| node.index() + 1);
        let mut this = Self {
            now: 0,
            limit: 0,
            unaccounted: [0; 2],
            current: NOBODY,
            until: 0,
            nr_live_users: 0,
            nr_ready: 0,
            spec: spec.sched,
            picks: spec.picks,
            tasks: Vec::new(),
            nr_nodes,
            node_rotas: vec![Rota::default(); nr_nodes],
            cpus: Cpus(spec.cpu_nodes.into_iter().map(cpu).collect()),
            events,
            queues: Vec::new(),
            locks: Vec::new(),
            barriers: Vec::new(),
            request_waiters: spec.devices.iter().map(|_| Default::default()).collect(),
            devices: spec.devices.into_iter().map(Device::new).collect(),
            congestion_waiters: [WaitQueue(0); 2],
            transfers: Transfers::default(),
            completed: VecDeque::new(),
            resumptions: None,
        };
        this.congestion_waiters =
            [this.add_queue("congestion (async)"), this.add_queue("congestion (sync)")];
        this
    }

    // What there is.

    pub(crate) fn now(&self) -> Ns {
        Ns(self.now)
    }

    pub(crate) fn current(&self) -> TaskId {
        TaskId(self.current)
    }

    pub(crate) fn nr_cpus(&self) -> usize {
        self.cpus.len()
    }

    pub(crate) fn nr_tasks(&self) -> usize {
        self.tasks.len()
    }

    pub(crate) fn nr_live_users(&self) -> u32 {
        self.nr_live_users
    }

    pub(crate) fn cpu_of(&self, task: TaskId) -> CpuId {
        self.tasks[task.0 as usize].cpu
    }

    /// The tasks that CPUs other than this one run.
    pub(crate) fn running_but_for(&self, cpu: CpuId) -> impl Iterator<Item = TaskId> + '_ {
        let others = self.cpus.ids().filter(move |&other| other != cpu);
        others.filter_map(|other| self.cpus[other].running.map(TaskId))
    }

    /// How many CPUs have work while a CPU's task runs.
    fn busy_with(&self, cpu: CpuId) -> usize {
        self.running_but_for(cpu).count() + 1
    }

    /// How long the current task's work takes now that costs so much.
    #[inline]
    pub(crate) fn work_takes(&self, cost: Ns) -> Ns {
        self.spec.host.as_ref().map_or(cost, |host| self.work_takes_on(host, cost))
    }

    #[cold]
    fn work_takes_on(&self, host: &Host, cost: Ns) -> Ns {
        let busy = self.busy_with(self.tasks[self.current as usize].cpu);
        Ns(cost.0.saturating_mul(host.work_percent.at(busy)) / 100)
    }

    /// How much longer than its cost it takes to make other CPUs flush translations now. Who waits works, and that takes
    /// longer anyway ([`Self::work_takes`]): this is what comes to the wait so.
    pub(crate) fn flush_wait(&self, cpu: CpuId) -> Ns {
        let Some(host) = &self.spec.host else { return Ns::ZERO };
        let busy = self.busy_with(cpu);
        host.flush_wait.at(busy) * 100 / host.work_percent.at(busy)
    }

    /// How much longer an access takes that a CPU's task begins now, who then sleeps until it is done.
    fn access_wait(&self, cpu: CpuId) -> Ns {
        let Some(host) = &self.spec.host else { return Ns::ZERO };
        let here = usize::from(!self.cpus[cpu].queue.is_empty());
        match self.running_but_for(cpu).count() + here {
            0 => Ns::ZERO,
            busy => host.access_wait.at(busy),
        }
    }

    pub(crate) fn node_of(&self, cpu: CpuId) -> NodeId {
        self.cpus[cpu].node
    }

    pub(crate) fn name_of(&self, task: TaskId) -> &str {
        &self.tasks[task.0 as usize].name
    }

    pub(crate) fn is_done(&self, task: TaskId) -> bool {
        self.tasks[task.0 as usize].state == State::Done
    }

    /// Complete up to the last account; the current task's is made with [`Self::account_current`].
    pub(crate) fn task_times(&self, task: TaskId) -> TaskTimes {
        self.tasks[task.0 as usize].times
    }

    pub(crate) fn cpu_times(&self, cpu: CpuId) -> CpuTimes {
        self.cpus[cpu].times
    }

    /// Sums over the CPUs: idle, and idle while a task waited for a device.
    pub(crate) fn idle_times(&self) -> [Ns; 2] {
        let times = self.cpus.iter().map(|cpu| cpu.times);
        times.fold([Ns::ZERO; 2], |[idle, iowait], cpu| [idle + cpu.idle, iowait + cpu.iowait])
    }

    pub(crate) fn programs_times(&self) -> [Ns; 2] {
        let programs = self.tasks.iter().filter(|task| !task.is_kernel_thread);
        programs.fold([Ns::ZERO; 2], |[user, system], task| {
            [user + task.times.user, system + task.times.system]
        })
    }

    pub(crate) fn activity(&self) -> [u64; 3] {
        let mut activity = [0; 3];
        for task in &self.tasks {
            match task.state {
                State::Ready | State::Running => activity[0] += 1,
                State::Blocked(_, true) => activity[1] += 1,
                State::Blocked(_, false) | State::Done => {}
            }
            activity[2] += task.times.voluntary_switches + task.times.involuntary_switches;
        }
        activity
    }

    pub(crate) fn lock_stats(&self, lock: LockId) -> LockStats {
        self.locks[lock.0 as usize].stats
    }

    pub(crate) fn device(&self, device: DeviceId) -> &Device {
        &self.devices[device.0 as usize]
    }

    pub(crate) fn devices(&self) -> &[Device] {
        &self.devices
    }

    pub(crate) fn queue_len(&self, queue: WaitQueue) -> usize {
        self.queues[queue.0 as usize].tasks.len()
    }

    pub(crate) fn record_resumptions(&mut self, on: bool) {
        self.resumptions = on.then(Vec::new);
    }

    pub(crate) fn resumptions(&self) -> &[Resumption] {
        self.resumptions.as_deref().unwrap_or_default()
    }

    pub(crate) fn add_queue(&mut self, name: impl Into<String>) -> WaitQueue {
        self.queues.push(Queue { name: name.into(), tasks: VecDeque::new() });
        WaitQueue(self.queues.len() as u32 - 1)
    }

    pub(crate) fn add_lock(&mut self, name: impl Into<String>, kind: LockKind) -> LockId {
        self.locks.push(Lock {
            name: name.into(),
            kind,
            owner: None,
            free_at: 0,
            waiters: VecDeque::new(),
            stats: LockStats::default(),
        });
        LockId(self.locks.len() as u32 - 1)
    }

    pub(crate) fn add_barrier(&mut self, name: impl Into<String>, parties: usize) -> BarrierId {
        assert!(parties > 0, "a barrier for no tasks");
        self.barriers.push(Barrier { name: name.into(), parties, waiting: Vec::new() });
        BarrierId(self.barriers.len() as u32 - 1)
    }

    /// Why tasks other than kernel threads are not done: name and what each waits for.
    pub(crate) fn waiting(&self) -> Vec<(String, String)> {
        let waiting = |task: &Task| match task.state {
            State::Blocked(what, _) if !task.is_kernel_thread => {
                Some((task.name.clone(), self.describe(what)))
            }
            // Whoever spins has nothing to wake it either.
            State::Running if !task.is_kernel_thread => {
                Some((task.name.clone(), "a spinlock".to_owned()))
            }
            _ => None,
        };
        self.tasks.iter().filter_map(waiting).collect()
    }

    fn describe(&self, what: WaitFor) -> String {
        match what {
            WaitFor::Time => "time to pass".to_owned(),
            WaitFor::Queue(queue) => format!("queue `{}`", self.queues[queue as usize].name),
            WaitFor::Lock(lock) => format!("lock `{}`", self.locks[lock as usize].name),
            WaitFor::Barrier(barrier) => {
                format!("barrier `{}`", self.barriers[barrier as usize].name)
            }
            WaitFor::Exit(task) => format!("the end of {}", self.tasks[task as usize].name),
            WaitFor::Io(ticket) => format!("transfer {}", ticket.0),
            WaitFor::Request(device, _) => {
                format!("a request of {}", self.devices[device as usize].spec().name)
            }
        }
    }

    // Whose turn it is.

    /// Goes on to the next moment at which code runs.
    pub(crate) fn advance(&mut self) -> Next {
        debug_assert_eq!(self.current, NOBODY, "a task runs while another one is looked for");
        loop {
            let (at, subject) = self.events.first();
            if at > self.until {
                return Next::Limit;
            }
            if at == NEVER {
                return Next::Nothing;
            }
            debug_assert!(at >= self.now, "time goes back");
            self.now = at;
            let Some(task) = subject.checked_sub(self.devices.len()) else {
                return Next::Device(subject as u32);
            };
            match self.tasks[task].state {
                State::Running => {
                    if self.its_moment(task) {
                        return Next::Resume(task as u32);
                    }
                }
                State::Blocked(what, _) => self.time_is_up(task, what),
                State::Ready | State::Done => unreachable!("a task with a moment of its own"),
            }
        }
    }

    /// Lets the code of a task run from now on.
    pub(crate) fn resume(&mut self, task: u32) {
        self.current = task;
        self.set_moment(task as usize, NEVER);
        self.refresh_limit();
        if let Some(resumptions) = &mut self.resumptions {
            let cpu = self.tasks[task as usize].cpu;
            resumptions.push(Resumption { at: Ns(self.now), task: TaskId(task), cpu });
        }
    }

    /// Begins or extends a run up to and including this moment.
    pub(crate) fn set_until(&mut self, until: Ns) {
        self.until = until.0;
    }

    /// Ends a run at its limit.
    pub(crate) fn reach_limit(&mut self) {
        self.now = self.now.max(self.until);
    }

    /// Brings all accounts up to now.
    pub(crate) fn settle(&mut self) {
        for task in 0..self.tasks.len() {
            match self.tasks[task].state {
                State::Running => self.charge(task),
                State::Ready | State::Blocked(..) => self.account_waiting(task),
                State::Done => {}
            }
        }
        for cpu in self.cpus.ids() {
            self.account_idle(cpu);
        }
    }

    /// A running task has come to the end of what it spends, or of its slice. Whether it goes on.
    fn its_moment(&mut self, task: usize) -> bool {
        self.charge(task);
        if self.must_yield(task) {
            self.preempt(task);
            return false;
        }
        let this = &self.tasks[task];
        if this.left == 0 && this.switch_left == 0 {
            return true;
        }
        self.refresh_moment(task);
        false
    }

    fn time_is_up(&mut self, task: usize, what: WaitFor) {
        if let WaitFor::Queue(queue) = what {
            self.queues[queue as usize].tasks.retain(|&waiting| waiting as usize != task);
        }
        self.wake(task, Wakeup::TimedOut);
    }

    fn must_yield(&self, task: usize) -> bool {
        let this = &self.tasks[task];
        let cpu = &self.cpus[this.cpu];
        this.preempt_off == 0 && cpu.is_wanted() && self.now >= cpu.slice_end
    }

    fn set_moment(&mut self, task: usize, at: u64) {
        self.events.set(self.devices.len() + task, at);
    }

    /// The moment at which a running task that is not current needs attention.
    fn refresh_moment(&mut self, task: usize) {
        let this = &self.tasks[task];
        let mut at = this.since.saturating_add(this.switch_left).saturating_add(this.left);
        let cpu = &self.cpus[this.cpu];
        if this.preempt_off == 0 && cpu.is_wanted() {
            at = at.min(cpu.slice_end.max(this.since));
        }
        self.set_moment(task, at);
    }

    /// How far the current task may go before somebody else's turn.
    fn refresh_limit(&mut self) {
        if self.current == NOBODY {
            return;
        }
        let (at, subject) = self.events.first();
        let me = self.devices.len() + self.current as usize;
        let this = &self.tasks[self.current as usize];
        let cpu = &self.cpus[this.cpu];
        // Moments are compared with `<`: with a higher number at the same moment, we still go first.
        let mut limit = at.saturating_add(u64::from(me < subject));
        if this.preempt_off == 0 && cpu.is_wanted() {
            limit = limit.min(cpu.slice_end);
        }
        self.limit = limit.min(self.until.saturating_add(1));
    }

    // Spending.

    /// Spends time if nobody else's turn comes before its end.
    #[inline]
    pub(crate) fn spend_alone(&mut self, time: Ns, mode: Mode) -> bool {
        let end = self.now + time.0;
        if end < self.limit {
            self.now = end;
            self.unaccounted[mode as usize] += time.0;
            return true;
        }
        false
    }

    /// Begins to spend time, and lets others have their turn meanwhile.
    pub(crate) fn begin_to_spend(&mut self, time: Ns, mode: Mode) {
        self.account_current();
        let task = self.leave_code();
        self.tasks[task].left = time.0;
        self.tasks[task].mode = mode;
        self.refresh_moment(task);
    }

    /// The current task's code stops running.
    fn leave_code(&mut self) -> usize {
        let task = self.current as usize;
        self.current = NOBODY;
        task
    }

    /// Accounts for what the current task has spent since it was resumed.
    pub(crate) fn account_current(&mut self) {
        let [user, system] = std::mem::take(&mut self.unaccounted);
        let task = self.current as usize;
        self.account_run(task, user, system);
        self.tasks[task].since = self.now;
    }

    fn account_run(&mut self, task: usize, user: u64, system: u64) {
        let this = &mut self.tasks[task];
        let cpu = &mut self.cpus[this.cpu];
        this.times.user += Ns(user);
        this.times.system += Ns(system);
        cpu.times.user += Ns(user);
        cpu.times.system += Ns(system);
        this.vruntime += (user + system) as i64;
        let least = cpu.queue.first().map_or(this.vruntime, |&(first, _)| first.min(this.vruntime));
        cpu.min_vruntime = cpu.min_vruntime.max(least);
    }

    /// Accounts for what a running task that is not current has spent up to now.
    fn charge(&mut self, task: usize) {
        if self.current as usize == task {
            self.account_current();
            return;
        }
        let now = self.now;
        let this = &mut self.tasks[task];
        let passed = now - this.since;
        let switching = passed.min(this.switch_left);
        let spent = passed - switching;
        this.switch_left -= switching;
        this.left -= spent;
        this.since = now;
        match this.mode {
            Mode::User => self.account_run(task, spent, switching),
            Mode::System => self.account_run(task, 0, switching + spent),
        }
    }

    fn account_waiting(&mut self, task: usize) {
        let now = self.now;
        let this = &mut self.tasks[task];
        let passed = Ns(now - this.since);
        this.since = now;
        match this.state {
            State::Ready => this.times.runnable += passed,
            State::Blocked(_, true) => this.times.iowait += passed,
            State::Blocked(_, false) => this.times.asleep += passed,
            State::Running | State::Done => unreachable!("it does not wait"),
        }
    }

    /// Accounts for the time that an idle CPU had nothing to run.
    #[doc(alias = "account_idle_time")]
    fn account_idle(&mut self, cpu: CpuId) {
        let now = self.now;
        let this = &mut self.cpus[cpu];
        if !this.is_idle() {
            return;
        }
        let passed = Ns(now - this.idle_since);
        this.idle_since = now;
        if this.nr_iowait > 0 {
            this.times.iowait += passed;
        } else {
            this.times.idle += passed;
        }
    }

    // CPUs.

    /// Creates a task that is ready to run at the present moment.
    pub(crate) fn add_task(&mut self, spec: TaskSpec) -> TaskId {
        match spec.affinity {
            Affinity::Any => {}
            Affinity::Cpu(cpu) => {
                assert!(cpu.index() < self.cpus.len(), "{}: no CPU {}", spec.name, cpu.0);
            }
            Affinity::Node(node) => assert!(
                self.cpus.iter().any(|cpu| cpu.node == node),
                "{}: no CPU on node {node}",
                spec.name
            ),
        }
        let number = self.tasks.len();
        self.nr_live_users += u32::from(!spec.is_kernel_thread);
        self.tasks.push(Task {
            name: spec.name,
            is_kernel_thread: spec.is_kernel_thread,
            affinity: spec.affinity,
            state: State::Ready,
            cpu: CpuId(0),
            since: self.now,
            switch_left: 0,
            left: 0,
            mode: Mode::User,
            vruntime: 0,
            request: Request::of_new_task(self.spec.min_granularity),
            load: Load::of_new_task(self.now),
            preempt_off: 0,
            wakeup: Wakeup::Woken,
            joiners: Vec::new(),
            times: TaskTimes::default(),
        });
        self.events.grow(self.devices.len() + self.tasks.len());
        let cpu = self.first_cpu(number);
        self.tasks[number].cpu = cpu;
        self.tasks[number].vruntime = self.cpus[cpu].min_vruntime;
        self.enter(number, cpu);
        self.refresh_limit();
        TaskId(number as u32)
    }

    fn may_run(&self, task: usize, cpu: CpuId) -> bool {
        match self.tasks[task].affinity {
            Affinity::Any => true,
            Affinity::Node(node) => self.cpus[cpu].node == node,
            Affinity::Cpu(only) => only == cpu,
        }
    }

    /// Where a new task begins: on the idlest node, and there on an idle CPU if there is one, else on the
    /// least loaded.
    fn first_cpu(&self, task: usize) -> CpuId {
        let node = self.idlest_node(task);
        let on_node =
            self.cpus.ids().filter(|&cpu| self.cpus[cpu].node == node && self.may_run(task, cpu));
        on_node
            .min_by_key(|&cpu| (self.load_of_cpu(cpu), self.nr_running(cpu)))
            .expect("a node is idlest among those allowed")
    }

    /// The node that a new task begins on: that of the task which creates it, unless its CPUs have clearly
    /// more to do than those of the idlest other one.
    ///
    /// Models: `find_idlest_group`, kernel/sched/fair.c, v2.6.23 to v5.4, for tasks that have always run.
    /// Departs: nodes are balanced at one level, however far they are apart, and by tasks, each of which
    /// weighs as much as one that never sleeps. Since 5.7 a few tasks may stay on one node though the other is
    /// idle (2c83362734da, 23e6082a522e), which is left out. Visible as: on machines of four nodes and more,
    /// and with few threads on kernels since 5.7, threads spread a little differently.
    #[doc(alias = "find_idlest_group")]
    fn idlest_node(&self, task: usize) -> NodeId {
        let allowed = |node: NodeId| {
            self.cpus.ids().any(|cpu| self.cpus[cpu].node == node && self.may_run(task, cpu))
        };
        let creator = self.tasks.get(self.current as usize);
        let local = creator.map(|task| self.cpus[task.cpu].node).filter(|&node| allowed(node));
        let others =
            NodeId::all(self.nr_nodes).filter(|&node| Some(node) != local && allowed(node));
        let least = others.map(|node| (node, self.load_of(node))).reduce(|least, other| {
            let ((tasks, cpus), (least_tasks, least_cpus)) = (other.1, least.1);
            if tasks * least_cpus < least_tasks * cpus { other } else { least }
        });
        match (local, least) {
            (Some(local), None) => local,
            (None, Some((node, _))) => node,
            (None, None) => NodeId(0),
            (Some(local), Some((node, (tasks, cpus)))) => {
                let (local_tasks, local_cpus) = self.load_of(local);
                let stays = 100 * local_tasks * cpus < FORK_IMBALANCE * tasks * local_cpus;
                if stays { local } else { node }
            }
        }
    }

    /// Tasks that run on a node's CPUs or wait for them, as [`Self::load_of_cpu`] counts them, and its CPUs:
    /// loads are compared by group capacity.
    fn load_of(&self, node: NodeId) -> (u64, u64) {
        let cpus = self.cpus.ids().filter(|&cpu| self.cpus[cpu].node == node);
        cpus.fold((0, 0), |(tasks, cpus), cpu| (tasks + self.load_of_cpu(cpu), cpus + 1))
    }

    /// Tasks that run on a CPU or wait for it.
    fn nr_running(&self, cpu: CpuId) -> u64 {
        let cpu = &self.cpus[cpu];
        cpu.queue.len() as u64 + u64::from(!cpu.is_idle())
    }

    /// The same without the kernel's threads before their first turn: a machine has long come up, and they sleep,
    /// when programs begin.
    fn load_of_cpu(&self, cpu: CpuId) -> u64 {
        let cpu = &self.cpus[cpu];
        let counts = |task: u32| {
            let task = &self.tasks[task as usize];
            !task.is_kernel_thread || task.times != TaskTimes::default()
        };
        let all = cpu.queue.iter().map(|&(_, task)| task).chain(cpu.running);
        all.filter(|&task| counts(task)).count() as u64
    }

    /// Where a task goes on: where it ran if that CPU is idle, else on an idle one of the same node, else
    /// on any idle one (`select_idle_sibling`, kernel/sched/fair.c).
    fn idle_cpu(&self, task: usize) -> Option<CpuId> {
        let last = self.tasks[task].cpu;
        let free = |cpu: CpuId| self.cpus[cpu].is_idle() && self.may_run(task, cpu);
        if free(last) {
            return Some(last);
        }
        let node = self.cpus[last].node;
        let mut anywhere = None;
        for cpu in self.cpus.ids() {
            if free(cpu) {
                if self.cpus[cpu].node == node {
                    return Some(cpu);
                }
                anywhere = anywhere.or(Some(cpu));
            }
        }
        anywhere
    }

    fn least_loaded_cpu(&self, task: usize) -> CpuId {
        let last = self.tasks[task].cpu;
        let allowed = self.cpus.ids().filter(|&cpu| self.may_run(task, cpu));
        allowed.min_by_key(|&cpu| (self.cpus[cpu].queue.len(), cpu != last)).unwrap_or(last)
    }

    /// Brings a task that can run to a CPU.
    fn make_ready(&mut self, task: usize) {
        let cpu = self.idle_cpu(task).unwrap_or_else(|| self.least_loaded_cpu(task));
        // It is placed by what the one that runs has run up to now (`update_curr`).
        if let Some(running) = self.cpus[cpu].running {
            self.charge(running as usize);
        }
        self.move_to(task, cpu);
        if self.picks == Picks::LeastRun {
            let earliest = self.cpus[cpu].min_vruntime - (self.spec.latency.0 / 2) as i64;
            self.tasks[task].vruntime = self.tasks[task].vruntime.max(earliest);
        }
        self.enter(task, cpu);
    }

    /// Gives a task that does not run to another CPU, with the lead it had over the tasks of its own.
    fn move_to(&mut self, task: usize, cpu: CpuId) {
        let this = &mut self.tasks[task];
        if this.cpu != cpu {
            match self.picks {
                Picks::LeastRun => {
                    this.vruntime += self.cpus[cpu].min_vruntime - self.cpus[this.cpu].min_vruntime;
                }
                // Where it is put among tasks, `place` says.
                Picks::EarliestDeadline => this.vruntime = self.cpus[cpu].min_vruntime,
            }
            this.cpu = cpu;
            this.times.migrations += 1;
        }
    }

    /// Starts a task on its CPU, or puts it into the CPU's queue.
    fn enter(&mut self, task: usize, cpu: CpuId) {
        self.await_turn(task, cpu);
        let Some(running) = self.cpus[cpu].running else {
            if self.picks == Picks::EarliestDeadline {
                self.place(task, cpu);
            }
            self.start(task, cpu);
            return;
        };
        let running = running as usize;
        self.charge(running);
        let slice_end = match self.picks {
            Picks::LeastRun => {
                self.put_in_queue(task, cpu);
                let lead = self.tasks[running].vruntime - self.tasks[task].vruntime;
                match lead > self.spec.wakeup_granularity.0 as i64 {
                    true => self.now,
                    false => {
                        let slice = self.cpus[cpu].picked_at + self.slice(cpu);
                        tick_from(slice.max(self.now + 1))
                    }
                }
            }
            Picks::EarliestDeadline => self.join_queue(task, cpu),
        };
        self.set_slice_end(cpu, slice_end);
    }

    fn await_turn(&mut self, task: usize, cpu: CpuId) {
        debug_assert_eq!(self.tasks[task].cpu, cpu);
        self.tasks[task].state = State::Ready;
        self.tasks[task].since = self.now;
    }

    /// Says until when a CPU's running task may go on.
    fn set_slice_end(&mut self, cpu: CpuId, slice_end: u64) {
        let this = &mut self.cpus[cpu];
        this.slice_end = slice_end;
        match this.running {
            Some(running) if self.current == running => self.refresh_limit(),
            Some(running) => self.refresh_moment(running as usize),
            None => {}
        }
    }

    fn put_in_queue(&mut self, task: usize, cpu: CpuId) {
        self.cpus[cpu].queue.insert((self.tasks[task].vruntime, task as u32));
        self.nr_ready += 1;
    }

    fn take_from_queue(&mut self, entry: (i64, u32), cpu: CpuId) -> usize {
        let task = entry.1 as usize;
        if self.picks == Picks::EarliestDeadline {
            self.keep_lag(task, cpu);
        }
        let there = self.cpus[cpu].queue.remove(&entry);
        assert!(there, "a ready task is not in the queue of its CPU");
        self.nr_ready -= 1;
        task
    }

    /// The tick that ends a slice of so much time, of which some is left.
    fn tick_after(&self, slice: u64) -> u64 {
        tick_from(self.now + slice.max(1))
    }

    fn slice(&self, cpu: CpuId) -> u64 {
        let nr_running = self.cpus[cpu].queue.len() as u64 + 1;
        (self.spec.latency.0 / nr_running).max(self.spec.min_granularity.0)
    }

    /// Lets a ready task have its CPU, which runs nothing.
    fn start(&mut self, task: usize, cpu: CpuId) {
        self.account_idle(cpu);
        self.account_waiting(task);
        let slice = match self.picks {
            Picks::LeastRun => self.slice(cpu),
            Picks::EarliestDeadline => self.until_deadline(task),
        };
        let slice_end = self.tick_after(slice);
        let now = self.now;
        let this = &mut self.cpus[cpu];
        let switched = this.last != Some(task as u32);
        this.running = Some(task as u32);
        this.last = Some(task as u32);
        this.picked_at = now;
        this.looked_at = now;
        this.slice_end = slice_end;
        this.is_kept = true;
        let this = &mut self.tasks[task];
        this.state = State::Running;
        if switched {
            this.switch_left = self.spec.context_switch.0;
        }
        self.refresh_moment(task);
    }

    /// Takes the CPU from its task, and gives it to another one if there is one.
    fn leave_cpu(&mut self, cpu: CpuId) {
        if self.picks == Picks::EarliestDeadline
            && let Some(task) = self.cpus[cpu].running
        {
            self.keep_lag(task as usize, cpu);
        }
        self.cpus[cpu].running = None;
        self.cpus[cpu].idle_since = self.now;
        let first = match self.picks {
            Picks::LeastRun => self.cpus[cpu].queue.first().copied(),
            Picks::EarliestDeadline => self.due_first(cpu),
        };
        let next = match first {
            Some(first) => Some(self.take_from_queue(first, cpu)),
            None => self.pull(cpu),
        };
        if let Some(next) = next {
            self.start(next, cpu);
        }
    }

    /// A ready task for a CPU that has none: of the longest queue, and there the one that ran least.
    ///
    /// Models: `newidle_balance` (`idle_balance`), kernel/sched/fair.c.
    #[doc(alias = "idle_balance")]
    #[doc(alias = "newidle_balance")]
    fn pull(&mut self, cpu: CpuId) -> Option<usize> {
        if self.nr_ready == 0 {
            return None;
        }
        let node = self.cpus[cpu].node;
        let candidate = |from: CpuId| {
            let allowed = |&(_, task): &(i64, u32)| self.may_run(task as usize, cpu);
            self.cpus[from].queue.iter().copied().find(allowed)
        };
        let rank = |from: CpuId| (self.cpus[from].queue.len(), self.cpus[from].node == node);
        // Of equals the last is taken by `max_by_key`: go downwards for the lowest number.
        let (from, entry) = self
            .cpus
            .ids()
            .rev()
            .filter_map(|from| candidate(from).map(|entry| (from, entry)))
            .max_by_key(|&(from, _)| rank(from))?;
        let task = self.take_from_queue(entry, from);
        self.move_to(task, cpu);
        if self.picks == Picks::EarliestDeadline {
            self.place(task, cpu);
        }
        Some(task)
    }

    /// Takes the CPU from a running task that could go on, unless it is still its turn.
    fn preempt(&mut self, task: usize) {
        let cpu = self.tasks[task].cpu;
        self.balance_from(cpu);
        let goes_on = match self.picks {
            Picks::LeastRun => {
                let waits_longer = self.cpus[cpu].queue.first().copied();
                waits_longer.is_none_or(|first| first > (self.tasks[task].vruntime, task as u32))
            }
            Picks::EarliestDeadline => self.is_still_due(task, cpu),
        };
        if goes_on {
            let slice = match self.picks {
                // Its slice is over: it is asked again at each tick.
                Picks::LeastRun => 1,
                Picks::EarliestDeadline => self.until_deadline(task),
            };
            self.cpus[cpu].slice_end = self.tick_after(slice);
            self.refresh_moment(task);
            return;
        }
        self.set_moment(task, NEVER);
        self.tasks[task].state = State::Ready;
        self.tasks[task].times.involuntary_switches += 1;
        // An idle CPU it may run on is better than waiting here; its own is about to be taken.
        if let Some(idle) = self.idle_cpu(task) {
            self.leave_cpu(cpu);
            self.move_to(task, idle);
            self.enter(task, idle);
        } else {
            self.put_in_queue(task, cpu);
            self.leave_cpu(cpu);
        }
    }

    // Waiting and waking.

    /// The current task gives up its CPU until it is woken, or until `timeout` has passed.
    fn block(&mut self, what: WaitFor, is_io: bool, timeout: Option<Ns>) {
        self.account_current();
        let task = self.leave_code();
        let this = &mut self.tasks[task];
        assert_eq!(this.preempt_off, 0, "{} sleeps while it holds a spinlock", this.name);
        this.load.pass(self.now, true);
        this.state = State::Blocked(what, is_io);
        this.times.voluntary_switches += 1;
        let cpu = this.cpu;
        if self.picks == Picks::EarliestDeadline {
            self.linger(task, cpu);
        }
        self.cpus[cpu].nr_iowait += u32::from(is_io);
        let at = timeout.map_or(NEVER, |timeout| self.now.saturating_add(timeout.0));
        self.set_moment(task, at);
        self.leave_cpu(cpu);
    }

    fn wake(&mut self, task: usize, wakeup: Wakeup) {
        let State::Blocked(_, is_io) = self.tasks[task].state else {
            unreachable!("{} is woken and does not wait", self.tasks[task].name)
        };
        self.account_waiting(task);
        if is_io {
            let cpu = self.tasks[task].cpu;
            self.account_idle(cpu);
            self.cpus[cpu].nr_iowait -= 1;
        }
        let now = self.now;
        self.tasks[task].load.pass(now, false);
        self.tasks[task].wakeup = wakeup;
        self.set_moment(task, NEVER);
        if !self.requeue(task) {
            self.make_ready(task);
        }
    }

    /// How the current task's last wait ended.
    pub(crate) fn wakeup(&self) -> Wakeup {
        self.tasks[self.current as usize].wakeup
    }

    pub(crate) fn sleep(&mut self, time: Ns) {
        self.block(WaitFor::Time, false, Some(time));
    }

    pub(crate) fn wait(&mut self, queue: WaitQueue, is_io: bool, timeout: Option<Ns>) {
        self.queues[queue.0 as usize].tasks.push_back(self.current);
        self.block(WaitFor::Queue(queue.0), is_io, timeout);
    }

    pub(crate) fn wake_one(&mut self, queue: WaitQueue) -> bool {
        let Some(task) = self.queues[queue.0 as usize].tasks.pop_front() else { return false };
        self.wake(task as usize, Wakeup::Woken);
        self.refresh_limit();
        true
    }

    pub(crate) fn wake_all(&mut self, queue: WaitQueue) -> usize {
        let mut nr = 0;
        // Who is woken runs later, so nobody joins the queue meanwhile.
        while self.wake_one(queue) {
            nr += 1;
        }
        nr
    }

    /// The current task comes to the barrier; whether it is the last, and the others have been woken.
    pub(crate) fn arrive(&mut self, barrier: BarrierId) -> bool {
        let this = &mut self.barriers[barrier.0 as usize];
        if this.waiting.len() + 1 < this.parties {
            this.waiting.push(self.current);
            self.block(WaitFor::Barrier(barrier.0), false, None);
            return false;
        }
        for task in std::mem::take(&mut this.waiting) {
            self.wake(task as usize, Wakeup::Woken);
        }
        self.refresh_limit();
        true
    }

    /// The current task waits for another one's end; not if it is done already.
    pub(crate) fn join(&mut self, task: TaskId) -> bool {
        assert_ne!(task.0, self.current, "a task waits for its own end");
        if self.is_done(task) {
            return false;
        }
        let current = self.current;
        self.tasks[task.0 as usize].joiners.push(current);
        self.block(WaitFor::Exit(task.0), false, None);
        true
    }

    /// The current task is done.
    pub(crate) fn exit(&mut self) {
        self.account_current();
        let task = self.leave_code();
        let this = &mut self.tasks[task];
        assert_eq!(this.preempt_off, 0, "{} ends while it holds a spinlock", this.name);
        this.state = State::Done;
        let (cpu, joiners) = (this.cpu, std::mem::take(&mut this.joiners));
        self.nr_live_users -= u32::from(!this.is_kernel_thread);
        self.set_moment(task, NEVER);
        self.leave_cpu(cpu);
        for joiner in joiners {
            self.wake(joiner as usize, Wakeup::Woken);
        }
    }

    /// Changes where the current task may run; whether it has to leave its CPU for that.
    pub(crate) fn set_affinity(&mut self, affinity: Affinity) -> bool {
        let task = self.current as usize;
        self.tasks[task].affinity = affinity;
        let allowed = self.cpus.ids().any(|cpu| self.may_run(task, cpu));
        assert!(allowed, "{}: no CPU for {affinity:?}", self.tasks[task].name);
        let cpu = self.tasks[task].cpu;
        if self.may_run(task, cpu) {
            return false;
        }
        assert_eq!(
            self.tasks[task].preempt_off, 0,
            "{} moves while it holds a spinlock",
            self.tasks[task].name
        );
        self.account_current();
        self.leave_code();
        self.tasks[task].state = State::Ready;
        self.leave_cpu(cpu);
        self.make_ready(task);
        true
    }

    /// The current task goes to an idle CPU of a node; whether there is one where it may run.
    pub(crate) fn move_to_node(&mut self, node: NodeId) -> bool {
        let task = self.current as usize;
        let is_free = |cpu: CpuId| {
            self.cpus[cpu].node == node && self.cpus[cpu].is_idle() && self.may_run(task, cpu)
        };
        let Some(to) = self.cpus.ids().find(|&cpu| is_free(cpu)) else { return false };
        if self.would_unbalance(self.cpus[self.tasks[task].cpu].node, node) {
            return false;
        }
        let this = &self.tasks[task];
        assert_eq!(this.preempt_off, 0, "{} moves while it holds a spinlock", this.name);
        let from = this.cpu;
        self.account_current();
        self.leave_code();
        self.tasks[task].state = State::Ready;
        self.leave_cpu(from);
        self.move_to(task, to);
        self.enter(task, to);
        true
    }

    /// Whether nodes would be too unequal, and more so than they are, if a task went from one to another
    /// (`load_too_imbalanced`, kernel/sched/fair.c, v4.4).
    ///
    /// Departs: since 5.7 a task may go where CPUs are idle as long as few run there, which is left out. Visible as:
    /// with few threads fewer moves on newer kernels.
    fn would_unbalance(&self, from: NodeId, to: NodeId) -> bool {
        let [(from_tasks, from_cpus), (to_tasks, to_cpus)] =
            [from, to].map(|node| self.load_of(node));
        let imbalance = |from_tasks: u64, to_tasks: u64| {
            let (less, more) = (from_tasks * to_cpus, to_tasks * from_cpus);
            let (less, more) = (less.min(more), less.max(more));
            (more * 100) as i64 - (less * FORK_IMBALANCE) as i64
        };
        let after = imbalance(from_tasks - 1, to_tasks + 1);
        after > 0 && after > imbalance(from_tasks, to_tasks)
    }

    // Locks.

    /// The current task takes a lock; whether it had to wait, in which case its code stops until it
    /// has it.
    pub(crate) fn lock(&mut self, lock: LockId) -> bool {
        let current = self.current;
        let this = &mut self.locks[lock.0 as usize];
        this.stats.taken += 1;
        let is_spin = this.kind == LockKind::Spin;
        if this.owner.is_none() && this.free_at <= self.now {
            this.owner = Some(current);
            if is_spin {
                self.disable_preemption();
            }
            return false;
        }
        assert_ne!(
            this.owner,
            Some(current),
            "{} takes `{}` twice",
            self.tasks[current as usize].name,
            this.name
        );
        this.stats.contended += 1;
        if this.owner.is_none() {
            // Held by those that said for how long: it is ours after them.
            this.owner = Some(current);
            let wait = Ns(this.free_at - self.now);
            this.stats.waited += wait;
            self.disable_preemption();
            self.begin_to_spend(wait, Mode::System);
            return true;
        }
        this.waiters.push_back((current, self.now, None));
        if is_spin {
            self.spin();
        } else {
            self.block(WaitFor::Lock(lock.0), false, None);
        }
        true
    }

    /// The current task takes a spinlock, keeps it for `time` and releases it; the time is spent, in the
    /// end, as system time. Whether its code stops meanwhile is for the caller to find out: `Some` says
    /// how long to spend if the lock's turn is known, `None` that its code stops until it is over.
    pub(crate) fn hold(&mut self, lock: LockId, time: Ns) -> Option<Ns> {
        let current = self.current;
        let this = &mut self.locks[lock.0 as usize];
        assert_eq!(this.kind, LockKind::Spin, "`{}` is not a spinlock", this.name);
        this.stats.taken += 1;
        if this.owner.is_none() {
            let begin = this.free_at.max(self.now);
            let wait = Ns(begin - self.now);
            this.free_at = begin + time.0;
            this.stats.contended += u64::from(wait > Ns::ZERO);
            this.stats.waited += wait;
            self.disable_preemption();
            return Some(wait + time);
        }
        assert_ne!(
            this.owner,
            Some(current),
            "{} takes `{}` twice",
            self.tasks[current as usize].name,
            this.name
        );
        this.stats.contended += 1;
        this.waiters.push_back((current, self.now, Some(time.0)));
        self.spin();
        None
    }

    /// Whether somebody has a lock at this moment.
    pub(crate) fn is_taken(&self, lock: LockId) -> bool {
        let this = &self.locks[lock.0 as usize];
        this.owner.is_some() || this.free_at > self.now
    }

    /// The current task releases a lock that it took with [`Self::lock`].
    pub(crate) fn unlock(&mut self, lock: LockId) {
        let this = &mut self.locks[lock.0 as usize];
        assert_eq!(
            this.owner,
            Some(self.current),
            "{} releases `{}`, which it does not hold",
            self.tasks[self.current as usize].name,
            this.name
        );
        this.owner = None;
        this.free_at = self.now;
        let is_spin = this.kind == LockKind::Spin;
        let nobody_waits = this.waiters.is_empty();
        if is_spin {
            self.enable_preemption();
        }
        if nobody_waits {
            return;
        }
        while let Some((task, since, hold)) = self.locks[lock.0 as usize].waiters.pop_front() {
            let this = &mut self.locks[lock.0 as usize];
            let begin = this.free_at;
            this.stats.waited += Ns(begin - since);
            match hold {
                Some(time) => {
                    this.free_at += time;
                    let end = this.free_at;
                    self.stop_spinning(task as usize, end);
                }
                None => {
                    this.owner = Some(task);
                    if is_spin {
                        self.stop_spinning(task as usize, begin);
                    } else {
                        self.wake(task as usize, Wakeup::Woken);
                    }
                    break;
                }
            }
        }
        self.refresh_limit();
    }

    pub(crate) fn disable_preemption(&mut self) {
        self.tasks[self.current as usize].preempt_off += 1;
        self.refresh_limit_if_shared();
    }

    pub(crate) fn enable_preemption(&mut self) {
        self.tasks[self.current as usize].preempt_off -= 1;
        self.refresh_limit_if_shared();
    }

    /// Whether a task can lose its CPU matters only where another one waits for it.
    fn refresh_limit_if_shared(&mut self) {
        let cpu = self.tasks[self.current as usize].cpu;
        if self.cpus[cpu].is_wanted() {
            self.refresh_limit();
        }
    }

    /// The current task spins until [`Self::stop_spinning`].
    fn spin(&mut self) {
        self.disable_preemption();
        self.begin_to_spend(Ns(NEVER), Mode::System);
    }

    /// Lets a spinning task go on at the moment `end`.
    fn stop_spinning(&mut self, task: usize, end: u64) {
        self.charge(task);
        self.tasks[task].left = end - self.now;
        self.refresh_moment(task);
    }

    // Devices.

    /// Submits a transfer for the current task, or makes it wait for a request to be freed.
    ///
    /// # Errors
    /// The task's code stops; it has to submit again when it goes on.
    pub(crate) fn submit(
        &mut self,
        device: DeviceId,
        io: crate::device::Io,
    ) -> Result<Ticket, crate::device::QueueFull> {
        let ticket = self.transfers.next();
        let now = Ns(self.now);
        let submitter = self.current;
        let late = self.access_wait(self.tasks[submitter as usize].cpu);
        let io = crate::device::Io { late, ..io };
        match self.devices[device.0 as usize].submit(now, ticket, io, submitter) {
            Ok(()) => {
                self.transfers.begin();
                Ok(ticket)
            }
            Err(full) => {
                // What waits behind a plug has to be served first, or no request would ever be freed.
                self.dispatch(device);
                self.request_waiters[device.0 as usize][io.class as usize].push_back(self.current);
                self.block(WaitFor::Request(device.0, io.class), true, None);
                Err(full)
            }
        }
    }

    pub(crate) fn dispatch(&mut self, device: DeviceId) {
        let now = Ns(self.now);
        let this = &mut self.devices[device.0 as usize];
        this.dispatch(now);
        let at = this.next_completion().map_or(NEVER, |at| at.0);
        self.events.set(device.0 as usize, at);
        self.refresh_limit();
    }

    /// The current task waits for a transfer; not if it is done already.
    pub(crate) fn wait_io(&mut self, ticket: Ticket) -> bool {
        let Some(waiters) = self.transfers.waiters(ticket) else { return false };
        waiters.push(self.current);
        self.block(WaitFor::Io(ticket), true, None);
        true
    }

    pub(crate) fn congestion_queue(&self, class: Class) -> WaitQueue {
        self.congestion_waiters[class as usize]
    }

    /// A device's moment has come: completes its requests, and wakes who waits for them to be freed.
    /// The completions are left in [`Self::completed`].
    pub(crate) fn complete(&mut self, device: u32) {
        let this = &mut self.devices[device as usize];
        let Freed { uncongested, .. } = this.complete(Ns(self.now), &mut self.completed);
        let nr_requests = this.spec().nr_requests;
        let at = this.next_completion().map_or(NEVER, |at| at.0);
        self.events.set(device as usize, at);
        for class in [Class::Async, Class::Sync] {
            let free = nr_requests - self.devices[device as usize].nr_allocated(class);
            for _ in 0..free {
                let waiters = &mut self.request_waiters[device as usize][class as usize];
                let Some(task) = waiters.pop_front() else { break };
                self.wake(task as usize, Wakeup::Woken);
            }
            if uncongested[class as usize] {
                self.wake_all(self.congestion_waiters[class as usize]);
            }
        }
    }

    /// A transfer is done: wakes who waits for it.
    pub(crate) fn transfer_done(&mut self, ticket: Ticket) {
        for task in self.transfers.end(ticket) {
            self.wake(task as usize, Wakeup::Woken);
        }
    }
}
