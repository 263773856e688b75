//! Who may change a process's mappings, and who may meanwhile fault in them.
//!
//! Models: `mmap_sem` (since 5.8 `mmap_lock`), include/linux/mm_types.h, and its users in mm/mmap.c, mm/madvise.c,
//! mm/mempolicy.c, arch/x86/mm/fault.c, mm/khugepaged.c, v3.3 to v6.12; kernel/locking/rwsem.c: who comes first is
//! served first, and readers that stand in a row are served together.
//! Departs: faults that read from a disk do not hold it, and those of 6.4 and later never wait. Reading and
//! writing the lock's own cache line takes no time. Visible as: who unmaps never waits for a read, and a fault
//! costs the same with one thread and with many, but for the locks of zones and LRU lists.

use super::{Kernel, KernelCx};
use highorder_mm::vma::TaskId as ProcessId;
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MmapLock {
    readers: u32,
    writer: bool,
    /// Who waits, by ticket, in the order in which they came.
    waiting: VecDeque<(u64, Hold)>,
    next_ticket: u64,
}

impl MmapLock {
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

    fn queue(&mut self, hold: Hold) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting.push_back((ticket, hold));
        ticket
    }

    fn waits(&self, ticket: u64) -> bool {
        self.waiting.iter().any(|&(other, _)| other == ticket)
    }

    /// Gives it to those who are next. Whether there were any.
    fn pass_on(&mut self) -> bool {
        let before = self.waiting.len();
        while let Some(&(_, hold)) = self.waiting.front()
            && self.is_free_for(hold)
        {
            self.waiting.pop_front();
            self.take(hold);
        }
        self.waiting.len() < before
    }

    fn release(&mut self, hold: Hold) {
        match hold {
            Hold::Read => self.readers -= 1,
            Hold::Write => self.writer = false,
        }
    }
}

/// Takes a process's lock, once it is this task's turn. Suspends.
pub fn lock(cx: &mut KernelCx<'_>, process: ProcessId, hold: Hold) {
    let kernel = cx.world();
    let queue = kernel.mmap_wait;
    let lock = &mut kernel.process_mut(process).mmap_lock;
    if lock.try_take(hold) {
        return;
    }
    let ticket = lock.queue(hold);
    while cx.world().process(process).mmap_lock.waits(ticket) {
        cx.wait(queue);
    }
}

/// Releases it.
pub fn unlock(cx: &mut KernelCx<'_>, process: ProcessId, hold: Hold) {
    let kernel = cx.world();
    let queue = kernel.mmap_wait;
    let lock = &mut kernel.process_mut(process).mmap_lock;
    lock.release(hold);
    if lock.pass_on() {
        cx.wake_all(queue);
    }
}

/// Lets readers in where there was a writer, which goes on as one of them (dd2283f2605e, 4.20).
pub fn downgrade(cx: &mut KernelCx<'_>, process: ProcessId) {
    let kernel = cx.world();
    let queue = kernel.mmap_wait;
    let lock = &mut kernel.process_mut(process).mmap_lock;
    lock.release(Hold::Write);
    lock.take(Hold::Read);
    if lock.pass_on() {
        cx.wake_all(queue);
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

    #[test]
    fn readers_share_writers_do_not_and_whoever_comes_later_waits_behind_a_writer() {
        let mut lock = MmapLock::default();
        assert!(lock.try_take(Hold::Read) && lock.try_take(Hold::Read));
        assert!(!lock.try_take(Hold::Write));
        let writer = lock.queue(Hold::Write);
        assert!(!lock.try_take(Hold::Read), "a writer waits");
        let [first, second] = [(); 2].map(|()| lock.queue(Hold::Read));
        let last = lock.queue(Hold::Write);
        lock.release(Hold::Read);
        assert!(!lock.pass_on(), "one reads still");
        lock.release(Hold::Read);
        assert!(lock.pass_on());
        assert_eq!([writer, first, second, last].map(|t| lock.waits(t)), [false, true, true, true]);
        lock.release(Hold::Write);
        assert!(lock.pass_on());
        assert_eq!([first, second, last].map(|t| lock.waits(t)), [false, false, true]);
    }
}
