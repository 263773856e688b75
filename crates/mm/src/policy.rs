//! Every decision the allocator takes, as a named value.
//!
//! A kernel file (`kernels/*.toml`) gives these values, each under the name of its field; nothing else in this crate
//! knows of kernel versions. What is said of a field here is what docs/kernels.md says of the value.

#[cfg(feature = "serde")]
pub mod written;

use crate::frame::End;
use crate::types::Order;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

/// The page allocator's policy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
pub struct Policy {
    /// Free lists: how blocks are placed, merged and typed.
    pub freelist: Freelist,
    /// Per-CPU lists.
    pub pcp: Pcp,
    /// What happens when a request's own lists are empty.
    pub fallback: Fallback,
    /// The choice between zones.
    pub zone: Zone,
    /// How much may be dirty.
    pub dirty: Dirty,
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
    /// Mapped files.
    pub filemap: Filemap,
    /// Slab caches.
    pub slab: Slab,
    /// The stacks of threads within the kernel.
    pub stack: Stack,
    /// Swap areas and read-ahead.
    pub swap: Swap,
    /// Which counters there are.
    pub vmstat: Vmstat,
}

/// Free-list policy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(deny_unknown_fields))]
pub struct Freelist {
    /// Largest order (`MAX_PAGE_ORDER`).
    #[cfg_attr(feature = "serde", serde(with = "written::order"))]
    pub max_order: Order,
    /// Order of a pageblock.
    #[cfg_attr(feature = "serde", serde(with = "written::order"))]
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
    /// Memory that boot hands over goes to the tails of the free lists (7fef431be9c9, 5.10).
    pub boot_to_tail: bool,
    /// Every page is filled with zeros when it is handed out, whether that was asked for or not
    /// (`CONFIG_INIT_ON_ALLOC_DEFAULT_ON`; 6471384af2a6, 5.3).
    pub init_on_alloc: bool,
    /// Where on the lists of the new type free pages of a pageblock go whose type changes (`move_freepages`: to the
    /// head before 5.10's shuffling work, to the tail since).
    pub moved_to: End,
}

/// Where a freed block goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum Placement {
    /// To the tail if the block it would merge into next is half free already, else to the head
    /// (6dda9d55bf54, 2.6.35).
    LookAhead,
    /// Always to the head.
    Head,
}

/// Which type's list a block joins when a per-CPU list gives it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum ListType {
    /// Its pageblock's, looked up at that moment; so every list holds its own pageblocks only
    /// (c0cd6f557b90, 6.10).
    Pageblock,
    /// The type that the page remembers: the requested one after a refill, the pageblock's after a free.
    Remembered,
}

/// Per-CPU list policy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(deny_unknown_fields))]
pub struct Pcp {
    /// Which orders have lists.
    pub orders: PcpOrders,
    /// When a list set is full.
    pub high: PcpHigh,
    /// Which blocks a drain takes.
    pub drain: PcpDrain,
    /// Pages at most in a zone's thousandth, from which the batch follows (512 KiB: 128 pages before
    /// 4.19, 1 MiB: 256 pages since, d8a759b57035).
    pub batch_limit_pages: u32,
    /// A batch grows up to `2^batch_scale_max` times (`CONFIG_PCP_BATCH_SCALE_MAX`, 6.7; the fixed
    /// bound of `free_factor` before).
    #[cfg_attr(feature = "serde", serde(deserialize_with = "written::within::<0, 6, _, _>"))]
    pub batch_scale_max: u8,
    /// Pages that are expected to be cold lie at the lists' tails: reclaimed ones are freed there, and
    /// requests that want such (`__GFP_COLD`) take from there (before 4.15; 2d4894b5d2ae, 453f85d43fa9).
    pub cold: bool,
}

/// Which orders per-CPU lists hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum PcpOrders {
    /// Order 0 (before 5.14).
    Zero,
    /// Orders 0-3 by type, and the pageblock order for THP: movable apart from the rest (5.14; two THP
    /// lists since 6.10 and its backports).
    CostlyAndThp,
}

/// When a per-CPU list set is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
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
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum PcpDrain {
    /// From the tails of the types' lists in turn, more from one after each empty one; movable pages
    /// come first (4.4 to 5.19).
    RoundRobin,
    /// The same, but reclaimable pages come first, as long as their type's number was next to
    /// Unmovable's (before 4.4; 016c13daa5c9).
    RoundRobinReclaimableFirst,
    /// The list that overflowed first, whole, then the next (fd56eef258a1, 6.0).
    ListFirst,
}

/// Fallback policy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(deny_unknown_fields))]
pub struct Fallback {
    /// The rule.
    pub rule: FallbackRule,
    /// A movable request may claim other types' blocks only from this order up
    /// (`pageblock_order / 2`).
    #[cfg_attr(feature = "serde", serde(with = "written::order"))]
    pub movable_min_order: Order,
    /// Whoever would rather wait than mix pageblocks is refused blocks below this order
    /// (`fragment_stall_order`, posted in November 2018 and never merged); 0 refuses none.
    #[cfg_attr(feature = "serde", serde(with = "written::order"))]
    pub stall_order: Order,
    /// Free or compatible pages at least for a pageblock to change its type (half of it).
    pub claim_min_pages: u32,
}

