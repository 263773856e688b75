//! The state of the model's memory as `/proc` would tell it.

use super::{compaction, fragmentation, pageblocks};
use highorder_mm::anon::HUGE_ORDER;
use highorder_mm::types::{MAX_PAGE_ORDER, Migratetype};
use highorder_mm::watermark::Mark;
use highorder_mm::zone::{Zone, ZoneId};
use highorder_mm::{Order, Pfn};
use highorder_record::{State, Timeline, ZoneState};
use highorder_sim::kernel::Kernel;
use highorder_sim::kernel::policy::StallRule;
use highorder_sim::{CpuId, Ns, Sim};
use std::collections::BTreeMap;

/// Lines of `/proc/meminfo` that are sampled.
const SAMPLED: [&str; 11] = [
    "MemFree",
    "Buffers",
    "Cached",
    "SwapTotal",
    "SwapFree",
    "SwapCached",
    "AnonPages",
    "SReclaimable",
    "SUnreclaim",
    "KernelStack",
    "PageTables",
];

/// What the counters of pages that reclaim wrote begin with: the event that they add up.
const WRITES: &str = "mm_vmscan_writepage";

/// KiB of a base page.
const PAGE_KIB: u64 = 4;

/// The state at this moment.
pub(super) fn of(kernel: &Kernel) -> State {
    let memory = &kernel.memory;
    let zones = (0..memory.zones.len()).map(|zone| zone_state(kernel, ZoneId(zone as u8)));
    State {
        counters: counters(kernel),
        meminfo: meminfo(kernel),
        nodes: BTreeMap::new(),
        pageblock_order: Some(memory.policy.freelist.pageblock_order.0),
        zones: zones.collect(),
    }
}

/// `/proc/vmstat`, and fallbacks as tracing counts them. `oom_kill`, which kernels have since 4.13
/// (8e675f7af507), is there always.
pub(super) fn counters(kernel: &Kernel) -> BTreeMap<String, u64> {
    let mut counters: BTreeMap<String, u64> = kernel.memory.vmstat().into_iter().collect();
    counters.insert("oom_kill".to_owned(), kernel.oom_kills);
    counters
        .extend(fragmentation::counters(&kernel.memory).map(|(name, nr)| (name.to_owned(), nr)));
    // Reports of the time add the events of reclaim up.
    if kernel.flows.stall.rule == StallRule::CongestionByShare {
        let writes = kernel.reclaim_writes.counts();
        counters.extend(writes.map(|(words, nr)| (format!("{WRITES}_{}", words.join("_")), nr)));
    }
    counters
}

fn meminfo(kernel: &Kernel) -> BTreeMap<String, u64> {
    let memory = &kernel.memory;
    let stats = memory.lru.total_stats();
    let buffers = kernel.nr_buffer_pages();
    let [reclaimable, unreclaimable] = memory.slab_pages();
    let sum = |of: fn(&Zone) -> u64| memory.zones.iter().map(of).sum::<u64>();
    let pages = [
        ("MemTotal", sum(|zone| zone.managed_pages)),
        ("MemFree", sum(|zone| zone.nr_free_pages)),
        ("SwapCached", memory.swap.nr_cached()),
        ("SwapTotal", memory.swap.nr_total()),
        ("SwapFree", memory.swap.nr_free()),
        ("Writeback", stats.nr_writeback),
        ("Buffers", buffers),
        ("Cached", memory.files.nr_pages() - buffers),
        ("Dirty", memory.files.nr_dirty()),
        ("Mapped", stats.nr_file_mapped),
        // Huge pages among them, whatever `nr_anon_pages` says (fs/proc/meminfo.c).
        ("AnonPages", stats.nr_anon_mapped),
        ("AnonHugePages", stats.nr_anon_huge * u64::from(HUGE_ORDER.pages())),
        ("Slab", reclaimable + unreclaimable),
        ("SReclaimable", reclaimable),
        ("SUnreclaim", unreclaimable),
        ("KernelStack", memory.kernel_stack_kib() / PAGE_KIB),
        ("PageTables", stats.nr_page_table),
    ];
    pages.into_iter().map(|(name, pages)| (name.to_owned(), pages * PAGE_KIB)).collect()
}

