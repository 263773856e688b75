//! Counters, under the names of `/proc/vmstat`.
//!
//! Models: `vmstat_text`, mm/vmstat.c, v6.12, v6.1, v4.4 and v3.3, for the counters that anonymous memory,
//! reclaim and swap move.
//! Departs: no per-CPU deltas. Visible as: a reading is exact, where the kernel's lags by up to the
//! per-CPU threshold.

use crate::anon::HUGE_ORDER;
use crate::lru::LruList;
use crate::memory::Memory;
use crate::policy::{CompactCounters, FreePages, LruScope};
use crate::types::{NR_ZONE_KINDS, ZoneKind};
use std_alloc::borrow::ToOwned;
use std_alloc::format;
use std_alloc::string::String;
use std_alloc::vec::Vec;

/// Defines the events, their names, and in which form they appear.
macro_rules! events {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal, $form:ident;)*) => {
        /// An event that is counted; each by the zone class it concerns, whether it is shown so or not.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Vm { $($(#[doc = $doc])* $name),* }

        const EVENTS: &[(Vm, &str, Form)] = &[$((Vm::$name, $text, Form::$form)),*];
    };
}

/// In which form a counter appears.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// One line.
    Plain,
    /// A line for each zone class.
    Zoned,
    /// A line for each zone class, or one, as `vmstat.reclaim_by_zone` says.
    Reclaim,
    /// A line for each zone class, or one, as `vmstat.allocstall_by_zone` says.
    Stall,
    /// Where `vmstat.reclaim_by_type` is set.
    Typed,
    /// Where `vmstat.khugepaged_apart` is set.
    Khugepaged,
    /// Anonymous and file apart where `vmstat.reclaim_by_type` is set, else their sum under one name.
    Workingset,
    /// Where `vmstat.thp_split_apart` is set.
    SplitApart,
    /// `thp_split` where it is not.
    SplitOld,
    /// Where `vmstat.workingset` is set, in one form on all kernels.
    NodeReclaim,
    /// Where `vmstat.drops` is set.
    Drop,
    /// Where LRU lists belong to nodes: pages passed over.
    Skip,
    /// Where compaction counts what it scans (`compaction.counters`).
    Compact,
    /// Where it does not.
    CompactOld,
    /// Where there is kcompactd.
    CompactDaemonWake,
    /// Where kcompactd counts apart.
    CompactDaemon,
    /// Where free pages to move to are taken from the lists one by one (`compaction.free_pages`).
    CompactHeld,
    /// Where they are taken by blocks.
    CompactTail,
    /// As [`Self::Reclaim`]; where `vmstat.steal_apart` is not set, kswapd's alone as `kswapd_steal`, and
    /// everybody's by zone class as `pgsteal`.
    Steal,
    /// Where `vmstat.direct_throttle` is set.
    DirectThrottle,
    /// Where `vmstat.fragment_stall` is set.
    FragmentStall,
    /// Where `vmstat.skip_congestion_wait` is set.
    SkipWait,
    /// Where `vmstat.thp_zero_page` is set.
    ZeroPage,
    /// Where `vmstat.swap_ra` is set.
    SwapRa,
    /// Where `vmstat.numa_balancing` is set.
    NumaBalancing,
}

