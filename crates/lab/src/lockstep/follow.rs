//! Following a recording event by event, asking the model first.

use super::compaction::{Compactions, Searched, Told};
use super::{Choice, Disagreement, EndState, Inferred, Report, Tally};
use crate::future::{Cursor, Future};
use crate::recording::{Event, Kind, Recording};
use highorder_kernels::KernelFile;
use highorder_mm::CpuId;
use highorder_mm::alloc::Request;
use highorder_mm::buddy::FreeTo;
use highorder_mm::fallback::{Extfrag, SearchMode};
use highorder_mm::fast_search::CompactControl;
use highorder_mm::frame::{End, State};
use highorder_mm::gfp::{AllocFlags, Gfp};
use highorder_mm::memory::Memory;
use highorder_mm::pcp::{Drain, DrainCursor, NR_PCP_LISTS, PerCpuPages, pcp_index};
use highorder_mm::policy::{FallbackRule, PcpHigh};
use highorder_mm::types::{Migratetype, NodeId, Order, Pfn, ZoneKind};
use highorder_mm::watermark::Mark;
use highorder_mm::zone::{Zone, ZoneId};
use highorder_snapshot::Snapshot;
use std::collections::BTreeSet;

/// Disagreements explained of each kind.
const EXPLAINED_PER_KIND: usize = 5;
/// How far to look ahead for the next event of the same CPU.
const LOOK_AHEAD_EVENTS: usize = 1 << 14;

/// Blocks drained further apart belong to two drains: they are made with interrupts off, and a timer
/// causes one a second (`sysctl_stat_interval`, mm/vmstat.c).
const DRAIN_GAP_NS: u64 = 100_000_000;

/// Where a free block came from, for the tallies of splits and merges.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Origin {
    /// It was there at the start, or came whole.
    Whole,
    Split,
    Merged,
}

/// Where a frame is at the end.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum AtEnd {
    InUse,
    Free,
    OnPcpList,
    NotRecorded,
}

/// Where the blocks go that leave the free lists now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    /// To the CPU's list.
    List,
    /// To the request, past the CPU's lists.
    Request,
}

/// Blocks that leave the free lists one after the other, under one hold of the zone's lock.
#[derive(Clone, Copy)]
struct Run {
    zone: ZoneId,
    order: Order,
    migratetype: Migratetype,
    to: To,
    /// Whether the first block goes to the next request told of; else a bulk allocation fetched them.
    serves_next: bool,
    blocks: u32,
    expected: u32,
    mode: SearchMode,
    last_event: usize,
}

/// A drain under way.
struct Draining {
    zone: ZoneId,
    cpu: CpuId,
    cursor: DrainCursor,
    /// Pages that the free which caused it should drain.
    expected: Option<u32>,
    pages: u32,
    /// Of them, those that have been asked of a model.
    pages_asked: u32,
    first_event: usize,
    last_order: Order,
}

/// A free that fills its CPU's lists.
#[derive(Clone, Copy)]
struct Overflow {
    zone: ZoneId,
    drain: Drain,
    freed_at: usize,
    /// Whether the model saw it coming; else the mark was found to be another.
    was_foreseen: bool,
}

/// What is going on at one CPU.
#[derive(Default)]
struct Cpu {
    run: Option<Run>,
    draining: Option<Draining>,
    /// A drain that the free just done should cause.
    overflow: Option<Overflow>,
    /// The list and the task of the free just done.
    just_freed: Option<(ZoneId, usize, u32)>,
    /// A block taken for a request, past the lists.
    direct: Option<Pfn>,
    /// The coming allocation is already in the lists' tuning state.
    noted: bool,
    /// The block whose request has been asked for ahead of its event.
    asked: Option<Pfn>,
    /// What the model foresaw at the taking of a block, until the kernel tells of its fallback.
    foreseen: Option<(Pfn, Option<Extfrag>)>,
}

/// How far a request had come when it was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// At the low mark, at once.
    Fast,
    /// At the min mark, after reclaim or compaction.
    Slow,
}

/// What the recorded machine's users asked of the allocator, as far as it is told or can be inferred.
/// Blocks are named by the frames they had there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// A block is asked for.
    Alloc { pfn: Pfn, request: Request, path: Path },
    /// Compaction hands the block it has just made to the request it works for, past all lists.
    Capture { pfn: Pfn, request: Request },
    /// A block is given back; past the CPU's lists, if they were locked.
    Free { pfn: Pfn, order: Order, cpu: CpuId, past_lists: bool },
    /// Compaction takes a free block for its targets: movable pages from now on.
    Isolate(Event),
    /// Compaction goes on by another step.
    Compact(Event),
    /// A request has been served, as compaction may want to know.
    Served(Event),
    /// Compaction's target was not used, and waits for another page.
    ReturnTarget { pid: u32, order: Order },
    /// A CPU's lists of a zone are drained for another reason than a free: all, or so many pages.
    Drain { zone: ZoneId, cpu: CpuId, pages: Option<u32> },
    /// A CPU's lists of a zone have this mark: once a second a timer lowers it, without an event. `drains`
    /// if what exceeds it goes now.
    Mark { zone: ZoneId, cpu: CpuId, high: u32, drains: bool },
    /// kswapd is at work on the zones of a node up to one, or has done its round.
    Reclaim { node: NodeId, highest_zoneidx: ZoneKind, active: bool },
}

/// The replay of one recording.
pub(crate) struct Follower<'a> {
    recording: &'a Recording,
    events: &'a [Event],
    future: Cursor<'a>,
    memory: Memory,
    /// What each zone's boost was when kswapd began its round, or the recording did.
    boosts: Vec<u64>,
    report: Report,
    explained: [usize; Choice::ALL.len()],
    /// What was asked for since [`Self::take_demand`], if anyone wants to know.
    demand: Option<Vec<Demand>>,
    origins: Vec<Origin>,
    at_end: Vec<AtEnd>,
    /// Which task isolated a frame, as [`isolator`] says; 0 for none.
    isolated_by: Vec<u32>,
    /// Blocks that compaction captured, until their requests are told of.
    captured: BTreeSet<Pfn>,
    /// Frames that compacting tasks hold isolated.
    isolated: Vec<(u32, Pfn)>,
    /// Tasks that migrate a batch of pages now.
    migrating: Vec<u32>,
    compactions: Compactions,
    cpus: Vec<Cpu>,
    /// Whether the recorded kernel tells of a fallback before the block it provides is taken.
    tells_before_taking: bool,
}

impl<'a> Follower<'a> {
    /// At the start of `recording`, whose state `memory` is in.
    pub(crate) fn new(recording: &'a Recording, future: &'a Future, memory: Memory) -> Self {
        let nr_frames = memory.frames().len();
        let nr_cpus = memory.machine.cpu_nodes.len();
        let rule = recording
            .before
            .kernel_release
            .as_deref()
            .and_then(|release| KernelFile::for_release(release).ok())
            .map_or(memory.policy.fallback.rule, |kernel| kernel.policy.fallback.rule);
        Self {
            recording,
            events: &recording.events,
            future: future.cursor(),
            report: Report {
                agreement: [Tally::default(); Choice::ALL.len()],
                inferred: Inferred::default(),
                disagreements: Vec::new(),
                end: None,
                nr_events: recording.events.len() as u64,
            },
            explained: [0; Choice::ALL.len()],
            demand: None,
            origins: vec![Origin::Whole; nr_frames],
            at_end: at_end(recording.after.as_ref(), nr_frames),
            isolated_by: vec![0; nr_frames],
            captured: BTreeSet::new(),
            isolated: Vec::new(),
            migrating: Vec::new(),
            compactions: Compactions::new(recording.tells_of_searches()),
            cpus: (0..nr_cpus).map(|_| Cpu::default()).collect(),
            tells_before_taking: rule != FallbackRule::ClaimThenSteal,
            boosts: boosts_of(&memory),
            memory,
        }
    }

