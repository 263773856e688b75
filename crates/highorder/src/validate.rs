//! `highorder validate`: the model beside real kernels, case by case.

use crate::cli::nr_workers;
use crate::complete;
use crate::failure::Failure;
use crate::output::{self, Force, PictureFile, VERSION};
use crate::run::SOURCES;
use crate::shipped_cases;
use clap_complete::engine::ArgValueCompleter;
use highorder_kernels::{KernelFile, machine};
use highorder_lab::validate::{
    BLOCKS_NAME, Case, Change, Compared, Differently, FALLBACKS_NAME, FRAGMENTING_NAME,
    FREE_PAGES_NAME, HUGE_SHARE_NAME, Judged, Made, Noise, OfKernel, OrderAgreement, Outcome,
    Quantity, RealSpread, Repeats, Row, by_kernel, case_folders, changes, live,
    median_relative_error, order_agreement,
};
use highorder_lab::{Failed, RealOptions, Target};
use highorder_record::Store;
use highorder_report::{Caption, ScatterChart, Series};
use highorder_sim::Machine;
use highorder_tables::text::counted;
use highorder_tables::{Table, Value};
use serde_json::json;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Which cases, and in which form.
#[derive(clap::Args)]
#[command(after_help = "\
A case is a folder with what a real kernel's /proc said before/ and after/ a workload, and a case.json \
that says what ran. The model gets the same zones, marks and free memory, the kernel file of that \
release and the same settings, and does the same work. Compared are the rise of each counter, the share \
of anonymous memory that lay in huge pages at the workload's end, how much of what passes asked for they were \
given, fallbacks to other types' memory, and \
how far the free blocks and free pages lie apart afterwards: 0 where both have the same share of them in \
each zone, order and type, 1 where no place has any of both.

The model runs three times for each case, or --runs N. Where two tasks ask for the last free block, a microsecond \
decides who gets it, in a real kernel as in the model; so each run's CPUs are slower than the last's by a hundredth, \
and every figure of the model is the median of its runs, beside the least and the most.

The relative error is the distance as a share of the real figure, or of a floor where that is larger: 512 \
pages, 16 events, 8 fallbacks, a tenth of anonymous memory or of what was asked for. How far free blocks lie apart is an error by \
itself. Cases that differ in one setting are also compared with each other: does the model put them in \
the same order? So are kernels that did the same work: does what changed from one to the next change in the \
model as well? Where a case was recorded more than once, its runs are compared with each other, too: no model can be \
nearer to a kernel than that is to itself, and what differs by no more than repeats do is not counted as different. \
Cases that cannot be compared are listed with what is missing: a kernel file, a program, a \
setting that the kernel does not have.

Examples:
  highorder validate --only small-usemem
  highorder validate --only small-usemem120 --store both
  highorder validate --picture model-against-real.png")]
pub(crate) struct Arguments {
    /// A folder of cases, or one case, instead of those that come with the program
    #[arg(long, value_name = "DIR", conflicts_with = "live")]
    cases: Option<PathBuf>,
    /// Instead of recorded cases, boot this kernel image now, as `run --on vm:IMAGE` does, and compare with
    /// that; may be given several times
    #[arg(long, value_name = "IMAGE")]
    live: Vec<String>,
    /// The experiments that --live runs
    #[arg(long, value_name = "EXPERIMENT", add = ArgValueCompleter::new(complete::experiments), default_values_t = ["usemem-small".to_owned(), "swap-small".to_owned()])]
    experiment: Vec<String>,
    /// Only cases whose name holds this text; may be given several times
    #[arg(long = "only", value_name = "TEXT", conflicts_with = "live")]
    only: Vec<String>,
    /// The model's kernel: a kernel file's name or path, instead of the one of each case's release
    #[arg(long, value_name = "KERNEL")]
    kernel: Option<String>,
    /// The machine whose costs work has and whose disks there are, as `calibrate` measures them, instead of the one that
    /// comes with the program and is most like each case's guest, which also lends disks to a machine without any; CPUs,
    /// nodes and swap are each case's
    #[arg(long, value_name = "MACHINE", conflicts_with = "live", add = ArgValueCompleter::new(complete::machines))]
    machine: Option<String>,
    /// Print as
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Draw the model against the real kernel, a point for each figure of each case
    #[arg(long, value_name = "FILE.png|FILE.svg", conflicts_with = "live")]
    picture: Option<PathBuf>,
    /// Also keep what was recorded, and the model's first run of it, in this folder of records, where `compare` finds both
    #[arg(long, value_name = "DIR", conflicts_with = "live")]
    store: Option<PathBuf>,
    /// Runs of the model for each case, each on CPUs that are a hundredth slower than the last's: their median is compared
    #[arg(long, value_name = "N", conflicts_with = "live", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
    /// Runs at once [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = nr_workers)]
    workers: Option<NonZeroUsize>,
    #[command(flatten)]
    force: Force,
}

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Tables
    Text,
    /// One document for programs
    Json,
    /// The table of figures
    Csv,
    /// Tables for a web page
    Md,
}

