//! `highorder run` and `highorder compare`: whole programs, killed and resumed ones among them.

use crate::common::{highorder, names, printed, project, refused, text, without_command};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// Twelve runs, short ones, that reclaim and swap.
const EXPERIMENT: &str = "\
description = \"a working set of 110 % of memory\"
machine = \"one-node-8g\"
threads = [1, 2, 3]
iterations = 2
sample_interval_ms = 100

[workload]
name = \"usemem\"
memory = 1.1
passes = 2
file = 0.0

[[variant]]
name = \"eager\"
kernel = \"linux-4.4\"
knobs = { \"vm.swappiness\" = 100 }

[[variant]]
name = \"reluctant\"
kernel = \"linux-4.4\"
knobs = { \"vm.swappiness\" = 0 }
";

/// A folder with the experiment, and places for stores.
struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("small.toml"), EXPERIMENT).expect("a file");
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn experiment(&self) -> String {
        text(&self.path("small.toml")).to_owned()
    }

    /// What the program prints with these arguments after `run EXPERIMENT --scale 1/128 --store STORE`.
    #[track_caller]
    fn run(&self, store: &str, more: &[&str]) -> String {
        let (experiment, store) = (self.experiment(), self.path(store));
        let mut all = vec!["run", &experiment, "--scale", "1/128", "--store", text(&store)];
        all.extend(more);
        printed(&all)
    }

    fn spawn(&self, store: &Path, workers: &str) -> Child {
        Command::new(env!("CARGO_BIN_EXE_highorder"))
            .current_dir(project())
            .args(["run", &self.experiment(), "--scale", "1/128", "--workers", workers])
            .args(["--store", text(store)])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts")
    }
}

/// Every file of a store by its path within, but for the lock, which is empty.
fn bytes(store: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for name in names(store) {
        if name == ".lock" {
            continue;
        }
        for file in names(&store.join(&name)) {
            let path = format!("{name}/{file}");
            all.insert(path.clone(), fs::read(store.join(path)).expect("a file of a record"));
        }
    }
    all
}

fn json(printed: &str) -> Value {
    serde_json::from_str(printed).expect("one object")
}

#[test]
fn an_experiment_leaves_the_same_bytes_whatever_the_number_of_workers() {
    let scene = Scene::new();
    let tables = scene.run("one", &["--workers", "1"]);
    let others = scene.run("two", &["--workers", "2"]);
    assert_eq!(without_command(&others), without_command(&tables));
    let (one, two) = (bytes(&scene.path("one")), bytes(&scene.path("two")));
    assert_eq!(one.len(), 12 * 5, "five files for each of twelve runs: {:?}", one.keys());
    assert!(one == two, "the stores differ");
}

#[test]
fn a_run_that_is_in_the_store_is_not_run_again() {
    let scene = Scene::new();
    let tables = scene.run("store", &[]);
    let store = scene.path("store");
    let stamps = |store: &Path| -> Vec<_> {
        let stamp = |name: &String| {
            fs::metadata(store.join(name).join("record.json")).and_then(|m| m.modified()).ok()
        };
        names(store).iter().map(stamp).collect()
    };
    let before = stamps(&store);
    let experiment = scene.experiment();
    let mut again = highorder(&["run", &experiment, "--scale", "1/128", "--store", text(&store)]);
    let output = again.assert().success().get_output().clone();
    assert_eq!(String::from_utf8_lossy(&output.stdout), tables);
    assert_eq!(output.stderr, b"", "nothing was run, so nothing is told of its speed");
    assert_eq!(stamps(&store), before);

    // Of a run that is gone, only that run is made again.
    let gone = names(&store).into_iter().find(|name| name.starts_with("small.")).expect("a run");
    fs::remove_dir_all(store.join(&gone)).expect("it can be removed");
    let mut again = highorder(&["run", &experiment, "--scale", "1/128", "--store", text(&store)]);
    let output = again.assert().success().get_output().clone();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.starts_with("1 run in "), "{told}");
    assert!(told.contains("; model memory: 16.0"), "{told}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), tables);
}

