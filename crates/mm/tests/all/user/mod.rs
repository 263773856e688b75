//! A machine whose tasks use memory, with a device that holds swap: the flows above `mm` in their
//! plainest form, and what every page's content ought to be beside them.

use highorder_mm::anon::{Fault, FaultKind, HUGE_ORDER, TouchRange};
use highorder_mm::gfp::Gfp;
use highorder_mm::lru::{LruList, LruvecId};
use highorder_mm::mglru::Eviction;
use highorder_mm::page_table::{Slot, Vpn};
use highorder_mm::policy::LruKind;
use highorder_mm::reclaim::{Reclaimer, ScanControl, Shrunk};
use highorder_mm::swap::SwapIo;
use highorder_mm::types::{Access, MemPolicy};
use highorder_mm::vma::{HugeAdvice, ProcessId};
use highorder_mm::{CpuId, Memory, Order, Pfn};
use std::collections::{BTreeMap, VecDeque};

/// A machine in use.
pub(crate) struct User {
    pub(crate) memory: Memory,
    /// Mappings: first page and length.
    pub(crate) areas: Vec<(Vpn, u32)>,
    /// How often each page was written; absent if it is still all zeros.
    pub(crate) versions: BTreeMap<u32, u64>,
    /// What each frame holds.
    content: Vec<u64>,
    /// What each slot holds on the device.
    disk: BTreeMap<u32, u64>,
    /// Writes under way, oldest first.
    pub(crate) writes: VecDeque<SwapIo>,
    /// A write ends as soon as it begins.
    pub(crate) sync_writes: bool,
    /// Huge pages are tried.
    pub(crate) huge: bool,
    pub(crate) oom: u64,
    pub(crate) swappiness: u8,
    /// Reclaim may write.
    pub(crate) may_writepage: bool,
    version: u64,
}

impl User {
    pub(crate) fn new(memory: Memory) -> Self {
        let content = vec![0; memory.frames().len()];
        Self {
            memory,
            areas: Vec::new(),
            versions: BTreeMap::new(),
            content,
            disk: BTreeMap::new(),
            writes: VecDeque::new(),
            sync_writes: false,
            huge: false,
            oom: 0,
            may_writepage: true,
            swappiness: 60,
            version: 0,
        }
    }

    pub(crate) fn mmap(&mut self, task: u32, pages: u32, policy: MemPolicy) -> Vpn {
        let start = self.memory.spaces.mmap(ProcessId(task), pages, policy);
        self.areas.push((start, pages));
        start
    }

    pub(crate) fn munmap(&mut self, which: usize, cpu: CpuId) {
        let (start, pages) = self.areas.swap_remove(which);
        self.memory.munmap(start..Vpn(start.0 + pages), cpu);
        self.forget(start, pages);
    }

    pub(crate) fn dontneed(&mut self, start: Vpn, pages: u32, cpu: CpuId) {
        self.memory.dontneed(start..Vpn(start.0 + pages), cpu);
        self.forget(start, pages);
    }

    fn forget(&mut self, start: Vpn, pages: u32) {
        self.versions.retain(|&vpn, _| vpn < start.0 || vpn >= start.0 + pages);
    }

    /// Touches one page and serves whatever fault comes of it. False if memory ran out.
    pub(crate) fn touch(&mut self, vpn: Vpn, access: Access, cpu: CpuId) -> bool {
        for _ in 0..1_000 {
            let touched = self.memory.touch(vpn, 1, access);
            let Some(fault) = touched.fault else {
                self.check(vpn);
                if access == Access::Write {
                    self.version += 1;
                    self.versions.insert(vpn.0, self.version);
                    let pfn = self.memory.spaces.table().frame_at(vpn).expect("it is mapped");
                    self.content[pfn.index()] = self.version;
                }
                return true;
            };
            if !self.serve(&fault, cpu) {
                self.oom += 1;
                return false;
            }
        }
        panic!("{vpn} faults for ever");
    }

