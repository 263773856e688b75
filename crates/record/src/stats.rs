//! Means, order statistics and percentages, as the field's reports have them.
//!
//! The formulas are those of the public mmtests project around 2016; each one was checked against
//! the cells of published tables (`tests/scoring`). Whether a difference is more than noise is
//! [`noise`](crate::noise)'s business.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Which direction of a metric is the good one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Times, latencies, stalls.
    Lower,
    /// Rates, shares of huge pages.
    Higher,
    /// A success rate in percent: the difference is told in percentage points.
    Points,
    /// Neither; such a metric has no percentage.
    Neutral,
}

/// A row of a table: what is made of a metric's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Statistic {
    /// The arithmetic mean, printed without a word in front of the metric's name.
    Plain,
    /// The arithmetic mean.
    Amean,
    /// The harmonic mean, for rates.
    Hmean,
    /// The smallest sample.
    Min,
    /// The sample at a quarter, by nearest rank.
    FirstQuartile,
    /// The sample in the middle, by nearest rank.
    SecondQuartile,
    /// The sample at three quarters, by nearest rank.
    ThirdQuartile,
    /// `Max-N%`: the sample that N percent of the samples do not exceed.
    MaxPercent(u8),
    /// The largest sample.
    Max,
    /// The arithmetic mean, as percentile tables call it.
    Mean,
    /// The standard deviation in its population form.
    Stddev,
    /// The standard deviation in percent of the mean.
    CoeffVar,
}

/// The rows of a latency table, as of the stutter benchmark.
pub const PERCENTILES: [Statistic; 10] = [
    Statistic::Min,
    Statistic::FirstQuartile,
    Statistic::SecondQuartile,
    Statistic::ThirdQuartile,
    Statistic::MaxPercent(90),
    Statistic::MaxPercent(93),
    Statistic::MaxPercent(95),
    Statistic::MaxPercent(99),
    Statistic::Max,
    Statistic::Mean,
];

impl Statistic {
    const NAMED: [(Self, &'static str); 11] = [
        (Self::Plain, ""),
        (Self::Amean, "Amean"),
        (Self::Hmean, "Hmean"),
        (Self::Min, "Min"),
        (Self::FirstQuartile, "1st-qrtle"),
        (Self::SecondQuartile, "2nd-qrtle"),
        (Self::ThirdQuartile, "3rd-qrtle"),
        (Self::Max, "Max"),
        (Self::Mean, "Mean"),
        (Self::Stddev, "Stddev"),
        (Self::CoeffVar, "CoeffVar"),
    ];

    /// Returns the direction that is good for this row of a metric: of a spread always the lower
    /// one.
    ///
    /// The 2012 report of FS-Mark counted a wider spread of a rate as an improvement; this does not.
    #[must_use]
    pub fn better(self, metric: Better) -> Better {
        match (self, metric) {
            (Self::Stddev | Self::CoeffVar, Better::Lower | Better::Higher | Better::Points) => {
                Better::Lower
            }
            _ => metric,
        }
    }

    /// Returns the statistic of sorted samples; `None` if there are none.
    #[must_use]
    pub fn of(self, samples: &Sorted) -> Option<f64> {
        match self {
            Self::Plain | Self::Amean | Self::Mean => samples.amean(),
            Self::Hmean => samples.hmean(),
            Self::Min => samples.min(),
            Self::FirstQuartile => samples.nearest_rank(0.25),
            Self::SecondQuartile => samples.nearest_rank(0.50),
            Self::ThirdQuartile => samples.nearest_rank(0.75),
            Self::MaxPercent(percent) => samples.nearest_rank(f64::from(percent) / 100.0),
            Self::Max => samples.max(),
            Self::Stddev => samples.stddev(),
            Self::CoeffVar => samples.coeff_var(),
        }
    }
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::MaxPercent(percent) = self {
            return f.pad(&format!("Max-{percent}%"));
        }
        let name = Self::NAMED.iter().find(|(statistic, _)| statistic == self);
        f.pad(name.map_or("", |(_, name)| name))
    }
}

