//! fleet: a long-running machine, nearly full, whose memory turns over slowly.
//!
//! Of our own making, after what a report of November 2017 says of its machines: services keep most of
//! memory, and free pages are few and lie scattered; requests of high orders come all the time. Each thread
//! is a service. It fills its part of anonymous memory with areas of random sizes; then, period after period
//! at the same pace, it replaces areas, gives pages back here and there and writes to them again, as
//! allocators of heaps do, reads pieces of files drawn at random from a set larger than the
//! memory that is left, visits files of a tree of small ones, and writes small files, of which the oldest
//! beyond a number are deleted. The tree is there before the services: its inodes are the first to fill
//! memory, and the first to give way. Requests of the kernel's own (network buffers, stacks) are the
//! experiment's demands, not this workload's.

use crate::files::{Random, write_new};
use crate::parameters::{Kind, Parameter, ParameterError, Settings};
use crate::process::{ADVICE, Ended, advice, join_all, report_killed, report_seconds, run_process};
use crate::{THREADS, Workload};
use highorder_system::{Access, Advice, Area, Code, Failure, Ns, Pattern, System, ThreadSpec};
use std::collections::VecDeque;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "fleet",
    about: "services keep a machine nearly full, and replace areas and files period after period",
    parameters: &[
        Parameter {
            name: "advice",
            about: "What is advised of each area.",
            unit: "",
            kind: Kind::Word(ADVICE),
        },
        Parameter {
            name: "advised_percent",
            about: "Areas, drawn at random, that ask for huge pages where the others take no advice.",
            unit: "percent",
            kind: Kind::Count { least: 0, most: 100, default: 0 },
        },
        Parameter {
            name: "anon",
            about: "Anonymous memory of all threads together.",
            unit: "",
            kind: Kind::Memory { default_millionths: 700_000 },
        },
        Parameter {
            name: "area_max",
            about: "The largest area.",
            unit: "",
            kind: Kind::Fixed { default: 4 << 20 },
        },
        Parameter {
            name: "area_min",
            about: "The smallest area.",
            unit: "",
            kind: Kind::Fixed { default: 64 << 10 },
        },
        Parameter {
            name: "anon_turnover",
            about: "Areas replaced in a period by all threads together.",
            unit: "",
            kind: Kind::Size { default: 64 << 20 },
        },
        Parameter {
            name: "files",
            about: "Large files that are read at random, together.",
            unit: "",
            kind: Kind::Memory { default_millionths: 500_000 },
        },
        Parameter {
            name: "file_size",
            about: "One of these files.",
            unit: "",
            kind: Kind::Fixed { default: 64 << 20 },
        },
        Parameter {
            name: "file_turnover",
            about: "Read of them in a period by all threads together.",
            unit: "",
            kind: Kind::Size { default: 64 << 20 },
        },
        Parameter {
            name: "heap_turnover",
            about: "Given back and written to again in a period by all threads together, page by page.",
            unit: "",
            kind: Kind::Size { default: 16 << 20 },
        },
        Parameter {
            name: "period_ms",
            about: "A period.",
            unit: "milliseconds",
            kind: Kind::Count { least: 1, most: 3_600_000, default: 10_000 },
        },
        Parameter {
            name: "seconds",
            about: "How long the services run.",
            unit: "seconds",
            kind: Kind::Count { least: 1, most: 31_536_000, default: 604_800 },
        },
        Parameter {
            name: "small_files",
            about: "Small files that are kept; the oldest beyond are deleted.",
            unit: "files",
            kind: Kind::Count { least: 0, most: 100_000_000, default: 20_000 },
        },
        Parameter {
            name: "small_file_turnover",
            about: "Small files written in a period by all threads together.",
            unit: "files",
            kind: Kind::Count { least: 0, most: 1_000_000, default: 64 },
        },
        Parameter {
            name: THREADS,
            about: "Services.",
            unit: "threads",
            kind: Kind::Count { least: 1, most: 8192, default: 16 },
        },
        Parameter {
            name: "tree",
            about: "What the files of a tree of small ones hold together.",
            unit: "",
            kind: Kind::Memory { default_millionths: 20_000 },
        },
        Parameter {
            name: "tree_turnover",
            about: "Visited of the tree in a period by all threads together.",
            unit: "",
            kind: Kind::Size { default: 1 << 20 },
        },
    ],
    check,
    late: &[],
    needs_files: |_| true,
    run,
};

/// Begins the number of each thread's random stream: "fleet" in ASCII.
const STREAM: u128 = 0x66_6c65_6574 << 64;
/// Read at a time.
const PIECE: u64 = 256 << 10;
/// Written at a time.
const BLOCK: u64 = 1 << 20;
/// Pages that are given back at one place, at most.
const PURGED_PAGES: u64 = 8;
/// A small file.
const SMALL_FILE: u64 = 16 << 10;
/// A file of the tree.
const TREE_FILE: u64 = 4 << 10;

