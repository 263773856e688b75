//! What `what-if` says of a recording, held against what a real kernel then does under the same settings.
//!
//! A guest fills and fragments its memory, sets a knob and is recorded for half a minute, once for each setting; each
//! recording's own trace tells how long tasks waited and how many areas got a huge page. The first one is also asked
//! what it would have done under each of the others. Some three minutes a guest: ignored unless asked for,
//!
//! ```text
//! cargo test --release -p highorder-recorder --test what_if_guest -- --ignored --nocapture
//! ```
//!
//! `HIGHORDER_KEEP=DIR` keeps the recordings, and takes those that are there.

mod common;

use highorder_kernels::KernelFile;
use highorder_lab::Recording;
use highorder_lab::what_if::{Knobs, MACHINE, Recorded, measure, median_error, recorded_settings};
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

const KERNEL: &str = "6.12";
const MEMORY_BYTES: u64 = 1 << 30;
const SEEDS: u64 = 5;

fn recording(folder: &Path, knobs: &str) -> Option<PathBuf> {
    let path = folder.join(format!("{}.recording", knobs.replace('/', "-")));
    if path.is_file() {
        return Some(path);
    }
    let mut sent = common::ask(KERNEL, MEMORY_BYTES, true, &format!("demand {knobs}"))?;
    let bytes = sent.remove("recording").expect("a recording");
    fs::write(&path, bytes).expect("a file");
    Some(path)
}

fn asked(path: &Path) -> Recorded {
    let recording = Recording::read(path).unwrap_or_else(|e| panic!("{e}"));
    let release = recording.before.kernel_release.clone().expect("a release");
    let kernel = KernelFile::for_release(&release).expect("a kernel file");
    let settings = recorded_settings(path).expect("settings");
    Recorded::new(recording, settings.as_ref(), kernel, MACHINE).expect("a machine")
}

/// Whether the predicted order of two figures is the real one; `None` where the real ones are within a tenth of each
/// other, or both next to nothing.
fn same_order(real: [f64; 2], predicted: [f64; 2], little: f64) -> Option<bool> {
    let differ = (real[0] - real[1]).abs() > (0.1 * real[0].max(real[1])).max(little);
    differ.then(|| (real[0] < real[1]) == (predicted[0] < predicted[1]))
}

/// Of pairs that really differ, how many are predicted in their order, by stall time and by share of huge pages.
fn holds(settings: &[&str]) -> [(usize, usize); 2] {
    let kept = tempfile::tempdir().expect("a folder");
    let folder =
        std::env::var_os("HIGHORDER_KEEP").map_or_else(|| kept.path().to_owned(), PathBuf::from);
    let mut recorded = Vec::new();
    for knobs in settings {
        let Some(path) = recording(&folder, knobs) else { return [(0, 0); 2] };
        recorded.push(asked(&path));
    }
    let first = &recorded[0];
    let proposed: Vec<Knobs> = settings
        .iter()
        .map(|knobs| {
            let pairs = knobs.split(',').filter_map(|knob| knob.split_once('='));
            pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        })
        .collect();
    let two = NonZeroUsize::new(2).expect("two");
    let answers = first.ask(&proposed, SEEDS, 1, two, &|| ()).unwrap_or_else(|e| panic!("{e}"));
    let own = |recorded: &Recorded| {
        let present = recorded.ask(&[Knobs::new()], SEEDS, 1, two, &|| ()).expect("runs");
        median_error(&recorded.agreement(&present[0])).unwrap_or(f64::NAN)
    };
    println!("asked: the recording under {}", settings[0]);
    println!(
        "setting | waited, s: real, predicted | huge share: real, predicted | credibility of its own"
    );
    let mut rows = Vec::new();
    for ((knobs, recorded), answer) in settings.iter().zip(&recorded).zip(&answers) {
        let told = &recorded.wanted().told;
        let waited = told.stalled.0 as f64 / 1e9;
        let share = 100.0 * told.huge_served as f64 / (told.huge_asked as f64).max(1.0);
        let [stall, ..] = measure("Time in stalls").of(answer).unwrap_or_default();
        let [huge, ..] = measure("Areas with a huge page").of(answer).unwrap_or_default();
        let error = 100.0 * own(recorded);
        println!(
            "{knobs} | {waited:.3} {stall:.3} | {share:.1} % of {}, {huge:.1} % | {error:.0} %",
            told.huge_asked
        );
        rows.push(([waited, stall], [share, huge]));
    }
    let mut counts = [(0, 0); 2];
    for (at, a) in rows.iter().enumerate() {
        for b in &rows[at + 1..] {
            let pairs = [
                same_order([a.0[0], b.0[0]], [a.0[1], b.0[1]], 0.01),
                same_order([a.1[0], b.1[0]], [a.1[1], b.1[1]], 1.0),
            ];
            for (count, pair) in counts.iter_mut().zip(pairs) {
                count.0 += usize::from(pair == Some(true));
                count.1 += usize::from(pair.is_some());
            }
        }
    }
    println!("in the real order: waits {:?}, shares {:?}", counts[0], counts[1]);
    counts
}

/// Nearly all pairs.
fn all_but_a_tenth(counts: [(usize, usize); 2]) {
    for (right, pairs) in counts {
        assert!(10 * right >= 9 * pairs, "{right} of {pairs}");
    }
}

#[test]
#[ignore = "boots five guests, three minutes each"]
fn five_ways_to_defrag_come_in_their_real_order() {
    let values = ["always", "defer", "defer+madvise", "madvise", "never"];
    let settings = values.map(|value| format!("transparent_hugepage/defrag={value}"));
    all_but_a_tenth(holds(&settings.each_ref().map(String::as_str)));
}

#[test]
#[ignore = "boots three guests, three minutes each"]
fn proactive_compaction_comes_in_its_real_order() {
    let settings = ["20", "0", "80"].map(|value| {
        format!("transparent_hugepage/defrag=always,vm.compaction_proactiveness={value}")
    });
    all_but_a_tenth(holds(&settings.each_ref().map(String::as_str)));
}

#[test]
#[ignore = "boots two guests, three minutes each"]
fn a_watermark_boost_comes_in_its_real_order() {
    let settings = ["15000", "0"].map(|value| {
        format!("transparent_hugepage/defrag=always,vm.watermark_boost_factor={value}")
    });
    all_but_a_tenth(holds(&settings.each_ref().map(String::as_str)));
}
