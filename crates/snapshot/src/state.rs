//! What a snapshot holds, whatever it was made from.

use highorder_mm::types::{Migratetype, NR_PAGE_ORDERS, Order, Pfn, ZoneKind};
use std::collections::BTreeMap;
use std::fmt;

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

impl Exactness {
    /// The word that files and messages use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counts => "counts",
            Self::Frames => "frames",
            Self::Lists => "lists",
        }
    }

    /// The exactness that [`Exactness::name`] calls `name`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Counts, Self::Frames, Self::Lists].into_iter().find(|e| e.name() == name)
    }
}

impl fmt::Display for Exactness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
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

impl ZoneState {
    /// Returns the first frame after the zone's span.
    #[must_use]
    pub fn end_pfn(&self) -> u64 {
        u64::from(self.start_pfn.0) + self.spanned_pages
    }

    /// Frames of the zone's span that are not there.
    #[must_use]
    pub fn nr_holes(&self) -> u64 {
        self.spanned_pages.saturating_sub(self.present_pages)
    }

    /// Returns whether the `nr_pages` frames from `pfn` lie in the zone's span.
    #[must_use]
    pub fn spans(&self, pfn: Pfn, nr_pages: u32) -> bool {
        pfn >= self.start_pfn && u64::from(pfn.0) + u64::from(nr_pages) <= self.end_pfn()
    }

    /// Pages on all of the zone's per-CPU lists, by their recorded counts.
    #[must_use]
    pub fn nr_per_cpu_pages(&self) -> u64 {
        let counts = self.pcp.iter().filter_map(|pcp| pcp.fields.get("count"));
        counts.filter_map(|&count| u64::try_from(count).ok()).sum()
    }

    /// Counts the blocks of [`ZoneState::free`] by order, as `/proc/buddyinfo` does.
    #[must_use]
    pub fn nr_free(&self) -> [u64; NR_PAGE_ORDERS] {
        let mut nr_free = [0; NR_PAGE_ORDERS];
        for block in &self.free {
            nr_free[block.order.index()] += 1;
        }
        nr_free
    }
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
    /// Page cache base page that nobody maps.
    File,
    /// Page cache base page that some process maps.
    FileMapped,
    /// Page cache base page of a block device: metadata of its file system (`Buffers`).
    Buffers,
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
    /// Stack of a thread in the kernel; only models tell.
    KernelStack,
    /// Packets; only models tell.
    NetworkBuffer,
    /// User or file page that a device or a system call holds in place; only models tell.
    Pinned,
    /// Kernel memory of another use: vmalloc, drivers, and stacks where they are not told apart.
    Kernel,
    /// Without flags: a kernel page of another use, or a free page on a per-CPU list. Snapshots of exactness
    /// [`Exactness::Frames`] cannot tell which.
    KernelOrPerCpu,
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

/// What is kept of a node besides its zones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// NUMA node.
    pub node: u32,
    /// The multi-generational LRU's sequence numbers by the kernel's name (`lrugen_max_seq` ...).
    pub fields: BTreeMap<String, i64>,
}

