//! Kernels beside each other: how near the model comes to each, and whether what changed from one to the next changes
//! in the model as well.

use super::repeats::Noise;
use super::{Judged, OrderAgreement, median_relative_error, order_agreement};
use std::collections::BTreeMap;

/// How near the model comes to one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct OfKernel {
    /// Its release, as `4.20`.
    pub kernel: String,
    /// Cases that were compared.
    pub nr_cases: usize,
    /// Figures of them.
    pub nr_figures: usize,
    /// The middle of their relative errors.
    pub median: Option<f64>,
    /// Whether settings come in the same order.
    pub order: OrderAgreement,
}

/// What differs between two kernels that did the same work.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The older kernel.
    pub older: String,
    /// The newer one, the next of those that did this work.
    pub newer: String,
    /// Figures that differ on the real kernels by more than their spread, and those of them that go the same way in
    /// the model.
    pub agreement: OrderAgreement,
    /// Those that do not.
    pub differently: Vec<Differently>,
}

/// A figure that goes another way in the model than on the real kernels.
#[derive(Clone, Debug, PartialEq)]
pub struct Differently {
    /// A case of the newer kernel.
    pub case: String,
    /// The figure.
    pub figure: String,
    /// On the real kernels, the older first.
    pub real: [f64; 2],
    /// In the model.
    pub model: [f64; 2],
}

/// How near the model comes to each kernel, the oldest first.
#[must_use]
pub fn by_kernel(judged: &[Judged<'_>]) -> Vec<OfKernel> {
    let noise = Noise::of(judged);
    let mut kernels: BTreeMap<Release, Vec<Judged<'_>>> = BTreeMap::new();
    for case in judged {
        kernels.entry(Release::of(&case.kernel)).or_default().push(case.clone());
    }
    let of = |cases: Vec<Judged<'_>>| OfKernel {
        kernel: cases[0].kernel.clone(),
        nr_cases: cases.len(),
        nr_figures: cases.iter().map(|case| case.rows.len()).sum(),
        median: median_relative_error(cases.iter().flat_map(|case| case.rows)),
        order: order_agreement(&cases, &noise, None),
    };
    kernels.into_values().map(of).collect()
}

