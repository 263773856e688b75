//! Machine files: what they say, and how bad ones are refused.

use highorder_kernels::machine::{self, BUILT_IN};
use highorder_mm::types::{NodeId, Pfn, ZoneKind};
use highorder_sim::Machine;
use highorder_sim::{DeviceId, DeviceKind, Ns};
use std::path::Path;

const GOOD: &str = include_str!("../../../machines/two-node-64g.toml");

/// The message for the two-node machine with one thing replaced.
fn refusal(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    let text = GOOD.replacen(from, to, 1);
    machine::parse(Path::new("mine.toml"), &text).unwrap_err().to_string()
}

/// The line of the first place of a text in the two-node machine's file.
fn line_of(text: &str) -> usize {
    GOOD[..GOOD.find(text).unwrap()].matches('\n').count() + 1
}

#[test]
fn every_machine_that_comes_with_the_program_loads_and_names_its_sources() {
    for (name, _) in BUILT_IN {
        let machine = machine::load(name).unwrap();
        assert_eq!(machine.name, *name);
        for (cost, value) in machine.costs.by_name() {
            assert!(value.picoseconds() > 0, "{name}: {cost} is free");
            assert!(value.source.len() > 10, "{name}: {cost}");
        }
    }
}

#[test]
fn a_machine_is_loaded_from_a_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    std::fs::write(&path, GOOD).unwrap();
    let machine = machine::load(path.to_str().unwrap()).unwrap();
    assert_eq!(machine.name, "mine");
    let built_in = machine::load("two-node-64g").unwrap();
    assert_eq!(Machine { name: built_in.name.clone(), ..machine }, built_in);
}

#[test]
fn two_nodes_have_the_zones_that_x86_64_gives_them() {
    let machine = machine::load("two-node-64g").unwrap();
    assert_eq!(machine.memory_bytes(), 64 << 30);
    let memory = machine.memory();
    assert_eq!(memory.cpu_nodes.len(), 48);
    assert_eq!((memory.cpu_nodes[23], memory.cpu_nodes[24]), (NodeId(0), NodeId(1)));
    assert_eq!(memory.nodes[0].distances, [10, 21]);
    // 64 GiB and a hole of 1 GiB, in pages.
    assert_eq!(memory.nr_frames, 65 << 18);
    let zones = |node: usize| -> Vec<_> {
        memory.nodes[node].zones.iter().map(|z| (z.kind, z.start, z.spanned_pages)).collect()
    };
    assert_eq!(
        zones(0),
        [
            (ZoneKind::Dma, Pfn(1), 4095),
            // From 16 MiB to 3 GiB, then from 4 GiB to 33 GiB.
            (ZoneKind::Dma32, Pfn(4096), (3 << 18) - 4096),
            (ZoneKind::Normal, Pfn(4 << 18), 29 << 18),
        ]
    );
    assert_eq!(zones(1), [(ZoneKind::Normal, Pfn(33 << 18), 32 << 18)]);
    let managed: Vec<u64> =
        memory.nodes.iter().flat_map(|n| &n.zones).map(|z| z.managed_pages).collect();
    // The map of pages of a node of 32 GiB takes 512 MiB; 37 MiB and 64 MiB go to the kernel.
    let mib = 256;
    assert_eq!(managed[0], 3840);
    assert_eq!(managed[1], (3 << 18) - 4096 - 37 * mib);
    assert_eq!(managed[2], (29 << 18) - (512 + 64) * mib);
    assert_eq!(managed[3], (32 << 18) - 512 * mib);
}

#[test]
fn one_node_of_8_gib_ends_in_normal() {
    let machine = machine::load("one-node-8g").unwrap();
    let zones = &machine.memory().nodes[0].zones;
    assert_eq!(zones.len(), 3);
    assert_eq!((zones[2].start, zones[2].spanned_pages), (Pfn(4 << 18), 5 << 18));
    assert_eq!(machine.swap[0].device, DeviceId(0));
    assert_eq!(machine.swap[0].bytes, 8 << 30);
}

#[test]
fn costs_are_exact_to_the_picosecond() {
    let machine = machine::load("two-node-64g").unwrap();
    let scan = &machine.costs.pfn_scan;
    assert_eq!((scan.once(), scan.times(2), scan.times(1001)), (Ns(2), Ns(5), Ns(2502)));
    let spec = machine.sim_spec();
    assert_eq!(spec.sched.context_switch, machine.costs.context_switch.once());
    assert!(matches!(spec.devices[0].kind, DeviceKind::Rotating { turn: Ns(8_333_333), .. }));
}

