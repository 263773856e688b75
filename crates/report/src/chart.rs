//! Charts as SVG: curves over time in small multiples, grouped bars, and a log-log scatter.

use crate::axis::{Axis, Zero};
use crate::map::Caption;
use crate::palette::{Rgb, SERIES};
use crate::picture::draw_caption;
use crate::plane::Plane;
use crate::svg::{Anchor, HAIRLINE, INK, QUIET, Style, Svg};
use highorder_tables::text;

const MARGIN: f64 = 28.0;
const TITLE: Style = Style::new(18.0, INK).bold();
const HEADING: Style = Style::new(12.5, INK).bold();
const TICK: Style = Style::new(10.5, QUIET);
const VALUE: Style = Style::new(11.0, INK);
/// Room for the numbers at the left of a plot.
const AXIS_WIDTH: f64 = 58.0;

/// A named sequence of points, ascending in x for curves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Its name in the legend; series of one name have one colour in all panels.
    pub name: String,
    /// x and y.
    pub points: Vec<(f64, f64)>,
}

/// One of the small multiples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Panel {
    /// Heading.
    pub title: String,
    /// Unit of the values, as in `pages` or `µs`; empty for plain counts.
    pub unit: String,
    /// The curves.
    pub series: Vec<Series>,
}

/// Curves over one time axis, a panel for each quantity, panels under each other in two columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineChart {
    /// Heading.
    pub title: String,
    /// Name and unit of the shared horizontal axis, as in `seconds since the start`.
    pub x_label: String,
    /// The multiples, in reading order.
    pub panels: Vec<Panel>,
    /// Printed below.
    pub caption: Caption,
}

impl LineChart {
    /// Draws it.
    #[must_use]
    pub fn svg(&self) -> String {
        const PLOT: (f64, f64) = (440.0, 150.0);
        let columns = self.panels.len().clamp(1, 2);
        let width =
            2.0 * MARGIN + columns as f64 * (AXIS_WIDTH + PLOT.0) + (columns - 1) as f64 * 36.0;
        let names = self.names();
        let xs = || self.panels.iter().flat_map(|p| &p.series).flat_map(|s| &s.points).map(|p| p.0);
        let x = Axis::linear(xs(), 6, Zero::Free);

        let mut svg = Svg::default();
        let mut top = draw_head(&mut svg, &self.title, &names, width);
        for row in self.panels.chunks(columns) {
            for (i, panel) in row.iter().enumerate() {
                let left = MARGIN + i as f64 * (AXIS_WIDTH + PLOT.0 + 36.0) + AXIS_WIDTH;
                let words = (panel.title.as_str(), panel.unit.as_str());
                svg.heading(left - AXIS_WIDTH, top + 11.0, (HEADING, TICK), words);
                let values = panel.series.iter().flat_map(|s| &s.points).map(|p| p.1);
                let plot = Plot {
                    left,
                    top: top + 24.0,
                    width: PLOT.0,
                    height: PLOT.1,
                    x: x.clone(),
                    y: Axis::linear(values, 4, Zero::Included),
                };
                plot.draw_axes(&mut svg);
                for series in &panel.series {
                    let points =
                        series.points.iter().filter_map(|p| plot.place(*p)).collect::<Vec<_>>();
                    svg.polyline(&points, colour_of(&names, &series.name), 1.6);
                }
            }
            top += 24.0 + PLOT.1 + 46.0;
        }
        svg.text(width / 2.0, top - 8.0, TICK.anchored(Anchor::Middle), &self.x_label);
        let height = draw_caption(&mut svg, &[("", &self.caption)], width, top + 6.0);
        svg.finish(width, height)
    }

    fn names(&self) -> Vec<&str> {
        distinct(self.panels.iter().flat_map(|p| &p.series).map(|s| s.name.as_str()))
    }
}

/// Bars in groups: one group a category, one bar a series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BarChart {
    /// Heading.
    pub title: String,
    /// Unit of the values.
    pub unit: String,
    /// Name of the horizontal axis, as in `order`.
    pub x_label: String,
    /// Names of the groups.
    pub groups: Vec<String>,
    /// Name of each series and its value for each group; a value that is not finite leaves a gap.
    pub series: Vec<(String, Vec<f64>)>,
    /// Printed below.
    pub caption: Caption,
}

