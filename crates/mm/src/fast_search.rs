//! Compaction's search of the free lists: for free pages to migrate into, and for a pageblock to empty.
//!
//! Models: `fast_isolate_freepages`, `next_search_order`, `fast_find_migrateblock`,
//! `move_freelist_head`, `move_freelist_tail`, `__reset_isolation_suitable`, `__reset_isolation_pfn`,
//! mm/compaction.c, v6.12 and v6.1.
//! Departs: a search is one step, while the kernel drops the zone's lock between two orders, so that
//! another CPU may change the next list meanwhile. Visible as: two compactors of one zone at the same
//! moment may find each other's pages. A page in use that is movable counts as one on an LRU list.
//!
//! Both searches look at a few blocks of the Movable lists instead of scanning memory, and turn the lists
//! so that the next search begins where this one ended: allocations, which take a list's head, find
//! another block there afterwards.

use crate::frame::State;
use crate::memory::Memory;
use crate::policy::{MigrateSearch, TargetSearch};
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
    /// Where the next free page is looked for.
    pub free_pfn: Pfn,
    /// Lowest pageblock that a search found.
    pub fast_start_pfn: FastStart,
    /// Order at which the next search for free pages begins.
    pub search_order: Order,
    /// Searches in vain since the last that found something.
    pub fast_search_fail: u32,
    /// Pages that wait to be moved.
    pub nr_migratepages: u32,
    /// Free pages that wait for a page.
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

    /// Whether every page that waits has a free page to go to.
    #[must_use]
    pub const fn has_enough_free_pages(&self) -> bool {
        self.nr_freepages >= self.nr_migratepages
    }

    /// Whether the pageblock around a free page is to be scanned for more (`fast_isolate_around`).
    #[must_use]
    pub fn searches_around(&self) -> bool {
        let is_brief = self.direct_compaction && self.mode == MigrateMode::Async;
        !self.has_enough_free_pages() && !is_brief
    }

    /// The order that a search for free pages looks at after `order`, `None` once it has been round.
    ///
    /// The orders below the request's are a ring that is gone through downwards. A search that comes back to
    /// where it began leaves the next one to begin one order lower.
    fn next_search_order(&mut self, order: Order) -> Option<Order> {
        let ring = self.order.map_or(1, |wanted| wanted.0.max(1));
        let lower = |order: Order| Order((order.0 + ring - 1) % ring);
        let next = lower(order);
        if next == self.search_order {
            self.search_order = lower(next);
            return None;
        }
        Some(next)
    }
}

/// What compaction remembers of a zone between two runs (the fields `compact_*` of `struct zone`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactZone {
    /// Where the next run looks for free pages (`compact_cached_free_pfn`).
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
    /// Free pages that runs hold at this moment, or pages of a block that is being emptied.
    pub nr_held: u64,
    /// The most that were held at any moment.
    pub nr_held_max: u64,
    /// Free blocks of more than one page that were taken apart to migrate into.
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

/// What a search for free pages came to.
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

/// A search for a block to migrate into, in steps: [`Self::next_block`] finds a block, [`Self::isolated`] is
/// told whether it could be taken, [`Self::end`] draws the conclusions.
///
/// High memory is wanted, which the migrate scanner reaches last. Of what lies between the scanners the upper
/// quarter is *good* and the upper half *passable*, each from the start of a pageblock on. The Movable lists of
/// the orders below the request's are looked at one after the other, that which served last first:
///
/// - A list is gone through from its tail, where the blocks lie that nobody has looked at for longest, and no
///   further than a budget allows. The budget is half a pageblock while the free scanner has not left its start,
///   afterwards half of [`CompactControl::freelist_scan_limit`].
/// - The first good block is taken. Its order serves the next search first, and failures are forgotten.
/// - Without a good one the highest passable one is taken. Each that is higher than those before it halves the
///   budget: what there is to win gets less.
/// - A list that used the budget up without a find halves it for the lists to come.
/// - The block where a look ended, found or not, becomes its list's head. So what was seen comes first, and the
///   next look sees the rest.
///
/// Seen from outside: the lists' order, the number of entries looked at, and where the free scanner goes on.
#[doc(alias = "fast_isolate_freepages")]
#[derive(Clone, Copy, Debug)]
pub struct FreeSearch {
    rule: TargetSearch,
    good_from: Pfn,
    passable_from: Pfn,
    /// Entries of the next list that may be looked at.
    budget: u32,
    nr_seen: u32,
    /// Highest pageblock in which a block was seen.
    top: Pfn,
    /// Whether the free scanner has not yet left its start.
    is_at_start: bool,
    /// The list to look at next, unless the search is over.
    order: Option<Order>,
    found: Option<(Pfn, Order)>,
}

