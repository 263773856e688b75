//! Linux 3.3 and 3.4-rc2 as wholes: nothing is lost under pressure, and the flows do what was theirs.

use highorder_kernels::KernelFile;
use highorder_kernels::machine;
use highorder_mm::alloc::Request;
use highorder_mm::compaction::CompactResult;
use highorder_mm::compaction::events::CompactEvent;
use highorder_mm::frame::{PageFlags, State};
use highorder_mm::gfp::Gfp;
use highorder_mm::page_table::Vpn;
use highorder_mm::policy::Contention;
use highorder_mm::types::{Access, MemPolicy, NodeId};
use highorder_mm::vma::ProcessId;
use highorder_mm::vmstat::Vm;
use highorder_mm::watermark::Mark;
use highorder_mm::zone::ZoneId;
use highorder_mm::{CpuId, Memory, Order, Pfn, ZoneKind};
use highorder_sim::kernel::fault::{self, Extent};
use highorder_sim::kernel::slowpath::{Want, alloc_pages};
use highorder_sim::kernel::thp::Enabled;
use highorder_sim::kernel::trace::{ReclaimEvent, TraceEvent, Traced};
use highorder_sim::kernel::{
    self, Kernel, KernelCx, Knobs, Stall, Waiter, filemap, oom, writeback,
};
use highorder_sim::machine::FileSystem;
use highorder_sim::{DeviceId, Machine, Mode, Ns, Sim, TaskSpec};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

const KERNELS: [&str; 2] = ["linux-3.3", "linux-3.4-rc2"];
const MIB: u64 = 1 << 20;
const PROCESS: ProcessId = ProcessId(0);
/// How a fault asks for a huge page.
const HUGE_FAULT: Gfp = Gfp::HIGHUSER_MOVABLE.union(Gfp::NORETRY).union(Gfp::NOWARN);

/// Number and sum of waits by class.
type Waits = BTreeMap<Stall, (u64, Ns)>;

