//! Records of kernels that were run elsewhere.
//!
//! A folder of captures becomes a [`Record`]:
//!
//! ```text
//! before/ after/       vmstat, and where there are: meminfo, zoneinfo, buddyinfo, pagetypeinfo
//! held/                the same while the workload's memory is still mapped
//! case.json            what was run: name, kernel, kernel_release, settings, workload, machine
//! workload.json        the workload's results: an object a line, one for each program
//! timeline, timeline.gz  samples: a line `T SECONDS`, counters, lines of buddyinfo
//! swaps, settings, ... are left alone
//! ```
//!
//! Only `before/vmstat` and `after/vmstat` must be there. Any file may be compressed with gzip or zstd.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use highorder_files::limits;
use highorder_input::{InputError, Problem};
use highorder_kernelfs::{
    Buddyinfo, Counters, Meminfo, Pagetypeinfo, TextFile, Vmstat, Zoneinfo, find_packed, read_bytes,
};
use serde_json::{Map, Value as Json};
use xxhash_rust::xxh3::Xxh3;

use crate::record::{Inputs, Metric, Named, Record, Source, State};
use crate::stats::{Better, Statistic};

/// Keys of `case.json` that say how a run went rather than what it was.
const OUTCOMES: [&str; 4] = ["status", "wall_s", "guest_workload_s", "workload_rc"];

/// Keys of a program's results that say what it was asked to do: they are no metrics.
const REQUESTS: [&str; 18] = [
    "prog",
    "threads",
    "bytes",
    "loops",
    "madvise",
    "policy",
    "nodes",
    "anon_pct",
    "file_pct",
    "keep",
    "map_pct",
    "hint",
    "consume",
    "ws_mb",
    "target",
    "target_pct_of_ram",
    "load_anon_pct",
    "load_file_pct",
];

/// Whether the file is there and this user may not read it.
fn is_denied(error: &InputError) -> bool {
    error.refused() == Some(io::ErrorKind::PermissionDenied)
}

/// A file is not what it should be: its line, counted from 1, or 0 for the file as a whole.
pub(crate) fn bad(
    path: &Path,
    line: usize,
    found: impl Into<String>,
    expected: impl Into<String>,
) -> InputError {
    let line = Some(line as u64).filter(|line| *line > 0);
    InputError::new(vec![Problem::new(path.display().to_string(), line, found, expected)])
}

type Result<T> = std::result::Result<T, InputError>;

/// Reads a folder of captures.
///
/// The record's inputs are what `case.json` says, and a hash of the captures themselves: a run of a
/// real kernel is not determined by what it was given, so two runs of one case are two records.
///
/// # Errors
/// [`InputError`] names the file, and the line where there is one.
pub fn read_foreign(folder: &Path) -> Result<Record> {
    let mut captured = Xxh3::new();
    let before = read_state(&folder.join("before"), &mut captured)?;
    let after = read_state(&folder.join("after"), &mut captured)?;
    let held = match folder.join("held").join("vmstat").exists() {
        true => Some(read_state(&folder.join("held"), &mut captured)?),
        false => None,
    };
    let mut record = Record::new(Inputs { source: Source::Foreign, ..Inputs::default() });
    (record.before, record.after, record.held) = (before, after, held);
    read_case(folder, &mut record)?;
    read_workload(folder, &mut record, &mut captured)?;
    read_timeline(folder, &mut record)?;
    let captured = format!("{:032x}", captured.digest128());
    record.inputs.workload.values.insert("captured".to_owned(), captured);
    Ok(record)
}

/// Reads the state of a running kernel from its `/proc`.
///
/// What this user may not read (`pagetypeinfo` is root's alone) is missing from the state.
///
/// # Errors
/// [`InputError`] names the file, and the line where there is one.
pub fn read_proc(proc: &Path) -> Result<State> {
    read_state_with(proc, &mut Xxh3::new(), Unreadable::Missing)
}

/// Reads what a folder holds of `/proc`.
fn read_state(folder: &Path, captured: &mut Xxh3) -> Result<State> {
    read_state_with(folder, captured, Unreadable::Refused)
}

/// What becomes of a file that is there and may not be read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unreadable {
    Refused,
    Missing,
}

