//! Which CPUs are told on the model that entries of page tables are gone.

use crate::common::model;
use highorder_kernels::machine;
use highorder_model::run_on;
use highorder_record::Inputs;
use highorder_sim::{ByBusy, Host, Ns};
use highorder_system::{Access, Code, Pattern, ThreadSpec};
use std::sync::{Arc, Mutex};

/// How often a page is mapped, used and unmapped.
const TIMES: u64 = 100;
/// A thread of the process itself.
const ITS_OWN: fn(&str) -> ThreadSpec = |name| ThreadSpec::thread(name);

/// How long that takes beside so many who compute on other CPUs, on a host if there is one; and what telling CPUs each time
/// takes, where the host runs them.
fn unmap_beside(somebody: &[fn(&str) -> ThreadSpec], host: Option<Host>) -> [Ns; 2] {
    let somebody = somebody.to_vec();
    let took = Arc::new(Mutex::new(Ns::ZERO));
    let seen = took.clone();
    let code: Code = Box::new(move |sys| {
        let busy: Vec<_> = somebody
            .iter()
            .map(|spec| {
                let code: Code = Box::new(|sys| sys.compute(Ns::from_secs(5)));
                sys.spawn(spec("busy"), code)
            })
            .collect::<Result<_, _>>()?;
        sys.sleep(Ns::from_millis(100))?;
        let began = sys.now();
        for _ in 0..TIMES {
            let area = sys.mmap(1)?;
            sys.touch_range(area, Pattern::word(Access::Write))?;
            sys.munmap(area)?;
        }
        *seen.lock().unwrap() = sys.now() - began;
        busy.into_iter().try_for_each(|busy| sys.join(busy))
    });
    let mut machine = machine::load("one-node-8g").unwrap().scaled(1, 16).unwrap();
    machine.sched.host = host;
    let telling = machine.costs.tlb_flush_all_remote.times(TIMES);
    run_on(model(machine, "linux-6.12", "never"), Inputs::default(), code).unwrap();
    let took = *took.lock().unwrap();
    [took, telling]
}

#[test]
fn a_cpu_is_told_while_it_runs_the_process_and_not_while_it_runs_another() {
    let another: fn(&str) -> ThreadSpec = |name| ThreadSpec::process(name);
    let [alone, telling] = unmap_beside(&[], None);
    let [beside_another, _] = unmap_beside(&[another], None);
    let [beside_its_own, _] = unmap_beside(&[ITS_OWN], None);
    assert!(telling > Ns::ZERO);
    assert!(beside_another < alone + telling / 10, "{beside_another:?} after {alone:?}");
    assert!(beside_its_own + telling / 10 > beside_another + telling, "{beside_its_own:?}");
    assert!(beside_its_own < beside_another + telling * 11 / 10, "{beside_its_own:?}");
}

#[test]
fn a_cpu_that_the_host_does_not_run_is_told_late() {
    let wait = Ns::from_millis(2);
    let host = Some(Host {
        work_percent: ByBusy::new(&[100]),
        flush_wait: ByBusy::new(&[Ns::ZERO, Ns::ZERO, wait]),
        access_wait: ByBusy::new(&[Ns::ZERO]),
    });
    // Two CPUs have work, and then three.
    assert_eq!(unmap_beside(&[ITS_OWN], host), unmap_beside(&[ITS_OWN], None));
    let [both_run, _] = unmap_beside(&[ITS_OWN; 2], None);
    let [one_waits, _] = unmap_beside(&[ITS_OWN; 2], host);
    assert!(one_waits >= both_run + wait * TIMES, "{one_waits:?} after {both_run:?}");
    assert!(one_waits < both_run + wait * TIMES * 11 / 10, "{one_waits:?} after {both_run:?}");
}
