//! Recorded runs of real kernels, run again on the model: how far the counters are apart.
//!
//! A case is a folder as `highorder_record::foreign` reads it, whose `case.json` says what ran. The model
//! gets the same machine (zones, marks and free blocks as `before/` has them, with as many CPUs and as
//! much swap), the kernel file of that release, the same settings and the same program. What is compared
//! is what the run did: the rise of each counter from before to after.
//!
//! Departs: positions of free blocks are made up from their counts, and what is in use before the run
//! stays where it is: it is no page cache and belongs to no process. Visible as: what a guest's own
//! programs had in memory, a few MiB, is not reclaimed.

use crate::{Experiment, InputError, Kernel, RealOptions, Scale, Target};
use highorder_mm::buddy::FreeTo;
use highorder_mm::frame::State;
use highorder_mm::policy::LruKind;
use highorder_mm::zone::ZoneId;
use highorder_mm::{Memory, Order, Pfn};
use highorder_record::{Inputs, Record, Store, read_foreign};
use highorder_sim::{Machine, Ns};
use highorder_snapshot::live::{Options, Way};
use highorder_system::model::{ModelSpec, check_knob, run_from};
use highorder_workload::recorded::{Program, Unknown, written_file};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// The machine whose costs and disks stand for a guest under software emulation.
pub const GUEST_MACHINE: &str = "guest-tcg";

/// Counters that are compared where both kernels' records have them: name, what it is counted in, and the
/// floor below which a difference is not taken for one. Names that end in `_` are sums over zone classes.
pub const COUNTERS: [(&str, u64); 22] = [
    ("pgfault", PAGES),
    ("pgmajfault", EVENTS),
    ("pgalloc_", PAGES),
    ("pgfree", PAGES),
    ("pswpin", PAGES),
    ("pswpout", PAGES),
    ("pgscan_kswapd", PAGES),
    ("pgscan_direct", PAGES),
    ("pgsteal_kswapd", PAGES),
    ("pgsteal_direct", PAGES),
    ("pgrefill", PAGES),
    ("pgactivate", PAGES),
    ("pgdeactivate", PAGES),
    ("workingset_refault_anon", PAGES),
    ("allocstall_", EVENTS),
    ("pageoutrun", EVENTS),
    ("swap_ra", PAGES),
    ("thp_fault_alloc", EVENTS),
    ("thp_fault_fallback", EVENTS),
    ("compact_stall", EVENTS),
    ("compact_migrate_scanned", PAGES),
    ("pgmigrate_success", PAGES),
];

/// Floor of counters in pages: 2 MiB, about what a guest's own programs move in the time of a run.
const PAGES: u64 = 512;
/// Floor of counters in events.
const EVENTS: u64 = 16;

/// A recorded run.
#[derive(Debug)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub folder: PathBuf,
    /// What was captured.
    pub record: Record,
    /// What it was given.
    given: BTreeMap<String, Json>,
}

/// What the model makes of a case.
#[derive(Debug)]
pub enum Outcome {
    /// It was run: counter by counter, and the model's record.
    Compared(Box<Compared>),
    /// Mechanisms are missing for it, a few words each.
    Waits(Vec<String>),
}

/// A case that was run.
#[derive(Debug)]
pub struct Compared {
    /// Each counter that either of them moved.
    pub rows: Vec<Row>,
    /// What the model left.
    pub model: Record,
}

/// One counter of one case.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The counter.
    pub counter: String,
    /// How far it rose on the real kernel.
    pub real: f64,
    /// How far it rose on the model.
    pub model: f64,
    /// Their distance as a share of the real rise, or of the floor if that is larger.
    pub relative_error: f64,
}

/// The relative error of a model's figure, beside a real one that is not taken for smaller than `floor`.
#[must_use]
pub fn relative_error(real: f64, model: f64, floor: f64) -> f64 {
    (model - real).abs() / real.abs().max(floor)
}

