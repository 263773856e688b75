//! Anonymous memory: touching it, what a fault needs and what it installs, and taking it down.
//!
//! Models: mm/memory.c (`do_anonymous_page`, `do_swap_page`, `do_wp_page`, `zap_pte_range`),
//! mm/huge_memory.c, mm/madvise.c, mm/mlock.c, v6.12 and v4.4.
//! Departs: no `fork`, so that an anonymous page is mapped once at most. The frames of a task's upper page tables
//! are not there. Unmapping frees as if the whole range were one gather. Visible as: a page of page
//! table too few per task and GiB; a range unmapped under memory pressure frees nothing later than it
//! could. The parts of a huge page that is split go to the head of its list instead of to its place on
//! it. Visible as: they are scanned later than the kernel would.
//!
//! A fault is two steps, so that the flow above can wait between them: [`Memory::touch`] says what is
//! missing, the flow finds a page for it ([`Memory::fault_request`]) or reads one, and an installing step
//! ([`Memory::map_page`], [`Memory::map_huge`], [`Memory::map_zero`], [`Memory::map_swapped`],
//! [`Memory::reuse_page`], [`Memory::map_file_page`]) maps it. [`Memory::touch_and_fault`] does all of it at
//! once for base pages as long as the fast path finds some. What is particular to files is in
//! [`crate::rmap`].

use crate::alloc::Request;
use crate::filemap::FileId;
use crate::frame::{End, PageFlags, State};
use crate::gfp::Gfp;
use crate::kernel_use::KernelUse;
use crate::memory::Memory;
use crate::page_table::{PTRS_PER_TABLE, Pmd, Pte, Slot, Unit, Vpn};
use crate::policy::{Activation, AnonEntry, HugePartialUnmap, SplitParts};
use crate::swap::CacheEntry;
use crate::tlb::TlbUsers;
use crate::types::{Access, CpuId, MemPolicy, Migratetype, NodeId, Order, Pfn};
use crate::vma::{HugeAdvice, ProcessId, Vma};
use crate::vmstat::Vm;
use crate::warm::AHEAD;
use crate::watermark::Mark;
use crate::zone::ZoneId;
use core::ops::Range;
use std_alloc::vec::Vec;

/// The owner of a page that nobody maps any more.
pub(crate) const NOBODY: u32 = u32::MAX;
/// Order of a huge page.
pub const HUGE_ORDER: Order = Order(9);
/// Entries that unmapping gathers before it frees (`tlb_batch_pages_flush`).
const GATHER_MAX: usize = 512;

/// What a fault found at its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// Nothing in the whole unit of 512 pages, which lies in the mapping: a huge page would fit.
    NoneHuge,
    /// Nothing.
    None,
    /// The zero page, to be written.
    Zero,
    /// The huge zero page, to be written.
    HugeZero,
    /// A page that may only be read, to be written.
    ReadOnly(Pfn),
    /// A page whose entry was closed, to learn who uses it.
    Hint(Pfn),
    /// Its content is in a slot.
    Swap(Slot),
    /// Nothing, in a mapping of a file.
    File {
        /// The file.
        file: FileId,
        /// Its page.
        index: u64,
    },
}

/// A touch that could not go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The page.
    pub vpn: Vpn,
    /// How it was touched.
    pub access: Access,
    /// What was found.
    pub kind: FaultKind,
    /// Whether a page for the page table is needed first.
    pub needs_table: bool,
    /// Whose memory it is.
    pub task: ProcessId,
    /// What was advised about huge pages here.
    pub huge: HugeAdvice,
    locked: bool,
}

/// How far a touch of a range came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touched {
    /// Base pages touched, those of huge pages included.
    pub pages: u32,
    /// Huge mappings among them, each counted once.
    pub huge: u32,
    /// Why it stopped, unless it came to the end.
    pub fault: Option<Fault>,
}

/// A range to touch, and who does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TouchRange {
    /// First page.
    pub start: Vpn,
    /// Number of pages.
    pub pages: u32,
    /// How.
    pub access: Access,
    /// On which CPU.
    pub cpu: CpuId,
    /// Stop where a huge page would fit, so that the flow may try one.
    pub stop_for_huge: bool,
    /// Faults at most, so that the flow can look at the clock.
    pub faults_max: u32,
    /// Stop where the node that a fault begins at has no page, so that the flow may reclaim it before it
    /// uses another one.
    pub stop_for_remote: bool,
    /// Stop where a page of a file is written that has no buffer head, so that the flow may give it one.
    pub stop_for_buffer: bool,
}

/// How much of a range lies on other nodes than its user.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemotePages {
    /// Base pages, those of huge pages included.
    pub pages: u32,
    /// Cache lines of page table there, of those that lead to base pages.
    pub table_lines: u32,
}

/// Entries of a page table in a cache line: 8 bytes each, of 64.
pub const PTES_PER_LINE: u32 = 8;

/// How far a touch with faults came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faulted {
    /// Base pages touched, faults included.
    pub pages: u32,
    /// Huge mappings among them, each counted once.
    pub huge: u32,
    /// Faults that were served with a page.
    pub faults: u32,
    /// Faults that were served with the zero page.
    pub zero_faults: u32,
    /// Pages of page table that were needed.
    pub tables: u32,
    /// Pages of files that became dirty.
    pub dirtied: u32,
    /// The fault that the flow has to serve, if one stopped it.
    pub fault: Option<Fault>,
}

impl Memory {
    /// Touches pages that are mapped already and stops at the first that is not; bits of the page table
    /// are set as a CPU would.
    ///
    /// # Panics
    /// If part of the range belongs to no mapping.
    pub fn touch(&mut self, start: Vpn, pages: u32, access: Access) -> Touched {
        let mut done = Touched { pages: 0, huge: 0, fault: None };
        while done.pages < pages && done.fault.is_none() {
            let at = Vpn(start.0 + done.pages);
            let vma = *self.spaces.find(at).expect("memory that is touched is mapped");
            let part = (pages - done.pages).min(vma.end.0 - at.0);
            let touched = self.touch_in(&vma, at, part, access);
            done.pages += touched.pages;
            done.huge += touched.huge;
            done.fault = touched.fault;
        }
        done
    }

