//! `highorder watch` and `highorder record` on the machine that runs the tests.

use crate::common::{highorder, names, printed, refused, text};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// Whether everyone can read what a sample is made of. Not so in some containers.
fn is_possible() -> bool {
    let files = ["vmstat", "zoneinfo", "buddyinfo", "meminfo"];
    let missing = files.iter().find(|name| fs::read(format!("/proc/{name}")).is_err());
    if let Some(name) = missing {
        eprintln!("SKIPPED: /proc/{name} cannot be read here");
    }
    missing.is_none()
}

#[test]
fn one_screen_is_printed_where_there_is_no_terminal() {
    if !is_possible() {
        return;
    }
    let screen = printed(&["watch", "--once", "--every", "0.2"]);
    assert!(screen.starts_with("memory ") && screen.contains("free of order"), "{screen}");
    assert!(!screen.contains('\x1b'), "{screen:?}");
    let told = refused(&["watch"]);
    assert!(told.contains("expected --once, --series, --serve or --when"), "{told}");
}

#[test]
fn a_threshold_ends_it_with_a_code_of_its_own_or_runs_a_command() {
    if !is_possible() {
        return;
    }
    let crossed = ["watch", "--every", "0.1", "--when", "MemTotal > 1"];
    let output = highorder(&crossed).assert().code(3).get_output().clone();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("MemTotal > 1: it is "), "{told}");
    let told = refused(&["watch", "--when", "no_such_counter > 1"]);
    assert!(told.contains("expected a counter of /proc/vmstat or /proc/meminfo here"), "{told}");
    let told = refused(&["watch", "--when", "compact_stall"]);
    assert!(told.contains("`compact_stall/s > 10`"), "{told}");
}

#[test]
fn a_history_is_kept_that_compare_and_map_read() {
    if !is_possible() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let series = folder.path().join("today");
    let mut child = Command::new(env!("CARGO_BIN_EXE_highorder"))
        .args(["watch", "--every", "0.2", "--series", text(&series)])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    thread::sleep(Duration::from_secs(2));
    // As a machine that goes down has it.
    child.kill().expect("a child");
    child.wait().expect("a child");
    assert_eq!(names(&series), ["after", "before", "state.snapshot", "timeline"]);
    let compared = printed(&["compare", text(&series)]);
    assert!(compared.contains("today") || compared.contains("vmstat"), "{compared}");
    let map = printed(&["map", text(&series.join("state.snapshot")), "--lines", "4"]);
    assert!(map.contains("(positions made up)"), "{map}");
    let told = refused(&["watch", "--series", text(&series)]);
    assert!(told.contains("has a history already"), "{told}");
    let told = refused(&["watch", "--series", "Cargo.toml"]);
    assert!(told.contains("Cargo.toml: not a folder"), "{told}");
}

#[test]
fn a_command_that_nothing_would_run_is_refused() {
    let told = refused(&["watch", "--once", "--run", "true"]);
    assert!(told.contains("cannot be used with"), "{told}");
    assert!(refused(&["watch", "--run", "true"]).contains("--when"));
}

#[test]
fn metrics_are_served_until_it_ends() {
    if !is_possible() {
        return;
    }
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = port.expect("a port").to_string();
    let mut child = Command::new(env!("CARGO_BIN_EXE_highorder"))
        .args(["watch", "--every", "60", "--serve", &address])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let mut client = None;
    for _ in 0..100 {
        client = TcpStream::connect(&address).ok();
        if client.is_some() {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    let mut client = client.expect("somebody answers");
    client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("a request");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("an answer");
    child.kill().expect("a child");
    child.wait().expect("a child");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\nnode_vmstat_pgfault ") && answer.ends_with("# EOF\n"), "{answer}");
}

#[test]
fn a_recording_is_roots_and_leaves_no_file_where_it_cannot_be_made() {
    if rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: root may record");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let told = refused(&["record", "-o", text(&folder.path().join("x"))]);
    assert!(told.contains("tracing takes root"), "{told}");
    assert!(names(folder.path()).is_empty());
}