impl FreeSearch {
    /// Begins a search; `None` if the whole zone is compacted, or no smaller block could help, or the
    /// kernel has no such searches.
    #[must_use]
    pub fn begin(memory: &Memory, cc: &mut CompactControl) -> Option<Self> {
        let rule = memory.policy.compaction.target_search;
        let wanted = cc.order.filter(|order| order.0 > 0 && rule != TargetSearch::Off)?;
        cc.search_order = cc.search_order.min(Order(wanted.0 - 1));
        let block = memory.policy.freelist.pageblock_order;
        let is_at_start = cc.free_pfn >= memory.zones[cc.zone.index()].compact.init_free_pfn;
        let budget = match rule {
            _ if is_at_start => block.pages() / 2,
            TargetSearch::OneOfEach => 1,
            _ => cc.freelist_scan_limit() / 2,
        };
        let between = cc.free_pfn.0.saturating_sub(cc.migrate_pfn.0);
        let upper = |nth: u32| (cc.free_pfn - between / nth).align_down(block);
        Some(Self {
            rule,
            good_from: upper(4),
            passable_from: upper(2),
            budget: budget.max(1),
            nr_seen: 0,
            top: Pfn(0),
            is_at_start,
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
            if memory.zones[cc.zone.index()].free_area.nr_free(order) > 0 {
                if let Some(pfn) = self.look_through(memory, cc.zone, order) {
                    self.correct(cc, pfn, order);
                    return self.found;
                }
                if self.has_enough(cc) {
                    self.order = None;
                    break;
                }
            }
            self.order = cc.next_search_order(order);
        }
        None
    }

    /// Looks through one list and turns it. Returns the block to take, if one will do.
    #[doc(alias = "move_freelist_head")]
    fn look_through(&mut self, memory: &mut Memory, zone: ZoneId, order: Order) -> Option<Pfn> {
        let block = memory.policy.freelist.pageblock_order;
        let lowest = memory.zones[zone.index()].start;
        let list = memory.zones[zone.index()].free_area.list(order, Migratetype::Movable);
        let (mut choice, mut turn_to, mut seen) = (None, None, 0);
        for pfn in memory.frames.iter_back(list) {
            seen += 1;
            self.top = self.top.max(pfn.align_down(block)).max(lowest);
            if pfn >= self.good_from {
                choice = Some(pfn);
                break;
            }
            if pfn >= self.passable_from && choice < Some(pfn) {
                choice = Some(pfn);
                self.budget /= 2;
            }
            if seen >= self.budget {
                turn_to = Some(pfn);
                break;
            }
        }
        self.nr_seen += seen;
        memory.work.pfns_scanned += u64::from(seen);
        if let Some(head) = choice.or(turn_to) {
            memory.rotate_free_list(zone, order, Migratetype::Movable, head);
        }
        if seen >= self.budget {
            self.budget = match self.rule {
                TargetSearch::OneOfEach => 1,
                _ => (self.budget / 2).max(1),
            };
        }
        choice
    }

    /// Makes a block the one found: that of the search, or what a kernel took that the model did not
    /// foresee. A good one makes its order the first of the next search.
    pub fn correct(&mut self, cc: &mut CompactControl, pfn: Pfn, order: Order) {
        self.found = Some((pfn, order));
        if pfn >= self.good_from {
            cc.search_order = order;
            cc.fast_search_fail = 0;
        }
    }

    fn has_enough(&self, cc: &CompactControl) -> bool {
        self.rule == TargetSearch::UntilEnough && cc.has_enough_free_pages()
    }

    /// Tells whether the block found could be isolated. The search is over in either case.
    ///
    /// # Panics
    /// If none was found.
    pub fn isolated(&mut self, cc: &mut CompactControl, could_be: bool) {
        let (_, order) = self.found.expect("a block was found");
        self.order = None;
        let mut at = order;
        if could_be {
            cc.nr_freepages += order.pages();
            if self.rule == TargetSearch::UntilEnough {
                self.nr_seen += order.pages() - 1;
            }
        } else {
            self.found = None;
            at = Order(cc.search_order.0 + 1);
        }
        // The kernel steps on to the next order before it sees that it is done; that step may bring the
        // search round to where it began.
        if !self.has_enough(cc) {
            let _ = cc.next_search_order(at);
        }
    }

    /// Draws the conclusions: where to scan next, and how far the next search may go.
    ///
    /// Later runs need not look for free pages above the pageblock before the highest one seen.
    pub fn end(self, memory: &mut Memory, cc: &mut CompactControl) -> FastIsolated {
        let around = match self.found {
            Some((pfn, _)) => Some(pfn),
            None => self.fail(cc),
        };
        let compact = &mut memory.zones[cc.zone.index()].compact;
        let below_top = self.top.0.checked_sub(memory.policy.freelist.pageblock_order.pages());
        if let Some(pfn) = below_top.filter(|_| self.top >= compact.cached_free_pfn) {
            compact.cached_free_pfn = Pfn(pfn);
        }
        FastIsolated {
            block: self.found,
            nr_scanned: self.nr_seen,
            min_pfn: self.passable_from,
            around,
        }
    }

    /// A search in vain counts against the next. If the free scanner still stands at its start, it goes to
    /// the highest pageblock seen, where that is worth it; else an allocation's to where passable begins.
    fn fail(&self, cc: &mut CompactControl) -> Option<Pfn> {
        cc.fast_search_fail += 1;
        let worth_it = match self.rule {
            TargetSearch::Off | TargetSearch::OneOfEach | TargetSearch::UntilFound => Pfn(1),
            TargetSearch::UntilEnough => self.passable_from,
        };
        let next = if !self.is_at_start {
            None
        } else if self.top >= worth_it {
            Some(self.top)
        } else {
            cc.direct_compaction.then_some(self.passable_from)
        };
        cc.free_pfn = next.unwrap_or(cc.free_pfn);
        next
    }
}

/// What of a pageblock's contents counts as a reason to scan it again.
#[derive(Clone, Copy)]
struct Reasons {
    /// Pages that could be moved away.
    movable: bool,
    /// Free pages to move others into.
    free: bool,
}

impl Memory {
    /// Searches the free lists for a block to migrate into, and isolates it: see [`FreeSearch`]. `None` if
    /// the run makes no such searches.
    pub fn fast_isolate_freepages(&mut self, cc: &mut CompactControl) -> Option<FastIsolated> {
        let mut search = FreeSearch::begin(self, cc)?;
        if let Some((pfn, order)) = search.next_block(self, cc) {
            let could_be = self.isolate_free_page(pfn, order);
            search.isolated(cc, could_be);
        }
        Some(search.end(self, cc))
    }