impl Serialize for Statistic {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Statistic {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let percent = text.strip_prefix("Max-").and_then(|rest| rest.strip_suffix('%'));
        if let Some(percent) = percent.and_then(|percent| percent.parse().ok()) {
            return Ok(Self::MaxPercent(percent));
        }
        let named = Self::NAMED.iter().find(|(_, name)| *name == text);
        named.map(|(statistic, _)| *statistic).ok_or_else(|| {
            serde::de::Error::custom(format!(
                "statistic `{text}`, expected `Amean`, `Max-99%`, ..."
            ))
        })
    }
}

/// Samples in ascending order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sorted(Vec<f64>);

impl Sorted {
    /// Sorts samples.
    #[must_use]
    pub fn new(samples: impl IntoIterator<Item = f64>) -> Self {
        let mut samples: Vec<f64> = samples.into_iter().collect();
        samples.sort_by(f64::total_cmp);
        Self(samples)
    }

    /// Returns the samples.
    #[must_use]
    pub fn as_slice(&self) -> &[f64] {
        &self.0
    }

    /// Returns how many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the smallest.
    #[must_use]
    pub fn min(&self) -> Option<f64> {
        self.0.first().copied()
    }

    /// Returns the largest.
    #[must_use]
    pub fn max(&self) -> Option<f64> {
        self.0.last().copied()
    }

    /// Returns the arithmetic mean, `sum(x)/n`.
    #[must_use]
    pub fn amean(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.0.iter().sum::<f64>() / self.len() as f64)
    }

    /// Returns the harmonic mean, `n/sum(1/x)`: 0 if a sample is 0, and none if one is negative,
    /// for which it means nothing.
    #[must_use]
    pub fn hmean(&self) -> Option<f64> {
        match self.min()? {
            x if x < 0.0 => None,
            0.0 => Some(0.0),
            _ => Some(self.len() as f64 / self.0.iter().map(|x| x.recip()).sum::<f64>()),
        }
    }

    /// Returns the standard deviation in its population form, `sqrt(sum((x-mean)^2)/n)`.
    #[must_use]
    pub fn stddev(&self) -> Option<f64> {
        let mean = self.amean()?;
        let squares: f64 = self.0.iter().map(|x| (x - mean) * (x - mean)).sum();
        Some((squares / self.len() as f64).sqrt())
    }

    /// Returns the coefficient of variation, `100*stddev/mean`; none if the mean is 0.
    #[must_use]
    pub fn coeff_var(&self) -> Option<f64> {
        let mean = self.amean().filter(|&mean| mean != 0.0)?;
        Some(100.0 * self.stddev()? / mean)
    }

    /// Returns the sample at a share `p` (0 to 1) of the way, `x[floor((n-1)*p + 0.5)]`: nearest
    /// rank, no interpolation.
    #[must_use]
    pub fn nearest_rank(&self, p: f64) -> Option<f64> {
        let last = self.len().checked_sub(1)?;
        let at = (last as f64 * p + 0.5).floor() as usize;
        Some(self.0[at.min(last)])
    }
}

impl FromIterator<f64> for Sorted {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Self {
        Self::new(samples)
    }
}