/// Runs one program to its end. Returns what it left, and how it waited.
fn run(
    machine: &Machine,
    kernel: &str,
    program: impl FnOnce(&mut KernelCx<'_>) + 'static,
) -> (Sim<Kernel>, Waits) {
    run_on(machine, KernelFile::load(kernel).unwrap(), program)
}

/// The same, on this kernel.
fn run_on(
    machine: &Machine,
    kernel: KernelFile,
    program: impl FnOnce(&mut KernelCx<'_>) + 'static,
) -> (Sim<Kernel>, Waits) {
    let mut knobs = Knobs::at_boot(&kernel.policy, &kernel.flows);
    knobs.thp.enabled = Enabled::Never;
    let mut sim = kernel::boot(machine, kernel.policy, kernel.flows, knobs);
    let waits = Rc::new(RefCell::new(Waits::new()));
    let seen = waits.clone();
    sim.world_mut().on_stall = Box::new(move |stall, took| {
        let mut seen = seen.borrow_mut();
        let (number, sum) = seen.entry(stall).or_insert((0, Ns::ZERO));
        *number += 1;
        *sum += took;
    });
    sim.world_mut().add_process("program");
    sim.spawn(TaskSpec::user("program"), program);
    sim.run().unwrap();
    let waits = waits.borrow().clone();
    (sim, waits)
}

/// A machine of 512 MiB with this much swap.
fn small(swap_mib: u64) -> Machine {
    let mut machine = machine::load("one-node-8g").unwrap().scaled(1, 16).unwrap();
    machine.swap[0].bytes = swap_mib << 20;
    machine
}

/// Asks for a block on the first CPU, of any node.
fn ask(cx: &mut KernelCx<'_>, order: u8, gfp: Gfp, process: Option<ProcessId>) -> Option<Pfn> {
    let (cpu, node) = (CpuId(0), NodeId(0));
    let request = Request { order: Order(order), gfp, cpu, node, past_lists: false };
    alloc_pages(cx, Want { request, allowed: u64::MAX, process })
}

/// Pages that the kernel hands out.
fn managed_pages(memory: &Memory) -> u64 {
    memory.zones.iter().map(|zone| zone.managed_pages).sum()
}

/// Maps so many tenths of memory. Returns where, and how many pages.
fn map_tenths(cx: &mut KernelCx<'_>, tenths: u64) -> (Vpn, u32) {
    let memory = &mut cx.world().memory;
    let pages = (managed_pages(memory) * tenths / 10) as u32;
    (memory.spaces.mmap(PROCESS, pages, MemPolicy::Default), pages)
}

/// Every invariant holds, and each managed page is free, on a CPU's list or in use.
fn check_conserved(sim: &mut Sim<Kernel>) {
    let memory = &mut sim.world_mut().memory;
    memory.lru_add_drain_all();
    memory.audit().unwrap();
    memory.validate().unwrap();
    for zone in 0..memory.zones.len() {
        let census = memory.census(ZoneId(zone as u8)).unwrap();
        let managed = memory.zones[zone].managed_pages;
        assert_eq!(census.free + census.pcp + census.allocated, managed, "zone {zone}");
    }
    let stats = memory.lru.total_stats();
    assert_eq!(stats.nr_dirty, memory.files.nr_dirty(), "dirty pages of zones, and of files");
    assert_eq!(stats.nr_isolated, [0, 0]);
}

#[test]
fn a_file_of_twice_the_memory_is_written_and_every_page_is_accounted_for() {
    for kernel in KERNELS {
        let size = 1024 * MIB;
        let (mut sim, waits) = run(&small(64), kernel, move |cx| {
            let file = cx.world().create_file(DeviceId(0));
            for at in (0..size).step_by(MIB as usize) {
                filemap::write(cx, PROCESS, file, at, MIB).unwrap();
            }
            writeback::fsync(cx, file).unwrap();
        });
        check_conserved(&mut sim);
        let memory = &sim.world().memory;
        assert_eq!((memory.files.nr_dirty(), memory.lru.total_stats().nr_writeback), (0, 0));
        assert!(memory.files.nr_written() >= size / 4096, "{kernel}");
        // What did not fit was reclaimed, by kswapd nearly alone, as clean as the flusher left it.
        let vm = &memory.vm;
        let (kswapd, direct) = (vm.get(Vm::PgStealKswapd), vm.get(Vm::PgStealDirect));
        assert!(kswapd + direct >= size / 4096 - memory.files.nr_pages(), "{kernel}");
        assert!(kswapd > 9 * direct, "{kernel}: {kswapd} and {direct}");
        assert!(vm.get(Vm::PageOutRun) > 0 && vm.get(Vm::PgScanDirectThrottle) == 0, "{kernel}");
        assert!(vm.get(Vm::WorkingsetRefaultFile) == 0, "{kernel}");
        // Nobody waits conditionally for long: no zone counts as congested.
        for waiter in [Waiter::Direct, Waiter::Kswapd] {
            let conditional = waits.get(&Stall::WaitIffCongested(waiter)).copied();
            assert_eq!(conditional.unwrap_or_default().1, Ns::ZERO, "{kernel} {waiter:?}");
            let full = waits.get(&Stall::CongestionWaitFull(waiter)).copied().unwrap_or_default();
            let all = waits.get(&Stall::CongestionWait(waiter)).copied().unwrap_or_default();
            assert!(full.0 <= all.0 && full.1 <= all.1, "{kernel} {waiter:?}");
        }
    }
}

#[test]
fn memory_that_is_overcommitted_goes_to_swap_and_comes_back_and_nothing_is_lost() {
    for kernel in KERNELS {
        let (mut sim, waits) = run(&small(1024), kernel, |cx| {
            let (start, pages) = map_tenths(cx, 11);
            for _ in 0..2 {
                fault::touch_range(cx, PROCESS, start, pages, Access::Write, Extent::Word).unwrap();
            }
            let memory = &cx.world().memory;
            let in_swap = memory.spaces.task(PROCESS).swap;
            assert_eq!(memory.spaces.task(PROCESS).anon + in_swap, u64::from(pages));
            assert!(memory.vm.get(Vm::PswpOut) >= in_swap);
            assert!(memory.vm.get(Vm::PswpIn) > 0);
            oom::exit_mmap(cx, PROCESS);
        });
        check_conserved(&mut sim);
        let world = sim.world();
        assert_eq!(world.oom_kills, 0, "{kernel}");
        let vm = &world.memory.vm;
        assert!(vm.get(Vm::NrVmscanWrite) == vm.get(Vm::PswpOut), "{kernel}: only swap is written");
        assert!(vm.get(Vm::PgStealKswapd) > 0, "{kernel}");
        // All that is left in use is copies in the swap cache.
        let memory = &world.memory;
        let frames = memory.frames();
        let left = (0..frames.len() as u32).map(Pfn);
        let left = left.filter(|&pfn| {
            frames.state(pfn) == State::Allocated && frames.has(pfn, PageFlags::SWAPCACHE)
        });
        assert_eq!(left.count() as u64, memory.swap.nr_cached(), "{kernel}");
        // Pages under writeback make whoever reclaims ask whether to wait.
        let asked = waits.keys().any(|stall| matches!(stall, Stall::WaitIffCongested(_)));
        assert!(asked, "{kernel}: {waits:?}");
    }
}

#[test]
fn the_last_page_of_swap_ends_in_a_kill() {
    for kernel in KERNELS {
        let (mut sim, _) = run(&small(16), kernel, |cx| {
            let (start, pages) = map_tenths(cx, 11);
            let access = Access::Write;
            assert!(
                fault::touch_range(cx, PROCESS, start, pages, access, Extent::Word).is_err(),
                "it cannot fit"
            );
        });
        check_conserved(&mut sim);
        assert_eq!(sim.world().oom_kills, 1, "{kernel}");
        assert!(sim.world().memory.vm.get(Vm::PswpOut) >= 16 * 256, "{kernel}");
    }
}

/// Takes blocks of `order` from node 0 until there are no more. Returns how many, the direct reclaims and
/// kswapd's runs that this took.
fn exhaust(kernel: &str, order: u8, gfp: Gfp) -> (u64, u64, u64) {
    let machine = machine::load("two-node-64g").unwrap().scaled(1, 64).unwrap();
    let taken = Rc::new(RefCell::new(0));
    let count = taken.clone();
    let (sim, _) = run(&machine, kernel, move |cx| {
        let node = NodeId(0);
        let request = Request { order: Order(order), gfp, cpu: CpuId(0), node, past_lists: false };
        let allowed = if gfp.contains(Gfp::THISNODE) { node.bit() } else { u64::MAX };
        let want = Want { request, allowed, process: None };
        while alloc_pages(cx, want).is_some() {
            *count.borrow_mut() += 1;
        }
    });
    let vm = &sim.world().memory.vm;
    let taken = *taken.borrow();
    (taken, vm.get(Vm::AllocStall), vm.get(Vm::PageOutRun))
}

#[test]
fn a_request_that_says_all_of_gfp_thisnode_fails_at_once() {
    let gfp = Gfp::HIGHUSER_MOVABLE | Gfp::THISNODE | Gfp::NORETRY | Gfp::NOWARN;
    let (taken, stalls, runs) = exhaust("linux-3.3", 9, gfp);
    assert!(taken > 100 && stalls == 0, "{taken} taken, {stalls} stalls");
    assert_eq!(runs, 0, "kswapd is not even woken");
    // 4.4 looks at whether the request may reclaim.
    let (_, stalls, _) = exhaust("linux-4.4", 9, gfp);
    assert!(stalls > 0);
}

#[test]
fn a_large_block_is_tried_once_unless_the_request_says_so() {
    let gfp = Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN;
    for kernel in KERNELS {
        let (taken, stalls, _) = exhaust(kernel, 9, gfp);
        assert!(taken > 200, "{kernel}: both nodes have {taken}");
        assert_eq!(stalls, 1, "{kernel}: one direct reclaim, and that found nothing");
    }
}

#[test]
fn kswapd_is_not_woken_again_by_a_large_request_that_goes_on_hoping_for_compaction() {
    let (sim, _) = run(&small(64), "linux-3.4-rc2", |cx| {
        let singles: Vec<_> = (0..managed_pages(&cx.world().memory) * 9 / 10)
            .map(|_| ask(cx, 0, Gfp::KERNEL, None).expect("there is memory"))
            .collect();
        // Half of memory is free, and no two pages of it lie side by side.
        singles
            .into_iter()
            .step_by(2)
            .for_each(|pfn| cx.world().memory.free(pfn, Order(0), CpuId(0)));
        let insists = Gfp::HIGHUSER | Gfp::NOWARN | Gfp::REPEAT;
        while ask(cx, 9, insists, None).is_some() {}
    });
    let vm = &sim.world().memory.vm;
    let (stalls, runs) = (vm.get(Vm::AllocStall), vm.get(Vm::PageOutRun));
    assert!(stalls > 500, "each of {stalls} rounds counts as one page of the 512 that are wanted");
    assert!(runs < stalls / 20, "{runs} runs of kswapd in {stalls} rounds");
}

/// Base pages that kswapd took off the lists while blocks of order 9 were wanted in memory full of a file's pages: all, and
/// those beside victims.
fn taken_by_kswapd(kernel: &str) -> (u64, u64) {
    let told = Rc::new(RefCell::new((0, 0)));
    let seen = told.clone();
    run(&small(64), kernel, move |cx| {
        let file = cx.world().create_file(DeviceId(0));
        for at in (0..1024 * MIB).step_by(MIB as usize) {
            filemap::write(cx, PROCESS, file, at, MIB).unwrap();
        }
        writeback::fsync(cx, file).unwrap();
        cx.sleep(Ns::from_secs(1));
        cx.world().keep_trace();
        for _ in 0..20 {
            // It wakes kswapd.
            ask(cx, 9, HUGE_FAULT, Some(PROCESS));
            cx.sleep(Ns::from_millis(200));
        }
        let trace = cx.world().trace.take().unwrap_or_default();
        let is_woken = |traced: &&Traced| {
            matches!(traced.event, TraceEvent::Reclaim(ReclaimEvent::KswapdWake { .. }))
        };
        let kswapds: BTreeSet<_> =
            trace.iter().filter(is_woken).map(|traced| traced.task).collect();
        for traced in trace.iter().filter(|traced| kswapds.contains(&traced.task)) {
            if let TraceEvent::Reclaim(ReclaimEvent::LruIsolate { isolation, .. }) = &traced.event {
                let mut seen = seen.borrow_mut();
                seen.0 += isolation.nr_taken;
                seen.1 += isolation.lumps.nr_taken;
            }
        }
    });
    told.take()
}

#[test]
fn kswapd_takes_whole_blocks_for_a_high_order_and_since_3_4_single_pages_where_it_can_compact() {
    let (taken, beside) = taken_by_kswapd("linux-3.3");
    assert!(beside > taken / 2, "3.3: {beside} of {taken} beside victims");
    let (less, beside) = taken_by_kswapd("linux-3.4-rc2");
    assert!(0 < less && less < taken, "{taken} until there are blocks, {less} of single pages");
    assert_eq!(beside, 0, "3.4-rc2");
}

/// What kswapd and the flusher do with the pages of a file that a program has just written, whose memory the kernel itself
/// wants for 4 seconds: writes that reclaim counts, and pages written. The file may have a place on the disk before.
fn written_for_reclaim(file_system: FileSystem, has_place: bool) -> (u64, u64) {
    const FILE: u64 = 16 * MIB;
    let mut machine = small(64);
    machine.file_systems = vec![file_system; machine.disks.len()];
    let before = Rc::new(RefCell::new(0));
    let noted = before.clone();
    let (sim, _) = run(&machine, "linux-3.3", move |cx| {
        let file = cx.world().create_file(DeviceId(0));
        let old = if has_place { file } else { cx.world().create_file(DeviceId(0)) };
        filemap::write(cx, PROCESS, old, 0, FILE).unwrap();
        writeback::fsync(cx, old).unwrap();
        *noted.borrow_mut() = cx.world().memory.files.nr_written();
        // Nobody else has a reason to write them.
        let dirty = &mut cx.world().memory.policy.dirty;
        (dirty.bytes, dirty.background_bytes) = (1 << 40, 1 << 40);
        filemap::write(cx, PROCESS, file, 0, FILE).unwrap();
        // All but what the lowest zone has for those who can do with no other.
        while cx.world().memory.zones.iter().any(|zone| {
            zone.kind != ZoneKind::Dma && zone.nr_free_pages > 2 * zone.watermarks.pages(Mark::High)
        }) {
            ask(cx, 0, Gfp::KERNEL, None);
        }
        // Blocks that there are none of, by one who reclaims nothing himself.
        for _ in 0..20 {
            ask(cx, 9, Gfp::NOWAIT | Gfp::NOWARN, None);
            cx.sleep(Ns::from_millis(200));
        }
    });
    let memory = &sim.world().memory;
    let of_files = memory.vm.get(Vm::NrVmscanWrite) - memory.vm.get(Vm::PswpOut);
    let before = *before.borrow();
    (of_files, memory.files.nr_written() - before)
}

#[test]
fn ext4_writes_for_reclaim_what_has_a_place_and_leaves_the_rest_to_the_flusher() {
    let (counted, written) = written_for_reclaim(FileSystem::Ext4, false);
    assert!(counted > 2 * written, "{counted} counted, {written} written");
    for (file_system, has_place) in [(FileSystem::Ext4, true), (FileSystem::Xfs, false)] {
        let (counted, written) = written_for_reclaim(file_system, has_place);
        assert!(0 < counted && counted <= written, "{file_system:?}: {counted} of {written}");
    }
}

/// Asks for forty huge pages in memory of which every second page is in use, while others want the CPU. Returns how often a
/// run of compaction was found to be broken off.
fn broken_off(contention: Contention) -> usize {
    let mut kernel = KernelFile::load("linux-3.3").unwrap();
    kernel.policy.compaction.contention = contention;
    let machine = small(64);
    let nr_cpus: usize = machine.nodes.iter().map(|node| node.cpus.len()).sum();
    let told = Rc::new(RefCell::new(0));
    let seen = told.clone();
    run_on(&machine, kernel, move |cx| {
        let (start, pages) = map_tenths(cx, 9);
        fault::touch_range(cx, PROCESS, start, pages, Access::Write, Extent::Word).unwrap();
        for page in (0..pages).step_by(2) {
            oom::zap(cx, Vpn(start.0 + page)..Vpn(start.0 + page + 1));
        }
        for _ in 0..2 * nr_cpus {
            cx.spawn(TaskSpec::user("other"), |cx| cx.spend(Ns::from_secs(2), Mode::User));
        }
        cx.world().keep_trace();
        for _ in 0..40 {
            ask(cx, 9, HUGE_FAULT, Some(PROCESS));
        }
        let trace = cx.world().trace.take().unwrap_or_default();
        let is_broken_off = |traced: &&Traced| {
            let TraceEvent::Compact(event) = &traced.event else { return false };
            matches!(event, CompactEvent::Finished(.., CompactResult::Contended))
        };
        assert!(trace.iter().any(|t| matches!(t.event, TraceEvent::Compact(_))), "it compacts");
        *seen.borrow_mut() = trace.iter().filter(is_broken_off).count();
    });
    told.take()
}

#[test]
fn compaction_goes_on_before_3_6_when_others_want_the_cpu() {
    assert!(broken_off(Contention::Abort) > 0);
    assert_eq!(broken_off(Contention::GoesOn), 0);
    let kernel = KernelFile::load("linux-3.5").unwrap();
    assert_eq!(kernel.policy.compaction.contention, Contention::GoesOn);
}
