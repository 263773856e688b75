//! Compaction runs as a recording tells of them, and the model's searches of the free lists for them.
//!
//! Models: the frame of `compact_zone` around the searches, mm/compaction.c, v6.12 and v6.1: where its
//! scanners stand, which pageblocks it marks as to be skipped.
//! Departs: what is scanned and migrated is the recording's. The moment at which kswapd resets skip hints
//! is not recorded: taken to be the end of its round. Kernels before 6.4 do not tell of searches in vain:
//! taken to be just before the scan that follows. A task that pauses between its events searches at once
//! here. Visible as: lists that begin elsewhere, counted as inferred rotations.

use crate::recording::{CompactStep, Event};
use highorder_mm::fast_search::{CompactControl, FastIsolated, FastStart, FreeSearch, MigrateMode};
use highorder_mm::gfp::Gfp;
use highorder_mm::memory::Memory;
use highorder_mm::policy::TargetSearch;
use highorder_mm::types::{Migratetype, Order, Pfn};
use highorder_mm::zone::ZoneId;
use std::collections::BTreeMap;

/// The priority with which an allocation compacts the whole zone (`COMPACT_PRIO_SYNC_FULL`).
const PRIORITY_SYNC_FULL: i32 = 0;

/// A search of the model beside the kernel's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Searched {
    /// What the model found.
    pub(crate) model: FastIsolated,
    /// What the kernel found, if anything.
    pub(crate) kernel: Option<(Pfn, Order)>,
    /// The run's state afterwards.
    pub(crate) cc: CompactControl,
}

/// What the model has to say of a step.
pub(crate) enum Told {
    /// A search for targets is over; the kernel's looked at so many entries, from this frame up.
    Targets(Searched, u32, Pfn),
    /// The model's search chose a pageblock to empty, the kernel's that.
    Source { model: Pfn, kernel: Pfn, cc: CompactControl },
}

/// One run.
struct Run {
    cc: CompactControl,
    /// Where pages were last migrated from (`last_migrated_pfn`).
    last_migrated_pfn: Pfn,
    /// The search under way, whose event is yet to come.
    searched: Option<Searched>,
    /// The page around which a pageblock may be scanned now.
    around: Option<Pfn>,
    /// Whether targets are being looked for: a scan goes on without another search.
    scans_for_targets: bool,
    /// Whether it looks for pages to migrate, and the pageblock that the model's search chose.
    looks_for_source: Option<Option<Pfn>>,
}

/// An allocation that compacts.
struct Request {
    order: Order,
    gfp: Gfp,
    priority: i32,
    /// Whether compaction has told that it served.
    is_served: bool,
}

/// All runs.
pub(crate) struct Compactions {
    /// Whether the recorded kernel tells of its searches for targets.
    tells_of_searches: bool,
    /// The last run of each task.
    runs: BTreeMap<u32, Run>,
    /// The last request of each task.
    requests: BTreeMap<u32, Request>,
}

impl Compactions {
    /// None yet.
    pub(crate) const fn new(tells_of_searches: bool) -> Self {
        Self { tells_of_searches, runs: BTreeMap::new(), requests: BTreeMap::new() }
    }

    /// Follows one step of a task's compaction.
    pub(crate) fn step(
        &mut self,
        memory: &mut Memory,
        event: &Event,
        step: &CompactStep,
    ) -> Option<Told> {
        match *step {
            CompactStep::TryToCompact { order, gfp, priority } => {
                let request = Request { order, gfp, priority, is_served: false };
                self.requests.insert(event.pid, request);
                return None;
            }
            CompactStep::Begin { migrate_pfn, free_pfn, is_sync } => {
                self.begin(memory, event.pid, migrate_pfn, free_pfn, is_sync);
                return None;
            }
            CompactStep::DeferReset => {
                if let Some(request) = self.requests.get_mut(&event.pid) {
                    request.is_served = true;
                }
                return None;
            }
            _ => {}
        }
        let run = self.runs.get_mut(&event.pid)?;
        match *step {
            CompactStep::Finished { order, goes_on, scanners_met } => {
                run.finished(memory, order, goes_on, scanners_met);
                None
            }
            CompactStep::IsolateMigratepages { start, end, nr_taken } => {
                run.isolated_migratepages(memory, start, end, nr_taken)
            }
            CompactStep::IsolateFreepages { start, end } => {
                if !self.tells_of_searches {
                    run.search_before_scan(memory, start);
                }
                run.isolated_freepages(memory, start, end);
                None
            }
            CompactStep::FastIsolateFreepages { min_pfn, free_pfn, nr_scanned, .. } => {
                let searched = match run.searched.take() {
                    Some(searched) => searched,
                    None => run.search(memory, None)?,
                };
                if searched.model.block.is_some() {
                    run.cc.free_pfn = free_pfn;
                }
                Some(Told::Targets(searched, nr_scanned, min_pfn))
            }
            CompactStep::Migratepages => {
                run.cc.nr_freepages = run.cc.nr_freepages.saturating_sub(run.cc.nr_migratepages);
                run.cc.nr_migratepages = 0;
                None
            }
            CompactStep::TryToCompact { .. }
            | CompactStep::Begin { .. }
            | CompactStep::DeferReset => None,
        }
    }

