//! Compaction: moving pages to one end of a zone, so that the other becomes free in large blocks.
//!
//! Models: mm/compaction.c, v6.12, v6.1, v5.1, v4.14, v4.4 and v3.4 (`compact_zone`, `__compact_finished`,
//! `release_freepages`, `compaction_capture`); the two forms of free pages straight from the lists as they
//! were posted in November 2017.
//! Departs: counters of frames scanned move with each step, not at the end of a run. A captured block is
//! kept by frees of the run's own steps alone, not by those of interrupts in between. Visible as: a vmstat
//! read during a run shows its scans already.
//!
//! Two scanners go through a zone: one upwards for pages that can be moved ([`migrate_scanner`]), one downwards for
//! free pages to move them to ([`free_scanner`]). [`suitable`] says whether a run is worth while, and for how
//! long another is deferred.
//!
//! A run is a row of steps ([`Memory::compact_step`]), between which anything may happen to memory: the flow
//! above spends each step's time, waits where it is told to, and says by [`CompactRun::contended`] when
//! another had a lock or the CPU is wanted.

pub mod events;
pub mod free_scanner;
pub mod migrate_scanner;
pub mod suitable;

use crate::fast_search::{CompactControl, FastIsolated, MigrateMode};
use crate::frame::State;
use crate::gfp::{AllocFlags, Gfp};
use crate::memory::Memory;
use crate::migrate::{MIGRATE_PASSES, MIGRATE_PASSES_UNFORCED, Obstacle};
use crate::policy::{
    CompactCounters, Contention, FallbackRule, Finish, FlushBy, FreeScan, Positions, Rescan,
};
use crate::tlb::TlbUsers;
use crate::types::{CpuId, Migratetype, Order, Pfn, ZoneKind};
use crate::vmstat::Vm;
use crate::watermark::Mark;
use crate::zone::ZoneId;
use events::{CompactEvent, Scanners};
use free_scanner::{FreePool, FreeWalk};
use std_alloc::vec::Vec;

/// What became of a run, the best last (`enum compact_result`; `COMPACT_PARTIAL` before 4.8 is
/// [`Self::Success`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CompactResult {
    /// Not begun: the failure is for want of memory. Reported as [`Self::Skipped`].
    NotSuitableZone,
    /// Not begun: too little is free.
    Skipped,
    /// Not begun: runs have failed lately.
    Deferred,
    /// No block is free yet. Acted upon as [`Self::Continue`].
    NoSuitablePage,
    /// It goes on.
    Continue,
    /// The scanners met, from the zone's start on.
    Complete,
    /// The scanners met, having begun elsewhere.
    PartialSkipped,
    /// It was broken off: others wanted the lock or the CPU, or there were no free pages.
    Contended,
    /// There is a block.
    Success,
}

/// Who compacts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compactor {
    /// Who needs the block.
    Direct,
    /// kcompactd, for the order it was woken with.
    Kcompactd,
    /// kcompactd, since the zone is fragmented.
    Proactive,
    /// kswapd (before 4.6).
    Kswapd,
    /// User space, through `compact_memory`.
    User,
}

/// What is wanted of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompactRequest {
    /// The zone.
    pub zone: ZoneId,
    /// The order wanted; `None` to compact all there is (-1).
    pub order: Option<Order>,
    /// The request's flags.
    pub gfp: Gfp,
    /// How hard it tries.
    pub mode: MigrateMode,
    /// Who compacts.
    pub who: Compactor,
    /// On which CPU.
    pub cpu: CpuId,
    /// The mark at which the request looks for a block (`alloc_flags`).
    pub mark: Mark,
    /// With which flags.
    pub flags: AllocFlags,
    /// The highest zone that is of use.
    pub highest_zoneidx: ZoneKind,
    /// From the zone's ends instead of where the last run stopped.
    pub whole_zone: bool,
    /// Pageblocks are scanned even if that was in vain the last time.
    pub ignore_skip_hint: bool,
    /// Any pageblock may be filled.
    pub ignore_block_suitable: bool,
}

impl CompactRequest {
    /// Direct compaction for a request. `full` is the last resort from 4.8 on (`COMPACT_PRIO_SYNC_FULL`): the
    /// whole zone, whatever is known of it.
    #[must_use]
    pub const fn direct(
        zone: ZoneId,
        order: Order,
        gfp: Gfp,
        mode: MigrateMode,
        cpu: CpuId,
        full: bool,
    ) -> Self {
        Self {
            zone,
            order: Some(order),
            gfp,
            mode,
            who: Compactor::Direct,
            cpu,
            mark: Mark::Min,
            flags: AllocFlags::slow_path(gfp, order),
            highest_zoneidx: gfp.highest_zone(),
            whole_zone: full,
            ignore_skip_hint: full,
            ignore_block_suitable: full,
        }
    }

