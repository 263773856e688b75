//! Guests: what they leave, and how they fail.
//!
//! Needs what `tests/guest/setup.sh` gets; where something is missing the tests say SKIPPED and why.

use highorder_kernels::machine;
use highorder_real::testing::cache;
use highorder_real::{Image, Limits, VmError, VmSpec, vm};
use highorder_record::{Inputs, Record, Source};
use highorder_sim::Machine;
use highorder_sim::machine::SwapArea;
use highorder_system::Ns;
use highorder_workload::{Configured, Value, find};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// A small machine with one node or two and swap.
fn machine(nodes: usize, mib_each: u64, swap_mib: u64) -> Machine {
    let mut machine = machine::load("one-node-8g").unwrap();
    let mut node = machine.nodes[0].clone();
    node.memory_bytes = mib_each * MIB;
    machine.nodes = (0..nodes as u32)
        .map(|number| {
            let mut node = node.clone();
            node.cpus = number..number + 1;
            node.distances =
                (0..nodes as u32).map(|to| if to == number { 10 } else { 21 }).collect();
            node
        })
        .collect();
    let device = machine.swap[0].device;
    machine.swap = vec![SwapArea { device, offset_bytes: 0, bytes: swap_mib * MIB }];
    machine
}

fn workload(name: &str, values: &[(&str, Value)]) -> Configured {
    let values: BTreeMap<String, Value> =
        values.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    find(name, &values).unwrap()
}

/// A guest of Debian's kernel, if there are QEMU and kernel.
fn guest(release: &str, machine: Machine) -> Option<VmSpec> {
    let skipped = |why: &str| {
        eprintln!("SKIPPED: guest of Linux {release}: {why} (see tests/guest/setup.sh)");
        None
    };
    let qemu = Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status();
    if !qemu.is_ok_and(|status| status.success()) {
        return skipped("qemu-system-x86_64 does not run");
    }
    if !cache().join(release).join("vmlinuz").is_file() {
        return skipped(&format!("there is no {}/{release}/vmlinuz", cache().display()));
    }
    let mut spec = VmSpec::new(Image::Debian(release.to_owned()), machine).unwrap();
    spec.program = PathBuf::from(env!("CARGO_BIN_EXE_on-real"));
    spec.cache = cache();
    spec.sample_interval = Ns::from_millis(250);
    spec.limits = Limits::of(Ns::from_secs(400), spec.limits.memory_bytes);
    Some(spec)
}

fn kib(record: &Record, name: &str) -> u64 {
    record.before.meminfo[name]
}

#[test]
fn a_guest_of_linux_6_12_leaves_the_record_of_its_workload() {
    let Some(mut spec) = guest("6.12", machine(1, 512, 64)) else { return };
    let never = ("transparent_hugepage/enabled".to_owned(), "never".to_owned());
    spec.knobs = BTreeMap::from([never, ("vm.swappiness".to_owned(), "30".to_owned())]);
    let usemem = workload(
        "usemem",
        &[
            ("file", Value::Float(0.0)),
            ("memory", Value::Text("64 MiB".into())),
            ("passes", Value::Integer(2)),
        ],
    );
    let inputs = Inputs { experiment: "guest".into(), seed: 7, ..Inputs::default() };
    let record = vm::run(&spec, inputs.clone(), &usemem).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(record.inputs, Inputs { source: Source::Vm, ..inputs });
    let faults = record.delta("pgfault").unwrap();
    assert!((16384..40_000).contains(&faults), "64 MiB are 16384 pages: {faults}");
    assert!(record.metric("System-1").is_some(), "{:?}", record.metrics);
    assert!(record.held.is_some());
    assert!(record.timeline.len() >= 2);
    assert!((400_000..524_288).contains(&kib(&record, "MemTotal")), "{}", kib(&record, "MemTotal"));
    assert_eq!(kib(&record, "SwapTotal"), 64 * 1024 - 4);
    assert!(!record.after.zones[0].pageblocks.is_empty(), "root reads pagetypeinfo");
    assert!(record.notes[0].starts_with("Linux 6.12."), "{:?}", record.notes);
    assert_eq!(record.problems(), Vec::<String>::new());
}

