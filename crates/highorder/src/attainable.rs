//! `highorder attainable`: how many blocks of a size can be had, and what keeps the rest from being had.

use crate::complete;
use crate::failure::Failure;
use crate::map::{self, When};
use crate::output::{self, Force, VERSION};
use clap::{ArgGroup, ValueEnum, value_parser};
use clap_complete::engine::ArgValueCompleter;
use highorder_input::InputError;
use highorder_kernelfs::{Settings, TextFile};
use highorder_kernels::{KernelFile, machine};
use highorder_lab::attainable::{self, Attainable, Gone, Size};
use highorder_lab::compact_memory::Recorded;
use highorder_lab::what_if::{MACHINE, recorded_settings};
use highorder_mm::types::MAX_PAGE_ORDER;
use highorder_recorder::settings;
use highorder_report::{BlockedMap, Caption, UseClass};
use highorder_snapshot::{RecordingFiles, Snapshot, frames_of_process};
use highorder_tables::{Table, Value, text};
use std::path::{Path, PathBuf};

/// How the tables are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables and a map, to read
    Text,
    /// One object
    Json,
}

/// What is wanted, and of what memory.
#[derive(clap::Args)]
#[command(group = ArgGroup::new("wanted").required(true), after_help = "\
Blocks up to the allocator's largest order are had from its free lists, and compaction makes more of them; the model \
compacts the state to the end, as writing 1 to /proc/sys/vm/compact_memory does. Any size can be had by emptying a range \
of memory: hugetlb pages of 1 GiB are, and so is CMA memory. Nothing is changed on the machine that is looked at.

Examples:
  highorder attainable --order 9
  highorder attainable today.snap --size 2M --without file --png blocked.png
  highorder attainable today.snap --size 1G --without anon,thp")]
pub(crate) struct Arguments {
    /// A snapshot file, a recorded state's folder, a recording, or `live` for this machine as it is now
    #[arg(value_name = "SNAPSHOT|live", default_value = map::LIVE)]
    source: PathBuf,
    /// Blocks of 2^N pages
    #[arg(long, value_name = "N", group = "wanted", value_parser = value_parser!(u8).range(0..=i64::from(MAX_PAGE_ORDER)))]
    order: Option<u8>,
    /// Blocks of this size: 2M, 1G, or any other in whole pages
    #[arg(long, value_name = "SIZE", group = "wanted", value_parser = Size::parse)]
    size: Option<Size>,
    /// What there would be once these uses have ended, by their names in `map --format json`; may be given again
    #[arg(long, value_name = "USE,...", value_parser = Uses::parse)]
    without: Vec<Uses>,
    /// What there would be once this process of this machine has ended; may be given again
    #[arg(long, value_name = "PID")]
    without_process: Vec<u32>,
    /// The kernel whose rules hold [default: the one that the state is of]
    #[arg(long, value_name = "KERNEL")]
    kernel: Option<String>,
    /// The machine whose costs work has, as `calibrate` measures them: they decide when kswapd has a CPU
    #[arg(long, value_name = "MACHINE", default_value = MACHINE, add = ArgValueCompleter::new(complete::machines))]
    machine: String,
    /// Also write where the blocks lie, into a .png or .svg file
    #[arg(long, visible_alias = "picture", value_name = "FILE")]
    png: Option<PathBuf>,
    /// Colour in the terminal
    #[arg(long, visible_alias = "colour", value_name = "WHEN", value_enum, default_value_t = When::Auto)]
    color: When,
    /// Most lines for the blocks of all zones
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u16).range(1..))]
    lines: u16,
    #[command(flatten)]
    force: Force,
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Uses that end together.
#[derive(Clone, Debug)]
struct Uses(Vec<UseClass>);

impl Uses {
    fn parse(text: &str) -> Result<Self, String> {
        let ends: Vec<_> = UseClass::ALL.into_iter().filter(|u| u.mobility().is_some()).collect();
        let find = |name: &str| {
            ends.iter().find(|class| class.key() == name).copied().ok_or_else(|| {
                let names: Vec<_> = ends.iter().map(|class| class.key()).collect();
                format!("found use `{name}`, expected of {}", names.join(", "))
            })
        };
        text.split(',').map(find).collect::<Result<_, _>>().map(Self)
    }
}

