//! The migrate scanner: which pageblocks are emptied, and which of their pages can be moved.
//!
//! Models: `isolate_migratepages`, `isolate_migratepages_block`, `suitable_migration_source`,
//! `update_cached_migrate`, `test_and_set_skip`, mm/compaction.c, v6.12, v6.1, v4.14, v4.4 and v3.4;
//! `__isolate_lru_page`, mm/vmscan.c, v4.4.
//! Departs: a pageblock is scanned in one step. Visible as: whoever frees a page in the part that is
//! already scanned comes a little too late. Of a block device's dirty pages, asynchronous runs before 5.0 pass over
//! those alone that somebody holds, as a journal does. Visible as: on file systems without one, more are moved.
//! A look at a pageblock takes as long in a small memory, whose few looks a cache would keep. Visible as: below 1 GiB,
//! walks that find nothing take longer than theirs.
//!
//! The scanner goes from pageblock to pageblock to the first that is to be scanned, or to the free scanner. It
//! passes over one that is not whole, that has a skip hint (unless the run ignores hints or a search has just
//! found it there), or whose kind the run does not empty. What a scan then does to its pageblock's hint is the
//! kernel's own ([`SkipHints`]):
//!
//! - In vain: a pageblock that was scanned to its end and gave nothing gets the hint.
//! - From the first page, or the first scan: the hint is looked at once more when the scan begins at the
//!   pageblock's start, since another run may have come first. Whoever takes the first page sets it, and a
//!   run that then finds it set leaves the pageblock to that other one. A scan to the end that took nothing
//!   sets it too. A scan that began behind the pageblock's start leaves it alone.
//!
//! Where the next run begins moves with that: behind pageblocks that gave nothing or are finished.
//!
//! A brief run since 4.8 wants a block of its order and gives one up with the first page in it that cannot be
//! moved: what it took of it goes back, and the scan jumps behind it. It stops once it has passed one from
//! which it could take something.

use super::events::CompactEvent;
use super::{CompactRun, Scanned, block_end, block_start};
use crate::fast_search::{COMPACT_CLUSTER_MAX, MigrateMode};
use crate::frame::{PageFlags, State};
use crate::gfp::Gfp;
use crate::memory::Memory;
use crate::policy::{AsyncSources, Contention, Positions, SkipHints};
use crate::types::{Migratetype, Order, Pfn};
use crate::zone::ZoneId;
use core::ops::ControlFlow;

/// What the scanner makes of the block at a frame.
enum Look {
    Free,
    Movable,
    InTheWay,
}

/// What a scan still has to do with its pageblock's skip hint.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hint {
    /// Nothing: it was set or found set, or is none of this scan's business.
    Settled,
    /// To set it with the first page that is taken, or at the end.
    Open,
}

/// A scan of a part of a pageblock.
struct BlockScan {
    start: Pfn,
    end: Pfn,
    at: Pfn,
    nr_scanned: u32,
    nr_taken: u32,
    hint: Hint,
    /// For a run that gives blocks up: where the one at hand ends.
    wanted_until: Option<Pfn>,
}

impl BlockScan {
    /// Passes a block of so many pages, whose frames behind the first may count too.
    fn pass(&mut self, pages: u32, counts_all: bool) {
        self.at.0 += pages;
        self.nr_scanned += if counts_all { pages - 1 } else { 0 };
    }

    fn result(&self) -> Scanned {
        let Self { start, at, nr_scanned, nr_taken, .. } = *self;
        Scanned { start: start.0, end: at.0, nr_scanned, nr_taken }
    }
}

