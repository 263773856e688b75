//! The formulas, against the cells of published tables: the only tests that read published numbers.

mod cells;

use std::collections::BTreeMap;

use cells::{Cell, published, row_groups};
use highorder_record::compare::{self, Detail};
use highorder_record::published::printed_change_percent;
use highorder_record::vmstat_rows::vmstat_rows;
use highorder_record::{Better, Form, Group, Inputs, Metric, Named, Record, Statistic, time_lines};

/// Checks every bracketed percentage of a table; returns how many there were.
///
/// The percentages were computed from values that the table shows rounded, so one is right if some
/// values that print like those of the table give it.
fn check_percentages(file: &str, direction: impl Fn(&Cell) -> Better) -> usize {
    let cells = published(file);
    let mut checked = 0;
    for group in row_groups(&cells) {
        let base = &group[0];
        for cell in group.iter().filter(|cell| !cell.delta_percent.is_empty()) {
            let better = direction(cell);
            let mut possible = Vec::new();
            for b in base.possible_values() {
                // The base is compared with itself.
                let values = if cell == base { vec![b] } else { cell.possible_values() };
                let percent = |&n: &f64| printed_change_percent(better, b, n);
                possible.extend(values.iter().filter_map(percent));
            }
            let lowest = possible.iter().copied().fold(f64::INFINITY, f64::min);
            let highest = possible.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let printed: f64 = cell.delta_percent.parse().unwrap();
            assert!(
                (lowest - 0.00501..=highest + 0.00501).contains(&printed),
                "{file}: {cell:?} beside {}: {printed} printed, {lowest} to {highest} computed",
                base.value
            );
            checked += 1;
        }
    }
    checked
}

#[test]
fn every_bracketed_percentage_of_the_published_tables_comes_out() {
    let as_told = |cell: &Cell| match cell.better.as_str() {
        "lower" => Better::Lower,
        "higher" => Better::Higher,
        _ => Better::Neutral,
    };
    // The 2012 report took a wider spread of a rate for an improvement.
    let fsmark =
        |cell: &Cell| if cell.metric == "Files/s" { Better::Higher } else { Better::Lower };
    let checked = check_percentages("000_usemem_times.csv", as_told)
        + check_percentages("000_thpscale_fault_latencies.csv", as_told)
        + check_percentages("000_thpscale_percentage_huge.csv", as_told)
        + check_percentages("000_stutter_mmap_latency.csv", as_told)
        + check_percentages("003_fsmark.csv", fsmark)
        + check_percentages("003_postmark.csv", as_told)
        + check_percentages("003_highalloc_success.csv", |_| Better::Points)
        + check_percentages("public_004_thpfioscale.csv", as_told);
    assert_eq!(checked, 28 + 36 + 18 + 20 + 32 + 28 + 12 + 256);
}

/// The counters of a kernel of 2012 that give a block's rows.
fn counters_of_2012(rows: &BTreeMap<&str, i64>) -> BTreeMap<String, i64> {
    let mut counters = BTreeMap::new();
    let mut set = |name: &str, value: Option<i64>| {
        value.map(|value| counters.insert(name.to_owned(), value));
    };
    let row = |label: &str| rows.get(label).copied();
    let both = |a: &str, b: &str| Some(row(a)? + row(b)?);
    set("pgpgin", row("Page Ins"));
    set("pgpgout", row("Page Outs"));
    set("pswpin", row("Swap Ins"));
    set("pswpout", row("Swap Outs"));
    set("pgscan_direct_dma32", row("Direct pages scanned"));
    set("pgscan_kswapd_normal", row("Kswapd pages scanned"));
    set("kswapd_steal", row("Kswapd pages reclaimed"));
    set("pgsteal_normal", both("Kswapd pages reclaimed", "Direct pages reclaimed"));
    set("nr_vmscan_write", row("Page writes by reclaim"));
    set("nr_vmscan_immediate_reclaim", row("Page reclaim immediate"));
    set("pgrescued", row("Page rescued immediate"));
    set("slabs_scanned", row("Slabs scanned"));
    set("pginodesteal", row("Direct inode steals"));
    set("kswapd_inodesteal", row("Kswapd inode steals"));
    set("kswapd_skip_congestion_wait", row("Kswapd skipped wait"));
    set("thp_fault_alloc", row("THP fault alloc"));
    set("thp_fault_fallback", row("THP fault fallback"));
    set("thp_collapse_alloc", row("THP collapse alloc"));
    set("thp_collapse_alloc_failed", row("THP collapse fail"));
    set("thp_split", row("THP splits"));
    set("compact_stall", row("Compaction stalls"));
    set("compact_success", row("Compaction success"));
    set("compact_fail", row("Compaction failures"));
    set("compact_pages_moved", row("Compaction pages moved"));
    set("compact_pagemigrate_failed", row("Compaction move failure"));
    counters
}

