//! The map as SVG: a cell per pageblock, each a small stacked bar of its uses.
//!
//! A cell's bar is cut into whole pixel rows, from the bottom: what pins it (violet, reds, brown), what can
//! be reclaimed (amber), what can be moved (blues, teals), what is free (light). A single pinning page gets a
//! row, see [`Cell::rows`]. Below the bar of a large cell runs the colour of the pageblock's type; in
//! the corner of a mixed one sits a magenta mark. Small cells carry the mark as a magenta left edge.

use crate::cells::{Cell, CellGrid, ZoneCells};
use crate::map::{Caption, MapZone, MemoryMap, Statistics};
use crate::palette::{DifferenceClass, MIXED, Mobility, Rgb, UseClass, migratetype_colour};
use crate::svg::{Anchor, HAIRLINE, INK, PAPER, QUIET, Runs, Style, Svg, TROUGH};
use highorder_mm::types::{MAX_PAGE_ORDER, Migratetype, NR_PAGE_ORDERS, Order};
use highorder_tables::text;

/// Most cells in one map: one per pageblock up to 64 GiB.
pub const CELLS_MAX: u64 = 33_000;

const MARGIN: f64 = 28.0;
/// Width of a map, and the width it may grow to when its cells would become smaller than
/// [`CELL_WISHED`].
const MAP_WIDTH: f64 = 840.0;
const MAP_WIDTH_MAX: f64 = 1230.0;
const MAP_HEIGHT: f64 = 960.0;
const CELL_WISHED: i64 = 8;
const PANEL_WIDTH: f64 = 330.0;
const GUTTER: f64 = 36.0;
/// Room for the address at the left of a row.
const ADDRESS_WIDTH: f64 = 62.0;
/// Least distance between two addresses.
const ADDRESS_GAP: f64 = 22.0;
/// Room for the words that stand in place of rows without memory.
const HOLE_HEIGHT: i64 = 20;
const ZONE_HEADING: f64 = 22.0;
const ZONE_GAP: f64 = 16.0;

/// Causes of pinned pageblocks that are listed; the others are counted.
const PINNERS_MAX: usize = 8;

/// Bars of free memory: the greens of the map are too light for bars.
const FREE_INK: Rgb = Rgb(0x7f, 0xa8, 0x5f);
/// Bars of what the free memory cannot serve.
const UNUSABLE_INK: Rgb = Rgb(0xb9, 0x8a, 0x6a);

const TITLE: Style = Style::new(20.0, INK).bold();
const HEADING: Style = Style::new(12.5, INK).bold();
const LABEL: Style = Style::new(11.0, QUIET);
const VALUE: Style = Style::new(11.0, INK);
const SMALL: Style = Style::new(10.0, QUIET);

/// Draws one map with its numbers and its legend beside it.
#[must_use]
pub fn render(map: &MemoryMap) -> String {
    render_coarse(map, CELLS_MAX)
}

/// As [`render`], with at most `cells_max` cells: a shorter text that shows less.
#[must_use]
pub fn render_coarse(map: &MemoryMap, cells_max: u64) -> String {
    let grid = CellGrid::of_map(map, cells_max);
    let by_zone: Vec<Statistics> = map.zones.iter().map(|z| map.zone_statistics(z)).collect();
    let mut statistics = Statistics::default();
    by_zone.iter().for_each(|zone| statistics.add(zone));
    let (layout, map_width) = Layout::fit_alone(&grid);
    let mut svg = Svg::default();
    let width = MARGIN + map_width + GUTTER + PANEL_WIDTH + MARGIN;

    let mut y = MARGIN + 14.0;
    svg.text(MARGIN, y, TITLE, &map.title);
    y += 20.0;
    svg.text(MARGIN, y, LABEL, &cell_explanation(map, &grid, layout));
    let top = y + 22.0;

    let zones = map.zones.iter().zip(&by_zone);
    let headings: Vec<Heading> =
        zones.map(|(zone, s)| zone_heading(zone, s, map.pageblock_order)).collect();
    let below_map = draw_grid(&mut svg, &grid, layout, MARGIN, top, &headings);

    let x = MARGIN + map_width + GUTTER;
    let mut side = draw_summary(&mut svg, &statistics, map.pageblock_order, x, top - 7.0);
    side = draw_legend_with_amounts(&mut svg, &statistics, layout, x, side + 18.0);
    side = draw_pinners(&mut svg, &statistics, x, side + 18.0);
    side = draw_orders(&mut svg, &statistics, largest_order(&[&statistics]), x, side + 18.0);
    side = draw_types(&mut svg, &statistics, x, side + 18.0);

    let y = draw_caption(&mut svg, &[("", &map.caption)], width, below_map.max(side) + 12.0);
    svg.finish(width, y)
}