/// How a request is served from another type's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum FallbackRule {
    /// Largest first: where the block found is large, or a reclaimable request wants it, free pages of the
    /// pageblock move, its type changes if half of it is free, and the block is split onto the wanted
    /// type's lists. Otherwise the block alone is taken, and what is left of it stays with its type. The
    /// zone's reserve comes last (before 4.0; 3a1086fba92b, 9c0415eb8cbf).
    MoveOrTake,
    /// Largest first: free pages of the pageblock move, and its type changes if half of it is free; the
    /// block found is split at once onto the wanted type's lists (4.0 to 4.11).
    MoveAndSplit,
    /// Largest first (smallest for small movable requests): free pages of the pageblock move, its type
    /// changes if half of it is free or compatible; then the own lists are searched again (4.12 to 6.14).
    MoveAndRetry,
    /// Claim a whole pageblock, largest first, moving nothing if it is too full; if none can be claimed
    /// steal the smallest block, which leaves its pageblock as it is (e47f1f56dd82 and following, 6.15
    /// and stable kernels).
    ClaimThenSteal,
    /// Never serve from another type: the request fails (not in any kernel; for what-ifs).
    Never,
}

/// Zone policy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(deny_unknown_fields))]
pub struct Zone {
    /// The zones of a node fill in proportion to their sizes, before other nodes are looked at
    /// (`ALLOC_FAIR`: 81c0a2bb515f, 3.12, to 4.7).
    pub fair_batches: bool,
    /// Whether the fast path prefers a lower zone of the node over mixing pageblocks (`ALLOC_NOFRAGMENT`).
    pub fragment_avoidance: FragmentAvoidance,
    /// In which order zonelists go through nodes and zones.
    pub zonelist_order: ZonelistOrder,
}

/// How much may be dirty. For pages that will be written the fast path passes over zones, since 4.8 over nodes, that have
/// more than their share (a756cf590853, 3.3; 281e37265f28, 4.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(deny_unknown_fields))]
pub struct Dirty {
    /// Share of what may be dirty above which writers wait, in percent (`vm.dirty_ratio`).
    #[cfg_attr(feature = "serde", serde(deserialize_with = "written::within::<0, 100, _, _>"))]
    pub ratio: u32,
    /// Bytes above which they wait, whatever that share is; 0 if the share counts (`vm.dirty_bytes`).
    pub bytes: u64,
    /// Share above which flushers work, in percent (`vm.dirty_background_ratio`).
    #[cfg_attr(feature = "serde", serde(deserialize_with = "written::within::<0, 100, _, _>"))]
    pub background_ratio: u32,
    /// Bytes above which they work; 0 if the share counts (`vm.dirty_background_bytes`).
    pub background_bytes: u64,
    /// Anonymous pages count as memory that may be dirty, if there is swap (before 3.14; a1c3bfb2f67e).
    pub counts_anon: bool,
}

/// Whether the fast path prefers a lower zone of the node over mixing pageblocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum FragmentAvoidance {
    /// It does not (before 5.0; and in 5.0, whose 0a79cdad5eb2 loses the flag).
    Off,
    /// It goes through the local zones once more, mixing, before it leaves the node or fails
    /// (6bb154504f8b, 5.0).
    LowerZone,
    /// It goes on where it stands: at the next node, or to the slow path (as posted up to 21 November 2018).
    LowerZoneThenOn,
    /// Likewise, but only a request that may wake kswapd prefers so (the same postings, once marks are
    /// boosted).
    LowerZoneThenOnIfKswapd,
}

/// In which order zonelists go through nodes and zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum ZonelistOrder {
    /// All zones of the nearest node first.
    Node,
    /// The Normal zones of all nodes first, unless low zones are large or some node has no other: as found
    /// out at boot (`default_zonelist_order`, before 3.17 on 64-bit machines).
    FoundAtBoot,
}

/// Watermark policy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(deny_unknown_fields))]
pub struct Watermark {
    /// `min_free_kbytes` computed at boot is at most this (65536 before 5.8, 262144 since).
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "written::within::<128, 0x4000_0000, _, _>")
    )]
    pub min_free_kbytes_max: u64,
    /// khugepaged raises `min_free_kbytes` to its recommendation.
    pub thp_recommendation: bool,
    /// Distance between marks in 1/10000 of the zone (`watermark_scale_factor`); 0 before 4.6: a quarter of min.
    #[cfg_attr(feature = "serde", serde(with = "written::zero_is_none"))]
    pub scale_factor: Option<u32>,
    /// Boost after a fragmenting fallback in 1/10000 of the high mark (`watermark_boost_factor`); 0 is
    /// off.
    pub boost_factor: u32,
    /// Whether a fallback that takes a single block boosts too (5.0 to 6.14), or only an attempt to
    /// claim a pageblock.
    pub boost_single_steals: bool,
    /// Which high mark the boost is limited by.
    pub boost_limit: BoostLimit,
    /// When kswapd is told of a boost.
    pub boost_wakes: BoostWakes,
    /// Zones of less than four pageblocks are boosted as well (before 5.7; 14f69140ff9c).
    pub boost_small_zones: bool,
    /// An urgent request of order 0 that fails at the boosted min mark is judged without the boost
    /// (f27ce0e14088, 5.9).
    pub boost_spares_urgent: bool,
    /// Pages in the reserve of a lower zone per page of the higher ones, for DMA, DMA32, Normal
    /// (`lowmem_reserve_ratio`).
    pub lowmem_reserve_ratio: [u32; 3],
    /// What a request of order > 0 has to find.
    pub check: WatermarkCheck,
    /// Which requests may go how far below a mark.
    pub urgency: Urgency,
    /// Pageblocks at most that a zone keeps as its last resort (`MIGRATE_RESERVE`: 2 before 4.4,
    /// 974a786e63c9; none since).
    pub reserve_blocks_max: u32,
}

