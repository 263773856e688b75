//! Memory of a process: mappings, loads and stores, and what the kernel is told of them.
//!
//! A mapping begins at a multiple of a huge page unless it may lie anywhere, and is not inherited by processes
//! started later (`MADV_DONTFORK`): memory that two processes share until one of them writes would be copied
//! then, and counted as faults that no workload asked for.
//!
//! A mapping may be larger than memory and swap together (`MAP_NORESERVE`): what that leads to is for the
//! workload to find out.
//!
//! A file is mapped shared. Touching behind its end would end the process by a signal, so its size is looked
//! at before: each thread keeps what it saw until some file of the run is cut.
//! Departs: a file that another thread cuts in the moment between looking and touching ends the process.
//! Visible as: such a run is an error that names SIGBUS, not a refusal.
//!
//! What is stored is never 0 and differs from word to word, because kernels keep pages of zeros, and of
//! one repeated word, in another way: mm/page_io.c (`swap_zeromap_folio_set`, 6.11), mm/zswap.c
//! (`zswap_is_page_same_filled`).

#![allow(
    unsafe_code,
    reason = "real memory, and system calls about it, are what this module is for"
)]

use highorder_system::{Access, Extent, MemPolicy};
use rustix::mm::{
    Advice, MapFlags, ProtFlags, madvise, mlock, mmap, mmap_anonymous, munlock, munmap,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// mm/mempolicy.c, include/uapi/linux/mempolicy.h.
const MPOL_DEFAULT: i32 = 0;
const MPOL_PREFERRED: i32 = 1;
const MPOL_BIND: i32 = 2;
const MPOL_INTERLEAVE: i32 = 3;
const MPOL_LOCAL: i32 = 4;
const MPOL_PREFERRED_MANY: i32 = 5;

/// A range of pages: page numbers are addresses divided by the page's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) first: u64,
    pub(crate) end: u64,
}

/// The file behind a mapping.
#[derive(Debug)]
pub(crate) struct Mapped {
    file: File,
    /// Page number of the mapping's first page less that of the file's page there: it holds for parts too.
    shift: i64,
    /// Whether it may be written.
    access: Access,
}

impl Mapped {
    /// The page of the mapping that the file ends before; it may lie before the mapping.
    fn end(&self, page_bytes: u64) -> io::Result<i64> {
        Ok(self.shift + self.file.metadata()?.len().div_ceil(page_bytes) as i64)
    }
}

/// A range that is mapped.
#[derive(Clone, Debug)]
struct Region {
    end: u64,
    /// None for anonymous memory.
    file: Option<Arc<Mapped>>,
}

/// What was unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unmapped {
    Anonymous,
    File,
}

/// The mappings of a process.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    /// Each by its first page.
    regions: Mutex<BTreeMap<u64, Region>>,
    /// Rises whenever something is unmapped, so that threads forget what they know.
    unmapped: AtomicU64,
}

/// What a thread remembers of the mappings: the one it touched last.
#[derive(Clone, Debug)]
pub(crate) struct Remembered {
    range: Range,
    file: Option<Arc<Mapped>>,
    unmapped: u64,
    /// Where the file ended, when this many had been cut.
    file_end: i64,
    cuts: u64,
}

impl Remembered {
    pub(crate) const NOTHING: Self =
        Self { range: Range { first: 0, end: 0 }, file: None, unmapped: 0, file_end: 0, cuts: 0 };

    /// Whether what is remembered may be touched so in this range, of which it holds all; `cuts` is how
    /// often a file of the run was cut.
    pub(crate) fn may_touch(
        &mut self,
        range: Range,
        access: Access,
        page_bytes: u64,
        cuts: u64,
    ) -> Result<(), String> {
        let Some(mapped) = &self.file else { return Ok(()) };
        if access == Access::Write && mapped.access == Access::Read {
            return Err("the file is mapped for reading only".to_owned());
        }
        // A file that has grown since is looked at again before anything is refused.
        let end = range.end as i64;
        if cuts != self.cuts || end > self.file_end {
            self.file_end = mapped.end(page_bytes).map_err(|error| format!("fstat: {error}"))?;
            self.cuts = cuts;
        }
        if end > self.file_end {
            let (pages, asked) = (self.file_end - mapped.shift, end - mapped.shift);
            return Err(format!("page {asked} of a file of {pages} pages is behind its end"));
        }
        Ok(())
    }
}

/// Maps bytes of anonymous memory where the kernel puts them, and gives their address.
fn mmap_private(bytes: u64) -> io::Result<u64> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes as usize, access, flags)? };
    Ok(at as u64)
}

