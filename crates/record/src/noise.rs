//! Whether a difference between two sets of samples is more than noise.
//!
//! Two answers stand side by side. The *verdict* comes from the rank test of Mann and Whitney (1947,
//! doi:10.1214/aoms/1177730491), exact for small samples and ties included: it assumes nothing of the
//! distribution, and two samples of one distribution come out as "different" no more often than
//! [`ALPHA`] says. The *interval* says how large the difference of the means may be: a studentised
//! bootstrap (Efron and Tibshirani 1993, chapter 12.5), which keeps its level with a handful of
//! samples, where the plain percentile bootstrap is too narrow.
//!
//! A table of many rows asks many questions: with [`ALPHA`] = 0.05, one row in twenty of two equal
//! kernels is expected to come out as a difference.

use rand_core::Rng;
use rand_pcg::Pcg64;

use crate::stats::Sorted;

/// How often two samples of one distribution may come out as different.
pub const ALPHA: f64 = 0.05;

/// Up to so many samples in both sets together the rank test is exact. C(40, 20) is about 1.4e11, so
/// every count is exact in a u64 and in an f64, and counting takes a fraction of a millisecond.
const EXACT_SAMPLES_MAX: usize = 40;

/// Resamples of a bootstrap, where samples are few.
const RESAMPLES_MAX: usize = 2000;

/// Resamples of a bootstrap, where samples are many.
const RESAMPLES_MIN: usize = 400;

/// Draws that a bootstrap may take before it makes do with fewer resamples.
const DRAWS_MAX: usize = 20_000_000;

/// What two sets of samples say about each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// Whether the difference is more than noise.
    pub verdict: Verdict,
    /// The rank test's two-sided p; none if a set is empty.
    pub p: Option<f64>,
    /// Where the difference of the means (second minus first) lies, with confidence 1 - [`ALPHA`];
    /// none if a set has fewer than two samples.
    pub difference: Option<Interval>,
}

/// Whether a difference is more than noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is: noise alone would show one so large less often than [`ALPHA`].
    Difference,
    /// It may well be noise.
    NoDifference,
    /// So few samples cannot tell, however far apart they lie: at least 4 beside 4 are needed (or 3
    /// beside 5, 2 beside 8).
    TooFewSamples,
}

/// A range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// The outcome of a rank test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MannWhitney {
    /// Pairs in which the second set's sample is the larger one; a tie counts half.
    pub u: f64,
    /// How often ranks dealt at random lie at least as far from even, in either direction.
    pub p: f64,
    /// Whether `p` was counted out rather than approximated.
    pub is_exact: bool,
}

/// Compares two sets of samples. `seed` chooses the bootstrap's draws.
#[must_use]
pub fn compare(base: &Sorted, new: &Sorted, seed: u64) -> Noise {
    let (verdict, p) = judge(base, new);
    Noise { verdict, p, difference: bootstrap_difference(base, new, ALPHA, seed) }
}

/// What the rank test alone says of two sets of samples: the verdict, and its p.
#[must_use]
pub fn judge(base: &Sorted, new: &Sorted) -> (Verdict, Option<f64>) {
    let test = mann_whitney(base, new);
    let verdict = match test {
        _ if smallest_p(base.len(), new.len()) > ALPHA => Verdict::TooFewSamples,
        Some(test) if test.p <= ALPHA => Verdict::Difference,
        _ => Verdict::NoDifference,
    };
    (verdict, test.map(|test| test.p))
}

/// So many samples in each set are enough for the rank test to tell a difference at all.
#[must_use]
pub fn samples_needed() -> usize {
    let mut nr = 1;
    while smallest_p(nr, nr) > ALPHA {
        nr += 1;
    }
    nr
}

/// Tests whether two sets of samples come from one distribution; `None` if one is empty.
///
/// Exact, given the ties, up to 40 samples in all; beyond, the normal approximation with corrections
/// for ties and continuity.
#[must_use]
pub fn mann_whitney(base: &Sorted, new: &Sorted) -> Option<MannWhitney> {
    if base.is_empty() || new.is_empty() {
        return None;
    }
    let (n, m) = (base.len(), new.len());
    let ranks = Ranks::of(base, new);
    // Twice U, twice its mean: whole numbers in spite of ties.
    let u2 = ranks.new_sum - m * (m + 1);
    let deviation = u2.abs_diff(n * m);
    let is_exact = n + m <= EXACT_SAMPLES_MAX;
    let p = match is_exact {
        true => ranks.exact_p(m, deviation),
        false => ranks.normal_p(n, m, deviation),
    };
    Some(MannWhitney { u: u2 as f64 / 2.0, p, is_exact })
}