    #[inline]
    pub(crate) fn touch_in(
        &mut self,
        vma: &Vma,
        start: Vpn,
        pages: u32,
        access: Access,
    ) -> Touched {
        let (need, set) = match access {
            Access::Read => (Pte::PRESENT, Pte::ACCESSED),
            Access::Write => (Pte::PRESENT | Pte::WRITE, Pte::ACCESSED | Pte::DIRTY),
        };
        let end = start.0 + pages;
        let (mut at, mut huge) = (start.0, 0);
        // The bits that matter, of which all but the last have to be set.
        let looked_at = need | Pte::PROTNONE;
        let table = &mut self.spaces.table;
        while at < end {
            let unit = &mut table.units[Vpn(at).unit()];
            let unit_end = ((at | (PTRS_PER_TABLE - 1)) + 1).min(end);
            match &mut unit.pmd {
                Pmd::Table => {
                    let entries = &mut table.ptes[at as usize..unit_end as usize];
                    let mut done = 0;
                    for pte in entries {
                        if pte.without(!looked_at) != need_pte(need) {
                            break;
                        }
                        *pte = pte.with(set);
                        done += 1;
                    }
                    at += done;
                    if at < unit_end {
                        break;
                    }
                }
                Pmd::Huge(pte) => {
                    if pte.without(!looked_at) != need_pte(need) {
                        break;
                    }
                    *pte = pte.with(set);
                    at = unit_end;
                    huge += 1;
                }
                Pmd::HugeZero if access == Access::Read => {
                    at = unit_end;
                    huge += 1;
                }
                Pmd::None | Pmd::HugeZero => break,
            }
        }
        let fault = if at < end { Some(self.fault_at(vma, Vpn(at), access)) } else { None };
        Touched { pages: at - start.0, huge, fault }
    }

    /// What a touch of `vpn` finds.
    pub(crate) fn fault_at(&self, vma: &Vma, vpn: Vpn, access: Access) -> Fault {
        let unit = self.spaces.table.units[vpn.unit()];
        let (kind, needs_table) = match unit.pmd {
            pmd if vma.file.is_some() => {
                let (file, index) = vma.file_page(vpn).expect("a mapping of a file");
                let mapped = self.spaces.table.pte(vpn).pfn();
                let kind = mapped.map_or(FaultKind::File { file, index }, FaultKind::ReadOnly);
                (kind, pmd == Pmd::None)
            }
            Pmd::None if vma.holds_unit(vpn) => (FaultKind::NoneHuge, true),
            Pmd::None => (FaultKind::None, true),
            Pmd::HugeZero => (FaultKind::HugeZero, false),
            Pmd::Huge(pte) => {
                let pfn = pte.pfn().expect("a huge page");
                let is_closed = pte.has(Pte::PROTNONE);
                (if is_closed { FaultKind::Hint(pfn) } else { FaultKind::ReadOnly(pfn) }, false)
            }
            Pmd::Table => {
                let pte = self.spaces.table.pte(vpn);
                let kind = if let Some(slot) = pte.slot() {
                    FaultKind::Swap(slot)
                } else if pte.is_none() {
                    FaultKind::None
                } else if let Some(pfn) = pte.pfn() {
                    let is_closed = pte.has(Pte::PROTNONE);
                    if is_closed { FaultKind::Hint(pfn) } else { FaultKind::ReadOnly(pfn) }
                } else {
                    FaultKind::Zero
                };
                (kind, false)
            }
        };
        let Vma { task, huge, locked, .. } = *vma;
        Fault { vpn, access, kind, needs_table, task, huge, locked }
    }

    /// The request for a page of `order` to serve a fault on a CPU of `node`, and the nodes it may come
    /// from.
    #[must_use]
    pub fn fault_request(
        &self,
        fault: &Fault,
        order: Order,
        gfp: Gfp,
        cpu: CpuId,
    ) -> (Request, u64) {
        let vma = self.spaces.find(fault.vpn).expect("a fault lies in a mapping");
        self.vma_request(vma, fault.vpn, order, gfp, cpu)
    }

    /// What of a range lies on other nodes than `node`; nothing where there is no other.
    #[must_use]
    pub fn remote_pages(&self, start: Vpn, pages: u32, node: NodeId) -> RemotePages {
        let mut remote = RemotePages::default();
        if self.machine.nr_nodes() == 1 {
            return remote;
        }
        let end = start.0 + pages;
        let mut at = start.0;
        while at < end {
            let unit_end = end.min((at | (PTRS_PER_TABLE - 1)) + 1);
            let Unit { pmd, table, .. } = self.spaces.table.units[Vpn(at).unit()];
            match pmd {
                Pmd::Huge(huge) => {
                    let is_remote = huge.pfn().is_some_and(|head| self.node_of(head) != node);
                    remote.pages += if is_remote { unit_end - at } else { 0 };
                }
                Pmd::Table => {
                    let ptes = &self.spaces.table.ptes[at as usize..unit_end as usize];
                    let pfns = ptes.iter().filter_map(|pte| pte.pfn());
                    remote.pages += pfns.filter(|&pfn| self.node_of(pfn) != node).count() as u32;
                    if table.is_some_and(|table| self.node_of(table) != node) {
                        remote.table_lines += (unit_end - at).div_ceil(PTES_PER_LINE);
                    }
                }
                Pmd::None | Pmd::HugeZero => {}
            }
            at = unit_end;
        }
        remote
    }

    /// The node that a frame belongs to.
    #[must_use]
    pub fn node_of(&self, pfn: Pfn) -> NodeId {
        self.zones[self.zone_of(pfn).index()].node
    }

