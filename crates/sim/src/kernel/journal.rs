//! The journal of ext4: blocks of metadata that a transaction has changed are held in memory until they are on the
//! disk in their places, and can meanwhile be neither moved nor reclaimed.
//!
//! A change puts a block into the running transaction. Every five seconds that is committed: its blocks are written
//! to the journal, and only then are they dirty. When they have been written to their places as well, whoever wants
//! their memory can have it; since 5.14 only commits and shrinking let them go.
//!
//! Models: fs/jbd2/transaction.c (`jbd2_journal_get_write_access`), fs/jbd2/commit.c
//! (`jbd2_journal_commit_transaction`), fs/jbd2/checkpoint.c (`__jbd2_journal_clean_checkpoint_list`,
//! `jbd2_journal_shrink_checkpoint_list`), fs/jbd2/journal.c (`kjournald2`), v4.4 and v6.12; mm/migrate.c
//! (`buffer_migrate_folio_norefs`, before 5.0 `fallback_migrate_page`): buffers that somebody refers to keep their
//! page where it is; fs/ext4/super.c (`bdev_try_to_free_page`, before 5.14).
//! Departs: inode tables alone are journaled, not directories and bitmaps. Visible as: fewer blocks are held, by a
//! sixth where many files are made. `fsync` does not wait for the journal. Visible as: it is faster by a commit.
//! A transaction grows for five seconds however large it is, and the journal is never full. Visible as: nothing
//! below a thousand changed blocks.
//! Blocks of a transaction are let go by their numbers, where the kernel has them in the order of their first change.
//! Visible as: nothing, where files are made one after another. From 5.0 to 5.13, when reclaim could have what is
//! written and migration could not, both can. Visible as: those kernels' compaction moves a few blocks more. A block
//! that changes again while it waits to be written to its place can be written there before it is committed. Visible
//! as: a few more writes. The journal's own place is not kept from files. Visible as: nothing.

use super::slab::{BATCH, DEFAULT_SEEKS, Pressure, ShrinkPlan};
use super::{Kernel, KernelCx, PAGE_BYTES, filemap};
use crate::device::Io;
use crate::machine::FileSystem;
use crate::sched::{DeviceId, WaitQueue};
use crate::task::Mode;
use highorder_mm::Pfn;
use highorder_mm::filemap::CachedPage;
use highorder_mm::frame::PageFlags;
use highorder_mm::vmstat::Vm;
use highorder_words::Ns;
use std::collections::{BTreeMap, BTreeSet};

/// How long a transaction runs at most (`JBD2_DEFAULT_MAX_COMMIT_AGE`).
const COMMIT_INTERVAL: Ns = Ns::from_secs(5);
/// What a commit writes besides its blocks: a descriptor and the commit record.
const EXTRA_BLOCKS: u64 = 2;
/// Blocks of a transfer.
const BATCH_BLOCKS: u64 = 128;
/// Tells the journal's transfers from those of pages.
pub(super) const TAG: u64 = u64::MAX;

/// The journal of a file system.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    /// Where its thread waits.
    queue: WaitQueue,
    /// Where others wait for a commit to end.
    committed_wait: WaitQueue,
    /// Blocks of the inode tables that the running transaction has changed.
    running: BTreeSet<u64>,
    began: Ns,
    committing: BTreeSet<u64>,
    checkpoints: Checkpoints,
    ring: Ring,
}

/// Blocks that were committed and are still held (`j_checkpoint_transactions`).
#[derive(Clone, Debug, Default)]
struct Checkpoints {
    /// What was committed last.
    transaction: u64,
    /// Each block: the transaction that committed it last, and whether it is in its place since.
    blocks: BTreeMap<u64, (u64, bool)>,
    /// The same by transaction, the oldest first.
    ordered: BTreeSet<(u64, u64)>,
    /// What shrinking put off.
    deferred: u64,
}

impl Checkpoints {
    /// A transaction was committed. What it changed again belongs to it from now on.
    fn commit(&mut self, blocks: &BTreeSet<u64>) {
        self.transaction += 1;
        for &block in blocks {
            self.remove(block);
            self.blocks.insert(block, (self.transaction, false));
            self.ordered.insert((self.transaction, block));
        }
    }

    /// A block lies in its place. Whether it was waited for.
    fn note_written(&mut self, block: u64) -> bool {
        match self.blocks.get_mut(&block) {
            Some((_, is_written @ false)) => {
                *is_written = true;
                true
            }
            _ => false,
        }
    }

