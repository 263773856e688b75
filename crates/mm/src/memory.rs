//! A machine's physical memory: frames, pageblocks, zones, zonelists, and the policy that rules them.

use crate::buddy::FreeTo;
use crate::compaction::Capture;
use crate::compaction::events::CompactEvent;
use crate::fallback::{Extfrag, FallbackCounts, QueuedBlock};
use crate::fast_search::CompactZone;
use crate::filemap::PageCache;
use crate::frame::{Frames, State};
use crate::gfp::Gfp;
use crate::lru::LruState;
use crate::machine::Machine;
use crate::pcp::PerCpuPages;
use crate::policy::{Policy, ZonelistOrder};
use crate::slab::SlabCaches;
use crate::swap::Swap;
use crate::tlb::TlbUsers;
use crate::types::{Migratetype, NR_ZONE_KINDS, NodeId, Order, Pfn, ZoneKind};
use crate::vma::{AddressSpaces, ProcessId};
use crate::vmstat::VmEvents;
use crate::watermark::Watermarks;
use crate::zone::{FreeArea, Zone, ZoneFlags, ZoneId};
use core::ops::Range;
use std_alloc::vec;
use std_alloc::vec::Vec;

/// Primitive work done, from which the layer above makes time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Frames looked at one by one.
    pub pfns_scanned: u64,
    /// Pageblocks of which a scanner looked at a frame at either end, or at both.
    pub blocks_looked_at: u64,
    /// Blocks put on or taken off a free list, the frame not being near the one before it.
    pub list_ops: u64,
    /// The same, near the one before it: among the 64 frames whose `struct page`s one page of memory holds.
    pub near_list_ops: u64,
    /// Pairs of buddies joined.
    pub merges: u64,
    /// Refills of per-CPU lists.
    pub refills: u64,
    /// Drains of per-CPU lists.
    pub drains: u64,
    /// Pages put on or taken off an LRU list, the page not being near the one before it.
    pub lru_ops: u64,
    /// The same, near the one before it, or used a moment ago.
    pub near_lru_ops: u64,
    /// Pages, small or large, that reclaim took out of their file, or out of the swap cache, and freed, and those that
    /// went with the end of their file.
    pub pages_reclaimed: u64,
    /// Walks to the entries that map a page.
    pub rmap_walks: u64,
    /// Page table entries looked at for their accessed bit, or changed by unmapping.
    pub ptes_scanned: u64,
    /// Pages, small or large, that were moved.
    pub pages_moved: u64,
    /// Pages filled with zeros.
    pub pages_cleared: u64,
    /// Huge pages filled with zeros.
    pub huge_pages_cleared: u64,
    /// Objects allocated from slabs, or freed.
    pub slab_ops: u64,
    /// Pages copied to another frame.
    pub pages_copied: u64,
    /// Rounds of telling the CPUs that an entry is gone.
    pub tlb_flushes: u64,
    /// Rounds of telling them that so many are that they forget all they have.
    pub tlb_flushes_all: u64,
    /// Whose entries those were.
    pub tlb_users: TlbUsers,
}

/// The frames that lists had to do with last.
///
/// Models: the streamer of Intel's CPUs, which fetches what follows within a page of 4 KiB
/// (Intel 64 and IA-32 Architectures Optimization Reference Manual, 248966-033, 2.3.5.4).
/// Departs: one such place for all CPUs, and what caches keep for longer is not known. Visible as: where
/// two CPUs take turns at scattered frames, or few frames are used again and again, lists are somewhat dear.
#[derive(Clone, Copy, Debug)]
struct LastLinked {
    free: Pfn,
    lru: Pfn,
}

/// Counts what was done to a frame as near the last such frame, if their `struct page`s lie in one page of memory,
/// or as far from it.
const fn count_op(pfn: Pfn, last: &mut Pfn, far: &mut u64, near: &mut u64) {
    const FRAMES_PER_MAP_PAGE: u32 = 64;
    if pfn.0 / FRAMES_PER_MAP_PAGE == last.0 / FRAMES_PER_MAP_PAGE {
        *near += 1;
    } else {
        *far += 1;
    }
    *last = pfn;
}

