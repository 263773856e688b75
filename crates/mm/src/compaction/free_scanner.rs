//! The free scanner: where pages are moved to. Also what takes its place: the search of the free lists, and the
//! two forms of taking pages straight from them.
//!
//! Models: `isolate_freepages`, `isolate_freepages_block`, `fast_isolate_around`,
//! `suitable_migration_target`, `compaction_alloc`, `compaction_free`, `release_free_list`,
//! mm/compaction.c, v6.12, v6.1, v4.14, v4.4 and v3.4; the patch "direct freepage allocation for async
//! direct compaction" (posted March 2016 and November 2017), and the one of the reply to it.
//! Departs: the lock is never found taken, so that the form that tries it always gets it. Visible as:
//! that form fails a little less often than on a busy machine.

use super::events::CompactEvent;
use super::{CompactRun, CompactStep, Phase, Scanned, block_end, block_start};
use crate::fallback::SearchMode;
use crate::fast_search::{COMPACT_CLUSTER_MAX, MigrateMode};
use crate::frame::State;
use crate::gfp::{AllocFlags, Gfp};
use crate::memory::Memory;
use crate::policy::{FreePages, FreeScan, Positions, SkipHints, TargetHead, TargetSearch};
use crate::types::{Migratetype, NR_PAGE_ORDERS, Order, Pfn, ZoneKind};
use crate::vmstat::Vm;
use crate::watermark::Mark;
use crate::zone::ZoneId;
use std_alloc::collections::VecDeque;
use std_alloc::vec::Vec;

/// Isolated free pages that wait for pages to be moved into them.
#[derive(Clone, Debug, Default)]
pub(super) struct FreePool {
    /// Blocks as they were isolated, still to be taken apart.
    whole: Vec<(Pfn, Order)>,
    /// Single pages, the next one last.
    pages: Vec<Pfn>,
    /// Blocks by order, the next one first, where large pages move whole.
    by_order: [VecDeque<Pfn>; NR_PAGE_ORDERS],
}

impl FreePool {
    /// Base pages among them.
    pub(super) fn nr_pages(&self) -> usize {
        let whole: usize = self.whole.iter().map(|(_, order)| order.pages() as usize).sum();
        let listed = self.by_order.iter().enumerate().map(|(order, list)| list.len() << order);
        whole + self.pages.len() + listed.sum::<usize>()
    }
}

/// A linear scan for free pages, downwards by pageblocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FreeWalk {
    /// The pageblock, of which `[from, end)` is to be scanned.
    block: Pfn,
    from: Pfn,
    end: Pfn,
    /// Pageblocks below are the migrate scanner's.
    low: Pfn,
    stride: u32,
    /// Highest pageblock that gave something, where all is taken of each.
    highest: Pfn,
}

impl Memory {
    /// Notes pages that a run holds more, or fewer.
    fn account_held(&mut self, id: ZoneId, pages: i64) {
        let compact = &mut self.zones[id.index()].compact;
        compact.nr_held =
            compact.nr_held.checked_add_signed(pages).expect("what is held is given back once");
        compact.nr_held_max = compact.nr_held_max.max(compact.nr_held);
    }

    /// Takes a free block off its list for pages to move to, unless the zone's mark forbids it.
    fn isolate_free(&mut self, run: &mut CompactRun, pfn: Pfn, order: Order) -> bool {
        if !self.isolate_free_page(pfn, order) {
            return false;
        }
        run.cc.nr_freepages += order.pages();
        self.add_free(run, pfn, order);
        true
    }

    fn add_free(&mut self, run: &mut CompactRun, pfn: Pfn, order: Order) {
        self.account_held(run.cc.zone, i64::from(order.pages()));
        self.vm.add(Vm::CompactIsolated, u64::from(order.pages()));
        if self.policy.compaction.large_folios {
            run.freepages.by_order[order.index()].push_back(pfn);
        } else {
            run.freepages.whole.push((pfn, order));
        }
    }

