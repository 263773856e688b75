//! Machines, the policies of kernels, and random operations on them.

use super::naive::{Naive, Page};
use highorder_mm::alloc::Request;
use highorder_mm::frame::{End, State};
use highorder_mm::gfp::{AllocFlags, Gfp};
use highorder_mm::pcp::NR_PCP_LISTS;
use highorder_mm::policy::{
    AnonEntry, AsyncSources, Balance, BoostLimit, BoostWakes, BusyPages, CompactCounters,
    Compaction, Contention, FallbackRule, FileWrites, Finish, FlushBy, FragmentAvoidance,
    FreeOrder, FreeScan, HighOrderMode, HighatomicReserve, HugePartialUnmap, InactiveRatio,
    IsolateMark, IsolatedLimit, ListStats, ListType, LruKind, LruScope, LumpyIsolation,
    MigrateSearch, PcpDrain, PcpHigh, PcpOrders, Placement, Policy, Positions, Readahead,
    RefaultRule, Rescan, ScanUnit, SkipHints, Suitable, TargetHead, TargetSearch, Urgency,
    WatermarkCheck, ZonelistOrder,
};
use highorder_mm::types::{Migratetype, NR_PAGE_ORDERS, NodeId, Order, Pfn, ZoneKind};
use highorder_mm::watermark::Mark;
use highorder_mm::zone::ZoneId;
use highorder_mm::{CpuId, Machine, Memory, NodeSpec, ZoneSpec};
use rand_core::Rng;
use rand_pcg::Pcg64;

// Policies.

/// Debian's 6.12, with the waking for boosted marks that its source describes.
pub(crate) fn linux_6_12() -> Policy {
    let file = include_str!("../../../../../kernels/linux-6.12.toml");
    let mut policy: Policy = toml::from_str(file).unwrap();
    policy.watermark.boost_wakes = BoostWakes::AfterAllocation;
    policy
}

/// Debian's 6.1.
pub(crate) fn linux_6_1() -> Policy {
    let mut policy = linux_6_12();
    policy.freelist.list_type = ListType::Remembered;
    policy.freelist.split_large_frees = false;
    policy.pcp.high = PcpHigh::LowWatermark;
    policy.fallback.rule = FallbackRule::MoveAndRetry;
    policy.watermark.boost_single_steals = true;
    policy.highatomic.reserve = HighatomicReserve::PercentPlusBlock;
    policy.compaction = Compaction {
        target_search: TargetSearch::UntilFound,
        migrate_search: MigrateSearch::MarkFound,
        skip_hints: SkipHints::FirstPage,
        rescan: Rescan::Whole,
        count_jumped: false,
        target_head: TargetHead::BelowPageblock,
        large_folios: false,
        batched: false,
        isolated_limit: IsolatedLimit::Half,
        ..policy.compaction
    };
    policy.lru.kind = LruKind::Classic;
    policy.lru.batch_pages = 15;
    policy.lru.balance = Balance::Written;
    policy.lru.stats = ListStats::Exact;
    policy.reclaim.free_order = FreeOrder::LastFirst;
    policy.vmstat.khugepaged_apart = false;
    policy
}

/// 5.15: the first per-CPU lists of higher orders, still drained in turn.
pub(crate) fn linux_5_15() -> Policy {
    let mut policy = linux_6_1();
    policy.pcp.drain = PcpDrain::RoundRobin;
    policy
}