impl Arguments {
    /// The kernel that was chosen.
    fn kernel(&self) -> Result<Option<KernelFile>, Failure> {
        Ok(self.kernel.as_deref().map(KernelFile::load).transpose()?)
    }
}

/// Runs the cases and shows how far they are apart.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if !arguments.live.is_empty() {
        return run_live(arguments);
    }
    let picture = arguments.force.picture(arguments.picture.as_deref())?;
    let kernel = arguments.kernel()?;
    // What comes with the program lies in a folder that goes when this function ends.
    let shipped;
    let folder = match &arguments.cases {
        Some(folder) => folder.as_path(),
        None => {
            shipped = shipped_cases::unpack()?;
            shipped.path()
        }
    };
    let cases = read_cases(folder, arguments)?;
    let costs_of = arguments.machine.as_deref().map(machine::load).transpose()?;
    let store = arguments.store.as_deref().map(Store::open).transpose()?;
    let outcomes = run_cases(&cases, kernel.as_ref(), costs_of.as_ref(), arguments)?;
    if let Some(store) = &store {
        keep(&cases, &outcomes, store)?;
    }
    let report = Report::new(&cases, &outcomes, arguments.runs);
    if let Some(picture) = &picture {
        picture.write(&drawn(&report))?;
    }
    let text = match arguments.format {
        Format::Text => report.text(),
        Format::Json => report.json(),
        Format::Csv => report.figures().csv(),
        Format::Md => report.markdown(),
    };
    output::print_beside(text.as_bytes(), picture.iter().map(PictureFile::destination))
}

