//! What every reclaimer does to the LRU lists of a node or a zone.
//!
//! Models: `shrink_zone` (v4.4), `shrink_node`, `shrink_lruvec`, `lru_gen_shrink_node` (v6.12),
//! mm/vmscan.c.

use super::plug::Plug;
use super::policy::{Continues, StallRule, WakesFlushers, ZoneCongested};
use super::slowpath::COSTLY_ORDER;
use super::trace::{self, ReclaimEvent, WritePass};
use super::work::{spend_batch, spend_taken, spend_work};
use super::{
    Kernel, KernelCx, LruFlags, TENTH, Waiter, slab, swap, throttle, vmpressure, writeback,
};
use crate::task::Mode;
use highorder_mm::compaction::CompactResult;
use highorder_mm::compaction::suitable::compact_gap;
use highorder_mm::gfp::{AllocFlags, Gfp};
use highorder_mm::lru::{LruList, LruvecId};
use highorder_mm::lumpy::ReclaimMode;
use highorder_mm::mglru::{Eviction, MIN_LRU_BATCH};
use highorder_mm::page_table::PTRS_PER_TABLE;
use highorder_mm::policy::{LruKind, LruScope, LumpyIsolation};
use highorder_mm::reclaim::{DEF_PRIORITY, Pause, Reclaimer, ScanControl, Shrunk};
use highorder_mm::types::NodeId;
use highorder_mm::vma::ProcessId;
use highorder_mm::watermark::Mark;
use highorder_mm::zone::ZoneId;
use highorder_mm::{Order, ZoneKind};
use highorder_words::CpuId;

/// A reclaim from its beginning to its end (`struct scan_control`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scan {
    /// What the steps are told.
    pub(crate) control: ScanControl,
    /// The order that is wanted.
    pub(crate) order: Order,
    /// What the request allows.
    pub(crate) gfp: Gfp,
    /// Pages looked at so far.
    pub(crate) nr_scanned: u64,
    /// Pages freed so far.
    pub(crate) nr_reclaimed: u64,
    /// Active lists were left alone for their size.
    pub(crate) skipped_deactivate: bool,
    /// Whose memory it is that is missing, unless it is a kernel thread's.
    pub(crate) process: Option<ProcessId>,
    /// What reclaim is about since the last batch of inactive pages, where that is remembered.
    mode: Option<ReclaimMode>,
    /// Slabs are left alone.
    pub(crate) spares_slab: bool,
    /// With generations, base pages of files met so far, and how many of them were dirty with nobody to write them.
    met_files: [u64; 2],
}

impl Scan {
    pub(crate) fn new(
        kernel: &Kernel,
        who: Reclaimer,
        order: Order,
        highest_zoneidx: ZoneKind,
        gfp: Gfp,
    ) -> Self {
        let mut control = ScanControl::new(who, CpuId(0), kernel.knobs.swappiness);
        control.highest_zoneidx = highest_zoneidx;
        control.may_io = gfp.contains(Gfp::IO);
        Self {
            control,
            order,
            gfp,
            nr_scanned: 0,
            nr_reclaimed: 0,
            skipped_deactivate: false,
            process: None,
            mode: None,
            spares_slab: false,
            met_files: [0; 2],
        }
    }

    pub(crate) fn is_kswapd(&self) -> bool {
        self.control.who == Reclaimer::Kswapd
    }

    pub(crate) fn waiter(&self) -> Waiter {
        if self.is_kswapd() { Waiter::Kswapd } else { Waiter::Direct }
    }
}

