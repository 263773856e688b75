//! The page cache: which page of which file is in memory, and which of them are to be written.
//!
//! Models: mm/filemap.c, the page-cache tree (`address_space`, lib/radix-tree.c and lib/xarray.c) with its
//! shadows, tags of dirty pages, v4.4 and v6.12.
//! Departs: pages of a cache are all of order 0. Visible as: on file systems with large folios files take
//! more LRU entries than there.
//!
//! Files share one flat space of places for pages, in chunks of 64 that a file gets where it has pages: as
//! many as a node of its tree holds.
//! A frame's owner is its place, so that reclaim finds the file from the frame. How often a page is mapped
//! stands with it; [`crate::rmap`] finds where.

mod dirty;
mod nodes;

pub use nodes::NODE_ENTRIES;

use crate::anon::NOBODY;
use crate::frame::{PageFlags, State};
use crate::memory::Memory;
use crate::page_table::Slot;
use crate::slab::{CacheId, Object};
use crate::types::{CpuId, Pfn};
use crate::vmstat::Vm;
use crate::warm::warm;
use dirty::DirtyFiles;
use nodes::Node;
use smallvec::SmallVec;
use std_alloc::collections::{BTreeMap, BTreeSet};
use std_alloc::vec;
use std_alloc::vec::Vec;

/// Pages of a chunk.
const CHUNK: usize = NODE_ENTRIES;
/// A chunk has room for as many pages, however few it holds.
const ENTRIES_MIN: usize = 8;
/// No chunk.
const NIL: u32 = u32::MAX;
/// An entry that is a page: the frame's number is in the low 32 bits, above it how often it is mapped.
const PAGE_MARK: u64 = 1 << 63;
/// One entry of a page table that maps a page.
const MAPPED_ONE: u64 = 1 << 32;
/// Entries that map a page, in [`MAPPED_ONE`]: 30 bits.
const MAPPED_BITS: u64 = ((1 << 30) - 1) << 32;
/// An entry that is a shadow; with [`PAGE_MARK`], one that names a slot of swap.
const SHADOW_MARK: u64 = 1 << 62;
const SWAP_MARK: u64 = PAGE_MARK | SHADOW_MARK;

/// Names a file that has pages, or could have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FileId(pub u32);

/// What the cache knows of a page of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CachedPage {
    /// It is in memory.
    Page(Pfn),
    /// It was, and this was noted when it went.
    Shadow(u64),
    /// It is in swap.
    Swapped(Slot),
    /// Nothing.
    None,
}

#[derive(Clone, Debug)]
struct Chunk {
    /// No longer than needed: most files are small.
    entries: Vec<u64>,
    /// A bit for each dirty page.
    dirty: u64,
    /// A bit for each page that was migrated since it came.
    moved: u64,
    file: u32,
    /// Which chunk of the file it is.
    number: u32,
    /// Entries that are pages or shadows.
    used: u8,
    node: Node,
    buffers: nodes::Buffers,
}

impl Chunk {
    fn held(&self, at: usize) -> CachedPage {
        decode(self.entries.get(at).copied().unwrap_or(0))
    }
}

#[derive(Clone, Debug, Default)]
struct FilePages {
    /// Those of a small file stand in place: it has one or two.
    chunks: SmallVec<[u32; 4]>,
    nr_pages: u64,
    nr_dirty: u64,
}

/// All files' pages.
#[doc(alias = "address_space")]
#[derive(Clone, Debug, Default)]
pub struct PageCache {
    files: Vec<FilePages>,
    free_files: Vec<u32>,
    chunks: Vec<Chunk>,
    free_chunks: Vec<u32>,
    nr_pages: u64,
    nr_dirty: u64,
    /// Files with dirty pages.
    dirty_files: DirtyFiles,
    nr_dirtied: u64,
    nr_written: u64,
    /// Chunks whose nodes hold nothing but shadows, by when that began.
    shadow_nodes: BTreeMap<u64, u32>,
    shadow_clock: u64,
    /// Objects whose page or node went.
    released: Vec<(CacheId, Object)>,
    /// The places of pages that go to swap, by frame.
    swap_backed: BTreeMap<u32, u32>,
    /// The places of pages that never leave memory.
    kept: BTreeSet<u32>,
}

