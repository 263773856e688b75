//! Measures what primitive work costs on the machine it runs on, and writes its machine file.
//!
//! [`Found`] is the machine's shape as its kernel tells it, [`measure`] gives the costs, [`Disk`] is the
//! disk that a folder lies on, [`check`] refuses costs that cannot be, and [`machine_file`] puts them together.
//!
//! Safe to run as any user: it allocates [`BUFFER_BYTES`] a few times, writes a nameless file to a disk
//! that is asked for, makes and removes empty files there, and changes nothing but what [`Shrinkers::Asked`]
//! says. Each number is the least of several repetitions, because whatever else runs can only make a
//! repetition longer (but for remote flushes, a median); of fewer where they take long, as on an emulated CPU. All but
//! the remote costs are measured on one CPU.
//!
//! What cannot be measured from user space is measured by its like: list operations and scanning by
//! arrays of 64-byte entries (the size of a `struct page`), the four-level walk by four dependent loads
//! from an array beyond the first cache.

#![allow(
    clippy::disallowed_types,
    reason = "measuring real time is what it is for; no result of the model depends on it"
)]

mod disk;
mod file;
mod found;
mod order;
mod swap;

pub use disk::{Disk, Place, Times};
pub use file::machine_file;
pub use found::{Found, FoundNode, FoundSwap};
pub use order::check;
pub use swap::measure_swap;

use disk::{DirectFile, written};
use memmap2::{Advice, Mmap, MmapMut, MmapOptions};
use rustix::fs::{MemfdFlags, fadvise, fstatfs, memfd_create};
use rustix::mm::madvise;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Write, pipe};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Size of the buffers that have to be beyond every cache.
pub const BUFFER_BYTES: usize = 256 << 20;

/// Size of what the CPU's own caches do not hold, and its node's does: processors of 2010 to 2025 have up to
/// 2 MiB of their own, and 12 MiB and more in a node.
const SHARED_BYTES: usize = 8 << 20;

/// From one pageblock's first `struct page` to the next one's: 64 bytes of each of 512 pages.
const BLOCK_STRIDE: usize = 512 * 64;
const PAGE: usize = 4096;
const HUGE: usize = 2 << 20;
const REPETITIONS: usize = 5;
/// How many of them there are at least, however long one takes.
const LEAST_REPETITIONS: usize = 2;
/// After so long no further one begins.
const REPEATING: Duration = Duration::from_secs(2);
/// Loads of a repetition. An array beyond the caches has more lines than that, and each repetition goes on where the last
/// one ended.
const LOADS: usize = 1 << 20;
/// Nanoseconds of a flush of one translation: see where it is used.
const LOCAL_FLUSH: f64 = 100.0;

/// Pages of a range for which a CPU flushes all it has: more than 33 (`tlb_single_page_flush_ceiling`, arch/x86/mm/tlb.c, v6.1).
const FLUSHES_ALL: usize = 64;
/// Loads that miss every cache for which all shrinkers can be asked: the median of a guest of Linux 6.1 (63), one of 6.12
/// (88) and a virtual machine of 6.18 (36).
const SHRINKERS_LOADS: f64 = 63.0;
/// Pages that can be freed in the time in which one is swapped out: the median of two boots of Linux 6.12 and two of 6.1
/// in guests (3.8, 3.9, 3.8, 4.0).
const SWAP_OUT_RECLAIMS: f64 = 3.9;
/// The same for one that is swapped in (6.3, 6.5, 7.4, 7.7).
const SWAP_IN_RECLAIMS: f64 = 7.0;
/// Pages that can be freed in the time in which one is put into a file: the median of three boots of Linux 6.12 in guests
/// (7.8, 7.8, 8.2).
const CACHE_PAGE_RECLAIMS: f64 = 7.8;
/// The same for what a write takes besides the copy (1.3, 1.0, 1.3).
const WRITE_PAGE_RECLAIMS: f64 = 1.3;
/// The same for making or removing a file of ext4, and for a piece of 16 pages: the median of five boots (63 to 68).
const METADATA_CHANGE_RECLAIMS: f64 = 64.0;
/// The same for moving a page besides its copy, two walks and two list operations: `move_pages` of 16 MiB between the nodes
/// of a guest of 6.12, the least of 20 (20.1 us, of which 15 us are its parts).
const MOVE_PAGE_RECLAIMS: f64 = 3.7;
/// File systems whose files are memory (include/uapi/linux/magic.h).
const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;

