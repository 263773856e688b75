//! kswapd: frees pages of its node before requests have to.
//!
//! Models: `kswapd`, `kswapd_try_to_sleep`, `balance_pgdat`, `kswapd_shrink_zone`, `wakeup_kswapd`,
//! mm/vmscan.c, v4.4 and v6.12; as it balanced before 3.11 is in `kswapd_by_cluster.rs`.

use super::kswapd_by_cluster::balance_by_cluster;
use super::policy::{Balanced, FragmentStall, KcompactdWake, Rounds, WokenBelow};
use super::shrink::{Scan, WRITES_BELOW, age_active_anon, shrink_lruvec};
use super::trace::{self, ReclaimEvent};
use super::{Kernel, KernelCx, TENTH, compaction, slab, throttle};
use crate::task::{Mode, Wakeup};
use highorder_mm::compaction::CompactResult;
use highorder_mm::compaction::suitable::compact_gap;
use highorder_mm::gfp::{AllocFlags, Gfp};
use highorder_mm::policy::BoostWakes;
use highorder_mm::reclaim::{DEF_PRIORITY, Reclaimer, SWAP_CLUSTER_MAX};
use highorder_mm::vmstat::Vm;
use highorder_mm::watermark::Mark;
use highorder_mm::zone::{Zone, ZoneId};
use highorder_mm::{Order, ZoneKind};

