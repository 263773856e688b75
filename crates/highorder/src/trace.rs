//! `highorder trace`: runs of compaction in a trace, of a real kernel or of the model.

use crate::failure::Failure;
use crate::output::{self, Force, PictureFile, VERSION};
use clap::ValueEnum;
use highorder_lab::passes::{Clock, Passes};
use highorder_report::{Caption, text};
use std::path::PathBuf;

/// How the table is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// To read
    Text,
    /// For spreadsheets
    Csv,
    /// One object
    Json,
}

/// Which table is printed where only one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Rows {
    /// Runs of compaction
    Runs,
    /// Waits for congestion, by who waited
    Waits,
    /// Pages that reclaim wrote, by who did, what they were and how
    Writes,
    /// Pages that reclaim took off lists, and those beside victims
    Taken,
}

/// What to read, and what to draw.
#[derive(clap::Args)]
#[command(after_help = "\
TRACE is text as /sys/kernel/tracing/trace or `trace-cmd report` give it, plain, .gz or .zst, with the \
`compaction` events; `highorder run EXPERIMENT --trace DIR` writes such files for the model:

  echo 1 > /sys/kernel/tracing/events/compaction/enable
  cat /sys/kernel/tracing/trace_pipe > trace.txt

The picture has a panel for each zone: where the migrate scanner and the free scanner are over time, and \
below it how many pages each batch moved.

Examples:
  highorder run mmap-demo --scale 1/64 --trace traces
  highorder trace trace.txt --picture trace.png")]
pub(crate) struct Arguments {
    /// The trace
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Draw it, into a .png or .svg file
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Which table, for csv and json; text has all that the trace tells of
    #[arg(long, value_enum, default_value_t = Rows::Runs)]
    table: Rows,
    #[command(flatten)]
    force: Force,
}

/// Prints a row for each run, and draws them where asked for.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let picture = arguments.force.picture(arguments.picture.as_deref())?;
    let spinner = output::progress(None, "reading the trace");
    let passes = Passes::read(&arguments.trace)?;
    spinner.finish_and_clear();
    if let Some(picture) = &picture {
        let title = format!("Compaction in {}", arguments.trace.display());
        let chart = passes.chart(title, Clock::Milliseconds, caption(&passes, arguments));
        picture.write(&chart.svg())?;
    }
    let table = match arguments.table {
        Rows::Runs => passes.table(),
        Rows::Waits => passes.reclaim.waits(),
        Rows::Writes => passes.reclaim.writes(),
        Rows::Taken => passes.reclaim.taken(),
    };
    let printed = match arguments.format {
        Format::Text => all_tables(&passes),
        Format::Csv => table.csv(),
        Format::Json => table.json(),
    };
    if let (Some(_), Format::Csv | Format::Json) = (passes.cut_line, arguments.format) {
        output::say(summary(&passes).trim_end());
    }
    output::print_beside(printed.as_bytes(), picture.iter().map(PictureFile::destination))
}

/// Runs of compaction, and what the trace tells of reclaim.
fn all_tables(passes: &Passes) -> String {
    let mut all = format!("{}\n{}", summary(passes), passes.table().text());
    if passes.reclaim.nr_events > 0 {
        for table in [passes.reclaim.taken(), passes.reclaim.writes(), passes.reclaim.waits()] {
            all.push('\n');
            all.push_str(&table.text());
        }
    }
    all
}

fn summary(passes: &Passes) -> String {
    let nr_runs = passes.passes.len() as u64;
    let events = text::counted(passes.nr_events, "event");
    let mut line = format!("{} of compaction in {events}", text::counted(nr_runs, "run"));
    if passes.nr_outside > 0 {
        let outside = text::count(passes.nr_outside);
        line.push_str(&format!(", {outside} of them outside any run"));
    }
    if passes.nr_lost > 0 {
        line.push_str(&format!(", {} more were lost", text::count(passes.nr_lost)));
    }
    if let Some(cut) = passes.cut_line {
        line.push_str(&format!(
            "; the trace ends in the middle of line {}, and is read up to there",
            text::count(cut)
        ));
    }
    line.push('\n');
    line
}

fn caption(passes: &Passes, arguments: &Arguments) -> Caption {
    let mut words =
        vec!["highorder".to_owned(), "trace".to_owned(), arguments.trace.display().to_string()];
    let picture = arguments.picture.iter().map(|path| path.display().to_string());
    words.extend(picture.flat_map(|path| ["--picture".to_owned(), path]));
    Caption {
        lines: vec![VERSION.to_owned(), summary(passes).trim_end().to_owned()],
        command: Some(output::shell_command(words.iter().map(String::as_str))),
    }
}
