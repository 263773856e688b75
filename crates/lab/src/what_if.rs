//! What a recorded machine would do under other settings: its demand, in the model, from the state it was in.
//!
//! The model has the recording's memory with all lists, and those whose pages they are; reclaim, compaction, kswapd,
//! kcompactd and khugepaged run in virtual time. What the recorded kernel counted under its own settings says how far
//! the model is to be believed there.

mod fates;
mod replayed;
pub mod wanted;

use crate::recording::Recording;
use crate::residents::with_residents;
use crate::start::{lend_disks, machine_like, swap_kib};
use crate::validate::median;
use crate::{ExecuteError, Failed};
use fates::{Fate, Fates, Life};
use highorder_input::InputError;
use highorder_kernelfs::{Settings, TextFile, Vmstat};
use highorder_kernels::{KernelFile, machine};
use highorder_mm::types::Pfn;
use highorder_model::{ModelSpec, check_knob_of, knobs, run_from, sets_marks};
use highorder_record::ended::{ended_early, ended_early_note};
use highorder_record::killed::killed_process;
use highorder_record::{Inputs, Record, State};
use highorder_sim::{Cost, Costs, Machine, Ns, RunError};
use highorder_snapshot::RecordingFiles;
use highorder_system::Area;
use highorder_tables::text;
use rand_core::Rng;
use rand_pcg::Pcg64;
pub use replayed::Course;
use std::collections::BTreeMap;
use std::iter::repeat_n;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use wanted::Wanted;

/// Numbers the random stream of costs: "costs" in ASCII.
const COSTS: u128 = 0x0063_6f73_7473 << 64;

/// Knobs by name.
pub type Knobs = BTreeMap<String, String>;

/// A recorded machine that can be asked.
pub struct Recorded {
    recording: Recording,
    kernel: KernelFile,
    machine: Machine,
    /// What its knobs were, of those that the model has.
    pub present: Knobs,
    wanted: Arc<Wanted>,
    /// Where the pages are that were given back, and when.
    freed: Vec<(Ns, Area)>,
    /// What had to be assumed, a sentence each.
    pub assumed: Vec<String>,
}

/// Of one setting, what came of it with each seed.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The records of the runs in which every task did what it had done, by seed.
    pub records: Vec<Record>,
    /// The runs in which less was done, by seed. They have no figures: who does less waits less.
    pub unfinished: Vec<Unfinished>,
}

/// A run that did less than was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// Tasks that did not come to the end of what they had done.
    pub nr_tasks: usize,
    /// Why, in words.
    pub why: String,
    /// Whether the machine came to its end, as a kernel that panics.
    pub is_halted: bool,
}

/// Why a run has no figures.
#[derive(Debug)]
pub enum NoFigures {
    /// Less was done than was recorded.
    Unfinished(Unfinished),
    /// The state could not be restored, or the model could not go on.
    Fault(Failed),
}

impl Answer {
    /// Why the machine came to its end, if it did so in every run.
    #[must_use]
    pub fn halted(&self) -> Option<&str> {
        let all_halted = self.records.is_empty() && self.unfinished.iter().all(|run| run.is_halted);
        self.unfinished.first().filter(|_| all_halted).map(|run| run.why.as_str())
    }

    /// How many runs there were.
    #[must_use]
    pub fn nr_runs(&self) -> usize {
        self.records.len() + self.unfinished.len()
    }

    /// The fewest and the most tasks that did not finish, of the runs that did less.
    #[must_use]
    pub fn nr_unfinished_tasks(&self) -> Option<(usize, usize)> {
        let tasks = || self.unfinished.iter().map(|run| run.nr_tasks);
        tasks().min().zip(tasks().max())
    }
}

/// A figure of a run, for tables.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// What it is called.
    pub name: &'static str,
    /// Its unit, if it has one.
    pub unit: &'static str,
    /// Whether less of it is better.
    pub less_is_better: bool,
    of: fn(&Record) -> Option<f64>,
}

