//! `highorder map`: the picture of physical memory.

mod json;

use crate::failure::Failure;
use crate::output::{self, Force, VERSION};
use crate::snapshot::LABEL_FILE;
use clap::{ValueEnum, value_parser};
use highorder_files::Destination;
use highorder_report::{Colour, MemoryMap, TerminalOptions, raster, render, render_terminal};
use highorder_snapshot::{Exactness, RecordingFiles, Snapshot, live};
use std::env;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

/// The word that stands for this machine in place of a file.
pub(crate) const LIVE: &str = "live";
/// Pixels per unit of the SVG, so that text is sharp on dense screens too.
const PNG_SCALE: f32 = 2.0;

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// As the terminal can; letters into files and pipes, and where NO_COLOR is set
    Auto,
    /// 24-bit colour, whatever standard output is
    Always,
    /// The palette of 256, whatever standard output is
    #[value(name = "256")]
    Indexed,
    /// Letters
    Never,
}

/// How the map is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A picture and tables to read
    Text,
    /// The numbers as one object
    Json,
}

/// What to draw, and where to.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  highorder map
  highorder map today.snap --png today.png")]
pub(crate) struct Arguments {
    /// A snapshot file, a state of a recording (`RECORDING/state0`), or `live` for this machine as it is now
    #[arg(value_name = "SNAPSHOT|live", default_value = LIVE)]
    source: PathBuf,
    /// Also write the picture as PNG
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
    /// Also write the picture as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Colour in the terminal
    #[arg(long, visible_alias = "colour", value_name = "WHEN", value_enum, default_value_t = When::Auto)]
    color: When,
    /// Characters in a line, from 72 to 1000 [default: the terminal's, else 80]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(72..=1000))]
    width: Option<u16>,
    /// Most lines for the cells of all zones
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = value_parser!(u16).range(1..))]
    lines: u16,
    #[command(flatten)]
    force: Force,
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Draws the map on standard output and into the files asked for.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let svg = arguments.force.destination(arguments.svg.as_deref())?;
    let png = arguments.force.destination(arguments.png.as_deref())?;
    // Where no more than counts is known, free blocks are drawn somewhere, and the title says so.
    let snapshot = read(&arguments.source)?.placed();
    let map = map_of(&snapshot, arguments);
    if svg.is_some() || png.is_some() {
        write_pictures(&map, svg.as_ref(), png.as_ref())?;
    }
    if arguments.format == Format::Json {
        let object = format!("{:#}\n", json::object(&map, &snapshot));
        return output::print_beside(object.as_bytes(), svg.iter().chain(&png));
    }
    let options = TerminalOptions {
        width: arguments.width.map_or_else(terminal_width, usize::from),
        map_lines: arguments.lines.into(),
        colour: colour(arguments.color),
    };
    output::print_beside(render_terminal(&map, options).as_bytes(), svg.iter().chain(&png))
}

/// A state, wherever it is: of this machine, in a file or a folder, in a recording.
pub(crate) fn read(source: &Path) -> Result<Snapshot, Failure> {
    if source == Path::new(LIVE) {
        return Ok(live::take(live::Options::default())?);
    }
    if RecordingFiles::are_at(source) {
        return Err(Failure::input(format!(
            "{0}: found a recording, expected one state of it: {0}/state0 or {0}/state1",
            source.display()
        )));
    }
    Ok(Snapshot::read(source)?)
}

/// The map with its title and a caption that says what it is and how to make it again.
fn map_of(snapshot: &Snapshot, arguments: &Arguments) -> MemoryMap {
    let source = arguments.source.display().to_string();
    let label = snapshot.files.get(LABEL_FILE).map(|text| String::from_utf8_lossy(text));
    let title = match label {
        Some(label) => label.into_owned(),
        None if source == LIVE => "The memory of this machine".to_owned(),
        None => source.clone(),
    };
    let mut map = MemoryMap::from_snapshot(title, snapshot, snapshot.frame_uses());
    if snapshot.exactness == Exactness::Counts {
        map.title.push_str(" (positions made up)");
        map.pageblocks.clear();
    }
    let mut lines = vec![format!("{VERSION}, exactness: {}", snapshot.exactness)];
    lines.extend(snapshot.taken_at_s.map(|s| format!("taken {}", output::utc(s))));
    map.caption.lines.splice(0..0, lines);
    let mut words = vec!["highorder".to_owned(), "map".to_owned(), source];
    for (flag, path) in [("--png", &arguments.png), ("--svg", &arguments.svg)] {
        words.extend(path.iter().flat_map(|p| [flag.to_owned(), p.display().to_string()]));
    }
    map.caption.command = Some(output::shell_command(words.iter().map(String::as_str)));
    map
}

fn write_pictures(
    map: &MemoryMap,
    svg: Option<&Destination>,
    png: Option<&Destination>,
) -> Result<(), Failure> {
    let spinner = output::progress(None, "drawing");
    let drawn = render(map);
    let png = match png {
        Some(destination) => Some((destination, raster::png(&drawn, PNG_SCALE)?)),
        None => None,
    };
    spinner.finish_and_clear();
    let svg = svg.map(|destination| (destination, drawn.into_bytes()));
    for (destination, bytes) in svg.into_iter().chain(png) {
        output::write(destination, &bytes)?;
    }
    Ok(())
}

pub(crate) fn terminal_width() -> usize {
    let width = terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| width.0.into());
    width.unwrap_or(TerminalOptions::default().width)
}

pub(crate) fn colour(when: When) -> Colour {
    match when {
        When::Always => Colour::True,
        When::Indexed => Colour::Indexed,
        When::Never => Colour::Never,
        When::Auto => automatic_colour(),
    }
}

/// What standard output can show.
pub(crate) fn automatic_colour() -> Colour {
    automatic(io::stdout().is_terminal(), |name: &str| env::var(name).unwrap_or_default())
}

/// What a terminal says of itself through the environment: <https://no-color.org>, `COLORTERM`, `TERM`.
fn automatic(is_terminal: bool, variable: impl Fn(&str) -> String) -> Colour {
    let is_plain = !is_terminal || !variable("NO_COLOR").is_empty() || variable("TERM") == "dumb";
    match variable("COLORTERM").as_str() {
        _ if is_plain => Colour::Never,
        "truecolor" | "24bit" => Colour::True,
        _ => Colour::Indexed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(is_terminal: bool, environment: &[(&str, &str)], expected: Colour) {
        let variable = |name: &str| {
            let value = environment.iter().find(|(key, _)| *key == name);
            value.map_or(String::new(), |(_, value)| (*value).to_owned())
        };
        assert_eq!(automatic(is_terminal, variable), expected);
    }

    #[test]
    fn colour_follows_the_terminal_and_no_color() {
        check(true, &[("COLORTERM", "truecolor")], Colour::True);
        check(true, &[("COLORTERM", "24bit")], Colour::True);
        check(true, &[("TERM", "xterm-256color")], Colour::Indexed);
        check(true, &[("COLORTERM", "truecolor"), ("NO_COLOR", "1")], Colour::Never);
        check(true, &[("COLORTERM", "truecolor"), ("NO_COLOR", "")], Colour::True);
        check(true, &[("TERM", "dumb")], Colour::Never);
        check(false, &[("COLORTERM", "truecolor")], Colour::Never);
    }
}