/// Looks through some LRU lists, as far as the priority says: once, and for a high order again until compaction
/// has room. Suspends.
#[doc(alias = "shrink_node")]
#[doc(alias = "shrink_zone")]
pub(crate) fn shrink_lruvec(cx: &mut KernelCx<'_>, lruvec: LruvecId, scan: &mut Scan) {
    loop {
        let (scanned, reclaimed) = (scan.nr_scanned, scan.nr_reclaimed);
        let is_classic = cx.world().memory.policy.lru.kind == LruKind::Classic;
        if is_classic {
            shrink_lists(cx, lruvec, scan);
        } else {
            shrink_generations(cx, lruvec, scan);
        }
        throttle::throttle_vm_writeout(cx, scan.gfp, scan.waiter());
        slab::after_node(cx, lruvec, scan, scanned);
        let round =
            Round { scanned: scan.nr_scanned - scanned, reclaimed: scan.nr_reclaimed - reclaimed };
        if round.reclaimed > 0 {
            // Also by slab alone.
            let node = cx.world().memory.lru.lruvecs[lruvec].node;
            cx.world().nodes[node.index()].kswapd_failures = 0;
        }
        if !is_classic {
            return;
        }
        vmpressure::note_scanned(cx, scan.gfp, round.scanned);
        if !should_continue(cx.world(), lruvec, scan, round) {
            return;
        }
    }
}

/// What one look through some lists came to.
struct Round {
    scanned: u64,
    reclaimed: u64,
}

/// Whether another look is worth while (`should_continue_reclaim`).
fn should_continue(kernel: &Kernel, lruvec: LruvecId, scan: &Scan, round: Round) -> bool {
    let order = scan.order;
    let is_for_compaction = match kernel.flows.direct.continues {
        Continues::UntilKept | Continues::UntilKeptOrAged => {
            scan.mode == Some(ReclaimMode::Compaction)
        }
        Continues::UntilGap | Continues::UntilSuitable => {
            order > Order(0) && (order > COSTLY_ORDER || scan.control.priority < WRITES_BELOW)
        }
    };
    if !is_for_compaction {
        return false;
    }
    let insists = scan.gfp.intersects(Gfp::REPEAT | Gfp::RETRY_MAYFAIL);
    let by_gap = kernel.flows.direct.continues != Continues::UntilSuitable;
    if round.reclaimed == 0 && !(by_gap && insists && round.scanned > 0) {
        return false;
    }
    let memory = &kernel.memory;
    let lists = &memory.lru.lruvecs[lruvec];
    let mut inactive = lists.size(LruList::InactiveFile);
    if memory.swap.nr_free() > 0 && scan.control.may_swap {
        inactive += lists.size(LruList::InactiveAnon);
    }
    let gap = compact_gap(order);
    // What other zones and earlier passes gave counts as well.
    if by_gap && scan.nr_reclaimed < gap && inactive > gap {
        return true;
    }
    let highest_zoneidx = scan.control.highest_zoneidx;
    let asked_for = kernel.zone_that_compaction_is_asked_for(highest_zoneidx);
    let is_ready = kernel.zones_of_lists(lruvec, highest_zoneidx).any(|id| {
        let flags = AllocFlags::NONE;
        let found = memory.compaction_suitable(id, order, Mark::Min, flags, asked_for);
        matches!(found, CompactResult::Continue | CompactResult::Success)
    });
    !is_ready && (by_gap || inactive > gap)
}

fn shrink_lists(cx: &mut KernelCx<'_>, lruvec: LruvecId, scan: &mut Scan) {
    let mut plan = cx.world().memory.plan_scan(lruvec, &scan.control);
    let mut batch = Batch::default();
    let mut plug = Plug::default();
    loop {
        prepare(cx, lruvec, scan);
        let Some(shrunk) = cx.world().memory.shrink_step(lruvec, &mut plan, &scan.control) else {
            break;
        };
        plan.nr_reclaimed += finish_step(cx, lruvec, scan, (&mut batch, &mut plug), shrunk);
    }
    swap::hand_over(cx, &mut plug);
    scan.skipped_deactivate |= plan.skipped_deactivate;
    prepare(cx, lruvec, scan);
    age_active_anon(cx, lruvec, scan);
    batch.judge_node(cx, lruvec, scan);
}

/// Moves some active anonymous pages to the inactive list if there are too few. Suspends.
pub(crate) fn age_active_anon(cx: &mut KernelCx<'_>, lruvec: LruvecId, scan: &mut Scan) {
    prepare(cx, lruvec, scan);
    let Some(shrunk) = cx.world().memory.age_active_anon(lruvec, &scan.control) else { return };
    let zone = cx.world().zone_of_lists(lruvec);
    spend_work(cx, zone);
    remember_mode(cx.world(), scan, &shrunk);
    note_isolation(cx, &shrunk);
}

