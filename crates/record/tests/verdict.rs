//! The verdict: what it says of records made by hand.

use highorder_record::compare::{self, Detail};
use highorder_record::ended::ended_early_note;
use highorder_record::verdict::{self, Findings, Known};
use highorder_record::{
    Better, Form, Group, Inputs, Latencies, Metric, Record, Source, Statistic, stats::PERCENTILES,
};

/// A run under a variant with so many threads, in which each metric has these samples.
fn run(variant: &str, threads: u32, seed: u64, metrics: &[(&str, &str, &[f64])]) -> Record {
    let mut record = Record::new(Inputs { seed, experiment: "x".into(), ..Inputs::default() });
    record.inputs.kernel.name = variant.into();
    record.inputs.workload.name = "usemem".into();
    record.inputs.workload.values.insert("threads".into(), threads.to_string());
    for (name, unit, samples) in metrics {
        let metric = Metric::new(*name, *unit, Better::Lower);
        record.metrics.push(metric.with_samples(samples.iter().copied()));
    }
    record.before.counters.insert("oom_kill".into(), 0);
    record.after.counters.insert("oom_kill".into(), 0);
    record
}

fn killed(variant: &str, threads: u32, seed: u64) -> Record {
    let name = format!("Killed-{threads}");
    let mut record = run(variant, threads, seed, &[(&name, "processes", &[1.0])]);
    record.notes.push("usemem was killed: out of memory".into());
    record.after.counters.insert("oom_kill".into(), 1);
    record.after.counters.insert("pswpout".into(), 77);
    record.durations.elapsed_ns = Some(3_000_000_000);
    for (at_s, kills) in [(1, 0), (2, 0), (3, 1)] {
        record.timeline.push(at_s * 1_000_000_000, [("oom_kill", kills)]);
    }
    record
}

fn groups<'a>(records: &'a [Vec<Record>]) -> Vec<Group<'a>> {
    let group = |records: &'a Vec<Record>| Group {
        label: records[0].inputs.kernel.name.clone(),
        records: records.iter().collect(),
    };
    records.iter().map(group).collect()
}

fn found(records: &[Vec<Record>]) -> Findings {
    verdict::find(&groups(records), false)
}

/// Repeats whose seconds are those of the base and of another variant.
fn repeated(base: &[f64], other: &[f64]) -> Vec<Vec<Record>> {
    let of = |variant: &str, all: &[f64]| {
        let run = |(seed, seconds): (usize, &f64)| {
            run(variant, 4, seed as u64 + 1, &[("System-4", "s", &[*seconds])])
        };
        all.iter().enumerate().map(run).collect()
    };
    vec![of("vanilla", base), of("patched", other)]
}

#[test]
fn what_is_better_by_more_than_noise_is_told_by_name_and_amount() {
    let records = repeated(&[10.0, 10.1, 10.2, 10.3], &[5.0, 5.1, 5.2, 5.3]);
    let findings = found(&records);
    let pair = &findings.compared[0];
    assert_eq!((pair.nr_better, pair.nr_worse, pair.nr_too_few), (1, 0, 0), "{pair:?}");
    assert_eq!(pair.differences[0].known, Known::MoreThanNoise);
    let lines = findings.lines();
    assert!(lines[0].starts_with("patched against vanilla, of 1 row: 1 better"), "{lines:#?}");
    assert_eq!(lines[1], "  better: System-4 10.2 -> 5.15 s, 49.3 % less");
    assert_eq!(lines.len(), 2, "nothing is undecided, nothing is missing: {lines:#?}");
}

