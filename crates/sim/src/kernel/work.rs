//! Time for the work that steps did.

use super::{Kernel, KernelCx};
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
    /// What some work costs.
    pub(crate) fn price(&self, work: Work) -> Price {
        let costs = &self.costs;
        let others = self.memory.machine.cpu_nodes.len() as u64 - 1;
        let flush = costs.tlb_flush_local.times(work.tlb_flushes)
            + costs.tlb_flush_remote.times(work.tlb_flushes * others.min(1));
        Price {
            zone: costs.list_op.times(work.list_ops)
                + costs.pfn_scan.times(work.pfns_scanned + work.near_list_ops)
                + costs.lock_pair.times(work.refills + work.drains),
            lru: costs.list_op.times(work.lru_ops) + costs.pfn_scan.times(work.near_lru_ops),
            // An object's place on its slab's list is no nearer than a page's on its own.
            free: costs.page_table_walk.times(work.ptes_scanned)
                + costs.reclaim_page.times(work.pages_reclaimed)
                + costs.rmap_walk.times(work.rmap_walks)
                + costs.cache_read.times(work.far_pfns_scanned)
                + costs.list_op.times(work.slab_ops)
                + costs.clear_base_page.times(work.pages_cleared)
                + costs.clear_huge_page.times(work.huge_pages_cleared)
                + costs.copy_base_page.times(work.pages_copied)
                + flush,
        }
    }
}

/// Spends the time of the work done since the last call, in a zone and on LRU lists. Suspends.
pub(crate) fn spend_work(cx: &mut KernelCx<'_>, zone: ZoneId) {
    let kernel = cx.world();
    let work = kernel.memory.take_work();
    let price = kernel.price(work);
    let zone_lock = kernel.zone_locks[zone.index()];
    let lru_lock = kernel.lru_locks[kernel.memory.lru.of_zone(zone).index()];
    cx.spend(price.free, Mode::System);
    if price.lru > Ns::ZERO {
        cx.hold(lru_lock, price.lru);
    }
    if price.zone > Ns::ZERO {
        cx.hold(zone_lock, price.zone);
    }
}
