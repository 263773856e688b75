//! What the program is given to read: sparse files, devices, pipes, folders, and files of another kind.

use crate::common::{STATE, highorder, printed, project, refused, snapshot_file, text};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

const TRACE: &str = "tests/data/recordings/612-rec-compact/trace.txt.zst";

/// Runs with no more than so much address space, which a file read whole would go beyond.
fn refused_within(kib: u64, arguments: &[&str]) -> String {
    let output = Command::new("sh")
        .args(["-c", "ulimit -v $0; exec \"$@\"", &kib.to_string()])
        .arg(env!("CARGO_BIN_EXE_highorder"))
        .args(arguments)
        .current_dir(project())
        .output()
        .expect("a shell");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
    assert_eq!(told.lines().count(), 1, "{arguments:?}: {told}");
    told
}

fn sparse(folder: &Path, name: &str) -> String {
    let path = folder.join(name);
    File::create(&path).and_then(|file| file.set_len(2 << 30)).expect("a sparse file");
    text(&path).to_owned()
}

#[test]
fn a_sparse_file_is_refused_by_its_first_bytes_or_its_length() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, toml) = (sparse(folder.path(), "file"), sparse(folder.path(), "file.toml"));
    for (arguments, expected) in [
        (&["map", &file][..], "not a snapshot file: begins with [00, 00, 00"),
        (&["trace", &file], "file:1: more than 1048576 bytes, expected at most 1 MiB"),
        (&["run", &toml], "2147483648 bytes, expected at most 1 MiB, the limit of a TOML file"),
        (&["replay", "tests/data/recordings/612-rec-churn", "--kernel", &toml], "2147483648 bytes"),
    ] {
        let told = refused_within(600_000, arguments);
        assert!(told.contains(expected), "{arguments:?}: {told}");
    }
}

#[test]
fn an_empty_file_is_told_as_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("empty.snap");
    File::create(&path).expect("a file");
    let told = refused(&["map", text(&path)]);
    assert!(told.contains("empty.snap: an empty file, expected a snapshot"), "{told}");
}

#[test]
fn numbers_out_of_bounds_are_told_in_plain_words() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mine.toml");
    let text_of = "based_on = \"one-node-8g\"\n[[node]]\nmemory_mib = -5\n";
    fs::write(&path, text_of).expect("a file");
    let told = refused(&["show", text(&path)]);
    assert!(told.contains("mine.toml:3: ") && told.contains("expected a whole number"), "{told}");
    let told = refused(&["run", "usemem-small", "--workers", "0"]);
    assert!(told.contains("expected a whole number, at least 1"), "{told}");
}

#[test]
fn a_store_that_cannot_be_one_is_told() {
    let run = ["run", "usemem-small", "--scale", "1/2", "--store"];
    let told = refused(&[&run[..], &["Cargo.toml"]].concat());
    assert!(told.contains("Cargo.toml: a file, expected a store"), "{told}");
    let told = refused(&[&run[..], &["/proc/x"]].concat());
    assert!(told.contains("/proc/x: cannot make this store: "), "{told}");
}

#[test]
fn a_capture_beyond_its_limit_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let case = folder.path().join("case");
    for moment in ["before", "after"] {
        fs::create_dir_all(case.join(moment)).expect("a folder");
        let vmstat = "tests/data/cases/612-mmapdemo-zrm0/before/vmstat";
        fs::copy(project().join(vmstat), case.join(moment).join("vmstat")).expect("a copy");
    }
    printed(&["compare", text(&case)]);
    let notes = sparse(&case, "case.json");
    let told = refused_within(600_000, &["compare", text(&case)]);
    assert!(told.contains("case.json: 2147483648 bytes, expected at most 16 MiB"), "{told}");
    fs::remove_file(notes).expect("it is there");
    sparse(&case, "after/vmstat");
    let told = refused_within(600_000, &["compare", text(&case)]);
    let expected = "after/vmstat: 2147483648 bytes, expected at most 256 MiB, the limit of";
    assert!(told.contains(expected), "{told}");
}

#[test]
fn devices_and_folders_are_refused_by_what_they_are() {
    for verb in ["map", "trace", "run"] {
        let told = refused(&[verb, "/dev/zero"]);
        let expected = "error: /dev/zero: a character device, expected a file or a pipe\n";
        assert_eq!(told, expected, "{verb}");
    }
    let told = refused(&["trace", "tests"]);
    assert_eq!(told, "error: tests: no trace.txt (plain, .gz or .zst) here\n");
    // A folder without a list of zones is no recorded state: nothing in it is read.
    let told = refused_within(600_000, &["map", "tests"]);
    assert!(told.contains("found no zones.json, expected one in every recorded state"), "{told}");
    let folder = tempfile::tempdir().expect("a folder");
    sparse(folder.path(), "buddyinfo");
    let told = refused_within(600_000, &["map", text(folder.path())]);
    assert!(told.contains("found no zones.json"), "{told}");
}