impl Memory {
    /// Looks for pages to move in the next pageblock that is worth it, and takes up to 32 of them.
    ///
    /// Without remembered positions (before 3.7) a scan spans the rest of the pageblock that it begins in and
    /// the next one, and no search comes before it.
    pub(super) fn isolate_migratepages(&mut self, run: &mut CompactRun) -> Scanned {
        let pages = self.pageblock_pages();
        let searched = self.work.pfns_scanned;
        let mut from = self.fast_find_migrateblock(&mut run.cc);
        let nr_searched = (self.work.pfns_scanned - searched) as u32;
        let nothing = Scanned { start: from.0, end: from.0, nr_scanned: nr_searched, nr_taken: 0 };
        let mut is_found = from != run.cc.migrate_pfn && run.cc.fast_search_fail == 0;
        let is_plain = self.policy.compaction.positions == Positions::None;
        let first_end = block_end(if is_plain { from + pages - 1 } else { from }, pages);
        if is_plain && first_end > run.cc.free_pfn {
            run.cc.migrate_pfn = first_end;
            return nothing;
        }
        let mut to = first_end;
        while to <= run.cc.free_pfn {
            self.come_to_block(false);
            if self.is_to_be_scanned(run, from, to, is_found) {
                let scanned = self.isolate_migratepages_block(run, from, to);
                self.note_compact(CompactEvent::IsolateMigratepages(scanned));
                return Scanned { nr_scanned: scanned.nr_scanned + nr_searched, ..scanned };
            }
            run.cc.migrate_pfn = to;
            if is_plain {
                break;
            }
            (from, to, is_found) = (to, to + pages, false);
        }
        nothing
    }

    /// Whether the part of a pageblock that lies before the scanner is to be scanned. One of the wrong kind is
    /// not asked again soon.
    fn is_to_be_scanned(&mut self, run: &CompactRun, from: Pfn, to: Pfn, is_found: bool) -> bool {
        let policy = self.policy.compaction;
        let asks_hint = match policy.skip_hints {
            SkipHints::Off => false,
            SkipHints::InVain => true,
            SkipHints::FirstPage | SkipHints::FirstScan => {
                block_start(from, self.pageblock_pages()) == from
            }
        };
        let has_hint = asks_hint && !is_found && !run.cc.ignore_skip_hint && self.block_skip(from);
        if has_hint || !self.is_whole_block(run.cc.zone, from, to) {
            return false;
        }
        let is_right = policy.positions == Positions::None || self.is_block_to_empty(run, from);
        if !is_right && policy.positions == Positions::Together {
            self.update_cached_migrate(run, to);
        }
        is_right
    }

    /// Notes that a scanner came to a pageblock, and whether it looks at its first frame in any case.
    pub(super) fn come_to_block(&mut self, looks_at_first: bool) {
        let looks = looks_at_first || self.policy.compaction.asks_block_ends;
        self.work.blocks_looked_at += u64::from(looks);
    }

    /// Whether a pageblock, or the part of one, lies in the zone and is memory.
    #[doc(alias = "pageblock_pfn_to_page")]
    pub(super) fn is_whole_block(&self, id: ZoneId, start: Pfn, end: Pfn) -> bool {
        let zone = &self.zones[id.index()];
        let last = end - 1;
        let is_there = |pfn: Pfn| zone.spans(pfn) && self.frames.state(pfn) != State::Hole;
        is_there(start.max(zone.start)) && is_there(last)
    }

