//! How many contiguous blocks of one size a machine's memory has, and could have.
//!
//! Three ways lead to a block. The buddy allocator hands out what is free, up to its largest order. Compaction moves pages
//! together until its scanners meet: the model's own, on the restored state. `alloc_contig_range` empties a stretch that it
//! was given, whatever its size: every page in it has to be free or movable, and there has to be room elsewhere.
//!
//! Models: `zone_watermark_ok`, mm/page_alloc.c, v6.12, for how much of what is free a request may take;
//! `has_unmovable_pages`, mm/page_isolation.c, and `pfn_range_valid_contig`, mm/page_alloc.c, v6.12, for what a stretch
//! may hold.
//! Departs: compaction alone reclaims nothing: see [`Gone::Caches`]. Visible as: where there is page cache
//! `vm.nr_hugepages` gives more, as the way that asks for huge pages says.

use crate::Failed;
use crate::compact_memory::{self, assumed_of};
use crate::free_running::uses_of;
use crate::machine::restore;
use crate::residents::with_residents;
use crate::start::machine_like;
use crate::what_if::{Knobs, completed, present_knobs};
use highorder_files::limits;
use highorder_input::InputError;
use highorder_kernelfs::{PageFlags, Settings};
use highorder_kernels::KernelFile;
use highorder_mm::Memory;
use highorder_mm::alloc::Request;
use highorder_mm::buddy::FreeTo;
use highorder_mm::compaction::CompactRequest;
use highorder_mm::fast_search::MigrateMode;
use highorder_mm::frame::State;
use highorder_mm::gfp::{AllocFlags, Gfp};
use highorder_mm::types::{CpuId, MAX_PAGE_ORDER, Migratetype, NodeId, Order, Pfn, ZoneKind};
use highorder_mm::watermark::Mark;
use highorder_mm::zone::{Zone, ZoneId};
use highorder_model::{Found, ModelSpec, run_from};
use highorder_record::Inputs;
use highorder_report::{BlockPlace, UseClass};
use highorder_sim::Machine;
use highorder_sim::sched::TICK;
use highorder_snapshot::{Exactness, FrameUse, Snapshot};
use highorder_system::{Code, KernelBlock, Ns};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a base page.
const PAGE_BYTES: u64 = 4096;

/// How often a request of a costly order compacts again (`MAX_COMPACT_RETRIES` is 16, of which costly orders get a
/// quarter; mm/page_alloc.c, v6.12).
const COMPACT_RETRIES: u32 = 16 / 4;

/// A size in base pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(u64);

impl Size {
    /// A block of this order.
    #[must_use]
    pub const fn of_order(order: u8) -> Self {
        Self(1 << order)
    }

    /// A size in words: a number with K, M, G or T behind it, powers of 1024.
    ///
    /// # Errors
    /// What was found and what was expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let refuse = || {
            format!(
                "found `{text}`, expected a size in whole pages of 4 KiB, such as 64K, 2M or 1G"
            )
        };
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let shift = match unit.trim().trim_end_matches("iB").trim_end_matches('B') {
            "K" | "k" => 10,
            "M" => 20,
            "G" => 30,
            "T" => 40,
            "" => 0,
            _ => return Err(refuse()),
        };
        let bytes = number.parse().ok().and_then(|n: u64| n.checked_mul(1 << shift));
        let most = limits::FRAMES.most * PAGE_BYTES;
        match bytes {
            Some(bytes) if bytes > 0 && bytes % PAGE_BYTES == 0 && bytes <= most => {
                Ok(Self(bytes / PAGE_BYTES))
            }
            _ => Err(refuse()),
        }
    }

    /// In base pages.
    #[must_use]
    pub const fn pages(self) -> u64 {
        self.0
    }

    /// The order, where the buddy allocator has blocks of this size.
    #[must_use]
    pub fn order(self) -> Option<Order> {
        let order = self.0.ilog2();
        let is_block = self.0.is_power_of_two() && order <= u32::from(MAX_PAGE_ORDER);
        is_block.then_some(Order(order as u8))
    }

    /// From one place where such a block may begin to the next: its size if that is a power of two, else a pageblock.
    fn step(self, pageblock: Order) -> u64 {
        if self.0.is_power_of_two() { self.0 } else { u64::from(pageblock.pages()) }
    }
}

