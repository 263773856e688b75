//! Tasks, CPUs, locks and waiting, by what they promise.

use highorder_mm::types::NodeId;
use highorder_sim::{
    Affinity, ByBusy, Class, CpuId, Cx, DeviceId, DeviceKind, DeviceSpec, Elevator, Host, Io,
    LockKind, Mode, Ns, Picks, Resumption, RunError, SchedSpec, Sim, SimSpec, TaskId, TaskSpec,
    Wakeup,
};
use std::cell::Cell;
use std::rc::Rc;

const MS: u64 = 1_000_000;

/// CPUs on these nodes, slices of 3 ms in a round of 6 ms that end at ticks of 4 ms, free context switches, one disk on
/// which a turn takes 10 ms and a track is 1 MB.
fn spec(cpu_nodes: &[u32]) -> SimSpec {
    SimSpec {
        cpu_nodes: cpu_nodes.iter().copied().map(NodeId).collect(),
        sched: SchedSpec {
            latency: Ns(6 * MS),
            min_granularity: Ns(MS),
            wakeup_granularity: Ns(MS),
            context_switch: Ns::ZERO,
            host: None,
        },
        picks: Picks::LeastRun,
        devices: vec![DeviceSpec {
            name: "sda".into(),
            capacity_bytes: 100_000_000_000,
            nr_requests: 8,
            max_request_bytes: 512 << 10,
            max_segments: 128,
            hardware_queues: 1,
            says_rotational: true,
            elevator: Elevator::Deadline,
            kind: DeviceKind::Rotating {
                turn: Ns(10 * MS),
                seek_track: Ns(MS),
                seek_average: Ns(9 * MS),
                queue_depth: 1,
                command: Ns::ZERO,
                bandwidth: 100_000_000,
            },
        }],
    }
}

/// A simulation whose world is a log of moments and words.
type Log = Vec<(u64, &'static str)>;

fn sim(cpu_nodes: &[u32]) -> Sim<Log> {
    Sim::new(spec(cpu_nodes), Log::new())
}

fn say(cx: &mut Cx<'_, Log>, word: &'static str) {
    let now = cx.now().0;
    cx.world().push((now, word));
}

/// Every CPU's four times add up to the elapsed time, every task's five to its life, and both sides agree
/// on what was run.
fn conserves<W>(sim: &Sim<W>) {
    let elapsed = sim.now();
    let mut ran = [Ns::ZERO; 2];
    for cpu in 0..sim.nr_cpus() {
        let times = sim.cpu_times(CpuId(cpu as u32));
        assert_eq!(times.total(), elapsed, "CPU {cpu}: {times:?}");
        ran[0] += times.user;
        ran[1] += times.system;
    }
    let tasks = || (0..sim.nr_tasks()).map(|task| sim.task_times(TaskId(task as u32)));
    assert_eq!(ran, [tasks().map(|t| t.user).sum(), tasks().map(|t| t.system).sum()]);
}

#[test]
fn tasks_go_on_in_the_order_of_their_clocks() {
    let mut sim = sim(&[0, 0, 0]);
    for (name, step) in [("a", 7), ("b", 5), ("c", 3)] {
        sim.spawn(TaskSpec::user(name), move |cx| {
            for _ in 0..3 {
                cx.spend(Ns(step), Mode::User);
                say(cx, name);
            }
        });
    }
    assert_eq!(sim.run(), Ok(Ns(21)));
    let expected: Log = vec![
        (3, "c"),
        (5, "b"),
        (6, "c"),
        (7, "a"),
        (9, "c"),
        (10, "b"),
        (14, "a"),
        (15, "b"),
        (21, "a"),
    ];
    assert_eq!(sim.world(), &expected);
    conserves(&sim);
}

#[test]
fn at_the_same_moment_the_lower_task_number_goes_first() {
    let mut sim = sim(&[0, 0, 0]);
    // The last one arrives there by sleeping, the middle one by spending in two steps.
    sim.spawn(TaskSpec::user("a"), |cx| {
        cx.spend(Ns(10), Mode::User);
        say(cx, "a");
    });
    sim.spawn(TaskSpec::user("b"), |cx| {
        cx.spend(Ns(4), Mode::User);
        cx.spend(Ns(6), Mode::User);
        say(cx, "b");
    });
    sim.spawn(TaskSpec::user("c"), |cx| {
        cx.sleep(Ns(10));
        say(cx, "c");
    });
    sim.run().unwrap();
    assert_eq!(sim.world(), &[(10, "a"), (10, "b"), (10, "c")]);
}

#[test]
fn steps_of_no_time_happen_in_one_go() {
    let mut sim = sim(&[0, 0]);
    sim.spawn(TaskSpec::user("a"), |cx| {
        for word in ["1", "2", "3"] {
            say(cx, word);
            cx.spend(Ns(0), Mode::User);
        }
    });
    sim.spawn(TaskSpec::user("b"), |cx| say(cx, "b"));
    sim.run().unwrap();
    assert_eq!(sim.world(), &[(0, "1"), (0, "2"), (0, "3"), (0, "b")]);
}

/// Tasks of all kinds at once: more tasks than CPUs, on two nodes, spending, sleeping, locking, waking,
/// doing I/O; what they do follows from their number alone.
fn mixture(seed: u64) -> (Sim<u64>, Vec<Resumption>, Ns) {
    let mut config = spec(&[0, 0, 1, 1]);
    config.sched.context_switch = Ns(1500);
    let mut sim = Sim::new(config, 0_u64);
    sim.record_resumptions(true);
    let lock = sim.add_lock("zone", LockKind::Spin);
    let mutex = sim.add_lock("mmap", LockKind::Sleep);
    let queue = sim.add_queue("kswapd");
    let barrier = sim.add_barrier("start", 9);
    sim.spawn(TaskSpec::kernel_thread("kswapd0").on(Affinity::Node(NodeId(0))), move |cx| {
        loop {
            if cx.wait_timeout(queue, Ns(3 * MS)) == Wakeup::Woken {
                cx.spend(Ns(200_000), Mode::System);
            }
            cx.hold(lock, Ns(700));
        }
    });
    for number in 0..9_u64 {
        let affinity = [Affinity::Any, Affinity::Node(NodeId(1)), Affinity::Cpu(CpuId(2))];
        let spec = TaskSpec::user(format!("t{number}")).on(affinity[(number % 3) as usize]);
        sim.spawn(spec, move |cx| {
            let mut state = seed.wrapping_mul(31) + number;
            let mut random = move |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) % below
            };
            cx.barrier(barrier);
            for _ in 0..300 {
                *cx.world() += 1;
                match random(9) {
                    0..3 => cx.spend(Ns(random(100_000)), Mode::User),
                    3 => cx.hold(lock, Ns(random(5_000))),
                    4 => {
                        cx.lock(lock);
                        cx.spend(Ns(random(5_000)), Mode::System);
                        cx.unlock(lock);
                    }
                    5 => {
                        cx.lock(mutex);
                        cx.spend(Ns(random(50_000)), Mode::System);
                        cx.sleep(Ns(random(10_000)));
                        cx.unlock(mutex);
                    }
                    6 => {
                        cx.wake_one(queue);
                        cx.cond_resched();
                    }
                    7 => cx.sleep(Ns(random(200_000))),
                    _ if random(10) == 0 => {
                        let tickets: Vec<_> =
                            (0..12).map(|_| Io::read(random(20_000_000) * 4096, 4096, 0)).collect();
                        for ticket in cx.submit_all(DeviceId(0), &tickets) {
                            cx.wait_io(ticket);
                        }
                    }
                    _ => cx.spend(Ns(random(3 * MS)), Mode::System),
                }
            }
        });
    }
    let end = sim.run().unwrap();
    let resumptions = sim.resumptions().to_vec();
    (sim, resumptions, end)
}

