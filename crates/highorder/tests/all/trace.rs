//! `highorder trace` of traces that kernels and the model left, and what `run --trace` writes.

use crate::common::{highorder, names, printed, refused, text};
use serde_json::Value;
use std::fs;
use std::path::Path;

const COMPACT: &str = "tests/data/recordings/612-rec-compact/trace.txt.zst";
const CHURN: &str = "tests/data/recordings/612-rec-churn/trace.txt.zst";

/// Huge pages under load, where kcompactd works on its own and where tasks compact for themselves.
const EXPERIMENT: &str = "\
description = \"huge pages under load\"
machine = \"one-node-8g-in-use\"
sample_interval_ms = 1000

[workload]
name = \"stutter\"
rounds = 1

[[variant]]
kernel = \"linux-6.12\"
knobs = { \"transparent_hugepage/defrag\" = \"always\", \"vm.compaction_proactiveness\" = 100 }

[[variant]]
kernel = \"linux-4.14\"
knobs = { \"transparent_hugepage/defrag\" = \"always\" }
";

fn rows(arguments: &[&str]) -> Vec<Value> {
    let mut all = vec!["trace", "--format", "json"];
    all.extend(arguments);
    let table: Value = serde_json::from_str(&printed(&all)).expect("one object");
    table["rows"].as_array().expect("rows").clone()
}

#[test]
fn runs_of_compaction_are_told_in_a_table() {
    let told = printed(&["trace", COMPACT]);
    assert!(told.starts_with("2 runs of compaction in "), "{told}");
    assert!(told.contains("Node 0, zone DMA32") && told.contains("complete"), "{told}");
    assert_eq!(printed(&["trace", COMPACT, "--format", "csv"]).lines().count(), 3);
    assert_eq!(rows(&[CHURN]).len(), 34);
}

#[test]
fn a_picture_is_a_png_or_an_svg_as_its_name_says_and_repeats_to_the_byte() {
    let folder = tempfile::tempdir().expect("a folder");
    let (png, svg) = (folder.path().join("a.png"), folder.path().join("a.svg"));
    printed(&["trace", CHURN, "--picture", text(&png)]);
    assert!(fs::read(&png).expect("a picture").starts_with(b"\x89PNG"));
    printed(&["trace", CHURN, "--picture", text(&svg)]);
    let first = fs::read_to_string(&svg).expect("a picture");
    assert!(first.contains("Node 0, zone DMA32") && first.contains("pages moved"));
    printed(&["trace", CHURN, "--picture", text(&svg), "--force"]);
    assert_eq!(first, fs::read_to_string(&svg).expect("a picture"));
}

#[test]
fn fallbacks_are_drawn_over_time() {
    let folder = tempfile::tempdir().expect("a folder");
    for of in ["fallbacks", "fallbacks-over-time"] {
        let (png, svg) = (folder.path().join(format!("{of}.png")), folder.path().join("a.svg"));
        printed(&["trace", CHURN, "--of", of, "--picture", text(&png)]);
        assert!(fs::read(&png).expect("a picture").starts_with(b"\x89PNG"));
        printed(&["trace", CHURN, "--of", of, "--picture", text(&svg), "--force"]);
        let drawn = fs::read_to_string(&svg).expect("a picture");
        for words in ["seconds since the first fallback", "of them serious", "<polyline", of] {
            assert!(drawn.contains(words), "{words}: {drawn}");
        }
    }
}

#[test]
fn a_trace_without_what_is_looked_for_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace.txt");
    fs::write(&path, "# tracer: nop\n").expect("a file");
    let complaint = refused(&["trace", text(&path)]);
    assert!(
        complaint.contains("trace.txt: no event of compaction or reclaim, expected"),
        "{complaint}"
    );
    fs::write(&path, "x-1 [000] ..... 1.0: mm_compaction_begin: zone_start=?\n").expect("a file");
    let picture = folder.path().join("a.png");
    let complaint = refused(&["trace", text(&path), "--picture", text(&picture)]);
    assert!(complaint.contains("trace.txt:1: "), "{complaint}");
    assert_eq!(names(folder.path()), ["trace.txt"]);
}

/// Runs an experiment with `--trace` into this store; what becomes of it is `end`'s to look at. The names of the traces.
fn traced(
    folder: &Path,
    store: &str,
    more: &[&str],
    end: impl FnOnce(&[&str]) -> String,
) -> Vec<String> {
    let experiment = folder.join("compacting.toml");
    fs::write(&experiment, EXPERIMENT).expect("a file");
    let (store, traces) = (folder.join(store), folder.join("traces"));
    let (store, traces) = (text(&store), text(&traces));
    let run = ["run", text(&experiment), "--scale", "1/32", "--store", store, "--trace", traces];
    end(&[&run[..], more].concat());
    names(Path::new(traces))
}

#[test]
fn a_run_leaves_a_trace_that_reads_as_a_kernels_and_changes_nothing_in_the_record() {
    let folder = tempfile::tempdir().expect("a folder");
    let written = traced(folder.path(), "store", &[], printed);
    assert_eq!(written.len(), 2, "{written:?}");
    let traces = folder.path().join("traces");
    for name in &written {
        let rows = rows(&[text(&traces.join(name))]);
        let moved: i64 = rows.iter().filter_map(|row| row["moved"].as_i64()).sum();
        assert!(!rows.is_empty() && moved > 0, "{name}: {rows:?}");
    }
    // Traces are made again, from the same runs: the store would refuse other records.
    let path = traces.join(&written[0]);
    let first = fs::read(&path).expect("a trace");
    fs::remove_file(&path).expect("it was there");
    assert_eq!(traced(folder.path(), "store", &["--force"], printed), written);
    assert_eq!(first, fs::read(&path).expect("a trace"));
}

#[test]
fn a_file_in_the_place_of_a_trace_is_replaced_with_force_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let written = traced(folder.path(), "store", &[], printed);
    let path = folder.path().join("traces").join(&written[0]);
    let trace = fs::read(&path).expect("a trace");
    fs::write(&path, "precious").expect("a file");
    let refused = |arguments: &[&str]| {
        let told = refused(arguments);
        assert!(told.contains(".trace.txt: is there already; --force replaces it"), "{told}");
        told
    };
    assert_eq!(traced(folder.path(), "other", &[], refused), written);
    assert_eq!(fs::read(&path).expect("a file"), b"precious");
    assert!(!folder.path().join("other").exists(), "nothing has run");
    assert_eq!(traced(folder.path(), "other", &["--force"], printed), written);
    assert_eq!(fs::read(&path).expect("a trace"), trace);
}

#[test]
fn real_kernels_are_not_traced() {
    let folder = tempfile::tempdir().expect("a folder");
    let traces = folder.path().join("traces");
    let output = highorder(&["run", "usemem-small", "--on", "host", "--trace", text(&traces)])
        .assert()
        .code(2)
        .get_output()
        .stderr
        .clone();
    let complaint = String::from_utf8_lossy(&output).into_owned();
    assert!(complaint.contains("--trace with --on host, expected the model alone"), "{complaint}");
    assert!(!traces.exists());
}
