//! Real kernels: `run --on host`, `run --on vm:...`, `calibrate --on vm:...`, `restore-knobs`.
//!
//! A program of its own: what a guest measures, it measures where nothing else runs.
//!
//! Guests need what `tests/guest/setup.sh` gets; where something is missing the tests say SKIPPED and why.

mod common;

use common::{highorder, names, project, refused, text};
use highorder_kernels::machine;
use highorder_real::testing::cache;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// A run that takes a moment: the memory is named, so that the host needs no more than a guest.
const EXPERIMENT: &str = "\
description = \"64 MiB, twice\"
machine = \"guest-tcg\"
sample_interval_ms = 100

[workload]
name = \"usemem\"
memory = \"64 MiB\"
passes = 2
file = 0.0

[[variant]]
kernel = \"linux-6.12\"
KNOBS
[[variant]]
kernel = \"linux-6.1\"
KNOBS";

fn experiment(folder: &Path, knobs: &str) -> PathBuf {
    let path = folder.join("small.toml");
    fs::write(&path, EXPERIMENT.replace("KNOBS", knobs)).expect("a file");
    path
}

const NEVER: &str = "knobs = { \"transparent_hugepage/enabled\" = \"never\" }\n";

/// Whether there are QEMU and these kernels.
fn guests(releases: &[&str]) -> bool {
    let qemu = Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status();
    if !qemu.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: qemu-system-x86_64 does not run (see tests/guest/setup.sh)");
        return false;
    }
    for release in releases {
        let image = cache().join(release).join("vmlinuz");
        if !image.is_file() {
            eprintln!("SKIPPED: there is no {} (see tests/guest/setup.sh)", image.display());
            return false;
        }
    }
    true
}