    /// kcompactd's work for the order it was woken with.
    #[must_use]
    pub const fn kcompactd(
        memory: &Memory,
        zone: ZoneId,
        order: Order,
        highest_zoneidx: ZoneKind,
        cpu: CpuId,
    ) -> Self {
        Self {
            order: Some(order),
            mode: MigrateMode::SyncLight,
            who: Compactor::Kcompactd,
            highest_zoneidx,
            whole_zone: false,
            ignore_skip_hint: memory.policy.compaction.kcompactd_ignores_hints,
            ..Self::user(zone, cpu)
        }
    }

    /// kswapd's compaction after a round for a high order (before 4.6).
    #[must_use]
    pub const fn kswapd(zone: ZoneId, order: Order, cpu: CpuId) -> Self {
        Self {
            order: Some(order),
            mode: MigrateMode::Async,
            who: Compactor::Kswapd,
            whole_zone: false,
            ignore_skip_hint: false,
            ..Self::user(zone, cpu)
        }
    }

    /// kcompactd's work on a fragmented zone.
    #[must_use]
    pub const fn proactive(zone: ZoneId, cpu: CpuId) -> Self {
        Self { mode: MigrateMode::SyncLight, who: Compactor::Proactive, ..Self::user(zone, cpu) }
    }

    /// All of a zone, for user space.
    #[must_use]
    pub const fn user(zone: ZoneId, cpu: CpuId) -> Self {
        Self {
            zone,
            order: None,
            gfp: Gfp::KERNEL,
            mode: MigrateMode::Sync,
            who: Compactor::User,
            cpu,
            mark: Mark::Min,
            flags: AllocFlags::NONE,
            highest_zoneidx: ZoneKind::Dma,
            whole_zone: true,
            ignore_skip_hint: true,
            ignore_block_suitable: false,
        }
    }
}

/// A block that the task whose step this is would keep when it frees it (`struct capture_control`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Capture {
    zone: ZoneId,
    order: Order,
    migratetype: Migratetype,
    block: Option<Pfn>,
}

/// What a scan of a part of a pageblock did, as its event tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scanned {
    /// First frame.
    pub start: u32,
    /// One past the last frame.
    pub end: u32,
    /// Frames that count as scanned.
    pub nr_scanned: u32,
    /// Pages isolated.
    pub nr_taken: u32,
}

/// A page that has moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    /// Where its content was.
    pub from: Pfn,
    /// Where it is.
    pub to: Pfn,
    /// Its size.
    pub order: Order,
}

/// What a batch came to, or the part of it that a step did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Migrated {
    /// Pages that moved, in order.
    pub moved: Vec<Moved>,
    /// Whether the batch is over.
    pub is_over: bool,
    /// Base pages of the whole batch that moved, or were found free; once it is over.
    pub nr_succeeded: u32,
    /// Base pages of the whole batch that stay where they are; once it is over.
    pub nr_failed: u32,
}

/// What a step did, or what the run waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompactStep {
    /// Asked whether the run is done: this, before it is turned into going on or not.
    Finished(CompactResult),
    /// Looked for pages to move.
    IsolatedMigratepages(Scanned),
    /// Searched the free lists for pages to move to.
    FastIsolated(FastIsolated),
    /// Looked for free pages in a part of a pageblock.
    IsolatedFreepages(Scanned),
    /// Took free pages from the lists: so many pages, and so many that were of no use.
    TookFreepages {
        /// Pages to move to.
        nr_taken: u32,
        /// Pages held, or blocks passed over, as they are of the block that is being emptied.
        nr_missed: u32,
    },
    /// Moved pages.
    Migrated(Migrated),
    /// Gave the CPU's lists back to the free lists, so that what was freed merges.
    Drained,
    /// Nothing that the layer above could see.
    Nothing,
    /// Too many pages are isolated: to be tried again when there are fewer, a tenth of a second later at most.
    TooManyIsolated,
    /// A page is in the way; to be tried again when it no longer is.
    WaitOnPage(Pfn, Obstacle),
    /// The run is over.
    Done(CompactResult),
}

/// Where a run stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Check,
    Isolate,
    Migrate,
    FindFree,
    /// A search has found something here: the rest of its pageblock is next.
    Around(Pfn),
    Walk(FreeWalk),
    CheckDrain,
    /// The next step ends the run.
    End(CompactResult),
    Over(CompactResult),
}

/// The batch of pages being moved.
#[derive(Clone, Debug, Default)]
struct Batch {
    /// Still to be tried, the next one last.
    migratepages: Vec<Pfn>,
    /// With the free pages that they go to, still to be moved.
    paired: Vec<(Pfn, Pfn)>,
    /// To be tried again.
    again: Vec<Pfn>,
    /// To stay where they are.
    failed: Vec<Pfn>,
    passes: u32,
    nr_succeeded: u32,
    /// There are no free pages to move to.
    is_short: bool,
    /// One step's worth of moves.
    moved: Vec<Moved>,
}

