//! Which blocks of one size can be had, and what keeps the others from being had: a cell for each block.

use crate::map::Caption;
use crate::palette::{Rgb, UseClass};
use crate::picture::draw_caption;
use crate::svg::{INK, QUIET, Runs, Style, Svg, TROUGH};
use crate::terminal::Colour;
use highorder_tables::text;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const MARGIN: f64 = 28.0;
const TITLE: Style = Style::new(18.0, INK).bold();
const HEADING: Style = Style::new(12.5, INK).bold();
const LABEL: Style = Style::new(11.0, INK);
const QUIET_LABEL: Style = Style::new(10.0, QUIET);
/// Cells in a row, and the side of one with the gap behind it.
const PER_ROW: usize = 96;
const CELL: i64 = 8;
const GAP: i64 = 1;
const LEGEND_WIDTH: f64 = 190.0;
/// Blocks that can be had, and blocks with nothing but pages that could move.
const FREE: Rgb = Rgb(0x8f, 0xd1, 0x8a);
const MOVABLE: Rgb = Rgb(0x6f, 0xb1, 0xe6);

/// What became of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockPlace {
    /// It can be had.
    Free,
    /// It holds pages that could move, and none that stay.
    Movable,
    /// Pages stay in it, most of them of this use.
    Blocked(UseClass),
    /// There is no memory, or none that the allocator has.
    Absent,
}

impl BlockPlace {
    fn letter(self) -> char {
        match self {
            Self::Free => '.',
            Self::Movable => 'o',
            Self::Blocked(class) => class.swatch().letter,
            Self::Absent => ' ',
        }
    }

    fn colour(self) -> Rgb {
        match self {
            Self::Free => FREE,
            Self::Movable => MOVABLE,
            Self::Blocked(class) => class.swatch().colour,
            Self::Absent => TROUGH,
        }
    }

    fn label(self) -> String {
        match self {
            Self::Free => "can be had".to_owned(),
            Self::Movable => "only pages that could move".to_owned(),
            Self::Blocked(class) => format!("blocked by {}", class.swatch().label),
            Self::Absent => "no memory".to_owned(),
        }
    }
}

/// The blocks of all zones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BlockedMap {
    /// Heading.
    pub title: String,
    /// Zones by name, and their blocks by address.
    pub zones: Vec<(String, Vec<BlockPlace>)>,
    /// Printed below.
    pub caption: Caption,
}

impl BlockedMap {
    /// How often each place occurs.
    fn counts(&self) -> BTreeMap<BlockPlace, u64> {
        let mut counts = BTreeMap::new();
        for place in self.zones.iter().flat_map(|(_, blocks)| blocks) {
            *counts.entry(*place).or_default() += 1;
        }
        counts
    }

    /// Draws them in letters: a letter for each block where `lines` lines of `width` characters suffice for all zones,
    /// else one for each few of them, which says what most of these are.
    #[must_use]
    pub fn terminal(&self, width: usize, lines: usize, colour: Colour) -> String {
        let nr: usize = self.zones.iter().map(|(_, blocks)| blocks.len()).sum();
        let per_letter = nr.div_ceil(width * lines).max(1);
        let mut out = String::new();
        for (name, blocks) in &self.zones {
            let _ = match per_letter {
                1 => writeln!(out, "{name}"),
                nr => writeln!(out, "{name}, {nr} blocks a letter"),
            };
            let cells: Vec<_> = blocks.chunks(per_letter).map(most).collect();
            for row in cells.chunks(width) {
                out.extend(row.iter().map(|place| paint(place.letter(), place.colour(), colour)));
                out.truncate(out.trim_end_matches(' ').len());
                out.push('\n');
            }
        }
        for (place, nr) in self.counts().into_iter().filter(|(p, _)| *p != BlockPlace::Absent) {
            let letter = paint(place.letter(), place.colour(), colour);
            let _ = writeln!(out, "  {letter} {}: {nr}", place.label());
        }
        out
    }