/// A machine's physical memory and the policy that rules it.
#[derive(Clone)]
pub struct Memory {
    /// The machine.
    pub machine: Machine,
    /// The policy.
    pub policy: Policy,
    /// All zones, by node, then lowest first.
    pub zones: Vec<Zone>,
    pub(crate) frames: Frames,
    /// Type of each pageblock, from frame 0, and its [`SKIP_BIT`].
    pub(crate) block_types: Vec<u8>,
    /// Zone of each pageblock's frames, where it is one zone alone.
    block_zones: Vec<u8>,
    /// All nodes' zonelists, one after the other.
    zonelist_entries: Vec<ZoneId>,
    /// For each node: all nodes' zones by distance; and its own zones alone.
    zonelists: Vec<[Range<u32>; 2]>,
    /// Work done since [`Self::take_work`].
    pub(crate) work: Work,
    /// The frames that free lists and LRU lists had to do with last.
    last_linked: LastLinked,
    pub(crate) extfrag: Vec<Extfrag>,
    pub(crate) queued_blocks: Vec<QueuedBlock>,
    /// Whether fallbacks are kept for [`Self::take_extfrag`] and [`Self::take_queued_blocks`], one by one; counted
    /// they are anyway.
    pub keeps_extfrag: bool,
    /// Some zone may have been boosted without its kswapd being told.
    pub(crate) has_untold_boost: bool,
    /// What the compaction whose step this is would keep for itself.
    pub(crate) capture: Option<Capture>,
    /// What compaction did since it was last asked for, if anybody wants to know.
    pub(crate) compact_events: Option<Vec<CompactEvent>>,
    /// Mappings and page tables.
    pub spaces: AddressSpaces,
    /// Processes whose mappings of anonymous pages somebody is changing.
    pub(crate) locked_mappings: Vec<ProcessId>,
    /// The lists that reclaim takes from.
    pub lru: LruState,
    /// Swap areas.
    pub swap: Swap,
    /// Pages of files.
    pub files: PageCache,
    /// The kernel's caches of objects.
    pub slabs: SlabCaches,
    pub(crate) nr_kernel_stack_pages: u64,
    /// Counters.
    pub vm: VmEvents,
}

/// In [`Memory::block_zones`]: no zone, or several.
const NOT_ONE_ZONE: u8 = u8::MAX;
/// In [`Memory::block_types`]: compaction has looked in vain (`PB_migrate_skip`).
const SKIP_BIT: u8 = 1 << 7;

