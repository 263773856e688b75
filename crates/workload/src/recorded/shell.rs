//! The shell that ran the commands: what each of its programs takes to start, and the copies that were made of the
//! counters.
//!
//! A case's counters are told by copies that a shell made, one program for each file. `vmstat` was the first of
//! them before the run and after it, so what the other copies took before lies within the counted time. Nothing
//! else ran in the `compactmem` cases: 4.4 to 6.12 count 186 to 201 faults there, and 141 to 284 pages that became
//! active. 3.x counts 432 faults around `postmark`, for no page around a fault is mapped (`do_fault_around` came with
//! 3.15). So each of eight programs takes 24 faults or 48, as [`PRIVATE_PAGES`] and [`TEXT_WINDOWS`] do, and `postmark`
//! itself as many. The second of them is the second to use the pages of its text: they become active
//! (`zap_pte_range`), as many as a program maps. Before 4.7 writing a page is a use of it too, so they become active at
//! their first use, before the run.
//!
//! Where `held` was copied, a child of the program did that, with no program for each file: 10 to 33 faults more
//! since 4.4, 93 more on 3.3 to 3.5. The child uses the program's text for the second time.
//!
//! Departs: the programs' text lies in files of the file system under test; the guests had it in a tmpfs, which
//! goes to swap. Visible as: where memory runs out, it is read from its file again and not swapped in. All programs of
//! the shell use the same parts of its text. Visible as: where nothing else ran, half as many pages become active as in
//! the guests, and none before 4.7.

use super::Shell;
use crate::files::write_new;
use crate::process::run_process;
use highorder_system::{Access, Code, Failure, Pattern, System, ThreadSpec};

/// The file that has the text of the shell's own programs.
const SHELL_TEXT: &str = "busybox";

/// And of the program under test.
const PROGRAM_TEXT: &str = "program";

/// Parts of its text that a program reads from, each as long as what a fault maps since 3.15.
const TEXT_WINDOWS: u64 = 8;

/// Pages of each part.
const WINDOW_PAGES: u64 = 16;

/// How many of them a program reads.
const PAGES_READ: u64 = 4;

/// What a program writes: data, stack and heap, and what it copies of the shell's.
const PRIVATE_PAGES: u64 = 16;

/// How many pages of each part the child reads that copies what is held, and how many it writes.
const CHILD_PAGES: (u64, u64) = (10, 12);

/// Programs that make one copy of all files: of `vmstat`, `buddyinfo`, `pagetypeinfo`, `zoneinfo`, `meminfo` and
/// `slabinfo` in `/proc`, `extfrag_index` and `unusable_index` in debugfs.
const COPIES: u32 = 8;

/// Puts the programs' text in memory, where the guest's start had it, and makes the copy of `vmstat` that says what was
/// before the run.
pub(super) fn prepare(sys: &mut dyn System) -> Result<(), Failure> {
    const BLOCK: u64 = 1 << 16;
    let bytes = TEXT_WINDOWS * WINDOW_PAGES * sys.machine().page_bytes;
    for text in [SHELL_TEXT, PROGRAM_TEXT] {
        write_new(sys, text, bytes, BLOCK)?;
    }
    sys.sync()?;
    copy_one(sys)
}

/// Copies the counters.
pub(super) fn copy_counters(sys: &mut dyn System) -> Result<(), Failure> {
    (0..COPIES).try_for_each(|_| copy_one(sys))
}

/// One of the shell's programs.
fn copy_one(sys: &mut dyn System) -> Result<(), Failure> {
    run(sys, "cp", SHELL_TEXT, (PAGES_READ, PRIVATE_PAGES))
}

/// Runs a program that does no more than start.
fn run(
    sys: &mut dyn System,
    name: &str,
    text: &'static str,
    pages: (u64, u64),
) -> Result<(), Failure> {
    let code = after(text, pages, Box::new(|_| Ok(())));
    run_process(sys, ThreadSpec::process(name), code).map(|_| ())
}

/// A program as this shell starts it.
pub(super) fn started(shell: Shell, code: Code) -> Code {
    let code: Code = Box::new(move |sys| {
        code(sys)?;
        match shell.copies_held {
            true => run(sys, "copy", PROGRAM_TEXT, CHILD_PAGES),
            false => Ok(()),
        }
    });
    after(PROGRAM_TEXT, (PAGES_READ, PRIVATE_PAGES), code)
}

/// Runs this after so many pages of each part of a text were read, and so many of its own written.
fn after(text: &'static str, (read, written): (u64, u64), code: Code) -> Code {
    Box::new(move |sys| {
        let file = sys.open_file(text)?;
        let mapped = sys.map_file(file, 0, TEXT_WINDOWS * WINDOW_PAGES, Access::Read)?;
        for first in (0..TEXT_WINDOWS).map(|number| number * WINDOW_PAGES) {
            sys.touch_range(mapped.part(first, read), Pattern::word(Access::Read))?;
        }
        sys.close_file(file)?;
        let private = sys.mmap(written)?;
        sys.touch_range(private, Pattern::word(Access::Write))?;
        code(sys)
    })
}
