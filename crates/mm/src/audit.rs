//! The invariants of user memory, checked from scratch.

use crate::filemap::{CachedPage, FileId};
use crate::frame::{List, PageFlags, State};
use crate::lru::{LruList, LruvecId};
use crate::memory::Memory;
use crate::page_table::{PTRS_PER_TABLE, Pmd, Pte, Vpn};
use crate::swap::CacheEntry;
use crate::types::{NR_ZONE_KINDS, Pfn};
use crate::vma::{FileRange, TaskPages};
use std_alloc::collections::BTreeSet;
use std_alloc::format;
use std_alloc::string::String;
use std_alloc::vec;
use std_alloc::vec::Vec;

/// What the frames that are in use say, to be compared with what the counts say.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Tally {
    mapped: Vec<u64>,
    file_mapped: Vec<u64>,
    /// Entries that map a page of a file, by the page's frame.
    mapcounts: Vec<u32>,
    huge: Vec<u64>,
    tables: Vec<u64>,
    tasks: Vec<TaskPages>,
    swap_entries: u64,
}

impl Memory {
    /// Checks every invariant of user memory.
    ///
    /// - A page is on exactly the list that its flags and zone name, once, or in one batch, or isolated;
    ///   sizes are the sums of the lists.
    /// - An entry that maps a frame and the owner of the frame's page name each other; each anonymous
    ///   page is mapped, in the swap cache, or held by a batch or by a compaction.
    /// - An entry that names a slot and the slot's owner name each other; a file that names one is alone in that; slots
    ///   in use are those named, copied or kept by CPUs.
    /// - An entry that maps a page of a file maps the one that its mapping shows there, and may be written
    ///   only while the page is dirty; pages count their entries, and files know all their mappings.
    /// - What tasks, lists and units count is what is there.
    ///
    /// # Errors
    /// A sentence for the first invariant that does not hold.
    pub fn audit(&self) -> Result<(), String> {
        self.audit_lists()?;
        let tally = self.audit_page_table()?;
        self.audit_swap(&tally)?;
        for (at, lists) in self.lru.lruvecs.iter().enumerate() {
            let stats = lists.stats;
            let counted = (stats.nr_anon_mapped, stats.nr_anon_huge, stats.nr_page_table);
            let there = (tally.mapped[at], tally.huge[at], tally.tables[at]);
            if counted != there {
                return Err(format!(
                    "lists {at} count {counted:?} mapped, huge, tables: {there:?}"
                ));
            }
            if stats.nr_file_mapped != tally.file_mapped[at] {
                return Err(format!(
                    "lists {at} count {} pages of files mapped: {}",
                    stats.nr_file_mapped, tally.file_mapped[at]
                ));
            }
        }
        self.audit_i_mmap()?;
        for (owner, pfn) in self.files.audit()? {
            let is_ours =
                self.frames.state(pfn) == State::Allocated && self.place_of(pfn) == Some(owner);
            if !is_ours {
                return Err(format!("{pfn} is in the page cache and does not say so"));
            }
            let (counted, there) = (self.files.mapcount(owner), tally.mapcounts[pfn.index()]);
            if counted != there {
                return Err(format!("{pfn} counts {counted} entries: {there}"));
            }
            // What goes to swap is dirty for good, and nobody writes it to its file.
            let (dirty, to_write) =
                (self.frames.has(pfn, PageFlags::DIRTY), self.files.is_dirty(owner));
            if dirty != (to_write || self.is_shmem(pfn)) || self.is_shmem(pfn) && to_write {
                return Err(format!("{pfn} and its file differ about whether it is dirty"));
            }
        }
        self.audit_slabs()?;
        if self.spaces.tasks != tally.tasks {
            return Err(format!("tasks count {:?}: {:?}", self.spaces.tasks, tally.tasks));
        }
        Ok(())
    }

