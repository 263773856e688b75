//! The map as text: coloured half blocks, or letters.
//!
//! In colour each character is two cells, one above the other. A cell here has one colour, so the
//! stacked bar of [`picture`](crate::picture) becomes a mixture of two: the hue of the largest
//! allocated class and the light green of the free one, mixed by the share that is allocated. Hue says
//! who holds the memory, strength says how much of it. Cells of which half the pageblocks or more are
//! mixed take magenta as their hue.
//!
//! Without colour a cell is a letter: the largest allocated class, upper case when it and the other
//! allocated ones fill half the cell or more, lower case when less.

use crate::cells::{Cell, CellGrid, ZoneCells};
use crate::map::{MemoryMap, Statistics};
use crate::palette::{MIXED, Rgb, UseClass, migratetype_colour};
use highorder_mm::types::{MAX_PAGE_ORDER, Migratetype, Order};
use highorder_tables::text;
use std::fmt::Write as _;
use std::ops::Range;

/// What the terminal can show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Colour {
    /// Letters only.
    #[default]
    Never,
    /// The palette of 256.
    Indexed,
    /// 24 bits.
    True,
}

/// How to draw on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalOptions {
    /// Characters in a line; at least 72 are used.
    pub width: usize,
    /// Most lines that the cells of all zones may take.
    pub map_lines: usize,
    /// What the terminal can show.
    pub colour: Colour,
}

impl Default for TerminalOptions {
    fn default() -> Self {
        Self { width: 80, map_lines: 32, colour: Colour::Never }
    }
}

/// Causes of pinned pageblocks that are listed; the others are counted.
const PINNERS_MAX: usize = 8;
/// What the numbers need.
const WIDTH_MIN: usize = 72;
/// From this width on the numbers stand beside the map.
const WIDE: usize = 120;
const PANEL_WIDTH: usize = 52;
const ADDRESS_WIDTH: usize = 9;
const QUIET: Rgb = Rgb(0x8a, 0x93, 0x9e);
const FREE_INK: Rgb = Rgb(0x7f, 0xa8, 0x5f);
const UNUSABLE_INK: Rgb = Rgb(0xd0, 0x9a, 0x74);

/// Draws one map with its numbers and legend; every line ends in a line feed.
#[must_use]
pub fn render_terminal(map: &MemoryMap, options: TerminalOptions) -> String {
    let width = options.width.max(WIDTH_MIN);
    let wide = width >= WIDE;
    let map_width = if wide { width - PANEL_WIDTH - 3 } else { width };
    let mut sheet = Sheet::default();
    sheet.write(0, 0, Ink::bold(), &text::shorten(&map.title, width));

    let below = draw_zones(&mut sheet, map, options, map_width, 1);
    let statistics = map.statistics();
    let order = map.pageblock_order;
    let below = if wide {
        let x = map_width + 3;
        let y = draw_summary(&mut sheet, &statistics, order, (x, width), 2);
        let y = draw_orders(&mut sheet, &statistics, x, y + 1);
        let y = draw_types(&mut sheet, &statistics, x, y + 1);
        let y = draw_pinners(&mut sheet, &statistics, x, y + 1);
        draw_legend(&mut sheet, &statistics, options.colour, (x, width), y + 1).max(below)
    } else {
        let y = draw_summary(&mut sheet, &statistics, order, (0, width), below);
        let y = draw_orders(&mut sheet, &statistics, 0, y + 1);
        let y = draw_types(&mut sheet, &statistics, 0, y + 1);
        let y = draw_pinners(&mut sheet, &statistics, 0, y + 1);
        draw_legend(&mut sheet, &statistics, options.colour, (0, width), y + 1)
    };
    draw_caption(&mut sheet, map, width, below + 1);
    sheet.print(options.colour)
}

/// Draws the cells of a map alone, zone by zone, without numbers and legend; every line ends in a line feed.
#[must_use]
pub fn render_cells(map: &MemoryMap, options: TerminalOptions) -> String {
    let mut sheet = Sheet::default();
    draw_zones(&mut sheet, map, options, options.width.max(WIDTH_MIN), 0);
    sheet.print(options.colour)
}

