//! Automatic NUMA balancing: hinting faults tell which node uses memory, and memory and tasks come together.
//!
//! Models: `task_tick_numa`, `task_numa_work`, `task_scan_min`, `task_scan_max`, `task_numa_fault`,
//! `task_numa_placement`, `update_task_scan_period`, `numa_migrate_preferred`, `load_too_imbalanced`,
//! kernel/sched/fair.c; `do_numa_page`, mm/memory.c; `alloc_misplaced_dst_page`,
//! `migrate_misplaced_transhuge_page`, mm/migrate.c; v4.4, with the differences to v6.12 that `policy::NumaScan`
//! names.
//! Departs: tasks that share memory are not gathered into groups, nor swapped with each other: a task goes to the
//! node with most of its faults when a CPU there is idle, and asks once for each pass over its memory. Visible as:
//! threads of one process settle each for itself, and on a full node none changes places. What a task uses is told
//! by faults on pages alone, not by CPUs (`NUMA_CPU`). Of what threads use all the time there is only the page of a
//! thread's stack that its creator writes, which stays mapped when the thread has ended. Visible as: shared data
//! draws nobody. Tasks that have ended still count
//! as their process's. Visible as: its local base pages are not spared then. The work of a scan does not put the
//! next one off by two ticks. Shared pages of two nodes count as private when the last fault came from the same
//! node.

use super::fault::{self, Killed};
use super::policy::NumaScan;
use super::slowpath::{Want, alloc_pages};
use super::work::{price, spend_work};
use super::{Kernel, KernelCx};
use crate::task::Mode;
use highorder_mm::alloc::Request;
use highorder_mm::anon::{Fault, HUGE_ORDER};
use highorder_mm::gfp::Gfp;
use highorder_mm::numa::Hint;
use highorder_mm::page_table::{PTRS_PER_TABLE, Vpn};
use highorder_mm::types::{Access, MemPolicy, NodeId};
use highorder_mm::vma::ProcessId;
use highorder_words::Ns;
use std::collections::BTreeMap;

/// Before a new process's memory is looked at for the first time (`numa_balancing_scan_delay_ms`).
const SCAN_DELAY: Ns = Ns::from_millis(1000);
/// A process's memory is gone through in this time of a task's CPU at least (`numa_balancing_scan_period_min_ms`).
const SCAN_PERIOD_MIN: Ns = Ns::from_millis(1000);
/// And at most (`numa_balancing_scan_period_max_ms`).
const SCAN_PERIOD_MAX: Ns = Ns::from_millis(60_000);
/// Pages looked at at once: 256 MiB (`numa_balancing_scan_size_mb`).
const SCAN_PAGES: u32 = 256 << 8;
/// Pages passed over at once at most, those included that are not there (`task_numa_work`: virtpages).
const VIRTUAL_PAGES: u32 = SCAN_PAGES * 8;
/// MiB that a task may look at in a second at most (`MAX_SCAN_WINDOW`), in units of what is looked at at once.
const WINDOWS_PER_SECOND: u64 = 2560 / 256;
/// Parts of a period in which it is made longer or shorter (`NUMA_PERIOD_SLOTS`).
const PERIOD_SLOTS: u64 = 10;
/// Of so many faults, how many have to be local for the period to become longer (`NUMA_PERIOD_THRESHOLD`).
const PERIOD_THRESHOLD: u64 = 7;

/// What is known of the memory of processes and of the tasks that use it.
#[derive(Clone, Debug, Default)]
pub(crate) struct NumaState {
    processes: BTreeMap<u32, Scanner>,
    tasks: BTreeMap<u32, TaskFaults>,
    /// By task: the page of its stack that it uses all the time, whoever wrote that first.
    stacks: BTreeMap<u32, Vpn>,
}

/// Where the scan of a process's memory is (`mm_struct`).
#[derive(Clone, Copy, Debug)]
struct Scanner {
    next_scan: Ns,
    offset: Vpn,
    /// Passes over all of its memory.
    seq: u32,
    /// Tasks that use it.
    nr_tasks: u32,
}

/// What hinting faults told about a task (`task_struct`).
#[derive(Clone, Debug)]
struct TaskFaults {
    /// CPU time at which the last scan was due.
    stamp: Ns,
    period: Ns,
    period_max: Ns,
    seq: u32,
    /// Faults by node, old ones counting less; and those since the last look.
    faults: Vec<u64>,
    recent: Vec<u64>,
    /// Pages faulted on since then: of other nodes, of the own; and those that could not be moved.
    remote: u64,
    local: u64,
    failed: u64,
    private: u64,
    shared: u64,
}

