//! The buddy lists: taking a block and splitting it, giving one back and merging it.
//!
//! Models: `__rmqueue_smallest`, `expand`, `__free_one_page`, `split_large_buddy`,
//! `move_freepages_block`, mm/page_alloc.c, v6.12 and v6.1.
//! Departs: no guard pages, no page reporting, no shuffling (all off in the kernels modelled).
//! Departs: free pageblocks of HighAtomic, CMA or Isolate merge with their like alone, as since 5.18
//! (1dd214b8f21c). Before, only isolated ones stayed apart, and before 4.6 not all of those. Visible as: on
//! older kernels a free block of order 10 may be half highatomic.

use crate::frame::{End, State};
use crate::memory::Memory;
use crate::policy::{ListType, Placement};
use crate::types::{Migratetype, Order, Pfn};
use crate::zone::ZoneId;
use core::ops::Range;

/// Where a freed block is put once it has merged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeTo {
    /// Where the policy says.
    Policy,
    /// The tail (`FPI_TO_TAIL`: boot, onlining, putting an isolated block back).
    Tail,
}

impl Memory {
    /// Puts a block that is on no list on the free list of this type.
    #[inline]
    pub(crate) fn link_free(
        &mut self,
        id: ZoneId,
        pfn: Pfn,
        order: Order,
        migratetype: Migratetype,
        end: End,
    ) {
        let frames = &mut self.frames;
        frames.set(pfn, State::Free, order, migratetype);
        self.zones[id.index()].free_area.change(order, migratetype, |l| frames.push(l, pfn, end));
        self.note_list_op(pfn);
    }

    /// Takes the free block at `pfn` off its list and returns the list's type.
    #[inline]
    pub(crate) fn unlink_free(&mut self, id: ZoneId, pfn: Pfn, order: Order) -> Migratetype {
        debug_assert!(self.frames.is_free(pfn, order));
        let migratetype = self.frames.migratetype(pfn);
        let frames = &mut self.frames;
        self.zones[id.index()].free_area.change(order, migratetype, |l| frames.unlink(l, pfn));
        self.note_list_op(pfn);
        migratetype
    }

    /// Splits the block of `high` at `pfn`, which is on no list, down to `low`: the lower half is kept,
    /// each upper half goes to the head of its order's list of `migratetype`.
    #[inline]
    pub(crate) fn expand(
        &mut self,
        id: ZoneId,
        pfn: Pfn,
        low: Order,
        high: Order,
        migratetype: Migratetype,
    ) {
        for order in (low.0..high.0).rev().map(Order) {
            self.link_free(id, pfn + order.pages(), order, migratetype, End::Head);
        }
    }

    /// Takes a block of `order` from the smallest one of exactly this type, head of its list.
    #[doc(alias = "__rmqueue_smallest")]
    #[inline]
    pub(crate) fn rmqueue_smallest(
        &mut self,
        id: ZoneId,
        order: Order,
        migratetype: Migratetype,
    ) -> Option<Pfn> {
        let area = &self.zones[id.index()].free_area;
        let found = area.smallest(order, migratetype)?;
        let pfn = area.list(found, migratetype).head().expect("an occupied list has a head");
        self.unlink_free(id, pfn, found);
        self.expand(id, pfn, order, found, migratetype);
        self.zones[id.index()].account_free(-i64::from(order.pages()), migratetype);
        // The page remembers the type it was asked for until it is freed (`set_pcppage_migratetype`).
        self.frames.set(pfn, State::Allocated, order, migratetype);
        Some(pfn)
    }

