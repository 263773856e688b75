//! Objects from slab caches, and the pressure that makes shrinkers give some back.
//!
//! Models: `kmem_cache_alloc`, `allocate_slab`, mm/slub.c; `shrink_slab`, `do_shrink_slab`, mm/vmscan.c and
//! mm/shrinker.c, v3.3, v4.4 and v6.12; `super_cache_count`, `super_cache_scan`, fs/super.c;
//! `count_shadow_nodes`, mm/workingset.c.
//! Departs: there are a shrinker for each file system and one for shadows, and no others. Visible as:
//! `slabs_scanned` misses extents, quotas and drivers. Shadows belong to no node: only the first node's pressure
//! takes them. Visible as: on several nodes they stay longer.

use super::policy::SlabPressure;
use super::shrink::Scan;
use super::slowpath::{Want, alloc_pages};
use super::work::spend_work;
use super::{Kernel, KernelCx, journal, xfs_buffers};
use crate::task::Mode;
use highorder_mm::alloc::Request;
use highorder_mm::gfp::Gfp;
use highorder_mm::kernel_use::KernelUse;
use highorder_mm::lru::LruvecId;
use highorder_mm::policy::LruScope;
use highorder_mm::slab::{AllocObject, CacheId, Object};
use highorder_mm::types::NodeId;
use highorder_mm::vma::ProcessId;
use highorder_mm::vmstat::Vm;
use highorder_mm::zone::ZoneId;
use highorder_mm::{Order, Pfn, ZoneKind};

/// Objects that a shrinker is asked for at a time (`SHRINK_BATCH`).
pub(super) const BATCH: u64 = 128;
/// The same for a file system (`alloc_super`: `s_shrink->batch`).
pub(crate) const SUPERBLOCK_BATCH: u64 = 1024;
/// What it takes to make an object again, in seeks (`DEFAULT_SEEKS`).
pub(super) const DEFAULT_SEEKS: u64 = 2;
/// Pages that count as scanned if none were (`SWAP_CLUSTER_MAX`).
const SCANNED_LEAST: u64 = 32;

/// How much is asked of shrinkers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pressure {
    /// As large a share of the objects as of the LRU pages: scanned, and how many there are.
    Share {
        /// Pages scanned.
        scanned: u64,
        /// Pages on the LRU lists that were looked at.
        lru: u64,
    },
    /// By reclaim's priority.
    Priority {
        /// From 12, the least pressure, to 0.
        priority: u8,
        /// What was put off before counts by the priority, too.
        scales_deferred: bool,
        /// A batch at least, or all there is.
        is_batch_least: bool,
    },
}

impl Pressure {
    /// What a kernel that goes by priorities makes of one; none if it goes by shares.
    const fn of_priority(rule: SlabPressure, priority: u8) -> Option<Self> {
        let (scales_deferred, is_batch_least) = match rule {
            SlabPressure::ByPriority => (false, false),
            SlabPressure::ByPriorityOrBatch => (false, true),
            SlabPressure::ByPriorityThroughout => (true, false),
            SlabPressure::PerPass | SlabPressure::ByZone => return None,
        };
        Some(Self::Priority { priority, scales_deferred, is_batch_least })
    }
}

/// What one shrinker is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShrinkPlan {
    /// What was put off before.
    deferred: u64,
    /// What is asked for anew.
    delta: u64,
    /// Objects that can go.
    freeable: u64,
    /// Objects still to be looked at.
    left: u64,
    /// Objects at a time.
    batch: u64,
    done: u64,
    by_priority: bool,
    /// What was put off comes whole; where it does not (since 5.13), no more than twice of all is put off.
    adds_up: bool,
    /// Fewer than a batch are looked at if that is all there is (since 3.12).
    takes_all: bool,
}

