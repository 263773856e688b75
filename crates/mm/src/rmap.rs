//! Mapped files: faults on their pages, and from a page to all entries that map it.
//!
//! Models: mm/memory.c (`do_read_fault`, `do_fault_around`, `do_shared_fault`, `wp_page_shared`), mm/rmap.c
//! (`page_referenced`, `page_mkclean`, `try_to_unmap`), mm/filemap.c (`filemap_map_pages`), v4.4 and v6.12.
//! Departs: mappings of a file lie in a list instead of an interval tree. Visible as: nothing, but that a
//! file mapped by thousands takes long to reclaim, on our side. Nothing waits for a page under writeback
//! before it is written again, as kernels from 3.0 to 3.8 did (stable pages, 1d1d1a767206). Visible as: no
//! such waits there. There are no mappings for execution. Visible as: nothing is protected for that.
//!
//! A page is writable through an entry only while it is dirty: beginning to write it takes the right away
//! from every entry, and the next write faults, which makes it dirty again.

use crate::anon::{Fault, FaultKind, Faulted, TouchRange};
use crate::filemap::{CachedPage, FileId};
use crate::frame::PageFlags;
use crate::gfp::Gfp;
use crate::memory::Memory;
use crate::page_table::{PTRS_PER_TABLE, Pte, Vpn};
use crate::tlb::TlbUsers;
use crate::types::{Access, CpuId, Pfn};
use crate::vma::{ProcessId, Vma};
use crate::vmstat::Vm;
use crate::watermark::Mark;

/// Faults that found no page, above which a mapping is taken to be used at random
/// (`MMAP_LOTSAMISS`, mm/filemap.c).
const MMAP_LOTSAMISS: u32 = 100;
/// What holds of a page that a mapping of a file shows.
const IN_A_FILE: &str = "a page of a file has a place in the page cache";

impl Memory {
    /// Where a page of a file is mapped next, from entry `from` of its file's mappings on; and the entry
    /// to go on from.
    fn next_file_pte(
        &self,
        file: FileId,
        index: u64,
        pfn: Pfn,
        from: usize,
    ) -> Option<(Vpn, usize)> {
        let ranges = self.spaces.ranges_of(file).iter().enumerate().skip(from);
        ranges
            .filter_map(|(at, range)| Some((range.vpn_of(index)?, at + 1)))
            .find(|&(vpn, _)| self.spaces.table.pte(vpn).pfn() == Some(pfn))
    }

    /// Does something for every entry that maps a page of a file, and stops once all were seen. Returns
    /// how many there are.
    fn for_each_file_pte(&mut self, pfn: Pfn, mut each: impl FnMut(&mut Self, Vpn)) -> u32 {
        let Some(owner) = self.place_of(pfn) else { return 0 };
        let mapcount = self.files.mapcount(owner);
        if mapcount == 0 {
            return 0;
        }
        let (file, index) = self.files.page_of(owner).expect("a page of a file is in its cache");
        self.work.rmap_walks += 1;
        let (mut seen, mut at) = (0, 0);
        while seen < mapcount {
            let next = self.next_file_pte(file, index, pfn, at);
            let (vpn, next) = next.expect("all entries of a page are found through its file");
            self.work.ptes_scanned += 1;
            each(self, vpn);
            (seen, at) = (seen + 1, next);
        }
        mapcount
    }

    /// Every place where a page of a file is mapped.
    #[must_use]
    pub fn file_places(&self, pfn: Pfn) -> std_alloc::vec::Vec<Vpn> {
        let place = self.place_of(pfn).and_then(|place| self.files.page_of(place));
        let Some((file, index)) = place else {
            return std_alloc::vec::Vec::new();
        };
        let mut at = 0;
        let next = || {
            let (vpn, next) = self.next_file_pte(file, index, pfn, at)?;
            at = next;
            Some(vpn)
        };
        core::iter::from_fn(next).collect()
    }

