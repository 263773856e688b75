//! `highorder trace`: runs of compaction or fallbacks in a trace, of a real kernel or of the model.

use crate::failure::Failure;
use crate::output::{self, Force, PictureFile, VERSION};
use clap::ValueEnum;
use highorder_lab::fallbacks::Fallbacks;
use highorder_lab::passes::{Clock, Passes};
use highorder_report::Caption;
use highorder_tables::text;
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

/// What is looked for, and printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Of {
    /// Runs of compaction
    Compaction,
    /// Waits for congestion, by who waited
    Waits,
    /// Pages that reclaim wrote, by who did, what they were and how
    Writes,
    /// Pages that reclaim took off lists, and those beside victims
    Taken,
    /// Requests served from another migratetype's blocks, by kind
    Fallbacks,
    /// The same over time
    FallbacksOverTime,
}

/// What to read, and what to draw.
#[derive(clap::Args)]
#[command(after_help = "\
TRACE is a recording, or text as /sys/kernel/tracing/trace, `trace-cmd report` or `perf script` give it, plain, .gz or .zst, with the \
`compaction` events, or with `kmem/mm_page_alloc_extfrag` for fallbacks; `highorder run EXPERIMENT --trace DIR` writes such files for the model:

  echo 1 > /sys/kernel/tracing/events/compaction/enable
  cat /sys/kernel/tracing/trace_pipe > trace.txt

The picture has a panel for each zone: where the migrate scanner and the free scanner are over time, and \
below it how many pages each batch moved. That of fallbacks has how many there were over time.

Examples:
  highorder run thp-defrag-thpscale --scale 1/64 --trace traces
  highorder trace trace.txt --picture trace.png")]
pub(crate) struct Arguments {
    /// The trace
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Draw it, into a .png or .svg file
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// What to look for [default: compaction and reclaim, or fallbacks where there is neither]
    #[arg(long, value_enum)]
    of: Option<Of>,
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    force: Force,
}

/// Prints a row for each run, and draws them where asked for.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let picture = arguments.force.picture(arguments.picture.as_deref())?;
    let spinner = output::progress(None, "reading the trace");
    let passes = match arguments.of {
        Some(of @ (Of::Fallbacks | Of::FallbacksOverTime)) => {
            let fallbacks = Fallbacks::read(&arguments.trace)?;
            spinner.finish_and_clear();
            return print_fallbacks(&fallbacks, of, arguments, picture.as_ref());
        }
        _ => Passes::read(&arguments.trace),
    };
    spinner.finish_and_clear();
    let passes = match passes {
        Err(_) if arguments.of.is_none() => match Fallbacks::read(&arguments.trace) {
            Ok(fallbacks) => {
                return print_fallbacks(&fallbacks, Of::Fallbacks, arguments, picture.as_ref());
            }
            Err(_) => passes?,
        },
        passes => passes?,
    };
    if let Some(picture) = &picture {
        let title = format!("Compaction in {}", arguments.trace.display());
        let told = summary(&passes).trim_end().to_owned();
        let chart = passes.chart(title, Clock::Milliseconds, caption(told, arguments));
        picture.write(&chart.svg())?;
    }
    let table = match arguments.of {
        Some(Of::Waits) => passes.reclaim.waits(),
        Some(Of::Writes) => passes.reclaim.writes(),
        Some(Of::Taken) => passes.reclaim.taken(),
        _ => passes.table(),
    };
    let printed = match arguments.format {
        Format::Text if arguments.of.is_none() => all_tables(&passes),
        Format::Text => format!("{}\n{}", summary(&passes), table.text()),
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

/// Prints fallbacks by kind, or over time, and draws them over time where asked for.
fn print_fallbacks(
    fallbacks: &Fallbacks,
    of: Of,
    arguments: &Arguments,
    picture: Option<&PictureFile>,
) -> Result<(), Failure> {
    let table = match of {
        Of::FallbacksOverTime => fallbacks.over_time(),
        _ => fallbacks.table(),
    };
    let [mixing, serious] = fallbacks.nr_mixing();
    let nr = text::counted(fallbacks.times.len() as u64, "fallback");
    let mut line = format!(
        "{nr}, {} of them mixing pageblocks, {} of these for a block below order 4",
        text::count(mixing),
        text::count(serious)
    );
    if fallbacks.nr_lost > 0 {
        line.push_str(&format!("; {} events were lost", text::count(fallbacks.nr_lost)));
    }
    if let Some(picture) = picture {
        let title = format!("Fallbacks in {}", arguments.trace.display());
        picture.write(&fallbacks.chart(title, caption(line.clone(), arguments)).svg())?;
    }
    let printed = match arguments.format {
        Format::Text => format!("{line}\n\n{}", table.text()),
        Format::Csv => table.csv(),
        Format::Json => table.json(),
    };
    output::print_beside(printed.as_bytes(), picture.map(PictureFile::destination))
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

/// Says what the trace has, and how to draw it again.
fn caption(told: String, arguments: &Arguments) -> Caption {
    let mut words =
        vec!["highorder".to_owned(), "trace".to_owned(), arguments.trace.display().to_string()];
    let of = arguments.of.and_then(|of| of.to_possible_value());
    words.extend(of.iter().flat_map(|of| ["--of".to_owned(), of.get_name().to_owned()]));
    let picture = arguments.picture.iter().map(|path| path.display().to_string());
    words.extend(picture.flat_map(|path| ["--picture".to_owned(), path]));
    Caption {
        lines: vec![VERSION.to_owned(), told],
        command: Some(output::shell_command(words.iter().map(String::as_str))),
    }
}
