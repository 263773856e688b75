//! Fallback: serving a request from the lists of another migratetype.
//!
//! Models: `__rmqueue`, `__rmqueue_claim`, `__rmqueue_steal`, `try_to_steal_block`,
//! `reserve_highatomic_pageblock`, mm/page_alloc.c, Debian's 6.12.107; `__rmqueue_fallback`,
//! `steal_suitable_fallback`, v6.1 and v4.20; `__rmqueue_fallback`, `try_to_steal_freepages`, v4.4;
//! `__rmqueue`, `__rmqueue_fallback`, `move_freepages_block`, v3.3.
//! Departs: a movable page counts as such from its allocation on, in the kernel once it is on an LRU list.
//! Visible as: a pageblock with fresh pages, still in a CPU's batch, is claimed for movable requests sooner,
//! and for others later.

use crate::frame::{End, State};
use crate::gfp::AllocFlags;
use crate::memory::Memory;
use crate::policy::{BoostWakes, FallbackRule, HighatomicReserve, ListType};
use crate::types::{Migratetype, NR_MIGRATETYPES, Order, Pfn};
use crate::watermark::Mark;
use crate::zone::ZoneId;
use core::ops::Range;
use std_alloc::collections::BTreeMap;

/// Which types a request may fall back to, in order.
const fn fallbacks(migratetype: Migratetype) -> [Migratetype; 2] {
    use Migratetype::{Movable, Reclaimable, Unmovable};
    match migratetype {
        Movable => [Reclaimable, Unmovable],
        Reclaimable => [Unmovable, Movable],
        _ => [Reclaimable, Movable],
    }
}

/// A fallback that happened (`mm_page_alloc_extfrag`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extfrag {
    /// Where.
    pub zone: ZoneId,
    /// The page handed out, or (before the claim rule) the head of the block that was claimed.
    pub pfn: Pfn,
    /// Order asked for.
    pub alloc_order: Order,
    /// Order of the block found.
    pub fallback_order: Order,
    /// Type asked for.
    pub alloc_migratetype: Migratetype,
    /// Type of the list it was found on.
    pub fallback_migratetype: Migratetype,
    /// Type of the lists that the rest of the block goes to.
    pub rest_migratetype: Migratetype,
    /// Whether the pageblock is now of the type asked for.
    pub change_ownership: bool,
}

impl Extfrag {
    /// Whether pageblocks of two types now mix: whether less than a pageblock was found.
    #[must_use]
    pub fn is_fragmenting(&self, pageblock_order: Order) -> bool {
        self.fallback_order < pageblock_order
    }
}

/// A pageblock that a fallback has mixed and that kcompactd is to empty (`mm_compaction_wakeup_kcompactd_queue`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuedBlock {
    /// Where.
    pub zone: ZoneId,
    /// Its first page.
    pub pfn: Pfn,
    /// How many waited before it; none if there was no room for it.
    pub nr_queued: Option<u32>,
}

/// What kind of fallback one is: all that its event says but where it happened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FallbackKind {
    /// Type asked for.
    pub alloc_migratetype: Migratetype,
    /// Type of the list it was found on.
    pub fallback_migratetype: Migratetype,
    /// Order asked for.
    pub alloc_order: Order,
    /// Order of the block found.
    pub fallback_order: Order,
    /// Whether the pageblock is now of the type asked for.
    pub change_ownership: bool,
}

impl From<&Extfrag> for FallbackKind {
    fn from(event: &Extfrag) -> Self {
        let Extfrag { alloc_order, fallback_order, change_ownership, .. } = *event;
        let Extfrag { alloc_migratetype, fallback_migratetype, .. } = *event;
        Self {
            alloc_migratetype,
            fallback_migratetype,
            alloc_order,
            fallback_order,
            change_ownership,
        }
    }
}

/// Fallbacks of a zone since it came to be.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FallbackCounts {
    /// All of them.
    pub all: u64,
    /// Those that are fragmenting ([`Extfrag::is_fragmenting`]), by the type asked for.
    pub fragmenting: [u64; NR_MIGRATETYPES],
    /// All of them by kind.
    pub kinds: BTreeMap<FallbackKind, u64>,
}

impl FallbackCounts {
    /// Those that are fragmenting.
    #[must_use]
    pub fn nr_fragmenting(&self) -> u64 {
        self.fragmenting.iter().sum()
    }