#[test]
fn with_one_seed_nothing_is_called_more_than_noise_and_it_is_said_what_decides() {
    let findings = found(&repeated(&[10.0], &[5.0]));
    assert_eq!(findings.compared[0].differences[0].known, Known::TooFewRepeats);
    let lines = findings.lines().join("\n");
    assert!(lines.contains("perhaps better: System-4 10 -> 5 s, 50 % less"), "{lines}");
    assert!(lines.contains("1 repeat of each run cannot tell a difference from noise"), "{lines}");
    assert!(lines.contains("`iterations = 4` in the experiment"), "{lines}");
    assert!(!lines.contains("more than noise"), "{lines}");

    // A thousand samples of one run are no thousand runs.
    let many = |from: f64| -> Vec<f64> { (0..1000).map(|i| from + f64::from(i)).collect() };
    let (a, b) = (many(5000.0), many(100.0));
    let one =
        |variant: &str, samples: &[f64]| vec![run(variant, 1, 1, &[("fault-1", "us", samples)])];
    let findings = found(&[one("vanilla", &a), one("patched", &b)]);
    assert_eq!(findings.compared[0].differences[0].known, Known::InTheseRuns);
    let lines = findings.lines().join("\n");
    assert!(lines.contains("better in these runs: fault-1"), "{lines}");
    assert!(lines.contains("cannot tell a difference from noise"), "{lines}");
}

/// A run each of two variants, in which the rows have these values.
fn once(rows: &[(&str, f64, f64)]) -> Vec<Vec<Record>> {
    let of = |variant: &str, value: fn(&(&str, f64, f64)) -> f64| {
        let samples: Vec<[f64; 1]> = rows.iter().map(|row| [value(row)]).collect();
        let named = rows.iter().zip(&samples).map(|(row, sample)| (row.0, "s", &sample[..]));
        vec![run(variant, 4, 1, &named.collect::<Vec<_>>())]
    };
    vec![of("vanilla", |row| row.1), of("patched", |row| row.2)]
}

#[test]
fn the_strongest_row_of_each_direction_is_told_and_all_are_counted() {
    let mut rows = vec![
        ("Elapsd-1", 9.0, 4.0),
        ("Elapsd-4", 0.7, 1.0),
        ("Elapsd-7", 0.5, 0.6),
        ("Elapsd-12", 0.5, 0.8),
        ("System-1", 2.0, 0.5),
        ("System-4", 0.2, 0.25),
    ];
    let told = |rows: &[(&str, f64, f64)]| found(&once(rows)).lines();
    let lines = told(&rows);
    assert_eq!(
        lines[..7],
        [
            "patched against vanilla: 6 rows differ, 2 for the better and 4 for the worse, and may do so by noise \
             alone.",
            "  perhaps better: System-1 2 -> 0.5 s, 75 % less",
            "  perhaps worse: System-4 0.2 -> 0.25 s, 25 % more",
            "  perhaps better: Elapsd-1 9 -> 4 s, 55.6 % less",
            "  perhaps worse: Elapsd-12 0.5 -> 0.8 s, 60 % more",
            "  perhaps worse: Elapsd-4 0.7 -> 1 s, 42.9 % more",
            "  perhaps worse: Elapsd-7 0.5 -> 0.6 s, 20 % more",
        ]
    );
    // Of more rows than there is room for both directions are seen, and those without a line are counted.
    let others: Vec<String> = (0..9).map(|i| format!("other {i}")).collect();
    rows.extend(others.iter().map(|name| (name.as_str(), 8.0, 1.0)));
    let lines = told(&rows);
    assert!(
        lines[0].contains("15 rows differ, 11 for the better and 4 for the worse"),
        "{lines:#?}"
    );
    assert!(lines[8].starts_with("  perhaps better: other 7"), "{lines:#?}");
    assert_eq!(lines[9], "  perhaps worse: System-4 0.2 -> 0.25 s, 25 % more");
    assert_eq!(lines[10], "  and 6 more: 3 perhaps better, 3 perhaps worse");
    let pair = &found(&once(&rows)).compared[0];
    assert_eq!((pair.nr_too_few, pair.nr_perhaps_better, pair.nr_perhaps_worse), (15, 11, 4));
}

#[test]
fn no_fault_of_a_kind_is_not_a_fault_that_takes_no_time() {
    let of = |variant: &str, us: f64| -> Vec<Record> {
        (1..=4).map(|seed| run(variant, 4, seed, &[("fault-huge-4", "us", &[us])])).collect()
    };
    let lines = found(&[of("vanilla", 2278.0), of("patched", 0.0)]).lines();
    assert_eq!(lines, ["patched and vanilla have no row in common."]);
}