/// Draws several states of a machine side by side, at one scale, with one legend.
///
/// # Panics
/// If there is no map.
#[must_use]
pub fn render_side_by_side(maps: &[MemoryMap]) -> String {
    assert!(!maps.is_empty(), "a picture needs at least one map");
    let grids: Vec<CellGrid> = maps.iter().map(|m| CellGrid::of_map(m, CELLS_MAX)).collect();
    let statistics: Vec<Statistics> = maps.iter().map(MemoryMap::statistics).collect();
    let column = if maps.len() <= 2 { 600.0 } else { 460.0 };
    let layout = Layout::fit(&grids.iter().collect::<Vec<_>>(), column - ADDRESS_WIDTH, 900.0);
    let scale = largest_order(&statistics.iter().collect::<Vec<_>>());
    let mut svg = Svg::default();
    let width = 2.0 * MARGIN + maps.len() as f64 * (column + GUTTER) - GUTTER;

    let top = MARGIN + 14.0;
    let mut below_maps = top;
    for (i, (map, grid)) in maps.iter().zip(&grids).enumerate() {
        let x = MARGIN + i as f64 * (column + GUTTER);
        let style = Style::new(16.0, INK).bold();
        svg.text(x, top, style, &text::shorten(&map.title, (column / 10.6) as usize));
        let headings: Vec<Heading> = map.zones.iter().map(|z| short_heading(map, z)).collect();
        let below = draw_grid(&mut svg, grid, layout, x, top + 18.0, &headings);
        below_maps = below_maps.max(below);
    }
    let mut below_numbers = below_maps;
    for (i, (map, statistics)) in maps.iter().zip(&statistics).enumerate() {
        let x = MARGIN + i as f64 * (column + GUTTER);
        let y = draw_summary(&mut svg, statistics, map.pageblock_order, x, below_maps + 14.0);
        let y = draw_orders(&mut svg, statistics, scale, x, y + 18.0);
        below_numbers = below_numbers.max(draw_pinners(&mut svg, statistics, x, y + 18.0));
    }
    let shown: Vec<UseClass> = UseClass::ALL
        .into_iter()
        .rev()
        .filter(|&c| c != UseClass::Hole && statistics.iter().any(|s| s.of(c) > 0))
        .collect();
    let mut entries: Vec<(Rgb, String)> =
        shown.iter().map(|c| (c.swatch().colour, c.swatch().label.to_owned())).collect();
    entries.push((MIXED.colour, layout.mixed_label().to_owned()));
    let y = draw_flowing_legend(&mut svg, &entries, width, below_numbers + 26.0);
    let captions: Vec<(&str, &Caption)> =
        maps.iter().map(|m| (m.title.as_str(), &m.caption)).collect();
    let y = draw_caption(&mut svg, &captions, width, y + 8.0);
    svg.finish(width, y)
}

