//! `highorder run`: an experiment's runs, and what they say.

use crate::cli::nr_workers;
use crate::compare::{self, DEFAULT_STORE};
use crate::complete;
use crate::eta::Eta;
use crate::failure::Failure;
use crate::output::{self, PictureFile};
use crate::real::{Guests, STATE_FOLDER};
use crate::results::{Printing, Results, Variant};
use crate::sweep::sweep_numbers;
use clap_complete::engine::ArgValueCompleter;
use highorder_files::Replace;
use highorder_lab::start::Start;
use highorder_lab::{
    ExecuteError, Executed, Experiment, Failed, ModelSize, Plan, RealError, RealOptions, Run,
    RunKind, Scale, Target, Watch,
};
use highorder_real::HostError;
use highorder_record::record::PAGE_BYTES;
use highorder_record::{Inputs, Record, Store, StoreError};
use highorder_sim::RunError;
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// What to run, and how.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// The experiment: a .toml file, or the name of a built-in one
    #[arg(value_name = "EXPERIMENT", add = ArgValueCompleter::new(complete::experiments))]
    experiment: String,
    /// Where to run: model, host or vm:IMAGE; may be given several times
    #[arg(long, value_name = "WHERE", default_value = "model")]
    on: Vec<Target>,
    /// How often real kernels repeat each run, a guest with a boot for each
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    boots: u32,
    /// Shrink memory, swap and sizes together to this share; CPUs stay
    #[arg(long, value_name = "RATIO", default_value = "1")]
    scale: Scale,
    /// Begin in the memory of a machine as it lies: a snapshot, or a recording, whose state before is taken. Memory and
    /// CPUs are that machine's, costs and disks the experiment's; --scale shrinks sizes alone
    #[arg(long, value_name = "SNAPSHOT", conflicts_with_all = ["check", "trace"])]
    from: Option<PathBuf>,
    /// With --from, shrink sizes as far as that machine is smaller than the experiment's
    #[arg(long, requires = "from", conflicts_with = "scale")]
    fit: bool,
    /// The folder of records
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STORE)]
    store: PathBuf,
    #[command(flatten)]
    reuse: Reuse,
    /// Check every invariant of memory whenever a run of the model samples its timeline; results are the same
    #[arg(long, conflicts_with = "trace")]
    check: bool,
    /// Draw the one table of an experiment that has a `matrix`, or the curves of one that has a `[sweep]`
    #[arg(long, value_name = "FILE.png|FILE.svg")]
    picture: Option<PathBuf>,
    /// Also write what compaction, khugepaged and reclaim of a node did in each run of the model into this
    /// folder, as ftrace's text; `highorder trace` draws compaction. Not with --reuse-old, whose runs are not made
    /// again
    #[arg(long, value_name = "DIR", conflicts_with = "reuse_old")]
    trace: Option<PathBuf>,
    /// Runs at once [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = nr_workers)]
    workers: Option<NonZeroUsize>,
    #[command(flatten)]
    printing: Printing,
    #[command(flatten)]
    guests: Guests,
    #[command(flatten)]
    host: Host,
}

/// The hash of the sources that this program was built from.
pub(crate) const SOURCES: &str = env!("HIGHORDER_SOURCES");

/// Whether records of other builds of the program will do: an argument of each verb that runs experiments.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Reuse {
    /// Take what another build of highorder left of the same inputs, rather than run them again
    #[arg(long)]
    reuse_old: bool,
}

impl Reuse {
    /// The plan as this program's, but for what is to be taken of others.
    pub(crate) fn applied(self, plan: Plan, store: &Store) -> Result<Plan, Failure> {
        let mut plan = plan.of_program(SOURCES);
        if self.reuse_old {
            match plan.reuse_old(store)? {
                0 => {}
                nr => output::say(&format!("{nr} runs are of other builds of highorder")),
            }
        }
        Ok(plan)
    }

    /// This argument as words of a command line.
    pub(crate) fn words(self) -> Vec<String> {
        self.reuse_old.then(|| "--reuse-old".to_owned()).into_iter().collect()
    }
}

const AFTER_HELP: &str = "\
An experiment is a file that names a machine, kernels, a workload, thread counts and seeds; docs/experiments.md \
describes it. `highorder list experiments` has those that come with the program, and `highorder show NAME` what each \
does and about how long it takes.

--on says where it runs, several times for several columns side by side:

  model           the model, under each variant's kernel file
  host            this machine's kernel, with real memory
  vm:debian:6.12  Debian's kernel of that release in QEMU
  vm:./bzImage    a kernel image in QEMU, with the folder modules beside it

