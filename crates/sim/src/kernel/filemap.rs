//! Reading and writing files through the page cache, and through mappings.
//!
//! Models: `generic_file_read`, `ondemand_readahead`, `generic_perform_write`, `filemap_fault`,
//! `do_sync_mmap_readahead`, mm/filemap.c and mm/readahead.c, v4.4 and v6.12; `truncate_pagecache`,
//! `truncate_inode_pages`, mm/truncate.c; `ext4_page_mkwrite`, fs/ext4/inode.c, v3.4 to v6.12.
//! Departs: pages are of order 0 (as on ext4 before 6.16). A page that a write covers in part and that is
//! not in memory is read first only if it lies on the disk. Visible as: nothing, but what file systems
//! with smaller blocks spare. What was read ahead last belongs to a mapping, instead of the open file that
//! it was made of. Visible as: two mappings of one open file do not confuse each other. A file that is cut
//! is not locked against those who make it longer meanwhile. Visible as: what they write behind the old end
//! stays, what they write before it may go.

use super::fault::{Killed, TouchError, found_for, revalidate};
use super::files::{NoSpace, Readahead};
use super::slowpath::{RECLAIM_RETRIES_MAX, Want, alloc_pages};
use super::swap;
use super::writeback::RATELIMIT_PAGES;
use super::{Kernel, KernelCx, PAGE_BYTES, inodes, journal, oom, slab, writeback};
use crate::device::Io;
use crate::machine::FileSystem;
use crate::task::Mode;
use highorder_mm::alloc::Request;
use highorder_mm::anon::Fault;
use highorder_mm::filemap::{CachedPage, FileId};
use highorder_mm::frame::PageFlags;
use highorder_mm::gfp::Gfp;
use highorder_mm::page_table::Vpn;
use highorder_mm::slab::{CacheId, Object};
use highorder_mm::types::Access;
use highorder_mm::vma::ProcessId;
use highorder_mm::vmstat::Vm;
use highorder_mm::{Order, Pfn};
use highorder_words::{CpuId, Ns};
use std::ops::Range;

/// Pages that a read reads ahead at most (`VM_MAX_READAHEAD`: 128 KiB).
const READAHEAD_MAX: u64 = 32;

/// Who reads pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reader {
    /// A system call.
    Call,
    /// A fault, which counts as a major one where it has to wait for the disk.
    Fault,
}

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
    read_range(cx, process, file, readahead, offset..offset + bytes, true)
}

/// The same by `sendfile` to somewhere that needs no copies.
///
/// Models: `generic_file_splice_read`, fs/splice.c, v4.4 and v4.14.
/// Departs: it takes the time of copies. Visible as: a set-up that sends a file is slower.
///
/// # Errors
/// The process was killed.
#[doc(alias = "generic_file_splice_read")]
pub fn send(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    file: FileId,
    readahead: &mut Readahead,
    offset: u64,
    bytes: u64,
) -> Result<(), FileError> {
    let marks = cx.world().flows.files.splices_mark_accessed;
    read_range(cx, process, file, readahead, offset..offset + bytes, marks)
}

/// Reads a range of bytes, with or without counting that as a use of its pages.
#[doc(alias = "generic_file_read")]
fn read_range(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    file: FileId,
    readahead: &mut Readahead,
    range: Range<u64>,
    marks: bool,
) -> Result<(), FileError> {
    let Range { start: offset, end: wanted } = range;
    let kernel = cx.world();
    let size = kernel.file(file).size;
    let end = wanted.min(size);
    // Splicing without marks looks at the size before it looks for pages.
    let past_end = wanted > size && marks && kernel.flows.files.reads_past_end;
    if offset < end {
        inodes::file_accessed(cx, process, file);
        let (first, last) = (offset / PAGE_BYTES, (end - 1) / PAGE_BYTES);
        for index in first..=last {
            let pfn = page_to_read(cx, process, file, readahead, index, last + 1 - index)?;
            let cpu = cx.cpu();
            let kernel = cx.world();
            if marks && readahead.previous != Some(index) {
                kernel.memory.mark_page_accessed(pfn, cpu);
            }
            let copy = kernel.costs.copy_base_page.once();
            cx.spend(copy, Mode::System);
            readahead.previous = Some(index);
        }
    }
    if past_end {
        take_page_past_end(cx, process, file, offset.max(size) / PAGE_BYTES)
    } else {
        Ok(())
    }
}