impl Case {
    /// Reads a case.
    ///
    /// # Errors
    /// The file and line of what is missing or malformed.
    pub fn read(folder: &Path) -> Result<Self, InputError> {
        let record = read_foreign(folder).map_err(|error| InputError::other(error.to_string()))?;
        let path = folder.join("case.json");
        let text = std::fs::read_to_string(&path)
            .map_err(|e| InputError::file(&path, format!("cannot be read: {e}")))?;
        let given: BTreeMap<String, Json> = serde_json::from_str(&text)
            .map_err(|e| InputError::line(&path, e.line(), e.to_string()))?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, folder: folder.to_owned(), record, given })
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.given.get(key).and_then(Json::as_str)
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.given.get(key).and_then(Json::as_u64)
    }

    /// Settings that the run was given: name and value as text.
    #[must_use]
    pub fn settings(&self) -> BTreeMap<String, String> {
        let settings = self.given.get("settings").and_then(Json::as_object);
        let text = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        settings
            .map(|map| map.iter().map(|(k, v)| (k.clone(), text(v))).collect())
            .unwrap_or_default()
    }

    /// What the case is about but for its settings: cases alike in this can be told apart by settings.
    #[must_use]
    pub fn subject(&self) -> String {
        let keys = [
            "kernel", "workload", "setup", "nodes", "node_mb", "smp", "swap_mb", "data_mb",
            "append",
        ];
        let values = keys.map(|key| self.given.get(key).map(Json::to_string).unwrap_or_default());
        values.join("|")
    }

    /// Runs the case on the model, if there is all it needs.
    ///
    /// # Errors
    /// A case that contradicts itself, or a fault of ours.
    pub fn run(&self) -> Result<Outcome, InputError> {
        let malformed = |what: String| InputError::file(self.folder.join("case.json"), what);
        let mut waits = Vec::new();
        let setup = self.text("setup");
        let file = setup.and_then(written_file);
        if let (Some(setup), None) = (setup, &file) {
            waits.push(format!("setup `{setup}`"));
        }
        let command = self.text("workload").unwrap_or_default();
        let program = match Program::parse(command) {
            Ok(program) => Some(program),
            Err(Unknown::Needs(needs)) => {
                waits.extend(needs);
                None
            }
            Err(Unknown::Malformed(what)) => return Err(malformed(what)),
        };
        let (kernel, knobs) = self.kernel(program.as_ref(), &mut waits)?;
        let Some(program) = program.filter(|_| waits.is_empty()) else {
            return Ok(Outcome::Waits(waits));
        };
        let machine = self.machine()?;
        let options = Options {
            way: Way::Counts,
            proc: self.folder.join("before"),
            sys: self.folder.join("sys"),
            ..Options::default()
        };
        let snapshot = highorder_snapshot::live::take(options)
            .map_err(|error| InputError::other(error.to_string()))?;
        let mut memory = crate::machine::restore(&snapshot, &kernel, &machine.cpu_nodes())?;
        if file.is_some() {
            self.free_page_cache(&mut memory);
        }
        let spec = ModelSpec {
            machine,
            policy: kernel.policy,
            flows: kernel.flows,
            knobs,
            seed: 0,
            sample_interval: Ns::from_secs(1),
            draw: None,
        };
        let (model, _) = run_from(memory, spec, Inputs::default(), program.code(file))
            .map_err(|error| InputError::other(format!("{}: {error}", self.name)))?;
        let rows = compare(&self.record, &model);
        Ok(Outcome::Compared(Box::new(Compared { rows, model })))
    }

    /// Frees as many frames in use as files had in memory, from the zones' beginnings: what the set-up put
    /// there is written anew. What remains in use are the kernel's pages and the programs'.
    fn free_page_cache(&self, memory: &mut Memory) {
        let counters = &self.record.before.counters;
        let count = |name: &str| counters.get(name).copied().unwrap_or(0);
        let mut left = count("nr_inactive_file") + count("nr_active_file");
        for zone in (0..memory.zones.len()).rev() {
            let (start, end) = (memory.zones[zone].start, memory.zones[zone].end);
            for pfn in (start.0..end.0).map(Pfn) {
                let frames = memory.frames();
                let is_page =
                    frames.state(pfn) == State::Allocated && frames.order(pfn) == Order(0);
                if left > 0 && is_page {
                    memory.free_to_buddy(ZoneId(zone as u8), pfn, Order(0), FreeTo::Policy);
                    left -= 1;
                }
            }
        }
    }

    /// The kernel file of the case's release with its settings, and knobs.
    fn kernel(
        &self,
        program: Option<&Program>,
        waits: &mut Vec<String>,
    ) -> Result<(Kernel, BTreeMap<String, String>), InputError> {
        let release = self.text("kernel_release").or_else(|| self.text("kernel"));
        let mut kernel = Kernel::for_release(release.unwrap_or_default())?;
        let mut knobs = BTreeMap::new();
        let advice = program.and_then(Program::advice);
        for (name, value) in self.settings() {
            let short = name
                .strip_prefix("/sys/kernel/mm/")
                .or_else(|| name.strip_prefix("/proc/sys/"))
                .unwrap_or(&name)
                .replace("vm/", "vm.");
            match short.as_str() {
                "lru_gen/enabled" => {
                    let on = !matches!(value.trim(), "0" | "0x0000" | "n" | "N");
                    kernel.policy.lru.kind =
                        if on { LruKind::MultiGenerational } else { LruKind::Classic };
                }
                "transparent_hugepage/enabled" => {
                    use highorder_system::Advice::{Huge, NoHuge};
                    let used = match value.as_str() {
                        "never" => false,
                        "madvise" => advice == Some(Huge),
                        _ => advice != Some(NoHuge),
                    };
                    if used {
                        waits.push("huge pages".to_owned());
                    }
                }
                // Of no consequence while nothing asks for a huge page.
                other if other.starts_with("transparent_hugepage/") => {}
                other => match check_knob(other, &value) {
                    Ok(()) => {
                        knobs.insert(other.to_owned(), value);
                    }
                    Err(_) => waits.push(format!("setting `{other}`")),
                },
            }
        }
        Ok((kernel, knobs))
    }

    /// The guest machine with the case's CPUs, nodes and swap.
    fn machine(&self) -> Result<Machine, InputError> {
        let mut machine = Machine::load(GUEST_MACHINE)?;
        let nr_nodes = self.number("nodes").unwrap_or(1).max(1) as u32;
        let nr_cpus = self.number("smp").unwrap_or(1).max(1) as u32;
        let each = nr_cpus.div_ceil(nr_nodes);
        let template = machine.nodes[0].clone();
        machine.nodes = (0..nr_nodes)
            .map(|node| {
                let mut this = template.clone();
                this.cpus = (node * each).min(nr_cpus)..((node + 1) * each).min(nr_cpus);
                // Without a table of distances the firmware's default holds: 20 to any other node.
                this.distances = (0..nr_nodes).map(|n| if n == node { 10 } else { 20 }).collect();
                this
            })
            .collect();
        match self.number("swap_mb") {
            None | Some(0) => machine.swap.clear(),
            Some(mib) => {
                machine.swap.truncate(1);
                // The header takes the first page.
                for area in &mut machine.swap {
                    area.bytes = (mib << 20) - 4096;
                }
            }
        }
        Ok(machine)
    }
}

