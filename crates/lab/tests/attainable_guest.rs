//! What is attainable in a real kernel's memory: boots Debian's 6.1 and 6.12 under QEMU, brings memory into states of
//! many kinds, and compares the model's compaction of each with the huge pages that the kernel gave when asked for as many
//! as there can be.
//!
//! Needs what `tests/guest/setup.sh` gets; where something is missing the tests say SKIPPED and why.

use highorder_kernels::machine;
use highorder_real::{Image, Limits, VmSpec, vm};
use highorder_sim::Machine;
use highorder_sim::machine::SwapArea;
use highorder_system::Ns;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A guest that takes longer than this hangs. Booting takes 10 to 30 s under emulation.
const GUEST_SECONDS_MAX: u64 = 500;
const MEMORY_BYTES: u64 = 512 << 20;
/// Where there is a disk, its size: what is read into the page cache.
const DISK_BYTES: u64 = 256 << 20;

fn cache() -> PathBuf {
    std::env::var_os("HIGHORDER_CACHE")
        .map_or_else(|| PathBuf::from("/tmp/highorder-cache"), PathBuf::from)
}

/// The guest's program, an example of this crate; or why there is none.
fn init() -> Result<PathBuf, String> {
    let found = Command::new(vm::QEMU).arg("--version").stdout(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        return Err(format!("{} does not run", vm::QEMU));
    }
    // Tests lie in `deps`, beside `examples`.
    let test = std::env::current_exe().map_err(|e| e.to_string())?;
    let folder = test.parent().and_then(Path::parent).expect("a test lies in a folder of cargo's");
    let program = folder.join("examples/pool_init");
    match program.is_file() {
        true => Ok(program),
        false => Err(format!("there is no {}", program.display())),
    }
}

fn machine(state: &str) -> Machine {
    let mut machine = machine::load("guest-tcg").unwrap();
    machine.nodes[0].memory_bytes = MEMORY_BYTES;
    let device = machine.swap[0].device;
    let disk = SwapArea { device, offset_bytes: 0, bytes: DISK_BYTES };
    machine.swap = if state.contains("cache") { vec![disk] } else { Vec::new() };
    machine
}

/// Boots a guest if all it needs is there, and returns what it sent.
fn ask(kernel: &str, state: &str) -> Option<BTreeMap<String, Vec<u8>>> {
    let skipped = |why: String| {
        eprintln!("SKIPPED: {kernel} {state}: {why} (see tests/guest/setup.sh)");
        None
    };
    let image = cache().join(kernel).join("vmlinuz");
    if !image.is_file() {
        return skipped(format!("there is no {}", image.display()));
    }
    let program = match init() {
        Ok(program) => program,
        Err(why) => return skipped(why),
    };
    let mut spec = VmSpec::new(Image::Debian(kernel.to_owned()), machine(state)).unwrap();
    spec.program = program;
    spec.cache = cache();
    spec.options = "mitigations=off".to_owned();
    spec.limits = Limits::of(Ns::from_secs(GUEST_SECONDS_MAX), spec.limits.memory_bytes);
    let sent = vm::ask(&spec, state);
    Some(sent.unwrap_or_else(|error| panic!("{kernel} {state}: {error}")).into_iter().collect())
}

#[test]
#[ignore]
fn take() {
    let dir = PathBuf::from(std::env::var_os("POOL_DIR").unwrap());
    for state in std::env::var("POOL_STATES").unwrap().split(' ') {
        for kernel in ["6.12", "6.1"] {
            let Some(sent) = ask(kernel, state) else { return };
            for (name, bytes) in sent {
                std::fs::write(dir.join(format!("{kernel}-{state}.{name}")), bytes).unwrap();
            }
        }
    }
}
