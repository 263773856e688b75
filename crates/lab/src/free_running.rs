//! Free-running replay: only the demand comes from a recording, every choice is the model's own.
//!
//! Models: nothing of its own; it feeds `highorder-mm` with what a kernel's users asked for.
//! Departs: nobody reclaims or compacts but when the recorded machine did; a request that finds nothing
//! fails and is counted. Compaction's targets are taken where the kernel took them, or as near below as
//! something is free, and a search of the free lists turns them to the kernel's block where that is on
//! them; a block that a request captured from its compaction is the kernel's too, if it is free.
//! Departs: what no event tells is taken from what the recorded machine did. A request begins at the node,
//! and at the mark, that led to the zone which served it (memory policies are not recorded). Drains that no
//! free caused are as large as recorded, under every kernel's rules; under the recorded one's, the mark of a
//! CPU's lists is lowered or raised where the recorded one showed itself. Lists count as locked where blocks went past
//! them. Visible as: less difference between two kernels' rules than there would be.

use crate::future::Future;
use crate::lockstep::compaction::Compactions;
use crate::lockstep::follow::{Demand, Follower, Path, boosts_of, note_reclaim};
use crate::recording::{Event, Kind, Recording};
use crate::{machine, memory_map};
use highorder_input::InputError;
use highorder_kernels::KernelFile;
use highorder_mm::CpuId;
use highorder_mm::alloc::Request;
use highorder_mm::buddy::FreeTo;
use highorder_mm::fallback::Extfrag;
use highorder_mm::frame::State;
use highorder_mm::memory::Memory;
use highorder_mm::pcp::Drain;
use highorder_mm::types::{
    Migratetype, NR_MIGRATETYPES, NR_PAGE_ORDERS, NodeId, Order, Pfn, ZoneKind,
};
use highorder_mm::zone::ZoneId;
use highorder_snapshot::{FrameUse, Snapshot};
use std::collections::{BTreeMap, BTreeSet};

/// Points in time at which the states are looked at.
const NR_SAMPLES: u64 = 240;

/// How a request was served from another type's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FallbackWay {
    /// A whole pageblock or more changed its type: nothing mixes.
    WholePageblock,
    /// A pageblock in use changed its type.
    Claim,
    /// A block was taken from a pageblock that stays what it is.
    Steal,
}

impl FallbackWay {
    /// For people.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::WholePageblock => "takes over a whole pageblock",
            Self::Claim => "takes over a pageblock in use",
            Self::Steal => "takes a block, the pageblock stays",
        }
    }

    /// Whether pageblocks of two types mix.
    #[must_use]
    pub const fn is_fragmenting(self) -> bool {
        !matches!(self, Self::WholePageblock)
    }

    pub(crate) fn of(found: Order, pageblock: Order, change_ownership: bool) -> Self {
        match change_ownership {
            _ if found >= pageblock => Self::WholePageblock,
            true => Self::Claim,
            false => Self::Steal,
        }
    }
}

/// Total variation distance, 0 to 1, of two distributions of blocks over places, where a block counts as much
/// as `weight` says.
pub(crate) fn variation<K: Ord>(
    a: &BTreeMap<K, u64>,
    b: &BTreeMap<K, u64>,
    weight: impl Fn(&K) -> u64,
) -> f64 {
    let all = |blocks: &BTreeMap<K, u64>| -> u64 {
        blocks.iter().map(|(kind, nr)| nr * weight(kind)).sum::<u64>().max(1)
    };
    let (a_all, b_all) = (all(a) as f64, all(b) as f64);
    let share = |blocks: &BTreeMap<K, u64>, kind: &K, all: f64| {
        blocks.get(kind).map_or(0.0, |nr| (nr * weight(kind)) as f64 / all)
    };
    let kinds: BTreeSet<_> = a.keys().chain(b.keys()).collect();
    let apart = |kind| (share(a, kind, a_all) - share(b, kind, b_all)).abs();
    kinds.into_iter().map(apart).sum::<f64>() / 2.0
}

/// A kind of fallback: how, the type asked for, the type found.
pub type FallbackKind = (FallbackWay, Migratetype, Migratetype);

