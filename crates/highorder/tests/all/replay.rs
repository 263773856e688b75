//! `highorder replay` of the recordings that the project ships.

use crate::common::{inexact_file, names, printed, project, refused, text};
use highorder_snapshot::Exactness;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

const CHURN: &str = "tests/data/recordings/612-rec-churn";
const FRAGSLAB: &str = "tests/data/recordings/612-rec-fragslab";

fn json(arguments: &[&str]) -> Value {
    let mut all = vec!["replay", "--format", "json"];
    all.extend(arguments);
    serde_json::from_str(&printed(&all)).expect("one object")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("found {value}, expected a number"))
}

#[test]
fn in_lockstep_the_model_agrees_with_the_kernel() {
    for recording in [CHURN, FRAGSLAB] {
        let report = json(&[recording, "--lockstep"]);
        for choice in ["take", "fallback", "pcp_take", "drain", "refill_size", "drain_size"] {
            let share = number(&report["agreement"][choice]["share"]);
            assert!(share >= 0.999, "{recording}: {choice} {share}");
        }
    }
}

#[test]
fn the_helps_example_in_lockstep_has_choices_to_ask_for() {
    let help = printed(&["replay", "--help"]);
    let example = help.lines().find(|line| {
        line.starts_with("  highorder replay ") && line.trim_end().ends_with(" --lockstep")
    });
    let words: Vec<&str> = example.expect("an example").split_ascii_whitespace().skip(2).collect();
    let report = json(&words);
    assert!(number(&report["agreement"]["take"]["asked"]) > 0.0, "{words:?}: {report:#}");
}

#[test]
fn running_freely_the_model_ends_near_the_kernel() {
    for recording in [CHURN, FRAGSLAB] {
        let report = json(&[recording]);
        let model = &report["models"][0];
        assert!(number(&model["distance"]) <= 0.05, "{recording}: {model:#}");
        assert!(number(&model["same_use"]) >= 0.9, "{recording}: {model:#}");
        for kind in ["fallbacks", "fragmenting_fallbacks"] {
            let (recorded, served) = (number(&report["recorded"][kind]), number(&model[kind]));
            let tolerated = f64::max(3.0, recorded * 0.05);
            assert!((recorded - served).abs() <= tolerated, "{recording}: {kind} {report:#}");
        }
    }
}

#[test]
fn other_rules_lead_elsewhere() {
    let report = json(&[FRAGSLAB, "--vs", "linux-6.1", "--vs", "linux-6.12-ungrouped"]);
    let [own, older, ungrouped] = [0, 1, 2].map(|i| number(&report["models"][i]["distance"]));
    assert!(own < older && own < ungrouped, "{report:#}");
}

#[test]
fn a_replay_is_told_in_tables_and_repeats_to_the_byte() {
    let told = printed(&["replay", CHURN]);
    for heading in ["At the end", "Fallbacks by kind", "Free blocks", "bytes a frame"] {
        assert!(told.contains(heading), "{told}");
    }
    assert_eq!(told, printed(&["replay", CHURN]));
    let told = printed(&["replay", CHURN, "--lockstep"]);
    assert!(told.contains("block taken from a free list") && told.contains("inferred"), "{told}");
}

#[test]
fn the_pictures_are_four() {
    let folder = tempfile::tempdir().expect("a folder");
    let pictures = folder.path().join("out/pictures");
    printed(&["replay", CHURN, "--png-dir", text(&pictures)]);
    let expected = ["difference.png", "free-blocks.png", "memory.png", "over-time.png"];
    assert_eq!(names(&pictures), expected);
    for name in expected {
        let bytes = fs::read(pictures.join(name)).expect("a picture");
        assert!(bytes.starts_with(b"\x89PNG"), "{name} is no PNG");
    }
}

/// A copy of a recording, to be damaged.
fn copy(into: &Path) -> PathBuf {
    let copy = into.join("copy");
    fs::create_dir_all(copy.join("state0")).expect("a folder");
    let recording = project().join(CHURN);
    fs::copy(recording.join("case.json"), copy.join("case.json")).expect("a copy");
    let state = recording.join("state0");
    for name in names(&state) {
        fs::copy(state.join(&name), copy.join("state0").join(&name)).expect("a copy");
    }
    let trace = fs::read(recording.join("trace.txt.zst")).expect("a trace");
    let lines = zstd::decode_all(trace.as_slice()).expect("a trace");
    fs::write(copy.join("trace.txt"), lines).expect("a copy");
    copy
}

#[test]
fn a_recording_without_its_end_is_compared_with_the_state_followed() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = json(&[text(&copy(folder.path()))]);
    assert!(number(&report["models"][0]["distance"]) <= 0.05, "{report:#}");
}

/// A copy of a recording whose trace has been changed.
fn changed(into: &Path, change: impl FnOnce(&mut Vec<String>)) -> PathBuf {
    let copy = copy(into);
    let trace = fs::read_to_string(copy.join("trace.txt")).expect("a trace");
    let mut lines: Vec<String> = trace.lines().map(str::to_owned).collect();
    change(&mut lines);
    fs::write(copy.join("trace.txt"), lines.join("\n") + "\n").expect("a trace");
    copy
}

