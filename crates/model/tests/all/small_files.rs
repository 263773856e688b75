//! Very many small files fragment memory: what mixes, and on whose behalf.

use crate::common::model;
use highorder_kernels::machine;
use highorder_lab::memory_map;
use highorder_mm::fallback::FallbackCounts;
use highorder_mm::types::Migratetype;
use highorder_model::run_on;
use highorder_record::{Inputs, Record};
use highorder_workload::Value;
use std::collections::BTreeMap;

/// What one run of the workload left.
struct Left {
    record: Record,
    pageblocks_mixed: u64,
    fallbacks: FallbackCounts,
}

/// Writes files of this many hundredths of memory and reads them at random for `read_seconds`, on 512 MiB with a
/// flash disk: in 15 s memory is filled over and over.
///
/// Slabs have to be more than what is kept free: only then can they, when they shrink, leave more free memory
/// in their pageblocks than reclaim wants in all, and no free memory elsewhere. Of 8 GiB they are four times the
/// low mark; with huge pages a machine of 512 MiB keeps a twentieth of its memory free, more than all slabs.
fn run(kernel: &str, percent: u32, read_seconds: i64) -> Left {
    run_with(kernel, percent, read_seconds, &[])
}

/// The same with knobs.
fn run_with(kernel: &str, percent: u32, read_seconds: i64, knobs: &[(&str, &str)]) -> Left {
    let machine = machine::load("fleet-8g").unwrap().scaled(1, 16).unwrap();
    let values = BTreeMap::from([
        ("memory".to_owned(), Value::Float(f64::from(percent) / 100.0)),
        ("unlink".to_owned(), Value::Text("none".to_owned())),
        ("read_seconds".to_owned(), Value::Integer(read_seconds)),
    ]);
    let workload = highorder_workload::find("small-files", &values).unwrap();
    let mut spec = model(machine, kernel, "never");
    spec.knobs.extend(knobs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())));
    let (record, world) = run_on(spec, Inputs::default(), workload.code()).unwrap();
    let pageblocks_mixed = memory_map::map_of("small files", &world).statistics().pageblocks_mixed;
    Left { record, pageblocks_mixed, fallbacks: world.memory.fallbacks() }
}

#[test]
fn files_beyond_memory_mix_pageblocks_and_nearly_always_for_movable_requests() {
    for kernel in ["linux-4.4", "linux-4.14", "linux-6.1"] {
        // Files that memory holds are read millions of times a second, and only the first time does anything to memory.
        let few = run(kernel, 20, 1);
        let many = run(kernel, 150, 15);
        assert_eq!(few.fallbacks.nr_fragmenting(), 0, "{kernel}");
        let mixed = many.pageblocks_mixed;
        assert!(mixed > few.pageblocks_mixed + 10, "{kernel}: {mixed}, {}", few.pageblocks_mixed);
        let events = many.fallbacks.nr_fragmenting();
        let movable = many.fallbacks.fragmenting[Migratetype::Movable.index()];
        assert!(events > 1000, "{kernel}: {events}");
        assert!(movable * 100 > events * 99, "{kernel}: {movable} of {events}");
        // The record tells the same.
        let metric = |name: &str| many.record.metric(name).map(|metric| metric.samples.clone());
        assert_eq!(metric("Fragmentation events"), Some(vec![events as f64]));
        assert_eq!(metric("Fragmentation events movable"), Some(vec![movable as f64]));
    }
}

#[test]
fn shrinkers_look_at_as_many_names_and_inodes_as_they_are_told_of() {
    for kernel in ["linux-3.3", "linux-4.4", "linux-6.12"] {
        let looked_at = |pressure| {
            let left = run_with(kernel, 150, 4, &[("vm.vfs_cache_pressure", pressure)]);
            left.record.delta("slabs_scanned").unwrap()
        };
        let [none, as_ever, more] = ["0", "100", "1000"].map(looked_at);
        assert!(none <= as_ever && as_ever < more, "{kernel}: {none}, {as_ever}, {more}");
    }
}
