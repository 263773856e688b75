//! Huge pages on the model: who gets them, from where, and what becomes of them.

use crate::common::model;
use highorder_kernelfs::trace::{Event, Line};
use highorder_kernels::KernelFile;
use highorder_kernels::machine;
use highorder_lab::passes::Passes;
use highorder_lab::trace_text::{self, Whose};
use highorder_mm::compaction::CompactResult;
use highorder_mm::compaction::events::{CompactEvent, Scanners};
use highorder_mm::lru::{LruList, Lruvec};
use highorder_mm::page_table::Vpn;
use highorder_mm::policy::LruKind;
use highorder_mm::reclaim::{Reclaimer, ScanControl};
use highorder_mm::types::{Access, MemPolicy, NodeId};
use highorder_mm::vma::{HugeAdvice, ProcessId};
use highorder_mm::vmstat::{Vm, VmEvents};
use highorder_mm::zone::ZoneId;
use highorder_mm::{CpuId, Pfn};
use highorder_model::run_on;
use highorder_record::Inputs;
use highorder_sim::kernel::fault::{Extent, touch_range};
use highorder_sim::kernel::policy::ThpNuma;
use highorder_sim::kernel::thp::{Defrag, Enabled};
use highorder_sim::kernel::trace::{TraceEvent, Traced};
use highorder_sim::kernel::{self, Kernel, KernelCx, Knobs, filemap, oom, writeback};
use highorder_sim::{Affinity, DeviceId, Machine, Ns, Sim, TaskSpec};
use std::cell::Cell;
use std::rc::Rc;

const KERNELS: [&str; 4] = ["linux-4.4", "linux-4.14", "linux-6.1", "linux-6.12"];
const PROCESS: ProcessId = ProcessId(0);

/// Runs one program on node 0 of a machine; `set` changes what the kernel boots with.
fn run(
    machine: &Machine,
    kernel: &str,
    set: impl FnOnce(&mut KernelFile, &mut Knobs),
    program: impl FnOnce(&mut KernelCx<'_>) + 'static,
) -> Sim<Kernel> {
    let mut kernel = KernelFile::load(kernel).unwrap();
    let mut knobs = Knobs::at_boot(&kernel.policy, &kernel.flows);
    set(&mut kernel, &mut knobs);
    let mut sim = kernel::boot(machine, kernel.policy, kernel.flows, knobs);
    sim.world_mut().add_process("program");
    sim.spawn(TaskSpec::user("program").on(Affinity::Node(NodeId(0))), program);
    sim.run().unwrap();
    let memory = &mut sim.world_mut().memory;
    memory.lru_add_drain_all();
    memory.audit().unwrap();
    memory.validate().unwrap();
    sim
}

fn two_nodes() -> Machine {
    machine::load("two-node-64g").unwrap().scaled(1, 64).unwrap()
}

fn small() -> Machine {
    machine::load("one-node-8g").unwrap().scaled(1, 16).unwrap()
}

/// Maps memory and writes a word of each page.
fn write(cx: &mut KernelCx<'_>, pages: u32, advice: HugeAdvice) {
    let spaces = &mut cx.world().memory.spaces;
    let start = spaces.mmap(PROCESS, pages, MemPolicy::Default);
    let range = start..Vpn(start.0 + pages);
    spaces.change(range, |vma| vma.huge = advice);
    touch_range(cx, PROCESS, start, pages, Access::Write, Extent::Word).unwrap();
}

fn count(sim: &Sim<Kernel>, event: Vm) -> u64 {
    sim.world().memory.vm.get(event)
}

#[test]
fn every_unit_of_an_empty_machine_becomes_huge_where_the_setting_allows_it() {
    for kernel in KERNELS {
        for (enabled, advice, huge) in [
            (Enabled::Always, HugeAdvice::None, true),
            (Enabled::Always, HugeAdvice::NoHuge, false),
            (Enabled::Madvise, HugeAdvice::None, false),
            (Enabled::Madvise, HugeAdvice::Huge, true),
            (Enabled::Never, HugeAdvice::Huge, false),
        ] {
            let set = |_: &mut KernelFile, knobs: &mut Knobs| knobs.thp.enabled = enabled;
            let sim = run(&small(), kernel, set, move |cx| write(cx, 64 * 512, advice));
            let alloc = count(&sim, Vm::ThpFaultAlloc);
            assert_eq!(alloc, if huge { 64 } else { 0 }, "{kernel} {enabled:?} {advice:?}");
            let faults = count(&sim, Vm::PgFault);
            assert_eq!(faults, if huge { 64 } else { 64 * 512 }, "{kernel} {enabled:?}");
        }
    }
}

/// Leaves every second frame in use, so that nothing of order 1 is free.
fn scatter(cx: &mut KernelCx<'_>) {
    let memory = &mut cx.world().memory;
    let mut taken = Vec::new();
    let request = highorder_mm::alloc::Request {
        order: highorder_mm::Order(0),
        gfp: highorder_mm::gfp::Gfp::HIGHUSER_MOVABLE,
        cpu: CpuId(0),
        node: NodeId(0),
        past_lists: false,
    };
    let flags = memory.fast_path_flags(request);
    while let Some(pfn) = memory.get_page_from_freelist(request, None, flags) {
        taken.push(pfn);
    }
    for pfn in taken.into_iter().filter(|pfn| pfn.0 % 2 == 0) {
        memory.free(pfn, highorder_mm::Order(0), CpuId(0));
    }
}

#[test]
fn the_defrag_setting_says_who_reclaims_for_a_huge_fault_and_whether_kswapd_is_woken() {
    const KERNEL: &str = "linux-4.4-nodefrag";
    let kernel = KernelFile::load(KERNEL).unwrap();
    let at_boot = Knobs::at_boot(&kernel.policy, &kernel.flows);
    assert_eq!(at_boot.thp.defrag, Defrag::Madvise, "the default");
    for (defrag, advice, stalls, wakes) in [
        (Defrag::Always, HugeAdvice::None, true, false),
        (Defrag::Always, HugeAdvice::Huge, true, false),
        (Defrag::Madvise, HugeAdvice::None, false, false),
        (Defrag::Madvise, HugeAdvice::Huge, true, false),
        (Defrag::Never, HugeAdvice::None, false, false),
        (Defrag::Never, HugeAdvice::Huge, false, false),
    ] {
        let (stalled, woken) = scattered_huge_faults(KERNEL, defrag, advice);
        assert_eq!((stalled, woken.kswapd), (stalls, wakes), "{defrag:?}, {advice:?}");
    }
}

/// Which threads of the kernel had work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Woken {
    kswapd: bool,
    kcompactd: bool,
}