impl ShrinkPlan {
    /// What pressure asks of `freeable` objects that cost `seeks` each, `deferred` having been put off before.
    #[must_use]
    pub fn new(
        pressure: Pressure,
        freeable: u64,
        seeks: u64,
        batch: u64,
        deferred: u64,
        takes_all: bool,
    ) -> Self {
        let by_priority = matches!(pressure, Pressure::Priority { .. });
        // `adds_up`: what was put off comes whole.
        let (delta, before, adds_up) = match pressure {
            Pressure::Share { scanned, lru } => {
                let scanned = if scanned == 0 { SCANNED_LEAST } else { scanned };
                let share = u128::from(4 * scanned / seeks.max(1)) * u128::from(freeable);
                ((share / u128::from(lru + 1)) as u64, deferred, true)
            }
            Pressure::Priority { priority, scales_deferred, is_batch_least } => {
                let mut delta = match seeks {
                    // Trivial to make again: half of them.
                    0 => freeable / 2,
                    seeks => (freeable >> priority) * 4 / seeks,
                };
                if is_batch_least {
                    delta = delta.max(freeable.min(batch));
                }
                let before = if scales_deferred { deferred >> priority } else { deferred };
                (delta, before, !scales_deferred)
            }
        };
        let mut left = before.saturating_add(delta);
        // Only much pressure may take more than a half: small ones add up.
        if adds_up && delta < freeable / 4 {
            left = left.min(freeable / 2);
        }
        let left = left.min(freeable * 2);
        Self { deferred, delta, freeable, left, batch, done: 0, by_priority, adds_up, takes_all }
    }

    /// How many objects to look at next; `None` if the rest is to be put off.
    #[doc(alias = "do_shrink_slab")]
    pub fn next_batch(&mut self) -> Option<u64> {
        let goes_on = self.left >= self.batch || self.takes_all && self.left >= self.freeable;
        if !goes_on || self.left == 0 {
            return None;
        }
        let nr = self.left.min(self.batch);
        self.left -= nr;
        self.done += nr;
        Some(nr)
    }

    /// What is put off until the next time.
    #[must_use]
    pub fn deferred(&self) -> u64 {
        if self.by_priority {
            let put_off = (self.deferred + self.delta).saturating_sub(self.done);
            if self.adds_up { put_off } else { put_off.min(self.freeable * 2) }
        } else {
            self.left
        }
    }
}

/// An object of a cache, by whatever it takes. `None` if the request may fail, or its process was killed. May
/// suspend for long.
#[doc(alias = "kmem_cache_alloc")]
pub(crate) fn alloc(
    cx: &mut KernelCx<'_>,
    id: CacheId,
    gfp: Gfp,
    process: Option<ProcessId>,
) -> Option<Object> {
    let (cpu, node) = (cx.cpu(), cx.node());
    let object = match cx.world().memory.alloc_object(id, gfp, cpu) {
        AllocObject::Object(object) => object,
        AllocObject::NeedsSlab { first, fallback } => {
            let mut found = None;
            for attempt in std::iter::once(first).chain(fallback) {
                let (order, gfp) = (attempt.order, attempt.gfp);
                let request = Request { order, gfp, cpu, node, past_lists: false };
                found = alloc_pages(cx, Want { request, allowed: u64::MAX, process });
                if let Some(pfn) = found {
                    let cpu = cx.cpu();
                    let object = cx.world().memory.add_slab(id, pfn, order, cpu);
                    spend_near(cx, pfn);
                    return Some(object);
                }
            }
            debug_assert!(found.is_none(), "a block that was found is used");
            return None;
        }
    };
    let pfn = cx.world().memory.slab_of_object(id, object);
    spend_near(cx, pfn);
    Some(object)
}

/// Frees an object. Returns how many pages that freed.
pub(crate) fn free(cx: &mut KernelCx<'_>, id: CacheId, object: Object) -> u64 {
    let cpu = cx.cpu();
    let pfn = cx.world().memory.slab_of_object(id, object);
    let pages = cx.world().memory.free_object(id, object, cpu);
    spend_near(cx, pfn);
    pages
}

/// A block for the kernel's own use. As [`alloc_pages`].
#[doc(alias = "allocate_slab")]
pub fn take_block(
    cx: &mut KernelCx<'_>,
    order: Order,
    gfp: Gfp,
    of: KernelUse,
    process: Option<ProcessId>,
) -> Option<Pfn> {
    let (cpu, node) = (cx.cpu(), cx.node());
    let request = Request { order, gfp, cpu, node, past_lists: false };
    let pfn = alloc_pages(cx, Want { request, allowed: u64::MAX, process })?;
    cx.world().memory.take_kernel_block(pfn, order, of);
    spend_near(cx, pfn);
    Some(pfn)
}

