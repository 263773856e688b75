//! What swapping takes besides the transfers.

#![allow(
    clippy::disallowed_types,
    reason = "measuring real time is what it is for; no result of the model depends on it"
)]

use super::disk::disk_of;
use super::{Measured, PAGE, cost_of, cpu_time, repetitions};
use memmap2::{Advice, MmapMut};
use rustix::mm::madvise;
use std::fs;
use std::hint::black_box;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// What is swapped out and in.
const BYTES: usize = 64 << 20;
const PAGES: f64 = (BYTES / PAGE) as f64;
/// How long writing may go on.
const WRITING: Duration = Duration::from_millis(500);
/// Where the kernel says at boot whether it fills each page that it gives away.
const KERNEL_LOG: &str = "/dev/kmsg";

/// Times of a page, in nanoseconds.
struct Swapped {
    out: f64,
    back: f64,
}

/// Measures `swap_out` and `swap_in` on a machine whose only swap area is this disk, and that does nothing else:
/// memory is filled meanwhile, so that nothing stays in the swap cache. Replaces what [`super::measure`] derived, unless
/// the kernel does not swap out when asked (before 5.4).
///
/// # Errors
/// The disk's statistics or memory could not be had.
pub fn measure_swap(disk: &Path, costs: &mut Vec<Measured>) -> io::Result<()> {
    let of = |name: &str| cost_of(costs, name);
    let (request, rmap, fault) = (of("block_request"), of("rmap_walk"), of("fault_entry"));
    let fills = fills_pages()?;
    let filling = if fills { of("clear_base_page") } else { 0.0 };
    let statistics = disk_of(Path::new("/"), fs::metadata(disk)?.rdev());
    let statistics = statistics.ok_or_else(|| io::Error::other("the swap disk is not in /sys"))?;
    let mut least = Swapped { out: f64::INFINITY, back: f64::INFINITY };
    for () in repetitions() {
        let Some(swapped) = swap_once(&statistics.join("stat"), request)? else { return Ok(()) };
        least.out = least.out.min(swapped.out - rmap);
        least.back = least.back.min(swapped.back - fault - filling);
    }
    let with_filling = if fills { ", clear_base_page" } else { "" };
    let found = [
        (
            "swap_out",
            least.out,
            "measured: CPU time of MADV_PAGEOUT of 64 MiB, less rmap_walk and block_request"
                .to_owned(),
        ),
        (
            "swap_in",
            least.back,
            format!(
                "measured: CPU time of touching 64 MiB in swap, less fault_entry{with_filling} and block_request"
            ),
        ),
    ];
    for (name, ns, source) in found {
        costs.retain(|cost| cost.name != name);
        costs.push(Measured::new(name, ns, source));
    }
    Ok(())
}

/// CPU time of a page on its way out and back, less that of the transfers; none if nothing was swapped.
fn swap_once(statistics: &Path, request: f64) -> io::Result<Option<Swapped>> {
    let mut area = touched(BYTES)?;
    let (_, writes) = requests(statistics)?;
    let began = cpu_time();
    // SAFETY: the range is the mapping's, and what is paged out is read from swap again.
    #[allow(unsafe_code, reason = "memmap2 does not know this advice")]
    let advised =
        unsafe { madvise(area.as_mut_ptr().cast(), BYTES, rustix::mm::Advice::LinuxPageOut) };
    if advised.is_err() {
        return Ok(None);
    }
    let out = cpu_time() - began;
    std::thread::sleep(WRITING);
    let writes = requests(statistics)?.1 - writes;
    // What is still in memory, clean and unused, goes first where memory is short.
    drop(touched(available_bytes()? + 2 * BYTES)?);
    let (reads, _) = requests(statistics)?;
    let began = cpu_time();
    for page in area.chunks_exact(PAGE) {
        black_box(page[0]);
    }
    let back = cpu_time() - began;
    let reads = requests(statistics)?.0 - reads;
    if reads == 0 || writes == 0 {
        return Ok(None);
    }
    let each = |time: f64, requests: u64| (time - requests as f64 * request) / PAGES;
    Ok(Some(Swapped { out: each(out, writes), back: each(back, reads) }))
}

/// So much memory, as base pages, each of which was written.
fn touched(bytes: usize) -> io::Result<MmapMut> {
    let mut area = MmapMut::map_anon(bytes)?;
    // A kernel without huge pages does not know the advice.
    let _ = area.advise(Advice::NoHugePage);
    for page in area.chunks_mut(PAGE) {
        page[0] = 1;
    }
    Ok(area)
}

/// Reads and writes that a disk has done.
fn requests(statistics: &Path) -> io::Result<(u64, u64)> {
    let text = fs::read_to_string(statistics)?;
    let field = |at: usize| text.split_whitespace().nth(at)?.parse().ok();
    let both = field(0).zip(field(4));
    both.ok_or_else(|| io::Error::other(format!("{}: too few fields", statistics.display())))
}

/// What programs could have without swapping.
fn available_bytes() -> io::Result<usize> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: Option<usize> = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| io::Error::other("/proc/meminfo has no MemAvailable"))
}

/// Whether the kernel fills each page that it gives away (`init_on_alloc`), by what it said at boot.
fn fills_pages() -> io::Result<bool> {
    use std::io::Read;
    let mut log = fs::File::open(KERNEL_LOG)?;
    rustix::fs::fcntl_setfl(&log, rustix::fs::OFlags::NONBLOCK)?;
    let mut entry = vec![0; 8192];
    while let Ok(read @ 1..) = log.read(&mut entry) {
        let entry = String::from_utf8_lossy(&entry[..read]);
        if entry.contains("mem auto-init:") {
            return Ok(entry.contains("heap alloc:on"));
        }
    }
    Ok(false)
}