/// What is taken to be gone from memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gone {
    /// Page cache that is clean and that nobody maps or holds, and all reclaimable slab: the most that writing 3 to
    /// `vm.drop_caches` can free.
    Caches,
    /// All pages of these uses.
    Uses(Vec<UseClass>),
    /// These frames, and whose they were.
    Frames(String, Vec<Pfn>),
}

impl Gone {
    fn name(&self) -> String {
        match self {
            Self::Caches => "caches dropped".to_owned(),
            Self::Uses(uses) => {
                let names: Vec<_> = uses.iter().map(|class| class.key()).collect();
                format!("without {}", names.join(", "))
            }
            Self::Frames(whose, _) => format!("without {whose}"),
        }
    }
}

/// What can be had in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// Which, in words.
    pub name: String,
    /// Blocks.
    pub blocks: u64,
    /// Of them, what a movable request may take before a zone is at its min mark; `None` where marks do not decide.
    pub above_min: Option<u64>,
}

/// One kind of page that keeps blocks from being had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocker {
    /// Blocks in which it lies.
    pub blocks: u64,
    /// Blocks in which nothing else stays.
    pub alone: u64,
    /// Its pages in these blocks.
    pub pages: u64,
}

/// Blocks in pageblocks of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfType {
    /// All.
    pub blocks: u64,
    /// Free in the end.
    pub free: u64,
    /// With pages that could move, and did not.
    pub movable: u64,
    /// With pages that stay.
    pub blocked: u64,
}

/// The blocks of a zone from its first frame on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneBlocks {
    /// `Node 0, zone DMA32`.
    pub name: String,
    /// What became of each.
    pub blocks: Vec<BlockPlace>,
}

/// What can be had of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attainable {
    /// The size.
    pub size: Size,
    /// Blocks of this size that there is memory for.
    pub blocks: u64,
    /// How many can be had, by way.
    pub ways: Vec<Way>,
    /// What keeps the others from being had; the kind that blocks most first. Empty where it is not known what lies where.
    pub blockers: Vec<(UseClass, Blocker)>,
    /// The same by type of pageblock; empty for sizes above a pageblock.
    pub types: Vec<(Migratetype, OfType)>,
    /// Where.
    pub zones: Vec<ZoneBlocks>,
    /// What was assumed, what is not known, and what a kernel of this release can do, a sentence each.
    pub notes: Vec<String>,
}

/// What can be had of a size in a machine's memory, as it is, after compaction, and with more gone. `settings` are its
/// knobs, where they are known; work costs what it costs on the machine `costs_of`.
///
/// # Errors
/// A machine that the model has no room for, pageblocks of another order than the kernel's, or something that is to be
/// gone where it is not known what lies where; or the model cannot go on.
pub fn attainable(
    snapshot: &Snapshot,
    kernel: &KernelFile,
    size: Size,
    gone: &[Gone],
    settings: Option<&Settings>,
    costs_of: &Machine,
) -> Result<Attainable, Failed> {
    if snapshot.exactness == Exactness::Counts {
        return of_counts(snapshot, kernel, size, gone).map_err(Failed::from);
    }
    let (memory, mut uses) = compact_memory::restored(snapshot, kernel)?;
    let as_it_is = Restored::new(memory.clone(), uses.clone());
    let mut emptied = vec![Way {
        name: "a range emptied for each (alloc_contig_range)".to_owned(),
        blocks: as_it_is.ranges(snapshot, size, Moving::Pages),
        above_min: None,
    }];
    let mut states = vec![("as it is".to_owned(), as_it_is)];
    let caches = [Gone::Caches];
    for scenario in std::iter::once(None).chain(caches.iter().chain(gone).map(Some)) {
        let mut state = Restored::new(memory.clone(), uses.clone());
        let mut name = "after compaction".to_owned();
        if let Some(gone) = scenario {
            state.end(snapshot, gone);
            emptied.push(Way {
                name: format!("{}, a range emptied for each", gone.name()),
                blocks: state.ranges(snapshot, size, Moving::Pages),
                above_min: None,
            });
            name = format!("{}, {name}", gone.name());
        }
        state.compact(snapshot);
        states.push((name, state));
    }
    mark_held(snapshot, &mut uses);
    let survey = Survey::of(&memory, &uses, &states[1].1.memory, size);
    let mut notes = assumed_of(snapshot);
    let mut ways: Vec<_> = states
        .iter()
        .map(|(name, state)| match size.order() {
            Some(order) => of_buddy(name, &state.memory, order),
            None => {
                let blocks = state.ranges(snapshot, size, Moving::Nothing);
                Way { name: name.clone(), blocks, above_min: None }
            }
        })
        .collect();
    if let Some(order) = size.order().filter(|order| *order >= snapshot.pageblock_order) {
        let (name, blocks) = if order == snapshot.pageblock_order {
            (UNTIL_NO_MORE, pool_of(snapshot, kernel, settings, costs_of, &mut notes)?)
        } else {
            let blocks = states[1].1.clone().ask_for_all(order);
            ("asked for until there are no more, compacting for each", blocks)
        };
        ways.push(Way { name: name.to_owned(), blocks, above_min: None });
    }
    ways.append(&mut emptied);
    notes.extend(of_release(kernel, size));
    Ok(survey.told(size, ways, notes))
}