#[test]
fn the_same_program_twice_is_resumed_alike() {
    let (_, first, first_end) = mixture(1);
    let (_, second, second_end) = mixture(1);
    assert!(first.len() > 2000, "{}", first.len());
    let difference = first.iter().zip(&second).position(|(a, b)| a != b);
    assert_eq!(difference, None, "the first resumption that differs");
    assert_eq!((first.len(), first_end), (second.len(), second_end));
    assert_ne!(first, mixture(2).1);
}

#[test]
fn no_nanosecond_is_lost_or_counted_twice() {
    for seed in 0..20 {
        let (sim, _, end) = mixture(seed);
        assert_eq!(*sim.world(), 2700);
        conserves(&sim);
        for task in 0..sim.nr_tasks() {
            let times = sim.task_times(TaskId(task as u32));
            let life = times.total();
            // The kernel thread and the task that ended last have lived as long as the machine.
            assert!(life <= end && (task > 0 || life == end), "{times:?}");
        }
        assert!((1..10).any(|task| sim.task_times(TaskId(task)).total() == end));
    }
}

/// Three tasks of 30 ms that share one CPU fairly, at their end.
fn three_share_a_cpu(picks: Picks) -> Sim<Log> {
    let mut sim = Sim::new(SimSpec { picks, ..spec(&[0]) }, Log::new());
    sim.record_resumptions(true);
    for name in ["a", "b", "c"] {
        sim.spawn(TaskSpec::user(name), move |cx| {
            for _ in 0..300 {
                cx.spend(Ns(100_000), Mode::User);
            }
            say(cx, name);
        });
    }
    sim.run_until(Ns(60 * MS)).unwrap();
    // 60 ms for three tasks, to within a slice of 6 ms / 3, which ends at a tick.
    for task in 0..3 {
        let user = sim.task_times(TaskId(task)).user;
        assert!(user.0.abs_diff(20 * MS) <= 4 * MS, "task {task} ran {user}");
    }
    assert_eq!(sim.run(), Ok(Ns(90 * MS)));
    conserves(&sim);
    sim
}

#[test]
fn tasks_of_one_cpu_share_it_fairly_in_slices() {
    let sim = three_share_a_cpu(Picks::LeastRun);
    // They end close together: 30 ms each, in slices of 4 ms.
    assert!(sim.world().iter().all(|&(at, _)| at >= 84 * MS), "{:?}", sim.world());
    let switches: u64 = (0..3).map(|t| sim.task_times(TaskId(t)).involuntary_switches).sum();
    assert_eq!(switches, 3 * 7, "each is interrupted after each of its slices but the last");
}

#[test]
fn one_long_spend_is_cut_into_slices_too() {
    let mut sim = sim(&[0]);
    for name in ["a", "b"] {
        sim.spawn(TaskSpec::user(name), move |cx| {
            cx.spend(Ns(29 * MS), Mode::User);
            say(cx, name);
        });
    }
    assert_eq!(sim.run(), Ok(Ns(58 * MS)));
    // Slices of 4 ms in turn: a's eighth begins at 56 ms, and it needs 1 of it.
    assert_eq!(sim.world(), &[(57 * MS, "a"), (58 * MS, "b")]);
    conserves(&sim);
}

#[test]
fn a_context_switch_is_system_time_of_the_incoming_task() {
    let mut config = spec(&[0]);
    config.sched.context_switch = Ns(2000);
    let mut sim = Sim::new(config, ());
    for name in ["a", "b"] {
        sim.spawn(TaskSpec::user(name), |cx| cx.spend(Ns(MS), Mode::User));
    }
    assert_eq!(sim.run(), Ok(Ns(2 * (MS + 2000))));
    for task in 0..2 {
        let times = sim.task_times(TaskId(task));
        assert_eq!((times.user, times.system), (Ns(MS), Ns(2000)));
    }
}