    /// Searches the free lists for a pageblock to empty: one that has a free block already needs fewer pages
    /// moved. Returns where to scan.
    ///
    /// Low memory is wanted: the lower half of what lies between the scanners when the migrate scanner stands
    /// at the zone's start, the lowest eighth later, in whole pageblocks. The lists of orders from the
    /// request's down to the costly order are looked at from their heads, all of them together no further than
    /// [`CompactControl::freelist_scan_limit`]. The first block in reach whose pageblock has no skip hint is
    /// it; what was looked at goes behind the rest of its list. Once searches fail, the scan goes on from the
    /// lowest block that they ever found, and from then on without their help.
    pub fn fast_find_migrateblock(&mut self, cc: &mut CompactControl) -> Pfn {
        let Some(wanted) = self.searches_below(cc) else { return cc.migrate_pfn };
        let block = self.policy.freelist.pageblock_order;
        let zone_start = self.zones[cc.zone.index()].start;
        let between = cc.free_pfn.0.saturating_sub(cc.migrate_pfn.0);
        let nth = if cc.migrate_pfn == zone_start { 2 } else { 8 };
        let reach = (cc.migrate_pfn + between / nth).align_down(block);
        let mut budget = cc.freelist_scan_limit();
        let found = (COSTLY_ORDER.0..wanted.0)
            .rev()
            .find_map(|order| self.search_to_empty(cc.zone, Order(order), reach, &mut budget));
        if let Some(pfn) = found {
            if self.policy.compaction.migrate_search == MigrateSearch::MarkFound {
                self.set_block_skip(pfn, true);
            }
            cc.fast_search_fail = 0;
            cc.fast_start_pfn = match cc.fast_start_pfn {
                FastStart::Unset => FastStart::Lowest(pfn),
                FastStart::Lowest(lowest) => FastStart::Lowest(lowest.min(pfn)),
                FastStart::Used => FastStart::Used,
            };
            return pfn.align_down(block).max(zone_start);
        }
        cc.fast_search_fail += 1;
        if let FastStart::Lowest(lowest) = cc.fast_start_pfn {
            (cc.migrate_pfn, cc.fast_start_pfn) = (lowest, FastStart::Used);
        }
        cc.migrate_pfn
    }

