//! The allocator and the naive one answer every random sequence of operations alike.

use crate::scene::{Op, Scene, guest_256, numa_96, policies, random_op, scaled_down, small_numa};
use highorder_mm::Machine;
use highorder_mm::fallback::SearchMode;
use highorder_mm::gfp::AllocFlags;
use highorder_mm::policy::Policy;
use highorder_mm::types::{Migratetype, Order};
use highorder_mm::zone::ZoneId;
use proptest::prelude::*;
use rand_pcg::Pcg64;

/// Runs `nr_ops` random steps from `seed`, comparing all state every `every`.
#[track_caller]
fn run_beside_naive(name: &str, mut scene: Scene, seed: u64, nr_ops: u64, every: u64) -> u64 {
    let mut rng = Pcg64::new(u128::from(seed), 0x6d6d);
    let max_order = scene.fast.policy.freelist.max_order.0;
    for step in 0..nr_ops {
        // Phases of filling up and of running empty.
        let fill = [150, 110, 190, 128][(step / 1_500 % 4) as usize];
        let op = random_op(&mut rng, fill, max_order);
        let outcome = scene.step(op).and_then(|()| {
            if step % every == 0 || step + 1 == nr_ops { scene.compare() } else { Ok(()) }
        });
        if let Err(difference) = outcome {
            panic!("{name}, seed {seed}, step {step}, {op:?}: {difference}");
        }
    }
    scene.fast.validate().unwrap_or_else(|fault| panic!("{name}, seed {seed}: {fault}"));
    scene.check_conservation().unwrap_or_else(|fault| panic!("{name}, seed {seed}: {fault}"));
    scene.extfrag_seen
}

fn small(policy: &Policy, batches: Option<(u32, u32, u32)>) -> Scene {
    let scene = Scene::new(&small_numa(), &scaled_down(policy.clone()), 800, true);
    match batches {
        Some((batch, high_min, high_max)) => scene.with_batches(batch, high_min, high_max),
        None => scene,
    }
}

#[test]
fn on_pageblocks_of_sixteen_pages_every_kernels_rules_agree_with_the_naive_model() {
    let mut total = 0;
    for (name, policy) in policies() {
        let mut fallbacks = 0;
        for (seed, batches) in
            [None, Some((3, 12, 40)), Some((7, 28, 200)), Some((15, 60, 500)), Some((1, 4, 1_200))]
                .into_iter()
                .enumerate()
        {
            fallbacks += run_beside_naive(name, small(&policy, batches), seed as u64, 24_000, 64);
            total += 24_000;
        }
        println!("{name}: 120000 operations beside the naive model, {fallbacks} fallbacks");
        assert!(fallbacks > 100 || ["never", "plain"].contains(&name), "{name}: {fallbacks}");
    }
    println!("{total} operations beside the naive model (small)");
}

#[test]
fn on_true_pageblocks_every_kernels_rules_agree_with_the_naive_model() {
    let mut total = 0;
    let machines: [(Machine, u64); 2] = [(guest_256(), 10_000), (numa_96(), 5_000)];
    for (name, policy) in policies() {
        for (machine, min_free_kbytes) in &machines {
            let scene = Scene::new(machine, &policy, *min_free_kbytes, true);
            run_beside_naive(name, scene, 1, 5_000, 500);
            total += 5_000;
        }
    }
    println!("{total} operations beside the naive model (true sizes)");
}

fn any_op() -> impl Strategy<Value = Op> {
    let (order, cpu, zone) = (0u8..=5, 0u8..3, 0u8..4);
    prop_oneof![
        40 => (order, 0u8..10, cpu.clone(), 0u8..2, 0u8..8)
            .prop_map(|(order, gfp, cpu, node, kind)| Op::Alloc { order, gfp, cpu, node, kind }),
        30 => (any::<u32>(), cpu.clone()).prop_map(|(which, cpu)| Op::Free { which, cpu }),
        2 => (zone.clone(), cpu.clone()).prop_map(|(zone, cpu)| Op::Drain { zone, cpu }),
        1 => Just(Op::DrainAll),
        2 => (zone.clone(), cpu).prop_map(|(zone, cpu)| Op::Decay { zone, cpu }),
        4 => any::<u32>().prop_map(|which| Op::Isolate { which }),
        4 => any::<u32>().prop_map(|which| Op::Putback { which }),
        2 => (zone.clone(), 0u8..3, any::<bool>())
            .prop_map(|(zone, migratetype, force)| Op::Unreserve { zone, migratetype, force }),
        1 => (zone.clone(), any::<bool>()).prop_map(|(zone, active)| Op::Reclaim { zone, active }),
        1 => zone.prop_map(|zone| Op::EndBoost { zone }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// Short sequences, which shrink to the few steps that matter. They begin on a machine that a
    /// hundred seeded steps have mixed up, where the interesting states are near.
    #[test]
    fn short_sequences_leave_both_models_in_one_state(
        which in 0usize..9,
        seed in 0u64..1_000,
        nr_before in prop::sample::select(vec![0u32, 100, 1_500]),
        ops in prop::collection::vec(any_op(), 1..60),
    ) {
        let (name, policy) = policies().swap_remove(which);
        let mut scene = small(&policy, Some((3, 12, 40)));
        let mut rng = Pcg64::new(u128::from(seed), 0x6265);
        for _ in 0..nr_before {
            let op = random_op(&mut rng, 180, 5);
            prop_assert_eq!(scene.step(op), Ok(()), "{} before", name);
        }
        prop_assert_eq!(scene.compare(), Ok(()), "{} before", name);
        for op in ops {
            prop_assert_eq!(scene.step(op), Ok(()), "{} {:?}", name, op);
            prop_assert_eq!(scene.compare(), Ok(()), "{} {:?}", name, op);
        }
        prop_assert_eq!(scene.fast.validate(), Ok(()));
        prop_assert_eq!(scene.check_conservation(), Ok(()));
    }
}

#[test]
fn an_attempt_that_is_not_to_stay_leaves_no_trace() {
    for (name, policy) in policies() {
        let mut scene = small(&policy, Some((3, 12, 40)));
        let mut rng = Pcg64::new(7, 0x6174);
        let (mut nr_taken, mut nr_fallbacks) = (0, 0);
        for step in 0..4_000usize {
            assert_eq!(scene.step(random_op(&mut rng, 180, 5)), Ok(()), "{name}, step {step}");
            let zone = ZoneId((step % scene.fast.zones.len()) as u8);
            let (order, migratetype) =
                (Order(step as u8 % 4), Migratetype::from_index(step / 4 % 3));
            let (pfn, extfrag) = scene.fast.attempt(zone, |memory| {
                let (flags, mut mode) = (AllocFlags::KSWAPD, SearchMode::Normal);
                let pfn = memory.rmqueue_buddy_block(zone, order, migratetype, flags, &mut mode);
                ((pfn, memory.take_extfrag()), false)
            });
            nr_taken += u64::from(pfn.is_some());
            nr_fallbacks += extfrag.len();
            if step % 8 == 0 {
                assert_eq!(scene.compare(), Ok(()), "{name}, step {step}");
            }
        }
        assert!(nr_taken > 100, "{name}: {nr_taken} blocks taken");
        assert!(nr_fallbacks > 10 || ["never", "plain"].contains(&name), "{name}: {nr_fallbacks}");
        assert_eq!(scene.fast.validate(), Ok(()), "{name}");
    }
}
