//! Knobs by the kernel's names.
//!
//! Models: kernel/sysctl.c, mm/page_alloc.c (`min_free_kbytes_sysctl_handler` and its fellows), v4.4 and
//! v6.12; mm/compaction.c (`sysctl_extfrag_threshold` and its fellows), v4.4 and v6.12.

use highorder_mm::policy::Policy;
use highorder_sim::Ns;
use highorder_sim::kernel::policy::{
    DefragNoretry, HalfReferenced, NumaScan, Thp, ThpDisable, ThpNuma,
};
use highorder_sim::kernel::thp::{Defrag, Enabled, KhugepagedKnobs, ThpKnobs};
use highorder_sim::kernel::{Flows, Kernel, Knobs};
use std::ops::RangeInclusive;

/// Says what is wrong with a knob's value, if anything: unknown name, or a value out of range.
///
/// # Errors
/// What was found and what was expected.
pub fn check_knob(name: &str, value: &str) -> Result<(), String> {
    Settings::most_permissive().set(name, value)
}

/// Settings of a kernel, at boot or later.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) knobs: Knobs,
    swappiness_max: u8,
    page_cluster: u8,
    min_free_kbytes: Option<u64>,
    watermark_scale_factor: Option<u32>,
    watermark_boost_factor: u32,
    extfrag_threshold: u16,
    /// None on kernels that leave locked memory where it is (before 4.1).
    compact_unevictable_allowed: Option<bool>,
    /// None on kernels that do not compact unasked (before 5.9).
    compaction_proactiveness: Option<u8>,
    /// What huge pages can be told.
    thp: Thp,
    /// Whether the kernel can balance nodes (3.8).
    knows_numa_balancing: bool,
}

const NAMES: [&str; 20] = [
    "vm.swappiness",
    "vm.page-cluster",
    "vm.min_free_kbytes",
    "vm.watermark_scale_factor",
    "vm.watermark_boost_factor",
    "vm.zone_reclaim_mode",
    "kernel.numa_balancing",
    "vm.extfrag_threshold",
    "vm.compact_unevictable_allowed",
    "vm.compaction_proactiveness",
    "transparent_hugepage/enabled",
    "transparent_hugepage/defrag",
    "transparent_hugepage/use_zero_page",
    "transparent_hugepage/khugepaged/defrag",
    "transparent_hugepage/khugepaged/pages_to_scan",
    "transparent_hugepage/khugepaged/scan_sleep_millisecs",
    "transparent_hugepage/khugepaged/alloc_sleep_millisecs",
    "transparent_hugepage/khugepaged/max_ptes_none",
    "transparent_hugepage/khugepaged/max_ptes_swap",
    "transparent_hugepage/khugepaged/max_ptes_shared",
];

/// The words of `transparent_hugepage/enabled`, in the order in which reading it shows them.
const ENABLED: [(&str, Enabled); 3] =
    [("always", Enabled::Always), ("madvise", Enabled::Madvise), ("never", Enabled::Never)];
/// Those of `transparent_hugepage/defrag`.
const DEFRAG: [(&str, Defrag); 5] = [
    ("always", Defrag::Always),
    ("defer", Defrag::Defer),
    ("defer+madvise", Defrag::DeferMadvise),
    ("madvise", Defrag::Madvise),
    ("never", Defrag::Never),
];

impl Settings {
    /// As the kernel has them at boot.
    pub(super) const fn of(policy: &Policy, flows: &Flows) -> Self {
        Self {
            knobs: Knobs::at_boot(policy, flows),
            thp: flows.thp,
            knows_numa_balancing: !matches!(flows.numa.scan, NumaScan::None),
            // 200 since 5.8 (c843966c556d), when costs came to balance the types.
            swappiness_max: if policy.lru.balance.is_by_rotation() { 100 } else { 200 },
            page_cluster: policy.swap.page_cluster,
            min_free_kbytes: None,
            watermark_scale_factor: policy.watermark.scale_factor,
            watermark_boost_factor: policy.watermark.boost_factor,
            extfrag_threshold: policy.compaction.extfrag_threshold,
            compact_unevictable_allowed: if policy.compaction.unevictable {
                Some(true)
            } else {
                None
            },
            compaction_proactiveness: match policy.compaction.proactiveness {
                0 => None,
                percent => Some(percent),
            },
        }
    }