fn check(settings: &Settings) -> Result<(), ParameterError> {
    if settings.size("area_min") > settings.size("area_max") {
        let message = "`area_min` is more than `area_max`, expected at most that".to_owned();
        return Err(ParameterError::new("area_min", message));
    }
    if settings.size("file_size") < PIECE {
        let message =
            format!("`file_size` is less than {} KiB, what is read at a time", PIECE >> 10);
        return Err(ParameterError::new("file_size", message));
    }
    Ok(())
}

/// What each thread does.
#[derive(Clone, Copy, Debug)]
struct Plan {
    live_pages: u64,
    area_pages_min: u64,
    area_pages_max: u64,
    turnover_pages: u64,
    heap_pages: u64,
    files: u64,
    file_bytes: u64,
    reads: u64,
    small_files: u64,
    small_writes: u64,
    tree_files: u64,
    tree_visits: u64,
    period: Ns,
    periods: u64,
    advice: Option<Advice>,
    advised_percent: u64,
}

fn run(sys: &mut dyn System, settings: &Settings) -> Result<(), Failure> {
    let threads = settings.count_u32(THREADS);
    let machine = sys.machine();
    let each = |amount: u64| amount.div_ceil(u64::from(threads));
    let file_bytes = settings.size("file_size");
    let period = Ns::from_millis(settings.count("period_ms"));
    let plan = Plan {
        live_pages: settings.pages("anon", machine) / u64::from(threads),
        area_pages_min: settings.pages("area_min", machine).max(1),
        area_pages_max: settings.pages("area_max", machine).max(1),
        turnover_pages: each(settings.pages("anon_turnover", machine)),
        heap_pages: each(settings.size("heap_turnover") / machine.page_bytes),
        files: (settings.pages("files", machine) * machine.page_bytes / file_bytes).max(1),
        file_bytes,
        reads: each(settings.size("file_turnover") / PIECE),
        small_files: each(settings.count("small_files")),
        small_writes: each(settings.count("small_file_turnover")),
        tree_files: settings.pages("tree", machine) * machine.page_bytes / TREE_FILE,
        tree_visits: each(settings.size("tree_turnover") / TREE_FILE),
        period,
        periods: (settings.count("seconds") * 1_000_000_000 / period.0).max(1),
        advice: advice(settings.word("advice")),
        advised_percent: settings.count("advised_percent"),
    };
    for number in 0..plan.tree_files {
        write_new(sys, &tree_name(number), TREE_FILE, TREE_FILE)?;
    }
    for number in 0..plan.files {
        write_new(sys, &file_name(number), plan.file_bytes, BLOCK)?;
    }
    sys.sync()?;
    let code: Code = Box::new(move |sys| process(sys, threads, plan));
    let took = run_process(sys, ThreadSpec::process("fleet"), code)?;
    match took.ended {
        Ended::Done => {
            report_seconds(sys, "User", took.user);
            report_seconds(sys, "System", took.system);
            report_seconds(sys, "Elapsd", took.elapsed);
        }
        Ended::Killed => report_killed(sys, "Killed", took.nr_killed),
    }
    (0..plan.files).try_for_each(|number| sys.unlink(&file_name(number)))?;
    (0..plan.tree_files).try_for_each(|number| sys.unlink(&tree_name(number)))
}

fn file_name(number: u64) -> String {
    format!("fleet/data-{number}")
}

fn tree_name(number: u64) -> String {
    format!("fleet/tree-{number}")
}

/// The services fill their memory; when all have, what was until then was preparation.
fn process(sys: &mut dyn System, threads: u32, plan: Plan) -> Result<(), Failure> {
    let (filled, begin) = (sys.new_barrier(threads + 1)?, sys.new_barrier(threads + 1)?);
    let mut services = Vec::new();
    for number in 0..threads {
        let code: Code = Box::new(move |sys| {
            let mut service = Service::new(plan, sys.seed(), number);
            service.fill(sys)?;
            sys.barrier(filled)?;
            sys.barrier(begin)?;
            // Services have nothing to do with one another: their periods begin at different times.
            let offset = Ns(plan.period.0 * u64::from(number) / u64::from(threads));
            sys.sleep(offset)?;
            service.run(sys)
        });
        services.push(sys.spawn(ThreadSpec::thread(format!("fleet-{number}")), code)?);
    }
    sys.barrier(filled)?;
    sys.note_before();
    sys.barrier(begin)?;
    join_all(sys, &services)
}

struct Service {
    plan: Plan,
    number: u32,
    random: Random,
    areas: Vec<Area>,
    live_pages: u64,
    small: VecDeque<u64>,
    next_small: u64,
}

