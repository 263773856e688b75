//! The memory-management events: their arguments as numbers and words.
//!
//! The structs follow what the kernel prints, field by field and in its order; each field's doc
//! is the text before its value. Text after the last known field, as a kernel to come may add, is
//! kept in `rest`.

use super::line::Line;
use super::value::{
    BareHex, CompactionRange, Cursor, Field, Gfp, Mismatch, Name, Number, PaddedWord, Pointer,
    Scanner, Shrinker, Word,
};

macro_rules! records {
    ($($(#[$meta:meta])* $name:ident { $($field:ident: $type:ty = $literal:literal,)* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name<'a> {
            $(#[doc = concat!("The value after `", $literal, "`.")] pub $field: $type,)*
            /// Fields this crate does not know, as they are; mostly empty.
            pub rest: &'a [u8],
        }

        impl<'a> $name<'a> {
            /// Parses an event's arguments.
            ///
            /// # Errors
            /// [`Mismatch`] says where they are not what they should be.
            #[inline]
            pub fn parse(args: &'a [u8]) -> Result<$name<'a>, Mismatch> {
                let mut cursor = Cursor::new(args);
                if args.is_empty() {
                    return Err(cursor.mismatch("the event's fields"));
                }
                $(let $field = <$type as Field<'a>>::take_field(&mut cursor, $literal)?;)*
                let rest = cursor.left();
                if !rest.is_empty() && !is_more_fields(rest) {
                    return Err(cursor.mismatch("the end of the line or another field"));
                }
                Ok($name { $($field,)* rest })
            }

            /// Appends the arguments as the kernel prints them.
            #[inline]
            pub fn write_args(&self, out: &mut Vec<u8>) {
                $(Field::put_field(&self.$field, $literal, out);)*
                out.extend_from_slice(self.rest);
            }
        }
    )*};
}

/// Whether `rest` can be fields that a newer kernel added: ` name=value`.
fn is_more_fields(rest: &[u8]) -> bool {
    let Some(field) = rest.strip_prefix(b",").unwrap_or(rest).strip_prefix(b" ") else {
        return false;
    };
    let name = field.iter().take_while(|b| b.is_ascii_lowercase() || **b == b'_').count();
    name > 0 && field.get(name) == Some(&b'=')
}

records! {
    /// `mm_page_alloc`: pages were allocated, or not: see [`MmPageAlloc::is_failure`].
    MmPageAlloc {
        page: Pointer<'a> = "page=",
        pfn: Option<Number> = " pfn=",
        order: u32 = " order=",
        migratetype: i32 = " migratetype=",
        gfp_flags: Gfp<'a> = " gfp_flags=",
    }
    /// `mm_page_alloc_zone_locked`: a block left the free lists.
    MmPageAllocZoneLocked {
        page: Pointer<'a> = "page=",
        pfn: Option<Number> = " pfn=",
        order: u32 = " order=",
        migratetype: i32 = " migratetype=",
        percpu_refill: Option<i32> = " percpu_refill=",
    }
    /// `mm_page_free` (`mm_page_free_direct` before v3.3): pages were freed.
    MmPageFree {
        page: Pointer<'a> = "page=",
        pfn: Option<Number> = " pfn=",
        order: u32 = " order=",
    }
    /// `mm_page_free_batched` (`mm_pagevec_free` before v3.3): a page was freed as one of many.
    MmPageFreeBatched {
        page: Pointer<'a> = "page=",
        pfn: Option<Number> = " pfn=",
        order: u32 = " order=",
        cold: Option<i32> = " cold=",
    }
    /// `mm_page_pcpu_drain`: a block went from a per-CPU list back to the free lists.
    MmPagePcpuDrain {
        page: Pointer<'a> = "page=",
        pfn: Option<Number> = " pfn=",
        order: u32 = " order=",
        migratetype: i32 = " migratetype=",
    }
    /// `mm_page_alloc_extfrag`: an allocation fell back to another migratetype's block.
    MmPageAllocExtfrag {
        page: Pointer<'a> = "page=",
        pfn: Option<Number> = " pfn=",
        alloc_order: i32 = " alloc_order=",
        fallback_order: i32 = " fallback_order=",
        pageblock_order: i32 = " pageblock_order=",
        alloc_migratetype: i32 = " alloc_migratetype=",
        fallback_migratetype: i32 = " fallback_migratetype=",
        fragmenting: i32 = " fragmenting=",
        change_ownership: Option<i32> = " change_ownership=",
    }
    /// `mm_fragmentation_stall`: a movable request has waited before it mixed pageblocks (posted in November 2018).
    FragmentationStall {
        nid: i32 = "nid=",
        duration: u64 = " duration=",
    }
    /// `mm_compaction_wakeup_kcompactd_queue`: kcompactd is to empty a pageblock that was mixed (posted in October and
    /// November 2018).
    WakeupKcompactdQueue {
        nid: i32 = "nid=",
        zoneid: PaddedWord<'a> = " zoneid=",
        pfn: u64 = " pfn=",
        nr_queued: i32 = " nr_queued=",
    }
    /// `mm_compaction_kcompactd_migrated`: it has tried to (posted in October and November 2018).
    KcompactdMigrated {
        nid: i32 = "nid=",
        zoneid: PaddedWord<'a> = " zoneid=",
        nr_migrated: i32 = " nr_migrated=",
        nr_failed: i32 = " nr_failed=",
    }
    /// `mm_compaction_isolate_migratepages`, `mm_compaction_isolate_freepages` and
    /// `mm_compaction_fast_isolate_freepages`: a scanner went over some page frames.
    CompactionIsolate {
        range: Option<CompactionRange> = "range=",
        nr_scanned: Option<u64> = " nr_scanned=",
        nr_scanned_first: Option<u64> = "nr_scanned=",
        nr_taken: u64 = " nr_taken=",
    }
    /// `mm_compaction_migratepages`: a batch of isolated pages was migrated.
    CompactionMigratepages {
        nr_migrated: u64 = "nr_migrated=",
        nr_failed: u64 = " nr_failed=",
    }
    /// `mm_compaction_begin`: compaction of a zone starts.
    CompactionBegin {
        zone_start: Number = "zone_start=",
        migrate: Scanner = " migrate_",
        free: Scanner = " free_",
        zone_end: Number = " zone_end=",
        mode: Option<Word<'a>> = ", mode=",
    }
    /// `mm_compaction_end`: compaction of a zone ends.
    CompactionEnd {
        zone_start: Option<Number> = "zone_start=",
        migrate: Option<Scanner> = " migrate_",
        free: Option<Scanner> = " free_",
        zone_end: Option<Number> = " zone_end=",
        mode: Option<Word<'a>> = ", mode=",
        status: Option<Word<'a>> = " status=",
        status_alone: Option<Word<'a>> = "status=",
    }
    /// `mm_compaction_try_to_compact_pages`: an allocation compacts.
    CompactionTryToCompactPages {
        order: i32 = "order=",
        gfp_mask: Gfp<'a> = " gfp_mask=",
        mode: Option<i32> = " mode=",
        prio: Option<i32> = " prio=",
        priority: Option<i32> = " priority=",
    }
    /// `mm_compaction_finished` and `mm_compaction_suitable`: what a check came to.
    CompactionSuitable {
        node: i32 = "node=",
        zone: PaddedWord<'a> = " zone=",
        order: i32 = " order=",
        ret: Word<'a> = " ret=",
    }
    /// `mm_compaction_deferred`, `mm_compaction_defer_compaction` and
    /// `mm_compaction_defer_reset`: attempts are skipped for a while, or no longer.
    CompactionDefer {
        node: i32 = "node=",
        zone: PaddedWord<'a> = " zone=",
        order: i32 = " order=",
        order_failed: i32 = " order_failed=",
        consider: u32 = " consider=",
        limit: u64 = " limit=",
    }
    /// `mm_compaction_wakeup_kcompactd` and `mm_compaction_kcompactd_wake`.
    CompactionWake {
        nid: i32 = "nid=",
        order: i32 = " order=",
        classzone_idx: Option<PaddedWord<'a>> = " classzone_idx=",
        highest_zoneidx: Option<PaddedWord<'a>> = " highest_zoneidx=",
    }
    /// An event that names a node only: `mm_compaction_kcompactd_sleep`,
    /// `mm_vmscan_kswapd_sleep`.
    NodeOnly {
        nid: i32 = "nid=",
    }
    /// `mm_vmscan_kswapd_wake`: kswapd starts.
    KswapdWake {
        nid: i32 = "nid=",
        zid: Option<i32> = " zid=",
        order: i32 = " order=",
    }
    /// `mm_vmscan_wakeup_kswapd`: an allocation wakes kswapd.
    WakeupKswapd {
        nid: i32 = "nid=",
        zid: Option<i32> = " zid=",
        order: i32 = " order=",
        gfp_flags: Option<Gfp<'a>> = " gfp_flags=",
    }
    /// `mm_vmscan_direct_reclaim_begin` and its two kin for control groups.
    DirectReclaimBegin {
        order: i32 = "order=",
        may_writepage: Option<i32> = " may_writepage=",
        gfp_flags: Gfp<'a> = " gfp_flags=",
        classzone_idx: Option<i32> = " classzone_idx=",
    }
    /// `mm_vmscan_direct_reclaim_end`, `mm_vmscan_node_reclaim_end` and kin.
    ReclaimEnd {
        nr_reclaimed: u64 = "nr_reclaimed=",
    }
    /// `mm_vmscan_node_reclaim_begin`.
    NodeReclaimBegin {
        nid: i32 = "nid=",
        order: i32 = " order=",
        gfp_flags: Gfp<'a> = " gfp_flags=",
    }
    /// `mm_shrink_slab_start`: a shrinker is asked for objects.
    ShrinkSlabStart {
        shrinker: Shrinker<'a> = "",
        nid: Option<i32> = ": nid: ",
        objects_to_shrink: Option<i64> = " objects to shrink ",
        objects_to_shrink_first: Option<i64> = ": objects to shrink ",
        gfp_flags: Gfp<'a> = " gfp_flags ",
        pgs_scanned: Option<i64> = " pgs_scanned ",
        lru_pgs: Option<i64> = " lru_pgs ",
        cache_items: i64 = " cache items ",
        delta: i64 = " delta ",
        total_scan: i64 = " total_scan ",
        priority: Option<i32> = " priority ",
    }
    /// `mm_shrink_slab_end`: what the shrinker did.
    ShrinkSlabEnd {
        shrinker: Shrinker<'a> = "",
        nid: Option<i32> = ": nid: ",
        unused_scan: Option<i64> = " unused scan count ",
        unused_scan_first: Option<i64> = ": unused scan count ",
        new_scan: i64 = " new scan count ",
        total_scan: Option<i64> = " total_scan ",
        retval: i64 = " last shrinker return val ",
    }
    /// `mm_vmscan_lru_isolate`: pages were taken off an LRU list to look at them.
    LruIsolate {
        isolate_mode: Option<i32> = "isolate_mode=",
        classzone: Option<i32> = "classzone=",
        classzone_second: Option<i32> = " classzone=",
        order: i32 = " order=",
        nr_requested: u64 = " nr_requested=",
        nr_scanned: u64 = " nr_scanned=",
        nr_skipped: Option<u64> = " nr_skipped=",
        nr_taken: u64 = " nr_taken=",
        contig_taken: Option<u64> = " contig_taken=",
        contig_dirty: Option<u64> = " contig_dirty=",
        contig_failed: Option<u64> = " contig_failed=",
        lru: Option<Word<'a>> = " lru=",
        file: Option<i32> = " file=",
    }
    /// `mm_vmscan_lru_shrink_inactive`: a batch of inactive pages was reclaimed or not.
    LruShrinkInactive {
        nid: i32 = "nid=",
        zid: Option<i32> = " zid=",
        nr_scanned: i64 = " nr_scanned=",
        nr_reclaimed: i64 = " nr_reclaimed=",
        nr_dirty: Option<i64> = " nr_dirty=",
        nr_writeback: Option<i64> = " nr_writeback=",
        nr_congested: Option<i64> = " nr_congested=",
        nr_immediate: Option<i64> = " nr_immediate=",
        nr_activate: Option<i64> = " nr_activate=",
        nr_activate_anon: Option<i64> = " nr_activate_anon=",
        nr_activate_file: Option<i64> = " nr_activate_file=",
        nr_ref_keep: Option<i64> = " nr_ref_keep=",
        nr_unmap_fail: Option<i64> = " nr_unmap_fail=",
        priority: i32 = " priority=",
        flags: Word<'a> = " flags=",
    }
    /// `mm_vmscan_lru_shrink_active`: a batch of active pages was looked at.
    LruShrinkActive {
        nid: i32 = "nid=",
        nr_taken: i64 = " nr_taken=",
        nr_active: i64 = " nr_active=",
        nr_deactivated: i64 = " nr_deactivated=",
        nr_referenced: i64 = " nr_referenced=",
        priority: i32 = " priority=",
        flags: Word<'a> = " flags=",
    }
    /// `mm_vmscan_write_folio` (`mm_vmscan_writepage` before v5.19): reclaim writes a page.
    VmscanWrite {
        page: Pointer<'a> = "page=",
        pfn: Option<Number> = " pfn=",
        flags: Word<'a> = " flags=",
    }
    /// `writeback_congestion_wait` and `writeback_wait_iff_congested` (to v5.15): somebody waited for a device, or may
    /// have.
    CongestionWait {
        usec_timeout: u32 = "usec_timeout=",
        usec_delayed: u32 = " usec_delayed=",
    }
    /// `mm_vmscan_throttled`: a task was put to sleep by reclaim.
    VmscanThrottled {
        nid: i32 = "nid=",
        usec_timeout: i32 = " usec_timeout=",
        usec_delayed: i32 = " usect_delayed=",
        reason: Word<'a> = " reason=",
    }
    /// `mm_migrate_pages`: what a migration came to.
    MmMigratePages {
        nr_succeeded: u64 = "nr_succeeded=",
        nr_failed: u64 = " nr_failed=",
        nr_thp_succeeded: Option<u64> = " nr_thp_succeeded=",
        nr_thp_failed: Option<u64> = " nr_thp_failed=",
        nr_thp_split: Option<u64> = " nr_thp_split=",
        nr_split: Option<u64> = " nr_split=",
        mode: Word<'a> = " mode=",
        reason: Word<'a> = " reason=",
    }
    /// `mm_migrate_pages_start`: a migration starts.
    MmMigratePagesStart {
        mode: Word<'a> = "mode=",
        reason: Word<'a> = " reason=",
    }
    /// `set_migration_pte` and `remove_migration_pte`.
    MigrationPte {
        addr: BareHex = "addr=",
        pte: BareHex = ", pte=",
        order: i32 = " order=",
    }
    /// `mm_khugepaged_scan_pmd`: khugepaged looked at a huge page's worth of small ones.
    KhugepagedScanPmd {
        mm: Pointer<'a> = "mm=",
        scan_pfn: Number = ", scan_pfn=",
        writable: Option<i32> = ", writable=",
        referenced: i32 = ", referenced=",
        none_or_zero: i32 = ", none_or_zero=",
        status: Word<'a> = ", status=",
        unmapped: Option<i32> = ", unmapped=",
    }
    /// `mm_collapse_huge_page`: what a collapse came to.
    CollapseHugePage {
        mm: Pointer<'a> = "mm=",
        isolated: i32 = ", isolated=",
        status: Word<'a> = ", status=",
    }
    /// `mm_collapse_huge_page_isolate`: pages to collapse were isolated or not.
    CollapseHugePageIsolate {
        scan_pfn: Number = "scan_pfn=",
        none_or_zero: i32 = ", none_or_zero=",
        referenced: i32 = ", referenced=",
        writable: Option<i32> = ", writable=",
        status: Word<'a> = ", status=",
    }
    /// `mm_collapse_huge_page_swapin`: pages to collapse were read from swap.
    CollapseHugePageSwapin {
        mm: Pointer<'a> = "mm=",
        swapped_in: i32 = ", swapped_in=",
        referenced: i32 = ", referenced=",
        ret: i32 = ", ret=",
    }
    /// `mm_khugepaged_scan_file`: khugepaged looked at part of a file.
    KhugepagedScanFile {
        mm: Pointer<'a> = "mm=",
        scan_pfn: Number = ", scan_pfn=",
        filename: Option<Name<'a>> = ", filename=",
        present: i32 = ", present=",
        swap: i32 = ", swap=",
        result: Word<'a> = ", result=",
    }
    /// `mm_khugepaged_collapse_file`: what collapsing part of a file came to.
    KhugepagedCollapseFile {
        mm: Pointer<'a> = "mm=",
        hpage_pfn: Number = ", hpage_pfn=",
        index: i64 = ", index=",
        addr: BareHex = ", addr=",
        is_shmem: i32 = ", is_shmem=",
        filename: Name<'a> = ", filename=",
        nr: i32 = ", nr=",
        result: Word<'a> = ", result=",
    }
    /// `oom_score_adj_update`: a process was made more or less of a victim.
    OomScoreAdjUpdate {
        pid: i32 = "pid=",
        comm: Name<'a> = " comm=",
        oom_score_adj: i32 = " oom_score_adj=",
    }
    /// `reclaim_retry_zone`: whether another round of reclaim is worth it.
    ReclaimRetryZone {
        node: i32 = "node=",
        zone: PaddedWord<'a> = " zone=",
        order: i32 = " order=",
        reclaimable: u64 = " reclaimable=",
        available: u64 = " available=",
        min_wmark: u64 = " min_wmark=",
        no_progress_loops: i32 = " no_progress_loops=",
        wmark_check: i32 = " wmark_check=",
    }
    /// `compact_retry`: whether another round of compaction is worth it.
    CompactRetry {
        order: i32 = "order=",
        priority: Word<'a> = " priority=",
        compaction_result: Word<'a> = " compaction_result=",
        retries: i32 = " retries=",
        max_retries: i32 = " max_retries=",
        should_retry: i32 = " should_retry=",
    }
    /// `mark_victim`: a process is going to be killed for its memory.
    MarkVictim {
        pid: i32 = "pid=",
        comm: Option<Name<'a>> = " comm=",
        details: Option<Name<'a>> = " total-vm=",
        oom_score_adj: Option<i32> = " oom_score_adj=",
    }
    /// An event that names a process only: `wake_reaper`, `start_task_reaping`,
    /// `finish_task_reaping`, `skip_task_reaping`.
    PidOnly {
        pid: i32 = "pid=",
    }
}

impl MmPageAlloc<'_> {
    /// Returns whether there was no page to be had: the event names a null page.
    pub fn is_failure(&self) -> bool {
        self.page.is_null()
    }
}

impl CompactionIsolate<'_> {
    /// Returns how many page frames were scanned, wherever the kernel prints it.
    pub fn scanned(&self) -> Option<u64> {
        self.nr_scanned.or(self.nr_scanned_first)
    }
}

/// Where a probe fired: `(__isolate_free_page+0x4/0x200)`, or for a return
/// `(compaction_alloc+0x50d/0xf50 <- __isolate_free_page)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe<'a> {
    /// The probe's name.
    pub name: &'a [u8],
    /// Where it fired, or where the function returned to.
    pub location: &'a [u8],
    /// The function that returned.
    pub returned_from: Option<&'a [u8]>,
    /// The arguments fetched, with the blank before each; see [`super::field`].
    pub args: &'a [u8],
}

