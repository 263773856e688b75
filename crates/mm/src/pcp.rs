//! Per-CPU lists: a zone's pages kept at each CPU, refilled and drained in batches.
//!
//! Models: `rmqueue_pcplist`, `free_unref_page_commit`, `free_pcppages_bulk`, `decay_pcp_high`,
//! `zone_batchsize`, `zone_highsize`, mm/page_alloc.c, v6.12;
//! the same functions of v6.1 and v4.20 where the policy says so; `free_hot_cold_page`,
//! `buffered_rmqueue`, `rmqueue_bulk`, v4.4 and v3.3.
//! Departs: the list set's lock is never contended. Visible as: no allocation or free bypasses the lists
//! because an interrupt found them locked.
//! Departs: lists of other nodes' zones are not drained after three idle seconds (`expire`). Visible as: on
//! machines of several nodes such lists keep pages that a kernel would have merged.
//! Departs: sizes that an administrator sets (`percpu_pagelist_high_fraction`; `percpu_pagelist_fraction`
//! before 5.14) are not known. Visible as: lists of the kernel's own size on such machines.

mod mark;

use crate::buddy::FreeTo;
use crate::fallback::SearchMode;
use crate::frame::{End, List, State};
use crate::gfp::AllocFlags;
use crate::memory::Memory;
use crate::policy::{ListType, PcpDrain, PcpHigh, PcpOrders};
use crate::types::{COSTLY_ORDER, CpuId, Migratetype, Order, Pfn, ZoneKind};
use crate::warm::AHEAD;
use crate::watermark::Mark;
use crate::zone::ZoneId;

/// Types that per-CPU lists tell apart (`MIGRATE_PCPTYPES`).
pub const MIGRATE_PCPTYPES: usize = 3;
/// Lists of one set: three types for orders 0-3, and two for THP.
pub const NR_PCP_LISTS: usize = MIGRATE_PCPTYPES * (COSTLY_ORDER.0 as usize + 1) + 2;
const THP_LIST: usize = NR_PCP_LISTS - 2;

/// One CPU's list set of one zone (`struct per_cpu_pages`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerCpuPages {
    /// Pages on all lists.
    pub count: u32,
    /// Full at this count; clamped between the bounds when next used.
    pub high: u32,
    /// Lower bound of `high`.
    pub high_min: u32,
    /// Upper bound of `high`.
    pub high_max: u32,
    /// Pages moved at once.
    pub batch: u32,
    /// Refills grow by this power of two (6.7); drains do (before: `free_factor`).
    pub factor: u8,
    /// Pages freed lately, halved by each allocation.
    pub free_count: u32,
    /// The last free was of order 1-3.
    pub prev_free_high_order: bool,
    /// Such frees drain all only once a batch is there (`PCPF_FREE_HIGH_BATCH`: large data caches).
    pub free_high_batch: bool,
    lists: [List; NR_PCP_LISTS],
}

impl PerCpuPages {
    /// An empty set; limits come with [`Memory::update_pcp_limits`].
    #[must_use]
    pub const fn new() -> Self {
        Self {
            count: 0,
            high: 0,
            high_min: 0,
            high_max: 0,
            batch: 1,
            factor: 0,
            free_count: 0,
            prev_free_high_order: false,
            free_high_batch: false,
            lists: [List::EMPTY; NR_PCP_LISTS],
        }
    }

    /// One list.
    #[inline]
    #[must_use]
    pub const fn list(&self, index: usize) -> &List {
        &self.lists[index]
    }
}

impl Default for PerCpuPages {
    fn default() -> Self {
        Self::new()
    }
}

/// Which list holds blocks of this order and type (`order_to_pindex`). HighAtomic and CMA blocks go with
/// the movable ones.
#[inline]
#[must_use]
pub const fn pcp_index(order: Order, migratetype: Migratetype) -> usize {
    let is_movable = !matches!(migratetype, Migratetype::Unmovable | Migratetype::Reclaimable);
    if order.0 > COSTLY_ORDER.0 {
        THP_LIST + is_movable as usize
    } else {
        let column = if is_movable { Migratetype::Movable } else { migratetype };
        MIGRATE_PCPTYPES * order.0 as usize + column as usize
    }
}

/// Pages moved between per-CPU lists and a zone of this size at once (`zone_batchsize`): about a
/// thousandth of the zone within `limit` pages, a quarter of that, as a power of two less one, so that
/// batches of several CPUs do not fall into step. At least one.
#[doc(alias = "zone_batchsize")]
#[must_use]
pub const fn batch_size(managed_pages: u64, limit: u32) -> u32 {
    let batch = batch_or_none(managed_pages, limit);
    if batch == 0 { 1 } else { batch }
}

