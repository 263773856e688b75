//! Huge pages: at a fault, and by khugepaged.
//!
//! Models: `do_huge_pmd_anonymous_page`, `vma_thp_gfp_mask`, mm/huge_memory.c; `alloc_pages_vma` and
//! `alloc_pages_mpol`, mm/mempolicy.c; `khugepaged`, `khugepaged_scan_mm_slot`, `collapse_huge_page`,
//! `__collapse_huge_page_swapin`, mm/khugepaged.c; v3.3 to v6.12.
//! Departs: khugepaged takes processes in the order of their numbers, not of their first huge mappings. Whether a
//! unit's nodes are too far apart is asked behind its last entry. Visible as: the order of events of several
//! processes; what an event of such a unit counts.
//! Departs: the huge page of zeros, once it is there, is kept. Visible as: a freed machine has 2 MiB less where
//! somebody read memory that nobody had written.
//! Departs: huge pages are not off on machines with less than 512 MiB (`hugepage_init`), for these stand for larger ones.
//! Visible as: huge pages where such a machine has none unless its owner asks for them.

use super::fault::{self, Killed};
use super::mmap_lock::{self, Hold};
use super::node_reclaim::RECLAIM_DISTANCE;
use super::plug::Plug;
use super::policy::{DefragNoretry, HalfReferenced, ThpDisable, ThpNuma};
use super::shrink;
use super::slowpath::{Want, alloc_pages};
use super::swap::{SwappedEntry, swap_in_for_collapse};
use super::throttle::JIFFY;
use super::trace::{self, TraceEvent, UnitCounts};
use super::work::{price, spend_work};
use super::{Kernel, KernelCx};
use crate::task::Mode;
use highorder_mm::alloc::Request;
use highorder_mm::anon::{Fault, FaultKind, HUGE_ORDER};
use highorder_mm::gfp::Gfp;
use highorder_mm::khugepaged::{CollapseLimits, ScanResult, UnitScan};
use highorder_mm::page_table::{PTRS_PER_TABLE, Vpn};
use highorder_mm::types::{Access, MemPolicy, NodeId};
use highorder_mm::vma::{HugeAdvice, ProcessId};
use highorder_mm::vmstat::Vm;
use highorder_mm::{Order, Pfn};
use highorder_words::{CpuId, Ns};
use serde::{Deserialize, Serialize};

/// Whether `/proc/PID/pagemap` tells of a page at an address. Old kernels split the huge page there for that. Suspends.
///
/// Models: `pagemap_pte_range`, fs/proc/task_mmu.c, v3.3 and v3.4.
/// Departs: a huge page that somebody has taken off its list stays whole. Visible as: nothing that is known.
#[doc(alias = "pagemap_pte_range")]
pub fn is_in_pagemap(cx: &mut KernelCx<'_>, process: ProcessId, vpn: Vpn) -> bool {
    let cpu = cx.cpu();
    let kernel = cx.world();
    if kernel.flows.thp.pagemap_splits
        && let Some(head) = kernel.memory.listed_huge_page(vpn)
    {
        kernel.memory.split_huge_page(head, cpu);
        let zone = kernel.memory.zone_of(head);
        spend_work(cx, zone);
        shrink::spend_split(cx, process, &mut Plug::default());
    }
    cx.world().memory.spaces.table().frame_at(vpn).is_some()
}

/// Who may have huge pages (`transparent_hugepage/enabled`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Enabled {
    /// Every mapping that was not advised against.
    Always,
    /// Mappings with `MADV_HUGEPAGE`.
    Madvise,
    /// Nobody.
    Never,
}

/// What a huge fault may do when no huge page is free (`transparent_hugepage/defrag`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Defrag {
    /// Reclaim and compact.
    Always,
    /// Wake kswapd, and through it kcompactd.
    Defer,
    /// Reclaim and compact for mappings with `MADV_HUGEPAGE`, wake kswapd for others.
    #[serde(rename = "defer+madvise")]
    DeferMadvise,
    /// Reclaim and compact for mappings with `MADV_HUGEPAGE`, nothing for others.
    Madvise,
    /// Nothing.
    Never,
}

