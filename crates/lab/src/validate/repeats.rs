//! Cases that were recorded more than once: how far runs of one real kernel lie apart, which bounds how near a model can
//! come to any of them.

use super::kernels::Release;
use super::{Judged, Quantity, Row, differs, median, relative_error};
use std::collections::BTreeMap;

/// Runs of one case on one real kernel, beside each other and beside the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeats {
    /// The first of them.
    pub case: String,
    /// How many there are.
    pub nr_runs: usize,
    /// The middle of the relative errors of every run, taken for a model of every other.
    pub of_real: Option<f64>,
    /// The middle of the model's relative errors, over the same figures of the same runs.
    pub of_model: Option<f64>,
}

/// The spread of real runs, over all cases that were recorded more than once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RealSpread {
    /// Each of these cases, the oldest kernel's first.
    pub cases: Vec<Repeats>,
    /// As [`Repeats::of_real`], of all together.
    pub of_real: Option<f64>,
    /// As [`Repeats::of_model`], of all together.
    pub of_model: Option<f64>,
}

impl RealSpread {
    /// Of these cases; those with the same kernel, work and settings repeat each other.
    #[must_use]
    pub fn of(judged: &[Judged<'_>]) -> Self {
        let (mut cases, mut all_real, mut all_model) = (Vec::new(), Vec::new(), Vec::new());
        for runs in repeated(judged) {
            let (mut real, mut model) = (Vec::new(), Vec::new());
            for figure in figures(&runs).filter(|row| row.quantity != Quantity::Distance) {
                // One that a run does not have was nothing on either side.
                let of = |run: &Judged<'_>| run.pair(&figure.name).unwrap_or_default();
                for (i, run) in runs.iter().enumerate() {
                    let (truth, modelled) = of(run);
                    model.push(relative_error(truth, modelled, figure.floor));
                    let others = runs.iter().enumerate().filter(|&(j, _)| i != j);
                    let taken = others.map(|(_, other)| of(other).0);
                    real.extend(taken.map(|taken| relative_error(truth, taken, figure.floor)));
                }
            }
            all_real.extend_from_slice(&real);
            all_model.extend_from_slice(&model);
            cases.push(Repeats {
                case: runs[0].name.clone(),
                nr_runs: runs.len(),
                of_real: median(&mut real),
                of_model: median(&mut model),
            });
        }
        Self { cases, of_real: median(&mut all_real), of_model: median(&mut all_model) }
    }
}

/// Cases that repeat each other: the same kernel, work and settings. The oldest kernel's come first.
fn repeated<'a, 'j>(judged: &'a [Judged<'j>]) -> impl Iterator<Item = Vec<&'a Judged<'j>>> {
    let mut groups: BTreeMap<_, Vec<&Judged<'_>>> = BTreeMap::new();
    for case in judged {
        let key = (Release::of(&case.kernel), &case.work, &case.settings);
        groups.entry(key).or_default().push(case);
    }
    groups.into_values().filter(|runs| runs.len() > 1)
}

/// A row for each figure that some of these runs have.
pub(super) fn figures<'a>(runs: &[&Judged<'a>]) -> impl Iterator<Item = &'a Row> + use<'a> {
    let rows = runs.iter().flat_map(|run| run.rows);
    rows.map(|row| (row.name.as_str(), row)).collect::<BTreeMap<_, _>>().into_values()
}

/// By work and figure, how far a real run lies from the mean of those that repeat it at most, as a share of that.
#[derive(Clone, Debug, Default)]
pub struct Noise<'a>(BTreeMap<(&'a str, &'a str), f64>);

