//! What an unknown sets of a machine.

use highorder_sim::device::{DeviceKind, Elevator};
use highorder_sim::machine::{Cost, FileSystem, InUse};
use highorder_sim::sched::DeviceId;
use highorder_sim::{Machine, Ns};
use std::fmt;

const MIB: u64 = 1 << 20;
/// The machine whose holes in pageblocks one has that has none of its own: a measurement, see there.
const IN_USE_EXAMPLE: &str = "one-node-8g-in-use";
/// Distance to another node where the machine file has but one: `REMOTE_DISTANCE`, include/linux/topology.h.
const REMOTE_DISTANCE: u32 = 20;
const LOCAL_DISTANCE: u32 = 10;
/// What it may be called besides the costs, each of which is `costs.NAME`.
const NAMES: [(&str, Key); 12] = [
    ("disk.0.elevator", Key::Elevator),
    ("disk.0.filesystem", Key::FileSystem),
    ("disk.0.rotating.bytes_per_second", Key::DiskBandwidth),
    ("disk.0.rotating.queue_depth", Key::DiskQueue),
    ("disk.0.rotating.seek_average_ns", Key::DiskSeek),
    ("in_use.holes_per_1000_blocks", Key::Holes),
    ("in_use.unmovable_blocks_per_1000", Key::UnmovableBlocks),
    ("memory.device_hole_mib", Key::DeviceHole),
    ("node.cpus", Key::NodeCpus),
    ("nodes", Key::Nodes),
    ("swap.disk", Key::SwapDisk),
    ("swap.size_mib", Key::SwapSize),
];
const COST: &str = "costs.";

/// What `disk.0.elevator` counts.
const ELEVATORS: [Elevator; 2] = [Elevator::Deadline, Elevator::Cfq];
/// What `disk.0.filesystem` counts.
const FILE_SYSTEMS: [FileSystem; 2] = [FileSystem::Ext4, FileSystem::Xfs];

/// A value of a machine, by the name that machine files have for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// A cost, in nanoseconds.
    Cost(String),
    /// What decides about the order in which the first disk serves, by its number: 0 for deadline, 1 for cfq.
    Elevator,
    /// The file system of the first disk, by its number: 0 for ext4, 1 for XFS.
    FileSystem,
    /// Bytes a second of the first disk, which turns.
    DiskBandwidth,
    /// Requests that it takes before the first of them is done.
    DiskQueue,
    /// Nanoseconds that its heads take to a track somewhere.
    DiskSeek,
    /// Pageblocks of 1000 that the kernel has filled.
    UnmovableBlocks,
    /// Pages that are free in 1000 of those; the sizes of the holes keep their shares.
    Holes,
    /// MiB below 4 GiB that are devices.
    DeviceHole,
    /// CPUs of each node; the scheduler's times follow, as the kernel sets them at boot.
    NodeCpus,
    /// Nodes that all memory and all CPUs are dealt out to.
    Nodes,
    /// The disk that the first swap area lies on.
    SwapDisk,
    /// MiB of the first swap area.
    SwapSize,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cost(name) => write!(f, "{COST}{name}"),
            other => {
                let named = NAMES.iter().find(|(_, key)| key == other);
                f.write_str(named.map_or("", |(name, _)| name))
            }
        }
    }
}

impl Key {
    /// The key of this name.
    ///
    /// # Errors
    /// There is none; the message says what was probably meant.
    pub fn parse(text: &str) -> Result<Self, String> {
        let costs = highorder_sim::machine::Costs::about();
        let cost = text.strip_prefix(COST).and_then(|name| costs.iter().find(|(k, _)| *k == name));
        if let Some((name, _)) = cost {
            return Ok(Self::Cost((*name).to_owned()));
        }
        if let Some((_, key)) = NAMES.iter().find(|(name, _)| *name == text) {
            return Ok(key.clone());
        }
        let costs: Vec<String> = costs.iter().map(|(name, _)| format!("{COST}{name}")).collect();
        let known: Vec<&str> =
            NAMES.iter().map(|(name, _)| *name).chain(costs.iter().map(String::as_str)).collect();
        Err(format!("no key `{text}`, {}", highorder_input::expected(text, &known)))
    }

