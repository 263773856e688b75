//! Every reader over mutated good inputs, for a time: no panic, nothing endless, no more memory than the limits say.
//!
//! `FUZZ_SECONDS` says how long each target takes (2), `FUZZ_SEED` from which seed on (1), `FUZZ_ONLY` which target.
//! Each target is a process of its own, since what takes all memory ends its process; the input that it read last is
//! then in the build's folder, and the message says where.

#![allow(clippy::disallowed_types, reason = "how long it takes is the user's to say")]

use highorder_fuzz::mutate::Mutator;
use highorder_fuzz::{TARGETS, Target, find, project};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs};

/// Names the target to the process that is to run it.
const CHILD: &str = "HIGHORDER_FUZZ_TARGET";
/// Address space of a target's process, in KiB.
const ADDRESS_SPACE_KIB: u64 = 3 << 20;
/// No input takes longer.
const INPUT_MAX: Duration = Duration::from_secs(10);

fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Where the input lies that a target reads.
fn input_path(target: &Target) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{}", target.name))
}

#[test]
fn no_mutated_input_breaks_a_reader() {
    if let Some(target) = env::var(CHILD).ok().and_then(|name| find(&name)) {
        return mutated(target);
    }
    let only = env::var("FUZZ_ONLY").unwrap_or_default();
    let mut broken = Vec::new();
    for target in TARGETS.iter().filter(|target| target.name.contains(&only)) {
        let output = Command::new("sh")
            .args(["-c", "ulimit -v $0; exec \"$@\"", &ADDRESS_SPACE_KIB.to_string()])
            .arg(env::current_exe().expect("this test"))
            .args(["--exact", "no_mutated_input_breaks_a_reader", "--nocapture"])
            .env(CHILD, target.name)
            .output()
            .expect("a shell");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        println!("{}", told.lines().last().unwrap_or_default());
        if !output.status.success() {
            let lines: Vec<&str> = told.lines().take(12).collect();
            broken.push(format!("{}: {}", input_path(target).display(), lines.join("\n")));
        }
    }
    assert!(broken.is_empty(), "inputs that broke their readers:\n{}", broken.join("\n\n"));
}

fn mutated(target: &Target) {
    let (time, seed) = (Duration::from_secs(number("FUZZ_SECONDS", 2)), number("FUZZ_SEED", 1));
    let path = input_path(target);
    let corpus = (target.corpus)(&project());
    for input in &corpus {
        fs::write(&path, input).expect("the build's folder");
        (target.read)(input);
    }
    let mut mutator = Mutator::new(corpus, seed);
    let (began, mut nr) = (Instant::now(), 0_u64);
    while began.elapsed() < time {
        let input = mutator.next_input();
        fs::write(&path, &input).expect("the build's folder");
        let at = Instant::now();
        (target.read)(&input);
        assert!(at.elapsed() < INPUT_MAX, "{} takes {:?}", path.display(), at.elapsed());
        nr += 1;
    }
    fs::remove_file(&path).expect("it is there");
    eprintln!("{}: {nr} inputs", target.name);
}

/// Writes the corpus of each target into a folder of its name below `FUZZ_CORPUS`, for `make fuzz`.
#[test]
#[ignore = "writes files, for make fuzz"]
fn corpus() {
    let folder = PathBuf::from(env::var_os("FUZZ_CORPUS").expect("FUZZ_CORPUS, a folder"));
    for target in TARGETS {
        let folder = folder.join(target.name);
        fs::create_dir_all(&folder).expect("a folder");
        for (number, input) in (target.corpus)(&project()).iter().enumerate() {
            fs::write(folder.join(format!("good-{number}")), input).expect("a file");
        }
    }
}
