//! What compaction of all zones makes of a recorded state, beside what the recorded kernel made of it.

use super::{Arguments, Format, PNG_SCALE, tables};
use crate::failure::Failure;
use crate::output::{self, VERSION};
use highorder_input::InputError;
use highorder_kernels::KernelFile;
use highorder_lab::compact_memory::{
    self, Compacted, Comparison, Recorded, Work, distance, free_blocks_of_order,
};
use highorder_lab::free_running::Side;
use highorder_lab::passes::{Clock, Passes};
use highorder_mm::types::Order;
use highorder_report::map::MapZone;
use highorder_report::{BarChart, Caption, MemoryMap, raster, render_side_by_side};
use highorder_snapshot::RecordingFiles;
use highorder_tables::{Table, Value, text};
use std::path::Path;

/// Names of the pictures that `--png-dir` gets, but for those of the scanners.
const PICTURES: [&str; 2] = ["memory.png", "free-blocks.png"];

/// Compacts, prints the comparison, draws it where asked for.
pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let kernel = arguments.kernel.as_deref().map(KernelFile::load).transpose()?;
    let others: Vec<_> =
        arguments.vs.iter().map(|name| KernelFile::load(name)).collect::<Result<_, _>>()?;
    let spinner = output::progress(None, "compacting");
    let recorded = Recorded::read(&arguments.recording)?;
    let kernel = match (kernel, recorded.before.kernel_release.as_deref()) {
        (Some(kernel), _) => kernel,
        (None, Some(release)) => KernelFile::for_release(release)?,
        (None, None) => {
            return Err(Failure::input(format!(
                "{}: the snapshot does not say which kernel it is of, expected --kernel K",
                arguments.recording.display()
            )));
        }
    };
    let kernels: Vec<_> = std::iter::once(&kernel).chain(&others).collect();
    if let Some(folder) = &arguments.png_dir {
        let scanners = kernels.iter().map(|kernel| of_scanners(&kernel.name));
        let recorded = recorded_trace(&recorded, arguments).map(|_| of_scanners("recorded"));
        let names = PICTURES.map(str::to_owned).into_iter().chain(scanners).chain(recorded);
        highorder_files::check_folder(folder, names, arguments.force.replace())?;
    }
    let comparison = compact_memory::compact(&recorded, &kernels)?;
    spinner.finish_and_clear();
    let tables = [summary(&comparison), by_order(&comparison), by_zone(&comparison)];
    match arguments.format {
        Format::Text => print_text(&recorded, &tables)?,
        Format::Json => print_json(&recorded, &comparison, &tables)?,
    }
    match &arguments.png_dir {
        Some(folder) => draw(&recorded, &comparison, &kernels, arguments, folder),
        None => Ok(()),
    }
}

fn headline(recorded: &Recorded) -> String {
    let release = recorded.before.kernel_release.as_deref().unwrap_or("an unknown release");
    let beside = match recorded.after {
        Some(_) => "beside what that kernel did",
        None => "what that kernel made of it was not recorded",
    };
    let inferred = match recorded.before.inferred.len() {
        0 => "",
        _ => "; parts of the state are inferred",
    };
    format!("{}, Linux {release}, then compact_memory: {beside}{inferred}", recorded.name)
}

/// The recorded machine before and after, and models of it after.
fn sides(comparison: &Comparison) -> Vec<(&Side, Option<Work>)> {
    let recorded = comparison.recorded.iter().map(|(side, work)| (side, Some(*work)));
    let models = comparison.models.iter().map(|model| (&model.side, Some(model.work)));
    std::iter::once((&comparison.before, None)).chain(recorded).chain(models).collect()
}

fn table(title: &str, first: &[(&str, &str)], comparison: &Comparison) -> Table {
    let sides = sides(comparison);
    let sides = sides.iter().map(|(side, _)| (side.name.as_str(), side.name.as_str()));
    let columns: Vec<_> = first.iter().copied().chain(sides).collect();
    Table::new(title, &columns)
}

