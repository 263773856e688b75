//! Measures what primitive work costs on the machine it runs on, for its machine file.
//!
//! Safe to run as any user: it allocates [`BUFFER_BYTES`] a few times and changes nothing. Each number is
//! the least of several repetitions, because whatever else runs can only make a repetition longer (but for
//! remote flushes, a median). Bound to
//! one CPU (`taskset -c 0`), `context_switch` is what its name says; else it contains the wakeup of another
//! CPU.
//!
//! What cannot be measured from user space is measured by its like: list operations and scanning by
//! arrays of 64-byte entries (the size of a `struct page`), the four-level walk by four dependent loads
//! from an array beyond the first cache.

#![allow(
    clippy::disallowed_types,
    reason = "measuring real time is what it is for; no result of the model depends on it"
)]

use std::hint::black_box;
use std::io::{Read, Write, pipe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Size of the buffers that have to be beyond every cache.
pub const BUFFER_BYTES: usize = 256 << 20;

const PAGE: usize = 4096;
const HUGE: usize = 2 << 20;
const REPETITIONS: usize = 5;

/// A measured cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Name in machine files.
    pub name: &'static str,
    /// Nanoseconds.
    pub ns: f64,
    /// How it was measured.
    pub how: &'static str,
}

/// Measures every cost that user space can; a few seconds.
///
/// # Errors
/// A pipe or a thread could not be had.
pub fn measure() -> std::io::Result<Vec<Measured>> {
    let mut all = Vec::new();
    let mut add = |name, ns, how| all.push(Measured { name, ns, how });
    let system_call = system_call()?;
    let [clear, copy] = clear_and_copy(PAGE);
    add("clear_base_page", clear, "fill of 4 KiB, random order over 256 MiB");
    add("copy_base_page", copy, "copy of 4 KiB, random order over 256 MiB");
    let [clear_huge, copy_huge] = clear_and_copy(HUGE);
    add("clear_huge_page", clear_huge, "fill of 2 MiB, random order over 256 MiB");
    add("copy_huge_page", copy_huge, "copy of 2 MiB, random order over 256 MiB");
    add("fault_entry", (fault() - clear).max(0.0), "first write to a page, less clear_base_page");
    let (round_trip, own) = ping_pong()?;
    add("system_call", system_call, "read of no bytes from a pipe");
    // A round trip is two switches, and at either end the write and read that `own` is.
    add("context_switch", (round_trip / 2.0 - own).max(0.0), "pipe between threads, less the pipe");
    let near = chase(PAGE / 64, 64);
    let far = chase(BUFFER_BYTES / 64, 64);
    let spread = chase(16 * 1024, PAGE + 64);
    add("tlb_miss_base", (spread - near).max(0.0), "chase over 16384 pages, a line of each");
    add("local_access", (far - (spread - near)).max(0.0), "chase over 256 MiB, less tlb_miss_base");
    add("pfn_scan", scan(), "reading 64-byte entries in a row");
    add("list_op", list_op(), "unlinking a random entry of a list of 64-byte entries");
    add("page_table_walk", 4.0 * chase(8 * 1024, 64), "four loads, chased over 512 KiB");
    add("tlb_flush_remote", remote_flush(), "munmap while another thread runs, less munmap alone");
    if let Some(ns) = block_request(system_call)? {
        add("block_request", ns, "CPU time of a direct read of 4 KiB, less system_call");
    }
    add("lock_pair", lock_pair(), "compare-and-swap and store on an own line");
    Ok(all)
}

