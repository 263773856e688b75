//! `highorder what-if`: a recorded machine under other settings.

mod advise;
mod told;

pub(crate) use advise::{Arguments as AdviseArguments, run as advise};

use crate::cli::nr_workers;
use crate::complete;
use crate::failure::Failure;
use crate::output::{self, VERSION};
use clap::{ArgGroup, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use highorder_kernels::KernelFile;
use highorder_lab::Recording;
use highorder_lab::what_if::{Answer, Knobs, MACHINE, Recorded, median_error, recorded_settings};
use highorder_tables::{Table, text};
use serde_json::json;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;
use told::{AgreementShown, changes_told, unfinished_told};

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables to read
    Text,
    /// One object
    Json,
    /// The table of measures
    Csv,
    /// Tables for Markdown
    Md,
}

/// The machine that is asked, and how.
#[derive(clap::Args)]
struct Asked {
    /// The recording: a folder or file of `highorder record`
    #[arg(value_name = "RECORDING")]
    recording: PathBuf,
    /// How often the recorded demand is gone through; each further time begins somewhere else in it and goes around
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    loops: u32,
    /// Runs of each setting: the first as recorded; in each other one tasks begin up to a millisecond later, and work takes
    /// up to a fiftieth more or less
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// The kernel whose rules the model has: a kernel file, or the name of a built-in one [default: the
    /// recorded one]
    #[arg(long, value_name = "KERNEL", add = ArgValueCompleter::new(complete::kernels))]
    kernel: Option<String>,
    /// The machine whose costs work has, as `calibrate` measures them, and whose disks there are; without any, the disks are
    /// the default machine's
    #[arg(long, value_name = "MACHINE", default_value = MACHINE, add = ArgValueCompleter::new(complete::machines))]
    machine: String,
    /// Runs at once [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = nr_workers)]
    workers: Option<NonZeroUsize>,
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// What to change, and how to ask.
#[derive(clap::Args)]
#[command(group(ArgGroup::new("proposed").args(["set", "vary"]).required(true).multiple(true)))]
#[command(after_help = "\
RECORDING says what tasks asked for, how long they kept it, and the state of every page when it began; `highorder \
record` makes one, and so does tests/guest/record.sh. The model goes through that demand from that state: under the \
recorded settings, and under each proposed one. Reclaim, compaction and swap are its own. Nothing of this machine is \
changed.

The first lines say what would become of it. How well the model repeats what the recorded kernel counted under its own settings stands \
below; where that is poor, there is no advice.

Examples:
  highorder what-if tests/data/recordings/612-rec-churn --set transparent_hugepage/defrag=defer
  highorder what-if tests/data/recordings/612-rec-churn --vary vm.compaction_proactiveness=0,20,80")]
pub(crate) struct Arguments {
    #[command(flatten)]
    asked: Asked,
    /// Set this knob; several together are one proposal
    #[arg(long, value_name = "KNOB=VALUE", value_parser = one_value)]
    set: Vec<(String, String)>,
    /// Try each of these values, a column each, with what --set says
    #[arg(long, value_name = "KNOB=A,B,C", value_parser = values)]
    vary: Option<(String, Vec<String>)>,
}

fn one_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("expected KNOB=VALUE, such as transparent_hugepage/defrag=defer".to_owned()),
    }
}

fn values(text: &str) -> Result<(String, Vec<String>), String> {
    let (name, values) = one_value(text)?;
    let values: Vec<String> = values.split(',').map(str::to_owned).collect();
    if values.iter().any(String::is_empty) {
        return Err("expected KNOB=A,B,C, a value between all commas".to_owned());
    }
    match twice(&values) {
        Some(value) => Err(format!("{value} is there twice, expected each value once")),
        None => Ok((name, values)),
    }
}

/// The first that was there before.
fn twice<T: PartialEq>(all: &[T]) -> Option<&T> {
    all.iter().enumerate().find(|&(at, one)| all[..at].contains(one)).map(|(_, one)| one)
}