    /// Follows one event.
    pub(crate) fn step(&mut self, at: usize) {
        let event = self.events[at];
        self.future.pass(at, &event);
        let cpu = CpuId(event.cpu.into());
        if !matches!(event.kind, Kind::Take | Kind::Extfrag) {
            self.end_run(cpu);
        }
        if event.kind != Kind::Drain {
            self.end_drain(cpu);
        }
        match event.kind {
            Kind::Take => self.take(at, &event),
            Kind::Extfrag if self.tells_before_taking => self.fallback_before(at, &event),
            Kind::Extfrag => self.fallback(at, &event),
            Kind::Alloc => self.alloc(at, &event),
            Kind::Free | Kind::FreeCommit => self.free(at, &event),
            Kind::FreeBatched => {}
            Kind::Drain => self.drain(at, &event),
            Kind::Isolate => self.isolate(at, &event),
            Kind::CompactBegin | Kind::CompactStep => self.compact_step(at, &event),
            Kind::CompactEnd => self.compact_end(event.pid),
            Kind::MigrateBegin => self.migrating.push(event.pid),
            Kind::MigrateEnd => self.migrating.retain(|&pid| pid != event.pid),
            Kind::KswapdWake => self.reclaim_active(event.node(), event.highest_zone(), true),
            Kind::KswapdDone => self.reclaim_active(event.node(), ZoneKind::Movable, false),
        }
    }

    /// From now on keeps the demand for [`Self::take_demand`].
    pub(crate) fn keep_demand(&mut self) {
        self.demand = Some(Vec::new());
    }

    /// Moves what was asked for since the last call to `into`.
    pub(crate) fn take_demand(&mut self, into: &mut Vec<Demand>) {
        into.clear();
        if let Some(demand) = &mut self.demand {
            std::mem::swap(demand, into);
        }
    }

    /// Looks through all CPUs' lists for what was taken from them without an event, as the next choice
    /// there would.
    pub(crate) fn infer_all_taken(&mut self) {
        for zone in 0..self.memory.zones.len() {
            let id = ZoneId(zone as u8);
            for (cpu, index) in
                CpuId::all(self.cpus.len()).flat_map(|cpu| (0..NR_PCP_LISTS).map(move |i| (cpu, i)))
            {
                self.infer_taken(id, cpu, index, None);
            }
        }
    }

    /// The state followed.
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    fn ask_for(&mut self, alloc: &Event, past_lists: bool) {
        if self.demand.is_some() {
            for cpu in CpuId::all(self.cpus.len()) {
                self.ask_for_drain(cpu, false);
            }
            let (node, path) = self.walk_of(alloc);
            let request = Request { node, past_lists, ..self.request(alloc) };
            self.ask(Demand::Alloc { pfn: alloc.pfn, request, path });
        }
    }

    /// The node a request preferred and the path that served it, which no event tells: its CPU's own and
    /// the fast path, unless these would have led to another zone.
    fn walk_of(&self, alloc: &Event) -> (NodeId, Path) {
        let request = self.request(alloc);
        let served = self.memory.zone_of(alloc.pfn);
        let served_node = self.memory.zones[served.index()].node;
        let leads_there = |&(node, path): &(NodeId, Path)| {
            let mark = if path == Path::Fast { Mark::Low } else { Mark::Min };
            self.memory.first_zone_above(Request { node, ..request }, mark) == Some(served)
        };
        let own = (request.node, Path::Fast);
        let walks =
            [own, (request.node, Path::Slow), (served_node, Path::Fast), (served_node, Path::Slow)];
        walks.into_iter().find(leads_there).unwrap_or(own)
    }

    /// As [`Self::ask_for`], before the event: its block leaves the free lists now, while another CPU's
    /// request may be told of first.
    fn ask_ahead(&mut self, alloc: &Event, past_lists: bool) {
        self.ask_for(alloc, past_lists);
        self.cpus[usize::from(alloc.cpu)].asked = Some(alloc.pfn);
    }

    fn ask(&mut self, demand: Demand) {
        if let Some(kept) = &mut self.demand {
            kept.push(demand);
        }
    }

    /// The report, once all events are done.
    pub(crate) fn finish(mut self) -> Report {
        for cpu in CpuId::all(self.cpus.len()) {
            self.end_run(cpu);
            self.end_drain(cpu);
        }
        self.report.end = self.recording.after.as_ref().map(|after| self.compare_end(after));
        self.report
    }

    // Asking and telling.

    fn count(&mut self, choice: Choice, agreed: bool) {
        self.report.agreement[choice as usize].count(agreed);
    }

    /// Counts an answer, and keeps it if it is one of the first that differ.
    fn judge(
        &mut self,
        at: usize,
        choice: Choice,
        agreed: bool,
        explain: impl FnOnce(&Self) -> [String; 3],
    ) {
        self.count(choice, agreed);
        if agreed || self.explained[choice as usize] >= EXPLAINED_PER_KIND {
            return;
        }
        self.explained[choice as usize] += 1;
        let [kernel, model, state] = explain(self);
        self.report.disagreements.push(Disagreement {
            event: at,
            seconds: self.events[at].time_ns as f64 / 1e9,
            choice,
            kernel,
            model,
            state,
        });
    }

