//! What there is to say of each knob that the model has: what it is, in which unit, and what a kernel makes of it.
//!
//! Models: Documentation/admin-guide/sysctl/vm.rst and kernel.rst, Documentation/admin-guide/mm/transhuge.rst,
//! v6.12, of which the bounds are those of kernel/sysctl.c and mm/huge_memory.c.

use super::settings::Settings;
use crate::knob_scaling::{SPEED, Scaling};
use highorder_mm::policy::Policy;
use highorder_sim::kernel::Flows;

/// A knob that the model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knob {
    /// Its name: `vm.swappiness` for `/proc/sys/vm/swappiness`, or its path below `/sys/kernel/mm`.
    pub name: &'static str,
    /// What it does, in a sentence or two.
    pub about: &'static str,
    /// In what it is counted; empty for words and bits.
    pub unit: &'static str,
    /// The release that brought it, where some kernel file describes an older one.
    pub since: Option<(u32, u32)>,
    /// What it takes.
    pub(super) values: Values,
    /// What becomes of it where there is less memory.
    scaling: Scaling,
}

/// Whether one of these knobs says where a zone's marks are.
pub fn sets_marks<'a>(names: impl IntoIterator<Item = &'a String>) -> bool {
    names
        .into_iter()
        .any(|name| matches!(name.as_str(), "vm.min_free_kbytes" | "vm.watermark_scale_factor"))
}

/// What a knob takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Values {
    /// A whole number from the first to the last.
    Number(u64, u64),
    /// One of the words that the kernel knows.
    Words,
}

/// A knob as a kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnobValue {
    /// What it is at boot; `None` where the kernel computes it from the machine's memory.
    pub default: Option<String>,
    /// What it takes.
    pub allowed: String,
}

/// A number of milliseconds of 32 bits.
const MILLIS: Values = Values::Number(0, u32::MAX as u64);
/// Entries of a page table of which one may be left.
const ENTRIES: Values = Values::Number(0, 511);
/// The least `vm.min_free_kbytes`.
const MIN_FREE_KIB_LEAST: u64 = 128;
const FLAG: Values = Values::Number(0, 1);
const PERCENT: Values = Values::Number(0, 100);
/// A number of hundredths of a second of 31 bits.
const CENTISECS: Values = Values::Number(0, i32::MAX as u64);
/// The least `vm.dirty_bytes`: two pages (mm/page-writeback.c, dirty_bytes_min).
const DIRTY_BYTES_LEAST: u64 = 8192;

