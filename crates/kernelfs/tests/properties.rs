//! What holds for any input: tables written then read are equal, whatever parses writes back the
//! same, and nothing panics, be it cut short, garbled or random.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use highorder_files::limits::BLOCKS;
use highorder_input::InputError;
use highorder_kernelfs::trace::{Event, Form, Item, Line, Tgid};
use highorder_kernelfs::{
    BlockRow, Buddyinfo, BuddyinfoZone, Counters, Extfrag, ExtfragZone, FreeCount, FreeRow,
    GfpFlags, Kpagecount, Kpageflags, Meminfo, PageFlags, Pageset, Pagetypeinfo, PagetypeinfoNode,
    Protection, Setting, Settings, SlabCache, Slabinfo, Spacing, SwapArea, Swaps, TextFile, Vmstat,
    Zoneinfo, ZoneinfoForm, ZoneinfoZone, read_bytes,
};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

/// One parser: `Ok` holds the text that was read, written again.
type Parse = fn(&[u8]) -> Result<Vec<u8>, InputError>;

fn table<T: TextFile>(text: &[u8]) -> Result<Vec<u8>, InputError> {
    T::parse("input", text).map(|table| table.to_text().into_bytes())
}

/// Every text format, by the name its files have.
const FORMATS: &[(&str, Parse)] = &[
    ("vmstat", table::<Vmstat>),
    ("buddyinfo", table::<Buddyinfo>),
    ("pagetypeinfo", table::<Pagetypeinfo>),
    ("zoneinfo", table::<Zoneinfo>),
    ("meminfo", table::<Meminfo>),
    ("slabinfo", table::<Slabinfo>),
    ("swaps", table::<Swaps>),
    ("settings", table::<Settings>),
    ("setting", table::<Setting>),
    ("extfrag_index", table::<Extfrag>),
    ("unusable_index", table::<Extfrag>),
];

fn samples(name: &str) -> Vec<Vec<u8>> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
    let mut found = Vec::new();
    for folder in ["proc-recorded", "proc-by-hand"] {
        let mut folders: Vec<PathBuf> = std::fs::read_dir(data.join(folder))
            .unwrap()
            .map(|entry| entry.unwrap().path().join(name))
            .filter(|path| path.exists())
            .collect();
        folders.sort();
        found.extend(folders.iter().map(|path| read_bytes(path).unwrap()));
    }
    found
}

#[test]
fn every_prefix_of_a_file_is_read_whole_or_refused() {
    for (name, parse) in FORMATS {
        for sample in samples(name) {
            // Every byte near the ends, where headings and last lines are; a prime step between.
            let near = 600.min(sample.len());
            let ends = (0..near)
                .chain((near..sample.len() - near.min(sample.len())).step_by(37))
                .chain(sample.len().saturating_sub(near)..sample.len());
            for end in ends {
                let prefix = &sample[..end];
                match parse(prefix) {
                    Ok(written) => assert!(written == prefix, "{name} cut at {end} changed"),
                    Err(error) => assert!(!error.problems().is_empty(), "{name} at {end}: {error}"),
                }
                let is_cut_inside_a_line = end > 0 && prefix[end - 1] != b'\n';
                if is_cut_inside_a_line {
                    assert!(parse(prefix).is_err(), "{name} cut inside a line at {end} is read");
                }
            }
        }
    }
}

#[test]
fn every_prefix_of_a_trace_line_writes_back_the_same_or_is_refused() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
    let mut lines = 0;
    for path in [
        "proc-recorded/6.12-trace/trace.fragslab.txt",
        "proc-by-hand/trace/trace.tgid.txt",
        "proc-by-hand/trace/trace.4-flags.txt",
        "proc-by-hand/trace/trace.trace-cmd.txt",
    ] {
        let text = read_bytes(data.join(path)).unwrap();
        for line in text.split(|&b| b == b'\n').take(300) {
            lines += 1;
            for end in 0..=line.len() {
                item_writes_back(&line[..end]);
            }
        }
    }
    assert!(lines > 400, "{lines}");
}

#[track_caller]
fn item_writes_back(text: &[u8]) {
    let Ok(item) = Item::parse(text) else { return };
    let mut written = Vec::new();
    item.write(&mut written);
    assert_eq!(String::from_utf8_lossy(&written), String::from_utf8_lossy(text), "{item:?}");
    if let Item::Event(line) = item
        && let Ok(event) = line.parse_event()
    {
        let mut args = Vec::new();
        event.write_args(&mut args);
        assert_eq!(String::from_utf8_lossy(&args), String::from_utf8_lossy(line.args), "{event:?}");
    }
}

