//! The guest of the kernel tests: what process 1 of a small virtual machine is asked for.
//!
//! `test` fragments memory, takes one snapshot each way and sends them. `record` takes the lists, runs a
//! workload under ftrace, takes the lists again and sends states and trace, in the layout of a recording;
//! `record-swap` does so with more work than memory and a disk to swap to, `record-compact` with no work but
//! compaction of all zones. The other verbs are the processes that these start.

use highorder_real::guest::{self, Files};
use highorder_snapshot::Snapshot;
use highorder_snapshot::live::{self, Options, Way};
use rustix::fs::FallocateFlags;
use rustix::mount::{MountFlags, mount};
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::Duration;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const TRACING: &str = "/sys/kernel/tracing";
const PAGE: usize = 4096;
/// Keeps freed memory in the process and grows it in large steps, so that a second round of the
/// same work asks the kernel for nothing.
const KEEP_MEMORY: &str = "glibc.malloc.mmap_threshold=33554432:\
                           glibc.malloc.trim_threshold=1073741824:glibc.malloc.top_pad=67108864";
/// Maps and unmaps every allocation of a page or more.
const MAP_MEMORY: &str = "glibc.malloc.mmap_threshold=4096";
/// Events as in the recordings we have; a trailing `/` stands for a whole subsystem.
const EVENTS: [&str; 11] = [
    "kmem/mm_page_alloc",
    "kmem/mm_page_free",
    "kmem/mm_page_free_batched",
    "kmem/mm_page_alloc_zone_locked",
    "kmem/mm_page_pcpu_drain",
    "kmem/mm_page_alloc_extfrag",
    "compaction",
    "vmscan",
    "migrate",
    "huge_memory",
    "oom",
];
/// What is recorded of compaction alone: the scanners, and what became of each batch.
const COMPACTION_EVENTS: [&str; 3] =
    ["compaction", "migrate/mm_migrate_pages", "migrate/mm_migrate_pages_start"];
const NOBODY: u32 = 65534;
/// Under emulation on a busy machine a copy of the lists may take as long as the guest is ever idle.
const TRIES: u32 = 40;

fn main() {
    guest::init_if_guest_with(init);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let verb = arguments.first().map_or("", String::as_str);
    let number = |i: usize| arguments.get(i).and_then(|a| a.parse().ok()).unwrap_or(0);
    let outcome = match verb {
        "snapshots" => snapshots(),
        "counts" => counts(),
        "state" => state(match number(1) {
            0 => Workload::Churn,
            1 => Workload::Pressure,
            _ => Workload::Compact,
        }),
        "hold" => hold(number(1), number(2)),
        "churn" => churn(number(1), number(2), number(3) as usize),
        "files" => files(number(1), number(2)),
        "nothing" => Ok(()),
        _ => Err("this is the program of a guest".into()),
    };
    if let Err(error) = outcome {
        eprintln!("{verb}: {error}");
        std::process::exit(1);
    }
}

/// What process 1 does of its own.
fn init(verb: &str) -> Outcome<Files> {
    fs::create_dir_all("/tmp")?;
    mount("tmpfs", "/tmp", "tmpfs", MountFlags::empty(), Some(c"mode=1777,size=90%"))?;
    fs::write("/sys/kernel/mm/transparent_hugepage/enabled", "always")?;
    match verb {
        "test" => test(),
        "record" => record(Workload::Churn),
        "record-swap" => record(Workload::Pressure),
        "record-compact" => record(Workload::Compact),
        other => {
            let expected = "test, record, record-swap or record-compact";
            Err(format!("found verb `{other}`, expected {expected}").into())
        }
    }
}

fn spawn(arguments: &[&str], malloc: &str) -> io::Result<Child> {
    Command::new("/init").args(arguments).env("GLIBC_TUNABLES", malloc).spawn()
}

