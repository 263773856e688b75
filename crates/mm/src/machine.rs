//! What a machine is, as far as memory goes, and which ones there can be.
//!
//! Machines come from files and snapshots, so [`Machine::check`] refuses what the model could not stand
//! on: a zone that reaches beyond memory, a CPU on a node that does not exist.
//! Departs: zones do not overlap. Visible as: a machine whose nodes take turns within one range of memory
//! is refused, which Linux runs on.

use crate::frame::NR_CPUS_MAX;
use crate::types::{CpuId, NodeId, Pfn, ZoneKind};
use core::fmt;
use std_alloc::vec::Vec;

/// Zones a machine may have: a byte names one, and one value of it says "no zone, or several".
pub const NR_ZONES_MAX: usize = 254;
/// Nodes a machine may have: as many as a mask of 64 bits names, which is also what x86-64 kernels have unless they are
/// built for more (`NODES_SHIFT`).
pub const NR_NODES_MAX: usize = 64;

/// The parts of a machine that bear on memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Frames from 0 to the last, holes included.
    pub nr_frames: u32,
    /// Nodes, ascending.
    pub nodes: Vec<NodeSpec>,
    /// The node of each CPU.
    pub cpu_nodes: Vec<NodeId>,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// Distance to each node in the firmware's unit, 10 to itself.
    pub distances: Vec<u32>,
    /// Zones, lowest first.
    pub zones: Vec<ZoneSpec>,
}

/// One zone's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneSpec {
    /// Which zone.
    pub kind: ZoneKind,
    /// First frame.
    pub start: Pfn,
    /// Frames from first to last.
    pub spanned_pages: u32,
    /// Frames that exist.
    pub present_pages: u32,
    /// Frames the allocator manages.
    pub managed_pages: u64,
}

impl ZoneSpec {
    /// One past the last frame.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.start.0 as u64 + self.spanned_pages as u64
    }
}

/// A zone by node and kind, as messages name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneName {
    /// Its node.
    pub node: NodeId,
    /// Its kind.
    pub kind: ZoneKind,
}

impl fmt::Display for ZoneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} zone {}", self.node, self.kind)
    }
}

/// Why there can be no such machine: what was found, and what would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MachineError {
    /// Nobody who could ask for memory.
    NoCpus,
    /// More CPUs than [`NR_CPUS_MAX`].
    TooManyCpus(usize),
    /// More nodes than [`NR_NODES_MAX`].
    TooManyNodes(usize),
    /// No memory.
    NoZones,
    /// More zones than [`NR_ZONES_MAX`].
    TooManyZones(usize),
    /// A CPU on a node that does not exist.
    CpuNode {
        /// The CPU.
        cpu: CpuId,
        /// Its node.
        node: NodeId,
        /// Nodes that there are.
        nr_nodes: usize,
    },
    /// A node's zones are not in ascending order, or one is there twice.
    Unordered {
        /// The zone.
        zone: ZoneName,
        /// The one before it.
        previous: ZoneKind,
    },
    /// A zone ends beyond the last frame.
    BeyondFrames {
        /// The zone.
        zone: ZoneName,
        /// One past its last frame.
        end: u64,
        /// Frames that there are.
        nr_frames: u32,
    },
    /// More frames exist than the zone spans.
    Present {
        /// The zone.
        zone: ZoneName,
        /// Frames that exist.
        present: u64,
        /// Frames from first to last.
        spanned: u64,
    },
    /// The allocator manages more frames than exist.
    Managed {
        /// The zone.
        zone: ZoneName,
        /// Frames managed.
        managed: u64,
        /// Frames that exist.
        present: u64,
    },
    /// Two zones share frames.
    Overlap {
        /// The zone that begins first.
        first: ZoneName,
        /// The other one.
        second: ZoneName,
        /// The first frame they share.
        pfn: Pfn,
    },
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCpus => write!(f, "the machine has no CPU, expected 1 to {NR_CPUS_MAX}"),
            Self::TooManyCpus(found) => {
                write!(f, "the machine has {found} CPUs, expected 1 to {NR_CPUS_MAX}")
            }
            Self::TooManyNodes(found) => {
                write!(f, "the machine has {found} nodes, expected 1 to {NR_NODES_MAX}")
            }
            Self::NoZones => {
                write!(f, "the machine has no zone with memory, expected 1 to {NR_ZONES_MAX}")
            }
            Self::TooManyZones(found) => {
                write!(f, "the machine has {found} zones, expected 1 to {NR_ZONES_MAX}")
            }
            Self::CpuNode { cpu, node, nr_nodes } => {
                write!(f, "CPU {cpu} is on node {node}, expected one of the {nr_nodes} from 0 on")
            }
            Self::Unordered { zone, previous } => write!(
                f,
                "{zone} comes after {previous}, expected each zone once in the order DMA, DMA32, \
                 Normal, Movable"
            ),
            Self::BeyondFrames { zone, end, nr_frames } => {
                write!(f, "the machine has {nr_frames} frames, expected at least {end} for {zone}")
            }
            Self::Present { zone, present, spanned } => write!(
                f,
                "{zone} has {present} present pages, expected at most the {spanned} that it spans"
            ),
            Self::Managed { zone, managed, present } => write!(
                f,
                "{zone} has {managed} managed pages, expected at most the {present} that are present"
            ),
            Self::Overlap { first, second, pfn } => {
                write!(
                    f,
                    "{first} and {second} both have {pfn}, expected zones that do not overlap"
                )
            }
        }
    }
}

