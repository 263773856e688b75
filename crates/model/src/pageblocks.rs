//! What the model's pageblocks hold. It only looks: nothing in the machine changes.
//!
//! Departs: of memory that was in use before the model began only the mobility is known. Visible as: in a machine
//! restored from a snapshot the type that memory was asked for decides.

use highorder_mm::frame::{PageFlags, State};
use highorder_mm::kernel_use::KernelUse;
use highorder_mm::types::Migratetype;
use highorder_mm::zone::ZoneId;
use highorder_mm::{Order, Pfn};
use highorder_record::PageblockUse;
use highorder_sim::kernel::Kernel;

/// Whether memory can be moved or reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mobility {
    Movable,
    Reclaimable,
    Unmovable,
}

/// Pages of one pageblock, or of the part of it that lies in the zone.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    movable: u64,
    reclaimable: u64,
    unmovable: u64,
    /// Movable pages in blocks larger than a page, which need as large a block to go to.
    movable_large: u64,
    /// In free blocks.
    free: u64,
    /// On per-CPU lists.
    per_cpu: u64,
}

impl Held {
    const fn is_mixed(&self) -> bool {
        (self.movable > 0) as u8 + (self.reclaimable > 0) as u8 + (self.unmovable > 0) as u8 > 1
    }

    /// Whether moving base pages would make it free. Pages that do not exist or that nobody manages stay.
    const fn could_be_emptied(&self, whole: u64) -> bool {
        self.movable > 0
            && self.movable_large == 0
            && self.movable + self.free + self.per_cpu == whole
    }
}

/// What a zone's pageblocks hold; `highorder_record::end_state` says what the words mean.
pub(super) fn uses(kernel: &Kernel, zone: ZoneId) -> PageblockUse {
    let memory = &kernel.memory;
    let zone = &memory.zones[zone.index()];
    let frames = memory.frames();
    let block_order = memory.policy.freelist.pageblock_order;
    let whole = u64::from(block_order.pages());
    let (mut found, mut room) = (PageblockUse::default(), 0);
    let mut start = zone.start;
    while start < zone.end {
        let end = Pfn((start.align_down(block_order).0 + block_order.pages()).min(zone.end.0));
        let mut held = Held::default();
        let mut pfn = start;
        while pfn < end {
            let (state, order) = (frames.state(pfn), frames.order(pfn));
            let pages = match state {
                State::Hole | State::Reserved => 1,
                _ => order.pages(),
            };
            let here = u64::from(pages);
            match state {
                State::Hole | State::Reserved => {}
                State::Free => held.free += here,
                State::Pcp => held.per_cpu += here,
                State::Allocated | State::Isolated => match mobility(kernel, pfn) {
                    Mobility::Movable => {
                        held.movable += here;
                        held.movable_large += if order > Order(0) { here } else { 0 };
                    }
                    Mobility::Reclaimable => held.reclaimable += here,
                    Mobility::Unmovable => held.unmovable += here,
                },
                State::Inner => panic!("{pfn} lies in no block"),
            }
            pfn.0 += pages;
        }
        found.mixed += u64::from(held.is_mixed());
        found.could_be_emptied += u64::from(held.could_be_emptied(whole));
        if held.free < whole {
            room += held.free + held.per_cpu;
        }
        // A block of several pageblocks is one use of all of them.
        start = pfn;
    }
    found.could_be_emptied = found.could_be_emptied.min(room / whole);
    found
}

/// Of the block in use that begins at `head`: as the map of memory has it.
fn mobility(kernel: &Kernel, head: Pfn) -> Mobility {
    let memory = &kernel.memory;
    match memory.kernel_use(head) {
        Some(KernelUse::Slab(cache)) if cache.is_reclaimable(&memory.policy.slab) => {
            return Mobility::Reclaimable;
        }
        Some(KernelUse::Hugetlb) if kernel.flows.hugetlb.movable => return Mobility::Movable,
        Some(KernelUse::Unknown) | None => {}
        Some(_) => return Mobility::Unmovable,
    }
    let frames = memory.frames();
    if frames.has(head, PageFlags::PINNED) {
        let is_buffer = memory.file_page_at(head).is_some_and(|(file, _)| kernel.is_metadata(file));
        return if is_buffer { Mobility::Movable } else { Mobility::Unmovable };
    }
    let is_users = PageFlags::ANON
        | PageFlags::LRU
        | PageFlags::BATCHED
        | PageFlags::LOCKED
        | PageFlags::WRITEBACK;
    if frames.has(head, is_users) || frames.is_movable(head) {
        return Mobility::Movable;
    }
    match frames.migratetype(head) {
        Migratetype::Reclaimable => Mobility::Reclaimable,
        _ => Mobility::Unmovable,
    }
}
