//! Tables: how they read, and what they say where nothing is known.

mod common;

use highorder_record::compare::{self, Detail};
use highorder_record::{
    Better, Form, Group, Inputs, Latencies, Metric, Record, Source, Statistic, published,
    time_lines, vmstat_listing,
};

fn records() -> Vec<Record> {
    let mut records = Vec::new();
    for kernel in ["linux-4.4", "nodefrag"] {
        for threads in [12, 4] {
            let mut record = common::record(kernel, threads, 1);
            if kernel == "nodefrag" {
                record.metrics[0].samples.iter_mut().for_each(|sample| *sample /= 2.0);
                record.metrics.remove(1);
                record.durations.user_ns = None;
            }
            records.push(record);
        }
    }
    records
}

fn groups(records: &[Record]) -> Vec<Group<'_>> {
    records
        .chunk_by(|a, b| a.inputs.kernel == b.inputs.kernel)
        .map(|of_kernel| Group {
            label: of_kernel[0].inputs.kernel.name.clone(),
            records: of_kernel.iter().collect(),
        })
        .collect()
}

#[test]
fn a_metric_table_has_brackets_stars_and_dashes() {
    let records = records();
    let table = compare::metrics("usemem-anon", &groups(&records));
    insta::assert_snapshot!(table.text());
    insta::assert_snapshot!("metrics_csv", table.table(Detail::Noise).csv());
}

#[test]
fn durations_and_counters_have_no_brackets() {
    let records = records();
    let groups = groups(&records);
    let mut text = compare::duration("", &groups, Form::Y2016).text();
    text.push('\n');
    text.push_str(&compare::vmstat("", &groups, Form::Y2016).text());
    text.push('\n');
    text.push_str(&compare::counters("", &groups, &["pgfault", "nr_nothing"]).text());
    insta::assert_snapshot!(text);
}

#[test]
fn latencies_are_compared_by_class() {
    let records = records();
    insta::assert_snapshot!(compare::latencies("latencies (us)", &groups(&records)).text());
}

#[test]
fn the_share_of_huge_pages_counts_units_of_both_kinds() {
    let mut measured = Record::new(Inputs::default());
    let metric = |name: &str, nr: usize| {
        Metric::new(name, "us", Better::Lower).with_samples(std::iter::repeat_n(5.0, nr))
    };
    measured.metrics =
        vec![metric("fault-base-12", 1), metric("fault-huge-12", 3), metric("fault-both-12", 4)];
    let mut counted = Record::new(Inputs::default());
    for (class, nr) in [("fault-base-1", 10), ("fault-huge-1", 0), ("fault-huge-12", 6)] {
        let mut latencies = Latencies::new();
        latencies.record_many(1000, nr);
        counted.latencies.insert(class.into(), latencies);
    }
    let groups = [
        Group { label: "measured".into(), records: vec![&measured] },
        Group { label: "counted".into(), records: vec![&counted] },
    ];
    let table = compare::percentage_huge("", &groups);
    let values: Vec<(&str, Option<f64>, Option<f64>)> = table
        .rows
        .iter()
        .map(|row| (row.metric.as_str(), row.cells[0].value, row.cells[1].value))
        .collect();
    assert_eq!(
        values,
        [("Percentage huge-1", None, Some(0.0)), ("Percentage huge-12", Some(75.0), Some(100.0))]
    );
    insta::assert_snapshot!("percentage_huge", table.text());
}

#[test]
fn the_first_column_reads_zero_and_a_missing_value_is_never_zero() {
    let records = records();
    let table = compare::metrics("", &groups(&records));
    for row in &table.rows {
        let base = row.cells[0];
        assert_eq!(base.change_percent, base.value.map(|_| 0.0), "{row:?}");
        assert!(base.noise.is_none());
    }
    let row = |name: &str| table.rows.iter().find(|row| row.metric == name).unwrap();
    assert_eq!(row("never").cells[0].value, None);
    assert_eq!(row("Elapsd-4").cells[1].value, None);
    assert_eq!(row("Elapsd-4").cells[1].change_percent, None);
}

#[test]
fn columns_of_unequal_runs_come_with_a_warning() {
    let records = records();
    let mut groups = groups(&records);
    assert_eq!(compare::unequal_runs(&groups), None);
    groups[1].records.pop();
    assert_eq!(
        compare::unequal_runs(&groups).unwrap(),
        "The columns sum over different numbers of runs (linux-4.4 2, nodefrag 1): compare rates and \
         shares, not totals."
    );
}

#[test]
fn a_timeline_lists_as_vmstat_does() {
    let mut record = Record::new(Inputs::default());
    for i in 0..4_u64 {
        let s = 1_000_000_000;
        record.timeline.push(
            5 * s * i,
            [
                ("procs_running", 1),
                ("procs_blocked", 0),
                ("SwapTotal", 1_048_572),
                ("SwapFree", 1_048_572 - 1000 * i),
                ("nr_free_pages", 16_250_251 - 4_243_802 * i),
                ("Buffers", 32),
                ("Cached", 279_528),
                ("pswpout", 250 * i),
                ("pswpin", 0),
                ("pgpgin", 10 * i),
                ("pgpgout", 1000 * i),
                ("intr", 281 * 5 * i),
                ("ctxt", 75 * 5 * i),
                ("cpu_user_ns", s * i),
                ("cpu_system_ns", 4 * s * i),
                ("cpu_idle_ns", 235 * s * i),
                ("cpu_iowait_ns", 0),
            ],
        );
    }
    insta::assert_snapshot!(vmstat_listing(&record, 0).text());
    insta::assert_snapshot!(
        "vmstat_listing_csv",
        vmstat_listing(&record, 10_000_000_000).table().csv()
    );
    assert!(time_lines(&record).starts_with("-user -system -elapsed"));
}

