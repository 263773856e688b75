//! `/proc/swaps`: the swap areas and how full they are.
//!
//! Models: mm/swapfile.c (`swap_show`), v5.13 and later; older kernels put one tab where newer
//! put one or two, which is kept as read.

use crate::TextFile;
use crate::lines::{Problems, Spacing, number, signed};
use highorder_input::InputError;

/// One swap area.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwapArea {
    /// The file or device, with blanks escaped as the kernel does (`\040`).
    pub filename: String,
    /// `partition` or `file`.
    pub kind: String,
    /// Size in kilobytes.
    pub size_kb: u64,
    /// Kilobytes in use.
    pub used_kb: u64,
    /// Priority; the kernel gives negative ones itself.
    pub priority: i64,
    /// How the line was spaced.
    pub spacing: Spacing,
}

/// `/proc/swaps`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swaps {
    /// How the heading was spaced.
    pub heading_spacing: Spacing,
    /// The areas, in order of priority.
    pub areas: Vec<SwapArea>,
}

const HEADING: &str = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority";

impl TextFile for Swaps {
    fn parse(file: &str, text: &[u8]) -> Result<Swaps, InputError> {
        let mut problems = Problems::new(file);
        let mut swaps = Swaps::default();
        let lines = problems.lines(text);
        match lines.first() {
            Some(line) => swaps.heading_spacing = problems.spacing(*line, HEADING),
            None => problems.add(0, "an empty file", "a heading"),
        }
        for line in lines.iter().skip(1) {
            match parse_area(&line.words()) {
                Some(mut area) => {
                    area.spacing = problems.spacing(*line, &area_line(&area));
                    swaps.areas.push(area);
                }
                None => problems.line(*line, "a file's name, type, size, use and priority"),
            }
        }
        problems.finish(swaps, text)
    }

    fn to_text(&self) -> String {
        let mut text = self.heading_spacing.apply(HEADING.into()) + "\n";
        for area in &self.areas {
            text.push_str(&area.spacing.apply(area_line(area)));
            text.push('\n');
        }
        text
    }
}

fn parse_area(words: &[&str]) -> Option<SwapArea> {
    let [filename, kind, size, used, priority] = words else { return None };
    Some(SwapArea {
        filename: filename.to_string(),
        kind: kind.to_string(),
        size_kb: number(size)?,
        used_kb: number(used)?,
        priority: signed(priority)?,
        spacing: Spacing::KERNEL,
    })
}

/// The name fills 40 columns; the numbers are set apart by tabs, two after a short number.
fn area_line(area: &SwapArea) -> String {
    let SwapArea { filename, kind, size_kb, used_kb, priority, .. } = area;
    let blanks = 40usize.saturating_sub(filename.len()).max(1);
    let kind = if kind == "file" { "file\t" } else { kind };
    let tab = |kb: u64| if kb < 10_000_000 { "\t" } else { "" };
    format!(
        "{filename}{:blanks$}{kind}\t{size_kb}\t{}{used_kb}\t{}{priority}",
        "",
        tab(*size_kb),
        tab(*used_kb)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_are_read_changed_and_written() {
        let row = "/dev/vdc                                partition\t262140\t\t17516\t\t-2";
        let text = format!("{HEADING}\n{row}\n");
        let mut swaps = Swaps::parse("swaps", text.as_bytes()).unwrap();
        assert!(swaps.areas[0].spacing.is_kernel());
        assert_eq!((swaps.areas[0].used_kb, swaps.areas[0].priority), (17516, -2));
        swaps.areas[0].used_kb = 12_000_000;
        assert_eq!(swaps.to_text(), text.replace("17516\t\t", "12000000\t"));
        let file = SwapArea { filename: "/swap".into(), kind: "file".into(), ..Default::default() };
        swaps.areas.push(file);
        assert!(
            swaps
                .to_text()
                .ends_with("\n/swap                                   file\t\t0\t\t0\t\t0\n")
        );
    }

    #[test]
    fn older_headings_and_tabs_are_kept() {
        let text = "Filename\t\t\t\tType\t\tSize\tUsed\tPriority\n\
                    /dev/sda2                               partition\t1020\t0\t-1\n";
        let mut swaps = Swaps::parse("swaps", text.as_bytes()).unwrap();
        assert_eq!(swaps.to_text(), text);
        swaps.areas[0].used_kb = 512;
        assert_eq!(swaps.to_text(), text.replace("\t0\t-1", "\t512\t-1"));
    }

    #[test]
    fn no_area_at_all_is_fine_and_a_broken_one_is_not() {
        assert_eq!(Swaps::parse("s", format!("{HEADING}\n").as_bytes()).unwrap(), Swaps::default());
        assert!(Swaps::parse("s", b"").is_err());
        assert!(
            Swaps::parse("s", format!("{HEADING}\n/dev/sda partition 1 2\n").as_bytes()).is_err()
        );
    }
}
