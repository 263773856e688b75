//! Direct reclaim: a request frees pages for itself.
//!
//! Models: `try_to_free_pages`, `do_try_to_free_pages`, `shrink_zones`, `throttle_direct_reclaim`,
//! mm/vmscan.c, v4.4, v6.12 and v3.3.

use super::policy::{Ready, StallRule, WakesFlushers};
use super::shrink::{Scan, WRITES_BELOW, shrink_lruvec};
use super::slowpath::{COSTLY_ORDER, Want};
use super::trace::{self, ReclaimEvent};
use super::{Kernel, KernelCx, Stall, TENTH, slab, throttle, writeback};
use highorder_mm::alloc::Request;
use highorder_mm::compaction::CompactResult;
use highorder_mm::compaction::suitable::compact_gap;
use highorder_mm::gfp::AllocFlags;
use highorder_mm::lru::LruvecId;
use highorder_mm::policy::LruScope;
use highorder_mm::reclaim::{DEF_PRIORITY, Reclaimer};
use highorder_mm::vmstat::Vm;
use highorder_mm::watermark::Mark;
use highorder_mm::zone::ZoneId;
use highorder_mm::{Order, ZoneKind};

/// Reclaims for a request. Returns whether that got anywhere: pages freed, or 1 where old kernels still
/// have hope. Suspends.
pub(crate) fn try_to_free_pages(cx: &mut KernelCx<'_>, want: Want) -> u64 {
    if throttle::throttle_direct_reclaim(cx, want) {
        // Woken by a signal that kills: let the request see for itself.
        return 1;
    }
    let began = cx.now();
    let Request { order, gfp, .. } = want.request;
    trace::note_reclaim(cx, ReclaimEvent::DirectBegin { order, gfp });
    let progress = do_try_to_free_pages(cx, want);
    trace::note_reclaim(cx, ReclaimEvent::DirectEnd { nr_reclaimed: progress });
    let took = cx.now() - began;
    (cx.world().on_stall)(Stall::DirectReclaim, took);
    progress
}

