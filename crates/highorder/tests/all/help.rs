//! Help, man pages and completions: all from one definition.

use crate::common::{completed, highorder, names, printed, refused, text};

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
        "-advise",
        "-attainable",
        "-calibrate",
        "-compare",
        "-completions",
        "-explain",
        "-export",
        "-import",
        "-list",
        "-man",
        "-map",
        "-record",
        "-replay",
        "-reproduce",
        "-restore-knobs",
        "-run",
        "-show",
        "-snapshot",
        "-trace",
        "-validate",
        "-watch",
        "-what-if",
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
    let folder = tempfile::tempdir().expect("a folder");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = printed(&["completions", shell]);
        assert!(script.contains("highorder"), "{shell}: {script}");
        let offered = |words: &[&str], wanted: &[&str]| {
            let offered = completed(folder.path(), shell, words);
            for word in wanted {
                let is_there = offered.iter().any(|one| one == word);
                assert!(is_there, "{shell} does not complete {word}: {offered:?}");
            }
        };
        offered(
            &[""],
            &["snapshot", "map", "list", "show", "run", "compare", "replay", "completions", "man"],
        );
        offered(&["run", "--"], &["--scale", "--workers"]);
        offered(&["replay", "--"], &["--lockstep"]);
        offered(&["snapshot", "--"], &["--force"]);
        offered(&["map", "--"], &["--png"]);
    }
}

/// The verbs, as the program itself has them.
fn verbs() -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let words = completed(folder.path(), "bash", &[""]);
    let is_verb = |word: &String| word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
    words.into_iter().filter(|word| !word.starts_with('-') && is_verb(word)).collect()
}

/// The command lines at the end of a verb's help.
fn examples(verb: &str) -> Vec<String> {
    let help = printed(&[verb, "--help"]);
    let (_, examples) =
        help.split_once("Examples:\n").unwrap_or_else(|| panic!("{verb}: no example"));
    let examples: Vec<String> = examples.lines().map(|line| line.trim().to_owned()).collect();
    assert!(!examples.is_empty(), "{verb}");
    examples
}

/// The words of a command line as a shell has them, without what it does itself.
fn words(line: &str) -> Vec<String> {
    let command = line.split(" > ").next().unwrap_or_default();
    let command = command.split_once(" | ").map_or(command, |(_, ours)| ours);
    let command = command.strip_prefix("sudo ").unwrap_or(command);
    let (mut words, mut quote) = (vec![String::new()], None);
    for c in command.chars() {
        match (quote, c) {
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), _) if c == open => quote = None,
            (None, ' ') => words.push(String::new()),
            _ => words.last_mut().expect("there is one").push(c),
        }
    }
    assert_eq!(words.remove(0), "highorder", "{line}");
    words
}

#[test]
fn every_verbs_help_ends_with_examples_that_are_understood() {
    let verbs = verbs();
    assert!(verbs.len() >= 16, "{verbs:?}");
    for verb in verbs.iter().filter(|verb| *verb != "help") {
        let examples = examples(verb);
        assert!(examples.iter().any(|line| words(line)[0] == *verb), "{verb}: {examples:?}");
        for line in examples {
            let words = words(&line);
            // Whatever is wrong with the words before it is refused first.
            let mut arguments: Vec<&str> = words.iter().map(String::as_str).collect();
            arguments.push("--help");
            let help = printed(&arguments);
            assert!(help.contains("Usage: highorder "), "{line}: {help}");
        }
    }
    let all = printed(&["--help"]);
    let (_, examples) = all.split_once("Examples:\n").expect("examples");
    for line in examples.lines() {
        let command = line.trim().split("  ").next().unwrap_or_default();
        let words = words(command);
        let mut arguments: Vec<&str> = words.iter().map(String::as_str).collect();
        arguments.push("--help");
        assert!(printed(&arguments).contains("Usage: highorder "), "{command}");
    }
}

#[test]
fn examples_that_need_nothing_work_as_printed() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut nr = 0;
    // In this order: compare shows what run left. The others need root, a network, minutes or a file of the reader's.
    for verb in ["list", "show", "run", "compare", "completions", "man", "replay", "trace"] {
        for line in examples(verb) {
            let words = words(&line);
            let needs = ["--on", "usemem-anon:swappiness-60", "trace.txt"];
            if words.iter().any(|word| needs.contains(&word.as_str())) {
                continue;
            }
            let arguments: Vec<&str> = words.iter().map(String::as_str).collect();
            let mut command = highorder(&arguments);
            // Recordings lie in the project's folder.
            if verb != "replay" {
                command.current_dir(folder.path());
            }
            let output = command.output().expect("the program starts");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{line}: {said}");
            nr += 1;
        }
    }
    assert!(nr >= 12, "{nr} examples");
}

#[test]
fn help_is_as_wide_as_the_terminal() {
    for verb in verbs().iter().filter(|verb| *verb != "help") {
        for width in [70, 90] {
            let mut command = highorder(&[verb, "--help"]);
            let output = command.env("COLUMNS", width.to_string()).output().expect("the program");
            let help = String::from_utf8(output.stdout).expect("UTF-8");
            let prose = help.split("Examples:\n").next().unwrap_or_default();
            // A line of usage is wrapped by nobody.
            let is_prose = |line: &&str| !line.starts_with("  ") && !line.starts_with("Usage: ");
            for line in prose.lines().filter(is_prose) {
                assert!(line.chars().count() <= width, "{verb} at {width}: {line}");
            }
            // A paragraph that was wrapped by hand has a short line in its middle.
            for paragraph in prose.split("\n\n").filter(|text| !text.contains("\n  ")) {
                let lines: Vec<&str> = paragraph.lines().collect();
                for pair in lines.windows(2).filter(|pair| !pair[0].starts_with(' ')) {
                    let next = pair[1].split(' ').next().unwrap_or_default();
                    let fits = pair[0].chars().count() + 1 + next.chars().count() <= width;
                    assert!(!fits || pair[0].ends_with(':'), "{verb} at {width}: {}", pair[0]);
                }
            }
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
