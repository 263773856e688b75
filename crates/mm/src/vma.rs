//! Mappings: ranges of anonymous memory or of files, whose they are and what was advised about them.
//!
//! Models: `vm_area_struct`, mm/mmap.c and mm/madvise.c, v6.12, for private anonymous memory and for shared
//! mappings of files; `i_mmap` of a file, mm/interval_tree.c.
//! Departs: neighbours that have become alike are not merged, and no two ranges that `mmap` gives share a huge
//! page's place. Visible as: nothing, but that a small mapping has a place of its own.

use crate::filemap::FileId;
use crate::page_table::{PTRS_PER_TABLE, PageTable, Vpn};
use crate::types::MemPolicy;
use core::ops::Range;
use std_alloc::collections::BTreeMap;
use std_alloc::vec::Vec;

/// Whose memory it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ProcessId(pub u32);

/// What `madvise` said of huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HugeAdvice {
    /// Nothing.
    #[default]
    None,
    /// `MADV_HUGEPAGE`.
    Huge,
    /// `MADV_NOHUGEPAGE`.
    NoHuge,
}

/// What a mapping shows of a file; what is written there is written to the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileMapping {
    /// The file.
    pub file: FileId,
    /// Its page at [`Vma::origin`].
    pub first: u64,
    /// Whether it may be written.
    pub writable: bool,
    /// Faults that found no page, less pages that were found since (`mmap_miss`).
    pub(crate) nr_missed: u32,
}

/// One mapping.
#[doc(alias = "vm_area_struct")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vma {
    /// First page.
    pub start: Vpn,
    /// One past the last page.
    pub end: Vpn,
    /// Whose it is.
    pub task: ProcessId,
    /// What was advised.
    pub huge: HugeAdvice,
    /// Locked into memory.
    pub locked: bool,
    /// Where its pages come from.
    pub policy: MemPolicy,
    /// Where the range began that `mmap` gave: pages are numbered from here for interleaving.
    pub origin: Vpn,
    /// The file that it shows; none for anonymous memory.
    pub file: Option<FileMapping>,
    /// What swap read-ahead remembers: the last page read, the window, the hits.
    pub(crate) readahead: (Vpn, u32, u32),
}

impl Vma {
    /// Whether all 512 pages around `vpn` lie in the mapping.
    #[must_use]
    pub const fn holds_unit(&self, vpn: Vpn) -> bool {
        let start = vpn.unit_start().0;
        self.start.0 <= start && start + PTRS_PER_TABLE <= self.end.0
    }

    /// The page of the file that `vpn` shows.
    #[inline]
    #[must_use]
    pub fn file_page(&self, vpn: Vpn) -> Option<(FileId, u64)> {
        let mapping = self.file?;
        Some((mapping.file, mapping.first + u64::from(vpn.0 - self.origin.0)))
    }
}

/// A part of a file that some mapping shows: an entry of the file's `i_mmap`.
#[doc(alias = "i_mmap")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileRange {
    pub(crate) start: Vpn,
    pub(crate) end: Vpn,
    /// The file's page at `start`.
    pub(crate) first: u64,
}

impl FileRange {
    /// Where page `index` of the file is shown.
    #[inline]
    pub(crate) fn vpn_of(&self, index: u64) -> Option<Vpn> {
        let offset = index.checked_sub(self.first)?;
        if offset < u64::from(self.end.0 - self.start.0) {
            Some(Vpn(self.start.0 + offset as u32))
        } else {
            None
        }
    }
}

/// What a task has in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TaskPages {
    /// Anonymous pages mapped (`RssAnon`).
    pub anon: u64,
    /// Pages of files mapped (`RssFile`).
    pub file: u64,
    /// Pages in swap (`VmSwap`).
    pub swap: u64,
    /// Pages of page table (`VmPTE`).
    pub tables: u64,
}

/// Hits that read-ahead of a new mapping is said to have had (`SWAP_RA_HITS_INIT`).
const READAHEAD_HITS: u32 = 4;

/// Every task's mappings and page tables.
#[derive(Clone, Debug, Default)]
pub struct AddressSpaces {
    /// Mappings by their first page.
    vmas: BTreeMap<Vpn, Vma>,
    /// Ranges given back: first page and length.
    free: BTreeMap<u32, u32>,
    /// First page never given.
    next: u32,
    pub(crate) table: PageTable,
    pub(crate) tasks: Vec<TaskPages>,
    /// Policies of tasks that have one of their own.
    task_policies: BTreeMap<ProcessId, MemPolicy>,
    /// For each file by number, where it is mapped, in the order in which that was done.
    i_mmap: Vec<Vec<FileRange>>,
    /// Files that nobody maps any more and nobody was told of.
    unmapped_files: Vec<FileId>,
}