    /// Entries of a file's page that were accessed since this was last asked; they forget it.
    #[doc(alias = "page_referenced")]
    pub(crate) fn file_page_referenced(&mut self, pfn: Pfn) -> u32 {
        let mut referenced = 0;
        let around = self.faults_enter_youngest();
        self.for_each_file_pte(pfn, |memory, vpn| {
            let pte = memory.spaces.table.pte(vpn);
            if pte.has(Pte::ACCESSED) {
                referenced += 1;
                memory.note_forgotten(vpn, 1);
                memory.spaces.table.set_pte(vpn, pte.without(Pte::ACCESSED));
                if around {
                    memory.look_around(pfn, vpn);
                }
            }
        });
        referenced
    }

    /// Takes the right to write a page, and the note that it was written, from all entries
    /// (`page_mkclean`). Whether any had it.
    pub(crate) fn page_mkclean(&mut self, pfn: Pfn) -> bool {
        let mut users = TlbUsers::NONE;
        self.for_each_file_pte(pfn, |memory, vpn| {
            let pte = memory.spaces.table.pte(vpn);
            if pte.has(Pte::WRITE | Pte::DIRTY) {
                users |= memory.tlb_user_at(vpn);
                memory.spaces.table.set_pte(vpn, pte.without(Pte::WRITE | Pte::DIRTY));
            }
        });
        self.flush_entries(users, 1);
        users.is_any()
    }

    /// Takes a page of a file out of every page table (`try_to_unmap`); that it was written stays with the
    /// page. Whether it was mapped.
    #[doc(alias = "try_to_unmap")]
    pub(crate) fn unmap_file_page(&mut self, pfn: Pfn) -> TlbUsers {
        let mut users = TlbUsers::NONE;
        self.for_each_file_pte(pfn, |memory, vpn| {
            let pte = memory.spaces.table.pte(vpn);
            if pte.has(Pte::DIRTY) && !memory.frames.has(pfn, PageFlags::DIRTY) {
                memory.set_page_dirty(pfn);
            }
            memory.spaces.table.set_pte(vpn, Pte::NONE);
            let vma = memory.spaces.find(vpn).expect("a mapped page lies in a mapping");
            let task = vma.task;
            memory.account_file_unmapped(pfn, task);
            users |= TlbUsers::of(task);
        });
        users
    }

    /// Maps a page of a file; it is not counted as a fault.
    #[inline]
    fn set_file_pte(&mut self, vma: &Vma, vpn: Vpn, pfn: Pfn, bits: u64) {
        self.spaces.table.set_pte(vpn, Pte::page(pfn, bits | Pte::ACCESSED));
        self.work.ptes_scanned += 1;
        let place = self.place_of(pfn).expect(IN_A_FILE);
        if self.files.inc_mapcount(place) {
            let lruvec = self.lruvec_of(pfn);
            self.lru.lruvecs[lruvec].stats.nr_file_mapped += 1;
        }
        self.spaces.task_mut(vma.task).file += 1;
        if vma.locked {
            self.make_unevictable(pfn);
        }
    }

    fn account_file_unmapped(&mut self, pfn: Pfn, task: ProcessId) {
        let place = self.place_of(pfn).expect(IN_A_FILE);
        if self.files.dec_mapcount(place) {
            let lruvec = self.lruvec_of(pfn);
            self.lru.lruvecs[lruvec].stats.nr_file_mapped -= 1;
        }
        self.spaces.task_mut(task).file -= 1;
    }

    /// An entry of a mapping that goes: the page stays, and keeps what the entry knew
    /// (`zap_pte_range`).
    pub(crate) fn zap_file_pte(&mut self, vma: &Vma, pte: Pte, pfn: Pfn, cpu: CpuId) {
        if pte.has(Pte::DIRTY) && !self.frames.has(pfn, PageFlags::DIRTY) {
            self.set_page_dirty(pfn);
        }
        if pte.has(Pte::ACCESSED) {
            self.mark_page_accessed(pfn, cpu);
        }
        self.account_file_unmapped(pfn, vma.task);
        if vma.locked {
            self.munlock_file_page(pfn);
        }
    }

