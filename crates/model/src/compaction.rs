//! What compaction came to, as metrics of a run.
//!
//! The kernel's counters say what was scanned and taken; what that cost, and what was held meanwhile, no kernel
//! counts. Rates are by minute of virtual time, a sample for each interval of the timeline since the
//! preparation ended.

use highorder_record::{Better, Metric, Record, Statistic, Timeline, TimelineValues};
use highorder_sim::Ns;
use highorder_sim::kernel::Kernel;

/// Columns of the timeline that are not `/proc/vmstat`'s: CPU time of the search for targets, and of runs in all.
pub(super) const SEARCH_NS: &str = "compact_free_search_ns";
pub(super) const RUNS_NS: &str = "compact_runs_ns";
/// Free pages that runs hold.
pub(super) const HELD_PAGES: &str = "compact_held_pages";
/// Free blocks that were taken apart for targets.
pub(super) const SPLIT: &str = "compact_split_blocks";
/// Pages that were moved though they had been before.
pub(super) const MOVED_AGAIN: &str = "compact_moved_again";

/// Counters whose rates are shown, with the rows' names.
const RATES: [(&str, &str); 8] = [
    ("compact_free_scanned", "frames checked for targets/min"),
    ("compact_migrate_scanned", "frames checked for pages/min"),
    ("compact_free_direct_alloc", "direct allocations/min"),
    ("compact_free_direct_miss", "direct misses/min"),
    ("compact_free_list_alloc", "list allocations/min"),
    ("compact_free_list_skip", "list skips/min"),
    ("pgmigrate_success", "pages moved/min"),
    ("compact_stall", "stalls/min"),
];
/// Rates of which it is told whether they grow.
const LASTING: [&str; 2] = ["frames checked for targets/min", "pages moved/min"];
const MINUTE_NS: f64 = 60e9;

/// The metrics of a run with demands, of which compaction was a part: it is for what the kernel itself wants that
/// blocks are made.
pub(super) fn metrics(kernel: &Kernel, record: &Record, before_at: Ns) -> Vec<Metric> {
    let timeline = &record.timeline;
    // Nothing to tell where nothing was looked for.
    if kernel.demands.is_empty() || record.delta("compact_migrate_scanned").unwrap_or(0) <= 0 {
        return Vec::new();
    }
    let first = timeline.time_ns.partition_point(|&time| time < before_at.0);
    let rates = |column: &str| rates(timeline, first, column);
    let mut metrics = Vec::new();
    let mut add = |name: String, unit: &str, better: Better, samples: Option<Vec<f64>>| {
        let like = Metric::new(name, unit, better);
        let shown = match samples.as_ref().is_some_and(|samples| samples.len() > 1) {
            true => like.shown_as(&[Statistic::Amean, Statistic::Max], 2),
            false => like.shown_as(&[Statistic::Plain], 2),
        };
        metrics.extend(samples.map(|samples| shown.with_samples(samples)));
    };
    for (counter, name) in RATES {
        add(format!("Compact {name}"), "", Better::Lower, rates(counter));
    }
    for (counter, name) in RATES.into_iter().filter(|(_, name)| LASTING.contains(name)) {
        add(
            format!("Compact {name}, second half to first"),
            "",
            Better::Neutral,
            rates(counter).and_then(|rates| growth(&rates)).map(|growth| vec![growth]),
        );
    }
    for (column, name) in [(SPLIT, "blocks split/min"), (MOVED_AGAIN, "pages moved again/min")] {
        add(format!("Compact {name}"), "", Better::Lower, rates(column));
    }
    // Of the cycles that were not idle, as a profile of the whole machine counts them.
    let busy = ["cpu_user_ns", "cpu_system_ns"].map(&rates);
    let shares = |column: &str| {
        let [user, system] = &busy;
        let busy = user.as_ref()?.iter().zip(system.as_ref()?).map(|(user, system)| user + system);
        let parts = rates(column)?.into_iter().zip(busy);
        Some(parts.map(|(part, all)| if all > 0.0 { 100.0 * part / all } else { 0.0 }).collect())
    };
    add("Compact search's CPU share".to_owned(), "%", Better::Lower, shares(SEARCH_NS));
    add("Compact CPU share".to_owned(), "%", Better::Lower, shares(RUNS_NS));
    let most = kernel.compaction_totals().held_pages_max;
    add("Compact pages held at most".to_owned(), "", Better::Lower, Some(vec![most as f64]));
    for (number, (demand, stats)) in kernel.demands.iter().enumerate() {
        let whole = stats.nr_asked - stats.nr_smaller - stats.nr_failed;
        let share =
            (stats.nr_asked > 0).then(|| vec![100.0 * whole as f64 / stats.nr_asked as f64]);
        let (kind, order) = (demand.kind.name(), demand.order.0);
        add(format!("Demand {number} {kind} {order} served"), "%", Better::Higher, share);
    }
    metrics
}

/// The mean of the second half, by that of the first; `None` where the first is nothing or there are no halves.
fn growth(rates: &[f64]) -> Option<f64> {
    let (first, second) = rates.split_at(rates.len() / 2);
    let mean = |half: &[f64]| half.iter().sum::<f64>() / half.len() as f64;
    (!first.is_empty() && mean(first) > 0.0).then(|| mean(second) / mean(first))
}

/// How much a column rose by minute, for each interval from sample `first` on; `None` if there is no such column
/// or no interval.
fn rates(timeline: &Timeline, first: usize, column: &str) -> Option<Vec<f64>> {
    let column = timeline.columns.iter().find(|known| known.name == column)?;
    let TimelineValues::Counts(values) = &column.values else { return None };
    let values: Vec<u64> = values.get(first..)?.iter().map(|value| value.unwrap_or(0)).collect();
    let times = timeline.time_ns.get(first..)?;
    let rates: Vec<f64> = times
        .windows(2)
        .zip(values.windows(2))
        .map(|(time, value)| {
            let rose = value[1].saturating_sub(value[0]) as f64;
            rose * MINUTE_NS / (time[1] - time[0]) as f64
        })
        .collect();
    (!rates.is_empty()).then_some(rates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_the_second_half_by_the_first() {
        assert_eq!(growth(&[1.0, 3.0, 4.0, 2.0]), Some(1.5));
        // Of an odd number the middle one belongs to the second half.
        assert_eq!(growth(&[2.0, 1.0, 3.0]), Some(1.0));
        assert_eq!(growth(&[0.0, 3.0]), None);
        assert_eq!(growth(&[3.0]), None);
    }
}