    /// Takes up to `most` blocks of `order` that lie side by side, as so many calls of
    /// [`Self::rmqueue_smallest`] would: as the lists below the block found are empty, they would cut up
    /// its lower end piece by piece.
    ///
    /// Returns the first one and how many.
    #[inline]
    pub(crate) fn rmqueue_smallest_run(
        &mut self,
        id: ZoneId,
        order: Order,
        migratetype: Migratetype,
        most: u32,
    ) -> Option<(Pfn, u32)> {
        let found = self.zones[id.index()].free_area.smallest(order, migratetype)?;
        let whole = Order(found.0.min(order.0 + most.ilog2() as u8));
        let first = self.rmqueue_smallest(id, whole, migratetype)?;
        let parts = 1 << (whole.0 - order.0);
        // Each piece but the first would have been put on a list and taken off again.
        self.work.near_list_ops += 2 * u64::from(parts - 1);
        Some((first, parts))
    }

    /// Frees a block that is on no list: merges it with its free buddies and puts the result on the list
    /// of `migratetype`.
    #[doc(alias = "__free_one_page")]
    #[inline]
    pub(crate) fn free_one_page(
        &mut self,
        id: ZoneId,
        mut pfn: Pfn,
        mut order: Order,
        migratetype: Migratetype,
        to: FreeTo,
    ) {
        let max_order = self.policy.freelist.max_order;
        let pageblock_order = self.policy.freelist.pageblock_order;
        let zone = &mut self.zones[id.index()];
        zone.account_free(i64::from(order.pages()), migratetype);
        zone.flags.all_unreclaimable = false;
        if self.policy.reclaim.freeing_restores_hope {
            let lruvec = self.lru.of_zone(id);
            self.lru.lruvecs[lruvec].pages_scanned = 0;
        }
        while order < max_order {
            if self.capture.is_some() && self.capture_block(id, pfn, order, migratetype) {
                return;
            }
            let buddy = pfn.buddy(order);
            if !self.frames.is_free(buddy, order) || !self.zones[id.index()].spans(buddy) {
                break;
            }
            if order >= pageblock_order && !self.may_merge_blocks(buddy, order, migratetype) {
                break;
            }
            let buddy_type = self.unlink_free(id, buddy, order);
            if buddy_type != migratetype {
                if self.policy.freelist.list_type == ListType::Pageblock {
                    self.set_block_types(buddy, order, migratetype);
                }
                // Where lists do not follow pageblocks, a type that is counted apart may be involved.
                let zone = &mut self.zones[id.index()];
                zone.account_free(-i64::from(order.pages()), buddy_type);
                zone.account_free(i64::from(order.pages()), migratetype);
            }
            self.frames.set_inner(buddy);
            self.frames.set_inner(pfn);
            pfn = pfn.parent(order);
            order.0 += 1;
            self.work.merges += 1;
        }
        let end = match to {
            FreeTo::Tail => End::Tail,
            FreeTo::Policy if self.merge_is_likely(id, pfn, order) => End::Tail,
            FreeTo::Policy => End::Head,
        };
        self.link_free(id, pfn, order, migratetype, end);
    }

    /// Whether pageblocks of two types may become one free block: if they are of one type, or of types
    /// that differ in mobility alone.
    fn may_merge_blocks(&self, buddy: Pfn, order: Order, migratetype: Migratetype) -> bool {
        let buddy_type = match self.policy.freelist.list_type {
            ListType::Pageblock => self.frames.migratetype(buddy),
            ListType::Remembered => self.block_type(buddy),
        };
        debug_assert!(order >= self.policy.freelist.pageblock_order);
        buddy_type == migratetype || buddy_type.is_mergeable() && migratetype.is_mergeable()
    }

    /// Whether the block's parent would find its own buddy free, so that the block is better left alone
    /// for a while (`buddy_merge_likely`).
    #[inline]
    fn merge_is_likely(&self, id: ZoneId, pfn: Pfn, order: Order) -> bool {
        if self.policy.freelist.merge == Placement::Head
            || order.0 + 1 >= self.policy.freelist.max_order.0
        {
            return false;
        }
        let parent = pfn.parent(order);
        let parent_order = Order(order.0 + 1);
        let aunt = parent.buddy(parent_order);
        self.frames.is_free(aunt, parent_order) && self.zones[id.index()].spans(aunt)
    }

