//! The recordings of real kernels, read, checked, packed and taken apart again.

use highorder_kernelfs::{Buddyinfo, TextFile};
use highorder_mm::types::{Migratetype, NR_PAGE_ORDERS, Order, Pfn, ZoneKind};
use highorder_snapshot::live::{self, Options, Way};
use highorder_snapshot::{Exactness, FrameUse, Snapshot};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The states of the recordings in `$HIGHORDER_RECORDINGS`, or else of ours.
fn states() -> Vec<PathBuf> {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/recordings");
    let root = std::env::var_os("HIGHORDER_RECORDINGS").map_or(ours, PathBuf::from);
    let mut states = Vec::new();
    for recording in fs::read_dir(&root).into_iter().flatten().flatten() {
        for state in ["state0", "state1"] {
            let path = recording.path().join(state);
            if path.is_dir() {
                states.push(path);
            }
        }
    }
    states.sort();
    assert!(!states.is_empty(), "no recordings in {}", root.display());
    states
}

fn read(state: &Path) -> Snapshot {
    Snapshot::read(state).unwrap_or_else(|error| panic!("{error}"))
}

fn blocks(snapshot: &Snapshot) -> BTreeSet<(Pfn, Order)> {
    snapshot.zones.iter().flat_map(|z| &z.free).map(|b| (b.pfn, b.order)).collect()
}

#[test]
fn a_recorded_state_agrees_with_its_own_text_files() {
    for state in states() {
        let snapshot = read(&state);
        assert_eq!(snapshot.exactness, Exactness::Lists);
        assert_eq!(snapshot.check(), Vec::<String>::new(), "{}", state.display());
        assert!(snapshot.vmemmap_base.is_some());
        assert!(snapshot.kernel_release.is_some());
        assert_eq!(snapshot.kpageflags.len() as u64, snapshot.nr_frames);
        assert_eq!(snapshot.pagecounts.len() as u64, snapshot.nr_frames);
    }
}

#[test]
fn a_recorded_state_survives_the_container_and_the_folder() {
    let directory = tempfile::tempdir().unwrap();
    for (i, state) in states().iter().enumerate() {
        let snapshot = read(state);
        let file = directory.path().join(format!("{i}.snapshot"));
        snapshot.write(&file).unwrap();
        assert_eq!(Snapshot::read(&file).unwrap(), snapshot);
        let folder = directory.path().join(format!("{i}"));
        snapshot.write_dir(&folder).unwrap();
        assert_eq!(Snapshot::read(&folder).unwrap(), snapshot);
        let recorded: u64 = fs::read_dir(state)
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum();
        let packed = fs::metadata(&file).unwrap().len();
        println!("{}: {recorded} bytes recorded, {packed} packed", state.display());
        assert!(packed < recorded, "{}: {packed} bytes, {recorded} recorded", state.display());
    }
}

/// A folder like `/proc` that holds what the recorded kernel's `/proc` held.
fn proc_of(state: &Path, snapshot: &Snapshot) -> tempfile::TempDir {
    let proc = tempfile::tempdir().unwrap();
    for (name, text) in &snapshot.files {
        fs::write(proc.path().join(name), text).unwrap();
    }
    let flags: Vec<u8> = snapshot.kpageflags.iter().flat_map(|f| f.to_le_bytes()).collect();
    fs::write(proc.path().join("kpageflags"), flags).unwrap();
    assert!(state.is_dir());
    proc
}

#[test]
fn free_blocks_found_by_page_flags_are_the_recorded_ones() {
    for state in states() {
        let lists = read(&state);
        let proc = proc_of(&state, &lists);
        let options = Options { way: Way::Frames, proc: proc.path().into(), ..Options::default() };
        let frames = live::take(options).unwrap();
        assert_eq!(frames.exactness, Exactness::Frames);
        assert_eq!(blocks(&frames), blocks(&lists), "{}", state.display());
        let same = frames
            .pageblocks
            .iter()
            .zip(&lists.pageblocks)
            .filter(|(a, b)| (a.pfn, a.migratetype) == (b.pfn, b.migratetype))
            .count();
        println!(
            "{}: {same} of {} pageblock types inferred right",
            state.display(),
            lists.pageblocks.len()
        );
        // What blocks hold says what they are, but for the few that are nearly empty.
        assert!(same * 100 >= lists.pageblocks.len() * 90, "{}", state.display());
    }
}

