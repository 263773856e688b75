//! Swap: areas and their slots, the swap cache, read-ahead.
//!
//! Models: mm/swapfile.c, mm/swap_slots.c, mm/swap_state.c, v6.12 and v4.4.
//! Departs: a slot has one user at most, since memory is not shared between tasks. Slots that hold
//! nothing but the swap cache's copy are freed when the copy is reclaimed, unmapped or written, or at
//! once while swap is more than half full, but are not searched for when an area is full. Freed slots go
//! back at once instead of through a CPU's cache. No page is known to be all zeros. Visible as: an area
//! that is full fails a little earlier than the kernel's; `swpout_zero` stays away.

use crate::frame::{End, PageFlags};
use crate::memory::Memory;
use crate::page_table::{PTRS_PER_TABLE, Slot, Vpn};
use crate::policy::{AnonEntry, FreeOrder, Readahead};
use crate::types::{CpuId, Order, Pfn, ZoneKind};
use crate::vmstat::Vm;
use core::ops::Range;
use std_alloc::collections::VecDeque;
use std_alloc::vec;
use std_alloc::vec::Vec;

/// Slots that a CPU fetches at a time (`SWAP_BATCH`).
const SLOT_BATCH: u32 = 64;
/// CPUs keep slots while more than this many are free for each (`5 * SWAP_SLOTS_CACHE_SIZE`).
const SLOT_CACHE_ON: u64 = 5 * 64;
/// They stop below this many (`2 * SWAP_SLOTS_CACHE_SIZE`).
const SLOT_CACHE_OFF: u64 = 2 * 64;
/// Hits that read-ahead begins with.
const READAHEAD_HITS: u32 = 4;
/// Largest window of [`SwapinPlan`]: `page_cluster` is at most 5.
const WINDOW_MAX: usize = 32;

/// In [`SwapArea::map`]: in use by a page table entry.
const MAPPED: u8 = 1;
/// In [`SwapArea::map`]: the swap cache has a copy.
const CACHED: u8 = 1 << 1;
/// In [`SwapArea::map`]: in a CPU's cache of slots.
const RESERVED: u8 = 1 << 2;

/// A swap area.
#[derive(Clone, Debug)]
pub struct SwapArea {
    /// Its slots.
    pub slots: Range<u32>,
    /// The higher is filled first.
    pub priority: i32,
    /// Whether seeking costs time: then there are no clusters, and slots are taken one behind the other.
    pub rotational: bool,
    /// Slots in use.
    pub nr_used: u32,
    /// Use of each slot.
    map: Vec<u8>,
    /// Free clusters, next first, where the area has clusters.
    free_clusters: VecDeque<u32>,
    /// Slots in use, by cluster.
    cluster_used: Vec<u32>,
    /// The cluster each CPU takes from, and the next slot in it.
    cpu_next: Vec<Option<u32>>,
    /// Where the sequential search goes on, and what is left of its run.
    next: u32,
    run: u32,
    /// No slot below this one is free (`lowest_bit`).
    lowest: u32,
}

impl SwapArea {
    /// Number of slots.
    #[must_use]
    pub const fn nr_slots(&self) -> u32 {
        self.slots.end - self.slots.start
    }

    const fn nr_free(&self) -> u32 {
        self.nr_slots() - self.nr_used
    }

    /// Takes a slot, as an offset into the area.
    fn take(&mut self, cpu: CpuId, cluster: u32) -> Option<u32> {
        if self.nr_free() == 0 {
            return None;
        }
        let offset = if self.rotational {
            self.next_sequential(cluster)
        } else {
            self.next_of_cluster(cpu, cluster)
        }?;
        self.nr_used += 1;
        if let Some(used) = self.cluster_used.get_mut((offset / cluster) as usize) {
            *used += 1;
        }
        Some(offset)
    }

    fn is_free(&self, offset: u32) -> bool {
        self.map.get(offset as usize) == Some(&0)
    }