/// A cost, and how it was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Name in machine files.
    pub name: &'static str,
    /// Nanoseconds, to a tenth.
    pub ns: f64,
    /// Where the number is from.
    pub source: String,
}

impl Measured {
    /// A cost. Less than nothing, from two numbers that noise has turned, is nothing, which [`check`] refuses.
    fn new(name: &'static str, ns: f64, source: String) -> Self {
        Self { name, ns: (ns.max(0.0) * 10.0).round() / 10.0, source }
    }
}

/// A cost among those measured, in nanoseconds; 0 if it is none of them.
fn cost_of(costs: &[Measured], name: &str) -> f64 {
    costs.iter().find(|cost| cost.name == name).map_or(0.0, |cost| cost.ns)
}

/// Whether the kernel's shrinkers may be timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shrinkers {
    /// They may, by root: the kernel gives up all inodes and directory entries that nobody uses.
    Asked,
    /// They may not: what they take is derived.
    Spared,
}

/// How often costs are measured at most, until they can be: others may be at work on the machine for a while.
const ROUNDS: u32 = 3;

/// As [`measure`], again where something disturbed it so much that costs came out that cannot be; those of the last
/// round, whatever they are.
///
/// # Errors
/// As [`measure`].
pub fn measure_until_possible(
    place: &Place,
    nodes: &[Vec<u32>],
    shrinkers: Shrinkers,
    tell: &mut dyn FnMut(&'static str),
) -> std::io::Result<Vec<Measured>> {
    let mut costs = measure(place, nodes, shrinkers, tell)?;
    for _ in 1..ROUNDS {
        if check(&costs).is_ok() {
            break;
        }
        costs = measure(place, nodes, shrinkers, tell)?;
    }
    Ok(costs)
}

/// Measures every cost of a machine file; a quarter of a minute on an idle machine.
///
/// `place` is where transfers are timed; `nodes` are the CPUs of each node; `tell` is
/// called with the name of each cost before it is measured.
///
/// # Errors
/// A pipe, a thread or memory could not be had, or the CPUs are not this thread's to use.
pub fn measure(
    place: &Place,
    nodes: &[Vec<u32>],
    shrinkers: Shrinkers,
    tell: &mut dyn FnMut(&'static str),
) -> std::io::Result<Vec<Measured>> {
    let allowed = allowed_cpus()?;
    let bound = Bound::to(allowed[0])?;
    let mut costs = Costs { all: Vec::new(), tell };
    costs.add_fills()?;
    let system_call = costs.add_calls()?;
    let local = costs.add_loads(&allowed, nodes)?;
    let [list_op, walk] = costs.add_look_ups();
    costs.add_reclaim(place, list_op, walk)?;
    costs.add_shrinkers(shrinkers, system_call, local)?;
    costs.add_flushes(&allowed)?;
    costs.add_block_request(place, system_call)?;
    costs.add_by_reclaim(place)?;
    drop(bound);
    Ok(costs.all)
}

/// What was found so far, and whom to tell.
struct Costs<'a> {
    all: Vec<Measured>,
    tell: &'a mut dyn FnMut(&'static str),
}

