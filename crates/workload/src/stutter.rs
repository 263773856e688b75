//! stutter: how long does a mapping of 128 MiB take, again and again, while most of memory is taken and a
//! large file is copied?
//!
//! Models: mmtests' stutter benchmark (2016): five rounds. In each a hog writes one word to every page of
//! three quarters of memory and sleeps; ten seconds later a file of twice memory is copied, and synced; the
//! hog goes. All the while one program sleeps 5 ms, maps 32768 pages, writes a word to each and unmaps them,
//! and takes the time from the end of one such step to the end of the next, less the 5 ms. Nothing is aligned:
//! up to 6.6 a mapping of 64 huge pages has room for 63.
//! Departs: every sample stands for itself, where the original keeps short ones as averages of groups.
//! Visible as: quartiles that lie among short samples are a little further apart.
//! Departs: the duration begins once the file has been written. Visible as: durations are shorter by that.

use crate::Workload;
use crate::files::{blocks, write_new};
use crate::parameters::{Kind, Parameter, Settings};
use crate::process::{ADVICE, advice, report_killed, report_seconds};
use highorder_record::stats::PERCENTILES;
use highorder_record::{Better, Metric};
use highorder_system::{
    Access, Advice, Caches, Code, Failure, Ns, Pattern, System, ThreadId, ThreadSpec,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "stutter",
    about: "mappings of 128 MiB are timed while most of memory is taken and a file is copied",
    parameters: &[
        Parameter {
            name: "advice",
            about: "What is advised of the mappings whose time is taken.",
            unit: "",
            kind: Kind::Word(ADVICE),
        },
        Parameter {
            name: "file",
            about: "The file that is copied.",
            unit: "",
            kind: Kind::Memory { default_millionths: 2_000_000 },
        },
        Parameter {
            name: "hog",
            about: "What a hog writes once in each round, and holds.",
            unit: "",
            kind: Kind::Memory { default_millionths: 750_000 },
        },
        Parameter {
            name: "mapping",
            about: "A mapping whose time is taken.",
            unit: "",
            kind: Kind::Size { default: 128 << 20 },
        },
        Parameter {
            name: "rounds",
            about: "How often a hog comes, the file is copied, and the hog goes.",
            unit: "rounds",
            kind: Kind::Count { least: 1, most: 1000, default: 5 },
        },
    ],
    check: |_| Ok(()),
    late: &[],
    needs_files: |_| true,
    run,
};

const FILE: &str = "stutter-file";
const COPY: &str = "stutter-copy";
/// Written at a time when the file is made.
const BLOCK: u64 = 1 << 20;
/// Read and written at a time by `cp`: `IO_BUFSIZE`, coreutils since 8.23 (2014).
const COPY_BLOCK: u64 = 128 << 10;
/// Between two mappings.
const PAUSE: Ns = Ns::from_millis(5);
/// Between the hog's start and the copy's.
const SETTLE: Ns = Ns::from_secs(10);
/// How often the hog looks whether it is to end.
const HOG_NAP: Ns = Ns::from_millis(100);

/// Something that one thread tells others once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flag(Arc<AtomicBool>);

