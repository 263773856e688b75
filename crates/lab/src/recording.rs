//! Recordings of real kernels: the state of all pages before and after, and every event between.

use crate::machine;
use highorder_input::{InputError, Problem};
use highorder_kernelfs::trace::{Entry, Event as TraceEvent, Number, TraceReader, field};
use highorder_kernelfs::{Pagetypeinfo, TextFile};
use highorder_mm::gfp::Gfp;
use highorder_mm::types::{MAX_PAGE_ORDER, Migratetype, NodeId, Order, Pfn, ZoneKind};
use highorder_snapshot::recording_file::{STATE_AFTER, STATE_BEFORE};
use highorder_snapshot::{Exactness, RecordingFiles, Snapshot, ZoneState};
use std::collections::BTreeMap;
use std::path::Path;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A block left a free list for a request of its own type (`mm_page_alloc_zone_locked`).
    Take,
    /// A block was handed out (`mm_page_alloc`).
    Alloc,
    /// A block was freed, and joins a list at once (`mm_page_free`).
    Free,
    /// A page was freed as one of a batch, and joins a list at its [`Kind::FreeCommit`].
    FreeBatched,
    /// A page of a batch joins a list (`mm_page_free_batched`).
    FreeCommit,
    /// A block went from a per-CPU list to the free lists (`mm_page_pcpu_drain`).
    Drain,
    /// A fallback to another type (`mm_page_alloc_extfrag`); see [`Event::fallback`].
    Extfrag,
    /// Compaction took a free block (a probe on `__isolate_free_page` that returned non-zero).
    Isolate,
    /// A task begins to compact a zone.
    CompactBegin,
    /// It ends.
    CompactEnd,
    /// A compaction goes on; see [`Recording::compact_step`].
    CompactStep,
    /// A task begins to migrate a batch of pages.
    MigrateBegin,
    /// It ends.
    MigrateEnd,
    /// kswapd of the node in [`Event::pfn`] woke.
    KswapdWake,
    /// kswapd of the node in [`Event::pfn`] has done its round: the kernel does not tell, so this is put
    /// behind its last event before it wakes again or sleeps.
    KswapdDone,
}

impl Kind {
    /// Whether an event of this kind is about a block.
    #[inline]
    #[must_use]
    pub const fn names_a_frame(self) -> bool {
        !matches!(
            self,
            Self::CompactBegin
                | Self::CompactEnd
                | Self::CompactStep
                | Self::MigrateBegin
                | Self::MigrateEnd
                | Self::KswapdWake
                | Self::KswapdDone
        )
    }
}

/// One event of a recording: 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since the first.
    pub time_ns: u64,
    /// The first frame of the block (or the node, for kswapd's events).
    pub pfn: Pfn,
    /// The task.
    pub pid: u32,
    /// Flags of the request, for allocations; packed fields for fallbacks; one more than the index of a
    /// [`CompactStep`], for compaction's events; where a block was found, for [`Kind::Isolate`].
    bits: u32,
    /// What happened.
    pub kind: Kind,
    /// Size of the block.
    pub order: Order,
    /// Type of the request or of the list.
    pub migratetype: Migratetype,
    /// Where.
    pub cpu: u8,
}

const _: () = assert!(size_of::<Event>() == 24);

