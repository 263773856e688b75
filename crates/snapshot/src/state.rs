//! What a snapshot holds, whatever it was made from.

use highorder_mm::types::{Migratetype, Order, Pfn, ZoneKind};
use std::collections::BTreeMap;

/// How exact a snapshot is, and so how it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exactness {
    /// Counts alone: `/proc/buddyinfo`, `pagetypeinfo`, `zoneinfo`. Where each page lies was inferred.
    Counts,
    /// Every frame's use and every free block are known; the order within lists was inferred.
    Frames,
    /// Every free list, per-CPU list and LRU list in list order.
    Lists,
}

/// A free block on a zone's free list. The position in [`ZoneState::free`] is the position in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeBlock {
    /// First frame.
    pub pfn: Pfn,
    /// Size.
    pub order: Order,
    /// The list it is on. Before 6.10 it may differ from its pageblock's type.
    pub migratetype: Migratetype,
}

/// One CPU's page lists of one zone (`struct per_cpu_pages`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PcpState {
    /// CPU number.
    pub cpu: u32,
    /// The kernel's fields as recorded, by name: `count`, `high`, `high_min`, `batch`, `free_factor` ...
    pub fields: BTreeMap<String, i64>,
    /// Blocks on the lists: for each (order, migratetype) from head to tail.
    pub blocks: Vec<FreeBlock>,
}

/// One zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneState {
    /// NUMA node.
    pub node: u32,
    /// Which zone.
    pub kind: ZoneKind,
    /// First frame of the span.
    pub start_pfn: Pfn,
    /// Frames from first to last, holes included.
    pub spanned_pages: u64,
    /// Frames that exist.
    pub present_pages: u64,
    /// Frames that the page allocator manages.
    pub managed_pages: u64,
    /// Watermarks min, low, high, promo in pages, without boost.
    pub watermark: [u64; 4],
    /// Temporary boost of the watermarks in pages.
    pub watermark_boost: u64,
    /// Pages kept from requests that could use higher zones, by request's zone index.
    pub lowmem_reserve: Vec<u64>,
    /// Pages in highatomic pageblocks.
    pub nr_reserved_highatomic: u64,
    /// Other fields of the zone by the kernel's name (compaction cursors, deferral).
    pub fields: BTreeMap<String, i64>,
    /// Free blocks: for each (order, migratetype) from head to tail, lists in any order.
    pub free: Vec<FreeBlock>,
    /// Per-CPU lists, ascending CPU.
    pub pcp: Vec<PcpState>,
}

/// One pageblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageblockState {
    /// First frame.
    pub pfn: Pfn,
    /// Its type.
    pub migratetype: Migratetype,
    /// Compaction's skip hint.
    pub skip: bool,
}

/// What one frame is used for. One byte, for the map and for comparing two states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameUse {
    /// No memory here.
    Hole,
    /// Memory the allocator does not manage (firmware, kernel image, memory map).
    Reserved,
    /// In a free block of this order.
    Free(u8),
    /// On a per-CPU list.
    PerCpu,
    /// Anonymous base page.
    Anon,
    /// Page cache base page.
    File,
    /// Part of a huge or other compound user page (THP).
    Huge,
    /// Part of a hugetlb page.
    Hugetlb,
    /// Reclaimable slab (or slab of unknown kind in a reclaimable pageblock).
    SlabReclaimable,
    /// Unreclaimable slab.
    Slab,
    /// Page table.
    PageTable,
    /// Kernel memory of another use: stacks, vmalloc, drivers.
    Kernel,
    /// Use not known (counts-only snapshots).
    Unknown,
}

/// A page on an LRU list. The position in [`LruList::pages`] is the position in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LruList {
    /// NUMA node.
    pub node: u32,
    /// List name: `inactive_anon` ..., or `gen<g>_<anon|file>_<zone>`.
    pub name: String,
    /// Frames from head to tail.
    pub pages: Vec<Pfn>,
}

/// The state of a machine's memory at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// How exact it is.
    pub exactness: Exactness,
    /// `uname -r` of the machine, where known.
    pub kernel_release: Option<String>,
    /// What was inferred rather than read, one sentence each.
    pub inferred: Vec<String>,
    /// Frames from 0; the length of the machine's physical address space in base pages.
    pub nr_frames: u64,
    /// Log2 of frames per pageblock.
    pub pageblock_order: Order,
    /// Zones, ascending by node, then by kind.
    pub zones: Vec<ZoneState>,
    /// Pageblocks, ascending.
    pub pageblocks: Vec<PageblockState>,
    /// `/proc/kpageflags`: 64 flag bits a frame; empty where not known.
    pub kpageflags: Vec<u64>,
    /// Per frame `_mapcount` word, `_refcount`, `private`; empty where not known.
    pub pagecounts: Vec<PageCounts>,
    /// LRU lists in list order; empty where not known.
    pub lru: Vec<LruList>,
    /// The machine's text files as they were: `vmstat`, `buddyinfo`, `pagetypeinfo`, `zoneinfo`,
    /// `meminfo`, `slabinfo`.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// Three words of `struct page`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageCounts {
    /// `_mapcount`, or the page type of free and slab pages.
    pub mapcount: i32,
    /// `_refcount`.
    pub refcount: i32,
    /// `private`: the order, for the head of a free block.
    pub private: u64,
}
