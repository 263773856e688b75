//! A second allocator, written from the kernel's documents in the most obvious way: a flag per page,
//! free blocks in plain vectors (first element = head), everything found by looking through them.
//!
//! It shares the vocabulary of `highorder_mm` (policies, flags, requests) and none of its code, so that
//! where both agree two readings of the kernel agree.

use highorder_mm::fallback::Extfrag;
use highorder_mm::frame::End;
use highorder_mm::gfp::{AllocFlags, Gfp};
use highorder_mm::policy::{
    BoostLimit, BoostWakes, FallbackRule, FragmentAvoidance, HighatomicReserve, IsolateMark,
    ListType, PcpDrain, PcpHigh, PcpOrders, Placement, Policy, Urgency, WatermarkCheck,
    ZonelistOrder,
};
use highorder_mm::types::{
    Migratetype, NR_MIGRATETYPES, NR_PAGE_ORDERS, NodeId, Order, Pfn, ZoneKind,
};
use highorder_mm::watermark::Mark;
use highorder_mm::zone::ZoneId;
use highorder_mm::{Machine, alloc::Request};

use Migratetype::{HighAtomic, Isolate, Movable, Reclaimable, Reserve, Unmovable};

/// What one page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Page {
    /// Not there.
    Absent,
    /// Never given to the allocator.
    Reserved,
    /// In a free block.
    Free,
    /// On a CPU's list.
    OnCpu,
    /// Taken for private use.
    Isolated,
    /// In use, and whether migration could move it.
    Used { movable: bool },
}

/// A block on a CPU's list, with the type it was noted with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kept {
    pub(crate) pfn: u32,
    pub(crate) order: u8,
    pub(crate) noted: Migratetype,
}

/// One CPU's lists of one zone.
#[derive(Clone, Debug)]
pub(crate) struct Cpu {
    pub(crate) lists: Vec<Vec<Kept>>,
    pub(crate) high: i64,
    pub(crate) high_min: i64,
    pub(crate) high_max: i64,
    pub(crate) batch: i64,
    pub(crate) factor: u32,
    pub(crate) free_count: i64,
    pub(crate) freed_high_order_last: bool,
}

impl Cpu {
    /// Pages on all lists.
    pub(crate) fn count(&self) -> i64 {
        self.lists.iter().flatten().map(|kept| 1i64 << kept.order).sum()
    }
}

/// One zone.
#[derive(Clone, Debug)]
pub(crate) struct Zone {
    pub(crate) node: NodeId,
    pub(crate) kind: ZoneKind,
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) managed: u64,
    /// By order, then type; element 0 is the head.
    pub(crate) free: Vec<Vec<Vec<u32>>>,
    /// min, low, high, promo.
    pub(crate) marks: [u64; 4],
    pub(crate) boost: u64,
    pub(crate) lowmem_reserve: [u64; 4],
    pub(crate) reserved_highatomic: u64,
    pub(crate) boosted: bool,
    pub(crate) mixed: Vec<u32>,
    pub(crate) below_high: bool,
    pub(crate) reclaim_active: bool,
    /// Pages left of its fair share, and whether it was seen used up.
    pub(crate) batch: i64,
    pub(crate) depleted: bool,
    pub(crate) cpus: Vec<Cpu>,
}

impl Zone {
    fn spans(&self, pfn: u32) -> bool {
        self.start <= pfn && pfn < self.end
    }

    /// Free pages of one type.
    pub(crate) fn free_of(&self, migratetype: Migratetype) -> u64 {
        (0..NR_PAGE_ORDERS)
            .map(|order| (self.free[order][migratetype.index()].len() as u64) << order)
            .sum()
    }

    /// Free pages that count.
    pub(crate) fn nr_free_pages(&self) -> u64 {
        Migratetype::ALL.iter().filter(|&&mt| mt != Isolate).map(|&mt| self.free_of(mt)).sum()
    }
}

/// The naive machine.
#[derive(Clone, Debug)]
pub(crate) struct Naive {
    pub(crate) machine: Machine,
    pub(crate) policy: Policy,
    pub(crate) pages: Vec<Page>,
    pub(crate) block_types: Vec<Migratetype>,
    pub(crate) zones: Vec<Zone>,
    pub(crate) extfrag: Vec<Extfrag>,
}

fn mergeable(migratetype: Migratetype) -> bool {
    [Unmovable, Movable, Reclaimable, Reserve].contains(&migratetype)
}

fn fallback_types(wanted: Migratetype) -> [Migratetype; 2] {
    if wanted == Unmovable {
        [Reclaimable, Movable]
    } else if wanted == Movable {
        [Reclaimable, Unmovable]
    } else {
        [Unmovable, Movable]
    }
}

/// Which of the 14 lists (three types for each of orders 0-3, then two for huge pages).
pub(crate) fn list_number(order: u8, migratetype: Migratetype) -> usize {
    let like_movable = migratetype != Unmovable && migratetype != Reclaimable;
    match (order > 3, like_movable) {
        (true, false) => 12,
        (true, true) => 13,
        (false, true) => order as usize * 3 + 1,
        (false, false) => order as usize * 3 + migratetype.index(),
    }
}

/// Pages moved at once before "at least one" is applied.
fn raw_batch(managed: u64, limit: u64) -> i64 {
    let mut batch = (managed / 1024).min(limit) / 4;
    if batch == 0 {
        batch = 1;
    }
    let mut power = 1;
    while power * 2 <= batch + batch / 2 {
        power *= 2;
    }
    power as i64 - 1
}

impl Naive {
    pub(crate) fn new(machine: Machine, policy: Policy) -> Self {
        let mut pages = vec![Page::Absent; machine.nr_frames as usize];
        let mut zones = Vec::new();
        for (node, spec) in machine.nodes.iter().enumerate() {
            for zone in &spec.zones {
                let end = zone.start.0 + zone.spanned_pages;
                for pfn in zone.start.0..end {
                    pages[pfn as usize] = Page::Reserved;
                }
                let cpu = Cpu {
                    lists: vec![Vec::new(); 14],
                    high: 0,
                    high_min: 0,
                    high_max: 0,
                    batch: 1,
                    factor: 0,
                    free_count: 0,
                    freed_high_order_last: false,
                };
                zones.push(Zone {
                    node: NodeId(node as u32),
                    kind: zone.kind,
                    start: zone.start.0,
                    end,
                    managed: zone.managed_pages,
                    free: vec![vec![Vec::new(); NR_MIGRATETYPES]; NR_PAGE_ORDERS],
                    marks: [0; 4],
                    boost: 0,
                    lowmem_reserve: [0; 4],
                    reserved_highatomic: 0,
                    boosted: false,
                    mixed: Vec::new(),
                    below_high: false,
                    reclaim_active: false,
                    batch: zone.managed_pages as i64,
                    depleted: false,
                    cpus: vec![cpu; machine.cpu_nodes.len()],
                });
            }
        }
        let first_type = if policy.freelist.mobility_grouping { Movable } else { Unmovable };
        let nr_blocks = machine.nr_frames.div_ceil(1 << policy.freelist.pageblock_order.0);
        let block_types = vec![first_type; nr_blocks as usize];
        Self { machine, policy, pages, block_types, zones, extfrag: Vec::new() }
    }

