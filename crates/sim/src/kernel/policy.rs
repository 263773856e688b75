//! Every decision the flows take, as a named value; `kernels/*.toml` gives them, each under the name of its field.
//!
//! What is said of a field here is what docs/kernels.md says of the value.

use super::thp::{Defrag, Enabled, KhugepagedKnobs, ThpKnobs};
use crate::sched::Picks;
use highorder_mm::page_table::PTRS_PER_TABLE;
use highorder_mm::policy::written;
use highorder_words::Ns;
use serde::{Deserialize, Serialize};

/// The flows' policy.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Flows {
    /// What kswapd works for.
    pub kswapd: Kswapd,
    /// What a request does that the fast path could not serve.
    pub slowpath: Slowpath,
    /// How direct reclaim goes on when it finds nothing.
    pub direct: Direct,
    /// When reclaim waits, and for what.
    pub stall: Stall,
    /// What reading and writing files does to pages.
    pub files: Files,
    /// How objects of slab caches are reclaimed.
    pub shrinkers: Shrinkers,
    /// How huge pages are asked for.
    pub thp: Thp,
    /// How pages for the pool of huge pages are asked for.
    pub hugetlb: Hugetlb,
    /// How khugepaged makes huge pages.
    pub khugepaged: Khugepaged,
    /// When compaction runs, and for whom.
    pub compactors: Compactors,
    /// How memory and tasks come together on nodes.
    pub numa: NumaBalancing,
    /// Who waits for whom in an address space.
    pub mmap_lock: MmapLocking,
    /// Who gets a CPU.
    pub sched: Scheduling,
    /// How transfers are handed to devices.
    pub block: Block,
}

/// Policy of the block layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// Requests that a task gathers before it hands them over (`BLK_MAX_REQUEST_COUNT`: 16 before 5.16; ba0ffdd8ce48).
    pub plug_requests: u32,
    /// What is gathered is handed over as well when another request is begun and the last has 128 KiB or more
    /// (`BLK_PLUG_FLUSH_SIZE`: 50d24c34403c, 4.10).
    pub large_go_at_once: bool,
    /// To a device of several hardware queues no more than one request is held: it goes when the next one is begun
    /// (`blk_mq_make_request`, before 5.1; b2c5d16b7258).
    pub holds_one_for_many_queues: bool,
    /// Disks can be served by shares of time for each task (block/cfq-iosched.c, until f382fb0bcef4, 5.0); where they cannot,
    /// a disk that is to be gets `deadline`.
    pub has_cfq: bool,
}

/// Policy of sharing CPUs among tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduling {
    /// Which of a CPU's tasks goes next, and when one that is woken takes the CPU.
    pub picks: Picks,
    /// A worker is woken for every 512 pages that reclaim looks at, on its CPU, to tell of the pressure (`vmpressure`,
    /// 70ddf637eebe, 3.10; where the kernel is built with CONFIG_MEMCG, and not for lists by generation).
    pub pressure_worker: bool,
}

/// Policy of a process's lock on its mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MmapLocking {
    /// Faults take the lock of the mapping instead (5e31275cc997 and 0bff0aaea03e, 6.4).
    pub per_vma: bool,
    /// Who unmaps lets faults in once the mapping is gone, before its pages are freed (dd2283f2605e, 4.20).
    pub unmap_downgrades: bool,
}

/// Policy of automatic NUMA balancing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NumaBalancing {
    /// Which memory hinting faults are to tell about.
    pub scan: NumaScan,
    /// Whether it is on from boot on (`CONFIG_NUMA_BALANCING_DEFAULT_ENABLED`).
    pub default_on: bool,
    /// Many nodes can be preferred (b27abaccf8e8, 5.15).
    pub preferred_many: bool,
}

/// Which memory hinting faults are to tell about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NumaScan {
    /// None: there are no such faults (before 3.8).
    None,
    /// All that is private and has no policy of its own.
    All,
    /// But for base pages that a process of one thread has on the node it runs on (3e32158767b0, 4.10).
    SparesLocal,
}

