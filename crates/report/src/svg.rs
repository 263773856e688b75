//! SVG by string building: the few shapes that the pictures need.

use crate::palette::Rgb;
use std::fmt::Write as _;

/// The colour of headings and values.
pub(crate) const INK: Rgb = Rgb(0x1e, 0x25, 0x2e);
/// The colour of labels and explanations.
pub(crate) const QUIET: Rgb = Rgb(0x62, 0x6b, 0x76);
/// The colour of axes, outlines and gaps.
pub(crate) const HAIRLINE: Rgb = Rgb(0xd5, 0xda, 0xe0);
/// The page.
pub(crate) const PAPER: Rgb = Rgb(0xff, 0xff, 0xff);
/// A little darker than the page: the trough of a bar.
pub(crate) const TROUGH: Rgb = Rgb(0xf1, 0xf3, 0xf5);

/// Where a text's position lies in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// How a text looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) size: f64,
    pub(crate) colour: Rgb,
    pub(crate) bold: bool,
    pub(crate) mono: bool,
    pub(crate) anchor: Anchor,
}

impl Style {
    pub(crate) const fn new(size: f64, colour: Rgb) -> Self {
        Self { size, colour, bold: false, mono: false, anchor: Anchor::Start }
    }

    pub(crate) const fn bold(mut self) -> Self {
        self.bold = true;
        self
    }

    pub(crate) const fn mono(mut self) -> Self {
        self.mono = true;
        self
    }

    pub(crate) const fn anchored(mut self, anchor: Anchor) -> Self {
        self.anchor = anchor;
        self
    }

    /// About how wide `text` comes out.
    ///
    /// DejaVu Sans advances 0.636 em for a digit and 0.59 em for the mean of English text; bold is
    /// a tenth wider. Used for layout only, where a little slack is left.
    pub(crate) fn width(&self, text: &str) -> f64 {
        let em = match (self.mono, self.bold) {
            (true, _) => 0.602,
            (_, true) => 0.66,
            _ => 0.59,
        };
        text.chars().count() as f64 * em * self.size
    }
}

/// A picture being drawn.
#[derive(Clone, Debug, Default)]
pub(crate) struct Svg {
    body: String,
}