#[track_caller]
fn reads_back<T: TextFile + PartialEq + Debug>(table: &T) {
    let text = table.to_text();
    match T::parse("written", text.as_bytes()) {
        Ok(read) => assert_eq!(&read, table, "{text}"),
        Err(error) => panic!("{error}\n{text}"),
    }
}

fn name() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9_]{0,30}"
}

fn zone_name() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("DMA".to_string()),
        Just("DMA32".to_string()),
        Just("Normal".to_string()),
        Just("Movable".to_string()),
        "[A-Z][A-Za-z0-9]{0,12}"
    ]
}

fn value() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0u64), 0..1000u64, 0..10_000_000_000u64, any::<u64>()]
}

/// Free blocks of an order, up to the limit of what a reader takes.
fn blocks() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0u64), 0..1000u64, 0..=BLOCKS.most]
}

fn counters(sizes: std::ops::Range<usize>) -> impl Strategy<Value = Counters> {
    btree_map(name(), value(), sizes).prop_map(|map| map.into_iter().collect())
}

fn zones() -> impl Strategy<Value = Vec<(u32, String)>> {
    vec((0..9u32, zone_name()), 1..6)
}

prop_compose! {
    fn zoneinfo_zone()(
        node in 0..4u32,
        zone in zone_name(),
        node_stats in proptest::option::of(counters(1..5)),
        marks in vec(value(), 6),
        protection in vec(value(), 1..6),
        own in counters(0..5),
        sets in proptest::option::of(vec((vec(value(), 5), proptest::option::of(value())), 0..4)),
        high_min in any::<bool>(),
    ) -> ZoneinfoZone {
        let names = ["free", "boost", "min", "low", "high", "promo"];
        let labels = ["count", "high", "batch", "high_min", "high_max"];
        let labels = if high_min { &labels[..] } else { &labels[..3] };
        let mut counters = own;
        counters.set("nr_free_pages", marks[0]);
        let pagesets: Vec<Pageset> = sets
            .unwrap_or_default()
            .into_iter()
            .zip(0..)
            .map(|((values, vm_stats_threshold), cpu)| Pageset {
                cpu,
                fields: labels.iter().zip(values).map(|(name, v)| (*name, v)).collect(),
                vm_stats_threshold,
            })
            .collect();
        ZoneinfoZone {
            node,
            zone,
            node_stats,
            pages: names.into_iter().zip(marks).collect(),
            protection: Protection { pages: protection, spacing: Spacing::KERNEL },
            counters,
            pagesets: Some(pagesets),
            trailing: [("node_unreclaimable", 0), ("start_pfn", 4096)].into_iter().collect(),
        }
    }
}