fn zone_state(kernel: &Kernel, id: ZoneId) -> ZoneState {
    let memory = &kernel.memory;
    let zone = &memory.zones[id.index()];
    let marks = &zone.watermarks;
    let pages = [
        ("free", zone.nr_free_pages),
        ("boost", marks.boost),
        ("min", marks.pages(Mark::Min)),
        ("low", marks.pages(Mark::Low)),
        ("high", marks.pages(Mark::High)),
        ("spanned", u64::from(zone.end.0 - zone.start.0)),
        ("present", zone.present_pages),
        ("managed", zone.managed_pages),
    ];
    let orders = || (0..=MAX_PAGE_ORDER).map(Order);
    let mut by_type = BTreeMap::new();
    for migratetype in Migratetype::ALL {
        let blocks: Vec<u64> = orders()
            .map(|order| u64::from(zone.free_area.list(order, migratetype).len()))
            .collect();
        if migratetype < Migratetype::Cma || blocks.iter().any(|&nr| nr > 0) {
            by_type.insert(migratetype.name().to_owned(), blocks);
        }
    }
    let mut pageblocks: BTreeMap<String, u64> = BTreeMap::new();
    let block = memory.policy.freelist.pageblock_order.pages();
    let mut pfn = zone.start.0;
    while pfn < zone.end.0 {
        let name = memory.block_type(Pfn(pfn)).name().to_owned();
        *pageblocks.entry(name).or_default() += 1;
        pfn = (pfn / block + 1) * block;
    }
    ZoneState {
        node: zone.node.0,
        zone: zone.kind.name().to_owned(),
        pages: pages.into_iter().map(|(name, pages)| (name.to_owned(), pages)).collect(),
        protection_pages: zone.lowmem_reserve.to_vec(),
        counters: BTreeMap::new(),
        free_blocks: orders().map(|order| u64::from(zone.free_area.nr_free(order))).collect(),
        free_blocks_by_migratetype: by_type,
        pageblocks,
        pageblock_use: Some(pageblocks::uses(kernel, id)),
    }
}

/// Takes samples for a timeline.
pub(super) struct Sampler {
    /// Columns of each zone.
    zones: Vec<ZoneColumns>,
}

/// The names of a zone's columns.
struct ZoneColumns {
    /// Free pages, and the marks: min, low, high.
    pages: [String; 4],
    /// Free blocks of each order, named as a real kernel's (`/proc/buddyinfo`) are.
    blocks: Vec<String>,
}

impl ZoneColumns {
    fn new(zone: &Zone) -> Self {
        let (node, kind) = (zone.node, zone.kind.name());
        let pages = ["free_pages", "watermark_min", "watermark_low", "watermark_high"]
            .map(|what| format!("{what}/{node}/{kind}"));
        let block = |order| format!("buddyinfo {node} {kind} {order:02}");
        Self { pages, blocks: (0..=MAX_PAGE_ORDER).map(block).collect() }
    }
}

impl Sampler {
    pub(super) fn new(kernel: &Kernel) -> Self {
        Self { zones: kernel.memory.zones.iter().map(ZoneColumns::new).collect() }
    }

    /// Adds a sample, unless there is one of this moment.
    pub(super) fn sample(&mut self, sim: &Sim<Kernel>, now: Ns, timeline: &mut Timeline) {
        if timeline.time_ns.last().is_some_and(|&last| last >= now.0) {
            return;
        }
        let kernel = sim.world();
        let memory = &kernel.memory;
        let vmstat = memory.vmstat();
        let meminfo = meminfo(kernel);
        let mut values: Vec<(&str, u64)> =
            vmstat.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        values.push(("oom_kill", kernel.oom_kills));
        for (name, nr) in fragmentation::counters(memory) {
            values.push((name, nr));
        }
        for name in SAMPLED {
            values.push((name, meminfo[name]));
        }
        for (columns, zone) in self.zones.iter().zip(&memory.zones) {
            let [free, min, low, high] = &columns.pages;
            values.push((free, zone.nr_free_pages));
            values.push((min, zone.watermarks.pages(Mark::Min)));
            values.push((low, zone.watermarks.pages(Mark::Low)));
            values.push((high, zone.watermarks.pages(Mark::High)));
            for (order, column) in (0..).map(Order).zip(&columns.blocks) {
                values.push((column, u64::from(zone.free_area.nr_free(order))));
            }
        }
        let totals = kernel.compaction_totals();
        let of_zones = |of: fn(&Zone) -> u64| memory.zones.iter().map(of).sum();
        for (name, value) in [
            (compaction::SEARCH_NS, totals.free_search.0),
            (compaction::RUNS_NS, totals.all.0),
            (compaction::HELD_PAGES, totals.held_pages),
            (compaction::SPLIT, of_zones(|zone| zone.compact.nr_split)),
            (compaction::MOVED_AGAIN, of_zones(|zone| zone.compact.nr_moved_again)),
        ] {
            values.push((name, value));
        }
        let [running, blocked, switches] = sim.activity();
        values.extend([("procs_running", running), ("procs_blocked", blocked), ("ctxt", switches)]);
        let mut cpu = [Ns::ZERO; 4];
        for number in 0..sim.nr_cpus() as u32 {
            let times = sim.cpu_times(CpuId(number));
            for (sum, part) in
                cpu.iter_mut().zip([times.user, times.system, times.idle, times.iowait])
            {
                *sum += part;
            }
        }
        let names = ["cpu_user_ns", "cpu_system_ns", "cpu_idle_ns", "cpu_iowait_ns"];
        values.extend(names.into_iter().zip(cpu.map(|time| time.0)));
        timeline.push(now.0, values);
    }
}
