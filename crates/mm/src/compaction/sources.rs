//! The migrate scanner: which pageblocks are emptied, and which of their pages can be moved.
//!
//! Models: `isolate_migratepages`, `isolate_migratepages_block`, `suitable_migration_source`,
//! `update_cached_migrate`, `test_and_set_skip`, mm/compaction.c, v6.12, v6.1, v4.14, v4.4 and v3.4.
//! Departs: a pageblock is scanned in one step. Visible as: whoever frees a page in the part that is
//! already scanned comes a little too late.

use super::events::CompactEvent;
use super::{CompactRun, Scanned, block_end, block_start};
use crate::fast_search::{COMPACT_CLUSTER_MAX, MigrateMode};
use crate::frame::{PageFlags, State};
use crate::gfp::Gfp;
use crate::memory::Memory;
use crate::policy::{AsyncSources, Contention, Positions, SkipHints};
use crate::types::{Migratetype, Order, Pfn};
use crate::zone::ZoneId;

/// What the scanner makes of the block at a frame.
enum Look {
    /// It can be moved, these pages of it.
    Take(u32),
    /// It is free: on behind it.
    Free(u32),
    /// It cannot: on behind these pages.
    Fail(u32),
}

impl Memory {
    /// Looks for pages to move in the next pageblock that is worth it, and takes up to 32 of them.
    pub(super) fn isolate_migratepages(&mut self, run: &mut CompactRun) -> Scanned {
        let policy = self.policy.compaction;
        let pages = self.pageblock_pages();
        let id = run.cc.zone;
        let before = self.work.pfns_scanned;
        let mut low = self.fast_find_migrateblock(&mut run.cc);
        let nr_searched = (self.work.pfns_scanned - before) as u32;
        let mut is_found = low != run.cc.migrate_pfn && run.cc.fast_search_fail == 0;
        // Without remembered positions a scan begins at a block's start and spans the rest of it and the
        // next one.
        let is_plain = policy.positions == Positions::None;
        let mut end = match is_plain {
            true => block_end(Pfn(low.0 + pages - 1), pages),
            false => block_end(low, pages),
        };
        let mut scanned =
            Scanned { start: low.0, end: low.0, nr_scanned: nr_searched, nr_taken: 0 };
        while end <= run.cc.free_pfn {
            self.look_at_block(0);
            if self.is_whole_block(id, low, end) {
                let asks = policy.skip_hints == SkipHints::InVain || block_start(low, pages) == low;
                let is_skipped = asks
                    && !is_found
                    && policy.skip_hints != SkipHints::Off
                    && !run.cc.ignore_skip_hint
                    && self.block_skip(low);
                if is_skipped {
                } else if is_plain || self.is_suitable_source(run, low) {
                    let block = self.isolate_migratepages_block(run, low, end);
                    self.note_compact(CompactEvent::IsolateMigratepages(block));
                    scanned = Scanned { nr_scanned: block.nr_scanned + nr_searched, ..block };
                    break;
                } else if policy.positions == Positions::Together {
                    self.update_cached_migrate(run, end);
                }
            }
            is_found = false;
            low = end;
            run.cc.migrate_pfn = end;
            if is_plain {
                break;
            }
            end.0 += pages;
        }
        if is_plain && end > run.cc.free_pfn {
            run.cc.migrate_pfn = end;
        }
        scanned
    }

    /// Notes that a scanner looked whether a pageblock lies in its zone, and `others` at further frames of it.
    pub(super) fn look_at_block(&mut self, others: u64) {
        let ends = if self.policy.compaction.asks_block_ends { 2 } else { 0 };
        self.work.far_pfns_scanned += ends.max(others);
    }

    /// Whether a pageblock, or the part of one, lies in the zone and is memory
    /// (`pageblock_pfn_to_page`).
    pub(super) fn is_whole_block(&self, id: ZoneId, start: Pfn, end: Pfn) -> bool {
        let zone = &self.zones[id.index()];
        let last = Pfn(end.0 - 1);
        let is_there = |pfn: Pfn| zone.spans(pfn) && self.frames.state(pfn) != State::Hole;
        is_there(start.max(zone.start)) && is_there(last)
    }