fn draw_zones(
    sheet: &mut Sheet,
    map: &MemoryMap,
    options: TerminalOptions,
    width: usize,
    top: usize,
) -> usize {
    let letters = (width - ADDRESS_WIDTH) / 16 * 16;
    let per_line = if options.colour == Colour::Never { 1 } else { 2 };
    // A small machine's cells are made wider, as long as every pageblock keeps its own.
    let widths: &[usize] = if options.colour == Colour::Never { &[1] } else { &[4, 2, 1] };
    let fitting = widths.iter().find_map(|&cell_width| {
        let columns = letters / cell_width;
        let grid = fitting_grid(map, columns * per_line, options.map_lines);
        let is_finest = grid.cell_order == u32::from(map.pageblock_order.0);
        (is_finest || cell_width == 1).then_some((grid, columns, cell_width))
    });
    let Some((grid, columns, cell_width)) = fitting else { return top };
    let cell = text::pages(1 << grid.cell_order);
    let row = text::pages((columns as u64) << grid.cell_order);
    sheet.write(0, top, Ink::of(QUIET), &format!("a cell is {cell}, a row of cells {row}"));
    let mut y = top + 1;
    for zone in &grid.zones {
        let s = map.zone_statistics(&zone.zone);
        let order = map.pageblock_order;
        y += 1;
        let name = zone.zone.name();
        let unusable = (s.unusable_index(order) * 1000.0).round() as u64;
        let free = text::percent(s.free_pages(), s.managed_pages);
        let size = format!("{}, {free} free", zone.zone.size());
        let unusable =
            format!("{} of it unusable for order {order}", text::percent(unusable, 1000));
        sheet.write(0, y, Ink::bold(), &name);
        let room = width.saturating_sub(name.len() + 2);
        let whole = format!("{size}, {unusable}");
        let lines = match whole.chars().count() <= room {
            true => vec![whole],
            false => vec![size, unusable],
        };
        for line in lines {
            sheet.write(name.len() + 2, y, Ink::of(QUIET), &text::shorten(&line, room));
            y += 1;
        }
        // Where the rows without memory begin that are passed over.
        let mut gap = None;
        for (number, line) in zone.cells.chunks(columns * per_line).enumerate() {
            let at = number * columns * per_line;
            if line.iter().all(|c| c.pageblocks == 0) {
                gap.get_or_insert(at);
                continue;
            }
            y = draw_hole(sheet, zone, gap.take().map(|from| from..at), y);
            let address = address(line[0].start);
            sheet.write(
                0,
                y,
                Ink::of(QUIET),
                &format!("{address:>width$}", width = ADDRESS_WIDTH - 1),
            );
            for (column, cell) in line.iter().take(columns).enumerate() {
                for i in 0..cell_width {
                    let at = (ADDRESS_WIDTH + column * cell_width + i, y);
                    if per_line == 1 {
                        sheet.put(at.0, at.1, Ink::default(), cell_letter(cell));
                    } else {
                        let lower = line.get(columns + column).and_then(cell_colour);
                        draw_half_blocks(sheet, at, cell_colour(cell), lower);
                    }
                }
            }
            y += 1;
        }
        y = draw_hole(sheet, zone, gap.map(|from| from..zone.cells.len()), y);
    }
    y + 1
}

/// A line in place of the rows without memory that were passed over, if there were any: how large the holes are that
/// these cells lie in, which is the same however long rows are.
fn draw_hole(sheet: &mut Sheet, zone: &ZoneCells, gap: Option<Range<usize>>, y: usize) -> usize {
    let Some(gap) = gap else { return y };
    let words = zone.zone.words_for_holes(zone.hole_frames(&zone.cells[gap]));
    sheet.write(ADDRESS_WIDTH, y, Ink::of(QUIET), &words);
    y + 1
}

/// The address of a row, rounded down to 2 MiB so that the DMA zone, which begins at frame 1, reads 0.
fn address(start: u64) -> String {
    let first = start >> 9 << 9;
    if first == 0 { "0".to_owned() } else { text::pages(first) }
}

