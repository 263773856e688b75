//! Machine files: nodes, zones, CPUs, disks, swap, and what things cost, each with its source.
//!
//! Models: arch/x86/mm/init.c (`zone_sizes_init`): DMA below 16 MiB, DMA32 below 4 GiB, Normal above.
//! mm/mm_init.c: the map of pages (`struct page`) is taken from the top of each node, what the kernel
//! itself needs from the first node.
//! Departs: which pages the firmware keeps within a zone is not modelled, but for the first MiB. Visible
//! as: DMA32 has no holes below its end.

mod layers;

use crate::device::{DeviceKind, DeviceSpec, FlashTimes};
use crate::sched::{DeviceId, SchedSpec, SimSpec};
use highorder_input::{InputError, Kind, Layers, Source};
use highorder_mm::types::{Pfn, ZoneKind};
use highorder_mm::{NodeSpec, ZoneSpec};
use highorder_words::Ns;
use serde::{Deserialize, Serialize};
use serde_spanned::Spanned;
use std::ops::Range;
use std::path::Path;

/// The machine files that come with the program, by name.
pub const BUILT_IN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/built_in.rs"));

/// Machine files.
const KIND: Kind = Kind { word: "machine", built_in: BUILT_IN };

/// Bytes of a base page.
pub const PAGE_BYTES: u64 = 4096;

const MIB: u64 = 1 << 20;
const PAGES_PER_MIB: u64 = MIB / PAGE_BYTES;
/// End of ZONE_DMA: arch/x86/include/asm/dma.h (`MAX_DMA_PFN`).
const DMA_END_MIB: u64 = 16;
/// End of ZONE_DMA32: arch/x86/include/asm/dma.h (`MAX_DMA32_PFN`).
const DMA32_END_MIB: u64 = 4096;
/// Zones of a scaled machine begin and end at multiples of the largest block: order 10, 4 MiB.
const ZONE_UNIT_BYTES: u64 = 4 * MIB;
/// The least memory of a node, in MiB: ZONE_DMA must be whole.
const NODE_MIN_MIB: u64 = 16;
/// The least swap area, in MiB.
const SWAP_MIN_MIB: u64 = 1;
/// Frames of ZONE_DMA that exist: all but frame 0, the 96 frames of video memory and firmware from
/// 640 KiB to 1 MiB, and the firmware's data page below them. As recorded in
/// tests/data/recordings/*/state0/zoneinfo.
const DMA_PRESENT_PAGES: u64 = 4096 - 1 - 96 - 1;
/// Frames of ZONE_DMA that are handed out: none of the first MiB (f1d4d47c5851, 5.13). As recorded there.
const DMA_MANAGED_PAGES: u64 = 4096 - PAGES_PER_MIB;
/// Distance of a node to itself: `LOCAL_DISTANCE`, include/linux/topology.h.
const LOCAL_DISTANCE: u32 = 10;
/// Distance to another node where the firmware says nothing: `REMOTE_DISTANCE`, include/linux/topology.h.
const REMOTE_DISTANCE: u32 = 20;
/// The most that a distance can be: a byte in the firmware's table (SLIT), 255 meaning unreachable.
const DISTANCE_MAX: u32 = 254;

/// A price: time, and where the number is from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cost {
    picoseconds: u64,
    /// Who measured or published it.
    #[serde(skip)]
    pub source: String,
}

impl Cost {
    /// The price of so many nanoseconds, to the picosecond.
    #[must_use]
    pub fn of_ns(ns: f64, source: impl Into<String>) -> Self {
        Self { picoseconds: (ns * 1000.0).round() as u64, source: source.into() }
    }

    /// One of it, rounded down to nanoseconds.
    #[must_use]
    pub const fn once(&self) -> Ns {
        Ns(self.picoseconds / 1000)
    }

    /// This many of it, rounded down to nanoseconds once.
    #[must_use]
    pub const fn times(&self, count: u64) -> Ns {
        Ns((self.picoseconds as u128 * count as u128 / 1000) as u64)
    }

    /// In thousandths of a nanosecond.
    #[must_use]
    pub const fn picoseconds(&self) -> u64 {
        self.picoseconds
    }
}

