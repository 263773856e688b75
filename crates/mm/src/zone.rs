//! A zone: its span, its free lists, its watermarks and its per-CPU lists.

use crate::fallback::FallbackCounts;
use crate::fast_search::CompactZone;
use crate::frame::List;
use crate::pcp::PerCpuPages;
use crate::types::{
    Migratetype, NR_MIGRATETYPES, NR_PAGE_ORDERS, NR_ZONE_KINDS, NodeId, Order, Pfn, ZoneKind,
};
use crate::watermark::{Mark, Watermarks};
use std_alloc::vec::Vec;

/// Index of a zone in [`crate::Memory::zones`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ZoneId(pub u8);

impl ZoneId {
    /// Index into the zone table.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The free lists of a zone, by order and migratetype.
#[derive(Clone, Debug)]
pub struct FreeArea {
    lists: [[List; NR_MIGRATETYPES]; NR_PAGE_ORDERS],
    /// For each type, a bit for each order whose list is not empty.
    occupied: [u16; NR_MIGRATETYPES],
}

impl FreeArea {
    /// All lists empty.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            lists: [[List::EMPTY; NR_MIGRATETYPES]; NR_PAGE_ORDERS],
            occupied: [0; NR_MIGRATETYPES],
        }
    }

    /// One list.
    #[inline]
    #[must_use]
    pub const fn list(&self, order: Order, migratetype: Migratetype) -> &List {
        &self.lists[order.index()][migratetype.index()]
    }

    /// Changes one list through `change`, and notes whether it is empty afterwards.
    #[inline]
    pub(crate) fn change<R>(
        &mut self,
        order: Order,
        migratetype: Migratetype,
        change: impl FnOnce(&mut List) -> R,
    ) -> R {
        let list = &mut self.lists[order.index()][migratetype.index()];
        let result = change(list);
        let bit = 1u16 << order.0;
        if list.is_empty() {
            self.occupied[migratetype.index()] &= !bit;
        } else {
            self.occupied[migratetype.index()] |= bit;
        }
        result
    }

    /// The smallest order from `order` up that has a block of this type.
    #[inline]
    #[must_use]
    pub const fn smallest(&self, order: Order, migratetype: Migratetype) -> Option<Order> {
        let from = self.occupied[migratetype.index()] & (u16::MAX << order.0);
        if from == 0 { None } else { Some(Order(from.trailing_zeros() as u8)) }
    }

    /// Blocks of `order` of all types (`nr_free`).
    #[must_use]
    pub fn nr_free(&self, order: Order) -> u32 {
        self.lists[order.index()].iter().map(List::len).sum()
    }

    /// Whether blocks of some order and type exist, in one look.
    #[inline]
    #[must_use]
    pub const fn any_from(&self, order: Order, migratetype: Migratetype) -> bool {
        self.smallest(order, migratetype).is_some()
    }
}

impl Default for FreeArea {
    fn default() -> Self {
        Self::new()
    }
}

/// State bits of a zone (`enum zone_flags`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZoneFlags {
    /// A boost happened that kswapd has not been told of.
    pub boosted_watermark: bool,
    /// The last look found fewer pages than the high mark.
    pub below_high: bool,
    /// kswapd is at work here.
    pub reclaim_active: bool,
    /// The zone's share of the node's allocations is used up, until all shares are renewed.
    pub fair_depleted: bool,
    /// kswapd has given the zone up, until something is freed in it (before 3.12).
    pub all_unreclaimable: bool,
}

/// One zone of a node.
#[derive(Clone, Debug)]
pub struct Zone {
    /// NUMA node.
    pub node: NodeId,
    /// Which zone.
    pub kind: ZoneKind,
    /// First frame of the span.
    pub start: Pfn,
    /// One past the last frame of the span.
    pub end: Pfn,
    /// Frames that exist.
    pub present_pages: u64,
    /// Frames the page allocator manages.
    pub managed_pages: u64,
    /// Free blocks.
    pub free_area: FreeArea,
    /// Pages in free blocks, Isolate pageblocks not counted (`NR_FREE_PAGES`).
    pub nr_free_pages: u64,
    /// Free pages on CMA lists.
    pub nr_free_cma: u64,
    /// Free pages on HighAtomic lists.
    pub nr_free_highatomic: u64,
    /// Pages in HighAtomic pageblocks.
    pub nr_reserved_highatomic: u64,
    /// min, low, high, promo and boost.
    pub watermarks: Watermarks,
    /// Pages kept from requests that could use a higher zone, by the highest zone they may use.
    pub lowmem_reserve: [u64; NR_ZONE_KINDS],
    /// Pages that may still be taken before those of the node's other zones are; below 0 after requests
    /// that did not ask (`NR_ALLOC_BATCH`).
    pub alloc_batch: i64,
    /// State bits.
    pub flags: ZoneFlags,
    /// What compaction remembers.
    pub compact: CompactZone,
    /// Requests served from another type's list.
    pub fallbacks: FallbackCounts,
    /// First frames of pageblocks that fallbacks have mixed, for kcompactd, the last one last.
    pub mixed_blocks: Vec<Pfn>,
    /// One list set a CPU.
    pub pcp: Vec<PerCpuPages>,
}

impl Zone {
    /// Whether `pfn` lies in the span.
    #[inline]
    #[must_use]
    pub const fn spans(&self, pfn: Pfn) -> bool {
        self.start.0 <= pfn.0 && pfn.0 < self.end.0
    }

    /// Gives the zone these marks, and its share of what is handed out anew (`__setup_per_zone_wmarks`, v4.4).
    pub const fn set_watermarks(&mut self, watermarks: Watermarks) {
        self.watermarks = watermarks;
        self.alloc_batch = self.fair_share();
    }

    /// Pages that may be taken before those of the node's other zones are.
    pub(crate) const fn fair_share(&self) -> i64 {
        self.watermarks.raw(Mark::High) as i64 - self.watermarks.raw(Mark::Low) as i64
    }

    /// Notes `pages` more (or fewer) free pages of this type.
    #[inline]
    pub(crate) fn account_free(&mut self, pages: i64, migratetype: Migratetype) {
        if migratetype == Migratetype::Isolate {
            return;
        }
        self.nr_free_pages = self.nr_free_pages.wrapping_add_signed(pages);
        match migratetype {
            Migratetype::Cma => self.nr_free_cma = self.nr_free_cma.wrapping_add_signed(pages),
            Migratetype::HighAtomic => {
                self.nr_free_highatomic = self.nr_free_highatomic.wrapping_add_signed(pages);
            }
            _ => {}
        }
    }
}