fn compare(real: &Record, model: &Record) -> Vec<Row> {
    let mut rows = Vec::new();
    for (counter, floor) in COUNTERS {
        let (Some(real), Some(model)) = (rise(real, counter), rise(model, counter)) else {
            continue;
        };
        if real == 0.0 && model == 0.0 {
            continue;
        }
        let relative_error = relative_error(real, model, floor as f64);
        let counter = counter.trim_end_matches('_').to_owned();
        rows.push(Row { counter, real, model, relative_error });
    }
    rows
}

/// How far a counter rose; the sum of those whose names begin so, if it ends in `_`.
fn rise(record: &Record, counter: &str) -> Option<f64> {
    if !counter.ends_with('_') {
        return record.delta(counter).map(|rise| rise as f64);
    }
    let names = record.after.counters.keys().filter(|name| name.starts_with(counter));
    let rises: Vec<i64> = names.filter_map(|name| record.delta(name)).collect();
    if rises.is_empty() { None } else { Some(rises.iter().sum::<i64>() as f64) }
}

/// A fresh run of a real kernel in a guest, and the model's of the same experiment.
#[derive(Debug)]
pub struct Live {
    /// The guest's target, kernel and threads.
    pub name: String,
    /// Each counter that either of them moved.
    pub rows: Vec<Row>,
}