/// 4.20: order 0 on per-CPU lists, moves to list heads, neither boost nor fragment avoidance.
pub(crate) fn linux_4_20() -> Policy {
    let mut policy = linux_5_15();
    policy.pcp.orders = PcpOrders::Zero;
    policy.pcp.high = PcpHigh::SixBatches;
    policy.fallback.rule = FallbackRule::MoveAndRetry;
    policy.freelist.moved_to = End::Head;
    policy.zone.fragment_avoidance = FragmentAvoidance::Off;
    policy.compaction = Compaction {
        async_takes_dirty_buffers: false,
        target_search: TargetSearch::Off,
        migrate_search: MigrateSearch::Off,
        free_scan: FreeScan::UntilMark,
        positions: Positions::Apart,
        skip_hints: SkipHints::InVain,
        sampled_reset: false,
        rescan: Rescan::Plain,
        count_taken: false,
        skip_huge_blocks: false,
        finish: Finish::TypeOrClaim,
        isolate_mark: IsolateMark::Min,
        contention: Contention::Abort,
        capture: false,
        keeps_accessed: false,
        proactiveness: 0,
        ..policy.compaction
    };
    policy.watermark.boost_factor = 0;
    policy.watermark.boost_single_steals = false;
    policy.watermark.min_free_kbytes_max = 65_536;
    policy.lru.anon = AnonEntry::Active;
    policy.lru.swapins_activate = true;
    policy.lru.balance = Balance::Rotated;
    policy.lru.deactivate_on_refault = RefaultRule::Files;
    policy.lru.share_rounds_up = true;
    policy.lru.batch_pages = 15;
    policy.lru.scan_unit = ScanUnit::Entry;
    policy.reclaim.mapped_count_twice = true;
    policy.vmstat.reclaim_by_type = false;
    policy
}

/// 4.20-rc1 with the whole series of November 2018 against fragmentation, as first posted for it.
pub(crate) fn frag_series() -> Policy {
    let mut policy = linux_4_20();
    policy.zone.fragment_avoidance = FragmentAvoidance::LowerZoneThenOnIfKswapd;
    policy.watermark.boost_factor = 15_000;
    policy.watermark.boost_single_steals = true;
    policy.watermark.boost_limit = BoostLimit::BoostedHigh;
    policy.watermark.boost_wakes = BoostWakes::Always;
    policy.watermark.boost_small_zones = true;
    policy.watermark.boost_spares_urgent = false;
    policy.fallback.stall_order = Order(4);
    policy.compaction.queue_length = 16;
    policy
}

/// 4.4: the block found is split at once; the zones of a node have fair shares.
pub(crate) fn linux_4_4() -> Policy {
    let mut policy = linux_4_20();
    policy.fallback.rule = FallbackRule::MoveAndSplit;
    policy.zone.fair_batches = true;
    policy.freelist.boot_to_tail = false;
    policy.compaction = Compaction {
        free_scan: FreeScan::UntilEnough,
        flush_by: FlushBy::AllButKswapd,
        async_sources: AsyncSources::Movable,
        asks_block_ends: true,
        skip_on_failure: false,
        finish: Finish::MarkAndClaim,
        suitable: Suitable::LowMark,
        isolate_mark: IsolateMark::Low,
        writeback_needs_sync: false,
        async_takes_dirty_buffers: false,
        movable_ops: false,
        kcompactd_ignores_hints: true,
        counters: CompactCounters::Scanned,
        ..policy.compaction
    };
    policy.pcp.batch_limit_pages = 128;
    policy.watermark.scale_factor = None;
    policy.lru.scope = LruScope::Zone;
    policy.lru.swapins_activate = false;
    policy.lru.deactivate_on_refault = RefaultRule::Never;
    policy.lru.spared_by_priority = false;
    policy.lru.tiny_cache_wants_inactive = false;
    policy.lru.share_rounds_up = false;
    policy.lru.batch_pages = 14;
    policy.lru.batch_flushes_when_full = false;
    policy.lru.batch_flushes_for_huge = false;
    policy.pcp.cold = true;
    policy.watermark.urgency = Urgency::Atomic;
    policy.lru.inactive_ratio = InactiveRatio::ZoneSize;
    policy.reclaim.busy_pages = BusyPages::Keep;
    policy.reclaim.huge_partial_unmap = HugePartialUnmap::Split;
    policy.reclaim.huge_swapout = false;
    policy.reclaim.file_writes = FileWrites::ManyDirty;
    policy.swap.cluster_pages = 256;
    policy.swap.slot_cache = false;
    policy.swap.readahead = Readahead::Slots;
    policy.vmstat.reclaim_by_zone = true;
    policy.vmstat.allocstall_by_zone = false;
    policy.vmstat.thp_split_apart = false;
    policy
}

