//! Whether compaction is worth while: marks, the fragmentation index, deferral, the fragmentation score.
//!
//! Models: `compaction_suitable`, `compaction_deferred`, `defer_compaction`, `compaction_defer_reset`,
//! `compaction_restarting`, `fragmentation_score_node`, `kcompactd_node_suitable`, mm/compaction.c;
//! `__fragmentation_index`, `extfrag_for_order`, mm/vmstat.c; v6.12, v4.14, v4.4 and v3.4.

use super::CompactResult;
use super::events::CompactEvent;
use crate::anon::HUGE_ORDER;
use crate::gfp::AllocFlags;
use crate::memory::Memory;
use crate::policy::Suitable;
use crate::types::{COSTLY_ORDER, NR_PAGE_ORDERS, NodeId, Order, ZoneKind};
use crate::watermark::Mark;
use crate::zone::ZoneId;

/// Rounds of 500 ms for which kcompactd leaves a node alone after proactive work in vain
/// (`1 << COMPACT_MAX_DEFER_SHIFT`).
pub const PROACTIVE_DEFER_ROUNDS: u32 = 1 << 6;

/// Free pages that a run needs to move pages to, beside what its marks keep (`compact_gap`).
#[must_use]
pub const fn compact_gap(order: Order) -> u64 {
    2 << order.0
}

/// A zone's free blocks as far as a request of some order sees them.
struct FreeBlocks {
    pages: u64,
    blocks: u64,
    /// Blocks of the order that could be had.
    suitable: u64,
}

impl Memory {
    fn free_blocks(&self, id: ZoneId, order: Order) -> FreeBlocks {
        let area = &self.zones[id.index()].free_area;
        let mut all = FreeBlocks { pages: 0, blocks: 0, suitable: 0 };
        for of in (0..NR_PAGE_ORDERS as u8).map(Order) {
            let nr = u64::from(area.nr_free(of));
            all.blocks += nr;
            all.pages += nr << of.0;
            if of >= order {
                all.suitable += nr << (of.0 - order.0);
            }
        }
        all
    }

    /// Why a request of this order fails: towards 0 for want of memory, towards 1000 for fragmentation;
    /// -1000 if it need not fail.
    #[doc(alias = "__fragmentation_index")]
    #[must_use]
    pub fn fragmentation_index(&self, id: ZoneId, order: Order) -> i64 {
        let FreeBlocks { pages, blocks, suitable } = self.free_blocks(id, order);
        if blocks == 0 {
            return 0;
        }
        if suitable > 0 {
            return -1000;
        }
        let wanted = u64::from(order.pages());
        1000 - ((1000 + pages * 1000 / wanted) / blocks) as i64
    }

    /// Whether a run for this order is worth while in a zone: [`CompactResult::Continue`] if so.
    #[must_use]
    pub fn compaction_suitable(
        &self,
        id: ZoneId,
        order: Order,
        mark: Mark,
        flags: AllocFlags,
        highest_zoneidx: ZoneKind,
    ) -> CompactResult {
        let free = self.zones[id.index()].nr_free_pages;
        match self.has_room(id, order, mark, flags, highest_zoneidx, free) {
            CompactResult::Continue => {}
            result => return result,
        }
        let policy = self.policy.compaction;
        let rule = policy.suitable;
        if rule == Suitable::CallersMark && order <= COSTLY_ORDER {
            return CompactResult::Continue;
        }
        let index = self.fragmentation_index(id, order);
        if rule == Suitable::RoomFirst && index == -1000 {
            let mark = self.zones[id.index()].watermarks.pages(Mark::Low) + compact_gap(order);
            if self.watermark_ok(id, order, mark, ZoneKind::Dma, AllocFlags::NONE) {
                return CompactResult::Success;
            }
        }
        if (0..=i64::from(policy.extfrag_threshold)).contains(&index) {
            return CompactResult::NotSuitableZone;
        }
        CompactResult::Continue
    }

    /// The part of the test that free pages decide, if this many were free: also what reclaim asks with
    /// what it could free (`__compaction_suitable`, `compaction_zonelist_suitable`).
    #[must_use]
    pub fn has_room(
        &self,
        id: ZoneId,
        order: Order,
        mark: Mark,
        flags: AllocFlags,
        highest_zoneidx: ZoneKind,
        nr_free_pages: u64,
    ) -> CompactResult {
        let marks = &self.zones[id.index()].watermarks;
        let (low, min) = (marks.pages(Mark::Low), marks.pages(Mark::Min));
        let (served, room, highest_zoneidx) = match self.policy.compaction.suitable {
            Suitable::RoomFirst => (None, low, ZoneKind::Dma),
            Suitable::LowMark => (Some(low), low, highest_zoneidx),
            Suitable::CallersMark => {
                let room = if order > COSTLY_ORDER { low } else { min };
                (Some(marks.pages(mark)), room, highest_zoneidx)
            }
        };
        if served.is_some_and(|mark| self.watermark_ok(id, order, mark, highest_zoneidx, flags)) {
            return CompactResult::Success;
        }
        let needed = room + compact_gap(order);
        let flags = AllocFlags::NONE;
        match self.watermark_ok_with(id, Order(0), needed, highest_zoneidx, flags, nr_free_pages) {
            true => CompactResult::Continue,
            false => CompactResult::Skipped,
        }
    }

    /// Whether kcompactd has something to do on a node: whether a run is worth while in one of its zones up
    /// to `highest_zoneidx`.
    #[must_use]
    pub fn kcompactd_node_suitable(
        &mut self,
        node: NodeId,
        order: Order,
        highest_zoneidx: ZoneKind,
    ) -> bool {
        (0..self.zones.len()).map(|zone| ZoneId(zone as u8)).any(|id| {
            let zone = &self.zones[id.index()];
            if zone.node != node || zone.kind > highest_zoneidx || zone.present_pages == 0 {
                return false;
            }
            let flags = AllocFlags::NONE;
            let result = self.compaction_suitable(id, order, Mark::Min, flags, highest_zoneidx);
            self.note_suitable(id, Some(order), result);
            result == CompactResult::Continue
        })
    }