    /// The next event of this CPU that is not to be skipped, if it is near.
    fn next_on_cpu(&self, at: usize, skip: impl Fn(&Event) -> bool) -> Option<&'a Event> {
        let cpu = self.events[at].cpu;
        self.events[at + 1..].iter().take(LOOK_AHEAD_EVENTS).find(|e| e.cpu == cpu && !skip(e))
    }

    // Blocks leaving the free lists.

    /// Whether a block on a per-CPU list must have been taken without an event: the next that is heard
    /// of it is its free, or nothing although it is in use at the end.
    fn was_taken_silently(&self, pfn: Pfn) -> bool {
        match self.future.coming(pfn) {
            Some(at) => matches!(self.events[at].kind, Kind::Free | Kind::FreeBatched),
            None => self.at_end[pfn.index()] == AtEnd::InUse,
        }
    }

    /// Takes what was taken without an event off the head of a CPU's list, as far as `until`.
    fn infer_taken(&mut self, id: ZoneId, cpu: CpuId, index: usize, until: Option<Pfn>) {
        while let Some(head) = self.memory.zones[id.index()].pcp[cpu.index()].list(index).head() {
            if Some(head) == until || !self.was_taken_silently(head) {
                break;
            }
            self.take_silently(head);
        }
    }

    /// As [`Self::infer_taken`], when `pfn` is about to be put before the head: what will be heard of
    /// before `pfn` is, cannot have been taken from behind it.
    fn infer_taken_before(&mut self, id: ZoneId, cpu: CpuId, index: usize, pfn: Pfn) {
        let leaves_at = self.future.coming(pfn).unwrap_or(usize::MAX);
        while let Some(head) = self.memory.zones[id.index()].pcp[cpu.index()].list(index).head() {
            let is_first = self.future.coming(head).is_some_and(|at| at < leaves_at);
            if !is_first || !self.was_taken_silently(head) {
                break;
            }
            self.take_silently(head);
        }
    }

    fn take_silently(&mut self, pfn: Pfn) {
        let frames = self.memory.frames();
        let (order, migratetype, cpu) =
            (frames.order(pfn), frames.migratetype(pfn), frames.cpu(pfn));
        self.report.inferred.bulk_pages += u64::from(order.pages());
        let node = self.memory.zones[self.memory.zone_of(pfn).index()].node;
        let gfp = usual_gfp(migratetype);
        let request = Request { order, gfp, cpu, node, past_lists: false };
        self.ask(Demand::Alloc { pfn, request, path: Path::Fast });
        self.memory.force_take_pcp(pfn);
    }

    /// The run that this event belongs to: the one under way, or a new one.
    fn run_of(&mut self, at: usize, event: &Event) -> Run {
        let cpu = CpuId(event.cpu.into());
        let zone = self.memory.zone_of(event.pfn);
        if let Some(run) = self.cpus[cpu.index()].run {
            let same = run.zone == zone
                && run.order == event.order
                && run.migratetype == event.migratetype
                && run.to == To::List;
            let head = || {
                let index = pcp_index(event.order, event.migratetype);
                self.memory.zones[zone.index()].pcp[cpu.index()].list(index).head()
            };
            // A longer run than expected is one refill, unless all of it has been taken since.
            if same
                && (run.blocks < run.expected
                    || !head().is_some_and(|head| self.was_taken_silently(head)))
            {
                return Run { last_event: at, ..run };
            }
        }
        self.end_run(cpu);
        let mut run = Run {
            zone,
            order: event.order,
            migratetype: event.migratetype,
            to: To::Request,
            serves_next: true,
            blocks: 0,
            expected: 1,
            mode: SearchMode::Normal,
            last_event: at,
        };
        let is_same = |e: &Event| {
            matches!(e.kind, Kind::Take | Kind::Extfrag)
                && e.order == event.order
                && e.migratetype == event.migratetype
        };
        let first = match event.kind {
            Kind::Extfrag if self.tells_before_taking => {
                self.next_on_cpu(at, |e| e.kind == Kind::Extfrag).map(|e| e.pfn)
            }
            _ => Some(event.pfn),
        };
        let next = self.next_on_cpu(at, is_same).filter(|e| e.kind == Kind::Alloc);
        let served = next.filter(|e| e.order == event.order && Some(e.pfn) == first).copied();
        let has_list =
            self.memory.has_pcp_list(event.order) && event.migratetype != Migratetype::HighAtomic;
        let index = pcp_index(event.order, event.migratetype);
        if has_list {
            self.infer_taken(zone, cpu, index, None);
        }
        if !has_list {
            if let Some(alloc) = &served {
                self.ask_ahead(alloc, false);
            }
            return run;
        }
        let is_empty = self.memory.zones[zone.index()].pcp[cpu.index()].list(index).is_empty();
        if let Some(alloc) = served.as_ref().filter(|_| !is_empty) {
            self.ask_ahead(alloc, true);
            return run;
        }
        run.to = To::List;
        run.serves_next = served.is_some();
        let before = self.memory.zones[zone.index()].pcp[cpu.index()].clone();
        if let Some(alloc) = &served {
            self.note_alloc(alloc, zone, true);
        }
        run.expected = self.memory.refill_size(zone, cpu, event.order);
        let is_alone = || self.next_on_cpu(at, |_| false).is_some_and(|e| e.kind == Kind::Alloc);
        let has_more = self.has_more_than_one(zone, event.order, event.migratetype);
        let is_refill = run.expected == 1 || !has_more || event.kind != Kind::Take;
        if !is_refill && run.serves_next && is_alone() {
            // A refill fetches more; this went past the lists, which were locked.
            self.memory.zones[zone.index()].pcp[cpu.index()] = before;
            self.report.inferred.bypassed_pages += u64::from(event.order.pages());
            run.to = To::Request;
        }
        if let Some(alloc) = &served {
            self.ask_ahead(alloc, run.to == To::Request);
        }
        run
    }

    /// Whether the free lists of this type could give more than one block of this order.
    fn has_more_than_one(&self, zone: ZoneId, order: Order, migratetype: Migratetype) -> bool {
        let area = &self.memory.zones[zone.index()].free_area;
        let max_order = self.memory.policy.freelist.max_order;
        let in_list = |o: u8| area.list(Order(o), migratetype).len() << (o - order.0).min(1);
        (order.0..=max_order.0).map(in_list).sum::<u32>() > 1
    }

    /// Notes an allocation in the state that later sizes depend on.
    fn note_alloc(&mut self, alloc: &Event, zone: ZoneId, from_list: bool) {
        let cpu = CpuId(alloc.cpu.into());
        if self.cpus[cpu.index()].noted {
            return;
        }
        self.cpus[cpu.index()].noted = true;
        self.memory.note_zone_walk(self.request(alloc), zone);
        if from_list {
            self.memory.note_pcp_alloc(zone, cpu);
        }
    }

    fn request(&self, alloc: &Event) -> Request {
        let cpu = CpuId(alloc.cpu.into());
        let node = self.memory.machine.cpu_nodes[cpu.index()];
        Request { order: alloc.order, gfp: alloc.gfp(), cpu, node, past_lists: false }
    }

    /// Flags that the request behind a block's taking had once it was willing to mix pageblocks.
    fn flags_of_request(&self, at: usize) -> AllocFlags {
        let gfp = self
            .next_on_cpu(at, |e| e.kind != Kind::Alloc)
            .map_or(Gfp::HIGHUSER_MOVABLE, Event::gfp);
        AllocFlags::fast_path(gfp)
    }

    fn end_run(&mut self, cpu: CpuId) {
        let Some(run) = self.cpus[cpu.index()].run.take() else { return };
        if run.to == To::Request {
            return;
        }
        let Run { zone, order, migratetype, blocks, expected, last_event, .. } = run;
        if !run.serves_next {
            self.infer_taken(zone, cpu, pcp_index(order, migratetype), None);
        }
        if blocks < expected && self.memory.peek_smallest(zone, order, migratetype).is_none() {
            // The zone had no more to give.
            return;
        }
        self.judge(last_event, Choice::RefillSize, blocks == expected, |this| {
            let pcp = &this.memory.zones[zone.index()].pcp[cpu.index()];
            [
                format!("{blocks} blocks of order {order}"),
                format!("{expected}"),
                format!(
                    "CPU {cpu}: count {}, high {} of {}..={}, batch {}, factor {}",
                    pcp.count, pcp.high, pcp.high_min, pcp.high_max, pcp.batch, pcp.factor
                ),
            ]
        });
    }

    /// Puts a block that has just left the free lists where the run's blocks go.
    fn place(&mut self, event: &Event, mut run: Run) {
        let cpu = CpuId(event.cpu.into());
        match run.to {
            To::List => self.memory.force_refill(event.pfn, cpu, event.migratetype),
            To::Request => self.cpus[cpu.index()].direct = Some(event.pfn),
        }
        run.blocks += 1;
        self.cpus[cpu.index()].run = Some(run);
    }

    fn take(&mut self, at: usize, event: &Event) {
        let run = self.run_of(at, event);
        let Run { zone, order, migratetype, .. } = run;
        let claims = !self.tells_before_taking
            && self
                .next_on_cpu(at, |_| false)
                .is_some_and(|e| e.kind == Kind::Extfrag && e.pfn == event.pfn);
        let origin = self.origin_of(event.pfn);
        let own = self.memory.peek_smallest(zone, order, migratetype);
        let cpu = CpuId(event.cpu.into());
        let (model, foreseen) = match own {
            Some((pfn, _)) => (Some(pfn), None),
            None => self.fall_back_or_force(at, event, run.mode, |pfn, extfrag| {
                claims && pfn == event.pfn && extfrag.change_ownership
            }),
        };
        self.cpus[cpu.index()].foreseen = Some((event.pfn, foreseen));
        let agreed = model == Some(event.pfn) && claims == own.is_none();
        self.judge(at, Choice::Take, agreed, |this| this.explain_take(event, zone, model, own));
        if let Some((_, found)) = own
            && !agreed
            && !claims
        {
            self.infer_rotation(zone, found, event);
        }
        if own.is_some() || !agreed {
            self.take_by_force(event, claims);
        }
        self.count_origin(origin, agreed);
        if self.memory.frames().state(event.pfn) == State::Allocated {
            self.place(event, run);
        }
    }

    /// Where the kernel's block is on the list that the model took another from, the list was rotated
    /// without an event: a search by compaction may have come at another moment than was taken.
    fn infer_rotation(&mut self, zone: ZoneId, found: Order, event: &Event) {
        let is_on_list = self.memory.frames().is_free(event.pfn, found)
            && self.memory.frames().migratetype(event.pfn) == event.migratetype;
        if is_on_list {
            self.memory.rotate_free_list(zone, found, event.migratetype, event.pfn);
            self.report.inferred.rotations += 1;
        }
    }

    fn explain_take(
        &self,
        event: &Event,
        zone: ZoneId,
        model: Option<Pfn>,
        own: Option<(Pfn, Order)>,
    ) -> [String; 3] {
        let zone = &self.memory.zones[zone.index()];
        let found = own.map(|(_, found)| found);
        let from = |order: Option<Order>| match order {
            Some(order) => format!("from a block of order {order}"),
            None => "by falling back".to_owned(),
        };
        let model = match model {
            Some(pfn) => format!("{pfn} {}", from(found)),
            None => "none".to_owned(),
        };
        let order = found.unwrap_or(event.order);
        let list = zone.free_area.list(order, event.migratetype);
        let first: Vec<_> =
            self.memory.frames().iter(list).take(4).map(|p| p.to_string()).collect();
        let kernels = match self.memory.free_block_of(event.pfn) {
            Some((head, order)) => format!("{head} of order {order}"),
            None => format!("no free block: {:?}", self.memory.frames().state(event.pfn)),
        };
        [
            format!("{} of order {} for {}", event.pfn, event.order, event.migratetype),
            model,
            format!(
                "node {} {}, list of order {order} {}: {} blocks, {}; around the kernel's: {kernels}",
                zone.node,
                zone.kind,
                event.migratetype,
                list.len(),
                first.join(" ")
            ),
        ]
    }

    /// Lets the model fall back; what it does stays if `is_right`, else the state is as before.
    fn fall_back_or_force(
        &mut self,
        at: usize,
        event: &Event,
        mut mode: SearchMode,
        is_right: impl FnOnce(Pfn, &Extfrag) -> bool,
    ) -> (Option<Pfn>, Option<Extfrag>) {
        let zone = self.memory.zone_of(event.pfn);
        let flags = self.flags_of_request(at);
        let containing = self.memory.free_block_of(event.pfn);
        let Event { order, migratetype, .. } = *event;
        let (pfn, extfrag, stays) = self.memory.attempt(zone, |memory| {
            let pfn = memory.rmqueue_buddy_block(zone, order, migratetype, flags, &mut mode);
            let extfrag = memory.take_extfrag().pop();
            let stays = pfn.zip(extfrag).is_some_and(|(pfn, extfrag)| is_right(pfn, &extfrag));
            ((pfn, extfrag, stays), stays)
        });
        if stays {
            if let Some((head, found)) = containing {
                self.note_split(head, found, event.pfn, event.order);
            }
            if let Some(run) = &mut self.cpus[usize::from(event.cpu)].run {
                run.mode = mode;
            }
        }
        (pfn, extfrag)
    }

    /// Takes the kernel's block off the free lists, whatever the model has in its place.
    fn take_by_force(&mut self, event: &Event, claims: bool) {
        let Event { pfn, order, migratetype, .. } = *event;
        if claims {
            self.memory.force_claim(pfn, migratetype);
        }
        if self.memory.free_block_of(pfn).is_none_or(|(_, found)| found < order) {
            self.make_free(pfn, order);
        }
        if let Some((head, found)) = self.memory.free_block_of(pfn)
            && self.memory.force_take(pfn, order, migratetype).is_some()
        {
            self.note_split(head, found, pfn, order);
        }
    }

    /// Gives what is not free of a block to the free lists: it was freed past the per-CPU lists.
    fn make_free(&mut self, pfn: Pfn, order: Order) {
        let end = pfn.0 + order.pages();
        let mut at = pfn;
        while at.0 < end {
            let head = self.memory.frames().head_of(at);
            let size = self.memory.frames().order(head);
            let pages = u64::from(size.pages());
            match self.memory.frames().state(head) {
                State::Pcp => {
                    self.memory.force_drain(head);
                    self.report.inferred.bypassed_pages += pages;
                }
                State::Allocated | State::Isolated => {
                    let part = Order(size.0.min(order.0));
                    self.memory.reshape_allocated(at, part, Migratetype::Movable);
                    let zone = self.memory.zone_of(at);
                    self.ask(Demand::Free {
                        pfn: at,
                        order: part,
                        cpu: CpuId(0),
                        past_lists: true,
                    });
                    self.memory.free_to_buddy(zone, at, part, FreeTo::Policy);
                    self.report.inferred.other_pages += u64::from(part.pages());
                }
                _ => {}
            }
            let next = self.memory.free_block_of(at).map(|(head, order)| head.0 + order.pages());
            at = Pfn(next.unwrap_or(at.0 + 1).max(at.0 + 1));
        }
    }

    /// Where the free block that holds `pfn` came from.
    fn origin_of(&self, pfn: Pfn) -> Option<Origin> {
        self.memory.free_block_of(pfn).map(|(head, _)| self.origins[head.index()])
    }

    /// Counts an answer among those on split or merged blocks, if the block was one.
    fn count_origin(&mut self, origin: Option<Origin>, agreed: bool) {
        match origin {
            Some(Origin::Split) => self.count(Choice::SplitRemainder, agreed),
            Some(Origin::Merged) => self.count(Choice::Merged, agreed),
            Some(Origin::Whole) | None => {}
        }
    }

    /// Notes the remainders of splitting the block `head` of order `found` around `[pfn, pfn + 2^order)`.
    fn note_split(&mut self, head: Pfn, found: Order, pfn: Pfn, order: Order) {
        let mut kept = head;
        for half in (order.0..found.0).rev().map(Order) {
            let upper = kept + half.pages();
            let (keep, free) = if pfn >= upper { (upper, kept) } else { (kept, upper) };
            self.origins[free.index()] = Origin::Split;
            kept = keep;
        }
    }

    /// Notes whether a block of `order` merged on its way to the free lists, and whether it ever came
    /// there: compaction captures the block it works for.
    fn note_freed(&mut self, pfn: Pfn, order: Order, here: CpuId) {
        let Some((head, found)) = self.memory.free_block_of(pfn) else { return };
        self.origins[head.index()] = if found > order { Origin::Merged } else { Origin::Whole };
        let Some(coming) = self.future.coming(head).map(|at| self.events[at]) else { return };
        if coming.kind == Kind::Alloc && coming.order == found {
            self.memory.force_take(head, found, coming.migratetype);
            self.report.inferred.captured_pages += u64::from(found.pages());
            self.captured.insert(head);
            self.ask_for_drain(here, false);
            self.ask(Demand::Capture { pfn: head, request: self.request(&coming) });
        }
    }

    // Fallbacks.

    /// A fallback of a kernel that tells of it after the taking (6.12's claim), or instead of it.
    fn fallback(&mut self, at: usize, event: &Event) {
        let cpu = CpuId(event.cpu.into());
        if let Some((pfn, foreseen)) = self.cpus[cpu.index()].foreseen.take()
            && pfn == event.pfn
        {
            let agreed = foreseen.is_some_and(|extfrag| is_as_recorded(&extfrag, event));
            self.judge(at, Choice::Fallback, agreed, |_| explain_fallback(event, foreseen));
            return;
        }
        let run = self.run_of(at, event);
        let own = self.memory.peek_smallest(run.zone, event.order, event.migratetype);
        let origin = self.origin_of(event.pfn);
        let mut foreseen = None;
        self.cpus[cpu.index()].run = Some(run);
        if own.is_none() || run.mode == SearchMode::Steal {
            (_, foreseen) = self.fall_back_or_force(at, event, run.mode, |_, extfrag| {
                is_as_recorded(extfrag, event)
            });
        }
        let agreed = foreseen.is_some_and(|extfrag| is_as_recorded(&extfrag, event));
        self.judge(at, Choice::Fallback, agreed, |_| explain_fallback(event, foreseen));
        self.count_origin(origin, agreed);
        if !agreed {
            self.take_by_force(event, event.fallback().change_ownership);
        }
        let mut run = self.cpus[cpu.index()].run.unwrap_or(run);
        if !event.fallback().change_ownership {
            run.mode = SearchMode::Steal;
        }
        if self.memory.frames().state(event.pfn) == State::Allocated {
            self.place(event, run);
        }
    }

    /// A fallback of a kernel that tells of it before the block it provides is taken (before 6.15).
    fn fallback_before(&mut self, at: usize, event: &Event) {
        let cpu = CpuId(event.cpu.into());
        let run = self.run_of(at, event);
        self.cpus[cpu.index()].run = Some(run);
        let own = self.memory.peek_smallest(run.zone, event.order, event.migratetype);
        let mut foreseen = None;
        if own.is_none() {
            if self.memory.policy.fallback.rule == FallbackRule::MoveAndRetry {
                let moved_to = self.memory.policy.freelist.moved_to;
                let flags = self.flags_of_request(at);
                let Run { zone, order, migratetype, .. } = run;
                foreseen = self.memory.attempt(zone, |memory| {
                    memory.move_fallback_block(zone, order, migratetype, flags, moved_to);
                    let extfrag = memory.take_extfrag().pop();
                    (extfrag, extfrag.is_some_and(|extfrag| is_as_recorded(&extfrag, event)))
                });
            } else {
                (_, foreseen) = self.fall_back_or_force(at, event, run.mode, |_, _| false);
            }
        }
        let agreed = foreseen.is_some_and(|extfrag| is_as_recorded(&extfrag, event));
        self.judge(at, Choice::Fallback, agreed, |_| explain_fallback(event, foreseen));
        if agreed {
            return;
        }
        let fields = event.fallback();
        let order = fields.fallback_order;
        let first = event.pfn.align_down(order);
        let last = first + (order.pages() - 1);
        let zone = &self.memory.zones[run.zone.index()];
        let is_block = zone.spans(first) && zone.spans(last);
        if is_block && self.memory.free_block_of(event.pfn).is_none_or(|(_, o)| o < order) {
            self.make_free(first, order);
        }
        if fields.change_ownership {
            self.memory.force_claim(event.pfn, event.migratetype);
        } else if let Some((head, _)) = self.memory.free_block_of(event.pfn) {
            self.memory.force_move(head, event.migratetype, End::Tail);
        }
    }

    // Requests.

    fn alloc(&mut self, at: usize, event: &Event) {
        let cpu = CpuId(event.cpu.into());
        let Event { pfn, order, .. } = *event;
        let zone = self.memory.zone_of(pfn);
        let was_direct = self.cpus[cpu.index()].direct.take() == Some(pfn);
        let state = self.memory.frames().state(pfn);
        self.note_alloc(event, zone, state == State::Pcp);
        self.cpus[cpu.index()].noted = false;
        self.isolated_by[pfn.index()] = 0;
        self.compactions.allocated(&mut self.memory, event);
        if order.0 > 0 {
            self.ask(Demand::Served(*event));
        }
        match state {
            State::Pcp => self.take_from_list(at, event, zone),
            State::Free | State::Inner | State::Isolated | State::Reserved if !was_direct => {
                self.ensure_in_use(pfn, order, |inferred| &mut inferred.captured_pages);
            }
            _ => {}
        }
        let movable = event.gfp().migratetype() == Migratetype::Movable;
        self.memory.force_allocated(pfn, order, event.migratetype, movable);
        if !self.captured.remove(&pfn) && self.cpus[cpu.index()].asked.take() != Some(pfn) {
            self.ask_for(event, false);
        }
    }

    fn take_from_list(&mut self, at: usize, event: &Event, zone: ZoneId) {
        let pfn = event.pfn;
        let frames = self.memory.frames();
        // A task that moves to another CPU on its way is seen there.
        let (cpu, order, migratetype) =
            (frames.cpu(pfn), frames.order(pfn), frames.migratetype(pfn));
        let index = pcp_index(event.order, event.migratetype);
        let is_on_list = index == pcp_index(order, migratetype);
        self.infer_taken(zone, cpu, index, Some(pfn));
        let head = self.memory.zones[zone.index()].pcp[cpu.index()].list(index).head();
        let agreed = is_on_list && head == Some(pfn);
        self.judge(at, Choice::PcpTake, agreed, |this| {
            let pcp = &this.memory.zones[zone.index()].pcp[cpu.index()];
            let list = this.memory.frames().iter(pcp.list(index));
            let first: Vec<_> = list.take(6).map(|p| p.to_string()).collect();
            [
                format!("{pfn} of order {} for {}", event.order, event.migratetype),
                head.map_or("none".to_owned(), |head| head.to_string()),
                format!(
                    "CPU {cpu}, list of order {} {}: {} blocks, {}",
                    event.order,
                    event.migratetype,
                    pcp.list(index).len(),
                    first.join(" ")
                ),
            ]
        });
        self.memory.force_take_pcp(pfn);
        if order != event.order {
            self.ensure_in_use(pfn, event.order, |inferred| &mut inferred.other_pages);
        }
    }

    /// Makes every frame of a block part of a block in use, and counts what was not.
    fn ensure_in_use(&mut self, pfn: Pfn, order: Order, counter: fn(&mut Inferred) -> &mut u64) {
        let end = pfn.0 + order.pages();
        let mut at = pfn;
        while at.0 < end {
            let head = self.memory.frames().head_of(at);
            let size = self.memory.frames().order(head);
            match self.memory.frames().state(head) {
                State::Pcp => self.take_silently(head),
                State::Free => {
                    let part = Order(size.0.min(order.0));
                    if self.memory.force_take(at, part, Migratetype::Movable).is_some() {
                        self.note_split(head, size, at, part);
                    }
                    *counter(&mut self.report.inferred) += u64::from(part.pages());
                }
                State::Reserved | State::Hole => {
                    self.memory.restore_used_frame(at);
                    self.report.inferred.other_pages += 1;
                }
                State::Isolated | State::Allocated | State::Inner => {}
            }
            let head = self.memory.frames().head_of(at);
            at = head + self.memory.frames().order(head).pages();
        }
    }

    fn free(&mut self, at: usize, event: &Event) {
        let Event { pfn, order, pid, .. } = *event;
        let cpu = CpuId(event.cpu.into());
        if self.isolated_by[pfn.index()] == isolator(pid) && self.migrating.contains(&pid) {
            // A target that was not used after all: it goes back to the compactor.
            self.compactions.target_returned(pid, order);
            self.ask(Demand::ReturnTarget { pid, order });
            return;
        }
        for frame in pfn.0..pfn.0 + order.pages() {
            self.isolated_by[Pfn(frame).index()] = 0;
        }
        self.ensure_in_use(pfn, order, |inferred| &mut inferred.other_pages);
        self.memory.reshape_allocated(pfn, order, Migratetype::Movable);
        let zone = self.memory.zone_of(pfn);
        let has_list =
            self.memory.has_pcp_list(order) && self.memory.block_type(pfn) != Migratetype::Isolate;
        let past_lists = has_list && self.bypasses_lists(pfn);
        let was_set = has_list && !past_lists && self.infer_mark(at, zone, order);
        self.ask(Demand::Free { pfn, order, cpu, past_lists });
        if !has_list || past_lists {
            if past_lists {
                self.report.inferred.bypassed_pages += u64::from(order.pages());
            }
            self.memory.free_to_buddy(zone, pfn, order, FreeTo::Policy);
            self.note_freed(pfn, order, cpu);
            return;
        }
        let index = pcp_index(order, self.memory.block_type(pfn));
        self.infer_taken_before(zone, cpu, index, pfn);
        let drain = self.memory.free_to_pcp(zone, pfn, order, cpu);
        self.cpus[cpu.index()].just_freed = Some((zone, index, pid));
        self.cpus[cpu.index()].overflow =
            drain.map(|drain| Overflow { zone, drain, freed_at: at, was_foreseen: !was_set });
    }

    /// Whether a block being freed goes past the per-CPU lists: from a list it would be drained or
    /// handed out.
    fn bypasses_lists(&self, pfn: Pfn) -> bool {
        match self.future.coming(pfn) {
            Some(at) => matches!(self.events[at].kind, Kind::Take | Kind::Isolate | Kind::Extfrag),
            None => self.at_end[pfn.index()] == AtEnd::Free,
        }
    }

    // Drains.

    fn end_drain(&mut self, cpu: CpuId) {
        self.cpus[cpu.index()].just_freed = None;
        self.ask_for_drain(cpu, true);
        if let Some(draining) = self.cpus[cpu.index()].draining.take() {
            let Draining { zone, expected, pages, first_event, last_order, .. } = draining;
            if let Some(expected) = expected {
                // The last block may exceed what was asked for.
                let agreed =
                    pages >= expected && pages < expected.saturating_add(last_order.pages());
                self.judge(first_event, Choice::DrainSize, agreed, |this| {
                    this.explain_drain_size(zone, draining.cpu, pages, expected)
                });
            }
            self.memory.note_overflow_drained(zone);
        }
        if let Some(Overflow { zone, drain, freed_at, .. }) = self.cpus[cpu.index()].overflow.take()
        {
            self.judge(freed_at, Choice::DrainSize, false, |this| {
                this.explain_drain_size(zone, cpu, 0, drain.pages)
            });
        }
    }

    /// Sets the mark of the lists that the free at this event goes to, if what the kernel does shows it to
    /// be another: a timer has lowered it, or not as often as thought.
    ///
    /// Returns whether it did.
    fn infer_mark(&mut self, at: usize, zone: ZoneId, order: Order) -> bool {
        let event = self.events[at];
        let cpu = CpuId(event.cpu.into());
        let Zone { flags, pcp, .. } = &self.memory.zones[zone.index()];
        let is_tuned = self.memory.policy.pcp.high == PcpHigh::AutoTuned;
        if !is_tuned || flags.reclaim_active || flags.below_high {
            return false;
        }
        let PerCpuPages { count, high, high_min, high_max, .. } = pcp[cpu.index()];
        let filled = count + order.pages();
        if filled < high_min {
            return false;
        }
        let frames = self.memory.frames();
        let overflows = self.next_on_cpu(at, |_| false).is_some_and(|e| {
            let is_listed = frames.state(e.pfn) == State::Pcp && frames.cpu(e.pfn) == cpu;
            e.kind == Kind::Drain
                && e.pid == event.pid
                && (e.pfn == event.pfn || is_listed)
                && self.memory.zone_of(e.pfn) == zone
        });
        let shown = if overflows { filled } else { filled + 1 };
        let is_shown = overflows == (filled >= high);
        if is_shown || !(high_min..=high_max).contains(&shown) {
            return false;
        }
        if !overflows {
            let foreseen = pcp[cpu.index()].batch;
            self.judge(at, Choice::DrainSize, false, |this| {
                this.explain_drain_size(zone, cpu, 0, foreseen)
            });
        }
        self.memory.set_pcp_high(zone, cpu, shown);
        self.report.inferred.marks += 1;
        self.ask(Demand::Mark { zone, cpu, high: shown, drains: false });
        true
    }

    fn explain_drain_size(&self, zone: ZoneId, cpu: CpuId, kernel: u32, model: u32) -> [String; 3] {
        let pcp = &self.memory.zones[zone.index()].pcp[cpu.index()];
        let flags = self.memory.zones[zone.index()].flags;
        [
            format!("{kernel} pages"),
            format!("{model}"),
            format!(
                "CPU {cpu} after it: count {}, high {} of {}..={}, batch {}, free count {}, factor {}{}{}",
                pcp.count,
                pcp.high,
                pcp.high_min,
                pcp.high_max,
                pcp.batch,
                pcp.free_count,
                pcp.factor,
                if flags.below_high { ", below high" } else { "" },
                if flags.reclaim_active { ", reclaim active" } else { "" }
            ),
        ]
    }

    fn drain(&mut self, at: usize, event: &Event) {
        let here = CpuId(event.cpu.into());
        let Event { pfn, order, .. } = *event;
        let frames = self.memory.frames();
        if frames.state(pfn) != State::Pcp || frames.order(pfn) != order {
            // Its free was not told, or told elsewhere.
            if self.memory.free_block_of(pfn).is_none_or(|(_, found)| found < order) {
                self.make_free(pfn, order);
            }
            return;
        }
        let zone = self.memory.zone_of(pfn);
        let cpu = frames.cpu(pfn);
        let index = pcp_index(order, frames.migratetype(pfn));
        let goes_on = self.cpus[here.index()]
            .draining
            .as_ref()
            .is_some_and(|draining| draining.zone == zone && draining.cpu == cpu);
        if !goes_on {
            self.begin_drain(at, event, zone, cpu, index);
        }
        let Some(mut draining) = self.cpus[here.index()].draining.take() else { return };
        let model = self.next_drained(&mut draining.cursor, zone, cpu, pfn);
        let agreed = model == Some(pfn);
        self.judge(at, Choice::Drain, agreed, |this| {
            let pcp = &this.memory.zones[zone.index()].pcp[cpu.index()];
            let tail = pcp.list(index).tail().map_or("none".to_owned(), |tail| tail.to_string());
            [
                format!("{pfn} of order {order}"),
                model.map_or("none".to_owned(), |pfn| pfn.to_string()),
                format!(
                    "CPU {cpu}, list {index} of {} blocks ending with {tail}",
                    pcp.list(index).len()
                ),
            ]
        });
        if !agreed {
            let left = Drain { pages: self.pcp_count(zone, cpu), first_list: index };
            draining.cursor = self.cursor(left, zone, cpu);
            draining.cursor.next_block(&self.memory, zone, cpu);
        }
        draining.pages += order.pages();
        draining.last_order = order;
        self.cpus[here.index()].draining = Some(draining);
        self.memory.force_drain(pfn);
        self.note_freed(pfn, order, here);
        let goes_on = |e: &Event| e.kind == Kind::Drain && e.time_ns < event.time_ns + DRAIN_GAP_NS;
        if !self.next_on_cpu(at, |_| false).is_some_and(goes_on) {
            self.end_drain(here);
        }
    }

    fn pcp_count(&self, zone: ZoneId, cpu: CpuId) -> u32 {
        self.memory.zones[zone.index()].pcp[cpu.index()].count
    }

    fn cursor(&self, drain: Drain, zone: ZoneId, cpu: CpuId) -> DrainCursor {
        DrainCursor::new(self.memory.policy.pcp.drain, drain, self.pcp_count(zone, cpu))
    }

    /// A drain begins at this event: the one its CPU's last free called for, or another's.
    fn begin_drain(&mut self, at: usize, event: &Event, zone: ZoneId, cpu: CpuId, index: usize) {
        let here = CpuId(event.cpu.into());
        let just_freed = self.cpus[here.index()].just_freed;
        let overflow =
            self.cpus[here.index()].overflow.take().filter(|o| o.zone == zone && cpu == here);
        self.end_drain(here);
        let (drain, expected) = match overflow {
            Some(Overflow { drain, was_foreseen, .. }) => {
                let foreseen = if was_foreseen { drain.pages } else { 0 };
                (drain, Some(foreseen.min(self.pcp_count(zone, cpu))))
            }
            None => {
                let caused = cpu == here && just_freed == Some((zone, index, event.pid));
                let first_list = if caused { index } else { 0 };
                let pages = self.pcp_count(zone, cpu);
                (Drain { pages, first_list }, caused.then_some(0))
            }
        };
        self.cpus[here.index()].draining = Some(Draining {
            zone,
            cpu,
            cursor: self.cursor(drain, zone, cpu),
            expected,
            pages: 0,
            pages_asked: 0,
            first_event: at,
            last_order: event.order,
        });
    }

    /// Asks for what the drain under way at this CPU has taken so far, if no free caused it. `is_over`
    /// says whether it is at its end.
    fn ask_for_drain(&mut self, here: CpuId, is_over: bool) {
        let Some(draining) = &mut self.cpus[here.index()].draining else { return };
        let Draining { zone, cpu, expected, .. } = *draining;
        let pages = draining.pages - std::mem::replace(&mut draining.pages_asked, draining.pages);
        if expected.is_some() || pages == 0 {
            return;
        }
        let is_local =
            self.memory.zones[zone.index()].node == self.memory.machine.cpu_nodes[cpu.index()];
        let left = self.pcp_count(zone, cpu);
        let is_tuned = self.memory.policy.pcp.high == PcpHigh::AutoTuned;
        if is_over && left > 0 && cpu == here && is_local && is_tuned {
            // Once a second the mark is lowered, and what exceeds it drained: it is now what is left.
            self.memory.set_pcp_high(zone, cpu, left);
            self.report.inferred.marks += 1;
            self.ask(Demand::Mark { zone, cpu, high: left, drains: true });
        } else {
            self.ask(Demand::Drain { zone, cpu, pages: (left > 0).then_some(pages) });
        }
    }

    /// What the model drains next; blocks that were taken without an event are out of the way first.
    fn next_drained(
        &mut self,
        cursor: &mut DrainCursor,
        zone: ZoneId,
        cpu: CpuId,
        drained: Pfn,
    ) -> Option<Pfn> {
        loop {
            let before = cursor.clone();
            let (pfn, _) = cursor.next_block(&self.memory, zone, cpu)?;
            if pfn == drained || !self.was_taken_silently(pfn) {
                return Some(pfn);
            }
            *cursor = before;
            self.take_silently(pfn);
        }
    }

    // Compaction and reclaim.

    fn isolate(&mut self, at: usize, event: &Event) {
        let Event { pfn, order, pid, .. } = *event;
        self.ask(Demand::Isolate(*event));
        if let Some(searched) = self.compactions.isolate(&mut self.memory, event) {
            let Searched { model, .. } = searched;
            self.judge_search(at, searched, model.nr_scanned, model.min_pfn);
        }
        if !self.memory.frames().is_free(pfn, order) {
            if self.memory.free_block_of(pfn).is_none_or(|(_, found)| found < order) {
                self.make_free(pfn, order);
            }
            if self.memory.force_take(pfn, order, Migratetype::Movable).is_none() {
                return;
            }
        } else {
            self.memory.take_free_page(pfn, order);
        }
        for frame in pfn.0..pfn.0 + order.pages() {
            let frame = Pfn(frame);
            self.memory.force_allocated(frame, Order(0), Migratetype::Movable, true);
            self.isolated_by[frame.index()] = isolator(pid);
            self.isolated.push((pid, frame));
        }
    }

    fn compact_step(&mut self, at: usize, event: &Event) {
        let recording = self.recording;
        let Some(step) = recording.compact_step(event) else { return };
        self.ask(Demand::Compact(*event));
        match self.compactions.step(&mut self.memory, event, step) {
            Some(Told::Targets(searched, nr_scanned, min_pfn)) => {
                self.judge_search(at, searched, nr_scanned, min_pfn);
            }
            Some(Told::Source { model, kernel, cc }) => {
                self.judge(at, Choice::MigrateSearch, model == kernel, |_| {
                    [kernel.to_string(), model.to_string(), explain_run(&cc)]
                });
            }
            None => {}
        }
    }

    /// Compares a search for targets with the kernel's, which looked at so many entries for a block from
    /// this frame up.
    fn judge_search(&mut self, at: usize, searched: Searched, nr_scanned: u32, min_pfn: Pfn) {
        let Searched { model, kernel, cc } = searched;
        let agreed =
            model.block == kernel && model.nr_scanned == nr_scanned && model.min_pfn == min_pfn;
        self.judge(at, Choice::FastSearch, agreed, |_| {
            let tell = |block: Option<(Pfn, Order)>, nr_scanned: u32, min_pfn: Pfn| {
                let found = block
                    .map_or("nothing".to_owned(), |(pfn, order)| format!("{pfn} of order {order}"));
                format!("{found} from {min_pfn} up, {nr_scanned} scanned")
            };
            [
                tell(kernel, nr_scanned, min_pfn),
                tell(model.block, model.nr_scanned, model.min_pfn),
                explain_run(&cc),
            ]
        });
    }

    /// What the task has not given back by now is in use.
    fn compact_end(&mut self, pid: u32) {
        for &(owner, pfn) in &self.isolated {
            if owner == pid && self.isolated_by[pfn.index()] == isolator(pid) {
                self.isolated_by[pfn.index()] = 0;
            }
        }
        self.isolated.retain(|&(owner, _)| owner != pid);
    }

    fn reclaim_active(&mut self, node: NodeId, highest_zoneidx: ZoneKind, active: bool) {
        self.ask(Demand::Reclaim { node, highest_zoneidx, active });
        note_reclaim(&mut self.memory, &mut self.boosts, (node, highest_zoneidx), active);
    }

    // The end.

    fn compare_end(&self, after: &Snapshot) -> EndState {
        let mut end = EndState::default();
        let frames = self.memory.frames();
        let mut previous = None;
        for block in after.zones.iter().flat_map(|zone| &zone.free) {
            let is_same = frames.is_free(block.pfn, block.order)
                && frames.migratetype(block.pfn) == block.migratetype;
            let follows = match previous {
                Some((list, pfn)) if list == (block.order, block.migratetype) => Some(pfn),
                _ => None,
            };
            end.free_blocks += 1;
            end.on_same_list += u64::from(is_same);
            end.in_same_order += u64::from(is_same && frames.prev(block.pfn) == follows);
            previous = Some(((block.order, block.migratetype), block.pfn));
        }
        for block in &after.pageblocks {
            if self.memory.find_zone(block.pfn).is_some() {
                end.pageblocks += 1;
                end.with_same_skip_hint +=
                    u64::from(self.memory.block_skip(block.pfn) == block.skip);
            }
        }
        end
    }
}