impl Woken {
    fn of(vm: &VmEvents) -> Self {
        Self { kswapd: vm.get(Vm::PageOutRun) > 0, kcompactd: vm.get(Vm::KcompactdWake) > 0 }
    }
}

/// Has huge pages asked for by faults where nothing of order 1 is free, and some of a file's pages can be reclaimed.
/// Whether anybody stalled, and who was woken.
fn scattered_huge_faults(kernel: &str, defrag: Defrag, advice: HugeAdvice) -> (bool, Woken) {
    let set = |_: &mut KernelFile, knobs: &mut Knobs| {
        knobs.thp.enabled = Enabled::Always;
        knobs.thp.defrag = defrag;
    };
    let sim = run(&small(), kernel, set, move |cx| {
        let file = cx.world().create_file(DeviceId(0));
        filemap::write(cx, PROCESS, file, 0, 128 << 20).unwrap();
        writeback::fsync(cx, file).unwrap();
        scatter(cx);
        write(cx, 16 * 512, advice);
        // Nothing for khugepaged.
        cx.world().knobs.thp.enabled = Enabled::Never;
        cx.sleep(Ns::from_secs(60));
    });
    let stalled = count(&sim, Vm::AllocStall) + count(&sim, Vm::CompactStall) > 0;
    (stalled, Woken::of(&sim.world().memory.vm))
}

#[test]
fn defer_wakes_kswapd_and_kcompactd_and_never_stalls() {
    let both = Woken { kswapd: true, kcompactd: true };
    for kernel in ["linux-4.4-nodefrag", "linux-4.6", "linux-6.12"] {
        for advice in [HugeAdvice::None, HugeAdvice::Huge] {
            let found = scattered_huge_faults(kernel, Defrag::Defer, advice);
            assert_eq!(found, (false, both), "{kernel}, {advice:?}");
        }
    }
}

#[test]
fn kswapd_takes_for_enough_what_it_sleeps_on_where_kcompactd_makes_the_blocks() {
    let machine = machine::load("one-node-8g").unwrap().scaled(1, 128).unwrap();
    for kernel in ["linux-4.4-nodefrag", "linux-4.6"] {
        let set = |_: &mut KernelFile, knobs: &mut Knobs| {
            knobs.thp.enabled = Enabled::Always;
            knobs.swappiness = 0;
        };
        let sim = run(&machine, kernel, set, |cx| {
            let zones = &cx.world().memory.zones;
            let pages: u64 = zones.iter().map(|zone| zone.managed_pages).sum();
            let pages = (pages * 11 / 10) as u32;
            let start = cx.world().memory.spaces.mmap(PROCESS, pages, MemPolicy::Default);
            for _ in 0..2 {
                touch_range(cx, PROCESS, start, pages, Access::Write, Extent::Word).unwrap();
            }
        });
        let runs = count(&sim, Vm::PageOutRun);
        // Millions, if single pages sufficed for one and not for the other.
        assert!((1..50_000).contains(&runs), "{kernel}: {runs}");
    }
}

#[test]
fn khugepaged_reclaims_and_compacts_for_itself_and_wakes_nobody() {
    for kernel in ["linux-4.4-nodefrag", "linux-4.6"] {
        let set = |_: &mut KernelFile, knobs: &mut Knobs| knobs.thp.enabled = Enabled::Always;
        let sim = run(&small(), kernel, set, |cx| {
            cx.sleep(Ns::from_millis(10));
            // Base pages while nobody may have huge ones, and then none of order 1 for khugepaged.
            cx.world().knobs.thp.enabled = Enabled::Never;
            write(cx, 8 * 512, HugeAdvice::None);
            scatter(cx);
            cx.world().knobs.thp.enabled = Enabled::Always;
            cx.sleep(Ns::from_secs(60));
        });
        assert!(count(&sim, Vm::AllocStall) > 0 && count(&sim, Vm::CompactStall) > 0, "{kernel}");
        assert_eq!(Woken::of(&sim.world().memory.vm), Woken::default(), "{kernel}");
    }
}

#[test]
fn what_khugepaged_reclaims_counts_apart_since_6_3() {
    for (kernel, apart) in [("linux-6.1", false), ("linux-6.12", true)] {
        let counts = Rc::new(Cell::new([0; 2]));
        let seen = counts.clone();
        let set = |_: &mut KernelFile, knobs: &mut Knobs| knobs.thp.enabled = Enabled::Never;
        run(&small(), kernel, set, move |cx| {
            write(cx, 8 * 512, HugeAdvice::None);
            // Hardly anything is free, and what is there can be reclaimed.
            let file = cx.world().create_file(DeviceId(0));
            for at in 0..600 {
                filemap::write(cx, PROCESS, file, at << 20, 1 << 20).unwrap();
            }
            writeback::fsync(cx, file).unwrap();
            let scans = |cx: &mut KernelCx<'_>| {
                [Vm::PgScanDirect, Vm::PgScanKhugepaged]
                    .map(|event| cx.world().memory.vm.get(event))
            };
            let before = scans(cx);
            cx.world().knobs.thp.enabled = Enabled::Always;
            cx.sleep(Ns::from_secs(60));
            let after = scans(cx);
            seen.set([0, 1].map(|i| after[i] - before[i]));
        });
        let [direct, khugepaged] = counts.get();
        assert_eq!(
            [direct > 0, khugepaged > 0],
            [!apart, apart],
            "{kernel}: {direct} {khugepaged}"
        );
    }
}

