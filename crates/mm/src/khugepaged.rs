//! Huge pages made of base pages that are there already: khugepaged's steps.
//!
//! Models: `hpage_collapse_scan_pmd`, `collapse_huge_page`, `__collapse_huge_page_isolate`,
//! mm/khugepaged.c, v6.12; `khugepaged_scan_pmd`, mm/huge_memory.c, v4.4.
//! Departs: a page has one mapping, so none is shared; files are not collapsed. Visible as: nothing for
//! anonymous memory of single processes.

use crate::anon::HUGE_ORDER;
use crate::frame::{PageFlags, State};
use crate::memory::Memory;
use crate::page_table::{PTRS_PER_TABLE, Pmd, Pte, Slot, Vpn};
use crate::types::{Order, Pfn};
use crate::vma::Vma;
use std_alloc::vec;
use std_alloc::vec::Vec;

/// What a unit may lack and still be collapsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CollapseLimits {
    /// Entries without a page, or with the page of zeros (`khugepaged/max_ptes_none`).
    pub ptes_none: u32,
    /// Entries in swap (`khugepaged/max_ptes_swap`; 0 before 4.8, which had no such knob).
    pub ptes_swap: u32,
}

/// What a look at a unit found (`enum scan_result`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UnitScan {
    /// It can be collapsed.
    Succeed {
        /// Pages on each node; swapped ones belong to none.
        by_node: Vec<u32>,
        /// Entries in swap, which have to be read first.
        swapped: Vec<(Vpn, Slot)>,
    },
    /// There is no table, or it maps a huge page already.
    NotATable,
    /// Too many entries are empty.
    ExceedNone,
    /// Too many are in swap.
    ExceedSwap,
    /// A page is locked, under writeback, part of a huge page, or on no list.
    PageBusy,
    /// No page can be written.
    PageReadOnly,
    /// No page was used lately.
    LackReferenced,
}

impl Memory {
    /// Looks whether the 512 pages around `vpn` can become a huge page.
    ///
    /// # Panics
    /// If `vpn` belongs to no mapping.
    #[must_use]
    pub fn khugepaged_scan(&mut self, vpn: Vpn, limits: CollapseLimits) -> UnitScan {
        let start = vpn.unit_start();
        let vma = *self.spaces.find(vpn).expect("a unit that is scanned is mapped");
        if self.spaces.table.pmd(start) != Pmd::Table || !vma.holds_unit(vpn) || vma.file.is_some()
        {
            return UnitScan::NotATable;
        }
        let (mut none, mut writable, mut referenced) = (0, false, false);
        let mut by_node = vec![0; self.machine.nr_nodes()];
        let mut swapped = Vec::new();
        for i in 0..PTRS_PER_TABLE {
            let at = Vpn(start.0 + i);
            let pte = self.spaces.table.pte(at);
            self.work.ptes_scanned += 1;
            if pte.is_none() || pte.is_zero() {
                none += 1;
                if none > limits.ptes_none {
                    return UnitScan::ExceedNone;
                }
                continue;
            }
            if let Some(slot) = pte.slot() {
                swapped.push((at, slot));
                if swapped.len() as u32 > limits.ptes_swap {
                    return UnitScan::ExceedSwap;
                }
                continue;
            }
            let pfn = pte.pfn().expect("an entry is empty, swapped or a page");
            if !self.can_be_collapsed(pfn) {
                return UnitScan::PageBusy;
            }
            writable |= pte.has(Pte::WRITE);
            referenced |= pte.has(Pte::ACCESSED) || self.frames.has(pfn, PageFlags::REFERENCED);
            by_node[self.zones[self.zone_of(pfn).index()].node as usize] += 1;
        }
        if !writable {
            return UnitScan::PageReadOnly;
        }
        if !referenced {
            return UnitScan::LackReferenced;
        }
        UnitScan::Succeed { by_node, swapped }
    }

    fn can_be_collapsed(&self, pfn: Pfn) -> bool {
        let busy = [PageFlags::LOCKED, PageFlags::WRITEBACK, PageFlags::UNEVICTABLE];
        self.frames.state(pfn) != State::Inner
            && self.frames.order(pfn) == Order(0)
            && self.frames.has(pfn, PageFlags::LRU.with(PageFlags::BATCHED))
            && !busy.into_iter().any(|flag| self.frames.has(pfn, flag))
    }

    /// Puts the content of a unit's base pages, and zeros where there are none, into the huge page
    /// `huge`, and maps that in their place; their frames are freed, their table is deposited. Returns
    /// how many pages were copied; `None`, with nothing changed, if the unit has changed so that it cannot
    /// be done any more, or entries are in swap still.
    ///
    /// # Panics
    /// If `huge` is no block of 512 pages in use.
    pub fn khugepaged_collapse(
        &mut self,
        vpn: Vpn,
        limits: CollapseLimits,
        huge: Pfn,
        cpu: usize,
    ) -> Option<u32> {
        assert_eq!(self.frames.order(huge), HUGE_ORDER, "a huge page takes the content");
        let limits = CollapseLimits { ptes_swap: 0, ..limits };
        self.lru_add_drain_all();
        let UnitScan::Succeed { .. } = self.khugepaged_scan(vpn, limits) else { return None };
        let start = vpn.unit_start();
        let vma = *self.spaces.find(vpn).expect("it was scanned");
        let mut pages = Vec::new();
        for i in 0..PTRS_PER_TABLE {
            let at = Vpn(start.0 + i);
            if let Some(pfn) = self.spaces.table.pte(at).pfn() {
                if self.frames.has(pfn, PageFlags::SWAPCACHE) && !self.try_to_free_swap(pfn) {
                    // Its slot is wanted by others or being written: those before stay as they are.
                    return None;
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
        self.work.tlb_flushes += 1;
        Some(copied)
    }

    /// The first unit at or behind `from` that a task has mapped, could be huge, and lies in a mapping that
    /// `allows` lets have huge pages. `None` behind the last.
    #[must_use]
    pub fn next_unit_to_collapse(&self, from: Vpn, allows: impl Fn(&Vma) -> bool) -> Option<Vpn> {
        let units = self.spaces.vmas().filter(|vma| allows(vma)).filter_map(|vma| {
            let first = vma.start.max(from);
            let start = Vpn(first.0.div_ceil(PTRS_PER_TABLE) * PTRS_PER_TABLE);
            (start.0 + PTRS_PER_TABLE <= vma.end.0).then_some(start)
        });
        units.min()
    }
}