/// Policy of compaction's users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Compactors {
    /// How requests compact.
    pub direct: DirectCompaction,
    /// kswapd compacts its node itself after it has balanced it for a high order (7be62de99adc, 3.4; until
    /// accf62422b3a, 4.6).
    pub by_kswapd: bool,
    /// When kcompactd is woken.
    pub kcompactd: KcompactdWake,
    /// A request for a costly order that does not try hard gives up after this, before it reclaims.
    pub costly_exit: CostlyExit,
    /// A request whose runs were all deferred counts as a stall (6.12).
    pub deferred_counts: bool,
    /// Runs that were deferred, contended or did not see all are tried again where reclaim could make room
    /// (before 5.4; 494330855641); afterwards only those that were skipped, and the others try harder.
    pub withdrawn_asks_for_room: bool,
}

/// How requests compact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirectCompaction {
    /// Async before the first reclaim, sync ever after; deferral is the preferred zone's (3.x).
    AsyncThenSync,
    /// Async before reclaim, then sync-light; a huge fault stays async and gives up when runs are deferred
    /// or contended (3.18 to 4.7).
    AsyncUnlessDeferred,
    /// By priority: async before reclaim for costly orders and what does not move, sync-light after it, and
    /// harder with each retry (a5508cd83f10, 4.8).
    Priorities,
}

/// When kcompactd is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KcompactdWake {
    /// There is none (before 4.6).
    Never,
    /// Before kswapd sleeps for good, and it works on zones below the highest alone (accf62422b3a as first
    /// merged).
    BelowHighest,
    /// Before kswapd dozes, and where kswapd need not be woken for a high order (since 4.6.2).
    BeforeDoze,
}

/// When a request for a costly order that does not try hard gives up before it reclaims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CostlyExit {
    /// When runs are deferred and it does not wake kswapd (before 4.7).
    HugeDeferred,
    /// When runs are deferred (4.8 to 5.3).
    Deferred,
    /// When runs are deferred or skipped, whether it tries hard or not, for huge orders (b39d0ee2632d, 5.4).
    SkippedHuge,
    /// When runs are deferred or skipped (cc638f329ef6, 5.5).
    Skipped,
    /// Likewise, and at once if it is for one node alone (6.12's stable series).
    SkippedOrThisnode,
}

/// Huge pages' policy, and the settings a kernel boots with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Thp {
    /// `transparent_hugepage/enabled` unless set.
    pub enabled: Enabled,
    /// `transparent_hugepage/defrag` unless set.
    pub defrag: Defrag,
    /// `transparent_hugepage/defrag` can be `defer` (444eb2a449ef, 4.6).
    pub knows_defer: bool,
    /// It can be `defer+madvise` (21440d7eb904, 4.11).
    pub knows_defer_madvise: bool,
    /// Which huge faults that reclaim do not try hard.
    pub noretry: DefragNoretry,
    /// From which nodes a huge page may come.
    pub numa: ThpNuma,
    /// Reading memory that nobody has written maps a shared huge page of zeros (4a6c1297268c, 3.8).
    pub zero_page: bool,
    /// Anonymous mappings of whole huge pages begin at one's place (efa7df3e3bb5, 6.7; of these lengths alone
    /// since d4148aeab412, 6.12); before, any page is as good.
    pub aligns_mappings: bool,
    /// What `prctl(PR_SET_THP_DISABLE)` does.
    pub disable: ThpDisable,
    /// Reading `/proc/PID/pagemap` splits the huge pages that it tells about (before 3.4; 5aaabe831eb5).
    pub pagemap_splits: bool,
}

