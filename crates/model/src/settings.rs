//! Knobs by the kernel's names.
//!
//! Models: kernel/sysctl.c, mm/page_alloc.c (`min_free_kbytes_sysctl_handler` and its fellows), v4.4 and
//! v6.12; mm/compaction.c (`sysctl_extfrag_threshold` and its fellows), v4.4 and v6.12.

use super::knobs::{self, Knob, Values};
use highorder_mm::Order;
use highorder_mm::policy::{BoostWakes, Dirty, Policy};
use highorder_sim::Ns;
use highorder_sim::kernel::policy::{
    DefragNoretry, FragmentStall, NumaScan, Thp, ThpDisable, ThpNuma,
};
use highorder_sim::kernel::thp::{Defrag, Enabled, KhugepagedKnobs, ThpKnobs};
use highorder_sim::kernel::{Flows, Kernel, Knobs};

/// Says what is wrong with a knob's value, if anything: unknown name, or a value out of range.
///
/// # Errors
/// What was found and what was expected.
pub fn check_knob(name: &str, value: &str) -> Result<(), String> {
    Settings::most_permissive().set(name, value)
}

/// The same for one kernel, which may not have the knob, or not know the word.
///
/// # Errors
/// What was found and what was expected.
pub fn check_knob_of(
    policy: &Policy,
    flows: &Flows,
    name: &str,
    value: &str,
) -> Result<(), String> {
    Settings::of(policy, flows).set(name, value)
}