/// A run of frames that are used alike: one slab of a reclaimable cache, or what a kernel has for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FrameRun {
    /// First frame.
    pub pfn: Pfn,
    /// Frames.
    pub nr_pages: u32,
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
    /// When it was taken, in seconds since 1970, where known.
    pub taken_at_s: Option<u64>,
    /// Frames from 0; the length of the machine's physical address space in base pages.
    pub nr_frames: u64,
    /// Log2 of frames per pageblock.
    pub pageblock_order: Order,
    /// Zones, ascending by node, then by kind.
    pub zones: Vec<ZoneState>,
    /// Nodes, ascending; empty where nothing of theirs is known.
    pub nodes: Vec<NodeState>,
    /// Where the kernel maps its `struct page` array: what a page pointer in a trace is relative to.
    pub vmemmap_base: Option<u64>,
    /// Pageblocks, ascending.
    pub pageblocks: Vec<PageblockState>,
    /// `/proc/kpageflags`: 64 flag bits a frame; empty where not known.
    pub kpageflags: Vec<u64>,
    /// Per frame `_mapcount` word, `_refcount`, `private`; empty where not known.
    pub pagecounts: Vec<PageCounts>,
    /// LRU lists in list order; empty where not known.
    pub lru: Vec<LruList>,
    /// Slabs of reclaimable caches, ascending; `None` where the kernel did not tell which they are.
    pub reclaimable_slabs: Option<Vec<FrameRun>>,
    /// Where frames that the kernel has for good are taken to lie, of a snapshot whose positions are made up; else empty.
    pub reserved: Vec<FrameRun>,
    /// The machine's text files as they were: `vmstat`, `buddyinfo`, `pagetypeinfo`, `zoneinfo`,
    /// `meminfo`, `slabinfo`.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// Three words of `struct page`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// `_mapcount`, or the page type of free and slab pages.
    pub mapcount: i32,
    /// `_refcount`.
    pub refcount: i32,
    /// `private`: the order, for the head of a free block.
    pub private: u64,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    /// A DMA32 zone with nothing on its lists.
    pub(crate) fn zone(node: u32, start: u32, spanned_pages: u64) -> ZoneState {
        ZoneState {
            node,
            kind: ZoneKind::Dma32,
            start_pfn: Pfn(start),
            spanned_pages,
            present_pages: spanned_pages,
            managed_pages: spanned_pages,
            watermark: [1, 2, 3, 4],
            watermark_boost: 0,
            lowmem_reserve: vec![0, 0, 8],
            nr_reserved_highatomic: 0,
            fields: BTreeMap::new(),
            free: Vec::new(),
            pcp: Vec::new(),
        }
    }

    /// Cuts frames into blocks that do not overlap: each draw skips some frames, then takes a block.
    fn blocks(zone: &ZoneState, draws: &[(u32, u8, usize)]) -> Vec<FreeBlock> {
        let mut pfn = zone.start_pfn.0;
        let mut blocks = Vec::new();
        for &(skip, order, migratetype) in draws {
            let order = Order(order);
            pfn = (pfn + skip).next_multiple_of(order.pages());
            if !zone.spans(Pfn(pfn), order.pages()) {
                break;
            }
            let migratetype = Migratetype::from_index(migratetype);
            blocks.push(FreeBlock { pfn: Pfn(pfn), order, migratetype });
            pfn += order.pages();
        }
        blocks
    }

    /// Snapshots that do not contradict themselves, of two zones and 8192 frames.
    pub(crate) fn any_snapshot() -> impl Strategy<Value = Snapshot> {
        let draws = || vec((0u32..40, 0u8..=5, 0usize..6), 0..60);
        let fields = || btree_map("[a-z_]{1,12}", any::<i64>(), 0..4);
        let head = (0usize..3, any::<Option<u64>>(), vec("[ -~]{0,40}", 0..3), any::<bool>());
        let words = (any::<Option<u64>>(), vec(any::<u64>(), 8), any::<i32>(), fields());
        let lists = (draws(), draws(), 0usize..30, vec((0usize..6, any::<bool>()), 16));
        let files = btree_map("[a-z]{1,9}", vec(any::<u8>(), 0..60), 0..3);
        (head, words, lists, fields(), files).prop_map(|(head, words, lists, node, files)| {
            let (exactness, taken_at_s, inferred, has_pages) = head;
            let (vmemmap_base, flags, mapcount, zone_fields) = words;
            let (first, second, split, types) = lists;
            let mut zones = vec![zone(0, 1, 4095), zone(1, 4096, 4000)];
            zones[0].fields = zone_fields;
            zones[0].free = blocks(&zones[0], &first);
            let mut rest = blocks(&zones[1], &second);
            let free = rest.split_off(split.min(rest.len()));
            let count = rest.iter().map(|b| i64::from(b.order.pages())).sum();
            zones[1].free = free;
            for (cpu, blocks) in [(0, rest), (3, Vec::new())] {
                let count = if cpu == 0 { count } else { 0 };
                let fields = BTreeMap::from([("batch".into(), 31), ("count".into(), count)]);
                zones[1].pcp.push(PcpState { cpu, fields, blocks });
            }
            let nr_frames = 8192;
            Snapshot {
                exactness: [Exactness::Counts, Exactness::Frames, Exactness::Lists][exactness],
                kernel_release: inferred.first().cloned(),
                inferred,
                taken_at_s,
                nr_frames,
                pageblock_order: Order(9),
                zones,
                nodes: vec![NodeState { node: 0, fields: node }],
                vmemmap_base,
                pageblocks: types
                    .into_iter()
                    .enumerate()
                    .map(|(i, (migratetype, skip))| PageblockState {
                        pfn: Pfn(512 * i as u32),
                        migratetype: Migratetype::from_index(migratetype),
                        skip,
                    })
                    .collect(),
                kpageflags: if has_pages {
                    (0..nr_frames as usize).map(|i| flags[i % 8]).collect()
                } else {
                    Vec::new()
                },
                pagecounts: if has_pages {
                    let private = flags[0];
                    vec![PageCounts { mapcount, refcount: -mapcount.max(-9), private }; 8192]
                } else {
                    Vec::new()
                },
                lru: vec![LruList {
                    node: 1,
                    name: "gen0_anon_DMA32".into(),
                    pages: (0..=split as u32).rev().map(|i| Pfn(4096 + 7 * i)).collect(),
                }],
                reserved: Vec::new(),
                reclaimable_slabs: has_pages.then(|| vec![FrameRun { pfn: Pfn(9), nr_pages: 8 }]),
                files,
            }
        })
    }
}