/// Whether this is an address without its symbol: 16 hexadecimal digits.
fn is_bare_address(location: &[u8]) -> bool {
    location.len() == 16 && location.iter().all(u8::is_ascii_hexdigit)
}

impl<'a> Probe<'a> {
    /// Whether it says in which function it fired.
    pub fn knows_function(&self) -> bool {
        !self.location.starts_with(b"0x") && !is_bare_address(self.location)
    }

    fn parse(name: &'a [u8], args: &'a [u8]) -> Option<Probe<'a>> {
        let inner = args.strip_prefix(b"(")?;
        let end = memchr::memchr(b')', inner)?;
        let (place, args) = (&inner[..end], &inner[end + 1..]);
        if !args.is_empty() && args[0] != b' ' {
            return None;
        }
        let (location, returned_from) = match memchr::memmem::find(place, b" <- ") {
            Some(at) => (&place[..at], Some(&place[at + 4..])),
            None => (place, None),
        };
        // `symbol+0x4/0x200` or an address (perf and trace-cmd print it without 0x): anything else in parentheses is no probe's.
        let is_place = location.starts_with(b"0x")
            || memchr::memmem::find(location, b"+0x").is_some()
            || is_bare_address(location);
        is_place.then_some(Probe { name, location, returned_from, args })
    }

    fn write_args(&self, out: &mut Vec<u8>) {
        out.push(b'(');
        out.extend_from_slice(self.location);
        if let Some(function) = self.returned_from {
            out.extend_from_slice(b" <- ");
            out.extend_from_slice(function);
        }
        out.push(b')');
        out.extend_from_slice(self.args);
    }
}

