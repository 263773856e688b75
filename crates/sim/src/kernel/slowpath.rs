//! A page for a request: the fast path, and what follows when that finds none.
//!
//! Models: `__alloc_pages`, `__alloc_pages_slowpath`, `should_reclaim_retry`, `wake_all_kswapds`,
//! mm/page_alloc.c, v4.4 and v6.12; `should_alloc_retry`, `__alloc_pages_may_oom`, v3.3.
//! Departs: on 3.x a request that reclaimed nothing and goes on in hope wakes kswapd again, where the kernel waits
//! for another request to do so: other programs run on every real machine. Visible as: kswapd's runs where one
//! program has filled all memory.

use super::compaction::{Priority, direct_compact, should_retry};
use super::kswapd::{wakeup_for_boosts, wakeup_kswapd};
use super::policy::{CostlyExit, DirectCompaction, FragmentStall, Retry, ThisnodeExit};
use super::work::spend_work;
use super::{
    KernelCx, Stall, TENTH, compaction, direct, fragment_stall, node_reclaim, oom, throttle, trace,
};
use crate::task::Mode;
use highorder_mm::alloc::Request;
use highorder_mm::compaction::CompactResult;
use highorder_mm::gfp::{AllocFlags, Gfp};
use highorder_mm::reclaim::DEF_PRIORITY;
use highorder_mm::vma::ProcessId;
use highorder_mm::watermark::Mark;
use highorder_mm::{Order, Pfn, ZoneKind};
use highorder_words::Ns;

pub use highorder_mm::types::COSTLY_ORDER;

/// Rounds without progress after which a request gives up (`MAX_RECLAIM_RETRIES`).
pub(super) const RECLAIM_RETRIES_MAX: u32 = 16;
/// Rounds in vain of a request that goes round for ever and kills nobody, such as one from within a file system (3.x),
/// after which the request of somebody else has done so: of our choice, far more than any that ends well.
const ROUNDS_IN_VAIN_MAX: u32 = 1000;
/// How long a request waits between rounds for devices (`HZ / 50`, v4.4).
const RETRY_WAIT: Ns = Ns(TENTH.0 / 5);

/// A request, where it may be served from, and for whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Want {
    /// The request.
    pub request: Request,
    /// The nodes it may come from, a bit for each. Of a request for its node alone ([`Gfp::THISNODE`]) it is that node's.
    pub allowed: u64,
    /// The process that asks, unless it is a kernel thread.
    pub process: Option<ProcessId>,
}

/// A block for a request, by whatever it takes. `None` if the request may fail, or its process was
/// killed. May suspend for long.
#[doc(alias = "__alloc_pages")]
pub fn alloc_pages(cx: &mut KernelCx<'_>, want: Want) -> Option<Pfn> {
    debug_assert!(
        !want.request.gfp.contains(Gfp::THISNODE) || want.allowed == want.request.node.bit(),
        "a request for its node alone comes from that node alone"
    );
    let flags = cx.world().memory.fast_path_flags(want.request);
    let mut found = get_page(cx, want, Some(Mark::Low), flags);
    if found.is_none() {
        let began = cx.now();
        found = slowpath(cx, want);
        let took = cx.now() - began;
        (cx.world().on_stall)(Stall::Slowpath, took);
    }
    // Filled by who asked for it, before anybody else can go on.
    if let Some(pfn) = found
        && cx.world().memory.inits(want.request.gfp)
    {
        let zone = cx.world().memory.zone_of(pfn);
        spend_work(cx, zone);
    }
    found
}

/// One walk through the zones, without waiting but for `vm.zone_reclaim_mode`. Tells kswapd of boosted marks.
pub(super) fn get_page(
    cx: &mut KernelCx<'_>,
    want: Want,
    mark: Option<Mark>,
    flags: AllocFlags,
) -> Option<Pfn> {
    let found = walk_zones(cx, want, mark, flags);
    note_fallbacks(cx, found.is_some());
    found
}

/// Tells kswapd of the boosts, and whoever traces of the fallbacks, of requests that were served or not.
pub(super) fn note_fallbacks(cx: &mut KernelCx<'_>, is_served: bool) {
    trace::note_extfrag(cx);
    wakeup_for_boosts(cx, is_served);
}

fn walk_zones(
    cx: &mut KernelCx<'_>,
    want: Want,
    mark: Option<Mark>,
    flags: AllocFlags,
) -> Option<Pfn> {
    // Whatever else it may use, the nearest node comes first.
    if let Some(mark) = mark
        && let Some(pfn) = node_reclaim::get_local_page(cx, want, mark, flags)
    {
        return Some(pfn);
    }
    let cpu = cx.cpu();
    let request = Request { cpu, ..want.request };
    cx.world().memory.get_page_from_nodes(request, want.allowed, mark, flags)
}