/// Something that was proposed.
struct Proposal {
    label: String,
    knobs: Knobs,
}

/// Asks the model, and tells what it said.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    arguments.check()?;
    let proposals = arguments.proposals();
    let recorded = arguments.asked.read()?;
    for proposal in &proposals {
        recorded.check(&proposal.knobs).map_err(Failure::input)?;
    }
    let mut settings = vec![Knobs::new()];
    settings.extend(proposals.iter().map(|proposal| proposal.knobs.clone()));
    let answers = arguments.asked.ask(&recorded, &settings)?;
    let shown = arguments.asked.agreement(&recorded, &answers[0])?;
    let labels: Vec<&str> = proposals.iter().map(|proposal| proposal.label.as_str()).collect();
    none_goes_on(&labels, &answers[1..])?;
    let table = told::measures("What would come of it", &labels, &answers);
    let nr_tasks = recorded.wanted().tasks.len();
    let mut first = Vec::new();
    if !shown.is_credible {
        first.push(shown.verdict());
    }
    first.extend(changes_told(&labels, &answers, nr_tasks, &shown));
    arguments.asked.print(&recorded, &first, &[table], &shown)
}

/// Refuses settings under none of which the machine goes on.
fn none_goes_on(labels: &[&str], proposed: &[Answer]) -> Result<(), Failure> {
    let halted: Option<Vec<&str>> = proposed.iter().map(Answer::halted).collect();
    match halted {
        None => Ok(()),
        Some(all) => {
            let told = labels.iter().zip(all).map(|(label, why)| format!("with {label}, {why}"));
            Err(Failure::input(told.collect::<Vec<_>>().join("; ")))
        }
    }
}

impl Arguments {
    /// Refuses a knob with two values in one proposal.
    fn check(&self) -> Result<(), Failure> {
        let varied = self.vary.iter().map(|(name, _)| name);
        let names: Vec<&String> = self.set.iter().map(|(name, _)| name).chain(varied).collect();
        match twice(&names) {
            Some(name) => Err(Failure::input(format!(
                "{name} is given twice, expected one --set or --vary of each knob"
            ))),
            None => Ok(()),
        }
    }

    fn proposals(&self) -> Vec<Proposal> {
        let set: Knobs = self.set.iter().cloned().collect();
        let label = |knobs: &Knobs| {
            let words: Vec<String> =
                knobs.iter().map(|(name, value)| format!("{name}={value}")).collect();
            words.join(" ")
        };
        let Some((name, values)) = &self.vary else {
            return vec![Proposal { label: label(&set), knobs: set }];
        };
        let with = |value: &String| {
            let mut knobs = set.clone();
            knobs.insert(name.clone(), value.clone());
            Proposal { label: format!("{name}={value}"), knobs }
        };
        values.iter().map(with).collect()
    }
}

impl Asked {
    fn read(&self) -> Result<Recorded, Failure> {
        let kernel = self.kernel.as_deref().map(KernelFile::load).transpose()?;
        let spinner = output::progress(None, "reading the recording");
        let recording = Recording::read(&self.recording)?;
        let settings = recorded_settings(&self.recording)?;
        let kernel = match kernel {
            Some(kernel) => kernel,
            None => crate::replay::recorded_kernel(&recording, &self.recording)?,
        };
        let recorded = Recorded::new(recording, settings.as_ref(), kernel, &self.machine)?;
        spinner.finish_and_clear();
        if recorded.wanted().nr_uses() == 0 {
            return Err(Failure::input(format!(
                "{}: no task asked for memory while it was recorded, expected some that did",
                self.recording.display()
            )));
        }
        Ok(recorded)
    }

    fn ask(&self, recorded: &Recorded, settings: &[Knobs]) -> Result<Vec<Answer>, Failure> {
        self.ask_for(recorded, settings, self.loops)
    }