    /// Those of a kernel that has every knob.
    const fn most_permissive() -> Self {
        let thp = Thp {
            knobs: ThpKnobs {
                enabled: Enabled::Always,
                defrag: Defrag::Madvise,
                use_zero_page: true,
                khugepaged: KhugepagedKnobs {
                    defrag: true,
                    pages_to_scan: 4096,
                    scan_sleep: Ns::from_secs(10),
                    alloc_sleep: Ns::from_secs(60),
                    max_ptes_none: 511,
                    max_ptes_swap: Some(64),
                    max_ptes_shared: Some(256),
                },
            },
            knows_defer: true,
            knows_defer_madvise: true,
            noretry: DefragNoretry::NotAdvised,
            numa: ThpNuma::LocalThenAllowed,
            zero_page: true,
            aligns_mappings: true,
            disable: ThpDisable::AtOnce,
            half_referenced: HalfReferenced::Swapped,
            swapin_stops: true,
        };
        Self {
            knobs: Knobs {
                swappiness: 60,
                zone_reclaim_mode: 0,
                numa_balancing: false,
                thp: thp.knobs,
            },
            thp,
            knows_numa_balancing: true,
            swappiness_max: 200,
            page_cluster: 3,
            min_free_kbytes: None,
            watermark_scale_factor: Some(10),
            watermark_boost_factor: 0,
            extfrag_threshold: 500,
            compact_unevictable_allowed: Some(true),
            compaction_proactiveness: Some(20),
        }
    }

