//! Runs as a result folder of mmtests, for its compare script; `highorder import` reads it back.
//!
//! A folder for each kernel, in it one for each seed, `iter-0` and so on, with the counters before and after in
//! `tests-sysstate` and what the benchmark measured in `BENCHMARK/logs`. Runs of one seed with different numbers of threads
//! are one repetition, as in mmtests: its counters are those before the first run and what all of them added.
//!
//! Departs: a percentile is all that is kept of a latency. Visible as: latencies are those in the middle of their bucket, three
//! digits of them.

use crate::texts;
use highorder_record::{Latencies, Record, State};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

/// A file of the folder, and what is in it.
type File = (PathBuf, Vec<u8>);

/// Two runs that would be one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Twice(pub String);

/// The files of all these runs.
///
/// # Errors
/// Two runs of one benchmark, kernel, seed and number of threads: variants that differ in settings alone, which have no
/// place in such a folder. They are to be exported one by one.
pub fn folder(records: &[Record]) -> Result<Vec<File>, Twice> {
    let mut kernels: BTreeMap<String, BTreeMap<(u64, u32), Vec<&Record>>> = BTreeMap::new();
    for record in records {
        let seed = (record.inputs.seed, record.inputs.iteration);
        let seeds = kernels.entry(folder_name(&record.inputs.kernel.name)).or_default();
        seeds.entry(seed).or_default().push(record);
    }
    let mut files = Vec::new();
    for (kernel, seeds) in &kernels {
        for (iteration, runs) in seeds.values().enumerate() {
            let folder = PathBuf::from(kernel).join(format!("iter-{iteration}"));
            let mut sysstate = String::new();
            let mut benchmarks: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
            for run in runs {
                benchmarks.entry(&run.inputs.workload.name).or_default().push(run);
            }
            for (benchmark, runs) in benchmarks {
                write_test(&mut sysstate, benchmark, &runs);
                let logs = folder.join(benchmark).join("logs");
                for (name, text) in logs_of(benchmark, &runs) {
                    let path = logs.join(name);
                    if files.iter().any(|(there, _): &File| *there == path) {
                        return Err(Twice(path.display().to_string()));
                    }
                    files.push((path, text.into_bytes()));
                }
            }
            files.push((folder.join("tests-sysstate"), sysstate.into_bytes()));
        }
    }
    Ok(files)
}

fn folder_name(kernel: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    kernel.chars().map(keep).collect()
}

/// What `tests-sysstate` says of a benchmark.
fn write_test(out: &mut String, benchmark: &str, runs: &[&Record]) {
    let before = &runs[0].before;
    let mut after = runs[0].after.clone();
    for run in &runs[1..] {
        add_growth(&mut after, &run.before, &run.after);
    }
    let sum = |part: fn(&Record) -> Option<u64>| {
        runs.iter().filter_map(|run| part(run)).sum::<u64>() as f64 / 1e9
    };
    let user = sum(|run| run.durations.user_ns);
    let system = sum(|run| run.durations.system_ns);
    let elapsed = sum(|run| run.durations.elapsed_ns);
    let _ = writeln!(out, "test begin :: {benchmark} 0");
    write_copies(out, "start", before);
    let _ = writeln!(out, "time :: {benchmark} {user} user {system} system {elapsed} elapsed");
    write_copies(out, "end", &after);
    let _ = writeln!(out, "test end :: {benchmark} {elapsed:.0} 0");
}

/// Adds what a run added to the counters.
fn add_growth(state: &mut State, before: &State, after: &State) {
    for (name, value) in &after.counters {
        let growth = value.saturating_sub(before.counters.get(name).copied().unwrap_or(0));
        *state.counters.entry(name.clone()).or_default() += growth;
    }
}

fn write_copies(out: &mut String, when: &str, state: &State) {
    let texts = texts::of_state(state);
    for name in ["vmstat", "meminfo", "zoneinfo"] {
        if let Some(text) = texts.get(name) {
            let _ = writeln!(out, "file {when} :: /proc/{name}");
            out.push_str(&String::from_utf8_lossy(text));
        }
    }
}

/// The logs of a benchmark, in the forms that mmtests' extraction scripts read.
fn logs_of(benchmark: &str, runs: &[&Record]) -> Vec<(String, String)> {
    let mut logs = Vec::new();
    for run in runs {
        match benchmark {
            _ if benchmark.starts_with("usemem") => logs.extend(times(run)),
            _ if benchmark.starts_with("thp") => logs.extend(faults(run)),
            _ if benchmark.starts_with("stutter") => logs.extend(latencies(run)),
            _ => {}
        }
    }
    logs
}

/// `time-THREADS-REPETITION`: what time(1) says of each.
fn times(run: &Record) -> Vec<(String, String)> {
    let samples = |name: &str| {
        let metric = run.metrics.iter().find(|metric| metric.name == name);
        metric.map(|metric| metric.samples.as_slice()).unwrap_or_default()
    };
    let mut logs = Vec::new();
    for threads in threads_of(run, "Elapsd-") {
        let systems = samples(&format!("System-{threads}"));
        let elapsed = samples(&format!("Elapsd-{threads}"));
        for (at, (system, elapsed)) in systems.iter().zip(elapsed).enumerate() {
            let line = format!("0.00user {system}system {elapsed}elapsed 0%CPU\n");
            logs.push((format!("time-{threads}-{}", at + 1), line));
        }
    }
    logs
}