    /// A run for this order failed: those that follow are deferred for longer and longer.
    pub fn defer_compaction(&mut self, id: ZoneId, order: Order) {
        let policy = self.policy.compaction;
        let compact = &mut self.zones[id.index()].compact;
        compact.considered = 0;
        compact.defer_shift = (compact.defer_shift + 1).min(policy.defer_shift_max);
        if policy.defer_by_order {
            compact.order_failed = compact.order_failed.min(order);
        }
        self.note_compact(CompactEvent::DeferCompaction(self.deferral(id, order)));
    }

    /// Whether a run for this order is deferred. To ask counts.
    pub fn compaction_deferred(&mut self, id: ZoneId, order: Order) -> bool {
        let by_order = self.policy.compaction.defer_by_order;
        let compact = &mut self.zones[id.index()].compact;
        if by_order && order < compact.order_failed {
            return false;
        }
        let limit = 1 << compact.defer_shift;
        compact.considered = (compact.considered + 1).min(limit);
        let is_deferred = compact.considered < limit;
        if is_deferred {
            self.note_compact(CompactEvent::Deferred(self.deferral(id, order)));
        }
        is_deferred
    }

    /// A run for this order served, or so it seems: the order is not deferred any more; if a block was really
    /// `allocated`, none is.
    pub fn compaction_defer_reset(&mut self, id: ZoneId, order: Order, allocated: bool) {
        let by_order = self.policy.compaction.defer_by_order;
        let compact = &mut self.zones[id.index()].compact;
        if allocated {
            compact.considered = 0;
            compact.defer_shift = 0;
        }
        if by_order && order >= compact.order_failed {
            compact.order_failed = Order(order.0 + 1);
        }
        self.note_compact(CompactEvent::DeferReset(self.deferral(id, order)));
    }

    /// Whether a run comes after the longest deferral: then nothing that is known of pageblocks counts
    /// any more.
    #[must_use]
    pub fn compaction_restarting(&self, id: ZoneId, order: Order) -> bool {
        let policy = self.policy.compaction;
        let compact = &self.zones[id.index()].compact;
        (!policy.defer_by_order || order >= compact.order_failed)
            && compact.defer_shift == policy.defer_shift_max
            && compact.considered >= 1 << policy.defer_shift_max
    }

    /// How fragmented a zone is: the percentage of its free pages that are in blocks smaller than a huge
    /// page.
    #[doc(alias = "extfrag_for_order")]
    #[must_use]
    pub fn fragmentation_score(&self, id: ZoneId) -> u64 {
        let FreeBlocks { pages, suitable, .. } = self.free_blocks(id, HUGE_ORDER);
        ((pages - (suitable << HUGE_ORDER.0)) * 100).checked_div(pages).unwrap_or(0)
    }

    /// How fragmented a node is: its zones' scores, each by the zone's share of the node.
    #[must_use]
    pub fn fragmentation_score_node(&self, node: NodeId) -> u64 {
        let zones = self.zones.iter().enumerate().filter(|(_, zone)| zone.node == node);
        let present: u64 = zones.clone().map(|(_, zone)| zone.present_pages).sum();
        zones
            .map(|(at, zone)| {
                zone.present_pages * self.fragmentation_score(ZoneId(at as u8)) / (present + 1)
            })
            .sum()
    }

    /// The score above which kcompactd begins ([`Mark::High`]) or until which it works ([`Mark::Low`])
    /// (`fragmentation_score_wmark`).
    #[must_use]
    pub fn fragmentation_mark(&self, mark: Mark) -> u64 {
        let low = 100u64.saturating_sub(u64::from(self.policy.compaction.proactiveness)).max(5);
        if mark == Mark::Low { low } else { (low + 10).min(100) }
    }

    /// Whether a node is fragmented enough for kcompactd to begin, kswapd being at rest
    /// (`should_proactive_compact_node`).
    #[must_use]
    pub fn should_proactive_compact(&self, node: NodeId) -> bool {
        let kswapd_runs =
            self.zones.iter().any(|zone| zone.node == node && zone.flags.reclaim_active);
        self.policy.compaction.proactiveness > 0
            && !kswapd_runs
            && self.fragmentation_score_node(node) > self.fragmentation_mark(Mark::High)
    }

    /// Clears skip marks, as kswapd does before it sleeps, if a compaction has asked for it.
    pub fn reset_isolation_hints(&mut self, id: ZoneId) {
        if self.policy.compaction.sampled_reset {
            self.reset_isolation_suitable(id);
        } else if self.zones[id.index()].compact.blockskip_flush {
            self.reset_all_isolation_hints(id);
        }
    }

    /// Clears every skip mark of a zone, and the next run begins at its ends.
    pub(super) fn reset_all_isolation_hints(&mut self, id: ZoneId) {
        let last_block = self.last_block(id);
        let pages = self.pageblock_pages();
        let zone = &mut self.zones[id.index()];
        zone.compact.cached_migrate_pfn = [zone.start; 2];
        zone.compact.cached_free_pfn = last_block;
        zone.compact.blockskip_flush = false;
        let (start, end) = (zone.start, zone.end);
        let mut pfn = start;
        while pfn < end {
            if self.find_zone(pfn) == Some(id) {
                self.set_block_skip(pfn, false);
            }
            pfn = super::block_end(pfn, pages);
        }
    }
}