    /// The request for a page that the kernel needs for a task, such as one of its page table: it follows
    /// the task's policy, not the mapping's. As [`Self::fault_request`] otherwise.
    ///
    /// Departs: tables of a task that interleaves or prefers many nodes come from its CPU's node. Visible as: up
    /// to one page in 512 lies on another node than the kernel would take it from.
    #[must_use]
    pub fn task_request(&self, task: ProcessId, gfp: Gfp, cpu: CpuId) -> (Request, u64) {
        let node = self.machine.cpu_nodes[cpu.index()];
        let placement = match self.spaces.task_policy(task) {
            MemPolicy::Interleave(_) | MemPolicy::PreferredMany(_) => {
                MemPolicy::Default.placement(0, node)
            }
            policy => policy.placement(0, node),
        };
        let request =
            Request { order: Order(0), gfp, cpu, node: placement.node, past_lists: false };
        (request, placement.allowed)
    }

    #[inline]
    fn vma_request(
        &self,
        vma: &Vma,
        vpn: Vpn,
        order: Order,
        gfp: Gfp,
        cpu: CpuId,
    ) -> (Request, u64) {
        // Of a huge page its place counts, not the page of it that is touched first.
        let index = ((vpn.0 >> order.0 << order.0) - vma.origin.0) >> order.0;
        let placement = vma.policy.placement(index, self.machine.cpu_nodes[cpu.index()]);
        let request = Request { order, gfp, cpu, node: placement.node, past_lists: false };
        (request, placement.allowed)
    }

    /// Touches a range and serves its faults on base pages, as long as the fast path finds free pages
    /// and nothing has to be read.
    ///
    /// # Panics
    /// If part of the range belongs to no mapping.
    pub fn touch_and_fault(&mut self, range: TouchRange) -> Faulted {
        let mut done = Faulted::default();
        while done.pages < range.pages {
            let start = Vpn(range.start.0 + done.pages);
            let vma = *self.spaces.find(start).expect("memory that is touched is mapped");
            let pages = (range.pages - done.pages).min(vma.end.0 - start.0);
            let faults_max = range.faults_max - done.faults - done.zero_faults;
            let part =
                self.touch_and_fault_in(&vma, TouchRange { start, pages, faults_max, ..range });
            done.pages += part.pages;
            done.huge += part.huge;
            done.faults += part.faults;
            done.zero_faults += part.zero_faults;
            done.tables += part.tables;
            done.dirtied += part.dirtied;
            done.fault = part.fault;
            if part.pages < pages {
                break;
            }
        }
        done
    }

    fn touch_and_fault_in(&mut self, vma: &Vma, range: TouchRange) -> Faulted {
        if vma.file.is_some() {
            return self.touch_and_fault_file(vma, range);
        }
        let end = range.start.0 + range.pages;
        let gfp = Gfp::HIGHUSER_MOVABLE | Gfp::ZERO;
        let (first, _) = self.vma_request(vma, range.start, Order(0), gfp, range.cpu);
        let flags = self.fast_path_flags(first);
        let mut done = Faulted::default();
        let mut at = range.start;
        while at.0 < end {
            let touched = self.touch_in(vma, at, end - at.0, range.access);
            done.huge += touched.huge;
            at.0 += touched.pages;
            let Some(fault) = touched.fault else { break };
            let huge = fault.kind == FaultKind::NoneHuge && vma.huge != HugeAdvice::NoHuge;
            let simple =
                matches!(fault.kind, FaultKind::NoneHuge | FaultKind::None | FaultKind::Zero);
            if !simple || huge && range.stop_for_huge {
                done.fault = Some(fault);
                break;
            }
            if done.faults + done.zero_faults >= range.faults_max {
                break;
            }
            if fault.needs_table {
                let gfp = Gfp::KERNEL | Gfp::ZERO;
                let (request, allowed) = self.task_request(vma.task, gfp, range.cpu);
                let flags = self.fast_path_flags(request);
                let low = Some(Mark::Low);
                let Some(pfn) = self.get_page_from_nodes(request, allowed, low, flags) else {
                    done.fault = Some(fault);
                    break;
                };
                self.map_table(&fault, pfn);
                done.tables += 1;
            }
            // The run of pages that are missing: their faults need no look at the mapping again.
            let mut run = None;
            let run_end = end.min((at.0 | (PTRS_PER_TABLE - 1)) + 1);
            while at.0 < run_end && done.faults + done.zero_faults < range.faults_max {
                let pte = self.spaces.table.pte(at);
                let is_zero = pte.is_zero() && range.access == Access::Write;
                if !pte.is_none() && !is_zero {
                    break;
                }
                if range.access == Access::Read {
                    self.spaces.table.set_pte(at, Pte::zero());
                    done.zero_faults += 1;
                } else {
                    let (request, mut allowed) =
                        self.vma_request(vma, at, Order(0), gfp, range.cpu);
                    if range.stop_for_remote {
                        allowed &= request.node.bit();
                    }
                    let Some(pfn) =
                        self.get_page_from_nodes(request, allowed, Some(Mark::Low), flags)
                    else {
                        done.fault = Some(self.fault_at(vma, at, range.access));
                        break;
                    };
                    let id = self.zone_of(pfn);
                    if run.is_some_and(|(zone, _)| zone != id) {
                        self.account_run(run.take(), vma.task);
                    }
                    run.get_or_insert((id, 0)).1 += 1;
                    self.install(vma, at, pfn, range.cpu);
                    done.faults += 1;
                }
                at.0 += 1;
            }
            self.account_run(run, vma.task);
            if done.fault.is_some() {
                break;
            }
        }
        done.pages = at.0 - range.start.0;
        self.work.pages_cleared += u64::from(done.faults + done.tables);
        self.vm.add(Vm::PgFault, u64::from(done.faults + done.zero_faults));
        done
    }