impl Kernel {
    /// Whether hinting faults are in use.
    #[inline]
    pub fn balances_numa(&self) -> bool {
        self.knobs.numa_balancing
            && self.flows.numa.scan != NumaScan::None
            && self.memory.machine.nr_nodes() > 1
    }

    /// Windows of what is looked at at once that a process has in memory (`task_nr_scan_windows`).
    fn scan_windows(&self, process: ProcessId) -> u64 {
        let pages = self.memory.spaces.task(process);
        (pages.anon + pages.file).div_ceil(SCAN_PAGES.into()).max(1)
    }

    /// (`task_scan_min`).
    #[doc(alias = "task_scan_min")]
    fn scan_period_min(&self, process: ProcessId) -> Ns {
        let floor = 1_000_000_000 / WINDOWS_PER_SECOND;
        Ns((SCAN_PERIOD_MIN.0 / self.scan_windows(process)).max(floor))
    }

    /// (`task_scan_max`).
    #[doc(alias = "task_scan_max")]
    fn scan_period_max(&self, process: ProcessId) -> Ns {
        let longest = Ns(SCAN_PERIOD_MAX.0 / self.scan_windows(process));
        longest.max(self.scan_period_min(process))
    }
}

/// From now on the running task uses this page of its process's memory whenever it does anything.
pub fn use_stack(cx: &mut KernelCx<'_>, page: Vpn) {
    let task = cx.task().0;
    cx.world().numa.stacks.insert(task, page);
}

/// Closes some of the process's memory if the running task's time for that has come, and touches the task's stack.
/// Suspends.
#[doc(alias = "task_tick_numa")]
pub(crate) fn task_tick(cx: &mut KernelCx<'_>, process: ProcessId) {
    close(cx, process);
    if fault::check(cx, process).is_err() {
        // Its memory may be gone.
        return;
    }
    let task = cx.task().0;
    let kernel = cx.world();
    let Some(&stack) = kernel.numa.stacks.get(&task) else { return };
    if let Some(fault) = kernel.memory.touch(stack, 1, Access::Write).fault {
        // Whoever is killed meanwhile hears of it when it goes on.
        fault::handle_mm_fault(cx, process, fault).ok();
    }
}

fn close(cx: &mut KernelCx<'_>, process: ProcessId) {
    let times = cx.times();
    let (now, runtime, task) = (cx.now(), times.user + times.system, cx.task().0);
    let kernel = cx.world();
    if !kernel.numa.tasks.contains_key(&task) {
        kernel.add_numa_task(task, process, now);
    }
    let least = kernel.scan_period_min(process);
    let Some(state) = kernel.numa.tasks.get_mut(&task) else { return };
    if runtime <= state.stamp + state.period {
        return;
    }
    let period = state.period;
    if state.stamp == Ns::ZERO {
        state.period = least;
    }
    state.stamp += period;
    let Some(scanner) = kernel.numa.processes.get_mut(&process.0) else { return };
    if now < scanner.next_scan {
        return;
    }
    scanner.next_scan = now + period;
    scan(cx, process);
}

impl Kernel {
    fn add_numa_task(&mut self, task: u32, process: ProcessId, now: Ns) {
        let new = Scanner { next_scan: now + SCAN_DELAY, offset: Vpn(0), seq: 0, nr_tasks: 0 };
        let scanner = self.numa.processes.entry(process.0).or_insert(new);
        scanner.nr_tasks += 1;
        let nr_nodes = self.memory.machine.nr_nodes();
        let state = TaskFaults {
            stamp: Ns::ZERO,
            period: SCAN_DELAY,
            period_max: SCAN_PERIOD_MAX,
            seq: scanner.seq,
            faults: vec![0; nr_nodes],
            recent: vec![0; nr_nodes],
            remote: 0,
            local: 0,
            failed: 0,
            private: 0,
            shared: 0,
        };
        self.numa.tasks.insert(task, state);
    }
}