    fn note(&mut self, event: &Extfrag, pageblock_order: Order) {
        self.all += 1;
        if event.is_fragmenting(pageblock_order) {
            self.fragmenting[event.alloc_migratetype.index()] += 1;
        }
        *self.kinds.entry(event.into()).or_default() += 1;
    }

    /// With those of another zone.
    pub(crate) fn add(&mut self, other: &Self) {
        self.all += other.all;
        for (sum, &of_other) in self.fragmenting.iter_mut().zip(&other.fragmenting) {
            *sum += of_other;
        }
        for (&kind, &nr) in &other.kinds {
            *self.kinds.entry(kind).or_default() += nr;
        }
    }
}

/// How far a refill has got in its search, so that its later blocks do not begin anew
/// (`enum rmqueue_mode`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SearchMode {
    /// The own type first.
    #[default]
    Normal,
    /// Nothing is left to claim either.
    Steal,
}

impl Memory {
    /// Takes a block of `order` for a request of this type from the zone's free lists: from its own
    /// type's, else by falling back.
    ///
    /// A fallback is noted in [`Memory::take_extfrag`].
    #[doc(alias = "__rmqueue")]
    pub fn rmqueue_buddy_block(
        &mut self,
        id: ZoneId,
        order: Order,
        migratetype: Migratetype,
        flags: AllocFlags,
        mode: &mut SearchMode,
    ) -> Option<Pfn> {
        if *mode == SearchMode::Normal {
            if let Some(pfn) = self.rmqueue_smallest(id, order, migratetype) {
                return Some(pfn);
            }
            if migratetype == Migratetype::Movable
                && let Some(pfn) = self.rmqueue_smallest(id, order, Migratetype::Cma)
            {
                return Some(pfn);
            }
        }
        match self.policy.fallback.rule {
            FallbackRule::Never => None,
            FallbackRule::ClaimThenSteal => {
                if *mode == SearchMode::Normal
                    && let Some(pfn) = self.rmqueue_claim(id, order, migratetype, flags)
                {
                    return Some(pfn);
                }
                if flags.intersects(AllocFlags::NOFRAGMENT) {
                    return None;
                }
                let pfn = self.rmqueue_steal(id, order, migratetype)?;
                *mode = SearchMode::Steal;
                Some(pfn)
            }
            FallbackRule::MoveAndRetry => {
                let moved_to = self.policy.freelist.moved_to;
                self.move_fallback_block(id, order, migratetype, flags, moved_to)?;
                self.rmqueue_smallest(id, order, migratetype)
            }
            FallbackRule::MoveAndSplit => self.rmqueue_split_fallback(id, order, migratetype),
            FallbackRule::MoveOrTake => self
                .rmqueue_split_fallback(id, order, migratetype)
                .or_else(|| self.rmqueue_smallest(id, order, Migratetype::Reserve)),
        }
    }

    /// The first fallback type that has a block of this order.
    pub(crate) fn find_fallback(
        &self,
        id: ZoneId,
        order: Order,
        migratetype: Migratetype,
    ) -> Option<Migratetype> {
        let area = &self.zones[id.index()].free_area;
        fallbacks(migratetype).into_iter().find(|&mt| !area.list(order, mt).is_empty())
    }

    /// Whether a request of this type may claim a pageblock in which it found a block of `order`.
    /// Only movable requests are held back: what they mix can be migrated out again. At first it was all
    /// but reclaimable ones, which come in bursts.
    pub(crate) fn may_claim_block(&self, order: Order, migratetype: Migratetype) -> bool {
        let is_held_back = match self.policy.fallback.rule {
            FallbackRule::MoveOrTake => {
                migratetype != Migratetype::Reclaimable && self.policy.freelist.mobility_grouping
            }
            _ => migratetype == Migratetype::Movable,
        };
        order >= self.policy.fallback.movable_min_order || !is_held_back
    }

    /// The smallest order a fallback may look at.
    fn min_fallback_order(&self, order: Order, flags: AllocFlags) -> Order {
        let pageblock_order = self.policy.freelist.pageblock_order;
        if flags.intersects(AllocFlags::NOFRAGMENT) && order < pageblock_order {
            pageblock_order
        } else {
            order
        }
    }

    /// Orders from the largest down to `min`.
    fn orders_down_to(&self, min: Order) -> impl Iterator<Item = Order> + use<> {
        (min.0..=self.policy.freelist.max_order.0).rev().map(Order)
    }