events! {
    /// KiB read from block devices.
    PgPgIn = "pgpgin", Plain;
    /// KiB written to block devices.
    PgPgOut = "pgpgout", Plain;
    /// Pages read from swap.
    PswpIn = "pswpin", Plain;
    /// Pages written to swap.
    PswpOut = "pswpout", Plain;
    /// Pages allocated.
    PgAlloc = "pgalloc", Zoned;
    /// Direct reclaims begun.
    AllocStall = "allocstall", Stall;
    /// Pages passed over because their zone was of no use to the request.
    PgScanSkip = "pgskip", Skip;
    /// Pages freed.
    PgFree = "pgfree", Plain;
    /// Pages made active.
    PgActivate = "pgactivate", Plain;
    /// Pages made inactive.
    PgDeactivate = "pgdeactivate", Plain;
    /// Faults.
    PgFault = "pgfault", Plain;
    /// Faults that waited for a device.
    PgMajFault = "pgmajfault", Plain;
    /// Pages of active lists looked at.
    PgRefill = "pgrefill", Reclaim;
    /// Pages reclaimed by kswapd.
    PgStealKswapd = "pgsteal_kswapd", Steal;
    /// Pages reclaimed directly.
    PgStealDirect = "pgsteal_direct", Steal;
    /// Pages reclaimed by khugepaged.
    PgStealKhugepaged = "pgsteal_khugepaged", Khugepaged;
    /// Pages scanned by kswapd.
    PgScanKswapd = "pgscan_kswapd", Reclaim;
    /// Pages scanned directly.
    PgScanDirect = "pgscan_direct", Reclaim;
    /// Pages scanned by khugepaged.
    PgScanKhugepaged = "pgscan_khugepaged", Khugepaged;
    /// Waits for free memory before direct reclaim.
    PgScanDirectThrottle = "pgscan_direct_throttle", DirectThrottle;
    /// Anonymous pages scanned.
    PgScanAnon = "pgscan_anon", Typed;
    /// File pages scanned.
    PgScanFile = "pgscan_file", Typed;
    /// Anonymous pages reclaimed.
    PgStealAnon = "pgsteal_anon", Typed;
    /// File pages reclaimed.
    PgStealFile = "pgsteal_file", Typed;
    /// Reclaims of the local node that freed less than was wanted.
    ZoneReclaimFailed = "zone_reclaim_failed", Plain;
    /// Pages of files dropped by direct reclaim because their inode went.
    PgInodeSteal = "pginodesteal", Plain;
    /// Objects that shrinkers looked at.
    SlabsScanned = "slabs_scanned", Plain;
    /// Pages of files dropped by kswapd because their inode went.
    KswapdInodeSteal = "kswapd_inodesteal", Plain;
    /// Times that clean pages of files were dropped on request.
    DropPagecache = "drop_pagecache", Drop;
    /// Times that objects were dropped on request.
    DropSlab = "drop_slab", Drop;
    /// Runs of kswapd's balancing.
    PageOutRun = "pageoutrun", Plain;
    /// Woken during the short sleep.
    KswapdLowWmarkHitQuickly = "kswapd_low_wmark_hit_quickly", Plain;
    /// Not balanced any more after the short sleep.
    KswapdHighWmarkHitQuickly = "kswapd_high_wmark_hit_quickly", Plain;
    /// Waits that kswapd spared itself, so little was free.
    KswapdSkipCongestionWait = "kswapd_skip_congestion_wait", SkipWait;
    /// Pages moved to the inactive tail once written.
    PgRotated = "pgrotated", Plain;
    /// Pages that were swapped out or dropped and came back: anonymous.
    WorkingsetRefaultAnon = "workingset_refault_anon", Workingset;
    /// Pages that came back: of files.
    WorkingsetRefaultFile = "workingset_refault_file", Workingset;
    /// Of those, made active at once: anonymous.
    WorkingsetActivateAnon = "workingset_activate_anon", Workingset;
    /// Of those, made active at once: of files.
    WorkingsetActivateFile = "workingset_activate_file", Workingset;
    /// Of those, in use when they went: anonymous.
    WorkingsetRestoreAnon = "workingset_restore_anon", Workingset;
    /// Of those, in use when they went: of files.
    WorkingsetRestoreFile = "workingset_restore_file", Workingset;
    /// Nodes of files' trees freed because nothing but shadows was left in them.
    WorkingsetNodereclaim = "workingset_nodereclaim", NodeReclaim;
    /// Pages that reclaim gave to a device.
    NrVmscanWrite = "nr_vmscan_write", Plain;
    /// Pages marked to be reclaimed once written.
    NrVmscanImmediate = "nr_vmscan_immediate_reclaim", Plain;
    /// Blocks that came from the node they were wanted from, one whatever its order.
    NumaHit = "numa_hit", Plain;
    /// Blocks that came from another node.
    NumaMiss = "numa_miss", Plain;
    /// Blocks that should have come from a node and did not.
    NumaForeign = "numa_foreign", Plain;
    /// Blocks that came from the node of the CPU that asked.
    NumaLocal = "numa_local", Plain;
    /// Blocks that came from another node than that.
    NumaOther = "numa_other", Plain;
    /// Entries closed for hinting faults, those of huge pages as 512.
    NumaPteUpdates = "numa_pte_updates", NumaBalancing;
    /// Of those, huge pages.
    NumaHugePteUpdates = "numa_huge_pte_updates", NumaBalancing;
    /// Hinting faults.
    NumaHintFaults = "numa_hint_faults", NumaBalancing;
    /// Of those, on pages of the CPU's own node.
    NumaHintFaultsLocal = "numa_hint_faults_local", NumaBalancing;
    /// Base pages moved to the node that uses them.
    NumaPagesMigrated = "numa_pages_migrated", NumaBalancing;
    /// Waits of movable requests that would have mixed pageblocks.
    FragmentStall = "fragment_stall", FragmentStall;
    /// Pages migrated.
    PgMigrateSuccess = "pgmigrate_success", Compact;
    /// Pages that could not be migrated.
    PgMigrateFail = "pgmigrate_fail", Compact;
    /// Batches of pages that compaction migrated (before 3.8).
    CompactBlocksMoved = "compact_blocks_moved", CompactOld;
    /// Pages of them that moved (before 3.8).
    CompactPagesMoved = "compact_pages_moved", CompactOld;
    /// Pages of them that did not (before 3.8).
    CompactPageMigrateFailed = "compact_pagemigrate_failed", CompactOld;
    /// Frames that compaction's migrate scanner passed.
    CompactMigrateScanned = "compact_migrate_scanned", Compact;
    /// Frames that its free scanner passed.
    CompactFreeScanned = "compact_free_scanned", Compact;
    /// Pages that both isolated.
    CompactIsolated = "compact_isolated", Compact;
    /// Direct compactions.
    CompactStall = "compact_stall", Plain;
    /// Of those, in vain.
    CompactFail = "compact_fail", Plain;
    /// Of those, after which there was a page.
    CompactSuccess = "compact_success", Plain;
    /// Times kcompactd was woken.
    KcompactdWake = "compact_daemon_wake", CompactDaemonWake;
    /// Frames that kcompactd's migrate scanner passed.
    KcompactdMigrateScanned = "compact_daemon_migrate_scanned", CompactDaemon;
    /// Frames that kcompactd's free scanner passed.
    KcompactdFreeScanned = "compact_daemon_free_scanned", CompactDaemon;
    /// Targets that async direct compaction took one by one.
    CompactFreeDirectAlloc = "compact_free_direct_alloc", CompactHeld;
    /// Of those, pages of the block that is being emptied.
    CompactFreeDirectMiss = "compact_free_direct_miss", CompactHeld;
    /// Targets taken whole from the heads of the lists.
    CompactFreeListAlloc = "compact_free_list_alloc", CompactTail;
    /// Blocks passed over as part of the pageblock that is being emptied.
    CompactFreeListSkip = "compact_free_list_skip", CompactTail;
    /// Pages found locked into memory.
    UnevictablePgsCulled = "unevictable_pgs_culled", Plain;
    /// Pages locked into memory.
    UnevictablePgsMlocked = "unevictable_pgs_mlocked", Plain;
    /// Pages no longer locked.
    UnevictablePgsMunlocked = "unevictable_pgs_munlocked", Plain;
    /// Pages that went back to the other lists.
    UnevictablePgsRescued = "unevictable_pgs_rescued", Plain;
    /// Pages read ahead from swap.
    SwapRa = "swap_ra", SwapRa;
    /// Of those, used.
    SwapRaHit = "swap_ra_hit", SwapRa;
    /// Faults that got a huge page.
    ThpFaultAlloc = "thp_fault_alloc", Plain;
    /// Faults that asked for one in vain.
    ThpFaultFallback = "thp_fault_fallback", Plain;
    /// Huge pages allocated to take the content of base pages.
    ThpCollapseAlloc = "thp_collapse_alloc", Plain;
    /// Huge pages that were asked for to that end in vain.
    ThpCollapseAllocFailed = "thp_collapse_alloc_failed", Plain;
    /// Huge pages split (before 4.5).
    ThpSplit = "thp_split", SplitOld;
    /// Huge pages split.
    ThpSplitPage = "thp_split_page", SplitApart;
    /// Huge mappings split.
    ThpSplitPmd = "thp_split_pmd", SplitApart;
    /// Huge pages put on the queue of those to be split.
    ThpDeferredSplitPage = "thp_deferred_split_page", SplitApart;
    /// Huge pages of zeros mapped for the first time.
    ThpZeroPageAlloc = "thp_zero_page_alloc", ZeroPage;
    /// Huge pages of zeros that could not be allocated.
    ThpZeroPageAllocFailed = "thp_zero_page_alloc_failed", ZeroPage;
    /// Huge pages written to swap whole.
    ThpSwpout = "thp_swpout", SplitApart;
    /// Huge pages split to be written.
    ThpSwpoutFallback = "thp_swpout_fallback", SplitApart;
}

