//! Plots as paths of SVG: lines, steps, areas, dots and bars over two axes.
//!
//! Paths lie in a picture of [`UNITS`] by [`UNITS`] that is stretched to the room there is, with strokes that keep
//! their width.

use crate::axis::Axis;
use crate::svg;
use std::fmt::Write as _;

/// Extent of a plot's coordinates: a third of a pixel on a plot of 3000 pixels.
pub const UNITS: f64 = 10_000.0;

/// The values of a line.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// One for each place.
    Each(Vec<Option<f64>>),
    /// The same everywhere.
    Constant(f64),
}

impl Values {
    /// Those that there are.
    pub fn iter(&self) -> impl Iterator<Item = f64> + '_ {
        match self {
            Self::Each(values) => values.as_slice(),
            Self::Constant(_) => &[],
        }
        .iter()
        .copied()
        .flatten()
        .chain(match self {
            Self::Each(_) => None,
            Self::Constant(value) => Some(*value),
        })
    }
}

/// What is made of a line's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Line,
    Steps,
    AreaUnderLine,
    AreaUnderSteps,
}

/// Two axes.
#[derive(Clone, Copy, Debug)]
pub struct Plane<'a> {
    /// From left to right.
    pub x: &'a Axis,
    /// Upwards.
    pub y: &'a Axis,
}

impl Plane<'_> {
    /// Where a point lies, from the left and from the bottom, 0 to 1 each; none if it has no place.
    #[must_use]
    pub fn shares(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        Some((self.x.share(x)?, self.y.share(y)?))
    }

    fn place(&self, x: f64, y: f64) -> Option<(i64, i64)> {
        let (x, y) = self.shares(x, y)?;
        Some((coordinate(x), coordinate(1.0 - y)))
    }

    /// Lines from sample to sample, broken where one is missing.
    #[must_use]
    pub fn line(&self, x: &[f64], values: &Values) -> String {
        match values {
            Values::Constant(value) => match self.place(self.x.range.0, *value) {
                Some((_, y)) => format!("M0 {y}H{UNITS}"),
                None => String::new(),
            },
            Values::Each(values) => self.strokes(x, values, Shape::Line),
        }
    }

    /// Steps: each value from the place before to its own.
    #[must_use]
    pub fn steps(&self, x: &[f64], values: &[Option<f64>]) -> String {
        self.strokes(x, values, Shape::Steps)
    }

    /// The area between steps and the horizontal axis.
    #[must_use]
    pub fn area_under_steps(&self, x: &[f64], values: &[Option<f64>]) -> String {
        self.strokes(x, values, Shape::AreaUnderSteps)
    }

    /// The area between a line and the horizontal axis.
    #[must_use]
    pub fn area_under_line(&self, x: &[f64], values: &[Option<f64>]) -> String {
        self.strokes(x, values, Shape::AreaUnderLine)
    }

    /// Moves are relative, which keeps them short.
    fn strokes(&self, x: &[f64], values: &[Option<f64>], shape: Shape) -> String {
        let is_area = matches!(shape, Shape::AreaUnderLine | Shape::AreaUnderSteps);
        let is_stepped = matches!(shape, Shape::Steps | Shape::AreaUnderSteps);
        let mut d = String::new();
        // Where the pen is, while it is down.
        let mut pen: Option<(i64, i64)> = None;
        let lift = |d: &mut String, pen: &mut Option<(i64, i64)>| {
            if pen.take().is_some() && is_area {
                let _ = write!(d, "V{UNITS}Z");
            }
        };
        for (i, value) in values.iter().enumerate().skip(usize::from(is_stepped)) {
            // Steps of nothing enclose no area.
            let value = value.filter(|value| shape != Shape::AreaUnderSteps || *value > 0.0);
            let Some((to, y)) = value.and_then(|value| self.place(x[i], value)) else {
                lift(&mut d, &mut pen);
                continue;
            };
            let from = match (is_stepped, self.x.share(x[i.max(1) - 1])) {
                (true, Some(share)) => coordinate(share),
                _ => to,
            };
            let _ = match (pen, is_area) {
                (Some((_, before)), _) if is_stepped => write!(d, "v{}h{}", y - before, to - from),
                (Some((left, before)), _) => write!(d, "l{} {}", to - left, y - before),
                (None, true) => write!(d, "M{from} {UNITS}V{y}"),
                (None, false) => write!(d, "M{from} {y}"),
            };
            if pen.is_none() && is_stepped {
                let _ = write!(d, "h{}", to - from);
            }
            pen = Some((to, y));
        }
        lift(&mut d, &mut pen);
        d
    }

    /// A dot at each point: a line without length, to which the style gives round ends.
    #[must_use]
    pub fn dots(&self, points: &[(f64, f64)]) -> String {
        let mut d = String::new();
        for (x, y) in points.iter().filter_map(|(x, y)| self.place(*x, *y)) {
            let _ = write!(d, "M{x} {y}h0");
        }
        d
    }

    /// Upright lines from one value to another.
    #[must_use]
    pub fn bars(&self, spans: &[(f64, f64, f64)]) -> String {
        let mut d = String::new();
        for (x, low, high) in spans {
            if let (Some((x, low)), Some((_, high))) = (self.place(*x, *low), self.place(*x, *high))
            {
                let _ = write!(d, "M{x} {low}V{high}");
            }
        }
        d
    }

    /// Filled bars that stand on zero: from x to x, and their height.
    #[must_use]
    pub fn columns(&self, columns: &[(f64, f64, f64)]) -> String {
        let mut d = String::new();
        for (from, to, height) in columns {
            let corners = (self.place(*from, *height), self.place(*to, 0.0));
            if let (Some((left, top)), Some((right, bottom))) = corners
                && top < bottom
            {
                let _ = write!(d, "M{left} {bottom}V{top}H{right}V{bottom}Z");
            }
        }
        d
    }
}

