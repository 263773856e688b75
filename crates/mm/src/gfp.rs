//! Request flags and what they mean for zone, migratetype and watermarks.
//!
//! Models: include/linux/gfp_types.h and `gfp_to_alloc_flags`, mm/page_alloc.c, v6.12.
//! Departs: the bits are this crate's own, since kernels number theirs differently; traces and kernel
//! files speak of them by name.

use crate::types::{Migratetype, Order, ZoneKind};
use core::ops::{BitOr, BitOrAssign};

/// A set of request flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Gfp(pub u32);

macro_rules! gfp_bits {
    ($($(#[$doc:meta])* $name:ident = $bit:literal, $text:literal;)*) => {
        impl Gfp {
            $($(#[$doc])* pub const $name: Self = Self(1 << $bit);)*
            const NAMED: &'static [(&'static str, Self)] = &[$(($text, Self::$name)),*];
        }
    };
}

gfp_bits! {
    /// From the first 16 MiB.
    DMA = 0, "__GFP_DMA";
    /// May lie in high memory (on x86-64: Normal).
    HIGHMEM = 1, "__GFP_HIGHMEM";
    /// From below 4 GiB.
    DMA32 = 2, "__GFP_DMA32";
    /// Can be migrated.
    MOVABLE = 3, "__GFP_MOVABLE";
    /// Can be freed by a shrinker.
    RECLAIMABLE = 4, "__GFP_RECLAIMABLE";
    /// May dip into the reserves.
    HIGH = 5, "__GFP_HIGH";
    /// May start I/O.
    IO = 6, "__GFP_IO";
    /// May call into file systems.
    FS = 7, "__GFP_FS";
    /// To be cleared.
    ZERO = 8, "__GFP_ZERO";
    /// May reclaim and compact itself.
    DIRECT_RECLAIM = 9, "__GFP_DIRECT_RECLAIM";
    /// May wake kswapd.
    KSWAPD_RECLAIM = 10, "__GFP_KSWAPD_RECLAIM";
    /// Will be dirtied.
    WRITE = 11, "__GFP_WRITE";
    /// No warning on failure.
    NOWARN = 12, "__GFP_NOWARN";
    /// Try hard, but fail at last.
    RETRY_MAYFAIL = 13, "__GFP_RETRY_MAYFAIL";
    /// Never fail.
    NOFAIL = 14, "__GFP_NOFAIL";
    /// Do not try hard.
    NORETRY = 15, "__GFP_NORETRY";
    /// May use all memory.
    MEMALLOC = 16, "__GFP_MEMALLOC";
    /// A compound page.
    COMP = 17, "__GFP_COMP";
    /// Must not use the reserves.
    NOMEMALLOC = 18, "__GFP_NOMEMALLOC";
    /// Within the cpuset.
    HARDWALL = 19, "__GFP_HARDWALL";
    /// From this node alone.
    THISNODE = 20, "__GFP_THISNODE";
    /// Charged to a control group.
    ACCOUNT = 21, "__GFP_ACCOUNT";
    /// Cannot wait and is important (before 6.4).
    ATOMIC = 22, "__GFP_ATOMIC";
    /// Expected to be cold (before 4.15).
    COLD = 23, "__GFP_COLD";
    /// May be repeated (before 4.13).
    REPEAT = 24, "__GFP_REPEAT";
    /// Memory tags are to be cleared; of no consequence here.
    ZEROTAGS = 25, "__GFP_ZEROTAGS";
    /// No object extensions; of no consequence here.
    NO_OBJ_EXT = 26, "__GFP_NO_OBJ_EXT";
    /// Not tracked by kmemcheck (before 4.15); of no consequence here.
    NOTRACK = 27, "__GFP_NOTRACK";
    /// For another node's use (before 4.9); of no consequence here.
    OTHER_NODE = 28, "__GFP_OTHER_NODE";
    /// Lock dependency is not checked; of no consequence here.
    NOLOCKDEP = 29, "__GFP_NOLOCKDEP";
    /// Not to be poisoned by tag-based sanitizers; of no consequence here.
    SKIP_KASAN = 30, "__GFP_SKIP_KASAN";
}

impl BitOr for Gfp {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Gfp {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl Gfp {
    /// No flag at all.
    pub const NONE: Self = Self(0);
    /// Both ways of reclaim.
    pub const RECLAIM: Self = Self(Self::DIRECT_RECLAIM.0 | Self::KSWAPD_RECLAIM.0);
    /// Ordinary kernel memory.
    pub const KERNEL: Self = Self(Self::RECLAIM.0 | Self::IO.0 | Self::FS.0);
    /// Kernel memory from a context that cannot wait.
    pub const GFP_ATOMIC: Self = Self(Self::HIGH.0 | Self::KSWAPD_RECLAIM.0);
    /// Kernel memory that may fail rather than wait.
    pub const NOWAIT: Self = Self::KSWAPD_RECLAIM;
    /// User memory the kernel maps too.
    pub const USER: Self = Self(Self::KERNEL.0 | Self::HARDWALL.0);
    /// User memory.
    pub const HIGHUSER: Self = Self(Self::USER.0 | Self::HIGHMEM.0);
    /// User memory that can migrate: anonymous pages, page cache.
    pub const HIGHUSER_MOVABLE: Self = Self(Self::HIGHUSER.0 | Self::MOVABLE.0);
    /// A huge page, without any reclaim.
    pub const TRANSHUGE_LIGHT: Self = Self(
        Self::HIGHUSER_MOVABLE.0 & !Self::RECLAIM.0
            | Self::COMP.0
            | Self::NOMEMALLOC.0
            | Self::NOWARN.0,
    );
    /// A huge page that may reclaim directly.
    pub const TRANSHUGE: Self = Self(Self::TRANSHUGE_LIGHT.0 | Self::DIRECT_RECLAIM.0);

    /// Whether every flag of `other` is set.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any flag of `other` is set.
    #[inline]
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The flags that the kernel prints as `name`: one of its own bits or one of its compositions.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "GFP_KERNEL" => Self::KERNEL,
            "GFP_KERNEL_ACCOUNT" => Self::KERNEL | Self::ACCOUNT,
            "GFP_ATOMIC" => Self::GFP_ATOMIC,
            "GFP_NOWAIT" => Self::NOWAIT,
            "GFP_NOIO" => Self::RECLAIM,
            "GFP_NOFS" => Self::RECLAIM | Self::IO,
            "GFP_TEMPORARY" => Self::KERNEL | Self::RECLAIMABLE,
            "GFP_USER" => Self::USER,
            "GFP_DMA" => Self::DMA,
            "GFP_DMA32" => Self::DMA32,
            "GFP_HIGHUSER" => Self::HIGHUSER,
            "GFP_HIGHUSER_MOVABLE" => Self::HIGHUSER_MOVABLE,
            "GFP_TRANSHUGE" => Self::TRANSHUGE,
            "GFP_TRANSHUGE_LIGHT" => Self::TRANSHUGE_LIGHT,
            "__GFP_RECLAIM" => Self::RECLAIM,
            "__GFP_WAIT" => Self::DIRECT_RECLAIM,
            "__GFP_SKIP_ZERO" | "__GFP_SKIP_KASAN_POISON" | "__GFP_SKIP_KASAN_UNPOISON" => {
                Self::SKIP_KASAN
            }
            "none" | "0" => Self::NONE,
            _ => return Self::NAMED.iter().find(|(n, _)| *n == name).map(|&(_, bit)| bit),
        })
    }

    /// The names of its bits.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMED.iter().filter(move |(_, bit)| self.contains(*bit)).map(|&(name, _)| name)
    }

    /// The highest zone the request may use (`gfp_zone`).
    #[inline]
    #[must_use]
    pub const fn highest_zone(self) -> ZoneKind {
        if self.contains(Self::DMA) {
            ZoneKind::Dma
        } else if self.contains(Self::DMA32) {
            ZoneKind::Dma32
        } else if self.contains(Self(Self::HIGHMEM.0 | Self::MOVABLE.0)) {
            ZoneKind::Movable
        } else {
            ZoneKind::Normal
        }
    }

    /// The mobility of what is asked for (`gfp_migratetype`).
    #[inline]
    #[must_use]
    pub const fn migratetype(self) -> Migratetype {
        if self.contains(Self::MOVABLE) {
            Migratetype::Movable
        } else if self.contains(Self::RECLAIMABLE) {
            Migratetype::Reclaimable
        } else {
            Migratetype::Unmovable
        }
    }
}

