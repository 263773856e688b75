//! Pages on their way to swap and back.
//!
//! Models: `do_swap_page`, mm/memory.c, `swap_cluster_readahead`, mm/swap_state.c, `swap_writepage`,
//! `swap_readpage`, mm/page_io.c, v4.4 and v6.12.
//! Departs: what a page holds is not known, so that pages of zeros are written like others. Visible as:
//! on 6.12 memory that was only ever cleared goes to the device, which the kernel would spare.

use super::fault::{Killed, check, fault_page, revalidate};
use super::filemap::{Reader, memory_page};
use super::mmap_lock::{self, Hold};
use super::plug::Plug;
use super::slowpath::{Want, alloc_pages};
use super::work::price;
use super::{Kernel, KernelCx, PAGE_BYTES, Stall, SwapDevice};
use crate::device::Io;
use crate::sched::DeviceId;
use crate::task::Mode;
use highorder_mm::anon::{Fault, FaultKind};
use highorder_mm::filemap::FileId;
use highorder_mm::frame::PageFlags;
use highorder_mm::gfp::Gfp;
use highorder_mm::page_table::{Slot, Vpn};
use highorder_mm::swap::{CacheEntry, SwapIo, SwapinPlan};
use highorder_mm::types::Access;
use highorder_mm::vma::ProcessId;
use highorder_mm::vmstat::Vm;
use highorder_mm::{Order, Pfn};
use highorder_words::Ns;

/// Serves a fault on a page that is in swap: reads it, and some around it, unless there is a copy.
///
/// # Errors
/// The process was killed.
#[doc(alias = "do_swap_page")]
pub(crate) fn swap_in(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    fault: &Fault,
    slot: Slot,
) -> Result<(), Killed> {
    let began = cx.now();
    if !revalidate(cx, process, fault)? {
        return Ok(());
    }
    let is_cached = matches!(cx.world().memory.swap.cached(slot), CacheEntry::Page(_));
    if let Some(token) = cx.world().token().filter(|_| !is_cached) {
        let interval = token.ask(process);
        // The token's lock, and what the process has earned, are fetched before the lock is taken.
        let fetch = cx.world().costs.cache_read.once();
        cx.spend(fetch, Mode::System);
        // Another of its tasks may have read the page meanwhile.
        let stands = revalidate(cx, process, fault)?;
        cx.world().swap_token.grab(process, interval);
        if !stands {
            return Ok(());
        }
    }
    let plan = cx.world().memory.swapin_plan(fault.vpn, slot);
    let is_major =
        begin_read(cx, plan, |cx| fault_page(cx, process, fault, Gfp::HIGHUSER_MOVABLE))?;
    // Whoever waits has let the mappings' lock go (`lock_page_or_retry`), and is in no fault as others see it.
    if let Some(token) = cx.world().token() {
        token.end_fault(process);
    }
    wait_until_read(cx, slot);
    if let Some(token) = cx.world().token() {
        token.begin_fault(process);
    }
    check(cx, process)?;
    if revalidate(cx, process, fault)?
        && matches!(cx.world().memory.swap.cached(slot), CacheEntry::Page(_))
    {
        cx.world().memory.map_swapped(fault, slot, is_major);
        spend_mapping(cx, process);
    }
    if is_major {
        let took = cx.now() - began;
        (cx.world().on_stall)(Stall::SwapIn, took);
    }
    Ok(())
}

/// What became of an entry in swap that khugepaged wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SwappedEntry {
    /// Its page is mapped, or something else is there by now.
    Mapped,
    /// Its page had to be waited for; the process's lock was released for that (`VM_FAULT_RETRY`).
    Waited,
    /// No memory was to be had, or the process is going.
    Failed,
}

/// Swaps in an entry of a process whose lock is held for reading, for somebody who took no fault and does not come
/// back: what has to be read is waited for, and then left in the swap cache.
///
/// # Panics
/// If the entry is of no mapping.
pub(crate) fn swap_in_for_collapse(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    vpn: Vpn,
    slot: Slot,
) -> SwappedEntry {
    let fault = cx.world().memory.touch(vpn, 1, Access::Read).fault;
    let Some(fault) = fault.filter(|fault| fault.kind == FaultKind::Swap(slot)) else {
        return SwappedEntry::Failed;
    };
    let plan = cx.world().memory.swapin_plan(vpn, slot);
    let began = begin_read(cx, plan, |cx| {
        let cpu = cx.cpu();
        let memory = &cx.world().memory;
        // The process may come to its end meanwhile.
        memory.spaces.find(vpn).filter(|vma| vma.task == process).ok_or(Killed)?;
        let (request, allowed) = memory.fault_request(&fault, Order(0), Gfp::HIGHUSER_MOVABLE, cpu);
        alloc_pages(cx, Want { request, allowed, process: Some(process) }).ok_or(Killed)
    });
    let Ok(is_major) = began else { return SwappedEntry::Failed };
    let kernel = cx.world();
    kernel.memory.vm.add(Vm::PgMajFault, u64::from(is_major));
    if kernel.memory.spaces.find(vpn).is_none_or(|vma| vma.task != process) {
        return SwappedEntry::Failed;
    }
    if kernel.memory.spaces.table().pte(vpn).slot() != Some(slot) {
        // Somebody else was faster.
        return SwappedEntry::Mapped;
    }
    let CacheEntry::Page(pfn) = kernel.memory.swap.cached(slot) else {
        return SwappedEntry::Failed;
    };
    let head = kernel.memory.frames().head_of(pfn);
    if kernel.memory.frames().has(head, PageFlags::LOCKED) {
        mmap_lock::unlock(cx, process, Hold::Read);
        wait_until_read(cx, slot);
        return SwappedEntry::Waited;
    }
    kernel.memory.map_swap_copy(&fault, slot);
    spend_mapping(cx, process);
    SwappedEntry::Mapped
}

