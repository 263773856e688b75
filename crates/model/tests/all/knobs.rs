//! Knobs as kernels boot with them.

use highorder_kernels::{BUILT_IN, KernelFile};
use highorder_model::{Knob, KnobValue, knobs};

fn at_boot(knob: &Knob, kernel: &str) -> Option<KnobValue> {
    let kernel = KernelFile::load(kernel).unwrap();
    knob.on(&kernel.release, &kernel.policy, &kernel.flows)
}

#[test]
fn a_kernel_has_the_knobs_that_its_release_had() {
    let knob = |kernel: &str, name: &str| at_boot(Knob::find(name).unwrap(), kernel);
    let value = |default: &str, allowed: &str| {
        Some(KnobValue { default: Some(default.into()), allowed: allowed.into() })
    };
    assert_eq!(knob("linux-4.4", "vm.swappiness"), value("60", "a whole number, 0..=100"));
    assert_eq!(knob("linux-6.12", "vm.swappiness"), value("60", "a whole number, 0..=200"));
    for name in ["vm.watermark_scale_factor", "vm.watermark_boost_factor"] {
        assert_eq!(knob("linux-4.4", name), None, "{name}");
        assert!(knob("linux-6.12", name).is_some(), "{name}");
    }
    let defrag = "transparent_hugepage/defrag";
    assert_eq!(knob("linux-4.4", defrag), value("always", "always, madvise, never"));
    assert_eq!(
        knob("linux-6.12", defrag),
        value("madvise", "always, defer, defer+madvise, madvise, never")
    );
    let computed = knob("linux-6.12", "vm.min_free_kbytes").unwrap();
    assert_eq!(computed.default, None, "it depends on the machine");
    for (name, _) in BUILT_IN {
        let known = knobs().iter().filter(|knob| at_boot(knob, name).is_some()).count();
        assert!(known >= 12, "{name}: {known}");
    }
}