    // Geometry.

    fn max_order(&self) -> u8 {
        self.policy.freelist.max_order.0
    }

    fn block_order(&self) -> u8 {
        self.policy.freelist.pageblock_order.0
    }

    fn block_pages(&self) -> u32 {
        1 << self.block_order()
    }

    pub(crate) fn zone_of(&self, pfn: u32) -> usize {
        self.zones.iter().position(|zone| zone.spans(pfn)).expect("a page of some zone")
    }

    pub(crate) fn block_type(&self, pfn: u32) -> Migratetype {
        self.block_types[(pfn / self.block_pages()) as usize]
    }

    fn set_block_type(&mut self, pfn: u32, migratetype: Migratetype) {
        let mobile = mergeable(migratetype);
        let block = (pfn / self.block_pages()) as usize;
        self.block_types[block] =
            if mobile && !self.policy.freelist.mobility_grouping { Unmovable } else { migratetype };
    }

    fn set_types_under(&mut self, pfn: u32, order: u8, migratetype: Migratetype) {
        let mut at = pfn;
        while at < pfn + (1 << order) {
            self.set_block_type(at, migratetype);
            at += self.block_pages();
        }
    }

    fn mark(&mut self, pfn: u32, order: u8, page: Page) {
        for at in pfn..pfn + (1 << order) {
            self.pages[at as usize] = page;
        }
    }

    // Free lists.

    /// The list that holds exactly this block, if it is free.
    pub(crate) fn list_of_free_block(
        &self,
        zone: usize,
        pfn: u32,
        order: u8,
    ) -> Option<Migratetype> {
        Migratetype::ALL
            .into_iter()
            .find(|mt| self.zones[zone].free[order as usize][mt.index()].contains(&pfn))
    }

    fn put(&mut self, zone: usize, pfn: u32, order: u8, migratetype: Migratetype, end: End) {
        self.mark(pfn, order, Page::Free);
        let list = &mut self.zones[zone].free[order as usize][migratetype.index()];
        match end {
            End::Head => list.insert(0, pfn),
            End::Tail => list.push(pfn),
        }
    }

    fn remove(&mut self, zone: usize, pfn: u32, order: u8) -> Migratetype {
        let migratetype = self.list_of_free_block(zone, pfn, order).expect("a free block");
        self.zones[zone].free[order as usize][migratetype.index()].retain(|&p| p != pfn);
        migratetype
    }

    fn move_block(&mut self, zone: usize, pfn: u32, order: u8, to: Migratetype, end: End) {
        self.remove(zone, pfn, order);
        self.put(zone, pfn, order, to, end);
    }

    /// Frees a block: merge while there is a free buddy, then head or tail.
    fn give_back(
        &mut self,
        zone: usize,
        pfn: u32,
        order: u8,
        migratetype: Migratetype,
        tail: bool,
    ) {
        let (mut pfn, mut order) = (pfn, order);
        while order < self.max_order() {
            let buddy = pfn ^ (1 << order);
            let Some(list) = self.list_of_free_block(zone, buddy, order) else { break };
            if order >= self.block_order() {
                let other = self.block_type(buddy);
                if other != migratetype && !(mergeable(other) && mergeable(migratetype)) {
                    break;
                }
            }
            self.remove(zone, buddy, order);
            let hygiene = self.policy.freelist.list_type == ListType::Pageblock;
            if hygiene && list != migratetype {
                self.set_block_type(buddy, migratetype);
            }
            pfn = pfn.min(buddy);
            order += 1;
        }
        let likely =
            self.policy.freelist.merge == Placement::LookAhead && order < self.max_order() - 1 && {
                let parent = pfn & !(1 << order);
                let aunt = parent ^ (1 << (order + 1));
                self.list_of_free_block(zone, aunt, order + 1).is_some()
            };
        let end = if tail || likely { End::Tail } else { End::Head };
        self.put(zone, pfn, order, migratetype, end);
    }

    /// Frees a block past the CPU lists, by the type of its pageblock.
    fn give_back_directly(&mut self, zone: usize, pfn: u32, order: u8, tail: bool) {
        if self.policy.freelist.split_large_frees && order > self.block_order() {
            let mut at = pfn;
            while at < pfn + (1 << order) {
                self.give_back(zone, at, self.block_order(), self.block_type(at), tail);
                at += self.block_pages();
            }
        } else {
            self.give_back(zone, pfn, order, self.block_type(pfn), tail);
        }
    }

    /// Hands out the start of a free block; upper halves go to list heads.
    fn cut(&mut self, zone: usize, pfn: u32, found: u8, order: u8, rest: Migratetype) -> u32 {
        self.remove(zone, pfn, found);
        let mut at = found;
        while at > order {
            at -= 1;
            self.put(zone, pfn + (1 << at), at, rest, End::Head);
        }
        self.mark(pfn, order, Page::Used { movable: false });
        pfn
    }

    fn take_smallest(&mut self, zone: usize, order: u8, migratetype: Migratetype) -> Option<u32> {
        for found in order..=self.max_order() {
            if let Some(&pfn) = self.zones[zone].free[found as usize][migratetype.index()].first() {
                return Some(self.cut(zone, pfn, found, order, migratetype));
            }
        }
        None
    }

    pub(crate) fn release_boot_memory(&mut self, from: u32, to: u32) {
        let mut pfn = from;
        while pfn < to {
            let mut order = self.max_order();
            while !pfn.is_multiple_of(1 << order) || pfn + (1 << order) > to {
                order -= 1;
            }
            let zone = self.zone_of(pfn);
            self.give_back_directly(zone, pfn, order, self.policy.freelist.boot_to_tail);
            pfn += 1 << order;
        }
    }

    // Pageblocks.

    /// Where moved pages go in this kernel.
    fn moved_end(&self) -> End {
        self.policy.freelist.moved_to
    }

    /// The part of `pfn`'s pageblock that may be moved. Kernels with list hygiene want all of it in the
    /// zone. Older ones give up if its end is outside, and begin at `pfn` if its start is.
    fn movable_range(&self, zone: usize, pfn: u32) -> Option<(u32, u32)> {
        let start = pfn - pfn % self.block_pages();
        let end = start + self.block_pages();
        let zone = &self.zones[zone];
        if !zone.spans(end - 1) {
            None
        } else if zone.spans(start) {
            Some((start, end))
        } else if self.policy.freelist.list_type == ListType::Pageblock {
            None
        } else {
            Some((pfn, end))
        }
    }