    /// Takes the blocks that were isolated apart, the last page to be used first
    /// (`split_map_pages`).
    fn split_free(&mut self, run: &mut CompactRun) {
        for (pfn, order) in core::mem::take(&mut run.freepages.whole) {
            self.split_isolated(run.cc.zone, pfn, order, Order(0));
            run.freepages.pages.extend((pfn.0..pfn.0 + order.pages()).map(Pfn));
        }
    }

    fn split_isolated(&mut self, id: ZoneId, pfn: Pfn, order: Order, into: Order) {
        if order == into {
            return;
        }
        let migratetype = self.frames.migratetype(pfn);
        for part in (pfn.0..pfn.0 + order.pages()).step_by(into.pages() as usize) {
            self.frames.set(Pfn(part), State::Isolated, into, migratetype);
        }
        self.zones[id.index()].compact.nr_split += 1;
    }

    /// A free page for a page of this order.
    pub(super) fn compaction_alloc(&mut self, run: &mut CompactRun, order: Order) -> Option<Pfn> {
        let large = self.policy.compaction.large_folios;
        let found =
            if large { self.alloc_from_blocks(run, order)? } else { run.freepages.pages.pop()? };
        run.cc.nr_freepages -= order.pages();
        if large {
            run.cc.nr_migratepages -= order.pages();
        }
        self.init_page(order, Gfp::MOVABLE);
        Some(found)
    }

    /// The first of the smallest listed blocks that will do: its lower end.
    fn alloc_from_blocks(&mut self, run: &mut CompactRun, order: Order) -> Option<Pfn> {
        let smallest = (order.index()..NR_PAGE_ORDERS)
            .find(|&listed| !run.freepages.by_order[listed].is_empty())?;
        let pfn = run.freepages.by_order[smallest].pop_front()?;
        let migratetype = self.frames.migratetype(pfn);
        for half in (order.0..smallest as u8).rev().map(Order) {
            let upper = pfn + half.pages();
            self.frames.set(upper, State::Isolated, half, migratetype);
            run.freepages.by_order[half.index()].push_front(upper);
        }
        if smallest > order.index() {
            self.frames.set(pfn, State::Isolated, order, migratetype);
            self.zones[run.cc.zone.index()].compact.nr_split += 1;
        }
        Some(pfn)
    }

    /// A free page that was not used waits for the next page to move.
    pub(super) fn compaction_free(&mut self, run: &mut CompactRun, pfn: Pfn, order: Order) {
        run.cc.nr_freepages += order.pages();
        if self.policy.compaction.large_folios {
            run.cc.nr_migratepages += order.pages();
            run.freepages.by_order[order.index()].push_front(pfn);
        } else {
            run.freepages.pages.push(pfn);
        }
    }

    /// Looks for free pages, from wherever this run takes them.
    pub(super) fn find_free_pages(&mut self, run: &mut CompactRun) -> CompactStep {
        match self.policy.compaction.free_pages {
            FreePages::DirectHeld if run.is_brief() => return self.take_single_pages(run),
            FreePages::DirectTail => return self.take_listed_blocks(run, false),
            FreePages::DirectTailAsPosted => return self.take_listed_blocks(run, true),
            FreePages::Scanner | FreePages::DirectHeld => {}
        }
        let free_pfn = run.cc.free_pfn;
        let Some(found) = self.fast_isolate_freepages(&mut run.cc) else {
            run.phase = Phase::Walk(self.begin_walk(run));
            return CompactStep::Nothing;
        };
        self.count_free_scanned(run, found.nr_scanned);
        self.note_compact(CompactEvent::FastIsolateFreepages(Scanned {
            start: found.min_pfn.0,
            end: free_pfn.0,
            nr_scanned: found.nr_scanned,
            nr_taken: found.block.map_or(0, |(_, order)| order.pages()),
        }));
        if let Some((pfn, order)) = found.block {
            self.add_free(run, pfn, order);
        }
        run.phase = match found.around.filter(|_| run.cc.searches_around()) {
            Some(pfn) => Phase::Around(pfn),
            None => self.after_search(run),
        };
        CompactStep::FastIsolated(found)
    }

    fn count_free_scanned(&mut self, run: &mut CompactRun, nr: u32) {
        run.nr_free_scanned += u64::from(nr);
        self.count_scanned(run, Vm::CompactFreeScanned, nr);
    }

