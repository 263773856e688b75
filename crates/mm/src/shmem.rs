//! Files that are in memory alone: pages of ramfs never leave it, those of tmpfs go to swap.
//!
//! Models: fs/ramfs/inode.c (`mapping_set_unevictable`), mm/shmem.c (`shmem_add_to_page_cache`, `shmem_writepage`,
//! `shmem_swapin_folio`), v3.3, v4.4 and v6.12.
//! Departs: files of either are filled once and then only read. Visible as: nothing, for the programs of a guest, which is
//! what they are here for.
//!
//! A page of tmpfs is on the anonymous lists ([`PageFlags::ANON`]), and nobody's anonymous memory: it names no owner, and the
//! page cache knows the frames of such pages. On its way to swap it leaves its file, which keeps the slot in its place, and
//! is a page of the swap cache like any other.

use crate::anon::NOBODY;
use crate::filemap::{CachedPage, FileId};
use crate::frame::PageFlags;
use crate::memory::Memory;
use crate::page_table::Slot;
use crate::swap::CacheEntry;
use crate::types::{CpuId, Pfn};

impl Memory {
    /// Makes a fresh page that has been filled page `index` of a file of ramfs. It begins on the lists as any file's does
    /// that was used once; reclaim takes it off them and leaves it alone.
    ///
    /// # Panics
    /// If there is one already.
    #[doc(alias = "mapping_set_unevictable")]
    pub fn add_to_ramfs(&mut self, file: FileId, index: u64, pfn: Pfn, cpu: CpuId) {
        self.frames.set_flags(pfn, PageFlags::REFERENCED);
        self.add_to_page_cache(file, index, pfn, false, cpu);
        self.files.keep(self.frames.owner(pfn));
    }

    /// Whether a page may never be reclaimed: somebody has locked it, or its file is in memory alone (`page_evictable`).
    #[doc(alias = "page_evictable")]
    pub(crate) fn is_unevictable(&self, pfn: Pfn) -> bool {
        self.frames.has(pfn, PageFlags::UNEVICTABLE)
            || !self.frames.has(pfn, PageFlags::ANON) && self.files.is_kept(self.frames.owner(pfn))
    }

    /// Makes a fresh page that has been filled page `index` of a file of tmpfs, which goes to swap. It begins as an
    /// inactive page that was used once.
    ///
    /// # Panics
    /// If there is one already.
    #[doc(alias = "shmem_add_to_page_cache")]
    pub fn add_to_tmpfs(&mut self, file: FileId, index: u64, pfn: Pfn, cpu: CpuId) {
        self.frames.set_owner(pfn, NOBODY);
        let flags = PageFlags::ANON | PageFlags::DIRTY | PageFlags::REFERENCED;
        self.frames.set_flags(pfn, flags);
        self.files.insert_swap_backed(file, index, pfn);
        self.count_alloc(pfn, 1);
        self.lru_cache_add(pfn, cpu);
    }

    /// The place in the page cache that a page of a file has.
    #[inline]
    pub(crate) fn place_of(&self, pfn: Pfn) -> Option<u32> {
        match self.frames.owner(pfn) {
            owner if !self.frames.has(pfn, PageFlags::ANON) => Some(owner),
            NOBODY => self.files.swap_backed_place(pfn),
            _ => None,
        }
    }

    /// Whether a page that is on the anonymous lists is a file's.
    #[inline]
    #[must_use]
    pub fn is_shmem(&self, pfn: Pfn) -> bool {
        self.frames.has(pfn, PageFlags::ANON) && self.place_of(pfn).is_some()
    }

    /// Moves a page that nobody maps from its file to the swap cache, to be written. Whether there was a slot.
    ///
    /// # Panics
    /// If it is no page of tmpfs.
    #[doc(alias = "shmem_writepage")]
    pub(crate) fn shmem_to_swap(&mut self, pfn: Pfn, cpu: CpuId) -> bool {
        let Some(slot) = self.add_to_swap_for_file(pfn, cpu) else { return false };
        self.files.swap_out(pfn, slot);
        true
    }

    /// Moves the copy of a slot, which has been read and is not being written, back to the file that names the slot.
    /// Nothing if the file's page is elsewhere by now.
    #[doc(alias = "shmem_swapin_folio")]
    pub fn shmem_from_swap(&mut self, file: FileId, index: u64, slot: Slot) {
        let CacheEntry::Page(pfn) = self.swap.cached(slot) else { return };
        let busy = PageFlags::LOCKED | PageFlags::WRITEBACK;
        if self.files.get(file, index) != CachedPage::Swapped(slot) || self.frames.has(pfn, busy) {
            return;
        }
        self.unmap_slot(slot, None);
        self.delete_from_swap_cache(pfn, None);
        self.frames.clear_flags(pfn, PageFlags::READAHEAD);
        self.frames.set_flags(pfn, PageFlags::DIRTY);
        self.files.insert_swap_backed(file, index, pfn);
    }
}