/// The finest grid whose zones take no more than `lines` lines of `per_line` cells.
fn fitting_grid(map: &MemoryMap, per_line: usize, lines: usize) -> CellGrid {
    let mut cells_max = (per_line * lines.max(1)) as u64;
    loop {
        let grid = CellGrid::of_map(map, cells_max);
        let needed: usize = grid.zones.iter().map(|z| z.cells.len().div_ceil(per_line)).sum();
        if needed <= lines.max(map.zones.len()) || cells_max <= map.zones.len() as u64 {
            return grid;
        }
        cells_max = (cells_max / 2).max(map.zones.len() as u64);
    }
}

fn draw_half_blocks(sheet: &mut Sheet, at: (usize, usize), upper: Option<Rgb>, lower: Option<Rgb>) {
    let (ink, letter) = match (upper, lower) {
        (None, None) => (Ink::default(), ' '),
        (Some(upper), None) => (Ink::of(upper), '▀'),
        (None, Some(lower)) => (Ink::of(lower), '▄'),
        (Some(upper), Some(lower)) => (Ink { back: Some(lower), ..Ink::of(upper) }, '▀'),
    };
    sheet.put(at.0, at.1, ink, letter);
}

/// What a cell amounts to.
struct Content {
    /// The largest allocated or reserved class.
    allocated: Option<UseClass>,
    /// The largest free class.
    free: Option<UseClass>,
    /// Allocated or reserved share of the frames that exist.
    share: f64,
    mixed: bool,
}

/// `None` where there is no memory.
fn content(cell: &Cell) -> Option<Content> {
    let present = cell.frames() - cell.counts[UseClass::Hole.index()];
    if present == 0 {
        return None;
    }
    let largest = |wanted: fn(UseClass) -> bool| {
        UseClass::ALL
            .into_iter()
            .filter(|&c| c != UseClass::Hole && wanted(c) && cell.counts[c.index()] > 0)
            .max_by_key(|&c| (cell.counts[c.index()], std::cmp::Reverse(c)))
    };
    let free: u64 =
        UseClass::ALL.into_iter().filter(|c| c.is_free()).map(|c| cell.counts[c.index()]).sum();
    Some(Content {
        allocated: largest(|c| !c.is_free()),
        free: largest(UseClass::is_free),
        share: (present - free) as f64 / present as f64,
        mixed: cell.pageblocks_mixed > 0 && cell.pageblocks_mixed * 2 >= cell.pageblocks,
    })
}

fn cell_colour(cell: &Cell) -> Option<Rgb> {
    /// Below this an allocation's hue would not be seen.
    const SHARE_MIN: f64 = 0.25;
    let content = content(cell)?;
    let free = content.free.unwrap_or(UseClass::FreeSmall).swatch().colour;
    let Some(allocated) = content.allocated else { return Some(free) };
    let hue = if content.mixed { MIXED.colour } else { allocated.swatch().colour };
    Some(free.mix(hue, content.share.max(SHARE_MIN)))
}

fn cell_letter(cell: &Cell) -> char {
    let Some(content) = content(cell) else { return ' ' };
    let Some(allocated) = content.allocated else {
        return content.free.map_or(' ', |c| c.swatch().letter);
    };
    let letter = if content.mixed { MIXED.letter } else { allocated.swatch().letter };
    if content.share >= 0.5 { letter } else { letter.to_ascii_lowercase() }
}

fn draw_summary(
    sheet: &mut Sheet,
    s: &Statistics,
    order: Order,
    (x, end): (usize, usize),
    top: usize,
) -> usize {
    const MEANING: usize = 8;
    let mut y = top;
    for (figure, meaning) in s.summary(order) {
        sheet.write(x, y, Ink::bold(), &format!("{figure:>7}"));
        for line in text::wrap(&meaning, end - x - MEANING) {
            sheet.write(x + MEANING, y, Ink::default(), &line);
            y += 1;
        }
    }
    y
}