    /// Goes on with what the search has found, or with a linear scan if that is nothing.
    fn after_search(&mut self, run: &mut CompactRun) -> Phase {
        if run.cc.nr_freepages == 0 {
            return Phase::Walk(self.begin_walk(run));
        }
        self.split_free(run);
        Phase::Migrate
    }

    /// The search is over: the batch goes on with what there is, or ends for want of free pages.
    fn end_search(&mut self, run: &mut CompactRun) {
        self.split_free(run);
        run.batch.is_short = run.cc.nr_freepages == 0;
        run.phase = Phase::Migrate;
    }

    /// Scans the pageblock around a page that the search found (`fast_isolate_around`).
    #[doc(alias = "fast_isolate_around")]
    pub(super) fn isolate_around(&mut self, run: &mut CompactRun, pfn: Pfn) -> CompactStep {
        let pages = self.pageblock_pages();
        let zone = &self.zones[run.cc.zone.index()];
        let start = block_start(pfn, pages).max(zone.start);
        let end = block_end(pfn, pages).min(zone.end);
        let mut scanned = Scanned { start: start.0, end: start.0, nr_scanned: 0, nr_taken: 0 };
        if self.is_whole_block(run.cc.zone, start, end) {
            if self.policy.compaction.target_search == TargetSearch::UntilEnough {
                scanned = self.isolate_freepages_block(run, start, end, 1);
                if scanned.end == end.0 {
                    self.set_block_skip(start, true);
                }
            } else {
                scanned = self.isolate_before_and_after(run, pfn, start, end);
            }
        }
        run.phase = self.after_search(run);
        CompactStep::IsolatedFreepages(scanned)
    }

    /// The older form: what lies before the page, then what lies behind it.
    fn isolate_before_and_after(
        &mut self,
        run: &mut CompactRun,
        pfn: Pfn,
        start: Pfn,
        end: Pfn,
    ) -> Scanned {
        let mut scanned = Scanned { start: start.0, end: start.0, nr_scanned: 0, nr_taken: 0 };
        if start < pfn {
            scanned = self.isolate_freepages_block(run, start, pfn, 1);
            if run.cc.has_enough_free_pages() {
                return scanned;
            }
        }
        let found = match self.frames.state(pfn) {
            State::Isolated => self.frames.order(pfn).pages(),
            _ => 0,
        };
        let behind = pfn + found;
        if behind < end {
            let part = self.isolate_freepages_block(run, behind, end, 1);
            scanned.end = part.end;
            scanned.nr_scanned += part.nr_scanned;
            scanned.nr_taken += part.nr_taken;
        }
        if !run.cc.has_enough_free_pages() {
            self.set_block_skip(start, true);
        }
        scanned
    }

    fn begin_walk(&self, run: &CompactRun) -> FreeWalk {
        let policy = self.policy.compaction;
        let pages = self.pageblock_pages();
        let zone = &self.zones[run.cc.zone.index()];
        let block = block_start(run.cc.free_pfn, pages);
        let strides = policy.free_scan == FreeScan::Strided && run.cc.mode == MigrateMode::Async;
        let low = match policy.free_scan {
            FreeScan::WholeBlocks => run.cc.migrate_pfn + pages,
            _ => block_end(run.cc.migrate_pfn, pages),
        };
        FreeWalk {
            block,
            from: run.cc.free_pfn,
            end: block_end(run.cc.free_pfn, pages).min(zone.end),
            low,
            stride: if strides { COMPACT_CLUSTER_MAX } else { 1 },
            highest: low.min(run.cc.free_pfn),
        }
    }

