//! Events with who and when, for those who ask for them before a run.
//!
//! Models: include/trace/events/compaction.h, v4.6 to v6.12, as far as whole flows have events; those of a
//! run's own are `highorder_mm::compaction::events`; include/trace/events/huge_memory.h, v4.14 and v6.12;
//! `mm_vmscan_node_reclaim_begin` and `mm_vmscan_node_reclaim_end`, include/trace/events/vmscan.h, v5.4.
//! `mm_vmscan_*` and `writeback_*`, include/trace/events/{vmscan,writeback}.h, v3.3 to v3.5: the events of reclaim.
//! Departs: events of reclaim are told where reclaim waits for devices by the share of pages being written, before
//! 3.11. Visible as: traces of later kernels have compaction and huge pages alone.
//! Departs: a step's events are told when its time is spent. Visible as: events of one step have one
//! timestamp.

use super::policy::StallRule;
use super::{KernelCx, Waiter};
use crate::task::TaskId;
use highorder_mm::compaction::events::CompactEvent;
use highorder_mm::fallback::{Extfrag, QueuedBlock};
use highorder_mm::fast_search::MigrateMode;
use highorder_mm::gfp::Gfp;
use highorder_mm::khugepaged::{ScanResult, UnitScan};
use highorder_mm::reclaim::Isolation;
use highorder_mm::types::NodeId;
use highorder_mm::vma::ProcessId;
use highorder_mm::zone::ZoneId;
use highorder_mm::{Order, Pfn, ZoneKind};
use highorder_words::{CpuId, Ns};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// Compaction of a zone, or migration.
    Compact(CompactEvent),
    /// `mm_compaction_try_to_compact_pages`: a request compacts.
    TryToCompactPages {
        /// The order wanted.
        order: Order,
        /// The request's flags.
        gfp: Gfp,
        /// How hard it tries, before 4.8.
        mode: MigrateMode,
        /// Likewise since: 0 is the hardest (`enum compact_priority`).
        priority: u8,
    },
    /// `mm_compaction_kcompactd_sleep`: a node's kcompactd has nothing to do.
    KcompactdSleep {
        /// The node.
        node: NodeId,
    },
    /// `mm_compaction_kcompactd_wake`: it begins.
    KcompactdWake(Wake),
    /// `mm_compaction_wakeup_kcompactd`: somebody wakes it.
    WakeupKcompactd(Wake),
    /// `mm_khugepaged_scan_pmd`: khugepaged has looked at a unit, and has tried to collapse it if that looked well.
    KhugepagedScanPmd {
        /// Whose memory it is.
        process: ProcessId,
        /// What it saw.
        unit: UnitCounts,
        /// What trying came to.
        collapsed: Option<ScanResult>,
    },
    /// `mm_collapse_huge_page`: it has tried.
    CollapseHugePage {
        /// Whose memory it is.
        process: ProcessId,
        /// What that came to.
        result: ScanResult,
    },
    /// `mm_collapse_huge_page_isolate`: it has taken a unit's pages, or found that it cannot.
    CollapseHugePageIsolate(UnitCounts),
    /// `mm_collapse_huge_page_swapin`: it has had a unit's pages read from swap.
    CollapseHugePageSwapin {
        /// Whose memory it is.
        process: ProcessId,
        /// Pages that were swapped in.
        swapped_in: u32,
        /// Referenced entries that the scan saw.
        referenced: u32,
        /// What that came to.
        result: ScanResult,
    },
    /// What happened in reclaim.
    Reclaim(ReclaimEvent),
    /// `mm_page_alloc_extfrag`: a request was served from another type's lists.
    Extfrag(Extfrag),
    /// `mm_compaction_wakeup_kcompactd_queue` (posted in October and November 2018): kcompactd is to empty a pageblock.
    QueuedBlock(QueuedBlock),
    /// `mm_compaction_kcompactd_migrated` (likewise): it has tried to.
    EmptiedBlock {
        /// Where the pageblock lies.
        zone: ZoneId,
        /// Pages moved.
        nr_migrated: u32,
        /// Pages that stayed.
        nr_failed: u32,
    },
    /// `mm_fragmentation_stall` (posted in November 2018): a movable request has waited before it mixed pageblocks.
    FragmentationStall {
        /// The node whose kswapd it waited for.
        node: NodeId,
        /// For how long, in whole ticks of the timer.
        duration: Ns,
    },
    /// `mm_vmscan_node_reclaim_begin`: a node is reclaimed before others are used.
    NodeReclaimBegin {
        /// The node.
        node: NodeId,
        /// The order wanted.
        order: Order,
        /// The request's flags.
        gfp: Gfp,
    },
    /// `mm_vmscan_node_reclaim_end`: it has been.
    NodeReclaimEnd {
        /// Pages reclaimed.
        nr_reclaimed: u64,
    },
}

