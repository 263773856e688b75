//! Experiment files: what they say, and how bad ones are refused.

use highorder_kernels::machine;
use highorder_lab::experiment::{BUILT_IN, Variant, thread_steps};
use highorder_lab::{Experiment, RealOptions, Scale, Target};
use highorder_record::{Inputs, Store, published};
use highorder_sim::DeviceKind;
use std::collections::BTreeSet;
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;

const GOOD: &str = "\
description = \"two kernels\"
machine = \"one-node-8g\"
threads = [1, 2]
iterations = 2

[workload]
name = \"usemem\"
memory = \"1 GiB\"
passes = 2

[[variant]]
kernel = \"linux-4.4\"

[[variant]]
name = \"calm\"
kernel = \"linux-4.4\"
knobs = { \"vm.swappiness\" = 10 }
";

fn parse(text: &str) -> Result<Experiment, String> {
    Experiment::parse(Path::new("mine.toml"), text).map_err(|error| error.to_string())
}

fn good() -> Experiment {
    parse(GOOD).unwrap()
}

/// The message for the good experiment with one thing replaced.
#[track_caller]
fn refusal(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    parse(&GOOD.replacen(from, to, 1)).map(drop).unwrap_err()
}

#[track_caller]
fn check(from: &str, to: &str, expected: &str) {
    assert_eq!(refusal(from, to), expected);
}

fn scale(text: &str) -> Scale {
    text.parse().unwrap()
}

fn inputs(experiment: &Experiment, at: &str) -> Vec<Inputs> {
    let plan = experiment.plan(scale(at)).unwrap();
    plan.runs.into_iter().map(|run| run.inputs).collect()
}

#[test]
fn every_experiment_that_comes_with_the_program_loads_and_shrinks() {
    for (name, _) in BUILT_IN {
        let experiment = Experiment::load(name).unwrap();
        assert_eq!(experiment.name, *name);
        // A small guest has nothing left at 1/64: the kernel itself needs some MiB.
        let is_small = experiment.variants[0].machine.memory_bytes() < 4 << 30;
        for at in if is_small { &["1", "1/16"][..] } else { &["1", "1/16", "1/64"] } {
            let plan = experiment.plan(scale(at)).unwrap();
            let expected =
                experiment.threads.len() * experiment.seeds.len() * experiment.variants.len();
            assert_eq!(plan.runs.len(), expected, "{name} at {at}");
        }
    }
}

#[test]
fn an_experiment_is_variants_times_steps_times_seeds() {
    let experiment = good();
    assert_eq!(experiment.name, "mine");
    assert_eq!(experiment.threads, [Some(1), Some(2)]);
    assert_eq!(experiment.seeds, [1, 2]);
    let names: Vec<_> = experiment.variants.iter().map(|v| v.name.as_str()).collect();
    assert_eq!(names, ["linux-4.4", "calm"]);
    let runs: Vec<_> = inputs(&experiment, "1").iter().map(Inputs::readable_name).collect();
    let expected = [
        "mine.linux-4.4.threads-1.seed-1",
        "mine.calm.threads-1.seed-1",
        "mine.linux-4.4.threads-1.seed-2",
        "mine.calm.threads-1.seed-2",
        "mine.linux-4.4.threads-2.seed-1",
        "mine.calm.threads-2.seed-1",
        "mine.linux-4.4.threads-2.seed-2",
        "mine.calm.threads-2.seed-2",
    ];
    assert_eq!(runs, expected);
}

#[test]
fn seeds_may_be_listed_instead() {
    let experiment = parse(&GOOD.replace("iterations = 2", "seeds = [7, 3]")).unwrap();
    assert_eq!(experiment.seeds, [7, 3]);
    let experiment = parse(&GOOD.replace("iterations = 2", "iterations = 3\nseed = 40")).unwrap();
    assert_eq!(experiment.seeds, [40, 41, 42]);
}

#[test]
fn steps_of_threads_are_those_of_mmtests() {
    assert_eq!(thread_steps(48), [1, 4, 7, 12, 21, 30, 48]);
    assert_eq!(thread_steps(32), [1, 3, 5, 7, 12, 18, 24, 30, 32]);
    assert_eq!(thread_steps(80), [1, 4, 7, 12, 21, 30, 48, 79, 80]);
    assert_eq!(thread_steps(33), [1, 4, 7, 12, 21, 30, 33]);
    assert_eq!(thread_steps(12), [1, 3, 5, 7, 12]);
    assert_eq!(thread_steps(8), [1, 3, 5, 7, 8]);
    assert_eq!(thread_steps(7), [1, 3, 5, 7]);
    assert_eq!(thread_steps(1), [1]);
    let experiment = parse(&GOOD.replace("[1, 2]", "{ max = 48 }")).unwrap();
    assert_eq!(experiment.threads, thread_steps(48).into_iter().map(Some).collect::<Vec<_>>());
}

#[test]
fn a_scale_is_a_ratio_in_lowest_terms() {
    assert_eq!(scale("2/32"), scale("1/16"));
    assert_eq!(scale("16/16"), Scale::FULL);
    assert_eq!(scale("3/4").to_string(), "3/4");
    assert_eq!(scale("0.125"), scale("1/8"));
    assert_eq!(scale("1.0"), Scale::FULL);
    for bad in ["0.", ".5", "1.5", "0.0", "-0.5", "0.5/2", "0.5.5", "0.x", "0.0000000001"] {
        assert!(bad.parse::<Scale>().is_err(), "{bad}");
    }
    for bad in ["", "0", "0/4", "2", "5/4", "1/0", "-1/4", "+1/4", "1/x", "1/16/2"] {
        let expected = format!("`{bad}`, expected a ratio up to 1, such as 1/16 or 0.25");
        assert_eq!(bad.parse::<Scale>(), Err(expected));
    }
}

#[test]
fn a_scaled_run_has_less_memory_smaller_sizes_and_as_many_cpus() {
    let experiment =
        parse(&GOOD.replacen("[[variant]]", "[[variant]]\nswap_mib = 512", 1)).unwrap();
    let (whole, part) = (&inputs(&experiment, "1")[0], &inputs(&experiment, "1/16")[0]);
    let both = |key: &str| {
        let of = |inputs: &Inputs| inputs.machine.values[key].clone();
        (of(whole), of(part))
    };
    let expected = |a: u64, b: u64| (a.to_string(), b.to_string());
    assert_eq!(both("node.0.memory_bytes"), expected(8 << 30, 512 << 20));
    assert_eq!(both("swap.0.bytes"), expected(512 << 20, 32 << 20));
    assert_eq!(both("reserved.high_bytes"), expected(64 << 20, 4 << 20));
    assert_eq!(both("node.0.cpus.end"), ("4".to_owned(), "4".to_owned()));
    assert_eq!(both("disk.0.capacity_bytes").0, both("disk.0.capacity_bytes").1);
    assert_eq!(whole.workload.values["memory"], "1 GiB");
    assert_eq!(part.workload.values["memory"], "64 MiB");
    assert_eq!(part.workload.values["passes"], "2");
    assert_eq!(part.scale, highorder_record::Scale { numerator: 1, denominator: 16 });
    assert_eq!(whole.experiment_text, "sample_interval_ns = 1000000000\n");
    assert_eq!(part.experiment_text, "sample_interval_ns = 62500000\n");
}

#[test]
fn knobs_that_are_amounts_of_memory_shrink_with_it_and_say_so() {
    // Where there are huge pages, the kernel keeps more free than it is told to.
    let knobs = "{ \"vm.min_free_kbytes\" = 65536, \"vm.swappiness\" = 10, \
                 \"transparent_hugepage/enabled\" = \"never\" }";
    let text = GOOD.replace("{ \"vm.swappiness\" = 10 }", knobs);
    let experiment = parse(&text).unwrap();
    let shown = |at: &str, knob: &str| inputs(&experiment, at)[1].kernel.values[knob].clone();
    assert_eq!(shown("1", "vm.min_free_kbytes"), "65536");
    assert_eq!(shown("1/16", "vm.min_free_kbytes"), "4096, scaled from 65536");
    assert_eq!(shown("1/16", "vm.swappiness"), "10");
    let scaled = &experiment.plan(scale("1/16")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    scaled.execute(&store, NonZeroUsize::MIN, &()).unwrap();
    let calm = &scaled.records(&store).unwrap()[1][0];
    let note = "vm.min_free_kbytes is 4096, scaled from 65536 as memory is";
    assert_eq!(calm.notes.first().map(String::as_str), Some(note));
    let marks = calm.after.zones.iter().map(|zone| zone.pages["min"]).sum::<u64>();
    assert!(marks.abs_diff(1024) < 8, "4 MiB are 1024 pages, found {marks}");
}

#[test]
fn knobs_that_cannot_shrink_are_refused_with_the_reason() {
    let refused = |knob: &str| {
        let text = GOOD.replace("\"vm.swappiness\" = 10", knob);
        let experiment = parse(&text).unwrap();
        assert!(experiment.plan(Scale::FULL).is_ok(), "{knob}");
        experiment.plan(scale("1/16")).map(drop).unwrap_err().to_string()
    };
    assert_eq!(
        refused("\"vm.min_free_kbytes\" = 1024"),
        "scale 1/16 of the variant `calm`: `vm.min_free_kbytes` is 1024, scaled 64, expected at least 128"
    );
    assert_eq!(
        refused("\"transparent_hugepage/khugepaged/pages_to_scan\" = 8192"),
        "scale 1/16 of the variant `calm`: `transparent_hugepage/khugepaged/pages_to_scan` is 8192, expected \
         it to be left out: pages of one turn and the time between turns are a speed, and the kernel's own \
         value of it is the same at every scale"
    );
}

#[test]
fn a_scale_that_is_too_small_is_refused() {
    let refused = good().plan(scale("1/1024")).map(drop).unwrap_err().to_string();
    assert_eq!(
        refused,
        "scale 1/1024 of one-node-8g: memory below the hole for devices ends at 4 MiB, expected more \
         than the 16 of ZONE_DMA"
    );
}

#[test]
fn a_variant_may_have_its_own_swap_machine_and_parameters() {
    let text = GOOD.replacen("name = \"calm\"", "name = \"calm\"\nswap_mib = 0", 1)
        + "workload = { passes = 5 }\n[[variant]]\nname = \"big\"\nkernel = \"linux-6.12\"\n\
           machine = \"two-node-64g\"\n";
    let experiment = parse(&text).unwrap();
    let [base, calm, big] = experiment.variants.as_slice() else { panic!("three variants") };
    assert_eq!(base.machine.swap.len(), 1);
    assert!(calm.machine.swap.is_empty());
    assert_eq!(big.machine.name, "two-node-64g");
    assert_eq!(big.kernel.name, "linux-6.12");
    let passes = |n: usize| experiment.variants[n].workload.values()["passes"].clone();
    assert_eq!([passes(0), passes(1), passes(2)], ["2", "5", "2"]);
}

#[test]
fn a_run_depends_on_nothing_that_cannot_change_it() {
    let identities = |text: &str| -> BTreeSet<_> {
        inputs(&parse(text).unwrap(), "1").iter().map(Inputs::identity).collect()
    };
    let base = identities(GOOD);
    assert_eq!(base.len(), 8, "every run is another one");
    let same = [
        ("two kernels", "a pair of kernels"),
        ("threads = [1, 2]", "threads = [2, 1]"),
        ("iterations = 2", "seeds = [2, 1]"),
        ("[workload]", "# A comment.\n[workload]"),
        ("\"1 GiB\"", "\"1024 MiB\""),
        ("= 10 }", "= \"10\" }"),
    ];
    for (from, to) in same {
        assert!(GOOD.contains(from), "{from}");
        assert_eq!(identities(&GOOD.replace(from, to)), base, "{from} -> {to}");
    }
    let more = [("threads = [1, 2]", "threads = [1, 2, 3]"), ("iterations = 2", "iterations = 3")];
    for (from, to) in more {
        assert!(identities(&GOOD.replace(from, to)).is_superset(&base), "{from} -> {to}");
    }
    let other = [
        ("passes = 2", "passes = 3"),
        ("one-node-8g", "two-node-64g"),
        ("description", "sample_interval_ms = 500\ndescription"),
    ];
    for (from, to) in other {
        assert!(identities(&GOOD.replace(from, to)).is_disjoint(&base), "{from} -> {to}");
    }
    let calmer = identities(&GOOD.replace("= 10 }", "= 11 }"));
    assert_eq!(calmer.intersection(&base).count(), 4, "the other variant's runs stay");
}

#[test]
fn files_that_an_experiment_names_lie_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("mine.toml", &GOOD.replacen("\"linux-4.4\"", "\"kernels/patched.toml\"", 1));
    fs::create_dir(folder.path().join("kernels")).unwrap();
    write("kernels/patched.toml", "based_on = \"linux-4.4\"\n");
    let path = folder.path().join("mine.toml");
    let experiment = Experiment::load(path.to_str().unwrap()).unwrap();
    assert_eq!(experiment.variants[0].name, "patched");
    assert_eq!(experiment.variants[0].kernel.name, "patched");

    write("kernels/patched.toml", "based_on = \"linux-4.4\"\n\n[lru]\nkinf = 1\n");
    let error = Experiment::load(path.to_str().unwrap()).unwrap_err().to_string();
    assert!(error.contains("kernels/patched.toml:4: unknown field `kinf`"), "{error}");
}

#[test]
fn an_unknown_experiment_is_told_the_names_there_are() {
    let names = BUILT_IN.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    assert_eq!(
        Experiment::load("usemen").unwrap_err().to_string(),
        "no experiment `usemen`, did you mean `usemem`?"
    );
    assert_eq!(
        Experiment::load("zebra").unwrap_err().to_string(),
        format!("no experiment `zebra`, expected one of {names}, or a .toml file")
    );
    let error = Experiment::load("nowhere/mine.toml").unwrap_err().to_string();
    assert!(error.starts_with("nowhere/mine.toml: cannot read: "), "{error}");
}

#[test]
fn unknown_and_missing_keys_are_named_with_their_line() {
    let error = refusal("iterations", "iteration");
    assert_eq!(error, "mine.toml:4: unknown field `iteration`, did you mean `iterations`?");
    let error = refusal("knobs", "knob");
    assert_eq!(error, "mine.toml:17: unknown field `knob`, did you mean `knobs`?");
    let error = refusal("knobs", "zebra");
    assert!(error.starts_with("mine.toml:17: unknown field `zebra`, expected one of"), "{error}");
    let error = refusal("machine = \"one-node-8g\"\n", "");
    assert_eq!(error, "mine.toml:1: missing field `machine`");
    let error = refusal("kernel = \"linux-4.4\"\n", "");
    assert_eq!(error, "mine.toml:11: missing field `kernel`");
    let error = refusal("iterations = 2", "iterations = \"two\"");
    assert!(error.starts_with("mine.toml:4: invalid type: string \"two\", expected"), "{error}");
    let error = refusal("[workload]", "[workload");
    assert!(error.starts_with("mine.toml:6: "), "{error}");
}

#[test]
fn files_that_are_not_there_are_named_with_their_line() {
    let machines = machine::BUILT_IN.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let expected = format!(
        "mine.toml:2: `machine` is `one-node`, expected one of {machines}, or a .toml file"
    );
    check("one-node-8g", "one-node", &expected);
    let error = refusal("\"one-node-8g\"", "\"here/mine.toml\"");
    assert!(
        error.starts_with(
            "mine.toml:2: `machine` is `here/mine.toml`, expected a file that can be read; \
             here/mine.toml: "
        ),
        "{error}"
    );
    let error = refusal("\"linux-4.4\"", "\"zebra\"");
    assert!(error.starts_with("mine.toml:12: `kernel` is `zebra`, expected one of"), "{error}");
    let error = refusal("\"linux-4.4\"\nknobs", "\"linux-4.4.toml\"\nknobs");
    assert!(
        error.starts_with("mine.toml:16: `kernel` is `linux-4.4.toml`, expected a file"),
        "{error}"
    );
}

#[test]
fn unknown_workloads_and_parameters_are_named_with_their_line() {
    let error = refusal("\"usemem\"", "\"usemen\"");
    assert_eq!(error, "mine.toml:7: no workload `usemen`, did you mean `usemem`?");
    let error = refusal("\"usemem\"", "\"zebra\"");
    assert!(error.starts_with("mine.toml:7: no workload `zebra`, expected one of "), "{error}");
    let error = refusal("name = \"usemem\"\n", "");
    assert!(error.starts_with("mine.toml:6: no `name` of a workload, expected one of"), "{error}");
    check("\"usemem\"", "7", "mine.toml:7: `name` is of type integer, expected a text");
    let error = refusal("passes", "loops");
    assert!(
        error.starts_with("mine.toml:9: `usemem` has no parameter `loops`, expected"),
        "{error}"
    );
    let error = refusal("passes = 2", "passes = 0");
    assert!(error.starts_with("mine.toml:9: `passes` is 0, expected "), "{error}");
    let error = refusal("\"1 GiB\"", "\"1 GB\"");
    assert!(error.starts_with("mine.toml:8: `memory` is \"1 GB\", expected "), "{error}");
    check(
        "passes = 2",
        "passes = [2]",
        "mine.toml:9: `passes` is of type array, expected a number, a text, true or false",
    );
    let error = refusal("knobs =", "workload = { passes = -1 }\nknobs =");
    assert_eq!(error.lines().count(), 1, "only the variant that has it: {error}");
    assert!(error.starts_with("mine.toml:17: `passes` is -1, expected "), "{error}");
}

#[test]
fn unknown_knobs_and_values_out_of_range_are_named_with_their_line() {
    let error = refusal("vm.swappiness", "vm.swapiness");
    assert!(error.starts_with("mine.toml:17: "), "{error}");
    assert!(error.contains("vm.swapiness"), "{error}");
    let error = refusal("= 10 }", "= 1000 }");
    assert!(error.starts_with("mine.toml:17: "), "{error}");
    assert!(error.contains("1000"), "{error}");
    check(
        "= 10 }",
        "= 1.5 }",
        "mine.toml:17: `vm.swappiness` is of type float, expected a text or a whole number",
    );
}

#[test]
fn a_workload_with_files_on_a_machine_without_a_disk_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let built_in = machine::BUILT_IN.iter().find(|(name, _)| *name == "one-node-8g").unwrap().1;
    let mut diskless: toml::Table = built_in.parse().unwrap();
    diskless.remove("disk");
    diskless.remove("swap");
    let text = toml::to_string(&diskless).unwrap();
    fs::write(folder.path().join("diskless.toml"), text).unwrap();
    let load = |targets: &[Target], workload: &str| {
        let path = folder.path().join("mine.toml");
        let text =
            GOOD.replace("\"one-node-8g\"", "\"diskless.toml\"").replace("passes = 2", workload);
        fs::write(&path, text).unwrap();
        let loaded = Experiment::load_for(&path.display().to_string(), targets);
        loaded.map(drop).map_err(|error| error.to_string())
    };
    let refused = format!(
        "{}:2: the machine `diskless` has no disk, expected one with a `[[disk]]`: the workload `usemem` \
         needs a file system",
        folder.path().join("mine.toml").display()
    );
    let vm = || "vm:debian:6.12".parse().unwrap();
    for targets in [vec![Target::Model], vec![vm()], vec![Target::Host, Target::Model]] {
        assert_eq!(load(&targets, "passes = 2"), Err(refused.clone()), "{targets:?}");
    }
    assert_eq!(load(&[Target::Model], "file = 0.0"), Ok(()), "it writes no file");
    assert_eq!(load(&[Target::Host], "passes = 2"), Ok(()), "the host is not that machine");
}

