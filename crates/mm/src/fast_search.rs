//! Compaction's search of the free lists: for targets to migrate into, and for a pageblock to empty.
//!
//! Models: `fast_isolate_freepages`, `next_search_order`, `fast_find_migrateblock`,
//! `move_freelist_head`, `move_freelist_tail`, `__reset_isolation_suitable`, mm/compaction.c, v6.12 and
//! v6.1.
//! Departs: a search is one step, while the kernel drops the zone's lock between two orders, so that
//! another CPU may change the next list meanwhile. Visible as: two compactors of one zone at the same
//! moment may find each other's pages. A page in use that is movable counts as one on an LRU list.
//!
//! Both searches look at a few blocks of the Movable lists instead of scanning memory, and turn the lists
//! so that the next search begins where this one ended: allocations, which take a list's head, find
//! another block there afterwards.

use crate::frame::State;
use crate::memory::Memory;
use crate::policy::{MigrateSearch, TargetSearch as TargetSearchPolicy};
use crate::types::{COSTLY_ORDER, Migratetype, Order, Pfn};
use crate::zone::ZoneId;

/// Pages that compaction takes in one go (`COMPACT_CLUSTER_MAX`).
pub const COMPACT_CLUSTER_MAX: u32 = 32;

/// How hard compaction tries (`enum migrate_mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MigrateMode {
    /// Never waits.
    Async,
    /// Waits for most things, but not for writeback.
    SyncLight,
    /// Waits.
    Sync,
}

/// Where a linear scan for pages to migrate begins once searching fails (`fast_start_pfn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastStart {
    /// No search has found a pageblock yet (0).
    Unset,
    /// The lowest block found so far.
    Lowest(Pfn),
    /// The scan has begun there already (`ULONG_MAX`).
    Used,
}

/// The state of one compaction run of a zone, as far as the searches use it (`struct compact_control`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactControl {
    /// The zone.
    pub zone: ZoneId,
    /// The order wanted; `None` to compact the whole zone (-1), without searches.
    pub order: Option<Order>,
    /// Type of the request.
    pub migratetype: Migratetype,
    /// How hard it tries.
    pub mode: MigrateMode,
    /// Whether an allocation compacts for itself; else it is kcompactd, or user space.
    pub direct_compaction: bool,
    /// Whether pageblocks are scanned even if that was in vain the last time.
    pub ignore_skip_hint: bool,
    /// Whether the pageblock at hand is to be emptied before another is chosen.
    pub finish_pageblock: bool,
    /// Where the next page to migrate is looked for.
    pub migrate_pfn: Pfn,
    /// Where the next target is looked for.
    pub free_pfn: Pfn,
    /// Lowest pageblock that a search found.
    pub fast_start_pfn: FastStart,
    /// Order at which the next search for targets begins.
    pub search_order: Order,
    /// Searches in vain since the last that found something.
    pub fast_search_fail: u32,
    /// Pages that wait for a target.
    pub nr_migratepages: u32,
    /// Targets that wait for a page.
    pub nr_freepages: u32,
}

impl CompactControl {
    /// A run that begins at these positions.
    #[must_use]
    pub const fn new(
        zone: ZoneId,
        order: Option<Order>,
        mode: MigrateMode,
        migrate_pfn: Pfn,
        free_pfn: Pfn,
    ) -> Self {
        Self {
            zone,
            order,
            migratetype: Migratetype::Movable,
            mode,
            direct_compaction: false,
            ignore_skip_hint: false,
            finish_pageblock: false,
            migrate_pfn,
            free_pfn,
            fast_start_pfn: FastStart::Unset,
            search_order: match order {
                Some(order) => order,
                None => Order(0),
            },
            fast_search_fail: 0,
            nr_migratepages: 0,
            nr_freepages: 0,
        }
    }

    /// Blocks that a search looks at, at most: half as many after each in vain (`freelist_scan_limit`).
    #[must_use]
    pub fn freelist_scan_limit(&self) -> u32 {
        (COMPACT_CLUSTER_MAX >> self.fast_search_fail.min(u32::BITS - 1)) + 1
    }

    /// Whether every page that waits has its target.
    #[must_use]
    pub const fn has_enough_targets(&self) -> bool {
        self.nr_freepages >= self.nr_migratepages
    }

    /// Whether the pageblock around a target is to be scanned for more (`fast_isolate_around`).
    #[must_use]
    pub fn searches_around(&self) -> bool {
        let is_brief = self.direct_compaction && self.mode == MigrateMode::Async;
        !self.has_enough_targets() && !is_brief
    }

