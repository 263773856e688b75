//! Results of mmtests as records; the folders are made by hand in the form that mmtests leaves.

use flate2::Compression;
use flate2::write::GzEncoder;
use highorder_record::{Source, read_mmtests};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

fn capture(name: &str) -> String {
    let case = "../../tests/data/cases/612-thpscale-madvise-lru0";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(case).join(name);
    fs::read_to_string(path).unwrap()
}

/// What mmtests writes of one benchmark: `/proc/schedstat` stands for what a record does not keep.
fn sysstate(benchmark: &str, exit_code: &str) -> String {
    let mut text = format!("test begin :: {benchmark} 1700000000\n");
    for (when, folder) in [("start", "before"), ("end", "after")] {
        if when == "end" {
            text += &format!("time :: {benchmark} 12.50 user 45.25 system 60.00 elapsed\n");
        }
        for file in ["vmstat", "zoneinfo", "meminfo"] {
            let copy = capture(&format!("{folder}/{file}"));
            text += &format!("file {when} :: /proc/{file}\n{copy}");
        }
        text += &format!("file {when} :: /proc/schedstat\nversion 15\n");
    }
    text + &format!("test end :: {benchmark} 1700000060 {exit_code}\n")
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn write_gz(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut gz = GzEncoder::new(fs::File::create(path).unwrap(), Compression::fast());
    gz.write_all(text.as_bytes()).unwrap();
    gz.finish().unwrap();
}

/// Two repetitions of usemem and thpscale.
fn results(folder: &Path) -> PathBuf {
    let run = folder.join("vanilla-6.12");
    for (number, system) in [("iter-0", "5.95"), ("iter-1", "6.05")] {
        let iteration = run.join(number);
        let text = "start :: 1700000000\nversion :: v0.30\n".to_owned()
            + &sysstate("usemem", "0")
            + &sysstate("thpscale", "1");
        write(&iteration.join("tests-sysstate"), &text);
        write(&iteration.join("tests-timestamp"), "test begin :: usemem 1700000000\n");
        let time = |minutes: &str| {
            format!(
                "0.43user {system}system {minutes}elapsed 93%CPU (0avgtext+0avgdata)\n0inputs\n"
            )
        };
        let logs = iteration.join("usemem/logs");
        write(&logs.join("time-4-1"), &time("0:06.79"));
        write(&logs.join("time-4-2"), &time("1:00.00"));
        write(&logs.join("time-12-1"), &time("1:01:01"));
        write(&logs.join("mmtests.log"), "Starting usemem\n");
        let faults = "Running with 1 thread \nanoninit 0 120\nfault 0 huge          900 0.1 0\n\
                      fault 0 base           10 0.2 0\nfault 0 huge         1100 0.3 0\n";
        write_gz(&iteration.join("thpscale/logs/threads-1.log.gz"), faults);
        write(&iteration.join("thpscale/logs/threads-1.time"), &time("0:01.00"));
    }
    run
}

#[test]
fn each_benchmark_of_each_repetition_becomes_a_record() {
    let folder = tempfile::tempdir().unwrap();
    let run = results(folder.path());
    let records = read_mmtests(&run).unwrap();
    let names: Vec<String> = records.iter().map(|r| r.inputs.readable_name()).collect();
    assert_eq!(
        names,
        [
            "mmtests-usemem.vanilla-6.12.seed-0",
            "mmtests-thpscale.vanilla-6.12.seed-0",
            "mmtests-usemem.vanilla-6.12.seed-0.iteration-1",
            "mmtests-thpscale.vanilla-6.12.seed-0.iteration-1",
        ]
    );
    let usemem = &records[0];
    assert_eq!(usemem.problems(), Vec::<String>::new());
    assert_eq!(usemem.inputs.source, Source::Foreign);
    assert_eq!(usemem.delta("thp_fault_alloc"), Some(180));
    assert!(usemem.before.zone(0, "DMA32").unwrap().pages["min"] > 0);
    assert!(usemem.after.meminfo["MemTotal"] > 0);
    let times = usemem.durations;
    let seconds = [times.user_ns, times.system_ns, times.elapsed_ns];
    assert_eq!(seconds, [Some(12_500_000_000), Some(45_250_000_000), Some(60_000_000_000)]);
    assert_eq!(usemem.metric("System-4").unwrap().samples, [5.95, 5.95]);
    assert_eq!(usemem.metric("Elapsd-4").unwrap().samples, [6.79, 60.0]);
    assert_eq!(usemem.metric("Elapsd-12").unwrap().samples, [3661.0]);
    assert_eq!(usemem.notes, Vec::<String>::new());

    let thpscale = &records[1];
    assert_eq!(thpscale.metric("fault-huge-1").unwrap().samples, [900.0, 1100.0]);
    assert_eq!(thpscale.metric("fault-base-1").unwrap().samples, [10.0]);
    let share = thpscale.metric("Percentage huge-1").unwrap().samples[0];
    assert!((share - 200.0 / 3.0).abs() < 1e-9, "{share}");
    assert_eq!(thpscale.notes, ["The benchmark ended with exit code 1."]);

    // One repetition alone is the same record.
    assert_eq!(read_mmtests(&run.join("iter-1")).unwrap(), records[2..]);
    // Another result is another record.
    write(&run.join("iter-0/usemem/logs/time-4-3"), "0.1user 0.2system 0:00.3elapsed\n");
    assert_ne!(read_mmtests(&run).unwrap()[0].identity(), usemem.identity());
}

#[test]
fn results_in_the_form_before_2019_are_read_as_well() {
    let folder = tempfile::tempdir().unwrap();
    for run in ["vanilla", "patched"] {
        let log = folder.path().join(format!("tests-timestamp-{run}.gz"));
        write_gz(&log, &(sysstate("stutter", "0") + &sysstate("dbench4", "0")));
        let logs = folder.path().join(format!("stutter-{run}/noprofile"));
        write(&logs.join("mmap-latency.log"), "3 1000000\n1 5000000\n");
    }
    let records = read_mmtests(folder.path()).unwrap();
    let kernels: Vec<&str> = records.iter().map(|r| r.inputs.kernel.name.as_str()).collect();
    assert_eq!(kernels, ["patched", "patched", "vanilla", "vanilla"]);
    let mmap = &records[2].latencies["mmap"];
    assert_eq!((mmap.count(), mmap.sum_ns()), (4, 8_000_000));
    assert!(records[3].notes[0].starts_with("The logs of dbench4 were not read"));
}

#[test]
fn what_is_no_result_or_a_damaged_one_is_told_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let told = |path: &Path| read_mmtests(path).unwrap_err().to_string();
    assert!(told(folder.path()).contains("no results, expected iter-0/tests-sysstate"));
    let run = results(folder.path());
    let log = run.join("iter-0/thpscale/logs/threads-2.log");
    write(&log, "fault 0 huge 900\nfault 0 big 3\n");
    let expected = format!(
        "{}:2: `fault 0 big 3`, expected `fault THREAD base|huge MICROSECONDS`",
        log.display()
    );
    assert_eq!(told(&run), expected);
    fs::remove_file(&log).unwrap();
    let time = run.join("iter-0/usemem/logs/time-4-1");
    write(&time, "Command exited\n0.1user 0.2system 0:xelapsed\n");
    assert!(told(&run).starts_with(&format!("{}:2: `0.1user", time.display())), "{}", told(&run));
    let state = run.join("iter-0/tests-sysstate");
    write(&state, "test begin :: usemem 1\nfile start :: /proc/vmstat\nnr_free_pages x\n");
    let damaged = told(&run);
    assert!(damaged.starts_with(&format!("{}:2: /proc/vmstat:1", state.display())), "{damaged}");
    write(&state, "test begin :: usemem 1\n");
    assert!(told(&run).contains("test usemem has no `file start :: /proc/vmstat`"));
}