/// What changed from each kernel to the next one that did the same work, the oldest first.
///
/// Cases of one work are compared under the same settings, or where each kernel has one case alone, under those: a
/// kernel's own defaults. A figure counts as different by more than a tenth, more than its floor, and more than
/// repeats of the work differ among themselves.
#[must_use]
pub fn changes(judged: &[Judged<'_>]) -> Vec<Change> {
    let noise = Noise::of(judged);
    let mut works: BTreeMap<&str, BTreeMap<Release, Settings<'_, '_>>> = BTreeMap::new();
    for case in judged {
        let kernels = works.entry(&case.work).or_default();
        let settings = kernels.entry(Release::of(&case.kernel)).or_default();
        settings.entry(&case.settings).or_default().push(case);
    }
    let mut found: BTreeMap<(Release, Release), Change> = BTreeMap::new();
    for kernels in works.values() {
        let in_turn: Vec<_> = kernels.iter().collect();
        for pair in in_turn.windows(2) {
            let [(older, before), (newer, after)] = pair else { unreachable!("pairs") };
            let own = before.len() == 1 && after.len() == 1;
            for (settings, before) in *before {
                let same = if own { after.values().next() } else { after.get(settings) };
                let Some(after) = same else { continue };
                let change =
                    found.entry(((*older).clone(), (*newer).clone())).or_insert_with(|| Change {
                        older: before[0].kernel.clone(),
                        newer: after[0].kernel.clone(),
                        agreement: OrderAgreement::default(),
                        differently: Vec::new(),
                    });
                compare(before, after, &noise, change);
            }
        }
    }
    found.into_values().collect()
}

/// Cases by their settings; those with equal ones repeat each other.
type Settings<'a, 'j> = BTreeMap<&'a BTreeMap<String, String>, Vec<&'a Judged<'j>>>;

/// A kernel's release by its numbers, so that 4.4 comes before 4.20.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Release(Vec<u32>, String);

impl Release {
    pub(super) fn of(name: &str) -> Self {
        let numbers = name.split('.').map_while(|number| number.parse().ok());
        Self(numbers.collect(), name.to_owned())
    }
}

/// A figure's mean over repeats: of the real kernel, and of the model.
fn mean(repeats: &[&Judged<'_>], name: &str) -> (f64, f64) {
    let rows: Vec<_> =
        repeats.iter().flat_map(|case| case.rows).filter(|row| row.name == name).collect();
    let nr = rows.len().max(1) as f64;
    (rows.iter().map(|r| r.real).sum::<f64>() / nr, rows.iter().map(|r| r.model).sum::<f64>() / nr)
}

fn compare(before: &[&Judged<'_>], after: &[&Judged<'_>], noise: &Noise<'_>, change: &mut Change) {
    for row in before[0].rows {
        let has_both = after[0].rows.iter().any(|other| other.name == row.name);
        let ((a, model_a), (b, model_b)) = (mean(before, &row.name), mean(after, &row.name));
        if !has_both || !noise.is_exceeded(&before[0].work, row, a, b) {
            continue;
        }
        change.agreement.pairs += 1;
        if model_a.total_cmp(&model_b) == a.total_cmp(&b) {
            change.agreement.agree += 1;
        } else {
            change.differently.push(Differently {
                case: after[0].name.clone(),
                figure: row.name.clone(),
                real: [a, b],
                model: [model_a, model_b],
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Quantity, Row};
    use super::*;

    fn case<'a>(kernel: &str, defrag: &str, rows: &'a [Row]) -> Judged<'a> {
        Judged {
            name: format!("{kernel}-{defrag}"),
            kernel: kernel.to_owned(),
            work: "usemem".to_owned(),
            settings: [("defrag".to_owned(), defrag.to_owned())].into(),
            rows,
        }
    }

    fn rows(stalls: [f64; 2], scanned: [f64; 2]) -> [Row; 2] {
        [("allocstall", stalls), ("pgscan_kswapd", scanned)]
            .map(|(name, [real, model])| Row::new(Quantity::Counter, name, real, model, 512.0))
    }

    #[test]
    fn what_changes_between_neighbours_is_judged_beyond_the_spread_of_repeats() {
        let four = rows([10_000.0, 9_000.0], [50_000.0, 1.0]);
        let again = rows([12_000.0, 9_000.0], [90_000.0, 1.0]);
        let six = rows([100.0, 200.0], [100_000.0, 0.0]);
        let twenty = rows([5_000.0, 100.0], [100_000.0, 0.0]);
        let judged = [
            case("4.20", "always", &twenty),
            case("4.6", "always", &six),
            case("4.4", "always", &four),
            case("4.4", "always", &again),
        ];
        let found = changes(&judged);
        let names: Vec<_> =
            found.iter().map(|c| (c.older.as_str(), c.newer.as_str(), c.agreement)).collect();
        let agreement = |agree, pairs| OrderAgreement { agree, pairs };
        // kswapd's pages differ by less than 4.4's from themselves.
        assert_eq!(names, [("4.4", "4.6", agreement(1, 1)), ("4.6", "4.20", agreement(0, 1))]);
        assert_eq!(found[1].differently[0].model, [200.0, 100.0]);
        let kernels = by_kernel(&judged);
        let kernels: Vec<_> = kernels.iter().map(|k| (k.kernel.as_str(), k.nr_cases)).collect();
        assert_eq!(kernels, [("4.4", 2), ("4.6", 1), ("4.20", 1)]);
    }

    #[test]
    fn other_settings_are_compared_where_each_kernel_has_its_own_alone() {
        let old = rows([10_000.0, 9_000.0], [0.0, 0.0]);
        let new = rows([0.0, 0.0], [0.0, 0.0]);
        let both = [case("4.4", "always", &old), case("4.6", "madvise", &new)];
        assert_eq!(changes(&both)[0].agreement, OrderAgreement { agree: 1, pairs: 1 });
        let more = [both[0].clone(), both[1].clone(), case("4.6", "defer", &new)];
        assert_eq!(changes(&more), []);
    }
}
