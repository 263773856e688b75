//! A touch of memory and the faults it takes.
//!
//! Models: `handle_mm_fault`, `do_anonymous_page`, `do_swap_page`, `do_wp_page`, mm/memory.c, v4.4 to
//! v6.12; files' pages in [`super::filemap`].
//! Departs: the program's own accesses cost one miss of every cache and of the TLB for a word a page, and as
//! much as clearing does for a whole page. What a fault has just cleared is in a cache until it is touched: to
//! touch such a base page costs nothing, a word of such a huge page a read of the node's cache, as if that had
//! room for all of it (c79b57e462b5, 4.14, tells of 1.25 MiB for a CPU), and to fill the huge page as much as one
//! that is in no cache. Page tables lie in the node's cache, however large they are. Memory of another node takes
//! longer by what an access there does, all other nodes being as far as the nearest. Visible as: what is touched
//! again at once costs as much as much later; where much is touched at random, large page tables cost too little.

use super::mmap_lock::{self, Hold};
use super::slowpath::{Want, alloc_pages, note_fallbacks};
use super::swap::swap_in;
use super::work::{hold_lru_lock, hold_zone_lock, price};
use super::{Kernel, KernelCx, filemap, numa, oom, thp, writeback};
use crate::task::Mode;
use highorder_mm::anon::{Fault, FaultKind, PTES_PER_LINE, RemotePages, TouchRange};
use highorder_mm::gfp::Gfp;
use highorder_mm::page_table::{PTRS_PER_TABLE, Pmd, Vpn};
use highorder_mm::types::{Access, MemPolicy, NodeId};
use highorder_mm::vma::ProcessId;
use highorder_mm::{Order, Pfn};
use highorder_words::{CpuId, Ns};

/// Faults that are served at one moment at most.
pub const FAULTS_MAX: u32 = 128;
/// Base pages that are touched at one moment at most.
const TOUCHES_MAX: u32 = 16 * 1024;

/// The process was killed; its memory goes or is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Killed;

/// Why memory could not be touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TouchError {
    /// The process was killed.
    Killed,
    /// A mapped file ends before the page that was touched (`SIGBUS`).
    BehindEnd {
        /// The page of the file.
        page: u64,
        /// Pages that the file has.
        pages: u64,
    },
    /// A file that is mapped to be read was written (`SIGSEGV`).
    ReadOnly,
}