    fn note_extfrag(
        &mut self,
        zone: ZoneId,
        pfn: Pfn,
        orders: (Order, Order),
        types: (Migratetype, Migratetype, Migratetype),
        change_ownership: bool,
    ) {
        let event = Extfrag {
            zone,
            pfn,
            alloc_order: orders.0,
            fallback_order: orders.1,
            alloc_migratetype: types.0,
            fallback_migratetype: types.1,
            rest_migratetype: types.2,
            change_ownership,
        };
        let pageblock_order = self.policy.freelist.pageblock_order;
        self.zones[zone.index()].fallbacks.note(&event, pageblock_order);
        if self.keeps_extfrag {
            self.extfrag.push(event);
        }
    }

    // The claim rule.

    #[doc(alias = "__rmqueue_claim")]
    fn rmqueue_claim(
        &mut self,
        id: ZoneId,
        order: Order,
        migratetype: Migratetype,
        flags: AllocFlags,
    ) -> Option<Pfn> {
        for found in self.orders_down_to(self.min_fallback_order(order, flags)) {
            let Some(from) = self.find_fallback(id, found, migratetype) else { continue };
            if !self.may_claim_block(found, migratetype) {
                break;
            }
            let block = self.zones[id.index()].free_area.list(found, from).head()?;
            if let Some(pfn) =
                self.claim_block(id, block, (order, found), (migratetype, from), flags)
            {
                self.note_extfrag(id, pfn, (order, found), (migratetype, from, migratetype), true);
                return Some(pfn);
            }
        }
        None
    }

    /// Turns the pageblock of the free block `block` into one of the wanted type, if it is free enough,
    /// and takes a page from it.
    #[doc(alias = "try_to_steal_block")]
    fn claim_block(
        &mut self,
        id: ZoneId,
        block: Pfn,
        (order, found): (Order, Order),
        (migratetype, from): (Migratetype, Migratetype),
        flags: AllocFlags,
    ) -> Option<Pfn> {
        if found >= self.policy.freelist.pageblock_order {
            self.unlink_free(id, block, found);
            self.set_block_types(block, found, migratetype);
            self.expand(id, block, order, found, migratetype);
            self.zones[id.index()].account_free(-i64::from(order.pages()), migratetype);
            self.frames.set(block, State::Allocated, order, migratetype);
            return Some(block);
        }
        self.boost_for_fallback(id, flags);
        let range = self.movable_range(id, block)?;
        let usage = self.block_usage(range.clone());
        if usage.free + usage.alike(migratetype, from) < self.policy.fallback.claim_min_pages
            && self.policy.freelist.mobility_grouping
        {
            return None;
        }
        self.move_freepages(id, range, migratetype, End::Tail);
        self.set_block_type(block, migratetype);
        self.rmqueue_smallest(id, order, migratetype)
    }

    #[doc(alias = "__rmqueue_steal")]
    fn rmqueue_steal(&mut self, id: ZoneId, order: Order, migratetype: Migratetype) -> Option<Pfn> {
        for found in (order.0..=self.policy.freelist.max_order.0).map(Order) {
            let Some(from) = self.find_fallback(id, found, migratetype) else { continue };
            let pfn = self.zones[id.index()].free_area.list(found, from).head()?;
            self.unlink_free(id, pfn, found);
            self.expand(id, pfn, order, found, from);
            self.zones[id.index()].account_free(-i64::from(order.pages()), from);
            self.frames.set(pfn, State::Allocated, order, migratetype);
            self.note_extfrag(id, pfn, (order, found), (migratetype, from, from), false);
            return Some(pfn);
        }
        None
    }

    fn boost_for_fallback(&mut self, id: ZoneId, flags: AllocFlags) {
        let wakes = self.policy.watermark.boost_wakes;
        let is_told = wakes == BoostWakes::Always || flags.intersects(AllocFlags::KSWAPD);
        if self.boost_watermark(id, 1) && is_told {
            self.zones[id.index()].flags.boosted_watermark = true;
            self.has_untold_boost = wakes != BoostWakes::Unheard;
        }
    }

    /// The next zone that was boosted and whose kswapd has not been told, which counts as told now.
    #[inline]
    pub fn take_boosted_zone(&mut self) -> Option<ZoneId> {
        if !self.has_untold_boost {
            return None;
        }
        let zone = self.zones.iter().position(|zone| zone.flags.boosted_watermark);
        match zone {
            Some(zone) => self.zones[zone].flags.boosted_watermark = false,
            None => self.has_untold_boost = false,
        }
        zone.map(|zone| ZoneId(zone as u8))
    }