/// As [`batch_size`], but 0 for a zone too small for batches. Six of that are the mark of such a zone's
/// lists before 5.14, which keeps them empty.
const fn batch_or_none(managed_pages: u64, limit: u32) -> u32 {
    let thousandth = managed_pages / 1024;
    let capped = if thousandth < limit as u64 { thousandth as u32 } else { limit };
    let quarter = if capped / 4 == 0 { 1 } else { capped / 4 };
    let grown = quarter + quarter / 2;
    (1 << (u32::BITS - 1 - grown.leading_zeros())) - 1
}

impl Memory {
    /// Whether blocks of this order have per-CPU lists.
    #[inline]
    #[must_use]
    pub fn has_pcp_list(&self, order: Order) -> bool {
        match self.policy.pcp.orders {
            PcpOrders::Zero => order.0 == 0,
            PcpOrders::CostlyAndThp => {
                order <= COSTLY_ORDER || order == self.policy.freelist.pageblock_order
            }
        }
    }

    /// Computes batch and bounds of every list set from zone sizes, watermarks and CPUs.
    #[doc(alias = "zone_highsize")]
    pub fn update_pcp_limits(&mut self) {
        let policy = self.policy.pcp.clone();
        let nr_cpus = self.machine.cpu_nodes.len() as u64;
        for zone in &mut self.zones {
            let local = self.machine.nr_cpus(zone.node);
            let cpus = if local == 0 { nr_cpus } else { local }.max(1);
            let batch = batch_size(zone.managed_pages, policy.batch_limit_pages);
            let at_least = u64::from(batch) * 4;
            let low = zone.watermarks.pages(Mark::Low) / cpus;
            let (high_min, high_max) = match policy.high {
                PcpHigh::SixBatches => {
                    let high =
                        u64::from(batch_or_none(zone.managed_pages, policy.batch_limit_pages)) * 6;
                    (high, high)
                }
                PcpHigh::LowWatermark => (low.max(at_least), low.max(at_least)),
                PcpHigh::AutoTuned => {
                    (low.max(at_least), (zone.managed_pages / 8 / cpus).max(at_least))
                }
            };
            for pcp in &mut zone.pcp {
                pcp.batch = batch;
                pcp.high_min = high_min as u32;
                pcp.high_max = high_max as u32;
                if policy.high != PcpHigh::AutoTuned {
                    pcp.high = pcp.high_min;
                }
            }
        }
    }

    #[inline]
    fn pcp(&mut self, id: ZoneId, cpu: CpuId) -> &mut PerCpuPages {
        &mut self.zones[id.index()].pcp[cpu.index()]
    }

    /// Puts a block that is on no list on a CPU's list.
    #[inline]
    pub(crate) fn link_pcp(
        &mut self,
        id: ZoneId,
        cpu: CpuId,
        pfn: Pfn,
        order: Order,
        (index, migratetype): (usize, Migratetype),
        end: End,
    ) {
        self.frames.set_pcp(pfn, order, migratetype, cpu);
        let pcp = &mut self.zones[id.index()].pcp[cpu.index()];
        self.frames.push(&mut pcp.lists[index], pfn, end);
        pcp.count += order.pages();
    }

    /// Takes the block at `pfn` off the CPU list `index` that it is on.
    #[inline]
    pub(crate) fn unlink_pcp(&mut self, id: ZoneId, cpu: CpuId, pfn: Pfn, index: usize) {
        let order = self.frames.order(pfn);
        let pcp = &mut self.zones[id.index()].pcp[cpu.index()];
        self.frames.unlink(&mut pcp.lists[index], pfn);
        pcp.count -= order.pages();
    }

    /// Takes a block from a CPU's lists, which are refilled first if the list is empty.
    #[doc(alias = "buffered_rmqueue")]
    #[doc(alias = "rmqueue_pcplist")]
    #[inline]
    pub fn rmqueue_pcp(
        &mut self,
        id: ZoneId,
        cpu: CpuId,
        order: Order,
        migratetype: Migratetype,
        flags: AllocFlags,
    ) -> Option<Pfn> {
        let index = pcp_index(order, migratetype);
        self.note_pcp_alloc(id, cpu);
        if self.pcp(id, cpu).list(index).is_empty() {
            let blocks = self.refill_size(id, cpu, order);
            self.refill_pcp(id, cpu, (order, migratetype), blocks, flags);
        }
        let list = self.zones[id.index()].pcp[cpu.index()].list(index);
        let pfn = if flags.intersects(AllocFlags::COLD) { list.tail() } else { list.head() }?;
        self.unlink_pcp(id, cpu, pfn, index);
        self.frames.set(pfn, State::Allocated, order, migratetype);
        Some(pfn)
    }