#[test]
fn a_killed_experiment_goes_on_and_ends_with_the_same_bytes() {
    let scene = Scene::new();
    #[expect(clippy::disallowed_types, reason = "when to kill depends on how long a run takes")]
    let began = std::time::Instant::now();
    scene.run("undisturbed", &[]);
    let took_us = began.elapsed().as_micros() as u64;
    let undisturbed = bytes(&scene.path("undisturbed"));
    let store = scene.path("killed");
    let (mut random, mut nr_killed, mut had) = (1_u64, 0, 0);
    for round in 0..200 {
        if nr_killed == 20 {
            break;
        }
        // Anywhere in the first third, so that several are needed to come to the end.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let moment_us = (random >> 33) % (took_us / 3).max(1);
        let mut child = scene.spawn(&store, if round % 2 == 0 { "1" } else { "2" });
        thread::sleep(Duration::from_micros(moment_us));
        if child.try_wait().expect("a child").is_none() {
            child.kill().expect("a child of ours can be killed");
            nr_killed += 1;
        }
        child.wait().expect("a child");
        if !store.is_dir() {
            continue;
        }
        let mut left = bytes(&store);
        left.retain(|name, _| !name.starts_with(".part-"));
        for (name, bytes) in &left {
            assert!(undisturbed.get(name) == Some(bytes), "after round {round}: {name}");
        }
        had = had.max(left.len());
        if left.len() == undisturbed.len() {
            // All done before twenty were killed: begin anew.
            fs::remove_dir_all(&store).expect("it can be removed");
        }
    }
    assert_eq!(nr_killed, 20, "killed while it ran");
    assert!(had > 0, "some records were whole when it was killed");
    scene.run("killed", &[]);
    assert!(bytes(&store) == undisturbed, "the stores differ");
    let is_left = names(&store).into_iter().any(|name| name.starts_with(".part-"));
    assert!(!is_left, "what the killed left is gone");
}

#[test]
fn an_interrupted_experiment_says_how_it_goes_on() {
    let scene = Scene::new();
    let store = scene.path("store");
    // Until the first record is there, the next ones are being made.
    let mut child = Command::new(env!("CARGO_BIN_EXE_highorder"))
        .current_dir(project())
        .args(["run", &scene.experiment(), "--scale", "1/16", "--workers", "1"])
        .args(["--store", text(&store)])
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let is_there = || store.is_dir() && names(&store).iter().any(|n| n.starts_with("small."));
    while !is_there() && child.try_wait().expect("a child").is_none() {
        thread::sleep(Duration::from_millis(1));
    }
    // As a terminal does: whatever else goes on for the program is told, too.
    interrupt(&format!("-{}", child.id()));
    let output = child.wait_with_output().expect("its output");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{told}");
    assert!(told.contains("of 12 runs are in "), "{told}");
    assert!(!told.contains("ended: "), "one interrupt is not two: {told}");
    let command = format!("highorder run {} --scale 1/16 --store ", scene.experiment());
    assert!(told.contains(&command), "{told}");
    assert!(output.stdout.is_empty(), "no tables of half an experiment");
}

/// Sends SIGINT to a child of ours, or to its group.
fn interrupt(child: &str) {
    let kill = Command::new("kill").args(["-INT", "--", child]).status();
    assert!(kill.expect("kill(1)").success());
}

#[test]
fn a_second_interrupt_ends_at_once_and_says_how_many_runs_there_are() {
    // A first interrupt between two runs, or near the end of one, leaves no time for a second.
    let is_in_time = (0..20).any(|_| ended_by_a_second_interrupt());
    assert!(is_in_time, "a run was under way at one of twenty second interrupts");
}