impl PageCache {
    /// Pages in memory (`NR_FILE_PAGES`, the swap cache's apart).
    #[must_use]
    pub const fn nr_pages(&self) -> u64 {
        self.nr_pages
    }

    /// Pages that are to be written (`NR_FILE_DIRTY`).
    #[must_use]
    pub const fn nr_dirty(&self) -> u64 {
        self.nr_dirty
    }

    /// Pages that became dirty so far (`NR_DIRTIED`).
    #[must_use]
    pub const fn nr_dirtied(&self) -> u64 {
        self.nr_dirtied
    }

    /// Pages that were given to a device so far (`NR_WRITTEN`).
    #[must_use]
    pub const fn nr_written(&self) -> u64 {
        self.nr_written
    }

    /// A file without pages.
    pub fn open(&mut self) -> FileId {
        if let Some(file) = self.free_files.pop() {
            return FileId(file);
        }
        self.files.push(FilePages::default());
        FileId(self.files.len() as u32 - 1)
    }

    /// Pages of a file that are in memory, and how many of them are dirty.
    #[must_use]
    pub fn counts(&self, file: FileId) -> (u64, u64) {
        let file = &self.files[file.0 as usize];
        (file.nr_pages, file.nr_dirty)
    }

    /// Files with dirty pages, in the order of their numbers.
    pub fn dirty_files(&self) -> impl Iterator<Item = FileId> + '_ {
        self.dirty_files.iter()
    }

    fn place(&self, file: FileId, index: u64) -> Option<(usize, usize)> {
        let number = (index / CHUNK as u64) as usize;
        let chunk = self.files[file.0 as usize].chunks.get(number).copied()?;
        if chunk == NIL { None } else { Some((chunk as usize, index as usize % CHUNK)) }
    }

    /// What is known of page `index` of a file.
    #[inline]
    #[must_use]
    pub fn get(&self, file: FileId, index: u64) -> CachedPage {
        let Some((chunk, at)) = self.place(file, index) else { return CachedPage::None };
        self.chunks[chunk].held(at)
    }

    /// The file and page that a frame's owner names.
    #[must_use]
    pub fn page_of(&self, owner: u32) -> Option<(FileId, u64)> {
        let chunk = self.chunks.get(owner as usize / CHUNK)?;
        let index = u64::from(chunk.number) * CHUNK as u64 + u64::from(owner) % CHUNK as u64;
        if chunk.file == NIL { None } else { Some((FileId(chunk.file), index)) }
    }

    /// What lies where a frame's owner names, without a look at the file.
    fn held_at(&self, owner: u32) -> CachedPage {
        let chunk = self.chunks.get(owner as usize / CHUNK);
        chunk.map_or(CachedPage::None, |chunk| chunk.held(owner as usize % CHUNK))
    }

    /// Asks for what a frame's owner names.
    pub(crate) fn warm(&self, owner: u32) {
        let chunk = self.chunks.get(owner as usize / CHUNK);
        if let Some(entry) = chunk.and_then(|chunk| chunk.entries.get(owner as usize % CHUNK)) {
            warm(entry);
        }
    }

    /// Where the dirty pages end of which the first is page `first` of a file: after `most` of them at the latest.
    #[must_use]
    pub fn end_of_dirty(&self, file: FileId, first: u64, most: u64) -> u64 {
        let end = first + most;
        let mut index = first;
        while index < end {
            let Some((chunk, at)) = self.place(file, index) else { break };
            let dirty = u64::from((!(self.chunks[chunk].dirty >> at)).trailing_zeros());
            index += dirty;
            if dirty < (CHUNK - at) as u64 {
                break;
            }
        }
        index.min(end)
    }

    fn place_to_fill(&mut self, file: FileId, index: u64) -> (usize, usize) {
        let number = (index / CHUNK as u64) as usize;
        let chunks = &mut self.files[file.0 as usize].chunks;
        if chunks.len() <= number {
            chunks.resize(number + 1, NIL);
        }
        if chunks[number] == NIL {
            let chunk = self.free_chunks.pop().unwrap_or_else(|| {
                self.chunks.push(Chunk {
                    entries: Vec::new(),
                    dirty: 0,
                    moved: 0,
                    file: NIL,
                    number: 0,
                    used: 0,
                    node: Node::EMPTY,
                    buffers: Vec::new(),
                });
                self.chunks.len() as u32 - 1
            });
            let this = &mut self.chunks[chunk as usize];
            (this.file, this.number) = (file.0, number as u32);
            self.files[file.0 as usize].chunks[number] = chunk;
        }
        let (chunk, at) =
            (self.files[file.0 as usize].chunks[number] as usize, index as usize % CHUNK);
        let entries = &mut self.chunks[chunk].entries;
        if entries.len() <= at {
            entries.resize((at + 1).next_power_of_two().max(ENTRIES_MIN), 0);
        }
        (chunk, at)
    }

    /// Notes a page that came into memory. Returns its owner, and the shadow that lay there.
    pub(crate) fn insert(&mut self, file: FileId, index: u64, pfn: Pfn) -> (u32, Option<u64>) {
        let (chunk, at) = self.place_to_fill(file, index);
        let this = &mut self.chunks[chunk];
        let before = decode(this.entries[at]);
        assert!(!matches!(before, CachedPage::Page(_)), "page {index} is in memory already");
        this.used += u8::from(before == CachedPage::None);
        this.entries[at] = PAGE_MARK | u64::from(pfn.0);
        self.note_entry(chunk, at, before, CachedPage::Page(pfn));
        self.nr_pages += 1;
        self.files[file.0 as usize].nr_pages += 1;
        let shadow = if let CachedPage::Shadow(shadow) = before { Some(shadow) } else { None };
        ((chunk * CHUNK + at) as u32, shadow)
    }

    /// Notes a page that came into memory and goes to swap when it leaves it.
    pub(crate) fn insert_swap_backed(&mut self, file: FileId, index: u64, pfn: Pfn) {
        let (place, _) = self.insert(file, index, pfn);
        self.swap_backed.insert(pfn.0, place);
    }

    /// The place of a page that goes to swap.
    pub(crate) fn swap_backed_place(&self, pfn: Pfn) -> Option<u32> {
        self.swap_backed.get(&pfn.0).copied()
    }

    /// A page never leaves memory from now on.
    pub(crate) fn keep(&mut self, place: u32) {
        self.kept.insert(place);
    }

    /// Whether it does not.
    #[inline]
    pub(crate) fn is_kept(&self, place: u32) -> bool {
        !self.kept.is_empty() && self.kept.contains(&place)
    }

    /// The slots of pages that are in swap, for those who check.
    pub(crate) fn swapped(&self) -> impl Iterator<Item = Slot> {
        let entries = self.chunks.iter().flat_map(|chunk| chunk.entries.iter());
        entries.filter_map(|&entry| match decode(entry) {
            CachedPage::Swapped(slot) => Some(slot),
            _ => None,
        })
    }

    /// A page goes to a slot of swap, which stays in its place.
    ///
    /// # Panics
    /// If it is not one that goes there.
    pub(crate) fn swap_out(&mut self, pfn: Pfn, slot: Slot) {
        let place = self.swap_backed_place(pfn).expect("a page that goes to swap");
        self.evict_to(place, CachedPage::Swapped(slot));
    }

    /// How many entries of page tables map the page whose owner this is (`page_mapcount`).
    #[inline]
    #[must_use]
    pub fn mapcount(&self, owner: u32) -> u32 {
        let entry = self.chunks[owner as usize / CHUNK].entries[owner as usize % CHUNK];
        debug_assert!(entry & PAGE_MARK != 0, "only pages are mapped");
        ((entry & MAPPED_BITS) / MAPPED_ONE) as u32
    }

    /// One entry more maps a page. Whether it is the first.
    #[inline]
    pub(crate) fn inc_mapcount(&mut self, owner: u32) -> bool {
        let entry = &mut self.chunks[owner as usize / CHUNK].entries[owner as usize % CHUNK];
        assert!(*entry & MAPPED_BITS != MAPPED_BITS, "a page is mapped fewer than 2^30 times");
        *entry += MAPPED_ONE;
        *entry & MAPPED_BITS == MAPPED_ONE
    }

    /// One entry less maps a page. Whether it was the last.
    #[inline]
    pub(crate) fn dec_mapcount(&mut self, owner: u32) -> bool {
        let entry = &mut self.chunks[owner as usize / CHUNK].entries[owner as usize % CHUNK];
        assert!(*entry & MAPPED_BITS != 0, "a page is unmapped as often as it was mapped");
        *entry -= MAPPED_ONE;
        *entry & MAPPED_BITS == 0
    }

    /// Whether a page is to be written.
    #[must_use]
    pub fn is_dirty(&self, owner: u32) -> bool {
        self.chunks[owner as usize / CHUNK].dirty >> (owner as usize % CHUNK) & 1 != 0
    }

    /// A page is in another frame from now on. Whether it was moved before.
    pub(crate) fn replace(&mut self, owner: u32, pfn: Pfn) -> bool {
        let (chunk, at) = (owner as usize / CHUNK, owner as usize % CHUNK);
        let this = &mut self.chunks[chunk];
        let CachedPage::Page(from) = decode(this.entries[at]) else {
            panic!("only pages are moved")
        };
        if self.swap_backed.remove(&from.0).is_some() {
            self.swap_backed.insert(pfn.0, owner);
        }
        this.entries[at] = this.entries[at] & !u64::from(u32::MAX) | u64::from(pfn.0);
        let was_moved = this.moved >> at & 1 != 0;
        this.moved |= 1 << at;
        was_moved
    }

    /// A page went out of memory; `shadow` stays in its place. Its chunk goes with its last entry.
    fn evict(&mut self, owner: u32, shadow: Option<u64>) {
        self.evict_to(owner, shadow.map_or(CachedPage::None, CachedPage::Shadow));
    }

    /// The same; what is known of it from then on is `after`.
    fn evict_to(&mut self, owner: u32, after: CachedPage) {
        let (chunk, at) = (owner as usize / CHUNK, owner as usize % CHUNK);
        self.clear_dirty(owner);
        let this = &mut self.chunks[chunk];
        assert!(matches!(decode(this.entries[at]), CachedPage::Page(_)), "only pages are evicted");
        assert!(this.entries[at] & MAPPED_BITS == 0, "a page is unmapped before it goes");
        let before = decode(this.entries[at]);
        if let CachedPage::Page(pfn) = before {
            self.swap_backed.remove(&pfn.0);
            self.kept.remove(&owner);
        }
        this.entries[at] = match after {
            CachedPage::Page(_) => unreachable!("it goes"),
            CachedPage::Shadow(shadow) => SHADOW_MARK | shadow,
            CachedPage::Swapped(slot) => SWAP_MARK | u64::from(slot.0),
            CachedPage::None => 0,
        };
        this.moved &= !(1 << at);
        this.used -= u8::from(after == CachedPage::None);
        self.note_entry(chunk, at, before, after);
        let this = &self.chunks[chunk];
        let (file, number, empty) = (this.file as usize, this.number as usize, this.used == 0);
        self.nr_pages -= 1;
        self.files[file].nr_pages -= 1;
        if empty {
            self.release(chunk, file, number);
        }
    }

    fn release(&mut self, chunk: usize, file: usize, number: usize) {
        self.chunks[chunk].file = NIL;
        self.files[file].chunks[number] = NIL;
        self.free_chunks.push(chunk as u32);
    }

    /// Marks a page as one to be written. Whether it was not yet.
    fn set_dirty(&mut self, owner: u32) -> bool {
        let (chunk, at) = (owner as usize / CHUNK, owner as usize % CHUNK);
        let this = &mut self.chunks[chunk];
        let new = this.dirty >> at & 1 == 0;
        this.dirty |= 1 << at;
        if new {
            self.nr_dirty += 1;
            self.nr_dirtied += 1;
            let file = this.file;
            let nr_dirty = &mut self.files[file as usize].nr_dirty;
            *nr_dirty += 1;
            if *nr_dirty == 1 {
                self.dirty_files.insert(file);
            }
        }
        new
    }

    /// A page need not be written any more. Whether it was to be.
    fn clear_dirty(&mut self, owner: u32) -> bool {
        let (chunk, at) = (owner as usize / CHUNK, owner as usize % CHUNK);
        let this = &mut self.chunks[chunk];
        let was = this.dirty >> at & 1 != 0;
        this.dirty &= !(1 << at);
        if was {
            self.nr_dirty -= 1;
            let file = this.file;
            let nr_dirty = &mut self.files[file as usize].nr_dirty;
            *nr_dirty -= 1;
            if *nr_dirty == 0 {
                self.dirty_files.remove(file);
            }
        }
        was
    }

    /// The first dirty page of a file from `index` on.
    #[must_use]
    pub fn next_dirty(&self, file: FileId, index: u64) -> Option<u64> {
        let this = &self.files[file.0 as usize];
        if this.nr_dirty == 0 {
            return None;
        }
        let first = index as usize / CHUNK;
        for (number, &chunk) in this.chunks.iter().enumerate().skip(first) {
            if chunk == NIL {
                continue;
            }
            let from = if number == first { index as usize % CHUNK } else { 0 };
            let dirty = self.chunks[chunk as usize].dirty & u64::MAX << from;
            if dirty != 0 {
                return Some((number * CHUNK) as u64 + u64::from(dirty.trailing_zeros()));
            }
        }
        None
    }

    /// The first page of a file in memory from `index` on.
    #[must_use]
    pub fn next_page(&self, file: FileId, index: u64) -> Option<(u64, Pfn)> {
        let this = &self.files[file.0 as usize];
        let first = index as usize / CHUNK;
        for (number, &chunk) in this.chunks.iter().enumerate().skip(first) {
            if chunk == NIL {
                continue;
            }
            let from = if number == first { index as usize % CHUNK } else { 0 };
            let entries = &self.chunks[chunk as usize].entries;
            for (at, &entry) in entries.iter().enumerate().skip(from) {
                if let CachedPage::Page(pfn) = decode(entry) {
                    return Some(((number * CHUNK + at) as u64, pfn));
                }
            }
        }
        None
    }

    /// Forgets the shadows of a file's pages from `from` on, where truncation left no pages.
    fn forget_shadows(&mut self, file: FileId, from: u64) {
        for number in from as usize / CHUNK..self.files[file.0 as usize].chunks.len() {
            let chunk = self.files[file.0 as usize].chunks[number];
            if chunk == NIL {
                continue;
            }
            let first = (from as usize).saturating_sub(number * CHUNK);
            for at in first..self.chunks[chunk as usize].entries.len() {
                let this = &mut self.chunks[chunk as usize];
                let before = decode(this.entries[at]);
                if let CachedPage::Shadow(_) = before {
                    this.entries[at] = 0;
                    this.used -= 1;
                    self.note_entry(chunk as usize, at, before, CachedPage::None);
                }
            }
            if self.chunks[chunk as usize].used == 0 {
                self.release(chunk as usize, file.0 as usize, number);
            }
        }
    }

    /// Forgets the shadows of a file that has no pages, and lets its name be given again.
    ///
    /// # Panics
    /// If it still has pages.
    pub fn close(&mut self, file: FileId) {
        let this = core::mem::take(&mut self.files[file.0 as usize]);
        assert_eq!(this.nr_pages, 0, "a file that goes has no pages in memory");
        for chunk in this.chunks.into_iter().filter(|&chunk| chunk != NIL) {
            self.release_chunk_objects(chunk as usize);
            let this = &mut self.chunks[chunk as usize];
            this.entries.clear();
            (this.used, this.file) = (0, NIL);
            self.free_chunks.push(chunk);
        }
        self.free_files.push(file.0);
    }

    /// Counts everything anew, for those who check.
    pub(crate) fn audit(&self) -> Result<Vec<(u32, Pfn)>, &'static str> {
        let mut pages = vec![];
        let (mut nr_dirty, mut nr_used) = (0, 0);
        for (number, chunk) in self.chunks.iter().enumerate() {
            let mut used = 0;
            for (at, &entry) in chunk.entries.iter().enumerate() {
                let is_dirty = chunk.dirty >> at & 1 != 0;
                nr_dirty += u64::from(is_dirty);
                match decode(entry) {
                    CachedPage::Page(pfn) => {
                        pages.push(((number * CHUNK + at) as u32, pfn));
                        used += 1;
                    }
                    CachedPage::Shadow(_) | CachedPage::Swapped(_) if !is_dirty => used += 1,
                    CachedPage::None if !is_dirty => {}
                    _ => return Err("what is dirty is in memory"),
                }
            }
            if used != chunk.used {
                return Err("a chunk counts its entries");
            }
            nr_used += u64::from(used);
        }
        if nr_used < self.nr_pages || pages.len() as u64 != self.nr_pages {
            return Err("the cache counts its pages");
        }
        if nr_dirty != self.nr_dirty {
            return Err("the cache counts its dirty pages");
        }
        let there: BTreeMap<u32, Pfn> = pages.iter().copied().collect();
        if self.swap_backed.iter().any(|(&pfn, place)| there.get(place) != Some(&Pfn(pfn))) {
            return Err("the cache knows where its pages are that go to swap");
        }
        if self.kept.iter().any(|place| !there.contains_key(place)) {
            return Err("pages that never leave memory are there");
        }
        let dirty = self.files.iter().zip(0..).filter(|(file, _)| file.nr_dirty > 0);
        if !dirty.map(|(_, number)| FileId(number)).eq(self.dirty_files.iter()) {
            return Err("the cache knows which files are dirty");
        }
        self.audit_nodes()?;
        Ok(pages)
    }
}