/// Draws where two states of a machine differ: frames whose class of use is not the same.
#[must_use]
pub fn render_difference(first: &MemoryMap, second: &MemoryMap) -> String {
    let mut grid = CellGrid::of_difference(first, second, CELLS_MAX);
    // The marks of mixed and typed pageblocks belong to one state, not to a difference.
    for cell in grid.zones.iter_mut().flat_map(|z| &mut z.cells) {
        cell.pageblocks_mixed = 0;
        cell.migratetype = None;
    }
    let mut sums = [0u64; DifferenceClass::ALL.len()];
    let headings: Vec<Heading> =
        grid.zones.iter().map(|z| difference_heading(z, &mut sums)).collect();
    let (layout, map_width) = Layout::fit_alone(&grid);
    let mut svg = Svg::default();
    let width = MARGIN + map_width + MARGIN;

    let mut y = MARGIN + 14.0;
    svg.text(MARGIN, y, TITLE, &format!("{} → {}", first.title, second.title));
    y += 20.0;
    svg.text(
        MARGIN,
        y,
        LABEL,
        "Frames whose class of use differs between the first and the second.",
    );
    y = draw_grid(&mut svg, &grid, layout, MARGIN, y + 22.0, &headings);
    let present: u64 = sums.iter().sum::<u64>() - sums[DifferenceClass::Hole as usize];
    let entries: Vec<(Rgb, String)> = DifferenceClass::ALL
        .into_iter()
        .filter(|&c| c != DifferenceClass::Hole)
        .map(|c| {
            let n = sums[c as usize];
            let label = c.swatch().label;
            (
                c.swatch().colour,
                format!("{label}: {} ({})", text::pages(n), text::percent(n, present)),
            )
        })
        .collect();
    y = draw_flowing_legend(&mut svg, &entries, width, y + 14.0);
    let captions =
        [(first.title.as_str(), &first.caption), (second.title.as_str(), &second.caption)];
    y = draw_caption(&mut svg, &captions, width, y + 8.0);
    svg.finish(width, y)
}

/// What stands above a zone's cells.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Heading {
    name: String,
    detail: String,
}

fn zone_heading(zone: &MapZone, s: &Statistics, order: Order) -> Heading {
    let unusable = (s.unusable_index(order) * 1000.0).round() as u64;
    let mut detail = format!(
        "{} · {} free, {} of it in blocks too small for order {order}",
        zone.size(),
        text::percent(s.free_pages(), s.managed_pages),
        text::percent(unusable, 1000),
    );
    if s.knows_uses() {
        let (mixed, all) = (text::range(s.mixed().map(text::count)), text::count(s.pageblocks));
        detail.push_str(&format!(" · {mixed} of {all} pageblocks mixed"));
    }
    Heading { name: zone.name(), detail }
}

fn short_heading(map: &MemoryMap, zone: &MapZone) -> Heading {
    let s = map.zone_statistics(zone);
    let free = text::percent(s.free_pages(), s.managed_pages);
    let detail = format!("{} · {free} free", zone.size());
    Heading { name: zone.name(), detail }
}

/// The zone's difference in words; its frames are added to `sums`.
fn difference_heading(zone: &ZoneCells, sums: &mut [u64]) -> Heading {
    let mut counts = [0u64; DifferenceClass::ALL.len()];
    for cell in &zone.cells {
        for (sum, n) in counts.iter_mut().zip(&cell.counts) {
            *sum += n;
        }
    }
    for (sum, n) in sums.iter_mut().zip(counts) {
        *sum += n;
    }
    let present = counts.iter().sum::<u64>() - counts[DifferenceClass::Hole as usize];
    let differing = present - counts[DifferenceClass::Same as usize];
    let detail = format!(
        "{} of {} differ ({})",
        text::pages(differing),
        text::pages(present),
        text::percent(differing, present)
    );
    Heading { name: zone.zone.name(), detail }
}

/// A line of a zone's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row<'a> {
    /// Cells, at least one of them with memory.
    Cells(&'a [Cell]),
    /// Cells without memory.
    Gap(&'a [Cell]),
}

/// How cells lie on the page: all zones of a picture share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    /// Cells in a row.
    columns: usize,
    /// Side of a cell in pixels, its gap included.
    cell: i64,
}

