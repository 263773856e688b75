//! Rows that published tables have and reports do not: those of time(1) and vmstat(8), of a benchmark's single
//! runs, and rates that were told in prose.

use crate::compare::{Comparison, ComparisonRow, Group, row_of_values};
use crate::listing::vmstat_listing;
use crate::published::{PublishedForm, PublishedRow, PublishedTable};
use crate::record::Record;
use crate::stats::{Better, Sorted};

/// The rates of document 1 and the metrics that runs on the model report of them.
const RATES: [(&str, &str); 5] = [
    ("isolate_freepages_block CPU share", "Compact search's CPU share"),
    ("free scanner PFNs scanned", "Compact frames checked for targets/min"),
    ("free scanner pages checked", "Compact frames checked for targets/min"),
    ("compact_free_direct_alloc", "Compact direct allocations/min"),
    ("compact_free_direct_miss", "Compact direct misses/min"),
];
const DAY_NS: f64 = 86_400e9;
/// The columns of vmstat(8) under the keys that [`vmstat_listing`] has for them.
const VMSTAT: [(&str, &str); 17] = [
    ("r", "runnable"),
    ("b", "blocked"),
    ("swpd", "swpd_kib"),
    ("free", "free_kib"),
    ("buff", "buff_kib"),
    ("cache", "cache_kib"),
    ("si", "si_kib_per_s"),
    ("so", "so_kib_per_s"),
    ("bi", "bi_kib_per_s"),
    ("bo", "bo_kib_per_s"),
    ("in", "in_per_s"),
    ("cs", "cs_per_s"),
    ("us", "us_percent"),
    ("sy", "sy_percent"),
    ("id", "id_percent"),
    ("wa", "wa_percent"),
    ("st", "st_percent"),
];

/// The rows of a published form that no other table of ours has: none for most forms.
pub(crate) fn rows(published: &PublishedForm, groups: &[Group<'_>]) -> Vec<Comparison> {
    let of_table = |table: &PublishedTable| {
        let reading = match table.file {
            "001_compaction_free_scan_rates" => rate,
            "002_mmap_demo_time" => time,
            "002_mmap_demo_vmstat" => listed,
            "002_numa_thp_bench" => single_run,
            "003_highalloc_writepage" => written,
            "public_004_extfrag_events" | "public_004_breakdowns" => fallbacks,
            "public_004_thpfioscale" => unit_latency,
            _ => return None,
        };
        let row = |wanted: &PublishedRow| -> ComparisonRow {
            let values = groups.iter().map(|group| mean(group, wanted, reading)).collect();
            row_of_values(
                wanted.statistic,
                &wanted.metric,
                wanted.unit,
                Better::Neutral,
                wanted.decimals,
                values,
            )
        };
        let rows = table.rows.iter().map(row).collect();
        Some(Comparison { rows, ..Comparison::new(table.title, groups, false) })
    };
    published.tables.iter().filter_map(of_table).collect()
}

/// How a record gives a row's value, if it does.
type Reading = fn(&Record, &PublishedRow) -> Option<f64>;

/// The mean over the runs of a group: a table of single runs has no sums.
fn mean(group: &Group<'_>, row: &PublishedRow, reading: Reading) -> Option<f64> {
    let values: Option<Vec<f64>> =
        group.records.iter().map(|record| reading(record, row)).collect();
    let values = values.filter(|values| !values.is_empty())?;
    Some(values.iter().sum::<f64>() / values.len() as f64)
}

/// Pages that reclaim wrote: `KSwapd writes anon async`. No kernel from 3.3 on calls a page that it writes mixed.
fn written(record: &Record, row: &PublishedRow) -> Option<f64> {
    let words: Vec<String> = row.cells.metric.split(' ').map(str::to_lowercase).collect();
    let [who, _, kind, way] = words.as_slice() else { return None };
    let of = |kind: &str| record.delta(&format!("mm_vmscan_writepage_{who}_{kind}_{way}"));
    // A kernel that tells of files tells of all.
    let nr = if kind == "mixed" { of("file").map(|_| 0) } else { of(kind) };
    nr.map(|nr| nr as f64)
}

/// A rate by minute: `sustained` is the mean, `peak` the largest of those between two samples.
fn rate(record: &Record, row: &PublishedRow) -> Option<f64> {
    if row.cells.metric == "observation period" {
        return Some(record.durations.elapsed_ns? as f64 / DAY_NS);
    }
    let (_, name) = RATES.iter().find(|(published, _)| *published == row.cells.metric)?;
    let samples = Sorted::new(record.metric(name)?.samples.iter().copied());
    match row.cells.stat {
        "sustained" => samples.amean(),
        "peak" => samples.max(),
        _ => None,
    }
}

/// What time(1) prints. Faults and blocks are the whole machine's, as in [`crate::time_lines`].
fn time(record: &Record, row: &PublishedRow) -> Option<f64> {
    let seconds = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e9);
    // The process's own, where it reports them: the run has preparations besides.
    let reported = |name: &str, whole: Option<u64>| {
        let metric = record.metric(name).and_then(|metric| metric.samples.first().copied());
        metric.or_else(|| seconds(whole))
    };
    let durations = &record.durations;
    let user = || reported("User", durations.user_ns);
    let system = || reported("System", durations.system_ns);
    let elapsed = || reported("Elapsd", durations.elapsed_ns);
    let rise = |name: &str| record.delta(name).map(|n| n as f64);
    match row.cells.metric {
        "user" => user(),
        "system" => system(),
        "elapsed" => elapsed(),
        "CPU" => {
            let elapsed = elapsed().filter(|&seconds| seconds > 0.0)?;
            Some((100.0 * (user()? + system()?) / elapsed).floor())
        }
        "maxresident" => record.resident_kib_max.map(|kib| kib as f64),
        // Blocks of 512 bytes: two a KiB.
        "inputs" => rise("pgpgin").map(|kib| 2.0 * kib),
        "outputs" => rise("pgpgout").map(|kib| 2.0 * kib),
        "major pagefaults" => rise("pgmajfault"),
        "minor pagefaults" => rise("pgfault").map(|all| all - rise("pgmajfault").unwrap_or(0.0)),
        _ => None,
    }
}

