//! Automatic NUMA balancing on the model: memory comes to the task that uses it, or the task goes to its memory.

use highorder_kernels::KernelFile;
use highorder_kernels::machine;
use highorder_mm::CpuId;
use highorder_mm::page_table::Vpn;
use highorder_mm::types::{Access, MemPolicy, NodeId};
use highorder_mm::vma::{HugeAdvice, ProcessId};
use highorder_mm::vmstat::Vm;
use highorder_sim::kernel::fault::{Extent, touch_range};
use highorder_sim::kernel::policy::NumaScan;
use highorder_sim::kernel::{self, Kernel, KernelCx, Knobs, numa};
use highorder_sim::{Affinity, Mode, Ns, Sim, TaskSpec};
use std::cell::Cell;
use std::rc::Rc;

const PROCESS: ProcessId = ProcessId(0);
/// Less than is looked at at once.
const PAGES: u32 = 16 * 512;

/// Runs one program, at first on node 1, of a machine of two nodes.
fn run(kernel: &str, on: bool, program: impl FnOnce(&mut KernelCx<'_>) + 'static) -> Sim<Kernel> {
    let machine = machine::load("two-node-64g").unwrap().scaled(1, 64).unwrap();
    let kernel = KernelFile::load(kernel).unwrap();
    let mut knobs = Knobs::at_boot(&kernel.policy, &kernel.flows);
    knobs.numa_balancing = on;
    let mut sim = kernel::boot(&machine, kernel.policy, kernel.flows, knobs);
    sim.world_mut().add_process("program");
    sim.spawn(TaskSpec::user("program").on(Affinity::Node(NodeId(1))), program);
    sim.run().unwrap();
    let memory = &mut sim.world_mut().memory;
    memory.lru_add_drain_all();
    memory.audit().unwrap();
    memory.validate().unwrap();
    sim
}

fn map(cx: &mut KernelCx<'_>, policy: MemPolicy, advice: HugeAdvice) -> Vpn {
    let spaces = &mut cx.world().memory.spaces;
    let start = spaces.mmap(PROCESS, PAGES, policy);
    spaces.change(start..Vpn(start.0 + PAGES), |vma| vma.huge = advice);
    start
}

fn touch(cx: &mut KernelCx<'_>, start: Vpn) {
    touch_range(cx, PROCESS, start, PAGES, Access::Write, Extent::Word).unwrap();
}

/// Uses memory now and then for ten seconds.
fn use_it(cx: &mut KernelCx<'_>, start: Vpn) {
    for _ in 0..100 {
        touch(cx, start);
        cx.spend(Ns::from_millis(100), Mode::User);
    }
}

/// How many of the pages lie on node 0.
fn on_node_0(memory: &highorder_mm::Memory, start: Vpn) -> u32 {
    let frames = (0..PAGES).filter_map(|i| memory.spaces.table().frame_at(Vpn(start.0 + i)));
    frames.filter(|&pfn| memory.node_of(pfn) == NodeId(0)).count() as u32
}

/// Writes memory on node 1, then uses it from node 0. How much of it came there, and the run.
fn move_away_from_memory(kernel: &str, on: bool, advice: HugeAdvice) -> (u32, Sim<Kernel>) {
    let moved = Rc::new(Cell::new(0));
    let seen = moved.clone();
    let sim = run(kernel, on, move |cx| {
        let start = map(cx, MemPolicy::Default, advice);
        touch(cx, start);
        // What is in a CPU's batch cannot be taken off a list to be moved.
        cx.world().memory.lru_add_drain_all();
        assert_eq!(on_node_0(&cx.world().memory, start), 0);
        cx.set_affinity(Affinity::Node(NodeId(0)));
        use_it(cx, start);
        seen.set(on_node_0(&cx.world().memory, start));
    });
    (moved.get(), sim)
}

fn count(sim: &Sim<Kernel>, event: Vm) -> u64 {
    sim.world().memory.vm.get(event)
}

#[test]
fn memory_comes_to_the_node_that_uses_it_page_by_page_or_huge_page_by_huge_page() {
    for kernel in ["linux-4.4", "linux-5.1", "linux-6.12"] {
        for (advice, is_huge) in [(HugeAdvice::NoHuge, false), (HugeAdvice::Huge, true)] {
            let (moved, sim) = move_away_from_memory(kernel, true, advice);
            assert_eq!(moved, PAGES, "{kernel} {advice:?}");
            let pages = u64::from(PAGES);
            assert_eq!(count(&sim, Vm::NumaPagesMigrated), pages, "{kernel} {advice:?}");
            assert_eq!(count(&sim, Vm::PgMigrateSuccess), pages, "{kernel} {advice:?}");
            let remote = count(&sim, Vm::NumaHintFaults) - count(&sim, Vm::NumaHintFaultsLocal);
            assert_eq!(remote, if is_huge { pages / 512 } else { pages }, "{kernel} {advice:?}");
            assert_eq!(count(&sim, Vm::NumaHugePteUpdates) > 0, is_huge, "{kernel} {advice:?}");
            // It came whole: nothing was allocated for a second time by the program.
            let huge = sim.world().memory.lru.total_stats().nr_anon_huge;
            assert_eq!(huge, if is_huge { pages / 512 } else { 0 }, "{kernel} {advice:?}");
        }
    }
}

#[test]
fn a_page_that_came_to_a_node_stays_there_at_the_first_touch_from_another() {
    // Of local base pages these kernels take no more hints: what is known is known from before the move.
    for (advice, order) in [(HugeAdvice::NoHuge, 0), (HugeAdvice::Huge, 9)] {
        let sim = run("linux-5.1", true, move |cx| {
            let start = map(cx, MemPolicy::Default, advice);
            touch(cx, start);
            cx.world().memory.lru_add_drain_all();
            cx.set_affinity(Affinity::Node(NodeId(0)));
            use_it(cx, start);
            let memory = &mut cx.world().memory;
            assert_eq!(on_node_0(memory, start), PAGES);
            memory.change_prot_numa(start..Vpn(start.0 + PAGES), None);
            let fault = memory.touch(start, 1, Access::Write).fault.unwrap();
            let first = memory.hinting_fault(&fault, NodeId(1)).unwrap();
            assert_eq!(
                (first.node, first.order.0, first.last_node),
                (NodeId(0), order, Some(NodeId(0)))
            );
            assert!(!first.is_misplaced(NodeId(1)));
            memory.change_prot_numa(start..Vpn(start.0 + PAGES), None);
            assert!(memory.hinting_fault(&fault, NodeId(1)).unwrap().is_misplaced(NodeId(1)));
        });
        assert!(count(&sim, Vm::NumaPagesMigrated) > 0);
    }
}

#[test]
fn without_it_memory_stays_where_it_is() {
    let (moved, sim) = move_away_from_memory("linux-4.4", false, HugeAdvice::NoHuge);
    assert_eq!((moved, count(&sim, Vm::NumaPteUpdates)), (0, 0));
    assert_eq!(count(&sim, Vm::PgFault), u64::from(PAGES));
    // Kernels before 3.8 know no such thing, whatever is said.
    let (moved, sim) = move_away_from_memory("linux-3.4-rc2", true, HugeAdvice::NoHuge);
    assert_eq!((moved, count(&sim, Vm::NumaPteUpdates)), (0, 0));
    let counters = sim.world().memory.vmstat();
    assert!(counters.iter().all(|(name, _)| !name.starts_with("numa_hint")));
}

/// Others leave a node nothing above its high marks.
fn fill(cx: &mut KernelCx<'_>, node: NodeId) {
    let memory = &mut cx.world().memory;
    let request = highorder_mm::alloc::Request {
        order: highorder_mm::Order(0),
        gfp: highorder_mm::gfp::Gfp::HIGHUSER_MOVABLE,
        cpu: CpuId(0),
        node,
        past_lists: false,
    };
    let flags = memory.fast_path_flags(request);
    while memory.has_room_for_misplaced(node, highorder_mm::Order(0)) {
        memory.get_page_from_nodes(request, node.bit(), None, flags).unwrap();
    }
}

#[test]
fn a_task_goes_to_its_memory_where_that_cannot_come_to_it() {
    let node = Rc::new(Cell::new(NodeId(u32::MAX)));
    let seen = node.clone();
    let sim = run("linux-4.4", true, move |cx| {
        let start = map(cx, MemPolicy::Default, HugeAdvice::NoHuge);
        touch(cx, start);
        fill(cx, NodeId(0));
        cx.set_affinity(Affinity::Node(NodeId(0)));
        cx.set_affinity(Affinity::Any);
        assert_eq!(cx.node(), NodeId(0));
        use_it(cx, start);
        seen.set(cx.node());
    });
    assert_eq!(node.get(), NodeId(1));
    assert_eq!(count(&sim, Vm::NumaPagesMigrated), 0);
}

#[test]
fn memory_with_a_policy_of_its_own_gives_no_hints() {
    let sim = run("linux-6.12", true, |cx| {
        let start = map(cx, MemPolicy::Bind(2), HugeAdvice::NoHuge);
        touch(cx, start);
        cx.set_affinity(Affinity::Node(NodeId(0)));
        use_it(cx, start);
    });
    assert_eq!(count(&sim, Vm::NumaPteUpdates), 0);
}

#[test]
fn local_base_pages_of_a_single_thread_are_spared_since_4_10() {
    for (kernel, scan) in [
        ("linux-4.4", NumaScan::All),
        ("linux-4.14", NumaScan::SparesLocal),
        ("linux-5.4", NumaScan::SparesLocal),
        ("linux-6.1", NumaScan::SparesLocal),
        ("linux-3.3", NumaScan::None),
    ] {
        assert_eq!(KernelFile::load(kernel).unwrap().flows.numa.scan, scan, "{kernel}");
        let sim = run(kernel, true, |cx| {
            let start = map(cx, MemPolicy::Default, HugeAdvice::NoHuge);
            use_it(cx, start);
        });
        let hints = count(&sim, Vm::NumaHintFaults);
        assert_eq!(hints > 0, scan == NumaScan::All, "{kernel}: {hints}");
        assert_eq!(hints, count(&sim, Vm::NumaHintFaultsLocal), "{kernel}");
    }
}

#[test]
fn a_stack_that_its_creator_wrote_draws_its_task_from_a_full_node_alone() {
    for (is_full, expected) in [(true, 0), (false, 1)] {
        let node = Rc::new(Cell::new(NodeId(u32::MAX)));
        let seen = node.clone();
        let sim = run("linux-4.4", true, move |cx| {
            cx.set_affinity(Affinity::Node(NodeId(0)));
            let stack = cx.world().memory.spaces.mmap(PROCESS, 1, MemPolicy::Default);
            touch_range(cx, PROCESS, stack, 1, Access::Write, Extent::Word).unwrap();
            cx.world().memory.lru_add_drain_all();
            if is_full {
                fill(cx, NodeId(1));
            }
            cx.set_affinity(Affinity::Node(NodeId(1)));
            cx.set_affinity(Affinity::Any);
            numa::use_stack(cx, stack);
            // What it writes it uses only once.
            let start = map(cx, MemPolicy::Default, HugeAdvice::NoHuge);
            for page in 0..100 {
                let page = Vpn(start.0 + page);
                touch_range(cx, PROCESS, page, 1, Access::Write, Extent::Word).unwrap();
                cx.spend(Ns::from_millis(100), Mode::User);
            }
            seen.set(cx.node());
        });
        assert_eq!(node.get(), NodeId(expected), "full: {is_full}");
        assert_eq!(count(&sim, Vm::NumaPagesMigrated), u64::from(!is_full));
    }
}
