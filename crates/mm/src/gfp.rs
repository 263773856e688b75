//! Request flags and what they mean for zone, migratetype and watermarks.
//!
//! Models: include/linux/gfp_types.h and `gfp_to_alloc_flags`, mm/page_alloc.c, v6.12.
//! Departs: the bits are this crate's own, since kernels number theirs differently; traces and kernel
//! files speak of them by name.

use crate::types::{Migratetype, Order, ZoneKind};
use bitflags::bitflags;
use std_alloc::format;
use std_alloc::string::String;

bitflags! {
    /// A set of request flags, each called as the kernel calls it, without `__GFP_`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
    pub struct Gfp: u32 {
        /// From the first 16 MiB.
        const DMA = 1 << 0;
        /// May lie in high memory (on x86-64: Normal).
        const HIGHMEM = 1 << 1;
        /// From below 4 GiB.
        const DMA32 = 1 << 2;
        /// Can be migrated.
        const MOVABLE = 1 << 3;
        /// Can be freed by a shrinker.
        const RECLAIMABLE = 1 << 4;
        /// May dip into the reserves.
        const HIGH = 1 << 5;
        /// May start I/O.
        const IO = 1 << 6;
        /// May call into file systems.
        const FS = 1 << 7;
        /// To be cleared.
        const ZERO = 1 << 8;
        /// May reclaim and compact itself.
        const DIRECT_RECLAIM = 1 << 9;
        /// May wake kswapd.
        const KSWAPD_RECLAIM = 1 << 10;
        /// Will be dirtied.
        const WRITE = 1 << 11;
        /// No warning on failure.
        const NOWARN = 1 << 12;
        /// Try hard, but fail at last.
        const RETRY_MAYFAIL = 1 << 13;
        /// Never fail.
        const NOFAIL = 1 << 14;
        /// Do not try hard.
        const NORETRY = 1 << 15;
        /// May use all memory.
        const MEMALLOC = 1 << 16;
        /// A compound page.
        const COMP = 1 << 17;
        /// Must not use the reserves.
        const NOMEMALLOC = 1 << 18;
        /// Within the cpuset.
        const HARDWALL = 1 << 19;
        /// From this node alone.
        const THISNODE = 1 << 20;
        /// Charged to a control group.
        const ACCOUNT = 1 << 21;
        /// Cannot wait and is important (before 6.4).
        const ATOMIC = 1 << 22;
        /// Expected to be cold (before 4.15).
        const COLD = 1 << 23;
        /// May be repeated (before 4.13).
        const REPEAT = 1 << 24;
        /// Memory tags are to be cleared; of no consequence here.
        const ZEROTAGS = 1 << 25;
        /// No object extensions; of no consequence here.
        const NO_OBJ_EXT = 1 << 26;
        /// Not tracked by kmemcheck (before 4.15); of no consequence here.
        const NOTRACK = 1 << 27;
        /// For another node's use (before 4.9); of no consequence here.
        const OTHER_NODE = 1 << 28;
        /// Lock dependency is not checked; of no consequence here.
        const NOLOCKDEP = 1 << 29;
        /// Not to be poisoned by tag-based sanitizers; of no consequence here.
        const SKIP_KASAN = 1 << 30;
    }
}

impl Gfp {
    /// No flag at all.
    pub const NONE: Self = Self::empty();
    /// Both ways of reclaim.
    pub const RECLAIM: Self = Self::DIRECT_RECLAIM.union(Self::KSWAPD_RECLAIM);
    /// Ordinary kernel memory.
    pub const KERNEL: Self = Self::RECLAIM.union(Self::IO).union(Self::FS);
    /// Kernel memory from a context that cannot wait.
    pub const GFP_ATOMIC: Self = Self::HIGH.union(Self::KSWAPD_RECLAIM);
    /// Kernel memory that may fail rather than wait.
    pub const NOWAIT: Self = Self::KSWAPD_RECLAIM;
    /// User memory the kernel maps too.
    pub const USER: Self = Self::KERNEL.union(Self::HARDWALL);
    /// User memory.
    pub const HIGHUSER: Self = Self::USER.union(Self::HIGHMEM);
    /// User memory that can migrate: anonymous pages, page cache.
    pub const HIGHUSER_MOVABLE: Self = Self::HIGHUSER.union(Self::MOVABLE);
    /// A huge page, without any reclaim.
    pub const TRANSHUGE_LIGHT: Self = Self::HIGHUSER_MOVABLE
        .difference(Self::RECLAIM)
        .union(Self::COMP)
        .union(Self::NOMEMALLOC)
        .union(Self::NOWARN);
    /// A huge page that may reclaim directly.
    pub const TRANSHUGE: Self = Self::TRANSHUGE_LIGHT.union(Self::DIRECT_RECLAIM);

