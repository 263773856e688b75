//! Millions of random operations: every invariant holds, nothing is lost, and the same seed gives the
//! same answers.

use crate::scene;
use crate::scene::{Scene, guest_256, numa_96, policies, random_op, scaled_down, small_numa};
use highorder_mm::Machine;
use highorder_mm::policy::Policy;
use rand_pcg::Pcg64;

/// Takes `nr_ops` steps in phases of filling up and running empty, and validates every `every`.
#[track_caller]
fn run(name: &str, scene: &mut Scene, seed: u64, nr_ops: u64, every: u64) {
    let mut rng = Pcg64::new(u128::from(seed), 0x766f);
    let max_order = scene.fast.policy.freelist.max_order.0;
    for step in 0..nr_ops {
        let fill = [150, 100, 200, 128, 60][(step / 20_000 % 5) as usize];
        let op = random_op(&mut rng, fill, max_order);
        scene.step(op).expect("there is nobody to differ from");
        if step % every == 0 {
            scene.compare().expect("there is nobody to differ from");
            let sound = scene.fast.validate().and_then(|()| scene.check_conservation());
            sound.unwrap_or_else(|fault| panic!("{name}, seed {seed}, step {step}: {fault}"));
        }
    }
}

fn worlds(policy: &Policy) -> [(Machine, Policy, u64); 3] {
    [
        (small_numa(), scaled_down(policy.clone()), 800),
        (guest_256(), policy.clone(), 10_000),
        (numa_96(), policy.clone(), 5_000),
    ]
}

#[test]
fn ten_million_operations_break_no_invariant_and_lose_no_page() {
    let mut total = 0;
    for (name, policy) in policies() {
        for (world, (machine, policy, min_free_kbytes)) in worlds(&policy).into_iter().enumerate() {
            for batches in [None, Some((15, 60, 500))] {
                let mut scene = Scene::new(&machine, &policy, min_free_kbytes, false);
                if let Some((batch, high_min, high_max)) = batches {
                    scene = scene.with_batches(batch, high_min, high_max);
                }
                run(name, &mut scene, world as u64, 250_000, 2_500);
                total += 250_000;
                scene.free_everything();
                scene.fast.validate().unwrap_or_else(|fault| panic!("{name}: {fault}"));
                for zone in &scene.fast.zones {
                    assert_eq!(zone.nr_free_pages, zone.managed_pages, "{name}");
                }
            }
        }
    }
    println!("{total} operations on the allocator alone");
    assert!(total >= 10_000_000);
}

#[test]
fn the_same_seed_gives_the_same_answers_and_the_same_lists() {
    for (name, policy) in policies() {
        let twice: Vec<_> = (0..2)
            .map(|_| {
                let mut scene = Scene::new(&numa_96(), &policy, 5_000, false);
                run(name, &mut scene, 7, 60_000, 10_000);
                let lists: Vec<_> = scene
                    .fast
                    .zones
                    .iter()
                    .flat_map(|zone| {
                        scene::every_list(zone).map(|list| scene.fast.list_blocks(list))
                    })
                    .collect();
                let counts: Vec<_> = scene.fast.zones.iter().map(|z| format!("{z:?}")).collect();
                (scene.digest, scene.fast.take_work(), lists, counts)
            })
            .collect();
        assert_eq!(twice[0], twice[1], "{name}");
    }
}
