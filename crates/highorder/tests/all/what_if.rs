//! `highorder what-if`, `advise` and `run --from`: recorded machines under other settings.

use crate::common::{printed, refused, text};
use serde_json::Value;
use std::fs;

const RECORDING: &str = "tests/data/recordings/612-rec-fragslab";
const DEFER: &str = "transparent_hugepage/defrag=defer";

#[test]
fn the_first_line_says_what_would_become_of_it() {
    let said = printed(&["what-if", RECORDING, "--set", DEFER, "--seeds", "1"]);
    let first = said.lines().next().expect("a line");
    assert!(
        first.starts_with(&format!("With {DEFER}, tasks would wait 0.00 s for memory instead of ")),
        "{said}"
    );
    for heading in ["What would come of it", "Under the present settings", "Assumed:"] {
        assert!(said.lines().any(|line| line.starts_with(heading)), "no `{heading}` in {said}");
    }
    assert_eq!(
        said,
        printed(&["what-if", RECORDING, "--set", DEFER, "--seeds", "1", "--workers", "1"])
    );
}

#[test]
fn the_document_says_how_far_the_model_is_off() {
    let document =
        fs::read_to_string(crate::common::project().join("docs/what-if.md")).expect("text");
    let said = printed(&["what-if", RECORDING, "--set", DEFER, "--format", "json"]);
    let said: Value = serde_json::from_str(&said).expect("one object");
    let percent = 100.0 * said["median_error"].as_f64().expect("a number");
    let told = format!("`612-rec-fragslab` is {percent:.0} % off with three seeds");
    assert!(document.contains(&told), "expected: {told}");
}

#[test]
fn values_stand_beside_each_other_for_programs_too() {
    let vary = "vm.compaction_proactiveness=0,80";
    let said = printed(&["what-if", RECORDING, "--vary", vary, "--seeds", "1", "--format", "json"]);
    let said: Value = serde_json::from_str(&said).expect("one object");
    assert_eq!(said["is_credible"], true);
    assert_eq!(said["says"].as_array().expect("sentences").len(), 2);
    let rows = said["tables"][0]["rows"].as_array().expect("rows");
    assert!(rows.iter().any(|row| row["measure"] == "Time in stalls"), "{rows:?}");
    let counters = said["agreement"]["rows"].as_array().expect("rows");
    assert!(counters.len() > 10, "{counters:?}");
}

#[test]
fn a_setting_that_nothing_depends_on_is_told_as_such() {
    let knob = "transparent_hugepage/khugepaged/max_ptes_none=0";
    let told = printed(&["what-if", RECORDING, "--set", knob, "--seeds", "1"]);
    assert!(told.contains("nothing that was recorded depends on it"), "{told}");
}

#[test]
fn a_setting_under_which_tasks_do_not_finish_is_no_improvement() {
    let knob = "vm.min_free_kbytes";
    let dead = format!("{knob}=99999999");
    let said = printed(&["what-if", RECORDING, "--set", &dead, "--format", "json"]);
    let said: Value = serde_json::from_str(&said).expect("one object");
    let sentences = said["says"].as_array().expect("sentences");
    let told = sentences[0].as_str().expect("a sentence");
    assert!(told.starts_with(&format!("With {dead}, ")), "{told}");
    assert!(
        told.contains(" of 14 tasks would not finish what was recorded, in 3 of 3 runs: "),
        "{told}"
    );
    assert!(!told.contains("tasks would wait"), "{told}");
    let rows = said["tables"][0]["rows"].as_array().expect("rows");
    let row = |name: &str| rows.iter().find(|row| row["measure"] == name).expect("a row");
    assert_eq!(row("Runs that did less")["now"], 0);
    assert_eq!(row("Runs that did less")[dead.as_str()], 3);
    assert!(row("Time in stalls")[dead.as_str()].is_null(), "{rows:?}");
}

#[test]
fn where_the_machine_comes_to_its_end_the_other_columns_are_answered() {
    let knob = "vm.min_free_kbytes";
    let vary = format!("{knob}=47120,440000");
    let said = printed(&["what-if", RECORDING, "--vary", &vary, "--seeds", "1"]);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with(&format!("With {knob}=47120, tasks would wait ")), "{said}");
    assert!(lines[1].starts_with(&format!("With {knob}=440000, ")), "{said}");
    assert!(lines[1].contains("the machine came to its end: memory ran out"), "{said}");
    let set = format!("{knob}=440000");
    let refusal = refused(&["what-if", RECORDING, "--set", &set, "--seeds", "1"]);
    assert!(refusal.contains(&format!("error: with {set}, at ")), "{refusal}");
    assert!(refusal.contains("the machine came to its end"), "{refusal}");
}

