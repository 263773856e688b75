//! Inputs that broke the program once: each is told in one error, with exit code 2, within little memory and time.

use crate::common::project;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Address space that the program gets, in KiB, and seconds.
const ADDRESS_SPACE_KIB: u64 = 2_000_000;
const SECONDS: u64 = 60;

fn within_bounds(folder: &Path, arguments: &[&str]) -> Output {
    Command::new("sh")
        .args(["-c", "ulimit -v $0; exec timeout \"$@\"", &ADDRESS_SPACE_KIB.to_string()])
        .arg(SECONDS.to_string())
        .arg(env!("CARGO_BIN_EXE_highorder"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("a shell")
}

/// What it complains of, in at most so many lines.
#[track_caller]
fn refused(folder: &Path, arguments: &[&str], lines: usize) -> String {
    let output = within_bounds(folder, arguments);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
    assert!(told.lines().count() <= lines, "{arguments:?}: {told}");
    assert!(told.chars().all(|c| !c.is_control() || c == '\n'), "{arguments:?}: {told:?}");
    told
}

/// An experiment on the smallest machine, with more lines at its end.
fn experiment(workload: &str, variant: &str) -> String {
    format!(
        "description = \"x\"\nmachine = \"guest-tcg\"\n[workload]\n{workload}\n[[variant]]\n{variant}\n"
    )
}

#[test]
fn experiments_that_no_machine_can_be_given_are_refused_in_their_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let write =
        |name: &str, content: &str| fs::write(folder.path().join(name), content).expect("a file");
    let demo = "name = \"mmap-demo\"";
    write("many.toml", "based_on = \"guest-tcg\"\n[[node]]\nmemory_mib = 1024\ncpus = 300\n");
    write("k.toml", "based_on = \"linux-6.12\"\n[watermark]\nmin_free_kbytes_max = 100\n");
    let on =
        |machine: &str| experiment(demo, "kernel = \"linux-6.12\"").replace("guest-tcg", machine);
    write("cpus.toml", &on("many.toml"));
    let nodes = "[[node]]\nmemory_mib = 72\ncpus = 0\n".repeat(65);
    write("fleet.toml", &format!("based_on = \"guest-tcg\"\n{nodes}"));
    write("nodes.toml", &on("fleet.toml"));
    write("mf.toml", &experiment(demo, "kernel = \"k.toml\""));
    let named =
        |name: &str| experiment(demo, &format!("kernel = \"linux-6.12\"\nname = \"{name}\""));
    write("name.toml", &named(&"a".repeat(70_000)));
    write("long.toml", &named(&"a".repeat(201)));
    write("esc.toml", &named("../x/ESC\\u001b[31mred\\u0000\\n2"));
    write("lines.toml", &named("one\\ntwo"));
    for (name, expected) in [
        ("cpus.toml", "many.toml:4: `cpus` is 300, expected 0..=256"),
        ("nodes.toml", "65 nodes of a snapshot or a machine, expected at most 64"),
        ("mf.toml", "k.toml:3: `watermark.min_free_kbytes_max` is 100, expected 128..="),
        (
            "name.toml",
            "name.toml:7: 70000 characters of a text in a TOML file, expected at most 4096",
        ),
        ("long.toml", "long.toml:7: `name`: 201 characters of a name, expected at most 200"),
        ("esc.toml", r"esc.toml:7: a text with '\u{1b}', expected no control characters"),
        ("lines.toml", "lines.toml:7: `name` has more than one line, expected one"),
    ] {
        let told = refused(folder.path(), &["run", name], 2);
        assert!(told.contains(expected), "{name}: {told}");
    }
    assert_eq!(crate::common::names(folder.path()).len(), 10, "no store was made");
}

#[test]
fn a_workload_larger_than_the_disk_ends_as_it_does_on_a_real_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let dd = experiment("name = \"dd\"\nsize = \"10 GiB\"", "kernel = \"linux-6.12\"");
    fs::write(folder.path().join("dd.toml"), dd).expect("a file");
    let output = within_bounds(folder.path(), &["run", "dd.toml"]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains("ended early: no space left on the disk"), "{printed}");
}