proptest! {
    #[test]
    fn a_written_vmstat_reads_back(counters in counters(1..40)) {
        reads_back(&Vmstat { counters });
    }

    #[test]
    fn a_written_meminfo_reads_back(fields in btree_map("[A-Z][A-Za-z_()]{0,22}", value(), 1..20)) {
        let mut meminfo = Meminfo::default();
        for (name, value) in fields {
            meminfo.set(&name, value);
        }
        meminfo.set("HugePages_Total", 3);
        reads_back(&meminfo);
    }

    #[test]
    fn a_written_buddyinfo_reads_back(zones in zones(), counts in vec(vec(blocks(), 9..12), 6), orders in 1..9usize) {
        let zones = zones
            .into_iter()
            .zip(counts)
            .map(|((node, zone), counts)| {
                BuddyinfoZone { node, zone, counts: counts[..orders].to_vec(), spacing: Spacing::KERNEL }
            })
            .collect();
        reads_back(&Buddyinfo { zones });
    }

    #[test]
    fn a_written_extfrag_index_reads_back(zones in zones(), indices in vec(0..1001i32, 11), two in any::<bool>()) {
        let zones = zones
            .into_iter()
            .map(|(node, zone)| {
                let mut index_milli = indices.clone();
                index_milli[0] = if two { -1000 } else { 0 };
                ExtfragZone { node, zone, index_milli, spacing: Spacing::KERNEL }
            })
            .collect();
        reads_back(&Extfrag { whole_width: if two { 2 } else { 1 }, zones });
    }

    #[test]
    fn a_written_pagetypeinfo_reads_back(
        zones in zones(),
        counts in vec((blocks(), any::<bool>()), 11),
        types in vec("[A-Z][A-Za-z]{1,14}", 1..7),
        has_mixed in any::<bool>(),
        nodes in 1..3usize,
    ) {
        let counts: Vec<FreeCount> = counts
            .into_iter()
            .map(|(blocks, is_lower_bound)| FreeCount { blocks, is_lower_bound })
            .collect();
        let free = zones
            .iter()
            .flat_map(|(node, zone)| types.iter().map(|migratetype| FreeRow {
                node: *node,
                zone: zone.clone(),
                migratetype: migratetype.clone(),
                counts: counts.clone(),
                spacing: Spacing::KERNEL,
            }))
            .collect();
        let blocks: Vec<BlockRow> = zones
            .iter()
            .map(|(node, zone)| BlockRow {
                node: *node,
                zone: zone.clone(),
                counts: counts[..types.len()].iter().map(|count| count.blocks).collect(),
                spacing: Spacing::KERNEL,
            })
            .collect();
        let node = PagetypeinfoNode {
            page_block_order: 9,
            pages_per_block: 512,
            nr_orders: 11,
            free,
            migratetypes: types,
            mixed: has_mixed.then(|| blocks.clone()),
            blocks,
            heading_spacing: Default::default(),
        };
        reads_back(&Pagetypeinfo { nodes: vec![node; nodes] });
    }

    #[test]
    fn a_written_zoneinfo_reads_back(
        zones in vec(zoneinfo_zone(), 1..4),
        counter_indent in prop_oneof![Just(4usize), Just(6)],
        is_protection_after_counters in any::<bool>(),
    ) {
        reads_back(&Zoneinfo { form: ZoneinfoForm { counter_indent, is_protection_after_counters }, zones });
    }

    #[test]
    fn a_written_slabinfo_reads_back(rows in vec((name(), vec(value(), 8), vec(value(), 3)), 0..8)) {
        let caches = rows
            .into_iter()
            .map(|(name, v, tunables)| SlabCache {
                name,
                active_objs: v[0],
                num_objs: v[1],
                objsize: v[2],
                objperslab: v[3],
                pagesperslab: v[4],
                tunables: [tunables[0], tunables[1], tunables[2]],
                active_slabs: v[5],
                num_slabs: v[6],
                sharedavail: v[7],
                statistics: String::new(),
                spacing: Spacing::KERNEL,
            })
            .collect();
        reads_back(&Slabinfo { caches, ..Slabinfo::default() });
    }

    #[test]
    fn written_swaps_read_back(rows in vec(("/[a-z/]{1,60}", any::<bool>(), value(), value(), any::<i16>()), 0..4)) {
        let areas = rows
            .into_iter()
            .map(|(filename, is_file, size_kb, used_kb, priority)| SwapArea {
                filename,
                kind: if is_file { "file" } else { "partition" }.into(),
                size_kb,
                used_kb,
                priority: priority.into(),
                spacing: Spacing::KERNEL,
            })
            .collect();
        reads_back(&Swaps { areas, ..Swaps::default() });
    }

    #[test]
    fn a_setting_is_its_text(text in "[-0-9a-fx\\[\\] \ta-z]{0,30}") {
        prop_assert_eq!(Setting::from_value(&text).to_string(), text);
    }

    #[test]
    fn page_flags_and_counts_read_back(entries in vec(any::<u64>(), 0..50), cut in 1..8usize) {
        let flags = Kpageflags { flags: entries.iter().copied().map(PageFlags::from_bits_retain).collect() };
        let counts = Kpagecount { counts: entries };
        let bytes = flags.to_bytes();
        prop_assert_eq!(&Kpageflags::parse("f", &bytes).unwrap(), &flags);
        prop_assert_eq!(&Kpagecount::parse("c", &bytes).unwrap(), &counts);
        if bytes.len() > cut {
            prop_assert!(Kpageflags::parse("f", &bytes[..bytes.len() - cut]).is_err());
        }
    }

    #[test]
    fn gfp_flags_are_their_text(picked in vec(0..ALL_GFP.len(), 0..12)) {
        let mut flags = GfpFlags::default();
        for i in picked {
            flags = flags | ALL_GFP[i];
        }
        prop_assert_eq!(flags.to_string().parse::<GfpFlags>(), Ok(flags));
    }

    #[test]
    fn a_written_trace_line_reads_back(
        comm in "[a-z:/<>._-]{1,15}",
        pid in 0..4_194_304u32,
        cpu in 0..5000u32,
        tgid in proptest::option::of(0..4_194_304u32),
        has_flags in any::<bool>(),
        micros in 0..10_000_000_000_000u64,
        order in 0..11u32,
        pfn in any::<u64>(),
    ) {
        let args = format!("page={pfn:016x} pfn={pfn:#x} order={order}");
        let line = Line {
            comm: comm.as_bytes(),
            pid,
            tgid: tgid.map_or(Tgid::NoColumn, Tgid::Known),
            cpu,
            flags: if has_flags { b"d..2." } else { b"" },
            timestamp_ns: micros * 1000,
            subsystem: b"",
            event: b"mm_page_free",
            args: args.as_bytes(),
            form: Form::default(),
        };
        let mut text = Vec::new();
        line.write(&mut text);
        let read = Line::parse(&text);
        prop_assert_eq!(read, Ok(line), "{}", String::from_utf8_lossy(&text));
        let Ok(Event::MmPageFree(free)) = line.parse_event() else { panic!("{args}") };
        prop_assert_eq!((free.pfn.map(|pfn| pfn.value()), free.order), (Some(pfn), order));
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..300)) {
        for (name, parse) in FORMATS {
            if let Ok(written) = parse(&bytes) {
                prop_assert_eq!(&written, &bytes, "{}", name);
            }
        }
        item_writes_back(&bytes);
    }

    #[test]
    fn random_words_never_panic(text in "([A-Z]?[a-z_]{1,6}|[0-9]{1,3}|[-:,.()\\[\\]~=>#]|  ?|\t|\n|0x|Node|zone|cpu:){0,60}") {
        for (name, parse) in FORMATS {
            if let Ok(written) = parse(text.as_bytes()) {
                prop_assert_eq!(String::from_utf8_lossy(&written), text.as_str(), "{}", name);
            }
        }
        for line in text.split('\n') {
            item_writes_back(line.as_bytes());
        }
    }
}

