//! kswapd: frees pages of its node before requests have to.
//!
//! Models: `kswapd`, `kswapd_try_to_sleep`, `balance_pgdat`, `kswapd_shrink_zone`, `wakeup_kswapd`,
//! mm/vmscan.c, v4.4 and v6.12; as it balanced before 3.11 is in `kswapd_by_cluster.rs`.
//! Departs: where kswapd of 6.12 has looked at files alone and reclaimed nothing at all, it does not begin once more with
//! anonymous pages (`cache_trim_mode_failed`). Visible as: classic lists only; a run in vain more.

use super::kswapd_by_cluster::balance_by_cluster;
use super::policy::{Balanced, FragmentStall, HighOrder, KcompactdWake, Rounds, WokenBelow};
use super::shrink::{Scan, WRITES_BELOW, age_active_anon, initial_priority, shrink_lruvec};
use super::trace::{self, ReclaimEvent};
use super::{Kernel, KernelCx, TENTH, compaction, slab, throttle};
use crate::task::{Mode, Wakeup};
use highorder_mm::compaction::CompactResult;
use highorder_mm::compaction::suitable::compact_gap;
use highorder_mm::gfp::{AllocFlags, Gfp};
use highorder_mm::policy::{BoostWakes, LruKind, LruScope};
use highorder_mm::reclaim::{DEF_PRIORITY, Reclaimer, SWAP_CLUSTER_MAX};
use highorder_mm::types::NodeId;
use highorder_mm::vmstat::Vm;
use highorder_mm::watermark::Mark;
use highorder_mm::zone::{Zone, ZoneId};
use highorder_mm::{Order, ZoneKind};

/// Asks a node's kswapd for blocks of `order` in the zones that a request with these flags can use; or
/// kcompactd, where it is not reclaim that is missing.
pub(crate) fn wakeup_kswapd(cx: &mut KernelCx<'_>, node: NodeId, order: Order, gfp: Gfp) {
    wakeup_kswapd_for(cx, node, order, gfp, gfp.highest_zone());
}

/// Tells the kswapd of each zone whose marks a fallback has boosted, as far as whoever asked for a page does so.
pub(crate) fn wakeup_for_boosts(cx: &mut KernelCx<'_>, is_served: bool) {
    let wakes = cx.world().memory.policy.watermark.boost_wakes;
    if wakes == BoostWakes::AfterAllocation && !is_served {
        return;
    }
    while let Some(id) = cx.world().memory.take_boosted_zone() {
        let Zone { node, kind, .. } = cx.world().memory.zones[id.index()];
        wakeup_kswapd_for(cx, node, Order(0), Gfp::NONE, kind);
    }
}

fn wakeup_kswapd_for(
    cx: &mut KernelCx<'_>,
    node: NodeId,
    order: Order,
    gfp: Gfp,
    highest_zoneidx: ZoneKind,
) {
    let kernel = cx.world();
    let by_zones = kernel.flows.kswapd.from_highest_unbalanced;
    let state = &mut kernel.nodes[node.index()];
    let (queue, failures) = (state.kswapd_wait, state.kswapd_failures);
    if by_zones {
        // The lowest class of the largest order asked for.
        if order > state.kswapd_order {
            state.kswapd_order = order;
            state.kswapd_highest_zoneidx = Some(
                state
                    .kswapd_highest_zoneidx
                    .map_or(highest_zoneidx, |other| other.min(highest_zoneidx)),
            );
        }
    } else {
        state.kswapd_order = state.kswapd_order.max(order);
        let other = state.kswapd_highest_zoneidx;
        state.kswapd_highest_zoneidx =
            Some(other.map_or(highest_zoneidx, |other| other.max(highest_zoneidx)));
    }
    if cx.nr_waiting(queue) == 0 {
        return;
    }
    let kernel = cx.world();
    let needed = if by_zones {
        let mark = match kernel.flows.kswapd.woken_below {
            WokenBelow::Low => Mark::Low,
            WokenBelow::High => Mark::High,
        };
        kernel
            .zones_of(node, highest_zoneidx)
            .any(|id| !kernel.is_above(id, order, mark, ZoneKind::Dma))
    } else {
        let hopeless = kernel.flows.kswapd.failures_max.is_some_and(|max| failures >= max);
        let balanced = kernel.is_balanced(node, order, highest_zoneidx)
            && !kernel.is_boosted(node, highest_zoneidx);
        !hopeless && !balanced
    };
    if needed {
        note_wakeup(cx, node, order, highest_zoneidx);
        cx.wake_one(queue);
    } else if !by_zones && !gfp.contains(Gfp::DIRECT_RECLAIM) {
        // Nobody else would compact for it.
        compaction::wakeup_kcompactd(cx, node, order, highest_zoneidx);
    }
}