/// Settings of a kernel, at boot or later.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) knobs: Knobs,
    swappiness_max: u8,
    page_cluster: u8,
    min_free_kbytes: Option<u64>,
    dirty: Dirty,
    watermark_scale_factor: Option<u32>,
    /// None on kernels that do not boost (before 5.0).
    watermark_boost_factor: Option<u32>,
    /// None on kernels whose requests do not wait before they mix pageblocks.
    fragment_stall_order: Option<u8>,
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
    pub(super) fn of(policy: &Policy, flows: &Flows) -> Self {
        Self {
            knobs: Knobs::at_boot(policy, flows),
            thp: flows.thp,
            knows_numa_balancing: !matches!(flows.numa.scan, NumaScan::None),
            // 200 since 5.8 (c843966c556d), when costs came to balance the types.
            swappiness_max: if policy.lru.balance.is_by_rotation() { 100 } else { 200 },
            page_cluster: policy.swap.page_cluster,
            min_free_kbytes: None,
            dirty: policy.dirty,
            watermark_scale_factor: policy.watermark.scale_factor,
            watermark_boost_factor: match policy.watermark.boost_wakes {
                BoostWakes::Never => None,
                _ => Some(policy.watermark.boost_factor),
            },
            fragment_stall_order: match flows.stall.fragment {
                FragmentStall::Off => None,
                _ => Some(policy.fallback.stall_order.0),
            },
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
    pub(super) const fn most_permissive() -> Self {
        let thp = Thp {
            enabled: Enabled::Always,
            defrag: Defrag::Madvise,
            knows_defer: true,
            knows_defer_madvise: true,
            noretry: DefragNoretry::NotAdvised,
            numa: ThpNuma::LocalThenAllowed,
            zero_page: true,
            aligns_mappings: true,
            pagemap_splits: false,
            disable: ThpDisable::AtOnce,
        };
        let khugepaged = KhugepagedKnobs {
            defrag: true,
            pages_to_scan: 4096,
            scan_sleep: Ns::from_secs(10),
            alloc_sleep: Ns::from_secs(60),
            max_ptes_none: 511,
            max_ptes_swap: Some(64),
            max_ptes_shared: Some(256),
        };
        let Thp { enabled, defrag, .. } = thp;
        Self {
            knobs: Knobs {
                swappiness: 60,
                zone_reclaim_mode: 0,
                min_unmapped_ratio: 1,
                vfs_cache_pressure: 100,
                writeback_interval: Some(Ns::from_secs(5)),
                dirty_expire: Ns::from_secs(30),
                numa_balancing: false,
                thp: ThpKnobs { enabled, defrag, use_zero_page: true, khugepaged },
            },
            thp,
            knows_numa_balancing: true,
            swappiness_max: 200,
            page_cluster: 3,
            min_free_kbytes: None,
            dirty: Dirty {
                ratio: 20,
                bytes: 0,
                background_ratio: 10,
                background_bytes: 0,
                counts_anon: false,
            },
            watermark_scale_factor: Some(10),
            watermark_boost_factor: Some(0),
            fragment_stall_order: Some(4),
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
            "vm.swappiness" => self.knobs.swappiness = self.number(name, value)? as u8,
            "vm.page-cluster" => self.page_cluster = self.number(name, value)? as u8,
            "vm.min_free_kbytes" => self.min_free_kbytes = Some(self.number(name, value)?),
            "vm.watermark_scale_factor" => {
                let scale = self.number(name, value)? as u32;
                *had(name, &mut self.watermark_scale_factor)? = scale;
            }
            "vm.watermark_boost_factor" => {
                let factor = self.number(name, value)? as u32;
                *had(name, &mut self.watermark_boost_factor)? = factor;
            }
            "vm.fragment_stall_order" => {
                let order = self.number(name, value)? as u8;
                *had(name, &mut self.fragment_stall_order)? = order;
            }
            "vm.zone_reclaim_mode" => {
                self.knobs.zone_reclaim_mode = self.number(name, value)? as u32;
            }
            "vm.min_unmapped_ratio" => {
                self.knobs.min_unmapped_ratio = self.number(name, value)? as u8;
            }
            "vm.vfs_cache_pressure" => {
                self.knobs.vfs_cache_pressure = self.number(name, value)? as u32;
            }
            "vm.dirty_writeback_centisecs" => {
                let interval = centisecs(self.number(name, value)?);
                self.knobs.writeback_interval =
                    Some(interval).filter(|&interval| interval > Ns::ZERO);
            }
            "vm.dirty_expire_centisecs" => {
                self.knobs.dirty_expire = centisecs(self.number(name, value)?);
            }
            _ if name.starts_with("vm.dirty_") => self.set_dirty(name, value)?,
            "kernel.numa_balancing" => {
                let on = self.number(name, value)? == 1;
                if !self.knows_numa_balancing {
                    return Err(format!("`{name}`: this kernel has no such knob"));
                }
                self.knobs.numa_balancing = on;
            }
            "vm.extfrag_threshold" => {
                self.extfrag_threshold = self.number(name, value)? as u16;
            }
            "vm.compact_unevictable_allowed" => {
                let allowed = self.number(name, value)? == 1;
                *had(name, &mut self.compact_unevictable_allowed)? = allowed;
            }
            "vm.compaction_proactiveness" => {
                let percent = self.number(name, value)? as u8;
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

    /// One of a pair: what is set takes the other's place. A knob that is as it is already changes nothing, so that both
    /// can be set to what reading both showed.
    fn set_dirty(&mut self, name: &str, value: &str) -> Result<(), String> {
        if self.shown(name).flatten().as_deref() == Some(value) {
            return Ok(());
        }
        let number = self.number(name, value)?;
        let dirty = &mut self.dirty;
        let (ratio, bytes) = match name.contains("background") {
            true => (&mut dirty.background_ratio, &mut dirty.background_bytes),
            false => (&mut dirty.ratio, &mut dirty.bytes),
        };
        (*ratio, *bytes) = match name.ends_with("_ratio") {
            true => (number as u32, 0),
            false => (0, number),
        };
        Ok(())
    }

    fn set_thp(&mut self, name: &str, value: &str) -> Result<(), String> {
        let Some(knob) = Knob::find(name) else { return Err(unknown(name)) };
        let number = match knob.values {
            Values::Number(..) => self.number(name, value)?,
            Values::Words => 0,
        };
        let words = self.thp_defrag_words();
        let thp = &mut self.knobs.thp;
        match knob.name.trim_start_matches("transparent_hugepage/") {
            "enabled" => thp.enabled = word(name, value, &ENABLED)?,
            "defrag" => thp.defrag = word(name, value, &words)?,
            "use_zero_page" => thp.use_zero_page = number == 1,
            "khugepaged/defrag" => thp.khugepaged.defrag = number == 1,
            "khugepaged/pages_to_scan" => thp.khugepaged.pages_to_scan = number as u32,
            "khugepaged/scan_sleep_millisecs" => {
                thp.khugepaged.scan_sleep = Ns::from_millis(number);
            }
            "khugepaged/alloc_sleep_millisecs" => {
                thp.khugepaged.alloc_sleep = Ns::from_millis(number);
            }
            "khugepaged/max_ptes_none" => thp.khugepaged.max_ptes_none = number as u32,
            "khugepaged/max_ptes_swap" => {
                *had(name, &mut thp.khugepaged.max_ptes_swap)? = number as u32;
            }
            _ => *had(name, &mut thp.khugepaged.max_ptes_shared)? = number as u32,
        }
        Ok(())
    }

    /// A number within the knob's bounds on this kernel.
    fn number(&self, name: &str, value: &str) -> Result<u64, String> {
        let Some(Knob { values: Values::Number(least, most), .. }) = Knob::find(name) else {
            return Err(unknown(name));
        };
        let most = self.most(name, *most);
        let found = value.parse().ok().filter(|number| (*least..=most).contains(number));
        found.ok_or_else(|| {
            format!("`{name}` is `{value}`, expected a whole number from {least} to {most}")
        })
    }

    /// The largest number that this kernel takes, of a knob that takes `most` on some kernel.
    pub(super) fn most(&self, name: &str, most: u64) -> u64 {
        if name == "vm.swappiness" { self.swappiness_max.into() } else { most }
    }

    /// The words that this kernel takes, of a knob that takes words.
    pub(super) fn words(&self, name: &str) -> Vec<&'static str> {
        match name {
            "transparent_hugepage/enabled" => ENABLED.map(|(word, _)| word).to_vec(),
            _ => self.thp_defrag_words().into_iter().map(|(word, _)| word).collect(),
        }
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
        let computed = || {
            use highorder_mm::watermark::Mark;
            let min = |zone: &highorder_mm::zone::Zone| zone.watermarks.raw(Mark::Min);
            let pages: u64 = kernel.memory.zones.iter().map(min).sum();
            (pages * 4).to_string()
        };
        Some(self.shown(name)?.unwrap_or_else(computed))
    }

    /// What a knob is, the word of several that is in force; a knob that the kernel computes is `Some(None)`.
    pub(super) fn at_boot(&self, name: &str) -> Option<Option<String>> {
        let shown = self.shown(name)?;
        let in_force =
            |shown: String| match shown.split_once('[').and_then(|(_, s)| s.split_once(']')) {
                Some((word, _)) => word.to_owned(),
                None => shown,
            };
        Some(shown.map(in_force))
    }

    /// One by name, as reading it shows; `Some(None)` if it is computed from the machine's memory.
    fn shown(&self, name: &str) -> Option<Option<String>> {
        Some(Some(match name {
            "vm.swappiness" => self.knobs.swappiness.to_string(),
            "vm.page-cluster" => self.page_cluster.to_string(),
            "vm.min_free_kbytes" => return Some(self.min_free_kbytes.map(|kib| kib.to_string())),
            "vm.watermark_scale_factor" => self.watermark_scale_factor?.to_string(),
            "vm.watermark_boost_factor" => self.watermark_boost_factor?.to_string(),
            "vm.fragment_stall_order" => self.fragment_stall_order?.to_string(),
            "vm.zone_reclaim_mode" => self.knobs.zone_reclaim_mode.to_string(),
            "kernel.numa_balancing" if self.knows_numa_balancing => {
                u8::from(self.knobs.numa_balancing).to_string()
            }
            "vm.min_unmapped_ratio" => self.knobs.min_unmapped_ratio.to_string(),
            "vm.vfs_cache_pressure" => self.knobs.vfs_cache_pressure.to_string(),
            "vm.dirty_ratio" => self.dirty.ratio.to_string(),
            "vm.dirty_bytes" => self.dirty.bytes.to_string(),
            "vm.dirty_background_ratio" => self.dirty.background_ratio.to_string(),
            "vm.dirty_background_bytes" => self.dirty.background_bytes.to_string(),
            "vm.dirty_writeback_centisecs" => {
                let interval = self.knobs.writeback_interval.unwrap_or(Ns::ZERO);
                (interval.0 / CENTISECOND).to_string()
            }
            "vm.dirty_expire_centisecs" => (self.knobs.dirty_expire.0 / CENTISECOND).to_string(),
            "vm.extfrag_threshold" => self.extfrag_threshold.to_string(),
            "vm.compact_unevictable_allowed" => {
                u8::from(self.compact_unevictable_allowed?).to_string()
            }
            "vm.compaction_proactiveness" => self.compaction_proactiveness?.to_string(),
            _ => return self.get_thp(name.strip_prefix("transparent_hugepage/")?).map(Some),
        }))
    }

    /// What the steps read.
    pub(super) const fn apply(&self, policy: &mut Policy) {
        policy.reclaim.swappiness = self.knobs.swappiness;
        policy.swap.page_cluster = self.page_cluster;
        policy.dirty = self.dirty;
        policy.watermark.scale_factor = self.watermark_scale_factor;
        if let Some(factor) = self.watermark_boost_factor {
            policy.watermark.boost_factor = factor;
        }
        if let Some(order) = self.fragment_stall_order {
            policy.fallback.stall_order = Order(order);
        }
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

/// Nanoseconds of a hundredth of a second.
const CENTISECOND: u64 = 10_000_000;

fn centisecs(number: u64) -> Ns {
    Ns(number * CENTISECOND)
}

fn unknown(name: &str) -> String {
    format!("unknown knob `{name}`, {}", highorder_input::expected(name, &knobs::names()))
}

/// A knob that not every kernel has.
fn had<'a, T>(name: &str, knob: &'a mut Option<T>) -> Result<&'a mut T, String> {
    knob.as_mut().ok_or_else(|| format!("`{name}`: this kernel has no such knob"))
}

/// What a word stands for.
fn word<T: Copy>(name: &str, value: &str, words: &[(&'static str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| *word == value);
    found.map(|&(_, meant)| meant).ok_or_else(|| {
        let words: Vec<&str> = words.iter().map(|&(word, _)| word).collect();
        format!("`{name}` is `{value}`, {}", highorder_input::expected(value, &words))
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