impl Layout {
    /// The layout of a map that has a picture to itself, and the map's width.
    fn fit_alone(grid: &CellGrid) -> (Self, f64) {
        let narrow = Self::fit(&[grid], MAP_WIDTH - ADDRESS_WIDTH, MAP_HEIGHT);
        if narrow.cell >= CELL_WISHED {
            return (narrow, MAP_WIDTH);
        }
        (Self::fit(&[grid], MAP_WIDTH_MAX - ADDRESS_WIDTH, MAP_HEIGHT * 1.25), MAP_WIDTH_MAX)
    }

    /// The fewest columns, and so the largest cells, with which the tallest grid fits.
    fn fit(grids: &[&CellGrid], width: f64, height: f64) -> Self {
        const CELL_MAX: i64 = 48;
        const COLUMNS: [usize; 9] = [8, 16, 32, 64, 96, 128, 160, 192, 256];
        let fitting = COLUMNS.into_iter().map(|columns| Self {
            columns,
            cell: ((width / columns as f64) as i64).clamp(2, CELL_MAX),
        });
        let fits = |layout: &Self| {
            grids.iter().all(|grid| {
                let zones = grid.zones.iter();
                zones.map(|z| layout.zone_height(z)).sum::<f64>() <= height
            })
        };
        let last = Self { columns: 256, cell: ((width / 256.0) as i64).max(2) };
        fitting.clone().find(fits).unwrap_or(last)
    }

    /// The zone's rows from the top; rows without any memory in them fold into one gap.
    fn rows<'a>(&self, zone: &'a ZoneCells) -> Vec<Row<'a>> {
        let has_memory = |cells: &[Cell]| cells.iter().any(|cell| cell.pageblocks > 0);
        let mut rows = Vec::new();
        // Where the rows without memory begin that are passed over.
        let mut gap = None;
        for (number, cells) in zone.cells.chunks(self.columns).enumerate() {
            let at = number * self.columns;
            if has_memory(cells) {
                rows.extend(gap.take().map(|from: usize| Row::Gap(&zone.cells[from..at])));
                rows.push(Row::Cells(cells));
            } else {
                gap.get_or_insert(at);
            }
        }
        rows.extend(gap.map(|from| Row::Gap(&zone.cells[from..])));
        rows
    }

    fn zone_height(&self, zone: &ZoneCells) -> f64 {
        let rows = self.rows(zone);
        ZONE_HEADING + ZONE_GAP + rows.iter().map(|r| self.row_height(r) as f64).sum::<f64>()
    }

    fn row_height(&self, row: &Row) -> i64 {
        match row {
            Row::Cells(_) => self.cell,
            Row::Gap(_) => HOLE_HEIGHT,
        }
    }

    /// Whether a cell has room for its pageblock's type and a corner mark.
    fn is_roomy(&self) -> bool {
        self.cell >= 12
    }

    fn column_gap(&self) -> i64 {
        if self.cell >= 24 {
            3
        } else if self.is_roomy() {
            2
        } else {
            i64::from(self.cell >= 8)
        }
    }

    fn row_gap(&self) -> i64 {
        self.column_gap().max(i64::from(self.cell >= 4))
    }

    fn type_band(&self) -> i64 {
        match self.cell {
            24.. => 6,
            12.. => 4,
            _ => 0,
        }
    }

    fn mixed_label(&self) -> &'static str {
        if self.is_roomy() { "corner: mixed pageblock" } else { "left edge: mixed pageblock" }
    }
}

