//! Runs that are alike at first are made once until their ways part.
//!
//! Many runs of an experiment fill memory and write files in the same way, and differ in what they do then. What they
//! have in common is computed once, in a process of its own; then that goes on as each of them in turn, in a copy of
//! itself ([`highorder_real::twin`]), and as the last one itself. A record does not tell whether it was made so. While
//! copies go on, the process keeps its memory, of which they share what they do not change.

use crate::run::{ModelSize, Run, Watch};
use highorder_model as model;
use highorder_real::twin::{self, Copied, Teller, Twin};
use highorder_record::{Inputs, Named, Store};
use highorder_sim::kernel::Kernel;
use highorder_workload::Choice;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{self, AssertUnwindSafe};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Puts runs together that are alike at first, in the order of the first of each family. Those that are `alone` have a
/// family of their own.
pub(crate) fn families<'a>(runs: &[&'a Run], alone: impl Fn(&Run) -> bool) -> Vec<Vec<&'a Run>> {
    let mut families: Vec<Vec<&Run>> = Vec::new();
    let mut by_name: BTreeMap<String, usize> = BTreeMap::new();
    for &run in runs {
        let name = if alone(run) { None } else { name(run) };
        let known = name.as_ref().and_then(|name| by_name.get(name));
        match known {
            Some(&number) => families[number].push(run),
            None => {
                by_name.extend(name.map(|name| (name, families.len())));
                families.push(vec![run]);
            }
        }
    }
    families
}

/// What runs have in common that are alike at first: all that determines them but what their workload looks at later,
/// and what a reader calls them.
fn name(run: &Run) -> Option<String> {
    let values = run.workload().values_at_first()?;
    let Inputs { workload, kernel, .. } = &run.inputs;
    let inputs = Inputs {
        workload: Named { values, ..workload.clone() },
        kernel: Named { name: String::new(), ..kernel.clone() },
        ..run.inputs.clone()
    };
    Some(format!("{} {inputs:?}", run.shows_blocks()))
}

/// Workers who have nothing to do: another who has several runs to make may use their places.
#[derive(Debug, Default)]
pub(crate) struct Idle(AtomicUsize);

impl Idle {
    /// So many.
    pub(crate) const fn new(workers: usize) -> Self {
        Self(AtomicUsize::new(workers))
    }