/// The place of free memory: node and zone, order, type.
pub type FreeKind = (NodeId, ZoneKind, Order, Migratetype);

/// A state at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Since the first event.
    pub seconds: f64,
    /// Pages in free blocks.
    pub free_pages: u64,
    /// Of them, pages in blocks of a pageblock or more.
    pub huge_pages: u64,
    /// Fallbacks so far that mixed pageblocks.
    pub fragmenting: u64,
}

/// A machine at the end of a recording: the recorded one, or the model of it.
#[derive(Clone, Debug)]
pub struct Side {
    /// Its name.
    pub name: String,
    /// Order of a pageblock.
    pub pageblock_order: Order,
    /// Free blocks by place.
    pub free_blocks: BTreeMap<FreeKind, u64>,
    /// What every frame is used for.
    pub uses: Vec<FrameUse>,
    /// Type of every pageblock of a zone, ascending.
    pub pageblocks: Vec<(Pfn, Migratetype)>,
    /// Fallbacks by kind.
    pub fallbacks: BTreeMap<FallbackKind, u64>,
    /// The way there.
    pub samples: Vec<Sample>,
    /// Requests that found nothing.
    pub unserved: u64,
}

impl Side {
    /// Fallbacks that mixed pageblocks.
    #[must_use]
    pub fn fragmenting(&self) -> u64 {
        let fragmenting = self.fallbacks.iter().filter(|((way, ..), _)| way.is_fragmenting());
        fragmenting.map(|(_, nr)| nr).sum()
    }

    /// All fallbacks.
    #[must_use]
    pub fn nr_fallbacks(&self) -> u64 {
        self.fallbacks.values().sum()
    }

    /// Pages in free blocks.
    #[must_use]
    pub fn free_pages(&self) -> u64 {
        self.free_blocks.iter().map(|(kind, nr)| nr << kind.2.0).sum()
    }

    /// Pageblocks of each type.
    #[must_use]
    pub fn pageblocks_by_type(&self) -> [u64; NR_MIGRATETYPES] {
        let mut counts = [0; NR_MIGRATETYPES];
        for (_, migratetype) in &self.pageblocks {
            counts[migratetype.index()] += 1;
        }
        counts
    }

    /// Total variation distance, 0 to 1, of the two distributions of free blocks over zones, orders and
    /// types.
    #[must_use]
    pub fn distance(&self, other: &Self) -> f64 {
        self.variation(other, |_| 1)
    }

    /// As [`Self::distance`], of free pages: the share of free memory that lies elsewhere.
    #[must_use]
    pub fn distance_by_pages(&self, other: &Self) -> f64 {
        self.variation(other, |(.., order, _)| u64::from(order.pages()))
    }

    fn variation(&self, other: &Self, weight: impl Fn(&FreeKind) -> u64) -> f64 {
        variation(&self.free_blocks, &other.free_blocks, weight)
    }

    /// Share of the frames that exist, 0 to 1, that are used alike: free blocks of any order and per-CPU
    /// lists are alike, and so are pages of files whether or not they are mapped.
    #[must_use]
    pub fn same_use(&self, other: &Self) -> f64 {
        let class = |usage: FrameUse| match usage {
            FrameUse::Free(_) | FrameUse::PerCpu => FrameUse::Free(0),
            FrameUse::FileMapped => FrameUse::File,
            usage => usage,
        };
        let pairs = || self.uses.iter().zip(&other.uses).filter(|(a, _)| **a != FrameUse::Hole);
        let same = pairs().filter(|&(&a, &b)| class(a) == class(b)).count();
        same as f64 / pairs().count().max(1) as f64
    }
}

/// The recorded machine, and models of it that were asked for the same.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// What the recording ends with.
    pub recorded: Side,
    /// The models, in the order of the kernels given.
    pub models: Vec<Side>,
    /// Events replayed.
    pub nr_events: u64,
    /// The model's state, in bytes a frame.
    pub bytes_per_frame: f64,
}