/// Defines the costs: the table, its form in the file, and their list by name.
macro_rules! costs {
    ($($(#[doc = $doc:literal])+ $name:ident),* $(,)?) => {
        /// What primitive work costs, in time of one CPU that does nothing else meanwhile.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        pub struct Costs { $($(#[doc = $doc])+ pub $name: Cost),* }

        impl Costs {
            /// What each is the cost of, by the names that machine files use.
            #[must_use]
            pub fn about() -> Vec<(&'static str, &'static str)> {
                vec![$((stringify!($name), concat!($($doc),+).trim())),*]
            }

            /// The one of this name, to be changed.
            #[must_use]
            pub fn named_mut(&mut self, name: &str) -> Option<&mut Cost> {
                match name {
                    $(stringify!($name) => Some(&mut self.$name),)*
                    _ => None,
                }
            }

            /// All of them by the names that machine files use.
            #[must_use]
            pub fn by_name(&self) -> Vec<(&'static str, &Cost)> {
                vec![$((stringify!($name), &self.$name)),*]
            }
        }

        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct CostValues { $($name: CostValue),* }

        impl CostValues {
            fn finish(self, checks: &mut Checks<'_>) -> Costs {
                Costs { $($name: self.$name.finish(stringify!($name), checks)),* }
            }
        }
    };
}

costs! {
    /// Zeroing a base page of 4 KiB that no cache holds.
    clear_base_page,
    /// Zeroing a huge page of 2 MiB.
    clear_huge_page,
    /// Copying a base page that no cache holds.
    copy_base_page,
    /// Copying a huge page.
    copy_huge_page,
    /// A page fault from the faulting instruction to its repetition, without zeroing or copying the page
    /// and without work that is counted elsewhere (list operations, page table steps).
    fault_entry,
    /// Entering and leaving the kernel by a system call that does nothing.
    system_call,
    /// A load from memory of the CPU's own node that misses every cache.
    local_access,
    /// The same from another node.
    remote_access,
    /// A load that misses the CPU's own caches, and that the cache of its node has: of a page table that was walked
    /// before, of a `struct page` that compaction's scanners look at in every run.
    cache_read,
    /// What an access costs more when its translation is not in the TLB, for base pages, the page table being
    /// in the CPU's own caches.
    tlb_miss_base,
    /// The same for huge pages.
    tlb_miss_huge,
    /// Taking a page off a list or putting one on, its `struct page` not being in a cache.
    list_op,
    /// What reclaim does with a page that it frees, besides list operations: locking it, taking it out of its file.
    reclaim_page,
    /// Finding the entries that map a page, of which there is one, besides the step to it: locks, the search for
    /// the mapping.
    rmap_walk,
    /// Looking at the next `struct page` in a row, or at one near the last, or at one used a moment ago.
    pfn_scan,
    /// Finding a page table entry from an address in software, four levels.
    page_table_walk,
    /// Taking a lock that nobody holds, and releasing it.
    lock_pair,
    /// Flushing one translation on the CPU itself.
    tlb_flush_local,
    /// Making one other CPU flush: an interrupt and its acknowledgement.
    tlb_flush_remote,
    /// Switching a CPU from one task to another.
    context_switch,
    /// CPU time to submit a transfer to a device and take its completion.
    block_request,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Its CPUs.
    pub cpus: Range<u32>,
    /// Distance to each node in the firmware's unit, 10 to itself.
    pub distances: Vec<u32>,
}

/// A file system, as far as its inodes and pages take memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileSystem {
    /// ext4.
    #[default]
    Ext4,
    /// XFS.
    Xfs,
}

impl FileSystem {
    /// Its name in machine files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }
}

/// Where swapped pages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SwapArea {
    /// The disk it is on.
    pub device: DeviceId,
    /// Its first byte on the disk.
    pub offset_bytes: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Memory that is there and that the page allocator does not hand out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Reserved {
    /// Bytes of `struct page` for each page.
    pub memmap_bytes_per_page: u64,
    /// Bytes below 4 GiB on the first node: the kernel's image.
    pub low_bytes: u64,
    /// Bytes at the top of the first node: hash tables and other early allocations.
    pub high_bytes: u64,
}

/// Pageblocks that a running system has filled with unmovable pages, and the holes in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct InUse {
    /// Of 1000 pageblocks of 2 MiB, those.
    pub unmovable_blocks_per_1000: u32,
    /// Free blocks of each order in 1000 of them.
    pub holes_per_1000_blocks: [u32; HOLE_ORDERS],
}

/// Orders below the pageblock's.
pub const HOLE_ORDERS: usize = 9;

/// A machine.
///
/// Serialized it has what a run on it depends on: neither names nor sources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Name of the file, without its ending.
    #[serde(skip)]
    pub name: String,
    /// One line for people.
    #[serde(skip)]
    pub description: String,
    /// Nodes, ascending.
    #[serde(rename = "node")]
    pub nodes: Vec<Node>,
    /// Where ZONE_DMA32 ends, in bytes: 4 GiB, unless the machine was [`scaled`](Machine::scaled).
    pub dma32_end_bytes: u64,
    /// Bytes below the end of ZONE_DMA32 that are no memory but devices (PCI); what they displace lies
    /// above it.
    pub device_hole_bytes: u64,
    /// Memory that is not handed out.
    pub reserved: Reserved,
    /// What a running system holds; `None`: nothing.
    pub in_use: Option<InUse>,
    /// Disks; their positions are their [`DeviceId`]s.
    #[serde(rename = "disk")]
    pub disks: Vec<DeviceSpec>,
    /// The file system on each disk.
    #[serde(rename = "file_system")]
    pub file_systems: Vec<FileSystem>,
    /// Swap areas, the first to be filled first.
    pub swap: Vec<SwapArea>,
    /// Times of the scheduler, but for the context switch, which is among the costs.
    pub sched: SchedSpec,
    /// What primitive work costs.
    #[serde(rename = "cost")]
    pub costs: Costs,
    /// Where the numbers are from that are no costs.
    #[serde(skip)]
    pub sources: Sources,
}

