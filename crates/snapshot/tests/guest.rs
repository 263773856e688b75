//! Snapshots of real kernels: boots Debian's 6.1 and 6.12 under QEMU (software emulation only),
//! takes a snapshot each way inside, and compares them with each other and with the kernel's files.
//!
//! Needs what `tests/guest/setup.sh` gets; where something is missing the tests say SKIPPED and why.

use highorder_kernels::machine;
use highorder_mm::types::{Order, Pfn};
use highorder_real::testing::{cache, program};
use highorder_real::{Image, Limits, VmSpec, vm};
use highorder_sim::Machine;
use highorder_sim::machine::SwapArea;
use highorder_snapshot::{Exactness, FrameUse, Snapshot};
use highorder_system::Ns;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// A guest that takes longer than this hangs. Booting takes 10 to 30 s under emulation.
const GUEST_SECONDS_MAX: u64 = 400;

/// Memory of all nodes.
const MEMORY_BYTES: u64 = 512 << 20;
const SWAP_BYTES: u64 = 256 << 20;
const NR_CPUS: u32 = 2;

struct Guest {
    kernel: &'static str,
    nodes: u32,
    /// More of the kernel's command line.
    options: &'static str,
    verb: &'static str,
}

impl Guest {
    fn name(&self) -> String {
        format!("{} {}n {}", self.kernel, self.nodes, self.verb)
    }

    fn kernel_dir(&self) -> PathBuf {
        cache().join(self.kernel)
    }

    /// Boots the guest and returns the files it sent.
    fn run(&self, init: &Path) -> BTreeMap<String, Vec<u8>> {
        let sent = vm::ask(&self.spec(init), self.verb);
        sent.unwrap_or_else(|error| panic!("{}: {error}", self.name())).into_iter().collect()
    }

    fn spec(&self, init: &Path) -> VmSpec {
        let image = Image::Debian(self.kernel.to_owned());
        let mut spec = VmSpec::new(image, self.machine()).unwrap();
        spec.program = init.to_owned();
        spec.cache = cache();
        spec.options = self.options.to_owned();
        spec.limits = Limits::of(Ns::from_secs(GUEST_SECONDS_MAX), spec.limits.memory_bytes);
        spec
    }

    /// Its CPUs and its memory, shared by its nodes.
    fn machine(&self) -> Machine {
        let mut machine = machine::load("guest-tcg").unwrap();
        let mut node = machine.nodes[0].clone();
        node.memory_bytes = MEMORY_BYTES / u64::from(self.nodes);
        let cpus = NR_CPUS / self.nodes;
        let distance = |from, to| if from == to { 10 } else { 20 };
        machine.nodes.clear();
        for number in 0..self.nodes {
            node.cpus = number * cpus..(number + 1) * cpus;
            node.distances = (0..self.nodes).map(|to| distance(number, to)).collect();
            machine.nodes.push(node.clone());
        }
        let device = machine.swap[0].device;
        let area = SwapArea { device, offset_bytes: 0, bytes: SWAP_BYTES };
        machine.swap = if self.verb == "record-swap" { vec![area] } else { Vec::new() };
        machine
    }
}

/// Runs a guest if all it needs is there.
fn run(guest: &Guest) -> Option<BTreeMap<String, Vec<u8>>> {
    let skipped = |why: &str| {
        eprintln!("SKIPPED: {}: {why} (see tests/guest/setup.sh)", guest.name());
        None
    };
    if !guest.kernel_dir().join("vmlinuz").is_file() {
        return skipped(&format!("there is no {}/vmlinuz", guest.kernel_dir().display()));
    }
    match program("guest_init") {
        Ok(init) => Some(guest.run(&init)),
        Err(why) => skipped(&why),
    }
}

fn free_blocks(snapshot: &Snapshot) -> BTreeSet<(Pfn, Order)> {
    snapshot.zones.iter().flat_map(|z| &z.free).map(|b| (b.pfn, b.order)).collect()
}