/// Fresh runs of real kernels beside the model's.
fn run_live(arguments: &Arguments) -> Result<(), Failure> {
    let folder = tempfile::tempdir().map_err(|error| Failure::input(error.to_string()))?;
    let store = Store::open(folder.path())?;
    let cpus = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let workers = arguments.workers.unwrap_or(cpus);
    let nr = arguments.live.len() * arguments.experiment.len();
    let bar = output::progress(Some(nr as u64), "experiments");
    let kernel = arguments.kernel()?;
    let mut runs = Vec::new();
    for image in &arguments.live {
        let target: Target = format!("vm:{image}").parse().map_err(Failure::input)?;
        for experiment in &arguments.experiment {
            let options = RealOptions::default();
            runs.extend(live(experiment, &target, kernel.as_ref(), &options, workers, &store)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let named = || runs.iter().map(|run| (run.name.as_str(), run.rows.as_slice()));
    let table = figures_table("Fresh runs beside the model", "run", false, named());
    let median = median_relative_error(runs.iter().flat_map(|run| &run.rows));
    let text = match arguments.format {
        Format::Text | Format::Md => {
            let body = if arguments.format == Format::Md { table.markdown() } else { table.text() };
            let median = median.map_or("-".to_owned(), |x| format!("{:.1} %", 100.0 * x));
            format!("{body}\nmedian relative error {median}\n{VERSION}\n")
        }
        Format::Csv => table.csv(),
        Format::Json => {
            let runs = figures_json("run", named());
            let document =
                json!({ "median_relative_error": median, "runs": runs, "version": VERSION });
            format!("{document:#}\n")
        }
    };
    output::print(text.as_bytes())
}

fn read_cases(all: &Path, arguments: &Arguments) -> Result<Vec<Case>, Failure> {
    let input = |error: highorder_input::InputError| Failure::input(error.to_string());
    let folders = if all.join("case.json").is_file() {
        vec![all.to_owned()]
    } else {
        case_folders(all).map_err(input)?
    };
    let name =
        |folder: &PathBuf| folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let wanted = |folder: &PathBuf| {
        arguments.only.is_empty() || arguments.only.iter().any(|text| name(folder).contains(text))
    };
    let folders: Vec<PathBuf> = folders.into_iter().filter(wanted).collect();
    if folders.is_empty() {
        let only = arguments.only.join("`, `");
        let message = format!("no case whose name holds `{only}`");
        return Err(Failure::input(match &arguments.cases {
            Some(folder) => format!("{}: {message}", folder.display()),
            None => format!("{message} comes with the program"),
        }));
    }
    folders.iter().map(|folder| Case::read(folder).map_err(input)).collect()
}

/// Runs every case as often as asked, some runs at the same time; outcomes come in the order of the cases.
fn run_cases(
    cases: &[Case],
    kernel: Option<&KernelFile>,
    costs_of: Option<&Machine>,
    arguments: &Arguments,
) -> Result<Vec<Outcome<Compared>>, Failure> {
    let cpus = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let runs = arguments.runs as usize;
    let nr = cases.len() * runs;
    let workers = arguments.workers.unwrap_or(cpus).get().min(nr);
    let bar = output::progress(Some(nr as u64), "runs");
    let next = AtomicUsize::new(0);
    let done: Mutex<BTreeMap<usize, Result<Outcome<Made>, Failed>>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(at / runs) else { break };
                    let run = case.run((at % runs) as u64, kernel, costs_of);
                    done.lock().expect("no worker panics with it").insert(at, run);
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut done = done.into_inner().expect("no worker panics with it").into_values();
    let of_case = |case: &Case| {
        let runs: Result<Vec<Outcome<Made>>, Failed> = done.by_ref().take(runs).collect();
        runs.map(|runs| case.compare(runs)).map_err(Failure::from)
    };
    cases.iter().map(of_case).collect()
}

/// Stores both sides of every case that was compared.
fn keep(cases: &[Case], outcomes: &[Outcome<Compared>], store: &Store) -> Result<(), Failure> {
    for (case, outcome) in cases.iter().zip(outcomes) {
        let Ok(compared) = outcome else { continue };
        let mut model = compared.model.clone();
        SOURCES.clone_into(&mut model.inputs.program_sources);
        store.put(&case.record)?;
        store.put(&model)?;
    }
    Ok(())
}

/// A row for each figure; the run's name stands beside its first. `has_range`: the model ran more than once.
fn figures_table<'a>(
    title: &str,
    what: &str,
    has_range: bool,
    runs: impl Iterator<Item = (&'a str, &'a [Row])>,
) -> Table {
    let mut columns =
        vec![(what, what), ("figure", "figure"), ("real", "real"), ("model", "model")];
    if has_range {
        columns.extend([("least", "least"), ("most", "most")]);
    }
    columns.push(("error", "relative_error_percent"));
    let mut table = Table::new(title, &columns);
    for (name, rows) in runs {
        for (number, row) in rows.iter().enumerate() {
            let value = |x: f64| match row.quantity {
                Quantity::Counter | Quantity::Fallbacks => Value::Count(x as i64),
                Quantity::HugeShare | Quantity::Success | Quantity::Distance => Value::Real(x, 3),
            };
            let mut cells = vec![
                if number == 0 { name } else { "" }.into(),
                row.name.as_str().into(),
                // A state lies no way from itself.
                if row.quantity == Quantity::Distance { Value::Missing } else { value(row.real) },
                value(row.model),
            ];
            if has_range {
                cells.extend([value(row.range.0), value(row.range.1)]);
            }
            cells.push(Value::Percent(100.0 * row.relative_error));
            table.push(cells);
        }
    }
    table
}

/// The same for programs: counters in a list, the others by name, null where there is nothing to compare.
fn figures_json<'a>(
    what: &str,
    runs: impl Iterator<Item = (&'a str, &'a [Row])>,
) -> Vec<serde_json::Value> {
    let told = |row: &Row| {
        json!({
            "real": row.real,
            "model": row.model,
            "least": row.range.0,
            "most": row.range.1,
            "relative_error": row.relative_error,
        })
    };
    let named = |key: &str, row: &Row| {
        let mut told = told(row);
        told[key] = json!(row.name);
        told
    };
    let run = |(name, rows): (&str, &[Row])| {
        let of = |quantity: Quantity, key: &str| -> Vec<serde_json::Value> {
            let rows = rows.iter().filter(|row| row.quantity == quantity);
            rows.map(|row| named(key, row)).collect()
        };
        let find = |name: &str| rows.iter().find(|row| row.name == name);
        let figure = |name: &str| find(name).map(told);
        json!({
            what: name,
            "median_relative_error": median_relative_error(rows),
            "counters": of(Quantity::Counter, "counter"),
            "successes": of(Quantity::Success, "pass"),
            "huge_share": figure(HUGE_SHARE_NAME),
            "fallbacks": figure(FALLBACKS_NAME),
            "fragmenting_fallbacks": figure(FRAGMENTING_NAME),
            "free_blocks_distance": find(BLOCKS_NAME).map(|row| row.model),
            "free_pages_distance": find(FREE_PAGES_NAME).map(|row| row.model),
        })
    };
    runs.map(run).collect()
}

/// What there is to tell.
struct Report<'a> {
    compared: Vec<(&'a Case, &'a Compared)>,
    waiting: Vec<(&'a Case, &'a [String])>,
    judged: Vec<Judged<'a>>,
    median: Option<f64>,
    order: OrderAgreement,
    spread: RealSpread,
    /// Of the model, for each case.
    runs: u32,
}