/// Which high mark a zone's boost is limited by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum BoostLimit {
    /// The one without the boost (1c30844d2dfe, 5.0).
    High,
    /// The one with what has been boosted already, so that the limit grows with it (as posted up to 21
    /// November 2018).
    BoostedHigh,
}

/// When kswapd is told of a boost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum BoostWakes {
    /// Nothing is boosted, and there is no `vm.watermark_boost_factor` (before 5.0).
    Never,
    /// By the request that got a page there, if it may wake kswapd (73444bc4d8f9, 5.0).
    AfterAllocation,
    /// By nobody: it finds the boost when it is woken for another reason. No kernel's way.
    Unheard,
    /// At once, whoever asks (as posted up to 21 November 2018).
    Always,
    /// At once, if the request may wake kswapd (as posted on 23 November 2018).
    IfKswapd,
}

/// What a watermark check asks for a request of order > 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum WatermarkCheck {
    /// A free block of at least that order (97a16fc82a7c, 4.4).
    AnyBlock,
    /// That what is free beyond each smaller order exceeds the mark, which is halved at each (before 4.4).
    EachOrder,
}

/// Which requests may go how far below a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum Urgency {
    /// `__GFP_HIGH` by a half; those of them that cannot wait by a quarter of the rest. Either counts the
    /// highatomic reserve as free, and the latter take from it when all else fails (1ebbb21811b7, 6.4).
    HighThenNonBlocking,
    /// The same shares. Requests that are both (`__GFP_ATOMIC`) count the highatomic reserve as free; of
    /// these, those of order > 0 take from it first, others never (4.4 to 4.6).
    Atomic,
    /// `__GFP_HIGH` by a half, and whoever cannot wait by a quarter of what is then left (before 4.4).
    NonBlockingAlone,
}

/// Policy of the reserve for atomic requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(deny_unknown_fields))]
pub struct Highatomic {
    /// How much of a zone is kept for requests of higher orders that cannot wait (`MIGRATE_HIGHATOMIC`).
    pub reserve: HighatomicReserve,
}

/// How much of a zone is kept for requests of higher orders that cannot wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum HighatomicReserve {
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
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(deny_unknown_fields))]
pub struct Compaction {
    /// The search for targets.
    pub target_search: TargetSearch,
    /// The search for a pageblock to empty.
    pub migrate_search: MigrateSearch,
    /// Where targets come from.
    pub free_pages: FreePages,
    /// How the free scanner goes through memory.
    pub free_scan: FreeScan,
    /// What is remembered of where the scanners were.
    pub positions: Positions,
    /// When a pageblock is marked as one to be skipped.
    pub skip_hints: SkipHints,
    /// Marks are cleared only where a sample of the pageblock shows something to move or a place to move it
    /// to (e332f741a8dd, 5.1), instead of all.
    pub sampled_reset: bool,
    /// Who asks for the marks to be cleared once the scanners have met.
    pub flush_by: FlushBy,
    /// In which pageblocks async compaction looks for pages to move.
    pub async_sources: AsyncSources,
    /// Async direct compaction gives a block of the wanted size up with the first page that cannot be
    /// isolated or moved (fdd048e12c9a, 4.7).
    pub skip_on_failure: bool,
    /// What happens to a pageblock that is scanned a second time.
    pub rescan: Rescan,
    /// Pageblocks that a huge page fills are no sources (9bebefd59084, 5.1).
    pub skip_huge_blocks: bool,
    /// Scanners ask the first and the last frame of each pageblock whether it lies in the zone (7d49d8868336, 3.18,
    /// to 7cf91a98e607, 4.6); otherwise the zone knows, or the first frame alone is asked.
    pub asks_block_ends: bool,
    /// Pages of blocks that a scanner jumps over count as scanned (6.12; one each in 6.1).
    pub count_jumped: bool,
    /// All pages of a block that is taken as a target count as scanned (patch "fix compaction scanned counter",
    /// in 6.1; one before).
    pub count_taken: bool,
    /// Which pageblocks are refused as targets for the free block at their head.
    pub target_head: TargetHead,
    /// When a run is done.
    pub finish: Finish,
    /// When a zone is worth a run.
    pub suitable: Suitable,
    /// Deferral knows which order failed (aff622495c9a, 3.4).
    pub defer_by_order: bool,
    /// Runs are deferred up to `2^defer_shift_max` times (`COMPACT_MAX_DEFER_SHIFT`).
    #[cfg_attr(feature = "serde", serde(deserialize_with = "written::within::<0, 31, _, _>"))]
    pub defer_shift_max: u8,
    /// `vm.extfrag_threshold` unless set: up to this fragmentation index a failure is for want of memory.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "written::within::<0, 1000, _, _>"))]
    pub extfrag_threshold: u16,
    /// Mixed pageblocks that a zone remembers for kcompactd (`COMPACT_QUEUE_LENGTH`, posted in October and
    /// on 7 November 2018, never merged); 0 if none.
    pub queue_length: u8,
    /// The mark above which a free block may be isolated.
    pub isolate_mark: IsolateMark,
    /// What contention does to an async run.
    pub contention: Contention,
    /// A block of the wanted size that the compacting task itself frees is its own, before it reaches a
    /// list (5e1f0f098b46, 5.1).
    pub capture: bool,
    /// Pages of several base pages, up to less than the wanted size, move whole (6.12, not 6.1); else
    /// they are passed over, and targets are split into base pages at once.
    pub large_folios: bool,
    /// All pages of a batch have their targets before the first is moved (5dfab109d519, 6.3).
    pub batched: bool,
    /// Migration keeps the accessed and dirty bits of entries (2e3468778dbe, 6.1); before, the entry is
    /// old afterwards and the page dirty.
    pub keeps_accessed: bool,
    /// Only full sync runs isolate pages under writeback (4.14; before, sync-light ones do
    /// too: 4.6).
    pub writeback_needs_sync: bool,
    /// An asynchronous run takes dirty pages of a block device, which hold the metadata of its file system (since 5.0 it
    /// can move those that nobody holds, 88dbcbb3a484). Before, it passes over them (`ISOLATE_ASYNC_MIGRATE`).
    pub async_takes_dirty_buffers: bool,
    /// `vm.compact_unevictable_allowed` unless set (5bbe3547aa3b, 4.1); before, locked memory stays.
    pub unevictable: bool,
    /// Drivers' pages with operations of their own move (bda807d44454, 4.8).
    pub movable_ops: bool,
    /// How many pages may be off the LRU before a run waits or gives up.
    pub isolated_limit: IsolatedLimit,
    /// kcompactd scans pageblocks even if that was in vain the last time (4.6 to 4.14; 4.20 minds them).
    pub kcompactd_ignores_hints: bool,
    /// `vm.compaction_proactiveness` unless set (facdaa917c4d, 5.9); 0 is off.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "written::within::<0, 100, _, _>"))]
    pub proactiveness: u8,
    /// Which counters there are.
    pub counters: CompactCounters,
}

