//! usemem: threads write one word to each page of their own memory, pass after pass.
//!
//! Models: the anonymous process of mmtests' usemem benchmark (2016): N threads, each with a private
//! mapping of its share of the memory, in ascending order, one word every 4096 bytes, 30 times.
//! Departs: no second process that reads a file beside it. Visible as: no page cache competes for memory,
//! so reclaim finds anonymous pages alone. No word is checked before it is rewritten.

use crate::parameters::{Kind, Parameter, Settings};
use crate::process::{Ended, report_killed, report_seconds, run_process, run_threads};
use crate::{THREADS, Workload};
use highorder_system::{Access, Area, Code, Failure, Pattern, System, ThreadSpec};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "usemem",
    parameters: &[
        // The anonymous 0.8 of a working set of 0.8 of memory.
        Parameter { name: "memory", kind: Kind::Memory { default_millionths: 640_000 } },
        Parameter { name: "passes", kind: Kind::Count { least: 1, most: 1_000_000, default: 30 } },
        Parameter { name: THREADS, kind: Kind::Count { least: 1, most: 8192, default: 1 } },
    ],
    check: |_| Ok(()),
    run,
};

fn run(sys: &mut dyn System, settings: &Settings) -> Result<(), Failure> {
    let threads = settings.count_u32(THREADS);
    let passes = settings.count("passes");
    let each = settings.pages("memory", sys.machine()) / u64::from(threads);
    let code: Code = Box::new(move |sys| process(sys, threads, each, passes));
    let took = run_process(sys, ThreadSpec::process("usemem"), code)?;
    match took.ended {
        Ended::Done => {
            report_seconds(sys, &format!("System-{threads}"), took.system);
            report_seconds(sys, &format!("Elapsd-{threads}"), took.elapsed);
        }
        Ended::Killed => report_killed(sys, &format!("Killed-{threads}")),
    }
    Ok(())
}

/// The process: its first thread maps, and when all is written unmaps, as the end of a process does.
fn process(sys: &mut dyn System, threads: u32, pages: u64, passes: u64) -> Result<(), Failure> {
    let areas = (0..threads).map(|_| sys.mmap(pages)).collect::<Result<Vec<Area>, _>>()?;
    run_threads(sys, "usemem", threads, |number| {
        let area = areas[number as usize];
        Box::new(move |sys| {
            (0..passes).try_for_each(|_| sys.touch_range(area, Pattern::word(Access::Write)))
        })
    })?;
    sys.note_held();
    areas.iter().try_for_each(|&area| sys.munmap(area))
}
