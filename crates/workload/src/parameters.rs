//! Parameters of workloads: which values they take, and how these are read and printed.

use crate::Choice;
use highorder_system::{MachineInfo, System};
use std::collections::BTreeMap;
use std::fmt;

/// Parts of one in which shares are counted, so that no decision depends on a float.
const MILLION: u64 = 1_000_000;

/// The largest share: sixteen times what there is. More is a percentage or a size written as a share.
const SHARE_MAX: f64 = 16.0;

/// Sizes end here: 1 PiB, more than any machine file can have.
const SIZE_MAX: u64 = 1 << 50;

const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// A value as an experiment gives it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Integer(i64),
    /// A number with a point.
    Float(f64),
    /// A text.
    Text(String),
    /// True or false.
    Bool(bool),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => write!(f, "{value}"),
            // With its point, so that it is told from an integer.
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Text(value) => write!(f, "{value:?}"),
            Self::Bool(value) => write!(f, "{value}"),
        }
    }
}

/// What is wrong with a workload's name or parameters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ParameterError {
    /// The parameter; `None` if it is the workload's name.
    pub key: Option<String>,
    /// What was found and what was expected.
    pub message: String,
}

impl ParameterError {
    pub(crate) fn new(key: &str, message: String) -> Self {
        Self { key: Some(key.to_owned()), message }
    }
}

/// A parameter of a workload.
#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    /// What it is, in a sentence or two.
    pub(crate) about: &'static str,
    /// What a count counts, or what follows a size, as in "16 MiB a second"; else empty.
    pub(crate) unit: &'static str,
    pub(crate) kind: Kind,
}

/// What a user is told of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterInfo {
    /// Its name in experiments.
    pub name: &'static str,
    /// What it is, in a sentence or two.
    pub about: &'static str,
    /// In what it is counted; empty for words.
    pub unit: String,
    /// Which values it takes.
    pub allowed: String,
    /// Its words, if it takes one of these and nothing else.
    pub words: &'static [&'static str],
    /// Its value if none is given, as experiments write it.
    pub default: String,
    /// Whether `--scale` makes it smaller: sizes, but not shares of memory, which are of less memory then.
    pub is_scaled: bool,
}

impl Parameter {
    /// What a user is told of it.
    pub(crate) fn info(&self) -> ParameterInfo {
        let Self { name, about, unit, kind } = self;
        let size = || ["bytes", unit].join(" ").trim_end().to_owned();
        let (unit, words): (_, &[&str]) = match kind {
            Kind::Count { .. } => ((*unit).to_owned(), &[]),
            Kind::Memory { .. } | Kind::MemoryOrNone { .. } => {
                ("share of memory, or bytes".into(), &[])
            }
            Kind::Size { .. } | Kind::Fixed { .. } => (size(), &[]),
            Kind::Word(words) => (String::new(), words),
        };
        let default = match kind.default() {
            text @ (Setting::Size(_) | Setting::Fixed(_) | Setting::Word(_)) => {
                format!("\"{text}\"")
            }
            number => number.to_string(),
        };
        let is_scaled = matches!(kind, Kind::Size { .. });
        ParameterInfo { name, about, unit, allowed: kind.expected(), words, default, is_scaled }
    }
}

/// What values a parameter takes, and its default.
#[derive(Debug)]
pub(crate) enum Kind {
    /// A whole number within these bounds.
    Count { least: u64, most: u64, default: u64 },
    /// Memory: a share of the machine's, in millionths by default, or a size.
    Memory { default_millionths: u64 },
    /// The same, or none: 0.0.
    MemoryOrNone { default_millionths: u64 },
    /// A size in bytes, which shrinks with memory.
    Size { default: u64 },
    /// A size in bytes that stays whatever the scale: of one call or of one file among many, where there
    /// are fewer of them in less memory.
    Fixed { default: u64 },
    /// One of these words, by default the first.
    Word(&'static [&'static str]),
}

impl Kind {
    fn default(&self) -> Setting {
        match *self {
            Self::Count { default, .. } => Setting::Count(default),
            Self::Memory { default_millionths } | Self::MemoryOrNone { default_millionths } => {
                Setting::Share(default_millionths)
            }
            Self::Size { default } => Setting::Size(default),
            Self::Fixed { default } => Setting::Fixed(default),
            Self::Word(words) => Setting::Word(words[0]),
        }
    }

    fn read(&self, value: &Value) -> Option<Setting> {
        match (self, value) {
            (Self::Count { least, most, .. }, Value::Integer(count)) => {
                let count = u64::try_from(*count).ok()?;
                (*least..=*most).contains(&count).then_some(Setting::Count(count))
            }
            (Self::MemoryOrNone { .. }, Value::Float(0.0)) => Some(Setting::Share(0)),
            (Self::Memory { .. } | Self::MemoryOrNone { .. }, Value::Float(share)) => {
                let millionths = (share * MILLION as f64).round();
                let is_possible = *share <= SHARE_MAX && millionths >= 1.0;
                is_possible.then_some(Setting::Share(millionths as u64))
            }
            (
                Self::Memory { .. } | Self::MemoryOrNone { .. } | Self::Size { .. },
                Value::Text(text),
            ) => size(text).map(Setting::Size),
            (Self::Fixed { .. }, Value::Text(text)) => size(text).map(Setting::Fixed),
            (Self::Word(words), Value::Text(text)) => {
                words.iter().find(|word| *word == text).map(|word| Setting::Word(word))
            }
            _ => None,
        }
    }