/// Where compaction's targets come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum FreePages {
    /// From the free scanner, and the search of the lists where the kernel has one.
    Scanner,
    /// Async direct compaction takes single pages as an allocation would, down to the low mark; those of
    /// the block that is being emptied are held until it is (a patch posted for 4.6 and 4.14, never merged).
    DirectHeld,
    /// Every run takes whole blocks from the heads of the lists, and puts those of the pageblock that is being
    /// emptied at their tails (the patch posted in reply, never merged).
    DirectTail,
    /// Likewise, as it was posted: having enough ends only the list at hand, so that each longer list gives a block.
    DirectTailAsPosted,
}

/// How the free scanner goes through memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum FreeScan {
    /// It takes all of a pageblock, whatever was wanted (3.x).
    WholeBlocks,
    /// Until there is enough, and the next time goes on from there; a block that the watermark forbids is
    /// passed over (4.4).
    UntilEnough,
    /// Likewise, but the watermark ends the walk of the pageblock (66c64223ad4e, 4.8).
    UntilMark,
    /// Likewise; async runs look at each 32nd page until they find something (4fca9730c51d, 5.1).
    Strided,
}

/// What is remembered of where the scanners were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum Positions {
    /// Nothing: each run begins at the zone's ends (before 3.7).
    None,
    /// One place of the free scanner, and two of the migrate scanner, for async and sync runs apart
    /// (c89511ab2f8f, 3.7; 35979ef33931, 3.16).
    Apart,
    /// The same, but an async run moves the sync one along as long as both are equal and nothing is found,
    /// and unsuitable pageblocks count as passed (8854c55f54bc, 5.1).
    Together,
}

/// When a pageblock is marked as one to be skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum SkipHints {
    /// Never (before 3.7).
    Off,
    /// When it was scanned to its end in vain (bb13ffeb9f6b, 3.7).
    InVain,
    /// A source with its first page isolated, if that is the pageblock's first, or when its rest holds
    /// nothing; a target when it was scanned to its end (e380bebe4771, 5.1).
    FirstPage,
    /// A source with the first page isolated in a scan from its beginning (6.12).
    FirstScan,
}

/// Who asks for skip marks to be cleared once the scanners have met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum FlushBy {
    /// Every run but kswapd's (before 4.6).
    AllButKswapd,
    /// Direct compaction (accf62422b3a, 4.6).
    Direct,
}

/// In which pageblocks async compaction looks for pages to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum AsyncSources {
    /// Movable ones (before 4.12).
    Movable,
    /// Those of the request's own type, for direct compaction; any for others (b682debd9715, 4.12).
    Requested,
}

/// What happens to a pageblock that is scanned a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum Rescan {
    /// It is scanned on, 32 pages at a time (before 5.1).
    Plain,
    /// All that is left of it is taken at once, and it is marked (804d3121ba5f, 5.1).
    Whole,
    /// Likewise; and at once when migration failed in it (cfccd2e63e7e, 6.3).
    AfterFailure,
}

/// Which pageblocks are refused as targets for the free block at their head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum TargetHead {
    /// None: one that is free as a whole is a target whatever its type (3.x).
    Any,
    /// Those free as a whole (4.4 to 6.1).
    BelowPageblock,
    /// Those whose head is free up to the wanted order (6.12).
    BelowRequest,
}

