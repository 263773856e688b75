//! Compaction as a picture: where the two scanners of each run are over time, and what each batch moved.
//!
//! Time between runs is cut out: a machine compacts for some milliseconds an hour.

use crate::axis::{Axis, Zero};
use crate::map::Caption;
use crate::palette::{Rgb, SERIES};
use crate::picture::draw_caption;
use crate::svg::{Anchor, HAIRLINE, INK, QUIET, Style, Svg};
use highorder_tables::text;
use std::collections::BTreeMap;
use std::ops::Range;

const MARGIN: f64 = 28.0;
const TITLE: Style = Style::new(18.0, INK).bold();
const HEADING: Style = Style::new(12.5, INK).bold();
const TICK: Style = Style::new(10.5, QUIET);
const VALUE: Style = Style::new(11.0, INK);
/// Room for the numbers at the left of a plot.
const AXIS_WIDTH: f64 = 64.0;
/// Width of the plots, and heights of the two of a zone.
const PLOT: (f64, f64, f64) = (900.0, 240.0, 62.0);
/// Columns that scans are gathered in: one for each pixel of the PNG, which has two for one of the SVG.
const COLUMNS: f64 = PLOT.0 * 2.0;
/// Share of the width that a cut of time takes.
const CUT: f64 = 0.006;
/// Most stretches of time between which the cuts are drawn: with more there would be nothing else to see.
const CUTS_DRAWN_MAX: usize = 40;
/// Most runs of a zone that are named one by one; more are counted by kind.
const NAMED_MAX: usize = 3;
/// Lines that the vertical axis has at least.
const LINES_MIN: u64 = 3;

/// The migrate scanner where it took pages, and where not; likewise the free scanner; moved; not moved.
const MIGRATE: Rgb = SERIES[0];
const MIGRATE_VAIN: Rgb = SERIES[4];
const FREE: Rgb = SERIES[1];
const FREE_VAIN: Rgb = Rgb(0xf3, 0xc9, 0x9b);
const MOVED: Rgb = SERIES[2];
const FAILED: Rgb = SERIES[3];

/// Frames that a scanner went over at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Scan {
    /// When.
    pub at: f64,
    /// The free scanner, not the migrate scanner.
    pub is_free: bool,
    /// Which.
    pub frames: Range<u64>,
    /// Pages taken.
    pub nr_taken: u64,
}

/// One run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PassLine {
    /// Who, and how.
    pub name: String,
    /// What came of it.
    pub status: String,
    /// When it began.
    pub begin: f64,
    /// When it ended.
    pub end: f64,
    /// What its scanners went over.
    pub scans: Vec<Scan>,
    /// When a batch was migrated, how many pages of it moved, and how many did not.
    pub batches: Vec<(f64, u64, u64)>,
}

/// One zone and its runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScannerZone {
    /// Heading.
    pub title: String,
    /// Its frames.
    pub span: Range<u64>,
    /// Its runs, by their beginning.
    pub passes: Vec<PassLine>,
}

/// The picture: for each zone the scanners' positions, and under them the pages moved.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScannerChart {
    /// Heading.
    pub title: String,
    /// Name and unit of the horizontal axis.
    pub x_label: String,
    /// Zones, in their order.
    pub zones: Vec<ScannerZone>,
    /// Printed below.
    pub caption: Caption,
}

impl ScannerChart {
    /// Draws it.
    #[must_use]
    pub fn svg(&self) -> String {
        let width = 2.0 * MARGIN + AXIS_WIDTH + PLOT.0;
        let mut svg = Svg::default();
        let mut top = MARGIN + 14.0;
        svg.text(MARGIN, top, TITLE, &self.title);
        top = draw_legend(&mut svg, top + 22.0);
        for zone in &self.zones {
            top = self.draw_zone(&mut svg, zone, top);
        }
        svg.text(
            MARGIN + AXIS_WIDTH + PLOT.0 / 2.0,
            top,
            TICK.anchored(Anchor::Middle),
            &self.x_label,
        );
        let height = draw_caption(&mut svg, &[("", &self.caption)], width, top + 12.0);
        svg.finish(width, height)
    }