    /// There is one more.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the place of one, if there is one.
    fn take(&self) -> bool {
        let less = |idle: usize| idle.checked_sub(1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

/// What became of a family's runs, by their numbers in it. What is in neither was not begun: the workload ended before
/// ways part, or it was to stop.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// Those that have begun and ended, with their records in the store.
    pub(crate) made: BTreeSet<usize>,
    /// Those that have begun, and left nothing: to be made alone, so that it is seen why.
    pub(crate) lost: BTreeSet<usize>,
}

/// Makes a family's runs, of which the first has begun already, until it is `over`.
pub(crate) fn make(
    family: &[&Run],
    store: &Store,
    watch: &dyn Watch,
    idle: &Idle,
    over: &dyn Fn() -> bool,
) -> Made {
    match twin::part() {
        Ok(Twin::Original(copied)) => keep_books(family, store, (watch, idle, over), copied),
        Ok(Twin::Copy(teller)) => make_all(family, store, teller),
        // There is no room for another process.
        Err(_) => Made { lost: BTreeSet::from([0]), ..Made::default() },
    }
}

/// What the family's process tells the program.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Told {
    /// It is about to go on as a run. The answer: whether others may follow.
    Begins(usize),
    /// It or a copy of it has gone on as a run, whose record is in the store if a size is told.
    Ended(usize, Option<ModelSize>),
    /// It has use for an idle worker's place. The answer: whether it has one now.
    TakesPlace,
    /// It no longer has.
    LeavesPlace,
}

/// Bytes of what is told: what it is, which run, and a size.
const TOLD_BYTES: usize = 1 + 8 + ModelSize::BYTES;

impl Told {
    fn to_bytes(self) -> [u8; TOLD_BYTES] {
        let (kind, run, size) = match self {
            Self::Begins(run) => (0, run, None),
            Self::Ended(run, None) => (1, run, None),
            Self::Ended(run, Some(size)) => (2, run, Some(size)),
            Self::TakesPlace => (3, 0, None),
            Self::LeavesPlace => (4, 0, None),
        };
        let mut bytes = [0; TOLD_BYTES];
        bytes[0] = kind;
        bytes[1..9].copy_from_slice(&(run as u64).to_le_bytes());
        if let Some(size) = size {
            bytes[9..].copy_from_slice(&size.to_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; TOLD_BYTES]) -> Option<Self> {
        let run = u64::from_le_bytes(bytes[1..9].try_into().ok()?) as usize;
        match bytes[0] {
            0 => Some(Self::Begins(run)),
            1 => Some(Self::Ended(run, None)),
            2 => Some(Self::Ended(run, Some(ModelSize::from_bytes(&bytes[9..])?))),
            3 => Some(Self::TakesPlace),
            4 => Some(Self::LeavesPlace),
            _ => None,
        }
    }
}

/// Does as the family's process tells until that has ended.
fn keep_books(
    family: &[&Run],
    store: &Store,
    (watch, idle, over): (&dyn Watch, &Idle, &dyn Fn() -> bool),
    mut copied: Copied,
) -> Made {
    let mut begun = BTreeSet::from([0]);
    let (mut made, mut has_lost) = (BTreeSet::new(), false);
    let mut nr_places = 0;
    let mut bytes = [0; TOLD_BYTES];
    while copied.hear(&mut bytes) {
        // Another word would be a fault of this file; the runs are made alone then.
        let Some(told) = Told::from_bytes(&bytes) else { break };
        match told {
            Told::Begins(run) => {
                if begun.insert(run) {
                    watch.begun(family[run]);
                }
                // What follows one that was lost would fail as well, most likely.
                copied.answer(!over() && !has_lost);
            }
            Told::Ended(number, size) => {
                let run = family[number];
                match size.and_then(|_| store.get(run.inputs.identity()).ok().flatten()) {
                    Some(record) => {
                        watch.ended(run, &record, size);
                        made.insert(number);
                    }
                    None => has_lost = true,
                }
            }
            Told::TakesPlace => {
                let has_one = idle.take();
                nr_places += usize::from(has_one);
                copied.answer(has_one);
            }
            Told::LeavesPlace => {
                nr_places -= 1;
                idle.add();
            }
        }
    }
    let _ = copied.wait();
    // It may have been killed, and its copies with it.
    (0..nr_places).for_each(|_| idle.add());
    Made { lost: begun.difference(&made).copied().collect(), made }
}

/// Who goes on in this process.
enum Here {
    /// The family's process itself.
    Own(Own),
    /// A copy of it.
    Copy(Teller),
}

/// Computes what the runs have in common, and goes on as each of them: in the family's process, which has one thread and
/// ends here.
fn make_all(family: &[&Run], store: &Store, teller: Teller) -> ! {
    let own = Own { teller, under_way: Vec::new(), in_idle_place: false };
    let here = Rc::new(RefCell::new(Some((0, Here::Own(own)))));
    let choice = Choice::default();
    let first = family[0];
    let code = first.workload().code_until_chosen(&choice);
    let runs: Vec<Run> = family.iter().map(|&run| run.clone()).collect();
    let went_on = here.clone();
    let part = Box::new(move || {
        let Some((_, Here::Own(own))) = went_on.take() else { unreachable!("it parts once") };
        let (number, here) = own.go_on(runs.len());
        went_on.replace(Some((number, here)));
        choice.choose(runs[number].workload());
        runs[number].inputs.clone()
    });
    let done = |record, kernel: &Kernel| {
        let run = here.borrow().as_ref().map_or(0, |(run, _)| *run);
        let size = family[run].put(record, kernel, store).ok();
        // It ends before its machine is taken apart, which takes time.
        end(&here, size)
    };
    let failed = panic::catch_unwind(AssertUnwindSafe(|| {
        model::run_parting(first.model_spec(), first.inputs.clone(), code, part, done)
    }));
    // Whoever makes the run again sees why.
    drop(failed);
    end(&here, None)
}

/// Ends this process, which has gone on as a run, with this model in the end if its record is in the store.
fn end(here: &RefCell<Option<(usize, Here)>>, size: Option<ModelSize>) -> ! {
    match (here.take(), size) {
        (Some((run, Here::Own(own))), size) => own.end(run, size),
        (Some((_, Here::Copy(teller))), Some(size)) => teller.end(&size.to_bytes()),
        (Some((_, Here::Copy(_))) | None, _) => twin::fail(),
    }
}

/// The family's process, apart from what it computes.
struct Own {
    teller: Teller,
    under_way: Vec<UnderWay>,
    /// It has itself gone on in an idle worker's place.
    in_idle_place: bool,
}

/// A run that goes on in a copy.
struct UnderWay {
    run: usize,
    copied: Copied,
    /// It goes on where a worker is idle, and not where the one would that waits for it.
    in_idle_place: bool,
}

impl Own {
    fn tell(&mut self, told: Told) {
        self.teller.tell(&told.to_bytes());
    }