impl Svg {
    pub(crate) fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, fill: Rgb) {
        if width > 0.0 && height > 0.0 {
            let _ = writeln!(
                self.body,
                r#"<rect x="{}" y="{}" width="{}" height="{}" fill="{fill}"/>"#,
                number(x),
                number(y),
                number(width),
                number(height)
            );
        }
    }

    /// A rectangle with a thin line inside its edge.
    pub(crate) fn outlined(&mut self, x: f64, y: f64, side: f64, fill: Rgb, line: Rgb) {
        let _ = writeln!(
            self.body,
            r#"<rect x="{}" y="{}" width="{side}" height="{side}" fill="{fill}" stroke="{line}"/>"#,
            number(x + 0.5),
            number(y + 0.5),
            side = number(side - 1.0)
        );
    }

    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: Rgb, width: f64) {
        self.polyline(&[from, to], colour, width);
    }

    pub(crate) fn polyline(&mut self, points: &[(f64, f64)], colour: Rgb, width: f64) {
        let mut list = String::new();
        for (x, y) in points {
            let space = if list.is_empty() { "" } else { " " };
            let _ = write!(list, "{space}{},{}", number(*x), number(*y));
        }
        let _ = writeln!(
            self.body,
            r#"<polyline points="{list}" fill="none" stroke="{colour}" stroke-width="{}" stroke-linejoin="round"/>"#,
            number(width)
        );
    }

    pub(crate) fn circle(&mut self, centre: (f64, f64), radius: f64, fill: Rgb) {
        let _ = writeln!(
            self.body,
            r#"<circle cx="{}" cy="{}" r="{}" fill="{fill}" fill-opacity="0.75"/>"#,
            number(centre.0),
            number(centre.1),
            number(radius)
        );
    }

    /// A path on whole pixels, drawn without smoothing.
    pub(crate) fn crisp_path(&mut self, data: &str, fill: Rgb) {
        if !data.is_empty() {
            let _ = writeln!(
                self.body,
                r#"<path shape-rendering="crispEdges" fill="{fill}" d="{data}"/>"#
            );
        }
    }

    pub(crate) fn text(&mut self, x: f64, y: f64, style: Style, text: &str) {
        self.placed_text(&format!(r#"x="{}" y="{}""#, number(x), number(y)), style, text);
    }

    /// A heading and, after a gap, something quieter on the same line.
    pub(crate) fn heading(&mut self, x: f64, y: f64, styles: (Style, Style), text: (&str, &str)) {
        let (heading, quiet) = styles;
        let _ = writeln!(
            self.body,
            r#"<text x="{}" y="{}" font-size="{}" fill="{}" font-weight="bold">{}<tspan dx="12" font-size="{}" fill="{}" font-weight="normal">{}</tspan></text>"#,
            number(x),
            number(y),
            heading.size,
            heading.colour,
            escape(text.0),
            quiet.size,
            quiet.colour,
            escape(text.1)
        );
    }

    /// A text that reads upwards.
    pub(crate) fn upright_text(&mut self, x: f64, y: f64, style: Style, text: &str) {
        let place = format!(r#"transform="translate({} {}) rotate(-90)""#, number(x), number(y));
        self.placed_text(&place, style, text);
    }

    fn placed_text(&mut self, place: &str, style: Style, text: &str) {
        let anchor = match style.anchor {
            Anchor::Start => "",
            Anchor::Middle => r#" text-anchor="middle""#,
            Anchor::End => r#" text-anchor="end""#,
        };
        let weight = if style.bold { r#" font-weight="bold""# } else { "" };
        let family = if style.mono { r#" font-family="DejaVu Sans Mono, monospace""# } else { "" };
        let _ = writeln!(
            self.body,
            r#"<text {place} font-size="{}" fill="{}"{anchor}{weight}{family}>{}</text>"#,
            number(style.size),
            style.colour,
            escape(text)
        );
    }

    /// The finished file.
    pub(crate) fn finish(self, width: f64, height: f64) -> String {
        let (w, h) = (number(width.ceil()), number(height.ceil()));
        format!(
            concat!(
                r#"<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" "#,
                r#"viewBox="0 0 {w} {h}" font-family="DejaVu Sans, Verdana, sans-serif">"#,
                "\n",
                r#"<rect width="{w}" height="{h}" fill="{paper}"/>"#,
                "\n{body}</svg>\n"
            ),
            w = w,
            h = h,
            paper = PAPER,
            body = self.body
        )
    }
}

/// Rectangles of one colour on whole pixels, joined into rows and written as one path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs {
    /// (y, height, x, width)
    rects: Vec<(i64, i64, i64, i64)>,
}

impl Runs {
    pub(crate) fn push(&mut self, x: i64, y: i64, width: i64, height: i64) {
        if width > 0 && height > 0 {
            self.rects.push((y, height, x, width));
        }
    }

    /// The path's data; moves are relative, which keeps them short.
    pub(crate) fn path(mut self) -> String {
        self.rects.sort_unstable();
        let mut merged: Vec<(i64, i64, i64, i64)> = Vec::new();
        for rect in self.rects {
            match merged.last_mut() {
                Some(last) if (last.0, last.1) == (rect.0, rect.1) && last.2 + last.3 == rect.2 => {
                    last.3 += rect.3;
                }
                _ => merged.push(rect),
            }
        }
        let mut data = String::new();
        let (mut from_x, mut from_y) = (0, 0);
        for (y, height, x, width) in merged {
            let _ = write!(data, "m{} {}h{width}v{height}h-{width}z", x - from_x, y - from_y);
            (from_x, from_y) = (x, y);
        }
        data
    }
}

/// A coordinate with at most two decimals.
pub(crate) fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            // XML 1.0 has no way to write most control characters.
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_rectangles_become_one_run() {
        let mut runs = Runs::default();
        runs.push(4, 0, 4, 2);
        runs.push(0, 0, 4, 2);
        runs.push(12, 0, 4, 2);
        runs.push(0, 2, 4, 2);
        assert_eq!(runs.path(), "m0 0h8v2h-8zm12 0h4v2h-4zm-12 2h4v2h-4z");
    }

    #[test]
    fn text_cannot_break_the_markup() {
        let mut svg = Svg::default();
        svg.text(0.0, 0.0, Style::new(10.0, INK), "a<b & \u{1}c");
        assert!(svg.finish(1.0, 1.0).contains(">a&lt;b &amp; \u{fffd}c</text>"));
    }

    #[test]
    fn coordinates_are_short() {
        assert_eq!([1.0, 1.5, 0.333, -0.001].map(number), ["1", "1.5", "0.33", "0"]);
    }
}
