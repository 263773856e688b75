//! The demand of a recording as a workload: each task a process that asks as it did there, and keeps what it gets as long.
//!
//! A task's own time, between two requests, is as it was; how long a request takes is the system's. So a task that is
//! served faster comes to its next request sooner. A trace tells of a page when it is taken, so that clearing or copying it
//! lies between two requests there, and is no time of the task's own; neither is making a file for pages of one, and
//! removing it.

use super::wanted::{Rest, Task, Use, Want, Wanted};
use highorder_sim::Costs;
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
/// The same of the rounds: "rounds".
const ROUNDS: u128 = 0x726f_756e_6473 << 64;
/// Up to so much later a task begins than it did.
const LATER_MAX_NS: u64 = 1_000_000;
/// A further round begins at one of so many places of the recording, evenly apart.
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
    /// The root of what is drawn: of 0, nothing is in the first round; of others, each task begins up to a millisecond later,
    /// and each kind of work takes up to a fiftieth more or less, which is enough for chance to have its way.
    pub seed: u64,
}

/// The workload: it ends when all tasks have come to their end, and the counters' state `held` is that moment's. `costs` are
/// those of the machine that it runs on. `nr_finished` counts the tasks that did all that they had done.
pub(super) fn code(
    wanted: &Arc<Wanted>,
    costs: &Costs,
    course: Course,
    nr_finished: &Arc<AtomicUsize>,
) -> Code {
    let (wanted, times, nr_finished) = (wanted.clone(), Times::of(costs), nr_finished.clone());
    Box::new(move |sys| {
        let running = Arc::new(AtomicUsize::new(wanted.tasks.len()));
        let is_over = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for number in 0..wanted.tasks.len() {
            let (wanted, running, is_over) = (wanted.clone(), running.clone(), is_over.clone());
            let nr_finished = nr_finished.clone();
            let name = format!("task-{}", wanted.tasks[number].pid);
            let body: Code = Box::new(move |sys| {
                let task = &wanted.tasks[number];
                let done = Replayed::new(number, times).run(sys, task, wanted.length, course);
                running.fetch_sub(1, Ordering::Relaxed);
                done?;
                nr_finished.fetch_add(1, Ordering::Relaxed);
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

/// Requests in the order and at the times in which they come: by the clock of the recording, that goes on. The first round
/// is the recording; each later one begins at another stretch of it, the same for all tasks, and goes around.
///
/// What was kept to the end is kept as long as the recording lasts, so that every round leaves as much as it finds.
fn schedule(task: &Task, length: Ns, course: Course) -> Vec<Use> {
    let mut rng = Pcg64::new(u128::from(course.seed), ROUNDS);
    let stretch = Ns((length.0 / STRETCHES).max(1));
    let mut uses = Vec::new();
    for round in 0..u64::from(course.loops) {
        let turned = match round {
            0 => Ns::ZERO,
            _ => stretch * (u64::from(rng.next_u32()) % STRETCHES),
        };
        let first = task.uses.partition_point(|this| this.at < turned);
        let (before, after) = task.uses.split_at(first);
        let start = length * round;
        let turn = |uses: &[Use], start: Ns| -> Vec<Use> {
            let held = |this: &Use| this.held.or((course.loops > 1).then_some(length));
            let at = |this: &Use| start + this.at - turned;
            uses.iter().map(|this| Use { at: at(this), held: held(this), ..*this }).collect()
        };
        uses.extend(turn(after, start));
        uses.extend(turn(before, start + length));
    }
    uses
}

/// What a task was given.
enum Given {
    Area(Area),
    Heap(Area),
    File(String),
    Block(BlockId),
}

/// Where a task has its base pages: close together as in a program's own heap, so that they need no more page tables
/// than they must. A trace says nothing of addresses.
#[derive(Default)]
struct Heap {
    /// Ranges that are mapped and not in use, by their first page.
    holes: BTreeMap<u64, u64>,
}

impl Heap {
    /// Takes the first hole that is large enough, or maps more.
    fn take(&mut self, sys: &mut dyn System, pages: u64) -> Result<Area, Failure> {
        let (at, len) = match self.first_fit(pages) {
            Some(hole) => hole,
            None => {
                let more = sys.mmap(pages.next_multiple_of(sys.machine().huge_pages))?;
                sys.madvise(more, Advice::NoHuge)?;
                self.put(more);
                self.first_fit(pages).expect("what was mapped is large enough")
            }
        };
        self.holes.remove(&at);
        if len > pages {
            self.holes.insert(at + pages, len - pages);
        }
        Ok(Area { first: at, pages })
    }

    fn first_fit(&self, pages: u64) -> Option<(u64, u64)> {
        self.holes.iter().find(|&(_, &len)| len >= pages).map(|(&at, &len)| (at, len))
    }

    /// Has a range free again.
    fn put(&mut self, area: Area) {
        let (mut first, mut end) = (area.first, area.first + area.pages);
        if let Some((&before, &len)) = self.holes.range(..first).next_back()
            && before + len == first
        {
            self.holes.remove(&before);
            first = before;
        }
        if let Some(len) = self.holes.remove(&end) {
            end += len;
        }
        self.holes.insert(first, end - first);
    }
}

/// How long things take that the task did between two requests of the recording.
#[derive(Clone, Copy)]
struct Times {
    base: Ns,
    huge: Ns,
    cache: Ns,
    file: Ns,
}

impl Times {
    fn of(costs: &Costs) -> Self {
        Self {
            base: costs.clear_base_page.once(),
            huge: costs.clear_huge_page.once(),
            cache: costs.cache_page.once() + costs.copy_base_page.once(),
            file: costs.metadata_change.once(),
        }
    }

    /// What a request goes on with after its last page is taken.
    fn of_rest(self, rest: Rest) -> Ns {
        match rest {
            Rest::Nothing => Ns::ZERO,
            Rest::Base => self.base,
            Rest::Huge => self.huge,
            // A file is made for its pages.
            Rest::Cache => self.cache + self.file,
        }
    }
}

/// A task on its way.
struct Replayed {
    number: usize,
    times: Times,
    heap: Heap,
    /// What it has, by when it gives it back, on the clock of the recording.
    held: BTreeMap<(Ns, u64), Given>,
    serial: u64,
    clock: Ns,
}

impl Replayed {
    fn new(number: usize, times: Times) -> Self {
        let (heap, held) = (Heap::default(), BTreeMap::new());
        Self { number, times, heap, held, serial: 0, clock: Ns::ZERO }
    }

    fn run(
        mut self,
        sys: &mut dyn System,
        task: &Task,
        length: Ns,
        course: Course,
    ) -> Result<(), Failure> {
        if course.seed != 0 {
            let mut rng = Pcg64::new(u128::from(course.seed), STREAM | self.number as u128);
            sys.sleep(Ns(rng.next_u64() % LATER_MAX_NS))?;
        }
        for this in schedule(task, length, course) {
            self.give_back_until(sys, this.at)?;
            self.sleep_until(sys, this.at)?;
            self.serial += 1;
            let given = self.ask(sys, this.want)?;
            let served = this.at + this.took;
            self.clock = served + self.times.of_rest(this.rest);
            if let (Some(given), Some(held)) = (given, this.held) {
                self.held.insert((served + held, self.serial), given);
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
                Given::Heap(area) => {
                    sys.madvise(area, Advice::DontNeed)?;
                    self.heap.put(area);
                }
                Given::File(name) => {
                    sys.unlink(&name)?;
                    self.clock += self.times.file;
                }
                Given::Block(block) => sys.free_block(block)?,
            }
        }
        Ok(())
    }

    fn ask(&mut self, sys: &mut dyn System, want: Want) -> Result<Option<Given>, Failure> {
        match want {
            Want::Base { pages } => {
                let area = self.heap.take(sys, u64::from(pages))?;
                touch(sys, area, BASE_LATENCY)?;
                Ok(Some(Given::Heap(area)))
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