/// Takes a page of zeros for what would be next in a file that ends before it, if there is none: it is made before the
/// file's size is looked at, and stays.
///
/// Models: `do_generic_file_read` where no page is cached, mm/filemap.c, v4.4 and v4.14.
#[doc(alias = "do_generic_file_read")]
fn take_page_past_end(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    file: FileId,
    index: u64,
) -> Result<(), FileError> {
    super::fault::check(cx, process)?;
    let is_there = |cx: &mut KernelCx<'_>| {
        let kernel = cx.world();
        index < kernel.file(file).nr_pages()
            || matches!(kernel.memory.files.get(file, index), CachedPage::Page(_))
    };
    if is_there(cx) {
        return Ok(());
    }
    let gfp = cx.world().page_gfp(file);
    let Some(room) = room_for(cx, process, file, index, gfp)? else { return Ok(()) };
    let cpu = cx.cpu();
    if super::fault::check(cx, process).is_err() || is_there(cx) {
        room.give_up(cx.world(), cpu);
        return Ok(());
    }
    let kernel = cx.world();
    room.use_node(kernel, file, index, cpu);
    kernel.memory.add_to_page_cache(file, index, room.pfn, false, cpu);
    kernel.forget_paid_work();
    let clear = kernel.costs.clear_base_page.once();
    cx.spend(clear, Mode::System);
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
                    let asked = Asked { index, wanted, at_mark: true, reader: Reader::Call };
                    read_ahead(cx, process, file, readahead, asked)?;
                    continue;
                }
                if !wait_on_page(cx, pfn) {
                    return Ok(pfn);
                }
            }
            CachedPage::Swapped(slot) => {
                swap::shmem_swap_in(cx, process, (file, index, slot), Reader::Call)?;
            }
            _ if tried => {
                // Reading ahead found no memory: this page alone, whatever it takes.
                read_pages(cx, process, file, index..index + 1, None, Gfp::NONE, Reader::Call)?;
            }
            _ => {
                tried = true;
                let asked = Asked { index, wanted, at_mark: false, reader: Reader::Call };
                read_ahead(cx, process, file, readahead, asked)?;
            }
        }
    }
}

/// Waits until a page has been read. Whether it had to.
pub(super) fn wait_on_page(cx: &mut KernelCx<'_>, pfn: Pfn) -> bool {
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

/// What read-ahead is asked for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// The page.
    index: u64,
    /// Pages in a row from there on.
    wanted: u64,
    /// It is in memory and bears the mark.
    at_mark: bool,
    reader: Reader,
}

/// Decides what to read for a page, and reads it.
#[doc(alias = "ondemand_readahead")]
fn read_ahead(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    file: FileId,
    readahead: &mut Readahead,
    asked: Asked,
) -> Result<(), FileError> {
    let Asked { index, at_mark, reader, .. } = asked;
    let mut max = READAHEAD_MAX;
    if asked.wanted > max && cx.world().flows.files.reads_whole_calls {
        let device = cx.world().file(file).device;
        max = max.max(asked.wanted.min(cx.device(device).spec().max_request_bytes / PAGE_BYTES));
    }
    let wanted = asked.wanted.min(max);
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
        return read_pages(cx, process, file, index..index + wanted, None, READAHEAD_GFP, reader);
    }
    if first == index && window == ahead {
        // The reader has caught up with its window: the next one belongs to it.
        ahead = next_window(window, max);
        window += ahead;
    }
    (readahead.start, readahead.size, readahead.async_size) = (first, window, ahead);
    let mark = first + window - ahead;
    read_pages(cx, process, file, first..first + window, Some(mark), READAHEAD_GFP, reader)
}