/// When a run is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum Finish {
    /// The low mark with the wanted block on top holds, and there is a block of the type, or one of a
    /// pageblock (3.x).
    MarkAndType,
    /// The low mark holds, and there is a block of the type or one that would be claimed (2149cdaef6c0, 4.1).
    MarkAndClaim,
    /// There is such a block; a sync run that would claim for an unmovable request finishes the pageblock first
    /// (baf6a9a1db5a, 4.12).
    TypeOrClaim,
    /// There is such a block and the migrate scanner is between two pageblocks (efe771c7603b, 5.1).
    BetweenBlocks,
}

/// When a zone is worth a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum Suitable {
    /// Room above the low mark, and a failure that is not for want of memory; nothing to do if a block is
    /// free at that mark (3.x).
    RoomFirst,
    /// Nothing to do if the low mark holds for the order; else the same (4.4).
    LowMark,
    /// Nothing to do if the caller's mark holds; the fragmentation index is asked for order 4 and more, and
    /// the room is above the min mark for less (8348faf91f56, 4.9).
    CallersMark,
}

/// The mark above which a free block may be isolated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum IsolateMark {
    /// Low (4.4, 4.6).
    Low,
    /// Min, with the boost where there is one (8348faf91f56, 4.9).
    Min,
    /// Min without the boost (5.1).
    BareMin,
}

/// What contention does to an async run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum Contention {
    /// It lets others have the lock or the CPU, and goes on (before 3.6).
    GoesOn,
    /// It ends at once (c67fe3752abe, 3.6).
    Abort,
    /// The rest of the pageblock is taken, and the run ends if that brought nothing (cb2dcaf023c2, 5.1).
    FinishBlock,
}

/// How many pages may be off the LRU before a run waits or gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum IsolatedLimit {
    /// As many as half of those on it.
    Half,
    /// For requests that may call file systems, as many as a sixteenth (6.12).
    SixteenthWithFs,
}

/// Which counters of compaction there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum CompactCounters {
    /// `compact_blocks_moved` and its like (before 3.8). Every scan counts as a block, and is told as a batch that was moved,
    /// even if it took nothing.
    Moved,
    /// `compact_migrate_scanned` and its like (397487db696c, 3.8).
    Scanned,
    /// With `compact_daemon_wake` (698b1b30642f, 4.6).
    DaemonWake,
    /// With kcompactd's own scans (7f354a548d1c, 4.12).
    DaemonScanned,
}

/// How far compaction searches the free lists for targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum TargetSearch {
    /// Not at all: only the scanner finds targets (before 5.1).
    Off,
    /// As `until-found`, but of each list only the last entry is looked at, except where the scan begins: the limit is the
    /// smaller of 1 and what was meant (5.1 until long after 5.4).
    OneOfEach,
    /// Until a block is found; without one, any pageblock seen will do to begin the scan.
    UntilFound,
    /// Until every page that waits has its target; without a block, the scan begins in the upper half
    /// (6.5).
    UntilEnough,
}

/// How compaction searches the free lists for a pageblock to empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum MigrateSearch {
    /// Not at all: the scanner takes one pageblock after the other (before 5.1).
    Off,
    /// The pageblock found is marked to be skipped at once, so that no other search finds it (5.1).
    MarkFound,
    /// It is marked once it is scanned; a pageblock left half done is finished first (6.3).
    FinishBlocks,
}

/// What the balance between types, and refaults, take for the sizes of lists. Kernels that are built with memory control
/// groups count these by CPU and by group, and add them up now and then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum ListStats {
    /// What they are: there are no such groups, or every pass of reclaim adds the counts up first
    /// (`mem_cgroup_flush_stats`).
    Exact,
    /// What they were when they were last added up, which is done every two seconds (`flush_memcg_stats_dwork`): reclaim
    /// does it only where that is overdue (`mem_cgroup_flush_stats_ratelimited`, 6.12).
    Periodic,
}

/// How a page that was used twice goes from its inactive list to the active one (`activate_page`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum Activation {
    /// At once; a page on its way to a list goes to the active one. A departure: kernels since 3.11 gather such pages
    /// too (059285a25f30).
    AtOnce,
    /// By a batch of the CPU (`activate_page_pvecs`), which holds it meanwhile, so that nobody else can reclaim it; a
    /// page that is on no list yet stays as it is. That a new page is active is told as it comes to its list (before 3.11).
    Batched,
}

