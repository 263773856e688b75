//! `highorder record`: what happens in this machine's memory, into a file.

use crate::failure::Failure;
use crate::output::{self, Force};
use highorder_files::Destination;
use highorder_real::signals::Watch;
use highorder_recorder::{self as recorder, Keep, Options, RecordError, Recorded};
use highorder_snapshot::Exactness;
use highorder_tables::text;
use std::fmt::Write as _;
use std::path::PathBuf;

/// The longest recording, in seconds: a day.
const SECONDS_MAX: f64 = 86400.0;

/// What to record, and where to.
#[derive(clap::Args)]
#[command(after_help = "\
The file holds the state of every page before and after, each allocation, free, compaction and reclaim between, \
/proc/vmstat and /proc/buddyinfo once a second, and the machine's settings; `replay`, `trace` and `map` read it. It takes \
root. Events are traced in a tracefs instance of its own, so that nothing else that traces is disturbed; the instance goes \
when the recording ends, also by Ctrl-C, and what a killed recording left goes with the next one or by `restore-knobs`. \
Never in the file: what pages contain.

Names of processes are left out, those of kernel threads kept. Only its owner may read the file: it tells where the \
kernel keeps its memory, unless --anonymize.

Examples:
  sudo highorder record --seconds 30 -o stall.recording
  highorder replay stall.recording --vs linux-6.12
  highorder trace stall.recording
  highorder map stall.recording/state1")]
pub(crate) struct Arguments {
    /// How long
    #[arg(long, value_name = "N", default_value = "30", value_parser = seconds)]
    seconds: f64,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Memory for all buffers of events, in MiB [default: a 32nd of the machine's, 256 at most]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=65536))]
    buffer: Option<u64>,
    /// Keep names of processes
    #[arg(long)]
    names: bool,
    /// Number processes anew, and leave out the release's suffix, addresses of the kernel's and when it was
    #[arg(long, conflicts_with = "names")]
    anonymize: bool,
    #[command(flatten)]
    force: Force,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|s| (0.1..=SECONDS_MAX).contains(s));
    seconds.ok_or_else(|| format!("expected seconds, 0.1 to {SECONDS_MAX}"))
}

/// Records, and says what was recorded and what that cost.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let destination = Destination::new(&arguments.output, arguments.force.replace())?.private();
    let watch = Watch::new();
    let keep = Keep { names: arguments.names, numbers: !arguments.anonymize };
    let options = Options {
        seconds: arguments.seconds,
        keep,
        buffer_bytes: arguments.buffer.map(|mib| mib << 20),
        command: command(arguments),
        stop: &|| watch.came().is_some(),
    };
    let recorded = recorder::record(&destination, &options).map_err(failure)?;
    let mut told = describe(&recorded);
    let bytes = text::count(recorded.file_bytes);
    let _ = writeln!(told, "{bytes} bytes in {}", arguments.output.display());
    // A signal that came takes its course when the watch ends.
    output::print_beside(told.as_bytes(), [&destination])
}

fn failure(error: RecordError) -> Failure {
    Failure::input(error.to_string())
}

fn command(arguments: &Arguments) -> String {
    let seconds = arguments.seconds.to_string();
    let mut words = vec!["highorder", "record", "--seconds", &seconds];
    words.extend(arguments.names.then_some("--names"));
    words.extend(arguments.anonymize.then_some("--anonymize"));
    output::shell_command(words)
}

/// What was recorded, what is missing of it, and what it cost.
fn describe(recorded: &Recorded) -> String {
    let Recorded { overhead, seconds, nr_events, nr_cpus, .. } = recorded;
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<10} {value}");
    };
    line("kernel", recorded.release.clone());
    let states = match recorded.exactness {
        Exactness::Lists => "every page and every list before and after",
        _ => "every page before and after, not the order of lists",
    };
    line("states", states.to_owned());
    let events = text::counted(*nr_events, "event");
    line("events", format!("{events} in {seconds:.1} s, {} lost", text::count(recorded.nr_lost)));
    for (i, note) in recorded.notes.iter().enumerate() {
        line(if i == 0 { "note" } else { "" }, note.clone());
    }
    let cpus = text::counted(*nr_cpus as u64, "CPU");
    let share = match overhead.share(*nr_events, *seconds, *nr_cpus) {
        Some(share) => format!("{:.2} % of {cpus} between the states", 100.0 * share),
        None => "too short to tell as a share".to_owned(),
    };
    let an_event = match overhead.event_ns {
        Some(ns) => format!("an event {ns:.0} ns of the kernel's"),
        None => "an event less than could be measured".to_owned(),
    };
    line(
        "overhead",
        format!(
            "{share}: the recorder {:.2} s, {an_event}; {} MiB of buffers; before and after that {:.2} s",
            overhead.recorder_s,
            overhead.buffer_bytes >> 20,
            overhead.around_s
        ),
    );
    out
}
