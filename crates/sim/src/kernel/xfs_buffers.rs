//! XFS's buffers: blocks of inodes in memory, outside of the page cache, in pages that do not move.
//!
//! Models: `xfs_buf_allocate_memory`, `xfs_buf_rele`, `xfs_buftarg_isolate`, `xfs_buftarg_shrink_scan`,
//! fs/xfs/xfs_buf.c; `xfs_iread`, `xfs_iflush`; v4.4 and v4.20. A buffer of inodes is of 16 KiB with checksums
//! (8 KiB for inodes of 256 bytes), and its pages are asked for one by one.
//! Departs: whoever changes an inode does not wait while its buffer is written. Visible as: nothing that is known.
//! Buffers lie one after the other at the disk's beginning. Visible as: longer seeks to them. Those of directories and of free space do not exist. Visible as: a
//! tenth of buffers less.

use super::journal::TAG;
use super::policy::SlabPressure;
use super::slab::{BATCH, DEFAULT_SEEKS, Pressure, ShrinkPlan};
use super::{KernelCx, PAGE_BYTES, slab};
use crate::device::Io;
use crate::sched::DeviceId;
use crate::task::Mode;
use highorder_mm::gfp::Gfp;
use highorder_mm::kernel_use::KernelUse;
use highorder_mm::slab::{CacheId, Object};
use highorder_mm::types::NodeId;
use highorder_mm::vma::ProcessId;
use highorder_mm::vmstat::Vm;
use highorder_mm::{Order, Pfn};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Pages of a buffer of inodes (`XFS_INODE_BIG_CLUSTER_SIZE` twice, as inodes are twice the least size).
const PAGES: u64 = 4;
/// Inodes of a buffer, 512 bytes each.
const INODES: u64 = PAGES * PAGE_BYTES / 512;
/// Rounds that a buffer stays after an inode was read from it (`XFS_INO_REF`), and after another use.
const READ_ROUNDS: u8 = 2;
const OTHER_ROUNDS: u8 = 1;

/// What somebody wants of an inode's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Use {
    /// To make a new inode there.
    Create,
    /// To read the inode, and wait for it.
    Read,
    /// To bring the inode's changes there, some time.
    Flush,
}

#[derive(Clone, Debug)]
struct Buffer {
    pages: Vec<Pfn>,
    object: Object,
    /// Rounds of the shrinker that it stays.
    rounds: u8,
    node: NodeId,
}

/// Buffers of a node, the one to look at next first.
#[derive(Clone, Debug, Default)]
struct Node {
    oldest: BTreeMap<u64, u64>,
    deferred: u64,
}

/// The buffers of a file system, by their numbers on the disk.
#[derive(Clone, Debug)]
pub(super) struct Buffers {
    buffers: BTreeMap<u64, Buffer>,
    nodes: Vec<Node>,
    clock: u64,
    /// Those below this number are on the disk.
    nr_made: u64,
}

impl Buffers {
    pub(super) fn new(nr_nodes: usize) -> Self {
        let nodes = vec![Node::default(); nr_nodes];
        Self { buffers: BTreeMap::new(), nodes, clock: 0, nr_made: 0 }
    }

    #[doc(alias = "xfs_buf_rele")]
    fn list(&mut self, node: NodeId, number: u64) {
        self.clock += 1;
        self.nodes[node.index()].oldest.insert(self.clock, number);
    }

    /// Looks at the buffer of a node that was looked at longest ago. Returns it if it may go.
    #[doc(alias = "xfs_buftarg_isolate")]
    fn isolate(&mut self, node: NodeId) -> Option<Buffer> {
        let (_, number) = self.nodes[node.index()].oldest.pop_first()?;
        let buffer = self.buffers.get_mut(&number)?;
        if buffer.rounds == 0 {
            return self.buffers.remove(&number);
        }
        buffer.rounds -= 1;
        self.list(node, number);
        None
    }
}