fn run(arguments: &[&str], malloc: &str) -> Outcome {
    let status = spawn(arguments, malloc)?.wait()?;
    if status.success() { Ok(()) } else { Err(format!("{arguments:?}: {status}").into()) }
}

// ---------------------------------------------------------------------------------------------
// Test

fn test() -> Outcome<Files> {
    fragment(96 << 20)?;
    run(&["files", "7", "3000"], MAP_MEMORY)?;
    run(&["snapshots"], KEEP_MEMORY)?;
    let status = Command::new("/init").arg("counts").uid(NOBODY).gid(NOBODY).spawn()?.wait()?;
    if !status.success() {
        return Err(format!("counts: {status}").into());
    }
    let mut sent = Vec::new();
    for name in ["lists", "frames", "counts"] {
        sent.push((name.to_owned(), fs::read(format!("/tmp/{name}"))?));
    }
    Ok(sent)
}

/// Lists and frames of one moment: frames between two takings of the lists that tell the same, in memory
/// that an earlier round left. Once a second the kernel drains per-CPU lists that have not been used.
fn snapshots() -> Outcome {
    let take = |way| live::take(Options { way, tries: TRIES, ..Options::default() });
    let free = |s: &Snapshot| s.zones.iter().map(|zone| zone.free.clone()).collect::<Vec<_>>();
    drop((take(Way::Lists)?, take(Way::Frames)?));
    sleep(Duration::from_millis(500));
    let (mut lists, mut frames) = (take(Way::Lists)?, take(Way::Frames)?);
    for _ in 0..TRIES {
        let again = take(Way::Lists)?;
        if free(&again) == free(&lists) {
            break;
        }
        (lists, frames) = (again, take(Way::Frames)?);
    }
    lists.write("/tmp/lists")?;
    frames.write("/tmp/frames")?;
    Ok(())
}

/// What an ordinary user gets by asking for the best.
fn counts() -> Outcome {
    live::take(Options::default())?.write("/tmp/counts")?;
    Ok(())
}

/// Leaves every other page of `len` bytes free.
fn fragment(len: usize) -> Outcome {
    let mut file = File::create("/tmp/fragments")?;
    let chunk = vec![1u8; 1 << 20];
    for _ in 0..len / chunk.len() {
        file.write_all(&chunk)?;
    }
    for page in (0..len / PAGE).step_by(2) {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, mode, (page * PAGE) as u64, PAGE as u64)?;
    }
    Ok(())
}

// ---------------------------------------------------------------------------------------------
// Workload

/// A linear congruential generator, so that a workload repeats itself.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

/// Maps, touches and unmaps up to `mib` MiB in pieces of 4 KiB to 8 MiB.
fn churn(seed: u64, operations: u64, mib: usize) -> Outcome {
    let mut random = Random(seed);
    let mut slots: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut total = 0;
    for operation in 0..operations {
        let len = PAGE
            * match random.below(100) {
                0..50 => 1 + random.below(16),
                50..85 => 16 + random.below(240),
                _ => 512 + random.below(1536),
            } as usize;
        let mut memory = vec![0u8; len];
        for page in memory.chunks_mut(PAGE) {
            page[0] = (operation % 255) as u8 + 1;
        }
        total += len;
        slots.push((operation, memory));
        while total > mib << 20 {
            let oldest = slots.iter().enumerate().min_by_key(|(_, slot)| slot.0);
            let Some((oldest, _)) = oldest else { break };
            total -= slots.swap_remove(oldest).1.len();
        }
        if slots.len() > 64 {
            let victim = random.below(slots.len() as u64) as usize;
            total -= slots.swap_remove(victim).1.len();
        }
    }
    Ok(())
}

