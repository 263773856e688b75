use super::*;

fn number(n: u32) -> MachineNumber {
    MachineNumber::new(n).unwrap()
}

fn built_in() -> Unknowns {
    Unknowns::built_in().unwrap_or_else(|problems| panic!("{problems}"))
}

/// Each figure that was worked out of numbers in its source, worked out again: the range, the value, the numbers.
const WORKED_OUT: [(&str, f64, f64); 26] = [
    ("fragmentation", 3.1, 1000.0 * 198.0 / 64000.0),
    ("fragmentation", 7.1, 1000.0 * 102.0 / 14464.0),
    ("fragmentation", 40.4, 1000.0 * 41.0 / 1016.0),
    ("fragmentation", 57.3, 1000.0 * 22.0 / 384.0),
    ("fragmentation", 60.9, 1000.0 * 234.0 / 3840.0),
    (
        "holes",
        99878.0,
        1000.0 / 41.0 * (103 + 2 * 54 + 4 * 77 + 8 + 16 + 32 + 64 * 11 + 128 * 8 + 256 * 7) as f64,
    ),
    ("memory-bandwidth", 0.927, 10678.0 / 11525.0),
    ("memory-bandwidth", 1.15, 10678.0 / 9283.0),
    ("memory-bandwidth", 1.709, 10678.0 / 6249.0),
    ("memory-bandwidth", 1.811, 10678.0 / 5896.0),
    ("memory-latency", 0.607, 81.96 / 135.0),
    ("memory-latency", 1.007, 136.0 / 135.0),
    ("remote-memory", 1.041, 202.0 / 194.0),
    ("remote-memory", 1.135, (310.0 / 190.0) / (194.0 / 135.0)),
    ("server-clock", 1.194, 3.7 / 3.1),
    ("server-clock", 1.542, 3.7 / 2.4),
    ("server-clock", 1.85, 3.7 / 2.0),
    ("desktop-clock", 0.949, 3.7 / 3.9),
    ("desktop-clock", 1.028, 3.7 / 3.6),
    ("desktop-clock", 1.609, 3.7 / 2.3),
    ("server-fault-entry", 420.0, 1301.0 / 3.1),
    ("server-fault-entry", 651.0, 1301.0 / 2.0),
    ("desktop-fault-entry", 334.0, 1301.0 / 3.9),
    ("desktop-fault-entry", 566.0, 1301.0 / 2.3),
    ("disk-bandwidth-2012", 87_700_000.0, 155_514_576.0 * 1024.0 / 1814.90),
    ("disk-bandwidth-2012", 96_100_000.0, 111_434_984.0 * 1024.0 / 1187.85),
];

/// Figures that stand in their sources as they are.
const TOLD: [(&str, &[f64]); 12] = [
    ("desktop-cpus", &[4.0, 8.0]),
    ("desktop-swap", &[4096.0, 8192.0]),
    ("device-hole", &[512.0, 1024.0, 2048.0]),
    ("disk-bandwidth", &[138e6, 154e6, 156e6, 160e6, 205e6]),
    ("disk-queue", &[1.0, 31.0]),
    ("elevator", &[0.0, 1.0]),
    ("file-system", &[0.0, 1.0]),
    ("holes", &[258_391.0]),
    ("disk-seek", &[8_200_000.0, 8_500_000.0, 12_833_333.0]),
    ("nodes-of-48-cpus", &[2.0, 4.0]),
    ("server-swap", &[4096.0, 9728.0, 65536.0]),
    ("swap-disk", &[0.0, 1.0]),
];

/// Figures that are what the machine file says: factors of 1.
const AS_THE_FILE: [(&str, f64); 2] = [("remote-memory", 1.0), ("server-clock", 1.0)];

#[test]
fn every_figure_is_what_its_source_says_and_none_is_left_out() {
    let unknowns = built_in();
    let mut ranges: Vec<&Range> = unknowns.0.iter().map(|unknown| &unknown.range).collect();
    ranges.sort_by_key(|range| &range.name);
    ranges.dedup();
    let mut found: Vec<(&str, f64)> = ranges
        .iter()
        .flat_map(|range| range.figures.iter().map(|figure| (range.name.as_str(), figure.value)))
        .collect();
    let mut expected: Vec<(&str, f64)> = WORKED_OUT.map(|(name, value, _)| (name, value)).into();
    expected.extend(TOLD.iter().flat_map(|(name, all)| all.iter().map(|value| (*name, *value))));
    expected.extend(AS_THE_FILE);
    let by_name = |a: &(&str, f64), b: &(&str, f64)| a.0.cmp(b.0).then(a.1.total_cmp(&b.1));
    found.sort_by(by_name);
    expected.sort_by(by_name);
    assert_eq!(found, expected);
    for (name, value, numbers) in WORKED_OUT {
        // Three digits.
        assert!((value / numbers - 1.0).abs() < 0.007, "{name}: {value} of {numbers}");
    }
}