impl Measure {
    /// Its values in the runs of an answer that did all that was recorded: the median, the least and the most.
    #[must_use]
    pub fn of(&self, answer: &Answer) -> Option<[f64; 3]> {
        let mut values: Vec<f64> = answer.records.iter().filter_map(self.of).collect();
        let median = median(&mut values)?;
        Some([median, values[0], *values.last()?])
    }
}

/// Classes of latencies in which a task waits until there is memory.
const STALLS: [&str; 7] = [
    "stall-direct-reclaim",
    "stall-direct-compaction",
    "stall-pfmemalloc",
    "stall-fragmentation",
    "stall-swap-in",
    "stall-dirty-throttle",
    "stall-reclaim-writeback",
];

fn delta(record: &Record, counter: &str) -> Option<f64> {
    record.delta(counter).map(|delta| delta as f64)
}

fn deltas(record: &Record, prefix: &str) -> Option<f64> {
    let names = record.after.counters.keys().filter(|name| name.starts_with(prefix));
    let mut found = names.filter_map(|name| delta(record, name)).peekable();
    found.peek().is_some().then(|| found.sum())
}

fn at_end(record: &Record) -> &State {
    record.held.as_ref().unwrap_or(&record.after)
}

fn stalled_seconds(record: &Record) -> Option<f64> {
    let all = STALLS.iter().filter_map(|class| record.latencies.get(*class));
    // A sum of no floating-point numbers is -0.
    Some(all.map(|latencies| latencies.sum_ns()).sum::<u64>() as f64 / 1e9)
}

fn huge_share(record: &Record) -> Option<f64> {
    let served = delta(record, "thp_fault_alloc")?;
    let asked = served + delta(record, "thp_fault_fallback")?;
    (asked > 0.0).then(|| 100.0 * served / asked)
}

fn longest_ms(record: &Record) -> Option<f64> {
    let all = STALLS.iter().filter_map(|class| record.latencies.get(*class)?.max_ns());
    Some(all.max().unwrap_or(0) as f64 / 1e6)
}

fn huge_p99_ms(record: &Record) -> Option<f64> {
    Some(record.latencies.get(replayed::HUGE_LATENCY)?.quantile_ns(0.99)? as f64 / 1e6)
}

/// CPU time in the kernel that is no program's: kswapd's, kcompactd's, khugepaged's, the flushers'.
fn kernel_threads_seconds(record: &Record) -> Option<f64> {
    let last = record.timeline.len().checked_sub(1)?;
    let all = record.timeline.get("cpu_system_ns", last)?;
    Some((all - record.durations.system_ns? as f64).max(0.0) / 1e9)
}

fn free_huge(record: &Record) -> Option<f64> {
    let state = at_end(record);
    let order = usize::from(state.pageblock_order?);
    let blocks = |zone: &highorder_record::ZoneState| -> u64 {
        let larger = zone.free_blocks.iter().enumerate().skip(order);
        larger.map(|(found, nr)| nr << (found - order)).sum()
    };
    Some(state.zones.iter().map(blocks).sum::<u64>() as f64)
}

fn fragmenting(record: &Record) -> Option<f64> {
    deltas(record, "mm_page_alloc_extfrag_")
}

/// What is told of every answer.
pub const MEASURES: [Measure; 14] = [
    Measure { name: "Time in stalls", unit: "s", less_is_better: true, of: stalled_seconds },
    Measure { name: "Longest stall", unit: "ms", less_is_better: true, of: longest_ms },
    Measure {
        name: "Area for a huge page, 99th percentile",
        unit: "ms",
        less_is_better: true,
        of: huge_p99_ms,
    },
    Measure { name: "Areas with a huge page", unit: "%", less_is_better: false, of: huge_share },
    Measure {
        name: "Compaction stalls",
        unit: "",
        less_is_better: true,
        of: |r| delta(r, "compact_stall"),
    },
    Measure {
        name: "Reclaim stalls",
        unit: "",
        less_is_better: true,
        of: |r| deltas(r, "allocstall"),
    },
    Measure {
        name: "CPU of kernel threads",
        unit: "s",
        less_is_better: true,
        of: kernel_threads_seconds,
    },
    Measure {
        name: "Pages migrated",
        unit: "",
        less_is_better: true,
        of: |r| delta(r, "pgmigrate_success"),
    },
    Measure {
        name: "Pages reclaimed",
        unit: "",
        less_is_better: true,
        of: |r| Some(deltas(r, "pgsteal_kswapd")? + deltas(r, "pgsteal_direct")?),
    },
    Measure {
        name: "Pages swapped out",
        unit: "",
        less_is_better: true,
        of: |r| delta(r, "pswpout"),
    },
    Measure {
        name: "Pages swapped in",
        unit: "",
        less_is_better: true,
        of: |r| delta(r, "pswpin"),
    },
    Measure {
        name: "Collapsed by khugepaged",
        unit: "",
        less_is_better: false,
        of: |r| delta(r, "thp_collapse_alloc"),
    },
    Measure { name: "Fragmentation events", unit: "", less_is_better: true, of: fragmenting },
    Measure {
        name: "Free blocks for huge pages at the end",
        unit: "",
        less_is_better: false,
        of: free_huge,
    },
];