/// LRU policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(deny_unknown_fields))]
pub struct Lru {
    /// How pages are ordered by age.
    pub kind: LruKind,
    /// What has lists of its own.
    pub scope: LruScope,
    /// Pages a CPU gathers before they go on the lists (`PAGEVEC_SIZE`: 14, 15 since 4.16, 31 in 6.12).
    #[cfg_attr(feature = "serde", serde(deserialize_with = "written::within::<1, 254, _, _>"))]
    pub batch_pages: u8,
    /// A full batch is emptied by the page that fills it; between 3.11 and 4.6, by the next one.
    pub batch_flushes_when_full: bool,
    /// How an inactive page in use becomes active.
    pub activation: Activation,
    /// A huge page empties the batch (8f182270dfec, 4.7).
    pub batch_flushes_for_huge: bool,
    /// Where anonymous pages begin, and what one reference does for them.
    pub anon: AnonEntry,
    /// A page that is mapped from the swap cache becomes active (1a8018fb4c69, 4.8, until b518154e59aa, 5.9). Before,
    /// it stays on the inactive list where reading it put it, until reclaim finds it referenced.
    pub swapins_activate: bool,
    /// Which size decides how many inactive pages are too few.
    pub inactive_ratio: InactiveRatio,
    /// How scanning is shared between anonymous and file pages.
    pub balance: Balance,
    /// Whose refaults since the last reclaim let active pages be deactivated, whatever the sizes.
    pub deactivate_on_refault: RefaultRule,
    /// Enough inactive pages of files spare anonymous ones only where the pass's priority leaves some of them to scan
    /// (316bda0e6cc5, 4.5).
    pub spared_by_priority: bool,
    /// Where files and free pages are below the high marks together, anonymous pages alone are scanned only if enough of
    /// them are inactive (06226226b70a, 4.13).
    pub tiny_cache_wants_inactive: bool,
    /// A type's share of a scan is rounded up, so that it is a page at least (68600f623d69, 4.20; until 76073c646f5f, 5.6).
    pub share_rounds_up: bool,
    /// What a huge page counts in the scan, and when it is reclaimed whole.
    pub scan_unit: ScanUnit,
    /// Pages of files that went leave a shadow, by which they may be active at once when they come back
    /// (a528910e12ec, 3.15).
    pub refaults: bool,
    /// Which sizes of lists the balance between types, and refaults, go by.
    pub stats: ListStats,
}

/// Whose refaults, activated since the last reclaim, let active pages be deactivated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum RefaultRule {
    /// Nobody's (before 4.12).
    Never,
    /// Files': their active pages are deactivated. What is scanned is decided without them (2a2e48854d70, 4.12).
    Files,
    /// Files': there are too few inactive pages of files then, so that anonymous ones are scanned as well
    /// (2c012a4ad1a2, 5.3).
    FilesThroughout,
    /// Those of either type, each for its own list (b91ac374346b, 5.5; 170b04b7ae49, 5.9).
    Both,
}

/// How pages are ordered by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum LruKind {
    /// An active and an inactive list of each type.
    Classic,
    /// Two to four generations of each type (`lru_gen`, 6.1; the default where the kernel is configured
    /// so).
    MultiGenerational,
}

/// What has LRU lists of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum LruScope {
    /// Each zone (before 4.8).
    Zone,
    /// Each node (599d0c954f91, 4.8).
    Node,
}

/// Where anonymous pages begin, and what one reference does for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum AnonEntry {
    /// New pages are active; one reference makes an inactive one active again (before 5.9).
    Active,
    /// They are inactive, need two references as file pages do, and leave a shadow behind when they go
    /// (b518154e59aa, aae466b0052e, 5.9).
    Inactive,
}

/// Which size decides how many inactive pages are too few.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum InactiveRatio {
    /// For anonymous pages the zone's, fixed at boot; file pages one to one (before 4.7).
    ZoneSize,
    /// That of both lists together, for either type (59dc76b0d4df, 4.7).
    ListSize,
}

/// How scanning is shared between anonymous and file pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum Balance {
    /// As [`Self::Rotated`], but swappiness counts one more for either type, and anonymous pages are not
    /// spared while there are enough inactive pages of files (before 3.5 and 3.8; fe35004fbf9e,
    /// e9868505987a).
    RotatedAlways,
    /// By the share of scanned pages that were put back as in use (before 5.8).
    Rotated,
    /// By the cost noted of each type: pages written, refaults (314b57fb0460 and its fellows, 5.8).
    Written,
    /// As [`Self::Written`], a written page counting 32 and pages scanned in vain or rotated one each
    /// (0538a82c39e9, 6.2).
    WrittenAndRotated,
}

impl Balance {
    /// Whether what was scanned and put back is counted.
    #[must_use]
    pub const fn is_by_rotation(self) -> bool {
        matches!(self, Self::RotatedAlways | Self::Rotated)
    }
}

/// What a huge page counts in the scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum ScanUnit {
    /// One, and what was taken bounds nothing: 32 huge pages may be taken at once (3.x).
    EntryUnbounded,
    /// One, as any other (before 5.1).
    Entry,
    /// Its base pages.
    Page,
}