    /// Sets one by name.
    ///
    /// # Errors
    /// What was found and what was expected.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "vm.swappiness" => {
                let max = u64::from(self.swappiness_max);
                self.knobs.swappiness = number(name, value, 0..=max)? as u8;
            }
            "vm.page-cluster" => self.page_cluster = number(name, value, 0..=5)? as u8,
            "vm.min_free_kbytes" => {
                self.min_free_kbytes = Some(number(name, value, 128..=1 << 32)?);
            }
            "vm.watermark_scale_factor" => {
                let scale = number(name, value, 1..=3000)? as u32;
                match &mut self.watermark_scale_factor {
                    Some(factor) => *factor = scale,
                    None => return Err(format!("`{name}`: this kernel has no such knob")),
                }
            }
            "vm.watermark_boost_factor" => {
                self.watermark_boost_factor = number(name, value, 0..=1_000_000)? as u32;
            }
            "vm.zone_reclaim_mode" => {
                self.knobs.zone_reclaim_mode = number(name, value, 0..=15)? as u32;
            }
            "kernel.numa_balancing" => {
                let on = number(name, value, 0..=1)? == 1;
                if !self.knows_numa_balancing {
                    return Err(format!("`{name}`: this kernel has no such knob"));
                }
                self.knobs.numa_balancing = on;
            }
            "vm.extfrag_threshold" => {
                self.extfrag_threshold = number(name, value, 0..=1000)? as u16;
            }
            "vm.compact_unevictable_allowed" => {
                let allowed = number(name, value, 0..=1)? == 1;
                *had(name, &mut self.compact_unevictable_allowed)? = allowed;
            }
            "vm.compaction_proactiveness" => {
                let percent = number(name, value, 0..=100)? as u8;
                *had(name, &mut self.compaction_proactiveness)? = percent;
            }
            "vm.compact_memory" => {
                return Err(format!(
                    "`{name}` is no setting: a workload writes it when it wants to"
                ));
            }
            _ if name.starts_with("transparent_hugepage/") => self.set_thp(name, value)?,
            _ => {
                return Err(unknown(name));
            }
        }
        Ok(())
    }

    fn set_thp(&mut self, name: &str, value: &str) -> Result<(), String> {
        let words = self.thp_defrag_words();
        let thp = &mut self.knobs.thp;
        let Some(at) = NAMES.iter().position(|known| *known == name) else {
            return Err(unknown(name));
        };
        let flag = || Ok::<_, String>(number(name, value, 0..=1)? == 1);
        let millis =
            || Ok::<_, String>(Ns::from_millis(number(name, value, 0..=u64::from(u32::MAX))?));
        let entries = || Ok::<_, String>(number(name, value, 0..=511)? as u32);
        match NAMES[at].trim_start_matches("transparent_hugepage/") {
            "enabled" => thp.enabled = word(name, value, ENABLED.to_vec())?,
            "defrag" => thp.defrag = word(name, value, words)?,
            "use_zero_page" => thp.use_zero_page = flag()?,
            "khugepaged/defrag" => thp.khugepaged.defrag = flag()?,
            "khugepaged/pages_to_scan" => {
                thp.khugepaged.pages_to_scan = number(name, value, 1..=u64::from(u32::MAX))? as u32;
            }
            "khugepaged/scan_sleep_millisecs" => thp.khugepaged.scan_sleep = millis()?,
            "khugepaged/alloc_sleep_millisecs" => thp.khugepaged.alloc_sleep = millis()?,
            "khugepaged/max_ptes_none" => thp.khugepaged.max_ptes_none = entries()?,
            "khugepaged/max_ptes_swap" => {
                *had(name, &mut thp.khugepaged.max_ptes_swap)? = entries()?;
            }
            _ => *had(name, &mut thp.khugepaged.max_ptes_shared)? = entries()?,
        }
        Ok(())
    }

    /// The words that this kernel's `transparent_hugepage/defrag` knows.
    fn thp_defrag_words(&self) -> Vec<(&'static str, Defrag)> {
        let knows = |defrag: Defrag| match defrag {
            Defrag::Defer => self.thp.knows_defer,
            Defrag::DeferMadvise => self.thp.knows_defer_madvise,
            _ => true,
        };
        DEFRAG.into_iter().filter(|&(_, defrag)| knows(defrag)).collect()
    }

    fn get_thp(&self, name: &str) -> Option<String> {
        let ThpKnobs { enabled, defrag, use_zero_page, khugepaged } = self.knobs.thp;
        Some(match name {
            "enabled" => chosen(&ENABLED, enabled),
            "defrag" => chosen(&self.thp_defrag_words(), defrag),
            "use_zero_page" => u8::from(use_zero_page).to_string(),
            "khugepaged/defrag" => u8::from(khugepaged.defrag).to_string(),
            "khugepaged/pages_to_scan" => khugepaged.pages_to_scan.to_string(),
            "khugepaged/scan_sleep_millisecs" => (khugepaged.scan_sleep.0 / 1_000_000).to_string(),
            "khugepaged/alloc_sleep_millisecs" => {
                (khugepaged.alloc_sleep.0 / 1_000_000).to_string()
            }
            "khugepaged/max_ptes_none" => khugepaged.max_ptes_none.to_string(),
            "khugepaged/max_ptes_swap" => khugepaged.max_ptes_swap?.to_string(),
            "khugepaged/max_ptes_shared" => khugepaged.max_ptes_shared?.to_string(),
            _ => return None,
        })
    }

    /// One by name, as reading it shows.
    pub(super) fn get(&self, name: &str, kernel: &Kernel) -> Option<String> {
        Some(match name {
            "vm.swappiness" => self.knobs.swappiness.to_string(),
            "vm.page-cluster" => self.page_cluster.to_string(),
            "vm.min_free_kbytes" => {
                use highorder_mm::watermark::Mark;
                let min = |zone: &highorder_mm::zone::Zone| zone.watermarks.raw(Mark::Min);
                let pages: u64 = kernel.memory.zones.iter().map(min).sum();
                self.min_free_kbytes.unwrap_or(pages * 4).to_string()
            }
            "vm.watermark_scale_factor" => self.watermark_scale_factor?.to_string(),
            "vm.watermark_boost_factor" => self.watermark_boost_factor.to_string(),
            "vm.zone_reclaim_mode" => self.knobs.zone_reclaim_mode.to_string(),
            "kernel.numa_balancing" if self.knows_numa_balancing => {
                u8::from(self.knobs.numa_balancing).to_string()
            }
            "vm.extfrag_threshold" => self.extfrag_threshold.to_string(),
            "vm.compact_unevictable_allowed" => {
                u8::from(self.compact_unevictable_allowed?).to_string()
            }
            "vm.compaction_proactiveness" => self.compaction_proactiveness?.to_string(),
            _ => return self.get_thp(name.strip_prefix("transparent_hugepage/")?),
        })
    }

    /// What the steps read.
    pub(super) const fn apply(&self, policy: &mut Policy) {
        policy.reclaim.swappiness = self.knobs.swappiness;
        policy.swap.page_cluster = self.page_cluster;
        policy.watermark.scale_factor = self.watermark_scale_factor;
        policy.watermark.boost_factor = self.watermark_boost_factor;
        policy.compaction.extfrag_threshold = self.extfrag_threshold;
        if let Some(allowed) = self.compact_unevictable_allowed {
            policy.compaction.unevictable = allowed;
        }
        if let Some(percent) = self.compaction_proactiveness {
            policy.compaction.proactiveness = percent;
        }
    }

    /// Computes the marks anew, as writing one of their knobs does.
    pub(super) fn apply_to_marks(&self, kernel: &mut Kernel) {
        let has_huge_pages = self.knobs.thp.enabled != Enabled::Never;
        kernel.memory.setup_watermarks(self.min_free_kbytes, has_huge_pages);
    }
}

fn unknown(name: &str) -> String {
    format!("unknown knob `{name}`, expected one of {}", NAMES.join(", "))
}

/// A knob that not every kernel has.
fn had<'a, T>(name: &str, knob: &'a mut Option<T>) -> Result<&'a mut T, String> {
    knob.as_mut().ok_or_else(|| format!("`{name}`: this kernel has no such knob"))
}

/// What a word stands for.
fn word<T: Copy>(name: &str, value: &str, words: Vec<(&str, T)>) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| *word == value);
    found.map(|&(_, meant)| meant).ok_or_else(|| {
        let words: Vec<&str> = words.iter().map(|&(word, _)| word).collect();
        format!("`{name}` is `{value}`, expected one of {}", words.join(", "))
    })
}

/// All words, the one in force in brackets.
fn chosen<T: PartialEq>(words: &[(&str, T)], value: T) -> String {
    let shown =
        words.iter().map(
            |(word, meant)| {
                if *meant == value { format!("[{word}]") } else { (*word).to_owned() }
            },
        );
    shown.collect::<Vec<_>>().join(" ")
}

fn number(name: &str, value: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    value.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
        let (first, last) = (range.start(), range.end());
        format!("`{name}` is `{value}`, expected a whole number from {first} to {last}")
    })
}