impl core::error::Error for MachineError {}

impl Machine {
    /// Number of nodes.
    #[must_use]
    pub fn nr_nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Number of a node's CPUs.
    #[must_use]
    pub fn nr_cpus(&self, node: NodeId) -> u64 {
        self.cpu_nodes.iter().filter(|&&other| other == node).count() as u64
    }

    /// Makes sure that the model can be this machine.
    ///
    /// # Errors
    /// The first thing that no machine could be, or that the model has no room for.
    pub fn check(&self) -> Result<(), MachineError> {
        let mut all_zones = self.nodes.iter().flat_map(|node| &node.zones);
        if !all_zones.any(|zone| zone.spanned_pages > 0 && zone.present_pages > 0) {
            return Err(MachineError::NoZones);
        }
        self.check_cpus()?;
        let mut zones = Vec::new();
        for (node, spec) in NodeId::all(self.nr_nodes()).zip(&self.nodes) {
            let mut previous = None;
            for zone in &spec.zones {
                let name = ZoneName { node, kind: zone.kind };
                if let Some(previous) = previous.filter(|&previous| previous >= zone.kind) {
                    return Err(MachineError::Unordered { zone: name, previous });
                }
                previous = Some(zone.kind);
                self.check_zone(name, zone)?;
                zones.push((name, zone));
            }
        }
        if zones.len() > NR_ZONES_MAX {
            return Err(MachineError::TooManyZones(zones.len()));
        }
        zones.retain(|(_, zone)| zone.spanned_pages > 0);
        zones.sort_by_key(|(_, zone)| zone.start);
        for pair in zones.windows(2) {
            let [(first, low), (second, high)] = [pair[0], pair[1]];
            if low.end() > u64::from(high.start.0) {
                return Err(MachineError::Overlap { first, second, pfn: high.start });
            }
        }
        Ok(())
    }

    fn check_cpus(&self) -> Result<(), MachineError> {
        let nr_nodes = self.nr_nodes();
        if nr_nodes > NR_NODES_MAX {
            return Err(MachineError::TooManyNodes(nr_nodes));
        }
        match self.cpu_nodes.len() {
            0 => return Err(MachineError::NoCpus),
            found if found > NR_CPUS_MAX => return Err(MachineError::TooManyCpus(found)),
            _ => {}
        }
        match self.cpu_nodes.iter().position(|&node| node.index() >= nr_nodes) {
            Some(index) => {
                let (cpu, node) = (CpuId(index as u32), self.cpu_nodes[index]);
                Err(MachineError::CpuNode { cpu, node, nr_nodes })
            }
            None => Ok(()),
        }
    }

