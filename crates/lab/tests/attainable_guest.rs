//! What is attainable in a real kernel's memory: boots Debian's 6.1 and 6.12 under QEMU, brings memory into states of
//! many kinds, and compares the model's compaction of each with the huge pages that the kernel gave when asked for as many
//! as there can be.
//!
//! Needs what `tests/guest/setup.sh` gets; where something is missing the tests say SKIPPED and why.

use highorder_kernelfs::{Buddyinfo, Settings, TextFile};
use highorder_kernels::{KernelFile, machine};
use highorder_lab::attainable::{Size, UNTIL_NO_MORE, attainable};
use highorder_lab::what_if::MACHINE;
use highorder_real::testing::{self, program};
use highorder_real::{Limits, VmSpec, vm};
use highorder_sim::Machine;
use highorder_sim::machine::SwapArea;
use highorder_snapshot::Snapshot;
use highorder_system::Ns;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// A guest that takes longer than this hangs. Booting takes 10 to 30 s under emulation.
const GUEST_SECONDS_MAX: u64 = 500;
const MEMORY_BYTES: u64 = 512 << 20;
/// Where there is a disk, its size: what is read into the page cache.
const DISK_BYTES: u64 = 256 << 20;

/// The order of a huge page.
const HUGE: u8 = 9;
/// What a guest sends.
const PARTS: [&str; 3] = ["state", "after", "pool"];
/// How many guests of one kind a test boots, at most: when a kernel gives up is a matter of when ticks fall, so the answers
/// in the middle are compared.
const GUESTS: usize = 3;
const STATES: [&str; 10] = [
    "anon",
    "comb",
    "scatter",
    "slab",
    "cache",
    "pipes",
    "tables",
    "churn",
    "scatter+slab",
    "anon+cache",
];

fn machine(state: &str) -> Machine {
    let mut machine = machine::load(MACHINE).unwrap();
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
    let (image, program) = match (testing::kernel(kernel), program("pool_init")) {
        (Ok(image), Ok(program)) => (image, program),
        (Err(why), _) | (_, Err(why)) => return skipped(why),
    };
    let mut spec = VmSpec::new(image, machine(state)).unwrap();
    spec.program = program;
    spec.cache = testing::cache();
    spec.options = "mitigations=off".to_owned();
    spec.limits = Limits::of(Ns::from_secs(GUEST_SECONDS_MAX), spec.limits.memory_bytes);
    let sent = vm::ask(&spec, state);
    Some(sent.unwrap_or_else(|error| panic!("{kernel} {state}: {error}")).into_iter().collect())
}

/// How many blocks the model says can be had, by way.
fn attainable_in(state: &[u8]) -> (u64, BTreeMap<String, u64>) {
    let snapshot = Snapshot::from_bytes(state, "state").unwrap();
    let release = snapshot.kernel_release.clone().expect("a live snapshot knows its kernel");
    let kernel = KernelFile::for_release(&release).unwrap();
    // As the guest sets it.
    let settings = Settings::parse("settings", b"/proc/sys/vm/swappiness 0\n").unwrap();
    let size = Size::of_order(HUGE);
    let costs_of = std::env::var("HIGHORDER_POOL_MACHINE").unwrap_or_else(|_| MACHINE.to_owned());
    let costs_of = &machine::load(&costs_of).unwrap();
    let found = attainable(&snapshot, &kernel, size, &[], Some(&settings), costs_of).unwrap();
    (found.blocks, found.ways.into_iter().map(|way| (way.name, way.blocks)).collect())
}

/// Blocks of a huge page in `/proc/buddyinfo`.
fn free_huge(buddyinfo: &[u8]) -> u64 {
    let table = Buddyinfo::parse("buddyinfo", buddyinfo).unwrap();
    let large = |counts: &[u64]| -> u64 {
        (0..).zip(counts).skip(HUGE.into()).map(|(order, nr)| nr << (order - HUGE)).sum()
    };
    table.zones.iter().map(|zone| large(&zone.counts)).sum()
}

/// What one guest's kernel gave, and what the model gives in the same state.
#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    blocks: u64,
    kernel_compacted: u64,
    kernel_pool: u64,
    compacted: u64,
    pool: u64,
}

/// Prints a row for what a guest sent, and returns what it says.
fn answers(kernel: &str, state: &str, sent: &BTreeMap<String, Vec<u8>>) -> Answers {
    let (blocks, ways) = attainable_in(&sent["state"]);
    let kernel_pool = String::from_utf8_lossy(&sent["pool"]).trim().parse().unwrap();
    let kernel_compacted = free_huge(&sent["after"]);
    let [compacted, pool] = ["after compaction", UNTIL_NO_MORE].map(|way| ways[way]);
    println!(
        "{kernel:4} {state:14} blocks {blocks} | as it is {} | compacted: kernel {kernel_compacted}, model \
         {compacted} | nr_hugepages: kernel {kernel_pool}, model {pool}",
        ways["as it is"]
    );
    Answers { blocks, kernel_compacted, kernel_pool, compacted, pool }
}