    /// Whether a pageblock is of a kind that this run empties.
    #[doc(alias = "suitable_migration_source")]
    fn is_block_to_empty(&self, run: &CompactRun, pfn: Pfn) -> bool {
        let policy = self.policy.compaction;
        let head = block_start(pfn, self.pageblock_pages());
        let is_huge = policy.skip_huge_blocks
            && self.frames.state(head) == State::Allocated
            && self.frames.order(head) >= self.policy.freelist.pageblock_order;
        if is_huge {
            return false;
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
        let gives_up = self.policy.compaction.skip_on_failure && run.is_brief();
        let mut scan = BlockScan {
            start,
            end,
            at: start,
            nr_scanned: 0,
            nr_taken: 0,
            hint: Hint::Settled,
            wanted_until: gives_up.then(|| block_end(start, run.order_pages())),
        };
        if self.is_free_to_scan(run, &mut scan) {
            while scan.at < end && self.scan_next(run, &mut scan).is_continue() {}
            scan.at = scan.at.min(end);
        } else {
            // The frame that told counts.
            (scan.at, scan.nr_scanned) = (end, 1);
        }
        run.cc.migrate_pfn = scan.at;
        self.work.pfns_scanned += u64::from(scan.at.0 - start.0);
        if scan.at == end {
            self.finish_block(run, &scan);
        }
        scan.result()
    }

    /// Whether a scan may begin, or another run has left its hint meanwhile.
    fn is_free_to_scan(&self, run: &CompactRun, scan: &mut BlockScan) -> bool {
        let hints = self.policy.compaction.skip_hints;
        if matches!(hints, SkipHints::Off | SkipHints::InVain) {
            return true;
        }
        let zone_start = self.zones[run.cc.zone.index()].start;
        let is_at_start = block_start(scan.start, self.pageblock_pages()) == scan.start
            || hints == SkipHints::FirstScan && scan.start == zone_start;
        if is_at_start && !run.cc.ignore_skip_hint && self.block_skip(scan.start) {
            return false;
        }
        scan.hint = if is_at_start { Hint::Open } else { Hint::Settled };
        true
    }

    /// Looks at the next block of a scan. Breaks off once the scan is over before its end.
    fn scan_next(&mut self, run: &mut CompactRun, scan: &mut BlockScan) -> ControlFlow<()> {
        let policy = self.policy.compaction;
        if let Some(until) = scan.wanted_until
            && scan.at >= until
        {
            if scan.nr_taken > 0 {
                return ControlFlow::Break(());
            }
            scan.wanted_until = Some(block_end(scan.at, run.order_pages()));
        }
        if policy.positions == Positions::None && self.leaves_out(run, scan) {
            return ControlFlow::Continue(());
        }
        scan.nr_scanned += 1;
        let (look, pages) = self.look_for_movable(run, scan.at);
        match look {
            Look::Free => scan.pass(pages, policy.count_jumped),
            Look::InTheWay => {
                scan.pass(pages, policy.count_jumped);
                self.give_up_wanted(run, scan);
            }
            Look::Movable => {
                if self.leaves_to_other(run, scan) {
                    return ControlFlow::Break(());
                }
                self.isolate_movable_page(scan.at);
                run.batch.migratepages.push(scan.at);
                run.cc.nr_migratepages += pages;
                scan.nr_taken += pages;
                scan.pass(pages, policy.count_jumped);
                let lifts_limit = run.cc.finish_pageblock
                    || policy.contention == Contention::FinishBlock && run.contended;
                if run.cc.nr_migratepages >= COMPACT_CLUSTER_MAX && !lifts_limit {
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Passes the pageblock that a scan comes to, if the run does not empty it: asked here where one scan spans
    /// two of them.
    fn leaves_out(&self, run: &CompactRun, scan: &mut BlockScan) -> bool {
        let pages = self.pageblock_pages();
        let is_new = scan.at == scan.start || block_start(scan.at, pages) == scan.at;
        let leaves = is_new && !self.is_block_to_empty(run, scan.at);
        if leaves {
            scan.at = block_end(scan.at, pages);
        }
        leaves
    }

    /// What was taken of the block wanted cannot become a free block any more: it goes back.
    fn give_up_wanted(&mut self, run: &mut CompactRun, scan: &mut BlockScan) {
        let Some(until) = scan.wanted_until else { return };
        for taken in core::mem::take(&mut run.batch.migratepages) {
            self.putback_movable_page(taken, run.request.cpu);
        }
        (run.cc.nr_migratepages, scan.nr_taken) = (0, 0);
        if scan.at <= until {
            scan.at = until;
            scan.wanted_until = Some(until + run.order_pages());
        }
    }

    /// The first page of a scan is about to be taken: sets the pageblock's hint, where that is this scan's to
    /// do. Whether another run has set it meanwhile, to whom the pageblock is left.
    #[doc(alias = "test_and_set_skip")]
    fn leaves_to_other(&mut self, run: &CompactRun, scan: &mut BlockScan) -> bool {
        let by_scan = match self.policy.compaction.skip_hints {
            SkipHints::Off | SkipHints::InVain => return false,
            SkipHints::FirstPage => false,
            SkipHints::FirstScan => true,
        };
        let was_open = core::mem::replace(&mut scan.hint, Hint::Settled) == Hint::Open;
        let is_asked = was_open && (by_scan || scan.at == scan.start);
        if !is_asked || run.cc.ignore_skip_hint {
            return false;
        }
        let was_set = self.block_skip(scan.at);
        self.set_block_skip(scan.at, true);
        let leaves = was_set && !(by_scan && run.cc.finish_pageblock);
        if leaves && by_scan {
            scan.at = scan.end;
        }
        leaves
    }

    /// A scan has come to its end: what that says of the pageblock, and of where the next run begins.
    fn finish_block(&mut self, run: &CompactRun, scan: &BlockScan) {
        match self.policy.compaction.skip_hints {
            SkipHints::InVain if scan.nr_taken == 0 && !run.cc.ignore_skip_hint => {
                self.set_block_skip(scan.start, true);
                self.update_cached_migrate(run, scan.start);
            }
            SkipHints::Off | SkipHints::InVain => {}
            SkipHints::FirstPage | SkipHints::FirstScan => {
                if scan.nr_taken > 0 && !run.cc.finish_pageblock {
                    return;
                }
                if scan.hint == Hint::Open {
                    self.set_block_skip(scan.start, true);
                }
                self.update_cached_migrate(run, scan.end);
            }
        }
    }

    /// What to make of the block at `pfn`, and how many pages it has.
    #[inline]
    fn look_for_movable(&self, run: &CompactRun, pfn: Pfn) -> (Look, u32) {
        let order = match self.frames.state(pfn) {
            State::Free => return (Look::Free, self.frames.order(pfn).pages()),
            State::Allocated => self.frames.order(pfn),
            // Blocks on per-CPU lists and isolated ones are single pages to the scanner.
            _ => return (Look::InTheWay, 1),
        };
        let is_movable =
            (order == Order(0) || self.may_isolate_large(run, order)) && self.may_isolate(run, pfn);
        (if is_movable { Look::Movable } else { Look::InTheWay }, order.pages())
    }

    /// Whether a page of several base pages is taken whole.
    #[doc(alias = "skip_isolation_on_order")]
    fn may_isolate_large(&self, run: &CompactRun, order: Order) -> bool {
        self.policy.compaction.large_folios
            && run.cc.order.is_none_or(|wanted| order < wanted)
            && order < self.policy.freelist.pageblock_order
    }

    /// Whether a page is one that this run may take at this moment.
    #[doc(alias = "__isolate_lru_page")]
    fn may_isolate(&self, run: &CompactRun, pfn: Pfn) -> bool {
        if !self.is_movable_page(pfn) {
            return false;
        }
        let policy = self.policy.compaction;
        let frames = &self.frames;
        if frames.has(pfn, PageFlags::MOVABLE_OPS) {
            return policy.movable_ops && !frames.has(pfn, PageFlags::PINNED);
        }
        // Anonymous pages outside the swap cache have no mapping that could be waited for.
        let has_mapping = !frames.has(pfn, PageFlags::ANON)
            || frames.has(pfn, PageFlags::SWAPCACHE)
            || self.is_shmem(pfn);
        if has_mapping && !run.request.gfp.contains(Gfp::FS)
            || !has_mapping && frames.has(pfn, PageFlags::PINNED)
            || !policy.unevictable && frames.has(pfn, PageFlags::UNEVICTABLE)
        {
            return false;
        }
        // A journal holds it: it is dirty once it is committed.
        let is_dirty_buffer = !frames.has(pfn, PageFlags::ANON)
            && frames.has(pfn, PageFlags::PINNED)
            && frames.has(pfn, PageFlags::DIRTY);
        if is_dirty_buffer && run.cc.mode == MigrateMode::Async && !policy.async_takes_dirty_buffers
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