    /// The order that a search for targets looks at after `order`: round and round, until it is back
    /// where it began; then the next search begins one order lower (`next_search_order`).
    fn next_search_order(&mut self, order: Order) -> Option<Order> {
        let highest = self.order.map_or(0, |order| order.0 - 1);
        let below = |order: Order| Order(order.0.checked_sub(1).unwrap_or(highest));
        let next = below(order);
        if next != self.search_order {
            return Some(next);
        }
        self.search_order = below(self.search_order);
        None
    }
}

/// What compaction remembers of a zone between two runs (the fields `compact_*` of `struct zone`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactZone {
    /// Where the next run looks for targets (`compact_cached_free_pfn`).
    pub cached_free_pfn: Pfn,
    /// Where the next run, async or sync, looks for pages to migrate (`compact_cached_migrate_pfn`).
    pub cached_migrate_pfn: [Pfn; 2],
    /// Where free pages began when the skip hints were last reset (`compact_init_free_pfn`).
    pub init_free_pfn: Pfn,
    /// Where movable pages began then (`compact_init_migrate_pfn`).
    pub init_migrate_pfn: Pfn,
    /// Whether the skip hints are to be reset (`compact_blockskip_flush`).
    pub blockskip_flush: bool,
    /// Runs asked for since the last one that failed (`compact_considered`).
    pub considered: u32,
    /// Runs that follow a failure are deferred until `2^defer_shift` were asked for
    /// (`compact_defer_shift`).
    pub defer_shift: u8,
    /// The smallest order that failed: smaller ones are not deferred (`compact_order_failed`).
    pub order_failed: Order,
    /// Pages that runs hold as targets at this moment, or as pages of a block that is being emptied.
    pub nr_held: u64,
    /// The most that were held at any moment.
    pub nr_held_max: u64,
    /// Free blocks of more than one page that were taken apart for targets.
    pub nr_split: u64,
    /// Pages that were moved though they had been before.
    pub nr_moved_again: u64,
}

impl CompactZone {
    /// As after boot.
    pub const NEW: Self = Self {
        cached_free_pfn: Pfn(0),
        cached_migrate_pfn: [Pfn(0); 2],
        init_free_pfn: Pfn(0),
        init_migrate_pfn: Pfn(0),
        blockskip_flush: false,
        considered: 0,
        defer_shift: 0,
        order_failed: Order(0),
        nr_held: 0,
        nr_held_max: 0,
        nr_split: 0,
        nr_moved_again: 0,
    };
}

impl Default for CompactZone {
    fn default() -> Self {
        Self::NEW
    }
}

/// What a search for targets came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastIsolated {
    /// The block that was isolated.
    pub block: Option<(Pfn, Order)>,
    /// List entries looked at, and with some kernels the pages isolated beyond the first.
    pub nr_scanned: u32,
    /// Lowest frame that would have done.
    pub min_pfn: Pfn,
    /// A page whose pageblock is to be scanned now, if [`CompactControl::searches_around`].
    pub around: Option<Pfn>,
}

/// A search for targets, in steps: [`Self::next_block`] finds a block, [`Self::isolated`] is told whether
/// it could be taken, [`Self::end`] draws the conclusions.
#[derive(Clone, Copy, Debug)]
pub struct TargetSearch {
    policy: TargetSearchPolicy,
    /// Blocks at or above this one are taken at once.
    low_pfn: Pfn,
    /// Blocks at or above this one are taken if there is no better.
    min_pfn: Pfn,
    /// List entries looked at, at most.
    limit: u32,
    nr_scanned: u32,
    /// Highest pageblock seen.
    highest: Pfn,
    /// Whether the free scanner has not yet left its start.
    scan_start: bool,
    /// Where the search goes on, unless it is over.
    order: Option<Order>,
    found: Option<(Pfn, Order)>,
}