    fn audit_lists(&self) -> Result<(), String> {
        let mut seen = vec![false; self.frames.len()];
        for (at, lists) in self.lru.ids().zip(&self.lru.lruvecs) {
            let mut sizes = [[0u64; NR_ZONE_KINDS]; 5];
            for (list, generation) in self.all_lists(at) {
                let mut nr = 0;
                let mut previous = None;
                for pfn in self.frames.iter(list) {
                    if core::mem::replace(&mut seen[pfn.index()], true) {
                        return Err(format!("{pfn} is on two LRU lists, or twice on one"));
                    }
                    if self.frames.prev(pfn) != previous {
                        return Err(format!("the link back from {pfn} is wrong"));
                    }
                    previous = Some(pfn);
                    nr += 1;
                    if self.frames.state(pfn) != State::Allocated
                        || !self.frames.has(pfn, PageFlags::LRU)
                        || self.frames.has(pfn, PageFlags::BATCHED)
                        || self.lruvec_of(pfn) != at
                        || self.frames.generation(pfn) != generation
                    {
                        return Err(format!("{pfn} is on an LRU list and does not say so"));
                    }
                    let size_of = self.size_list(pfn);
                    sizes[size_of as usize][self.zone_kind(pfn) as usize] += self.nr_pages(pfn);
                    let same = self.list_of_page(pfn).is_some_and(|own| core::ptr::eq(own, list));
                    if !same {
                        return Err(format!("{pfn} is on another list than its flags name"));
                    }
                }
                if list.len() != nr || list.tail() != previous {
                    return Err(format!("an LRU list of {nr} pages claims {}", list.len()));
                }
            }
            for list in LruList::ALL {
                if lists.size(list) != sizes[list as usize].iter().sum::<u64>() {
                    return Err(format!(
                        "{at:?} claims {} pages {list:?}, there are {:?}",
                        lists.size(list),
                        sizes[list as usize]
                    ));
                }
            }
        }
        let mut batched = 0;
        for &pfn in self.lru.batches.iter().flatten() {
            if !self.frames.has(pfn, PageFlags::BATCHED) || self.frames.has(pfn, PageFlags::LRU) {
                return Err(format!("{pfn} is in a batch and does not say so"));
            }
            batched += 1;
        }
        let (mut says_batched, mut isolated) = (0, [0; 2]);
        for pfn in (0..self.frames.len() as u32).map(Pfn) {
            if self.frames.state(pfn) != State::Allocated {
                continue;
            }
            let listed = self.frames.has(pfn, PageFlags::LRU);
            if listed != seen[pfn.index()] {
                return Err(format!("{pfn} says that it is on a list, and is not"));
            }
            says_batched += u32::from(self.frames.has(pfn, PageFlags::BATCHED));
            if self.frames.has(pfn, PageFlags::ANON) {
                if !listed && !self.frames.has(pfn, PageFlags::BATCHED) {
                    isolated[0] += self.nr_pages(pfn);
                }
                let holders = PageFlags::BATCHED | PageFlags::SWAPCACHE | PageFlags::ISOLATED;
                let held = self.frames.has(pfn, holders);
                if !self.has_mapped_part(pfn) && !held && !self.is_shmem(pfn) {
                    return Err(format!("{pfn} is anonymous, and nobody has it"));
                }
            }
        }
        let claimed: u64 = self.lru.lruvecs.iter().map(|l| l.stats.nr_isolated[0]).sum();
        isolated[1] = claimed;
        if says_batched != batched || isolated[0] != claimed {
            return Err(format!(
                "{says_batched} pages say they are in batches, which hold {batched}; {} are isolated, \
                 {claimed} counted",
                isolated[0]
            ));
        }
        Ok(())
    }