#[test]
fn a_workload_with_files_on_the_host_wants_a_folder_before_anything_runs() {
    let options = RealOptions::default();
    let plan = good().plan_on(&[Target::Host], Scale::FULL, &options);
    assert_eq!(
        plan.map(drop).unwrap_err().to_string(),
        "the workload `usemem` needs files, and no folder was given for its files, expected --folder DIR \
         with --on host"
    );
}

#[test]
fn impossible_numbers_are_named_with_their_line() {
    check("iterations = 2", "iterations = 0", "mine.toml:4: `iterations` is 0, expected 1..=10000");
    check(
        "iterations = 2",
        "sample_interval_ms = 0",
        "mine.toml:4: `sample_interval_ms` is 0, expected 1..=3600000",
    );
    check("iterations = 2", "seeds = []", "mine.toml:4: `seeds` is empty, expected at least one");
    check(
        "iterations = 2",
        "seeds = [3, 3]",
        "mine.toml:4: `seeds` has 3 twice, expected each once: runs with equal seeds are the same run",
    );
    check(
        "iterations = 2",
        "iterations = 2\nseeds = [1, 2]",
        "mine.toml:4: `iterations` beside `seeds`, expected either the list or the other two",
    );
    let expected = "expected a list of thread counts, 1..=8192, or { max = COUNT } of one";
    for bad in ["[]", "[0]", "[1, 9000]", "{ max = 0 }", "{ most = 3 }", "4", "\"all\""] {
        let error = refusal("[1, 2]", bad);
        assert!(error.starts_with("mine.toml:3: `threads` is "), "{bad}: {error}");
        assert!(error.ends_with(expected), "{bad}: {error}");
    }
    check("[1, 2]", "[4, 4]", "mine.toml:3: `threads` has 4 twice, expected each count once");
    check(
        "knobs",
        "swap_mib = 4000000\nknobs",
        "mine.toml:17: `swap_mib` is 4000000, expected at most 1906324: there disk `sda` ends",
    );
}