    /// The content that is mapped is the one last written.
    fn check(&self, vpn: Vpn) {
        let wanted = self.versions.get(&vpn.0).copied().unwrap_or(0);
        let found = self.memory.spaces.table().frame_at(vpn);
        let found = found.map_or(0, |pfn| self.content[pfn.index()]);
        assert_eq!(found, wanted, "{vpn} lost what was written");
    }

    fn serve(&mut self, fault: &Fault, cpu: CpuId) -> bool {
        let huge_fits = fault.kind == FaultKind::NoneHuge && fault.huge != HugeAdvice::NoHuge;
        if huge_fits && self.huge && fault.access == Access::Write {
            let (request, _) =
                self.memory.fault_request(fault, HUGE_ORDER, Gfp::TRANSHUGE_LIGHT, cpu);
            if let Some(pfn) = self.memory.alloc_without_reclaim(request) {
                let Some(table) = self.page(fault, Gfp::KERNEL, cpu) else {
                    self.memory.free(pfn, HUGE_ORDER, cpu);
                    return false;
                };
                for i in 0..HUGE_ORDER.pages() {
                    self.content[(pfn.0 + i) as usize] = 0;
                }
                self.memory.map_huge(fault, pfn, Some(table), cpu);
                return true;
            }
        }
        if fault.needs_table {
            let Some(pfn) = self.page(fault, Gfp::KERNEL, cpu) else { return false };
            self.memory.map_table(fault, pfn);
            return true;
        }
        match fault.kind {
            FaultKind::HugeZero => self.memory.split_huge_zero(fault.vpn),
            FaultKind::ReadOnly(_) => self.memory.reuse_page(fault),
            FaultKind::Hint(_) => panic!("no entry is closed here"),
            FaultKind::Swap(slot) => return self.swap_in(fault, slot, cpu),
            FaultKind::File { .. } => panic!("no file is mapped here"),
            FaultKind::None | FaultKind::NoneHuge if fault.access == Access::Read => {
                self.memory.map_zero(fault);
            }
            FaultKind::None | FaultKind::NoneHuge | FaultKind::Zero => {
                let Some(pfn) = self.page(fault, Gfp::HIGHUSER_MOVABLE, cpu) else { return false };
                self.content[pfn.index()] = 0;
                self.memory.map_page(fault, pfn, cpu);
            }
        }
        true
    }

    fn swap_in(&mut self, fault: &Fault, slot: Slot, cpu: CpuId) -> bool {
        let Some(plan) = self.memory.swapin_plan(fault.vpn, slot) else {
            self.memory.map_swapped(fault, slot, false);
            return true;
        };
        let mut reads = Vec::new();
        // The page asked for first, so that there is memory for it.
        let mut slots = vec![slot];
        slots.extend(plan.slots().iter().copied().filter(|&other| other != slot));
        for other in slots {
            let pfn = if other == slot {
                self.page(fault, Gfp::HIGHUSER_MOVABLE, cpu)
            } else {
                let order = Order(0);
                let (request, _) =
                    self.memory.fault_request(fault, order, Gfp::HIGHUSER_MOVABLE, cpu);
                self.memory.get_page_from_freelist(
                    request,
                    Some(highorder_mm::watermark::Mark::Low),
                    self.memory.fast_path_flags(request),
                )
            };
            let Some(pfn) = pfn else { break };
            // Reclaim for this page may have taken what was planned.
            let wanted = self.memory.swap.is_mapped(other)
                && !matches!(
                    self.memory.swap.cached(other),
                    highorder_mm::swap::CacheEntry::Page(_)
                );
            if !wanted {
                self.memory.free(pfn, Order(0), cpu);
                continue;
            }
            reads.push(self.memory.begin_swapin(other, pfn, slot, cpu));
        }
        for read in &reads {
            let content = self.disk.get(&read.slot.0).copied();
            self.content[read.pfn.index()] = content.expect("only what was written is read");
            self.memory.end_swapin(read.pfn);
        }
        if reads.is_empty() {
            return false;
        }
        self.memory.map_swapped(fault, slot, true);
        true
    }