#[test]
fn a_guest_of_linux_6_1_on_two_nodes_runs_out_of_memory_and_says_so() {
    let Some(mut spec) = guest("6.1", machine(2, 256, 32)) else { return };
    spec.knobs = BTreeMap::from([("transparent_hugepage/enabled".to_owned(), "never".to_owned())]);
    // What memory and swap together do not hold.
    let usemem = workload(
        "usemem",
        &[
            ("file", Value::Float(0.0)),
            ("memory", Value::Float(1.3)),
            ("passes", Value::Integer(1)),
        ],
    );
    let record = vm::run(&spec, Inputs::default(), &usemem).unwrap_or_else(|e| panic!("{e}"));
    assert!(record.notes[0].starts_with("Linux 6.1."), "{:?}", record.notes);
    assert!(record.metric("Killed-1").is_some(), "{:?}", record.metrics);
    assert_eq!(record.delta("oom_kill"), Some(1));
    assert!(record.delta("pswpout").unwrap() > 1000, "{:?}", record.delta("pswpout"));
    assert!(record.before.zones.iter().any(|zone| zone.node == 1), "two nodes");
}

#[test]
fn a_guest_that_counts_instructions_leaves_a_record_too() {
    let Some(mut spec) = guest("6.12", machine(1, 512, 32)) else { return };
    spec.icount = true;
    let demo = workload("mmap-demo", &[("memory", Value::Text("16 MiB".into()))]);
    let record = vm::run(&spec, Inputs::default(), &demo).unwrap_or_else(|e| panic!("{e}"));
    assert!(record.metric("Elapsd").is_some(), "{:?}", record.metrics);
}

#[test]
fn a_guest_has_a_disk_for_files() {
    for release in ["6.12", "6.1"] {
        let mut machine = machine(1, 256, 32);
        // 1 GiB is left for files.
        machine.disks[0].capacity_bytes = (1 << 30) + 32 * MIB;
        let Some(mut spec) = guest(release, machine) else { return };
        if vm::mkfs_version(&spec.mkfs).is_err() {
            return eprintln!("SKIPPED: mkfs.ext4 does not run (see tests/guest/setup.sh)");
        }
        let scratch = tempfile::tempdir().unwrap();
        spec.scratch = scratch.path().to_owned();
        let size = Value::Text("300 MiB".into());
        let record = vm::run(&spec, Inputs::default(), &workload("dd", &[("size", size)]));
        let record = record.unwrap_or_else(|error| panic!("{error}"));
        let kib = record.delta("pgpgout").unwrap();
        assert!(kib >= 300 * 1024, "300 MiB are written: {kib} KiB");
        // What was dropped is read from the disk; a page that somebody holds just then outlives it.
        let kib = record.delta("pgpgin").unwrap();
        assert!(kib >= 290 * 1024, "300 MiB are read: {kib} KiB");
        assert!(record.metric("Read").is_some(), "{:?}", record.metrics);
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);

        spec.mkfs = PathBuf::from("no-such-mkfs");
        let error = vm::run(&spec, Inputs::default(), &workload("dd", &[])).unwrap_err();
        let expected =
            "no disk for files: no-such-mkfs: no such program; Debian's package is e2fsprogs";
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn settings_of_a_real_kernel_are_as_before_however_a_run_ends() {
    for release in ["6.12", "6.1"] {
        let Some(spec) = guest(release, machine(1, 256, 32)) else { return };
        let files = vm::ask(&spec, "ends").unwrap_or_else(|error| panic!("{error}"));
        let [(_, said)] = &files[..] else { panic!("{} files", files.len()) };
        let said = String::from_utf8_lossy(said);
        let lines: Vec<&str> = said.lines().collect();
        let ends = [
            "end: code 0, no journal []",
            "refusal: code 2, no journal []",
            "panic: code 2, no journal []",
            "SIGINT: signal 2, no journal []",
            "SIGTERM: signal 15, no journal []",
            "SIGHUP: signal 1, no journal []",
            "SIGKILL: signal 9, no journal []",
        ];
        assert_eq!(lines[..ends.len()], ends, "{said}");
        // A crash leaves what it changed, and where that is told.
        let crash = lines[ends.len()];
        assert!(crash.starts_with("crash: a journal, "), "{said}");
        assert!(!crash.contains(" 0 settings"), "{said}");
        let restored = lines[ends.len() + 1];
        assert!(restored.starts_with("restore-knobs: no journal [], put back "), "{said}");
        for name in ["vm.swappiness", "vm.nr_hugepages", "vm.dirty_ratio", "lru_gen/enabled"] {
            assert!(restored.contains(name), "{name}: {said}");
        }
    }
}

/// A kernel under a name of its own, by which its QEMU is found.
fn named_image(spec: &mut VmSpec, folder: &Path) -> String {
    let Image::Debian(release) = &spec.image else { panic!("a guest of Debian's") };
    let path = folder.join("vmlinuz-of-this-test");
    fs::copy(cache().join(release).join("vmlinuz"), &path).unwrap();
    spec.image = Image::Path(path.clone());
    path.display().to_string()
}

/// Whether a process other than this has the word in its arguments.
fn is_there(word: &str, except: u32) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.filter(|p| p.file_name().to_str() != Some(&except.to_string())).any(|process| {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(word)
    })
}

