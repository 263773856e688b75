//! A touch of memory and the faults it takes.
//!
//! Models: `handle_mm_fault`, `do_anonymous_page`, `do_swap_page`, `do_wp_page`, mm/memory.c, v4.4 to
//! v6.12.
//! Departs: nobody waits for `mmap_lock`. Visible as: threads of one process that map while others fault
//! do not hinder each other. The program's own accesses cost one miss of every cache and of the TLB for a
//! word a page, and as much as clearing does for a whole page, wherever the page lies. Visible as: memory
//! of another node is as near as one's own.

use super::slowpath::{Want, alloc_pages};
use super::swap::swap_in;
use super::{Kernel, KernelCx, oom};
use crate::task::Mode;
use crate::time::Ns;
use highorder_mm::anon::{Access, Fault, FaultKind, TouchRange};
use highorder_mm::gfp::Gfp;
use highorder_mm::page_table::Vpn;
use highorder_mm::vma::TaskId as ProcessId;
use highorder_mm::{Order, Pfn};

/// Faults that are served at one moment at most.
pub const FAULTS_MAX: u32 = 128;
/// Base pages that are touched at one moment at most.
const TOUCHES_MAX: u32 = 16 * 1024;

/// The process was killed; its memory goes or is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Killed;

/// How much of each page is touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// A word.
    Word,
    /// All of it.
    Whole,
}

/// Touches every page of a range, ascending, as the program `process` does.
///
/// # Errors
/// The process was killed.
///
/// # Panics
/// If part of the range belongs to no mapping.
pub fn touch_range(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    start: Vpn,
    pages: u32,
    access: Access,
    extent: Extent,
) -> Result<(), Killed> {
    let end = start.0 + pages;
    let mut at = start;
    while at.0 < end {
        check(cx, process)?;
        let cpu = cx.cpu().0 as usize;
        let range = TouchRange {
            start: at,
            pages: (end - at.0).min(TOUCHES_MAX),
            access,
            cpu,
            stop_for_huge: false,
            faults_max: FAULTS_MAX,
        };
        let kernel = cx.world();
        let done = kernel.memory.touch_and_fault(range);
        at.0 += done.pages;
        let user = kernel.access_time(done.pages, done.huge, extent);
        let nr_faults = u64::from(done.faults + done.zero_faults);
        if nr_faults > 0 {
            kernel.note_resident(process);
            spend_faults(cx, nr_faults, done.pages.checked_sub(1).map(|_| Vpn(at.0 - 1)));
        }
        cx.spend(user, Mode::User);
        if let Some(fault) = done.fault {
            handle_mm_fault(cx, process, fault)?;
        }
    }
    Ok(())
}

/// Whether the process may go on.
pub(crate) fn check(cx: &mut KernelCx<'_>, process: ProcessId) -> Result<(), Killed> {
    if cx.world().process(process).killed { Err(Killed) } else { Ok(()) }
}

/// Spends the time of faults that the fast path served, `near` being one of their pages.
///
/// What a fault costs as a whole is measured; the part of it that is list operations is spent under the
/// zone's and the LRU's locks.
fn spend_faults(cx: &mut KernelCx<'_>, nr_faults: u64, near: Option<Vpn>) {
    let kernel = cx.world();
    let work = kernel.memory.take_work();
    let price = kernel.price(work);
    let near = near.and_then(|vpn| kernel.memory.spaces.table().frame_at(vpn));
    let entry = kernel.costs.fault_entry.times(nr_faults);
    let locked = price.zone + price.lru;
    let rest = price.free + entry.saturating_sub(locked);
    let locks = near.map(|pfn| {
        let zone = kernel.memory.zone_of(pfn);
        let lru = kernel.memory.lru.of_zone(zone);
        (kernel.zone_locks[zone.index()], kernel.lru_locks[lru])
    });
    cx.spend(rest, Mode::System);
    if let Some((zone, lru)) = locks {
        if price.zone > Ns::ZERO {
            cx.hold(zone, price.zone);
        }
        if price.lru > Ns::ZERO {
            cx.hold(lru, price.lru);
        }
    }
}