    /// The next slot behind the last one, after each run of a cluster's size preferably at the start of
    /// another such run of free ones (`scan_swap_map_slots` without clusters).
    fn next_sequential(&mut self, cluster: u32) -> Option<u32> {
        if self.run == 0 {
            self.run = cluster;
            if self.nr_free() >= cluster {
                while self.lowest < self.nr_slots() && !self.is_free(self.lowest) {
                    self.lowest += 1;
                }
                let mut free = 0;
                for offset in self.lowest..self.nr_slots() {
                    free = if self.is_free(offset) { free + 1 } else { 0 };
                    if free == cluster {
                        self.next = offset + 1 - cluster;
                        break;
                    }
                }
            }
        }
        self.run -= 1;
        let behind = self.next..self.nr_slots();
        let offset = behind.chain(0..self.next).find(|&offset| self.is_free(offset))?;
        self.next = offset + 1;
        Some(offset)
    }

    /// The next slot of the CPU's cluster, or of a free one; without one, any free slot
    /// (`scan_swap_map_try_ssd_cluster`).
    fn next_of_cluster(&mut self, cpu: CpuId, cluster: u32) -> Option<u32> {
        loop {
            let Some(at) = self.cpu_next[cpu.index()] else {
                let Some(fresh) = self.free_clusters.pop_front() else { break };
                self.cpu_next[cpu.index()] = Some(fresh * cluster);
                continue;
            };
            let end = (at / cluster + 1) * cluster;
            let found = (at..end.min(self.nr_slots())).find(|&offset| self.is_free(offset));
            self.cpu_next[cpu.index()] = found.map(|offset| offset + 1).filter(|&next| next < end);
            if found.is_some() {
                return found;
            }
        }
        let from = self.next;
        let found = (from..self.nr_slots()).chain(0..from).find(|&offset| self.is_free(offset))?;
        self.next = found + 1;
        Some(found)
    }

    fn release(&mut self, offset: u32, cluster: u32) {
        self.map[offset as usize] = 0;
        self.lowest = self.lowest.min(offset);
        self.nr_used -= 1;
        let nr_slots = self.nr_slots();
        if let Some(used) = self.cluster_used.get_mut((offset / cluster) as usize) {
            *used -= 1;
            let whole = (offset / cluster + 1) * cluster <= nr_slots;
            let current =
                self.cpu_next.iter().flatten().any(|&at| at / cluster == offset / cluster);
            if *used == 0 && whole && !current {
                self.free_clusters.push_back(offset / cluster);
            }
        }
    }

    /// Takes a whole cluster.
    fn take_cluster(&mut self, cluster: u32) -> Option<u32> {
        if self.rotational {
            return None;
        }
        let fresh = self.free_clusters.pop_front()?;
        self.cluster_used[fresh as usize] = cluster;
        self.nr_used += cluster;
        Some(fresh * cluster)
    }
}

/// What a slot's copy in memory is, or was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheEntry {
    /// None, and none was.
    Empty,
    /// In this frame.
    Page(Pfn),
    /// It was evicted: what was noted then.
    Shadow(u64),
}

// A cache entry in eight bytes: nothing, a frame, or a shadow under a mark.
const SHADOW_MARK: u64 = 1 << 63;
const PAGE_MARK: u64 = 1 << 62;

/// Swap areas, and what is in memory of them.
#[derive(Clone, Debug)]
pub struct Swap {
    /// Areas, as they were turned on.
    pub areas: Vec<SwapArea>,
    /// Areas by priority, the next one among equals first.
    turn: Vec<u32>,
    /// Whose page a slot holds; of use while [`MAPPED`] is set, or the cache has a copy.
    owners: Vec<u32>,
    /// See [`CacheEntry`].
    cache: Vec<u64>,
    /// Slots that CPUs keep.
    cpu_slots: Vec<VecDeque<Slot>>,
    caching: bool,
    nr_cached: u64,
    /// Read-ahead: hits since the last time, the last slot, the last window.
    hits: u32,
    previous: u32,
    window: u32,
}