/// Blocks of a size that a recorded state has free; none for sizes that the allocator has no blocks of.
#[must_use]
pub fn of_recorded(state: &Snapshot, size: Size) -> Option<u64> {
    let order = size.order()?;
    let blocks = state.zones.iter().flat_map(|zone| &zone.free);
    let large = blocks.filter(|block| block.order >= order && is_for_all(block.migratetype));
    Some(large.map(|block| 1 << (block.order.0 - order.0)).sum())
}

/// What counts tell: how many are free now, and nothing of what lies where.
fn of_counts(
    snapshot: &Snapshot,
    kernel: &KernelFile,
    size: Size,
    gone: &[Gone],
) -> Result<Attainable, InputError> {
    let Some(order) = size.order().filter(|_| gone.is_empty()) else {
        let message = "found a state of exactness counts, expected frames or lists: counts say how many blocks of \
                       the allocator's orders are free now, not where pages lie";
        return Err(InputError::other(message));
    };
    let (memory, _) = compact_memory::restored(snapshot, kernel)?;
    let pages: u64 = memory.zones.iter().map(|zone| zone.present_pages).sum();
    let note = "only counts are known (as root more is): what compaction would give, and what blocks the rest, \
                depends on where pages lie";
    Ok(Attainable {
        size,
        blocks: pages / size.pages(),
        ways: vec![of_buddy("as it is", &memory, order)],
        blockers: Vec::new(),
        types: Vec::new(),
        zones: Vec::new(),
        notes: vec![note.to_owned()],
    })
}

/// The way that asks for huge pages.
pub const UNTIL_NO_MORE: &str = "asked for until there are no more (vm.nr_hugepages)";

/// How often the same is asked for, from as many moments between two ticks of the timer. Our choice: an odd number, so
/// that one answer is in the middle.
const MOMENTS: u64 = 9;