/// Where a machine's numbers are from, but for its costs, each of which says it itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// Of its memory.
    pub memory: String,
    /// Of what a running system holds, if it does.
    pub in_use: Option<String>,
    /// Of the scheduler's times.
    pub sched: String,
    /// Of each disk.
    pub disks: Vec<String>,
}

impl Machine {
    /// The machine of this name: a file's path, or one that comes with the program.
    ///
    /// # Errors
    /// The file and line of every misspelt, missing or impossible value.
    pub fn load(name: &str) -> Result<Self, InputError> {
        Self::finish(KIND.find(name)?)
    }

    /// The machine that a file's text describes; the path is for its name, for messages, and to find what the
    /// file is based on.
    ///
    /// # Errors
    /// As [`Machine::load`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, InputError> {
        let (path, text) = (path.to_owned(), text.to_owned());
        Self::finish(Source { path, text, is_built_in: false })
    }

    fn finish(file: Source) -> Result<Self, InputError> {
        let layers = Layers::read(&KIND, file)?;
        let values: Values = layers.values(&layers::merged(&layers)?)?;
        let mut checks = Checks { layers: &layers, problems: Vec::new() };
        let machine = values.finish(&mut checks);
        if checks.problems.is_empty() { Ok(machine) } else { Err(InputError::all(checks.problems)) }
    }

    /// The same machine with `numerator / denominator` of its memory.
    ///
    /// Nodes, what is reserved, swap areas, the end of ZONE_DMA32 and the hole for devices shrink
    /// together, so that zones keep their shares of a node. CPUs, distances, disks, costs and the
    /// scheduler stay, and so does ZONE_DMA: its 16 MiB are mostly kept from whoever may use other zones.
    ///
    /// Departs: x86-64 has ZONE_DMA32 end at 4 GiB whatever the memory. Visible as: a scaled machine has a
    /// ZONE_NORMAL where a real one of its size would have none.
    ///
    /// # Errors
    /// The ratio is 0 or more than 1, or leaves a node too little memory or no whole number of MiB of it.
    pub fn scaled(&self, numerator: u32, denominator: u32) -> Result<Self, InputError> {
        let ratio = format!("scale {numerator}/{denominator}");
        if numerator == 0 || numerator > denominator {
            return Err(InputError::other(format!("{ratio}, expected more than 0 and at most 1")));
        }
        if numerator == denominator {
            return Ok(self.clone());
        }
        let scale = |bytes: u64, unit: u64| {
            let scaled = u128::from(bytes) * u128::from(numerator) / u128::from(denominator);
            scaled as u64 / unit * unit
        };
        let refuse =
            |what: String| Err(InputError::other(format!("{ratio} of {}: {what}", self.name)));
        let mut machine = self.clone();
        machine.dma32_end_bytes = scale(self.dma32_end_bytes, ZONE_UNIT_BYTES);
        machine.device_hole_bytes = scale(self.device_hole_bytes, ZONE_UNIT_BYTES);
        let below_hole = machine.dma32_end_bytes - machine.device_hole_bytes;
        if below_hole <= DMA_END_MIB * MIB {
            return refuse(format!(
                "memory below the hole for devices ends at {} MiB, expected more than the \
                 {DMA_END_MIB} of ZONE_DMA",
                below_hole / MIB
            ));
        }
        machine.reserved.low_bytes = scale(self.reserved.low_bytes, PAGE_BYTES);
        machine.reserved.high_bytes = scale(self.reserved.high_bytes, PAGE_BYTES);
        let reserved = machine.reserved.low_bytes + machine.reserved.high_bytes;
        for (number, node) in machine.nodes.iter_mut().enumerate() {
            let bytes = scale(node.memory_bytes, 1);
            let is_whole = u128::from(node.memory_bytes) * u128::from(numerator)
                == u128::from(bytes) * u128::from(denominator);
            if !is_whole || bytes % MIB != 0 {
                let mib = bytes as f64 / MIB as f64;
                return refuse(format!("node {number} has {mib:.2} MiB, expected whole MiB"));
            }
            let least_mib = least_memory_mib(number, reserved.div_ceil(MIB));
            if bytes < least_mib * MIB {
                return refuse(format!(
                    "node {number} has {} MiB, expected at least {least_mib}",
                    bytes / MIB
                ));
            }
            node.memory_bytes = bytes;
        }
        for (number, area) in machine.swap.iter_mut().enumerate() {
            area.bytes = scale(area.bytes, PAGE_BYTES);
            if area.bytes < SWAP_MIN_MIB * MIB {
                return refuse(format!(
                    "swap area {number} has {} KiB, expected at least {}",
                    area.bytes / 1024,
                    SWAP_MIN_MIB * 1024
                ));
            }
        }
        Ok(machine)
    }

    /// The node of each CPU.
    #[must_use]
    pub fn cpu_nodes(&self) -> Vec<u32> {
        let nodes = self.nodes.iter().zip(0..);
        nodes.flat_map(|(node, number)| node.cpus.clone().map(move |_| number)).collect()
    }

    /// What a simulation of it needs.
    #[must_use]
    pub fn sim_spec(&self) -> SimSpec {
        SimSpec { cpu_nodes: self.cpu_nodes(), sched: self.sched, devices: self.disks.clone() }
    }

    /// All memory in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.nodes.iter().map(|node| node.memory_bytes).sum()
    }

    /// Its memory as the page allocator sees it.
    #[must_use]
    pub fn memory(&self) -> highorder_mm::Machine {
        let mut nodes: Vec<NodeSpec> = Vec::new();
        let mut at = 0;
        let hole = (self.dma32_end_bytes - self.device_hole_bytes)..self.dma32_end_bytes;
        let mut nr_frames = 0;
        for (number, node) in self.nodes.iter().enumerate() {
            let mut left = node.memory_bytes;
            let mut zones = Vec::new();
            while left > 0 {
                // The next stretch that lies within one zone.
                if hole.contains(&at) {
                    at = hole.end;
                }
                let (kind, end) = if at < DMA_END_MIB * MIB {
                    (ZoneKind::Dma, DMA_END_MIB * MIB)
                } else if at < hole.start {
                    (ZoneKind::Dma32, hole.start)
                } else {
                    (ZoneKind::Normal, u64::MAX)
                };
                let bytes = left.min(end - at);
                zones.push(zone(kind, at, bytes));
                at += bytes;
                left -= bytes;
            }
            self.reserve(number, node, &mut zones);
            nr_frames = at / PAGE_BYTES;
            nodes.push(NodeSpec { distances: node.distances.clone(), zones });
        }
        highorder_mm::Machine { nr_frames: nr_frames as u32, nodes, cpu_nodes: self.cpu_nodes() }
    }

    /// Takes from a node's zones what is not handed out.
    fn reserve(&self, number: usize, node: &Node, zones: &mut [ZoneSpec]) {
        let memmap = node.memory_bytes / PAGE_BYTES * self.reserved.memmap_bytes_per_page;
        let pages = |bytes: u64| bytes.div_ceil(PAGE_BYTES);
        if let Some(highest) = zones.last_mut() {
            let high = if number == 0 { self.reserved.high_bytes } else { 0 };
            highest.managed_pages = highest.managed_pages.saturating_sub(pages(memmap + high));
        }
        if number == 0
            && let Some(low) = zones.iter_mut().find(|zone| zone.kind == ZoneKind::Dma32)
        {
            low.managed_pages = low.managed_pages.saturating_sub(pages(self.reserved.low_bytes));
        }
    }
}