impl<'a> Noise<'a> {
    /// As these cases tell: of each work that some kernel did more than once under the same settings.
    #[must_use]
    pub fn of(judged: &'a [Judged<'_>]) -> Self {
        let mut noise: BTreeMap<(&str, &str), f64> = BTreeMap::new();
        for runs in repeated(judged) {
            for row in figures(&runs) {
                let of = |run: &&Judged<'_>| run.pair(&row.name).unwrap_or_default().0;
                let real: Vec<f64> = runs.iter().map(of).collect();
                let mean = real.iter().sum::<f64>() / real.len() as f64;
                let share = |value: &f64| (value - mean).abs() / mean.abs().max(row.floor);
                let most = real.iter().map(share).fold(0.0, f64::max);
                let known = noise.entry((&runs[0].work, &row.name)).or_default();
                *known = known.max(most);
            }
        }
        Self(noise)
    }

    /// Whether a figure of a work differs between two real runs: by more than a tenth, more than its floor, and more
    /// than runs of that work differ among themselves.
    pub(super) fn is_exceeded(&self, work: &str, row: &Row, a: f64, b: f64) -> bool {
        let noise = self.0.get(&(work, row.name.as_str())).copied().unwrap_or(0.0);
        differs(a, b, row.floor) && (a - b).abs() > noise * (a.abs() + b.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case<'a>(name: &str, swappiness: &str, rows: &'a [Row]) -> Judged<'a> {
        Judged {
            name: name.to_owned(),
            kernel: "6.12".to_owned(),
            work: "usemem".to_owned(),
            settings: [("vm.swappiness".to_owned(), swappiness.to_owned())].into(),
            rows,
        }
    }

    fn rows(real: f64, model: f64) -> [Row; 2] {
        [
            Row::new(Quantity::Counter, "pswpout", real, model, 512.0),
            Row::new(Quantity::Distance, "free blocks apart", 0.0, 0.9, 1.0),
        ]
    }

    #[test]
    fn each_run_is_taken_for_a_model_of_every_other() {
        let (first, second, other) =
            (rows(1000.0, 1100.0), rows(2000.0, 1100.0), rows(9.0, 9_000.0));
        let judged = [case("a", "60", &first), case("a.r2", "60", &second), case("b", "0", &other)];
        let spread = RealSpread::of(&judged);
        // 2000 for 1000 is one too many, 1000 for 2000 a half; the model is off by 0.1 and 0.45.
        assert_eq!((spread.of_real, spread.of_model), (Some(0.75), Some((0.1 + 0.45) / 2.0)));
        assert_eq!(spread.cases.len(), 1);
        assert_eq!((spread.cases[0].case.as_str(), spread.cases[0].nr_runs), ("a", 2));
        assert_eq!(RealSpread::of(&judged[1..]), RealSpread::default());
    }

    #[test]
    fn what_one_run_does_not_have_was_nothing() {
        let (some, none) = (rows(5000.0, 0.0), rows(0.0, 0.0));
        let judged = [case("a", "60", &none[1..]), case("a.r2", "60", &some)];
        // 5000 pages for none are as many times the floor of 512, none for 5000 is all of it.
        let spread = RealSpread::of(&judged);
        assert_eq!(spread.of_real, Some((5000.0 / 512.0 + 1.0) / 2.0));
        assert_eq!(spread.of_model, Some(0.5), "exact in the one, nothing of the other");
        assert!(!Noise::of(&judged).is_exceeded("usemem", &some[0], 9000.0, 0.0));
    }

    #[test]
    fn what_repeats_differ_by_is_no_difference() {
        let (first, second) = (rows(1000.0, 0.0), rows(2000.0, 0.0));
        let judged = [case("a", "60", &first), case("a.r2", "60", &second)];
        let noise = Noise::of(&judged);
        // A third of 1500 to either side: two figures may be twice that apart.
        assert!(!noise.is_exceeded("usemem", &first[0], 1000.0, 1900.0));
        assert!(noise.is_exceeded("usemem", &first[0], 1000.0, 2100.0));
        assert!(noise.is_exceeded("other work", &first[0], 1000.0, 1900.0));
        assert!(!noise.is_exceeded("other work", &first[0], 1000.0, 1400.0), "its floor");
    }
}
