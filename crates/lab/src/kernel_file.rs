//! Kernel files: a kernel is a file of policy values, based on another one and overriding it.

use crate::InputError;
use crate::toml_comments::commented_values;
use highorder_mm::frame::End;
use highorder_mm::policy::{
    Activation, AnonEntry, AsyncSources, Balance, BoostLimit, BoostWakes, BusyPages,
    CompactCounters, Compaction, Contention, CpuPartial, Fallback, FallbackRule, FileWrites,
    Filemap, Finish, FlushBy, FragmentAvoidance, FreeOrder, FreePages, FreeScan, Freelist,
    HighOrder, HighOrderMode, Highatomic, HugePartialUnmap, InactiveRatio, IsolateMark,
    IsolatedLimit, ListType, Lru, LruKind, LruScope, LumpyIsolation, MigrateSearch, Pcp, PcpDrain,
    PcpHigh, PcpOrders, Placement, Policy, Positions, Readahead, Reclaim, Rescan, ScanUnit,
    SkipHints, Slab, SlabAllocator, SlabOrder, Stack, Suitable, Swap, TargetHead, TargetSearch,
    Urgency, Vmstat, Watermark, WatermarkCheck, Zone, ZonelistOrder,
};
use highorder_mm::types::{MAX_PAGE_ORDER, Order};
use highorder_sim::Ns;
use highorder_sim::input_file::{Kind, Source};
use highorder_sim::kernel::Flows;
use highorder_sim::kernel::policy::{
    Balanced, Compactors, Continues, CostlyExit, DefragNoretry, Direct, DirectCompaction, Files,
    FragmentStall, HalfReferenced, InodeLists, KcompactdWake, Kswapd, MmapLocking, NumaBalancing,
    NumaScan, Ready, Retry, Rounds, Slab as Shrinkers, SlabPressure, Slowpath, Stall, StallRule,
    ThisnodeExit, Thp, ThpDisable, ThpNuma, WakesFlushers, WokenBelow, WriteoutLimit,
    ZoneCongested,
};
use highorder_sim::kernel::thp::{Defrag, Enabled, KhugepagedKnobs, ThpKnobs};
use highorder_system::model::{Knob, KnobValue};
use serde::Deserialize;
use serde_spanned::Spanned;
use std::path::Path;

/// The kernel files that come with the program, by name.
pub const BUILT_IN: [(&str, &str); 34] = [
    ("linux-3.3", include_str!("../../../kernels/linux-3.3.toml")),
    ("linux-3.4", include_str!("../../../kernels/linux-3.4.toml")),
    ("linux-3.4-rc2", include_str!("../../../kernels/linux-3.4-rc2.toml")),
    ("linux-3.4-rc2-lumpyremove", include_str!("../../../kernels/linux-3.4-rc2-lumpyremove.toml")),
    ("linux-3.4-rc2-nosync", include_str!("../../../kernels/linux-3.4-rc2-nosync.toml")),
    ("linux-3.5", include_str!("../../../kernels/linux-3.5.toml")),
    ("linux-4.14", include_str!("../../../kernels/linux-4.14.toml")),
    ("linux-4.14-direct-held", include_str!("../../../kernels/linux-4.14-direct-held.toml")),
    ("linux-4.14-direct-tail", include_str!("../../../kernels/linux-4.14-direct-tail.toml")),
    ("linux-4.20", include_str!("../../../kernels/linux-4.20.toml")),
    ("linux-4.20-rc1", include_str!("../../../kernels/linux-4.20-rc1.toml")),
    ("linux-4.20-rc1-boost", include_str!("../../../kernels/linux-4.20-rc1-boost.toml")),
    ("linux-4.20-rc1-boost-v5", include_str!("../../../kernels/linux-4.20-rc1-boost-v5.toml")),
    ("linux-4.20-rc1-lowzone", include_str!("../../../kernels/linux-4.20-rc1-lowzone.toml")),
    ("linux-4.20-rc1-lowzone-v5", include_str!("../../../kernels/linux-4.20-rc1-lowzone-v5.toml")),
    ("linux-4.20-rc1-queue", include_str!("../../../kernels/linux-4.20-rc1-queue.toml")),
    ("linux-4.20-rc1-stall", include_str!("../../../kernels/linux-4.20-rc1-stall.toml")),
    ("linux-4.20-rc1-stall-v4", include_str!("../../../kernels/linux-4.20-rc1-stall-v4.toml")),
    ("linux-4.20-rc1-stall-v5", include_str!("../../../kernels/linux-4.20-rc1-stall-v5.toml")),
    ("linux-4.4", include_str!("../../../kernels/linux-4.4.toml")),
    ("linux-4.4-kcompactd", include_str!("../../../kernels/linux-4.4-kcompactd.toml")),
    ("linux-4.4-nodefrag", include_str!("../../../kernels/linux-4.4-nodefrag.toml")),
    ("linux-4.5", include_str!("../../../kernels/linux-4.5.toml")),
    ("linux-4.6", include_str!("../../../kernels/linux-4.6.toml")),
    ("linux-5.0", include_str!("../../../kernels/linux-5.0.toml")),
    ("linux-5.1", include_str!("../../../kernels/linux-5.1.toml")),
    ("linux-5.1-local-cheap", include_str!("../../../kernels/linux-5.1-local-cheap.toml")),
    ("linux-5.1-revert", include_str!("../../../kernels/linux-5.1-revert.toml")),
    ("linux-5.4", include_str!("../../../kernels/linux-5.4.toml")),
    ("linux-6.1", include_str!("../../../kernels/linux-6.1.toml")),
    ("linux-6.12", include_str!("../../../kernels/linux-6.12.toml")),
    ("linux-6.12-mixing", include_str!("../../../kernels/linux-6.12-mixing.toml")),
    ("linux-6.12-order-0-lists", include_str!("../../../kernels/linux-6.12-order-0-lists.toml")),
    ("linux-6.12-ungrouped", include_str!("../../../kernels/linux-6.12-ungrouped.toml")),
];

/// The kernel's own limit of `batch_scale_max` (`CONFIG_PCP_BATCH_SCALE_MAX`, mm/Kconfig).
const BATCH_SCALE_LIMIT: u8 = 6;

/// A kernel: a name and the policy it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Name of the file, without its ending.
    pub name: String,
    /// The release it describes, as `uname -r` begins.
    pub release: String,
    /// One line for people.
    pub description: String,
    /// Its allocator's and reclaim's decisions.
    pub policy: Policy,
    /// Its flows' decisions: the slow path's, kswapd's, direct reclaim's.
    pub flows: Flows,
}

impl Kernel {
    /// The kernel of this name: a file's path, or one that comes with the program.
    ///
    /// # Errors
    /// The file and line of a misspelt, missing or impossible value.
    pub fn load(name: &str) -> Result<Self, InputError> {
        let sources = sources(name)?;
        let mut values = Values::default();
        for source in &sources {
            values = values.over(parse(source)?);
        }
        values.finish(&sources[0].name(), &sources[0].path)
    }

    /// Every value of this kernel with the file that sets it and the source that is named there.
    ///
    /// # Errors
    /// As [`Kernel::load`].
    pub fn explain(name: &str) -> Result<Explained, InputError> {
        // What is wrong with the values is found there.
        let kernel = Self::load(name)?;
        let sources = sources(name)?;
        let mut values = Vec::<ExplainedValue>::new();
        for source in sources.iter().rev() {
            let commented = commented_values(&source.text).map_err(|e| refuse(source, &e))?;
            for value in commented.into_iter().filter(|value| value.key.contains('.')) {
                let explained = ExplainedValue {
                    key: value.key,
                    value: value.text,
                    source: value.comment,
                    set_by: source.name(),
                    line: value.line,
                };
                match values.iter_mut().find(|known| known.key == explained.key) {
                    Some(known) => *known = explained,
                    None => values.push(explained),
                }
            }
        }
        let chain = sources.iter().map(Source::name).collect();
        let Self { name, release, description, .. } = kernel;
        Ok(Explained { name, release, description, chain, values })
    }