    /// Whether machine files have whole numbers for it.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        !matches!(self, Self::Cost(_))
    }

    /// What a machine has; none if it has no such thing.
    #[must_use]
    pub fn get(&self, machine: &Machine) -> Option<f64> {
        let number = |value: u64| Some(value as f64);
        match self {
            Self::Cost(name) => {
                let costs = machine.costs.by_name();
                let (_, cost) = costs.into_iter().find(|(known, _)| known == name)?;
                Some(cost.picoseconds() as f64 / 1000.0)
            }
            Self::DiskBandwidth | Self::DiskQueue | Self::DiskSeek => {
                let disk = &machine.disks.first()?.kind;
                let DeviceKind::Rotating { queue_depth, seek_average, bandwidth, .. } = disk else {
                    return None;
                };
                number(match self {
                    Self::DiskQueue => u64::from(*queue_depth),
                    Self::DiskSeek => seek_average.0,
                    _ => *bandwidth,
                })
            }
            Self::Elevator => number_of(&ELEVATORS, machine.disks.first()?.elevator),
            Self::FileSystem => number_of(&FILE_SYSTEMS, *machine.file_systems.first()?),
            Self::UnmovableBlocks => {
                Some(machine.in_use.map_or(0.0, |held| f64::from(held.unmovable_blocks_per_1000)))
            }
            Self::Holes => number(machine.in_use.map_or(0, |held| free_pages(&held))),
            Self::DeviceHole => number(machine.device_hole_bytes / MIB),
            Self::NodeCpus => Some(machine.nodes.first()?.cpus.len() as f64),
            Self::Nodes => Some(machine.nodes.len() as f64),
            Self::SwapDisk => Some(f64::from(machine.swap.first()?.device.0)),
            Self::SwapSize => number(machine.swap.first()?.bytes / MIB),
        }
    }

    /// Gives a machine another value.
    ///
    /// # Errors
    /// It cannot have it; the message says what was found and expected.
    pub(super) fn set(&self, machine: &mut Machine, value: f64) -> Result<(), String> {
        let whole = value.round() as u64;
        match self {
            Self::Cost(name) => {
                let cost = machine.costs.named_mut(name).ok_or("no such cost")?;
                *cost = Cost::of_ns(value, cost.source.clone());
            }
            Self::DiskBandwidth | Self::DiskQueue | Self::DiskSeek => {
                set_disk(machine, self, whole)?;
            }
            Self::Elevator => {
                let disk = machine.disks.first_mut().ok_or("no disk, expected one")?;
                disk.elevator = of_number("elevator", &ELEVATORS, whole)?;
            }
            Self::FileSystem => {
                let first = machine.file_systems.first_mut().ok_or("no disk, expected one")?;
                *first = of_number("file system", &FILE_SYSTEMS, whole)?;
            }
            Self::UnmovableBlocks => in_use(machine)?.unmovable_blocks_per_1000 = whole as u32,
            Self::Holes => {
                let held = in_use(machine)?;
                let share = value / free_pages(held) as f64;
                for holes in &mut held.holes_per_1000_blocks {
                    *holes = (f64::from(*holes) * share).round() as u32;
                }
                // What rounding left over are single pages.
                held.holes_per_1000_blocks[0] = 0;
                held.holes_per_1000_blocks[0] = whole.saturating_sub(free_pages(held)) as u32;
            }
            Self::DeviceHole => machine.device_hole_bytes = whole * MIB,
            Self::NodeCpus => set_cpus(machine, whole as u32),
            Self::Nodes => deal_out(machine, whole)?,
            Self::SwapDisk => {
                let nr = machine.disks.len() as u64;
                if whole >= nr {
                    return Err(format!("disk {whole}, expected less than {nr}"));
                }
                let area = machine.swap.first_mut().ok_or("no swap, expected an area")?;
                area.device = DeviceId(whole as u32);
                check_swap(machine)?;
            }
            Self::SwapSize => {
                let area = machine.swap.first_mut().ok_or("no swap, expected an area")?;
                area.bytes = whole * MIB;
                check_swap(machine)?;
            }
        }
        Ok(())
    }
}