impl AddressSpaces {
    /// Gives a range of `pages` to a task.
    ///
    /// # Panics
    /// If all mappings together would pass 16 TiB.
    pub fn mmap(&mut self, task: ProcessId, pages: u32, policy: MemPolicy) -> Vpn {
        self.map(task, pages, 0, policy, None)
    }

    /// The same, beginning `offset` pages behind the place of a huge page.
    ///
    /// # Panics
    /// As [`Self::mmap`], and if a huge page has no such page.
    pub fn mmap_behind(
        &mut self,
        task: ProcessId,
        offset: u32,
        pages: u32,
        policy: MemPolicy,
    ) -> Vpn {
        assert!(offset < PTRS_PER_TABLE, "page {offset} of a huge page");
        self.map(task, pages, offset, policy, None)
    }

    /// Maps `pages` pages of a file from `first` on, shared with whoever maps them too.
    ///
    /// # Panics
    /// As [`Self::mmap`].
    pub fn mmap_file(
        &mut self,
        task: ProcessId,
        pages: u32,
        file: FileId,
        first: u64,
        writable: bool,
    ) -> Vpn {
        let mapping = FileMapping { file, first, writable, nr_missed: 0 };
        let start = self.map(task, pages, 0, MemPolicy::Default, Some(mapping));
        let number = file.0 as usize;
        if self.i_mmap.len() <= number {
            self.i_mmap.resize(number + 1, Vec::new());
        }
        self.i_mmap[number].push(FileRange { start, end: Vpn(start.0 + pages), first });
        start
    }

    fn map(
        &mut self,
        task: ProcessId,
        pages: u32,
        offset: u32,
        policy: MemPolicy,
        file: Option<FileMapping>,
    ) -> Vpn {
        assert!(pages > 0, "a mapping has pages");
        let room = offset.checked_add(pages).expect("mappings stay below 16 TiB");
        let room = room.next_multiple_of(PTRS_PER_TABLE);
        let fit = self.free.iter().find(|&(_, &len)| len >= room).map(|(&at, &len)| (at, len));
        let start = if let Some((at, len)) = fit {
            self.free.remove(&at);
            if len > room {
                self.free.insert(at + room, len - room);
            }
            at
        } else {
            let at = self.next;
            self.next = at.checked_add(room).expect("mappings stay below 16 TiB");
            self.table.grow(Vpn(self.next));
            at
        };
        if self.tasks.len() <= task.0 as usize {
            self.tasks.resize(task.0 as usize + 1, TaskPages::default());
        }
        let start = Vpn(start + offset);
        let vma = Vma {
            start,
            end: Vpn(start.0 + pages),
            task,
            // Huge pages of files are not there.
            huge: if file.is_some() { HugeAdvice::NoHuge } else { HugeAdvice::None },
            locked: false,
            policy,
            origin: start,
            file,
            readahead: (start, 0, READAHEAD_HITS),
        };
        self.vmas.insert(start, vma);
        start
    }

    /// The mapping that holds `vpn`.
    #[must_use]
    pub fn find(&self, vpn: Vpn) -> Option<&Vma> {
        self.vmas.range(..=vpn).next_back().map(|(_, vma)| vma).filter(|vma| vpn < vma.end)
    }

    pub(crate) fn find_mut(&mut self, vpn: Vpn) -> Option<&mut Vma> {
        let found = self.vmas.range_mut(..=vpn).next_back().map(|(_, vma)| vma);
        found.filter(|vma| vpn < vma.end)
    }

    /// Whether anything is left of the mapping that began at `origin`.
    #[must_use]
    pub fn is_anything_left(&self, origin: Vpn) -> bool {
        self.vmas.range(origin..).any(|(_, vma)| vma.origin == origin)
    }

    /// Where a file is mapped.
    pub(crate) fn ranges_of(&self, file: FileId) -> &[FileRange] {
        self.i_mmap.get(file.0 as usize).map_or(&[], Vec::as_slice)
    }

    /// Mappings of files, as the files know them.
    pub(crate) fn nr_file_ranges(&self) -> usize {
        self.i_mmap.iter().map(Vec::len).sum()
    }

    /// Whether anybody maps a file.
    #[must_use]
    pub fn is_file_mapped(&self, file: FileId) -> bool {
        !self.ranges_of(file).is_empty()
    }