fn read_state_with(folder: &Path, captured: &mut Xxh3, unreadable: Unreadable) -> Result<State> {
    let mut state = State::default();
    let vmstat: Vmstat = parse(&folder.join("vmstat"), captured)?;
    state.counters = map(&vmstat);
    if let Some(meminfo) = parse_if_there::<Meminfo>(&folder.join("meminfo"), captured)? {
        add_meminfo(&mut state, meminfo);
    }
    if let Some(zoneinfo) = parse_if_there::<Zoneinfo>(&folder.join("zoneinfo"), captured)? {
        add_zoneinfo(&mut state, &zoneinfo);
    }
    if let Some(buddyinfo) = parse_if_there::<Buddyinfo>(&folder.join("buddyinfo"), captured)? {
        for zone in buddyinfo.zones {
            state.zone_mut(zone.node, &zone.zone).free_blocks = zone.counts;
        }
    }
    let types = folder.join("pagetypeinfo");
    let types = match parse_if_there::<Pagetypeinfo>(&types, captured) {
        Err(error) if unreadable == Unreadable::Missing && is_denied(&error) => None,
        types => types?,
    };
    if let Some(types) = types {
        state.pageblock_order = types.page_block_order().and_then(|order| u8::try_from(order).ok());
        for node in &types.nodes {
            for row in &node.free {
                let counts = row.counts.iter().map(|count| count.blocks).collect();
                let into = state.zone_mut(row.node, &row.zone);
                into.free_blocks_by_migratetype.insert(row.migratetype.clone(), counts);
            }
            for row in &node.blocks {
                let into = state.zone_mut(row.node, &row.zone);
                into.pageblocks =
                    node.migratetypes.iter().cloned().zip(row.counts.iter().copied()).collect();
            }
        }
    }
    Ok(state)
}

pub(crate) fn add_meminfo(state: &mut State, meminfo: Meminfo) {
    state.meminfo = meminfo.fields.into_iter().map(|field| (field.name, field.value)).collect();
}

pub(crate) fn add_zoneinfo(state: &mut State, zoneinfo: &Zoneinfo) {
    for zone in &zoneinfo.zones {
        if let Some(stats) = &zone.node_stats {
            state.nodes.insert(zone.node, map(stats));
        }
        // Zones without memory are listed too, cut short.
        if zone.pages.get("present").unwrap_or(0) == 0 {
            continue;
        }
        let into = state.zone_mut(zone.node, &zone.zone);
        into.pages = map(&zone.pages);
        into.protection_pages = zone.protection.pages.clone();
        into.counters = map(&zone.counters);
    }
}

