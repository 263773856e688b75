//! Results of mmtests as records.
//!
//! A result folder is what `run-mmtests.sh NAME` leaves below its log folder, in either form:
//!
//! ```text
//! NAME/iter-0/ ...          one folder for each repetition (since 2019)
//!   tests-sysstate          "test begin :: BENCHMARK SECONDS", copies of /proc files between lines
//!                           "file start :: /proc/vmstat" and the like, "time :: BENCHMARK U user S system E elapsed"
//!   tests-timestamp         the lines without the copies
//!   BENCHMARK/logs/         the benchmark's own logs
//! tests-timestamp-NAME      the same lines with the copies (before)
//! BENCHMARK-NAME/           with the logs, or with a folder noprofile that has them
//! ```
//!
//! Any file may be compressed with gzip. Each benchmark of each repetition is a record: counters before and
//! after, times, and of these benchmarks results under the names that mmtests' tables have:
//!
//! - usemem: `System-T` and `Elapsd-T` in seconds, a sample for each run with T threads;
//! - thpscale, thpfioscale, thpcompact: `fault-base-T` and `fault-huge-T` in microseconds, a sample for each
//!   fault, and `Percentage huge-T`;
//! - stutter, stutterp: latencies of the class `mmap`, or `mmap-W` for each number of workers. The log has
//!   them as means of so many at once, and so they count.

use crate::foreign::{add_meminfo, add_zoneinfo, bad, map};
use crate::latencies::Latencies;
use crate::record::{Inputs, Metric, Named, Record, Source, State};
use crate::stats::{Better, Statistic};
use highorder_input::InputError;
use highorder_kernelfs::{Meminfo, TextFile, Vmstat, Zoneinfo, read_bytes};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

type Result<T> = std::result::Result<T, InputError>;

/// The longest time that is taken for one, in seconds: some 30 years.
const SECONDS_MAX: f64 = 1e9;

/// Reads a result folder: a record for each benchmark of each repetition.
///
/// # Errors
/// [`InputError`] names the file, and the line where there is one.
pub fn read_mmtests(folder: &Path) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for run in runs(folder)? {
        let text = read_bytes(&run.log)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let tests = tests(&run.log, &text)?;
        if tests.is_empty() {
            let expected = "a line `test begin :: BENCHMARK SECONDS`";
            return Err(bad(&run.log, 0, "no test", expected));
        }
        for test in &tests {
            records.push(record(&run, test)?);
        }
    }
    Ok(records)
}

/// A repetition of a run.
struct Run {
    name: String,
    iteration: u32,
    folder: PathBuf,
    /// The file with copies of /proc files.
    log: PathBuf,
    /// What follows the names of benchmarks' folders.
    suffix: String,
}

/// The repetitions in a folder: its own, those of its folders `iter-N`, or those of older files.
fn runs(folder: &Path) -> Result<Vec<Run>> {
    let name = |path: &Path| {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    };
    let log_of = |folder: &Path| {
        there(folder, "tests-sysstate").or_else(|| there(folder, "tests-timestamp"))
    };
    let iteration = |name: &str| name.strip_prefix("iter-")?.parse::<u32>().ok();
    let plain = |name: String, iteration: u32, folder: &Path, log: PathBuf| Run {
        name,
        iteration,
        folder: folder.to_owned(),
        log,
        suffix: String::new(),
    };
    if let Some(log) = log_of(folder) {
        let own = name(folder);
        return Ok(vec![match iteration(&own) {
            Some(number) => plain(name(&folder.join("..")), number, folder, log),
            None => plain(own, 0, folder, log),
        }]);
    }
    let mut found = Vec::new();
    for entry in names(folder)? {
        let inner = folder.join(&entry);
        if let (Some(number), Some(log)) = (iteration(&entry), log_of(&inner)) {
            found.push(plain(name(folder), number, &inner, log));
        }
        if let Some(run) = entry.strip_prefix("tests-timestamp-") {
            let run = run.strip_suffix(".gz").unwrap_or(run).to_owned();
            let suffix = format!("-{run}");
            found.push(Run {
                name: run,
                iteration: 0,
                folder: folder.to_owned(),
                log: inner,
                suffix,
            });
        }
    }
    found.sort_by(|a, b| (&a.name, a.iteration).cmp(&(&b.name, b.iteration)));
    match found.is_empty() {
        true => {
            let expected =
                "iter-0/tests-sysstate, tests-timestamp-NAME or the like, as mmtests has them";
            Err(bad(folder, 0, "no results", expected))
        }
        false => Ok(found),
    }
}