#[test]
fn real_kernels_are_repeated_by_boots() {
    let mut records = repeated(&[10.0], &[5.0]);
    records.iter_mut().flatten().for_each(|record| record.inputs.source = Source::Vm);
    let lines = found(&records).lines().join("\n");
    assert!(lines.contains("4 can: `--boots 4`."), "{lines}");
}

#[test]
fn what_is_within_noise_is_not_told_as_a_difference() {
    let findings = found(&repeated(&[10.0, 11.0, 12.0, 13.0], &[10.5, 11.5, 11.9, 12.5]));
    assert_eq!(
        findings.lines(),
        ["patched against vanilla: no row differs by more than noise (1 compared)."]
    );
}

#[test]
fn equal_rows_of_one_run_each_are_called_equal_and_not_within_noise() {
    let mut records = repeated(&[10.0], &[10.0]);
    // Something of no row, or the results were identical.
    records[1][0].after.counters.insert("nr_free_pages".into(), 7);
    assert_eq!(found(&records).lines(), ["patched against vanilla: no row differs (1 compared)."]);
}

#[test]
fn variants_that_did_not_differ_at_all_are_named() {
    let mut records = repeated(&[10.0], &[10.0]);
    records.push(vec![run("third", 4, 1, &[("System-4", "s", &[9.0])])]);
    let findings = found(&records);
    assert_eq!(findings.identical[0].labels, ["vanilla", "patched"]);
    let lines = findings.lines();
    assert_eq!(
        lines[0],
        "vanilla and patched have identical results: their inputs do not differ but in names."
    );
    assert!(lines[1].starts_with("third against vanilla"), "{lines:#?}");
}

#[test]
fn who_was_killed_comes_first_with_step_and_moment() {
    let base = vec![killed("small", 1, 1), killed("small", 48, 1)];
    let other = vec![
        run("large", 1, 1, &[("System-1", "s", &[2.0])]),
        run("large", 48, 1, &[("System-48", "s", &[2.0])]),
    ];
    let records = [base, other];
    let findings = found(&records);
    let lines = findings.lines();
    assert_eq!(
        lines[0],
        "The OOM killer ended usemem under small with 1 thread (within 3 s) and 48 threads (within \
         3 s), in 2 of 2 runs. Values of killed runs have the mark †."
    );
    assert_eq!(lines[1], "large is not compared with small: no run of small came to its end.");
    assert_eq!(
        lines[2],
        "Not measured under small, whose processes were killed: System-1 and System-48."
    );
    assert_eq!((findings.killed[0].nr_killed_runs, findings.killed[0].nr_runs), (2, 2));
    assert_eq!(findings.killed[0].steps[1].threads, Some(48));
}

#[test]
fn who_ended_early_comes_first_and_nothing_is_concluded_from_it() {
    let of =
        |variant: &str, seconds: f64| vec![run(variant, 1, 1, &[("System-1", "s", &[seconds])])];
    let mut records = [of("vanilla", 0.0), of("patched", 9.0)];
    records[0][0].notes.push(ended_early_note("no space left on the disk"));
    let findings = found(&records);
    assert_eq!(findings.ended_early[0].nr_ended_runs, 1);
    assert_eq!(
        findings.lines()[..2],
        [
            "The workload ended early under vanilla, in 1 of 1 run: no space left on the disk.",
            "patched is not compared with vanilla: no run of vanilla came to its end."
        ]
    );
    let alone = found(&records[..1]).lines();
    assert!(alone[0].starts_with("The workload ended early under vanilla"), "{alone:#?}");
    assert_eq!(alone[1..], ["vanilla stands alone: nothing to compare it with."]);
}