/// One run on a zone (`struct compact_control`).
#[derive(Clone, Debug)]
pub struct CompactRun {
    /// What was asked for.
    pub request: CompactRequest,
    /// Where the scanners are.
    pub cc: CompactControl,
    /// Another had the lock, the CPU is wanted, or a fatal signal came: to be set by the flow.
    pub contended: bool,
    /// The block that the run kept for the request. Whoever is told that the run is over takes it.
    pub captured: Option<Pfn>,
    /// Frames that the migrate scanner passed.
    pub nr_migrate_scanned: u64,
    /// Frames that the free scanner passed.
    pub nr_free_scanned: u64,
    phase: Phase,
    whole_zone: bool,
    batch: Batch,
    freepages: FreePool,
    /// Pages of the block that is being emptied, kept off the lists until it is.
    held: Vec<Pfn>,
    last_migrated_pfn: Option<Pfn>,
    /// Where the scanner stood when this round began.
    round_start: Pfn,
    update_cached: bool,
    /// The next scan follows a failure, within the same round.
    is_rescan: bool,
    /// Pages were moved since the last look for a captured block.
    just_migrated: bool,
    /// A claim would serve, once the pageblock is finished.
    finishing_block: bool,
    /// The end of the pageblock that is to be emptied, and no other.
    only_until: Option<Pfn>,
}

impl CompactRun {
    /// Whether the run is over.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(_))
    }

    /// Pages that the run holds: isolated to be moved; free, to move to; of the block that is being emptied.
    #[must_use]
    pub fn nr_held(&self) -> [usize; 3] {
        let batch = &self.batch;
        let isolated =
            batch.migratepages.len() + batch.paired.len() + batch.again.len() + batch.failed.len();
        [isolated, self.freepages.nr_pages() + batch.paired.len(), self.held.len()]
    }

    fn is_brief(&self) -> bool {
        self.cc.direct_compaction && self.cc.mode == MigrateMode::Async
    }

    fn order_pages(&self) -> u32 {
        self.cc.order.map_or(1, Order::pages)
    }
}

/// The first frame of the aligned block of `pages`, a power of two, that holds `pfn`.
const fn block_start(pfn: Pfn, pages: u32) -> Pfn {
    Pfn(pfn.0 & !(pages - 1))
}

/// One past the last frame of that block.
const fn block_end(pfn: Pfn, pages: u32) -> Pfn {
    Pfn((pfn.0 | (pages - 1)) + 1)
}

impl Memory {
    #[inline]
    pub(crate) const fn pageblock_pages(&self) -> u32 {
        self.policy.freelist.pageblock_order.pages()
    }

    /// The first frame of a zone's last pageblock: where the free scanner begins.
    fn last_block(&self, id: ZoneId) -> Pfn {
        let zone = &self.zones[id.index()];
        block_start(zone.end - 1, self.pageblock_pages()).max(zone.start)
    }

    /// Begins a run.
    ///
    /// # Errors
    /// [`CompactResult::Success`] if there is a block already, [`CompactResult::Skipped`] if it would be in
    /// vain.
    pub fn begin_compaction(
        &mut self,
        request: CompactRequest,
    ) -> Result<CompactRun, CompactResult> {
        let id = request.zone;
        if let Some(order) = request.order {
            let CompactRequest { mark, flags, highest_zoneidx, .. } = request;
            let suitable = self.compaction_suitable(id, order, mark, flags, highest_zoneidx);
            self.note_suitable(id, Some(order), suitable);
            match suitable {
                CompactResult::Continue => {}
                CompactResult::NotSuitableZone => return Err(CompactResult::Skipped),
                result => return Err(result),
            }
            if request.who != Compactor::Kswapd && self.compaction_restarting(id, order) {
                match self.policy.compaction.sampled_reset {
                    true => self.reset_isolation_suitable(id),
                    false => self.reset_all_isolation_hints(id),
                }
            }
        } else {
            self.note_suitable(id, None, CompactResult::Continue);
            if request.who == Compactor::User && !self.policy.compaction.sampled_reset {
                self.reset_all_isolation_hints(id);
            }
        }
        let policy = self.policy.compaction;
        let is_sync = request.mode != MigrateMode::Async;
        let last_block = self.last_block(id);
        let zone = &mut self.zones[id.index()];
        let (start, end) = (zone.start, zone.end);
        let mut whole_zone = request.whole_zone;
        let (mut migrate_pfn, mut free_pfn) = (start, last_block);
        if policy.positions == Positions::None {
            whole_zone = true;
        } else if !whole_zone {
            let compact = &mut zone.compact;
            migrate_pfn = compact.cached_migrate_pfn[usize::from(is_sync)];
            free_pfn = compact.cached_free_pfn;
            // 0 is no position yet: no machine's memory begins there, but a small one of ours may.
            if free_pfn < start || free_pfn >= end || free_pfn == Pfn(0) {
                free_pfn = last_block;
                compact.cached_free_pfn = free_pfn;
            }
            if migrate_pfn < start || migrate_pfn >= end {
                migrate_pfn = start;
                compact.cached_migrate_pfn = [start; 2];
            }
            whole_zone = match policy.sampled_reset {
                true => migrate_pfn <= compact.init_migrate_pfn,
                false => migrate_pfn == start,
            };
        }
        let cached = zone.compact.cached_migrate_pfn;
        let mut cc = CompactControl::new(id, request.order, request.mode, migrate_pfn, free_pfn);
        cc.migratetype = self.request_type(request.gfp);
        cc.direct_compaction = request.who == Compactor::Direct;
        cc.ignore_skip_hint = request.ignore_skip_hint;
        self.note_compact(CompactEvent::Begin(Scanners {
            zone: id,
            migrate_pfn,
            free_pfn,
            is_sync,
        }));
        self.lru_add_drain(request.cpu);
        Ok(CompactRun {
            request,
            cc,
            contended: false,
            captured: None,
            nr_migrate_scanned: 0,
            nr_free_scanned: 0,
            phase: Phase::Check,
            whole_zone,
            batch: Batch::default(),
            freepages: FreePool::default(),
            held: Vec::new(),
            last_migrated_pfn: None,
            round_start: migrate_pfn,
            update_cached: policy.positions == Positions::Together
                && !is_sync
                && cached[0] == cached[1],
            is_rescan: false,
            just_migrated: false,
            finishing_block: false,
            only_until: None,
        })
    }

