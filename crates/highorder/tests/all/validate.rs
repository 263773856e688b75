//! `highorder validate` on cases that come with the project.

use crate::common::{highorder, printed, project, refused};
use std::fs;
use std::path::Path;

#[test]
fn covered_cases_are_compared_and_others_say_what_they_wait_for() {
    let text = printed(&["validate"]);
    assert!(text.contains("612-small-usemem120-lru0"), "{text}");
    assert!(text.contains("pswpout"), "{text}");
    assert!(text.contains("median relative error"), "{text}");
    let compared = text.split("Not covered").next().unwrap();
    assert!(compared.contains("612-thpscale-madvise-lru0"), "{text}");
    assert!(text.contains("12 cases compared, 0 not covered"), "{text}");
}

/// A folder with copies of a case that comes with the project, by name: `case.json` of each as this changes it.
fn changed_copies(case: &str, changes: &[(&str, &[(&str, &str)])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, replaced) in changes {
        let copy = folder.path().join(name);
        copy_folder(&project().join("tests/data/cases").join(case), &copy);
        let mut given = fs::read_to_string(copy.join("case.json")).unwrap();
        for (from, to) in *replaced {
            assert!(given.contains(from), "{from}: {given}");
            given = given.replace(from, to);
        }
        fs::write(copy.join("case.json"), given).unwrap();
    }
    folder
}

#[test]
fn what_cannot_be_compared_is_a_line_and_does_not_end_the_run() {
    let workload = "usemem -t 2 -p 80 -l 3 -H -f /data/stream";
    let never = "\"/sys/kernel/mm/transparent_hugepage/defrag\": \"never\"";
    let defer = never.replace("never", "defer");
    let boost = format!("{never}, \"vm.watermark_boost_factor\": 15000");
    let folder = changed_copies(
        "44-usemem80-stream-never",
        &[
            ("as-it-was", &[]),
            ("boosted", &[(never, &boost)]),
            ("deferred", &[(never, &defer)]),
            ("killed", &[("\"status\": \"ok\"", "\"status\": \"timeout\"")]),
            ("option", &[(workload, "usemem -q 7")]),
            ("program", &[(workload, "stress -t 2")]),
            ("release", &[("\"4.4.155\"", "\"2.6.39\"")]),
        ],
    );
    let folder = folder.path().to_str().unwrap();
    let text = printed(&["validate", "--cases", folder]);
    assert!(text.contains("1 case compared, 6 not covered"), "{text}");
    let lines = text.split("Not covered").nth(1).unwrap();
    let line = |case: &str| lines.lines().find(|line| line.starts_with(case)).unwrap().to_owned();
    for (case, missing) in [
        ("boosted", "the recorded kernel has no such knob"),
        ("deferred", "is `defer`, expected one of always, madvise, never"),
        ("killed", "status is `timeout`"),
        ("option", "`-q`"),
        ("program", "the program `stress`"),
        ("release", "no kernel file for release 2.6.39"),
    ] {
        assert!(line(case).contains(missing), "{case}: {text}");
    }
    // The kernel that is chosen is the model's, whatever the release; 4.6 knows `defer`.
    let chosen = ["validate", "--cases", folder, "--only", "release", "--only", "deferred"];
    let text = printed(&[&chosen[..], &["--kernel", "linux-4.6"]].concat());
    assert!(text.contains("2 cases compared, 0 not covered"), "{text}");
    let error = refused(&[&chosen[..], &["--kernel", "linux-2.6"]].concat());
    assert!(error.contains("no kernel `linux-2.6`"), "{error}");
}

/// The figures of a case that comes with the project: real and the model's.
fn figures_of(case: &str) -> impl Fn(&str) -> Option<[f64; 2]> {
    let text = printed(&["validate", "--only", case, "--format", "json"]);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["cases"].as_array().unwrap().len(), 1, "{text}");
    move |name: &str| {
        let counters = document["cases"][0]["counters"].as_array().unwrap();
        let row = counters.iter().find(|row| row["counter"] == name)?;
        Some(["real", "model"].map(|of| row[of].as_f64().unwrap()))
    }
}

#[test]
fn reclaim_that_is_counted_by_zone_is_compared_and_what_the_set_up_left_is_taken_away() {
    let of = figures_of("44-usemem80-stream-never");
    // As recorded: pgscan_kswapd_dma and pgscan_kswapd_dma32 rose by so much together.
    let [real, _] = of("pgscan_kswapd").expect("compared");
    assert_eq!(real, 204_376.0);
    for counter in ["pgsteal_kswapd", "pgrefill"] {
        assert!(of(counter).is_some(), "{counter}");
    }
    // The file that the set-up wrote is clean cache there as here: with it in memory as pages that nobody can
    // reclaim, the model swapped hundreds of thousands.
    let [real, model] = of("pswpout").unwrap_or_default();
    assert!(real < 1000.0 && model < 5000.0, "{real}, {model}");
}

