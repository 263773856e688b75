//! Memory of a process: mappings, loads and stores, and what the kernel is told of them.
//!
//! A mapping begins at a multiple of a huge page and is not inherited by processes started later
//! (`MADV_DONTFORK`): memory that two processes share until one of them writes would be copied then, and
//! counted as faults that no workload asked for.
//!
//! A mapping may be larger than memory and swap together (`MAP_NORESERVE`): what that leads to is for the
//! workload to find out.
//!
//! What is stored is never 0 and differs from word to word, because kernels keep pages of zeros, and of
//! one repeated word, in another way: mm/page_io.c (`swap_zeromap_folio_set`, 6.11), mm/zswap.c
//! (`zswap_is_page_same_filled`).

#![allow(
    unsafe_code,
    reason = "real memory, and system calls about it, are what this module is for"
)]

use highorder_mm::anon::Access;
use highorder_mm::vma::MemPolicy;
use highorder_system::Extent;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap_anonymous, munlock, munmap};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// mm/mempolicy.c, include/uapi/linux/mempolicy.h.
const MPOL_DEFAULT: i32 = 0;
const MPOL_PREFERRED: i32 = 1;
const MPOL_BIND: i32 = 2;
const MPOL_INTERLEAVE: i32 = 3;

/// A range of pages: page numbers are addresses divided by the page's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) first: u64,
    pub(crate) end: u64,
}

/// The mappings of a process.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    /// The end of each by its first page.
    ranges: Mutex<BTreeMap<u64, u64>>,
    /// Rises whenever something is unmapped, so that threads forget what they know.
    unmapped: AtomicU64,
}

/// What a thread remembers of the mappings: the one it touched last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remembered {
    range: Range,
    unmapped: u64,
}

impl Remembered {
    pub(crate) const NOTHING: Self = Self { range: Range { first: 0, end: 0 }, unmapped: 0 };
}

impl Mappings {
    /// Maps this many pages.
    pub(crate) fn map(&self, pages: u64, page_bytes: u64, huge_pages: u64) -> io::Result<u64> {
        if pages == 0 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // More than is asked for, and then both ends cut off.
        let all = (pages + huge_pages) * page_bytes;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { mmap_anonymous(std::ptr::null_mut(), all as usize, access, flags)? };
        let begin = at as u64;
        let first = begin.next_multiple_of(huge_pages * page_bytes);
        let end = first + pages * page_bytes;
        for (from, to) in [(begin, first), (end, begin + all)] {
            if to > from {
                // SAFETY: part of the mapping just made, of which nothing else knows.
                unsafe { munmap(from as *mut _, (to - from) as usize)? };
            }
        }
        let bytes = (pages * page_bytes) as usize;
        // SAFETY: the rest of it.
        unsafe { madvise(first as *mut _, bytes, Advice::LinuxDontFork)? };
        let first = first / page_bytes;
        self.lock().insert(first, first + pages);
        Ok(first)
    }

    /// Unmaps a range; true if all of it was mapped.
    pub(crate) fn unmap(&self, range: Range, page_bytes: u64) -> io::Result<bool> {
        let mut ranges = self.lock();
        let Some((first, end)) = around(&ranges, range) else { return Ok(false) };
        self.unmapped.fetch_add(1, Ordering::SeqCst);
        let at = (range.first * page_bytes) as *mut _;
        // SAFETY: it is within a mapping that `map` made, and nothing of Rust's lies in it.
        unsafe { munmap(at, ((range.end - range.first) * page_bytes) as usize)? };
        ranges.remove(&first);
        if first < range.first {
            ranges.insert(first, range.first);
        }
        if range.end < end {
            ranges.insert(range.end, end);
        }
        Ok(true)
    }

    /// Unmaps everything, as the end of a process does; returns how many pages that were.
    pub(crate) fn unmap_all(&self, page_bytes: u64) -> u64 {
        let ranges: Vec<(u64, u64)> = self.lock().iter().map(|(&a, &b)| (a, b)).collect();
        let unmap = |&(first, end): &(u64, u64)| match self.unmap(Range { first, end }, page_bytes)
        {
            Ok(true) => end - first,
            _ => 0,
        };
        ranges.iter().map(unmap).sum()
    }