#[test]
fn a_published_form_is_one_of_those_there_are() {
    let named = GOOD.replacen("threads", "published = \"000_usemem\"\nthreads", 1);
    assert_eq!(parse(&named).unwrap().published, Some("000_usemem"));
    assert_eq!(good().published, None);
    let error = refusal("threads", "published = \"000_usemen\"\nthreads");
    let expected = "mine.toml:3: `published` is `000_usemen`, did you mean `000_usemem`?";
    assert_eq!(error, expected);
    let error = refusal("threads", "published = \"zebra\"\nthreads");
    let expected = "mine.toml:3: `published` is `zebra`, expected one of 000_stutter, ";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn variants_stand_for_the_columns_they_name_or_are_named_as() {
    let named = GOOD.replacen("threads", "published = \"000_usemem\"\nthreads", 1);
    let variants = named.replace("name = \"calm\"", "name = \"nodefrag-v1r3\"");
    let found = parse(&variants).unwrap().variants;
    assert_eq!(found[0].published, [""; 0], "no column has its name");
    assert_eq!(found[1].published, ["nodefrag-v1r3"]);
    let both = "name = \"calm\"\npublished = [\"nodefrag-v1r3\", \"kcompactd-v1r1\"]";
    let found = parse(&named.replace("name = \"calm\"", both)).unwrap();
    assert_eq!(found.variants[1].published, ["nodefrag-v1r3", "kcompactd-v1r1"]);
    assert_eq!(inputs(&found, "1"), inputs(&good(), "1"), "runs are the same");
    let other = named.replace("name = \"calm\"", "name = \"calm\"\npublished = \"vanilla\"");
    assert_eq!(
        parse(&other).map(drop).unwrap_err(),
        "mine.toml:17: `published` of a variant is \"vanilla\", expected columns of kcompactd-v1r1, \
         nodefrag-v1r3"
    );
    let error = refusal("name = \"calm\"", "name = \"calm\"\npublished = \"vanilla\"");
    assert!(
        error.ends_with("expected columns none: the experiment has no published tables"),
        "{error}"
    );
}

#[test]
fn names_in_a_matrix_have_its_parts() {
    let matrix = |parts: &str| format!("matrix = {parts}\nthreads");
    let found = parse(&GOOD.replacen("threads", &matrix("[\"kernel\"]"), 1)).unwrap();
    assert_eq!(found.matrix, ["kernel"]);
    assert_eq!(inputs(&found, "1"), inputs(&good(), "1"), "runs are the same");
    assert_eq!(
        refusal("threads", &matrix("[\"kernel\", \"knob\"]")),
        "mine.toml:3: `matrix` has 2 parts and the variant `linux-4.4` 1, expected as many, with `, ` \
         between them"
    );
    assert!(refusal("threads", &matrix("[]")).contains("`matrix` has 0 parts"));
}

#[test]
fn the_form_of_the_results_is_no_part_of_a_run() {
    let named = GOOD.replacen("threads", "published = \"000_usemem\"\nthreads", 1);
    assert_eq!(inputs(&parse(&named).unwrap(), "1"), inputs(&good(), "1"));
}

#[test]
fn variants_that_repeat_published_tables_are_named_as_their_columns() {
    for (name, _) in BUILT_IN {
        let experiment = Experiment::load(name).unwrap();
        let Some(form) = experiment.published.and_then(published::find) else { continue };
        let columns: BTreeSet<&str> =
            form.tables.iter().flat_map(|table| table.columns.iter().copied()).collect();
        for variant in &experiment.variants {
            let is_kernel = variant.name == variant.kernel.name;
            // Some stand for several, as tables of one posting spell them.
            let named = &variant.published;
            let is_column =
                !named.is_empty() && named.iter().all(|name| columns.contains(name.as_str()));
            // What stands beside the published columns has a name of its own.
            let is_ours = !form.name.starts_with("000") && !form.name.starts_with("003");
            assert!(is_kernel || is_column || is_ours, "{name}: {}", variant.name);
        }
    }
}

#[test]
fn the_machine_of_2012_has_the_memory_and_the_files_that_were_published() {
    let experiment = Experiment::load("lumpy-fsmark").unwrap();
    let memory = experiment.variants[0].machine.memory();
    let zones = memory.nodes.iter().flat_map(|node| &node.zones);
    let pages: u64 = zones.map(|zone| zone.managed_pages).sum();
    // micro wrote 155,514,576 KiB, 20 times memory: 7.42 GiB.
    let gib = pages as f64 / f64::from(1 << 18);
    assert!((7.40..7.44).contains(&gib), "{gib}");
    // 240 files of 30 MiB an iteration: 15 for each of 16 threads.
    assert_eq!(pages * 4096 / (30 << 20) / 16, 15);
    assert_eq!(memory.cpu_nodes.len(), 4);
}

#[test]
fn two_machines_differ_in_the_disks_bandwidth_alone() {
    let experiment = Experiment::load("dd-half-disk").unwrap();
    let [whole, half] = &experiment.variants[..] else { panic!("{:?}", experiment.variants) };
    let runs = inputs(&experiment, "1");
    let values = |n: usize| &runs[n].machine.values;
    let differing: Vec<&String> =
        values(0).iter().filter(|(k, v)| values(1).get(*k) != Some(*v)).map(|(k, _)| k).collect();
    assert_eq!(differing, ["disk.0.kind.rotating.bandwidth"]);
    assert_eq!(values(0).len(), values(1).len());
    let bandwidth = |variant: &Variant| match variant.machine.disks[0].kind {
        DeviceKind::Rotating { bandwidth, .. } => bandwidth,
        DeviceKind::Flash { .. } => panic!("{} has a flash disk", variant.machine.name),
    };
    assert_eq!((bandwidth(whole), bandwidth(half)), (90_000_000, 45_000_000));
}

#[test]
fn threads_are_for_workloads_that_have_them_and_are_set_once() {
    check(
        "passes = 2",
        "passes = 2\nthreads = 4",
        "mine.toml:10: `threads` of the workload beside the experiment's, expected one of them",
    );
    let alone =
        parse(&GOOD.replace("threads = [1, 2]\n", "").replace("passes", "threads")).unwrap();
    assert_eq!(alone.threads, [None]);
    assert_eq!(inputs(&alone, "1")[0].workload.values["threads"], "2");
    check(
        "\"usemem\"",
        "\"mmap-demo\"",
        "mine.toml:3: `threads` beside the workload `mmap-demo`, expected none: it has no number of threads",
    );
}

#[test]
fn variants_have_names_of_their_own_and_there_is_one() {
    check(
        "name = \"calm\"\n",
        "",
        "mine.toml:15: there is a variant `linux-4.4` already, expected another `name`",
    );
    check("\"calm\"", "\" \"", "mine.toml:15: `name` is empty, expected what a table shall show");
    let none = &GOOD[..GOOD.find("[[variant]]").unwrap()];
    assert_eq!(parse(none).unwrap_err(), "mine.toml: no `[[variant]]`, expected at least one");
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let text = GOOD.replace("one-node-8g", "none").replace("[1, 2]", "[0]").replace("calm", "");
    let error = parse(&text).unwrap_err();
    let lines: Vec<_> = error.lines().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(lines, ["mine.toml:2", "mine.toml:3", "mine.toml:15"], "{error}");
}

/// The good experiment with a table before its variants.
fn with_sweep(table: &str) -> String {
    GOOD.replacen("[[variant]]", &format!("[sweep]\n{table}\n\n[[variant]]"), 1)
}

#[test]
fn a_sweep_has_each_variant_at_each_value() {
    let swept = |table: &str| parse(&with_sweep(table)).unwrap();
    let found = swept("key = \"knobs.vm.min_free_kbytes\"\nvalues = [10000, 20000]");
    let names: Vec<&str> = found.variants.iter().map(|variant| variant.name.as_str()).collect();
    assert_eq!(names, ["linux-4.4, 10000", "linux-4.4, 20000", "calm, 10000", "calm, 20000"]);
    assert_eq!(found.variants[3].knobs["vm.min_free_kbytes"], "20000");
    assert_eq!(found.variants[3].knobs["vm.swappiness"], "10");
    let sweep = found.sweep.unwrap();
    let axis = sweep.one_axis().unwrap();
    assert_eq!((sweep.variants.len(), axis.values.concat()), (2, "1000020000".to_owned()));

    let found = swept("key = \"kernel.fallback.claim_min_pages\"\nvalues = [128, 384]");
    let values: Vec<u32> =
        found.variants.iter().map(|v| v.kernel.policy.fallback.claim_min_pages).collect();
    assert_eq!(values, [128, 384, 128, 384]);
    assert_eq!(found.variants[0].kernel.name, "linux-4.4");

    let found = swept("key = \"machine.memory.device_hole_mib\"\nvalues = [512]");
    assert_eq!(found.variants[0].machine.device_hole_bytes, 512 << 20);
    assert_eq!(found.variants[0].machine.name, "one-node-8g");

    let found = swept("key = \"workload.memory\"\nvalues = [0.25, \"2 GiB\"]");
    assert_eq!(found.variants[1].name, "linux-4.4, 2 GiB");
    assert_ne!(found.variants[0].workload.values(), found.variants[1].workload.values());
}

#[test]
fn a_sweep_of_several_keys_has_their_combinations_or_a_sample_of_them() {
    let axes = "axes = [\n  { key = \"kernel.fallback.claim_min_pages\", values = [128, 384] },\n  \
                { key = \"kernel.watermark.boost_factor\", values = [0, 5000, 15000] },\n  \
                { key = \"knobs.vm.min_free_kbytes\", values = [10000, 20000] },\n]";
    let found = parse(&with_sweep(axes)).unwrap();
    assert_eq!(found.variants.len(), 2 * 12);
    let names: Vec<&str> = found.variants.iter().map(|variant| variant.name.as_str()).collect();
    assert_eq!(
        names[..3],
        ["linux-4.4, 128, 0, 10000", "linux-4.4, 128, 0, 20000", "linux-4.4, 128, 5000, 10000"]
    );
    let last = &found.variants[23];
    assert_eq!(last.kernel.policy.fallback.claim_min_pages, 384);
    assert_eq!(last.kernel.policy.watermark.boost_factor, 15000);
    assert_eq!(last.knobs["vm.min_free_kbytes"], "20000");

    let sample = |nr: u32| parse(&with_sweep(&format!("{axes}\nsample = {nr}"))).unwrap();
    let points = |nr: u32| sample(nr).sweep.unwrap().points;
    let few = points(6);
    assert_eq!((few.len(), few[0].join(" ").as_str()), (6, "128 0 10000"));
    // Few points have every value of every key, and more of them only add.
    for (at, value) in [(0, "128"), (0, "384"), (1, "0"), (1, "5000"), (1, "15000"), (2, "20000")] {
        assert!(few.iter().any(|point| point[at] == value), "{few:?}");
    }
    assert_eq!(points(9)[..6], few);
    let distinct: std::collections::BTreeSet<Vec<String>> = points(11).into_iter().collect();
    assert_eq!(distinct.len(), 11);
    assert_eq!((points(12).len(), points(500).len()), (12, 12));

    let refused = |table: &str| parse(&with_sweep(table)).map(drop).unwrap_err();
    let key = "key = \"knobs.vm.swappiness\"";
    assert!(refused(key).contains("`key` without `values`"));
    assert!(refused("measure = []").contains("no `key`, expected `key` and `values`, or `axes`"));
    let both = refused(&format!("{key}\nvalues = [1]\naxes = [{{ {key}, values = [1] }}]"));
    assert!(both.contains("mine.toml:14: `axes` beside `key`"), "{both}");
    let twice = refused(&format!("axes = [{{ {key}, values = [1] }}, {{ {key}, values = [2] }}]"));
    assert!(twice.contains("`knobs.vm.swappiness` twice"), "{twice}");
    assert!(refused("axes = []").contains("`axes` has 0 keys, expected 1 to 32"));
    let none = refused(&format!("axes = [{{ {key}, values = [1] }}]\nsample = 0"));
    assert!(none.contains("mine.toml:13: `sample` is 0, expected 1 to 65536"), "{none}");
    let many =
        (0..21).map(|at| format!("{{ key = \"kernel.fallback.claim_{at}\", values = [1, 2] }}"));
    let many = refused(&format!("axes = [{}]", many.collect::<Vec<_>>().join(", ")));
    assert!(many.contains("2097152 runs of an experiment, expected at most 1000000"), "{many}");
    let wrong = refused(&axes.replace("384]", "\"many\"]"));
    assert!(wrong.starts_with("mine.toml:13: `\"many\"` of the sweep: "), "{wrong}");
}

#[test]
fn no_variant_of_a_sweep_stands_for_a_published_column() {
    let swept = with_sweep("key = \"knobs.vm.swappiness\"\nvalues = [10, 60]");
    let named = swept.replacen("threads", "published = \"000_usemem\"\nthreads", 1);
    assert!(parse(&named).is_ok());
    for column in ["nodefrag-v1r3", "misspelt"] {
        let variant = format!("name = \"calm\"\npublished = \"{column}\"");
        let expected = format!(
            "mine.toml:21: `published` of a variant is \"{column}\", expected none beside a `[sweep]`: no published \
             column is of several values"
        );
        assert_eq!(
            parse(&named.replace("name = \"calm\"", &variant)).map(drop).unwrap_err(),
            expected
        );
    }
}

#[test]
fn what_cannot_be_swept_is_told_with_the_line_of_the_value() {
    let refused = |table: &str| parse(&with_sweep(table)).map(drop).unwrap_err();
    let values = |key: &str, values: &str| refused(&format!("key = \"{key}\"\nvalues = {values}"));
    assert_eq!(
        values("swappiness", "[1]"),
        "mine.toml:12: `key` is `swappiness`, expected one that begins with kernel., machine., knobs. or \
         workload."
    );
    assert!(
        values("kernel.swappiness", "[1]")
            .contains("mine.toml:12: `key` is `kernel.swappiness`, expected a table")
    );
    assert_eq!(
        values("knobs.vm.swappiness", "[]"),
        "mine.toml:13: `values` is empty, expected at least one"
    );
    assert_eq!(
        values("knobs.vm.swappiness", "[1, 2, 1]"),
        "mine.toml:13: `values` has 1 twice, expected each once"
    );
    let told = values("kernel.fallback.claim_min_pages", "[\n  128,\n  \"many\"\n]");
    assert!(told.starts_with("mine.toml:15: `\"many\"` of the sweep: "), "{told}");
    let told = values("kernel.fallback.claim_mni_pages", "[128]");
    assert!(told.contains("mine.toml:13") && told.contains("claim_min_pages"), "{told}");
    let told = values("knobs.vm.swappiness", "[1000]");
    assert!(told.starts_with("mine.toml:13: "), "{told}");
    let told = values("workload.passes", "[\"x\"]");
    assert!(told.starts_with("mine.toml:13: "), "{told}");
    let told = values("machine.memory.device_hole_mib", "[-1]");
    assert!(told.starts_with("mine.toml:13: `-1` of the sweep: "), "{told}");
}