/// khugepaged's policy, and the settings it boots with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Khugepaged {
    /// `defrag` unless set: may reclaim and compact.
    pub defrag: bool,
    /// `pages_to_scan` unless set: base pages a pass.
    pub pages_to_scan: u32,
    /// `scan_sleep_millisecs` unless set.
    pub scan_sleep_ms: u32,
    /// `alloc_sleep_millisecs` unless set: after a huge page could not be had.
    pub alloc_sleep_ms: u32,
    /// `max_ptes_none` unless set.
    #[serde(deserialize_with = "written::within::<0, PTES_MAX, _, _>")]
    pub max_ptes_none: u32,
    /// `max_ptes_swap` unless set (4.8): how many are read; 0 on kernels that leave a unit with any.
    #[serde(
        deserialize_with = "written::zero_is_none::up_to::<PTES_MAX, _>",
        serialize_with = "written::zero_is_none::serialize"
    )]
    pub max_ptes_swap: Option<u32>,
    /// `max_ptes_shared` unless set (71a2c112a0f6, 5.8); 0 if there is no such knob. No page of the model is shared.
    #[serde(
        deserialize_with = "written::zero_is_none::up_to::<PTES_MAX, _>",
        serialize_with = "written::zero_is_none::serialize"
    )]
    pub max_ptes_shared: Option<u32>,
    /// Of which units khugepaged wants half the entries referenced.
    pub half_referenced: HalfReferenced,
    /// A page of a unit that has to be waited for ends khugepaged's swapping in (4d928e20fd5b, 6.0); before, it
    /// goes on with the others, and finds when it takes the pages that this one is missing.
    pub swapin_stops: bool,
    /// The huge page may come from any of the nodes that hold most of the unit's pages (e031ff96b334, 6.2); before, from
    /// one of them alone, each in its turn.
    pub falls_back: bool,
}

/// As many entries as may be wanting of a table that is collapsed: all but one.
const PTES_MAX: u32 = PTRS_PER_TABLE - 1;

impl Flows {
    /// The settings of huge pages that a kernel boots with.
    #[must_use]
    pub fn thp_knobs(&self) -> ThpKnobs {
        let Khugepaged {
            defrag,
            pages_to_scan,
            scan_sleep_ms,
            alloc_sleep_ms,
            max_ptes_none,
            max_ptes_swap,
            max_ptes_shared,
            half_referenced: _,
            swapin_stops: _,
            falls_back: _,
        } = self.khugepaged;
        let khugepaged = KhugepagedKnobs {
            defrag,
            pages_to_scan,
            scan_sleep: Ns::from_millis(scan_sleep_ms.into()),
            alloc_sleep: Ns::from_millis(alloc_sleep_ms.into()),
            max_ptes_none,
            max_ptes_swap,
            max_ptes_shared,
        };
        let Thp { enabled, defrag, .. } = self.thp;
        ThpKnobs { enabled, defrag, use_zero_page: true, khugepaged }
    }
}

/// Of which units khugepaged wants half the entries referenced (`HPAGE_PMD_NR / 2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HalfReferenced {
    /// Of those with entries in swap, when it looks at them (ffe945e633b5, 5.8). Before 4.8 these were left.
    Swapped,
    /// Of all, once it has a huge page for them (0db501f7a34c, 4.8).
    All,
}

/// What a process does to its mappings that wants no huge pages (`PR_SET_THP_DISABLE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThpDisable {
    /// There is no such call (before 3.15).
    Unknown,
    /// Those made from then on begin with `MADV_NOHUGEPAGE` (a0715cc22601).
    LaterMappings,
    /// None gets huge pages any more, whatever is advised (1860033237d4, 4.15).
    AtOnce,
}

/// Which huge faults that may reclaim do not try hard (`__GFP_NORETRY`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DefragNoretry {
    /// All (before 4.8).
    Always,
    /// Those of mappings without `MADV_HUGEPAGE` (25160354a2cc, 4.8).
    NotAdvised,
}