#[test]
fn killed_runs_are_marked_in_every_table_and_counted_for_programs() {
    let records = [
        vec![killed("small", 1, 1), killed("small", 1, 2)],
        vec![
            run("large", 1, 1, &[("System-1", "s", &[2.0])]),
            run("large", 1, 2, &[("System-1", "s", &[2.5])]),
        ],
    ];
    let groups = groups(&records);
    for table in [compare::metrics("", &groups), compare::vmstat("", &groups, Form::Y2016)] {
        let marked = table.text();
        assert!(marked.contains('†'), "{marked}");
        assert!(table.table(Detail::Plain).markdown().contains('†'));
        let csv = table.table(Detail::All).csv();
        assert!(csv.lines().next().unwrap().ends_with("small killed_runs,large killed_runs"));
        assert!(csv.lines().any(|line| line.ends_with(",2,0")) && !csv.contains('†'), "{csv}");
    }
    let swapped = compare::vmstat("", &groups, Form::Y2016).text();
    let line = swapped.lines().find(|line| line.starts_with("Swap Outs")).unwrap();
    assert!(line.contains("154†"), "{line}");
    // Nobody was killed in these.
    let large = &groups[1..];
    assert!(!compare::metrics("", large).text().contains('†'));
}

#[test]
fn what_killed_runs_counted_is_not_compared() {
    let mut records = repeated(&[10.0, 10.1, 10.2, 10.3, 10.4], &[5.0, 5.1, 5.2, 5.3, 5.4]);
    records[0].push(killed("vanilla", 4, 9));
    records[1].push(killed("patched", 4, 9));
    for (i, record) in records.iter_mut().flatten().enumerate() {
        record.after.counters.insert("pswpout".into(), 100 + i as u64);
        record.before.counters.insert("pswpout".into(), 0);
    }
    let findings = found(&records);
    assert_eq!(findings.compared[0].nr_repeats, [5, 5]);
    let outs = findings.compared[0].differences.iter().find(|d| d.row == "Swap Outs").unwrap();
    assert_eq!((outs.base, outs.value), (510.0, 540.0), "100 to 104 beside 106 to 110");
}

#[test]
fn a_row_that_a_source_does_not_have_is_told_as_not_measured() {
    let mut records = repeated(&[10.0, 10.1, 10.2, 10.3], &[10.0, 10.1, 10.2, 10.3]);
    for record in &mut records[0] {
        record.metrics.push(Metric::new("Elapsd-4", "s", Better::Lower).with_samples([1.0]));
    }
    let findings = found(&records);
    assert_eq!(findings.not_measured[0].rows, ["Elapsd-4"]);
    let lines = findings.lines().join("\n");
    assert!(lines.ends_with("Not measured under patched: Elapsd-4."), "{lines}");
}

#[test]
fn of_many_variants_the_best_and_the_worst_are_told() {
    let variant = |name: &str, seconds: f64| {
        let run = |seed| run(name, 4, seed, &[("System-4", "s", &[seconds + seed as f64 / 10.0])]);
        (1..=4).map(run).collect::<Vec<_>>()
    };
    let all: Vec<Vec<Record>> = [("a", 10.0), ("b", 12.0), ("c", 4.0), ("d", 30.0), ("e", 11.0)]
        .map(|(name, seconds)| variant(name, seconds))
        .into();
    let findings = found(&all);
    assert!(findings.compared.is_empty());
    assert_eq!(
        findings.lines(),
        [
            "The best and the worst variant:",
            "  System-4: best c with 4.25 s, worst d with 30.2 s; more than noise"
        ]
    );
}

#[test]
fn a_matrix_has_the_best_and_the_worst_of_each_workload() {
    let variant = |name: &str, ns: u64| {
        let mut record = run(name, 4, 1, &[]);
        let mut latencies = Latencies::new();
        (0..100).for_each(|_| latencies.record(ns));
        record.latencies.insert("mmap".into(), latencies);
        vec![record]
    };
    let all = [
        variant("stutter, advised, always", 9_000_000),
        variant("stutter, advised, never", 1_000_000),
        variant("usemem, advised, always", 2_000_000),
        variant("usemem, advised, never", 2_000_000),
    ];
    let findings = verdict::find(&groups(&all), true);
    let lines = findings.lines();
    assert_eq!(
        lines[0],
        "`usemem, advised, always` and `usemem, advised, never` have identical results: their inputs do not differ but in names."
    );
    assert_eq!(lines[1], "The best and the worst variant:");
    assert!(
        lines[2].starts_with("  stutter, 99 % of latencies (of a mapping) below: best advised, never with 1000 us, worst advised, always with 9"),
        "{lines:#?}"
    );
    assert!(lines.iter().all(|line| !line.starts_with("  usemem")), "nothing differs: {lines:#?}");
}

