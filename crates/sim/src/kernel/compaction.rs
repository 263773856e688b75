//! Compaction as tasks do it: for a request, by kcompactd, and for user space.
//!
//! Models: `try_to_compact_pages`, `kcompactd`, `kcompactd_do_work`, `compact_node`, `wakeup_kcompactd`,
//! mm/compaction.c; `__alloc_pages_direct_compact`, `should_compact_retry`, mm/page_alloc.c; v3.4, v4.4,
//! v4.14 and v6.12.
//! Departs: a lock that a step needs is held for as long as its work takes, at the step's end. Visible as:
//! an async run gives up for a lock that another has at the step's beginning, not somewhere within it.
//! Departs: proactive compaction that was put off stays so when kcompactd is asked for something, where since 5.15 it is
//! looked after again half a second later. Visible as: less of it on machines whose kcompactd is woken often.

use super::mixed_blocks::empty_mixed_blocks;
use super::policy::{DirectCompaction, KcompactdWake, StallRule};
use super::slowpath::{COSTLY_ORDER, Want};
use super::trace::{self, TraceEvent, Wake};
use super::work::spend_work;
use super::{Kernel, KernelCx, Stall, TENTH, Waiter, filemap, swap, throttle};
use crate::sched::WaitQueue;
use crate::task::Wakeup;
use highorder_mm::alloc::Request;
use highorder_mm::compaction::suitable::PROACTIVE_DEFER_ROUNDS;
use highorder_mm::compaction::{CompactRequest, CompactResult, CompactRun, CompactStep, Compactor};
use highorder_mm::fast_search::MigrateMode;
use highorder_mm::gfp::{AllocFlags, Gfp};
use highorder_mm::migrate::Obstacle;
use highorder_mm::policy::Contention;
use highorder_mm::types::NodeId;
use highorder_mm::vmstat::Vm;
use highorder_mm::watermark::Mark;
use highorder_mm::zone::ZoneId;
use highorder_mm::{Order, Pfn, ZoneKind};
use highorder_words::Ns;

/// How hard a request compacts (`enum compact_priority`); the hardest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    /// The whole zone, whatever is known of it.
    SyncFull,
    /// Waiting for most things, but not for writeback.
    SyncLight,
    /// Without waiting.
    Async,
}

impl Priority {
    const fn mode(self) -> MigrateMode {
        match self {
            Self::Async => MigrateMode::Async,
            Self::SyncLight | Self::SyncFull => MigrateMode::SyncLight,
        }
    }

    /// Its number in events (`enum compact_priority`).
    const fn number(self) -> u8 {
        match self {
            Self::SyncFull => 0,
            Self::SyncLight => 1,
            Self::Async => 2,
        }
    }

    const fn harder(self) -> Self {
        match self {
            Self::Async => Self::SyncLight,
            Self::SyncLight | Self::SyncFull => Self::SyncFull,
        }
    }
}

/// What runs of compaction did that no counter of the kernel tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionTotals {
    /// Free pages that runs hold at this moment: targets, and pages of the blocks being emptied.
    pub held_pages: u64,
    /// The most that it ever was.
    pub held_pages_max: u64,
    /// Runs under way.
    pub running: u32,
    /// CPU time spent looking for pages to move to.
    pub free_search: Ns,
    /// CPU time of runs in all.
    pub all: Ns,
}

/// kcompactd of a node.
#[derive(Clone, Debug)]
pub struct Kcompactd {
    /// Where it sleeps.
    pub(crate) wait: WaitQueue,
    /// The largest order asked for since it last worked.
    pub(crate) order: Order,
    /// The highest zone asked for.
    pub(crate) highest_zoneidx: Option<ZoneKind>,
}

/// What came of compacting a zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compacted {
    pub(crate) result: CompactResult,
    /// A block that was kept for the request.
    pub(crate) block: Option<Pfn>,
    /// Another task wanted the CPU when it ended (`need_resched`).
    pub(crate) is_cpu_wanted: bool,
    /// Pages that were moved, and those that stayed where they were.
    pub(crate) moved: (u32, u32),
}

