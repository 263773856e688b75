//! Every decision the allocator takes, as a named value.
//!
//! A kernel file (`kernels/*.toml`) gives these values; nothing else in this crate knows of kernel
//! versions.

use crate::types::Order;

/// The page allocator's policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Free lists: how blocks are placed, merged and typed.
    pub freelist: Freelist,
    /// Per-CPU lists.
    pub pcp: Pcp,
    /// What happens when a request's own lists are empty.
    pub fallback: Fallback,
    /// The choice between zones.
    pub zone: Zone,
    /// How much is kept free.
    pub watermark: Watermark,
    /// The reserve for atomic requests of order > 0.
    pub highatomic: Highatomic,
    /// How compaction searches the free lists.
    pub compaction: Compaction,
    /// The lists that reclaim takes from.
    pub lru: Lru,
    /// What reclaim does with what it takes.
    pub reclaim: Reclaim,
    /// Swap areas and read-ahead.
    pub swap: Swap,
    /// Which counters there are.
    pub vmstat: Vmstat,
}

/// Free-list policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freelist {
    /// Largest order (`MAX_PAGE_ORDER`).
    pub max_order: Order,
    /// Order of a pageblock.
    pub pageblock_order: Order,
    /// Where a freed block goes.
    pub merge: Placement,
    /// Which type's list a freed block joins.
    pub list_type: ListType,
    /// A free of more than a pageblock is done one pageblock at a time, each by its own type
    /// (`split_large_buddy`, 6.10).
    pub split_large_frees: bool,
    /// Whether pageblocks have mobility types at all (`page_group_by_mobility_disabled` turns it off).
    pub mobility_grouping: bool,
}

/// Where a freed block goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// To the tail if the block it would merge into next is half free already, else to the head
    /// (6dda9d55bf54, 2.6.35).
    LookAhead,
    /// Always to the head.
    Head,
}

/// Which type's list a block joins when a per-CPU list gives it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListType {
    /// Its pageblock's, looked up at that moment; so every list holds its own pageblocks only
    /// (c0cd6f557b90, 6.10).
    Pageblock,
    /// The type that the page remembers: the requested one after a refill, the pageblock's after a free.
    Remembered,
}

/// Per-CPU list policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pcp {
    /// Which orders have lists.
    pub orders: PcpOrders,
    /// When a list set is full.
    pub high: PcpHigh,
    /// Which blocks a drain takes.
    pub drain: PcpDrain,
    /// Pages at most in a zone's thousandth, from which the batch follows (512 KiB: 128 pages before
    /// 4.19, 1 MiB: 256 pages since, d8a759b57035).
    pub batch_limit: u32,
    /// A batch grows up to `2^batch_scale_max` times (`CONFIG_PCP_BATCH_SCALE_MAX`, 6.7; the fixed
    /// bound of `free_factor` before).
    pub batch_scale_max: u8,
}

/// Which orders per-CPU lists hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcpOrders {
    /// Order 0 (before 5.14).
    Zero,
    /// Orders 0-3 by type, and the pageblock order for THP: movable apart from the rest (5.14; two THP
    /// lists since 6.10 and its backports).
    CostlyAndThp,
}

/// When a per-CPU list set is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcpHigh {
    /// Six batches (before 5.14).
    SixBatches,
    /// The zone's low watermark shared among the node's CPUs (5.14).
    LowWatermark,
    /// From there up to an eighth of the zone, by demand (6.7).
    AutoTuned,
}

/// Which blocks a drain takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcpDrain {
    /// From the tails of the types' lists in turn, more from one after each empty one (before 6.0).
    RoundRobin,
    /// The list that overflowed first, whole, then the next (fd56eef258a1, 6.0).
    ListFirst,
}

/// Fallback policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// The rule.
    pub rule: FallbackRule,
    /// A movable request may take over other types' blocks only from this order up
    /// (`pageblock_order / 2`).
    pub movable_min_order: Order,
    /// Free or compatible pages at least for a pageblock to change its type (half of it).
    pub claim_min_pages: u32,
}