    fn oldest_first(&self) -> impl Iterator<Item = u64> {
        self.ordered.iter().map(|&(_, block)| block)
    }

    fn remove(&mut self, block: u64) {
        if let Some((transaction, _)) = self.blocks.remove(&block) {
            self.ordered.remove(&(transaction, block));
        }
    }
}

/// A log's place in the middle of a disk, which is written from its beginning to its end, and again.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    /// Its first byte.
    start: u64,
    bytes: u64,
    /// Where in it the next block goes.
    head: u64,
}

impl Ring {
    /// The place of a log of so many bytes on a disk of `capacity`, or of what there is.
    pub(super) fn new(capacity: u64, bytes: u64) -> Self {
        let start = capacity / 2 / PAGE_BYTES * PAGE_BYTES;
        Self { start, bytes: bytes.min((capacity - start) / PAGE_BYTES * PAGE_BYTES), head: 0 }
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where the next `blocks` go, as far as they fit before its end.
    pub(super) fn take_place(&mut self, blocks: u64) -> (u64, u64) {
        if self.head + PAGE_BYTES > self.bytes {
            self.head = 0;
        }
        let blocks = blocks.min((self.bytes - self.head) / PAGE_BYTES);
        let at = self.start + self.head;
        self.head += blocks * PAGE_BYTES;
        (at, blocks)
    }
}

impl Journal {
    /// An empty journal of a file system on a disk of `capacity` bytes; only ext4 has one here.
    pub(super) fn new(
        file_system: FileSystem,
        capacity: u64,
        queue: WaitQueue,
        committed_wait: WaitQueue,
    ) -> Option<Self> {
        let FileSystem::Ext4 = file_system else { return None };
        Some(Self {
            queue,
            committed_wait,
            running: BTreeSet::new(),
            began: Ns::ZERO,
            committing: BTreeSet::new(),
            checkpoints: Checkpoints::default(),
            ring: Ring::new(capacity, journal_bytes(capacity)),
        })
    }

    fn holds(&self, block: u64) -> bool {
        self.is_changing(block) || self.checkpoints.blocks.contains_key(&block)
    }

    /// Whether a transaction that is not yet committed has a block.
    fn is_changing(&self, block: u64) -> bool {
        [&self.running, &self.committing].iter().any(|set| set.contains(&block))
    }

    /// Whether nothing but the journal wants a committed block any more.
    fn is_done(&self, block: u64) -> bool {
        let is_written = self.checkpoints.blocks.get(&block).is_some_and(|&(_, written)| written);
        is_written && !self.is_changing(block)
    }

    /// Committed blocks that can go, from the oldest transaction on, up to the first that cannot.
    fn done_in_order(&self) -> Vec<u64> {
        self.checkpoints.oldest_first().take_while(|&block| self.is_done(block)).collect()
    }

    /// The first `most` of all committed blocks that can go.
    fn done(&self, most: usize) -> Vec<u64> {
        self.checkpoints.oldest_first().filter(|&block| self.is_done(block)).take(most).collect()
    }
}

/// How large a journal mke2fs makes for a disk (e2fsprogs 1.46, `ext2fs_default_journal_size`): a table by
/// numbers of blocks, of which 1024 are the least.
fn journal_bytes(capacity: u64) -> u64 {
    let disk = capacity / PAGE_BYTES;
    let steps: [(u64, u64); 7] = [
        (32_768, 1024),
        (256 * 1024, 4096),
        (512 * 1024, 8192),
        (4096 * 1024, 16_384),
        (8192 * 1024, 32_768),
        (16_384 * 1024, 65_536),
        (32_768 * 1024, 131_072),
    ];
    let found = steps.iter().find(|&&(below, _)| disk < below);
    found.map_or(262_144, |&(_, blocks)| blocks) * PAGE_BYTES
}

impl Kernel {
    fn journal(&mut self, device: DeviceId) -> Option<&mut Journal> {
        self.journals.get_mut(device.0 as usize).and_then(Option::as_mut)
    }

    /// Whether a disk's file system has a journal here.
    pub(super) fn has_journal(&self, device: DeviceId) -> bool {
        self.journals.get(device.0 as usize).is_some_and(Option::is_some)
    }

    /// Whether the running transaction of a disk has changed this block of its inode tables already.
    pub(super) fn is_journaled(&self, device: DeviceId, block: u64) -> bool {
        let journal = self.journals.get(device.0 as usize).and_then(Option::as_ref);
        journal.is_some_and(|journal| journal.running.contains(&block))
    }