#[test]
fn a_kernel_that_does_not_say_what_zones_manage_is_given_memory_all_the_same() {
    let text = printed(&["validate", "--only", "34-usemem80"]);
    let derived = text.split("Derived").nth(1).unwrap_or_else(|| panic!("{text}"));
    assert!(derived.contains("managed pages of zones are derived from MemTotal"), "{text}");
    let of = figures_of("34-usemem80");
    let [real, model] = of("thp_fault_alloc").unwrap();
    assert!((real - model).abs() < 0.1 * real, "{real}, {model}");
}

#[test]
fn huge_faults_that_nothing_was_advised_of_do_not_reclaim_on_4_6() {
    let of = figures_of("46-thpscale-nohint-madvise");
    let none = |name: &str| of(name).is_none_or(|[real, model]| real < 16.0 && model < 16.0);
    assert!(none("compact_stall") && none("allocstall"));
    let [real, model] = of("thp_fault_alloc").unwrap();
    assert!((real - model).abs() < 0.25 * real, "{real}, {model}");
}

#[test]
fn the_cases_come_with_the_program_and_run_from_any_folder() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = |arguments: &[&str]| highorder(arguments).current_dir(folder.path()).assert();
    let output = elsewhere(&["validate", "--only", "small-usemem"]).success().get_output().clone();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        text,
        printed(&["validate", "--only", "small-usemem", "--cases", "tests/data/cases"])
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left there");
    let output = elsewhere(&["validate", "--only", "nothing"]).code(2).get_output().clone();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.contains("no case whose name holds `nothing` comes with the program"),
        "{message}"
    );
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let copy = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &copy);
        } else {
            fs::copy(&path, &copy).unwrap();
        }
    }
}

#[test]
fn the_document_for_programs_has_every_counter_and_the_two_figures() {
    let text = printed(&["validate", "--only", "small-usemem", "--format", "json"]);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let counters = document["cases"][0]["counters"].as_array().unwrap();
    let of = |name: &str| {
        let row = counters.iter().find(|row| row["counter"] == name);
        row.unwrap_or_else(|| panic!("{name} is compared: {text}")).clone()
    };
    // As recorded: after less before.
    assert_eq!(of("pswpout")["real"], 86_991.0);
    assert_eq!(of("pgmajfault")["real"], 8137.0);
    // A single-threaded workload on one CPU: what it swaps follows from its sizes.
    assert!(of("pswpout")["relative_error"].as_f64().unwrap() < 0.1, "{text}");
    assert!(of("pgmajfault")["relative_error"].as_f64().unwrap() < 0.1, "{text}");
    assert!(document["median_relative_error"].as_f64().unwrap() < 0.5, "{text}");
    assert!(document["order_agreement"].is_null(), "one case has no other beside it");
}

#[test]
fn huge_share_fallbacks_and_free_blocks_stand_beside_the_counters() {
    let text =
        printed(&["validate", "--only", "612-small-u", "--only", "612-swap", "--format", "json"]);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let cases = document["cases"].as_array().unwrap();
    let case = |name: &str| cases.iter().find(|case| case["case"] == name).unwrap();
    // As recorded: extfrag.json counts 3 events, none of which mixed types.
    let swappiness = case("612-swappiness0");
    assert_eq!(swappiness["fallbacks"]["real"], 3.0, "{text}");
    let off = swappiness["fallbacks"]["relative_error"].as_f64().unwrap();
    let modelled = swappiness["fallbacks"]["model"].as_f64().unwrap();
    assert_eq!(off, (modelled - 3.0).abs() / 8.0, "the floor is 8 events");
    // Neither has huge pages: MADV_NOHUGEPAGE.
    assert!(swappiness["huge_share"].is_null(), "{text}");
    for case in cases {
        for distance in ["free_blocks_distance", "free_pages_distance"] {
            let apart = case[distance].as_f64().unwrap();
            assert!(apart > 0.0 && apart < 0.6, "{distance} {apart}: {text}");
        }
        assert!(case["median_relative_error"].is_number());
    }
    let quantities = document["quantities"].as_array().unwrap();
    let quantity = |name: &str| quantities.iter().find(|q| q["quantity"] == name).unwrap();
    assert_eq!(quantity("free blocks apart")["cases"], 2);
    let of_pswpout = &quantity("pswpout")["median_relative_error"];
    let counters = case("612-small-usemem120-lru0")["counters"].as_array().unwrap();
    let counter = counters.iter().find(|row| row["counter"] == "pswpout").unwrap();
    assert_eq!(*of_pswpout, counter["relative_error"], "the only case that swaps");
    assert_eq!(quantity("pgfault")["order_pairs"], 0, "no two are of one subject");
}