/// The measure of this name.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn measure(name: &str) -> &'static Measure {
    MEASURES.iter().find(|measure| measure.name == name).expect("a measure of that name")
}

/// A counter as the recorded machine had it, and as the model has it under the same settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Agreement {
    /// The counter, by the kernel's name, or what was summed.
    pub name: &'static str,
    /// There.
    pub recorded: f64,
    /// Here.
    pub model: f64,
}

impl Agreement {
    /// How far they are apart, as a share of the recorded one; nothing where both are too few to tell.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        let is_few = self.recorded.max(self.model) < FEW;
        (!is_few).then(|| (self.model - self.recorded).abs() / self.recorded.max(FEW))
    }
}

/// Fewer events than this come and go from run to run.
const FEW: f64 = 20.0;
/// A model that is further off than this, in the median of the counters, gives no advice.
pub const CREDIBLE: f64 = 0.25;
/// Fewer counters with an error than this judge no model: one or two of them would be the median. Our choice, a third of
/// what is compared; where anything happened that memory had to be found for, there are ten and more.
pub const JUDGED_LEAST: usize = 5;

/// What tasks wait, among what is compared.
pub const STALLED: &str = "ms in reclaim and compaction";

/// What is compared with the recorded machine's own counters.
const COUNTERS: [&str; 14] = [
    "pgfault",
    "thp_fault_alloc",
    "thp_fault_fallback",
    "compact_stall",
    "compact_success",
    "compact_fail",
    "compact_isolated",
    "compact_migrate_scanned",
    "compact_free_scanned",
    "pgmigrate_success",
    "pgsteal_kswapd",
    "pgsteal_direct",
    "pswpout",
    "pswpin",
];

/// The median of the errors, where there are any.
#[must_use]
pub fn median_error(agreement: &[Agreement]) -> Option<f64> {
    median(&mut agreement.iter().filter_map(Agreement::error).collect::<Vec<f64>>())
}

/// The machine file whose costs a machine has that nobody measured.
pub const MACHINE: &str = "guest-tcg";

