//! Huge pages made of base pages that are there already: khugepaged's steps.
//!
//! Models: `hpage_collapse_scan_pmd`, `collapse_huge_page`, `__collapse_huge_page_isolate`,
//! mm/khugepaged.c, v6.12; `khugepaged_scan_pmd`, mm/huge_memory.c, v4.4.
//! Departs: a page has one mapping, so none is shared and `khugepaged/max_ptes_shared` is never reached; files are
//! not collapsed; a page under writeback is taken for one that somebody else holds, a locked-in-memory one for one
//! that is on no list, and parts of huge pages are left on every kernel. Visible as: nothing for anonymous memory of
//! single processes, but for memory that is locked or was split.

use crate::anon::HUGE_ORDER;
use crate::frame::{PageFlags, State};
use crate::memory::Memory;
use crate::page_table::{PTRS_PER_TABLE, Pmd, Pte, Slot, Vpn};
use crate::tlb::TlbUsers;
use crate::types::{CpuId, Order, Pfn};
use crate::vma::{ProcessId, Vma};
use std_alloc::vec;
use std_alloc::vec::Vec;

/// What a unit may lack and still be collapsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CollapseLimits {
    /// Entries without a page, or with the page of zeros (`khugepaged/max_ptes_none`).
    pub ptes_none: u32,
    /// Entries in swap (`khugepaged/max_ptes_swap`; 0 before 4.8, which had no such knob).
    pub ptes_swap: u32,
    /// Referenced entries that a unit with entries in swap needs; others need one.
    pub ptes_referenced: u32,
}

/// What a look at a unit, or an attempt to collapse it, came to (`enum scan_result`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanResult {
    /// No memory was to be had for an entry in swap, or too little of the unit is used.
    Fail,
    /// It can be collapsed, or was.
    Succeed,
    /// There is no table.
    PmdNone,
    /// A huge page is mapped already.
    PmdMapped,
    /// Too many entries are empty.
    ExceedNone,
    /// Too many are in swap.
    ExceedSwap,
    /// An entry is in swap when pages are taken.
    NonPresent,
    /// No page can be written.
    PageReadOnly,
    /// Too few pages were used lately.
    LackReferenced,
    /// Pages lie on nodes that are too far apart.
    ScanAbort,
    /// Somebody else holds a page.
    PageCount,
    /// A page is on no list.
    PageLru,
    /// A page is locked.
    PageLock,
    /// A page is part of a huge one.
    PageCompound,
    /// A page's slot in swap cannot be given up.
    SwapCachePage,
    /// The process is going.
    AnyProcess,
    /// The mapping has gone.
    VmaNull,
    /// The mapping does not hold the whole unit any more.
    AddressRange,
    /// The mapping is of a file.
    PageAnon,
    /// No huge page was to be had.
    AllocHugePageFail,
}

/// What a look at a unit saw before it ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnitScan {
    /// What it came to.
    pub result: ScanResult,
    /// The last page that was looked at.
    pub last: Option<Pfn>,
    /// Whether a page can be written.
    pub writable: bool,
    /// Entries of pages that were used lately.
    pub referenced: u32,
    /// Entries without a page, or with the page of zeros.
    pub none_or_zero: u32,
    /// Pages on each node; swapped ones belong to none.
    pub by_node: Vec<u32>,
    /// Entries in swap, which have to be read first.
    pub swapped: Vec<(Vpn, Slot)>,
}

impl Memory {
    /// Looks whether the 512 pages around `vpn` can become a huge page.
    ///
    /// # Panics
    /// If `vpn` belongs to no mapping.
    #[doc(alias = "khugepaged_scan_pmd")]
    #[doc(alias = "hpage_collapse_scan_pmd")]
    #[must_use]
    pub fn khugepaged_scan(&mut self, vpn: Vpn, limits: CollapseLimits) -> UnitScan {
        let start = vpn.unit_start();
        let vma = *self.spaces.find(vpn).expect("a unit that is scanned is mapped");
        let mut unit = UnitScan {
            result: ScanResult::Succeed,
            last: None,
            writable: false,
            referenced: 0,
            none_or_zero: 0,
            by_node: vec![0; self.machine.nr_nodes()],
            swapped: Vec::new(),
        };
        unit.result = match self.spaces.table.pmd(start) {
            _ if vma.file.is_some() => ScanResult::PageAnon,
            _ if !vma.holds_unit(vpn) => ScanResult::AddressRange,
            Pmd::None => ScanResult::PmdNone,
            Pmd::Huge(_) | Pmd::HugeZero => ScanResult::PmdMapped,
            Pmd::Table => self.scan_entries(start, limits, &mut unit),
        };
        unit
    }

