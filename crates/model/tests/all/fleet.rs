//! A fleet's machine that is nearly full: what compaction costs with its scanner, and with targets straight from
//! the free lists.

use highorder_kernels::KernelFile;
use highorder_kernels::machine;
use highorder_model::{ModelSpec, run};
use highorder_record::{Inputs, Record};
use highorder_sim::Ns;
use highorder_workload::Value;
use std::collections::BTreeMap;

/// An hour of the services on this share of 128 GiB, of which some ask for huge pages at once and for all
/// others kcompactd does.
fn an_hour(kernel: &str, denominator: u32) -> Record {
    let machine = machine::load("fleet-128g").unwrap().scaled(1, denominator).unwrap();
    let kernel = KernelFile::load(kernel).unwrap();
    let size =
        |mebibytes: u64| Value::Text(format!("{} KiB", (mebibytes << 10) / u64::from(denominator)));
    let values = BTreeMap::from([
        ("advised_percent".to_owned(), Value::Integer(20)),
        ("anon".to_owned(), Value::Float(0.8)),
        ("anon_turnover".to_owned(), size(256)),
        ("heap_turnover".to_owned(), size(256)),
        ("file_turnover".to_owned(), size(256)),
        ("tree_turnover".to_owned(), size(32)),
        ("period_ms".to_owned(), Value::Integer(60_000)),
        ("seconds".to_owned(), Value::Integer(3600)),
    ]);
    let workload = highorder_workload::find("fleet", &values).unwrap();
    let knob = |name: &str, value: &str| (format!("transparent_hugepage/{name}"), value.to_owned());
    let spec = ModelSpec {
        machine,
        policy: kernel.policy,
        flows: kernel.flows,
        knobs: BTreeMap::from([knob("defrag", "defer+madvise"), knob("khugepaged/defrag", "0")]),
        seed: 1,
        demands: Vec::new(),
        sample_interval: Ns::from_secs(60),
        draw: None,
        watch: None,
    };
    run(spec, Inputs::default(), workload.code()).unwrap()
}

fn delta(record: &Record, counter: &str) -> f64 {
    record.delta(counter).unwrap() as f64
}

#[test]
fn the_scanner_checks_many_frames_for_a_page_and_the_free_lists_give_one_for_each_asked() {
    let mut by_size = Vec::new();
    for denominator in [64, 16] {
        let scanner = an_hour("linux-4.14", denominator);
        let moved = delta(&scanner, "pgmigrate_success");
        assert!(moved > 1000.0, "1/{denominator}: {moved}");
        by_size.push(delta(&scanner, "compact_free_scanned") / moved);
    }
    // Free memory does not grow with the machine as fast as its frames do.
    assert!(by_size[0] > 30.0 && by_size[1] > 1.5 * by_size[0], "{by_size:?}");

    let held = an_hour("linux-4.14-direct-held", 16);
    let (taken, missed) =
        (delta(&held, "compact_free_direct_alloc"), delta(&held, "compact_free_direct_miss"));
    assert!(taken > 100.0, "{taken}");
    assert!(missed < taken / 2.0, "{missed} of {taken}");
    // kcompactd still scans.
    assert!(delta(&held, "compact_free_scanned") > 100.0 * taken, "{taken}");

    let tail = an_hour("linux-4.14-direct-tail", 16);
    assert_eq!(delta(&tail, "compact_free_scanned"), 0.0);
    assert!(delta(&tail, "compact_free_list_alloc") >= delta(&tail, "pgmigrate_success"));
}