/// Compacts a zone. Suspends.
///
/// A task in the kernel gives the CPU away where it looks whether another one wants it. While pages move that is
/// after each (`cond_resched` in `migrate_pages`), so nobody else learns of it. The scanners look every 32 frames:
/// a run that does not wait is over there before 5.1 (`compact_should_abort`), and since then goes on when it has
/// the CPU again (cf66f0700c8f).
pub(crate) fn compact_zone(cx: &mut KernelCx<'_>, request: CompactRequest) -> Compacted {
    let begun = cx.world().memory.begin_compaction(request);
    trace::note_all(cx);
    match begun {
        Ok(run) => run_compaction(cx, run),
        Err(result) => Compacted { result, block: None, is_cpu_wanted: false, moved: (0, 0) },
    }
}

/// Carries out a run that has begun. Suspends.
pub(super) fn run_compaction(cx: &mut KernelCx<'_>, mut run: CompactRun) -> Compacted {
    let contention = cx.world().memory.policy.compaction.contention;
    let aborts = contention == Contention::Abort;
    cx.world().compaction.running += 1;
    let mut held = 0;
    let mut is_cpu_wanted = false;
    let mut moved = (0, 0);
    let result = loop {
        run.request.cpu = cx.cpu();
        if run.request.mode == MigrateMode::Async && contention != Contention::GoesOn {
            run.contended |= aborts && is_cpu_wanted || finds_lock_taken(cx, &run);
        }
        let step = cx.world().memory.compact_step(&mut run);
        let told = trace::take(cx);
        let [_, targets, kept] = run.nr_held();
        let totals = &mut cx.world().compaction;
        totals.held_pages = totals.held_pages + (targets + kept) as u64 - held;
        totals.held_pages_max = totals.held_pages_max.max(totals.held_pages);
        held = (targets + kept) as u64;
        match step {
            CompactStep::Done(result) => {
                is_cpu_wanted |= spend_step(cx, &run, false);
                trace::note_taken(cx, told);
                break result;
            }
            CompactStep::TooManyIsolated => wait_for_isolated(cx, &run),
            CompactStep::WaitOnPage(pfn, obstacle) => wait_on_obstacle(cx, pfn, obstacle),
            CompactStep::FastIsolated(_)
            | CompactStep::IsolatedFreepages(_)
            | CompactStep::TookFreepages { .. }
            | CompactStep::IsolatedMigratepages(_) => {
                let is_free_search = !matches!(step, CompactStep::IsolatedMigratepages(_));
                is_cpu_wanted |= spend_step(cx, &run, is_free_search);
                is_cpu_wanted &= aborts;
            }
            CompactStep::Migrated(batch) => {
                if batch.is_over {
                    moved = (moved.0 + batch.nr_succeeded, moved.1 + batch.nr_failed);
                }
                spend_step(cx, &run, false);
                is_cpu_wanted = false;
            }
            CompactStep::Finished(_) | CompactStep::Drained | CompactStep::Nothing => {
                is_cpu_wanted |= spend_step(cx, &run, false);
            }
        }
        trace::note_taken(cx, told);
    };
    let totals = &mut cx.world().compaction;
    totals.running -= 1;
    totals.held_pages -= held;
    Compacted { result, block: run.captured, is_cpu_wanted, moved }
}

/// Spends what a step took, and says whether others have had the CPU meanwhile.
fn spend_step(cx: &mut KernelCx<'_>, run: &CompactRun, is_free_search: bool) -> bool {
    let began = cx.times();
    spend_work(cx, run.cc.zone);
    let ended = cx.times();
    let took = ended.system - began.system;
    let totals = &mut cx.world().compaction;
    totals.all += took;
    if is_free_search {
        totals.free_search += took;
    }
    ended.runnable > began.runnable
}