/// Creates files of up to 64 KiB, of which about half remain.
fn files(seed: u64, nr: u64) -> Outcome {
    let mut random = Random(seed);
    let directory = format!("/tmp/files{seed}");
    fs::create_dir_all(&directory)?;
    let content = vec![2u8; 16 * PAGE];
    for i in 0..nr {
        let len = if random.below(8) == 0 { random.below(16) as usize * PAGE } else { PAGE };
        fs::write(format!("{directory}/{i}"), &content[..len])?;
        if i > 100 && random.below(2) == 0 {
            // It may be gone already.
            let _ = fs::remove_file(format!("{directory}/{}", random.below(i)));
        }
    }
    Ok(())
}

/// Leaves a random half of the pages of a file of `len` bytes.
fn scatter(seed: u64, len: usize) -> Outcome {
    let mut random = Random(seed);
    let mut file = File::create("/tmp/scattered")?;
    let chunk = vec![1u8; 1 << 20];
    for _ in 0..len / chunk.len() {
        file.write_all(&chunk)?;
    }
    for page in 0..len / PAGE {
        if random.below(2) == 0 {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, mode, (page * PAGE) as u64, PAGE as u64)?;
        }
    }
    Ok(())
}

/// Holds a random half of `nr` mappings of two pages, and never ends.
fn hold(seed: u64, nr: u64) -> Outcome {
    let mut random = Random(seed);
    let mut held: Vec<Vec<u8>> = (0..nr).map(|_| vec![3; PAGE]).collect();
    held.retain(|_| random.below(2) == 0);
    File::create("/tmp/held")?;
    loop {
        sleep(Duration::from_secs(1000));
        std::hint::black_box(&held);
    }
}

/// What is recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Workload {
    /// Fits into memory.
    Churn,
    /// Does not, so that pages are swapped out and pageblocks change their type.
    Pressure,
    /// Nothing but compaction of all zones.
    Compact,
}

fn workload(workload: Workload) -> Outcome {
    let (operations, mib, files) = match workload {
        Workload::Churn => ("900", "70", "4000"),
        Workload::Pressure => ("700", "210", "9000"),
        Workload::Compact => return Ok(fs::write("/proc/sys/vm/compact_memory", "1")?),
    };
    let mut children = vec![
        spawn(&["churn", "1", operations, mib], MAP_MEMORY)?,
        spawn(&["churn", "2", operations, mib], MAP_MEMORY)?,
        spawn(&["files", "3", files], MAP_MEMORY)?,
    ];
    for _ in 0..60 {
        run(&["nothing"], "")?;
    }
    for child in &mut children {
        let status = child.wait()?;
        if !status.success() {
            return Err(format!("a process of the workload ended with {status}").into());
        }
    }
    // Whole-zone compaction, so that there is some whatever the workload met.
    fs::write("/proc/sys/vm/compact_memory", "1")?;
    Ok(())
}

// ---------------------------------------------------------------------------------------------
// Record

fn mark(text: &str) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .open(format!("{TRACING}/trace_marker"))?
        .write_all(text.as_bytes())
}