macro_rules! events {
    ($($variant:ident($record:ident) = $($name:literal)|+,)*) => {
        /// An event with its arguments.
        ///
        /// Where a kernel has two names for one event over time, the variant has the newer and
        /// [`Event::name`] the one in the file.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Event<'a> {
            $(#[doc = concat!($("`", $name, "` ",)+)] $variant($record<'a>),)*
            /// `tracing_mark_write`: text that user space wrote into the trace.
            Marker(&'a [u8]),
            /// A kprobe or kretprobe.
            Probe(Probe<'a>),
            /// An event of another kind, as it is.
            Other {
                /// The event's name.
                name: &'a [u8],
                /// Its arguments.
                args: &'a [u8],
            },
        }

        impl<'a> Event<'a> {
            /// Parses an event's arguments by the event's name.
            ///
            /// # Errors
            /// [`Mismatch`] if the name is of an event known here and the arguments are not
            /// what any kernel prints for it.
            #[inline]
            pub fn parse(name: &'a [u8], args: &'a [u8]) -> Result<Event<'a>, Mismatch> {
                $($(
                    if name == $name.as_bytes() {
                        return $record::parse(args).map(Event::$variant);
                    }
                )+)*
                if name == b"tracing_mark_write" {
                    return Ok(Event::Marker(args));
                }
                Ok(match Probe::parse(name, args) {
                    Some(probe) => Event::Probe(probe),
                    None => Event::Other { name, args },
                })
            }

            /// Returns the name the newest kernel gives the event.
            pub fn name(&self) -> &'a [u8] {
                match self {
                    $(Event::$variant(_) => first(&[$($name),+]),)*
                    Event::Marker(_) => b"tracing_mark_write",
                    Event::Probe(probe) => probe.name,
                    Event::Other { name, .. } => name,
                }
            }

            /// Appends the arguments as the kernel prints them.
            pub fn write_args(&self, out: &mut Vec<u8>) {
                match self {
                    $(Event::$variant(record) => record.write_args(out),)*
                    Event::Marker(text) => out.extend_from_slice(text),
                    Event::Probe(probe) => probe.write_args(out),
                    Event::Other { args, .. } => out.extend_from_slice(args),
                }
            }
        }
    };
}