const fn decode(entry: u64) -> CachedPage {
    if entry & SWAP_MARK == SWAP_MARK {
        CachedPage::Swapped(Slot(entry as u32))
    } else if entry & PAGE_MARK != 0 {
        CachedPage::Page(Pfn(entry as u32))
    } else if entry & SHADOW_MARK != 0 {
        CachedPage::Shadow(entry & !SHADOW_MARK)
    } else {
        CachedPage::None
    }
}

impl Memory {
    /// Puts a fresh page into the cache as page `index` of a file, on its way to the LRU; locked if it is
    /// still to be read.
    ///
    /// # Panics
    /// If there is one already.
    pub fn add_to_page_cache(
        &mut self,
        file: FileId,
        index: u64,
        pfn: Pfn,
        to_be_read: bool,
        cpu: CpuId,
    ) {
        let (owner, shadow) = self.files.insert(file, index, pfn);
        if to_be_read {
            self.frames.set_flags(pfn, PageFlags::LOCKED);
        }
        self.count_alloc(pfn, 1);
        self.add_file_page(pfn, owner, shadow, cpu);
    }

    /// As [`Self::add_to_page_cache`] during a fault: with generations, what comes in then is of the
    /// youngest (`lru_gen_in_fault`, 6.1).
    ///
    /// # Panics
    /// As [`Self::add_to_page_cache`].
    pub fn add_to_page_cache_in_fault(
        &mut self,
        file: FileId,
        index: u64,
        pfn: Pfn,
        to_be_read: bool,
        cpu: CpuId,
    ) {
        if self.faults_enter_youngest() {
            self.frames.set_flags(pfn, PageFlags::ACTIVE);
        }
        self.add_to_page_cache(file, index, pfn, to_be_read, cpu);
    }

