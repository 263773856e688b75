//! The guest of `tests/attainable_guest.rs`: brings memory into a state of some kind, takes it page for page, compacts,
//! and asks for as many huge pages as there can be.
//!
//! As process 1 it is asked for a state by name and sends `state`, the snapshot; `after`, `/proc/buddyinfo` once all was
//! compacted; and `pool`, what `vm.nr_hugepages` came to.

use highorder_real::guest::{self, Files};
use highorder_snapshot::live::{self, Options, Way};
use rustix::fs::FallocateFlags;
use rustix::mount::{MountFlags, mount};
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::Duration;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;
/// Keeps freed memory in the process, so that a second round of the same work asks the kernel for nothing.
const KEEP_MEMORY: &str = "glibc.malloc.mmap_threshold=33554432:\
                           glibc.malloc.trim_threshold=1073741824:glibc.malloc.top_pad=67108864";
/// Maps and unmaps every allocation of a page or more.
const MAP_MEMORY: &str = "glibc.malloc.mmap_threshold=4096";
/// More huge pages than any guest has room for.
const MORE_THAN_THERE_ARE: &str = "100000";
const TRIES: u32 = 40;

fn main() {
    guest::init_if_guest_with(init);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| arguments.get(i).and_then(|a| a.parse().ok()).unwrap_or(0);
    let outcome = match arguments.first().map_or("", String::as_str) {
        "hold" => hold(number(1), number(2)),
        "pipes" => pipes(number(1)),
        "sparse" => sparse(number(1)),
        "churn" => churn(number(1), number(2), number(3)),
        "pool" => pool(),
        _ => Err("this is the program of a guest".into()),
    };
    if let Err(error) = outcome {
        eprintln!("{arguments:?}: {error}");
        std::process::exit(1);
    }
}

/// What process 1 does of its own: the state, then what can be had in it.
fn init(state: &str) -> Outcome<Files> {
    fs::create_dir_all("/tmp")?;
    mount("tmpfs", "/tmp", "tmpfs", MountFlags::empty(), Some(c"mode=1777,size=90%"))?;
    fs::write("/sys/kernel/mm/transparent_hugepage/enabled", "never")?;
    // Where there is a disk it is read, not swapped to.
    fs::write("/proc/sys/vm/swappiness", "0")?;
    fs::write("/proc/sys/vm/overcommit_memory", "1")?;
    for word in state.split('+') {
        prepare(word)?;
    }
    let status = spawn(&["pool"], KEEP_MEMORY)?.wait()?;
    if !status.success() {
        return Err(format!("pool: {status}").into());
    }
    let file = |name: &str| Ok((name.to_owned(), fs::read(format!("/tmp/{name}.out"))?));
    ["state", "after", "pool"].map(file).into_iter().collect()
}

fn prepare(word: &str) -> Outcome {
    match word {
        // Anonymous memory of which a random half is left.
        "anon" => background(&["hold", "9", "50000"]),
        // A file in memory: every other page of it; a random half.
        "comb" => punch(150 * MIB, |page| page % 2 == 0),
        "scatter" => {
            let mut random = Random(5);
            punch(150 * MIB, move |_| random.below(2) == 0)
        }
        // Small files, of which about half are left: inodes and names.
        "slab" => files(7, 60_000),
        // Page cache of a disk.
        "cache" => read_disk(200 * MIB),
        // Kernel pages among user pages.
        "pipes" => background(&["pipes", "400"]),
        // Page tables with one page each.
        "tables" => background(&["sparse", "6000"]),
        // What two processes leave that came and went.
        "churn" => {
            let mut first = spawn(&["churn", "1", "900", "120"], MAP_MEMORY)?;
            let mut second = spawn(&["churn", "2", "900", "120"], MAP_MEMORY)?;
            files(3, 6000)?;
            let ended = first.wait()?.success() && second.wait()?.success();
            ended.then_some(()).ok_or_else(|| "a process of the workload failed".into())
        }
        other => Err(format!("found state `{other}`").into()),
    }
}

fn spawn(arguments: &[&str], malloc: &str) -> io::Result<Child> {
    Command::new("/init").args(arguments).env("GLIBC_TUNABLES", malloc).spawn()
}

/// Starts a process that never ends, and waits until it holds what it is to hold.
fn background(arguments: &[&str]) -> Outcome {
    let mut child = spawn(arguments, MAP_MEMORY)?;
    while !fs::exists("/tmp/held")? {
        if let Some(status) = child.try_wait()? {
            return Err(format!("{arguments:?}: {status}").into());
        }
        sleep(Duration::from_millis(50));
    }
    Ok(fs::remove_file("/tmp/held")?)
}