/// Replays the demand of `recording` under each of `kernels`. `progress` is told the number of events done
/// now and then.
///
/// # Errors
/// A recording whose machine the model has no room for.
pub fn replay(
    recording: &Recording,
    own: &KernelFile,
    kernels: &[&KernelFile],
    progress: &mut dyn FnMut(u64),
) -> Result<Comparison, InputError> {
    let cpu_nodes = recording.cpu_nodes();
    let restore = |kernel: &KernelFile| machine::restore(&recording.before, kernel, &cpu_nodes);
    let followed = restore(own)?;
    let bytes_per_frame = followed.bytes_per_frame();
    let mut models = Vec::new();
    for kernel in kernels {
        models.push(Model::new(&kernel.name, restore(kernel)?, recording, own));
    }
    let future = Future::of(&recording.events, followed.frames().len());
    let mut follower = Follower::new(recording, &future, followed);
    follower.keep_demand();
    let mut recorded = Tracker::default();
    let mut demand = Vec::new();
    let end_ns = recording.events.last().map_or(0, |event| event.time_ns);
    let interval_ns = (end_ns / NR_SAMPLES).max(1);
    let mut next_sample_ns = 0;
    for (at, event) in recording.events.iter().enumerate() {
        if at.is_multiple_of(1 << 16) {
            progress(at as u64);
        }
        if event.time_ns >= next_sample_ns {
            next_sample_ns = event.time_ns / interval_ns * interval_ns + interval_ns;
            let seconds = event.time_ns as f64 / 1e9;
            recorded.sample(follower.memory(), seconds);
            for model in &mut models {
                model.tracker.sample(&model.memory, seconds);
            }
        }
        follower.step(at);
        recorded.note_recorded(event, follower.memory().policy.freelist.pageblock_order);
        follower.take_demand(&mut demand);
        for model in &mut models {
            model.decay_at(event.time_ns);
            demand.iter().for_each(|demand| model.serve(*demand, recording));
        }
    }
    follower.infer_all_taken();
    follower.take_demand(&mut demand);
    let uses = recording.after.as_ref().map(Snapshot::frame_uses);
    let followed = follower.memory();
    let mut sides = Vec::new();
    for mut model in models {
        demand.iter().for_each(|demand| model.serve(*demand, recording));
        model.tracker.sample(&model.memory, end_ns as f64 / 1e9);
        let uses = model.uses(uses.as_deref());
        sides.push(side(model.name, &model.memory, uses, model.tracker, model.unserved));
    }
    recorded.sample(followed, end_ns as f64 / 1e9);
    let own_uses = uses.unwrap_or_else(|| uses_of(followed, |pfn| content(followed, pfn)));
    let recorded = recorded_side(recording, followed, own_uses, recorded);
    let nr_events = recording.events.len() as u64;
    Ok(Comparison { recorded, models: sides, nr_events, bytes_per_frame })
}

/// What is noted on the way.
#[derive(Default)]
struct Tracker {
    fallbacks: BTreeMap<FallbackKind, u64>,
    fragmenting: u64,
    samples: Vec<Sample>,
}

impl Tracker {
    fn note(&mut self, kind: FallbackKind) {
        *self.fallbacks.entry(kind).or_default() += 1;
        self.fragmenting += u64::from(kind.0.is_fragmenting());
    }

    fn note_recorded(&mut self, event: &Event, pageblock: Order) {
        if event.kind == Kind::Extfrag {
            let fields = event.fallback();
            let way = FallbackWay::of(fields.fallback_order, pageblock, fields.change_ownership);
            self.note((way, event.migratetype, fields.fallback_migratetype));
        }
    }

    fn note_extfrag(&mut self, extfrag: &Extfrag, pageblock: Order) {
        let way = FallbackWay::of(extfrag.fallback_order, pageblock, extfrag.change_ownership);
        self.note((way, extfrag.alloc_migratetype, extfrag.fallback_migratetype));
    }

    fn sample(&mut self, memory: &Memory, seconds: f64) {
        let mut sample = Sample { seconds, fragmenting: self.fragmenting, ..Sample::default() };
        let pageblock = memory.policy.freelist.pageblock_order;
        for zone in &memory.zones {
            for order in (0..NR_PAGE_ORDERS as u8).map(Order) {
                let pages = u64::from(zone.free_area.nr_free(order)) << order.0;
                sample.free_pages += pages;
                if order >= pageblock {
                    sample.huge_pages += pages;
                }
            }
        }
        self.samples.push(sample);
    }
}