/// A few flags that no name stands for together with others, and some that one does.
const ALL_GFP: [GfpFlags; 12] = [
    GfpFlags::DMA32,
    GfpFlags::HIGHMEM,
    GfpFlags::MOVABLE,
    GfpFlags::HIGH,
    GfpFlags::IO,
    GfpFlags::FS,
    GfpFlags::ZERO,
    GfpFlags::DIRECT_RECLAIM,
    GfpFlags::KSWAPD_RECLAIM,
    GfpFlags::NOWARN,
    GfpFlags::COMP,
    GfpFlags::THISNODE,
];

/// Bytes to put in place of another, chosen to hit what the parsers look for.
const GARBLE: &[u8] = b" \t\n0919-:,.()[]=>#xN\r\0\xff";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_garbled_file_writes_back_the_same_or_is_refused(
        place in any::<prop::sample::Index>(),
        which in any::<prop::sample::Index>(),
        with in prop::sample::select(GARBLE),
        how in 0..3,
    ) {
        for (name, parse) in FORMATS {
            let samples = samples(name);
            if samples.is_empty() {
                continue;
            }
            let mut text = samples[which.index(samples.len())].clone();
            let at = place.index(text.len());
            match how {
                0 => text[at] = with,
                1 => text.insert(at, with),
                _ => drop(text.remove(at)),
            }
            if let Ok(written) = parse(&text) {
                prop_assert_eq!(
                    String::from_utf8_lossy(&written), String::from_utf8_lossy(&text), "{}", name
                );
            }
        }
    }

    #[test]
    fn a_garbled_trace_line_writes_back_the_same_or_is_refused(
        place in any::<prop::sample::Index>(),
        with in prop::sample::select(GARBLE),
        how in 0..3,
    ) {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/proc-by-hand/trace");
        for file in ["trace.tgid.txt", "trace.4-flags.txt"] {
            for line in read_bytes(data.join(file)).unwrap().split(|&b| b == b'\n') {
                let mut line = line.to_vec();
                if line.is_empty() {
                    continue;
                }
                let at = place.index(line.len());
                match how {
                    0 => line[at] = with,
                    1 => line.insert(at, with),
                    _ => drop(line.remove(at)),
                }
                item_writes_back(&line);
            }
        }
    }
}