/// Prints what can be had, and draws it where asked for.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let picture = arguments.force.picture(arguments.png.as_deref())?;
    let kernel = arguments.kernel.as_deref().map(KernelFile::load).transpose()?;
    let costs_of = machine::load(&arguments.machine)?;
    let is_live = arguments.source == Path::new(map::LIVE);
    if !is_live && !arguments.without_process.is_empty() {
        return Err(Failure::input(format!(
            "--without-process: found {}, expected live: a snapshot does not say whose pages are",
            arguments.source.display()
        )));
    }
    let size = arguments.order.map(Size::of_order).or(arguments.size);
    let size = size.expect("clap requires one of both");
    let spinner = output::progress(None, "compacting");
    let (state, recorded, settings) = read(&arguments.source)?;
    let kernel = match (kernel, state.kernel_release.as_deref()) {
        (Some(kernel), _) => kernel,
        (None, Some(release)) => KernelFile::for_release(release)
            .or_else(|_| KernelFile::load(highorder_kernels::nearest(release)))?,
        (None, None) => {
            let message = "the snapshot does not say which kernel it is of, expected --kernel K";
            return Err(InputError::file(&arguments.source, message).into());
        }
    };
    let mut gone: Vec<_> =
        arguments.without.iter().map(|uses| Gone::Uses(uses.0.clone())).collect();
    for pid in &arguments.without_process {
        gone.push(Gone::Frames(format!("process {pid}"), frames_of_process(*pid)?));
    }
    let settings = settings.as_ref();
    let mut found = attainable::attainable(&state, &kernel, size, &gone, settings, &costs_of)?;
    found.notes.extend(of_other_release(&state, &kernel));
    spinner.finish_and_clear();
    let recorded = recorded.and_then(|after| attainable::of_recorded(&after, size));
    let tables = tables(&found, recorded);
    let map = blocked_map(&found, arguments);
    if let Some(picture) = &picture {
        picture.write(&map.svg())?;
    }
    let written = picture.iter().map(output::PictureFile::destination);
    match arguments.format {
        Format::Json => output::print_beside(json(&found, &state, &tables)?.as_bytes(), written),
        Format::Text => {
            let out = print_text(&found, &state, &tables, &map, arguments);
            output::print_beside(out.as_bytes(), written)
        }
    }
}

/// What is to be said where a kernel's rules are taken for those of another release.
fn of_other_release(state: &Snapshot, kernel: &KernelFile) -> Option<String> {
    let release = state.kernel_release.as_deref()?;
    let is_own = release.starts_with(&kernel.release);
    (!is_own)
        .then(|| format!("compaction follows the rules of {}, not of Linux {release}", kernel.name))
}

/// The state; where a recording has compacted it, what its kernel made of it; and the machine's settings, if they are
/// known: a recording's, or this machine's.
fn read(source: &Path) -> Result<(Snapshot, Option<Snapshot>, Option<Settings>), Failure> {
    if RecordingFiles::are_at(source) {
        let Recorded { before, after, .. } = Recorded::read(source)?;
        return Ok((before, after, recorded_settings(source)?));
    }
    let settings = match source == Path::new(map::LIVE) {
        true => Settings::parse("settings", settings(Path::new("/")).as_bytes()).ok(),
        false => None,
    };
    Ok((map::read(source)?, None, settings))
}

/// `2 MiB (order 9)`.
fn told(size: Size) -> String {
    let bytes = text::pages(size.pages());
    size.order().map_or(bytes.clone(), |order| format!("{bytes} (order {order})"))
}

