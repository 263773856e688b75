//! Experiments drawn from seeds: a machine, a kernel, knobs, a workload, demands and what may go wrong (little or no swap,
//! a slow disk, a disk that is soon full, more memory wanted than there is, so that tasks are killed).
//!
//! All of it lies within the documented limits, so that whatever breaks is a fault of ours. [`run`] makes the run
//! with every invariant of memory and of time checked whenever the timeline is sampled, then once more without the
//! checks, which are to change nothing, and compares the bytes.
//! `tests/swarm.rs` runs seeds, makes a failing one as simple as it can, and prints it as files to run by hand.

mod draw;

pub use draw::{Piece, Scenario};

use highorder_lab::{ExecuteError, Experiment, Scale};
use highorder_record::Store;
use highorder_sim::RunError;
use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;

/// Runs a scenario twice in this folder, which is empty; an error tells what was wrong, and so does a panic. A machine
/// that comes to its end, with nobody left to be killed, is nothing wrong.
///
/// # Errors
/// It is refused, cannot go on, or leaves other bytes the second time.
pub fn run(scenario: &Scenario, folder: &Path) -> Result<(), String> {
    let path = scenario.write(folder).map_err(|error| error.to_string())?;
    let experiment = path.to_str().ok_or("a folder whose name is no text")?;
    let experiment = Experiment::load(experiment).map_err(|error| error.to_string())?;
    let plan = experiment.plan(Scale::FULL).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    for (name, plan) in [("checked", plan.clone().checked()), ("unchecked", plan)] {
        let store = Store::open(folder.join(name)).map_err(|error| error.to_string())?;
        let ended = match plan.execute(&store, NonZeroUsize::MIN, &()) {
            Err(ExecuteError::Run { error: error @ RunError::Halted { .. }, .. }) => Some(error),
            ended => ended.map(|_| None).map_err(|error| error.to_string())?,
        };
        bytes.push((ended, bytes_of(&store)?));
    }
    match bytes[0] == bytes[1] {
        true => Ok(()),
        false => Err("the second run left other bytes than the first".to_owned()),
    }
}

/// The files of a store's records, by name.
fn bytes_of(store: &Store) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let mut files = BTreeMap::new();
    for entry in store.list().map_err(|error| error.to_string())? {
        store.read(&entry).map_err(|error| error.to_string())?;
        for file in fs::read_dir(&entry.path).map_err(|error| error.to_string())? {
            let path = file.map_err(|error| error.to_string())?.path();
            let name = path.strip_prefix(store.folder()).unwrap_or(&path).display().to_string();
            files.insert(name, fs::read(&path).map_err(|error| error.to_string())?);
        }
    }
    Ok(files)
}
