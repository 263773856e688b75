//! The rows that reports make of `/proc/vmstat`'s differences.
//!
//! Kernels count the same thing under different names: `pgscan_direct_normal` and its like by zone
//! until 4.7, `pgscan_direct` since; `allocstall` until 4.9, `allocstall_normal` and its like since;
//! `kswapd_steal` and `pgsteal_normal` until 3.4, `pgsteal_kswapd_*` and `pgsteal_direct_*` after. A row
//! takes whichever the kernel has. Sources: mm/vmstat.c (`vmstat_text`) of those releases.

use crate::stats::Better;

/// The zones' names inside counters.
const ZONES: [&str; 6] = ["dma", "dma32", "normal", "high", "movable", "device"];

/// Whose report: labels and rounding changed over the years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// The shell reports of 2012: efficiencies and shares are whole numbers, rounded down.
    Y2012,
    /// The reports since 2016: they keep decimals.
    #[default]
    Y2016,
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct VmstatRow {
    /// As reports print it.
    pub label: &'static str,
    /// The value; none if the kernel counts nothing of the kind.
    pub value: Option<f64>,
    /// Digits after the point.
    pub decimals: u8,
    /// Of what: `pages`, `events`, `KiB`, `%`, `pages/s` and others.
    pub unit: &'static str,
    /// Which direction is the good one.
    pub better: Better,
}