#[test]
fn programs_of_several_steps_and_in_the_background_come_near_what_was_recorded() {
    let only = ["--only", "compactmem", "--only", "churn", "--only", "fragmenter"];
    let text = printed(&[&["validate", "--format", "json"][..], &only].concat());
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let counter = |case: &str, name: &str| {
        let cases = document["cases"].as_array().unwrap();
        let case = cases.iter().find(|found| found["case"] == case).unwrap();
        let counters = case["counters"].as_array().unwrap();
        let row = counters.iter().find(|row| row["counter"] == name).unwrap();
        ["real", "model"].map(|of| row[of].as_f64().unwrap())
    };
    let is_near = |case: &str, name: &str, share: f64| {
        let [real, model] = counter(case, name);
        assert!((real - model).abs() < share * real, "{case} {name}: {real}, {model}");
    };
    // Half of 80 % of memory in random pages, and then echo 1 > compact_memory.
    is_near("612-compactmem-rand", "pgmigrate_success", 0.1);
    is_near("612-small-churn", "pgfault", 0.1);
    // Blocks that the journal holds keep compaction from making huge pages: the kernel made 20 of 362.
    is_near("612-fragmenter-2node-boost15000", "thp_fault_fallback", 0.1);
}

#[test]
fn a_picture_shows_the_model_against_the_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("v.svg");
    let path = path.to_str().unwrap();
    printed(&["validate", "--only", "small-usemem", "--picture", path]);
    assert!(fs::read_to_string(path).unwrap().contains("<circle"));
}

#[test]
fn both_sides_of_a_case_are_kept_to_be_compared() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("records");
    let store = store.to_str().unwrap();
    let case = "612-small-usemem120-lru0";
    let validate = ["validate", "--only", case, "--store", store];
    let kept = printed(&validate);
    assert_eq!(printed(&validate), kept, "the same again, beside what is there already");
    assert_eq!(printed(&["validate", "--only", case]), kept, "as without a store");
    let compare = ["compare", "612-small-*:*", "--store", store, "--format", "json"];
    let document: serde_json::Value = serde_json::from_str(&printed(&compare)).unwrap();
    let runs = document["variants"].as_array().unwrap().iter().map(|it| &it["runs"][0]["inputs"]);
    let sides: Vec<_> = runs
        .map(|inputs| {
            (inputs["source"].as_str().unwrap(), inputs["kernel"]["name"].as_str().unwrap())
        })
        .collect();
    assert_eq!(sides.len(), 2, "{document}");
    assert!(sides.contains(&("model", "linux-6.12")), "{sides:?}");
    assert!(sides.iter().any(|(source, _)| *source == "foreign"), "{sides:?}");
}

#[test]
fn the_model_runs_several_times_and_the_median_is_compared() {
    let counters = |runs: &str| -> Vec<serde_json::Value> {
        let chosen = ["validate", "--only", "small-usemem", "--runs", runs, "--format", "json"];
        let document: serde_json::Value = serde_json::from_str(&printed(&chosen)).unwrap();
        document["cases"][0]["counters"].as_array().unwrap().clone()
    };
    let of = |row: &serde_json::Value, key: &str| row[key].as_f64().unwrap();
    let (once, thrice) = (counters("1"), counters("3"));
    for row in &once {
        assert_eq!((of(row, "least"), of(row, "most")), (of(row, "model"), of(row, "model")));
    }
    let differs = |row: &&serde_json::Value| of(row, "least") < of(row, "most");
    assert!(thrice.iter().filter(differs).count() > 5, "{thrice:?}");
    for row in &thrice {
        let [least, median, most] = ["least", "model", "most"].map(|key| of(row, key));
        assert!(least <= median && median <= most, "{row}");
        // The first of them is the one that runs alone.
        let first = once.iter().find(|first| first["counter"] == row["counter"]);
        let first = first.map_or(0.0, |first| of(first, "model"));
        assert!((least..=most).contains(&first), "{first}: {row}");
    }
    let table = printed(&["validate", "--only", "small-usemem", "--runs", "1"]);
    assert!(!table.contains("least"), "{table}");
    for nr in ["0", "100"] {
        let error = refused(&["validate", "--runs", nr]);
        assert!(error.contains("1..=99"), "{error}");
    }
}