/// What a request that reads ahead leaves to others (`readahead_gfp_mask`).
const READAHEAD_GFP: Gfp = Gfp::NORETRY.union(Gfp::NOWARN);

/// Reads those pages of a range that are not in memory, without waiting for them; the one at `mark` tells
/// whoever reads it to read on. Stops where memory runs out.
fn read_pages(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    file: FileId,
    range: std::ops::Range<u64>,
    mark: Option<u64>,
    extra: Gfp,
    reader: Reader,
) -> Result<(), FileError> {
    let (mut reads, mut nr_holes) = (Vec::new(), 0);
    for index in range {
        if index >= cx.world().file(file).nr_pages() {
            break;
        }
        if matches!(cx.world().memory.files.get(file, index), CachedPage::Page(_)) {
            continue;
        }
        let gfp = cx.world().page_gfp(file) | extra;
        let Some(room) = room_for(cx, process, file, index, gfp)? else { break };
        let (pfn, cpu) = (room.pfn, cx.cpu());
        if super::fault::check(cx, process).is_err() {
            // Its mappings, and with them perhaps the file, may be gone.
            room.give_up(cx.world(), cpu);
            break;
        }
        let kernel = cx.world();
        let is_there = matches!(kernel.memory.files.get(file, index), CachedPage::Page(_));
        if is_there || index >= kernel.file(file).nr_pages() {
            // Somebody else was faster, or cut the file.
            room.give_up(kernel, cpu);
            continue;
        }
        room.use_node(kernel, file, index, cpu);
        let place = kernel.file(file).find(index);
        let to_be_read = place.is_some();
        match reader {
            Reader::Call => kernel.memory.add_to_page_cache(file, index, pfn, to_be_read, cpu),
            Reader::Fault => {
                kernel.memory.add_to_page_cache_in_fault(file, index, pfn, to_be_read, cpu);
            }
        }
        kernel.use_new_metadata(file, pfn, cpu);
        kernel.forget_paid_work();
        if mark == Some(index) {
            kernel.memory.set_readahead(pfn);
        }
        match place {
            Some((at, _)) => reads.push((at, pfn)),
            None => nr_holes += 1,
        }
    }
    if nr_holes > 0 {
        let clear = cx.world().costs.clear_base_page.times(nr_holes);
        cx.spend(clear, Mode::System);
    }
    if !reads.is_empty() {
        submit_reads(cx, file, &reads);
    }
    Ok(())
}

/// A page that is to be one of a file, and the node of the file's tree that it needs.
#[derive(Clone, Copy, Debug)]
struct Room {
    pfn: Pfn,
    node: Option<Object>,
}

impl Room {
    /// Gives the node to the file, just before the page, or back if somebody else was faster.
    fn use_node(self, kernel: &mut Kernel, file: FileId, index: u64, cpu: CpuId) {
        match self.node {
            Some(node) if kernel.memory.files.needs_node(file, index) => {
                kernel.memory.files.give_node(file, index, node);
            }
            Some(node) => {
                kernel.memory.free_object(CacheId::RADIX_TREE_NODE, node, cpu);
            }
            None => {}
        }
    }

    /// Gives both back.
    fn give_up(self, kernel: &mut Kernel, cpu: CpuId) {
        kernel.memory.free(self.pfn, Order(0), cpu);
        if let Some(node) = self.node {
            kernel.memory.free_object(CacheId::RADIX_TREE_NODE, node, cpu);
        }
    }
}