/// From which nodes a huge page may come for a mapping that is not interleaved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThpNuma {
    /// All nodes, the nearest first (before 4.0).
    Anywhere,
    /// The CPU's or the preferred node alone, which is reclaimed for it (077fcf116c8c, 4.0; 4.20 to 5.2 as
    /// well).
    ThisnodeReclaim,
    /// All nodes where reclaim is allowed or nodes are bound; else that node alone (5.3).
    RemoteAllowed,
    /// That node first; where reclaim is allowed then all, whatever is bound (76e654cc91bb, 5.4).
    LocalThenAll,
    /// That node first, without trying hard; where reclaim is allowed then all that are allowed
    /// (cc638f329ef6, 5.5).
    LocalThenAllowed,
    /// That node alone, without reclaim; base pages from there are next. The order that was called
    /// acceptable in the discussion of May 2019; no kernel had it.
    ThisnodeCheap,
}

/// Policy of the pool of huge pages (`vm.nr_hugepages`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Hugetlb {
    /// Its pages are asked for as movable memory, since migration can move them (86cdb465cf3a, 3.12). Before, they are
    /// the kernel's own, and the blocks they come from become unmovable.
    pub movable: bool,
}

/// Policy of the page cache's users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// Writing a page counts as a use of it (before 4.7; bbddabe2e436).
    pub writes_mark_accessed: bool,
    /// A new page of a disk's metadata counts as used twice, for it comes with the mark and is looked up at once: it is
    /// active before it is on a list, and nobody counts that (2457aec63745, 3.16).
    pub new_metadata_is_used: bool,
    /// Splicing a page of a file away (`sendfile`) counts as a use of it, as reading it does (82c156f85384, 4.9).
    pub splices_mark_accessed: bool,
    /// A call that reads more than is read ahead has all of it read ahead, as far as a device takes it at once
    /// (9491ae4aade6, 4.10).
    pub reads_whole_calls: bool,
    /// A call that reads on from where a file ends, as programs do to learn that it ends, takes a page for what would be
    /// next there (before 5.16; "mm: stop filemap_read() from grabbing a superfluous page").
    pub reads_past_end: bool,
    /// A fault asks for its own page of a file with `__GFP_FS` and `__GFP_IO`, whatever the file system wants of requests
    /// for its pages: where there is no memory, somebody can be killed for it (c20cd45eb017, 4.5).
    pub faults_enter_fs: bool,
    /// What of the background limit a disk has for itself.
    pub background_share: BackgroundShare,
    /// A commit or shrinking lets blocks go that a journal has written to their places, and nobody else: before 5.14
    /// whoever wants their memory does (4ba3fcdde7e3, acc6100d3ffa).
    pub journal_shrinks: bool,
    /// When reclaim has dirty pages written.
    pub wakes_flushers: WakesFlushers,
    /// The longest request that a disk is given, if it takes longer ones, in KiB (`BLK_DEF_MAX_SECTORS`: 512 before 4.3;
    /// d2be537c3ba3).
    pub request_kib_max: u32,
    /// Where the first program's files are, and those of all that it starts, where the kernel is given no root device.
    pub rootfs: Rootfs,
}

/// A file system in memory alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rootfs {
    /// Its pages are never reclaimed (before 3.12).
    Ramfs,
    /// They go to swap as anonymous memory does (6e19eded3684, 3.12).
    Tmpfs,
}

/// How much of what may be dirty before flushers write is a disk's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackgroundShare {
    /// As much as it has written of the last pages that all disks wrote, where a period is as many pages as may be dirty,
    /// rounded up to a power of two, and the one before counts too: a disk that has hardly been written to yet is left
    /// with hardly anything dirty (before 3.6; b00949aa2df9, 3.2).
    Written,
    /// All of it: shares are told by time, so that a disk has all as soon as it alone is written to (eb608e3a344b, 3.6).
    Whole,
}

/// When reclaim has dirty pages written by those who write them anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WakesFlushers {
    /// Direct reclaim that has looked at half as many pages again as it wants: as many as it has looked at
    /// (before 4.11).
    ScannedMuch,
    /// Whoever finds that all pages taken were dirty and queued by nobody: all that are dirty
    /// (726d061fbd36, 4.11).
    AllDirty,
}