On the host 1 GiB of memory stays free for others, and files lie in a folder below --folder. Debian's kernels are \
fetched with apt-get, once. A real kernel has no kernel file: there variants differ in knobs, machine and workload only. Guests have the machine \
file's nodes, CPUs, memory and swap, and an ext4 for files, which mkfs.ext4 makes. At most two of them run at once, \
and on the host one run at a time.

Every run leaves a record in the store, and a run that is there already is not run again. Ctrl-C lets the runs under \
way finish; a second one ends at once. Either way, and after being killed, the same command goes on where it stopped, \
and the store ends up with the same bytes.

Examples:
  highorder run mmap-demo --scale 1/64
  highorder run usemem-small --on model --on vm:debian:6.12";

/// What may be done to this machine.
#[derive(clap::Args)]
#[command(next_help_heading = "This machine")]
struct Host {
    /// Change its settings for the time of a run, which takes root; they are put back
    #[arg(long)]
    apply_knobs: bool,
    /// Let it swap
    #[arg(long)]
    may_swap: bool,
    /// Where it is kept what settings were
    #[arg(long, value_name = "DIR", default_value = STATE_FOLDER)]
    state_dir: PathBuf,
}

/// Runs what the store does not have, then prints the comparison of all.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let out = arguments.printing.destination()?;
    let picture = arguments.printing.force.picture(arguments.picture.as_deref())?;
    let experiment = Experiment::load_for(&arguments.experiment, &arguments.on)?;
    match (&arguments.picture, &experiment.sweep) {
        (Some(_), Some(sweep)) => drop(sweep_numbers(sweep)?),
        (Some(path), None) if experiment.matrix.is_empty() => {
            return Err(Failure::input(format!(
                "--picture {} of the experiment {}, expected one that has a `matrix` or a `[sweep]`; of others \
                 --format html has pictures",
                path.display(),
                experiment.name
            )));
        }
        _ => {}
    }
    let start = arguments.from.as_deref().map(Start::read).transpose()?.map(Arc::new);
    let scale = match &start {
        Some(start) if arguments.fit => start.fitting(experiment.memory_bytes())?,
        _ => arguments.scale,
    };
    let mut plan = experiment.plan_on(&arguments.on, scale, &arguments.options())?;
    if let Some(start) = &start {
        plan = plan.from_state(start)?;
    }
    if let Some(folder) = &arguments.trace {
        // Names of traces are those of records of this program.
        let replace = arguments.printing.force.replace();
        prepare_traces(folder, &arguments.on, &plan.clone().of_program(SOURCES), replace)?;
    }
    let store = Store::open(&arguments.store)?;
    let mut plan = arguments.reuse.applied(plan, &store)?;
    if arguments.check {
        plan = plan.checked();
    }
    let cpus = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let workers = arguments.workers.unwrap_or(cpus);
    let traces = arguments.trace.as_deref();
    let traces = traces.map(|folder| Traces::new(folder, arguments.printing.force.replace()));
    execute_traced(&plan, &store, workers, &arguments.again(), traces)?;
    let records = plan.records(&store)?;
    let variants = plan.columns.iter().zip(records);
    let variants = variants.map(|(label, records)| Variant { label: label.clone(), records });
    let results = Results {
        variants: variants.collect(),
        published: experiment.published,
        matrix: experiment.matrix,
        sweep: experiment.sweep,
        command: arguments.what(),
    };
    results.show(
        &arguments.printing,
        out.as_ref(),
        picture.iter().map(PictureFile::destination),
    )?;
    if let Some(picture) = picture {
        picture.write(&match &results.sweep {
            Some(sweep) => results.sweep_picture(sweep)?,
            None => results.matrix_picture(),
        })?;
    }
    match results.shown_sweep(&arguments.printing) {
        Some(sweep) => results.check_measured(sweep),
        None => Ok(()),
    }
}

impl Arguments {
    fn options(&self) -> RealOptions {
        RealOptions {
            boots: self.boots,
            apply_knobs: self.host.apply_knobs,
            may_swap: self.host.may_swap,
            state_folder: self.host.state_dir.clone(),
            ..self.guests.options()
        }
    }