    /// Counts pages that were allocated in a zone and mapped.
    fn account_run(&mut self, run: Option<(ZoneId, u32)>, task: ProcessId) {
        let Some((id, pages)) = run else { return };
        let pages = u64::from(pages);
        let lruvec = self.lru.of_zone(id);
        self.lru.lruvecs[lruvec].stats.nr_anon_mapped += pages;
        self.spaces.task_mut(task).anon += pages;
        self.vm.add_in(Vm::PgAlloc, self.zones[id.index()].kind, pages);
    }

    /// Maps a fresh page at a place that has a table; it is still to be counted.
    #[inline]
    fn install(&mut self, vma: &Vma, vpn: Vpn, pfn: Pfn, cpu: CpuId) {
        let bits = Pte::WRITE | Pte::DIRTY | Pte::ACCESSED;
        self.spaces.table.set_pte(vpn, Pte::page(pfn, bits));
        self.adopt(pfn, vpn, vma.locked, cpu);
    }

    /// Makes a fresh page an anonymous one of `vpn`, on its way to the LRU.
    #[inline]
    fn adopt(&mut self, pfn: Pfn, vpn: Vpn, locked: bool, cpu: CpuId) {
        let mut flags = PageFlags::ANON;
        if locked {
            flags |= PageFlags::UNEVICTABLE;
            let pages = self.nr_pages(pfn);
            self.vm.add(Vm::UnevictablePgsMlocked, pages);
        } else if self.policy.lru.anon == AnonEntry::Active || self.faults_enter_youngest() {
            flags |= PageFlags::ACTIVE;
        }
        self.frames.adopt(pfn, vpn.0, flags);
        self.lru_cache_add(pfn, cpu);
    }

    #[inline]
    pub(crate) fn account_mapped(&mut self, pfn: Pfn, task: ProcessId, pages: i64) {
        let lruvec = self.lruvec_of(pfn);
        let mapped = &mut self.lru.lruvecs[lruvec].stats.nr_anon_mapped;
        *mapped = mapped.wrapping_add_signed(pages);
        let anon = &mut self.spaces.task_mut(task).anon;
        *anon = anon.wrapping_add_signed(pages);
    }

    /// Uses `pfn` as the page table that a fault needs.
    ///
    /// # Panics
    /// If there is one already.
    pub fn map_table(&mut self, fault: &Fault, pfn: Pfn) {
        let unit = &mut self.spaces.table.units[fault.vpn.unit()];
        assert_eq!(unit.pmd, Pmd::None, "a unit has one table");
        unit.pmd = Pmd::Table;
        unit.table = Some(pfn);
        self.account_table(pfn, fault.task, 1);
        self.count_alloc(pfn, 1);
    }

    fn account_table(&mut self, pfn: Pfn, task: ProcessId, nr: i64) {
        if nr > 0 {
            self.set_kernel_use(pfn, KernelUse::PageTable);
        }
        let lruvec = self.lruvec_of(pfn);
        let tables = &mut self.lru.lruvecs[lruvec].stats.nr_page_table;
        *tables = tables.wrapping_add_signed(nr);
        let tables = &mut self.spaces.task_mut(task).tables;
        *tables = tables.wrapping_add_signed(nr);
    }

    /// Serves a fault with a fresh page of zeros, or a copy of the zero page.
    ///
    /// # Panics
    /// If something else is mapped there, or a table is missing.
    #[doc(alias = "do_anonymous_page")]
    pub fn map_page(&mut self, fault: &Fault, pfn: Pfn, cpu: CpuId) {
        assert_eq!(self.spaces.table.pmd(fault.vpn), Pmd::Table, "a table comes first");
        let pte = self.spaces.table.pte(fault.vpn);
        assert!(pte.is_none() || pte.is_zero(), "{} is mapped already", fault.vpn);
        let vma = *self.spaces.find(fault.vpn).expect("a fault lies in a mapping");
        self.install(&vma, fault.vpn, pfn, cpu);
        self.account_run(Some((self.zone_of(pfn), 1)), fault.task);
        self.work.pages_cleared += 1;
        self.vm.add(Vm::PgFault, 1);
    }

    /// Serves a read fault with the zero page.
    ///
    /// # Panics
    /// If something is mapped there, or a table is missing.
    pub fn map_zero(&mut self, fault: &Fault) {
        assert_eq!(self.spaces.table.pmd(fault.vpn), Pmd::Table, "a table comes first");
        assert!(self.spaces.table.pte(fault.vpn).is_none(), "{} is mapped already", fault.vpn);
        self.spaces.table.set_pte(fault.vpn, Pte::zero());
        self.vm.add(Vm::PgFault, 1);
    }

    /// Serves a fault with a huge page of zeros and deposits a page for its table; in place of the huge
    /// zero page, whose table is there, none is given.
    ///
    /// # Panics
    /// If something else is mapped in the unit.
    pub fn map_huge(&mut self, fault: &Fault, pfn: Pfn, table: Option<Pfn>, cpu: CpuId) {
        let vpn = fault.vpn.unit_start();
        if let Some(table) = table {
            let unit = &mut self.spaces.table.units[vpn.unit()];
            assert_eq!(unit.table, None, "a unit has one table");
            unit.table = Some(table);
            self.account_table(table, fault.task, 1);
            self.count_alloc(table, 1);
        }
        let vma = *self.spaces.find(vpn).expect("a fault lies in a mapping");
        self.install_huge(&vma, vpn, pfn, cpu);
        self.work.huge_pages_cleared += 1;
        self.vm.add(Vm::PgFault, 1);
        self.vm.add(Vm::ThpFaultAlloc, 1);
    }

    /// Maps a huge page in a unit whose table, if it needs one, is there.
    pub(crate) fn install_huge(&mut self, vma: &Vma, vpn: Vpn, pfn: Pfn, cpu: CpuId) {
        let unit = &mut self.spaces.table.units[vpn.unit()];
        assert!(matches!(unit.pmd, Pmd::None | Pmd::HugeZero), "the unit is in use");
        unit.pmd = Pmd::Huge(Pte::page(pfn, Pte::WRITE | Pte::DIRTY | Pte::ACCESSED));
        self.adopt(pfn, vpn, vma.locked, cpu);
        self.account_run(Some((self.zone_of(pfn), HUGE_ORDER.pages())), vma.task);
        let lruvec = self.lruvec_of(pfn);
        self.lru.lruvecs[lruvec].stats.nr_anon_huge += 1;
    }

