//! Migration: the content of a page goes to another frame, and whatever names the page names that one.
//!
//! Models: mm/migrate.c (`move_to_new_page`, `migrate_page_move_mapping`, `migrate_page_states`,
//! `remove_migration_pte`, `putback_movable_pages`), v4.4, v6.1 and v6.12.
//! Departs: a page is moved in one step, while the kernel puts migration entries in its place for a
//! moment, for which faults wait. Visible as: no faults wait for a migration. The old frame is freed at
//! once, where kernels before 4.8 let it pass through the batch of pages to be added to the LRU. Visible as:
//! there, up to 14 frames stay away until the next drain. Every file system can move its dirty pages
//! (`migratepage`), and block devices theirs, but for what a journal holds. Visible as: where one cannot, fewer dirty
//! pages move than here. Nothing takes a page's lock for a short while, so that only pages being read are found locked.
//! Visible as: fewer attempts fail. Whoever waits with a frame's number in hand for a page that is on an LRU list, looks
//! the page up anew.
//!
//! A page that is to be moved is isolated first ([`Memory::isolate_movable_page`]): reclaim does not meet
//! it, and if it is unmapped or truncated meanwhile, its frame stays until [`Memory::migrate_page`] or
//! [`Memory::putback_movable_page`] finds it abandoned.

use crate::anon::{HUGE_ORDER, NOBODY};
use crate::fast_search::MigrateMode;
use crate::frame::{PageFlags, State};
use crate::memory::Memory;
use crate::page_table::{Pmd, Pte, Slot, Vpn};
use crate::types::{CpuId, Migratetype, Pfn};
use std_alloc::vec::Vec;

/// Rounds in which pages that could not be moved are tried again (`NR_MAX_MIGRATE_PAGES_RETRY`; 10 in all
/// before 6.3 too).
pub const MIGRATE_PASSES: u32 = 10;
/// Rounds after which a run that may wait does so (`force = pass > 2`).
pub const MIGRATE_PASSES_UNFORCED: u32 = 3;

/// Why an isolated page does not move now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// Nobody has it any more: it is to be freed instead.
    Gone,
    /// It is being read: worth another try, and a wait.
    Locked,
    /// It is being written: a full sync run waits, others leave it.
    Writeback,
    /// Somebody else holds it: worth another try, but no wait.
    Pinned,
}

impl Memory {
    /// Whether a page can be isolated to be moved: on an LRU list, or with a driver that can move it.
    #[inline]
    #[must_use]
    pub fn is_movable_page(&self, pfn: Pfn) -> bool {
        self.frames.state(pfn) == State::Allocated
            && self.frames.has(pfn, PageFlags::LRU | PageFlags::MOVABLE_OPS)
            && !self.frames.has(pfn, PageFlags::ISOLATED)
    }

    /// A device or a system call holds a page: it does not move until it is let go. Whoever holds it lets
    /// it go before it is unmapped.
    pub fn pin_page(&mut self, pfn: Pfn) {
        self.frames.set_flags(pfn, PageFlags::PINNED);
    }

    /// Lets a page go that was held.
    pub fn unpin_page(&mut self, pfn: Pfn) {
        self.frames.clear_flags(pfn, PageFlags::PINNED);
    }

    /// Makes a block in use one whose driver can move it; so are pages of a recorded machine that are known
    /// to be movable and belong to no task and no file here.
    ///
    /// # Panics
    /// If it is not in use, or on an LRU list or on the way there.
    pub fn set_movable_ops(&mut self, pfn: Pfn) {
        assert_eq!(self.frames.state(pfn), State::Allocated, "{pfn} is not in use");
        let listed = PageFlags::LRU | PageFlags::BATCHED;
        assert!(!self.frames.has(pfn, listed), "{pfn} is a page of a task or a file");
        self.frames.set_movable(pfn, true);
        self.frames.set_flags(pfn, PageFlags::MOVABLE_OPS);
    }

    /// Takes a page off its LRU list, or from its driver, to be moved.
    ///
    /// # Panics
    /// If it is no page that [`Self::is_movable_page`].
    pub fn isolate_movable_page(&mut self, pfn: Pfn) {
        assert!(self.is_movable_page(pfn), "{pfn} cannot be isolated");
        if self.frames.has(pfn, PageFlags::LRU) {
            self.del_page_from_lru(pfn);
            self.account_isolated(pfn, 1);
        }
        self.frames.set_flags(pfn, PageFlags::ISOLATED);
    }

    /// Puts an isolated page back where it was, or frees it if nobody has it any more. Whether it is still
    /// there.
    #[doc(alias = "putback_movable_pages")]
    pub fn putback_movable_page(&mut self, pfn: Pfn, cpu: CpuId) -> bool {
        let is_there = self.take_back_isolated(pfn, cpu);
        if is_there && !self.frames.has(pfn, PageFlags::MOVABLE_OPS) {
            self.putback_lru_page(pfn);
        }
        is_there
    }