/// Room for page `index` of a file, or none if the request may fail and does. Making it the file's is paid already.
fn room_for(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    file: FileId,
    index: u64,
    gfp: Gfp,
) -> Result<Option<Room>, FileError> {
    let mut node = None;
    if cx.world().memory.files.needs_node(file, index) {
        // GFP_RECLAIM_MASK: what the page's request may do, not where it may lie.
        let gfp = gfp & (Gfp::KERNEL | READAHEAD_GFP);
        node = slab::alloc(cx, CacheId::RADIX_TREE_NODE, gfp, Some(process));
        if node.is_none() {
            super::fault::check(cx, process)?;
            return Ok(None);
        }
    }
    let found = cache_page(cx, process, gfp);
    if let (Ok(None) | Err(_), Some(node)) = (&found, node) {
        let cpu = cx.cpu();
        cx.world().memory.free_object(CacheId::RADIX_TREE_NODE, node, cpu);
    }
    let room = found?.map(|pfn| Room { pfn, node });
    if room.is_some() {
        let kernel = cx.world();
        kernel.forget_paid_work();
        let put = kernel.costs.cache_page.once();
        cx.spend(put, Mode::System);
    }
    Ok(room)
}

/// Gives a page of a file a buffer head if its file system wants that and it has none. Whether it waited: the page
/// may be gone then.
fn ensure_buffer(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    file: FileId,
    index: u64,
    pfn: Pfn,
) -> bool {
    let kernel = cx.world();
    if !kernel.wants_buffer(file) || kernel.memory.page_has_buffer(pfn) {
        return false;
    }
    let gfp = Gfp::KERNEL - Gfp::FS;
    let Some(object) = slab::alloc(cx, CacheId::BUFFER_HEAD, gfp, Some(process)) else {
        return true;
    };
    let cpu = cx.cpu();
    let memory = &mut cx.world().memory;
    match memory.files.get(file, index) {
        CachedPage::Page(pfn) if !memory.page_has_buffer(pfn) => {
            memory.give_page_buffer(pfn, object);
        }
        _ => drop(memory.free_object(CacheId::BUFFER_HEAD, object, cpu)),
    }
    true
}

/// Brings a page of metadata into memory, and perhaps changes it. Suspends.
///
/// # Errors
/// The process was killed.
pub(crate) fn touch_metadata(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    file: FileId,
    index: u64,
    changes: bool,
) -> Result<(), FileError> {
    let pfn = if changes {
        page_to_write(cx, process, file, index, false)?
    } else {
        let mut readahead = Readahead::default();
        loop {
            let pfn = page_to_read(cx, process, file, &mut readahead, index, 1)?;
            if !ensure_buffer(cx, process, file, index, pfn) {
                break pfn;
            }
        }
    };
    let device = cx.world().file(file).device;
    if changes
        && !journal::note_change(cx, device, index, pfn)
        && cx.world().memory.set_page_dirty(pfn)
    {
        note_dirtied(cx, file);
    }
    let cpu = cx.cpu();
    cx.world().memory.mark_page_accessed(pfn, cpu);
    Ok(())
}

/// A page for the cache, or none if the request may fail and does.
fn cache_page(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    gfp: Gfp,
) -> Result<Option<Pfn>, FileError> {
    let found = ask_for_page(cx, process, gfp);
    if found.is_none() {
        super::fault::check(cx, process)?;
    }
    Ok(found)
}

/// A page for a file that is in memory alone, whatever it takes.
pub(super) fn memory_page(cx: &mut KernelCx<'_>, process: ProcessId) -> Result<Pfn, Killed> {
    let found = ask_for_page(cx, process, Gfp::HIGHUSER_MOVABLE);
    found_for(cx, process, found)
}