/// Tells that kswapd is woken for a node's highest zone that the request can use.
fn note_wakeup(cx: &mut KernelCx<'_>, node: NodeId, order: Order, highest_zoneidx: ZoneKind) {
    let kernel = cx.world();
    if let Some(id) = kernel.zones_of(node, highest_zoneidx).last() {
        let zone = kernel.memory.zones[id.index()].kind;
        trace::note_reclaim(cx, ReclaimEvent::WakeupKswapd { node, zone, order });
    }
}

/// The kernel thread of a node. Never returns.
///
/// A run begins long after boot: it sleeps for good, not the doze that comes before.
pub(crate) fn kswapd(cx: &mut KernelCx<'_>, node: NodeId) {
    let queue = cx.world().nodes[node.index()].kswapd_wait;
    cx.wait(queue);
    if cx.world().flows.kswapd.from_highest_unbalanced {
        kswapd_by_zones(cx, node)
    } else {
        kswapd_by_node(cx, node)
    }
}

/// Something that kswapd is asked for: blocks of an order, in the zones up to one.
#[derive(Clone, Copy)]
struct Wish {
    order: Order,
    highest_zoneidx: ZoneKind,
}

impl Wish {
    /// What the node's kswapd was asked for last, or single pages in the zones up to `otherwise`.
    fn of(cx: &mut KernelCx<'_>, node: NodeId, otherwise: ZoneKind) -> Self {
        let state = &cx.world().nodes[node.index()];
        Self {
            order: state.kswapd_order,
            highest_zoneidx: state.kswapd_highest_zoneidx.unwrap_or(otherwise),
        }
    }

    /// The same, which is forgotten.
    fn take(cx: &mut KernelCx<'_>, node: NodeId, otherwise: ZoneKind) -> Self {
        let wish = Self::of(cx, node, otherwise);
        let state = &mut cx.world().nodes[node.index()];
        (state.kswapd_order, state.kswapd_highest_zoneidx) = (Order(0), None);
        wish
    }

    /// Whether it is harder to fulfil than another: a larger order, or fewer zones to have it in.
    fn is_more_than(self, other: Self) -> bool {
        self.order > other.order || self.highest_zoneidx < other.highest_zoneidx
    }
}

/// As it is since LRU lists belong to nodes.
///
/// Kswapd sleeps on what it is asked for as long as that is there; woken, it takes the request and works for it.
/// When that came to less than was wanted, less was all that could be had: it sleeps on that, whoever still asks
/// for more. The zones of the last request are those of one that names none.
fn kswapd_by_node(cx: &mut KernelCx<'_>, node: NodeId) -> ! {
    let mut wish = Wish::of(cx, node, ZoneKind::Movable);
    let mut fell_to = None;
    loop {
        try_to_sleep(cx, node, wish.order, fell_to.unwrap_or(wish.order), wish.highest_zoneidx);
        wish = Wish::take(cx, node, wish.highest_zoneidx);
        let (balanced, _) = balance_pgdat(cx, node, wish.order, wish.highest_zoneidx);
        fell_to = (balanced < wish.order).then_some(balanced);
        if fell_to.is_none() {
            wish = Wish::of(cx, node, wish.highest_zoneidx);
        }
    }
}

