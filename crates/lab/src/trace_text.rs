//! A model's events as the text of ftrace, in the form of its kernel's release.
//!
//! Models: `TP_printk` of include/trace/events/compaction.h, migrate.h, huge_memory.h and vmscan.h, and
//! kernel/trace/trace_output.c, from v4.0 on; where releases differ, a constant below says since when.
//! Departs: before 4.0 begin and end of a run are not printed, since its status was a bare number that changed its
//! meaning. Visible as: such a trace has scans and migrations alone.
//! Departs: what stands for a process's memory (`mm=`) is made from the process's number: since 4.15 it looks like
//! a hashed pointer, before like an address. Visible as: it is the same in every run.
//! Departs: before 5.15 the heading has no legend of the flags' columns. Visible as: there alone.

use highorder_kernelfs::GfpFlags;
use highorder_kernelfs::trace::{
    CollapseHugePage, CollapseHugePageIsolate, CollapseHugePageSwapin, CompactionBegin,
    CompactionDefer, CompactionEnd, CompactionIsolate, CompactionMigratepages, CompactionRange,
    CompactionSuitable, CompactionTryToCompactPages, CompactionWake, CongestionWait,
    DirectReclaimBegin, Event, Form, FragmentationStall, Gfp as GfpText, KcompactdMigrated,
    KhugepagedScanPmd, KswapdWake, Line, LruIsolate, LruShrinkInactive, MmMigratePages,
    MmMigratePagesStart, MmPageAllocExtfrag, NodeOnly, NodeReclaimBegin, Number, PaddedWord,
    Pointer, ReclaimEnd, Scanner, Tgid, VmscanWrite, WakeupKcompactdQueue, WakeupKswapd, Word,
    heading,
};
use highorder_mm::compaction::events::{CompactEvent, Deferral, Scanners};
use highorder_mm::compaction::{CompactResult, Scanned};
use highorder_mm::fallback::{Extfrag, QueuedBlock};
use highorder_mm::fast_search::MigrateMode;
use highorder_mm::gfp::Gfp;
use highorder_mm::khugepaged::ScanResult;
use highorder_mm::lumpy::ReclaimMode;
use highorder_mm::reclaim::Isolation;
use highorder_mm::types::{Migratetype, NodeId, Order, Pfn, ZoneKind};
use highorder_mm::vma::ProcessId;
use highorder_mm::zone::ZoneId;
use highorder_sim::Ns;
use highorder_sim::kernel::trace::{
    DeviceWait, ReclaimEvent, TraceEvent, Traced, UnitCounts, Wake, WritePass,
};
use std::ops::Range;

/// A release's first two numbers.
type Release = (u32, u32);

/// Frames of a scan, modes and results by name, checks and deferral (e34d85f0e3c6, 16c4a097a035,
/// 837d026d560c, 24e2716f63e6).
const NAMES: Release = (4, 0);
/// `partial` is called `success` (cf378319d335), and a request has a priority (a5508cd83f10).
const SUCCESS: Release = (4, 8);
/// Names of flags begin with underscores, and each has one (420adbe9fc1a, 1f7866b4aebd).
const GFP_UNDERSCORES: Release = (4, 6);
/// What is taken off a list does not depend on whether that is active (f3fd4a61928a).
const ISOLATES_ALIKE: Release = (3, 5);
/// Flags of a request by name, not as bits: in 5.10, not in 5.4.
const GFP_NAMES: Release = (5, 5);
/// Huge pages are counted apart when pages migrate (1a5bae25e3cf).
const THP_COUNTS: Release = (5, 9);
/// The columns of flags have one for `migrate_disable` (54357f0c9149).
const MIGRATE_DISABLE: Release = (5, 15);
/// The beginning of a migration is told (as far as recordings show: 6.1 and 6.12 do).
const MIGRATE_START: Release = (5, 16);
/// Searches of the free lists are told; whether a run would be worth while is asked only for an order, and not
/// where there is a block.
const SEARCHES: Release = (6, 5);
/// Large pages that were split are counted (49cac03a8f0a).
const SPLITS: Release = (6, 7);
/// What khugepaged's swapping in tells is its result, where it was 0 (895f5ee464cc).
const SWAPIN_RESULT: Release = (6, 5);
/// A pid fills seven columns, not five (795d6379a47b).
const WIDE_PID: Release = (5, 10);
/// kcompactd has a thread (698b1b30642f).
const KCOMPACTD: Release = (4, 6);
/// Batches that migrate are told (7b2a2d4a18ff).
const MIGRATE: Release = (3, 9);
/// khugepaged tells what it does (7d2eba0557c1).
const KHUGEPAGED: Release = (4, 5);
/// It reads entries from swap, and counts what was used (8a966ed746d6, 0db501f7a34c).
const KHUGEPAGED_SWAPIN: Release = (4, 8);
/// Why a page's slot cannot be given up has no word of its own any more (patch "mm/khugepaged: remove
/// reuse_swap_page() usage").
const NO_SWAP_CACHE_WORD: Release = (5, 18);
/// What a collapse came to is told by all who had a part in it, and units without a table and such with a huge page
/// are told apart (50ad2f24b3b4, 50722804423e, 34488399fa08).
const COLLAPSE_RESULTS: Release = (6, 1);
/// A fallback is told with the type that its block was found on, and whether its pageblock was claimed (0cbef29a7821,
/// 52c8f6a5aeb0).
const CLAIMS: Release = (3, 12);
/// Pointers are hashed (ad67b74d2469).
const HASHED_POINTERS: Release = (4, 15);
/// Reclaim of a node before others are used is told (132bb8cfc9e0).
const NODE_RECLAIM: Release = (5, 2);
/// Flags of requests were put in another order (patch "mm: shuffle GFP_* flags").
const GFP_SHUFFLED: Release = (5, 1);
/// `__GFP_OTHER_NODE` went, so that bits behind it moved down (41b6167e8f74).
const GFP_WITHOUT_OTHER_NODE: Release = (4, 10);

/// Numbers of frames are hexadecimal (10e0f7530205).
const HEX_PFN: Release = (5, 15);
/// Movable comes before Reclaimable among types (016c13daa5c9).
const MOVABLE_FIRST: Release = (4, 4);
/// Pageblocks of x86-64, as large as huge pages.
const PAGEBLOCK_ORDER: Order = Order(9);

/// What a text is of, besides its events.
#[derive(Clone, Copy, Debug)]
pub struct Whose<'a> {
    /// The kernel's release, as a kernel file has it.
    pub release: &'a str,
    /// Names of tasks, by number. Their pids are one more, since 0 is the idle task's.
    pub tasks: &'a [String],
    /// Node, kind and span of each zone.
    pub zones: &'a [(NodeId, ZoneKind, Range<Pfn>)],
    /// CPUs.
    pub nr_cpus: u32,
}

/// Writes events as `/sys/kernel/tracing/trace` shows them.
#[must_use]
pub fn text(events: &[Traced], whose: Whose<'_>) -> Vec<u8> {
    let printer = Printer { zones: whose.zones, release: release_of(whose.release) };
    let mut lines = Vec::new();
    let mut nr_lines = 0;
    for traced in events {
        nr_lines += u64::from(printer.line(traced, whose.tasks, &mut lines));
    }
    let mut out = match printer.is_since(MIGRATE_DISABLE) {
        true => heading(nr_lines, nr_lines, whose.nr_cpus).into_bytes(),
        false => format!(
            "# tracer: nop\n#\n# entries-in-buffer/entries-written: {nr_lines}/{nr_lines}   #P:{}\n#\n",
            whose.nr_cpus
        )
        .into_bytes(),
    };
    out.append(&mut lines);
    out
}

