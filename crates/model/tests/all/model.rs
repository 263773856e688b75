//! Workloads on the model under whole kernels: what a run leaves adds up.

use crate::common::model;
use highorder_kernels::machine;
use highorder_lab::memory_map;
use highorder_mm::frame::{PageFlags, State};
use highorder_mm::vmstat::Vm;
use highorder_mm::zone::ZoneId;
use highorder_mm::{Memory, Pfn};
use highorder_model::{Draw, ModelSpec, Moment, run_on, run_traced};
use highorder_record::{Inputs, Record};
use highorder_report::UseClass;
use highorder_sim::Machine;
use highorder_sim::kernel::Kernel as World;
use highorder_sim::kernel::trace::{ReclaimEvent, TraceEvent};
use highorder_workload::Value;
use std::collections::BTreeMap;

const KERNELS: [&str; 5] = ["linux-3.3", "linux-3.4-rc2", "linux-4.4", "linux-6.1", "linux-6.12"];

/// A machine of this scale, with this much swap.
fn machine(name: &str, denominator: u32, swap_mib: u64) -> Machine {
    let mut machine = machine::load(name).unwrap().scaled(1, denominator).unwrap();
    machine.swap[0].bytes = swap_mib << 20;
    machine
}

fn run(
    machine: Machine,
    kernel: &str,
    workload: &str,
    values: &[(&str, Value)],
) -> (Record, World) {
    run_drawn(machine, kernel, workload, values, None)
}

fn run_drawn(
    machine: Machine,
    kernel: &str,
    workload: &str,
    values: &[(&str, Value)],
    draw: Option<Draw>,
) -> (Record, World) {
    let values: BTreeMap<String, Value> =
        values.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    let workload = highorder_workload::find(workload, &values).unwrap();
    // Base pages, so that each fault is one page.
    let spec = ModelSpec { draw, ..model(machine, kernel, "never") };
    run_on(spec, Inputs::default(), workload.code()).unwrap()
}

/// Every frame is free, reserved, or somebody's; nobody's mappings are left.
fn check_conserved(world: &mut World) {
    let memory: &mut Memory = &mut world.memory;
    // Pages of other CPUs' batches are freed with those.
    memory.lru_add_drain_all();
    memory.audit().unwrap();
    memory.validate().unwrap();
    for zone in 0..memory.zones.len() {
        let census = memory.census(ZoneId(zone as u8)).unwrap();
        let managed = memory.zones[zone].managed_pages;
        assert_eq!(census.free + census.pcp + census.allocated, managed, "zone {zone}");
    }
    let frames = memory.frames();
    let in_use: Vec<Pfn> = (0..frames.len() as u32)
        .map(Pfn)
        .filter(|&pfn| frames.state(pfn) == State::Allocated)
        .collect();
    // What a process leaves behind is its copies in the swap cache, until they are written or reclaimed.
    for &pfn in &in_use {
        assert!(frames.has(pfn, PageFlags::SWAPCACHE), "{pfn} belongs to nobody");
    }
    assert_eq!(memory.swap.nr_cached(), in_use.len() as u64);
    let stats = memory.lru.total_stats();
    assert_eq!((stats.nr_anon_mapped, stats.nr_page_table), (0, 0));
}

