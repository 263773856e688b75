//! usemem: threads write one word to each page of their own memory, pass after pass, while others read a
//! file that they have mapped.
//!
//! Models: mmtests' usemem benchmark (2016): two processes of N threads each. Those of the first write
//! private mappings of their share of 0.64 of memory, in ascending order, one word every 4096 bytes, 30
//! times. Those of the second map one file, shared: each the first N-th of 0.16 of memory, and read one
//! word every 4096 bytes, 30 times. The file, of that size and 32 MiB more, was written before, as `create_random_file` says. A shell starts
//! the second process right after the first: by the time it has forked and executed the program once more, the
//! first one's threads are there.
//! Departs: no word is checked before it is rewritten. Visible as: a little less time outside the kernel.
//! One run is one repetition with one N, and its duration begins once the file has been written. Visible as: where
//! mmtests writes the file once for all runs, durations hold none.

use crate::files::create_random_file;
use crate::parameters::{Kind, Parameter, Settings};
use crate::process::{
    ADVICE, Ended, advice, report_killed, report_seconds, run_processes, run_threads,
};
use crate::{THREADS, Workload};
use highorder_system::{Access, Advice, Area, Code, Failure, Ns, Pattern, System, ThreadSpec};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "usemem",
    about: "threads write to each page of their memory, while others read a mapped file",
    parameters: &[
        Parameter {
            name: "advice",
            about: "What is advised of the memory that is written.",
            unit: "",
            kind: Kind::Word(ADVICE),
        },
        // The read 0.2 of a working set of 0.8 of memory; 0.0 for no second process.
        Parameter {
            name: "file",
            about: "A file of which each thread of a second process reads the first N-th, N being their number; 0.0: no such process.",
            unit: "",
            kind: Kind::MemoryOrNone { default_millionths: 160_000 },
        },
        // The written 0.8 of it.
        Parameter {
            name: "memory",
            about: "Written by the first process, a part by each of its threads.",
            unit: "",
            kind: Kind::Memory { default_millionths: 640_000 },
        },
        Parameter {
            name: "passes",
            about: "How often all of it is written, and read.",
            unit: "passes",
            kind: Kind::Count { least: 1, most: 1_000_000, default: 30 },
        },
        Parameter {
            name: THREADS,
            about: "Threads of each of the two processes.",
            unit: "threads",
            kind: Kind::Count { least: 1, most: 8192, default: 1 },
        },
    ],
    check: |_| Ok(()),
    late: &["advice", "passes", THREADS],
    needs_files: |settings| settings.has_memory("file"),
    run,
};

const FILE: &str = "usemem-file";
/// By how much the file is longer than what is read of it.
const FILE_EXTRA: u64 = 32 << 20;
/// By how much the second program begins later than the first: what a shell's fork and a program's start take.
/// Measured: 0.7 to 1 ms between the first lines of two programs that bash starts in the background, Linux 6.18.
const LATER: Ns = Ns::from_millis(1);

fn run(sys: &mut dyn System, settings: &Settings) -> Result<(), Failure> {
    let machine = sys.machine();
    let page_bytes = machine.page_bytes;
    let pages = settings.pages("memory", machine);
    let file_pages = settings.pages("file", machine);
    if file_pages > 0 {
        create_random_file(sys, FILE, file_pages * page_bytes + FILE_EXTRA)?;
        sys.sync()?;
        sys.note_before();
    }
    let settings = settings.later(sys);
    let threads = settings.count_u32(THREADS);
    let passes = settings.count("passes");
    let each = pages / u64::from(threads);
    let advice = advice(settings.word("advice"));
    let writers: Code = Box::new(move |sys| anonymous(sys, threads, each, passes, advice));
    let mut processes = vec![(ThreadSpec::process("usemem"), writers)];
    let file_each = file_pages / u64::from(threads);
    if file_each > 0 {
        let readers: Code = Box::new(move |sys| file(sys, threads, file_each, passes));
        processes.push((ThreadSpec::process("usemem-file"), readers));
    }
    let took = run_processes(sys, processes)?;
    match took.ended {
        Ended::Done => {
            report_seconds(sys, &format!("System-{threads}"), took.system);
            report_seconds(sys, &format!("Elapsd-{threads}"), took.elapsed);
        }
        Ended::Killed => report_killed(sys, &format!("Killed-{threads}"), took.nr_killed),
    }
    if file_pages > 0 { sys.unlink(FILE) } else { Ok(()) }
}

/// The process that writes: its first thread maps, and when all is written unmaps, as the end of a process
/// does.
fn anonymous(
    sys: &mut dyn System,
    threads: u32,
    pages: u64,
    passes: u64,
    advice: Option<Advice>,
) -> Result<(), Failure> {
    let areas = (0..threads).map(|_| sys.mmap(pages)).collect::<Result<Vec<Area>, _>>()?;
    if let Some(advice) = advice {
        areas.iter().try_for_each(|&area| sys.madvise(area, advice))?;
    }
    run_threads(sys, "usemem", threads, |number| {
        let area = areas[number as usize];
        Box::new(move |sys| {
            (0..passes).try_for_each(|_| sys.touch_range(area, Pattern::word(Access::Write)))
        })
    })?;
    sys.note_held();
    areas.iter().try_for_each(|&area| sys.munmap(area))
}

/// The process that reads: all its threads read the same pages, each through a mapping of its own.
fn file(sys: &mut dyn System, threads: u32, pages: u64, passes: u64) -> Result<(), Failure> {
    sys.sleep(LATER)?;
    run_threads(sys, "usemem-f", threads, |_| {
        Box::new(move |sys| {
            let file = sys.open_file(FILE)?;
            let area = sys.map_file(file, 0, pages, Access::Read)?;
            sys.close_file(file)?;
            let words = Pattern::word(Access::Read);
            (0..passes).try_for_each(|_| sys.touch_range(area, words))?;
            sys.munmap(area)
        })
    })
}