impl Swap {
    pub(crate) fn new(nr_cpus: usize) -> Self {
        Self {
            areas: Vec::new(),
            turn: Vec::new(),
            owners: Vec::new(),
            cache: Vec::new(),
            cpu_slots: vec![VecDeque::new(); nr_cpus],
            caching: false,
            nr_cached: 0,
            hits: READAHEAD_HITS,
            previous: 0,
            window: 0,
        }
    }

    /// Slots of all areas.
    #[must_use]
    pub fn nr_total(&self) -> u64 {
        self.areas.iter().map(|area| u64::from(area.nr_slots())).sum()
    }

    /// Slots that may still be taken: free, or in a CPU's cache of slots.
    #[must_use]
    pub fn nr_free(&self) -> u64 {
        self.areas.iter().map(|area| u64::from(area.nr_free())).sum()
    }

    /// Slots that CPUs keep, in use as far as the area is concerned.
    #[must_use]
    pub fn nr_kept_by_cpus(&self) -> u64 {
        self.cpu_slots.iter().map(|slots| slots.len() as u64).sum()
    }

    /// Pages in the swap cache (`SwapCached`).
    #[must_use]
    pub const fn nr_cached(&self) -> u64 {
        self.nr_cached
    }

    /// Whether swap is more than half full, so that copies in memory give their slots back
    /// (`vm_swap_full`).
    #[must_use]
    pub fn is_half_full(&self) -> bool {
        self.nr_free() * 2 < self.nr_total()
    }

    /// The copy of a slot in memory.
    #[inline]
    #[must_use]
    pub fn cached(&self, slot: Slot) -> CacheEntry {
        match self.cache[slot.index()] {
            0 => CacheEntry::Empty,
            entry if entry & SHADOW_MARK != 0 => CacheEntry::Shadow(entry & !SHADOW_MARK),
            entry => CacheEntry::Page(Pfn(entry as u32)),
        }
    }

    /// The virtual page whose content a slot holds, while a page table entry names it.
    #[must_use]
    pub fn owner(&self, slot: Slot) -> Option<Vpn> {
        let owner = self.owners[slot.index()];
        if owner == u32::MAX { None } else { Some(Vpn(owner)) }
    }

    /// Whether a page table entry names the slot.
    #[must_use]
    pub fn is_mapped(&self, slot: Slot) -> bool {
        self.use_of(slot) & MAPPED != 0
    }

    fn use_of(&self, slot: Slot) -> u8 {
        let area = &self.areas[self.area_of(slot)];
        area.map[(slot.0 - area.slots.start) as usize]
    }

    /// The area that a slot belongs to.
    ///
    /// # Panics
    /// If it belongs to none.
    #[must_use]
    pub fn area_of(&self, slot: Slot) -> usize {
        self.areas.iter().position(|a| a.slots.contains(&slot.0)).expect("a slot lies in an area")
    }

    pub(crate) fn set_owner(&mut self, slot: Slot, owner: Option<Vpn>) {
        self.owners[slot.index()] = owner.map_or(u32::MAX, |vpn| vpn.0);
    }

    fn change_use(&mut self, slot: Slot, set: u8, clear: u8, cluster: u32) {
        let area = self.area_of(slot);
        let area = &mut self.areas[area];
        let offset = slot.0 - area.slots.start;
        let entry = &mut area.map[offset as usize];
        *entry = *entry & !clear | set;
        if *entry == 0 {
            area.release(offset, cluster);
            self.owners[slot.index()] = u32::MAX;
            self.cache[slot.index()] = 0;
        }
    }
}

/// What to read for a fault on a page that is in swap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwapinPlan {
    slots: [Slot; WINDOW_MAX],
    nr: u8,
    /// The slot the fault is for.
    pub target: Slot,
}

impl SwapinPlan {
    /// The slots to read, in order, the target's among them; those that are in memory already, or hold
    /// nothing, are left out.
    #[must_use]
    pub fn slots(&self) -> &[Slot] {
        &self.slots[..usize::from(self.nr)]
    }
}

/// A page to be read from or written to swap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwapIo {
    /// The first slot.
    pub slot: Slot,
    /// The first frame.
    pub pfn: Pfn,
    /// Its size: a huge page is written whole.
    pub order: Order,
}