    /// The file and page that a frame holds, if it is one of the cache's.
    #[must_use]
    pub fn file_page_at(&self, pfn: Pfn) -> Option<(FileId, u64)> {
        if self.frames.state(pfn) != State::Allocated {
            return None;
        }
        let owner = self.place_of(pfn)?;
        if self.files.held_at(owner) == CachedPage::Page(pfn) {
            self.files.page_of(owner)
        } else {
            None
        }
    }

    /// The page has been read.
    pub fn end_read(&mut self, pfn: Pfn) {
        self.frames.clear_flags(pfn, PageFlags::LOCKED);
    }

    /// Marks a page: whoever reads it reads on.
    pub fn set_readahead(&mut self, pfn: Pfn) {
        self.frames.set_flags(pfn, PageFlags::READAHEAD);
    }

    /// Whether a page bore that mark, which it loses.
    pub fn test_clear_readahead(&mut self, pfn: Pfn) -> bool {
        self.frames.test_clear(pfn, PageFlags::READAHEAD)
    }

    /// Marks a page of a file to be written. Whether it was not yet. Reclaim no longer waits for it
    /// (`set_page_dirty` clears the mark).
    pub fn set_page_dirty(&mut self, pfn: Pfn) -> bool {
        let owner = self.frames.owner(pfn);
        self.frames.set_flags(pfn, PageFlags::DIRTY);
        self.frames.clear_flags(pfn, PageFlags::RECLAIM);
        let is_new = self.files.set_dirty(owner);
        let lruvec = self.lruvec_of(pfn);
        self.lru.lruvecs[lruvec].stats.nr_dirty += u64::from(is_new);
        is_new
    }

