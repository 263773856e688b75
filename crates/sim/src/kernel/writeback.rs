//! Dirty pages on their way to the disk: flushers, writers that wait, sync.
//!
//! Models: mm/page-writeback.c (`balance_dirty_pages`), fs/fs-writeback.c
//! (`wb_writeback`, `writeback_sb_inodes`, `writeback_single_inode`, `__mark_inode_dirty`), v4.4 and v6.12;
//! fs/fs-writeback.c (`over_bground_thresh`), mm/page-writeback.c (`bdi_dirty_limit`, `calc_period_shift`),
//! lib/proportions.c (`prop_fraction_percpu`), v3.3.
//! Departs: one bandwidth for each disk, measured over what it wrote lately, and all who write share it
//! equally; the position control is the cubic one of the kernel without its per-device part. Visible as: on
//! machines with a fast and a slow disk, writers to the fast one are held back with the others. Since 3.6 a disk's share of
//! the background limit is all of it. Visible as: on machines with several disks, a slow one's pages are dirty for longer.
//! Inodes that changed are all written as soon as there is reason to write
//! anything. Visible as: nothing known. Finding a place for new pages takes no time, as making a file takes none: in a guest of
//! 6.12 `sync_file_range` of a file of sixteen new pages takes 209 us, of which the request is 42 and the pages 27. Visible
//! as: small files are made and written faster.
//!
//! A page's way to the disk takes what its way out of the cache takes (`reclaim_page`): the same lock, and as many marks in
//! its file's tree. In a guest of 6.12 it was 1.67 to 1.76 us of `sync_file_range` for each of 16384 pages that had their
//! places, where `POSIX_FADV_DONTNEED` took 1.72 us.
//!
//! A flusher takes the files that have a reason to be written, oldest first, in a queue, and fills that again only once it
//! is empty. So what was queued while too much was dirty, and was not written because that was over before, is
//! written when the flusher next looks for old pages, however young it is.

use super::fault::Killed;
use super::filemap::{FileError, SOON};
use super::files::File;
use super::policy::BackgroundShare;
use super::work::price;
use super::{Kernel, KernelCx, PAGE_BYTES, Stall, TENTH, inodes, journal, xfs_log};
use crate::device::Io;
use crate::machine::FileSystem;
use crate::sched::DeviceId;
use crate::task::Mode;
use highorder_mm::Pfn;
use highorder_mm::filemap::{CachedPage, FileId};
use highorder_mm::vma::ProcessId;
use highorder_mm::warm::AHEAD;
use highorder_words::Ns;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

/// Pages of a file that are written at least before it is the next one's turn (`MIN_WRITEBACK_PAGES`: 4 MiB).
const CHUNK_PAGES: u64 = 1024;
/// How long a flusher writes before it looks whether there is still reason to (`writeback_sb_inodes`: HZ / 10).
const ROUND: Ns = Ns::from_millis(100);
/// A writer waits this long at most at a time (`MAX_PAUSE`: HZ / 5).
const PAUSE_MAX: Ns = Ns::from_millis(200);
/// And this long at least, or not at all.
const PAUSE_MIN: Ns = Ns::from_millis(10);
/// Until something was measured, a disk is taken to write this much (`INIT_BW`: 100 MB/s).
const BANDWIDTH_AT_FIRST: u64 = 100 << 20;
/// Pages between two looks at the dirty limits (`ratelimit_pages`, at least 16; 32 for one device).
pub(crate) const RATELIMIT_PAGES: u64 = 32;
/// How often bandwidth is measured (`BANDWIDTH_INTERVAL`: 200 ms).
const BANDWIDTH_INTERVAL: Ns = Ns::from_millis(200);

/// What is known of writeback to one disk.
#[derive(Clone, Debug)]
pub struct Flusher {
    /// Where its flusher waits.
    pub(crate) queue: crate::sched::WaitQueue,
    /// Bytes a second that it writes.
    pub(crate) bandwidth: u64,
    measured_at: Ns,
    written: u64,
    /// Pages that reclaim wants written, whatever the limits.
    nr_wanted: u64,
    /// Files whose inodes changed, by when they did.
    dirty_inodes: BTreeSet<(Ns, FileId)>,
    /// Files to be written, in this order (`b_io`).
    queued: VecDeque<FileId>,
    /// Files of which a part was written, and which are queued again after that (`b_more_io`).
    again: Vec<FileId>,
    /// When it last looked for old pages.
    looked_at: Ns,
    /// Pages that it has written, those of earlier periods halved for each that passed since.
    completed: u64,
    /// The period in which that was so.
    period: u64,
}