#[test]
fn a_misspelt_key_is_named_with_its_line_and_the_keys_there_are() {
    let message = refusal("pfn_scan =", "pfn_scam =");
    let line = line_of("pfn_scan =");
    assert!(
        message.starts_with(&format!("mine.toml:{line}: unknown field `pfn_scam`")),
        "{message}"
    );
    assert!(message.contains("`pfn_scan`"), "{message}");
}

#[test]
fn a_missing_cost_is_named() {
    let line = GOOD.lines().find(|line| line.starts_with("list_op")).unwrap();
    let message = refusal(line, "");
    assert!(message.contains("`costs.list_op` is set neither"), "{message}");
}

#[test]
fn a_cost_without_a_source_is_refused() {
    let message = refusal("measured: four dependent loads, chased over 512 KiB", " ");
    let line = line_of("page_table_walk =");
    let expected = format!("mine.toml:{line}: `source` is empty, expected where it is from");
    assert_eq!(message, expected);
}

#[test]
fn impossible_values_say_what_was_found_and_what_was_expected() {
    for (from, to, line, expected) in [
        ("memory_mib = 32768", "memory_mib = 64", "memory_mib = 32768", "at least 133"),
        ("cpus = 24", "cpus = 9999", "cpus = 24", "`cpus` is 9999, expected 0..=256"),
        ("[10, 21]", "[10]", "[10, 21]", "has 1 entries, expected 2"),
        ("[10, 21]", "[10, 10]", "[10, 21]", "node 0 to node 1 is 10, expected 11..=254"),
        ("[10, 21]", "[20, 21]", "[10, 21]", "node 0 to node 0 is 20, expected 10..=10"),
        ("ns = 440,", "ns = -1,", "ns = 440,", "costs -1 ns, expected 0..=1000000000"),
        ("ns = 440,", "ns = nan,", "ns = 440,", "costs NaN ns"),
        ("latency_ns = 24_000_000", "latency_ns = 24", "latency_ns = 24", "expected 100000.."),
        ("seek_average_ns = 8_500_000", "seek_average_ns = 85", "seek_average_ns", "at least"),
        ("disk = \"sda\"", "disk = \"sdc\"", "disk = \"sda\"", "no disk `sdc`, expected"),
        ("size_mib = 1024", "size_mib = 9000000", "size_mib = 1024", "where `sda` ends"),
        ("name = \"sdb\"", "name = \"sda\"", "name = \"sdb\"", "a disk `sda` already"),
        ("device_hole_mib = 1024", "device_hole_mib = 4090", "device_hole_mib", "0..=4079"),
    ] {
        let message = refusal(from, to);
        let place = format!("mine.toml:{}: ", line_of(line));
        assert!(message.starts_with(&place), "{message}\nis not at {place}");
        assert!(message.contains(expected), "{message}\nlacks {expected}");
    }
}

#[test]
fn of_a_memory_that_no_node_can_have_one_thing_is_said() {
    // 100 TiB: 100 GiB, written in KiB.
    let told = refusal("memory_mib = 32768", "memory_mib = 104857600");
    let expected = format!(
        "mine.toml:{}: `memory_mib` is 104857600, expected 16..=4194303 MiB",
        line_of("memory_mib = 32768")
    );
    assert_eq!(told, expected);
}

#[test]
fn impossible_pageblocks_in_use_are_refused() {
    let good = include_str!("../../../machines/one-node-8g-in-use.toml");
    let holes = "[22789, 18289, 9158, 4605, 1737, 1237, 645, 132, 0]";
    for (from, to, expected) in [
        (holes, "[1, 2]", "`holes_per_1000_blocks` has 2 entries, expected 9: orders 0 to 8"),
        (holes, "[0, 0, 0, 0, 0, 0, 0, 0, 1001]", "1001 of order 8, expected at most 1000"),
        (
            holes,
            "[256000, 0, 0, 0, 0, 0, 0, 0, 1000]",
            "512000 pages, expected fewer than the 512000",
        ),
        ("per_1000 = 40", "per_1000 = 0", "`unmovable_blocks_per_1000` is 0, expected 1..=500"),
    ] {
        assert!(good.contains(from), "{from}");
        let text = good.replacen(from, to, 1);
        let message = machine::parse(Path::new("mine.toml"), &text).unwrap_err().to_string();
        let line = text[..text.find(to).unwrap()].matches('\n').count() + 1;
        assert!(message.starts_with(&format!("mine.toml:{line}: ")), "{message}");
        assert!(message.contains(expected), "{message}\nlacks {expected}");
    }
}