    /// Moves the free blocks of a range, ascending. Returns their pages.
    fn move_range(&mut self, zone: usize, range: (u32, u32), to: Migratetype, end: End) -> u32 {
        let mut moved = 0;
        let mut pfn = range.0;
        while pfn < range.1 {
            let order =
                (0..=self.max_order()).find(|&o| self.list_of_free_block(zone, pfn, o).is_some());
            if let Some(order) = order {
                self.move_block(zone, pfn, order, to, end);
                moved += 1 << order;
                pfn += 1 << order;
            } else {
                pfn += 1;
            }
        }
        moved
    }

    fn count_range(&self, range: (u32, u32)) -> (u32, u32) {
        let pages = &self.pages[range.0 as usize..range.1 as usize];
        let free = pages.iter().filter(|&&p| p == Page::Free).count();
        let movable = pages.iter().filter(|&&p| p == Page::Used { movable: true }).count();
        (free as u32, movable as u32)
    }

    // Fallback.

    fn first_fallback(
        &self,
        zone: usize,
        order: u8,
        wanted: Migratetype,
    ) -> Option<(Migratetype, u32)> {
        let lists = &self.zones[zone].free[order as usize];
        fallback_types(wanted)
            .into_iter()
            .find_map(|mt| lists[mt.index()].first().map(|&pfn| (mt, pfn)))
    }

    fn may_take(&self, found: u8, wanted: Migratetype) -> bool {
        found >= self.policy.fallback.movable_min_order.0 || wanted != Movable
    }

    fn is_enough(&self, free: u32, movable: u32, wanted: Migratetype, was: Migratetype) -> bool {
        let alike = if wanted == Movable {
            movable
        } else if was == Movable {
            self.block_pages() - free - movable
        } else {
            0
        };
        free + alike >= self.policy.fallback.claim_min_pages
            || !self.policy.freelist.mobility_grouping
    }

    fn boost(&mut self, zone: usize, flags: AllocFlags) {
        let factor = u64::from(self.policy.watermark.boost_factor);
        let block = u64::from(self.block_pages());
        let zone = &mut self.zones[zone];
        let watermark = &self.policy.watermark;
        let base = match watermark.boost_limit {
            BoostLimit::High => zone.marks[2],
            BoostLimit::BoostedHigh => zone.marks[2] + zone.boost,
        };
        let most = base * factor / 10_000;
        let too_small = zone.managed < 4 * block && !watermark.boost_small_zones;
        if factor == 0 || too_small || most == 0 {
            return;
        }
        zone.boost = (zone.boost + block).min(most.max(block));
        zone.boosted |=
            flags.intersects(AllocFlags::KSWAPD) || watermark.boost_wakes == BoostWakes::Always;
    }

    fn note(
        &mut self,
        zone: usize,
        pfn: u32,
        (order, found): (u8, u8),
        (wanted, from, rest): (Migratetype, Migratetype, Migratetype),
    ) {
        let change_ownership = self.block_type(pfn) == wanted;
        self.extfrag.push(Extfrag {
            zone: ZoneId(zone as u8),
            pfn: Pfn(pfn),
            alloc_order: Order(order),
            fallback_order: Order(found),
            alloc_migratetype: wanted,
            fallback_migratetype: from,
            rest_migratetype: rest,
            change_ownership,
        });
    }

    fn lowest_fallback_order(&self, order: u8, flags: AllocFlags) -> u8 {
        if flags.intersects(AllocFlags::NOFRAGMENT) { order.max(self.block_order()) } else { order }
    }

    fn claim(
        &mut self,
        zone: usize,
        order: u8,
        wanted: Migratetype,
        flags: AllocFlags,
    ) -> Option<u32> {
        let lowest = self.lowest_fallback_order(order, flags);
        for found in (lowest..=self.max_order()).rev() {
            if !self.may_take(found, wanted) {
                return None;
            }
            let Some((from, pfn)) = self.first_fallback(zone, found, wanted) else { continue };
            let taken = if found >= self.block_order() {
                self.set_types_under(pfn, found, wanted);
                Some(self.cut(zone, pfn, found, order, wanted))
            } else {
                self.boost(zone, flags);
                self.movable_range(zone, pfn).and_then(|range| {
                    let (free, movable) = self.count_range(range);
                    if !self.is_enough(free, movable, wanted, from) {
                        return None;
                    }
                    self.move_range(zone, range, wanted, End::Tail);
                    self.set_block_type(pfn, wanted);
                    self.take_smallest(zone, order, wanted)
                })
            };
            if let Some(taken) = taken {
                self.note(zone, taken, (order, found), (wanted, from, wanted));
                return Some(taken);
            }
        }
        None
    }

    fn steal(&mut self, zone: usize, order: u8, wanted: Migratetype) -> Option<u32> {
        for found in order..=self.max_order() {
            if let Some((from, pfn)) = self.first_fallback(zone, found, wanted) {
                self.cut(zone, pfn, found, order, from);
                self.note(zone, pfn, (order, found), (wanted, from, from));
                return Some(pfn);
            }
        }
        None
    }

    /// 4.12 to 6.14: something moves to the wanted type's lists. Returns whether.
    fn move_for_retry(
        &mut self,
        zone: usize,
        order: u8,
        wanted: Migratetype,
        flags: AllocFlags,
    ) -> bool {
        let lowest = self.lowest_fallback_order(order, flags);
        let largest = (lowest..=self.max_order())
            .rev()
            .find(|&found| self.first_fallback(zone, found, wanted).is_some());
        let Some(mut found) = largest else { return false };
        if !self.may_take(found, wanted) && found > order {
            found = (order..=self.max_order())
                .find(|&o| self.first_fallback(zone, o, wanted).is_some())
                .expect("the largest exists");
        }
        let (from, pfn) = self.first_fallback(zone, found, wanted).expect("just seen");
        if !self.steal_suitable(zone, pfn, found, wanted, flags) {
            return false;
        }
        self.note(zone, pfn, (order, found), (wanted, from, wanted));
        true
    }

    fn steal_suitable(
        &mut self,
        zone: usize,
        pfn: u32,
        found: u8,
        wanted: Migratetype,
        flags: AllocFlags,
    ) -> bool {
        let end = self.moved_end();
        let was = self.block_type(pfn);
        let mut whole = false;
        if was == HighAtomic {
            // Only this piece.
        } else if found >= self.block_order() {
            self.set_types_under(pfn, found, wanted);
        } else {
            whole = self.may_take(found, wanted);
            if whole || self.policy.watermark.boost_single_steals {
                self.boost(zone, flags);
            }
            if wanted == Movable || was == Movable {
                self.remember_mixed(zone, pfn);
            }
            let waits = flags.intersects(AllocFlags::FRAGMENT_STALL);
            if waits && found < self.policy.fallback.stall_order.0 {
                return false;
            }
        }
        let range = self.movable_range(zone, pfn).filter(|_| whole);
        let Some(range) = range else {
            self.move_block(zone, pfn, found, wanted, end);
            return true;
        };
        let (_, movable) = self.count_range(range);
        let free = self.move_range(zone, range, wanted, end);
        if self.is_enough(free, movable, wanted, was) {
            self.set_block_type(pfn, wanted);
        }
        true
    }

