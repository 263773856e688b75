//! Reading and writing files through the page cache.
//!
//! Models: `generic_file_read`, `ondemand_readahead`, `generic_perform_write`, mm/filemap.c and
//! mm/readahead.c, v4.4 and v6.12; `truncate_inode_pages`, mm/truncate.c.
//! Departs: pages are of order 0 (as on ext4 before 6.16). A page that a write covers in part and that is
//! not in memory is read first only if it lies on the disk. Visible as: nothing, but what file systems
//! with smaller blocks spare.

use super::fault::Killed;
use super::files::{NoSpace, Readahead};
use super::slowpath::{Want, alloc_pages};
use super::{Kernel, KernelCx, PAGE_BYTES, writeback};
use crate::device::Io;
use crate::task::Mode;
use crate::time::Ns;
use highorder_mm::alloc::Request;
use highorder_mm::filemap::{CachedPage, FileId};
use highorder_mm::frame::PageFlags;
use highorder_mm::gfp::Gfp;
use highorder_mm::vma::TaskId as ProcessId;
use highorder_mm::{Order, Pfn};

/// Pages that a read reads ahead at most (`VM_MAX_READAHEAD`: 128 KiB).
const READAHEAD_MAX: u64 = 32;
/// Pages between two looks at the dirty limits (`ratelimit_pages`, at least 16; 32 for one device).
const RATELIMIT_PAGES: u64 = 32;

/// Why a file could not be read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileError {
    /// The process was killed.
    Killed,
    /// The disk is full.
    NoSpace,
}

impl From<Killed> for FileError {
    fn from(_: Killed) -> Self {
        Self::Killed
    }
}

impl From<NoSpace> for FileError {
    fn from(_: NoSpace) -> Self {
        Self::NoSpace
    }
}

/// Reads `bytes` from `offset`, less where the file ends. Suspends.
///
/// # Errors
/// The process was killed.
pub fn read(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    file: FileId,
    readahead: &mut Readahead,
    offset: u64,
    bytes: u64,
) -> Result<(), FileError> {
    let end = (offset + bytes).min(cx.world().file(file).size);
    if offset >= end {
        return Ok(());
    }
    let (first, last) = (offset / PAGE_BYTES, (end - 1) / PAGE_BYTES);
    for index in first..=last {
        let pfn = page_to_read(cx, process, file, readahead, index, last + 1 - index)?;
        let kernel = cx.world();
        if readahead.previous != Some(index) {
            kernel.memory.mark_page_accessed(pfn);
        }
        let copy = kernel.costs.copy_base_page.once();
        cx.spend(copy, Mode::System);
        readahead.previous = Some(index);
    }
    Ok(())
}

/// Page `index` of a file, read if it has to be.
fn page_to_read(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    file: FileId,
    readahead: &mut Readahead,
    index: u64,
    wanted: u64,
) -> Result<Pfn, FileError> {
    let mut tried = false;
    loop {
        super::fault::check(cx, process)?;
        match cx.world().memory.files.get(file, index) {
            CachedPage::Page(pfn) => {
                if cx.world().memory.test_clear_readahead(pfn) {
                    read_ahead(cx, process, file, readahead, index, wanted, true)?;
                    continue;
                }
                if !wait_on_page(cx, pfn) {
                    return Ok(pfn);
                }
            }
            _ if tried => {
                // Reading ahead found no memory: this page alone, whatever it takes.
                read_pages(cx, process, file, index..index + 1, None, Gfp::NONE)?;
            }
            _ => {
                tried = true;
                read_ahead(cx, process, file, readahead, index, wanted, false)?;
            }
        }
    }
}

/// Waits until a page has been read. Whether it had to.
fn wait_on_page(cx: &mut KernelCx<'_>, pfn: Pfn) -> bool {
    if !cx.world().memory.frames().has(pfn, PageFlags::LOCKED) {
        return false;
    }
    match cx.world().reads.get(&pfn).copied() {
        Some(ticket) => cx.wait_io(ticket),
        None => {
            let queue = cx.world().reads_begin;
            cx.wait_for_io_in(queue, None);
        }
    }
    true
}

/// The first window for a read of `wanted` pages.
const fn initial_window(wanted: u64, max: u64) -> u64 {
    let window = wanted.next_power_of_two();
    if window <= max / 32 {
        window * 4
    } else if window <= max / 4 {
        window * 2
    } else {
        max
    }
}

/// The window after one of `size` pages.
const fn next_window(size: u64, max: u64) -> u64 {
    if size < max / 16 {
        size * 4
    } else if size <= max / 2 {
        size * 2
    } else {
        max
    }
}