/// 3.3: each order has its own watermark, a zone keeps pageblocks for its last resort, and small blocks of
/// another type are taken alone.
pub(crate) fn linux_3_3() -> Policy {
    let mut policy = linux_4_4();
    policy.pcp.drain = PcpDrain::RoundRobinReclaimableFirst;
    policy.compaction.asks_block_ends = false;
    policy.fallback.rule = FallbackRule::MoveOrTake;
    policy.zone.fair_batches = false;
    policy.zone.zonelist_order = ZonelistOrder::FoundAtBoot;
    policy.dirty.counts_anon = true;
    policy.watermark.check = WatermarkCheck::EachOrder;
    policy.watermark.urgency = Urgency::NonBlockingAlone;
    policy.watermark.reserve_blocks_max = 2;
    policy.highatomic.reserve = HighatomicReserve::Off;
    policy.lru.batch_flushes_when_full = true;
    policy.lru.balance = Balance::RotatedAlways;
    policy.lru.scan_unit = ScanUnit::EntryUnbounded;
    policy.lru.refaults = false;
    policy.reclaim.file_writes = FileWrites::LowPriority;
    policy.reclaim.proportional = false;
    policy.reclaim.freeing_restores_hope = true;
    policy.reclaim.mode = HighOrderMode::Compaction;
    policy.reclaim.lumpy = LumpyIsolation::AnyOrder;
    policy.swap.readahead = Readahead::WholeWindow;
    policy.vmstat.steal_apart = false;
    policy.vmstat.workingset = false;
    policy.vmstat.direct_throttle = false;
    policy.vmstat.skip_congestion_wait = true;
    policy.vmstat.numa_balancing = false;
    policy.vmstat.thp_zero_page = false;
    policy.vmstat.anon_counts_huge = false;
    policy.vmstat.swap_ra = false;
    policy
}

/// 3.4-rc2: the target of a scan shrinks with each round, and victims are taken alone.
pub(crate) fn linux_3_4_rc2() -> Policy {
    let mut policy = linux_3_3();
    policy.reclaim.target_decrement = true;
    policy.reclaim.lumpy = LumpyIsolation::InMode;
    policy
}

/// No kernel's: nothing is ever served from another type.
pub(crate) fn never() -> Policy {
    let mut policy = linux_6_12();
    policy.fallback.rule = FallbackRule::Never;
    policy
}

/// No kernel's: neither look-ahead nor mobility types.
pub(crate) fn plain() -> Policy {
    let mut policy = linux_6_12();
    policy.freelist.merge = Placement::Head;
    policy.freelist.mobility_grouping = false;
    policy.highatomic.reserve = HighatomicReserve::Off;
    policy
}

/// Every policy above, by name.
pub(crate) fn policies() -> Vec<(&'static str, Policy)> {
    vec![
        ("6.12", linux_6_12()),
        ("6.1", linux_6_1()),
        ("5.15", linux_5_15()),
        ("4.20", linux_4_20()),
        ("series", frag_series()),
        ("4.4", linux_4_4()),
        ("3.3", linux_3_3()),
        ("3.4-rc2", linux_3_4_rc2()),
        ("never", never()),
        ("plain", plain()),
    ]
}

/// The same rules on pageblocks of 16 pages, so that a few thousand pages are many pageblocks.
pub(crate) fn scaled_down(mut policy: Policy) -> Policy {
    policy.freelist.max_order = Order(5);
    policy.freelist.pageblock_order = Order(4);
    policy.fallback.movable_min_order = Order(2);
    policy.fallback.claim_min_pages = 8;
    policy.fallback.stall_order = policy.fallback.stall_order.min(Order(2));
    policy
}

// Machines.

fn zone(kind: ZoneKind, start: u32, end: u32) -> ZoneSpec {
    ZoneSpec {
        kind,
        start: Pfn(start),
        spanned_pages: end - start,
        present_pages: end - start,
        managed_pages: u64::from(end - start),
    }
}

/// Two nodes of two zones, for [`scaled_down`] policies. One zone begins at frame 1, as x86's DMA does;
/// one ends inside a pageblock; frames behind it are missing.
pub(crate) fn small_numa() -> Machine {
    Machine {
        nr_frames: 6144,
        nodes: vec![
            NodeSpec {
                distances: vec![10, 20],
                zones: vec![zone(ZoneKind::Dma32, 1, 1024), zone(ZoneKind::Normal, 1024, 3072)],
            },
            NodeSpec {
                distances: vec![20, 10],
                zones: vec![
                    zone(ZoneKind::Normal, 3072, 5111),
                    zone(ZoneKind::Movable, 5120, 6144),
                ],
            },
        ],
        cpu_nodes: vec![NodeId(0), NodeId(0), NodeId(1)],
    }
}

