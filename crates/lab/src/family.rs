//! Runs that are alike at first are made once until their ways part.
//!
//! Many runs of an experiment fill memory and write files in the same way, and differ in what they do then. What they
//! have in common is computed once; then the process goes on as each of them in turn, in a copy of itself
//! ([`highorder_real::twin`]), and as the last one itself. A record does not tell whether it was made so. While copies go
//! on, the original keeps its memory, of which they share what neither changes.

use crate::run::{ExecuteError, ModelSize, Run, Watch};
use highorder_model as model;
use highorder_real::twin::{self, Copied, Teller, Twin};
use highorder_record::{Inputs, Named, Record, Store};
use highorder_sim::kernel::Kernel;
use highorder_workload::Choice;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{self, AssertUnwindSafe};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

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

/// What the run's thread tells the one that keeps its family's books.
enum Told {
    /// A run goes on from where ways part.
    Begun(usize),
    /// The copy that it went on in has ended, and has its record in the store if it says its size.
    Ended(usize, Option<ModelSize>),
}

/// Who goes on in this process.
#[derive(Default)]
struct Here {
    run: usize,
    /// If it is a copy.
    copy: Option<Teller>,
    /// Copies that have not ended yet.
    copies: Copies,
    in_idle_place: bool,
}

/// Workers who have nothing to do: another who has several runs to make may use their places.
#[derive(Clone, Debug, Default)]
pub(crate) struct Idle(Arc<AtomicUsize>);

impl Idle {
    /// So many.
    pub(crate) fn new(workers: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(workers)))
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
#[derive(Default)]
pub(crate) struct Made {
    /// Those that were made or failed: they have begun, and ended unless they failed.
    pub(crate) made: BTreeMap<usize, Result<(), ExecuteError>>,
    /// Those that have begun, and left nothing: to be made alone, so that it is seen why.
    pub(crate) lost: BTreeSet<usize>,
}

/// Makes a family's runs, of which the first has begun already, until it is `over`.
pub(crate) fn make(
    family: &[&Run],
    store: &Store,
    watch: &dyn Watch,
    idle: &Idle,
    over: &(dyn Fn() -> bool + Sync),
) -> Made {
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let (answer, goes_on) = mpsc::channel();
        let keep = move || keep_books(family, store, watch, over, &told, &answer);
        let Ok(books) = thread::Builder::new().spawn_scoped(scope, keep) else {
            // No room for another thread, and none for processes then.
            return Made { lost: BTreeSet::from([0]), ..Made::default() };
        };
        let copies = Copies { idle: idle.clone(), tell: Some(tell), ..Copies::default() };
        let (number, made) = make_own(family, store, copies, goes_on);
        let mut all = books.join().unwrap_or_else(|panic| panic::resume_unwind(panic));
        let made = made.map(|(record, size)| watch.ended(family[number], &record, Some(size)));
        all.made.insert(number, made);
        all
    })
}

/// Tells who looks on what the copies do, and whether to go on with another.
fn keep_books(
    family: &[&Run],
    store: &Store,
    watch: &dyn Watch,
    over: &dyn Fn() -> bool,
    told: &Receiver<Told>,
    answer: &Sender<bool>,
) -> Made {
    let mut all = Made::default();
    for told in told {
        match told {
            Told::Begun(number) => {
                if number > 0 {
                    watch.begun(family[number]);
                }
                // Whoever asked may have failed meanwhile. After a copy that was lost comes, most likely, a failure.
                let _ = answer.send(!over() && all.lost.is_empty());
            }
            Told::Ended(number, size) => {
                let run = family[number];
                let record = size.and_then(|_| store.get(run.inputs.identity()).ok().flatten());
                match record {
                    Some(record) => {
                        watch.ended(run, &record, size);
                        all.made.insert(number, Ok(()));
                    }
                    None => {
                        all.lost.insert(number);
                    }
                }
            }
        }
    }
    all
}