    /// Serves a read fault with the huge zero page, and deposits a page for its table.
    ///
    /// # Panics
    /// If something is mapped in the unit.
    pub fn map_huge_zero(&mut self, fault: &Fault, table: Pfn) {
        let unit = &mut self.spaces.table.units[fault.vpn.unit()];
        assert_eq!(unit.pmd, Pmd::None, "the unit is in use");
        unit.pmd = Pmd::HugeZero;
        unit.table = Some(table);
        self.account_table(table, fault.task, 1);
        self.count_alloc(table, 1);
        self.vm.add(Vm::PgFault, 1);
    }

    /// Puts 512 zero pages in place of the huge one, so that one of them can be written.
    ///
    /// # Panics
    /// If the unit does not map the huge zero page.
    pub fn split_huge_zero(&mut self, vpn: Vpn) {
        let unit = &mut self.spaces.table.units[vpn.unit()];
        assert_eq!(unit.pmd, Pmd::HugeZero, "the unit maps the huge zero page");
        unit.pmd = Pmd::Table;
        let start = vpn.unit_start();
        for i in 0..PTRS_PER_TABLE {
            self.spaces.table.set_pte(Vpn(start.0 + i), Pte::zero());
        }
        self.vm.add(Vm::ThpSplitPmd, 1);
    }

    /// Serves a write to a page that was mapped to be read: it has no other user, so it is written in
    /// place. A copy in the swap cache gives its slot back.
    ///
    /// # Panics
    /// If the page is not mapped there.
    #[doc(alias = "do_wp_page")]
    pub fn reuse_page(&mut self, fault: &Fault) {
        let pfn = self.spaces.table.frame_at(fault.vpn).expect("the page is mapped");
        if self.frames.state(pfn) != State::Inner {
            self.try_to_free_swap(pfn);
        }
        let bits = Pte::WRITE | Pte::DIRTY | Pte::ACCESSED;
        let unit = &mut self.spaces.table.units[fault.vpn.unit()];
        if let Pmd::Huge(pte) = &mut unit.pmd {
            *pte = pte.with(bits);
        } else {
            let pte = self.spaces.table.pte(fault.vpn).with(bits);
            self.spaces.table.set_pte(fault.vpn, pte);
        }
        self.vm.add(Vm::PgFault, 1);
    }

    /// Serves a fault on a page in swap with its copy in the swap cache, which has been read. `major`
    /// says that the fault waited for it.
    ///
    /// # Panics
    /// If there is no copy, or it is still being read.
    #[doc(alias = "do_swap_page")]
    pub fn map_swapped(&mut self, fault: &Fault, slot: Slot, major: bool) {
        self.map_swap_copy(fault, slot);
        self.vm.add(Vm::PgFault, 1);
        if major {
            self.vm.add(Vm::PgMajFault, 1);
        }
    }

    /// As [`Memory::map_swapped`], for somebody who took no fault: nothing is counted.
    ///
    /// # Panics
    /// As there.
    pub fn map_swap_copy(&mut self, fault: &Fault, slot: Slot) {
        let CacheEntry::Page(pfn) = self.swap.cached(slot) else {
            panic!("{slot:?} has no copy in memory")
        };
        let head = self.frames.head_of(pfn);
        assert!(!self.frames.has(head, PageFlags::LOCKED), "{head} is still being read");
        assert_eq!(self.spaces.table.pte(fault.vpn).slot(), Some(slot), "the entry names the slot");
        let write = fault.access == Access::Write;
        self.unmap_slot(slot, Some(fault.vpn));
        self.spaces.task_mut(fault.task).swap -= 1;
        // Only a write needs the page alone; a read leaves the slot, so that the page stays clean.
        let free = (self.swap.is_half_full() || fault.locked || write) && head == pfn;
        if free {
            self.try_to_free_swap(pfn);
        }
        let mut bits = Pte::ACCESSED;
        if write {
            bits |= Pte::WRITE | Pte::DIRTY;
        }
        self.spaces.table.set_pte(fault.vpn, Pte::page(pfn, bits));
        self.account_mapped(pfn, fault.task, 1);
        if fault.locked {
            self.make_unevictable(head);
        } else if self.policy.lru.swapins_activate {
            self.activate_page(head);
        }
    }

    pub(crate) fn make_unevictable(&mut self, pfn: Pfn) {
        if self.frames.has(pfn, PageFlags::UNEVICTABLE) {
            return;
        }
        let listed = self.frames.has(pfn, PageFlags::LRU);
        if listed {
            self.del_page_from_lru(pfn);
        }
        self.frames.clear_flags(pfn, PageFlags::ACTIVE | PageFlags::REFERENCED);
        self.frames.set_flags(pfn, PageFlags::UNEVICTABLE);
        let pages = self.nr_pages(pfn);
        self.vm.add(Vm::UnevictablePgsMlocked, pages);
        if listed {
            self.relist(pfn);
        }
    }

    pub(crate) fn make_evictable(&mut self, pfn: Pfn) {
        if !self.frames.has(pfn, PageFlags::UNEVICTABLE) {
            return;
        }
        let listed = self.frames.has(pfn, PageFlags::LRU);
        if listed {
            self.del_page_from_lru(pfn);
        }
        self.frames.clear_flags(pfn, PageFlags::UNEVICTABLE);
        let pages = self.nr_pages(pfn);
        self.vm.add(Vm::UnevictablePgsMunlocked, pages);
        if listed {
            self.vm.add(Vm::UnevictablePgsRescued, pages);
            self.relist(pfn);
        }
    }

