//! What became of pageblocks over time: a row for each, coloured by what most of it holds.
//!
//! The picture carries what it shows in its `metadata`, so that it can be read back: a line `seconds` with the moments,
//! then for each zone a line `zone NAME` and one for each pageblock, in which a class stands as its letter with the
//! number of moments for which it stayed: `f12h3`.

use crate::map::Caption;
use crate::palette::UseClass;
use crate::picture::draw_caption;
use crate::svg::{INK, QUIET, Style, Svg};
use highorder_tables::text;
use std::fmt::Write as _;

/// The picture's name in a record.
pub const BLOCK_LIVES: &str = "block-lives";

const MARGIN: f64 = 28.0;
const TITLE: Style = Style::new(18.0, INK).bold();
const HEADING: Style = Style::new(12.5, INK).bold();
const LABEL: Style = Style::new(11.0, INK);
const QUIET_LABEL: Style = Style::new(10.0, QUIET);
/// Width of a moment and height of a pageblock.
const CELL: (u64, u64) = (4, 2);
/// Between two zones, for the heading of the second.
const GAP: f64 = 26.0;
/// Room for the legend.
const LEGEND_WIDTH: f64 = 190.0;
/// Moments between two of which the time is told.
const LABELLED: usize = 30;
/// The least width of the picture's text.
const WIDTH_MIN: f64 = 320.0;

/// What became of pageblocks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BlockLives {
    /// Heading.
    pub title: String,
    /// What stands below it.
    pub explanation: String,
    /// The moments, in seconds.
    pub seconds: Vec<f64>,
    /// The zones, lowest first.
    pub zones: Vec<ZoneLives>,
    /// Printed below.
    pub caption: Caption,
}

/// The pageblocks of a zone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ZoneLives {
    /// Its name.
    pub name: String,
    /// What most of each pageblock held at each moment; ascending by address.
    pub blocks: Vec<Vec<UseClass>>,
}

impl BlockLives {
    /// Draws them: time runs to the right, addresses run down.
    #[must_use]
    pub fn svg(&self) -> String {
        let plot = ((self.seconds.len() as u64 * CELL.0) as f64).max(WIDTH_MIN);
        let width = 2.0 * MARGIN + plot + LEGEND_WIDTH;
        let mut svg = Svg::default();
        let mut y = MARGIN + 14.0;
        svg.text(MARGIN, y, TITLE, &self.title);
        for line in text::wrap(&self.explanation, ((width - 2.0 * MARGIN) / 6.0) as usize) {
            y += 16.0;
            svg.text(MARGIN, y, QUIET_LABEL, &line);
        }
        y += GAP;
        let top = y;
        for zone in &self.zones {
            svg.text(MARGIN, y, HEADING, &zone.name);
            y += 8.0;
            zone.draw(&mut svg, y.ceil() as u64);
            y = y.ceil() + (zone.blocks.len() as u64 * CELL.1) as f64 + GAP;
        }
        y -= GAP - 14.0;
        for (at, seconds) in self.seconds.iter().enumerate().step_by(LABELLED) {
            let x = MARGIN + (at as u64 * CELL.0) as f64;
            svg.line((x, y - 10.0), (x, y - 14.0), QUIET, 1.0);
            svg.text(x, y, QUIET_LABEL, &format!("{seconds:.0} s"));
        }
        let below_legend = self.draw_legend(&mut svg, width - LEGEND_WIDTH - MARGIN + 18.0, top);
        let caption = [("", &self.caption)];
        let y = draw_caption(&mut svg, &caption, width, y.max(below_legend) + 12.0);
        let picture = svg.finish(width, y);
        // Behind the opening tag.
        let at = picture.find("<svg").and_then(|tag| Some(tag + picture[tag..].find('>')? + 1));
        let (head, body) = picture.split_at(at.unwrap_or(0));
        format!("{head}\n<metadata>\n{}</metadata>{body}", self.lines())
    }

    /// The lines that say what is shown.
    fn lines(&self) -> String {
        let mut lines = "seconds".to_owned();
        for seconds in &self.seconds {
            let _ = write!(lines, " {seconds}");
        }
        lines.push('\n');
        for zone in &self.zones {
            let _ = writeln!(lines, "zone {}", zone.name);
            for stays in zone.stays() {
                let _ = writeln!(lines, "{stays}");
            }
        }
        lines
    }

    /// What a picture shows that was drawn by [`BlockLives::svg`], but for its words; none if it is no such picture.
    #[must_use]
    pub fn read(picture: &str) -> Option<Self> {
        let (_, rest) = picture.split_once("<metadata>\n")?;
        let (lines, _) = rest.split_once("</metadata>")?;
        let mut lines = lines.lines();
        let seconds = lines.next()?.strip_prefix("seconds")?.split_whitespace();
        let seconds = seconds.map(|text| text.parse().ok()).collect::<Option<Vec<f64>>>()?;
        let mut zones: Vec<ZoneLives> = Vec::new();
        for line in lines {
            match line.strip_prefix("zone ") {
                Some(name) => {
                    zones.push(ZoneLives { name: name.to_owned(), blocks: Vec::new() });
                }
                None => zones.last_mut()?.blocks.push(read_stays(line, seconds.len())?),
            }
        }
        Some(Self { seconds, zones, ..Self::default() })
    }