    fn remember_mixed(&mut self, zone: usize, pfn: u32) {
        let start = pfn / self.block_pages() * self.block_pages();
        let room = usize::from(self.policy.compaction.queue_length);
        let known = &mut self.zones[zone].mixed;
        if known.iter().all(|&other| other != start) && known.len() < room {
            known.push(start);
        }
    }

    /// Before 4.12: the block found is split at once; what is left is of the wanted type.
    fn split_fallback(&mut self, zone: usize, order: u8, wanted: Migratetype) -> Option<u32> {
        for found in (order..=self.max_order()).rev() {
            let Some((from, pfn)) = self.first_fallback(zone, found, wanted) else { continue };
            if found >= self.block_order() {
                self.set_types_under(pfn, found, wanted);
            } else if self.may_take(found, wanted) {
                let moved = match self.movable_range(zone, pfn) {
                    Some(range) => self.move_range(zone, range, wanted, End::Head),
                    None => 0,
                };
                if moved >= self.policy.fallback.claim_min_pages
                    || !self.policy.freelist.mobility_grouping
                {
                    self.set_block_type(pfn, wanted);
                }
            }
            self.cut(zone, pfn, found, order, wanted);
            self.note(zone, pfn, (order, found), (wanted, from, wanted));
            return Some(pfn);
        }
        None
    }

    /// Before 4.0: a small block is taken alone, unless it is for a reclaimable request; what is left of it
    /// stays where it was. The last resort is the reserve.
    fn move_or_take(&mut self, zone: usize, order: u8, wanted: Migratetype) -> Option<u32> {
        for found in (order..=self.max_order()).rev() {
            let Some((from, pfn)) = self.first_fallback(zone, found, wanted) else { continue };
            let ungrouped = !self.policy.freelist.mobility_grouping;
            let large = found >= self.policy.fallback.movable_min_order.0;
            let mut rest = from;
            if large || wanted == Reclaimable || ungrouped {
                rest = wanted;
                let moved = match self.movable_range(zone, pfn) {
                    Some(range) => self.move_range(zone, range, wanted, End::Head),
                    None => 0,
                };
                if moved >= self.policy.fallback.claim_min_pages || ungrouped {
                    self.set_block_type(pfn, wanted);
                }
                if found >= self.block_order() {
                    self.set_types_under(pfn, found, wanted);
                }
            }
            self.cut(zone, pfn, found, order, rest);
            self.note(zone, pfn, (order, found), (wanted, from, rest));
            return Some(pfn);
        }
        self.take_smallest(zone, order, Reserve)
    }

    /// The lowest whole pageblocks become the zone's last resort, as the min mark says; others no longer are.
    fn setup_reserve(&mut self, zone: usize) {
        let block = u64::from(self.block_pages());
        let Zone { start, end, .. } = self.zones[zone];
        let mut wanted = (self.zones[zone].marks[0].div_ceil(block))
            .min(u64::from(self.policy.watermark.reserve_blocks_max));
        for pfn in (start..end).filter(|pfn| u64::from(*pfn) % block == 0) {
            let here = pfn as usize..(pfn + self.block_pages()).min(end) as usize;
            let known =
                !self.pages[here].iter().any(|p| [Page::Absent, Page::Reserved].contains(p));
            let change = match (wanted > 0, self.block_type(pfn)) {
                (true, Movable) if known => Some(Reserve),
                (false, Reserve) => Some(Movable),
                _ => None,
            };
            if wanted > 0 && known && [Movable, Reserve].contains(&self.block_type(pfn)) {
                wanted -= 1;
            }
            if let Some(to) = change {
                self.set_block_type(pfn, to);
                if let Some(range) = self.movable_range(zone, pfn) {
                    self.move_range(zone, range, to, End::Head);
                }
            }
        }
    }

    /// One block from the free lists; `stealing` is remembered over one refill.
    fn take(
        &mut self,
        zone: usize,
        order: u8,
        wanted: Migratetype,
        flags: AllocFlags,
        stealing: &mut bool,
    ) -> Option<u32> {
        if !*stealing {
            let own = self.take_smallest(zone, order, wanted);
            if own.is_some() {
                return own;
            }
        }
        match self.policy.fallback.rule {
            FallbackRule::Never => None,
            FallbackRule::MoveAndSplit => self.split_fallback(zone, order, wanted),
            FallbackRule::MoveOrTake => self.move_or_take(zone, order, wanted),
            FallbackRule::MoveAndRetry => {
                if self.move_for_retry(zone, order, wanted, flags) {
                    Some(
                        self.take_smallest(zone, order, wanted).expect("something just moved here"),
                    )
                } else {
                    None
                }
            }
            FallbackRule::ClaimThenSteal => {
                if !*stealing && let Some(pfn) = self.claim(zone, order, wanted, flags) {
                    return Some(pfn);
                }
                if flags.intersects(AllocFlags::NOFRAGMENT) {
                    return None;
                }
                let stolen = self.steal(zone, order, wanted);
                if stolen.is_some() {
                    *stealing = true;
                }
                stolen
            }
        }
    }

    // The reserve for urgent requests.

    fn reserve_highatomic(&mut self, zone: usize, pfn: u32, order: u8) {
        let block = u64::from(self.block_pages());
        let percent = self.zones[zone].managed / 100;
        let limit = match self.policy.highatomic.reserve {
            HighatomicReserve::Off => return,
            HighatomicReserve::PercentPlusBlock => percent + block,
            HighatomicReserve::PercentRoundedUp if percent < block => return,
            HighatomicReserve::PercentRoundedUp => percent.div_ceil(block) * block,
        };
        if self.zones[zone].reserved_highatomic >= limit || !mergeable(self.block_type(pfn)) {
            return;
        }
        let end = self.moved_end();
        let range = self.movable_range(zone, pfn);
        let hygiene = self.policy.freelist.list_type == ListType::Pageblock;
        if hygiene && order >= self.block_order() {
            // Nothing of its pageblocks is free: only types change (6.10).
            self.set_types_under(pfn, order, HighAtomic);
            self.zones[zone].reserved_highatomic += 1 << order;
            return;
        }
        if hygiene && range.is_none() {
            return;
        }
        if let Some(range) = range {
            self.move_range(zone, range, HighAtomic, end);
        }
        self.set_block_type(pfn, HighAtomic);
        self.zones[zone].reserved_highatomic += block;
    }

