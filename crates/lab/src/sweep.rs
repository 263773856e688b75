//! Sweeps: an experiment's variants, each at every value of one key.

use highorder_record::matrix::BETWEEN_PARTS;
use serde::Deserialize;
use serde_spanned::Spanned;
use std::ops::Range;

/// One key of an experiment at several values.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// What has the values: `kernel.watermark.boost_factor`, `knobs.vm.swappiness`, `workload.memory`.
    pub key: String,
    /// Its values, as the file writes them.
    pub values: Vec<String>,
    /// The rows of results that are shown over these values; none: those that the workload reports.
    pub measure: Vec<String>,
    /// Names of the variants that the file has.
    pub variants: Vec<String>,
}

impl Sweep {
    /// The name of a variant at one of the values.
    #[must_use]
    pub fn label(variant: &str, value: &str) -> String {
        format!("{variant}{BETWEEN_PARTS}{value}")
    }
}

/// The file's table `[sweep]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SweepValues {
    key: Spanned<String>,
    values: Spanned<Vec<Spanned<toml::Value>>>,
    #[serde(default)]
    measure: Vec<String>,
}

/// Where a key lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Kernel,
    Machine,
    Knobs,
    Workload,
}

/// What a sweep sets in one variant.
pub(crate) struct Setting<'a> {
    pub(crate) place: Place,
    /// The key in its place, such as `watermark.boost_factor`.
    pub(crate) key: &'a str,
    pub(crate) value: &'a Spanned<toml::Value>,
}

const PLACES: [(&str, Place); 4] = [
    ("kernel.", Place::Kernel),
    ("machine.", Place::Machine),
    ("knobs.", Place::Knobs),
    ("workload.", Place::Workload),
];

impl SweepValues {
    /// What is wrong with the table itself, and where.
    pub(crate) fn problems(&self) -> Vec<(Range<usize>, String)> {
        let mut problems = Vec::new();
        let key = self.key.get_ref();
        match self.place() {
            None => problems.push((
                self.key.span(),
                format!(
                    "`key` is `{key}`, expected one that begins with kernel., machine., knobs. or workload."
                ),
            )),
            Some((Place::Kernel | Place::Machine, rest)) if rest.split('.').count() != 2 => problems.push((
                self.key.span(),
                format!("`key` is `{key}`, expected a table and its key, such as kernel.watermark.boost_factor"),
            )),
            Some(_) => {}
        }
        let values = self.values.get_ref();
        if values.is_empty() {
            problems
                .push((self.values.span(), "`values` is empty, expected at least one".to_owned()));
        }
        for (at, value) in values.iter().enumerate() {
            if values[..at].iter().any(|other| other.get_ref() == value.get_ref()) {
                let text = written(value.get_ref());
                problems
                    .push((value.span(), format!("`values` has {text} twice, expected each once")));
            }
        }
        problems
    }

    fn place(&self) -> Option<(Place, &str)> {
        let found = PLACES
            .iter()
            .find_map(|(head, place)| Some((*place, self.key.get_ref().strip_prefix(head)?)));
        found.filter(|(_, rest)| !rest.is_empty())
    }

    /// What is set for each value, with the value's text.
    pub(crate) fn settings(&self) -> Vec<(String, Setting<'_>)> {
        let Some((place, key)) = self.place() else { return Vec::new() };
        let setting = |value| (written(Spanned::get_ref(value)), Setting { place, key, value });
        self.values.get_ref().iter().map(setting).collect()
    }

    /// The sweep of variants of these names.
    pub(crate) fn finish(&self, variants: Vec<String>) -> Sweep {
        Sweep {
            key: self.key.get_ref().clone(),
            values: self.values.get_ref().iter().map(|value| written(value.get_ref())).collect(),
            measure: self.measure.clone(),
            variants,
        }
    }
}

impl Setting<'_> {
    /// The value if it lies in this place.
    pub(crate) fn within(&self, place: Place) -> Option<(&str, &Spanned<toml::Value>)> {
        (self.place == place).then_some((self.key, self.value))
    }

    /// A kernel's or machine's text that sets the value; what is said of a table's source there is that a sweep sets it.
    pub(crate) fn text(&self) -> String {
        let (table, key) = self.key.split_once('.').unwrap_or((self.key, ""));
        let source = match self.place {
            Place::Machine => "source = \"a sweep\"\n",
            _ => "",
        };
        format!("[{table}]\n{key} = {}\n{source}", self.value.get_ref())
    }
}

/// A value as a heading shows it: texts without quotes.
fn written(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