/// Whether another has a lock that the next step would only try (`spin_trylock_irqsave`): that ends a run before
/// 5.1, and since then lets it take more at once.
fn finds_lock_taken(cx: &mut KernelCx<'_>, run: &CompactRun) -> bool {
    let kernel = cx.world();
    let zone = kernel.zone_locks[run.cc.zone.index()];
    let lru = kernel.lru_lock(run.cc.zone);
    cx.is_taken(zone) || cx.is_taken(lru)
}

/// Waits while many pages are off the lists (`congestion_wait`, `reclaim_throttle`).
fn wait_for_isolated(cx: &mut KernelCx<'_>, run: &CompactRun) {
    if cx.world().flows.stall.rule == StallRule::Throttle {
        let node = cx.world().memory.zones[run.cc.zone.index()].node;
        throttle::reclaim_throttle(cx, node, throttle::Reason::Isolated);
        return;
    }
    let waiter = if run.request.who == Compactor::Kswapd { Waiter::Kswapd } else { Waiter::Direct };
    throttle::congestion_wait(cx, waiter);
}

fn wait_on_obstacle(cx: &mut KernelCx<'_>, pfn: Pfn, obstacle: Obstacle) {
    match obstacle {
        Obstacle::Locked => {
            filemap::wait_on_page(cx, pfn);
        }
        Obstacle::Writeback => {
            swap::wait_for_any_write(cx, Some(TENTH));
        }
        Obstacle::Gone | Obstacle::Pinned => cx.cond_resched(),
    }
}

/// The zones that a request may use, in the order of its list: `try_to_compact_pages` goes through them.
#[doc(alias = "try_to_compact_pages")]
pub(super) fn zones(cx: &mut KernelCx<'_>, want: Want) -> Vec<ZoneId> {
    let Request { gfp, node, .. } = want.request;
    let kernel = cx.world();
    let zones = kernel.memory.zones_for(node, gfp).into_iter();
    zones
        .filter(|id| {
            let zone = &kernel.memory.zones[id.index()];
            zone.managed_pages > 0 && want.allowed & zone.node.bit() != 0
        })
        .collect()
}

/// Compacts for a request, and looks whether that gave it a block. Suspends.
#[doc(alias = "__alloc_pages_direct_compact")]
pub(crate) fn direct_compact(
    cx: &mut KernelCx<'_>,
    want: Want,
    flags: AllocFlags,
    priority: Priority,
) -> (CompactResult, Option<Pfn>) {
    let Request { order, gfp, .. } = want.request;
    let policy = cx.world().flows.compactors;
    let needs = match policy.direct {
        DirectCompaction::Priorities => Gfp::IO,
        DirectCompaction::AsyncThenSync | DirectCompaction::AsyncUnlessDeferred => {
            Gfp::IO | Gfp::FS
        }
    };
    if order == Order(0) || !gfp.contains(needs) {
        return (CompactResult::Skipped, None);
    }
    let (mode, priority_number) = (priority.mode(), priority.number());
    trace::note(cx, TraceEvent::TryToCompactPages { order, gfp, mode, priority: priority_number });
    let began = cx.now();
    let found = match policy.direct {
        DirectCompaction::AsyncThenSync => compact_by_preferred_zone(cx, want, flags, priority),
        _ => compact_by_zones(cx, want, flags, priority),
    };
    // Deferral has events of its own.
    trace::note_all(cx);
    let took = cx.now() - began;
    (cx.world().on_stall)(Stall::DirectCompaction, took);
    found
}