/// Returns by how much a value is better than the base's, in percent: positive is always an improvement.
///
/// | better | value |
/// | --- | --- |
/// | lower | `100 - 100*new/base` |
/// | higher | `100*new/base - 100` |
/// | points | `new - base` |
/// | neutral | none |
///
/// Two zeros are no change. Of a base of 0 nothing else is a percentage: there is none. The reports of mmtests
/// print something there all the same, which is [`published::printed_change_percent`]'s business.
///
/// [`published::printed_change_percent`]: crate::published::printed_change_percent
#[must_use]
pub fn change_percent(better: Better, base: f64, new: f64) -> Option<f64> {
    match better {
        Better::Neutral => None,
        Better::Points => Some(new - base),
        _ if new == base => Some(0.0),
        _ if base == 0.0 => None,
        Better::Lower => Some(100.0 - 100.0 * new / base),
        Better::Higher => Some(100.0 * new / base - 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(samples: &[f64]) -> Sorted {
        samples.iter().copied().collect()
    }

    #[test]
    fn the_statistics_of_a_worked_example() {
        // Mean 5, squares of the differences 9+1+1+1+0+0+4+16 = 32, 32/8 = 4, root 2.
        let samples = sorted(&[9.0, 4.0, 5.0, 4.0, 2.0, 4.0, 5.0, 7.0]);
        assert_eq!(samples.amean(), Some(5.0));
        assert_eq!(samples.stddev(), Some(2.0));
        assert_eq!(samples.coeff_var(), Some(40.0));
        assert_eq!(samples.min(), Some(2.0));
        assert_eq!(samples.max(), Some(9.0));
        // Sorted: 2 4 4 4 5 5 7 9. floor(7*0.25+0.5) = 2, floor(7*0.5+0.5) = 4, floor(7*0.75+0.5) = 5,
        // floor(7*0.9+0.5) = 6, floor(7*0.93+0.5) = 7.
        assert_eq!(Statistic::FirstQuartile.of(&samples), Some(4.0));
        assert_eq!(Statistic::SecondQuartile.of(&samples), Some(5.0));
        assert_eq!(Statistic::ThirdQuartile.of(&samples), Some(5.0));
        assert_eq!(Statistic::MaxPercent(90).of(&samples), Some(7.0));
        assert_eq!(Statistic::MaxPercent(93).of(&samples), Some(9.0));
        // 2/(1/2 + 1/6) = 3.
        assert!((sorted(&[2.0, 6.0]).hmean().unwrap() - 3.0).abs() < 1e-12);
        assert_eq!(sorted(&[0.0, 6.0]).hmean(), Some(0.0));
        assert_eq!(sorted(&[-1.0, 6.0]).hmean(), None);
    }

    #[test]
    fn of_no_samples_every_statistic_is_missing() {
        for statistic in PERCENTILES.into_iter().chain([
            Statistic::Plain,
            Statistic::Amean,
            Statistic::Hmean,
            Statistic::Stddev,
            Statistic::CoeffVar,
        ]) {
            assert_eq!(statistic.of(&Sorted::default()), None, "{statistic}");
        }
        assert_eq!(sorted(&[0.0]).coeff_var(), None);
    }

    #[test]
    fn percentages_are_positive_for_improvements_and_a_base_of_zero_has_none() {
        let lower = |base, new| change_percent(Better::Lower, base, new);
        let higher = |base, new| change_percent(Better::Higher, base, new);
        assert_eq!((lower(200.0, 150.0), lower(10.0, 100.0)), (Some(25.0), Some(-900.0)));
        assert_eq!((lower(7.0, 0.0), lower(0.0, 0.0)), (Some(100.0), Some(0.0)));
        assert_eq!((lower(0.0, 7.0), lower(0.0, 0.3)), (None, None), "not -99");
        assert_eq!((higher(200.0, 150.0), higher(7.0, 0.0)), (Some(-25.0), Some(-100.0)));
        assert_eq!((higher(0.0, 0.0), higher(0.0, 7.0)), (Some(0.0), None), "not 100");
        assert_eq!(change_percent(Better::Points, 81.0, 28.0), Some(-53.0));
        assert_eq!(change_percent(Better::Neutral, 1.0, 2.0), None);
    }

    #[test]
    fn a_statistic_reads_back_from_its_name() {
        for statistic in PERCENTILES.into_iter().chain([Statistic::Plain, Statistic::CoeffVar]) {
            let text = serde_json::to_string(&statistic).unwrap();
            assert_eq!(serde_json::from_str::<Statistic>(&text).unwrap(), statistic);
        }
        let error = serde_json::from_str::<Statistic>("\"Median\"").unwrap_err();
        assert!(error.to_string().starts_with("statistic `Median`, expected `Amean`"), "{error}");
    }
}
