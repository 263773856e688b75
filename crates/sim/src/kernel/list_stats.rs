//! Kernels built with memory control groups count the sizes of lists by CPU and by group, and a worker adds them up.
//! Between two times the balance between types, and refaults, go by what was ([`ListStats::Periodic`]).
//!
//! Models: `flush_memcg_stats_dwork`, mm/memcontrol.c, v6.12.
//! Departs: adding up takes no time of its own; a reclaimer that finds it two periods late does not do it. Visible as:
//! nothing while the worker gets a CPU.

use super::{Kernel, KernelCx};
use crate::sim::Sim;
use crate::task::TaskSpec;
use highorder_mm::policy::{ListStats, LruKind};
use highorder_words::Ns;

/// From one time to the next (`FLUSH_TIME`).
const PERIOD: Ns = Ns::from_secs(2);

/// Starts the worker where anything goes by what it adds up: generations know their own sizes.
pub(crate) fn start_worker(sim: &mut Sim<Kernel>) {
    let lru = sim.world().memory.policy.lru;
    if lru.stats == ListStats::Periodic && lru.kind == LruKind::Classic {
        sim.spawn(TaskSpec::kernel_thread("kworker/u:stats"), worker);
    }
}

/// Never returns.
#[doc(alias = "flush_memcg_stats_dwork")]
fn worker(cx: &mut KernelCx<'_>) {
    loop {
        cx.world().memory.gather_list_stats();
        cx.sleep(PERIOD);
    }
}