impl TargetSearch {
    /// Begins a search; `None` if the whole zone is compacted, or no smaller block could help, or the
    /// kernel has no such searches.
    #[must_use]
    pub fn begin(memory: &Memory, cc: &mut CompactControl) -> Option<Self> {
        if memory.policy.compaction.target_search == TargetSearchPolicy::Off {
            return None;
        }
        let highest_order = Order(cc.order.filter(|order| order.0 > 0)?.0 - 1);
        let pageblock_order = memory.policy.freelist.pageblock_order;
        let scan_start = cc.free_pfn >= memory.zones[cc.zone.index()].compact.init_free_pfn;
        let limit = match scan_start {
            true => pageblock_order.pages() / 2,
            false => (cc.freelist_scan_limit() / 2).max(1),
        };
        let distance = cc.free_pfn.0.saturating_sub(cc.migrate_pfn.0);
        let below = |pages: u32| Pfn(cc.free_pfn.0 - pages).align_down(pageblock_order);
        let (low_pfn, min_pfn) = (below(distance / 4), below(distance / 2));
        cc.search_order = cc.search_order.min(highest_order);
        Some(Self {
            policy: memory.policy.compaction.target_search,
            low_pfn,
            min_pfn,
            limit,
            nr_scanned: 0,
            highest: Pfn(0),
            scan_start,
            order: Some(cc.search_order),
            found: None,
        })
    }

    /// Looks through list after list, turning each, up to the first that has a block that will do.
    pub fn next_block(
        &mut self,
        memory: &mut Memory,
        cc: &mut CompactControl,
    ) -> Option<(Pfn, Order)> {
        while let Some(order) = self.order {
            let area = &memory.zones[cc.zone.index()].free_area;
            if area.nr_free(order) > 0 {
                let (found, order_scanned) = self.search_list(memory, cc, order);
                if let Some(pfn) = found {
                    self.found = Some((pfn, order));
                    return self.found;
                }
                if self.is_over_with_enough(cc) {
                    return None;
                }
                // In all, the search remains as long as its limit was at first.
                if order_scanned >= self.limit {
                    self.limit = (self.limit / 2).max(1);
                }
            }
            self.order = cc.next_search_order(order);
        }
        None
    }

    /// Searches one list from its tail. Returns the block found, and how many were looked at.
    fn search_list(
        &mut self,
        memory: &mut Memory,
        cc: &mut CompactControl,
        order: Order,
    ) -> (Option<Pfn>, u32) {
        let pageblock_order = memory.policy.freelist.pageblock_order;
        let zone = &memory.zones[cc.zone.index()];
        let list = zone.free_area.list(order, Migratetype::Movable);
        let mut order_scanned = 0;
        let mut candidate: Option<Pfn> = None;
        let mut next = list.tail();
        let mut stopped_at = None;
        let mut found = None;
        while let Some(pfn) = next {
            order_scanned += 1;
            if pfn >= self.highest {
                self.highest = pfn.align_down(pageblock_order).max(zone.start);
            }
            if pfn >= self.low_pfn {
                cc.fast_search_fail = 0;
                cc.search_order = order;
                found = Some(pfn);
                break;
            }
            if pfn >= self.min_pfn && candidate.is_none_or(|best| pfn > best) {
                candidate = Some(pfn);
                self.limit /= 2;
            }
            if order_scanned >= self.limit {
                stopped_at = Some(pfn);
                break;
            }
            next = memory.frames.prev(pfn);
        }
        self.nr_scanned += order_scanned;
        memory.work.pfns_scanned += u64::from(order_scanned);
        let found = found.or(candidate);
        // What was looked at now stands first, what was not is searched next time.
        if let Some(first) = found.or(stopped_at) {
            memory.rotate_free_list(cc.zone, order, Migratetype::Movable, first);
        }
        (found, order_scanned)
    }

    /// Makes another block the one found: what a kernel did that the model did not foresee.
    pub fn correct(&mut self, cc: &mut CompactControl, pfn: Pfn, order: Order) {
        if pfn >= self.low_pfn {
            cc.fast_search_fail = 0;
            cc.search_order = order;
        }
        self.found = Some((pfn, order));
    }

    fn is_over_with_enough(&mut self, cc: &CompactControl) -> bool {
        let is_over = self.policy == TargetSearchPolicy::UntilEnough && cc.has_enough_targets();
        if is_over {
            self.order = None;
        }
        is_over
    }

    /// Tells whether the block found could be isolated. The search is over in either case.
    ///
    /// # Panics
    /// If none was found.
    pub fn isolated(&mut self, cc: &mut CompactControl, could_be: bool) {
        let (_, order) = self.found.expect("a block was found");
        let next_from = if could_be {
            cc.nr_freepages += order.pages();
            if self.policy == TargetSearchPolicy::UntilEnough {
                self.nr_scanned += order.pages() - 1;
            }
            order
        } else {
            self.found = None;
            Order(cc.search_order.0 + 1)
        };
        // The kernel steps on to the next order before it sees that it is done; that step may bring the
        // search round to where it began.
        if !self.is_over_with_enough(cc) {
            let _ = cc.next_search_order(next_from);
        }
        self.order = None;
    }

