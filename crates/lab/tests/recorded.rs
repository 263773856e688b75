//! Recorded programs on the model, where the tests' fake system cannot run them: with others in the background.

mod common;

use highorder_record::Inputs;
use highorder_sim::Machine;
use highorder_system::model::run;
use highorder_workload::recorded::Script;

#[test]
fn highalloc_has_its_passes_under_load_and_one_at_rest() {
    let spec = common::model(Machine::load("guest-tcg").unwrap(), "linux-3.5", "always");
    let setup = Script::parse("highalloc -S -k 2 -f 200 -M 40").unwrap();
    let script = Script::parse("highalloc -k 2 -f 200 -M 40 -w 2 -m 5").unwrap();
    let record = run(spec, Inputs::default(), script.code(Some(setup))).unwrap();
    let success = |pass: &str| {
        let name = format!("highalloc.{pass}.pct");
        let row = record.metrics.iter().find(|metric| metric.name == name);
        row.unwrap_or_else(|| panic!("{name} is reported")).samples[0]
    };
    for pass in ["pass1", "pass2", "rested"] {
        assert!((1.0..=100.0).contains(&success(pass)), "{pass}: {}", success(pass));
    }
    assert!(success("rested") >= success("pass1"), "{} {}", success("rested"), success("pass1"));
    // The trees have gone, and the file of memory's size was read as it was written: what is left are objects.
    let files = record.after.counters["nr_file_pages"];
    assert!(files < record.before.counters["nr_file_pages"], "{files} pages of files are left");
    assert!(record.delta("compact_stall").unwrap() > 0);
}