/// Interrupts an experiment twice; whether the second one came before the run under way was done.
fn ended_by_a_second_interrupt() -> bool {
    let scene = Scene::new();
    let store = scene.path("store");
    let mut child = Command::new(env!("CARGO_BIN_EXE_highorder"))
        .current_dir(project())
        .args(["run", &scene.experiment(), "--scale", "1/4", "--workers", "1"])
        .args(["--store", text(&store)])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let runs = || names(&store).iter().filter(|n| n.starts_with("small.")).count();
    while (!store.is_dir() || runs() == 0) && child.try_wait().expect("a child").is_none() {
        thread::sleep(Duration::from_millis(1));
    }
    // The first is told of before the second comes: of two at once the kernel makes one.
    interrupt(&child.id().to_string());
    let mut told = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    told.read_line(&mut line).expect("a line");
    let nr_runs = || format!("{} of 12 runs are in {}; ", runs(), store.display());
    let waits = "interrupted: waiting for the runs under way; once more ends at once\n";
    if line == waits {
        interrupt(&child.id().to_string());
    }
    let mut rest = String::new();
    told.read_to_string(&mut rest).expect("its last words");
    assert_eq!(child.wait().expect("a child").code(), Some(130), "{line}{rest}");
    let last = if line == waits { &rest } else { &line };
    let [ended, gone_on] = ["ended", "interrupted"].map(|how| format!("{how}: {}", nr_runs()));
    assert!(last.starts_with(&ended) || last.starts_with(&gone_on), "{ended} in {last}");
    assert!(last.contains("the same command goes on from there: highorder run "), "{last}");
    last.starts_with(&ended)
}

#[test]
fn the_command_that_shows_the_same_again_does() {
    let scene = Scene::new();
    let more = ["--listing=0.5", "--noise", "--format", "md"];
    let shown = scene.run("store", &more);
    let (_, command) = shown.split_once("; again with: `highorder ").expect("a command");
    let command = command.trim_end().trim_end_matches('`');
    let words: Vec<&str> = command.split(' ').collect();
    assert_eq!(printed(&words), shown);
    let store = scene.path("store");
    let compare = ["compare", "small:*", "--store", text(&store), "--noise", "--listing=0.5"];
    let shown = printed(&compare);
    let (_, command) = shown.split_once("; again with: ").expect("a command");
    let words = format!("--store {} --noise --listing=0.5\n", store.display());
    assert!(command.starts_with("highorder compare 'small:*' "), "{command}");
    assert!(command.ends_with(&words), "{command}");
}

#[test]
fn a_damaged_record_is_named_with_what_to_do() {
    let scene = Scene::new();
    let tables = scene.run("store", &[]);
    let store = scene.path("store");
    let name = names(&store).into_iter().find(|name| name.starts_with("small.")).expect("a run");
    let record = store.join(name);
    let experiment = scene.experiment();
    let run = ["run", &experiment, "--scale", "1/128", "--store", text(&store)];
    let whole = fs::read(record.join("record.json")).expect("a document");
    for (file, bytes) in [("record.json", &whole[..whole.len() / 2]), ("samples.parquet", b"x")] {
        fs::write(record.join(file), bytes).expect("a damaged file");
        let told = refused(&run);
        assert_eq!(told.lines().count(), 1, "{told}");
        let remedy = format!(
            "the record is damaged: remove the folder {}, and its run can be made again",
            record.display()
        );
        assert!(told.contains(file) && told.contains(&remedy), "{told}");
        fs::remove_dir_all(&record).expect("what was told to do");
        assert_eq!(scene.run("store", &[]), tables);
    }
    fs::remove_file(record.join("timeline.parquet")).expect("it is there");
    let told = refused(&run);
    assert!(told.contains("timeline.parquet: no such file, expected a whole record; "), "{told}");
}

