//! A state as the files of `/proc` that tell it: `vmstat`, `meminfo`, `buddyinfo`, `pagetypeinfo`, `zoneinfo`.
//!
//! Models: mm/vmstat.c (`zoneinfo_show_print`, `frag_show_print`, `pagetypeinfo_show`), fs/proc/meminfo.c, v6.12.
//! Departs: a record keeps counters by name, not in the kernel's order. Visible as: lines are in the order of their
//! names, per-CPU lists are missing, and zones begin at frame 0 (`start_pfn`), since a record does not say where.

use highorder_record::{State, ZoneState};
use highorder_snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Files by name, such as `vmstat`.
pub type Texts = BTreeMap<String, Vec<u8>>;

/// The files that tools look for in `/proc`.
pub const NAMES: [&str; 7] =
    ["vmstat", "meminfo", "buddyinfo", "pagetypeinfo", "zoneinfo", "slabinfo", "swaps"];

/// The order of a zone's marks in `/proc/zoneinfo`.
const MARKS: [&str; 8] = ["boost", "min", "low", "high", "promo", "spanned", "present", "managed"];

/// The files of a snapshot, as the machine had them.
#[must_use]
pub fn of_snapshot(snapshot: &Snapshot) -> Texts {
    let kept = snapshot.files.iter().filter(|(name, _)| NAMES.contains(&name.as_str()));
    kept.map(|(name, text)| (name.clone(), text.clone())).collect()
}

/// The files of a state of a run. What the run did not tell has no file.
#[must_use]
pub fn of_state(state: &State) -> Texts {
    let parts = [
        ("vmstat", vmstat(state)),
        ("meminfo", meminfo(state)),
        ("buddyinfo", buddyinfo(state)),
        ("pagetypeinfo", pagetypeinfo(state)),
        ("zoneinfo", zoneinfo(state)),
    ];
    let told = parts.into_iter().filter(|(_, text)| !text.is_empty());
    told.map(|(name, text)| (name.to_owned(), text.into_bytes())).collect()
}

fn vmstat(state: &State) -> String {
    state.counters.iter().map(|(name, value)| format!("{name} {value}\n")).collect()
}

fn meminfo(state: &State) -> String {
    let line = |(name, value): (&String, &u64)| {
        let name = format!("{name}:");
        match name.starts_with("HugePages_") {
            true => format!("{name:<16}{value:>8}\n"),
            false => format!("{name:<16}{value:>8} kB\n"),
        }
    };
    state.meminfo.iter().map(line).collect()
}

fn buddyinfo(state: &State) -> String {
    let mut text = String::new();
    for zone in state.zones.iter().filter(|zone| !zone.free_blocks.is_empty()) {
        let _ = write!(text, "Node {}, zone {:>8} ", zone.node, zone.zone);
        zone.free_blocks.iter().for_each(|nr| _ = write!(text, "{nr:>6} "));
        text.push('\n');
    }
    text
}

fn pagetypeinfo(state: &State) -> String {
    let is_told = |zone: &&ZoneState| !zone.free_blocks_by_migratetype.is_empty();
    let zones: Vec<_> = state.zones.iter().filter(is_told).collect();
    let (Some(order), Some(first)) = (state.pageblock_order, zones.first()) else {
        return String::new();
    };
    let nr_orders = first.free_blocks_by_migratetype.values().map(Vec::len).max().unwrap_or(0);
    let mut text = format!("Page block order: {order}\nPages per block:  {}\n\n", 1u64 << order);
    let _ = write!(text, "{:<43}", "Free pages count per migrate type at order");
    (0..nr_orders).for_each(|order| _ = write!(text, " {order:>6}"));
    text.push_str(" \n");
    for zone in &zones {
        for (migratetype, counts) in &zone.free_blocks_by_migratetype {
            let _ = write!(
                text,
                "Node {:>4}, zone {:>8}, type {migratetype:>12} ",
                zone.node, zone.zone
            );
            counts.iter().for_each(|nr| _ = write!(text, "{nr:>6} "));
            text.push('\n');
        }
    }
    let types: BTreeSet<&String> = zones.iter().flat_map(|zone| zone.pageblocks.keys()).collect();
    let _ = write!(text, "\n{:<23}", "Number of blocks type");
    types.iter().for_each(|of| _ = write!(text, "{of:>12} "));
    text.push('\n');
    for zone in &zones {
        let _ = write!(text, "Node {}, zone {:>8} ", zone.node, zone.zone);
        let nr = |of: &&String| zone.pageblocks.get(*of).copied().unwrap_or(0);
        types.iter().for_each(|of| _ = write!(text, "{:>12} ", nr(of)));
        text.push('\n');
    }
    text
}