    /// Notes an allocation from a CPU's lists in their tuning state: it lets the next drain be smaller.
    #[inline]
    pub fn note_pcp_alloc(&mut self, id: ZoneId, cpu: CpuId) {
        let auto_tuned = self.policy.pcp.high == PcpHigh::AutoTuned;
        let pcp = self.pcp(id, cpu);
        if auto_tuned {
            pcp.free_count >>= 1;
        } else {
            pcp.factor >>= 1;
        }
    }

    /// Blocks that the next refill of this order fetches. Grows the set's tuning state.
    pub fn refill_size(&mut self, id: ZoneId, cpu: CpuId, order: Order) -> u32 {
        let zone = &mut self.zones[id.index()];
        zone.pcp[cpu.index()].refill(&self.policy.pcp, zone.flags, order)
    }

    /// Moves up to `blocks` blocks from the zone's free lists to the tail of a CPU's list, in the order
    /// found; for a request that wants cold pages to its head, so that it finds the first at the other end.
    /// Returns how many.
    #[doc(alias = "rmqueue_bulk")]
    pub fn refill_pcp(
        &mut self,
        id: ZoneId,
        cpu: CpuId,
        (order, migratetype): (Order, Migratetype),
        blocks: u32,
        flags: AllocFlags,
    ) -> u32 {
        let index = pcp_index(order, migratetype);
        let end = if flags.intersects(AllocFlags::COLD) { End::Head } else { End::Tail };
        let mut mode = SearchMode::Normal;
        let mut moved = 0;
        while moved < blocks {
            if mode == SearchMode::Normal
                && let Some((first, parts)) =
                    self.rmqueue_smallest_run(id, order, migratetype, blocks - moved)
            {
                for part in 0..parts {
                    let pfn = first + part * order.pages();
                    self.link_pcp(id, cpu, pfn, order, (index, migratetype), end);
                }
                moved += parts;
                continue;
            }
            let Some(pfn) = self.rmqueue_buddy_block(id, order, migratetype, flags, &mut mode)
            else {
                break;
            };
            self.link_pcp(id, cpu, pfn, order, (index, migratetype), end);
            moved += 1;
        }
        self.work.refills += 1;
        moved
    }

    /// Frees a block at `cpu`: to its per-CPU lists, or straight to the free lists if its order has none
    /// or its pageblock is isolated. May drain the lists.
    #[inline]
    pub fn free(&mut self, pfn: Pfn, order: Order, cpu: CpuId) {
        self.free_to(pfn, order, cpu, End::Head);
    }

    /// As [`Self::free`], for a page that is likely cold: where the kernel knows such, it goes to its list's
    /// tail, to be drained first and taken last (`free_hot_cold_page`).
    #[doc(alias = "free_hot_cold_page")]
    #[inline]
    pub fn free_cold(&mut self, pfn: Pfn, order: Order, cpu: CpuId) {
        let end = if self.policy.pcp.cold { End::Tail } else { End::Head };
        self.free_to(pfn, order, cpu, end);
    }

    #[inline]
    fn free_to(&mut self, pfn: Pfn, order: Order, cpu: CpuId, end: End) {
        debug_assert!(
            matches!(self.frames.state(pfn), State::Allocated | State::Isolated)
                && self.frames.order(pfn) == order,
            "no block of order {order} is in use at {pfn}"
        );
        let id = self.zone_of(pfn);
        let migratetype = self.block_type(pfn);
        if !self.has_pcp_list(order) || migratetype == Migratetype::Isolate {
            self.free_to_buddy(id, pfn, order, FreeTo::Policy);
            return;
        }
        if let Some(drain) = self.free_to_pcp_end(id, pfn, order, cpu, end) {
            self.drain_pcp_bulk(id, cpu, drain);
            self.note_overflow_drained(id);
        }
    }

    /// After a free's drain: takes the below-high flag back if the zone has risen above its mark.
    pub fn note_overflow_drained(&mut self, id: ZoneId) {
        if self.zones[id.index()].flags.below_high {
            let high = self.zones[id.index()].watermarks.pages(Mark::High);
            if self.watermark_ok(id, Order(0), high, ZoneKind::Movable, AllocFlags::NONE) {
                self.zones[id.index()].flags.below_high = false;
            }
        }
    }

