//! A heat table: numbers in cells that are darker the more they are of their column's largest.

use crate::map::Caption;
use crate::palette::Rgb;
use crate::picture::draw_caption;
use crate::svg::{Anchor, INK, PAPER, QUIET, Style, Svg, TROUGH};
use highorder_tables::text;

const MARGIN: f64 = 28.0;
const TITLE: Style = Style::new(18.0, INK).bold();
const HEADING: Style = Style::new(12.5, INK).bold();
const LABEL: Style = Style::new(11.0, INK);
const QUIET_LABEL: Style = Style::new(10.0, QUIET);
const CELL: (f64, f64) = (104.0, 20.0);
/// Room for the two labels in front of a row.
const LABELS: (f64, f64) = (96.0, 112.0);
/// What is bad in large amounts, and what is good.
const BAD: Rgb = Rgb(0xd9, 0x5f, 0x0e);
const GOOD: Rgb = Rgb(0x2c, 0x7f, 0xb8);
/// A cell of the largest value has this share of the full colour, so that its number can be read.
const DARKEST: f64 = 0.8;

/// Panels of rows over the same columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeatTable {
    /// Heading.
    pub title: String,
    /// What stands below it.
    pub explanation: String,
    /// The columns.
    pub columns: Vec<HeatColumn>,
    /// The panels, top to bottom.
    pub panels: Vec<HeatPanel>,
    /// Printed below.
    pub caption: Caption,
}

/// A column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeatColumn {
    /// Its heading.
    pub heading: String,
    /// Whether much of it is good; else much is bad.
    pub is_good: bool,
}

/// Rows whose cells are compared with each other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeatPanel {
    /// Heading.
    pub title: String,
    /// What stands behind it, in a quieter voice.
    pub subtitle: String,
    /// The rows.
    pub rows: Vec<HeatRow>,
}

/// A row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeatRow {
    /// What it belongs to; it is shown once for rows in a row.
    pub group: String,
    /// Its name.
    pub label: String,
    /// A value for each column; none if it is not known.
    pub values: Vec<Option<f64>>,
}

impl HeatTable {
    /// Draws it. A cell's colour is its share of the largest value in its column and panel.
    #[must_use]
    pub fn svg(&self) -> String {
        let labels = LABELS.0 + LABELS.1;
        let width = 2.0 * MARGIN + labels + self.columns.len() as f64 * CELL.0;
        let mut svg = Svg::default();
        let mut y = MARGIN + 14.0;
        svg.text(MARGIN, y, TITLE, &self.title);
        for line in text::wrap(&self.explanation, ((width - 2.0 * MARGIN) / 6.0) as usize) {
            y += 16.0;
            svg.text(MARGIN, y, QUIET_LABEL, &line);
        }
        for panel in &self.panels {
            y += 34.0;
            svg.heading(MARGIN, y, (HEADING, QUIET_LABEL), (&panel.title, &panel.subtitle));
            y += 20.0;
            for (i, column) in self.columns.iter().enumerate() {
                let middle = MARGIN + labels + (i as f64 + 0.5) * CELL.0;
                let style = QUIET_LABEL.anchored(Anchor::Middle);
                svg.text(middle, y, style, &column.heading);
            }
            y += 6.0;
            let mut last = "";
            for row in &panel.rows {
                if row.group != last {
                    y += 4.0;
                    svg.text(MARGIN, y + 14.0, LABEL.bold(), &row.group);
                    last = &row.group;
                }
                svg.text(MARGIN + LABELS.0, y + 14.0, LABEL, &row.label);
                for (i, (column, value)) in self.columns.iter().zip(&row.values).enumerate() {
                    let most = largest(panel, i);
                    let x = MARGIN + labels + i as f64 * CELL.0;
                    draw_cell(&mut svg, x, y, column, *value, most);
                }
                y += CELL.1;
            }
        }
        let height = draw_caption(&mut svg, &[("", &self.caption)], width, y + 16.0);
        svg.finish(width, height)
    }
}

fn largest(panel: &HeatPanel, column: usize) -> f64 {
    let values = panel.rows.iter().filter_map(|row| row.values.get(column).copied().flatten());
    values.fold(0.0, f64::max)
}

fn draw_cell(svg: &mut Svg, x: f64, y: f64, column: &HeatColumn, value: Option<f64>, most: f64) {
    let share = value.map_or(0.0, |value| if most > 0.0 { value / most } else { 0.0 });
    let full = if column.is_good { GOOD } else { BAD };
    let ground = match value {
        None => TROUGH,
        Some(_) => PAPER.mix(full, (DARKEST * share).clamp(0.0, 1.0)),
    };
    svg.rect(x, y, CELL.0 - 2.0, CELL.1 - 2.0, ground);
    let shown = value.map_or("-".to_owned(), text::prefixed);
    let style = LABEL.anchored(Anchor::Middle);
    svg.text(x + CELL.0 / 2.0 - 1.0, y + 13.5, style, &shown);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heat_table_of_two_rows() {
        let row = |label: &str, values: [Option<f64>; 2]| HeatRow {
            group: "advised".into(),
            label: label.into(),
            values: values.to_vec(),
        };
        let column = |heading: &str, is_good| HeatColumn { heading: heading.into(), is_good };
        let table = HeatTable {
            title: "Stalls".into(),
            explanation: "darker is more".into(),
            columns: vec![column("stalls", false), column("huge (%)", true)],
            panels: vec![HeatPanel {
                title: "usemem".into(),
                subtitle: "one thread".into(),
                rows: vec![
                    row("always", [Some(1200.0), Some(80.0)]),
                    row("never", [Some(0.0), None]),
                ],
            }],
            caption: Caption::default(),
        };
        insta::assert_snapshot!(table.svg());
    }

    #[test]
    fn the_largest_is_that_of_the_column() {
        let row = |value| HeatRow { values: vec![Some(9.0), value], ..HeatRow::default() };
        let panel = HeatPanel { rows: vec![row(Some(2.0)), row(None)], ..HeatPanel::default() };
        assert_eq!([largest(&panel, 0), largest(&panel, 1), largest(&panel, 2)], [9.0, 2.0, 0.0]);
    }
}
