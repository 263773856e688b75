//! Machines that snapshots describe: those there can be are restored, the others refused.

use highorder_kernels::KernelFile;
use highorder_lab::Recording;
use highorder_lab::machine::{machine_of, restore};
use highorder_mm::types::NodeId;
use highorder_mm::zone::ZoneId;
use highorder_snapshot::{PcpState, Snapshot};
use std::path::Path;

const RECORDINGS: [&str; 2] = ["612-rec-churn", "612-rec-fragslab"];

fn recording(name: &str) -> Recording {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/recordings").join(name);
    Recording::read(folder).expect("a shipped recording")
}

/// What is said of the snapshot of a machine of two nodes once `change` has been at it.
#[track_caller]
fn refused(change: impl FnOnce(&mut Snapshot), expected: &str) {
    let mut snapshot = recording("612-rec-fragslab").before;
    assert!(machine_of(&snapshot, &[NodeId(0), NodeId(1)]).is_ok());
    change(&mut snapshot);
    let kernel = KernelFile::load("linux-6.12").expect("a built-in kernel");
    let error =
        restore(&snapshot, &kernel, &[NodeId(0), NodeId(1)]).err().expect("no such machine");
    assert_eq!(error.to_string(), expected);
}

/// Census and `managed_pages` are two accounts of the same: of lists and flags, and of the kernel itself.
#[test]
fn in_a_state_with_every_list_the_allocator_has_all_managed_pages_and_no_other() {
    for name in RECORDINGS {
        let recording = recording(name);
        for state in recording.after.iter().chain([&recording.before]) {
            for kernel in ["linux-6.12", "linux-6.1"] {
                let kernel = KernelFile::load(kernel).expect("a built-in kernel");
                let memory = restore(state, &kernel, &recording.cpu_nodes()).expect("a machine");
                assert_eq!(memory.validate(), Ok(()));
                for (i, zone) in memory.zones.iter().enumerate() {
                    let census = memory.census(ZoneId(i as u8)).expect("blocks tile memory");
                    let in_blocks = census.free + census.pcp + census.isolated + census.allocated;
                    assert_eq!(in_blocks, zone.managed_pages, "{name}: {}", zone.kind);
                }
            }
        }
    }
}

#[test]
fn a_snapshot_of_more_cpus_or_nodes_than_there_is_room_for_is_refused() {
    let pcp = |cpu| PcpState { cpu, ..PcpState::default() };
    refused(|s| s.zones[0].pcp.push(pcp(256)), "the machine has 257 CPUs, expected 1 to 256");
    refused(
        |s| s.zones[0].pcp.push(pcp(u32::MAX)),
        "the machine has 4294967296 CPUs, expected 1 to 256",
    );
    refused(|s| s.zones[2].node = u32::MAX, "the machine has 4294967296 nodes, expected 1 to 64");
}

#[test]
fn a_snapshot_without_memory_is_refused() {
    let expected = "the machine has no zone with memory, expected 1 to 254";
    refused(|s| s.zones.clear(), expected);
    refused(|s| s.zones.iter_mut().for_each(|zone| zone.present_pages = 0), expected);
}

#[test]
fn a_cpu_on_a_node_that_the_snapshot_has_not_is_refused() {
    let snapshot = recording("612-rec-churn").before;
    let error = machine_of(&snapshot, &[NodeId(0), NodeId(1)]).expect_err("there is one node");
    assert_eq!(error.to_string(), "CPU 1 is on node 1, expected one of the 1 from 0 on");
}

#[test]
fn zones_of_a_snapshot_that_overlap_or_leave_the_machine_are_refused() {
    refused(
        |s| s.zones[2].start_pfn -= 1,
        "node 0 zone DMA32 and node 1 zone DMA32 both have 0xffff, expected zones that do not overlap",
    );
    refused(
        |s| s.nr_frames = 131_027,
        "the machine has 131027 frames, expected at least 131028 for node 1 zone DMA32",
    );
    refused(
        |s| s.zones.swap(0, 1),
        "node 0 zone DMA comes after DMA32, expected each zone once in the order DMA, DMA32, Normal, \
         Movable",
    );
}

#[test]
fn zones_of_a_snapshot_that_hold_more_than_they_span_are_refused() {
    refused(
        |s| s.zones[0].present_pages = 4096,
        "node 0 zone DMA has 4096 present pages, expected at most the 4095 that it spans",
    );
    refused(
        |s| s.zones[0].managed_pages = 3999,
        "node 0 zone DMA has 3999 managed pages, expected at most the 3998 that are present",
    );
}