/// As it was while LRU lists belonged to zones.
///
/// A request that is harder than the work done last is begun at once; any other may be slept on. The next one is
/// looked at only when the last is fulfilled, to its order and in all its zones; at any time where kcompactd makes the
/// blocks.
fn kswapd_by_zones(cx: &mut KernelCx<'_>, node: NodeId) -> ! {
    let zones: Vec<ZoneId> = cx.world().zones_of(node, ZoneKind::Movable).collect();
    let top = zones.last().map_or(ZoneKind::Dma, |id| cx.world().memory.zones[id.index()].kind);
    let take = |cx: &mut KernelCx<'_>| {
        let wish = Wish::take(cx, node, top);
        Wish { highest_zoneidx: wish.highest_zoneidx.min(top), ..wish }
    };
    let nothing = Wish { order: Order(0), highest_zoneidx: top };
    let (mut work, mut done, mut asked) = (nothing, nothing, nothing);
    let leaves_blocks = cx.world().flows.kswapd.high_order == HighOrder::SinglePages;
    loop {
        let is_done = done.order == asked.order && done.highest_zoneidx >= asked.highest_zoneidx;
        if leaves_blocks || is_done {
            asked = take(cx);
        }
        if !asked.is_more_than(work) {
            try_to_sleep(cx, node, work.order, done.order, done.highest_zoneidx);
            asked = take(cx);
        }
        work = asked;
        (done.order, done.highest_zoneidx) =
            balance_pgdat(cx, node, work.order, work.highest_zoneidx);
    }
}

/// Sleeps if there is nothing to do: shortly at first, and then until woken.
#[doc(alias = "kswapd_try_to_sleep")]
fn try_to_sleep(
    cx: &mut KernelCx<'_>,
    node: NodeId,
    wanted: Order,
    balanced_order: Order,
    highest_zoneidx: ZoneKind,
) {
    let queue = cx.world().nodes[node.index()].kswapd_wait;
    let mut woken = Wakeup::TimedOut;
    if prepare_sleep(cx, node, balanced_order, highest_zoneidx) {
        if cx.world().flows.compactors.kcompactd == KcompactdWake::BeforeDoze {
            hand_over(cx, node, wanted, highest_zoneidx);
        }
        woken = cx.wait_timeout(queue, TENTH);
        let kernel = cx.world();
        if woken == Wakeup::Woken && kernel.memory.policy.lru.scope == LruScope::Node {
            // What it slept on is asked for still, not what it gave up (since 4.8).
            let state = &mut kernel.nodes[node.index()];
            state.kswapd_order = state.kswapd_order.max(balanced_order);
        }
    }
    if woken == Wakeup::TimedOut && prepare_sleep(cx, node, balanced_order, highest_zoneidx) {
        if cx.world().flows.compactors.kcompactd != KcompactdWake::BeforeDoze {
            hand_over(cx, node, wanted, highest_zoneidx);
        }
        trace::note_reclaim(cx, ReclaimEvent::KswapdSleep { node });
        cx.wait(queue);
        return;
    }
    let event = match woken {
        Wakeup::Woken => Vm::KswapdLowWmarkHitQuickly,
        Wakeup::TimedOut => Vm::KswapdHighWmarkHitQuickly,
    };
    cx.world().memory.vm.add(event, 1);
}

/// Leaves the rest to compaction: what it knows of pageblocks may be out of date, and kcompactd has what
/// was asked for.
fn hand_over(cx: &mut KernelCx<'_>, node: NodeId, wanted: Order, highest_zoneidx: ZoneKind) {
    let zones: Vec<ZoneId> = cx.world().zones_of(node, ZoneKind::Movable).collect();
    for id in zones {
        cx.world().memory.reset_isolation_hints(id);
    }
    compaction::wakeup_kcompactd(cx, node, wanted, highest_zoneidx);
}

/// Whether kswapd may sleep; those who wait for reserves need not any more.
fn prepare_sleep(
    cx: &mut KernelCx<'_>,
    node: NodeId,
    order: Order,
    highest_zoneidx: ZoneKind,
) -> bool {
    throttle::wake_pfmemalloc(cx, node, true);
    let kernel = cx.world();
    let failures = kernel.nodes[node.index()].kswapd_failures;
    kernel.flows.kswapd.failures_max.is_some_and(|max| failures >= max)
        || kernel.is_balanced(node, order, highest_zoneidx)
}

