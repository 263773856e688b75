//! What reclaim for a high order did beside freeing single pages: its mode, blocks taken around a victim, and the
//! second pass over pages that are being written.
//!
//! Models: `set_reclaim_mode`, `reset_reclaim_mode`, `isolate_lru_pages`, `should_reclaim_stall`,
//! `shrink_inactive_list`, mm/vmscan.c, v3.3 and v3.4.
//! Departs: between the two passes pages are back on their lists, one by one off them again. Visible as: others may
//! reclaim them meanwhile.

use crate::frame::{PageFlags, State};
use crate::lru::{Isolated, LruList, LruvecId};
use crate::memory::Memory;
use crate::policy::{HighOrderMode, LumpyIsolation};
use crate::reclaim::{DEF_PRIORITY, Reclaimer, ScanControl, Shrunk};
use crate::types::{COSTLY_ORDER, Order, Pfn};
use std_alloc::vec;

/// What reclaim is about (`reclaim_mode_t`), while it finds nothing in its way.
#[doc(alias = "reset_reclaim_mode")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReclaimMode {
    /// Single pages.
    #[default]
    Single,
    /// Single pages enough for compaction.
    Compaction,
    /// The block itself: whatever its pages are.
    Lumpy,
}

/// What taking the pages around victims came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lumps {
    /// Base pages taken beside victims.
    pub nr_taken: u64,
    /// Of those, dirty.
    pub nr_dirty: u64,
    /// Victims whose block was left before its end.
    pub nr_failed: u64,
}

/// What is taken beside a victim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Around {
    /// The block of this order.
    order: Order,
    /// Pages of any list, not of the victim's alone.
    any_list: bool,
}

impl Memory {
    /// What reclaim for this order at this priority is about, at first.
    #[doc(alias = "set_reclaim_mode")]
    #[must_use]
    pub fn reclaim_mode(&self, order: Order, priority: u8) -> ReclaimMode {
        let is_high = order > COSTLY_ORDER || order > Order(0) && priority < DEF_PRIORITY - 2;
        match self.policy.reclaim.mode {
            HighOrderMode::Compaction if is_high => ReclaimMode::Compaction,
            HighOrderMode::Lumpy if is_high => ReclaimMode::Lumpy,
            _ => ReclaimMode::Single,
        }
    }

    /// What is taken beside the victims of a batch.
    pub(crate) fn around(&self, order: Order, mode: ReclaimMode) -> Option<Around> {
        let any_list = mode == ReclaimMode::Lumpy;
        let takes = match self.policy.reclaim.lumpy {
            LumpyIsolation::Never => false,
            LumpyIsolation::InMode => any_list,
            LumpyIsolation::AnyOrder => true,
        };
        (takes && order > Order(0)).then_some(Around { order, any_list })
    }

    /// Takes the pages of the block around a victim that was taken off `list`, from its first frame on, until
    /// something is in the way.
    pub(crate) fn isolate_block_around(
        &mut self,
        tag: Pfn,
        list: LruList,
        around: Around,
        found: &mut Isolated,
    ) {
        let zone = self.zone_of(tag);
        let start = tag.align_down(around.order);
        let end = start.0 + around.order.pages();
        let mut at = start;
        while at.0 < end {
            if at == tag {
                at.0 += 1;
                continue;
            }
            if self.find_zone(at) != Some(zone) || self.is_hole(at) {
                break;
            }
            self.work.pfns_scanned += 1;
            if self.may_take(at, list, around) {
                let pages = self.nr_pages(at);
                self.del_page_from_lru(at);
                self.account_isolated(at, 1);
                found.pages.push(at);
                found.nr_scanned += 1;
                found.nr_taken += pages;
                found.lumps.nr_taken += pages;
                if self.frames.has(at, PageFlags::DIRTY) {
                    found.lumps.nr_dirty += pages;
                }
                at.0 += pages as u32;
            } else if let Some(free) = self.free_pages_from(at) {
                at.0 += free;
            } else {
                break;
            }
        }
        found.lumps.nr_failed += u64::from(at.0 < end);
    }

    fn is_hole(&self, pfn: Pfn) -> bool {
        self.frames.state(pfn) == State::Hole
    }

    /// Whether a page may be taken beside a victim of `list`.
    fn may_take(&self, pfn: Pfn, list: LruList, around: Around) -> bool {
        let has = |flags| self.frames.has(pfn, flags);
        if self.frames.state(pfn) != State::Allocated
            || !has(PageFlags::LRU)
            || has(PageFlags::UNEVICTABLE)
        {
            return false;
        }
        let is_anon = has(PageFlags::ANON);
        if is_anon && self.swap.nr_free() == 0 && !has(PageFlags::SWAPCACHE) {
            return false;
        }
        around.any_list || is_anon != list.is_file() && has(PageFlags::ACTIVE) == list.is_active()
    }

    /// Pages from a frame on that belong to nobody.
    fn free_pages_from(&self, pfn: Pfn) -> Option<u32> {
        let head = match self.frames.state(pfn) {
            State::Inner => self.frames.head_of(pfn),
            _ => pfn,
        };
        let is_free = matches!(self.frames.state(head), State::Free | State::Pcp);
        is_free.then(|| head.0 + self.frames.order(head).pages() - pfn.0)
    }

    /// Whether a batch is looked through once more, for those of its pages that are being written.
    #[doc(alias = "should_reclaim_stall")]
    #[must_use]
    pub fn stalls(&self, sc: &ScanControl, mode: ReclaimMode) -> bool {
        let from = if sc.order > COSTLY_ORDER { DEF_PRIORITY } else { DEF_PRIORITY / 3 };
        sc.who != Reclaimer::Kswapd && mode != ReclaimMode::Single && sc.priority <= from
    }

    /// Decides once more about a page of a batch that was being written. `None` if it is gone, or in use.
    pub fn shrink_page_again(
        &mut self,
        lruvec: LruvecId,
        pfn: Pfn,
        sc: &ScanControl,
        mode: ReclaimMode,
    ) -> Option<Shrunk> {
        let is_left = self.frames.state(pfn) == State::Allocated
            && !self.frames.has(pfn, PageFlags::ACTIVE | PageFlags::UNEVICTABLE)
            && self.lruvec_of(pfn) == lruvec
            && self.isolate_lru_page(pfn);
        if !is_left {
            return None;
        }
        let file = !self.frames.has(pfn, PageFlags::ANON);
        let mut shrunk = Shrunk { mode: Some(mode), ..Shrunk::default() };
        let kept = self.shrink_page_list(vec![pfn], sc, &mut shrunk);
        self.putback_pages(lruvec, kept.expect("kernels that look again do not pause"));
        self.count_steal(lruvec, file, shrunk.nr_reclaimed, sc.who);
        Some(shrunk)
    }
}
