//! What became of claims on many machines, and which unknown decides it.

use super::claims::Verdict;
use std::fmt;

/// A claim is robust if it holds on so many tenths of the machines that it was judged on.
const ROBUST_TENTHS: usize = 9;
/// Of fewer machines on one side nobody can say what they have in common. Of sixteen machines, three lie at the same end
/// of one of ten unknowns by chance in one of 28 cases; two do in one of six.
const SIDE_MIN: usize = 3;
/// The least share of machines that a decision has to be right on, in tenths.
const RIGHT_TENTHS: usize = 9;

/// Where a claim, or the direction of a row, holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// On at least nine tenths of the machines.
    Robust,
    /// On some of them.
    Possible,
    /// On none.
    Failed,
    /// It was judged on none.
    NotRun,
    /// It is in words.
    Prose,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Robust => "robust",
            Self::Possible => "possible",
            Self::Failed => "failed",
            Self::NotRun => "not run",
            Self::Prose => "prose",
        })
    }
}

/// On how many machines it holds, and on how many it was judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Where it holds.
    pub held: usize,
    /// Where it was judged.
    pub judged: usize,
}

impl Tally {
    /// Counts what is known of each machine.
    pub fn of(held: impl IntoIterator<Item = Option<bool>>) -> Self {
        let mut tally = Self::default();
        for held in held.into_iter().flatten() {
            tally.held += usize::from(held);
            tally.judged += 1;
        }
        tally
    }

    /// Where that puts it.
    #[must_use]
    pub const fn standing(self) -> Standing {
        match self {
            Self { judged: 0, .. } => Standing::NotRun,
            Self { held: 0, .. } => Standing::Failed,
            Self { held, judged } if 10 * held >= ROBUST_TENTHS * judged => Standing::Robust,
            Self { .. } => Standing::Possible,
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { held, judged } = self;
        match (*held, *judged) {
            (_, 0) => f.pad("-"),
            (0, judged) => f.pad(&format!("none of {judged}")),
            (held, judged) if held == judged => f.pad(&format!("all {judged}")),
            (held, judged) => f.pad(&format!("{held} of {judged}")),
        }
    }
}

impl Verdict {
    /// Whether it holds, if it was judged.
    #[must_use]
    pub const fn holds(self) -> Option<bool> {
        match self {
            Self::Held => Some(true),
            Self::Failed => Some(false),
            Self::NotRun | Self::Prose => None,
        }
    }
}

/// One side of a threshold of an unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Side {
    /// The number of the unknown.
    pub unknown: usize,
    /// Half-way between the two machines that it lies between.
    pub threshold: f64,
    /// Whether what is above it is meant; else what is below.
    pub is_above: bool,
}

impl Side {
    fn has(&self, machine: &[Option<f64>]) -> bool {
        // What a machine does not have lies on no side.
        machine[self.unknown].is_some_and(|value| (value > self.threshold) == self.is_above)
    }
}

/// What decides whether a claim holds: it does where all of the sides are meant, as far as the machines tell.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// One side, or two.
    pub sides: Vec<Side>,
    /// On how many machines it says what became of the claim.
    pub right: usize,
    /// On how many the claim was judged.
    pub judged: usize,
}

/// What decides: one unknown whose threshold is right on nine tenths of the machines, or else two whose thresholds
/// together are right on all, since among so many pairs some are right on most by chance. Nothing if there is neither:
/// then it is more than two unknowns, or none of those that are known of.
///
/// `values` has every unknown of every machine, `held` whether the claim holds there. Of equally good thresholds it is
/// the one of the first unknown and of the lowest value.
#[must_use]
pub fn decision(values: &[Vec<Option<f64>>], held: &[Option<bool>]) -> Option<Decision> {
    let judged: Vec<(&[Option<f64>], bool)> = values
        .iter()
        .zip(held)
        .filter_map(|(values, held)| Some((values.as_slice(), (*held)?)))
        .collect();
    let nr_held = judged.iter().filter(|(_, held)| *held).count();
    if nr_held < SIDE_MIN || judged.len() - nr_held < SIDE_MIN {
        return None;
    }
    let right = |sides: &[Side]| {
        let is_right = |(values, held): &&(&[Option<f64>], bool)| {
            sides.iter().all(|side| side.has(values)) == *held
        };
        judged.iter().filter(is_right).count()
    };
    let sides = sides(&judged);
    let best = |all: &mut dyn Iterator<Item = Vec<Side>>| {
        let mut best: Option<Decision> = None;
        for sides in all {
            let right = right(&sides);
            if best.as_ref().is_none_or(|best| right > best.right) {
                best = Some(Decision { sides, right, judged: judged.len() });
            }
        }
        best
    };
    let alone = best(&mut sides.iter().map(|side| vec![*side]));
    alone.filter(|best| 10 * best.right >= RIGHT_TENTHS * best.judged).or_else(|| {
        let pairs = sides.iter().enumerate().flat_map(|(number, first)| {
            let others = sides[number + 1..].iter();
            others
                .filter(|second| second.unknown != first.unknown)
                .map(|second| vec![*first, *second])
        });
        best(&mut pairs.collect::<Vec<_>>().into_iter()).filter(|best| best.right == best.judged)
    })
}