/// The knobs, as they are listed.
pub(super) const KNOBS: [Knob; 29] = [
    Knob {
        name: "vm.swappiness",
        about: "How much reclaim prefers swapping anonymous pages to dropping file pages; 0: hardly ever swap.",
        unit: "relative cost",
        since: None,
        values: Values::Number(0, 200),
        // A weight.
        scaling: Scaling::Stays,
    },
    Knob {
        name: "vm.page-cluster",
        about: "Pages that are read from swap at a time, as a power of two.",
        unit: "order",
        since: None,
        values: Values::Number(0, 5),
        // Pages of one transfer: sizes of single calls stay.
        scaling: Scaling::Stays,
    },
    Knob {
        name: "vm.min_free_kbytes",
        about: "Free memory that is kept for requests that cannot wait; the watermarks of all zones follow from it.",
        unit: "KiB",
        since: None,
        values: Values::Number(MIN_FREE_KIB_LEAST, 1 << 32),
        // The kernel's own value grows with the root of memory; one that was set is a share of memory, and stays that
        // share. Below 128 KiB the kernel never goes by itself (mm/page_alloc.c, calculate_min_free_kbytes).
        scaling: Scaling::Memory { least: MIN_FREE_KIB_LEAST },
    },
    Knob {
        name: "vm.watermark_scale_factor",
        about: "How far a zone's low and high watermarks lie apart: where kswapd wakes and where it stops.",
        unit: "parts of 10,000 of a zone's memory",
        since: Some((4, 6)),
        values: Values::Number(1, 3000),
        // Of 10000 parts of a zone.
        scaling: Scaling::Stays,
    },
    Knob {
        name: "vm.watermark_boost_factor",
        about: "By how much a fallback to another type's pageblock raises the watermarks at most; 0: not at all.",
        unit: "parts of 10,000 of the high watermark",
        // Kernel files say so: patches to older kernels have it.
        since: None,
        values: Values::Number(0, 1_000_000),
        // Of 10000 parts of a mark.
        scaling: Scaling::Stays,
    },
    Knob {
        name: "vm.fragment_stall_order",
        about: "Below which order a movable request would rather wait for kswapd than take a block of another type; \
                0: below none, but it waits all the same where nothing is free.",
        unit: "order",
        since: None,
        values: Values::Number(0, 11),
        // An order.
        scaling: Scaling::Stays,
    },
    Knob {
        name: "vm.zone_reclaim_mode",
        about: "Whether a node is reclaimed before another one is asked: the sum of 1 (reclaim), 2 (write dirty \
                pages), 4 (swap) and 8 (which nothing reads).",
        unit: "",
        since: None,
        values: Values::Number(0, 15),
        // A mode.
        scaling: Scaling::Stays,
    },
    Knob {
        name: "vm.min_unmapped_ratio",
        about: "How much of a node files that nobody maps may keep: with fewer of them the node is not reclaimed.",
        unit: "percent",
        since: None,
        values: PERCENT,
        // Percent.
        scaling: Scaling::Stays,
    },
    Knob {
        name: "vm.vfs_cache_pressure",
        about: "How many of 100 unused names and inodes shrinkers are told of: 0 keeps all, 200 gives up twice as many.",
        unit: "percent",
        since: None,
        // Kernels take more: what a thousand times as many objects as there are means is nobody's question.
        values: Values::Number(0, 100_000),
        // A weight.
        scaling: Scaling::Stays,
    },
    Knob {
        name: "vm.dirty_ratio",
        about: "From how much dirty memory on writers wait; setting it takes vm.dirty_bytes back.",
        unit: "percent of what is free or files'",
        since: None,
        values: PERCENT,
        // Percent.
        scaling: Scaling::Stays,
    },
    Knob {
        name: "vm.dirty_bytes",
        about: "The same in bytes; it reads 0 where vm.dirty_ratio says how much. Setting it makes that 0.",
        unit: "bytes",
        since: None,
        values: Values::Number(DIRTY_BYTES_LEAST, 1 << 42),
        // What is set is a share of memory.
        scaling: Scaling::Memory { least: DIRTY_BYTES_LEAST },
    },
    Knob {
        name: "vm.dirty_background_ratio",
        about: "From how much dirty memory on flushers write; setting it takes vm.dirty_background_bytes back.",
        unit: "percent of what is free or files'",
        since: None,
        values: PERCENT,
        // Percent.
        scaling: Scaling::Stays,
    },
    Knob {
        name: "vm.dirty_background_bytes",
        about: "The same in bytes; it reads 0 where vm.dirty_background_ratio says how much. Setting it makes that 0.",
        unit: "bytes",
        since: None,
        values: Values::Number(1, 1 << 42),
        // What is set is a share of memory.
        scaling: Scaling::Memory { least: 1 },
    },
    Knob {
        name: "vm.dirty_writeback_centisecs",
        about: "How often flushers look for pages that have been dirty for long; 0: never.",
        unit: "1/100 s",
        since: None,
        values: CENTISECS,
        // Times stay.
        scaling: Scaling::Stays,
    },
    Knob {
        name: "vm.dirty_expire_centisecs",
        about: "How long pages are dirty before flushers write them for that.",
        unit: "1/100 s",
        since: None,
        values: CENTISECS,
        // Times stay.
        scaling: Scaling::Stays,
    },
    Knob {
        name: "kernel.numa_balancing",
        about: "Whether pages move to the node whose CPUs use them; 1: they do.",
        unit: "",
        since: Some((3, 8)),
        values: FLAG,
        // A mode.
        scaling: Scaling::Stays,
    },
    Knob {
        name: "vm.extfrag_threshold",
        about: "From which fragmentation index on a failure is put down to fragmentation, which compaction mends, \
                and not to a lack of memory, which reclaim mends.",
        unit: "thousandths",
        since: None,
        values: Values::Number(0, 1000),
        // An index that counts blocks against requests.
        scaling: Scaling::Stays,
    },
    Knob {
        name: "vm.compact_unevictable_allowed",
        about: "Whether compaction moves locked pages; 1: it does.",
        unit: "",
        since: Some((4, 1)),
        values: FLAG,
        // A mode.
        scaling: Scaling::Stays,
    },
    Knob {
        name: "vm.compaction_proactiveness",
        about: "How hard kcompactd works against fragmentation while nobody asks; 0: not at all.",
        unit: "percent",
        since: Some((5, 9)),
        values: Values::Number(0, 100),
        // Percent.
        scaling: Scaling::Stays,
    },
    Knob {
        name: "transparent_hugepage/enabled",
        about: "Which memory gets huge pages at its first fault.",
        unit: "",
        since: None,
        values: Values::Words,
        // A mode.
        scaling: Scaling::Stays,
    },
    Knob {
        name: "transparent_hugepage/defrag",
        about: "What a fault does for a huge page if none is free: compact and reclaim at once, leave that to the \
                daemons, or take base pages.",
        unit: "",
        since: None,
        values: Values::Words,
        // A mode.
        scaling: Scaling::Stays,
    },
    Knob {
        name: "transparent_hugepage/use_zero_page",
        about: "Whether reading memory that was never written maps a huge page of zeros; 1: it does.",
        unit: "",
        since: Some((3, 8)),
        values: FLAG,
        // A mode.
        scaling: Scaling::Stays,
    },
    Knob {
        name: "transparent_hugepage/khugepaged/defrag",
        about: "Whether khugepaged reclaims and compacts for the huge pages that it makes; 1: it does.",
        unit: "",
        since: None,
        values: FLAG,
        // A mode.
        scaling: Scaling::Stays,
    },
    Knob {
        name: "transparent_hugepage/khugepaged/pages_to_scan",
        about: "How much khugepaged looks at before it sleeps.",
        unit: "pages",
        since: None,
        values: Values::Number(1, u32::MAX as u64),
        // Scaled, it could become the kernel's own 4096, which no scale changes: a variant that scans more would
        // silently be the one that does not. Left as it is, it would be more of less memory.
        scaling: Scaling::Refused(SPEED),
    },
    Knob {
        name: "transparent_hugepage/khugepaged/scan_sleep_millisecs",
        about: "How long khugepaged sleeps between two scans.",
        unit: "milliseconds",
        since: None,
        values: MILLIS,
        // Times: costs and speeds stay, and so do these.
        scaling: Scaling::Stays,
    },
    Knob {
        name: "transparent_hugepage/khugepaged/alloc_sleep_millisecs",
        about: "How long khugepaged sleeps when it could not have a huge page.",
        unit: "milliseconds",
        since: None,
        values: MILLIS,
        // As above.
        scaling: Scaling::Stays,
    },
    Knob {
        name: "transparent_hugepage/khugepaged/max_ptes_none",
        about: "Of the 512 pages that become a huge page, how many may be missing.",
        unit: "pages",
        since: None,
        values: ENTRIES,
        // Entries of one huge page, whose size stays.
        scaling: Scaling::Stays,
    },
    Knob {
        name: "transparent_hugepage/khugepaged/max_ptes_swap",
        about: "Of the 512 pages that become a huge page, how many may have to be read from swap.",
        unit: "pages",
        since: Some((4, 8)),
        values: ENTRIES,
        // Entries of one huge page, whose size stays.
        scaling: Scaling::Stays,
    },
    Knob {
        name: "transparent_hugepage/khugepaged/max_ptes_shared",
        about: "Of the 512 pages that become a huge page, how many may be shared between processes.",
        unit: "pages",
        since: Some((5, 8)),
        values: ENTRIES,
        // Entries of one huge page, whose size stays.
        scaling: Scaling::Stays,
    },
];