#[test]
fn a_machine_without_a_disk_gives_its_costs_alone() {
    let file = crate::common::project().join("machines/guest-tcg.toml");
    let whole = fs::read_to_string(file).expect("text");
    let (before, rest) = whole.split_once("[[disk]]").expect("a disk");
    let (disk, rest) = rest.split_once("[[swap]]").expect("swap");
    let (_, costs) = rest.split_once("\n# What primitive work").expect("costs");
    let folder = tempfile::tempdir().expect("a folder");
    let machine = |name: &str, disk: &str| {
        let path = folder.path().join(format!("{name}.toml"));
        fs::write(&path, format!("{before}{disk}# What primitive work{costs}")).expect("a file");
        text(&path).to_owned()
    };
    let asked = ["what-if", RECORDING, "--set", DEFER, "--seeds", "1", "--machine"];
    let said = printed(&[&asked[..], &[machine("this", "").as_str()]].concat());
    let lent = "- disks and swap are those of the machine `guest-tcg`, as `this` has no disk\n";
    assert!(said.contains(lent), "{said}");
    // All else is as on the machine whose costs these are.
    let figures = |said: &str| said.split_once("Assumed:").map(|(figures, _)| figures.to_owned());
    assert_eq!(figures(&said), figures(&printed(&asked[..6])));
    let refusal =
        refused(&[&asked[..], &[machine("dry", &format!("[[disk]]{disk}")).as_str()]].concat());
    assert!(refusal.contains("machine dry has no swap, and the recorded one had"), "{refusal}");
}

#[test]
fn a_figure_whose_counter_the_model_misses_is_marked() {
    let said =
        printed(&["what-if", RECORDING, "--set", "vm.min_free_kbytes=100000", "--seeds", "1"]);
    let first = said.lines().next().expect("a line");
    // 515 pages were swapped out there, and none are in the model.
    let marked = "pages would be swapped out instead of 0 (the model is 100 % off here)";
    assert!(first.contains(marked), "{said}");
}

#[test]
fn where_the_model_is_far_off_there_is_no_advice() {
    let recording = "tests/data/recordings/612-rec-churn";
    let said = printed(&["what-if", recording, "--set", DEFER, "--seeds", "1", "--format", "json"]);
    let said: Value = serde_json::from_str(&said).expect("one object");
    let error = said["median_error"].as_f64().expect("a number");
    let first = said["says"][0].as_str().expect("a sentence");
    assert_eq!(said["is_credible"], error <= 0.25);
    assert_eq!(first.starts_with("No advice: "), error > 0.25, "{first}");
}

#[test]
fn advice_names_what_helps_and_how_to_apply_and_undo_it() {
    let said = printed(&["advise", RECORDING, "--seeds", "3"]);
    assert!(said.starts_with("With "), "{said}");
    for part in ["\nTo apply, as /etc/", "\nTo undo:\n  rm /etc/", "Without any effect here: "] {
        assert!(said.contains(part), "no `{part}` in {said}");
    }
    let rows: Vec<&str> = said.lines().filter(|line| line.contains(" yes  ")).collect();
    assert!(!rows.is_empty(), "{said}");
    assert!(rows.iter().all(|row| !row.contains("enabled=never")), "{rows:?}");
}

#[test]
fn what_cannot_be_asked_is_refused_before_anything_runs() {
    let refusal = refused(&["what-if", RECORDING, "--set", "vm.swapines=10"]);
    assert!(refusal.contains("unknown knob `vm.swapines`"), "{refusal}");
    assert!(
        refused(&["what-if", RECORDING, "--set", "vm.swappiness"]).contains("expected KNOB=VALUE")
    );
    assert!(
        refused(&["what-if", RECORDING, "--vary", "vm.swappiness=1,,2"])
            .contains("expected KNOB=A,B,C")
    );
    let usage = refused(&["what-if", RECORDING]);
    assert!(usage.contains("--set <KNOB=VALUE>|--vary <KNOB=A,B,C>"), "{usage}");
    for twice in [
        ["--set", "vm.swappiness=1", "--set", "vm.swappiness=2"],
        ["--set", "vm.swappiness=1", "--vary", "vm.swappiness=2,3"],
        ["--set", "vm.extfrag_threshold=1", "--vary", "vm.swappiness=2,2"],
    ] {
        let refusal = refused(&[&["what-if", RECORDING][..], &twice].concat());
        assert!(refusal.contains("twice, expected "), "{refusal}");
    }
    let idle = refused(&["what-if", "tests/data/recordings/612-rec-compact", "--set", DEFER]);
    assert!(idle.contains("no task asked for memory"), "{idle}");
}

#[test]
fn an_experiment_begins_in_the_memory_of_a_recorded_machine() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("store");
    let from = ["run", "usemem-small", "--from", RECORDING, "--fit", "--store", text(&store)];
    let said = printed(&from);
    assert!(said.contains("begins in the memory of 612-rec-fragslab"), "{said}");
    // Memory is fragmented there as it is not at boot.
    let counted = |said: &str, row: &str| {
        said.lines().find(|line| line.starts_with(row)).map(str::to_owned).unwrap_or_default()
    };
    let at_boot = printed(&["run", "usemem-small", "--scale", "1/2", "--store", text(&store)]);
    let row = "Unusable for a huge page before";
    assert_ne!(counted(&said, row), counted(&at_boot, row), "{said}{at_boot}");
    // A run that is there is not run again, and another machine's is another one.
    assert_eq!(
        crate::common::without_command(&printed(&from)),
        crate::common::without_command(&said)
    );
    let refusal = refused(&[
        "run",
        "usemem-small",
        "--from",
        RECORDING,
        "--on",
        "host",
        "--store",
        text(&store),
    ]);
    assert!(refusal.contains("expected the model"), "{refusal}");
}