/// Brings the buffer of an inode into memory, unless it is there or memory is not to be had. Suspends.
#[doc(alias = "xfs_iread")]
pub(super) fn touch(
    cx: &mut KernelCx<'_>,
    process: Option<ProcessId>,
    superblock: usize,
    inode: u64,
    wish: Use,
) {
    let number = number_of(inode);
    let rounds = if wish == Use::Read { READ_ROUNDS } else { OTHER_ROUNDS };
    let buffers = &mut cx.world().vfs.superblocks[superblock].buffers;
    if let Some(buffer) = buffers.buffers.get_mut(&number) {
        buffer.rounds = buffer.rounds.max(rounds);
        return;
    }
    let is_on_disk = number < buffers.nr_made;
    buffers.nr_made = buffers.nr_made.max(number + 1);
    let Some(buffer) = allocate(cx, process, rounds) else { return };
    if is_on_disk {
        read(cx, superblock, number, &buffer, wish);
    }
    let kernel = cx.world();
    let node = if kernel.flows.shrinkers.by_node { buffer.node } else { NodeId(0) };
    let buffers = &mut kernel.vfs.superblocks[superblock].buffers;
    match buffers.buffers.entry(number) {
        Entry::Vacant(place) => {
            place.insert(buffer);
            buffers.list(node, number);
        }
        // Somebody else was faster.
        Entry::Occupied(_) => {
            free(cx, &buffer);
        }
    }
}

/// The buffer that an inode is in.
pub(super) const fn number_of(inode: u64) -> u64 {
    inode / INODES
}

/// Has a buffer written to its place, without waiting for that. Suspends while the disk's queue is full.
#[doc(alias = "xfs_buf_delwri_submit")]
pub(super) fn write(cx: &mut KernelCx<'_>, superblock: usize, number: u64) {
    let bytes = PAGES * PAGE_BYTES;
    let kernel = cx.world();
    kernel.memory.vm.add(Vm::PgPgOut, bytes / 1024);
    let cost = kernel.costs.block_request.once();
    cx.spend(cost, Mode::System);
    cx.submit(DeviceId(superblock as u32), Io::write(number * bytes, bytes, TAG));
}

#[doc(alias = "xfs_buf_allocate_memory")]
fn allocate(cx: &mut KernelCx<'_>, process: Option<ProcessId>, rounds: u8) -> Option<Buffer> {
    let nofs = Gfp::KERNEL - Gfp::FS;
    let object = slab::alloc(cx, CacheId::XFS_BUF, nofs, process)?;
    let node = cx.world().memory.node_of_object(CacheId::XFS_BUF, object);
    let mut buffer = Buffer { pages: Vec::new(), object, rounds, node };
    for _ in 0..PAGES {
        match slab::take_block(cx, Order(0), nofs, KernelUse::Metadata, process) {
            Some(pfn) => buffer.pages.push(pfn),
            None => {
                free(cx, &buffer);
                return None;
            }
        }
    }
    Some(buffer)
}

fn read(cx: &mut KernelCx<'_>, superblock: usize, number: u64, buffer: &Buffer, wish: Use) {
    let bytes = PAGES * PAGE_BYTES;
    let io = Io::read(number * bytes, bytes, u64::from(buffer.pages[0].0));
    cx.world().memory.vm.add(Vm::PgPgIn, bytes / 1024);
    let ticket = cx.submit(DeviceId(superblock as u32), io);
    if wish == Use::Read {
        cx.wait_io(ticket);
    }
}

/// Frees a buffer. Returns how many pages count as reclaimed: those of the slab (`xfs_buf_free` does not tell of its own
/// before 5.6).
fn free(cx: &mut KernelCx<'_>, buffer: &Buffer) -> u64 {
    for &pfn in &buffer.pages {
        slab::free_block(cx, pfn, Order(0));
    }
    slab::free(cx, CacheId::XFS_BUF, buffer.object)
}

/// Frees buffers of a node that were not used for some rounds. Returns how many pages count as reclaimed. Suspends.
#[doc(alias = "xfs_buftarg_shrink_scan")]
pub(super) fn shrink(
    cx: &mut KernelCx<'_>,
    superblock: usize,
    node: NodeId,
    pressure: Pressure,
) -> u64 {
    let kernel = cx.world();
    let old = kernel.flows.shrinkers.pressure == SlabPressure::PerPass;
    let list = &mut kernel.vfs.superblocks[superblock].buffers.nodes[node.index()];
    let freeable = list.oldest.len() as u64;
    if freeable == 0 {
        return 0;
    }
    let deferred = std::mem::take(&mut list.deferred);
    let mut plan = ShrinkPlan::new(pressure, freeable, DEFAULT_SEEKS, BATCH, deferred, !old);
    let mut freed = 0;
    while let Some(nr) = plan.next_batch() {
        cx.world().memory.vm.add(Vm::SlabsScanned, nr);
        for _ in 0..nr {
            if let Some(buffer) = cx.world().vfs.superblocks[superblock].buffers.isolate(node) {
                freed += free(cx, &buffer);
            }
        }
    }
    let buffers = &mut cx.world().vfs.superblocks[superblock].buffers;
    buffers.nodes[node.index()].deferred += plan.deferred();
    freed
}