/// The knobs that the model has.
#[must_use]
pub const fn knobs() -> &'static [Knob] {
    &KNOBS
}

impl Knob {
    /// The knob of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        KNOBS.iter().find(|knob| knob.name == name)
    }

    /// The knob as a kernel of this release (as `uname -r` begins) and of these values boots with it; `None` if it has
    /// none.
    #[must_use]
    pub fn on(&self, release: &str, policy: &Policy, flows: &Flows) -> Option<KnobValue> {
        let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
        let release = (parts.next()?.ok()?, parts.next()?.ok()?);
        if self.since.is_some_and(|since| release < since) {
            return None;
        }
        let settings = Settings::of(policy, flows);
        let default = settings.at_boot(self.name)?;
        Some(KnobValue { default, allowed: self.allowed_by(&settings) })
    }

    /// What it takes on the kernel that takes most.
    #[must_use]
    pub fn allowed(&self) -> String {
        self.allowed_by(&Settings::most_permissive())
    }

    fn allowed_by(&self, settings: &Settings) -> String {
        match self.values {
            Values::Number(least, most) => {
                format!("a whole number, {least}..={}", settings.most(self.name, most))
            }
            Values::Words => settings.words(self.name).join(", "),
        }
    }
}

/// The names of all knobs.
pub(super) fn names() -> [&'static str; KNOBS.len()] {
    KNOBS.map(|knob| knob.name)
}

