//! How kswapd balanced a node before 3.11: in rounds of rising pressure, until 32 pages are reclaimed.
//!
//! Models: `balance_pgdat`, `pgdat_balanced`, mm/vmscan.c, v3.3.
//! Models: its compaction after a run for a high order, v3.4.

use super::policy::Rounds;
use super::shrink::{Scan, WRITES_BELOW, age_active_anon, shrink_lruvec};
use super::{Kernel, KernelCx, Waiter, compaction, slab, throttle};
use crate::task::Mode;
use highorder_mm::gfp::Gfp;
use highorder_mm::reclaim::{DEF_PRIORITY, Reclaimer, SWAP_CLUSTER_MAX};
use highorder_mm::types::NodeId;
use highorder_mm::vmstat::Vm;
use highorder_mm::watermark::Mark;
use highorder_mm::zone::ZoneId;
use highorder_mm::{Order, ZoneKind};

/// What a round over the zones came to.
struct Round {
    /// Every zone that is not given up is above its high mark.
    all_ok: bool,
    /// Pages of those that are, up to the class asked for.
    balanced: u64,
    /// Some zone is even below its min mark.
    under_min: bool,
}

/// Reclaims until the node is balanced. Returns the order it is balanced for, and the highest zone that
/// needed anything. Suspends.
#[doc(alias = "balance_pgdat")]
pub(super) fn balance_by_cluster(
    cx: &mut KernelCx<'_>,
    node: NodeId,
    order: Order,
    highest_zoneidx: ZoneKind,
) -> (Order, ZoneKind) {
    let zones: Vec<ZoneId> = cx.world().zones_of(node, ZoneKind::Movable).collect();
    let mut scan = Scan::new(cx.world(), Reclaimer::Kswapd, order, highest_zoneidx, Gfp::KERNEL);
    // Each round looks through all that the pressure calls for.
    scan.control.nr_to_reclaim = u64::MAX;
    let mut end_zone = ZoneKind::Dma;
    loop {
        let (is_balanced, priority) =
            raise_pressure(cx, &zones, highest_zoneidx, &mut scan, &mut end_zone);
        if !is_balanced {
            if scan.nr_reclaimed < SWAP_CLUSTER_MAX {
                // So fragmented that nothing was reclaimed: single pages have to do.
                scan.order = Order(0);
            }
        } else if scan.order == Order(0) || settle(cx, &zones, end_zone, priority, &mut scan) {
            return (scan.order, end_zone);
        }
        cx.cond_resched();
        cx.world().memory.vm.add(Vm::PageOutRun, 1);
    }
}

/// Rounds of rising pressure until the node is balanced or 32 pages are reclaimed. Whether it is balanced,
/// and the priority that this took.
fn raise_pressure(
    cx: &mut KernelCx<'_>,
    zones: &[ZoneId],
    highest_zoneidx: ZoneKind,
    scan: &mut Scan,
    end_zone: &mut ZoneKind,
) -> (bool, u8) {
    let mut total_scanned = 0;
    scan.nr_reclaimed = 0;
    let mut priority = DEF_PRIORITY;
    loop {
        scan.control.priority = priority;
        // Each look at a zone takes its lock (`get_scan_count`), whatever it finds.
        let looks = cx.world().costs.lock_pair.times(zones.len() as u64);
        cx.spend(looks, Mode::System);
        let Some(end) = highest_unbalanced(cx, zones, scan) else { return (true, priority) };
        *end_zone = end;
        let round = shrink_zones(cx, zones, highest_zoneidx, end_zone, scan, &mut total_scanned);
        let is_enough = scan.order > Order(0)
            && round.balanced >= cx.world().present_up_to(zones, highest_zoneidx) / 4;
        if round.all_ok || is_enough {
            return (true, priority);
        }
        if total_scanned > 0 && priority < WRITES_BELOW {
            if round.under_min {
                cx.world().memory.vm.add(Vm::KswapdSkipCongestionWait, 1);
            } else if cx.world().flows.stall.kswapd_waits {
                throttle::congestion_wait(cx, Waiter::Kswapd);
            }
        }
        if scan.nr_reclaimed >= SWAP_CLUSTER_MAX || priority == 0 {
            return (false, priority);
        }
        priority -= 1;
    }
}

/// From above, the first zone below its high mark; on the way anonymous pages age.
fn highest_unbalanced(
    cx: &mut KernelCx<'_>,
    zones: &[ZoneId],
    scan: &mut Scan,
) -> Option<ZoneKind> {
    for &id in zones.iter().rev() {
        let lruvec = cx.world().memory.lru.of_zone(id);
        if scan.control.priority != DEF_PRIORITY && cx.world().is_given_up(lruvec) {
            continue;
        }
        age_active_anon(cx, lruvec, scan);
        if !cx.world().zone_balanced(id, scan.order, 0, ZoneKind::Dma) {
            return Some(cx.world().memory.zones[id.index()].kind);
        }
        cx.world().lru_flags[lruvec.index()].congested = false;
    }
    None
}

