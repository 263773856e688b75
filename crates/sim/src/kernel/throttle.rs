//! When reclaim waits, and for what.
//!
//! Models: `congestion_wait`, `wait_iff_congested`, mm/backing-dev.c, `throttle_vm_writeout`,
//! mm/page-writeback.c, v4.4 and v3.3; `throttle_direct_reclaim`, `reclaim_throttle`,
//! `consider_reclaim_throttle`, mm/vmscan.c, v4.4 and v6.12.
//! Departs: nobody but the page cache, page tables and a CPU's batch of pages to be made active holds references, so
//! that fewer dirty pages are refused; from 3.11 on no zone counts as congested (`ZONE_CONGESTED`). Visible as:
//! `wait_iff_congested` sleeps more rarely than the kernel's, and never there.
//! Departs: nobody waits since others have too many pages off the lists (`too_many_isolated`).
//! Visible as: fewer congestion waits of programs where many of them reclaim at once.
//! Departs: a jiffy is 4 ms (`CONFIG_HZ=250`, as Debian has it). Visible as: on kernels built with another
//! rate the shortest waits are shorter or longer.

use super::policy::{StallRule, WriteoutLimit};
use super::shrink::Scan;
use super::slowpath::Want;
use super::trace::{self, DeviceWait, ReclaimEvent};
use super::{Kernel, KernelCx, Stall, TENTH, Waiter};
use crate::device::Class;
use crate::sim::Waker;
use highorder_mm::frame::PageFlags;
use highorder_mm::gfp::Gfp;
use highorder_mm::lru::LruvecId;
use highorder_mm::reclaim::SWAP_CLUSTER_MAX;
use highorder_mm::types::NodeId;
use highorder_mm::vmstat::Vm;
use highorder_mm::watermark::Mark;
use highorder_mm::{Pfn, ZoneKind};
use highorder_words::Ns;

/// One tick of the timer.
pub(super) const JIFFY: Ns = crate::sched::TICK;

/// The longest wait for isolated pages (`reclaim_throttle`, d818fca1cac3).
const FIFTIETH: Ns = Ns(TENTH.0 / 5);

/// What a reclaimer waits for (`enum vmscan_throttle_state`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// Pages to be written.
    Writeback,
    /// Anybody to reclaim anything.
    NoProgress,
    /// Isolated pages to come back to their lists.
    Isolated,
}

/// Waits until a request for a write is freed on a device that is not congested, a tenth of a second at
/// most.
pub(crate) fn congestion_wait(cx: &mut KernelCx<'_>, waiter: Waiter) {
    let began = cx.now();
    wait_for_devices(cx, TENTH);
    let took = ticks_since(cx, began);
    let wait = DeviceWait { timeout: TENTH, delayed: took };
    trace::note_reclaim(cx, ReclaimEvent::CongestionWait(wait));
    let on_stall = &mut cx.world().on_stall;
    on_stall(Stall::CongestionWait(waiter), took);
    if took >= TENTH {
        on_stall(Stall::CongestionWaitFull(waiter), took);
    }
}

/// Waits as [`congestion_wait`] does if some device is congested and so is the zone of these lists; else
/// lets others run.
pub(crate) fn wait_iff_congested(
    cx: &mut KernelCx<'_>,
    lruvec: LruvecId,
    timeout: Ns,
    waiter: Waiter,
) {
    let began = cx.now();
    if is_congested(cx, lruvec) {
        wait_for_devices(cx, timeout);
    } else {
        cx.cond_resched();
    }
    let took = ticks_since(cx, began);
    let wait = DeviceWait { timeout, delayed: took };
    trace::note_reclaim(cx, ReclaimEvent::WaitIffCongested(wait));
    let on_stall = &mut cx.world().on_stall;
    on_stall(Stall::WaitIffCongested(waiter), took);
    if took >= timeout {
        on_stall(Stall::WaitIffCongestedFull(waiter), took);
    }
}

/// Whether [`wait_iff_congested`] would wait.
pub(crate) fn is_congested(cx: &mut KernelCx<'_>, lruvec: LruvecId) -> bool {
    let devices = cx.nr_devices();
    let any = (0..devices)
        .any(|device| cx.device(crate::sched::DeviceId(device as u32)).is_congested(Class::Async));
    any && cx.world().lru_flags[lruvec.index()].congested
}