#[test]
fn a_fault_that_may_not_reclaim_falls_back_once_for_each_unit() {
    for kernel in KERNELS {
        let set = |_: &mut KernelFile, knobs: &mut Knobs| {
            knobs.thp.enabled = Enabled::Always;
            knobs.thp.defrag = Defrag::Never;
        };
        let sim = run(&small(), kernel, set, |cx| {
            scatter(cx);
            write(cx, 16 * 512, HugeAdvice::None);
        });
        assert_eq!(count(&sim, Vm::ThpFaultAlloc), 0, "{kernel}");
        assert_eq!(count(&sim, Vm::ThpFaultFallback), 16, "{kernel}");
        assert_eq!(count(&sim, Vm::AllocStall), 0, "{kernel}: nobody reclaimed for it");
    }
}

#[test]
fn khugepaged_collapses_what_base_pages_were_mapped() {
    for kernel in KERNELS {
        let set = |_: &mut KernelFile, knobs: &mut Knobs| knobs.thp.enabled = Enabled::Always;
        let sim = run(&small(), kernel, set, |cx| {
            // Base pages while nobody may have huge ones.
            cx.world().knobs.thp.enabled = Enabled::Never;
            write(cx, 8 * 512, HugeAdvice::None);
            cx.world().knobs.thp.enabled = Enabled::Always;
            cx.sleep(Ns::from_secs(60));
            let stats = cx.world().memory.lru.total_stats();
            assert_eq!(stats.nr_anon_huge, 8);
            assert_eq!(stats.nr_anon_mapped, 8 * 512);
        });
        assert_eq!(count(&sim, Vm::ThpCollapseAlloc), 8, "{kernel}");
        assert_eq!(count(&sim, Vm::ThpFaultAlloc), 0, "{kernel}");
    }
}

#[test]
fn reading_what_nobody_wrote_maps_one_huge_page_of_zeros() {
    for kernel in KERNELS {
        let set = |_: &mut KernelFile, knobs: &mut Knobs| knobs.thp.enabled = Enabled::Always;
        let sim = run(&small(), kernel, set, |cx| {
            let start = cx.world().memory.spaces.mmap(PROCESS, 4 * 512, MemPolicy::Default);
            touch_range(cx, PROCESS, start, 4 * 512, Access::Read, Extent::Word).unwrap();
            oom::exit_mmap(cx, PROCESS);
        });
        assert_eq!(count(&sim, Vm::ThpZeroPageAlloc), 1, "{kernel}");
        assert_eq!(count(&sim, Vm::PgFault), 4, "{kernel}");
    }
}

/// Huge pages on each node after a program on node 0 has written `share` of 100 of a node's memory.
fn huge_by_node(numa: ThpNuma, defrag: Defrag, advice: HugeAdvice, share: u64) -> (Vec<u64>, u64) {
    let machine = machine::load("two-node-64g").unwrap().scaled(1, 64).unwrap();
    let set = move |kernel: &mut KernelFile, knobs: &mut Knobs| {
        kernel.flows.thp.numa = numa;
        knobs.thp.enabled = Enabled::Always;
        knobs.thp.defrag = defrag;
    };
    let node_pages = machine.nodes[0].memory_bytes / 4096;
    let sim = run(&machine, "linux-4.14", set, move |cx| {
        write(cx, (node_pages * share / 100 / 512 * 512) as u32, advice);
    });
    let memory = &sim.world().memory;
    let huge = NodeId::all(2).map(|node| {
        let lruvecs = memory.lru.lruvecs.iter().filter(|lruvec| lruvec.node == node);
        lruvecs.map(|lruvec| lruvec.stats.nr_anon_huge).sum()
    });
    (huge.collect(), count(&sim, Vm::PswpOut))
}

#[test]
fn the_node_rule_says_whether_huge_pages_come_from_another_node() {
    let advised = HugeAdvice::Huge;
    let (local, swapped) = huge_by_node(ThpNuma::ThisnodeReclaim, Defrag::Never, advised, 150);
    assert_eq!(local[1], 0, "without reclaim the other node gives base pages only");
    assert_eq!(swapped, 0);
    let (spread, swapped) = huge_by_node(ThpNuma::RemoteAllowed, Defrag::Madvise, advised, 150);
    assert!(spread[1] > spread[0] / 4, "{spread:?}");
    assert_eq!(swapped, 0, "the other node had room");
    let (_, swapped) = huge_by_node(ThpNuma::ThisnodeReclaim, Defrag::Madvise, advised, 150);
    assert!(
        swapped > 0,
        "a node that is reclaimed for its own huge pages swaps beside an empty one"
    );
}

/// Fills most of node 0 with clean page cache, then writes base pages of half a node. Also gives the pages of files
/// that are left.
fn write_beside_cache(
    machine: &Machine,
    kernel: &str,
    mode: u32,
    is_traced: bool,
) -> (Sim<Kernel>, u64) {
    write_beside_cache_of(machine, kernel, [mode, 1], is_traced)
}

/// The same with a mode and percent of a node that are left to unmapped files.
fn write_beside_cache_of(
    machine: &Machine,
    kernel: &str,
    [mode, min_unmapped]: [u32; 2],
    is_traced: bool,
) -> (Sim<Kernel>, u64) {
    const BLOCK: u64 = 1 << 20;
    let node_bytes = machine.nodes[0].memory_bytes;
    let set = move |_: &mut KernelFile, knobs: &mut Knobs| {
        knobs.thp.enabled = Enabled::Never;
        knobs.zone_reclaim_mode = mode;
        knobs.min_unmapped_ratio = min_unmapped as u8;
    };
    let left = Rc::new(Cell::new(0));
    let seen = left.clone();
    let sim = run(machine, kernel, set, move |cx| {
        if is_traced {
            cx.world().keep_trace();
        }
        let file = cx.world().create_file(DeviceId(0));
        for at in 0..node_bytes * 9 / 10 / BLOCK {
            filemap::write(cx, PROCESS, file, at * BLOCK, BLOCK).unwrap();
            // Pages of a node of which much is dirty already come from the other one.
            writeback::fsync(cx, file).unwrap();
        }
        write(cx, (node_bytes / 2 / 4096) as u32, HugeAdvice::None);
        seen.set(cx.world().memory.files.nr_pages());
    });
    (sim, left.get())
}