/// What compaction tells of itself, beyond [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactStep {
    /// An allocation is about to compact (`mm_compaction_try_to_compact_pages`).
    TryToCompact {
        /// The order wanted.
        order: Order,
        /// Flags of the request.
        gfp: Gfp,
        /// 0 is the highest (`enum compact_priority`).
        priority: i32,
    },
    /// A zone's compaction begins (`mm_compaction_begin`).
    Begin {
        /// Where pages to migrate are looked for.
        migrate_pfn: Pfn,
        /// Where targets are looked for.
        free_pfn: Pfn,
        /// Whether it may wait.
        is_sync: bool,
    },
    /// It asked itself whether it is done (`mm_compaction_finished`).
    Finished {
        /// The order wanted, unless the whole zone is compacted.
        order: Option<Order>,
        /// Whether it is not.
        goes_on: bool,
        /// Whether its scanners have met.
        scanners_met: bool,
    },
    /// Pages to migrate were looked for in part of a pageblock
    /// (`mm_compaction_isolate_migratepages`).
    IsolateMigratepages {
        /// First frame.
        start: Pfn,
        /// Behind the last frame.
        end: Pfn,
        /// Pages found.
        nr_taken: u32,
    },
    /// Targets were looked for in part of a pageblock (`mm_compaction_isolate_freepages`).
    IsolateFreepages {
        /// First frame.
        start: Pfn,
        /// Behind the last frame.
        end: Pfn,
    },
    /// Targets were looked for on the free lists (`mm_compaction_fast_isolate_freepages`).
    FastIsolateFreepages {
        /// Lowest frame that would have done.
        min_pfn: Pfn,
        /// Where the free scanner stands.
        free_pfn: Pfn,
        /// List entries looked at and pages taken.
        nr_scanned: u32,
        /// Pages taken.
        nr_taken: u32,
    },
    /// A batch was migrated (`mm_compaction_migratepages`).
    Migratepages,
    /// Compaction has served, or is thought to (`mm_compaction_defer_reset`).
    DeferReset,
}

/// The rest of a fallback event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FallbackFields {
    /// Size of the block that was found.
    pub fallback_order: Order,
    /// Type of the list it was found on.
    pub fallback_migratetype: Migratetype,
    /// Whether its pageblock changed its type to the request's.
    pub change_ownership: bool,
}

impl Event {
    /// Flags of the request.
    #[inline]
    #[must_use]
    pub fn gfp(&self) -> Gfp {
        debug_assert_eq!(self.kind, Kind::Alloc);
        Gfp::from_bits_retain(self.bits)
    }

    /// Whose kswapd it is, for a [`Kind::KswapdWake`] and a [`Kind::KswapdDone`].
    #[must_use]
    pub fn node(&self) -> NodeId {
        debug_assert!(matches!(self.kind, Kind::KswapdWake | Kind::KswapdDone));
        NodeId(self.pfn.0)
    }

    /// Up to which zone kswapd is at work, for a [`Kind::KswapdWake`].
    #[must_use]
    pub fn highest_zone(&self) -> ZoneKind {
        debug_assert_eq!(self.kind, Kind::KswapdWake);
        ZoneKind::ALL.get(self.bits as usize).copied().unwrap_or(ZoneKind::Movable)
    }

    /// Whether the block of a [`Kind::Isolate`] was found on a free list, not by a scan.
    #[must_use]
    pub fn is_from_list(&self) -> bool {
        debug_assert_eq!(self.kind, Kind::Isolate);
        self.bits != 0
    }

    /// The fields of a [`Kind::Extfrag`].
    #[must_use]
    pub fn fallback(&self) -> FallbackFields {
        debug_assert_eq!(self.kind, Kind::Extfrag);
        FallbackFields {
            fallback_order: Order((self.bits & 0xff) as u8),
            fallback_migratetype: Migratetype::from_index((self.bits >> 8 & 0xff) as usize),
            change_ownership: self.bits >> 16 & 1 == 1,
        }
    }
}

/// What is told beside the events about blocks, for those who ask what was wanted and by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aside {
    /// Nanoseconds since the first event.
    pub time_ns: u64,
    /// The task.
    pub pid: u32,
    /// What happened.
    pub kind: AsideKind,
}

/// What an [`Aside`] tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsideKind {
    /// A request got nothing.
    Refused {
        /// The order wanted.
        order: Order,
        /// Flags of the request.
        gfp: Gfp,
    },
    /// The task begins to reclaim for its own request.
    ReclaimBegin,
    /// It ends.
    ReclaimEnd,
}

/// A recording.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Name of its folder.
    pub name: String,
    /// All pages before.
    pub before: Snapshot,
    /// All pages after, where it was recorded.
    pub after: Option<Snapshot>,
    /// What happened between, in the order of the trace's clock.
    pub events: Vec<Event>,
    /// What compaction tells, by [`Self::compact_step`].
    compact_steps: Vec<CompactStep>,
    /// What is told besides, in the order of time.
    pub asides: Vec<Aside>,
    /// Lines of the trace.
    pub nr_lines: u64,
    /// Lines of events lost to an overrun of the trace buffer.
    pub nr_lost: u64,
    /// The trace's last line, where the trace ends in the middle of it: it was not read.
    pub cut_line: Option<u64>,
    /// What else is to be known of it, a sentence each, as its `case.json` says.
    pub notes: Vec<String>,
}