    /// The command line for the same results.
    fn what(&self) -> String {
        let mut words = vec!["highorder".to_owned(), "run".to_owned(), self.experiment.clone()];
        if self.on != [Target::Model] {
            words.extend(self.on.iter().flat_map(|on| ["--on".to_owned(), on.to_string()]));
        }
        if self.boots != 1 {
            words.extend(["--boots".to_owned(), self.boots.to_string()]);
        }
        words.extend(self.guests.words(self.on.contains(&Target::Host)));
        for (flag, is_set) in
            [("--apply-knobs", self.host.apply_knobs), ("--may-swap", self.host.may_swap)]
        {
            words.extend(is_set.then(|| flag.to_owned()));
        }
        if let Some(from) = &self.from {
            words.extend(["--from".to_owned(), from.display().to_string()]);
        }
        words.extend(self.fit.then(|| "--fit".to_owned()));
        if self.scale != Scale::FULL {
            words.extend(["--scale".to_owned(), self.scale.to_string()]);
        }
        words.extend(self.reuse.words());
        words.extend(compare::store_words(&self.store));
        words.extend(self.printing.shown_words());
        output::shell_command(words.iter().map(String::as_str))
    }

    /// The command line that goes on where this one stopped.
    fn again(&self) -> String {
        let mut words = Vec::new();
        words.extend(self.workers.iter().flat_map(|n| ["--workers".to_owned(), n.to_string()]));
        let picture = self.picture.iter().map(|file| file.display().to_string());
        words.extend(picture.flat_map(|file| ["--picture".to_owned(), file]));
        let trace = self.trace.iter().map(|folder| folder.display().to_string());
        words.extend(trace.flat_map(|folder| ["--trace".to_owned(), folder]));
        words.extend(self.guests.other_words(self.on.contains(&Target::Host)));
        if self.host.state_dir != Path::new(STATE_FOLDER) {
            words.extend(["--state-dir".to_owned(), self.host.state_dir.display().to_string()]);
        }
        let place = self.printing.place_words();
        // The traces that are there by then are made anew.
        if self.trace.is_some() && !place.iter().any(|word| word == "--force") {
            words.push("--force".to_owned());
        }
        words.extend(place);
        if words.is_empty() {
            return self.what();
        }
        format!("{} {}", self.what(), output::shell_command(words.iter().map(String::as_str)))
    }
}

/// Makes the folder for traces, if the runs are such as have them and it can take them. A file that is there may be
/// anything: whether it is replaced is the user's to say.
fn prepare_traces(
    folder: &Path,
    targets: &[Target],
    plan: &Plan,
    replace: Replace,
) -> Result<(), Failure> {
    if let Some(real) = targets.iter().find(|target| **target != Target::Model) {
        return Err(Failure::input(format!(
            "--trace with --on {real}, expected the model alone: a real kernel has ftrace itself"
        )));
    }
    let paths = plan.runs.iter().map(|run| trace_path(folder, run));
    let names: Vec<_> = paths.filter_map(|path| Some(path.file_name()?.to_owned())).collect();
    highorder_files::check_folder(folder, names, replace)?;
    Ok(highorder_files::make_folder(folder)?)
}

/// Where a run's events go: what the run is called, and the beginning of its record's name, since runs that
/// differ in little are called the same.
fn trace_path(folder: &Path, run: &Run) -> PathBuf {
    let identity = run.inputs.identity().to_string();
    folder.join(format!("{}.{}.trace.txt", run.inputs.readable_name(), &identity[..8]))
}

/// Runs what is missing, behind a progress bar; `again` is the command line that goes on after an interrupt.
pub(crate) fn execute(
    plan: &Plan,
    store: &Store,
    workers: NonZeroUsize,
    again: &str,
) -> Result<(), Failure> {
    execute_traced(plan, store, workers, again, None)
}

/// As [`execute`]; where there is a place for traces, all runs are made for them.
fn execute_traced(
    plan: &Plan,
    store: &Store,
    workers: NonZeroUsize,
    again: &str,
    traces: Option<Traces>,
) -> Result<(), Failure> {
    let is_missing = |run: &&Run| !store.has(&run.inputs) || traces.is_some();
    let missing: Vec<RunKind> = plan.runs.iter().filter(is_missing).map(Run::kind).collect();
    if missing.is_empty() {
        return plan.note_columns(store).map_err(Failure::from);
    }
    let mut overseer = Overseer::new(missing, workers);
    overseer.traces = traces;
    let of_all = format!("of {} runs are in {}", plan.runs.len(), store.folder().display());
    let goes_on = format!("the same command goes on from there: {again}");
    let inputs: Vec<Inputs> = plan.runs.iter().map(|run| run.inputs.clone()).collect();
    let (counted, told) = (store.clone(), format!("{of_all}; {goes_on}"));
    overseer.heed_interrupts(move || {
        let nr_there = inputs.iter().filter(|inputs| counted.has(inputs)).count();
        format!("ended: {nr_there} {told}")
    })?;
    let executed = plan.execute(store, workers, &overseer);
    overseer.bar.finish_and_clear();
    let failure = overseer.trace_failure.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(failure) = failure {
        return Err(failure);
    }
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
    eta: Arc<Mutex<Eta>>,
    stop: Arc<AtomicBool>,
    nr_running: AtomicUsize,
    nr_modelled: AtomicUsize,
    faults: AtomicU64,
    virtual_ns: AtomicU64,
    /// Of the largest model.
    size: Mutex<ModelSize>,
    /// Where events go.
    traces: Option<Traces>,
    /// Why they could not.
    trace_failure: Mutex<Option<Failure>>,
}