/// The first two numbers of a release; numbers that are missing count as 0.
fn release_of(release: &str) -> Release {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

struct Printer<'a> {
    zones: &'a [(NodeId, ZoneKind, Range<Pfn>)],
    release: Release,
}

impl Printer<'_> {
    fn is_since(&self, release: Release) -> bool {
        self.release >= release
    }

    /// Appends an event's line, if this release tells of it. Whether it does.
    fn line(&self, traced: &Traced, tasks: &[String], out: &mut Vec<u8>) -> bool {
        let gfp = match traced.event {
            TraceEvent::TryToCompactPages { gfp, .. } => self.gfp_text(gfp),
            TraceEvent::NodeReclaimBegin { gfp, .. }
            | TraceEvent::Reclaim(ReclaimEvent::DirectBegin { gfp, .. }) => self.reclaim_gfp(gfp),
            _ => String::new(),
        };
        let Some(event) = self.event(&traced.event, &gfp) else { return false };
        let mut args = Vec::new();
        event.write_args(&mut args);
        // The name that the kernels had that tell of such pages.
        let event_name = match event {
            Event::VmscanWrite(_) => b"mm_vmscan_writepage",
            _ => event.name(),
        };
        let name = tasks.get(traced.task.0 as usize).map_or("task", String::as_str).as_bytes();
        let form =
            Form { pid_width: if self.is_since(WIDE_PID) { 7 } else { 5 }, ..Form::default() };
        let line = Line {
            // As the kernel keeps it: 15 bytes (`TASK_COMM_LEN`).
            comm: &name[..name.len().min(15)],
            pid: traced.task.0 + 1,
            tgid: Tgid::NoColumn,
            cpu: traced.cpu.0,
            flags: if self.is_since(MIGRATE_DISABLE) { b"....." } else { b"...." },
            timestamp_ns: traced.at.0,
            subsystem: b"",
            event: event_name,
            args: &args,
            form,
        };
        line.write(out);
        out.push(b'\n');
        true
    }

    /// The event in this release's form; `gfp` is the text of a request's flags.
    fn event<'b>(&self, event: &TraceEvent, gfp: &'b str) -> Option<Event<'b>> {
        Some(match *event {
            TraceEvent::Compact(event) => return self.compact_event(event),
            TraceEvent::Reclaim(event) => return Some(reclaim_event(self.release, event, gfp)),
            TraceEvent::Extfrag(event) => Event::MmPageAllocExtfrag(self.extfrag(event)),
            TraceEvent::QueuedBlock(QueuedBlock { zone, pfn, nr_queued }) => {
                let (node, kind, _) = &self.zones[zone.index()];
                Event::WakeupKcompactdQueue(WakeupKcompactdQueue {
                    nid: node.0 as i32,
                    zoneid: PaddedWord::zone(kind.name().as_bytes()),
                    pfn: pfn.0.into(),
                    nr_queued: nr_queued.map_or(-1, |nr| nr as i32),
                    rest: b"",
                })
            }
            TraceEvent::EmptiedBlock { zone, nr_migrated, nr_failed } => {
                let (node, kind, _) = &self.zones[zone.index()];
                Event::KcompactdMigrated(KcompactdMigrated {
                    nid: node.0 as i32,
                    zoneid: PaddedWord::zone(kind.name().as_bytes()),
                    nr_migrated: nr_migrated as i32,
                    nr_failed: nr_failed as i32,
                    rest: b"",
                })
            }
            TraceEvent::FragmentationStall { node, duration } => {
                Event::FragmentationStall(FragmentationStall {
                    nid: node.0 as i32,
                    duration: duration.0 / 1000,
                    rest: b"",
                })
            }
            _ if !self.is_since(NAMES) => return None,
            TraceEvent::TryToCompactPages { order, mode, priority, .. } => {
                let number = |mode| i32::from(mode as u8);
                let by_priority = self.is_since(SUCCESS);
                Event::CompactionTryToCompactPages(CompactionTryToCompactPages {
                    order: order.0.into(),
                    gfp_mask: GfpText(gfp.as_bytes()),
                    mode: (!by_priority).then(|| number(mode)),
                    prio: None,
                    priority: by_priority.then(|| priority.into()),
                    rest: b"",
                })
            }
            TraceEvent::KhugepagedScanPmd { .. }
            | TraceEvent::CollapseHugePage { .. }
            | TraceEvent::CollapseHugePageIsolate(_)
            | TraceEvent::CollapseHugePageSwapin { .. } => return self.huge_event(event),
            TraceEvent::NodeReclaimBegin { node, order, .. } if self.is_since(NODE_RECLAIM) => {
                Event::NodeReclaimBegin(NodeReclaimBegin {
                    nid: node.0 as i32,
                    order: order.0.into(),
                    gfp_flags: GfpText(gfp.as_bytes()),
                    rest: b"",
                })
            }
            TraceEvent::NodeReclaimEnd { nr_reclaimed } if self.is_since(NODE_RECLAIM) => {
                Event::NodeReclaimEnd(ReclaimEnd { nr_reclaimed, rest: b"" })
            }
            TraceEvent::NodeReclaimBegin { .. } | TraceEvent::NodeReclaimEnd { .. } => return None,
            _ if !self.is_since(KCOMPACTD) => return None,
            TraceEvent::KcompactdSleep { node } => {
                Event::KcompactdSleep(NodeOnly { nid: node.0 as i32, rest: b"" })
            }
            TraceEvent::KcompactdWake(wake) => Event::KcompactdWake(wake_fields(wake)),
            TraceEvent::WakeupKcompactd(wake) => Event::WakeupKcompactd(wake_fields(wake)),
        })
    }

    /// A fallback.
    fn extfrag(&self, event: Extfrag) -> MmPageAllocExtfrag<'static> {
        let pfn = u64::from(event.pfn.0);
        let page = match self.is_since(HASHED_POINTERS) {
            true => pfn.wrapping_mul(0x9e37_79b1) & 0xffff_ffff,
            // The map of pages, 64 bytes each.
            false => 0xffff_ea00_0000_0000 + pfn * 64,
        };
        let (wanted, rest) = (event.alloc_migratetype, event.rest_migratetype);
        let (found_on, is_claimed) = match self.is_since(CLAIMS) {
            true => (event.fallback_migratetype, event.change_ownership),
            // Before, the type was overwritten first, and two equal types were told as a claim.
            false => (rest, rest == wanted),
        };
        MmPageAllocExtfrag {
            page: Pointer::Hex(page),
            pfn: Some(match self.is_since(HEX_PFN) {
                true => Number::Hex(pfn),
                false => Number::Decimal(pfn),
            }),
            alloc_order: event.alloc_order.0.into(),
            fallback_order: event.fallback_order.0.into(),
            pageblock_order: PAGEBLOCK_ORDER.0.into(),
            alloc_migratetype: self.type_number(wanted),
            fallback_migratetype: self.type_number(found_on),
            fragmenting: event.is_fragmenting(PAGEBLOCK_ORDER).into(),
            change_ownership: Some(is_claimed.into()),
            rest: b"",
        }
    }

    /// A type's number (`enum migratetype`).
    fn type_number(&self, migratetype: Migratetype) -> i32 {
        match migratetype {
            Migratetype::Movable if !self.is_since(MOVABLE_FIRST) => 2,
            Migratetype::Reclaimable if !self.is_since(MOVABLE_FIRST) => 1,
            other => other as i32,
        }
    }

    /// What khugepaged tells.
    fn huge_event(&self, event: &TraceEvent) -> Option<Event<'static>> {
        if !self.is_since(KHUGEPAGED) {
            return None;
        }
        Some(match *event {
            TraceEvent::KhugepagedScanPmd { process, unit, collapsed } => {
                let collapsed = collapsed.filter(|_| self.is_since(COLLAPSE_RESULTS));
                Event::KhugepagedScanPmd(KhugepagedScanPmd {
                    mm: self.mm(process),
                    scan_pfn: scan_pfn(unit),
                    writable: Some(unit.writable.into()),
                    referenced: self.referenced(unit.referenced),
                    none_or_zero: unit.none_or_zero as i32,
                    status: Word(self.scan_word(collapsed.unwrap_or(unit.result))),
                    unmapped: self.is_since(KHUGEPAGED_SWAPIN).then_some(unit.unmapped as i32),
                    rest: b"",
                })
            }
            TraceEvent::CollapseHugePage { process, result } => {
                let is_of_pages = matches!(
                    result,
                    ScanResult::ExceedNone
                        | ScanResult::NonPresent
                        | ScanResult::PageReadOnly
                        | ScanResult::LackReferenced
                        | ScanResult::PageCount
                        | ScanResult::PageLru
                        | ScanResult::PageLock
                        | ScanResult::PageCompound
                        | ScanResult::SwapCachePage
                );
                let told = match is_of_pages && !self.is_since(COLLAPSE_RESULTS) {
                    true => ScanResult::Fail,
                    false => result,
                };
                Event::CollapseHugePage(CollapseHugePage {
                    mm: self.mm(process),
                    isolated: (result == ScanResult::Succeed).into(),
                    status: Word(self.scan_word(told)),
                    rest: b"",
                })
            }
            TraceEvent::CollapseHugePageIsolate(unit) => {
                Event::CollapseHugePageIsolate(CollapseHugePageIsolate {
                    scan_pfn: scan_pfn(unit),
                    none_or_zero: unit.none_or_zero as i32,
                    referenced: self.referenced(unit.referenced),
                    writable: Some(unit.writable.into()),
                    status: Word(self.scan_word(unit.result)),
                    rest: b"",
                })
            }
            TraceEvent::CollapseHugePageSwapin { process, swapped_in, referenced, result }
                if self.is_since(KHUGEPAGED_SWAPIN) =>
            {
                Event::CollapseHugePageSwapin(CollapseHugePageSwapin {
                    mm: self.mm(process),
                    swapped_in: swapped_in as i32,
                    referenced: referenced as i32,
                    ret: match result {
                        ScanResult::Succeed => 1,
                        // `SCAN_PAGE_LOCK` in `enum scan_result`, v6.12.
                        ScanResult::PageLock if self.is_since(SWAPIN_RESULT) => 17,
                        _ => 0,
                    },
                    rest: b"",
                })
            }
            _ => return None,
        })
    }

    /// What stands for a process's memory.
    fn mm(&self, process: ProcessId) -> Pointer<'static> {
        let number = process.0.wrapping_add(1);
        Pointer::Hex(match self.is_since(HASHED_POINTERS) {
            // An odd factor: no two numbers come to the same.
            true => number.wrapping_mul(0x9e37_79b1).into(),
            // The direct mapping of physical memory; a page for each.
            false => 0xffff_8800_0000_0000 | u64::from(number) << 12,
        })
    }

    /// Entries that were used: before they were counted, whether there were any.
    fn referenced(&self, entries: u32) -> i32 {
        if self.is_since(KHUGEPAGED_SWAPIN) { entries as i32 } else { (entries > 0).into() }
    }

    /// `SCAN_STATUS`.
    fn scan_word(&self, result: ScanResult) -> &'static [u8] {
        match result {
            ScanResult::Fail => b"failed",
            ScanResult::Succeed => b"succeeded",
            ScanResult::PmdNone if self.is_since(COLLAPSE_RESULTS) => b"pmd_none",
            ScanResult::PmdMapped if self.is_since(COLLAPSE_RESULTS) => b"page_pmd_mapped",
            ScanResult::PmdNone | ScanResult::PmdMapped => b"pmd_null",
            ScanResult::ExceedNone => b"exceed_none_pte",
            ScanResult::ExceedSwap if self.is_since(KHUGEPAGED_SWAPIN) => b"exceed_swap_pte",
            ScanResult::ExceedSwap | ScanResult::NonPresent => b"pte_non_present",
            ScanResult::PageReadOnly => b"no_writable_page",
            ScanResult::LackReferenced if self.is_since(KHUGEPAGED_SWAPIN) => {
                b"lack_referenced_page"
            }
            ScanResult::LackReferenced => b"no_referenced_page",
            ScanResult::ScanAbort => b"scan_aborted",
            ScanResult::SwapCachePage if !self.is_since(NO_SWAP_CACHE_WORD) => b"page_swap_cache",
            ScanResult::PageCount | ScanResult::SwapCachePage => b"not_suitable_page_count",
            ScanResult::PageLru => b"page_not_in_lru",
            ScanResult::PageLock => b"page_locked",
            ScanResult::PageCompound => b"page_compound",
            ScanResult::AnyProcess => b"no_process_for_page",
            ScanResult::VmaNull => b"vma_null",
            ScanResult::AddressRange => b"not_suitable_address_range",
            ScanResult::PageAnon => b"page_not_anon",
            ScanResult::AllocHugePageFail => b"alloc_huge_page_failed",
        }
    }

    fn compact_event(&self, event: CompactEvent) -> Option<Event<'static>> {
        let hex = |pfn: u32| Number::Hex(pfn.into());
        let has_ranges = self.is_since(NAMES);
        let isolate = |scanned: Scanned| CompactionIsolate {
            range: has_ranges.then(|| CompactionRange {
                start_pfn: hex(scanned.start),
                end_pfn: hex(scanned.end),
            }),
            nr_scanned: has_ranges.then(|| scanned.nr_scanned.into()),
            nr_scanned_first: (!has_ranges).then(|| scanned.nr_scanned.into()),
            nr_taken: scanned.nr_taken.into(),
            rest: b"",
        };
        Some(match event {
            CompactEvent::IsolateMigratepages(scanned) => {
                Event::CompactionIsolateMigratepages(isolate(scanned))
            }
            CompactEvent::IsolateFreepages(scanned) => {
                Event::CompactionIsolateFreepages(isolate(scanned))
            }
            CompactEvent::Migratepages { nr_migrated, nr_failed } => {
                Event::CompactionMigratepages(CompactionMigratepages {
                    nr_migrated: nr_migrated.into(),
                    nr_failed: nr_failed.into(),
                    rest: b"",
                })
            }
            CompactEvent::MigratePages { nr_succeeded, nr_failed, mode }
                if self.is_since(MIGRATE) =>
            {
                let thp = self.is_since(THP_COUNTS).then_some(0);
                Event::MmMigratePages(MmMigratePages {
                    nr_succeeded: nr_succeeded.into(),
                    nr_failed: nr_failed.into(),
                    nr_thp_succeeded: thp,
                    nr_thp_failed: thp,
                    nr_thp_split: thp,
                    nr_split: self.is_since(SPLITS).then_some(0),
                    mode: Word(mode_name(mode)),
                    reason: Word(b"compaction"),
                    rest: b"",
                })
            }
            CompactEvent::MigratePagesStart(mode) if self.is_since(MIGRATE_START) => {
                Event::MmMigratePagesStart(MmMigratePagesStart {
                    mode: Word(mode_name(mode)),
                    reason: Word(b"compaction"),
                    rest: b"",
                })
            }
            CompactEvent::FastIsolateFreepages(scanned) if self.is_since(SEARCHES) => {
                Event::CompactionFastIsolateFreepages(isolate(scanned))
            }
            _ if !self.is_since(NAMES) => return None,
            CompactEvent::Begin(scanners) => {
                let (start, migrate, free, end, mode) = self.scanners(scanners);
                Event::CompactionBegin(CompactionBegin {
                    zone_start: start,
                    migrate,
                    free,
                    zone_end: end,
                    mode: Some(mode),
                    rest: b"",
                })
            }
            CompactEvent::End(scanners, result) => {
                let (start, migrate, free, end, mode) = self.scanners(scanners);
                Event::CompactionEnd(CompactionEnd {
                    zone_start: Some(start),
                    migrate: Some(migrate),
                    free: Some(free),
                    zone_end: Some(end),
                    mode: Some(mode),
                    status: Some(Word(self.result_name(result))),
                    status_alone: None,
                    rest: b"",
                })
            }
            CompactEvent::Suitable(zone, order, result) => {
                let is_untold = order.is_none() || result == CompactResult::Success;
                if is_untold && self.is_since(SEARCHES) {
                    return None;
                }
                Event::CompactionSuitable(self.check(zone, order, result))
            }
            CompactEvent::Finished(zone, order, result) => {
                Event::CompactionFinished(self.check(zone, order, result))
            }
            CompactEvent::Deferred(deferral) => Event::CompactionDeferred(self.defer(deferral)),
            CompactEvent::DeferCompaction(deferral) => {
                Event::CompactionDeferCompaction(self.defer(deferral))
            }
            CompactEvent::DeferReset(deferral) => Event::CompactionDeferReset(self.defer(deferral)),
            CompactEvent::MigratePages { .. }
            | CompactEvent::MigratePagesStart(_)
            | CompactEvent::FastIsolateFreepages(_) => return None,
        })
    }

    fn scanners(&self, scanners: Scanners) -> (Number, Scanner, Scanner, Number, Word<'static>) {
        let span = &self.zones[scanners.zone.index()].2;
        let hex = |pfn: Pfn| Number::Hex(pfn.0.into());
        let at = |pfn| Scanner { pfn: hex(pfn), is_called_start: false };
        let mode: &[u8] = if scanners.is_sync { b"sync" } else { b"async" };
        (
            hex(span.start),
            at(scanners.migrate_pfn),
            at(scanners.free_pfn),
            hex(span.end),
            Word(mode),
        )
    }

    fn check(
        &self,
        zone: ZoneId,
        order: Option<Order>,
        result: CompactResult,
    ) -> CompactionSuitable<'static> {
        let (node, kind, _) = &self.zones[zone.index()];
        CompactionSuitable {
            node: node.0 as i32,
            zone: PaddedWord::zone(kind.name().as_bytes()),
            order: order.map_or(-1, |order| order.0.into()),
            ret: Word(self.result_name(result)),
            rest: b"",
        }
    }

    fn defer(&self, deferral: Deferral) -> CompactionDefer<'static> {
        let (node, kind, _) = &self.zones[deferral.zone.index()];
        CompactionDefer {
            node: node.0 as i32,
            zone: PaddedWord::zone(kind.name().as_bytes()),
            order: deferral.order.0.into(),
            order_failed: deferral.order_failed.0.into(),
            consider: deferral.considered,
            limit: 1 << deferral.defer_shift,
            rest: b"",
        }
    }

    /// `COMPACTION_STATUS`.
    fn result_name(&self, result: CompactResult) -> &'static [u8] {
        match result {
            CompactResult::NotSuitableZone => b"not_suitable_zone",
            CompactResult::Skipped => b"skipped",
            CompactResult::Deferred => b"deferred",
            CompactResult::NoSuitablePage => b"no_suitable_page",
            CompactResult::Continue => b"continue",
            CompactResult::Complete => b"complete",
            CompactResult::PartialSkipped => b"partial_skipped",
            CompactResult::Contended => b"contended",
            CompactResult::Success if self.is_since(SUCCESS) => b"success",
            CompactResult::Success => b"partial",
        }
    }

    /// A request's flags as events of reclaim show them.
    fn reclaim_gfp(&self, gfp: Gfp) -> String {
        if self.is_since(GFP_UNDERSCORES) { gfp_names(gfp) } else { first_gfp_names(gfp) }
    }

    fn gfp_text(&self, gfp: Gfp) -> String {
        if self.is_since(GFP_NAMES) {
            return gfp_names(gfp);
        }
        let bits = gfp.kernel_names().filter_map(|name| gfp_bit(self.release, &name));
        format!("{:#x}", bits.fold(0, |all, bit| all | bit))
    }
}