/// The mark that user space writes into the trace once the lists of a state are copied.
const LISTS_COPIED: &[u8] = b"lists_copied";

impl Recording {
    /// Reads a recording, a folder or a recording file: `state0`, `state1` (if there) and `trace.txt`.
    ///
    /// # Errors
    /// Every bad line of the first file that has any.
    pub fn read(folder: impl AsRef<Path>) -> Result<Self, InputError> {
        let folder = folder.as_ref();
        let files = RecordingFiles::open(folder)?;
        let before = files.state(STATE_BEFORE)?.ok_or_else(|| {
            InputError::file(folder, format!("no {STATE_BEFORE} here: not a recording's folder"))
        })?;
        refuse_counts(&files.label_of_state(STATE_BEFORE), &before)?;
        let after = files.state(STATE_AFTER)?;
        if let Some(after) = &after {
            check_after(&files.label_of_state(STATE_AFTER), after, &before)?;
        }
        let trace = files.trace()?;
        let mut builder = Builder::new(&before, trace.file())?;
        let cut_line = TraceReader::new(trace).for_each(|entry| builder.entry(&entry))?;
        let mut built = builder.finish()?;
        mark_batched_frees(&mut built.events, before.nr_frames);
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self {
            name,
            before,
            after,
            events: built.events,
            compact_steps: built.compact_steps,
            asides: built.asides,
            nr_lines: built.lines,
            nr_lost: built.lost,
            cut_line,
            notes: notes(&files)?,
        })
    }

    /// What an event of compaction tells.
    #[must_use]
    pub fn compact_step(&self, event: &Event) -> Option<&CompactStep> {
        match event.kind {
            Kind::CompactBegin | Kind::CompactStep => {
                self.compact_steps.get((event.bits as usize).wrapping_sub(1))
            }
            _ => None,
        }
    }

    /// Whether compaction tells of its searches of the free lists (since 6.4). If it made none, that is
    /// not known, and does not matter.
    #[must_use]
    pub fn tells_of_searches(&self) -> bool {
        let is_search =
            |step: &CompactStep| matches!(step, CompactStep::FastIsolateFreepages { .. });
        self.compact_steps.iter().any(is_search)
    }

    /// The node of each CPU that an event names: the one that most of what it was given came from.
    /// (A state's files do not tell.)
    #[must_use]
    pub fn cpu_nodes(&self) -> Vec<NodeId> {
        let zones = &self.before.zones;
        // Blocks that each CPU was given, by zone.
        let mut given: Vec<Vec<u64>> = Vec::new();
        for event in &self.events {
            let cpu = usize::from(event.cpu);
            if given.len() <= cpu {
                given.resize_with(cpu + 1, || vec![0; zones.len()]);
            }
            if event.kind == Kind::Alloc
                && let Some(zone) = zones.iter().position(|zone| zone.spans(event.pfn, 1))
            {
                given[cpu][zone] += 1;
            }
        }
        let node_of = |given: &Vec<u64>| {
            let mut by_node: BTreeMap<u32, u64> = BTreeMap::new();
            for (zone, nr) in zones.iter().zip(given) {
                *by_node.entry(zone.node).or_default() += nr;
            }
            let most = by_node.into_iter().max_by_key(|&(node, nr)| (nr, std::cmp::Reverse(node)));
            NodeId(most.map_or(0, |(node, _)| node))
        };
        given.iter().map(node_of).collect()
    }
}

/// What whoever recorded it has to say: the sentences under `notes` of `case.json`.
fn notes(files: &RecordingFiles) -> Result<Vec<String>, InputError> {
    let case = files.case()?;
    let notes = case["notes"].as_array().into_iter().flatten();
    Ok(notes.filter_map(|note| note.as_str().map(highorder_input::printable)).collect())
}