    /// Puts a freed block at the head of its CPU list and says what must be drained now.
    #[inline]
    pub fn free_to_pcp(&mut self, id: ZoneId, pfn: Pfn, order: Order, cpu: CpuId) -> Option<Drain> {
        self.free_to_pcp_end(id, pfn, order, cpu, End::Head)
    }

    #[doc(alias = "free_unref_page_commit")]
    #[inline]
    fn free_to_pcp_end(
        &mut self,
        id: ZoneId,
        pfn: Pfn,
        order: Order,
        cpu: CpuId,
        end: End,
    ) -> Option<Drain> {
        let migratetype = self.block_type(pfn);
        let index = pcp_index(order, migratetype);
        // HighAtomic pages lie with the movable ones, but older kernels remember where they belong.
        self.link_pcp(id, cpu, pfn, order, (index, migratetype), end);
        let zone = &mut self.zones[id.index()];
        let surplus = zone.pcp[cpu.index()].surplus(&self.policy.pcp, zone.flags, order);
        surplus.map(|pages| Drain { pages, first_list: index })
    }

    /// Gives pages of a CPU's lists back to the free lists, as `drain` says.
    #[doc(alias = "free_pcppages_bulk")]
    pub fn drain_pcp_bulk(&mut self, id: ZoneId, cpu: CpuId, drain: Drain) {
        let mut cursor = DrainCursor::new(self.policy.pcp.drain, drain, self.pcp(id, cpu).count);
        let mut soon = None;
        while let Some((pfn, index)) = cursor.next_block(self, id, cpu) {
            soon = self.warm_buddies(pfn, index, soon);
            self.drain_pcp_block(id, cpu, pfn, index);
        }
        self.work.drains += 1;
    }

    /// Asks for the frames with which a page may merge that is drained soon after this one, from list `index`; those
    /// nearest to it come with its own. `soon` is that page for the block before, with its list; returns it for this.
    fn warm_buddies(
        &self,
        pfn: Pfn,
        index: usize,
        soon: Option<(Pfn, usize)>,
    ) -> Option<(Pfn, usize)> {
        let soon = match soon {
            Some((pfn, list)) if list == index => self.frames.prev(pfn)?,
            _ => (0..AHEAD / 2).try_fold(pfn, |pfn, _| self.frames.prev(pfn))?,
        };
        for order in (2..=4).map(Order) {
            self.frames.warm(soon.buddy(order));
        }
        Some((soon, index))
    }

    /// Gives one block of a CPU's list back to the free lists.
    #[inline]
    pub(crate) fn drain_pcp_block(&mut self, id: ZoneId, cpu: CpuId, pfn: Pfn, index: usize) {
        let order = self.frames.order(pfn);
        let remembered = self.frames.migratetype(pfn);
        self.unlink_pcp(id, cpu, pfn, index);
        let migratetype = match self.policy.freelist.list_type {
            ListType::Pageblock => self.block_type(pfn),
            ListType::Remembered => remembered,
        };
        self.free_one_page(id, pfn, order, migratetype, FreeTo::Policy);
    }

    /// Drains a CPU's lists of one zone whole (`drain_pages_zone`), in chunks as the kernel does.
    pub fn drain_pcp_zone(&mut self, id: ZoneId, cpu: CpuId) {
        let scale_max = self.policy.pcp.batch_scale_max;
        loop {
            let pcp = self.pcp(id, cpu);
            if pcp.count == 0 {
                return;
            }
            let pages = match self.policy.pcp.high {
                PcpHigh::AutoTuned => pcp_count_min(self.pcp(id, cpu), scale_max),
                _ => self.pcp(id, cpu).count,
            };
            self.drain_pcp_bulk(id, cpu, Drain { pages, first_list: 0 });
        }
    }

    /// Drains all lists of all CPUs, of one zone or of all (`drain_all_pages`).
    pub fn drain_all_pages(&mut self, only: Option<ZoneId>) {
        for cpu in CpuId::all(self.machine.cpu_nodes.len()) {
            for zone in 0..self.zones.len() {
                let id = ZoneId(zone as u8);
                if only.is_none_or(|z| z == id) {
                    self.drain_pcp_zone(id, cpu);
                }
            }
        }
    }