fn draw_orders(sheet: &mut Sheet, s: &Statistics, x: usize, top: usize) -> usize {
    const BAR: usize = 12;
    sheet.write(x, top, Ink::bold(), "order  free memory");
    sheet.write(x + 32, top, Ink::bold(), "unusable for it");
    let pages = |order: u8| s.nr_free[usize::from(order)] << order;
    let most = (0..=MAX_PAGE_ORDER).map(pages).max().unwrap_or(0).max(1);
    for order in 0..=MAX_PAGE_ORDER {
        let y = top + 1 + usize::from(order);
        sheet.write(x, y, Ink::of(QUIET), &format!("{order:>5}"));
        draw_bar(sheet, x + 7, y, FREE_INK, pages(order) as f64 / most as f64, BAR);
        let amount = if pages(order) == 0 { "-".to_owned() } else { text::pages(pages(order)) };
        sheet.write(x + 7 + BAR + 1, y, Ink::default(), &format!("{amount:>9}"));
        let share = s.unusable_index(Order(order));
        draw_bar(sheet, x + 32, y, UNUSABLE_INK, share, BAR);
        let share = text::percent((share * 1000.0).round() as u64, 1000);
        sheet.write(x + 32 + BAR + 1, y, Ink::default(), &format!("{share:>6}"));
    }
    top + 1 + usize::from(MAX_PAGE_ORDER) + 1
}

fn draw_types(sheet: &mut Sheet, s: &Statistics, x: usize, top: usize) -> usize {
    const BAR: usize = 20;
    let known: u64 = s.pageblocks_by_type.iter().sum();
    if known == 0 {
        // Nothing to say, so no line between this and what was said before either.
        return top - 1;
    }
    sheet.write(x, top, Ink::bold(), "pageblocks by type");
    let mut y = top + 1;
    for migratetype in Migratetype::ALL {
        let blocks = s.pageblocks_by_type[migratetype.index()];
        if blocks == 0 {
            continue;
        }
        sheet.write(x, y, Ink::of(QUIET), migratetype.name());
        let share = blocks as f64 / known as f64;
        draw_bar(sheet, x + 13, y, migratetype_colour(migratetype), share, BAR);
        let figures = format!("{:>7} {:>6}", text::count(blocks), text::percent(blocks, known));
        sheet.write(x + 13 + BAR + 1, y, Ink::default(), &figures);
        y += 1;
    }
    y
}

/// What pins mixed and nearly free pageblocks.
fn draw_pinners(sheet: &mut Sheet, s: &Statistics, x: usize, top: usize) -> usize {
    if s.pinners.is_empty() {
        // Nothing to say, so no line between this and what was said before either.
        return top - 1;
    }
    sheet.write(x, top, Ink::bold(), "what pins mixed or nearly free");
    sheet.write(x + 32, top, Ink::of(QUIET), "pageblocks   pages");
    let mut y = top + 1;
    for pinner in s.pinners.iter().take(PINNERS_MAX) {
        sheet.write(x, y, Ink::default(), &text::shorten(&pinner.caption(), 33));
        let [blocks, pages] = [pinner.pageblocks, pinner.pages].map(text::count);
        sheet.write(x + 34, y, Ink::default(), &format!("{blocks:>8} {pages:>7}"));
        y += 1;
    }
    let others = s.pinners.get(PINNERS_MAX..).unwrap_or_default();
    if !others.is_empty() {
        let pages = text::count(others.iter().map(|pinner| pinner.pages).sum());
        sheet.write(x, y, Ink::of(QUIET), &format!("{} others", others.len()));
        sheet.write(x + 34, y, Ink::default(), &format!("{:>8} {pages:>7}", ""));
        y += 1;
    }
    y
}

/// A bar of at most `length` characters; something always shows as something.
fn draw_bar(sheet: &mut Sheet, x: usize, y: usize, colour: Rgb, share: f64, length: usize) {
    let full = (share * length as f64).round() as usize;
    let full = if share > 0.0 { full.max(1) } else { 0 };
    for i in 0..length {
        let (ink, letter) =
            if i < full { (Ink::of(colour), '■') } else { (Ink::of(QUIET), '·') };
        sheet.put(x + i, y, ink, letter);
    }
}