#[test]
fn a_woken_task_takes_the_cpu_from_one_that_has_run_for_long() {
    let mut sim = sim(&[0]);
    sim.spawn(TaskSpec::user("busy"), |cx| {
        cx.spend(Ns(20 * MS), Mode::User);
        say(cx, "busy");
    });
    sim.spawn(TaskSpec::user("sleeper"), |cx| {
        cx.sleep(Ns(10 * MS));
        say(cx, "sleeper");
        cx.spend(Ns(MS), Mode::User);
    });
    sim.run().unwrap();
    // In the middle of the other one's spend, which goes on afterwards. The sleeper had to go to sleep
    // first, at the end of the busy one's slice.
    assert_eq!(sim.world(), &[(14 * MS, "sleeper"), (21 * MS, "busy")]);
}

/// When a task that sleeps until `ms` after it had its share gets the CPU of one that never sleeps, in microseconds.
fn goes_on_at(picks: Picks, us: u64) -> u64 {
    let mut sim = Sim::new(SimSpec { picks, ..spec(&[0]) }, Log::new());
    sim.spawn(TaskSpec::user("sleeper"), move |cx| {
        // It has run more than the other one when it goes to sleep, so that nothing is owed to it.
        cx.spend(Ns(3 * MS), Mode::User);
        let now = cx.now().0;
        cx.sleep(Ns(us * 1000 - now));
        say(cx, "sleeper");
        cx.spend(Ns(MS), Mode::User);
    });
    sim.spawn(TaskSpec::user("busy"), |cx| cx.spend(Ns(80 * MS), Mode::User));
    sim.run().unwrap();
    conserves(&sim);
    sim.world()[0].0 / 1000
}

#[test]
fn a_woken_task_waits_until_the_slice_is_over_where_deadlines_count() {
    // Slices of a millisecond, of which ticks see the end: one began at 40 ms.
    let deadlines = |us| goes_on_at(Picks::EarliestDeadline, us);
    assert_eq!(deadlines(40_500), 44_000, "within the slice: at the next tick");
    assert_eq!(deadlines(41_500), 41_500, "after it: at once");
    assert_eq!(deadlines(43_900), 43_900);
    // By what tasks have run, it is behind by half a round and goes at once.
    let least_run = |us| goes_on_at(Picks::LeastRun, us);
    assert_eq!([40_500, 41_500, 43_900].map(least_run), [40_500, 41_500, 43_900]);
}

#[test]
fn a_woken_task_is_placed_by_what_the_other_has_run_up_to_now() {
    let mut sim = sim(&[0]);
    let queue = sim.add_queue("kswapd");
    sim.spawn(TaskSpec::kernel_thread("kswapd0"), move |cx| {
        loop {
            cx.wait(queue);
            cx.spend(Ns(7 * MS), Mode::System);
            say(cx, "kswapd0");
        }
    });
    sim.spawn(TaskSpec::user("busy"), move |cx| {
        // One piece, of which nobody takes note before its end.
        cx.spend(Ns(30 * MS), Mode::User);
        cx.wake_one(queue);
        cx.spend(Ns(MS), Mode::User);
        say(cx, "busy");
        cx.spend(Ns(10 * MS), Mode::User);
    });
    sim.run().unwrap();
    // kswapd is half a latency of 6 ms behind, no more: the tick at 36 ms finds it ahead, and its slice over.
    assert_eq!(sim.world()[0], (37 * MS, "busy"));
}

/// When a task goes on that had more than its share of one of two CPUs, slept for half a millisecond and was woken at
/// 3.5 ms, in microseconds. The other CPU is idle.
fn goes_on_beside_an_idle_cpu(picks: Picks) -> u64 {
    let mut sim = Sim::new(SimSpec { picks, ..spec(&[0, 0]) }, Log::new());
    sim.spawn(TaskSpec::user("sleeper"), |cx| {
        cx.spend(Ns(3 * MS), Mode::User);
        cx.sleep(Ns(MS / 2));
        say(cx, "sleeper");
    });
    let pinned = TaskSpec::user("busy").on(Affinity::Cpu(CpuId(0)));
    sim.spawn(pinned, |cx| cx.spend(Ns(80 * MS), Mode::User));
    sim.run().unwrap();
    conserves(&sim);
    sim.world()[0].0 / 1000
}

#[test]
fn whoever_lingers_is_woken_on_its_cpu_even_if_another_is_idle() {
    assert_eq!(goes_on_beside_an_idle_cpu(Picks::LeastRun), 3500);
    assert!(goes_on_beside_an_idle_cpu(Picks::EarliestDeadline) >= 4000);
}

#[test]
fn where_deadlines_count_tasks_of_one_cpu_share_it_fairly() {
    let sim = three_share_a_cpu(Picks::EarliestDeadline);
    assert!(sim.world().iter().all(|&(at, _)| at >= 80 * MS), "{:?}", sim.world());
}

#[test]
fn whoever_moves_to_an_idle_cpu_begins_a_slice_there() {
    let mut sim = Sim::new(SimSpec { picks: Picks::EarliestDeadline, ..spec(&[0, 0]) }, Log::new());
    // CPU 0 has run for a second, CPU 1 for next to nothing, when it takes one of those that wait.
    sim.spawn(TaskSpec::user("old").on(Affinity::Cpu(CpuId(0))), |cx| {
        cx.spend(Ns(1000 * MS), Mode::User);
        let there = Affinity::Cpu(CpuId(1));
        for _ in 0..2 {
            cx.spawn(TaskSpec::user("short").on(there), |cx| cx.spend(Ns(MS), Mode::User));
        }
        for _ in 0..2 {
            cx.spawn(TaskSpec::user("moved"), |cx| {
                cx.spend(Ns(100 * MS), Mode::User);
                say(cx, "moved");
            });
        }
        cx.spend(Ns(10 * MS), Mode::User);
        cx.spawn(TaskSpec::user("beside").on(there), |cx| {
            cx.spend(Ns(50 * MS), Mode::User);
            say(cx, "beside");
        });
        cx.spend(Ns(300 * MS), Mode::User);
    });
    sim.run().unwrap();
    let words: Vec<_> = sim.world().iter().map(|&(_, word)| word).collect();
    assert_eq!(words, ["beside", "moved", "moved"], "{:?}", sim.world());
    conserves(&sim);
}

