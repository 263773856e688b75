//! Runs that begin in the memory of a machine that was looked at: a snapshot, or the state before a recording.

use crate::experiment::Scale;
use crate::machine::{machine_of, populated, restore};
use crate::residents::with_residents;
use crate::run::Plan;
use highorder_input::InputError;
use highorder_kernelfs::{Meminfo, TextFile};
use highorder_kernels::{KernelFile, machine};
use highorder_mm::types::NodeId;
use highorder_model::Found;
use highorder_sim::Machine;
use highorder_snapshot::recording_file::STATE_BEFORE;
use highorder_snapshot::{Exactness, RecordingFiles, Snapshot};
use std::path::Path;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_128;

const KIB: u64 = 1024;
const PAGE_BYTES: u64 = 4096;

/// A state of memory that runs begin in.
#[derive(Debug)]
pub struct Start {
    /// Its file's or folder's name.
    pub name: String,
    /// A hash of all of it.
    pub identity: String,
    snapshot: Snapshot,
}

impl Start {
    /// Reads a snapshot, or the state before a recording.
    ///
    /// # Errors
    /// It cannot be read, contradicts itself, or does not know where pages lie.
    pub fn read(path: &Path) -> Result<Self, InputError> {
        let snapshot = match RecordingFiles::are_at(path) {
            true => RecordingFiles::open(path)?.state(STATE_BEFORE)?,
            false => Some(Snapshot::read(path)?),
        };
        let snapshot =
            snapshot.ok_or_else(|| InputError::file(path, format!("no {STATE_BEFORE} in it")))?;
        if snapshot.exactness == Exactness::Counts {
            let message = "found a state of exactness counts, expected frames or lists: counts do not say where \
                           pages lie";
            return Err(InputError::file(path, message));
        }
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let identity = format!("{:032x}", xxh3_128(&snapshot.to_bytes(&name)?));
        Ok(Self { name, identity, snapshot })
    }

    /// Memory of the machine, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        populated(&self.snapshot).map(|zone| zone.present_pages * PAGE_BYTES).sum()
    }

    /// How far sizes of an experiment made for `bytes` of memory have to shrink to stand to this machine's as they were
    /// meant to: not at all where it has more.
    ///
    /// # Errors
    /// The machine is too small for any ratio.
    pub fn fitting(&self, bytes: u64) -> Result<Scale, InputError> {
        const STEPS: u64 = 1 << 10;
        let steps =
            (u128::from(self.memory_bytes()) * u128::from(STEPS) / u128::from(bytes.max(1))) as u64;
        format!("{}/{STEPS}", steps.min(STEPS)).parse().map_err(|_| {
            InputError::other(format!(
                "{} has less than a {STEPS}th of the experiment's memory",
                self.name
            ))
        })
    }

    /// The machine: this one's memory, CPUs and swap, and another one's costs and disks.
    ///
    /// # Errors
    /// A machine that there cannot be.
    pub fn machine(&self, template: &Machine) -> Result<Machine, InputError> {
        machine_like(&self.snapshot, &[], template, &mut Vec::new())
    }

    /// Its memory under a kernel's rules, with those whose pages they are.
    ///
    /// # Errors
    /// A machine that the model has no room for, or pageblocks of another order than the kernel's.
    pub fn found(&self, kernel: &KernelFile, machine: &Machine) -> Result<Found, InputError> {
        let memory = restore(&self.snapshot, kernel, &machine.cpu_nodes())?;
        Ok(with_residents(&self.snapshot, memory))
    }
}

impl Plan {
    /// The same runs, which begin in the memory of a machine that was looked at; those on real kernels are refused. Their
    /// knobs are the experiment's, not that machine's.
    ///
    /// # Errors
    /// A run is not on the model, or its kernel cannot have that memory.
    pub fn from_state(mut self, start: &Arc<Start>) -> Result<Self, InputError> {
        for run in &mut self.runs {
            run.begin_in(start)?;
        }
        Ok(self)
    }
}

/// A machine with a state's memory, CPUs and swap, and another one's costs and disks. `named` is each CPU's node, as far
/// as that is known.
pub(crate) fn machine_like(
    snapshot: &Snapshot,
    named: &[NodeId],
    template: &Machine,
    assumed: &mut Vec<String>,
) -> Result<Machine, InputError> {
    let mut machine = template.clone();
    let cpu_nodes = machine_of(snapshot, named)?.cpu_nodes;
    let nr_nodes = populated(snapshot).map(|zone| zone.node + 1).max().unwrap_or(1);
    let node_template = machine.nodes[0].clone();
    let mut next = 0;
    machine.nodes = (0..nr_nodes)
        .map(|node| {
            let mut this = node_template.clone();
            let here = cpu_nodes.iter().filter(|of| of.0 == node).count() as u32;
            this.cpus = next..next + here;
            next += here;
            // ACPI's default for nodes that a machine says nothing of.
            this.distances =
                (0..nr_nodes).map(|other| if other == node { 10 } else { 20 }).collect();
            let zones = populated(snapshot).filter(|zone| zone.node == node);
            this.memory_bytes = zones.map(|zone| zone.present_pages * PAGE_BYTES).sum();
            this
        })
        .collect();
    if !cpu_nodes.is_sorted() {
        assumed.push("CPUs are numbered node by node, which they were not".to_owned());
    }
    machine.sched = machine.sched.of_cpus(next);
    // Whether its CPUs were emulated on fewer, nobody knows.
    machine.sched.host = None;
    let swap_kib = swap_kib(snapshot);
    let room = machine.disks.first().map_or(0, |disk| disk.capacity_bytes);
    machine.swap.truncate(usize::from(swap_kib > 0));
    for area in &mut machine.swap {
        area.bytes = (swap_kib * KIB).min(room);
    }
    Ok(machine)
}

/// How much swap there was.
pub(crate) fn swap_kib(snapshot: &Snapshot) -> u64 {
    let meminfo =
        snapshot.files.get("meminfo").and_then(|text| Meminfo::parse("meminfo", text).ok());
    meminfo.and_then(|meminfo| meminfo.get("SwapTotal")).unwrap_or(0)
}

/// Gives a machine without a disk, as `calibrate` writes them, the disks and the swap of `lender`, and returns a sentence
/// that says so.
///
/// # Errors
/// The lender cannot be read.
pub(crate) fn lend_disks(
    machine: &mut Machine,
    lender: &str,
) -> Result<Option<String>, InputError> {
    if !machine.disks.is_empty() {
        return Ok(None);
    }
    let lender = machine::load(lender)?;
    machine.disks = lender.disks;
    machine.file_systems = lender.file_systems;
    machine.swap = lender.swap;
    let (from, to) = (lender.name, &machine.name);
    Ok(Some(format!("disks and swap are those of the machine `{from}`, as `{to}` has no disk")))
}