    /// Begins a run that empties one pageblock, whatever is known of it, and remembers nothing.
    #[must_use]
    pub fn begin_emptying(&mut self, id: ZoneId, block: Pfn, cpu: CpuId) -> CompactRun {
        let request = CompactRequest { who: Compactor::Kcompactd, ..CompactRequest::user(id, cpu) };
        let Ok(mut run) = self.begin_compaction(request) else {
            unreachable!("no order is asked for, so nothing can be in vain")
        };
        run.cc.migrate_pfn = block.max(self.zones[id.index()].start);
        run.round_start = run.cc.migrate_pfn;
        run.only_until = Some(block_end(block, self.pageblock_pages()));
        run
    }

    /// Takes the next step of a run.
    ///
    /// # Panics
    /// If it is over.
    pub fn compact_step(&mut self, run: &mut CompactRun) -> CompactStep {
        let captures =
            self.policy.compaction.capture && run.cc.direct_compaction && run.captured.is_none();
        if let Some(order) = run.cc.order.filter(|_| captures) {
            let (zone, migratetype) = (run.cc.zone, run.cc.migratetype);
            self.capture = Some(Capture { zone, order, migratetype, block: None });
        }
        let step = match run.phase {
            Phase::Check => self.check_step(run),
            Phase::Isolate => self.isolate_step(run),
            Phase::Migrate => self.migrate_step(run),
            Phase::FindFree => self.find_free_pages(run),
            Phase::Around(pfn) => self.isolate_around(run, pfn),
            Phase::Walk(walk) => self.walk_step(run, walk),
            Phase::CheckDrain => self.check_drain(run),
            Phase::End(result) => self.end_compaction(run, result),
            Phase::Over(_) => panic!("a run that is over takes no steps"),
        };
        if let Some(capture) = self.capture.take() {
            run.captured = run.captured.or(capture.block);
        }
        if let (CompactStep::Done(_), Some(_)) = (&step, run.captured) {
            run.phase = Phase::Over(CompactResult::Success);
            return CompactStep::Done(CompactResult::Success);
        }
        step
    }

    /// Takes all steps of a run at once, for those who have no time. What it would wait for does not
    /// come: it is broken off there.
    pub fn compact_zone(&mut self, request: CompactRequest) -> (CompactResult, Option<Pfn>) {
        let mut run = match self.begin_compaction(request) {
            Ok(run) => run,
            Err(result) => return (result, None),
        };
        loop {
            match self.compact_step(&mut run) {
                CompactStep::Done(result) => return (result, run.captured),
                CompactStep::TooManyIsolated => run.contended = true,
                CompactStep::WaitOnPage(..) => run.batch.passes = MIGRATE_PASSES,
                _ => {}
            }
        }
    }

    /// Whether a block that is just freed is the one a compaction works for (`compaction_capture`); then it
    /// is the compactor's, and never reaches a list.
    #[doc(alias = "compaction_capture")]
    pub(crate) fn capture_block(
        &mut self,
        id: ZoneId,
        pfn: Pfn,
        order: Order,
        migratetype: Migratetype,
    ) -> bool {
        let Some(capture) = &mut self.capture else { return false };
        let pollutes = order < self.policy.freelist.pageblock_order
            && migratetype == Migratetype::Movable
            && capture.migratetype != Migratetype::Movable;
        if capture.zone != id
            || capture.order != order
            || capture.block.is_some()
            || matches!(migratetype, Migratetype::Cma | Migratetype::Isolate)
            || pollutes
        {
            return false;
        }
        capture.block = Some(pfn);
        let wanted = capture.migratetype;
        self.zones[id.index()].account_free(-i64::from(order.pages()), migratetype);
        self.frames.set(pfn, State::Allocated, order, wanted);
        self.frames.set_movable(pfn, wanted == Migratetype::Movable);
        true
    }