impl From<Killed> for TouchError {
    fn from(_: Killed) -> Self {
        Self::Killed
    }
}

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
/// The process was killed, or what is mapped cannot be touched so.
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
) -> Result<(), TouchError> {
    let end = start.0 + pages;
    let mut at = start;
    let mut served = None;
    while at.0 < end {
        check(cx, process)?;
        if cx.world().balances_numa() {
            numa::task_tick(cx, process);
            check(cx, process)?;
        }
        let pages = (end - at.0).min(TOUCHES_MAX);
        let (is_locked, pages) = lock_to_fault(cx, process, at, pages, access)?;
        let (cpu, node) = (cx.cpu(), cx.node());
        let kernel = cx.world();
        if is_locked {
            kernel.process_mut(process).mmap_lock.begin_faults(node);
        }
        let vma = kernel.memory.spaces.find(at).filter(|vma| vma.task == process);
        let vma = vma.expect("memory that is touched is mapped");
        let file = vma.file.map(|mapping| mapping.file);
        let range = TouchRange {
            start: at,
            pages: pages.min(vma.end.0 - at.0),
            access,
            cpu,
            stop_for_huge: kernel.allows_huge(process, vma.huge),
            faults_max: FAULTS_MAX,
            stop_for_remote: kernel.reclaims_nodes() && kernel.memory.machine.nr_nodes() > 1,
            stop_for_buffer: file.is_some_and(|file| kernel.wants_buffer(file)),
        };
        let done = kernel.memory.touch_and_fault(range);
        note_fallbacks(cx, true);
        let kernel = cx.world();
        let touched = at;
        at.0 += done.pages;
        let nr_faults = u64::from(done.faults + done.zero_faults);
        // The page that the last round had to wait for. The last that was faulted in may not be touched yet.
        let is_served = served.take() == Some(touched) && done.pages > 0;
        let is_huge = matches!(kernel.memory.spaces.table().pmd(touched), Pmd::Huge(_));
        let fresh_base = (nr_faults + u64::from(is_served && !is_huge)).min(done.pages.into());
        let fresh = match file {
            Some(_) => Fresh::default(),
            None => Fresh { base: fresh_base, huge: u64::from(is_served && is_huge) },
        };
        if let Some(file) = file.filter(|_| done.dirtied > 0) {
            filemap::note_dirtied(cx, file);
        }
        let kernel = cx.world();
        let mut remote = kernel.memory.remote_pages(touched, done.pages, node);
        let cleared_far = (u64::from(remote.pages) * fresh.base).checked_div(done.pages.into());
        let cleared_far = cleared_far.unwrap_or(0);
        remote.pages -= cleared_far as u32;
        if fresh.huge > 0 && kernel.memory.remote_pages(touched, 1, node).pages > 0 {
            // In this node's cache, wherever it lies.
            remote.pages -= remote.pages.min(PTRS_PER_TABLE.min(done.pages));
        }
        let user = kernel.access_time(done.pages, done.huge, extent, fresh, remote);
        if nr_faults > 0 {
            kernel.note_resident(process);
            let near = done.pages.checked_sub(1).map(|_| Vpn(at.0 - 1));
            spend_faults(cx, process, node, nr_faults, near);
        }
        if cleared_far > 0 {
            let kernel = cx.world();
            let clearing = kernel.remote_part(kernel.costs.clear_base_page.times(cleared_far));
            cx.spend(clearing, Mode::System);
        }
        if is_locked {
            cx.world().process_mut(process).mmap_lock.end_faults(node);
            mmap_lock::unlock(cx, process, Hold::Read);
        }
        cx.spend(user, Mode::User);
        if done.dirtied > 0 {
            writeback::balance_dirty_pages_ratelimited(cx, process, done.dirtied.into())?;
        }
        if let Some(fault) = done.fault {
            handle_mm_fault(cx, process, fault)?;
            let is_new =
                matches!(fault.kind, FaultKind::None | FaultKind::NoneHuge | FaultKind::Zero);
            served = is_new.then_some(fault.vpn);
        }
    }
    Ok(())
}

/// Takes the process's lock for faults that a touch of these pages has to take. Says whether it did, and how many
/// pages may be touched now: what is mapped needs no lock. Suspends.
fn lock_to_fault(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    start: Vpn,
    pages: u32,
    access: Access,
) -> Result<(bool, u32), Killed> {
    let kernel = cx.world();
    if !kernel.faults_lock() {
        return Ok((false, pages));
    }
    if kernel.try_lock_for_fault(process) {
        return Ok((true, pages));
    }
    let mapped = kernel.memory.touch(start, pages, access).pages;
    if mapped > 0 {
        return Ok((false, mapped));
    }
    mmap_lock::lock(cx, process, Hold::Read);
    // Its memory may have gone meanwhile.
    check(cx, process)
        .inspect_err(|_| mmap_lock::unlock(cx, process, Hold::Read))
        .map(|()| (true, pages))
}

/// Whether the process may go on.
pub(crate) fn check(cx: &mut KernelCx<'_>, process: ProcessId) -> Result<(), Killed> {
    if cx.world().process(process).killed { Err(Killed) } else { Ok(()) }
}

/// Pages that a fault has just cleared: base pages, and huge pages.
#[derive(Clone, Copy, Default, Debug)]
struct Fresh {
    base: u64,
    huge: u64,
}

/// Spends the time of faults that the fast path served for a CPU of a node, `near` being one of their pages.
///
/// What a fault costs as a whole is measured; the part of it that is list operations is spent under the
/// zone's and the LRU's locks.
fn spend_faults(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    node: NodeId,
    nr_faults: u64,
    near: Option<Vpn>,
) {
    let kernel = cx.world();
    let work = kernel.memory.take_work();
    let price = price(cx, work);
    let kernel = cx.world();
    let near = near.and_then(|vpn| kernel.memory.spaces.table().frame_at(vpn));
    let entry = kernel.costs.fault_entry.times(nr_faults);
    let locked = price.zone + price.lru;
    let rest = price.free + entry.saturating_sub(locked);
    let mmap_lock = &kernel.process(process).mmap_lock;
    let cpus = |node| kernel.memory.machine.nr_cpus(node);
    let line = mmap_lock.line_time(&kernel.costs, cpus, node, nr_faults, rest + locked);
    let zone = near.map(|pfn| kernel.memory.zone_of(pfn));
    cx.spend(rest + line, Mode::System);
    if let Some(zone) = zone {
        hold_zone_lock(cx, zone, price.zone);
        hold_lru_lock(cx, zone, price.lru);
    }
}

