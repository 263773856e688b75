//! XFS's log: what changes in inodes is put together in memory, in objects of the generic caches, until a checkpoint
//! has written all of it.
//!
//! Whoever changes an inode formats the change into a *vector*, which the log keeps; later changes of the same inode go
//! into the same vector while they fit. Once there is an eighth of the log's size of changes, or half a minute has
//! passed, a checkpoint takes all vectors, writes them, and frees them together. Beside the vector that the log has, an
//! inode keeps a *shadow*, into which the next change would go. So memory that does not move comes and goes in bursts
//! while files are written.
//!
//! Models: `xlog_cil_alloc_shadow_bufs`, `xlog_cil_insert_format_items`, `xlog_cil_push_background`, `xlog_cil_push`,
//! `xlog_cil_committed`, fs/xfs/xfs_log_cil.c; `xfs_log_worker`, fs/xfs/xfs_log.c; `xfs_inode_item_size`,
//! fs/xfs/xfs_inode_item.c; `xfs_iflush`, fs/xfs/xfs_inode.c; v4.20.
//! Departs: inodes alone are logged, no directories, no free space. Visible as: a hundredth of changes less. A
//! checkpoint may be as large as before 5.6, nobody who makes it too large is held back, and the log is never full.
//! Visible as: larger bursts on later kernels. A file's new size is logged when its pages are sent to the disk, not once
//! they are there. Visible as: a vector is taken some hundredths of a second earlier. Writes to the log are to the disk
//! what any others are that somebody waits for, and do not have it empty its cache (`REQ_PREFLUSH`). Visible as:
//! beside much writing a checkpoint takes longer or shorter. What a checkpoint has written goes to the inodes' buffers
//! when half a minute has passed, however full the log. Visible as: nothing where that is large.

use super::inodes::EntryRef;
use super::journal::{Ring, TAG};
use super::xfs_buffers::{self, Use};
use super::{Kernel, KernelCx, PAGE_BYTES, slab};
use crate::device::Io;
use crate::machine::FileSystem;
use crate::sched::{DeviceId, WaitQueue};
use crate::task::Mode;
use highorder_mm::gfp::Gfp;
use highorder_mm::slab::{CacheId, Object};
use highorder_mm::vma::ProcessId;
use highorder_mm::vmstat::Vm;
use highorder_words::Ns;
use std::collections::BTreeMap;

/// How long changes stay in memory at most (`xfs_syncd_centisecs`, fs/xfs/xfs_globals.c).
const INTERVAL: Ns = Ns::from_secs(30);
/// Share of the log that one checkpoint may fill before it is written (`XLOG_CIL_SPACE_LIMIT`, until 5.6).
const CHECKPOINTS_OF_LOG: u64 = 8;
/// Bytes of the log for one byte of the disk, and the least and most of them (xfsprogs 4.19, mkfs/xfs_mkfs.c:
/// `calculate_log_size`; `XFS_MIN_LOG_BYTES`, `XFS_MAX_LOG_BYTES`).
const DISK_OF_LOG: u64 = 2048;
const LOG_BYTES: (u64, u64) = (10 << 20, (2 << 30) - PAGE_BYTES);
/// What is on its way to the log at a time: eight buffers (`XLOG_MAX_ICLOGS`) of 32 KiB (`XLOG_BIG_RECORD_BSIZE`).
const WRITE_BLOCKS: u64 = 8 * 32 * 1024 / PAGE_BYTES;
/// Vectors that are freed before somebody else has his turn.
const FREE_BATCH: usize = 1024;

/// Bytes of `struct xfs_log_vec` and `struct xfs_log_iovec` on 64 bits, and of a record's header in the log
/// (`xlog_op_header_t`).
const VECTOR_BYTES: u32 = 56;
const REGION_BYTES: u32 = 16;
const REGION_HEADER_BYTES: u32 = 12;
/// What is logged of an inode: `struct xfs_inode_log_format` and, with checksums, `struct xfs_log_dinode`.
const INODE_BYTES: u32 = 56 + 176;
/// Room for a file's places in an inode of 512 bytes (`XFS_IFORK_DSIZE`), and what each of these takes
/// (`xfs_bmbt_rec`).
const FORK_BYTES: u32 = 512 - 176;
pub(super) const PLACE_BYTES: u32 = 16;

/// What has changed in an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// Times or size.
    Core,
    /// Where the file's pages lie, of which there are now so many pieces.
    Places(u32),
}