/// Reclaims until the node is balanced, or nothing more can be done. Returns the order it is balanced
/// for, and up to which zone.
fn balance_pgdat(
    cx: &mut KernelCx<'_>,
    node: NodeId,
    order: Order,
    highest_zoneidx: ZoneKind,
) -> (Order, ZoneKind) {
    cx.world().memory.vm.add(Vm::PageOutRun, 1);
    trace::note_reclaim(cx, ReclaimEvent::KswapdWake { node, order });
    let policy = cx.world().flows.kswapd;
    if policy.from_highest_unbalanced && policy.rounds == Rounds::ByCluster {
        balance_by_cluster(cx, node, order, highest_zoneidx)
    } else if policy.from_highest_unbalanced {
        balance_zones(cx, node, order, highest_zoneidx)
    } else {
        (balance_node(cx, node, order, highest_zoneidx), highest_zoneidx)
    }
}

/// What marks of a node's zones were raised by when kswapd began, which it pays back by reclaiming as much.
struct Boost {
    /// The zones, each with its boost at that time.
    of: Vec<(ZoneId, u64)>,
    /// Pages still to be reclaimed for it.
    owed: u64,
}

impl Boost {
    fn of(kernel: &Kernel, zones: &[ZoneId]) -> Self {
        let boost = |id: &ZoneId| (*id, kernel.memory.zones[id.index()].watermarks.boost);
        let of: Vec<(ZoneId, u64)> = zones.iter().map(boost).collect();
        let owed = of.iter().map(|(_, boost)| boost).sum();
        Self { of, owed }
    }

    /// Whether any mark was raised.
    fn is_any(&self) -> bool {
        self.of.iter().any(|(_, boost)| *boost > 0)
    }

    const fn is_owed(&self) -> bool {
        self.owed > 0
    }

    const fn forget(&mut self) {
        self.owed = 0;
    }

    const fn pay(&mut self, reclaimed: u64) {
        self.owed = self.owed.saturating_sub(reclaimed);
    }

    /// Lowers the marks by what they were raised at the beginning; what came meanwhile stays.
    fn lower(&self, kernel: &mut Kernel) {
        for (id, boost) in &self.of {
            let watermarks = &mut kernel.memory.zones[id.index()].watermarks;
            watermarks.boost = watermarks.boost.saturating_sub(*boost);
        }
    }
}

/// As it is since LRU lists belong to nodes: rounds over all lists of the node.
///
/// - It ends well once some zone that the waker may use is balanced and the boost it began with is paid.
/// - While it owes for a boost alone it neither writes nor swaps. A node that falls below its marks meanwhile comes
///   first: the boost is forgotten, and pressure begins anew.
/// - With generations, pressure begins as high as what is asked for needs.
/// - Pressure rises after a round that looked at fewer pages than the high marks ask for, and after one that reclaimed
///   nothing; a boost never raises it to where pages are written. A boost for which a round reclaims nothing is given up.
/// - A run that reclaims nothing at all and does not end well counts as one in vain.
/// - Once a round has reclaimed enough for compaction to work with, the order that was wanted is no longer looked at.
fn balance_node(
    cx: &mut KernelCx<'_>,
    node: NodeId,
    order: Order,
    highest_zoneidx: ZoneKind,
) -> Order {
    let mut scan = Scan::new(cx.world(), Reclaimer::Kswapd, order, highest_zoneidx, Gfp::KERNEL);
    let zones: Vec<ZoneId> = cx.world().zones_of(node, highest_zoneidx).collect();
    let mut boost = Boost::of(cx.world(), &zones);
    set_reclaim_active(cx.world(), &zones, true);
    let ends_well = reclaim_in_rounds(cx, node, &zones, &mut boost, &mut scan);
    let kernel = cx.world();
    if !ends_well && scan.nr_reclaimed == 0 {
        kernel.nodes[node.index()].kswapd_failures += 1;
    }
    set_reclaim_active(kernel, &zones, false);
    boost.lower(kernel);
    if boost.is_any() {
        // What mixed the pageblocks is to be moved together again.
        let order = kernel.memory.policy.freelist.pageblock_order;
        compaction::wakeup_kcompactd(cx, node, order, highest_zoneidx);
    }
    scan.order
}