#[test]
fn a_guest_that_panics_is_an_error_with_the_end_of_its_console() {
    // QEMU itself may be at fault where several CPUs are emulated at once: it is given two more chances then.
    for (nr_cpus, nr_boots) in [(1, 1), (2, 3)] {
        let Some(mut spec) = guest("6.12", machine(nr_cpus, 256, 32)) else { return };
        let folder = tempfile::tempdir().unwrap();
        let (boots, qemu) = (folder.path().join("boots"), folder.path().join("qemu"));
        let script = format!(
            "#!/bin/sh\necho boot >> {}\nexec {} \"$@\"\n",
            boots.display(),
            spec.qemu.display()
        );
        fs::write(&qemu, script).unwrap();
        fs::set_permissions(&qemu, fs::Permissions::from_mode(0o755)).unwrap();
        spec.qemu = qemu;
        // Process 1 may not end.
        spec.program = PathBuf::from("/bin/true");
        let error = vm::run(&spec, Inputs::default(), &workload("usemem", &[])).unwrap_err();
        assert!(matches!(error, VmError::Panicked { .. }), "{error}");
        assert!(error.to_string().contains("Attempted to kill init"), "{error}");
        assert_eq!(fs::read_to_string(&boots).unwrap().lines().count(), nr_boots);
    }
}