    fn audit_page_table(&self) -> Result<Tally, String> {
        let nr = self.lru.lruvecs.len();
        let mut tally = Tally {
            mapped: vec![0; nr],
            file_mapped: vec![0; nr],
            mapcounts: vec![0; self.frames.len()],
            huge: vec![0; nr],
            tables: vec![0; nr],
            tasks: vec![TaskPages::default(); self.spaces.tasks.len()],
            swap_entries: 0,
        };
        let table = self.spaces.table();
        for (at, unit) in table.units.iter().enumerate() {
            let start = Vpn(at as u32 * PTRS_PER_TABLE);
            let range = start..Vpn(start.0 + PTRS_PER_TABLE);
            // Most units of most address spaces are empty.
            let is_empty = unit.pmd == Pmd::None && unit.table.is_none() && unit.nr_used == 0;
            let owners = if is_empty { Vec::new() } else { self.spaces.vmas_in(range) };
            let task = owners.first().map(|vma| vma.task.0 as usize);
            if let Some(pfn) = unit.table {
                let task = task.ok_or_else(|| format!("a table for {start}, which is unmapped"))?;
                tally.tables[self.lruvec_of(pfn).index()] += 1;
                tally.tasks[task].tables += 1;
            }
            if let Pmd::Huge(pte) = unit.pmd {
                let head = pte.pfn().ok_or("a huge entry without a page")?;
                let task =
                    task.ok_or_else(|| format!("a huge page at {start}, which is unmapped"))?;
                if self.vpn_of(head) != Some(start) || unit.table.is_none() {
                    return Err(format!("{head} is mapped at {start} and does not say so"));
                }
                tally.huge[self.lruvec_of(head).index()] += 1;
                tally.mapped[self.lruvec_of(head).index()] += u64::from(PTRS_PER_TABLE);
                tally.tasks[task].anon += u64::from(PTRS_PER_TABLE);
            }
            let entries =
                (start.0..start.0 + PTRS_PER_TABLE).map(|at| (Vpn(at), table.pte(Vpn(at))));
            let mut used = 0;
            for (vpn, pte) in entries.filter(|(_, pte)| !pte.is_none()) {
                used += 1;
                let vma = owners.iter().find(|vma| (vma.start..vma.end).contains(&vpn));
                let vma = vma.ok_or_else(|| format!("{vpn} is not in a mapping"))?;
                let task = vma.task.0 as usize;
                if let (Some(place), Some(pfn)) = (vma.file_page(vpn), pte.pfn()) {
                    self.audit_file_pte(vpn, pte, pfn, place)?;
                    let count = &mut tally.mapcounts[pfn.index()];
                    *count += 1;
                    tally.file_mapped[self.lruvec_of(pfn).index()] += u64::from(*count == 1);
                    tally.tasks[task].file += 1;
                } else if let Some(pfn) = pte.pfn() {
                    let head = self.frames.head_of(pfn);
                    let owner = self.vpn_of(head).map(|owner| owner.0 + pfn.0 - head.0);
                    if self.frames.state(head) != State::Allocated || owner != Some(vpn.0) {
                        return Err(format!("{vpn} maps {pfn}, which says {owner:?}"));
                    }
                    tally.mapped[self.lruvec_of(pfn).index()] += 1;
                    tally.tasks[task].anon += 1;
                } else if let Some(slot) = pte.slot() {
                    if self.swap.owner(slot) != Some(vpn) || !self.swap.is_mapped(slot) {
                        return Err(format!("{vpn} names {slot:?}, which does not name it"));
                    }
                    tally.tasks[task].swap += 1;
                    tally.swap_entries += 1;
                }
            }
            if used != unit.nr_used || (used > 0 && unit.pmd != Pmd::Table) {
                return Err(format!("the unit at {start} counts {} entries: {used}", unit.nr_used));
            }
        }
        Ok(tally)
    }

