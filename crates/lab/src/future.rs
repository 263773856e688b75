//! What a recording says later of a frame, for telling what it did not say earlier.

use crate::recording::Event;
use highorder_mm::types::Pfn;

/// For each event, the next event of the same frame; for each frame, its first.
///
/// Kernels hand out some pages without an event (bulk allocation: kernel stacks, vmalloc). Such a page is
/// known by its future: the next thing that happens to it is a free, which only a page in use can have.
pub struct Future {
    next: Vec<u32>,
    first: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl Future {
    /// Looks through a recording from its end.
    #[must_use]
    pub fn of(events: &[Event], nr_frames: usize) -> Self {
        let mut next = vec![NONE; events.len()];
        let mut first = vec![NONE; nr_frames];
        for (at, event) in events.iter().enumerate().rev() {
            if event.kind.names_a_frame() {
                next[at] = first[event.pfn.index()];
                first[event.pfn.index()] = at as u32;
            }
        }
        Self { next, first }
    }

    /// A cursor at the start of the recording.
    #[must_use]
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor { future: self, coming: self.first.clone() }
    }
}

/// Knows the coming event of every frame as the replay goes on.
pub struct Cursor<'a> {
    future: &'a Future,
    coming: Vec<u32>,
}

impl Cursor<'_> {
    /// Steps past the event at `at`.
    #[inline]
    pub fn pass(&mut self, at: usize, event: &Event) {
        if event.kind.names_a_frame() {
            self.coming[event.pfn.index()] = self.future.next[at];
        }
    }

    /// The index of the coming event of a frame.
    #[inline]
    #[must_use]
    pub fn coming(&self, pfn: Pfn) -> Option<usize> {
        let at = self.coming[pfn.index()];
        (at != NONE).then_some(at as usize)
    }
}