impl<'a> Report<'a> {
    fn new(cases: &'a [Case], outcomes: &'a [Outcome<Compared>], runs: u32) -> Self {
        let (mut compared, mut waiting) = (Vec::new(), Vec::new());
        for (case, outcome) in cases.iter().zip(outcomes) {
            match outcome {
                Ok(result) => compared.push((case, result)),
                Err(what) => waiting.push((case, what.as_slice())),
            }
        }
        let judged: Vec<Judged<'_>> = compared
            .iter()
            .map(|(case, result)| Judged {
                name: case.name.clone(),
                kernel: case.kernel(),
                work: case.work(),
                settings: case.settings(),
                rows: &result.rows,
            })
            .collect();
        let median = median_relative_error(judged.iter().flat_map(|case| case.rows));
        let order = order_agreement(&judged, &Noise::of(&judged), None);
        let spread = RealSpread::of(&judged);
        Self { compared, waiting, judged, median, order, spread, runs }
    }

    fn named(&self) -> impl Iterator<Item = (&'a str, &'a [Row])> + '_ {
        self.compared.iter().map(|&(case, result)| (case.name.as_str(), result.rows.as_slice()))
    }

    /// A row for each figure of each case.
    fn figures(&self) -> Table {
        let has_range = self.runs > 1;
        figures_table("Real kernels beside the model", "case", has_range, self.named())
    }

    /// Names of all figures, as they come first.
    fn names(&self) -> Vec<&'a str> {
        let mut names: Vec<&str> = Vec::new();
        for row in self.judged.iter().flat_map(|case| case.rows) {
            if !names.contains(&row.name.as_str()) {
                names.push(&row.name);
            }
        }
        names
    }

    /// How large each figure's error is over all cases, and whether the settings come in the same order.
    fn quantities(&self) -> Vec<serde_json::Value> {
        let noise = Noise::of(&self.judged);
        let quantity = |name: &str| {
            let rows = self.judged.iter().flat_map(|case| case.rows);
            let rows: Vec<&Row> = rows.filter(|row| row.name == name).collect();
            let order = order_agreement(&self.judged, &noise, Some(name));
            json!({
                "quantity": name,
                "cases": rows.len(),
                "median_relative_error": median_relative_error(rows),
                "order_agreement": order.share(),
                "order_pairs": order.pairs,
            })
        };
        self.names().into_iter().map(quantity).collect()
    }

    /// Cases that wait, and for what.
    fn waiting(&self) -> Table {
        let mut table = Table::new("Not covered", &[("case", "case"), ("missing", "missing")]);
        for (case, what) in &self.waiting {
            table.push(vec![case.name.as_str().into(), what.join("; ").into()]);
        }
        table
    }

    /// What of the machine was derived, as the recordings do not say: a row for each thing, with the cases' number.
    fn derived(&self) -> Option<Table> {
        let mut cases: BTreeMap<&str, i64> = BTreeMap::new();
        for (_, result) in &self.compared {
            result.derived.iter().for_each(|what| *cases.entry(what).or_default() += 1);
        }
        let mut table = Table::new("Derived", &[("what", "what"), ("cases", "cases")]);
        for (what, nr) in &cases {
            table.push(vec![(*what).into(), Value::Count(*nr)]);
        }
        (!cases.is_empty()).then_some(table)
    }

    /// How near the model comes to each kernel, if there are several.
    fn kernels(&self) -> Option<Table> {
        let columns = [
            ("kernel", "kernel"),
            ("cases", "cases"),
            ("figures", "figures"),
            ("median relative error", "median_relative_error_percent"),
            ("settings in the same order", "order_agreement_percent"),
            ("of", "order_pairs"),
        ];
        let mut table = Table::new("By kernel", &columns);
        for OfKernel { kernel, nr_cases, nr_figures, median, order } in by_kernel(&self.judged) {
            table.push(vec![
                kernel.into(),
                Value::Count(nr_cases as i64),
                Value::Count(nr_figures as i64),
                percent(median),
                percent(order.share()),
                Value::Count(order.pairs as i64),
            ]);
        }
        (table.rows.len() > 1).then_some(table)
    }

    /// How far runs of one case lie apart, beside the model, where a case was recorded more than once.
    fn repeated(&self) -> Option<Table> {
        let columns = [
            ("case", "case"),
            ("runs", "runs"),
            ("error of another real run", "real_relative_error_percent"),
            ("error of the model", "model_relative_error_percent"),
        ];
        let mut table = Table::new("Cases recorded more than once", &columns);
        for Repeats { case, nr_runs, of_real, of_model } in &self.spread.cases {
            let runs = Value::Count(*nr_runs as i64);
            table.push(vec![case.as_str().into(), runs, percent(*of_real), percent(*of_model)]);
        }
        (!table.rows.is_empty()).then_some(table)
    }

    /// What changed from one kernel to the next, and goes another way in the model: figure by figure.
    fn differently(&self) -> Option<Table> {
        let columns = [
            ("case", "case"),
            ("figure", "figure"),
            ("real before", "real_before"),
            ("real after", "real_after"),
            ("model before", "model_before"),
            ("model after", "model_after"),
        ];
        let mut table = Table::new("Changes between kernels that go another way", &columns);
        for Differently { case, figure, real, model } in
            changes(&self.judged).into_iter().flat_map(|change| change.differently)
        {
            let decimals = if real.iter().all(|x| x.abs() <= 1.0) { 3 } else { 0 };
            let numbers = [real[0], real[1], model[0], model[1]];
            let numbers = numbers.map(|x| Value::Real(x, decimals));
            table.push([case.into(), figure.into()].into_iter().chain(numbers).collect());
        }
        (!table.rows.is_empty()).then_some(table)
    }

    /// How often what changed from one kernel to the next goes the same way in the model.
    fn changed(&self) -> Option<Table> {
        let columns = [
            ("from", "from"),
            ("to", "to"),
            ("figures that differ", "figures"),
            ("in the same direction", "same_direction"),
            ("share", "share_percent"),
        ];
        let mut table = Table::new("What changed between kernels", &columns);
        for Change { older, newer, agreement, .. } in changes(&self.judged) {
            table.push(vec![
                older.into(),
                newer.into(),
                Value::Count(agreement.pairs as i64),
                Value::Count(agreement.agree as i64),
                percent(agreement.share()),
            ]);
        }
        (!table.rows.is_empty()).then_some(table)
    }

    fn summary(&self) -> String {
        let share = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{:.1} %", 100.0 * x));
        let OrderAgreement { agree, pairs } = self.order;
        let spread = match self.spread.of_real {
            Some(of_real) => format!(
                "of cases recorded more than once {}; of another real run {}\n",
                share(self.spread.of_model),
                share(Some(of_real))
            ),
            None => String::new(),
        };
        format!(
            "{} compared, {} not covered\nmedian relative error {}\n\
             settings in the same order {} ({agree} of {pairs})\n{spread}",
            counted(self.compared.len() as u64, "case"),
            self.waiting.len(),
            share(self.median),
            share(self.order.share())
        )
    }

    fn text(&self) -> String {
        let mut parts = Vec::new();
        if !self.compared.is_empty() {
            parts.push(self.figures().text());
        }
        if !self.waiting.is_empty() {
            parts.push(self.waiting().text());
        }
        parts.extend(self.over_all().map(|table| table.text()));
        parts.push(format!("{}{VERSION}\n", self.summary()));
        parts.join("\n")
    }

    /// Tables of what all cases say together, as far as there is anything to say.
    fn over_all(&self) -> impl Iterator<Item = Table> {
        let tables =
            [self.derived(), self.kernels(), self.repeated(), self.changed(), self.differently()];
        tables.into_iter().flatten()
    }

    fn markdown(&self) -> String {
        let tables = [self.figures(), self.waiting()].into_iter().chain(self.over_all());
        let tables = tables.map(|table| table.markdown() + "\n");
        tables.chain([self.summary()]).collect()
    }

    fn json(&self) -> String {
        let waiting = self.waiting.iter();
        let waiting = waiting.map(|(case, what)| json!({ "case": case.name, "missing": what }));
        let document = json!({
            "median_relative_error": self.median,
            "order_agreement": self.order.share(),
            "order_pairs": self.order.pairs,
            "quantities": self.quantities(),
            "kernels": by_kernel(&self.judged).into_iter().map(|of| json!({
                "kernel": of.kernel,
                "cases": of.nr_cases,
                "figures": of.nr_figures,
                "median_relative_error": of.median,
                "order_agreement": of.order.share(),
                "order_pairs": of.order.pairs,
            })).collect::<Vec<_>>(),
            "changes": changes(&self.judged).into_iter().map(|change| json!({
                "from": change.older,
                "to": change.newer,
                "figures": change.agreement.pairs,
                "same_direction": change.agreement.agree,
                "differently": change.differently.into_iter().map(|differently| json!({
                    "case": differently.case,
                    "figure": differently.figure,
                    "real": differently.real,
                    "model": differently.model,
                })).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
            "repeats": {
                "real_relative_error": self.spread.of_real,
                "model_relative_error": self.spread.of_model,
                "cases": self.spread.cases.iter().map(|repeats| json!({
                    "case": repeats.case,
                    "runs": repeats.nr_runs,
                    "real_relative_error": repeats.of_real,
                    "model_relative_error": repeats.of_model,
                })).collect::<Vec<_>>(),
            },
            "cases": figures_json("case", self.named()),
            "not_covered": waiting.collect::<Vec<_>>(),
            "derived": self.compared.iter().filter(|(_, result)| !result.derived.is_empty()).map(
                |(case, result)| json!({ "case": case.name, "derived": result.derived }),
            ).collect::<Vec<_>>(),
            "version": VERSION,
        });
        format!("{document:#}\n")
    }
}

/// A share in a table.
fn percent(share: Option<f64>) -> Value {
    share.map_or(Value::Missing, |x| Value::Percent(100.0 * x))
}

/// Draws the model against the real kernel on logarithmic axes: counts as they are, shares in percent. How far
/// free blocks lie apart is no pair, and stands in the table.
fn drawn(report: &Report<'_>) -> String {
    let series = report.compared.iter().map(|(case, result)| Series {
        name: case.name.clone(),
        points: result.rows.iter().filter_map(point).collect(),
    });
    let lines: Vec<String> = report.summary().lines().map(str::to_owned).collect();
    let chart = ScatterChart {
        title: "The model beside real kernels".to_owned(),
        x_label: "real kernel: rise of a counter, fallbacks, shares in percent".to_owned(),
        y_label: "model: the same".to_owned(),
        series: series.collect(),
        diagonal: true,
        caption: Caption { lines, command: Some("highorder validate".to_owned()) },
    };
    chart.svg()
}

/// Where a figure stands in the picture.
fn point(row: &Row) -> Option<(f64, f64)> {
    match row.quantity {
        Quantity::Counter | Quantity::Fallbacks => Some((row.real, row.model)),
        Quantity::HugeShare | Quantity::Success => Some((100.0 * row.real, 100.0 * row.model)),
        Quantity::Distance => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_has_a_line_for_each_thing_it_tells() {
        let spread =
            RealSpread { of_real: Some(0.5), of_model: Some(0.25), ..RealSpread::default() };
        let report = Report { spread, ..Report::new(&[], &[], 3) };
        let lines = [
            "0 cases compared, 0 not covered",
            "median relative error -",
            "settings in the same order - (0 of 0)",
            "of cases recorded more than once 25.0 %; of another real run 50.0 %",
            "",
        ];
        assert_eq!(report.summary(), lines.join("\n"));
    }
}