/// The line in the middle of those with an event of this name.
fn middle(lines: &[String], event: &str) -> usize {
    let with: Vec<_> = (0..lines.len()).filter(|&at| lines[at].contains(event)).collect();
    with[with.len() / 2]
}

#[test]
fn garbage_in_a_trace_is_told_with_its_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = changed(folder.path(), |lines| {
        lines[999] = "mm_page_alloc: pfn=0xWRONG 7 7 7".to_owned();
    });
    let complaint = refused(&["replay", text(&copy)]);
    assert!(complaint.contains("trace.txt:1000: "), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
}

#[test]
fn every_event_that_the_machine_cannot_have_is_told_with_its_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut changed_lines = Vec::new();
    let copy = changed(folder.path(), |lines| {
        for (event, field) in
            [("mm_page_free:", "pfn=0x"), ("mm_compaction_isolate_migratepages:", "range=(0x")]
        {
            let at = middle(lines, event);
            lines[at] = lines[at].replace(field, &format!("{field}fff"));
            changed_lines.push(at + 1);
        }
    });
    let complaint = refused(&["replay", text(&copy)]);
    assert_eq!(complaint.lines().count(), 2, "{complaint}");
    for line in changed_lines {
        assert!(complaint.contains(&format!("trace.txt:{line}: ")), "{line}: {complaint}");
    }
}

#[test]
fn a_cpu_that_only_frees_and_that_the_state_does_not_name_has_its_lists() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = changed(folder.path(), |lines| {
        let at = middle(lines, "mm_page_free:");
        lines[at] = lines[at].replace("[000]", "[200]").replace("[001]", "[200]");
        assert!(lines[at].contains("[200]"), "{}", lines[at]);
    });
    for mode in [&["--lockstep"][..], &[]] {
        json(&[&[text(&copy)], mode].concat());
    }
}

#[test]
fn a_recording_of_nothing_ends_as_it_began() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = changed(folder.path(), |lines| lines.retain(|line| line.starts_with('#')));
    let report = json(&[text(&copy)]);
    assert_eq!(number(&report["events"]), 0.0);
    assert_eq!(number(&report["models"][0]["distance"]), 0.0);
    assert_eq!(number(&json(&[text(&copy), "--lockstep"])["events"]), 0.0);
}

#[test]
fn the_end_of_another_machine_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = copy(folder.path());
    let (other, end) = (project().join(FRAGSLAB).join("state1"), copy.join("state1"));
    fs::create_dir_all(&end).expect("a folder");
    for name in names(&other) {
        fs::copy(other.join(&name), end.join(&name)).expect("a copy");
    }
    let complaint = refused(&["replay", text(&copy)]);
    assert!(complaint.contains("state1: has node 0 DMA"), "{complaint}");
    assert!(complaint.contains("as in the state before"), "{complaint}");
}

#[test]
fn a_kernel_with_smaller_blocks_than_the_machine_had_serves_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("small.toml");
    fs::write(&file, "based_on = \"linux-6.12\"\n[freelist]\nmax_order = 9\n").expect("a file");
    let report = json(&[CHURN, "--vs", text(&file)]);
    let blocks = report["tables"][2]["rows"].as_array().expect("rows");
    let model_of_order_10 =
        |row: &Value| number(&row["order"]) == 10.0 && number(&row["small"]) > 0.0;
    assert!(blocks.iter().any(|row| number(&row["recorded"]) > 0.0), "{report:#}");
    assert!(!blocks.iter().any(model_of_order_10), "{report:#}");
}

#[test]
fn a_truncated_state_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = copy(folder.path());
    let lists = copy.join("state0/freelist.csv.gz");
    let bytes = fs::read(&lists).expect("the lists");
    fs::write(&lists, &bytes[..bytes.len() / 2]).expect("a file");
    let complaint = refused(&["replay", text(&copy)]);
    assert!(complaint.contains("freelist.csv.gz"), "{complaint}");
}

#[test]
fn a_misspelt_policy_is_told_with_its_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mine.toml");
    let lines = [
        "release = \"6.12\"",
        "based_on = \"linux-6.12\"",
        "description = \"mine\"",
        "[pcp]",
        "hihg = 3",
    ];
    fs::write(&file, lines.join("\n")).expect("a file");
    let pictures = folder.path().join("out");
    let complaint =
        refused(&["replay", CHURN, "--kernel", text(&file), "--png-dir", text(&pictures)]);
    assert!(complaint.contains("mine.toml:5: "), "{complaint}");
    assert!(complaint.contains("hihg"), "{complaint}");
    assert!(!pictures.exists(), "nothing is written");
}

#[test]
fn what_is_no_recording_is_refused() {
    let complaint = refused(&["replay", "crates"]);
    assert!(complaint.contains("no state0 here"), "{complaint}");
    let complaint = refused(&["replay", "nosuch"]);
    assert!(complaint.contains("nosuch: cannot read: No such file"), "{complaint}");
}