fn ask_for_page(cx: &mut KernelCx<'_>, process: ProcessId, gfp: Gfp) -> Option<Pfn> {
    let (cpu, node) = (cx.cpu(), cx.node());
    let request = Request { order: Order(0), gfp, cpu, node, past_lists: false };
    alloc_pages(cx, Want { request, allowed: u64::MAX, process: Some(process) })
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
        kernel.memory.vm.add(Vm::PgPgIn, 4 * run.len() as u64);
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
/// The process was killed, or the disk is full.
#[doc(alias = "generic_perform_write")]
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
    if cx.world().has_lost_writes(file) {
        return Err(FileError::NoSpace);
    }
    inodes::file_changed(cx, process, file);
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
        let cpu = cx.cpu();
        let kernel = cx.world();
        if kernel.flows.files.writes_mark_accessed {
            kernel.memory.mark_page_accessed(pfn, cpu);
        }
        let copy = kernel.costs.copy_base_page.once() + kernel.costs.write_page.once();
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
    let mut failures = 0;
    loop {
        super::fault::check(cx, process)?;
        if let CachedPage::Page(pfn) = cx.world().memory.files.get(file, index) {
            if wait_on_page(cx, pfn) || ensure_buffer(cx, process, file, index, pfn) {
                continue;
            }
            return Ok(pfn);
        }
        if !covers && cx.world().file(file).find(index).is_some() {
            read_pages(cx, process, file, index..index + 1, None, Gfp::NONE, Reader::Call)?;
            continue;
        }
        // Not into file systems: this one holds locks already.
        let gfp = (cx.world().page_gfp(file) - Gfp::FS) | Gfp::WRITE;
        let Some(room) = room_for(cx, process, file, index, gfp)? else {
            failures += 1;
            if failures > RECLAIM_RETRIES_MAX {
                oom::kill_or_halt(cx);
            }
            continue;
        };
        let (pfn, cpu) = (room.pfn, cx.cpu());
        let kernel = cx.world();
        if matches!(kernel.memory.files.get(file, index), CachedPage::Page(_)) {
            room.give_up(kernel, cpu);
            continue;
        }
        room.use_node(kernel, file, index, cpu);
        kernel.memory.add_to_page_cache(file, index, pfn, false, cpu);
        kernel.use_new_metadata(file, pfn, cpu);
        kernel.forget_paid_work();
        if !kernel.wants_buffer(file) {
            return Ok(pfn);
        }
    }
}

/// Maps pages of a file, shared. `None` if it was deleted. Suspends.
pub fn map(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    file: FileId,
    first: u64,
    pages: u32,
    writable: bool,
) -> Option<Vpn> {
    inodes::file_accessed(cx, process, file);
    let kernel = cx.world();
    kernel.file_table[file.0 as usize].as_ref().filter(|file| file.is_linked)?;
    let start = kernel.memory.spaces.mmap_file(process, pages, file, first, writable);
    kernel.mapped_readahead.insert(start, Readahead::default());
    Some(start)
}

/// Serves a fault on a page of a mapped file: reads it, and some around it, unless it is in memory.
/// Suspends.
///
/// # Errors
/// The process was killed, or the file ends before the page.
#[doc(alias = "filemap_fault")]
pub(crate) fn file_fault(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    fault: &Fault,
    file: FileId,
    index: u64,
) -> Result<(), TouchError> {
    let (mut is_first, mut reads_alone) = (true, false);
    while revalidate(cx, process, fault)? {
        let pages = cx.world().file(file).nr_pages();
        if index >= pages {
            return Err(TouchError::BehindEnd { page: index, pages });
        }
        let found = cx.world().memory.files.get(file, index);
        let is_first = std::mem::take(&mut is_first);
        if let CachedPage::Swapped(slot) = found {
            swap::shmem_swap_in(cx, process, (file, index, slot), Reader::Fault)?;
            continue;
        }
        let CachedPage::Page(pfn) = found else {
            if is_first {
                cx.world().memory.vm.add(Vm::PgMajFault, 1);
            }
            read_around(cx, process, fault, file, index, reads_alone)?;
            reads_alone = true;
            continue;
        };
        if is_first {
            cx.world().memory.note_mmap_hits(fault.vpn, 1);
        }
        if cx.world().memory.test_clear_readahead(pfn) {
            read_on(cx, process, fault, file, index)?;
            continue;
        }
        if wait_on_page(cx, pfn) {
            continue;
        }
        if fault.access == Access::Write && ensure_buffer(cx, process, file, index, pfn) {
            continue;
        }
        if cx.world().memory.map_file_page(fault, pfn) {
            note_dirtied(cx, file);
            writeback::balance_dirty_pages_ratelimited(cx, process, 1)?;
        }
        cx.world().note_resident(process);
        let zone = cx.world().memory.zone_of(pfn);
        super::work::spend_work(cx, zone);
        return Ok(());
    }
    Ok(())
}