/// How many pages all disks have written: by this and by what a disk has written of them, its share of the limit is told
/// before 3.6.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completions {
    nr: u64,
    /// Pages of a period, as a power of two.
    period_order: u32,
}

impl Completions {
    /// None yet, on a machine where so many pages may be dirty when it starts.
    #[doc(alias = "calc_period_shift")]
    pub(crate) fn new(limit: u64) -> Self {
        Self { nr: 0, period_order: 1 + limit.saturating_sub(1).max(1).ilog2() }
    }

    const fn period(self) -> u64 {
        self.nr >> self.period_order
    }

    const fn period_pages(self) -> u64 {
        1 << self.period_order
    }
}

/// Why a flusher writes (`struct wb_writeback_work`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// Reclaim wants pages written.
    Wanted,
    /// Every few seconds: what is old.
    Old,
    /// Too much is dirty.
    Background,
}

impl Flusher {
    pub(crate) const fn new(queue: crate::sched::WaitQueue) -> Self {
        Self {
            queue,
            bandwidth: BANDWIDTH_AT_FIRST,
            measured_at: Ns::ZERO,
            written: 0,
            nr_wanted: 0,
            dirty_inodes: BTreeSet::new(),
            queued: VecDeque::new(),
            again: Vec::new(),
            looked_at: Ns::ZERO,
            completed: 0,
            period: 0,
        }
    }

    /// Has it write so many pages besides what it was asked for before, or all that are dirty now.
    ///
    /// Models: `wakeup_flusher_threads`, `wb_start_writeback`, fs/fs-writeback.c: each call queues work of its own (v3.3 and
    /// v4.4); one call for all that is dirty is as good as several (`WB_start_all`, v6.12).
    fn want(&mut self, pages: Option<u64>, nr_dirty: u64) {
        self.nr_wanted = match pages {
            Some(pages) => self.nr_wanted + pages,
            None => self.nr_wanted.max(nr_dirty),
        };
    }

    /// What it has written, as it counts in this period.
    #[doc(alias = "prop_norm_percpu")]
    fn completed_by(&self, period: u64) -> u64 {
        let passed = u32::try_from(period - self.period).unwrap_or(u32::MAX);
        self.completed.checked_shr(passed).unwrap_or(0)
    }

    /// A page was written.
    #[doc(alias = "__bdi_writeout_inc")]
    fn note_completed(&mut self, completions: &mut Completions) {
        let period = completions.period();
        (self.completed, self.period) = (self.completed_by(period) + 1, period);
        completions.nr += 1;
    }

    /// Its share of so many pages.
    #[doc(alias = "bdi_dirty_limit")]
    #[doc(alias = "prop_fraction_percpu")]
    fn share_of(&self, pages: u64, completions: Completions) -> u64 {
        let of = completions.period_pages() + completions.nr % completions.period_pages();
        let share = u128::from(pages) * u128::from(self.completed_by(completions.period()));
        (share / u128::from(of)) as u64
    }

    /// Notes what was written, and measures anew from time to time (`wb_update_write_bandwidth`).
    fn note_written(&mut self, now: Ns, bytes: u64) {
        self.written += bytes;
        let passed = now.saturating_sub(self.measured_at);
        if passed >= BANDWIDTH_INTERVAL {
            let measured = (u128::from(self.written) * 1_000_000_000 / u128::from(passed.0)) as u64;
            // An average over about three seconds, so that one burst decides nothing.
            let weight = passed.0.min(3_000_000_000);
            let old = u128::from(self.bandwidth) * u128::from(3_000_000_000 - weight);
            let new = u128::from(measured) * u128::from(weight);
            self.bandwidth = (((old + new) / 3_000_000_000) as u64).max(64 << 10);
            (self.measured_at, self.written) = (now, 0);
        }
    }
}