    /// Begins to write a dirty page of a file (`clear_page_dirty_for_io`, `set_page_writeback`): the
    /// entries that map it may not be written until a fault has made it dirty again. Whether it is to be
    /// written at all: it may be under way already.
    pub fn begin_page_writeback(&mut self, pfn: Pfn) -> bool {
        if self.frames.has(pfn, PageFlags::WRITEBACK) {
            return false;
        }
        let owner = self.frames.owner(pfn);
        if self.files.is_dirty(owner) && self.page_mkclean(pfn) {
            self.set_page_dirty(pfn);
        }
        if !self.files.clear_dirty(owner) {
            return false;
        }
        let lruvec = self.lruvec_of(pfn);
        self.lru.lruvecs[lruvec].stats.nr_dirty -= 1;
        self.files.nr_written += 1;
        self.vm.add(Vm::PgPgOut, 4);
        self.begin_file_writeback(pfn);
        true
    }

    /// A file system does not write a dirty page that reclaim gave to it (`redirty_page_for_writepage`): it stays dirty, and
    /// is not the next to be reclaimed.
    #[doc(alias = "redirty_page_for_writepage")]
    pub fn redirty_page(&mut self, pfn: Pfn) {
        self.frames.clear_flags(pfn, PageFlags::RECLAIM);
    }

