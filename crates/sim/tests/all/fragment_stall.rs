//! A movable request that would mix pageblocks for a small block, on kernels of the series of November 2018: followed
//! through its wait.

use highorder_kernels::{KernelFile, machine};
use highorder_mm::alloc::Request;
use highorder_mm::buddy::FreeTo;
use highorder_mm::gfp::Gfp;
use highorder_mm::types::NodeId;
use highorder_mm::vmstat::Vm;
use highorder_mm::watermark::Mark;
use highorder_mm::{CpuId, Order};
use highorder_sim::kernel::slowpath::{Want, alloc_pages};
use highorder_sim::kernel::trace::TraceEvent;
use highorder_sim::kernel::{self, Kernel, Knobs, Stall, filemap, writeback};
use highorder_sim::{DeviceId, Ns, Sim, TaskSpec};
use std::cell::RefCell;
use std::rc::Rc;

/// What became of one request.
#[derive(Debug, Default)]
struct Followed {
    served: bool,
    took: Ns,
    /// The waits that a trace tells of.
    traced: Vec<Ns>,
    /// Those that the run's histogram has.
    stalls: Vec<Ns>,
    /// Pages by which the marks of all zones were boosted when it was served.
    boost: u64,
    /// Fallbacks that mixed a pageblock.
    mixed: usize,
}

const fn request(gfp: Gfp) -> Want {
    let request =
        Request { order: Order(0), gfp, cpu: CpuId(0), node: NodeId(0), past_lists: false };
    Want { request, allowed: u64::MAX, process: None }
}

/// Makes a request of one page where all that is free are few single pages, in pageblocks that the kernel has.
fn follow(gfp: Gfp, set: impl FnOnce(&mut KernelFile)) -> (Followed, Sim<Kernel>) {
    // Emulated, so that kswapd takes some ticks of the clock.
    let machine = machine::load("guest-tcg").unwrap();
    let mut kernel = KernelFile::load("linux-4.20-rc1-stall").unwrap();
    set(&mut kernel);
    let knobs = Knobs::at_boot(&kernel.policy, &kernel.flows);
    let mut sim = kernel::boot(&machine, kernel.policy, kernel.flows, knobs);
    let told = Rc::new(RefCell::new(Followed::default()));
    let stalls = told.clone();
    sim.world_mut().on_stall = Box::new(move |stall, took| {
        if stall == Stall::Fragmentation {
            stalls.borrow_mut().stalls.push(took);
        }
    });
    let seen = told.clone();
    let process = sim.world_mut().add_process("program");
    sim.spawn(TaskSpec::user("program"), move |cx| {
        // Something that kswapd can reclaim.
        let file = cx.world().create_file(DeviceId(0));
        filemap::write(cx, process, file, 0, 256 << 20).unwrap();
        writeback::fsync(cx, file).unwrap();
        let memory = &mut cx.world().memory;
        // What the CPU's lists have goes, too.
        let mut taken = Vec::new();
        for kind in [Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE] {
            let page = request(kind).request;
            let flags = memory.fast_path_flags(page);
            while let Some(pfn) = memory.get_page_from_freelist(page, None, flags) {
                taken.push(pfn);
            }
        }
        for pfn in taken.into_iter().filter(|pfn| pfn.0 % 2 == 0) {
            // Above the low mark nobody comes so far as to wait.
            let zone = &memory.zones[memory.zone_of(pfn).index()];
            let marks = zone.watermarks;
            if zone.nr_free_pages < (marks.pages(Mark::Min) + marks.pages(Mark::Low)) / 2 {
                memory.free_to_buddy(memory.zone_of(pfn), pfn, Order(0), FreeTo::Policy);
            }
        }
        // What was told so far is not the request's.
        cx.world().memory.take_extfrag();
        cx.world().keep_trace();
        let began = cx.now();
        let served = alloc_pages(cx, request(gfp)).is_some();
        let took = cx.now() - began;
        let kernel = cx.world();
        let trace = kernel.trace.take().unwrap_or_default();
        let mut seen = seen.borrow_mut();
        (seen.served, seen.took) = (served, took);
        for traced in trace {
            match traced.event {
                TraceEvent::FragmentationStall { duration, .. } => seen.traced.push(duration),
                TraceEvent::Extfrag(_) => seen.mixed += 1,
                _ => {}
            }
        }
        seen.boost = kernel.memory.zones.iter().map(|zone| zone.watermarks.boost).sum();
    });
    sim.run().unwrap();
    (told.take(), sim)
}

#[test]
fn a_movable_request_that_may_wait_does_so_once_and_is_then_served_without() {
    const TENTH: Ns = Ns::from_millis(100);
    let (found, sim) = follow(Gfp::HIGHUSER_MOVABLE, |_| ());
    assert!(found.served, "{found:?}");
    assert_eq!((found.traced.len(), found.stalls.len()), (1, 1), "one wait: {found:?}");
    assert_eq!(found.traced, found.stalls);
    assert_eq!(sim.world().memory.vm.get(Vm::FragmentStall), 1);
    assert!(Ns::ZERO < found.traced[0] && found.traced[0] <= TENTH, "{found:?}");
    assert!(found.traced[0] <= found.took + Ns::from_millis(4), "ticks of the clock: {found:?}");
    assert!(found.boost >= 512, "kswapd has more to do: {found:?}");
    assert_eq!(found.mixed, 0, "what kswapd freed meanwhile serves it: {found:?}");
}

#[test]
fn nobody_else_waits() {
    let unmovable = follow(Gfp::KERNEL, |_| ()).0;
    let hurried = follow(Gfp::HIGHUSER_MOVABLE - Gfp::DIRECT_RECLAIM, |_| ()).0;
    let switched_off = |kernel: &mut KernelFile| kernel.policy.fallback.stall_order = Order(0);
    let without = follow(Gfp::HIGHUSER_MOVABLE, switched_off).0;
    for found in [unmovable, hurried, without] {
        assert!(found.served && found.stalls.is_empty() && found.traced.is_empty(), "{found:?}");
    }
}