/// Draws the zones under each other; returns where the next thing may begin.
fn draw_grid(
    svg: &mut Svg,
    grid: &CellGrid,
    layout: Layout,
    x: f64,
    top: f64,
    headings: &[Heading],
) -> f64 {
    let mut layers = Layers::new(grid.classes.len());
    let mut y = top.round();
    for (zone, heading) in grid.zones.iter().zip(headings) {
        svg.heading(x, y + 11.0, (HEADING, LABEL), (&heading.name, &heading.detail));
        y += ZONE_HEADING;
        let left = (x + ADDRESS_WIDTH).round() as i64;
        // Addresses stand as far apart as the letters need.
        let mut address_from = y;
        for row in layout.rows(zone) {
            match row {
                Row::Cells(cells) => {
                    for (i, cell) in cells.iter().enumerate() {
                        layers.draw(grid, cell, layout, left + i as i64 * layout.cell, y as i64);
                    }
                    if y >= address_from {
                        draw_address(svg, cells[0].start, left as f64 - 8.0, y, layout);
                        address_from = y + ADDRESS_GAP;
                    }
                }
                Row::Gap(cells) => {
                    let hole = zone.zone.words_for_holes(zone.hole_frames(cells));
                    svg.text(left as f64, y + 11.0, SMALL, &hole);
                    address_from = y;
                }
            }
            y += layout.row_height(&row) as f64;
        }
        y += ZONE_GAP;
    }
    layers.finish(svg, grid);
    y
}

/// The address of a row's first frame, at its left.
fn draw_address(svg: &mut Svg, start: u64, right: f64, top: f64, layout: Layout) {
    let y = top + (layout.cell as f64 / 2.0).max(5.0) + 3.5;
    // Rounded down to the pageblock, so that the DMA zone, which begins at frame 1, reads 0.
    let first = start >> 9 << 9;
    let address = if first == 0 { "0".to_owned() } else { text::pages(first) };
    svg.text(right, y, SMALL.anchored(Anchor::End), &address);
}

/// The rectangles of a grid by colour.
struct Layers {
    classes: Vec<Runs>,
    types: Vec<Runs>,
    mixed: Runs,
}

impl Layers {
    fn new(classes: usize) -> Self {
        Self {
            classes: vec![Runs::default(); classes],
            types: vec![Runs::default(); Migratetype::ALL.len()],
            mixed: Runs::default(),
        }
    }

    fn draw(&mut self, grid: &CellGrid, cell: &Cell, layout: Layout, x: i64, y: i64) {
        if cell.pageblocks == 0 {
            return;
        }
        let width = layout.cell - layout.column_gap();
        let band = layout.type_band();
        let height = layout.cell - layout.row_gap() - band;
        let pins = |i: usize| {
            grid.classes.len() == UseClass::COUNT && UseClass::ALL[i].mobility().is_some()
        };
        let mut bottom = y + height;
        for (class, rows) in cell.rows(height as u64, pins).into_iter().enumerate() {
            bottom -= rows as i64;
            self.classes[class].push(x, bottom, width, rows as i64);
        }
        if let Some(migratetype) = cell.migratetype.filter(|_| band > 0) {
            self.types[migratetype.index()].push(x, y + height + 1, width, band - 1);
        }
        if cell.pageblocks_mixed == 0 {
            return;
        }
        if layout.is_roomy() && cell.pageblocks == 1 {
            let side = (width * 2 / 5).max(5);
            for row in 0..side {
                self.mixed.push(x, y + row, side - row, 1);
            }
        } else {
            let share = (height as u64 * cell.pageblocks_mixed).div_ceil(cell.pageblocks) as i64;
            self.mixed.push(x, y + height - share, (layout.cell / 5).max(1), share);
        }
    }

    fn finish(self, svg: &mut Svg, grid: &CellGrid) {
        for (runs, swatch) in self.classes.into_iter().zip(&grid.classes) {
            if swatch.colour != PAPER {
                svg.crisp_path(&runs.path(), swatch.colour);
            }
        }
        for (runs, migratetype) in self.types.into_iter().zip(Migratetype::ALL) {
            svg.crisp_path(&runs.path(), migratetype_colour(migratetype));
        }
        svg.crisp_path(&self.mixed.path(), MIXED.colour);
    }
}