/// What is compared of guests: the kernel's number and the model's, after compaction alone, and of huge pages asked for until
/// there are no more.
type Compared = (&'static str, fn(&Answers) -> [u64; 2]);
const COMPARED: [Compared; 2] = [
    ("compaction", |guest| [guest.kernel_compacted, guest.compacted]),
    ("nr_hugepages", |guest| [guest.kernel_pool, guest.pool]),
];

/// How far apart the two may be: a twentieth of all blocks.
fn most_apart(blocks: u64) -> u64 {
    blocks.div_ceil(20)
}

/// Checks that the model's answers are the kernel's. Of several guests of a kind those in the middle are compared.
fn check(guests: &[Answers]) {
    let middle = |of: &dyn Fn(&Answers) -> u64| {
        let mut all: Vec<u64> = guests.iter().map(of).collect();
        all.sort_unstable();
        all[all.len() / 2]
    };
    let most = most_apart(middle(&|guest| guest.blocks));
    for (what, of) in COMPARED {
        let [there, here] = [0, 1].map(|side| middle(&|guest| of(guest)[side]));
        assert!(there.abs_diff(here) <= most, "{what}: {there} there, {here} here");
    }
}

/// Whether two guests say all, since what is in the middle of three lies between any two of them: no number that lies
/// between the kernel's can be too far from one that lies between the model's.
fn are_enough(guests: &[Answers]) -> bool {
    let most = guests.iter().map(|guest| most_apart(guest.blocks)).min().unwrap_or(0);
    let is_settled = |&(_, of): &Compared| {
        let far = |one: &Answers, other: &Answers| of(one)[0].abs_diff(of(other)[1]) > most;
        !guests.iter().any(|one| guests.iter().any(|other| far(one, other)))
    };
    guests.len() == 2 && COMPARED.iter().all(is_settled)
}

fn check_guests(kernel: &str, state: &str) {
    let mut guests = Vec::new();
    while guests.len() < GUESTS && !are_enough(&guests) {
        let Some(sent) = ask(kernel, state) else { break };
        guests.push(answers(kernel, state, &sent));
    }
    if !guests.is_empty() {
        check(&guests);
    }
}

#[test]
fn a_third_guest_is_asked_where_it_can_turn_the_scales() {
    let guest =
        |kernel_pool, pool| Answers { blocks: 200, kernel_pool, pool, ..Answers::default() };
    assert!(are_enough(&[guest(100, 104), guest(105, 110)]));
    assert!(!are_enough(&[guest(100, 104), guest(105, 111)]), "111 and 100 are too far apart");
    assert!(!are_enough(&[guest(100, 100)]) && !are_enough(&[]));
}

#[test]
fn as_many_huge_pages_as_linux_6_12_gives_amid_scattered_anonymous_memory() {
    check_guests("6.12", "anon");
}

#[test]
fn as_many_huge_pages_as_linux_6_1_gives_amid_a_scattered_file_and_slab() {
    check_guests("6.1", "scatter+slab");
}

/// All kinds under both kernels, a guest of each; `HIGHORDER_POOL=DIR` keeps what guests sent, and reads what is there already.
/// `HIGHORDER_POOL_MACHINE=FILE` has work cost what `highorder calibrate --on vm:debian:6.12` measured beside them.
#[test]
#[ignore = "takes ten minutes"]
fn as_many_huge_pages_in_states_of_ten_kinds() {
    let kept = std::env::var_os("HIGHORDER_POOL").map(PathBuf::from);
    let mut failed = Vec::new();
    for (state, kernel) in STATES.iter().flat_map(|state| [(state, "6.1"), (state, "6.12")]) {
        let path = |name: &str| Some(kept.as_ref()?.join(format!("{kernel}-{state}.{name}")));
        let read = |name: &str| Some((name.to_owned(), fs::read(path(name)?).ok()?));
        let sent = PARTS.iter().map(|name| read(name)).collect::<Option<BTreeMap<_, _>>>();
        let Some(sent) = sent.or_else(|| ask(kernel, state)) else { return };
        for (name, bytes) in &sent {
            let _ = path(name).map(|path| fs::write(path, bytes));
        }
        if std::panic::catch_unwind(|| check(&[answers(kernel, state, &sent)])).is_err() {
            failed.push(format!("{kernel} {state}"));
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}
