//! Many variants in one table: a row for each, and the figures by which settings of huge pages are judged.
//!
//! Comparisons have a column for each variant, of which there is no room for more than a handful. Here the
//! variants are rows, and what their names consist of comes first: `usemem, advised, defer`.

use crate::compare::Group;
use crate::latencies::Latencies;
use crate::record::{Record, Source};
use crate::stats::Better;
use crate::vmstat_rows::{Form, vmstat_rows};

/// What stands between the parts of a variant's name.
pub const BETWEEN_PARTS: &str = ", ";

/// The latency classes of stalls: of what a request for memory does by itself, for lack of a free block.
pub(crate) const STALLS: &[&str] = &["stall-direct-reclaim", "stall-direct-compaction"];
/// Latency classes of workloads, in the order in which they are looked for: what is timed, and the classes that
/// are one quantity together.
const TIMED: [(&str, &[&str]); 3] =
    [("unit of 2 MiB", &["fault-base", "fault-huge"]), ("mapping", &["mmap"]), ("stall", STALLS)];
/// Base pages of a huge page on x86-64.
const HUGE_PAGES: f64 = 512.0;

/// A figure of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// The heading, unit included.
    pub heading: &'static str,
    /// The name for programs, unit last.
    pub key: &'static str,
    /// Which direction is the good one.
    pub better: Better,
    /// Digits after the point.
    pub decimals: u8,
}

/// The figures, in order.
pub const FIGURES: [Figure; 8] = [
    figure("stalls", "nr_stalls", 0),
    figure("stall time (s)", "stall_time_s", 3),
    figure("kswapd scanned", "kswapd_scanned_pages", 0),
    figure("kswapd reclaimed", "kswapd_reclaimed_pages", 0),
    Figure { heading: "huge (%)", key: "huge_percent", better: Better::Higher, decimals: 1 },
    figure("p50 (µs)", "latency_us_p50", 0),
    figure("p99 (µs)", "latency_us_p99", 0),
    figure("p99.9 (µs)", "latency_us_p99_9", 0),
];

const fn figure(heading: &'static str, key: &'static str, decimals: u8) -> Figure {
    Figure { heading, key, better: Better::Lower, decimals }
}

/// One variant.
#[derive(Clone, Debug, PartialEq)]
pub struct MatrixRow {
    /// The parts of its name.
    pub parts: Vec<String>,
    /// What its latencies are of; empty if nothing was timed.
    pub timed: &'static str,
    /// A value for each of [`FIGURES`]; none if it is not known.
    pub values: [Option<f64>; FIGURES.len()],
}

