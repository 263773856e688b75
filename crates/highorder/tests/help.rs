//! Help, man pages and completions: all from one definition.

mod common;

use common::{highorder, names, printed, refused, text};

#[test]
fn help_lists_every_verb_by_what_it_is_for() {
    insta::assert_snapshot!(printed(&["--help"]));
}

#[test]
fn the_help_of_snapshot_says_what_is_kept_and_who_may_read_it() {
    insta::assert_snapshot!(printed(&["snapshot", "--help"]));
}

#[test]
fn the_help_of_map_names_what_can_be_drawn() {
    insta::assert_snapshot!(printed(&["map", "--help"]));
}

#[test]
fn the_help_of_run_says_what_is_kept_and_how_it_goes_on() {
    insta::assert_snapshot!(printed(&["run", "--help"]));
}

#[test]
fn the_help_of_compare_names_what_can_be_compared() {
    insta::assert_snapshot!(printed(&["compare", "--help"]));
}

#[test]
fn without_arguments_help_is_what_is_wanted() {
    let output = highorder(&[]).assert().code(2).get_output().stderr.clone();
    assert!(String::from_utf8_lossy(&output).contains("Look at memory:"));
}

#[test]
fn a_misspelt_verb_is_told_the_right_one() {
    assert!(refused(&["snapshoot"]).contains("a similar subcommand exists: 'snapshot'"));
}

#[test]
fn the_man_page_keeps_the_lines_of_its_examples() {
    insta::assert_snapshot!(printed(&["man"]));
}

#[test]
fn every_verb_has_a_man_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("share/man1");
    highorder(&["man", text(&pages)]).assert().success().stdout("");
    let expected = [
        "",
        "-calibrate",
        "-compare",
        "-completions",
        "-import",
        "-man",
        "-map",
        "-replay",
        "-reproduce",
        "-restore-knobs",
        "-run",
        "-snapshot",
        "-trace",
        "-validate",
    ];
    let mut expected: Vec<_> = expected.iter().map(|verb| format!("highorder{verb}.1")).collect();
    expected.sort();
    assert_eq!(names(&pages), expected);
    for name in names(&pages) {
        let page = std::fs::read_to_string(pages.join(&name)).expect("a man page");
        for section in [".TH ", ".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS"] {
            assert!(page.contains(section), "{name} has no {section}");
        }
    }
}

#[test]
fn every_shell_gets_completions_of_every_verb() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = printed(&["completions", shell]);
        for word in [
            "snapshot",
            "map",
            "run",
            "compare",
            "replay",
            "scale",
            "workers",
            "lockstep",
            "completions",
            "man",
            "force",
            "png",
        ] {
            assert!(script.contains(word), "{shell} does not complete {word}");
        }
    }
}

#[test]
fn bash_can_read_its_completions() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("highorder.bash");
    std::fs::write(&script, printed(&["completions", "bash"])).expect("the script");
    match std::process::Command::new("bash").arg("-n").arg(&script).status() {
        Ok(status) => assert!(status.success()),
        Err(error) => eprintln!("SKIPPED: bash: {error}"),
    }
}
