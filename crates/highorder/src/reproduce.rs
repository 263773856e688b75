//! `highorder reproduce`: the experiments that postings published, and whether ours show the same.

mod across;
mod pages;
mod part;
mod report;
mod score;

use crate::cli::nr_workers;
use crate::compare::{self, DEFAULT_STORE};
use crate::failure::Failure;
use crate::output::{self, Force, PictureFile};
use crate::run::Reuse;
use across::Machines;
use clap::ValueEnum;
use highorder_lab::reproduce::{Reproduction, reproductions};
use highorder_lab::unknowns::{MACHINES_MAX, MachineNumber, Unknowns};
use highorder_lab::{Plan, Scale};
use highorder_record::{Store, published};
use part::Part;
use report::Report;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
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
  prose     the claim is in words: a test shows it, or there is a reason why it is not judged

A claim must hold, should, or may. A published row is the same way if its value rose or fell from the \
table's first column as ours did. The exit code is 0 even where claims fail: what is shown is a finding.

What documents do not say of their machines - how fragmented memory was, how fast it and the disk were - is named \
in published/unknowns.toml, with ranges from public sources. --machines N runs everything on N machines: the \
nominal one, as its file has it, and others drawn from these ranges, the same ones for everybody. A claim is then

  robust    if it holds on at least nine tenths of them
  possible  if it holds on some; the table says which unknown decides, and where
  failed    if it holds on none

At less than full scale ours has less memory and does less on it. Amounts (pages, bytes, faults, events, \
seconds) are then shown as of full size: divided by the scale. Files by second are smaller ones, and are \
multiplied by it. Shares, other rates and the time of a single fault are shown as they are.

Examples:
  highorder reproduce --only 002_mmap_demo --scale 1/64
  highorder reproduce --scale 1/16 --score
  highorder reproduce --only 000_stutter --scale 1/16 --machines 16 --csv tables
  highorder reproduce --scale 1/16 --score --report report")]
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
    /// Machines to run everything on: the nominal one, and others drawn from what documents do not say
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MACHINES_MAX)))]
    machines: u32,
    /// The folder of records
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STORE)]
    store: PathBuf,
    /// Runs at once [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = nr_workers)]
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
    /// Also write every table of ours into this folder, in the form of published/*.csv; those of drawn machines
    /// into folders in it
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,
    /// Also write the report into this folder: a page for each document, and index.html; works offline
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
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
    if let Some(folder) = &arguments.csv {
        let names = published::file_names().into_iter().map(csv_name);
        highorder_files::check_folder(folder, names, arguments.force.replace())?;
    }
    if let Some(folder) = &arguments.report {
        highorder_files::check_folder(folder, pages::file_names(), arguments.force.replace())?;
    }
    let chosen = choose(&arguments.only)?;
    let unknowns = Unknowns::built_in()?;
    let numbers: Vec<MachineNumber> =
        (1..=arguments.machines).filter_map(MachineNumber::new).collect();
    let store = Store::open(&arguments.store)?;
    let reused = |plan| arguments.reuse.applied(plan, &store);
    let plans = plans(&chosen, &unknowns, &numbers, arguments.scale, reused)?;
    if !arguments.no_run {
        let cpus = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let workers = arguments.workers.unwrap_or(cpus);
        // The nominal machine's first, and those of a machine whatever number of them there is.
        let by_machine = (0..numbers.len()).flat_map(|n| plans.iter().map(move |plans| &plans[n]));
        crate::run::execute(&joined(by_machine), &store, workers, &arguments.again())?;
    }
    let mut parts = Vec::new();
    for (reproduction, plans) in chosen.iter().zip(&plans) {
        let scale = arguments.scale.into();
        let mut part = Part::new(reproduction, scale);
        for plan in plans {
            part.add(reproduction, scale, plan, plan.records(&store)?);
        }
        parts.push(part);
    }
    let machines = Machines::new(numbers, &unknowns, &chosen);
    let report = Report::new(parts, machines, &arguments.only, arguments.what());
    if let Some(folder) = &arguments.csv {
        write_tidy(folder, &report, arguments.force)?;
    }
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
    if let Some(picture) = picture {
        picture.write(&report.picture())?;
    }
    match &arguments.report {
        None => Ok(()),
        Some(folder) => write_pages(folder, &report, arguments),
    }
}

/// Writes the report; the index, from which one reaches all of it, is told last.
fn write_pages(folder: &Path, report: &Report, arguments: &Arguments) -> Result<(), Failure> {
    let pages = report.pages(arguments.scale)?;
    let pages = pages.into_iter().map(|(name, text)| (name, text.into_bytes()));
    output::write_into(folder, pages, arguments.force)
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

/// The runs of each experiment on each machine.
fn plans(
    chosen: &[Reproduction],
    unknowns: &Unknowns,
    numbers: &[MachineNumber],
    scale: Scale,
    reused: impl Fn(Plan) -> Result<Plan, Failure>,
) -> Result<Vec<Vec<Plan>>, Failure> {
    let of = |one: &Reproduction| {
        let on = |number: &MachineNumber| {
            reused(unknowns.on_machine(&one.experiment, *number)?.plan(scale)?)
        };
        numbers.iter().map(on).collect()
    };
    chosen.iter().map(of).collect()
}

/// All runs as those of one plan, so that one bar shows how far they are.
fn joined<'a>(plans: impl Iterator<Item = &'a Plan>) -> Plan {
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

fn csv_name(stem: &str) -> String {
    format!("{stem}.csv")
}

/// Writes what was measured in the form of the published files.
fn write_tidy(folder: &Path, report: &Report, force: Force) -> Result<(), Failure> {
    let mut files = report.tidy();
    files.sort();
    for of_machine in files.chunk_by(|one, next| one.0 == next.0) {
        let texts =
            of_machine.iter().map(|(_, name, text)| (csv_name(name), text.clone().into_bytes()));
        output::write_into(&folder.join(&of_machine[0].0), texts, force)?;
    }
    Ok(())
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
        if self.machines > 1 {
            words.extend(["--machines".to_owned(), self.machines.to_string()]);
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
        let places = [
            ("--out", &self.out),
            ("--picture", &self.picture),
            ("--csv", &self.csv),
            ("--report", &self.report),
        ];
        for (flag, path) in places {
            words.extend(path.iter().flat_map(|p| [flag.to_owned(), p.display().to_string()]));
        }
        words.extend(self.force.words());
        if words.is_empty() {
            return self.what();
        }
        format!("{} {}", self.what(), output::shell_command(words.iter().map(String::as_str)))
    }
}