/// As [`write_beside_cache`]: pages of the program on the other node, pages of files left, failed reclaims.
fn write_beside_page_cache(mode: u32) -> (u64, u64, u64) {
    let (sim, left) = write_beside_cache(&two_nodes(), "linux-4.14", mode, false);
    let memory = &sim.world().memory;
    let remote = memory.lru.lruvecs.iter().filter(|lruvec| lruvec.node == NodeId(1));
    let remote = remote.map(|lruvec| lruvec.stats.nr_anon_mapped).sum();
    (remote, left, count(&sim, Vm::ZoneReclaimFailed))
}

#[test]
fn a_node_gives_up_its_clean_page_cache_before_another_nodes_memory_is_used() {
    let (spilled, cached, failed) = write_beside_page_cache(0);
    assert!(spilled > 10_000, "{spilled}");
    assert_eq!(failed, 0, "nobody tried");
    let (remote, left, _) = write_beside_page_cache(1);
    assert!(remote * 10 < spilled, "{remote} instead of {spilled}");
    assert!(left + 10_000 < cached, "{left} of {cached}");
    // The bit for huge pages alone reclaims nothing for base pages.
    assert_eq!(write_beside_page_cache(8), (spilled, cached, 0));
}

#[test]
fn a_node_keeps_as_much_of_unmapped_files_as_it_is_told_to() {
    let machine = two_nodes();
    let share = |min_unmapped| {
        let (sim, _) = write_beside_cache_of(&machine, "linux-4.14", [1, min_unmapped], false);
        let memory = &sim.world().memory;
        let own = memory.lru.lruvecs.iter().filter(|lists| lists.node == NodeId(0));
        let files =
            |lists: &Lruvec| lists.size(LruList::InactiveFile) + lists.size(LruList::ActiveFile);
        let zones = memory.zones.iter().filter(|zone| zone.node == NodeId(0));
        own.map(files).sum::<u64>() * 100 / zones.map(|zone| zone.managed_pages).sum::<u64>()
    };
    let [least, half, all] = [1, 60, 100].map(share);
    assert!(least < 55 && (58..=62).contains(&half) && all > 75, "{least}, {half}, {all} %");
}

#[test]
fn a_single_node_gives_up_its_clean_page_cache_too() {
    let scans = |mode| {
        let (sim, _) = write_beside_cache(&small(), "linux-4.14", mode, false);
        let stalls = count(&sim, Vm::AllocStall);
        let [direct, kswapd] = [Vm::PgScanDirect, Vm::PgScanKswapd].map(|event| count(&sim, event));
        (stalls, direct, kswapd)
    };
    // kswapd does it, but for a few pages before it is up to speed.
    let (_, direct, kswapd) = scans(0);
    assert!(kswapd > 10_000 && direct * 10 < kswapd, "{direct} beside {kswapd}");
    // Whoever asks for a page does so first, and kswapd is not even woken.
    let (stalls, direct, kswapd) = scans(1);
    assert!(direct > 10_000 && kswapd == 0, "{direct} beside {kswapd}");
    assert_eq!(stalls, 0, "it counts as no stall");
}

#[test]
fn memory_of_another_node_takes_longer_to_use_on_machines_that_have_one() {
    let elapsed = |machine: &Machine, node: u32| {
        let took = Rc::new(Cell::new(Ns::ZERO));
        let seen = took.clone();
        let set = |_: &mut KernelFile, _: &mut Knobs| ();
        run(machine, "linux-4.14", set, move |cx| {
            let pages = 64 * 512;
            let spaces = &mut cx.world().memory.spaces;
            let start = spaces.mmap(PROCESS, pages, MemPolicy::Bind(1 << node));
            let touch = |cx: &mut KernelCx<'_>| {
                touch_range(cx, PROCESS, start, pages, Access::Write, Extent::Word).unwrap();
            };
            touch(cx);
            let began = cx.now();
            touch(cx);
            seen.set(cx.now() - began);
        });
        took.get()
    };
    let machine = machine::load("two-node-64g").unwrap().scaled(1, 64).unwrap();
    let further = machine.costs.remote_access.once() - machine.costs.local_access.once();
    assert_eq!(elapsed(&machine, 1) - elapsed(&machine, 0), Ns(further.0 * 64 * 512));
    let mut near = small();
    let before = elapsed(&near, 0);
    near.costs.remote_access = near.costs.list_op.clone();
    assert_eq!(elapsed(&near, 0), before, "one node has no other");
}

#[test]
fn page_tables_follow_the_tasks_policy_and_not_the_mappings() {
    let machine = machine::load("two-node-64g").unwrap().scaled(1, 64).unwrap();
    let tables = |task: MemPolicy, mapping: MemPolicy| {
        let set = |_: &mut KernelFile, knobs: &mut Knobs| knobs.thp.enabled = Enabled::Never;
        let sim = run(&machine, "linux-4.14", set, move |cx| {
            let spaces = &mut cx.world().memory.spaces;
            spaces.set_task_policy(PROCESS, task);
            let start = spaces.mmap(PROCESS, 4 * 512, mapping);
            touch_range(cx, PROCESS, start, 4 * 512, Access::Write, Extent::Word).unwrap();
        });
        let memory = &sim.world().memory;
        let nodes: Vec<NodeId> =
            memory.spaces.table().tables().map(|pfn| memory.node_of(pfn)).collect();
        nodes
    };
    let other = MemPolicy::Bind(2);
    assert_eq!(tables(MemPolicy::Default, other), [NodeId(0); 4]);
    assert_eq!(tables(other, MemPolicy::Default), [NodeId(1); 4]);
}

#[test]
fn kernels_of_2019_differ_in_where_huge_pages_may_come_from() {
    for (kernel, numa) in [
        ("linux-4.4-nodefrag", ThpNuma::ThisnodeReclaim),
        ("linux-5.1", ThpNuma::ThisnodeReclaim),
        ("linux-5.1-revert", ThpNuma::RemoteAllowed),
        ("linux-5.1-local-cheap", ThpNuma::ThisnodeCheap),
        ("linux-5.4", ThpNuma::LocalThenAll),
    ] {
        assert_eq!(KernelFile::load(kernel).unwrap().flows.thp.numa, numa, "{kernel}");
    }
}