fn first(names: &[&'static str]) -> &'static [u8] {
    names[0].as_bytes()
}

events! {
    MmPageAlloc(MmPageAlloc) = "mm_page_alloc",
    MmPageFree(MmPageFree) = "mm_page_free" | "mm_page_free_direct",
    MmPageFreeBatched(MmPageFreeBatched) = "mm_page_free_batched" | "mm_pagevec_free",
    MmPagePcpuDrain(MmPagePcpuDrain) = "mm_page_pcpu_drain",
    MmPageAllocZoneLocked(MmPageAllocZoneLocked) = "mm_page_alloc_zone_locked",
    MmPageAllocExtfrag(MmPageAllocExtfrag) = "mm_page_alloc_extfrag",
    FragmentationStall(FragmentationStall) = "mm_fragmentation_stall",
    SetMigrationPte(MigrationPte) = "set_migration_pte",
    RemoveMigrationPte(MigrationPte) = "remove_migration_pte",
    CompactionIsolateMigratepages(CompactionIsolate) = "mm_compaction_isolate_migratepages",
    CompactionIsolateFreepages(CompactionIsolate) = "mm_compaction_isolate_freepages",
    CompactionFastIsolateFreepages(CompactionIsolate) = "mm_compaction_fast_isolate_freepages",
    CompactionMigratepages(CompactionMigratepages) = "mm_compaction_migratepages",
    CompactionBegin(CompactionBegin) = "mm_compaction_begin",
    CompactionEnd(CompactionEnd) = "mm_compaction_end",
    CompactionTryToCompactPages(CompactionTryToCompactPages) = "mm_compaction_try_to_compact_pages",
    CompactionFinished(CompactionSuitable) = "mm_compaction_finished",
    CompactionSuitable(CompactionSuitable) = "mm_compaction_suitable",
    CompactionDeferred(CompactionDefer) = "mm_compaction_deferred",
    CompactionDeferCompaction(CompactionDefer) = "mm_compaction_defer_compaction",
    CompactionDeferReset(CompactionDefer) = "mm_compaction_defer_reset",
    KcompactdSleep(NodeOnly) = "mm_compaction_kcompactd_sleep",
    WakeupKcompactd(CompactionWake) = "mm_compaction_wakeup_kcompactd",
    KcompactdWake(CompactionWake) = "mm_compaction_kcompactd_wake",
    WakeupKcompactdQueue(WakeupKcompactdQueue) = "mm_compaction_wakeup_kcompactd_queue",
    KcompactdMigrated(KcompactdMigrated) = "mm_compaction_kcompactd_migrated",
    KswapdSleep(NodeOnly) = "mm_vmscan_kswapd_sleep",
    KswapdWake(KswapdWake) = "mm_vmscan_kswapd_wake",
    WakeupKswapd(WakeupKswapd) = "mm_vmscan_wakeup_kswapd",
    DirectReclaimBegin(DirectReclaimBegin) = "mm_vmscan_direct_reclaim_begin",
    DirectReclaimEnd(ReclaimEnd) = "mm_vmscan_direct_reclaim_end",
    MemcgReclaimBegin(DirectReclaimBegin) = "mm_vmscan_memcg_reclaim_begin",
    MemcgReclaimEnd(ReclaimEnd) = "mm_vmscan_memcg_reclaim_end",
    MemcgSoftlimitReclaimBegin(DirectReclaimBegin) = "mm_vmscan_memcg_softlimit_reclaim_begin",
    MemcgSoftlimitReclaimEnd(ReclaimEnd) = "mm_vmscan_memcg_softlimit_reclaim_end",
    NodeReclaimBegin(NodeReclaimBegin) = "mm_vmscan_node_reclaim_begin",
    NodeReclaimEnd(ReclaimEnd) = "mm_vmscan_node_reclaim_end",
    ShrinkSlabStart(ShrinkSlabStart) = "mm_shrink_slab_start",
    ShrinkSlabEnd(ShrinkSlabEnd) = "mm_shrink_slab_end",
    LruIsolate(LruIsolate) = "mm_vmscan_lru_isolate" | "mm_vmscan_memcg_isolate",
    LruShrinkInactive(LruShrinkInactive) = "mm_vmscan_lru_shrink_inactive",
    LruShrinkActive(LruShrinkActive) = "mm_vmscan_lru_shrink_active",
    CongestionWait(CongestionWait) = "writeback_congestion_wait",
    WaitIffCongested(CongestionWait) = "writeback_wait_iff_congested",
    VmscanWrite(VmscanWrite) = "mm_vmscan_write_folio" | "mm_vmscan_writepage",
    VmscanThrottled(VmscanThrottled) = "mm_vmscan_throttled",
    MmMigratePages(MmMigratePages) = "mm_migrate_pages",
    MmMigratePagesStart(MmMigratePagesStart) = "mm_migrate_pages_start",
    KhugepagedScanPmd(KhugepagedScanPmd) = "mm_khugepaged_scan_pmd",
    CollapseHugePage(CollapseHugePage) = "mm_collapse_huge_page",
    CollapseHugePageIsolate(CollapseHugePageIsolate) = "mm_collapse_huge_page_isolate",
    CollapseHugePageSwapin(CollapseHugePageSwapin) = "mm_collapse_huge_page_swapin",
    KhugepagedScanFile(KhugepagedScanFile) = "mm_khugepaged_scan_file",
    KhugepagedCollapseFile(KhugepagedCollapseFile) = "mm_khugepaged_collapse_file",
    OomScoreAdjUpdate(OomScoreAdjUpdate) = "oom_score_adj_update",
    ReclaimRetryZone(ReclaimRetryZone) = "reclaim_retry_zone",
    CompactRetry(CompactRetry) = "compact_retry",
    MarkVictim(MarkVictim) = "mark_victim",
    WakeReaper(PidOnly) = "wake_reaper",
    StartTaskReaping(PidOnly) = "start_task_reaping",
    FinishTaskReaping(PidOnly) = "finish_task_reaping",
    SkipTaskReaping(PidOnly) = "skip_task_reaping",
}

impl<'a> Line<'a> {
    /// Parses the line's arguments.
    ///
    /// # Errors
    /// As [`Event::parse`]; the place is counted from the start of the arguments.
    #[inline]
    pub fn parse_event(&self) -> Result<Event<'a>, Mismatch> {
        Event::parse(self.event, self.args)
    }
}