const NR_EVENTS: usize = EVENTS.len();

/// How often each event happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmEvents {
    counts: [[u64; NR_ZONE_KINDS]; NR_EVENTS],
}

impl VmEvents {
    /// Nothing happened.
    pub const NEW: Self = Self { counts: [[0; NR_ZONE_KINDS]; NR_EVENTS] };

    /// Counts events that concern no zone.
    #[inline]
    pub const fn add(&mut self, event: Vm, nr: u64) {
        self.counts[event as usize][0] += nr;
    }

    /// Counts events of a zone class.
    #[inline]
    pub const fn add_in(&mut self, event: Vm, zone: ZoneKind, nr: u64) {
        self.counts[event as usize][zone as usize] += nr;
    }

    /// How often an event happened, all zone classes together.
    #[must_use]
    pub fn get(&self, event: Vm) -> u64 {
        self.counts[event as usize].iter().sum()
    }

    /// How often an event happened in a zone class.
    #[must_use]
    pub const fn get_in(&self, event: Vm, zone: ZoneKind) -> u64 {
        self.counts[event as usize][zone as usize]
    }
}

/// The name that a zone class has in a counter's name.
#[must_use]
pub const fn zone_suffix(zone: ZoneKind) -> &'static str {
    match zone {
        ZoneKind::Dma => "dma",
        ZoneKind::Dma32 => "dma32",
        ZoneKind::Normal => "normal",
        ZoneKind::Movable => "movable",
    }
}

