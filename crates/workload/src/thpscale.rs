//! thpscale: threads punch holes of half a huge page into their memory, fill memory with page cache, and
//! then ask for huge pages one after the other.
//!
//! Models: mmtests' thpscale benchmark (2016): one process of N threads. A file of 0.8 of memory is written
//! once and dropped from the cache. Each thread maps and writes its share of 0.8 of memory, unmaps the
//! first half of every huge page's place, reads a quarter of its share of the file through a mapping, and
//! waits for the others. Then it takes the time of each huge page's place in a second mapping, which is as
//! large as half its share, and which alone is advised: one byte is written, `mincore` says whether the page
//! 64 places behind came with it, and the rest is filled.
//! Departs: what the first mapping still holds goes piece by piece, where one munmap takes all of it. Visible
//! as: the other threads wait less for the first that is done. One run is one N, and its duration
//! begins once the file has been written. Visible as: where mmtests writes the file once for all, durations hold none.

use crate::files::create_random_file;
use crate::parameters::{Kind, Parameter, Settings};
use crate::process::{
    ADVICE, Ended, advice, report_killed, report_seconds, run_process, run_threads,
};
use crate::{THREADS, Workload};
use highorder_record::{Better, Metric};
use highorder_system::{
    Access, Advice, Area, BarrierId, Caches, Code, Failure, Ns, Pattern, System, ThreadSpec,
};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "thpscale",
    about: "threads ask for huge pages in memory full of holes and page cache",
    parameters: &[
        Parameter {
            name: "advice",
            about: "What is advised of the memory in which the time of each huge page is taken.",
            unit: "",
            kind: Kind::Word(ADVICE),
        },
        Parameter {
            name: "memory",
            about: "Memory of all threads together, and a file of the same size.",
            unit: "",
            kind: Kind::Memory { default_millionths: 800_000 },
        },
        Parameter {
            name: THREADS,
            about: "Threads of the one process.",
            unit: "threads",
            kind: Kind::Count { least: 1, most: 8192, default: 1 },
        },
    ],
    check: |_| Ok(()),
    late: &["advice", THREADS],
    needs_files: |_| true,
    run,
};

const FILE: &str = "thpscale-file";
/// What is added to each thread's share before it is rounded up to whole huge pages.
const SHARE_EXTRA: u64 = 6 << 20;
/// The page that is asked about: if it came with the first, all did.
const PROBE: u64 = 64;

/// What every thread does.
#[derive(Clone, Copy, Debug)]
struct Plan {
    threads: u32,
    /// Pages of a thread's first mapping: whole huge pages.
    share: u64,
    /// Pages of its second mapping that it fills: half its share before that was rounded up, in whole huge pages.
    filled: u64,
    file_pages: u64,
    huge: u64,
    advice: Option<Advice>,
    ready: BarrierId,
}

fn run(sys: &mut dyn System, settings: &Settings) -> Result<(), Failure> {
    let machine = sys.machine();
    let (page_bytes, huge) = (machine.page_bytes, machine.huge_pages);
    let file_pages = settings.pages("memory", machine);
    create_random_file(sys, FILE, file_pages * page_bytes)?;
    sys.sync()?;
    sys.drop_caches(Caches::All)?;
    sys.note_before();
    let settings = settings.later(sys);
    let threads = settings.count_u32(THREADS);
    let exact = file_pages / u64::from(threads);
    let share = exact + SHARE_EXTRA / page_bytes;
    let plan = Plan {
        threads,
        share: share.next_multiple_of(huge),
        filled: exact / 2 / huge * huge,
        file_pages,
        huge,
        advice: advice(settings.word("advice")),
        ready: sys.new_barrier(threads)?,
    };
    let code: Code = Box::new(move |sys| process(sys, plan));
    let took = run_process(sys, ThreadSpec::process("thpscale"), code)?;
    match took.ended {
        Ended::Done => {
            report_seconds(sys, &format!("System-{threads}"), took.system);
            report_seconds(sys, &format!("Elapsd-{threads}"), took.elapsed);
        }
        Ended::Killed => report_killed(sys, &format!("Killed-{threads}"), took.nr_killed),
    }
    sys.unlink(FILE)
}