#[test]
fn a_guest_that_hangs_is_ended_and_nothing_is_left() {
    let Some(mut spec) = guest("6.12", machine(1, 256, 32)) else { return };
    let (folder, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let name = named_image(&mut spec, folder.path());
    spec.scratch = scratch.path().to_owned();
    // Reads from the console, where nothing ever comes.
    spec.program = PathBuf::from("/bin/cat");
    spec.limits.boot = Ns::from_secs(12);
    let error = vm::run(&spec, Inputs::default(), &workload("usemem", &[])).unwrap_err();
    assert!(matches!(error, VmError::NotUp { times: 3, .. }), "{error}");
    // What it did last is shown.
    assert!(error.to_string().contains("\n[ "), "{error}");
    assert!(!is_there(&name, std::process::id()));
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[test]
fn a_workload_that_does_not_end_is_ended_with_its_guest() {
    let Some(mut spec) = guest("6.12", machine(1, 256, 32)) else { return };
    let scratch = tempfile::tempdir().unwrap();
    spec.scratch = scratch.path().to_owned();
    spec.limits = Limits::of(Ns::from_secs(80), spec.limits.memory_bytes);
    let long = workload(
        "usemem",
        &[
            ("file", Value::Float(0.0)),
            ("memory", Value::Text("64 MiB".into())),
            ("passes", Value::Integer(1_000_000)),
        ],
    );
    let error = vm::run(&spec, Inputs::default(), &long).unwrap_err();
    assert!(matches!(error, VmError::TimedOut { .. }), "{error}");
    assert!(error.to_string().contains("highorder: running usemem"), "{error}");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[test]
fn a_workload_that_the_guest_refuses_is_an_error_in_its_words() {
    let Some(mut spec) = guest("6.12", machine(1, 256, 32)) else { return };
    spec.knobs = BTreeMap::from([("vm.no_such_knob".to_owned(), "1".to_owned())]);
    let error = vm::run(&spec, Inputs::default(), &workload("usemem", &[])).unwrap_err();
    assert!(matches!(error, VmError::Guest(_)), "{error}");
    assert!(error.to_string().contains("vm.no_such_knob"), "{error}");
}

#[test]
fn guests_that_cannot_be_are_refused_before_they_are_tried() {
    let usemem = workload("usemem", &[]);
    let folder = tempfile::tempdir().unwrap();
    let no_kernel = folder.path().join("image");
    fs::write(&no_kernel, "not a kernel").unwrap();
    let spec = VmSpec::new(Image::Path(no_kernel), machine(1, 256, 32)).unwrap();
    let error = vm::run(&spec, Inputs::default(), &usemem).unwrap_err();
    assert!(matches!(error, VmError::NotAKernel { .. }), "{error}");

    let Some(small) = guest("6.12", machine(1, 64, 32)) else { return };
    let error = vm::run(&small, Inputs::default(), &usemem).unwrap_err();
    assert!(matches!(error, VmError::SmallGuest { mib: 64, .. }), "{error}");

    let Some(mut large) = guest("6.12", machine(1, 3 << 20, 32)) else { return };
    let error = vm::run(&large, Inputs::default(), &usemem).unwrap_err();
    assert!(matches!(error, VmError::NoMemory { .. }), "{error}");

    large.machine = machine(1, 256, 32);
    large.program = PathBuf::from("/etc/passwd");
    let error = vm::run(&large, Inputs::default(), &usemem).unwrap_err();
    assert!(matches!(error, VmError::Program { .. }), "{error}");
}

#[test]
fn without_qemu_the_error_names_the_package() {
    let Some(spec) = guest("6.12", machine(1, 256, 32)) else { return };
    let folder = tempfile::tempdir().unwrap();
    let output = on_real(&spec, folder.path()).env("PATH", "").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("qemu-system-x86_64: no such program"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

/// The program that runs a long workload in a guest; its machine file is put into the folder.
fn on_real(spec: &VmSpec, folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_on-real"));
    let image = match &spec.image {
        Image::Path(path) => path.display().to_string(),
        Image::Debian(release) => format!("debian:{release}"),
    };
    // The built-in machine, smaller.
    let built_in = highorder_kernels::machine::BUILT_IN.iter();
    let (_, whole) = built_in.copied().find(|(name, _)| *name == "one-node-8g").expect("built in");
    let text = whole.replace("memory_mib = 8192", "memory_mib = 256");
    let file = folder.join("small.toml");
    fs::write(&file, text.replace("size_mib = 8192", "size_mib = 32")).unwrap();
    command.args(["vm", &image]).arg(file).args(["usemem", "file=0.0", "passes=1000000"]);
    command.env("HIGHORDER_CACHE", cache()).stdin(Stdio::null());
    command
}

#[test]
fn a_guest_ends_with_the_program_whatever_ends_that() {
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let Some(mut spec) = guest("6.12", machine(1, 256, 32)) else { return };
        let folder = tempfile::tempdir().unwrap();
        let name = named_image(&mut spec, folder.path());
        let mut child = on_real(&spec, folder.path()).spawn().unwrap();
        wait_until("QEMU runs", || is_there(&name, child.id()));
        std::thread::sleep(Duration::from_secs(1));
        send(child.id(), signal);
        // Where SIGINT is ignored, as in a shell's background, it ends with an exit code instead.
        let status = child.wait().unwrap();
        assert!(status.signal() == Some(signal) || !status.success(), "{status}");
        wait_until("QEMU is gone", || !is_there(&name, 0));
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..200 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("10 s passed, and not: {what}");
}

#[allow(unsafe_code, reason = "the signals that people send")]
fn send(pid: u32, signal: i32) {
    // SAFETY: to a child that has not been waited for.
    unsafe { libc::kill(pid as i32, signal) };
}