/// As `shrink_lists`, by generations: whoever may not write finds nothing to do.
#[doc(alias = "lru_gen_shrink_node")]
fn shrink_generations(cx: &mut KernelCx<'_>, lruvec: LruvecId, scan: &mut Scan) {
    if !scan.control.may_writepage || !scan.control.may_unmap {
        return;
    }
    // kswapd wants as much of each round, others of all together.
    let began_with = if scan.is_kswapd() { scan.nr_reclaimed } else { 0 };
    let wanted = scan.control.nr_to_reclaim.max(compact_gap(scan.order));
    let mut batch = Batch::default();
    let mut plug = Plug::default();
    let mut looked_at = 0;
    let cpu = cx.cpu();
    cx.world().memory.lru_add_drain(cpu);
    loop {
        prepare(cx, lruvec, scan);
        let plan = cx.world().memory.lru_gen_plan(lruvec, &scan.control);
        if plan.age {
            cx.world().memory.lru_gen_age(lruvec, &scan.control);
            let zone = cx.world().zone_of_lists(lruvec);
            spend_work(cx, zone);
            break;
        }
        if plan.nr_to_scan == 0 {
            break;
        }
        let Eviction { shrunk, progress, nr_file_taken, nr_unqueued_dirty } =
            cx.world().memory.lru_gen_evict(lruvec, &scan.control);
        scan.met_files[0] += nr_file_taken;
        scan.met_files[1] += nr_unqueued_dirty + shrunk.nr_unqueued_dirty;
        looked_at += progress;
        finish_step(cx, lruvec, scan, (&mut batch, &mut plug), shrunk);
        if progress == 0 || looked_at >= plan.nr_to_scan {
            break;
        }
        if scan.nr_reclaimed - began_with >= wanted || is_above_high(cx.world(), lruvec, scan) {
            break;
        }
    }
    swap::hand_over(cx, &mut plug);
    let [met, dirty] = scan.met_files;
    wake_flushers_if_all_dirty(cx, met, dirty);
    batch.judge_node(cx, lruvec, scan);
}

/// Has files written if all pages that were met are dirty and nobody has queued them to be.
fn wake_flushers_if_all_dirty(cx: &mut KernelCx<'_>, nr_met: u64, nr_unqueued_dirty: u64) {
    if nr_met > 0
        && nr_unqueued_dirty == nr_met
        && cx.world().flows.files.wakes_flushers == WakesFlushers::AllDirty
    {
        writeback::wakeup_flusher_threads(cx, None);
    }
}

/// The priority at which kswapd begins with generations.
#[doc(alias = "set_initial_priority")]
pub(crate) fn initial_priority(kernel: &Kernel, node: NodeId, nr_to_reclaim: u64) -> u8 {
    let memory = &kernel.memory;
    if memory.policy.lru.kind == LruKind::Classic || nr_to_reclaim < MIN_LRU_BATCH {
        return DEF_PRIORITY;
    }
    let lists = kernel.lruvecs_of(node, ZoneKind::Movable);
    let inactive =
        |list| -> u64 { lists.iter().map(|&lruvec| memory.lru.lruvecs[lruvec].size(list)).sum() };
    let mut reclaimable = inactive(LruList::InactiveFile);
    if memory.swap.nr_free() > 0 {
        reclaimable += inactive(LruList::InactiveAnon);
    }
    priority_for(reclaimable, nr_to_reclaim)
}

/// The priority at which the share of so many pages that is looked at is what is asked for: not of so high a pressure that
/// shrinkers would give up much more.
fn priority_for(reclaimable: u64, nr_to_reclaim: u64) -> u8 {
    /// The lowest, `DEF_PRIORITY / 2`.
    const LOWEST: u32 = DEF_PRIORITY as u32 / 2;
    // Powers of two: that of what there is rounded down, that of what is asked for up.
    let bits = |pages: u64| u64::BITS - pages.leading_zeros();
    let priority = bits(reclaimable).saturating_sub(1 + bits(nr_to_reclaim - 1));
    priority.clamp(LOWEST, DEF_PRIORITY.into()) as u8
}

