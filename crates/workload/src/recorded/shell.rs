//! The shell that ran the commands: what each of its programs takes to start, and the copies that were made of the
//! counters.
//!
//! A case's counters are told by copies that a shell made, one program for each file. `vmstat` was the first of
//! them before the run and after it, so what the other copies took before lies within the counted time. Nothing
//! else ran in the `compactmem` cases: 4.4 to 6.12 count 186 to 201 faults there, and 141 to 284 pages that became
//! active. 3.x counts 432 faults around `postmark`, for no page around a fault is mapped (`do_fault_around` came with
//! 3.15). So each of eight programs takes 24 faults or 48, as [`PRIVATE_PAGES`] and [`TEXT_WINDOWS`] do, and `postmark`
//! itself as many. What a program maps of its text becomes active when the first one that maps it ends
//! (`zap_pte_range`): unpacking it was a use already.
//!
//! Where `held` was copied, a child of the program did that, with no program for each file: 10 to 33 faults more
//! since 4.4, 93 more on 3.3 to 3.5. The child uses what the program had
//! used of its text for the second time, and as much of the rest.
//!
//! In the guests about 140 pages become active so once, twice or three times: 141 around nothing on 4.4 and 4.6, 272 to 284
//! since; 298 or 438 around a `usemem`. What the shell's programs, the sampler and the program map would be three.
//!
//! Departs: all programs of the shell use the same parts of its text, which nothing has used when counting begins, and
//! the sampler always ends before the counters are copied. Visible as: 256 pages become active around nothing, 384 around a
//! program; on 3.x a quarter of that, in the guests 119 to 155.

use super::Shell;
use crate::background::Background;
use crate::process::run_process;
use highorder_system::{Access, Area, Code, Failure, Ns, Pattern, System, ThreadSpec};

/// The file that has the text of the shell's own programs. Its name is no file's of the disk under test, as all of these.
const SHELL_TEXT: &str = "/busybox";

/// And of the program under test.
const PROGRAM_TEXT: &str = "/program";

/// And of the sampler.
const SAMPLER_TEXT: &str = "/sampler";

/// Parts of its text that a program reads from, each as long as what a fault maps since 3.15.
const TEXT_WINDOWS: u64 = 8;

/// Pages of each part.
const WINDOW_PAGES: u64 = 16;

/// How many of them a program reads.
const PAGES_READ: u64 = 4;

/// What a program writes: data, stack and heap, and what it copies of the shell's.
const PRIVATE_PAGES: u64 = 16;

/// How many pages the child that copies what is held reads of each part that the program had read from, and of as many
/// others: what copies files is no part of what the program did before.
const PAGES_OF_CHILD: u64 = 5;

/// How many it writes.
const PRIVATE_PAGES_OF_CHILD: u64 = 4;

/// Programs that make one copy of all files: of `vmstat`, `buddyinfo`, `pagetypeinfo`, `zoneinfo`, `meminfo` and
/// `slabinfo` in `/proc`, `extfrag_index` and `unusable_index` in debugfs.
const COPIES: u32 = 8;

/// Puts the programs where the guest's start had them, and uses what the guest's start used of them.
///
/// Half of what was unpacked is the shell's: of 4.1 to 4.7 MiB in 4.4 to 6.12's guests 2.2 to 2.9 are mapped, and 2.2 to
/// 2.4 are active where lists tell.
/// Departs: how long each file is is not told; the program under test has a quarter, the sampler another. Visible as: a
/// little more or less of their text goes to swap.
pub(super) fn prepare(shell: Shell, sys: &mut dyn System) -> Result<(), Failure> {
    let page_bytes = sys.machine().page_bytes;
    let pages = shell.rootfs_bytes / page_bytes;
    for (text, share) in [(SHELL_TEXT, 2), (SAMPLER_TEXT, 4), (PROGRAM_TEXT, 4)] {
        sys.unpack_file(text, text_pages(pages / share) * page_bytes)?;
    }
    // Programs that started the guest and ended, and the shell itself, which lives on.
    run_process(sys, ThreadSpec::process("init"), Box::new(start)).map(|_| ())?;
    start(sys)
}

/// Uses all of the shell's text but for the parts that later programs read from.
fn start(sys: &mut dyn System) -> Result<(), Failure> {
    let (mapped, every) = map_text(sys, SHELL_TEXT)?;
    for first in (0..TEXT_WINDOWS).map(|number| number * every) {
        if every > WINDOW_PAGES {
            let rest = mapped.part(first + WINDOW_PAGES, every - WINDOW_PAGES);
            sys.touch_range(rest, Pattern::word(Access::Read))?;
        }
    }
    Ok(())
}

