//! What drawn experiments found, made simple: each failed once.

mod common;

use common::run;

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

/// Issue 23: more than there is of memory is taken as it stands, and nothing is ever free.
#[test]
fn min_free_kbytes_above_all_memory_ends() {
    let workload = "name = \"usemem\"\nmemory = 0.4\nfile = 0.0\npasses = 1\nthreads = 1";
    for kernel in ["linux-3.3", "linux-4.4", "linux-6.12"] {
        let knobs = "[variant.knobs]\n\"vm.min_free_kbytes\" = \"1048576\"";
        let ended = run(&[(128, 1)], 1000, workload, &format!("kernel = \"{kernel}\"\n{knobs}"));
        assert!(ended.is_ok(), "{kernel}: {ended:?}");
    }
}