impl Memory {
    /// Memory of this machine with every frame of a zone reserved: nothing is free yet, and every
    /// pageblock is movable.
    ///
    /// # Panics
    /// If there can be no such machine: whoever reads one from a file asks [`Machine::check`] before.
    #[must_use]
    pub fn new(machine: Machine, policy: Policy) -> Self {
        machine.check().unwrap_or_else(|error| panic!("{error}"));
        let nr_cpus = machine.cpu_nodes.len();
        let mut zones = Vec::new();
        for (node, spec) in NodeId::all(machine.nr_nodes()).zip(&machine.nodes) {
            for zone in &spec.zones {
                zones.push(Zone {
                    node,
                    kind: zone.kind,
                    start: zone.start,
                    end: zone.start + zone.spanned_pages,
                    present_pages: u64::from(zone.present_pages),
                    managed_pages: zone.managed_pages,
                    free_area: FreeArea::new(),
                    nr_free_pages: 0,
                    nr_free_cma: 0,
                    nr_free_highatomic: 0,
                    nr_reserved_highatomic: 0,
                    watermarks: Watermarks::default(),
                    lowmem_reserve: [0; NR_ZONE_KINDS],
                    // Until the watermarks are set up (`free_area_init_core`, v4.4).
                    alloc_batch: zone.managed_pages as i64,
                    flags: ZoneFlags::default(),
                    compact: CompactZone::NEW,
                    fallbacks: FallbackCounts::default(),
                    mixed_blocks: Vec::new(),
                    pcp: vec![PerCpuPages::new(); nr_cpus],
                });
            }
        }
        let pageblock = policy.freelist.pageblock_order.pages();
        let nr_blocks = machine.nr_frames.div_ceil(pageblock) as usize;
        let initial_type = if policy.freelist.mobility_grouping {
            Migratetype::Movable
        } else {
            Migratetype::Unmovable
        };
        let mut memory = Self {
            frames: Frames::new(machine.nr_frames as usize),
            block_types: vec![initial_type as u8; nr_blocks],
            block_zones: vec![NOT_ONE_ZONE; nr_blocks],
            zonelist_entries: Vec::new(),
            zonelists: Vec::new(),
            work: Work::default(),
            last_linked: LastLinked { free: Pfn(0), lru: Pfn(0) },
            extfrag: Vec::new(),
            queued_blocks: Vec::new(),
            keeps_extfrag: true,
            has_untold_boost: false,
            capture: None,
            compact_events: None,
            spaces: AddressSpaces::default(),
            locked_mappings: Vec::new(),
            lru: LruState::new(&machine, policy.lru.scope),
            swap: Swap::new(machine.cpu_nodes.len()),
            files: PageCache::default(),
            slabs: SlabCaches::default(),
            nr_kernel_stack_pages: 0,
            vm: VmEvents::NEW,
            machine,
            policy,
            zones,
        };
        memory.map_blocks_to_zones();
        memory.build_zonelists();
        for zone in 0..memory.zones.len() {
            let (start, end) = (memory.zones[zone].start, memory.zones[zone].end);
            for pfn in start.0..end.0 {
                memory.frames.set(Pfn(pfn), State::Reserved, Order(0), Migratetype::Unmovable);
            }
        }
        memory
    }

    fn map_blocks_to_zones(&mut self) {
        let pageblock = self.policy.freelist.pageblock_order.pages();
        for (block, slot) in self.block_zones.iter_mut().enumerate() {
            let first = Pfn(block as u32 * pageblock);
            let last = first + pageblock - 1;
            let whole = self.zones.iter().position(|z| z.spans(first) && z.spans(last));
            let others =
                self.zones.iter().filter(|z| z.start.0 <= last.0 && first.0 < z.end.0).count();
            if let Some(zone) = whole.filter(|_| others == 1) {
                *slot = zone as u8;
            }
        }
    }

