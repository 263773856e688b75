//! Knobs by the kernel's names.
//!
//! Models: kernel/sysctl.c, mm/page_alloc.c (`min_free_kbytes_sysctl_handler` and its fellows), v4.4 and
//! v6.12.

use highorder_mm::policy::{Balance, Policy};
use highorder_sim::kernel::{Kernel, Knobs};
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
}

const NAMES: [&str; 6] = [
    "vm.swappiness",
    "vm.page-cluster",
    "vm.min_free_kbytes",
    "vm.watermark_scale_factor",
    "vm.watermark_boost_factor",
    "transparent_hugepage/enabled",
];

impl Settings {
    /// As the kernel has them at boot.
    pub(super) const fn of(policy: &Policy) -> Self {
        Self {
            knobs: Knobs { swappiness: policy.reclaim.swappiness },
            // 200 since 5.8 (c843966c556d), when costs came to balance the types.
            swappiness_max: if matches!(policy.lru.balance, Balance::Rotated) { 100 } else { 200 },
            page_cluster: policy.swap.page_cluster,
            min_free_kbytes: None,
            watermark_scale_factor: policy.watermark.scale_factor,
            watermark_boost_factor: policy.watermark.boost_factor,
        }
    }

    /// Those of a kernel that has every knob.
    const fn most_permissive() -> Self {
        Self {
            knobs: Knobs { swappiness: 60 },
            swappiness_max: 200,
            page_cluster: 3,
            min_free_kbytes: None,
            watermark_scale_factor: Some(10),
            watermark_boost_factor: 0,
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
            "transparent_hugepage/enabled" => {
                if value != "never" {
                    return Err(format!(
                        "`{name}` is `{value}`, expected `never`: huge faults are not modelled yet"
                    ));
                }
            }
            _ => {
                return Err(format!("unknown knob `{name}`, expected one of {}", NAMES.join(", ")));
            }
        }
        Ok(())
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
            "transparent_hugepage/enabled" => "always madvise [never]".to_owned(),
            _ => return None,
        })
    }

    /// What the steps read.
    pub(super) const fn apply(&self, policy: &mut Policy) {
        policy.reclaim.swappiness = self.knobs.swappiness;
        policy.swap.page_cluster = self.page_cluster;
        policy.watermark.scale_factor = self.watermark_scale_factor;
        policy.watermark.boost_factor = self.watermark_boost_factor;
    }

    /// Computes the marks anew, as writing one of their knobs does.
    pub(super) fn apply_to_marks(&self, kernel: &mut Kernel) {
        kernel.memory.setup_watermarks(self.min_free_kbytes, false);
    }
}

fn number(name: &str, value: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    value.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
        let (first, last) = (range.start(), range.end());
        format!("`{name}` is `{value}`, expected a whole number from {first} to {last}")
    })
}