impl Kernel {
    /// Lets the smoothed dirty limit follow the hard one: up at once, down by a part of the distance each
    /// time (`update_dirty_limit`). Called by whoever writes or is held back for it.
    fn update_dirty_limit(&mut self, now: Ns) {
        let (smoothed, at) = self.smoothed_dirty_limit;
        if now.saturating_sub(at) < BANDWIDTH_INTERVAL {
            return;
        }
        let (_, limit) = self.memory.dirty_limits();
        let floor = limit.max(self.nr_dirty_and_writeback());
        let smoothed =
            if smoothed < limit { limit } else { smoothed - (smoothed.saturating_sub(floor) >> 5) };
        self.smoothed_dirty_limit = (smoothed, now);
    }

    fn nr_dirty_and_writeback(&self) -> u64 {
        self.memory.files.nr_dirty() + self.nr_file_writeback
    }

    /// Dirty pages for which the disk has no place become clean: what they hold is lost, and whoever writes next is
    /// told.
    ///
    /// Departs: ext4 counts the space at the time of the write and refuses that. Visible as: a program learns later
    /// that a disk is full.
    #[doc(alias = "mapping_set_error")]
    fn lose_dirty(&mut self, file: FileId, pages: Range<u64>) {
        let device = self.file(file).device;
        self.spaces_on_disks[device.0 as usize].lost_writes = true;
        for index in pages {
            if let CachedPage::Page(pfn) = self.memory.files.get(file, index)
                && self.memory.begin_page_writeback(pfn)
            {
                self.memory.end_writeback(pfn);
            }
        }
    }

    /// A page of a file was written.
    pub(crate) fn end_file_write(&mut self, now: Ns, pfn: Pfn) -> Option<FileId> {
        let owner = self.memory.frames().owner(pfn);
        let (file, _) = self.memory.files.page_of(owner)?;
        self.nr_file_writeback -= 1;
        let this = self.file_mut(file);
        this.nr_writing -= 1;
        let (device, done) = (this.device, this.nr_writing == 0);
        let flusher = &mut self.flushers[device.0 as usize];
        flusher.note_written(now, PAGE_BYTES);
        flusher.note_completed(&mut self.completions);
        done.then_some(file)
    }
}

/// Slows a writer down so that it writes no faster than the disk, once more is dirty than half way between
/// the limits. Suspends.
///
/// # Errors
/// The process was killed.
pub(crate) fn balance_dirty_pages(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    dirtied: u64,
) -> Result<(), Killed> {
    loop {
        super::fault::check(cx, process)?;
        let now = cx.now();
        let kernel = cx.world();
        kernel.update_dirty_limit(now);
        let (background, limit) = kernel.memory.dirty_limits();
        let dirty = kernel.nr_dirty_and_writeback();
        let free_run = (background + limit) / 2;
        if kernel.memory.files.nr_dirty() > background {
            wake_flushers(cx);
        }
        if dirty <= free_run {
            return Ok(());
        }
        let kernel = cx.world();
        kernel.note_writer(now, process);
        let writers = kernel.nr_writers(now).max(1);
        let bandwidth: u64 =
            kernel.flushers.iter().map(|flusher| flusher.bandwidth).max().unwrap_or(1);
        // In thousandths: 1000 at the set point, 0 at the limit, 2000 far below.
        let set_point = (free_run + limit) / 2;
        let span = limit.saturating_sub(set_point).max(1) as i128;
        let x = ((set_point as i128 - dirty as i128) * 1000 / span).clamp(-1000, 1000);
        let position = (1000 + x * x * x / 1_000_000).clamp(0, 2000) as u64;
        let pages_a_second = (bandwidth / PAGE_BYTES * position / 1000 / writers).max(1);
        let pause = Ns(dirtied * 1_000_000_000 / pages_a_second);
        if dirty < limit && pause < PAUSE_MIN {
            return Ok(());
        }
        let pause = pause.min(PAUSE_MAX);
        cx.sleep(pause);
        (cx.world().on_stall)(Stall::DirtyThrottle, pause);
        let (_, limit) = cx.world().memory.dirty_limits();
        if cx.world().nr_dirty_and_writeback() < limit {
            return Ok(());
        }
    }
}

