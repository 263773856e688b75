//! A condition on a counter or on its rate: `compact_stall/s > 10`, `MemFree < 65536`.

use crate::sample::Sample;
use std::fmt;
use std::str::FromStr;

/// A condition on a counter or on its rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    /// The counter, as [`Sample::value`] knows it.
    name: String,
    is_rate: bool,
    is_above: bool,
    value: f64,
}

impl Threshold {
    /// What the counter, or its rate, is now; `None` if there is none yet, or no such counter.
    #[must_use]
    pub fn found(&self, before: Option<&Sample>, now: &Sample) -> Option<f64> {
        match self.is_rate {
            true => now.rate(before?, &self.name),
            false => now.value(&self.name),
        }
    }

    /// Whether it is crossed by this value.
    #[must_use]
    pub fn is_crossed(&self, found: f64) -> bool {
        if self.is_above { found > self.value } else { found < self.value }
    }

    /// Whether the machine has such a counter.
    #[must_use]
    pub fn is_known(&self, sample: &Sample) -> bool {
        sample.value(&self.name).is_some()
    }
}

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "found `{text}`, expected a counter, `/s` for its rate, > or <, and a number: `compact_stall/s > 10`"
            )
        };
        let at = text.find(['<', '>']).ok_or_else(expected)?;
        let (name, rest) = (text[..at].trim(), &text[at..]);
        let value = rest[1..].trim().parse::<f64>().ok().filter(|value| value.is_finite());
        let value = value.ok_or_else(expected)?;
        let (name, is_rate) = match name.strip_suffix("/s") {
            Some(name) => (name.trim_end(), true),
            None => (name, false),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_()".contains(c);
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(expected());
        }
        Ok(Self { name: name.to_owned(), is_rate, is_above: rest.starts_with('>'), value })
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, is_rate, is_above, value } = self;
        let rate = if *is_rate { "/s" } else { "" };
        write!(f, "{name}{rate} {} {value}", if *is_above { '>' } else { '<' })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::tests::two;

    #[test]
    fn a_rate_and_a_value_are_compared() {
        let [before, after] = two();
        let found = |text: &str| {
            let threshold: Threshold = text.parse().unwrap();
            let found = threshold.found(Some(&before), &after);
            assert_eq!(threshold.to_string(), text);
            found.map(|found| threshold.is_crossed(found))
        };
        assert_eq!(found("compact_stall/s > 10"), Some(true));
        assert_eq!(found("compact_stall/s > 25"), Some(false));
        assert_eq!(found("MemFree < 1"), Some(false));
        assert_eq!(found("no_such_counter > 1"), None);
        let rate: Threshold = "compact_stall/s>10".parse().unwrap();
        assert_eq!(rate.found(None, &after), None);
        assert!(rate.is_known(&after));
    }

    #[test]
    fn what_is_no_threshold_is_told() {
        for text in ["", "compact_stall", "> 1", "a > b", "a >> 1", "a b > 1", "x > inf"] {
            assert!(
                text.parse::<Threshold>().unwrap_err().contains("expected a counter"),
                "{text}"
            );
        }
    }
}
