//! A run of which each system call that touches the store fails once, and at each of which it is killed once: the next
//! run finds the store whole or mends it, and leaves the bytes that an undisturbed run leaves.
//!
//! Takes strace(1), which injects the faults; without it the test skips, and says so. `FAULT_POINTS` says how many places
//! are tried of each kind of call (4).

use crate::common::{project, text};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Calls that change or read what a disk holds, and what each may be told.
const FAULTS: [(&str, &[&str]); 8] = [
    ("openat", &["EIO", "EMFILE"]),
    ("write", &["ENOSPC", "EIO"]),
    ("fsync", &["EIO"]),
    ("rename", &["ENOSPC", "EIO"]),
    ("mkdir", &["ENOSPC"]),
    ("flock", &["EINTR", "ENOLCK"]),
    ("getdents64", &["EIO"]),
    ("unlinkat", &["EIO"]),
];

fn arguments(store: &Path) -> Vec<String> {
    let store = text(store);
    let words = [
        "run",
        "usemem-small",
        "--scale",
        "1/4",
        "--workers",
        "1",
        "--store",
        store,
        "--format",
        "csv",
    ];
    words.map(str::to_owned).into()
}

fn plain(store: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_highorder"))
        .args(arguments(store))
        .current_dir(project())
        .output()
        .expect("the program")
}

fn traced(store: &Path, options: &[&str]) -> Output {
    Command::new("strace")
        .args(["-f", "-qq"])
        .args(options)
        .arg(env!("CARGO_BIN_EXE_highorder"))
        .args(arguments(store))
        .current_dir(project())
        .output()
        .expect("strace")
}

/// All files below a folder, by name.
fn bytes_below(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut files, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).expect("it is below").to_owned();
                files.insert(name, fs::read(&path).expect("a file of the store"));
            }
        }
    }
    files
}

/// How often a thread makes each of the calls, at most.
fn counts(log: &Path) -> BTreeMap<&'static str, usize> {
    let log = fs::read_to_string(log).expect("strace's log");
    let mut by_thread: BTreeMap<(&str, &'static str), usize> = BTreeMap::new();
    for line in log.lines() {
        let Some((thread, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        if let Some((name, _)) =
            FAULTS.iter().find(|(name, _)| call.starts_with(&format!("{name}(")))
        {
            *by_thread.entry((thread, name)).or_default() += 1;
        }
    }
    let mut counts = BTreeMap::new();
    for ((_, name), nr) in by_thread {
        let most = counts.entry(name).or_insert(0);
        *most = nr.max(*most);
    }
    counts
}

#[test]
fn whatever_call_fails_or_kills_the_next_run_leaves_the_bytes_of_an_undisturbed_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let (clean, counted) = (folder.path().join("clean"), folder.path().join("counted"));
    if !plain(&clean).status.success() {
        panic!("an undisturbed run fails");
    }
    let wanted = bytes_below(&clean);
    let names: Vec<&str> = FAULTS.iter().map(|(name, _)| *name).collect();
    let trace = format!("trace={}", names.join(","));
    let first = Command::new("strace").arg("-V").output();
    if first.is_err() || !traced(&counted, &["-o", text(&log), "-e", &trace]).status.success() {
        return eprintln!("SKIPPED: strace(1) cannot trace here");
    }
    let points: usize =
        std::env::var("FAULT_POINTS").ok().and_then(|n| n.parse().ok()).unwrap_or(4);
    let (mut nr, mut nr_changed) = (0, 0);
    for (call, nr_calls) in counts(&log) {
        let (_, errors) = FAULTS.iter().find(|(name, _)| *name == call).expect("one of them");
        let injected = errors.iter().map(|error| format!("error={error}"));
        for what in injected.chain(["signal=SIGKILL".to_owned()]) {
            let step = nr_calls.div_ceil(points).max(1);
            for when in (1..=nr_calls).rev().step_by(step) {
                let store = folder.path().join(format!("store-{nr}"));
                let inject = format!("inject={call}:{what}:when={when}");
                let disturbed = traced(&store, &["-o", "/dev/null", "-e", &inject]);
                let told = String::from_utf8_lossy(&disturbed.stderr).into_owned();
                assert!(!told.contains("fault of highorder"), "{inject}: {told}");
                nr_changed += usize::from(!disturbed.status.success());
                let again = plain(&store);
                let told = String::from_utf8_lossy(&again.stderr).into_owned();
                assert!(again.status.success(), "after {inject}: {told}");
                assert!(bytes_below(&store) == wanted, "after {inject} the store is another one");
                fs::remove_dir_all(&store).expect("it is there");
                nr += 1;
            }
        }
    }
    println!("{nr} faults injected, {nr_changed} of them ended the run");
    assert!(nr_changed > 0, "no fault was noticed");
}