    fn begin(
        &mut self,
        memory: &mut Memory,
        pid: u32,
        migrate_pfn: Pfn,
        free_pfn: Pfn,
        is_sync: bool,
    ) {
        let Some(zone) = memory.find_zone(migrate_pfn) else { return };
        let compact = &mut memory.zones[zone.index()].compact;
        compact.cached_free_pfn = free_pfn;
        compact.cached_migrate_pfn[usize::from(is_sync)] = migrate_pfn;
        let mode = if is_sync { MigrateMode::SyncLight } else { MigrateMode::Async };
        let request = self.requests.get(&pid);
        let order = request.map(|request| request.order);
        let mut cc = CompactControl::new(zone, order, mode, migrate_pfn, free_pfn);
        cc.migratetype = request.map_or(Migratetype::Unmovable, |r| r.gfp.migratetype());
        cc.direct_compaction = request.is_some();
        cc.ignore_skip_hint = request.is_some_and(|r| r.priority == PRIORITY_SYNC_FULL);
        let before = self.runs.get(&pid).map(|run| run.cc);
        // kcompactd goes from zone to zone with what it has learnt.
        let node = |zone: ZoneId| memory.zones[zone.index()].node;
        if let Some(before) = before
            && !cc.direct_compaction
            && before.zone < zone
            && node(before.zone) == node(zone)
        {
            cc = CompactControl {
                zone,
                mode,
                migrate_pfn,
                free_pfn,
                fast_start_pfn: FastStart::Unset,
                nr_migratepages: 0,
                nr_freepages: 0,
                ..before
            };
        }
        let run = Run {
            cc,
            last_migrated_pfn: Pfn(0),
            searched: None,
            around: None,
            scans_for_targets: false,
            looks_for_source: None,
        };
        self.runs.insert(pid, run);
    }

    /// A task isolates a block. If it found it on a free list, the model's search comes first; what it
    /// found is returned if there will be no event for that.
    pub(crate) fn isolate(&mut self, memory: &mut Memory, event: &Event) -> Option<Searched> {
        let run = self.runs.get_mut(&event.pid)?;
        if event.is_from_list() {
            run.searched = run.search(memory, Some((event.pfn, event.order)));
            return run.searched.take_if(|_| !self.tells_of_searches);
        }
        if !self.tells_of_searches {
            run.search_before_scan(memory, event.pfn);
        }
        run.cc.nr_freepages += event.order.pages();
        None
    }

    /// A block is handed out. If compaction has provided it, as it does none of order 0, there is no need to look again at the
    /// pageblocks that it skips (`__alloc_pages_direct_compact`).
    pub(crate) fn allocated(&mut self, memory: &mut Memory, event: &Event) {
        if event.order.0 > 0
            && let Some(request) = self.requests.get_mut(&event.pid)
            && core::mem::take(&mut request.is_served)
            && request.order == event.order
        {
            let zone = memory.zone_of(event.pfn);
            memory.zones[zone.index()].compact.blockskip_flush = false;
        }
    }

    /// A target was not used, and waits for another page.
    pub(crate) fn target_returned(&mut self, pid: u32, order: Order) {
        if let Some(run) = self.runs.get_mut(&pid) {
            run.cc.nr_freepages += order.pages();
            run.cc.nr_migratepages += order.pages();
        }
    }
}

impl Run {
    /// Searches as the model does; where the kernel found another block, its search is made good.
    fn search(&mut self, memory: &mut Memory, kernel: Option<(Pfn, Order)>) -> Option<Searched> {
        let cc = &mut self.cc;
        // All targets there were have been used.
        if memory.policy.compaction.target_search == TargetSearch::UntilEnough {
            cc.nr_migratepages = cc.nr_migratepages.saturating_sub(cc.nr_freepages);
        }
        cc.nr_freepages = 0;
        let mut search = FreeSearch::begin(memory, cc)?;
        let mut found = search.next_block(memory, cc);
        let foreseen = found;
        if let Some((pfn, order)) = kernel
            && found != kernel
        {
            let is_on_list = memory.frames().is_free(pfn, order)
                && memory.frames().migratetype(pfn) == Migratetype::Movable;
            if is_on_list {
                memory.rotate_free_list(cc.zone, order, Migratetype::Movable, pfn);
            }
            search.correct(cc, pfn, order);
            found = kernel;
        }
        if found.is_some() {
            search.isolated(cc, kernel.is_some());
        }
        let mut model = search.end(memory, cc);
        self.around = model.around.filter(|_| cc.searches_around());
        self.scans_for_targets = kernel.is_none();
        model.block = foreseen;
        Some(Searched { model, kernel, cc: *cc })
    }