impl Memory {
    /// Counters under the names that this kernel prints, sizes first.
    #[doc(alias = "vmstat_text")]
    #[must_use]
    pub fn vmstat(&self) -> Vec<(String, u64)> {
        let mut out = Vec::new();
        let mut put = |name: &str, value: u64| out.push((name.to_owned(), value));
        put("nr_free_pages", self.zones.iter().map(|z| z.nr_free_pages).sum());
        for list in LruList::ALL {
            put(list.counter(), self.nr_lru(list));
        }
        let stats = self.lru.total_stats();
        let apart = if self.policy.vmstat.anon_counts_huge { 0 } else { stats.nr_anon_huge };
        put("nr_anon_pages", stats.nr_anon_mapped - apart * u64::from(HUGE_ORDER.pages()));
        put("nr_mapped", stats.nr_file_mapped);
        put("nr_page_table_pages", stats.nr_page_table);
        let [reclaimable, unreclaimable] = self.slab_pages();
        put("nr_slab_reclaimable", reclaimable);
        put("nr_slab_unreclaimable", unreclaimable);
        put("nr_kernel_stack", self.nr_kernel_stack());
        put("nr_isolated_anon", stats.nr_isolated[0]);
        put("nr_isolated_file", stats.nr_isolated[1]);
        put("nr_writeback", stats.nr_writeback);
        put("nr_file_pages", self.files.nr_pages() + self.swap.nr_cached());
        put("nr_dirty", self.files.nr_dirty());
        put("nr_dirtied", self.files.nr_dirtied());
        put("nr_written", self.files.nr_written());
        if self.policy.lru.scope == LruScope::Node {
            put("nr_swapcached", self.swap.nr_cached());
        }
        put("nr_anon_transparent_hugepages", stats.nr_anon_huge);
        let (vmstat, compaction) = (self.policy.vmstat, self.policy.compaction);
        let mut put_zones = |name: &str, event: Vm| {
            for zone in ZoneKind::ALL {
                let name = format!("{name}_{}", zone_suffix(zone));
                out.push((name, self.vm.get_in(event, zone)));
            }
        };
        let mut plain = Vec::new();
        for &(event, name, form) in EVENTS {
            let (zoned, shown) = match form {
                Form::Plain => (false, true),
                Form::Zoned => (true, true),
                Form::Reclaim => (vmstat.reclaim_by_zone, true),
                Form::Stall => (vmstat.allocstall_by_zone, true),
                Form::Typed => (false, vmstat.reclaim_by_type),
                Form::Khugepaged => (false, vmstat.khugepaged_apart),
                Form::Workingset => (false, vmstat.workingset),
                Form::Steal => (vmstat.reclaim_by_zone, true),
                Form::DirectThrottle => (false, vmstat.direct_throttle),
                Form::FragmentStall => (false, vmstat.fragment_stall),
                Form::SkipWait => (false, vmstat.skip_congestion_wait),
                Form::ZeroPage => (false, vmstat.thp_zero_page),
                Form::SwapRa => (false, vmstat.swap_ra),
                Form::NumaBalancing => (false, vmstat.numa_balancing),
                Form::SplitApart => (false, vmstat.thp_split_apart),
                Form::SplitOld => (false, !vmstat.thp_split_apart),
                Form::NodeReclaim => (false, vmstat.workingset),
                Form::Drop => (false, vmstat.drops),
                Form::Skip => (true, !vmstat.reclaim_by_zone),
                Form::Compact => (false, compaction.counters != CompactCounters::Moved),
                Form::CompactOld => (false, compaction.counters == CompactCounters::Moved),
                Form::CompactDaemonWake => (
                    false,
                    matches!(
                        compaction.counters,
                        CompactCounters::DaemonWake | CompactCounters::DaemonScanned
                    ),
                ),
                Form::CompactDaemon => {
                    (false, compaction.counters == CompactCounters::DaemonScanned)
                }
                Form::CompactHeld => (false, compaction.free_pages == FreePages::DirectHeld),
                Form::CompactTail => (
                    false,
                    matches!(
                        compaction.free_pages,
                        FreePages::DirectTail | FreePages::DirectTailAsPosted
                    ),
                ),
            };
            if !shown {
            } else if form == Form::Steal && !vmstat.steal_apart {
                if event == Vm::PgStealKswapd {
                    for zone in ZoneKind::ALL {
                        let all = [Vm::PgStealKswapd, Vm::PgStealDirect];
                        let sum = all.map(|event| self.vm.get_in(event, zone)).iter().sum();
                        plain.push((format!("pgsteal_{}", zone_suffix(zone)), sum));
                    }
                    plain.push(("kswapd_steal".to_owned(), self.vm.get(event)));
                }
            } else if zoned {
                put_zones(name, event);
            } else if form == Form::Workingset && !vmstat.reclaim_by_type {
                // One name for both types: the anonymous one comes first and opens the line.
                match name.strip_suffix("_anon") {
                    Some(name) => plain.push((name.to_owned(), self.vm.get(event))),
                    None => {
                        let sum = plain.iter_mut().find(|(n, _)| name.starts_with(n.as_str()));
                        sum.expect("its line is open").1 += self.vm.get(event);
                    }
                }
            } else {
                plain.push((name.to_owned(), self.vm.get(event)));
            }
        }
        out.append(&mut plain);
        out
    }
}