#[test]
fn all_impossible_values_are_reported_at_once() {
    let text = GOOD.replace("cpus = 24", "cpus = 9999").replace("[10, 21]", "[10]");
    let message = machine::parse(Path::new("mine.toml"), &text).unwrap_err().to_string();
    assert_eq!(message.lines().count(), 3, "{message}");
    assert!(message.lines().all(|line| line.starts_with("mine.toml:")), "{message}");
}

#[test]
fn a_machine_without_cpus_or_nodes_is_refused() {
    let text = GOOD.replace("cpus = 24", "cpus = 0");
    let message = machine::parse(Path::new("mine.toml"), &text).unwrap_err().to_string();
    assert!(message.contains("no node has a CPU"), "{message}");
}

#[test]
fn a_disk_of_no_kind_is_refused() {
    let from = GOOD.find("[disk.flash]").unwrap();
    let to = GOOD.find("[[swap]]").unwrap();
    let text = format!("{}{}", &GOOD[..from], &GOOD[to..]);
    let message = machine::parse(Path::new("mine.toml"), &text).unwrap_err().to_string();
    assert!(message.contains("disk `sdb` has neither of `rotating` and `flash`"), "{message}");
}

#[test]
fn an_unknown_machine_is_refused_with_the_names_there_are() {
    let message = machine::load("three-node").unwrap_err().to_string();
    assert!(message.contains(" one-node-8g, ") && message.contains("two-node-64g"), "{message}");
    let message = machine::load("nowhere/mine.toml").unwrap_err().to_string();
    assert!(message.starts_with("nowhere/mine.toml: cannot read"), "{message}");
}

#[test]
fn a_scaled_machine_keeps_its_cpus_and_the_shares_of_its_zones() {
    let whole = machine::load("two-node-64g").unwrap();
    let scaled = whole.scaled(1, 16).unwrap();
    assert_eq!(scaled.memory_bytes(), 4 << 30);
    assert_eq!(scaled.cpu_nodes(), whole.cpu_nodes());
    assert_eq!((&scaled.disks, &scaled.costs), (&whole.disks, &whole.costs));
    assert_eq!(scaled.swap[0].bytes, 64 << 20);
    assert_eq!(scaled.swap[0].offset_bytes, whole.swap[0].offset_bytes);
    assert_eq!(scaled.reserved.high_bytes, 4 << 20);
    let memory = scaled.memory();
    memory.check().unwrap();
    let zones = |node: usize| -> Vec<_> {
        memory.nodes[node].zones.iter().map(|z| (z.kind, z.start, z.end())).collect()
    };
    // 1/16 of 3 GiB of ZONE_DMA32 is 192 MiB; the hole ends at 256 MiB; pages of 4 KiB.
    assert_eq!(
        zones(0),
        [
            (ZoneKind::Dma, Pfn(1), 16 << 8),
            (ZoneKind::Dma32, Pfn(16 << 8), 192 << 8),
            (ZoneKind::Normal, Pfn(256 << 8), (2048 + 64) << 8),
        ]
    );
    assert_eq!(zones(1), [(ZoneKind::Normal, Pfn((2048 + 64) << 8), (4096 + 64) << 8)]);
}

#[test]
fn scale_1_changes_nothing() {
    let whole = machine::load("one-node-8g").unwrap();
    assert_eq!(whole.scaled(1, 1).unwrap(), whole);
    assert_eq!(whole.scaled(16, 16).unwrap(), whole);
}

#[test]
fn a_scale_that_leaves_no_machine_is_refused() {
    let machine = machine::load("two-node-64g").unwrap();
    let refused = |n, d| machine.scaled(n, d).unwrap_err().to_string();
    assert_eq!(
        refused(1, 3),
        "scale 1/3 of two-node-64g: node 0 has 10922.67 MiB, expected whole MiB"
    );
    assert_eq!(
        refused(1, 256),
        "scale 1/256 of two-node-64g: memory below the hole for devices ends at 12 MiB, expected \
         more than the 16 of ZONE_DMA"
    );
    assert_eq!(refused(0, 1), "scale 0/1, expected more than 0 and at most 1");
    assert_eq!(refused(2, 1), "scale 2/1, expected more than 0 and at most 1");
    let mut small = machine.clone();
    small.nodes[1].memory_bytes = 64 << 20;
    assert_eq!(
        small.scaled(1, 8).unwrap_err().to_string(),
        "scale 1/8 of two-node-64g: node 1 has 8 MiB, expected at least 16"
    );
    small = machine;
    small.swap[0].bytes = 8 << 20;
    assert_eq!(
        small.scaled(1, 16).unwrap_err().to_string(),
        "scale 1/16 of two-node-64g: swap area 0 has 512 KiB, expected at least 1024"
    );
}