    /// A page for a fault, for which memory is reclaimed if there is none.
    fn page(&mut self, fault: &Fault, gfp: Gfp, cpu: CpuId) -> Option<Pfn> {
        for round in 0..40 {
            let (request, _) = self.memory.fault_request(fault, Order(0), gfp, cpu);
            let flags = self.memory.fast_path_flags(request);
            let mark = Some(highorder_mm::watermark::Mark::Min);
            if let Some(pfn) = self.memory.get_page_from_freelist(request, mark, flags) {
                return Some(pfn);
            }
            let priority = 12u8.saturating_sub(round / 3);
            for lruvec in self.memory.lru.ids() {
                self.reclaim(lruvec, priority, Reclaimer::Direct, cpu);
            }
            self.complete_writes(usize::MAX);
        }
        None
    }

    /// One pass of reclaim over some lists.
    pub(crate) fn reclaim(
        &mut self,
        lruvec: LruvecId,
        priority: u8,
        who: Reclaimer,
        cpu: CpuId,
    ) -> u64 {
        let mut sc = ScanControl::new(who, cpu, self.swappiness);
        sc.priority = priority;
        sc.may_writepage = self.may_writepage;
        let mut reclaimed = 0;
        if self.memory.policy.lru.kind == LruKind::MultiGenerational {
            let plan = self.memory.lru_gen_plan(lruvec, &sc);
            self.memory.lru_add_drain(cpu);
            if plan.age {
                self.memory.lru_gen_age(lruvec, &sc);
            }
            let mut scanned = 0;
            while scanned < plan.nr_to_scan && reclaimed < sc.nr_to_reclaim {
                let Eviction { shrunk, progress, .. } = self.lru_gen_evict(lruvec, &sc);
                scanned += progress;
                reclaimed += shrunk.nr_reclaimed;
                self.take(shrunk);
                if progress == 0 {
                    break;
                }
            }
            return reclaimed;
        }
        let mut plan = self.memory.plan_scan(lruvec, &sc);
        while let Some(shrunk) = self.memory.shrink_step(lruvec, &mut plan, &sc) {
            let shrunk = self.finish_batch(lruvec, shrunk, &sc);
            reclaimed += shrunk.nr_reclaimed;
            self.take(shrunk);
        }
        self.memory.age_active_anon(lruvec, &sc);
        self.memory.snapshot_refaults(lruvec);
        reclaimed
    }

    /// A batch of inactive pages as the memory shrinks it, without pauses.
    pub(crate) fn shrink_inactive_list(
        &mut self,
        lruvec: LruvecId,
        list: LruList,
        nr: u64,
        sc: &ScanControl,
    ) -> Shrunk {
        let shrunk = self.memory.shrink_inactive_list(lruvec, list, nr, sc);
        self.finish_batch(lruvec, shrunk, sc)
    }

    /// The same of a generation.
    pub(crate) fn lru_gen_evict(&mut self, lruvec: LruvecId, sc: &ScanControl) -> Eviction {
        let mut evicted = self.memory.lru_gen_evict(lruvec, sc);
        evicted.shrunk = self.finish_batch(lruvec, std::mem::take(&mut evicted.shrunk), sc);
        evicted
    }

    /// Goes on with a batch until all of it is decided.
    pub(crate) fn finish_batch(
        &mut self,
        lruvec: LruvecId,
        mut shrunk: Shrunk,
        sc: &ScanControl,
    ) -> Shrunk {
        while shrunk.rest.is_some() {
            self.memory.shrink_rest(lruvec, &mut shrunk, sc);
        }
        shrunk
    }

    fn take(&mut self, shrunk: Shrunk) {
        self.begin(shrunk.writes);
    }

