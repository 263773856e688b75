//! Which CPUs are told on the model that entries of page tables are gone.

use crate::common::model;
use highorder_kernels::machine;
use highorder_model::run_on;
use highorder_record::Inputs;
use highorder_sim::Ns;
use highorder_system::{Access, Code, Pattern, ThreadSpec};
use std::sync::{Arc, Mutex};

/// How often a page is mapped, used and unmapped.
const TIMES: u64 = 100;

/// How long that takes beside somebody who computes on another CPU, if anybody; and what telling that CPU each time takes.
fn unmap_beside(somebody: Option<fn(&str) -> ThreadSpec>) -> [Ns; 2] {
    let took = Arc::new(Mutex::new(Ns::ZERO));
    let seen = took.clone();
    let code: Code = Box::new(move |sys| {
        let busy: Code = Box::new(|sys| sys.compute(Ns::from_secs(1)));
        let busy = somebody.map(|spec| sys.spawn(spec("busy"), busy)).transpose()?;
        sys.sleep(Ns::from_millis(100))?;
        let began = sys.now();
        for _ in 0..TIMES {
            let area = sys.mmap(1)?;
            sys.touch_range(area, Pattern::word(Access::Write))?;
            sys.munmap(area)?;
        }
        *seen.lock().unwrap() = sys.now() - began;
        busy.map_or(Ok(()), |busy| sys.join(busy))
    });
    let machine = machine::load("one-node-8g").unwrap().scaled(1, 16).unwrap();
    let telling = machine.costs.tlb_flush_all_remote.times(TIMES);
    run_on(model(machine, "linux-6.12", "never"), Inputs::default(), code).unwrap();
    let took = *took.lock().unwrap();
    [took, telling]
}

#[test]
fn a_cpu_is_told_while_it_runs_the_process_and_not_while_it_runs_another() {
    let [alone, telling] = unmap_beside(None);
    let [beside_another, _] = unmap_beside(Some(|name| ThreadSpec::process(name)));
    let [beside_its_own, _] = unmap_beside(Some(|name| ThreadSpec::thread(name)));
    assert!(telling > Ns::ZERO);
    assert!(beside_another < alone + telling / 10, "{beside_another:?} after {alone:?}");
    assert!(beside_its_own + telling / 10 > beside_another + telling, "{beside_its_own:?}");
    assert!(beside_its_own < beside_another + telling * 11 / 10, "{beside_its_own:?}");
}