#[test]
fn a_waiting_task_moves_to_a_cpu_that_falls_idle() {
    let mut sim = sim(&[0, 0]);
    for (name, ms) in [("short", 2), ("long", 20), ("third", 10)] {
        sim.spawn(TaskSpec::user(name), move |cx| cx.spend(Ns(ms * MS), Mode::User));
    }
    sim.run().unwrap();
    let third = sim.task_times(TaskId(2));
    // It waits behind `short` on CPU 0, and has that for itself after 2 ms.
    assert_eq!((third.runnable, third.user), (Ns(2 * MS), Ns(10 * MS)));
    assert_eq!(sim.now(), Ns(20 * MS));
    conserves(&sim);
}

#[test]
fn affinity_is_kept() {
    let mut sim = Sim::new(spec(&[0, 0, 1, 1]), Vec::new());
    let places = [Affinity::Node(NodeId(1)), Affinity::Cpu(CpuId(1)), Affinity::Node(NodeId(0))];
    for (n, place) in places.into_iter().cycle().take(12).enumerate() {
        sim.spawn(TaskSpec::user(format!("{n}")).on(place), move |cx| {
            for _ in 0..50 {
                cx.spend(Ns(300_000), Mode::User);
                let (cpu, node) = (cx.cpu(), cx.node());
                cx.world().push((place, cpu, node));
                cx.sleep(Ns(100_000 * (n as u64 % 4)));
            }
        });
    }
    sim.run().unwrap();
    assert_eq!(sim.world().len(), 600);
    for &(place, cpu, node) in sim.world() {
        assert_eq!(node, NodeId(cpu.0 / 2));
        match place {
            Affinity::Node(wanted) => assert_eq!(node, wanted),
            Affinity::Cpu(wanted) => assert_eq!(cpu, wanted),
            Affinity::Any => unreachable!(),
        }
    }
}

#[test]
fn a_task_that_changes_its_affinity_moves() {
    let mut sim = Sim::new(spec(&[0, 1]), Vec::new());
    sim.spawn(TaskSpec::user("a"), |cx| {
        for cpu in [0, 1, 0] {
            cx.set_affinity(Affinity::Cpu(CpuId(cpu)));
            cx.spend(Ns(5), Mode::User);
            let here = cx.cpu().0;
            cx.world().push(here);
        }
    });
    sim.run().unwrap();
    assert_eq!(sim.world(), &[0, 1, 0]);
    assert_eq!(sim.cpu_times(CpuId(1)).user, Ns(5));
}

#[test]
fn new_tasks_spread_over_the_nodes() {
    let mut sim = Sim::new(spec(&[0, 0, 1, 1]), Vec::new());
    for n in 0..4 {
        sim.spawn(TaskSpec::user(format!("{n}")), |cx| {
            let cpu = cx.cpu().0;
            cx.world().push(cpu);
            cx.spend(Ns(10), Mode::User);
        });
    }
    sim.run().unwrap();
    assert_eq!(sim.world(), &[0, 2, 1, 3]);
}

#[test]
fn threads_of_one_program_spread_over_the_nodes_and_stay_with_it_where_these_are_equally_busy() {
    let mut sim = Sim::new(spec(&[0, 0, 0, 0, 1, 1, 1, 1]), Vec::new());
    sim.spawn(TaskSpec::user("main"), |cx| {
        assert_eq!(cx.node(), NodeId(0));
        for n in 0..4 {
            cx.spawn(TaskSpec::user(format!("{n}")), move |cx| {
                let node = cx.node();
                cx.world().push((n, node));
                cx.spend(Ns(1_000_000), Mode::User);
            });
        }
        cx.spend(Ns(1_000_000), Mode::User);
    });
    sim.run().unwrap();
    sim.world_mut().sort_unstable();
    // The program itself makes node 0 busier; then both are alike.
    assert_eq!(sim.world(), &[(0, NodeId(1)), (1, NodeId(0)), (2, NodeId(1)), (3, NodeId(0))]);
}

#[test]
fn a_task_goes_to_an_idle_cpu_of_a_node_and_nowhere_if_there_is_none() {
    let mut sim = Sim::new(spec(&[0, 1]), Vec::new());
    sim.spawn(TaskSpec::user("a"), |cx| {
        let there = (cx.move_to_node(NodeId(1)), cx.node());
        cx.world().push(there);
        cx.spend(Ns(10), Mode::User);
        cx.spawn(TaskSpec::user("b"), |cx| cx.spend(Ns(1000), Mode::User));
        cx.spend(Ns(10), Mode::User);
        let back = (cx.move_to_node(NodeId(0)), cx.node());
        cx.world().push(back);
    });
    sim.run().unwrap();
    assert_eq!(sim.world(), &[(true, NodeId(1)), (false, NodeId(1))]);
}

#[test]
fn a_task_does_not_go_where_more_have_to_run_already() {
    for (is_busy, expected) in [(false, (true, NodeId(1))), (true, (false, NodeId(0)))] {
        let mut sim = Sim::new(spec(&[0, 0, 1, 1]), Vec::new());
        if is_busy {
            let there = TaskSpec::user("b").on(Affinity::Node(NodeId(1)));
            sim.spawn(there, |cx| cx.spend(Ns(1000), Mode::User));
        }
        sim.spawn(TaskSpec::user("a").on(Affinity::Node(NodeId(0))), |cx| {
            cx.spend(Ns(10), Mode::User);
            cx.set_affinity(Affinity::Any);
            let there = (cx.move_to_node(NodeId(1)), cx.node());
            cx.world().push(there);
        });
        sim.run().unwrap();
        assert_eq!(sim.world(), &[expected], "busy: {is_busy}");
    }
}