fn summary(comparison: &Comparison) -> Table {
    let mut table = table("Compaction of all zones", &[("", "measure")], comparison);
    let sides = sides(comparison);
    let mut row = |name: &str, value: &dyn Fn(&Side, Option<Work>) -> Value| {
        let values = sides.iter().map(|(side, work)| value(side, *work));
        table.push(std::iter::once(Value::from(name)).chain(values).collect());
    };
    let count = |n: u64| Value::Count(n as i64);
    let of_work = |measure: fn(&Work) -> u64| {
        move |_: &Side, work: Option<Work>| {
            work.map_or(Value::Missing, |work| count(measure(&work)))
        }
    };
    row("free pages", &|side, _| count(side.free_pages()));
    row("free blocks", &|side, _| count(side.free_blocks.values().sum()));
    row("free memory unusable for a huge page", &|side, _| {
        let usable: u64 = tables::ORDERS
            .filter(|order| Order(*order) >= side.pageblock_order)
            .map(|order| tables::free_pages_of_order(side, order))
            .sum();
        Value::Percent(100.0 * (1.0 - usable as f64 / side.free_pages().max(1) as f64))
    });
    row("pages moved (pgmigrate_success)", &of_work(|work| work.migrated));
    row("pages that failed to move (pgmigrate_fail)", &of_work(|work| work.failed));
    row("frames scanned for pages (compact_migrate_scanned)", &of_work(|w| w.migrate_scanned));
    row("frames scanned for targets (compact_free_scanned)", &of_work(|w| w.free_scanned));
    row("pages isolated (compact_isolated)", &of_work(|work| work.isolated));
    if let Some((recorded, _)) = &comparison.recorded {
        let is_recorded = |side: &Side| std::ptr::eq(side, recorded);
        let other = |side: &Side, value: Value| match is_recorded(side) {
            true => Value::Missing,
            false => value,
        };
        row("distance of free pages by order from recorded, 0 to 1", &|side, _| {
            other(side, Value::Real(distance(side, recorded), 4))
        });
        row("frames used as recorded", &|side, _| {
            other(side, Value::Percent(100.0 * side.same_use(recorded)))
        });
    }
    table
}

fn by_order(comparison: &Comparison) -> Table {
    let mut table = table("Free blocks by order", &[("order", "order")], comparison);
    for order in tables::ORDERS {
        let nr =
            |(side, _): &(&Side, _)| Value::Count(free_blocks_of_order(side, Order(order)) as i64);
        let values = sides(comparison);
        let values = values.iter().map(nr);
        table.push(std::iter::once(Value::Count(order.into())).chain(values).collect());
    }
    table
}

fn by_zone(comparison: &Comparison) -> Table {
    let mut table = Table::new(
        "Runs of the model",
        &[
            ("kernel", "kernel"),
            ("node", "node"),
            ("zone", "zone"),
            ("scanned for pages", "migrate_scanned"),
            ("for targets", "free_scanned"),
            ("moved", "moved"),
            ("put back", "put_back"),
            ("result", "result"),
        ],
    );
    for model in &comparison.models {
        for zone in &model.zones {
            let count = |n: u64| Value::Count(n as i64);
            table.push(vec![
                model.side.name.as_str().into(),
                zone.node.0.into(),
                zone.kind.to_string().into(),
                count(zone.nr_migrate_scanned),
                count(zone.nr_free_scanned),
                count(zone.nr_moved),
                count(zone.nr_put_back),
                format!("{:?}", zone.result).into(),
            ]);
        }
    }
    table
}

fn print_text(recorded: &Recorded, tables: &[Table]) -> Result<(), Failure> {
    let mut out = format!("{}\n", headline(recorded));
    for assumed in recorded.assumed() {
        out.push_str(&format!("assumed: {assumed}\n"));
    }
    for table in tables {
        out.push('\n');
        out.push_str(&table.text());
    }
    output::print(out.as_bytes())
}

fn print_json(
    recorded: &Recorded,
    comparison: &Comparison,
    tables: &[Table],
) -> Result<(), Failure> {
    let tables = output::tables_as_json(tables)?;
    let work = |work: &Work| {
        serde_json::json!({
            "compact_migrate_scanned": work.migrate_scanned,
            "compact_free_scanned": work.free_scanned,
            "compact_isolated": work.isolated,
            "pgmigrate_success": work.migrated,
            "pgmigrate_fail": work.failed,
        })
    };
    let after = comparison.recorded.as_ref();
    let models: Vec<_> = comparison
        .models
        .iter()
        .map(|model| {
            serde_json::json!({
                "kernel": model.side.name,
                "distance": after.map(|(side, _)| distance(&model.side, side)),
                "same_use": after.map(|(side, _)| model.side.same_use(side)),
                "work": work(&model.work),
            })
        })
        .collect();
    let value = serde_json::json!({
        "recording": recorded.name,
        "kernel_release": recorded.before.kernel_release,
        "then": "compact_memory",
        "exactness": recorded.before.exactness.name(),
        "assumed": recorded.assumed(),
        "recorded": after.map(|(_, of)| work(of)),
        "models": models,
        "tables": tables,
    });
    output::print(format!("{value:#}\n").as_bytes())
}

// Pictures.