/// What reclaim tells, in the form of 3.3 to 3.5; `gfp` is the text of a request's flags.
fn reclaim_event<'a>(release: Release, event: ReclaimEvent, gfp: &'a str) -> Event<'a> {
    match event {
        ReclaimEvent::KswapdSleep { node } => {
            Event::KswapdSleep(NodeOnly { nid: node.0 as i32, rest: b"" })
        }
        ReclaimEvent::KswapdWake { node, order } => Event::KswapdWake(KswapdWake {
            nid: node.0 as i32,
            zid: None,
            order: order.0.into(),
            rest: b"",
        }),
        ReclaimEvent::WakeupKswapd { node, zone, order } => Event::WakeupKswapd(WakeupKswapd {
            nid: node.0 as i32,
            zid: Some(zone as i32),
            order: order.0.into(),
            gfp_flags: None,
            rest: b"",
        }),
        ReclaimEvent::DirectBegin { order, .. } => Event::DirectReclaimBegin(DirectReclaimBegin {
            order: order.0.into(),
            // `!laptop_mode`, which is off.
            may_writepage: Some(1),
            gfp_flags: GfpText(gfp.as_bytes()),
            classzone_idx: None,
            rest: b"",
        }),
        ReclaimEvent::DirectEnd { nr_reclaimed } => {
            Event::DirectReclaimEnd(ReclaimEnd { nr_reclaimed, rest: b"" })
        }
        ReclaimEvent::LruIsolate { isolation, has_lumps } => {
            Event::LruIsolate(lru_isolate(release, isolation, has_lumps))
        }
        ReclaimEvent::ShrinkInactive { node, zone, nr_scanned, nr_reclaimed, priority, pass } => {
            let nr = |pages| i64::try_from(pages).expect("pages of memory");
            let flags = match pass.is_sync {
                true => &b"RECLAIM_WB_MIXED|RECLAIM_WB_SYNC"[..],
                false => write_flags(pass),
            };
            Event::LruShrinkInactive(shrink_inactive(
                node.0 as i32,
                zone as i32,
                [nr(nr_scanned), nr(nr_reclaimed)],
                priority.into(),
                flags,
            ))
        }
        ReclaimEvent::WritePage { pfn, pass } => Event::VmscanWrite(VmscanWrite {
            page: Pointer::Hex(PAGE_MAP + u64::from(pfn.0) * PAGE_STRUCT_BYTES),
            pfn: Some(Number::Decimal(pfn.0.into())),
            flags: Word(write_flags(pass)),
            rest: b"",
        }),
        ReclaimEvent::CongestionWait(wait) => Event::CongestionWait(device_wait(wait)),
        ReclaimEvent::WaitIffCongested(wait) => Event::WaitIffCongested(device_wait(wait)),
    }
}