impl Flag {
    pub(crate) fn raise(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

fn run(sys: &mut dyn System, settings: &Settings) -> Result<(), Failure> {
    let machine = sys.machine();
    let page_bytes = machine.page_bytes;
    let file_bytes = settings.pages("file", machine) * page_bytes;
    let hog_pages = settings.pages("hog", machine);
    let mapping = (settings.size("mapping") / page_bytes).max(1);
    let advice = advice(settings.word("advice"));
    make_file(sys, file_bytes)?;
    sys.note_before();
    let (began, before) = (sys.now(), sys.cpu_use());
    let rounds = settings.count("rounds");
    let course = Course { hog_pages, file_bytes, mapping, advice, rounds, settle: SETTLE };
    let nr_killed = course.run(sys)?;
    let (now, after) = (sys.now(), sys.cpu_use());
    report_seconds(sys, "User", after.user - before.user);
    report_seconds(sys, "System", after.system - before.system);
    report_seconds(sys, "Elapsd", now - began);
    if nr_killed > 0 {
        report_killed(sys, "Killed", nr_killed);
    }
    sys.unlink(COPY)?;
    sys.unlink(FILE)
}

/// Makes the file that is copied, and drops it from memory.
pub(crate) fn make_file(sys: &mut dyn System, bytes: u64) -> Result<(), Failure> {
    write_new(sys, FILE, bytes, BLOCK)?;
    sys.sync()?;
    sys.drop_caches(Caches::All)
}

/// What is done once the file is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    /// Pages that the hog takes.
    pub(crate) hog_pages: u64,
    pub(crate) file_bytes: u64,
    /// Pages of a mapping whose time is taken.
    pub(crate) mapping: u64,
    pub(crate) advice: Option<Advice>,
    pub(crate) rounds: u64,
    /// From the hog's start to the copy's.
    pub(crate) settle: Ns,
}

impl Course {
    /// Runs all rounds, and says how many processes were killed for want of memory.
    pub(crate) fn run(self, sys: &mut dyn System) -> Result<u32, Failure> {
        let stop = Flag::default();
        let stopped = stop.clone();
        let (mapping, advice) = (self.mapping, self.advice);
        let sampler: Code = Box::new(move |sys| sample(sys, mapping, advice, &stopped));
        let sampler = sys.spawn(ThreadSpec::process("mmap-sampler"), sampler)?;
        let mut nr_killed = 0;
        let rounds = (0..self.rounds).try_for_each(|_| self.round(sys, &mut nr_killed));
        stop.raise();
        nr_killed += was_killed(sys, sampler)?;
        rounds?;
        Ok(nr_killed)
    }

    fn round(self, sys: &mut dyn System, nr_killed: &mut u32) -> Result<(), Failure> {
        let stop = Flag::default();
        let stopped = stop.clone();
        let hog: Code = Box::new(move |sys| {
            let area = sys.mmap_anywhere(self.hog_pages)?;
            sys.touch_range(area, Pattern::word(Access::Write))?;
            while !stopped.is_raised() {
                sys.sleep(HOG_NAP)?;
            }
            sys.munmap(area)
        });
        let hog = sys.spawn(ThreadSpec::process("memory-hog"), hog)?;
        sys.sleep(self.settle)?;
        let copied = copy(sys, self.file_bytes);
        sys.note_held();
        stop.raise();
        *nr_killed += was_killed(sys, hog)?;
        copied
    }
}

/// 1 if a process was killed for want of memory, which is a result.
fn was_killed(sys: &mut dyn System, thread: ThreadId) -> Result<u32, Failure> {
    match sys.join(thread) {
        Ok(()) => Ok(0),
        Err(Failure::Killed) => Ok(1),
        Err(failure) => Err(failure),
    }
}

fn copy(sys: &mut dyn System, bytes: u64) -> Result<(), Failure> {
    let from = sys.open_file(FILE)?;
    let to = sys.create_file(COPY)?;
    for (at, part) in blocks(bytes, COPY_BLOCK) {
        sys.read_file(from, at, part)?;
        sys.write_file(to, at, part)?;
    }
    sys.close_file(from)?;
    sys.close_file(to)?;
    sys.sync()
}

fn sample(
    sys: &mut dyn System,
    pages: u64,
    advice: Option<Advice>,
    stop: &Flag,
) -> Result<(), Failure> {
    let row = Metric::new("mmap", "ms", Better::Lower).shown_as(&PERCENTILES, 4);
    let mut before = sys.now();
    while !stop.is_raised() {
        sys.sleep(PAUSE)?;
        let area = sys.mmap_anywhere(pages)?;
        if let Some(advice) = advice {
            sys.madvise(area, advice)?;
        }
        sys.touch_range(area, Pattern::word(Access::Write))?;
        sys.munmap(area)?;
        let now = sys.now();
        let took = (now - before).saturating_sub(PAUSE);
        before = now;
        sys.report(&row, took.0 as f64 / 1e6);
        sys.latency("mmap", took);
    }
    Ok(())
}