#[test]
fn every_document_has_unknowns_and_every_end_of_a_range_makes_a_machine_that_runs() {
    let unknowns = built_in();
    let scale = "1/16".parse().unwrap();
    for one in reproductions().unwrap() {
        let experiment = &one.experiment;
        let of = |unknown: &&Unknown| unknown.experiments.contains(&experiment.name);
        assert!(unknowns.0.iter().any(|unknown| of(&unknown)), "{}", experiment.name);
        for unknown in unknowns.0.iter().filter(of) {
            for figure in &unknown.range.figures {
                let mut changed = experiment.clone();
                for variant in &mut changed.variants {
                    for key in &unknown.range.keys {
                        let nominal = key.get(&variant.machine);
                        let value = match unknown.range.is_factor() {
                            true => nominal.expect("a cost") * figure.value,
                            false => figure.value,
                        };
                        key.set(&mut variant.machine, value).unwrap();
                        let now = key.get(&variant.machine).unwrap();
                        assert!((now - value).abs() < 0.51, "{key}: {now} of {value}");
                    }
                }
                changed.plan(scale).unwrap();
            }
        }
    }
}

#[test]
fn machine_1_is_nominal_and_more_machines_leave_the_earlier_ones_as_they_are() {
    let unknowns = built_in();
    let experiment = Experiment::load("thp-defrag-usemem").unwrap();
    let nominal = unknowns.on_machine(&experiment, number(1)).unwrap();
    assert_eq!(nominal.variants[0].machine, experiment.variants[0].machine);
    assert_eq!(nominal.variants[0].drawn, None);
    let values = |n| -> Vec<f64> {
        unknowns.of_document("000").map(|unknown| unknown.value(number(n)).unwrap()).collect()
    };
    // The same for everybody: a change here changes which machines all have spoken of.
    let first: Vec<f64> = values(2).into_iter().take(4).collect();
    assert_eq!(first, FIRST_MACHINE);
    assert_ne!(values(2), values(3));
    let drawn = unknowns.on_machine(&experiment, number(2)).unwrap();
    assert_eq!(drawn.variants[0].drawn, Some(number(2)));
    assert_ne!(drawn.variants[0].machine, experiment.variants[0].machine);
    assert_eq!(drawn.variants[0].machine, drawn.variants[1].machine, "variants differ in kernels");
}

/// Fragmentation, bandwidth, latency and clock of machine 2 of document 000.
const FIRST_MACHINE: [f64; 4] = [7.0, 1.402, 0.8932, 1.694];

#[test]
fn sixteen_drawn_machines_lie_in_every_sixteenth_of_every_range() {
    for unknown in &built_in().0 {
        let [least, most] = unknown.range.ends();
        let mut seen = BTreeSet::new();
        for n in 2..18 {
            let value = unknown.value(number(n)).unwrap();
            // Whole numbers are rounded, a range's ends too.
            let ends = (least - 0.5).max(0.9 * least)..=(most + 0.5).min(1.1 * most);
            assert!(ends.contains(&value), "{}: {value}", unknown.name);
            let share = sobol_burley::sample(n - 2, unknown.dimension, SEED);
            seen.insert((f64::from(share) * 16.0) as u32);
        }
        assert_eq!(seen.len(), 16, "{}: {seen:?}", unknown.name);
    }
}

#[test]
fn an_elevator_has_a_number() {
    let mut machine = highorder_kernels::machine::load("one-node-3g-2012").unwrap();
    assert_eq!(Key::Elevator.get(&machine), Some(0.0));
    Key::Elevator.set(&mut machine, 1.0).unwrap();
    assert_eq!(machine.disks[0].elevator, highorder_sim::Elevator::Cfq);
    assert_eq!(Key::Elevator.get(&machine), Some(1.0));
    assert!(Key::Elevator.set(&mut machine, 2.0).unwrap_err().contains("expected less than 2"));
}

