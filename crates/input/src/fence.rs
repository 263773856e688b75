//! A fence around code that is not ours and may panic over what a user gave.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};

thread_local! {
    static IS_FENCED: Cell<bool> = const { Cell::new(false) };
}

/// Does this; `None` if it panics, of which nothing is printed if the hook asks [`is_fenced`].
///
/// For libraries alone: a panic of ours is a fault to be mended, and has to be seen.
pub fn fenced<T>(work: impl FnOnce() -> T) -> Option<T> {
    let outer = IS_FENCED.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    IS_FENCED.set(outer);
    result.ok()
}

/// Whether a panic of this thread would end at a fence.
#[must_use]
pub fn is_fenced() -> bool {
    IS_FENCED.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_at_the_fence() {
        assert_eq!(fenced(|| 1), Some(1));
        assert!(fenced(|| assert!(is_fenced())).is_some());
        assert_eq!(fenced(|| -> u8 { panic!("a test's") }), None);
        assert!(!is_fenced());
    }
}