const COMPACT: [&str; 2] =
    ["tests/data/recordings/612-rec-compact", "tests/data/recordings/61-rec-compact"];

#[test]
fn compaction_of_a_recorded_machine_ends_where_the_kernel_ended() {
    for recording in COMPACT {
        let report = json(&[recording, "--then", "compact_memory"]);
        let model = &report["models"][0];
        assert_eq!(report["recorded"], model["work"], "{recording}: {report:#}");
        assert!(number(&report["recorded"]["pgmigrate_success"]) > 5_000.0, "{report:#}");
        assert!(number(&model["distance"]) <= 0.02, "{recording}: {report:#}");
    }
}

#[test]
fn pages_that_were_put_back_are_told_from_those_that_failed_to_move() {
    let arguments = [COMPACT[1], "--then", "compact_memory"];
    let told = printed(&["replay", arguments[0], arguments[1], arguments[2]]);
    assert!(told.contains("pages that failed to move (pgmigrate_fail)"), "{told}");
    assert!(told.contains("  put back  ") && !told.contains("not moved"), "{told}");
    // The last batch of 450 found no free page for its 41st, and 409 were not tried.
    assert_eq!(number(&json(&arguments)["models"][0]["work"]["pgmigrate_fail"]), 1.0);
    let trace = printed(&["export", COMPACT[1], "--to", "ftrace"]);
    assert!(trace.contains("nr_migrated=40 nr_failed=410"), "{trace}");
    let row = told.lines().find(|line| line.starts_with("linux-6.1 ") && line.contains(" DMA32 "));
    assert!(row.is_some_and(|row| row.contains(" 410  ")), "{told}");
}

#[test]
fn any_state_can_be_compacted_under_any_kernel() {
    let state = format!("{CHURN}/state0");
    let told = printed(&["replay", &state, "--then", "compact_memory", "--vs", "linux-4.14"]);
    for words in ["was not recorded", "Free blocks by order", "linux-6.12", "linux-4.14", "DMA32"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    // Without a state after that is compaction's alone, nothing is shown beside the model.
    let report = json(&[CHURN, "--then", "compact_memory"]);
    assert!(report["recorded"].is_null() && report["models"][0]["distance"].is_null());
}

#[test]
fn counts_alone_are_not_compacted() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = inexact_file(folder.path(), Exactness::Counts);
    let complaint = refused(&["replay", text(&file), "--then", "compact_memory"]);
    assert!(complaint.starts_with(&format!("error: {}: ", file.display())), "{complaint}");
    assert!(complaint.contains("exactness counts, expected frames or lists"), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
}

#[test]
fn counts_alone_are_not_replayed() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = copy(folder.path());
    fs::remove_dir_all(copy.join("state0")).expect("it was copied");
    let file = inexact_file(folder.path(), Exactness::Counts);
    fs::rename(file, copy.join("state0.snapshot")).expect("a state");
    let complaint = refused(&["replay", text(&copy)]);
    assert!(complaint.contains("state0.snapshot: counts alone, expected"), "{complaint}");
}

#[test]
fn what_compaction_of_a_state_of_frames_assumes_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = inexact_file(folder.path(), Exactness::Frames);
    let told = printed(&["replay", text(&file), "--then", "compact_memory"]);
    let assumed: Vec<&str> =
        told.lines().filter_map(|line| line.strip_prefix("assumed: ")).collect();
    assert_eq!(assumed.len(), 3, "{told}");
    assert!(assumed[0].contains("frames without flags are kernel pages, which stay"), "{told}");
    assert!(assumed[0].contains("pages were free on per-CPU lists"), "{told}");
    let report = json(&[text(&file), "--then", "compact_memory"]);
    assert_eq!(report["exactness"], "frames");
    assert_eq!(report["assumed"].as_array().expect("a list").len(), 3);
    let exact = json(&[CHURN, "--then", "compact_memory"]);
    assert_eq!(exact["assumed"].as_array().expect("a list").len(), 0, "all of it is known");
}

#[test]
fn compaction_is_drawn_with_its_scanners_beside_the_kernels() {
    let folder = tempfile::tempdir().expect("a folder");
    let pictures = folder.path().join("pictures");
    printed(&["replay", COMPACT[0], "--then", "compact_memory", "--png-dir", text(&pictures)]);
    let expected =
        ["free-blocks.png", "memory.png", "scanners-linux-6.12.png", "scanners-recorded.png"];
    assert_eq!(names(&pictures), expected);
}

#[test]
fn what_cannot_be_compacted_is_refused() {
    let complaint = refused(&["replay", "no/such", "--then", "compact_memory"]);
    assert!(complaint.contains("no/such"), "{complaint}");
    let complaint = refused(&["replay", CHURN, "--then", "compact_memory", "--lockstep"]);
    assert!(complaint.contains("cannot be used with"), "{complaint}");
    let complaint = refused(&["replay", CHURN, "--then", "reclaim"]);
    assert!(complaint.contains("compact_memory"), "{complaint}");
}