    /// Whether a pageblock is one that this run empties.
    fn is_suitable_source(&self, run: &CompactRun, pfn: Pfn) -> bool {
        let policy = self.policy.compaction;
        if policy.skip_huge_blocks {
            let head = block_start(pfn, self.pageblock_pages());
            let is_huge = self.frames.state(head) == State::Allocated
                && self.frames.order(head) >= self.policy.freelist.pageblock_order;
            if is_huge {
                return false;
            }
        }
        if run.cc.mode != MigrateMode::Async {
            return true;
        }
        let block_type = self.block_type(pfn);
        let is_movable = matches!(block_type, Migratetype::Movable | Migratetype::Cma);
        match policy.async_sources {
            AsyncSources::Movable => is_movable,
            AsyncSources::Requested if !run.cc.direct_compaction => true,
            AsyncSources::Requested if run.cc.migratetype == Migratetype::Movable => is_movable,
            AsyncSources::Requested => block_type == run.cc.migratetype,
        }
    }

    /// Notes that the pageblocks before `pfn` need not be scanned soon.
    fn update_cached_migrate(&mut self, run: &CompactRun, pfn: Pfn) {
        let pages = self.pageblock_pages();
        let pfn = match self.policy.compaction.positions {
            Positions::None => return,
            Positions::Apart => pfn,
            // The frame given is the next block's first already; the kernel rounds up once more.
            Positions::Together => block_end(pfn, pages),
        };
        let cached = &mut self.zones[run.cc.zone.index()].compact.cached_migrate_pfn;
        cached[0] = cached[0].max(pfn);
        if run.cc.mode != MigrateMode::Async {
            cached[1] = cached[1].max(pfn);
        }
    }

    /// Scans `[start, end)`, within one pageblock, and takes what can be moved.
    fn isolate_migratepages_block(
        &mut self,
        run: &mut CompactRun,
        start: Pfn,
        end: Pfn,
    ) -> Scanned {
        let policy = self.policy.compaction;
        let pages = self.pageblock_pages();
        let zone_start = self.zones[run.cc.zone.index()].start;
        let is_plain = policy.positions == Positions::None;
        let gives_up = policy.skip_on_failure && run.is_brief();
        let wanted = run.order_pages();
        let lifts_limit = policy.contention == Contention::FinishBlock && run.contended;
        let mut next_skip = if gives_up { block_end(start, wanted) } else { Pfn(0) };
        let mut scanned = Scanned { start: start.0, end: start.0, nr_scanned: 0, nr_taken: 0 };
        let (mut is_noted, mut is_updated, mut is_aborted) = (false, false, false);
        let mut pfn = start;
        while pfn < end {
            if gives_up && pfn >= next_skip {
                if scanned.nr_taken > 0 {
                    break;
                }
                next_skip = block_end(pfn, wanted);
            }
            if is_plain
                && (pfn == start || block_start(pfn, pages) == pfn)
                && !self.is_suitable_source(run, pfn)
            {
                pfn = block_end(pfn, pages);
                continue;
            }
            scanned.nr_scanned += 1;
            if !is_noted {
                match policy.skip_hints {
                    SkipHints::Off => {}
                    SkipHints::InVain => is_noted = true,
                    SkipHints::FirstPage | SkipHints::FirstScan => {
                        let is_start = block_start(pfn, pages) == pfn
                            || policy.skip_hints == SkipHints::FirstScan && pfn == zone_start;
                        if is_start {
                            if !run.cc.ignore_skip_hint && self.block_skip(pfn) {
                                pfn = end;
                                break;
                            }
                            is_noted = true;
                        }
                    }
                }
            }
            match self.look_at_source(run, pfn) {
                Look::Free(jump) => {
                    scanned.nr_scanned += if policy.count_jumped { jump - 1 } else { 0 };
                    pfn.0 += jump;
                }
                Look::Take(jump) => {
                    if !is_updated && !is_plain {
                        is_updated = policy.skip_hints != SkipHints::InVain;
                        if is_updated && self.claims_in_vain(run, pfn, is_noted) {
                            if policy.skip_hints == SkipHints::FirstScan {
                                pfn = end;
                            }
                            is_aborted = true;
                            break;
                        }
                    }
                    scanned.nr_scanned += if policy.count_jumped { jump - 1 } else { 0 };
                    self.isolate_movable_page(pfn);
                    run.batch.sources.push(pfn);
                    run.cc.nr_migratepages += jump;
                    scanned.nr_taken += jump;
                    pfn.0 += jump;
                    if run.cc.nr_migratepages >= COMPACT_CLUSTER_MAX
                        && !run.cc.finish_pageblock
                        && !lifts_limit
                    {
                        break;
                    }
                }
                Look::Fail(jump) => {
                    scanned.nr_scanned += if policy.count_jumped { jump - 1 } else { 0 };
                    pfn.0 += jump;
                    if gives_up {
                        // What was taken of this block cannot become a free block any more.
                        for taken in core::mem::take(&mut run.batch.sources) {
                            self.putback_movable_page(taken, run.request.cpu);
                        }
                        run.cc.nr_migratepages = 0;
                        scanned.nr_taken = 0;
                        if pfn <= next_skip {
                            pfn = next_skip;
                            next_skip.0 += wanted;
                        }
                    }
                }
            }
        }
        let pfn = pfn.min(end);
        scanned.end = pfn.0;
        run.cc.migrate_pfn = pfn;
        self.work.pfns_scanned += u64::from(pfn.0 - start.0);
        if pfn == end {
            match policy.skip_hints {
                SkipHints::Off => {}
                SkipHints::InVain => {
                    if scanned.nr_taken == 0 && !run.cc.ignore_skip_hint {
                        self.set_block_skip(start, true);
                        self.update_cached_migrate(run, start);
                    }
                }
                SkipHints::FirstPage | SkipHints::FirstScan => {
                    if scanned.nr_taken == 0 || run.cc.finish_pageblock {
                        if is_noted && !is_updated && !is_aborted {
                            self.set_block_skip(start, true);
                        }
                        self.update_cached_migrate(run, pfn);
                    }
                }
            }
        }
        scanned
    }

