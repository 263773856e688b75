//! `highorder snapshot` on the machine that runs the tests.

use crate::common::{highorder, names, printed, refused, text};
use highorder_snapshot::{Exactness, Snapshot};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};

/// Whether everyone can read what a snapshot of counts is made of. Not so in some containers.
fn is_possible() -> bool {
    let missing =
        ["buddyinfo", "zoneinfo"].iter().find(|f| fs::read(format!("/proc/{f}")).is_err());
    if let Some(name) = missing {
        eprintln!("SKIPPED: /proc/{name} cannot be read here");
    }
    missing.is_none()
}

#[test]
fn a_snapshot_of_counts_is_kept_labelled_and_drawn() {
    if !is_possible() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("now.snap");
    let said = printed(&["snapshot", "-o", text(&file), "--way", "counts", "--label", "A test"]);
    assert!(said.starts_with("exactness  counts: "), "{said}");
    assert!(said.contains("inferred   ") && said.contains(" bytes in "), "{said}");
    assert_eq!(names(folder.path()), ["now.snap"]);
    let mode = fs::metadata(&file).expect("the file").permissions().mode();
    assert_eq!(mode & 0o077, 0, "only its owner may read it");
    let drawn = printed(&["map", text(&file), "--lines", "4"]);
    assert!(drawn.starts_with("A test (positions made up)\n"), "{drawn}");
    assert_eq!(drawn, printed(&["map", text(&file), "--lines", "4"]));
}

#[test]
fn a_file_that_is_there_is_kept_unless_forced() {
    if !is_possible() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("precious");
    fs::write(&file, "precious").expect("a file");
    let arguments = ["snapshot", "--way", "counts", "-o", text(&file)];
    let complaint = refused(&arguments);
    assert_eq!(
        complaint,
        format!("error: {}: is there already; --force replaces it\n", file.display())
    );
    assert_eq!(fs::read(&file).expect("the file"), b"precious");
    highorder(&arguments).arg("--force").assert().success();
    assert_eq!(Snapshot::read(&file).expect("a snapshot").exactness, Exactness::Counts);
    assert_eq!(names(folder.path()), ["precious"]);
}

#[test]
fn a_place_that_cannot_be_written_to_is_named() {
    if is_possible() {
        let complaint = refused(&["snapshot", "--way", "counts", "-o", "no/such/folder/x.snap"]);
        assert!(complaint.starts_with("error: no/such/folder/x.snap: cannot write"), "{complaint}");
    }
}

#[test]
fn an_output_is_asked_for() {
    assert!(refused(&["snapshot"]).contains("--output <FILE>"));
}

#[test]
fn root_gets_more_than_counts() {
    if !is_possible() || fs::File::open("/proc/kpageflags").is_err() {
        eprintln!("SKIPPED: /proc/kpageflags cannot be opened by whoever runs this");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("root.snap");
    let said = printed(&["snapshot", "-o", text(&file)]);
    let snapshot = Snapshot::read(&file).expect("a snapshot");
    assert!(snapshot.exactness > Exactness::Counts, "{said}");
    assert!(said.contains("\nchecked    "), "{said}");
}

#[test]
fn an_ordinary_user_gets_counts_and_is_told_why() {
    if !is_possible() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("it is ours");
    let Some(output) = as_an_ordinary_user(folder.path(), &["snapshot", "-o", "user.snap"]) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.starts_with("exactness  counts: "), "{said}");
    assert!(said.contains("/proc/kpageflags: cannot open: Permission denied"), "{said}");

    let drawn = as_an_ordinary_user(folder.path(), &["map", "--lines", "4"]).expect("as before");
    let drawn = String::from_utf8_lossy(&drawn.stdout).into_owned();
    assert!(drawn.starts_with("The memory of this machine (positions made up)\n"), "{drawn}");
    assert!(drawn.contains("? pageblocks mixed: uses are not known"), "{drawn}");

    let asked = ["snapshot", "--way", "frames", "-o", "more.snap"];
    let output = as_an_ordinary_user(folder.path(), &asked).expect("as before");
    assert_eq!(output.status.code(), Some(2));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(complaint.starts_with("error: /proc/kpageflags: cannot open"), "{complaint}");
    assert!(!folder.path().join("more.snap").exists());
}

/// Runs the program as nobody, or as whoever runs the tests if that is not root.
fn as_an_ordinary_user(folder: &Path, arguments: &[&str]) -> Option<Output> {
    // Root's build folder may be closed to others. Another process copies: what we had open for writing would be handed
    // to the children of tests beside this one, and "Text file busy" be the answer to who runs it.
    let program = folder.join("highorder");
    if !program.exists() {
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_highorder")).arg(&program).status();
        assert!(copied.expect("cp").success());
    }
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let mut command = Command::new(if is_root { Path::new("setpriv") } else { &program });
    if is_root {
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&program);
    }
    match command.args(arguments).current_dir(folder).output() {
        Ok(output) if !is_root || !output.stderr.starts_with(b"setpriv:") => Some(output),
        Ok(output) => {
            eprintln!("SKIPPED: {}", String::from_utf8_lossy(&output.stderr));
            None
        }
        Err(error) => {
            eprintln!("SKIPPED: setpriv: {error}");
            None
        }
    }
}