/// Settings of huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThpKnobs {
    /// `transparent_hugepage/enabled`.
    pub enabled: Enabled,
    /// `transparent_hugepage/defrag`.
    pub defrag: Defrag,
    /// `transparent_hugepage/use_zero_page`.
    pub use_zero_page: bool,
    /// `transparent_hugepage/khugepaged/*`.
    pub khugepaged: KhugepagedKnobs,
}

/// Settings of khugepaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KhugepagedKnobs {
    /// `defrag`: may reclaim and compact.
    pub defrag: bool,
    /// `pages_to_scan`: base pages a pass.
    pub pages_to_scan: u32,
    /// `scan_sleep_millisecs`.
    pub scan_sleep: Ns,
    /// `alloc_sleep_millisecs`: after a huge page could not be had.
    pub alloc_sleep: Ns,
    /// `max_ptes_none`.
    pub max_ptes_none: u32,
    /// `max_ptes_swap` (4.8): how many are read; `None` on kernels that leave a unit with any.
    pub max_ptes_swap: Option<u32>,
    /// `max_ptes_shared` (71a2c112a0f6, 5.8), if there is such a knob. No page of the model is shared.
    pub max_ptes_shared: Option<u32>,
}

impl ThpKnobs {
    /// Whether mappings that were advised so may have huge pages (`hugepage_vma_check`).
    pub(crate) fn allows(self, advice: HugeAdvice) -> bool {
        match (self.enabled, advice) {
            (_, HugeAdvice::NoHuge) | (Enabled::Never, _) => false,
            (Enabled::Always, _) => true,
            (Enabled::Madvise, advice) => advice == HugeAdvice::Huge,
        }
    }
}

impl Kernel {
    /// Whether a process may have huge pages in mappings of which this was advised.
    pub(crate) fn allows_huge(&self, process: ProcessId, advice: HugeAdvice) -> bool {
        let disabled = self.flows.thp.disable == ThpDisable::AtOnce
            && self.processes.get(process.0 as usize).is_some_and(|process| process.thp_disabled);
        !disabled && self.knobs.thp.allows(advice)
    }

    /// Lets a process have huge pages or not (`PR_SET_THP_DISABLE`). Whether the kernel knows that.
    pub fn set_thp_disabled(&mut self, process: ProcessId, disabled: bool) -> bool {
        self.process_mut(process).thp_disabled = disabled;
        self.flows.thp.disable != ThpDisable::Unknown
    }

    /// What a new mapping of a process begins with.
    #[must_use]
    pub fn first_advice(&self, process: ProcessId) -> HugeAdvice {
        let later = self.flows.thp.disable == ThpDisable::LaterMappings;
        if later && self.process(process).thp_disabled {
            HugeAdvice::NoHuge
        } else {
            HugeAdvice::None
        }
    }

    /// The flags of a huge fault (`alloc_hugepage_direct_gfpmask`, `vma_thp_gfp_mask`).
    #[doc(alias = "vma_thp_gfp_mask")]
    pub(crate) fn huge_fault_gfp(&self, advice: HugeAdvice) -> Gfp {
        let advised = advice == HugeAdvice::Huge;
        let noretry = match self.flows.thp.noretry {
            DefragNoretry::Always => Gfp::NORETRY,
            DefragNoretry::NotAdvised => Gfp::NONE,
        };
        let light = Gfp::TRANSHUGE_LIGHT | noretry;
        match self.knobs.thp.defrag {
            Defrag::Always if advised => light | Gfp::DIRECT_RECLAIM,
            Defrag::Always => light | Gfp::DIRECT_RECLAIM | Gfp::NORETRY,
            Defrag::DeferMadvise | Defrag::Madvise if advised => light | Gfp::DIRECT_RECLAIM,
            Defrag::Defer | Defrag::DeferMadvise => light | Gfp::KSWAPD_RECLAIM,
            Defrag::Madvise | Defrag::Never => light,
        }
    }

