//! `gfp_flags` as text: the names the kernel prints and the set of flags they stand for.
//!
//! Models: include/trace/events/mmflags.h (`show_gfp_flags`), v6.12. Single flags have kept
//! their meaning under their names; the bits behind them have not, so bits here are our own. A
//! name for several flags (`GFP_KERNEL`) stands for what it does on v6.12: older kernels' own
//! `GFP_ATOMIC` held one flag more, their `GFP_NOWAIT` one less.

use std::fmt;
use std::str::FromStr;

/// A set of allocation flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GfpFlags {
    known: u64,
    unknown: u64,
}

/// A name in `gfp_flags` that this crate does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}, expected the name of an allocation flag")]
pub struct UnknownGfp(pub String);

macro_rules! single {
    ($($bit:literal $name:ident $text:literal $doc:literal)*) => {
        impl GfpFlags {
            $(#[doc = $doc] pub const $name: GfpFlags = GfpFlags { known: 1 << $bit, unknown: 0 };)*
        }
        /// The single flags by name.
        const SINGLE: &[(&str, GfpFlags)] = &[$(($text, GfpFlags::$name)),*];
    };
}

single! {
    0 DMA "__GFP_DMA" "From the DMA zone."
    1 HIGHMEM "__GFP_HIGHMEM" "From high memory if there is."
    2 DMA32 "__GFP_DMA32" "From the DMA32 zone."
    3 MOVABLE "__GFP_MOVABLE" "Can be migrated."
    4 RECLAIMABLE "__GFP_RECLAIMABLE" "Slab that shrinkers can free."
    5 HIGH "__GFP_HIGH" "May dip below the min watermark."
    6 IO "__GFP_IO" "May start physical I/O."
    7 FS "__GFP_FS" "May call into file systems."
    8 ZERO "__GFP_ZERO" "Cleared."
    10 DIRECT_RECLAIM "__GFP_DIRECT_RECLAIM" "The caller may reclaim itself."
    11 KSWAPD_RECLAIM "__GFP_KSWAPD_RECLAIM" "May wake kswapd."
    12 WRITE "__GFP_WRITE" "About to be dirtied."
    13 NOWARN "__GFP_NOWARN" "Fails silently."
    14 RETRY_MAYFAIL "__GFP_RETRY_MAYFAIL" "Tries hard, may fail (`__GFP_REPEAT` until v4.13)."
    15 NOFAIL "__GFP_NOFAIL" "Never fails."
    16 NORETRY "__GFP_NORETRY" "Gives up early."
    17 MEMALLOC "__GFP_MEMALLOC" "May use all reserves."
    18 COMP "__GFP_COMP" "A compound page."
    19 NOMEMALLOC "__GFP_NOMEMALLOC" "May not use the emergency reserves."
    20 HARDWALL "__GFP_HARDWALL" "Stays within the cpuset."
    21 THISNODE "__GFP_THISNODE" "Only from the node asked for."
    22 ACCOUNT "__GFP_ACCOUNT" "Charged to the memory control group."
    23 ZEROTAGS "__GFP_ZEROTAGS" "Clears memory tags too."
    24 NO_OBJ_EXT "__GFP_NO_OBJ_EXT" "Without object extensions."
    25 SKIP_ZERO "__GFP_SKIP_ZERO" "Not cleared by hardware tagging."
    26 SKIP_KASAN "__GFP_SKIP_KASAN" "Not tracked by KASAN."
    27 NOLOCKDEP "__GFP_NOLOCKDEP" "Not tracked by lockdep."
    28 ATOMIC "__GFP_ATOMIC" "Cannot sleep (v4.4 to v6.2)."
    29 COLD "__GFP_COLD" "Cache-cold pages will do (until v4.14)."
    30 NOTRACK "__GFP_NOTRACK" "Not tracked by kmemcheck (until v4.14)."
    31 OTHER_NODE "__GFP_OTHER_NODE" "On behalf of another node (until v4.13)."
    32 NO_KSWAPD "__GFP_NO_KSWAPD" "Does not wake kswapd (v3.0 to v4.3)."
}

/// `__GFP_RECLAIM`: both kinds of reclaim.
const RECLAIM: u64 = GfpFlags::DIRECT_RECLAIM.known | GfpFlags::KSWAPD_RECLAIM.known;
const NOFS: u64 = RECLAIM | GfpFlags::IO.known;
const KERNEL: u64 = NOFS | GfpFlags::FS.known;
const USER: u64 = KERNEL | GfpFlags::HARDWALL.known;
const HIGHUSER: u64 = USER | GfpFlags::HIGHMEM.known;
const HIGHUSER_MOVABLE: u64 = HIGHUSER | GfpFlags::MOVABLE.known;
const TRANSHUGE_LIGHT: u64 =
    (HIGHUSER_MOVABLE | GfpFlags::COMP.known | GfpFlags::NOMEMALLOC.known | GfpFlags::NOWARN.known)
        & !RECLAIM;
const TRANSHUGE: u64 = TRANSHUGE_LIGHT | GfpFlags::DIRECT_RECLAIM.known;

/// All names v6.12 prints, in the order it tries them; flags of other kernels follow.
const PRINTED: &[(&str, u64)] = &[
    ("GFP_TRANSHUGE", TRANSHUGE),
    ("GFP_TRANSHUGE_LIGHT", TRANSHUGE_LIGHT),
    ("GFP_HIGHUSER_MOVABLE", HIGHUSER_MOVABLE),
    ("GFP_HIGHUSER", HIGHUSER),
    ("GFP_USER", USER),
    ("GFP_KERNEL_ACCOUNT", KERNEL | GfpFlags::ACCOUNT.known),
    ("GFP_KERNEL", KERNEL),
    ("GFP_NOFS", NOFS),
    ("GFP_ATOMIC", GfpFlags::HIGH.known | GfpFlags::KSWAPD_RECLAIM.known),
    ("GFP_NOIO", RECLAIM),
    ("GFP_NOWAIT", GfpFlags::KSWAPD_RECLAIM.known | GfpFlags::NOWARN.known),
    ("GFP_DMA", GfpFlags::DMA.known),
    ("__GFP_HIGHMEM", GfpFlags::HIGHMEM.known),
    ("GFP_DMA32", GfpFlags::DMA32.known),
    ("__GFP_HIGH", GfpFlags::HIGH.known),
    ("__GFP_IO", GfpFlags::IO.known),
    ("__GFP_FS", GfpFlags::FS.known),
    ("__GFP_NOWARN", GfpFlags::NOWARN.known),
    ("__GFP_RETRY_MAYFAIL", GfpFlags::RETRY_MAYFAIL.known),
    ("__GFP_NOFAIL", GfpFlags::NOFAIL.known),
    ("__GFP_NORETRY", GfpFlags::NORETRY.known),
    ("__GFP_COMP", GfpFlags::COMP.known),
    ("__GFP_ZERO", GfpFlags::ZERO.known),
    ("__GFP_NOMEMALLOC", GfpFlags::NOMEMALLOC.known),
    ("__GFP_MEMALLOC", GfpFlags::MEMALLOC.known),
    ("__GFP_HARDWALL", GfpFlags::HARDWALL.known),
    ("__GFP_THISNODE", GfpFlags::THISNODE.known),
    ("__GFP_RECLAIMABLE", GfpFlags::RECLAIMABLE.known),
    ("__GFP_MOVABLE", GfpFlags::MOVABLE.known),
    ("__GFP_ACCOUNT", GfpFlags::ACCOUNT.known),
    ("__GFP_WRITE", GfpFlags::WRITE.known),
    ("__GFP_RECLAIM", RECLAIM),
    ("__GFP_DIRECT_RECLAIM", GfpFlags::DIRECT_RECLAIM.known),
    ("__GFP_KSWAPD_RECLAIM", GfpFlags::KSWAPD_RECLAIM.known),
    ("__GFP_ZEROTAGS", GfpFlags::ZEROTAGS.known),
];

/// Names only older kernels print.
const FORMER: &[(&str, GfpFlags)] = &[
    ("__GFP_REPEAT", GfpFlags::RETRY_MAYFAIL),
    ("GFP_REPEAT", GfpFlags::RETRY_MAYFAIL),
    ("__GFP_WAIT", GfpFlags::DIRECT_RECLAIM),
    ("GFP_WAIT", GfpFlags::DIRECT_RECLAIM),
    ("GFP_TEMPORARY", GfpFlags { known: KERNEL | GfpFlags::RECLAIMABLE.known, unknown: 0 }),
];

impl GfpFlags {
    /// Returns whether all of `flags` are set.
    pub fn contains(self, flags: GfpFlags) -> bool {
        self.known & flags.known == flags.known && self.unknown & flags.unknown == flags.unknown
    }

    /// Returns the bits the kernel had no name for; their meaning depends on that kernel.
    pub fn unnamed_bits(self) -> u64 {
        self.unknown
    }

    /// Parses the text after `gfp_flags=`.
    ///
    /// # Errors
    /// [`UnknownGfp`] is the first name that is not known.
    pub fn from_bytes(text: &[u8]) -> Result<GfpFlags, UnknownGfp> {
        if text == b"none" {
            return Ok(GfpFlags::default());
        }
        let mut flags = GfpFlags::default();
        for word in text.split(|&b| b == b'|') {
            flags = flags | one(word)?;
        }
        Ok(flags)
    }
}

fn one(word: &[u8]) -> Result<GfpFlags, UnknownGfp> {
    let printed = PRINTED.iter().find(|(name, _)| name.as_bytes() == word);
    if let Some((_, known)) = printed {
        return Ok(GfpFlags { known: *known, unknown: 0 });
    }
    // Before v4.6 single flags were printed without their underscores.
    let is_it = |name: &str| name.as_bytes() == word || &name.as_bytes()[2..] == word;
    if let Some((_, flag)) = SINGLE.iter().find(|(name, _)| is_it(name)) {
        return Ok(*flag);
    }
    if let Some((_, flag)) = FORMER.iter().find(|(name, _)| name.as_bytes() == word) {
        return Ok(*flag);
    }
    let text = String::from_utf8_lossy(word);
    let bits = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    bits.map(|unknown| GfpFlags { known: 0, unknown })
        .ok_or_else(|| UnknownGfp(format!("`{text}`")))
}

impl FromStr for GfpFlags {
    type Err = UnknownGfp;
    fn from_str(text: &str) -> Result<GfpFlags, UnknownGfp> {
        GfpFlags::from_bytes(text.as_bytes())
    }
}

impl std::ops::BitOr for GfpFlags {
    type Output = GfpFlags;
    fn bitor(self, other: GfpFlags) -> GfpFlags {
        GfpFlags { known: self.known | other.known, unknown: self.unknown | other.unknown }
    }
}

impl fmt::Display for GfpFlags {
    /// Writes the flags as v6.12 does: each flag once, under the first name that fits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.known;
        let mut gap = "";
        let printed = PRINTED.iter().copied();
        for (name, flags) in printed.chain(SINGLE.iter().map(|(name, flag)| (*name, flag.known))) {
            if rest & flags == flags {
                write!(f, "{gap}{name}")?;
                rest &= !flags;
                gap = "|";
            }
        }
        if self.unknown != 0 {
            write!(f, "{gap}{:#x}", self.unknown)?;
        } else if self.known == 0 {
            f.write_str("none")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_flags_and_flags_the_same_names() {
        for text in [
            "GFP_KERNEL_ACCOUNT|__GFP_ZERO",
            "GFP_TRANSHUGE|__GFP_NORETRY|__GFP_THISNODE",
            "GFP_TRANSHUGE_LIGHT|__GFP_KSWAPD_RECLAIM",
            "GFP_HIGHUSER_MOVABLE|__GFP_COMP|__GFP_ZERO",
            "GFP_NOFS|__GFP_HIGHMEM|__GFP_NOWARN|__GFP_NORETRY|__GFP_COMP|__GFP_HARDWALL|__GFP_MOVABLE",
            "GFP_ATOMIC|0x8000000",
            "none",
        ] {
            let flags: GfpFlags = text.parse().unwrap();
            assert_eq!(flags.to_string(), text);
        }
    }

    #[test]
    fn huge_page_flags_are_what_they_stand_for() {
        let light: GfpFlags = "GFP_TRANSHUGE_LIGHT".parse().unwrap();
        assert!(light.contains(GfpFlags::MOVABLE | GfpFlags::COMP | GfpFlags::HIGHMEM));
        assert!(!light.contains(GfpFlags::DIRECT_RECLAIM));
        let full: GfpFlags = "GFP_TRANSHUGE".parse().unwrap();
        assert!(
            full.contains(GfpFlags::DIRECT_RECLAIM) && !full.contains(GfpFlags::KSWAPD_RECLAIM)
        );
    }

    #[test]
    fn older_names_are_understood_and_unknown_ones_are_not() {
        let old: GfpFlags = "GFP_KERNEL|GFP_REPEAT|GFP_ZERO|GFP_NO_KSWAPD".parse().unwrap();
        assert!(old.contains(GfpFlags::RETRY_MAYFAIL | GfpFlags::ZERO | GfpFlags::NO_KSWAPD));
        let error = "GFP_KERNEL|__GFP_SURPRISE".parse::<GfpFlags>().unwrap_err();
        assert_eq!(error.to_string(), "`__GFP_SURPRISE`, expected the name of an allocation flag");
        assert_eq!("0x40".parse::<GfpFlags>().unwrap().unnamed_bits(), 0x40);
    }
}