    fn audit_file_pte(
        &self,
        vpn: Vpn,
        pte: Pte,
        pfn: Pfn,
        place: (FileId, u64),
    ) -> Result<(), String> {
        let (file, index) = place;
        if self.files.get(file, index) != CachedPage::Page(pfn) {
            return Err(format!("{vpn} maps {pfn}, which is not page {index} of {file:?}"));
        }
        let may_write = self.spaces.find(vpn).and_then(|vma| vma.file).is_some_and(|m| m.writable);
        let is_dirty = self.frames.has(pfn, PageFlags::DIRTY);
        if pte.has(Pte::WRITE | Pte::DIRTY) && !(may_write && is_dirty) {
            return Err(format!("{vpn} may write {pfn}, which is not dirty or not to be written"));
        }
        if !self.file_places(pfn).contains(&vpn) {
            return Err(format!("{vpn} maps {pfn}, whose file does not find it"));
        }
        Ok(())
    }

    fn audit_i_mmap(&self) -> Result<(), String> {
        let mut nr = 0;
        for vma in self.spaces.vmas() {
            let Some((file, first)) = vma.file_page(vma.start) else { continue };
            let own = FileRange { start: vma.start, end: vma.end, first };
            if self.spaces.ranges_of(file).iter().filter(|&&range| range == own).count() != 1 {
                return Err(format!("{file:?} does not know its mapping at {}", vma.start));
            }
            nr += 1;
        }
        let known = self.spaces.nr_file_ranges();
        if known == nr { Ok(()) } else { Err(format!("files know {known} mappings of {nr}")) }
    }

    fn audit_swap(&self, tally: &Tally) -> Result<(), String> {
        let (mut named, mut copied, mut kept, mut used) = (0, 0, 0, 0);
        for (slot, is_named, is_copied, is_kept) in self.swap.uses() {
            named += u64::from(is_named);
            copied += u64::from(is_copied);
            kept += u64::from(is_kept);
            used += u64::from(is_named || is_copied || is_kept);
            let cached = match self.swap.cached(slot) {
                CacheEntry::Page(pfn) => {
                    let head = self.frames.head_of(pfn);
                    let first = self.slot_of(head).map(|first| first.0 + pfn.0 - head.0);
                    if first != Some(slot.0) {
                        return Err(format!("{slot:?} is in {pfn}, which says {first:?}"));
                    }
                    true
                }
                CacheEntry::Shadow(_) if !is_named => {
                    return Err(format!("{slot:?} has a shadow and is free"));
                }
                CacheEntry::Shadow(_) | CacheEntry::Empty => false,
            };
            if cached != is_copied {
                return Err(format!("{slot:?} has a copy, or none, and does not say so"));
            }
        }
        let counted: u64 = self.swap.areas.iter().map(|area| u64::from(area.nr_used)).sum();
        let claims = (self.swap.nr_cached(), self.swap.nr_kept_by_cpus(), counted);
        let mut of_files = BTreeSet::new();
        for slot in self.files.swapped() {
            if !of_files.insert(slot.0) || self.swap.owner(slot).is_some() {
                return Err(format!("{slot:?} is a file's, and another's"));
            }
        }
        let names = tally.swap_entries + of_files.len() as u64;
        if named != names || (copied, kept, used) != claims {
            return Err(format!(
                "slots: {named} named by {} entries; {:?} copied, kept, used, counted as {claims:?}",
                names,
                (copied, kept, used)
            ));
        }
        Ok(())
    }

    fn list_of_page(&self, pfn: Pfn) -> Option<&List> {
        let lists = &self.lru.lruvecs[self.lruvec_of(pfn)];
        match self.frames.generation(pfn) {
            None => Some(lists.list(self.lru_list(pfn))),
            Some(generation) => {
                let file = usize::from(!self.frames.has(pfn, PageFlags::ANON));
                let zone = self.zone_kind(pfn);
                Some(lists.generations.list(generation, file, zone))
            }
        }
    }

    /// Every list of an [`crate::lru::Lruvec`], with its number where it is a generation's.
    fn all_lists(&self, lruvec: LruvecId) -> impl Iterator<Item = (&List, Option<u8>)> {
        let lists = &self.lru.lruvecs[lruvec];
        let plain = LruList::ALL.into_iter().map(|list| (lists.list(list), None));
        plain.chain(lists.generations.lists().map(|(list, generation)| (list, Some(generation))))
    }
}