    /// The requests that a huge fault makes one after the other, from which nodes.
    #[doc(alias = "alloc_pages_mpol")]
    #[doc(alias = "alloc_pages_vma")]
    fn huge_requests(&self, fault: &Fault, gfp: Gfp, cpu: CpuId) -> Vec<(Request, u64)> {
        let vma = self.memory.spaces.find(fault.vpn).expect("a fault lies in a mapping");
        let (request, allowed) = self.memory.fault_request(fault, HUGE_ORDER, gfp, cpu);
        let this_node = |extra: Gfp| {
            let gfp = request.gfp | Gfp::THISNODE | extra;
            (Request { gfp, ..request }, request.node.bit())
        };
        let anywhere = (request, allowed);
        let may_reclaim = gfp.contains(Gfp::DIRECT_RECLAIM);
        let is_bound = matches!(vma.policy, MemPolicy::Bind(_));
        let wants_one_node = match vma.policy {
            MemPolicy::Interleave(_) => false,
            MemPolicy::Bind(mask) => mask & (request.node.bit()) != 0,
            MemPolicy::Default | MemPolicy::Local | MemPolicy::Preferred(_) => true,
            MemPolicy::PreferredMany(_) => return preferred_many(request, allowed).to_vec(),
        };
        let keeps_local = self.knobs.zone_reclaim_mode & ZONE_RECLAIM_THP != 0
            && fault.huge == HugeAdvice::Huge
            && !is_bound
            && may_reclaim;
        if !wants_one_node {
            return vec![anywhere];
        }
        match self.flows.thp.numa {
            _ if keeps_local => vec![this_node(Gfp::NONE)],
            ThpNuma::ThisnodeReclaim => vec![this_node(Gfp::NONE)],
            ThpNuma::RemoteAllowed if !may_reclaim && !is_bound => vec![this_node(Gfp::NONE)],
            ThpNuma::RemoteAllowed | ThpNuma::Anywhere => vec![anywhere],
            ThpNuma::LocalThenAll if may_reclaim => {
                let second = Request { gfp: gfp | Gfp::NORETRY, ..request };
                vec![this_node(Gfp::NONE), (second, u64::MAX)]
            }
            ThpNuma::LocalThenAllowed if may_reclaim => vec![this_node(Gfp::NORETRY), anywhere],
            ThpNuma::LocalThenAll | ThpNuma::LocalThenAllowed => vec![this_node(Gfp::NORETRY)],
            ThpNuma::ThisnodeCheap => {
                let (mut request, allowed) = this_node(Gfp::NORETRY);
                request.gfp -= Gfp::RECLAIM;
                vec![(request, allowed)]
            }
        }
    }
}

/// What is asked for of many preferred nodes, and then of all (`alloc_pages_preferred_many`).
pub(crate) fn preferred_many(request: Request, preferred: u64) -> [(Request, u64); 2] {
    let gfp = (request.gfp - Gfp::DIRECT_RECLAIM) | Gfp::NOWARN;
    [(Request { gfp, ..request }, preferred), (request, u64::MAX)]
}

impl Kernel {
    /// Whether a unit has pages on nodes that are not reclaimed for each other, where nodes are reclaimed
    /// (`hpage_collapse_scan_abort`).
    fn is_too_far_apart(&self, by_node: &[u32]) -> bool {
        let nodes: Vec<usize> = (0..by_node.len()).filter(|&node| by_node[node] > 0).collect();
        let distance = |a: usize, b: usize| {
            self.memory.machine.nodes[a].distances.get(b).copied().unwrap_or(0)
        };
        self.reclaims_nodes()
            && nodes.iter().any(|&a| nodes.iter().any(|&b| distance(a, b) > RECLAIM_DISTANCE))
    }
}

/// The bit of `vm.zone_reclaim_mode` that was proposed in 2019 and not merged: huge and local for mappings
/// with `MADV_HUGEPAGE`.
pub const ZONE_RECLAIM_THP: u32 = 8;