/// Huge pages for the hugetlb pool, asked for one by one until there are no more, once all zones were compacted: with all
/// that a kernel does for each, in the whole model. The one in the middle of what comes of it from several moments; if
/// they differ, that is noted. What it takes of time is nobody's question here.
///
/// A request that compacts in vain sixteen times fails, unless kswapd has its turn on a CPU meanwhile. So where there is
/// page cache it is a matter of when ticks fall how many there come to be, here as on real machines.
fn pool_of(
    snapshot: &Snapshot,
    kernel: &KernelFile,
    settings: Option<&Settings>,
    costs_of: &Machine,
    notes: &mut Vec<String>,
) -> Result<u64, Failed> {
    let knobs = match settings {
        Some(settings) => present_knobs(settings, kernel, notes),
        None => {
            let note = "what is asked for reclaims under the settings that a kernel has at boot: the state does not \
                        tell its own";
            notes.push(note.to_owned());
            Knobs::new()
        }
    };
    let machine = machine_like(snapshot, &[], costs_of, &mut Vec::new())?;
    let memory = restore(snapshot, kernel, &machine.cpu_nodes())?;
    let mut pools = Vec::new();
    for moment in 0..MOMENTS {
        let spec = ModelSpec {
            machine: machine.clone(),
            policy: kernel.policy.clone(),
            flows: kernel.flows.clone(),
            knobs: knobs.clone(),
            seed: 0,
            demands: Vec::new(),
            sample_interval: Ns::from_secs(3600),
            draw: None,
            watch: None,
        };
        let found = with_residents(snapshot, memory.clone());
        pools.push(pool_after(Ns(TICK.0 * moment / MOMENTS), found, spec)?);
    }
    pools.sort_unstable();
    let (least, most) = (pools[0], pools[pools.len() - 1]);
    if most > least {
        notes.push(format!(
            "vm.nr_hugepages comes to {least} to {most} from {MOMENTS} moments between two ticks of the timer, where \
             work costs what it costs on the machine `{}`: a request gives up if kswapd has no CPU while it tries",
            costs_of.name
        ));
    }
    Ok(pools[pools.len() / 2])
}

/// Huge pages that a machine gives until there are no more, asked for this long after all zones were compacted.
fn pool_after(wait: Ns, found: Found, spec: ModelSpec) -> Result<u64, Failed> {
    let given = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&given);
    let ask: Code = Box::new(move |sys| {
        sys.set_knob("vm.compact_memory", "1")?;
        sys.sleep(wait)?;
        while sys.take_block(KernelBlock::Hugetlb)?.is_some() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    });
    completed("vm.nr_hugepages", run_from(found, spec, Inputs::default(), ask))?;
    Ok(given.load(Ordering::Relaxed))
}

/// A state of memory, with what each frame is used for.
#[derive(Clone)]
struct Restored {
    memory: Memory,
    uses: Vec<FrameUse>,
}

/// What may be moved to empty a stretch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moving {
    Nothing,
    Pages,
}

impl Restored {
    fn new(memory: Memory, uses: Vec<FrameUse>) -> Self {
        Self { memory, uses }
    }

    /// Frees what is gone.
    fn end(&mut self, snapshot: &Snapshot, gone: &Gone) {
        match gone {
            Gone::Caches => self.free_where(|pfn, usage| is_cache(snapshot, pfn, usage)),
            Gone::Uses(classes) => {
                let pageblock = self.memory.policy.freelist.pageblock_order;
                self.free_where(|_, usage| classes.contains(&UseClass::of(usage, pageblock)));
            }
            Gone::Frames(_, frames) => self.free_where(|pfn, _| frames.binary_search(&pfn).is_ok()),
        }
    }

    fn free_where(&mut self, goes: impl Fn(Pfn, FrameUse) -> bool) {
        let mut pfn = Pfn(0);
        while pfn.index() < self.uses.len() {
            let frames = self.memory.frames();
            let (state, order) = (frames.state(pfn), frames.order(pfn));
            let pages = if state == State::Inner { 1 } else { order.pages() };
            if state == State::Allocated && goes(pfn, self.uses[pfn.index()]) {
                let zone = self.memory.zone_of(pfn);
                self.memory.free_to_buddy(zone, pfn, order, FreeTo::Policy);
                self.uses[pfn.index()..][..pages as usize].fill(FrameUse::Free(0));
            }
            pfn.0 += pages;
        }
    }

    fn compact(&mut self, snapshot: &Snapshot) {
        compact_memory::list_user_pages(&mut self.memory, snapshot, &self.uses);
        compact_memory::compact_zones(&mut self.memory, &mut self.uses);
    }