    /// Remembers a pageblock that movable and other pages share from now on, if there is room.
    fn queue_mixed_block(
        &mut self,
        id: ZoneId,
        block: Pfn,
        migratetype: Migratetype,
        old_type: Migratetype,
    ) {
        let is_mixed = migratetype == Migratetype::Movable || old_type == Migratetype::Movable;
        let most = usize::from(self.policy.compaction.queue_length);
        let pfn = block.align_down(self.policy.freelist.pageblock_order);
        let queue = &mut self.zones[id.index()].mixed_blocks;
        if !is_mixed || most == 0 || queue.contains(&pfn) {
            return;
        }
        let nr_queued = (queue.len() < most).then_some(queue.len() as u32);
        if nr_queued.is_some() {
            queue.push(pfn);
        }
        if self.keeps_extfrag {
            self.queued_blocks.push(QueuedBlock { zone: id, pfn, nr_queued });
        }
    }

    // The rule before it: move first, then search again.

    /// Moves a block of another type, or all free pages of its pageblock, to the wanted type's lists.
    #[doc(alias = "try_to_steal_freepages")]
    pub fn move_fallback_block(
        &mut self,
        id: ZoneId,
        order: Order,
        migratetype: Migratetype,
        flags: AllocFlags,
        end: End,
    ) -> Option<()> {
        let (found, from) = self
            .orders_down_to(self.min_fallback_order(order, flags))
            .find_map(|found| Some((found, self.find_fallback(id, found, migratetype)?)))
            .map(|(found, from)| {
                if self.may_claim_block(found, migratetype) || found <= order {
                    return (found, from);
                }
                // A small movable request takes the smallest block, so as not to spoil a large one.
                (order.0..=found.0)
                    .map(Order)
                    .find_map(|o| Some((o, self.find_fallback(id, o, migratetype)?)))
                    .expect("the largest was found")
            })?;
        let block = self.zones[id.index()].free_area.list(found, from).head()?;
        if !self.claim_or_move(id, block, found, migratetype, flags, end) {
            return None;
        }
        let change_ownership = self.block_type(block) == migratetype;
        let types = (migratetype, from, migratetype);
        self.note_extfrag(id, block, (order, found), types, change_ownership);
        Some(())
    }

    /// Whether the block, or all free pages of its pageblock, are now of the wanted type: a request that would
    /// rather wait is refused a small block.
    #[doc(alias = "steal_suitable_fallback")]
    fn claim_or_move(
        &mut self,
        id: ZoneId,
        block: Pfn,
        found: Order,
        migratetype: Migratetype,
        flags: AllocFlags,
        end: End,
    ) -> bool {
        let old_type = self.block_type(block);
        let is_reserved = old_type == Migratetype::HighAtomic;
        if is_reserved || found >= self.policy.freelist.pageblock_order {
            if !is_reserved {
                self.set_block_types(block, found, migratetype);
            }
            self.move_to_free_list(id, block, found, migratetype, end);
            return true;
        }
        let claims_block = self.may_claim_block(found, migratetype);
        if claims_block || self.policy.watermark.boost_single_steals {
            self.boost_for_fallback(id, flags);
        }
        self.queue_mixed_block(id, block, migratetype, old_type);
        if flags.intersects(AllocFlags::FRAGMENT_STALL) && found < self.policy.fallback.stall_order
        {
            return false;
        }
        match self.movable_range(id, block).filter(|_| claims_block) {
            None => self.move_to_free_list(id, block, found, migratetype, end),
            Some(range) => {
                let usage = self.block_usage(range.clone());
                self.move_freepages(id, range, migratetype, end);
                if usage.free + usage.alike(migratetype, old_type)
                    >= self.policy.fallback.claim_min_pages
                    || !self.policy.freelist.mobility_grouping
                {
                    self.set_block_type(block, migratetype);
                }
            }
        }
        true
    }