/// Slows down whoever makes pages dirty, once some have become so since somebody last looked
/// (`balance_dirty_pages_ratelimited`). Suspends.
///
/// # Errors
/// The process was killed.
pub(crate) fn balance_dirty_pages_ratelimited(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    dirtied: u64,
) -> Result<(), Killed> {
    let kernel = cx.world();
    kernel.dirtied_since_balanced += dirtied;
    if kernel.dirtied_since_balanced < RATELIMIT_PAGES {
        return Ok(());
    }
    let dirtied = std::mem::take(&mut kernel.dirtied_since_balanced);
    balance_dirty_pages(cx, process, dirtied)
}

impl Kernel {
    /// CPU time of writing pages of a file in so many requests, having found room for them or not.
    fn writing_time(&self, requests: u64, pages: u64, is_room_found: bool) -> Ns {
        self.costs.block_request.times(requests)
            + self.costs.reclaim_page.times(pages)
            + self.costs.metadata_change.times(u64::from(is_room_found))
    }

    /// Whether a page has no place on the disk yet, and its file system gives it none for reclaim. Metadata always gets one.
    fn wants_place_first(&self, file: FileId, index: u64) -> bool {
        let this = self.file(file);
        self.vfs.file_system(this.device) == FileSystem::Ext4
            && this.find(index).is_none()
            && !self.is_metadata(file)
    }

    fn note_writer(&mut self, now: Ns, process: ProcessId) {
        self.writers.insert(process.0, now);
    }

    /// Processes that were held back in the last second.
    fn nr_writers(&mut self, now: Ns) -> u64 {
        self.writers.retain(|_, &mut at| now.saturating_sub(at) <= Ns::from_secs(1));
        self.writers.len() as u64
    }
}

fn wake_flushers(cx: &mut KernelCx<'_>) {
    let queues: Vec<_> = cx.world().flushers.iter().map(|flusher| flusher.queue).collect();
    for queue in queues {
        cx.wake_one(queue);
    }
}

/// Has flushers write so many pages, or all that are dirty now.
#[doc(alias = "wb_start_writeback")]
pub(crate) fn wakeup_flusher_threads(cx: &mut KernelCx<'_>, pages: Option<u64>) {
    let kernel = cx.world();
    let nr_dirty = kernel.memory.files.nr_dirty();
    if nr_dirty == 0 {
        return;
    }
    for flusher in &mut kernel.flushers {
        flusher.want(pages, nr_dirty);
    }
    wake_flushers(cx);
}

impl Kernel {
    /// A file's inode changed: it stays in memory until its flusher has seen to it.
    #[doc(alias = "__mark_inode_dirty")]
    pub(crate) fn dirty_inode(&mut self, file: FileId, now: Ns) {
        let this = self.file_mut(file);
        if this.inode_dirtied_at.is_none() {
            this.inode_dirtied_at = Some(now);
            let device = this.device;
            self.flushers[device.0 as usize].dirty_inodes.insert((now, file));
        }
    }

    /// A file's inode is as it is on the disk, or in the journal: it may go, if nobody uses it.
    #[doc(alias = "inode_sync_complete")]
    fn clean_inode(&mut self, file: FileId) {
        let Some(this) = self.file_table[file.0 as usize].as_mut() else { return };
        if let Some(at) = this.inode_dirtied_at.take() {
            let device = this.device;
            self.flushers[device.0 as usize].dirty_inodes.remove(&(at, file));
            self.consider_inode(file);
        }
    }

    /// A file that is gone has no inode to write.
    pub(super) fn forget_dirty_inode(&mut self, file: FileId, gone: &File) {
        if let Some(at) = gone.inode_dirtied_at {
            self.flushers[gone.device.0 as usize].dirty_inodes.remove(&(at, file));
        }
    }

    /// Writes the inodes that changed long ago, or all where everything is to be written. Their blocks are the journal's,
    /// which has had them since they changed.
    #[doc(alias = "writeback_single_inode")]
    fn write_inodes(&mut self, device: DeviceId, now: Ns) {
        let age_least = if self.writes_all(device) { Ns::ZERO } else { self.knobs.dirty_expire };
        while let Some(&(at, file)) = self.flushers[device.0 as usize].dirty_inodes.first()
            && now.saturating_sub(at) >= age_least
        {
            self.clean_inode(file);
        }
    }