/// What an attempt may do, derived from the request and from how far the slow path has come
/// (`ALLOC_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AllocFlags(pub u16);

impl AllocFlags {
    /// Nothing special.
    pub const NONE: Self = Self(0);
    /// No watermark at all.
    pub const NO_WATERMARKS: Self = Self(1 << 0);
    /// Below the min mark by a half (`__GFP_HIGH`).
    pub const MIN_RESERVE: Self = Self(1 << 1);
    /// Cannot wait: with `MIN_RESERVE` a further quarter; may take from the highatomic reserve when all
    /// else fails.
    pub const NON_BLOCK: Self = Self(1 << 2);
    /// Takes from the highatomic reserve first, and builds it.
    pub const HIGHATOMIC: Self = Self(1 << 3);
    /// The victim of the OOM killer.
    pub const OOM: Self = Self(1 << 4);
    /// Rather another zone than a mixed pageblock.
    pub const NOFRAGMENT: Self = Self(1 << 5);
    /// May wake kswapd.
    pub const KSWAPD: Self = Self(1 << 6);
    /// Only zones of the preferred node whose share is not used up (before 4.8).
    pub const FAIR: Self = Self(1 << 7);
    /// A page that is in no cache will do (`__GFP_COLD`, before 4.15).
    pub const COLD: Self = Self(1 << 8);
    /// Would rather wait than mix pageblocks for a small block (posted in November 2018).
    pub const FRAGMENT_STALL: Self = Self(1 << 9);

    /// With the flags of `other` too.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Without the flags of `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether any flag of `other` is set.
    #[inline]
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Flags of the first walk, at the low mark.
    #[inline]
    #[must_use]
    pub const fn fast_path(gfp: Gfp) -> Self {
        if gfp.contains(Gfp::KSWAPD_RECLAIM) { Self::KSWAPD } else { Self::NONE }
    }

    /// Flags of the slow path, at the min mark (`gfp_to_alloc_flags`, without memalloc contexts).
    #[must_use]
    pub const fn slow_path(gfp: Gfp, order: Order) -> Self {
        let mut flags = Self::fast_path(gfp);
        if gfp.contains(Gfp::HIGH) {
            flags = flags.with(Self::MIN_RESERVE);
        }
        if !gfp.contains(Gfp::DIRECT_RECLAIM) && !gfp.contains(Gfp::NOMEMALLOC) {
            flags = flags.with(Self::NON_BLOCK);
            if order.0 > 0 && flags.intersects(Self::MIN_RESERVE) {
                flags = flags.with(Self::HIGHATOMIC);
            }
        }
        flags
    }
}
