//! churn: threads map, touch and unmap areas of random sizes around a given live set.
//!
//! Of our own making. Each thread first maps and writes areas until the next one would exceed its part of
//! the live set. Then come its operations. One in two writes to an area it has; the other unmaps areas,
//! drawn at random, until a new one has room, and maps and writes that. So memory is as full as asked
//! throughout, and what is freed lies scattered.

use crate::files::Random;
use crate::parameters::{Kind, Parameter, Settings};
use crate::process::{
    ADVICE, Ended, advice, report_killed, report_seconds, run_process, run_threads,
};
use crate::{THREADS, Workload};
use highorder_record::{Better, Metric};
use highorder_system::{Access, Advice, Area, Code, Failure, Ns, Pattern, System, ThreadSpec};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "churn",
    about: "threads map, touch and unmap areas of random sizes around a given live set",
    parameters: &[
        Parameter {
            name: "advice",
            about: "What is advised of each area.",
            unit: "",
            kind: Kind::Word(ADVICE),
        },
        Parameter {
            name: "area_max",
            about: "The largest area.",
            unit: "",
            kind: Kind::Size { default: 16 << 20 },
        },
        Parameter {
            name: "area_min",
            about: "The smallest area.",
            unit: "",
            kind: Kind::Size { default: 64 << 10 },
        },
        Parameter {
            name: "live",
            about: "What all threads hold mapped together, at most.",
            unit: "",
            kind: Kind::Memory { default_millionths: 500_000 },
        },
        Parameter {
            name: "operations",
            about: "What each thread does after memory is full: one in two writes to an area, the other replaces some.",
            unit: "operations",
            kind: Kind::Count { least: 0, most: 1_000_000_000_000, default: 10_000 },
        },
        Parameter {
            name: THREADS,
            about: "Threads of the one process.",
            unit: "threads",
            kind: Kind::Count { least: 1, most: 8192, default: 1 },
        },
    ],
    check: |settings| settings.check_at_most("area_min", "area_max"),
    late: &[],
    needs_files: |_| false,
    run,
};

/// Begins the number of each thread's random stream: "churn" in ASCII.
const STREAM: u128 = 0x63_6875_726e << 64;

fn run(sys: &mut dyn System, settings: &Settings) -> Result<(), Failure> {
    let threads = settings.count_u32(THREADS);
    let machine = sys.machine();
    let plan = Plan {
        live_pages: settings.pages("live", machine) / u64::from(threads),
        area_pages_min: settings.pages("area_min", machine),
        area_pages_max: settings.pages("area_max", machine),
        operations: settings.count("operations"),
        advice: advice(settings.word("advice")),
    };
    if plan.live_pages < plan.area_pages_max {
        return Err(Failure::Refused(format!(
            "churn: a thread's live set of {} pages is smaller than the largest area, {} pages",
            plan.live_pages, plan.area_pages_max
        )));
    }
    let code: Code = Box::new(move |sys| process(sys, threads, plan));
    let took = run_process(sys, ThreadSpec::process("churn"), code)?;
    match took.ended {
        Ended::Done => {
            report_seconds(sys, &format!("System-{threads}"), took.system);
            report_seconds(sys, &format!("Elapsd-{threads}"), took.elapsed);
            let operations = plan.operations as f64 * f64::from(threads);
            if took.elapsed > Ns::ZERO && operations > 0.0 {
                let row = Metric::new(format!("Rate-{threads}"), "operations/s", Better::Higher);
                sys.report(&row, operations / took.elapsed.as_secs_f64());
            }
        }
        Ended::Killed => report_killed(sys, &format!("Killed-{threads}"), took.nr_killed),
    }
    Ok(())
}

/// What each thread does.
#[derive(Clone, Copy, Debug)]
struct Plan {
    live_pages: u64,
    area_pages_min: u64,
    area_pages_max: u64,
    operations: u64,
    advice: Option<Advice>,
}

/// The process: when all threads have ended, its first one unmaps what they left.
fn process(sys: &mut dyn System, threads: u32, plan: Plan) -> Result<(), Failure> {
    let left = Arc::new(Mutex::new(BTreeMap::new()));
    run_threads(sys, "churn", threads, |number| {
        let left = Arc::clone(&left);
        Box::new(move |sys| {
            let mut churn = Churn::new(plan, sys.seed(), number);
            churn.run(sys)?;
            left.lock().unwrap_or_else(PoisonError::into_inner).insert(number, churn.areas);
            Ok(())
        })
    })?;
    sys.note_held();
    let left = std::mem::take(&mut *left.lock().unwrap_or_else(PoisonError::into_inner));
    left.into_values().flatten().try_for_each(|area: Area| sys.munmap(area))
}

/// A thread's areas and its stream of random numbers.
struct Churn {
    plan: Plan,
    random: Random,
    areas: Vec<Area>,
    live_pages: u64,
}

impl Churn {
    fn new(plan: Plan, seed: u64, thread: u32) -> Self {
        let random = Random::new(seed, STREAM | u128::from(thread));
        Self { plan, random, areas: Vec::new(), live_pages: 0 }
    }

    fn run(&mut self, sys: &mut dyn System) -> Result<(), Failure> {
        let mut pages = self.next_size();
        while self.has_room(pages) {
            self.map(sys, pages)?;
            pages = self.next_size();
        }
        for _ in 0..self.plan.operations {
            if self.random.coin() {
                self.touch(sys)?;
            } else {
                let pages = self.next_size();
                while !self.has_room(pages) {
                    self.unmap(sys)?;
                }
                self.map(sys, pages)?;
            }
        }
        Ok(())
    }

    fn has_room(&self, pages: u64) -> bool {
        self.live_pages + pages <= self.plan.live_pages
    }

    fn map(&mut self, sys: &mut dyn System, pages: u64) -> Result<(), Failure> {
        let began = sys.now();
        let area = sys.mmap(pages)?;
        if let Some(advice) = self.plan.advice {
            sys.madvise(area, advice)?;
        }
        sys.touch_range(area, Pattern::word(Access::Write))?;
        self.areas.push(area);
        self.live_pages += pages;
        record(sys, "churn-map", began);
        Ok(())
    }

    /// Writes to an area drawn at random. There is one: the largest fits the live set.
    fn touch(&mut self, sys: &mut dyn System) -> Result<(), Failure> {
        let began = sys.now();
        let drawn = self.random.below(self.areas.len() as u64) as usize;
        let area = self.areas[drawn];
        sys.touch_range(area, Pattern::word(Access::Write))?;
        record(sys, "churn-touch", began);
        Ok(())
    }

    fn unmap(&mut self, sys: &mut dyn System) -> Result<(), Failure> {
        let began = sys.now();
        let drawn = self.random.below(self.areas.len() as u64) as usize;
        let area = self.areas.swap_remove(drawn);
        sys.munmap(area)?;
        self.live_pages -= area.pages;
        record(sys, "churn-unmap", began);
        Ok(())
    }

    /// Pages of the next area: any number between the bounds, all equally likely.
    fn next_size(&mut self) -> u64 {
        let Plan { area_pages_min, area_pages_max, .. } = self.plan;
        self.random.between(area_pages_min, area_pages_max)
    }
}

fn record(sys: &mut dyn System, class: &str, began: Ns) {
    let took = sys.now() - began;
    sys.latency(class, took);
}