    /// The order below which lists are searched for a pageblock to empty; `None` if the scanner goes on where
    /// it stands: in the middle of a pageblock, in one that is to be finished, for a small request, for one
    /// that only some pageblocks could serve, and where skip hints mean nothing.
    fn searches_below(&self, cc: &CompactControl) -> Option<Order> {
        let rule = self.policy.compaction.migrate_search;
        let block = self.policy.freelist.pageblock_order;
        let is_between = cc.migrate_pfn == cc.migrate_pfn.align_down(block)
            || cc.migrate_pfn == self.zones[cc.zone.index()].start;
        let is_free_to_go = is_between
            && !cc.ignore_skip_hint
            && (cc.migratetype == Migratetype::Movable || !cc.direct_compaction);
        let may_search = match rule {
            MigrateSearch::Off => false,
            MigrateSearch::FinishBlocks => is_free_to_go && !cc.finish_pageblock,
            _ => is_free_to_go,
        };
        cc.order.filter(|&order| may_search && order > COSTLY_ORDER)
    }

    /// Searches one list for a block below `reach` whose pageblock has no skip hint, and turns it behind the
    /// block where that ends: the one found, or the first that the budget does not cover.
    #[doc(alias = "move_freelist_tail")]
    fn search_to_empty(
        &mut self,
        zone: ZoneId,
        order: Order,
        reach: Pfn,
        budget: &mut u32,
    ) -> Option<Pfn> {
        if *budget == 0 {
            return None;
        }
        let list = self.zones[zone.index()].free_area.list(order, Migratetype::Movable);
        let (mut seen, mut found) = (0, false);
        let end = self.frames.iter(list).find(|&pfn| {
            seen += 1;
            found = seen <= *budget && pfn < reach && !self.block_skip(pfn);
            found || seen > *budget
        });
        *budget = budget.saturating_sub(seen);
        self.work.pfns_scanned += u64::from(seen);
        let end = end?;
        self.rotate_free_list_behind(zone, order, Migratetype::Movable, end);
        found.then_some(end)
    }

