//! Machines: nodes, zones, CPUs, disks, swap, and what things cost, each with its source.
//!
//! Models: arch/x86/mm/init.c (`zone_sizes_init`): DMA below 16 MiB, DMA32 below 4 GiB, Normal above.
//! mm/mm_init.c: the map of pages (`struct page`) is taken from the top of each node, what the kernel
//! itself needs from the first node.
//! Departs: which pages the firmware keeps within a zone is not modelled, but for the first MiB. Visible
//! as: DMA32 has no holes below its end.

use crate::device::DeviceSpec;
use crate::sched::{DeviceId, Picks, SchedSpec, SimSpec};
use highorder_input::InputError;
use highorder_mm::types::{NodeId, Pfn, ZoneKind};
use highorder_mm::{NodeSpec, ZoneSpec};
use highorder_words::Ns;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Bytes of a base page.
pub const PAGE_BYTES: u64 = 4096;

const MIB: u64 = 1 << 20;
const PAGES_PER_MIB: u64 = MIB / PAGE_BYTES;
/// End of ZONE_DMA: arch/x86/include/asm/dma.h (`MAX_DMA_PFN`).
pub const DMA_END_MIB: u64 = 16;
/// End of ZONE_DMA32: arch/x86/include/asm/dma.h (`MAX_DMA32_PFN`).
pub const DMA32_END_MIB: u64 = 4096;
/// Zones of a scaled machine begin and end at multiples of the largest block: order 10, 4 MiB.
const ZONE_UNIT_BYTES: u64 = 4 * MIB;
/// The least memory of a node, in MiB: ZONE_DMA must be whole.
pub const NODE_MIN_MIB: u64 = 16;
/// The least swap area, in MiB.
pub const SWAP_MIN_MIB: u64 = 1;
/// Frames of ZONE_DMA that exist: all but frame 0, the 96 frames of video memory and firmware from
/// 640 KiB to 1 MiB, and the firmware's data page below them. As recorded in
/// tests/data/recordings/*/state0/zoneinfo.
const DMA_PRESENT_PAGES: u64 = 4096 - 1 - 96 - 1;
/// Frames of ZONE_DMA that are handed out: none of the first MiB (f1d4d47c5851, 5.13). As recorded there.
const DMA_MANAGED_PAGES: u64 = 4096 - PAGES_PER_MIB;
/// Distance of a node to itself: `LOCAL_DISTANCE`, include/linux/topology.h.
pub const LOCAL_DISTANCE: u32 = 10;
/// Distance to another node where the firmware says nothing: `REMOTE_DISTANCE`, include/linux/topology.h.
pub const REMOTE_DISTANCE: u32 = 20;

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
        // A division of 128 bits is a call, and is hardly ever needed.
        match self.picoseconds.checked_mul(count) {
            Some(picoseconds) => Ns(picoseconds / 1000),
            None => Ns((self.picoseconds as u128 * count as u128 / 1000) as u64),
        }
    }

    /// In thousandths of a nanosecond.
    #[must_use]
    pub const fn picoseconds(&self) -> u64 {
        self.picoseconds
    }
}

