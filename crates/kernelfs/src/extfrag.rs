//! debugfs `extfrag/extfrag_index` and `extfrag/unusable_index`: an index of each order, a line
//! a zone.
//!
//! Models: mm/vmstat.c (`extfrag_show_print`, `unusable_show_print`).

use crate::TextFile;
use crate::lines::{Problems, Spacing, most_common, node_zone, number};
use highorder_input::InputError;

/// One zone's indices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtfragZone {
    /// The NUMA node.
    pub node: u32,
    /// The zone's name.
    pub zone: String,
    /// The index of each order in thousandths; -1000 means that an allocation would succeed.
    pub index_milli: Vec<i32>,
    /// How the line was spaced.
    pub spacing: Spacing,
}

/// One of the two files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extfrag {
    /// Columns of the digits before the point: 2 in `extfrag_index`, 1 in `unusable_index`.
    pub whole_width: usize,
    /// The populated zones, in file order.
    pub zones: Vec<ExtfragZone>,
}

impl TextFile for Extfrag {
    fn parse(file: &str, text: &[u8]) -> Result<Extfrag, InputError> {
        let mut problems = Problems::new(file);
        let mut rows = Vec::new();
        let lines = problems.lines(text);
        for line in &lines {
            let parsed = node_zone(line.text).and_then(|(node, zone, indices)| {
                let index_milli =
                    indices.split_ascii_whitespace().map(thousandths).collect::<Option<_>>()?;
                let zone = zone.into();
                Some(ExtfragZone { node, zone, index_milli, spacing: Spacing::KERNEL })
            });
            match parsed {
                Some(row) => rows.push((*line, row)),
                None => problems.line(*line, "`Node N, zone NAME` and the index of each order"),
            }
        }
        // Only a value without a minus sign shows whether a second column is kept for one.
        let two =
            rows.iter().any(|(line, _)| line.text.contains("  0.") || line.text.contains("-1."));
        let whole_width = if two { 2 } else { 1 };
        let columns = most_common(rows.iter().map(|(_, row)| row.index_milli.len())).unwrap_or(0);
        for (line, row) in &mut rows {
            let found = row.index_milli.len();
            if found != columns || found == 0 {
                let found = format!("zone {} has {found} order columns", row.zone);
                problems.add(line.number, found, columns.max(1).to_string());
            }
            row.spacing = problems.spacing(*line, &zone_line(row, whole_width));
        }
        if text.is_empty() {
            problems.add(0, "an empty file", "at least one zone");
        }
        let zones = rows.into_iter().map(|(_, row)| row).collect();
        problems.finish(Extfrag { whole_width, zones }, text)
    }

    fn to_text(&self) -> String {
        let line =
            |zone: &ExtfragZone| zone.spacing.apply(zone_line(zone, self.whole_width)) + "\n";
        self.zones.iter().map(line).collect()
    }
}

/// Parses `-1.000` or `0.935`.
fn thousandths(word: &str) -> Option<i32> {
    let (sign, magnitude) = match word.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, word),
    };
    let (whole, part) = magnitude.split_once('.')?;
    let whole: i32 = number(whole)?.try_into().ok()?;
    let digits = part.len() == 3 && part.bytes().all(|b| b.is_ascii_digit());
    let part: i32 = digits.then(|| part.parse().ok())??;
    whole.checked_mul(1000)?.checked_add(part)?.checked_mul(sign)
}

fn zone_line(zone: &ExtfragZone, whole_width: usize) -> String {
    let mut line = format!("Node {}, zone {:>8} ", zone.node, zone.zone);
    for index in &zone.index_milli {
        let sign = if *index < 0 { "-" } else { "" };
        let whole = format!("{sign}{}", index.unsigned_abs() / 1000);
        line.push_str(&format!("{whole:>whole_width$}.{:03} ", index.unsigned_abs() % 1000));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_files_are_written_in_their_own_width() {
        let extfrag = "Node 0, zone    DMA32 -1.000 -1.000  0.935 \n";
        let unusable = "Node 0, zone    DMA32 0.000 0.058 1.000 \n";
        for (text, width, last) in [(extfrag, 2, 935), (unusable, 1, 1000)] {
            let table = Extfrag::parse("index", text.as_bytes()).unwrap();
            assert_eq!(table.whole_width, width);
            assert_eq!(table.zones[0].index_milli[2], last);
            assert!(table.zones[0].spacing.is_kernel());
            assert_eq!(table.to_text(), text);
        }
    }

    #[test]
    fn an_index_without_three_places_is_an_error() {
        for bad in ["0.1", "0.1000", "x.000", "-0.000x", "1", ".500"] {
            assert_eq!(thousandths(bad), None, "{bad}");
        }
        let error = Extfrag::parse("e", b"Node 0, zone DMA -0.000 \n").unwrap_err();
        assert_eq!(error.problems().len(), 1, "minus zero cannot be written back: {error}");
    }
}