    /// The files whose last mapping went since this was last asked, and which nobody has mapped again.
    pub fn take_unmapped_files(&mut self) -> Vec<FileId> {
        let mut files = core::mem::take(&mut self.unmapped_files);
        files.retain(|&file| !self.is_file_mapped(file));
        files
    }

    /// Every mapping, by address.
    pub fn vmas(&self) -> impl Iterator<Item = &Vma> {
        self.vmas.values()
    }

    /// The mappings that lie in a range, at least in part.
    #[must_use]
    pub fn vmas_in(&self, range: Range<Vpn>) -> Vec<Vma> {
        let first = self.find(range.start).map_or(range.start, |vma| vma.start);
        self.vmas.range(first..range.end).map(|(_, vma)| *vma).collect()
    }

    /// The page tables.
    #[must_use]
    pub const fn table(&self) -> &PageTable {
        &self.table
    }

    /// What a task has in memory.
    #[must_use]
    pub fn task(&self, task: ProcessId) -> TaskPages {
        self.tasks.get(task.0 as usize).copied().unwrap_or_default()
    }

    /// Where the kernel's own pages for a task come from (`set_mempolicy`).
    ///
    /// Departs: all threads of a process share it. Visible as: tables of a thread with another policy than
    /// its process lie on other nodes.
    #[must_use]
    pub fn task_policy(&self, task: ProcessId) -> MemPolicy {
        self.task_policies.get(&task).copied().unwrap_or_default()
    }

    /// Sets it.
    pub fn set_task_policy(&mut self, task: ProcessId, policy: MemPolicy) {
        self.task_policies.insert(task, policy);
    }

    #[inline]
    pub(crate) fn task_mut(&mut self, task: ProcessId) -> &mut TaskPages {
        &mut self.tasks[task.0 as usize]
    }

    /// Changes the mappings of a range, splitting those that reach out of it.
    pub fn change(&mut self, range: Range<Vpn>, change: impl Fn(&mut Vma)) {
        self.split_at(range.start);
        self.split_at(range.end);
        for (_, vma) in self.vmas.range_mut(range) {
            change(vma);
        }
    }

    fn split_at(&mut self, vpn: Vpn) {
        let Some(vma) = self.find_mut(vpn) else { return };
        if vma.start == vpn {
            return;
        }
        let (start, mut upper) = (vma.start, *vma);
        vma.end = vpn;
        upper.start = vpn;
        self.vmas.insert(vpn, upper);
        if let Some((file, first)) = upper.file_page(vpn) {
            let ranges = &mut self.i_mmap[file.0 as usize];
            let lower = ranges.iter_mut().find(|range| range.start == start);
            lower.expect("a mapping of a file is known to it").end = vpn;
            ranges.push(FileRange { start: vpn, end: upper.end, first });
        }
    }

    /// Forgets the mappings of a range whose pages are gone, and lets whole units be given again.
    pub(crate) fn forget(&mut self, range: Range<Vpn>) {
        self.split_at(range.start);
        self.split_at(range.end);
        let gone: Vec<Vpn> = self.vmas.range(range).map(|(&start, _)| start).collect();
        for start in gone {
            let vma = self.vmas.remove(&start).expect("it was found");
            if let Some(FileMapping { file, .. }) = vma.file {
                let ranges = &mut self.i_mmap[file.0 as usize];
                ranges.retain(|range| range.start != start);
                if ranges.is_empty() {
                    self.unmapped_files.push(file);
                }
            }
            // Units that another mapping still reaches into stay taken until that one goes.
            let before = self.vmas.range(..start).next_back().map_or(0, |(_, v)| v.end.0);
            let behind = self.vmas.range(start..).next().map_or(u32::MAX, |(&at, _)| at.0);
            let first = if before > vma.start.unit_start().0 {
                vma.start.0.next_multiple_of(PTRS_PER_TABLE)
            } else {
                vma.start.unit_start().0
            };
            let mut last = vma.end.0.next_multiple_of(PTRS_PER_TABLE);
            if behind < last {
                last = vma.end.unit_start().0;
            }
            if first < last {
                self.give_back(first, last);
            }
        }
    }

    fn give_back(&mut self, mut first: u32, mut last: u32) {
        if let Some((&at, &len)) = self.free.range(..first).next_back()
            && at + len == first
        {
            self.free.remove(&at);
            first = at;
        }
        if let Some(len) = self.free.remove(&last) {
            last += len;
        }
        self.free.insert(first, last - first);
    }
}