/// The numbers behind the names of metrics that begin so.
fn threads_of<'a>(run: &'a Record, prefix: &str) -> Vec<&'a str> {
    let names = run.metrics.iter().filter_map(|metric| metric.name.strip_prefix(prefix));
    names.filter(|rest| rest.bytes().all(|b| b.is_ascii_digit())).collect()
}

/// `threads-THREADS.log`: a line for each fault.
fn faults(run: &Record) -> Vec<(String, String)> {
    let mut logs: BTreeMap<&str, String> = BTreeMap::new();
    for kind in ["base", "huge"] {
        for metric in &run.metrics {
            let Some(threads) = metric.name.strip_prefix(&format!("fault-{kind}-")) else {
                continue;
            };
            let log = logs.entry(threads).or_default();
            for us in &metric.samples {
                let _ = writeln!(log, "fault 0 {kind} {us:.0}");
            }
        }
    }
    logs.into_iter().map(|(threads, log)| (format!("threads-{threads}.log"), log)).collect()
}

/// `mmap-latency-WORKERS.log` or `mmap-latency.log`: how many latencies there were of so many nanoseconds.
fn latencies(run: &Record) -> Vec<(String, String)> {
    let line = |latencies: &Latencies| -> String {
        let middle = |low: u64, high: u64| low + (high - low) / 2;
        let buckets = latencies.buckets();
        buckets.map(|b| format!("{} {}\n", b.count, middle(b.low_ns, b.high_ns))).collect()
    };
    let classes = run.latencies.iter().filter_map(|(class, latencies)| {
        let workers = class.strip_prefix("mmap")?;
        Some((format!("mmap-latency{workers}.log"), line(latencies)))
    });
    classes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::texts::tests::state;
    use highorder_record::{Better, Inputs, Metric, Named, read_mmtests};
    use std::fs;

    fn run(benchmark: &str, threads: u32, metrics: Vec<Metric>) -> Record {
        let named = |name: &str| Named { name: name.to_owned(), values: BTreeMap::new() };
        let inputs = Inputs {
            kernel: named("linux-6.12"),
            workload: named(benchmark),
            seed: u64::from(threads / 100),
            ..Inputs::default()
        };
        let mut record = Record::new(inputs);
        record.before = state();
        record.after = state();
        record.after.counters.insert("compact_stall".into(), 9);
        record.durations.elapsed_ns = Some(2_500_000_000);
        record.durations.user_ns = Some(1);
        record.durations.system_ns = Some(500_000_000);
        record.metrics = metrics;
        record
    }

    /// Writes the folder, and reads it as results of mmtests.
    fn read_back(records: &[Record]) -> Vec<Record> {
        let folder = tempfile::tempdir().expect("a folder");
        for (path, bytes) in super::folder(records).expect("no run twice") {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("a folder");
            fs::write(path, bytes).expect("a file");
        }
        read_mmtests(&folder.path().join("linux-6.12")).expect("results of mmtests")
    }

    fn seconds(name: &str, samples: &[f64]) -> Metric {
        Metric::new(name, "s", Better::Lower).with_samples(samples.iter().copied())
    }

    #[test]
    fn usemem_round_trips_with_counters_and_times() {
        let metrics = vec![seconds("System-2", &[1.25, 0.1]), seconds("Elapsd-2", &[3.5, 0.7])];
        let written = run("usemem", 2, metrics);
        let read = &read_back(std::slice::from_ref(&written))[0];
        assert_eq!(read.metrics, written.metrics);
        assert_eq!(read.durations, written.durations);
        assert_eq!(
            (&read.before.counters, &read.after.counters),
            (&written.before.counters, &written.after.counters)
        );
        assert_eq!(read.after.meminfo, written.after.meminfo);
        assert_eq!(read.inputs.kernel.name, "linux-6.12");
    }

    #[test]
    fn runs_with_other_threads_are_one_repetition() {
        let of = |n: u32| {
            let names = [format!("System-{n}"), format!("Elapsd-{n}")];
            run("usemem", n, names.map(|name| seconds(&name, &[1.0])).into())
        };
        let read = read_back(&[of(2), of(4)]);
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].metrics.len(), 4);
        assert_eq!(read[0].after.counters["compact_stall"], 11, "two runs added two each");
        assert!(folder(&[of(2), of(2)]).is_err());
    }

    #[test]
    fn faults_and_latencies_round_trip() {
        let us = |name: &str, samples: &[f64]| {
            Metric::new(name, "us", Better::Lower).with_samples(samples.iter().copied())
        };
        let faults = vec![us("fault-base-3", &[4.0, 6.0]), us("fault-huge-3", &[90.0, 100.0])];
        let read = &read_back(&[run("thpscale", 3, faults.clone())])[0];
        assert_eq!(read.metrics[..2], faults);
        let mut stutter = run("stutter", 1, Vec::new());
        let mut latencies = Latencies::new();
        latencies.record_many(1000, 3);
        stutter.latencies.insert("mmap".into(), latencies.clone());
        assert_eq!(read_back(&[stutter])[0].latencies["mmap"], latencies);
    }
}