/// Runs an experiment's first variant on a kernel in a guest and, under the kernel file of that kernel's
/// release, on the model; both from the machine's boot. `store` keeps the records.
///
/// # Errors
/// No such experiment, image or kernel file; or a run failed.
pub fn live(
    experiment: &str,
    target: &Target,
    options: &RealOptions,
    workers: NonZeroUsize,
    store: &Store,
) -> Result<Vec<Live>, InputError> {
    let mut experiment = Experiment::load(experiment)?;
    experiment.variants.truncate(1);
    let run = |experiment: &Experiment, target: &Target| -> Result<Vec<Record>, InputError> {
        let plan = experiment.plan_on(std::slice::from_ref(target), Scale::FULL, options)?;
        let failed = |error: &dyn std::fmt::Display| InputError::other(error.to_string());
        plan.execute(store, workers, &()).map_err(|error| failed(&error))?;
        let records = plan.records(store).map_err(|error| failed(&error))?;
        Ok(records.into_iter().flatten().collect())
    };
    let real = run(&experiment, target)?;
    let release = real.first().and_then(|record| record.inputs.kernel.values.get("kernel"));
    let release = release.map(String::as_str).unwrap_or_default();
    experiment.variants[0].kernel = Kernel::for_release(release)?;
    let model = run(&experiment, &Target::Model)?;
    let threads = |record: &Record| record.inputs.workload.values.get("threads").cloned();
    let pairs = real.iter().filter_map(|real| {
        let model = model.iter().find(|model| threads(model) == threads(real))?;
        let threads = threads(real).unwrap_or_default();
        let name = format!("{target} {} threads {threads}", experiment.name);
        Some(Live { name, rows: compare(real, model) })
    });
    Ok(pairs.collect())
}

/// The folders in `folder` that are cases, by name.
///
/// # Errors
/// The folder cannot be read, or holds none.
pub fn case_folders(folder: &Path) -> Result<Vec<PathBuf>, InputError> {
    let unreadable =
        |error: std::io::Error| InputError::file(folder, format!("cannot be read: {error}"));
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.join("case.json").is_file() && path.join("before/vmstat").is_file() {
            cases.push(path);
        }
    }
    cases.sort();
    if cases.is_empty() {
        let message = "no folder with case.json and before/vmstat in it, expected recorded cases";
        return Err(InputError::file(folder, message));
    }
    Ok(cases)
}

/// Cases that were compared, with their settings and rows.
pub struct Judged<'a> {
    /// What they are about but for their settings.
    pub subject: String,
    /// Settings.
    pub settings: BTreeMap<String, String>,
    /// Counters.
    pub rows: &'a [Row],
}