#[test]
fn every_row_of_the_vmstat_blocks_of_2012_comes_out() {
    let mut checked = 0;
    for experiment in ["fsmark", "postmark", "micro", "highalloc"] {
        let cells = published(&format!("003_{experiment}_vmstat.csv"));
        let durations = published(&format!("003_{experiment}_duration.csv"));
        let mut variants: Vec<&str> = cells.iter().map(|cell| cell.variant.as_str()).collect();
        variants.sort_unstable();
        variants.dedup();
        assert_eq!(variants.len(), 4);
        for variant in variants {
            let cells: Vec<&Cell> = cells.iter().filter(|cell| cell.variant == variant).collect();
            let whole = cells
                .iter()
                .filter_map(|cell| Some((cell.metric.as_str(), cell.value.parse().ok()?)));
            let counters = counters_of_2012(&whole.collect());
            let elapsed = durations
                .iter()
                .find(|cell| cell.variant == variant && cell.metric.starts_with("Total Elapsed"))
                .unwrap();
            let rows = |seconds| {
                vmstat_rows(&|name| counters.get(name).copied(), Some(seconds), Form::Y2012)
            };
            let slow = rows(elapsed.number() + 0.005);
            let fast = rows(elapsed.number() - 0.005);
            for cell in cells {
                let at = slow.iter().position(|row| row.label == cell.metric);
                let at = at.unwrap_or_else(|| panic!("no row {}", cell.metric));
                let (low, high) = (slow[at].value.unwrap(), fast[at].value.unwrap());
                let printed = cell.number();
                assert!(
                    (low - 0.0005..=high + 0.0005).contains(&printed),
                    "{experiment} {variant} {}: {printed} printed, {low} to {high} computed",
                    cell.metric
                );
                checked += 1;
            }
        }
    }
    assert_eq!(checked, 52 + 48 + 84 + 128);
}

#[test]
fn durations_of_2012_add_user_and_system() {
    let cells = published("003_fsmark_duration.csv");
    let of = |metric: &str| cells.iter().find(|c| c.metric.starts_with(metric)).unwrap().number();
    let (system, both, elapsed) = (of("Sys Time"), of("User+Sys"), of("Total Elapsed"));
    let mut record = Record::new(Inputs::default());
    let ns = |seconds: f64| Some((seconds * 1e9).round() as u64);
    record.durations.user_ns = ns(both - system);
    record.durations.system_ns = ns(system);
    record.durations.elapsed_ns = ns(elapsed);
    let groups = [Group { label: cells[0].variant.clone(), records: vec![&record] }];
    let table = compare::duration("", &groups, Form::Y2012);
    let shown: Vec<(&str, f64)> =
        table.rows.iter().map(|row| (row.metric.as_str(), row.cells[0].value.unwrap())).collect();
    for ((label, value), printed) in shown.iter().zip([system, both, elapsed]) {
        assert!((value - printed).abs() < 0.005, "{label}");
        assert!(cells.iter().any(|cell| cell.metric == *label), "{label}");
    }
}

/// A record for each variant that holds the table's means as single samples.
fn records_of(cells: &[Cell], statistic: Statistic, decimals: u8) -> Vec<(String, Record)> {
    let mut records: Vec<(String, Record)> = Vec::new();
    for cell in cells {
        if !records.iter().any(|(variant, _)| *variant == cell.variant) {
            records.push((cell.variant.clone(), Record::new(Inputs::default())));
        }
        let (_, record) = records.iter_mut().find(|(variant, _)| *variant == cell.variant).unwrap();
        let name = match cell.threads.as_str() {
            "" => cell.metric.clone(),
            threads => format!("{}-{threads}", cell.metric),
        };
        let better = if cell.better == "higher" { Better::Higher } else { Better::Lower };
        record.metrics.push(
            Metric::new(name, cell.unit.clone(), better)
                .shown_as(&[statistic], decimals)
                .with_samples([cell.number()]),
        );
    }
    records
}

