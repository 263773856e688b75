//! `highorder validate` on cases that come with the project.

mod common;

use common::{highorder, printed, project, refused};
use std::fs;
use std::path::Path;

#[test]
fn covered_cases_are_compared_and_others_say_what_they_wait_for() {
    let text = printed(&["validate"]);
    assert!(text.contains("612-small-usemem120-lru0"), "{text}");
    assert!(text.contains("pswpout"), "{text}");
    assert!(text.contains("median relative error"), "{text}");
    let compared = text.split("Not covered yet").next().unwrap();
    assert!(compared.contains("612-thpscale-madvise-lru0"), "{text}");
    // A case of a program that nobody wrote yet.
    let folder = tempfile::tempdir().unwrap();
    let case = folder.path().join("stressed");
    copy_folder(&project().join("tests/data/cases/612-swappiness0"), &case);
    let given = fs::read_to_string(case.join("case.json")).unwrap();
    let line = given.lines().find(|line| line.contains("\"workload\":")).unwrap();
    let other = given.replace(line, " \"workload\": \"stress -t 2\",");
    fs::write(case.join("case.json"), other).unwrap();
    let text = printed(&["validate", "--cases", folder.path().to_str().unwrap()]);
    assert!(text.contains("Not covered yet") && text.contains("the program `stress`"), "{text}");
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

#[test]
fn the_readme_shows_what_validate_prints() {
    let readme = fs::read_to_string(project().join("README.md")).expect("the README");
    let shown = printed(&["validate", "--only", "small-usemem"]);
    let block = format!("$ highorder validate --only small-usemem\n{shown}```\n");
    assert!(readme.contains(&block), "the README shows another validation than:\n{shown}");
}