/// Frees a block of the kernel's own.
pub fn free_block(cx: &mut KernelCx<'_>, pfn: Pfn, order: Order) {
    let cpu = cx.cpu();
    cx.world().memory.free_kernel_block(pfn, order, cpu);
    spend_near(cx, pfn);
}

/// The stack of a thread, to be given back with [`free_stack`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelStack {
    blocks: Vec<(Pfn, Order)>,
}

/// A stack for a thread: of one block, or of single pages mapped in a row.
///
/// Models: `alloc_thread_stack_node`, kernel/fork.c, v4.4 and v6.12.
/// Departs: no stacks kept for later (`cached_stacks`: two a CPU), and pages of mapped stacks are asked for one by
/// one. Visible as: threads that come and go allocate more than there.
///
/// `None` if memory ran out.
#[doc(alias = "alloc_thread_stack_node")]
pub fn alloc_stack(cx: &mut KernelCx<'_>, process: Option<ProcessId>) -> Option<KernelStack> {
    let policy = cx.world().memory.policy.stack;
    let (parts, order) =
        if policy.mapped { (policy.order.pages(), Order(0)) } else { (1, policy.order) };
    let mut stack = KernelStack::default();
    for _ in 0..parts {
        match take_block(cx, order, Gfp::KERNEL, KernelUse::KernelStack, process) {
            Some(pfn) => stack.blocks.push((pfn, order)),
            None => {
                free_stack(cx, stack);
                return None;
            }
        }
    }
    Some(stack)
}

/// Gives a thread's stack back.
pub fn free_stack(cx: &mut KernelCx<'_>, stack: KernelStack) {
    for (pfn, order) in stack.blocks {
        free_block(cx, pfn, order);
    }
}

fn spend_near(cx: &mut KernelCx<'_>, pfn: Pfn) {
    let zone = cx.world().memory.zone_of(pfn);
    spend_work(cx, zone);
}

/// After a node's LRU lists were looked through, if lists belong to nodes. Until then `scanned_before` pages had
/// been scanned. Suspends.
pub(crate) fn after_node(
    cx: &mut KernelCx<'_>,
    lruvec: LruvecId,
    scan: &mut Scan,
    scanned_before: u64,
) {
    let kernel = cx.world();
    if kernel.memory.policy.lru.scope != LruScope::Node || scan.spares_slab {
        return;
    }
    let rule = kernel.flows.shrinkers.pressure;
    let pressure = match Pressure::of_priority(rule, scan.control.priority) {
        Some(pressure) => pressure,
        None if rule == SlabPressure::ByZone => Pressure::Share {
            scanned: scan.nr_scanned - scanned_before,
            lru: kernel.memory.reclaimable_pages(lruvec),
        },
        None => return,
    };
    let node = kernel.memory.lru.lruvecs[lruvec].node;
    scan.nr_reclaimed += shrink_slab(cx, node, pressure, scan.gfp, scan.is_kswapd());
}

/// After a zone was looked through, where pressure is by share: in the highest zone up to `highest_zoneidx`, or, on
/// the oldest kernels, if kswapd did it. Until then `scanned_before` pages had been scanned. Returns how many pages that
/// freed. Suspends.
pub(crate) fn after_zone(
    cx: &mut KernelCx<'_>,
    id: ZoneId,
    highest_zoneidx: ZoneKind,
    scan: &mut Scan,
    scanned_before: u64,
) -> u64 {
    let kernel = cx.world();
    if kernel.memory.policy.lru.scope != LruScope::Zone {
        return 0;
    }
    let node = kernel.memory.zones[id.index()].node;
    let lru_of = |id: ZoneId| kernel.memory.reclaimable_pages(kernel.memory.lru.of_zone(id));
    let lru = match kernel.flows.shrinkers.pressure {
        SlabPressure::ByZone if kernel.zones_of(node, highest_zoneidx).next_back() == Some(id) => {
            lru_of(id)
        }
        SlabPressure::PerPass if scan.is_kswapd() => {
            kernel.zones_of(node, highest_zoneidx).map(lru_of).sum()
        }
        _ => return 0,
    };
    let pressure = Pressure::Share { scanned: scan.nr_scanned - scanned_before, lru };
    let freed = shrink_slab(cx, node, pressure, scan.gfp, scan.is_kswapd());
    scan.nr_reclaimed += freed;
    freed
}