/// Where the map of pages lies (`VMEMMAP_START`, arch/x86/include/asm/pgtable_64_types.h, v3.3).
const PAGE_MAP: u64 = 0xffff_ea00_0000_0000;
/// A `struct page`, v3.3 on 64 bits.
const PAGE_STRUCT_BYTES: u64 = 64;

fn device_wait(wait: DeviceWait) -> CongestionWait<'static> {
    let micros = |time: Ns| u32::try_from(time.0 / 1000).unwrap_or(u32::MAX);
    CongestionWait {
        usec_timeout: micros(wait.timeout),
        usec_delayed: micros(wait.delayed),
        rest: b"",
    }
}

fn lru_isolate(release: Release, isolation: Isolation, has_lumps: bool) -> LruIsolate<'static> {
    let Isolation { list, order, nr_requested, nr_scanned, nr_taken, lumps, mode } = isolation;
    // ISOLATE_INACTIVE, ISOLATE_ACTIVE; both where the block itself is wanted.
    let isolate_mode = match (mode, list.is_active()) {
        _ if release >= ISOLATES_ALIKE => 0,
        (ReclaimMode::Lumpy, _) => 3,
        (_, true) => 2,
        (_, false) => 1,
    };
    let of_lumps = |pages: u64| has_lumps.then_some(pages);
    LruIsolate {
        isolate_mode: Some(isolate_mode),
        classzone: None,
        classzone_second: None,
        order: order.0.into(),
        nr_requested,
        nr_scanned,
        nr_skipped: None,
        nr_taken,
        contig_taken: of_lumps(lumps.nr_taken),
        contig_dirty: of_lumps(lumps.nr_dirty),
        contig_failed: of_lumps(lumps.nr_failed),
        lru: None,
        file: Some(list.is_file().into()),
        rest: b"",
    }
}