/// Types of what is asked for, as breakdowns of fallbacks name them, and the counters of those that mix pageblocks.
const FALLBACKS: [(&str, &str); 3] = [
    ("MIGRATE_UNMOVABLE", "mm_page_alloc_extfrag_unmovable"),
    ("MIGRATE_MOVABLE", "mm_page_alloc_extfrag_movable"),
    ("MIGRATE_RECLAIMABLE", "mm_page_alloc_extfrag_reclaimable"),
];

/// What became of huge pages, as breakdowns name it, and the counters.
const HUGE_PAGES: [(&str, &str); 6] = [
    ("THP fault alloc", "thp_fault_alloc"),
    ("THP fault fallback", "thp_fault_fallback"),
    ("THP collapse alloc", "thp_collapse_alloc"),
    ("THP collapse fail", "thp_collapse_alloc_failed"),
    ("THP split", "thp_split_page"),
    ("THP split failed", "thp_split_page_failed"),
];

/// Whether a run's memory for huge pages was advised as that of a row's configuration.
fn is_configured(record: &Record, row: &PublishedRow) -> bool {
    let is_advised = record.inputs.workload.values.get("advice").is_some_and(|word| word == "huge");
    is_advised == row.cells.settings[1].ends_with("MADV_HUGEPAGE")
}

/// Fallbacks that mix pageblocks, all of them or those for requests of one type; or what became of huge pages.
fn fallbacks(record: &Record, row: &PublishedRow) -> Option<f64> {
    if !is_configured(record, row) {
        return None;
    }
    let delta = |name: &str| record.delta(name).map(|nr| nr as f64);
    let mut counters = FALLBACKS.iter().chain(&HUGE_PAGES);
    match counters.find(|(metric, _)| *metric == row.cells.metric) {
        Some((_, counter)) => delta(counter),
        None if row.cells.metric.starts_with("extfrag events") => {
            FALLBACKS.iter().map(|(_, counter)| delta(counter)).sum()
        }
        None => None,
    }
}

/// What filling a huge page's place took, by statistic, or the share of places that got one.
fn unit_latency(record: &Record, row: &PublishedRow) -> Option<f64> {
    let name = format!("{}-{}", row.cells.metric, row.cells.threads);
    let metric = record.metric(&name).filter(|_| is_configured(record, row))?;
    let samples = Sorted::new(metric.samples.iter().copied());
    match row.cells.stat {
        "" | "Amean" => samples.amean(),
        "Min" => samples.min(),
        "Max" => samples.max(),
        _ => None,
    }
}

/// The smallest or largest value in a column of vmstat(8), over the samples of the whole run.
fn listed(record: &Record, row: &PublishedRow) -> Option<f64> {
    let (_, key) = VMSTAT.iter().find(|(column, _)| *column == row.cells.metric)?;
    let values = Sorted::new(vmstat_listing(record, 0).column(key));
    if row.statistic == "Min" { values.min() } else { values.max() }
}

/// The run that the row counts, of those that one record has: `run1` is the first.
fn single_run(record: &Record, row: &PublishedRow) -> Option<f64> {
    let number: usize = row.cells.stat.strip_prefix("run")?.parse().ok()?;
    record.metric(row.cells.variant_begins)?.samples.get(number.checked_sub(1)?).copied()
}