impl Mappings {
    /// Maps this many pages of anonymous memory.
    pub(crate) fn map(&self, pages: u64, page_bytes: u64, huge_pages: u64) -> io::Result<u64> {
        if pages == 0 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // More than is asked for, and then both ends cut off.
        let all = (pages + huge_pages) * page_bytes;
        let begin = mmap_private(all)?;
        let first = begin.next_multiple_of(huge_pages * page_bytes);
        let end = first + pages * page_bytes;
        for (from, to) in [(begin, first), (end, begin + all)] {
            if to > from {
                // SAFETY: part of the mapping just made, of which nothing else knows.
                unsafe { munmap(from as *mut _, (to - from) as usize)? };
            }
        }
        self.keep(first / page_bytes, pages, page_bytes, None)
    }

    /// Maps this many pages of anonymous memory where the kernel puts them.
    pub(crate) fn map_anywhere(&self, pages: u64, page_bytes: u64) -> io::Result<u64> {
        let at = mmap_private(pages * page_bytes)?;
        self.keep(at / page_bytes, pages, page_bytes, None)
    }

    /// Maps pages of a file, shared.
    pub(crate) fn map_file(
        &self,
        file: File,
        (first_of_file, pages): (u64, u64),
        access: Access,
        page_bytes: u64,
    ) -> io::Result<u64> {
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let bytes = pages.checked_mul(page_bytes).filter(|&bytes| bytes > 0).ok_or_else(invalid)?;
        let offset = first_of_file.checked_mul(page_bytes).ok_or_else(invalid)?;
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::Write => ProtFlags::READ | ProtFlags::WRITE,
        };
        let null = std::ptr::null_mut();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at =
            unsafe { mmap(null, bytes as usize, protection, MapFlags::SHARED, &file, offset)? };
        let first = at as u64 / page_bytes;
        // Both are far from the sign: addresses have 47 bits, offsets of files 63, and a page 12 of them.
        let shift = first as i64 - first_of_file as i64;
        self.keep(first, pages, page_bytes, Some(Arc::new(Mapped { file, shift, access })))
    }

    /// Keeps a new mapping from processes started later, and notes it.
    fn keep(
        &self,
        first: u64,
        pages: u64,
        page_bytes: u64,
        file: Option<Arc<Mapped>>,
    ) -> io::Result<u64> {
        let at = (first * page_bytes) as *mut _;
        // SAFETY: the mapping just made, of which nothing else knows.
        unsafe { madvise(at, (pages * page_bytes) as usize, Advice::LinuxDontFork)? };
        self.lock().insert(first, Region { end: first + pages, file });
        Ok(first)
    }

    /// Unmaps a range; none if not all of it was mapped.
    pub(crate) fn unmap(&self, range: Range, page_bytes: u64) -> io::Result<Option<Unmapped>> {
        let mut regions = self.lock();
        let Some((first, region)) = around(&regions, range) else { return Ok(None) };
        self.unmapped.fetch_add(1, Ordering::SeqCst);
        let at = (range.first * page_bytes) as *mut _;
        // SAFETY: it is within a mapping of ours, and nothing of Rust's lies in it.
        unsafe { munmap(at, ((range.end - range.first) * page_bytes) as usize)? };
        regions.remove(&first);
        let what = if region.file.is_some() { Unmapped::File } else { Unmapped::Anonymous };
        if first < range.first {
            regions.insert(first, Region { end: range.first, ..region.clone() });
        }
        if range.end < region.end {
            regions.insert(range.end, region);
        }
        Ok(Some(what))
    }

    /// Unmaps everything, as the end of a process does; returns how many pages of anonymous memory that were.
    pub(crate) fn unmap_all(&self, page_bytes: u64) -> u64 {
        let ranges: Vec<Range> =
            self.lock().iter().map(|(&first, region)| Range { first, end: region.end }).collect();
        let unmap = |&range: &Range| match self.unmap(range, page_bytes) {
            Ok(Some(Unmapped::Anonymous)) => range.end - range.first,
            _ => 0,
        };
        ranges.iter().map(unmap).sum()
    }

    /// Whether all of a range is mapped; what holds it is remembered then.
    pub(crate) fn has(&self, range: Range, remembered: &mut Remembered) -> bool {
        let unmapped = self.unmapped.load(Ordering::SeqCst);
        let known = remembered.range;
        if remembered.unmapped == unmapped && known.first <= range.first && range.end <= known.end {
            return true;
        }
        match around(&self.lock(), range) {
            Some((first, Region { end, file })) => {
                // Where a file ends is seen when it is first touched.
                let range = Range { first, end };
                *remembered = Remembered { range, file, unmapped, file_end: 0, cuts: 0 };
                true
            }
            None => false,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Region>> {
        self.regions.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// The mapping that holds all of a range.
fn around(regions: &BTreeMap<u64, Region>, range: Range) -> Option<(u64, Region)> {
    let (&first, region) = regions.range(..=range.first).next_back()?;
    (range.first < range.end && range.end <= region.end).then(|| (first, region.clone()))
}

/// Touches each page of a range.
///
/// # Safety
/// All of it is mapped by [`Mappings`], and may be touched so: see [`Remembered::may_touch`].
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
/// All of the range is mapped by [`Mappings`].
pub(crate) unsafe fn ask(range: Range, page_bytes: u64, ask: Ask) -> io::Result<()> {
    let at = (range.first * page_bytes) as *mut libc::c_void;
    let bytes = ((range.end - range.first) * page_bytes) as usize;
    // SAFETY: the caller's promise. None of these changes what Rust code relies on: contents become
    // zeros at most, and words are read as volatile.
    unsafe {
        match ask {
            Ask::Advise(advice) => madvise(at, bytes, native(advice)?)?,
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
        MemPolicy::Local => Ok((MPOL_LOCAL, 0)),
        MemPolicy::PreferredMany(mask) => Ok((MPOL_PREFERRED_MANY, mask)),
        MemPolicy::Preferred(node) if node.0 < 64 => Ok((MPOL_PREFERRED, node.bit())),
        MemPolicy::Preferred(_) => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        MemPolicy::Bind(mask) => Ok((MPOL_BIND, mask)),
        MemPolicy::Interleave(mask) => Ok((MPOL_INTERLEAVE, mask)),
    }
}

fn native(advice: highorder_system::Advice) -> io::Result<Advice> {
    match advice {
        highorder_system::Advice::Huge => Ok(Advice::LinuxHugepage),
        highorder_system::Advice::NoHuge => Ok(Advice::LinuxNoHugepage),
        // What was advised of huge pages can be turned round, not taken back.
        highorder_system::Advice::NeitherHuge => Err(io::ErrorKind::Unsupported.into()),
        highorder_system::Advice::DontNeed => Ok(Advice::LinuxDontNeed),
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
        assert_eq!(mappings.unmap(hole, PAGE).unwrap(), Some(Unmapped::Anonymous));
        assert!(!mappings.has(all, &mut remembered), "threads forget");
        assert_eq!(mappings.unmap(hole, PAGE).unwrap(), None, "it is gone");
        assert!(mappings.has(Range { first: first + 20, end: first + 1000 }, &mut remembered));
        assert_eq!(mappings.unmap_all(PAGE), 990);
        assert!(!mappings.has(Range { first, end: first + 1 }, &mut remembered));
    }

    #[test]
    fn a_mapped_file_is_touched_up_to_its_end_and_as_it_was_mapped() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(2 * PAGE + 1).unwrap();
        let mappings = Mappings::default();
        let other = file.try_clone().unwrap();
        let first = mappings.map_file(other, (1, 4), Access::Write, PAGE).unwrap();
        let pages = |from: u64, to: u64| Range { first: first + from, end: first + to };
        let mut remembered = Remembered::NOTHING;
        let mut may = |range, access, cuts| {
            assert!(mappings.has(range, &mut remembered));
            remembered.may_touch(range, access, PAGE, cuts)
        };
        assert_eq!(may(pages(0, 2), Access::Write, 0), Ok(()), "a part of a page is a page");
        let error = may(pages(0, 3), Access::Read, 0).unwrap_err();
        assert_eq!(error, "page 4 of a file of 3 pages is behind its end");
        file.set_len(5 * PAGE).unwrap();
        assert_eq!(may(pages(0, 4), Access::Read, 0), Ok(()), "it has grown");
        file.set_len(2 * PAGE).unwrap();
        assert!(may(pages(1, 2), Access::Read, 1).is_err(), "it was cut");
        assert_eq!(may(pages(0, 1), Access::Read, 1), Ok(()));
        // SAFETY: mapped above and not behind the end.
        unsafe { touch(pages(0, 1), PAGE, Access::Write, Extent::Whole) };
        assert_eq!(mappings.unmap(pages(0, 1), PAGE).unwrap(), Some(Unmapped::File));
        let mut remembered = Remembered::NOTHING;
        assert!(mappings.has(pages(1, 4), &mut remembered));
        assert_eq!(mappings.unmap_all(PAGE), 0, "no anonymous memory");
        use std::os::unix::fs::FileExt;
        let mut word = [0; 8];
        file.read_exact_at(&mut word, PAGE).unwrap();
        assert_ne!(word, [0; 8], "what was stored is in the file");
        let first = mappings.map_file(file, (0, 1), Access::Read, PAGE).unwrap();
        let range = Range { first, end: first + 1 };
        assert!(mappings.has(range, &mut remembered));
        assert!(remembered.may_touch(range, Access::Write, PAGE, 1).is_err(), "only for reading");
        mappings.unmap_all(PAGE);
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