/// Notes that a process has one page more, and spends what mapping it took.
fn spend_mapping(cx: &mut KernelCx<'_>, process: ProcessId) {
    let kernel = cx.world();
    kernel.note_resident(process);
    let work = kernel.memory.take_work();
    let price = price(cx, work);
    cx.spend(price.free, Mode::System);
}

/// Serves a use of a page of a file that is in swap: reads it, and some around it, unless there is a copy. Suspends.
///
/// # Errors
/// The process was killed.
#[doc(alias = "shmem_swapin_folio")]
pub(super) fn shmem_swap_in(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    (file, index, slot): (FileId, u64, Slot),
    reader: Reader,
) -> Result<(), Killed> {
    let began = cx.now();
    let plan = cx.world().memory.shmem_swapin_plan(slot);
    let is_major = begin_read(cx, plan, |cx| memory_page(cx, process))?;
    if is_major && reader == Reader::Fault {
        cx.world().memory.vm.add(Vm::PgMajFault, 1);
    }
    wait_until_read(cx, slot);
    wait_until_written(cx, slot);
    check(cx, process)?;
    cx.world().memory.shmem_from_swap(file, index, slot);
    if is_major {
        let took = cx.now() - began;
        (cx.world().on_stall)(Stall::SwapIn, took);
    }
    Ok(())
}

/// Waits while the copy of a slot is on its way out (`folio_wait_writeback`).
fn wait_until_written(cx: &mut KernelCx<'_>, slot: Slot) {
    loop {
        let kernel = cx.world();
        let CacheEntry::Page(pfn) = kernel.memory.swap.cached(slot) else { return };
        if !kernel.memory.frames().has(pfn, PageFlags::WRITEBACK) {
            return;
        }
        wait_for_any_write(cx, None);
    }
}

/// Waits until some page was written, to a file or to swap.
pub(super) fn wait_for_any_write(cx: &mut KernelCx<'_>, timeout: Option<Ns>) {
    let kernel = cx.world();
    kernel.nr_awaiting_swap_writes += 1;
    let queue = kernel.written_wait;
    cx.wait_for_io_in(queue, timeout);
    cx.world().nr_awaiting_swap_writes -= 1;
}