/// Serves a fault in an empty unit with a huge page, if one is to be had. Whether it was: else base pages
/// are next. Suspends.
///
/// # Errors
/// The process was killed.
#[doc(alias = "do_huge_pmd_anonymous_page")]
pub(crate) fn do_huge_fault(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    fault: &Fault,
) -> Result<bool, Killed> {
    let kernel = cx.world();
    if fault.kind != FaultKind::NoneHuge || !kernel.allows_huge(process, fault.huge) {
        return Ok(false);
    }
    let gfp = kernel.huge_fault_gfp(fault.huge);
    let reads_zeros = fault.access == Access::Read
        && kernel.flows.thp.zero_page
        && kernel.knobs.thp.use_zero_page;
    if reads_zeros {
        return map_huge_zero(cx, process, fault, gfp);
    }
    let cpu = cx.cpu();
    let mut found = None;
    for (request, allowed) in cx.world().huge_requests(fault, gfp, cpu) {
        fault::check(cx, process)?;
        found = alloc_pages(cx, Want { request, allowed, process: Some(process) });
        if found.is_some() {
            break;
        }
    }
    let Some(huge) = found else {
        cx.world().memory.vm.add(Vm::ThpFaultFallback, 1);
        return Ok(false);
    };
    // Cleared before the table is looked at again.
    let node = cx.node();
    let clear = cx.world().clear_huge_time(huge, node);
    cx.spend(clear, Mode::System);
    let table = match fault::fault_page(cx, process, fault, Gfp::KERNEL | Gfp::ZERO) {
        Ok(table) => table,
        Err(killed) => {
            give_back(cx, huge, HUGE_ORDER);
            return Err(killed);
        }
    };
    if fault::revalidate(cx, process, fault) != Ok(true) {
        give_back(cx, table, Order(0));
        give_back(cx, huge, HUGE_ORDER);
        return fault::check(cx, process).map(|()| true);
    }
    let cpu = cx.cpu();
    let kernel = cx.world();
    kernel.memory.map_huge(fault, huge, Some(table), cpu);
    kernel.note_resident(process);
    let mut work = kernel.memory.take_work();
    // Spent above, while others could go on.
    work.huge_pages_cleared -= 1;
    let price = price(cx, work);
    cx.spend(price.free + price.zone + price.lru, Mode::System);
    Ok(true)
}

/// Maps the huge page of zeros for a read.
fn map_huge_zero(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    fault: &Fault,
    gfp: Gfp,
) -> Result<bool, Killed> {
    let table = fault::fault_page(cx, process, fault, Gfp::KERNEL | Gfp::ZERO)?;
    if cx.world().huge_zero.is_none() {
        let (cpu, node) = (cx.cpu(), cx.node());
        let gfp = (gfp - Gfp::MOVABLE) | Gfp::ZERO;
        let request = Request { order: HUGE_ORDER, gfp, cpu, node, past_lists: false };
        let found = alloc_pages(cx, Want { request, allowed: u64::MAX, process: Some(process) });
        let kernel = cx.world();
        match (found, kernel.huge_zero) {
            (Some(pfn), None) => {
                kernel.huge_zero = Some(pfn);
                kernel.memory.vm.add(Vm::ThpZeroPageAlloc, 1);
                let clear = kernel.costs.clear_huge_page.once();
                cx.spend(clear, Mode::System);
            }
            // Somebody else was faster.
            (Some(pfn), Some(_)) => give_back(cx, pfn, HUGE_ORDER),
            (None, _) => {
                kernel.memory.vm.add(Vm::ThpZeroPageAllocFailed, 1);
                kernel.memory.vm.add(Vm::ThpFaultFallback, 1);
                give_back(cx, table, Order(0));
                return fault::check(cx, process).map(|()| false);
            }
        }
    }
    if fault::revalidate(cx, process, fault) == Ok(true) {
        cx.world().memory.map_huge_zero(fault, table);
    } else {
        give_back(cx, table, Order(0));
    }
    fault::check(cx, process).map(|()| true)
}

