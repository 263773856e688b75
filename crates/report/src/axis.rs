//! The axes of charts: which values get a line and a number, and where a value lies.

/// Whether an axis has to show zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zero {
    /// Yes: of amounts, whose height is compared.
    Included,
    /// Only if it lies among the values.
    Free,
}

/// One direction of a plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// First and last value.
    pub range: (f64, f64),
    /// Values that get a line and a number.
    pub ticks: Vec<f64>,
    /// Whether equal ratios, rather than equal differences, lie equally far apart.
    pub log: bool,
}

impl Axis {
    /// About `count` ticks at 1, 2 or 5 times a power of ten; the range ends on ticks.
    #[must_use]
    pub fn linear(values: impl Iterator<Item = f64>, count: usize, zero: Zero) -> Self {
        let (mut low, mut high) = extent(values).unwrap_or((0.0, 1.0));
        if zero == Zero::Included {
            (low, high) = (low.min(0.0), high.max(0.0));
        }
        if low == high {
            high = low + if low == 0.0 { 1.0 } else { low.abs() };
        }
        let rough = (high - low) / count as f64;
        let power = 10f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].into_iter().find(|m| m * power >= rough * 0.999).unwrap_or(10.0)
                * power;
        let (first, last) = ((low / step).floor(), (high / step).ceil());
        let ticks = (0..=(last - first) as usize).map(|i| (first + i as f64) * step).collect();
        Self { range: (first * step, last * step), ticks, log: false }
    }

    /// A tick at each power of ten; the range ends on ticks.
    #[must_use]
    pub fn logarithmic(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = extent(values.filter(|v| *v > 0.0)).unwrap_or((1.0, 10.0));
        let (first, mut last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        last = last.max(first + 1);
        let every = ((last - first) as usize).div_ceil(9);
        let ticks = (first..=last).step_by(every).map(|e| 10f64.powi(e)).collect();
        Self { range: (10f64.powi(first), 10f64.powi(last)), ticks, log: true }
    }

    /// Where a value lies between the ends, 0 to 1; `None` if it has no place.
    #[must_use]
    pub fn share(&self, value: f64) -> Option<f64> {
        let (low, high) = self.range;
        let share = if self.log {
            if value <= 0.0 {
                return None;
            }
            (value / low).ln() / (high / low).ln()
        } else {
            (value - low) / (high - low)
        };
        share.is_finite().then_some(share)
    }

    /// The same of a value that does not lie beyond the ends.
    #[must_use]
    pub fn share_within(&self, value: f64) -> Option<f64> {
        self.share(value).filter(|share| (-1e-9..=1.0 + 1e-9).contains(share))
    }
}

/// Smallest and largest of the finite values.
fn extent(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|v| v.is_finite()).fold(None, |range, v| {
        let (low, high) = range.unwrap_or((v, v));
        Some((low.min(v), high.max(v)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_enclose_the_values() {
        let axis = Axis::linear([0.13, 0.87].into_iter(), 4, Zero::Included);
        assert_eq!(axis.ticks, [0.0, 0.5, 1.0]);
        let axis = Axis::linear([1000.0, 9300.0].into_iter(), 5, Zero::Free);
        assert_eq!(axis.range, (0.0, 10000.0));
        assert_eq!(
            Axis::linear([-3.0, 4.0].into_iter(), 4, Zero::Included).ticks,
            [-4.0, -2.0, 0.0, 2.0, 4.0]
        );
    }

    #[test]
    fn a_constant_or_absent_series_still_has_an_axis() {
        for values in [vec![], vec![0.0], vec![5.0, 5.0], vec![f64::NAN], vec![-2.0]] {
            let axis = Axis::linear(values.iter().copied(), 4, Zero::Included);
            assert!(axis.range.0 < axis.range.1 && axis.ticks.len() >= 2, "{values:?}: {axis:?}");
        }
        assert_eq!(Axis::logarithmic([].into_iter()).ticks, [1.0, 10.0]);
        assert_eq!(Axis::logarithmic([100.0].into_iter()).ticks, [100.0, 1000.0]);
    }
}
