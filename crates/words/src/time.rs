//! Time: nanoseconds, of the model's clock or a real one.

use alloc::format;
use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

/// A moment of time, or a length of it, in nanoseconds.
///
/// 2^64 ns are 584 years, so arithmetic does not guard against overflow beyond what Rust does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Ns(pub u64);

impl Ns {
    /// No time.
    pub const ZERO: Self = Self(0);
    /// The end of time.
    pub const MAX: Self = Self(u64::MAX);

    /// This many microseconds.
    #[inline]
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }

    /// This many milliseconds.
    #[inline]
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// This many seconds.
    #[inline]
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1_000_000_000)
    }

    /// The time by which `self` is later than `earlier`, or none.
    #[inline]
    #[must_use]
    pub const fn saturating_sub(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// The sum, or the end of time.
    #[inline]
    #[must_use]
    pub const fn saturating_add(self, later: Self) -> Self {
        Self(self.0.saturating_add(later.0))
    }

    /// Seconds, for tables and axes; decisions never use it.
    #[inline]
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add for Ns {
    type Output = Self;
    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Ns {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Ns {
    type Output = Self;
    #[inline]
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl SubAssign for Ns {
    #[inline]
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

impl Mul<u64> for Ns {
    type Output = Self;
    #[inline]
    fn mul(self, times: u64) -> Self {
        Self(self.0 * times)
    }
}

impl Div<u64> for Ns {
    type Output = Self;
    #[inline]
    fn div(self, parts: u64) -> Self {
        Self(self.0 / parts)
    }
}

impl Sum for Ns {
    fn sum<I: Iterator<Item = Self>>(times: I) -> Self {
        times.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Ns {
    /// The exact value in the largest unit it reaches: `17 ns`, `1.5 us`, `3.25 ms`, `90 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit_ns, digits, unit) = match self.0 {
            0..1_000 => return write!(f, "{} ns", self.0),
            1_000..1_000_000 => (1_000, 3, "us"),
            1_000_000..1_000_000_000 => (1_000_000, 6, "ms"),
            _ => (1_000_000_000, 9, "s"),
        };
        let (whole, rest) = (self.0 / unit_ns, self.0 % unit_ns);
        if rest == 0 {
            return write!(f, "{whole} {unit}");
        }
        let fraction = format!("{rest:0digits$}");
        write!(f, "{whole}.{} {unit}", fraction.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn times_print_exactly_in_the_largest_unit_they_reach() {
        let printed = |ns| Ns(ns).to_string();
        assert_eq!(printed(0), "0 ns");
        assert_eq!(printed(999), "999 ns");
        assert_eq!(printed(1_500), "1.5 us");
        assert_eq!(printed(3_250_000), "3.25 ms");
        assert_eq!(printed(1_000_000_001), "1.000000001 s");
        assert_eq!(printed(90_000_000_000), "90 s");
    }

    #[test]
    fn arithmetic_is_that_of_nanoseconds() {
        assert_eq!(Ns::from_micros(3) + Ns(5) - Ns(1), Ns(3_004));
        assert_eq!(Ns(7) * 3 / 2, Ns(10));
        assert_eq!([Ns(1), Ns(2), Ns(3)].into_iter().sum::<Ns>(), Ns(6));
        assert_eq!(Ns(1).saturating_sub(Ns(2)), Ns::ZERO);
        assert_eq!(Ns::MAX.saturating_add(Ns(1)), Ns::MAX);
    }
}