/// Whether kswapd has nothing left to do for order 0 (`should_abort_scan`).
fn is_above_high(kernel: &Kernel, lruvec: LruvecId, scan: &Scan) -> bool {
    let node = kernel.memory.lru.lruvecs[lruvec].node;
    let highest_zoneidx = scan.control.highest_zoneidx;
    scan.is_kswapd()
        && scan.order == Order(0)
        && kernel.zones_of(node, highest_zoneidx).all(|id| {
            let high = kernel.memory.zones[id.index()].watermarks.pages(Mark::High) + MIN_LRU_BATCH;
            kernel.memory.watermark_ok(id, Order(0), high, highest_zoneidx, AllocFlags::NONE)
        })
}

/// What a step is told that may have changed since the last one.
fn prepare(cx: &mut KernelCx<'_>, lruvec: LruvecId, scan: &mut Scan) {
    scan.control.cpu = cx.cpu();
    scan.control.order = scan.order;
    if let Some(token) = cx.world().token() {
        if scan.control.priority == 0 {
            token.disable();
        }
        scan.control.spared = token.protected_from(scan.process);
    }
    let LruFlags { writeback, dirty, .. } = cx.world().lru_flags[lruvec.index()];
    scan.control.writeback_flag = writeback;
    scan.control.dirty_flag = dirty;
}

/// Spends what a step took, goes on with what it has left where it pauses, begins to write what it wants written, and
/// waits where the kernel does. Returns how many pages were freed by going on. Suspends.
fn finish_step(
    cx: &mut KernelCx<'_>,
    lruvec: LruvecId,
    scan: &mut Scan,
    (batch, plug): (&mut Batch, &mut Plug),
    mut shrunk: Shrunk,
) -> u64 {
    let at_first = shrunk.nr_reclaimed;
    let zone = cx.world().zone_of_lists(lruvec);
    loop {
        // What others do during a pause is not this step's, and they do not find what was freed.
        let work = cx.world().memory.take_work();
        slab::note_freed_files(cx, &std::mem::take(&mut shrunk.freed_files));
        let Some(rest) = &shrunk.rest else {
            spend_batch(cx, zone, work);
            break;
        };
        spend_taken(cx, zone, work);
        match rest.pause {
            Pause::Write(io) => swap::write_page(cx, plug, io),
            Pause::Split(process) => spend_split(cx, process, plug),
            Pause::Locked(process) => wait_for_mappings(cx, process, plug),
        }
        prepare(cx, lruvec, scan);
        cx.world().memory.shrink_rest(lruvec, &mut shrunk, &scan.control);
    }
    let by_going_on = shrunk.nr_reclaimed - at_first;
    scan.nr_scanned += shrunk.nr_scanned;
    scan.nr_reclaimed += shrunk.nr_reclaimed;
    for &pfn in &shrunk.file_writes {
        writeback::write_one(cx, pfn);
    }
    // With generations, dirty pages of files are passed over before they are taken: `shrink_generations` asks.
    wake_flushers_if_all_dirty(cx, shrunk.nr_taken, shrunk.nr_unqueued_dirty);
    let refused_all = shrunk.nr_found_dirty > 0 && shrunk.nr_found_dirty == shrunk.nr_refused;
    if refused_all && cx.world().flows.stall.zone_congested == ZoneCongested::AllRefused {
        cx.world().lru_flags[lruvec.index()].congested = true;
    }
    remember_mode(cx.world(), scan, &shrunk);
    note_isolation(cx, &shrunk);
    let first = note_writes(cx, scan, &shrunk, false);
    let is_sync = look_again(cx, lruvec, scan, plug, &mut shrunk);
    if let Some(pass) = first {
        note_shrunk(cx, lruvec, scan, &shrunk, WritePass { is_sync, ..pass });
    }
    match cx.world().flows.stall.rule {
        StallRule::CongestionByShare => wait_for_writeback(cx, lruvec, scan, plug, &shrunk),
        StallRule::Congestion => judge_step(cx, lruvec, scan, plug, &shrunk),
        StallRule::Throttle => {}
    }
    batch.add(&shrunk);
    by_going_on
}