/// The next read-ahead window: twice what was used of the last one, but not below half of it.
#[must_use]
pub const fn swapin_window(
    hits: u32,
    neighbours: bool,
    previous_window: u32,
    window_max: u32,
) -> u32 {
    let mut pages = hits + 2;
    if pages == 2 {
        // No hit: a lone page unless the fault is beside the last one.
        if !neighbours {
            pages = 1;
        }
    } else {
        let mut roundup = 4;
        while roundup < pages {
            roundup <<= 1;
        }
        pages = roundup;
    }
    if pages > window_max {
        pages = window_max;
    }
    if pages < previous_window / 2 { previous_window / 2 } else { pages }
}

impl Memory {
    /// Turns a swap area of `nr_slots` slots on. Returns its number.
    ///
    /// # Panics
    /// If all areas together would have more than 2^32 slots.
    pub fn swapon(&mut self, nr_slots: u32, priority: i32, rotational: bool) -> usize {
        let start = self.swap.areas.last().map_or(0, |area| area.slots.end);
        let end = start.checked_add(nr_slots).expect("swap stays below 2^32 slots");
        let cluster = self.policy.swap.cluster_pages;
        let clusters = if rotational { 0 } else { nr_slots.div_ceil(cluster) };
        self.swap.areas.push(SwapArea {
            slots: start..end,
            priority,
            rotational,
            nr_used: 0,
            map: vec![0; nr_slots as usize],
            free_clusters: (0..nr_slots / cluster).filter(|_| !rotational).collect(),
            cluster_used: vec![0; clusters as usize],
            cpu_next: vec![None; self.machine.cpu_nodes.len()],
            next: 0,
            run: 0,
            lowest: 0,
        });
        self.swap.owners.resize(end as usize, u32::MAX);
        self.swap.cache.resize(end as usize, 0);
        let area = self.swap.areas.len() - 1;
        let at = self.swap.turn.iter();
        let at = at.take_while(|&&other| self.swap.areas[other as usize].priority >= priority);
        let at = at.count();
        self.swap.turn.insert(at, area as u32);
        area
    }

    /// Takes one slot of the first area by priority that has one; equal areas take turns.
    fn take_slot(&mut self, cpu: CpuId) -> Option<Slot> {
        let cluster = self.policy.swap.cluster_pages;
        for at in 0..self.swap.turn.len() {
            let number = self.swap.turn[at];
            let area = &mut self.swap.areas[number as usize];
            if let Some(offset) = area.take(cpu, cluster) {
                area.map[offset as usize] = RESERVED;
                let slot = Slot(area.slots.start + offset);
                let priority = area.priority;
                let equals = self.swap.turn[at..].iter();
                let equals =
                    equals.take_while(|&&o| self.swap.areas[o as usize].priority == priority);
                let equals = equals.count();
                self.swap.turn[at..at + equals].rotate_left(1);
                return Some(slot);
            }
        }
        None
    }

    /// Takes a slot for a page, from the CPU's own where it keeps some.
    pub(crate) fn alloc_slot(&mut self, cpu: CpuId) -> Option<Slot> {
        let nr_cpus = self.swap.cpu_slots.len() as u64;
        let free = self.swap.nr_free();
        if !self.policy.swap.slot_cache || free < SLOT_CACHE_OFF * nr_cpus {
            self.swap.caching = false;
        } else if free > SLOT_CACHE_ON * nr_cpus {
            self.swap.caching = true;
        }
        if let Some(slot) = self.swap.cpu_slots[cpu.index()].pop_front() {
            return Some(slot);
        }
        if !self.swap.caching {
            return self.take_slot(cpu).or_else(|| {
                // The last ones are where CPUs keep them (`drain_slots_cache_cpu`).
                self.swap.cpu_slots.iter_mut().find_map(VecDeque::pop_front)
            });
        }
        for _ in 0..SLOT_BATCH {
            let Some(slot) = self.take_slot(cpu) else { break };
            self.swap.cpu_slots[cpu.index()].push_back(slot);
        }
        self.swap.cpu_slots[cpu.index()].pop_front()
    }