    /// A page is unlocked, unless another mapping that is locked shows it.
    pub(crate) fn munlock_file_page(&mut self, pfn: Pfn) {
        let mut is_locked = false;
        self.for_each_file_pte(pfn, |memory, vpn| {
            is_locked |= memory.spaces.find(vpn).is_some_and(|vma| vma.locked);
        });
        if !is_locked {
            self.make_evictable(pfn);
        }
    }

    /// The page that can be mapped for a fault at once: in memory, read, and not the one at which reading
    /// ahead goes on.
    #[inline]
    fn ready_page(&self, file: FileId, index: u64) -> Option<Pfn> {
        let CachedPage::Page(pfn) = self.files.get(file, index) else { return None };
        let waits = PageFlags::LOCKED | PageFlags::READAHEAD;
        if self.frames.has(pfn, waits) { None } else { Some(pfn) }
    }

    /// Maps, to be read, what is ready of the pages around one where nothing is mapped
    /// (`do_fault_around`). Returns how many.
    #[doc(alias = "filemap_map_pages")]
    #[doc(alias = "do_fault_around")]
    fn map_around(&mut self, vma: &Vma, vpn: Vpn) -> u32 {
        let window = self.policy.filemap.fault_around_pages;
        let aligned = vpn.0 & !(window - 1);
        let first = aligned.max(vma.start.0).max(vpn.unit_start().0);
        let last = (first + window).min(vma.end.0).min(vpn.unit_start().0 + PTRS_PER_TABLE);
        let (file, index) = vma.file_page(Vpn(first)).expect("a mapping of a file");
        let mut mapped = 0;
        for at in first..last {
            if !self.spaces.table.pte(Vpn(at)).is_none() {
                continue;
            }
            if let Some(pfn) = self.ready_page(file, index + u64::from(at - first)) {
                self.set_file_pte(vma, Vpn(at), pfn, 0);
                mapped += 1;
            }
        }
        mapped
    }

    /// Makes a page that is mapped, or is mapped now, one that may be written there: dirty from here on
    /// (`page_mkwrite`). Whether it was not dirty before.
    #[doc(alias = "wp_page_shared")]
    fn make_writable(&mut self, vma: &Vma, vpn: Vpn, pfn: Pfn) -> bool {
        let bits = Pte::WRITE | Pte::DIRTY | Pte::ACCESSED;
        let newly = self.set_page_dirty(pfn);
        if self.spaces.table.pte(vpn).is_none() {
            self.set_file_pte(vma, vpn, pfn, bits);
        } else {
            let pte = self.spaces.table.pte(vpn).with(bits);
            self.spaces.table.set_pte(vpn, pte);
            self.work.ptes_scanned += 1;
        }
        newly
    }