fn wait_for_devices(cx: &mut KernelCx<'_>, timeout: Ns) {
    let began = cx.now();
    cx.congestion_wait(Class::Async, timeout);
    let took = cx.now() - began;
    (cx.world().on_stall)(Stall::ReclaimThrottle, took);
}

/// What passed since a moment, as the kernel's clock of these waits sees it: ticks of the timer (`jiffies`).
fn ticks_since(cx: &KernelCx<'_>, began: Ns) -> Ns {
    let ticks = |at: Ns| at.0 / JIFFY.0;
    Ns((ticks(cx.now()) - ticks(began)) * JIFFY.0)
}

/// Waits until a page is not being written any more.
pub(crate) fn wait_on_writeback(cx: &mut KernelCx<'_>, pfn: Pfn) {
    let began = cx.now();
    while cx.world().memory.frames().has(pfn, PageFlags::WRITEBACK) {
        let queue = cx.world().written_wait;
        cx.wait_for_io_in(queue, None);
    }
    let took = cx.now() - began;
    if took > Ns::ZERO {
        (cx.world().on_stall)(Stall::ReclaimWriteback, took);
    }
}

/// Waits for the preferred zone of a request that could not be served, before another attempt.
pub(crate) fn wait_for_preferred_zone(cx: &mut KernelCx<'_>, want: Want, timeout: Ns) {
    let memory = &cx.world().memory;
    if let Some(preferred) = memory.preferred_zone(want.request.node, want.request.gfp) {
        let lruvec = memory.lru.of_zone(preferred);
        wait_iff_congested(cx, lruvec, timeout, Waiter::Direct);
    }
}

/// Waits while too many pages are being written for the dirty limit (before 4.20).
pub(crate) fn throttle_vm_writeout(cx: &mut KernelCx<'_>, gfp: Gfp, waiter: Waiter) {
    loop {
        let kernel = cx.world();
        let (_, hard) = kernel.memory.dirty_limits();
        let limit = match kernel.flows.stall.writeout_limit {
            WriteoutLimit::Off => return,
            WriteoutLimit::Dirty => hard,
            WriteoutLimit::Smoothed => hard.max(kernel.smoothed_dirty_limit.0),
        };
        if kernel.memory.lru.total_stats().nr_writeback <= limit + limit / 10 {
            return;
        }
        congestion_wait(cx, waiter);
        if !gfp.contains(Gfp::IO) || !gfp.contains(Gfp::FS) {
            return;
        }
    }
}

impl Kernel {
    /// Whether half of the reserves of a node are free (`allow_direct_reclaim`).
    fn has_half_the_reserves(&self, node: NodeId) -> bool {
        let by_node = self.flows.kswapd.failures_max;
        if by_node.is_some_and(|max| self.nodes[node.index()].kswapd_failures >= max) {
            return true;
        }
        let (mut reserve, mut free) = (0, 0);
        for id in self.zones_of(node, ZoneKind::Normal) {
            let zone = &self.memory.zones[id.index()];
            if self.memory.zone_reclaimable_pages(id) == 0 {
                continue;
            }
            reserve += zone.watermarks.pages(Mark::Min);
            free += zone.nr_free_pages;
        }
        reserve == 0 || free > reserve / 2
    }
}

/// Waits, before a program reclaims, until half of the nearest node's reserves are free. Whether the
/// program was killed meanwhile.
pub(crate) fn throttle_direct_reclaim(cx: &mut KernelCx<'_>, want: Want) -> bool {
    let Some(process) = want.process else { return false };
    if !cx.world().flows.stall.for_reserves {
        return false;
    }
    let node = want.request.node;
    if cx.world().has_half_the_reserves(node) {
        return false;
    }
    cx.world().memory.vm.add(Vm::PgScanDirectThrottle, 1);
    let began = cx.now();
    let queue = cx.world().nodes[node.index()].pfmemalloc_wait;
    let kswapd = cx.world().nodes[node.index()].kswapd_wait;
    while !cx.world().has_half_the_reserves(node) && !cx.world().process(process).killed {
        if cx.nr_waiting(kswapd) > 0 {
            // Whatever else it is asked for, the zones that the reserves are in have to be balanced.
            let asked = &mut cx.world().nodes[node.index()].kswapd_highest_zoneidx;
            *asked = Some(asked.map_or(ZoneKind::Normal, |other| other.min(ZoneKind::Normal)));
            cx.wake_one(kswapd);
        }
        if want.request.gfp.contains(Gfp::FS) {
            cx.wait(queue);
        } else {
            cx.wait_timeout(queue, Ns::from_secs(1));
            break;
        }
    }
    let took = cx.now() - began;
    (cx.world().on_stall)(Stall::PfmemallocThrottle, took);
    cx.world().process(process).killed
}