    /// Whether the free scanner has come to the migrate scanner's pageblock (`compact_scanners_met`).
    fn scanners_met(&self, run: &CompactRun) -> bool {
        let cc = &run.cc;
        if self.policy.compaction.free_scan == FreeScan::WholeBlocks {
            return cc.free_pfn <= cc.migrate_pfn;
        }
        let pages = self.pageblock_pages();
        cc.free_pfn.0 / pages <= cc.migrate_pfn.0 / pages
    }

    /// Whether the run is done, and if not, how the next round begins.
    fn check_step(&mut self, run: &mut CompactRun) -> CompactStep {
        let result = self.compact_finished(run);
        self.note_compact(CompactEvent::Finished(run.cc.zone, run.cc.order, result));
        if !matches!(result, CompactResult::Continue | CompactResult::NoSuitablePage) {
            return self.end_compaction(run, result);
        }
        let pages = self.pageblock_pages();
        run.round_start = run.cc.migrate_pfn;
        run.cc.finish_pageblock = self.policy.compaction.rescan != Rescan::Plain
            && run.last_migrated_pfn.is_some_and(|pfn| pfn.0 / pages == run.round_start.0 / pages);
        run.is_rescan = false;
        run.phase = Phase::Isolate;
        CompactStep::Finished(result)
    }

    /// Whether the run is done (`__compact_finished`).
    #[doc(alias = "__compact_finished")]
    fn compact_finished(&mut self, run: &mut CompactRun) -> CompactResult {
        let policy = self.policy.compaction;
        let is_old = matches!(policy.finish, Finish::MarkAndType | Finish::MarkAndClaim);
        let breaks_off = run.contended;
        if breaks_off && (is_old || policy.contention == Contention::Abort) {
            return CompactResult::Contended;
        }
        let id = run.cc.zone;
        if run.only_until.is_some_and(|end| run.cc.migrate_pfn >= end || self.scanners_met(run)) {
            return CompactResult::Complete;
        }
        if self.scanners_met(run) {
            let last_block = self.last_block(id);
            let zone = &mut self.zones[id.index()];
            zone.compact.cached_migrate_pfn = [zone.start; 2];
            zone.compact.cached_free_pfn = last_block;
            zone.compact.blockskip_flush |= match policy.flush_by {
                FlushBy::AllButKswapd => run.request.who != Compactor::Kswapd,
                FlushBy::Direct => run.request.who == Compactor::Direct,
            };
            return match run.whole_zone || is_old {
                true => CompactResult::Complete,
                false => CompactResult::PartialSkipped,
            };
        }
        let result = if run.request.who == Compactor::Proactive {
            let kswapd_runs = self
                .zones
                .iter()
                .any(|zone| zone.node == self.zones[id.index()].node && zone.flags.reclaim_active);
            if kswapd_runs {
                return CompactResult::PartialSkipped;
            }
            match self.fragmentation_score(id) > self.fragmentation_mark(Mark::Low) {
                true => CompactResult::Continue,
                false => CompactResult::Success,
            }
        } else if let Some(order) = run.cc.order {
            match self.is_block_free(run, order) {
                CompactResult::Success => return CompactResult::Success,
                result => result,
            }
        } else {
            CompactResult::Continue
        };
        if breaks_off { CompactResult::Contended } else { result }
    }

