//! The demand of a recording as a workload: each task a process that asks as it did there, and keeps what it gets as long.
//!
//! A task's own time, between two requests, is as it was; how long a request takes is the system's. So a task that is
//! served faster comes to its next request sooner. Where the demand goes on for longer than was recorded, or with
//! another seed, stretches of each task's requests follow one another in an order drawn from the seed.

use super::wanted::{Task, Use, Want, Wanted};
use highorder_system::{
    Access, Advice, Area, BlockId, Code, Failure, KernelBlock, Ns, Pattern, System, ThreadSpec,
};
use rand_core::Rng;
use rand_pcg::Pcg64;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Begins the number of each task's random stream: "what-if" in ASCII.
const STREAM: u128 = 0x0077_6861_742d_6966 << 64;
/// Stretches that a recording is cut into, to be put together anew: some of a second at least hold a few requests.
const STRETCHES: u64 = 16;
/// How often who waits for others looks around.
const LOOKS_EVERY: Ns = Ns::from_millis(10);
const PAGE_BYTES: u64 = 4096;
/// The latency of requests for huge pages, whatever came of them, by this name in a record.
pub(super) const HUGE_LATENCY: &str = "areas for huge pages";
/// The same of all other memory of tasks' own, an area at a time.
pub(super) const BASE_LATENCY: &str = "other areas";

/// How the demand is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Course {
    /// How often the recording's length is gone through; with the first seed, 0, the first time as recorded.
    pub loops: u32,
    /// The root of what is drawn.
    pub seed: u64,
}

/// The workload: it ends when all tasks have come to their end, and the counters' state `held` is that moment's.
pub(super) fn code(wanted: &Arc<Wanted>, course: Course) -> Code {
    let wanted = wanted.clone();
    Box::new(move |sys| {
        let running = Arc::new(AtomicUsize::new(wanted.tasks.len()));
        let is_over = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for number in 0..wanted.tasks.len() {
            let (wanted, running, is_over) = (wanted.clone(), running.clone(), is_over.clone());
            let name = format!("task-{}", wanted.tasks[number].pid);
            let body: Code = Box::new(move |sys| {
                let task = &wanted.tasks[number];
                let done = Replayed::new(number).run(sys, task, wanted.length, course);
                running.fetch_sub(1, Ordering::Relaxed);
                done?;
                wait_until(sys, || is_over.load(Ordering::Relaxed))
            });
            threads.push(sys.spawn(ThreadSpec::process(name), body)?);
        }
        wait_until(sys, || running.load(Ordering::Relaxed) == 0)?;
        sys.note_held();
        is_over.store(true, Ordering::Relaxed);
        for thread in threads {
            match sys.join(thread) {
                Ok(()) | Err(Failure::Killed) => {}
                Err(refused) => return Err(refused),
            }
        }
        Ok(())
    })
}

fn wait_until(sys: &mut dyn System, is_so: impl Fn() -> bool) -> Result<(), Failure> {
    while !is_so() {
        sys.sleep(LOOKS_EVERY)?;
    }
    Ok(())
}

/// Requests in the order and at the times in which they come: by the clock of the recording, that goes on.
fn schedule(task: &Task, number: usize, length: Ns, course: Course) -> Vec<Use> {
    let mut rng = Pcg64::new(u128::from(course.seed), STREAM | number as u128);
    let stretch = Ns((length.0 / STRETCHES).max(1));
    let mut uses = Vec::new();
    for round in 0..u64::from(course.loops) {
        for place in 0..STRETCHES {
            let is_as_recorded = course.seed == 0 && round == 0;
            let drawn = if is_as_recorded { place } else { u64::from(rng.next_u32()) % STRETCHES };
            let from = stretch * drawn;
            // The last one has what is left by the division.
            let to = if drawn + 1 == STRETCHES { Ns(u64::MAX) } else { from + stretch };
            let start = length * round + stretch * place;
            let first = task.uses.partition_point(|this| this.at < from);
            let last = task.uses.partition_point(|this| this.at < to);
            uses.extend(
                task.uses[first..last]
                    .iter()
                    .map(|this| Use { at: this.at - from + start, ..*this }),
            );
        }
    }
    uses
}

