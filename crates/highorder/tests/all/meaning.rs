//! Runs that mean nothing say so, and every result tells the state of memory.

use crate::common::{highorder, names, printed, refused, text};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// An experiment of two variants; what they differ in comes behind.
const EXPERIMENT: &str = "\
description = \"memory is written once\"
machine = \"one-node-8g\"

[workload]
name = \"usemem\"
memory = 0.3
passes = 1
file = 0.0

[[variant]]
name = \"base\"
kernel = \"linux-6.12\"

[[variant]]
name = \"other\"
kernel = \"linux-6.12\"
";

/// Writes the experiment with more behind it, and returns its path.
fn experiment(folder: &Path, more: &str) -> String {
    let path = folder.join("mine.toml");
    fs::write(&path, format!("{EXPERIMENT}{more}")).expect("a file");
    text(&path).to_owned()
}

/// What a run at 1/64 prints.
#[track_caller]
fn run(folder: &Path, more: &str, arguments: &[&str]) -> String {
    let (experiment, store) = (experiment(folder, more), folder.join("store"));
    let mut all = vec!["run", &experiment, "--scale", "1/64", "--store", text(&store)];
    all.extend(arguments);
    printed(&all)
}

#[test]
fn variants_with_identical_results_are_told_with_whether_their_inputs_differ() {
    let folder = tempfile::tempdir().expect("a folder");
    // As one line, however it is wrapped.
    let run = |more: &str| {
        let shown = run(folder.path(), more, &[]);
        shown.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let no_swap = run("knobs = { \"vm.swappiness\" = 10 }\n");
    let told =
        "base and other have identical results, though their inputs differ: kernel vm.swappiness. ";
    assert!(no_swap.contains(told), "{no_swap}");
    let same = run("");
    let told = "base and other have identical results: their inputs do not differ but in names. ";
    assert!(same.contains(told), "{same}");
    let other = run("knobs = { \"transparent_hugepage/enabled\" = \"never\" }\n");
    assert!(!other.contains("identical"), "{other}");
}

#[test]
fn a_workload_that_could_not_go_on_is_told_before_its_numbers() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, store) = (folder.path().join("mine.toml"), folder.path().join("store"));
    fs::write(&path, EXPERIMENT.replace("memory = 0.3", "memory = \"900 TiB\"")).expect("a file");
    let shown = printed(&["run", text(&path), "--scale", "1/64", "--store", text(&store)]);
    let first = "Verdict\n\nThe workload ended early under 2 variants:\n  base, in 1 of 1 run: ";
    assert!(shown.starts_with(first), "{shown}");
}

#[test]
fn a_row_that_a_sweep_names_and_nothing_measures_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let sweep = "\n[sweep]\nkey = \"knobs.vm.swappiness\"\nvalues = [10, 60]\nmeasure = ";
    let failing = |measure: &str| {
        let path = experiment(folder.path(), &format!("{sweep}{measure}\n"));
        let store = folder.path().join("store");
        let arguments = ["run", &path, "--scale", "1/64", "--store", text(&store)];
        let output = highorder(&arguments).assert().code(2).get_output().clone();
        [output.stdout, output.stderr].map(|told| String::from_utf8(told).expect("UTF-8"))
    };
    let [shown, told] = failing("[\"System\", \"Minor Fauts\"]");
    assert!(shown.contains("Not measured: `Minor Fauts`, did you mean `Minor Faults`?"), "{shown}");
    assert!(shown.contains("\nSystem (s)\n") && !shown.contains("Shown instead"), "{shown}");
    let expected = "mine.toml:21: `measure` has `Minor Fauts`, which no row of the results is called, did you mean \
                    `Minor Faults`?";
    assert!(told.contains(expected), "{told}");
    let [shown, told] = failing("[\"nonsense\"]");
    assert!(shown.contains("Not measured: `nonsense`."), "{shown}");
    assert!(shown.contains("Shown instead is what the workload measures, "), "{shown}");
    assert!(told.contains("`measure` has `nonsense`, which no row"), "{told}");
}

#[test]
fn a_sweep_can_be_over_what_the_verdict_tells_of_stalls() {
    let folder = tempfile::tempdir().expect("a folder");
    let sweep = "\n[sweep]\nkey = \"knobs.vm.swappiness\"\nvalues = [10, 60]\nmeasure = ";
    let shown =
        run(folder.path(), &format!("{sweep}[\"time in stalls\", \"longest stall\"]\n"), &[]);
    assert!(!shown.contains("Not measured"), "{shown}");
    assert!(shown.contains("\ntime in stalls (s)\n"), "{shown}");
    assert!(shown.contains("\nlongest stall (ms)\n"), "{shown}");
}

#[test]
fn a_machine_or_kernel_in_place_of_an_experiment_is_told_as_such() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mine.toml");
    for (base, expected) in [
        ("one-node-8g", "mine.toml: a machine, expected an experiment"),
        ("linux-6.12", "mine.toml: a kernel, expected an experiment"),
        ("one-node-8", "mine.toml:1: `based_on`: no kernel or machine `one-node-8`, did you mean"),
    ] {
        fs::write(&path, format!("based_on = \"{base}\"\n")).expect("a file");
        let told = refused(&["run", text(&path)]);
        assert!(told.contains(expected), "{told}");
    }
}