/// Serves one fault, waiting for whatever that needs. Whoever called touches again: what it wanted may be
/// gone once more.
///
/// # Errors
/// The process was killed.
pub fn handle_mm_fault(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    fault: Fault,
) -> Result<(), Killed> {
    let entry = cx.world().costs.fault_entry.once();
    cx.spend(entry, Mode::System);
    if fault.needs_table {
        let pfn = fault_page(cx, process, &fault, Gfp::KERNEL | Gfp::ZERO)?;
        return finish(cx, process, &fault, pfn, |kernel, _| {
            kernel.memory.map_table(&fault, pfn);
        });
    }
    match fault.kind {
        FaultKind::Swap(slot) => return swap_in(cx, process, &fault, slot),
        FaultKind::HugeZero => {
            revalidate(cx, process, &fault)?.then(|| cx.world().memory.split_huge_zero(fault.vpn));
        }
        FaultKind::ReadOnly(_) => {
            revalidate(cx, process, &fault)?.then(|| cx.world().memory.reuse_page(&fault));
        }
        FaultKind::None | FaultKind::NoneHuge if fault.access == Access::Read => {
            revalidate(cx, process, &fault)?.then(|| cx.world().memory.map_zero(&fault));
        }
        FaultKind::None | FaultKind::NoneHuge | FaultKind::Zero => {
            let pfn = fault_page(cx, process, &fault, Gfp::HIGHUSER_MOVABLE | Gfp::ZERO)?;
            return finish(cx, process, &fault, pfn, |kernel, cpu| {
                kernel.memory.map_page(&fault, pfn, cpu);
                kernel.note_resident(process);
            });
        }
    }
    Ok(())
}

/// A base page to serve a fault with.
pub(crate) fn fault_page(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    fault: &Fault,
    gfp: Gfp,
) -> Result<Pfn, Killed> {
    check(cx, process)?;
    let cpu = cx.cpu().0 as usize;
    let node = cx.node();
    let (mut request, mut allowed) = cx.world().memory.fault_request(fault, Order(0), gfp, cpu);
    if !gfp.contains(Gfp::MOVABLE) {
        // The kernel's own pages follow the task, not the mapping.
        (request.node, allowed) = (node, u64::MAX);
    }
    let want = Want { request, allowed, process: Some(process) };
    match alloc_pages(cx, want) {
        Some(pfn) => Ok(pfn),
        // Only a process that is being killed comes away empty-handed; others try again.
        None => check(cx, process).map_or(Err(Killed), |()| oom::pagefault_out_of_memory(cx)),
    }
}

/// Installs a page if the fault still stands, else gives it back.
fn finish(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    fault: &Fault,
    pfn: Pfn,
    install: impl FnOnce(&mut Kernel, usize),
) -> Result<(), Killed> {
    let cpu = cx.cpu().0 as usize;
    let stands = revalidate(cx, process, fault);
    let kernel = cx.world();
    if stands == Ok(true) {
        install(kernel, cpu);
    } else {
        kernel.memory.free(pfn, Order(0), cpu);
    }
    let work = kernel.memory.take_work();
    let price = kernel.price(work);
    cx.spend(price.free, Mode::System);
    stands.map(|_| ())
}

/// Whether a touch still finds this very fault: others had the memory while this task waited.
pub(crate) fn revalidate(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    fault: &Fault,
) -> Result<bool, Killed> {
    check(cx, process)?;
    let found = cx.world().memory.touch(fault.vpn, 1, fault.access).fault;
    Ok(found.as_ref() == Some(fault))
}

impl Kernel {
    /// What the program's own accesses take.
    fn access_time(&self, pages: u32, huge: u32, extent: Extent) -> Ns {
        let costs = &self.costs;
        let mapped_huge = u64::from(huge) * 512;
        let base = u64::from(pages).saturating_sub(mapped_huge);
        let translation =
            costs.tlb_miss_base.times(base) + costs.tlb_miss_huge.times(u64::from(huge));
        let data = match extent {
            Extent::Word => costs.local_access.times(u64::from(pages)),
            Extent::Whole => costs.clear_base_page.times(u64::from(pages)),
        };
        translation + data
    }

    /// Notes how much a process has in memory (`hiwater_rss`).
    pub(crate) fn note_resident(&mut self, process: ProcessId) {
        let resident = self.memory.spaces.task(process).anon;
        let most = &mut self.process_mut(process).resident_max;
        *most = resident.max(*most);
    }
}