#[test]
fn results_come_as_tables_for_people_and_programs() {
    let scene = Scene::new();
    let tables = scene.run("store", &[]);
    for part in [
        "eager",
        "reluctant",
        "Amean",
        "System-1",
        "Elapsd-3",
        "Duration",
        "vmstat",
        "Swap Outs",
        "Kswapd efficiency",
        "Direct velocity",
        "highorder run ",
    ] {
        assert!(tables.contains(part), "{part} is missing:\n{tables}");
    }
    let report = json(&scene.run("store", &["--format", "json", "--listing"]));
    assert_eq!(report["variants"][0]["label"], "eager");
    assert_eq!(report["variants"][1]["runs"].as_array().map(Vec::len), Some(6));
    assert_eq!(report["listings"].as_array().map(Vec::len), Some(12));
    let titles: Vec<_> =
        report["tables"].as_array().expect("tables").iter().map(|t| t["title"].clone()).collect();
    assert!(titles.contains(&"Metrics".into()) && titles.contains(&"vmstat".into()), "{titles:?}");
    let differs = &report["differences"]["rows"];
    assert_eq!(differs.as_array().map(Vec::len), Some(1), "{differs:#}");
    assert_eq!(differs[0]["value"], "kernel vm.swappiness");

    let csv = scene.run("store", &["--format", "csv"]);
    let header = csv.lines().next().expect("a header");
    assert!(header.starts_with("table,statistic,metric,unit,eager,reluctant"), "{header}");
    let columns = header.split(',').count();
    let is_even = |line: &str| line.split(',').count() == columns;
    assert!(csv.lines().all(is_even), "{csv}");
    assert!(csv.lines().any(|line| line.starts_with("vmstat,,Swap Outs,pages,")), "{csv}");

    let markdown = scene.run("store", &["--format", "md"]);
    assert!(markdown.contains("**Metrics**") && markdown.contains("| Amean"), "{markdown}");

    let page = scene.run("store", &["--format", "html"]);
    assert!(
        page.trim_start().starts_with("<!DOCTYPE html>") && page.contains("small at scale 1/128")
    );
    // Of each step of threads one run of each variant; and once for both where they are the same run.
    let nr_maps = |page: &str| page.matches("src=\"data:image/svg+xml;base64,").count();
    assert_eq!(nr_maps(&page), 3 * 2);
    let store = scene.path("store");
    let same = ["compare", "small:eager", "small:eager", "--store", text(&store)];
    let compared = printed(&[&same[..], &["--format", "html"]].concat());
    assert_eq!(nr_maps(&compared), 3 * 2);
    assert!(compared.contains("while the workload&#39;s memory is mapped"));

    let listed = scene.run("store", &["--listing=0.01"]);
    assert!(listed.contains("-----memory----------"), "{listed}");
    assert!(listed.contains("maxresident)k"), "{listed}");
}

#[test]
fn a_page_shows_memory_at_a_moment_and_over_time() {
    let scene = Scene::new();
    fs::write(scene.path("small.toml"), format!("block_lives = true\n{EXPERIMENT}"))
        .expect("a file");
    let page = scene.run("store", &["--format", "html"]);
    for description in
        ["while the workload&#39;s memory is mapped", "became of pageblocks over time"]
    {
        assert!(page.contains(description), "no `{description}`");
    }
    // Two pictures of one run of each step of threads and variant.
    assert_eq!(page.matches("src=\"data:image/svg+xml;base64,").count(), 2 * 3 * 2);
}

#[test]
fn results_go_into_a_file_where_that_is_asked_for() {
    let scene = Scene::new();
    let tables = scene.run("store", &[]);
    let path = scene.path("tables.txt");
    assert_eq!(scene.run("store", &["--out", text(&path)]), "");
    assert_eq!(fs::read_to_string(path).expect("the file"), tables);
}

