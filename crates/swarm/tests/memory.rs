//! What a run takes of memory does not grow with how long it lasts.

#![allow(unsafe_code, reason = "an allocator that counts")]

mod common;

use common::run;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static HELD_BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, with what it has given out.
struct Counting;

// SAFETY: each call is handed to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD_BYTES.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK_BYTES.fetch_max(held, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD_BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that services take at most which run for so many seconds, with a sample each hour, the longest there is: samples are
/// kept.
fn peak_bytes(seconds: u32) -> usize {
    let workload = format!(
        "name = \"fleet\"\nseconds = {seconds}\nperiod_ms = 1000\nanon = 0.4\nfiles = 0.3\ntree = 0.05\n\
         file_size = \"4 MiB\"\nsmall_files = 50\nsmall_file_turnover = 8\nanon_turnover = \"2 MiB\"\n\
         file_turnover = \"2 MiB\"\nthreads = 1"
    );
    let held = HELD_BYTES.load(Relaxed);
    PEAK_BYTES.store(held, Relaxed);
    run(&[(96, 1)], 3_600_000, &workload, "kernel = \"linux-6.12\"\nswap_mib = 64")
        .expect("it runs");
    PEAK_BYTES.load(Relaxed) - held
}

/// Issue 23: every file that had ever been opened left a place in its thread's table.
#[test]
fn a_run_of_four_times_the_time_takes_no_more_memory() {
    // In eighty minutes memory has filled, the lists that say what of it went to swap have their lengths, and the longest
    // stall has a place in its histogram.
    let (short, long) = (peak_bytes(4800), peak_bytes(19_200));
    println!("{short} and {long} bytes");
    assert!(long < short + short / 10, "{short} bytes for 4,800 s, {long} for 19,200 s");
}