    /// Draws the conclusions: where to scan next, and how far the next search may go.
    pub fn end(self, memory: &mut Memory, cc: &mut CompactControl) -> FastIsolated {
        let pageblock = memory.policy.freelist.pageblock_order.pages();
        let mut around = self.found.map(|(pfn, _)| pfn);
        if self.found.is_none() {
            cc.fast_search_fail += 1;
            let least = match self.policy {
                TargetSearchPolicy::Off | TargetSearchPolicy::UntilFound => Pfn(1),
                TargetSearchPolicy::UntilEnough => self.min_pfn,
            };
            if self.scan_start && self.highest >= least {
                cc.free_pfn = self.highest;
                around = Some(self.highest);
            } else if self.scan_start && cc.direct_compaction {
                cc.free_pfn = self.min_pfn;
                around = Some(self.min_pfn);
            }
        }
        let compact = &mut memory.zones[cc.zone.index()].compact;
        if self.highest.0 >= pageblock && self.highest >= compact.cached_free_pfn {
            compact.cached_free_pfn = Pfn(self.highest.0 - pageblock);
        }
        FastIsolated {
            block: self.found,
            nr_scanned: self.nr_scanned,
            min_pfn: self.min_pfn,
            around,
        }
    }
}

impl Memory {
    /// Searches the free lists for a block to migrate into, and isolates it.
    ///
    /// The block is in the upper quarter of what lies between the scanners, or at least in the upper
    /// half. `None` if the run makes no such searches.
    pub fn fast_isolate_freepages(&mut self, cc: &mut CompactControl) -> Option<FastIsolated> {
        let mut search = TargetSearch::begin(self, cc)?;
        if let Some((pfn, order)) = search.next_block(self, cc) {
            let could_be = self.isolate_free_page(pfn, order);
            search.isolated(cc, could_be);
        }
        Some(search.end(self, cc))
    }

    /// Searches the free lists for a pageblock to empty that has free pages already.
    ///
    /// Returns where to scan: the block found, or where the scanner stood, or once the lowest block that
    /// searches had found before.
    pub fn fast_find_migrateblock(&mut self, cc: &mut CompactControl) -> Pfn {
        let pageblock_order = self.policy.freelist.pageblock_order;
        let rule = self.policy.compaction.migrate_search;
        let start = self.zones[cc.zone.index()].start;
        let is_at_block =
            cc.migrate_pfn == start || cc.migrate_pfn == cc.migrate_pfn.align_down(pageblock_order);
        let stays = cc.finish_pageblock && rule == MigrateSearch::FinishBlocks;
        let Some(order) = cc.order.filter(|&order| order > COSTLY_ORDER) else {
            return cc.migrate_pfn;
        };
        if rule == MigrateSearch::Off
            || cc.ignore_skip_hint
            || stays
            || !is_at_block
            || cc.direct_compaction && cc.migratetype != Migratetype::Movable
        {
            return cc.migrate_pfn;
        }
        let mut distance = cc.free_pfn.0.saturating_sub(cc.migrate_pfn.0) / 2;
        if cc.migrate_pfn != start {
            distance /= 4;
        }
        let high_pfn = Pfn(cc.migrate_pfn.0 + distance).align_down(pageblock_order);
        let limit = cc.freelist_scan_limit();
        let mut nr_scanned = 0;
        for order in (COSTLY_ORDER.0..order.0).rev().map(Order) {
            if nr_scanned >= limit {
                break;
            }
            if let Some(pfn) = self.search_for_source(cc, order, high_pfn, limit, &mut nr_scanned) {
                self.rotate_free_list_behind(cc.zone, order, Migratetype::Movable, pfn);
                cc.fast_start_pfn = match cc.fast_start_pfn {
                    FastStart::Unset => FastStart::Lowest(pfn),
                    FastStart::Lowest(lowest) => FastStart::Lowest(lowest.min(pfn)),
                    FastStart::Used => FastStart::Used,
                };
                cc.fast_search_fail = 0;
                if rule == MigrateSearch::MarkFound {
                    self.set_block_skip(pfn, true);
                }
                return pfn.align_down(pageblock_order).max(start);
            }
        }
        cc.fast_search_fail += 1;
        if let FastStart::Lowest(lowest) = cc.fast_start_pfn {
            cc.migrate_pfn = lowest;
            cc.fast_start_pfn = FastStart::Used;
        }
        cc.migrate_pfn
    }