/// The rounds of [`balance_node`]; whether they end well.
fn reclaim_in_rounds(
    cx: &mut KernelCx<'_>,
    node: NodeId,
    zones: &[ZoneId],
    boost: &mut Boost,
    scan: &mut Scan,
) -> bool {
    let mut priority = DEF_PRIORITY;
    while priority >= 1 {
        match (
            cx.world().is_balanced(node, scan.order, scan.control.highest_zoneidx),
            boost.is_owed(),
        ) {
            (true, false) => return true,
            (false, true) => {
                boost.forget();
                priority = DEF_PRIORITY;
                continue;
            }
            _ => {}
        }
        if priority == DEF_PRIORITY && !boost.is_owed() {
            let kernel = cx.world();
            priority = initial_priority(kernel, node, kernel.high_marks(zones));
        }
        let reclaimed = round_of_node(cx, node, zones, boost.is_owed(), priority, scan);
        let may_rise = !boost.is_owed() || priority != WRITES_BELOW;
        let wants_more = may_rise && scan.nr_scanned < scan.control.nr_to_reclaim;
        // Whoever waits to mix a pageblock waits no longer, where this was so posted.
        let is_easy = boost.is_owed()
            && !wants_more
            && cx.world().flows.stall.fragment == FragmentStall::FiftiethThenAll;
        throttle::wake_pfmemalloc(cx, node, is_easy);
        // As it asks whether it is to freeze.
        cx.cond_resched();
        boost.pay(reclaimed);
        if boost.is_owed() && reclaimed == 0 {
            return false;
        }
        if wants_more || reclaimed == 0 {
            priority -= 1;
        }
    }
    false
}

/// A round over a node's lists at a priority; what it reclaimed.
fn round_of_node(
    cx: &mut KernelCx<'_>,
    node: NodeId,
    zones: &[ZoneId],
    is_for_boost: bool,
    priority: u8,
    scan: &mut Scan,
) -> u64 {
    scan.control.priority = priority;
    scan.control.may_writepage = !is_for_boost;
    scan.control.may_swap = !is_for_boost;
    scan.spares_slab = is_for_boost && !cx.world().flows.kswapd.boosted_shrinks_slab;
    scan.control.nr_to_reclaim = cx.world().high_marks(zones);
    scan.nr_scanned = 0;
    let before = scan.nr_reclaimed;
    let all = cx.world().lruvecs_of(node, scan.control.highest_zoneidx);
    if cx.world().memory.policy.lru.kind == LruKind::Classic {
        for &lruvec in &all {
            age_active_anon(cx, lruvec, scan);
        }
    }
    for lruvec in all {
        shrink_lruvec(cx, lruvec, scan);
        cx.world().memory.snapshot_refaults(lruvec);
    }
    forget_order(scan);
    scan.nr_reclaimed - before
}

/// Whoever has reclaimed enough for compaction goes on for single pages: in all rounds together since 4.12, where no round
/// sets what was reclaimed back to nothing.
#[doc(alias = "kswapd_shrink_node")]
fn forget_order(scan: &mut Scan) {
    if scan.order > Order(0) && scan.nr_reclaimed >= compact_gap(scan.order) {
        scan.order = Order(0);
    }
}

/// As it was while LRU lists belonged to zones, from 3.11 on: rounds over the node's zones.
///
/// - A round begins with the highest zone that is not balanced for single pages of its own; those above are aged alone.
///   Where there is none, all is done.
/// - From below, each zone up to that one is reclaimed from, but for those that can give nothing: they are asked at the
///   lowest pressure alone.
/// - Pressure rises unless some zone was looked at as far as its high mark asks, and after a round that reclaimed nothing.
/// - It ends once the node is balanced for what was wanted.
///
/// Returns the order that is still wanted, and the highest zone of the last round.
fn balance_zones(
    cx: &mut KernelCx<'_>,
    node: NodeId,
    order: Order,
    highest_zoneidx: ZoneKind,
) -> (Order, ZoneKind) {
    let mut scan = Scan::new(cx.world(), Reclaimer::Kswapd, order, highest_zoneidx, Gfp::KERNEL);
    let zones: Vec<ZoneId> = cx.world().zones_of(node, ZoneKind::Movable).collect();
    let mut worked_up_to = ZoneKind::Dma;
    let mut priority = DEF_PRIORITY;
    while priority >= 1 {
        scan.control.priority = priority;
        scan.nr_reclaimed = 0;
        // Each look at a zone takes its lock (`get_scan_count`), whatever it finds.
        let looks = cx.world().costs.lock_pair.times(zones.len() as u64);
        cx.spend(looks, Mode::System);
        let Some(highest) = highest_unbalanced(cx, &zones, &mut scan) else { break };
        worked_up_to = highest;
        scan.control.may_writepage |= priority < WRITES_BELOW;
        let wants_more = !round_of_zones(cx, &zones, highest, &mut scan);
        throttle::wake_pfmemalloc(cx, node, false);
        cx.cond_resched();
        let reclaimed = scan.nr_reclaimed;
        if cx.world().flows.kswapd.high_order != HighOrder::SinglePages {
            forget_order(&mut scan);
        }
        if wants_more || reclaimed == 0 {
            priority -= 1;
        }
        if cx.world().is_balanced(node, scan.order, highest_zoneidx) {
            break;
        }
    }
    (scan.order, worked_up_to)
}