/// The state after must be one of the machine before, and know where free blocks lie.
fn check_after(label: &str, after: &Snapshot, before: &Snapshot) -> Result<(), InputError> {
    let spans = |state: &Snapshot| -> Vec<String> {
        let span = |z: &ZoneState| {
            format!("node {} {} {}..{:#x}", z.node, z.kind, z.start_pfn, z.end_pfn())
        };
        state.zones.iter().map(span).collect()
    };
    let (found, expected) = (spans(after), spans(before));
    if found != expected || after.nr_frames != before.nr_frames {
        let (found, expected) = (found.join(", "), expected.join(", "));
        let message = format!("has {found}, expected {expected} as in the state before");
        return Err(InputError::file(label, message));
    }
    refuse_counts(label, after)
}

fn refuse_counts(label: &str, state: &Snapshot) -> Result<(), InputError> {
    if state.exactness == Exactness::Counts {
        let message = "counts alone, expected a state that knows where each free block lies";
        return Err(InputError::file(label, message));
    }
    Ok(())
}

/// Makes compact events from lines.
struct Builder {
    trace: String,
    nr_frames: u64,
    vmemmap_base: Option<u64>,
    /// Frames of each zone.
    zones: Vec<std::ops::Range<u64>>,
    /// Type by the kernel's number.
    migratetypes: Vec<Migratetype>,
    events: Vec<Event>,
    compact_steps: Vec<CompactStep>,
    asides: Vec<Aside>,
    lines: u64,
    lost: u64,
    first_ns: Option<u64>,
    marks: u32,
    has_marks: bool,
    /// Rounds of kswapd under way.
    rounds: Vec<Round>,
    /// Ends of rounds, and the number of events before each.
    dones: Vec<(usize, Event)>,
    /// Blocks whose isolation has begun, by task.
    isolating: Vec<(u32, Pfn, Order)>,
    /// The first bad lines, and how many there are.
    problems: Vec<Problem>,
    nr_problems: usize,
}

/// Bad lines told of; the rest are counted.
const PROBLEMS_SHOWN: usize = 20;

/// Bytes of a `struct page`.
const STRUCT_PAGE_BYTES: u64 = 64;

impl Builder {
    fn new(before: &Snapshot, trace: &str) -> Result<Self, InputError> {
        let migratetypes = match before.files.get("pagetypeinfo") {
            None => default_migratetypes(),
            Some(text) => {
                let info = Pagetypeinfo::parse("pagetypeinfo", text)?;
                let names = info.nodes.first().map(|n| n.migratetypes.clone()).unwrap_or_default();
                let known: Option<Vec<_>> =
                    names.iter().map(|name| Migratetype::from_name(name)).collect();
                known.filter(|types| !types.is_empty()).unwrap_or_else(default_migratetypes)
            }
        };
        Ok(Self {
            trace: trace.to_owned(),
            nr_frames: before.nr_frames,
            vmemmap_base: before.vmemmap_base,
            zones: machine::populated(before)
                .map(|z| u64::from(z.start_pfn.0)..z.end_pfn())
                .collect(),
            migratetypes,
            events: Vec::new(),
            compact_steps: Vec::new(),
            asides: Vec::new(),
            lines: 0,
            lost: 0,
            first_ns: None,
            marks: 0,
            has_marks: false,
            rounds: Vec::new(),
            dones: Vec::new(),
            isolating: Vec::new(),
            problems: Vec::new(),
            nr_problems: 0,
        })
    }

    fn finish(self) -> Result<Built, InputError> {
        if !self.problems.is_empty() {
            let dropped = self.nr_problems - self.problems.len();
            return Err(InputError::new(self.problems).and_more(dropped));
        }
        let Self { mut events, dones, compact_steps, asides, lines, lost, .. } = self;
        merge(&mut events, dones);
        Ok(Built { events, compact_steps, asides, lines, lost })
    }

    fn bad(&mut self, what: &str, found: impl std::fmt::Display, expected: impl std::fmt::Display) {
        self.nr_problems += 1;
        if self.problems.len() < PROBLEMS_SHOWN {
            let (found, expected) = (format!("{what} is {found}"), expected.to_string());
            self.problems.push(Problem::new(self.trace.clone(), Some(self.lines), found, expected));
        }
    }