    /// An isolated page is its holder's alone again, who knows what becomes of it, or is freed if nobody has it any more.
    /// Whether it is still there.
    pub(crate) fn take_back_isolated(&mut self, pfn: Pfn, cpu: CpuId) -> bool {
        if self.is_abandoned_isolated(pfn) {
            self.free_abandoned(pfn, cpu);
            return false;
        }
        self.frames.clear_flags(pfn, PageFlags::ISOLATED);
        true
    }

    fn is_abandoned_isolated(&self, pfn: Pfn) -> bool {
        debug_assert!(self.frames.has(pfn, PageFlags::ISOLATED), "{pfn} is not isolated");
        let kept = PageFlags::SWAPCACHE | PageFlags::MOVABLE_OPS;
        self.frames.owner(pfn) == NOBODY && !self.frames.has(pfn, kept) && !self.is_shmem(pfn)
    }

    fn free_abandoned(&mut self, pfn: Pfn, cpu: CpuId) {
        self.account_isolated(pfn, -1);
        self.free_page(pfn, cpu);
    }

    /// What keeps an isolated page where it is.
    #[must_use]
    pub fn migration_obstacle(&self, pfn: Pfn) -> Option<Obstacle> {
        if self.is_abandoned_isolated(pfn) {
            Some(Obstacle::Gone)
        } else if self.frames.has(pfn, PageFlags::LOCKED) {
            Some(Obstacle::Locked)
        } else if self.frames.has(pfn, PageFlags::WRITEBACK) {
            Some(Obstacle::Writeback)
        } else if self.frames.has(pfn, PageFlags::PINNED) {
            Some(Obstacle::Pinned)
        } else {
            None
        }
    }

    /// Whether a run of this mode waits for what it found, rather than leave the page where it is. Direct
    /// compaction never sleeps on a page's lock (`PF_MEMALLOC`).
    #[must_use]
    pub fn migration_waits(obstacle: Obstacle, mode: MigrateMode, direct_compaction: bool) -> bool {
        match obstacle {
            Obstacle::Gone | Obstacle::Pinned => false,
            Obstacle::Locked => mode != MigrateMode::Async && !direct_compaction,
            Obstacle::Writeback => mode == MigrateMode::Sync,
        }
    }

    /// Moves an isolated page to the isolated block `to` of its size. Its place on the LRU is at its
    /// list's head again, by way of the CPU's batch; the old frame is freed. Returns whether the page had
    /// been moved before.
    ///
    /// # Errors
    /// What keeps the page where it is; `to` is as it was. An abandoned page has been freed.
    ///
    /// # Panics
    /// If the page is not isolated, or `to` is not.
    #[doc(alias = "migrate_page_states")]
    #[doc(alias = "migrate_page_move_mapping")]
    #[doc(alias = "move_to_new_page")]
    pub fn migrate_page(&mut self, from: Pfn, to: Pfn, cpu: CpuId) -> Result<bool, Obstacle> {
        let order = self.frames.order(from);
        assert_eq!(self.frames.state(to), State::Isolated, "{to} is not isolated");
        assert_eq!(self.frames.order(to), order, "{to} is of another size");
        self.work.pfns_scanned += 1;
        if let Some(obstacle) = self.migration_obstacle(from) {
            if obstacle == Obstacle::Gone {
                self.free_abandoned(from, cpu);
            }
            return Err(obstacle);
        }
        let has_ops = self.frames.has(from, PageFlags::MOVABLE_OPS);
        let owner = self.frames.owner(from);
        if !has_ops {
            self.account_isolated(from, -1);
        }
        let (was_moved, dirty) = if has_ops {
            (false, false)
        } else if let Some(place) = self.place_of(from) {
            self.move_file_entries(place, from, to)
        } else {
            self.move_anon_entries(from, to)
        };
        self.frames.set(to, State::Allocated, order, Migratetype::Movable);
        self.frames.set_movable(to, true);
        self.frames.set_owner(to, owner);
        let kept = [
            PageFlags::ACTIVE,
            PageFlags::REFERENCED,
            PageFlags::UNEVICTABLE,
            PageFlags::ANON,
            PageFlags::WORKINGSET,
            PageFlags::DIRTY,
            PageFlags::SWAPCACHE,
            PageFlags::RECLAIM,
            PageFlags::READAHEAD,
            PageFlags::MOVABLE_OPS,
        ];
        for flag in kept {
            if self.frames.has(from, flag) {
                self.frames.set_flags(to, flag);
            }
        }
        if dirty {
            self.frames.set_flags(to, PageFlags::DIRTY);
        }
        self.work.pages_copied += u64::from(order.pages());
        self.work.pages_moved += 1;
        if !has_ops {
            self.lru_cache_add(to, cpu);
        }
        self.free_page(from, cpu);
        Ok(was_moved)
    }