/// A zone of whole pages that begins at `at` bytes.
#[doc(alias = "zone_sizes_init")]
fn zone(kind: ZoneKind, at: u64, bytes: u64) -> ZoneSpec {
    let (start, pages) = (at / PAGE_BYTES, bytes / PAGE_BYTES);
    if kind == ZoneKind::Dma {
        // Frame 0 belongs to no zone; with less than 16 MiB the machine is refused.
        return ZoneSpec {
            kind,
            start: Pfn(1),
            spanned_pages: pages as u32 - 1,
            present_pages: DMA_PRESENT_PAGES as u32,
            managed_pages: DMA_MANAGED_PAGES,
        };
    }
    ZoneSpec {
        kind,
        start: Pfn(start as u32),
        spanned_pages: pages as u32,
        present_pages: pages as u32,
        managed_pages: pages,
    }
}

/// Gathers what is wrong, with its line.
struct Checks<'a> {
    layers: &'a Layers,
    problems: Vec<InputError>,
}

impl Checks<'_> {
    fn refuse(&mut self, span: &Range<usize>, message: impl std::fmt::Display) {
        self.problems.push(self.layers.refuse(span, message));
    }

    /// The value, if it lies in the range.
    fn within(&mut self, key: &str, value: &Spanned<u64>, range: Range<u64>, unit: &str) -> u64 {
        let found = *value.get_ref();
        if !range.contains(&found) {
            let Range { start, end } = range;
            let expected = if end == u64::MAX {
                format!("at least {start}")
            } else {
                format!("{start}..={}", end - 1)
            };
            self.refuse(&value.span(), format!("`{key}` is {found}, expected {expected}{unit}"));
            return start;
        }
        found
    }

    fn some_text(&mut self, key: &str, value: &Spanned<String>) {
        if value.get_ref().trim().is_empty() {
            self.refuse(&value.span(), format!("`{key}` is empty, expected where it is from"));
        }
    }
}