/// As kernels have it that ask the preferred zone alone whether runs are deferred (before 3.6).
fn compact_by_preferred_zone(
    cx: &mut KernelCx<'_>,
    want: Want,
    flags: AllocFlags,
    priority: Priority,
) -> (CompactResult, Option<Pfn>) {
    let Request { order, gfp, .. } = want.request;
    let zones = zones(cx, want);
    let Some(&preferred) = zones.first() else { return (CompactResult::Skipped, None) };
    let is_deferred = cx.world().memory.compaction_deferred(preferred, order);
    trace::note_all(cx);
    if is_deferred {
        return (CompactResult::Deferred, None);
    }
    cx.world().memory.vm.add(Vm::CompactStall, 1);
    let mut best = CompactResult::Skipped;
    for zone in zones {
        let cpu = cx.cpu();
        let request = CompactRequest::direct(zone, order, gfp, priority.mode(), cpu, false);
        let result = compact_zone(cx, request).result;
        best = best.max(result);
        if cx.world().is_above(zone, order, Mark::Low, ZoneKind::Dma) {
            break;
        }
    }
    // No zone was worth it: that is a stall, and neither failure nor success.
    if best == CompactResult::Skipped {
        return (best, None);
    }
    drain_own_lists(cx);
    if let Some(pfn) = super::slowpath::get_page(cx, want, Some(Mark::Min), flags) {
        let memory = &mut cx.world().memory;
        memory.compaction_defer_reset(preferred, order, true);
        memory.vm.add(Vm::CompactSuccess, 1);
        return (best, Some(pfn));
    }
    let memory = &mut cx.world().memory;
    memory.vm.add(Vm::CompactFail, 1);
    if priority != Priority::Async {
        memory.defer_compaction(preferred, order);
    }
    (best, None)
}

/// As kernels have it that defer by zone.
fn compact_by_zones(
    cx: &mut KernelCx<'_>,
    want: Want,
    flags: AllocFlags,
    priority: Priority,
) -> (CompactResult, Option<Pfn>) {
    let Request { order, gfp, .. } = want.request;
    let policy = cx.world().flows.compactors;
    let mut best = None;
    let mut captured = None;
    // Whether each run was broken off for a lock; a zone that is skipped counts as one that was not.
    let mut all_contended = true;
    let mut for_the_cpu = false;
    for zone in zones(cx, want) {
        let is_deferred =
            priority != Priority::SyncFull && cx.world().memory.compaction_deferred(zone, order);
        trace::note_all(cx);
        if is_deferred {
            best = rank(policy.direct, best, CompactResult::Deferred);
            continue;
        }
        let cpu = cx.cpu();
        let full = priority == Priority::SyncFull;
        let request = CompactRequest::direct(zone, order, gfp, priority.mode(), cpu, full);
        let Compacted { result, block, is_cpu_wanted, .. } = compact_zone(cx, request);
        best = rank(policy.direct, best, result);
        all_contended &= result == CompactResult::Contended;
        captured = block;
        let serves = match policy.direct {
            DirectCompaction::Priorities => result == CompactResult::Success,
            _ => cx.world().is_above(zone, order, Mark::Low, gfp.highest_zone()),
        };
        if serves {
            cx.world().memory.compaction_defer_reset(zone, order, false);
            trace::note_all(cx);
            // What served had its lock.
            all_contended = false;
            break;
        }
        let failed = match policy.direct {
            DirectCompaction::Priorities => {
                matches!(result, CompactResult::Complete | CompactResult::PartialSkipped)
            }
            _ => result == CompactResult::Complete,
        };
        if priority != Priority::Async && failed {
            cx.world().memory.defer_compaction(zone, order);
            trace::note_all(cx);
        }
        // The CPU is wanted, or the process is to die.
        if priority == Priority::Async && is_cpu_wanted || is_killed(cx, want) {
            for_the_cpu = true;
            break;
        }
    }
    let mut result = best.unwrap_or(CompactResult::Skipped);
    // `try_to_compact_pages`, 3.18 to 4.7: a lock that was taken in one zone is no reason to give up if there was
    // another zone (1f9efdef4f3f).
    let tells_zones_apart = policy.direct == DirectCompaction::AsyncUnlessDeferred;
    if tells_zones_apart && result == CompactResult::Contended && !all_contended && !for_the_cpu {
        result = CompactResult::Complete;
    }
    let counts = match result {
        CompactResult::NotSuitableZone | CompactResult::Skipped => false,
        CompactResult::Deferred => policy.deferred_counts,
        _ => true,
    };
    if !counts {
        return (result, None);
    }
    trace::note_all(cx);
    cx.world().memory.vm.add(Vm::CompactStall, 1);
    let found = match captured {
        Some(pfn) => Some(pfn),
        None => super::slowpath::get_page(cx, want, Some(Mark::Min), flags),
    };
    let memory = &mut cx.world().memory;
    if let Some(pfn) = found {
        let zone = memory.zone_of(pfn);
        memory.zones[zone.index()].compact.blockskip_flush = false;
        memory.compaction_defer_reset(zone, order, true);
        memory.vm.add(Vm::CompactSuccess, 1);
    } else {
        memory.vm.add(Vm::CompactFail, 1);
    }
    (result, found)
}