/// Computes what the runs have in common, and goes on as each of them. In the process that was there it returns which
/// run it went on as itself, with what came of it, once all have ended.
fn make_own(
    family: &[&Run],
    store: &Store,
    copies: Copies,
    goes_on: Receiver<bool>,
) -> (usize, Result<(Record, ModelSize), ExecuteError>) {
    let here = Rc::new(RefCell::new(Here::default()));
    let choice = Choice::default();
    let first = family[0];
    let code = first.workload().code_until_chosen(&choice);
    let runs: Vec<Run> = family.iter().map(|&run| run.clone()).collect();
    let went_on = here.clone();
    let part = Box::new(move || {
        let here = go_on(runs.len(), copies, &goes_on);
        if here.copy.is_some() {
            leave(goes_on);
        }
        let run = &runs[here.run];
        choice.choose(run.workload());
        *went_on.borrow_mut() = here;
        run.inputs.clone()
    });
    let done = |record, kernel: &Kernel| {
        let run = here.borrow().run;
        let put = family[run].put(record, kernel, store);
        // A copy ends here: to take its machine apart takes time, and locks of the unwinder's that somebody may have
        // held who does not go on in it.
        match (here.borrow_mut().copy.take(), put) {
            (None, put) => put,
            (Some(teller), Ok((_, size))) => teller.end(&size.to_bytes()),
            (Some(teller), Err(_)) => teller.fail(),
        }
    };
    let made = panic::catch_unwind(AssertUnwindSafe(|| {
        model::run_parting(first.model_spec(), first.inputs.clone(), code, part, done)
    }));
    let Here { run, copy, mut copies, in_idle_place } = here.take();
    if let Some(teller) = copy {
        // Nothing may return in a copy: whoever would be waited for does not go on in it.
        teller.fail();
    }
    if in_idle_place {
        copies.idle.add();
    }
    copies.wait_for_all();
    let made = made.unwrap_or_else(|panic| panic::resume_unwind(panic));
    (run, made.map_err(|error| family[run].failed(error)).flatten())
}

/// Goes on as each of so many runs, in the process that was there as the last one or as the one at which it was to
/// stop. Returns, in each process, who goes on there.
fn go_on(runs: usize, mut copies: Copies, goes_on: &Receiver<bool>) -> Here {
    let mut run = 0;
    loop {
        let in_idle_place = copies.wait_for_place();
        copies.tell(Told::Begun(run));
        if !goes_on.recv().unwrap_or(false) || run + 1 == runs {
            return Here { run, copy: None, copies, in_idle_place };
        }
        match twin::part() {
            Ok(Twin::Copy(teller)) => {
                leave(copies);
                return Here { run, copy: Some(teller), ..Here::default() };
            }
            Ok(Twin::Original(copied)) => {
                copies.under_way.push(UnderWay { run, copied, in_idle_place });
            }
            Err(_) => {
                if in_idle_place {
                    copies.idle.add();
                }
                copies.tell(Told::Ended(run, None));
            }
        }
        run += 1;
    }
}

/// Leaves what a copy has of others as it is: to drop the end of a channel takes locks, which a thread may have held
/// that does not go on here.
fn leave<T>(others: T) {
    std::mem::forget(others);
}

/// Copies of a process, in which runs go on.
#[derive(Default)]
struct Copies {
    under_way: Vec<UnderWay>,
    idle: Idle,
    tell: Option<Sender<Told>>,
}

struct UnderWay {
    run: usize,
    copied: Copied,
    /// It runs where a worker is idle, and not where the one would that waits for it.
    in_idle_place: bool,
}

impl Copies {
    fn tell(&self, told: Told) {
        let tell = self.tell.as_ref().expect("a process that has copies has somebody to tell");
        // Whom it tells may have panicked, which is told anyway.
        let _ = tell.send(told);
    }

    /// Waits until a run may begin: in the place of the worker who waits, or of an idle one, which is returned.
    fn wait_for_place(&mut self) -> bool {
        loop {
            if self.under_way.iter().all(|copy| copy.in_idle_place) {
                return false;
            }
            if self.idle.take() {
                return true;
            }
            self.wait_for_any();
        }
    }

    fn wait_for_any(&mut self) {
        let ended = twin::wait_for_any(self.under_way.iter().map(|copy| &copy.copied));
        let UnderWay { run, copied, in_idle_place } = self.under_way.remove(ended);
        let said = copied.wait();
        if in_idle_place {
            self.idle.add();
        }
        self.tell(Told::Ended(run, said.as_deref().and_then(ModelSize::from_bytes)));
    }

    fn wait_for_all(&mut self) {
        while !self.under_way.is_empty() {
            self.wait_for_any();
        }
    }
}