    /// Once a second: lowers a grown mark by an eighth and drains what exceeds it (`decay_pcp_high`,
    /// 6.7).
    pub fn decay_pcp_high(&mut self, id: ZoneId, cpu: CpuId) {
        let scale_max = self.policy.pcp.batch_scale_max;
        let pcp = self.pcp(id, cpu);
        if pcp.high > pcp.high_min {
            let most = pcp.count.saturating_sub(pcp.batch << scale_max);
            let high = most.max(pcp.high - (pcp.high >> 3));
            self.set_pcp_high(id, cpu, high);
        }
        self.drain_pcp_excess(id, cpu);
    }

    /// Sets the mark of a CPU's lists within its bounds, where it tunes itself.
    pub fn set_pcp_high(&mut self, id: ZoneId, cpu: CpuId, high: u32) {
        if self.policy.pcp.high == PcpHigh::AutoTuned {
            let pcp = self.pcp(id, cpu);
            pcp.high = pcp.in_bounds(high);
        }
    }

    /// Drains what a CPU's lists hold above their mark, where it tunes itself.
    pub fn drain_pcp_excess(&mut self, id: ZoneId, cpu: CpuId) {
        if self.policy.pcp.high != PcpHigh::AutoTuned {
            return;
        }
        let pcp = self.pcp(id, cpu);
        let (mut excess, batch) = (pcp.count.saturating_sub(pcp.high), pcp.batch.max(1));
        while excess > 0 {
            let pages = excess.min(batch);
            self.drain_pcp_bulk(id, cpu, Drain { pages, first_list: 0 });
            excess -= pages;
        }
    }
}

/// The least of a set's count and its largest batch.
fn pcp_count_min(pcp: &PerCpuPages, scale_max: u8) -> u32 {
    pcp.count.min(pcp.batch << scale_max)
}

/// A drain of a CPU's lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drain {
    /// Pages to give back; the last block may exceed it.
    pub pages: u32,
    /// The list to begin with.
    pub first_list: usize,
}

/// Which block a drain takes next, so that the same rule serves the drain itself and those who want
/// to foretell it.
#[derive(Clone, Debug)]
pub struct DrainCursor {
    rule: PcpDrain,
    pages_left: i64,
    list: usize,
    /// For the round robin: blocks still to be taken from the present list. What an exhausted list
    /// could not give is asked of the next.
    run: u32,
}

impl DrainCursor {
    /// A cursor at the start of `drain`, of a set with `count` pages.
    #[must_use]
    pub fn new(rule: PcpDrain, drain: Drain, count: u32) -> Self {
        let pages_left = i64::from(drain.pages.min(count));
        let list = match rule {
            PcpDrain::ListFirst => drain.first_list,
            // Steps on before it looks, so that it does not begin with the unmovable list.
            PcpDrain::RoundRobin | PcpDrain::RoundRobinReclaimableFirst => 0,
        };
        Self { rule, pages_left, list, run: 0 }
    }

    /// The next block and its list; `None` at the end of the drain.
    #[inline]
    pub fn next_block(&mut self, memory: &Memory, id: ZoneId, cpu: CpuId) -> Option<(Pfn, usize)> {
        let pcp = &memory.zones[id.index()].pcp[cpu.index()];
        if self.pages_left <= 0 || pcp.count == 0 {
            return None;
        }
        match self.rule {
            PcpDrain::ListFirst => {
                while pcp.list(self.list).is_empty() {
                    self.list = (self.list + 1) % NR_PCP_LISTS;
                }
            }
            PcpDrain::RoundRobin | PcpDrain::RoundRobinReclaimableFirst => {
                let nr_lists = match memory.policy.pcp.orders {
                    PcpOrders::Zero => MIGRATE_PCPTYPES,
                    PcpOrders::CostlyAndThp => NR_PCP_LISTS,
                };
                if self.run == 0 || pcp.list(self.list).is_empty() {
                    loop {
                        self.run += 1;
                        self.list = match self.rule {
                            PcpDrain::RoundRobinReclaimableFirst => {
                                (self.list + nr_lists - 1) % nr_lists
                            }
                            _ => (self.list + 1) % nr_lists,
                        };
                        if !pcp.list(self.list).is_empty() {
                            break;
                        }
                    }
                    // The only list left gives all the rest.
                    if self.run as usize == nr_lists {
                        self.run = self.pages_left as u32;
                    }
                }
                self.run -= 1;
            }
        }
        let pfn = pcp.list(self.list).tail()?;
        self.pages_left -= i64::from(memory.frames.order(pfn).pages());
        Some((pfn, self.list))
    }
}
