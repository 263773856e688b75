//! The kernel's words as types: frame numbers, orders, migratetypes, zones.

use core::fmt;

/// A page frame number: the index of a base page, never a byte address.
///
/// 32 bits reach 16 TiB of 4 KiB pages, and keep a list link at four bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pfn(pub u32);

impl Pfn {
    /// Index into a per-frame table.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The first frame of the aligned block of `order` that holds this frame.
    #[inline]
    #[must_use]
    pub const fn align_down(self, order: Order) -> Self {
        Self(self.0 & !((1u32 << order.0) - 1))
    }

    /// The buddy of the block of `order` that begins here.
    #[inline]
    #[must_use]
    pub const fn buddy(self, order: Order) -> Self {
        Self(self.0 ^ (1u32 << order.0))
    }
}

impl fmt::Debug for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pfn {:#x}", self.0)
    }
}

impl fmt::Display for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The largest order any supported kernel has on x86-64 (`MAX_PAGE_ORDER`; `MAX_ORDER - 1` before 6.4).
pub const MAX_PAGE_ORDER: u8 = 10;
/// Number of orders, 0 included (`NR_PAGE_ORDERS`).
pub const NR_PAGE_ORDERS: usize = MAX_PAGE_ORDER as usize + 1;
/// Orders above this are "costly": the kernel tries less hard for them (`PAGE_ALLOC_COSTLY_ORDER`).
pub const COSTLY_ORDER: Order = Order(3);

/// Binary logarithm of a block's size in base pages, `0..=MAX_PAGE_ORDER`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Order(pub u8);

impl Order {
    /// Base pages in a block of this order.
    #[inline]
    #[must_use]
    pub const fn pages(self) -> u32 {
        1 << self.0
    }

    /// Index into a per-order table.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The mobility type of a pageblock, of a free list, or of a request.
///
/// The first three are the ones per-CPU lists know (`MIGRATE_PCPTYPES`). The numbers are 6.x's
/// without CMA, as traces of Debian's kernels print them; other kernels' files map theirs by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Migratetype {
    /// Kernel memory that stays where it is.
    Unmovable = 0,
    /// Memory that migration can move: user pages, page cache.
    Movable = 1,
    /// Memory that a shrinker can free: inodes, dentries.
    Reclaimable = 2,
    /// The reserve for atomic requests of order > 0.
    HighAtomic = 3,
    /// The contiguous memory allocator's own area.
    Cma = 4,
    /// Taken out of use for offlining or a contiguous range.
    Isolate = 5,
    /// A zone's last resort, for requests of any type (before 4.4, 974a786e63c9).
    Reserve = 6,
}

/// Number of migratetypes.
pub const NR_MIGRATETYPES: usize = 7;

impl Migratetype {
    /// Every type, in the order of their numbers.
    pub const ALL: [Self; NR_MIGRATETYPES] = [
        Self::Unmovable,
        Self::Movable,
        Self::Reclaimable,
        Self::HighAtomic,
        Self::Cma,
        Self::Isolate,
        Self::Reserve,
    ];

    /// The type with this number.
    ///
    /// # Panics
    /// If `n` is not below [`NR_MIGRATETYPES`].
    #[inline]
    #[must_use]
    pub const fn from_index(n: usize) -> Self {
        Self::ALL[n]
    }

    /// Index into a per-type table.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether free pageblocks of this type may join others (`migratetype_is_mergeable`): the types that
    /// differ in mobility alone, and the reserve of kernels that kept nothing but isolated ones apart.
    #[inline]
    #[must_use]
    pub const fn is_mergeable(self) -> bool {
        matches!(self, Self::Unmovable | Self::Movable | Self::Reclaimable | Self::Reserve)
    }

    /// The name that `/proc/pagetypeinfo` prints.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unmovable => "Unmovable",
            Self::Movable => "Movable",
            Self::Reclaimable => "Reclaimable",
            Self::HighAtomic => "HighAtomic",
            Self::Cma => "CMA",
            Self::Isolate => "Isolate",
            Self::Reserve => "Reserve",
        }
    }

    /// The type `/proc/pagetypeinfo` prints as `name`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|m| m.name() == name)
    }
}

impl fmt::Display for Migratetype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
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