/// Reclaim policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(deny_unknown_fields))]
pub struct Reclaim {
    /// `vm.swappiness` unless set: the weight of anonymous pages (0..=200; 0..=100 before 5.8).
    #[cfg_attr(feature = "serde", serde(deserialize_with = "written::within::<0, 200, _, _>"))]
    pub swappiness: u8,
    /// What becomes of a page found under writeback or dirty.
    pub busy_pages: BusyPages,
    /// What reclaim does with a page whose mappings somebody else is changing.
    pub busy_mappings: BusyMappings,
    /// Where the parts of a huge page go that is split to be written to swap.
    pub split_parts: SplitParts,
    /// The CPUs are told of all pages that were unmapped at once, before the first of them is written or all go; else of each
    /// when it is unmapped (72b252aed506, 4.3).
    pub batches_flushes: bool,
    /// The CPUs are told of each entry of a base page that forgets that it was accessed (before 3.15; b13b1d2d8692).
    pub flushes_accessed: bool,
    /// The order in which a batch of pages is freed, by reclaim and by unmapping.
    pub free_order: FreeOrder,
    /// What unmapping a part of a huge page does to the rest.
    pub huge_partial_unmap: HugePartialUnmap,
    /// Huge pages go to swap whole where the area has clusters (bd4c82c22c36, 4.14).
    pub huge_swapout: bool,
    /// With generations, what has been written before its batch goes back to its list is freed at once (359a5e1416ca, 6.2).
    pub retries_written: bool,
    /// When kswapd writes dirty pages of files.
    pub file_writes: FileWrites,
    /// A page that is mapped or in the swap cache counts twice as scanned (before 5.3; 886cf1901db9).
    pub mapped_count_twice: bool,
    /// Once enough is reclaimed, what is left to scan of the lists is brought into the proportion that was
    /// planned (e82e0561dae9, 3.11); before, the scan ends.
    pub proportional: bool,
    /// What all rounds through the lists have reclaimed is taken off the target after each one, so that
    /// the scan ends sooner (c38446cc65e1, in release candidates of 3.4 alone). Nothing if `proportional`.
    pub target_decrement: bool,
    /// A zone counts as hopeful again once anything is freed in it (`free_pcppages_bulk`); else once
    /// something is reclaimed from it.
    pub freeing_restores_hope: bool,
    /// What reclaim for a high order aims at.
    pub mode: HighOrderMode,
    /// Whether the pages around a victim are taken off the lists with it.
    pub lumpy: LumpyIsolation,
}

/// What reclaim for a high order aims at (`reclaim_mode_t`): for order 4 and more, and at a priority below 10 for
/// any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum HighOrderMode {
    /// Nothing is remembered: order and priority say it all (patch 3 of the series, 9b4f98cdac95 and its
    /// neighbours, 3.5).
    None,
    /// Single pages enough for compaction to work with (kernels with `CONFIG_COMPACTION`, 3e7d34497067, 2.6.38).
    Compaction,
    /// The block itself (kernels without `CONFIG_COMPACTION`, to 3.4).
    Lumpy,
}

/// Whether the pages around a victim, in the block of the order that is wanted, are taken off the lists with it
/// (`isolate_lru_pages`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum LumpyIsolation {
    /// They stay (c53919adc045, 3.5).
    Never,
    /// Where reclaim aims at the block itself (3.4).
    InMode,
    /// For any order above 0, of active lists as well (to 3.3).
    AnyOrder,
}

/// When kswapd writes dirty pages of files; others never do (since 3.2, ee72886d8ed5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum FileWrites {
    /// Once its priority has fallen below `DEF_PRIORITY - 2` (f84f6e2b0868, 3.2; before 3.11). A page found
    /// under writeback is not marked to be reclaimed next (before 3.11; 283aba9f9e0e).
    LowPriority,
    /// Where the lists are known to be full of dirty pages that nobody has queued (d43006d503ac, 3.11).
    ManyDirty,
    /// There, and only those that it has met before (4eda48235011, 4.11).
    ManyDirtySeenTwice,
}

/// Policy of mapped files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(deny_unknown_fields))]
pub struct Filemap {
    /// A read fault maps what is in memory of this many pages around it, a power of two: 1 is the page
    /// alone (before 3.15), 16 since (`fault_around_bytes`, 8c6e50b0290c).
    #[cfg_attr(feature = "serde", serde(deserialize_with = "written::power_of_two::<512, _>"))]
    pub fault_around_pages: u32,
}

/// What becomes of a page that reclaim finds under writeback or dirty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum BusyPages {
    /// It stays inactive, at the head (before 4.12).
    Keep,
    /// It becomes active, out of the way until it is written (c55e8d035b28, 4.12).
    Activate,
}

/// What reclaim does with an anonymous page whose process has a huge page split by somebody else at the moment: its
/// `anon_vma` is locked for writing meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum BusyMappings {
    /// It waits for its turn (before 5.19).
    Wait,
    /// It takes the page for one in use and goes on to the next (`folio_referenced`; 6d4675e60135, 5.19).
    Keep,
}

/// Where the parts of a huge page go that reclaim splits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum SplitParts {
    /// All but the first go to the tail of their list, where whoever reclaims next takes them (`lru_add_page_tail`, before
    /// 3.10).
    ListTail,
    /// They come next in the batch (`split_huge_page_to_list`; 5bc7b8aca942, 3.10).
    Batch,
}

/// The order in which a batch of pages is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum FreeOrder {
    /// The last first: the list is built by adding at its front.
    LastFirst,
    /// The first first (folio batches, 6.10).
    FirstFirst,
}

/// What unmapping a part of a huge page does to the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum HugePartialUnmap {
    /// The page is split at once (before 4.5).
    Split,
    /// Only the mapping is split; the page waits on a queue (9a982250f773, 4.5).
    Defer,
}

