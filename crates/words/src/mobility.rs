//! What of memory can be moved.

use core::fmt;

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
