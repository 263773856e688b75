//! A recorded machine, and what compaction of all its zones makes of it.
//!
//! Models: `sysctl_compaction_handler`, `compact_nodes`, `compact_node`, mm/compaction.c, v6.12 and v6.1:
//! what writing 1 to `/proc/sys/vm/compact_memory` does.
//! Departs: nothing else happens meanwhile, and nothing is waited for. Visible as: a page being read or
//! written stays where it is. User pages are all taken for pages of files: who maps them is not recorded.
//! Visible as: nothing, since a run for user space may call into file systems. A page that somebody holds besides its
//! mappings shows by its count of references alone. Visible as: one that is held for a moment counts as
//! held for good.

use crate::free_running::{self, FreeKind, Side};
use crate::trace_text::{self, Whose};
use crate::{machine, memory_map};
use highorder_input::InputError;
use highorder_kernelfs::{PageFlags, TextFile, Vmstat};
use highorder_kernels::KernelFile;
use highorder_mm::Memory;
use highorder_mm::compaction::events::CompactEvent;
use highorder_mm::compaction::{CompactRequest, CompactResult, CompactStep, Migrated};
use highorder_mm::frame::State;
use highorder_mm::types::{NodeId, Order, Pfn, ZoneKind};
use highorder_mm::vmstat::Vm;
use highorder_mm::zone::ZoneId;
use highorder_sim::kernel::trace::{TraceEvent, Traced};
use highorder_sim::{CpuId, Ns, TaskId};
use highorder_snapshot::recording_file::{STATE_AFTER, STATE_BEFORE};
use highorder_snapshot::{Exactness, FrameUse, RecordingFiles, Snapshot, ZoneState};
use std::collections::BTreeMap;
use std::path::Path;

/// A recorded state, and the one that compaction of all zones alone left of it, where that was recorded too.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Its name.
    pub name: String,
    /// Before.
    pub before: Snapshot,
    /// After.
    pub after: Option<Snapshot>,
}

/// What the word `then` of a recording's `case.json` is, where the state after is that of compaction alone.
const THEN: &str = "compact_memory";

impl Recorded {
    /// Reads a recording, one state of it, or a snapshot file.
    ///
    /// # Errors
    /// A state cannot be read or contradicts itself, knows nothing but counts, or both are of different
    /// machines.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, InputError> {
        let path = path.as_ref();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !RecordingFiles::are_at(path) {
            let before = with_places(path, Snapshot::read(path)?)?;
            return Ok(Self { name, before, after: None });
        }
        let files = RecordingFiles::open(path)?;
        let state = |name| match files.state(name)? {
            Some(state) => with_places(&path.join(name), state).map(Some),
            None => Ok(None),
        };
        let before = state(STATE_BEFORE)?
            .ok_or_else(|| InputError::file(path, format!("no {STATE_BEFORE} in it")))?;
        let mut after = None;
        if is_of_compaction(&files)?
            && let Some(found) = state(STATE_AFTER)?
        {
            if found.nr_frames != before.nr_frames || found.zones.len() != before.zones.len() {
                let message = format!(
                    "{} frames in {} zones, expected those of state0: {} in {}",
                    found.nr_frames,
                    found.zones.len(),
                    before.nr_frames,
                    before.zones.len()
                );
                return Err(InputError::file(path.join(STATE_AFTER), message));
            }
            after = Some(found);
        }
        Ok(Self { name, before, after })
    }

    /// What had to be assumed of the state before beyond what it says, a sentence each: nothing where its
    /// lists are known.
    #[must_use]
    pub fn assumed(&self) -> Vec<String> {
        assumed_of(&self.before)
    }
}

/// What has to be assumed of a state for its pages to be moved, a sentence each.
pub(crate) fn assumed_of(state: &Snapshot) -> Vec<String> {
    if state.exactness != Exactness::Frames {
        return Vec::new();
    }
    let nr_per_cpu: u64 = state.zones.iter().map(ZoneState::nr_per_cpu_pages).sum();
    let uses = state.frame_uses();
    let nr_unknown = uses.iter().filter(|usage| **usage == FrameUse::KernelOrPerCpu).count();
    let mut assumed = Vec::new();
    if nr_unknown > 0 {
        assumed.push(format!(
            "all {nr_unknown} frames without flags are kernel pages, which stay; {nr_per_cpu} pages were \
             free on per-CPU lists, and these are among them"
        ));
    }
    assumed.push("free blocks lie on their lists in the order of their frames".to_owned());
    if state.pagecounts.is_empty() {
        assumed.push("no page is held by anything but its mappings".to_owned());
    }
    assumed
}

