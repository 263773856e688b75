//! Records to draw: a made-up experiment with everything in it, and two runs of real kernels.

use std::collections::BTreeMap;
use std::path::Path;

use highorder_record::{
    Better, Durations, Group, Inputs, Latencies, Metric, Named, Record, Scale, Source, State,
    Statistic, Timeline, read_foreign,
};

/// The thread steps of the made-up experiment.
pub(crate) const THREADS: [u32; 5] = [1, 4, 12, 30, 48];

/// A label that is no markup, whatever it looks like.
pub(crate) const ODD_LABEL: &str = "swappiness<1> & \"co\"";

fn named(name: &str, values: &[(&str, &str)]) -> Named {
    let values = values.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    Named { name: name.to_owned(), values: values.collect() }
}

/// Numbers between 0 and 1 that look random and are always the same.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f64 / (1_u64 << 24) as f64
    }
}

/// One run: memory fills, then reclaim keeps up, more or less.
fn record(variant: usize, threads: u32, seed: u64) -> Record {
    let swappiness = ["60", "1", "100"][variant % 3];
    let mut inputs = Inputs {
        source: Source::Model,
        experiment: "usemem-anon".into(),
        experiment_text: "machine = \"two-node\"\nworkload = \"usemem\"\n# 80 % of <memory>\n"
            .into(),
        machine: named(
            "two-node",
            &[("nodes", "2"), ("memory_bytes", "4294967296"), ("swap", "nvme")],
        ),
        kernel: named("linux-4.4", &[("vm.swappiness", swappiness), ("thp.enabled", "always")]),
        workload: named("usemem", &[("loops", "3"), ("bytes", "3435973836")]),
        seed,
        iteration: 0,
        scale: Scale { numerator: 1, denominator: 16 },
        program_version: "0.1.0".into(),
        program_sources: String::new(),
    };
    inputs.workload.values.insert("threads".into(), threads.to_string());
    let mut record = Record::new(inputs);
    let mut noise = Noise(seed * 1000 + u64::from(threads) * 7 + variant as u64);

    let slow = [1.0, 0.62, 1.08][variant % 3];
    let threads_f = f64::from(threads);
    let system = (12.0 + threads_f * 1.9) * slow * (0.97 + 0.06 * noise.next());
    let elapsed = (31.0 + 60.0 / threads_f) * (0.5 + slow / 2.0) * (0.96 + 0.08 * noise.next());
    let seconds = |name: &str| Metric::new(format!("{name}-{threads}"), "s", Better::Lower);
    record.metrics = vec![
        seconds("System").with_samples([system]),
        seconds("Elapsd").with_samples([elapsed]),
        Metric::new(format!("Throughput-{threads}"), "MiB/s", Better::Higher)
            .shown_as(&[Statistic::Hmean, Statistic::Stddev], 1)
            .with_samples(
                (0..3).map(|_| 900.0 * threads_f.sqrt() / slow * (0.9 + 0.2 * noise.next())),
            ),
    ];
    record.durations = Durations {
        user_ns: Some(9_300_000_000),
        system_ns: Some((system * 1e9) as u64),
        elapsed_ns: Some((elapsed * 1e9) as u64),
        iowait_ns: Some(4_000_000_000),
        idle_ns: None,
    };
    record.resident_kib_max = Some(3_355_443);
    record.timeline = timeline(variant, elapsed, &mut noise);
    (record.before, record.after) = states(&record.timeline, slow);
    for (class, typical, many) in [("fault-base", 900.0, 6000), ("fault-huge", 180_000.0, 900)] {
        let mut latencies = Latencies::new();
        for _ in 0..many {
            let tail = 1.0 / (0.002 + noise.next()).powf(0.8) * slow;
            latencies.record((typical * (0.7 + 0.6 * noise.next()) * (1.0 + tail)) as u64);
        }
        record.latencies.insert(class.into(), latencies);
    }
    record.latencies.insert("direct-reclaim".into(), Latencies::new());
    record.notes = vec!["The timeline was sampled every 0.1 s of virtual time.".into()];
    assert_eq!(record.problems(), Vec::<String>::new());
    record
}

const ZONES: [(u32, &str, u64); 3] =
    [(0, "DMA32", 160_000), (0, "Normal", 360_000), (1, "Normal", 520_000)];