/// One line that says how to read a cell.
fn cell_explanation(map: &MemoryMap, grid: &CellGrid, layout: Layout) -> String {
    let cell = text::pages(1 << grid.cell_order);
    let what = match grid.cell_order - u32::from(map.pageblock_order.0) {
        0 => format!("One cell is one pageblock ({cell})"),
        more => format!("One cell is {} pageblocks ({cell})", 1u64 << more),
    };
    let row = text::pages((layout.columns as u64) << grid.cell_order);
    format!(
        "{what}, a row {row}; each cell is filled from the bottom in proportion to the uses of its frames."
    )
}

/// The numbers that matter first; returns where the next thing may begin.
fn draw_summary(svg: &mut Svg, s: &Statistics, order: Order, x: f64, top: f64) -> f64 {
    /// What fits beside a figure.
    const LETTERS: usize = 46;
    let mut y = top;
    for (figure, meaning) in s.summary(order) {
        y += 18.0;
        svg.text(x + 62.0, y, Style::new(14.0, INK).bold().anchored(Anchor::End), &figure);
        for (i, line) in text::wrap(&meaning, LETTERS).iter().enumerate() {
            y += if i > 0 { 14.0 } else { 0.0 };
            svg.text(x + 72.0, y, VALUE, line);
        }
    }
    y + 6.0
}

/// What pins mixed and nearly free pageblocks; returns where the next thing may begin.
fn draw_pinners(svg: &mut Svg, s: &Statistics, x: f64, top: f64) -> f64 {
    const LINE: f64 = 15.0;
    if s.pinners.is_empty() {
        // Nothing to say, so no room between this and what was said before either.
        return top - 18.0;
    }
    let (blocks_x, pages_x) = (x + 250.0, x + PANEL_WIDTH - 4.0);
    let mut y = top + 11.0;
    svg.text(x, y, HEADING, "What pins mixed or nearly free pageblocks");
    y += LINE;
    svg.text(blocks_x, y, LABEL.anchored(Anchor::End), "pageblocks");
    svg.text(pages_x, y, LABEL.anchored(Anchor::End), "pages");
    let mut row = |name: &str, colour: Rgb, blocks: &str, pages: u64| {
        y += LINE;
        svg.text(x, y, Style::new(11.0, colour), &text::shorten(name, 28));
        svg.text(blocks_x, y, VALUE.anchored(Anchor::End), blocks);
        svg.text(pages_x, y, VALUE.anchored(Anchor::End), &text::count(pages));
    };
    for pinner in s.pinners.iter().take(PINNERS_MAX) {
        row(&pinner.caption(), INK, &text::count(pinner.pageblocks), pinner.pages);
    }
    let others = s.pinners.get(PINNERS_MAX..).unwrap_or_default();
    if !others.is_empty() {
        let pages = others.iter().map(|pinner| pinner.pages).sum();
        row(&format!("{} others", others.len()), QUIET, "", pages);
    }
    y + 4.0
}

/// Every class that is present, by mobility, with what it amounts to.
fn draw_legend_with_amounts(
    svg: &mut Svg,
    s: &Statistics,
    layout: Layout,
    x: f64,
    top: f64,
) -> f64 {
    const LINE: f64 = 17.0;
    let mut y = top + 11.0;
    svg.text(x, y, HEADING, "Memory by use");
    y += 8.0;
    let mut group = (true, None);
    for class in UseClass::ALL.into_iter().rev() {
        let frames = s.of(class);
        if class == UseClass::Hole || frames == 0 {
            continue;
        }
        if group != (class.is_free(), class.mobility()) {
            group = (class.is_free(), class.mobility());
            // What has no mobility begins apart, but needs no name of its own.
            let name = class.mobility().map(Mobility::name);
            y += if name.is_some() { 17.0 } else { 5.0 };
            if let Some(name) = name {
                svg.text(x, y - 3.0, SMALL, name);
            }
        }
        let swatch = class.swatch();
        svg.outlined(x, y + 2.0, 12.0, swatch.colour, HAIRLINE);
        svg.text(x + 20.0, y + 12.0, VALUE, swatch.label);
        let end = Anchor::End;
        svg.text(x + 250.0, y + 12.0, VALUE.anchored(end), &text::pages(frames));
        let share = text::percent(frames, s.present_pages());
        svg.text(x + PANEL_WIDTH - 4.0, y + 12.0, LABEL.anchored(end), &share);
        y += LINE;
    }
    svg.rect(x, y + 2.0, 12.0, 12.0, MIXED.colour);
    svg.text(x + 20.0, y + 12.0, VALUE, layout.mixed_label());
    y += LINE;
    if layout.is_roomy() {
        let height = (layout.type_band() - 1) as f64;
        let colour = migratetype_colour(Migratetype::Movable);
        svg.rect(x, y + 8.0 - height / 2.0, 12.0, height, colour);
        svg.text(x + 20.0, y + 12.0, VALUE, "line below: the pageblock's type");
        y += LINE;
    }
    y
}