    /// The flags that the kernel prints as `name`: one of its own bits or one of its compositions.
    #[must_use]
    pub fn from_kernel_name(name: &str) -> Option<Self> {
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
            _ => return Self::from_name(name.strip_prefix("__GFP_")?),
        })
    }

    /// The names of its bits, as the kernel prints them.
    pub fn kernel_names(self) -> impl Iterator<Item = String> {
        self.iter_names().map(|(name, _)| format!("__GFP_{name}"))
    }

    /// The highest zone the request may use (`gfp_zone`).
    #[inline]
    #[must_use]
    pub const fn highest_zone(self) -> ZoneKind {
        if self.contains(Self::DMA) {
            ZoneKind::Dma
        } else if self.contains(Self::DMA32) {
            ZoneKind::Dma32
        } else if self.contains(Self::HIGHMEM.union(Self::MOVABLE)) {
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

bitflags! {
    /// What an attempt may do, derived from the request and from how far the slow path has come
    /// (`ALLOC_*`).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct AllocFlags: u16 {
        /// No watermark at all.
        const NO_WATERMARKS = 1 << 0;
        /// Below the min mark by a half (`__GFP_HIGH`).
        const MIN_RESERVE = 1 << 1;
        /// Cannot wait: with `MIN_RESERVE` a further quarter; may take from the highatomic reserve when all
        /// else fails.
        const NON_BLOCK = 1 << 2;
        /// Takes from the highatomic reserve first, and builds it.
        const HIGHATOMIC = 1 << 3;
        /// The victim of the OOM killer.
        const OOM = 1 << 4;
        /// Rather another zone than a mixed pageblock.
        const NOFRAGMENT = 1 << 5;
        /// May wake kswapd.
        const KSWAPD = 1 << 6;
        /// Only zones of the preferred node whose share is not used up (before 4.8).
        const FAIR = 1 << 7;
        /// A page that is in no cache will do (`__GFP_COLD`, before 4.15).
        const COLD = 1 << 8;
        /// Would rather wait than mix pageblocks for a small block (posted in November 2018).
        const FRAGMENT_STALL = 1 << 9;
    }
}

impl AllocFlags {
    /// Nothing special.
    pub const NONE: Self = Self::empty();

    /// Flags of the first walk, at the low mark.
    #[inline]
    #[must_use]
    pub const fn fast_path(gfp: Gfp) -> Self {
        if gfp.contains(Gfp::KSWAPD_RECLAIM) { Self::KSWAPD } else { Self::NONE }
    }

    /// Flags of the slow path, at the min mark (`gfp_to_alloc_flags`, without memalloc contexts).
    #[doc(alias = "gfp_to_alloc_flags")]
    #[must_use]
    pub const fn slow_path(gfp: Gfp, order: Order) -> Self {
        let mut flags = Self::fast_path(gfp);
        if gfp.contains(Gfp::HIGH) {
            flags = flags.union(Self::MIN_RESERVE);
        }
        if !gfp.contains(Gfp::DIRECT_RECLAIM) && !gfp.contains(Gfp::NOMEMALLOC) {
            flags = flags.union(Self::NON_BLOCK);
            if order.0 > 0 && flags.intersects(Self::MIN_RESERVE) {
                flags = flags.union(Self::HIGHATOMIC);
            }
        }
        flags
    }
}
