//! What the simulation itself costs: spending time alone and among others, locks, sleeping.
#![allow(missing_docs, reason = "a bench: its macros")]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use highorder_kernels::machine;
use highorder_sim::{LockKind, Mode, Ns, Sim, TaskSpec};

const STEPS: u64 = 1_000_000;

/// This many tasks, each with an own CPU, which share the steps.
fn sim(nr_tasks: u64, lock: bool) -> Sim<u64> {
    let machine = machine::load("two-node-64g").expect("it comes with the program");
    let mut sim = Sim::new(machine.sim_spec(), 0);
    let zone = sim.add_lock("zone", LockKind::Spin);
    for task in 0..nr_tasks {
        sim.spawn(TaskSpec::user("task"), move |cx| {
            for step in 0..STEPS / nr_tasks {
                *cx.world() += 1;
                if lock {
                    cx.lock(zone);
                    cx.unlock(zone);
                }
                cx.spend(Ns(500 + (step + task) % 7), Mode::System);
            }
        });
    }
    sim
}

fn spending(c: &mut Criterion) {
    let mut group = c.benchmark_group("steps");
    group.sample_size(20);
    group.throughput(Throughput::Elements(STEPS));
    for (name, nr_tasks, lock) in [
        ("one task", 1, false),
        ("one task, with a lock", 1, true),
        ("2 tasks", 2, false),
        ("48 tasks", 48, false),
        ("48 tasks, with a lock", 48, true),
    ] {
        let run = |mut sim: Sim<u64>| sim.run().map(|_| sim.into_world());
        group.bench_function(name, |b| {
            b.iter_batched(|| sim(nr_tasks, lock), run, BatchSize::PerIteration);
        });
    }
    group.finish();
}

criterion_group!(benches, spending);
criterion_main!(benches);