/// A page of a file that is mapped to be read is to be written there: its file system gets it ready, and whoever touches
/// it again may write it.
///
/// # Errors
/// The process was killed.
#[doc(alias = "ext4_page_mkwrite")]
#[doc(alias = "__block_page_mkwrite")]
pub(crate) fn page_mkwrite(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    fault: &Fault,
    (file, index): (FileId, u64),
    pfn: Pfn,
) -> Result<(), Killed> {
    if revalidate(cx, process, fault)? {
        ensure_buffer(cx, process, file, index, pfn);
    }
    Ok(())
}

/// A mapped page is not in memory: it is read with those around it, as long as that helps; or alone,
/// whatever it takes, where reading around found no memory.
#[doc(alias = "do_sync_mmap_readahead")]
fn read_around(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    fault: &Fault,
    file: FileId,
    index: u64,
    alone: bool,
) -> Result<(), Killed> {
    let kernel = cx.world();
    if alone || !kernel.memory.note_mmap_miss(fault.vpn) {
        let range = index..index + 1;
        let extra = match kernel.flows.files.faults_enter_fs {
            true => Gfp::IO | Gfp::FS,
            false => Gfp::NONE,
        };
        return killed(read_pages(cx, process, file, range, None, extra, Reader::Fault));
    }
    let (size, async_size) = (READAHEAD_MAX, READAHEAD_MAX / 4);
    let start = index.saturating_sub(READAHEAD_MAX / 2);
    if let Some(readahead) = kernel.mapping_readahead(fault.vpn) {
        *readahead = Readahead { start, size, async_size, previous: None };
    }
    let (range, mark) = (start..start + size, start + size - async_size);
    killed(read_pages(cx, process, file, range, Some(mark), READAHEAD_GFP, Reader::Fault))
}

/// A mapped page bore the mark: the next window is read.
fn read_on(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    fault: &Fault,
    file: FileId,
    index: u64,
) -> Result<(), Killed> {
    let mut readahead = cx.world().mapping_readahead(fault.vpn).copied().unwrap_or_default();
    let asked = Asked { index, wanted: READAHEAD_MAX, at_mark: true, reader: Reader::Fault };
    let done = read_ahead(cx, process, file, &mut readahead, asked);
    if let Some(kept) = cx.world().mapping_readahead(fault.vpn) {
        *kept = readahead;
    }
    killed(done)
}

/// Reading takes no space.
fn killed(done: Result<(), FileError>) -> Result<(), Killed> {
    done.map_err(|error| match error {
        FileError::Killed => Killed,
        FileError::NoSpace => unreachable!("a file is full when it is written"),
    })
}

/// Pages of a file have become dirty.
pub(crate) fn note_dirtied(cx: &mut KernelCx<'_>, file: FileId) {
    let now = cx.now();
    cx.world().file_mut(file).dirtied_at.get_or_insert(now);
}