    /// Scans the next pageblock that may be filled, or finds that there is none.
    #[doc(alias = "isolate_freepages")]
    pub(super) fn walk_step(&mut self, run: &mut CompactRun, mut walk: FreeWalk) -> CompactStep {
        let policy = self.policy.compaction;
        let pages = self.pageblock_pages();
        let takes_all = policy.free_scan == FreeScan::WholeBlocks;
        let id = run.cc.zone;
        let mut scanned = None;
        loop {
            let goes_on = match takes_all {
                true => walk.block > walk.low && !run.cc.has_enough_free_pages(),
                false => walk.block >= walk.low,
            };
            if !goes_on {
                run.cc.free_pfn = if takes_all { walk.highest } else { walk.from };
                self.end_search(run);
                break;
            }
            if scanned.is_some() {
                run.phase = Phase::Walk(walk);
                break;
            }
            // Its first frame tells whether a large block is free there.
            self.come_to_block(true);
            let from = if takes_all { walk.block } else { walk.from };
            if self.is_whole_block(id, walk.block, walk.end)
                && self.is_block_to_fill(run, walk.block)
            {
                let done = self.isolate_freepages_block(run, from, walk.end, walk.stride);
                scanned = Some(done);
                if done.nr_taken > 0 {
                    walk.highest = walk.highest.max(walk.block);
                }
                if done.end == walk.end.0 {
                    self.note_block_scanned(run, &walk, done);
                }
                if !takes_all {
                    let is_enough = run.cc.has_enough_free_pages()
                        || run.contended && policy.positions == Positions::Apart;
                    if is_enough || done.end < walk.end.0 {
                        // Behind what was taken, or in the next pageblock down.
                        run.cc.free_pfn = match is_enough && done.end >= walk.end.0 {
                            true => Pfn(walk.block.0.saturating_sub(pages)),
                            false => Pfn(done.end),
                        };
                        self.end_search(run);
                        break;
                    }
                    if policy.free_scan == FreeScan::Strided {
                        walk.stride = match done.nr_taken {
                            0 => (walk.stride * 2).min(COMPACT_CLUSTER_MAX),
                            _ => 1,
                        };
                    }
                }
            }
            if walk.block.0 < pages {
                // Nothing is below the first pageblock.
                run.cc.free_pfn = if takes_all { walk.highest } else { Pfn(0) };
                self.end_search(run);
                break;
            }
            walk.end = walk.block;
            walk.block.0 -= pages;
            walk.from = walk.block;
        }
        match scanned {
            Some(scanned) => CompactStep::IsolatedFreepages(scanned),
            None => CompactStep::Nothing,
        }
    }

    /// Whether a pageblock takes pages that are moved (`suitable_migration_target`,
    /// `isolation_suitable`).
    #[doc(alias = "suitable_migration_target")]
    fn is_block_to_fill(&self, run: &CompactRun, block: Pfn) -> bool {
        let policy = self.policy.compaction;
        let pageblock_order = self.policy.freelist.pageblock_order;
        let head_order = match self.frames.state(block) {
            State::Free => Some(self.frames.order(block)),
            _ => None,
        };
        let block_type = self.block_type(block);
        let is_movable = matches!(block_type, Migratetype::Movable | Migratetype::Cma);
        let is_whole = head_order.is_some_and(|order| order >= pageblock_order);
        let is_refused = match policy.target_head {
            TargetHead::Any => false,
            TargetHead::BelowPageblock => is_whole,
            TargetHead::BelowRequest => {
                let wanted = run.cc.order.filter(|order| order.0 > 0).unwrap_or(pageblock_order);
                head_order.is_some_and(|order| order >= wanted)
            }
        };
        let is_allowed = match policy.target_head {
            TargetHead::Any => is_movable || is_whole && block_type != Migratetype::Isolate,
            _ => is_movable || run.request.ignore_block_suitable,
        };
        let is_skipped = policy.skip_hints != SkipHints::Off
            && !run.cc.ignore_skip_hint
            && self.block_skip(block);
        is_allowed && !is_refused && !is_skipped
    }

    /// A pageblock was scanned to its end for free pages: it is not worth another look soon.
    fn note_block_scanned(&mut self, run: &CompactRun, walk: &FreeWalk, done: Scanned) {
        let pages = self.pageblock_pages();
        let compact = &mut self.zones[run.cc.zone.index()].compact;
        let passed = match self.policy.compaction.skip_hints {
            SkipHints::Off => return,
            SkipHints::InVain => {
                if done.nr_taken > 0 || run.cc.ignore_skip_hint {
                    return;
                }
                Pfn(done.start)
            }
            SkipHints::FirstPage => walk.block,
            SkipHints::FirstScan => Pfn(walk.block.0.saturating_sub(pages)),
        };
        compact.cached_free_pfn = compact.cached_free_pfn.min(passed);
        self.set_block_skip(walk.block, true);
    }