/// After direct reclaim has looked through all lists that a request could use, on the oldest kernels. Suspends.
pub(crate) fn after_pass(cx: &mut KernelCx<'_>, lruvecs: &[LruvecId], scan: &mut Scan) {
    let kernel = cx.world();
    if kernel.flows.shrinkers.pressure != SlabPressure::PerPass {
        return;
    }
    let lru = lruvecs.iter().map(|&lruvec| kernel.memory.reclaimable_pages(lruvec)).sum();
    let pressure = Pressure::Share { scanned: scan.nr_scanned, lru };
    // Objects are not listed by node there.
    scan.nr_reclaimed += shrink_slab(cx, NodeId(0), pressure, scan.gfp, scan.is_kswapd());
}

/// Notes which pages of files reclaim freed: their objects go, and perhaps their inodes can.
pub(crate) fn note_freed_files(cx: &mut KernelCx<'_>, freed: &[(u32, u64)]) {
    let cpu = cx.cpu();
    let kernel = cx.world();
    kernel.memory.note_freed_files(freed);
    kernel.memory.release_objects(cpu);
    for &(owner, _) in freed {
        if let Some((file, _)) = kernel.memory.files.page_of(owner) {
            kernel.consider_inode(file);
        }
    }
}

/// Asks every shrinker to give objects of a node back. Returns how many pages that freed. Suspends.
pub(crate) fn shrink_slab(
    cx: &mut KernelCx<'_>,
    node: NodeId,
    pressure: Pressure,
    gfp: Gfp,
    is_kswapd: bool,
) -> u64 {
    let by_node = cx.world().flows.shrinkers.by_node;
    let node = if by_node { node } else { NodeId(0) };
    let asking = cx.world().costs.shrinkers.once();
    cx.spend(asking, Mode::System);
    let mut freed = 0;
    for superblock in 0..cx.world().vfs.nr_superblocks() {
        if cx.world().flows.files.journal_shrinks {
            journal::shrink(cx, crate::DeviceId(superblock as u32), pressure);
        }
        freed += shrink_superblock(cx, superblock, node, pressure, gfp, is_kswapd);
        freed += xfs_buffers::shrink(cx, superblock, node, pressure);
    }
    if node == NodeId(0) {
        freed += shrink_shadows(cx, pressure);
    }
    freed
}

#[doc(alias = "super_cache_scan")]
#[doc(alias = "super_cache_count")]
fn shrink_superblock(
    cx: &mut KernelCx<'_>,
    superblock: usize,
    node: NodeId,
    pressure: Pressure,
    gfp: Gfp,
    is_kswapd: bool,
) -> u64 {
    let kernel = cx.world();
    let policy = kernel.flows.shrinkers;
    let (dentries, inodes) = kernel.vfs.unused(superblock, node);
    if dentries + inodes == 0 {
        return 0;
    }
    // 3.x counts one object more, and then full hundreds.
    let share = u64::from(kernel.knobs.vfs_cache_pressure);
    let freeable = match policy.pressure {
        SlabPressure::PerPass => (dentries + inodes + 1) / 100 * share,
        _ => vfs_pressure_ratio(dentries + inodes, share),
    };
    if freeable == 0 {
        return 0;
    }
    let old = policy.pressure == SlabPressure::PerPass;
    let deferred = kernel.vfs.take_deferred(superblock, node);
    let mut plan =
        ShrinkPlan::new(pressure, freeable, DEFAULT_SEEKS, SUPERBLOCK_BATCH, deferred, !old);
    let mut freed = 0;
    while let Some(nr) = if gfp.contains(Gfp::FS) { plan.next_batch() } else { None } {
        let cpu = cx.cpu();
        let kernel = cx.world();
        kernel.memory.vm.add(Vm::SlabsScanned, nr);
        freed += kernel.prune_superblock(superblock, node, nr, !old, is_kswapd, cpu);
        let zone = kernel.first_zone();
        spend_work(cx, zone);
    }
    cx.world().vfs.put_deferred(superblock, node, plan.deferred());
    freed
}