fn hold_for_good<T>(held: &T) -> ! {
    let _ = File::create("/tmp/held");
    loop {
        sleep(Duration::from_secs(1000));
        std::hint::black_box(held);
    }
}

/// A linear congruential generator, so that a state repeats itself.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

/// Holds a random half of `nr` mappings of two pages.
fn hold(seed: u64, nr: u64) -> Outcome {
    let mut random = Random(seed);
    let mut held: Vec<Vec<u8>> = (0..nr).map(|_| vec![3; PAGE]).collect();
    held.retain(|_| random.below(2) == 0);
    hold_for_good(&held)
}

/// Full pipes between pages of user memory; every other one is left.
fn pipes(nr: u64) -> Outcome {
    let mut held = Vec::new();
    let mut users = Vec::new();
    for _ in 0..nr {
        let (reader, mut writer) = io::pipe()?;
        // 16 pages are what a pipe holds.
        writer.write_all(&[1; 16 * PAGE])?;
        users.extend((0..16).map(|_| vec![2u8; PAGE]));
        held.push((reader, writer));
    }
    let mut at = 0;
    held.retain(|_| {
        at += 1;
        at % 2 == 0
    });
    hold_for_good(&(held, users))
}

/// A page in each of `nr` stretches of 2 MiB.
fn sparse(nr: u64) -> Outcome {
    const STRETCH: usize = 2 * MIB;
    let mut memory: Vec<u8> = Vec::with_capacity(nr as usize * STRETCH);
    for page in memory.spare_capacity_mut().iter_mut().step_by(STRETCH) {
        page.write(1);
    }
    hold_for_good(&memory)
}

/// Maps, touches and unmaps up to `mib` MiB in pieces of 4 KiB to 8 MiB.
fn churn(seed: u64, operations: u64, mib: u64) -> Outcome {
    let mut random = Random(seed);
    let mut slots: Vec<Vec<u8>> = Vec::new();
    for _ in 0..operations {
        let pages = match random.below(100) {
            0..50 => 1 + random.below(16),
            50..85 => 16 + random.below(240),
            _ => 512 + random.below(1536),
        };
        slots.push(vec![1; pages as usize * PAGE]);
        while slots.len() > 64 || slots.iter().map(Vec::len).sum::<usize>() > mib as usize * MIB {
            let victim = random.below(slots.len() as u64) as usize;
            slots.swap_remove(victim);
        }
    }
    Ok(())
}

/// A file in memory without the pages that `goes` says.
fn punch(len: usize, mut goes: impl FnMut(usize) -> bool) -> Outcome {
    let mut file = File::create(format!("/tmp/punched-{len}"))?;
    let chunk = vec![1u8; MIB];
    for _ in 0..len / chunk.len() {
        file.write_all(&chunk)?;
    }
    for page in (0..len / PAGE).filter(|page| goes(*page)) {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, mode, (page * PAGE) as u64, PAGE as u64)?;
    }
    Ok(())
}

/// Creates empty and small files, of which about half remain.
fn files(seed: u64, nr: u64) -> Outcome {
    let mut random = Random(seed);
    let directory = format!("/tmp/files{seed}");
    fs::create_dir_all(&directory)?;
    for i in 0..nr {
        let len = if random.below(8) == 0 { PAGE } else { 0 };
        fs::write(format!("{directory}/{i}"), &[2u8; PAGE][..len])?;
        if i > 100 && random.below(2) == 0 {
            // It may be gone already.
            let _ = fs::remove_file(format!("{directory}/{}", random.below(i)));
        }
    }
    Ok(())
}

/// Reads from the disk that a machine would swap to.
fn read_disk(len: usize) -> Outcome {
    let mut disk = File::open("/dev/vda")?;
    let mut chunk = vec![0u8; MIB];
    for _ in 0..len / MIB {
        disk.read_exact(&mut chunk)?;
    }
    Ok(())
}

/// Takes the state, compacts, and asks for huge pages: in one process, so that its memory is there from the first on.
fn pool() -> Outcome {
    let take = || live::take(Options { way: Way::Lists, tries: TRIES, ..Options::default() });
    drop(take()?);
    sleep(Duration::from_millis(500));
    let state = take()?;
    fs::write("/proc/sys/vm/compact_memory", "1")?;
    let after = fs::read("/proc/buddyinfo")?;
    fs::write("/proc/sys/vm/nr_hugepages", MORE_THAN_THERE_ARE)?;
    let pool = fs::read("/proc/sys/vm/nr_hugepages")?;
    fs::write("/proc/sys/vm/nr_hugepages", "0")?;
    state.write("/tmp/state.out")?;
    fs::write("/tmp/after.out", after)?;
    Ok(fs::write("/tmp/pool.out", pool)?)
}