    /// Whether a disk's flusher writes whatever is dirty, and not only what is old.
    fn writes_all(&self, device: DeviceId) -> bool {
        let flusher = &self.flushers[device.0 as usize];
        flusher.nr_wanted > 0 || self.is_over_background(device)
    }

    /// Whether too much is dirty for a disk's flusher to rest: of all, or before 3.6 of the disk's own.
    #[doc(alias = "over_bground_thresh")]
    #[doc(alias = "wb_over_bg_thresh")]
    fn is_over_background(&self, device: DeviceId) -> bool {
        let (nr_dirty, (background, _)) =
            (self.memory.files.nr_dirty(), self.memory.dirty_limits());
        if nr_dirty > background {
            return true;
        }
        match self.flows.files.background_share {
            BackgroundShare::Whole => false,
            BackgroundShare::Written => {
                let flusher = &self.flushers[device.0 as usize];
                let share = flusher.share_of(background, self.completions);
                nr_dirty > share && self.nr_dirty_on(device) > share
            }
        }
    }

    /// Dirty pages of a disk's files (`BDI_RECLAIMABLE`).
    fn nr_dirty_on(&self, device: DeviceId) -> u64 {
        let files = self.memory.files.dirty_files();
        files
            .filter(|&id| self.file(id).device == device)
            .map(|id| self.memory.files.counts(id).1)
            .sum()
    }

    /// Why a disk's flusher should write now, the most urgent reason first. To have looked for old pages counts.
    #[doc(alias = "wb_check_old_data_flush")]
    #[doc(alias = "wb_do_writeback")]
    fn reason_to_write(&mut self, device: DeviceId, now: Ns) -> Option<Reason> {
        let is_over = self.is_over_background(device);
        let interval = self.knobs.writeback_interval;
        let flusher = &mut self.flushers[device.0 as usize];
        if flusher.nr_wanted > 0 {
            Some(Reason::Wanted)
        } else if interval.is_some_and(|most| now.saturating_sub(flusher.looked_at) >= most) {
            flusher.looked_at = now;
            Some(Reason::Old)
        } else {
            is_over.then_some(Reason::Background)
        }
    }

    /// Whether there is still that reason.
    fn goes_on(&self, device: DeviceId, reason: Reason) -> bool {
        let flusher = &self.flushers[device.0 as usize];
        let is_asked = flusher.nr_wanted > 0;
        match reason {
            Reason::Wanted => is_asked,
            Reason::Old => !is_asked,
            Reason::Background => !is_asked && self.is_over_background(device),
        }
    }

    /// Queues a disk's dirty files if no file is queued: those that were written in part, then what has been dirty for
    /// long enough, oldest first.
    #[doc(alias = "queue_io")]
    #[doc(alias = "move_expired_inodes")]
    fn queue_dirty_files(&mut self, device: DeviceId, reason: Reason, now: Ns) {
        let flusher = &mut self.flushers[device.0 as usize];
        if !flusher.queued.is_empty() {
            return;
        }
        let again = std::mem::take(&mut flusher.again);
        let age_least = if reason == Reason::Old { self.knobs.dirty_expire } else { Ns::ZERO };
        let is_due = |&(at, _): &(Ns, FileId)| now.saturating_sub(at) >= age_least;
        let dirty = self.memory.files.dirty_files();
        let mut found: Vec<(Ns, FileId)> = dirty
            .filter_map(|id| {
                let file = self.file(id);
                (file.device == device).then_some((file.dirtied_at?, id))
            })
            .filter(|due| is_due(due) && !again.contains(&due.1))
            .collect();
        found.sort_unstable();
        let queue = again.into_iter().chain(found.into_iter().map(|(_, id)| id));
        self.flushers[device.0 as usize].queued = queue.collect();
    }

    /// Whether a file is there, and dirty.
    fn has_dirty_pages(&self, file: FileId) -> bool {
        self.file_table[file.0 as usize].is_some() && self.memory.files.counts(file).1 > 0
    }

    /// Pages of a file that are written before it is the next one's turn.
    #[doc(alias = "writeback_chunk_size")]
    fn chunk_pages(&self, device: DeviceId) -> u64 {
        let half_a_second = self.flushers[device.0 as usize].bandwidth / PAGE_BYTES / 2;
        let pages = half_a_second.min(self.smoothed_dirty_limit.0 / 8);
        (pages + CHUNK_PAGES) / CHUNK_PAGES * CHUNK_PAGES
    }
}