/// What becomes of the model's knob of this name where there is less memory; none if it has no such knob.
#[must_use]
pub fn knob_scaling(name: &str) -> Option<Scaling> {
    Knob::find(name).map(|knob| knob.scaling)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check_knob;

    #[test]
    fn one_of_a_pair_takes_the_others_place() {
        let mut settings = Settings::most_permissive();
        let shown = |settings: &Settings| {
            ["ratio", "bytes", "background_ratio", "background_bytes"]
                .map(|name| settings.at_boot(&format!("vm.dirty_{name}")).flatten().unwrap())
        };
        assert_eq!(shown(&settings), ["20", "0", "10", "0"]);
        settings.set("vm.dirty_bytes", "65536").unwrap();
        assert_eq!(shown(&settings), ["0", "65536", "10", "0"]);
        settings.set("vm.dirty_background_bytes", "1").unwrap();
        assert_eq!(shown(&settings), ["0", "65536", "0", "1"]);
        // Whoever sets all to what reading showed changes nothing.
        for (name, value) in
            ["ratio", "background_ratio", "bytes"].into_iter().zip(["0", "0", "65536"])
        {
            settings.set(&format!("vm.dirty_{name}"), value).unwrap();
        }
        assert_eq!(shown(&settings), ["0", "65536", "0", "1"]);
        assert!(settings.set("vm.dirty_bytes", "0").is_err(), "nobody could write any more");
        settings.set("vm.dirty_ratio", "5").unwrap();
        settings.set("vm.dirty_background_ratio", "3").unwrap();
        assert_eq!(shown(&settings), ["5", "0", "3", "0"]);
    }

    #[test]
    fn every_knob_takes_what_it_says_and_nothing_beside() {
        for knob in knobs() {
            assert!(highorder_system::knobs::is_knob(knob.name), "{knob:?} is on the one list");
            assert!(knob.about.ends_with('.'), "{knob:?}");
            assert_eq!(Knob::find(knob.name), Some(knob));
            match knob.values {
                Values::Number(least, most) => {
                    assert_eq!(knob.allowed(), format!("a whole number, {least}..={most}"));
                    for value in [least, most] {
                        assert_eq!(check_knob(knob.name, &value.to_string()), Ok(()), "{knob:?}");
                    }
                    // A knob may be set to what it is: 0 where the other one of its pair holds.
                    let as_it_is = Settings::most_permissive().at_boot(knob.name).flatten();
                    let beside = [least.wrapping_sub(1), most + 1].into_iter();
                    for value in beside.filter(|value| as_it_is != Some(value.to_string())) {
                        let refused = check_knob(knob.name, &value.to_string()).unwrap_err();
                        let expected = format!("expected a whole number from {least} to {most}");
                        assert!(refused.ends_with(&expected), "{refused}");
                    }
                }
                Values::Words => {
                    for word in knob.allowed().split(", ") {
                        assert_eq!(check_knob(knob.name, word), Ok(()), "{knob:?}");
                    }
                    assert!(check_knob(knob.name, "sometimes").is_err());
                }
            }
        }
    }

    #[test]
    fn a_misspelt_knob_or_word_is_told_what_was_meant() {
        assert_eq!(
            check_knob("vm.swapiness", "10"),
            Err("unknown knob `vm.swapiness`, did you mean `vm.swappiness`?".to_owned())
        );
        assert_eq!(
            check_knob("transparent_hugepage/enabled", "alway"),
            Err("`transparent_hugepage/enabled` is `alway`, did you mean `always`?".to_owned())
        );
        let all = check_knob("vm.overcommit_memory", "1").unwrap_err();
        assert!(all.contains("expected one of vm.swappiness, vm.page-cluster, "), "{all}");
    }
}