    fn pfn(&mut self, pfn: Option<Number>) -> Option<Pfn> {
        match pfn.map(Number::value) {
            Some(pfn) if pfn < self.nr_frames => Some(Pfn(pfn as u32)),
            Some(pfn) => {
                let last = self.nr_frames - 1;
                self.bad(
                    "`pfn`",
                    format_args!("{pfn:#x}"),
                    format_args!("at most {last:#x}, the last frame of the state before"),
                );
                None
            }
            None => {
                self.bad("`pfn`", "missing", "a frame number (kernels before 3.8 do not print it)");
                None
            }
        }
    }

    fn migratetype(&mut self, number: i32) -> Option<Migratetype> {
        let found = usize::try_from(number).ok().and_then(|n| self.migratetypes.get(n).copied());
        if found.is_none() {
            let most = self.migratetypes.len() - 1;
            self.bad(
                "a migratetype",
                number,
                format_args!("0..={most}, the types pagetypeinfo lists"),
            );
        }
        found
    }

    fn order(&mut self, order: i64) -> Option<Order> {
        let found = u8::try_from(order).ok().filter(|&o| o <= MAX_PAGE_ORDER).map(Order);
        if found.is_none() {
            self.bad("an order", order, format_args!("0..={MAX_PAGE_ORDER}"));
        }
        found
    }

    fn entry(&mut self, entry: &Entry<'_>) {
        self.lines += 1;
        let (line, event) = match entry {
            Entry::Event(line, event) => (line, event),
            Entry::Other(highorder_kernelfs::trace::Item::Lost { events, .. }) => {
                self.lost = self.lost.saturating_add(events.unwrap_or(1));
                return;
            }
            Entry::Other(_) => return,
        };
        if let TraceEvent::Marker(text) = event {
            if text.trim_ascii() == LISTS_COPIED {
                self.marks += 1;
                if self.marks == 1 {
                    // What came before is in the state.
                    self.has_marks = true;
                    self.first_ns = None;
                    self.events.clear();
                    self.compact_steps.clear();
                    self.asides.clear();
                    self.rounds.clear();
                    self.dones.clear();
                    self.isolating.clear();
                }
            }
            return;
        }
        if self.has_marks && self.marks != 1 {
            return;
        }
        let first = *self.first_ns.get_or_insert(line.timestamp_ns);
        let Ok(cpu) = u8::try_from(line.cpu) else {
            return self.bad("the CPU", line.cpu, "at most 255");
        };
        let mut made = Event {
            time_ns: line.timestamp_ns.saturating_sub(first),
            pfn: Pfn(0),
            pid: line.pid,
            bits: 0,
            kind: Kind::Take,
            order: Order(0),
            migratetype: Migratetype::Unmovable,
            cpu,
        };
        if let Some(kind) = self.aside(event) {
            self.asides.push(Aside { time_ns: made.time_ns, pid: made.pid, kind });
        }
        if self.fill(&mut made, event).is_some() && self.block_exists(&made) {
            self.events.push(made);
        }
        if let Some(round) = self.rounds.iter_mut().find(|round| round.pid == made.pid) {
            round.last_at = self.events.len();
            round.last = made;
        }
    }

    /// Puts the end of a kswapd's round behind its last event.
    fn kswapd_is_done(&mut self, node: u32) {
        let Some(at) = self.rounds.iter().position(|round| round.node == node) else { return };
        let Round { last_at, last, .. } = self.rounds.swap_remove(at);
        let done = Event { kind: Kind::KswapdDone, pfn: Pfn(node), order: Order(0), ..last };
        self.dones.push((last_at, done));
    }

    /// Whether the block an event names can be one: aligned, and within one zone.
    fn block_exists(&mut self, event: &Event) -> bool {
        let Event { pfn, order, .. } = *event;
        if !event.kind.names_a_frame() {
            return true;
        }
        if pfn.align_down(order) != pfn {
            self.bad(
                "`pfn`",
                pfn,
                format_args!("a multiple of the block's {} pages", order.pages()),
            );
            return false;
        }
        let (start, end) = (u64::from(pfn.0), u64::from(pfn.0) + u64::from(order.pages()));
        let is_in_zone = self.zones.iter().any(|zone| zone.start <= start && end <= zone.end);
        if !is_in_zone {
            let block = format!("a block of {} pages at {pfn}", order.pages());
            self.bad("an event names", block, "one within a zone of the state before");
        }
        is_in_zone
    }

