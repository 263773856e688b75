//! A model as these tests boot it.

use highorder_lab::Kernel;
use highorder_sim::{Machine, Ns};
use highorder_system::model::ModelSpec;
use std::collections::BTreeMap;

/// A machine under a kernel, with huge pages for whom `enabled` says; nothing is demanded and nothing drawn.
pub(crate) fn model(machine: Machine, kernel: &str, enabled: &str) -> ModelSpec {
    let kernel = Kernel::load(kernel).unwrap();
    let enabled = ("transparent_hugepage/enabled".to_owned(), enabled.to_owned());
    ModelSpec {
        machine,
        policy: kernel.policy,
        flows: kernel.flows,
        knobs: BTreeMap::from([enabled]),
        seed: 1,
        demands: Vec::new(),
        sample_interval: Ns::from_secs(5),
        draw: None,
        watch: None,
    }
}