    fn ask(&mut self, told: Told) -> bool {
        self.tell(told);
        self.teller.hear_answer()
    }

    /// Goes on as each of so many runs, and as the last one, or the one at which it is to stop, itself. Returns, in each
    /// process, as which run it goes on and who it is.
    fn go_on(mut self, runs: usize) -> (usize, Here) {
        let mut run = 0;
        loop {
            let in_idle_place = self.wait_for_place();
            let may_others_follow = self.ask(Told::Begins(run));
            if !may_others_follow || run + 1 == runs {
                self.in_idle_place = in_idle_place;
                return (run, Here::Own(self));
            }
            match twin::part() {
                Ok(Twin::Copy(teller)) => return (run, Here::Copy(teller)),
                Ok(Twin::Original(copied)) => {
                    self.under_way.push(UnderWay { run, copied, in_idle_place });
                }
                Err(_) => self.note_end(run, None, in_idle_place),
            }
            run += 1;
        }
    }

    /// Waits until a run may begin: in this process's own place, or in that of an idle worker, which is returned.
    fn wait_for_place(&mut self) -> bool {
        loop {
            if self.under_way.iter().all(|copy| copy.in_idle_place) {
                return false;
            }
            if self.ask(Told::TakesPlace) {
                return true;
            }
            self.wait_for_any();
        }
    }

    fn wait_for_any(&mut self) {
        let ended = twin::wait_for_any(self.under_way.iter().map(|copy| &copy.copied));
        let UnderWay { run, copied, in_idle_place } = self.under_way.remove(ended);
        let size = copied.wait().as_deref().and_then(ModelSize::from_bytes);
        self.note_end(run, size, in_idle_place);
    }

    fn note_end(&mut self, run: usize, size: Option<ModelSize>, in_idle_place: bool) {
        if in_idle_place {
            self.tell(Told::LeavesPlace);
        }
        self.tell(Told::Ended(run, size));
    }

    /// It has gone on as this run itself: waits for the others, and ends.
    fn end(mut self, run: usize, size: Option<ModelSize>) -> ! {
        self.note_end(run, size, self.in_idle_place);
        while !self.under_way.is_empty() {
            self.wait_for_any();
        }
        self.teller.end(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_heard() {
        let size = ModelSize { nr_frames: 1 << 40, frame_table_bytes: 7, bytes_per_frame: 16.25 };
        let all = [
            Told::Begins(3),
            Told::Ended(usize::MAX, None),
            Told::Ended(0, Some(size)),
            Told::TakesPlace,
            Told::LeavesPlace,
        ];
        for told in all {
            assert_eq!(Told::from_bytes(&told.to_bytes()), Some(told));
        }
        assert_eq!(Told::from_bytes(&[5; TOLD_BYTES]), None);
    }
}
