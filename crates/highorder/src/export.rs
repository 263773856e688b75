//! `highorder export`: runs, recordings and states in the forms that other tools read.

use crate::compare::{self, DEFAULT_STORE};
use crate::failure::Failure;
use crate::map;
use crate::output::{self, Force};
use clap::ValueEnum;
use highorder_export::{Texts, mmtests, openmetrics, perfetto, texts};
use highorder_kernelfs::Source;
use highorder_kernelfs::trace::{Entry, TraceReader};
use highorder_record::Record;
use highorder_snapshot::recording_file::{RecordingFile, open_trace};
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

/// What to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A trace for ui.perfetto.dev: of a trace tasks, stalls, kswapd and compaction; of a run its counters
    Perfetto,
    /// Metrics under node_exporter's names, of a state or of the end of a run
    Openmetrics,
    /// A folder with proc/vmstat, proc/buddyinfo and the like, of a state or of the end of a run
    ProcDir,
    /// A result folder for mmtests' compare script, of runs
    Mmtests,
    /// The text of ftrace, of a recording
    Ftrace,
    /// A run's counters over time, for spreadsheets
    Csv,
}

/// What to export, and where to.
#[derive(clap::Args)]
#[command(after_help = "\
SOURCE is `live`, a snapshot file or a recorded state's folder; a trace, or a recording's folder for its trace; or runs, named \
as `highorder compare` does. `run --trace DIR` writes traces of the model, and a record's folder has its tables in Parquet; \
`map --format json` has the numbers of a map.

Examples:
  highorder export live --to openmetrics
  highorder export today.snap --to proc-dir --output folder
  highorder export trace.txt --to perfetto --output trace.pftrace
  highorder export 'usemem-anon:*' --to mmtests --output results")]
pub(crate) struct Arguments {
    /// What to export
    #[arg(value_name = "SOURCE")]
    source: PathBuf,
    /// What to make of it
    #[arg(long, value_name = "FORM", value_enum)]
    to: Form,
    /// The file, or for proc-dir and mmtests the folder [default: standard output]
    #[arg(long, short, value_name = "FILE|DIR")]
    output: Option<PathBuf>,
    /// The folder of records
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STORE)]
    store: PathBuf,
    #[command(flatten)]
    force: Force,
}

/// Reads the source, and writes what is asked for.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let make: fn(&Arguments) -> Result<Vec<u8>, Failure> = match arguments.to {
        Form::Perfetto => perfetto,
        Form::Openmetrics => {
            |arguments| Ok(openmetrics::of_texts(&state(arguments)?)?.into_bytes())
        }
        Form::Ftrace => |arguments| ftrace(&arguments.source),
        Form::Csv => |arguments| Ok(one_run(arguments)?.timeline.csv().into_bytes()),
        Form::ProcDir => return proc_dir(arguments),
        Form::Mmtests => return mmtests(arguments),
    };
    let destination = arguments.force.destination(arguments.output.as_deref())?;
    let bytes = make(arguments)?;
    match &destination {
        Some(destination) => output::write(destination, &bytes),
        None => output::print(&bytes),
    }
}

impl Arguments {
    /// The folder that a form of several files has to be given.
    fn folder(&self, form: &str) -> Result<&Path, Failure> {
        self.output.as_deref().ok_or_else(|| {
            Failure::input(format!("--to {form} makes a folder, expected --output DIR"))
        })
    }
}

/// Writes the files of `/proc` of a state.
fn proc_dir(arguments: &Arguments) -> Result<(), Failure> {
    let folder = arguments.folder("proc-dir")?;
    let below_proc = |name: &str| Path::new("proc").join(name);
    let names = texts::NAMES.map(below_proc);
    highorder_files::check_folder(folder, names, arguments.force.replace())?;
    let files = state(arguments)?.into_iter().map(|(name, text)| (below_proc(&name), text));
    output::write_into(folder, files, arguments.force)
}