    pub(crate) fn unreserve_highatomic(
        &mut self,
        zone: usize,
        wanted: Migratetype,
        force: bool,
    ) -> bool {
        let block = u64::from(self.block_pages());
        if !force && self.zones[zone].reserved_highatomic <= block {
            return false;
        }
        let end = self.moved_end();
        let hygiene = self.policy.freelist.list_type == ListType::Pageblock;
        for order in 0..=self.max_order() {
            let Some(&pfn) = self.zones[zone].free[order as usize][HighAtomic.index()].first()
            else {
                continue;
            };
            // A free block larger than a pageblock: kernels before 6.10 see its first pageblock only.
            let pages =
                if hygiene { self.block_pages().max(1 << order) } else { self.block_pages() };
            if self.block_type(pfn) == HighAtomic {
                let reserved = &mut self.zones[zone].reserved_highatomic;
                *reserved = reserved.saturating_sub(u64::from(pages));
            }
            self.set_types_under(pfn, pages.ilog2() as u8, wanted);
            if order >= self.block_order() {
                self.move_block(zone, pfn, order, wanted, end);
                return true;
            }
            if let Some(range) = self.movable_range(zone, pfn) {
                self.move_range(zone, range, wanted, end);
                return true;
            }
        }
        false
    }

    // Watermarks.

    pub(crate) fn setup_watermarks(&mut self, min_free_kbytes: u64) {
        let lowmem: u64 =
            self.zones.iter().filter(|z| z.kind != ZoneKind::Movable).map(|z| z.managed).sum();
        for z in &mut self.zones {
            let share = min_free_kbytes / 4 * z.managed / lowmem;
            let min =
                if z.kind == ZoneKind::Movable { (z.managed / 1024).clamp(32, 128) } else { share };
            let mut gap = share / 4;
            if let Some(scale) = self.policy.watermark.scale_factor {
                gap = gap.max(z.managed * u64::from(scale) / 10_000);
            }
            z.boost = 0;
            z.marks = [min, min + gap, min + 2 * gap, min + 3 * gap];
            z.batch = gap as i64;
        }
        for zone in 0..self.zones.len() {
            self.setup_reserve(zone);
            let (node, kind) = (self.zones[zone].node, self.zones[zone].kind);
            for highest_zoneidx in ZoneKind::ALL {
                let between: u64 = self
                    .zones
                    .iter()
                    .filter(|z| z.node == node && z.kind > kind && z.kind <= highest_zoneidx)
                    .map(|z| z.managed)
                    .sum();
                self.zones[zone].lowmem_reserve[highest_zoneidx as usize] = match kind {
                    ZoneKind::Movable => 0,
                    _ => {
                        between
                            / u64::from(self.policy.watermark.lowmem_reserve_ratio[kind as usize])
                    }
                };
            }
        }
        self.setup_cpu_limits();
    }

    fn setup_cpu_limits(&mut self) {
        let limit = u64::from(self.policy.pcp.batch_limit_pages);
        for z in &mut self.zones {
            let local = self.machine.cpu_nodes.iter().filter(|&&node| node == z.node).count();
            let cpus = if local > 0 { local } else { self.machine.cpu_nodes.len() } as i64;
            let raw = raw_batch(z.managed, limit);
            let batch = raw.max(1);
            let by_low = ((z.marks[1] + z.boost) as i64 / cpus).max(4 * batch);
            let by_size = (z.managed as i64 / 8 / cpus).max(4 * batch);
            let (high_min, high_max) = match self.policy.pcp.high {
                // Six times what a batch would be, which is nothing in a tiny zone.
                PcpHigh::SixBatches => (6 * raw, 6 * raw),
                PcpHigh::LowWatermark => (by_low, by_low),
                PcpHigh::AutoTuned => (by_low, by_size),
            };
            for cpu in &mut z.cpus {
                cpu.batch = batch;
                cpu.high_min = high_min;
                cpu.high_max = high_max;
                if self.policy.pcp.high != PcpHigh::AutoTuned {
                    cpu.high = high_min;
                }
            }
        }
    }

    pub(crate) fn mark_pages(&self, zone: usize, mark: Mark) -> u64 {
        self.zones[zone].marks[mark as usize] + self.zones[zone].boost
    }

    pub(crate) fn passes(
        &self,
        zone: usize,
        order: u8,
        mark: u64,
        highest_zoneidx: ZoneKind,
        flags: AllocFlags,
    ) -> bool {
        let z = &self.zones[zone];
        let (high, waits) =
            (flags.intersects(AllocFlags::MIN_RESERVE), !flags.intersects(AllocFlags::NON_BLOCK));
        let hard = match self.policy.watermark.urgency {
            Urgency::NonBlockingAlone => !waits,
            Urgency::Atomic | Urgency::HighThenNonBlocking => high && !waits,
        };
        let mut privileged = hard || flags.intersects(AllocFlags::OOM);
        if self.policy.watermark.urgency == Urgency::HighThenNonBlocking {
            privileged |= high || !waits || flags.intersects(AllocFlags::HIGHATOMIC);
        }
        let mut free = z.nr_free_pages() as i64 - ((1i64 << order) - 1);
        if !privileged {
            free -= match self.policy.highatomic.reserve {
                HighatomicReserve::Off => 0,
                HighatomicReserve::PercentPlusBlock => z.reserved_highatomic as i64,
                HighatomicReserve::PercentRoundedUp => z.free_of(HighAtomic) as i64,
            };
        }
        let mut min = mark as i64;
        if high {
            min -= min / 2;
        }
        if hard {
            min -= min / 4;
        }
        if flags.intersects(AllocFlags::OOM) {
            min -= min / 2;
        }
        if free <= min + z.lowmem_reserve[highest_zoneidx as usize] as i64 {
            return false;
        }
        if self.policy.watermark.check == WatermarkCheck::EachOrder {
            let mut mark = min;
            for o in 0..order as usize {
                let blocks: usize = z.free[o].iter().map(Vec::len).sum();
                free -= (blocks << o) as i64;
                mark /= 2;
                if free <= mark {
                    return false;
                }
            }
            return true;
        }
        let mut types = vec![Unmovable, Movable, Reclaimable];
        if flags.intersects(AllocFlags::HIGHATOMIC | AllocFlags::OOM)
            || hard && self.policy.watermark.urgency == Urgency::Atomic
        {
            types.push(HighAtomic);
        }
        order == 0
            || (order as usize..NR_PAGE_ORDERS)
                .any(|o| types.iter().any(|mt| !z.free[o][mt.index()].is_empty()))
    }

    /// The check of the zone walk: an urgent single page may pass the bare min mark. `walk` is the mark
    /// the walk is at, which decides that; `pages` is the one asked about now.
    fn passes_in_walk(
        &self,
        zone: usize,
        request: Request,
        pages: u64,
        walk: Option<Mark>,
        flags: AllocFlags,
    ) -> bool {
        let (order, highest_zoneidx) = (request.order.0, request.gfp.highest_zone());
        self.passes(zone, order, pages, highest_zoneidx, flags)
            || order == 0
                && self.policy.watermark.boost_spares_urgent
                && flags.intersects(AllocFlags::MIN_RESERVE)
                && self.zones[zone].boost > 0
                && walk == Some(Mark::Min)
                && self.passes(zone, 0, self.zones[zone].marks[0], highest_zoneidx, flags)
    }