    fn ask_for(
        &self,
        recorded: &Recorded,
        settings: &[Knobs],
        loops: u32,
    ) -> Result<Vec<Answer>, Failure> {
        let workers = self.workers();
        let bar = output::progress(Some(settings.len() as u64 * self.seeds), "runs");
        let answers = recorded.ask(settings, self.seeds, loops, workers, &|| bar.inc(1));
        bar.finish_and_clear();
        answers.map_err(Failure::from)
    }

    /// How the model repeats what was recorded: once through it. A machine that comes to its end under its own settings
    /// is refused.
    fn agreement(&self, recorded: &Recorded, asked: &Answer) -> Result<AgreementShown, Failure> {
        let once;
        let present = match self.loops {
            1 => asked,
            _ => {
                once = self.ask_for(recorded, &[Knobs::new()], 1)?;
                &once[0]
            }
        };
        let all = [asked, present];
        if let Some(why) = all.iter().find_map(|answer| answer.halted()) {
            return Err(Failure::input(format!(
                "{}: under the present settings, {why}",
                self.recording.display()
            )));
        }
        let without = all.into_iter().find(|answer| answer.records.is_empty());
        let nr_tasks = recorded.wanted().tasks.len();
        let unfinished = without
            .and_then(|answer| unfinished_told("under the present settings", answer, nr_tasks));
        Ok(AgreementShown::new(recorded.agreement(present), unfinished))
    }

    fn workers(&self) -> NonZeroUsize {
        self.workers.or_else(|| thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN)
    }

    fn print(
        &self,
        recorded: &Recorded,
        first: &[String],
        tables: &[Table],
        shown: &AgreementShown,
    ) -> Result<(), Failure> {
        let headline = headline(recorded);
        let agreement = shown.table();
        let text = match self.format {
            Format::Csv => tables.iter().map(Table::csv).collect(),
            Format::Json => {
                let documents: Result<Vec<serde_json::Value>, _> =
                    tables.iter().map(|table| serde_json::from_str(&table.json())).collect();
                let agreement: Result<serde_json::Value, _> =
                    serde_json::from_str(&agreement.json());
                output::json(&json!({
                    "recording": headline,
                    "says": first,
                    "tables": documents.map_err(|error| Failure::internal(error.to_string()))?,
                    "agreement": agreement.map_err(|error| Failure::internal(error.to_string()))?,
                    "median_error": median_error(&shown.rows),
                    "is_credible": shown.is_credible,
                    "assumed": recorded.assumed,
                    "version": VERSION,
                }))?
            }
            Format::Text | Format::Md => {
                let mut out = String::new();
                for line in first {
                    out.push_str(line);
                    out.push('\n');
                }
                out.push_str(&format!("\n{headline}\n"));
                for table in tables.iter().chain([&agreement]) {
                    out.push('\n');
                    out.push_str(&if self.format == Format::Md {
                        table.markdown()
                    } else {
                        table.text()
                    });
                }
                out.push_str(&format!("\n{}\n", shown.verdict()));
                out.push_str("\nAssumed:\n");
                for line in &recorded.assumed {
                    out.push_str(&format!("- {line}\n"));
                }
                out.push_str(&format!("\n{VERSION}\n"));
                out
            }
        };
        output::print(text.as_bytes())
    }
}

/// What was recorded: `612-rec-churn: 8.1 s of Linux 6.12..., 3 tasks, 412 requests`.
fn headline(recorded: &Recorded) -> String {
    let (recording, wanted) = (recorded.recording(), recorded.wanted());
    let release = recording.before.kernel_release.as_deref().unwrap_or("an unknown release");
    format!(
        "{}: {:.1} s of Linux {release}, {} that asked {} times for memory; in the model {}",
        recording.name,
        wanted.length.as_secs_f64(),
        text::counted(wanted.tasks.len() as u64, "task"),
        text::count(wanted.nr_uses() as u64),
        recorded.kernel().name,
    )
}