/// Looks through the zones once, from the lowest to `end_zone`, and sees where each stands.
fn shrink_zones(
    cx: &mut KernelCx<'_>,
    zones: &[ZoneId],
    highest_zoneidx: ZoneKind,
    end_zone: &mut ZoneKind,
    scan: &mut Scan,
    total_scanned: &mut u64,
) -> Round {
    let mut round = Round { all_ok: true, balanced: 0, under_min: false };
    for (at, &id) in zones.iter().enumerate() {
        let (kind, present) = {
            let zone = &cx.world().memory.zones[id.index()];
            (zone.kind, zone.present_pages)
        };
        let lruvec = cx.world().memory.lru.of_zone(id);
        if kind > *end_zone
            || scan.control.priority != DEF_PRIORITY && cx.world().is_given_up(lruvec)
        {
            continue;
        }
        scan.nr_scanned = 0;
        let gap = cx.world().balance_gap(id);
        let test_order = cx.world().test_order(id, scan.order, *end_zone);
        if !cx.world().zone_balanced(id, test_order, gap, *end_zone) {
            shrink_lruvec(cx, lruvec, scan);
            let freed = slab::after_zone(cx, id, *end_zone, scan, 0);
            *total_scanned += scan.nr_scanned;
            if freed == 0 && !cx.world().is_reclaimable(lruvec) {
                cx.world().memory.zones[id.index()].flags.all_unreclaimable = true;
            }
        }
        if *total_scanned > SWAP_CLUSTER_MAX * 2 && *total_scanned > scan.nr_reclaimed * 3 / 2 {
            scan.control.may_writepage = true;
        }
        if cx.world().is_given_up(lruvec) {
            if kind == *end_zone && at > 0 {
                *end_zone = cx.world().memory.zones[zones[at - 1].index()].kind;
            }
            continue;
        }
        if cx.world().zone_balanced(id, test_order, 0, *end_zone) {
            cx.world().lru_flags[lruvec.index()].congested = false;
            round.balanced += if kind <= highest_zoneidx { present } else { 0 };
        } else {
            round.all_ok = false;
            round.under_min |= !cx.world().is_above(id, scan.order, Mark::Min, *end_zone);
        }
    }
    round
}

/// After a run for a high order: whether single pages are there as well. If not, they are what is worked
/// for next.
fn settle(
    cx: &mut KernelCx<'_>,
    zones: &[ZoneId],
    end_zone: ZoneKind,
    priority: u8,
    scan: &mut Scan,
) -> bool {
    let kernel = cx.world();
    for &id in zones.iter().take_while(|id| kernel.memory.zones[id.index()].kind <= end_zone) {
        let lruvec = kernel.memory.lru.of_zone(id);
        if priority != DEF_PRIORITY && kernel.is_given_up(lruvec) {
            continue;
        }
        if !kernel.zone_balanced(id, Order(0), 0, ZoneKind::Dma) {
            scan.order = Order(0);
            return false;
        }
        kernel.lru_flags[lruvec.index()].congested = false;
    }
    let order = scan.order;
    let is_served = zones.iter().any(|&id| kernel.is_above(id, order, Mark::Low, ZoneKind::Dma));
    if kernel.flows.compactors.by_kswapd && !is_served {
        let node = kernel.memory.zones[zones[0].index()].node;
        compaction::compact_for_kswapd(cx, node, order);
    }
    true
}

impl Kernel {
    /// Pages that a zone should have above its high mark before it is left alone: a hundredth of it (of all that is
    /// present, where nobody counts what is managed), rounded up, but not more than its low mark.
    pub(super) fn balance_gap(&self, id: ZoneId) -> u64 {
        let zone = &self.memory.zones[id.index()];
        let policy = self.flows.kswapd;
        let of = match policy.rounds {
            Rounds::ByCluster => zone.present_pages,
            _ => zone.managed_pages,
        };
        (of * u64::from(policy.balance_gap_permille))
            .div_ceil(1000)
            .min(zone.watermarks.pages(Mark::Low))
    }

    fn present_up_to(&self, zones: &[ZoneId], highest_zoneidx: ZoneKind) -> u64 {
        let zones = zones.iter().map(|id| &self.memory.zones[id.index()]);
        zones.filter(|zone| zone.kind <= highest_zoneidx).map(|zone| zone.present_pages).sum()
    }
}
