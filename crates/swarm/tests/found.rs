//! What drawn experiments found, made simple: each failed once.

mod common;

use common::{run, run_on};

/// Issue 23: asked for single pages in ZONE_DMA alone, which had them, kswapd slept at once whenever a task woke it that
/// waited for the reserves of the node.
#[test]
fn kswapd_that_a_throttled_task_wakes_balances_the_zones_of_the_reserves() {
    let workload = "name = \"thpscale\"\nmemory = 0.8\nthreads = 3\nadvice = \"huge\"";
    for swap_mib in [0, 8] {
        let variant = format!("kernel = \"linux-4.20-rc1-stall-v5\"\nswap_mib = {swap_mib}");
        assert_eq!(
            run(&[(128, 4), (160, 1), (160, 1)], 1000, workload, &variant),
            Ok(()),
            "{swap_mib} MiB of swap"
        );
    }
}

/// Issue 23: more than there is of memory is taken as it stands, so that nothing is ever free. Whoever wrote to a file went
/// round for minutes when nobody was left to be killed.
#[test]
fn min_free_kbytes_above_all_memory_ends() {
    let usemem = "name = \"usemem\"\nmemory = 0.4\nfile = 0.0\npasses = 1\nthreads = 1";
    let fleet = "name = \"fleet\"\nseconds = 10\nperiod_ms = 1000\nanon = 0.3\nfiles = 0.2\ntree = 0.05\n\
                 file_size = \"4 MiB\"\nsmall_files = 50\nthreads = 3";
    for kernel in ["linux-3.3", "linux-4.4", "linux-4.20-rc1-boost", "linux-6.12"] {
        for workload in [usemem, fleet] {
            let knobs = "[variant.knobs]\n\"vm.min_free_kbytes\" = \"1048576\"";
            let variant = format!("kernel = \"{kernel}\"\n{knobs}");
            if let Err(why) = run(&[(128, 1)], 1000, workload, &variant) {
                let expected = "the machine came to its end: memory ran out";
                assert!(why.contains(expected), "{kernel}, {workload}: {why}");
            }
        }
    }
}

/// Issue 23 (seed 200949): on XFS a fault that found no memory for its page of a file asked for it as readahead does, for
/// which nobody is killed, again and again.
#[test]
fn a_fault_without_memory_on_xfs_has_somebody_killed() {
    let machine = "based_on = \"guest-tcg\"\ndescription = \"small\"\n\n[[node]]\nmemory_mib = 96\ncpus = 2\n\n\
                   [[disk]]\nsource = \"slow\"\ncapacity_gb = 2\nnr_requests = 4\nmax_request_kib = 64\n\
                   filesystem = \"xfs\"\n[disk.flash]\nqueue_depth = 1\n\
                   read = { access_ns = 1000000, command_ns = 0, bytes_per_second = 5000000 }\n\
                   write = { access_ns = 1000000, command_ns = 0, bytes_per_second = 5000000 }\n";
    let workload = "name = \"micro\"\nmemory = 0.9\nprocesses_per_cpu = 1\n\n[[demand]]\nkind = \"object\"\n\
                    rate_per_s = 0.5\nlifetime_s = 2.0\nsize = 1\ngfp = \"atomic\"\n\n[[demand]]\nkind = \"module\"\n\
                    rate_per_s = 100.0\nlifetime_s = 100.0\norder = 3\ngfp = \"atomic\"";
    let ended = run_on(machine, 100, workload, "kernel = \"linux-6.1\"\nswap_mib = 400");
    if let Err(why) = ended {
        assert!(why.contains("the machine came to its end: memory ran out"), "{why}");
    }
}

/// Issue 23 (seed 2413): a pass of reclaim over empty lists took no time, so that kswapd went round millions of times before
/// the memory of a machine without anything left to reclaim had run out.
#[test]
fn passes_over_empty_lists_take_time() {
    let demand = |kind: &str| {
        format!(
            "[[demand]]\nkind = \"{kind}\"\nrate_per_s = 100.0\nlifetime_s = 100.0\norder = 3\ngfp = \"sleeping\"\n"
        )
    };
    let workload = format!(
        "name = \"stutter\"\nfile = 0.4\nhog = 0.9\nmapping = \"4 MiB\"\nrounds = 2\nadvice = \"none\"\n{}{}",
        demand("page-table"),
        demand("module")
    );
    let variant = "kernel = \"linux-4.4-kcompactd\"\nswap_mib = 64";
    let why = run(&[(128, 4)], 100, &workload, variant).unwrap_err();
    assert!(why.contains("the machine came to its end: memory ran out"), "{why}");
}