/// One node with DMA and DMA32, in true sizes: 256 MiB.
pub(crate) fn guest_256() -> Machine {
    Machine {
        nr_frames: 65_536,
        nodes: vec![NodeSpec {
            distances: vec![10],
            zones: vec![zone(ZoneKind::Dma, 1, 4096), zone(ZoneKind::Dma32, 4096, 65_536)],
        }],
        cpu_nodes: vec![NodeId(0); 2],
    }
}

/// Two nodes of two zones in true sizes, 96 MiB altogether; one zone ends inside a pageblock.
pub(crate) fn numa_96() -> Machine {
    Machine {
        nr_frames: 24_576,
        nodes: vec![
            NodeSpec {
                distances: vec![10, 20],
                zones: vec![zone(ZoneKind::Dma32, 1, 4096), zone(ZoneKind::Normal, 4096, 12_288)],
            },
            NodeSpec {
                distances: vec![20, 10],
                zones: vec![
                    zone(ZoneKind::Normal, 12_288, 20_200),
                    zone(ZoneKind::Movable, 20_480, 24_576),
                ],
            },
        ],
        cpu_nodes: vec![NodeId(0), NodeId(1)],
    }
}

/// One zone of `pages` pages and one CPU.
pub(crate) fn single_zone(pages: u32) -> Machine {
    Machine {
        nr_frames: pages,
        nodes: vec![NodeSpec {
            distances: vec![10],
            zones: vec![zone(ZoneKind::Normal, 0, pages)],
        }],
        cpu_nodes: vec![NodeId(0)],
    }
}

/// Memory with every frame of every zone free, and no watermark at all.
pub(crate) fn all_free(machine: &Machine, policy: &Policy) -> Memory {
    let mut memory = Memory::new(machine.clone(), policy.clone());
    for node in &machine.nodes {
        for zone in &node.zones {
            memory.release_boot_memory(zone.start..zone.start + zone.spanned_pages);
        }
    }
    memory
}

// Operations.

/// One step on a machine. Large numbers are reduced to what there is when the step is taken, so that
/// every sequence of steps can be taken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Alloc { order: u8, gfp: u8, cpu: u8, node: u8, kind: u8 },
    Free { which: u32, cpu: u8 },
    Drain { zone: u8, cpu: u8 },
    DrainAll,
    Decay { zone: u8, cpu: u8 },
    Isolate { which: u32 },
    Putback { which: u32 },
    Unreserve { zone: u8, migratetype: u8, force: bool },
    Reclaim { zone: u8, active: bool },
    EndBoost { zone: u8 },
}

/// The requests that are made.
pub(crate) fn gfps() -> [Gfp; 10] {
    [
        Gfp::HIGHUSER_MOVABLE,
        Gfp::KERNEL,
        Gfp::KERNEL | Gfp::RECLAIMABLE,
        Gfp::GFP_ATOMIC,
        Gfp::NOWAIT,
        Gfp::TRANSHUGE_LIGHT,
        Gfp::HIGHUSER_MOVABLE | Gfp::THISNODE,
        Gfp::KERNEL | Gfp::DMA32,
        Gfp::HIGH | Gfp::NOMEMALLOC,
        Gfp::HIGHUSER_MOVABLE | Gfp::COLD | Gfp::WRITE,
    ]
}

/// A random step; `fill` of 256 are allocations.
pub(crate) fn random_op(rng: &mut Pcg64, fill: u32, max_order: u8) -> Op {
    let bits = rng.next_u64();
    let dice = (bits & 0xff) as u32;
    let rare = (bits >> 8) & 0x3f;
    let (cpu, node, which) = ((bits >> 16) as u8, (bits >> 24) as u8, (bits >> 32) as u32);
    let zone = node;
    if rare == 0 {
        return match which % 16 {
            0 => Op::DrainAll,
            1 | 2 => Op::Drain { zone, cpu },
            3 | 4 => Op::Decay { zone, cpu },
            5..=7 => Op::Isolate { which: which >> 4 },
            8..=10 => Op::Putback { which: which >> 4 },
            11 => Op::Unreserve { zone, migratetype: cpu, force: which & 16 != 0 },
            12 | 13 => Op::Reclaim { zone, active: which & 16 != 0 },
            _ => Op::EndBoost { zone },
        };
    }
    if dice >= fill {
        return Op::Free { which, cpu };
    }
    let order = match which & 0xf {
        0..=8 => 0,
        9..=11 => ((which >> 4) % 3) as u8 + 1,
        12 | 13 => max_order - 1,
        _ => ((which >> 4) % (u32::from(max_order) + 1)) as u8,
    };
    Op::Alloc { order, gfp: (which >> 8) as u8, cpu, node, kind: (which >> 16) as u8 }
}