/// So many pages, or a few more or less, of which each part that is read from has as many.
fn text_pages(pages: u64) -> u64 {
    TEXT_WINDOWS * (pages / TEXT_WINDOWS / WINDOW_PAGES).max(1) * WINDOW_PAGES
}

/// Maps a text. Also says how far its parts lie apart that are read from, in pages.
fn map_text(sys: &mut dyn System, text: &str) -> Result<(Area, u64), Failure> {
    let file = sys.open_file(text)?;
    let pages = sys.file_bytes(file)? / sys.machine().page_bytes;
    let mapped = sys.map_file(file, 0, pages, Access::Read)?;
    sys.close_file(file)?;
    Ok((mapped, pages / TEXT_WINDOWS))
}

/// Starts the sampler: it was there all the while, and noted what `vmstat` and `buddyinfo` said once a second.
///
/// Departs: it uses as much each time as a program that starts. Visible as: where text goes to swap, a few pages more or
/// less come back.
pub(super) fn start_sampler(
    sys: &mut dyn System,
    background: &mut Background,
) -> Result<(), Failure> {
    background.start(sys, "sampler", |sys, signal| {
        /// How often it looks whether all is over.
        const PAUSE: Ns = Ns::from_millis(100);
        const PAUSES: u32 = 10;
        let (mapped, every) = map_text(sys, SAMPLER_TEXT)?;
        let private = sys.mmap(PRIVATE_PAGES)?;
        loop {
            use_text(sys, (mapped, every), 0, PAGES_READ)?;
            sys.touch_range(private, Pattern::word(Access::Write))?;
            signal.set_ready();
            for _ in 0..PAUSES {
                if signal.is_over() {
                    return Ok(());
                }
                sys.sleep(PAUSE)?;
            }
        }
    })?;
    background.wait_until_ready(sys)
}

/// Copies the counters.
pub(super) fn copy_counters(sys: &mut dyn System) -> Result<(), Failure> {
    (0..COPIES).try_for_each(|_| copy_one(sys))
}

/// One of the shell's programs, which does no more than start.
fn copy_one(sys: &mut dyn System) -> Result<(), Failure> {
    run_process(sys, ThreadSpec::process("cp"), after_start(SHELL_TEXT, Box::new(|_| Ok(()))))
        .map(|_| ())
}

/// A program as this shell starts it.
pub(super) fn started(shell: Shell, code: Code) -> Code {
    let code: Code = Box::new(move |sys| {
        code(sys)?;
        match shell.copies_held {
            true => run_process(sys, ThreadSpec::process("copy"), Box::new(copy_held)).map(|_| ()),
            false => Ok(()),
        }
    });
    after_start(PROGRAM_TEXT, code)
}

/// What the child does that copies what is held.
fn copy_held(sys: &mut dyn System) -> Result<(), Failure> {
    let text = map_text(sys, PROGRAM_TEXT)?;
    // Halfway between two parts, or, where nothing lies there, other pages of the same.
    let others = if text.1 > WINDOW_PAGES { text.1 / 2 } else { 1 };
    for from in [0, others] {
        use_text(sys, text, from, PAGES_OF_CHILD)?;
    }
    write_private(sys, PRIVATE_PAGES_OF_CHILD)
}

/// Runs this after what any program does of a text when it starts.
fn after_start(text: &'static str, code: Code) -> Code {
    Box::new(move |sys| {
        let text = map_text(sys, text)?;
        use_text(sys, text, 0, PAGES_READ)?;
        write_private(sys, PRIVATE_PAGES)?;
        code(sys)
    })
}

fn write_private(sys: &mut dyn System, pages: u64) -> Result<(), Failure> {
    let private = sys.mmap(pages)?;
    sys.touch_range(private, Pattern::word(Access::Write))
}

/// Reads so many pages, evenly apart, of each part of a text that is mapped: parts begin at this page, and are so far apart.
/// What programs use of their text lies scattered.
fn use_text(
    sys: &mut dyn System,
    (mapped, every): (Area, u64),
    from: u64,
    pages: u64,
) -> Result<(), Failure> {
    let parts = (0..TEXT_WINDOWS).map(|number| number * every + from);
    let mut read = parts.flat_map(|part| (0..pages).map(move |i| part + i * WINDOW_PAGES / pages));
    read.try_for_each(|page| sys.touch_range(mapped.part(page, 1), Pattern::word(Access::Read)))
}