fn zoneinfo(state: &State) -> String {
    let mut text = String::new();
    let mut told = BTreeSet::new();
    for zone in state.zones.iter().filter(|zone| zone.pages.contains_key("free")) {
        let _ = writeln!(text, "Node {}, zone {:>8}", zone.node, zone.zone);
        if let Some(counters) = state.nodes.get(&zone.node).filter(|_| told.insert(zone.node)) {
            text.push_str("  per-node stats\n");
            counters.iter().for_each(|(name, nr)| _ = writeln!(text, "      {name:<12} {nr}"));
        }
        let _ = writeln!(text, "  pages free     {}", zone.pages["free"]);
        let ranked = |name: &str| MARKS.iter().position(|mark| *mark == name);
        let mut pages: Vec<_> = zone.pages.iter().filter(|(name, _)| *name != "free").collect();
        pages.sort_by_key(|(name, _)| ranked(name).unwrap_or(MARKS.len()));
        pages.iter().for_each(|(name, nr)| _ = writeln!(text, "        {name:<8} {nr}"));
        let protection: Vec<_> = zone.protection_pages.iter().map(u64::to_string).collect();
        let _ = writeln!(text, "        protection: ({})", protection.join(", "));
        zone.counters.iter().for_each(|(name, nr)| _ = writeln!(text, "      {name:<12} {nr}"));
        text.push_str("  pagesets\n  node_unreclaimable:  0\n  start_pfn:           0\n");
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use highorder_kernelfs::{Buddyinfo, Meminfo, Pagetypeinfo, TextFile, Vmstat, Zoneinfo};

    /// A state of one zone.
    pub(crate) fn state() -> State {
        let named = |values: &[(&str, u64)]| {
            values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
        };
        let mut state = State {
            counters: named(&[("compact_stall", 7), ("nr_free_pages", 1234)]),
            meminfo: named(&[("Active(anon)", 16), ("HugePages_Total", 3), ("MemFree", 4936)]),
            pageblock_order: Some(9),
            ..State::default()
        };
        state.nodes.insert(0, named(&[("nr_anon_pages", 4)]));
        let zone = state.zone_mut(0, "DMA32");
        zone.pages = named(&[("free", 1234), ("min", 11), ("low", 14), ("high", 17)]);
        zone.protection_pages = vec![0, 0, 8];
        zone.counters = named(&[("nr_free_pages", 1234)]);
        zone.free_blocks = vec![2, 1, 0, 5];
        zone.free_blocks_by_migratetype =
            [("Movable", vec![1, 1, 0, 5]), ("Unmovable", vec![1, 0, 0, 0])]
                .map(|(of, counts)| (of.to_owned(), counts))
                .into();
        zone.pageblocks = named(&[("Movable", 9), ("Unmovable", 2)]);
        state
    }

    #[test]
    fn each_file_is_read_back_as_what_the_state_says() {
        let texts = of_state(&state());
        let vmstat = Vmstat::parse("vmstat", &texts["vmstat"]).expect("vmstat");
        assert_eq!(vmstat.get("compact_stall"), Some(7));
        let meminfo = Meminfo::parse("meminfo", &texts["meminfo"]).expect("meminfo");
        assert_eq!(meminfo.get("Active(anon)"), Some(16));
        let buddyinfo = Buddyinfo::parse("buddyinfo", &texts["buddyinfo"]).expect("buddyinfo");
        assert_eq!(buddyinfo.zones[0].counts, [2, 1, 0, 5]);
        let types = Pagetypeinfo::parse("pagetypeinfo", &texts["pagetypeinfo"]).expect("types");
        assert_eq!(types.nr_blocks(0, "DMA32", "Unmovable"), Some(2));
        let zoneinfo = Zoneinfo::parse("zoneinfo", &texts["zoneinfo"]).expect("zoneinfo");
        let zone = zoneinfo.zone(0, "DMA32").expect("the zone");
        assert_eq!((zone.watermark("low"), zone.pages.get("free")), (Some(14), Some(1234)));
        assert_eq!(zone.protection.pages, [0, 0, 8]);
        assert_eq!(zoneinfo.node_stats(0).and_then(|stats| stats.get("nr_anon_pages")), Some(4));
    }

    #[test]
    fn what_was_not_told_has_no_file() {
        assert!(of_state(&State::default()).is_empty());
    }
}