fn check(guest: &Guest) {
    let Some(sent) = run(guest) else { return };
    let read = |name: &str| {
        let bytes = &sent[name];
        let snapshot = Snapshot::from_bytes(bytes, name).unwrap_or_else(|e| panic!("{e}"));
        println!("{} {name}: {} bytes, {:#?}", guest.name(), bytes.len(), snapshot.inferred);
        snapshot
    };
    let (lists, frames, counts) = (read("lists"), read("frames"), read("counts"));

    // An idle guest, copied until copies and the kernel's own files agree: what differs yet is our fault.
    assert_eq!(lists.exactness, Exactness::Lists);
    assert_eq!(lists.check(), Vec::<String>::new());
    let release = fs::read_to_string(guest.kernel_dir().join("release")).unwrap();
    assert_eq!(lists.kernel_release.as_deref(), Some(release.trim()));
    assert_eq!(lists.inferred, Vec::<String>::new());
    assert_eq!(lists.zones.len(), 1 + guest.nodes as usize);
    assert_eq!(lists.nr_frames, 512 << 8);
    let nr_free = free_blocks(&lists).len();
    assert!(nr_free > 2_000, "every other page of 96 MiB was freed: {nr_free} blocks");
    let nr_lru: usize = lists.lru.iter().map(|list| list.pages.len()).sum();
    assert!(nr_lru > 10_000, "the other pages are on the LRU lists: {nr_lru}");
    assert!(lists.reclaimable_slabs.as_ref().is_some_and(|slabs| !slabs.is_empty()));
    let on_cpus: usize = lists.zones.iter().flat_map(|z| &z.pcp).map(|pcp| pcp.blocks.len()).sum();

    // A free block's head carries its order, and a free page is referenced by nobody.
    for block in lists.zones.iter().flat_map(|z| &z.free) {
        let counts = lists.pagecounts[block.pfn.index()];
        assert_eq!((counts.private, counts.refcount), (u64::from(block.order.0), 0));
    }
    let uses = lists.frame_uses();
    for pfn in lists.lru.iter().flat_map(|list| &list.pages) {
        let is_user = matches!(
            uses[pfn.index()],
            FrameUse::Anon | FrameUse::File | FrameUse::FileMapped | FrameUse::Huge
        );
        assert!(is_user, "{pfn} on an LRU list is {:?}", uses[pfn.index()]);
    }

    // Taken between lists that tell the same: what differs is what reading /proc itself took.
    assert_eq!(frames.exactness, Exactness::Frames);
    let (a, b) = (free_blocks(&lists), free_blocks(&frames));
    let differ = a.symmetric_difference(&b).count();
    println!(
        "{}: {nr_free} free blocks, {on_cpus} per-CPU blocks, {nr_lru} LRU pages; by frames {differ} \
         blocks differ",
        guest.name()
    );
    assert!(differ * 100 <= nr_free, "{differ} of {nr_free} free blocks differ");
    let same_types = lists
        .pageblocks
        .iter()
        .zip(&frames.pageblocks)
        .filter(|(a, b)| (a.pfn, a.migratetype) == (b.pfn, b.migratetype))
        .count();
    println!("{}: {same_types} of {} pageblock types", guest.name(), lists.pageblocks.len());
    // Inferred: pages on per-CPU lists look like kernel pages, and empty blocks tell nothing.
    assert!(same_types * 100 >= lists.pageblocks.len() * 90);

    // An ordinary user gets counts, and is told what keeps him from more.
    assert_eq!(counts.exactness, Exactness::Counts);
    assert!(counts.inferred[0].contains("kcore") && counts.inferred[1].contains("kpageflags"));
    assert!(!counts.files.contains_key("pagetypeinfo"));
    let placed = counts.placed();
    assert_eq!(placed.check(), Vec::<String>::new());
}

#[test]
fn linux_6_1_on_one_node_is_snapshot_as_its_own_files_tell() {
    check(&Guest { kernel: "6.1", nodes: 1, options: "mitigations=off", verb: "test" });
}

#[test]
fn linux_6_1_on_two_nodes_is_snapshot_as_its_own_files_tell() {
    check(&Guest { kernel: "6.1", nodes: 2, options: "mitigations=off nokaslr", verb: "test" });
}

#[test]
fn linux_6_12_on_one_node_is_snapshot_as_its_own_files_tell() {
    check(&Guest { kernel: "6.12", nodes: 1, options: "mitigations=off", verb: "test" });
}