pub(crate) fn map(counters: &Counters) -> BTreeMap<String, u64> {
    counters.iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn parse<T: TextFile>(path: &Path, captured: &mut Xxh3) -> Result<T> {
    let bytes = read_bytes(path)?;
    captured.update(&bytes);
    T::parse(&path.display().to_string(), &bytes)
}

fn parse_if_there<T: TextFile>(path: &Path, captured: &mut Xxh3) -> Result<Option<T>> {
    if path.exists() { parse(path, captured).map(Some) } else { Ok(None) }
}

/// Fills in the inputs and the elapsed time.
fn read_case(folder: &Path, record: &mut Record) -> Result<()> {
    let path = folder.join("case.json");
    let inputs = &mut record.inputs;
    if !path.exists() {
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
        inputs.experiment = name.unwrap_or_default();
        return Ok(());
    }
    let text =
        highorder_files::read(&path, limits::NOTES).map_err(|e| InputError::read(&path, e))?;
    let mut case = object(&path, 0, &text)?;
    if let Some(seconds) = case.get("guest_workload_s").and_then(Json::as_f64) {
        if !(0.0..1e9).contains(&seconds) {
            let found = format!("guest_workload_s {seconds}");
            return Err(bad(&path, 0, found, "seconds"));
        }
        record.durations.elapsed_ns = Some((seconds * 1e9).round() as u64);
    }
    if let Some(status) = case.get("status").filter(|status| *status != "ok") {
        record.notes.push(format!("The case's status is {}.", plain(status)));
    }
    OUTCOMES.iter().for_each(|key| drop(case.remove(*key)));
    let mut take = |key: &str| case.remove(key).map(|value| plain(&value));
    inputs.experiment = take("name").unwrap_or_default();
    let release = take("kernel_release");
    let kernel = take("kernel");
    inputs.kernel.name = release.or(kernel).unwrap_or_default();
    if let Some(version) = take("kernel_version") {
        inputs.kernel.values.insert("version".to_owned(), version);
    }
    if let Some(command) = take("workload") {
        inputs.workload.values.insert("command".to_owned(), command);
    }
    if let Some(setup) = take("setup") {
        inputs.workload.values.insert("setup".to_owned(), setup);
    }
    if let Some(progs) = case.remove("progs") {
        let names: Vec<String> = progs.as_array().into_iter().flatten().map(plain).collect();
        inputs.workload.name = names.join("+");
    }
    if let Some(settings) = case.remove("settings") {
        let Json::Object(settings) = settings else {
            return Err(bad(&path, 0, format!("settings {settings}"), "an object"));
        };
        inputs
            .kernel
            .values
            .extend(settings.iter().map(|(key, value)| (key.clone(), plain(value))));
    }
    // The rest tells the machine: nodes, memory, CPUs, disks, the emulator.
    inputs.machine = Named {
        name: String::new(),
        values: case.iter().map(|(key, value)| (key.clone(), plain(value))).collect(),
    };
    Ok(())
}

/// A JSON value as text; a string without its quotes.
fn plain(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn object(path: &Path, line: usize, text: &[u8]) -> Result<Map<String, Json>> {
    match serde_json::from_slice(text) {
        Ok(Json::Object(object)) => Ok(object),
        Ok(other) => Err(bad(path, line, format!("`{other}`"), "an object")),
        Err(error) => {
            let line = if line == 0 { error.line() } else { line };
            Err(bad(path, line, error.to_string(), "a JSON object"))
        }
    }
}

/// Turns the programs' results into metrics.
///
/// Each number is a sample of the metric `PROGRAM.key`; numbers in a list are samples of one metric; the
/// parts of a round follow with its thread count, as in `thpscale.fault_base.amean_us-4`. The share of
/// huge faults becomes `Percentage huge-4`. What a program was asked to do is no metric.
fn read_workload(folder: &Path, record: &mut Record, captured: &mut Xxh3) -> Result<()> {
    let path = folder.join("workload.json");
    if !path.exists() {
        return Ok(());
    }
    let text = read_bytes(&path)?;
    captured.update(&text);
    let mut metrics = Metrics(Vec::new());
    for (i, line) in text.split(|&b| b == b'\n').enumerate() {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let result = object(&path, i + 1, line)?;
        if let Some(error) = result.get("error") {
            record.notes.push(format!("A program of the workload failed: {}.", plain(error)));
            continue;
        }
        // Where it does not say which program it is of, it is of the one that the command begins with.
        let command = record.inputs.workload.values.get("command");
        let first = command.and_then(|command| command.split_ascii_whitespace().next());
        let Some(program) = result.get("prog").and_then(Json::as_str).or(first) else {
            return Err(bad(&path, i + 1, "no key `prog`", "the program's name"));
        };
        metrics.object(program, "", &result);
    }
    record.metrics = metrics.0;
    Ok(())
}

/// Metrics as they are found.
struct Metrics(Vec<Metric>);

impl Metrics {
    fn object(&mut self, prefix: &str, suffix: &str, object: &Map<String, Json>) {
        // No unit of the kind: its latencies are printed as 0, which they are not.
        if object.get("n").is_some_and(|n| *n == 0) {
            self.add(&format!("{prefix}.n{suffix}"), "n", 0.0);
            return;
        }
        for (key, value) in object {
            if !REQUESTS.contains(&key.as_str()) {
                self.value(prefix, key, suffix, value);
            }
        }
    }

    fn value(&mut self, prefix: &str, key: &str, suffix: &str, value: &Json) {
        let name = format!("{prefix}.{key}");
        match value {
            Json::Number(number) => {
                let Some(number) = number.as_f64() else { return };
                if key == "pct_huge" {
                    let share =
                        Metric::new(format!("Percentage huge{suffix}"), "%", Better::Higher);
                    self.push(share.shown_as(&[Statistic::Plain], 2), number);
                } else {
                    self.add(&format!("{name}{suffix}"), key, number);
                }
            }
            Json::Object(object) => self.object(&name, suffix, object),
            Json::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    match item {
                        Json::Object(round) => {
                            let threads = round.get("threads").and_then(Json::as_u64);
                            let suffix =
                                threads.map_or(suffix.to_owned(), |threads| format!("-{threads}"));
                            self.object(prefix, &suffix, round);
                        }
                        // A list in a list, such as pages of each node after each loop.
                        Json::Array(columns) => {
                            for (column, value) in columns.iter().enumerate() {
                                self.value(&name, &column.to_string(), suffix, value);
                            }
                        }
                        Json::Number(_) if key == "tries" => {
                            self.value(&name, &i.to_string(), suffix, item);
                        }
                        _ => self.value(prefix, key, suffix, item),
                    }
                }
            }
            Json::Null | Json::Bool(_) | Json::String(_) => {}
        }
    }

    fn add(&mut self, name: &str, key: &str, sample: f64) {
        let (unit, better, decimals) = kind(key);
        self.push(Metric::new(name, unit, better).shown_as(&[Statistic::Amean], decimals), sample);
    }

    fn push(&mut self, like: Metric, sample: f64) {
        match self.0.iter_mut().find(|metric| metric.name == like.name) {
            Some(metric) => metric.samples.push(sample),
            None => self.0.push(like.with_samples([sample])),
        }
    }
}