impl Service {
    fn new(plan: Plan, seed: u64, number: u32) -> Self {
        let random = Random::new(seed, STREAM | u128::from(number));
        let (areas, small) = (Vec::new(), VecDeque::new());
        Self { plan, number, random, areas, live_pages: 0, small, next_small: 0 }
    }

    fn fill(&mut self, sys: &mut dyn System) -> Result<(), Failure> {
        while self.live_pages < self.plan.live_pages {
            self.map(sys)?;
        }
        (0..self.plan.small_files).try_for_each(|_| self.write_small(sys))
    }

    fn run(&mut self, sys: &mut dyn System) -> Result<(), Failure> {
        let began = sys.now();
        for period in 1..=self.plan.periods {
            self.replace(sys)?;
            self.purge(sys)?;
            for _ in 0..self.plan.reads {
                self.read(sys)?;
            }
            if self.plan.tree_files > 0 {
                for _ in 0..self.plan.tree_visits {
                    self.visit(sys)?;
                }
            }
            for _ in 0..self.plan.small_writes {
                self.write_small(sys)?;
            }
            let next = began + Ns(self.plan.period.0 * period);
            let now = sys.now();
            if now < next {
                sys.sleep(next - now)?;
            }
        }
        if self.number == 0 {
            sys.note_held();
        }
        for area in std::mem::take(&mut self.areas) {
            sys.munmap(area)?;
        }
        while let Some(oldest) = self.small.pop_front() {
            sys.unlink(&self.small_name(oldest))?;
        }
        Ok(())
    }

    fn replace(&mut self, sys: &mut dyn System) -> Result<(), Failure> {
        let mut replaced = 0;
        while replaced < self.plan.turnover_pages && !self.areas.is_empty() {
            let drawn = self.random.below(self.areas.len() as u64) as usize;
            let area = self.areas.swap_remove(drawn);
            sys.munmap(area)?;
            self.live_pages -= area.pages;
            replaced += area.pages;
            while self.live_pages < self.plan.live_pages {
                self.map(sys)?;
            }
        }
        Ok(())
    }

    /// Gives pages back at many places, then writes to them again.
    fn purge(&mut self, sys: &mut dyn System) -> Result<(), Failure> {
        let (mut runs, mut purged) = (Vec::new(), 0);
        while purged < self.plan.heap_pages && !self.areas.is_empty() {
            let area = self.areas[self.random.below(self.areas.len() as u64) as usize];
            let pages = self.random.between(1, PURGED_PAGES).min(area.pages);
            let run = area.part(self.random.below(area.pages - pages + 1), pages);
            sys.madvise(run, Advice::DontNeed)?;
            runs.push(run);
            purged += pages;
        }
        // Last given back, first wanted again.
        while let Some(run) = runs.pop() {
            sys.touch_range(run, Pattern::word(Access::Write))?;
        }
        Ok(())
    }

    fn map(&mut self, sys: &mut dyn System) -> Result<(), Failure> {
        let Plan { area_pages_min, area_pages_max, .. } = self.plan;
        let pages = self.random.between(area_pages_min, area_pages_max);
        let began = sys.now();
        let area = sys.mmap(pages)?;
        let asks = self.random.below(100) < self.plan.advised_percent;
        if let Some(advice) = self.plan.advice.or(asks.then_some(Advice::Huge)) {
            sys.madvise(area, advice)?;
        }
        sys.touch_range(area, Pattern::word(Access::Write))?;
        let took = sys.now() - began;
        sys.latency("fleet-map", took);
        self.areas.push(area);
        self.live_pages += pages;
        Ok(())
    }

    fn read(&mut self, sys: &mut dyn System) -> Result<(), Failure> {
        let name = file_name(self.random.below(self.plan.files));
        let piece = self.random.below(self.plan.file_bytes / PIECE);
        let file = sys.open_file(&name)?;
        sys.read_file(file, piece * PIECE, PIECE)?;
        sys.close_file(file)
    }

    fn visit(&mut self, sys: &mut dyn System) -> Result<(), Failure> {
        let file = sys.open_file(&tree_name(self.random.below(self.plan.tree_files)))?;
        sys.read_file(file, 0, TREE_FILE)?;
        sys.close_file(file)
    }

    fn write_small(&mut self, sys: &mut dyn System) -> Result<(), Failure> {
        write_new(sys, &self.small_name(self.next_small), SMALL_FILE, SMALL_FILE)?;
        self.small.push_back(self.next_small);
        self.next_small += 1;
        if self.small.len() as u64 > self.plan.small_files
            && let Some(oldest) = self.small.pop_front()
        {
            sys.unlink(&self.small_name(oldest))?;
        }
        Ok(())
    }

    fn small_name(&self, number: u64) -> String {
        format!("fleet/small-{}/{number}", self.number)
    }
}