/// Goes on through the process's memory for a while (`task_numa_work`).
#[doc(alias = "task_numa_work")]
fn scan(cx: &mut KernelCx<'_>, process: ProcessId) {
    let node = cx.node();
    let kernel = cx.world();
    let Some(&Scanner { mut offset, nr_tasks, .. }) = kernel.numa.processes.get(&process.0) else {
        return;
    };
    let spared = match kernel.flows.numa.scan {
        NumaScan::SparesLocal if nr_tasks == 1 => Some(node),
        _ => None,
    };
    // Mappings with a policy of their own are where they are to be, and files are not moved.
    let mine = kernel.memory.spaces.vmas().filter(|vma| {
        vma.task == process && vma.file.is_none() && vma.policy == MemPolicy::Default
    });
    let ranges: Vec<(Vpn, Vpn)> = mine.map(|vma| (vma.start, vma.end)).collect();
    if ranges.iter().all(|&(_, end)| end <= offset) {
        kernel.restart_scan(process);
        offset = Vpn(0);
    }
    let (mut pages, mut virtual_pages) = (SCAN_PAGES, VIRTUAL_PAGES);
    let mut is_over = false;
    'all: for &(start, end) in &ranges {
        if end <= offset {
            continue;
        }
        offset = offset.max(start);
        while offset < end {
            let to = (offset.0 + pages).next_multiple_of(PTRS_PER_TABLE).min(end.0);
            let passed = to - offset.0;
            if cx.world().memory.change_prot_numa(offset..Vpn(to), spared) > 0 {
                pages = pages.saturating_sub(passed);
            }
            virtual_pages = virtual_pages.saturating_sub(passed);
            offset = Vpn(to);
            if pages == 0 || virtual_pages == 0 {
                is_over = true;
                break 'all;
            }
        }
    }
    let kernel = cx.world();
    if is_over {
        if let Some(scanner) = kernel.numa.processes.get_mut(&process.0) {
            scanner.offset = offset;
        }
    } else {
        kernel.restart_scan(process);
    }
    let work = kernel.memory.take_work();
    let price = price(cx, work);
    cx.spend(price.free, Mode::System);
}

impl Kernel {
    /// All of a process's memory has been gone through (`reset_ptenuma_scan`).
    fn restart_scan(&mut self, process: ProcessId) {
        if let Some(scanner) = self.numa.processes.get_mut(&process.0) {
            scanner.seq += 1;
            scanner.offset = Vpn(0);
        }
    }
}

/// Serves a hinting fault: opens the entry, and moves the page if it is used from another node. Suspends.
///
/// # Errors
/// The process was killed.
#[doc(alias = "task_numa_fault")]
pub(crate) fn do_numa_page(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    fault: &Fault,
) -> Result<(), Killed> {
    fault::check(cx, process)?;
    let node = cx.node();
    let Some(hint) = cx.world().memory.hinting_fault(fault, node) else { return Ok(()) };
    let mut at = hint.node;
    let mut failed = false;
    if hint.is_misplaced(node) {
        failed = !migrate(cx, fault, &hint, node);
        at = if failed { at } else { node };
    }
    let task = cx.task().0;
    let pages = u64::from(hint.order.pages());
    if let Some(state) = cx.world().numa.tasks.get_mut(&task) {
        state.recent[at.index()] += pages;
        state.failed += if failed { pages } else { 0 };
        let is_local = hint.node == node;
        *(if is_local { &mut state.local } else { &mut state.remote }) += pages;
        let is_private = hint.last_node.is_none_or(|last| last == node);
        *(if is_private { &mut state.private } else { &mut state.shared }) += pages;
    }
    place_task(cx, process);
    fault::check(cx, process)
}

/// Moves a page to a node, if that has room to spare. Whether it did.
#[doc(alias = "migrate_misplaced_transhuge_page")]
#[doc(alias = "alloc_misplaced_dst_page")]
fn migrate(cx: &mut KernelCx<'_>, fault: &Fault, hint: &Hint, node: NodeId) -> bool {
    if !cx.world().memory.has_room_for_misplaced(node, hint.order) {
        return false;
    }
    let gfp = if hint.order == HUGE_ORDER {
        Gfp::TRANSHUGE_LIGHT | Gfp::THISNODE
    } else {
        let gfp = Gfp::HIGHUSER_MOVABLE | Gfp::THISNODE | Gfp::NOMEMALLOC;
        (gfp | Gfp::NORETRY | Gfp::NOWARN) - Gfp::RECLAIM
    };
    let cpu = cx.cpu();
    let request = Request { order: hint.order, gfp, cpu, node, past_lists: false };
    let Some(to) = alloc_pages(cx, Want { request, allowed: node.bit(), process: None }) else {
        return false;
    };
    let cpu = cx.cpu();
    let memory = &mut cx.world().memory;
    let moved = memory.migrate_misplaced(fault.vpn, hint, to, cpu);
    if !moved {
        memory.free(to, hint.order, cpu);
    }
    let zone = memory.zone_of(to);
    spend_work(cx, zone);
    moved
}

