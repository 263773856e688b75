//! Every decision the flows take, as a named value; `kernels/*.toml` gives them.

/// The flows' policy.
#[derive(Clone, Debug, PartialEq, Eq)]
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
}

/// Policy of the page cache's users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Files {
    /// Writing a page counts as a use of it (before 4.7; bbddabe2e436).
    pub writes_mark_accessed: bool,
}

/// kswapd's policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kswapd {
    /// When a node needs no more.
    pub balanced: Balanced,
    /// Zones are balanced this many thousandths of their pages above the high mark, but not more than
    /// their low mark above (`KSWAPD_ZONE_BALANCE_GAP_RATIO`: 10 before 4.8, 0 since reclaim is by node).
    pub balance_gap_permille: u32,
    /// Runs without success after which a node is hopeless (`MAX_RECLAIM_RETRIES` = 16 since 4.12,
    /// c73322d098e4); `None` before, where zones are given up one by one.
    pub failures_max: Option<u32>,
    /// Whether the loop begins at the highest zone that is not balanced and ages what lies above
    /// (before 4.8).
    pub from_highest_unbalanced: bool,
}

/// When a node needs no more of kswapd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balanced {
    /// All zones for order 0; zones with a quarter of the pages for higher orders (before 4.8).
    AllZones,
    /// Any zone that the waker may use (1d82de618ddd, 86c79f6b5426, 4.8).
    AnyZone,
}

/// The slow path's policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slowpath {
    /// When a request tries again.
    pub retry: Retry,
    /// A request for one node alone that may not reclaim fails at once (`GFP_THISNODE`, before 4.6;
    /// 444eb2a449ef).
    pub thisnode_early_exit: bool,
}

/// When a request that may block tries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// As long as reclaim makes progress and the order is at most 3 (before 4.7).
    WhileProgress,
    /// Up to 16 rounds without progress, if what is reclaimable would be enough (0a0337e0d1d1, 4.7).
    NoProgressLoops,
}

/// Direct reclaim's policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direct {
    /// Without progress all is tried once more, which counts another stall: before 4.12 in case a control
    /// group was spared (afterwards only if one was, d6622f6365db); since 6.11 with a full walk of them
    /// (b82b530740b9).
    pub repeats: bool,
    /// It is tried once more with active lists deactivated whatever their sizes (b91ac374346b, 5.5).
    pub repeats_deactivating: bool,
}

/// When reclaim waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// For what.
    pub rule: StallRule,
    /// Whoever reclaims waits while more pages are being written than the dirty limit and a tenth more
    /// (`throttle_vm_writeout`, before 4.9; bf48438354a7).
    pub writeout_limit: bool,
}

/// What reclaim waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallRule {
    /// For a device to be less congested, up to a tenth of a second (`wait_iff_congested`,
    /// `congestion_wait`, before 5.16).
    Congestion,
    /// For what it is that is missing: pages written, progress (`reclaim_throttle`, 8cd7c588decf, 5.16).
    Throttle,
}