    /// Locks a range into memory, or no longer. What is mapped moves at once; what is not is for the
    /// flow to fault in. A huge page of which only a part is meant keeps its place.
    pub fn mlock(&mut self, range: Range<Vpn>, locked: bool) {
        self.spaces.change(range.clone(), |vma| vma.locked = locked);
        let mut at = range.start;
        while at < range.end {
            match self.spaces.table.pmd(at) {
                Pmd::Huge(pte) => {
                    let unit_end = at.unit_start().0 + PTRS_PER_TABLE;
                    if at == at.unit_start() && unit_end <= range.end.0 {
                        self.lock_page(pte.pfn().expect("a huge page"), locked);
                    }
                    at.0 = unit_end;
                }
                Pmd::Table => {
                    if let Some(pfn) = self.spaces.table.pte(at).pfn()
                        && self.frames.state(pfn) != State::Inner
                        && self.frames.order(pfn) == Order(0)
                    {
                        self.lock_page(pfn, locked);
                    }
                    at.0 += 1;
                }
                Pmd::None | Pmd::HugeZero => at.0 = at.unit_start().0 + PTRS_PER_TABLE,
            }
        }
    }

    fn lock_page(&mut self, pfn: Pfn, locked: bool) {
        if locked {
            self.make_unevictable(pfn);
        } else if self.frames.has(pfn, PageFlags::ANON) {
            self.make_evictable(pfn);
        } else {
            self.munlock_file_page(pfn);
        }
    }

    /// Whether nobody maps the page and nothing else keeps it.
    pub(crate) fn is_abandoned(&self, pfn: Pfn) -> bool {
        self.frames.has(pfn, PageFlags::ANON)
            && !self.frames.has(pfn, PageFlags::SWAPCACHE)
            && self.frames.owner(pfn) == NOBODY
            && !self.is_shmem(pfn)
    }

    /// The content of a range goes (`MADV_DONTNEED`); the mapping stays.
    pub fn dontneed(&mut self, range: Range<Vpn>, cpu: CpuId) {
        let mut gather = Vec::new();
        for vma in self.spaces.vmas_in(range.clone()) {
            self.zap(&vma, vma.start.max(range.start)..vma.end.min(range.end), cpu, &mut gather);
        }
        let users = self.tlb_user_at(range.start);
        self.flush_gather(users, &mut gather, cpu);
    }

    /// Takes the mappings of a range down, page tables included.
    pub fn munmap(&mut self, range: Range<Vpn>, cpu: CpuId) {
        let mut gather = Vec::new();
        let vmas = self.spaces.vmas_in(range.clone());
        let users = self.tlb_user_at(range.start);
        for vma in &vmas {
            self.zap(vma, vma.start.max(range.start)..vma.end.min(range.end), cpu, &mut gather);
        }
        self.spaces.forget(range.clone());
        // Tables of units that no mapping reaches into any more, behind the pages.
        for vma in &vmas {
            let (start, end) = (vma.start.max(range.start), vma.end.min(range.end));
            for unit in start.unit()..=Vpn(end.0 - 1).unit() {
                let first = Vpn(unit as u32 * PTRS_PER_TABLE);
                let last = Vpn(first.0 + PTRS_PER_TABLE);
                if !self.spaces.vmas_in(first..last).is_empty() {
                    continue;
                }
                let Unit { table, .. } = core::mem::take(&mut self.spaces.table.units[unit]);
                if let Some(table) = table {
                    self.account_table(table, vma.task, -1);
                    gather.push(table);
                }
            }
        }
        self.flush_gather(users, &mut gather, cpu);
    }

    /// Frees what was gathered, after the CPU's batch went to the lists.
    fn flush_gather(&mut self, users: TlbUsers, gather: &mut Vec<Pfn>, cpu: CpuId) {
        if gather.is_empty() {
            return;
        }
        self.flush_tlb(users);
        self.lru_add_drain(cpu);
        let mut batch = Vec::new();
        for chunk in gather.chunks(GATHER_MAX) {
            for (number, &pfn) in chunk.iter().enumerate() {
                if let Some(&later) = chunk.get(number + 2 * AHEAD) {
                    self.frames.warm(later);
                }
                if let Some(&soon) = chunk.get(number + AHEAD) {
                    self.frames.warm_beside(soon);
                }
                if self.frames.has(pfn, PageFlags::SWAPCACHE) && !self.try_to_free_swap(pfn) {
                    // Being read or written, or of a huge page partly in swap: reclaim finds it.
                    continue;
                }
                if self.frames.has(pfn, PageFlags::BATCHED | PageFlags::ISOLATED) {
                    // Another CPU's batch, or a compaction, holds it and frees it later.
                    self.frames.set_owner(pfn, NOBODY);
                    continue;
                }
                if self.frames.has(pfn, PageFlags::LRU) {
                    self.del_page_from_lru(pfn);
                }
                batch.push(pfn);
            }
            self.free_batch(&mut batch, cpu);
        }
        gather.clear();
    }

    fn zap(&mut self, vma: &Vma, range: Range<Vpn>, cpu: CpuId, gather: &mut Vec<Pfn>) {
        let mut at = range.start;
        while at < range.end {
            let unit_end = Vpn(at.unit_start().0 + PTRS_PER_TABLE);
            let end = unit_end.min(range.end);
            let whole = at == at.unit_start() && end == unit_end;
            match self.spaces.table.pmd(at) {
                Pmd::None => {}
                Pmd::Huge(pte) if whole => self.zap_huge(vma, at, pte, gather),
                Pmd::HugeZero if whole => self.drop_unit(vma, at, gather),
                Pmd::HugeZero => {
                    self.split_huge_zero(at);
                    self.zap_table(vma, at..end, cpu, gather);
                }
                Pmd::Huge(pte) => {
                    let head = pte.pfn().expect("a huge page");
                    match self.policy.reclaim.huge_partial_unmap {
                        HugePartialUnmap::Split => self.split_huge_page(head, cpu),
                        HugePartialUnmap::Defer => self.split_huge_pmd(at),
                    }
                    self.zap_table(vma, at..end, cpu, gather);
                }
                Pmd::Table => self.zap_table(vma, at..end, cpu, gather),
            }
            at = end;
        }
    }

