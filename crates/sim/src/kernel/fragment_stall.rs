//! A movable request that would mix pageblocks for a small block waits for kswapd first.
//!
//! Models: `get_page_from_freelist` and `stall_for_fragmentation` of "mm: stall movable allocations until kswapd
//! progresses during serious external fragmentation event", posted on 31 October and on 7, 21 and 23 November 2018 and
//! never merged.
//! Departs: a signal does not end the wait. Visible as: a killed process dies up to a tenth of a second later.
//! Departs: the walk that follows comes before async compaction for a costly order, which the kernel does in
//! between. Visible as: fewer direct compactions where kswapd has freed a huge page meanwhile.

use super::policy::FragmentStall;
use super::slowpath::{COSTLY_ORDER, Want, get_page, note_fallbacks};
use super::throttle::JIFFY;
use super::trace::{self, TraceEvent};
use super::{KernelCx, Stall, TENTH};
use highorder_mm::Pfn;
use highorder_mm::alloc::Request;
use highorder_mm::gfp::{AllocFlags, Gfp};
use highorder_mm::vmstat::Vm;
use highorder_mm::watermark::Mark;
use highorder_mm::zone::ZoneId;
use highorder_words::{NodeId, Ns};

/// Pageblocks by which the marks are boosted before the wait (`boost_watermark` with `fast_boost`).
const FAST_BOOST: u64 = 1 + 2 * COSTLY_ORDER.0 as u64;

/// The slow path's first walk for a movable request that may reclaim: at the nearest node without mixing
/// pageblocks for small blocks, then, after a wait, wherever the posting goes on. `None` for other requests, and on
/// kernels that do not wait. Suspends.
pub(super) fn get_page_or_wait(
    cx: &mut KernelCx<'_>,
    want: Want,
    flags: AllocFlags,
) -> Option<Pfn> {
    let rule = cx.world().flows.stall.fragment;
    let gfp = want.request.gfp;
    if rule == FragmentStall::Off || !gfp.contains(Gfp::MOVABLE | Gfp::DIRECT_RECLAIM) {
        return None;
    }
    let zones = cx.world().memory.zones_for(want.request.node, gfp);
    let &preferred = zones.first()?;
    let home = cx.world().memory.zones[preferred.index()].node.bit();
    let wish = flags | AllocFlags::FRAGMENT_STALL;
    if rule == FragmentStall::TenthBeforeEachZone {
        let found = wait_before_each_zone(cx, want, &zones, (home, wish));
        if found.is_some() {
            return found;
        }
    } else {
        let local = Want { allowed: want.allowed & home, ..want };
        if let Some(pfn) = get_page(cx, local, Some(Mark::Min), wish) {
            return Some(pfn);
        }
        let timeout = if rule == FragmentStall::Tenth { TENTH } else { Ns(TENTH.0 / 5) };
        boost_and_wait(cx, preferred, timeout);
    }
    let allowed = match rule {
        FragmentStall::FiftiethThenAll => want.allowed,
        _ if gfp.contains(Gfp::THISNODE) => return None,
        _ => want.allowed & !home,
    };
    get_page(cx, Want { allowed, ..want }, Some(Mark::Min), flags)
}

/// Waits for kswapd and looks at a zone, for each zone of the nearest node, and waits once more if there is one beyond.
/// Suspends.
fn wait_before_each_zone(
    cx: &mut KernelCx<'_>,
    want: Want,
    zones: &[ZoneId],
    (home, wish): (u64, AllocFlags),
) -> Option<Pfn> {
    for &id in zones {
        let node = cx.world().memory.zones[id.index()].node;
        if want.allowed & node.bit() == 0 {
            continue;
        }
        wait_for_kswapd(cx, node, TENTH);
        if node.bit() != home {
            return None;
        }
        let request = Request { cpu: cx.cpu(), ..want.request };
        let found = cx.world().memory.get_page_from_zone(id, request, Some(Mark::Min), wish);
        note_fallbacks(cx, found.is_some());
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Boosts a zone's marks by several pageblocks at once, and waits until its node's kswapd has made some progress, or
/// for so long. Suspends.
#[doc(alias = "stall_for_fragmentation")]
fn boost_and_wait(cx: &mut KernelCx<'_>, preferred: ZoneId, timeout: Ns) {
    let kernel = cx.world();
    kernel.memory.boost_watermark(preferred, FAST_BOOST);
    let node = kernel.memory.zones[preferred.index()].node;
    let jiffies = wait_for_kswapd(cx, node, timeout);
    if jiffies == 0 {
        return;
    }
    let duration = Ns(jiffies * JIFFY.0);
    trace::note(cx, TraceEvent::FragmentationStall { node, duration });
    let kernel = cx.world();
    kernel.memory.vm.add(Vm::FragmentStall, 1);
    (kernel.on_stall)(Stall::Fragmentation, duration);
}

/// Waits until a node's kswapd has made some progress, or for so long. Returns for how many ticks of the clock.
/// Suspends.
fn wait_for_kswapd(cx: &mut KernelCx<'_>, node: NodeId, timeout: Ns) -> u64 {
    let state = &cx.world().nodes[node.index()];
    let (queue, kswapd) = (state.pfmemalloc_wait, state.kswapd_wait);
    cx.wake_one(kswapd);
    let began = cx.now();
    cx.wait_timeout(queue, timeout);
    cx.now().0 / JIFFY.0 - began.0 / JIFFY.0
}
