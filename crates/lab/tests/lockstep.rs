//! Replays in lockstep of the recordings that the project ships.

use highorder_lab::lockstep::{self, Choice, Report};
use highorder_lab::{Kernel, Recording};
use std::path::Path;

fn recording(name: &str) -> Recording {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/recordings").join(name);
    Recording::read(folder).expect("a shipped recording")
}

fn replay(recording: &Recording, kernel: &str) -> Report {
    let kernel = Kernel::load(kernel).expect("a built-in kernel");
    lockstep::replay(recording, &kernel, &mut |_| ()).expect("a replay")
}

fn share(report: &Report, choice: Choice) -> f64 {
    report.tally(choice).share().expect("the recording has such choices")
}

/// Shares that both recordings reach. What is missing of the taken blocks is the lists that compaction's
/// search turned, each of which is missed once.
fn agrees_with_the_kernel(name: &str, least_taken: f64) {
    let report = replay(&recording(name), "linux-6.12");
    assert!(share(&report, Choice::Take) >= least_taken, "{:?}", report.tally(Choice::Take));
    for choice in [Choice::Fallback, Choice::PcpTake, Choice::Drain, Choice::RefillSize] {
        assert!(share(&report, choice) >= 0.999, "{choice:?}: {:?}", report.tally(choice));
    }
    let end = report.end.expect("the end is recorded");
    assert!(end.on_same_list * 1000 >= end.free_blocks * 999, "{end:?}");
    assert!(end.in_same_order * 100 >= end.free_blocks * 99, "{end:?}");
}

#[test]
fn on_one_node_the_model_chooses_as_the_kernel_did() {
    agrees_with_the_kernel("612-rec-churn", 0.998);
}

#[test]
fn on_two_nodes_the_model_chooses_as_the_kernel_did() {
    agrees_with_the_kernel("612-rec-fragslab", 0.999);
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