    /// A knob as this kernel boots with it; `None` if it has none.
    #[must_use]
    pub fn knob(&self, knob: &Knob) -> Option<KnobValue> {
        let mut parts = self.release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
        let release = (parts.next()?.ok()?, parts.next()?.ok()?);
        let is_known = knob.since.is_none_or(|since| release >= since);
        knob.on(&self.policy, &self.flows).filter(|_| is_known)
    }

    /// The kernel of this release among those that come with the program.
    ///
    /// # Errors
    /// Names the releases there are.
    pub fn for_release(release: &str) -> Result<Self, InputError> {
        let belongs = |name: &str| {
            let version = name.trim_start_matches("linux-");
            release
                .strip_prefix(version)
                .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        match BUILT_IN.iter().find(|(name, _)| belongs(name)) {
            Some((name, _)) => Self::load(name),
            None => Err(InputError::other(format!(
                "no kernel file for release {release}; there are {} (say which with --kernel)",
                names().join(", ")
            ))),
        }
    }
}

/// A kernel as its files tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// Name of the file, without its ending.
    pub name: String,
    /// The release it describes.
    pub release: String,
    /// One line for people.
    pub description: String,
    /// The files that set its values: its own, what that is based on, and so on.
    pub chain: Vec<String>,
    /// Its values in the order of the file that all others are based on.
    pub values: Vec<ExplainedValue>,
}

/// A value of a kernel, and where it is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedValue {
    /// Its table and key: `compaction.free_scan`.
    pub key: String,
    /// The value as the file has it.
    pub value: String,
    /// The comment beside it, which names its source.
    pub source: Option<String>,
    /// The file that sets it, one of the chain.
    pub set_by: String,
    /// The line of that file, counted from 1.
    pub line: usize,
}

impl ExplainedValue {
    /// The value as programs read it.
    #[must_use]
    pub fn parsed(&self) -> toml::Value {
        let text = || toml::Value::String(self.value.clone());
        self.value.parse().unwrap_or_else(|_| text())
    }
}

/// The names of the kernels that come with the program.
#[must_use]
pub fn names() -> Vec<&'static str> {
    BUILT_IN.iter().map(|(name, _)| *name).collect()
}

/// Kernel files.
const KIND: Kind = Kind { word: "kernel", built_in: &BUILT_IN };

/// The file of this kernel, what it is based on, and so on.
fn sources(name: &str) -> Result<Vec<Source>, InputError> {
    let base_of = |source: &Source| -> Result<_, InputError> {
        Ok(parse(source)?.based_on.map(|base| {
            let span = base.span();
            (base.into_inner(), span)
        }))
    };
    KIND.chain(KIND.find(name)?, base_of)
}

fn parse(source: &Source) -> Result<Values, InputError> {
    toml::from_str(&source.text).map_err(|error| refuse(source, &error))
}

fn refuse(source: &Source, error: &toml::de::Error) -> InputError {
    let message = highorder_names::shortened(error.message().trim_end());
    source.refuse(&error.span().unwrap_or_default(), message).into()
}

