//! A model as these tests boot it.

use highorder_kernels::KernelFile;
use highorder_model::ModelSpec;
use highorder_sim::{Machine, Ns};
use std::collections::BTreeMap;

/// A machine under a kernel, with huge pages for whom `enabled` says; nothing is demanded and nothing drawn.
pub(crate) fn model(machine: Machine, kernel: &str, enabled: &str) -> ModelSpec {
    let kernel = KernelFile::load(kernel).unwrap();
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
