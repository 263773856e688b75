//! Snapshots of real kernels: boots Debian's 6.1 and 6.12 under QEMU (software emulation only),
//! takes a snapshot each way inside, and compares them with each other and with the kernel's files.
//!
//! Needs what `tests/guest/setup.sh` gets; where something is missing the tests say SKIPPED and why.

use highorder_mm::types::{Order, Pfn};
use highorder_snapshot::{Exactness, FrameUse, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// A guest that takes longer than this hangs. Booting takes 10 to 30 s under emulation.
const GUEST_SECONDS_MAX: u64 = 400;

struct Guest {
    kernel: &'static str,
    nodes: usize,
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
        let directory = tempfile::tempdir().unwrap();
        let (initrd, console, port) = (
            directory.path().join("initrd"),
            directory.path().join("console"),
            directory.path().join("port"),
        );
        let has_swap = self.verb == "record-swap";
        let modules = if has_swap { self.modules() } else { Vec::new() };
        fs::write(&initrd, cpio(&fs::read(init).unwrap(), &modules)).unwrap();
        let mut qemu = Command::new("qemu-system-x86_64");
        // One thread for both CPUs: with one each, a guest that patches its code now and then runs into the
        // breakpoint that it has just removed ("Oops: int3" at boot).
        qemu.args(["-accel", "tcg,thread=single", "-cpu", "max", "-smp", "2", "-m", "512M"])
            .args(["-display", "none", "-no-reboot", "-nic", "none", "-monitor", "none"])
            .arg("-kernel")
            .arg(self.kernel_dir().join("vmlinuz"))
            .arg("-initrd")
            .arg(&initrd)
            .args(["-serial", &format!("file:{}", console.display())])
            .args(["-serial", &format!("file:{}", port.display())])
            .args(["-append", &self.command_line()])
            .stdin(Stdio::null());
        if self.nodes == 2 {
            for node in 0..2 {
                qemu.args(["-object", &format!("memory-backend-ram,id=m{node},size=256M")]);
                qemu.args(["-numa", &format!("node,memdev=m{node},cpus={node}-{node}")]);
            }
        }
        if has_swap {
            let disk = directory.path().join("swap");
            fs::write(&disk, swap_area()).unwrap();
            let drive = format!("file={},if=virtio,format=raw,cache=unsafe", disk.display());
            qemu.args(["-drive", &drive]);
        }
        let mut child = qemu.spawn().unwrap();
        let mut waited = Duration::ZERO;
        let pause = Duration::from_millis(200);
        while child.try_wait().unwrap().is_none() {
            if waited.as_secs() >= GUEST_SECONDS_MAX {
                child.kill().unwrap();
                child.wait().unwrap();
                break;
            }
            std::thread::sleep(pause);
            waited += pause;
        }
        let console = fs::read(&console).unwrap_or_default();
        let console = String::from_utf8_lossy(&console).into_owned();
        let sent = received(&fs::read(&port).unwrap_or_default());
        let Some(mut sent) = sent.filter(|sent| !sent.contains_key("error")) else {
            panic!("{}: the guest sent no whole answer; its console:\n{console}", self.name());
        };
        sent.insert("console".into(), console.into_bytes());
        sent
    }

    /// The driver of the disk, in the order in which its modules need each other; what the kernel
    /// has built in is left out.
    fn modules(&self) -> Vec<Vec<u8>> {
        let drivers = self.kernel_dir().join("modules/kernel/drivers");
        let names = [
            "virtio/virtio",
            "virtio/virtio_ring",
            "virtio/virtio_pci_legacy_dev",
            "virtio/virtio_pci_modern_dev",
            "virtio/virtio_pci",
            "block/virtio_blk",
        ];
        let mut modules = Vec::new();
        for name in names {
            let packed = drivers.join(format!("{name}.ko.xz"));
            if let Ok(module) = fs::read(drivers.join(format!("{name}.ko"))) {
                modules.push(module);
            } else if packed.is_file() {
                modules.push(Command::new("xz").arg("-dc").arg(packed).output().unwrap().stdout);
            }
        }
        modules
    }

    fn command_line(&self) -> String {
        format!(
            "console=ttyS0 panic=-1 quiet random.trust_cpu=on {} rdinit=/init -- {}",
            self.options, self.verb
        )
    }
}

