//! What the tests of the program share: running it, and where its inputs lie.

#![allow(dead_code, reason = "each test program uses a part of this")]

use assert_cmd::Command;
use highorder_files::{Destination, Replace};
use highorder_snapshot::recording_file::{self, Content};
use highorder_snapshot::{Exactness, Snapshot};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A recorded state, as named from the project's folder.
pub(crate) const STATE: &str = "tests/data/recordings/612-rec-churn/state0";

/// The project's folder.
pub(crate) fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The program, run in the project's folder; what the terminal around the tests is like does not reach it.
pub(crate) fn highorder(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_highorder"));
    command.current_dir(project()).args(arguments);
    for variable in ["COLUMNS", "NO_COLOR", "CLICOLOR_FORCE", "COLORTERM"] {
        command.env_remove(variable);
    }
    command
}

/// What it prints when all goes well.
#[track_caller]
pub(crate) fn printed(arguments: &[&str]) -> String {
    let output = highorder(arguments).assert().success().get_output().stdout.clone();
    String::from_utf8(output).expect("the program prints UTF-8")
}

/// What it complains of, with exit code 2 and nothing on standard output.
#[track_caller]
pub(crate) fn refused(arguments: &[&str]) -> String {
    let output = highorder(arguments).assert().code(2).stdout("").get_output().stderr.clone();
    String::from_utf8(output).expect("the program prints UTF-8")
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a path of ours is UTF-8")
}

/// Writes the recorded state into a snapshot file.
pub(crate) fn snapshot_file(folder: &Path) -> PathBuf {
    let path = folder.join("recorded.snap");
    let snapshot = Snapshot::read(project().join(STATE)).expect("the recorded state");
    snapshot.write(&path).expect("a snapshot file");
    path
}

/// What is printed, without the command line at its end that prints it again.
pub(crate) fn without_command(printed: &str) -> &str {
    printed.split_once("; again with: ").map_or(printed, |(results, _)| results)
}

/// Writes the recorded state as if it had been taken without reading any list: with this exactness.
pub(crate) fn inexact_file(folder: &Path, exactness: Exactness) -> PathBuf {
    let path = folder.join(format!("{exactness}.snap"));
    let mut snapshot = Snapshot::read(project().join(STATE)).expect("the recorded state");
    snapshot.exactness = exactness;
    snapshot.pagecounts.clear();
    snapshot.lru.clear();
    snapshot.zones.iter_mut().flat_map(|zone| &mut zone.pcp).for_each(|pcp| pcp.blocks.clear());
    if exactness == Exactness::Counts {
        snapshot.kpageflags.clear();
        snapshot.zones.iter_mut().for_each(|zone| zone.free.clear());
    }
    snapshot.write(&path).expect("a snapshot file");
    path
}

/// The names in a folder, in order.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
    let mut names: Vec<String> =
        entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// What the shell is offered in place of the last word.
pub(crate) fn completed(folder: &Path, shell: &str, words: &[&str]) -> Vec<String> {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_highorder"));
    command
        .current_dir(folder)
        .env("COMPLETE", shell)
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
        .env("_CLAP_IFS", "\n")
        .env("_CLAP_COMPLETE_COMP_TYPE", "9")
        .env("_CLAP_COMPLETE_SPACE", "true")
        .args(["--", "highorder"])
        .args(words);
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    // zsh and fish get what a name is beside it.
    text.lines().map(|line| line.split(['\t', ':']).next().unwrap_or_default().to_owned()).collect()
}

/// Python with what the documents' examples import, or why there is none.
pub(crate) fn python() -> Result<PathBuf, String> {
    // The folder of the build's own files is one below the build's folder.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("..");
    let python = target.join("python/bin/python");
    let output = std::process::Command::new(&python)
        .args(["-c", "import duckdb, pandas, perfetto, polars, prometheus_client, pyarrow"])
        .output();
    match output {
        Ok(output) if output.status.success() => Ok(python),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(format!("{}: {error}", python.display())),
    }
}

/// A recording of the test data as the one file that `highorder record` makes.
pub(crate) fn recording_file(folder: &Path, recording: &str) -> PathBuf {
    let path = folder.join("now.recording");
    let at = project().join(recording);
    let bytes = |name: &str| fs::read(at.join(name)).expect("a file");
    let mut sections: BTreeMap<String, Content> = ["case.json", "trace.txt.zst"]
        .map(|name| (name.to_owned(), Content::Bytes(bytes(name))))
        .into();
    for state in ["state0", "state1"].map(|name| at.join(name)).iter().filter(|at| at.is_dir()) {
        let name = state.file_name().expect("a name").to_string_lossy().into_owned();
        let state = Snapshot::read(state).expect("a state").to_bytes(&name).expect("a state");
        sections.insert(format!("{name}.snapshot"), Content::Bytes(state));
    }
    let destination = Destination::new(&path, Replace::No).expect("a name");
    recording_file::write(&destination, &mut sections).expect("a recording");
    path
}