#[test]
fn an_experiment_that_names_a_device_as_its_machine_is_refused_in_its_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.toml");
    let experiment = "description = \"x\"\nmachine = \"/dev/zero\"\n[workload]\nname = \"usemem\"\n\
                      [[variant]]\nkernel = \"linux-6.12\"\n";
    fs::write(&path, experiment).expect("a file");
    let told = refused(&["run", text(&path)]);
    assert!(told.contains("x.toml:2: `machine` is `/dev/zero`"), "{told}");
    assert!(told.contains("a character device, expected a file or a pipe"), "{told}");
}

/// Gives a file through a pipe, as standard input.
fn piped(bytes: &[u8], arguments: &[&str]) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_highorder"))
        .current_dir(project())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    // The program may have seen enough before the end.
    let _ = stdin.write_all(bytes);
    drop(stdin);
    let output = child.wait_with_output().expect("its output");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    String::from_utf8(output.stdout).expect("the program prints UTF-8")
}

#[test]
fn a_pipe_is_read_as_the_file_would_be() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = snapshot_file(folder.path());
    let body = |drawn: &str, source: &str| {
        drawn.lines().filter(|line| !line.contains(source)).collect::<Vec<_>>().join("\n")
    };
    let by_name = printed(&["map", text(&file), "--lines", "4"]);
    let by_pipe = piped(&fs::read(&file).expect("it"), &["map", "/dev/stdin", "--lines", "4"]);
    assert_eq!(body(&by_name, text(&file)), body(&by_pipe, "/dev/stdin"));
    let trace = fs::read(project().join(TRACE)).expect("a trace");
    assert_eq!(piped(&trace, &["trace", "/dev/stdin"]), printed(&["trace", TRACE]));
    let toml = fs::read(project().join("experiments/mmap-demo.toml")).expect("an experiment");
    let toml = String::from_utf8(toml).expect("text");
    let store = folder.path().join("store");
    piped(toml.as_bytes(), &["run", "/dev/stdin", "--scale", "1/64", "--store", text(&store)]);
}

#[test]
fn an_endless_pipe_is_refused_by_its_first_bytes() {
    for verb in ["map", "trace", "run"] {
        let script =
            format!("cat /dev/zero | '{}' {verb} /dev/stdin 2>&1", env!("CARGO_BIN_EXE_highorder"));
        let output = Command::new("timeout").args(["60", "sh", "-c", &script]).output();
        let told = String::from_utf8_lossy(&output.expect("a shell").stdout).into_owned();
        assert!(told.starts_with("error: /dev/stdin"), "{verb}: {told}");
        assert_eq!(told.lines().count(), 1, "{verb}: {told}");
    }
}

#[test]
fn a_trace_that_ends_in_the_middle_of_its_last_line_is_read_up_to_there_and_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let packed = fs::read(project().join(TRACE)).expect("a trace");
    let whole = zstd::decode_all(&packed[..]).expect("a whole file");
    let path = folder.path().join("trace.txt");
    fs::write(&path, &whole[..whole.len() - 7]).expect("a file");
    let nr_lines = whole.iter().filter(|&&byte| byte == b'\n').count() as u64;
    let line = highorder_tables::text::count(nr_lines);
    let expected = format!("the trace ends in the middle of line {line}, and is read up to there");
    let told = printed(&["trace", text(&path)]);
    assert!(told.lines().next().is_some_and(|first| first.contains(&expected)), "{told}");
    assert!(!printed(&["trace", TRACE]).contains("in the middle"));
    // Programs get the table alone; people are told beside it.
    let output = highorder(&["trace", text(&path), "--format", "csv"]).assert().success();
    let told = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
    assert!(told.contains(&expected), "{told}");
}

#[test]
fn what_is_no_trace_is_told_in_one_line() {
    let snapshot = project().join(STATE).join("zones.json");
    for path in ["README.md", "Cargo.lock", text(&snapshot), env!("CARGO_BIN_EXE_highorder")] {
        let told = refused(&["trace", path]);
        assert_eq!(told.lines().count(), 1, "{told}");
        let is_told = told.contains(": no trace: line ") || told.contains("the limit of a line");
        assert!(is_told, "{told}");
    }
    let told = refused(&["trace", "README.md"]);
    assert!(told.contains("expected ftrace's text: `TASK-PID [CPU]"), "{told}");
}
