//! Tasks use more memory than there is: nothing that was written is lost, and every invariant holds.

use crate::scene::{all_free, linux_4_4, linux_4_20, linux_6_1, linux_6_12, numa_96, single_zone};
use crate::user::User;
use highorder_mm::CpuId;
use highorder_mm::lru::LruvecId;
use highorder_mm::page_table::Vpn;
use highorder_mm::policy::Policy;
use highorder_mm::reclaim::Reclaimer;
use highorder_mm::types::{Access, MemPolicy, NodeId};
use highorder_mm::vma::HugeAdvice;
use highorder_mm::vmstat::Vm;
use rand_core::Rng;
use rand_pcg::Pcg64;

fn policies() -> [(&'static str, Policy); 4] {
    [("6.12", linux_6_12()), ("6.1", linux_6_1()), ("4.20", linux_4_20()), ("4.4", linux_4_4())]
}

fn below(rng: &mut Pcg64, n: u32) -> u32 {
    ((u64::from(rng.next_u32()) * u64::from(n)) >> 32) as u32
}

/// Random uses of memory from `seed`.
fn run(name: &str, mut user: User, seed: u64, ops: u32, swaps: &[(u32, i32, bool)]) -> User {
    let mut rng = Pcg64::new(u128::from(seed), 0x7573);
    let nr_cpus = user.memory.machine.cpu_nodes.len() as u32;
    let nodes = user.memory.machine.nr_nodes() as u32;
    for &(slots, priority, rotational) in swaps {
        user.memory.swapon(slots, priority, rotational);
    }
    for step in 0..ops {
        let cpu = below(&mut rng, nr_cpus) as usize;
        let op = below(&mut rng, 100);
        if user.areas.is_empty() || op < 4 && user.areas.len() < 12 {
            let pages = 1 + below(&mut rng, 3_000);
            let policy = match below(&mut rng, 4) {
                0 => MemPolicy::Preferred(NodeId(below(&mut rng, nodes))),
                1 => MemPolicy::Interleave((1 << nodes) - 1),
                _ => MemPolicy::Default,
            };
            let task = below(&mut rng, 3);
            let start = user.mmap(task, pages, policy);
            if below(&mut rng, 4) == 0 {
                user.memory.spaces.change(start..Vpn(start.0 + pages), |vma| {
                    vma.huge = HugeAdvice::NoHuge;
                });
            }
            continue;
        }
        let which = below(&mut rng, user.areas.len() as u32) as usize;
        let (start, pages) = user.areas[which];
        let from = below(&mut rng, pages);
        let some = 1 + below(&mut rng, (pages - from).min(700));
        let access = if below(&mut rng, 3) == 0 { Access::Read } else { Access::Write };
        let at = Vpn(start.0 + from);
        match op {
            4..50 => {
                user.touch_range(at, some, access, CpuId(cpu as u32));
            }
            50..70 => {
                for _ in 0..20 {
                    let at = Vpn(start.0 + below(&mut rng, pages));
                    user.touch(at, access, CpuId(cpu as u32));
                }
            }
            70..80 => {
                let lruvec = LruvecId(below(&mut rng, user.memory.lru.lruvecs.len() as u32) as u8);
                let priority = below(&mut rng, 13) as u8;
                let who = if op.is_multiple_of(2) { Reclaimer::Kswapd } else { Reclaimer::Direct };
                user.reclaim(lruvec, priority, who, CpuId(cpu as u32));
            }
            80..88 => user.complete_writes(below(&mut rng, 40) as usize),
            88..92 => user.dontneed(at, some, CpuId(cpu as u32)),
            92..93 => user.memory.mlock(at..Vpn(at.0 + some.min(50)), true),
            93..95 => user.memory.mlock(start..Vpn(start.0 + pages), false),
            95..96 => user.memory.lru_add_drain_all(),
            96..97 => {
                user.memory.split_deferred(CpuId(cpu as u32));
            }
            _ => user.munmap(which, CpuId(cpu as u32)),
        }
        if step % 50 == 0 || step + 1 == ops {
            user.audit().unwrap_or_else(|e| panic!("{name}, seed {seed}, step {step}: {e}"));
        }
    }
    user
}

/// Memory of a machine with its watermarks set.
fn with_marks(machine: &highorder_mm::Machine, policy: &Policy) -> User {
    let mut memory = all_free(machine, policy);
    memory.setup_watermarks(Some(800), false);
    memory.update_pcp_limits();
    User::new(memory)
}

#[test]
fn random_uses_of_too_little_memory_lose_nothing_that_was_written() {
    for (name, policy) in policies() {
        for seed in 0..6 {
            let mut user = with_marks(&single_zone(4_096), &policy);
            user.huge = seed % 2 == 1;
            user.sync_writes = seed % 3 == 0;
            let user = run(name, user, seed, 1_500, &[(12_288, 0, seed % 4 == 0)]);
            let vm = |event| user.memory.vm.get(event);
            println!(
                "{name} {seed}: {} faults, {} major, out {}, in {}, oom {}, huge {}",
                vm(Vm::PgFault),
                vm(Vm::PgMajFault),
                vm(Vm::PswpOut),
                vm(Vm::PswpIn),
                user.oom,
                vm(Vm::ThpFaultAlloc),
            );
            assert!(vm(Vm::PswpOut) > 1_000 && vm(Vm::PgMajFault) > 100, "{name} {seed}");
        }
    }
}

#[test]
fn two_nodes_and_several_areas_lose_nothing_either() {
    for (name, policy) in policies() {
        for seed in 10..12 {
            let mut user = with_marks(&numa_96(), &policy);
            user.huge = true;
            run(name, user, seed, 1_200, &[(3_000, 1, false), (2_048, 5, true), (4_096, 5, false)]);
        }
    }
}