fn shrink_inactive(
    nid: i32,
    zid: i32,
    [nr_scanned, nr_reclaimed]: [i64; 2],
    priority: i32,
    flags: &'static [u8],
) -> LruShrinkInactive<'static> {
    LruShrinkInactive {
        nid,
        zid: Some(zid),
        nr_scanned,
        nr_reclaimed,
        nr_dirty: None,
        nr_writeback: None,
        nr_congested: None,
        nr_immediate: None,
        nr_activate: None,
        nr_activate_anon: None,
        nr_activate_file: None,
        nr_ref_keep: None,
        nr_unmap_fail: None,
        priority,
        flags: Word(flags),
        rest: b"",
    }
}

/// `trace_reclaim_flags`.
const fn write_flags(pass: WritePass) -> &'static [u8] {
    match (pass.is_file, pass.is_sync) {
        (false, false) => b"RECLAIM_WB_ANON|RECLAIM_WB_ASYNC",
        (false, true) => b"RECLAIM_WB_ANON|RECLAIM_WB_SYNC",
        (true, false) => b"RECLAIM_WB_FILE|RECLAIM_WB_ASYNC",
        (true, true) => b"RECLAIM_WB_FILE|RECLAIM_WB_SYNC",
    }
}

/// Flags by name, as events of reclaim have always shown them.
fn gfp_names(gfp: Gfp) -> String {
    let names: Vec<_> = gfp.kernel_names().collect();
    if names.is_empty() {
        return "none".to_owned();
    }
    let flags: GfpFlags =
        names.join("|").parse().expect("the names of flags are the kernel's in both crates");
    flags.to_string()
}

/// Sets of flags and single ones by the names of their time, the larger sets first (`show_gfp_flags`,
/// include/trace/events/gfpflags.h, v3.3).
const FIRST_GFP_NAMES: [(&str, Gfp); 21] = {
    const WAIT: Gfp = Gfp::DIRECT_RECLAIM;
    const FS: Gfp = WAIT.union(Gfp::IO).union(Gfp::FS);
    const USER: Gfp = FS.union(Gfp::HARDWALL);
    const HIGHUSER: Gfp = USER.union(Gfp::HIGHMEM);
    [
        ("GFP_HIGHUSER_MOVABLE", HIGHUSER.union(Gfp::MOVABLE)),
        ("GFP_HIGHUSER", HIGHUSER),
        ("GFP_USER", USER),
        ("GFP_TEMPORARY", FS.union(Gfp::RECLAIMABLE)),
        ("GFP_KERNEL", FS),
        ("GFP_NOFS", WAIT.union(Gfp::IO)),
        ("GFP_ATOMIC", Gfp::HIGH),
        ("GFP_NOIO", WAIT),
        ("GFP_IO", Gfp::IO),
        ("GFP_COLD", Gfp::COLD),
        ("GFP_NOWARN", Gfp::NOWARN),
        ("GFP_REPEAT", Gfp::REPEAT),
        ("GFP_NOFAIL", Gfp::NOFAIL),
        ("GFP_NORETRY", Gfp::NORETRY),
        ("GFP_COMP", Gfp::COMP),
        ("GFP_ZERO", Gfp::ZERO),
        ("GFP_NOMEMALLOC", Gfp::NOMEMALLOC),
        ("GFP_HARDWALL", Gfp::HARDWALL),
        ("GFP_THISNODE", Gfp::THISNODE),
        ("GFP_RECLAIMABLE", Gfp::RECLAIMABLE),
        ("GFP_MOVABLE", Gfp::MOVABLE),
    ]
};

/// Flags that had no name: their bits in include/linux/gfp.h, of which those that are left are shown as one number.
const FIRST_GFP_BITS: [(u32, Gfp); 3] =
    [(0x80, Gfp::FS), (0x2, Gfp::HIGHMEM), (0x100_0000, Gfp::WRITE)];

/// Flags as events of reclaim showed them before 4.6: a request that may wait and does not wake kswapd says so
/// (`__GFP_NO_KSWAPD`), and a huge page's flags have a name.
fn first_gfp_names(gfp: Gfp) -> String {
    let huge = Gfp::HIGHUSER_MOVABLE | Gfp::COMP | Gfp::NOMEMALLOC | Gfp::NORETRY | Gfp::NOWARN;
    let huge = huge - Gfp::KSWAPD_RECLAIM;
    let mut left = gfp - Gfp::KSWAPD_RECLAIM;
    let mut spares_kswapd = gfp.contains(Gfp::DIRECT_RECLAIM) && !gfp.contains(Gfp::KSWAPD_RECLAIM);
    let mut names = Vec::<String>::new();
    if spares_kswapd && left.contains(huge) {
        names.push("GFP_TRANSHUGE".into());
        left -= huge;
        spares_kswapd = false;
    }
    for (name, flags) in FIRST_GFP_NAMES {
        if left.contains(flags) {
            names.push(name.into());
            left -= flags;
        }
    }
    if spares_kswapd {
        names.push("GFP_NO_KSWAPD".into());
    }
    let unnamed = FIRST_GFP_BITS.iter().filter(|(_, flag)| left.contains(*flag));
    match unnamed.map(|(bit, _)| bit).sum::<u32>() {
        0 => {}
        bits => names.push(format!("{bits:#x}")),
    }
    if names.is_empty() { "GFP_NOWAIT".to_owned() } else { names.join("|") }
}

/// The last page that was looked at: -1 if there was none.
fn scan_pfn(unit: UnitCounts) -> Number {
    Number::Hex(unit.last.map_or(u64::MAX, |pfn| pfn.0.into()))
}

const fn mode_name(mode: MigrateMode) -> &'static [u8] {
    match mode {
        MigrateMode::Async => b"MIGRATE_ASYNC",
        MigrateMode::SyncLight => b"MIGRATE_SYNC_LIGHT",
        MigrateMode::Sync => b"MIGRATE_SYNC",
    }
}

fn wake_fields(wake: Wake) -> CompactionWake<'static> {
    CompactionWake {
        nid: wake.node.0 as i32,
        order: wake.order.0.into(),
        // Called so in every release, as part of what user space relies on.
        classzone_idx: Some(PaddedWord::zone(wake.highest_zoneidx.name().as_bytes())),
        highest_zoneidx: None,
        rest: b"",
    }
}

