//! `highorder reproduce`: the experiments that postings published, and whether ours show the same.

mod report;

use crate::compare::{self, DEFAULT_STORE};
use crate::failure::Failure;
use crate::output::{self, Force, PictureFile};
use crate::run::Reuse;
use clap::ValueEnum;
use highorder_lab::reproduce::{Reproduction, reproductions};
use highorder_lab::{Plan, Scale};
use highorder_record::{Record, Store};
use report::{Part, Report};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;

/// What to reproduce, and how to show it.
#[derive(clap::Args)]
#[command(after_help = "\
Postings about memory management printed tables, and said what they show. The experiments that repeat them \
are run on the model, as far as the store does not have their runs; then the tables are shown with ours \
beside the published values, and each claim with what became of it:

  held      what has to be true of the numbers is true of ours
  failed    it is not
  not run   a number is missing: the column says what to run
  prose     the claim is in words, and no program judges it

A claim must hold, should, or may. A published row is the same way if its value rose or fell from the \
table's first column as ours did. The exit code is 0 even where claims fail: what is shown is a finding.

At less than full scale ours has less memory and does less on it. Amounts (pages, bytes, faults, events, \
seconds) are then shown as of full size: divided by the scale. Files by second are smaller ones, and are \
multiplied by it. Shares, other rates and the time of a single fault are shown as they are.

Examples:
  highorder reproduce --only 002_mmap_demo --scale 1/64
  highorder reproduce --scale 1/16 --score")]
pub(crate) struct Arguments {
    /// Only these: a document's number, tables, or an experiment, such as 000,002_mmap_demo,lumpy-fsmark
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    only: Vec<String>,
    /// Only the score: how many claims hold, and how many published rows go the same way
    #[arg(long)]
    score: bool,
    /// Run nothing; what the store does not have counts as not run
    #[arg(long)]
    no_run: bool,
    #[command(flatten)]
    reuse: Reuse,
    /// Shrink memory, swap and sizes together to this share; CPUs stay
    #[arg(long, value_name = "RATIO", default_value = "1")]
    scale: Scale,
    /// The folder of records
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STORE)]
    store: PathBuf,
    /// Runs at once [default: one for each CPU]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Write into this file instead of printing
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Draw by how much each published row changed, beside ours
    #[arg(long, value_name = "FILE.png|FILE.svg")]
    picture: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
}

/// The form of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables to read
    #[default]
    Text,
    /// One object
    Json,
    /// One table: of the claims, or with --score of the score
    Csv,
    /// Tables for Markdown
    Md,
    /// One page for a browser, with the picture; works offline
    Html,
}

/// Runs what is missing, then shows what became of it.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let out = arguments.force.destination(arguments.out.as_deref())?;
    let picture = arguments.force.picture(arguments.picture.as_deref())?;
    let chosen = choose(&arguments.only)?;
    let store = Store::open(&arguments.store)?;
    let plans: Vec<Plan> = chosen
        .iter()
        .map(|reproduction| {
            let plan = reproduction.experiment.plan(arguments.scale)?;
            arguments.reuse.applied(plan, &store)
        })
        .collect::<Result<_, Failure>>()?;
    if !arguments.no_run {
        let cpus = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let workers = arguments.workers.unwrap_or(cpus);
        crate::run::execute(&joined(&plans), &store, workers, &arguments.again())?;
    }
    let records: Vec<Vec<Vec<Record>>> =
        plans.iter().map(|plan| plan.records(&store)).collect::<Result<_, _>>()?;
    let parts =
        chosen.iter().zip(plans.iter().zip(&records)).map(|(reproduction, (plan, records))| {
            Part::new(reproduction, arguments.scale.into(), plan, records)
        });
    let report = Report::new(parts.collect(), &arguments.only, arguments.what());
    let text = match arguments.format {
        Format::Text => report.text(arguments.score),
        Format::Md => report.markdown(arguments.score),
        Format::Csv if arguments.score => report.score_table().csv(),
        Format::Csv => report.claims_table(report::Words::Whole).csv(),
        Format::Json => report.json()?,
        Format::Html => report.html(arguments.score)?,
    };
    match &out {
        None => {
            let pictures = picture.iter().map(PictureFile::destination);
            output::print_beside(text.as_bytes(), pictures)?;
        }
        Some(out) => output::write(out, text.as_bytes())?,
    }
    picture.map_or(Ok(()), |picture| picture.write(&report.picture()))
}

/// The experiments that the words choose; all, if there are no words.
fn choose(only: &[String]) -> Result<Vec<Reproduction>, Failure> {
    let mut all = reproductions()?;
    if only.is_empty() {
        return Ok(all);
    }
    let known = all.clone();
    let unknown = only.iter().find(|word| {
        word.is_empty() || !known.iter().any(|one| one.is_chosen(std::slice::from_ref(word)))
    });
    if let Some(word) = unknown {
        let known: Vec<String> = known
            .iter()
            .map(|one| format!("{} ({})", one.form.name, one.experiment.name))
            .collect();
        return Err(Failure::input(format!(
            "--only: `{word}` names no published tables that an experiment repeats, expected the beginning \
             of {}",
            known.join(", ")
        )));
    }
    all.retain(|one| one.is_chosen(only));
    Ok(all)
}

/// All runs as those of one plan, so that one bar shows how far they are.
fn joined(plans: &[Plan]) -> Plan {
    let mut all = Plan { runs: Vec::new(), columns: Vec::new() };
    for plan in plans {
        let before = all.columns.len();
        all.columns.extend(plan.columns.iter().cloned());
        all.runs.extend(plan.runs.iter().cloned().map(|mut run| {
            run.column += before;
            run
        }));
    }
    all
}

impl Arguments {
    /// The command line for the same results.
    fn what(&self) -> String {
        let mut words = vec!["highorder".to_owned(), "reproduce".to_owned()];
        if !self.only.is_empty() {
            words.extend(["--only".to_owned(), self.only.join(",")]);
        }
        if self.scale != Scale::FULL {
            words.extend(["--scale".to_owned(), self.scale.to_string()]);
        }
        for (flag, is_set) in [("--score", self.score), ("--no-run", self.no_run)] {
            words.extend(is_set.then(|| flag.to_owned()));
        }
        words.extend(self.reuse.words());
        words.extend(compare::store_words(&self.store));
        if let Some(format) =
            self.format.to_possible_value().filter(|_| self.format != Format::Text)
        {
            words.extend(["--format".to_owned(), format.get_name().to_owned()]);
        }
        output::shell_command(words.iter().map(String::as_str))
    }

    /// The command line that goes on where this one stopped.
    fn again(&self) -> String {
        let mut words = Vec::new();
        words.extend(self.workers.iter().flat_map(|n| ["--workers".to_owned(), n.to_string()]));
        for (flag, path) in [("--out", &self.out), ("--picture", &self.picture)] {
            words.extend(path.iter().flat_map(|p| [flag.to_owned(), p.display().to_string()]));
        }
        words.extend(self.force.words());
        if words.is_empty() {
            return self.what();
        }
        format!("{} {}", self.what(), output::shell_command(words.iter().map(String::as_str)))
    }
}