#[test]
fn costs_and_disks_are_those_of_the_machine_that_is_named() {
    let chosen = ["validate", "--only", "small-usemem"];
    let under = |machine: &str| printed(&[&chosen[..], &["--machine", machine]].concat());
    assert_eq!(under("guest-tcg"), printed(&chosen));
    // A kernel with little built in takes less time for its own work.
    assert_ne!(under("guest-tcg-lean"), printed(&chosen));
    // Instructions are not emulated there, and the disk turns: reclaim comes out otherwise, and what was recorded stays.
    let elsewhere = under("one-node-8g");
    assert_ne!(elsewhere, under("guest-tcg"));
    assert!(elsewhere.contains("130324"), "{elsewhere}");
    let error = refused(&[&chosen[..], &["--machine", "no-such-machine"]].concat());
    assert!(error.contains("no machine `no-such-machine`"), "{error}");
    let text = fs::read_to_string(project().join("machines/guest-tcg.toml")).unwrap();
    let (before, swap) = text.split_once("[[swap]]").unwrap();
    let (_, costs) = swap.split_once("\n# What primitive work").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("without-swap.toml");
    fs::write(&path, format!("{before}# What primitive work{costs}")).unwrap();
    let error = refused(&[&chosen[..], &["--machine", path.to_str().unwrap()]].concat());
    assert!(error.contains("machine without-swap has no swap, and the guest had"), "{error}");
    // As `calibrate` writes them: there are costs, and the disks are those of the guest's machine.
    let (without_disk, _) = before.split_once("[[disk]]").unwrap();
    let path = folder.path().join("costs.toml");
    fs::write(&path, format!("{without_disk}# What primitive work{costs}")).unwrap();
    let lent = under(path.to_str().unwrap());
    assert!(lent.contains("disks and swap are those of the machine `guest-tcg`"), "{lent}");
    let (figures, _) = lent.split_once("Derived").unwrap();
    assert!(printed(&chosen).starts_with(figures.trim_end()), "{lent}");
}

#[test]
fn runs_that_repeat_a_case_are_compared_with_each_other() {
    let folder = changed_copies("612-small-churn", &[("first", &[]), ("second", &[])]);
    let after = folder.path().join("second/after/vmstat");
    let counters = fs::read_to_string(&after).unwrap();
    let line = counters.lines().find(|line| line.starts_with("pgfault ")).unwrap();
    let faults: u64 = line["pgfault ".len()..].parse().unwrap();
    let doubled = counters.replace(line, &format!("pgfault {}", faults * 2));
    fs::write(&after, doubled).unwrap();
    let folder = folder.path().to_str().unwrap();
    let text = printed(&["validate", "--cases", folder]);
    let table = text.split("Cases recorded more than once").nth(1).expect("a table of its own");
    assert!(table.lines().any(|line| line.starts_with("first ") && line.contains(" 2 ")), "{text}");
    // All figures but one are the same in both runs.
    assert!(text.contains("of another real run 0.0 %"), "{text}");
    let alone = printed(&["validate", "--cases", folder, "--only", "first"]);
    assert!(!alone.contains("more than once"), "{alone}");
}

#[test]
fn a_disk_that_cannot_be_is_refused() {
    let most = u64::MAX.to_string();
    let changed = format!("\"data_mb\": {most}");
    let replaced = [("\"data_mb\": 1536", changed.as_str())];
    let folder = changed_copies("46-thpscale-nohint-madvise", &[("vast", &replaced)]);
    let error = refused(&["validate", "--cases", folder.path().to_str().unwrap()]);
    assert!(error.contains(&format!("`data_mb` is {most}, expected at most")), "{error}");
}

#[test]
fn there_is_at_least_one_worker() {
    for more in [&["--only", "small-usemem"][..], &["--live", "bzImage"]] {
        let error = refused(&[&["validate", "--workers", "0"][..], more].concat());
        assert!(error.contains("expected a whole number, at least 1"), "{error}");
    }
}

#[test]
fn a_folder_without_cases_is_an_error_of_one_line() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [
        vec!["validate", "--cases", folder.path().to_str().unwrap()],
        vec!["validate", "--only", "no-such-case"],
    ] {
        let error = refused(&arguments);
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