    /// As [`Self::search`], for a kernel that does not tell of it: a scan of a pageblock which is neither
    /// around what a search found nor the continuation of another follows a search in vain.
    fn search_before_scan(&mut self, memory: &mut Memory, scanned: Pfn) {
        let block = |pfn: Pfn| pfn.align_down(memory.policy.freelist.pageblock_order);
        let is_around = self.around.is_some_and(|pfn| block(pfn) == block(scanned));
        if !is_around && !self.scans_for_targets {
            self.search(memory, None);
            self.scans_for_targets = true;
        }
    }

    fn finished(
        &mut self,
        memory: &mut Memory,
        order: Option<Order>,
        goes_on: bool,
        scanners_met: bool,
    ) {
        let cc = &mut self.cc;
        if cc.order != order {
            cc.order = order;
            cc.search_order = order.unwrap_or(Order(0));
        }
        if order.is_none() {
            cc.ignore_skip_hint = true;
        }
        if scanners_met && cc.direct_compaction {
            memory.zones[cc.zone.index()].compact.blockskip_flush = true;
        }
        if let Some(order) = order
            && self.last_migrated_pfn < cc.migrate_pfn.align_down(order)
        {
            self.last_migrated_pfn = Pfn(0);
        }
        if !goes_on {
            return;
        }
        let block = |pfn: Pfn| pfn.align_down(memory.policy.freelist.pageblock_order);
        cc.finish_pageblock = block(self.last_migrated_pfn) == block(cc.migrate_pfn);
        let stands_at = cc.migrate_pfn;
        let chosen = memory.fast_find_migrateblock(cc);
        let is_found = chosen != stands_at && cc.fast_search_fail == 0;
        self.looks_for_source = Some(is_found.then_some(chosen));
    }

    fn isolated_migratepages(
        &mut self,
        memory: &mut Memory,
        start: Pfn,
        end: Pfn,
        nr_taken: u32,
    ) -> Option<Told> {
        let cc = &mut self.cc;
        let pageblock_order = memory.policy.freelist.pageblock_order;
        let searched = self.looks_for_source.take();
        if searched.is_none() {
            // The rest of a pageblock, part of which could not be migrated.
            cc.finish_pageblock = true;
            if cc.order == Some(pageblock_order) {
                self.last_migrated_pfn = Pfn(0);
            }
        }
        let zone_start = memory.zones[cc.zone.index()].start;
        let is_at_block = start == zone_start || start == start.align_down(pageblock_order);
        let is_whole = end == end.align_down(pageblock_order);
        let marks =
            if cc.ignore_skip_hint { nr_taken == 0 && is_whole } else { nr_taken > 0 || is_whole };
        if is_at_block && marks {
            memory.set_block_skip(start, true);
        }
        cc.migrate_pfn = end;
        cc.nr_migratepages = cc.nr_migratepages.saturating_add(nr_taken);
        if cc.nr_migratepages > 0 {
            self.last_migrated_pfn = (end - 1).align_down(pageblock_order).max(zone_start);
        }
        let cc = *cc;
        searched.flatten().map(|model| Told::Source { model, kernel: start, cc })
    }

    fn isolated_freepages(&mut self, memory: &mut Memory, start: Pfn, end: Pfn) {
        let cc = &mut self.cc;
        let pageblock_order = memory.policy.freelist.pageblock_order;
        let zone = &memory.zones[cc.zone.index()];
        let block = start.align_down(pageblock_order);
        let block_end = (block + pageblock_order.pages()).min(zone.end);
        if end >= block_end {
            memory.set_block_skip(start, true);
        }
        let is_around =
            self.around.take().is_some_and(|pfn| pfn.align_down(pageblock_order) == block);
        if is_around {
            return;
        }
        cc.free_pfn = match end < block_end {
            true => end,
            false => Pfn(block.0.saturating_sub(pageblock_order.pages())),
        };
        self.scans_for_targets = end >= block_end && !cc.has_enough_free_pages();
    }
}
