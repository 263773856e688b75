//! Following a recording event by event, asking the model first.

use super::{Choice, Disagreement, EndState, Inferred, Report, Tally};
use crate::Kernel;
use crate::future::{Cursor, Future};
use crate::recording::{Event, Kind, Recording};
use highorder_mm::alloc::Request;
use highorder_mm::buddy::FreeTo;
use highorder_mm::fallback::{Extfrag, SearchMode};
use highorder_mm::frame::{End, State};
use highorder_mm::gfp::{AllocFlags, Gfp};
use highorder_mm::memory::Memory;
use highorder_mm::pcp::{Drain, DrainCursor, pcp_index};
use highorder_mm::policy::FallbackRule;
use highorder_mm::types::{Migratetype, Order, Pfn, ZoneKind};
use highorder_mm::zone::ZoneId;
use highorder_snapshot::Snapshot;

/// Disagreements explained of each kind.
const EXPLAINED_PER_KIND: usize = 5;
/// How far to look ahead for the next event of the same CPU.
const LOOK_AHEAD_EVENTS: usize = 1 << 14;

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
    blocks: u32,
    expected: u32,
    mode: SearchMode,
    last_event: usize,
}

/// A drain under way.
struct Draining {
    zone: ZoneId,
    cpu: usize,
    cursor: DrainCursor,
    /// Pages that the free which caused it should drain.
    expected: Option<u32>,
    pages: u32,
    first_event: usize,
    last_order: Order,
}

/// What is going on at one CPU.
#[derive(Default)]
struct Cpu {
    run: Option<Run>,
    draining: Option<Draining>,
    /// A drain that the free just done should cause.
    overflow: Option<(ZoneId, Drain, usize)>,
    /// The list and the task of the free just done.
    just_freed: Option<(ZoneId, usize, u32)>,
    /// A block taken for a request, past the lists.
    direct: Option<Pfn>,
    /// The coming allocation is already in the lists' tuning state.
    noted: bool,
    /// What the model foresaw at the taking of a block, until the kernel tells of its fallback.
    foreseen: Option<(Pfn, Option<Extfrag>)>,
}

/// The replay of one recording.
pub(super) struct Follower<'a> {
    recording: &'a Recording,
    events: &'a [Event],
    future: Cursor<'a>,
    memory: Memory,
    report: Report,
    explained: [usize; Choice::ALL.len()],
    origins: Vec<Origin>,
    at_end: Vec<AtEnd>,
    /// Which task isolated a frame, plus one; 0 for none.
    isolated_by: Vec<u32>,
    /// Frames that compacting tasks hold isolated.
    isolated: Vec<(u32, Pfn)>,
    /// Tasks that migrate a batch of pages now.
    migrating: Vec<u32>,
    cpus: Vec<Cpu>,
    /// Whether the recorded kernel tells of a fallback before the block it provides is taken.
    tells_before_taking: bool,
}

