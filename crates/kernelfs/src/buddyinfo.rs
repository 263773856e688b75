//! `/proc/buddyinfo`: free blocks of each order, a line a zone.
//!
//! Models: mm/vmstat.c (`frag_show_print`). The number of columns is what the kernel was built
//! with (11 on x86-64: orders 0 to 10) and is taken from the file.

use crate::TextFile;
use crate::lines::{Problems, Spacing, most_common, node_zone, number};
use highorder_files::limits;
use highorder_input::InputError;

/// The free blocks of one zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuddyinfoZone {
    /// The NUMA node.
    pub node: u32,
    /// The zone's name, e.g. `DMA32`.
    pub zone: String,
    /// Free blocks of each order, order 0 first; not base pages.
    pub counts: Vec<u64>,
    /// How the line was spaced.
    pub spacing: Spacing,
}

impl BuddyinfoZone {
    /// Returns the free memory of the zone in base pages.
    pub fn free_pages(&self) -> u64 {
        self.counts.iter().enumerate().map(|(order, count)| count << order).sum()
    }
}

/// `/proc/buddyinfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buddyinfo {
    /// The populated zones, in file order.
    pub zones: Vec<BuddyinfoZone>,
}

impl Buddyinfo {
    /// Returns one zone's line.
    pub fn zone(&self, node: u32, zone: &str) -> Option<&BuddyinfoZone> {
        self.zones.iter().find(|z| z.node == node && z.zone == zone)
    }

    /// Returns one zone's line, to change it.
    pub fn zone_mut(&mut self, node: u32, zone: &str) -> Option<&mut BuddyinfoZone> {
        self.zones.iter_mut().find(|z| z.node == node && z.zone == zone)
    }
}

impl TextFile for Buddyinfo {
    fn parse(file: &str, text: &[u8]) -> Result<Buddyinfo, InputError> {
        let mut problems = Problems::new(file);
        let mut rows = Vec::new();
        let lines = problems.lines(text);
        for line in &lines {
            let parsed = node_zone(line.text).and_then(|(node, zone, counts)| {
                let counts = counts.split_ascii_whitespace().map(number).collect::<Option<_>>()?;
                Some(BuddyinfoZone { node, zone: zone.into(), counts, spacing: Spacing::KERNEL })
            });
            let Some(mut row) = parsed else {
                problems.line(*line, "`Node N, zone NAME` and the free blocks of each order");
                continue;
            };
            row.spacing = problems.spacing(*line, &zone_line(&row));
            problems.check_blocks(line.number, row.counts.iter().copied());
            rows.push((line.number, row));
        }
        let columns = most_common(rows.iter().map(|(_, row)| row.counts.len())).unwrap_or(0);
        for (number, row) in &rows {
            let found = row.counts.len();
            if found != columns {
                let found = format!("zone {} has {found} order columns", row.zone);
                problems.add(*number, found, columns.to_string());
            }
        }
        if let Err(message) = limits::ORDERS.check(columns as u64) {
            problems.message(message);
        }
        if columns == 0 && !rows.is_empty() {
            problems.add(rows[0].0, "no order columns", "the free blocks of each order");
        }
        if text.is_empty() {
            problems.add(0, "an empty file", "at least one zone");
        }
        problems.finish(Buddyinfo { zones: rows.into_iter().map(|(_, row)| row).collect() }, text)
    }

    fn to_text(&self) -> String {
        self.zones.iter().map(|zone| zone.spacing.apply(zone_line(zone)) + "\n").collect()
    }
}

fn zone_line(zone: &BuddyinfoZone) -> String {
    let mut line = format!("Node {}, zone {:>8} ", zone.node, zone.zone);
    for count in &zone.counts {
        line.push_str(&format!("{count:>6} "));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_changed_in_the_kernels_formatting() {
        let text = "Node 0, zone    DMA32      3      2    102 \n";
        let mut buddyinfo = Buddyinfo::parse("buddyinfo", text.as_bytes()).unwrap();
        assert_eq!(buddyinfo.to_text(), text);
        let zone = buddyinfo.zone_mut(0, "DMA32").unwrap();
        assert_eq!(zone.free_pages(), 3 + 2 * 2 + 102 * 4);
        zone.counts[1] = 1_234_567;
        assert_eq!(buddyinfo.to_text(), "Node 0, zone    DMA32      3 1234567    102 \n");
        assert_eq!(buddyinfo.zone(1, "DMA32"), None);
    }

    #[test]
    fn a_missing_column_names_the_line_and_the_zone() {
        let text = b"Node 0, zone      DMA      0      1      1 \n\
                     Node 0, zone    DMA32      0      1      1 \n\
                     Node 0, zone   Normal      0      1 \n";
        let error = Buddyinfo::parse("tests/data/buddyinfo.txt", text).unwrap_err();
        assert_eq!(
            error.to_string(),
            "tests/data/buddyinfo.txt:3: zone Normal has 2 order columns, expected 3"
        );
    }

    #[test]
    fn a_table_pasted_with_other_spacing_keeps_it() {
        let text = "Node 0, zone DMA 0 1 1\nNode 0, zone Normal  10  1 1\n";
        let mut buddyinfo = Buddyinfo::parse("buddyinfo", text.as_bytes()).unwrap();
        assert_eq!(buddyinfo.to_text(), text);
        buddyinfo.zones[1].counts[0] = 9;
        assert_eq!(buddyinfo.to_text(), "Node 0, zone DMA 0 1 1\nNode 0, zone Normal   9  1 1\n");
    }

    #[test]
    fn a_line_that_cannot_be_given_back_is_an_error() {
        let error = Buddyinfo::parse("b", b"Node 0, zone DMA 007 1\n").unwrap_err();
        assert!(
            error.to_string().starts_with("b:1: `Node 0, zone DMA 007 1`, expected"),
            "{error}"
        );
        let error = Buddyinfo::parse("b", b"Node 0,zone DMA 7 1\n").unwrap_err();
        assert_eq!(error.problems().len(), 1, "{error}");
    }
}