// What is said of a key here is what docs/machines.md says of it.

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Values {
    /// One line for people.
    description: Option<String>,
    /// Memory that is there and that the page allocator does not hand out.
    memory: MemoryValues,
    /// What a system that has run for a while holds; left out, memory is as boot leaves it.
    in_use: Option<InUseValues>,
    /// The nodes, node 0 first; one at least.
    #[serde(rename = "node")]
    nodes: Spanned<Vec<NodeValues>>,
    /// Times of the scheduler.
    sched: SchedValues,
    /// Disks; left out, there is none, and workloads that use files cannot run.
    #[serde(rename = "disk", default)]
    disks: Vec<DiskValues>,
    /// Swap areas, the first to be filled first; left out, there is none.
    #[serde(rename = "swap", default)]
    swap: Vec<SwapValues>,
    /// What primitive work costs, in time of one CPU that does nothing else meanwhile.
    costs: CostValues,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryValues {
    /// Addresses below 4 GiB that are no memory but devices (PCI); the memory that they displace lies above 4 GiB.
    device_hole_mib: Spanned<u64>,
    /// Bytes of `struct page` for each page, taken from the top of each node.
    memmap_bytes_per_page: Spanned<u64>,
    /// What the kernel keeps below 4 GiB on the first node: its image.
    reserved_low_mib: Spanned<u64>,
    /// What it keeps at the top of the first node: hash tables and other early allocations.
    reserved_high_mib: Spanned<u64>,
    /// Where the table's values are from.
    source: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InUseValues {
    /// Of 1000 pageblocks, those that the kernel has filled with unmovable pages.
    unmovable_blocks_per_1000: Spanned<u64>,
    /// Holes in 1000 such pageblocks: the number of free blocks of each order from 0 to 8.
    holes_per_1000_blocks: Spanned<Vec<u32>>,
    /// Where the table's values are from.
    source: Spanned<String>,
}

impl InUseValues {
    fn finish(&self, checks: &mut Checks<'_>) -> InUse {
        checks.some_text("in_use.source", &self.source);
        let key = "unmovable_blocks_per_1000";
        // Half of memory: more would leave nothing to run with.
        let blocks = checks.within(key, &self.unmovable_blocks_per_1000, 1..501, "");
        let found = self.holes_per_1000_blocks.get_ref();
        let mut holes = [0; HOLE_ORDERS];
        if let Ok(all) = <[u32; HOLE_ORDERS]>::try_from(found.as_slice()) {
            holes = all;
        } else {
            let message = format!(
                "`holes_per_1000_blocks` has {} entries, expected {HOLE_ORDERS}: orders 0 to 8",
                found.len()
            );
            checks.refuse(&self.holes_per_1000_blocks.span(), message);
        }
        for (order, &nr) in holes.iter().enumerate() {
            // Of two buddies one at most: both would be one of the next order.
            let most = 256_000 >> order;
            if nr > most {
                let message = format!(
                    "`holes_per_1000_blocks` has {nr} of order {order}, expected at most {most}"
                );
                checks.refuse(&self.holes_per_1000_blocks.span(), message);
            }
        }
        let pages = holes.iter().zip(0..).map(|(&holes, order)| u64::from(holes) << order);
        let pages: u64 = pages.sum();
        if pages >= 512_000 {
            let message = format!(
                "`holes_per_1000_blocks` are {pages} pages, expected fewer than the 512000 of 1000 \
                 pageblocks"
            );
            checks.refuse(&self.holes_per_1000_blocks.span(), message);
        }
        InUse { unmovable_blocks_per_1000: blocks as u32, holes_per_1000_blocks: holes }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeValues {
    /// The node's memory; the first node needs what is reserved and 32 MiB.
    memory_mib: Spanned<u64>,
    /// The node's CPUs; 0 for a node that has memory alone.
    cpus: Spanned<u64>,
    /// The distance to each node in the firmware's unit (SLIT): 10 to itself, 11 to 254 to another one. Left out, 10
    /// and 20, as the kernel takes them to be where the firmware says nothing.
    distances: Option<Spanned<Vec<u32>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SchedValues {
    /// In this time each task that can run has its turn (`sched_latency_ns`).
    latency_ns: Spanned<u64>,
    /// The least time that a task runs before another takes over (`sched_min_granularity_ns`).
    min_granularity_ns: Spanned<u64>,
    /// How far a woken task must be behind the running one to take over at once (`sched_wakeup_granularity_ns`).
    wakeup_granularity_ns: Spanned<u64>,
    /// Where the table's values are from.
    source: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DiskValues {
    /// Its name, such as `sda`; no two disks have one.
    name: Spanned<String>,
    /// Its size in units of 10^9 bytes. Swap areas have their places on it, and files the rest.
    capacity_gb: Spanned<u64>,
    /// Requests that may wait for it (`queue/nr_requests`).
    nr_requests: Spanned<u64>,
    /// The longest request (`queue/max_sectors_kb`).
    max_request_kib: Spanned<u64>,
    /// What `queue/rotational` says: `true` or `false`. Left out, the truth.
    says_rotational: Option<bool>,
    /// The file system on it: `ext4` or `xfs`. Left out, `ext4`.
    filesystem: Option<FileSystem>,
    /// The times of a disk that turns. A disk has either this or `flash`.
    rotating: Option<RotatingValues>,
    /// The times of one that does not.
    flash: Option<FlashValues>,
    /// Where its values are from.
    source: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RotatingValues {
    /// How fast it turns.
    turns_per_minute: Spanned<u64>,
    /// Time to move the heads to the next track.
    seek_track_ns: Spanned<u64>,
    /// Time to move them to a track somewhere; at least `seek_track_ns`.
    seek_average_ns: Spanned<u64>,
    /// Time that a request takes besides moving, turning and transfer.
    command_ns: Spanned<u64>,
    /// Its bandwidth along a track.
    bytes_per_second: Spanned<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlashValues {
    /// Requests that it works on at the same time.
    queue_depth: Spanned<u64>,
    /// The times of reads, the three keys below.
    read: FlashTimesValues,
    /// The times of writes, the same keys.
    write: FlashTimesValues,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlashTimesValues {
    /// Time until the data of a request begin to come; those of several requests overlap.
    access_ns: Spanned<u64>,
    /// Time of a request during which no other one makes progress, besides its transfer.
    command_ns: Spanned<u64>,
    /// Its bandwidth.
    bytes_per_second: Spanned<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SwapValues {
    /// The name of the disk that the area lies on.
    disk: Spanned<String>,
    /// Where it begins there.
    offset_mib: Spanned<u64>,
    /// Its size.
    size_mib: Spanned<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CostValue {
    /// The time that it takes.
    ns: Spanned<f64>,
    /// Where the number is from.
    source: Spanned<String>,
}

impl CostValue {
    fn finish(self, name: &str, checks: &mut Checks<'_>) -> Cost {
        checks.some_text("source", &self.source);
        let ns = *self.ns.get_ref();
        // Up to a second: no primitive takes longer, and a number in another unit is caught.
        if !(0.0..=1e9).contains(&ns) {
            let message = format!("`{name}` costs {ns} ns, expected 0..=1000000000");
            checks.refuse(&self.ns.span(), message);
            return Cost { picoseconds: 0, source: String::new() };
        }
        Cost::of_ns(ns, self.source.into_inner())
    }
}

impl Values {
    fn finish(self, checks: &mut Checks<'_>) -> Machine {
        let costs = self.costs.finish(checks);
        let memory = &self.memory;
        checks.some_text("memory.source", &memory.source);
        let hole = checks.within(
            "device_hole_mib",
            &memory.device_hole_mib,
            0..DMA32_END_MIB - DMA_END_MIB,
            " (what lies below 4 GiB and is not in ZONE_DMA)",
        );
        let memmap =
            checks.within("memmap_bytes_per_page", &memory.memmap_bytes_per_page, 0..257, "");
        let low = checks.within("reserved_low_mib", &memory.reserved_low_mib, 0..4096, "");
        let high = checks.within("reserved_high_mib", &memory.reserved_high_mib, 0..1 << 20, "");
        let in_use = self.in_use.as_ref().map(|values| values.finish(checks));
        let nodes = nodes(&self.nodes, low + high, checks);
        let disks: Vec<DeviceSpec> = self.disks.iter().map(|disk| disk.finish(checks)).collect();
        for (n, disk) in self.disks.iter().enumerate() {
            if disks[..n].iter().any(|earlier| earlier.name == *disk.name.get_ref()) {
                let message = format!("there is a disk `{}` already", disk.name.get_ref());
                checks.refuse(&disk.name.span(), message);
            }
        }
        let swap: Vec<SwapArea> =
            self.swap.iter().filter_map(|swap| swap.finish(&disks, checks)).collect();
        let description = self.description.unwrap_or_else(|| {
            let Some(base) = checks.layers.base() else {
                checks.refuse(&(0..0), "missing field `description`");
                return String::new();
            };
            format!("{}, otherwise {}", shape(&nodes, &disks, &swap), base.name())
        });
        let sources = Sources {
            memory: memory.source.get_ref().clone(),
            in_use: self.in_use.as_ref().map(|values| values.source.get_ref().clone()),
            sched: self.sched.source.get_ref().clone(),
            disks: self.disks.iter().map(|disk| disk.source.get_ref().clone()).collect(),
        };
        Machine {
            name: checks.layers.file().name(),
            description,
            nodes,
            dma32_end_bytes: DMA32_END_MIB * MIB,
            device_hole_bytes: hole * MIB,
            reserved: Reserved {
                memmap_bytes_per_page: memmap,
                low_bytes: low * MIB,
                high_bytes: high * MIB,
            },
            in_use,
            disks,
            file_systems: self
                .disks
                .iter()
                .map(|disk| disk.filesystem.unwrap_or_default())
                .collect(),
            swap,
            sched: self.sched.finish(costs.context_switch.once(), checks),
            costs,
            sources,
        }
    }
}

/// A machine's shape in a line, in the words of the descriptions of those that come with the program.
fn shape(nodes: &[Node], disks: &[DeviceSpec], swap: &[SwapArea]) -> String {
    let size = |bytes: u64| {
        let mib = bytes / MIB;
        if mib > 0 && mib.is_multiple_of(1024) {
            format!("{} GiB", mib / 1024)
        } else {
            format!("{mib} MiB")
        }
    };
    let nr = nodes.len();
    let all_alike = nodes.iter().all(|node| {
        node.memory_bytes == nodes[0].memory_bytes && node.cpus.len() == nodes[0].cpus.len()
    });
    let mut parts = Vec::new();
    match nodes {
        [node] => {
            parts.push(format!("1 node x {}", size(node.memory_bytes)));
            parts.push(format!("{} CPUs", node.cpus.len()));
        }
        [node, ..] if all_alike => {
            parts.push(format!("{nr} nodes x {}", size(node.memory_bytes)));
            parts.push(format!("{nr} x {} CPUs", node.cpus.len()));
        }
        _ => {
            let sizes: Vec<String> = nodes.iter().map(|node| size(node.memory_bytes)).collect();
            let cpus: Vec<String> = nodes.iter().map(|node| node.cpus.len().to_string()).collect();
            parts.push(format!("{nr} nodes x {}", sizes.join(" + ")));
            parts.push(format!("{} CPUs", cpus.join(" + ")));
        }
    }
    parts.push(match disks.len() {
        0 => "no disk".to_owned(),
        1 => "a disk".to_owned(),
        nr => format!("{nr} disks"),
    });
    parts.push(match swap.iter().map(|area| area.bytes).sum() {
        0 => "no swap".to_owned(),
        bytes => format!("{} of swap", size(bytes)),
    });
    parts.join(", ")
}

/// The least memory in MiB that a node can have: the first one needs what is reserved and 32 MiB.
fn least_memory_mib(number: usize, reserved_mib: u64) -> u64 {
    if number == 0 { reserved_mib + 32 } else { NODE_MIN_MIB }
}

fn nodes(
    values: &Spanned<Vec<NodeValues>>,
    reserved_mib: u64,
    checks: &mut Checks<'_>,
) -> Vec<Node> {
    let nr = values.get_ref().len();
    if nr == 0 {
        checks.refuse(&values.span(), "no `[[node]]`, expected at least one");
    }
    let mut nodes = Vec::new();
    let mut next_cpu = 0;
    let mut total_mib = 0_u64;
    for (number, value) in values.get_ref().iter().enumerate() {
        // Up to 4 TiB: frame numbers have 32 bits, and some are kept for marks.
        let mib = checks.within("memory_mib", &value.memory_mib, NODE_MIN_MIB..1 << 22, " MiB");
        total_mib = total_mib.saturating_add(mib);
        let least = least_memory_mib(number, reserved_mib);
        // Of a value that was refused nothing more is said.
        if mib < least && mib == *value.memory_mib.get_ref() {
            let message = format!(
                "`memory_mib` is {mib}, expected at least {least}: the reserved memory and 32 MiB"
            );
            checks.refuse(&value.memory_mib.span(), message);
        }
        let cpus = checks.within("cpus", &value.cpus, 0..8193, " (NR_CPUS)") as u32;
        let from_default = |to| if to == number { LOCAL_DISTANCE } else { REMOTE_DISTANCE };
        let (distances, span) = match &value.distances {
            Some(given) => (given.get_ref().clone(), given.span()),
            None => ((0..nr).map(from_default).collect(), values.span()),
        };
        if distances.len() != nr {
            let message = format!(
                "`distances` has {} entries, expected {nr}: one to each node",
                distances.len()
            );
            checks.refuse(&span, message);
        }
        for (to, &distance) in distances.iter().enumerate() {
            let expected = if to == number {
                LOCAL_DISTANCE..=LOCAL_DISTANCE
            } else {
                LOCAL_DISTANCE + 1..=DISTANCE_MAX
            };
            if !expected.contains(&distance) {
                let message = format!(
                    "the distance of node {number} to node {to} is {distance}, expected {}..={}",
                    expected.start(),
                    expected.end()
                );
                checks.refuse(&span, message);
            }
        }
        nodes.push(Node { memory_bytes: mib * MIB, cpus: next_cpu..next_cpu + cpus, distances });
        next_cpu += cpus;
    }
    if nr > 0 && values.get_ref().iter().all(|value| *value.cpus.get_ref() == 0) {
        checks.refuse(&values.span(), "no node has a CPU, expected at least one");
    }
    if total_mib >= 1 << 22 {
        checks.refuse(&values.span(), format!("{total_mib} MiB in all, expected below 4 TiB"));
    }
    nodes
}

impl SchedValues {
    fn finish(&self, context_switch: Ns, checks: &mut Checks<'_>) -> SchedSpec {
        checks.some_text("sched.source", &self.source);
        // /proc/sys/kernel/sched_*_ns accept 100 us to 1 s, and 0 to 1 s (kernel/sysctl.c, v4.4).
        let range = 100_000..1_000_000_001;
        let wakeup = 0..1_000_000_001;
        SchedSpec {
            latency: Ns(checks.within("latency_ns", &self.latency_ns, range.clone(), " ns")),
            min_granularity: Ns(checks.within(
                "min_granularity_ns",
                &self.min_granularity_ns,
                range,
                " ns",
            )),
            wakeup_granularity: Ns(checks.within(
                "wakeup_granularity_ns",
                &self.wakeup_granularity_ns,
                wakeup,
                " ns",
            )),
            context_switch,
        }
    }
}

/// A second, beyond which no time of a disk lies.
const SECOND: u64 = 1_000_000_000;

impl DiskValues {
    fn finish(&self, checks: &mut Checks<'_>) -> DeviceSpec {
        checks.some_text("disk.source", &self.source);
        let name = self.name.get_ref();
        if name.is_empty() {
            checks.refuse(&self.name.span(), "a disk without a name");
        }
        let kind = match (&self.rotating, &self.flash) {
            (Some(rotating), None) => rotating.finish(checks),
            (None, Some(flash)) => flash.finish(checks),
            (rotating, _) => {
                let found = if rotating.is_some() { "both" } else { "neither" };
                let message = format!(
                    "disk `{name}` has {found} of `rotating` and `flash`, expected one of them"
                );
                checks.refuse(&self.name.span(), message);
                RotatingValues::nothing()
            }
        };
        let capacity = checks.within("capacity_gb", &self.capacity_gb, 1..1_000_001, " GB");
        let nr_requests = checks.within("nr_requests", &self.nr_requests, 4..65_537, "");
        let longest = checks.within("max_request_kib", &self.max_request_kib, 4..65_537, " KiB");
        DeviceSpec {
            name: name.clone(),
            capacity_bytes: capacity * 1_000_000_000,
            nr_requests: nr_requests as u32,
            max_request_bytes: longest * 1024,
            says_rotational: self.says_rotational.unwrap_or(self.rotating.is_some()),
            kind,
        }
    }
}

impl RotatingValues {
    fn finish(&self, checks: &mut Checks<'_>) -> DeviceKind {
        let turns =
            checks.within("turns_per_minute", &self.turns_per_minute, 1000..30_001, " a minute");
        let track = checks.within("seek_track_ns", &self.seek_track_ns, 0..SECOND, " ns");
        let average = checks.within("seek_average_ns", &self.seek_average_ns, 0..SECOND, " ns");
        if average < track {
            let message = format!(
                "`seek_average_ns` is {average}, expected at least `seek_track_ns` ({track})"
            );
            checks.refuse(&self.seek_average_ns.span(), message);
            return Self::nothing();
        }
        DeviceKind::Rotating {
            turn: Ns(60 * SECOND / turns),
            seek_track: Ns(track),
            seek_average: Ns(average),
            command: Ns(checks.within("command_ns", &self.command_ns, 0..SECOND, " ns")),
            bandwidth: bandwidth(&self.bytes_per_second, checks),
        }
    }

    /// Stands for a disk that was refused.
    fn nothing() -> DeviceKind {
        let (turn, seek) = (Ns(SECOND), Ns(0));
        DeviceKind::Rotating {
            turn,
            seek_track: seek,
            seek_average: seek,
            command: seek,
            bandwidth: SECOND,
        }
    }
}

impl FlashValues {
    fn finish(&self, checks: &mut Checks<'_>) -> DeviceKind {
        DeviceKind::Flash {
            queue_depth: checks.within("queue_depth", &self.queue_depth, 1..65_537, "") as u32,
            read: self.read.finish(checks),
            write: self.write.finish(checks),
        }
    }
}

impl FlashTimesValues {
    fn finish(&self, checks: &mut Checks<'_>) -> FlashTimes {
        FlashTimes {
            access: Ns(checks.within("access_ns", &self.access_ns, 0..SECOND, " ns")),
            command: Ns(checks.within("command_ns", &self.command_ns, 0..SECOND, " ns")),
            bandwidth: bandwidth(&self.bytes_per_second, checks),
        }
    }
}

/// From 100 kB to 1 TB a second: beyond, the unit is wrong.
fn bandwidth(value: &Spanned<u64>, checks: &mut Checks<'_>) -> u64 {
    checks.within("bytes_per_second", value, 100_000..1_000_000_000_001, " bytes")
}

impl SwapValues {
    fn finish(&self, disks: &[DeviceSpec], checks: &mut Checks<'_>) -> Option<SwapArea> {
        let name = self.disk.get_ref();
        let Some(device) = disks.iter().position(|disk| disk.name == *name) else {
            let known: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
            let expected = highorder_input::did_you_mean(name, &known).unwrap_or_else(|| {
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                format!("expected one of this machine: {known}")
            });
            let message = format!("no disk `{name}`, {expected}");
            checks.refuse(&self.disk.span(), message);
            return None;
        };
        let offset = checks.within("offset_mib", &self.offset_mib, 0..1 << 40, " MiB") * MIB;
        let bytes = checks.within("size_mib", &self.size_mib, SWAP_MIN_MIB..1 << 40, " MiB") * MIB;
        let capacity = disks[device].capacity_bytes;
        if offset + bytes > capacity {
            let message = format!(
                "the swap area ends at byte {}, expected at most {capacity}, where `{name}` ends",
                offset + bytes
            );
            checks.refuse(&self.size_mib.span(), message);
            return None;
        }
        Some(SwapArea { device: DeviceId(device as u32), offset_bytes: offset, bytes })
    }
}