/// Between two decays of the per-CPU lists' marks (`sysctl_stat_interval`, mm/vmstat.c).
const DECAY_INTERVAL_NS: u64 = 1_000_000_000;
/// In [`Model::given`]: nothing.
const NOTHING: u32 = u32::MAX;

/// A model that serves a recording's demand its own way.
struct Model {
    name: String,
    memory: Memory,
    /// What each zone's boost was when kswapd began its round, or the recording did.
    boosts: Vec<u64>,
    compactions: Compactions,
    /// Whether its per-CPU lists have the recorded kernel's rules, and so the marks that were shown there.
    keeps_recorded_marks: bool,
    next_decay_ns: u64,
    /// For each frame of the recorded machine that is in use there, the frame it got here.
    given: Vec<u32>,
    tracker: Tracker,
    unserved: u64,
}

impl Model {
    fn new(name: &str, memory: Memory, recording: &Recording, own: &KernelFile) -> Self {
        let keeps_recorded_marks = memory.policy.pcp == own.policy.pcp;
        let frames = memory.frames();
        let mut given = vec![NOTHING; frames.len()];
        let mut pfn = Pfn(0);
        while pfn.index() < given.len() {
            let pages = match frames.state(pfn) {
                State::Free | State::Pcp => frames.order(pfn).pages(),
                _ => {
                    given[pfn.index()] = pfn.0;
                    1
                }
            };
            pfn.0 += pages;
        }
        Self {
            name: name.to_owned(),
            boosts: boosts_of(&memory),
            memory,
            compactions: Compactions::new(recording.tells_of_searches()),
            keeps_recorded_marks,
            next_decay_ns: DECAY_INTERVAL_NS,
            given,
            tracker: Tracker::default(),
            unserved: 0,
        }
    }

    /// Once a second lowers the marks of the per-CPU lists, where the recording does not tell of them.
    fn decay_at(&mut self, now_ns: u64) {
        if self.keeps_recorded_marks || now_ns < self.next_decay_ns {
            return;
        }
        self.next_decay_ns = now_ns + DECAY_INTERVAL_NS;
        for zone in (0..self.memory.zones.len() as u8).map(ZoneId) {
            for cpu in CpuId::all(self.memory.machine.cpu_nodes.len()) {
                self.memory.decay_pcp_high(zone, cpu);
            }
        }
    }

    fn serve(&mut self, demand: Demand, recording: &Recording) {
        match demand {
            Demand::Alloc { pfn, request, path } => self.alloc(pfn, request, path),
            Demand::Capture { pfn, request } => self.capture(pfn, request),
            Demand::Free { pfn, order, cpu, past_lists } => {
                self.free(pfn, order, (!past_lists).then_some(cpu));
            }
            Demand::Isolate(event) => {
                self.compactions.isolate(&mut self.memory, &event);
                self.isolate(event.pfn, event.order);
            }
            Demand::Compact(event) => {
                if let Some(step) = recording.compact_step(&event) {
                    self.compactions.step(&mut self.memory, &event, step);
                }
            }
            Demand::Served(event) => self.compactions.allocated(&mut self.memory, &event),
            Demand::ReturnTarget { pid, order } => self.compactions.target_returned(pid, order),
            Demand::Drain { zone, cpu, pages } => match pages {
                None => self.memory.drain_pcp_zone(zone, cpu),
                Some(pages) => {
                    self.memory.drain_pcp_bulk(zone, cpu, Drain { pages, first_list: 0 });
                }
            },
            Demand::Mark { .. } if !self.keeps_recorded_marks => {}
            Demand::Mark { zone, cpu, high, drains } => {
                self.memory.set_pcp_high(zone, cpu, high);
                if drains {
                    self.memory.drain_pcp_excess(zone, cpu);
                }
            }
            Demand::Reclaim { node, highest_zoneidx, active } => {
                note_reclaim(&mut self.memory, &mut self.boosts, (node, highest_zoneidx), active);
            }
        }
    }