    /// The classes that are there, the ones that a map stacks highest first. Returns where it ends.
    fn draw_legend(&self, svg: &mut Svg, x: f64, top: f64) -> f64 {
        let mut y = top;
        for class in UseClass::ALL.into_iter().rev() {
            let has = |zone: &ZoneLives| zone.blocks.iter().flatten().any(|&one| one == class);
            if self.zones.iter().any(has) {
                let swatch = class.swatch();
                svg.rect(x, y - 9.0, 10.0, 10.0, swatch.colour);
                svg.text(x + 16.0, y, LABEL, swatch.label);
                y += 16.0;
            }
        }
        y
    }
}

impl ZoneLives {
    /// For each pageblock, how long it stayed in which class: `f12h3`.
    pub fn stays(&self) -> impl Iterator<Item = String> + '_ {
        self.blocks.iter().map(|block| {
            let stays = block.chunk_by(|one, next| one == next);
            stays.map(|stay| format!("{}{}", stay[0].swatch().letter, stay.len())).collect()
        })
    }

    /// A path for each class, of a piece for as long as a pageblock stays in it.
    fn draw(&self, svg: &mut Svg, top: u64) {
        for class in UseClass::ALL {
            let mut path = String::new();
            for (row, block) in self.blocks.iter().enumerate() {
                let mut at = 0;
                for stay in block.chunk_by(|one, next| one == next) {
                    if stay[0] == class {
                        let x = MARGIN as u64 + at * CELL.0;
                        let y = top + row as u64 * CELL.1;
                        let (wide, high) = (stay.len() as u64 * CELL.0, CELL.1);
                        let _ = write!(path, "M{x} {y}h{wide}v{high}h-{wide}z");
                    }
                    at += stay.len() as u64;
                }
            }
            svg.crisp_path(&path, class.swatch().colour);
        }
    }
}

/// The classes of a pageblock at each of so many moments.
fn read_stays(line: &str, moments: usize) -> Option<Vec<UseClass>> {
    let mut classes = Vec::new();
    let mut rest = line;
    while let Some(letter) = rest.chars().next() {
        let class = UseClass::ALL.into_iter().find(|class| class.swatch().letter == letter)?;
        rest = &rest[letter.len_utf8()..];
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let stay: usize = rest[..digits].parse().ok()?;
        if stay > moments - classes.len() {
            return None;
        }
        classes.extend(std::iter::repeat_n(class, stay));
        rest = &rest[digits..];
    }
    (classes.len() == moments).then_some(classes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_drawn_can_be_read_again() {
        let row = |classes: [usize; 5]| classes.map(|at| UseClass::ALL[at]).to_vec();
        let zone = |name: &str, blocks| ZoneLives { name: name.to_owned(), blocks };
        let lives = BlockLives {
            seconds: vec![0.0, 0.5, 1.0, 1.25, 20.0],
            zones: vec![
                zone("node 0, zone DMA", vec![row([0, 0, 1, 2, 2])]),
                zone("node 1, zone Normal", vec![row([3, 4, 5, 6, 7]), row([20, 20, 20, 20, 20])]),
            ],
            ..BlockLives::default()
        };
        assert_eq!(BlockLives::read(&lives.svg()), Some(lives.clone()));
        assert_eq!(lives.zones[0].stays().collect::<Vec<_>>().len(), 1);
        for bad in ["", "<svg></svg>", &lives.svg().replacen("seconds 0", "seconds 0 0", 1)] {
            assert_eq!(BlockLives::read(bad), None);
        }
    }

    #[test]
    fn a_block_has_a_piece_for_each_stay_in_a_class() {
        use UseClass::{File, FreeHuge};
        let zone = ZoneLives {
            name: "zone Normal".to_owned(),
            blocks: vec![vec![File, File, FreeHuge], vec![File, File, File]],
        };
        let lives =
            BlockLives { seconds: vec![0.0, 1.0, 2.0], zones: vec![zone], ..Default::default() };
        let svg = lives.svg();
        assert_eq!(svg.matches("h12v2h-12z").count(), 1, "{svg}");
        assert_eq!(svg.matches("h8v2h-8z").count(), 1);
        assert_eq!(svg.matches("h4v2h-4z").count(), 1);
        assert!(svg.contains(File.swatch().label) && svg.contains(FreeHuge.swatch().label));
        assert_eq!(svg, lives.clone().svg());
    }
}