impl Recorded {
    /// A recording, to be asked. `settings` is what its knobs were; the costs are the machine file's.
    ///
    /// # Errors
    /// The recorded machine is none that the model can be, or its kernel has no file.
    pub fn new(
        recording: Recording,
        settings: Option<&Settings>,
        kernel: KernelFile,
        costs_of: &str,
    ) -> Result<Self, InputError> {
        let mut assumed = Vec::new();
        let present = match settings {
            Some(settings) => present_knobs(settings, &kernel, &mut assumed),
            None => {
                let note = "knobs are as the kernel sets them at boot: the recording has none";
                assumed.push(note.to_owned());
                Knobs::new()
            }
        };
        let defrag = present.get("transparent_hugepage/defrag").map(String::as_str);
        let wanted = Wanted::of(&recording, defrag);
        let mut template = machine::load(costs_of)?;
        assumed.push(format!("work costs what it costs on the machine `{}`", template.name));
        assumed.extend(lend_disks(&mut template, MACHINE)?);
        if template.swap.is_empty() && swap_kib(&recording.before) > 0 {
            let message =
                format!("machine {} has no swap, and the recorded one had", template.name);
            return Err(InputError::other(message));
        }
        let cpu_nodes = recording.cpu_nodes();
        let mut machine = machine_like(&recording.before, &cpu_nodes, &template, &mut assumed)?;
        if let Some(fault) = wanted.told.fault {
            slow_down(&mut machine, fault, &mut assumed);
        }
        if let Some(move_page) = wanted.told.move_page {
            slow_down_moves(&mut machine, move_page, &mut assumed);
        }
        if recording.before.lru.is_empty() {
            assumed.push(
                "LRU lists are in the order of their frames: the recording has none".to_owned(),
            );
        }
        if recording.nr_lost > 0 {
            assumed.push(format!(
                "{} events were lost, and with them what they asked for",
                recording.nr_lost
            ));
        }
        let mut this = Self {
            recording,
            kernel,
            machine,
            present,
            wanted: Arc::new(wanted),
            freed: Vec::new(),
            assumed,
        };
        this.freed = this.freed_areas()?;
        Ok(this)
    }

    /// What was wanted there.
    #[must_use]
    pub fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// The kernel whose rules the model has.
    #[must_use]
    pub fn kernel(&self) -> &KernelFile {
        &self.kernel
    }

    /// The machine that the model is.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The recording.
    #[must_use]
    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    fn restored(&self) -> Result<highorder_model::Found, InputError> {
        let cpu_nodes = self.machine.cpu_nodes();
        let memory = crate::machine::restore(&self.recording.before, &self.kernel, &cpu_nodes)?;
        Ok(with_residents(&self.recording.before, memory))
    }

    /// Anonymous pages that were there before, by where they will be mapped, when they are given back.
    fn freed_areas(&self) -> Result<Vec<(Ns, Area)>, InputError> {
        let found = self.restored()?;
        let places = found.residents.places(&found.memory);
        let mut by_pfn = BTreeMap::new();
        for (&(pfn, order), place) in found.residents.anon.iter().zip(places) {
            let Some(vpn) = place else { continue };
            by_pfn.extend((0..order.pages()).map(|page| (pfn + page, u64::from(vpn.0 + page))));
        }
        let mut freed: Vec<(Ns, Area)> = Vec::new();
        for (at, pfn) in self.given_back(&by_pfn) {
            let first = by_pfn[&pfn];
            match freed.last_mut() {
                Some((last, area)) if *last == at && area.first + area.pages == first => {
                    area.pages += 1;
                }
                _ => freed.push((at, Area { first, pages: 1 })),
            }
        }
        Ok(freed)
    }

    /// Of these pages that were there before, those that were given back or, had reclaim not taken them, would have been.
    fn given_back(&self, anon: &BTreeMap<Pfn, u64>) -> Vec<(Ns, Pfn)> {
        let of_anon = |pages: &[(Ns, Pfn)]| -> Vec<(Ns, Pfn)> {
            pages.iter().filter(|(_, pfn)| anon.contains_key(pfn)).copied().collect()
        };
        let (mut given_back, reclaimed) =
            (of_anon(&self.wanted.given_back), of_anon(&self.wanted.reclaimed));
        let nr_kept = anon.len().saturating_sub(given_back.len() + reclaimed.len());
        let lives: Vec<Life> = given_back
            .iter()
            .map(|&(at, _)| Fate::GivenBack(at))
            .chain(reclaimed.iter().map(|&(at, _)| Fate::Reclaimed(at)))
            .chain(repeat_n(Fate::Kept, nr_kept))
            .map(|fate| Life { born: Ns::ZERO, complete: Ns::ZERO, fate })
            .collect();
        let mut fates = Fates::of(&lives, 0);
        let imputed = reclaimed.iter().filter_map(|&(at, pfn)| Some((fates.draw(at)?, pfn)));
        given_back.extend(imputed);
        given_back.sort_by_key(|&(at, _)| at);
        given_back
    }