#[test]
fn snapshots_that_promise_too_much_are_refused_before_memory_is_taken() {
    let data = project().join("tests/data/attacks");
    for (name, expected) in [
        (
            "npfn32.snap",
            "zones.json: `npfn`: 4294967296 frames of a snapshot, expected at most 536870912",
        ),
        ("csv-blowup.snap", "columns of a state's table, expected at most 256"),
    ] {
        let output = within_bounds(&data, &["map", name]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{name}: {told}");
        assert!(told.contains(expected), "{name}: {told}");
        assert!(told.len() < 2000, "{name}: {told}");
    }
}

#[test]
fn a_count_of_blocks_is_not_counted_to() {
    let output = within_bounds(&project().join("tests/data/attacks"), &["map", "hang.snap"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The recorded case with a text of one of its files replaced.
fn case(folder: &Path, file: &str, old: &str, new: &str) {
    const CASE: &str = "612-small-usemem120-lru0";
    let (from, to) = (project().join("tests/data/cases").join(CASE), folder.join(CASE));
    copy(&from, &to);
    let path = to.join(file);
    let text = fs::read_to_string(&path).expect("a recorded file");
    assert!(text.contains(old), "{file}: {text}");
    fs::write(path, text.replacen(old, new, 1)).expect("a file");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).expect("a copy");
        }
    }
}

#[test]
fn cases_that_no_machine_recorded_are_refused() {
    for (file, old, new, expected) in [
        ("case.json", "\"swap_mb\": ", "\"swap_mb\": 54194", "`swap_mb` is 54194"),
        ("case.json", "\"smp\": ", "\"smp\": 1000", "`smp` is 1000"),
        ("case.json", "\"nodes\": ", "\"nodes\": 9999", "`nodes` is 9999"),
        ("before/buddyinfo", "zone", "zone", ""),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        case(folder.path(), file, old, new);
        if expected.is_empty() {
            let path = folder.path().join("612-small-usemem120-lru0").join(file);
            let text = fs::read_to_string(&path).expect("it is there");
            let line = text.lines().next().expect("a zone").trim_end();
            let cut = line.rfind(' ').expect("counts");
            fs::write(&path, text.replacen(line, &format!("{} 1000000000000", &line[..cut]), 1))
                .expect("a file");
        }
        let told = refused(folder.path(), &["validate", "--cases", "."], 3);
        let expected =
            if expected.is_empty() { "1000000000000 blocks of an order" } else { expected };
        assert!(told.contains(expected), "{file}: {told}");
    }
}

#[test]
fn a_bad_line_of_megabytes_is_told_in_a_short_message() {
    let folder = tempfile::tempdir().expect("a folder");
    let long = "x".repeat(900_000);
    let texts = [
        ("key.toml", format!("{long} = 1\n")),
        ("value.toml", format!("machine = \"{long}\"\n")),
        ("broken.toml", format!("machine = [{long}\n")),
        ("machine.toml", experiment("name = \"dd\"", &format!("kernel = \"{}\"", &long[..4000]))),
    ];
    for (name, content) in &texts {
        fs::write(folder.path().join(name), content).expect("a file");
        let told = refused(folder.path(), &["run", name], 3);
        assert!(told.len() < 5000, "{name}: {} bytes", told.len());
    }
    let told = refused(folder.path(), &["run", &long[..100_000]], 1);
    assert!(told.len() < 5000, "an argument: {} bytes", told.len());
    let told = refused(folder.path(), &["map", "no\u{1b}[31msuch"], 1);
    assert!(told.contains(r"no\u{1b}[31msuch"), "{told}");
    assert!(fs::read_dir(folder.path()).expect("it").count() == texts.len());
}