    /// Whether there is a block that the request would get.
    fn is_block_free(&mut self, run: &mut CompactRun, order: Order) -> CompactResult {
        let policy = self.policy.compaction;
        let id = run.cc.zone;
        let zone = &self.zones[id.index()];
        let between_blocks =
            block_start(run.cc.migrate_pfn, self.pageblock_pages()) == run.cc.migrate_pfn;
        let low = zone.watermarks.pages(Mark::Low);
        let CompactRequest { flags, highest_zoneidx, .. } = run.request;
        match policy.finish {
            Finish::MarkAndType => {
                let mark = low + u64::from(order.pages());
                if !self.watermark_ok(id, order, mark, ZoneKind::Dma, AllocFlags::NONE) {
                    return CompactResult::Continue;
                }
            }
            Finish::MarkAndClaim => {
                if !self.watermark_ok(id, order, low, highest_zoneidx, flags) {
                    return CompactResult::Continue;
                }
            }
            Finish::TypeOrClaim => {
                if core::mem::take(&mut run.finishing_block) && !between_blocks {
                    run.finishing_block = true;
                    return CompactResult::Continue;
                }
            }
            Finish::BetweenBlocks => {
                if !between_blocks {
                    return CompactResult::Continue;
                }
            }
        }
        let migratetype = run.cc.migratetype;
        for order in (order.0..=self.policy.freelist.max_order.0).map(Order) {
            let area = &self.zones[id.index()].free_area;
            let has = |migratetype| !area.list(order, migratetype).is_empty();
            if has(migratetype) {
                return CompactResult::Success;
            }
            if policy.finish == Finish::MarkAndType {
                if order >= self.policy.freelist.pageblock_order && area.nr_free(order) > 0 {
                    return CompactResult::Success;
                }
                continue;
            }
            if migratetype == Migratetype::Movable && has(Migratetype::Cma) {
                return CompactResult::Success;
            }
            let would_claim = self.policy.fallback.rule != FallbackRule::Never
                && self.may_claim_block(order, migratetype)
                && self.find_fallback(id, order, migratetype).is_some();
            if would_claim {
                let is_whole = policy.finish != Finish::TypeOrClaim
                    || migratetype == Migratetype::Movable
                    || run.cc.mode == MigrateMode::Async
                    || between_blocks;
                if is_whole {
                    return CompactResult::Success;
                }
                run.finishing_block = true;
                return CompactResult::Continue;
            }
        }
        CompactResult::NoSuitablePage
    }

    /// Looks for pages to move.
    fn isolate_step(&mut self, run: &mut CompactRun) -> CompactStep {
        if self.too_many_isolated_for(run) {
            if run.cc.mode == MigrateMode::Async || !run.batch.migratepages.is_empty() {
                return self.abort_isolation(run);
            }
            if run.contended {
                return self.abort_isolation(run);
            }
            return CompactStep::TooManyIsolated;
        }
        let scanned = self.isolate_migratepages(run);
        run.nr_migrate_scanned += u64::from(scanned.nr_scanned);
        self.count_scanned(run, Vm::CompactMigrateScanned, scanned.nr_scanned);
        self.vm.add(Vm::CompactIsolated, u64::from(scanned.nr_taken));
        let policy = self.policy.compaction;
        if run.cc.nr_migratepages == 0 {
            if policy.counters == CompactCounters::Moved && scanned.start < scanned.end {
                // An empty batch is moved like any other.
                self.note_batch(0, 0);
            }
            if run.update_cached {
                let cached = &mut self.zones[run.cc.zone.index()].compact.cached_migrate_pfn;
                cached[1] = cached[0];
            }
            run.phase = Phase::CheckDrain;
        } else {
            run.update_cached = false;
            run.batch.passes = 0;
            run.phase = Phase::Migrate;
            self.note_compact(CompactEvent::MigratePagesStart(run.cc.mode));
            let pages = self.pageblock_pages();
            match policy.rescan {
                Rescan::Plain => {
                    run.last_migrated_pfn.get_or_insert(Pfn(scanned.start));
                }
                Rescan::Whole => run.last_migrated_pfn = Some(run.round_start),
                Rescan::AfterFailure => {
                    let block = block_start(run.cc.migrate_pfn - 1, pages);
                    let start = self.zones[run.cc.zone.index()].start;
                    run.last_migrated_pfn = Some(block.max(start));
                }
            }
            if run.is_rescan && run.cc.order == Some(self.policy.freelist.pageblock_order) {
                run.last_migrated_pfn = None;
            }
        }
        CompactStep::IsolatedMigratepages(scanned)
    }

    fn abort_isolation(&mut self, run: &mut CompactRun) -> CompactStep {
        self.end_compaction(run, CompactResult::Contended)
    }

    fn count_scanned(&mut self, run: &CompactRun, event: Vm, nr: u32) {
        if run.only_until.is_some() {
            return;
        }
        self.vm.add(event, u64::from(nr));
        // Proactive work counts as kcompactd's since 6.12's series; before, as nobody's.
        let is_daemon = match run.request.who {
            Compactor::Kcompactd => true,
            Compactor::Proactive => self.policy.compaction.count_jumped,
            _ => false,
        };
        if is_daemon {
            let event = match event {
                Vm::CompactMigrateScanned => Vm::KcompactdMigrateScanned,
                _ => Vm::KcompactdFreeScanned,
            };
            self.vm.add(event, u64::from(nr));
        }
    }

    /// Moves pages of the batch, as many as there are free pages for.
    fn migrate_step(&mut self, run: &mut CompactRun) -> CompactStep {
        let batched = self.policy.compaction.batched;
        while let Some(from) = run.batch.migratepages.pop() {
            let order = self.frames.order(from);
            let Some(to) = self.compaction_alloc(run, order) else {
                run.batch.migratepages.push(from);
                if !run.batch.is_short {
                    run.phase = Phase::FindFree;
                    return self.migrated(run);
                }
                break;
            };
            if batched {
                run.batch.paired.push((from, to));
            } else {
                self.move_to_free(run, from, to);
            }
        }
        if batched {
            let paired = core::mem::take(&mut run.batch.paired);
            let mut users = TlbUsers::NONE;
            for &(from, _) in &paired {
                users |= self.tlb_users_of(from);
            }
            self.flush_tlb(users);
            for (from, to) in paired {
                self.move_to_free(run, from, to);
            }
        }
        if !run.batch.is_short && !run.batch.again.is_empty() {
            // What has moved is told before anything is waited for.
            if !run.batch.moved.is_empty() {
                return self.migrated(run);
            }
            if let Some(step) = self.try_again(run) {
                return step;
            }
        }
        self.end_batch(run)
    }

