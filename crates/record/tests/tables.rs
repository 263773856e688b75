//! Tables: how they read, and what they say where nothing is known.

mod common;

use highorder_record::compare::{self, Detail};
use highorder_record::{
    Better, Form, Group, Inputs, Latencies, Metric, Record, time_lines, vmstat_listing,
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