/// The most free pages that any order holds in any of the statistics, for bars of one scale.
fn largest_order(all: &[&Statistics]) -> u64 {
    let pages = |s: &Statistics| (0..NR_PAGE_ORDERS).map(|o| s.nr_free[o] << o).max();
    all.iter().filter_map(|s| pages(s)).max().unwrap_or(0).max(1)
}

/// Free memory by order, and beside it the share of it that is unusable for that order.
fn draw_orders(svg: &mut Svg, s: &Statistics, scale: u64, x: f64, top: f64) -> f64 {
    const LINE: f64 = 15.0;
    const FREE_BAR: f64 = 92.0;
    const UNUSABLE_BAR: f64 = 80.0;
    let unusable_x = x + 200.0;
    let mut y = top + 11.0;
    svg.text(x, y, HEADING, "Free memory by order");
    svg.text(unusable_x, y, HEADING, "Unusable for it");
    y += 6.0;
    for order in 0..=MAX_PAGE_ORDER {
        let pages = s.nr_free[usize::from(order)] << order;
        let middle = y + 11.0;
        svg.text(x + 16.0, middle, LABEL.anchored(Anchor::End), &order.to_string());
        let bar = FREE_BAR * pages as f64 / scale as f64;
        svg.rect(x + 24.0, y + 2.0, FREE_BAR, LINE - 4.0, TROUGH);
        let least = if pages > 0 { bar.max(1.0) } else { 0.0 };
        svg.rect(x + 24.0, y + 2.0, least, LINE - 4.0, FREE_INK);
        let amount = if pages == 0 { "–".to_owned() } else { text::pages(pages) };
        svg.text(x + 24.0 + FREE_BAR + 6.0, middle, VALUE, &amount);

        let share = s.unusable_index(Order(order));
        svg.rect(unusable_x, y + 2.0, UNUSABLE_BAR, LINE - 4.0, TROUGH);
        svg.rect(unusable_x, y + 2.0, UNUSABLE_BAR * share, LINE - 4.0, UNUSABLE_INK);
        let share = text::percent((share * 1000.0).round() as u64, 1000);
        svg.text(unusable_x + UNUSABLE_BAR + 6.0, middle, VALUE, &share);
        y += LINE;
    }
    y
}

/// Pageblocks by type.
fn draw_types(svg: &mut Svg, s: &Statistics, x: f64, top: f64) -> f64 {
    const LINE: f64 = 15.0;
    const BAR: f64 = 140.0;
    let known: u64 = s.pageblocks_by_type.iter().sum();
    if known == 0 {
        return top;
    }
    let mut y = top + 11.0;
    svg.text(x, y, HEADING, "Pageblocks by type");
    y += 6.0;
    for migratetype in Migratetype::ALL {
        let blocks = s.pageblocks_by_type[migratetype.index()];
        if blocks == 0 {
            continue;
        }
        let middle = y + 11.0;
        svg.text(x, middle, VALUE, migratetype.name());
        svg.rect(x + 84.0, y + 2.0, BAR, LINE - 4.0, TROUGH);
        let bar = (BAR * blocks as f64 / known as f64).max(1.0);
        svg.rect(x + 84.0, y + 2.0, bar, LINE - 4.0, migratetype_colour(migratetype));
        let figures = format!("{} ({})", text::count(blocks), text::percent(blocks, known));
        svg.text(x + 84.0 + BAR + 6.0, middle, VALUE, &figures);
        y += LINE;
    }
    y
}