#[test]
fn variants_entries_stores_and_patterns_compare() {
    let scene = Scene::new();
    scene.run("store", &[]);
    let folder = scene.path("store");
    let store = text(&folder);
    let compare = |what: &[&str]| {
        let mut all = vec!["compare", "--store", store, "--format", "json"];
        all.extend(what);
        json(&printed(&all))
    };
    let labels = |report: &Value| -> Vec<String> {
        let variants = report["variants"].as_array().expect("variants");
        variants.iter().map(|v| v["label"].as_str().expect("a label").to_owned()).collect()
    };
    assert_eq!(labels(&compare(&["small:*"])), ["eager", "reluctant"]);
    assert_eq!(labels(&compare(&["small:reluctant", "eager"])), ["reluctant", "eager"]);
    assert_eq!(labels(&compare(&[store])), ["eager", "reluctant"]);
    let whole = compare(&["small:eager", "small:reluctant"]);
    let run = &whole["variants"][0]["runs"][0];
    let identity = run["identity"].as_str().expect("an identity");
    let one = compare(&[&identity[..12]]);
    assert_eq!(one["variants"][0]["runs"].as_array().map(Vec::len), Some(1));
    assert_eq!(one["variants"][0]["runs"][0]["identity"], identity);
    let entry = names(&folder).into_iter().find(|name| name.ends_with(identity)).expect("it");
    assert_eq!(compare(&[text(&folder.join(entry))])["variants"], one["variants"]);
    let single = compare(&["small.eager.threads-2.seed-1"]);
    assert_eq!(single["variants"][0]["runs"][0]["inputs"]["workload"]["values"]["threads"], "2");
}

#[test]
fn a_real_machines_record_stands_beside_a_model_s() {
    let scene = Scene::new();
    scene.run("store", &[]);
    let store = scene.path("store");
    let case = "tests/data/cases/612-mmapdemo-zrm0";
    let told = printed(&["compare", "--store", text(&store), "small:eager", case]);
    assert!(told.contains("Minor Faults") && told.contains("6.12"), "{told}");
    assert!(told.contains("different numbers of runs"), "{told}");
}

#[test]
fn what_cannot_be_run_or_compared_is_refused_in_a_line() {
    let scene = Scene::new();
    let experiment = scene.experiment();
    let store = scene.path("store");
    let error = refused(&["run", "usemen"]);
    assert_eq!(error, "error: no experiment `usemen`, did you mean `usemem`?\n");
    let error = refused(&["run", "zebra"]);
    assert!(error.starts_with("error: no experiment `zebra`, expected one of "), "{error}");
    assert!(error.contains(" mmap-demo, ") && error.contains(" usemem, "), "{error}");
    let error = refused(&["run", &experiment, "--scale", "1/4096", "--store", text(&store)]);
    assert!(error.starts_with("error: scale 1/4096 of one-node-8g: "), "{error}");
    assert!(!store.exists(), "nothing is half made");
    let error = refused(&["run", &experiment, "--scale", "2"]);
    assert!(error.contains("`2`, expected a ratio up to 1, such as 1/16 or 0.25"), "{error}");
    fs::write(scene.path("bad.toml"), EXPERIMENT.replace("passes", "parses")).expect("a file");
    let bad = scene.path("bad.toml");
    let error = refused(&["run", text(&bad)]);
    assert!(error.contains("bad.toml:10: `usemem` has no parameter `parses`"), "{error}");
    let error = refused(&["compare", "--store", text(&store), "small:*"]);
    assert!(error.contains("there is no such folder, and no store "), "{error}");
    scene.run("store", &[]);
    let error = refused(&["compare", "--store", text(&store), "small:calm"]);
    assert!(error.contains("`small:calm` names nothing in the store "), "{error}");
    assert!(error.contains("there are small:eager, small:reluctant"), "{error}");
}

#[test]
fn traces_are_refused_beside_runs_of_other_builds() {
    let error = refused(&["run", "mmap-demo", "--reuse-old", "--trace", "traces"]);
    let told = ["'--reuse-old'", "cannot be used with", "'--trace <DIR>'"];
    assert!(told.iter().all(|words| error.contains(words)), "{error}");
}

/// A working set of 120 % of memory, first with so little swap that it is killed; the names are not in the order of
/// the alphabet.
const KILLING: &str = "\
description = \"more memory than there is\"
machine = \"one-node-8g\"
threads = [2]
sample_interval_ms = 100

[workload]
name = \"usemem\"
memory = 1.2
passes = 2
file = 0.0

[[variant]]
name = \"tight\"
kernel = \"linux-4.4\"
swap_mib = 128

[[variant]]
name = \"roomy\"
kernel = \"linux-4.4\"
swap_mib = 8192
";

