//! Kernel files: a kernel is a file of policy values, based on another one and overriding it.

use crate::InputError;
use highorder_mm::frame::End;
use highorder_mm::policy::{
    AnonEntry, Balance, BusyPages, Compaction, Fallback, FallbackRule, FreeOrder, Freelist,
    Highatomic, HugePartialUnmap, InactiveRatio, ListType, Lru, LruKind, LruScope, MigrateSearch,
    Pcp, PcpDrain, PcpHigh, PcpOrders, Placement, Policy, Readahead, Reclaim, ScanUnit, Swap,
    TargetSearch, Vmstat, Watermark, Zone,
};
use highorder_mm::types::{MAX_PAGE_ORDER, Order};
use highorder_sim::kernel::Flows;
use highorder_sim::kernel::policy::{
    Balanced, Direct, Files, Kswapd, Retry, Slowpath, Stall, StallRule,
};
use serde::Deserialize;
use std::path::Path;

/// The kernel files that come with the program, by name.
pub const BUILT_IN: [(&str, &str); 6] = [
    ("linux-4.4", include_str!("../../../kernels/linux-4.4.toml")),
    ("linux-6.1", include_str!("../../../kernels/linux-6.1.toml")),
    ("linux-6.12", include_str!("../../../kernels/linux-6.12.toml")),
    ("linux-6.12-mixing", include_str!("../../../kernels/linux-6.12-mixing.toml")),
    ("linux-6.12-order-0-lists", include_str!("../../../kernels/linux-6.12-order-0-lists.toml")),
    ("linux-6.12-ungrouped", include_str!("../../../kernels/linux-6.12-ungrouped.toml")),
];

/// Files that may be based on each other at most; more is a circle.
const BASES_MAX: usize = 32;

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
        let mut source = Source::find(name, None)?;
        let kernel_name = source.name();
        let mut values = source.parse()?;
        for _ in 0..BASES_MAX {
            let Some(base) = values.based_on.take() else {
                return values.finish(&kernel_name, &source.path);
            };
            source = Source::find(&base, Some(&source))?;
            values = values.over(source.parse()?);
        }
        Err(InputError::file(&source.path, "`based_on` goes round in a circle"))
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
                built_in_names()
            ))),
        }
    }
}

fn built_in_names() -> String {
    BUILT_IN.map(|(name, _)| name).join(", ")
}

/// Text of a kernel file and where it is from.
struct Source {
    path: std::path::PathBuf,
    text: String,
    /// Whether it came with the program: then its path is a name, and nothing is looked for beside it.
    is_built_in: bool,
}

impl Source {
    /// Looks for a path first (relative to the file that names it), then among what comes with the
    /// program.
    fn find(name: &str, named_in: Option<&Self>) -> Result<Self, InputError> {
        let path = Path::new(name);
        let is_path = path.extension().is_some_and(|e| e == "toml") || name.contains('/');
        if is_path {
            let path = match named_in.and_then(|s| s.path.parent()) {
                Some(folder) => folder.join(path),
                None => path.to_owned(),
            };
            let text = std::fs::read_to_string(&path)
                .map_err(|e| InputError::file(&path, format!("cannot be read: {e}")))?;
            return Ok(Self { path, text, is_built_in: false });
        }
        let folder = named_in.filter(|s| !s.is_built_in).and_then(|s| s.path.parent());
        let beside = folder.map(|f| f.join(format!("{name}.toml")));
        if let Some(path) = beside.filter(|p| p.is_file()) {
            let text = std::fs::read_to_string(&path)
                .map_err(|e| InputError::file(&path, format!("cannot be read: {e}")))?;
            return Ok(Self { path, text, is_built_in: false });
        }
        match BUILT_IN.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => {
                let path = format!("kernels/{name}.toml").into();
                Ok(Self { path, text: (*text).to_owned(), is_built_in: true })
            }
            None => Err(InputError::other(format!(
                "no kernel `{name}`; there are {}, or give a .toml file",
                built_in_names()
            ))),
        }
    }

    fn name(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn parse(&self) -> Result<Values, InputError> {
        toml::from_str(&self.text).map_err(|error| {
            let line = error.span().map_or(1, |span| {
                self.text[..span.start.min(self.text.len())].matches('\n').count() + 1
            });
            InputError::line(&self.path, line, error.message().trim_end())
        })
    }
}