#[test]
fn waiting_for_a_held_spinlock_adds_up_as_system_time() {
    let mut sim = sim(&[0, 0, 0, 0]);
    let lock = sim.add_lock("zone", LockKind::Spin);
    for name in ["a", "b", "c", "d"] {
        sim.spawn(TaskSpec::user(name), move |cx| {
            cx.lock(lock);
            say(cx, name);
            cx.spend(Ns(100), Mode::System);
            cx.unlock(lock);
        });
    }
    sim.run().unwrap();
    assert_eq!(sim.world(), &[(0, "a"), (100, "b"), (200, "c"), (300, "d")]);
    let stats = sim.lock_stats(lock);
    assert_eq!((stats.taken, stats.contended, stats.waited), (4, 3, Ns(100 + 200 + 300)));
    for task in 0..4 {
        assert_eq!(sim.task_times(TaskId(task)).system, Ns(100 * (u64::from(task) + 1)));
    }
    conserves(&sim);
}

#[test]
fn holding_a_lock_for_a_known_time_queues_up_the_same() {
    let run = |hold: bool| {
        let mut sim = sim(&[0, 0, 0, 0]);
        let lock = sim.add_lock("lru", LockKind::Spin);
        for name in ["a", "b", "c", "d"] {
            sim.spawn(TaskSpec::user(name), move |cx| {
                for _ in 0..20 {
                    cx.spend(Ns(70), Mode::User);
                    if hold {
                        cx.hold(lock, Ns(100));
                    } else {
                        cx.lock(lock);
                        cx.spend(Ns(100), Mode::System);
                        cx.unlock(lock);
                    }
                }
                say(cx, name);
            });
        }
        sim.run().unwrap();
        conserves(&sim);
        (sim.world().clone(), sim.lock_stats(lock))
    };
    assert_eq!(run(true), run(false));
    // One of them waits for the lock at any time, so it is never free after the first 70 ns.
    assert_eq!(run(true).0.last(), Some(&(70 + 80 * 100, "d")));
}

#[test]
fn both_ways_of_taking_a_lock_wait_for_each_other() {
    let mut sim = sim(&[0, 0, 0, 0]);
    let lock = sim.add_lock("lru", LockKind::Spin);
    sim.spawn(TaskSpec::user("a"), move |cx| {
        cx.lock(lock);
        cx.spend(Ns(50), Mode::System);
        cx.unlock(lock);
        say(cx, "a");
    });
    for (name, hold) in [("b", 30), ("c", 20)] {
        sim.spawn(TaskSpec::user(name), move |cx| {
            cx.hold(lock, Ns(hold));
            say(cx, name);
        });
    }
    sim.spawn(TaskSpec::user("d"), move |cx| {
        cx.lock(lock);
        say(cx, "d");
        cx.unlock(lock);
        cx.hold(lock, Ns(7));
        cx.lock(lock);
        cx.unlock(lock);
        say(cx, "d");
    });
    sim.run().unwrap();
    assert_eq!(sim.world(), &[(50, "a"), (80, "b"), (100, "c"), (100, "d"), (107, "d")]);
}

#[test]
fn a_spinlock_keeps_its_holder_on_the_cpu_and_a_sleeping_lock_does_not() {
    for (kind, first) in [(LockKind::Spin, "holder"), (LockKind::Sleep, "other")] {
        let mut sim = sim(&[0]);
        let lock = sim.add_lock("lock", kind);
        sim.spawn(TaskSpec::user("holder"), move |cx| {
            cx.lock(lock);
            cx.spend(Ns(10 * MS), Mode::System);
            cx.unlock(lock);
            say(cx, "holder");
            cx.spend(Ns(MS), Mode::User);
        });
        sim.spawn(TaskSpec::user("other"), |cx| {
            cx.spend(Ns(MS), Mode::User);
            say(cx, "other");
        });
        sim.run().unwrap();
        assert_eq!(sim.world()[0].1, first, "{kind:?}");
        conserves(&sim);
    }
}

#[test]
fn sleepers_of_a_lock_get_it_in_the_order_they_came() {
    let mut sim = sim(&[0, 0, 0]);
    let lock = sim.add_lock("mmap", LockKind::Sleep);
    for name in ["a", "b", "c"] {
        sim.spawn(TaskSpec::user(name), move |cx| {
            for _ in 0..2 {
                cx.lock(lock);
                say(cx, name);
                cx.sleep(Ns(10));
                cx.unlock(lock);
            }
        });
    }
    sim.run().unwrap();
    let names: Vec<_> = sim.world().iter().map(|&(_, name)| name).collect();
    assert_eq!(names, ["a", "b", "c", "a", "b", "c"]);
    assert_eq!(sim.now(), Ns(60));
    assert_eq!(sim.task_times(TaskId(2)).asleep, Ns(60));
}

#[test]
fn the_one_that_waits_longest_is_woken_first() {
    let mut sim = sim(&[0, 0, 0, 0]);
    let queue = sim.add_queue("queue");
    for (name, at) in [("a", 30), ("b", 10), ("c", 20)] {
        sim.spawn(TaskSpec::user(name), move |cx| {
            cx.sleep(Ns(at));
            cx.wait(queue);
            say(cx, name);
        });
    }
    sim.spawn(TaskSpec::user("waker"), move |cx| {
        cx.sleep(Ns(100));
        assert_eq!(cx.nr_waiting(queue), 3);
        assert!(cx.wake_one(queue));
        cx.sleep(Ns(100));
        assert_eq!(cx.wake_all(queue), 2);
        assert!(!cx.wake_one(queue));
    });
    sim.run().unwrap();
    // The two of one moment go on by number.
    assert_eq!(sim.world(), &[(100, "b"), (200, "a"), (200, "c")]);
}