/// The better of two zones' results. Before 4.7 to be deferred was worse than to be skipped.
fn rank(
    direct: DirectCompaction,
    best: Option<CompactResult>,
    result: CompactResult,
) -> Option<CompactResult> {
    let Some(best) = best else { return Some(result) };
    let was_worse = direct == DirectCompaction::AsyncUnlessDeferred;
    Some(match (best, result) {
        (CompactResult::Deferred, CompactResult::Skipped)
        | (CompactResult::Skipped, CompactResult::Deferred)
            if was_worse =>
        {
            CompactResult::Skipped
        }
        _ => best.max(result),
    })
}

fn is_killed(cx: &mut KernelCx<'_>, want: Want) -> bool {
    want.process.is_some_and(|process| cx.world().process(process).killed)
}

/// Gives what this CPU's lists hold back to the free lists (`drain_pages`).
fn drain_own_lists(cx: &mut KernelCx<'_>) {
    let cpu = cx.cpu();
    let memory = &mut cx.world().memory;
    for zone in 0..memory.zones.len() {
        memory.drain_pcp_zone(ZoneId(zone as u8), cpu);
    }
}

/// Whether another round of compaction could help, after reclaim made progress; may make the next one
/// harder (`should_compact_retry`).
#[doc(alias = "should_compact_retry")]
pub(crate) fn should_retry(
    cx: &mut KernelCx<'_>,
    want: Want,
    flags: AllocFlags,
    result: CompactResult,
    priority: &mut Priority,
    retries: &mut u32,
) -> bool {
    let order = want.request.order;
    if order == Order(0) || is_killed(cx, want) {
        return false;
    }
    let policy = cx.world().flows.compactors;
    let is_costly = order > COSTLY_ORDER;
    let withdrawn = match result {
        CompactResult::NotSuitableZone | CompactResult::Skipped => true,
        CompactResult::Deferred | CompactResult::Contended | CompactResult::PartialSkipped => {
            policy.withdrawn_asks_for_room
        }
        _ => false,
    };
    if withdrawn {
        return has_hope(cx, want, flags);
    }
    if result == CompactResult::Success || policy.withdrawn_asks_for_room && !failed(result) {
        *retries += 1;
        if *retries <= if is_costly { RETRIES_MAX / 4 } else { RETRIES_MAX } {
            return true;
        }
    }
    let least = if is_costly { Priority::SyncLight } else { Priority::SyncFull };
    if *priority > least {
        *priority = priority.harder();
        *retries = 0;
        return true;
    }
    false
}

/// `MAX_COMPACT_RETRIES`.
const RETRIES_MAX: u32 = 16;

/// Whether a run went through all there is in vain.
const fn failed(result: CompactResult) -> bool {
    matches!(result, CompactResult::Complete)
}

/// Whether some zone would be worth a run if part of what is reclaimable were free
/// (`compaction_zonelist_suitable`).
fn has_hope(cx: &mut KernelCx<'_>, want: Want, flags: AllocFlags) -> bool {
    let Request { order, gfp, .. } = want.request;
    let zones = zones(cx, want);
    let kernel = cx.world();
    zones.into_iter().any(|id| {
        let reclaimable = kernel.memory.zone_reclaimable_pages(id);
        // Divided by the order's number, as the kernel has it.
        let available =
            kernel.memory.zones[id.index()].nr_free_pages + reclaimable / u64::from(order.0);
        let highest_zoneidx = gfp.highest_zone();
        kernel.memory.has_room(id, order, Mark::Min, flags, highest_zoneidx, available)
            == CompactResult::Continue
    })
}