/// A file, or the same with `.gz`.
fn there(folder: &Path, name: &str) -> Option<PathBuf> {
    let paths = [folder.join(name), folder.join(format!("{name}.gz"))];
    paths.into_iter().find(|path| path.is_file())
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let io = |source| InputError::io(folder, "list", &source);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        names.push(entry.map_err(io)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// What a log says of one benchmark.
struct Test<'a> {
    name: &'a str,
    before: State,
    after: State,
    /// User, system and elapsed seconds.
    seconds: Option<[f64; 3]>,
    exit_code: Option<&'a str>,
    captured: Xxh3,
}

/// The benchmarks in a log, in order.
fn tests<'a>(path: &Path, text: &'a str) -> Result<Vec<Test<'a>>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut tests: Vec<Test<'a>> = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let (line, number) = (lines[at], at + 1);
        at += 1;
        let Some((what, rest)) = line.split_once(" :: ") else { continue };
        let mut words = rest.split_ascii_whitespace();
        if what == "test begin" {
            let (before, after) = (State::default(), State::default());
            let name = words.next().unwrap_or_default();
            let captured = Xxh3::new();
            let (seconds, exit_code) = (None, None);
            tests.push(Test { name, before, after, seconds, exit_code, captured });
            continue;
        }
        let Some(test) = tests.last_mut() else { continue };
        match what {
            "time" if words.next() == Some(test.name) => {
                let words: Vec<&str> = words.collect();
                let number = |i: usize| seconds(words.get(i * 2).copied()?);
                let [Some(user), Some(system), Some(elapsed)] = [0, 1, 2].map(number) else {
                    let expected = "`time :: BENCHMARK U user S system E elapsed`, in seconds";
                    return Err(bad(path, at, format!("`{line}`"), expected));
                };
                test.seconds = Some([user, system, elapsed]);
            }
            "test end" if words.next() == Some(test.name) => test.exit_code = words.nth(1),
            "file start" | "file end" => {
                let first = at;
                // Lines of /proc files have no ` :: `.
                while at < lines.len() && !lines[at].contains(" :: ") {
                    at += 1;
                }
                let block = lines[first..at].join("\n") + "\n";
                let state = if what == "file start" { &mut test.before } else { &mut test.after };
                if add(state, path, number, rest, &block)? {
                    test.captured.update(block.as_bytes());
                }
            }
            _ => {}
        }
    }
    for test in &tests {
        for (state, when) in [(&test.before, "start"), (&test.after, "end")] {
            if state.counters.is_empty() {
                let found = format!("test {} has no `file {when} :: /proc/vmstat`", test.name);
                let expected = "the counters at its start and end";
                return Err(bad(path, 0, found, expected));
            }
        }
    }
    Ok(tests)
}

/// Adds the copy of a /proc file to a state, and says whether it is one that a record keeps.
fn add(state: &mut State, path: &Path, line: usize, file: &str, block: &str) -> Result<bool> {
    let name = format!("{}:{line}: {file}", path.display());
    match file.trim() {
        "/proc/vmstat" => {
            let vmstat = Vmstat::parse(&name, block.as_bytes())?;
            state.counters = map(&vmstat);
        }
        "/proc/meminfo" => add_meminfo(state, Meminfo::parse(&name, block.as_bytes())?),
        "/proc/zoneinfo" => add_zoneinfo(state, &Zoneinfo::parse(&name, block.as_bytes())?),
        _ => return Ok(false),
    }
    Ok(true)
}

fn seconds(text: &str) -> Option<f64> {
    text.parse().ok().filter(|seconds| (0.0..SECONDS_MAX).contains(seconds))
}