    // Per-CPU lists.

    fn has_list(&self, order: u8) -> bool {
        match self.policy.pcp.orders {
            PcpOrders::Zero => order == 0,
            PcpOrders::CostlyAndThp => order <= 3 || order == self.block_order(),
        }
    }

    /// A refill, by the same description as the marks below.
    fn refill_blocks(&mut self, zone: usize, cpu: usize, order: u8) -> i64 {
        let z = &mut self.zones[zone];
        let c = &mut z.cpus[cpu];
        let mut pages = c.batch;
        if self.policy.pcp.high == PcpHigh::AutoTuned {
            let mark = c.high.max(c.high_min).min(c.high_max);
            c.high = mark;
            if mark < c.batch {
                return 1;
            }
            // Twice as many as the one before.
            pages *= if order == 0 { 1 << c.factor } else { 1 };
            if !z.below_high && c.high_min != c.high_max {
                c.high = (mark + pages).min(c.high_max);
            }
            if order == 0 {
                let most = c.batch.max(c.high - c.batch - c.count());
                let more_next_time = c.factor < u32::from(self.policy.pcp.batch_scale_max);
                c.factor += u32::from(pages <= most && more_next_time);
                pages = pages.min(most);
            }
        }
        if pages <= 1 { pages } else { (pages / (1 << order)).max(2) }
    }

    fn take_by_cpu(
        &mut self,
        zone: usize,
        cpu: usize,
        order: u8,
        wanted: Migratetype,
        cold: bool,
        flags: AllocFlags,
    ) -> Option<u32> {
        let auto = self.policy.pcp.high == PcpHigh::AutoTuned;
        let number = list_number(order, wanted);
        let c = &mut self.zones[zone].cpus[cpu];
        if auto {
            c.free_count /= 2;
        } else {
            c.factor /= 2;
        }
        if c.lists[number].is_empty() {
            let mut stealing = false;
            for _ in 0..self.refill_blocks(zone, cpu, order) {
                let Some(pfn) = self.take(zone, order, wanted, flags, &mut stealing) else { break };
                self.mark(pfn, order, Page::OnCpu);
                let kept = Kept { pfn, order, noted: wanted };
                let list = &mut self.zones[zone].cpus[cpu].lists[number];
                list.insert(if cold { 0 } else { list.len() }, kept);
            }
        }
        let list = &mut self.zones[zone].cpus[cpu].lists[number];
        if list.is_empty() {
            return None;
        }
        let kept = list.remove(if cold { list.len() - 1 } else { 0 });
        self.mark(kept.pfn, kept.order, Page::Used { movable: false });
        Some(kept.pfn)
    }

    pub(crate) fn free(&mut self, pfn: u32, order: u8, cpu: usize, cold: bool) {
        let zone = self.zone_of(pfn);
        let noted = self.block_type(pfn);
        if !self.has_list(order) || noted == Isolate {
            self.give_back_directly(zone, pfn, order, false);
            return;
        }
        self.mark(pfn, order, Page::OnCpu);
        let number = list_number(order, noted);
        let list = &mut self.zones[zone].cpus[cpu].lists[number];
        let last = cold && self.policy.pcp.cold;
        list.insert(if last { list.len() } else { 0 }, Kept { pfn, order, noted });
        let drain = match self.policy.pcp.high {
            PcpHigh::AutoTuned => self.surplus_auto_tuned(zone, cpu, order),
            PcpHigh::LowWatermark => self.surplus_fixed(zone, cpu, order),
            PcpHigh::SixBatches => {
                let c = &self.zones[zone].cpus[cpu];
                if c.count() >= c.high { Some(c.batch) } else { None }
            }
        };
        if let Some(pages) = drain {
            self.drain(zone, cpu, pages, number);
            if self.zones[zone].below_high {
                let high = self.mark_pages(zone, Mark::High);
                if self.passes(zone, 0, high, ZoneKind::Movable, AllocFlags::NONE) {
                    self.zones[zone].below_high = false;
                }
            }
        }
    }

    /// The rows of the table in `highorder_mm::pcp`'s description of the self-tuning mark, each asked for
    /// itself: is it this one, what is allowed, where does the mark go.
    fn surplus_auto_tuned(&mut self, zone: usize, cpu: usize, order: u8) -> Option<i64> {
        let z = &mut self.zones[zone];
        let c = &mut z.cpus[cpu];
        let held = c.count();
        let largest = c.batch << self.policy.pcp.batch_scale_max;
        let between = |mark: i64, c: &Cpu| mark.max(c.high_min).min(c.high_max);

        // Counting: the drain and the falls below are of what was freed lately.
        let several_pages = matches!(order, 1..=3);
        let stream = several_pages && c.freed_high_order_last && c.free_count >= c.batch;
        c.freed_high_order_last = several_pages;
        c.factor >>= 1;
        c.free_count += if c.free_count < largest { 1 << order } else { 0 };

        let mark = between(c.high, c);
        let reclaim = !stream && z.reclaim_active;
        let tunes = c.high_min != c.high_max;
        let below = !stream && !reclaim && tunes && z.below_high;
        let calm = !stream && !reclaim && tunes && !z.below_high;

        // Where the mark goes. A set without one keeps none.
        c.high = mark;
        if mark > 0 {
            let room = c.free_count + c.batch;
            if stream {
                c.high = c.high_min.max(mark - largest);
            }
            if reclaim || below {
                c.high = c.high_min.max(mark - c.batch.max(c.free_count));
            }
            if calm && held >= mark && room > mark {
                c.high = between(room, c);
            }
        }

        // What is allowed.
        let mut allowed = mark;
        if mark > 0 && stream {
            allowed = 0;
        }
        if mark > 0 && reclaim {
            allowed = c.high.min(c.batch * 4);
        }
        if mark > 0 && below {
            allowed = c.high_min.max(held);
        }
        if held < allowed {
            return None;
        }
        if stream {
            return Some(largest.min(held));
        }
        Some(Self::drained(c.free_count, c.batch, allowed))
    }

    /// The fixed mark that is the low watermark's share, by the same description.
    fn surplus_fixed(&mut self, zone: usize, cpu: usize, order: u8) -> Option<i64> {
        let z = &mut self.zones[zone];
        let c = &mut z.cpus[cpu];
        let held = c.count();
        if matches!(order, 1..=3) && c.factor > 0 {
            return Some(held);
        }
        let allowed = if z.reclaim_active { c.high.min(c.batch * 4) } else { c.high };
        if held < allowed {
            return None;
        }
        let wanted = c.batch * (1 << c.factor);
        let leaves_a_batch = allowed - wanted > c.batch;
        if leaves_a_batch && c.factor < u32::from(self.policy.pcp.batch_scale_max) {
            c.factor += 1;
        }
        Some(Self::drained(wanted, c.batch, allowed))
    }