/// Policy of shrinkers, and of what they shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Shrinkers {
    /// How much is asked of shrinkers, and when.
    pub pressure: SlabPressure,
    /// Unused objects are listed by node, and shrunk so (0ce3d74450815 and its fellows, 3.12).
    pub by_node: bool,
    /// Nodes of nothing but shadows are shrunk if there are more than all pages divided by two to this power
    /// (`count_shadow_nodes`: 4 since 3.15, 3 since 4.10); 0 where there are no shadows.
    #[serde(
        deserialize_with = "written::zero_is_none::up_to::<16, _>",
        serialize_with = "written::zero_is_none::serialize"
    )]
    pub shadow_nodes_shift: Option<u32>,
    /// Which inodes may be shrunk.
    pub inodes: InodeLists,
    /// What is used once has been referenced already when it comes to its list (before 4.13).
    pub first_use_references: bool,
    /// An inode whose last pages a shrinker has dropped goes at once (`prune_icache_sb`, before 3.12).
    pub emptied_inodes_go: bool,
    /// A deleted file's name stays in memory, as one of no file (before 6.11; 681ce8623567).
    pub unlink_keeps_dentry: bool,
    /// XFS gives pages that it writes buffer heads (before 4.19); ext4 always does.
    pub xfs_buffer_heads: bool,
}

/// How much is asked of shrinkers, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlabPressure {
    /// The share of pages scanned, of all zones in question: after each zone that kswapd looks at, and after
    /// each pass of direct reclaim (before 3.19 or so).
    PerPass,
    /// The share of pages scanned in a node's highest zone, after that zone (6b4f7799c6a5, 3.19); of the node
    /// since lists belong to nodes (4.8).
    ByZone,
    /// As reclaim's priority says, after each node (9092c71bb724, 4.16), and what was put off before comes whole.
    ByPriority,
    /// The same, and a batch at least (172b06c32b94, 4.19, to a9a238e83fbb, 5.0).
    ByPriorityOrBatch,
    /// What was put off before comes by the priority as well (18bb473e5031, 5.13).
    ByPriorityThroughout,
}

/// Which inodes may be shrunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InodeLists {
    /// All that nobody uses: their clean pages go with them (before 5.16).
    All,
    /// All that nobody uses, but those with more than a page stay (a76cf1a474d7, 4.20, to 69056ee6a8a3, 5.0).
    AllKeepingPages,
    /// Those of which no page and no shadow is left (51b8c1fe250d, 5.16).
    Unpopulated,
}

/// kswapd's policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Kswapd {
    /// When a node needs no more.
    pub balanced: Balanced,
    /// Zones are balanced this many thousandths of their pages above the high mark, but not more than
    /// their low mark above (`KSWAPD_ZONE_BALANCE_GAP_RATIO`: 10 before 4.8, 0 since reclaim is by node).
    #[serde(deserialize_with = "written::within::<0, 1000, _, _>")]
    pub balance_gap_permille: u32,
    /// Runs without success after which a node is hopeless (`MAX_RECLAIM_RETRIES` = 16 since 4.12,
    /// c73322d098e4); 0 before, where zones are given up one by one.
    #[serde(with = "written::zero_is_none")]
    pub failures_max: Option<u32>,
    /// Whether the loop begins at the highest zone that is not balanced and ages what lies above
    /// (before 4.8).
    pub from_highest_unbalanced: bool,
    /// When it begins again at the lowest pressure; only where it begins at the highest zone.
    pub rounds: Rounds,
    /// Which mark a zone has to be below for it to be woken for it; only where it begins at the highest zone.
    pub woken_below: WokenBelow,
    /// It marks zones that it has given up (`all_unreclaimable`, before 3.12; 6e543d5780e3), and others leave
    /// those alone; else each looks for itself whether a zone can be reclaimed.
    pub marks_unreclaimable: bool,
    /// What a zone has to have for a high order to be left alone.
    pub high_order: HighOrder,
    /// Reclaim for boosted marks shrinks slabs as well (as posted up to 21 November 2018, and since 5.3;
    /// 28360f398778); 5.0 to 5.2 spare them.
    pub boosted_shrinks_slab: bool,
}