/// A machine under test, with the naive one beside it or alone.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) fast: Memory,
    pub(crate) naive: Option<Naive>,
    pub(crate) used: Vec<(Pfn, Order)>,
    pub(crate) isolated: Vec<(Pfn, Order)>,
    pub(crate) extfrag_seen: u64,
    /// Everything that was answered, folded into one number.
    pub(crate) digest: u64,
}

impl Scene {
    /// A machine whose memory is all free.
    pub(crate) fn new(
        machine: &Machine,
        policy: &Policy,
        min_free_kbytes: u64,
        with_naive: bool,
    ) -> Self {
        let mut fast = all_free(machine, policy);
        fast.setup_watermarks(Some(min_free_kbytes), false);
        let naive = with_naive.then(|| {
            let mut naive = Naive::new(machine.clone(), policy.clone());
            for zone in 0..naive.zones.len() {
                naive.release_boot_memory(naive.zones[zone].start, naive.zones[zone].end);
            }
            naive.setup_watermarks(min_free_kbytes);
            naive
        });
        Self { fast, naive, used: Vec::new(), isolated: Vec::new(), extfrag_seen: 0, digest: 0 }
    }

    /// Larger batches than so small a machine would have, so that refills and drains move several.
    pub(crate) fn with_batches(mut self, batch: u32, high_min: u32, high_max: u32) -> Self {
        let fixed = self.fast.policy.pcp.high != PcpHigh::AutoTuned;
        let high_max = if fixed { high_min } else { high_max };
        for zone in &mut self.fast.zones {
            for pcp in &mut zone.pcp {
                (pcp.batch, pcp.high_min, pcp.high_max) = (batch, high_min, high_max);
                pcp.high = if fixed { high_min } else { 0 };
            }
        }
        for zone in self.naive.iter_mut().flat_map(|naive| &mut naive.zones) {
            for cpu in &mut zone.cpus {
                cpu.batch = i64::from(batch);
                (cpu.high_min, cpu.high_max) = (i64::from(high_min), i64::from(high_max));
                cpu.high = if fixed { cpu.high_min } else { 0 };
            }
        }
        self
    }

    fn answer(&mut self, what: u64) {
        self.digest = (self.digest ^ what).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    }