/// Returns the smallest p that a rank test of so many samples can reach: both sets apart, without
/// ties. `2 / C(n+m, m)`.
fn smallest_p(n: usize, m: usize) -> f64 {
    let arrangements: f64 = (1..=m).map(|i| (n + i) as f64 / i as f64).product();
    (2.0 / arrangements).min(1.0)
}

/// Twice the midranks of two sets put together.
struct Ranks {
    /// Of all samples, ascending.
    doubled: Vec<usize>,
    /// Summed over the second set.
    new_sum: usize,
    /// How many samples share each value.
    ties: Vec<usize>,
}

impl Ranks {
    fn of(base: &Sorted, new: &Sorted) -> Self {
        let mut all: Vec<(f64, bool)> = base.as_slice().iter().map(|&x| (x, false)).collect();
        all.extend(new.as_slice().iter().map(|&x| (x, true)));
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut ranks =
            Self { doubled: Vec::with_capacity(all.len()), new_sum: 0, ties: Vec::new() };
        // 0.0 and -0.0 are one value here, so runs are told by ==.
        for run in all.chunk_by(|a, b| a.0 == b.0) {
            let first = ranks.doubled.len() + 1;
            let last = ranks.doubled.len() + run.len();
            let midrank = first + last;
            ranks.doubled.extend(run.iter().map(|_| midrank));
            ranks.new_sum += midrank * run.iter().filter(|(_, is_new)| *is_new).count();
            ranks.ties.push(run.len());
        }
        ranks
    }

    /// Counts all ways to choose `m` of the ranks, and those whose sum lies `deviation` or more from
    /// the mean.
    fn exact_p(&self, m: usize, deviation: usize) -> f64 {
        let total = self.doubled.len();
        let sum_max: usize = self.doubled.iter().rev().take(m).sum();
        // ways[k][s]: choices of k ranks with sum s.
        let mut ways = vec![vec![0_u64; sum_max + 1]; m + 1];
        ways[0][0] = 1;
        // No choice of the ranks seen so far has more members, or a larger sum.
        let (mut seen, mut reach) = (0, 0);
        for &rank in &self.doubled {
            seen += 1;
            reach = sum_max.min(reach + rank);
            for k in (1..=m.min(seen)).rev() {
                let (fewer, chosen) = ways.split_at_mut(k);
                for sum in rank..=reach {
                    chosen[0][sum] += fewer[k - 1][sum - rank];
                }
            }
        }
        // Twice the mean of the doubled ranks is 2 (total + 1); of m of them it is m (total + 1).
        let mean = m * (total + 1);
        let (mut far, mut all) = (0_u64, 0_u64);
        for (sum, &count) in ways[m].iter().enumerate() {
            all += count;
            if sum.abs_diff(mean) >= deviation {
                far += count;
            }
        }
        far as f64 / all as f64
    }

    fn normal_p(&self, n: usize, m: usize, deviation: usize) -> f64 {
        let (n, m, total) = (n as f64, m as f64, (n + m) as f64);
        let cubes: f64 = self.ties.iter().map(|&t| (t as f64).powi(3) - t as f64).sum();
        let variance = n * m / 12.0 * (total + 1.0 - cubes / (total * (total - 1.0)));
        if variance <= 0.0 {
            return 1.0;
        }
        // Half a step of U towards the mean; the deviation is doubled.
        let z = ((deviation as f64 / 2.0) - 0.5).max(0.0) / variance.sqrt();
        libm::erfc(z / std::f64::consts::SQRT_2)
    }
}