impl Costs<'_> {
    /// Filling pages, and the fault that asks for one.
    fn add_fills(&mut self) -> std::io::Result<()> {
        let clear_base = self.begin("clear_base_page", || clear(PAGE));
        let how = "measured: fill of 4 KiB, random order over 256 MiB";
        self.add("clear_base_page", clear_base, how);
        let fill_cached = self.begin("fill_cached_page", || fill_again(PAGE));
        let how = "measured: fill of the same 4 KiB over and over";
        self.add("fill_cached_page", fill_cached, how);
        let clear_huge = self.begin("clear_huge_page", || clear(HUGE));
        let how = "measured: fill of 2 MiB, random order over 256 MiB";
        self.add("clear_huge_page", clear_huge, how);
        let fault = self.begin("fault_entry", fault)?;
        let how = "measured: first write to a page, less clear_base_page";
        self.add("fault_entry", fault - clear_base, how);
        Ok(())
    }

    /// Entering the kernel, and what is measured by calls. Returns what a call takes.
    fn add_calls(&mut self) -> std::io::Result<f64> {
        let system_call = self.begin("system_call", system_call)?;
        self.add("system_call", system_call, "measured: read of no bytes from a pipe");
        for (name, size, text) in
            [("copy_base_page", PAGE, "4 KiB"), ("copy_huge_page", HUGE, "2 MiB")]
        {
            let copy = self.begin(name, || kernel_copy(size))?;
            let how =
                format!("measured: read of {text} of a file in memory, random order over 128 MiB");
            self.add(name, copy - system_call, &format!("{how}, less system_call"));
        }
        let (round_trip, own) = self.begin("context_switch", ping_pong)?;
        // A round trip is two switches, and at either end the write and read that `own` is.
        let switch = round_trip / 2.0 - own;
        let how = "measured: pipe between threads of a CPU, less the pipe";
        self.add("context_switch", switch, how);
        Ok(system_call)
    }

    /// Loads, by what serves them, and walks of the TLB. Returns what a load takes that misses every cache.
    fn add_loads(&mut self, allowed: &[u32], nodes: &[Vec<u32>]) -> std::io::Result<f64> {
        let [near, far, spread] = self.begin("local_access", || {
            [chase(PAGE / 64, 64), chase(BUFFER_BYTES / 64, 64), chase(16 * 1024, PAGE + 64)]
        });
        let tlb_miss = (spread - near).max(0.0);
        let local = far - tlb_miss;
        self.add("local_access", local, "measured: chase over 256 MiB, less tlb_miss_base");
        let shared = self.begin("cache_read", || chase(SHARED_BYTES / 64, 64));
        self.add("cache_read", shared, "measured: chase over 8 MiB");
        let look = self.begin("block_look", || chase(BUFFER_BYTES / BLOCK_STRIDE, BLOCK_STRIDE));
        let how = "measured: chase over lines 32 KiB apart in 256 MiB, less tlb_miss_base";
        self.add("block_look", (look - tlb_miss).max(near), how);
        self.add("tlb_miss_base", tlb_miss, "measured: chase over 16384 pages, a line of each");
        let derived = "derived: three of the four levels that tlb_miss_base walks";
        self.add("tlb_miss_huge", tlb_miss * 0.75, derived);
        let remote = self.begin("remote_access", || remote_access(allowed, nodes))?;
        match remote {
            Some((ns, node)) => {
                let how = "measured: chase over 256 MiB of another node's, less tlb_miss_base";
                self.add("remote_access", ns - tlb_miss, &format!("{how}: node {node}"));
            }
            None => {
                let how = "as local_access: no CPU of another node is at hand";
                self.add("remote_access", local, how);
            }
        }
        Ok(local)
    }

    /// Getting at pages by frame, by list and by table, and the lock around that. Returns what a list operation takes,
    /// and a walk.
    fn add_look_ups(&mut self) -> [f64; 2] {
        let scan = self.begin("pfn_scan", scan);
        self.add("pfn_scan", scan, "measured: reading 64-byte entries in a row over 256 MiB");
        let list_op = self.begin("list_op", list_op);
        let how = "measured: unlinking a random entry of a list of 64-byte entries over 256 MiB";
        self.add("list_op", list_op, how);
        let walk = self.begin("page_table_walk", || 4.0 * chase(8 * 1024, 64));
        self.add("page_table_walk", walk, "measured: four dependent loads, chased over 512 KiB");
        let lock = self.begin("lock_pair", lock_pair);
        self.add("lock_pair", lock, "measured: compare-and-swap and store on an own line");
        [list_op, walk]
    }

    /// Reclaim of a page, and what it takes more if that is mapped.
    fn add_reclaim(&mut self, place: &Place, list_op: f64, walk: f64) -> std::io::Result<()> {
        let reclaimed = self.begin("reclaim_page", || reclaim_page(place))?;
        let [page, rmap] = match reclaimed {
            Some((plain, mapped)) => [
                (
                    plain,
                    "measured: POSIX_FADV_DONTNEED of 32 MiB, each page of which was read alone",
                ),
                match mapped {
                    Some(mapped) => (
                        mapped - plain,
                        "measured: MADV_PAGEOUT of 32 MiB of a mapped file, less reclaim_page",
                    ),
                    None => (walk, "as page_table_walk: no MADV_PAGEOUT (before 5.4)"),
                },
            ],
            None => [
                (list_op, "as list_op: no disk is at hand"),
                (walk, "as page_table_walk: no disk is at hand"),
            ],
        };
        self.add("reclaim_page", page.0, page.1);
        self.add("rmap_walk", rmap.0, rmap.1);
        Ok(())
    }

    /// Asking all shrinkers in vain.
    fn add_shrinkers(
        &mut self,
        shrinkers: Shrinkers,
        system_call: f64,
        local: f64,
    ) -> std::io::Result<()> {
        let asked = self.begin("shrinkers", || shrinkers.ask())?;
        match asked {
            Some(ns) => {
                let how = "measured: a write of 2 to drop_caches with nothing left to drop, less system_call";
                self.add("shrinkers", ns - system_call, how);
            }
            None => {
                let how = format!("derived: {SHRINKERS_LOADS} times local_access");
                self.add("shrinkers", SHRINKERS_LOADS * local, &how);
            }
        }
        Ok(())
    }

    /// Flushes of translations, on this CPU and on another one.
    fn add_flushes(&mut self, allowed: &[u32]) -> std::io::Result<()> {
        let published =
            "arch/x86/mm/tlb.c, v6.1, on tlb_single_page_flush_ceiling: about 100 ns each";
        self.add("tlb_flush_local", LOCAL_FLUSH, published);
        let flushes = [
            ("tlb_flush_remote", 1, "a written page"),
            (
                "tlb_flush_all_remote",
                FLUSHES_ALL,
                "64 written pages, for which CPUs flush all they have,",
            ),
        ];
        for (name, pages, what) in flushes {
            let flush = self.begin(name, || remote_flush(allowed, pages))?;
            match flush {
                Some(ns) => {
                    let how = format!(
                        "measured: mprotect of {what} while a thread runs on another CPU, less the same alone"
                    );
                    self.add(name, ns, &how);
                }
                None => self.add(name, LOCAL_FLUSH, "as tlb_flush_local: no other CPU is at hand"),
            }
        }
        Ok(())
    }

    /// A transfer, but for what the disk takes.
    fn add_block_request(&mut self, place: &Place, system_call: f64) -> std::io::Result<()> {
        let request = self.begin("block_request", || block_request(place, system_call))?;
        match request {
            Some(ns) => {
                let how = "measured: CPU time of a direct read of 4 KiB, less system_call";
                self.add("block_request", ns, how);
            }
            None => {
                let how = "as system_call: the folder's file system has no direct reads to measure";
                self.add("block_request", system_call, how);
            }
        }
        Ok(())
    }

    /// What is so many times `reclaim_page` where it cannot be measured: moving and swapping a page, and changes of files.
    fn add_by_reclaim(&mut self, place: &Place) -> std::io::Result<()> {
        let reclaim_page = cost_of(&self.all, "reclaim_page");
        let written = self.begin("cache_page", || write_pages(place))?;
        let changed = self.begin("metadata_change", || metadata_change(place))?;
        let cache = written.as_ref().map(|written| {
            let how = "CPU time of writing 32 MiB that is not in memory, 4 KiB at once, less the same in memory";
            (written.put, how)
        });
        let write = written.as_ref().map(|written| {
            (written.over, "CPU time of writing 32 MiB in memory, 4 KiB at once, less reading it")
        });
        let change = changed.map(|ns| {
            (ns, "half of the CPU time of making and removing a file, less opening and closing one")
        });
        for (name, found, times) in [
            ("move_page", None, MOVE_PAGE_RECLAIMS),
            ("swap_out", None, SWAP_OUT_RECLAIMS),
            ("swap_in", None, SWAP_IN_RECLAIMS),
            ("cache_page", cache, CACHE_PAGE_RECLAIMS),
            ("write_page", write, WRITE_PAGE_RECLAIMS),
            ("metadata_change", change, METADATA_CHANGE_RECLAIMS),
        ] {
            let (ns, source) = match found {
                Some((ns, how)) => (ns, format!("measured: {how}")),
                None => (times * reclaim_page, format!("derived: {times} times reclaim_page")),
            };
            self.add(name, ns, &source);
        }
        Ok(())
    }

    /// Tells of a cost, and measures it.
    fn begin<R>(&mut self, name: &'static str, measure: impl FnOnce() -> R) -> R {
        (self.tell)(name);
        measure()
    }

    fn add(&mut self, name: &'static str, ns: f64, source: &str) {
        self.all.push(Measured::new(name, ns, source.to_owned()));
    }
}

