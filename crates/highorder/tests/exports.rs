//! `highorder export` and `highorder explain`.

mod common;

use common::{STATE, highorder, names, printed, recording_file, refused, text};
use highorder_record::{Better, Inputs, Metric, Named, Record, Store};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

const LOG: &str = "crates/explain/tests/data/oom-6.12.txt";

#[test]
fn a_state_as_metrics_and_as_files_of_proc() {
    let metrics = printed(&["export", STATE, "--to", "openmetrics"]);
    assert!(metrics.contains("\nnode_vmstat_compact_stall ") && metrics.ends_with("# EOF\n"));
    assert!(metrics.contains("node_buddyinfo_blocks{node=\"0\",size=\"9\",zone=\"DMA32\"} "));
    let folder = tempfile::tempdir().expect("a folder");
    highorder(&["export", STATE, "--to", "proc-dir", "--output", text(folder.path())])
        .assert()
        .success();
    let files = names(&folder.path().join("proc"));
    assert!(["buddyinfo", "vmstat", "zoneinfo"].iter().all(|name| files.contains(&(*name).into())));
    assert!(refused(&["export", STATE, "--to", "proc-dir"]).contains("expected --output DIR"));
}

#[test]
fn a_folder_is_written_as_a_whole_and_a_file_that_is_there_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let proc = out.join("proc");
    fs::create_dir_all(&proc).expect("a folder");
    fs::write(proc.join("zoneinfo"), "precious").expect("a file");
    let export = ["export", STATE, "--to", "proc-dir", "--output", text(&out)];
    assert!(refused(&export).contains("zoneinfo: is there already; --force replaces it"));
    assert_eq!(names(&proc), ["zoneinfo"]);
    assert_eq!(fs::read(proc.join("zoneinfo")).expect("the file"), b"precious");
    highorder(&[&export[..], &["--force"]].concat()).assert().success();
    assert!(names(&proc).len() > 1);
    assert_ne!(fs::read(proc.join("zoneinfo")).expect("the file"), b"precious");

    let named = |name: &str| Named { name: name.to_owned(), values: BTreeMap::new() };
    let mut run = Record::new(Inputs {
        kernel: named("linux-4.4"),
        workload: named("usemem"),
        ..Inputs::default()
    });
    run.metrics = ["System-1", "Elapsd-1"]
        .map(|name| Metric::new(name, "s", Better::Lower).with_samples([1.0]))
        .into();
    let store = folder.path().join("store");
    Store::open(&store).expect("a store").put(&run).expect("a record");
    let out = folder.path().join("results");
    let iteration = out.join("linux-4.4/iter-0");
    fs::create_dir_all(&iteration).expect("a folder");
    fs::write(iteration.join("tests-sysstate"), "precious").expect("a file");
    let export = ["export", text(&store), "--to", "mmtests", "--output", text(&out)];
    assert!(refused(&export).contains("tests-sysstate: is there already; --force replaces it"));
    assert_eq!(names(&iteration), ["tests-sysstate"]);
    highorder(&[&export[..], &["--force"]].concat()).assert().success();
    assert_eq!(names(&iteration.join("usemem/logs")), ["time-1-1"]);
}

#[test]
fn a_folder_is_looked_at_before_what_goes_into_it_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("a file");
    for form in ["proc-dir", "mmtests"] {
        let export = ["export", "no-such-source", "--to", form];
        assert!(refused(&export).contains("makes a folder, expected --output DIR"));
        let told = refused(&[&export[..], &["--output", text(&file)]].concat());
        assert!(told.contains("file is no folder, expected a folder"), "{told}");
    }
}

#[test]
fn a_recordings_trace_as_text_and_for_perfetto() {
    let recording = "tests/data/recordings/612-rec-compact";
    let trace = printed(&["export", recording, "--to", "ftrace"]);
    assert!(trace.contains("mm_compaction_begin"));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("trace.pftrace");
    highorder(&["export", recording, "--to", "perfetto", "--output", text(&file)])
        .assert()
        .success();
    let bytes = fs::read(&file).expect("the trace");
    let begins = bytes.windows(10).filter(|window| window == b"compaction").count();
    assert_eq!(begins, trace.matches("mm_compaction_begin").count());
}

