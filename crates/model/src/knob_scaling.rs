//! What becomes of knobs on a machine with a share of its memory.
//!
//! A scaled machine is to be the same machine in small: zones, swap and the workload's sizes keep their shares of
//! memory. So an amount of memory that a knob says shrinks as these do, and what says nothing of how much memory
//! there is stays: a mode, a ratio, a time. A few values are neither; there is no scaled run with them. What each
//! knob of the model is stands beside its name in `knobs.rs`; this module adds the knobs that real
//! kernels have besides.

/// What becomes of a knob's value where there is less memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// It says nothing of how much memory there is: it stays.
    Stays,
    /// It is an amount of memory, in whatever unit: it shrinks with memory, rounded down. Where it would be less
    /// than this, there is no scaled run. 0 says that there is no such limit, and stays.
    Memory {
        /// The smallest value that the kernel takes as it is.
        least: u64,
    },
    /// There is no scaled run with it, for this reason.
    Refused(&'static str),
}

/// Why pages that a daemon looks at in each turn do not scale.
pub(crate) const SPEED: &str = "pages of one turn and the time between turns are a speed, and the kernel's own \
                                value of it is the same at every scale";
/// Why a knob that we do not know does not scale.
const UNKNOWN: &str =
    "its name says an amount of memory, and it is not known how that would have to shrink";

/// Knobs of real kernels that the model lacks, by the last part of their names.
const OF_REAL_KERNELS: [(&str, Scaling); 9] = [
    // mm/mmap.c (init_user_reserve, init_admin_reserve): 3 % of free memory, or less.
    ("user_reserve_kbytes", Scaling::Memory { least: 1 }),
    ("admin_reserve_kbytes", Scaling::Memory { least: 1 }),
    // mm/util.c (vm_commit_limit): what all programs together may ask for.
    ("overcommit_kbytes", Scaling::Memory { least: 1 }),
    // mm/hugetlb.c: pages of one size, which stays.
    ("nr_hugepages", Scaling::Memory { least: 1 }),
    ("nr_hugepages_mempolicy", Scaling::Memory { least: 1 }),
    ("nr_overcommit_hugepages", Scaling::Memory { least: 1 }),
    // ipc/shm.c: of one segment in bytes, of all in pages.
    ("shmmax", Scaling::Memory { least: 1 }),
    ("shmall", Scaling::Memory { least: 1 }),
    // mm/ksm.c, as khugepaged's.
    ("pages_to_scan", Scaling::Refused(SPEED)),
];

/// Words of names that say an amount of memory (Documentation/admin-guide/sysctl/*.rst, net/*.c).
const WORDS_OF_AMOUNTS: [&str; 8] =
    ["bytes", "kbytes", "kb", "mb", "mem", "pages", "hugepages", "pagesize"];

/// What becomes of the knob of this name. Whatever is not known and has the unit of an amount in its name is
/// refused rather than left as it is.
#[must_use]
pub fn scaling(name: &str) -> Scaling {
    if let Some(scaling) = crate::knob_scaling(name) {
        return scaling;
    }
    let last = name.rsplit(['.', '/']).next().unwrap_or(name);
    if let Some((_, scaling)) = OF_REAL_KERNELS.iter().find(|(known, _)| *known == last) {
        return *scaling;
    }
    let is_amount = |word: &str| WORDS_OF_AMOUNTS.contains(&word) || word.ends_with("mem");
    match last.split(['_', '-']).any(is_amount) {
        true => Scaling::Refused(UNKNOWN),
        false => Scaling::Stays,
    }
}

/// The value that a knob has on a machine with `numerator / denominator` of the memory.
///
/// # Errors
/// Why there is no such value.
///
/// # Panics
/// If the denominator is 0.
pub fn scaled(name: &str, value: &str, numerator: u32, denominator: u32) -> Result<String, String> {
    assert!(denominator > 0, "a scale of {numerator}/0");
    let least = match scaling(name) {
        _ if numerator == denominator => return Ok(value.to_owned()),
        Scaling::Stays => return Ok(value.to_owned()),
        Scaling::Refused(why) => {
            return Err(format!("`{name}` is {value}, expected it to be left out: {why}"));
        }
        Scaling::Memory { least } => least,
    };
    let Ok(full) = value.parse::<u64>() else {
        return Err(format!("`{name}` is `{value}`, expected a whole number, which can be scaled"));
    };
    let scaled = (u128::from(full) * u128::from(numerator) / u128::from(denominator)) as u64;
    match full == 0 || scaled >= least {
        true => Ok(scaled.to_string()),
        false => Err(format!("`{name}` is {full}, scaled {scaled}, expected at least {least}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_of_memory_shrink_with_it_and_nothing_else_does() {
        for (name, value, expected) in [
            ("vm.min_free_kbytes", "65536", "4096"),
            ("vm.user_reserve_kbytes", "131072", "8192"),
            ("vm.admin_reserve_kbytes", "8192", "512"),
            ("vm.dirty_bytes", "1000000", "62500"),
            ("vm.dirty_bytes", "0", "0"),
            ("vm.nr_hugepages", "33", "2"),
            ("hugepages/hugepages-2048kB/nr_hugepages", "32", "2"),
            ("vm.swappiness", "60", "60"),
            ("vm.overcommit_memory", "1", "1"),
            ("vm.watermark_scale_factor", "10", "10"),
            ("vm.page-cluster", "3", "3"),
            ("transparent_hugepage/enabled", "always", "always"),
            ("transparent_hugepage/hugepages-64kB/enabled", "always", "always"),
            ("transparent_hugepage/khugepaged/max_ptes_none", "511", "511"),
        ] {
            assert_eq!(scaled(name, value, 1, 16).as_deref(), Ok(expected), "{name}");
            assert_eq!(scaled(name, value, 1, 1).as_deref(), Ok(value), "{name}");
        }
    }

    #[test]
    fn what_cannot_shrink_is_refused_and_never_left_as_it_is() {
        let refused = |name, value| scaled(name, value, 1, 16).unwrap_err();
        assert_eq!(
            refused("vm.min_free_kbytes", "1024"),
            "`vm.min_free_kbytes` is 1024, scaled 64, expected at least 128"
        );
        assert_eq!(
            refused("vm.dirty_bytes", "much"),
            "`vm.dirty_bytes` is `much`, expected a whole number, which can be scaled"
        );
        for name in [
            "transparent_hugepage/khugepaged/pages_to_scan",
            "ksm/pages_to_scan",
            "kernel.numa_balancing_scan_size_mb",
            "net.core.rmem_max",
            "net.ipv4.tcp_mem",
            "vm.something_new_kbytes",
        ] {
            let told = refused(name, "4096");
            assert!(told.starts_with(&format!("`{name}` is 4096, expected it to be left out: ")));
            assert_eq!(scaled(name, "4096", 1, 1).as_deref(), Ok("4096"));
        }
    }
}