    /// Touches a part of a mapping of a file, and serves faults on pages that are in memory.
    #[doc(alias = "do_shared_fault")]
    #[doc(alias = "do_read_fault")]
    pub(crate) fn touch_and_fault_file(&mut self, vma: &Vma, range: TouchRange) -> Faulted {
        let end = range.start.0 + range.pages;
        let (mut done, mut hits) = (Faulted::default(), 0);
        let is_ready = |memory: &Self, pfn| !range.stop_for_buffer || memory.page_has_buffer(pfn);
        let mut at = range.start;
        while at.0 < end {
            let touched = self.touch_in(vma, at, end - at.0, range.access);
            at.0 += touched.pages;
            let Some(fault) = touched.fault else { break };
            if done.faults >= range.faults_max {
                break;
            }
            if fault.needs_table {
                if !self.map_fresh_table(&fault, range.cpu) {
                    done.fault = Some(fault);
                    break;
                }
                done.tables += 1;
            }
            let served = match (fault.kind, range.access) {
                (FaultKind::File { .. }, Access::Read) => {
                    hits += self.map_around(vma, at);
                    !self.spaces.table.pte(at).is_none()
                }
                (FaultKind::File { file, index }, Access::Write) if is_writable(vma) => {
                    let ready = self.ready_page(file, index).filter(|&pfn| is_ready(self, pfn));
                    if let Some(pfn) = ready {
                        done.dirtied += u32::from(self.make_writable(vma, at, pfn));
                        hits += 1;
                    }
                    ready.is_some()
                }
                (FaultKind::ReadOnly(pfn), Access::Write)
                    if is_writable(vma) && is_ready(self, pfn) =>
                {
                    done.dirtied += u32::from(self.make_writable(vma, at, pfn));
                    true
                }
                _ => false,
            };
            if !served {
                done.fault = Some(self.fault_at(vma, at, range.access));
                break;
            }
            done.faults += 1;
        }
        done.pages = at.0 - range.start.0;
        self.work.pages_cleared += u64::from(done.tables);
        self.vm.add(Vm::PgFault, u64::from(done.faults));
        if hits > 0 && vma.file.is_some_and(|mapping| mapping.nr_missed > 0) {
            self.note_mmap_hits(range.start, hits);
        }
        done
    }

    fn map_fresh_table(&mut self, fault: &Fault, cpu: CpuId) -> bool {
        let gfp = Gfp::KERNEL | Gfp::ZERO;
        let task = self.spaces.find(fault.vpn).expect("a fault lies in a mapping").task;
        let (request, allowed) = self.task_request(task, gfp, cpu);
        let flags = self.fast_path_flags(request);
        let Some(pfn) = self.get_page_from_nodes(request, allowed, Some(Mark::Low), flags) else {
            return false;
        };
        self.map_table(fault, pfn);
        true
    }

    /// Pages of a mapping were found in memory.
    pub fn note_mmap_hits(&mut self, vpn: Vpn, hits: u32) {
        if let Some(mapping) = self.spaces.find_mut(vpn).and_then(|vma| vma.file.as_mut()) {
            mapping.nr_missed = mapping.nr_missed.saturating_sub(hits);
        }
    }

    /// A page of a mapping was not found in memory. Whether reading around it is still worth while
    /// (`do_sync_mmap_readahead`).
    pub fn note_mmap_miss(&mut self, vpn: Vpn) -> bool {
        let Some(mapping) = self.spaces.find_mut(vpn).and_then(|vma| vma.file.as_mut()) else {
            return false;
        };
        mapping.nr_missed = (mapping.nr_missed + 1).min(MMAP_LOTSAMISS * 10);
        mapping.nr_missed <= MMAP_LOTSAMISS
    }

    /// Serves a fault on a page of a file that is in memory and read. Whether a write made it dirty.
    ///
    /// # Panics
    /// If the page is not that of the fault, or may not be written where it is to be, or a table is missing.
    pub fn map_file_page(&mut self, fault: &Fault, pfn: Pfn) -> bool {
        let vma = *self.spaces.find(fault.vpn).expect("a fault lies in a mapping");
        let place = self.place_of(pfn).and_then(|place| self.files.page_of(place));
        assert!(
            place.is_some() && place == vma.file_page(fault.vpn),
            "{pfn} is the page asked for"
        );
        assert!(!self.frames.has(pfn, PageFlags::LOCKED), "{pfn} is still being read");
        let newly_dirty = match fault.access {
            Access::Read => {
                self.set_file_pte(&vma, fault.vpn, pfn, 0);
                false
            }
            Access::Write => {
                assert!(is_writable(&vma), "{} may not be written", fault.vpn);
                self.make_writable(&vma, fault.vpn, pfn)
            }
        };
        self.vm.add(Vm::PgFault, 1);
        newly_dirty
    }
}

/// Whether a mapping's file may be written through it.
fn is_writable(vma: &Vma) -> bool {
    vma.file.is_some_and(|mapping| mapping.writable)
}