/// What a zone has to have above its high mark for kswapd to leave it alone, when it was woken for a high order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HighOrder {
    /// A block of that order, until enough has been reclaimed for it; and since reclaim is by node (4.8).
    Block,
    /// The same, but while it reclaims single pages do, once compaction could make a block of them (fe2c2a106663, 3.4).
    BlockOrCompactable,
    /// Single pages, as many more as the block has: kcompactd does the rest (accf62422b3a, 4.6).
    SinglePages,
}

/// When kswapd begins again at the lowest pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rounds {
    /// Pressure rises as long as fewer pages are looked at than are wanted (3.11 and later).
    UntilBalanced,
    /// Pressure rises with each round, and falls back once 32 pages are reclaimed; above the ninth part it
    /// waits for devices, unless little is free (`balance_pgdat`, before 3.11; b8e83b942a16).
    ByCluster,
}

/// Which mark a zone has to be below for kswapd to be woken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WokenBelow {
    /// Low (3.x).
    Low,
    /// High (4.4).
    High,
}

/// When a node needs no more of kswapd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Balanced {
    /// All zones for order 0; zones with a quarter of the pages for higher orders (before 4.8).
    AllZones,
    /// Any zone that the waker may use (1d82de618ddd, 86c79f6b5426, 4.8).
    AnyZone,
}

/// The slow path's policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Slowpath {
    /// When a request tries again.
    pub retry: Retry,
    /// Which requests for one node alone fail at once (`GFP_THISNODE`).
    pub thisnode_exit: ThisnodeExit,
    /// The reserve for atomic requests is the last thing to try whenever another round could not help (ac3f3b0a5518,
    /// 6.8); before, after 16 rounds in vain alone.
    pub unreserves_at_last: bool,
}

/// Which requests for one node alone fail at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThisnodeExit {
    /// Those that say all of `GFP_THISNODE`: not to try hard, and not to warn (before 4.0; 4167e9b2cf10).
    Full,
    /// Those that may not reclaim (4.0 to 4.5; 444eb2a449ef).
    WithoutReclaim,
    /// None (4.6).
    Never,
}

/// When a request that may block tries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Retry {
    /// Always up to order 3, killing somebody if there is no progress; above, those that say so
    /// (`__GFP_REPEAT`) until as much as they want is reclaimed (3.x).
    Always,
    /// As long as reclaim makes progress and the order is at most 3 (before 4.7).
    WhileProgress,
    /// Up to 16 rounds without progress, if what is reclaimable would be enough (0a0337e0d1d1, 4.7).
    NoProgressLoops,
}

/// Direct reclaim's policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Direct {
    /// Without progress all is tried once more, which counts another stall: before 4.12 in case a control
    /// group was spared (afterwards only if one was, d6622f6365db); since 6.11 with a full walk of them
    /// (b82b530740b9).
    pub repeats: bool,
    /// It is tried once more with active lists deactivated whatever their sizes (b91ac374346b, 5.5).
    pub repeats_deactivating: bool,
    /// At a priority below 10 it waits for devices after each look at the zones (`do_try_to_free_pages`,
    /// 3.x).
    pub waits_for_devices: bool,
    /// Until when a look at some lists for a high order is repeated.
    pub continues: Continues,
    /// What a zone that is ready for compaction does to a request for a costly order.
    pub ready: Ready,
}

/// Until when a look at some lists for a high order is repeated (`should_continue_reclaim`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Continues {
    /// While it frees anything and has freed less than compaction needs, then until compaction is suitable; but
    /// only if no page of the last batch was kept for another reason than that it is being written (3.3: the mode
    /// falls back).
    UntilKept,
    /// The same, if no active page was aged after that batch either (3.4).
    UntilKeptOrAged,
    /// While it frees anything and has freed less than compaction needs; then until compaction is suitable
    /// (9b4f98cdac95, 3.5).
    UntilGap,
    /// While it frees anything and compaction is not suitable (1c6c15971e4e, 5.4).
    UntilSuitable,
}