    /// Checks knobs that somebody proposes.
    ///
    /// # Errors
    /// A name or value that the kernel does not know, in words.
    pub fn check(&self, proposed: &Knobs) -> Result<(), String> {
        let flows = &self.kernel.flows;
        proposed
            .iter()
            .try_for_each(|(name, value)| check_knob_of(&self.kernel.policy, flows, name, value))
    }

    /// One run under the present knobs with these in place of them.
    ///
    /// # Errors
    /// Less was done than was recorded; or the model could not go on.
    pub fn run(&self, proposed: &Knobs, course: Course) -> Result<Record, NoFigures> {
        let mut found = self.restored().map_err(|error| NoFigures::Fault(error.into()))?;
        found.residents.freed.clone_from(&self.freed);
        found.sets_marks = sets_marks(proposed.keys());
        let mut knobs = self.present.clone();
        knobs.extend(proposed.iter().map(|(name, value)| (name.clone(), value.clone())));
        let mut machine = self.machine.clone();
        machine.costs = drawn_costs(machine.costs, course.seed);
        let nr_finished = Arc::new(AtomicUsize::new(0));
        let code = replayed::code(&self.wanted, &machine.costs, course, &nr_finished);
        let spec = ModelSpec {
            machine,
            policy: self.kernel.policy.clone(),
            flows: self.kernel.flows.clone(),
            knobs,
            seed: course.seed,
            demands: Vec::new(),
            sample_interval: Ns::from_millis(100),
            draw: None,
            watch: None,
        };
        let ran = run_from(found, spec, Inputs::default(), code);
        let nr_tasks = self.wanted.tasks.len() - nr_finished.load(Ordering::Relaxed);
        match ran {
            Ok((record, _)) => match why_unfinished(&record, nr_tasks) {
                None => Ok(record),
                Some(why) => {
                    Err(NoFigures::Unfinished(Unfinished { nr_tasks, why, is_halted: false }))
                }
            },
            Err(error @ RunError::Halted { .. }) => {
                let why = error.to_string();
                Err(NoFigures::Unfinished(Unfinished { nr_tasks, why, is_halted: true }))
            }
            Err(error) => {
                let name = self.recording.name.clone();
                Err(NoFigures::Fault(ExecuteError::Run { name, error }.into()))
            }
        }
    }