/// Spends the time in which a huge page of a process was split: each of its parts becomes a page of its own, and is
/// mapped anew. Meanwhile the process's mappings are locked: whoever splits another of its pages waits until they are free,
/// and goes on just when the first comes to the parts of its own, which it then finds locked in its turn. Suspends.
///
/// Models: `split_huge_page_to_list_to_order`, mm/huge_memory.c, v6.12. A guest of it in QEMU (tcg) takes 1 to 2 ms for most,
/// which its costs come to; the others waited for the lock or for a CPU.
#[doc(alias = "split_huge_page_to_list_to_order")]
pub(crate) fn spend_split(cx: &mut KernelCx<'_>, process: ProcessId, plug: &mut Plug) {
    const PARTS: u64 = PTRS_PER_TABLE as u64;
    while !cx.world().memory.try_lock_mappings(process) {
        wait_for_mappings(cx, process, plug);
    }
    let kernel = cx.world();
    let costs = &kernel.costs;
    let time = costs.list_op.times(PARTS) + costs.rmap_walk.times(PARTS);
    cx.spend(time, Mode::System);
    cx.world().memory.unlock_mappings(process);
    let queue = cx.world().mappings_wait;
    cx.wake_all(queue);
}

/// Waits until a process's mappings are free, if they are not. Suspends.
fn wait_for_mappings(cx: &mut KernelCx<'_>, process: ProcessId, plug: &mut Plug) {
    while cx.world().memory.are_mappings_locked(process) {
        swap::hand_over(cx, plug);
        // They may have become free meanwhile.
        if cx.world().memory.are_mappings_locked(process) {
            let queue = cx.world().mappings_wait;
            cx.wait(queue);
        }
    }
}

/// Tells what a step took off its list.
fn note_isolation(cx: &mut KernelCx<'_>, shrunk: &Shrunk) {
    if let Some(isolation) = shrunk.isolation {
        let has_lumps = cx.world().memory.policy.reclaim.lumpy != LumpyIsolation::Never;
        trace::note_reclaim(cx, ReclaimEvent::LruIsolate { isolation, has_lumps });
    }
}

/// Counts and tells which pages a step of inactive ones gave to devices, and returns how it was done.
fn note_writes(
    cx: &mut KernelCx<'_>,
    scan: &Scan,
    shrunk: &Shrunk,
    is_sync: bool,
) -> Option<WritePass> {
    let list = shrunk.isolation.map(|isolation| isolation.list).filter(|list| !list.is_active());
    let anon = shrunk.writes.iter().map(|io| (io.pfn, false));
    for (pfn, is_file) in anon.chain(shrunk.file_writes.iter().map(|&pfn| (pfn, true))) {
        let pass = WritePass { is_file, is_sync };
        cx.world().reclaim_writes.add(scan.waiter(), pass);
        trace::note_reclaim(cx, ReclaimEvent::WritePage { pfn, pass });
    }
    list.map(|list| WritePass { is_file: list.is_file(), is_sync })
}

/// Tells what a step of inactive pages came to.
fn note_shrunk(
    cx: &mut KernelCx<'_>,
    lruvec: LruvecId,
    scan: &Scan,
    shrunk: &Shrunk,
    pass: WritePass,
) {
    let Shrunk { nr_taken, nr_reclaimed, .. } = *shrunk;
    let Some(isolation) = shrunk.isolation.filter(|_| nr_taken > 0) else { return };
    let kernel = cx.world();
    let id = kernel.zone_of_lists(lruvec);
    let zone = &kernel.memory.zones[id.index()];
    let event = ReclaimEvent::ShrinkInactive {
        node: zone.node,
        zone: zone.kind,
        nr_scanned: isolation.nr_scanned,
        nr_reclaimed,
        priority: scan.control.priority,
        pass,
    };
    trace::note_reclaim(cx, event);
}

