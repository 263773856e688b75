//! Recordings of real kernels: boots Debian's 6.1 and 6.12 under QEMU (software emulation only), records there as
//! `highorder record` does, and replays what was recorded.
//!
//! Needs what `tests/guest/setup.sh` gets; where something is missing the tests say SKIPPED and why.

use highorder_kernels::{KernelFile, machine};
use highorder_lab::lockstep::{self, Choice};
use highorder_lab::{Recording, free_running};
use highorder_real::{Image, Limits, VmSpec, vm};
use highorder_sim::{Machine, Ns};
use highorder_snapshot::{Exactness, RecordingFiles, Snapshot};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The program alone is 60 MiB of it where it has what debuggers want.
const MEMORY_BYTES: u64 = 768 << 20;
/// A guest that takes longer than this hangs; emulated on a busy machine it takes more than seven minutes.
const GUEST_SECONDS_MAX: u64 = 1800;

fn cache() -> PathBuf {
    std::env::var_os("HIGHORDER_CACHE")
        .map_or_else(|| PathBuf::from("/tmp/highorder-cache"), PathBuf::from)
}

/// What a guest sent; nothing, and why, where there can be none.
fn guest(kernel: &str) -> Option<BTreeMap<String, Vec<u8>>> {
    let skipped = |why: String| {
        eprintln!("SKIPPED: {kernel}: {why} (see tests/guest/setup.sh)");
        None
    };
    let qemu = Command::new(vm::QEMU).arg("--version").stdout(Stdio::null()).status();
    if !qemu.is_ok_and(|status| status.success()) {
        return skipped(format!("{} does not run", vm::QEMU));
    }
    if !cache().join(kernel).join("vmlinuz").is_file() {
        return skipped(format!("there is no {}/{kernel}/vmlinuz", cache().display()));
    }
    // Tests lie in `deps`, beside `examples`.
    let test = std::env::current_exe().expect("this test");
    let folder = test.parent().and_then(Path::parent).expect("a test lies in a folder of cargo's");
    let program = folder.join("examples/guest_recorder");
    if !program.is_file() {
        return skipped(format!("there is no {}", program.display()));
    }
    let image = Image::Debian(kernel.to_owned());
    let mut spec = VmSpec::new(image, small()).expect("a guest");
    spec.program = program;
    spec.cache = cache();
    spec.options = "mitigations=off nokaslr".to_owned();
    spec.limits = Limits::of(Ns::from_secs(GUEST_SECONDS_MAX), spec.limits.memory_bytes);
    let sent = vm::ask(&spec, "record").unwrap_or_else(|error| panic!("{kernel}: {error}"));
    Some(sent.into_iter().collect())
}

/// One node of two CPUs, without swap.
fn small() -> Machine {
    let mut machine = machine::load("guest-tcg").expect("a machine");
    machine.nodes.truncate(1);
    machine.nodes[0].memory_bytes = MEMORY_BYTES;
    machine.nodes[0].cpus = 0..2;
    machine.swap.clear();
    machine
}

fn is_replayed_as_recorded(kernel: &str) {
    let Some(sent) = guest(kernel) else { return };
    let removed = String::from_utf8_lossy(&sent["removed"]).into_owned();
    assert!(removed.contains("tracefs instance highorder-"), "{removed}");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("now.recording");
    fs::write(&path, &sent["recording"]).expect("a file");
    if let Some(folder) = std::env::var_os("HIGHORDER_KEEP") {
        let kept = Path::new(&folder).join(format!("{kernel}.recording"));
        fs::write(kept, &sent["recording"]).expect("a file");
    }

    let recording = Recording::read(&path).unwrap_or_else(|e| panic!("{e}"));
    println!("{kernel}: {} events, notes {:#?}", recording.events.len(), recording.notes);
    assert_eq!((recording.nr_lost, recording.cut_line), (0, None));
    assert_eq!(recording.before.exactness, Exactness::Lists);
    assert!(recording.after.is_some());
    assert_eq!(Snapshot::read(path.join("state0")).expect("a state"), recording.before);
    assert!(recording.events.len() > 10_000, "{}", recording.events.len());
    let files = RecordingFiles::open(&path).expect("a recording");
    let case = files.case().expect("case.json");
    assert_eq!(case["events_lost"], 0);
    let timeline = files.file("timeline").expect("it reads").expect("it is there");
    let timeline = String::from_utf8(timeline).expect("text");
    assert!(timeline.lines().filter(|line| line.starts_with("T ")).count() >= 4);
    let settings = files.file("settings").expect("it reads").expect("it is there");
    assert!(String::from_utf8_lossy(&settings).contains("/proc/sys/vm/swappiness 60"));
    let mut trace = String::new();
    std::io::Read::read_to_string(&mut files.trace().expect("a trace"), &mut trace).expect("text");
    assert!(!trace.contains("init-") && trace.contains("<...>-"), "names of processes are out");

    let release = recording.before.kernel_release.clone().expect("a release");
    let kernel_file = KernelFile::for_release(&release).expect("a kernel file");
    let report = lockstep::replay(&recording, &kernel_file, &mut |_| ()).expect("a replay");
    for choice in Choice::ALL {
        let tally = report.tally(choice);
        println!("{kernel} {}: {} of {}", choice.label(), tally.agreed, tally.asked);
    }
    println!("{kernel}: {:?}", report.end);
    for choice in [Choice::Take, Choice::PcpTake] {
        let tally = report.tally(choice);
        let share = tally.share().expect("the recording has such choices");
        assert!(share > 0.99, "{choice:?}: {tally:?}");
    }
    let free = free_running::replay(&recording, &kernel_file, &[&kernel_file], &mut |_| ());
    let free = free.expect("a free-running replay");
    let same = free.models[0].same_use(&free.recorded);
    println!("{kernel}: free-running, same use {same:?}");
}

#[test]
fn linux_6_1_is_recorded_and_replayed_and_tracefs_is_as_before() {
    is_replayed_as_recorded("6.1");
}

#[test]
fn linux_6_12_is_recorded_and_replayed_and_tracefs_is_as_before() {
    is_replayed_as_recorded("6.12");
}