    /// Scans `[start, end)`, within one pageblock, and isolates what is free, as far as it is wanted and
    /// the zone's mark allows it.
    fn isolate_freepages_block(
        &mut self,
        run: &mut CompactRun,
        start: Pfn,
        end: Pfn,
        stride: u32,
    ) -> Scanned {
        let policy = self.policy.compaction;
        let takes_all = policy.free_scan == FreeScan::WholeBlocks;
        let passes_refused =
            matches!(policy.free_scan, FreeScan::WholeBlocks | FreeScan::UntilEnough);
        let mut scanned = Scanned { start: start.0, end: start.0, nr_scanned: 0, nr_taken: 0 };
        let mut pfn = start;
        let before = pfn;
        while pfn < end {
            scanned.nr_scanned += 1;
            // Most of what is passed: where the next block begins need not wait for this one's order.
            if self.frames.is_page_in_use(pfn) {
                pfn.0 += stride;
                continue;
            }
            match self.frames.state(pfn) {
                State::Free => {
                    let order = self.frames.order(pfn);
                    if !self.isolate_free(run, pfn, order) {
                        if !passes_refused {
                            break;
                        }
                        pfn.0 += stride;
                        continue;
                    }
                    scanned.nr_taken += order.pages();
                    let behind_first = order.pages() - 1;
                    scanned.nr_scanned += if policy.count_taken { behind_first } else { 0 };
                    if !takes_all && run.cc.has_enough_free_pages() {
                        pfn.0 += order.pages();
                        break;
                    }
                    pfn.0 += order.pages() - 1 + stride;
                }
                State::Allocated => {
                    let jumped = self.frames.order(pfn).pages() - 1;
                    scanned.nr_scanned += if policy.count_jumped { jumped } else { 0 };
                    pfn.0 += jumped + stride;
                }
                _ => pfn.0 += stride,
            }
        }
        let pfn = pfn.min(end);
        scanned.end = pfn.0;
        self.work.pfns_scanned += u64::from((pfn.0 - before.0) / stride);
        self.count_free_scanned(run, scanned.nr_scanned);
        self.note_compact(CompactEvent::IsolateFreepages(scanned));
        scanned
    }

    /// The first form: single pages as an allocation takes them, stealing and all, down to the low mark;
    /// those of the block that is being emptied are kept apart until it is.
    fn take_single_pages(&mut self, run: &mut CompactRun) -> CompactStep {
        let id = run.cc.zone;
        let wanted = run.cc.nr_migratepages - run.cc.nr_freepages.min(run.cc.nr_migratepages);
        let pages = run.order_pages();
        let emptied = block_start(run.cc.migrate_pfn - 1, pages);
        let mark = self.zones[id.index()].watermarks.pages(Mark::Low) + 1;
        let mut mode = SearchMode::default();
        let (mut nr_taken, mut nr_missed) = (0, 0);
        while nr_taken < wanted
            && self.watermark_ok(id, Order(0), mark, ZoneKind::Dma, AllocFlags::NONE)
        {
            let movable = Migratetype::Movable;
            let area = &self.zones[id.index()].free_area;
            let is_split = area.list(Order(0), movable).is_empty();
            let Some(pfn) =
                self.rmqueue_buddy_block(id, Order(0), movable, AllocFlags::NONE, &mut mode)
            else {
                break;
            };
            let migratetype = self.frames.migratetype(pfn);
            self.frames.set(pfn, State::Isolated, Order(0), migratetype);
            self.account_held(id, 1);
            self.zones[id.index()].compact.nr_split += u64::from(is_split);
            self.vm.add(Vm::CompactFreeDirectAlloc, 1);
            if block_start(pfn, pages) == emptied {
                self.vm.add(Vm::CompactFreeDirectMiss, 1);
                run.held.push(pfn);
                nr_missed += 1;
            } else {
                run.freepages.pages.push(pfn);
                nr_taken += 1;
            }
        }
        run.cc.nr_freepages += nr_taken;
        self.end_search(run);
        CompactStep::TookFreepages { nr_taken, nr_missed }
    }