/// The classes that are present and their amounts, in as many columns as fit between `x` and `end`.
fn draw_legend(
    sheet: &mut Sheet,
    s: &Statistics,
    colour: Colour,
    (x, end): (usize, usize),
    top: usize,
) -> usize {
    const ENTRY: usize = 39;
    let mut entries: Vec<(Rgb, char, String)> = Vec::new();
    for class in UseClass::ALL.into_iter().rev() {
        if class == UseClass::Hole || s.of(class) == 0 {
            continue;
        }
        let swatch = class.swatch();
        let share = text::percent(s.of(class), s.present_pages());
        let label = format!("{:<19}{:>9}{share:>7}", swatch.label, text::pages(s.of(class)));
        entries.push((swatch.colour, swatch.letter, label));
    }
    entries.push((MIXED.colour, MIXED.letter, MIXED.label.to_owned()));
    let explanation = match colour {
        Colour::Never => "letter: the largest use; lower case: mostly free",
        _ => "hue: the largest use; lightness: the free share",
    };
    sheet.write(x, top, Ink::bold(), "memory by use");
    sheet.write(x, top + 1, Ink::of(QUIET), &text::shorten(explanation, end - x));
    let columns = ((end - x) / ENTRY).max(1);
    let lines = entries.len().div_ceil(columns);
    for (i, (entry, letter, label)) in entries.into_iter().enumerate() {
        let (at, y) = (x + i / lines * ENTRY, top + 2 + i % lines);
        match colour {
            Colour::Never => sheet.put(at, y, Ink::default(), letter),
            _ => sheet.put(at, y, Ink::of(entry), '█'),
        }
        sheet.write(at + 2, y, Ink::default(), &label);
    }
    top + 2 + lines
}

fn draw_caption(sheet: &mut Sheet, map: &MemoryMap, width: usize, top: usize) {
    let mut y = top;
    let lines = map.caption.lines.iter().cloned();
    for line in lines.chain(map.caption.command.iter().map(|c| format!("$ {c}"))) {
        for line in text::wrap(&line, width) {
            sheet.write(0, y, Ink::of(QUIET), &line);
            y += 1;
        }
    }
}

/// How a character is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ink {
    fore: Option<Rgb>,
    back: Option<Rgb>,
    bold: bool,
}

impl Ink {
    fn of(fore: Rgb) -> Self {
        Self { fore: Some(fore), ..Self::default() }
    }

    fn bold() -> Self {
        Self { bold: true, ..Self::default() }
    }

    /// The escape sequence that switches from any ink to this one.
    fn escape(self, colour: Colour) -> String {
        let mut codes = String::from("\x1b[0");
        if self.bold {
            codes.push_str(";1");
        }
        for (plane, rgb) in [(38, self.fore), (48, self.back)] {
            if let Some(rgb) = rgb {
                let _ = match colour {
                    Colour::True => write!(codes, ";{plane};2;{};{};{}", rgb.0, rgb.1, rgb.2),
                    _ => write!(codes, ";{plane};5;{}", rgb.ansi256()),
                };
            }
        }
        codes.push('m');
        codes
    }
}

/// Characters in rows, written to in any order.
#[derive(Clone, Debug, Default)]
struct Sheet {
    rows: Vec<Vec<(char, Ink)>>,
}

impl Sheet {
    fn put(&mut self, x: usize, y: usize, ink: Ink, letter: char) {
        if self.rows.len() <= y {
            self.rows.resize(y + 1, Vec::new());
        }
        let row = &mut self.rows[y];
        if row.len() <= x {
            row.resize(x + 1, (' ', Ink::default()));
        }
        row[x] = (letter, ink);
    }

    fn write(&mut self, x: usize, y: usize, ink: Ink, text: &str) {
        for (i, letter) in text.chars().enumerate() {
            let letter = if letter.is_control() { '\u{fffd}' } else { letter };
            self.put(x + i, y, ink, letter);
        }
    }

    /// The text, without blanks at line ends, and without escape sequences where colour is off.
    fn print(&self, colour: Colour) -> String {
        let mut out = String::new();
        for row in &self.rows {
            let end = row.iter().rposition(|(c, ink)| *c != ' ' || ink.back.is_some());
            let mut current = Ink::default();
            for (letter, ink) in &row[..end.map_or(0, |i| i + 1)] {
                if colour != Colour::Never && *ink != current {
                    out.push_str(&ink.escape(colour));
                    current = *ink;
                }
                out.push(if colour == Colour::Never { plain(*letter) } else { *letter });
            }
            if current != Ink::default() {
                out.push_str("\x1b[0m");
            }
            out.push('\n');
        }
        out
    }
}

/// The ASCII stand-in for the letters that the drawing itself uses.
fn plain(letter: char) -> char {
    match letter {
        '■' => '#',
        '·' => '.',
        '…' => '~',
        '→' => '>',
        other => other,
    }
}