/// Policy of slab caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(deny_unknown_fields))]
pub struct Slab {
    /// Which allocator.
    pub allocator: SlabAllocator,
    /// What the attempt for a larger order than the least may do.
    pub high_order: HighOrder,
    /// How SLUB gives in where no order fits.
    pub order: SlabOrder,
    /// How much SLUB lets a CPU keep in partial slabs.
    pub cpu_partial: CpuPartial,
    /// XFS's log items and buffers count as reclaimable.
    pub xfs_log_reclaimable: bool,
    /// Bytes of a directory entry.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "written::within::<8, 8192, _, _>"))]
    pub dentry_bytes: u32,
    /// Bytes of an inode of ext4.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "written::within::<8, 8192, _, _>"))]
    pub ext4_inode_bytes: u32,
    /// Bytes of an inode of XFS.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "written::within::<8, 8192, _, _>"))]
    pub xfs_inode_bytes: u32,
    /// Bytes of XFS's note of what changed in an inode.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "written::within::<8, 8192, _, _>"))]
    pub xfs_ili_bytes: u32,
    /// Bytes of what XFS knows of a buffer.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "written::within::<8, 8192, _, _>"))]
    pub xfs_buf_bytes: u32,
    /// Bytes of a node of a file's tree of pages.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "written::within::<8, 8192, _, _>"))]
    pub radix_tree_node_bytes: u32,
    /// Bytes of a buffer head.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "written::within::<8, 8192, _, _>"))]
    pub buffer_head_bytes: u32,
}

/// Policy of the stacks that threads have within the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(deny_unknown_fields))]
pub struct Stack {
    /// Order of its pages (`THREAD_SIZE_ORDER`: 2 since 3.15, 6538b8ea886e; 1 before).
    #[cfg_attr(feature = "serde", serde(with = "written::order"))]
    pub order: Order,
    /// It is of single pages that are mapped in a row (`CONFIG_VMAP_STACK`, 4.9; ba14a194a434), instead of
    /// one block.
    pub mapped: bool,
}

/// The allocators of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum SlabAllocator {
    /// A slab for each CPU, partial slabs for CPUs and nodes (mm/slub.c).
    Slub,
    /// Arrays of objects for CPUs, lists of slabs for nodes (mm/slab.c, until 6.7).
    Slab,
}

/// What a request for a slab of a larger order than the least may do, if the caller's may reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum HighOrder {
    /// What the caller's may do, without trying hard (before 4.4).
    MayReclaim,
    /// Wake kswapd and no more (d0164adc89f6, 4.4).
    MayWakeKswapd,
    /// Neither (444eb2a449ef, 4.6).
    Neither,
}

/// How SLUB gives in where no order up to 3 holds the objects it wants with little waste.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum SlabOrder {
    /// Fewer objects, of a waste up to a quarter (before 6.7).
    FewerObjects,
    /// As many objects, with a waste up to a half (`calculate_order`, 6.7).
    MoreWaste,
}

/// How much SLUB lets a CPU keep in partial slabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum CpuPartial {
    /// Up to 30 free objects, fewer of larger ones (49e2258586b4, 3.2).
    Objects,
    /// Slabs that hold up to 240 objects, fewer of larger ones (b47291ef02b0, 5.16).
    Slabs,
}

/// Swap policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(deny_unknown_fields))]
pub struct Swap {
    /// Slots of a cluster (`SWAPFILE_CLUSTER`: 256, as many as a huge page has where those are swapped
    /// whole).
    #[cfg_attr(feature = "serde", serde(deserialize_with = "written::within::<1, 65536, _, _>"))]
    pub cluster_pages: u32,
    /// CPUs fetch 64 slots at a time (67afa38e012e, 4.11).
    pub slot_cache: bool,
    /// What is read beside the page asked for.
    pub readahead: Readahead,
    /// `vm.page-cluster` unless set: binary logarithm of the largest read-ahead window.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "written::within::<0, 5, _, _>"))]
    pub page_cluster: u8,
}

/// What is read beside the page asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
pub enum Readahead {
    /// The whole aligned window of slots, whatever it was good for before (before 3.14; 579f82901f6f).
    WholeWindow,
    /// Neighbouring slots, as many as were of use lately.
    Slots,
    /// Neighbouring addresses, unless some area rotates (ec560175c0b6, 4.14).
    Addresses,
}

/// Which counters `/proc/vmstat` has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize), serde(deny_unknown_fields))]
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
    /// `pgsteal_kswapd` and `pgsteal_direct` (904249aa6834, 3.4-rc3) instead of `pgsteal` and
    /// `kswapd_steal`.
    pub steal_apart: bool,
    /// `workingset_*` (3.15).
    pub workingset: bool,
    /// `pgscan_direct_throttle` (5515061d22f0, 3.6).
    pub direct_throttle: bool,
    /// `fragment_stall` (posted in November 2018, never merged).
    pub fragment_stall: bool,
    /// `kswapd_skip_congestion_wait` (bb3ab596832b, 2.6.33; 4.4 no longer has it).
    pub skip_congestion_wait: bool,
    /// `numa_hint_faults` and its like (03c5a6e16322, 3.8).
    pub numa_balancing: bool,
    /// `thp_zero_page_alloc` and its like (d8a8e1f0da3d, 3.8).
    pub thp_zero_page: bool,
    /// `swap_ra` and `swap_ra_hit` (cbc65df240c1, 4.14).
    pub swap_ra: bool,
    /// `nr_kernel_stack` counts KiB (d30dd8be06e1, 4.9) instead of stacks.
    pub kernel_stack_kib: bool,
    /// `nr_anon_pages` has the base pages of huge pages in it (3cd14fcd3f12, 3.12).
    pub anon_counts_huge: bool,
    /// `drop_pagecache` and `drop_slab` (5509a5d27b97, 3.15).
    pub drops: bool,
}