    fn check_zone(&self, zone: ZoneName, spec: &ZoneSpec) -> Result<(), MachineError> {
        let (spanned, present) = (u64::from(spec.spanned_pages), u64::from(spec.present_pages));
        let (managed, end) = (spec.managed_pages, spec.end());
        if end > u64::from(self.nr_frames) {
            return Err(MachineError::BeyondFrames { zone, end, nr_frames: self.nr_frames });
        }
        if present > spanned {
            return Err(MachineError::Present { zone, present, spanned });
        }
        if managed > present {
            return Err(MachineError::Managed { zone, managed, present });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std_alloc::string::ToString;
    use std_alloc::vec;

    /// Two nodes with a CPU each: DMA32 and Normal, then Normal.
    fn machine() -> Machine {
        let zone = |kind, start, pages: u32| ZoneSpec {
            kind,
            start: Pfn(start),
            spanned_pages: pages,
            present_pages: pages,
            managed_pages: u64::from(pages),
        };
        let node = |zones| NodeSpec { distances: vec![10, 20], zones };
        let low = vec![zone(ZoneKind::Dma32, 1, 1023), zone(ZoneKind::Normal, 1024, 1024)];
        let nodes = vec![node(low), node(vec![zone(ZoneKind::Normal, 2048, 2048)])];
        Machine { nr_frames: 4096, nodes, cpu_nodes: vec![NodeId(0), NodeId(1)] }
    }

    #[track_caller]
    fn refused(change: impl FnOnce(&mut Machine), expected: &str) {
        let mut machine = machine();
        change(&mut machine);
        let error = machine.check().expect_err("no such machine");
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_machine_with_holes_and_a_node_without_memory_is_one() {
        assert_eq!(machine().check(), Ok(()));
        let mut machine = machine();
        machine.nodes[0].zones[1].present_pages = 7;
        machine.nodes[0].zones[1].managed_pages = 0;
        machine.nodes[1].zones.clear();
        assert_eq!(machine.check(), Ok(()));
    }

    #[test]
    fn a_machine_needs_cpus_but_not_too_many() {
        refused(|m| m.cpu_nodes.clear(), "the machine has no CPU, expected 1 to 256");
        refused(
            |m| m.cpu_nodes = vec![NodeId(0); 257],
            "the machine has 257 CPUs, expected 1 to 256",
        );
        let mut most = machine();
        most.cpu_nodes = vec![NodeId(1); 256];
        assert_eq!(most.check(), Ok(()));
    }

    #[test]
    fn a_cpu_is_on_a_node_that_exists() {
        refused(
            |m| m.cpu_nodes[1] = NodeId(2),
            "CPU 1 is on node 2, expected one of the 2 from 0 on",
        );
    }

    #[test]
    fn a_machine_needs_memory_in_not_too_many_zones_and_nodes() {
        refused(
            |m| m.nodes.iter_mut().for_each(|node| node.zones.clear()),
            "the machine has no zone with memory, expected 1 to 254",
        );
        // So many zones of a page each, up to four to a node.
        let full = |nr_zones: u32, each: u32| {
            let mut machine = machine();
            machine.nodes = (0..nr_zones.div_ceil(each))
                .map(|node| {
                    let mut spec = machine.nodes[1].clone();
                    let zones = (node * each..nr_zones).zip(ZoneKind::ALL).take(each as usize);
                    let zone = |(number, kind)| ZoneSpec {
                        kind,
                        start: Pfn(number),
                        spanned_pages: 1,
                        present_pages: 1,
                        managed_pages: 1,
                    };
                    spec.zones = zones.map(zone).collect();
                    spec
                })
                .collect();
            machine.check()
        };
        assert_eq!(full(254, 4), Ok(()));
        assert_eq!(full(255, 4), Err(MachineError::TooManyZones(255)));
        assert_eq!(full(64, 1), Ok(()));
        assert_eq!(full(65, 1), Err(MachineError::TooManyNodes(65)));
    }

    #[test]
    fn the_zones_of_a_node_ascend() {
        refused(
            |m| m.nodes[0].zones.reverse(),
            "node 0 zone DMA32 comes after Normal, expected each zone once in the order DMA, DMA32, \
             Normal, Movable",
        );
        refused(
            |m| m.nodes[0].zones[0].kind = ZoneKind::Normal,
            "node 0 zone Normal comes after Normal, expected each zone once in the order DMA, DMA32, \
             Normal, Movable",
        );
    }

    #[test]
    fn a_zone_lies_within_the_frames() {
        refused(
            |m| m.nr_frames = 4095,
            "the machine has 4095 frames, expected at least 4096 for node 1 zone Normal",
        );
        refused(
            |m| m.nodes[1].zones[0].start = Pfn(u32::MAX),
            "the machine has 4096 frames, expected at least 4294969343 for node 1 zone Normal",
        );
    }

    #[test]
    fn a_zone_holds_what_it_manages() {
        refused(
            |m| m.nodes[1].zones[0].present_pages = 2049,
            "node 1 zone Normal has 2049 present pages, expected at most the 2048 that it spans",
        );
        refused(
            |m| m.nodes[1].zones[0].present_pages = 2047,
            "node 1 zone Normal has 2048 managed pages, expected at most the 2047 that are present",
        );
    }

    #[test]
    fn zones_do_not_overlap() {
        refused(
            |m| m.nodes[1].zones[0].start = Pfn(2047),
            "node 0 zone Normal and node 1 zone Normal both have 0x7ff, expected zones that do not \
             overlap",
        );
    }

    proptest! {
        /// Whatever passes can be built, and its frames lie in the zones it names.
        #[test]
        fn a_machine_that_passes_has_each_frame_in_one_zone_at_most(
            nr_frames in 0u32..300,
            cpu_nodes in proptest::collection::vec((0u32..4).prop_map(NodeId), 0..4),
            zones in proptest::collection::vec(
                (0usize..3, 0usize..4, 0u32..300, 0u32..200, 0u32..200, 0u64..200),
                0..5,
            ),
        ) {
            let mut nodes = vec![NodeSpec { distances: vec![10; 3], zones: Vec::new() }; 3];
            for (node, kind, start, spanned_pages, present_pages, managed_pages) in zones {
                nodes[node].zones.push(ZoneSpec {
                    kind: ZoneKind::ALL[kind],
                    start: Pfn(start),
                    spanned_pages,
                    present_pages,
                    managed_pages,
                });
            }
            let machine = Machine { nr_frames, nodes, cpu_nodes };
            let zones = || machine.nodes.iter().flat_map(|node| &node.zones);
            let in_zone = |pfn: u64, z: &ZoneSpec| u64::from(z.start.0) <= pfn && pfn < z.end();
            let shared = (0..500).any(|pfn| zones().filter(|z| in_zone(pfn, z)).count() > 1);
            let beyond = (u64::from(nr_frames)..500).any(|pfn| zones().any(|z| in_zone(pfn, z)));
            if machine.check().is_ok() {
                prop_assert!(!shared && !beyond);
                prop_assert!(!machine.cpu_nodes.is_empty() && zones().count() > 0);
                prop_assert!(machine.cpu_nodes.iter().all(|&node| node < NodeId(3)));
            } else if !shared && !beyond {
                let sizes = zones().any(|z| {
                    z.present_pages > z.spanned_pages || z.managed_pages > u64::from(z.present_pages)
                });
                let empty = zones().all(|z| z.present_pages == 0);
                let ends = zones().any(|z| z.end() > u64::from(nr_frames));
                let cpus = machine.cpu_nodes.is_empty() || machine.cpu_nodes.contains(&NodeId(3));
                let order = machine.nodes.iter().any(|node| {
                    !node.zones.is_sorted_by(|a, b| a.kind < b.kind)
                });
                prop_assert!(sizes || empty || ends || cpus || order);
            }
        }
    }
}
