//! The shell that ran the commands: what each of its programs takes to start, and the copies that it made of the
//! counters.
//!
//! A case's counters are told by copies that a shell made, one program for each file. `vmstat` was the first of
//! them before the run and after it, so what the other copies took before lies within the counted time. Nothing
//! else ran in the `compactmem` cases: 4.4 to 6.12 count 186 to 201 faults there. 3.x counts 432 around `postmark`,
//! for no page around a fault is mapped (`do_fault_around` came with 3.15). So each of eight programs takes 24
//! faults or 48, as [`PRIVATE_PAGES`] and [`TEXT_WINDOWS`] do, and `postmark` itself as many.
//!
//! Departs: the programs' text lies in a file of the file system under test; the guests had it in a tmpfs, which
//! goes to swap. Visible as: where memory runs out, it is read from its file again and not swapped in.

use crate::files::write_new;
use crate::process::run_process;
use highorder_system::{Access, Code, Failure, Pattern, System, ThreadSpec};

/// The file that has the text of the programs.
const TEXT: &str = "busybox";

/// Parts of its text that a program reads from, each as long as what a fault maps since 3.15.
const TEXT_WINDOWS: u64 = 6;

/// Pages of each part, and how many of them are read.
const WINDOW_PAGES: (u64, u64) = (16, 5);

/// What a program writes: data, stack and heap, and what it copies of the shell's.
const PRIVATE_PAGES: u64 = 18;

/// Programs that make one copy of all files: of `vmstat`, `buddyinfo`, `pagetypeinfo`, `zoneinfo`, `meminfo` and
/// `slabinfo` in `/proc`, `extfrag_index` and `unusable_index` in debugfs.
const COPIES: u32 = 8;

/// Puts the programs' text in memory, where the guest's start had it.
pub(super) fn prepare(sys: &mut dyn System) -> Result<(), Failure> {
    const BLOCK: u64 = 1 << 16;
    let bytes = TEXT_WINDOWS * WINDOW_PAGES.0 * sys.machine().page_bytes;
    write_new(sys, TEXT, bytes, BLOCK)?;
    sys.sync()?;
    // Twice, as after any number of programs: what is read again is active then.
    (0..2).try_for_each(|_| run(sys))
}

/// Copies the counters.
pub(super) fn copy_counters(sys: &mut dyn System) -> Result<(), Failure> {
    (0..COPIES).try_for_each(|_| run(sys))
}

/// One of the shell's programs, which does no more than start.
fn run(sys: &mut dyn System) -> Result<(), Failure> {
    run_process(sys, ThreadSpec::process("cp"), started(Box::new(|_| Ok(())))).map(|_| ())
}

/// A program as the shell starts it.
pub(super) fn started(code: Code) -> Code {
    Box::new(move |sys| {
        let file = sys.open_file(TEXT)?;
        let (window, read) = WINDOW_PAGES;
        let text = sys.map_file(file, 0, TEXT_WINDOWS * window, Access::Read)?;
        for first in (0..TEXT_WINDOWS).map(|number| number * window) {
            sys.touch_range(text.part(first, read), Pattern::word(Access::Read))?;
        }
        sys.close_file(file)?;
        let private = sys.mmap(PRIVATE_PAGES)?;
        sys.touch_range(private, Pattern::word(Access::Write))?;
        code(sys)
    })
}