/// Memory of the generic cache for so many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Chunk {
    object: Object,
    bytes: u32,
}

impl Chunk {
    /// Takes memory, if it is to be had. Suspends.
    pub(super) fn alloc(
        cx: &mut KernelCx<'_>,
        process: Option<ProcessId>,
        bytes: u32,
    ) -> Option<Self> {
        let object = slab::alloc(cx, cache(bytes), Gfp::KERNEL - Gfp::FS, process)?;
        Some(Self { object, bytes })
    }

    /// Gives it back.
    pub(super) fn free(self, cx: &mut KernelCx<'_>) {
        slab::free(cx, cache(self.bytes), self.object);
    }

    /// Whether so many bytes have room in it (`ksize`).
    pub(super) fn has_room_for(self, bytes: u32) -> bool {
        cache(bytes) <= cache(self.bytes)
    }

    /// What it is, for those who free without a context.
    pub(super) fn part(self) -> (CacheId, Object) {
        (cache(self.bytes), self.object)
    }
}

fn cache(bytes: u32) -> CacheId {
    CacheId::kmalloc(bytes).unwrap_or_else(|| unreachable!("there is a cache for {bytes} bytes"))
}

/// What the log knows of an inode (`struct xfs_log_item`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Item {
    /// What the next checkpoint writes of it.
    vector: Option<Chunk>,
    /// Into which the next change goes that does not fit.
    shadow: Option<Chunk>,
    /// Bytes of `vector` that go to the log.
    logged: u32,
    /// Pieces of the file, if they have changed since the inode went to its buffer.
    changed_places: Option<u32>,
}

impl Item {
    /// Memory that a change needs, and the part of it that goes to the log.
    #[doc(alias = "xfs_inode_item_size")]
    fn sizes(&self) -> (u32, u32) {
        let (regions, room, logged) = match self.changed_places {
            None => (2, 0, 0),
            Some(places) => (3, FORK_BYTES, (places * PLACE_BYTES).min(FORK_BYTES)),
        };
        // The length of each region is aligned.
        let room = INODE_BYTES + room + regions * 8;
        (
            VECTOR_BYTES + regions * REGION_BYTES + room,
            INODE_BYTES + logged + regions * REGION_HEADER_BYTES,
        )
    }

    /// Puts the inode's state into its vector, or into the shadow where it is too small. Returns how many bytes more
    /// go to the log.
    #[doc(alias = "xlog_cil_insert_format_items")]
    fn format(&mut self) -> u64 {
        let (_, logged) = self.sizes();
        if self.vector.is_none_or(|vector| Some(vector.bytes) < self.shadow.map(|it| it.bytes)) {
            std::mem::swap(&mut self.vector, &mut self.shadow);
        }
        let more = logged.saturating_sub(self.logged);
        self.logged = logged;
        u64::from(more)
    }

    /// What goes with the inode at once: its shadow. What a checkpoint is to write is the log's from now on.
    pub(super) fn dissolve(&mut self) -> (Option<Chunk>, Option<Chunk>) {
        let gone = std::mem::take(self);
        (gone.shadow, gone.vector)
    }
}

/// The log of a file system.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    /// Where its thread waits.
    queue: WaitQueue,
    /// Where others wait for a checkpoint to be written.
    committed_wait: WaitQueue,
    /// Inodes with changes for the next checkpoint, and how many bytes these are.
    running: Vec<EntryRef>,
    space: u64,
    /// Vectors of inodes that are no longer in memory.
    orphans: Vec<Chunk>,
    is_writing: bool,
    /// Inodes whose changes are in the log but not in their buffers, by number.
    committed: BTreeMap<u64, EntryRef>,
    ring: Ring,
}

impl Log {
    /// An empty log of a file system on a disk of `capacity` bytes; only XFS has one here.
    pub(super) fn new(
        file_system: FileSystem,
        capacity: u64,
        queue: WaitQueue,
        committed_wait: WaitQueue,
    ) -> Option<Self> {
        let FileSystem::Xfs = file_system else { return None };
        let bytes = (capacity / DISK_OF_LOG).clamp(LOG_BYTES.0, LOG_BYTES.1);
        Some(Self {
            queue,
            committed_wait,
            running: Vec::new(),
            space: 0,
            orphans: Vec::new(),
            is_writing: false,
            committed: BTreeMap::new(),
            ring: Ring::new(capacity, bytes),
        })
    }