    /// The second form: whole blocks from the heads of the lists, small ones first; those of the pageblock
    /// that is being emptied go to their list's tail.
    fn take_listed_blocks(&mut self, run: &mut CompactRun, as_posted: bool) -> CompactStep {
        let id = run.cc.zone;
        let wanted = run.cc.nr_migratepages;
        let pages = self.pageblock_pages();
        let emptied = block_start(run.cc.migrate_pfn - 1, pages);
        let mark = self.zones[id.index()].watermarks.pages(Mark::Low) + u64::from(wanted);
        let (mut nr_taken, mut nr_missed) = (0, 0);
        if self.watermark_ok(id, Order(0), mark, ZoneKind::Dma, AllocFlags::NONE) {
            let types = [Migratetype::Movable, Migratetype::Reclaimable, Migratetype::Unmovable];
            for order in (0..=self.policy.freelist.max_order.0).map(Order) {
                for migratetype in types {
                    if nr_taken >= wanted && !as_posted {
                        break;
                    }
                    let mut skipped = Vec::new();
                    loop {
                        let list = self.zones[id.index()].free_area.list(order, migratetype);
                        let Some(pfn) = list.head() else { break };
                        self.work.pfns_scanned += 1;
                        if block_start(pfn, pages) == emptied {
                            self.unlink_free(id, pfn, order);
                            skipped.push(pfn);
                            continue;
                        }
                        self.take_free_page(pfn, order);
                        self.add_free(run, pfn, order);
                        self.vm.add(Vm::CompactFreeListAlloc, u64::from(order.pages()));
                        run.cc.nr_freepages += order.pages();
                        nr_taken += order.pages();
                        if nr_taken >= wanted {
                            break;
                        }
                    }
                    self.vm.add(Vm::CompactFreeListSkip, skipped.len() as u64);
                    nr_missed += skipped.len() as u32;
                    for pfn in skipped {
                        self.link_free(id, pfn, order, migratetype, crate::frame::End::Tail);
                    }
                }
            }
        }
        self.end_search(run);
        CompactStep::TookFreepages { nr_taken, nr_missed }
    }

    /// Frees the pages that were held as part of the block that was being emptied.
    pub(super) fn release_held(&mut self, run: &mut CompactRun) {
        let held = core::mem::take(&mut run.held);
        self.account_held(run.cc.zone, -(held.len() as i64));
        for pfn in held {
            self.free_page(pfn, run.request.cpu);
        }
    }

    /// Frees the free pages that are left, and lets the free scanner come back to the highest of them.
    #[doc(alias = "release_free_list")]
    pub(super) fn release_freepages(&mut self, run: &mut CompactRun) {
        self.split_free(run);
        let pool = core::mem::take(&mut run.freepages);
        let mut freed: Vec<(Pfn, Order)> =
            pool.pages.into_iter().rev().map(|pfn| (pfn, Order(0))).collect();
        for (order, list) in pool.by_order.into_iter().enumerate() {
            freed.extend(list.into_iter().map(|pfn| (pfn, Order(order as u8))));
        }
        run.cc.nr_freepages = 0;
        let Some(highest) = freed.iter().map(|&(pfn, _)| pfn).max() else { return };
        let pages: i64 = freed.iter().map(|(_, order)| i64::from(order.pages())).sum();
        self.account_held(run.cc.zone, -pages);
        for (pfn, order) in freed {
            debug_assert_eq!(self.frames.order(pfn), order);
            self.free_page(pfn, run.request.cpu);
        }
        if self.policy.compaction.positions != Positions::None {
            let block = block_start(highest, self.pageblock_pages());
            let compact = &mut self.zones[run.cc.zone.index()].compact;
            compact.cached_free_pfn = compact.cached_free_pfn.max(block);
        }
    }
}
