//! Documents do what they say: every ```` ```console ```` block is run, in order, in a folder that
//! looks like the project's, and its output is compared with the block's.
//!
//! In such a block a line that begins with `$ ` is a command for bash, and lines behind it that begin with `> ` go on
//! with it. The lines below are its output, standard error included: a line `...` stands for any number of
//! lines, `[..]` for any part of a line. A command whose shown output begins with `error: ` ends with exit code 2,
//! any other with 0. A word behind `console` says what the block needs: `root`, or `python` with
//! the packages of `tests/python`.

use crate::common::project;
use snapbox::{Assert, IntoData};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// What a document's block needs of the machine besides the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Nothing,
    Root,
    Python,
}

/// A command of a document, with the output that the document shows.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    line: usize,
    needs: Needs,
    command: String,
    shown: String,
}

/// The commands in the `console` blocks of a document, in order.
fn steps(document: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut block = None;
    for (number, line) in document.lines().enumerate() {
        match (block, line.strip_prefix("```")) {
            (None, Some(info)) => block = Some(needs(info)),
            (Some(_), Some(_)) => block = None,
            (Some(Some(needs)), None) => {
                if let Some(command) = line.strip_prefix("$ ") {
                    let command = command.to_owned();
                    steps.push(Step { line: number + 1, needs, command, shown: String::new() });
                    continue;
                }
                let step = steps.last_mut().expect("a block begins with a command");
                match line.strip_prefix("> ").or_else(|| line.strip_prefix('>')) {
                    Some(more) if step.shown.is_empty() => {
                        step.command.push('\n');
                        step.command.push_str(more);
                    }
                    _ => {
                        step.shown.push_str(line);
                        step.shown.push('\n');
                    }
                }
            }
            _ => {}
        }
    }
    steps
}

/// What a block needs, by the words behind its fence; none for a block that is not run.
fn needs(info: &str) -> Option<Needs> {
    match info {
        "console" => Some(Needs::Nothing),
        "console root" => Some(Needs::Root),
        "console python" => Some(Needs::Python),
        _ => None,
    }
}

/// A folder that looks like the project's: what is written into it does not reach the project.
fn lookalike() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let entries = fs::read_dir(project()).expect("the project's folder");
    for entry in entries {
        let entry = entry.expect("an entry");
        let name = entry.file_name();
        if !["target", "out", "highorder-store", ".git"].iter().any(|left_out| name == *left_out) {
            let path = fs::canonicalize(entry.path()).expect("an entry's path");
            symlink(path, folder.path().join(name)).expect("a link");
        }
    }
    folder
}

/// Whether this machine has what a block needs; otherwise says so.
fn has(needs: Needs, document: &str, line: usize) -> bool {
    let lacks = match needs {
        Needs::Nothing => None,
        Needs::Root => (!rustix::process::geteuid().is_root()).then(|| "root".to_owned()),
        Needs::Python => crate::common::python().err(),
    };
    if let Some(lacks) = &lacks {
        println!("SKIPPED {document}:{line}: needs {lacks}");
    }
    lacks.is_none()
}

/// Where bash looks for programs: this build's first.
fn path() -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_highorder")).parent().expect("its folder");
    let python =
        crate::common::python().ok().and_then(|python| python.parent().map(Path::to_owned));
    let own = std::env::var("PATH").unwrap_or_default();
    match python {
        Some(python) => format!("{}:{}:{own}", program.display(), python.display()),
        None => format!("{}:{own}", program.display()),
    }
}

#[track_caller]
fn does_what_it_says(document: &str) {
    let text = fs::read_to_string(project().join(document)).expect("the document");
    let steps = steps(&text);
    assert!(!steps.is_empty(), "{document} has no console block");
    let (folder, path) = (lookalike(), path());
    let mut wrong = Vec::new();
    for Step { line, needs, command, shown } in steps {
        if !has(needs, document, line) {
            continue;
        }
        let output = Command::new("bash")
            .args(["-c", &format!("{{ {command}\n}} 2>&1")])
            .current_dir(folder.path())
            .env("PATH", &path)
            .env("HOME", folder.path())
            .env("COLUMNS", "100")
            .env("NO_COLOR", "1")
            .output()
            .expect("bash runs");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let expected_code = if shown.starts_with("error: ") { 2 } else { 0 };
        if output.status.code() != Some(expected_code) {
            wrong.push(format!(
                "{document}:{line}: {command}\nended with {}, expected exit code {expected_code}:\n{printed}",
                output.status
            ));
        }
        if let Err(differs) = Assert::new().try_eq(
            Some(&format!("{document}:{line}")),
            printed.trim_end().into_data(),
            shown.trim_end().into_data(),
        ) {
            wrong.push(format!("{document}:{line}: {command}\n{differs}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_readme_does_what_it_says() {
    does_what_it_says("README.md");
}

#[test]
fn the_tour_does_what_it_says() {
    does_what_it_says("docs/tour.md");
}

#[test]
fn maps_are_drawn_as_their_document_shows() {
    does_what_it_says("docs/maps.md");
}

#[test]
fn what_is_told_of_a_running_machine_is_printed() {
    does_what_it_says("docs/live.md");
}

#[test]
fn replays_print_what_their_document_shows() {
    does_what_it_says("docs/replay.md");
}

#[test]
fn real_kernels_stand_beside_the_model_as_their_document_shows() {
    does_what_it_says("docs/real-kernels.md");
}

#[test]
fn the_readme_names_every_verb_crate_and_document() {
    let readme = fs::read_to_string(project().join("README.md")).expect("the README");
    let pages = tempfile::tempdir().expect("a folder");
    crate::common::printed(&["man", crate::common::text(pages.path())]);
    let mut wanted = Vec::new();
    for page in crate::common::names(pages.path()) {
        let verb = page.strip_prefix("highorder-").and_then(|page| page.strip_suffix(".1"));
        wanted.extend(verb.map(|verb| format!("`highorder {verb}`")));
    }
    for name in crate::common::names(&project().join("crates")) {
        wanted.push(format!("`crates/{name}`"));
    }
    for name in crate::common::names(&project().join("docs")) {
        wanted.extend(name.ends_with(".md").then(|| format!("(docs/{name})")));
    }
    assert!(wanted.len() > 30, "{wanted:?}");
    let missing: Vec<&String> = wanted.iter().filter(|name| !readme.contains(*name)).collect();
    assert!(missing.is_empty(), "the README does not name {missing:?}");
}

#[test]
fn commands_outputs_and_needs_are_told_apart() {
    let text = "```console\n$ cat <<END\n> a\n> END\na\n$ true\n```\n\n```sh\n$ no\n```\n```console root\n$ id\n...\n```\n";
    let step = |line, needs, command: &str, shown: &str| Step {
        line,
        needs,
        command: command.to_owned(),
        shown: shown.to_owned(),
    };
    let expected = [
        step(2, Needs::Nothing, "cat <<END\na\nEND", "a\n"),
        step(6, Needs::Nothing, "true", ""),
        step(13, Needs::Root, "id", "...\n"),
    ];
    assert_eq!(steps(text), expected);
}
