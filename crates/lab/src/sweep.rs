//! Sweeps: an experiment's variants, each at every value of one key, or at combinations of several keys' values.

use highorder_files::limits;
use highorder_input::Source;
use highorder_record::matrix::BETWEEN_PARTS;
use serde::Deserialize;
use serde_spanned::Spanned;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;

/// Most keys of a sweep: a choice of ours, far below what the sequence of a sample has (`sobol_burley`, 256).
const AXES_MAX: usize = 32;
/// Most points of a sample: of more the sequence has none.
const SAMPLE_MAX: u64 = 1 << 16;
/// The sequence's seed: one for everybody.
const SEED: u32 = 0;

/// A key at several values.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What has the values: `kernel.watermark.boost_factor`, `knobs.vm.swappiness`, `workload.memory`.
    pub key: String,
    /// Its values, as the file writes them.
    pub values: Vec<String>,
}

/// Keys of an experiment at several values.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// The keys.
    pub axes: Vec<Axis>,
    /// What is run: a value for each key.
    pub points: Vec<Vec<String>>,
    /// The rows of results that are shown over these values; none: those that the workload reports.
    pub measure: Vec<String>,
    /// Where each of them is named: the file and its line.
    pub measure_places: Vec<(PathBuf, usize)>,
    /// Names of the variants that the file has.
    pub variants: Vec<String>,
}

impl Sweep {
    /// The name of a variant at one of the points.
    #[must_use]
    pub fn label(variant: &str, point: &[String]) -> String {
        let values = point.iter().map(String::as_str);
        std::iter::once(variant).chain(values).collect::<Vec<_>>().join(BETWEEN_PARTS)
    }

    /// The key, if there is but one.
    #[must_use]
    pub fn one_axis(&self) -> Option<&Axis> {
        self.axes.first().filter(|_| self.axes.len() == 1)
    }
}

/// The file's table `[sweep]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SweepValues {
    key: Option<Spanned<String>>,
    values: Option<Spanned<Vec<Spanned<toml::Value>>>>,
    axes: Option<Spanned<Vec<AxisValues>>>,
    sample: Option<Spanned<u64>>,
    #[serde(default)]
    measure: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AxisValues {
    key: Spanned<String>,
    values: Spanned<Vec<Spanned<toml::Value>>>,
}

/// A key with its values, wherever the table has them.
#[derive(Clone, Copy)]
struct AxisRef<'a> {
    key: &'a Spanned<String>,
    values: &'a Spanned<Vec<Spanned<toml::Value>>>,
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
#[derive(Clone, Copy)]
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

impl<'a> AxisRef<'a> {
    fn problems(self) -> Vec<(Range<usize>, String)> {
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

    fn place(self) -> Option<(Place, &'a str)> {
        let found = PLACES
            .iter()
            .find_map(|(head, place)| Some((*place, self.key.get_ref().strip_prefix(head)?)));
        found.filter(|(_, rest)| !rest.is_empty())
    }

    fn setting(self, at: usize) -> Option<Setting<'a>> {
        let (place, key) = self.place()?;
        Some(Setting { place, key, value: &self.values.get_ref()[at] })
    }
}

impl SweepValues {
    /// What is wrong with the table itself, and where; the table lies there.
    pub(crate) fn problems(&self, table: &Range<usize>) -> Vec<(Range<usize>, String)> {
        let axes = self.axes();
        let mut problems: Vec<_> = axes.iter().flat_map(|axis| axis.problems()).collect();
        let refuse = |span: Range<usize>, message: &str| (span, message.to_owned());
        match (&self.key, &self.values, &self.axes) {
            (Some(_), Some(_), None) | (None, None, Some(_)) => {}
            (None, None, None) => {
                problems.push(refuse(
                    table.clone(),
                    "no `key`, expected `key` and `values`, or `axes`",
                ));
            }
            (Some(key), None, None) => {
                problems.push(refuse(key.span(), "`key` without `values`, expected both"));
            }
            (None, Some(values), None) => {
                problems.push(refuse(values.span(), "`values` without `key`, expected both"));
            }
            (_, _, Some(axes)) => {
                let message = "`axes` beside `key` and `values`, expected one of them";
                problems.push(refuse(axes.span(), message));
            }
        }
        for (at, axis) in axes.iter().enumerate() {
            if axes[..at].iter().any(|other| other.key.get_ref() == axis.key.get_ref()) {
                let message = format!("`{}` twice, expected each key once", axis.key.get_ref());
                problems.push((axis.key.span(), message));
            }
        }
        if let Some(given) = self.axes.as_ref().filter(|_| !(1..=AXES_MAX).contains(&axes.len())) {
            let message = format!("`axes` has {} keys, expected 1 to {AXES_MAX}", axes.len());
            problems.push((given.span(), message));
        }
        if let Some(sample) = &self.sample
            && !(1..=SAMPLE_MAX).contains(sample.get_ref())
        {
            let message = format!("`sample` is {}, expected 1 to {SAMPLE_MAX}", sample.get_ref());
            problems.push((sample.span(), message));
        }
        let (nr, span) = (self.nr_combinations(), self.axes.as_ref().map(Spanned::span));
        if let (None, Some(span), Err(message)) = (&self.sample, span, limits::RUNS.check(nr)) {
            problems.push((span, format!("{message}; `sample` takes some of them")));
        }
        problems
    }