#[test]
fn a_knob_that_was_scaled_is_shown_with_what_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let shown = run(folder.path(), "knobs = { \"vm.min_free_kbytes\" = 262144 }\n", &[]);
    assert!(shown.contains("other: vm.min_free_kbytes is 4096, scaled from 262144 as memory is\n"));
    assert!(shown.contains("4096, scaled from 262144"), "{shown}");
    let path = experiment(folder.path(), "knobs = { \"vm.min_free_kbytes\" = 1024 }\n");
    let store = folder.path().join("refused");
    let told = refused(&["run", &path, "--scale", "1/64", "--store", text(&store)]);
    assert_eq!(
        told,
        "error: scale 1/64 of the variant `other`: `vm.min_free_kbytes` is 1024, scaled 16, expected at least \
         128\n"
    );
    assert!(!store.exists(), "nothing was begun");
}

#[test]
fn every_form_of_results_has_the_state_of_memory_before_and_after() {
    let folder = tempfile::tempdir().expect("a folder");
    let more = "knobs = { \"transparent_hugepage/enabled\" = \"never\" }\n";
    let rows = [
        "Unusable for a huge page before",
        "Unusable for a huge page after",
        "Mixed pageblocks before",
        "Mixed pageblocks after",
        "Free pageblocks before",
        "Free pageblocks after",
        "Huge pages free before",
        "Huge pages free after",
        "Huge pages with compaction before",
        "Huge pages with compaction after",
    ];
    for format in ["text", "md", "csv", "json", "html"] {
        let shown = run(folder.path(), more, &["--format", format]);
        for row in rows {
            assert!(shown.contains(row), "no `{row}` in {format}: {shown}");
        }
    }
    let shown = run(folder.path(), more, &["--format", "json"]);
    let json: Value = serde_json::from_str(&shown).expect("one object");
    let tables = json["tables"].as_array().expect("tables");
    let memory = tables.iter().find(|table| table["title"] == "Memory").expect("a table");
    for row in memory["rows"].as_array().expect("rows") {
        for variant in ["base", "other"] {
            assert!(row[variant].is_number(), "{row}");
        }
    }
    let store = folder.path().join("store");
    let compared = printed(&["compare", "mine:*", "--store", text(&store)]);
    assert!(rows.iter().all(|row| compared.contains(row)), "{compared}");
}

#[test]
fn what_a_record_does_not_tell_of_memory_is_missing_and_not_zero() {
    let folder = tempfile::tempdir().expect("a folder");
    run(folder.path(), "", &[]);
    let store = folder.path().join("store");
    // As records were before they told it.
    let name =
        names(&store).into_iter().find(|name| name.starts_with("mine.other")).expect("a run");
    let path = store.join(name).join("record.json");
    let text_of = |path: &Path| fs::read_to_string(path).expect("a document");
    let mut record: Value = serde_json::from_str(&text_of(&path)).expect("a document");
    for state in ["before", "held", "after"] {
        let state = record[state].as_object_mut().expect("a state");
        state.remove("pageblock_order").expect("it is there");
        for zone in state["zones"].as_array_mut().expect("zones") {
            zone.as_object_mut().expect("a zone").remove("pageblock_use").expect("it is there");
        }
    }
    record["format"] = "highorder-record 1".into();
    record.as_object_mut().expect("a document").remove("checksum").expect("it is there");
    fs::write(&path, serde_json::to_vec(&record).expect("text")).expect("a file");
    let shown = printed(&[
        "compare",
        "mine:base",
        "mine:other",
        "--store",
        text(&store),
        "--format",
        "json",
    ]);
    let json: Value = serde_json::from_str(&shown).expect("one object");
    let tables = json["tables"].as_array().expect("tables");
    let memory = tables.iter().find(|table| table["title"] == "Memory").expect("a table");
    for row in memory["rows"].as_array().expect("rows") {
        let is_known = ["Unusable", "Huge pages free"]
            .iter()
            .any(|begin| row["metric"].as_str().expect("a name").starts_with(begin));
        assert!(row["base"].is_number(), "{row}");
        assert_eq!(
            (row["other"].is_number(), row["other"].is_null()),
            (is_known, !is_known),
            "{row}"
        );
    }
}

#[test]
fn a_listing_of_one_row_says_which_interval_shows_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let shown = run(folder.path(), "", &["--listing=500"]);
    let begin = "The run was sampled for ";
    let hint = shown.lines().find(|line| line.starts_with(begin)).expect("a hint");
    assert!(hint.contains("less than the 500 s between two lines: --listing="), "{hint}");
    let (_, rest) = hint.split_once("--listing=").expect("an interval");
    let (finer, _) = rest.split_once(' ').expect("words");
    let shown = run(folder.path(), "", &[&format!("--listing={finer}")]);
    assert!(!shown.contains(begin), "{shown}");
}

#[test]
fn a_workload_with_files_on_a_machine_without_a_disk_is_an_error_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let diskless = "based_on = \"one-node-8g\"\nswap = []\ndisk = []\n";
    fs::write(folder.path().join("diskless.toml"), diskless).expect("a file");
    let path = folder.path().join("mine.toml");
    fs::write(
        &path,
        EXPERIMENT.replace("one-node-8g", "diskless.toml").replace("file = 0.0\n", ""),
    )
    .expect("a file");
    let store = folder.path().join("store");
    let told = highorder(&["run", text(&path), "--store", text(&store)]).assert().code(2);
    let told = String::from_utf8_lossy(&told.get_output().stderr).into_owned();
    assert!(told.contains("mine.toml:2: the machine `diskless` has no disk"), "{told}");
    assert!(!store.exists());
}
