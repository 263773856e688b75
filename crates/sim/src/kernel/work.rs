//! Time for the work that steps did.

use super::{Kernel, KernelCx};
use crate::sched::LockId;
use crate::task::Mode;
use highorder_mm::memory::Work;
use highorder_mm::zone::ZoneId;
use highorder_words::Ns;

/// What work takes: under the zone's lock, under the LRU's, and without a lock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Price {
    pub(crate) zone: Ns,
    pub(crate) lru: Ns,
    pub(crate) free: Ns,
}

impl Kernel {
    /// The lock of the LRU lists that a zone's pages are on.
    pub(super) fn lru_lock(&self, zone: ZoneId) -> LockId {
        self.lru_locks[self.memory.lru.of_zone(zone).index()]
    }

    /// What some work costs, other CPUs having to be told of entries, which takes so much longer than it costs; or not.
    fn price(&self, work: Work, tells_others: Option<Ns>) -> Price {
        let costs = &self.costs;
        let mut flush = costs.tlb_flush_local.times(work.tlb_flushes + work.tlb_flushes_all);
        if let Some(wait) = tells_others {
            flush += costs.tlb_flush_remote.times(work.tlb_flushes)
                + costs.tlb_flush_all_remote.times(work.tlb_flushes_all)
                + wait * (work.tlb_flushes + work.tlb_flushes_all);
        }
        Price {
            zone: costs.list_op.times(work.list_ops)
                + costs.pfn_scan.times(work.pfns_scanned + work.near_list_ops)
                + costs.lock_pair.times(work.refills + work.drains),
            lru: costs.list_op.times(work.lru_ops) + costs.pfn_scan.times(work.near_lru_ops),
            // An object's place on its slab's list is no nearer than a page's on its own.
            free: costs.page_table_walk.times(work.ptes_scanned)
                + costs.reclaim_page.times(work.pages_reclaimed)
                + costs.rmap_walk.times(work.rmap_walks)
                + costs.move_page.times(work.pages_moved)
                + costs.block_look.times(work.blocks_looked_at)
                + costs.list_op.times(work.slab_ops)
                + costs.clear_base_page.times(work.pages_cleared)
                + costs.clear_huge_page.times(work.huge_pages_cleared)
                + costs.copy_base_page.times(work.pages_copied)
                + flush,
        }
    }
}

/// What some work of the current task costs. Other CPUs have to be told that entries are gone if they run a process whose
/// entries those were; that takes one interrupt's time, however many they are.
pub(crate) fn price(cx: &mut KernelCx<'_>, work: Work) -> Price {
    let users = work.tlb_users;
    let tells_others = users.is_any() && {
        let elsewhere: Vec<_> = cx.running_elsewhere().collect();
        elsewhere.into_iter().any(|task| cx.world().process_of(task).is_some_and(|p| users.has(p)))
    };
    let tells_others = tells_others.then(|| cx.flush_wait());
    cx.world().price(work, tells_others)
}

/// Spends the time of the work done since the last call, in a zone and on LRU lists. Suspends.
///
/// Work is one heap for all tasks: whoever suspends before it has taken its own leaves it to the next one that takes.
pub(crate) fn spend_work(cx: &mut KernelCx<'_>, zone: ZoneId) {
    let work = cx.world().memory.take_work();
    spend_taken(cx, zone, work);
}

/// As [`spend_work`], of work that was taken before. Suspends.
pub(crate) fn spend_taken(cx: &mut KernelCx<'_>, zone: ZoneId, work: Work) {
    let price = price(cx, work);
    cx.spend(price.free, Mode::System);
    hold_lru_lock(cx, zone, price.lru);
    hold_zone_lock(cx, zone, price.zone);
}

/// As [`spend_taken`], of a batch of reclaim: its pages leave their list before they are looked at, and those that are kept
/// return to it afterwards, each time under the lock.
///
/// Models: `shrink_inactive_list`, `shrink_active_list`, mm/vmscan.c, v3.3 to v6.12.
/// Departs: leaving takes as long as returning, though what was freed does not return. Visible as: where much is freed,
/// the lock is held a little too long the second time and too briefly the first.
#[doc(alias = "shrink_inactive_list")]
#[doc(alias = "shrink_active_list")]
pub(crate) fn spend_batch(cx: &mut KernelCx<'_>, zone: ZoneId, work: Work) {
    let price = price(cx, work);
    let leaving = price.lru / 2;
    hold_lru_lock(cx, zone, leaving);
    cx.spend(price.free, Mode::System);
    hold_lru_lock(cx, zone, price.lru - leaving);
    hold_zone_lock(cx, zone, price.zone);
}

/// Holds the lock of a zone's LRU lists for so long. Suspends.
pub(super) fn hold_lru_lock(cx: &mut KernelCx<'_>, zone: ZoneId, time: Ns) {
    if time > Ns::ZERO {
        let lock = cx.world().lru_lock(zone);
        cx.hold(lock, time);
    }
}

/// Holds a zone's lock for so long. Suspends.
pub(super) fn hold_zone_lock(cx: &mut KernelCx<'_>, zone: ZoneId, time: Ns) {
    if time > Ns::ZERO {
        let lock = cx.world().zone_locks[zone.index()];
        cx.hold(lock, time);
    }
}