    fn give(&mut self, pfn: Pfn, order: Order, got: Pfn) {
        let slots = pfn.index()..pfn.index() + order.pages() as usize;
        for (slot, frame) in self.given[slots].iter_mut().zip(got.0..) {
            *slot = frame;
        }
    }

    /// Compaction's product is its own where it can be; else the request is one as any other.
    fn capture(&mut self, pfn: Pfn, request: Request) {
        let (order, migratetype) = (request.order, request.gfp.migratetype());
        if self.memory.force_take(pfn, order, migratetype).is_some() {
            let is_movable = migratetype == Migratetype::Movable;
            self.memory.force_allocated(pfn, order, migratetype, is_movable);
            self.give(pfn, order, pfn);
        } else {
            self.alloc(pfn, request, Path::Slow);
        }
    }

    fn alloc(&mut self, pfn: Pfn, request: Request, path: Path) {
        let got = match path {
            Path::Fast => self.memory.alloc_without_reclaim(request),
            Path::Slow => self.memory.alloc_after_reclaim(request),
        };
        match got {
            Some(got) => {
                self.give(pfn, request.order, got);
                let pageblock = self.memory.policy.freelist.pageblock_order;
                for extfrag in self.memory.take_extfrag() {
                    self.tracker.note_extfrag(&extfrag, pageblock);
                }
            }
            None => {
                self.unserved += 1;
                let pages = request.order.pages() as usize;
                self.given[pfn.index()..][..pages].fill(NOTHING);
            }
        }
    }

    fn free(&mut self, pfn: Pfn, order: Order, cpu: Option<CpuId>) {
        let slots = pfn.index()..pfn.index() + order.pages() as usize;
        let first = self.given[pfn.index()];
        let is_block = first != NOTHING
            && Pfn(first).align_down(order).0 == first
            && self.given[slots.clone()].iter().zip(first..).all(|(&slot, frame)| slot == frame);
        if is_block {
            self.give_back(Pfn(first), order, cpu);
        } else {
            for slot in slots.clone() {
                if self.given[slot] != NOTHING {
                    self.give_back(Pfn(self.given[slot]), Order(0), cpu);
                }
            }
        }
        self.given[slots].fill(NOTHING);
    }

    fn give_back(&mut self, pfn: Pfn, order: Order, cpu: Option<CpuId>) {
        for frame in (pfn.0..pfn.0 + order.pages()).map(Pfn) {
            if matches!(self.memory.frames().state(frame), State::Reserved | State::Hole) {
                self.memory.restore_used_frame(frame);
            }
        }
        self.memory.reshape_allocated(pfn, order, Migratetype::Movable);
        match cpu {
            Some(cpu) => self.memory.free(pfn, order, cpu),
            None => {
                let zone = self.memory.zone_of(pfn);
                self.memory.free_to_buddy(zone, pfn, order, FreeTo::Policy);
            }
        }
    }

    fn isolate(&mut self, pfn: Pfn, order: Order) {
        if self.memory.frames().is_free(pfn, order) {
            self.memory.take_free_page(pfn, order);
            for frame in pfn.0..pfn.0 + order.pages() {
                self.hand_to_compaction(frame, Pfn(frame));
            }
            return;
        }
        for frame in pfn.0..pfn.0 + order.pages() {
            match self.nearest_free(Pfn(frame)) {
                Some(near) => {
                    self.memory.force_take(near, Order(0), Migratetype::Movable);
                    self.hand_to_compaction(frame, near);
                }
                None => self.unserved += 1,
            }
        }
    }

    fn hand_to_compaction(&mut self, recorded: u32, pfn: Pfn) {
        self.memory.force_allocated(pfn, Order(0), Migratetype::Movable, true);
        self.given[recorded as usize] = pfn.0;
    }

    /// The free page at `pfn` or nearest below it in its zone.
    fn nearest_free(&self, pfn: Pfn) -> Option<Pfn> {
        let frames = self.memory.frames();
        let start = self.memory.zones[self.memory.zone_of(pfn).index()].start;
        let mut at = pfn;
        loop {
            let head = frames.head_of(at);
            if frames.state(head) == State::Free {
                return Some(at);
            }
            at = Pfn(head.0.checked_sub(1).filter(|&below| below >= start.0)?);
        }
    }