/// What a program's touches took, each time, of memory that it maps `offset` pages behind a huge page's place.
fn touches(
    machine: &Machine,
    enabled: Enabled,
    pages: u32,
    offset: u32,
    extent: Extent,
) -> ([Ns; 3], [u64; 3]) {
    let took = Rc::new(Cell::new([Ns::ZERO; 3]));
    let seen = took.clone();
    let set = |_: &mut KernelFile, knobs: &mut Knobs| knobs.thp.enabled = enabled;
    let sim = run(machine, "linux-4.4", set, move |cx| {
        let spaces = &mut cx.world().memory.spaces;
        let start = spaces.mmap_behind(PROCESS, offset, pages, MemPolicy::Default);
        let times = [(); 3].map(|()| {
            let began = cx.now();
            touch_range(cx, PROCESS, start, pages, Access::Write, extent).unwrap();
            cx.now() - began
        });
        seen.set(times);
        oom::unmap(cx, start..Vpn(start.0 + pages));
    });
    let events = [Vm::ThpFaultAlloc, Vm::PgFault, Vm::ThpSplit].map(|event| count(&sim, event));
    (took.get(), events)
}

#[test]
fn the_ends_of_a_mapping_that_begins_within_a_huge_page_hold_base_pages() {
    for (offset, huge) in [(0, 64), (1, 63), (200, 63), (511, 63)] {
        let (_, [alloc, faults, split]) =
            touches(&small(), Enabled::Always, 64 * 512, offset, Extent::Word);
        assert_eq!(alloc, huge, "{offset}");
        assert_eq!(faults, huge + (64 - huge) * 512, "{offset}");
        assert_eq!(split, 0, "{offset}: unmapped in parts, none of which ends within a huge page");
    }
}

#[test]
fn what_a_fault_has_cleared_is_in_a_cache_once() {
    let machine = small();
    let costs = &machine.costs;
    let pages = 16 * 512_u32;
    let all = u64::from(pages);
    // Nothing of a base page is missed, however much of it is written: that takes its own time alone.
    let first = |extent| touches(&machine, Enabled::Never, pages, 0, extent).0[0];
    let filled = costs.fill_cached_page.times(all);
    assert_eq!(first(Extent::Word) + filled, first(Extent::Whole));
    for extent in [Extent::Word, Extent::Whole] {
        let ([first, second, third], _) = touches(&machine, Enabled::Never, pages, 0, extent);
        assert_eq!(second, third, "{extent:?}");
        let cleared = costs.clear_base_page.times(all) + costs.fault_entry.times(all);
        let translated = costs.tlb_miss_base.times(all) + costs.cache_read.times(all / 8);
        assert!(first >= cleared + translated, "{extent:?}: {first:?}");
        let data = match extent {
            Extent::Word => costs.local_access.times(all),
            Extent::Whole => costs.clear_base_page.times(all),
        };
        assert_eq!(second, translated + data, "{extent:?}");
    }
    // Words of a huge page are read from the node's cache, and are missed the second time.
    let ([first, second, _], _) = touches(&machine, Enabled::Always, pages, 0, Extent::Word);
    let translated = costs.tlb_miss_huge.times(16);
    assert_eq!(second, translated + costs.local_access.times(all));
    let cleared = costs.clear_huge_page.times(16) + costs.fault_entry.times(16);
    let least = cleared + translated + costs.cache_read.times(all);
    assert!(first >= least && first < least + costs.cache_read.times(all), "{first:?}, {least:?}");
}

#[test]
fn a_kernel_that_fills_what_it_hands_out_clears_a_huge_page_twice() {
    let machine = small();
    let took = |init_on_alloc: bool| {
        let took = Rc::new(Cell::new(Ns::ZERO));
        let seen = took.clone();
        let set = move |kernel: &mut KernelFile, knobs: &mut Knobs| {
            assert!(kernel.policy.freelist.init_on_alloc, "Debian's kernels do");
            kernel.policy.freelist.init_on_alloc = init_on_alloc;
            knobs.thp.enabled = Enabled::Always;
        };
        run(&machine, "linux-6.12", set, move |cx| {
            let pages = 16 * 512;
            let start = cx.world().memory.spaces.mmap(PROCESS, pages, MemPolicy::Default);
            let began = cx.now();
            touch_range(cx, PROCESS, start, pages, Access::Write, Extent::Word).unwrap();
            seen.set(cx.now() - began);
            oom::unmap(cx, start..Vpn(start.0 + pages));
        });
        took.get()
    };
    let further = (took(true) - took(false)).as_secs_f64();
    let clearing = machine.costs.clear_huge_page.times(16).as_secs_f64();
    assert!((further / clearing - 1.0).abs() < 0.01, "{further} s for {clearing}");
}

/// Runs a program on the model under a kernel, with huge pages for all, and says what was counted.
fn run_code(machine: Machine, kernel: &str, code: highorder_system::Code) -> VmEvents {
    let spec = model(machine, kernel, "always");
    let (_, world) = run_on(spec, Inputs::default(), code).unwrap();
    world.memory.vm
}

#[test]
fn a_process_that_wants_no_huge_pages_gets_none_at_once_or_in_later_mappings() {
    use highorder_system::{Advice, Pattern, ThreadSpec};
    let units = 8;
    let huge_by_part = |kernel: &str| -> [u64; 4] {
        let counted = |part: usize| {
            let code: highorder_system::Code = Box::new(move |sys| {
                let before = sys.mmap(units * 512)?;
                sys.set_thp_disable(true)?;
                let word = Pattern::word(highorder_system::Access::Write);
                match part {
                    // Mapped before, mapped later, advised later.
                    0 => sys.touch_range(before, word),
                    1 | 2 => {
                        let later = sys.mmap(units * 512)?;
                        if part == 2 {
                            sys.madvise(later, Advice::Huge)?;
                        }
                        sys.touch_range(later, word)
                    }
                    // By a process that was started later.
                    _ => {
                        let code: highorder_system::Code = Box::new(move |sys| {
                            let area = sys.mmap(units * 512)?;
                            sys.touch_range(area, word)
                        });
                        let child = sys.spawn(ThreadSpec::process("child"), code)?;
                        sys.join(child)
                    }
                }
            });
            run_code(small(), kernel, code).get(Vm::ThpFaultAlloc)
        };
        [0, 1, 2, 3].map(counted)
    };
    assert_eq!(huge_by_part("linux-4.4"), [units, 0, units, 0]);
    for kernel in ["linux-5.1", "linux-6.1", "linux-6.12"] {
        assert_eq!(huge_by_part(kernel), [0; 4], "{kernel}");
    }
}