#[test]
fn a_counts_snapshot_places_exactly_the_blocks_that_buddyinfo_counts() {
    for state in states() {
        let lists = read(&state);
        let proc = proc_of(&state, &lists);
        let options = Options { way: Way::Counts, proc: proc.path().into(), ..Options::default() };
        let counts = live::take(options).unwrap();
        assert_eq!(counts.exactness, Exactness::Counts);
        assert!(blocks(&counts).is_empty());
        let placed = counts.placed();
        assert_eq!(placed, counts.placed());
        let table = Buddyinfo::parse("buddyinfo", &lists.files["buddyinfo"]).unwrap();
        for zone in &placed.zones {
            let row = table.zone(zone.node, zone.kind.name()).unwrap();
            assert_eq!(zone.nr_free()[..], row.counts[..NR_PAGE_ORDERS]);
        }
        assert!(placed.inferred.iter().any(|note| note.contains("made up")));
        let bytes = placed.to_bytes("placed").unwrap();
        assert_eq!(Snapshot::from_bytes(&bytes, "placed").unwrap(), placed);
    }
}

/// A map of counts drew no free block where they could not be read.
#[test]
fn counts_that_cannot_be_read_or_lack_a_zone_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let state = states().remove(0);
    let proc = proc_of(&state, &read(&state));
    let options = Options { way: Way::Counts, proc: proc.path().into(), ..Options::default() };
    live::take(options).unwrap().write_dir(folder.path()).unwrap();
    let path = folder.path().join("buddyinfo");
    let text = fs::read_to_string(&path).unwrap();
    for (altered, expected) in [
        (text.replacen("zone", "zome", 1), "buddyinfo:1"),
        (
            text.lines().skip(1).map(|line| format!("{line}\n")).collect(),
            "found no node 0 zone DMA",
        ),
    ] {
        fs::write(&path, altered).unwrap();
        let told = Snapshot::read(folder.path()).unwrap_err().to_string();
        assert!(told.contains(expected), "{told}");
    }
}

#[test]
fn every_frame_of_a_recording_has_a_use_and_mixed_pageblocks_hold_several() {
    for state in states() {
        let snapshot = read(&state);
        let uses = snapshot.frame_uses();
        assert_eq!(uses.len() as u64, snapshot.nr_frames);
        assert!(!uses.contains(&FrameUse::Unknown));
        let free = uses.iter().filter(|u| matches!(u, FrameUse::Free(_))).count() as u64;
        let counted: u64 = snapshot
            .zones
            .iter()
            .flat_map(|z| z.nr_free().into_iter().enumerate())
            .map(|(order, nr)| nr << order)
            .sum();
        assert_eq!(free, counted);
        let mixed = snapshot.mixed_pageblocks();
        for block in &mixed {
            let kinds = [block.nr_movable, block.nr_unmovable, block.nr_reclaimable];
            assert!(kinds.iter().filter(|&&nr| nr > 0).count() > 1);
        }
        println!("{}: {} of {} mixed", state.display(), mixed.len(), snapshot.pageblocks.len());
        assert!(snapshot.pageblocks.iter().any(|b| b.migratetype == Migratetype::Movable));
        assert_eq!(snapshot.zones[0].kind, ZoneKind::Dma);
    }
}

#[test]
fn the_running_machine_can_be_looked_at_by_whoever_runs_this() {
    match live::take(Options::default()) {
        Ok(snapshot) => {
            println!("{}: {:?}", snapshot.exactness, snapshot.inferred);
            let bytes = snapshot.to_bytes("live").unwrap();
            println!("{} frames in {} bytes", snapshot.nr_frames, bytes.len());
            assert_eq!(Snapshot::from_bytes(&bytes, "live").unwrap(), snapshot);
        }
        Err(error) => eprintln!("SKIPPED: {error}"),
    }
}