/// Decides what to read for page `index`, of which there are `wanted` in a row, and reads it.
fn read_ahead(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    file: FileId,
    readahead: &mut Readahead,
    index: u64,
    wanted: u64,
    at_mark: bool,
) -> Result<(), FileError> {
    let max = READAHEAD_MAX;
    let wanted = wanted.min(max);
    let Readahead { start, size, async_size, previous } = *readahead;
    let continues = size > 0 && (index == start + size - async_size || index == start + size);
    let follows = previous.is_some_and(|previous| index.wrapping_sub(previous) <= 1);
    let (mut window, mut ahead);
    let first;
    if index > 0 && continues {
        first = start + size;
        window = next_window(size, max);
        ahead = window;
    } else if at_mark {
        // Another reader's window: go on behind it.
        let mut hole = index + 1;
        while hole < index + max
            && matches!(cx.world().memory.files.get(file, hole), CachedPage::Page(_))
        {
            hole += 1;
        }
        first = hole;
        window = next_window(hole - index + wanted, max);
        ahead = window;
    } else if index == 0 || follows {
        first = index;
        window = initial_window(wanted, max);
        ahead = if window > wanted { window - wanted } else { window };
    } else {
        // At random: what is wanted and no more, and the window stays.
        return read_pages(cx, process, file, index..index + wanted, None, READAHEAD_GFP);
    }
    if first == index && window == ahead {
        // The reader has caught up with its window: the next one belongs to it.
        ahead = next_window(window, max);
        window += ahead;
    }
    (readahead.start, readahead.size, readahead.async_size) = (first, window, ahead);
    let mark = first + window - ahead;
    read_pages(cx, process, file, first..first + window, Some(mark), READAHEAD_GFP)
}

/// What a request that reads ahead leaves to others (`readahead_gfp_mask`).
const READAHEAD_GFP: Gfp = Gfp(Gfp::NORETRY.0 | Gfp::NOWARN.0);

/// Reads those pages of a range that are not in memory, without waiting for them; the one at `mark` tells
/// whoever reads it to read on. Stops where memory runs out.
fn read_pages(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    file: FileId,
    range: std::ops::Range<u64>,
    mark: Option<u64>,
    extra: Gfp,
) -> Result<(), FileError> {
    let end = range.end.min(cx.world().file(file).nr_pages());
    let mut reads = Vec::new();
    for index in range.start..end {
        if matches!(cx.world().memory.files.get(file, index), CachedPage::Page(_)) {
            continue;
        }
        let Some(pfn) = cache_page(cx, process, Gfp::HIGHUSER_MOVABLE | extra)? else { break };
        let cpu = cx.cpu().0 as usize;
        let kernel = cx.world();
        if matches!(kernel.memory.files.get(file, index), CachedPage::Page(_)) {
            // Somebody else was faster.
            kernel.memory.free(pfn, Order(0), cpu);
            continue;
        }
        let place = kernel.file(file).find(index);
        kernel.memory.add_to_page_cache(file, index, pfn, place.is_some(), cpu);
        if mark == Some(index) {
            kernel.memory.set_readahead(pfn);
        }
        match place {
            Some((at, _)) => reads.push((at, pfn)),
            None => {
                let clear = kernel.costs.clear_base_page.once();
                cx.spend(clear, Mode::System);
            }
        }
    }
    submit_reads(cx, file, &reads);
    Ok(())
}

/// A page for the cache, or none if the request may fail and does.
fn cache_page(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    gfp: Gfp,
) -> Result<Option<Pfn>, FileError> {
    let (cpu, node) = (cx.cpu().0 as usize, cx.node());
    let request = Request { order: Order(0), gfp, cpu, node, past_lists: false };
    let want = Want { request, allowed: u64::MAX, process: Some(process) };
    let found = alloc_pages(cx, want);
    if found.is_none() {
        super::fault::check(cx, process)?;
    }
    Ok(found)
}

fn submit_reads(cx: &mut KernelCx<'_>, file: FileId, reads: &[(u64, Pfn)]) {
    let device = cx.world().file(file).device;
    let mut at = 0;
    while at < reads.len() {
        let mut end = at + 1;
        while end < reads.len() && reads[end].0 == reads[end - 1].0 + PAGE_BYTES {
            end += 1;
        }
        let request = cx.world().costs.block_request.once();
        cx.spend(request, Mode::System);
        let run = &reads[at..end];
        let ios: Vec<Io> = run
            .iter()
            .map(|&(offset, pfn)| Io::read(offset, PAGE_BYTES, u64::from(pfn.0)))
            .collect();
        let kernel = cx.world();
        kernel.memory.vm.add(highorder_mm::vmstat::Vm::PgPgIn, 4 * run.len() as u64);
        let tickets = cx.submit_all(device, &ios);
        for (&(_, pfn), ticket) in run.iter().zip(tickets) {
            if cx.world().memory.frames().has(pfn, PageFlags::LOCKED) {
                cx.world().reads.insert(pfn, ticket);
            }
        }
        at = end;
    }
    let queue = cx.world().reads_begin;
    cx.wake_all(queue);
}