/// Once in each pass over a process's memory: how often the next one comes, and where the task is to run
/// (`task_numa_placement`).
#[doc(alias = "load_too_imbalanced")]
#[doc(alias = "numa_migrate_preferred")]
#[doc(alias = "task_numa_placement")]
fn place_task(cx: &mut KernelCx<'_>, process: ProcessId) {
    let (now, task, node) = (cx.now(), cx.task().0, cx.node());
    let kernel = cx.world();
    let Some(seq) = kernel.numa.processes.get(&process.0).map(|scanner| scanner.seq) else {
        return;
    };
    let (least, most) = (kernel.scan_period_min(process), kernel.scan_period_max(process));
    let Some(state) = kernel.numa.tasks.get_mut(&task) else { return };
    if state.seq == seq {
        return;
    }
    state.seq = seq;
    state.period_max = most;
    for (old, recent) in state.faults.iter_mut().zip(&mut state.recent) {
        *old = *old / 2 + std::mem::take(recent);
    }
    let most_faults = state.faults.iter().copied().max().unwrap_or(0);
    let preferred = match state.faults.iter().position(|&faults| faults == most_faults) {
        Some(first) if most_faults > 0 => NodeId(first as u32),
        _ => node,
    };
    let waits = state.update_period(least, most);
    let period = state.period;
    if waits && let Some(scanner) = kernel.numa.processes.get_mut(&process.0) {
        scanner.next_scan = now + period;
    }
    if preferred != node {
        cx.move_to_node(preferred);
    }
}

impl TaskFaults {
    /// (`update_task_scan_period`). Whether scans wait for a whole period from now on.
    #[doc(alias = "update_task_scan_period")]
    fn update_period(&mut self, least: Ns, most: Ns) -> bool {
        let [remote, local, failed, private, shared] = [
            &mut self.remote,
            &mut self.local,
            &mut self.failed,
            &mut self.private,
            &mut self.shared,
        ]
        .map(std::mem::take);
        if local + shared == 0 || failed > 0 {
            self.period = Ns(self.period.0 * 2).min(self.period_max);
            return true;
        }
        let slot = self.period.0.div_ceil(PERIOD_SLOTS);
        let share = local * PERIOD_SLOTS / (local + remote).max(1);
        let period = if share >= PERIOD_THRESHOLD {
            self.period.0 + (share - PERIOD_THRESHOLD).max(1) * slot
        } else {
            // Faster the less is local, but not for what is shared.
            let faster = (PERIOD_THRESHOLD - share) * slot;
            let scale = (private * PERIOD_SLOTS).div_ceil(private + shared + 1);
            self.period.0.saturating_sub(faster * scale / PERIOD_SLOTS)
        };
        self.period = Ns(period).clamp(least, most);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(remote: u64, local: u64, failed: u64, shared: u64) -> TaskFaults {
        TaskFaults {
            stamp: Ns::ZERO,
            period: Ns::from_millis(1000),
            period_max: Ns::from_millis(60_000),
            seq: 0,
            faults: Vec::new(),
            recent: Vec::new(),
            remote,
            local,
            failed,
            private: remote + local - shared,
            shared,
        }
    }

    #[test]
    fn scans_come_later_where_memory_is_local_and_sooner_where_it_is_not() {
        let (least, most) = (Ns::from_millis(100), Ns::from_millis(60_000));
        // 9 of 10 local: two slots of 100 ms more. 7 of 10: one. None, all one's own: seven less.
        for (state, period_ms) in [
            (faults(10, 90, 0, 0), 1200),
            (faults(30, 70, 0, 0), 1100),
            (faults(99, 1, 0, 0), 300),
            // Half of it shared: of seven slots less, 5 of 10, rounded up.
            (faults(99, 1, 0, 50), 650),
            // What could not be moved: twice as long, whatever else there was.
            (faults(99, 1, 1, 0), 2000),
        ] {
            let mut state = state;
            state.update_period(least, most);
            assert_eq!(state.period, Ns::from_millis(period_ms));
        }
    }
}