    /// Takes one step on both machines.
    ///
    /// # Errors
    /// What they answered, where it differs.
    pub(crate) fn step(&mut self, op: Op) -> Result<(), String> {
        let nr_cpus = self.fast.machine.cpu_nodes.len();
        let nr_zones = self.fast.zones.len();
        match op {
            Op::Alloc { order, gfp, cpu, node, kind } => {
                let nr_nodes = self.fast.machine.nr_nodes();
                let request = Request {
                    order: Order(order),
                    gfp: gfps()[usize::from(gfp) % gfps().len()],
                    cpu: CpuId(u32::from(cpu) % nr_cpus as u32),
                    node: NodeId(u32::from(node) % nr_nodes as u32),
                    past_lists: false,
                };
                return self.alloc(request, kind);
            }
            Op::Free { which, cpu } => {
                if !self.used.is_empty() {
                    let at = which as usize % self.used.len();
                    let (pfn, order) = self.used.swap_remove(at);
                    let (cpu, cold) = (usize::from(cpu) % nr_cpus, which >> 31 == 1);
                    if cold {
                        self.fast.free_cold(pfn, order, CpuId(cpu as u32));
                    } else {
                        self.fast.free(pfn, order, CpuId(cpu as u32));
                    }
                    if let Some(naive) = &mut self.naive {
                        naive.free(pfn.0, order.0, cpu, cold);
                    }
                }
            }
            Op::Drain { zone, cpu } => {
                let (zone, cpu) = (usize::from(zone) % nr_zones, usize::from(cpu) % nr_cpus);
                self.fast.drain_pcp_zone(ZoneId(zone as u8), CpuId(cpu as u32));
                if let Some(naive) = &mut self.naive {
                    naive.drain_zone(zone, cpu);
                }
            }
            Op::DrainAll => {
                self.fast.drain_all_pages(None);
                if let Some(naive) = &mut self.naive {
                    naive.drain_all();
                }
            }
            Op::Decay { zone, cpu } => {
                let (zone, cpu) = (usize::from(zone) % nr_zones, usize::from(cpu) % nr_cpus);
                self.fast.decay_pcp_high(ZoneId(zone as u8), CpuId(cpu as u32));
                if let Some(naive) = &mut self.naive {
                    naive.decay(zone, cpu);
                }
            }
            Op::Isolate { which } => return self.isolate(which),
            Op::Putback { which } => {
                if !self.isolated.is_empty() {
                    let at = which as usize % self.isolated.len();
                    let (pfn, order) = self.isolated.swap_remove(at);
                    self.fast.putback_isolated_page(pfn, order);
                    if let Some(naive) = &mut self.naive {
                        naive.putback(pfn.0, order.0);
                    }
                }
            }
            Op::Unreserve { zone, migratetype, force } => {
                let zone = usize::from(zone) % nr_zones;
                let migratetype =
                    match (self.fast.policy.freelist.mobility_grouping, migratetype % 3) {
                        (false, _) | (_, 0) => Migratetype::Unmovable,
                        (_, 1) => Migratetype::Movable,
                        _ => Migratetype::Reclaimable,
                    };
                let fast = self.fast.unreserve_highatomic(ZoneId(zone as u8), migratetype, force);
                self.answer(u64::from(fast));
                if let Some(naive) = &mut self.naive {
                    let slow = naive.unreserve_highatomic(zone, migratetype, force);
                    if fast != slow {
                        return Err(format!("unreserve: {fast}, naively {slow}"));
                    }
                }
            }
            Op::Reclaim { zone, active } => {
                let zone = usize::from(zone) % nr_zones;
                self.fast.zones[zone].flags.reclaim_active = active;
                if let Some(naive) = &mut self.naive {
                    naive.zones[zone].reclaim_active = active;
                }
            }
            Op::EndBoost { zone } => {
                let zone = usize::from(zone) % nr_zones;
                self.fast.zones[zone].watermarks.boost = 0;
                self.fast.zones[zone].flags.boosted_watermark = false;
                self.fast.zones[zone].mixed_blocks.clear();
                if let Some(naive) = &mut self.naive {
                    naive.zones[zone].boost = 0;
                    naive.zones[zone].boosted = false;
                    naive.zones[zone].mixed.clear();
                }
            }
        }
        Ok(())
    }

    /// The fast path, then the slow path's marks, then (for some) none or an OOM victim's.
    fn alloc(&mut self, request: Request, kind: u8) -> Result<(), String> {
        let fast_flags = self.fast.fast_path_flags(request);
        let slow = AllocFlags::slow_path(request.gfp, request.order);
        let mut attempts = vec![(Some(Mark::Low), fast_flags), (Some(Mark::Min), slow)];
        let may_stall = self.fast.policy.fallback.stall_order > Order(0)
            && request.gfp.contains(Gfp::MOVABLE | Gfp::DIRECT_RECLAIM);
        if may_stall {
            attempts.insert(1, (Some(Mark::Min), slow | AllocFlags::FRAGMENT_STALL));
        }
        match kind % 8 {
            0 => attempts.push((Some(Mark::Min), slow | AllocFlags::OOM)),
            1 | 2 => attempts.push((None, slow | AllocFlags::NO_WATERMARKS)),
            _ => {}
        }
        if let Some(naive) = &self.naive
            && naive.fast_flags(request) != fast_flags
        {
            return Err(format!("flags: {fast_flags:?}, naively {:?}", naive.fast_flags(request)));
        }
        for (mark, flags) in attempts {
            let fast = self.fast.get_page_from_freelist(request, mark, flags);
            if let Some(naive) = &mut self.naive {
                let slow = naive.walk(request, mark, flags);
                if fast.map(|pfn| pfn.0) != slow {
                    return Err(format!(
                        "{request:?} at {mark:?} {flags:?}: {fast:?}, naively {slow:?}"
                    ));
                }
            }
            self.answer(fast.map_or(u64::MAX, |pfn| u64::from(pfn.0)));
            if let Some(pfn) = fast {
                self.used.push((pfn, request.order));
                break;
            }
        }
        Ok(())
    }