/// How a request is served from another type's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallbackRule {
    /// Largest first: free pages of the pageblock move, and its type changes if half of it is free; the
    /// block found is split at once (before 4.12).
    MoveAndSplit,
    /// Largest first (smallest for small movable requests): free pages of the pageblock move, its type
    /// changes if half of it is free or compatible; then the own lists are searched again (4.12 to 6.14).
    MoveAndRetry {
        /// Where moved free pages go (head before 5.10's shuffling work, tail after).
        moved_to: crate::frame::End,
    },
    /// Claim a whole pageblock, largest first, moving nothing if it is too full; if none can be claimed
    /// steal the smallest block, which leaves its pageblock as it is (e47f1f56dd82 and following, 6.15
    /// and stable kernels).
    ClaimThenSteal,
    /// Never serve from another type: the request fails (not in any kernel; for what-ifs).
    Never,
}

/// Zone policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// The zones of a node fill in proportion to their sizes, before other nodes are looked at
    /// (`ALLOC_FAIR`: 81c0a2bb515f, 3.12, to 4.7).
    pub fair_batches: bool,
    /// Prefer a lower zone of the node over mixing pageblocks (`ALLOC_NOFRAGMENT`, 6bb154504f8b, 5.0).
    pub fragment_avoidance: bool,
}

/// Watermark policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watermark {
    /// `min_free_kbytes` computed at boot is at most this (65536 before 5.8, 262144 since).
    pub min_free_kbytes_max: u64,
    /// khugepaged raises `min_free_kbytes` to its recommendation.
    pub thp_recommendation: bool,
    /// Distance between marks in 1/10000 of the zone (`watermark_scale_factor`); `None` before 4.6.
    pub scale_factor: Option<u32>,
    /// Boost after a fragmenting fallback in 1/10000 of the high mark (`watermark_boost_factor`); 0 is
    /// off.
    pub boost_factor: u32,
    /// Whether a fallback that takes a single block boosts too (5.0 to 6.14), or only an attempt to
    /// claim a pageblock.
    pub boost_single_steals: bool,
    /// Pages in the reserve of a lower zone per page of the higher ones, for DMA, DMA32, Normal
    /// (`lowmem_reserve_ratio`).
    pub lowmem_reserve_ratio: [u32; 3],
}

/// High-atomic reserve policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Highatomic {
    /// None (before 4.4).
    Off,
    /// Up to 1 % of the zone and one pageblock more; watermark checks subtract all of the reserve.
    PercentPlusBlock,
    /// Up to 1 % rounded up to whole pageblocks, none in small zones; watermark checks subtract what is
    /// free of it (6.12's stable backports).
    PercentRoundedUp,
}

/// Compaction policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// The search for targets.
    pub target_search: TargetSearch,
    /// The search for a pageblock to empty.
    pub migrate_search: MigrateSearch,
}

/// How far compaction searches the free lists for targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetSearch {
    /// Not at all: only the scanner finds targets (before 5.1).
    Off,
    /// Until a block is found; without one, any pageblock seen will do to begin the scan (5.1).
    UntilFound,
    /// Until every page that waits has its target; without a block, the scan begins in the upper half
    /// (6.5).
    UntilEnough,
}

/// How compaction searches the free lists for a pageblock to empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrateSearch {
    /// Not at all: the scanner takes one pageblock after the other (before 5.1).
    Off,
    /// The pageblock found is marked to be skipped at once, so that no other search finds it (5.1).
    MarkFound,
    /// It is marked once it is scanned; a pageblock left half done is finished first (6.3).
    FinishBlocks,
}

/// LRU policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lru {
    /// How pages are ordered by age.
    pub kind: LruKind,
    /// What has lists of its own.
    pub scope: LruScope,
    /// Pages a CPU gathers before they go on the lists (`PAGEVEC_SIZE`: 14, 15 since 4.16, 31 in 6.12).
    pub batch: u8,
    /// A huge page empties the batch (8f182270dfec, 4.7) and a full batch is emptied by the page that
    /// fills it; before, by the next one.
    pub batch_flushes_when_full: bool,
    /// Where anonymous pages begin, and what one reference does for them.
    pub anon: AnonEntry,
    /// Which size decides how many inactive pages are too few.
    pub inactive_ratio: InactiveRatio,
    /// How scanning is shared between anonymous and file pages.
    pub balance: Balance,
    /// Refaults since the last reclaim let active pages be deactivated, whatever the sizes (files' since
    /// 5.5, b91ac374346b; anonymous ones since 5.9, 170b04b7ae49).
    pub deactivate_on_refault: bool,
    /// What a huge page counts in the scan.
    pub scan_unit: ScanUnit,
}