fn record(workload: Workload) -> Outcome<Files> {
    mount("tracefs", TRACING, "tracefs", MountFlags::empty(), None)?;
    let set = |file: &str, text: &str| {
        fs::write(format!("{TRACING}/{file}"), text).map_err(|e| format!("{file}: {e}"))
    };
    set("trace_clock", "global")?;
    set("buffer_size_kb", "32768")?;
    let is_compaction = workload == Workload::Compact;
    let append = |text: &str| {
        let mut file = OpenOptions::new().append(true).open(format!("{TRACING}/kprobe_events"))?;
        file.write_all(text.as_bytes())
    };
    if is_compaction {
        // Huge pages would leave little to move.
        fs::write("/sys/kernel/mm/transparent_hugepage/enabled", "never")?;
        scatter(5, 150 << 20)?;
        spawn(&["hold", "9", "15000"], MAP_MEMORY)?;
        run(&["files", "3", "6000"], MAP_MEMORY)?;
        while !fs::exists("/tmp/held")? {
            sleep(Duration::from_millis(100));
        }
    } else {
        append("p:isolate_free __isolate_free_page page=%di:x64 order=%si:u32\n")?;
        append("r:isolate_free_ret __isolate_free_page ret=$retval:s32\n")?;
        fragment(150 << 20)?;
    }
    // Once without being recorded, so that no kernel cache is met for the first time.
    run(&["nothing"], "")?;
    set("trace", "")?;
    let events = if is_compaction { &COMPACTION_EVENTS[..] } else { &EVENTS[..] };
    for event in events {
        set(&format!("events/{event}/enable"), "1")?;
    }
    if !is_compaction {
        set("events/kprobes/enable", "1")?;
    }
    set("tracing_on", "1")?;
    // One process takes both states, so that its memory is there from the first on.
    let kind = match workload {
        Workload::Churn => "0",
        Workload::Pressure => "1",
        Workload::Compact => "2",
    };
    run(&["state", kind], KEEP_MEMORY)?;
    set("tracing_on", "0")?;

    let mut sent = Vec::new();
    for name in ["state0.snapshot", "state1.snapshot"] {
        sent.push((name.to_owned(), fs::read(format!("/tmp/{name}"))?));
    }
    for cpu in 0..2 {
        if let Ok(stats) = fs::read(format!("{TRACING}/per_cpu/cpu{cpu}/stats")) {
            sent.push((format!("stats/cpu{cpu}"), stats));
        }
    }
    sent.push(("settings".to_owned(), settings()));
    sent.push(("swaps".to_owned(), fs::read("/proc/swaps")?));
    sent.push(("cmdline".to_owned(), fs::read("/proc/cmdline")?));
    sent.push(("version".to_owned(), fs::read("/proc/version")?));
    let mut trace = zstd::stream::write::Encoder::new(Vec::new(), 6)?;
    io::copy(&mut File::open(format!("{TRACING}/trace"))?, &mut trace)?;
    sent.push(("trace.txt.zst".to_owned(), trace.finish()?));
    Ok(sent)
}

/// Takes the lists, has the workload run, and takes them again.
fn state(kind: Workload) -> Outcome {
    // So that memory and code are there when it counts.
    drop(lists("warm-up")?);
    sleep(Duration::from_millis(500));
    mark("snap0_begin")?;
    let before = lists("lists_copied")?;
    mark("snap0_end")?;
    mark("workload_begin")?;
    workload(kind)?;
    mark("workload_end")?;
    mark("snap1_begin")?;
    let after = lists("lists_copied")?;
    mark("snap1_end")?;
    before.write("/tmp/state0.snapshot")?;
    after.write("/tmp/state1.snapshot")?;
    Ok(())
}

fn lists(text: &str) -> Result<Snapshot, Box<dyn Error>> {
    let mut marker = OpenOptions::new().write(true).open(format!("{TRACING}/trace_marker"))?;
    let mut failed = None;
    let mut at_lists = || failed = marker.write_all(text.as_bytes()).err();
    let snapshot = live::take(Options {
        way: Way::Lists,
        tries: TRIES,
        at_lists: Some(&mut at_lists),
        ..Options::default()
    })?;
    failed.map_or(Ok(snapshot), |error| Err(error.into()))
}

fn settings() -> Vec<u8> {
    let mut text = String::new();
    for directory in ["/sys/kernel/mm/transparent_hugepage", "/proc/sys/vm"] {
        let mut paths: Vec<_> =
            fs::read_dir(directory).into_iter().flatten().flatten().map(|e| e.path()).collect();
        paths.sort();
        for path in paths.iter().filter(|path| path.is_file()) {
            let value = fs::read_to_string(path).unwrap_or_default();
            text.push_str(&format!("{} {}\n", path.display(), value.trim()));
        }
    }
    if let Ok(value) = fs::read_to_string("/sys/kernel/mm/lru_gen/enabled") {
        text.push_str(&format!("/sys/kernel/mm/lru_gen/enabled {}\n", value.trim()));
    }
    text.into_bytes()
}
