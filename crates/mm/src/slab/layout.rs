//! How many objects make a slab, and of which order it is.

use super::CacheId;
use crate::policy::{CpuPartial, Slab as SlabPolicy, SlabAllocator, SlabOrder};
use crate::types::Order;

/// Bytes of a base page.
const PAGE_BYTES: u32 = 4096;
/// The largest order SLUB likes (`PAGE_ALLOC_COSTLY_ORDER`).
const SLUB_MAX_ORDER: u8 = 3;
/// The largest order SLAB chooses for its objects' sake (`slab_break_gfp_order` with more than 32 MiB).
const SLAB_BREAK_ORDER: u8 = 1;
/// Bytes at a slab's end that SLAB keeps for each object (`freelist_idx_t`).
const SLAB_INDEX_BYTES: u32 = 1;

/// What follows from an object's size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Bytes of an object.
    pub bytes: u32,
    /// The order of slab that is asked for first.
    pub order: Order,
    /// The least order that holds an object.
    pub min_order: Order,
    /// Partial slabs that a node keeps even if they are empty (SLUB).
    pub min_partial: u32,
    /// How much a CPU may keep in partial slabs (SLUB).
    pub cpu_partial: CpuLimit,
    /// Objects of a CPU's array (SLAB; `limit`).
    pub array: u32,
    /// Bytes of a slab that are no object, for each object.
    index_bytes: u32,
}

/// How much a CPU may keep in partial slabs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CpuLimit {
    /// Free objects.
    Objects(u32),
    /// Slabs.
    Slabs(u32),
}

/// The least order of block that holds this many bytes (`get_order`).
const fn order_for(bytes: u32) -> u8 {
    let pages = bytes.div_ceil(PAGE_BYTES);
    pages.next_power_of_two().trailing_zeros() as u8
}

const fn slab_bytes(order: u8) -> u32 {
    PAGE_BYTES << order
}

impl Layout {
    /// The layout of a cache on a machine with this many CPUs.
    #[must_use]
    pub fn new(policy: &SlabPolicy, id: CacheId, bytes: u32, nr_cpus: u32) -> Self {
        let least = order_for(bytes);
        let (order, min_order, index_bytes) = match policy.allocator {
            SlabAllocator::Slub => (slub_order(policy.order, bytes, nr_cpus), least, 0),
            SlabAllocator::Slab => {
                // Objects of an eighth of a page and more have their indices elsewhere.
                let index_bytes = if bytes >= PAGE_BYTES / 8 { 0 } else { SLAB_INDEX_BYTES };
                let order = slab_order(bytes, index_bytes, id.is_reclaimable(policy));
                (order, order, index_bytes)
            }
        };
        let order = order.max(least);
        let mut layout = Self {
            bytes,
            order: Order(order),
            min_order: Order(min_order),
            // set_min_partial: MIN_PARTIAL and MAX_PARTIAL.
            min_partial: (bytes.ilog2() / 2).clamp(5, 10),
            cpu_partial: CpuLimit::Objects(0),
            array: array_limit(bytes),
            index_bytes,
        };
        let per_slab = layout.objects(layout.order);
        layout.cpu_partial = match policy.cpu_partial {
            CpuPartial::Objects => CpuLimit::Objects(by_size(bytes, [2, 6, 13, 30])),
            CpuPartial::Slabs => {
                let objects = by_size(bytes, [6, 24, 52, 120]);
                CpuLimit::Slabs((objects * 2).div_ceil(per_slab))
            }
        };
        layout
    }

    /// Objects of a slab of this order.
    #[must_use]
    pub const fn objects(&self, order: Order) -> u32 {
        slab_bytes(order.0) / (self.bytes + self.index_bytes)
    }

    /// Objects that move between a CPU's array and its node at a time (`batchcount`).
    #[must_use]
    pub const fn batch(&self) -> u32 {
        self.array.div_ceil(2)
    }
}

/// By size: a page and more, a KiB, 256 bytes, less (`set_cpu_partial`).
const fn by_size(bytes: u32, values: [u32; 4]) -> u32 {
    match bytes {
        PAGE_BYTES.. => values[0],
        1024.. => values[1],
        256.. => values[2],
        _ => values[3],
    }
}

/// Models: `calculate_order`, `calc_slab_order`, mm/slub.c, v6.12 and v6.1.
#[doc(alias = "calc_slab_order")]
#[doc(alias = "calculate_order")]
fn slub_order(rule: SlabOrder, bytes: u32, nr_cpus: u32) -> u8 {
    let max_objects = slab_bytes(SLUB_MAX_ORDER) / bytes;
    // The larger a machine, the more objects should come from one slab: 4 * (fls(CPUs) + 1).
    let wanted = 4 * (nr_cpus.max(1).ilog2() + 2);
    let mut wanted = wanted.min(max_objects);
    let fitting = |objects: u32, fraction: u32| {
        let from = order_for(objects * bytes);
        (from..=SLUB_MAX_ORDER).find(|&order| {
            let size = slab_bytes(order);
            size % bytes <= size / fraction
        })
    };
    match rule {
        SlabOrder::MoreWaste => {
            for fraction in [16, 8, 4, 2] {
                if let Some(order) = fitting(wanted.max(1), fraction) {
                    return order;
                }
            }
        }
        SlabOrder::FewerObjects => {
            while wanted > 1 {
                for fraction in [16, 8, 4] {
                    if let Some(order) = fitting(wanted, fraction) {
                        return order;
                    }
                }
                wanted -= 1;
            }
            if let Some(order) = fitting(1, 1) {
                return order;
            }
        }
    }
    order_for(bytes)
}

/// Models: `calculate_slab_order`, mm/slab.c, v4.4.
#[doc(alias = "calculate_slab_order")]
fn slab_order(bytes: u32, index_bytes: u32, reclaim_account: bool) -> u8 {
    let mut chosen = 0;
    for order in 0..=crate::types::MAX_PAGE_ORDER {
        let objects = slab_bytes(order) / (bytes + index_bytes);
        if objects == 0 {
            continue;
        }
        chosen = order;
        let left_over = slab_bytes(order) - objects * (bytes + index_bytes);
        if reclaim_account || order >= SLAB_BREAK_ORDER || left_over * 8 <= slab_bytes(order) {
            break;
        }
    }
    chosen
}

/// Objects of a CPU's array.
///
/// Models: `enable_cpucache`, mm/slab.c, v4.4.
#[doc(alias = "enable_cpucache")]
const fn array_limit(bytes: u32) -> u32 {
    match bytes {
        131_073.. => 1,
        4097.. => 8,
        1025.. => 24,
        257.. => 54,
        _ => 120,
    }
}