    /// The rule before 4.12: no count of compatible pages, moved pages go to list heads, and the block
    /// found is split at once: onto the wanted type's lists, but before 4.0 only if its pageblock could be
    /// claimed.
    #[doc(alias = "__rmqueue_fallback")]
    fn rmqueue_split_fallback(
        &mut self,
        id: ZoneId,
        order: Order,
        migratetype: Migratetype,
    ) -> Option<Pfn> {
        let (found, from) = self
            .orders_down_to(order)
            .find_map(|found| Some((found, self.find_fallback(id, found, migratetype)?)))?;
        let block = self.zones[id.index()].free_area.list(found, from).head()?;
        if found >= self.policy.freelist.pageblock_order {
            self.set_block_types(block, found, migratetype);
        } else if self.may_claim_block(found, migratetype)
            && let Some(range) = self.movable_range(id, block)
        {
            let moved = self.move_freepages(id, range, migratetype, End::Head);
            if moved >= self.policy.fallback.claim_min_pages
                || !self.policy.freelist.mobility_grouping
            {
                self.set_block_type(block, migratetype);
            }
        }
        let list_type = self.unlink_free(id, block, found);
        let is_taken_alone = self.policy.fallback.rule == FallbackRule::MoveOrTake
            && !self.may_claim_block(found, migratetype);
        let rest_type = if is_taken_alone { from } else { migratetype };
        let zone = &mut self.zones[id.index()];
        zone.account_free(-i64::from(found.pages()), list_type);
        zone.account_free(i64::from(found.pages() - order.pages()), rest_type);
        self.expand(id, block, order, found, rest_type);
        self.frames.set(block, State::Allocated, order, migratetype);
        let change_ownership = self.block_type(block) == migratetype;
        let types = (migratetype, from, rest_type);
        self.note_extfrag(id, block, (order, found), types, change_ownership);
        Some(block)
    }

    /// What a pageblock, or the part of it that lies in the zone, holds.
    fn block_usage(&mut self, range: Range<Pfn>) -> BlockUsage {
        let pages = self.policy.freelist.pageblock_order.pages();
        let mut usage = BlockUsage { pages, free: 0, movable: 0 };
        let mut pfn = range.start;
        while pfn < range.end {
            let span = self.span_from(pfn).min(range.end.0 - pfn.0);
            match self.frames.state(pfn) {
                State::Free => usage.free += span,
                State::Allocated if self.frames.is_movable(pfn) => usage.movable += span,
                State::Inner => {
                    let head = self.frames.head_of(pfn);
                    if self.frames.state(head) == State::Allocated && self.frames.is_movable(head) {
                        usage.movable += span;
                    }
                }
                _ => {}
            }
            pfn.0 += span;
        }
        self.work.pfns_scanned += u64::from(range.end.0 - range.start.0);
        usage
    }

    // The reserve of last resort.

    /// Makes the zone's lowest pageblocks that are wholly usable and movable its last resort, as many as its
    /// min mark fills, and gives back those that are too many (`setup_zone_migrate_reserve`, v3.3).
    pub(crate) fn setup_reserve(&mut self, id: ZoneId) {
        let pageblock = self.policy.freelist.pageblock_order;
        let zone = &self.zones[id.index()];
        let wanted = zone.watermarks.raw(Mark::Min).div_ceil(u64::from(pageblock.pages()));
        let mut missing = wanted.min(u64::from(self.policy.watermark.reserve_blocks_max));
        let (mut pfn, end) = (zone.start.0.next_multiple_of(pageblock.pages()), zone.end.0);
        while pfn < end {
            let (start, block_end) = (Pfn(pfn), (pfn + pageblock.pages()).min(end));
            pfn += pageblock.pages();
            let block_type = self.block_type(start);
            if missing > 0 {
                let is_usable = |frame: u32| {
                    !matches!(self.frames.state(Pfn(frame)), State::Hole | State::Reserved)
                };
                if !(start.0..block_end).all(is_usable) {
                    continue;
                }
                if block_type == Migratetype::Movable {
                    self.change_block(id, start, Migratetype::Reserve);
                }
                missing -=
                    u64::from(matches!(block_type, Migratetype::Movable | Migratetype::Reserve));
            } else if block_type == Migratetype::Reserve {
                self.change_block(id, start, Migratetype::Movable);
            }
        }
    }

    /// Changes a pageblock's type and moves its free pages to that type's lists.
    fn change_block(&mut self, id: ZoneId, start: Pfn, to: Migratetype) {
        self.set_block_type(start, to);
        if let Some(range) = self.movable_range(id, start) {
            self.move_freepages(id, range, to, self.policy.freelist.moved_to);
        }
    }

