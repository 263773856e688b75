//! How many pages may be dirty: of all memory, and of a zone or a node alone.
//!
//! Models: `global_dirty_limits`, `global_dirtyable_memory`, `zone_dirty_ok`, `zone_dirty_limit`,
//! `zone_dirtyable_memory`, mm/page-writeback.c, v3.3; `domain_dirty_limits`, `node_dirty_ok`, `node_dirty_limit`,
//! `node_dirtyable_memory`, mm/page-writeback.c, v6.12.

use crate::lru::{LruList, LruvecId};
use crate::memory::Memory;
use crate::watermark::Mark;
use crate::zone::Zone;

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;

impl Zone {
    /// Free pages that are not for files (`dirty_balance_reserve`, since 3.16 `totalreserve_pages`).
    #[must_use]
    pub fn kept_from_files(&self) -> u64 {
        let reserve = self.lowmem_reserve.iter().max().copied().unwrap_or(0);
        (reserve + self.watermarks.pages(Mark::High)).min(self.managed_pages)
    }
}

impl Memory {
    /// The limits of all dirty pages: above the first, flushers work; above the second, writers wait.
    #[doc(alias = "global_dirty_limits")]
    #[doc(alias = "domain_dirty_limits")]
    #[must_use]
    pub fn dirty_limits(&self) -> (u64, u64) {
        let dirty = &self.policy.dirty;
        let dirtyable = self.dirtyable_pages();
        let limit = limit(dirty.bytes, dirty.ratio, dirtyable);
        let background = self::limit(dirty.background_bytes, dirty.background_ratio, dirtyable);
        (if background >= limit { limit / 2 } else { background }, limit)
    }

    /// The limit when a machine starts: all memory is free then.
    #[doc(alias = "page_writeback_init")]
    #[must_use]
    pub fn dirty_limit_at_boot(&self) -> u64 {
        let zones = self.zones.iter();
        let dirtyable = zones.map(|zone| zone.managed_pages - zone.kept_from_files()).sum();
        limit(self.policy.dirty.bytes, self.policy.dirty.ratio, dirtyable)
    }

    /// Whether what LRU lists belong to, a zone or a node, has room for another page that will be dirty.
    #[doc(alias = "zone_dirty_ok")]
    #[doc(alias = "node_dirty_ok")]
    pub(crate) fn dirty_ok(&self, id: LruvecId) -> bool {
        let stats = &self.lru.lruvecs[id].stats;
        stats.nr_dirty + stats.nr_writeback <= self.dirty_limit(id)
    }

    /// Its share of the limit of all dirty pages.
    #[doc(alias = "zone_dirty_limit")]
    #[doc(alias = "node_dirty_limit")]
    fn dirty_limit(&self, id: LruvecId) -> u64 {
        let dirty = &self.policy.dirty;
        let dirtyable = self.dirtyable_of(id);
        match dirty.bytes {
            0 => limit(0, dirty.ratio, dirtyable),
            bytes => {
                let share = u128::from(bytes.div_ceil(PAGE_BYTES)) * u128::from(dirtyable);
                (share / u128::from(self.dirtyable_pages())) as u64
            }
        }
    }

    /// All pages that may be dirty. Never none.
    #[doc(alias = "global_dirtyable_memory")]
    fn dirtyable_pages(&self) -> u64 {
        let zones = self.zones.iter();
        let free = |zone: &Zone| zone.nr_free_pages.saturating_sub(zone.kept_from_files());
        let free: u64 = zones.map(free).sum();
        let listed = |list| self.nr_lru(list);
        let mut pages = free + listed(LruList::InactiveFile) + listed(LruList::ActiveFile) + 1;
        if self.anon_may_be_dirty() {
            pages += listed(LruList::InactiveAnon) + listed(LruList::ActiveAnon);
        }
        pages
    }

    /// Those of a zone or a node.
    #[doc(alias = "zone_dirtyable_memory")]
    #[doc(alias = "node_dirtyable_memory")]
    fn dirtyable_of(&self, id: LruvecId) -> u64 {
        let lists = &self.lru.lruvecs[id];
        let zones = match lists.zone {
            Some(zone) => zone.index()..zone.index() + 1,
            None => 0..self.zones.len(),
        };
        let zones = self.zones[zones].iter().filter(|zone| zone.node == lists.node);
        let (free, kept) = zones.fold((0, 0), |(free, kept), zone| {
            (free + zone.nr_free_pages, kept + zone.kept_from_files())
        });
        let files = lists.size(LruList::InactiveFile) + lists.size(LruList::ActiveFile);
        if self.anon_may_be_dirty() {
            let anon = lists.size(LruList::InactiveAnon) + lists.size(LruList::ActiveAnon);
            (free + files + anon).saturating_sub(kept)
        } else {
            free.saturating_sub(kept) + files
        }
    }

    fn anon_may_be_dirty(&self) -> bool {
        self.policy.dirty.counts_anon && self.swap.nr_free() > 0
    }
}

/// So many bytes as pages, or where there are none of them this share of the pages that may be dirty.
fn limit(bytes: u64, ratio: u32, dirtyable: u64) -> u64 {
    match bytes {
        0 => dirtyable * u64::from(ratio) / 100,
        bytes => bytes.div_ceil(PAGE_BYTES),
    }
}
