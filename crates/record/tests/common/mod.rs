//! A record that has something of everything.

use highorder_record::stats::PERCENTILES;
use highorder_record::{
    Better, Durations, Inputs, Latencies, Metric, Named, Record, Scale, Source, Statistic,
    Timeline, TimelineColumn, TimelineValues,
};

/// The record of one run of an experiment; `seed` changes every number in it.
pub(crate) fn record(kernel: &str, threads: u32, seed: u64) -> Record {
    let text = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    };
    let mut record = Record::new(Inputs {
        source: Source::Model,
        experiment: "usemem-anon".into(),
        experiment_text: "machine = \"two-node\"\n".into(),
        machine: Named { name: "two-node".into(), values: text(&[("nodes", "2")]) },
        kernel: Named { name: kernel.into(), values: text(&[("vm.swappiness", "60")]) },
        workload: Named {
            name: "usemem".into(),
            values: text(&[("threads", &threads.to_string()), ("loops", "3")]),
        },
        seed,
        iteration: 0,
        scale: Scale { numerator: 1, denominator: 16 },
        program_version: "0.1.0".into(),
        program_sources: String::new(),
    });
    let counters = |by: u64| {
        [("pgfault", 1000 * by + seed), ("pgmajfault", by), ("nr_free_pages", 70_000 - by)]
            .map(|(name, value)| (name.to_owned(), value))
    };
    record.before.counters = counters(0).into();
    record.after.counters = counters(40).into();
    let mut held = record.after.clone();
    held.zone_mut(0, "Normal").pages = [("free".to_owned(), 512), ("min".to_owned(), 128)].into();
    record.held = Some(held);
    let zone = record.after.zone_mut(1, "Normal");
    zone.free_blocks = vec![3, 2, 1, 0, 9];
    zone.free_blocks_by_migratetype.insert("Movable".into(), vec![3, 1, 1, 0, 9]);
    zone.pageblocks.insert("Movable".into(), 31);
    zone.protection_pages = vec![0, 0, 1000];
    record.after.nodes.entry(1).or_default().insert("nr_inactive_anon".into(), 77);
    record.durations = Durations {
        user_ns: Some(2_000_000_000 + seed),
        system_ns: Some(1_500_000_000),
        elapsed_ns: Some(4_000_000_000),
        iowait_ns: Some(0),
        idle_ns: None,
    };
    record.resident_kib_max = Some(4096);
    record.metrics = vec![
        Metric::new(format!("System-{threads}"), "s", Better::Lower)
            .with_samples((0..7).map(|i| 1.5 + i as f64 / 7.0 + seed as f64)),
        Metric::new(format!("Elapsd-{threads}"), "s", Better::Lower).with_samples([4.0]),
        Metric::new("mmap", "ms", Better::Lower)
            .shown_as(&PERCENTILES, 4)
            .with_samples((0..50).map(|i| f64::from(i * i) / 3.0)),
        Metric::new("never", "us", Better::Lower),
        Metric::new("Files/s", "1/s", Better::Higher)
            .shown_as(&[Statistic::Hmean, Statistic::Stddev], 2)
            .with_samples([3.25, 2.5, 4.0]),
    ];
    for (class, step) in [("fault-base", 700), ("fault-huge", 90_000)] {
        let mut latencies = Latencies::new();
        (1..200).for_each(|i| latencies.record(i * step + seed));
        record.latencies.insert(class.into(), latencies);
    }
    record.latencies.insert("direct-reclaim".into(), Latencies::new());
    let mut timeline = Timeline::default();
    for i in 0..20_u64 {
        timeline.push(
            i * 200_000_000,
            [("nr_free_pages", 70_000 - 100 * i), ("pswpout", i * i), ("MemFree", u64::MAX - i)],
        );
    }
    timeline.push(4_100_000_000, [("pswpout", 500), ("kswapd late", 1)]);
    timeline.columns.push(TimelineColumn {
        name: "fragmentation index; order=9".into(),
        unit: "1".into(),
        values: TimelineValues::Reals(
            (0..21).map(|i| (i % 3 > 0).then(|| 1.0 / f64::from(i))).collect(),
        ),
    });
    record.timeline = timeline;
    let picture = format!("<svg xmlns=\"http://www.w3.org/2000/svg\"><title>{seed}</title></svg>");
    record.pictures = [("memory-held".to_owned(), picture)].into();
    record.notes = vec!["A note with \"quotes\" and an ö.".into()];
    assert_eq!(record.problems(), Vec::<String>::new());
    record
}