    /// Whether it is time for a checkpoint.
    #[doc(alias = "xlog_cil_push_background")]
    fn is_full(&self) -> bool {
        self.space >= self.ring.bytes() / CHECKPOINTS_OF_LOG
    }

    /// Keeps what the next checkpoint writes of an inode that is no longer in memory.
    pub(super) fn adopt(&mut self, vector: Chunk) {
        self.orphans.push(vector);
    }
}

impl Kernel {
    pub(super) fn xfs_log(&mut self, device: DeviceId) -> Option<&mut Log> {
        self.xfs_logs.get_mut(device.0 as usize).and_then(Option::as_mut)
    }
}

/// Notes a change of an inode, if memory for that is to be had. Suspends.
#[doc(alias = "xlog_cil_alloc_shadow_bufs")]
pub(super) fn note_change(
    cx: &mut KernelCx<'_>,
    process: Option<ProcessId>,
    device: DeviceId,
    entry: EntryRef,
    change: Change,
) {
    let Some(item) = cx.world().vfs.log_item(entry) else { return };
    if let Change::Places(places) = change {
        item.changed_places = Some(places);
    }
    let (needed, _) = item.sizes();
    if item.shadow.is_none_or(|shadow| shadow.bytes < needed) {
        if let Some(small) = item.shadow.take() {
            small.free(cx);
        }
        let Some(shadow) = Chunk::alloc(cx, process, needed) else { return };
        match cx.world().vfs.log_item(entry) {
            Some(item) if item.shadow.is_none() => item.shadow = Some(shadow),
            // Somebody else was faster, or the inode is gone.
            _ => return shadow.free(cx),
        }
    }
    let kernel = cx.world();
    let Some(item) = kernel.vfs.log_item(entry) else { return };
    let is_new = item.vector.is_none();
    let more = item.format();
    let Some(log) = kernel.xfs_log(device) else { return };
    if is_new {
        log.running.push(entry);
    }
    log.space += more;
    let queue = log.queue;
    if log.is_full() && !log.is_writing {
        cx.wake_one(queue);
    }
}

/// The kernel thread that writes a disk's log, and brings what it has written to the inodes' buffers. Returns only
/// where there is no log.
#[doc(alias = "xfs_log_worker")]
pub(super) fn worker(cx: &mut KernelCx<'_>, device: DeviceId) {
    let mut due = cx.now().saturating_add(INTERVAL);
    loop {
        let now = cx.now();
        let Some(log) = cx.world().xfs_log(device) else { return };
        let queue = log.queue;
        if log.is_full() {
            checkpoint(cx, device);
        } else if now < due {
            cx.wait_timeout(queue, due - now);
        } else {
            checkpoint(cx, device);
            flush(cx, device);
            due = cx.now().saturating_add(INTERVAL);
        }
    }
}

/// Writes all changes until now to the log, waits for that, and frees the memory they were in. Suspends.
#[doc(alias = "xlog_cil_push")]
pub(super) fn checkpoint(cx: &mut KernelCx<'_>, device: DeviceId) {
    while let Some(log) = cx.world().xfs_log(device).filter(|log| log.is_writing) {
        let queue = log.committed_wait;
        cx.wait_for_io_in(queue, None);
    }
    let kernel = cx.world();
    let Some(log) = kernel.xfs_log(device) else { return };
    let (changed, space) = (std::mem::take(&mut log.running), std::mem::take(&mut log.space));
    let mut vectors = std::mem::take(&mut log.orphans);
    log.is_writing = true;
    for &entry in &changed {
        let Some(item) = kernel.vfs.log_item(entry) else { continue };
        vectors.extend(item.vector.take());
        item.logged = 0;
    }
    write(cx, device, space);
    let kernel = cx.world();
    let numbers: Vec<_> =
        changed.iter().filter_map(|&entry| Some((kernel.vfs.number(entry)?, entry))).collect();
    let Some(log) = kernel.xfs_log(device) else { return };
    log.committed.extend(numbers);
    log.is_writing = false;
    let queue = log.committed_wait;
    cx.wake_all(queue);
    free_all(cx, &vectors);
}