/// A state that knows where pages lie.
fn with_places(path: &Path, state: Snapshot) -> Result<Snapshot, InputError> {
    if state.exactness == Exactness::Counts {
        let message = "found a state of exactness counts, expected frames or lists: counts do not say \
                       where pages lie, so that nothing can be said of compaction";
        return Err(InputError::file(path, message));
    }
    Ok(state)
}

/// Whether a recording says that nothing but compaction happened between its states.
fn is_of_compaction(files: &RecordingFiles) -> Result<bool, InputError> {
    let case = files.case()?;
    Ok(case.get("then").and_then(serde_json::Value::as_str) == Some(THEN))
}

/// What compaction did to one zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactedZone {
    /// Its node.
    pub node: NodeId,
    /// Which zone.
    pub kind: ZoneKind,
    /// What came of the run.
    pub result: CompactResult,
    /// Frames that the migrate scanner passed.
    pub nr_migrate_scanned: u64,
    /// Frames that the free scanner passed.
    pub nr_free_scanned: u64,
    /// Base pages that moved.
    pub nr_moved: u64,
    /// Base pages that were taken for it and put back, as `mm_compaction_migratepages` counts them. `pgmigrate_fail` is less
    /// where there was no free page left: of the batch, it counts the page that wanted one, and no page behind it.
    pub nr_put_back: u64,
}

/// What compaction did in all, by the kernel's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// `compact_migrate_scanned`.
    pub migrate_scanned: u64,
    /// `compact_free_scanned`.
    pub free_scanned: u64,
    /// `compact_isolated`.
    pub isolated: u64,
    /// `pgmigrate_success`.
    pub migrated: u64,
    /// `pgmigrate_fail`.
    pub failed: u64,
}

/// A model of the recorded machine, compacted.
#[derive(Clone, Debug)]
pub struct Compacted {
    /// Its state afterwards.
    pub side: Side,
    /// What each zone's run did.
    pub zones: Vec<CompactedZone>,
    /// What all did.
    pub work: Work,
    /// The runs' events, in order.
    pub events: Vec<CompactEvent>,
    /// The restored zones, for who reads events: node, kind, span.
    pub spans: Vec<(NodeId, ZoneKind, std::ops::Range<Pfn>)>,
}

impl Compacted {
    /// Its events as text, in the form of this kernel's release, an event a microsecond, all by one `task`.
    #[must_use]
    pub fn trace_text(&self, kernel: &KernelFile, task: &str) -> Vec<u8> {
        let traced = |(at, event): (u64, &_)| Traced {
            at: Ns::from_micros(at),
            task: TaskId(0),
            cpu: CpuId(0),
            event: TraceEvent::Compact(*event),
        };
        let events: Vec<_> = (0..).zip(&self.events).map(traced).collect();
        let (release, tasks) = (&kernel.release, &[task.to_owned()]);
        trace_text::text(&events, Whose { release, tasks, zones: &self.spans, nr_cpus: 1 })
    }
}

/// The recorded machine before, after if known, and models of it.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The recorded machine before.
    pub before: Side,
    /// The recorded machine after, and what its kernel did.
    pub recorded: Option<(Side, Work)>,
    /// Models, in the order of the kernels given.
    pub models: Vec<Compacted>,
}

/// Compacts all zones of the recorded machine under each of `kernels`.
///
/// # Errors
/// A machine that the model has no room for, pageblocks of another order than a kernel's, or `vmstat`
/// files that cannot be read.
pub fn compact(recorded: &Recorded, kernels: &[&KernelFile]) -> Result<Comparison, InputError> {
    let before = side_of("before", &recorded.before);
    let after = match &recorded.after {
        None => None,
        Some(after) => Some((side_of("recorded", after), work_between(&recorded.before, after)?)),
    };
    let models =
        kernels.iter().map(|kernel| model(&recorded.before, kernel)).collect::<Result<_, _>>()?;
    Ok(Comparison { before, recorded: after, models })
}

fn side_of(name: &str, snapshot: &Snapshot) -> Side {
    Side {
        pageblocks: snapshot.pageblocks.iter().map(|b| (b.pfn, b.migratetype)).collect(),
        ..side(
            name,
            snapshot.pageblock_order,
            free_running::free_blocks_recorded(snapshot),
            snapshot.frame_uses(),
        )
    }
}

