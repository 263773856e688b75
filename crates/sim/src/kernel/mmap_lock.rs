//! Who may change a process's mappings, and who may meanwhile fault in them.
//!
//! Models: `mmap_sem` (since 5.8 `mmap_lock`), include/linux/mm_types.h, and its users in mm/mmap.c, mm/madvise.c,
//! mm/mempolicy.c, arch/x86/mm/fault.c, mm/khugepaged.c, v3.3 to v6.12; kernel/locking/rwsem.c: who comes first is
//! served first, and readers that stand in a row are served together.
//! Departs: nobody takes it for khugepaged's and NUMA balancing's scans and at a process's end. Faults in files
//! and of swapped pages go without it; those of 6.4 and later never wait. Others hold it for all that are served
//! at one moment, up to 128. The lock's own cache line moves between threads that fault in what the fast path
//! serves; others move it for nothing, and so does who has a mapping's own lock. Visible as: who maps and unmaps
//! never waits for a read, but where others fault for up to 128 faults of theirs, some 0.1 ms and with tens of threads
//! some 2 ms; from 6.4 on a fault costs the same with one thread and with many, but for the locks of zones and LRU lists.

use super::{Kernel, KernelCx};
use crate::machine::Costs;
use crate::sched::WaitQueue;
use highorder_mm::types::NodeId;
use highorder_mm::vma::ProcessId;
use highorder_words::Ns;
use std::collections::VecDeque;

/// How a lock is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// With others: mappings stay as they are.
    Read,
    /// Alone.
    Write,
}

/// The lock of one process.
#[doc(alias = "mmap_lock")]
#[doc(alias = "mmap_sem")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MmapLock {
    readers: u32,
    writer: bool,
    /// Who waits, by ticket, in the order in which they came.
    waiting: VecDeque<(u64, Hold)>,
    next_ticket: u64,
    /// Where they wait; there is none before anybody has waited.
    queue: Option<WaitQueue>,
    /// By node: how many tasks serve faults there, one after the other.
    faulting: Vec<u32>,
}

impl MmapLock {
    /// Counts a task on this node among those that serve faults.
    pub(crate) fn begin_faults(&mut self, node: NodeId) {
        let node = node.index();
        if self.faulting.len() <= node {
            self.faulting.resize(node + 1, 0);
        }
        self.faulting[node] += 1;
    }

    /// No longer counts it.
    pub(crate) fn end_faults(&mut self, node: NodeId) {
        self.faulting[node.index()] -= 1;
    }

    /// What it takes longer to serve some faults on this node, which would take `alone`, since others serve some at
    /// the same time: each fault writes the lock's cache line twice, and one after the other has it.
    ///
    /// Whoever serves faults alone keeps the line. With others, a write fetches it from where the last one was, and
    /// once the line is never at rest, each waits for all: the bound of a closed queue. A node has the line on no more
    /// CPUs than `node_cpus` says: further tasks wait for one.
    pub(crate) fn line_time(
        &self,
        costs: &Costs,
        node_cpus: impl Fn(NodeId) -> u64,
        node: NodeId,
        nr_faults: u64,
        alone: Ns,
    ) -> Ns {
        // Most fault alone: no CPU is counted for them.
        if self.faulting.iter().sum::<u32>() <= 1 {
            return Ns::ZERO;
        }
        let on = |node: NodeId| {
            let tasks = self.faulting.get(node.index()).copied().unwrap_or(0);
            u64::from(tasks).min(node_cpus(node))
        };
        let all: u64 = NodeId::all(self.faulting.len()).map(on).sum();
        let (near, others) = (on(node).saturating_sub(1), all.saturating_sub(1));
        if others == 0 {
            return Ns::ZERO;
        }
        let fetches = costs.cache_read.times(2 * nr_faults * near)
            + costs.remote_access.times(2 * nr_faults * (others - near));
        let one = Ns(fetches.0 / others);
        one.max(Ns(one.0 * all).saturating_sub(alone))
    }

    fn is_free_for(&self, hold: Hold) -> bool {
        !self.writer && (hold == Hold::Read || self.readers == 0)
    }

    fn take(&mut self, hold: Hold) {
        match hold {
            Hold::Read => self.readers += 1,
            Hold::Write => self.writer = true,
        }
    }

    /// Takes it if nobody has it and nobody waits.
    fn try_take(&mut self, hold: Hold) -> bool {
        let is_free = self.waiting.is_empty() && self.is_free_for(hold);
        if is_free {
            self.take(hold);
        }
        is_free
    }

    fn line_up(&mut self, hold: Hold) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting.push_back((ticket, hold));
        ticket
    }

    fn waits(&self, ticket: u64) -> bool {
        self.waiting.iter().any(|&(other, _)| other == ticket)
    }

    /// Gives it to those who are next. How many these are.
    fn pass_on(&mut self) -> usize {
        let before = self.waiting.len();
        while let Some(&(_, hold)) = self.waiting.front()
            && self.is_free_for(hold)
        {
            self.waiting.pop_front();
            self.take(hold);
        }
        before - self.waiting.len()
    }

    fn release(&mut self, hold: Hold) {
        match hold {
            Hold::Read => self.readers -= 1,
            Hold::Write => self.writer = false,
        }
    }
}