    /// Searches one list from its head for a block below `high_pfn` whose pageblock is not to be skipped.
    /// A search that reaches its limit turns the list.
    fn search_for_source(
        &mut self,
        cc: &CompactControl,
        order: Order,
        high_pfn: Pfn,
        limit: u32,
        nr_scanned: &mut u32,
    ) -> Option<Pfn> {
        let list = self.zones[cc.zone.index()].free_area.list(order, Migratetype::Movable);
        let mut next = list.head();
        while let Some(pfn) = next {
            *nr_scanned += 1;
            self.work.pfns_scanned += 1;
            if *nr_scanned > limit {
                self.rotate_free_list_behind(cc.zone, order, Migratetype::Movable, pfn);
                return None;
            }
            if pfn < high_pfn && !self.block_skip(pfn) {
                return Some(pfn);
            }
            next = self.frames.next(pfn);
        }
        None
    }

    /// Clears the skip hints of the zone's pageblocks that show signs of something to move or a place to
    /// move it to, if a compaction has asked for it; the next run begins at the outermost of them.
    pub fn reset_isolation_suitable(&mut self, id: ZoneId) {
        let pageblock = self.policy.freelist.pageblock_order.pages();
        let zone = &mut self.zones[id.index()];
        if !core::mem::take(&mut zone.compact.blockskip_flush) {
            return;
        }
        let (mut migrate_pfn, mut free_pfn) = (zone.start, Pfn(zone.end.0 - 1));
        let mut reset = (free_pfn, migrate_pfn);
        let (mut source_set, mut free_set) = (false, false);
        while migrate_pfn < free_pfn {
            if self.reset_block_skip(id, migrate_pfn, true, source_set) && migrate_pfn < reset.0 {
                source_set = true;
                reset.0 = migrate_pfn;
                let compact = &mut self.zones[id.index()].compact;
                compact.init_migrate_pfn = migrate_pfn;
                compact.cached_migrate_pfn = [migrate_pfn; 2];
            }
            if self.reset_block_skip(id, free_pfn, free_set, true) && free_pfn > reset.1 {
                free_set = true;
                reset.1 = free_pfn;
                let compact = &mut self.zones[id.index()].compact;
                compact.init_free_pfn = free_pfn;
                compact.cached_free_pfn = free_pfn;
            }
            migrate_pfn.0 += pageblock;
            free_pfn.0 = free_pfn.0.saturating_sub(pageblock);
        }
        if reset.0 >= reset.1 {
            let compact = &mut self.zones[id.index()].compact;
            compact.cached_migrate_pfn = [migrate_pfn; 2];
            compact.cached_free_pfn = free_pfn;
        }
    }

    /// Clears one pageblock's skip hint if a sample of its pages shows something to move
    /// (`check_source`) or a place to move to (`check_target`). Returns whether it is worth a scan
    /// (`__reset_isolation_pfn`).
    fn reset_block_skip(
        &mut self,
        id: ZoneId,
        pfn: Pfn,
        check_source: bool,
        check_target: bool,
    ) -> bool {
        /// Every eighth page is looked at (`1 << PAGE_ALLOC_COSTLY_ORDER`).
        const SAMPLE_STEP: usize = 1 << COSTLY_ORDER.0;
        let pageblock_order = self.policy.freelist.pageblock_order;
        let zone = &self.zones[id.index()];
        if self.frames.state(pfn) == State::Hole || !zone.spans(pfn) {
            return false;
        }
        let head = self.frames.head_of(pfn);
        if self.frames.state(head) == State::Allocated && self.frames.order(head) >= pageblock_order
        {
            return false;
        }
        if check_source && check_target && !self.block_skip(pfn) {
            return true;
        }
        if !check_source && check_target && self.block_type(pfn) != Migratetype::Movable {
            return false;
        }
        let first = pfn.align_down(pageblock_order);
        let last = Pfn(first.0 + pageblock_order.pages()).min(zone.end);
        let first = first.max(zone.start);
        let shows_something = (first.0..last.0).step_by(SAMPLE_STEP).map(Pfn).any(|pfn| {
            let is_target = check_target && self.frames.state(pfn) == State::Free;
            is_target || check_source && self.is_migratable(pfn)
        });
        if shows_something {
            self.set_block_skip(pfn, false);
        }
        shows_something
    }

    fn is_migratable(&self, pfn: Pfn) -> bool {
        if matches!(self.frames.state(pfn), State::Hole | State::Reserved) {
            return false;
        }
        let head = self.frames.head_of(pfn);
        self.frames.state(head) == State::Allocated && self.frames.is_movable(head)
    }
}