    /// Draws them as a picture: addresses run to the right, then down.
    #[must_use]
    pub fn svg(&self) -> String {
        let width = 2.0 * MARGIN + (PER_ROW as i64 * CELL) as f64 + LEGEND_WIDTH;
        let mut svg = Svg::default();
        let mut y = MARGIN + 14.0;
        svg.text(MARGIN, y, TITLE, &self.title);
        y += 26.0;
        let top = y;
        let mut cells: BTreeMap<BlockPlace, Runs> = BTreeMap::new();
        for (name, blocks) in &self.zones {
            svg.text(MARGIN, y, HEADING, name);
            let first = y.ceil() as i64 + 8;
            for (at, place) in blocks.iter().enumerate() {
                let column = MARGIN as i64 + (at % PER_ROW) as i64 * CELL;
                let row = first + (at / PER_ROW) as i64 * CELL;
                cells.entry(*place).or_default().push(column, row, CELL - GAP, CELL - GAP);
            }
            y = (first + blocks.len().div_ceil(PER_ROW) as i64 * CELL) as f64 + 24.0;
        }
        for (place, runs) in cells {
            svg.crisp_path(&runs.path(), place.colour());
        }
        let x = width - LEGEND_WIDTH - MARGIN + 18.0;
        let mut at = top;
        for (place, nr) in self.counts() {
            svg.rect(x, at - 9.0, 10.0, 10.0, place.colour());
            svg.text(x + 16.0, at, LABEL, &place.label());
            svg.text(x + 16.0, at + 12.0, QUIET_LABEL, &text::counted(nr, "block"));
            at += 30.0;
        }
        let height = draw_caption(&mut svg, &[("", &self.caption)], width, y.max(at) + 4.0);
        svg.finish(width, height)
    }
}

/// What most of some blocks are; of as many, what is worse.
fn most(blocks: &[BlockPlace]) -> BlockPlace {
    let mut counts: BTreeMap<BlockPlace, usize> = BTreeMap::new();
    for place in blocks.iter().filter(|place| **place != BlockPlace::Absent) {
        *counts.entry(*place).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(place, nr)| (*nr, *place));
    most.map_or(BlockPlace::Absent, |(place, _)| place)
}

fn paint(letter: char, ink: Rgb, colour: Colour) -> String {
    match colour {
        _ if letter == ' ' => " ".to_owned(),
        Colour::Never => letter.to_string(),
        Colour::True => format!("\x1b[38;2;{};{};{}m{letter}\x1b[0m", ink.0, ink.1, ink.2),
        Colour::Indexed => format!("\x1b[38;5;{}m{letter}\x1b[0m", ink.ansi256()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> BlockedMap {
        let slab = BlockPlace::Blocked(UseClass::Slab);
        let blocks = [[BlockPlace::Free; 4], [slab, slab, BlockPlace::Movable, BlockPlace::Absent]];
        BlockedMap {
            title: "Blocks".into(),
            zones: vec![("Node 0, zone DMA32".into(), blocks.concat())],
            caption: Caption::default(),
        }
    }

    #[test]
    fn a_letter_stands_for_a_block_where_there_is_room() {
        let expected = "Node 0, zone DMA32\n....\nSSo\n  . can be had: 4\n  o only pages that could move: 1\n  \
                        S blocked by slab, unreclaimable: 2\n";
        assert_eq!(map().terminal(4, 2, Colour::Never), expected);
    }

    #[test]
    fn a_letter_stands_for_what_most_of_its_blocks_are_where_there_is_not() {
        let drawn = map().terminal(2, 1, Colour::Never);
        assert!(drawn.starts_with("Node 0, zone DMA32, 4 blocks a letter\n.S\n"), "{drawn}");
    }

    #[test]
    fn the_picture_has_each_place_in_its_colour() {
        let drawn = map().svg();
        for place in [BlockPlace::Free, BlockPlace::Movable, BlockPlace::Blocked(UseClass::Slab)] {
            assert!(drawn.contains(&format!(r#"fill="{}""#, place.colour())), "{place:?}");
        }
    }
}