/// Defines a table of a kernel file: all values optional, unknown keys refused, one laid over another.
///
/// What a key decides is said where the decision is, or else here: docs/kernels.md is collected from both.
macro_rules! table {
    ($name:ident { $($(#[doc = $about:literal])* $field:ident: $type:ty),* $(,)? }) => {
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        struct $name { $($field: Option<$type>),* }

        impl $name {
            /// These values, and where one is missing the base's.
            fn over(self, base: Self) -> Self {
                Self { $($field: self.$field.or(base.$field)),* }
            }
        }
    };
}

table!(FreelistValues {
    max_order: u8,
    pageblock_order: u8,
    merge: MergeValue,
    list_type: ListTypeValue,
    split_large_frees: bool,
    mobility_grouping: bool,
    boot_to_tail: bool,
    init_on_alloc: bool,
    /// Where on the lists of the new type free pages of a pageblock go whose type changes (`move_freepages`).
    moved_to: EndValue,
});
table!(PcpValues {
    orders: PcpOrdersValue,
    high: PcpHighValue,
    drain: PcpDrainValue,
    batch_limit_pages: u32,
    batch_scale_max: u8,
    cold: bool,
});
table!(FallbackValues {
    rule: RuleValue,
    movable_min_order: u8,
    stall_order: u8,
    claim_min_pages: u32,
});
table!(ZoneValues {
    fair_batches: bool,
    fragment_avoidance: FragmentAvoidanceValue,
    zonelist_order: ZonelistOrderValue,
    dirty_percent: u32,
});
table!(WatermarkValues {
    min_free_kbytes_max: u64,
    thp_recommendation: bool,
    scale_factor: u32,
    boost_factor: u32,
    boost_single_steals: bool,
    boost_limit: BoostLimitValue,
    boost_wakes: BoostWakesValue,
    boost_small_zones: bool,
    boost_spares_urgent: bool,
    lowmem_reserve_ratio: [u32; 3],
    check: WatermarkCheckValue,
    urgency: UrgencyValue,
    reserve_blocks_max: u32,
});
table!(HighatomicValues {
    /// How much of a zone is kept for requests of higher orders that cannot wait (`MIGRATE_HIGHATOMIC`).
    reserve: ReserveValue,
});
table!(CompactionValues {
    target_search: TargetSearchValue,
    migrate_search: MigrateSearchValue,
    free_pages: FreePagesValue,
    free_scan: FreeScanValue,
    positions: PositionsValue,
    skip_hints: SkipHintsValue,
    sampled_reset: bool,
    flush_by: FlushByValue,
    async_sources: AsyncSourcesValue,
    skip_on_failure: bool,
    rescan: RescanValue,
    skip_huge_blocks: bool,
    asks_block_ends: bool,
    count_jumped: bool,
    count_taken: bool,
    target_head: TargetHeadValue,
    finish: FinishValue,
    suitable: SuitableValue,
    defer_by_order: bool,
    defer_shift_max: u8,
    extfrag_threshold: u16,
    queue_length: u8,
    isolate_mark: IsolateMarkValue,
    contention: ContentionValue,
    capture: bool,
    large_folios: bool,
    batched: bool,
    keeps_accessed: bool,
    writeback_needs_sync: bool,
    unevictable: bool,
    movable_ops: bool,
    isolated_limit: IsolatedLimitValue,
    kcompactd_ignores_hints: bool,
    proactiveness: u8,
    counters: CompactCountersValue,
});
table!(LruValues {
    kind: LruKindValue,
    scope: LruScopeValue,
    batch_pages: u8,
    batch_flushes_when_full: bool,
    activation: ActivationValue,
    batch_flushes_for_huge: bool,
    anon: AnonEntryValue,
    swapins_activate: bool,
    inactive_ratio: InactiveRatioValue,
    balance: BalanceValue,
    deactivate_on_refault: bool,
    scan_unit: ScanUnitValue,
    refaults: bool,
});
table!(ReclaimValues {
    swappiness: u8,
    busy_pages: BusyPagesValue,
    free_order: FreeOrderValue,
    huge_partial_unmap: HugePartialUnmapValue,
    huge_swapout: bool,
    proportional: bool,
    target_decrement: bool,
    freeing_restores_hope: bool,
    mode: HighOrderModeValue,
    lumpy: LumpyIsolationValue,
    file_writes: FileWritesValue,
    mapped_count_twice: bool,
});
table!(FilemapValues { fault_around_pages: u32 });
table!(SwapValues {
    cluster_pages: u32,
    slot_cache: bool,
    readahead: ReadaheadValue,
    page_cluster: u8,
});
table!(VmstatValues {
    reclaim_by_zone: bool,
    allocstall_by_zone: bool,
    reclaim_by_type: bool,
    khugepaged_apart: bool,
    thp_split_apart: bool,
    steal_apart: bool,
    workingset: bool,
    direct_throttle: bool,
    fragment_stall: bool,
    skip_congestion_wait: bool,
    numa_balancing: bool,
    thp_zero_page: bool,
    swap_ra: bool,
    kernel_stack_kib: bool,
    anon_counts_huge: bool,
    drops: bool,
});
table!(KswapdValues {
    balanced: BalancedValue,
    balance_gap_permille: u32,
    failures_max: u32,
    from_highest_unbalanced: bool,
    rounds: RoundsValue,
    woken_below: WokenBelowValue,
    marks_unreclaimable: bool,
    singles_suffice: bool,
    boosted_shrinks_slab: bool,
});
table!(SlowpathValues { retry: RetryValue, thisnode_exit: ThisnodeExitValue });
table!(DirectValues {
    repeats: bool,
    repeats_deactivating: bool,
    waits_for_devices: bool,
    continues: ContinuesValue,
    ready: ReadyValue,
});
table!(FilesValues {
    writes_mark_accessed: bool,
    splices_mark_accessed: bool,
    reads_whole_calls: bool,
    anon_dirtyable: bool,
    journal_shrinks: bool,
    wakes_flushers: WakesFlushersValue,
});
table!(ThpValues {
    enabled: EnabledValue,
    defrag: DefragValue,
    knows_defer: bool,
    knows_defer_madvise: bool,
    noretry: NoretryValue,
    numa: ThpNumaValue,
    zero_page: bool,
    aligns_mappings: bool,
    disable: ThpDisableValue,
});
table!(NumaValues { scan: NumaScanValue, default_on: bool, preferred_many: bool });
table!(MmapLockValues { per_vma: bool, unmap_downgrades: bool });
table!(CompactorsValues {
    direct: DirectCompactionValue,
    by_kswapd: bool,
    kcompactd: KcompactdValue,
    costly_exit: CostlyExitValue,
    deferred_counts: bool,
    withdrawn_asks_for_room: bool,
});
table!(KhugepagedValues {
    defrag: bool,
    pages_to_scan: u32,
    scan_sleep_ms: u32,
    alloc_sleep_ms: u32,
    max_ptes_none: u32,
    max_ptes_swap: u32,
    max_ptes_shared: u32,
    half_referenced: HalfReferencedValue,
    swapin_stops: bool,
});
table!(SlabValues {
    allocator: SlabAllocatorValue,
    high_order: HighOrderValue,
    order: SlabOrderValue,
    cpu_partial: CpuPartialValue,
    xfs_log_reclaimable: bool,
    dentry_bytes: u32,
    ext4_inode_bytes: u32,
    xfs_inode_bytes: u32,
    xfs_ili_bytes: u32,
    xfs_buf_bytes: u32,
    radix_tree_node_bytes: u32,
    buffer_head_bytes: u32,
});
table!(StackValues { order: u8, mapped: bool });
table!(ShrinkersValues {
    pressure: PressureValue,
    by_node: bool,
    shadow_nodes_shift: u32,
    inodes: InodesValue,
    first_use_references: bool,
    emptied_inodes_go: bool,
    unlink_keeps_dentry: bool,
    xfs_buffer_heads: bool,
});
table!(StallValues {
    rule: StallRuleValue,
    zone_congested: ZoneCongestedValue,
    kswapd_waits: bool,
    retry_waits: bool,
    writeout_limit: WriteoutLimitValue,
    for_reserves: bool,
    sync_pass: bool,
    swap_token: bool,
    fragment: FragmentStallValue,
});

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Values {
    release: Option<String>,
    based_on: Option<Spanned<String>>,
    description: Option<String>,
    freelist: FreelistValues,
    pcp: PcpValues,
    fallback: FallbackValues,
    zone: ZoneValues,
    watermark: WatermarkValues,
    highatomic: HighatomicValues,
    compaction: CompactionValues,
    lru: LruValues,
    reclaim: ReclaimValues,
    filemap: FilemapValues,
    swap: SwapValues,
    vmstat: VmstatValues,
    kswapd: KswapdValues,
    slowpath: SlowpathValues,
    direct: DirectValues,
    stall: StallValues,
    files: FilesValues,
    slab: SlabValues,
    stack: StackValues,
    shrinkers: ShrinkersValues,
    thp: ThpValues,
    khugepaged: KhugepagedValues,
    compactors: CompactorsValues,
    numa: NumaValues,
    mmap_lock: MmapLockValues,
}

/// Defines the words a value may take and what each stands for.
macro_rules! words {
    ($name:ident for $target:ty { $($word:literal $variant:ident => $value:expr),* $(,)? }) => {
        #[derive(Clone, Copy, Debug, Deserialize)]
        enum $name { $(#[serde(rename = $word)] $variant),* }

        impl From<$name> for $target {
            fn from(word: $name) -> Self {
                match word { $($name::$variant => $value),* }
            }
        }
    };
}

words!(MergeValue for Placement {
    "look-ahead" LookAhead => Self::LookAhead,
    "head" Head => Self::Head,
});
words!(ListTypeValue for ListType {
    "pageblock" Pageblock => Self::Pageblock,
    "remembered" Remembered => Self::Remembered,
});
words!(EndValue for End { "head" Head => Self::Head, "tail" Tail => Self::Tail });
words!(PcpOrdersValue for PcpOrders {
    "zero" Zero => Self::Zero,
    "costly-and-thp" CostlyAndThp => Self::CostlyAndThp,
});
words!(PcpHighValue for PcpHigh {
    "six-batches" SixBatches => Self::SixBatches,
    "low-watermark" LowWatermark => Self::LowWatermark,
    "auto-tuned" AutoTuned => Self::AutoTuned,
});
words!(PcpDrainValue for PcpDrain {
    "round-robin" RoundRobin => Self::RoundRobin,
    "round-robin-reclaimable-first" RoundRobinReclaimableFirst => Self::RoundRobinReclaimableFirst,
    "list-first" ListFirst => Self::ListFirst,
});
words!(FragmentAvoidanceValue for FragmentAvoidance {
    "off" Off => Self::Off,
    "lower-zone" LowerZone => Self::LowerZone,
    "lower-zone-then-on" LowerZoneThenOn => Self::LowerZoneThenOn,
    "lower-zone-then-on-if-kswapd" LowerZoneThenOnIfKswapd => Self::LowerZoneThenOnIfKswapd,
});
words!(BoostLimitValue for BoostLimit {
    "high" High => Self::High,
    "boosted-high" BoostedHigh => Self::BoostedHigh,
});
words!(BoostWakesValue for BoostWakes {
    "never" Never => Self::Never,
    "after-allocation" AfterAllocation => Self::AfterAllocation,
    "unheard" Unheard => Self::Unheard,
    "always" Always => Self::Always,
    "if-kswapd" IfKswapd => Self::IfKswapd,
});
words!(FragmentStallValue for FragmentStall {
    "off" Off => Self::Off,
    "tenth" Tenth => Self::Tenth,
    "fiftieth" Fiftieth => Self::Fiftieth,
    "fiftieth-then-all" FiftiethThenAll => Self::FiftiethThenAll,
});
words!(ZonelistOrderValue for ZonelistOrder {
    "node" Node => Self::Node,
    "found-at-boot" FoundAtBoot => Self::FoundAtBoot,
});
words!(WatermarkCheckValue for WatermarkCheck {
    "any-block" AnyBlock => Self::AnyBlock,
    "each-order" EachOrder => Self::EachOrder,
});
words!(UrgencyValue for Urgency {
    "high-then-non-blocking" HighThenNonBlocking => Self::HighThenNonBlocking,
    "atomic" Atomic => Self::Atomic,
    "non-blocking-alone" NonBlockingAlone => Self::NonBlockingAlone,
});
words!(ReserveValue for Highatomic {
    "off" Off => Self::Off,
    "percent-plus-block" PercentPlusBlock => Self::PercentPlusBlock,
    "percent-rounded-up" PercentRoundedUp => Self::PercentRoundedUp,
});
words!(TargetSearchValue for TargetSearch {
    "off" Off => Self::Off,
    "until-found" UntilFound => Self::UntilFound,
    "until-enough" UntilEnough => Self::UntilEnough,
});
words!(MigrateSearchValue for MigrateSearch {
    "off" Off => Self::Off,
    "mark-found" MarkFound => Self::MarkFound,
    "finish-blocks" FinishBlocks => Self::FinishBlocks,
});
words!(FreePagesValue for FreePages {
    "scanner" Scanner => Self::Scanner,
    "direct-held" DirectHeld => Self::DirectHeld,
    "direct-tail" DirectTail => Self::DirectTail { as_posted: false },
    "direct-tail-as-posted" DirectTailAsPosted => Self::DirectTail { as_posted: true },
});
words!(FreeScanValue for FreeScan {
    "whole-blocks" WholeBlocks => Self::WholeBlocks,
    "until-enough" UntilEnough => Self::UntilEnough,
    "until-mark" UntilMark => Self::UntilMark,
    "strided" Strided => Self::Strided,
});
words!(PositionsValue for Positions {
    "none" None => Self::None,
    "apart" Apart => Self::Apart,
    "together" Together => Self::Together,
});
words!(SkipHintsValue for SkipHints {
    "off" Off => Self::Off,
    "in-vain" InVain => Self::InVain,
    "first-page" FirstPage => Self::FirstPage,
    "first-scan" FirstScan => Self::FirstScan,
});
words!(FlushByValue for FlushBy {
    "all-but-kswapd" AllButKswapd => Self::AllButKswapd,
    "direct" Direct => Self::Direct,
});
words!(AsyncSourcesValue for AsyncSources {
    "movable" Movable => Self::Movable,
    "requested" Requested => Self::Requested,
});
words!(RescanValue for Rescan {
    "plain" Plain => Self::Plain,
    "whole" Whole => Self::Whole,
    "after-failure" AfterFailure => Self::AfterFailure,
});
words!(TargetHeadValue for TargetHead {
    "any" Any => Self::Any,
    "below-pageblock" BelowPageblock => Self::BelowPageblock,
    "below-request" BelowRequest => Self::BelowRequest,
});
words!(FinishValue for Finish {
    "mark-and-type" MarkAndType => Self::MarkAndType,
    "mark-and-steal" MarkAndSteal => Self::MarkAndSteal,
    "type-or-steal" TypeOrSteal => Self::TypeOrSteal,
    "between-blocks" BetweenBlocks => Self::BetweenBlocks,
});
words!(SuitableValue for Suitable {
    "room-first" RoomFirst => Self::RoomFirst,
    "low-mark" LowMark => Self::LowMark,
    "callers-mark" CallersMark => Self::CallersMark,
});
words!(IsolateMarkValue for IsolateMark {
    "low" Low => Self::Low,
    "min" Min => Self::Min,
    "bare-min" BareMin => Self::BareMin,
});
words!(ContentionValue for Contention {
    "abort" Abort => Self::Abort,
    "finish-block" FinishBlock => Self::FinishBlock,
});
words!(IsolatedLimitValue for IsolatedLimit {
    "half" Half => Self::Half,
    "sixteenth-with-fs" SixteenthWithFs => Self::SixteenthWithFs,
});
words!(CompactCountersValue for CompactCounters {
    "moved" Moved => Self::Moved,
    "scanned" Scanned => Self::Scanned,
    "daemon-wake" DaemonWake => Self::DaemonWake,
    "daemon-scanned" DaemonScanned => Self::DaemonScanned,
});
words!(LruKindValue for LruKind {
    "classic" Classic => Self::Classic,
    "multi-generational" MultiGenerational => Self::MultiGenerational,
});
words!(LruScopeValue for LruScope { "zone" Zone => Self::Zone, "node" Node => Self::Node });
words!(ActivationValue for Activation { "at-once" AtOnce => Self::AtOnce, "batched" Batched => Self::Batched });
words!(AnonEntryValue for AnonEntry {
    "active" Active => Self::Active,
    "inactive" Inactive => Self::Inactive,
});
words!(InactiveRatioValue for InactiveRatio {
    "zone-size" ZoneSize => Self::ZoneSize,
    "list-size" ListSize => Self::ListSize,
});
words!(BalanceValue for Balance {
    "rotated-always" RotatedAlways => Self::RotatedAlways,
    "rotated" Rotated => Self::Rotated,
    "written" Written => Self::Written,
    "written-and-rotated" WrittenAndRotated => Self::WrittenAndRotated,
});
words!(ScanUnitValue for ScanUnit {
    "entry-unbounded" EntryUnbounded => Self::EntryUnbounded,
    "entry" Entry => Self::Entry,
    "page" Page => Self::Page,
});
words!(BusyPagesValue for BusyPages {
    "keep" Keep => Self::Keep,
    "activate" Activate => Self::Activate,
});
words!(FreeOrderValue for FreeOrder {
    "last-first" LastFirst => Self::LastFirst,
    "first-first" FirstFirst => Self::FirstFirst,
});
words!(HugePartialUnmapValue for HugePartialUnmap {
    "split" Split => Self::Split,
    "defer" Defer => Self::Defer,
});
words!(FileWritesValue for FileWrites {
    "low-priority" LowPriority => Self::LowPriority,
    "many-dirty" ManyDirty => Self::ManyDirty,
    "many-dirty-seen-twice" ManyDirtySeenTwice => Self::ManyDirtySeenTwice,
});
words!(HighOrderModeValue for HighOrderMode {
    "none" None => Self::None,
    "compaction" Compaction => Self::Compaction,
    "lumpy" Lumpy => Self::Lumpy,
});
words!(LumpyIsolationValue for LumpyIsolation {
    "never" Never => Self::Never,
    "in-mode" InMode => Self::InMode,
    "any-order" AnyOrder => Self::AnyOrder,
});
words!(ReadaheadValue for Readahead {
    "whole-window" WholeWindow => Self::WholeWindow,
    "slots" Slots => Self::Slots,
    "addresses" Addresses => Self::Addresses,
});
words!(BalancedValue for Balanced {
    "all-zones" AllZones => Self::AllZones,
    "any-zone" AnyZone => Self::AnyZone,
});
words!(RoundsValue for Rounds {
    "until-balanced" UntilBalanced => Self::UntilBalanced,
    "by-cluster" ByCluster => Self::ByCluster,
});
words!(WokenBelowValue for WokenBelow { "low" Low => Self::Low, "high" High => Self::High });
words!(ThisnodeExitValue for ThisnodeExit {
    "full" Full => Self::Full,
    "without-reclaim" WithoutReclaim => Self::WithoutReclaim,
    "never" Never => Self::Never,
});
words!(ZoneCongestedValue for ZoneCongested {
    "never" Never => Self::Never,
    "all-refused" AllRefused => Self::AllRefused,
});
words!(WriteoutLimitValue for WriteoutLimit {
    "dirty" Dirty => Self::Dirty,
    "smoothed" Smoothed => Self::Smoothed,
    "off" Off => Self::Off,
});
words!(RetryValue for Retry {
    "always" Always => Self::Always,
    "while-progress" WhileProgress => Self::WhileProgress,
    "no-progress-loops" NoProgressLoops => Self::NoProgressLoops,
});
words!(ContinuesValue for Continues {
    "until-kept" Kept => Self::Kept,
    "until-kept-or-aged" KeptOrAged => Self::KeptOrAged,
    "until-gap" Gap => Self::Gap,
    "until-suitable" Suitable => Self::Suitable,
});
words!(ReadyValue for Ready {
    "passes-over" PassesOver => Self::PassesOver,
    "ends" Ends => Self::Ends,
});
words!(DirectCompactionValue for DirectCompaction {
    "async-then-sync" AsyncThenSync => Self::AsyncThenSync,
    "async-unless-deferred" AsyncUnlessDeferred => Self::AsyncUnlessDeferred,
    "priorities" Priorities => Self::Priorities,
});
words!(KcompactdValue for KcompactdWake {
    "never" Never => Self::Never,
    "below-highest" BelowHighest => Self::BelowHighest,
    "before-doze" BeforeDoze => Self::BeforeDoze,
});
words!(CostlyExitValue for CostlyExit {
    "huge-deferred" HugeDeferred => Self::HugeDeferred,
    "deferred" Deferred => Self::Deferred,
    "skipped-huge" SkippedHuge => Self::SkippedHuge,
    "skipped" Skipped => Self::Skipped,
    "skipped-or-thisnode" SkippedOrThisnode => Self::SkippedOrThisnode,
});
words!(EnabledValue for Enabled {
    "always" Always => Self::Always,
    "madvise" Madvise => Self::Madvise,
    "never" Never => Self::Never,
});
words!(DefragValue for Defrag {
    "always" Always => Self::Always,
    "defer" Defer => Self::Defer,
    "defer+madvise" DeferMadvise => Self::DeferMadvise,
    "madvise" Madvise => Self::Madvise,
    "never" Never => Self::Never,
});
words!(NoretryValue for DefragNoretry {
    "always" Always => Self::Always,
    "not-advised" NotAdvised => Self::NotAdvised,
});
words!(ThpNumaValue for ThpNuma {
    "anywhere" Anywhere => Self::Anywhere,
    "thisnode-reclaim" ThisnodeReclaim => Self::ThisnodeReclaim,
    "remote-allowed" RemoteAllowed => Self::RemoteAllowed,
    "local-then-all" LocalThenAll => Self::LocalThenAll,
    "local-then-allowed" LocalThenAllowed => Self::LocalThenAllowed,
    "thisnode-cheap" ThisnodeCheap => Self::ThisnodeCheap,
});
words!(NumaScanValue for NumaScan {
    "none" None => Self::None,
    "all" All => Self::All,
    "spares-local" SparesLocal => Self::SparesLocal,
});
words!(HalfReferencedValue for HalfReferenced {
    "swapped" Swapped => Self::Swapped,
    "all" All => Self::All,
});
words!(ThpDisableValue for ThpDisable {
    "unknown" Unknown => Self::Unknown,
    "later-mappings" LaterMappings => Self::LaterMappings,
    "at-once" AtOnce => Self::AtOnce,
});
words!(WakesFlushersValue for WakesFlushers {
    "scanned-much" ScannedMuch => Self::ScannedMuch,
    "all-dirty" AllDirty => Self::AllDirty,
});
words!(SlabAllocatorValue for SlabAllocator {
    "slub" Slub => Self::Slub,
    "slab" Slab => Self::Slab,
});
words!(HighOrderValue for HighOrder {
    "may-reclaim" MayReclaim => Self::MayReclaim,
    "may-wake-kswapd" MayWakeKswapd => Self::MayWakeKswapd,
    "neither" Neither => Self::Neither,
});
words!(SlabOrderValue for SlabOrder {
    "fewer-objects" FewerObjects => Self::FewerObjects,
    "more-waste" MoreWaste => Self::MoreWaste,
});
words!(CpuPartialValue for CpuPartial {
    "objects" Objects => Self::Objects,
    "slabs" Slabs => Self::Slabs,
});
words!(PressureValue for SlabPressure {
    "per-pass" PerPass => Self::PerPass,
    "by-zone" ByZone => Self::ByZone,
    "by-priority" ByPriority => Self::ByPriority,
    "by-priority-or-batch" ByPriorityOrBatch => Self::ByPriorityOrBatch,
    "by-priority-throughout" ByPriorityThroughout => Self::ByPriorityThroughout,
});
words!(InodesValue for InodeLists {
    "all" All => Self::All,
    "all-keeping-pages" AllKeepingPages => Self::AllKeepingPages,
    "unpopulated" Unpopulated => Self::Unpopulated,
});
words!(StallRuleValue for StallRule {
    "congestion-by-share" CongestionByShare => Self::CongestionByShare,
    "congestion" Congestion => Self::Congestion,
    "throttle" Throttle => Self::Throttle,
});

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RuleValue {
    MoveOrTake,
    MoveAndSplit,
    MoveAndRetry,
    ClaimThenSteal,
    Never,
}

impl Values {
    fn over(self, base: Self) -> Self {
        Self {
            release: self.release.or(base.release),
            based_on: base.based_on,
            description: self.description.or(base.description),
            freelist: self.freelist.over(base.freelist),
            pcp: self.pcp.over(base.pcp),
            fallback: self.fallback.over(base.fallback),
            zone: self.zone.over(base.zone),
            watermark: self.watermark.over(base.watermark),
            highatomic: self.highatomic.over(base.highatomic),
            compaction: self.compaction.over(base.compaction),
            lru: self.lru.over(base.lru),
            reclaim: self.reclaim.over(base.reclaim),
            filemap: self.filemap.over(base.filemap),
            swap: self.swap.over(base.swap),
            vmstat: self.vmstat.over(base.vmstat),
            kswapd: self.kswapd.over(base.kswapd),
            slowpath: self.slowpath.over(base.slowpath),
            direct: self.direct.over(base.direct),
            stall: self.stall.over(base.stall),
            files: self.files.over(base.files),
            slab: self.slab.over(base.slab),
            stack: self.stack.over(base.stack),
            shrinkers: self.shrinkers.over(base.shrinkers),
            thp: self.thp.over(base.thp),
            khugepaged: self.khugepaged.over(base.khugepaged),
            compactors: self.compactors.over(base.compactors),
            numa: self.numa.over(base.numa),
            mmap_lock: self.mmap_lock.over(base.mmap_lock),
        }
    }

    fn finish(self, name: &str, path: &Path) -> Result<Kernel, InputError> {
        macro_rules! need {
            ($table:ident.$field:ident) => {
                self.$table.$field.ok_or_else(|| {
                    InputError::file(
                        path,
                        concat!(
                            "`",
                            stringify!($table),
                            ".",
                            stringify!($field),
                            "` is set neither here nor in what this file is based on"
                        ),
                    )
                })?
            };
        }
        let order = |key: &str, value: u8| {
            if value <= MAX_PAGE_ORDER {
                Ok(Order(value))
            } else {
                let text =
                    format!("`{key}` is {value}, expected 0..={MAX_PAGE_ORDER} (MAX_PAGE_ORDER)");
                Err(InputError::file(path, text))
            }
        };
        let within = |key: &str, value: u32, least: u32, most: u32| {
            if (least..=most).contains(&value) {
                Ok(value)
            } else {
                let text = format!("`{key}` is {value}, expected {least}..={most}");
                Err(InputError::file(path, text))
            }
        };
        let max_order = order("freelist.max_order", need!(freelist.max_order))?;
        let pageblock_order = order("freelist.pageblock_order", need!(freelist.pageblock_order))?;
        if pageblock_order > max_order {
            let text = format!(
                "`freelist.pageblock_order` is {pageblock_order}, expected at most `freelist.max_order`, {max_order}"
            );
            return Err(InputError::file(path, text));
        }
        let batch_scale_max = need!(pcp.batch_scale_max);
        if batch_scale_max > BATCH_SCALE_LIMIT {
            let text = format!(
                "`pcp.batch_scale_max` is {batch_scale_max}, expected 0..={BATCH_SCALE_LIMIT}"
            );
            return Err(InputError::file(path, text));
        }
        let rule = match need!(fallback.rule) {
            RuleValue::MoveOrTake => FallbackRule::MoveOrTake,
            RuleValue::MoveAndSplit => FallbackRule::MoveAndSplit,
            RuleValue::MoveAndRetry => {
                FallbackRule::MoveAndRetry { moved_to: need!(freelist.moved_to).into() }
            }
            RuleValue::ClaimThenSteal => FallbackRule::ClaimThenSteal,
            RuleValue::Never => FallbackRule::Never,
        };
        let power_of_two = |key: &str, value: u32| {
            if value.is_power_of_two() {
                Ok(value)
            } else {
                let text = format!("`{key}` is {value}, expected a power of two");
                Err(InputError::file(path, text))
            }
        };
        // As many entries as a table may hold back from; 0 where the kernel has no such knob.
        let entries = |key: &str, value: u32| {
            within(key, value, 0, 511).map(|most| (most > 0).then_some(most))
        };
        // As many bytes as an object of a generic cache may have.
        let object = |key: &str, value: u32| within(key, value, 8, 8192);
        let policy = Policy {
            freelist: Freelist {
                max_order,
                pageblock_order,
                merge: need!(freelist.merge).into(),
                list_type: need!(freelist.list_type).into(),
                split_large_frees: need!(freelist.split_large_frees),
                mobility_grouping: need!(freelist.mobility_grouping),
                boot_to_tail: need!(freelist.boot_to_tail),
                init_on_alloc: need!(freelist.init_on_alloc),
            },
            pcp: Pcp {
                orders: need!(pcp.orders).into(),
                high: need!(pcp.high).into(),
                drain: need!(pcp.drain).into(),
                batch_limit: need!(pcp.batch_limit_pages),
                batch_scale_max,
                cold: need!(pcp.cold),
            },
            fallback: Fallback {
                rule,
                movable_min_order: order(
                    "fallback.movable_min_order",
                    need!(fallback.movable_min_order),
                )?,
                stall_order: order("fallback.stall_order", need!(fallback.stall_order))?,
                claim_min_pages: need!(fallback.claim_min_pages),
            },
            zone: Zone {
                fair_batches: need!(zone.fair_batches),
                fragment_avoidance: need!(zone.fragment_avoidance).into(),
                zonelist_order: need!(zone.zonelist_order).into(),
                dirty_percent: within("zone.dirty_percent", need!(zone.dirty_percent), 0, 100)?,
            },
            watermark: Watermark {
                min_free_kbytes_max: need!(watermark.min_free_kbytes_max),
                thp_recommendation: need!(watermark.thp_recommendation),
                // 0 stands for "no such knob": the distance is then a quarter of min alone.
                scale_factor: Some(need!(watermark.scale_factor)).filter(|&scale| scale > 0),
                boost_factor: need!(watermark.boost_factor),
                boost_single_steals: need!(watermark.boost_single_steals),
                boost_limit: need!(watermark.boost_limit).into(),
                boost_wakes: need!(watermark.boost_wakes).into(),
                boost_small_zones: need!(watermark.boost_small_zones),
                boost_spares_urgent: need!(watermark.boost_spares_urgent),
                lowmem_reserve_ratio: need!(watermark.lowmem_reserve_ratio),
                check: need!(watermark.check).into(),
                urgency: need!(watermark.urgency).into(),
                reserve_blocks_max: need!(watermark.reserve_blocks_max),
            },
            highatomic: need!(highatomic.reserve).into(),
            compaction: Compaction {
                target_search: need!(compaction.target_search).into(),
                migrate_search: need!(compaction.migrate_search).into(),
                free_pages: need!(compaction.free_pages).into(),
                free_scan: need!(compaction.free_scan).into(),
                positions: need!(compaction.positions).into(),
                skip_hints: need!(compaction.skip_hints).into(),
                sampled_reset: need!(compaction.sampled_reset),
                flush_by: need!(compaction.flush_by).into(),
                async_sources: need!(compaction.async_sources).into(),
                skip_on_failure: need!(compaction.skip_on_failure),
                rescan: need!(compaction.rescan).into(),
                skip_huge_blocks: need!(compaction.skip_huge_blocks),
                asks_block_ends: need!(compaction.asks_block_ends),
                count_jumped: need!(compaction.count_jumped),
                count_taken: need!(compaction.count_taken),
                target_head: need!(compaction.target_head).into(),
                finish: need!(compaction.finish).into(),
                suitable: need!(compaction.suitable).into(),
                defer_by_order: need!(compaction.defer_by_order),
                defer_shift_max: within(
                    "compaction.defer_shift_max",
                    u32::from(need!(compaction.defer_shift_max)),
                    0,
                    31,
                )? as u8,
                extfrag_threshold: within(
                    "compaction.extfrag_threshold",
                    u32::from(need!(compaction.extfrag_threshold)),
                    0,
                    1000,
                )? as u16,
                queue_length: need!(compaction.queue_length),
                isolate_mark: need!(compaction.isolate_mark).into(),
                contention: need!(compaction.contention).into(),
                capture: need!(compaction.capture),
                large_folios: need!(compaction.large_folios),
                batched: need!(compaction.batched),
                keeps_accessed: need!(compaction.keeps_accessed),
                writeback_needs_sync: need!(compaction.writeback_needs_sync),
                unevictable: need!(compaction.unevictable),
                movable_ops: need!(compaction.movable_ops),
                isolated_limit: need!(compaction.isolated_limit).into(),
                kcompactd_ignores_hints: need!(compaction.kcompactd_ignores_hints),
                proactiveness: within(
                    "compaction.proactiveness",
                    u32::from(need!(compaction.proactiveness)),
                    0,
                    100,
                )? as u8,
                counters: need!(compaction.counters).into(),
            },
            lru: Lru {
                kind: need!(lru.kind).into(),
                scope: need!(lru.scope).into(),
                batch: within("lru.batch_pages", u32::from(need!(lru.batch_pages)), 1, 254)? as u8,
                batch_flushes_when_full: need!(lru.batch_flushes_when_full),
                activation: need!(lru.activation).into(),
                batch_flushes_for_huge: need!(lru.batch_flushes_for_huge),
                anon: need!(lru.anon).into(),
                inactive_ratio: need!(lru.inactive_ratio).into(),
                balance: need!(lru.balance).into(),
                deactivate_on_refault: need!(lru.deactivate_on_refault),
                scan_unit: need!(lru.scan_unit).into(),
                refaults: need!(lru.refaults),
                swapins_activate: need!(lru.swapins_activate),
            },
            reclaim: Reclaim {
                swappiness: within(
                    "reclaim.swappiness",
                    u32::from(need!(reclaim.swappiness)),
                    0,
                    200,
                )? as u8,
                busy_pages: need!(reclaim.busy_pages).into(),
                free_order: need!(reclaim.free_order).into(),
                huge_partial_unmap: need!(reclaim.huge_partial_unmap).into(),
                huge_swapout: need!(reclaim.huge_swapout),
                proportional: need!(reclaim.proportional),
                target_decrement: need!(reclaim.target_decrement),
                freeing_restores_hope: need!(reclaim.freeing_restores_hope),
                mode: need!(reclaim.mode).into(),
                lumpy: need!(reclaim.lumpy).into(),
                file_writes: need!(reclaim.file_writes).into(),
                mapped_count_twice: need!(reclaim.mapped_count_twice),
            },
            filemap: Filemap {
                fault_around_pages: power_of_two(
                    "filemap.fault_around_pages",
                    within(
                        "filemap.fault_around_pages",
                        need!(filemap.fault_around_pages),
                        1,
                        512,
                    )?,
                )?,
            },
            slab: Slab {
                allocator: need!(slab.allocator).into(),
                high_order: need!(slab.high_order).into(),
                order: need!(slab.order).into(),
                cpu_partial: need!(slab.cpu_partial).into(),
                xfs_log_reclaimable: need!(slab.xfs_log_reclaimable),
                dentry_bytes: object("slab.dentry_bytes", need!(slab.dentry_bytes))?,
                ext4_inode_bytes: object("slab.ext4_inode_bytes", need!(slab.ext4_inode_bytes))?,
                xfs_inode_bytes: object("slab.xfs_inode_bytes", need!(slab.xfs_inode_bytes))?,
                xfs_ili_bytes: object("slab.xfs_ili_bytes", need!(slab.xfs_ili_bytes))?,
                xfs_buf_bytes: object("slab.xfs_buf_bytes", need!(slab.xfs_buf_bytes))?,
                radix_tree_node_bytes: object(
                    "slab.radix_tree_node_bytes",
                    need!(slab.radix_tree_node_bytes),
                )?,
                buffer_head_bytes: object("slab.buffer_head_bytes", need!(slab.buffer_head_bytes))?,
            },
            stack: Stack {
                order: order("stack.order", need!(stack.order))?,
                mapped: need!(stack.mapped),
            },
            swap: Swap {
                cluster: within("swap.cluster_pages", need!(swap.cluster_pages), 1, 1 << 16)?,
                slot_cache: need!(swap.slot_cache),
                readahead: need!(swap.readahead).into(),
                page_cluster: within(
                    "swap.page_cluster",
                    u32::from(need!(swap.page_cluster)),
                    0,
                    5,
                )? as u8,
            },
            vmstat: Vmstat {
                reclaim_by_zone: need!(vmstat.reclaim_by_zone),
                allocstall_by_zone: need!(vmstat.allocstall_by_zone),
                reclaim_by_type: need!(vmstat.reclaim_by_type),
                khugepaged_apart: need!(vmstat.khugepaged_apart),
                thp_split_apart: need!(vmstat.thp_split_apart),
                steal_apart: need!(vmstat.steal_apart),
                workingset: need!(vmstat.workingset),
                direct_throttle: need!(vmstat.direct_throttle),
                fragment_stall: need!(vmstat.fragment_stall),
                skip_congestion_wait: need!(vmstat.skip_congestion_wait),
                numa_balancing: need!(vmstat.numa_balancing),
                thp_zero_page: need!(vmstat.thp_zero_page),
                swap_ra: need!(vmstat.swap_ra),
                kernel_stack_kib: need!(vmstat.kernel_stack_kib),
                anon_counts_huge: need!(vmstat.anon_counts_huge),
                drops: need!(vmstat.drops),
            },
        };
        let flows = Flows {
            kswapd: Kswapd {
                balanced: need!(kswapd.balanced).into(),
                balance_gap_permille: within(
                    "kswapd.balance_gap_permille",
                    need!(kswapd.balance_gap_permille),
                    0,
                    1000,
                )?,
                // 0 stands for "no such limit": zones are then given up one by one.
                failures_max: Some(need!(kswapd.failures_max)).filter(|&failures| failures > 0),
                from_highest_unbalanced: need!(kswapd.from_highest_unbalanced),
                rounds: need!(kswapd.rounds).into(),
                woken_below: need!(kswapd.woken_below).into(),
                marks_unreclaimable: need!(kswapd.marks_unreclaimable),
                singles_suffice: need!(kswapd.singles_suffice),
                boosted_shrinks_slab: need!(kswapd.boosted_shrinks_slab),
            },
            slowpath: Slowpath {
                retry: need!(slowpath.retry).into(),
                thisnode_exit: need!(slowpath.thisnode_exit).into(),
            },
            direct: Direct {
                repeats: need!(direct.repeats),
                repeats_deactivating: need!(direct.repeats_deactivating),
                waits_for_devices: need!(direct.waits_for_devices),
                continues: need!(direct.continues).into(),
                ready: need!(direct.ready).into(),
            },
            stall: Stall {
                rule: need!(stall.rule).into(),
                zone_congested: need!(stall.zone_congested).into(),
                kswapd_waits: need!(stall.kswapd_waits),
                retry_waits: need!(stall.retry_waits),
                writeout_limit: need!(stall.writeout_limit).into(),
                for_reserves: need!(stall.for_reserves),
                sync_pass: need!(stall.sync_pass),
                swap_token: need!(stall.swap_token),
                fragment: need!(stall.fragment).into(),
            },
            files: Files {
                writes_mark_accessed: need!(files.writes_mark_accessed),
                splices_mark_accessed: need!(files.splices_mark_accessed),
                reads_whole_calls: need!(files.reads_whole_calls),
                anon_dirtyable: need!(files.anon_dirtyable),
                journal_shrinks: need!(files.journal_shrinks),
                wakes_flushers: need!(files.wakes_flushers).into(),
            },
            compaction: Compactors {
                direct: need!(compactors.direct).into(),
                by_kswapd: need!(compactors.by_kswapd),
                kcompactd: need!(compactors.kcompactd).into(),
                costly_exit: need!(compactors.costly_exit).into(),
                deferred_counts: need!(compactors.deferred_counts),
                withdrawn_asks_for_room: need!(compactors.withdrawn_asks_for_room),
            },
            slab: Shrinkers {
                pressure: need!(shrinkers.pressure).into(),
                by_node: need!(shrinkers.by_node),
                shadow_nodes_shift: match need!(shrinkers.shadow_nodes_shift) {
                    0 => None,
                    shift => Some(within("shrinkers.shadow_nodes_shift", shift, 1, 16)?),
                },
                inodes: need!(shrinkers.inodes).into(),
                first_use_references: need!(shrinkers.first_use_references),
                emptied_inodes_go: need!(shrinkers.emptied_inodes_go),
                unlink_keeps_dentry: need!(shrinkers.unlink_keeps_dentry),
                xfs_buffer_heads: need!(shrinkers.xfs_buffer_heads),
            },
            thp: Thp {
                knobs: ThpKnobs {
                    enabled: need!(thp.enabled).into(),
                    defrag: need!(thp.defrag).into(),
                    use_zero_page: true,
                    khugepaged: KhugepagedKnobs {
                        defrag: need!(khugepaged.defrag),
                        pages_to_scan: need!(khugepaged.pages_to_scan),
                        scan_sleep: Ns::from_millis(need!(khugepaged.scan_sleep_ms).into()),
                        alloc_sleep: Ns::from_millis(need!(khugepaged.alloc_sleep_ms).into()),
                        max_ptes_none: within(
                            "khugepaged.max_ptes_none",
                            need!(khugepaged.max_ptes_none),
                            0,
                            511,
                        )?,
                        max_ptes_swap: entries(
                            "khugepaged.max_ptes_swap",
                            need!(khugepaged.max_ptes_swap),
                        )?,
                        max_ptes_shared: entries(
                            "khugepaged.max_ptes_shared",
                            need!(khugepaged.max_ptes_shared),
                        )?,
                    },
                },
                knows_defer: need!(thp.knows_defer),
                knows_defer_madvise: need!(thp.knows_defer_madvise),
                noretry: need!(thp.noretry).into(),
                numa: need!(thp.numa).into(),
                zero_page: need!(thp.zero_page),
                aligns_mappings: need!(thp.aligns_mappings),
                disable: need!(thp.disable).into(),
                half_referenced: need!(khugepaged.half_referenced).into(),
                swapin_stops: need!(khugepaged.swapin_stops),
            },
            numa: NumaBalancing {
                scan: need!(numa.scan).into(),
                default_on: need!(numa.default_on),
                preferred_many: need!(numa.preferred_many),
            },
            mmap_lock: MmapLocking {
                per_vma: need!(mmap_lock.per_vma),
                unmap_downgrades: need!(mmap_lock.unmap_downgrades),
            },
        };
        Ok(Kernel {
            name: name.to_owned(),
            release: self.release.unwrap_or_default(),
            description: self.description.unwrap_or_default(),
            policy,
            flows,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highorder_system::model::knobs;

    fn written(text: &str) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        std::fs::write(&path, text).unwrap();
        (folder, path.to_str().unwrap().to_owned())
    }

    #[test]
    fn every_kernel_that_comes_with_the_program_loads() {
        for (name, _) in BUILT_IN {
            assert_eq!(Kernel::load(name).unwrap().name, name);
        }
    }

    #[test]
    fn a_file_overrides_what_it_is_based_on_and_nothing_else() {
        let base = Kernel::load("linux-6.12").unwrap();
        let (_folder, path) = written("based_on = \"linux-6.12\"\n[watermark]\nboost_factor = 0\n");
        let mine = Kernel::load(&path).unwrap();
        assert_eq!(mine.name, "mine");
        assert_eq!(mine.policy.watermark.boost_factor, 0);
        let mut restored = mine.policy;
        restored.watermark.boost_factor = base.policy.watermark.boost_factor;
        assert_eq!(restored, base.policy);
    }

    #[test]
    fn a_misspelt_policy_is_named_with_its_line() {
        let (_folder, path) = written("based_on = \"linux-6.12\"\n\n[freelist]\nmerg = \"head\"\n");
        let error = Kernel::load(&path).unwrap_err().to_string();
        assert!(error.contains("mine.toml:4: unknown field `merg`"), "{error}");
    }

    #[test]
    fn a_word_no_policy_knows_is_named_with_its_line_and_the_words_there_are() {
        let (_folder, path) =
            written("based_on = \"linux-6.12\"\n[freelist]\nmerge = \"middle\"\n");
        let error = Kernel::load(&path).unwrap_err().to_string();
        assert!(error.contains("mine.toml:3: unknown variant `middle`"), "{error}");
        assert!(error.contains("look-ahead"), "{error}");
    }

    #[test]
    fn orders_and_scales_that_no_kernel_could_have_are_refused() {
        let refused = |lines: &str| {
            let (_folder, path) = written(&format!("based_on = \"linux-6.12\"\n{lines}"));
            Kernel::load(&path).unwrap_err().to_string()
        };
        let complaint = refused("[freelist]\nmax_order = 8\n");
        assert!(complaint.contains("`freelist.pageblock_order` is 9"), "{complaint}");
        let complaint = refused("[pcp]\nbatch_scale_max = 32\n");
        assert!(complaint.contains("`pcp.batch_scale_max` is 32"), "{complaint}");
    }

    #[test]
    fn flows_are_read_from_their_tables_and_overridden_alone() {
        let flows = |name| Kernel::load(name).unwrap().flows;
        assert_eq!(flows("linux-6.12").kswapd.failures_max, Some(16));
        assert_eq!(flows("linux-4.4").kswapd.failures_max, None, "0 stands for no limit");
        assert_eq!(flows("linux-4.4").stall.rule, StallRule::Congestion);
        let (_folder, path) =
            written("based_on = \"linux-6.12\"\n[stall]\nrule = \"congestion\"\n");
        let mine = flows(&path);
        let mut expected = flows("linux-6.12");
        expected.stall.rule = StallRule::Congestion;
        assert_eq!(mine, expected);
        let (_folder, path) =
            written("based_on = \"linux-6.12\"\n[kswapd]\nbalance_gap_permille = 1001\n");
        let complaint = Kernel::load(&path).unwrap_err().to_string();
        assert!(complaint.contains("`kswapd.balance_gap_permille` is 1001, expected 0..=1000"));
    }

    #[test]
    fn a_kernel_without_fast_searches_can_be_told() {
        let compaction = Kernel::load("linux-4.4").unwrap().policy.compaction;
        assert_eq!(compaction.target_search, TargetSearch::Off);
        assert_eq!(compaction.migrate_search, MigrateSearch::Off);
    }

    #[test]
    fn the_two_forms_of_direct_targets_differ_from_4_14_in_nothing_else() {
        let policy = |name| Kernel::load(name).unwrap().policy;
        let base = policy("linux-4.14");
        assert_eq!(base.compaction.free_pages, FreePages::Scanner);
        for (name, form) in [
            ("linux-4.14-direct-held", FreePages::DirectHeld),
            ("linux-4.14-direct-tail", FreePages::DirectTail { as_posted: false }),
        ] {
            let mut found = policy(name);
            assert_eq!(found.compaction.free_pages, form);
            found.compaction.free_pages = FreePages::Scanner;
            assert_eq!(found, base, "{name}");
        }
    }

    #[test]
    fn every_value_of_every_kernel_names_its_source() {
        let all = Kernel::explain("linux-6.12").unwrap().values.len();
        for name in names() {
            let explained = Kernel::explain(name).unwrap();
            assert_eq!(explained.values.len(), all, "{name}");
            for value in &explained.values {
                let source = value.source.as_deref().unwrap_or_default();
                assert!(source.len() > 3 && !source.starts_with("likewise"), "{name}: {value:?}");
                assert!(explained.chain.contains(&value.set_by), "{name}: {value:?}");
            }
        }
    }

    #[test]
    fn a_value_is_told_with_the_file_of_the_chain_that_sets_it() {
        let (_folder, path) =
            written("based_on = \"linux-6.1\"\n\n[watermark]\nboost_factor = 0   # our choice\n");
        let explained = Kernel::explain(&path).unwrap();
        assert_eq!(explained.chain, ["mine", "linux-6.1", "linux-6.12"]);
        assert_eq!(explained.release, "6.1");
        let value = |key: &str| explained.values.iter().find(|value| value.key == key).unwrap();
        let boost = ExplainedValue {
            key: "watermark.boost_factor".into(),
            value: "0".into(),
            source: Some("our choice".into()),
            set_by: "mine".into(),
            line: 4,
        };
        assert_eq!(*value("watermark.boost_factor"), boost);
        assert_eq!(value("lru.kind").set_by, "linux-6.1");
        assert_eq!(value("lru.kind").value, "\"classic\"");
        assert_eq!(value("freelist.max_order").set_by, "linux-6.12");
        assert_eq!(
            value("khugepaged.scan_sleep_ms").source.as_deref(),
            Some("mm/khugepaged.c: khugepaged_init")
        );
    }

    #[test]
    fn a_kernel_has_the_knobs_that_its_release_had() {
        let knob = |kernel: &str, name: &str| {
            let knob = Knob::find(name).unwrap();
            Kernel::load(kernel).unwrap().knob(knob)
        };
        let value = |default: &str, allowed: &str| {
            Some(KnobValue { default: Some(default.into()), allowed: allowed.into() })
        };
        assert_eq!(knob("linux-4.4", "vm.swappiness"), value("60", "a whole number, 0..=100"));
        assert_eq!(knob("linux-6.12", "vm.swappiness"), value("60", "a whole number, 0..=200"));
        for name in ["vm.watermark_scale_factor", "vm.watermark_boost_factor"] {
            assert_eq!(knob("linux-4.4", name), None, "{name}");
            assert!(knob("linux-6.12", name).is_some(), "{name}");
        }
        let defrag = "transparent_hugepage/defrag";
        assert_eq!(knob("linux-4.4", defrag), value("always", "always, madvise, never"));
        assert_eq!(
            knob("linux-6.12", defrag),
            value("madvise", "always, defer, defer+madvise, madvise, never")
        );
        let computed = knob("linux-6.12", "vm.min_free_kbytes").unwrap();
        assert_eq!(computed.default, None, "it depends on the machine");
        for (name, _) in BUILT_IN {
            let kernel = Kernel::load(name).unwrap();
            let known = knobs().iter().filter(|knob| kernel.knob(knob).is_some()).count();
            assert!(known >= 12, "{name}: {known}");
        }
    }

    #[test]
    fn a_near_miss_is_told_what_was_meant() {
        let refused = |name: &str| Kernel::load(name).unwrap_err().to_string();
        assert_eq!(refused("linux-6.22"), "no kernel `linux-6.22`, did you mean `linux-6.12`?");
        assert!(refused("plan-9").contains("expected one of linux-3.3, "));
        let (_folder, path) = written("based_on = \"linux-6.12\"\n\n[freelist]\nmerg = \"head\"\n");
        let error = refused(&path);
        assert!(
            error.ends_with("mine.toml:4: unknown field `merg`, did you mean `merge`?"),
            "{error}"
        );
    }

    #[test]
    fn a_circle_of_bases_is_an_error() {
        let (folder, path) = written("based_on = \"yours\"\n");
        std::fs::write(folder.path().join("yours.toml"), "based_on = \"mine\"\n").unwrap();
        let error = Kernel::load(&path).unwrap_err().to_string();
        assert!(error.contains("yours.toml:1: `based_on` goes round in a circle"), "{error}");
    }

    #[test]
    fn a_base_that_there_is_not_is_named_with_its_line() {
        let (_folder, path) = written("release = \"6.12\"\nbased_on = \"nothing\"\n");
        let error = Kernel::load(&path).unwrap_err().to_string();
        assert!(error.contains("mine.toml:2: `based_on`: no kernel `nothing`"), "{error}");
    }

    #[test]
    fn releases_find_their_kernel_file() {
        let name = |release| Kernel::for_release(release).map(|k| k.name);
        assert_eq!(name("6.12.107+deb12-cloud-amd64").unwrap(), "linux-6.12");
        assert_eq!(name("6.1.0-53-cloud-amd64").unwrap(), "linux-6.1");
        assert_eq!(name("4.4.302").unwrap(), "linux-4.4");
        // The kernels of the recorded cases of the documents' time.
        for (release, expected) in [
            ("3.3.8", "linux-3.3"),
            ("3.4.4", "linux-3.4"),
            ("3.5.0", "linux-3.5"),
            ("4.4.155", "linux-4.4"),
            ("4.5.0", "linux-4.5"),
            ("4.6.2", "linux-4.6"),
            ("4.20.0", "linux-4.20"),
            ("5.0.0", "linux-5.0"),
        ] {
            assert_eq!(name(release).unwrap(), expected);
        }
        assert!(name("4.49.1").is_err());
        assert!(name("6.18.1").is_err());
    }
}