/// The number of one of these.
fn number_of<T: PartialEq>(of: &[T], wanted: T) -> Option<f64> {
    Some(of.iter().position(|other| *other == wanted)? as f64)
}

/// The one of these that has a number.
fn of_number<T: Copy>(what: &str, of: &[T], number: u64) -> Result<T, String> {
    let found = of.get(number as usize).copied();
    found.ok_or_else(|| format!("{what} {number}, expected less than {}", of.len()))
}

fn set_disk(machine: &mut Machine, key: &Key, value: u64) -> Result<(), String> {
    let disk = machine.disks.first_mut().map(|disk| &mut disk.kind);
    let Some(DeviceKind::Rotating { queue_depth, bandwidth, seek_average, seek_track, .. }) = disk
    else {
        return Err("no disk that turns, expected one".to_owned());
    };
    match key {
        Key::DiskSeek if value < seek_track.0 => {
            return Err(format!(
                "{value} ns, expected at least the {} to a next track",
                seek_track.0
            ));
        }
        Key::DiskSeek => *seek_average = Ns(value),
        Key::DiskQueue if value == 0 => return Err("0 requests, expected at least 1".to_owned()),
        Key::DiskQueue => *queue_depth = value as u32,
        _ => *bandwidth = value,
    }
    Ok(())
}

/// Pages that are free in 1000 pageblocks in use.
fn free_pages(held: &InUse) -> u64 {
    (0..).zip(held.holes_per_1000_blocks).map(|(order, holes)| u64::from(holes) << order).sum()
}

/// What a machine's kernel holds; if nothing is told of it, no pageblock, with the example's holes.
fn in_use(machine: &mut Machine) -> Result<&mut InUse, String> {
    let held = match machine.in_use {
        Some(held) => held,
        None => {
            let example = highorder_kernels::machine::load(IN_USE_EXAMPLE)
                .map_err(|error| error.to_string())?;
            let held = example.in_use.ok_or_else(|| format!("{IN_USE_EXAMPLE} holds nothing"))?;
            InUse { unmovable_blocks_per_1000: 0, ..held }
        }
    };
    Ok(machine.in_use.insert(held))
}

/// Gives each node so many CPUs, and the scheduler the times that the kernel has for as many.
fn set_cpus(machine: &mut Machine, each: u32) {
    let mut next = 0;
    for node in &mut machine.nodes {
        node.cpus = next..next + each;
        next += each;
    }
    machine.sched = machine.sched.of_cpus(next);
}

/// Deals all memory and all CPUs out to so many nodes, each as far from each other one.
fn deal_out(machine: &mut Machine, nr: u64) -> Result<(), String> {
    let bytes = machine.memory_bytes();
    let nr_cpus = machine.cpu_nodes().len() as u64;
    if nr == 0 || !bytes.is_multiple_of(nr * MIB) || !nr_cpus.is_multiple_of(nr) {
        return Err(format!("{nr} nodes, expected a number that divides memory and CPUs"));
    }
    let far = machine.nodes[0].distances.get(1).copied().unwrap_or(REMOTE_DISTANCE);
    let distance = |from: u64, to: u64| if from == to { LOCAL_DISTANCE } else { far };
    let each = (nr_cpus / nr) as u32;
    machine.nodes = (0..nr)
        .map(|node| highorder_sim::machine::Node {
            memory_bytes: bytes / nr,
            cpus: node as u32 * each..(node as u32 + 1) * each,
            distances: (0..nr).map(|to| distance(node, to)).collect(),
        })
        .collect();
    Ok(())
}

fn check_swap(machine: &Machine) -> Result<(), String> {
    let Some(area) = machine.swap.first() else { return Ok(()) };
    let disk = &machine.disks[area.device.0 as usize];
    let end = area.offset_bytes + area.bytes;
    if end > disk.capacity_bytes {
        return Err(format!(
            "swap ends at byte {end}, expected at most {}, where `{}` ends",
            disk.capacity_bytes, disk.name
        ));
    }
    Ok(())
}