/// What happened in reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReclaimEvent {
    /// `mm_vmscan_kswapd_sleep`: a node's kswapd has nothing to do.
    KswapdSleep {
        /// The node.
        node: NodeId,
    },
    /// `mm_vmscan_kswapd_wake`: it begins, for an order.
    KswapdWake {
        /// The node.
        node: NodeId,
        /// The order.
        order: Order,
    },
    /// `mm_vmscan_wakeup_kswapd`: a request wakes it for a zone.
    WakeupKswapd {
        /// The zone's node.
        node: NodeId,
        /// The zone.
        zone: ZoneKind,
        /// The order.
        order: Order,
    },
    /// `mm_vmscan_direct_reclaim_begin`: a request frees pages for itself.
    DirectBegin {
        /// The order wanted.
        order: Order,
        /// The request's flags.
        gfp: Gfp,
    },
    /// `mm_vmscan_direct_reclaim_end`: it has.
    DirectEnd {
        /// Pages reclaimed, or 1 for hope alone.
        nr_reclaimed: u64,
    },
    /// `mm_vmscan_lru_isolate`: pages were taken off a list.
    LruIsolate {
        /// What was taken.
        isolation: Isolation,
        /// Whether the kernel tells of the pages taken beside victims.
        has_lumps: bool,
    },
    /// `mm_vmscan_lru_shrink_inactive`: a batch of inactive pages was decided about.
    ShrinkInactive {
        /// The lists' node.
        node: NodeId,
        /// The lists' zone.
        zone: ZoneKind,
        /// What the scan counted.
        nr_scanned: u64,
        /// Base pages reclaimed.
        nr_reclaimed: u64,
        /// The priority.
        priority: u8,
        /// How it was done.
        pass: WritePass,
    },
    /// `mm_vmscan_writepage`: a page was given to a device.
    WritePage {
        /// The page.
        pfn: Pfn,
        /// How it was done.
        pass: WritePass,
    },
    /// `writeback_congestion_wait`: somebody waited for a device.
    CongestionWait(DeviceWait),
    /// `writeback_wait_iff_congested`: somebody did if it was congested.
    WaitIffCongested(DeviceWait),
}

/// How a batch of pages is reclaimed, as traces tell it (`trace_reclaim_flags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritePass {
    /// Pages of files, not anonymous ones.
    pub is_file: bool,
    /// The second pass, which waits.
    pub is_sync: bool,
}

/// Pages that reclaim gave to devices, as events of `mm_vmscan_writepage` would add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReclaimWrites([[[u64; 2]; 2]; 2]);

impl ReclaimWrites {
    pub(crate) fn add(&mut self, waiter: Waiter, pass: WritePass) {
        let by = usize::from(waiter == Waiter::Kswapd);
        self.0[by][usize::from(pass.is_file)][usize::from(pass.is_sync)] += 1;
    }