/// What a zone that is ready for compaction does to a request for a costly order (`compaction_ready`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ready {
    /// It is passed over, and the request counts as successful in the end (3.x).
    PassesOver,
    /// It is passed over, and reclaim ends after this round (0b06496a338e, 3.17).
    Ends,
}

/// When reclaim waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Stall {
    /// For what.
    pub rule: StallRule,
    /// When a zone counts as congested, until kswapd finds it above its high mark (`ZONE_CONGESTED`).
    pub zone_congested: ZoneCongested,
    /// kswapd waits for devices, whether they are congested or not, after each round at a priority below 10 that
    /// looked at pages and left no zone below its min mark (`balance_pgdat`: `congestion_wait`; before 3.11).
    pub kswapd_waits: bool,
    /// A request that nothing was found for waits before its next attempt, up to a fiftieth of a second, where its
    /// zone and a device are congested (`__alloc_pages_slowpath`: `wait_iff_congested`).
    pub retry_waits: bool,
    /// Above which limit of pages being written whoever reclaims waits (`throttle_vm_writeout`).
    pub writeout_limit: WriteoutLimit,
    /// Programs wait before direct reclaim until half of the reserves is free
    /// (`throttle_direct_reclaim`, 5515061d22f0, 3.6).
    pub for_reserves: bool,
    /// A program that reclaims for a high order waits for the pages of a batch that are being written, if it found
    /// nothing else in its way, and looks at them once more (`should_reclaim_stall`; gone in 3.5, patch 2 of the
    /// series that removed lumpy reclaim).
    pub sync_pass: bool,
    /// Of processes that read from swap, one has its pages count as referenced for others while it serves a fault,
    /// until reclaim is at priority 0 (the swap token: before 3.5; e709ffd6169c).
    pub swap_token: bool,
    /// How a movable request waits that would mix pageblocks for a small block.
    pub fragment: FragmentStall,
}

/// How long a movable request that may reclaim waits for kswapd in the slow path's first look at its node
/// (`fragment_stall_order`, posted in October and November 2018, never merged), and where it looks then. In November it
/// waits at the end of that look, having boosted the marks of the nearest zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FragmentStall {
    /// It does not wait.
    Off,
    /// A tenth of a second at most before it looks at a zone, each of its node's and the first of another node; then
    /// at the other nodes. Nothing counts these waits (31 October).
    TenthBeforeEachZone,
    /// A tenth of a second at most; then at the other nodes (7 November).
    Tenth,
    /// A fiftieth at most; then at the other nodes (21 November).
    Fiftieth,
    /// A fiftieth at most, or until kswapd has made progress with a boost without more pressure; then at all nodes
    /// (23 November).
    FiftiethThenAll,
}

/// When a zone counts as congested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZoneCongested {
    /// Never. A departure for the kernels from 3.11 to 5.15.
    Never,
    /// Once each dirty page of a batch was refused, since somebody else holds it (`shrink_page_list`: `nr_dirty` equals
    /// `nr_congested`; before 3.11).
    AllRefused,
}

/// Above which limit of pages being written, and a tenth more, whoever reclaims waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteoutLimit {
    /// The dirty limit (before 3.4).
    Dirty,
    /// That limit, or what it was while it falls, if that is more (3.4 to 4.8).
    Smoothed,
    /// It does not (bf48438354a7, 4.9).
    Off,
}

/// What reclaim waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StallRule {
    /// For a device to be less congested, after each 32 pages of which many were under writeback: all at
    /// first, half of them at the next priority, and so on (before 3.11).
    CongestionByShare,
    /// For a device to be less congested, up to a tenth of a second (`wait_iff_congested`,
    /// `congestion_wait`, before 5.16).
    Congestion,
    /// For what it is that is missing: pages written, progress (`reclaim_throttle`, 8cd7c588decf, 5.16).
    Throttle,
}