#[test]
fn a_file_system_has_a_number() {
    let mut machine = highorder_kernels::machine::load("one-node-3g-2012").unwrap();
    assert_eq!(Key::FileSystem.get(&machine), Some(0.0));
    Key::FileSystem.set(&mut machine, 1.0).unwrap();
    assert_eq!(machine.file_systems[0], highorder_sim::machine::FileSystem::Xfs);
    assert_eq!(Key::FileSystem.get(&machine), Some(1.0));
    assert!(Key::FileSystem.set(&mut machine, 2.0).unwrap_err().contains("expected less than 2"));
}

#[test]
fn a_disk_that_turns_takes_one_request_or_more() {
    let mut machine = highorder_kernels::machine::load("one-node-3g-2012").unwrap();
    assert_eq!(Key::DiskQueue.get(&machine), Some(1.0));
    Key::DiskQueue.set(&mut machine, 31.0).unwrap();
    assert_eq!(Key::DiskQueue.get(&machine), Some(31.0));
    assert!(Key::DiskQueue.set(&mut machine, 0.0).unwrap_err().contains("expected at least 1"));
    let mut flash = highorder_kernels::machine::load("fleet-32g").unwrap();
    assert_eq!(Key::DiskQueue.get(&flash), None);
    assert!(Key::DiskQueue.set(&mut flash, 31.0).is_err());
}

#[test]
fn nodes_share_memory_and_cpus_and_swap_stays_on_its_disk() {
    let mut machine = highorder_kernels::machine::load("four-node-64g-flash-swap").unwrap();
    Key::Nodes.set(&mut machine, 2.0).unwrap();
    assert_eq!(machine.nodes.len(), 2);
    assert_eq!(machine.nodes[1].cpus, 24..48);
    assert_eq!(machine.nodes[1].memory_bytes, 32 << 30);
    assert_eq!(machine.nodes[1].distances, [21, 10]);
    assert!(
        Key::Nodes.set(&mut machine, 5.0).unwrap_err().contains("expected a number that divides")
    );
    assert!(Key::SwapDisk.set(&mut machine, 2.0).unwrap_err().contains("expected less than 2"));
    let error = Key::SwapSize.set(&mut machine, 1e9).unwrap_err();
    assert!(error.contains("where `sdb` ends"), "{error}");
    let mut small = highorder_kernels::machine::load("one-node-8g").unwrap();
    let at_boot = small.sched;
    Key::NodeCpus.set(&mut small, 4.0).unwrap();
    assert_eq!(small.sched, at_boot, "the file has the kernel's own times");
    Key::NodeCpus.set(&mut small, 8.0).unwrap();
    assert_eq!(small.sched.latency, highorder_sim::Ns(24_000_000));
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    let range = |figures: &str| {
        format!(
            "[range.a]\nkeys = [\"nodes\"]\nunit = \"nodes\"\ndrawn = \"evenly\"\nfigures = {figures}\n"
        )
    };
    let figures = "[{ value = 1, source = \"x\" }, { value = 2, source = \"y\" }]";
    let unknown = |experiments: &str, range: &str| {
        format!(
            "[[unknown]]\nname = \"n\"\nexperiments = {experiments}\nmissing = \"m\"\nrange = \"{range}\"\n"
        )
    };
    let good = range(figures);
    for (text, expected) in [
        (range("[]"), "x.toml:5: 0 figures, expected two or more"),
        (
            range("[{ value = 1, source = \" \" }, { value = 2, source = \"y\" }]"),
            "1 has no source",
        ),
        (range("[{ value = 0, source = \"x\" }, { value = 2, source = \"y\" }]"), "above 0"),
        (good.replace("nodes\"]", "nods\"]"), "x.toml:2: no key `nods`, did you mean `nodes`"),
        (good.replace("evenly", "anyhow"), "x.toml:4: unknown variant `anyhow`"),
        (good.clone() + &unknown("[\"nonsense\"]", "a"), "no experiment `nonsense` repeats tables"),
        (good.clone() + &unknown("[\"lumpy-micro\"]", "b"), "x.toml:10: no range `b`"),
        (good.clone() + &unknown("[\"lumpy-micro\", \"thp-numa-bench\"]", "a"), "of 2 documents"),
        (good.clone() + &unknown("[\"lumpy-micro\"]", "a").repeat(2), "twice in 003"),
    ] {
        let error = Unknowns::parse("x.toml", &text).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let right = good + &unknown("[\"lumpy-micro\"]", "a");
    assert_eq!(Unknowns::parse("x.toml", &right).unwrap().0[0].document, "003");
}