    /// Takes a unit's entry away, and the table deposited under it, which goes before the page.
    fn drop_unit(&mut self, vma: &Vma, vpn: Vpn, gather: &mut Vec<Pfn>) {
        let Unit { table, .. } = core::mem::take(&mut self.spaces.table.units[vpn.unit()]);
        if let Some(table) = table {
            self.account_table(table, vma.task, -1);
            gather.push(table);
        }
    }

    fn zap_huge(&mut self, vma: &Vma, vpn: Vpn, pte: Pte, gather: &mut Vec<Pfn>) {
        let head = pte.pfn().expect("a huge page");
        self.drop_unit(vma, vpn, gather);
        let pages = i64::from(HUGE_ORDER.pages());
        self.account_mapped(head, vma.task, -pages);
        let lruvec = self.lruvec_of(head);
        self.lru.lruvecs[lruvec].stats.nr_anon_huge -= 1;
        self.work.ptes_scanned += 1;
        gather.push(head);
    }

    #[doc(alias = "zap_pte_range")]
    fn zap_table(&mut self, vma: &Vma, range: Range<Vpn>, cpu: CpuId, gather: &mut Vec<Pfn>) {
        let mut any_file = false;
        for at in range.start.0..range.end.0 {
            let vpn = Vpn(at);
            let soon = at + AHEAD as u32;
            if soon < range.end.0
                && let Some(pfn) = self.spaces.table.pte(Vpn(soon)).pfn()
            {
                self.frames.warm(pfn);
            }
            let pte = self.spaces.table.pte(vpn);
            if pte.is_none() {
                continue;
            }
            self.spaces.table.set_pte(vpn, Pte::NONE);
            self.work.ptes_scanned += 1;
            if let Some(slot) = pte.slot() {
                self.spaces.task_mut(vma.task).swap -= 1;
                self.unmap_slot(slot, None);
                if let CacheEntry::Page(pfn) = self.swap.cached(slot) {
                    self.free_unused_copy(self.frames.head_of(pfn), gather);
                }
                continue;
            }
            let Some(pfn) = pte.pfn() else { continue };
            if vma.file.is_some() {
                self.zap_file_pte(vma, pte, pfn, cpu);
                any_file = true;
                continue;
            }
            self.account_mapped(pfn, vma.task, -1);
            let head = self.frames.head_of(pfn);
            if self.frames.order(head) == Order(0) {
                if let Some(slot) = self.slot_of(pfn) {
                    self.swap.set_owner(slot, None);
                }
                gather.push(pfn);
            } else {
                self.unmap_part(head, gather);
            }
        }
        // Pages of files are not gathered to be freed, but CPUs have to be told of their entries too.
        if any_file {
            self.flush_tlb(TlbUsers::of(vma.task));
        }
    }

    /// A copy in the swap cache that nobody maps or names goes, unless it is being read or written.
    fn free_unused_copy(&mut self, head: Pfn, gather: &mut Vec<Pfn>) {
        let busy = PageFlags::LOCKED | PageFlags::WRITEBACK;
        if !self.frames.has(head, busy) && self.frames.order(head) == Order(0) {
            gather.push(head);
        }
    }

    /// Part of a huge page was unmapped: the page waits to be split, or goes with its last part.
    fn unmap_part(&mut self, head: Pfn, gather: &mut Vec<Pfn>) {
        if !self.has_mapped_part(head) {
            self.lru.deferred_split.remove(head);
            gather.push(head);
        } else if self.lru.deferred_split.push(head) {
            self.vm.add(Vm::ThpDeferredSplitPage, 1);
        }
    }

    /// The first virtual page of an anonymous page, whether it is in the swap cache or not.
    #[must_use]
    pub fn vpn_of(&self, head: Pfn) -> Option<Vpn> {
        match self.slot_of(head) {
            // A part whose entry is gone names nobody; the others do.
            Some(slot) => (0..self.frames.order(head).pages())
                .find_map(|i| self.swap.owner(Slot(slot.0 + i)).map(|vpn| Vpn(vpn.0 - i))),
            None => Some(self.frames.owner(head)).filter(|&o| o != NOBODY).map(Vpn),
        }
    }

    /// Base pages of a page that are mapped (`folio_mapcount`).
    #[must_use]
    pub fn mapped_parts(&self, head: Pfn) -> u32 {
        self.parts_mapped(head).count() as u32
    }

    /// Whether any part of a page is mapped (`folio_mapped`).
    #[must_use]
    pub fn has_mapped_part(&self, head: Pfn) -> bool {
        self.parts_mapped(head).next().is_some()
    }

    /// The base pages of a page that are mapped, by their places in it.
    fn parts_mapped(&self, head: Pfn) -> impl Iterator<Item = u32> {
        let table = &self.spaces.table;
        let places = self.vpn_of(head).map(|vpn| {
            let is_whole = matches!(table.pmd(vpn), Pmd::Huge(pte) if pte.pfn() == Some(head));
            let is_mapped =
                move |i: &u32| is_whole || table.pte(Vpn(vpn.0 + i)).pfn() == Some(head + *i);
            (0..self.frames.order(head).pages()).filter(is_mapped)
        });
        places.into_iter().flatten()
    }

    /// Maps a huge page by base pages' entries; the page stays whole (`split_huge_pmd`).
    ///
    /// # Panics
    /// If the unit maps no huge page.
    pub fn split_huge_pmd(&mut self, vpn: Vpn) {
        let start = vpn.unit_start();
        let Pmd::Huge(pte) = self.spaces.table.pmd(start) else { panic!("no huge page at {vpn}") };
        let head = pte.pfn().expect("a huge page");
        let bits =
            [Pte::WRITE, Pte::DIRTY, Pte::ACCESSED].into_iter().filter(|&b| pte.has(b)).sum();
        self.spaces.table.units[start.unit()].pmd = Pmd::Table;
        for i in 0..PTRS_PER_TABLE {
            self.spaces.table.set_pte(Vpn(start.0 + i), Pte::page(head + i, bits));
        }
        let lruvec = self.lruvec_of(head);
        self.lru.lruvecs[lruvec].stats.nr_anon_huge -= 1;
        self.work.ptes_scanned += u64::from(PTRS_PER_TABLE);
        self.vm.add(Vm::ThpSplitPmd, 1);
    }