/// What a task was given.
enum Given {
    Area(Area),
    File(String),
    Block(BlockId),
}

/// A task on its way.
struct Replayed {
    number: usize,
    /// What it has, by when it gives it back, on the clock of the recording.
    held: BTreeMap<(Ns, u64), Given>,
    serial: u64,
    clock: Ns,
}

impl Replayed {
    fn new(number: usize) -> Self {
        Self { number, held: BTreeMap::new(), serial: 0, clock: Ns::ZERO }
    }

    fn run(
        mut self,
        sys: &mut dyn System,
        task: &Task,
        length: Ns,
        course: Course,
    ) -> Result<(), Failure> {
        for this in schedule(task, self.number, length, course) {
            self.give_back_until(sys, this.at)?;
            self.sleep_until(sys, this.at)?;
            self.serial += 1;
            let given = self.ask(sys, this.want)?;
            self.clock = this.at + this.took;
            if let (Some(given), Some(held)) = (given, this.held) {
                self.held.insert((self.clock + held, self.serial), given);
            }
        }
        let end = length * u64::from(course.loops);
        self.give_back_until(sys, end)?;
        self.sleep_until(sys, end)
    }

    fn sleep_until(&mut self, sys: &mut dyn System, at: Ns) -> Result<(), Failure> {
        let left = at.saturating_sub(self.clock);
        if left > Ns::ZERO {
            sys.sleep(left)?;
            self.clock = at;
        }
        Ok(())
    }

    fn give_back_until(&mut self, sys: &mut dyn System, at: Ns) -> Result<(), Failure> {
        while let Some(first) = self.held.first_entry()
            && first.key().0 <= at
        {
            let ((due, _), given) = first.remove_entry();
            self.sleep_until(sys, due)?;
            match given {
                Given::Area(area) => sys.munmap(area)?,
                Given::File(name) => sys.unlink(&name)?,
                Given::Block(block) => sys.free_block(block)?,
            }
        }
        Ok(())
    }

    fn ask(&mut self, sys: &mut dyn System, want: Want) -> Result<Option<Given>, Failure> {
        match want {
            Want::Base { pages } => {
                let area = sys.mmap(u64::from(pages))?;
                sys.madvise(area, Advice::NoHuge)?;
                touch(sys, area, BASE_LATENCY)?;
                Ok(Some(Given::Area(area)))
            }
            Want::Huge { pages, is_advised } => {
                let whole = sys.machine().huge_pages;
                let area = sys.mmap(whole)?;
                if is_advised {
                    sys.madvise(area, Advice::Huge)?;
                }
                touch(sys, area.part(0, u64::from(pages).min(whole)), HUGE_LATENCY)?;
                Ok(Some(Given::Area(area)))
            }
            Want::Cache { pages, is_written } => {
                let name = format!("task{}-{}", self.number, self.serial);
                let bytes = u64::from(pages) * PAGE_BYTES;
                let file = sys.create_file(&name)?;
                if is_written {
                    sys.write_file(file, 0, bytes)?;
                } else {
                    sys.set_file_bytes(file, bytes)?;
                    sys.read_file(file, 0, bytes)?;
                }
                sys.close_file(file)?;
                Ok(Some(Given::File(name)))
            }
            Want::Kernel { order, may_wait, is_reclaimable } => {
                let kind = KernelBlock::Own { order: order.0, may_wait, is_reclaimable };
                Ok(sys.take_block(kind)?.map(Given::Block))
            }
        }
    }
}

fn touch(sys: &mut dyn System, area: Area, class: &str) -> Result<(), Failure> {
    let began = sys.now();
    sys.touch_range(area, Pattern::word(Access::Write))?;
    let took = sys.now() - began;
    sys.latency(class, took);
    Ok(())
}