#[test]
fn kernels_before_3_15_know_no_way_to_want_no_huge_pages() {
    let code: highorder_system::Code = Box::new(|sys| {
        let refused = sys.set_thp_disable(true);
        assert!(matches!(refused, Err(highorder_system::Failure::Refused(_))), "{refused:?}");
        Ok(())
    });
    run_code(small(), "linux-3.3", code);
}

#[test]
fn advice_can_be_turned_round_and_taken_back() {
    use highorder_system::{Access as Touch, Advice, Pattern};
    let enabled = [("always", [true, true, true]), ("madvise", [false, true, false])];
    for (word, expected) in enabled {
        for (advice, is_huge) in [
            (vec![Advice::NoHuge, Advice::NeitherHuge], expected[0]),
            (vec![Advice::NoHuge, Advice::Huge], expected[1]),
            (vec![Advice::Huge, Advice::NeitherHuge], expected[2]),
        ] {
            let code: highorder_system::Code = Box::new(move |sys| {
                sys.set_knob("transparent_hugepage/enabled", word)?;
                let area = sys.mmap(4 * 512)?;
                advice.into_iter().try_for_each(|advice| sys.madvise(area, advice))?;
                sys.touch_range(area, Pattern::word(Touch::Write))
            });
            let counted = run_code(small(), "linux-6.12", code);
            assert_eq!(counted.get(Vm::ThpFaultAlloc), if is_huge { 4 } else { 0 }, "{word}");
        }
    }
}

#[test]
fn preferred_nodes_come_first_and_others_before_anything_is_reclaimed() {
    use highorder_system::{Access as Touch, MemPolicy as Policy, Pattern, Place, ThreadSpec};
    // A node has 512 MiB.
    let machine = || machine::load("two-node-64g").unwrap().scaled(1, 64).unwrap();
    // Pages swapped out, and how long it takes to touch so many MiB once more from node 0.
    let write = |kernel: &str, policy: Policy, mib: u64| {
        let took = std::sync::Arc::new(std::sync::Mutex::new(Ns::ZERO));
        let seen = took.clone();
        let code: highorder_system::Code = Box::new(move |sys| {
            let code: highorder_system::Code = Box::new(move |sys| {
                let area = sys.mmap(mib * 256)?;
                sys.mbind(area, policy)?;
                let words = Pattern::word(Touch::Write);
                sys.touch_range(area, words)?;
                let began = sys.now();
                sys.touch_range(area, words)?;
                *seen.lock().unwrap() = sys.now() - began;
                Ok(())
            });
            let thread =
                sys.spawn(ThreadSpec::process("writer").on(Place::Node(NodeId(0))), code)?;
            sys.join(thread)
        });
        let swapped = run_code(machine(), kernel, code).get(Vm::PswpOut);
        (swapped, *took.lock().unwrap())
    };
    for kernel in ["linux-6.1", "linux-6.12"] {
        let [local, bound, preferred] = [Policy::Local, Policy::Bind(2), Policy::PreferredMany(2)]
            .map(|p| write(kernel, p, 64));
        assert_eq!(preferred, bound, "{kernel}: it is all there");
        assert!(local.1 < preferred.1, "{kernel}: {local:?} {preferred:?}");
        assert_eq!(write(kernel, Policy::PreferredMany(2), 600).0, 0, "{kernel}");
        assert!(write(kernel, Policy::Bind(2), 600).0 > 0, "{kernel}: it does not fit one node");
    }
}

#[test]
fn many_nodes_are_preferred_since_5_15_and_only_some() {
    use highorder_system::{Failure, MemPolicy as Policy};
    for (kernel, policy) in
        [("linux-5.4", Policy::PreferredMany(1)), ("linux-6.12", Policy::PreferredMany(0))]
    {
        let code: highorder_system::Code = Box::new(move |sys| {
            let area = sys.mmap(1)?;
            let refused = sys.mbind(area, policy);
            assert!(matches!(refused, Err(Failure::Refused(_))), "{refused:?}");
            Ok(())
        });
        run_code(small(), kernel, code);
    }
}

#[test]
fn a_place_without_a_cpu_is_refused() {
    use highorder_system::{CpuId, Failure, NodeId, Place, ThreadSpec};
    let code: highorder_system::Code = Box::new(move |sys| {
        let nr_cpus = sys.machine().nr_cpus();
        for place in [Place::Node(NodeId(63)), Place::Cpu(CpuId(nr_cpus))] {
            let moved = sys.set_place(place);
            assert!(matches!(moved, Err(Failure::Refused(_))), "{moved:?}");
            let spawned = sys.spawn(ThreadSpec::process("p").on(place), Box::new(|_| Ok(())));
            assert!(matches!(spawned, Err(Failure::Refused(_))), "{spawned:?}");
        }
        Ok(())
    });
    run_code(small(), "linux-6.12", code);
}

#[test]
fn huge_pages_interleave_by_their_place_whichever_of_their_pages_is_touched_first() {
    let machine = machine::load("two-node-64g").unwrap().scaled(1, 64).unwrap();
    let nodes_of = |first: u32| {
        let nodes = Rc::new(std::cell::RefCell::new(Vec::new()));
        let seen = nodes.clone();
        let set = |_: &mut KernelFile, knobs: &mut Knobs| knobs.thp.enabled = Enabled::Always;
        run(&machine, "linux-6.12", set, move |cx| {
            let spaces = &mut cx.world().memory.spaces;
            // 5 places, of which the first and the last are cut.
            let start = spaces.mmap_behind(PROCESS, 200, 4 * 512, MemPolicy::Interleave(3));
            for unit in 1..4 {
                let at = Vpn(start.0 - 200 + unit * 512 + first);
                touch_range(cx, PROCESS, at, 1, Access::Write, Extent::Word).unwrap();
                let memory = &cx.world().memory;
                let pfn = memory.spaces.table().frame_at(at).unwrap();
                seen.borrow_mut().push(memory.node_of(pfn).0);
            }
        });
        nodes.take()
    };
    assert_eq!(nodes_of(0), [0, 1, 0]);
    for first in [1, 199, 200, 201, 511] {
        assert_eq!(nodes_of(first), nodes_of(0), "{first}");
    }
}

