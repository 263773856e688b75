//! Trees of files that are worked on: their names, and a unit of work.

use crate::files::{read_to_end, write_new};
use crate::process::{map, run_process};
use highorder_system::{Access, Advice, Code, Failure, Pattern, System, ThreadSpec};

/// Read, written and copied at a time, at most.
pub(crate) const BLOCK: u64 = 64 << 10;

/// A unit of work: a process that reads files, fills a heap and leaves a file.
pub(crate) struct Unit {
    pub(crate) tree: u64,
    /// Which of the tree's units it is.
    pub(crate) number: u64,
    /// Files of the tree that it reads, and their sizes in bytes.
    pub(crate) reads: Vec<(u64, u64)>,
    /// Its heap, in bytes.
    pub(crate) heap: u64,
    /// The file that it leaves, in bytes.
    pub(crate) object: u64,
}

impl Unit {
    /// Runs it to its end. One that was killed for want of memory has left no file, or part of it.
    pub(crate) fn run(self, sys: &mut dyn System, name: &'static str) -> Result<(), Failure> {
        let pages = self.heap / sys.machine().page_bytes;
        let unit: Code = Box::new(move |sys| {
            for &(file, bytes) in &self.reads {
                read_to_end(sys, &file_name(self.tree, file), bytes, BLOCK)?;
            }
            // No recorded run has a huge fault there, and compilers ask for a MiB now and then.
            let heap = map(sys, pages, Some(Advice::NoHuge))?;
            sys.touch_range(heap, Pattern::word(Access::Write))?;
            write_new(sys, &object_name(self.tree, self.number), self.object, BLOCK)
        });
        run_process(sys, ThreadSpec::process(name), unit)?;
        Ok(())
    }
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