    /// The end of a message about a value that it does not take.
    fn expected_of(&self, found: &Value) -> String {
        let meant = match (self, found) {
            (Self::Word(words), Value::Text(text)) => highorder_input::did_you_mean(text, words),
            _ => None,
        };
        meant.unwrap_or_else(|| format!("expected {}", self.expected()))
    }

    fn expected(&self) -> String {
        match self {
            Self::Count { least, most, .. } => format!("a whole number, {least}..={most}"),
            Self::Memory { .. } => {
                format!(
                    "a share of memory up to {SHARE_MAX:.1} such as 0.8 or 1.0, or a whole size such as \"12 GiB\""
                )
            }
            Self::MemoryOrNone { .. } => format!(
                "a share of memory up to {SHARE_MAX:.1} such as 0.16, a whole size such as \"12 GiB\", or 0.0 for none"
            ),
            Self::Size { .. } | Self::Fixed { .. } => {
                "a whole size such as \"12 MiB\" (B, KiB, MiB, GiB or TiB)".to_owned()
            }
            Self::Word(words) => {
                let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
                quoted.join(" or ")
            }
        }
    }
}

/// Bytes of a text such as `12 MiB`.
fn size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, bytes) = UNITS.iter().find(|(name, _)| *name == unit.trim_start())?;
    let size = number.parse::<u64>().ok()?.checked_mul(*bytes)?;
    (1..=SIZE_MAX).contains(&size).then_some(size)
}

/// A parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    Count(u64),
    /// Millionths of the machine's memory.
    Share(u64),
    /// Bytes.
    Size(u64),
    /// Bytes that no scale changes.
    Fixed(u64),
    Word(&'static str),
}

impl Setting {
    /// Base pages of it on a machine; of a size, rounded up, and of a share, down.
    fn pages(self, machine: &MachineInfo) -> u64 {
        match self {
            Self::Share(millionths) => {
                let pages = u128::from(machine.total_pages) * u128::from(millionths);
                (pages / u128::from(MILLION)) as u64
            }
            Self::Size(bytes) | Self::Fixed(bytes) => bytes.div_ceil(machine.page_bytes),
            Self::Count(_) | Self::Word(_) => panic!("{self} is no amount of memory"),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Share(millionths) => {
                let (whole, rest) = (millionths / MILLION, millionths % MILLION);
                let digits = format!("{rest:06}");
                let digits = digits.trim_end_matches('0');
                write!(f, "{whole}.{}", if digits.is_empty() { "0" } else { digits })
            }
            Self::Size(bytes) | Self::Fixed(bytes) => {
                // The largest unit that it is a multiple of; one byte always is.
                let (unit, size) =
                    UNITS.iter().find(|(_, size)| bytes % size == 0).unwrap_or(&UNITS[4]);
                write!(f, "{} {unit}", bytes / size)
            }
            Self::Word(word) => f.write_str(word),
        }
    }
}

/// Values of all parameters of a workload.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    values: BTreeMap<&'static str, Setting>,
    /// Who says what the values are that are missing, where they do not matter yet.
    choice: Option<Choice>,
}

impl Settings {
    /// The values given, and defaults for the rest.
    pub(crate) fn read(
        workload: &str,
        parameters: &[Parameter],
        values: &BTreeMap<String, Value>,
    ) -> Result<Self, ParameterError> {
        if let Some(key) = values.keys().find(|key| !parameters.iter().any(|p| p.name == **key)) {
            let known: Vec<&str> = parameters.iter().map(|parameter| parameter.name).collect();
            let expected = highorder_input::expected(key, &known);
            let message = format!("`{workload}` has no parameter `{key}`, {expected}");
            return Err(ParameterError::new(key, message));
        }
        let read = |Parameter { name, kind, .. }: &Parameter| {
            let Some(value) = values.get(*name) else { return Ok((*name, kind.default())) };
            let setting = kind.read(value).ok_or_else(|| {
                let message = format!("`{name}` is {value}, {}", kind.expected_of(value));
                ParameterError::new(name, message)
            })?;
            Ok((*name, setting))
        };
        let values = parameters.iter().map(read).collect::<Result<_, _>>()?;
        Ok(Self { values, choice: None })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, Setting)> {
        self.values.iter().map(|(name, setting)| (*name, *setting))
    }

    pub(crate) fn set(&mut self, name: &'static str, setting: Setting) {
        self.values.insert(name, setting);
    }

    /// The same without the parameters that are still to be chosen.
    pub(crate) fn until_chosen(mut self, late: &[&str], choice: &Choice) -> Self {
        self.values.retain(|name, _| !late.contains(name));
        Self { choice: Some(choice.clone()), ..self }
    }