    /// Notes what reclaim freed: its shadows stay where the pages were.
    pub fn note_freed_files(&mut self, freed: &[(u32, u64)]) {
        for &(owner, shadow) in freed {
            self.files.evict(owner, Some(shadow));
        }
    }

    /// Takes a page of a file out of memory, as truncation does, and out of all page tables before. Whether
    /// it went: one that is being read or written stays.
    pub fn truncate_page(&mut self, pfn: Pfn, cpu: CpuId) -> bool {
        let users = self.unmap_file_page(pfn);
        self.flush_entries(users, 1);
        let busy = PageFlags::WRITEBACK | PageFlags::LOCKED;
        if self.frames.has(pfn, busy) {
            return false;
        }
        if self.frames.has(pfn, PageFlags::BATCHED) {
            self.lru_add_drain_all();
        }
        let owner = self.frames.owner(pfn);
        self.frames.clear_flags(pfn, PageFlags::DIRTY);
        let was_dirty = self.files.clear_dirty(owner);
        let lruvec = self.lruvec_of(pfn);
        self.lru.lruvecs[lruvec].stats.nr_dirty -= u64::from(was_dirty);
        if self.frames.has(pfn, PageFlags::ISOLATED) {
            // Whoever isolated it frees it.
            self.frames.set_owner(pfn, NOBODY);
        } else {
            assert!(self.remove_file_page(pfn, cpu), "{pfn} is on a list or on none");
        }
        self.files.evict(owner, None);
        self.work.pages_reclaimed += 1;
        self.release_objects(cpu);
        true
    }

    /// Forgets what is remembered of a file's pages from `from` on that went before. Returns how many pages that freed.
    pub fn forget_shadows(&mut self, file: FileId, from: u64, cpu: CpuId) -> u64 {
        self.files.forget_shadows(file, from);
        self.release_objects(cpu)
    }

    /// Drops a clean page that nobody uses, holds or maps, as `drop_caches` does. Whether it went.
    pub fn invalidate_page(&mut self, pfn: Pfn, cpu: CpuId) -> bool {
        let owner = self.frames.owner(pfn);
        if self.frames.has(pfn, PageFlags::DIRTY | PageFlags::PINNED)
            || self.files.is_kept(owner)
            || self.files.mapcount(owner) > 0
        {
            return false;
        }
        self.truncate_page(pfn, cpu)
    }
}