fn give_back(cx: &mut KernelCx<'_>, pfn: Pfn, order: Order) {
    let cpu = cx.cpu();
    cx.world().memory.free(pfn, order, cpu);
}

/// How long khugepaged sleeps while nobody may have huge pages: it is woken when that changes, which here
/// only a workload can do; it looks again instead.
const IDLE_SLEEP: Ns = Ns::from_secs(10);

/// Where khugepaged begins: before all units of all processes.
const FIRST_UNIT: (ProcessId, Vpn) = (ProcessId(0), Vpn(0));

/// The kernel thread that makes huge pages of base pages. Never returns.
///
/// Departs: told not to sleep (`scan_sleep_millisecs` 0) it only lets others run (`cond_resched`); here it rests for a
/// tick, as a pass over nothing takes no time. Visible as: it leaves a CPU idle that it would keep busy.
pub(crate) fn khugepaged(cx: &mut KernelCx<'_>) {
    let mut at = FIRST_UNIT;
    // The node that last took a huge page for a unit spread evenly.
    let mut last_node = None;
    loop {
        let knobs = cx.world().knobs.thp;
        if knobs.enabled == Enabled::Never || knobs.khugepaged.pages_to_scan == 0 {
            cx.sleep(IDLE_SLEEP);
            continue;
        }
        scan_pass(cx, &mut at, &mut last_node);
        cx.sleep(knobs.khugepaged.scan_sleep.max(JIFFY));
    }
}

/// Half of a unit's entries.
const HALF_OF_UNIT: u32 = PTRS_PER_TABLE / 2;

/// One pass over `pages_to_scan` base pages. When a huge page could not be had it sleeps once; the second
/// time it gives up.
#[doc(alias = "khugepaged_scan_mm_slot")]
fn scan_pass(cx: &mut KernelCx<'_>, at: &mut (ProcessId, Vpn), last_node: &mut Option<NodeId>) {
    let knobs = cx.world().knobs.thp;
    let limits = CollapseLimits {
        ptes_none: knobs.khugepaged.max_ptes_none,
        ptes_swap: knobs.khugepaged.max_ptes_swap.unwrap_or(0),
        ptes_referenced: match cx.world().flows.khugepaged.half_referenced {
            HalfReferenced::Swapped => HALF_OF_UNIT,
            HalfReferenced::All => 1,
        },
    };
    let mut left = knobs.khugepaged.pages_to_scan;
    let mut wrapped = false;
    let mut failed = false;
    while left > 0 {
        let kernel = cx.world();
        let next =
            kernel.memory.next_unit_to_collapse(*at, |vma| kernel.allows_huge(vma.task, vma.huge));
        let Some((process, unit)) = next else {
            if wrapped || *at == FIRST_UNIT {
                break;
            }
            // Round once: the next pass begins with the first process.
            *at = FIRST_UNIT;
            wrapped = true;
            continue;
        };
        *at = (process, Vpn(unit.0 + PTRS_PER_TABLE));
        left = left.saturating_sub(PTRS_PER_TABLE);
        let kernel = cx.world();
        let mut scan = kernel.memory.khugepaged_scan(unit, limits);
        if scan.result == ScanResult::PageAnon {
            continue;
        }
        let work = cx.world().memory.take_work();
        let price = price(cx, work);
        cx.spend(price.free, Mode::System);
        if scan.result == ScanResult::Succeed && cx.world().is_too_far_apart(&scan.by_node) {
            scan.result = ScanResult::ScanAbort;
        }
        let collapsed = (scan.result == ScanResult::Succeed).then(|| {
            let (node, allowed) = match cx.world().flows.khugepaged.falls_back {
                true => target_nodes(&scan.by_node),
                false => target_node(&scan.by_node, *last_node),
            };
            *last_node = Some(node);
            let result = collapse(cx, process, unit, &scan, limits, (node, allowed));
            trace::note(cx, TraceEvent::CollapseHugePage { process, result });
            result
        });
        let unit = UnitCounts::from(&scan);
        trace::note(cx, TraceEvent::KhugepagedScanPmd { process, unit, collapsed });
        if collapsed == Some(ScanResult::AllocHugePageFail) {
            if failed {
                return;
            }
            failed = true;
            let sleep = knobs.khugepaged.alloc_sleep;
            cx.sleep(sleep);
        }
    }
}