impl<'a> Follower<'a> {
    /// At the start of `recording`, whose state `memory` is in.
    pub(super) fn new(recording: &'a Recording, future: &'a Future, memory: Memory) -> Self {
        let nr_frames = memory.frames().len();
        let nr_cpus = memory.machine.cpu_nodes.len();
        let rule = recording
            .before
            .kernel_release
            .as_deref()
            .and_then(|release| Kernel::for_release(release).ok())
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
            origins: vec![Origin::Whole; nr_frames],
            at_end: at_end(recording.after.as_ref(), nr_frames),
            isolated_by: vec![0; nr_frames],
            isolated: Vec::new(),
            migrating: Vec::new(),
            cpus: (0..nr_cpus).map(|_| Cpu::default()).collect(),
            tells_before_taking: rule != FallbackRule::ClaimThenSteal,
            memory,
        }
    }

    /// Follows one event.
    pub(super) fn step(&mut self, at: usize) {
        let event = self.events[at];
        self.future.pass(at, &event);
        let cpu = usize::from(event.cpu);
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
            Kind::Isolate => self.isolate(&event),
            Kind::CompactBegin => {}
            Kind::CompactEnd => self.compact_end(event.pid),
            Kind::MigrateBegin => self.migrating.push(event.pid),
            Kind::MigrateEnd => self.migrating.retain(|&pid| pid != event.pid),
            Kind::KswapdWake => self.reclaim_active(event.pfn.0, event.highest_zone(), true),
            Kind::KswapdDone => self.reclaim_active(event.pfn.0, ZoneKind::Movable, false),
        }
    }

    /// The report, once all events are done.
    pub(super) fn finish(mut self) -> Report {
        for cpu in 0..self.cpus.len() {
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

    /// The next event of this CPU that `wanted` accepts; the search ends at the first it does not skip.
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
    fn infer_taken(&mut self, id: ZoneId, cpu: usize, index: usize, until: Option<Pfn>) {
        while let Some(head) = self.memory.zones[id.index()].pcp[cpu].list(index).head() {
            if Some(head) == until || !self.was_taken_silently(head) {
                break;
            }
            self.take_silently(head);
        }
    }

    /// As [`Self::infer_taken`], when `pfn` is about to be put before the head: what will be heard of
    /// before `pfn` is, cannot have been taken from behind it.
    fn infer_taken_before(&mut self, id: ZoneId, cpu: usize, index: usize, pfn: Pfn) {
        let leaves_at = self.future.coming(pfn).unwrap_or(usize::MAX);
        while let Some(head) = self.memory.zones[id.index()].pcp[cpu].list(index).head() {
            let is_first = self.future.coming(head).is_some_and(|at| at < leaves_at);
            if !is_first || !self.was_taken_silently(head) {
                break;
            }
            self.take_silently(head);
        }
    }

    fn take_silently(&mut self, pfn: Pfn) {
        self.report.inferred.bulk_pages += u64::from(self.memory.frames().order(pfn).pages());
        self.memory.force_take_pcp(pfn);
    }

    /// The run that this event belongs to: the one under way, or a new one.
    fn run_of(&mut self, at: usize, event: &Event) -> Run {
        let cpu = usize::from(event.cpu);
        let zone = self.memory.zone_of(event.pfn);
        if let Some(run) = self.cpus[cpu].run {
            let same = run.zone == zone
                && run.order == event.order
                && run.migratetype == event.migratetype
                && run.to == To::List;
            let head = || {
                let index = pcp_index(event.order, event.migratetype);
                self.memory.zones[zone.index()].pcp[cpu].list(index).head()
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
            blocks: 0,
            expected: 1,
            mode: SearchMode::Normal,
            last_event: at,
        };
        if !self.memory.has_pcp_list(event.order) || event.migratetype == Migratetype::HighAtomic {
            return run;
        }
        let index = pcp_index(event.order, event.migratetype);
        self.infer_taken(zone, cpu, index, None);
        let is_same = |e: &Event| {
            matches!(e.kind, Kind::Take | Kind::Extfrag)
                && e.order == event.order
                && e.migratetype == event.migratetype
        };
        let next = self.next_on_cpu(at, is_same).filter(|e| e.kind == Kind::Alloc);
        let is_empty = self.memory.zones[zone.index()].pcp[cpu].list(index).is_empty();
        let serves_next = next.is_some_and(|e| e.pfn == event.pfn);
        if !is_empty && serves_next {
            return run;
        }
        run.to = To::List;
        let before = self.memory.zones[zone.index()].pcp[cpu].clone();
        if let Some(alloc) = next.filter(|_| serves_next || self.tells_before_taking) {
            self.note_alloc(alloc, zone, true);
        }
        run.expected = self.memory.refill_size(zone, cpu, event.order);
        let is_alone = || self.next_on_cpu(at, |_| false).is_some_and(|e| e.kind == Kind::Alloc);
        let has_more = self.has_more_than_one(zone, event.order, event.migratetype);
        if event.kind == Kind::Take && serves_next && run.expected > 1 && has_more && is_alone() {
            // A refill fetches more; this went past the lists, which were locked.
            self.memory.zones[zone.index()].pcp[cpu] = before;
            self.report.inferred.bypassed_pages += u64::from(event.order.pages());
            run.to = To::Request;
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
        let cpu = usize::from(alloc.cpu);
        if self.cpus[cpu].noted {
            return;
        }
        self.cpus[cpu].noted = true;
        self.memory.note_zone_walk(self.request(alloc), zone);
        if from_list {
            self.memory.note_pcp_alloc(zone, cpu);
        }
    }

    fn request(&self, alloc: &Event) -> Request {
        let cpu = usize::from(alloc.cpu);
        let node = self.memory.machine.cpu_nodes[cpu];
        Request { order: alloc.order, gfp: alloc.gfp(), cpu, node }
    }

    /// Flags that the request behind a block's taking had once it was willing to mix pageblocks.
    fn flags_of_request(&self, at: usize) -> AllocFlags {
        let gfp = self
            .next_on_cpu(at, |e| e.kind != Kind::Alloc)
            .map_or(Gfp::HIGHUSER_MOVABLE, Event::gfp);
        AllocFlags::fast_path(gfp)
    }

    fn end_run(&mut self, cpu: usize) {
        let Some(run) = self.cpus[cpu].run.take() else { return };
        if run.to == To::Request {
            return;
        }
        let Run { zone, order, migratetype, blocks, expected, last_event, .. } = run;
        if blocks < expected && self.memory.peek_smallest(zone, order, migratetype).is_none() {
            // The zone had no more to give.
            return;
        }
        self.judge(last_event, Choice::RefillSize, blocks == expected, |this| {
            let pcp = &this.memory.zones[zone.index()].pcp[cpu];
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
        let cpu = usize::from(event.cpu);
        match run.to {
            To::List => self.memory.force_refill(event.pfn, cpu, event.migratetype),
            To::Request => self.cpus[cpu].direct = Some(event.pfn),
        }
        run.blocks += 1;
        self.cpus[cpu].run = Some(run);
    }

    fn take(&mut self, at: usize, event: &Event) {
        let run = self.run_of(at, event);
        let Run { zone, order, migratetype, .. } = run;
        let claims = !self.tells_before_taking
            && self
                .next_on_cpu(at, |_| false)
                .is_some_and(|e| e.kind == Kind::Extfrag && e.pfn == event.pfn);
        let origin = self.memory.free_block_of(event.pfn).map(|(head, _)| self.origin(head));
        let own = self.memory.peek_smallest(zone, order, migratetype);
        let cpu = usize::from(event.cpu);
        let (model, foreseen) = match own {
            Some((pfn, _)) => (Some(pfn), None),
            None => self.fall_back_or_force(at, event, run.mode, |pfn, extfrag| {
                claims && pfn == event.pfn && extfrag.change_ownership
            }),
        };
        self.cpus[cpu].foreseen = Some((event.pfn, foreseen));
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
        match origin {
            Some(Origin::Split) => self.count(Choice::SplitRemainder, agreed),
            Some(Origin::Merged) => self.count(Choice::Merged, agreed),
            _ => {}
        }
        if self.memory.frames().state(event.pfn) == State::Allocated {
            self.place(event, run);
        }
    }

    /// Where the kernel's block is on the list that the model took another from, the list was rotated
    /// without an event: compaction's search for targets does so (`move_freelist_head`).
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
        let before = self.memory.clone();
        let containing = self.memory.free_block_of(event.pfn);
        let pfn =
            self.memory.rmqueue_buddy_block(zone, event.order, event.migratetype, flags, &mut mode);
        let extfrag = self.memory.take_extfrag().pop();
        match (pfn, extfrag) {
            (Some(pfn), Some(extfrag)) if is_right(pfn, &extfrag) => {
                if let Some((head, found)) = containing {
                    self.note_split(head, found, event.pfn, event.order);
                }
                if let Some(run) = &mut self.cpus[usize::from(event.cpu)].run {
                    run.mode = mode;
                }
            }
            _ => self.memory = before,
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
                    self.memory.free_to_buddy(zone, at, part, FreeTo::Policy);
                    self.report.inferred.other_pages += u64::from(part.pages());
                }
                _ => {}
            }
            let next = self.memory.free_block_of(at).map(|(head, order)| head.0 + order.pages());
            at = Pfn(next.unwrap_or(at.0 + 1).max(at.0 + 1));
        }
    }

    fn origin(&self, pfn: Pfn) -> Origin {
        self.origins[pfn.index()]
    }

    /// Notes the remainders of splitting the block `head` of order `found` around `[pfn, pfn + 2^order)`.
    fn note_split(&mut self, head: Pfn, found: Order, pfn: Pfn, order: Order) {
        let mut kept = head;
        for half in (order.0..found.0).rev().map(Order) {
            let upper = Pfn(kept.0 + half.pages());
            let (keep, free) = if pfn >= upper { (upper, kept) } else { (kept, upper) };
            self.origins[free.index()] = Origin::Split;
            kept = keep;
        }
    }

    /// Notes whether a block of `order` merged on its way to the free lists.
    fn note_freed(&mut self, pfn: Pfn, order: Order) {
        if let Some((head, found)) = self.memory.free_block_of(pfn) {
            self.origins[head.index()] = if found > order { Origin::Merged } else { Origin::Whole };
        }
    }

    // Fallbacks.

    /// A fallback of a kernel that tells of it after the taking (6.12's claim), or instead of it.
    fn fallback(&mut self, at: usize, event: &Event) {
        let cpu = usize::from(event.cpu);
        if let Some((pfn, foreseen)) = self.cpus[cpu].foreseen.take()
            && pfn == event.pfn
        {
            let agreed = foreseen.is_some_and(|extfrag| is_as_recorded(&extfrag, event));
            self.judge(at, Choice::Fallback, agreed, |_| explain_fallback(event, foreseen));
            return;
        }
        let run = self.run_of(at, event);
        let own = self.memory.peek_smallest(run.zone, event.order, event.migratetype);
        let origin = self.memory.free_block_of(event.pfn).map(|(head, _)| self.origin(head));
        let mut foreseen = None;
        self.cpus[cpu].run = Some(run);
        if own.is_none() || run.mode == SearchMode::Steal {
            (_, foreseen) = self.fall_back_or_force(at, event, run.mode, |_, extfrag| {
                is_as_recorded(extfrag, event)
            });
        }
        let agreed = foreseen.is_some_and(|extfrag| is_as_recorded(&extfrag, event));
        self.judge(at, Choice::Fallback, agreed, |_| explain_fallback(event, foreseen));
        match origin {
            Some(Origin::Split) => self.count(Choice::SplitRemainder, agreed),
            Some(Origin::Merged) => self.count(Choice::Merged, agreed),
            _ => {}
        }
        if !agreed {
            self.take_by_force(event, event.fallback().change_ownership);
        }
        let mut run = self.cpus[cpu].run.unwrap_or(run);
        if !event.fallback().change_ownership {
            run.mode = SearchMode::Steal;
        }
        if self.memory.frames().state(event.pfn) == State::Allocated {
            self.place(event, run);
        }
    }

    /// A fallback of a kernel that tells of it before the block it provides is taken (before 6.15).
    fn fallback_before(&mut self, at: usize, event: &Event) {
        let cpu = usize::from(event.cpu);
        let run = self.run_of(at, event);
        self.cpus[cpu].run = Some(run);
        let fields = event.fallback();
        let own = self.memory.peek_smallest(run.zone, event.order, event.migratetype);
        let mut foreseen = None;
        if own.is_none() {
            let flags = self.flags_of_request(at);
            let before = self.memory.clone();
            if let FallbackRule::MoveAndRetry { moved_to } = self.memory.policy.fallback.rule {
                let Run { zone, order, migratetype, .. } = run;
                self.memory.move_fallback_block(zone, order, migratetype, flags, moved_to);
                foreseen = self.memory.take_extfrag().pop();
            } else {
                (_, foreseen) = self.fall_back_or_force(at, event, run.mode, |_, _| false);
            }
            if !foreseen.is_some_and(|extfrag| is_as_recorded(&extfrag, event)) {
                self.memory = before;
            }
        }
        let agreed = foreseen.is_some_and(|extfrag| is_as_recorded(&extfrag, event));
        self.judge(at, Choice::Fallback, agreed, |_| explain_fallback(event, foreseen));
        if agreed {
            return;
        }
        if self.memory.free_block_of(event.pfn).is_none_or(|(_, o)| o < fields.fallback_order) {
            self.make_free(event.pfn, fields.fallback_order);
        }
        if fields.change_ownership {
            self.memory.force_claim(event.pfn, event.migratetype);
        } else if let Some((head, _)) = self.memory.free_block_of(event.pfn) {
            self.memory.force_move(head, event.migratetype, End::Tail);
        }
    }

    // Requests.

    fn alloc(&mut self, at: usize, event: &Event) {
        let cpu = usize::from(event.cpu);
        let Event { pfn, order, .. } = *event;
        let zone = self.memory.zone_of(pfn);
        let was_direct = self.cpus[cpu].direct.take() == Some(pfn);
        let state = self.memory.frames().state(pfn);
        self.note_alloc(event, zone, state == State::Pcp);
        self.cpus[cpu].noted = false;
        self.isolated_by[pfn.index()] = 0;
        match state {
            State::Pcp => self.take_from_list(at, event, zone),
            State::Free | State::Inner | State::Isolated | State::Reserved if !was_direct => {
                self.ensure_in_use(pfn, order, |inferred| &mut inferred.captured_pages);
            }
            _ => {}
        }
        let movable = event.gfp().migratetype() == Migratetype::Movable;
        self.memory.force_allocated(pfn, order, event.migratetype, movable);
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
        let head = self.memory.zones[zone.index()].pcp[cpu].list(index).head();
        let agreed = is_on_list && head == Some(pfn);
        self.judge(at, Choice::PcpTake, agreed, |this| {
            let pcp = &this.memory.zones[zone.index()].pcp[cpu];
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
            at = Pfn(head.0 + self.memory.frames().order(head).pages());
        }
    }

    fn free(&mut self, at: usize, event: &Event) {
        let Event { pfn, order, pid, .. } = *event;
        let cpu = usize::from(event.cpu);
        if self.isolated_by[pfn.index()] == pid + 1 && self.migrating.contains(&pid) {
            // A target that was not used after all: it goes back to the compactor.
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
        if !has_list || self.bypasses_lists(pfn) {
            if has_list {
                self.report.inferred.bypassed_pages += u64::from(order.pages());
            }
            self.memory.free_to_buddy(zone, pfn, order, FreeTo::Policy);
            self.note_freed(pfn, order);
            return;
        }
        let index = pcp_index(order, self.memory.block_type(pfn));
        self.infer_taken_before(zone, cpu, index, pfn);
        let drain = self.memory.free_to_pcp(zone, pfn, order, cpu);
        self.cpus[cpu].just_freed = Some((zone, index, pid));
        self.cpus[cpu].overflow = drain.map(|drain| (zone, drain, at));
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

    fn end_drain(&mut self, cpu: usize) {
        self.cpus[cpu].just_freed = None;
        if let Some(draining) = self.cpus[cpu].draining.take() {
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
        if let Some((zone, drain, freed_at)) = self.cpus[cpu].overflow.take() {
            // The mark must be above what is there.
            let pcp = &mut self.memory.zones[zone.index()].pcp[cpu];
            pcp.high = pcp.high.max(pcp.count + 1).min(pcp.high_max);
            self.judge(freed_at, Choice::DrainSize, false, |this| {
                this.explain_drain_size(zone, cpu, 0, drain.pages)
            });
        }
    }

    fn explain_drain_size(&self, zone: ZoneId, cpu: usize, kernel: u32, model: u32) -> [String; 3] {
        let pcp = &self.memory.zones[zone.index()].pcp[cpu];
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
        let here = usize::from(event.cpu);
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
        let goes_on = self.cpus[here]
            .draining
            .as_ref()
            .is_some_and(|draining| draining.zone == zone && draining.cpu == cpu);
        if !goes_on {
            self.begin_drain(at, event, zone, cpu, index);
        }
        let Some(mut draining) = self.cpus[here].draining.take() else { return };
        let model = self.next_drained(&mut draining.cursor, zone, cpu, pfn);
        let agreed = model == Some(pfn);
        self.judge(at, Choice::Drain, agreed, |this| {
            let pcp = &this.memory.zones[zone.index()].pcp[cpu];
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
        self.cpus[here].draining = Some(draining);
        self.memory.force_drain(pfn);
        self.note_freed(pfn, order);
    }

    fn pcp_count(&self, zone: ZoneId, cpu: usize) -> u32 {
        self.memory.zones[zone.index()].pcp[cpu].count
    }

    fn cursor(&self, drain: Drain, zone: ZoneId, cpu: usize) -> DrainCursor {
        DrainCursor::new(self.memory.policy.pcp.drain, drain, self.pcp_count(zone, cpu))
    }

    /// A drain begins at this event: the one its CPU's last free called for, or another's.
    fn begin_drain(&mut self, at: usize, event: &Event, zone: ZoneId, cpu: usize, index: usize) {
        let here = usize::from(event.cpu);
        let just_freed = self.cpus[here].just_freed;
        let overflow = self.cpus[here].overflow.take().filter(|o| o.0 == zone && cpu == here);
        self.end_drain(here);
        let (drain, expected) = match overflow {
            Some((_, drain, _)) => (drain, Some(drain.pages.min(self.pcp_count(zone, cpu)))),
            None => {
                let caused = cpu == here && just_freed == Some((zone, index, event.pid));
                if caused {
                    // The mark must be below what is there.
                    let pcp = &mut self.memory.zones[zone.index()].pcp[cpu];
                    pcp.high = pcp.high.min(pcp.count).max(pcp.high_min);
                }
                let first_list = if caused { index } else { 0 };
                let pages = self.pcp_count(zone, cpu);
                (Drain { pages, first_list }, caused.then_some(0))
            }
        };
        self.cpus[here].draining = Some(Draining {
            zone,
            cpu,
            cursor: self.cursor(drain, zone, cpu),
            expected,
            pages: 0,
            first_event: at,
            last_order: event.order,
        });
    }

    /// What the model drains next; blocks that were taken without an event are out of the way first.
    fn next_drained(
        &mut self,
        cursor: &mut DrainCursor,
        zone: ZoneId,
        cpu: usize,
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

    fn isolate(&mut self, event: &Event) {
        let Event { pfn, order, pid, .. } = *event;
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
            self.isolated_by[frame.index()] = pid + 1;
            self.isolated.push((pid, frame));
        }
    }

    /// What the task has not given back by now is in use.
    fn compact_end(&mut self, pid: u32) {
        for &(owner, pfn) in &self.isolated {
            if owner == pid && self.isolated_by[pfn.index()] == pid + 1 {
                self.isolated_by[pfn.index()] = 0;
            }
        }
        self.isolated.retain(|&(owner, _)| owner != pid);
    }

    fn reclaim_active(&mut self, node: u32, highest: ZoneKind, active: bool) {
        let zones = self.memory.zones.iter_mut();
        for zone in zones.filter(|z| z.node == node && z.kind <= highest) {
            zone.flags.reclaim_active = active;
        }
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
        end
    }
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