    /// Frees a block straight to the free lists, by the type of its pageblock.
    #[doc(alias = "split_large_buddy")]
    pub fn free_to_buddy(&mut self, id: ZoneId, pfn: Pfn, order: Order, to: FreeTo) {
        let pageblock_order = self.policy.freelist.pageblock_order;
        if self.policy.freelist.split_large_frees && order > pageblock_order {
            for part in 0..1u32 << (order.0 - pageblock_order.0) {
                let pfn = pfn + part * pageblock_order.pages();
                self.frames.set(pfn, State::Allocated, pageblock_order, Migratetype::Movable);
                let migratetype = self.block_type(pfn);
                self.free_one_page(id, pfn, pageblock_order, migratetype, to);
            }
        } else {
            let migratetype = self.block_type(pfn);
            self.free_one_page(id, pfn, order, migratetype, to);
        }
    }

    /// The part of the pageblock around the free block at `pfn` whose free pages may change lists: all of
    /// it. If it is not wholly inside the zone, `None`, except that kernels whose lists do not follow
    /// pageblocks mind its end alone, and begin at `pfn` if only its start is outside.
    pub(crate) fn movable_range(&self, id: ZoneId, pfn: Pfn) -> Option<Range<Pfn>> {
        let zone = &self.zones[id.index()];
        let start = pfn.align_down(self.policy.freelist.pageblock_order);
        let end = start + self.policy.freelist.pageblock_order.pages();
        if !zone.spans(end - 1) {
            None
        } else if zone.spans(start) {
            Some(start..end)
        } else {
            (self.policy.freelist.list_type == ListType::Remembered).then_some(pfn..end)
        }
    }

    /// Moves every free block of a part of a pageblock to the lists of `to`, ascending, each to `end`.
    ///
    /// Returns the pages moved.
    #[doc(alias = "move_freepages_block")]
    pub(crate) fn move_freepages(
        &mut self,
        id: ZoneId,
        range: Range<Pfn>,
        to: Migratetype,
        end: End,
    ) -> u32 {
        let Range { start: mut pfn, end: limit } = range;
        let mut moved = 0;
        while pfn < limit {
            self.work.pfns_scanned += 1;
            if self.frames.state(pfn) == State::Free {
                let order = self.frames.order(pfn);
                self.move_to_free_list(id, pfn, order, to, end);
                moved += order.pages();
                pfn.0 += order.pages();
            } else {
                pfn.0 += self.span_from(pfn);
            }
        }
        moved
    }

    /// Brings the free block `first` to the head of its list; what stood before it goes behind the tail
    /// (`move_freelist_head`, mm/compaction.c).
    pub fn rotate_free_list(
        &mut self,
        id: ZoneId,
        order: Order,
        migratetype: Migratetype,
        first: Pfn,
    ) {
        let frames = &mut self.frames;
        self.zones[id.index()]
            .free_area
            .change(order, migratetype, |list| frames.rotate_to(list, first));
    }

    /// Brings the free block `last` to the tail of its list, behind what stood after it; with it goes, in
    /// order, all that stands before it (`move_freelist_tail`, mm/compaction.c).
    pub fn rotate_free_list_behind(
        &mut self,
        id: ZoneId,
        order: Order,
        migratetype: Migratetype,
        last: Pfn,
    ) {
        if let Some(first) = self.frames.next(last) {
            self.rotate_free_list(id, order, migratetype, first);
        }
    }

    /// Moves one free block to the list of another type.
    pub(crate) fn move_to_free_list(
        &mut self,
        id: ZoneId,
        pfn: Pfn,
        order: Order,
        to: Migratetype,
        end: End,
    ) {
        let from = self.unlink_free(id, pfn, order);
        self.link_free(id, pfn, order, to, end);
        let zone = &mut self.zones[id.index()];
        zone.account_free(-i64::from(order.pages()), from);
        zone.account_free(i64::from(order.pages()), to);
    }
}
