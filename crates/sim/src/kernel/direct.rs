//! Direct reclaim: a request frees pages for itself.
//!
//! Models: `try_to_free_pages`, `do_try_to_free_pages`, `shrink_zones`, `throttle_direct_reclaim`,
//! mm/vmscan.c, v4.4 and v6.12.

use super::policy::StallRule;
use super::shrink::{Scan, WRITES_BELOW, shrink_lruvec};
use super::slowpath::Want;
use super::{KernelCx, Stall, throttle};
use highorder_mm::alloc::Request;
use highorder_mm::policy::LruScope;
use highorder_mm::reclaim::{DEF_PRIORITY, Reclaimer};
use highorder_mm::vmstat::Vm;

/// Reclaims for a request. Returns whether that got anywhere: pages freed, or 1 where old kernels still
/// have hope. Suspends.
pub(crate) fn try_to_free_pages(cx: &mut KernelCx<'_>, want: Want) -> u64 {
    if throttle::throttle_direct_reclaim(cx, want) {
        // Woken by a signal that kills: let the request see for itself.
        return 1;
    }
    let began = cx.now();
    let progress = do_try_to_free_pages(cx, want);
    let took = cx.now() - began;
    (cx.world().on_stall)(Stall::DirectReclaim, took);
    progress
}

fn do_try_to_free_pages(cx: &mut KernelCx<'_>, want: Want) -> u64 {
    let Request { order, gfp, .. } = want.request;
    let highest = gfp.highest_zone();
    let policy = cx.world().flows.direct;
    let mut scan = Scan::new(cx.world(), Reclaimer::Direct, order, highest, gfp);
    let (mut repeat, mut deactivate) = (policy.repeats, policy.repeats_deactivating);
    loop {
        cx.world().memory.vm.add_in(Vm::AllocStall, highest, 1);
        let mut priority = DEF_PRIORITY;
        let mut is_hopeful = false;
        loop {
            scan.control.priority = priority;
            scan.nr_scanned = 0;
            is_hopeful |= shrink_zones(cx, want, &mut scan);
            if scan.nr_reclaimed >= scan.control.nr_to_reclaim || priority == 0 {
                break;
            }
            if priority < WRITES_BELOW {
                scan.control.may_writepage = true;
            }
            priority -= 1;
        }
        for lruvec in lruvecs(cx, want) {
            cx.world().memory.snapshot_refaults(lruvec);
        }
        if scan.nr_reclaimed > 0 {
            return scan.nr_reclaimed;
        }
        if repeat {
            repeat = false;
        } else if deactivate && scan.skipped_deactivate {
            deactivate = false;
            scan.control.force_deactivate = true;
            scan.skipped_deactivate = false;
        } else {
            return u64::from(is_hopeful);
        }
    }
}

/// The LRU lists that a request's zones belong to, in the order of its zonelist.
fn lruvecs(cx: &mut KernelCx<'_>, want: Want) -> Vec<usize> {
    let highest = want.request.gfp.highest_zone();
    let kernel = cx.world();
    let nodes = kernel.memory.nodes_by_distance(want.request.node, want.allowed);
    nodes
        .into_iter()
        .flat_map(|node| {
            let mut lists = kernel.lruvecs_of(node, highest);
            // Zonelists begin at the highest zone.
            lists.reverse();
            lists
        })
        .collect()
}

/// Looks through the lists of every zone that the request could use, once. Whether old kernels see hope.
fn shrink_zones(cx: &mut KernelCx<'_>, want: Want, scan: &mut Scan) -> bool {
    let by_zone = cx.world().memory.policy.lru.scope == LruScope::Zone;
    let mut is_hopeful = false;
    for lruvec in lruvecs(cx, want) {
        let reclaimable = cx.world().is_reclaimable(lruvec);
        if by_zone && scan.control.priority != DEF_PRIORITY && !reclaimable {
            continue;
        }
        let before = scan.nr_reclaimed;
        shrink_lruvec(cx, lruvec, scan);
        is_hopeful |= by_zone && (scan.nr_reclaimed > before || cx.world().is_reclaimable(lruvec));
        if cx.world().flows.stall.rule == StallRule::Throttle {
            let node = cx.world().memory.lru.lruvecs[lruvec].node;
            throttle::consider_reclaim_throttle(cx, node, scan);
        }
    }
    is_hopeful
}