#[test]
fn model_and_guests_stand_in_one_table_and_boots_are_resumed() {
    if !guests(&["6.12", "6.1"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (experiment, store) = (experiment(folder.path(), NEVER), folder.path().join("store"));
    let arguments = [
        ["run", text(&experiment), "--store", text(&store)],
        ["--on", "model", "--on", "vm:debian:6.12"],
        ["--on", "vm:debian:6.1", "--format", "json"],
    ]
    .concat();
    let mut command = highorder(&arguments);
    let output = command.env("HIGHORDER_CACHE", cache()).assert().success().get_output().clone();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.starts_with("4 runs in ") && told.contains(", 2 of them real"), "{told}");
    let json: Value = serde_json::from_slice(&output.stdout).expect("one object");
    let variants = json["variants"].as_array().expect("variants");
    let labels: Vec<&str> =
        variants.iter().map(|v| v["label"].as_str().expect("a label")).collect();
    // On a real kernel the two variants, which differ in their kernel files alone, are one.
    let expected = ["model:linux-6.12", "model:linux-6.1", "vm:debian:6.12", "vm:debian:6.1"];
    assert_eq!(labels, expected);
    let inputs = &variants[2]["runs"][0]["inputs"];
    assert_eq!(inputs["source"], "vm");
    assert_eq!(inputs["iteration"], 0);
    assert!(inputs["kernel"]["values"]["kernel"].as_str().is_some_and(|r| r.starts_with("6.12.")));
    assert_eq!(inputs["kernel"]["values"]["image_xxh3"].as_str().map(str::len), Some(32));
    assert_eq!(inputs["machine"]["values"]["accel"], "tcg");
    let faults = |record: &Value| -> f64 {
        let tables = json["tables"].as_array().expect("tables");
        let vmstat = tables.iter().find(|t| t["title"] == "vmstat").expect("vmstat");
        let rows = vmstat["rows"].as_array().expect("rows");
        let row = rows.iter().find(|r| r.to_string().contains("Minor Faults")).expect("faults");
        row[record.as_str().expect("a label")].as_f64().expect("a number")
    };
    for label in &labels[2..] {
        // 64 MiB are 16384 pages, and a guest's own programs have some.
        let faults = faults(&Value::from(*label));
        assert!((16_384.0..40_000.0).contains(&faults), "{label}: {faults}");
    }

    // All is there: nothing is booted, and the tables are the same.
    let mut again = highorder(&arguments);
    let again = again.env("HIGHORDER_CACHE", cache()).assert().success().get_output().clone();
    assert_eq!(again.stdout, output.stdout);
    assert_eq!(again.stderr, b"");
}

#[test]
fn a_guest_measures_itself_into_a_machine_file() {
    if !guests(&["6.12"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("guest.toml");
    let disks = folder.path().join("disks");
    fs::create_dir(&disks).expect("a folder");
    let mut command = highorder(&[
        "calibrate",
        "--on",
        "vm:debian:6.12",
        "--guest-timeout",
        "1200",
        "--out",
        text(&file),
        "--folder",
        text(&disks),
    ]);
    command.env("HIGHORDER_CACHE", cache()).assert().success().stdout("");
    let machine = machine::load(text(&file)).expect("a machine file");
    let shape = machine::load("guest-tcg").expect("a machine");
    assert_eq!((machine.name.as_str(), machine.memory_bytes()), ("guest", 1 << 30));
    assert_eq!(machine.nodes, shape.nodes);
    assert_eq!(machine.swap, shape.swap);
    assert!(machine.disks[0].says_rotational, "as virtio disks say");
    assert!(machine.costs.fault_entry.picoseconds() > 0);
    assert!(machine.costs.fault_entry.source.ends_with("; QEMU, tcg"));
    assert!(names(&disks).is_empty(), "nothing is left of the guest's disks");
}

#[test]
fn an_interrupted_guest_leaves_no_record_and_is_gone() {
    if !guests(&["6.12"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (experiment, store) = (experiment(folder.path(), NEVER), folder.path().join("store"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_highorder"))
        .current_dir(project())
        .env("HIGHORDER_CACHE", cache())
        .args(["run", text(&experiment), "--on", "vm:debian:6.12", "--store", text(&store)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // Until a child of it is there, which is QEMU.
    let children = format!("/proc/{0}/task", child.id());
    let qemu = || -> Option<u32> {
        fs::read_dir(&children).ok()?.flatten().find_map(|task| {
            let text = fs::read_to_string(task.path().join("children")).ok()?;
            let pid: u32 = text.split_ascii_whitespace().next()?.parse().ok()?;
            // A QEMU that is only asked for its version is not the guest's.
            let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
            (words.contains("qemu-system") && words.contains("-kernel")).then_some(pid)
        })
    };
    let pid = loop {
        if let Some(pid) = qemu() {
            break pid;
        }
        assert!(child.try_wait().expect("a child").is_none(), "it ended before its guest began");
        thread::sleep(Duration::from_millis(2));
    };
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.expect("kill(1)").success());
    let output = child.wait_with_output().expect("the program ends");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{told}");
    assert!(told.contains("the same command goes on from there: highorder run "), "{told}");
    assert!(told.contains("--on vm:debian:6.12"), "{told}");
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "the guest is gone");
    let records = names(&store).into_iter().filter(|name| name.starts_with("small.")).count();
    assert_eq!(records, 0);
}

#[test]
fn the_host_runs_the_same_experiment_and_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (experiment, store) = (experiment(folder.path(), ""), folder.path().join("store"));
    let mut command = highorder(&[
        "run",
        text(&experiment),
        "--on",
        "host",
        "--boots",
        "2",
        "--store",
        text(&store),
        "--format",
        "json",
    ]);
    let output = command.assert().get_output().clone();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() && told.contains("of memory are available, expected more than") {
        eprintln!("SKIPPED: {told}");
        return;
    }
    assert!(output.status.success(), "{told}");
    let json: Value = serde_json::from_slice(&output.stdout).expect("one object");
    let variants = json["variants"].as_array().expect("variants");
    assert_eq!(variants.len(), 1);
    assert_eq!(variants[0]["label"], "host");
    let runs = variants[0]["runs"].as_array().expect("runs");
    let iterations: Vec<&Value> = runs.iter().map(|run| &run["inputs"]["iteration"]).collect();
    assert_eq!(iterations, [0, 1]);
    assert_eq!(runs[0]["inputs"]["source"], "host");
}

#[test]
fn settings_of_the_host_are_changed_only_when_told() {
    let folder = tempfile::tempdir().expect("a folder");
    // No kernel boots with it.
    let knobs = "knobs = { \"vm.swappiness\" = 93, \"vm.watermark_scale_factor\" = 77 }\n";
    let (experiment, store) = (experiment(folder.path(), knobs), folder.path().join("store"));
    let told = refused(&["run", text(&experiment), "--on", "host", "--store", text(&store)]);
    assert!(told.contains("would change settings of this machine (vm.swappiness from "), "{told}");
    for part in [" to 93, vm.watermark_scale_factor from ", " to 77): expected --apply-knobs"] {
        assert!(told.contains(part), "no `{part}` in {told}");
    }
    assert_eq!(told.lines().count(), 1, "{told}");
}

#[test]
fn what_cannot_be_run_is_told_in_a_line_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let experiment = experiment(folder.path(), "");
    let store = folder.path().join("store");
    let with = |more: &[&str]| -> String {
        let run = ["run", text(&experiment), "--store", text(&store)];
        refused(&[&run[..], more].concat())
    };
    let kernel = folder.path().join("image");
    fs::write(&kernel, "no kernel").expect("a file");
    let image = format!("vm:{}", kernel.display());
    let missing = format!("vm:{}", folder.path().join("missing").display());
    if guests(&[]) {
        assert!(with(&["--on", &image]).contains("expected a kernel image (bzImage)"));
        assert!(with(&["--on", &missing]).contains("No such file or directory"));
    }
    assert!(with(&["--on", "guest"]).contains("expected model, host or vm:IMAGE"));
    assert!(with(&["--on", "host", "--on", "host"]).contains("host was given twice"));
    let scaled = with(&["--on", "host", "--scale", "1/2"]);
    assert!(scaled.contains("expected 1: this machine is as large as it is"), "{scaled}");
    let mut command =
        highorder(&["run", text(&experiment), "--on", "vm:debian:6.12", "--store", text(&store)]);
    let output = command.env("PATH", folder.path()).assert().code(2).get_output().clone();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        told,
        "error: qemu-system-x86_64: no such program; Debian's package is qemu-system-x86\n"
    );
    assert_eq!(names(folder.path()), ["image", "small.toml"], "no store was begun");
    let told = refused(&["calibrate", "--on", "model"]);
    assert!(told.contains("expected host or vm:IMAGE"), "{told}");
}

#[test]
fn a_knob_that_the_model_lacks_is_for_real_kernels_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("store");
    let with = |knob: &str| experiment(folder.path(), &format!("knobs = {{ \"{knob}\" = 1 }}\n"));
    let told = refused(&["run", text(&with("vm.admin_reserve_kbytes")), "--store", text(&store)]);
    assert!(told.contains("small.toml:13: unknown knob `vm.admin_reserve_kbytes`"), "{told}");
    let on_host =
        |knob| refused(&["run", text(&with(knob)), "--on", "host", "--store", text(&store)]);
    let told = on_host("vm.no_such_setting");
    assert!(told.contains("small.toml:13: knob `vm.no_such_setting`, expected one of "), "{told}");
    // No kernel has huge pages of this size.
    let knob = "hugepages/hugepages-3kB/nr_hugepages";
    let told = on_host(knob);
    assert!(told.contains(knob) && told.contains("no such setting"), "{told}");
}

#[test]
fn where_no_run_was_killed_there_is_nothing_to_put_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    let printed = common::printed(&["restore-knobs", "--state-dir", text(&state)]);
    assert_eq!(printed, format!("nothing to put back: no setting in {}\n", state.display()));
    assert!(!state.exists());
    fs::create_dir(&state).expect("a folder");
    fs::write(state.join("knobs-to-restore"), "damaged\n").expect("a file");
    let told = refused(&["restore-knobs", "--state-dir", text(&state)]);
    assert!(told.contains("knobs-to-restore:1: "), "{told}");
}