/// Events as ftrace's text of a kernel.
fn text_of(sim: &Sim<Kernel>, kernel: &str, events: &[Traced]) -> String {
    let memory = &sim.world().memory;
    let zones = memory.zones.iter().map(|zone| (zone.node, zone.kind, zone.start..zone.end));
    let whose = Whose {
        release: &KernelFile::load(kernel).unwrap().release,
        tasks: &[],
        zones: &zones.collect::<Vec<_>>(),
        nr_cpus: memory.machine.cpu_nodes.len() as u32,
    };
    String::from_utf8(trace_text::text(events, whose)).unwrap()
}

/// What was kept of a run, likewise.
fn trace_text(sim: &mut Sim<Kernel>, kernel: &str) -> String {
    let events = sim.world_mut().trace.take().unwrap();
    text_of(sim, kernel, &events)
}

/// The events of a trace, each parsed as what a kernel prints.
fn parsed(text: &str) -> Vec<Event<'_>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| Line::parse(line.as_bytes()).unwrap().parse_event().unwrap()).collect()
}

/// Runs a program whose first mapping khugepaged may collapse once the program has made it ready, and keeps
/// events if that is wanted.
fn collapse(
    kernel: &str,
    is_traced: bool,
    ready: impl FnOnce(&mut KernelCx<'_>) + 'static,
) -> Sim<Kernel> {
    let set = |kernel: &mut KernelFile, knobs: &mut Knobs| {
        knobs.thp.enabled = Enabled::Never;
        knobs.thp.khugepaged.scan_sleep = Ns::from_secs(1);
        kernel.policy.lru.kind = LruKind::Classic;
    };
    run(&small(), kernel, set, move |cx| {
        if is_traced {
            cx.world().keep_trace();
        }
        ready(cx);
        cx.world().knobs.thp.enabled = Enabled::Always;
        cx.sleep(Ns::from_secs(60));
    })
}

fn nr_anon_huge(sim: &Sim<Kernel>) -> u64 {
    sim.world().memory.lru.total_stats().nr_anon_huge
}

#[test]
fn khugepaged_tells_what_it_looks_at_and_what_comes_of_it() {
    let ready = |cx: &mut KernelCx<'_>| write(cx, 8 * 512, HugeAdvice::None);
    for kernel in KERNELS {
        let mut sim = collapse(kernel, true, ready);
        assert_eq!(nr_anon_huge(&sim), 8, "{kernel}");
        let text = trace_text(&mut sim, kernel);
        let events = parsed(&text);
        let (mut scans, mut isolated, mut collapsed) = (0, 0, 0);
        for event in &events {
            match event {
                Event::KhugepagedScanPmd(scan) if scan.status.0 == b"succeeded" => {
                    assert_eq!((scan.referenced, scan.none_or_zero), (512, 0), "{kernel}");
                    assert_eq!((scan.writable, scan.unmapped), (Some(1), Some(0)), "{kernel}");
                    scans += 1;
                }
                Event::KhugepagedScanPmd(scan) => {
                    let huge: &[u8] = match kernel {
                        "linux-4.14" => b"pmd_null",
                        _ => b"page_pmd_mapped",
                    };
                    assert_eq!((scan.status.0, scan.scan_pfn.value()), (huge, u64::MAX));
                }
                Event::CollapseHugePageIsolate(pages) => {
                    assert_eq!(pages.status.0, b"succeeded", "{kernel}");
                    isolated += 1;
                }
                Event::CollapseHugePage(huge) => {
                    assert_eq!((huge.isolated, huge.status.0), (1, &b"succeeded"[..]), "{kernel}");
                    collapsed += 1;
                }
                _ => (),
            }
        }
        let told = if kernel == "linux-4.4" { 0 } else { 8 };
        assert_eq!((scans, isolated, collapsed), (told, told, told), "{kernel}");
        assert_eq!(text.contains("huge"), kernel != "linux-4.4", "{kernel}");
    }
}

#[test]
fn runs_of_compaction_are_found_among_events_of_khugepaged() {
    let ready = |cx: &mut KernelCx<'_>| write(cx, 8 * 512, HugeAdvice::None);
    let mut sim = collapse("linux-6.12", true, ready);
    let mut events = sim.world_mut().trace.take().unwrap();
    assert!(events.len() > 24);
    let scanners =
        Scanners { zone: ZoneId(0), migrate_pfn: Pfn(1), free_pfn: Pfn(0xe00), is_sync: true };
    let begin = TraceEvent::Compact(CompactEvent::Begin(scanners));
    let end = TraceEvent::Compact(CompactEvent::End(scanners, CompactResult::Complete));
    // A run around all of them, by the task of the first.
    let first = events[0];
    events.insert(0, Traced { event: begin, ..first });
    events.push(Traced { event: end, at: events[events.len() - 1].at, ..first });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.txt");
    std::fs::write(&path, text_of(&sim, "linux-6.12", &events)).unwrap();
    let passes = Passes::read(path).unwrap().passes;
    assert_eq!(passes.len(), 1);
    assert_eq!(passes[0].status.as_deref(), Some("complete"));
}

/// Writes a unit, of which its first `swapped` pages are in swap then.
fn write_and_swap_out(cx: &mut KernelCx<'_>, swapped: u32) {
    let start = cx.world().memory.spaces.mmap(PROCESS, 512, MemPolicy::Default);
    touch_range(cx, PROCESS, start, swapped, Access::Write, Extent::Word).unwrap();
    let memory = &mut cx.world().memory;
    memory.lru_add_drain_all();
    let sc = ScanControl::new(Reclaimer::Kswapd, CpuId(0), 60);
    // Each page is spared for having been used, written, and dropped.
    for _ in 0..20 {
        for lruvec in memory.lru.ids() {
            memory.shrink_active_list(lruvec, LruList::ActiveAnon, 128, &sc);
            let list = LruList::InactiveAnon;
            let mut shrunk = memory.shrink_inactive_list(lruvec, list, 128, &sc);
            while shrunk.rest.is_some() {
                memory.shrink_rest(lruvec, &mut shrunk, &sc);
            }
            for io in shrunk.writes {
                memory.end_writeback(io.pfn);
            }
        }
    }
    assert_eq!(memory.spaces.task(PROCESS).swap, u64::from(swapped));
    let used = Vpn(start.0 + swapped);
    touch_range(cx, PROCESS, used, 512 - swapped, Access::Write, Extent::Word).unwrap();
}

#[test]
fn units_with_a_few_pages_in_swap_are_collapsed_since_4_8() {
    for (kernel, swapped, is_huge) in [
        ("linux-4.4", 20, false),
        ("linux-4.14", 20, true),
        ("linux-5.4", 20, true),
        ("linux-6.1", 20, true),
        ("linux-6.12", 20, true),
        // More than `max_ptes_swap`.
        ("linux-6.12", 65, false),
    ] {
        let before = Rc::new(Cell::new(0));
        let seen = before.clone();
        let mut sim = collapse(kernel, true, move |cx| {
            write_and_swap_out(cx, swapped);
            seen.set(cx.world().memory.vm.get(Vm::PgFault));
        });
        assert_eq!(nr_anon_huge(&sim), u64::from(is_huge), "{kernel} {swapped}");
        let left = sim.world().memory.spaces.task(PROCESS).swap;
        assert_eq!(left, if is_huge { 0 } else { swapped.into() }, "{kernel} {swapped}");
        assert_eq!(count(&sim, Vm::PgFault), before.get(), "{kernel}: nobody took a fault");
        let text = trace_text(&mut sim, kernel);
        let swapins = parsed(&text).into_iter().filter_map(|event| match event {
            Event::CollapseHugePageSwapin(swapin) => Some((swapin.swapped_in, swapin.ret)),
            _ => None,
        });
        let swapins: Vec<_> = swapins.collect();
        match kernel {
            _ if !is_huge => assert!(swapins.is_empty(), "{kernel}: {swapins:?}"),
            // Of each eight that are read together it waits for the first, and finds it in memory the next time.
            "linux-4.14" | "linux-5.4" => assert_eq!(swapins, [(20, 1), (3, 1)], "{kernel}"),
            // A page to be waited for ends it.
            _ => {
                let (last, before) = swapins.split_last().unwrap();
                assert_eq!(last.1, 1, "{kernel}: {swapins:?}");
                assert!(!before.is_empty(), "{kernel}");
                let waited = if kernel == "linux-6.1" { 0 } else { 17 };
                assert!(before.iter().all(|&(_, ret)| ret == waited), "{kernel}: {swapins:?}");
                assert_eq!(swapins.iter().map(|&(pages, _)| pages).sum::<i32>(), 20, "{kernel}");
            }
        }
    }
}

#[test]
fn from_4_8_to_5_7_half_of_a_unit_has_to_be_used_to_be_collapsed() {
    for (kernel, is_huge) in
        [("linux-4.4", true), ("linux-4.14", false), ("linux-5.4", false), ("linux-6.1", true)]
    {
        let sim = collapse(kernel, false, |cx| {
            let spaces = &mut cx.world().memory.spaces;
            let start = spaces.mmap(PROCESS, 512, MemPolicy::Default);
            touch_range(cx, PROCESS, start, 255, Access::Write, Extent::Word).unwrap();
        });
        assert_eq!(nr_anon_huge(&sim), u64::from(is_huge), "{kernel}");
        let tried = count(&sim, Vm::ThpCollapseAlloc);
        assert!(if is_huge { tried == 1 } else { tried > 1 }, "{kernel}: {tried}");
    }
}

#[test]
fn keeping_events_changes_nothing_that_happens() {
    let end = |is_traced| {
        let sim = collapse("linux-6.12", is_traced, |cx| write_and_swap_out(cx, 20));
        (sim.now(), sim.world().memory.vm.clone())
    };
    assert_eq!(end(true), end(false));
}

#[test]
fn reclaim_of_a_node_is_told_from_beginning_to_end_since_5_2() {
    for (kernel, is_told) in [("linux-5.1", false), ("linux-5.4", true)] {
        let mut sim = write_beside_cache(&two_nodes(), kernel, 1, true).0;
        let text = trace_text(&mut sim, kernel);
        let events = parsed(&text);
        let mut begun = None;
        let (mut pairs, mut reclaimed) = (0, 0);
        for event in &events {
            match event {
                Event::NodeReclaimBegin(begin) => {
                    assert_eq!((begin.nid, begun.replace(begin.order)), (0, None), "{kernel}");
                }
                Event::NodeReclaimEnd(end) => {
                    assert!(begun.take().is_some(), "{kernel}");
                    pairs += 1;
                    reclaimed += end.nr_reclaimed;
                }
                _ => (),
            }
        }
        assert_eq!((pairs > 0, reclaimed > 0), (is_told, is_told), "{kernel}: {pairs} {reclaimed}");
        assert_eq!(begun, None);
    }
}

#[test]
fn kernels_have_the_knobs_of_khugepaged_that_their_release_has() {
    use highorder_system::Failure;
    let knob = |name: &str| format!("transparent_hugepage/khugepaged/{name}");
    for (kernel, swap, shared) in [
        ("linux-4.4", None, None),
        ("linux-4.14", Some("64"), None),
        ("linux-5.4", Some("64"), None),
        ("linux-6.1", Some("64"), Some("256")),
        ("linux-6.12", Some("64"), Some("256")),
    ] {
        let code: highorder_system::Code = Box::new(move |sys| {
            for (name, at_boot) in [("max_ptes_swap", swap), ("max_ptes_shared", shared)] {
                let name = knob(name);
                match at_boot {
                    Some(at_boot) => {
                        assert_eq!(sys.knob(&name)?, at_boot, "{kernel}");
                        sys.set_knob(&name, "0")?;
                        assert_eq!(sys.knob(&name)?, "0", "{kernel}");
                        let refused = sys.set_knob(&name, "512");
                        assert!(matches!(refused, Err(Failure::Refused(_))), "{kernel}");
                    }
                    None => {
                        assert!(sys.knob(&name).is_err(), "{kernel}");
                        let refused = sys.set_knob(&name, "0");
                        assert!(matches!(refused, Err(Failure::Refused(_))), "{kernel}");
                    }
                }
            }
            Ok(())
        });
        run_code(small(), kernel, code);
    }
}