/// Takes a process's lock, once it is this task's turn. Suspends: whatever was known of its mappings may be out
/// of date, and the process may have been killed.
pub fn lock(cx: &mut KernelCx<'_>, process: ProcessId, hold: Hold) {
    let lock = &mut cx.world().process_mut(process).mmap_lock;
    if lock.try_take(hold) {
        return;
    }
    let ticket = lock.line_up(hold);
    let queue = match lock.queue {
        Some(queue) => queue,
        None => {
            let queue = cx.add_queue("mmap_lock");
            cx.world().process_mut(process).mmap_lock.queue = Some(queue);
            queue
        }
    };
    while cx.world().process(process).mmap_lock.waits(ticket) {
        cx.wait(queue);
    }
}

/// Releases it.
pub fn unlock(cx: &mut KernelCx<'_>, process: ProcessId, hold: Hold) {
    cx.world().process_mut(process).mmap_lock.release(hold);
    pass_on(cx, process);
}

/// Lets readers in where there was a writer, which goes on as one of them (dd2283f2605e, 4.20).
pub fn downgrade(cx: &mut KernelCx<'_>, process: ProcessId) {
    let lock = &mut cx.world().process_mut(process).mmap_lock;
    lock.release(Hold::Write);
    lock.take(Hold::Read);
    pass_on(cx, process);
}

/// Wakes those whose turn it is now: who waits longest is first in the queue, too.
fn pass_on(cx: &mut KernelCx<'_>, process: ProcessId) {
    let lock = &mut cx.world().process_mut(process).mmap_lock;
    let nr_granted = lock.pass_on();
    if let Some(queue) = lock.queue {
        for _ in 0..nr_granted {
            cx.wake_one(queue);
        }
    }
}

/// Does something with a process's lock held. Suspends.
pub fn with<R>(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    hold: Hold,
    work: impl FnOnce(&mut KernelCx<'_>) -> R,
) -> R {
    lock(cx, process, hold);
    let result = work(cx);
    unlock(cx, process, hold);
    result
}

impl Kernel {
    /// Whether faults of a process take its lock: those of 6.4 and later take the mapping's own.
    pub(crate) fn faults_lock(&self) -> bool {
        !self.flows.mmap_lock.per_vma
    }

    /// Takes a process's lock for a fault, if it is to be had at once.
    pub(crate) fn try_lock_for_fault(&mut self, process: ProcessId) -> bool {
        self.process_mut(process).mmap_lock.try_take(Hold::Read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Cost;

    #[test]
    fn readers_share_writers_do_not_and_whoever_comes_later_waits_behind_a_writer() {
        let mut lock = MmapLock::default();
        assert!(lock.try_take(Hold::Read) && lock.try_take(Hold::Read));
        assert!(!lock.try_take(Hold::Write));
        let writer = lock.line_up(Hold::Write);
        assert!(!lock.try_take(Hold::Read), "a writer waits");
        let [first, second] = [(); 2].map(|()| lock.line_up(Hold::Read));
        let last = lock.line_up(Hold::Write);
        lock.release(Hold::Read);
        assert_eq!(lock.pass_on(), 0, "one reads still");
        lock.release(Hold::Read);
        assert_eq!(lock.pass_on(), 1);
        assert_eq!([writer, first, second, last].map(|t| lock.waits(t)), [false, true, true, true]);
        lock.release(Hold::Write);
        assert_eq!(lock.pass_on(), 2, "who reads does so together");
        assert_eq!([first, second, last].map(|t| lock.waits(t)), [false, false, true]);
    }

    #[test]
    fn a_lock_s_line_is_fetched_from_others_and_once_it_never_rests_each_waits_for_all() {
        let costs = Costs::same(40_000);
        let costs = Costs { remote_access: Cost::of_ns(130.0, ""), ..costs };
        let (near, far) = (costs.cache_read.times(20), costs.remote_access.times(20));
        let line = |lock: &MmapLock, cpus, node, nr_faults, alone| {
            lock.line_time(&costs, |_| cpus, node, nr_faults, alone)
        };
        let mut lock = MmapLock::default();
        lock.begin_faults(NodeId(0));
        assert_eq!(line(&lock, 12, NodeId(0), 10, Ns::ZERO), Ns::ZERO, "nobody else has it");
        lock.begin_faults(NodeId(0));
        assert_eq!(line(&lock, 12, NodeId(0), 10, Ns::from_millis(1)), near);
        lock.begin_faults(NodeId(1));
        let one = Ns((near.0 + far.0) / 2);
        assert_eq!(line(&lock, 12, NodeId(0), 10, Ns::from_millis(1)), one);
        assert_eq!(line(&lock, 12, NodeId(1), 10, Ns::from_millis(1)), far);
        assert_eq!(line(&lock, 12, NodeId(1), 10, Ns(1)), Ns(3 * far.0 - 1));
        assert_eq!(
            line(&lock, 1, NodeId(0), 10, Ns::from_millis(1)),
            far,
            "one CPU has it on this node"
        );
        lock.end_faults(NodeId(0));
        lock.end_faults(NodeId(0));
        assert_eq!(line(&lock, 12, NodeId(1), 10, Ns(1)), Ns::ZERO);
    }
}