/// Defines the costs: the table and their list by name.
macro_rules! costs {
    ($($(#[doc = $doc:literal])+ $name:ident),* $(,)?) => {
        /// What primitive work costs, in time of one CPU that does nothing else meanwhile.
        ///
        /// Each may be something else than a [`Cost`] on its way to become one.
        #[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
        #[serde(deny_unknown_fields)]
        pub struct Costs<T = Cost> { $($(#[doc = $doc])+ pub $name: T),* }

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

        #[cfg(test)]
        impl Costs {
            /// Whatever is done takes this long.
            pub(crate) fn same(picoseconds: u64) -> Self {
                Self { $($name: Cost { picoseconds, source: String::new() }),* }
            }
        }

        impl<T> Costs<T> {
            /// What `of` makes of each, told its name.
            pub fn map<U>(self, mut of: impl FnMut(&'static str, T) -> U) -> Costs<U> {
                Costs { $($name: of(stringify!($name), self.$name)),* }
            }
        }
    };
}

costs! {
    /// Zeroing a base page of 4 KiB that no cache holds.
    clear_base_page,
    /// Filling a base page that is in the CPU's own caches: the program's own write to all of a page that its fault has just
    /// cleared.
    fill_cached_page,
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
    /// before.
    cache_read,
    /// A look at a pageblock of a walk over all pageblocks: a load of a `struct page` at one end of it, or of those at both
    /// ends, which do not wait for each other.
    block_look,
    /// What an access costs more when its translation is not in the TLB, for base pages, the page table being
    /// in the CPU's own caches.
    tlb_miss_base,
    /// The same for huge pages.
    tlb_miss_huge,
    /// Taking a page off a list or putting one on, its `struct page` not being in a cache.
    list_op,
    /// What reclaim does with a page that it frees, besides list operations: locking it, taking it out of its file.
    /// Writing a page to its place in a file takes as much, and so does a page that goes with its file's end.
    reclaim_page,
    /// Asking all shrinkers of a node for objects once, of which none gives any: what a pass of reclaim over empty lists
    /// takes.
    shrinkers,
    /// Finding the entries that map a page, of which there is one, besides the step to it: locks, the search for
    /// the mapping.
    rmap_walk,
    /// What moving a page takes besides walks to its entries, list operations and the copy: locking both pages, putting one in
    /// the place of the other.
    move_page,
    /// Looking at the next `struct page` in a row, or at one near the last, or at one used a moment ago.
    pfn_scan,
    /// Finding a page table entry from an address in software, four levels.
    page_table_walk,
    /// Taking a lock that nobody holds, and releasing it.
    lock_pair,
    /// Flushing one translation on the CPU itself.
    tlb_flush_local,
    /// Making one other CPU flush a translation: an interrupt and its acknowledgement.
    tlb_flush_remote,
    /// Making one other CPU flush all it has, of which many may be of use to it.
    tlb_flush_all_remote,
    /// Switching a CPU from one task to another.
    context_switch,
    /// CPU time to submit a transfer to a device and take its completion.
    block_request,
    /// What writing a page to swap takes besides unmapping it and its part of a transfer: its slot, its place in the
    /// swap cache, beginning and ending to write.
    swap_out,
    /// What reading a page from swap takes besides its fault, filling it and its part of a transfer.
    swap_in,
    /// Making a page one of a file that is read or written: its place among the file's pages and on a list, what is kept
    /// of where it lies on the disk.
    cache_page,
    /// What a call that writes to a page of a file takes besides the copy: beginning and ending, the page's marks.
    write_page,
    /// A change of what a file system keeps of a file, with its part of the journal's work: making the file, removing it,
    /// finding room for a piece of it, giving that back.
    metadata_change,
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
    /// Of the host, if the CPUs are emulated on one.
    pub host: Option<String>,
    /// Of each disk.
    pub disks: Vec<String>,
}

impl Machine {
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
    pub fn cpu_nodes(&self) -> Vec<NodeId> {
        let nodes = NodeId::all(self.nodes.len()).zip(&self.nodes);
        nodes.flat_map(|(id, node)| node.cpus.clone().map(move |_| id)).collect()
    }

    /// What a simulation of it needs.
    #[must_use]
    pub fn sim_spec(&self) -> SimSpec {
        SimSpec {
            cpu_nodes: self.cpu_nodes(),
            sched: self.sched,
            picks: Picks::default(),
            devices: self.disks.clone(),
        }
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

/// The least memory in MiB that a node can have: the first one needs what is reserved and 32 MiB.
pub const fn least_memory_mib(number: usize, reserved_mib: u64) -> u64 {
    if number == 0 { reserved_mib + 32 } else { NODE_MIN_MIB }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_of_a_cost_are_rounded_down_once_however_many() {
        let cost = Cost::of_ns(1.999, "");
        assert_eq!(cost.times(2), Ns(3));
        // The last whose picoseconds are a number of 64 bits, and the first whose are not.
        let most = u64::MAX / 1999;
        for count in [most, most + 1, 5_000_000_000_000_000_000] {
            assert_eq!(cost.times(count).0, count * 2 - count.div_ceil(1000), "{count}");
        }
    }
}
