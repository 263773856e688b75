//! Seeds run with every invariant checked, twice, to the same bytes: `make swarm SEEDS=n`.
//!
//! `SEEDS` says how many (200), `SEED` which is the first (1). Each runs in a process of its own, so that one that takes
//! all memory or never ends is one that failed, too. A failing seed is made as simple as it can be and is printed as the
//! files to run it with: `highorder run experiment.toml --check`.

use highorder_swarm::{Scenario, run};
use std::env;
use std::fs;
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

/// Names the seed to the process that is to run it, and the pieces that it does without.
const CHILD: &str = "HIGHORDER_SWARM_SEED";
const DROPPED: &str = "HIGHORDER_SWARM_DROPPED";
/// Seconds of a CPU that no seed takes more than: seed 200433, which looks at 340 million pages, takes 53 for each run.
const SECONDS: &str = "120";
/// How many failing seeds are made simple.
const SIMPLIFIED_MAX: usize = 3;

fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn drawn_experiments_keep_every_invariant_and_leave_the_same_bytes_twice() {
    if let Ok(seed) = env::var(CHILD) {
        return child(seed.parse().expect("a seed"));
    }
    let (first, nr) = (number("SEED", 1), number("SEEDS", 120));
    let (next, failed) = (AtomicU64::new(first), Mutex::new(Vec::new()));
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, SeqCst);
                    if seed >= first + nr {
                        return;
                    }
                    if let Some(why) = failure(&process(seed, &[])) {
                        println!("seed {seed}: {why}");
                        failed.lock().expect("no worker panics").push((seed, why));
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().expect("no worker panics");
    failed.sort();
    let seeds: Vec<u64> = failed.iter().map(|(seed, _)| *seed).collect();
    for (seed, _) in failed.iter().take(SIMPLIFIED_MAX) {
        println!("{}", simplified(*seed));
    }
    assert!(seeds.is_empty(), "{} of {nr} seeds failed: {seeds:?}", seeds.len());
}

fn child(seed: u64) {
    let dropped = env::var(DROPPED).unwrap_or_default();
    let dropped: Vec<usize> = dropped.split(',').filter_map(|number| number.parse().ok()).collect();
    let folder = tempfile::tempdir().expect("a folder");
    run(&Scenario::draw(seed).without(&dropped), folder.path())
        .unwrap_or_else(|why| panic!("{why}"));
}

fn process(seed: u64, dropped: &[usize]) -> Output {
    let dropped: Vec<String> = dropped.iter().map(usize::to_string).collect();
    Command::new("sh")
        .args(["-c", "ulimit -t $0; exec \"$@\"", SECONDS])
        .arg(env::current_exe().expect("this test"))
        .args(["--exact", "drawn_experiments_keep_every_invariant_and_leave_the_same_bytes_twice"])
        .args(["--nocapture"])
        .env(CHILD, seed.to_string())
        .env(DROPPED, dropped.join(","))
        .env("RUST_BACKTRACE", "0")
        .output()
        .expect("a shell")
}

/// Why a process failed, in a line.
fn failure(output: &Output) -> Option<String> {
    match output.status.code() {
        Some(0) => None,
        None => Some(format!("ended by a signal: takes all memory, or more than {SECONDS} s")),
        Some(_) => {
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            let lines: Vec<&str> = told
                .lines()
                .filter(|line| !line.is_empty() && !line.starts_with("note:"))
                .collect();
            Some(lines.iter().take(2).copied().collect::<Vec<_>>().join(" "))
        }
    }
}

/// The files of a failing seed, without every piece that it fails without, too.
fn simplified(seed: u64) -> String {
    let scenario = Scenario::draw(seed);
    let mut dropped = Vec::new();
    for piece in 0..scenario.pieces().len() {
        let fewer: Vec<usize> = dropped.iter().copied().chain([piece]).collect();
        if failure(&process(seed, &fewer)).is_some() {
            dropped = fewer;
        }
    }
    let simple = scenario.without(&dropped);
    let folder = env::temp_dir().join(format!("highorder-swarm-{seed}"));
    let kept = fs::create_dir_all(&folder).and_then(|()| simple.write(&folder));
    format!(
        "seed {seed}, as simple as it can be ({}):\n--- machine.toml\n{}\n--- experiment.toml\n{}",
        kept.map_or_else(|error| error.to_string(), |path| path.display().to_string()),
        simple.machine(),
        simple.experiment()
    )
}