fn process(sys: &mut dyn System, plan: Plan) -> Result<(), Failure> {
    let found = fill_by_threads(sys, plan.threads, move |sys, number| {
        thread(sys, plan, u64::from(number))
    })?;
    sys.note_held();
    report_units(sys, plan.threads, found);
    Ok(())
}

/// Has each of so many threads fill huge pages' places. As [`fill_units`], of all together.
pub(crate) fn fill_by_threads(
    sys: &mut dyn System,
    threads: u32,
    fill: impl Fn(&mut dyn System, u32) -> Result<[u64; 2], Failure> + Copy + Send + 'static,
) -> Result<[u64; 2], Failure> {
    let all = Arc::new(Mutex::new([0_u64; 2]));
    run_threads(sys, "thpscale", threads, |number| {
        let all = all.clone();
        Box::new(move |sys| {
            let found = fill(sys, number)?;
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            all[0] += found[0];
            all[1] += found[1];
            Ok(())
        })
    })?;
    let found = *all.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(found)
}

/// Reports how many huge pages' places were filled by base pages and by huge pages: the share, and where
/// there was none of a kind the 0 that stands for its latency.
pub(crate) fn report_units(sys: &mut dyn System, threads: u32, [base, huge]: [u64; 2]) {
    for (kind, nr) in [("fault-base", base), ("fault-huge", huge)] {
        if nr == 0 {
            sys.report(&latency_row(kind, threads), 0.0);
        }
    }
    if base + huge > 0 {
        let row = Metric::new(format!("Percentage huge-{threads}"), "%", Better::Higher);
        sys.report(&row, 100.0 * huge as f64 / (base + huge) as f64);
    }
}

fn latency_row(kind: &str, threads: u32) -> Metric {
    Metric::new(format!("{kind}-{threads}"), "us", Better::Lower)
}

fn thread(sys: &mut dyn System, plan: Plan, number: u64) -> Result<[u64; 2], Failure> {
    let first = sys.mmap(plan.share)?;
    sys.touch_range(first, Pattern::whole(Access::Write))?;
    for unit in (0..plan.share).step_by(plan.huge as usize) {
        sys.munmap(first.part(unit, plan.huge / 2))?;
    }
    let second = sys.mmap(plan.share / 2)?;
    if let Some(advice) = plan.advice {
        sys.madvise(second, advice)?;
    }
    // The shares are rounded up: the last threads' parts end with the file.
    let quarter = plan.share / 4;
    let begin = (number * plan.share).min(plan.file_pages.saturating_sub(quarter));
    let pages = quarter.min(plan.file_pages - begin);
    let file = sys.open_file(FILE)?;
    let cached = sys.map_file(file, begin, pages, Access::Read)?;
    sys.close_file(file)?;
    sys.touch_range(cached, Pattern::word(Access::Read))?;
    sys.barrier(plan.ready)?;
    let found = fill_units(sys, second.part(0, plan.filled), plan.threads)?;
    sys.munmap(cached)?;
    for unit in (0..plan.share).step_by(plan.huge as usize) {
        sys.munmap(first.part(unit + plan.huge / 2, plan.huge / 2))?;
    }
    sys.munmap(second)?;
    Ok(found)
}

/// Fills one huge page's place of an area after the other, taking the time of each. Returns how many were
/// filled by base pages, and how many by a huge page.
pub(crate) fn fill_units(
    sys: &mut dyn System,
    area: Area,
    threads: u32,
) -> Result<[u64; 2], Failure> {
    let huge = sys.machine().huge_pages;
    let mut found = [0; 2];
    for unit in 0..area.pages / huge {
        let unit = area.part(unit * huge, huge);
        let began = sys.now();
        sys.touch(unit.page(0), Access::Write)?;
        let is_huge = sys.is_present(unit.page(PROBE))?;
        sys.touch_range(unit, Pattern::whole(Access::Write))?;
        let took: Ns = sys.now() - began;
        let kind = if is_huge { "fault-huge" } else { "fault-base" };
        sys.report(&latency_row(kind, threads), took.0 as f64 / 1000.0);
        sys.latency(kind, took);
        found[usize::from(is_huge)] += 1;
    }
    Ok(found)
}