/// Lines at the ticks of an axis: level ones if it is vertical, else upright ones.
#[must_use]
pub fn grid(axis: &Axis, is_vertical: bool) -> String {
    let mut grid = String::new();
    for share in axis.ticks.iter().filter_map(|tick| axis.share_within(*tick)) {
        let _ = match is_vertical {
            true => write!(grid, "M0 {}H{UNITS}", coordinate(1.0 - share)),
            false => write!(grid, "M{} 0V{UNITS}", coordinate(share)),
        };
    }
    grid
}

/// A share as a percentage for a style: at most two decimals.
#[must_use]
pub fn percent(share: f64) -> String {
    svg::number(100.0 * share)
}

fn coordinate(share: f64) -> i64 {
    // What lies far outside is cut off by the picture's edge wherever it is.
    (share * UNITS).round().clamp(-UNITS, 2.0 * UNITS) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(high: f64) -> Axis {
        Axis { range: (0.0, high), ticks: vec![0.0, high], log: false }
    }

    #[test]
    fn a_missing_value_breaks_the_line_and_is_no_zero() {
        let (x, y) = (axis(4.0), axis(10.0));
        let plane = Plane { x: &x, y: &y };
        let values = vec![Some(0.0), Some(10.0), None, Some(5.0), Some(5.0)];
        let places = [0.0, 1.0, 2.0, 3.0, 4.0];
        let line = plane.line(&places, &Values::Each(values.clone()));
        assert_eq!(line, "M0 10000l2500 -10000M7500 5000l2500 0");
        assert_eq!(plane.steps(&places, &values), "M0 0h2500M5000 5000h2500v0h2500");
        assert_eq!(
            plane.area_under_line(&places, &values),
            "M0 10000V10000l2500 -10000V10000ZM7500 10000V5000l2500 0V10000Z"
        );
        assert_eq!(
            plane.area_under_steps(&places, &values),
            "M0 10000V0h2500V10000ZM5000 10000V5000h2500v0h2500V10000Z"
        );
    }
}