    /// How much goes of what is wanted: at least a batch, and so that a batch stays below what is allowed; a
    /// page where less than a batch is allowed.
    fn drained(wanted: i64, batch: i64, allowed: i64) -> i64 {
        if allowed < batch { 1 } else { wanted.min(allowed - batch).max(batch) }
    }

    pub(crate) fn drain(&mut self, zone: usize, cpu: usize, pages: i64, first: usize) {
        let mut left = pages.min(self.zones[zone].cpus[cpu].count());
        match self.policy.pcp.drain {
            PcpDrain::ListFirst => {
                let mut number = first;
                while left > 0 {
                    if self.zones[zone].cpus[cpu].lists[number].is_empty() {
                        number = (number + 1) % 14;
                    } else {
                        left -= self.drain_one(zone, cpu, number);
                    }
                }
            }
            PcpDrain::RoundRobin | PcpDrain::RoundRobinReclaimableFirst => {
                let nr_lists = if self.policy.pcp.orders == PcpOrders::Zero { 3 } else { 14 };
                let down = self.policy.pcp.drain == PcpDrain::RoundRobinReclaimableFirst;
                let (mut number, mut run) = (0, 0);
                while left > 0 {
                    loop {
                        run += 1;
                        number = if !down {
                            (number + 1) % nr_lists
                        } else if number == 0 {
                            nr_lists - 1
                        } else {
                            number - 1
                        };
                        if !self.zones[zone].cpus[cpu].lists[number].is_empty() {
                            break;
                        }
                    }
                    if run == nr_lists as i64 {
                        run = left;
                    }
                    loop {
                        left -= self.drain_one(zone, cpu, number);
                        if left <= 0 {
                            break;
                        }
                        run -= 1;
                        if run == 0 || self.zones[zone].cpus[cpu].lists[number].is_empty() {
                            break;
                        }
                    }
                }
            }
        }
    }

    fn drain_one(&mut self, zone: usize, cpu: usize, number: usize) -> i64 {
        let kept =
            self.zones[zone].cpus[cpu].lists[number].pop().expect("a list that is not empty");
        let migratetype = match self.policy.freelist.list_type {
            ListType::Pageblock => self.block_type(kept.pfn),
            ListType::Remembered => kept.noted,
        };
        self.give_back(zone, kept.pfn, kept.order, migratetype, false);
        1 << kept.order
    }

    pub(crate) fn drain_zone(&mut self, zone: usize, cpu: usize) {
        let auto = self.policy.pcp.high == PcpHigh::AutoTuned;
        loop {
            let c = &self.zones[zone].cpus[cpu];
            let count = c.count();
            if count == 0 {
                return;
            }
            let chunk =
                if auto { count.min(c.batch << self.policy.pcp.batch_scale_max) } else { count };
            self.drain(zone, cpu, chunk, 0);
        }
    }

    pub(crate) fn drain_all(&mut self) {
        for cpu in 0..self.machine.cpu_nodes.len() {
            for zone in 0..self.zones.len() {
                self.drain_zone(zone, cpu);
            }
        }
    }

    pub(crate) fn decay(&mut self, zone: usize, cpu: usize) {
        if self.policy.pcp.high != PcpHigh::AutoTuned {
            return;
        }
        let most = self.policy.pcp.batch_scale_max;
        let c = &mut self.zones[zone].cpus[cpu];
        let (count, batch) = (c.count(), c.batch);
        if c.high > c.high_min {
            c.high = (count - (batch << most)).max(c.high - c.high / 8).max(c.high_min);
        }
        let mut surplus = count - c.high;
        while surplus > 0 {
            self.drain(zone, cpu, surplus.min(batch), 0);
            surplus -= batch;
        }
    }

    // Isolation.

    pub(crate) fn isolate(&mut self, pfn: u32, order: u8) -> bool {
        let zone = self.zone_of(pfn);
        if self.block_type(pfn) != Isolate {
            let marks = &self.zones[zone];
            let mark = match self.policy.compaction.isolate_mark {
                IsolateMark::Low => marks.marks[1] + marks.boost,
                IsolateMark::Min => marks.marks[0] + marks.boost,
                IsolateMark::BareMin => marks.marks[0],
            };
            if !self.passes(zone, 0, mark + (1 << order), ZoneKind::Dma, AllocFlags::NONE) {
                return false;
            }
        }
        self.remove(zone, pfn, order);
        self.mark(pfn, order, Page::Isolated);
        if order + 1 >= self.block_order() {
            let mut at = pfn;
            while at < pfn + (1 << order) {
                if mergeable(self.block_type(at)) {
                    match self.policy.freelist.list_type {
                        ListType::Pageblock => {
                            if let Some(range) = self.movable_range(zone, at) {
                                // Without mobility types the pageblock stays Unmovable, so its pieces
                                // do: 6.12 would strand them on a Movable list.
                                self.set_block_type(at, Movable);
                                self.move_range(zone, range, self.block_type(at), End::Tail);
                            }
                        }
                        ListType::Remembered => self.set_block_type(at, Movable),
                    }
                }
                at += self.block_pages();
            }
        }
        true
    }

    pub(crate) fn putback(&mut self, pfn: u32, order: u8) {
        let zone = self.zone_of(pfn);
        self.give_back(zone, pfn, order, self.block_type(pfn), true);
    }

    // Zones.

    /// Nodes from the nearest on, as long as none of them is preferred for its small load.
    fn node_order(&self, node: NodeId) -> Vec<NodeId> {
        let mut load = vec![0; self.machine.nr_nodes()];
        let mut order = Vec::new();
        for local in NodeId::all(node.index() + 1) {
            order = vec![local];
            while order.len() < self.machine.nr_nodes() {
                let far = |n: NodeId| self.machine.nodes[local.index()].distances[n.index()];
                let best = NodeId::all(self.machine.nr_nodes())
                    .filter(|n| !order.contains(n))
                    .min_by_key(|&n| {
                        let headed = u32::from(self.machine.cpu_nodes.contains(&n));
                        (far(n) + u32::from(n < local) + headed, load[n.index()])
                    })
                    .expect("a node is left");
                if far(best) != far(order[order.len() - 1]) {
                    load[best.index()] += 1;
                }
                order.push(best);
            }
        }
        order
    }