/// Writes `bytes` at `offset`, making the file longer if it ends before. Suspends, for long where too much
/// is dirty.
///
/// # Errors
/// The process was killed.
pub fn write(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    file: FileId,
    offset: u64,
    bytes: u64,
) -> Result<(), FileError> {
    if bytes == 0 {
        return Ok(());
    }
    let end = offset + bytes;
    let (first, last) = (offset / PAGE_BYTES, (end - 1) / PAGE_BYTES);
    let mut since_balanced = 0;
    for index in first..=last {
        let covers = offset <= index * PAGE_BYTES && end >= (index + 1) * PAGE_BYTES;
        let pfn = page_to_write(cx, process, file, index, covers)?;
        let now = cx.now();
        let kernel = cx.world();
        let this = kernel.file_mut(file);
        this.size = this.size.max(end.min((index + 1) * PAGE_BYTES));
        if kernel.memory.set_page_dirty(pfn) {
            kernel.file_mut(file).dirtied_at.get_or_insert(now);
            since_balanced += 1;
        }
        let kernel = cx.world();
        if kernel.flows.files.writes_mark_accessed {
            kernel.memory.mark_page_accessed(pfn);
        }
        let copy = kernel.costs.copy_base_page.once();
        cx.spend(copy, Mode::System);
        if since_balanced >= RATELIMIT_PAGES {
            writeback::balance_dirty_pages(cx, process, since_balanced)?;
            since_balanced = 0;
        }
    }
    let kernel = cx.world();
    kernel.dirtied_since_balanced += since_balanced;
    if kernel.dirtied_since_balanced >= RATELIMIT_PAGES {
        let dirtied = std::mem::take(&mut kernel.dirtied_since_balanced);
        writeback::balance_dirty_pages(cx, process, dirtied)?;
    }
    Ok(())
}

/// Page `index` of a file, to be written: in memory, and read before if what is written does not cover it.
fn page_to_write(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    file: FileId,
    index: u64,
    covers: bool,
) -> Result<Pfn, FileError> {
    loop {
        super::fault::check(cx, process)?;
        if let CachedPage::Page(pfn) = cx.world().memory.files.get(file, index) {
            if wait_on_page(cx, pfn) {
                continue;
            }
            return Ok(pfn);
        }
        if !covers && cx.world().file(file).find(index).is_some() {
            read_pages(cx, process, file, index..index + 1, None, Gfp::NONE)?;
            continue;
        }
        // Not into file systems: this one holds locks already.
        let gfp = Gfp(Gfp::HIGHUSER_MOVABLE.0 & !Gfp::FS.0 | Gfp::WRITE.0);
        let Some(pfn) = cache_page(cx, process, gfp)? else { continue };
        let cpu = cx.cpu().0 as usize;
        let memory = &mut cx.world().memory;
        if matches!(memory.files.get(file, index), CachedPage::Page(_)) {
            memory.free(pfn, Order(0), cpu);
            continue;
        }
        memory.add_to_page_cache(file, index, pfn, false, cpu);
        return Ok(pfn);
    }
}

/// Takes a file away: its pages go, and then its space. Suspends while pages of it are read or written.
pub fn unlink(cx: &mut KernelCx<'_>, file: FileId) {
    cx.world().file_mut(file).is_linked = false;
    let mut from = 0;
    while let Some((index, pfn)) = cx.world().memory.files.next_page(file, from) {
        let cpu = cx.cpu().0 as usize;
        if cx.world().memory.truncate_page(pfn, cpu) {
            spend_frees(cx, pfn);
            from = index;
        } else if !wait_on_page(cx, pfn) {
            writeback::wait_on_writeback(cx, file);
        }
    }
    cx.world().forget_file(file);
}

/// Drops every clean page of every file (`vm.drop_caches` = 1). Suspends.
pub fn drop_pagecache(cx: &mut KernelCx<'_>) {
    let files: Vec<FileId> = cx.world().files().map(|(file, _)| file).collect();
    for file in files {
        let mut from = 0;
        while cx.world().file_table[file.0 as usize].is_some() {
            let Some((index, pfn)) = cx.world().memory.files.next_page(file, from) else { break };
            let cpu = cx.cpu().0 as usize;
            if cx.world().memory.invalidate_page(pfn, cpu) {
                spend_frees(cx, pfn);
            }
            from = index + 1;
        }
    }
}

/// Spends what freeing pages near `pfn` took.
fn spend_frees(cx: &mut KernelCx<'_>, pfn: Pfn) {
    let zone = cx.world().memory.zone_of(pfn);
    super::work::spend_work(cx, zone);
}

impl Kernel {
    /// Bytes of a file in memory, for tests and pictures.
    #[must_use]
    pub fn cached_bytes(&self, file: FileId) -> u64 {
        self.memory.files.counts(file).0 * PAGE_BYTES
    }
}

/// How long a thread waits between two looks for what others do.
pub(crate) const SOON: Ns = Ns::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_grow_as_the_kernel_s_do() {
        // mm/readahead.c: get_init_ra_size and get_next_ra_size with 32 pages at most.
        assert_eq!([1, 2, 4, 8, 9].map(|wanted| initial_window(wanted, 32)), [4, 4, 8, 16, 32]);
        assert_eq!([1, 2, 4, 16, 17, 32].map(|size| next_window(size, 32)), [4, 4, 8, 32, 32, 32]);
    }
}