fn record(run: &Run, test: &Test<'_>) -> Result<Record> {
    let mut captured = test.captured.clone();
    let inputs = Inputs {
        source: Source::Foreign,
        experiment: format!("mmtests-{}", test.name),
        // Runs are mostly named for the kernel that is tried.
        kernel: Named { name: run.name.clone(), values: BTreeMap::new() },
        workload: Named { name: test.name.to_owned(), values: BTreeMap::new() },
        iteration: run.iteration,
        ..Inputs::default()
    };
    let mut record = Record::new(inputs);
    record.before = test.before.clone();
    record.after = test.after.clone();
    if let Some([user, system, elapsed]) = test.seconds {
        let ns = |seconds: f64| Some((seconds * 1e9).round() as u64);
        record.durations.user_ns = ns(user);
        record.durations.system_ns = ns(system);
        record.durations.elapsed_ns = ns(elapsed);
    }
    if let Some(code) = test.exit_code.filter(|code| *code != "0") {
        record.notes.push(format!("The benchmark ended with exit code {code}."));
    }
    let folder = run.folder.join(format!("{}{}", test.name, run.suffix));
    let inner = ["logs", "noprofile"].map(|name| folder.join(name));
    let logs = inner.into_iter().find(|folder| folder.is_dir()).unwrap_or(folder);
    let read: Option<Reader> =
        READERS.iter().find(|(prefix, _)| test.name.starts_with(prefix)).map(|(_, reader)| *reader);
    match read {
        Some(read) if logs.is_dir() => read(&logs, &mut record, &mut captured)?,
        Some(_) => record.notes.push(format!("There are no logs of {} itself.", test.name)),
        None => {
            let known: Vec<&str> = READERS.iter().map(|(name, _)| *name).collect();
            record.notes.push(format!(
                "The logs of {} were not read: counters and times only. Those of {} are.",
                test.name,
                known.join(", ")
            ));
        }
    }
    let captured = format!("{:032x}", captured.digest128());
    record.inputs.workload.values.insert("captured".to_owned(), captured);
    Ok(record)
}

/// Reads a benchmark's logs into a record.
type Reader = fn(&Path, &mut Record, &mut Xxh3) -> Result<()>;

/// By what benchmarks' names begin with.
const READERS: [(&str, Reader); 5] = [
    ("usemem", times),
    ("thpscale", faults),
    ("thpfioscale", faults),
    ("thpcompact", faults),
    ("stutter", latencies),
];

/// The logs whose names are `PREFIX-...`: the number that follows, the rest of the name without endings, and
/// the path; by that number.
fn logs(folder: &Path, prefix: &str) -> Result<Vec<(u64, String, PathBuf)>> {
    let mut found = Vec::new();
    for name in names(folder)? {
        let stem = name.strip_suffix(".gz").unwrap_or(&name);
        let stem = stem.strip_suffix(".log").unwrap_or(stem);
        let Some(rest) = stem.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-')) else {
            continue;
        };
        let (number, rest) = rest.split_once('-').unwrap_or((rest, ""));
        if let Ok(number) = number.parse() {
            found.push((number, rest.to_owned(), folder.join(&name)));
        }
    }
    found.sort_by_key(|(number, rest, _)| (*number, rest.parse::<u64>().ok(), rest.clone()));
    Ok(found)
}

fn lines(path: &Path, captured: &mut Xxh3) -> Result<Vec<String>> {
    let bytes = read_bytes(path)?;
    captured.update(&bytes);
    Ok(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect())
}

/// The metric of this name, of which there may be samples already.
fn metric<'a>(record: &'a mut Record, name: String, unit: &str) -> &'a mut Metric {
    let at = record.metrics.iter().position(|metric| metric.name == name);
    let at = at.unwrap_or_else(|| {
        record.metrics.push(Metric::new(name, unit, Better::Lower));
        record.metrics.len() - 1
    });
    &mut record.metrics[at]
}

