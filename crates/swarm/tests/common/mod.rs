//! Experiments as text.

use highorder_lab::{Experiment, Scale};
use highorder_record::Store;
use std::fs;
use std::num::NonZeroUsize;

/// Runs an experiment with every invariant checked, on a machine with these nodes: MiB and CPUs.
///
/// # Errors
/// It is refused, or cannot go on.
pub(crate) fn run(
    nodes: &[(u64, u64)],
    sample_interval_ms: u64,
    workload: &str,
    variant: &str,
) -> Result<(), String> {
    let mut machine = "based_on = \"guest-tcg\"\ndescription = \"small\"\n".to_owned();
    for (mib, cpus) in nodes {
        machine.push_str(&format!("\n[[node]]\nmemory_mib = {mib}\ncpus = {cpus}\n"));
    }
    run_on(&machine, sample_interval_ms, workload, variant)
}

/// The same on the machine of this file.
pub(crate) fn run_on(
    machine: &str,
    sample_interval_ms: u64,
    workload: &str,
    variant: &str,
) -> Result<(), String> {
    let folder = tempfile::tempdir().expect("a folder");
    let experiment = format!(
        "description = \"found\"\nmachine = \"machine.toml\"\nseed = 1\n\
         sample_interval_ms = {sample_interval_ms}\n\n\
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