fn do_try_to_free_pages(cx: &mut KernelCx<'_>, want: Want) -> u64 {
    let Request { order, gfp, .. } = want.request;
    let highest_zoneidx = gfp.highest_zone();
    let policy = cx.world().flows.direct;
    let task = cx.task();
    let kernel = cx.world();
    let is_khugepaged = kernel.khugepaged == Some(task);
    let who = if is_khugepaged { Reclaimer::Khugepaged } else { Reclaimer::Direct };
    let mut scan = Scan::new(kernel, who, order, highest_zoneidx, gfp);
    scan.process = want.process;
    let (mut repeat, mut deactivate) = (policy.repeats, policy.repeats_deactivating);
    let lists = lruvecs(cx, want);
    loop {
        cx.world().memory.vm.add_in(Vm::AllocStall, highest_zoneidx, 1);
        let mut priority = DEF_PRIORITY;
        let (mut is_hopeful, mut is_ready, mut total_scanned) = (false, false, 0);
        loop {
            scan.control.priority = priority;
            scan.nr_scanned = 0;
            let seen = shrink_zones(cx, &lists, &mut scan);
            is_hopeful |= seen.is_hopeful;
            is_ready |= seen.is_ready;
            slab::after_pass(cx, &lists, &mut scan);
            let ends = is_ready && policy.ready == Ready::Ends;
            if scan.nr_reclaimed >= scan.control.nr_to_reclaim || priority == 0 || ends {
                break;
            }
            total_scanned += scan.nr_scanned;
            if cx.world().flows.files.wakes_flushers == WakesFlushers::ScannedMuch
                && total_scanned > scan.control.nr_to_reclaim * 3 / 2
            {
                writeback::wakeup_flusher_threads(cx, Some(total_scanned));
            }
            if priority < WRITES_BELOW {
                scan.control.may_writepage = true;
                if policy.waits_for_devices && scan.nr_scanned > 0 {
                    throttle::wait_for_preferred_zone(cx, want, TENTH);
                }
            }
            priority -= 1;
        }
        for &lruvec in &lists {
            cx.world().memory.snapshot_refaults(lruvec);
        }
        if scan.nr_reclaimed > 0 {
            return scan.nr_reclaimed;
        }
        if is_ready {
            // Compaction can go on with what there is.
            return 1;
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
fn lruvecs(cx: &mut KernelCx<'_>, want: Want) -> Vec<LruvecId> {
    let highest_zoneidx = want.request.gfp.highest_zone();
    let kernel = cx.world();
    if want.allowed == u64::MAX && kernel.memory.policy.lru.scope == LruScope::Zone {
        let zones = kernel.memory.zones_for(want.request.node, want.request.gfp);
        return zones.into_iter().map(|id| kernel.memory.lru.of_zone(id)).collect();
    }
    let nodes = kernel.memory.nodes_by_distance(want.request.node, want.allowed);
    nodes
        .into_iter()
        .flat_map(|node| {
            let mut lists = kernel.lruvecs_of(node, highest_zoneidx);
            // Zonelists begin at the highest zone.
            lists.reverse();
            lists
        })
        .collect()
}

/// What a look at all zones found.
#[derive(Default)]
struct Seen {
    /// Old kernels see hope.
    is_hopeful: bool,
    /// A zone needs compaction, not reclaim.
    is_ready: bool,
}

/// Looks through the lists of every zone that the request could use, once.
fn shrink_zones(cx: &mut KernelCx<'_>, lists: &[LruvecId], scan: &mut Scan) -> Seen {
    let by_zone = cx.world().memory.policy.lru.scope == LruScope::Zone;
    let is_costly = scan.order > COSTLY_ORDER;
    let mut seen = Seen::default();
    for &lruvec in lists {
        let is_given_up = cx.world().is_given_up(lruvec);
        if by_zone && scan.control.priority != DEF_PRIORITY && is_given_up {
            continue;
        }
        if is_costly && all_ready(cx, lruvec, scan, &mut seen) {
            continue;
        }
        let (before, scanned_before) = (scan.nr_reclaimed, scan.nr_scanned);
        shrink_lruvec(cx, lruvec, scan);
        if by_zone {
            let id = cx.world().zone_of_lists(lruvec);
            slab::after_zone(cx, id, scan.control.highest_zoneidx, scan, scanned_before);
        }
        seen.is_hopeful |=
            by_zone && (scan.nr_reclaimed > before || !cx.world().is_given_up(lruvec));
    }
    // Once, for the first node of the request (1b4e3f26f9f7, 5.16).
    if cx.world().flows.stall.rule == StallRule::Throttle
        && let Some(&first) = lists.first()
    {
        let node = cx.world().memory.lru.lruvecs[first].node;
        throttle::consider_reclaim_throttle(cx, node, scan);
    }
    seen
}

/// Whether every zone of some lists that is of use is ready for compaction, so that they are passed over.
fn all_ready(cx: &mut KernelCx<'_>, lruvec: LruvecId, scan: &Scan, seen: &mut Seen) -> bool {
    let highest_zoneidx = scan.control.highest_zoneidx;
    let kernel = cx.world();
    let zones: Vec<ZoneId> = kernel.zones_of_lists(lruvec, highest_zoneidx).collect();
    let mut all = true;
    for id in zones {
        let is_ready = compaction_ready(kernel, id, scan.order, highest_zoneidx);
        seen.is_ready |= is_ready;
        all &= is_ready;
    }
    trace::note_all(cx);
    all
}

/// Whether a zone has enough free pages for compaction to make the block of them, or has the block
/// (`compaction_ready`). In old kernels to ask counts as a run that was deferred.
fn compaction_ready(
    kernel: &mut Kernel,
    id: ZoneId,
    order: Order,
    highest_zoneidx: ZoneKind,
) -> bool {
    let flags = AllocFlags::NONE;
    let asked_for = kernel.zone_that_compaction_is_asked_for(highest_zoneidx);
    let memory = &kernel.memory;
    let high = memory.zones[id.index()].watermarks.pages(Mark::High) + compact_gap(order);
    let suitable = memory.compaction_suitable(id, order, Mark::Min, flags, asked_for);
    if memory.policy.lru.scope == LruScope::Node {
        return match suitable {
            CompactResult::Success => true,
            CompactResult::Continue => {
                memory.watermark_ok(id, Order(0), high, highest_zoneidx, flags)
            }
            _ => false,
        };
    }
    let gap = kernel.balance_gap(id);
    let memory = &mut kernel.memory;
    if !memory.watermark_ok(id, Order(0), high + gap, ZoneKind::Dma, flags) {
        return false;
    }
    let suitable = matches!(suitable, CompactResult::Success | CompactResult::Continue);
    memory.compaction_deferred(id, order) || suitable
}