#[test]
fn a_wait_ends_at_its_limit_or_when_woken_and_not_twice() {
    let mut sim = sim(&[0, 0]);
    let queue = sim.add_queue("queue");
    sim.spawn(TaskSpec::user("waiter"), move |cx| {
        assert_eq!(cx.wait_timeout(queue, Ns(50)), Wakeup::TimedOut);
        say(cx, "timed out");
        assert_eq!(cx.nr_waiting(queue), 0);
        assert_eq!(cx.wait_timeout(queue, Ns(100)), Wakeup::Woken);
        say(cx, "woken");
        cx.sleep(Ns(500));
        say(cx, "slept");
    });
    sim.spawn(TaskSpec::user("waker"), move |cx| {
        cx.sleep(Ns(70));
        cx.wake_one(queue);
    });
    sim.run().unwrap();
    assert_eq!(sim.world(), &[(50, "timed out"), (70, "woken"), (570, "slept")]);
}

#[test]
fn a_barrier_lets_all_go_when_the_last_has_come() {
    let mut sim = sim(&[0, 0, 0]);
    let barrier = sim.add_barrier("barrier", 3);
    for (name, step) in [("a", 10), ("b", 30), ("c", 20)] {
        sim.spawn(TaskSpec::user(name), move |cx| {
            for round in 1..=2 {
                cx.spend(Ns(step), Mode::User);
                let is_last = cx.barrier(barrier);
                assert_eq!(is_last, name == "b");
                assert_eq!(cx.now(), Ns(30 * round));
            }
        });
    }
    sim.run().unwrap();
    conserves(&sim);
}

#[test]
fn tasks_spawn_tasks_and_wait_for_their_end() {
    let mut sim = sim(&[0, 0]);
    sim.spawn(TaskSpec::user("parent"), |cx| {
        let child = cx.spawn(TaskSpec::user("child"), |cx| {
            cx.spend(Ns(40), Mode::User);
            say(cx, "child");
            cx.exit();
        });
        cx.spend(Ns(10), Mode::User);
        say(cx, "parent");
        cx.join(child);
        say(cx, "joined");
        cx.join(child);
    });
    sim.run().unwrap();
    assert_eq!(sim.world(), &[(10, "parent"), (40, "child"), (40, "joined")]);
}

#[test]
fn whoever_asks_whether_to_give_up_its_cpu_keeps_it_until_its_turn_is_over() {
    let mut sim = sim(&[0]);
    for name in ["a", "b"] {
        sim.spawn(TaskSpec::user(name), move |cx| {
            for _ in 0..5 {
                cx.spend(Ns(MS), Mode::User);
                cx.cond_resched();
            }
            say(cx, name);
        });
    }
    sim.run().unwrap();
    // Slices of 4 ms, to the next tick: a, b, and what is left of both.
    assert_eq!(sim.world(), &[(9 * MS, "a"), (10 * MS, "b")]);
}

#[test]
fn whoever_asks_gives_its_cpu_up_to_one_just_woken_that_has_run_less() {
    let mut sim = sim(&[0]);
    let queue = sim.add_queue("work");
    sim.spawn(TaskSpec::kernel_thread("worker"), move |cx| {
        loop {
            cx.wait(queue);
            say(cx, "worker");
        }
    });
    sim.spawn(TaskSpec::user("reclaimer"), move |cx| {
        cx.spend(Ns(3 * MS), Mode::System);
        cx.wake_one(queue);
        say(cx, "woken");
        cx.cond_resched();
        say(cx, "goes on");
    });
    sim.run().unwrap();
    let words: Vec<_> = sim.world().iter().map(|&(_, word)| word).collect();
    assert_eq!(words, ["woken", "worker", "goes on"]);
}

#[test]
fn a_run_ends_with_the_last_task_that_is_no_kernel_thread_and_goes_on_later() {
    let mut sim = sim(&[0, 0]);
    sim.spawn(TaskSpec::kernel_thread("kcompactd0"), |cx| {
        loop {
            cx.spend(Ns(7), Mode::System);
            say(cx, "kcompactd0");
            cx.sleep(Ns(3));
        }
    });
    let first = sim.spawn(TaskSpec::user("first"), |cx| cx.spend(Ns(12), Mode::User));
    assert_eq!(sim.run(), Ok(Ns(12)));
    assert!(sim.is_done(first));
    conserves(&sim);
    sim.spawn(TaskSpec::user("second"), |cx| cx.spend(Ns(13), Mode::User));
    assert_eq!(sim.run(), Ok(Ns(25)));
    conserves(&sim);
    assert_eq!(sim.world(), &[(7, "kcompactd0"), (17, "kcompactd0")]);
    // 7 + 7 and 5 of the third.
    assert_eq!(sim.task_times(TaskId(0)).system, Ns(19));
}

#[test]
fn a_run_up_to_a_limit_and_on_is_the_same_as_one_run() {
    let whole = {
        let mut sim = sim(&[0]);
        spawn_two(&mut sim);
        sim.run().unwrap();
        sim.into_world()
    };
    let mut sim = sim(&[0]);
    spawn_two(&mut sim);
    for stop in 1..30 {
        assert_eq!(sim.run_until(Ns(stop * MS)), Ok(Ns(stop * MS)));
        conserves(&sim);
    }
    sim.run().unwrap();
    assert_eq!(sim.world(), &whole);
}

fn spawn_two(sim: &mut Sim<Log>) {
    for name in ["a", "b"] {
        sim.spawn(TaskSpec::user(name), move |cx| {
            for n in 0..40 {
                cx.spend(Ns(MS - 13 * n), Mode::User);
                say(cx, name);
            }
        });
    }
}