    /// Moves one page, or notes why not.
    fn move_to_free(&mut self, run: &mut CompactRun, from: Pfn, to: Pfn) {
        let order = self.frames.order(from);
        let mode = run.cc.mode;
        let batched = self.policy.compaction.batched;
        let users = if batched { TlbUsers::NONE } else { self.tlb_users_of(from) };
        match self.migrate_page(from, to, run.request.cpu) {
            Ok(was_moved) => {
                let compact = &mut self.zones[run.cc.zone.index()].compact;
                compact.nr_held -= u64::from(order.pages());
                compact.nr_moved_again += u64::from(was_moved) * u64::from(order.pages());
                self.flush_entries(users, 1);
                run.batch.nr_succeeded += order.pages();
                run.batch.moved.push(Moved { from, to, order });
                return;
            }
            Err(Obstacle::Gone) => run.batch.nr_succeeded += order.pages(),
            Err(Obstacle::Writeback) if mode != MigrateMode::Sync => run.batch.failed.push(from),
            Err(Obstacle::Locked | Obstacle::Writeback | Obstacle::Pinned) => {
                run.batch.again.push(from);
            }
        }
        self.compaction_free(run, to, order);
    }

    /// Another round for the pages that did not move; `None` if there is no use in it.
    fn try_again(&mut self, run: &mut CompactRun) -> Option<CompactStep> {
        let (mode, direct) = (run.cc.mode, run.cc.direct_compaction);
        let nr = run.batch.again.len() as u64;
        let waits = |memory: &Self, &pfn: &Pfn| {
            let obstacle = memory.migration_obstacle(pfn)?;
            Self::migration_waits(obstacle, mode, direct).then_some((pfn, obstacle))
        };
        let found = run.batch.again.iter().find_map(|pfn| waits(self, pfn));
        let (first, last) = match found {
            // Nothing can change between rounds that do not wait: they only cost time.
            None => (run.batch.passes + 1, MIGRATE_PASSES),
            Some(_) => (run.batch.passes + 1, MIGRATE_PASSES_UNFORCED),
        };
        self.work.pfns_scanned += nr * u64::from(last.saturating_sub(first));
        run.batch.passes = first.max(last);
        let (pfn, obstacle) = found.filter(|_| run.batch.passes < MIGRATE_PASSES)?;
        let mut again = core::mem::take(&mut run.batch.again);
        again.reverse();
        run.batch.migratepages = again;
        Some(CompactStep::WaitOnPage(pfn, obstacle))
    }

    /// Tells what has moved so far, in the middle of a batch.
    fn migrated(&mut self, run: &mut CompactRun) -> CompactStep {
        let moved = core::mem::take(&mut run.batch.moved);
        if moved.is_empty() {
            return CompactStep::Nothing;
        }
        CompactStep::Migrated(Migrated { moved, ..Migrated::default() })
    }

    /// Counts and tells what became of a batch.
    fn note_batch(&mut self, nr_migrated: u32, nr_failed: u32) {
        if self.policy.compaction.counters == CompactCounters::Moved {
            self.vm.add(Vm::CompactBlocksMoved, 1);
            self.vm.add(Vm::CompactPagesMoved, u64::from(nr_migrated));
            self.vm.add(Vm::CompactPageMigrateFailed, u64::from(nr_failed));
        }
        self.note_compact(CompactEvent::Migratepages { nr_migrated, nr_failed });
    }