/// So many percent of some objects, without a product that does not fit.
fn vfs_pressure_ratio(objects: u64, percent: u64) -> u64 {
    objects / 100 * percent + objects % 100 * percent / 100
}

/// Frees nodes of files' trees that hold nothing but shadows, if there are more than an eighth of all pages.
#[doc(alias = "count_shadow_nodes")]
fn shrink_shadows(cx: &mut KernelCx<'_>, pressure: Pressure) -> u64 {
    let kernel = cx.world();
    let Some(shift) = kernel.flows.shrinkers.shadow_nodes_shift else { return 0 };
    let present: u64 = kernel.memory.zones.iter().map(|zone| zone.present_pages).sum();
    let nodes = kernel.memory.files.nr_shadow_nodes();
    let freeable = nodes.saturating_sub(present >> shift);
    if freeable == 0 {
        return 0;
    }
    let seeks = match pressure {
        Pressure::Priority { .. } => 0,
        Pressure::Share { .. } => DEFAULT_SEEKS,
    };
    let deferred = kernel.vfs.shadows_deferred;
    let mut plan = ShrinkPlan::new(pressure, freeable, seeks, BATCH, deferred, true);
    let mut freed = 0;
    while let Some(nr) = plan.next_batch() {
        let cpu = cx.cpu();
        let kernel = cx.world();
        kernel.memory.vm.add(Vm::SlabsScanned, nr);
        for _ in 0..nr {
            let Some(file) = kernel.memory.files.drop_shadow_node() else { break };
            kernel.memory.vm.add(Vm::WorkingsetNodereclaim, 1);
            kernel.consider_inode(file);
        }
        freed += kernel.memory.release_objects(cpu);
        let zone = kernel.first_zone();
        spend_work(cx, zone);
    }
    cx.world().vfs.shadows_deferred = plan.deferred();
    freed
}

/// Gives back whatever shrinkers have, on every node, until little comes (`vm.drop_caches` = 2). Suspends.
///
/// Models: `drop_slab`, mm/vmscan.c: again and again, until a round frees ten objects or fewer.
pub fn drop_slab(cx: &mut KernelCx<'_>) {
    let nr_nodes = cx.world().memory.machine.nr_nodes();
    cx.world().memory.vm.add(Vm::DropSlab, 1);
    loop {
        let mut before = 0;
        for superblock in 0..cx.world().vfs.nr_superblocks() {
            for node in NodeId::all(nr_nodes) {
                let (dentries, inodes) = cx.world().vfs.unused(superblock, node);
                before += dentries + inodes;
            }
        }
        let objects = cx.world().vfs.nr_objects();
        for node in NodeId::all(nr_nodes) {
            // drop_slab_node: priority 0, or a thousand pages of a thousand.
            let all = Pressure::of_priority(cx.world().flows.shrinkers.pressure, 0)
                .unwrap_or(Pressure::Share { scanned: 1000, lru: 1000 });
            shrink_slab(cx, node, all, Gfp::KERNEL, false);
        }
        let freed = objects - cx.world().vfs.nr_objects();
        if freed <= 10 || before == 0 {
            return;
        }
    }
}

