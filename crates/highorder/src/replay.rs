//! `highorder replay`: a recording of a real kernel, replayed by the model.

mod lockstep;
mod tables;
mod then;

use crate::complete;
use crate::failure::Failure;
use crate::output::{self, Force, VERSION};
use clap::ValueEnum;
use clap_complete::engine::ArgValueCompleter;
use highorder_kernels::KernelFile;
use highorder_lab::Recording;
use highorder_lab::free_running::{self, Comparison, Side};
use highorder_report::map::MapZone;
use highorder_report::{
    BarChart, Caption, LineChart, MemoryMap, Panel, Series, raster, render_difference,
    render_side_by_side,
};
use highorder_tables::{Table, text};
use std::path::{Path, PathBuf};

/// Pixels per unit of the SVG.
const PNG_SCALE: f32 = 2.0;
/// Names of the pictures that `--png-dir` gets.
const PICTURES: [&str; 4] = ["memory.png", "difference.png", "free-blocks.png", "over-time.png"];
/// Frames of the machine whose model's size is told beside the replayed one's.
const FRAMES_OF_64_GIB: f64 = 16_777_216.0;

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables to read
    Text,
    /// One object
    Json,
}

/// What to do with a recorded state instead of replaying what happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Then {
    /// As writing 1 to /proc/sys/vm/compact_memory does
    #[value(name = "compact_memory")]
    CompactMemory,
}

/// What to replay, and how.
#[derive(clap::Args)]
#[command(after_help = "\
A recording is a file that `highorder record` wrote, or a folder with state0/ (every page before), trace.txt (plain, .gz or .zst: the events of \
ftrace) and, to compare with, state1/ (every page after). tests/guest/record.sh makes one.

Free-running, only the demand comes from the recording: which requests were made and which blocks freed, \
what compaction took, when lists were drained. Every choice is the model's own.

With --then compact_memory nothing is replayed: the state before, or a snapshot, is compacted as the kernel \
does it, zone by zone. Where the recording's case.json says \"then\": \"compact_memory\", its state1 is what \
the recorded kernel made of it, and is shown beside.

In lockstep the state follows the recording, and before each recorded choice the model is asked for its \
own. What the kernel does not trace is inferred and counted apart: pages handed out in bulk, blocks that \
compaction captured, frees past a locked per-CPU list.

Examples:
  highorder replay tests/data/recordings/612-rec-churn --lockstep
  highorder replay tests/data/recordings/612-rec-fragslab --vs linux-6.12-ungrouped
  highorder replay tests/data/recordings/612-rec-compact --then compact_memory")]
pub(crate) struct Arguments {
    /// The recording's file or folder; with --then a snapshot or one state will do
    #[arg(value_name = "RECORDING")]
    recording: PathBuf,
    /// Leave the recorded events aside, and see what this makes of the state before them
    #[arg(long, value_name = "WHAT", value_enum)]
    then: Option<Then>,
    /// Follow the recording, and ask the model before each of the kernel's choices
    #[arg(long, conflicts_with_all = ["vs", "png_dir", "then"])]
    lockstep: bool,
    /// The kernel whose rules the model has: a kernel file, or the name of a built-in one [default: the
    /// recorded one]
    #[arg(long, value_name = "K", add = ArgValueCompleter::new(complete::kernels))]
    kernel: Option<String>,
    /// Also serve the same demand under this kernel's rules; may be given several times
    #[arg(long, value_name = "K2", add = ArgValueCompleter::new(complete::kernels))]
    vs: Vec<String>,
    /// Write pictures into this folder: memory side by side, where it differs, free blocks, the way there
    #[arg(long, value_name = "D")]
    png_dir: Option<PathBuf>,
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    force: Force,
}