    // The reserve for atomic requests.

    /// Adds the pageblock of a page just allocated to the highatomic reserve, if there is room.
    #[doc(alias = "reserve_highatomic_pageblock")]
    pub fn reserve_highatomic(&mut self, id: ZoneId, pfn: Pfn) {
        let pageblock = u64::from(self.policy.freelist.pageblock_order.pages());
        let zone = &self.zones[id.index()];
        let percent = zone.managed_pages / 100;
        let limit = match self.policy.highatomic.reserve {
            HighatomicReserve::Off => return,
            HighatomicReserve::PercentPlusBlock => percent + pageblock,
            HighatomicReserve::PercentRoundedUp if percent < pageblock => return,
            HighatomicReserve::PercentRoundedUp => percent.next_multiple_of(pageblock),
        };
        if zone.nr_reserved_highatomic >= limit {
            return;
        }
        if !self.block_type(pfn).is_mergeable() {
            return;
        }
        let order = self.frames.order(pfn);
        let follows = self.policy.freelist.list_type == ListType::Pageblock;
        if follows && order >= self.policy.freelist.pageblock_order {
            self.set_block_types(pfn, order, Migratetype::HighAtomic);
            self.zones[id.index()].nr_reserved_highatomic += u64::from(order.pages());
            return;
        }
        match self.movable_range(id, pfn) {
            Some(range) => {
                self.move_freepages(
                    id,
                    range,
                    Migratetype::HighAtomic,
                    self.policy.freelist.moved_to,
                );
            }
            None if follows => return,
            None => {}
        }
        self.set_block_type(pfn, Migratetype::HighAtomic);
        self.zones[id.index()].nr_reserved_highatomic += pageblock;
    }

    /// Gives one pageblock of the zone's highatomic reserve to requests of this type. Unless `force`d
    /// one pageblock stays.
    ///
    /// Returns whether a pageblock was given.
    pub fn unreserve_highatomic(
        &mut self,
        id: ZoneId,
        migratetype: Migratetype,
        force: bool,
    ) -> bool {
        let pageblock = u64::from(self.policy.freelist.pageblock_order.pages());
        let zone = &self.zones[id.index()];
        if !force && zone.nr_reserved_highatomic <= pageblock {
            return false;
        }
        let follows = self.policy.freelist.list_type == ListType::Pageblock;
        let mut from = Some(Order(0));
        while let Some(order) = from.and_then(|from| {
            self.zones[id.index()].free_area.smallest(from, Migratetype::HighAtomic)
        }) {
            let list = self.zones[id.index()].free_area.list(order, Migratetype::HighAtomic);
            let pfn = list.head().expect("an occupied list has a head");
            // A free block of two reserved pageblocks goes whole; kernels whose lists do not follow
            // pageblocks forget the second one's type and count.
            let pages = if follows { pageblock.max(u64::from(order.pages())) } else { pageblock };
            if self.block_type(pfn) == Migratetype::HighAtomic {
                let zone = &mut self.zones[id.index()];
                zone.nr_reserved_highatomic = zone.nr_reserved_highatomic.saturating_sub(pages);
            }
            if order >= self.policy.freelist.pageblock_order {
                let typed = if follows { order } else { self.policy.freelist.pageblock_order };
                self.set_block_types(pfn, typed, migratetype);
                self.move_to_free_list(id, pfn, order, migratetype, self.policy.freelist.moved_to);
                return true;
            }
            self.set_block_type(pfn, migratetype);
            if let Some(range) = self.movable_range(id, pfn) {
                self.move_freepages(id, range, migratetype, self.policy.freelist.moved_to);
                return true;
            }
            // Nothing moves out of a pageblock that the zone's end cuts.
            from = (order < self.policy.freelist.max_order).then_some(Order(order.0 + 1));
        }
        false
    }
}

/// What a pageblock holds, in pages.
struct BlockUsage {
    pages: u32,
    free: u32,
    movable: u32,
}

impl BlockUsage {
    /// Pages in use that a request of `migratetype` would mix well with, the pageblock having been of
    /// type `from`.
    fn alike(&self, migratetype: Migratetype, from: Migratetype) -> u32 {
        if migratetype == Migratetype::Movable {
            self.movable
        } else if from == Migratetype::Movable {
            // What is neither free nor movable in a movable pageblock is of a type like ours.
            self.pages - self.free - self.movable
        } else {
            0
        }
    }
}