/// Makes the rows of one run, in a report's order.
///
/// `delta` gives a counter's rise over the run, and none for a counter that the kernel does not have;
/// `elapsed_s` is the run's length in seconds, for the velocities. Of the counters a row is made of,
/// missing ones count 0, unless all of them are missing: then the row has no value.
#[must_use]
pub fn vmstat_rows(
    delta: &dyn Fn(&str) -> Option<i64>,
    elapsed_s: Option<f64>,
    form: Form,
) -> Vec<VmstatRow> {
    use Better::{Higher, Lower, Neutral};
    let d = |name: &str| delta(name).map(|n| n as f64);
    let minus = |a: Option<f64>, b: Option<f64>| a.map(|a| a - b.unwrap_or(0.0));
    let zones = |prefix: &str| {
        d(prefix).or_else(|| {
            let found: Vec<f64> =
                ZONES.iter().filter_map(|zone| d(&format!("{prefix}_{zone}"))).collect();
            (!found.is_empty()).then(|| found.iter().sum())
        })
    };
    let direct_scanned = zones("pgscan_direct");
    let kswapd_scanned = zones("pgscan_kswapd");
    let kswapd_reclaimed = zones("pgsteal_kswapd").or_else(|| d("kswapd_steal"));
    let direct_reclaimed =
        zones("pgsteal_direct").or_else(|| minus(zones("pgsteal"), d("kswapd_steal")));
    let written = d("nr_vmscan_write");
    let whole = |share: f64| if form == Form::Y2012 { share.floor() } else { share };
    let efficiency = |reclaimed: Option<f64>, scanned: Option<f64>| match (reclaimed?, scanned?) {
        (_, 0.0) => Some(100.0),
        (reclaimed, scanned) => Some(whole(100.0 * reclaimed / scanned)),
    };
    let velocity = |scanned: Option<f64>| Some(scanned? / elapsed_s.filter(|&s| s > 0.0)?);
    let direct_share = match (direct_scanned, kswapd_scanned) {
        (Some(direct), Some(kswapd)) if direct + kswapd == 0.0 => Some(0.0),
        (Some(direct), Some(kswapd)) => Some(whole(100.0 * direct / (direct + kswapd))),
        _ => None,
    };
    let share_decimals = if form == Form::Y2012 { 0 } else { 2 };

    let count = |label, value, unit, better| VmstatRow { label, value, decimals: 0, unit, better };
    let share = |label, value, better| VmstatRow {
        label,
        value,
        decimals: share_decimals,
        unit: "%",
        better,
    };
    let speed = |label, scanned| VmstatRow {
        label,
        value: velocity(scanned),
        decimals: 3,
        unit: "pages/s",
        better: Neutral,
    };
    vec![
        count("Minor Faults", minus(d("pgfault"), d("pgmajfault")), "faults", Neutral),
        count("Major Faults", d("pgmajfault"), "faults", Lower),
        count("Page Ins", d("pgpgin"), "KiB", Neutral),
        count("Page Outs", d("pgpgout"), "KiB", Neutral),
        count("Swap Ins", d("pswpin"), "pages", Lower),
        count("Swap Outs", d("pswpout"), "pages", Lower),
        count("Allocation stalls", zones("allocstall"), "events", Lower),
        count("Fragmentation stalls", d("fragment_stall"), "events", Lower),
        count("DMA allocs", d("pgalloc_dma"), "pages", Neutral),
        count("DMA32 allocs", d("pgalloc_dma32"), "pages", Neutral),
        count("Normal allocs", d("pgalloc_normal"), "pages", Neutral),
        count("Movable allocs", d("pgalloc_movable"), "pages", Neutral),
        count("Direct pages scanned", direct_scanned, "pages", Lower),
        count("Kswapd pages scanned", kswapd_scanned, "pages", Neutral),
        count("Kswapd pages reclaimed", kswapd_reclaimed, "pages", Neutral),
        count("Direct pages reclaimed", direct_reclaimed, "pages", Lower),
        share("Kswapd efficiency", efficiency(kswapd_reclaimed, kswapd_scanned), Higher),
        speed("Kswapd velocity", kswapd_scanned),
        share("Direct efficiency", efficiency(direct_reclaimed, direct_scanned), Higher),
        speed("Direct velocity", direct_scanned),
        share("Percentage direct scans", direct_share, Lower),
        count("Page writes by reclaim", written, "pages", Lower),
        count("Page writes file", minus(written, d("pswpout")), "pages", Lower),
        count("Page writes anon", d("pswpout"), "pages", Lower),
        count("Page reclaim immediate", d("nr_vmscan_immediate_reclaim"), "pages", Neutral),
        count("Page rescued immediate", d("pgrescued"), "pages", Neutral),
        count("Slabs scanned", d("slabs_scanned"), "objects", Neutral),
        count("Direct inode steals", d("pginodesteal"), "inodes", Neutral),
        count("Kswapd inode steals", d("kswapd_inodesteal"), "inodes", Neutral),
        count("Kswapd skipped wait", d("kswapd_skip_congestion_wait"), "events", Neutral),
        count("THP fault alloc", d("thp_fault_alloc"), "huge pages", Higher),
        count("THP collapse alloc", d("thp_collapse_alloc"), "huge pages", Neutral),
        count("THP splits", d("thp_split").or_else(|| d("thp_split_page")), "huge pages", Neutral),
        count("THP fault fallback", d("thp_fault_fallback"), "events", Lower),
        count("THP collapse fail", d("thp_collapse_alloc_failed"), "events", Lower),
        count("Compaction stalls", d("compact_stall"), "events", Lower),
        count("Compaction success", d("compact_success"), "events", Neutral),
        count("Compaction failures", d("compact_fail"), "events", Lower),
        count(
            "Compaction pages moved",
            d("compact_pages_moved").or_else(|| d("pgmigrate_success")),
            "pages",
            Neutral,
        ),
        count(
            "Compaction move failure",
            d("compact_pagemigrate_failed").or_else(|| d("pgmigrate_fail")),
            "pages",
            Lower,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(counters: &[(&str, i64)], label: &str, form: Form) -> Option<f64> {
        let delta = |name: &str| counters.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
        let rows = vmstat_rows(&delta, Some(10.0), form);
        rows.iter().find(|row| row.label == label).unwrap().value
    }

    #[test]
    fn one_row_whatever_the_kernel_calls_it() {
        let kernels: [&[(&str, i64)]; 3] = [
            &[
                ("pgscan_direct_dma32", 30),
                ("pgscan_direct_normal", 70),
                ("pgsteal_dma32", 10),
                ("pgsteal_normal", 80),
                ("kswapd_steal", 50),
                ("pgscan_kswapd_normal", 60),
                ("allocstall", 5),
            ],
            &[
                ("pgscan_direct_dma32", 30),
                ("pgscan_direct_normal", 70),
                ("pgsteal_direct_normal", 40),
                ("pgsteal_kswapd_dma32", 50),
                ("pgscan_kswapd_normal", 60),
                ("allocstall", 5),
            ],
            &[
                ("pgscan_direct", 100),
                ("pgscan_direct_throttle", 77),
                ("pgsteal_direct", 40),
                ("pgsteal_kswapd", 50),
                ("pgscan_kswapd", 60),
                ("allocstall_dma32", 2),
                ("allocstall_movable", 3),
            ],
        ];
        for counters in kernels {
            let value = |label| row(counters, label, Form::Y2016).unwrap();
            assert_eq!(value("Direct pages scanned"), 100.0);
            assert_eq!(value("Direct pages reclaimed"), 40.0);
            assert_eq!(value("Kswapd pages reclaimed"), 50.0);
            assert_eq!(value("Allocation stalls"), 5.0);
            assert_eq!(value("Direct efficiency"), 40.0);
            assert_eq!(value("Direct velocity"), 10.0);
            assert_eq!(value("Percentage direct scans"), 62.5);
            assert_eq!(row(counters, "Percentage direct scans", Form::Y2012), Some(62.0));
            assert_eq!(row(counters, "Kswapd efficiency", Form::Y2012), Some(83.0));
        }
    }

    #[test]
    fn what_no_counter_tells_is_missing_and_what_was_not_scanned_is_efficient() {
        assert_eq!(row(&[], "Allocation stalls", Form::Y2016), None);
        assert_eq!(row(&[], "Kswapd efficiency", Form::Y2016), None);
        let idle: &[(&str, i64)] =
            &[("pgscan_direct", 0), ("pgscan_kswapd", 0), ("pgsteal_direct", 0)];
        assert_eq!(row(idle, "Direct efficiency", Form::Y2016), Some(100.0));
        assert_eq!(row(idle, "Percentage direct scans", Form::Y2016), Some(0.0));
    }
}