/// The CPUs that this thread may run on: at least one.
fn allowed_cpus() -> std::io::Result<Vec<u32>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU as u32).filter(|&cpu| set.is_set(cpu as usize)).collect())
}

/// Keeps this thread on one CPU until it is dropped.
struct Bound {
    before: CpuSet,
}

impl Bound {
    fn to(cpu: u32) -> std::io::Result<Self> {
        let before = sched_getaffinity(None)?;
        let mut one = CpuSet::new();
        one.set(cpu as usize);
        sched_setaffinity(None, &one)?;
        Ok(Self { before })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // It was allowed before.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// The least of several repetitions, in nanoseconds for each of `count`.
fn least(count: usize, mut work: impl FnMut()) -> f64 {
    let mut once = || {
        let start = Instant::now();
        work();
        start.elapsed().as_nanos() as f64 / count as f64
    };
    repetitions().map(|()| once()).fold(f64::INFINITY, f64::min)
}

/// As often as something is measured: [`REPETITIONS`] times, or fewer once it has taken [`REPEATING`].
fn repetitions() -> impl Iterator<Item = ()> {
    let start = Instant::now();
    (0..REPETITIONS)
        .take_while(move |&n| n < LEAST_REPETITIONS || start.elapsed() < REPEATING)
        .map(drop)
}

/// An order of `0..count` that no prefetcher foresees, always the same (a linear congruential walk).
fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut state = 1_u64;
    for i in (1..count).rev() {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(i, (state >> 33) as usize % (i + 1));
    }
    order
}

fn clear(size: usize) -> f64 {
    let mut to = vec![1_u8; BUFFER_BYTES];
    let order = shuffled(BUFFER_BYTES / size);
    least(order.len(), || {
        for &n in &order {
            to[n * size..(n + 1) * size].fill(0);
        }
        black_box(&mut to);
    })
}

/// A write to all of some memory that the caches hold, since it was just written.
fn fill_again(size: usize) -> f64 {
    const TIMES: usize = 1024;
    let mut to = vec![1_u8; size];
    least(TIMES, || {
        for _ in 0..TIMES {
            to.fill(0);
            black_box(&mut to);
        }
    })
}

fn fault() -> std::io::Result<f64> {
    let once = || -> std::io::Result<f64> {
        let mut fresh = MmapMut::map_anon(BUFFER_BYTES)?;
        // As base pages: a huge one is filled at its first touch, and by some kernels twice. A kernel without huge
        // pages does not know the advice.
        let _ = fresh.advise(Advice::NoHugePage);
        let start = Instant::now();
        for page in fresh.chunks_exact_mut(PAGE) {
            page[0] = 1;
        }
        black_box(&mut fresh);
        Ok(start.elapsed().as_nanos() as f64 / (BUFFER_BYTES / PAGE) as f64)
    };
    repetitions().try_fold(f64::INFINITY, |least, ()| Ok(least.min(once()?)))
}

/// The kernel's copy of so many bytes to user space, with the call that asks for it.
fn kernel_copy(size: usize) -> std::io::Result<f64> {
    let file = File::from(memfd_create("highorder-copy", MemfdFlags::CLOEXEC)?);
    let mut to = vec![1_u8; BUFFER_BYTES / 2];
    file.write_all_at(&to, 0)?;
    let order = shuffled(to.len() / size);
    let mut failed = Ok(());
    let ns = least(order.len(), || {
        for &n in &order {
            let m = order[order.len() - 1 - n];
            let part = &mut to[n * size..(n + 1) * size];
            let read = file.read_exact_at(part, (m * size) as u64);
            failed = std::mem::replace(&mut failed, Ok(())).and(read);
        }
    });
    failed.map(|()| ns)
}

fn system_call() -> std::io::Result<f64> {
    let (mut reader, _writer) = pipe()?;
    let mut failed = None;
    let ns = least(100_000, || {
        for _ in 0..100_000 {
            failed = failed.take().or(reader.read(&mut []).err());
        }
    });
    failed.map_or(Ok(ns), Err)
}

/// A round trip of a byte between two threads, and of a byte through a pipe without a switch.
fn ping_pong() -> std::io::Result<(f64, f64)> {
    const ROUNDS: usize = 20_000;
    let (mut here, mut to_here) = pipe()?;
    let (mut there, mut to_there) = pipe()?;
    let mut byte = [0];
    let own = least(ROUNDS, || {
        for _ in 0..ROUNDS {
            let _ = to_here.write_all(&byte).and_then(|()| here.read_exact(&mut byte));
        }
    });
    let echo = std::thread::spawn(move || {
        let mut byte = [0];
        while there.read_exact(&mut byte).is_ok() && to_here.write_all(&byte).is_ok() {}
    });
    let round_trip = least(ROUNDS, || {
        for _ in 0..ROUNDS {
            let _ = to_there.write_all(&byte).and_then(|()| here.read_exact(&mut byte));
        }
    });
    drop(to_there);
    let _ = echo.join();
    Ok((round_trip, own))
}

/// A load that depends on the one before, over `entries` lines that lie `stride` bytes apart.
fn chase(entries: usize, stride: usize) -> f64 {
    chase_through(&ring(entries, stride))
}

/// An array in which each of `entries` lines, `stride` bytes apart, says where the next one is.
fn ring(entries: usize, stride: usize) -> Vec<u64> {
    let step = stride / 8;
    let order = shuffled(entries);
    let mut array = vec![0_u64; entries * step];
    for n in 0..entries {
        array[order[n] * step] = (order[(n + 1) % entries] * step) as u64;
    }
    array
}

fn chase_through(array: &[u64]) -> f64 {
    let mut at = 0;
    least(LOADS, || {
        for _ in 0..LOADS {
            at = array[at] as usize;
        }
        black_box(at);
    })
}

fn scan() -> f64 {
    let entries = BUFFER_BYTES / 64;
    let pages = vec![[1_u64; 8]; entries];
    least(entries, || {
        let flags = pages.iter().filter(|page| black_box(page[0]) & 2 == 0).count();
        black_box(flags);
    })
}

fn list_op() -> f64 {
    let entries = BUFFER_BYTES / 64;
    let order = shuffled(entries);
    // Next and previous in the first two words.
    let mut pages = vec![[0_u64; 8]; entries];
    for n in 0..entries {
        pages[order[n]][0] = order[(n + 1) % entries] as u64;
        pages[order[n]][1] = order[(n + entries - 1) % entries] as u64;
    }
    // All repetitions together unlink half of the entries, so each finds fresh ones.
    let count = entries / (2 * REPETITIONS);
    let mut at = 0;
    least(count, || {
        for _ in 0..count {
            let [next, previous, ..] = pages[at];
            pages[previous as usize][0] = next;
            pages[next as usize][1] = previous;
            at = next as usize;
        }
        black_box(&mut pages);
    })
}

/// A load from memory that a thread on another node wrote first, and that node; none where no CPU of
/// another node may be used. This thread is bound to the first CPU allowed.
fn remote_access(allowed: &[u32], nodes: &[Vec<u32>]) -> std::io::Result<Option<(f64, usize)>> {
    let own = nodes.iter().position(|cpus| cpus.contains(&allowed[0]));
    let is_other = |cpus: &Vec<u32>| cpus.iter().copied().find(|cpu| allowed.contains(cpu));
    let others = nodes.iter().enumerate().filter(|(node, _)| Some(*node) != own);
    let Some((node, cpu)) = others.filter_map(|(node, cpus)| Some((node, is_other(cpus)?))).next()
    else {
        return Ok(None);
    };
    let entries = BUFFER_BYTES / 64;
    let build = move || Bound::to(cpu).map(|_bound| ring(entries, 64));
    let array = std::thread::spawn(build).join().expect("building a ring does not panic")?;
    Ok(Some((chase_through(&array), node)))
}

/// What taking write access from so many pages takes longer while another thread of the process runs on another
/// CPU, which has to be interrupted to flush; none where there is one CPU.
fn remote_flush(allowed: &[u32], pages: usize) -> std::io::Result<Option<f64>> {
    let Some(&other) = allowed.get(1) else { return Ok(None) };
    let alone = protect(pages, || {})?;
    let (stop, turns) = (AtomicBool::new(false), AtomicU64::new(0));
    let watched = std::thread::scope(|scope| {
        let spinner = scope.spawn(|| {
            let _bound = Bound::to(other)?;
            while !stop.load(Ordering::Relaxed) {
                turns.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<(), std::io::Error>(())
        });
        // Where other programs run, it may have lost its CPU: then there is nobody to interrupt.
        let it_runs = || {
            let before = turns.load(Ordering::Relaxed);
            while turns.load(Ordering::Relaxed) == before && !spinner.is_finished() {
                std::hint::spin_loop();
            }
        };
        let watched = protect(pages, it_runs);
        stop.store(true, Ordering::Relaxed);
        spinner.join().expect("counting does not panic")?;
        watched
    })?;
    Ok(Some(watched - alone))
}

/// The median time of an `mprotect` that takes write access from so many pages just written.
fn protect(pages: usize, mut before: impl FnMut()) -> std::io::Result<f64> {
    let mut times = Vec::new();
    let mut page = MmapMut::map_anon(pages * PAGE)?;
    for turn in 0..4001 {
        // So that their translations are in the TLB, and allow to write.
        (0..pages).for_each(|at| page[at * PAGE] = turn as u8);
        before();
        let start = Instant::now();
        let protected = page.make_read_only()?;
        times.push(start.elapsed().as_nanos());
        page = protected.make_mut()?;
    }
    times.sort_unstable();
    Ok(times[times.len() / 2] as f64)
}

/// CPU time of this thread, in nanoseconds.
fn cpu_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// The least CPU time of several repetitions, in nanoseconds for each of `count`: as [`least`], of work that can fail.
fn least_cpu_time(
    count: usize,
    mut work: impl FnMut() -> std::io::Result<()>,
) -> std::io::Result<f64> {
    let mut least = f64::INFINITY;
    for () in repetitions() {
        let before = cpu_time();
        work()?;
        least = least.min((cpu_time() - before) / count as f64);
    }
    Ok(least)
}

/// What it takes to take a clean page out of its file and free it; and what reclaim takes for one that is mapped,
/// none where a kernel does not do that when asked. None of both where files are memory themselves.
fn reclaim_page(place: &Place) -> std::io::Result<Option<(f64, Option<f64>)>> {
    const BYTES: usize = 32 << 20;
    let (file, at) = written(place, BYTES)?;
    // Of a file in memory no page can be forgotten.
    if is_in_memory(place, &file)? {
        return Ok(None);
    }
    let per_page = |start: Instant| start.elapsed().as_nanos() as f64 / (BYTES / PAGE) as f64;
    let forget = || fadvise(&file, at, NonZeroU64::new(BYTES as u64), rustix::fs::Advice::DontNeed);
    // What was written may be in larger pieces.
    forget()?;
    // Each page is read alone, and so is one of a small size.
    let read = || -> std::io::Result<Mmap> {
        // SAFETY: nobody else has the nameless file, nor writes to the device's part.
        #[allow(unsafe_code, reason = "what is mapped could change; here it does not")]
        let map = unsafe { MmapOptions::new().offset(at).len(BYTES).map(&file)? };
        map.advise(Advice::Random)?;
        for page in map.chunks_exact(PAGE) {
            black_box(page[0]);
        }
        Ok(map)
    };
    let (mut plain, mut mapped) = (f64::INFINITY, Some(f64::INFINITY));
    for () in repetitions() {
        drop(read()?);
        let start = Instant::now();
        forget()?;
        plain = plain.min(per_page(start));
        let map = read()?;
        let start = Instant::now();
        // SAFETY: the range is the mapping's, and what is paged out is read from the file again.
        #[allow(unsafe_code, reason = "memmap2 does not know this advice")]
        let advised = unsafe {
            madvise(map.as_ptr().cast_mut().cast(), BYTES, rustix::mm::Advice::LinuxPageOut)
        };
        let least = mapped.map(|least| least.min(per_page(start)));
        mapped = least.filter(|_| advised.is_ok());
    }
    Ok(Some((plain, mapped)))
}

/// Whether a place's files are memory. A device's own name may lie in memory: that says nothing.
fn is_in_memory(place: &Place, file: &File) -> std::io::Result<bool> {
    let is_memory = matches!(fstatfs(file)?.f_type as u64, TMPFS_MAGIC | RAMFS_MAGIC);
    Ok(is_memory && matches!(place, Place::Folder(_)))
}

/// CPU time of what writing to a page takes besides the copy, in nanoseconds.
struct Written {
    /// Putting the page into its file.
    put: f64,
    /// The rest.
    over: f64,
}

/// What writing to pages takes; none where files are memory themselves.
fn write_pages(place: &Place) -> std::io::Result<Option<Written>> {
    const BYTES: usize = 32 << 20;
    let (file, at) = written(place, BYTES)?;
    if is_in_memory(place, &file)? {
        return Ok(None);
    }
    let mut page = [1; PAGE];
    let places = || (0..BYTES / PAGE).map(|n| at + (n * PAGE) as u64);
    let (mut new, mut again, mut read) = (f64::INFINITY, f64::INFINITY, f64::INFINITY);
    for () in repetitions() {
        // What was written has to be on the disk before it can be forgotten.
        file.sync_data()?;
        fadvise(&file, at, NonZeroU64::new(BYTES as u64), rustix::fs::Advice::DontNeed)?;
        for least in [&mut new, &mut again] {
            let before = cpu_time();
            places().try_for_each(|at| file.write_all_at(&page, at))?;
            *least = least.min(cpu_time() - before);
        }
        let before = cpu_time();
        places().try_for_each(|at| file.read_exact_at(&mut page, at))?;
        read = read.min(cpu_time() - before);
    }
    let pages = (BYTES / PAGE) as f64;
    Ok(Some(Written { put: (new - again) / pages, over: (again - read) / pages }))
}

/// CPU time of one of the two changes that a file goes through which is made and removed, in nanoseconds; none without a
/// folder, or where files are memory.
fn metadata_change(place: &Place) -> std::io::Result<Option<f64>> {
    const FILES: usize = 256;
    let Place::Folder(folder) = place else { return Ok(None) };
    let opened = File::open(folder)?;
    if is_in_memory(place, &opened)? {
        return Ok(None);
    }
    // One file at a time: whoever interrupts this leaves no more than that.
    let make = || tempfile::NamedTempFile::new_in(folder)?.close();
    let open = || File::open(folder).map(drop);
    let both = least_cpu_time(FILES, || (0..FILES).try_for_each(|_| make()))?;
    let opening = least_cpu_time(FILES, || (0..FILES).try_for_each(|_| open()))?;
    Ok(Some((both - opening) / 2.0))
}

impl Shrinkers {
    /// What it takes the kernel to ask all of them in vain; none if that may not be.
    fn ask(self) -> std::io::Result<Option<f64>> {
        /// What was used a moment ago is only given up when it is met again.
        const ROUNDS: usize = 20;
        const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
        if self == Self::Spared {
            return Ok(None);
        }
        let of = |error| std::io::Error::other(format!("{DROP_CACHES}: {error}"));
        let mut file = File::options().write(true).open(DROP_CACHES).map_err(of)?;
        let mut failed = Ok(());
        let mut drop_slab = || {
            failed = std::mem::replace(&mut failed, Ok(())).and(file.write_all(b"2"));
        };
        let rounds = (0..ROUNDS).map(|_| least(1, &mut drop_slab));
        let ns = rounds.fold(f64::INFINITY, f64::min);
        failed.map(|()| Some(ns)).map_err(of)
    }
}

/// CPU time of a transfer that goes past the page cache, in a place; none where that cannot be.
fn block_request(place: &Place, system_call: f64) -> std::io::Result<Option<f64>> {
    const PAGES: usize = 2048;
    let Some(file) = DirectFile::new(place, PAGES * PAGE)? else { return Ok(None) };
    let mut page = MmapMut::map_anon(PAGE)?;
    let order = shuffled(PAGES);
    let least =
        least_cpu_time(PAGES, || order.iter().try_for_each(|&n| file.read(&mut page, n * PAGE)))?;
    Ok(Some(least - system_call))
}

fn lock_pair() -> f64 {
    let (lock, inside) = (AtomicBool::new(false), AtomicU64::new(0));
    least(1_000_000, || {
        for _ in 0..1_000_000 {
            let free = lock.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
            inside.fetch_add(u64::from(free.is_ok()), Ordering::Relaxed);
            lock.store(false, Ordering::Release);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_leads_through_every_entry_before_it_comes_back() {
        let (entries, stride) = (1000, 64);
        let array = ring(entries, stride);
        let mut at = 0;
        let mut seen = vec![false; entries];
        for _ in 0..entries {
            assert!(!std::mem::replace(&mut seen[at / (stride / 8)], true));
            at = array[at] as usize;
        }
        assert_eq!(at, 0);
    }

    #[test]
    fn what_takes_long_is_repeated_twice_and_what_does_not_five_times() {
        assert_eq!(repetitions().count(), REPETITIONS);
        let long = repetitions().map(|()| std::thread::sleep(REPEATING));
        assert_eq!(long.count(), LEAST_REPETITIONS);
    }

    #[test]
    fn a_bound_thread_is_free_again_afterwards() {
        let before = allowed_cpus().unwrap();
        let bound = Bound::to(before[0]).unwrap();
        assert_eq!(allowed_cpus().unwrap(), [before[0]]);
        drop(bound);
        assert_eq!(allowed_cpus().unwrap(), before);
    }

    #[test]
    fn a_remote_flush_costs_something_where_there_is_another_cpu() {
        let allowed = allowed_cpus().unwrap();
        let _bound = Bound::to(allowed[0]).unwrap();
        for pages in [1, FLUSHES_ALL] {
            let flush = remote_flush(&allowed, pages).unwrap();
            assert_eq!(flush.is_some(), allowed.len() > 1);
            assert_eq!(remote_flush(&allowed[..1], pages).unwrap(), None);
        }
    }

    #[test]
    fn without_another_node_there_is_no_remote_access() {
        let allowed = allowed_cpus().unwrap();
        assert_eq!(remote_access(&allowed, std::slice::from_ref(&allowed)).unwrap(), None);
    }
}