/// The nodes with most of a unit's pages, of which none has more than another.
fn best_nodes(by_node: &[u32]) -> impl Iterator<Item = NodeId> + '_ {
    let most = by_node.iter().copied().max().unwrap_or(0);
    NodeId::all(by_node.len()).filter(move |&node| by_node[node.index()] == most)
}

/// The one node that a unit's huge page may come from, and the mask of it: among equals the one behind the last that
/// was chosen (`hpage_collapse_find_target_node`).
fn target_node(by_node: &[u32], last: Option<NodeId>) -> (NodeId, u64) {
    let mut best = best_nodes(by_node);
    let first = best.next().unwrap_or(NodeId(0));
    let node = match last {
        Some(last) if first <= last => best.find(|&node| node > last).unwrap_or(first),
        _ => first,
    };
    (node, node.bit())
}

/// The node that a unit's huge page should come from, and the mask of those that are as good.
fn target_nodes(by_node: &[u32]) -> (NodeId, u64) {
    let first = best_nodes(by_node).next().unwrap_or(NodeId(0));
    (first, best_nodes(by_node).fold(first.bit(), |mask, node| mask | node.bit()))
}

/// Collapses a unit that a scan found fit for it. Suspends.
#[doc(alias = "collapse_huge_page")]
fn collapse(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    unit: Vpn,
    scan: &UnitScan,
    limits: CollapseLimits,
    (node, allowed): (NodeId, u64),
) -> ScanResult {
    let kernel = cx.world();
    let reclaim = if kernel.knobs.thp.khugepaged.defrag { Gfp::DIRECT_RECLAIM } else { Gfp::NONE };
    let noretry = match kernel.flows.thp.noretry {
        DefragNoretry::Always => Gfp::NORETRY,
        DefragNoretry::NotAdvised => Gfp::NONE,
    };
    let one_node = match kernel.flows.khugepaged.falls_back {
        true => Gfp::NONE,
        false => Gfp::THISNODE,
    };
    let gfp = Gfp::TRANSHUGE_LIGHT | one_node | noretry | reclaim;
    let cpu = cx.cpu();
    let request = Request { order: HUGE_ORDER, gfp, cpu, node, past_lists: false };
    let Some(huge) = alloc_pages(cx, Want { request, allowed, process: None }) else {
        cx.world().memory.vm.add(Vm::ThpCollapseAllocFailed, 1);
        return ScanResult::AllocHugePageFail;
    };
    cx.world().memory.vm.add(Vm::ThpCollapseAlloc, 1);
    let mut result = swap_in_unit(cx, process, unit, scan);
    if result == ScanResult::Succeed {
        result = mmap_lock::with(cx, process, Hold::Write, |cx| {
            let valid = cx.world().collapse_revalidate(process, unit);
            if valid != ScanResult::Succeed {
                return valid;
            }
            let kernel = cx.world();
            let taken = kernel.memory.khugepaged_collapse(unit, limits, huge, cpu);
            if taken.result == ScanResult::Succeed {
                let pages = u64::from(PTRS_PER_TABLE - taken.none_or_zero);
                let copy = kernel.costs.copy_base_page.times(pages);
                cx.spend(copy, Mode::System);
                let zone = cx.world().memory.zone_of(huge);
                spend_work(cx, zone);
            }
            if !matches!(taken.result, ScanResult::PmdNone | ScanResult::PmdMapped) {
                trace::note(cx, TraceEvent::CollapseHugePageIsolate(UnitCounts::from(&taken)));
            }
            taken.result
        });
    }
    if result != ScanResult::Succeed {
        give_back(cx, huge, HUGE_ORDER);
    }
    result
}