    /// Takes blocks one by one as `vm.nr_hugepages` does, each after as much direct compaction as such a request makes.
    ///
    /// Models: `__alloc_pages_slowpath` and `should_compact_retry`, mm/page_alloc.c, v6.12, for `__GFP_RETRY_MAYFAIL`: a
    /// costly order compacts synchronously but for writeback, at first and once more for each of
    /// [`COMPACT_RETRIES`] retries.
    /// Models: `__alloc_pages_direct_reclaim`, mm/page_alloc.c, v6.12: where a retry got nothing, what lies on per-CPU lists
    /// goes back to the free lists.
    /// Departs: nothing is reclaimed meanwhile. Visible as: fewer blocks where there is page cache.
    fn ask_for_all(&mut self, order: Order) -> u64 {
        let gfp = Gfp::HIGHUSER_MOVABLE | Gfp::COMP | Gfp::NOWARN | Gfp::RETRY_MAYFAIL;
        let nodes = (0..self.memory.machine.nodes.len() as u32).map(NodeId);
        nodes
            .map(|node| {
                let request = Request { order, gfp, cpu: CpuId(0), node, past_lists: false };
                let mut blocks = 0;
                while self.ask_for_one(request) {
                    blocks += 1;
                }
                blocks
            })
            .sum()
    }

    fn ask_for_one(&mut self, request: Request) -> bool {
        let flags = AllocFlags::slow_path(request.gfp, request.order);
        let zones = self.memory.zones_for(request.node, request.gfp);
        for _ in 0..=1 + COMPACT_RETRIES {
            if self.memory.get_page_from_freelist(request, Some(Mark::Min), flags).is_some() {
                return true;
            }
            for zone in &zones {
                let (mode, cpu) = (MigrateMode::SyncLight, request.cpu);
                let run =
                    CompactRequest::direct(*zone, request.order, request.gfp, mode, cpu, false);
                compact_memory::compact_zone(&mut self.memory, run, &mut self.uses);
            }
            self.memory.drain_all_pages(None);
        }
        false
    }

    /// Stretches of this size that are free, or that can be emptied into what is free beside them: one costs as many free
    /// pages as it has, wherever they are, and those below the min marks are nobody's.
    fn ranges(&self, snapshot: &Snapshot, size: Size, moving: Moving) -> u64 {
        let mut in_use = self.uses.clone();
        mark_held(snapshot, &mut in_use);
        let uses = uses_of(&self.memory, |pfn| in_use[pfn.index()]);
        let pageblock = self.memory.policy.freelist.pageblock_order;
        let (mut free, mut movable) = (0, 0);
        for zone in &self.memory.zones {
            let mut at = first_place(zone, size, pageblock);
            while at + size.pages() <= u64::from(zone.end.0) {
                let frames = &uses[at as usize..][..size.pages() as usize];
                let is_free = frames.iter().all(|usage| is_free(*usage));
                let can_be = moving == Moving::Pages && frames.iter().all(|usage| !stays(*usage));
                free += u64::from(is_free);
                movable += u64::from(can_be && !is_free);
                at += if is_free || can_be { size.pages() } else { 0 };
                at = (at + u64::from(!(is_free || can_be))).next_multiple_of(size.step(pageblock));
            }
        }
        let spare =
            |zone: &Zone| zone.nr_free_pages.saturating_sub(zone.watermarks.pages(Mark::Min));
        let spare: u64 = self.memory.zones.iter().map(spare).sum();
        free + movable.min((spare / size.pages()).saturating_sub(free))
    }
}

/// The first place in a zone where such a block may begin.
fn first_place(zone: &Zone, size: Size, pageblock: Order) -> u64 {
    u64::from(zone.start.0).next_multiple_of(size.step(pageblock))
}

const fn is_free(usage: FrameUse) -> bool {
    matches!(usage, FrameUse::Free(_) | FrameUse::PerCpu)
}

/// Whether a page stays where it is, whoever wants its place.
fn stays(usage: FrameUse) -> bool {
    let can_move = matches!(
        usage,
        FrameUse::Anon
            | FrameUse::File
            | FrameUse::FileMapped
            | FrameUse::Buffers
            | FrameUse::Huge
            | FrameUse::Hugetlb
    );
    !is_free(usage) && !can_move
}