fn tables(found: &Attainable, recorded: Option<u64>) -> Vec<Table> {
    let count = |n: u64| Value::Count(n as i64);
    let title = format!("Blocks of {}, of {}", told(found.size), text::count(found.blocks));
    let columns = [
        ("", "way"),
        ("blocks", "blocks"),
        ("above the min marks", "above_min"),
        ("of all", "share_percent"),
    ];
    let mut ways = Table::new(title, &columns);
    let share = |blocks: u64| Value::Percent(100.0 * blocks as f64 / found.blocks.max(1) as f64);
    for way in &found.ways {
        let above_min = way.above_min.map_or(Value::Missing, count);
        ways.push(vec![way.name.clone().into(), count(way.blocks), above_min, share(way.blocks)]);
    }
    if let Some(blocks) = recorded {
        let name = "after compaction, as the recorded kernel did it";
        ways.push(vec![name.into(), count(blocks), Value::Missing, share(blocks)]);
    }
    let columns = [
        ("pages that stay", "use"),
        ("blocks with any", "blocks"),
        ("with nothing else", "alone"),
        ("pages", "pages"),
    ];
    let mut blockers = Table::new("What blocks the others", &columns);
    for (class, blocker) in &found.blockers {
        let numbers = [blocker.blocks, blocker.alone, blocker.pages].map(count);
        blockers.push(std::iter::once(class.swatch().label.into()).chain(numbers).collect());
    }
    let columns = [
        ("pageblock type", "type"),
        ("blocks", "blocks"),
        ("can be had", "free"),
        ("only pages that could move", "movable"),
        ("blocked", "blocked"),
    ];
    let mut types = Table::new("By type of pageblock, after compaction", &columns);
    for (migratetype, of) in &found.types {
        let numbers = [of.blocks, of.free, of.movable, of.blocked].map(count);
        types.push(std::iter::once(migratetype.name().into()).chain(numbers).collect());
    }
    let tables = [ways, blockers, types];
    tables.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

fn headline(state: &Snapshot, arguments: &Arguments) -> String {
    let release = state.kernel_release.as_deref().unwrap_or("an unknown release");
    let source = match arguments.source == Path::new(map::LIVE) {
        true => "this machine".to_owned(),
        false => arguments.source.display().to_string(),
    };
    format!("{source}, Linux {release}, exactness: {}", state.exactness)
}

fn print_text(
    found: &Attainable,
    state: &Snapshot,
    tables: &[Table],
    map: &BlockedMap,
    arguments: &Arguments,
) -> String {
    let mut out = format!("{}\n", headline(state, arguments));
    for table in tables {
        out.push('\n');
        out.push_str(&table.text());
    }
    if !map.zones.is_empty() {
        out.push_str("\nWhere they lie, after compaction\n");
        let lines = usize::from(arguments.lines);
        out.push_str(&map.terminal(map::terminal_width(), lines, map::colour(arguments.color)));
    }
    out.push('\n');
    for note in state.inferred.iter().chain(&found.notes) {
        out.push_str(&format!("note: {note}\n"));
    }
    out
}

fn json(found: &Attainable, state: &Snapshot, tables: &[Table]) -> Result<String, Failure> {
    let value = serde_json::json!({
        "kernel_release": state.kernel_release,
        "exactness": state.exactness.name(),
        "size_pages": found.size.pages(),
        "blocks": found.blocks,
        "notes": found.notes,
        "inferred": state.inferred,
        "tables": output::tables_as_json(tables)?,
    });
    output::json(&value)
}

fn blocked_map(found: &Attainable, arguments: &Arguments) -> BlockedMap {
    let words = ["highorder".to_owned(), "attainable".to_owned()];
    let mut words: Vec<String> = words.into();
    words.push(arguments.source.display().to_string());
    words.extend(arguments.order.iter().map(|order| format!("--order={order}")));
    words.extend(arguments.size.iter().map(|size| format!("--size={}K", size.pages() * 4)));
    words.extend(arguments.kernel.iter().map(|kernel| format!("--kernel={kernel}")));
    words.extend(arguments.png.iter().map(|png| format!("--png={}", png.display())));
    let command = output::shell_command(words.iter().map(String::as_str));
    let zones = found.zones.iter().map(|zone| (zone.name.clone(), zone.blocks.clone()));
    BlockedMap {
        title: format!("Blocks of {} after compaction", told(found.size)),
        zones: zones.collect(),
        caption: Caption { lines: vec![VERSION.to_owned()], command: Some(command) },
    }
}
