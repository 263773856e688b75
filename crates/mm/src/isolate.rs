//! Taking free blocks off the lists for private use, and putting them back.
//!
//! Models: `__isolate_free_page`, `__putback_isolated_page`, mm/page_alloc.c, v6.12 and v6.1.

use crate::buddy::FreeTo;
use crate::frame::{End, State};
use crate::gfp::AllocFlags;
use crate::memory::Memory;
use crate::policy::{IsolateMark, ListType};
use crate::types::{Migratetype, Order, Pfn, ZoneKind};
use crate::watermark::Mark;

impl Memory {
    /// Takes the free block at `pfn` off its list, unless that would leave the zone below the policy's mark.
    ///
    /// A block of half a pageblock or more turns its pageblocks Movable, so that what will be migrated
    /// into it finds its like.
    ///
    /// # Panics
    /// If no free block of this order begins at `pfn`.
    #[doc(alias = "__isolate_free_page")]
    pub fn isolate_free_page(&mut self, pfn: Pfn, order: Order) -> bool {
        assert!(self.frames.is_free(pfn, order), "no free block of order {order} at {pfn}");
        let id = self.zone_of(pfn);
        if self.block_type(pfn) != Migratetype::Isolate {
            let marks = &self.zones[id.index()].watermarks;
            let mark = match self.policy.compaction.isolate_mark {
                IsolateMark::Low => marks.pages(Mark::Low),
                IsolateMark::Min => marks.pages(Mark::Min),
                IsolateMark::BareMin => marks.raw(Mark::Min),
            };
            let above = mark + u64::from(order.pages());
            if !self.watermark_ok(id, Order(0), above, ZoneKind::Dma, AllocFlags::NONE) {
                return false;
            }
        }
        self.take_free_page(pfn, order);
        true
    }

    /// As [`Self::isolate_free_page`], without asking the watermark.
    ///
    /// # Panics
    /// If no free block of this order begins at `pfn`.
    pub fn take_free_page(&mut self, pfn: Pfn, order: Order) {
        let id = self.zone_of(pfn);
        let from = self.unlink_free(id, pfn, order);
        self.zones[id.index()].account_free(-i64::from(order.pages()), from);
        self.frames.set(pfn, State::Isolated, order, from);
        let pageblock_order = self.policy.freelist.pageblock_order;
        if order.0 + 1 < pageblock_order.0 {
            return;
        }
        let mut start = pfn.align_down(pageblock_order);
        while start.0 < pfn.0 + order.pages() {
            // The type and the other free pieces' place on their lists change together, even where the
            // type was Movable before; in a pageblock that another zone shares neither does.
            if self.block_type(start).is_mergeable() {
                if self.policy.freelist.list_type == ListType::Remembered {
                    self.set_block_type(start, Migratetype::Movable);
                } else if let Some(range) = self.movable_range(id, start) {
                    self.set_block_type(start, Migratetype::Movable);
                    self.move_freepages(id, range, self.block_type(start), End::Tail);
                }
            }
            start.0 += pageblock_order.pages();
        }
    }

    /// Puts an isolated block back on the free lists, at the tail.
    ///
    /// # Panics
    /// If the block at `pfn` is not isolated.
    #[doc(alias = "__putback_isolated_page")]
    pub fn putback_isolated_page(&mut self, pfn: Pfn, order: Order) {
        assert_eq!(self.frames.state(pfn), State::Isolated, "{pfn} is not isolated");
        let id = self.zone_of(pfn);
        let migratetype = self.block_type(pfn);
        self.free_one_page(id, pfn, order, migratetype, FreeTo::Tail);
    }
}