fn timeline(variant: usize, elapsed: f64, noise: &mut Noise) -> Timeline {
    let mut timeline = Timeline::default();
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    let names = [
        "pgscan_kswapd",
        "pgscan_direct",
        "pgsteal_kswapd",
        "pgsteal_direct",
        "pswpin",
        "pswpout",
        "pgfault",
        "pgmajfault",
        "allocstall",
        "cpu_user_ns",
        "cpu_system_ns",
        "cpu_iowait_ns",
        "cpu_idle_ns",
    ];
    for name in names {
        sums.insert(name, 0);
    }
    let samples = (elapsed * 10.0) as u64;
    let swaps = variant != 1;
    for i in 0..samples {
        let share = i as f64 / samples as f64;
        let is_full = share > 0.34;
        let free = if is_full {
            6000.0 + 5000.0 * noise.next()
        } else {
            1_000_000.0 * (1.0 - share / 0.34) + 9000.0
        };
        let pressure = if is_full { 0.3 + 0.7 * noise.next() } else { 0.0 };
        let mut add = |name, n: f64| *sums.get_mut(name).unwrap() += n as u64;
        add("pgfault", 9000.0 * (1.0 - 0.6 * pressure));
        add("pgscan_kswapd", 5200.0 * pressure);
        add("pgsteal_kswapd", 4100.0 * pressure);
        let direct = if swaps && noise.next() > 0.5 { pressure } else { 0.0 };
        add("pgscan_direct", 2500.0 * direct);
        add("pgsteal_direct", 1300.0 * direct);
        add("allocstall", 12.0 * direct);
        add("pswpout", if swaps { 3000.0 * pressure } else { 90.0 * pressure });
        add("pswpin", if swaps { 700.0 * pressure * share } else { 0.0 });
        add("pgmajfault", if swaps { 80.0 * pressure * share } else { 0.0 });
        add("cpu_user_ns", 30e6);
        add("cpu_system_ns", 100e6 * (0.2 + pressure));
        add("cpu_iowait_ns", 200e6 * pressure);
        add("cpu_idle_ns", 400e6 * (1.0 - pressure));
        let mut row: Vec<(String, u64)> = vec![("nr_free_pages".into(), free as u64)];
        for (node, zone, pages) in ZONES {
            row.push((
                format!("free_pages/{node}/{zone}"),
                (free * pages as f64 / 1_040_000.0) as u64,
            ));
            for (mark, parts) in [("min", 1), ("low", 2), ("high", 3)] {
                row.push((format!("watermark_{mark}/{node}/{zone}"), pages / 400 * parts));
            }
        }
        row.extend(sums.iter().map(|(name, n)| ((*name).to_owned(), *n)));
        let in_use_kib = 4 * (1_040_000 - free as u64);
        let huge = if is_full { 120 } else { 0 };
        for (name, kib) in [
            ("SUnreclaim", in_use_kib / 80),
            ("SReclaimable", in_use_kib / 40),
            ("KernelStack", in_use_kib / 500),
            ("PageTables", in_use_kib / 400),
            ("Buffers", in_use_kib / 200),
            ("Cached", in_use_kib / 10),
            ("AnonPages", in_use_kib / 4 * 3),
            ("nr_anon_transparent_hugepages", huge),
        ] {
            row.push((name.into(), kib));
        }
        row.push(("nr_active_anon".into(), (500_000.0 * share.min(0.34) / 0.34) as u64));
        row.push(("nr_inactive_anon".into(), (480_000.0 * share.min(0.34) / 0.34) as u64));
        row.push(("procs_running".into(), 1 + (4.0 * noise.next()) as u64));
        row.push(("procs_blocked".into(), (pressure * 6.0) as u64));
        timeline.push(i * 100_000_000, row.iter().map(|(name, n)| (name.as_str(), *n)));
    }
    timeline
}

fn states(timeline: &Timeline, slow: f64) -> (State, State) {
    let last = timeline.len() - 1;
    let counters = timeline.columns.iter().filter(|column| !column.name.contains(['/', ' ']));
    let after =
        counters.map(|column| (column.name.clone(), column.values.get(last).unwrap() as u64));
    let mut after = State { counters: after.collect(), ..State::default() };
    for i in 0..70 {
        after.counters.insert(format!("made_up_event_{i:02}"), i * 1_234_567);
    }
    let mut before = State::default();
    before.meminfo.insert("MemTotal".into(), 4 * 1_040_000);
    for name in after.counters.keys() {
        before.counters.insert(name.clone(), 0);
    }
    for (node, zone, pages) in ZONES {
        before.zone_mut(node, zone).free_blocks = vec![1, 2, 1, 0, 1, 0, 1, 1, 0, 2, pages / 1024];
        let blocks =
            (0..11).map(|order| ((pages as f64 * slow / 40.0) as u64 >> order) / (order + 1));
        after.zone_mut(node, zone).free_blocks = blocks.collect();
    }
    (before, after)
}

/// The records of `variants` variants: every thread step with five seeds.
pub(crate) fn made_up(variants: usize) -> Vec<Vec<Record>> {
    let of_variant = |variant| {
        THREADS
            .into_iter()
            .flat_map(move |threads| (1..=5).map(move |seed| record(variant, threads, seed)))
    };
    (0..variants).map(|variant| of_variant(variant).collect()).collect()
}

/// The groups of [`made_up`].
pub(crate) fn groups(records: &[Vec<Record>]) -> Vec<Group<'_>> {
    let labels = ["swappiness-60", ODD_LABEL, "swappiness-100"];
    records
        .iter()
        .enumerate()
        .map(|(i, records)| Group {
            label: labels.get(i).map_or(format!("variant-{i}"), |label| (*label).to_owned()),
            records: records.iter().collect(),
        })
        .collect()
}

/// The two cases of real kernels.
pub(crate) fn cases() -> Vec<Record> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/cases");
    ["612-mmapdemo-zrm0", "612-thpscale-madvise-lru0"]
        .map(|name| read_foreign(&folder.join(name)).unwrap())
        .into()
}

/// Each case as a variant of its own.
pub(crate) fn case_groups(cases: &[Record]) -> Vec<Group<'_>> {
    let group = |case| Group { label: label(case), records: vec![case] };
    cases.iter().map(group).collect()
}

fn label(case: &Record) -> String {
    case.inputs.experiment.clone()
}