    /// Where a block of a disk's inode tables is in memory.
    pub(super) fn metadata_page(&self, device: DeviceId, block: u64) -> Option<Pfn> {
        let file = self.vfs.metadata(device)?;
        match self.memory.files.get(file, block) {
            CachedPage::Page(pfn) => Some(pfn),
            CachedPage::Shadow(_) | CachedPage::Swapped(_) | CachedPage::None => None,
        }
    }

    /// Lets committed blocks go.
    fn release_blocks(&mut self, device: DeviceId, blocks: &[u64]) {
        for &block in blocks {
            if let Some(journal) = self.journal(device) {
                journal.checkpoints.remove(block);
            }
            self.release_block(device, block);
        }
    }

    fn release_block(&mut self, device: DeviceId, block: u64) {
        if let Some(pfn) = self.metadata_page(device, block)
            && let Some(journal) = self.journal(device)
            && !journal.holds(block)
        {
            self.memory.unpin_page(pfn);
        }
    }

    /// The page at `pfn` was written. Where whoever wants such a page lets it go from the journal himself, it is
    /// as good as free now (`bdev_try_to_free_page`).
    #[doc(alias = "bdev_try_to_free_page")]
    pub(super) fn note_block_written(&mut self, pfn: Pfn) {
        if !self.memory.frames().has(pfn, PageFlags::PINNED) {
            return;
        }
        let Some((file, block)) = self.memory.file_page_at(pfn) else { return };
        let device = self.file(file).device;
        // It may have been changed and committed again meanwhile.
        let is_dirty = self.memory.frames().has(pfn, PageFlags::DIRTY);
        if self.vfs.metadata(device) != Some(file) || is_dirty {
            return;
        }
        let stays = self.flows.files.journal_shrinks;
        let Some(journal) = self.journal(device) else { return };
        if journal.checkpoints.note_written(block) && !stays {
            self.release_blocks(device, &[block]);
        }
    }
}

/// A block of a disk's inode tables, in memory at `pfn`, has changed. Whether a journal takes care of it: else it is
/// the caller's to have it written.
#[doc(alias = "fallback_migrate_page")]
#[doc(alias = "buffer_migrate_folio_norefs")]
#[doc(alias = "jbd2_journal_get_write_access")]
#[must_use]
pub(super) fn note_change(cx: &mut KernelCx<'_>, device: DeviceId, block: u64, pfn: Pfn) -> bool {
    let now = cx.now();
    let kernel = cx.world();
    let Some(journal) = kernel.journal(device) else { return false };
    let is_first = journal.running.is_empty();
    journal.running.insert(block);
    let queue = journal.queue;
    if is_first {
        journal.began = now;
    }
    kernel.memory.pin_page(pfn);
    if is_first {
        cx.wake_one(queue);
    }
    true
}

/// The kernel thread that commits a disk's transactions. Returns only where there is no journal.
#[doc(alias = "kjournald2")]
pub(super) fn kjournald(cx: &mut KernelCx<'_>, device: DeviceId) {
    loop {
        let now = cx.now();
        let Some(journal) = cx.world().journal(device) else { return };
        let (queue, due) = (journal.queue, journal.began.saturating_add(COMMIT_INTERVAL));
        if journal.running.is_empty() {
            cx.wait(queue);
        } else if now < due {
            cx.wait_timeout(queue, due - now);
        } else {
            commit(cx, device);
        }
    }
}

/// Asks a disk's journal to let go what lies in its place.
#[doc(alias = "jbd2_journal_shrink_checkpoint_list")]
#[doc(alias = "jbd2_journal_shrink_scan")]
pub(super) fn shrink(cx: &mut KernelCx<'_>, device: DeviceId, pressure: Pressure) {
    let kernel = cx.world();
    let Some(journal) = kernel.journal(device) else { return };
    let freeable = journal.checkpoints.blocks.len() as u64;
    if freeable == 0 {
        return;
    }
    let deferred = std::mem::take(&mut journal.checkpoints.deferred);
    let mut plan = ShrinkPlan::new(pressure, freeable, DEFAULT_SEEKS, BATCH, deferred, true);
    while let Some(nr) = plan.next_batch() {
        let kernel = cx.world();
        kernel.memory.vm.add(Vm::SlabsScanned, nr);
        let done =
            kernel.journal(device).map_or_else(Vec::new, |journal| journal.done(nr as usize));
        kernel.release_blocks(device, &done);
    }
    if let Some(journal) = cx.world().journal(device) {
        journal.checkpoints.deferred += plan.deferred();
    }
}

/// Commits what has changed until now, and waits for that (`jbd2_journal_commit_transaction`). Suspends.
#[doc(alias = "__jbd2_journal_clean_checkpoint_list")]
#[doc(alias = "jbd2_journal_commit_transaction")]
pub(super) fn commit(cx: &mut KernelCx<'_>, device: DeviceId) {
    loop {
        let Some(journal) = cx.world().journal(device) else { return };
        if journal.committing.is_empty() {
            break;
        }
        let queue = journal.committed_wait;
        cx.wait_for_io_in(queue, None);
    }
    let kernel = cx.world();
    if kernel.journal(device).is_none_or(|journal| journal.running.is_empty()) {
        return;
    }
    // Only where the journal keeps what is written is there any.
    let done = kernel.journal(device).map_or_else(Vec::new, |journal| journal.done_in_order());
    kernel.release_blocks(device, &done);
    let Some(journal) = kernel.journal(device) else { return };
    journal.committing = std::mem::take(&mut journal.running);
    let mut left = journal.committing.len() as u64 + EXTRA_BLOCKS;
    let mut tickets = Vec::new();
    while left > 0 {
        let kernel = cx.world();
        let Some(journal) = kernel.journal(device) else { return };
        let (at, blocks) = journal.ring.take_place(left.min(BATCH_BLOCKS));
        kernel.memory.vm.add(Vm::PgPgOut, blocks * PAGE_BYTES / 1024);
        let cost = kernel.costs.block_request.once();
        cx.spend(cost, Mode::System);
        tickets.push(cx.submit(device, Io::write(at, blocks * PAGE_BYTES, TAG).sync()));
        left -= blocks;
    }
    for ticket in tickets {
        cx.wait_io(ticket);
    }
    let kernel = cx.world();
    let Some(journal) = kernel.journal(device) else { return };
    let blocks = std::mem::take(&mut journal.committing);
    journal.checkpoints.commit(&blocks);
    let queue = journal.committed_wait;
    if let Some(file) = kernel.vfs.metadata(device) {
        for block in blocks {
            let kernel = cx.world();
            if let Some(pfn) = kernel.metadata_page(device, block)
                && kernel.memory.set_page_dirty(pfn)
            {
                filemap::note_dirtied(cx, file);
            }
        }
    }
    cx.wake_all(queue);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(capacity: u64) -> Journal {
        Journal::new(FileSystem::Ext4, capacity, WaitQueue(0), WaitQueue(1)).unwrap()
    }

    #[test]
    fn a_commit_goes_on_where_the_last_one_ended_and_begins_anew_at_the_end() {
        // 1 GiB: 262144 blocks, of which the journal has 8192.
        let mut journal = journal(1 << 30);
        assert_eq!(journal.ring.bytes(), 8192 * PAGE_BYTES);
        assert_eq!(journal.ring.take_place(8000), (1 << 29, 8000));
        assert_eq!(journal.ring.take_place(200), ((1 << 29) + 8000 * PAGE_BYTES, 192));
        assert_eq!(journal.ring.take_place(8), (1 << 29, 8));
    }

    #[test]
    fn a_commit_stops_at_the_first_block_that_is_not_in_its_place_and_shrinking_passes_over_it() {
        let mut journal = journal(1 << 30);
        let commit = |journal: &mut Journal, blocks: &[u64]| {
            journal.checkpoints.commit(&blocks.iter().copied().collect());
        };
        commit(&mut journal, &[5, 6, 7]);
        commit(&mut journal, &[1, 6]);
        assert_eq!(journal.done_in_order(), []);
        for block in [1, 6, 7] {
            assert!(journal.checkpoints.note_written(block), "{block} was waited for");
            assert!(!journal.checkpoints.note_written(block), "{block} was not");
        }
        // Of the first transaction 5 is to be written still; 6 is the second's since it changed again.
        assert_eq!(journal.done_in_order(), []);
        assert_eq!((journal.done(2), journal.done(9)), (vec![7, 1], vec![7, 1, 6]));
        journal.checkpoints.note_written(5);
        assert_eq!(journal.done_in_order(), [5, 7, 1, 6]);
        // What changes anew is not done.
        journal.running.insert(7);
        assert_eq!((journal.done_in_order(), journal.done(9)), (vec![5], vec![5, 1, 6]));
    }

    #[test]
    fn xfs_has_none_here() {
        assert!(Journal::new(FileSystem::Xfs, 1 << 30, WaitQueue(0), WaitQueue(1)).is_none());
    }
}