    fn draw_zone(&self, svg: &mut Svg, zone: &ScannerZone, top: f64) -> f64 {
        let left = MARGIN + AXIS_WIDTH;
        let frames = zone.span.end - zone.span.start;
        let unit = format!(
            "frames {:#x} to {:#x}, {}",
            zone.span.start,
            zone.span.end,
            text::pages(frames)
        );
        svg.heading(MARGIN, top + 11.0, (HEADING, TICK), (zone.title.as_str(), unit.as_str()));
        let time = Time::of(zone);
        let mut y = top + 26.0;
        for line in in_words(&zone.passes) {
            svg.text(left, y, VALUE, &line);
            y += 15.0;
        }
        if zone.passes.iter().all(|pass| pass.scans.is_empty()) {
            svg.text(left, y, TICK, "nothing was scanned");
            return y + 22.0;
        }
        let y = y - 4.0;
        let height = if frames < SMALL_ZONE { PLOT.1 / 3.0 } else { PLOT.1 };
        draw_positions(svg, zone, &time, (left, y), height);
        draw_moved(svg, zone, &time, (left, y + height + 16.0))
    }
}

/// What runs came to, in words: each of them, or how many of each kind there are.
fn in_words(passes: &[PassLine]) -> Vec<String> {
    let moved = |pass: &PassLine| pass.batches.iter().map(|(_, moved, _)| moved).sum::<u64>();
    if passes.len() <= NAMED_MAX {
        let line = |pass: &PassLine| {
            let PassLine { name, status, .. } = pass;
            format!("{name}: {status}, {} pages moved", text::count(moved(pass)))
        };
        return passes.iter().map(line).collect();
    }
    let mut kinds: BTreeMap<&str, (BTreeMap<&str, u64>, u64)> = BTreeMap::new();
    for pass in passes {
        let kind = kinds.entry(&pass.name).or_default();
        *kind.0.entry(&pass.status).or_default() += 1;
        kind.1 += moved(pass);
    }
    let mut lines = Vec::new();
    for (name, (results, moved)) in kinds {
        let runs: u64 = results.values().sum();
        let results: Vec<_> =
            results.iter().map(|(status, nr)| format!("{} {status}", text::count(*nr))).collect();
        lines.push(format!(
            "{name}, {} {}: {}; {} pages moved",
            text::count(runs),
            if runs == 1 { "run" } else { "runs" },
            results.join(", "),
            text::count(moved)
        ));
    }
    lines
}

/// Frames of a zone that a lower plot shows as well: 16 MiB, the DMA zone.
const SMALL_ZONE: u64 = 4_097;

fn draw_legend(svg: &mut Svg, y: f64) -> f64 {
    let mut x = MARGIN;
    for (colours, name) in [
        ([MIGRATE, MIGRATE_VAIN], "migrate scanner (pale: took none)"),
        ([FREE, FREE_VAIN], "free scanner (pale: took none)"),
        ([MOVED, MOVED], "pages moved"),
        ([FAILED, FAILED], "pages not moved"),
    ] {
        for (at, colour) in colours.into_iter().enumerate() {
            svg.rect(x + 7.0 * at as f64, y - 7.0, 7.0, 7.0, colour);
        }
        svg.text(x + 20.0, y, VALUE, name);
        x += 20.0 + VALUE.width(name) + 20.0;
    }
    svg.circle((x + 4.0, y - 3.5), 2.6, MIGRATE);
    svg.circle((x + 12.0, y - 3.5), 2.6, FREE);
    svg.text(x + 20.0, y, VALUE, "a run ends");
    y + 18.0
}