    fn axes(&self) -> Vec<AxisRef<'_>> {
        let one = self.key.as_ref().zip(self.values.as_ref());
        let several = self.axes.iter().flat_map(|axes| axes.get_ref());
        let several = several.map(|axis| AxisRef { key: &axis.key, values: &axis.values });
        one.map(|(key, values)| AxisRef { key, values }).into_iter().chain(several).collect()
    }

    fn nr_combinations(&self) -> u64 {
        let lens = self.axes().into_iter().map(|axis| axis.values.get_ref().len() as u64);
        lens.fold(1, u64::saturating_mul)
    }

    /// Which value each key has at each point: all combinations, the last key's values changing first; or a sample of
    /// them, which covers each key's values evenly however short it is (Sobol's sequence with Owen's scrambling), and
    /// begins with the first values.
    fn places(&self) -> Vec<Vec<usize>> {
        let lens: Vec<usize> = self.axes().iter().map(|axis| axis.values.get_ref().len()).collect();
        let nr = self.nr_combinations();
        let wanted = self.sample.as_ref().map_or(nr, |sample| nr.min(*sample.get_ref()));
        if lens.is_empty() || limits::RUNS.check(wanted).is_err() {
            return Vec::new();
        }
        if wanted < nr {
            let first = vec![0; lens.len()];
            let drawn = (0..SAMPLE_MAX as u32).map(|point| {
                let at = |(dimension, &len): (usize, &usize)| {
                    let share = sobol_burley::sample(point, dimension as u32, SEED);
                    ((f64::from(share) * len as f64) as usize).min(len - 1)
                };
                lens.iter().enumerate().map(at).collect::<Vec<_>>()
            });
            let mut seen = BTreeSet::new();
            let places = std::iter::once(first).chain(drawn);
            return places
                .filter(|place| seen.insert(place.clone()))
                .take(wanted as usize)
                .collect();
        }
        let place = |number: u64| {
            let mut left = number;
            let mut place = vec![0; lens.len()];
            for (at, &len) in place.iter_mut().zip(&lens).rev() {
                *at = (left % len as u64) as usize;
                left /= len as u64;
            }
            place
        };
        (0..nr).map(place).collect()
    }

    /// What is set at each point, with the values' texts.
    pub(crate) fn settings(&self) -> Vec<(Vec<String>, Vec<Setting<'_>>)> {
        let axes = self.axes();
        let at_place = |place: Vec<usize>| {
            let settings: Option<Vec<Setting<'_>>> =
                axes.iter().zip(place).map(|(axis, at)| axis.setting(at)).collect();
            let settings = settings?;
            let texts = settings.iter().map(|setting| written(setting.value.get_ref()));
            Some((texts.collect(), settings))
        };
        self.places().into_iter().filter_map(at_place).collect()
    }

    /// The sweep of variants of these names, at these points, out of this file.
    pub(crate) fn finish(
        &self,
        variants: Vec<String>,
        points: Vec<Vec<String>>,
        source: &Source,
    ) -> Sweep {
        let axis = |axis: AxisRef<'_>| Axis {
            key: axis.key.get_ref().clone(),
            values: axis.values.get_ref().iter().map(|value| written(value.get_ref())).collect(),
        };
        let place = |span: Range<usize>| (source.path.clone(), source.line(span.start));
        Sweep {
            axes: self.axes().into_iter().map(axis).collect(),
            points,
            measure: self.measure.iter().map(|name| name.get_ref().clone()).collect(),
            measure_places: self.measure.iter().map(|name| place(name.span())).collect(),
            variants,
        }
    }
}

impl Setting<'_> {
    /// The value if it lies in this place.
    pub(crate) fn within(&self, place: Place) -> Option<(&str, &Spanned<toml::Value>)> {
        (self.place == place).then_some((self.key, self.value))
    }
}

/// A kernel's or machine's text that sets the values; what is said of a table's source there is that a sweep sets it.
pub(crate) fn text(settings: &[Setting<'_>]) -> String {
    let mut tables: BTreeMap<&str, String> = BTreeMap::new();
    for setting in settings {
        let (table, key) = setting.key.split_once('.').unwrap_or((setting.key, ""));
        let source = match setting.place {
            Place::Machine => "source = \"a sweep\"\n",
            _ => "",
        };
        let lines = tables.entry(table).or_insert_with(|| source.to_owned());
        lines.push_str(&format!("{key} = {}\n", setting.value.get_ref()));
    }
    tables.into_iter().map(|(table, lines)| format!("[{table}]\n{lines}")).collect()
}

/// A value as a heading shows it: texts without quotes.
fn written(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