/// A legend in lines as wide as the picture.
fn draw_flowing_legend(svg: &mut Svg, entries: &[(Rgb, String)], width: f64, top: f64) -> f64 {
    let (mut x, mut y) = (MARGIN, top);
    for (colour, label) in entries {
        let needed = 20.0 + VALUE.width(label);
        if x > MARGIN && x + needed > width - MARGIN {
            x = MARGIN;
            y += 20.0;
        }
        svg.outlined(x, y, 12.0, *colour, HAIRLINE);
        svg.text(x + 18.0, y + 10.0, VALUE, label);
        x += needed + 18.0;
    }
    y + 22.0
}

/// What the picture shows and how to make it again; returns the picture's height.
///
/// Lines that all captions share are printed once, without a name before them.
pub(crate) fn draw_caption(
    svg: &mut Svg,
    captions: &[(&str, &Caption)],
    width: f64,
    top: f64,
) -> f64 {
    let style = Style::new(10.5, QUIET);
    let mut y = top + 8.0;
    let mut drawn = false;
    let mut draw = |y: &mut f64, style: Style, line: &str| {
        let em = if style.mono { 0.602 } else { 0.57 };
        let letters = ((width - 2.0 * MARGIN) / (style.size * em)) as usize;
        for line in text::wrap(line, letters) {
            if !drawn {
                svg.line((MARGIN, *y - 6.0), (width - MARGIN, *y - 6.0), HAIRLINE, 1.0);
                drawn = true;
            }
            *y += 15.0;
            svg.text(MARGIN, *y, style, &line);
        }
    };
    let shared = |line: &String| captions.iter().all(|(_, c)| c.lines.contains(line));
    let first = captions.first().map(|(_, c)| c.lines.as_slice()).unwrap_or_default();
    for line in first.iter().filter(|l| shared(l)) {
        draw(&mut y, style, line);
    }
    for (name, caption) in captions {
        let own: Vec<&str> =
            caption.lines.iter().filter(|l| !shared(l)).map(String::as_str).collect();
        if !own.is_empty() {
            draw(&mut y, style, &format!("{name}: {}", own.join(" · ")));
        }
    }
    let mut commands: Vec<&str> =
        captions.iter().filter_map(|(_, c)| c.command.as_deref()).collect();
    commands.dedup();
    for command in commands {
        draw(&mut y, style.mono(), &format!("$ {command}"));
    }
    y + MARGIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_pageblocks_type_is_thick_enough_to_have_a_colour() {
        for cell in 12..=48 {
            let layout = Layout { columns: 8, cell };
            let line = layout.type_band() - 1;
            let bar = cell - layout.row_gap() - layout.type_band();
            assert!(line >= 3, "{line} pixels in a cell of {cell}");
            assert!(bar >= 2 * line, "{bar} pixels are left for the uses in a cell of {cell}");
        }
    }

    #[test]
    fn the_colours_of_pageblock_types_stand_out_from_paper_and_from_each_other() {
        let colours = Migratetype::ALL.map(migratetype_colour);
        for (i, colour) in colours.into_iter().enumerate() {
            let from_paper = colour.least_difference(PAPER);
            assert!(from_paper >= 30.0, "{}: {from_paper:.1}", Migratetype::ALL[i]);
            for other in &colours[i + 1..] {
                let apart = colour.least_difference(*other);
                assert!(apart >= 10.0, "{} and {other}: {apart:.1}", Migratetype::ALL[i]);
            }
        }
    }
}