    /// Looks at the entries of a table, counting what it sees.
    fn scan_entries(
        &mut self,
        start: Vpn,
        limits: CollapseLimits,
        unit: &mut UnitScan,
    ) -> ScanResult {
        for i in 0..PTRS_PER_TABLE {
            let at = Vpn(start.0 + i);
            let pte = self.spaces.table.pte(at);
            self.work.ptes_scanned += 1;
            if pte.is_none() || pte.is_zero() {
                unit.none_or_zero += 1;
                if unit.none_or_zero > limits.ptes_none {
                    return ScanResult::ExceedNone;
                }
                continue;
            }
            if let Some(slot) = pte.slot() {
                unit.swapped.push((at, slot));
                if unit.swapped.len() as u32 > limits.ptes_swap {
                    return ScanResult::ExceedSwap;
                }
                continue;
            }
            let pfn = pte.pfn().expect("an entry is empty, swapped or a page");
            unit.writable |= pte.has(Pte::WRITE);
            unit.last = Some(pfn);
            if let Some(obstacle) = self.obstacle_to_collapse(pfn) {
                return obstacle;
            }
            let is_referenced =
                pte.has(Pte::ACCESSED) || self.frames.has(pfn, PageFlags::REFERENCED);
            unit.referenced += u32::from(is_referenced);
            unit.by_node[self.zones[self.zone_of(pfn).index()].node.index()] += 1;
        }
        let needed = if unit.swapped.is_empty() { 1 } else { limits.ptes_referenced.max(1) };
        if !unit.writable {
            ScanResult::PageReadOnly
        } else if unit.referenced < needed {
            ScanResult::LackReferenced
        } else {
            ScanResult::Succeed
        }
    }

    /// Why a page cannot be taken, if so.
    #[doc(alias = "__collapse_huge_page_isolate")]
    fn obstacle_to_collapse(&self, pfn: Pfn) -> Option<ScanResult> {
        let has = |flag| self.frames.has(pfn, flag);
        if self.frames.state(pfn) == State::Inner || self.frames.order(pfn) != Order(0) {
            return Some(ScanResult::PageCompound);
        }
        if !has(PageFlags::LRU | PageFlags::BATCHED) || has(PageFlags::UNEVICTABLE) {
            return Some(ScanResult::PageLru);
        }
        if has(PageFlags::LOCKED) {
            return Some(ScanResult::PageLock);
        }
        has(PageFlags::WRITEBACK).then_some(ScanResult::PageCount)
    }

    /// Puts the content of a unit's base pages, and zeros where there are none, into the huge page
    /// `huge`, and maps that in their place; their frames are freed, their table is deposited. Returns
    /// what a last look saw; unless that succeeded, because the unit has changed so that it cannot be done any
    /// more, or entries are in swap still, nothing has changed.
    ///
    /// # Panics
    /// If `huge` is no block of 512 pages in use.
    #[doc(alias = "collapse_huge_page")]
    pub fn khugepaged_collapse(
        &mut self,
        vpn: Vpn,
        limits: CollapseLimits,
        huge: Pfn,
        cpu: CpuId,
    ) -> UnitScan {
        assert_eq!(self.frames.order(huge), HUGE_ORDER, "a huge page takes the content");
        let limits = CollapseLimits { ptes_swap: 0, ..limits };
        self.lru_add_drain_all();
        let mut unit = self.khugepaged_scan(vpn, limits);
        if unit.result != ScanResult::Succeed {
            if unit.result == ScanResult::ExceedSwap {
                unit.result = ScanResult::NonPresent;
            }
            return unit;
        }
        let start = vpn.unit_start();
        let vma = *self.spaces.find(vpn).expect("it was scanned");
        let mut pages = Vec::new();
        for i in 0..PTRS_PER_TABLE {
            let at = Vpn(start.0 + i);
            if let Some(pfn) = self.spaces.table.pte(at).pfn() {
                if self.frames.has(pfn, PageFlags::SWAPCACHE) && !self.try_to_free_swap(pfn) {
                    // Its slot is wanted by others or being written: those before stay as they are.
                    return UnitScan { result: ScanResult::SwapCachePage, last: Some(pfn), ..unit };
                }
                pages.push((at, pfn));
            }
        }
        for i in 0..PTRS_PER_TABLE {
            self.spaces.table.set_pte(Vpn(start.0 + i), Pte::NONE);
        }
        for &(_, pfn) in &pages {
            self.account_mapped(pfn, vma.task, -1);
            if self.frames.has(pfn, PageFlags::LRU) {
                self.del_page_from_lru(pfn);
            }
        }
        self.spaces.table.units[start.unit()].pmd = Pmd::None;
        self.install_huge(&vma, start, huge, cpu);
        for &(_, pfn) in &pages {
            self.free_page(pfn, cpu);
        }
        let copied = pages.len() as u32;
        self.work.pages_cleared += u64::from(PTRS_PER_TABLE - copied);
        self.flush_entries(TlbUsers::of(vma.task), 1);
        unit
    }

    /// The first unit, process by process, that could be huge and lies in a mapping that `allows` lets have huge
    /// pages: at or behind the address in the process given, or of a later process. `None` behind the last.
    #[must_use]
    pub fn next_unit_to_collapse(
        &self,
        from: (ProcessId, Vpn),
        allows: impl Fn(&Vma) -> bool,
    ) -> Option<(ProcessId, Vpn)> {
        let is_later = |vma: &&Vma| vma.task >= from.0 && vma.file.is_none();
        let later = self.spaces.vmas().filter(is_later).filter(|vma| allows(vma));
        let units = later.filter_map(|vma| {
            let first = if vma.task == from.0 { vma.start.max(from.1) } else { vma.start };
            let start = Vpn(first.0.div_ceil(PTRS_PER_TABLE) * PTRS_PER_TABLE);
            (start.0 + PTRS_PER_TABLE <= vma.end.0).then_some((vma.task, start))
        });
        units.min()
    }
}