/// `time-THREADS-ITERATION`, or `usemem-THREADS-ITERATION`: what time(1) prints, as in
/// `0.43user 5.95system 0:06.79elapsed 93%CPU`.
fn times(folder: &Path, record: &mut Record, captured: &mut Xxh3) -> Result<()> {
    let mut all = logs(folder, "time")?;
    if all.is_empty() {
        all = logs(folder, "usemem")?;
    }
    for (threads, _, path) in all {
        let lines = lines(&path, captured)?;
        let line = lines.iter().position(|line| line.contains("elapsed"));
        let of = |ending: &str| {
            let mut words = lines[line?].split_ascii_whitespace();
            clock(words.find_map(|word| word.strip_suffix(ending))?)
        };
        let (Some(system), Some(elapsed)) = (of("system"), of("elapsed")) else {
            let found = line.map_or("no times".to_owned(), |line| format!("`{}`", lines[line]));
            let expected = "what time(1) prints, as in 0.43user 5.95system 0:06.79elapsed";
            return Err(bad(&path, line.map_or(0, |line| line + 1), found, expected));
        };
        metric(record, format!("System-{threads}"), "s").samples.push(system);
        metric(record, format!("Elapsd-{threads}"), "s").samples.push(elapsed);
    }
    Ok(())
}

/// Seconds of `S`, `M:S` or `H:M:S`.
fn clock(text: &str) -> Option<f64> {
    text.split(':').try_fold(0.0, |sum, part| Some(sum * 60.0 + seconds(part)?))
}

/// `threads-THREADS.log`: a line `fault THREAD base|huge MICROSECONDS ...` for each fault.
fn faults(folder: &Path, record: &mut Record, captured: &mut Xxh3) -> Result<()> {
    let all = logs(folder, "threads")?;
    let mut shares = Vec::new();
    for (threads, _, path) in all {
        let (mut base, mut huge) = (Vec::new(), Vec::new());
        for (number, line) in lines(&path, captured)?.iter().enumerate() {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            if words.first() != Some(&"fault") {
                continue;
            }
            let of_kind = match words.get(2) {
                Some(&"base") => Some(&mut base),
                Some(&"huge") => Some(&mut huge),
                _ => None,
            };
            let us = words.get(3).and_then(|word| word.parse::<u64>().ok());
            let (Some(of_kind), Some(us)) = (of_kind, us) else {
                let expected = "`fault THREAD base|huge MICROSECONDS`";
                return Err(bad(&path, number + 1, format!("`{line}`"), expected));
            };
            of_kind.push(us as f64);
        }
        let nr = base.len() + huge.len();
        if nr > 0 {
            shares.push((threads, huge.len() as f64 * 100.0 / nr as f64));
        }
        metric(record, format!("fault-base-{threads}"), "us").samples = base;
        metric(record, format!("fault-huge-{threads}"), "us").samples = huge;
    }
    for (threads, percent) in shares {
        let mut share = Metric::new(format!("Percentage huge-{threads}"), "%", Better::Higher)
            .shown_as(&[Statistic::Plain], 2);
        share.samples.push(percent);
        record.metrics.push(share);
    }
    Ok(())
}

/// `mmap-latency-WORKERS.log` or `mmap-latency.log`: a line `COUNT NANOSECONDS` for so many of that mean.
fn latencies(folder: &Path, record: &mut Record, captured: &mut Xxh3) -> Result<()> {
    let mut all: Vec<(String, PathBuf)> = logs(folder, "mmap-latency")?
        .into_iter()
        .map(|(workers, _, path)| (format!("mmap-{workers}"), path))
        .collect();
    all.extend(there(folder, "mmap-latency.log").map(|path| ("mmap".to_owned(), path)));
    for (class, path) in all {
        let mut latencies = Latencies::new();
        for (number, line) in lines(&path, captured)?.iter().enumerate() {
            let mut words = line.split_ascii_whitespace().map(str::parse::<u64>);
            match (words.next(), words.next()) {
                (None, _) => {}
                (Some(Ok(count)), Some(Ok(ns))) => latencies.record_many(ns, count),
                _ => {
                    let expected = "`COUNT NANOSECONDS`";
                    return Err(bad(&path, number + 1, format!("`{line}`"), expected));
                }
            }
        }
        record.latencies.insert(class, latencies);
    }
    Ok(())
}
