//! `highorder reproduce`: published tables and claims beside ours; and the table of a matrix.

use crate::common::{names, printed, project, refused, text, without_command};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// What the program prints of one published experiment at a scale at which it takes seconds.
#[track_caller]
fn reproduced(store: &Path, more: &[&str]) -> String {
    let mut all = vec!["reproduce", "--scale", "1/64", "--store", text(store)];
    all.extend(more);
    printed(&all)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn what_was_run_is_shown_beside_what_was_published_and_not_run_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, picture) = (folder.path().join("store"), folder.path().join("dots.svg"));
    let only = ["--only", "000_usemem"];
    let first = reproduced(&store, &[&only[..], &["--picture", text(&picture)]].concat());
    let shown_again = reproduced(&store, &[&only[..], &["--no-run"]].concat());
    assert_eq!(without_command(&shown_again), without_command(&first));
    let command = "highorder reproduce --only 000_usemem --scale 1/64";
    for (printed, more) in [(&shown_again, "--no-run --store "), (&first, "--store ")] {
        let expected = format!("again with: {command} {more}{}\n", text(&store));
        assert!(printed.ends_with(&expected), "{expected} in {printed}");
    }
    for expected in [
        "000_usemem: experiment thp-defrag-usemem, ",
        " at scale 1/64\n",
        "usemem times (000_usemem_times)",
        "Amean Elapsd-1 ",
        "000-usemem-elapsed-1t ",
        "Ours is at scale 1/64",
    ] {
        assert!(first.contains(expected), "{expected} in {first}");
    }
    assert!(!first.contains("thpscale"), "only what was chosen");
    let svg = fs::read_to_string(&picture).expect("a picture");
    assert!(svg.contains("usemem vmstat") && svg.contains("Swap Outs"));

    let all = json(&reproduced(&store, &[&only[..], &["--format", "json", "--no-run"]].concat()));
    let claims = all["claims"].as_array().expect("claims");
    assert!(claims.len() >= 18, "{}", claims.len());
    assert!(claims.iter().all(|claim| claim["verdict"] != "not run"), "{claims:?}");
    // Whatever becomes of them, both sides of a claim have numbers.
    for claim in claims.iter().filter(|claim| claim["verdict"] != "prose") {
        let nr = |side: &str| claim[side].as_array().map_or(0, Vec::len);
        assert!(nr("published") > 0 && nr("published") == nr("ours"), "{claim}");
    }
    let score = all["score"]["rows"].as_array().expect("rows");
    assert_eq!(score.last().expect("a sum")["document"], "all");

    let score = reproduced(&store, &[&only[..], &["--score", "--no-run"]].concat());
    assert!(score.contains("must held") && !score.contains("Amean Elapsd-1 "), "{score}");
    let html = reproduced(&store, &[&only[..], &["--format", "html", "--no-run"]].concat());
    assert!(html.contains("<h1>Published tables and ours</h1>") && html.contains("usemem times"));
}

#[test]
fn what_was_not_run_is_told_with_what_to_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let csv = reproduced(folder.path(), &["--no-run", "--format", "csv"]);
    let of = |id: &str| {
        let line = csv.lines().find(|line| line.starts_with(id));
        line.unwrap_or_else(|| panic!("{id} in {csv}"))
    };
    assert!(of("000-thpscale-base-1t,").ends_with(",run thp-defrag-thpscale"), "{csv}");
    assert!(of("000-thpscale-base-1t,").contains(",must,not run,reduction > 0.20,"), "{csv}");
    assert!(of("003-fsmark-rate-rc2,").ends_with(",run lumpy-fsmark"), "{csv}");
    assert!(of("000-policy-defer,").contains(",must,prose,"), "{csv}");
    assert_eq!(csv.lines().count(), 1 + 208, "every claim has its row");
    let score = reproduced(folder.path(), &["--no-run", "--score", "--format", "csv"]);
    assert!(score.lines().last().expect("a sum").starts_with("all,0,"), "{score}");
}