    /// The batch is over: what did not move goes back, and the scanner may go elsewhere.
    fn end_batch(&mut self, run: &mut CompactRun) -> CompactStep {
        let policy = self.policy.compaction;
        let batch = core::mem::take(&mut run.batch);
        let pages =
            |list: &[Pfn]| -> u32 { list.iter().map(|&pfn| self.frames.order(pfn).pages()).sum() };
        let (nr_failed, nr_again) = (pages(&batch.failed), pages(&batch.again));
        let nr_untried = pages(&batch.migratepages);
        let nr_left = nr_failed + nr_again + nr_untried;
        // Without a free page, the page that wanted one counts as failed, and nothing else is counted.
        let counted = nr_failed + if batch.is_short { 1 } else { nr_again };
        self.vm.add(Vm::PgMigrateSuccess, u64::from(batch.nr_succeeded));
        self.vm.add(Vm::PgMigrateFail, u64::from(counted));
        for &pfn in batch.failed.iter().chain(&batch.again).chain(batch.migratepages.iter().rev()) {
            self.putback_movable_page(pfn, run.request.cpu);
        }
        self.note_compact(CompactEvent::MigratePages {
            nr_succeeded: batch.nr_succeeded,
            nr_failed: counted,
            mode: run.cc.mode,
        });
        self.note_batch(batch.nr_succeeded, nr_left);
        run.cc.nr_migratepages = 0;
        run.just_migrated = true;
        let step = CompactStep::Migrated(Migrated {
            moved: batch.moved,
            is_over: true,
            nr_succeeded: batch.nr_succeeded,
            nr_failed: nr_left,
        });
        run.phase = Phase::CheckDrain;
        if nr_left > 0 {
            if batch.is_short
                && policy.free_scan != FreeScan::WholeBlocks
                && !self.scanners_met(run)
            {
                run.phase = Phase::End(CompactResult::Contended);
                return step;
            }
            let aligned =
                block_start(run.cc.migrate_pfn, self.pageblock_pages()) == run.cc.migrate_pfn;
            if policy.rescan == Rescan::AfterFailure {
                if !aligned
                    && !run.cc.ignore_skip_hint
                    && !run.cc.finish_pageblock
                    && run.cc.mode < MigrateMode::Sync
                {
                    run.cc.finish_pageblock = true;
                    run.is_rescan = true;
                    if run.cc.order == Some(self.policy.freelist.pageblock_order) {
                        run.last_migrated_pfn = None;
                    }
                    run.phase = Phase::Isolate;
                    return step;
                }
            } else if policy.skip_on_failure && run.is_brief() {
                let end = block_end(run.cc.migrate_pfn - 1, run.order_pages());
                run.cc.migrate_pfn = end;
                run.last_migrated_pfn = None;
                self.release_held(run);
            }
        }
        step
    }

    /// Lets what was freed merge, once the scanner has left the block that it was freed in.
    fn check_drain(&mut self, run: &mut CompactRun) -> CompactStep {
        let is_late = self.policy.compaction.rescan == Rescan::AfterFailure;
        let just_migrated = core::mem::take(&mut run.just_migrated);
        if is_late && just_migrated && run.captured.is_some() {
            return self.end_compaction(run, CompactResult::Success);
        }
        run.phase = Phase::Check;
        let has_left = run.cc.order.filter(|order| order.0 > 0).is_some_and(|order| {
            let here = run.cc.migrate_pfn.align_down(order);
            run.last_migrated_pfn.is_some_and(|pfn| pfn < here)
        });
        if has_left {
            self.release_held(run);
            self.lru_add_drain(run.request.cpu);
            self.drain_pcp_zone(run.cc.zone, run.request.cpu);
            run.last_migrated_pfn = None;
        }
        let captured = self.capture.is_some_and(|capture| capture.block.is_some());
        if !is_late && (captured || run.captured.is_some()) {
            return self.end_compaction(run, CompactResult::Success);
        }
        if has_left { CompactStep::Drained } else { CompactStep::Nothing }
    }

    /// Gives back all that the run holds.
    fn end_compaction(&mut self, run: &mut CompactRun, result: CompactResult) -> CompactStep {
        let cpu = run.request.cpu;
        let batch = core::mem::take(&mut run.batch);
        for (_, to) in &batch.paired {
            let order = self.frames.order(*to);
            self.compaction_free(run, *to, order);
        }
        let paired = batch.paired.iter().map(|(from, _)| *from);
        for pfn in
            batch.failed.into_iter().chain(batch.again).chain(paired).chain(batch.migratepages)
        {
            self.putback_movable_page(pfn, cpu);
        }
        run.cc.nr_migratepages = 0;
        self.release_held(run);
        self.release_freepages(run);
        let scanners = Scanners {
            zone: run.cc.zone,
            migrate_pfn: run.cc.migrate_pfn,
            free_pfn: run.cc.free_pfn,
            is_sync: run.cc.mode != MigrateMode::Async,
        };
        self.note_compact(CompactEvent::End(scanners, result));
        run.phase = Phase::Over(result);
        CompactStep::Done(result)
    }

    /// Whether so many pages are off the LRU lists that the run had better wait (`too_many_isolated`).
    fn too_many_isolated_for(&self, run: &CompactRun) -> bool {
        use crate::lru::LruList;
        let lists = &self.lru.lruvecs[self.lru.of_zone(run.cc.zone)];
        let listed: u64 = LruList::EVICTABLE.iter().map(|&list| lists.size(list)).sum();
        let isolated: u64 = lists.stats.nr_isolated.iter().sum();
        let divided = self.policy.compaction.isolated_limit
            == crate::policy::IsolatedLimit::SixteenthWithFs
            && run.request.gfp.contains(Gfp::FS);
        isolated > (if divided { listed >> 3 } else { listed }) / 2
    }
}