/// Wakes those who wait for reserves, if there are enough of them now, or in any case: as when kswapd goes to sleep.
pub(crate) fn wake_pfmemalloc(cx: &mut KernelCx<'_>, node: NodeId, in_any_case: bool) {
    let queue = cx.world().nodes[node.index()].pfmemalloc_wait;
    if cx.nr_waiting(queue) > 0 && (in_any_case || cx.world().has_half_the_reserves(node)) {
        cx.wake_all(queue);
    }
}

/// Waits for a reason, but not long.
pub(crate) fn reclaim_throttle(cx: &mut KernelCx<'_>, node: NodeId, reason: Reason) {
    let state = &cx.world().nodes[node.index()];
    let [writeback, progress] = [state.writeback_wait, state.progress_wait];
    let (queue, timeout) = match reason {
        Reason::Writeback => {
            if cx.nr_waiting(writeback) == 0 {
                cx.world().nodes[node.index()].throttled_written = 0;
            }
            (Some(writeback), TENTH)
        }
        Reason::NoProgress => {
            if cx.world().skips_throttle(node) {
                cx.cond_resched();
                return;
            }
            (Some(progress), JIFFY)
        }
        // Nobody in the model ends this wait.
        Reason::Isolated => (None, FIFTIETH),
    };
    let began = cx.now();
    match queue {
        Some(queue) => {
            cx.wait_timeout(queue, timeout);
        }
        None => cx.sleep(timeout),
    }
    let took = cx.now() - began;
    (cx.world().on_stall)(Stall::ReclaimThrottle, took);
}

impl Kernel {
    /// Whether waiting for progress would be in vain, or is not needed: little is to be written, or being written
    /// (`skip_throttle_noprogress`).
    fn skips_throttle(&self, node: NodeId) -> bool {
        let max = self.flows.kswapd.failures_max;
        if max.is_some_and(|max| self.nodes[node.index()].kswapd_failures >= max) {
            return true;
        }
        let lruvecs = self.lruvecs_of(node, ZoneKind::Movable);
        let reclaimable: u64 = lruvecs.iter().map(|&l| self.memory.reclaimable_pages(l)).sum();
        let stats = lruvecs.iter().map(|&l| &self.memory.lru.lruvecs[l].stats);
        let pending: u64 = stats.map(|stats| stats.nr_dirty + stats.nr_writeback).sum();
        2 * pending <= reclaimable
    }
}

/// After a look through a node's lists: those who wait for progress go on if there was some; who made
/// none at nearly the last priority waits.
pub(crate) fn consider_reclaim_throttle(cx: &mut KernelCx<'_>, node: NodeId, scan: &Scan) {
    if scan.nr_reclaimed > scan.nr_scanned >> 3 {
        let queue = cx.world().nodes[node.index()].progress_wait;
        cx.wake_all(queue);
        return;
    }
    if !scan.is_kswapd() && scan.control.priority == 1 && scan.nr_reclaimed == 0 {
        reclaim_throttle(cx, node, Reason::NoProgress);
    }
}

/// Pages of a node were written: enough of them for each who waits, and all go on
/// (`__acct_reclaim_writeback`).
pub(crate) fn note_written(kernel: &mut Kernel, waker: &mut Waker<'_>, node: NodeId, pages: u64) {
    if kernel.flows.stall.rule != StallRule::Throttle {
        return;
    }
    let state = &mut kernel.nodes[node.index()];
    state.throttled_written += pages;
    let waiting = waker.nr_waiting(state.writeback_wait) as u64;
    if waiting > 0 && state.throttled_written > SWAP_CLUSTER_MAX * waiting {
        waker.wake_all(state.writeback_wait);
    }
}
