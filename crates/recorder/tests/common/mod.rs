//! The guests of the recorder's tests.

use highorder_kernels::machine;
use highorder_real::{Limits, VmSpec, testing, vm};
use highorder_sim::Ns;
use std::collections::BTreeMap;

/// A guest that takes longer than this hangs; emulated on a busy machine it may take minutes.
const GUEST_SECONDS_MAX: u64 = 1800;

/// What a guest of one node, two CPUs and so much memory sent when it was asked for this; nothing, having said why, where
/// there can be none.
pub(crate) fn ask(
    kernel: &str,
    memory_bytes: u64,
    has_swap: bool,
    what: &str,
) -> Option<BTreeMap<String, Vec<u8>>> {
    let (image, program) = match (testing::kernel(kernel), testing::program("guest_recorder")) {
        (Ok(image), Ok(program)) => (image, program),
        (Err(why), _) | (_, Err(why)) => {
            eprintln!("SKIPPED: {kernel}: {why} (see tests/guest/setup.sh)");
            return None;
        }
    };
    let mut guest = machine::load("guest-tcg").expect("a machine");
    guest.nodes.truncate(1);
    guest.nodes[0].memory_bytes = memory_bytes;
    guest.nodes[0].cpus = 0..2;
    if !has_swap {
        guest.swap.clear();
    }
    let mut spec = VmSpec::new(image, guest).expect("a guest");
    spec.program = program;
    spec.cache = testing::cache();
    spec.takes_turns = true;
    spec.options = "mitigations=off nokaslr".to_owned();
    spec.limits = Limits::of(Ns::from_secs(GUEST_SECONDS_MAX), spec.limits.memory_bytes);
    let sent = vm::ask(&spec, what).unwrap_or_else(|error| panic!("{kernel} {what}: {error}"));
    Some(sent.into_iter().collect())
}