#[test]
fn waiting_for_a_disk_is_iowait_and_waiting_for_anything_else_is_idle() {
    let mut sim = sim(&[0, 0]);
    sim.spawn(TaskSpec::user("reader").on(Affinity::Cpu(CpuId(0))), |cx| {
        // From the head's place: 1 ms.
        let ticket = cx.submit(DeviceId(0), Io::read(0, 100_000, 0));
        cx.wait_io(ticket);
        cx.spend(Ns(MS), Mode::User);
        cx.sleep(Ns(2 * MS));
    });
    sim.spawn(TaskSpec::user("sleeper").on(Affinity::Cpu(CpuId(1))), |cx| cx.sleep(Ns(3 * MS)));
    assert_eq!(sim.run(), Ok(Ns(4 * MS)));
    let first = sim.cpu_times(CpuId(0));
    assert_eq!((first.iowait, first.user, first.idle), (Ns(MS), Ns(MS), Ns(2 * MS)));
    assert_eq!(sim.cpu_times(CpuId(1)).idle, Ns(4 * MS));
    let reader = sim.task_times(TaskId(0));
    assert_eq!((reader.iowait, reader.asleep), (Ns(MS), Ns(2 * MS)));
    conserves(&sim);
}

#[test]
fn a_cpu_that_runs_something_else_has_no_iowait() {
    let mut sim = sim(&[0]);
    sim.spawn(TaskSpec::user("reader"), |cx| {
        let ticket = cx.submit(DeviceId(0), Io::read(0, 500_000, 0));
        cx.wait_io(ticket);
    });
    sim.spawn(TaskSpec::user("busy"), |cx| cx.spend(Ns(3 * MS), Mode::User));
    assert_eq!(sim.run(), Ok(Ns(5 * MS)));
    let times = sim.cpu_times(CpuId(0));
    assert_eq!((times.user, times.iowait, times.idle), (Ns(3 * MS), Ns(2 * MS), Ns(0)));
}

#[test]
fn work_takes_longer_by_how_many_cpus_a_host_runs() {
    // 10 ms of work in steps, on each of so many CPUs.
    for (busy, percent) in [(1, 100), (2, 150), (3, 400), (4, 400)] {
        let mut spec = spec(&[0, 0, 0, 0]);
        spec.sched.host = Some(Host {
            work_percent: ByBusy::new(&[100, 150, 400]),
            flush_wait: ByBusy::new(&[Ns::ZERO]),
            access_wait: ByBusy::new(&[Ns::ZERO]),
        });
        let mut sim = Sim::new(spec, Log::new());
        for cpu in 0..busy {
            sim.spawn(TaskSpec::user("busy").on(Affinity::Cpu(CpuId(cpu))), |cx| {
                for _ in 0..1000 {
                    cx.spend(Ns(MS / 100), Mode::User);
                }
            });
        }
        // The first step of each may be of a moment when others have not begun.
        let end = sim.run().unwrap().0;
        let all = 10 * MS * percent / 100;
        assert!(end <= all && all - end < MS, "{busy}: {end}");
        let user = sim.cpu_times(CpuId(0)).user.0;
        assert!(user.abs_diff(all) < MS, "{busy}: {user}");
    }
}

#[test]
fn a_disk_that_is_emulated_is_late_by_how_many_cpus_have_work() {
    // 1 ms from the head's place. The reader sleeps until that is done, and leaves its CPU to nobody or to another task.
    for (busy, elsewhere, late) in
        [(0, 0, 0), (1, 0, 1), (0, 1, 1), (0, 2, 3), (1, 2, 4), (1, 3, 4)]
    {
        let mut spec = spec(&[0, 0, 0, 0]);
        let host = Host {
            work_percent: ByBusy::new(&[100]),
            flush_wait: ByBusy::new(&[Ns::ZERO]),
            access_wait: ByBusy::new(&[Ns(7 * MS), Ns(21 * MS), Ns(28 * MS)]),
        };
        spec.sched.host = Some(host);
        let mut sim = Sim::new(spec, Log::new());
        let here = (0..busy).map(|_| 0);
        for cpu in here.chain(1..=elsewhere) {
            sim.spawn(TaskSpec::user("busy").on(Affinity::Cpu(CpuId(cpu))), |cx| {
                cx.spend(Ns(100 * MS), Mode::User);
            });
        }
        sim.spawn(TaskSpec::user("reader").on(Affinity::Cpu(CpuId(0))), |cx| {
            let began = cx.now();
            let ticket = cx.submit(DeviceId(0), Io::read(0, 100_000, 0));
            cx.wait_io(ticket);
            let took = (cx.now() - began).0;
            cx.world().push((took, "read"));
        });
        sim.run().unwrap();
        let took = sim.world().iter().find(|(_, word)| *word == "read").unwrap().0;
        assert!(took >= (1 + 7 * late) * MS, "{busy} {elsewhere}: {took}");
        // A woken reader waits for its turn at most as long as a slice.
        assert!(took < (1 + 7 * late + 7) * MS, "{busy} {elsewhere}: {took}");
    }
}

#[test]
fn a_completion_changes_the_world_before_who_waited_for_it_goes_on() {
    let mut sim = sim(&[0]);
    let queue = sim.add_queue("page");
    sim.on_completion(move |log, waker, device, completion| {
        assert_eq!((device, completion.io.tag), (DeviceId(0), 77));
        log.push((waker.now().0, "completed"));
        waker.wake_all(queue);
    });
    sim.spawn(TaskSpec::user("writer"), move |cx| {
        cx.submit(DeviceId(0), Io::write(0, 100_000, 77));
        cx.wait_for_io_in(queue, None);
        say(cx, "woken");
    });
    sim.run().unwrap();
    assert_eq!(sim.world(), &[(MS, "completed"), (MS, "woken")]);
}

