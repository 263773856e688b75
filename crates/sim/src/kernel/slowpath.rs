//! A page for a request: the fast path, and what follows when that finds none.
//!
//! Models: `__alloc_pages`, `__alloc_pages_slowpath`, `should_reclaim_retry`, `wake_all_kswapds`,
//! mm/page_alloc.c, v4.4 and v6.12.
//! Departs: no compaction yet. Visible as: a request of order > 0 lives by reclaim alone.

use super::kswapd::wakeup_kswapd;
use super::policy::Retry;
use super::{KernelCx, Stall, TENTH, direct, oom, throttle};
use crate::time::Ns;
use highorder_mm::alloc::Request;
use highorder_mm::gfp::{AllocFlags, Gfp};
use highorder_mm::vma::TaskId as ProcessId;
use highorder_mm::watermark::Mark;
use highorder_mm::zone::ZoneId;
use highorder_mm::{Order, Pfn};

/// Largest order for which the kernel keeps trying (`PAGE_ALLOC_COSTLY_ORDER`).
pub const COSTLY_ORDER: Order = Order(3);
/// Rounds without progress after which a request gives up (`MAX_RECLAIM_RETRIES`).
const RECLAIM_RETRIES_MAX: u32 = 16;
/// How long a request waits between rounds for devices (`HZ / 50`, v4.4).
const RETRY_WAIT: Ns = Ns(TENTH.0 / 5);

/// A request, where it may be served from, and for whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Want {
    /// The request.
    pub request: Request,
    /// The nodes it may come from, a bit for each.
    pub allowed: u64,
    /// The process that asks, unless it is a kernel thread.
    pub process: Option<ProcessId>,
}

/// A block for a request, by whatever it takes. `None` if the request may fail, or its process was
/// killed. May suspend for long.
pub fn alloc_pages(cx: &mut KernelCx<'_>, want: Want) -> Option<Pfn> {
    let flags = cx.world().memory.fast_path_flags(want.request);
    if let Some(pfn) = get_page(cx, want, Some(Mark::Low), flags) {
        return Some(pfn);
    }
    let began = cx.now();
    let found = slowpath(cx, want);
    let took = cx.now() - began;
    (cx.world().on_stall)(Stall::Slowpath, took);
    found
}

fn get_page(
    cx: &mut KernelCx<'_>,
    want: Want,
    mark: Option<Mark>,
    flags: AllocFlags,
) -> Option<Pfn> {
    let cpu = cx.cpu().0 as usize;
    let request = Request { cpu, ..want.request };
    cx.world().memory.get_page_from_nodes(request, want.allowed, mark, flags)
}

fn slowpath(cx: &mut KernelCx<'_>, want: Want) -> Option<Pfn> {
    let Request { order, gfp, .. } = want.request;
    let may_reclaim = gfp.contains(Gfp::DIRECT_RECLAIM);
    let policy = cx.world().flows.slowpath;
    if policy.thisnode_early_exit && gfp.contains(Gfp::THISNODE) && !may_reclaim {
        return None;
    }
    let flags = AllocFlags::slow_path(gfp, order);
    let mut no_progress = 0;
    loop {
        if gfp.contains(Gfp::KSWAPD_RECLAIM) {
            wake_all_kswapds(cx, want);
        }
        if let Some(pfn) = get_page(cx, want, Some(Mark::Min), flags) {
            return Some(pfn);
        }
        if want.process.is_some_and(|process| cx.world().process(process).killed) {
            // The victim may have whatever there is, to come to its end.
            return get_page(cx, want, None, flags.with(AllocFlags::NO_WATERMARKS));
        }
        if !may_reclaim {
            return None;
        }
        let progress = direct::try_to_free_pages(cx, want);
        if progress > 0
            && let Some(pfn) = get_page_after_reclaim(cx, want, flags)
        {
            return Some(pfn);
        }
        if gfp.contains(Gfp::NORETRY) {
            return None;
        }
        let again = match policy.retry {
            Retry::WhileProgress => {
                let again = progress > 0 && order <= COSTLY_ORDER;
                if again {
                    throttle::wait_iff_congested(cx, want.request.node, RETRY_WAIT);
                }
                again
            }
            Retry::NoProgressLoops => {
                if order > COSTLY_ORDER && !gfp.contains(Gfp::RETRY_MAYFAIL) {
                    return None;
                }
                let counts = progress == 0 || order > COSTLY_ORDER;
                no_progress = if counts { no_progress + 1 } else { 0 };
                should_reclaim_retry(cx, want, flags, no_progress)
            }
        };
        if again {
            continue;
        }
        if let Some(pfn) = get_page(cx, want, Some(Mark::High), flags) {
            return Some(pfn);
        }
        let kills = order <= COSTLY_ORDER
            && !gfp.contains(Gfp::THISNODE)
            && !gfp.contains(Gfp::RETRY_MAYFAIL)
            && gfp.contains(Gfp::FS);
        if !kills || !oom::out_of_memory(cx) {
            return None;
        }
        no_progress = 0;
    }
}

/// Looks again after reclaim: what it freed may be in the reserve, or on other CPUs' lists.
fn get_page_after_reclaim(cx: &mut KernelCx<'_>, want: Want, flags: AllocFlags) -> Option<Pfn> {
    if let Some(pfn) = get_page(cx, want, Some(Mark::Min), flags) {
        return Some(pfn);
    }
    let memory = &mut cx.world().memory;
    for zone in 0..memory.zones.len() {
        let migratetype = memory.request_type(want.request.gfp);
        if memory.unreserve_highatomic(ZoneId(zone as u8), migratetype, false) {
            break;
        }
    }
    memory.drain_all_pages(None);
    get_page(cx, want, Some(Mark::Min), flags)
}

/// Whether another round could help: some zone would pass the mark if all that is reclaimable were free.
fn should_reclaim_retry(
    cx: &mut KernelCx<'_>,
    want: Want,
    flags: AllocFlags,
    no_progress: u32,
) -> bool {
    let Request { order, gfp, .. } = want.request;
    let highest = gfp.highest_zone();
    let kernel = cx.world();
    if no_progress > RECLAIM_RETRIES_MAX {
        // The reserve is the last thing to try.
        let migratetype = kernel.memory.request_type(gfp);
        let mut zones = (0..kernel.memory.zones.len()).map(|zone| ZoneId(zone as u8));
        return zones.any(|id| kernel.memory.unreserve_highatomic(id, migratetype, true));
    }
    let nodes = kernel.memory.nodes_by_distance(want.request.node, want.allowed);
    let hopeful = nodes.into_iter().any(|node| {
        let lruvecs = kernel.lruvecs_of(node, highest);
        let reclaimable: u64 = lruvecs.iter().map(|&l| kernel.memory.reclaimable_pages(l)).sum();
        kernel.zones_of(node, highest).any(|id| {
            let zone = &kernel.memory.zones[id.index()];
            let min = zone.watermarks.pages(Mark::Min);
            let available = zone.nr_free_pages + reclaimable;
            kernel.memory.watermark_ok_with(id, order, min, highest, flags, available)
        })
    });
    if hopeful {
        cx.yield_now();
    }
    hopeful
}

/// Wakes kswapd of every node that the request could use.
fn wake_all_kswapds(cx: &mut KernelCx<'_>, want: Want) {
    let Request { order, gfp, node, .. } = want.request;
    let allowed = if gfp.contains(Gfp::THISNODE) { 1 << node } else { want.allowed };
    for node in cx.world().memory.nodes_by_distance(node, allowed) {
        wakeup_kswapd(cx, node, order, gfp.highest_zone());
    }
}