    /// Marks the pageblock as this run's with the first page taken from it. Whether another run has it
    /// already (`test_and_set_skip`).
    fn claims_in_vain(&mut self, run: &CompactRun, pfn: Pfn, is_noted: bool) -> bool {
        let is_asked = match self.policy.compaction.skip_hints {
            SkipHints::FirstPage => block_start(pfn, self.pageblock_pages()) == pfn,
            SkipHints::FirstScan => is_noted,
            SkipHints::Off | SkipHints::InVain => false,
        };
        if !is_asked || run.cc.ignore_skip_hint {
            return false;
        }
        let was_skipped = self.block_skip(pfn);
        self.set_block_skip(pfn, true);
        was_skipped
            && !(self.policy.compaction.skip_hints == SkipHints::FirstScan
                && run.cc.finish_pageblock)
    }

    /// What to make of the block at `pfn`.
    #[inline]
    fn look_at_source(&self, run: &CompactRun, pfn: Pfn) -> Look {
        let order = match self.frames.state(pfn) {
            State::Free => return Look::Free(self.frames.order(pfn).pages()),
            State::Allocated => self.frames.order(pfn),
            // Blocks on per-CPU lists and isolated ones are single pages to the scanner.
            _ => return Look::Fail(1),
        };
        let pages = order.pages();
        if order > Order(0) && !self.may_isolate_large(run, order) {
            return Look::Fail(pages);
        }
        if self.is_movable_source(run, pfn) { Look::Take(pages) } else { Look::Fail(pages) }
    }

    /// Whether a page of several base pages is taken whole (`skip_isolation_on_order`).
    fn may_isolate_large(&self, run: &CompactRun, order: Order) -> bool {
        self.policy.compaction.large_folios
            && run.cc.order.is_none_or(|wanted| order < wanted)
            && order < self.policy.freelist.pageblock_order
    }

    fn is_movable_source(&self, run: &CompactRun, pfn: Pfn) -> bool {
        if !self.is_movable_page(pfn) {
            return false;
        }
        let policy = self.policy.compaction;
        let frames = &self.frames;
        if frames.has(pfn, PageFlags::MOVABLE_OPS) {
            return policy.movable_ops && !frames.has(pfn, PageFlags::PINNED);
        }
        // Anonymous pages outside the swap cache have no mapping that could be waited for.
        let has_mapping =
            !frames.has(pfn, PageFlags::ANON) || frames.has(pfn, PageFlags::SWAPCACHE);
        if has_mapping && !run.request.gfp.contains(Gfp::FS)
            || !has_mapping && frames.has(pfn, PageFlags::PINNED)
            || !policy.unevictable && frames.has(pfn, PageFlags::UNEVICTABLE)
        {
            return false;
        }
        let may_wait = match policy.writeback_needs_sync {
            true => run.cc.mode == MigrateMode::Sync,
            false => run.cc.mode != MigrateMode::Async,
        };
        may_wait || !frames.has(pfn, PageFlags::WRITEBACK)
    }
}
