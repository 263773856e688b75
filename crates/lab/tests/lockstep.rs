//! Replays in lockstep of the recordings that the project ships.

use highorder_lab::lockstep::{self, Choice, Report};
use highorder_lab::{KernelFile, Recording};
use std::path::Path;

fn recording(name: &str) -> Recording {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/recordings").join(name);
    Recording::read(folder).expect("a shipped recording")
}

fn replay(recording: &Recording, kernel: &str) -> Report {
    let kernel = KernelFile::load(kernel).expect("a built-in kernel");
    lockstep::replay(recording, &kernel, &mut |_| ()).expect("a replay")
}

fn share(report: &Report, choice: Choice) -> f64 {
    report.tally(choice).share().expect("the recording has such choices")
}

/// What both recordings reach: whatever they show of these choices is foreseen, compaction's searches
/// and the lists they turn included, and all free blocks stand where they stood at the end.
fn agrees_with_the_kernel(name: &str) {
    let report = replay(&recording(name), "linux-6.12");
    let foreseen = [
        Choice::Take,
        Choice::Fallback,
        Choice::PcpTake,
        Choice::Drain,
        Choice::RefillSize,
        Choice::FastSearch,
        Choice::MigrateSearch,
    ];
    for choice in foreseen {
        let tally = report.tally(choice);
        assert!(tally.asked > 0 && tally.agreed == tally.asked, "{choice:?}: {tally:?}");
    }
    assert_eq!(report.inferred.rotations, 0);
    let end = report.end.expect("the end is recorded");
    assert_eq!(end.on_same_list, end.free_blocks, "{end:?}");
    assert_eq!(end.in_same_order, end.free_blocks, "{end:?}");
    assert_eq!(end.with_same_skip_hint, end.pageblocks, "{end:?}");
}

#[test]
fn on_one_node_the_model_chooses_as_the_kernel_did() {
    agrees_with_the_kernel("612-rec-churn");
}

#[test]
fn on_two_nodes_the_model_chooses_as_the_kernel_did() {
    agrees_with_the_kernel("612-rec-fragslab");
}

#[test]
fn under_another_kernels_rules_it_chooses_otherwise() {
    let recording = recording("612-rec-fragslab");
    let (own, other) = (replay(&recording, "linux-6.12"), replay(&recording, "linux-6.1"));
    for choice in [Choice::Drain, Choice::RefillSize, Choice::DrainSize] {
        assert!(share(&other, choice) < share(&own, choice), "{choice:?}");
    }
    assert!(!other.disagreements.is_empty());
}

#[test]
fn a_replay_is_the_same_every_time() {
    let recording = recording("612-rec-churn");
    let [first, second] = [0, 1].map(|_| format!("{:?}", replay(&recording, "linux-6.12")));
    assert_eq!(first, second);
}
