//! How often two samples of one distribution come out as different: as often as stated.

use highorder_record::Sorted;
use highorder_record::noise::{ALPHA, Verdict, bootstrap_difference, compare, mann_whitney};
use rand_core::Rng;
use rand_pcg::Pcg64;

const DRAWS: u32 = 2000;

type Distribution = fn(&mut Pcg64) -> f64;

/// A number above 0 and at most 1.
fn unit(rng: &mut Pcg64) -> f64 {
    ((rng.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

fn normal(rng: &mut Pcg64) -> f64 {
    // Box and Muller.
    100.0 + (-2.0 * unit(rng).ln()).sqrt() * (std::f64::consts::TAU * unit(rng)).cos()
}

/// Most are short, a few are thousands of times longer: latencies with stalls.
fn stalls(rng: &mut Pcg64) -> f64 {
    if rng.next_u64().is_multiple_of(50) { 5000.0 * unit(rng) } else { 7.0 + unit(rng) }
}

const DISTRIBUTIONS: [(&str, Distribution); 5] = [
    ("uniform", unit),
    ("normal", normal),
    ("exponential", |rng| -unit(rng).ln()),
    ("stalls", stalls),
    ("few values", |rng| (rng.next_u64() % 5) as f64),
];

fn sample(rng: &mut Pcg64, len: usize, of: Distribution) -> Sorted {
    (0..len).map(|_| of(rng)).collect()
}

/// The share of draws for which a comparison of `n` and `m` samples of one distribution says yes.
fn share(n: usize, m: usize, of: Distribution, says: impl Fn(&Sorted, &Sorted) -> bool) -> f64 {
    let mut rng = Pcg64::new(2024, (n * 1000 + m) as u128);
    let yes = (0..DRAWS).filter(|_| {
        let (base, new) = (sample(&mut rng, n, of), sample(&mut rng, m, of));
        says(&base, &new)
    });
    yes.count() as f64 / f64::from(DRAWS)
}

/// Three standard deviations of a share of 5 % in 2000 draws: 3 sqrt(0.05 * 0.95 / 2000).
const TOLERANCE: f64 = 0.0146;

#[test]
fn two_samples_of_one_distribution_differ_no_more_often_than_stated() {
    for (name, of) in DISTRIBUTIONS {
        for (n, m) in [(4, 4), (5, 7), (8, 8), (15, 15), (20, 20), (21, 21), (60, 40), (200, 200)] {
            let share = share(n, m, of, |base, new| mann_whitney(base, new).unwrap().p <= ALPHA);
            assert!(share <= ALPHA + TOLERANCE, "{name}, {n} beside {m}: {share}");
            // A distribution without ties uses up what is stated, once ranks are fine enough.
            if n >= 15 && name != "few values" {
                assert!(share >= ALPHA - TOLERANCE, "{name}, {n} beside {m}: {share}");
            }
        }
    }
}

#[test]
fn the_verdict_is_that_of_the_rank_test() {
    let differs =
        |base: &Sorted, new: &Sorted| compare(base, new, 3).verdict == Verdict::Difference;
    let share = share(15, 15, normal, differs);
    assert!((share - ALPHA).abs() <= TOLERANCE, "{share}");
}

#[test]
fn the_interval_holds_the_true_difference_as_often_as_stated() {
    let misses = |base: &Sorted, new: &Sorted| {
        let interval = bootstrap_difference(base, new, ALPHA, 11).unwrap();
        interval.low > 0.0 || interval.high < 0.0
    };
    for (name, of) in [
        ("uniform", unit as Distribution),
        ("normal", normal),
        ("exponential", |rng| -unit(rng).ln()),
    ] {
        for n in [7, 15] {
            let share = share(n, n, of, misses);
            assert!((share - ALPHA).abs() <= 0.025, "{name}, {n}: {share}");
        }
    }
}

#[test]
fn a_shift_as_wide_as_the_spread_is_seen() {
    let mut rng = Pcg64::new(9, 9);
    let seen = (0..200).filter(|_| {
        let base = sample(&mut rng, 20, normal);
        let new: Sorted = sample(&mut rng, 20, normal).as_slice().iter().map(|x| x + 1.5).collect();
        compare(&base, &new, 1).verdict == Verdict::Difference
    });
    assert!(seen.count() > 190);
}