/// Sets a file's size. What is cut off goes out of all mappings and out of memory, and then its space is
/// free; the rest of the last page becomes zeros. Suspends while pages that go are read or written.
///
/// # Errors
/// The process was killed.
pub fn set_size(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    file: FileId,
    bytes: u64,
) -> Result<(), FileError> {
    inodes::file_changed(cx, process, file);
    let this = cx.world().file_mut(file);
    let old = std::mem::replace(&mut this.size, bytes);
    if bytes >= old {
        return Ok(());
    }
    let (last, rest) = (bytes / PAGE_BYTES, bytes % PAGE_BYTES);
    let kernel = cx.world();
    let is_cached = matches!(kernel.memory.files.get(file, last), CachedPage::Page(_));
    if rest > 0 && (is_cached || kernel.file(file).find(last).is_some()) {
        let pfn = page_to_write(cx, process, file, last, false)?;
        if cx.world().memory.set_page_dirty(pfn) {
            note_dirtied(cx, file);
        }
        let clear = cx.world().costs.clear_base_page.once();
        cx.spend(clear, Mode::System);
    }
    let end = old.div_ceil(PAGE_BYTES);
    truncate_pages(cx, file, bytes.div_ceil(PAGE_BYTES)..u64::MAX);
    let nr_pieces = cx.world().free_space(file, bytes.div_ceil(PAGE_BYTES)..end);
    let change = cx.world().costs.metadata_change.times(nr_pieces);
    cx.spend(change, Mode::System);
    Ok(())
}

/// Takes pages of a file out of memory. Suspends while some are read or written.
#[doc(alias = "truncate_inode_pages")]
#[doc(alias = "truncate_pagecache")]
fn truncate_pages(cx: &mut KernelCx<'_>, file: FileId, range: std::ops::Range<u64>) {
    let mut from = range.start;
    while let Some((index, pfn)) = cx.world().memory.files.next_page(file, from) {
        if index >= range.end {
            break;
        }
        let cpu = cx.cpu();
        if cx.world().memory.truncate_page(pfn, cpu) {
            spend_frees(cx, pfn);
            from = index;
        } else if !wait_on_page(cx, pfn) {
            writeback::wait_on_writeback(cx, file);
        }
    }
    forget_shadows(cx, file, range.start);
}

/// Forgets what went before of a file from a page on. Suspends.
fn forget_shadows(cx: &mut KernelCx<'_>, file: FileId, from: u64) {
    let cpu = cx.cpu();
    let kernel = cx.world();
    kernel.memory.forget_shadows(file, from, cpu);
    let zone = kernel.first_zone();
    super::work::spend_work(cx, zone);
}

/// Takes a file's name away. Its pages go, and then its space: at once, or when nobody maps it any more.
/// Suspends while pages of it are read or written.
pub fn unlink(cx: &mut KernelCx<'_>, file: FileId) {
    inodes::note_change(cx, file);
    cx.world().file_mut(file).is_linked = false;
    let cpu = cx.cpu();
    cx.world().unlink_entry(file, cpu);
    if !cx.world().memory.spaces.is_file_mapped(file) {
        delete(cx, file);
    }
}

fn delete(cx: &mut KernelCx<'_>, file: FileId) {
    truncate_pages(cx, file, 0..u64::MAX);
    let cpu = cx.cpu();
    let kernel = cx.world();
    let this = kernel.file_table[file.0 as usize].as_ref();
    let nr_pieces = this.map_or(0, |this| u64::from(this.nr_pieces()));
    kernel.forget_inode(file, cpu);
    kernel.forget_file(file);
    kernel.memory.release_objects(cpu);
    // Its name and inode, and each piece of its room.
    let changes = kernel.costs.metadata_change.times(1 + nr_pieces);
    cx.spend(changes, Mode::System);
}

/// Deletes files without a name that nobody maps any more. Suspends.
pub(crate) fn release_unmapped(cx: &mut KernelCx<'_>) {
    for file in cx.world().memory.spaces.take_unmapped_files() {
        let kernel = cx.world();
        let this = kernel.file_table[file.0 as usize].as_ref();
        if this.is_some_and(|this| !this.is_linked) && !kernel.memory.spaces.is_file_mapped(file) {
            delete(cx, file);
        }
    }
}