#[test]
fn a_full_queue_makes_submitters_wait_and_congestion_ends_for_who_waits() {
    let mut sim = sim(&[0, 0]);
    // 8 requests: congested from 8 - 1 + 1, no longer below 8 - 1 - 0 - 1.
    sim.spawn(TaskSpec::user("writer"), |cx| {
        for n in 0..20 {
            cx.submit(DeviceId(0), Io::write(n * 1_000_000_000, 4096, n));
        }
        assert!(cx.device(DeviceId(0)).is_congested(Class::Async));
        let before = cx.now();
        assert_eq!(cx.congestion_wait(Class::Async, Ns(1000 * MS)), Wakeup::Woken);
        assert!(!cx.device(DeviceId(0)).is_congested(Class::Async));
        assert_eq!(cx.device(DeviceId(0)).nr_allocated(Class::Async), 5);
        assert!(cx.now() > before);
        assert_eq!(cx.congestion_wait(Class::Sync, Ns(MS)), Wakeup::TimedOut);
    });
    sim.run().unwrap();
    let stats = sim.devices()[0].stats();
    assert_eq!(stats.allocated_max, [8, 0]);
    assert!(sim.task_times(TaskId(0)).iowait > Ns(50 * MS));
    conserves(&sim);
}

#[test]
fn what_is_submitted_together_merges_before_it_is_served() {
    let mut sim = sim(&[0]);
    sim.spawn(TaskSpec::user("reader"), |cx| {
        let pages: Vec<Io> = (0..8).map(|n| Io::read(n * 4096, 4096, n)).collect();
        for ticket in cx.submit_all(DeviceId(0), &pages) {
            cx.wait_io(ticket);
        }
    });
    // 32 KiB at 100 MB/s, in one request.
    assert_eq!(sim.run(), Ok(Ns(327_680)));
    let stats = sim.devices()[0].stats();
    assert_eq!((stats.requests, stats.merges), ([1, 0], [7, 0]));
}

#[test]
fn a_panic_is_carried_out_with_the_name_of_its_task() {
    let mut sim = sim(&[0, 0]);
    sim.spawn(TaskSpec::user("fine"), |cx| cx.spend(Ns(100), Mode::User));
    sim.spawn(TaskSpec::kernel_thread("kswapd0"), |cx| {
        cx.spend(Ns(40), Mode::System);
        let free: u32 = cx.world().len() as u32;
        assert!(free > 0, "no page is free");
    });
    let error = sim.run().unwrap_err();
    assert_eq!(error.to_string(), "task kswapd0 panicked at 40 ns: no page is free");
    assert_eq!(sim.run(), Err(error));
}

#[test]
fn a_task_that_sleeps_with_a_spinlock_is_told_so() {
    let mut sim = sim(&[0]);
    let lock = sim.add_lock("zone", LockKind::Spin);
    sim.spawn(TaskSpec::user("bad"), move |cx| {
        cx.lock(lock);
        cx.sleep(Ns(1));
    });
    let error = sim.run().unwrap_err();
    assert!(error.to_string().contains("bad sleeps while it holds a spinlock"), "{error}");
}

#[test]
fn tasks_that_wait_for_ever_are_named_with_what_they_wait_for() {
    let mut sim = sim(&[0, 0]);
    let queue = sim.add_queue("pfmemalloc");
    sim.spawn(TaskSpec::kernel_thread("kswapd0"), move |cx| cx.wait(queue));
    let a = sim.spawn(TaskSpec::user("a"), move |cx| {
        cx.spend(Ns(5), Mode::User);
        cx.wait(queue);
    });
    sim.spawn(TaskSpec::user("b"), move |cx| cx.join(a));
    let error = sim.run().unwrap_err();
    assert!(matches!(error, RunError::Deadlock { at: Ns(5), .. }));
    let text = error.to_string();
    assert!(text.ends_with("a for queue `pfmemalloc`, b for the end of a"), "{text}");
}

#[test]
fn tasks_that_wake_each_other_while_no_time_passes_are_named() {
    let mut sim = sim(&[0]);
    let (ping, pong) = (sim.add_queue("ping"), sim.add_queue("pong"));
    sim.spawn(TaskSpec::kernel_thread("kswapd0"), move |cx| {
        loop {
            cx.wake_one(ping);
            cx.wait(pong);
        }
    });
    sim.spawn(TaskSpec::user("a"), move |cx| {
        cx.spend(Ns(5), Mode::User);
        loop {
            cx.wake_one(pong);
            cx.wait(ping);
        }
    });
    let error = sim.run().unwrap_err();
    assert_eq!(error.to_string(), "at 5 ns time stands still: kswapd0, a go on for ever");
    assert_eq!(sim.run(), Err(error));
}

/// Counts how many of it are alive.
struct Counted(Rc<Cell<i32>>);

impl Counted {
    fn new(alive: &Rc<Cell<i32>>) -> Self {
        alive.set(alive.get() + 1);
        Self(alive.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[test]
fn dropping_a_simulation_frees_what_its_suspended_tasks_own() {
    let alive = Rc::new(Cell::new(0));
    for into_world in [false, true] {
        let mut sim = Sim::new(spec(&[0]), Counted::new(&alive));
        let queue = sim.add_queue("queue");
        for n in 0..5 {
            let captured = Counted::new(&alive);
            let alive = alive.clone();
            sim.spawn(TaskSpec::kernel_thread(format!("{n}")), move |cx| {
                let _captured = captured;
                let _on_the_stack = [Counted::new(&alive), Counted::new(&alive)];
                cx.wait(queue);
                unreachable!("nobody wakes it");
            });
        }
        let captured = Counted::new(&alive);
        sim.spawn(TaskSpec::user("user"), move |cx| {
            let _captured = captured;
            cx.spend(Ns(10), Mode::User);
        });
        sim.spawn(TaskSpec::user("never begun").on(Affinity::Cpu(CpuId(0))), |_| {});
        sim.run_until(Ns(5)).unwrap();
        assert!(alive.get() > 12);
        if into_world {
            let world = sim.into_world();
            assert_eq!(alive.get(), 1);
            drop(world);
        } else {
            drop(sim);
        }
        assert_eq!(alive.get(), 0);
    }
}