/// Writes runs as mmtests leaves its results.
fn mmtests(arguments: &Arguments) -> Result<(), Failure> {
    let (folder, replace) = (arguments.folder("mmtests")?, arguments.force.replace());
    // The runs tell the files' names: before they are read, there is only the folder to look at.
    let no_names: [&Path; 0] = [];
    highorder_files::check_folder(folder, no_names, replace)?;
    let files = mmtests::folder(&runs(arguments)?).map_err(|twice| {
        Failure::input(format!(
            "{}: two runs would be {}, expected runs that differ in kernel, seed or threads: export variants \
             that differ in settings one by one",
            arguments.source.display(),
            twice.0
        ))
    })?;
    highorder_files::check_folder(folder, files.iter().map(|(name, _)| name), replace)?;
    output::write_into(folder, files, arguments.force)
}

/// Whether the source is a file or a folder of a state or a trace, not the name of runs.
fn is_path(source: &Path) -> bool {
    let is_record = ["record.json", "before"].iter().any(|name| source.join(name).exists());
    source.is_file() || (source.is_dir() && !is_record && !source.join("store.json").exists())
}

/// The files of `/proc` of a state, or of the state after a run.
fn state(arguments: &Arguments) -> Result<Texts, Failure> {
    let source = &arguments.source;
    // A state's file or folder, or one in a recording's file: `today.recording/state0`.
    let is_in_recording = source.parent().is_some_and(RecordingFile::begins);
    let is_state = source == Path::new(map::LIVE)
        || source.is_file()
        || source.join("zones.json").exists()
        || source.join("zoneinfo").exists()
        || is_in_recording;
    if is_state {
        return Ok(texts::of_snapshot(&map::read(source)?));
    }
    Ok(texts::of_state(&one_run(arguments)?.after))
}

/// The trace of a recording, or the file itself, unpacked: once it is read as a trace, so that nothing else is handed on as one.
fn ftrace(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut source = open_trace(path)?;
    let mut text = Vec::new();
    source.read_to_end(&mut text).map_err(|error| source.explain(error))?;
    let unpacked = Source::new(source.file(), Cursor::new(text.clone()))?;
    let mut has_events = false;
    TraceReader::new(unpacked).for_each(|entry| has_events |= matches!(entry, Entry::Event(..)))?;
    match has_events {
        true => Ok(text),
        false => Err(Failure::input(format!(
            "{}: no event in it, expected a recording or a trace",
            path.display()
        ))),
    }
}

fn perfetto(arguments: &Arguments) -> Result<Vec<u8>, Failure> {
    if !is_path(&arguments.source) {
        return Ok(perfetto::of_run(&one_run(arguments)?));
    }
    let spinner = output::progress(None, "reading the trace");
    let told = perfetto::of_trace(open_trace(&arguments.source)?)?;
    spinner.finish_and_clear();
    if told.nr_without_begin + told.nr_without_end > 0 {
        output::say(&format!(
            "{} slices; of others {} have no beginning in the trace, and {} of these no end",
            told.nr_slices, told.nr_without_begin, told.nr_without_end
        ));
    }
    Ok(told.bytes)
}

fn runs(arguments: &Arguments) -> Result<Vec<Record>, Failure> {
    let source = &arguments.source;
    if source == Path::new(map::LIVE) || source.is_file() {
        let found = if source.is_file() { "a file" } else { "the state of this machine" };
        return Err(Failure::input(format!(
            "{}: {found}, expected runs: a store, a record's folder or a name in the store",
            source.display()
        )));
    }
    compare::find(&arguments.source.to_string_lossy(), &arguments.store)
}

fn one_run(arguments: &Arguments) -> Result<Record, Failure> {
    let mut records = runs(arguments)?;
    match records.len() {
        1 => Ok(records.remove(0)),
        nr => Err(Failure::input(format!(
            "{}: {nr} runs have this name, expected one",
            arguments.source.display()
        ))),
    }
}