impl BarChart {
    /// Draws it.
    #[must_use]
    pub fn svg(&self) -> String {
        const PLOT: (f64, f64) = (860.0, 300.0);
        let width = 2.0 * MARGIN + AXIS_WIDTH + PLOT.0;
        let names = distinct(self.series.iter().map(|s| s.0.as_str()));
        let mut svg = Svg::default();
        let top = draw_head(&mut svg, &self.title, &names, width);
        svg.text(MARGIN, top + 10.0, TICK, &self.unit);
        let values = self.series.iter().flat_map(|s| s.1.iter().copied());
        let plot = Plot {
            left: MARGIN + AXIS_WIDTH,
            top: top + 22.0,
            width: PLOT.0,
            height: PLOT.1,
            x: Axis {
                ticks: Vec::new(),
                range: (0.0, self.groups.len().max(1) as f64),
                log: false,
            },
            y: Axis::linear(values, 6, Zero::Included),
        };
        plot.draw_axes(&mut svg);
        let group = PLOT.0 / self.groups.len().max(1) as f64;
        let bar = (group * 0.8 / self.series.len().max(1) as f64).min(48.0);
        let bars = bar * self.series.len() as f64;
        for (i, name) in self.groups.iter().enumerate() {
            let middle = plot.left + (i as f64 + 0.5) * group;
            for (j, (series, values)) in self.series.iter().enumerate() {
                let value = values.get(i).copied().unwrap_or(f64::NAN);
                if let (Some((_, y)), Some((_, zero))) =
                    (plot.place((0.0, value)), plot.place((0.0, 0.0)))
                {
                    let x = middle - bars / 2.0 + j as f64 * bar;
                    let gap = if bar > 6.0 { 1.0 } else { 0.0 };
                    svg.rect(
                        x,
                        y.min(zero),
                        bar - gap,
                        (zero - y).abs(),
                        colour_of(&names, series),
                    );
                }
            }
            svg.text(middle, plot.bottom() + 16.0, TICK.anchored(Anchor::Middle), name);
        }
        let label_y = plot.bottom() + 36.0;
        svg.text(width / 2.0, label_y, TICK.anchored(Anchor::Middle), &self.x_label);
        let height = draw_caption(&mut svg, &[("", &self.caption)], width, label_y + 12.0);
        svg.finish(width, height)
    }
}

/// Points on two logarithmic axes; what is not above zero cannot be placed and is left out, and the
/// picture says how many that were.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScatterChart {
    /// Heading.
    pub title: String,
    /// Name and unit of the horizontal axis.
    pub x_label: String,
    /// Name and unit of the vertical axis.
    pub y_label: String,
    /// The points.
    pub series: Vec<Series>,
    /// Draws the line on which both are equal, for comparisons of a model with a measurement.
    pub diagonal: bool,
    /// Printed below.
    pub caption: Caption,
}

impl ScatterChart {
    /// Draws it.
    #[must_use]
    pub fn svg(&self) -> String {
        const SIDE: f64 = 520.0;
        let width = 2.0 * MARGIN + AXIS_WIDTH + 20.0 + SIDE;
        let names = distinct(self.series.iter().map(|s| s.name.as_str()));
        let all = || self.series.iter().flat_map(|s| s.points.iter().copied());
        let (x, y) = if self.diagonal {
            let both = Axis::logarithmic(all().flat_map(|(x, y)| [x, y]));
            (both.clone(), both)
        } else {
            (Axis::logarithmic(all().map(|p| p.0)), Axis::logarithmic(all().map(|p| p.1)))
        };
        let mut svg = Svg::default();
        let top = draw_head(&mut svg, &self.title, &names, width);
        let left = MARGIN + AXIS_WIDTH + 20.0;
        let plot = Plot { left, top, width: SIDE, height: SIDE, x, y };
        plot.draw_axes(&mut svg);
        if self.diagonal {
            let ends = [plot.x.range.0, plot.x.range.1].map(|v| plot.place((v, v)));
            svg.polyline(&ends.into_iter().flatten().collect::<Vec<_>>(), QUIET, 1.0);
        }
        let mut left_out = 0;
        for series in &self.series {
            for point in &series.points {
                match plot.place(*point) {
                    Some(at) => svg.circle(at, 3.2, colour_of(&names, &series.name)),
                    None => left_out += 1,
                }
            }
        }
        let middle = TICK.anchored(Anchor::Middle);
        svg.text(left + SIDE / 2.0, plot.bottom() + 36.0, middle, &self.x_label);
        svg.upright_text(MARGIN + 8.0, top + SIDE / 2.0, middle, &self.y_label);
        let mut caption = self.caption.clone();
        if left_out > 0 {
            caption.lines.push(format!("not shown, being zero or less: {left_out}"));
        }
        let height = draw_caption(&mut svg, &[("", &caption)], width, plot.bottom() + 48.0);
        svg.finish(width, height)
    }
}