#[test]
fn the_verdict_stays_short_whatever_there_is_to_tell() {
    let variant = |name: &str, factor: f64| -> Vec<Record> {
        let run = |seed: u64| {
            let names: Vec<String> =
                (0..30).flat_map(|i| [format!("row{i}-1"), format!("row{i}-48")]).collect();
            let samples: Vec<[f64; 1]> =
                (0..names.len()).map(|i| [(i + 1) as f64 * factor + seed as f64 / 50.0]).collect();
            let rows: Vec<(&str, &str, &[f64])> = names
                .iter()
                .zip(&samples)
                .map(|(name, sample)| (name.as_str(), "s", &sample[..]))
                .collect();
            let mut record = run(name, 4, seed, &rows);
            if name == "v1" {
                record.metrics.pop();
            }
            record
        };
        let mut runs: Vec<Record> = (1..=4).map(run).collect();
        runs.push(killed(name, 4, 5));
        runs
    };
    for nr in 1..=12 {
        let all: Vec<Vec<Record>> =
            (0..nr).map(|i| variant(&format!("v{i}"), 1.0 + f64::from(i))).collect();
        let lines = found(&all).lines();
        assert!(lines.len() <= 12, "{nr} variants, {} lines: {lines:#?}", lines.len());
    }
}

#[test]
fn one_quantity_has_one_unit() {
    let mut record = run("a", 1, 1, &[]);
    let row = Metric::new("mmap", "ms", Better::Lower).shown_as(&PERCENTILES, 4);
    record.metrics.push(row.with_samples([0.5, 0.682]));
    for class in ["mmap", "stall-direct-reclaim"] {
        let mut latencies = Latencies::new();
        latencies.record(500_000);
        latencies.record(682_000);
        record.latencies.insert(class.into(), latencies);
    }
    let records = [vec![record]];
    let groups = groups(&records);
    let rows = compare::latencies("", &groups).rows;
    let largest = |class: &str| {
        let row = rows.iter().find(|row| row.metric == class && row.statistic == "Max").unwrap();
        (row.unit.clone(), row.cells[0].value.unwrap())
    };
    assert_eq!(largest("mmap"), ("ms".to_owned(), 0.682));
    assert_eq!(largest("stall-direct-reclaim"), ("us".to_owned(), 682.0));
    let text = compare::latencies("", &groups).text();
    assert!(text.lines().any(|line| line.contains("mmap") && line.contains("  ms  ")), "{text}");
}

#[test]
fn a_change_is_seen_in_the_values_that_it_is_of() {
    let of = |variant: &str, values: [f64; 3]| -> Vec<Record> {
        let run = |(seed, value): (usize, &f64)| {
            let mut record = run(variant, 1, seed as u64, &[]);
            let row = Metric::new("Fragmentation events", "", Better::Lower);
            record.metrics.push(row.shown_as(&[Statistic::Plain], 0).with_samples([*value]));
            record
        };
        values.iter().enumerate().map(run).collect()
    };
    let text = |a, b| {
        let records = [of("a", a), of("b", b)];
        compare::metrics("", &groups(&records)).text()
    };
    // Was `3 vs 3 (-12.50%)`.
    let shown = text([2.0, 3.0, 3.0], [3.0, 3.0, 3.0]);
    assert!(shown.contains("2.67 (  0.00%)") && shown.contains("3.00 (-12.50%)"), "{shown}");
    // Was `0 vs 0 (-99.00%)`.
    let shown = text([0.0, 0.0, 0.0], [0.0, 0.0, 1.0]);
    assert!(shown.contains("0.333") && !shown.contains("99"), "{shown}");
    // Was `-3232397.00%`.
    let shown = text([1.0, 1.0, 1.0], [32325.0, 32325.0, 32325.0]);
    assert!(shown.contains("32325x") && !shown.contains("-3232"), "{shown}");
}
