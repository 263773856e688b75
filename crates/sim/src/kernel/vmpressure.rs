//! Reclaim tells of its pressure: once enough pages were looked at, a worker is woken on the CPU of whoever looked.
//!
//! Models: `vmpressure`, `vmpressure_work_fn`, mm/vmpressure.c, v6.1.
//! Departs: nobody listens to what is told. Visible as: nothing but the moment at which the worker takes the CPU. A
//! reclaimer that has run for long does not get it back at once, and kswapd that waits for a CPU does not sleep: whoever
//! asks it for more wakes nobody.

use super::{Kernel, KernelCx};
use crate::sched::WaitQueue;
use crate::sim::Sim;
use crate::task::{Affinity, Mode, TaskSpec};
use highorder_mm::gfp::Gfp;
use highorder_mm::reclaim::SWAP_CLUSTER_MAX;
use highorder_words::CpuId;

/// Pages looked at for which pressure is told of once (`vmpressure_win`).
const WINDOW: u64 = 16 * SWAP_CLUSTER_MAX;

/// What was looked at since pressure was last told of, and who tells.
#[derive(Debug, Default)]
pub(crate) struct Pressure {
    scanned: u64,
    /// The work waits for a worker.
    is_queued: bool,
    /// Where the worker of each CPU sleeps; none where pressure is not told of.
    workers: Vec<WaitQueue>,
}

/// Starts a worker for each CPU.
pub(crate) fn start_workers(sim: &mut Sim<Kernel>) {
    for cpu in CpuId::all(sim.nr_cpus()) {
        let queue = sim.add_queue(format!("kworker/{cpu}"));
        sim.world_mut().pressure.workers.push(queue);
        let task = TaskSpec::kernel_thread(format!("kworker/{cpu}")).on(Affinity::Cpu(cpu));
        sim.spawn(task, move |cx| worker(cx, queue));
    }
}

/// Notes that a reclaimer with these flags has looked at so many pages.
#[doc(alias = "vmpressure")]
pub(crate) fn note_scanned(cx: &mut KernelCx<'_>, gfp: Gfp, nr_scanned: u64) {
    // Pressure that no program could do anything about does not count.
    let counts = gfp.intersects(Gfp::HIGHMEM | Gfp::MOVABLE | Gfp::IO | Gfp::FS);
    let pressure = &mut cx.world().pressure;
    if pressure.workers.is_empty() || !counts {
        return;
    }
    pressure.scanned += nr_scanned;
    if nr_scanned > 0 && pressure.scanned >= WINDOW && !pressure.is_queued {
        pressure.is_queued = true;
        let cpu = cx.cpu();
        let queue = cx.world().pressure.workers[cpu.index()];
        cx.wake_one(queue);
    }
}

/// The worker of a CPU. Never returns.
#[doc(alias = "vmpressure_work_fn")]
fn worker(cx: &mut KernelCx<'_>, queue: WaitQueue) {
    loop {
        cx.wait(queue);
        let kernel = cx.world();
        kernel.pressure.is_queued = false;
        kernel.pressure.scanned = 0;
        // The lock of the counts, and that of the list of listeners.
        let took = kernel.costs.lock_pair.times(2);
        cx.spend(took, Mode::System);
    }
}