/// The bit of a flag (include/linux/gfp.h, v4.4, v4.14 and v5.4); `None` where that release has no such flag.
fn gfp_bit(release: Release, name: &str) -> Option<u32> {
    let low = ["DMA", "HIGHMEM", "DMA32", "MOVABLE", "RECLAIMABLE", "HIGH", "IO", "FS"];
    let behind: &[&str] = if release >= GFP_SHUFFLED {
        &[
            "ZERO",
            "ATOMIC",
            "DIRECT_RECLAIM",
            "KSWAPD_RECLAIM",
            "WRITE",
            "NOWARN",
            "RETRY_MAYFAIL",
            "NOFAIL",
            "NORETRY",
            "MEMALLOC",
            "COMP",
            "NOMEMALLOC",
            "HARDWALL",
            "THISNODE",
            "ACCOUNT",
            "NOLOCKDEP",
        ]
    } else {
        &[
            "COLD",
            "NOWARN",
            "RETRY_MAYFAIL",
            "NOFAIL",
            "NORETRY",
            "MEMALLOC",
            "COMP",
            "ZERO",
            "NOMEMALLOC",
            "HARDWALL",
            "THISNODE",
            "ATOMIC",
            "ACCOUNT",
            "NOTRACK",
            "DIRECT_RECLAIM",
            "OTHER_NODE",
            "WRITE",
            "KSWAPD_RECLAIM",
            "NOLOCKDEP",
        ]
    };
    let is_known = |name: &&&str| match **name {
        "OTHER_NODE" => release < GFP_WITHOUT_OTHER_NODE,
        "NOLOCKDEP" => release >= GFP_WITHOUT_OTHER_NODE,
        _ => true,
    };
    // One bit under two names.
    let name = match name.trim_start_matches("__GFP_") {
        "REPEAT" => "RETRY_MAYFAIL",
        name => name,
    };
    let bit = low.iter().chain(behind).filter(is_known).position(|other| *other == name)?;
    Some(1 << bit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use highorder_mm::lru::LruList;
    use highorder_mm::lumpy::Lumps;
    use highorder_sim::{CpuId, Ns, TaskId};
    use rand_core::Rng;
    use rand_pcg::Pcg64;

    const RELEASES: [&str; 10] =
        ["3.3", "3.4.0-rc2", "3.5", "4.4", "4.6", "4.14", "5.1", "5.4", "6.1", "6.12"];

    fn zones() -> Vec<(NodeId, ZoneKind, Range<Pfn>)> {
        vec![
            (NodeId(0), ZoneKind::Dma, Pfn(1)..Pfn(0x1000)),
            (NodeId(0), ZoneKind::Dma32, Pfn(0x1000)..Pfn(0x1ffe0)),
            (NodeId(1), ZoneKind::Normal, Pfn(0x20000)..Pfn(0x40000)),
        ]
    }

    fn whose<'a>(
        release: &'a str,
        tasks: &'a [String],
        zones: &'a [(NodeId, ZoneKind, Range<Pfn>)],
    ) -> Whose<'a> {
        Whose { release, tasks, zones, nr_cpus: 2 }
    }

    /// The line of an event of a task on CPU 1, at 20.589723 s, if the release tells of it.
    fn printed(task: &str, release: &str, event: TraceEvent) -> Option<String> {
        let (zones, tasks) = (zones(), [task.to_owned()]);
        let traced = Traced { at: Ns(20_589_723_000), task: TaskId(0), cpu: CpuId(1), event };
        let text = text(&[traced], whose(release, &tasks, &zones));
        let text = String::from_utf8(text).expect("ASCII");
        text.lines().find(|line| !line.starts_with('#')).map(str::to_owned)
    }

    #[test]
    fn kernels_before_3_12_tell_the_type_that_a_fallbacks_block_has_become() {
        let event = |fallback_order, rest_migratetype, change_ownership| {
            TraceEvent::Extfrag(Extfrag {
                zone: ZoneId(0),
                pfn: Pfn(0x1234),
                alloc_order: Order(0),
                fallback_order: Order(fallback_order),
                alloc_migratetype: Migratetype::Unmovable,
                fallback_migratetype: Migratetype::Movable,
                rest_migratetype,
                change_ownership,
            })
        };
        let told = |release, event| {
            let line = printed("cat", release, event).unwrap();
            let at = line.find("fallback_migratetype").unwrap();
            line[at..].to_owned()
        };
        // Taken along are the free pages around a large block, even where the rest of the pageblock stays Movable.
        let taken = "fallback_migratetype=0 fragmenting=1 change_ownership=1";
        let found = "fallback_migratetype=2 fragmenting=1 change_ownership=0";
        for release in ["3.3", "3.5"] {
            assert_eq!(told(release, event(4, Migratetype::Unmovable, false)), taken, "{release}");
            assert_eq!(told(release, event(3, Migratetype::Movable, false)), found, "{release}");
        }
        assert_eq!(
            told("4.4", event(4, Migratetype::Unmovable, true)),
            "fallback_migratetype=1 fragmenting=1 change_ownership=1"
        );
    }

    /// Any event.
    fn some_event(rng: &mut Pcg64) -> TraceEvent {
        let mut below = |n: u32| ((u64::from(rng.next_u32()) * u64::from(n)) >> 32) as u32;
        let zone = ZoneId(below(3) as u8);
        let order = Order(below(11) as u8);
        let any = (below(4) > 0).then_some(order);
        let result = [
            CompactResult::NotSuitableZone,
            CompactResult::Skipped,
            CompactResult::Deferred,
            CompactResult::NoSuitablePage,
            CompactResult::Continue,
            CompactResult::Complete,
            CompactResult::PartialSkipped,
            CompactResult::Contended,
            CompactResult::Success,
        ][below(9) as usize];
        let mode =
            [MigrateMode::Async, MigrateMode::SyncLight, MigrateMode::Sync][below(3) as usize];
        let start = below(1 << 18);
        let scanned = Scanned {
            start,
            end: start + below(513),
            nr_scanned: below(1_000),
            nr_taken: below(513),
        };
        let scanners = Scanners {
            zone,
            migrate_pfn: Pfn(below(1 << 18)),
            free_pfn: Pfn(below(1 << 18)),
            is_sync: below(2) > 0,
        };
        let deferral = Deferral {
            zone,
            order,
            order_failed: Order(below(12) as u8),
            considered: below(65),
            defer_shift: below(7) as u8,
        };
        let highest_zoneidx =
            [ZoneKind::Dma32, ZoneKind::Normal, ZoneKind::Movable][below(3) as usize];
        let wake = Wake { node: NodeId(below(2)), order, highest_zoneidx };
        // Bits that every kernel has and prints.
        let gfp = Gfp::from_bits_retain(below(1 << 8))
            | [Gfp::NONE, Gfp::RECLAIM, Gfp::COMP][below(3) as usize];
        let (nr_migrated, nr_failed) = (below(513), below(33));
        let seen = [
            ScanResult::Fail,
            ScanResult::Succeed,
            ScanResult::PmdNone,
            ScanResult::PmdMapped,
            ScanResult::ExceedNone,
            ScanResult::ExceedSwap,
            ScanResult::NonPresent,
            ScanResult::PageReadOnly,
            ScanResult::LackReferenced,
            ScanResult::ScanAbort,
            ScanResult::PageCount,
            ScanResult::PageLru,
            ScanResult::PageLock,
            ScanResult::PageCompound,
            ScanResult::SwapCachePage,
            ScanResult::AnyProcess,
            ScanResult::VmaNull,
            ScanResult::AddressRange,
            ScanResult::PageAnon,
            ScanResult::AllocHugePageFail,
        ][below(20) as usize];
        let unit = UnitCounts {
            last: (below(3) > 0).then_some(Pfn(start)),
            writable: below(2) > 0,
            referenced: below(513),
            none_or_zero: below(513),
            unmapped: below(65),
            result: seen,
        };
        let process = ProcessId(below(4));
        match below(25) {
            23 => TraceEvent::QueuedBlock(QueuedBlock {
                zone,
                pfn: Pfn(start),
                nr_queued: (below(3) > 0).then(|| below(16)),
            }),
            24 => TraceEvent::EmptiedBlock { zone, nr_migrated, nr_failed },
            16 => TraceEvent::WakeupKcompactd(wake),
            17 => {
                let collapsed = (seen == ScanResult::Succeed).then_some(ScanResult::NonPresent);
                TraceEvent::KhugepagedScanPmd { process, unit, collapsed }
            }
            18 => TraceEvent::CollapseHugePage { process, result: seen },
            19 => TraceEvent::CollapseHugePageIsolate(unit),
            20 => TraceEvent::CollapseHugePageSwapin {
                process,
                swapped_in: unit.unmapped,
                referenced: unit.referenced,
                result: seen,
            },
            21 => TraceEvent::NodeReclaimBegin { node: wake.node, order, gfp },
            22 => TraceEvent::NodeReclaimEnd { nr_reclaimed: nr_migrated.into() },
            0 => TraceEvent::Compact(CompactEvent::Begin(scanners)),
            1 => TraceEvent::Compact(CompactEvent::End(scanners, result)),
            2 => TraceEvent::Compact(CompactEvent::Suitable(zone, any, result)),
            3 => TraceEvent::Compact(CompactEvent::Finished(zone, any, result)),
            4 => TraceEvent::Compact(CompactEvent::IsolateMigratepages(scanned)),
            5 => TraceEvent::Compact(CompactEvent::IsolateFreepages(scanned)),
            6 => TraceEvent::Compact(CompactEvent::FastIsolateFreepages(scanned)),
            7 => TraceEvent::Compact(CompactEvent::Migratepages { nr_migrated, nr_failed }),
            8 => TraceEvent::Compact(CompactEvent::Deferred(deferral)),
            9 => TraceEvent::Compact(CompactEvent::DeferCompaction(deferral)),
            10 => TraceEvent::Compact(CompactEvent::DeferReset(deferral)),
            11 => TraceEvent::Compact(CompactEvent::MigratePagesStart(mode)),
            12 => TraceEvent::Compact(CompactEvent::MigratePages {
                nr_succeeded: nr_migrated,
                nr_failed,
                mode,
            }),
            13 => TraceEvent::TryToCompactPages { order, gfp, mode, priority: below(3) as u8 },
            14 => TraceEvent::KcompactdSleep { node: wake.node },
            _ => TraceEvent::KcompactdWake(wake),
        }
    }

    #[test]
    fn whatever_is_printed_parses_to_the_same_event_and_prints_so_again() {
        let zones = zones();
        let tasks = ["kcompactd0".to_owned(), "a task of a long name".to_owned()];
        let mut rng = Pcg64::new(3, 0x7472_6163);
        for release in RELEASES {
            let printer = Printer { zones: &zones, release: release_of(release) };
            let mut nr_told = 0;
            for at in 0..3_000u64 {
                let event = some_event(&mut rng);
                let traced = Traced {
                    at: Ns(at * 1_234_567_000),
                    task: TaskId((at % 2) as u32),
                    cpu: CpuId((at % 3) as u32),
                    event,
                };
                let mut text = Vec::new();
                if !printer.line(&traced, &tasks, &mut text) {
                    continue;
                }
                nr_told += 1;
                let shown = String::from_utf8_lossy(&text).into_owned();
                let line = Line::parse(&text[..text.len() - 1])
                    .unwrap_or_else(|error| panic!("{release}: {error:?}: {shown}"));
                assert_eq!(line.timestamp_ns, traced.at.0, "{shown}");
                assert_eq!((line.pid, line.cpu), (traced.task.0 + 1, traced.cpu.0), "{shown}");
                let parsed = line.parse_event().unwrap_or_else(|e| panic!("{e:?}: {shown}"));
                let gfp = match event {
                    TraceEvent::TryToCompactPages { gfp, .. } => printer.gfp_text(gfp),
                    TraceEvent::NodeReclaimBegin { gfp, .. } => gfp_names(gfp),
                    _ => String::new(),
                };
                assert_eq!(Some(parsed), printer.event(&event, &gfp), "{shown}");
                let mut again = Vec::new();
                line.write_prefix(&mut again);
                parsed.write_args(&mut again);
                again.push(b'\n');
                assert_eq!(String::from_utf8_lossy(&again), shown);
            }
            assert!(nr_told > 300, "{release}: {nr_told}");
        }
    }

    #[test]
    fn lines_are_those_that_kernels_print() {
        let of = |release: &str, event: TraceEvent| printed("churn", release, event);
        let begin = TraceEvent::Compact(CompactEvent::Begin(Scanners {
            zone: ZoneId(1),
            migrate_pfn: Pfn(0x8e00),
            free_pfn: Pfn(0x15e00),
            is_sync: false,
        }));
        assert_eq!(
            of("6.12", begin).as_deref(),
            Some(concat!(
                "           churn-1       [001] .....    20.589723: mm_compaction_begin: ",
                "zone_start=0x1000 migrate_pfn=0x8e00 free_pfn=0x15e00 zone_end=0x1ffe0, mode=async"
            ))
        );
        assert_eq!(of("3.4.0-rc2", begin), None);
        let asks = TraceEvent::TryToCompactPages {
            order: Order(9),
            gfp: Gfp::TRANSHUGE | Gfp::NORETRY | Gfp::THISNODE,
            mode: MigrateMode::Async,
            priority: 2,
        };
        for (release, expected) in [
            ("6.12", "order=9 gfp_mask=GFP_TRANSHUGE|__GFP_NORETRY|__GFP_THISNODE priority=2"),
            // As messages of these kernels show GFP_HIGHUSER_MOVABLE: 0x100cca, 0x14200ca, 0x24200ca.
            ("5.4", "order=9 gfp_mask=0x3d24ca priority=2"),
            ("4.14", "order=9 gfp_mask=0x4752ca priority=2"),
            ("4.4", "order=9 gfp_mask=0x4752ca mode=0"),
        ] {
            let line = of(release, asks).expect("it is told");
            assert!(line.ends_with(expected), "{release}: {line}");
        }
        for (release, bits) in [("5.4", 0x10_0cca), ("4.14", 0x142_00ca), ("4.4", 0x242_00ca)] {
            let printer = Printer { zones: &zones(), release: release_of(release) };
            assert_eq!(printer.gfp_text(Gfp::HIGHUSER_MOVABLE), format!("{bits:#x}"), "{release}");
        }
        let whole =
            TraceEvent::Compact(CompactEvent::Suitable(ZoneId(0), None, CompactResult::Continue));
        let line = of("6.1", whole).expect("it is told");
        assert!(line.ends_with("node=0 zone=DMA      order=-1 ret=continue"), "{line}");
        assert_eq!(of("6.12", whole), None);
    }

    #[test]
    fn khugepaged_tells_since_4_5_and_in_each_releases_words() {
        let of = |release: &str, event: TraceEvent| {
            let line = printed("khugepaged", release, event)?;
            line.split_once("20.589723: ").map(|(_, event)| event.to_owned())
        };
        let unit = UnitCounts {
            last: Some(Pfn(0x12a00)),
            writable: true,
            referenced: 510,
            none_or_zero: 1,
            unmapped: 1,
            result: ScanResult::Succeed,
        };
        let process = ProcessId(0);
        let collapsed = Some(ScanResult::PageLock);
        let scan = TraceEvent::KhugepagedScanPmd { process, unit, collapsed };
        for (release, expected) in [
            ("4.4", None),
            ("4.6", Some(("ffff880000001000", "referenced=1, none_or_zero=1, status=succeeded"))),
            (
                "4.14",
                Some((
                    "ffff880000001000",
                    "referenced=510, none_or_zero=1, status=succeeded, unmapped=1",
                )),
            ),
            (
                "6.12",
                Some((
                    "000000009e3779b1",
                    "referenced=510, none_or_zero=1, status=page_locked, unmapped=1",
                )),
            ),
        ] {
            let line = |(mm, rest)| {
                format!("mm_khugepaged_scan_pmd: mm={mm}, scan_pfn=0x12a00, writable=1, {rest}")
            };
            assert_eq!(of(release, scan), expected.map(line), "{release}");
        }
        let nothing = UnitCounts { last: None, result: ScanResult::PmdMapped, ..unit };
        let scan = TraceEvent::KhugepagedScanPmd { process, unit: nothing, collapsed: None };
        for (release, word) in [("5.4", "pmd_null"), ("6.1", "page_pmd_mapped")] {
            let line = of(release, scan).expect("it is told");
            assert!(line.contains("scan_pfn=0xffffffffffffffff"), "{line}");
            assert!(line.contains(&format!("status={word},")), "{line}");
        }
        let result = ScanResult::NonPresent;
        let collapse = TraceEvent::CollapseHugePage { process, result };
        for (release, word) in [("5.4", "failed"), ("6.12", "pte_non_present")] {
            let line = of(release, collapse).expect("it is told");
            assert!(line.ends_with(&format!("isolated=0, status={word}")), "{line}");
        }
        let gfp = Gfp::HIGHUSER_MOVABLE | Gfp::THISNODE;
        let begins = TraceEvent::NodeReclaimBegin { node: NodeId(1), order: Order(3), gfp };
        assert_eq!(of("5.1", begins), None);
        let begins = of("5.4", begins).expect("it is told");
        let flags = "GFP_HIGHUSER_MOVABLE|__GFP_THISNODE";
        let expected = format!("mm_vmscan_node_reclaim_begin: nid=1 order=3 gfp_flags={flags}");
        assert_eq!(begins, expected);
    }

    #[test]
    fn reclaim_is_told_in_each_old_releases_form() {
        let of = |release: &str, event: ReclaimEvent| {
            let line = printed("kswapd0", release, TraceEvent::Reclaim(event)).expect("it is told");
            line.split_once("20.589723: mm_vmscan_").expect("one of reclaim").1.to_owned()
        };
        let isolation = Isolation {
            list: LruList::ActiveFile,
            order: Order(9),
            nr_requested: 32,
            nr_scanned: 96,
            nr_taken: 95,
            lumps: Lumps { nr_taken: 63, nr_dirty: 4, nr_failed: 2 },
            mode: ReclaimMode::Compaction,
        };
        let taken = "order=9 nr_requested=32 nr_scanned=96 nr_taken=95";
        for (release, has_lumps, mode, lumps) in [
            ("3.3", true, 2, " contig_taken=63 contig_dirty=4 contig_failed=2"),
            ("3.4.0-rc2", true, 2, " contig_taken=63 contig_dirty=4 contig_failed=2"),
            // The first patch of the series took the three numbers away; the mode went by itself.
            ("3.4.0-rc2", false, 2, ""),
            ("3.5", false, 0, ""),
        ] {
            let line = of(release, ReclaimEvent::LruIsolate { isolation, has_lumps });
            assert_eq!(line, format!("lru_isolate: isolate_mode={mode} {taken}{lumps} file=1"));
        }
        let (node, zone, order) = (NodeId(0), ZoneKind::Normal, Order(9));
        let huge = Gfp::HIGHUSER_MOVABLE | Gfp::COMP | Gfp::NOMEMALLOC | Gfp::NORETRY | Gfp::NOWARN;
        let [without, with] = [false, true].map(|is_sync| WritePass { is_file: true, is_sync });
        let shrunk = |pass| ReclaimEvent::ShrinkInactive {
            node,
            zone,
            nr_scanned: 32,
            nr_reclaimed: 5,
            priority: 9,
            pass,
        };
        for (event, expected) in [
            (ReclaimEvent::KswapdSleep { node }, "kswapd_sleep: nid=0"),
            (ReclaimEvent::KswapdWake { node, order }, "kswapd_wake: nid=0 order=9"),
            (
                ReclaimEvent::WakeupKswapd { node, zone, order },
                "wakeup_kswapd: nid=0 zid=2 order=9",
            ),
            (
                ReclaimEvent::DirectBegin { order, gfp: huge - Gfp::KSWAPD_RECLAIM },
                "direct_reclaim_begin: order=9 may_writepage=1 gfp_flags=GFP_TRANSHUGE",
            ),
            (
                ReclaimEvent::DirectBegin { order, gfp: Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN },
                "direct_reclaim_begin: order=9 may_writepage=1 gfp_flags=GFP_HIGHUSER_MOVABLE|GFP_NOWARN",
            ),
            (
                ReclaimEvent::DirectBegin { order, gfp: Gfp::KERNEL | Gfp::REPEAT },
                "direct_reclaim_begin: order=9 may_writepage=1 gfp_flags=GFP_KERNEL|GFP_REPEAT",
            ),
            (ReclaimEvent::DirectEnd { nr_reclaimed: 37 }, "direct_reclaim_end: nr_reclaimed=37"),
            (
                shrunk(without),
                concat!(
                    "lru_shrink_inactive: nid=0 zid=2 nr_scanned=32 nr_reclaimed=5 priority=9 ",
                    "flags=RECLAIM_WB_FILE|RECLAIM_WB_ASYNC"
                ),
            ),
            (
                shrunk(with),
                concat!(
                    "lru_shrink_inactive: nid=0 zid=2 nr_scanned=32 nr_reclaimed=5 priority=9 ",
                    "flags=RECLAIM_WB_MIXED|RECLAIM_WB_SYNC"
                ),
            ),
            (
                ReclaimEvent::WritePage { pfn: Pfn(0x1234), pass: without },
                "writepage: page=ffffea0000048d00 pfn=4660 flags=RECLAIM_WB_FILE|RECLAIM_WB_ASYNC",
            ),
        ] {
            for release in ["3.3", "3.4.0-rc2", "3.5"] {
                assert_eq!(of(release, event), expected, "{release}");
            }
        }
        let wait = DeviceWait { timeout: Ns::from_millis(100), delayed: Ns::from_millis(8) };
        for (event, name) in [
            (ReclaimEvent::CongestionWait(wait), "congestion_wait"),
            (ReclaimEvent::WaitIffCongested(wait), "wait_iff_congested"),
        ] {
            let line = printed("kswapd0", "3.3", TraceEvent::Reclaim(event)).expect("it is told");
            let expected = format!("writeback_{name}: usec_timeout=100000 usec_delayed=8000");
            assert!(line.ends_with(&expected), "{line}");
        }
    }

    #[test]
    fn flags_without_a_name_are_shown_in_bits_and_none_as_gfp_nowait() {
        for (gfp, expected) in [
            (Gfp::empty(), "GFP_NOWAIT"),
            (Gfp::KSWAPD_RECLAIM, "GFP_NOWAIT"),
            (Gfp::HIGH | Gfp::KSWAPD_RECLAIM, "GFP_ATOMIC"),
            (Gfp::DIRECT_RECLAIM | Gfp::KSWAPD_RECLAIM | Gfp::FS, "GFP_NOIO|0x80"),
            (Gfp::KERNEL - Gfp::KSWAPD_RECLAIM, "GFP_KERNEL|GFP_NO_KSWAPD"),
        ] {
            assert_eq!(first_gfp_names(gfp), expected);
        }
    }
}
