//! Who changes a process's mappings on the model, and who waits for that meanwhile.

use crate::common::model;
use highorder_kernels::machine;
use highorder_model::run_on;
use highorder_record::Inputs;
use highorder_sim::Ns;
use highorder_system::{Access, Area, Code, Failure, Pattern, System, ThreadSpec};
use std::sync::{Arc, Mutex};

/// Pages that one thread unmaps.
const GOING: u64 = 40 * 512;
/// Pages that the other faults in meanwhile.
const COMING: u64 = 64;

/// Runs a program on a small machine with base pages.
fn run(kernel: &str, code: Code) {
    let mut machine = machine::load("one-node-8g").unwrap().scaled(1, 16).unwrap();
    machine.swap[0].bytes = 16 << 20;
    run_on(model(machine, kernel, "never"), Inputs::default(), code).unwrap();
}

/// How long a thread unmaps, and how long one that begins right after it takes to fault in some pages: another of
/// the same process, or one of another process.
fn unmap_beside_faults(kernel: &str, same_process: bool, mapped: bool) -> [Ns; 2] {
    let took = Arc::new(Mutex::new([Ns::ZERO; 2]));
    let seen = took.clone();
    let other = move |sys: &mut dyn System, area: Option<Area>| -> Result<(), Failure> {
        let area = area.map_or_else(|| sys.mmap(COMING), Ok)?;
        if mapped {
            sys.touch_range(area, Pattern::word(Access::Write))?;
        }
        sys.sleep(Ns::from_millis(100))?;
        // The other has begun by now.
        sys.sleep(Ns::from_micros(10))?;
        let began = sys.now();
        sys.touch_range(area, Pattern::word(Access::Write))?;
        seen.lock().unwrap()[1] = sys.now() - began;
        Ok(())
    };
    let seen = took.clone();
    let code: Code = Box::new(move |sys| {
        let going = sys.mmap(GOING)?;
        sys.touch_range(going, Pattern::word(Access::Write))?;
        let thread = if same_process {
            let coming = sys.mmap(COMING)?;
            let code: Code = Box::new(move |sys| other(sys, Some(coming)));
            sys.spawn(ThreadSpec::thread("faults"), code)?
        } else {
            let code: Code = Box::new(move |sys| other(sys, None));
            sys.spawn(ThreadSpec::process("faults"), code)?
        };
        sys.sleep(Ns::from_millis(100))?;
        let began = sys.now();
        sys.munmap(going)?;
        seen.lock().unwrap()[0] = sys.now() - began;
        sys.join(thread)
    });
    run(kernel, code);
    *took.lock().unwrap()
}

#[test]
fn faults_wait_for_who_unmaps_until_4_20_and_only_in_the_same_process() {
    for (kernel, waits) in
        [("linux-4.4", true), ("linux-4.14", true), ("linux-5.1", false), ("linux-6.12", false)]
    {
        let [unmapping, faulting] = unmap_beside_faults(kernel, true, false);
        let [_, alone] = unmap_beside_faults(kernel, false, false);
        assert!(alone * 10 < unmapping, "{kernel}: {alone:?} beside {unmapping:?}");
        if waits {
            assert!(faulting + alone * 2 > unmapping, "{kernel}: {faulting:?} of {unmapping:?}");
        } else {
            assert!(faulting < alone * 2, "{kernel}: {faulting:?} instead of {alone:?}");
        }
    }
}

#[test]
fn what_is_mapped_is_touched_while_another_thread_unmaps() {
    let [unmapping, touching] = unmap_beside_faults("linux-4.4", true, true);
    assert!(touching * 50 < unmapping, "{touching:?} beside {unmapping:?}");
}

/// How long it takes until all of some threads, or processes, have faulted in as many pages each.
fn fault_together(kernel: &str, number: u64, same_process: bool) -> Ns {
    let took = Arc::new(Mutex::new(Ns::ZERO));
    let seen = took.clone();
    let code: Code = Box::new(move |sys| {
        let began = sys.now();
        let others: Vec<_> = (0..number)
            .map(|number| {
                let code: Code = Box::new(|sys| {
                    let area = sys.mmap(GOING)?;
                    sys.touch_range(area, Pattern::word(Access::Write))
                });
                let name = format!("faults {number}");
                let spec =
                    if same_process { ThreadSpec::thread(name) } else { ThreadSpec::process(name) };
                sys.spawn(spec, code)
            })
            .collect::<Result<_, _>>()?;
        others.into_iter().try_for_each(|thread| sys.join(thread))?;
        *seen.lock().unwrap() = sys.now() - began;
        Ok(())
    });
    let machine = machine::load("four-node-64g-flash-swap").unwrap().scaled(1, 16).unwrap();
    run_on(model(machine, kernel, "never"), Inputs::default(), code).unwrap();
    *took.lock().unwrap()
}

#[test]
fn the_lock_s_cache_line_slows_the_faults_of_threads_on_several_nodes_until_6_3() {
    for (kernel, moves) in [("linux-4.4", true), ("linux-5.4", true), ("linux-6.12", false)] {
        let time = |number, same_process| fault_together(kernel, number, same_process);
        let (alone, threads, processes) = (time(1, true), time(8, true), time(8, false));
        assert!(processes < alone * 2, "{kernel}: {processes:?} beside {alone:?}");
        if moves {
            // Eight that write a line twice for each page, most of them from another node: 3.1 us a page.
            let line = Ns(8 * 2 * 194 * GOING);
            assert!(threads * 2 > line && threads < line * 2, "{kernel}: {threads:?} of {line:?}");
        } else {
            assert!(threads < processes * 2, "{kernel}: {threads:?} beside {processes:?}");
        }
    }
}

#[test]
fn threads_that_wait_for_the_lock_of_a_process_that_is_killed_come_to_their_end() {
    for kernel in ["linux-3.3", "linux-4.4", "linux-5.1", "linux-6.1", "linux-6.12"] {
        let ends = Arc::new(Mutex::new(Vec::new()));
        let seen = ends.clone();
        let word = Pattern::word(Access::Write);
        let code: Code = Box::new(move |sys| {
            let everything = 4 * sys.machine().total_pages;
            let code: Code = Box::new(move |sys| {
                let others: Vec<_> = (0..6)
                    .map(|number| {
                        // They map, fault, and unmap until there is no memory.
                        let code: Code = Box::new(move |sys| {
                            loop {
                                let area = sys.mmap(512 * (1 + number))?;
                                sys.touch_range(area, word)?;
                                sys.munmap(area)?;
                            }
                        });
                        sys.spawn(ThreadSpec::thread(format!("thread {number}")), code)
                    })
                    .collect::<Result<_, _>>()?;
                let area = sys.mmap(everything)?;
                let failed = sys.touch_range(area, word);
                others.into_iter().try_for_each(|thread| sys.join(thread))?;
                failed
            });
            let process = sys.spawn(ThreadSpec::process("hog"), code)?;
            seen.lock().unwrap().push(sys.join(process));
            // Whoever comes next finds the memory.
            let area = sys.mmap(COMING)?;
            sys.touch_range(area, word)
        });
        run(kernel, code);
        assert_eq!(*ends.lock().unwrap(), [Err(Failure::Killed)], "{kernel}");
    }
}
