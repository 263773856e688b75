//! Trees of files that are worked on: their names, and the heaps of those who work.

use crate::process::map;
use highorder_system::{Advice, Area, Failure, System};

/// Read, written and copied at a time, at most.
pub(crate) const BLOCK: u64 = 64 << 10;

/// Maps a heap. No recorded run has a huge fault in one, and compilers ask for a MiB now and then.
pub(crate) fn map_heap(sys: &mut dyn System, bytes: u64) -> Result<Area, Failure> {
    let pages = bytes / sys.machine().page_bytes;
    map(sys, pages, Some(Advice::NoHuge))
}

/// A file of a tree.
pub(crate) fn file_name(tree: u64, file: u64) -> String {
    format!("tree-{tree}/{file}")
}

/// What a unit of a tree leaves.
pub(crate) fn object_name(tree: u64, number: u64) -> String {
    format!("objects-{tree}/{number}")
}

/// Deletes trees of so many files each. What units left stays.
pub(crate) fn remove(sys: &mut dyn System, trees: u64, files: u64) -> Result<(), Failure> {
    (0..trees)
        .try_for_each(|tree| (0..files).try_for_each(|file| sys.unlink(&file_name(tree, file))))
}