/// Ages zones from the highest down to the first that is not balanced, which it returns; those that are balanced are
/// no longer congested.
fn highest_unbalanced(
    cx: &mut KernelCx<'_>,
    zones: &[ZoneId],
    scan: &mut Scan,
) -> Option<ZoneKind> {
    for &id in zones.iter().rev() {
        let lruvec = cx.world().memory.lru.of_zone(id);
        if !is_worth_a_look(cx.world(), id, scan) {
            continue;
        }
        age_active_anon(cx, lruvec, scan);
        let kernel = cx.world();
        if !kernel.zone_suffices(id, scan.order, 0, ZoneKind::Dma) {
            return Some(kernel.memory.zones[id.index()].kind);
        }
        let flags = &mut kernel.lru_flags[lruvec.index()];
        (flags.congested, flags.dirty) = (false, false);
    }
    None
}

/// Reclaims from the zones up to the highest one, from below. Whether any needs no more pressure.
fn round_of_zones(
    cx: &mut KernelCx<'_>,
    zones: &[ZoneId],
    highest: ZoneKind,
    scan: &mut Scan,
) -> bool {
    let mut is_enough = false;
    for &id in zones {
        let kernel = cx.world();
        let is_above = kernel.memory.zones[id.index()].kind > highest;
        if !is_above && is_worth_a_look(kernel, id, scan) {
            is_enough |= shrink_zone(cx, id, highest, scan);
        }
    }
    is_enough
}

/// Whether a zone can give pages; at the lowest pressure nobody asks.
fn is_worth_a_look(kernel: &Kernel, id: ZoneId, scan: &Scan) -> bool {
    let lruvec = kernel.memory.lru.of_zone(id);
    scan.control.priority == DEF_PRIORITY || kernel.is_reclaimable(lruvec)
}

/// Reclaims from a zone unless it is balanced with a margin. Whether no more pressure is needed: it was,
/// or as many pages were looked at as were wanted.
#[doc(alias = "kswapd_shrink_zone")]
fn shrink_zone(
    cx: &mut KernelCx<'_>,
    id: ZoneId,
    highest_zoneidx: ZoneKind,
    scan: &mut Scan,
) -> bool {
    let kernel = cx.world();
    let gap = kernel.balance_gap(id);
    let lruvec = kernel.memory.lru.of_zone(id);
    scan.control.nr_to_reclaim = kernel.high_marks(&[id]);
    scan.nr_scanned = 0;
    let test_order = kernel.test_order(id, scan.order, highest_zoneidx);
    if kernel.zone_suffices(id, test_order, gap, highest_zoneidx) {
        return true;
    }
    shrink_lruvec(cx, lruvec, scan);
    slab::after_zone(cx, id, highest_zoneidx, scan, 0);
    let kernel = cx.world();
    let test_order = kernel.test_order(id, scan.order, highest_zoneidx);
    let balanced =
        kernel.is_reclaimable(lruvec) && kernel.zone_suffices(id, test_order, 0, highest_zoneidx);
    let flags = &mut kernel.lru_flags[lruvec.index()];
    flags.writeback = false;
    if balanced {
        (flags.congested, flags.dirty) = (false, false);
    }
    scan.nr_scanned >= scan.control.nr_to_reclaim
}

