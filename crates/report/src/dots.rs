//! A dot plot: by how much each row changed, of one source and of another, a panel for each table.

use crate::map::Caption;
use crate::palette::{Rgb, SERIES};
use crate::picture::draw_caption;
use crate::svg::{Anchor, HAIRLINE, INK, QUIET, Style, Svg, TROUGH};
use highorder_tables::text;

const MARGIN: f64 = 28.0;
const TITLE: Style = Style::new(18.0, INK).bold();
const HEADING: Style = Style::new(12.5, INK).bold();
const LABEL: Style = Style::new(10.5, INK);
const TICK: Style = Style::new(10.0, QUIET);
/// Widths of a panel's labels and of its plot, and between two panels.
const LABELS: f64 = 206.0;
const PLOT: f64 = 250.0;
const GUTTER: f64 = 34.0;
const ROW: f64 = 15.0;
const RADIUS: f64 = 3.6;
/// Panels stand in so many columns.
const COLUMNS: usize = 3;
/// The plot ends at a factor of 2 to this power, beyond which a dot stands at the edge.
const POWER_MAX: f64 = 4.0;
/// Behind a row whose two dots lie on different sides of no change.
const OPPOSED: Rgb = Rgb(0xfb, 0xe4, 0xe0);

/// Rows with two dots each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DotPlot {
    /// Heading.
    pub title: String,
    /// What the two dots are.
    pub names: [String; 2],
    /// The panels, in reading order.
    pub panels: Vec<DotPanel>,
    /// Printed below.
    pub caption: Caption,
}

/// One table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DotPanel {
    /// Heading.
    pub title: String,
    /// What is compared, in a quieter voice.
    pub subtitle: String,
    /// The rows.
    pub rows: Vec<DotRow>,
}

/// One row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DotRow {
    /// Its name.
    pub label: String,
    /// The new value over the old one, of each source; infinite where the old one is 0, none where it was not
    /// measured.
    pub ratios: [Option<f64>; 2],
}

impl DotPlot {
    /// Draws it. The axis is logarithmic, from a sixteenth to sixteen times; what went further, to 0 or up from
    /// 0, stands at the edge.
    #[must_use]
    pub fn svg(&self) -> String {
        let columns = self.panels.len().clamp(1, COLUMNS);
        let width = 2.0 * MARGIN
            + columns as f64 * (LABELS + PLOT)
            + (columns - 1) as f64 * GUTTER
            + 2.0 * RADIUS;
        let mut svg = Svg::default();
        let top = self.draw_head(&mut svg, width);
        // Each panel goes where the columns end first, so that short and long ones fill the page.
        let mut ends = vec![top; columns];
        for panel in &self.panels {
            let shortest = (0..columns).min_by(|a, b| ends[*a].total_cmp(&ends[*b])).unwrap_or(0);
            let left = MARGIN + shortest as f64 * (LABELS + PLOT + GUTTER);
            ends[shortest] = draw_panel(&mut svg, panel, left, ends[shortest]) + 26.0;
        }
        let bottom = ends.into_iter().fold(top, f64::max);
        let height = draw_caption(&mut svg, &[("", &self.caption)], width, bottom);
        svg.finish(width, height)
    }

    fn draw_head(&self, svg: &mut Svg, width: f64) -> f64 {
        let mut y = MARGIN + 14.0;
        svg.text(MARGIN, y, TITLE, &text::shorten(&self.title, (width / 11.0) as usize));
        y += 22.0;
        let mut x = MARGIN;
        for (name, colour) in self.names.iter().zip(SERIES) {
            svg.circle((x + RADIUS, y - 4.0), RADIUS, colour);
            svg.text(x + 14.0, y, LABEL, name);
            x += 14.0 + LABEL.width(name) + 22.0;
        }
        svg.rect(x, y - 10.0, 16.0, 12.0, OPPOSED);
        svg.text(x + 22.0, y, LABEL, "not the same way");
        y + 24.0
    }
}