    /// By who wrote, what and how: `direct` or `kswapd`, `anon` or `file`, `async` or `sync`.
    pub fn counts(&self) -> impl Iterator<Item = ([&'static str; 3], u64)> + '_ {
        let choices = (0..8).map(|n| (n >> 2, n >> 1 & 1, n & 1));
        choices.map(|(by, kind, way)| {
            let words = [["direct", "kswapd"][by], ["anon", "file"][kind], ["async", "sync"][way]];
            (words, self.0[by][kind][way])
        })
    }
}

/// A wait for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceWait {
    /// How long it was to last at most.
    pub timeout: Ns,
    /// How long it lasted.
    pub delayed: Ns,
}

/// What khugepaged saw of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitCounts {
    /// The last page that it looked at.
    pub last: Option<Pfn>,
    /// Whether a page can be written.
    pub writable: bool,
    /// Entries of pages that were used lately.
    pub referenced: u32,
    /// Entries without a page, or with the page of zeros.
    pub none_or_zero: u32,
    /// Entries in swap.
    pub unmapped: u32,
    /// What the look came to.
    pub result: ScanResult,
}

impl From<&UnitScan> for UnitCounts {
    fn from(scan: &UnitScan) -> Self {
        let UnitScan { result, last, writable, referenced, none_or_zero, .. } = *scan;
        let unmapped = scan.swapped.len() as u32;
        Self { last, writable, referenced, none_or_zero, unmapped, result }
    }
}

/// What kcompactd is woken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// The node.
    pub node: NodeId,
    /// The order.
    pub order: Order,
    /// The highest zone that is of use.
    pub highest_zoneidx: ZoneKind,
}

/// An event, whose it is and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced {
    /// When it was told.
    pub at: Ns,
    /// Who did it.
    pub task: TaskId,
    /// Where that ran.
    pub cpu: CpuId,
    /// What.
    pub event: TraceEvent,
}

impl super::Kernel {
    /// Keeps events from now on. Nothing that happens depends on it.
    pub fn keep_trace(&mut self) {
        self.trace.get_or_insert_default();
        self.memory.keep_compact_events();
        self.memory.keeps_extfrag = true;
    }
}

/// Notes an event of a flow.
pub(crate) fn note(cx: &mut KernelCx<'_>, event: TraceEvent) {
    let (at, task, cpu) = (cx.now(), cx.task(), cx.cpu());
    if let Some(trace) = &mut cx.world().trace {
        trace.push(Traced { at, task, cpu, event });
    }
}

/// Notes an event of reclaim, on kernels whose events of reclaim are told.
pub(crate) fn note_reclaim(cx: &mut KernelCx<'_>, event: ReclaimEvent) {
    let kernel = cx.world();
    if kernel.trace.is_some() && kernel.flows.stall.rule == StallRule::CongestionByShare {
        note(cx, TraceEvent::Reclaim(event));
    }
}

/// Notes the fallbacks since the last call, as happening now.
pub(crate) fn note_extfrag(cx: &mut KernelCx<'_>) {
    if cx.world().trace.is_none() {
        return;
    }
    for block in cx.world().memory.take_queued_blocks() {
        note(cx, TraceEvent::QueuedBlock(block));
    }
    for event in cx.world().memory.take_extfrag() {
        note(cx, TraceEvent::Extfrag(event));
    }
}

/// What memory has told since it was last asked: to be taken before anybody else can be next.
pub(crate) fn take(cx: &mut KernelCx<'_>) -> Vec<CompactEvent> {
    cx.world().memory.take_compact_events()
}

/// Notes what was taken, as happening now.
pub(crate) fn note_taken(cx: &mut KernelCx<'_>, events: Vec<CompactEvent>) {
    for event in events {
        note(cx, TraceEvent::Compact(event));
    }
}

/// Notes what memory has told, as happening now.
pub(crate) fn note_all(cx: &mut KernelCx<'_>) {
    let events = take(cx);
    note_taken(cx, events);
}