/// Returns where the difference of the means, `new` minus `base`, lies with confidence `1 - alpha`;
/// `None` if a set has fewer than two samples.
///
/// A studentised bootstrap: each resample's difference is measured in its own standard errors. Where
/// neither set varies, the interval is a point.
#[must_use]
pub fn bootstrap_difference(
    base: &Sorted,
    new: &Sorted,
    alpha: f64,
    seed: u64,
) -> Option<Interval> {
    if base.len() < 2 || new.len() < 2 {
        return None;
    }
    let of = |samples: &Sorted| Moments::of(samples.as_slice().iter().copied());
    let (base_moments, new_moments) = (of(base), of(new));
    let difference = new_moments.mean - base_moments.mean;
    let error = base_moments.error(new_moments);
    if error == 0.0 {
        return Some(Interval { low: difference, high: difference });
    }
    let resamples = (DRAWS_MAX / (base.len() + new.len())).clamp(RESAMPLES_MIN, RESAMPLES_MAX);
    let mut rng = Pcg64::new(seed.into(), 0x6e_6f69_7365);
    let mut ts = Vec::with_capacity(resamples);
    // A resample of one value over and over has no standard error and says nothing: another is drawn.
    // With few distinct values that can go on, so it ends.
    for _ in 0..4 * resamples {
        if ts.len() == resamples {
            break;
        }
        let base_drawn = Moments::drawn(base.as_slice(), &mut rng);
        let new_drawn = Moments::drawn(new.as_slice(), &mut rng);
        let drawn_error = base_drawn.error(new_drawn);
        if drawn_error > 0.0 {
            ts.push((new_drawn.mean - base_drawn.mean - difference) / drawn_error);
        }
    }
    let ts = Sorted::new(ts);
    let low = difference - ts.nearest_rank(1.0 - alpha / 2.0)? * error;
    let high = difference - ts.nearest_rank(alpha / 2.0)? * error;
    Some(Interval { low: low.min(difference), high: high.max(difference) })
}

/// A mean and the square of its standard error.
#[derive(Clone, Copy)]
struct Moments {
    mean: f64,
    error_squared: f64,
}

impl Moments {
    fn of(samples: impl Iterator<Item = f64>) -> Self {
        // Welford's update: one pass, no cancellation.
        let (mut n, mut mean, mut squares) = (0.0, 0.0, 0.0);
        for x in samples {
            n += 1.0;
            let off = x - mean;
            mean += off / n;
            squares += off * (x - mean);
        }
        Self { mean, error_squared: squares / (n - 1.0) / n }
    }

    /// Of as many samples, drawn with replacement.
    fn drawn(samples: &[f64], rng: &mut Pcg64) -> Self {
        let len = samples.len() as u128;
        // The upper half of a product of 64 by 64 bits: even to one part in 2^64 / len.
        let draw = |_| samples[((u128::from(rng.next_u64()) * len) >> 64) as usize];
        Self::of((0..samples.len()).map(draw))
    }