#[test]
fn every_result_begins_with_a_verdict() {
    let scene = Scene::new();
    // Where memory is enough, swappiness changes nothing.
    let ample = EXPERIMENT.replace("memory = 1.1", "memory = 0.5");
    assert_ne!(ample, EXPERIMENT);
    fs::write(scene.path("small.toml"), ample).expect("a file");
    let tables = scene.run("store", &[]);
    let said = "Verdict\n\neager and reluctant have identical results, though their inputs differ: kernel vm.swappiness.\n";
    assert!(tables.starts_with(said), "{tables}");
    let reluctant = "name = \"reluctant\"\nkernel = \"linux-4.4\"";
    assert!(EXPERIMENT.contains(reluctant));
    let other =
        EXPERIMENT.replace(reluctant, "name = \"reluctant\"\nkernel = \"linux-4.4-nodefrag\"");
    fs::write(scene.path("small.toml"), other).expect("a file");
    fs::remove_dir_all(scene.path("store")).expect("it can be removed");
    let tables = scene.run("store", &[]);
    let verdict = "Verdict\n\nreluctant against eager";
    assert!(tables.starts_with(verdict), "{tables}");
    assert!(
        tables.contains("2 repeats of each run cannot tell a difference from noise"),
        "{tables}"
    );
    assert!(tables.contains("`iterations = 4` in the experiment"), "{tables}");
    for heading in ["Duration (sum of 6 runs)", "vmstat (sum of 6 runs)", "Memory (mean of 6 runs)"]
    {
        assert!(tables.contains(&format!("\n{heading}\n")), "no `{heading}` in {tables}");
    }
    let end = tables.find("\n\neager: 6 runs").expect("the tables after it");
    assert!(tables[..end].lines().count() <= 2 + 12, "{tables}");

    let store = scene.path("store");
    let compare = ["compare", "--store", text(&store), "small:*"];
    assert!(printed(&compare).starts_with(verdict));
    let markdown = scene.run("store", &["--format", "md"]);
    assert!(markdown.starts_with("**Verdict**\n\n- reluctant against eager"), "{markdown}");
    let page = scene.run("store", &["--format", "html"]);
    let (verdict, setup) = (page.find("id=\"verdict\""), page.find("id=\"setup\""));
    assert!(verdict.is_some() && verdict < setup, "the verdict stands first");
    let report = json(&scene.run("store", &["--format", "json"]));
    let pair = &report["verdict"]["compared"][0];
    assert_eq!((&pair["variant"], &pair["nr_repeats"][0]), (&"reluctant".into(), &2.into()));
    assert!(report["verdict"]["text"][0]["text"].is_string(), "{report:#}");

    // Units stand in text as they do elsewhere.
    let row = tables[end..].lines().find(|line| line.contains("System-1")).expect("a row");
    let words: Vec<&str> = row.split_whitespace().take(3).collect();
    assert_eq!(words, ["Amean", "System-1", "s"], "{row}");
    let row = tables.lines().find(|line| line.starts_with("Swap Outs")).expect("a row");
    assert!(row.contains("  pages  "), "{row}");
}