/// Replays, prints the comparison, draws it where asked for.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.then == Some(Then::CompactMemory) {
        return then::run(arguments);
    }
    if let Some(folder) = &arguments.png_dir {
        highorder_files::check_folder(folder, PICTURES, arguments.force.replace())?;
    }
    let kernel = arguments.kernel.as_deref().map(KernelFile::load).transpose()?;
    let others: Vec<_> =
        arguments.vs.iter().map(|name| KernelFile::load(name)).collect::<Result<_, _>>()?;
    let spinner = output::progress(None, "reading the recording");
    let recording = Recording::read(&arguments.recording)?;
    spinner.finish_and_clear();
    let kernel = match kernel {
        Some(kernel) => kernel,
        None => recorded_kernel(&recording, &arguments.recording)?,
    };
    if arguments.lockstep {
        return lockstep::run(&recording, &kernel, arguments.format);
    }
    let kernels: Vec<_> = std::iter::once(&kernel).chain(&others).collect();
    let comparison = with_progress(&recording, |progress| {
        free_running::replay(&recording, &kernel, &kernels, progress)
    })?;
    let sides: Vec<&Side> =
        std::iter::once(&comparison.recorded).chain(&comparison.models).collect();
    let maps: Vec<_> = sides.iter().map(|side| map_of(&recording, side)).collect();
    let tables = tables::all(&comparison, &maps);
    match arguments.format {
        Format::Text => print_text(&recording, &comparison, &tables)?,
        Format::Json => print_json(&recording, &comparison, &tables)?,
    }
    match &arguments.png_dir {
        Some(folder) => draw(&recording, &sides, maps, arguments, folder),
        None => Ok(()),
    }
}

/// Does `work` behind a progress bar of the recording's events.
fn with_progress<T>(
    recording: &Recording,
    work: impl FnOnce(&mut dyn FnMut(u64)) -> Result<T, highorder_input::InputError>,
) -> Result<T, Failure> {
    let bar = output::progress(Some(recording.events.len() as u64), "replaying");
    let done = work(&mut |events| bar.set_position(events));
    bar.finish_and_clear();
    Ok(done?)
}

/// The kernel file for the release that was recorded.
pub(crate) fn recorded_kernel(recording: &Recording, path: &Path) -> Result<KernelFile, Failure> {
    match recording.before.kernel_release.as_deref() {
        Some(release) => Ok(KernelFile::for_release(release)?),
        None => Err(Failure::input(format!(
            "{}: the recording does not say which kernel it is of, expected --kernel K",
            path.display()
        ))),
    }
}

/// What was replayed: `612-rec-churn: 136,230 events of Linux 6.12...`.
fn headline(recording: &Recording) -> String {
    let release = recording.before.kernel_release.as_deref().unwrap_or("an unknown release");
    let events = text::counted(recording.events.len() as u64, "event");
    let mut line = format!("{}: {events} of Linux {release}", recording.name);
    if recording.nr_lost > 0 {
        let lost = text::count(recording.nr_lost);
        line.push_str(&format!(", {lost} more were lost when it was recorded"));
    }
    if let Some(cut) = recording.cut_line {
        let cut = text::count(cut);
        line.push_str(&format!(
            "; the trace ends in the middle of line {cut}, and is read up to there"
        ));
    }
    line
}

/// What whoever recorded it has to say.
fn notes(recording: &Recording) -> String {
    recording.notes.iter().map(|note| format!("note: {note}\n")).collect()
}

fn print_text(
    recording: &Recording,
    comparison: &Comparison,
    tables: &[Table],
) -> Result<(), Failure> {
    let mut out = format!("{}\n{}", headline(recording), notes(recording));
    for table in tables {
        out.push('\n');
        out.push_str(&table.text());
    }
    let bytes = comparison.bytes_per_frame;
    out.push_str(&format!(
        "\nmodel memory: {bytes:.2} bytes a frame, {:.1} MiB for 64 GiB of frames\n",
        bytes * FRAMES_OF_64_GIB / 1024.0 / 1024.0
    ));
    output::print(out.as_bytes())
}

fn print_json(
    recording: &Recording,
    comparison: &Comparison,
    tables: &[Table],
) -> Result<(), Failure> {
    let tables = output::tables_as_json(tables)?;
    let models: Vec<_> = comparison
        .models
        .iter()
        .map(|model| {
            serde_json::json!({
                "kernel": model.name,
                "distance": model.distance(&comparison.recorded),
                "distance_by_pages": model.distance_by_pages(&comparison.recorded),
                "same_use": model.same_use(&comparison.recorded),
                "fragmenting_fallbacks": model.fragmenting(),
                "fallbacks": model.nr_fallbacks(),
                "unserved": model.unserved,
            })
        })
        .collect();
    let value = serde_json::json!({
        "recording": recording.name,
        "kernel_release": recording.before.kernel_release,
        "events": comparison.nr_events,
        "bytes_per_frame": comparison.bytes_per_frame,
        "recorded": {
            "fragmenting_fallbacks": comparison.recorded.fragmenting(),
            "fallbacks": comparison.recorded.nr_fallbacks(),
        },
        "models": models,
        "tables": tables,
    });
    output::print(format!("{value:#}\n").as_bytes())
}