/// The horizontal axis: time within runs, with what lies between them cut out.
struct Time {
    /// Stretches of time in which some run was under way, and how much was before each.
    stretches: Vec<(Range<f64>, f64)>,
    total: f64,
    cut: f64,
}

impl Time {
    fn of(zone: &ScannerZone) -> Self {
        let mut spans: Vec<Range<f64>> = zone.passes.iter().map(|p| p.begin..p.end).collect();
        spans.sort_by(|a, b| a.start.total_cmp(&b.start));
        let mut merged: Vec<Range<f64>> = Vec::new();
        for span in spans {
            match merged.last_mut() {
                Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
                _ => merged.push(span),
            }
        }
        let nr_cuts = merged.len().saturating_sub(1) as f64;
        // With many runs the cuts shrink, so that they take little of the width.
        let cut = CUT.min(0.06 / nr_cuts.max(1.0));
        let mut total = 0.0;
        let stretches = merged
            .into_iter()
            .map(|span| {
                let before = total;
                total += span.end - span.start;
                (span, before)
            })
            .collect();
        Self { stretches, total: if total > 0.0 { total } else { 1.0 }, cut }
    }

    /// Where a moment lies, 0 to 1.
    fn share(&self, at: f64) -> f64 {
        let index = self.stretches.partition_point(|(span, _)| span.start <= at).saturating_sub(1);
        let Some((span, before)) = self.stretches.get(index) else { return 0.0 };
        self.place(before + (at.min(span.end) - span.start).max(0.0), index)
    }

    /// Where so much time within runs lies, in a stretch.
    fn place(&self, passed: f64, index: usize) -> f64 {
        let cuts = self.cut * self.stretches.len().saturating_sub(1) as f64;
        passed / self.total * (1.0 - cuts) + self.cut * index as f64
    }

    fn draw_ticks(&self, svg: &mut Svg, left: f64, bottom: f64) {
        let axis = Axis::linear([0.0, self.total].into_iter(), 8, Zero::Included);
        for tick in axis.ticks.into_iter().filter(|tick| *tick <= self.total) {
            let index = self.stretches.partition_point(|(_, before)| *before <= tick);
            let x = left + self.place(tick, index.saturating_sub(1)) * PLOT.0;
            svg.line((x, bottom), (x, bottom + 4.0), HAIRLINE, 1.0);
            let style = TICK.anchored(Anchor::Middle);
            svg.text(x, bottom + 16.0, style, &text::prefixed(tick));
        }
    }

    /// A thin line where time was cut out.
    fn draw_cuts(&self, svg: &mut Svg, left: f64, top: f64, bottom: f64) {
        if self.stretches.len() > CUTS_DRAWN_MAX {
            return;
        }
        for (span, _) in self.stretches.iter().skip(1) {
            let x = left + (self.share(span.start) - self.cut / 2.0) * PLOT.0;
            svg.line((x, top), (x, bottom), HAIRLINE, 1.0);
        }
    }
}