#[test]
fn killed_runs_are_named_and_marked_and_columns_stand_as_in_the_experiment() {
    let scene = Scene::new();
    fs::write(scene.path("small.toml"), KILLING).expect("a file");
    let tables = scene.run("store", &[]);
    let first = tables.lines().nth(2).expect("a line of the verdict");
    assert!(
        first.starts_with("The OOM killer ended usemem under tight with 2 threads (within "),
        "{tables}"
    );
    assert!(first.ends_with(", in 1 of 1 run. Values of killed runs have the mark †."), "{first}");
    assert!(tables.contains("† Runs have part in this value"), "{tables}");
    let row = tables.lines().find(|line| line.starts_with("Swap Outs")).expect("a row");
    assert_eq!(row.matches('†').count(), 1, "of the killed variant alone: {row}");
    assert!(scene.run("store", &["--format", "md"]).contains('†'));
    assert!(scene.run("store", &["--format", "html"]).contains("class=\"killed\""));
    let csv = scene.run("store", &["--format", "csv"]);
    let mut lines = csv.lines();
    assert!(lines.next().expect("a header").ends_with(",tight killed_runs,roomy killed_runs"));
    assert!(lines.any(|line| line.starts_with("vmstat,,Swap Outs") && line.ends_with(",1,0")));
    let report = json(&scene.run("store", &["--format", "json"]));
    assert_eq!(report["verdict"]["killed"][0]["steps"][0]["threads"], 2);

    // By name `roomy` would be the base, and every sign would flip.
    let store = scene.path("store");
    let compared = ["compare", "--store", text(&store), "small:*"];
    let after_origins = |text: &str| text.split_once("\nMetrics\n").expect("it").1.to_owned();
    let without_command = |text: String| text.split("\nhighorder ").next().map(str::to_owned);
    assert_eq!(
        without_command(after_origins(&printed(&compared))),
        without_command(after_origins(&tables))
    );

    // Put in another order, they are compared in that, and no run is made again.
    let (head, variants) = KILLING.split_once("[[variant]]").expect("variants");
    let (tight, roomy) = variants.split_once("[[variant]]").expect("two variants");
    let other = format!("{head}[[variant]]{roomy}[[variant]]{tight}");
    fs::write(scene.path("small.toml"), other).expect("a file");
    let nr_records = names(&store).len();
    scene.run("store", &[]);
    assert_eq!(names(&store).len(), nr_records);
    let report = json(&printed(&[&compared[..], &["--format", "json"]].concat()));
    assert_eq!(report["variants"][0]["label"], "roomy");
}

#[test]
fn a_sweep_of_several_keys_is_ranked_and_its_values_are_told_by_their_means() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mine.toml");
    let experiment = r#"
description = "more memory than there is, at combinations of settings"
machine = "guest-tcg"
threads = [1]

[workload]
name = "usemem"
file = 0.0
memory = 1.05
passes = 1

[sweep]
axes = [
  { key = "knobs.transparent_hugepage/enabled", values = ["always", "never"] },
  { key = "workload.memory", values = [0.5, 1.05] },
]
measure = ["Swap Outs", "THP fault alloc"]

[[variant]]
kernel = "linux-6.12"
"#;
    fs::write(&file, experiment).expect("a file");
    let store = folder.path().join("store");
    let picture = folder.path().join("mine.svg");
    let run = ["run", text(&file), "--store", text(&store), "--scale", "1/4"];
    let said = printed(&[&run[..], &["--picture", text(&picture)]].concat());
    let table = |title: &str| -> Vec<Vec<String>> {
        let (_, rest) = said.split_once(title).unwrap_or_else(|| panic!("{title}: {said}"));
        let lines = rest.lines().skip_while(|line| !line.starts_with("---")).skip(1);
        let rows = lines.take_while(|line| !line.is_empty());
        rows.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    };
    let ranked = table("Ranked by Swap Outs, the best first");
    assert_eq!(ranked.len(), 4, "{said}");
    let swapped: Vec<f64> = ranked.iter().map(|row| row[2].parse().expect("a number")).collect();
    assert!(swapped.is_sorted() && swapped[0] < swapped[3], "{swapped:?}");
    let means = table("Each value, in the mean of all points that have it");
    assert_eq!(means.len(), 4, "{said}");
    let half = means.iter().find(|row| row[1] == "0.5").expect("a row");
    let of_half = ranked.iter().filter(|row| row[1] == "0.5").map(|row| row[2].parse::<f64>());
    let mean = of_half.map(|value| value.expect("a number")).sum::<f64>() / 2.0;
    assert!((half[3].parse::<f64>().expect("a number") - mean).abs() <= 0.5, "{said}");
    let drawn = fs::read_to_string(&picture).expect("a picture");
    assert!(drawn.contains("place in the ranking"));
    let csv = printed(&[&run[..], &["--format", "csv"]].concat());
    assert!(csv.starts_with(
        "measured,unit,variant,knobs.transparent_hugepage/enabled,workload.memory,value\n"
    ));
    assert_eq!(csv.lines().count(), 1 + 2 * 4, "{csv}");
}