    fn error(self, other: Self) -> f64 {
        (self.error_squared + other.error_squared).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(samples: &[f64]) -> Sorted {
        samples.iter().copied().collect()
    }

    #[test]
    fn a_rank_test_worked_by_hand() {
        // 20 ways to choose 3 ranks of 6; apart in either direction: 2 of them.
        let test = mann_whitney(&sorted(&[1.0, 2.0, 3.0]), &sorted(&[4.0, 5.0, 6.0])).unwrap();
        assert_eq!((test.u, test.is_exact), (9.0, true));
        assert!((test.p - 0.1).abs() < 1e-12);
        // U = 1 + 2 + 3 = 6 of 9 pairs; 14 of 20 choices lie 1.5 or more from 4.5.
        let test = mann_whitney(&sorted(&[1.0, 3.0, 5.0]), &sorted(&[2.0, 4.0, 6.0])).unwrap();
        assert_eq!(test.u, 6.0);
        assert!((test.p - 0.7).abs() < 1e-12, "{test:?}");
        let all_equal = mann_whitney(&sorted(&[2.0; 5]), &sorted(&[2.0; 4])).unwrap();
        assert_eq!((all_equal.u, all_equal.p), (10.0, 1.0));
    }

    #[test]
    fn the_counted_p_is_what_listing_every_choice_gives() {
        let mut rng = Pcg64::new(5, 1);
        for case in 0..200 {
            let (n, m) = (1 + case % 5, 1 + (case / 5) % 5);
            // Few values, so many ties.
            let mut draw = |len| (0..len).map(|_| (rng.next_u64() % 6) as f64).collect::<Sorted>();
            let (base, new) = (draw(n), draw(m));
            let test = mann_whitney(&base, &new).unwrap();
            let u = |is_new: &dyn Fn(usize) -> bool| {
                let all: Vec<f64> = base.as_slice().iter().chain(new.as_slice()).copied().collect();
                let mut u = 0.0;
                for (i, x) in all.iter().enumerate().filter(|(i, _)| is_new(*i)) {
                    for (_, y) in all.iter().enumerate().filter(|(j, _)| !is_new(*j)) {
                        u += if x > y {
                            1.0
                        } else if x == y {
                            0.5
                        } else {
                            0.0
                        };
                    }
                    let _ = i;
                }
                u
            };
            assert_eq!(test.u, u(&|i| i >= n));
            let mean = (n * m) as f64 / 2.0;
            let (mut far, mut all) = (0, 0);
            for choice in (0_u32..1 << (n + m)).filter(|choice| choice.count_ones() as usize == m) {
                all += 1;
                let drawn = u(&|i| choice >> i & 1 == 1);
                far += u32::from((drawn - mean).abs() >= (test.u - mean).abs());
            }
            let p = f64::from(far) / f64::from(all);
            assert!((test.p - p).abs() < 1e-12, "{base:?} {new:?}: {} and {p}", test.p);
        }
    }

    #[test]
    fn the_approximation_joins_the_exact_test() {
        let mut rng = Pcg64::new(6, 1);
        let mut draw = |len| (0..len).map(|_| (rng.next_u64() % 40) as f64).collect::<Sorted>();
        for _ in 0..50 {
            let (base, new) = (draw(20), draw(20));
            let ranks = Ranks::of(&base, &new);
            let deviation = (ranks.new_sum - 20 * 21).abs_diff(20 * 20);
            let (exact, normal) = (ranks.exact_p(20, deviation), ranks.normal_p(20, 20, deviation));
            assert!((exact - normal).abs() < 0.008, "{exact} and {normal}");
        }
    }

    #[test]
    fn four_samples_in_each_set_are_needed() {
        assert_eq!(samples_needed(), 4, "2 / C(8, 4) = 0.029, and 2 / C(6, 3) = 0.1");
    }

    #[test]
    fn so_few_samples_that_no_outcome_could_differ_say_so() {
        let verdict = |n: usize, m: usize| {
            let base: Sorted = (0..n).map(|i| i as f64).collect();
            let new: Sorted = (0..m).map(|i| 1000.0 + i as f64).collect();
            compare(&base, &new, 1).verdict
        };
        for (n, m) in [(1, 1), (3, 3), (3, 4), (2, 7), (1, 20), (0, 9)] {
            assert_eq!(verdict(n, m), Verdict::TooFewSamples, "{n} beside {m}");
        }
        for (n, m) in [(4, 4), (3, 5), (2, 8), (30, 30)] {
            assert_eq!(verdict(n, m), Verdict::Difference, "{n} beside {m}");
        }
    }

    #[test]
    fn samples_that_never_vary_give_a_point() {
        let noise = compare(&sorted(&[3.0; 6]), &sorted(&[4.0; 6]), 1);
        assert_eq!(noise.difference, Some(Interval { low: 1.0, high: 1.0 }));
        assert_eq!(noise.verdict, Verdict::Difference);
        assert_eq!(
            compare(&sorted(&[3.0; 6]), &sorted(&[3.0; 6]), 1).verdict,
            Verdict::NoDifference
        );
    }

    #[test]
    fn equal_seeds_give_equal_intervals() {
        let (base, new) = (sorted(&[1.0, 5.0, 2.0, 8.0]), sorted(&[3.0, 9.0, 4.0, 9.5]));
        assert_eq!(compare(&base, &new, 7), compare(&base, &new, 7));
        let interval = compare(&base, &new, 7).difference.unwrap();
        assert!(interval.low < 2.375 && 2.375 < interval.high, "{interval:?}");
    }
}