    /// Gives an anonymous page a slot and puts it into the swap cache, dirty; whether there was a slot.
    pub(crate) fn add_to_swap(&mut self, pfn: Pfn, cpu: CpuId) -> bool {
        let order = self.frames.order(pfn);
        let first =
            if order == Order(0) { self.alloc_slot(cpu) } else { self.take_slot_cluster(order) };
        let Some(first) = first else { return false };
        let vpn = Vpn(self.frames.owner(pfn));
        for i in 0..order.pages() {
            let owner = Some(Vpn(vpn.0 + i));
            self.put_into_swap_cache(Slot(first.0 + i), CACHED, owner, Pfn(pfn.0 + i));
        }
        self.frames.set_owner(pfn, first.0);
        self.frames.set_flags(pfn, PageFlags::SWAPCACHE | PageFlags::DIRTY);
        true
    }

    fn put_into_swap_cache(&mut self, slot: Slot, uses: u8, owner: Option<Vpn>, pfn: Pfn) {
        self.swap.change_use(slot, uses, RESERVED, self.policy.swap.cluster_pages);
        self.swap.set_owner(slot, owner);
        self.swap.cache[slot.index()] = PAGE_MARK | u64::from(pfn.0);
        self.swap.nr_cached += 1;
    }

    /// Gives a page that leaves its file a slot, which the file names from then on, and puts it into the swap cache, dirty.
    pub(crate) fn add_to_swap_for_file(&mut self, pfn: Pfn, cpu: CpuId) -> Option<Slot> {
        let slot = self.alloc_slot(cpu)?;
        self.put_into_swap_cache(slot, CACHED | MAPPED, None, pfn);
        self.frames.set_owner(pfn, slot.0);
        self.frames.set_flags(pfn, PageFlags::SWAPCACHE | PageFlags::DIRTY);
        Some(slot)
    }

    fn take_slot_cluster(&mut self, order: Order) -> Option<Slot> {
        let cluster = self.policy.swap.cluster_pages;
        if order.pages() != cluster {
            return None;
        }
        for at in 0..self.swap.turn.len() {
            let area = &mut self.swap.areas[self.swap.turn[at] as usize];
            if let Some(offset) = area.take_cluster(cluster) {
                let range = offset as usize..(offset + cluster) as usize;
                area.map[range].fill(RESERVED);
                return Some(Slot(area.slots.start + offset));
            }
        }
        None
    }

    /// Takes a page out of the swap cache. A slot that no page table entry names is freed; of one that
    /// is named, `shadow` stays.
    pub(crate) fn delete_from_swap_cache(&mut self, pfn: Pfn, shadow: Option<u64>) {
        let first = self.slot_of(pfn).expect("the page is in the swap cache");
        let pages = self.frames.order(pfn).pages();
        let owner = self.vpn_of(pfn).map_or(u32::MAX, |vpn| vpn.0);
        let cluster = self.policy.swap.cluster_pages;
        for i in 0..pages {
            let slot = Slot(first.0 + i);
            self.swap.cache[slot.index()] = shadow.map_or(0, |shadow| shadow | SHADOW_MARK);
            self.swap.change_use(slot, 0, CACHED, cluster);
        }
        self.swap.nr_cached -= u64::from(pages);
        self.frames.clear_flags(pfn, PageFlags::SWAPCACHE);
        self.frames.set_owner(pfn, owner);
    }

    /// The copy of a slot is in another frame from now on.
    pub(crate) fn replace_cached(&mut self, slot: Slot, pfn: Pfn) {
        debug_assert!(matches!(self.swap.cached(slot), CacheEntry::Page(_)), "there is a copy");
        self.swap.cache[slot.index()] = PAGE_MARK | u64::from(pfn.0);
    }

    /// Makes a page table entry name the slot of a page of the swap cache.
    pub(crate) fn map_slot(&mut self, slot: Slot, vpn: Vpn) {
        self.swap.change_use(slot, MAPPED, 0, self.policy.swap.cluster_pages);
        self.swap.set_owner(slot, Some(vpn));
    }

