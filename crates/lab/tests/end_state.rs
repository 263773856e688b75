//! The state of memory that a run leaves: what its record counts is what its map shows.

#[path = "../../model/tests/all/common/mod.rs"]
mod common;

use common::model;
use highorder_kernels::machine;
use highorder_lab::memory_map;
use highorder_mm::types::Order;
use highorder_model::run_on;
use highorder_record::{EndState, Inputs, PageblockUse, Record};
use highorder_report::{MapZone, MemoryMap};
use highorder_sim::kernel::Kernel as World;
use highorder_snapshot::FrameUse;
use highorder_workload::{Value, find};

fn run(kernel: &str, enabled: &str, workload: &str, values: &[(&str, Value)]) -> (Record, World) {
    let machine = machine::load("one-node-8g-in-use").unwrap().scaled(1, 32).unwrap();
    let values = values.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
    let workload = find(workload, &values.collect()).unwrap().scaled(1, 32);
    run_on(model(machine, kernel, enabled), Inputs::default(), workload.code()).unwrap()
}

/// What the zone's pageblocks hold by the map alone, page by page.
fn uses_on(map: &MemoryMap, zone: &MapZone) -> PageblockUse {
    let whole = u64::from(map.pageblock_order.pages());
    let mut alone = map.clone();
    alone.zones = vec![*zone];
    let (mut candidates, mut room) = (0, 0);
    let first = u64::from(zone.start.0) / whole;
    for block in first..zone.end().div_ceil(whole) {
        let span =
            (block * whole).max(u64::from(zone.start.0))..((block + 1) * whole).min(zone.end());
        let pages = &map.uses[span.start as usize..span.end as usize];
        let count =
            |of: &dyn Fn(&FrameUse) -> bool| pages.iter().filter(|page| of(page)).count() as u64;
        let free = count(&|page| matches!(page, FrameUse::Free(_)));
        let per_cpu = count(&|page| *page == FrameUse::PerCpu);
        let movable = count(&|page| {
            use FrameUse::{Anon, Buffers, File, FileMapped};
            matches!(page, Anon | Buffers | File | FileMapped)
        });
        candidates += u64::from(movable > 0 && movable + free + per_cpu == whole);
        if free < whole {
            room += free + per_cpu;
        }
    }
    PageblockUse {
        mixed: alone.statistics().pageblocks_mixed,
        could_be_emptied: candidates.min(room / whole),
    }
}

#[track_caller]
fn check(record: &Record, world: &World) {
    let map = memory_map::map_of("", world);
    for zone in &map.zones {
        let found = record.after.zone(zone.node, zone.kind.name()).unwrap();
        assert_eq!(found.pageblock_use, Some(uses_on(&map, zone)), "{}", zone.name());
    }
    let (state, statistics) = (EndState::of(&record.after, record.page_bytes), map.statistics());
    assert_eq!(state.mixed_pageblocks, Some(statistics.pageblocks_mixed));
    assert_eq!(state.free_pageblocks, Some(statistics.pageblocks_free));
    let unusable = 100.0 * statistics.unusable_index(Order(9));
    assert!((state.unusable_percent.unwrap() - unusable).abs() < 1e-9, "{state:?} {unusable}");
    for state in [&record.before, &record.after] {
        let state = EndState::of(state, record.page_bytes);
        assert!(state.huge_pages_with_compaction >= state.huge_pages_free, "{state:?}");
    }
}

#[test]
fn a_record_counts_the_pageblocks_that_its_map_shows() {
    let mut mixed = 0;
    let mut could_be_emptied = 0;
    for (kernel, enabled, workload, values) in [
        ("linux-6.12", "always", "thpscale", vec![]),
        ("linux-6.12-ungrouped", "never", "small-files", vec![("memory", Value::Float(0.3))]),
        ("linux-6.1", "never", "dd", vec![("size", Value::Float(0.4))]),
        ("linux-3.3", "madvise", "usemem", vec![("passes", Value::Integer(1))]),
    ] {
        let (record, world) = run(kernel, enabled, workload, &values);
        check(&record, &world);
        for zone in &record.after.zones {
            let uses = zone.pageblock_use.unwrap();
            mixed += uses.mixed;
            could_be_emptied += uses.could_be_emptied;
        }
    }
    assert!(mixed > 0 && could_be_emptied > 0, "nothing was compared: {mixed} {could_be_emptied}");
}