#[test]
fn a_recordings_file_is_exported_as_its_folder_is() {
    let recording = "tests/data/recordings/612-rec-compact";
    let folder = tempfile::tempdir().expect("a folder");
    let path = recording_file(folder.path(), recording);
    let in_file = |form: &str| highorder(&["export", text(&path), "--to", form]).output().unwrap();
    let in_folder = |form: &str| highorder(&["export", recording, "--to", form]).output().unwrap();
    for form in ["ftrace", "perfetto"] {
        assert!(in_file(form).status.success(), "{:?}", in_file(form));
        assert_eq!(in_file(form).stdout, in_folder(form).stdout, "{form}");
    }
    let state = format!("{}/state0", text(&path));
    let metrics = printed(&["export", &state, "--to", "openmetrics"]);
    let of_folder = printed(&["export", &format!("{recording}/state0"), "--to", "openmetrics"]);
    assert_eq!(metrics, of_folder);
}

#[test]
fn what_has_no_events_is_not_handed_on_as_a_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    let snapshot = common::snapshot_file(folder.path());
    let cut = folder.path().join("cut.snap");
    fs::write(&cut, &fs::read(&snapshot).expect("a snapshot")[..5000]).expect("a file");
    let empty = folder.path().join("empty");
    fs::write(&empty, "").expect("a file");
    let out = folder.path().join("trace.txt");
    for source in [text(&snapshot), text(&cut), "Cargo.toml", text(&empty)] {
        let told = refused(&["export", source, "--to", "ftrace", "-o", text(&out)]);
        assert!(told.contains("no trace: ") || told.contains("no event in it"), "{told}");
        assert!(!out.exists(), "nothing is written of {source}");
    }
}

#[test]
fn a_source_of_another_kind_is_told_with_what_was_expected() {
    let folder = tempfile::tempdir().expect("a folder");
    let snapshot = common::snapshot_file(folder.path());
    for source in [text(&snapshot), "live"] {
        let told = refused(&["export", source, "--to", "csv"]);
        assert!(told.contains(", expected runs: "), "{told}");
    }
}

/// What a Python program prints of a file, where its libraries are there.
fn read_by(program: &str, file: &Path) -> Option<String> {
    let python = match common::python() {
        Ok(python) => python,
        Err(why) => {
            eprintln!("SKIPPED: {why}");
            return None;
        }
    };
    let output = Command::new(python).args(["-c", program, text(file)]).output().expect("python");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).expect("text"))
}

#[test]
fn prometheus_own_library_reads_the_metrics() {
    const PROGRAM: &str = "\
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
for family in parse(open(sys.argv[1]).read()):
    for sample in family.samples:
        print(sample.name, family.type, int(sample.value))
";
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("metrics");
    let arguments = ["export", STATE, "--to", "openmetrics", "--output", text(&file)];
    highorder(&arguments).assert().success();
    let Some(read) = read_by(PROGRAM, &file) else { return };
    let metrics = fs::read_to_string(&file).expect("the metrics");
    let samples = metrics.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(read.lines().count(), samples);
    assert!(read.contains("node_vmstat_nr_free_pages unknown "), "{read}");
    assert!(read.contains("node_memory_MemFree_bytes gauge "));
}

#[test]
fn perfettos_own_messages_decode_the_trace() {
    const PROGRAM: &str = "\
import sys
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
trace = Trace()
trace.ParseFromString(open(sys.argv[1], 'rb').read())
threads = {p.track_descriptor.uuid: p.track_descriptor.thread.thread_name for p in trace.packet
           if p.HasField('track_descriptor')}
depth = 0
for packet in trace.packet:
    event = packet.track_event
    if packet.HasField('track_event') and event.type != TrackEvent.TYPE_INSTANT:
        begins = event.type == TrackEvent.TYPE_SLICE_BEGIN
        depth += 1 if begins else -1
        assert depth >= 0
        if begins:
            print(threads[event.track_uuid], event.name)
assert depth == 0
";
    let recording = "tests/data/recordings/612-rec-compact";
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("trace.pftrace");
    highorder(&["export", recording, "--to", "perfetto", "--output", text(&file)])
        .assert()
        .success();
    let Some(read) = read_by(PROGRAM, &file) else { return };
    let trace = printed(&["export", recording, "--to", "ftrace"]);
    let runs = read.lines().filter(|line| line.ends_with(" compaction")).count();
    assert_eq!(runs, trace.matches("mm_compaction_begin").count());
}

#[test]
fn a_guests_oom_report_is_explained() {
    let told = printed(&["explain", LOG]);
    assert!(told.contains("the OOM killer was called (init): order 0"), "{told}");
    assert!(told.contains("every zone that it may use was at its mark"), "{told}");
    let json = printed(&["explain", LOG, "--format", "json"]);
    assert!(json.contains("\"kind\": \"oom\""));
    assert!(refused(&["explain", "README.md"]).contains("found no report"));
}