/// What a step leaves of what reclaim is about: ageing ends it in 3.4 (`shrink_active_list`).
fn remember_mode(kernel: &Kernel, scan: &mut Scan, shrunk: &Shrunk) {
    let was_active = shrunk.isolation.is_some_and(|isolation| isolation.list.is_active());
    if shrunk.mode.is_some() {
        scan.mode = shrunk.mode;
    } else if was_active && kernel.flows.direct.continues == Continues::UntilKeptOrAged {
        scan.mode = Some(ReclaimMode::Single);
    }
}

/// Waits for the pages of a batch that are being written, where the kernel does, and decides about them once more.
/// Whether it did, and found nothing else in its way. Suspends.
fn look_again(
    cx: &mut KernelCx<'_>,
    lruvec: LruvecId,
    scan: &mut Scan,
    plug: &mut Plug,
    shrunk: &mut Shrunk,
) -> bool {
    let mut has_looked = false;
    let mut pages = std::mem::take(&mut shrunk.in_writeback).into_iter();
    while let Some(mode) = scan.mode
        && cx.world().flows.stall.sync_pass
        && cx.world().memory.stalls(&scan.control, mode)
        && let Some(pfn) = pages.next()
    {
        has_looked = true;
        if scan.control.may_io {
            swap::hand_over(cx, plug);
            throttle::wait_on_writeback(cx, pfn);
        }
        prepare(cx, lruvec, scan);
        let Some(again) = cx.world().memory.shrink_page_again(lruvec, pfn, &scan.control, mode)
        else {
            continue;
        };
        let zone = cx.world().zone_of_lists(lruvec);
        scan.nr_reclaimed += again.nr_reclaimed;
        spend_work(cx, zone);
        slab::note_freed_files(cx, &again.freed_files);
        note_writes(cx, scan, &again, true);
        for &io in &again.writes {
            swap::write_page(cx, plug, io);
        }
        scan.mode = again.mode;
        shrunk.nr_reclaimed += again.nr_reclaimed;
    }
    has_looked && scan.mode != Some(ReclaimMode::Single)
}

/// What kernels before 3.11 conclude from every 32 pages: the higher the pressure, the fewer of them have to
/// be under writeback.
fn wait_for_writeback(
    cx: &mut KernelCx<'_>,
    lruvec: LruvecId,
    scan: &Scan,
    plug: &mut Plug,
    shrunk: &Shrunk,
) {
    let share = shrunk.nr_taken >> (DEF_PRIORITY - scan.control.priority);
    if shrunk.nr_writeback > 0 && shrunk.nr_writeback >= share {
        wait_iff_congested(cx, lruvec, scan, plug);
    }
}

/// Whoever is to sleep hands over what it holds before that.
fn wait_iff_congested(cx: &mut KernelCx<'_>, lruvec: LruvecId, scan: &Scan, plug: &mut Plug) {
    if throttle::is_congested(cx, lruvec) {
        swap::hand_over(cx, plug);
    }
    throttle::wait_iff_congested(cx, lruvec, TENTH, scan.waiter());
}

/// What kernels before 4.18 or so conclude from every 32 pages.
fn judge_step(
    cx: &mut KernelCx<'_>,
    lruvec: LruvecId,
    scan: &Scan,
    plug: &mut Plug,
    shrunk: &Shrunk,
) {
    let flags = &mut cx.world().lru_flags[lruvec.index()];
    if shrunk.nr_taken > 0 {
        flags.writeback |= shrunk.nr_writeback == shrunk.nr_taken;
        flags.dirty |= shrunk.nr_unqueued_dirty == shrunk.nr_taken;
    }
    if shrunk.nr_immediate > 0 {
        swap::hand_over(cx, plug);
        throttle::congestion_wait(cx, scan.waiter());
    }
    if !scan.is_kswapd() && shrunk.nr_taken > 0 {
        wait_iff_congested(cx, lruvec, scan, plug);
    }
}

/// What one look through a node's lists met.
#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    nr_taken: u64,
    nr_writeback: u64,
    nr_unqueued_dirty: u64,
    nr_immediate: u64,
    nr_reclaimed: u64,
}

impl Batch {
    fn add(&mut self, shrunk: &Shrunk) {
        self.nr_taken += shrunk.nr_taken;
        self.nr_writeback += shrunk.nr_writeback;
        self.nr_unqueued_dirty += shrunk.nr_unqueued_dirty;
        self.nr_immediate += shrunk.nr_immediate;
        self.nr_reclaimed += shrunk.nr_reclaimed;
    }