    /// Runs of each of these settings with each seed, over so many workers. `progress` is told of every run that ended.
    ///
    /// # Errors
    /// Of the first run whose state could not be restored, or in which the model could not go on.
    pub fn ask(
        &self,
        settings: &[Knobs],
        seeds: u64,
        loops: u32,
        workers: NonZeroUsize,
        progress: &(dyn Fn() + Sync),
    ) -> Result<Vec<Answer>, Failed> {
        let courses: Vec<Course> = (0..seeds).map(|seed| Course { loops, seed }).collect();
        let jobs: Vec<(usize, Course)> = (0..settings.len())
            .flat_map(|at| courses.iter().map(move |&course| (at, course)))
            .collect();
        let next = AtomicUsize::new(0);
        let done: Mutex<Vec<Option<Result<Record, NoFigures>>>> =
            Mutex::new(jobs.iter().map(|_| None).collect());
        let work = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(&(at, course)) = jobs.get(number) else { return };
                let ran = self.run(&settings[at], course);
                done.lock().unwrap_or_else(PoisonError::into_inner)[number] = Some(ran);
                progress();
            }
        };
        thread::scope(|scope| {
            for _ in 0..workers.get().min(jobs.len()) {
                scope.spawn(work);
            }
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter();
        let mut answers = Vec::with_capacity(settings.len());
        for _ in settings {
            let mut answer = Answer { records: Vec::new(), unfinished: Vec::new() };
            for ran in done.by_ref().take(courses.len()).flatten() {
                match ran {
                    Ok(record) => answer.records.push(record),
                    Err(NoFigures::Unfinished(run)) => answer.unfinished.push(run),
                    Err(NoFigures::Fault(why)) => return Err(why),
                }
            }
            answers.push(answer);
        }
        Ok(answers)
    }

    /// How the model's counters compare with the recorded machine's, in the median of runs; nothing where its own were not
    /// recorded before and after. `present` are runs under the present settings, once
    /// through the recording.
    #[must_use]
    pub fn agreement(&self, present: &Answer) -> Vec<Agreement> {
        let Some(recorded) = self.recorded_counters() else { return Vec::new() };
        let with_parts = |counters: &BTreeMap<String, f64>, name: &str| {
            counters.get(name).copied().or_else(|| {
                // Counted by zone before 4.8.
                let parts = counters.iter().filter(|(part, _)| {
                    part.strip_prefix(name).is_some_and(|rest| rest.starts_with('_'))
                });
                parts.map(|(_, nr)| *nr).reduce(|a, b| a + b)
            })
        };
        let model: Vec<BTreeMap<String, f64>> = present
            .records
            .iter()
            .map(|record| {
                let names = record.after.counters.keys();
                names.filter_map(|name| Some((name.clone(), delta(record, name)?))).collect()
            })
            .collect();
        let counted = |name: &str| -> Vec<f64> {
            model.iter().filter_map(|counters| with_parts(counters, name)).collect()
        };
        let compared = COUNTERS.iter().filter_map(|&name| {
            Some(Agreement {
                name,
                recorded: with_parts(&recorded, name)?,
                model: median(&mut counted(name))?,
            })
        });
        let waited_ms = |record: &Record| {
            let classes = ["stall-direct-reclaim", "stall-direct-compaction"];
            let all = classes.iter().filter_map(|class| record.latencies.get(*class));
            all.map(|latencies| latencies.sum_ns()).sum::<u64>() as f64 / 1e6
        };
        let mut waits: Vec<f64> = present.records.iter().map(waited_ms).collect();
        let stalled = median(&mut waits).map(|model| Agreement {
            name: STALLED,
            recorded: self.wanted.told.stalled.0 as f64 / 1e6,
            model,
        });
        compared.chain(stalled).collect()
    }

    fn recorded_counters(&self) -> Option<BTreeMap<String, f64>> {
        let read = |snapshot: &highorder_snapshot::Snapshot| {
            Vmstat::parse("vmstat", snapshot.files.get("vmstat")?).ok()
        };
        let (before, after) =
            (read(&self.recording.before)?, read(self.recording.after.as_ref()?)?);
        let deltas = after.counters.iter().filter_map(|(name, value)| {
            let before = before.counters.get(name)?;
            Some((name.to_owned(), value as f64 - before as f64))
        });
        Some(deltas.collect())
    }
}

/// The record of a run of this name, if its program came to its end; else why it did not.
pub(crate) fn completed<T>(
    name: &str,
    ran: Result<(Record, T), RunError>,
) -> Result<Record, Failed> {
    let (record, _) = ran.map_err(|error| ExecuteError::Run { name: name.to_owned(), error })?;
    match ended_early(&record) {
        Some(why) => Err(InputError::other(ended_early_note(why)).into()),
        None => Ok(record),
    }
}

/// Why less was done in a run than was recorded, if it was: the workload ended early, or processes were killed.
fn why_unfinished(record: &Record, nr_tasks: usize) -> Option<String> {
    if let Some(why) = ended_early(record) {
        return Some(format!("the workload ended early ({why})"));
    }
    let nr_killed = record.notes.iter().filter(|note| killed_process(note).is_some()).count();
    if nr_killed == 0 {
        assert_eq!(nr_tasks, 0, "a task that is not killed finishes, or ends the workload");
        return None;
    }
    let were = if nr_killed == 1 { "process was" } else { "processes were" };
    Some(format!("{} {were} killed, as memory ran out", text::count(nr_killed as u64)))
}

/// The settings that lie beside a recording's trace, if they do.
///
/// # Errors
/// The file cannot be read, or is not one of settings.
pub fn recorded_settings(recording: &Path) -> Result<Option<Settings>, InputError> {
    let files = RecordingFiles::open(recording)?;
    let Some(text) = files.file(SETTINGS)? else { return Ok(None) };
    Settings::parse(&files.label(SETTINGS), &text).map(Some)
}

/// A recording's file of settings.
const SETTINGS: &str = "settings";