/// The middle of all relative errors; `None` without any.
#[must_use]
pub fn median_relative_error(judged: &[Judged<'_>]) -> Option<f64> {
    let mut errors: Vec<f64> =
        judged.iter().flat_map(|case| case.rows.iter().map(|row| row.relative_error)).collect();
    errors.sort_by(f64::total_cmp);
    let middle = errors.len() / 2;
    match errors.len() {
        0 => None,
        n if n % 2 == 1 => Some(errors[middle]),
        _ => Some((errors[middle - 1] + errors[middle]) / 2.0),
    }
}

/// A difference between two real runs that counts: of more than a tenth, and more than the floor.
fn differs(a: f64, b: f64, floor: f64) -> bool {
    (a - b).abs() > floor.max(0.1 * a.abs().max(b.abs()))
}

/// How often the model puts two cases that differ in one setting in the same order as the real kernel
/// does, counter by counter where the real ones differ: how many agree, of how many.
#[must_use]
pub fn order_agreement(judged: &[Judged<'_>]) -> (u64, u64) {
    let (mut agree, mut all) = (0, 0);
    for (i, a) in judged.iter().enumerate() {
        for b in &judged[i + 1..] {
            if a.subject != b.subject || nr_differences(&a.settings, &b.settings) != 1 {
                continue;
            }
            for row in a.rows {
                let Some(other) = b.rows.iter().find(|other| other.counter == row.counter) else {
                    continue;
                };
                let floor = COUNTERS
                    .iter()
                    .find(|(name, _)| name.trim_end_matches('_') == row.counter)
                    .map_or(0, |&(_, floor)| floor);
                if differs(row.real, other.real, floor as f64) {
                    all += 1;
                    let real = row.real.total_cmp(&other.real);
                    agree += u64::from(row.model.total_cmp(&other.model) == real);
                }
            }
        }
    }
    (agree, all)
}

fn nr_differences(a: &BTreeMap<String, String>, b: &BTreeMap<String, String>) -> usize {
    let mut names: Vec<&String> = a.keys().chain(b.keys()).collect();
    names.sort();
    names.dedup();
    names.into_iter().filter(|name| a.get(*name) != b.get(*name)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(counter: &str, real: f64, model: f64) -> Row {
        let relative_error = relative_error(real, model, 512.0);
        Row { counter: counter.to_owned(), real, model, relative_error }
    }

    #[test]
    fn an_error_is_relative_to_the_real_figure_or_the_floor() {
        assert_eq!(relative_error(1000.0, 1500.0, 512.0), 0.5);
        assert_eq!(relative_error(0.0, 256.0, 512.0), 0.5);
        assert_eq!(relative_error(-1024.0, 0.0, 512.0), 1.0);
    }

    #[test]
    fn order_is_judged_between_cases_that_differ_in_one_setting() {
        let settings = |swappiness: &str, page_cluster: &str| {
            [("vm.swappiness", swappiness), ("vm.page-cluster", page_cluster)]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into()
        };
        let rows = [
            [row("pswpout", 10_000.0, 9_000.0), row("pgfault", 100.0, 300.0)],
            [row("pswpout", 20_000.0, 8_000.0), row("pgfault", 150.0, 200.0)],
            [row("pswpout", 5_000.0, 500.0), row("pgfault", 100.0, 100.0)],
        ];
        let judged = |i: usize, swappiness: &str, page_cluster: &str| Judged {
            subject: "usemem".to_owned(),
            settings: settings(swappiness, page_cluster),
            rows: &rows[i],
        };
        let cases = [judged(0, "60", "3"), judged(1, "100", "3"), judged(2, "0", "0")];
        // pgfault differs by less than its floor; the third differs from the others in two settings.
        assert_eq!(order_agreement(&cases), (0, 1));
        let cases = [judged(0, "60", "3"), judged(2, "0", "3")];
        assert_eq!(order_agreement(&cases), (1, 1));
        assert_eq!(median_relative_error(&cases[..0]), None);
        let errors = [0.1, 200.0 / 512.0, 0.9, 0.0];
        let mut sorted = errors;
        sorted.sort_by(f64::total_cmp);
        assert_eq!(median_relative_error(&cases), Some((sorted[1] + sorted[2]) / 2.0));
    }
}
