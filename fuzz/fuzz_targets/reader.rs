//! One of the readers of `highorder-fuzz`, the one that `HIGHORDER_FUZZ_TARGET` names.

#![no_main]

use highorder_fuzz::{Target, find};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static TARGET: LazyLock<&'static Target> = LazyLock::new(|| {
    let name = std::env::var("HIGHORDER_FUZZ_TARGET").unwrap_or_default();
    find(&name).unwrap_or_else(|| panic!("HIGHORDER_FUZZ_TARGET is `{name}`, expected a target of crates/fuzz"))
});

fuzz_target!(|bytes: &[u8]| (TARGET.read)(bytes));