/// The boost of each zone, by its number.
pub(crate) fn boosts_of(memory: &Memory) -> Vec<u64> {
    memory.zones.iter().map(|zone| zone.watermarks.boost).collect()
}

/// Notes that kswapd begins a round on the zones of a node up to one, or has done it: then the `boosts` that they had
/// when it began have served (`balance_pgdat`), and compaction looks again at pageblocks it skipped.
pub(crate) fn note_reclaim(
    memory: &mut Memory,
    boosts: &mut [u64],
    (node, highest_zoneidx): (NodeId, ZoneKind),
    active: bool,
) {
    for id in (0..memory.zones.len() as u8).map(ZoneId) {
        let zone = &mut memory.zones[id.index()];
        if zone.node != node {
            continue;
        }
        if zone.kind <= highest_zoneidx {
            zone.flags.reclaim_active = active;
            let boost = &mut zone.watermarks.boost;
            if active {
                boosts[id.index()] = *boost;
            } else {
                *boost = boost.saturating_sub(boosts[id.index()]);
            }
        }
        if !active {
            memory.reset_isolation_suitable(id);
        }
    }
}

/// What stands for a task among those that isolate: its number plus one, for 0 stands for nobody.
const fn isolator(pid: u32) -> u32 {
    pid.wrapping_add(1)
}