    /// What the event tells besides, if it does.
    fn aside(&mut self, event: &TraceEvent<'_>) -> Option<AsideKind> {
        Some(match event {
            TraceEvent::MmPageAlloc(e) if e.is_failure() => AsideKind::Refused {
                order: self.order(e.order.into())?,
                gfp: self.gfp(e.gfp_flags.0)?,
            },
            TraceEvent::DirectReclaimBegin(_) => AsideKind::ReclaimBegin,
            TraceEvent::DirectReclaimEnd(_) => AsideKind::ReclaimEnd,
            _ => return None,
        })
    }

    /// Fills in what the event says; `None` if it is none of ours, or bad.
    fn fill(&mut self, made: &mut Event, event: &TraceEvent<'_>) -> Option<()> {
        match event {
            TraceEvent::MmPageAlloc(e) => {
                if e.is_failure() {
                    return None;
                }
                made.kind = Kind::Alloc;
                made.pfn = self.pfn(e.pfn)?;
                made.order = self.order(e.order.into())?;
                made.migratetype = self.migratetype(e.migratetype)?;
                made.bits = self.gfp(e.gfp_flags.0)?.bits();
            }
            TraceEvent::MmPageAllocZoneLocked(e) => {
                made.kind = Kind::Take;
                made.pfn = self.pfn(e.pfn)?;
                made.order = self.order(e.order.into())?;
                made.migratetype = self.migratetype(e.migratetype)?;
            }
            TraceEvent::MmPageFree(e) => {
                made.kind = Kind::Free;
                made.pfn = self.pfn(e.pfn)?;
                made.order = self.order(e.order.into())?;
            }
            TraceEvent::MmPageFreeBatched(e) => {
                made.kind = Kind::FreeCommit;
                made.pfn = self.pfn(e.pfn)?;
            }
            TraceEvent::MmPagePcpuDrain(e) => {
                made.kind = Kind::Drain;
                made.pfn = self.pfn(e.pfn)?;
                made.order = self.order(e.order.into())?;
                made.migratetype = self.migratetype(e.migratetype)?;
            }
            TraceEvent::MmPageAllocExtfrag(e) => {
                made.kind = Kind::Extfrag;
                made.pfn = self.pfn(e.pfn)?;
                made.order = self.order(e.alloc_order.into())?;
                made.migratetype = self.migratetype(e.alloc_migratetype)?;
                let order = self.order(e.fallback_order.into())?;
                let from = self.migratetype(e.fallback_migratetype)?;
                let owned = e.change_ownership.unwrap_or(0) != 0;
                made.bits = u32::from(order.0) | (from as u32) << 8 | u32::from(owned) << 16;
            }
            TraceEvent::CompactionBegin(_)
            | TraceEvent::CompactionTryToCompactPages(_)
            | TraceEvent::CompactionFinished(_)
            | TraceEvent::CompactionIsolateMigratepages(_)
            | TraceEvent::CompactionIsolateFreepages(_)
            | TraceEvent::CompactionFastIsolateFreepages(_)
            | TraceEvent::CompactionMigratepages(_)
            | TraceEvent::CompactionDeferReset(_) => {
                let is_begin = matches!(event, TraceEvent::CompactionBegin(_));
                made.kind = if is_begin { Kind::CompactBegin } else { Kind::CompactStep };
                match self.compact_step(event) {
                    Some(step) => {
                        self.compact_steps.push(step);
                        made.bits = self.compact_steps.len() as u32;
                    }
                    None if is_begin => {}
                    None => return None,
                }
            }
            TraceEvent::CompactionEnd(_) => made.kind = Kind::CompactEnd,
            TraceEvent::MmMigratePagesStart(_) => made.kind = Kind::MigrateBegin,
            TraceEvent::MmMigratePages(_) => made.kind = Kind::MigrateEnd,
            TraceEvent::KswapdWake(e) => {
                let node = u32::try_from(e.nid).ok()?;
                made.kind = Kind::KswapdWake;
                made.pfn = Pfn(node);
                self.kswapd_is_done(node);
                made.bits = ZoneKind::Movable as u32;
                let wake_at = self.events.len();
                self.rounds.push(Round { pid: made.pid, node, wake_at, last_at: 0, last: *made });
            }
            TraceEvent::LruIsolate(e) => {
                let class = e.classzone.or(e.classzone_second)?;
                let round = self.rounds.iter().find(|round| round.pid == made.pid)?;
                self.events[round.wake_at].bits = u32::try_from(class).ok()?;
                return None;
            }
            TraceEvent::KswapdSleep(e) => {
                self.kswapd_is_done(u32::try_from(e.nid).ok()?);
                return None;
            }
            TraceEvent::Probe(probe) if probe.name == b"isolate_free" => {
                let base = self.vmemmap_base?;
                let page = hex(field(probe.args, "page")?)?;
                let order = std::str::from_utf8(field(probe.args, "order")?).ok()?.parse().ok()?;
                let pfn = Pfn(u32::try_from(page.checked_sub(base)? / STRUCT_PAGE_BYTES).ok()?);
                let order = self.order(order)?;
                self.isolating.retain(|&(pid, ..)| pid != made.pid);
                self.isolating.push((made.pid, pfn, order));
                return None;
            }
            TraceEvent::Probe(probe) if probe.name == b"isolate_free_ret" => {
                let at = self.isolating.iter().position(|&(pid, ..)| pid == made.pid)?;
                let (_, pfn, order) = self.isolating.swap_remove(at);
                if field(probe.args, "ret")? == b"0" {
                    return None;
                }
                made.kind = Kind::Isolate;
                // The search of the lists is compiled into its callers, the scan of a block never is.
                let is_scan = probe.location.starts_with(b"isolate_freepages_block");
                made.bits = u32::from(!is_scan && probe.knows_function());
                made.pfn = pfn;
                made.order = order;
            }
            _ => return None,
        }
        Some(())
    }