    /// Zonelists in node order: nearest node first, a node's zones from the highest down. In zone order: the
    /// highest zones of all nodes first, nearest node first.
    ///
    /// Models: `build_zonelists`, `find_next_best_node`, mm/page_alloc.c, v6.12;
    /// `build_zonelists_in_zone_order`, `default_zonelist_order`, v3.3.
    /// Departs: nodes without memory have their place and their load too, while the kernel passes them
    /// over. Visible as: another order of equally distant nodes on machines with such nodes.
    /// Departs: nobody tells the kernel the order (`numa_zonelist_order`, before 4.14). Visible as: nothing
    /// where it was left alone.
    #[doc(alias = "default_zonelist_order")]
    #[doc(alias = "build_zonelists_in_zone_order")]
    #[doc(alias = "find_next_best_node")]
    fn build_zonelists(&mut self) {
        let nr_nodes = self.machine.nr_nodes();
        let in_zone_order = self.policy.zone.zonelist_order == ZonelistOrder::FoundAtBoot
            && self.prefers_zone_order();
        // How often a node has been put behind a nearer one: the next list prefers another.
        let mut node_load = vec![0u64; nr_nodes];
        for node in NodeId::all(nr_nodes) {
            let all = self.zonelist_entries.len() as u32;
            let mut left: Vec<NodeId> = NodeId::all(nr_nodes).filter(|&n| n != node).collect();
            let mut previous = node;
            let mut next = Some(node);
            let mut own_end = all;
            while let Some(n) = next {
                let zones = (0..self.zones.len())
                    .rev()
                    .filter(|&z| self.zones[z].node == n && self.zones[z].present_pages > 0);
                self.zonelist_entries.extend(zones.map(|z| ZoneId(z as u8)));
                if n == node {
                    own_end = self.zonelist_entries.len() as u32;
                }
                let distance = |a: NodeId, b: NodeId| {
                    let row = &self.machine.nodes[a.index()].distances;
                    u64::from(row.get(b.index()).copied().unwrap_or(20))
                };
                let cost = |n: NodeId| {
                    let mut cost = distance(node, n) + u64::from(n < node);
                    if self.machine.cpu_nodes.contains(&n) {
                        cost += 1;
                    }
                    cost * 1_000 + node_load[n.index()]
                };
                let best = left.iter().copied().min_by_key(|&n| cost(n));
                if let Some(best) = best {
                    if distance(node, best) != distance(node, previous) {
                        node_load[best.index()] += 1;
                    }
                    left.retain(|&n| n != best);
                    previous = best;
                }
                next = best;
            }
            let end = self.zonelist_entries.len() as u32;
            let mut both = [all..end, all..own_end];
            if in_zone_order {
                let own = self.zonelist_entries[all as usize..own_end as usize].to_vec();
                let zones = &self.zones;
                // A stable sort: zones of one kind stay by distance.
                self.zonelist_entries[all as usize..]
                    .sort_by_key(|id| core::cmp::Reverse(zones[id.index()].kind));
                self.zonelist_entries.extend(own);
                both[1] = end..self.zonelist_entries.len() as u32;
            }
            self.zonelists.push(both);
        }
    }

    /// Whether low zones are so small that they had better be spared, on all nodes: not if some node has
    /// nothing else, nor if they are more than half of all memory, nor more than 70 % of a node of some
    /// size.
    fn prefers_zone_order(&self) -> bool {
        let nr_nodes = self.machine.nr_nodes();
        let pages = |node: NodeId| {
            let zones = self.zones.iter().filter(move |z| z.node == node && z.present_pages > 0);
            zones.fold((0, 0, false), |(low, total, has_normal), zone| {
                let is_low = zone.kind < ZoneKind::Normal;
                let low = low + if is_low { zone.present_pages } else { 0 };
                let has_normal = has_normal || zone.kind == ZoneKind::Normal;
                (low, total + zone.present_pages, has_normal)
            })
        };
        let nodes: Vec<(u64, u64, bool)> = NodeId::all(nr_nodes).map(pages).collect();
        let low: u64 = nodes.iter().map(|node| node.0).sum();
        let total: u64 = nodes.iter().map(|node| node.1).sum();
        if nodes.iter().any(|node| !node.2) || low == 0 || low > total / 2 {
            return false;
        }
        let average = total / (nr_nodes as u64 + 1);
        !nodes.iter().any(|&(low, total, _)| low > 0 && total > average && low > total * 70 / 100)
    }

    /// The zones that a request could use, in the order of its zonelist.
    #[must_use]
    pub fn zones_for(&self, node: NodeId, gfp: Gfp) -> Vec<ZoneId> {
        self.usable_zones(node, gfp).collect()
    }

    /// The zone that a request would have before all others: of another node than asked for, if that one has no memory for
    /// it.
    #[inline]
    #[must_use]
    pub fn preferred_zone(&self, node: NodeId, gfp: Gfp) -> Option<ZoneId> {
        self.usable_zones(node, gfp).next()
    }