/// Flags that memory of this type is usually asked for with.
fn usual_gfp(migratetype: Migratetype) -> Gfp {
    match migratetype {
        Migratetype::Movable => Gfp::HIGHUSER_MOVABLE,
        Migratetype::Reclaimable => Gfp::KERNEL | Gfp::RECLAIMABLE,
        _ => Gfp::KERNEL,
    }
}

fn explain_run(cc: &CompactControl) -> String {
    let order = cc.order.map_or("-1".to_owned(), |order| order.to_string());
    format!(
        "after it: order {order}, {:?}, scanners at {} and {}, search order {}, {} in vain, {} targets for {} pages",
        cc.mode,
        cc.migrate_pfn,
        cc.free_pfn,
        cc.search_order,
        cc.fast_search_fail,
        cc.nr_freepages,
        cc.nr_migratepages
    )
}

/// Where every frame is at the end, if that was recorded.
fn at_end(after: Option<&Snapshot>, nr_frames: usize) -> Vec<AtEnd> {
    let Some(after) = after else { return vec![AtEnd::NotRecorded; nr_frames] };
    let mut uses = vec![AtEnd::InUse; nr_frames];
    for zone in &after.zones {
        for block in &zone.free {
            uses[block.pfn.index()..][..block.order.pages() as usize].fill(AtEnd::Free);
        }
        for block in zone.pcp.iter().flat_map(|pcp| &pcp.blocks) {
            uses[block.pfn.index()..][..block.order.pages() as usize].fill(AtEnd::OnPcpList);
        }
    }
    uses
}

/// Whether a fallback is the recorded one.
fn is_as_recorded(extfrag: &Extfrag, event: &Event) -> bool {
    let fields = event.fallback();
    extfrag.pfn == event.pfn
        && extfrag.alloc_order == event.order
        && extfrag.alloc_migratetype == event.migratetype
        && extfrag.fallback_order == fields.fallback_order
        && extfrag.fallback_migratetype == fields.fallback_migratetype
        && extfrag.change_ownership == fields.change_ownership
}

fn explain_fallback(event: &Event, model: Option<Extfrag>) -> [String; 3] {
    let fields = event.fallback();
    let tell = |pfn: Pfn, order: Order, from: Migratetype, owned: bool| {
        let verb = if owned { "claims" } else { "steals" };
        format!("{verb} from an order-{order} {from} block for {pfn}")
    };
    [
        tell(
            event.pfn,
            fields.fallback_order,
            fields.fallback_migratetype,
            fields.change_ownership,
        ),
        model.map_or("does not fall back".to_owned(), |m| {
            tell(m.pfn, m.fallback_order, m.fallback_migratetype, m.change_ownership)
        }),
        format!("order {} for {}", event.order, event.migratetype),
    ]
}
