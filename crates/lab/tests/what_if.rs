//! A recorded machine that is asked: its demand, its residents, and what the model makes of both.

use highorder_kernels::KernelFile;
use highorder_lab::Recording;
use highorder_lab::residents::with_residents;
use highorder_lab::what_if::wanted::{Want, Wanted};
use highorder_lab::what_if::{
    CREDIBLE, Course, Knobs, MACHINE, Recorded, measure, median_error, recorded_settings,
};
use highorder_mm::lru::LruList;
use highorder_model::{ModelSpec, run_from};
use highorder_record::Inputs;
use highorder_sim::Ns;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/recordings").join(name)
}

fn recorded(name: &str) -> Recorded {
    let folder = folder(name);
    let settings = recorded_settings(&folder).expect("settings");
    let kernel = KernelFile::load("linux-6.12").expect("a kernel");
    let recording = Recording::read(&folder).expect("a recording");
    Recorded::new(recording, settings.as_ref(), kernel, MACHINE).expect("a machine")
}

/// A counter of the state before, by its own vmstat.
fn counted(recording: &Recording, name: &str) -> u64 {
    let text = String::from_utf8_lossy(&recording.before.files["vmstat"]).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).expect("a counter")
}

#[test]
fn the_demand_is_what_tasks_asked_for_and_nothing_that_the_kernel_did() {
    let recording = Recording::read(folder("612-rec-churn")).expect("a recording");
    let wanted = Wanted::of(&recording, Some("always"));
    // As thp_fault_alloc and thp_fault_fallback rose: 102 and 0.
    assert_eq!((wanted.told.huge_asked, wanted.told.huge_served), (102, 102));
    let uses = || wanted.tasks.iter().flat_map(|task| &task.uses);
    let huge = uses().filter(|this| matches!(this.want, Want::Huge { .. })).count();
    assert_eq!(huge, 102);
    // The program asks for huge pages, and says so in its second tries: where there was none, it is drawn.
    let not_advised =
        uses().filter(|this| matches!(this.want, Want::Huge { is_advised: false, .. })).count();
    assert!(not_advised <= huge / 10, "{not_advised}");
    let base: u64 = uses()
        .map(|this| match this.want {
            Want::Base { pages } => u64::from(pages),
            _ => 0,
        })
        .sum();
    // 12,413 minor faults of the program, huge ones among them, as it says itself.
    assert!((11_000..13_000).contains(&base), "{base}");
    // It keeps no more than 80 MiB in each of two threads.
    let kept: u64 = uses()
        .filter(|this| this.held.is_none())
        .map(|this| match this.want {
            Want::Base { pages } | Want::Huge { pages, .. } => u64::from(pages),
            _ => 0,
        })
        .sum();
    assert!(kept <= 2 * 80 * 256 + 1024, "{kept}");
    for task in &wanted.tasks {
        assert!(task.uses.is_sorted_by_key(|this| this.at), "{}", task.pid);
    }
}

#[test]
fn the_residents_of_a_recorded_machine_are_counted_as_its_kernel_counted_them() {
    for name in ["612-rec-churn", "612-rec-fragslab"] {
        let recording = Recording::read(folder(name)).expect("a recording");
        let kernel = KernelFile::load("linux-6.12").expect("a kernel");
        let cpu_nodes = recording.cpu_nodes();
        let asked = recorded(name);
        let memory =
            highorder_lab::machine::restore(&recording.before, &kernel, &cpu_nodes).expect("room");
        let found = with_residents(&recording.before, memory);
        let spec = ModelSpec {
            machine: asked.machine().clone(),
            policy: kernel.policy.clone(),
            flows: kernel.flows.clone(),
            knobs: Knobs::new(),
            seed: 0,
            demands: Vec::new(),
            sample_interval: Ns::from_secs(1),
            draw: None,
            watch: None,
        };
        let code: highorder_system::Code = Box::new(|sys| {
            sys.note_held();
            Ok(())
        });
        let (record, world) = run_from(found, spec, Inputs::default(), code).expect("a run");
        world.memory.validate().expect("lists and blocks");
        world.memory.audit().expect("user memory");
        let held = record.held.expect("a state");
        let close = |name: &str, found: u64| {
            let expected = counted(&recording, name);
            let apart = found.abs_diff(expected);
            assert!(apart <= 64 + expected / 50, "{name}: {found}, expected {expected}");
        };
        let of = |name: &str| held.counters[name];
        close("nr_inactive_anon", of("nr_inactive_anon"));
        close("nr_active_anon", of("nr_active_anon"));
        close("nr_inactive_file", of("nr_inactive_file"));
        close("nr_free_pages", of("nr_free_pages"));
        // They went with their process.
        let left: u64 = world
            .memory
            .lru
            .ids()
            .map(|id| world.memory.lru.lruvecs[id].size(LruList::InactiveAnon))
            .sum();
        assert!(left < 64, "{left}");
    }
}

#[test]
fn a_recorded_machine_gives_the_same_answer_twice_and_another_one_to_another_seed() {
    let asked = recorded("612-rec-churn");
    let run = |seed| asked.run(&Knobs::new(), Course { loops: 1, seed }).expect("a run");
    let first = run(0);
    assert_eq!(first, run(0));
    assert_ne!(first.after.counters, run(1).after.counters);
    let twice = asked.run(&Knobs::new(), Course { loops: 2, seed: 0 }).expect("a run");
    let faults = |record: &highorder_record::Record| record.delta("pgfault").expect("a counter");
    // The second time through it begins somewhere else and goes around. Where a huge page does not come, 511 faults more do.
    let times = faults(&twice) as f64 / faults(&first) as f64;
    assert!((1.8..2.2).contains(&times), "{times}");
}

#[test]
fn the_model_repeats_what_the_recorded_kernel_counted() {
    // Of three seconds in which 32 tasks waited, five orders of demand say as much as a coin: 17 to 31 % by the costs' last digit.
    for name in ["612-rec-churn", "612-rec-fragslab"] {
        let asked = recorded(name);
        let present = asked.ask(&[Knobs::new()], 15, 1, NonZeroUsize::MIN, &|| ()).expect("runs");
        let agreement = asked.agreement(&present[0]);
        assert!(agreement.len() > 10, "{agreement:?}");
        let error = median_error(&agreement).expect("an error");
        assert!(error <= CREDIBLE, "{name}: {error}");
    }
}

#[test]
fn no_task_waits_for_huge_pages_under_defer_and_fewer_come() {
    let asked = recorded("612-rec-churn");
    let defrag = "transparent_hugepage/defrag";
    let settings = ["always", "defer", "never"]
        .map(|value| Knobs::from([(defrag.to_owned(), value.to_owned())]));
    let answers = asked.ask(&settings, 1, 1, NonZeroUsize::MIN, &|| ()).expect("three runs");
    let of = |name: &str| -> Vec<f64> {
        answers.iter().map(|answer| measure(name).of(answer).expect("a figure")[0]).collect()
    };
    let (stalls, huge) = (of("Time in stalls"), of("Areas with a huge page"));
    assert!(stalls[0] > 0.1 && stalls[1] < stalls[0] / 10.0, "{stalls:?}");
    assert!(huge[0] > huge[1] + 10.0 && huge[0] > huge[2] + 10.0, "{huge:?}");
    let unknown = Knobs::from([(defrag.to_owned(), "sometimes".to_owned())]);
    assert!(asked.check(&unknown).unwrap_err().contains("expected one of always, defer"));
}
