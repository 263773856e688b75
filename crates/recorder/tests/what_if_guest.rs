//! What `what-if` says of a recording, held against what a real kernel then does under the same settings.
//!
//! A guest fills and fragments its memory, sets a knob and is recorded for half a minute, [`GUESTS`] times for each
//! setting; each recording's own trace tells how long tasks waited and how many areas got a huge page. Those of the first
//! setting are also asked what they would have done under each of the others. Some three minutes a guest: ignored unless
//! asked for, on a machine that does nothing else,
//!
//! ```text
//! cargo test --release -p highorder-recorder --test what_if_guest -- --ignored --nocapture --test-threads 1
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
/// Guests for each setting: chance moves what one of them waits by a third.
const GUESTS: usize = 3;

/// Takes a recording under these settings in a new guest; `number` tells it from others under the same ones.
fn recording(folder: &Path, knobs: &str, number: usize) -> Option<PathBuf> {
    let path = folder.join(format!("{}.{number}.recording", knobs.replace('/', "-")));
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

/// One figure of each guest under the same settings.
struct Figures(Vec<f64>);

impl Figures {
    fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    /// The square of the mean's standard error; 0 of a single guest.
    fn error_squared(&self) -> f64 {
        let (nr, mean) = (self.0.len() as f64, self.mean());
        let squares: f64 = self.0.iter().map(|figure| (figure - mean).powi(2)).sum();
        if self.0.len() < 2 { 0.0 } else { squares / (nr - 1.0) / nr }
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all: Vec<String> = self.0.iter().map(|figure| format!("{figure:.2}")).collect();
        write!(f, "{:.2} ({})", self.mean(), all.join(", "))
    }
}

/// Whether the predicted order of two settings is the real one; `None` where the real means are within a tenth of each
/// other, within twice the standard error of their difference, or both next to nothing.
fn same_order(real: [&Figures; 2], predicted: [&Figures; 2], little: f64) -> Option<bool> {
    let [a, b] = real.map(Figures::mean);
    let error = real.map(Figures::error_squared).iter().sum::<f64>().sqrt();
    let differ = (a - b).abs() > (0.1 * a.max(b)).max(2.0 * error).max(little);
    differ.then(|| (a < b) == (predicted[0].mean() < predicted[1].mean()))
}

/// What a setting did and was predicted to do: seconds of waiting, and percent of the areas that wanted a huge page.
struct Row {
    waited: Figures,
    waited_predicted: Figures,
    share: Figures,
    share_predicted: Figures,
}

/// Of pairs that really differ, how many are predicted in their order, by stall time and by share of huge pages.
fn holds(settings: &[&str]) -> [(usize, usize); 2] {
    let kept = tempfile::tempdir().expect("a folder");
    let folder =
        std::env::var_os("HIGHORDER_KEEP").map_or_else(|| kept.path().to_owned(), PathBuf::from);
    let mut recorded: Vec<Vec<Recorded>> = settings.iter().map(|_| Vec::new()).collect();
    // One of each in turn, so that what changes on this machine meanwhile meets them all.
    for number in 1..=GUESTS {
        for (knobs, recorded) in settings.iter().zip(&mut recorded) {
            eprintln!("guest {number} of {GUESTS}: {knobs}");
            let Some(path) = recording(&folder, knobs, number) else { return [(0, 0); 2] };
            recorded.push(asked(&path));
        }
    }
    let proposed: Vec<Knobs> = settings
        .iter()
        .map(|knobs| {
            let pairs = knobs.split(',').filter_map(|knob| knob.split_once('='));
            pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        })
        .collect();
    let two = NonZeroUsize::new(2).expect("two");
    let ask = |recorded: &Recorded, proposed: &[Knobs]| {
        recorded.ask(proposed, SEEDS, 1, two, &|| ()).unwrap_or_else(|e| panic!("{e}"))
    };
    let answers: Vec<_> = recorded[0].iter().map(|first| ask(first, &proposed)).collect();
    println!("asked: {GUESTS} recordings under {}", settings[0]);
    println!("waited in s and huge share in %: mean (each guest); and credibility of its own");
    let mut rows = Vec::new();
    for (at, (knobs, recorded)) in settings.iter().zip(&recorded).enumerate() {
        let told = || recorded.iter().map(|recorded| &recorded.wanted().told);
        let predicted = |name| {
            let of = |answers: &Vec<_>| measure(name).of(&answers[at]).unwrap_or_default()[0];
            Figures(answers.iter().map(of).collect())
        };
        let own = |recorded: &Recorded| {
            let present = ask(recorded, &[Knobs::new()]);
            100.0 * median_error(&recorded.agreement(&present[0])).unwrap_or(f64::NAN)
        };
        let row = Row {
            waited: Figures(told().map(|told| told.stalled.0 as f64 / 1e9).collect()),
            waited_predicted: predicted("Time in stalls"),
            share: Figures(
                told()
                    .map(|told| 100.0 * told.huge_served as f64 / (told.huge_asked as f64).max(1.0))
                    .collect(),
            ),
            share_predicted: predicted("Areas with a huge page"),
        };
        println!("{knobs}");
        println!("  waited: real {}, predicted {}", row.waited, row.waited_predicted);
        println!("  share: real {}, predicted {}", row.share, row.share_predicted);
        println!("  credibility, %: {}", Figures(recorded.iter().map(own).collect()));
        rows.push(row);
    }
    let mut counts = [(0, 0); 2];
    for (at, a) in rows.iter().enumerate() {
        for b in &rows[at + 1..] {
            let predicted = [
                [&a.waited_predicted, &b.waited_predicted],
                [&a.share_predicted, &b.share_predicted],
            ];
            let pairs = [
                same_order([&a.waited, &b.waited], predicted[0], 0.01),
                same_order([&a.share, &b.share], predicted[1], 1.0),
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
#[ignore = "boots fifteen guests, three minutes each"]
fn five_ways_to_defrag_come_in_their_real_order() {
    let values = ["always", "defer", "defer+madvise", "madvise", "never"];
    let settings = values.map(|value| format!("transparent_hugepage/defrag={value}"));
    all_but_a_tenth(holds(&settings.each_ref().map(String::as_str)));
}

#[test]
#[ignore = "boots nine guests, three minutes each"]
fn proactive_compaction_comes_in_its_real_order() {
    let settings = ["20", "0", "80"].map(|value| {
        format!("transparent_hugepage/defrag=always,vm.compaction_proactiveness={value}")
    });
    all_but_a_tenth(holds(&settings.each_ref().map(String::as_str)));
}

#[test]
#[ignore = "boots six guests, three minutes each"]
fn a_watermark_boost_comes_in_its_real_order() {
    let settings = ["15000", "0"].map(|value| {
        format!("transparent_hugepage/defrag=always,vm.watermark_boost_factor={value}")
    });
    all_but_a_tenth(holds(&settings.each_ref().map(String::as_str)));
}