/// Begins to read what is planned for a slot, if anything is: else there is a copy. `page` finds memory. Whether it
/// had to. Suspends.
#[doc(alias = "swap_readpage")]
fn begin_read(
    cx: &mut KernelCx<'_>,
    plan: Option<SwapinPlan>,
    mut page: impl FnMut(&mut KernelCx<'_>) -> Result<Pfn, Killed>,
) -> Result<bool, Killed> {
    let Some(plan) = plan else { return Ok(false) };
    let mut reads = Vec::new();
    let mut failed = Ok(true);
    for &other in plan.slots() {
        if !cx.world().is_wanted(other) {
            continue;
        }
        let pfn = match page(cx) {
            Ok(pfn) => pfn,
            Err(killed) => {
                failed = Err(killed);
                break;
            }
        };
        let cpu = cx.cpu();
        let kernel = cx.world();
        // Reclaim for the page may have taken long.
        if kernel.is_wanted(other) {
            reads.push(kernel.memory.begin_swapin(other, pfn, plan.target, cpu));
        } else {
            kernel.memory.free(pfn, Order(0), cpu);
        }
    }
    // Others may wait already for what has begun.
    read_in(cx, &reads);
    failed
}

/// Waits until the copy of a slot, if there is one, has been read.
fn wait_until_read(cx: &mut KernelCx<'_>, slot: Slot) {
    while let CacheEntry::Page(pfn) = cx.world().memory.swap.cached(slot) {
        let head = cx.world().memory.frames().head_of(pfn);
        if !cx.world().memory.frames().has(head, PageFlags::LOCKED) {
            return;
        }
        match cx.world().reads.get(&head).copied() {
            Some(ticket) => cx.wait_io(ticket),
            None => {
                // Another task is still looking for memory to read its neighbours into.
                let queue = cx.world().reads_begin;
                cx.wait_for_io_in(queue, None);
            }
        }
    }
}

#[doc(alias = "swap_cluster_readahead")]
fn read_in(cx: &mut KernelCx<'_>, reads: &[SwapIo]) {
    for run in runs(cx.world(), reads) {
        let costs = &cx.world().costs;
        let cost = costs.block_request.once() + costs.swap_in.times(run.parts.len() as u64);
        cx.spend(cost, Mode::System);
        let tickets = cx.submit_all(run.device, &run.reads());
        for (&Part { io, .. }, ticket) in run.parts.iter().zip(tickets) {
            // One that waited for a place in the queue may be read already.
            let locked = cx.world().memory.frames().has(io.pfn, PageFlags::LOCKED);
            if locked {
                cx.world().reads.insert(io.pfn, ticket);
            }
        }
    }
    let queue = cx.world().reads_begin;
    cx.wake_all(queue);
}

/// Begins to write a page, which joins the request before it if that ends where the page goes. Devices get what is begun
/// when much of it is held, or with [`hand_over`]. Suspends.
#[doc(alias = "swap_writepage")]
#[doc(alias = "blk_attempt_plug_merge")]
pub(crate) fn write_page(cx: &mut KernelCx<'_>, plug: &mut Plug, io: SwapIo) {
    let policy = cx.world().flows.block;
    let page = Part::of(cx.world(), io);
    let spec = cx.device(page.device).spec();
    let most_bytes = spec.max_request_bytes.min(u64::from(spec.max_segments) * PAGE_BYTES);
    let hardware_queues = spec.hardware_queues;
    let costs = &cx.world().costs;
    let mut cost = costs.swap_out.once();
    match plug.last().filter(|last| last.is_before(page, most_bytes)) {
        Some(last) => last.join(page),
        None => {
            cost += costs.block_request.once();
            if plug.is_full(policy, hardware_queues) {
                hand_over(cx, plug);
            }
            plug.hold(Run::begin(page));
        }
    }
    cx.spend(cost, Mode::System);
}

/// Devices get what was begun. Suspends, as iowait, while a device's queue is full.
#[doc(alias = "blk_finish_plug")]
pub(crate) fn hand_over(cx: &mut KernelCx<'_>, plug: &mut Plug) {
    for request in plug.take() {
        cx.submit_all(request.device, &request.writes());
    }
}

/// The transfer of one page, or of one huge page.
#[derive(Clone, Copy)]
struct Part {
    io: SwapIo,
    device: DeviceId,
    offset: u64,
}

impl Part {
    fn of(kernel: &Kernel, io: SwapIo) -> Self {
        let device = kernel.swap_device(io.slot);
        Self { io, device: device.device, offset: device.offset(io.slot) }
    }

    fn bytes(self) -> u64 {
        u64::from(self.io.order.pages()) * PAGE_BYTES
    }
}

/// Neighbouring slots of one device.
pub(crate) struct Run {
    device: DeviceId,
    parts: Vec<Part>,
    bytes: u64,
}

impl Run {
    fn ios(&self, io: fn(u64, u64, u64) -> Io) -> Vec<Io> {
        let of = |part: &Part| io(part.offset, part.bytes(), u64::from(part.io.pfn.0));
        self.parts.iter().map(of).collect()
    }

    /// Pages in a row, somewhere.
    #[cfg(test)]
    pub(crate) fn of_pages(pages: u32) -> Self {
        let part = |n| Part {
            io: SwapIo { slot: Slot(n), pfn: Pfn(n), order: Order(0) },
            device: DeviceId(0),
            offset: u64::from(n) * PAGE_BYTES,
        };
        let mut run = Self::begin(part(0));
        (1..pages).for_each(|n| run.join(part(n)));
        run
    }

    fn begin(part: Part) -> Self {
        Self { device: part.device, parts: vec![part], bytes: part.bytes() }
    }

    /// How long it is.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it ends where a transfer begins, and they are not too much for one request.
    fn is_before(&self, part: Part, most_bytes: u64) -> bool {
        self.device == part.device
            && self.parts[0].offset + self.bytes == part.offset
            && self.bytes + part.bytes() <= most_bytes
    }

    fn join(&mut self, part: Part) {
        self.parts.push(part);
        self.bytes += part.bytes();
    }

    fn reads(&self) -> Vec<Io> {
        self.ios(Io::read)
    }

    fn writes(&self) -> Vec<Io> {
        self.ios(Io::write)
    }
}

/// Groups transfers into runs that the block layer merges.
fn runs(kernel: &Kernel, ios: &[SwapIo]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for &io in ios {
        let part = Part::of(kernel, io);
        match runs.last_mut().filter(|run| run.is_before(part, u64::MAX)) {
            Some(run) => run.join(part),
            None => runs.push(Run::begin(part)),
        }
    }
    runs
}

impl Kernel {
    fn swap_device(&self, slot: Slot) -> SwapDevice {
        self.swap_devices[self.memory.swap.area_of(slot)]
    }

    /// Whether a slot holds a page of which there is no copy.
    fn is_wanted(&self, slot: Slot) -> bool {
        let swap = &self.memory.swap;
        swap.is_mapped(slot) && !matches!(swap.cached(slot), CacheEntry::Page(_))
    }

    /// Pages being read, for those who check that nothing is lost.
    #[must_use]
    pub fn pages_being_read(&self) -> Vec<Pfn> {
        self.reads.keys().copied().collect()
    }
}