fn side(
    name: &str,
    pageblock_order: Order,
    free_blocks: BTreeMap<FreeKind, u64>,
    uses: Vec<FrameUse>,
) -> Side {
    Side {
        name: name.to_owned(),
        pageblock_order,
        free_blocks,
        uses,
        pageblocks: Vec::new(),
        fallbacks: BTreeMap::new(),
        samples: Vec::new(),
        unserved: 0,
    }
}

fn work_between(before: &Snapshot, after: &Snapshot) -> Result<Work, InputError> {
    let counters = |snapshot: &Snapshot| match snapshot.files.get("vmstat") {
        None => Ok(Vmstat::default()),
        Some(text) => Vmstat::parse("vmstat", text),
    };
    let (before, after) = (counters(before)?, counters(after)?);
    let delta =
        |name: &str| after.get(name).unwrap_or(0).saturating_sub(before.get(name).unwrap_or(0));
    Ok(Work {
        migrate_scanned: delta("compact_migrate_scanned"),
        free_scanned: delta("compact_free_scanned"),
        isolated: delta("compact_isolated"),
        migrated: delta("pgmigrate_success"),
        failed: delta("pgmigrate_fail"),
    })
}

fn model(snapshot: &Snapshot, kernel: &KernelFile) -> Result<Compacted, InputError> {
    let (mut memory, mut uses) = restored(snapshot, kernel)?;
    list_user_pages(&mut memory, snapshot, &uses);
    let began = work_of(&memory);
    memory.keep_compact_events();
    let zones = compact_zones(&mut memory, &mut uses);
    let ended = work_of(&memory);
    let events = memory.take_compact_events();
    let spans = memory.zones.iter().map(|zone| (zone.node, zone.kind, zone.start..zone.end));
    let spans = spans.collect();
    let recorded = snapshot.frame_uses();
    let mut uses = free_running::uses_of(&memory, |pfn| uses[pfn.index()]);
    // What lies in no zone is as it was.
    for (pfn, usage) in (0..).map(Pfn).zip(&mut uses) {
        if memory.find_zone(pfn).is_none() {
            *usage = recorded.get(pfn.index()).copied().unwrap_or(FrameUse::Hole);
        }
    }
    let pageblock_order = memory.policy.freelist.pageblock_order;
    let free_blocks = free_running::free_blocks(&memory);
    let side = Side {
        pageblocks: memory_map::pageblocks(&memory),
        ..side(&kernel.name, pageblock_order, free_blocks, uses)
    };
    let work = Work {
        migrate_scanned: ended.migrate_scanned - began.migrate_scanned,
        free_scanned: ended.free_scanned - began.free_scanned,
        isolated: ended.isolated - began.isolated,
        migrated: ended.migrated - began.migrated,
        failed: ended.failed - began.failed,
    };
    Ok(Compacted { side, zones, work, events, spans })
}

/// The recorded machine under a kernel's rules, and what each of its frames is used for.
pub(crate) fn restored(
    snapshot: &Snapshot,
    kernel: &KernelFile,
) -> Result<(Memory, Vec<FrameUse>), InputError> {
    let memory = machine::restore(snapshot, kernel, &[])?;
    let mut uses = snapshot.frame_uses();
    uses.resize(memory.frames().len(), FrameUse::Hole);
    Ok((memory, uses))
}

/// Compacts every zone that has memory; what was known of a page's use moves with the page.
pub(crate) fn compact_zones(memory: &mut Memory, uses: &mut [FrameUse]) -> Vec<CompactedZone> {
    let all = (0..memory.zones.len() as u8).map(ZoneId);
    let managed: Vec<_> = all.filter(|id| memory.zones[id.index()].managed_pages > 0).collect();
    let request = |zone| CompactRequest::user(zone, CpuId(0));
    managed.into_iter().map(|zone| compact_zone(memory, request(zone), uses)).collect()
}

fn work_of(memory: &Memory) -> Work {
    Work {
        migrate_scanned: memory.vm.get(Vm::CompactMigrateScanned),
        free_scanned: memory.vm.get(Vm::CompactFreeScanned),
        isolated: memory.vm.get(Vm::CompactIsolated),
        migrated: memory.vm.get(Vm::PgMigrateSuccess),
        failed: memory.vm.get(Vm::PgMigrateFail),
    }
}