/// The least of several repetitions, in nanoseconds for each of `count`.
fn least(count: usize, mut work: impl FnMut()) -> f64 {
    let once = || {
        let start = Instant::now();
        work();
        start.elapsed().as_nanos() as f64 / count as f64
    };
    std::iter::repeat_with(once).take(REPETITIONS).fold(f64::INFINITY, f64::min)
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

fn clear_and_copy(size: usize) -> [f64; 2] {
    let mut to = vec![1_u8; BUFFER_BYTES];
    let from = vec![2_u8; BUFFER_BYTES];
    let order = shuffled(BUFFER_BYTES / size);
    let clear = least(order.len(), || {
        for &n in &order {
            to[n * size..(n + 1) * size].fill(0);
        }
        black_box(&mut to);
    });
    let copy = least(order.len(), || {
        for &n in &order {
            // From elsewhere than to: both are out of every cache.
            let m = order[order.len() - 1 - n];
            to[n * size..(n + 1) * size].copy_from_slice(&from[m * size..(m + 1) * size]);
        }
        black_box(&mut to);
    });
    [clear, copy]
}

fn fault() -> f64 {
    let once = |_| {
        let mut fresh = vec![0_u8; BUFFER_BYTES];
        let start = Instant::now();
        for page in fresh.chunks_exact_mut(PAGE) {
            page[0] = 1;
        }
        black_box(&mut fresh);
        start.elapsed().as_nanos() as f64 / (BUFFER_BYTES / PAGE) as f64
    };
    (0..REPETITIONS).map(once).fold(f64::INFINITY, f64::min)
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
    let step = stride / 8;
    let order = shuffled(entries);
    let mut array = vec![0_u64; entries * step];
    for n in 0..entries {
        array[order[n] * step] = (order[(n + 1) % entries] * step) as u64;
    }
    let loads = entries.max(1 << 20);
    let mut at = 0;
    least(loads, || {
        for _ in 0..loads {
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

/// What unmapping a page takes longer while another thread of the process runs on another CPU, which then
/// has to be interrupted to flush. Nothing (0) where there is one CPU.
fn remote_flush() -> f64 {
    // The median: in its quickest moments the other thread has lost its CPU and needs no interrupt.
    let unmap = || {
        let mut times: Vec<u128> = (0..2001)
            .map(|_| {
                // Beyond any threshold of the allocator: mapped and unmapped each time.
                let mut fresh = vec![0_u8; 64 << 20];
                fresh[0] = 1;
                black_box(&mut fresh);
                let start = Instant::now();
                drop(fresh);
                start.elapsed().as_nanos()
            })
            .collect();
        times.sort_unstable();
        times[times.len() / 2] as f64
    };
    let alone = unmap();
    let stop = AtomicBool::new(false);
    let watched = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        // The other thread may share our CPU at first.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let watched = unmap();
        stop.store(true, Ordering::Relaxed);
        watched
    });
    (watched - alone).max(0.0)
}

/// CPU time of this thread, in nanoseconds: the first number of `schedstat`.
fn cpu_time() -> std::io::Result<Option<f64>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split(' ').next().and_then(|ns| ns.parse().ok()))
}

/// CPU time of a transfer that goes past the page cache, in a file of the temporary folder; none where the
/// file system cannot do that.
fn block_request(system_call: f64) -> std::io::Result<Option<f64>> {
    use std::os::unix::fs::{FileExt, OpenOptionsExt};
    /// `O_DIRECT` of x86-64: include/uapi/asm-generic/fcntl.h.
    const O_DIRECT: i32 = 0o40000;
    const PAGES: usize = 2048;
    let path = std::env::temp_dir().join(format!("highorder-calibrate-{}", std::process::id()));
    std::fs::write(&path, vec![1; PAGES * PAGE])?;
    let file = std::fs::OpenOptions::new().read(true).custom_flags(O_DIRECT).open(&path);
    std::fs::remove_file(&path)?;
    let Ok(file) = file else { return Ok(None) };
    file.sync_all()?;
    let mut buffer = vec![0_u8; 2 * PAGE];
    let aligned = buffer.as_ptr().align_offset(PAGE);
    let page = &mut buffer[aligned..aligned + PAGE];
    let order = shuffled(PAGES);
    let mut least = f64::INFINITY;
    for _ in 0..REPETITIONS {
        let Some(before) = cpu_time()? else { return Ok(None) };
        for &n in &order {
            file.read_exact_at(page, (n * PAGE) as u64)?;
        }
        let Some(after) = cpu_time()? else { return Ok(None) };
        least = least.min((after - before) / PAGES as f64);
    }
    Ok(Some((least - system_call).max(0.0)))
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