#[doc(alias = "__alloc_pages_slowpath")]
fn slowpath(cx: &mut KernelCx<'_>, want: Want) -> Option<Pfn> {
    let Request { order, gfp, .. } = want.request;
    let may_reclaim = gfp.contains(Gfp::DIRECT_RECLAIM);
    let policy = cx.world().flows.slowpath;
    let fails_at_once = match policy.thisnode_exit {
        ThisnodeExit::Full => gfp.contains(Gfp::THISNODE | Gfp::NORETRY | Gfp::NOWARN),
        ThisnodeExit::WithoutReclaim => gfp.contains(Gfp::THISNODE) && !may_reclaim,
        ThisnodeExit::Never => false,
    };
    if fails_at_once && (policy.thisnode_exit != ThisnodeExit::Full || is_numa(cx)) {
        return None;
    }
    let flags = AllocFlags::slow_path(gfp, order);
    let (mut no_progress, mut in_vain) = (0, 0);
    // Whether this is a beginning, at which kswapd is woken, and not another attempt.
    let (mut begins, mut reclaimed) = (true, 0);
    let mut compaction = Compacting::new(cx.world().flows.compactors.direct);
    if cx.world().flows.stall.fragment != FragmentStall::Off {
        if gfp.contains(Gfp::KSWAPD_RECLAIM) {
            wake_all_kswapds(cx, want);
        }
        if let Some(pfn) = fragment_stall::get_page_or_wait(cx, want, flags) {
            return Some(pfn);
        }
    }
    loop {
        if gfp.contains(Gfp::KSWAPD_RECLAIM)
            && (policy.retry != Retry::Always || std::mem::take(&mut begins))
        {
            wake_all_kswapds(cx, want);
        }
        if let Some(pfn) = get_page(cx, want, Some(Mark::Min), flags) {
            return Some(pfn);
        }
        if want.process.is_some_and(|process| cx.world().process(process).killed) {
            // The victim may have whatever there is, to come to its end.
            return get_page(cx, want, None, flags | AllocFlags::NO_WATERMARKS);
        }
        if !may_reclaim {
            return None;
        }
        if let Some(found) = compaction.before_reclaim(cx, want, flags) {
            return found;
        }
        let progress = direct::try_to_free_pages(cx, want);
        if progress > 0
            && let Some(pfn) = get_page_after_reclaim(cx, want, flags)
        {
            return Some(pfn);
        }
        let (result, compacted) = compaction.after_reclaim(cx, want, flags);
        if compacted.is_some() {
            return compacted;
        }
        if gfp.contains(Gfp::NORETRY) {
            return compaction.last(cx, want, flags);
        }
        let again = match policy.retry {
            Retry::Always => {
                // Even where there is nothing to scan, each look at a zone takes its lock (`get_scan_count`).
                let kernel = cx.world();
                let nr_zones = kernel.memory.zones_for(want.request.node, gfp).len() as u64;
                let looks = kernel.costs.lock_pair.times(nr_zones * u64::from(DEF_PRIORITY + 1));
                cx.spend(looks, Mode::System);
                reclaimed += progress;
                if progress == 0 && gfp.contains(Gfp::FS) {
                    // Whatever becomes of it, the request begins again.
                    if let Some(pfn) = get_page(cx, want, Some(Mark::High), flags) {
                        return Some(pfn);
                    }
                    let is_low = gfp.highest_zone() < ZoneKind::Normal;
                    if order > COSTLY_ORDER || is_low {
                        return None;
                    }
                    if !gfp.contains(Gfp::THISNODE) && !oom::out_of_memory(cx) {
                        return None;
                    }
                    begins = true;
                    continue;
                }
                in_vain = if progress > 1 { 0 } else { in_vain + 1 };
                if in_vain > ROUNDS_IN_VAIN_MAX && !gfp.contains(Gfp::FS) {
                    oom::kill_or_halt(cx);
                }
                let says_so = gfp.intersects(Gfp::REPEAT | Gfp::RETRY_MAYFAIL);
                if order > COSTLY_ORDER && !(says_so && reclaimed < u64::from(order.pages())) {
                    return compaction.last(cx, want, flags);
                }
                wait_to_retry(cx, want);
                // Hope alone. kswapd, which would end it, may sleep on zones that have been given up and are not
                // any more. A costly request ends without it.
                begins = progress == 1 && order <= COSTLY_ORDER;
                true
            }
            Retry::WhileProgress => {
                reclaimed += progress;
                let says_so = gfp.intersects(Gfp::REPEAT | Gfp::RETRY_MAYFAIL);
                let again = progress > 0 && order <= COSTLY_ORDER
                    || says_so && reclaimed < u64::from(order.pages()) && progress > 0;
                if again {
                    wait_to_retry(cx, want);
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
                    || progress > 0 && compaction.should_retry(cx, want, flags, result)
            }
        };
        if again {
            continue;
        }
        if let Some(pfn) = get_page(cx, want, Some(Mark::High), flags) {
            return Some(pfn);
        }
        let gives_up = order > COSTLY_ORDER
            || gfp.intersects(Gfp::THISNODE | Gfp::RETRY_MAYFAIL)
            || gfp.highest_zone() < ZoneKind::Normal;
        if gives_up {
            return compaction.last(cx, want, flags);
        }
        if gfp.contains(Gfp::FS) {
            if !oom::out_of_memory(cx) {
                return compaction.last(cx, want, flags);
            }
        } else {
            // From within a file system nobody is killed, and the request does not fail either: others have to help.
            in_vain += 1;
            if in_vain > ROUNDS_IN_VAIN_MAX {
                oom::kill_or_halt(cx);
            }
        }
        no_progress = 0;
    }
}

/// How a request has compacted so far.
struct Compacting {
    direct: DirectCompaction,
    priority: Priority,
    is_first: bool,
    /// Rounds after a success that served somebody else.
    retries: u32,
}

impl Compacting {
    const fn new(direct: DirectCompaction) -> Self {
        let priority = match direct {
            DirectCompaction::Priorities => Priority::SyncLight,
            DirectCompaction::AsyncThenSync | DirectCompaction::AsyncUnlessDeferred => {
                Priority::Async
            }
        };
        Self { direct, priority, is_first: true, retries: 0 }
    }

    /// What comes before direct reclaim. `Some` if the request is at its end, with a block or without.
    fn before_reclaim(
        &mut self,
        cx: &mut KernelCx<'_>,
        want: Want,
        flags: AllocFlags,
    ) -> Option<Option<Pfn>> {
        let Request { order, gfp, .. } = want.request;
        if order == Order(0) {
            return None;
        }
        if self.direct == DirectCompaction::Priorities {
            let is_first = std::mem::take(&mut self.is_first);
            let is_costly = order > COSTLY_ORDER;
            if !is_first || !is_costly && gfp.contains(Gfp::MOVABLE) {
                return None;
            }
            let (result, found) = direct_compact(cx, want, flags, Priority::Async);
            if found.is_some() || is_costly && gives_up(cx, want, result) {
                return Some(found);
            }
            if is_costly && gfp.contains(Gfp::NORETRY) {
                self.priority = Priority::Async;
            }
            return None;
        }
        let (result, found) = direct_compact(cx, want, flags, self.priority);
        if found.is_some() {
            return Some(found);
        }
        let wakes = gfp.contains(Gfp::KSWAPD_RECLAIM);
        if self.direct == DirectCompaction::AsyncThenSync {
            self.priority = Priority::SyncLight;
            return (result == CompactResult::Deferred && !wakes).then_some(None);
        }
        // `is_thp_gfp_mask`: faults and khugepaged ask without waking kswapd.
        let huge = Gfp::TRANSHUGE_LIGHT | Gfp::NORETRY;
        let is_thp = gfp.contains(huge) && !wakes;
        let is_task = want.process.is_some();
        let stops =
            result == CompactResult::Deferred || result == CompactResult::Contended && is_task;
        if is_thp && stops {
            return Some(None);
        }
        if !(is_thp && is_task) {
            self.priority = Priority::SyncLight;
        }
        None
    }

    /// What comes after it.
    fn after_reclaim(
        &mut self,
        cx: &mut KernelCx<'_>,
        want: Want,
        flags: AllocFlags,
    ) -> (CompactResult, Option<Pfn>) {
        match self.direct {
            DirectCompaction::Priorities => direct_compact(cx, want, flags, self.priority),
            _ => (CompactResult::Skipped, None),
        }
    }

    fn should_retry(
        &mut self,
        cx: &mut KernelCx<'_>,
        want: Want,
        flags: AllocFlags,
        result: CompactResult,
    ) -> bool {
        should_retry(cx, want, flags, result, &mut self.priority, &mut self.retries)
    }

    /// What old kernels try before they fail.
    fn last(&self, cx: &mut KernelCx<'_>, want: Want, flags: AllocFlags) -> Option<Pfn> {
        match self.direct {
            DirectCompaction::Priorities => None,
            _ => direct_compact(cx, want, flags, self.priority).1,
        }
    }
}

/// Whether a request for a costly order that has compacted in vain fails before it reclaims.
#[doc(alias = "should_alloc_retry")]
fn gives_up(cx: &mut KernelCx<'_>, want: Want, result: CompactResult) -> bool {
    let Request { order, gfp, .. } = want.request;
    let kernel = cx.world();
    let gives_in = gfp.contains(Gfp::NORETRY);
    let is_deferred = result == CompactResult::Deferred;
    let is_skipped =
        matches!(result, CompactResult::NotSuitableZone | CompactResult::Skipped) || is_deferred;
    match kernel.flows.compactors.costly_exit {
        CostlyExit::HugeDeferred => false,
        CostlyExit::Deferred => gives_in && is_deferred,
        CostlyExit::SkippedHuge => {
            let is_huge = order >= kernel.memory.policy.freelist.pageblock_order
                && gfp.contains(Gfp::IO)
                && !gfp.contains(Gfp::RETRY_MAYFAIL);
            is_huge && is_skipped || gives_in && is_deferred
        }
        CostlyExit::Skipped => gives_in && is_skipped,
        CostlyExit::SkippedOrThisnode => gives_in && (is_skipped || gfp.contains(Gfp::THISNODE)),
    }
}

/// Whether there are several nodes, without which one of them is all there is.
fn is_numa(cx: &mut KernelCx<'_>) -> bool {
    cx.world().memory.machine.nr_nodes() > 1
}

/// Waits before another attempt, where the kernel does. Suspends.
fn wait_to_retry(cx: &mut KernelCx<'_>, want: Want) {
    if cx.world().flows.stall.retry_waits {
        throttle::wait_for_preferred_zone(cx, want, RETRY_WAIT);
    }
}

/// Looks again after reclaim: what it freed may be in the reserve, or on other CPUs' lists.
fn get_page_after_reclaim(cx: &mut KernelCx<'_>, want: Want, flags: AllocFlags) -> Option<Pfn> {
    if let Some(pfn) = get_page(cx, want, Some(Mark::Min), flags) {
        return Some(pfn);
    }
    unreserve_highatomic(cx, want, false);
    cx.world().memory.drain_all_pages(None);
    get_page(cx, want, Some(Mark::Min), flags)
}

/// Gives a block of the reserve for atomic requests to those like this one, of the first of its zones that has one.
/// Whether there was any.
#[doc(alias = "unreserve_highatomic_pageblock")]
fn unreserve_highatomic(cx: &mut KernelCx<'_>, want: Want, force: bool) -> bool {
    let zones = compaction::zones(cx, want);
    let memory = &mut cx.world().memory;
    let migratetype = memory.request_type(want.request.gfp);
    zones.into_iter().any(|id| memory.unreserve_highatomic(id, migratetype, force))
}

/// Whether another round could help: some zone would pass the mark if all that is reclaimable were free.
fn should_reclaim_retry(
    cx: &mut KernelCx<'_>,
    want: Want,
    flags: AllocFlags,
    no_progress: u32,
) -> bool {
    let Request { order, gfp, .. } = want.request;
    let highest_zoneidx = gfp.highest_zone();
    if no_progress > RECLAIM_RETRIES_MAX {
        // The reserve is the last thing to try.
        return unreserve_highatomic(cx, want, true);
    }
    let kernel = cx.world();
    let nodes = kernel.memory.nodes_by_distance(want.request.node, want.allowed);
    let hopeful = nodes.into_iter().any(|node| {
        kernel.zones_of(node, highest_zoneidx).any(|id| {
            let zone = &kernel.memory.zones[id.index()];
            let min = zone.watermarks.pages(Mark::Min);
            let available = zone.nr_free_pages + kernel.memory.zone_reclaimable_pages(id);
            kernel.memory.watermark_ok_with(id, order, min, highest_zoneidx, flags, available)
        })
    });
    if hopeful {
        cx.cond_resched();
        return true;
    }
    cx.world().flows.slowpath.unreserves_at_last && unreserve_highatomic(cx, want, true)
}

/// Wakes kswapd of every node that the request could use.
fn wake_all_kswapds(cx: &mut KernelCx<'_>, want: Want) {
    let Request { order, gfp, node, .. } = want.request;
    for node in cx.world().memory.nodes_by_distance(node, want.allowed) {
        wakeup_kswapd(cx, node, order, gfp);
    }
}