/// Puts the user pages of a restored machine on its LRU lists, as pages of one file, and pins those that
/// somebody holds. What a machine had in its CPUs' batches is listed too: that is the first thing done.
pub(crate) fn list_user_pages(memory: &mut Memory, snapshot: &Snapshot, uses: &[FrameUse]) {
    let file = memory.files.open();
    for (pfn, usage) in (0..).map(Pfn).zip(uses) {
        let is_user = matches!(
            usage,
            FrameUse::Anon | FrameUse::File | FrameUse::FileMapped | FrameUse::Buffers
        );
        let flags =
            PageFlags::from_bits_retain(snapshot.kpageflags.get(pfn.index()).copied().unwrap_or(0));
        let stays = flags.contains(PageFlags::UNEVICTABLE) && !memory.policy.compaction.unevictable;
        let is_page = memory.frames().state(pfn) == State::Allocated
            && memory.frames().order(pfn) == Order(0)
            && memory.find_zone(pfn).is_some();
        if !is_user || !is_page || stays {
            continue;
        }
        let holders = others_that_hold(snapshot, pfn, flags);
        // With no mapping of a file there is nothing to tell holders from mappings by later, so a page that is
        // held is not even isolated.
        if holders > 0 && *usage == FrameUse::Anon {
            continue;
        }
        memory.add_to_page_cache(file, u64::from(pfn.0), pfn, false, CpuId(0));
        if holders > 0 {
            memory.pin_page(pfn);
        }
    }
    memory.lru_add_drain_all();
}

/// References to a page beyond those of its mappings, its cache and its place on a list.
pub(crate) fn others_that_hold(snapshot: &Snapshot, pfn: Pfn, flags: PageFlags) -> i64 {
    let Some(counts) = snapshot.pagecounts.get(pfn.index()) else { return 0 };
    let mappings = i64::from(counts.mapcount) + 1;
    let is_cached = !flags.contains(PageFlags::ANON) || flags.contains(PageFlags::SWAPCACHE);
    let is_batched = !flags.contains(PageFlags::LRU);
    let has_buffers = flags.contains(PageFlags::PRIVATE);
    let known = mappings + i64::from(is_cached) + i64::from(is_batched) + i64::from(has_buffers);
    i64::from(counts.refcount) - known
}

/// One zone's run, from the first step to the last.
pub(crate) fn compact_zone(
    memory: &mut Memory,
    request: CompactRequest,
    uses: &mut [FrameUse],
) -> CompactedZone {
    let index = request.zone.index();
    let (node, kind) = (memory.zones[index].node, memory.zones[index].kind);
    let mut zone = CompactedZone {
        node,
        kind,
        result: CompactResult::Skipped,
        nr_migrate_scanned: 0,
        nr_free_scanned: 0,
        nr_moved: 0,
        nr_put_back: 0,
    };
    let mut run = match memory.begin_compaction(request) {
        Ok(run) => run,
        Err(result) => {
            zone.result = result;
            return zone;
        }
    };
    loop {
        match memory.compact_step(&mut run) {
            CompactStep::Done(result) => {
                zone.result = result;
                zone.nr_migrate_scanned = run.nr_migrate_scanned;
                zone.nr_free_scanned = run.nr_free_scanned;
                return zone;
            }
            CompactStep::Migrated(Migrated { moved, nr_succeeded, nr_failed, .. }) => {
                for moved in moved {
                    let pages = moved.order.pages() as usize;
                    let from = moved.from.index();
                    uses.copy_within(from..from + pages, moved.to.index());
                    uses[from..from + pages].fill(FrameUse::Free(0));
                }
                zone.nr_moved += u64::from(nr_succeeded);
                zone.nr_put_back += u64::from(nr_failed);
            }
            CompactStep::TooManyIsolated | CompactStep::WaitOnPage(..) => {
                unreachable!("nothing is isolated, read or written but by this run")
            }
            _ => {}
        }
    }
}

/// Pages in free blocks of one order, of all zones and types.
#[must_use]
pub fn free_blocks_of_order(side: &Side, order: Order) -> u64 {
    side.free_blocks.iter().filter(|((.., of, _), _)| *of == order).map(|(_, nr)| nr).sum()
}

/// Total variation distance, 0 to 1, of where the free pages of two states lie: by zone and order alone.
#[must_use]
pub fn distance(a: &Side, b: &Side) -> f64 {
    let by_order = |side: &Side| {
        let mut blocks: BTreeMap<(NodeId, ZoneKind, Order), u64> = BTreeMap::new();
        for ((node, zone, order, _), nr) in &side.free_blocks {
            *blocks.entry((*node, *zone, *order)).or_default() += nr;
        }
        blocks
    };
    free_running::variation(&by_order(a), &by_order(b), |(.., order)| u64::from(order.pages()))
}