    /// Isolates some free block, as a compactor's free scanner would.
    fn isolate(&mut self, which: u32) -> Result<(), String> {
        let mut blocks = Vec::new();
        for zone in &self.fast.zones {
            for order in (0..NR_PAGE_ORDERS as u8).map(Order) {
                for migratetype in Migratetype::ALL {
                    let list = zone.free_area.list(order, migratetype);
                    blocks.extend(self.fast.frames().iter(list).map(|pfn| (pfn, order)));
                }
            }
        }
        if blocks.is_empty() {
            return Ok(());
        }
        // Half of the time a large one, which changes its pageblock's type.
        let large = self.fast.policy.freelist.pageblock_order.0 - 1;
        if which & 1 == 0 && blocks.iter().any(|b| b.1.0 >= large) {
            blocks.retain(|b| b.1.0 >= large);
        }
        let (pfn, order) = blocks[(which >> 1) as usize % blocks.len()];
        let fast = self.fast.isolate_free_page(pfn, order);
        if fast {
            self.isolated.push((pfn, order));
        }
        self.answer(u64::from(fast));
        if let Some(naive) = &mut self.naive {
            let slow = naive.isolate(pfn.0, order.0);
            if fast != slow {
                return Err(format!("isolate {pfn} order {order}: {fast}, naively {slow}"));
            }
        }
        Ok(())
    }

    /// Frees all that is in use or isolated, and drains every CPU's lists.
    pub(crate) fn free_everything(&mut self) {
        while let Some((pfn, order)) = self.isolated.pop() {
            self.fast.putback_isolated_page(pfn, order);
        }
        while let Some((pfn, order)) = self.used.pop() {
            self.fast.free(pfn, order, CpuId(0));
        }
        self.fast.drain_all_pages(None);
    }

    /// Managed pages are free, on CPU lists, isolated or allocated; and what this scene holds is what
    /// the frame table says.
    ///
    /// # Errors
    /// The zone where pages are missing.
    pub(crate) fn check_conservation(&self) -> Result<(), String> {
        let (mut isolated, mut allocated) = (0, 0);
        for (zone, z) in self.fast.zones.iter().enumerate() {
            let census = self.fast.census(ZoneId(zone as u8))?;
            let sum = census.free + census.pcp + census.isolated + census.allocated;
            if sum != z.managed_pages {
                return Err(format!("zone {zone} manages {}: {census:?}", z.managed_pages));
            }
            isolated += census.isolated;
            allocated += census.allocated;
        }
        let held =
            |blocks: &[(Pfn, Order)]| blocks.iter().map(|b| u64::from(b.1.pages())).sum::<u64>();
        if (held(&self.isolated), held(&self.used)) != (isolated, allocated) {
            return Err(format!(
                "{isolated} isolated, {allocated} allocated; the users hold others"
            ));
        }
        Ok(())
    }