/// The kernel thread that writes one disk's dirty pages. Never returns.
pub(crate) fn flusher(cx: &mut KernelCx<'_>, device: DeviceId) {
    loop {
        let now = cx.now();
        let kernel = cx.world();
        let queue = kernel.flushers[device.0 as usize].queue;
        kernel.write_inodes(device, now);
        let reason = kernel.reason_to_write(device, now);
        let progress = reason.map_or(0, |reason| write_back(cx, device, reason));
        if progress == 0 {
            match cx.world().knobs.writeback_interval {
                Some(interval) => {
                    cx.wait_timeout(queue, interval);
                }
                None => cx.wait(queue),
            }
        }
    }
}

/// Writes files for as long as there is this reason to. Returns as [`write_queued_files`]. Suspends.
#[doc(alias = "wb_writeback")]
fn write_back(cx: &mut KernelCx<'_>, device: DeviceId, reason: Reason) -> u64 {
    let mut progress = 0;
    while cx.world().goes_on(device, reason) {
        let now = cx.now();
        let kernel = cx.world();
        kernel.write_inodes(device, now);
        kernel.update_dirty_limit(now);
        kernel.queue_dirty_files(device, reason, now);
        let written = write_queued_files(cx, device, reason);
        progress += written;
        if written > 0 {
            continue;
        }
        let flusher = &mut cx.world().flushers[device.0 as usize];
        if flusher.queued.is_empty() && flusher.again.is_empty() {
            // Nothing of this disk's is dirty, whatever was wanted.
            if reason == Reason::Wanted {
                flusher.nr_wanted = 0;
            }
            break;
        }
        // All that is dirty is being written already and became dirty again: that has to end first
        // (`inode_sleep_on_writeback`).
        let written = cx.world().written_wait;
        cx.wait_for_io_in(written, Some(TENTH));
    }
    progress
}

/// Writes queued files until none is left, or for a while. Returns how many pages. Suspends.
#[doc(alias = "writeback_sb_inodes")]
fn write_queued_files(cx: &mut KernelCx<'_>, device: DeviceId, reason: Reason) -> u64 {
    let began = cx.now();
    let mut progress = 0;
    while let Some(file) = cx.world().flushers[device.0 as usize].queued.pop_front() {
        let kernel = cx.world();
        if !kernel.has_dirty_pages(file) || kernel.file(file).device != device {
            continue;
        }
        let before = kernel.memory.files.nr_written();
        let chunk = kernel.chunk_pages(device);
        write_file_pages(cx, file, chunk);
        let now = cx.now();
        let kernel = cx.world();
        let written = kernel.memory.files.nr_written() - before;
        progress += written;
        let is_left = kernel.has_dirty_pages(file);
        let flusher = &mut kernel.flushers[device.0 as usize];
        flusher.nr_wanted = flusher.nr_wanted.saturating_sub(written);
        if is_left && (written >= chunk || written == 0) {
            flusher.again.push(file);
        }
        let is_enough = reason == Reason::Wanted && flusher.nr_wanted == 0;
        if is_enough || now.saturating_sub(began) >= ROUND {
            break;
        }
    }
    progress
}