    /// A page table entry no longer names the slot, which is freed unless the cache has a copy. The
    /// copy keeps `owner` as the page it may be mapped at.
    pub(crate) fn unmap_slot(&mut self, slot: Slot, owner: Option<Vpn>) {
        self.swap.set_owner(slot, owner);
        self.swap.change_use(slot, 0, MAPPED, self.policy.swap.cluster_pages);
    }

    /// The slot of a page in the swap cache.
    #[inline]
    #[must_use]
    pub fn slot_of(&self, pfn: Pfn) -> Option<Slot> {
        let cached = self.frames.has(pfn, PageFlags::SWAPCACHE);
        if cached { Some(Slot(self.frames.owner(pfn))) } else { None }
    }

    /// Gives the slot of a page back if no entry names it and it is not being written
    /// (`folio_free_swap`); the page is dirty then, since nothing else has its content.
    pub(crate) fn try_to_free_swap(&mut self, pfn: Pfn) -> bool {
        let Some(slot) = self.slot_of(pfn) else { return false };
        let pages = self.frames.order(pfn).pages();
        let named = (0..pages).any(|i| self.swap.is_mapped(Slot(slot.0 + i)));
        if self.frames.has(pfn, PageFlags::WRITEBACK) || named {
            return false;
        }
        self.delete_from_swap_cache(pfn, None);
        self.frames.set_flags(pfn, PageFlags::DIRTY);
        true
    }

    /// What to read for a fault on `vpn`, whose content is in `slot`: the slot alone, or with those
    /// around it. `None` if a copy is in memory already; a page read ahead then counts as a hit.
    pub fn swapin_plan(&mut self, vpn: Vpn, slot: Slot) -> Option<SwapinPlan> {
        let by_address = self.policy.swap.readahead == Readahead::Addresses
            && !self.swap.areas.iter().any(|area| area.rotational);
        self.plan_swapin(by_address.then_some(vpn), slot)
    }

    /// The same for a page of a file: always by slots (`shmem_swapin_cluster`).
    pub fn shmem_swapin_plan(&mut self, slot: Slot) -> Option<SwapinPlan> {
        self.plan_swapin(None, slot)
    }

    /// What to read: by the addresses around one, or by slots.
    fn plan_swapin(&mut self, by_address: Option<Vpn>, slot: Slot) -> Option<SwapinPlan> {
        if let CacheEntry::Page(pfn) = self.swap.cached(slot) {
            let head = self.frames.head_of(pfn);
            let hit = u32::from(self.frames.test_clear(head, PageFlags::READAHEAD));
            self.vm.add(Vm::SwapRaHit, u64::from(hit));
            if let Some(vpn) = by_address {
                let vma = self.spaces.find_mut(vpn).expect("a fault lies in a mapping");
                vma.readahead.0 = vpn;
                vma.readahead.2 += hit;
            } else {
                self.swap.hits += hit;
            }
            return None;
        }
        let mut plan = SwapinPlan { slots: [slot; WINDOW_MAX], nr: 0, target: slot };
        match by_address {
            Some(vpn) => self.plan_by_address(vpn, &mut plan),
            None => self.plan_by_slot(slot, &mut plan),
        }
        if !plan.slots().contains(&slot) {
            plan.slots[0] = slot;
            plan.nr = 1;
        }
        Some(plan)
    }

    fn plan_candidate(&self, slot: Slot, plan: &mut SwapinPlan) {
        if self.swap.is_mapped(slot)
            && !matches!(self.swap.cached(slot), CacheEntry::Page(_))
            && usize::from(plan.nr) < WINDOW_MAX
        {
            plan.slots[usize::from(plan.nr)] = slot;
            plan.nr += 1;
        }
    }