fn cache() -> PathBuf {
    std::env::var_os("HIGHORDER_CACHE")
        .map_or_else(|| PathBuf::from("/tmp/highorder-cache"), PathBuf::from)
}

/// 256 MiB to swap to: a header page that says so, then nothing.
fn swap_area() -> Vec<u8> {
    let mut area = vec![0; 256 << 20];
    let last_page = (area.len() / 4096 - 1) as u32;
    area[1024..1028].copy_from_slice(&1u32.to_le_bytes());
    area[1028..1032].copy_from_slice(&last_page.to_le_bytes());
    area[4086..4096].copy_from_slice(b"SWAPSPACE2");
    area
}

/// `/init` in the format that kernels unpack ("newc"), the console to print to, and modules.
fn cpio(init: &[u8], modules: &[Vec<u8>]) -> Vec<u8> {
    let mut archive = Vec::new();
    let mut entry = |name: &str, mode: u32, device: (u32, u32), bytes: &[u8]| {
        let fields = [
            1,
            mode,
            0,
            0,
            1,
            0,
            bytes.len() as u32,
            0,
            0,
            device.0,
            device.1,
            name.len() as u32 + 1,
            0,
        ];
        archive.extend_from_slice(b"070701");
        for field in fields {
            write!(archive, "{field:08x}").unwrap();
        }
        archive.extend_from_slice(name.as_bytes());
        archive.push(0);
        archive.resize(archive.len().next_multiple_of(4), 0);
        archive.extend_from_slice(bytes);
        archive.resize(archive.len().next_multiple_of(4), 0);
    };
    entry("dev", 0o040755, (0, 0), b"");
    entry("dev/console", 0o020600, (5, 1), b"");
    entry("init", 0o100755, (0, 0), init);
    entry("modules", 0o040755, (0, 0), b"");
    for (i, module) in modules.iter().enumerate() {
        entry(&format!("modules/{i:02}.ko"), 0o100644, (0, 0), module);
    }
    entry("TRAILER!!!", 0, (0, 0), b"");
    archive
}

fn received(mut bytes: &[u8]) -> Option<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    loop {
        let name_len = u32::from_le_bytes(*bytes.split_off(..4)?.first_chunk()?);
        let name = String::from_utf8(bytes.split_off(..name_len as usize)?.to_vec()).ok()?;
        let len = u64::from_le_bytes(*bytes.split_off(..8)?.first_chunk()?);
        let content = bytes.split_off(..len as usize)?.to_vec();
        if name.is_empty() {
            return Some(files);
        }
        files.insert(name, content);
    }
}

/// Builds the guest's init, linked statically, once for all tests; or says why that cannot be.
fn init() -> &'static Result<PathBuf, String> {
    static INIT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    INIT.get_or_init(|| {
        let found =
            Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            return Err("qemu-system-x86_64 does not run".into());
        }
        let target = "x86_64-unknown-linux-gnu";
        let directory = cache().join("target");
        let output = Command::new(env!("CARGO"))
            .args(["build", "--offline", "--quiet", "--package", "highorder-snapshot"])
            .args(["--example", "guest_init", "--target", target])
            .args(["--config", "profile.dev.debug=0", "--config", "profile.dev.strip=true"])
            .arg("--target-dir")
            .arg(&directory)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("RUSTFLAGS", "-C target-feature=+crt-static")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .output()
            .map_err(|e| format!("cargo does not run: {e}"))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("the guest's init does not build statically: {text}"));
        }
        Ok(directory.join(target).join("debug/examples/guest_init"))
    })
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
    match init() {
        Ok(init) => Some(guest.run(init)),
        Err(why) => skipped(why),
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
    assert_eq!(lists.zones.len(), 1 + guest.nodes);
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
        "append": guest.command_line(),
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