/// Writes so many bytes to the log, a few of its buffers at a time. Suspends.
fn write(cx: &mut KernelCx<'_>, device: DeviceId, space: u64) {
    let mut left = space.div_ceil(PAGE_BYTES);
    while left > 0 {
        let kernel = cx.world();
        let Some(log) = kernel.xfs_log(device) else { return };
        let (at, blocks) = log.ring.take_place(left.min(WRITE_BLOCKS));
        kernel.memory.vm.add(Vm::PgPgOut, blocks * PAGE_BYTES / 1024);
        let cost = kernel.costs.block_request.once();
        cx.spend(cost, Mode::System);
        let ticket = cx.submit(device, Io::write(at, blocks * PAGE_BYTES, TAG).sync());
        cx.wait_io(ticket);
        left -= blocks;
    }
}

#[doc(alias = "xlog_cil_committed")]
fn free_all(cx: &mut KernelCx<'_>, vectors: &[Chunk]) {
    for batch in vectors.chunks(FREE_BATCH) {
        let cpu = cx.cpu();
        let kernel = cx.world();
        for vector in batch {
            let (cache, object) = vector.part();
            kernel.memory.free_object(cache, object, cpu);
        }
        let zone = kernel.first_zone();
        super::work::spend_work(cx, zone);
    }
}

/// Brings inodes whose changes are in the log to their buffers, but not those that have changed again, and has the
/// buffers written. Suspends.
#[doc(alias = "xfs_iflush")]
#[doc(alias = "xfsaild_push")]
fn flush(cx: &mut KernelCx<'_>, device: DeviceId) {
    let superblock = device.0 as usize;
    let (mut from, mut buffer) = (0, None);
    while let Some((number, entry)) = next_committed(cx.world(), device, from) {
        from = number + 1;
        let kernel = cx.world();
        match kernel.vfs.log_item(entry) {
            Some(item) if item.vector.is_some() => continue,
            Some(item) => item.changed_places = None,
            None => {}
        }
        if let Some(log) = kernel.xfs_log(device) {
            log.committed.remove(&number);
        }
        let this = xfs_buffers::number_of(number);
        if let Some(full) = buffer.replace(this).filter(|&full| full != this) {
            xfs_buffers::write(cx, superblock, full);
        }
        xfs_buffers::touch(cx, None, superblock, number, Use::Flush);
    }
    if let Some(last) = buffer {
        xfs_buffers::write(cx, superblock, last);
    }
}

/// The first inode from a number on whose changes are in the log but not in its buffer.
fn next_committed(kernel: &mut Kernel, device: DeviceId, from: u64) -> Option<(u64, EntryRef)> {
    let log = kernel.xfs_log(device)?;
    log.committed.range(from..).next().map(|(&number, &entry)| (number, entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_has_room_for_all_places_of_a_file_or_for_none() {
        // 56 + 2 * 16 + 232 + 2 * 8, of which 232 and two headers go to the log.
        assert_eq!(Item::default().sizes(), (336, 256));
        // With 336 bytes and one region more; three places are 48 bytes.
        let item = Item { changed_places: Some(3), ..Item::default() };
        assert_eq!(item.sizes(), (696, 316));
    }

    #[test]
    fn changes_stay_in_their_vector_while_they_fit() {
        let chunk = |bytes| Some(Chunk { object: Object::NONE, bytes });
        let mut item = Item { shadow: chunk(336), ..Item::default() };
        assert_eq!(item.format(), 256);
        assert_eq!((item.vector, item.shadow), (chunk(336), None));
        // The same once more: nothing new goes to the log, and the new shadow waits.
        item.shadow = chunk(336);
        assert_eq!(item.format(), 0);
        assert_eq!((item.vector, item.shadow), (chunk(336), chunk(336)));
        // Too large for the vector, which is the shadow from now on.
        (item.changed_places, item.shadow) = (Some(3), chunk(696));
        assert_eq!(item.format(), 60);
        assert_eq!((item.vector, item.shadow), (chunk(696), chunk(336)));
    }

    #[test]
    fn the_log_is_a_share_of_the_disk() {
        let log = |capacity| Log::new(FileSystem::Xfs, capacity, WaitQueue(0), WaitQueue(1));
        assert_eq!(log(2 << 40).map(|log| log.ring.bytes()), Some(1 << 30));
        assert_eq!(log(1 << 30).map(|log| log.ring.bytes()), Some(10 << 20));
        assert!(Log::new(FileSystem::Ext4, 1 << 30, WaitQueue(0), WaitQueue(1)).is_none());
    }
}