    /// The aligned window of slots around the one asked for (`swap_cluster_readahead`).
    fn plan_by_slot(&mut self, slot: Slot, plan: &mut SwapinPlan) {
        let window_max = 1 << self.policy.swap.page_cluster;
        let area = &self.swap.areas[self.swap.area_of(slot)];
        let (start, end) = (area.slots.start, area.slots.end);
        let offset = slot.0 - start;
        let mut window = 1;
        if self.policy.swap.readahead == Readahead::WholeWindow {
            window = window_max;
        } else if window_max > 1 {
            let previous = self.swap.previous;
            let neighbours = offset == previous.wrapping_add(1) || offset + 1 == previous;
            window = swapin_window(self.swap.hits, neighbours, self.swap.window, window_max);
            if self.swap.hits == 0 {
                self.swap.previous = offset;
            }
            self.swap.hits = 0;
            self.swap.window = window;
        }
        let first = offset & !(window - 1);
        for other in first..(first + window).min(end - start) {
            self.plan_candidate(Slot(start + other), plan);
        }
    }

    /// The pages of the mapping around the address, on the side where faults come from
    /// (`swap_vma_readahead`).
    fn plan_by_address(&mut self, vpn: Vpn, plan: &mut SwapinPlan) {
        let window_max = 1 << self.policy.swap.page_cluster.min(5);
        let vma = self.spaces.find_mut(vpn).expect("a fault lies in a mapping");
        let (previous, previous_window, hits) = vma.readahead;
        let neighbours = vpn.0 == previous.0.wrapping_add(1) || vpn.0 + 1 == previous.0;
        let window = if window_max == 1 {
            1
        } else {
            swapin_window(hits, neighbours, previous_window, window_max)
        };
        vma.readahead = (vpn, window, 0);
        let (low, high) = (vma.start.0, vma.end.0);
        let first = if vpn.0 == previous.0.wrapping_add(1) {
            vpn.0
        } else if vpn.0 + 1 == previous.0 {
            (vpn.0 + 1).saturating_sub(window)
        } else {
            vpn.0.saturating_sub((window - 1) / 2)
        };
        // Within the mapping and the page table.
        let table = vpn.unit_start().0;
        let start = first.max(low).max(table);
        let end = (first + window).min(high).min(table + PTRS_PER_TABLE);
        for other in start..end {
            if let Some(slot) = self.spaces.table.pte(Vpn(other)).slot() {
                self.plan_candidate(slot, plan);
            }
        }
    }

    /// Puts a fresh page into the swap cache to be read from `slot`. It goes to the LRU at once; what
    /// was noted when the slot's page was evicted says whether it is active.
    ///
    /// # Panics
    /// If the slot holds nothing or has a copy already.
    pub fn begin_swapin(&mut self, slot: Slot, pfn: Pfn, target: Slot, cpu: CpuId) -> SwapIo {
        assert!(self.swap.is_mapped(slot), "{slot:?} holds nothing");
        let shadow = match self.swap.cached(slot) {
            CacheEntry::Page(other) => panic!("{slot:?} is in {other} already"),
            CacheEntry::Shadow(shadow) => Some(shadow),
            CacheEntry::Empty => None,
        };
        self.swap.change_use(slot, CACHED, 0, self.policy.swap.cluster_pages);
        self.swap.cache[slot.index()] = PAGE_MARK | u64::from(pfn.0);
        self.swap.nr_cached += 1;
        self.frames.set_owner(pfn, slot.0);
        let mut flags = PageFlags::ANON | PageFlags::SWAPCACHE | PageFlags::LOCKED;
        if self.faults_enter_youngest() {
            flags |= PageFlags::ACTIVE;
        }
        self.frames.set_flags(pfn, flags);
        if slot != target {
            self.frames.set_flags(pfn, PageFlags::READAHEAD);
            self.vm.add(Vm::SwapRa, 1);
        }
        if let Some(shadow) = shadow.filter(|_| self.policy.lru.anon == AnonEntry::Inactive) {
            self.workingset_refault(pfn, shadow);
        }
        self.lru_cache_add(pfn, cpu);
        self.count_alloc(pfn, 1);
        self.vm.add(Vm::PswpIn, 1);
        self.vm.add(Vm::PgPgIn, 4);
        SwapIo { slot, pfn, order: Order(0) }
    }

    /// The page has been read.
    pub fn end_swapin(&mut self, pfn: Pfn) {
        self.frames.clear_flags(pfn, PageFlags::LOCKED);
    }