/// Both sides of every threshold between two values that some machines have.
fn sides(judged: &[(&[Option<f64>], bool)]) -> Vec<Side> {
    let nr_unknowns = judged.first().map_or(0, |(values, _)| values.len());
    let mut sides = Vec::new();
    for unknown in 0..nr_unknowns {
        let mut values: Vec<f64> = judged.iter().filter_map(|(all, _)| all[unknown]).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        for pair in values.windows(2) {
            let threshold = f64::midpoint(pair[0], pair[1]);
            sides.extend([false, true].map(|is_above| Side { unknown, threshold, is_above }));
        }
    }
    sides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_stands_by_the_machines_that_it_was_judged_on() {
        let of = |held: usize, judged: usize| Tally { held, judged };
        for (tally, standing, text) in [
            (of(0, 0), Standing::NotRun, "-"),
            (of(0, 16), Standing::Failed, "none of 16"),
            (of(1, 16), Standing::Possible, "1 of 16"),
            (of(14, 16), Standing::Possible, "14 of 16"),
            (of(15, 16), Standing::Robust, "15 of 16"),
            (of(16, 16), Standing::Robust, "all 16"),
            (of(9, 10), Standing::Robust, "9 of 10"),
        ] {
            assert_eq!(tally.standing(), standing, "{tally:?}");
            assert_eq!(tally.to_string(), text);
        }
        assert_eq!(Tally::of([Some(true), None, Some(false)]), of(1, 2));
    }

    fn machines(of: impl Fn(usize) -> [f64; 3]) -> Vec<Vec<Option<f64>>> {
        (0..16).map(|n| of(n).map(Some).to_vec()).collect()
    }

    #[test]
    fn one_threshold_is_found_with_its_side() {
        // The second unknown decides; the others have nothing to do with it.
        let values = machines(|n| [(n * 7 % 16) as f64, n as f64, (n * 5 % 16) as f64]);
        let held: Vec<_> = (0..16).map(|n| Some(n < 5)).collect();
        let found = decision(&values, &held).unwrap();
        assert_eq!((found.right, found.judged), (16, 16));
        assert_eq!(found.sides, [Side { unknown: 1, threshold: 4.5, is_above: false }]);
    }

    #[test]
    fn two_thresholds_are_found_where_one_is_not_enough() {
        let values = machines(|n| [(n % 4) as f64, (n / 4) as f64, (n * 5 % 16) as f64]);
        let held: Vec<_> = (0..16).map(|n| Some(n % 4 > 1 && n / 4 < 2)).collect();
        let found = decision(&values, &held).unwrap();
        assert_eq!(found.right, 16);
        let sides: Vec<_> =
            found.sides.iter().map(|s| (s.unknown, s.threshold, s.is_above)).collect();
        assert_eq!(sides, [(0, 1.5, true), (1, 1.5, false)]);
    }

    #[test]
    fn nothing_decides_where_nothing_does_or_too_few_tell() {
        let values = machines(|n| [n as f64, (n * 7 % 16) as f64, (n * 3 % 16) as f64]);
        let by_turns: Vec<_> = (0..16).map(|n| Some(n % 2 == 0)).collect();
        assert_eq!(decision(&values, &by_turns), None);
        let twice: Vec<_> = (0..16).map(|n| Some(n < 2)).collect();
        assert_eq!(decision(&values, &twice), None, "two machines have something in common");
        assert_eq!(decision(&values, &[None; 16]), None);
        assert_eq!(decision(&[], &[]), None);
    }

    #[test]
    fn what_a_machine_does_not_have_is_on_no_side() {
        let mut values = machines(|n| [n as f64, 0.0, 0.0]);
        values[15][0] = None;
        let held: Vec<_> = (0..16).map(|n| Some((8..15).contains(&n))).collect();
        assert_eq!(decision(&values, &held).unwrap().right, 16);
    }
}