/// Notes which pages of user memory somebody holds besides their mappings: they stay.
fn mark_held(snapshot: &Snapshot, uses: &mut [FrameUse]) {
    for (pfn, usage) in (0..).map(Pfn).zip(uses) {
        let is_base = matches!(
            *usage,
            FrameUse::Anon | FrameUse::File | FrameUse::FileMapped | FrameUse::Buffers
        );
        if is_base && compact_memory::others_that_hold(snapshot, pfn, flags_of(snapshot, pfn)) > 0 {
            *usage = FrameUse::Pinned;
        }
    }
}

fn flags_of(snapshot: &Snapshot, pfn: Pfn) -> PageFlags {
    PageFlags::from_bits_retain(snapshot.kpageflags.get(pfn.index()).copied().unwrap_or(0))
}

/// Whether dropping caches frees a page (`drop_pagecache_sb` and `drop_slab`, fs/drop_caches.c, v6.12): not what is dirty,
/// being written or read, mapped, locked in, held, or has no file to be read from again.
fn is_cache(snapshot: &Snapshot, pfn: Pfn, usage: FrameUse) -> bool {
    let keeps = PageFlags::DIRTY
        | PageFlags::WRITEBACK
        | PageFlags::LOCKED
        | PageFlags::MMAP
        | PageFlags::ANON
        | PageFlags::SWAPBACKED
        | PageFlags::UNEVICTABLE;
    let flags = flags_of(snapshot, pfn);
    match usage {
        FrameUse::SlabReclaimable => true,
        FrameUse::Huge => !flags.intersects(keeps),
        FrameUse::File | FrameUse::Buffers => {
            !flags.intersects(keeps) && compact_memory::others_that_hold(snapshot, pfn, flags) <= 0
        }
        _ => false,
    }
}

/// What the buddy allocator has of an order, and how much of it a movable request gets before zones are at their min
/// marks. What is reserved for atomic requests is not counted.
fn of_buddy(name: &str, memory: &Memory, order: Order) -> Way {
    let (mut blocks, mut above_min) = (0, 0);
    for (id, zone) in (0..).map(ZoneId).zip(&memory.zones) {
        let in_zone = free_blocks(zone, order);
        let mark = zone.watermarks.pages(Mark::Min);
        let may_take = |taken: &u64| {
            let left = zone.nr_free_pages - taken * u64::from(order.pages());
            let flags = AllocFlags::empty();
            memory.watermark_ok_with(id, order, mark, ZoneKind::Movable, flags, left)
        };
        above_min += (0..in_zone).take_while(may_take).count() as u64;
        blocks += in_zone;
    }
    Way { name: name.to_owned(), blocks, above_min: Some(above_min) }
}

fn free_blocks(zone: &Zone, order: Order) -> u64 {
    let types = Migratetype::ALL.into_iter().filter(|of| is_for_all(*of));
    let orders = (order.0..=MAX_PAGE_ORDER).map(Order);
    let lists = orders.flat_map(|from| types.clone().map(move |of| (from, of)));
    lists
        .map(|(from, of)| u64::from(zone.free_area.list(from, of).len()) << (from.0 - order.0))
        .sum()
}

/// Whether blocks of a type serve any request that may use movable memory.
const fn is_for_all(migratetype: Migratetype) -> bool {
    !matches!(migratetype, Migratetype::HighAtomic | Migratetype::Isolate)
}

/// What the blocks of a size hold.
struct Survey {
    blocks: u64,
    blockers: BTreeMap<UseClass, Blocker>,
    types: BTreeMap<Migratetype, OfType>,
    zones: Vec<ZoneBlocks>,
}