#[test]
fn nothing_is_lost_when_more_is_used_than_there_is() {
    for kernel in KERNELS {
        let (record, mut world) = run(
            machine("one-node-8g", 16, 2048),
            kernel,
            "usemem",
            &[
                ("memory", Value::Float(1.1)),
                ("passes", Value::Integer(2)),
                ("file", Value::Float(0.0)),
                ("threads", Value::Integer(2)),
            ],
        );
        check_conserved(&mut world);
        let held = record.held.as_ref().unwrap();
        let rise = |name: &str| held.counters[name] - record.before.counters[name];
        // What was touched is in memory or in swap, once.
        let touched = record.before.meminfo["MemTotal"] / 4 * 11 / 10 / 2 * 2 - 2;
        let mapped = held.counters["nr_anon_pages"];
        let swap_used = (held.meminfo["SwapTotal"] - held.meminfo["SwapFree"]) / 4;
        assert!(mapped + swap_used >= touched, "{kernel}: {mapped} + {swap_used} of {touched}");
        assert!(mapped <= touched, "{kernel}");
        // Pages read are pages that had been written; each page of swap was written at least once.
        assert!(rise("pswpout") >= swap_used - world.memory.swap.nr_kept_by_cpus(), "{kernel}");
        assert!(rise("pswpin") <= rise("pswpout"), "{kernel}");
        assert_eq!(rise("pgpgin"), 4 * rise("pswpin"), "{kernel}");
        assert_eq!(rise("pgpgout"), 4 * rise("pswpout"), "{kernel}");
        // First touches and returns are faults; nothing else is.
        assert!(rise("pgfault") >= touched, "{kernel}");
        assert!(record.delta("pgmajfault").unwrap() > 0, "{kernel}");
        assert_eq!(record.delta("oom_kill"), Some(0), "{kernel}");
        assert_eq!(world.memory.vm.get(Vm::PswpOut) as i64, record.delta("pswpout").unwrap());
    }
}

#[test]
fn traces_tell_of_every_page_that_reclaim_looks_at() {
    for kernel in ["linux-3.3", "linux-3.4-rc2", "linux-3.5"] {
        let values = [("memory", Value::Float(1.1)), ("passes", Value::Integer(1))]
            .map(|(key, value)| (key.to_owned(), value));
        let workload = highorder_workload::find("usemem", &BTreeMap::from(values)).unwrap();
        let spec = model(machine("one-node-8g", 32, 256), kernel, "never");
        let (_, world, trace) = run_traced(spec, Inputs::default(), workload.code()).unwrap();
        let told = |is_active: bool| -> u64 {
            let isolations = trace.events.iter().filter_map(|traced| match traced.event {
                TraceEvent::Reclaim(ReclaimEvent::LruIsolate { isolation, .. }) => Some(isolation),
                _ => None,
            });
            isolations.filter(|it| it.list.is_active() == is_active).map(|it| it.nr_scanned).sum()
        };
        let counted = |events: &[Vm]| events.iter().map(|&vm| world.memory.vm.get(vm)).sum::<u64>();
        assert_eq!(told(false), counted(&[Vm::PgScanKswapd, Vm::PgScanDirect]), "{kernel}");
        let refilled = counted(&[Vm::PgRefill]);
        assert_eq!(told(true), refilled, "{kernel}");
        assert!(refilled > 1000, "{kernel}: {refilled}");
    }
}

#[test]
fn a_full_swap_area_ends_in_a_kill_and_leaves_nothing_behind() {
    for kernel in KERNELS {
        let (record, mut world) = run(
            machine("one-node-8g", 16, 16),
            kernel,
            "usemem",
            &[
                ("memory", Value::Float(1.1)),
                ("passes", Value::Integer(1)),
                ("file", Value::Float(0.0)),
                ("threads", Value::Integer(2)),
            ],
        );
        check_conserved(&mut world);
        assert_eq!(record.delta("oom_kill"), Some(1), "{kernel}");
        assert!(record.notes.iter().any(|note| note.contains("out of memory")), "{kernel}");
        let written = record.delta("pswpout").unwrap();
        assert!(written >= 16 * 256, "{kernel}: swap filled up before: {written}");
    }
}