/// Serves one fault, waiting for whatever that needs. Whoever called touches again: what it wanted may be
/// gone once more.
///
/// # Errors
/// The process was killed, or what is mapped cannot be touched so.
pub fn handle_mm_fault(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    fault: Fault,
) -> Result<(), TouchError> {
    let entry = cx.world().costs.fault_entry.once();
    cx.spend(entry, Mode::System);
    let reads = matches!(fault.kind, FaultKind::File { .. } | FaultKind::Swap(_));
    if let Some(token) = cx.world().token() {
        token.begin_fault(process);
    }
    let served = if reads || !cx.world().faults_lock() {
        serve(cx, process, fault)
    } else {
        mmap_lock::with(cx, process, Hold::Read, |cx| serve(cx, process, fault))
    };
    if let Some(token) = cx.world().token() {
        token.end_fault(process);
    }
    served
}

#[doc(alias = "do_wp_page")]
#[doc(alias = "do_swap_page")]
#[doc(alias = "do_anonymous_page")]
fn serve(cx: &mut KernelCx<'_>, process: ProcessId, fault: Fault) -> Result<(), TouchError> {
    check(cx, process)?;
    let vma = cx.world().memory.spaces.find(fault.vpn);
    let page = vma.and_then(|vma| vma.file_page(fault.vpn));
    let is_read_only = vma.and_then(|vma| vma.file).is_some_and(|mapping| !mapping.writable);
    if is_read_only && fault.access == Access::Write {
        return Err(TouchError::ReadOnly);
    }
    if fault.needs_table {
        if thp::do_huge_fault(cx, process, &fault)? {
            return Ok(());
        }
        let pfn = fault_page(cx, process, &fault, Gfp::KERNEL | Gfp::ZERO)?;
        return finish(cx, process, &fault, pfn, |kernel, _| {
            kernel.memory.map_table(&fault, pfn);
        })
        .map_err(TouchError::from);
    }
    match fault.kind {
        FaultKind::Swap(slot) => swap_in(cx, process, &fault, slot)?,
        FaultKind::File { file, index } => {
            return filemap::file_fault(cx, process, &fault, file, index);
        }
        FaultKind::Hint(_) => numa::do_numa_page(cx, process, &fault)?,
        FaultKind::HugeZero => {
            revalidate(cx, process, &fault)?.then(|| cx.world().memory.split_huge_zero(fault.vpn));
        }
        FaultKind::ReadOnly(pfn) => match page {
            Some(page) => filemap::page_mkwrite(cx, process, &fault, page, pfn)?,
            None => {
                revalidate(cx, process, &fault)?.then(|| cx.world().memory.reuse_page(&fault));
            }
        },
        FaultKind::None | FaultKind::NoneHuge if fault.access == Access::Read => {
            revalidate(cx, process, &fault)?.then(|| cx.world().memory.map_zero(&fault));
        }
        FaultKind::None | FaultKind::NoneHuge | FaultKind::Zero => {
            let pfn = fault_page(cx, process, &fault, Gfp::HIGHUSER_MOVABLE | Gfp::ZERO)?;
            finish(cx, process, &fault, pfn, |kernel, cpu| {
                kernel.memory.map_page(&fault, pfn, cpu);
                kernel.note_resident(process);
            })?;
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
    let cpu = cx.cpu();
    let memory = &cx.world().memory;
    let (request, allowed) = if gfp.contains(Gfp::MOVABLE) {
        memory.fault_request(fault, Order(0), gfp, cpu)
    } else {
        memory.task_request(process, gfp, cpu)
    };
    let policy = memory.spaces.find(fault.vpn).map(|vma| vma.policy);
    let mut get =
        |(request, allowed)| alloc_pages(cx, Want { request, allowed, process: Some(process) });
    let found = match policy {
        Some(MemPolicy::PreferredMany(_)) if gfp.contains(Gfp::MOVABLE) => {
            thp::preferred_many(request, allowed).into_iter().find_map(get)
        }
        _ => get((request, allowed)),
    };
    found_for(cx, process, found)
}

/// What a request that may not fail has found. Only a process that is being killed comes away empty-handed; others try
/// again.
pub(super) fn found_for(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    found: Option<Pfn>,
) -> Result<Pfn, Killed> {
    match found {
        Some(pfn) => Ok(pfn),
        None => {
            check(cx, process)?;
            oom::halt(cx)
        }
    }
}

/// Installs a page if the fault still stands, else gives it back.
fn finish(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    fault: &Fault,
    pfn: Pfn,
    install: impl FnOnce(&mut Kernel, CpuId),
) -> Result<(), Killed> {
    let cpu = cx.cpu();
    let stands = revalidate(cx, process, fault);
    let kernel = cx.world();
    if stands == Ok(true) {
        install(kernel, cpu);
    } else {
        kernel.memory.free(pfn, Order(0), cpu);
    }
    let work = kernel.memory.take_work();
    let price = price(cx, work);
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
    /// What the program's own accesses take to `pages`, of which `huge` huge ones hold 512 each.
    fn access_time(
        &self,
        pages: u32,
        huge: u32,
        extent: Extent,
        fresh: Fresh,
        remote: RemotePages,
    ) -> Ns {
        let costs = &self.costs;
        let mapped_huge = u64::from(huge) * u64::from(PTRS_PER_TABLE);
        let base = u64::from(pages).saturating_sub(mapped_huge);
        let translation = costs.tlb_miss_base.times(base)
            + costs.cache_read.times(base.div_ceil(u64::from(PTES_PER_LINE)))
            + costs.tlb_miss_huge.times(u64::from(huge));
        let old = u64::from(pages).saturating_sub(fresh.base);
        let data = match extent {
            Extent::Word => {
                let cached = (fresh.huge * u64::from(PTRS_PER_TABLE)).min(old);
                costs.local_access.times(old - cached) + costs.cache_read.times(cached)
            }
            Extent::Whole => {
                costs.clear_base_page.times(old) + costs.fill_cached_page.times(fresh.base)
            }
        };
        translation + data + self.remote_surcharge(remote, extent)
    }

    /// What accesses to pages of another node take beyond those to one's own. Each line of a page table that
    /// lies there is read once.
    fn remote_surcharge(&self, remote: RemotePages, extent: Extent) -> Ns {
        let costs = &self.costs;
        let further = costs.remote_access.once().saturating_sub(costs.local_access.once());
        let words = match extent {
            Extent::Word => u64::from(remote.pages),
            Extent::Whole => 0,
        };
        let accesses = Ns(further.0 * (words + u64::from(remote.table_lines)));
        let whole = match extent {
            Extent::Word => Ns::ZERO,
            Extent::Whole => self.remote_part(costs.clear_base_page.times(remote.pages.into())),
        };
        accesses + whole
    }

    /// How much longer work takes on memory of another node: as much in proportion as an access does.
    fn remote_part(&self, local: Ns) -> Ns {
        let (near, far) = (self.costs.local_access.once().0, self.costs.remote_access.once().0);
        Ns((local.0 * far.saturating_sub(near)).checked_div(near).unwrap_or(0))
    }

    /// What clearing a fresh huge page takes, on a CPU of `node`.
    pub(crate) fn clear_huge_time(&self, huge: Pfn, node: NodeId) -> Ns {
        let local = self.costs.clear_huge_page.once();
        if self.memory.node_of(huge) == node { local } else { local + self.remote_part(local) }
    }

    /// Notes how much a process has in memory (`hiwater_rss`).
    pub(crate) fn note_resident(&mut self, process: ProcessId) {
        let pages = self.memory.spaces.task(process);
        let resident = pages.anon + pages.file;
        let most = &mut self.process_mut(process).resident_max;
        *most = resident.max(*most);
    }
}