    /// The entry that maps the new frame, and whether what the old one knew of writes goes to the page.
    #[doc(alias = "remove_migration_pte")]
    fn moved_entry(&self, pte: Pte, to: Pfn) -> (Pte, bool) {
        let mut bits = Pte::MOVED;
        bits |= if pte.has(Pte::WRITE) { Pte::WRITE } else { 0 };
        if self.policy.compaction.keeps_accessed {
            bits |= if pte.has(Pte::ACCESSED) { Pte::ACCESSED } else { 0 };
            bits |= if pte.has(Pte::DIRTY) { Pte::DIRTY } else { 0 };
        }
        let entry = Pte::page(to, bits);
        // The page takes its last user along (`page_cpupid_xchg_last`, migrate_page_copy).
        let entry = pte.last_node().map_or(entry, |node| entry.with_last_node(node));
        (entry, pte.has(Pte::DIRTY) && !self.policy.compaction.keeps_accessed)
    }

    /// Makes entries and slots that name an anonymous page name its new frame. Returns whether it had been
    /// moved before, and whether the page is dirty by what entries knew.
    fn move_anon_entries(&mut self, from: Pfn, to: Pfn) -> (bool, bool) {
        let pages = self.frames.order(from).pages();
        let vpn = self.vpn_of(from);
        if let Some(slot) = self.slot_of(from) {
            for i in 0..pages {
                self.replace_cached(Slot(slot.0 + i), to + i);
            }
        }
        self.lru.deferred_split.replace(from, to);
        let Some(vpn) = vpn else { return (false, false) };
        // Once to put entries of migration in, once to put the new page in.
        self.work.rmap_walks += 2;
        let (mut was_moved, mut is_dirty, mut mapped, mut huge) = (false, false, 0, 0);
        if let Pmd::Huge(pte) = self.spaces.table.pmd(vpn) {
            if pte.pfn() == Some(from) {
                let (entry, dirty) = self.moved_entry(pte, to);
                self.spaces.table.units[vpn.unit()].pmd = Pmd::Huge(entry);
                self.work.ptes_scanned += 1;
                (was_moved, is_dirty) = (pte.has(Pte::MOVED), dirty);
                (mapped, huge) = (u64::from(HUGE_ORDER.pages()), 1);
            }
        } else {
            self.work.ptes_scanned += u64::from(pages);
            for i in 0..pages {
                let at = Vpn(vpn.0 + i);
                let pte = self.spaces.table.pte(at);
                if pte.pfn() != Some(from + i) {
                    continue;
                }
                let (entry, dirty) = self.moved_entry(pte, to + i);
                self.spaces.table.set_pte(at, entry);
                was_moved |= pte.has(Pte::MOVED);
                is_dirty |= dirty;
                mapped += 1;
            }
        }
        let (old, new) = (self.lruvec_of(from), self.lruvec_of(to));
        for (lruvec, sign) in [(old, -1), (new, 1)] {
            let stats = &mut self.lru.lruvecs[lruvec].stats;
            stats.nr_anon_mapped = stats.nr_anon_mapped.wrapping_add_signed(sign * mapped as i64);
            stats.nr_anon_huge = stats.nr_anon_huge.wrapping_add_signed(sign * huge);
        }
        (was_moved, is_dirty)
    }

    /// Likewise for a page of a file: its place in the page cache, and every entry that maps it.
    fn move_file_entries(&mut self, owner: u32, from: Pfn, to: Pfn) -> (bool, bool) {
        let is_mapped = self.files.mapcount(owner) > 0;
        let places = if is_mapped { self.file_places(from) } else { Vec::new() };
        self.work.rmap_walks += 2 * u64::from(is_mapped);
        for vpn in places {
            let pte = self.spaces.table.pte(vpn);
            // What was written through the entry is dirty in the cache already: it is so from the fault on.
            let (entry, _) = self.moved_entry(pte, to);
            self.spaces.table.set_pte(vpn, entry);
            self.work.ptes_scanned += 1;
        }
        if is_mapped {
            let (old, new) = (self.lruvec_of(from), self.lruvec_of(to));
            self.lru.lruvecs[old].stats.nr_file_mapped -= 1;
            self.lru.lruvecs[new].stats.nr_file_mapped += 1;
        }
        if self.files.is_dirty(owner) {
            let (old, new) = (self.lruvec_of(from), self.lruvec_of(to));
            self.lru.lruvecs[old].stats.nr_dirty -= 1;
            self.lru.lruvecs[new].stats.nr_dirty += 1;
        }
        (self.files.replace(owner, to), false)
    }
}