    /// All values, of which those of late parameters did not matter until now.
    ///
    /// # Panics
    /// If they were to be chosen and nobody did: a mistake of whoever parted the system.
    pub(crate) fn later(&self, sys: &mut dyn System) -> Self {
        sys.part();
        let Some(choice) = &self.choice else { return self.clone() };
        choice.chosen().expect("whoever parts a system says what goes on")
    }

    /// Multiplies sizes in bytes.
    pub(crate) fn scale(&mut self, numerator: u32, denominator: u32) {
        for setting in self.values.values_mut() {
            if let Setting::Size(bytes) = setting {
                let scaled = u128::from(*bytes) * u128::from(numerator) / u128::from(denominator);
                *bytes = (scaled as u64).clamp(1, SIZE_MAX);
            }
        }
    }

    /// Refuses a size that is larger than another parameter's.
    pub(crate) fn check_at_most(&self, name: &str, most: &str) -> Result<(), ParameterError> {
        if self.size(name) <= self.size(most) {
            return Ok(());
        }
        let (found, limit) = (self.values[name], self.values[most]);
        let message = format!("`{name}` is {found}, expected at most `{most}`, {limit}");
        Err(ParameterError::new(name, message))
    }

    /// A count.
    ///
    /// # Panics
    /// If the workload has no such parameter, or it is no count: here and below, a mistake in its table.
    pub(crate) fn count(&self, name: &str) -> u64 {
        match self.values[name] {
            Setting::Count(count) => count,
            other => panic!("`{name}` is {other}, no count"),
        }
    }

    /// A count that fits 32 bits, as its table has to provide.
    pub(crate) fn count_u32(&self, name: &str) -> u32 {
        u32::try_from(self.count(name)).expect("a parameter's table bounds it to 32 bits")
    }

    pub(crate) fn word(&self, name: &str) -> &'static str {
        match self.values[name] {
            Setting::Word(word) => word,
            other => panic!("`{name}` is {other}, no word"),
        }
    }

    /// Bytes of a size.
    pub(crate) fn size(&self, name: &str) -> u64 {
        match self.values[name] {
            Setting::Size(bytes) | Setting::Fixed(bytes) => bytes,
            other => panic!("`{name}` is {other}, no size"),
        }
    }

    /// Whether an amount of memory is more than none.
    pub(crate) fn has_memory(&self, name: &str) -> bool {
        self.values[name] != Setting::Share(0)
    }

    /// Base pages of a size or of a share of memory.
    pub(crate) fn pages(&self, name: &str, machine: &MachineInfo) -> u64 {
        self.values[name].pages(machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_unit_and_not_without() {
        assert_eq!(size("12 MiB"), Some(12 << 20));
        assert_eq!(size("12MiB"), Some(12 << 20));
        assert_eq!(size("4096 B"), Some(4096));
        for text in ["", "12", "MiB", "1.5 GiB", "12 MB", "-1 B", "0 B", "99999999 TiB", "12 MiB "]
        {
            assert_eq!(size(text), None, "{text:?}");
        }
    }

    #[test]
    fn equal_amounts_have_equal_texts() {
        let text = |value| {
            let kind = Kind::Memory { default_millionths: 1 };
            kind.read(&value).unwrap().to_string()
        };
        assert_eq!(text(Value::Float(0.64)), "0.64");
        assert_eq!(text(Value::Float(1.0)), "1.0");
        assert_eq!(text(Value::Text("2048 KiB".into())), "2 MiB");
        assert_eq!(text(Value::Text("1 B".into())), "1 B");
        assert_eq!(text(Value::Float(0.1 + 0.2)), text(Value::Float(0.3)));
    }

    #[test]
    fn shares_that_no_memory_has_are_refused() {
        let kind = Kind::Memory { default_millionths: 1 };
        for share in [0.0, -0.5, 80.0, 1e-9, f64::NAN, f64::INFINITY] {
            assert_eq!(kind.read(&Value::Float(share)), None, "{share}");
        }
        assert_eq!(kind.read(&Value::Integer(1)), None, "one byte, or all of memory?");
    }

    #[test]
    fn no_memory_is_a_value_only_where_none_is_possible() {
        let none = Value::Float(0.0);
        let kind = Kind::MemoryOrNone { default_millionths: 160_000 };
        assert_eq!(kind.read(&none), Some(Setting::Share(0)));
        assert_eq!(kind.read(&none).unwrap().to_string(), "0.0");
        assert_eq!(kind.read(&Value::Float(0.5)), Some(Setting::Share(500_000)));
        assert_eq!(Kind::Memory { default_millionths: 1 }.read(&none), None);
    }

    #[test]
    fn shares_round_down_and_sizes_up() {
        let machine =
            MachineInfo { total_pages: 1001, nodes: vec![], page_bytes: 4096, huge_pages: 512 };
        assert_eq!(Setting::Share(500_000).pages(&machine), 500);
        assert_eq!(Setting::Size(4097).pages(&machine), 2);
    }
}