/// A row for each group; latencies and counts are those of all its runs together.
///
/// A stall is one direct reclaim or direct compaction, from its beginning to its end. The huge share is that of
/// the memory that was faulted in. Latencies are those that the workload took, or where it takes none those of
/// stalls.
#[must_use]
pub fn rows(groups: &[Group<'_>]) -> Vec<MatrixRow> {
    groups.iter().map(row).collect()
}

fn row(group: &Group<'_>) -> MatrixRow {
    let stalls = pooled(group, STALLS);
    // Real kernels do not tell how long a task was kept.
    let tells_stalls = group.records.iter().all(|record| record.inputs.source == Source::Model);
    let timed = TIMED.iter().map(|(what, classes)| (*what, pooled(group, classes)));
    let timed = timed.into_iter().find(|(_, latencies)| latencies.count() > 0);
    let quantile = |share: f64| {
        let (_, latencies) = timed.as_ref()?;
        latencies.quantile_ns(share).map(|ns| ns as f64 / 1000.0)
    };
    let reclaim = |label: &str| {
        let rows = vmstat_rows(&|name| sum(group, name), None, Form::default());
        rows.into_iter().find(|row| row.label == label).and_then(|row| row.value)
    };
    MatrixRow {
        parts: group.label.split(BETWEEN_PARTS).map(ToOwned::to_owned).collect(),
        timed: timed.as_ref().map_or("", |(what, _)| what),
        values: [
            tells_stalls.then(|| stalls.count() as f64),
            tells_stalls.then(|| stalls.sum_ns() as f64 / 1e9),
            reclaim("Kswapd pages scanned"),
            reclaim("Kswapd pages reclaimed"),
            huge_percent(group),
            quantile(0.5),
            quantile(0.99),
            quantile(0.999),
        ],
    }
}

/// Base pages that came as huge pages, in percent of all that minor faults brought, each of the others one.
fn huge_percent(group: &Group<'_>) -> Option<f64> {
    let huge = sum(group, "thp_fault_alloc")? as f64;
    let major = sum(group, "pgmajfault").unwrap_or(0) as f64;
    let base = sum(group, "pgfault")? as f64 - huge - major;
    let all = base + HUGE_PAGES * huge;
    (all > 0.0).then(|| 100.0 * HUGE_PAGES * huge / all)
}

/// How far a counter rose in all runs; none if one of them does not have it.
fn sum(group: &Group<'_>, name: &str) -> Option<i64> {
    let rises: Option<Vec<i64>> = group.records.iter().map(|record| record.delta(name)).collect();
    rises.filter(|rises| !rises.is_empty()).map(|rises| rises.iter().sum())
}

fn pooled(group: &Group<'_>, classes: &[&str]) -> Latencies {
    let mut pooled = Latencies::new();
    let of_record = |record: &&'_ Record| -> Vec<Latencies> {
        classes.iter().filter_map(|class| record.latencies.get(*class).cloned()).collect()
    };
    group.records.iter().flat_map(of_record).for_each(|latencies| pooled.merge(&latencies));
    pooled
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Inputs;

    fn record(counters: &[(&str, u64)], latencies: &[(&str, &[u64])]) -> Record {
        let mut record = Record::new(Inputs::default());
        record.before.counters = counters.iter().map(|(name, _)| ((*name).to_owned(), 0)).collect();
        record.after.counters =
            counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        for (class, all) in latencies {
            let of_class = record.latencies.entry((*class).to_owned()).or_default();
            all.iter().for_each(|ns| of_class.record(*ns));
        }
        record
    }

    fn row_of(label: &str, records: &[&Record]) -> MatrixRow {
        let group = Group { label: label.to_owned(), records: records.to_vec() };
        rows(&[group]).remove(0)
    }

    #[test]
    fn figures_sum_and_pool_over_the_runs_of_a_variant() {
        let counters =
            [("pgfault", 515), ("pgmajfault", 2), ("thp_fault_alloc", 1), ("pgscan_kswapd", 7)];
        let one =
            record(&counters, &[("stall-direct-reclaim", &[1_000_000]), ("fault-base", &[9_000])]);
        let two = record(
            &counters,
            &[("stall-direct-compaction", &[2_000_000]), ("fault-huge", &[1_000])],
        );
        let row = row_of("thpscale, advised, defer", &[&one, &two]);
        assert_eq!(row.parts, ["thpscale", "advised", "defer"]);
        assert_eq!(row.timed, "unit of 2 MiB", "both kinds are one quantity");
        assert_eq!(row.values[0], Some(2.0));
        assert_eq!(row.values[1], Some(0.003));
        assert_eq!(row.values[2], Some(14.0));
        assert_eq!(row.values[3], None, "nobody counted it");
        assert_eq!(row.values[4], Some(50.0), "512 pages came in a huge one, 512 by themselves");
        let [p50, .., p99_9] = [row.values[5], row.values[6], row.values[7]].map(Option::unwrap);
        assert!((p50 - 1.0).abs() < 0.01 && (p99_9 - 9.0).abs() < 0.1, "{p50} {p99_9}");
    }

    #[test]
    fn where_the_workload_times_nothing_latencies_are_those_of_stalls() {
        let stalled = record(&[], &[("stall-direct-reclaim", &[5_000])]);
        assert_eq!(row_of("x", &[&stalled]).timed, "stall");
        let idle = record(&[], &[]);
        let row = row_of("x", &[&idle]);
        assert_eq!((row.timed, row.values[5]), ("", None));
        assert_eq!(row.values[0], Some(0.0));
    }
}