/// The folder of traces.
struct Traces {
    folder: PathBuf,
    replace: Replace,
    /// What was written by now.
    written: Mutex<BTreeSet<PathBuf>>,
}

impl Traces {
    fn new(folder: &Path, replace: Replace) -> Self {
        Self { folder: folder.to_owned(), replace, written: Mutex::default() }
    }

    fn has(&self, run: &Run) -> bool {
        self.written().contains(&trace_path(&self.folder, run))
    }

    fn write(&self, run: &Run, text: &[u8]) -> Result<(), Failure> {
        let path = trace_path(&self.folder, run);
        highorder_files::write(&path, text, self.replace)?;
        self.written().insert(path);
        Ok(())
    }

    fn written(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Overseer {
    fn new(runs: Vec<RunKind>, workers: NonZeroUsize) -> Self {
        let nr_runs = runs.len() as u64;
        let eta = Arc::new(Mutex::new(Eta::new(runs, workers.get())));
        let style = "{wide_bar} {pos} of {len} runs, {msg}, {elapsed} gone, {left} left";
        let style = ProgressStyle::with_template(style).expect("the template above is well formed");
        let known = Arc::clone(&eta);
        let style =
            style.with_key("left", move |state: &ProgressState, text: &mut dyn fmt::Write| {
                let left =
                    known.lock().unwrap_or_else(PoisonError::into_inner).left(state.elapsed());
                // A line that is cut short is drawn anew in a moment.
                let _ = match left {
                    Some(left) => write!(text, "{:#}", HumanDuration(left)),
                    None => write!(text, "?"),
                };
            });
        let bar = output::progress(Some(nr_runs), "").with_style(style);
        bar.enable_steady_tick(Duration::from_millis(250));
        Self {
            bar,
            eta,
            stop: Arc::default(),
            nr_running: AtomicUsize::new(0),
            nr_modelled: AtomicUsize::new(0),
            faults: AtomicU64::new(0),
            virtual_ns: AtomicU64::new(0),
            size: Mutex::default(),
            traces: None,
            trace_failure: Mutex::default(),
        }
    }

    /// Has the first interrupt begin no more runs, and the second end the process with a farewell.
    fn heed_interrupts(
        &self,
        farewell: impl Fn() -> String + Send + 'static,
    ) -> Result<(), Failure> {
        let (stop, bar) = (Arc::clone(&self.stop), self.bar.clone());
        let heed = move || {
            if stop.swap(true, Ordering::Relaxed) {
                bar.finish_and_clear();
                output::say(&farewell());
                process::exit(Failure::INTERRUPTED.into());
            }
            let message = "interrupted: waiting for the runs under way; once more ends at once";
            bar.suspend(|| output::say(message));
        };
        ctrlc::set_handler(heed).map_err(|error| Failure::internal(format!("signals: {error}")))
    }

    fn eta(&self) -> MutexGuard<'_, Eta> {
        self.eta.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show_running(&self, nr_running: usize) {
        self.bar.set_message(format!("{nr_running} running"));
    }

    /// Says on standard error how fast it went: that is of the machine, not of the results.
    fn tell_speed(&self, nr_made: usize) {
        let wall = self.bar.elapsed().as_secs_f64();
        let faults = self.faults.load(Ordering::Relaxed) as f64;
        let seconds = self.virtual_ns.load(Ordering::Relaxed) as f64 / 1e9;
        let nr_modelled = self.nr_modelled.load(Ordering::Relaxed);
        let runs = |nr: usize| if nr == 1 { "run" } else { "runs" };
        let nr_real = nr_made - nr_modelled;
        if nr_real > 0 {
            output::say(&format!(
                "{nr_made} {} in {wall:.1} s, {nr_real} of them real",
                runs(nr_made)
            ));
            return;
        }
        let runs = runs(nr_made);
        let size = *self.size.lock().unwrap_or_else(PoisonError::into_inner);
        output::say(&format!(
            "{nr_made} {runs} in {wall:.1} s: {seconds:.1} virtual seconds ({:.2} a second), {:.2} \
             million simulated faults ({:.2} million a second); model memory: {:.2} bytes a frame, {:.1} MiB of \
             frame table for {:.1} GiB of frames",
            seconds / wall,
            faults / 1e6,
            faults / 1e6 / wall,
            size.bytes_per_frame,
            size.frame_table_bytes as f64 / 1048576.0,
            (size.nr_frames * u64::from(PAGE_BYTES)) as f64 / 1073741824.0
        ));
    }
}

impl Watch for Overseer {
    fn begun(&self, run: &Run) {
        self.eta().begun(run.inputs.identity(), run.kind(), self.bar.elapsed());
        self.show_running(self.nr_running.fetch_add(1, Ordering::Relaxed) + 1);
    }

    fn ended(&self, run: &Run, record: &Record, size: Option<ModelSize>) {
        self.eta().ended(run.inputs.identity(), self.bar.elapsed());
        self.show_running(self.nr_running.fetch_sub(1, Ordering::Relaxed) - 1);
        self.bar.inc(1);
        let Some(size) = size else { return };
        self.nr_modelled.fetch_add(1, Ordering::Relaxed);
        let faults = record.delta("pgfault").and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        self.faults.fetch_add(faults, Ordering::Relaxed);
        let elapsed = record.durations.elapsed_ns.unwrap_or(0);
        self.virtual_ns.fetch_add(elapsed, Ordering::Relaxed);
        let mut largest = self.size.lock().unwrap_or_else(PoisonError::into_inner);
        if size.nr_frames > largest.nr_frames {
            *largest = size;
        }
    }

    fn wants_trace(&self, run: &Run) -> bool {
        self.traces.as_ref().is_some_and(|traces| !traces.has(run))
    }

    fn traced(&self, run: &Run, text: &[u8]) -> bool {
        let Some(traces) = &self.traces else { return true };
        match traces.write(run, text) {
            Ok(()) => true,
            Err(failure) => {
                let mut first = self.trace_failure.lock().unwrap_or_else(PoisonError::into_inner);
                first.get_or_insert(failure);
                false
            }
        }
    }

    fn should_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl From<ExecuteError> for Failure {
    fn from(error: ExecuteError) -> Self {
        match error {
            ExecuteError::Store(error) => error.into(),
            ExecuteError::Run { error: RunError::Halted { .. }, .. } => {
                Self::input(error.to_string())
            }
            ExecuteError::Run { .. } => Self::internal(error.to_string()),
            ExecuteError::Real {
                ref name,
                error: RealError::Host(HostError::KnobsNotApplied { ref knobs }),
            } => {
                let told = knobs
                    .iter()
                    .map(|knob| format!("{} from {} to {}", knob.name, knob.now, knob.value));
                Self::input(format!(
                    "run {name} would change settings of this machine ({}): expected --apply-knobs, or experiments \
                     without knobs",
                    told.collect::<Vec<_>>().join(", ")
                ))
            }
            // What a guest or this machine could not do is not ours: its memory, its image, its rights.
            ExecuteError::Real { .. } => Self::input(error.to_string()),
        }
    }
}

impl From<Failed> for Failure {
    fn from(error: Failed) -> Self {
        match error {
            Failed::Input(error) => error.into(),
            Failed::Run(error) => error.into(),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Io { .. } | StoreError::Locked { .. } => Self::input(error.to_string()),
            StoreError::Bad { ref path, .. } => {
                let record = path.parent().unwrap_or(path).display();
                Self::input(format!(
                    "{error}; the record is damaged: remove the folder {record}, and its run can be made again"
                ))
            }
            StoreError::Unfit { .. } | StoreError::Differs { .. } => {
                Self::internal(error.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highorder_sim::Ns;

    #[test]
    fn a_modelled_machines_end_is_told_as_input_and_whatever_else_ends_a_run_as_a_fault() {
        let at = Ns::ZERO;
        let failure = |error| {
            let name = "churn".to_owned();
            Failure::from(Failed::Run(ExecuteError::Run { name, error }))
        };
        let halted = failure(RunError::Halted { at, message: "no memory is left".to_owned() });
        assert!(matches!(halted, Failure::Input(_)), "{halted}");
        for fault in [
            RunError::Panicked { task: "kswapd0".to_owned(), at, message: "a bug".to_owned() },
            RunError::Deadlock { at, waiting: Vec::new() },
            RunError::Livelock { at, tasks: vec!["kswapd0".to_owned()] },
        ] {
            let fault = failure(fault);
            assert!(matches!(fault, Failure::Internal(_)), "{fault}");
        }
    }
}