#[test]
fn bad_arguments_are_refused_before_anything_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("store");
    let told = refused(&["reproduce", "--only", "000,nonsense", "--store", text(&store)]);
    assert!(told.contains("`nonsense` names no published tables"), "{told}");
    assert!(told.contains("000_usemem (thp-defrag-usemem)"), "{told}");
    let told = refused(&["reproduce", "--picture", "dots.gif", "--store", text(&store)]);
    assert!(told.contains("dots.gif: expected a name that ends in .png or .svg"), "{told}");
    let told = refused(&["run", "mmap-demo", "--picture", "x.svg", "--store", text(&store)]);
    assert!(told.contains("expected one that has a `matrix`"), "{told}");
    assert!(!store.exists(), "nothing was begun");
}

const MATRIX: &str = r#"
description = "two values, advised and not"
machine = "one-node-8g"
matrix = ["advice", "defrag"]
sample_interval_ms = 1000

[workload]
name = "stutter"
rounds = 1

[[variant]]
name = "advised, always"
kernel = "linux-4.14"
knobs = { "transparent_hugepage/defrag" = "always" }
workload = { advice = "huge" }

[[variant]]
name = "not advised, never"
kernel = "linux-4.14"
knobs = { "transparent_hugepage/defrag" = "never" }
"#;

#[test]
fn a_matrix_is_one_table_with_a_row_for_each_variant_and_a_picture() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    let (experiment, store, picture) = (file("small.toml"), file("store"), file("heat.png"));
    fs::write(&experiment, MATRIX).expect("a file");
    let all = ["run", text(&experiment), "--scale", "1/64", "--store", text(&store)];
    let shown = printed(&[&all[..], &["--picture", text(&picture)]].concat());
    let rows: Vec<&str> = shown.lines().filter(|line| line.contains("advised")).collect();
    assert_eq!(rows.len(), 4, "two of figures, two of memory: {shown}");
    assert!(shown.contains("Memory before -> after"), "{shown}");
    assert_eq!(rows[3].matches(" -> ").count(), 5, "{shown}");
    assert!(
        rows[0].starts_with("advised      always ") && rows[0].contains(" mapping "),
        "{shown}"
    );
    assert!(rows[1].starts_with("not advised  never "), "{shown}");
    assert!(fs::read(&picture).expect("a picture").starts_with(b"\x89PNG"));
    let csv = printed(&[&all[..], &["--format", "csv"]].concat());
    assert!(csv.starts_with("advice,defrag,nr_stalls,stall_time_s,"), "{csv}");
    let value = |at: usize| csv.lines().nth(2).and_then(|line| line.split(',').nth(at));
    assert_eq!(value(3), Some("0"), "never stalls: {csv}");
    let headings: Vec<&str> = csv.lines().next().expect("headings").split(',').collect();
    let of = |name: &str| headings.iter().position(|heading| *heading == name).and_then(value);
    assert_eq!(of("mixed_pageblocks_before"), Some("0"), "nothing is mixed yet: {csv}");
    let free =
        |when: &str| of(&format!("free_pageblocks_{when}")).and_then(|s| s.parse::<f64>().ok());
    assert!(free("before") > Some(0.0) && free("after") <= free("before"), "{csv}");
    let html = printed(&[&all[..], &["--format", "html"]].concat());
    assert!(html.contains("highorder matrix"), "it is a page of its own");
    // Asked for otherwise, it is a comparison as any other.
    let noise = printed(&[&all[..], &["--noise"]].concat());
    assert!(noise.contains("not advised, never"), "{noise}");
}

#[test]
fn help_says_what_verdicts_mean() {
    let help = printed(&["reproduce", "--help"]);
    for word in ["held", "failed", "not run", "prose", "--score", "--no-run"] {
        assert!(help.contains(word), "{word} in {help}");
    }
}

/// What programs are told of usemem on three machines, but for the command, which names the store.
fn on_three_machines(store: &Path, workers: &str) -> Value {
    let more =
        ["--only", "000_usemem", "--machines", "3", "--workers", workers, "--format", "json"];
    let mut told = json(&reproduced(store, &more));
    told.as_object_mut().expect("an object").remove("command");
    told
}