    /// The device gets pages to write.
    pub(crate) fn begin(&mut self, writes: Vec<SwapIo>) {
        for io in writes {
            for i in 0..io.order.pages() {
                self.disk.insert(io.slot.0 + i, self.content[(io.pfn.0 + i) as usize]);
            }
            self.writes.push_back(io);
        }
        if self.sync_writes {
            self.complete_writes(usize::MAX);
        }
    }

    /// Pages have moved: what they hold is in other frames.
    pub(crate) fn follow(&mut self, moved: &[highorder_mm::compaction::Moved]) {
        for moved in moved {
            for i in 0..moved.order.pages() {
                self.content[(moved.to.0 + i) as usize] = self.content[(moved.from.0 + i) as usize];
            }
        }
    }

    pub(crate) fn complete_writes(&mut self, most: usize) {
        for _ in 0..most.min(self.writes.len()) {
            let io = self.writes.pop_front().expect("there is one");
            self.memory.end_writeback(io.pfn);
        }
    }

    /// Everything that should hold: the audit, the allocator's own invariants, that no frame is lost,
    /// and that everything written is still somewhere.
    pub(crate) fn audit(&self) -> Result<(), String> {
        self.memory.audit()?;
        self.memory.validate()?;
        for (&vpn, &version) in &self.versions {
            let vpn = Vpn(vpn);
            let table = self.memory.spaces.table();
            let found = match (table.frame_at(vpn), table.pte(vpn).slot()) {
                (Some(pfn), _) => self.content[pfn.index()],
                (None, Some(slot)) => match self.memory.swap.cached(slot) {
                    highorder_mm::swap::CacheEntry::Page(pfn) => self.content[pfn.index()],
                    _ => self.disk.get(&slot.0).copied().unwrap_or(0),
                },
                (None, None) => 0,
            };
            if found != version {
                return Err(format!("{vpn} holds {found}, {version} was written last"));
            }
        }
        self.conserved()
    }

    /// Every allocated frame is a page table, an anonymous page, or one of those given out at the start.
    fn conserved(&self) -> Result<(), String> {
        let allocated: u64 = (0..self.memory.zones.len())
            .map(|z| self.memory.census(highorder_mm::zone::ZoneId(z as u8)).map(|c| c.allocated))
            .sum::<Result<u64, String>>()?;
        let tables = self.memory.lru.total_stats().nr_page_table;
        let mut pages = 0;
        for pfn in (0..self.memory.frames().len() as u32).map(Pfn) {
            let frames = self.memory.frames();
            if frames.state(pfn) == highorder_mm::frame::State::Allocated
                && frames.has(pfn, highorder_mm::frame::PageFlags::ANON)
            {
                pages += u64::from(frames.order(pfn).pages());
            }
        }
        if allocated == tables + pages {
            Ok(())
        } else {
            Err(format!("{allocated} frames in use: {pages} anonymous, {tables} page tables"))
        }
    }

    /// Touches a range as the flow does: in bulk where the fast path serves, page by page where not.
    pub(crate) fn touch_range(
        &mut self,
        start: Vpn,
        pages: u32,
        access: Access,
        cpu: CpuId,
    ) -> bool {
        let mut at = start;
        let end = start.0 + pages;
        while at.0 < end {
            let done = self.memory.touch_and_fault(TouchRange {
                start: at,
                pages: end - at.0,
                access,
                cpu,
                stop_for_huge: self.huge,
                faults_max: 100,
                stop_for_remote: false,
                stop_for_buffer: false,
            });
            for vpn in at.0..at.0 + done.pages {
                let pfn = self.memory.spaces.table().frame_at(Vpn(vpn));
                match access {
                    Access::Read => self.check(Vpn(vpn)),
                    Access::Write => {
                        self.version += 1;
                        self.versions.insert(vpn, self.version);
                        self.content[pfn.expect("it is mapped").index()] = self.version;
                    }
                }
            }
            at.0 += done.pages;
            if done.fault.is_some() {
                if !self.touch(at, access, cpu) {
                    return false;
                }
                at.0 += 1;
            }
        }
        true
    }
}