impl Survey {
    /// What stays is told from the state before, what is free from the one after compaction.
    fn of(before: &Memory, uses: &[FrameUse], after: &Memory, size: Size) -> Self {
        let pageblock = before.policy.freelist.pageblock_order;
        let in_use = uses_of(before, |pfn| uses[pfn.index()]);
        let free = uses_of(after, |_| FrameUse::Unknown);
        let mut survey = Self {
            blocks: 0,
            blockers: BTreeMap::new(),
            types: BTreeMap::new(),
            zones: Vec::new(),
        };
        for zone in &before.zones {
            let name = format!("Node {}, zone {}", zone.node, zone.kind);
            let mut blocks = Vec::new();
            let mut at = first_place(zone, size, pageblock);
            while at + size.pages() <= u64::from(zone.end.0) {
                let range = at as usize..(at + size.pages()) as usize;
                let is_had = free[range.clone()].iter().all(|usage| is_free(*usage));
                let place = survey.block(&in_use[range], is_had, pageblock);
                if size.pages() <= u64::from(pageblock.pages()) && place != BlockPlace::Absent {
                    survey.count_type(before.block_type(Pfn(at as u32)), place);
                }
                blocks.push(place);
                at = (at + 1).next_multiple_of(size.pages().max(size.step(pageblock)));
            }
            if blocks.iter().any(|place| *place != BlockPlace::Absent) {
                survey.zones.push(ZoneBlocks { name, blocks });
            }
        }
        survey
    }

    /// Counts a block, and says what became of it.
    fn block(&mut self, uses: &[FrameUse], is_had: bool, pageblock: Order) -> BlockPlace {
        let has = |unwanted: FrameUse| uses.contains(&unwanted);
        if has(FrameUse::Hole) || uses.iter().all(|usage| *usage == FrameUse::Reserved) {
            return BlockPlace::Absent;
        }
        self.blocks += 1;
        let mut staying: BTreeMap<UseClass, u64> = BTreeMap::new();
        for usage in uses.iter().filter(|usage| stays(**usage)) {
            *staying.entry(UseClass::of(*usage, pageblock)).or_default() += 1;
        }
        for (class, pages) in &staying {
            let blocker = self.blockers.entry(*class).or_default();
            blocker.blocks += 1;
            blocker.alone += u64::from(staying.len() == 1);
            blocker.pages += pages;
        }
        match staying.into_iter().max_by_key(|(class, pages)| (*pages, *class)) {
            Some((class, _)) => BlockPlace::Blocked(class),
            None if is_had => BlockPlace::Free,
            None => BlockPlace::Movable,
        }
    }

    fn count_type(&mut self, migratetype: Migratetype, place: BlockPlace) {
        let of = self.types.entry(migratetype).or_default();
        of.blocks += 1;
        match place {
            BlockPlace::Free => of.free += 1,
            BlockPlace::Movable => of.movable += 1,
            BlockPlace::Blocked(_) => of.blocked += 1,
            BlockPlace::Absent => {}
        }
    }

    fn told(self, size: Size, ways: Vec<Way>, notes: Vec<String>) -> Attainable {
        let mut blockers: Vec<_> = self.blockers.into_iter().collect();
        blockers.sort_by_key(|(class, blocker)| (std::cmp::Reverse(blocker.blocks), *class));
        Attainable {
            size,
            blocks: self.blocks,
            ways,
            blockers,
            types: self.types.into_iter().collect(),
            zones: self.zones,
            notes,
        }
    }
}

/// What a kernel of this release can do for such a size, as far as it decides the answer.
fn of_release(kernel: &KernelFile, size: Size) -> Vec<String> {
    let mut numbers = kernel.release.split(['.', '-']).map(|n| n.parse().unwrap_or(0u32));
    let release = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let mut notes = vec![
        "a range is emptied by alloc_contig_range, in any zone: pages of user memory and of the page cache move; \
         slab, page tables, other kernel memory, and pages that somebody holds do not, and neither does what is \
         reserved. Contiguous memory areas (CMA) and hugetlb pages above the allocator's largest order are had so"
            .to_owned(),
    ];
    if size.order().is_none() {
        // hugetlb: add support for gigantic page allocation at runtime, commit 944d9fec8d7a, in 3.16.
        notes.push(match release >= (3, 16) {
            true => "hugetlb pages of 1 GiB can be had while the machine runs since Linux 3.16"
                .to_owned(),
            false => format!("Linux {} has hugetlb pages of 1 GiB at boot alone", kernel.release),
        });
    }
    // mm: make alloc_contig_range handle free hugetlb pages, and in-use ones, commits 369fa227c219 and
    // ae37c7ff79f1, in 5.13.
    if release < (5, 13) {
        notes.push(format!(
            "Linux {} does not move hugetlb pages out of a range; here they are",
            kernel.release
        ));
    }
    notes
}