    /// Whether all of a range is mapped.
    pub(crate) fn has(&self, range: Range, remembered: &mut Remembered) -> bool {
        let unmapped = self.unmapped.load(Ordering::SeqCst);
        let known = remembered.range;
        if remembered.unmapped == unmapped && known.first <= range.first && range.end <= known.end {
            return true;
        }
        match around(&self.lock(), range) {
            Some((first, end)) => {
                *remembered = Remembered { range: Range { first, end }, unmapped };
                true
            }
            None => false,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, u64>> {
        self.ranges.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// The mapping that holds all of a range.
fn around(ranges: &BTreeMap<u64, u64>, range: Range) -> Option<(u64, u64)> {
    let (&first, &end) = ranges.range(..=range.first).next_back()?;
    (range.first < range.end && range.end <= end).then_some((first, end))
}

/// Touches each page of a range.
///
/// # Safety
/// All of it is mapped, by [`Mappings::map`].
pub(crate) unsafe fn touch(range: Range, page_bytes: u64, access: Access, extent: Extent) {
    const WORD: u64 = size_of::<u64>() as u64;
    let (begin, end) = (range.first * page_bytes, range.end * page_bytes);
    let step = match extent {
        Extent::Word => page_bytes,
        Extent::Whole => WORD,
    };
    let mut at = begin;
    let mut sum = 0_u64;
    while at < end {
        let word = at as *mut u64;
        // SAFETY: mapped, aligned, and any bits are a u64. Volatile: other threads may touch it as well,
        // and what is stored is never looked at.
        match access {
            Access::Read => sum = sum.wrapping_add(unsafe { word.read_volatile() }),
            Access::Write => unsafe { word.write_volatile(at | 1) },
        }
        at += step;
    }
    black_box(sum);
}

/// What is asked of a range that is mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask {
    Advise(highorder_system::Advice),
    Bind(MemPolicy),
    Lock(bool),
}

/// Asks the kernel for it.
///
/// # Safety
/// All of the range is mapped, by [`Mappings::map`].
pub(crate) unsafe fn ask(range: Range, page_bytes: u64, ask: Ask) -> io::Result<()> {
    let at = (range.first * page_bytes) as *mut libc::c_void;
    let bytes = ((range.end - range.first) * page_bytes) as usize;
    // SAFETY: the caller's promise. None of these changes what Rust code relies on: contents become
    // zeros at most, and words are read as volatile.
    unsafe {
        match ask {
            Ask::Advise(advice) => madvise(at, bytes, native(advice))?,
            Ask::Lock(true) => mlock(at, bytes)?,
            Ask::Lock(false) => munlock(at, bytes)?,
            Ask::Bind(policy) => {
                let (mode, mask) = mode(policy)?;
                let mask = [mask];
                checked(libc::syscall(
                    libc::SYS_mbind,
                    at,
                    bytes,
                    mode,
                    mask.as_ptr(),
                    MASK_BITS,
                    0,
                ))?;
            }
        }
    }
    Ok(())
}

/// One more than the bits of a mask of 64: the kernel takes one off (mm/mempolicy.c, `get_nodes`).
const MASK_BITS: libc::c_ulong = 65;

/// Sets the calling thread's policy.
pub(crate) fn set_mempolicy(policy: MemPolicy) -> io::Result<()> {
    let (mode, mask) = mode(policy)?;
    let mask = [mask];
    // SAFETY: the mask is read and has as many bits.
    checked(unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask.as_ptr(), MASK_BITS) })
}

fn checked(result: libc::c_long) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn mode(policy: MemPolicy) -> io::Result<(i32, u64)> {
    match policy {
        MemPolicy::Default => Ok((MPOL_DEFAULT, 0)),
        MemPolicy::Preferred(node) if node < 64 => Ok((MPOL_PREFERRED, 1 << node)),
        MemPolicy::Preferred(_) => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        MemPolicy::Bind(mask) => Ok((MPOL_BIND, mask)),
        MemPolicy::Interleave(mask) => Ok((MPOL_INTERLEAVE, mask)),
    }
}

fn native(advice: highorder_system::Advice) -> Advice {
    match advice {
        highorder_system::Advice::Huge => Advice::LinuxHugepage,
        highorder_system::Advice::NoHuge => Advice::LinuxNoHugepage,
        highorder_system::Advice::DontNeed => Advice::LinuxDontNeed,
    }
}

/// Whether a page is there (`mincore`).
pub(crate) fn is_present(page: u64, page_bytes: u64) -> io::Result<bool> {
    let mut answer = 0_u8;
    // SAFETY: one page, one byte of answer; an address that is not mapped is an error.
    let done = unsafe {
        libc::mincore((page * page_bytes) as *mut _, page_bytes as usize, &raw mut answer)
    };
    if done == 0 { Ok(answer & 1 != 0) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    #[test]
    fn mappings_begin_at_huge_pages_and_are_touched_only_where_they_are() {
        let mappings = Mappings::default();
        let first = mappings.map(1000, PAGE, 512).unwrap();
        assert_eq!(first % 512, 0);
        let all = Range { first, end: first + 1000 };
        let mut remembered = Remembered::NOTHING;
        assert!(mappings.has(all, &mut remembered));
        assert!(!mappings.has(Range { first, end: first + 1001 }, &mut remembered));
        let hole = Range { first: first + 10, end: first + 20 };
        assert!(!is_present(first + 15, PAGE).unwrap());
        // SAFETY: mapped above.
        unsafe { touch(hole, PAGE, Access::Write, Extent::Word) };
        assert!(is_present(first + 15, PAGE).unwrap());
        assert!(mappings.unmap(hole, PAGE).unwrap());
        assert!(!mappings.has(all, &mut remembered), "threads forget");
        assert!(!mappings.unmap(hole, PAGE).unwrap(), "it is gone");
        assert!(mappings.has(Range { first: first + 20, end: first + 1000 }, &mut remembered));
        assert_eq!(mappings.unmap_all(PAGE), 990);
        assert!(!mappings.has(Range { first, end: first + 1 }, &mut remembered));
    }

    #[test]
    fn words_stored_are_neither_zero_nor_all_the_same() {
        let mappings = Mappings::default();
        let first = mappings.map(1, PAGE, 512).unwrap();
        let range = Range { first, end: first + 1 };
        // SAFETY: mapped above.
        let words: Vec<u64> = unsafe {
            touch(range, PAGE, Access::Write, Extent::Whole);
            touch(range, PAGE, Access::Read, Extent::Whole);
            (0..512).map(|i| *((first * PAGE) as *const u64).add(i)).collect()
        };
        assert!(words.iter().all(|&word| word != 0));
        assert!(words.windows(2).all(|pair| pair[0] != pair[1]));
        mappings.unmap_all(PAGE);
    }
}