/// Writes up to `most` dirty pages of a file, in order, without waiting for them. Suspends while the disk's
/// queue is full.
pub(crate) fn write_file_pages(cx: &mut KernelCx<'_>, file: FileId, most: u64) {
    let since = cx.world().file_mut(file).dirtied_at.take();
    let (mut from, mut left) = (0, most);
    // Where the pages end that found room last: what follows them finds it with them.
    let mut placed_until = None;
    while left > 0 {
        if cx.world().file_table[file.0 as usize].is_none() {
            return;
        }
        let kernel = cx.world();
        let Some(first) = kernel.memory.files.next_dirty(file, from) else { break };
        // A run of neighbours, as long as a request may be.
        let end = kernel.memory.files.end_of_dirty(file, first, left.min(128));
        let Ok(is_placed) = kernel.allocate_space(file, first, end - first) else {
            kernel.lose_dirty(file, first..end);
            left = left.saturating_sub(end - first);
            from = end;
            continue;
        };
        if is_placed {
            inodes::note_change(cx, file);
        }
        let kernel = cx.world();
        let device = kernel.file(file).device;
        let mut ios: Vec<Io> = Vec::new();
        for index in first..end {
            if let CachedPage::Page(soon) = kernel.memory.files.get(file, index + AHEAD as u64) {
                kernel.memory.warm_frame(soon);
            }
            let CachedPage::Page(pfn) = kernel.memory.files.get(file, index) else { continue };
            if !kernel.memory.begin_page_writeback(pfn) {
                continue;
            }
            kernel.nr_file_writeback += 1;
            let this = kernel.file_mut(file);
            this.nr_writing += 1;
            let (at, _) = this.find(index).unwrap_or_else(|| unreachable!("it was allocated"));
            ios.push(Io::write(at, PAGE_BYTES, u64::from(pfn.0)));
        }
        let requests = ios.windows(2).filter(|w| w[0].offset + PAGE_BYTES != w[1].offset).count();
        let nr_requests = if ios.is_empty() { 0 } else { requests as u64 + 1 };
        // Mapped pages may not be written until they fault again: what that took, too.
        let work = kernel.memory.take_work();
        let is_found = is_placed && placed_until != Some(first);
        placed_until = is_placed.then_some(end);
        let writing = kernel.writing_time(nr_requests, ios.len() as u64, is_found);
        let cost = writing + price(cx, work).free;
        cx.spend(cost, Mode::System);
        cx.submit_all(device, &ios);
        if is_placed {
            inodes::note_size(cx, file);
        }
        left = left.saturating_sub(end - first);
        // A page under writeback that is dirty again keeps its mark: go past it.
        from = end;
    }
    // What is left is as old as it was; what became dirty meanwhile is not.
    let now = cx.now();
    let kernel = cx.world();
    kernel.clean_inode(file);
    if kernel.has_dirty_pages(file) {
        let age = if left == 0 { since.unwrap_or(now) } else { now };
        let this = kernel.file_mut(file);
        this.dirtied_at = Some(this.dirtied_at.map_or(age, |at| at.min(age)));
    }
}

/// Writes one page that reclaim has come across, or learns that the file system does not: ext4 gives no page a place
/// there. One without stays dirty, counts as written all the same, and is met again until the flusher has come. A guest of
/// 3.3 counted 200,000 such writes while 18,000 pages of files were written.
///
/// Models: `pageout`, mm/vmscan.c, v3.3 to v6.1; `ext4_writepage`, fs/ext4/inode.c, v3.3 to v6.1.
/// Departs: 6.12 has no such call of either file system, and makes the page active. Visible as: where kswapd finds that
/// all is dirty, it writes pages of files that have their places. XFS writes a page's neighbours with it. Visible as: fewer
/// requests.
#[doc(alias = "pageout")]
#[doc(alias = "ext4_writepage")]
pub(crate) fn write_one(cx: &mut KernelCx<'_>, pfn: Pfn) {
    let kernel = cx.world();
    // Whoever reclaims has waited since it met the page, which may have gone.
    let Some((file, index)) = kernel.memory.file_page_at(pfn) else { return };
    if kernel.wants_place_first(file, index) {
        kernel.memory.redirty_page(pfn);
        // Its marks are taken off and put back, as where it is written.
        let cost = kernel.writing_time(0, 1, false);
        cx.spend(cost, Mode::System);
        return;
    }
    let Ok(is_placed) = kernel.allocate_space(file, index, 1) else { return };
    if is_placed {
        inodes::note_change(cx, file);
    }
    let kernel = cx.world();
    if !kernel.memory.begin_page_writeback(pfn) {
        return;
    }
    kernel.nr_file_writeback += 1;
    let this = kernel.file_mut(file);
    this.nr_writing += 1;
    let device = this.device;
    let (at, _) = this.find(index).unwrap_or_else(|| unreachable!("it was allocated"));
    let cost = kernel.writing_time(1, 1, is_placed);
    cx.spend(cost, Mode::System);
    cx.submit(device, Io::write(at, PAGE_BYTES, u64::from(pfn.0)));
}