    /// Clears skip hints that have become doubtful, if a compaction has asked for it, and says where the next
    /// run begins.
    ///
    /// Two walks, one from each end of the zone, go from pageblock to pageblock until they meet. The lower one
    /// looks for pages to move and the upper one for free pages. Once a walk has found the first pageblock
    /// with what it looks for, the other kind counts with it too. The next run begins at these two pageblocks;
    /// if there is only one, or none, where the walks met.
    #[doc(alias = "__reset_isolation_suitable")]
    pub fn reset_isolation_suitable(&mut self, id: ZoneId) {
        let pages = self.pageblock_pages();
        let zone = &mut self.zones[id.index()];
        if !core::mem::take(&mut zone.compact.blockskip_flush) {
            return;
        }
        let (mut low, mut high) = (zone.start, zone.end - 1);
        let (mut lowest, mut highest) = (None, None);
        while low < high {
            if self.reopen_block(id, low, Reasons { movable: true, free: lowest.is_some() }) {
                lowest.get_or_insert(low);
            }
            if self.reopen_block(id, high, Reasons { movable: highest.is_some(), free: true }) {
                highest.get_or_insert(high);
            }
            low.0 += pages;
            high.0 = high.0.saturating_sub(pages);
        }
        let compact = &mut self.zones[id.index()].compact;
        compact.init_migrate_pfn = lowest.unwrap_or(compact.init_migrate_pfn);
        compact.init_free_pfn = highest.unwrap_or(compact.init_free_pfn);
        let (migrate_pfn, free_pfn) = lowest.zip(highest).unwrap_or((low, high));
        compact.cached_migrate_pfn = [migrate_pfn; 2];
        compact.cached_free_pfn = free_pfn;
    }

    /// Clears the skip hint of the pageblock around `pfn` if a sample of its pages gives a reason. Returns
    /// whether a scan of it is worth while.
    ///
    /// A pageblock whose hint is clear is worth it without a look where both reasons count. A huge page never
    /// is, nor is a pageblock of another type than Movable for its free pages alone.
    #[doc(alias = "__reset_isolation_pfn")]
    fn reopen_block(&mut self, id: ZoneId, pfn: Pfn, counts: Reasons) -> bool {
        /// Every eighth page is looked at (`1 << PAGE_ALLOC_COSTLY_ORDER`).
        const SAMPLE_STEP: usize = 1 << COSTLY_ORDER.0;
        let block = self.policy.freelist.pageblock_order;
        let zone = &self.zones[id.index()];
        if !zone.spans(pfn) || self.frames.state(pfn) == State::Hole || self.is_in_huge_page(pfn) {
            return false;
        }
        match counts {
            Reasons { movable: true, free: true } if !self.block_skip(pfn) => return true,
            Reasons { movable: false, .. } if self.block_type(pfn) != Migratetype::Movable => {
                return false;
            }
            _ => {}
        }
        let start = pfn.align_down(block);
        let frames = start.max(zone.start).0..zone.end.0.min(start.0 + block.pages());
        let has_reason = frames.step_by(SAMPLE_STEP).map(Pfn).any(|sample| {
            counts.free && self.frames.state(sample) == State::Free
                || counts.movable && self.is_part_of_movable(sample)
        });
        if has_reason {
            self.set_block_skip(pfn, false);
        }
        has_reason
    }

    /// Whether a frame belongs to a block in use that is as large as a pageblock.
    fn is_in_huge_page(&self, pfn: Pfn) -> bool {
        let head = self.frames.head_of(pfn);
        self.frames.state(head) == State::Allocated
            && self.frames.order(head) >= self.policy.freelist.pageblock_order
    }

    /// Whether a frame belongs to a block in use that can be moved.
    fn is_part_of_movable(&self, pfn: Pfn) -> bool {
        if matches!(self.frames.state(pfn), State::Hole | State::Reserved) {
            return false;
        }
        let head = self.frames.head_of(pfn);
        self.frames.state(head) == State::Allocated && self.frames.is_movable(head)
    }
}