#[test]
fn one_node_fills_before_the_other_and_nothing_is_swapped() {
    let (record, mut world) = run(
        machine("two-node-64g", 16, 64),
        "linux-4.4",
        "mmap-demo",
        &[("memory", Value::Float(0.8))],
    );
    check_conserved(&mut world);
    assert_eq!(record.delta("pswpout"), Some(0));
    let timeline = &record.timeline;
    assert!(timeline.len() > 1);
    let held = record.held.as_ref().unwrap();
    let used = |node: u32| {
        let zones = held.zones.iter().filter(|zone| zone.node == node);
        let (free, managed) = zones.fold((0, 0), |(free, managed), zone| {
            (free + zone.pages["free"], managed + zone.pages["managed"])
        });
        (managed - free) as f64 / managed as f64
    };
    assert!(used(0) > 0.95, "the program's own node is full: {}", used(0));
    assert!(used(1) < 0.75, "the other has the rest: {}", used(1));
}

#[test]
fn the_same_run_leaves_the_same_record() {
    let once = || {
        let (record, _) = run(
            machine("one-node-8g", 32, 512),
            "linux-6.12",
            "churn",
            &[("live", Value::Float(0.5))],
        );
        record
    };
    assert_eq!(once(), once());
}

/// Draws, and asks whether the map says what the kernel's own counters say.
fn draw_and_compare(machine: &World, inputs: &Inputs, moment: Moment) -> String {
    let memory = &machine.memory;
    let statistics = memory_map::map_of("", machine).statistics();
    let zones = || memory.zones.iter();
    assert_eq!(statistics.free_pages(), zones().map(|zone| zone.nr_free_pages).sum::<u64>());
    let managed = statistics.present_pages() - statistics.of(UseClass::Reserved);
    assert_eq!(managed, zones().map(|zone| zone.managed_pages).sum::<u64>());
    let counted = memory.lru.total_stats();
    assert_eq!(statistics.of(UseClass::PageTable), counted.nr_page_table);
    let user = statistics.of(UseClass::Anon) + statistics.of(UseClass::Huge);
    assert!(user >= counted.nr_anon_mapped, "{user} of {}", counted.nr_anon_mapped);
    assert!(user <= counted.nr_anon_mapped + memory.swap.nr_cached());
    // Without files, what else the kernel has are the threads' stacks.
    assert_eq!(statistics.of(UseClass::KernelStack), memory.kernel_stack_kib() / 4);
    assert_eq!(statistics.of(UseClass::Kernel), 0);
    let slab = [UseClass::SlabReclaimable, UseClass::Slab].map(|class| statistics.of(class));
    assert_eq!(slab, memory.slab_pages());
    memory_map::draw(machine, inputs, moment)
}

#[test]
fn memory_is_drawn_while_it_is_mapped_and_nothing_changes_by_it() {
    let values = [("memory", Value::Float(1.1)), ("passes", Value::Integer(1))];
    let run = |draw| {
        let machine = machine("one-node-8g", 16, 2048);
        run_drawn(machine, "linux-6.12", "mmap-demo", &values, draw).0
    };
    let mut drawn = run(Some(draw_and_compare));
    assert_eq!(run(Some(draw_and_compare)), drawn, "the same run, the same picture");
    let pictures = std::mem::take(&mut drawn.pictures);
    assert_eq!(run(None), drawn, "whoever looks on changes nothing");
    assert_eq!(pictures.keys().collect::<Vec<_>>(), ["memory-held"]);
    let picture = &pictures["memory-held"];
    for part in ["while the workload's memory is mapped", "anonymous", "page tables", "reserved"] {
        assert!(picture.contains(part), "{part} is missing:\n{picture}");
    }
}

#[test]
fn a_run_that_never_held_memory_is_drawn_at_its_end() {
    let values = [("memory", Value::Float(1.5)), ("passes", Value::Integer(1))];
    let machine = machine("one-node-8g", 16, 1);
    let (record, _) =
        run_drawn(machine, "linux-6.12", "mmap-demo", &values, Some(draw_and_compare));
    assert_eq!(record.held, None, "it was killed before");
    assert_eq!(record.pictures.keys().collect::<Vec<_>>(), ["memory-end"]);
    assert!(record.pictures["memory-end"].contains("at the end"));
}