/// Defines a table of a kernel file: all values optional, unknown keys refused, one laid over another.
macro_rules! table {
    ($name:ident { $($field:ident: $type:ty),* $(,)? }) => {
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
    moved_to: EndValue,
});
table!(PcpValues {
    orders: PcpOrdersValue,
    high: PcpHighValue,
    drain: PcpDrainValue,
    batch_limit_pages: u32,
    batch_scale_max: u8,
});
table!(FallbackValues { rule: RuleValue, movable_min_order: u8, claim_min_pages: u32 });
table!(ZoneValues { fair_batches: bool, fragment_avoidance: bool });
table!(WatermarkValues {
    min_free_kbytes_max: u64,
    thp_recommendation: bool,
    scale_factor: u32,
    boost_factor: u32,
    boost_single_steals: bool,
    lowmem_reserve_ratio: [u32; 3],
});
table!(HighatomicValues { reserve: ReserveValue });
table!(CompactionValues { target_search: TargetSearchValue, migrate_search: MigrateSearchValue });
table!(LruValues {
    kind: LruKindValue,
    scope: LruScopeValue,
    batch_pages: u8,
    batch_flushes_when_full: bool,
    anon: AnonEntryValue,
    inactive_ratio: InactiveRatioValue,
    balance: BalanceValue,
    deactivate_on_refault: bool,
    scan_unit: ScanUnitValue,
});
table!(ReclaimValues {
    swappiness: u8,
    busy_pages: BusyPagesValue,
    free_order: FreeOrderValue,
    huge_partial_unmap: HugePartialUnmapValue,
    huge_swapout: bool,
});
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
});
table!(KswapdValues {
    balanced: BalancedValue,
    balance_gap_permille: u32,
    failures_max: u32,
    from_highest_unbalanced: bool,
});
table!(SlowpathValues { retry: RetryValue, thisnode_early_exit: bool });
table!(DirectValues { repeats: bool, repeats_deactivating: bool });
table!(FilesValues { writes_mark_accessed: bool });
table!(StallValues { rule: StallRuleValue, writeout_limit: bool });

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Values {
    release: Option<String>,
    based_on: Option<String>,
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
    swap: SwapValues,
    vmstat: VmstatValues,
    kswapd: KswapdValues,
    slowpath: SlowpathValues,
    direct: DirectValues,
    stall: StallValues,
    files: FilesValues,
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
    "list-first" ListFirst => Self::ListFirst,
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
words!(LruKindValue for LruKind {
    "classic" Classic => Self::Classic,
    "multi-generational" MultiGenerational => Self::MultiGenerational,
});
words!(LruScopeValue for LruScope { "zone" Zone => Self::Zone, "node" Node => Self::Node });
words!(AnonEntryValue for AnonEntry {
    "active" Active => Self::Active,
    "inactive" Inactive => Self::Inactive,
});
words!(InactiveRatioValue for InactiveRatio {
    "zone-size" ZoneSize => Self::ZoneSize,
    "list-size" ListSize => Self::ListSize,
});
words!(BalanceValue for Balance {
    "rotated" Rotated => Self::Rotated,
    "written" Written => Self::Written,
    "written-and-rotated" WrittenAndRotated => Self::WrittenAndRotated,
});
words!(ScanUnitValue for ScanUnit { "entry" Entry => Self::Entry, "page" Page => Self::Page });
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
words!(ReadaheadValue for Readahead {
    "slots" Slots => Self::Slots,
    "addresses" Addresses => Self::Addresses,
});
words!(BalancedValue for Balanced {
    "all-zones" AllZones => Self::AllZones,
    "any-zone" AnyZone => Self::AnyZone,
});
words!(RetryValue for Retry {
    "while-progress" WhileProgress => Self::WhileProgress,
    "no-progress-loops" NoProgressLoops => Self::NoProgressLoops,
});
words!(StallRuleValue for StallRule {
    "congestion" Congestion => Self::Congestion,
    "throttle" Throttle => Self::Throttle,
});

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RuleValue {
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
            swap: self.swap.over(base.swap),
            vmstat: self.vmstat.over(base.vmstat),
            kswapd: self.kswapd.over(base.kswapd),
            slowpath: self.slowpath.over(base.slowpath),
            direct: self.direct.over(base.direct),
            stall: self.stall.over(base.stall),
            files: self.files.over(base.files),
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
                            "` is set neither here nor in a file based on this one"
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
            RuleValue::MoveAndSplit => FallbackRule::MoveAndSplit,
            RuleValue::MoveAndRetry => {
                FallbackRule::MoveAndRetry { moved_to: need!(freelist.moved_to).into() }
            }
            RuleValue::ClaimThenSteal => FallbackRule::ClaimThenSteal,
            RuleValue::Never => FallbackRule::Never,
        };
        let policy = Policy {
            freelist: Freelist {
                max_order,
                pageblock_order,
                merge: need!(freelist.merge).into(),
                list_type: need!(freelist.list_type).into(),
                split_large_frees: need!(freelist.split_large_frees),
                mobility_grouping: need!(freelist.mobility_grouping),
            },
            pcp: Pcp {
                orders: need!(pcp.orders).into(),
                high: need!(pcp.high).into(),
                drain: need!(pcp.drain).into(),
                batch_limit: need!(pcp.batch_limit_pages),
                batch_scale_max,
            },
            fallback: Fallback {
                rule,
                movable_min_order: order(
                    "fallback.movable_min_order",
                    need!(fallback.movable_min_order),
                )?,
                claim_min_pages: need!(fallback.claim_min_pages),
            },
            zone: Zone {
                fair_batches: need!(zone.fair_batches),
                fragment_avoidance: need!(zone.fragment_avoidance),
            },
            watermark: Watermark {
                min_free_kbytes_max: need!(watermark.min_free_kbytes_max),
                thp_recommendation: need!(watermark.thp_recommendation),
                // 0 stands for "no such knob": the distance is then a quarter of min alone.
                scale_factor: Some(need!(watermark.scale_factor)).filter(|&scale| scale > 0),
                boost_factor: need!(watermark.boost_factor),
                boost_single_steals: need!(watermark.boost_single_steals),
                lowmem_reserve_ratio: need!(watermark.lowmem_reserve_ratio),
            },
            highatomic: need!(highatomic.reserve).into(),
            compaction: Compaction {
                target_search: need!(compaction.target_search).into(),
                migrate_search: need!(compaction.migrate_search).into(),
            },
            lru: Lru {
                kind: need!(lru.kind).into(),
                scope: need!(lru.scope).into(),
                batch: within("lru.batch_pages", u32::from(need!(lru.batch_pages)), 1, 254)? as u8,
                batch_flushes_when_full: need!(lru.batch_flushes_when_full),
                anon: need!(lru.anon).into(),
                inactive_ratio: need!(lru.inactive_ratio).into(),
                balance: need!(lru.balance).into(),
                deactivate_on_refault: need!(lru.deactivate_on_refault),
                scan_unit: need!(lru.scan_unit).into(),
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
            },
            slowpath: Slowpath {
                retry: need!(slowpath.retry).into(),
                thisnode_early_exit: need!(slowpath.thisnode_early_exit),
            },
            direct: Direct {
                repeats: need!(direct.repeats),
                repeats_deactivating: need!(direct.repeats_deactivating),
            },
            stall: Stall {
                rule: need!(stall.rule).into(),
                writeout_limit: need!(stall.writeout_limit),
            },
            files: Files { writes_mark_accessed: need!(files.writes_mark_accessed) },
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
    fn a_circle_of_bases_is_an_error() {
        let (folder, path) = written("based_on = \"yours\"\n");
        std::fs::write(folder.path().join("yours.toml"), "based_on = \"mine\"\n").unwrap();
        assert!(Kernel::load(&path).unwrap_err().to_string().contains("circle"));
    }

    #[test]
    fn releases_find_their_kernel_file() {
        let name = |release| Kernel::for_release(release).map(|k| k.name);
        assert_eq!(name("6.12.107+deb12-cloud-amd64").unwrap(), "linux-6.12");
        assert_eq!(name("6.1.0-53-cloud-amd64").unwrap(), "linux-6.1");
        assert_eq!(name("4.4.302").unwrap(), "linux-4.4");
        assert!(name("4.49.1").is_err());
        assert!(name("6.18.1").is_err());
    }
}