#[test]
fn machines_are_judged_alike_with_any_number_of_workers_and_after_being_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (alone, killed) = (folder.path().join("alone"), folder.path().join("killed"));
    let told = on_three_machines(&alone, "1");
    let all = [
        "reproduce",
        "--scale",
        "1/64",
        "--store",
        text(&killed),
        "--only",
        "000_usemem",
        "--machines",
        "3",
    ];
    let mut child = Command::new(env!("CARGO_BIN_EXE_highorder"))
        .args(all)
        .stdout(Stdio::null())
        .spawn()
        .expect("the program");
    // Until some runs are there; how long that takes depends on the machine.
    while !killed.is_dir() || names(&killed).len() < 5 {
        assert!(child.try_wait().expect("a child").is_none(), "it ended before it was killed");
        thread::sleep(Duration::from_millis(5));
    }
    child.kill().expect("a child of ours can be killed");
    child.wait().expect("a child");
    let left = names(&killed).len();
    assert!(left < 42, "{left} of 42 records are there: it was not killed in the middle");
    assert!(
        on_three_machines(&killed, "2") == told,
        "the same after being killed, with two workers"
    );

    assert_eq!(told["machines"]["number"], 3);
    let unknowns = told["machines"]["documents"][0]["unknowns"].as_array().expect("unknowns");
    assert!(unknowns.len() >= 9, "{unknowns:?}");
    for unknown in unknowns {
        let values = unknown["values"].as_array().expect("values");
        assert_eq!(values.len(), 3, "{unknown}");
    }
    for claim in told["claims"].as_array().expect("claims") {
        let on = &claim["on_machines"];
        let is_judged = claim["verdict"] == "held" || claim["verdict"] == "failed";
        assert_eq!(on["judged"], if is_judged { 3 } else { 0 }, "{claim}");
        assert_eq!(is_judged, claim["instead"].is_null(), "{claim}");
        let quantities = on["quantities"].as_array().expect("quantities");
        assert_eq!(quantities.len(), 3, "{claim}");
    }
    let row = &told["parts"][0]["tables"][0]["rows"][0];
    for key in ["base_least", "base_most", "base_published_is"] {
        assert!(!row[key].is_null(), "{key} in {row}");
    }
}

#[test]
fn what_was_measured_is_written_in_the_form_of_the_published_files_and_as_pages() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    let (store, csv, report) = (file("store"), file("csv"), file("report"));
    let more = ["--only", "000_usemem", "--machines", "2", "--score"];
    let places = ["--csv", text(&csv), "--report", text(&report)];
    let printed = reproduced(&store, &[&more[..], &places].concat());
    assert!(printed.contains("must robust"), "{printed}");
    assert!(printed.contains("Score on 2 machines"), "{printed}");
    assert!(printed.contains("Coverage"), "{printed}");

    assert_eq!(names(&report), ["000.html", "index.html"]);
    let page = fs::read_to_string(report.join("000.html")).expect("a page");
    for expected in ["Where claims hold", "thp-defrag-usemem", "data-film=", "href=\"index.html\""]
    {
        assert!(page.contains(expected), "{expected}");
    }
    let index = fs::read_to_string(report.join("index.html")).expect("a page");
    assert!(index.contains("href=\"000.html\""), "{index}");

    let tables = ["000_usemem_duration.csv", "000_usemem_times.csv", "000_usemem_vmstat.csv"];
    let mut with_machine = tables.to_vec();
    with_machine.push("machine-2");
    assert_eq!(names(&csv), with_machine);
    assert_eq!(names(&csv.join("machine-2")), tables);
    for name in tables {
        let published = project().join("published").join(name);
        let published = fs::read_to_string(published).expect("a published file");
        let ours = fs::read_to_string(csv.join(name)).expect("ours");
        assert_eq!(ours.lines().next(), published.lines().next(), "{name}");
        let keys = |text: &str| -> Vec<Vec<String>> {
            let lines = text.lines().skip(1);
            lines.map(|line| line.split(',').take(6).map(str::to_owned).collect()).collect()
        };
        assert_eq!(keys(&ours), keys(&published), "{name}");
    }
}