    /// What newer kernels conclude once the node was looked through.
    fn judge_node(self, cx: &mut KernelCx<'_>, lruvec: LruvecId, scan: &Scan) {
        let kernel = cx.world();
        let node = kernel.memory.lru.lruvecs[lruvec].node;
        if kernel.flows.stall.rule != StallRule::Throttle || !scan.is_kswapd() {
            return;
        }
        let flags = &mut kernel.lru_flags[lruvec.index()];
        if self.nr_taken > 0 {
            flags.writeback |= self.nr_writeback == self.nr_taken;
            flags.dirty |= self.nr_unqueued_dirty == self.nr_taken;
        }
        if self.nr_immediate > 0 {
            throttle::reclaim_throttle(cx, node, throttle::Reason::Writeback);
        }
    }
}

impl Kernel {
    /// The highest zone that some LRU lists belong to.
    pub(crate) fn zone_of_lists(&self, lruvec: LruvecId) -> ZoneId {
        let mut zones = (0..self.memory.zones.len()).rev().map(|zone| ZoneId(zone as u8));
        zones.find(|&id| self.memory.lru.of_zone(id) == lruvec).expect("lists belong to a zone")
    }

    /// The zones up to `highest_zoneidx` with memory that some LRU lists belong to, lowest first.
    pub(crate) fn zones_of_lists(
        &self,
        lruvec: LruvecId,
        highest_zoneidx: ZoneKind,
    ) -> impl Iterator<Item = ZoneId> + '_ {
        let node = self.memory.lru.lruvecs[lruvec].node;
        self.zones_of(node, highest_zoneidx)
            .filter(move |&id| self.memory.lru.of_zone(id) == lruvec)
    }

    /// The highest zone whose requests reclaim has in mind when it asks whether compaction has room: the lowest before 4.7,
    /// whatever the request could use, so that what other zones keep for it does not count (`compaction_ready`,
    /// `should_continue_reclaim`, mm/vmscan.c, v4.4).
    pub(crate) fn zone_that_compaction_is_asked_for(&self, highest_zoneidx: ZoneKind) -> ZoneKind {
        match self.memory.policy.lru.scope {
            LruScope::Zone => ZoneKind::Dma,
            LruScope::Node => highest_zoneidx,
        }
    }

    /// Whether reclaim leaves a zone alone but at the lowest pressure.
    pub(crate) fn is_given_up(&self, lruvec: LruvecId) -> bool {
        if !self.flows.kswapd.marks_unreclaimable {
            return !self.is_reclaimable(lruvec);
        }
        let zone = self.memory.lru.lruvecs[lruvec].zone;
        zone.is_some_and(|zone| self.memory.zones[zone.index()].flags.all_unreclaimable)
    }

    /// Whether there is hope for a zone: less was scanned in vain than six times what is reclaimable
    /// (`zone_reclaimable`, before 4.12).
    pub(crate) fn is_reclaimable(&self, lruvec: LruvecId) -> bool {
        self.memory.lru.lruvecs[lruvec].pages_scanned < self.memory.reclaimable_pages(lruvec) * 6
    }
}

/// Priorities below this write pages whatever the mode (`DEF_PRIORITY - 2`).
pub(crate) const WRITES_BELOW: u8 = DEF_PRIORITY - 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_begins_where_what_is_looked_at_is_what_is_asked_for() {
        // 2^18 pages, of which a 2^7th is 2^11.
        assert_eq!(priority_for(1 << 18, 1 << 11), 7);
        // Rounded down here, and up there: half as many pages, or one more asked for.
        assert_eq!(priority_for((1 << 18) - 1, 1 << 11), 6);
        assert_eq!(priority_for(1 << 18, (1 << 11) + 1), 6);
        // Neither above the least pressure nor below half of it.
        assert_eq!(priority_for(1 << 30, 64), DEF_PRIORITY);
        assert_eq!(priority_for(0, 1 << 11), DEF_PRIORITY / 2);
    }
}