/// Asks a node's kswapd for blocks of `order` in the zones that a request with these flags can use; or
/// kcompactd, where it is not reclaim that is missing.
pub(crate) fn wakeup_kswapd(cx: &mut KernelCx<'_>, node: u32, order: Order, gfp: Gfp) {
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

fn wakeup_kswapd_for(cx: &mut KernelCx<'_>, node: u32, order: Order, gfp: Gfp, highest: ZoneKind) {
    let kernel = cx.world();
    let by_zones = kernel.flows.kswapd.from_highest_unbalanced;
    let state = &mut kernel.nodes[node as usize];
    let (queue, failures) = (state.kswapd_wait, state.kswapd_failures);
    if by_zones {
        // The lowest class of the largest order asked for.
        if order > state.kswapd_order {
            state.kswapd_order = order;
            state.kswapd_highest =
                Some(state.kswapd_highest.map_or(highest, |other| other.min(highest)));
        }
    } else {
        state.kswapd_order = state.kswapd_order.max(order);
        let other = state.kswapd_highest;
        state.kswapd_highest = Some(other.map_or(highest, |other| other.max(highest)));
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
        kernel.zones_of(node, highest).any(|id| !kernel.is_above(id, order, mark, ZoneKind::Dma))
    } else {
        let hopeless = kernel.flows.kswapd.failures_max.is_some_and(|max| failures >= max);
        let balanced =
            kernel.is_balanced(node, order, highest) && !kernel.is_boosted(node, highest);
        !hopeless && !balanced
    };
    if needed {
        note_wakeup(cx, node, order, highest);
        cx.wake_one(queue);
    } else if !by_zones && !gfp.contains(Gfp::DIRECT_RECLAIM) {
        // Nobody else would compact for it.
        compaction::wakeup_kcompactd(cx, node, order, highest);
    }
}

/// Tells that kswapd is woken for a node's highest zone that the request can use.
fn note_wakeup(cx: &mut KernelCx<'_>, node: u32, order: Order, highest: ZoneKind) {
    let kernel = cx.world();
    if let Some(id) = kernel.zones_of(node, highest).last() {
        let zone = kernel.memory.zones[id.index()].kind;
        trace::note_reclaim(cx, ReclaimEvent::WakeupKswapd { node, zone, order });
    }
}

/// The kernel thread of a node. Never returns.
///
/// A run begins long after boot: it sleeps for good, not the doze that comes before.
pub(crate) fn kswapd(cx: &mut KernelCx<'_>, node: u32) {
    let queue = cx.world().nodes[node as usize].kswapd_wait;
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
    highest: ZoneKind,
}

impl Wish {
    /// What the node's kswapd was asked for last, or single pages in the zones up to `otherwise`.
    fn of(cx: &mut KernelCx<'_>, node: u32, otherwise: ZoneKind) -> Self {
        let state = &cx.world().nodes[node as usize];
        Self { order: state.kswapd_order, highest: state.kswapd_highest.unwrap_or(otherwise) }
    }

    /// The same, which is forgotten.
    fn take(cx: &mut KernelCx<'_>, node: u32, otherwise: ZoneKind) -> Self {
        let wish = Self::of(cx, node, otherwise);
        let state = &mut cx.world().nodes[node as usize];
        (state.kswapd_order, state.kswapd_highest) = (Order(0), None);
        wish
    }

    /// Whether it is harder to fulfil than another: a larger order, or fewer zones to have it in.
    fn is_more_than(self, other: Self) -> bool {
        self.order > other.order || self.highest < other.highest
    }
}

/// As it is since LRU lists belong to nodes.
///
/// Kswapd sleeps on what it is asked for as long as that is there; woken, it takes the request and works for it.
/// When that came to less than was wanted, less was all that could be had: it sleeps on that, whoever still asks
/// for more. The zones of the last request are those of one that names none.
fn kswapd_by_node(cx: &mut KernelCx<'_>, node: u32) -> ! {
    let mut wish = Wish::of(cx, node, ZoneKind::Movable);
    let mut fell_to = None;
    loop {
        try_to_sleep(cx, node, wish.order, fell_to.unwrap_or(wish.order), wish.highest);
        wish = Wish::take(cx, node, wish.highest);
        let (balanced, _) = balance_pgdat(cx, node, wish.order, wish.highest);
        fell_to = (balanced < wish.order).then_some(balanced);
        if fell_to.is_none() {
            wish = Wish::of(cx, node, wish.highest);
        }
    }
}

/// As it was while LRU lists belonged to zones.
///
/// A request that is harder than the work done last is begun at once; any other may be slept on. The next one is
/// looked at only when the last is fulfilled, to its order and in all its zones.
fn kswapd_by_zones(cx: &mut KernelCx<'_>, node: u32) -> ! {
    let zones: Vec<ZoneId> = cx.world().zones_of(node, ZoneKind::Movable).collect();
    let top = zones.last().map_or(ZoneKind::Dma, |id| cx.world().memory.zones[id.index()].kind);
    let take = |cx: &mut KernelCx<'_>| {
        let wish = Wish::take(cx, node, top);
        Wish { highest: wish.highest.min(top), ..wish }
    };
    let nothing = Wish { order: Order(0), highest: top };
    let (mut work, mut done, mut asked) = (nothing, nothing, nothing);
    loop {
        if done.order == asked.order && done.highest >= asked.highest {
            asked = take(cx);
        }
        if !asked.is_more_than(work) {
            try_to_sleep(cx, node, work.order, done.order, done.highest);
            asked = take(cx);
        }
        work = asked;
        (done.order, done.highest) = balance_pgdat(cx, node, work.order, work.highest);
    }
}

