//! One of the readers of `highorder-fuzz`, the one that `HIGHORDER_FUZZ_TARGET` names.

#![no_main]

use highorder_fuzz::{Target, find};
use highorder_input::is_fenced;
use libfuzzer_sys::fuzz_target;
use std::panic;
use std::sync::LazyLock;

static TARGET: LazyLock<&'static Target> = LazyLock::new(|| {
    let name = std::env::var("HIGHORDER_FUZZ_TARGET").unwrap_or_default();
    find(&name).unwrap_or_else(|| panic!("HIGHORDER_FUZZ_TARGET is `{name}`, expected a target of crates/fuzz"))
});

/// libFuzzer's hook takes every panic for a finding; one that ends at a fence is an error of the input.
fn look_at_fences() {
    let finding = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if !is_fenced() {
            finding(panic);
        }
    }));
}

fuzz_target!(init: look_at_fences(), |bytes: &[u8]| (TARGET.read)(bytes));
