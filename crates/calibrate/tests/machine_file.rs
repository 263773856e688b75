//! Machine files of machines found: their text reads back as what was found and measured.

use highorder_calibrate::{Disk, Found, Measured, Place, Times, machine_file};
use highorder_kernels::machine;
use highorder_sim::Machine;
use highorder_sim::device::DeviceKind;
use highorder_words::NodeId;
use std::path::{Path, PathBuf};

/// A folder with `proc` and `sys` of a machine of two nodes: 2 GiB of ZONE_DMA32 and 2 GiB of Normal, and
/// 4 GiB of Normal.
fn two_nodes() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let zone = |node, name, start, present: u64, managed| {
        format!(
            "Node {node}, zone {name:>8}\n  pages free     1\n        min      1\n        low      1\n        \
             high     1\n        spanned  {present}\n        present  {present}\n        managed  {managed}\n        \
             protection: (0, 0, 0, 0)\n      nr_free_pages 1\n  pagesets\n  node_unreclaimable:  0\n  \
             start_pfn:           {start}\n"
        )
    };
    // Of node 0's 4 GiB and 16 MiB, the map of pages takes a 64th: 64 MiB and a bit; 36 more are kept.
    let zones = [
        zone(0, "DMA", 1, 3_998, 3_840),
        zone(0, "DMA32", 4_096, 524_288, 524_288 - 37 * 256),
        zone(0, "Normal", 1_048_576, 524_288, 524_288 - 100 * 256),
        zone(1, "Normal", 1_572_864, 1_048_576, 1_048_576 - 64 * 256),
    ];
    write("proc/zoneinfo", &zones.concat());
    write("proc/cpuinfo", "processor\t: 0\nmodel name\t: A \"Fast\" One\n");
    write("proc/sys/kernel/osrelease", "6.12.1\n");
    write(
        "proc/swaps",
        "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
         /dev/vda2                               partition\t2097152\t\t0\t\t10\n\
         /dev/zram0                              partition\t1048576\t\t0\t\t5\n",
    );
    for (node, cpus, distance) in [(0, "0-1,4", "10 21"), (1, "2-3", "21 10")] {
        write(&format!("sys/devices/system/node/node{node}/cpulist"), &format!("{cpus}\n"));
        write(&format!("sys/devices/system/node/node{node}/distance"), &format!("{distance}\n"));
    }
    write("sys/devices/pci/block/vda/vda2/partition", "2\n");
    write("sys/devices/pci/block/vda/vda2/start", "2097152\n");
    let class = root.path().join("sys/class/block");
    std::fs::create_dir_all(&class).unwrap();
    let device = root.path().join("sys/devices/pci/block/vda/vda2");
    std::os::unix::fs::symlink(device, class.join("vda2")).unwrap();
    root
}

fn disk(name: &str, is_rotating: bool, single_ns: f64) -> Disk {
    let read = Times { single_ns, shared_ns: 15_000.0, bytes_per_second: 409.6e6 };
    Disk {
        name: name.to_owned(),
        capacity_bytes: 100_500_000_000,
        nr_requests: 256,
        max_request_kib: 1280,
        max_segments: 254,
        hardware_queues: 2,
        is_rotating,
        says_rotational: is_rotating,
        read,
        write: Times { single_ns: single_ns / 2.0, ..read },
        place: Place::Folder(PathBuf::from("/mnt/\"quoted\"")),
    }
}

/// The costs of a machine file that comes with the program, as if they had been measured.
fn costs() -> Vec<Measured> {
    let costs = machine::load("one-node-8g").unwrap().costs;
    let measured = |(name, cost): (&'static str, &highorder_sim::Cost)| Measured {
        name,
        ns: cost.picoseconds() as f64 / 1000.0,
        source: format!("measured: \"{name}\""),
    };
    costs.by_name().into_iter().map(measured).collect()
}