/// The upper plot: frames over time.
fn draw_positions(
    svg: &mut Svg,
    zone: &ScannerZone,
    time: &Time,
    (left, top): (f64, f64),
    height: f64,
) {
    let bottom = top + height;
    let frames = (zone.span.end - zone.span.start).max(1) as f64;
    let y_of = |pfn: u64| bottom - (pfn.saturating_sub(zone.span.start)) as f64 / frames * height;
    // At addresses that are round in hexadecimal, and at the zone's end.
    let step = (zone.span.end - zone.span.start).max(LINES_MIN).div_ceil(LINES_MIN);
    let step = 1 << (64 - (step / 2).leading_zeros());
    let first = zone.span.start.next_multiple_of(step);
    for pfn in (first..zone.span.end).step_by(step as usize) {
        let y = y_of(pfn);
        svg.line((left, y), (left + PLOT.0, y), HAIRLINE, 1.0);
        svg.text(left - 7.0, y + 3.5, TICK.anchored(Anchor::End), &format!("{pfn:#x}"));
    }
    svg.line((left, top), (left + PLOT.0, top), HAIRLINE, 1.0);
    svg.line((left, bottom), (left + PLOT.0, bottom), QUIET, 1.0);
    time.draw_cuts(svg, left, top, bottom);
    // Each run's way, where the scanner was after each scan.
    for pass in &zone.passes {
        for (is_free, colour) in [(false, MIGRATE_VAIN), (true, FREE_VAIN)] {
            let of_it = pass.scans.iter().filter(|scan| scan.is_free == is_free);
            let place = |scan: &Scan| {
                let pfn = if is_free { scan.frames.start } else { scan.frames.end };
                (left + time.share(scan.at) * PLOT.0, y_of(pfn))
            };
            // Searches of a scanner jump back and forth between runs, not within one.
            let mut way: Vec<(f64, f64)> = Vec::new();
            for at in of_it.map(place) {
                let is_near =
                    |last: &(f64, f64)| (last.0 - at.0).abs() < 0.5 && (last.1 - at.1).abs() < 0.5;
                if !way.last().is_some_and(is_near) {
                    way.push(at);
                }
            }
            if way.len() > 1 {
                svg.polyline(&way, colour, 1.0);
            }
        }
    }
    // What was scanned in vain first, so that the rest lies above it.
    for (is_free, takes, colour) in [
        (false, false, MIGRATE_VAIN),
        (true, false, FREE_VAIN),
        (false, true, MIGRATE),
        (true, true, FREE),
    ] {
        let mut columns: BTreeMap<(i64, u64), u64> = BTreeMap::new();
        for pass in &zone.passes {
            let wanted = |s: &&Scan| s.is_free == is_free && (s.nr_taken > 0) == takes;
            for scan in pass.scans.iter().filter(wanted) {
                let column = (time.share(scan.at) * COLUMNS) as i64;
                let end = columns.entry((column, scan.frames.start)).or_default();
                *end = (*end).max(scan.frames.end);
            }
        }
        for ((column, start), end) in columns {
            let x = left + column as f64 / COLUMNS * PLOT.0;
            let (upper, lower) = (y_of(end), y_of(start));
            // At least a dot: a pageblock of a large zone is less than a pixel.
            let thick = (lower - upper).max(2.4);
            svg.rect(x - 1.2, (upper + lower - thick) / 2.0, 2.4, thick, colour);
        }
    }
    let radius = if zone.passes.len() > CUTS_DRAWN_MAX { 1.6 } else { 2.6 };
    // Where a run ended: both scanners' last places, one above the other.
    for pass in &zone.passes {
        for is_free in [false, true] {
            let colour = if is_free { FREE } else { MIGRATE };
            if let Some(last) = pass.scans.iter().rev().find(|scan| scan.is_free == is_free) {
                let pfn = if is_free { last.frames.start } else { last.frames.end };
                svg.circle((left + time.share(pass.end) * PLOT.0, y_of(pfn)), radius, colour);
            }
        }
    }
}