    /// Whether zones below Normal are so small that other nodes' Normal zones come first.
    fn low_zones_are_small(&self) -> bool {
        let size = |z: &Zone| u64::from(z.end - z.start);
        let nr_nodes = self.machine.nr_nodes();
        let nodes = || NodeId::all(nr_nodes);
        let of = |n: NodeId| self.zones.iter().filter(move |z| z.node == n);
        let low = |n: NodeId| of(n).filter(|z| z.kind < ZoneKind::Normal).map(size).sum::<u64>();
        let all = |n: NodeId| of(n).map(size).sum::<u64>();
        let (low_sum, sum) = (nodes().map(low).sum::<u64>(), nodes().map(all).sum::<u64>());
        nodes().all(|n| of(n).any(|z| z.kind == ZoneKind::Normal))
            && (1..=sum / 2).contains(&low_sum)
            && nodes().all(|n| all(n) <= sum / (nr_nodes as u64 + 1) || low(n) <= all(n) * 70 / 100)
    }

    pub(crate) fn zonelist(&self, node: NodeId, gfp: Gfp) -> Vec<usize> {
        let nodes = if gfp.contains(Gfp::THISNODE) { vec![node] } else { self.node_order(node) };
        let mut list = Vec::new();
        if self.policy.zone.zonelist_order == ZonelistOrder::FoundAtBoot
            && self.low_zones_are_small()
        {
            for kind in ZoneKind::ALL.into_iter().rev().filter(|&k| k <= gfp.highest_zone()) {
                for &n in &nodes {
                    list.extend(self.zones.iter().position(|z| z.node == n && z.kind == kind));
                }
            }
            return list;
        }
        for n in nodes {
            for kind in ZoneKind::ALL.into_iter().rev().filter(|&k| k <= gfp.highest_zone()) {
                list.extend(self.zones.iter().position(|z| z.node == n && z.kind == kind));
            }
        }
        list
    }

    pub(crate) fn fast_flags(&self, request: Request) -> AllocFlags {
        let mut flags = AllocFlags::fast_path(request.gfp);
        if self.policy.zone.fair_batches {
            flags |= AllocFlags::FAIR;
        }
        let Some(&first) = self.zonelist(request.node, request.gfp).first() else { return flags };
        let first = &self.zones[first];
        let lower = self.zones.iter().any(|z| z.node == first.node && z.kind == ZoneKind::Dma32);
        let wakes = request.gfp.contains(Gfp::KSWAPD_RECLAIM);
        let wishes = match self.policy.zone.fragment_avoidance {
            FragmentAvoidance::Off => false,
            FragmentAvoidance::LowerZone => lower || self.machine.nr_nodes() == 1,
            FragmentAvoidance::LowerZoneThenOn => lower,
            FragmentAvoidance::LowerZoneThenOnIfKswapd => lower && wakes,
        };
        if first.kind == ZoneKind::Normal && wishes {
            flags | AllocFlags::NOFRAGMENT
        } else {
            flags
        }
    }

    pub(crate) fn walk(
        &mut self,
        request: Request,
        mark: Option<Mark>,
        flags: AllocFlags,
    ) -> Option<u32> {
        let mut list = self.zonelist(request.node, request.gfp);
        let first = *list.first()?;
        let home = self.zones[first].node;
        if flags.intersects(AllocFlags::FAIR) {
            // First at home and where something is left of the share.
            let at_home: Vec<usize> =
                list.iter().copied().filter(|&zone| self.zones[zone].node == home).collect();
            for &zone in &at_home {
                if !self.zones[zone].depleted
                    && let Some(pfn) = self.try_zone(zone, request, mark, flags)
                {
                    return Some(pfn);
                }
            }
            if at_home.iter().any(|&zone| self.zones[zone].depleted) {
                let highest_zoneidx = self.zones[first].kind;
                for zone in &mut self.zones {
                    if zone.node == home && zone.kind <= highest_zoneidx {
                        zone.batch = zone.marks[2] as i64 - zone.marks[1] as i64;
                        zone.depleted = false;
                    }
                }
            }
        }
        if flags.intersects(AllocFlags::NOFRAGMENT) {
            // First without mixing, at home; then again from the start.
            for &zone in &list {
                if self.zones[zone].node != home {
                    break;
                }
                if let Some(pfn) = self.try_zone(zone, request, mark, flags) {
                    return Some(pfn);
                }
            }
            if self.policy.zone.fragment_avoidance != FragmentAvoidance::LowerZone {
                list.retain(|&zone| self.zones[zone].node != home);
            }
        }
        let flags = flags - AllocFlags::NOFRAGMENT;
        list.into_iter().find_map(|zone| self.try_zone(zone, request, mark, flags))
    }

    fn try_zone(
        &mut self,
        zone: usize,
        request: Request,
        mark: Option<Mark>,
        flags: AllocFlags,
    ) -> Option<u32> {
        let mut passed = mark.is_none();
        if self.policy.pcp.high == PcpHigh::AutoTuned && !self.zones[zone].below_high {
            let high = self.mark_pages(zone, Mark::High);
            if self.passes_in_walk(zone, request, high, mark, flags) {
                passed = true;
            } else {
                self.zones[zone].below_high = true;
            }
        }
        if !passed && let Some(mark) = mark {
            let pages = self.mark_pages(zone, mark);
            passed = self.passes_in_walk(zone, request, pages, Some(mark), flags);
        }
        if !passed {
            return None;
        }
        let pfn = self.take_in_zone(zone, request, flags)?;
        if flags.intersects(AllocFlags::HIGHATOMIC) {
            self.reserve_highatomic(zone, pfn, request.order.0);
        }
        Some(pfn)
    }

    fn take_in_zone(&mut self, zone: usize, request: Request, flags: AllocFlags) -> Option<u32> {
        let order = request.order.0;
        let wanted = if self.policy.freelist.mobility_grouping {
            request.gfp.migratetype()
        } else {
            Unmovable
        };
        let mut pfn = None;
        if self.has_list(order) {
            let cold = self.policy.pcp.cold && request.gfp.contains(Gfp::COLD);
            pfn = self.take_by_cpu(zone, request.cpu.index(), order, wanted, cold, flags);
        }
        if pfn.is_none() && flags.intersects(AllocFlags::HIGHATOMIC) {
            pfn = self.take_smallest(zone, order, HighAtomic);
        }
        if pfn.is_none() {
            pfn = self.take(zone, order, wanted, flags, &mut false);
        }
        if pfn.is_none()
            && self.policy.watermark.urgency == Urgency::HighThenNonBlocking
            && flags.intersects(AllocFlags::OOM | AllocFlags::NON_BLOCK)
        {
            pfn = self.take_smallest(zone, order, HighAtomic);
        }
        let pfn = pfn?;
        let movable = request.gfp.migratetype() == Movable;
        self.mark(pfn, order, Page::Used { movable });
        if self.policy.zone.fair_batches {
            self.zones[zone].batch -= 1 << order;
            if self.zones[zone].batch <= 0 {
                self.zones[zone].depleted = true;
            }
        }
        Some(pfn)
    }
}