/// Waits until no page of a file is being written.
pub(crate) fn wait_on_writeback(cx: &mut KernelCx<'_>, file: FileId) {
    while cx.world().file_table[file.0 as usize].as_ref().is_some_and(|file| file.nr_writing > 0) {
        let queue = cx.world().written_wait;
        cx.wait_for_io_in(queue, None);
    }
}

/// Writes a file's dirty pages and waits for them (`fsync`). Suspends.
///
/// # Errors
/// The disk is full.
pub fn fsync(cx: &mut KernelCx<'_>, file: FileId) -> Result<(), FileError> {
    write_and_wait(cx, file);
    match cx.world().file_table[file.0 as usize].is_some() && cx.world().has_lost_writes(file) {
        true => Err(FileError::NoSpace),
        false => Ok(()),
    }
}

/// Writes a file's dirty pages and waits for them. Suspends.
fn write_and_wait(cx: &mut KernelCx<'_>, file: FileId) {
    // The first time passes over pages that were being written already, and are dirty again. What becomes
    // dirty from now on is for the next call.
    for _ in 0..2 {
        if cx.world().has_dirty_pages(file) {
            write_file_pages(cx, file, u64::MAX);
        }
        wait_on_writeback(cx, file);
    }
}

/// Writes everything and waits for it (`sync`). Suspends.
pub fn sync(cx: &mut KernelCx<'_>) {
    let files: Vec<FileId> = cx.world().files().map(|(file, _)| file).collect();
    for &file in &files {
        if cx.world().file_table[file.0 as usize].is_some() {
            write_file_pages(cx, file, u64::MAX);
        }
    }
    for file in files {
        if cx.world().file_table[file.0 as usize].is_some() {
            write_and_wait(cx, file);
        }
    }
    // What that changed in turn: committed, and written to its place.
    for device in (0..cx.world().journals.len()).map(|number| DeviceId(number as u32)) {
        journal::commit(cx, device);
        xfs_log::checkpoint(cx, device);
        if let Some(metadata) = cx.world().vfs.metadata(device) {
            write_and_wait(cx, metadata);
        }
    }
    // What others dirtied meanwhile is theirs.
    cx.sleep(SOON);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_as_many_pages_as_may_be_dirty_rounded_up() {
        let period = |limit| Completions::new(limit).period_pages();
        assert_eq!([0, 1, 2, 3, 4, 5, 50_000].map(period), [2, 2, 2, 4, 4, 8, 65_536]);
    }

    #[test]
    fn what_several_ask_for_adds_up_and_all_that_is_dirty_is_wanted_once() {
        let mut flusher = Flusher::new(crate::sched::WaitQueue(0));
        let mut wanted = |pages| {
            flusher.want(pages, 500);
            flusher.nr_wanted
        };
        assert_eq!(
            [Some(100), Some(60), None, None, Some(10)].map(&mut wanted),
            [100, 160, 500, 500, 510]
        );
    }

    #[test]
    fn a_disk_alone_comes_to_have_the_whole_limit() {
        let mut completions = Completions::new(1000);
        let mut flusher = Flusher::new(crate::sched::WaitQueue(0));
        let mut shares = Vec::new();
        for written in 0..=8192 {
            if written % 1024 == 0 {
                shares.push(flusher.share_of(1000, completions));
            }
            flusher.note_completed(&mut completions);
        }
        // Half of each period stays: 0, 1/2, 3/4 ...
        assert_eq!(shares, [0, 500, 750, 875, 937, 968, 984, 992, 996]);
    }

    #[test]
    fn shares_are_never_more_than_there_is() {
        let mut completions = Completions::new(1000);
        let mut flushers = [(); 3].map(|()| Flusher::new(crate::sched::WaitQueue(0)));
        for turn in 0..300_usize {
            // Long turns and short ones, so that a disk rests for none, one or many periods.
            for _ in 0..(turn * 37 % 11) * (turn * 53 % 17) * 40 {
                flushers[turn * 29 % 7 % 3].note_completed(&mut completions);
            }
            let shares = flushers.iter().map(|flusher| flusher.share_of(1000, completions));
            let all: u64 = shares.sum();
            assert!(all <= 1000, "{all} after {turn} turns");
        }
        assert!(completions.period() > 100, "{completions:?}");
    }
}