fn groups(records: &[(String, Record)]) -> Vec<Group<'_>> {
    let group = |(label, record)| Group { label: String::clone(label), records: vec![record] };
    records.iter().map(|(label, record)| group((label, record))).collect()
}

#[test]
fn the_usemem_table_reads_as_it_was_published() {
    let records = records_of(&published("000_usemem_times.csv"), Statistic::Amean, 2);
    let table = compare::metrics("", &groups(&records));
    insta::assert_snapshot!(table.published_text());
    insta::assert_snapshot!("usemem_markdown", table.table(Detail::Plain).markdown());
}

#[test]
fn the_percentage_huge_table_reads_as_it_was_published() {
    let records = records_of(&published("000_thpscale_percentage_huge.csv"), Statistic::Plain, 2);
    insta::assert_snapshot!(compare::percentage_huge("", &groups(&records)).published_text());
}

#[test]
fn the_vmstat_block_of_2016_reads_as_it_was_published() {
    let cells = published("000_stutter_vmstat.csv");
    let mut records: Vec<(String, Record)> = Vec::new();
    for variant in ["kcompactd-v1r1", "nodefrag-v1r3"] {
        let row = |label: &str| -> u64 {
            let cell = cells.iter().find(|c| c.variant == variant && c.metric == label).unwrap();
            cell.value.parse().unwrap()
        };
        let mut record = Record::new(Inputs {
            kernel: Named { name: variant.into(), ..Named::default() },
            ..Inputs::default()
        });
        // As a kernel of 4.4 counts.
        record.after.counters = [
            ("pgfault", row("Minor Faults") + row("Major Faults")),
            ("pgmajfault", row("Major Faults")),
            ("pswpin", row("Swap Ins")),
            ("pswpout", row("Swap Outs")),
            ("allocstall", row("Allocation stalls")),
            ("pgalloc_dma", row("DMA allocs")),
            ("pgalloc_dma32", row("DMA32 allocs")),
            ("pgalloc_normal", row("Normal allocs")),
            ("pgalloc_movable", row("Movable allocs")),
            ("pgscan_direct_normal", row("Direct pages scanned")),
            ("pgscan_kswapd_normal", row("Kswapd pages scanned")),
            ("pgsteal_kswapd_normal", row("Kswapd pages reclaimed")),
            ("pgsteal_direct_normal", row("Direct pages reclaimed")),
            ("compact_stall", row("Compaction stalls")),
            ("compact_success", row("Compaction success")),
            ("compact_fail", row("Compaction failures")),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        records.push((variant.to_owned(), record));
    }
    insta::assert_snapshot!(compare::vmstat("", &groups(&records), Form::Y2016).published_text());
}

#[test]
fn the_lines_of_time_read_as_they_were_published() {
    let cells = published("002_mmap_demo_time.csv");
    for (variant, lines) in [
        (
            "default",
            "25.48user 30.19system 0:55.68elapsed 99%CPU (0avgtext+0avgdata 52467180maxresident)k\n\
             0inputs+0outputs (0major+15388156minor)pagefaults 0swaps\n",
        ),
        (
            "MADV_HUGEPAGE",
            "25.46user 33.12system 1:06.80elapsed 87%CPU (0avgtext+0avgdata 52467172maxresident)k\n\
             1932184inputs+0outputs (30197major+15103633minor)pagefaults 0swaps\n",
        ),
    ] {
        let value = |metric: &str| {
            cells.iter().find(|c| c.variant == variant && c.metric == metric).unwrap().number()
        };
        let ns = |metric: &str| Some((value(metric) * 1e9).round() as u64);
        let mut record = Record::new(Inputs::default());
        record.durations.user_ns = ns("user");
        record.durations.system_ns = ns("system");
        record.durations.elapsed_ns = ns("elapsed");
        record.resident_kib_max = Some(value("maxresident") as u64);
        record.after.counters = [
            ("pgpgin", value("inputs") / 2.0),
            ("pgpgout", value("outputs") / 2.0),
            ("pgmajfault", value("major pagefaults")),
            ("pgfault", value("major pagefaults") + value("minor pagefaults")),
        ]
        .map(|(name, value)| (name.to_owned(), value as u64))
        .into();
        assert_eq!(time_lines(&record), lines);
    }
}