impl Kernel {
    /// Some zone, where work that belongs to none is spent.
    pub(super) fn first_zone(&self) -> ZoneId {
        ZoneId(self.memory.zones.len() as u8 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batches(mut plan: ShrinkPlan) -> (Vec<u64>, u64) {
        let taken = std::iter::from_fn(|| plan.next_batch()).collect();
        (taken, plan.deferred())
    }

    #[test]
    fn pressure_by_share_is_that_of_the_pages_scanned() {
        let share = |scanned, lru| Pressure::Share { scanned, lru };
        // 4 * 4096 / 2 = 8192 times 10000 objects in 40000 pages: 2047, which is less than a quarter of them.
        let plan = ShrinkPlan::new(share(4096, 40_000), 10_000, 2, 1024, 0, true);
        assert_eq!(batches(plan), (vec![1024], 1023));
        // What was put off comes on top, but no more than half of all: 4500 and 2047 make 5000.
        let plan = ShrinkPlan::new(share(4096, 40_000), 10_000, 2, 1024, 4_500, true);
        assert_eq!(batches(plan), (vec![1024; 4], 904));
        // All pages scanned: 4 / 2 = 2 times all objects, which is the most.
        let plan = ShrinkPlan::new(share(40_000, 40_000), 10_000, 2, 1024, 9_999, true);
        assert_eq!(batches(plan).0.iter().sum::<u64>() + batches(plan).1, 20_000);
        // Nothing scanned counts as 32 pages: 64 * 10000 / 1001 = 639.
        let plan = ShrinkPlan::new(share(0, 1000), 10_000, 2, 1024, 0, true);
        assert_eq!(batches(plan), (vec![], 639));
    }

    #[test]
    fn vfs_cache_pressure_is_the_percentage_of_objects_that_shrinkers_are_told_of() {
        assert_eq!(vfs_pressure_ratio(12_345, 100), 12_345);
        assert_eq!(vfs_pressure_ratio(12_345, 0), 0);
        // 123 hundreds and 45, of which a half is rounded down: 6150 and 22.
        assert_eq!(vfs_pressure_ratio(12_345, 50), 6_172);
        assert_eq!(vfs_pressure_ratio(12_345, 1000), 123_450);
    }

    #[test]
    fn pressure_by_priority_is_a_power_of_two() {
        let pressure =
            |priority| Pressure::of_priority(SlabPressure::ByPriorityThroughout, priority).unwrap();
        // 10000 >> 3 = 1250, times 4 / 2.
        let plan = ShrinkPlan::new(pressure(3), 10_000, 2, 1024, 0, true);
        assert_eq!(batches(plan), (vec![1024, 1024], 452));
        // At the lowest pressure nothing of 1000 objects, and what was put off stays so.
        let plan = ShrinkPlan::new(pressure(12), 1_000, 2, 1024, 700, true);
        assert_eq!(batches(plan), (vec![], 700));
        // What was put off comes in by the same power: (2048 >> 1) + 2 * 500 = 2024, but twice the objects at
        // most. Of what is left, 976 are less than a batch and than all; 2048 + 1000 - 1024 is over the most, too.
        let plan = ShrinkPlan::new(pressure(1), 1_000, 2, 1024, 2_048, true);
        assert_eq!(batches(plan), (vec![1024], 2_000));
        // No seeks: half of them.
        let plan = ShrinkPlan::new(pressure(12), 1_000, 0, 128, 0, true);
        assert_eq!(batches(plan), (vec![128; 3], 116));
    }

    #[test]
    fn small_pressures_add_up_before_5_13() {
        let pressure = Pressure::of_priority(SlabPressure::ByPriority, 12).unwrap();
        // 48000 >> 12 = 11, times 4 / 2: 22, and 1010 of before make a batch.
        let plan = ShrinkPlan::new(pressure, 48_000, 2, 1024, 1_010, true);
        assert_eq!(batches(plan), (vec![1024], 8));
        // Of much that was put off no more than a half comes at once, and nothing of it is forgotten.
        let plan = ShrinkPlan::new(pressure, 48_000, 2, 1024, 100_000, true);
        assert_eq!(batches(plan), (vec![1024; 23], 100_022 - 23 * 1024));
    }

    #[test]
    fn linux_4_19_and_4_20_take_a_batch_at_least() {
        let pressure = Pressure::of_priority(SlabPressure::ByPriorityOrBatch, 12).unwrap();
        let plan = ShrinkPlan::new(pressure, 48_000, 2, 1024, 0, true);
        assert_eq!(batches(plan), (vec![1024], 0));
        // Or all there are, if these are fewer.
        let plan = ShrinkPlan::new(pressure, 300, 2, 1024, 0, true);
        assert_eq!(batches(plan), (vec![300], 0));
    }

    #[test]
    fn a_few_objects_are_taken_all_but_by_old_kernels() {
        let share = Pressure::Share { scanned: 1000, lru: 1000 };
        // 2000 * 300 / 1001 = 599, more than the 300 there are: all of them, less than a batch though it is.
        let plan = ShrinkPlan::new(share, 300, 2, 1024, 0, true);
        assert_eq!(batches(plan), (vec![599], 0));
        let plan = ShrinkPlan::new(share, 300, 2, 1024, 0, false);
        assert_eq!(batches(plan), (vec![], 599));
    }
}