#[test]
fn linux_6_12_on_two_nodes_is_snapshot_as_its_own_files_tell() {
    check(&Guest { kernel: "6.12", nodes: 2, options: "mitigations=off nokaslr", verb: "test" });
}

/// Not a test: makes recordings like those we compare the model with, in `$HIGHORDER_RECORD_DIR`.
#[test]
#[ignore = "makes recordings; run by tests/guest/record.sh"]
fn record_a_workload_on_every_kernel() {
    let Some(root) = std::env::var_os("HIGHORDER_RECORD_DIR").map(PathBuf::from) else {
        eprintln!("SKIPPED: HIGHORDER_RECORD_DIR is not set");
        return;
    };
    let verbs = [("record", "churn"), ("record-swap", "swap"), ("record-compact", "compact")];
    for (verb, what) in verbs {
        for (kernel, nodes) in [("6.1", 1), ("6.1", 2), ("6.12", 1), ("6.12", 2)] {
            let name = format!("{}-{what}-{nodes}n", kernel.replace('.', ""));
            let path = root.join(&name);
            if path.exists() {
                println!("{name}: there already");
                continue;
            }
            let guest = Guest { kernel, nodes, options: "mitigations=off nokaslr", verb };
            if let Some(sent) = run(&guest) {
                save(&path, &name, &guest, &sent);
            }
        }
    }
}

fn save(path: &Path, name: &str, guest: &Guest, sent: &BTreeMap<String, Vec<u8>>) {
    fs::create_dir_all(path.join("stats")).unwrap();
    let mut release = None;
    for (file, bytes) in sent {
        match file.strip_suffix(".snapshot") {
            Some(state) => {
                let snapshot = Snapshot::from_bytes(bytes, file).unwrap();
                println!("{name}/{state}: {} {:#?}", snapshot.exactness, snapshot.inferred);
                println!("{name}/{state}: check {:#?}", snapshot.check());
                snapshot.write_dir(path.join(state)).unwrap();
                release = snapshot.kernel_release;
            }
            None => {
                File::create(path.join(file)).unwrap().write_all(bytes).unwrap();
            }
        }
    }
    let (record, setup) = match guest.verb {
        "record-compact" => (
            "guest_init record-compact: 1 written to /proc/sys/vm/compact_memory".to_owned(),
            "a random half of 150 MiB of tmpfs punched out, a random half of 15000 anonymous mappings of \
             two pages unmapped, 6000 small files and half of them removed",
        ),
        verb => (
            format!(
                "guest_init {verb}: two churn processes, one creating files on tmpfs, forks, compact_memory"
            ),
            "every other page of 150 MiB of tmpfs punched out",
        ),
    };
    let mut case = serde_json::json!({
        "name": name,
        "kernel": guest.kernel,
        "kernel_release": release,
        "kernel_version": String::from_utf8_lossy(&sent["version"]).trim(),
        "nodes": guest.nodes,
        "node_mb": 512 / guest.nodes,
        "smp": 2,
        "record": record,
        "setup": setup,
        "append": guest.spec(Path::new("/init")).command_line(),
        "status": "ok",
    });
    if guest.verb == "record-compact" {
        // state1 is what this alone made of state0.
        case["then"] = "compact_memory".into();
    }
    fs::write(path.join("case.json"), format!("{case:#}\n")).unwrap();
    let mut trace = String::new();
    let packed = sent["trace.txt.zst"].as_slice();
    zstd::stream::read::Decoder::new(packed).unwrap().read_to_string(&mut trace).unwrap();
    let events = trace.lines().filter(|line| !line.starts_with('#')).count();
    let probes = trace.lines().filter(|line| line.contains(" isolate_free: ")).count();
    println!("{name}: {events} events, {probes} isolate_free, {} bytes packed", packed.len());
    for (cpu, stats) in sent.iter().filter(|(file, _)| file.starts_with("stats/")) {
        for line in String::from_utf8_lossy(stats).lines().filter(|l| l.contains("overrun")) {
            assert!(line.ends_with(": 0"), "{name} {cpu}: {line}");
        }
    }
}
