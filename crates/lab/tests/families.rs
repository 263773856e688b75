//! Runs that are alike at first are made once until their ways part; what is left of them does not tell.

use highorder_lab::experiment::thread_steps;
use highorder_lab::{Experiment, ModelSize, Plan, Run, Scale, Watch};
use highorder_record::{Record, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZeroUsize;
use std::panic;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Every file of a store, by its path in it.
fn files(store: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for record in fs::read_dir(store).unwrap().map(|entry| entry.unwrap().path()) {
        for file in fs::read_dir(&record).into_iter().flatten().map(|entry| entry.unwrap().path()) {
            let name = file.strip_prefix(store).unwrap().display().to_string();
            files.insert(name, fs::read(&file).unwrap());
        }
    }
    files
}

fn workers(nr: usize) -> NonZeroUsize {
    NonZeroUsize::new(nr).unwrap()
}

fn scale(text: &str) -> Scale {
    text.parse().unwrap()
}

/// Runs that are made together in a store, and alone in another.
fn check(plan: &Plan, nr_workers: usize) {
    let (together, alone) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let watched = Watched::default();
    let store = Store::open(together.path()).unwrap();
    let executed = plan.execute(&store, workers(nr_workers), &watched).unwrap();
    assert_eq!((executed.nr_made, executed.nr_left), (plan.runs.len(), 0));
    watched.check(plan);
    let store = Store::open(alone.path()).unwrap();
    for run in &plan.runs {
        let one = Plan { runs: vec![run.clone()], columns: plan.columns.clone() };
        one.execute(&store, workers(1), &()).unwrap();
    }
    let (together, alone) = (files(together.path()), files(alone.path()));
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&together), names(&alone));
    for (name, bytes) in &alone {
        assert!(together[name] == *bytes, "{name} differs");
    }
    assert!(alone.len() > plan.runs.len());
}

/// Who notes what it is told of each run.
#[derive(Default)]
struct Watched {
    begun: Mutex<Vec<String>>,
    ended: Mutex<Vec<(String, ModelSize)>>,
    /// Begin no more than so many; 0: all.
    most: usize,
    nr_begun: AtomicUsize,
}

impl Watched {
    /// Each run has begun once and ended once, with a model of some size.
    fn check(self, plan: &Plan) {
        let mut runs: Vec<String> = plan.runs.iter().map(name).collect();
        let mut begun = self.begun.into_inner().unwrap();
        let ended = self.ended.into_inner().unwrap();
        assert!(ended.iter().all(|(_, size)| size.nr_frames > 0 && size.frame_table_bytes > 0));
        let mut ended: Vec<String> = ended.into_iter().map(|(name, _)| name).collect();
        for names in [&mut runs, &mut begun, &mut ended] {
            names.sort();
        }
        assert_eq!((begun, ended), (runs.clone(), runs));
    }
}

fn name(run: &Run) -> String {
    format!("{} {}", run.inputs.readable_name(), run.inputs.identity())
}

impl Watch for Watched {
    fn begun(&self, run: &Run) {
        self.nr_begun.fetch_add(1, Ordering::Relaxed);
        self.begun.lock().unwrap().push(name(run));
    }

    fn ended(&self, run: &Run, record: &Record, size: Option<ModelSize>) {
        assert_eq!(record.identity(), run.inputs.identity());
        self.ended.lock().unwrap().push((name(run), size.unwrap()));
    }

    fn should_stop(&self) -> bool {
        self.most > 0 && self.nr_begun.load(Ordering::Relaxed) >= self.most
    }
}

fn built_in(name: &str, threads: u32) -> Experiment {
    let mut experiment = Experiment::load(name).unwrap();
    experiment.threads = thread_steps(threads).into_iter().map(Some).collect();
    experiment
}

#[test]
fn numbers_of_threads_are_made_together_as_they_are_alone() {
    for name in ["thp-defrag-usemem", "thp-defrag-thpscale"] {
        let plan = built_in(name, 7).plan(scale("1/64")).unwrap();
        assert!(plan.runs.len() >= 6);
        check(&plan, 2);
    }
}

#[test]
fn variants_that_differ_in_advice_are_made_together_with_pictures_of_their_own() {
    let plan = Experiment::load("frag-adverse-1socket").unwrap().plan(scale("1/128")).unwrap();
    let values = |run: &Run| run.inputs.workload.values["advice"].clone();
    assert_eq!(plan.runs.iter().map(values).collect::<BTreeSet<_>>().len(), 2);
    check(&plan, 3);
}

#[test]
fn workers_without_work_of_their_own_take_copies() {
    let mut plan = built_in("thp-defrag-usemem", 12).plan(scale("1/64")).unwrap();
    plan.runs.retain(|run| run.column == 0);
    check(&plan, 4);
}

/// Kills the children of this process until it is told to stop; returns how many.
fn kill_children(stop: &AtomicBool) -> usize {
    let mut nr_killed = 0;
    while !stop.load(Ordering::Relaxed) {
        for thread in fs::read_dir("/proc/self/task").unwrap().flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            for child in children.split_whitespace() {
                let killed = Command::new("kill").args(["-KILL", child]).status().unwrap();
                nr_killed += usize::from(killed.success());
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
    nr_killed
}

#[test]
fn runs_whose_copies_are_killed_are_made_alone() {
    let plan = built_in("thp-defrag-usemem", 12).plan(scale("1/64")).unwrap();
    let stop = AtomicBool::new(false);
    let nr_killed = thread::scope(|scope| {
        let killer = scope.spawn(|| kill_children(&stop));
        let checked = panic::catch_unwind(|| check(&plan, 2));
        stop.store(true, Ordering::Relaxed);
        checked.unwrap();
        killer.join().unwrap()
    });
    assert!(nr_killed > 0, "a copy was there to be killed");
}

#[test]
fn runs_that_are_alike_may_be_stopped_between_two_and_gone_on_with() {
    let mut plan = built_in("thp-defrag-usemem", 12).plan(scale("1/64")).unwrap();
    plan.runs.retain(|run| run.column == 1);
    let (stopped, whole) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::open(stopped.path()).unwrap();
    let watched = Watched { most: 2, ..Watched::default() };
    let executed = plan.execute(&store, workers(1), &watched).unwrap();
    assert_eq!((executed.nr_made, executed.nr_left), (2, plan.runs.len() - 2));
    let executed = plan.execute(&store, workers(1), &()).unwrap();
    assert_eq!((executed.nr_there, executed.nr_left), (2, 0));
    plan.execute(&Store::open(whole.path()).unwrap(), workers(1), &()).unwrap();
    assert!(files(stopped.path()) == files(whole.path()));
}
