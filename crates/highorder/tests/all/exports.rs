//! `highorder export` and `highorder explain`.

use crate::common::{STATE, highorder, names, printed, recording_file, refused, text};
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
    let snapshot = crate::common::snapshot_file(folder.path());
    let cut = folder.path().join("cut.snap");
    fs::write(&cut, &fs::read(&snapshot).expect("a snapshot")[..5000]).expect("a file");
    let empty = folder.path().join("empty");
    fs::write(&empty, "").expect("a file");
    let out = folder.path().join("trace.txt");
    for form in ["ftrace", "perfetto"] {
        for source in [text(&snapshot), text(&cut)] {
            let told = refused(&["export", source, "--to", form, "-o", text(&out)]);
            let expected = "a snapshot, which has no events, expected a trace, or a recording's";
            assert!(told.contains(expected), "{told}");
            assert!(!out.exists(), "nothing is written of {source}");
        }
    }
    for source in ["Cargo.toml", text(&empty)] {
        let told = refused(&["export", source, "--to", "ftrace", "-o", text(&out)]);
        assert!(told.contains("no trace: ") || told.contains("no event in it"), "{told}");
        assert!(!out.exists(), "nothing is written of {source}");
    }
}

#[test]
fn a_source_of_another_kind_is_told_with_what_was_expected() {
    let folder = tempfile::tempdir().expect("a folder");
    let snapshot = crate::common::snapshot_file(folder.path());
    for source in [text(&snapshot), "live"] {
        let told = refused(&["export", source, "--to", "csv"]);
        assert!(told.contains(", expected runs: "), "{told}");
    }
}

/// What a Python program prints of a file, where its libraries are there.
fn read_by(program: &str, file: &Path) -> Option<String> {
    let python = match crate::common::python() {
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

/// What is said of a log.
fn explained(log: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("kern.log");
    fs::write(&file, log).expect("a log");
    printed(&["explain", text(&file)])
}

/// A task that waited, with its stack below the scheduler's functions, innermost first.
fn hung(task: &str, release: &str, stack: &[&str]) -> String {
    let stack: String = stack.iter().map(|function| format!(" {function}+0x46/0x70\n")).collect();
    format!(
        "INFO: task {task}:345 blocked for more than 120 seconds.\n      Not tainted {release} #1\nCall Trace:\n \
         __schedule+0x3fb/0xb40\n{stack}"
    )
}

#[test]
fn a_task_that_hangs_in_direct_compaction_is_not_told_to_do_without_proactive_compaction() {
    let direct = ["compact_zone", "__alloc_pages_direct_compact", "__alloc_pages_slowpath"];
    let told = explained(&hung("jbd2/sda1-8", "6.12.0", &direct));
    assert!(told.contains("compacts for a request of its own (compact_zone)"), "{told}");
    assert!(told.contains("a higher vm.compaction_proactiveness"), "{told}");
    assert!(told.contains("transparent_hugepage/defrag defer or madvise"), "{told}");
    assert!(!told.contains("proactiveness 0"), "{told}");
    // 4.19 has no proactive compaction.
    let told = explained(&hung("redis-server", "4.19.0-6-amd64", &direct));
    assert!(
        told.contains("fewer requests of high orders") && !told.contains("proactive"),
        "{told}"
    );
    let khugepaged = [&direct[..], &["khugepaged"]].concat();
    let told = explained(&hung("khugepaged", "6.12.0", &khugepaged));
    assert!(told.contains("transparent_hugepage/khugepaged/defrag 0"), "{told}");
}

#[test]
fn kcompactd_that_hangs_is_told_what_keeps_it_from_compacting() {
    let told = explained(&hung("kcompactd0", "6.12.0", &["compact_zone", "kcompactd", "kthread"]));
    assert!(told.contains("vm.compaction_proactiveness 0"), "{told}");
    let woken = ["compact_zone", "kcompactd_do_work", "kcompactd", "kthread"];
    let told = explained(&hung("kcompactd0", "6.12.0", &woken));
    assert!(told.contains("requests of high orders woke it"), "{told}");
    assert!(!told.contains("proactiveness"), "{told}");
    let told = explained(&hung("sh", "6.12.0", &["compact_zone", "compact_node"]));
    assert!(told.contains("does not say for whom") && !told.contains("proactiveness"), "{told}");
}

#[test]
fn a_cgroups_limit_is_told_as_what_refused_and_no_zone_is_missed() {
    const LOG: &str = "\
stress-ng invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
memory: usage 102400kB, limit 102400kB, failcnt 3311
swap: usage 0kB, limit 0kB, failcnt 0
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/a,task_memcg=/a/b,task=stress-ng,pid=12345,uid=0
Memory cgroup out of memory: Killed process 12345 (stress-ng) total-vm:132576kB, anon-rss:131200kB
";
    let told = explained(LOG);
    for sentence in [
        "cgroup /a reached its limit: memory 102400 of 102400 KiB (100.0 of 100.0 MiB)",
        "of the same cgroup: swap 0 of 0 KiB",
        "own memory was not short: a higher memory.max of this cgroup",
        "stress-ng (process 12345) was killed, of cgroup /a/b",
    ] {
        assert!(told.contains(sentence), "{sentence}: {told}");
    }
    assert!(!told.contains("zone"), "{told}");
}