/// How pages are ordered by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LruKind {
    /// An active and an inactive list of each type.
    Classic,
    /// Two to four generations of each type (`lru_gen`, 6.1; the default where the kernel is configured
    /// so).
    MultiGenerational,
}

/// What has LRU lists of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LruScope {
    /// Each zone (before 4.8).
    Zone,
    /// Each node (599d0c954f91, 4.8).
    Node,
}

/// Where anonymous pages begin, and what one reference does for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnonEntry {
    /// New and swapped-in pages are active; one reference makes an inactive one active again (before 5.9).
    Active,
    /// They are inactive, need two references as file pages do, and leave a shadow behind when they go
    /// (b518154e59aa, aae466b0052e, 5.9).
    Inactive,
}

/// Which size decides how many inactive pages are too few.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InactiveRatio {
    /// For anonymous pages the zone's, fixed at boot; file pages one to one (before 4.7).
    ZoneSize,
    /// That of both lists together, for either type (59dc76b0d4df, 4.7).
    ListSize,
}

/// How scanning is shared between anonymous and file pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// By the share of scanned pages that were put back as in use (before 5.8).
    Rotated,
    /// By the cost noted of each type: pages written, refaults (314b57fb0460 and its fellows, 5.8).
    Written,
    /// As [`Self::Written`], a written page counting 32 and pages scanned in vain or rotated one each
    /// (0538a82c39e9, 6.2).
    WrittenAndRotated,
}

/// What a huge page counts in the scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanUnit {
    /// One, as any other (before 5.1).
    Entry,
    /// Its base pages.
    Page,
}

/// Reclaim policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reclaim {
    /// `vm.swappiness` unless set: the weight of anonymous pages (0..=200; 0..=100 before 5.8).
    pub swappiness: u8,
    /// What becomes of a page found under writeback or dirty.
    pub busy_pages: BusyPages,
    /// The order in which a batch of pages is freed, by reclaim and by unmapping.
    pub free_order: FreeOrder,
    /// What unmapping a part of a huge page does to the rest.
    pub huge_partial_unmap: HugePartialUnmap,
    /// Huge pages go to swap whole where the area has clusters (bd4c82c22c36, 4.14).
    pub huge_swapout: bool,
}

/// What becomes of a page that reclaim finds under writeback or dirty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusyPages {
    /// It stays inactive, at the head (before 4.12).
    Keep,
    /// It becomes active, out of the way until it is written (c55e8d035b28, 4.12).
    Activate,
}

/// The order in which a batch of pages is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeOrder {
    /// The last first: the list is built by adding at its front.
    LastFirst,
    /// The first first (folio batches, 6.10).
    FirstFirst,
}

/// What unmapping a part of a huge page does to the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePartialUnmap {
    /// The page is split at once (before 4.5).
    Split,
    /// Only the mapping is split; the page waits on a queue (9a982250f773, 4.5).
    Defer,
}

/// Swap policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swap {
    /// Slots of a cluster (`SWAPFILE_CLUSTER`: 256, as many as a huge page has where those are swapped
    /// whole).
    pub cluster: u32,
    /// CPUs fetch 64 slots at a time (67afa38e012e, 4.11).
    pub slot_cache: bool,
    /// What is read beside the page asked for.
    pub readahead: Readahead,
    /// `vm.page-cluster` unless set: binary logarithm of the largest read-ahead window.
    pub page_cluster: u8,
}

/// What is read beside the page asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readahead {
    /// Neighbouring slots.
    Slots,
    /// Neighbouring addresses, unless some area rotates (ec560175c0b6, 4.14).
    Addresses,
}

/// Which counters `/proc/vmstat` has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vmstat {
    /// `pgscan_*`, `pgsteal_*` and `pgrefill` by zone (before 4.8).
    pub reclaim_by_zone: bool,
    /// `allocstall` by zone class (4.10).
    pub allocstall_by_zone: bool,
    /// `pgscan_anon` and the like, and `workingset_*` by type (5.8, 5.9).
    pub reclaim_by_type: bool,
    /// khugepaged's reclaim apart from direct reclaim (6.3).
    pub khugepaged_apart: bool,
    /// `thp_split_page` and `thp_split_pmd` instead of `thp_split` (4.5).
    pub thp_split_apart: bool,
}