/// The knobs that the model has, as they were set.
pub(crate) fn present_knobs(
    settings: &Settings,
    kernel: &KernelFile,
    assumed: &mut Vec<String>,
) -> Knobs {
    let value_of = |name: &str| {
        let path = match name.split_once('.') {
            Some((folder @ ("vm" | "kernel"), rest)) => format!("/proc/sys/{folder}/{rest}"),
            _ => format!("/sys/kernel/mm/{name}"),
        };
        let value = settings.get(&path)?;
        Some(value.chosen().map_or_else(|| value.to_string(), str::to_owned).trim().to_owned())
    };
    let known = knobs().iter().filter_map(|knob| Some((knob.name, value_of(knob.name)?)));
    let mut present = Knobs::new();
    for (name, value) in known {
        match check_knob_of(&kernel.policy, &kernel.flows, name, &value) {
            Ok(()) => drop(present.insert(name.to_owned(), value)),
            Err(why) => assumed.push(format!("a knob of the recording is left aside: {why}")),
        }
    }
    present
}

/// Costs as they may be as well as those measured: with each seed but 0, each is up to a fiftieth more or less. Calibrating
/// again changes them by as much, and where chance decides, that is enough for it to decide otherwise.
fn drawn_costs(costs: Costs, seed: u64) -> Costs {
    if seed == 0 {
        return costs;
    }
    let mut rng = Pcg64::new(u128::from(seed), COSTS);
    costs.map(|_, cost| {
        let permille = 980 + u64::from(rng.next_u32()) % 41;
        Cost::of_ns((cost.picoseconds() * permille) as f64 / 1e6, "drawn within a fiftieth")
    })
}

/// Makes work cost as much more, or less, than on the machine whose costs these are as a fault does.
fn slow_down(machine: &mut Machine, fault: Ns, assumed: &mut Vec<String>) {
    let costs = &machine.costs;
    let own = [&costs.fault_entry, &costs.clear_base_page, &costs.local_access];
    let own: u64 = own.iter().map(|cost| cost.picoseconds()).sum();
    let times = fault.0 as f64 * 1000.0 / own as f64;
    let source = "as a fault takes where it was recorded";
    machine.costs = machine
        .costs
        .clone()
        .map(|_, cost| Cost::of_ns(cost.picoseconds() as f64 / 1000.0 * times, source));
    assumed.push(format!(
        "all work takes {times:.2} times as long as there, as a fault did with its tracing: {:.1} us",
        fault.0 as f64 / 1000.0
    ));
}

/// Makes moving a page take as long as it did there: each page that is isolated is traced, which moving it pays for here.
fn slow_down_moves(machine: &mut Machine, move_page: Ns, assumed: &mut Vec<String>) {
    let costs = &machine.costs;
    // Unmapped and mapped again, off its list and onto one.
    let walks = [&costs.rmap_walk, &costs.rmap_walk];
    let parts = walks.into_iter().chain([&costs.list_op, &costs.list_op, &costs.copy_base_page]);
    let parts: u64 = parts.map(Cost::picoseconds).sum();
    let rest = (move_page.0 * 1000).saturating_sub(parts);
    if rest <= costs.move_page.picoseconds() {
        return;
    }
    let source = "as compaction takes for a page where it was recorded";
    machine.costs.move_page = Cost::of_ns(rest as f64 / 1000.0, source);
    assumed.push(format!(
        "moving a page takes {:.0} us, as compaction did with its tracing",
        move_page.0 as f64 / 1000.0
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_cannot_go_on_is_told_apart_from_a_program_that_ended_early() {
        let error = RunError::Deadlock { at: Ns::ZERO, waiting: Vec::new() };
        let failed = completed::<()>("churn", Err(error)).unwrap_err();
        assert!(matches!(failed, Failed::Run(ExecuteError::Run { .. })), "{failed}");
        let mut record = Record::new(Inputs::default());
        record.notes.push(ended_early_note("it was killed"));
        let failed = completed("churn", Ok((record, ()))).unwrap_err();
        assert!(matches!(failed, Failed::Input(_)), "{failed}");
    }
}