    #[inline]
    fn usable_zones(&self, node: NodeId, gfp: Gfp) -> impl Iterator<Item = ZoneId> + '_ {
        let highest_zoneidx = gfp.highest_zone();
        let zones = self.zonelist(node, gfp).map(|position| self.zonelist_entry(position));
        zones.filter(move |id| self.zones[id.index()].kind <= highest_zoneidx)
    }

    /// Positions of the zonelist for requests that begin at `node`.
    #[inline]
    pub(crate) fn zonelist(&self, node: NodeId, gfp: Gfp) -> Range<u32> {
        self.zonelists[node.index()][usize::from(gfp.contains(Gfp::THISNODE))].clone()
    }

    #[inline]
    pub(crate) fn zonelist_entry(&self, position: u32) -> ZoneId {
        self.zonelist_entries[position as usize]
    }

    /// The zone that a frame belongs to.
    ///
    /// # Panics
    /// If it lies in none.
    #[inline]
    #[must_use]
    pub fn zone_of(&self, pfn: Pfn) -> ZoneId {
        let block = pfn.0 >> self.policy.freelist.pageblock_order.0;
        match self.block_zones[block as usize] {
            NOT_ONE_ZONE => self.find_zone(pfn).unwrap_or_else(|| panic!("{pfn} lies in no zone")),
            zone => ZoneId(zone),
        }
    }

    /// The zone that a frame belongs to, if any.
    #[must_use]
    pub fn find_zone(&self, pfn: Pfn) -> Option<ZoneId> {
        self.zones.iter().position(|z| z.spans(pfn)).map(|z| ZoneId(z as u8))
    }

    /// The frame table.
    #[inline]
    #[must_use]
    pub const fn frames(&self) -> &Frames {
        &self.frames
    }

    /// Frames from `pfn` to the end of the block that holds it.
    #[inline]
    pub(crate) fn span_from(&self, pfn: Pfn) -> u32 {
        match self.frames.state(pfn) {
            State::Hole | State::Reserved => 1,
            State::Inner => {
                let head = self.frames.head_of(pfn);
                head.0 + self.frames.order(head).pages() - pfn.0
            }
            _ => self.frames.order(pfn).pages(),
        }
    }

    /// The type of the pageblock that holds `pfn`.
    #[inline]
    #[must_use]
    pub fn block_type(&self, pfn: Pfn) -> Migratetype {
        let block = pfn.0 >> self.policy.freelist.pageblock_order.0;
        Migratetype::from_index(usize::from(self.block_types[block as usize] & !SKIP_BIT))
    }

    /// Sets the type of the pageblock that holds `pfn`; without mobility grouping the mobile types are all
    /// Unmovable (`set_pageblock_migratetype`).
    pub fn set_block_type(&mut self, pfn: Pfn, migratetype: Migratetype) {
        let grouped =
            self.policy.freelist.mobility_grouping || migratetype >= Migratetype::HighAtomic;
        let migratetype = if grouped { migratetype } else { Migratetype::Unmovable };
        let block = pfn.0 >> self.policy.freelist.pageblock_order.0;
        let slot = &mut self.block_types[block as usize];
        *slot = *slot & SKIP_BIT | migratetype as u8;
    }

    /// Whether compaction skips the pageblock that holds `pfn`.
    #[inline]
    #[must_use]
    pub fn block_skip(&self, pfn: Pfn) -> bool {
        let block = pfn.0 >> self.policy.freelist.pageblock_order.0;
        self.block_types[block as usize] & SKIP_BIT != 0
    }

    /// Marks the pageblock that holds `pfn` as one that compaction skips, or no longer.
    pub fn set_block_skip(&mut self, pfn: Pfn, skip: bool) {
        let block = pfn.0 >> self.policy.freelist.pageblock_order.0;
        let slot = &mut self.block_types[block as usize];
        *slot = if skip { *slot | SKIP_BIT } else { *slot & !SKIP_BIT };
    }

    /// Sets the type of every pageblock that the block at `pfn` spans.
    pub(crate) fn set_block_types(&mut self, pfn: Pfn, order: Order, migratetype: Migratetype) {
        let pageblock = self.policy.freelist.pageblock_order;
        for part in 0..1u32 << (order.0.saturating_sub(pageblock.0)) {
            self.set_block_type(pfn + part * pageblock.pages(), migratetype);
        }
    }

    /// Gives every reserved frame in `range` to the allocator, in the largest aligned blocks, as boot
    /// does: ascending, each to the tail of its list, or before 5.10 where any freed block goes, so that the
    /// highest are handed out first.
    pub fn release_boot_memory(&mut self, range: Range<Pfn>) {
        let max_order = self.policy.freelist.max_order;
        let to = if self.policy.freelist.boot_to_tail { FreeTo::Tail } else { FreeTo::Policy };
        let mut pfn = range.start;
        while pfn < range.end {
            let id = self.zone_of(pfn);
            let fits =
                |order: Order| pfn.align_down(order) == pfn && pfn.0 + order.pages() <= range.end.0;
            let order = (0..=max_order.0).rev().map(Order).find(|&o| fits(o)).unwrap_or(Order(0));
            for inner in pfn.0..pfn.0 + order.pages() {
                assert_eq!(self.frames.state(Pfn(inner)), State::Reserved, "freed twice at boot");
                self.frames.set_inner(Pfn(inner));
            }
            self.free_to_buddy(id, pfn, order, to);
            pfn.0 += order.pages();
        }
    }

    /// Makes exactly `[pfn, pfn + 2^order)` one allocated block: joins smaller ones inside it, splits a
    /// larger one around it. What is not allocated (free, on a per-CPU list, reserved) must have been
    /// made so before.
    pub fn reshape_allocated(&mut self, pfn: Pfn, order: Order, migratetype: Migratetype) {
        let mut head = pfn;
        if self.frames.state(pfn) == State::Inner {
            head = self.frames.head_of(pfn);
        }
        if head == pfn && self.frames.order(pfn) == order {
            return;
        }
        let found = self.frames.order(head);
        if head != pfn || found > order {
            let (old_type, movable) = (self.frames.migratetype(head), self.frames.is_movable(head));
            // Everything around keeps its content, cut to the size asked for.
            for part in 0..1u32 << (found.0 - order.0) {
                let part = head + part * order.pages();
                self.frames.set(part, State::Allocated, order, old_type);
                self.frames.set_movable(part, movable);
            }
            return;
        }
        let movable = self.frames.is_movable(pfn);
        for inner in pfn.0..pfn.0 + order.pages() {
            self.frames.set_inner(Pfn(inner));
        }
        self.frames.set(pfn, State::Allocated, order, migratetype);
        self.frames.set_movable(pfn, movable);
    }

    /// Notes that a block was put on a free list, or taken off one.
    #[inline]
    pub(crate) fn note_list_op(&mut self, pfn: Pfn) {
        let Work { list_ops, near_list_ops, .. } = &mut self.work;
        count_op(pfn, &mut self.last_linked.free, list_ops, near_list_ops);
    }

    /// Notes that a page was put on an LRU list, or taken off one.
    #[inline]
    pub(crate) fn note_lru_op(&mut self, pfn: Pfn) {
        let Work { lru_ops, near_lru_ops, .. } = &mut self.work;
        count_op(pfn, &mut self.last_linked.lru, lru_ops, near_lru_ops);
    }

    /// Work done since the last call.
    pub fn take_work(&mut self) -> Work {
        core::mem::take(&mut self.work)
    }

    /// Fallbacks of all zones.
    #[must_use]
    pub fn fallbacks(&self) -> FallbackCounts {
        let mut sum = FallbackCounts::default();
        for zone in &self.zones {
            sum.add(&zone.fallbacks);
        }
        sum
    }

    /// Fallbacks since the last call, if they are kept.
    pub fn take_extfrag(&mut self) -> Vec<Extfrag> {
        core::mem::take(&mut self.extfrag)
    }

    /// The pageblocks that fallbacks since the last call would have kcompactd empty, oldest first.
    pub fn take_queued_blocks(&mut self) -> Vec<QueuedBlock> {
        core::mem::take(&mut self.queued_blocks)
    }

    /// Bytes of state a frame: the frame table and the pageblocks' share.
    #[must_use]
    pub fn bytes_per_frame(&self) -> f64 {
        let blocks = self.block_types.len() + self.block_zones.len();
        (self.frames.bytes() + blocks) as f64 / self.frames.len() as f64
    }
}
