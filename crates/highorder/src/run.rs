//! `highorder run`: an experiment's runs, and what they say.

use crate::compare::{self, DEFAULT_STORE};
use crate::failure::Failure;
use crate::output;
use crate::results::{Printing, Results, Variant};
use highorder_lab::{ExecuteError, Executed, Experiment, Plan, Run, Scale, Watch};
use highorder_record::{Record, Store, StoreError};
use indicatif::{ProgressBar, ProgressStyle};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// What to run, and how.
#[derive(clap::Args)]
#[command(after_help = "\
An experiment is a file that names a machine, kernels, a workload, thread counts and seeds;
docs/experiments.md describes it. These come with the program: mmap-demo, overcommit, usemem-anon.

Every run leaves a record in the store, and a run that is there already is not run again. Ctrl-C
lets the runs under way finish; a second one ends at once. Either way, and after being killed, the
same command goes on where it stopped, and the store ends up with the same bytes.")]
pub(crate) struct Arguments {
    /// The experiment: a .toml file, or the name of a built-in one
    #[arg(value_name = "EXPERIMENT")]
    experiment: String,
    /// Shrink memory, swap and sizes together to this share; CPUs stay
    #[arg(long, value_name = "RATIO", default_value = "1")]
    scale: Scale,
    /// The folder of records
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STORE)]
    store: PathBuf,
    /// Runs at once [default: one for each CPU]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,
    #[command(flatten)]
    printing: Printing,
}

/// Runs what the store does not have, then prints the comparison of all.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let plan = Experiment::load(&arguments.experiment)?.plan(arguments.scale)?;
    let store = Store::open(&arguments.store)?;
    let cpus = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    execute(&plan, &store, arguments.workers.unwrap_or(cpus), arguments)?;
    let records = plan.records(&store)?;
    let variants = plan.variants.iter().zip(records);
    let variants = variants.map(|(label, records)| Variant { label: label.clone(), records });
    let results = Results { variants: variants.collect(), command: arguments.what() };
    results.show(&arguments.printing)
}

impl Arguments {
    /// The command line for the same runs, whatever the store.
    fn what(&self) -> String {
        let mut words = vec!["highorder".to_owned(), "run".to_owned(), self.experiment.clone()];
        if self.scale != Scale::FULL {
            words.extend(["--scale".to_owned(), self.scale.to_string()]);
        }
        output::shell_command(words.iter().map(String::as_str))
    }

    /// The command line that goes on where this one stopped.
    fn again(&self) -> String {
        let mut words = compare::store_words(&self.store);
        words.extend(self.workers.iter().flat_map(|n| ["--workers".to_owned(), n.to_string()]));
        words.extend(self.printing.words());
        if words.is_empty() {
            return self.what();
        }
        format!("{} {}", self.what(), output::shell_command(words.iter().map(String::as_str)))
    }
}

/// Runs what is missing, behind a progress bar.
fn execute(
    plan: &Plan,
    store: &Store,
    workers: NonZeroUsize,
    arguments: &Arguments,
) -> Result<(), Failure> {
    let nr_missing = plan.missing(store).len();
    if nr_missing == 0 {
        return Ok(());
    }
    let overseer = Overseer::new(nr_missing as u64);
    let of_all = format!("of {} runs are in {}", plan.runs.len(), store.folder().display());
    let goes_on = format!("the same command goes on from there: {}", arguments.again());
    overseer.heed_interrupts(format!("ended; {of_all} as far as finished; {goes_on}"))?;
    let executed = plan.execute(store, workers, &overseer);
    overseer.bar.finish_and_clear();
    let Executed { nr_there, nr_made, nr_left } = executed?;
    if nr_left > 0 {
        return Err(Failure::Interrupted(format!(
            "interrupted: {} {of_all}; {goes_on}",
            nr_there + nr_made
        )));
    }
    overseer.tell_speed(nr_made);
    Ok(())
}

/// Draws progress, and says when to stop.
struct Overseer {
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
    nr_running: AtomicUsize,
    faults: AtomicU64,
    virtual_ns: AtomicU64,
}

impl Overseer {
    fn new(nr_runs: u64) -> Self {
        let style = "{wide_bar} {pos} of {len} runs, {msg}, {elapsed} gone, {eta} left";
        let style = ProgressStyle::with_template(style).expect("the template above is well formed");
        let bar = output::progress(Some(nr_runs), "").with_style(style);
        bar.enable_steady_tick(Duration::from_millis(250));
        Self {
            bar,
            stop: Arc::default(),
            nr_running: AtomicUsize::new(0),
            faults: AtomicU64::new(0),
            virtual_ns: AtomicU64::new(0),
        }
    }

    /// Has the first interrupt begin no more runs, and the second end the process.
    fn heed_interrupts(&self, farewell: String) -> Result<(), Failure> {
        let (stop, bar) = (Arc::clone(&self.stop), self.bar.clone());
        let heed = move || {
            if stop.swap(true, Ordering::Relaxed) {
                bar.finish_and_clear();
                output::say(&farewell);
                process::exit(Failure::INTERRUPTED.into());
            }
            let message = "interrupted: waiting for the runs under way; once more ends at once";
            bar.suspend(|| output::say(message));
        };
        ctrlc::set_handler(heed).map_err(|error| Failure::internal(format!("signals: {error}")))
    }

    fn show_running(&self, nr_running: usize) {
        self.bar.set_message(format!("{nr_running} running"));
    }

    /// Says on standard error how fast it went: that is of the machine, not of the results.
    fn tell_speed(&self, nr_made: usize) {
        let wall = self.bar.elapsed().as_secs_f64();
        let faults = self.faults.load(Ordering::Relaxed) as f64;
        let seconds = self.virtual_ns.load(Ordering::Relaxed) as f64 / 1e9;
        let runs = if nr_made == 1 { "run" } else { "runs" };
        output::say(&format!(
            "{nr_made} {runs} in {wall:.1} s: {seconds:.1} virtual seconds ({:.2} a second), {:.2} \
             million simulated faults ({:.2} a second)",
            seconds / wall,
            faults / 1e6,
            faults / 1e6 / wall
        ));
    }
}

impl Watch for Overseer {
    fn begun(&self, _: &Run) {
        self.show_running(self.nr_running.fetch_add(1, Ordering::Relaxed) + 1);
    }

    fn ended(&self, _: &Run, record: &Record) {
        let faults = record.delta("pgfault").and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        self.faults.fetch_add(faults, Ordering::Relaxed);
        let elapsed = record.durations.elapsed_ns.unwrap_or(0);
        self.virtual_ns.fetch_add(elapsed, Ordering::Relaxed);
        self.show_running(self.nr_running.fetch_sub(1, Ordering::Relaxed) - 1);
        self.bar.inc(1);
    }

    fn should_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl From<ExecuteError> for Failure {
    fn from(error: ExecuteError) -> Self {
        match error {
            ExecuteError::Store(error) => error.into(),
            ExecuteError::Run { .. } => Self::internal(error.to_string()),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Io { .. } | StoreError::Bad { .. } => Self::input(error.to_string()),
            StoreError::Unfit { .. } | StoreError::Differs { .. } => {
                Self::internal(error.to_string())
            }
        }
    }
}