    /// The huge page that all of a unit is mapped by, if it is on its list or on its way there.
    #[must_use]
    pub fn listed_huge_page(&self, vpn: Vpn) -> Option<Pfn> {
        let Pmd::Huge(pte) = self.spaces.table.pmd(vpn.unit_start()) else { return None };
        let on_list_or_way = PageFlags::LRU | PageFlags::BATCHED;
        pte.pfn().filter(|&pfn| self.frames.has(pfn, on_list_or_way))
    }

    /// Splits a huge page into 512 base pages. Those that are not mapped are freed; the others take its
    /// place on the list, the first part nearest the head.
    ///
    /// # Panics
    /// If the page is no anonymous page of more than one page, or in the swap cache.
    pub fn split_huge_page(&mut self, head: Pfn, cpu: CpuId) {
        let order = self.frames.order(head);
        assert!(order > Order(0) && self.frames.has(head, PageFlags::ANON), "{head} is not huge");
        assert!(self.slot_of(head).is_none(), "{head} is in the swap cache");
        let vpn = self.vpn_of(head).expect("a huge page is mapped");
        if matches!(self.spaces.table.pmd(vpn), Pmd::Huge(_)) {
            self.split_huge_pmd(vpn);
            let users = self.tlb_user_at(vpn);
            // From 4.5 to 6.2 each part's entry makes way for one of migration by itself (`freeze_page`, `unmap_folio`).
            match self.policy.reclaim.huge_partial_unmap {
                HugePartialUnmap::Split => self.flush_entries(users, 1),
                HugePartialUnmap::Defer if !self.policy.compaction.batched => {
                    self.flush_entries(users, order.pages());
                }
                HugePartialUnmap::Defer => self.flush_tlb(users),
            }
        }
        let was_batched = self.frames.has(head, PageFlags::BATCHED);
        if was_batched {
            self.lru_add_drain_all();
        }
        // Nobody had told yet that it is active, and its parts are put at the end (`lru_add_page_tail`, v3.3).
        let parts_are_inactive = was_batched && self.policy.lru.activation == Activation::Batched;
        self.lru.deferred_split.remove(head);
        let listed = self.frames.has(head, PageFlags::LRU);
        let isolated = !listed;
        // Whoever has it off its list keeps the first part alone, but a batch that has it written.
        let is_held = self.frames.has(head, PageFlags::ISOLATED);
        let parts_are_listed =
            is_held || isolated && self.policy.reclaim.split_parts == SplitParts::ListTail;
        let kept = [
            PageFlags::ACTIVE,
            PageFlags::REFERENCED,
            PageFlags::UNEVICTABLE,
            PageFlags::WORKINGSET,
            PageFlags::DIRTY,
            PageFlags::ANON,
        ];
        let flags: Vec<PageFlags> =
            kept.into_iter().filter(|&flag| self.frames.has(head, flag)).collect();
        let generation = self.generation_of(head);
        if listed {
            self.del_page_from_lru(head);
        }
        let migratetype: Migratetype = self.frames.migratetype(head);
        let mut unmapped = Vec::new();
        for i in (0..order.pages()).rev() {
            let pfn = head + i;
            self.frames.set(pfn, State::Allocated, Order(0), migratetype);
            self.frames.set_movable(pfn, true);
            self.frames.set_owner(pfn, vpn.0 + i);
            for &flag in &flags {
                self.frames.set_flags(pfn, flag);
            }
            let is_mapped = self.spaces.table.pte(Vpn(vpn.0 + i)).pfn() == Some(pfn);
            if !is_mapped {
                self.frames.set_owner(pfn, NOBODY);
            }
            if is_held && i == 0 {
                self.frames.set_flags(pfn, PageFlags::ISOLATED);
            } else if !is_mapped {
                if isolated {
                    self.account_isolated(pfn, -1);
                }
                unmapped.push(pfn);
            } else if parts_are_listed && i > 0 {
                self.account_isolated(pfn, -1);
                self.add_page_to_lru(pfn, End::Tail);
                let lruvec = self.lruvec_of(pfn);
                self.lru.lruvecs[lruvec].recent_scanned[0] += 1;
            } else if listed && parts_are_inactive && i > 0 {
                self.frames.clear_flags(pfn, PageFlags::ACTIVE);
                self.add_page_to_lru(pfn, End::Tail);
            } else if listed {
                self.readd_to_generation(pfn, generation);
            }
        }
        unmapped.reverse();
        for pfn in unmapped {
            self.free_page(pfn, cpu);
        }
        let event =
            if self.policy.vmstat.thp_split_apart { Vm::ThpSplitPage } else { Vm::ThpSplit };
        self.vm.add(event, 1);
    }

    /// Splits the oldest huge page of which a part is unmapped (the shrinker's step). Returns the base
    /// pages freed.
    pub fn split_deferred(&mut self, cpu: CpuId) -> Option<u64> {
        let head = self.lru.deferred_split.iter().find(|&head| {
            // Whoever holds it besides its mappings keeps it whole.
            let busy = PageFlags::LOCKED
                | PageFlags::WRITEBACK
                | PageFlags::SWAPCACHE
                | PageFlags::ISOLATED;
            !self.frames.has(head, busy)
        })?;
        let freed = u64::from(self.frames.order(head).pages() - self.mapped_parts(head));
        self.split_huge_page(head, cpu);
        Some(freed)
    }
}

/// The entry that has exactly the bits `need`.
#[inline]
const fn need_pte(need: u64) -> Pte {
    Pte::NONE.with(need)
}