// Pictures.

/// The map of one side at the end.
fn map_of(recording: &Recording, side: &Side) -> MemoryMap {
    let title = format!("{}, the end: {}", recording.name, side.name);
    let zones = MapZone::all_of(&recording.before);
    let (order, uses) = (recording.before.pageblock_order, side.uses.clone());
    MemoryMap::new(title, order, zones, uses, side.pageblocks.clone())
}

fn draw(
    recording: &Recording,
    sides: &[&Side],
    maps: Vec<MemoryMap>,
    arguments: &Arguments,
    folder: &Path,
) -> Result<(), Failure> {
    let caption = caption(recording, arguments);
    let captioned = |map: MemoryMap| map.with_caption(caption.clone());
    let maps: Vec<_> = maps.into_iter().map(captioned).collect();
    let spinner = output::progress(None, "drawing");
    let svgs = [
        render_side_by_side(&maps),
        render_difference(&maps[0], &maps[1]),
        free_blocks(recording, sides, caption.clone()).svg(),
        over_time(recording, sides, caption.clone()).svg(),
    ];
    let pngs: Result<Vec<_>, _> = svgs.iter().map(|svg| raster::png(svg, PNG_SCALE)).collect();
    spinner.finish_and_clear();
    let pngs = pngs?;
    output::write_into(folder, PICTURES.into_iter().zip(pngs), arguments.force)
}

fn caption(recording: &Recording, arguments: &Arguments) -> Caption {
    let mut words = vec!["highorder".to_owned(), "replay".to_owned()];
    words.push(arguments.recording.display().to_string());
    words.extend(arguments.kernel.iter().flat_map(|k| ["--kernel".to_owned(), k.clone()]));
    words.extend(arguments.vs.iter().flat_map(|k| ["--vs".to_owned(), k.clone()]));
    let folder = arguments.png_dir.iter().map(|d| d.display().to_string());
    words.extend(folder.flat_map(|d| ["--png-dir".to_owned(), d]));
    Caption {
        lines: vec![VERSION.to_owned(), headline(recording)],
        command: Some(output::shell_command(words.iter().map(String::as_str))),
    }
}

/// Free blocks by order, a bar for each side.
fn free_blocks(recording: &Recording, sides: &[&Side], caption: Caption) -> BarChart {
    let orders = || tables::ORDERS;
    let values = |side: &Side| -> Vec<f64> {
        orders().map(|order| tables::free_pages_of_order(side, order) as f64).collect()
    };
    BarChart {
        title: format!("{}: free memory by order at the end", recording.name),
        unit: "pages".to_owned(),
        x_label: "order".to_owned(),
        groups: orders().map(|order| order.to_string()).collect(),
        series: sides.iter().map(|side| (side.name.clone(), values(side))).collect(),
        caption,
    }
}

/// The way there, a curve for each side.
fn over_time(recording: &Recording, sides: &[&Side], caption: Caption) -> LineChart {
    type Measure = fn(&free_running::Sample) -> f64;
    let measures: [(&str, &str, Measure); 4] = [
        ("Free memory", "pages", |s| s.free_pages as f64),
        ("Free in pageblocks or larger", "pages", |s| s.huge_pages as f64),
        ("Free memory unusable for a huge page", "%", |s| {
            100.0 * (1.0 - s.huge_pages as f64 / s.free_pages.max(1) as f64)
        }),
        ("Fallbacks so far that mixed pageblocks", "", |s| s.fragmenting as f64),
    ];
    let curve = |side: &Side, measure: Measure| Series {
        name: side.name.clone(),
        points: side.samples.iter().map(|s| (s.seconds, measure(s))).collect(),
    };
    let panels = measures.map(|(title, unit, measure)| Panel {
        title: title.to_owned(),
        unit: unit.to_owned(),
        series: sides.iter().map(|side| curve(side, measure)).collect(),
    });
    LineChart {
        title: format!("{}: recorded and model", recording.name),
        x_label: "seconds since the first event".to_owned(),
        panels: panels.into(),
        caption,
    }
}