/// The lower plot: pages moved, gathered in bars. Returns where the next zone may begin.
fn draw_moved(svg: &mut Svg, zone: &ScannerZone, time: &Time, (left, top): (f64, f64)) -> f64 {
    const BARS: f64 = 180.0;
    let bottom = top + PLOT.2;
    let mut bars: BTreeMap<i64, [u64; 2]> = BTreeMap::new();
    for pass in &zone.passes {
        for (at, moved, failed) in &pass.batches {
            let bar = bars.entry((time.share(*at) * (BARS - 1.0)) as i64).or_default();
            bar[0] += moved;
            bar[1] += failed;
        }
    }
    let highest = bars.values().map(|[moved, failed]| moved + failed).max().unwrap_or(0);
    if highest == 0 {
        time.draw_ticks(svg, left, top - 16.0);
        svg.text(left, top + 18.0, TICK, "nothing was moved");
        return top + 48.0;
    }
    let y = Axis::linear([0.0, highest as f64].into_iter(), 2, Zero::Included);
    let height_of = |nr: u64| y.share(nr as f64).unwrap_or(0.0) * PLOT.2;
    for tick in &y.ticks {
        let line = bottom - y.share(*tick).unwrap_or(0.0) * PLOT.2;
        svg.line((left, line), (left + PLOT.0, line), HAIRLINE, 1.0);
        svg.text(left - 7.0, line + 3.5, TICK.anchored(Anchor::End), &text::prefixed(*tick));
    }
    svg.upright_text(MARGIN + 4.0, top + PLOT.2 / 2.0, TICK.anchored(Anchor::Middle), "pages");
    for (bar, [moved, failed]) in bars {
        let x = left + bar as f64 / BARS * PLOT.0;
        let (moved, failed) = (height_of(moved), height_of(failed));
        svg.rect(x, bottom - moved, PLOT.0 / BARS - 0.6, moved, MOVED);
        svg.rect(x, bottom - moved - failed, PLOT.0 / BARS - 0.6, failed, FAILED);
    }
    svg.line((left, bottom), (left + PLOT.0, bottom), QUIET, 1.0);
    time.draw_ticks(svg, left, bottom);
    bottom + 44.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(begin: f64, end: f64) -> PassLine {
        let scan = |at, is_free, frames, nr_taken| Scan { at, is_free, frames, nr_taken };
        PassLine {
            name: "init (sync, all)".into(),
            status: "complete".into(),
            begin,
            end,
            scans: vec![
                scan(begin, false, 0x1000..0x1200, 32),
                scan(begin, true, 0x1fe00..0x1ffe0, 40),
                scan(end, false, 0x1200..0x1400, 0),
            ],
            batches: vec![(begin, 32, 0), (end, 3, 2)],
        }
    }

    fn chart(passes: Vec<PassLine>) -> ScannerChart {
        ScannerChart {
            title: "Compaction".into(),
            x_label: "milliseconds".into(),
            zones: vec![ScannerZone {
                title: "Node 0, zone DMA32".into(),
                span: 0x1000..0x1ffe0,
                passes,
            }],
            caption: Caption::default(),
        }
    }

    #[test]
    fn a_run_shows_both_scanners_and_what_it_moved() {
        insta::assert_snapshot!(chart(vec![pass(10.0, 14.0)]).svg());
    }

    #[test]
    fn time_between_runs_takes_no_room() {
        let zone = &chart(vec![pass(0.0, 1.0), pass(5_000.0, 5_003.0)]).zones[0];
        let time = Time::of(zone);
        assert_eq!(time.total, 4.0);
        assert!(time.share(0.0) == 0.0 && (time.share(5_003.0) - 1.0).abs() < 1e-9);
        let gap = time.share(5_000.0) - time.share(1.0);
        assert!((gap - CUT).abs() < 1e-9, "{gap}");
        // Runs at the same time are one stretch.
        let zone = &chart(vec![pass(0.0, 4.0), pass(1.0, 2.0)]).zones[0];
        assert_eq!(Time::of(zone).total, 4.0);
    }

    #[test]
    fn a_zone_in_which_nothing_moved_says_so() {
        let mut pass = pass(0.0, 1.0);
        pass.batches.clear();
        assert!(chart(vec![pass]).svg().contains("nothing was moved"));
        let empty = chart(vec![PassLine::default()]);
        assert!(empty.svg().contains("nothing was scanned"));
    }

    #[test]
    fn many_runs_are_counted_by_kind() {
        let mut passes = vec![pass(0.0, 1.0); 4];
        passes[3].status = "success".into();
        assert_eq!(
            in_words(&passes),
            ["init (sync, all), 4 runs: 3 complete, 1 success; 140 pages moved"]
        );
        assert_eq!(in_words(&passes[3..]), ["init (sync, all): success, 35 pages moved"]);
    }
}