/// Unit, good direction and decimals by a key's ending.
fn kind(key: &str) -> (&'static str, Better, u8) {
    match key {
        "majflt" => ("faults", Better::Lower, 0),
        "minflt" => ("faults", Better::Neutral, 0),
        "got" => ("huge pages", Better::Higher, 0),
        "pct" => ("%", Better::Higher, 2),
        _ if key.ends_with("_us") => ("us", Better::Lower, 2),
        _ if key.ends_with("_s") => ("s", Better::Lower, 3),
        _ if key.ends_with("_kb") => ("KiB", Better::Neutral, 0),
        _ if key.ends_with("_mb") => ("MiB", Better::Neutral, 0),
        _ => ("", Better::Neutral, 0),
    }
}

/// Reads the samples. They hold counters that are not 0 only, so one that is missing is 0.
fn read_timeline(folder: &Path, record: &mut Record) -> Result<()> {
    let Some(path) = find_packed(folder, "timeline") else { return Ok(()) };
    let text = read_bytes(&path)?;
    let mut samples: Vec<(u64, BTreeMap<String, u64>)> = Vec::new();
    for (i, line) in text.split(|&b| b == b'\n').enumerate() {
        let line_number = i + 1;
        let line = String::from_utf8_lossy(line);
        let bad = |expected: &str| bad(&path, line_number, format!("`{line}`"), expected);
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match (words[..].first(), samples.last_mut()) {
            (None, _) => {}
            (Some(&"T"), last) => {
                let seconds = words.get(1).and_then(|word| word.parse::<f64>().ok());
                let seconds = seconds.filter(|s| words.len() == 2 && (0.0..1e9).contains(s));
                let ns = (seconds.ok_or_else(|| bad("`T SECONDS`"))? * 1e9).round() as u64;
                if last.is_some_and(|(before, _)| *before >= ns) {
                    return Err(bad("a later time than the sample before has"));
                }
                samples.push((ns, BTreeMap::new()));
            }
            (Some(_), None) => return Err(bad("`T SECONDS` first")),
            (Some(&"Node"), Some((_, values))) => {
                let buddyinfo = Buddyinfo::parse("", format!("{line}\n").as_bytes())
                    .map_err(|_| bad("a line of buddyinfo"))?;
                for zone in buddyinfo.zones {
                    for (order, count) in zone.counts.iter().enumerate() {
                        let name = format!("buddyinfo {} {} {order:02}", zone.node, zone.zone);
                        values.insert(name, *count);
                    }
                }
            }
            (Some(name), Some((_, values))) => {
                let value = words.get(1).and_then(|word| word.parse().ok());
                let value = value.filter(|_| words.len() == 2);
                let value = value.ok_or_else(|| bad("a counter's name and its value"))?;
                values.insert((*name).to_owned(), value);
            }
        }
    }
    let mut names: BTreeMap<String, u64> = BTreeMap::new();
    for (_, values) in &samples {
        names.extend(values.keys().map(|name| (name.clone(), 0)));
    }
    for (time_ns, values) in samples {
        let mut row = names.clone();
        row.extend(values);
        record.timeline.push(time_ns, row.iter().map(|(name, value)| (name.as_str(), *value)));
    }
    Ok(())
}
