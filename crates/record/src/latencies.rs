//! Latencies of one class: a histogram, and exactly what a histogram forgets.

use hdrhistogram::Histogram;

/// Significant decimal digits that the histogram keeps: a percentile is within 0.1 % of the truth.
const DIGITS: u8 = 3;

/// Latencies in nanoseconds.
///
/// Percentiles come from an HDR histogram with three significant digits; count, sum, smallest and
/// largest are exact.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
}

/// One bucket of the histogram that holds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The smallest latency that falls into it, in nanoseconds.
    pub low_ns: u64,
    /// The largest.
    pub high_ns: u64,
    /// How many did.
    pub count: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for Latencies {
    fn eq(&self, other: &Self) -> bool {
        (self.sum_ns, self.min_ns, self.max_ns) == (other.sum_ns, other.min_ns, other.max_ns)
            && self.buckets().eq(other.buckets())
    }
}

impl Latencies {
    /// No latencies.
    #[must_use]
    pub fn new() -> Self {
        let histogram = Histogram::new(DIGITS).expect("a histogram takes 3 digits");
        Self { histogram, sum_ns: 0, min_ns: u64::MAX, max_ns: 0 }
    }

    /// Adds one latency.
    pub fn record(&mut self, ns: u64) {
        self.record_many(ns, 1);
    }

    /// Adds the same latency `count` times.
    pub fn record_many(&mut self, ns: u64, count: u64) {
        if count == 0 {
            return;
        }
        self.fill(ns, count);
        self.sum_ns = self.sum_ns.saturating_add(ns.saturating_mul(count));
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds all latencies of another.
    pub fn merge(&mut self, other: &Self) {
        for bucket in other.buckets() {
            self.fill(bucket.low_ns, bucket.count);
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Returns how many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Returns their sum in nanoseconds; it stops at `u64::MAX` (584 years).
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// Returns the arithmetic mean in nanoseconds, or `None` if there are none.
    #[must_use]
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.sum_ns as f64 / self.count() as f64)
    }

    /// Returns the smallest in nanoseconds, or `None` if there are none.
    #[must_use]
    pub fn min_ns(&self) -> Option<u64> {
        (self.count() > 0).then_some(self.min_ns)
    }

    /// Returns the largest in nanoseconds, or `None` if there are none.
    #[must_use]
    pub fn max_ns(&self) -> Option<u64> {
        (self.count() > 0).then_some(self.max_ns)
    }

    /// Returns the latency in nanoseconds that a share `quantile` (0 to 1) does not exceed, to three
    /// digits, or `None` if there are none.
    #[must_use]
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        let value = self.histogram.value_at_quantile(quantile);
        (self.count() > 0).then(|| value.clamp(self.min_ns, self.max_ns))
    }

    /// Returns the buckets that hold something, shortest latencies first.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        self.histogram.iter_recorded().map(|bucket| {
            let high_ns = bucket.value_iterated_to();
            let low_ns = self.histogram.lowest_equivalent(high_ns);
            Bucket { low_ns, high_ns, count: bucket.count_since_last_iteration() }
        })
    }

    /// Builds latencies from what a store kept.
    pub(crate) fn from_parts(
        buckets: impl IntoIterator<Item = Bucket>,
        sum_ns: u64,
        min_ns: u64,
        max_ns: u64,
    ) -> Self {
        let mut latencies = Self::new();
        for bucket in buckets {
            latencies.fill(bucket.low_ns, bucket.count);
        }
        if latencies.count() > 0 {
            (latencies.sum_ns, latencies.min_ns, latencies.max_ns) = (sum_ns, min_ns, max_ns);
        }
        latencies
    }

    fn fill(&mut self, ns: u64, count: u64) {
        self.histogram.record_n(ns, count).expect("the histogram grows to any u64");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_recorded_is_missing_and_not_zero() {
        let none = Latencies::new();
        assert_eq!(
            (none.count(), none.mean_ns(), none.min_ns(), none.quantile_ns(0.5)),
            (0, None, None, None)
        );
        assert_eq!(none.buckets().count(), 0);
    }

    #[test]
    fn a_percentile_is_right_to_three_digits() {
        let mut latencies = Latencies::new();
        (1..=100_000).for_each(|ns| latencies.record(ns * 1000));
        let median = latencies.quantile_ns(0.5).unwrap() as f64;
        assert!((median / 50_000_000.0 - 1.0).abs() < 1e-3, "{median}");
        assert_eq!(latencies.mean_ns(), Some(50_000_500.0));
        assert_eq!(latencies.quantile_ns(1.0), Some(100_000_000));
    }

    proptest! {
        #[test]
        fn what_buckets_say_builds_the_same_latencies(
            values in proptest::collection::vec((0_u64..=u64::MAX / 1000, 1_u64..1000), 0..50)
        ) {
            let mut latencies = Latencies::new();
            for &(ns, count) in &values {
                latencies.record_many(ns, count);
            }
            let again = Latencies::from_parts(
                latencies.buckets(),
                latencies.sum_ns(),
                latencies.min_ns().unwrap_or(0),
                latencies.max_ns().unwrap_or(0),
            );
            prop_assert_eq!(&again, &latencies);
            let mut twice = Latencies::new();
            twice.merge(&latencies);
            prop_assert_eq!(&twice, &latencies);
            for bucket in latencies.buckets() {
                prop_assert!(bucket.low_ns <= bucket.high_ns);
            }
        }
    }
}