/// Compacts all zones of a node for the order that kswapd balanced it for (`compact_pgdat`, 3.4 to 4.5).
pub(crate) fn compact_for_kswapd(cx: &mut KernelCx<'_>, node: NodeId, order: Order) {
    let zones: Vec<ZoneId> = cx.world().zones_of(node, ZoneKind::Movable).collect();
    for zone in zones {
        let is_deferred = cx.world().memory.compaction_deferred(zone, order);
        trace::note_all(cx);
        if is_deferred {
            continue;
        }
        let cpu = cx.cpu();
        compact_zone(cx, CompactRequest::kswapd(zone, order, cpu));
        let kernel = cx.world();
        if kernel.is_above(zone, order, Mark::Low, ZoneKind::Dma) {
            kernel.memory.compaction_defer_reset(zone, order, false);
        }
        trace::note_all(cx);
    }
}

/// Compacts everything, as writing to `vm.compact_memory` does. Suspends.
#[doc(alias = "compact_node")]
pub fn compact_memory(cx: &mut KernelCx<'_>) {
    cx.world().memory.lru_add_drain_all();
    for zone in 0..cx.world().memory.zones.len() {
        let zone = ZoneId(zone as u8);
        if cx.world().memory.zones[zone.index()].managed_pages > 0 {
            let cpu = cx.cpu();
            compact_zone(cx, CompactRequest::user(zone, cpu));
        }
    }
}

/// Asks a node's kcompactd for blocks of `order` in zones up to `highest_zoneidx`. Of several requests it keeps the
/// largest order and the fewest zones.
pub(crate) fn wakeup_kcompactd(
    cx: &mut KernelCx<'_>,
    node: NodeId,
    order: Order,
    highest_zoneidx: ZoneKind,
) {
    let kernel = cx.world();
    if order == Order(0) || kernel.flows.compactors.kcompactd == KcompactdWake::Never {
        return;
    }
    let has_mixed = kernel.has_mixed_blocks(node);
    let state = &mut kernel.nodes[node.index()].kcompactd;
    if has_mixed {
        // At once, and for nothing else.
        let queue = state.wait;
        cx.wake_one(queue);
        return;
    }
    let (asked_order, asked_zoneidx) = (
        state.order.max(order),
        state.highest_zoneidx.map_or(highest_zoneidx, |other| other.min(highest_zoneidx)),
    );
    (state.order, state.highest_zoneidx) = (asked_order, Some(asked_zoneidx));
    let queue = state.wait;
    if cx.nr_waiting(queue) == 0 {
        return;
    }
    let is_suitable = cx.world().memory.kcompactd_node_suitable(node, asked_order, asked_zoneidx);
    trace::note_all(cx);
    if is_suitable {
        trace::note(cx, TraceEvent::WakeupKcompactd(Wake { node, order, highest_zoneidx }));
        cx.wake_one(queue);
    }
}

/// How often kcompactd looks whether its node is fragmented (`HPAGE_FRAG_CHECK_INTERVAL_MSEC`).
const PROACTIVE_INTERVAL: Ns = Ns::from_millis(500);