/// Drops every clean page of every file that has pages, and what is remembered of those that went before
/// (`vm.drop_caches` = 1). Suspends.
///
/// Models: `drop_pagecache_sb`, fs/drop_caches.c; `invalidate_mapping_pages`, mm/truncate.c; v4.4.
/// Departs: files without pages are left alone, as they once were by Linux. Visible as: on kernels that
/// look whether there are shadows (`mapping_empty`) these stay here.
#[doc(alias = "invalidate_mapping_pages")]
#[doc(alias = "drop_pagecache_sb")]
pub fn drop_pagecache(cx: &mut KernelCx<'_>) {
    let kernel = cx.world();
    let files = kernel.files().map(|(file, _)| file);
    let files: Vec<FileId> = files.filter(|&file| kernel.cached_bytes(file) > 0).collect();
    for file in files {
        let mut from = 0;
        while cx.world().file_table[file.0 as usize].is_some() {
            let Some((index, pfn)) = cx.world().memory.files.next_page(file, from) else { break };
            let cpu = cx.cpu();
            if cx.world().memory.invalidate_page(pfn, cpu) {
                spend_frees(cx, pfn);
            }
            from = index + 1;
        }
        if cx.world().file_table[file.0 as usize].is_some() {
            forget_shadows(cx, file, 0);
        }
        cx.world().consider_inode(file);
    }
    cx.world().memory.vm.add(Vm::DropPagecache, 1);
}

/// Spends what freeing pages near `pfn` took.
fn spend_frees(cx: &mut KernelCx<'_>, pfn: Pfn) {
    let zone = cx.world().memory.zone_of(pfn);
    super::work::spend_work(cx, zone);
}

impl Kernel {
    /// What lists had to do with a page that comes into the cache is part of what that costs as a whole: it is paid.
    fn forget_paid_work(&mut self) {
        self.memory.take_work();
    }

    /// Whether pages of a file that are written have buffer heads.
    pub(super) fn wants_buffer(&self, file: FileId) -> bool {
        let is_ext4 = self.vfs.file_system(self.file(file).device) == FileSystem::Ext4;
        is_ext4 || self.flows.shrinkers.xfs_buffer_heads
    }

    /// A page of a disk's metadata has come into the cache: since 3.16 it bears the mark of use from the start, and
    /// whoever asked for it looks it up again.
    #[doc(alias = "grow_dev_folio")]
    #[doc(alias = "__find_get_block_slow")]
    fn use_new_metadata(&mut self, file: FileId, pfn: Pfn, cpu: CpuId) {
        if self.flows.files.new_metadata_is_used && self.is_metadata(file) {
            self.memory.mark_page_accessed(pfn, cpu);
            self.memory.mark_page_accessed(pfn, cpu);
        }
    }

    /// What pages of a file are asked for with: XFS asks without `__GFP_FS`, so that reclaim does not come back to it
    /// (`xfs_setup_inode`, fs/xfs/xfs_iops.c, v4.4 to v6.12).
    fn page_gfp(&self, file: FileId) -> Gfp {
        match self.vfs.file_system(self.file(file).device) {
            FileSystem::Ext4 => Gfp::HIGHUSER_MOVABLE,
            FileSystem::Xfs => Gfp::HIGHUSER_MOVABLE - Gfp::FS,
        }
    }

    /// What is remembered of reads through the mapping that holds `vpn`.
    fn mapping_readahead(&mut self, vpn: Vpn) -> Option<&mut Readahead> {
        let origin = self.memory.spaces.find(vpn)?.origin;
        self.mapped_readahead.get_mut(&origin)
    }

    /// A part of the mapping that began at `origin` is gone: of reads through it nothing is remembered once all is.
    pub(super) fn forget_mapping_readahead(&mut self, origin: Vpn) {
        if !self.memory.spaces.is_anything_left(origin) {
            self.mapped_readahead.remove(&origin);
        }
    }

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