    /// What an event of compaction tells, where the kernel prints it in full.
    fn compact_step(&mut self, event: &TraceEvent<'_>) -> Option<CompactStep> {
        let pfn = |number: Number| u32::try_from(number.value()).ok().map(Pfn);
        let pages = |nr: u64| u32::try_from(nr).ok();
        let order =
            |order: i32| u8::try_from(order).ok().filter(|&o| o <= MAX_PAGE_ORDER).map(Order);
        Some(match event {
            TraceEvent::CompactionTryToCompactPages(e) => CompactStep::TryToCompact {
                order: order(e.order)?,
                gfp: self.gfp(e.gfp_mask.0)?,
                priority: e.priority.or(e.prio)?,
            },
            TraceEvent::CompactionBegin(e) => CompactStep::Begin {
                migrate_pfn: pfn(e.migrate.pfn)?,
                free_pfn: pfn(e.free.pfn)?,
                is_sync: e.mode?.0 == b"sync",
            },
            TraceEvent::CompactionFinished(e) => CompactStep::Finished {
                order: order(e.order),
                goes_on: matches!(e.ret.0, b"continue" | b"no_suitable_page"),
                scanners_met: matches!(e.ret.0, b"complete" | b"partial_skipped"),
            },
            TraceEvent::CompactionIsolateMigratepages(e) => {
                let (start, end) = self.scanned(e.range?.start_pfn, e.range?.end_pfn)?;
                CompactStep::IsolateMigratepages { start, end, nr_taken: pages(e.nr_taken)? }
            }
            TraceEvent::CompactionIsolateFreepages(e) => {
                let (start, end) = self.scanned(e.range?.start_pfn, e.range?.end_pfn)?;
                CompactStep::IsolateFreepages { start, end }
            }
            TraceEvent::CompactionFastIsolateFreepages(e) => CompactStep::FastIsolateFreepages {
                min_pfn: pfn(e.range?.start_pfn)?,
                free_pfn: pfn(e.range?.end_pfn)?,
                nr_scanned: pages(e.scanned()?)?,
                nr_taken: pages(e.nr_taken)?,
            },
            TraceEvent::CompactionMigratepages(_) => CompactStep::Migratepages,
            TraceEvent::CompactionDeferReset(_) => CompactStep::DeferReset,
            _ => return None,
        })
    }

