//! What drawn experiments found, made simple: each failed once.

use highorder_lab::{Experiment, Scale};
use highorder_record::Store;
use std::fs;
use std::num::NonZeroUsize;

/// Runs an experiment with every invariant checked, on a machine with these nodes: MiB and CPUs.
///
/// # Errors
/// It is refused, or cannot go on.
fn run(nodes: &[(u64, u64)], workload: &str, variant: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut machine = "based_on = \"guest-tcg\"\ndescription = \"small\"\n".to_owned();
    for (mib, cpus) in nodes {
        machine.push_str(&format!("\n[[node]]\nmemory_mib = {mib}\ncpus = {cpus}\n"));
    }
    let experiment = format!(
        "description = \"found\"\nmachine = \"machine.toml\"\nseed = 1\n\n\
         [workload]\n{workload}\n\n[[variant]]\n{variant}\n"
    );
    let path = folder.path().join("experiment.toml");
    fs::write(folder.path().join("machine.toml"), machine).expect("a file");
    fs::write(&path, experiment).expect("a file");
    let experiment = Experiment::load(path.to_str().expect("a name")).map_err(|e| e.to_string())?;
    let plan = experiment.plan(Scale::FULL).map_err(|e| e.to_string())?.checked();
    let store = Store::open(folder.path().join("store")).map_err(|e| e.to_string())?;
    plan.execute(&store, NonZeroUsize::MIN, &()).map(drop).map_err(|e| e.to_string())
}

/// Issue 23: asked for single pages in ZONE_DMA alone, which had them, kswapd slept at once whenever a task woke it that
/// waited for the reserves of the node.
#[test]
fn kswapd_that_a_throttled_task_wakes_balances_the_zones_of_the_reserves() {
    let workload = "name = \"thpscale\"\nmemory = 0.8\nthreads = 3\nadvice = \"huge\"";
    for swap_mib in [0, 8] {
        let variant = format!("kernel = \"linux-4.20-rc1-stall-v5\"\nswap_mib = {swap_mib}");
        assert_eq!(
            run(&[(128, 4), (160, 1), (160, 1)], workload, &variant),
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
        let ended = run(&[(128, 1)], workload, &format!("kernel = \"{kernel}\"\n{knobs}"));
        assert!(ended.is_ok(), "{kernel}: {ended:?}");
    }
}