    /// Begins to write a page of the swap cache.
    pub(crate) fn begin_swapout(&mut self, pfn: Pfn) -> SwapIo {
        let slot = self.slot_of(pfn).expect("a page to be written has a slot");
        let order = self.frames.order(pfn);
        let pages = u64::from(order.pages());
        self.frames.clear_flags(pfn, PageFlags::DIRTY);
        self.frames.set_flags(pfn, PageFlags::WRITEBACK | PageFlags::RECLAIM);
        let lruvec = self.lruvec_of(pfn);
        self.lru.lruvecs[lruvec].stats.nr_writeback += pages;
        self.vm.add(Vm::PswpOut, pages);
        self.vm.add(Vm::PgPgOut, 4 * pages);
        if order > Order(0) {
            self.vm.add(Vm::ThpSwpout, 1);
        }
        SwapIo { slot, pfn, order }
    }

    /// The page has been written: it goes where it is freed next (`folio_end_writeback`).
    ///
    /// # Panics
    /// If it was not being written.
    pub fn end_writeback(&mut self, pfn: Pfn) {
        assert!(self.frames.has(pfn, PageFlags::WRITEBACK), "{pfn} is not being written");
        let pages = self.nr_pages(pfn);
        let lruvec = self.lruvec_of(pfn);
        self.lru.lruvecs[lruvec].stats.nr_writeback -= pages;
        let reclaim = self.frames.test_clear(pfn, PageFlags::RECLAIM);
        if reclaim {
            self.rotate_reclaimable_page(pfn);
        }
        self.frames.clear_flags(pfn, PageFlags::WRITEBACK);
    }

    /// Frees a block that is on no list, counting it.
    pub(crate) fn free_page(&mut self, pfn: Pfn, cpu: CpuId) {
        let order = self.frames.order(pfn);
        self.vm.add(Vm::PgFree, u64::from(order.pages()));
        self.free(pfn, order, cpu);
    }

    /// Counts pages that were allocated.
    pub(crate) fn count_alloc(&mut self, pfn: Pfn, pages: u64) {
        let zone: ZoneKind = self.zone_kind(pfn);
        self.vm.add_in(Vm::PgAlloc, zone, pages);
    }

    /// Puts a page of a batch of frees last first or first first, as the policy says, and frees all.
    pub(crate) fn free_batch(&mut self, pages: &mut Vec<Pfn>, cpu: CpuId) {
        if self.policy.reclaim.free_order == FreeOrder::LastFirst {
            pages.reverse();
        }
        for pfn in pages.drain(..) {
            self.free_page(pfn, cpu);
        }
    }

    /// As [`Self::free_batch`], for pages that reclaim took: nobody has used them for long.
    pub(crate) fn free_cold_batch(&mut self, pages: &mut Vec<Pfn>, cpu: CpuId) {
        if self.policy.reclaim.free_order == FreeOrder::LastFirst {
            pages.reverse();
        }
        for pfn in pages.drain(..) {
            let order = self.frames.order(pfn);
            self.vm.add(Vm::PgFree, u64::from(order.pages()));
            self.free_cold(pfn, order, cpu);
        }
    }

    /// Puts a page back on the list that its flags name, at the head, if it is on none.
    pub(crate) fn relist(&mut self, pfn: Pfn) {
        if !self.frames.has(pfn, PageFlags::LRU | PageFlags::BATCHED) {
            self.add_page_to_lru(pfn, End::Head);
        }
    }
}

// What the audit asks.
impl Swap {
    /// For each area, its slots with what they are used for: named by an entry, copied, kept by a CPU.
    pub(crate) fn uses(&self) -> impl Iterator<Item = (Slot, bool, bool, bool)> + '_ {
        self.areas.iter().flat_map(|area| {
            area.map.iter().enumerate().map(|(offset, &used)| {
                let slot = Slot(area.slots.start + offset as u32);
                (slot, used & MAPPED != 0, used & CACHED != 0, used & RESERVED != 0)
            })
        })
    }
}