/// Title and legend; returns where the plots may begin. A single nameless series needs no legend.
fn draw_head(svg: &mut Svg, title: &str, names: &[&str], width: f64) -> f64 {
    let mut y = MARGIN + 14.0;
    svg.text(MARGIN, y, TITLE, title);
    y += 14.0;
    if names.iter().all(|n| n.is_empty()) {
        return y + 8.0;
    }
    let mut x = MARGIN;
    for name in names {
        let needed = 20.0 + VALUE.width(name) + 18.0;
        if x > MARGIN && x + needed > width - MARGIN {
            x = MARGIN;
            y += 20.0;
        }
        svg.rect(x, y + 3.0, 14.0, 6.0, colour_of(names, name));
        svg.text(x + 20.0, y + 10.0, VALUE, name);
        x += needed;
    }
    y + 32.0
}

/// The colour of a series: its place among the names, so that panels agree.
fn colour_of(names: &[&str], name: &str) -> Rgb {
    let i = names.iter().position(|n| *n == name).unwrap_or(0);
    SERIES[i % SERIES.len()]
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

/// A rectangle with two axes.
#[derive(Clone, Debug)]
struct Plot {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
    x: Axis,
    y: Axis,
}

impl Plot {
    fn bottom(&self) -> f64 {
        self.top + self.height
    }

    fn place(&self, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        let (x, y) = Plane { x: &self.x, y: &self.y }.shares(x, y)?;
        Some((self.left + x * self.width, self.bottom() - y * self.height))
    }

    /// Lines and numbers at the ticks.
    fn draw_axes(&self, svg: &mut Svg) {
        let right = self.left + self.width;
        for tick in &self.y.ticks {
            let Some(share) = self.y.share(*tick) else { continue };
            let y = self.bottom() - share * self.height;
            svg.line((self.left, y), (right, y), HAIRLINE, 1.0);
            let label = text::prefixed(*tick);
            svg.text(self.left - 7.0, y + 3.5, TICK.anchored(Anchor::End), &label);
        }
        for tick in &self.x.ticks {
            let Some(share) = self.x.share(*tick) else { continue };
            let x = self.left + share * self.width;
            let from = if self.x.log { self.top } else { self.bottom() };
            svg.line((x, from), (x, self.bottom() + 4.0), HAIRLINE, 1.0);
            let label = text::prefixed(*tick);
            svg.text(x, self.bottom() + 16.0, TICK.anchored(Anchor::Middle), &label);
        }
        if self.y.log || self.y.range.0 >= 0.0 {
            svg.line((self.left, self.bottom()), (right, self.bottom()), QUIET, 1.0);
        } else if let Some(zero) = self.y.share(0.0) {
            let y = self.bottom() - zero * self.height;
            svg.line((self.left, y), (right, y), QUIET, 1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, points: &[(f64, f64)]) -> Series {
        Series { name: name.into(), points: points.to_vec() }
    }

    #[test]
    fn a_series_keeps_its_colour_in_every_panel() {
        let names = distinct(["model", "kernel", "model"].into_iter());
        assert_eq!(names, ["model", "kernel"]);
        assert_ne!(colour_of(&names, "model"), colour_of(&names, "kernel"));
    }

    #[test]
    fn a_line_chart_of_two_panels() {
        let panel = |title: &str, k: f64| Panel {
            title: title.into(),
            unit: "pages".into(),
            series: vec![
                series("kernel", &[(0.0, k), (1.0, 2.0 * k), (2.0, 0.0)]),
                series("model", &[(0.0, k), (2.0, k / 2.0)]),
            ],
        };
        let chart = LineChart {
            title: "Replay".into(),
            x_label: "seconds".into(),
            panels: vec![panel("free", 12000.0), panel("order 9 & above", 3.0)],
            caption: Caption {
                lines: vec!["seed 1".into()],
                command: Some("highorder replay x".into()),
            },
        };
        insta::assert_snapshot!(chart.svg());
    }

    #[test]
    fn a_bar_chart_leaves_gaps_for_what_is_not_measured() {
        let chart = BarChart {
            title: "Free blocks".into(),
            unit: "blocks".into(),
            x_label: "order".into(),
            groups: vec!["0".into(), "1".into()],
            series: vec![
                ("recorded".into(), vec![10.0, 4.0]),
                ("model".into(), vec![f64::NAN, 5.0]),
            ],
            caption: Caption::default(),
        };
        insta::assert_snapshot!(chart.svg());
    }

    #[test]
    fn a_scatter_says_what_it_could_not_place() {
        let chart = ScatterChart {
            title: "Counters".into(),
            x_label: "kernel".into(),
            y_label: "model".into(),
            series: vec![series("", &[(10.0, 12.0), (0.0, 5.0), (1000.0, 900.0)])],
            diagonal: true,
            caption: Caption::default(),
        };
        let svg = chart.svg();
        assert!(svg.contains("not shown, being zero or less: 1"));
        assert_eq!(svg.matches("<circle").count(), 2);
    }
}