/// Draws a panel and returns where it ends.
fn draw_panel(svg: &mut Svg, panel: &DotPanel, left: f64, top: f64) -> f64 {
    svg.heading(left, top + 11.0, (HEADING, TICK), (&panel.title, &panel.subtitle));
    let plot = left + LABELS;
    let first = top + 24.0;
    let bottom = first + panel.rows.len() as f64 * ROW;
    let at = |power: f64| plot + (power + POWER_MAX) / (2.0 * POWER_MAX) * PLOT;
    for (i, row) in panel.rows.iter().enumerate() {
        let y = first + i as f64 * ROW;
        let is_opposed = matches!(row.ratios, [Some(a), Some(b)] if !is_same_way(a, b));
        if is_opposed {
            svg.rect(plot, y, PLOT, ROW - 1.0, OPPOSED);
        } else if i % 2 == 0 {
            svg.rect(plot, y, PLOT, ROW - 1.0, TROUGH);
        }
    }
    for (power, label) in [(-4.0, "÷16"), (-2.0, "÷4"), (0.0, "same"), (2.0, "×4"), (4.0, "×16")]
    {
        let colour = if power == 0.0 { QUIET } else { HAIRLINE };
        svg.line((at(power), first), (at(power), bottom), colour, 1.0);
        svg.text(at(power), bottom + 12.0, TICK.anchored(Anchor::Middle), label);
    }
    for (i, row) in panel.rows.iter().enumerate() {
        let y = first + (i as f64 + 0.5) * ROW - 0.5;
        let label = text::shorten(&row.label, (LABELS / 6.1) as usize);
        svg.text(plot - 8.0, y + 3.7, LABEL.anchored(Anchor::End), &label);
        let places = row.ratios.map(|ratio| ratio.and_then(power).map(at));
        if let [Some(from), Some(to)] = places {
            svg.line((from, y), (to, y), QUIET, 1.0);
        }
        for (place, colour) in places.into_iter().zip(SERIES) {
            if let Some(x) = place {
                svg.circle((x, y), RADIUS, colour);
            }
        }
    }
    bottom + 16.0
}

/// Whether two changes go the same way. One that is none goes no way.
fn is_same_way(a: f64, b: f64) -> bool {
    (a > 1.0 && b > 1.0) || (a < 1.0 && b < 1.0)
}

/// The power of 2 that a ratio is, as far as the axis reaches; none for what is no ratio.
fn power(ratio: f64) -> Option<f64> {
    match ratio {
        r if r.is_nan() || r < 0.0 => None,
        r => Some(r.log2().clamp(-POWER_MAX, POWER_MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(label: &str, ratios: [Option<f64>; 2]) -> DotRow {
        DotRow { label: label.into(), ratios }
    }

    #[test]
    fn what_goes_to_zero_or_comes_from_it_stands_at_the_edge() {
        assert_eq!(power(0.0), Some(-POWER_MAX));
        assert_eq!(power(f64::INFINITY), Some(POWER_MAX));
        assert_eq!(power(2.0), Some(1.0));
        assert_eq!(power(f64::NAN), None);
    }

    #[test]
    fn a_change_and_none_do_not_go_the_same_way() {
        assert!(is_same_way(2.0, 1.1) && is_same_way(0.0, 0.9));
        assert!(!is_same_way(2.0, 1.0) && !is_same_way(0.5, 2.0));
    }

    #[test]
    fn a_dot_plot_of_two_panels() {
        let plot = DotPlot {
            title: "Published and measured".into(),
            names: ["published".into(), "ours".into()],
            panels: vec![
                DotPanel {
                    title: "times".into(),
                    subtitle: "new over old".into(),
                    rows: vec![
                        row("System-1", [Some(0.455), Some(0.6)]),
                        row("Elapsd-48", [Some(0.98), Some(1.4)]),
                    ],
                },
                DotPanel {
                    title: "vmstat".into(),
                    subtitle: String::new(),
                    rows: vec![row("Swap Outs", [Some(0.0), None])],
                },
            ],
            caption: Caption { lines: vec!["seed 1".into()], command: None },
        };
        insta::assert_snapshot!(plot.svg());
    }
}