/// Sleeps if there is nothing to do: shortly at first, and then until woken.
#[doc(alias = "kswapd_try_to_sleep")]
fn try_to_sleep(
    cx: &mut KernelCx<'_>,
    node: u32,
    wanted: Order,
    balanced_order: Order,
    highest: ZoneKind,
) {
    let queue = cx.world().nodes[node as usize].kswapd_wait;
    let mut woken = Wakeup::TimedOut;
    if prepare_sleep(cx, node, balanced_order, highest) {
        if cx.world().flows.compaction.kcompactd == KcompactdWake::BeforeDoze {
            hand_over(cx, node, wanted, highest);
        }
        woken = cx.wait_timeout(queue, TENTH);
        if woken == Wakeup::Woken {
            // What it slept on is still asked for.
            let state = &mut cx.world().nodes[node as usize];
            state.kswapd_order = state.kswapd_order.max(wanted);
        }
    }
    if woken == Wakeup::TimedOut && prepare_sleep(cx, node, balanced_order, highest) {
        if cx.world().flows.compaction.kcompactd != KcompactdWake::BeforeDoze {
            hand_over(cx, node, wanted, highest);
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
fn hand_over(cx: &mut KernelCx<'_>, node: u32, wanted: Order, highest: ZoneKind) {
    let zones: Vec<ZoneId> = cx.world().zones_of(node, ZoneKind::Movable).collect();
    for id in zones {
        cx.world().memory.reset_isolation_hints(id);
    }
    compaction::wakeup_kcompactd(cx, node, wanted, highest);
}

/// Whether kswapd may sleep; those who wait for reserves need not any more.
fn prepare_sleep(cx: &mut KernelCx<'_>, node: u32, order: Order, highest: ZoneKind) -> bool {
    throttle::wake_pfmemalloc(cx, node, true);
    let kernel = cx.world();
    let failures = kernel.nodes[node as usize].kswapd_failures;
    kernel.flows.kswapd.failures_max.is_some_and(|max| failures >= max)
        || kernel.is_balanced(node, order, highest)
}

/// Reclaims until the node is balanced, or nothing more can be done. Returns the order it is balanced
/// for, and up to which zone.
fn balance_pgdat(
    cx: &mut KernelCx<'_>,
    node: u32,
    order: Order,
    highest: ZoneKind,
) -> (Order, ZoneKind) {
    cx.world().memory.vm.add(Vm::PageOutRun, 1);
    trace::note_reclaim(cx, ReclaimEvent::KswapdWake { node, order });
    let policy = cx.world().flows.kswapd;
    if policy.from_highest_unbalanced && policy.rounds == Rounds::ByCluster {
        balance_by_cluster(cx, node, order, highest)
    } else if policy.from_highest_unbalanced {
        balance_zones(cx, node, order, highest)
    } else {
        (balance_node(cx, node, order, highest), highest)
    }
}

/// As it is since LRU lists belong to nodes.
fn balance_node(cx: &mut KernelCx<'_>, node: u32, order: Order, highest: ZoneKind) -> Order {
    let mut scan = Scan::new(cx.world(), Reclaimer::Kswapd, order, highest, Gfp::KERNEL);
    let zones: Vec<ZoneId> = cx.world().zones_of(node, highest).collect();
    let boosts: Vec<u64> =
        zones.iter().map(|id| cx.world().memory.zones[id.index()].watermarks.boost).collect();
    let mut boost_left: u64 = boosts.iter().sum();
    let boosted = boost_left > 0;
    set_reclaim_active(cx.world(), &zones, true);
    let mut priority = DEF_PRIORITY;
    let mut is_done = false;
    while priority >= 1 {
        let balanced = cx.world().is_balanced(node, scan.order, highest);
        if !balanced && boost_left > 0 {
            // Real need comes first: begin again without the boost.
            boost_left = 0;
            priority = DEF_PRIORITY;
            continue;
        }
        if boost_left == 0 && balanced {
            is_done = true;
            break;
        }
        let mut raises = !(boost_left > 0 && priority == WRITES_BELOW);
        scan.control.priority = priority;
        scan.control.may_writepage = boost_left == 0;
        scan.control.may_swap = boost_left == 0;
        scan.spares_slab = boost_left > 0 && !cx.world().flows.kswapd.boosted_shrinks_slab;
        let before = scan.nr_reclaimed;
        scan.nr_scanned = 0;
        scan.control.nr_to_reclaim = cx.world().high_marks(&zones);
        for lruvec in cx.world().lruvecs_of(node, highest) {
            shrink_lruvec(cx, lruvec, &mut scan);
            cx.world().memory.snapshot_refaults(lruvec);
        }
        if scan.order > Order(0) && scan.nr_reclaimed - before >= compact_gap(scan.order) {
            scan.order = Order(0);
        }
        if scan.nr_scanned >= scan.control.nr_to_reclaim {
            raises = false;
        }
        let is_easy = boost_left > 0
            && !raises
            && cx.world().flows.stall.fragment == FragmentStall::FiftiethThenAll;
        throttle::wake_pfmemalloc(cx, node, is_easy);
        let reclaimed = scan.nr_reclaimed - before;
        boost_left -= boost_left.min(reclaimed);
        if boosted && boost_left > 0 && reclaimed == 0 {
            break;
        }
        if raises || reclaimed == 0 {
            priority -= 1;
        }
    }
    let kernel = cx.world();
    if !is_done && scan.nr_reclaimed == 0 {
        kernel.nodes[node as usize].kswapd_failures += 1;
    }
    set_reclaim_active(kernel, &zones, false);
    for (id, boost) in zones.into_iter().zip(boosts) {
        let watermarks = &mut kernel.memory.zones[id.index()].watermarks;
        watermarks.boost = watermarks.boost.saturating_sub(boost);
    }
    if boosted {
        // What mixed the pageblocks is to be moved together again.
        let order = kernel.memory.policy.freelist.pageblock_order;
        compaction::wakeup_kcompactd(cx, node, order, highest);
    }
    scan.order
}

/// As it was while LRU lists belonged to zones.
fn balance_zones(
    cx: &mut KernelCx<'_>,
    node: u32,
    order: Order,
    highest: ZoneKind,
) -> (Order, ZoneKind) {
    let mut scan = Scan::new(cx.world(), Reclaimer::Kswapd, order, highest, Gfp::KERNEL);
    let zones: Vec<ZoneId> = cx.world().zones_of(node, ZoneKind::Movable).collect();
    let mut priority = DEF_PRIORITY;
    let mut worked_up_to = ZoneKind::Dma;
    while priority >= 1 {
        scan.control.priority = priority;
        scan.nr_reclaimed = 0;
        // Each look at a zone takes its lock (`get_scan_count`), whatever it finds.
        let looks = cx.world().costs.lock_pair.times(zones.len() as u64);
        cx.spend(looks, Mode::System);
        let mut raises = true;
        // From above, the first zone that needs anything.
        let mut end_zone = None;
        for &id in zones.iter().rev() {
            let lruvec = cx.world().memory.lru.of_zone(id);
            if priority != DEF_PRIORITY && !cx.world().is_reclaimable(lruvec) {
                continue;
            }
            age_active_anon(cx, lruvec, &mut scan);
            if !cx.world().zone_balanced(id, scan.order, 0, ZoneKind::Dma) {
                end_zone = Some(cx.world().memory.zones[id.index()].kind);
                break;
            }
            let flags = &mut cx.world().lru_flags[lruvec];
            (flags.congested, flags.dirty) = (false, false);
        }
        let Some(end_zone) = end_zone else { break };
        worked_up_to = end_zone;
        if priority < WRITES_BELOW {
            scan.control.may_writepage = true;
        }
        for &id in &zones {
            let lruvec = cx.world().memory.lru.of_zone(id);
            let is_above = cx.world().memory.zones[id.index()].kind > end_zone;
            if is_above || priority != DEF_PRIORITY && !cx.world().is_reclaimable(lruvec) {
                continue;
            }
            if shrink_zone(cx, id, end_zone, &mut scan) {
                raises = false;
            }
        }
        throttle::wake_pfmemalloc(cx, node, false);
        if scan.order > Order(0) && scan.nr_reclaimed >= compact_gap(scan.order) {
            scan.order = Order(0);
        }
        if raises || scan.nr_reclaimed == 0 {
            priority -= 1;
        }
        if cx.world().is_balanced(node, scan.order, highest) {
            break;
        }
    }
    (scan.order, worked_up_to)
}

/// Reclaims from a zone unless it is balanced with a margin. Whether no more pressure is needed: it was,
/// or as many pages were looked at as were wanted.
#[doc(alias = "kswapd_shrink_zone")]
fn shrink_zone(cx: &mut KernelCx<'_>, id: ZoneId, class: ZoneKind, scan: &mut Scan) -> bool {
    let kernel = cx.world();
    let zone = &kernel.memory.zones[id.index()];
    let share = zone.managed_pages * u64::from(kernel.flows.kswapd.balance_gap_permille) / 1000;
    let gap = share.min(zone.watermarks.pages(Mark::Low));
    let lruvec = kernel.memory.lru.of_zone(id);
    scan.control.nr_to_reclaim = kernel.high_marks(&[id]);
    scan.nr_scanned = 0;
    let test_order = kernel.test_order(id, scan.order, class);
    if kernel.zone_balanced(id, test_order, gap, class) {
        return true;
    }
    shrink_lruvec(cx, lruvec, scan);
    slab::after_zone(cx, id, class, scan, 0);
    let kernel = cx.world();
    let test_order = kernel.test_order(id, scan.order, class);
    let balanced = kernel.is_reclaimable(lruvec) && kernel.zone_balanced(id, test_order, 0, class);
    let flags = &mut kernel.lru_flags[lruvec];
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
    pub(crate) fn test_order(&self, id: ZoneId, order: Order, class: ZoneKind) -> Order {
        if order == Order(0) || !self.flows.kswapd.singles_suffice {
            return order;
        }
        let flags = AllocFlags::NONE;
        match self.memory.compaction_suitable(id, order, Mark::Low, flags, class) {
            CompactResult::Skipped | CompactResult::NotSuitableZone => order,
            _ => Order(0),
        }
    }

    /// Whether a zone is above a mark.
    pub(crate) fn is_above(&self, id: ZoneId, order: Order, mark: Mark, class: ZoneKind) -> bool {
        let pages = self.memory.zones[id.index()].watermarks.pages(mark);
        self.memory.watermark_ok(id, order, pages, class, AllocFlags::NONE)
    }

    /// Whether a zone is above its high mark by `gap` pages.
    pub(crate) fn zone_balanced(
        &self,
        id: ZoneId,
        order: Order,
        gap: u64,
        class: ZoneKind,
    ) -> bool {
        let high = self.memory.zones[id.index()].watermarks.pages(Mark::High);
        self.memory.watermark_ok(id, order, high + gap, class, AllocFlags::NONE)
    }

    /// Whether a node's zones up to `highest` need nothing of kswapd (`pgdat_balanced`).
    #[doc(alias = "pgdat_balanced")]
    pub(crate) fn is_balanced(&self, node: u32, order: Order, highest: ZoneKind) -> bool {
        let mut zones = self.zones_of(node, highest);
        if self.flows.kswapd.balanced == Balanced::AnyZone {
            return zones.any(|id| self.zone_balanced(id, order, 0, highest));
        }
        let (mut managed, mut balanced_pages) = (0, 0);
        for id in zones {
            let pages = self.memory.zones[id.index()].managed_pages;
            managed += pages;
            // A zone without hope counts as balanced, or kswapd would never sleep.
            let hopeless = self.is_given_up(self.memory.lru.of_zone(id));
            let own = self.memory.zones[id.index()].kind;
            if hopeless || self.zone_balanced(id, order, 0, own) {
                balanced_pages += pages;
            } else if order == Order(0) {
                return false;
            }
        }
        order == Order(0) || balanced_pages >= managed / 4
    }

    /// Whether some zone's marks are boosted.
    fn is_boosted(&self, node: u32, highest: ZoneKind) -> bool {
        self.zones_of(node, highest).any(|id| self.memory.zones[id.index()].watermarks.boost > 0)
    }
}