impl Kernel {
    /// Whether a unit is still in a mapping of the process, which may have gone while khugepaged had no lock
    /// (`hugepage_vma_revalidate`).
    fn collapse_revalidate(&self, process: ProcessId, unit: Vpn) -> ScanResult {
        if self.process(process).killed {
            return ScanResult::AnyProcess;
        }
        match self.memory.spaces.find(unit).filter(|vma| vma.task == process) {
            None => ScanResult::VmaNull,
            Some(vma) if !vma.holds_unit(unit) => ScanResult::AddressRange,
            Some(vma) if vma.file.is_some() => ScanResult::PageAnon,
            Some(_) => ScanResult::Succeed,
        }
    }
}

/// Has a unit's entries in swap read, where that is worth while (`__collapse_huge_page_swapin`). Suspends.
#[doc(alias = "__collapse_huge_page_swapin")]
fn swap_in_unit(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    unit: Vpn,
    scan: &UnitScan,
) -> ScanResult {
    let policy = cx.world().flows.khugepaged;
    let wants_half = policy.half_referenced == HalfReferenced::All;
    if scan.swapped.is_empty() && !wants_half {
        return ScanResult::Succeed;
    }
    mmap_lock::lock(cx, process, Hold::Read);
    let valid = cx.world().collapse_revalidate(process, unit);
    if valid != ScanResult::Succeed {
        mmap_lock::unlock(cx, process, Hold::Read);
        return valid;
    }
    let mut read = SwappedIn { pages: 0, result: ScanResult::Succeed, is_locked: true };
    if wants_half && scan.referenced < HALF_OF_UNIT {
        read.result = ScanResult::Fail;
    } else {
        swap_in_entries(cx, process, unit, policy.swapin_stops, &mut read);
    }
    let SwappedIn { pages: swapped_in, result, is_locked } = read;
    let referenced = scan.referenced;
    trace::note(cx, TraceEvent::CollapseHugePageSwapin { process, swapped_in, referenced, result });
    if is_locked {
        mmap_lock::unlock(cx, process, Hold::Read);
    }
    result
}

/// How far swapping in has come.
struct SwappedIn {
    pages: u32,
    result: ScanResult,
    /// Whether the process's lock is held.
    is_locked: bool,
}

fn swap_in_entries(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    unit: Vpn,
    stops: bool,
    read: &mut SwappedIn,
) {
    for vpn in (unit.0..unit.0 + PTRS_PER_TABLE).map(Vpn) {
        let Some(slot) = cx.world().memory.spaces.table().pte(vpn).slot() else { continue };
        match swap_in_for_collapse(cx, process, vpn, slot) {
            SwappedEntry::Mapped => read.pages += 1,
            SwappedEntry::Failed => read.result = ScanResult::Fail,
            SwappedEntry::Waited if stops => {
                read.is_locked = false;
                read.result = ScanResult::PageLock;
            }
            SwappedEntry::Waited => {
                read.pages += 1;
                mmap_lock::lock(cx, process, Hold::Read);
                if cx.world().collapse_revalidate(process, unit) != ScanResult::Succeed {
                    read.result = ScanResult::Fail;
                }
            }
        }
        if read.result != ScanResult::Succeed {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_goes_to_the_node_with_most_of_it_and_equals_take_turns() {
        let of = |by_node: &[u32], last| target_node(by_node, last).0;
        assert_eq!(of(&[100, 412], None), NodeId(1));
        assert_eq!(of(&[256, 256], None), NodeId(0));
        assert_eq!(of(&[256, 256], Some(NodeId(0))), NodeId(1));
        assert_eq!(of(&[256, 256], Some(NodeId(1))), NodeId(0));
        assert_eq!(of(&[412, 100], Some(NodeId(0))), NodeId(0));
        assert_eq!(target_node(&[256, 256], Some(NodeId(0))).1, 0b10);
    }

    #[test]
    fn the_huge_page_may_come_from_any_node_that_is_as_good() {
        assert_eq!(target_nodes(&[100, 412]), (NodeId(1), 0b10));
        assert_eq!(target_nodes(&[200, 112, 200]), (NodeId(0), 0b101));
    }
}