    /// Compares everything the two machines know.
    ///
    /// # Errors
    /// The first difference.
    pub(crate) fn compare(&mut self) -> Result<(), String> {
        let events = self.fast.take_extfrag();
        self.extfrag_seen += events.len() as u64;
        let counts = self.fast.fallbacks();
        if counts.kinds.values().sum::<u64>() != self.extfrag_seen {
            return Err(format!("{} fallbacks, but {counts:?}", self.extfrag_seen));
        }
        for event in &events {
            self.answer(u64::from(event.pfn.0) << 8 | u64::from(event.fallback_order.0));
        }
        let Some(naive) = &mut self.naive else { return Ok(()) };
        let naive_events = std::mem::take(&mut naive.extfrag);
        if events != naive_events {
            return Err(format!("fallbacks: {events:?}\nnaively {naive_events:?}"));
        }
        for (pfn, &page) in naive.pages.iter().enumerate() {
            let head = Pfn(pfn as u32);
            // Inner pages answer for their head.
            let head = match self.fast.frames().state(head) {
                State::Inner => self.fast.frames().head_of(head),
                _ => head,
            };
            let fast = match self.fast.frames().state(head) {
                State::Hole => Page::Absent,
                State::Reserved => Page::Reserved,
                State::Free => Page::Free,
                State::Pcp => Page::OnCpu,
                State::Isolated => Page::Isolated,
                State::Allocated => Page::Used { movable: self.fast.frames().is_movable(head) },
                State::Inner => unreachable!("heads are not inner"),
            };
            if fast != page {
                return Err(format!("page {pfn:#x}: {fast:?}, naively {page:?}"));
            }
            let types = (self.fast.block_type(Pfn(pfn as u32)), naive.block_type(pfn as u32));
            if types.0 != types.1 {
                return Err(format!("pageblock of {pfn:#x}: {:?}, naively {:?}", types.0, types.1));
            }
        }
        for (id, (fast, slow)) in self.fast.zones.iter().zip(&naive.zones).enumerate() {
            for order in (0..NR_PAGE_ORDERS as u8).map(Order) {
                for migratetype in Migratetype::ALL {
                    let list = self.fast.list_blocks(fast.free_area.list(order, migratetype));
                    let list: Vec<u32> = list.into_iter().map(|pfn| pfn.0).collect();
                    let naive_list = &slow.free[order.index()][migratetype.index()];
                    if list != *naive_list {
                        return Err(format!(
                            "zone {id} order {order} {migratetype}: {list:x?}, naively {naive_list:x?}"
                        ));
                    }
                }
            }
            let counts = (fast.nr_free_pages, fast.nr_free_highatomic, fast.nr_reserved_highatomic);
            let naive_counts = (
                slow.nr_free_pages(),
                slow.free_of(Migratetype::HighAtomic),
                slow.reserved_highatomic,
            );
            let flags =
                (fast.flags.boosted_watermark, fast.flags.below_high, fast.watermarks.boost);
            let naive_flags = (slow.boosted, slow.below_high, slow.boost);
            let mixed: Vec<u32> = fast.mixed_blocks.iter().map(|pfn| pfn.0).collect();
            if mixed != slow.mixed {
                return Err(format!("zone {id}: mixed {mixed:x?}, naively {:x?}", slow.mixed));
            }
            let shares = (fast.alloc_batch, fast.flags.fair_depleted);
            if shares != (slow.batch, slow.depleted) {
                return Err(format!(
                    "zone {id}: share left and used up {shares:?}, naively {:?}",
                    (slow.batch, slow.depleted)
                ));
            }
            if counts != naive_counts || flags != naive_flags {
                return Err(format!(
                    "zone {id}: counts {counts:?} flags {flags:?}, naively {naive_counts:?} {naive_flags:?}"
                ));
            }
            for (cpu, (fast, slow)) in fast.pcp.iter().zip(&slow.cpus).enumerate() {
                for number in 0..NR_PCP_LISTS {
                    let list = self.fast.list_blocks(fast.list(number));
                    let list: Vec<_> = list
                        .into_iter()
                        .map(|pfn| (pfn.0, self.fast.frames().order(pfn).0))
                        .collect();
                    let naive_list: Vec<_> =
                        slow.lists[number].iter().map(|kept| (kept.pfn, kept.order)).collect();
                    if list != naive_list {
                        return Err(format!(
                            "zone {id} CPU {cpu} list {number}: {list:x?}, naively {naive_list:x?}"
                        ));
                    }
                }
                let tuning = (fast.high, fast.factor, fast.free_count, fast.count);
                let naive_tuning = (slow.high, slow.factor, slow.free_count, slow.count());
                if (tuning.0.into(), tuning.1.into(), tuning.2.into(), tuning.3.into())
                    != naive_tuning
                {
                    return Err(format!(
                        "zone {id} CPU {cpu} (high, factor, freed, count): {tuning:?}, naively {naive_tuning:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// All free lists of a zone, by order and type.
pub(crate) fn every_list(
    zone: &highorder_mm::zone::Zone,
) -> impl Iterator<Item = &highorder_mm::frame::List> {
    (0..NR_PAGE_ORDERS as u8)
        .flat_map(|order| Migratetype::ALL.map(|mt| zone.free_area.list(Order(order), mt)))
}
