//! Where memory and programs are: nodes, their zones, CPUs.

use core::fmt;

/// A NUMA node's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The nodes of a machine that has so many, ascending.
    #[inline]
    pub fn all(nr_nodes: usize) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator {
        (0..nr_nodes as u32).map(Self)
    }

    /// The set of this node alone, as node masks have it: bit n stands for node n.
    #[inline]
    #[must_use]
    pub const fn bit(self) -> u64 {
        1 << self.0
    }

    /// Index into a per-node table.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A CPU's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuId(pub u32);

impl CpuId {
    /// The CPUs of a machine that has so many, ascending.
    #[inline]
    pub fn all(nr_cpus: usize) -> impl DoubleEndedIterator<Item = Self> {
        (0..nr_cpus as u32).map(Self)
    }

    /// Index into a per-CPU table.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Which of a node's zones, lowest addresses first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ZoneKind {
    /// Below 16 MiB.
    Dma = 0,
    /// Below 4 GiB.
    Dma32 = 1,
    /// The rest.
    Normal = 2,
    /// For movable requests alone.
    Movable = 3,
}

/// Number of zone kinds that a node may have.
pub const NR_ZONE_KINDS: usize = 4;

impl ZoneKind {
    /// Every kind, lowest first.
    pub const ALL: [Self; NR_ZONE_KINDS] = [Self::Dma, Self::Dma32, Self::Normal, Self::Movable];

    /// The name that `/proc/zoneinfo` prints.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dma => "DMA",
            Self::Dma32 => "DMA32",
            Self::Normal => "Normal",
            Self::Movable => "Movable",
        }
    }

    /// The kind `/proc/zoneinfo` prints as `name`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|z| z.name() == name)
    }
}

impl fmt::Display for ZoneKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
