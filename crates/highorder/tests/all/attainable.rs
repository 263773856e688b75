//! `highorder attainable`: what can be had of recorded memory, and what blocks the rest.

use crate::common::{STATE, inexact_file, names, printed, recording_file, refused, text};
use highorder_snapshot::Exactness;
use serde_json::Value;

/// Ways and blocks.
fn ways(arguments: &[&str]) -> Vec<(String, u64)> {
    let all = [&["attainable"], arguments, &["--format", "json"]].concat();
    let json: Value = serde_json::from_str(&printed(&all)).expect("one object");
    let rows = json["tables"][0]["rows"].as_array().expect("rows").clone();
    let row =
        |row: &Value| (row["way"].as_str().unwrap().to_owned(), row["blocks"].as_u64().unwrap());
    rows.iter().map(row).collect()
}

#[track_caller]
fn blocks(ways: &[(String, u64)], name: &str) -> u64 {
    ways.iter().find(|(way, _)| way == name).unwrap_or_else(|| panic!("{name} in {ways:?}")).1
}

#[test]
fn compaction_gives_as_many_as_the_recorded_kernel_had() {
    for recording in ["612-rec-compact", "61-rec-compact"] {
        let ways = ways(&[&format!("tests/data/recordings/{recording}"), "--order", "9"]);
        let model = blocks(&ways, "after compaction");
        let kernel = blocks(&ways, "after compaction, as the recorded kernel did it");
        assert!(model.abs_diff(kernel) <= 2, "{recording}: model {model}, kernel {kernel}");
        assert!(model > blocks(&ways, "as it is"), "{recording}");
    }
}

#[test]
fn of_a_recordings_file_it_says_what_it_says_of_its_folder() {
    let recording = "tests/data/recordings/612-rec-compact";
    let folder = tempfile::tempdir().expect("a folder");
    let file = recording_file(folder.path(), recording);
    assert_eq!(ways(&[text(&file), "--order", "9"]), ways(&[recording, "--order", "9"]));
}

#[test]
fn the_more_is_gone_the_more_can_be_had() {
    let ways = ways(&[STATE, "--size", "2M", "--without", "anon,thp,file"]);
    let emptied = blocks(&ways, "a range emptied for each (alloc_contig_range)");
    assert!(blocks(&ways, "without anon, thp, file, a range emptied for each") >= emptied);
    assert!(blocks(&ways, "caches dropped, after compaction") >= blocks(&ways, "as it is"));
}

#[test]
fn any_size_can_be_asked_for_and_drawn() {
    let folder = tempfile::tempdir().expect("a folder");
    let png = folder.path().join("blocked.png");
    let told = printed(&["attainable", STATE, "--size", "12M", "--png", text(&png)]);
    assert!(told.contains("Blocks of 12 MiB") && told.contains("What blocks the others"), "{told}");
    assert_eq!(names(folder.path()), ["blocked.png"]);
}

#[test]
fn of_counts_only_what_is_free_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = inexact_file(folder.path(), Exactness::Counts);
    assert_eq!(ways(&[text(&file), "--order", "9"]).len(), 1);
    let told = refused(&["attainable", text(&file), "--size", "1G"]);
    assert!(told.contains("found a state of exactness counts"), "{told}");
}

#[test]
fn what_cannot_be_asked_for_is_refused() {
    assert!(refused(&["attainable", STATE]).contains("--order"));
    assert!(refused(&["attainable", STATE, "--size", "3K"]).contains("whole pages of 4 KiB"));
    assert!(
        refused(&["attainable", STATE, "--order", "9", "--without", "cake"])
            .contains("expected of")
    );
    let told = refused(&["attainable", STATE, "--order", "9", "--without-process", "1"]);
    assert!(told.contains("expected live"), "{told}");
}