/// The kernel thread of a node that compacts. Never returns.
pub(crate) fn kcompactd(cx: &mut KernelCx<'_>, node: NodeId) {
    let mut rounds_deferred = 0;
    loop {
        let queue = cx.world().nodes[node.index()].kcompactd.wait;
        let proactive = cx.world().memory.policy.compaction.proactiveness > 0;
        trace::note(cx, TraceEvent::KcompactdSleep { node });
        let is_asked = |kernel: &Kernel| {
            kernel.nodes[node.index()].kcompactd.order > Order(0) || kernel.has_mixed_blocks(node)
        };
        let woken = if is_asked(cx.world()) {
            Wakeup::Woken
        } else if proactive {
            cx.wait_timeout(queue, PROACTIVE_INTERVAL)
        } else {
            cx.wait(queue);
            Wakeup::Woken
        };
        if woken == Wakeup::Woken {
            if is_asked(cx.world()) {
                cx.world().memory.vm.add(Vm::KcompactdWake, 1);
                empty_mixed_blocks(cx, node);
            }
            if cx.world().nodes[node.index()].kcompactd.order > Order(0) {
                do_work(cx, node);
            }
            continue;
        }
        if rounds_deferred > 0 {
            rounds_deferred -= 1;
            continue;
        }
        if cx.world().memory.should_proactive_compact(node) {
            let before = cx.world().memory.fragmentation_score_node(node);
            compact_proactively(cx, node);
            let after = cx.world().memory.fragmentation_score_node(node);
            // In vain: not again for a while.
            rounds_deferred = if after < before { 0 } else { PROACTIVE_DEFER_ROUNDS };
        }
    }
}

#[doc(alias = "kcompactd_do_work")]
fn do_work(cx: &mut KernelCx<'_>, node: NodeId) {
    let kernel = cx.world();
    let state = &kernel.nodes[node.index()].kcompactd;
    let (order, highest_zoneidx) =
        (state.order, state.highest_zoneidx.unwrap_or(ZoneKind::Movable));
    trace::note(cx, TraceEvent::KcompactdWake(Wake { node, order, highest_zoneidx }));
    let kernel = cx.world();
    let includes_highest = kernel.flows.compactors.kcompactd != KcompactdWake::BelowHighest;
    let zones: Vec<ZoneId> = kernel
        .zones_of(node, highest_zoneidx)
        .filter(|id| includes_highest || kernel.memory.zones[id.index()].kind < highest_zoneidx)
        .collect();
    for zone in zones {
        let is_deferred = cx.world().memory.compaction_deferred(zone, order);
        trace::note_all(cx);
        if is_deferred {
            continue;
        }
        let memory = &mut cx.world().memory;
        let suitable =
            memory.compaction_suitable(zone, order, Mark::Min, AllocFlags::NONE, highest_zoneidx);
        memory.note_suitable(zone, Some(order), suitable);
        trace::note_all(cx);
        if suitable != CompactResult::Continue {
            continue;
        }
        let cpu = cx.cpu();
        let request =
            CompactRequest::kcompactd(&cx.world().memory, zone, order, highest_zoneidx, cpu);
        let result = compact_zone(cx, request).result;
        let memory = &mut cx.world().memory;
        match result {
            CompactResult::Success => memory.compaction_defer_reset(zone, order, false),
            CompactResult::Complete | CompactResult::PartialSkipped => {
                memory.drain_all_pages(Some(zone));
                memory.defer_compaction(zone, order);
            }
            _ => {}
        }
        trace::note_all(cx);
    }
    // What was asked for meanwhile and is more stays.
    let state = &mut cx.world().nodes[node.index()].kcompactd;
    if state.order <= order {
        state.order = Order(0);
    }
    if state.highest_zoneidx.is_some_and(|other| other >= highest_zoneidx) {
        state.highest_zoneidx = None;
    }
}

fn compact_proactively(cx: &mut KernelCx<'_>, node: NodeId) {
    let zones: Vec<ZoneId> = cx.world().zones_of(node, ZoneKind::Movable).collect();
    for zone in zones {
        let cpu = cx.cpu();
        compact_zone(cx, CompactRequest::proactive(zone, cpu));
    }
}

impl Kernel {
    /// Forgets the most that runs of compaction ever held: the record of it begins with what they hold now.
    pub fn restart_compaction_peaks(&mut self) {
        self.compaction.held_pages_max = self.compaction.held_pages;
        for zone in &mut self.memory.zones {
            zone.compact.nr_held_max = zone.compact.nr_held;
        }
    }

    /// What runs of compaction did beside what `/proc/vmstat` says.
    #[must_use]
    pub const fn compaction_totals(&self) -> CompactionTotals {
        self.compaction
    }
}