fn set_reclaim_active(kernel: &mut Kernel, zones: &[ZoneId], active: bool) {
    for id in zones {
        kernel.memory.zones[id.index()].flags.reclaim_active = active;
    }
}

impl Kernel {
    /// Pages that kswapd wants of some zones at once.
    fn high_marks(&self, zones: &[ZoneId]) -> u64 {
        let high = |id: &ZoneId| self.memory.zones[id.index()].watermarks.pages(Mark::High);
        zones.iter().map(|id| high(id).max(SWAP_CLUSTER_MAX)).sum()
    }

    /// The order that a zone is reclaimed for: single pages, once compaction could do the rest.
    pub(crate) fn test_order(&self, id: ZoneId, order: Order, highest_zoneidx: ZoneKind) -> Order {
        if order == Order(0) || self.flows.kswapd.high_order != HighOrder::BlockOrCompactable {
            return order;
        }
        let flags = AllocFlags::NONE;
        match self.memory.compaction_suitable(id, order, Mark::Low, flags, highest_zoneidx) {
            CompactResult::Skipped | CompactResult::NotSuitableZone => order,
            _ => Order(0),
        }
    }

    /// Whether a zone is above a mark.
    pub(crate) fn is_above(
        &self,
        id: ZoneId,
        order: Order,
        mark: Mark,
        highest_zoneidx: ZoneKind,
    ) -> bool {
        let pages = self.memory.zones[id.index()].watermarks.pages(mark);
        self.memory.watermark_ok(id, order, pages, highest_zoneidx, AllocFlags::NONE)
    }

    /// Whether a zone is above its high mark by `gap` pages.
    pub(crate) fn zone_balanced(
        &self,
        id: ZoneId,
        order: Order,
        gap: u64,
        highest_zoneidx: ZoneKind,
    ) -> bool {
        let high = self.memory.zones[id.index()].watermarks.pages(Mark::High);
        self.memory.watermark_ok(id, order, high + gap, highest_zoneidx, AllocFlags::NONE)
    }

    /// The same for kswapd at work, which on some kernels leaves making a block of that order to kcompactd.
    fn zone_suffices(&self, id: ZoneId, order: Order, gap: u64, highest_zoneidx: ZoneKind) -> bool {
        match self.flows.kswapd.high_order {
            HighOrder::SinglePages => {
                let gap = gap + u64::from(order.pages());
                self.zone_balanced(id, Order(0), gap, highest_zoneidx)
            }
            HighOrder::Block | HighOrder::BlockOrCompactable => {
                self.zone_balanced(id, order, gap, highest_zoneidx)
            }
        }
    }

    /// Whether a node's zones up to `highest_zoneidx` need nothing of kswapd (`pgdat_balanced`).
    #[doc(alias = "pgdat_balanced")]
    pub(crate) fn is_balanced(
        &self,
        node: NodeId,
        order: Order,
        highest_zoneidx: ZoneKind,
    ) -> bool {
        let mut zones = self.zones_of(node, highest_zoneidx);
        if self.flows.kswapd.balanced == Balanced::AnyZone {
            return zones.any(|id| self.zone_balanced(id, order, 0, highest_zoneidx));
        }
        let (mut managed, mut balanced_pages) = (0, 0);
        for id in zones {
            let pages = self.memory.zones[id.index()].managed_pages;
            managed += pages;
            // A zone without hope counts as balanced, or kswapd would never sleep.
            let hopeless = self.is_given_up(self.memory.lru.of_zone(id));
            let own = self.memory.zones[id.index()].kind;
            if hopeless || self.zone_suffices(id, order, 0, own) {
                balanced_pages += pages;
            } else if order == Order(0) {
                return false;
            }
        }
        order == Order(0) || balanced_pages >= managed / 4
    }

    /// Whether some zone's marks are boosted.
    fn is_boosted(&self, node: NodeId, highest_zoneidx: ZoneKind) -> bool {
        self.zones_of(node, highest_zoneidx)
            .any(|id| self.memory.zones[id.index()].watermarks.boost > 0)
    }
}