    /// The part of a pageblock that compaction has scanned: it begins at a frame of a zone.
    fn scanned(&mut self, start: Number, end: Number) -> Option<(Pfn, Pfn)> {
        let (start, end) = (start.value(), end.value());
        let is_in_zone = self.zones.iter().any(|zone| zone.contains(&start));
        match (u32::try_from(start), u32::try_from(end)) {
            (Ok(start), Ok(end)) if is_in_zone && start <= end && end > 0 => {
                Some((Pfn(start), Pfn(end)))
            }
            _ => {
                let range = format!("{start:#x}..{end:#x}");
                self.bad("what compaction scanned", range, "frames within a zone, ascending");
                None
            }
        }
    }

    fn gfp(&mut self, text: &[u8]) -> Option<Gfp> {
        let mut flags = Gfp::NONE;
        for name in text.split(|&b| b == b'|') {
            let name = std::str::from_utf8(name).unwrap_or("?");
            match Gfp::from_kernel_name(name) {
                Some(flag) => flags |= flag,
                // Flags that newer kernels have and no policy reads.
                None if name.starts_with("__GFP_") || name.starts_with("0x") => {}
                None => {
                    self.bad("`gfp_flags`", name, "names of request flags");
                    return None;
                }
            }
        }
        Some(flags)
    }
}

struct Built {
    events: Vec<Event>,
    compact_steps: Vec<CompactStep>,
    asides: Vec<Aside>,
    lines: u64,
    lost: u64,
}

/// A round of kswapd under way.
struct Round {
    pid: u32,
    node: u32,
    /// Index of the event with which it woke.
    wake_at: usize,
    /// Events before and with its last.
    last_at: usize,
    last: Event,
}

/// Puts others into `events`, each at the place given, without a second copy of them all.
fn merge(events: &mut Vec<Event>, mut others: Vec<(usize, Event)>) {
    others.sort_by_key(|&(at, _)| at);
    let mut from = events.len();
    events.reserve_exact(others.len());
    events.extend(others.iter().map(|&(_, other)| other));
    let mut to = events.len();
    for (at, other) in others.into_iter().rev() {
        to -= from - at;
        events.copy_within(at..from, to);
        to -= 1;
        events[to] = other;
        from = at;
    }
}

fn hex(text: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(text).ok()?.strip_prefix("0x")?;
    u64::from_str_radix(digits, 16).ok()
}

/// The types of a kernel without CMA.
fn default_migratetypes() -> Vec<Migratetype> {
    use Migratetype::{HighAtomic, Isolate, Movable, Reclaimable, Unmovable};
    vec![Unmovable, Movable, Reclaimable, HighAtomic, Isolate]
}

/// Tells the frees that join a list at once from those that wait for their batch: a page of a batch has a
/// second event before anything else happens to it.
fn mark_batched_frees(events: &mut [Event], nr_frames: u64) {
    const NONE: u32 = u32::MAX;
    let mut last_free = vec![NONE; nr_frames as usize];
    for at in 0..events.len() {
        let event = events[at];
        let slot = event.pfn.index();
        match event.kind {
            Kind::Free => last_free[slot] = at as u32,
            Kind::FreeCommit if last_free[slot] != NONE => {
                events[last_free[slot] as usize].kind = Kind::FreeBatched;
                // The second event names order 0 whatever the block's order is.
                events[at].order = events[last_free[slot] as usize].order;
                last_free[slot] = NONE;
            }
            Kind::Take | Kind::Alloc | Kind::Drain | Kind::Isolate | Kind::Extfrag => {
                last_free[slot] = NONE;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event that is told from others by its time.
    fn event(time_ns: u64) -> Event {
        Event {
            time_ns,
            pfn: Pfn(0),
            pid: 0,
            bits: 0,
            kind: Kind::Take,
            order: Order(0),
            migratetype: Migratetype::Movable,
            cpu: 0,
        }
    }

    #[test]
    fn merging_puts_each_before_the_event_that_has_its_place_and_keeps_the_order_of_equals() {
        let mut events: Vec<_> = (0..5).map(event).collect();
        let others = [(5, 50), (0, 10), (2, 20), (2, 21), (5, 51)];
        merge(&mut events, others.map(|(at, time_ns)| (at, event(time_ns))).to_vec());
        let times: Vec<_> = events.iter().map(|event| event.time_ns).collect();
        assert_eq!(times, [10, 0, 1, 20, 21, 2, 3, 4, 50, 51]);
    }
}
