//! The kernel's settings of memory management: what an experiment may set, on the model and on real kernels.
//!
//! Experiments come from anywhere, and on a real kernel they may run as root. So a name that is not here is no knob:
//! `kernel.core_pattern` and `kernel.modprobe` are programs that the kernel starts, and others guard the machine.

/// Settings by the kernel's names: Documentation/admin-guide/sysctl/vm.rst and kernel.rst,
/// Documentation/admin-guide/mm, v6.12 and older; `*` stands for a size in KiB. Left out is what says how a machine
/// protects itself (`vm.mmap_min_addr`, `vm.unprivileged_userfaultfd`, `vm.hugetlb_shm_group`) or ends
/// (`vm.panic_on_oom`).
const NAMES: [&str; 80] = [
    "kernel.numa_balancing",
    "kernel.numa_balancing_promote_rate_limit_MBps",
    "kernel.numa_balancing_scan_delay_ms",
    "kernel.numa_balancing_scan_period_max_ms",
    "kernel.numa_balancing_scan_period_min_ms",
    "kernel.numa_balancing_scan_size_mb",
    "vm.admin_reserve_kbytes",
    "vm.compact_memory",
    "vm.compact_unevictable_allowed",
    "vm.compaction_proactiveness",
    "vm.defrag_mode",
    "vm.dirty_background_bytes",
    "vm.dirty_background_ratio",
    "vm.dirty_bytes",
    "vm.dirty_expire_centisecs",
    "vm.dirty_ratio",
    "vm.dirty_writeback_centisecs",
    "vm.dirtytime_expire_seconds",
    "vm.drop_caches",
    "vm.extfrag_threshold",
    "vm.fragment_stall_order",
    "vm.hugepages_treat_as_movable",
    "vm.hugetlb_optimize_vmemmap",
    "vm.laptop_mode",
    "vm.lowmem_reserve_ratio",
    "vm.max_map_count",
    "vm.min_free_kbytes",
    "vm.min_slab_ratio",
    "vm.min_unmapped_ratio",
    "vm.nr_hugepages",
    "vm.nr_hugepages_mempolicy",
    "vm.nr_overcommit_hugepages",
    "vm.numa_stat",
    "vm.numa_zonelist_order",
    "vm.oom_kill_allocating_task",
    "vm.overcommit_kbytes",
    "vm.overcommit_memory",
    "vm.overcommit_ratio",
    "vm.page-cluster",
    "vm.page_lock_unfairness",
    "vm.percpu_pagelist_fraction",
    "vm.percpu_pagelist_high_fraction",
    "vm.stat_interval",
    "vm.stat_refresh",
    "vm.swappiness",
    "vm.user_reserve_kbytes",
    "vm.vfs_cache_pressure",
    "vm.watermark_boost_factor",
    "vm.watermark_scale_factor",
    "vm.zone_reclaim_mode",
    "hugepages/hugepages-*kB/nr_hugepages",
    "hugepages/hugepages-*kB/nr_overcommit_hugepages",
    "ksm/max_page_sharing",
    "ksm/merge_across_nodes",
    "ksm/pages_to_scan",
    "ksm/run",
    "ksm/sleep_millisecs",
    "ksm/use_zero_pages",
    "lru_gen/enabled",
    "lru_gen/min_ttl_ms",
    "numa/demotion_enabled",
    "swap/vma_ra_enabled",
    "transparent_hugepage/debug_cow",
    "transparent_hugepage/defrag",
    "transparent_hugepage/enabled",
    "transparent_hugepage/hpage_pmd_size",
    "transparent_hugepage/hugepages-*kB/enabled",
    "transparent_hugepage/hugepages-*kB/shmem_enabled",
    "transparent_hugepage/khugepaged/alloc_sleep_millisecs",
    "transparent_hugepage/khugepaged/defrag",
    "transparent_hugepage/khugepaged/full_scans",
    "transparent_hugepage/khugepaged/max_ptes_none",
    "transparent_hugepage/khugepaged/max_ptes_shared",
    "transparent_hugepage/khugepaged/max_ptes_swap",
    "transparent_hugepage/khugepaged/pages_collapsed",
    "transparent_hugepage/khugepaged/pages_to_scan",
    "transparent_hugepage/khugepaged/scan_sleep_millisecs",
    "transparent_hugepage/shmem_enabled",
    "transparent_hugepage/shrink_underused",
    "transparent_hugepage/use_zero_page",
];

/// All of them, in order.
#[must_use]
pub const fn names() -> &'static [&'static str] {
    &NAMES
}

/// Whether a setting of this name is one of memory management.
#[must_use]
pub fn is_knob(name: &str) -> bool {
    NAMES.iter().any(|known| match known.split_once('*') {
        None => *known == name,
        Some((before, after)) => {
            let size = name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
            size.is_some_and(|size| {
                !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_digit())
            })
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_starts_programs_or_guards_the_machine_is_no_knob() {
        for name in [
            "kernel.core_pattern",
            "kernel.modprobe",
            "kernel.randomize_va_space",
            "vm.mmap_min_addr",
            "vm.panic_on_oom",
            "fs.protected_symlinks",
            "net.ipv4.ip_forward",
            "hugepages/hugepages-../x/nr_hugepages",
            "hugepages/hugepages-kB/nr_hugepages",
            "",
        ] {
            assert!(!is_knob(name), "{name}");
        }
        for name in ["vm.swappiness", "hugepages/hugepages-2048kB/nr_hugepages", "lru_gen/enabled"]
        {
            assert!(is_knob(name), "{name}");
        }
    }
}