/// A record of which every row of FS-Mark's tables of 2012 is known, and one that knows nothing.
fn fsmark() -> [Record; 2] {
    let mut known = Record::new(Inputs::default());
    let shown = [Statistic::Min, Statistic::Mean, Statistic::Stddev, Statistic::Max];
    for (name, better) in [("Files/s", Better::Higher), ("Overhead", Better::Lower)] {
        let samples = [3.0, 3.5, 4.0];
        known.metrics.push(Metric::new(name, "", better).shown_as(&shown, 2).with_samples(samples));
    }
    known.durations.user_ns = Some(8_000_000_000);
    known.durations.system_ns = Some(300_000_000_000);
    known.durations.elapsed_ns = Some(1_000_000_000_000);
    known.after.counters = [
        ("pgpgin", 10),
        ("pgpgout", 20),
        ("pswpin", 0),
        ("pswpout", 0),
        ("pgscan_direct_normal", 30),
        ("pgscan_kswapd_normal", 70_000),
        ("kswapd_steal", 69_999),
        ("pgsteal_normal", 70_029),
        ("pgfault", 99),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    [known, Record::new(Inputs::default())]
}

#[test]
fn results_in_a_published_form_have_its_rows_in_its_order_and_then_the_rest() {
    let records = fsmark();
    let groups: Vec<Group<'_>> = ["3.3.0-vanilla", "rc2-vanilla"]
        .into_iter()
        .zip(&records)
        .map(|(label, record)| Group { label: label.to_owned(), records: vec![record] })
        .collect();
    let form = published::find("003_fsmark").unwrap();
    let tables = compare::in_published_form(form, &groups);
    for (table, like) in tables.iter().zip(&form.tables) {
        assert_eq!(table.title, like.title);
        assert_eq!(table.labels, like.columns[..2]);
        let found = table.rows.iter().map(|row| (row.metric.as_str(), row.statistic.as_str()));
        let expected = like.rows.iter().map(|row| (row.metric.as_str(), row.statistic));
        assert!(found.eq(expected), "{table:?}");
        for row in &table.rows {
            assert!(row.cells[0].value.is_some(), "{} is known", row.metric);
            assert_eq!(row.cells[1].value, None, "{}: missing, never 0", row.metric);
        }
    }
    let rest: Vec<&str> = tables[3..].iter().map(|table| table.title.as_str()).collect();
    assert_eq!(rest, ["Other counters"], "what the published tables do not have");
    let text: Vec<String> = tables.iter().map(compare::Comparison::text).collect();
    insta::assert_snapshot!("published_fsmark", text.join("\n"));
}

#[test]
fn waits_for_congestion_are_told_as_reports_of_2012_do() {
    let mut record = Record::new(Inputs::default());
    let rule = ("stall.rule".to_owned(), "congestion-by-share".to_owned());
    record.inputs.kernel.values = [rule].into();
    for (class, waits) in [
        ("congestion-wait-kswapd", &[50_900_000, 100_000_000][..]),
        ("congestion-wait-kswapd-full", &[100_000_000]),
        ("wait-iff-congested-kswapd", &[0, 0, 0]),
    ] {
        let latencies = record.latencies.entry(class.to_owned()).or_default();
        waits.iter().for_each(|&ns| latencies.record(ns));
    }
    let groups = [Group { label: "x".into(), records: vec![&record] }];
    let form = published::find("003_micro").unwrap();
    let tables = compare::in_published_form(form, &groups);
    let table = tables.iter().find(|table| table.title == "FTrace congestion_wait").unwrap();
    let row = |label: &str| table.rows.iter().find(|row| row.metric == label).unwrap();
    assert_eq!(table.rows.len(), 12);
    for (label, value) in [
        ("KSwapd number congest waited", 2.0),
        ("KSwapd time congest waited", 150.0),
        ("KSwapd full congest waited", 1.0),
        ("KSwapd number conditional waited", 3.0),
        ("KSwapd full conditional waited", 0.0),
        // The model tells every wait, so there was none.
        ("Direct number congest waited", 0.0),
    ] {
        assert_eq!(row(label).cells[0].value, Some(value), "{label}");
    }
}

#[test]
fn waits_that_nobody_looked_for_are_missing() {
    // A model's kernel that does not wait for congestion, and a real kernel.
    let mut other_rule = Record::new(Inputs::default());
    let rule = ("stall.rule".to_owned(), "throttle".to_owned());
    other_rule.inputs.kernel.values = [rule].into();
    let mut real = Record::new(Inputs { source: Source::Host, ..Inputs::default() });
    real.inputs.kernel.values = [("stall.rule".to_owned(), "congestion".to_owned())].into();
    for record in [other_rule, real] {
        let groups = [Group { label: "x".into(), records: vec![&record] }];
        assert_eq!(compare::congestion_waits("", &groups).rows, []);
        let form = published::find("003_micro").unwrap();
        let tables = compare::in_published_form(form, &groups);
        let table = tables.iter().find(|table| table.title == "FTrace congestion_wait").unwrap();
        assert_eq!(table.rows.len(), 12);
        assert!(table.rows.iter().all(|row| row.cells[0].value.is_none()));
    }
}
