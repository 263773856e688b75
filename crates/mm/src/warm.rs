//! What will be looked at soon is asked for early.
//!
//! Frames and chunks of files are many and lie anywhere: on a machine of 32 GiB half of what a model does is to wait for
//! them. Where the next ones are known, they are fetched while the work on these goes on.

use crate::memory::Memory;
use crate::types::Pfn;

/// How many pages before its turn a page is asked for: long enough for memory to answer, and not so long that it is
/// gone again.
pub const AHEAD: usize = 8;

/// Asks for the cache line at which this begins. Nothing changes but the time until it can be read.
#[inline]
pub(crate) fn warm<T>(it: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint that reads and writes nothing; every processor of the architecture has it.
        #[allow(
            unsafe_code,
            reason = "there is no safe one; stress-highalloc takes a tenth less time with it"
        )]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(it).cast());
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = it;
}

impl Memory {
    /// Asks for the frame at `pfn`, if there is one.
    #[inline]
    pub fn warm_frame(&self, pfn: Pfn) {
        self.frames.warm(pfn);
    }

    /// Asks for what is known of the files' pages at these frames, which are at hand themselves.
    pub(crate) fn warm_places(&self, pages: &[Pfn]) {
        for &pfn in pages {
            if let Some(owner) = self.place_of(pfn) {
                self.files.warm(owner);
            }
        }
    }
}