fn draw(
    recorded: &Recorded,
    comparison: &Comparison,
    kernels: &[&KernelFile],
    arguments: &Arguments,
    folder: &Path,
) -> Result<(), Failure> {
    let caption = caption(recorded, arguments);
    let sides = sides(comparison);
    let maps: Vec<_> =
        sides.iter().map(|(side, _)| map_of(recorded, side, caption.clone())).collect();
    let spinner = output::progress(None, "drawing");
    let mut svgs = vec![
        (PICTURES[0].to_owned(), render_side_by_side(&maps)),
        (PICTURES[1].to_owned(), free_blocks(recorded, &sides, caption.clone()).svg()),
    ];
    for (model, kernel) in comparison.models.iter().zip(kernels) {
        let title = format!("{}, then compact_memory: {}", recorded.name, kernel.name);
        let passes = passes_of(model, kernel)?;
        let svg = passes.chart(title, Clock::Events, caption.clone()).svg();
        svgs.push((of_scanners(&kernel.name), svg));
    }
    if let Some(trace) = recorded_trace(recorded, arguments) {
        let title = format!("{}, then compact_memory: recorded", recorded.name);
        let svg = Passes::read(trace)?.chart(title, Clock::Milliseconds, caption).svg();
        svgs.push((of_scanners("recorded"), svg));
    }
    let pngs: Result<Vec<_>, _> =
        svgs.into_iter().map(|(name, svg)| Ok((name, raster::png(&svg, PNG_SCALE)?))).collect();
    spinner.finish_and_clear();
    let pngs = pngs.map_err(|error: raster::RasterError| Failure::from(error))?;
    output::write_into(folder, pngs, arguments.force)
}

/// The name of the picture of the scanners of one side.
fn of_scanners(side: &str) -> String {
    format!("scanners-{side}.png")
}

/// The trace of the kernel's own run, where there was one and it was traced.
fn recorded_trace<'a>(recorded: &Recorded, arguments: &'a Arguments) -> Option<&'a Path> {
    recorded.after.as_ref()?;
    let files = RecordingFiles::open(&arguments.recording).ok()?;
    files.trace().is_ok().then_some(&arguments.recording)
}

/// The model's runs, read from the text of its events: as those of a real kernel are.
fn passes_of(model: &Compacted, kernel: &KernelFile) -> Result<Passes, InputError> {
    Passes::parse("events of the model", model.trace_text(kernel, &kernel.name))
}

fn map_of(recorded: &Recorded, side: &Side, caption: Caption) -> MemoryMap {
    let zones = MapZone::all_of(&recorded.before);
    let title = match side.name.as_str() {
        "before" => format!("{}, before", recorded.name),
        name => format!("{}, compacted: {name}", recorded.name),
    };
    let (uses, blocks) = (side.uses.clone(), side.pageblocks.clone());
    MemoryMap::new(title, recorded.before.pageblock_order, zones, uses, blocks)
        .with_caption(caption)
}

/// Free memory by order, a bar for each side.
fn free_blocks(recorded: &Recorded, sides: &[(&Side, Option<Work>)], caption: Caption) -> BarChart {
    let values = |side: &Side| -> Vec<f64> {
        tables::ORDERS.map(|order| tables::free_pages_of_order(side, order) as f64).collect()
    };
    BarChart {
        title: format!("{}, then compact_memory: free memory by order", recorded.name),
        unit: "pages".to_owned(),
        x_label: "order".to_owned(),
        groups: tables::ORDERS.map(|order| order.to_string()).collect(),
        series: sides.iter().map(|(side, _)| (side.name.clone(), values(side))).collect(),
        caption,
    }
}

fn caption(recorded: &Recorded, arguments: &Arguments) -> Caption {
    let mut words = vec!["highorder".to_owned(), "replay".to_owned()];
    words.push(arguments.recording.display().to_string());
    words.extend(["--then".to_owned(), "compact_memory".to_owned()]);
    words.extend(arguments.kernel.iter().flat_map(|k| ["--kernel".to_owned(), k.clone()]));
    words.extend(arguments.vs.iter().flat_map(|k| ["--vs".to_owned(), k.clone()]));
    let folder = arguments.png_dir.iter().map(|d| d.display().to_string());
    words.extend(folder.flat_map(|d| ["--png-dir".to_owned(), d]));
    let pages = text::count(recorded.before.nr_frames);
    let mut lines = vec![VERSION.to_owned(), headline(recorded), format!("{pages} frames")];
    lines.extend(recorded.assumed().iter().map(|assumed| format!("assumed: {assumed}")));
    Caption { lines, command: Some(output::shell_command(words.iter().map(String::as_str))) }
}
