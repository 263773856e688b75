//! What happens when nothing can be reclaimed any more.
//!
//! Models: `out_of_memory`, `oom_badness`, `oom_reap_task`, mm/oom_kill.c, v4.4 and v6.12.
//! Departs: a kernel thread takes the victim's memory down, as since 4.6 (aac453635549); before, the
//! victim itself did so on its way out. Visible as: on older kernels a victim that waits for something
//! keeps its memory longer.

use super::work::spend_work;
use super::{Kernel, KernelCx};
use highorder_mm::lru::LruvecId;
use highorder_mm::page_table::Vpn;
use highorder_mm::vma::ProcessId;
use highorder_words::{CpuId, Ns};
use std::ops::Range;

/// Pages that are unmapped at one moment at most.
const UNMAP_MAX: u32 = 4096;

/// Kills the process that has most memory, unless one is dying already; then waits for it a little.
/// Whether there was one. Suspends.
#[doc(alias = "__alloc_pages_may_oom")]
pub(crate) fn out_of_memory(cx: &mut KernelCx<'_>) -> bool {
    let kernel = cx.world();
    let is_dying = kernel.processes.iter().any(|process| process.killed && !process.gone);
    if !is_dying {
        let Some(victim) = kernel.worst() else { return false };
        kernel.process_mut(victim).killed = true;
        kernel.oom_kills += 1;
        let queue = kernel.oom_wait;
        cx.wake_one(queue);
        let kernel = cx.world();
        let mut queues: Vec<_> = kernel.nodes.iter().map(|node| node.pfmemalloc_wait).collect();
        queues.extend(&kernel.interruptible);
        for queue in queues {
            cx.wake_all(queue);
        }
    }
    // schedule_timeout_killable(1): a jiffy.
    cx.sleep(Ns::from_millis(4));
    true
}

/// A request that cannot fail has found nothing, time and again: kills whoever has most, as the requests of others do on a
/// real machine.
pub(crate) fn kill_or_halt(cx: &mut KernelCx<'_>) {
    if !out_of_memory(cx) {
        halt(cx);
    }
}

/// Memory has run out and nobody is there to be killed: the machine is at its end, as a kernel that panics.
pub(crate) fn halt(cx: &mut KernelCx<'_>) -> ! {
    let processes = cx.world().processes.len();
    cx.halt(format!("memory ran out and none of {processes} processes can be killed"))
}

/// The kernel thread that takes victims' memory down. Never returns.
#[doc(alias = "oom_reap_task")]
pub(crate) fn oom_reaper(cx: &mut KernelCx<'_>) {
    loop {
        let kernel = cx.world();
        let mut victims = (0..kernel.processes.len() as u32).map(ProcessId);
        let victim = victims.find(|&id| kernel.process(id).killed && !kernel.process(id).gone);
        match victim {
            Some(victim) => exit_mmap(cx, victim),
            None => {
                let queue = kernel.oom_wait;
                cx.wait(queue);
            }
        }
    }
}

/// Takes down all that a process has mapped. Suspends.
pub fn exit_mmap(cx: &mut KernelCx<'_>, process: ProcessId) {
    loop {
        let spaces = &cx.world().memory.spaces;
        let Some(vma) = spaces.vmas().find(|vma| vma.task == process) else { break };
        let range = vma.start..vma.end;
        unmap(cx, range);
    }
    cx.world().process_mut(process).gone = true;
    cx.world().swap_token.put(process);
}

/// Unmaps a range, some pages at a time. Suspends.
pub fn unmap(cx: &mut KernelCx<'_>, range: Range<Vpn>) {
    let mut of_files = cx.world().memory.spaces.vmas_in(range.clone());
    of_files.retain(|vma| vma.file.is_some());
    by_parts(cx, range, |kernel, part, cpu| kernel.memory.munmap(part, cpu));
    for vma in of_files {
        cx.world().forget_mapping_readahead(vma.origin);
    }
    super::filemap::release_unmapped(cx);
}

/// Drops what a range holds and keeps the mapping (`MADV_DONTNEED`). Suspends.
pub fn zap(cx: &mut KernelCx<'_>, range: Range<Vpn>) {
    by_parts(cx, range, |kernel, part, cpu| kernel.memory.dontneed(part, cpu));
}

fn by_parts(
    cx: &mut KernelCx<'_>,
    range: Range<Vpn>,
    step: impl Fn(&mut Kernel, Range<Vpn>, CpuId),
) {
    let mut at = range.start;
    while at < range.end {
        // A part that ends within a huge page would split it.
        let end = Vpn((at.0 + UNMAP_MAX) / UNMAP_MAX * UNMAP_MAX).min(range.end);
        let cpu = cx.cpu();
        let kernel = cx.world();
        let near = kernel.memory.spaces.table().frame_at(at);
        let zone = near.map(|pfn| kernel.memory.zone_of(pfn));
        step(kernel, at..end, cpu);
        let zone = zone.unwrap_or_else(|| kernel.zone_of_lists(LruvecId(0)));
        spend_work(cx, zone);
        at = end;
    }
}

impl Kernel {
    /// The process with the most pages, those in swap and page tables included.
    #[doc(alias = "oom_badness")]
    fn worst(&self) -> Option<ProcessId> {
        let ids = (0..self.processes.len() as u32).map(ProcessId);
        let living = ids.filter(|&id| !self.process(id).gone && !self.process(id).killed);
        let pages = |id: ProcessId| {
            let has = self.memory.spaces.task(id);
            has.anon + has.file + has.swap + has.tables
        };
        // The first of equals, as the kernel keeps the one it found first.
        living.filter(|&id| pages(id) > 0).max_by_key(|&id| (pages(id), std::cmp::Reverse(id.0)))
    }
}