    /// What every frame is used for: what the recorded machine used the page for that this frame was
    /// given to.
    fn uses(&self, recorded: Option<&[FrameUse]>) -> Vec<FrameUse> {
        let mut whose = vec![NOTHING; self.given.len()];
        for (recorded, &frame) in self.given.iter().enumerate() {
            if frame != NOTHING {
                whose[frame as usize] = recorded as u32;
            }
        }
        uses_of(&self.memory, |pfn| {
            let there = recorded.and_then(|uses| uses.get(whose[pfn.index()] as usize).copied());
            match there {
                Some(FrameUse::Free(_) | FrameUse::PerCpu) | None => content(&self.memory, pfn),
                Some(usage) => usage,
            }
        })
    }
}

/// The use of a frame in use as far as the allocator knows it.
fn content(memory: &Memory, pfn: Pfn) -> FrameUse {
    memory_map::content(memory, memory.frames().head_of(pfn))
}

/// The use of every frame, `in_use` telling that of those in use.
pub(crate) fn uses_of(memory: &Memory, in_use: impl Fn(Pfn) -> FrameUse) -> Vec<FrameUse> {
    let frames = memory.frames();
    let mut uses = vec![FrameUse::Hole; frames.len()];
    let mut pfn = Pfn(0);
    while pfn.index() < uses.len() {
        let (whole, pages) = match frames.state(pfn) {
            State::Hole => (Some(FrameUse::Hole), 1),
            State::Reserved => (Some(FrameUse::Reserved), 1),
            State::Free => (Some(FrameUse::Free(frames.order(pfn).0)), frames.order(pfn).pages()),
            State::Pcp => (Some(FrameUse::PerCpu), frames.order(pfn).pages()),
            State::Isolated | State::Allocated => (None, frames.order(pfn).pages()),
            State::Inner => (None, 1),
        };
        for frame in pfn.0..pfn.0 + pages {
            uses[frame as usize] = whole.unwrap_or_else(|| in_use(Pfn(frame)));
        }
        pfn.0 += pages;
    }
    uses
}

fn side(
    name: String,
    memory: &Memory,
    uses: Vec<FrameUse>,
    tracker: Tracker,
    unserved: u64,
) -> Side {
    let free_blocks = free_blocks(memory);
    let pageblock_order = memory.policy.freelist.pageblock_order;
    let pageblocks = memory_map::pageblocks(memory);
    let Tracker { fallbacks, samples, .. } = tracker;
    Side { name, pageblock_order, free_blocks, uses, pageblocks, fallbacks, samples, unserved }
}

/// Free blocks by place.
pub(crate) fn free_blocks(memory: &Memory) -> BTreeMap<FreeKind, u64> {
    let mut free_blocks = BTreeMap::new();
    for zone in &memory.zones {
        for order in (0..NR_PAGE_ORDERS as u8).map(Order) {
            for migratetype in Migratetype::ALL {
                let nr = zone.free_area.list(order, migratetype).len();
                if nr > 0 {
                    free_blocks.insert((zone.node, zone.kind, order, migratetype), u64::from(nr));
                }
            }
        }
    }
    free_blocks
}

/// Free blocks of a snapshot by place.
pub(crate) fn free_blocks_recorded(snapshot: &Snapshot) -> BTreeMap<FreeKind, u64> {
    let mut free_blocks = BTreeMap::new();
    for zone in &snapshot.zones {
        for block in &zone.free {
            let kind = (NodeId(zone.node), zone.kind, block.order, block.migratetype);
            *free_blocks.entry(kind).or_default() += 1;
        }
    }
    free_blocks
}

/// The recorded end, or where it was not recorded, the state followed.
fn recorded_side(
    recording: &Recording,
    followed: &Memory,
    uses: Vec<FrameUse>,
    tracker: Tracker,
) -> Side {
    let mut recorded = side("recorded".to_owned(), followed, uses, tracker, 0);
    if let Some(after) = &recording.after {
        recorded.free_blocks = free_blocks_recorded(after);
        recorded.pageblocks = after.pageblocks.iter().map(|b| (b.pfn, b.migratetype)).collect();
    }
    recorded
}