fn read_back(found: &Found, disks: &[Disk]) -> Machine {
    let text = machine_file("mine", found, disks, &costs());
    machine::parse(Path::new("mine.toml"), &text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn costs_and_their_sources_read_back_as_they_were() {
    let root = two_nodes();
    let machine = read_back(&Found::read(root.path()).unwrap(), &[]);
    let expected = machine::load("one-node-8g").unwrap().costs;
    for ((name, cost), (_, before)) in machine.costs.by_name().into_iter().zip(expected.by_name()) {
        assert_eq!(cost.picoseconds(), before.picoseconds(), "{name}");
        assert_eq!(cost.source, format!("measured: \"{name}\""));
    }
}

#[test]
fn nodes_zones_and_what_is_reserved_read_back_as_the_kernel_has_them() {
    let root = two_nodes();
    let found = Found::read(root.path()).unwrap();
    assert_eq!(found.nodes[0].cpus, [0, 1, 4]);
    let machine = read_back(&found, &[]);
    assert_eq!(machine.description, "mine: 5 x A \"Fast\" One, 8208 MiB in 2 nodes");
    assert_eq!(machine.cpu_nodes(), [0, 0, 0, 1, 1].map(NodeId));
    let distances: Vec<_> = machine.nodes.iter().map(|node| node.distances.clone()).collect();
    assert_eq!(distances, [[10, 21], [21, 10]]);
    let memory = machine.memory();
    memory.check().unwrap();
    let zones: Vec<_> = memory
        .nodes
        .iter()
        .flat_map(|node| &node.zones)
        .map(|zone| (zone.present_pages, zone.managed_pages))
        .collect();
    assert_eq!(zones[1], (524_288, 524_288 - 37 * 256));
    // To the MiB, as machine files have what is reserved; the map of pages has a part of one.
    let [first, second] = [zones[2], zones[3]];
    assert_eq!((first.0, second.0), (524_288, 1_048_576));
    assert!(first.1.abs_diff(524_288 - 100 * 256) < 256, "{first:?}");
    assert_eq!(second.1, 1_048_576 - 64 * 256);
}

#[test]
fn a_flash_disk_and_the_swap_on_it_read_back_and_other_swap_is_named() {
    let root = two_nodes();
    let found = Found::read(root.path()).unwrap();
    let disks = [disk("vda", false, 100_000.0)];
    let text = machine_file("mine", &found, &disks, &costs());
    assert!(text.contains("# Left out: swap on /dev/zram0, of no disk that is known"), "{text}");
    let machine = read_back(&found, &disks);
    assert_eq!(machine.swap.len(), 1);
    assert_eq!((machine.swap[0].offset_bytes, machine.swap[0].bytes), (1 << 30, 2 << 30));
    let disk = &machine.disks[0];
    assert_eq!((disk.name.as_str(), disk.capacity_bytes), ("vda", 100_000_000_000));
    assert_eq!((disk.nr_requests, disk.max_request_bytes), (256, 1280 * 1024));
    let DeviceKind::Flash { read, write, .. } = disk.kind else { panic!("{:?}", disk.kind) };
    // 4096 B at 409.6 MB/s are 10 us, and 15 with the command: 100 and 50 are 85 and 35 more, of which
    // block_request and system_call take 15.603.
    let times = [read.access.0, read.command.0, write.access.0, write.command.0];
    assert_eq!(times, [69_397, 5_000, 19_397, 5_000]);
    assert_eq!(read.bandwidth, 409_600_000);
}

#[test]
fn without_its_disk_no_swap_is_part_of_the_machine() {
    let root = two_nodes();
    let found = Found::read(root.path()).unwrap();
    assert_eq!(found.swap[0].disk.as_deref(), Some("vda"));
    assert!(read_back(&found, &[]).swap.is_empty());
    assert!(read_back(&found, &[disk("sdb", false, 1.0)]).swap.is_empty());
}

#[test]
fn a_rotating_disk_seeks_for_what_is_beyond_half_a_turn() {
    let root = two_nodes();
    let found = Found::read(root.path()).unwrap();
    let machine = read_back(&found, &[disk("sda", true, 12_000_000.0)]);
    let DeviceKind::Rotating { turn, seek_average, .. } = machine.disks[0].kind else {
        panic!("{:?}", machine.disks[0].kind)
    };
    assert_eq!(turn.0, 8_333_333);
    assert_eq!(seek_average.0, 12_000_000 - 15_603 - 4_166_667);
}

#[test]
fn this_machine_can_be_found() {
    match Found::read(Path::new("/")) {
        Ok(found) => {
            assert!(found.nr_cpus() > 0 && found.memory_mib() > 0, "{found:?}");
            read_back(&found, &[]);
        }
        Err(error) => eprintln!("SKIPPED: {error}"),
    }
}

#[test]
fn a_file_that_cannot_be_understood_is_named() {
    let root = two_nodes();
    let list = root.path().join("sys/devices/system/node/node1/cpulist");
    std::fs::write(&list, "2-x\n").unwrap();
    let told = Found::read(root.path()).unwrap_err().to_string();
    assert!(told.ends_with("cpulist:1: `2-x` in a list of CPUs, expected numbers such as 0-3"));
    std::fs::remove_file(root.path().join("proc/zoneinfo")).unwrap();
    assert!(Found::read(root.path()).unwrap_err().to_string().contains("zoneinfo"));
}
