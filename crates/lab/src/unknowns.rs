//! What documents do not say of their machines, and the machines drawn from what it may have been.
//!
//! `published/unknowns.toml` names the facts, each with figures from public sources. Machine 1 is the nominal one, as
//! the machine file has it. Each further machine is a point of a low-discrepancy sequence over all unknowns of a
//! document: Sobol's, with Owen's scrambling (B. Burley, Practical Hash-based Owen Scrambling, 2020), so that few
//! machines already cover each range, and more of them only add to what there is.

mod key;

use crate::experiment::{Experiment, Variant};
use crate::reproduce::reproductions;
use highorder_input::{InputError, Source};
use highorder_sim::Machine;
pub use key::Key;
use serde::Deserialize;
use serde_spanned::Spanned;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::ops;

/// The unknowns that come with the program.
const BUILT_IN: &str = include_str!("../../../published/unknowns.toml");
const BUILT_IN_PATH: &str = "published/unknowns.toml";
/// The sequence's seed: one for everybody, so that all speak of the same machines.
const SEED: u32 = 0;
/// Most machines of a document: of more the sequence has no points (`sobol_burley`).
pub const MACHINES_MAX: u32 = 1 << 16;
/// Digits of a drawn value.
const DIGITS: i32 = 4;
/// What figures are factors of.
const FACTOR: &str = "times";

/// One of the machines that a document's may have been, counted from 1, the nominal one.
pub type MachineNumber = NonZeroU32;

/// All unknowns of a file, in its order.
#[derive(Clone, Debug, PartialEq)]
pub struct Unknowns(pub Vec<Unknown>);

/// A fact that a document leaves open.
#[derive(Clone, Debug, PartialEq)]
pub struct Unknown {
    /// Its name, one of its kind in a document.
    pub name: String,
    /// The document's number.
    pub document: String,
    /// The experiments that it is a fact of.
    pub experiments: Vec<String>,
    /// What is not said.
    pub missing: String,
    /// What it may be.
    pub range: Range,
    /// Its place among the unknowns of the document.
    dimension: u32,
}

/// What a fact may be.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    /// Its name.
    pub name: String,
    /// What it sets of a machine.
    pub keys: Vec<Key>,
    /// Of what its values are.
    pub unit: String,
    /// How values lie in it.
    pub drawn: Drawn,
    /// The values that are known from somewhere, ascending.
    pub figures: Vec<Figure>,
}

/// How values are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Drawn {
    /// Evenly between the least and the greatest figure.
    #[serde(rename = "evenly")]
    Evenly,
    /// As many between 1 and 2 as between 2 and 4.
    #[serde(rename = "by factors")]
    ByFactors,
    /// Each figure as often as any other.
    #[serde(rename = "one of")]
    OneOf,
}

/// A value from a public source.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The value, in the range's unit.
    pub value: f64,
    /// Who says so.
    pub source: String,
}

impl Unknowns {
    /// The unknowns that come with the program.
    ///
    /// # Errors
    /// As [`Unknowns::parse`]; a test reads them.
    pub fn built_in() -> Result<Self, InputError> {
        Self::parse(BUILT_IN_PATH, BUILT_IN)
    }

    /// Reads the unknowns of a file; the path is for messages.
    ///
    /// # Errors
    /// Everything that is misspelt, missing or contradicts itself, with file and line.
    pub fn parse(path: &str, text: &str) -> Result<Self, InputError> {
        let source = Source { path: path.into(), text: text.to_owned(), is_built_in: false };
        let file: File = toml::from_str(text).map_err(|error| source.refuse_toml(&error))?;
        let documents: BTreeMap<String, String> = reproductions()?
            .into_iter()
            .map(|one| (one.experiment.name.clone(), one.document().to_owned()))
            .collect();
        let mut checks = Checks { source: &source, problems: Vec::new() };
        let ranges = checks.ranges(&file.ranges);
        let unknowns = checks.unknowns(&file.unknowns, &ranges, &documents);
        match checks.problems {
            problems if problems.is_empty() => Ok(Self(unknowns)),
            problems => Err(InputError::all(problems)),
        }
    }

    /// Those of a document, in the file's order.
    pub fn of_document<'a>(&'a self, document: &'a str) -> impl Iterator<Item = &'a Unknown> {
        self.0.iter().filter(move |unknown| unknown.document == document)
    }

    /// The experiment as it is on this machine.
    ///
    /// # Errors
    /// A value that one of its machines cannot have.
    pub fn on_machine(
        &self,
        experiment: &Experiment,
        number: MachineNumber,
    ) -> Result<Experiment, InputError> {
        let mut drawn = experiment.clone();
        if number == MachineNumber::MIN {
            return Ok(drawn);
        }
        for variant in &mut drawn.variants {
            variant.drawn = Some(number);
            for unknown in self.0.iter().filter(|one| one.experiments.contains(&experiment.name)) {
                unknown.set(variant, number)?;
            }
        }
        Ok(drawn)
    }
}

impl Unknown {
    /// What it is on a machine; none on the nominal one, which is as its file says.
    #[must_use]
    pub fn value(&self, number: MachineNumber) -> Option<f64> {
        let point = number.get().checked_sub(2)?;
        let share = f64::from(sobol_burley::sample(point, self.dimension, SEED));
        Some(self.range.at(share))
    }

    /// What it is on a machine as its file says; none if it says nothing of it.
    #[must_use]
    pub fn nominal(&self, machine: &Machine) -> Option<f64> {
        if self.range.is_factor() { Some(1.0) } else { self.range.keys[0].get(machine) }
    }

    fn set(&self, variant: &mut Variant, number: MachineNumber) -> Result<(), InputError> {
        let Some(value) = self.value(number) else { return Ok(()) };
        for key in &self.range.keys {
            let machine = &mut variant.machine;
            let value = match self.range.is_factor() {
                true => key.get(machine).map(|nominal| nominal * value),
                false => Some(value),
            };
            // What a machine does not have, such as a disk, is no unknown of it.
            let Some(value) = value else { continue };
            key.set(machine, value).map_err(|why| {
                InputError::other(format!(
                    "machine {number} of `{}`: {} of {}: {why}",
                    variant.name, self.name, machine.name
                ))
            })?;
        }
        Ok(())
    }
}

impl Range {
    /// The least and the greatest value.
    #[must_use]
    pub fn ends(&self) -> [f64; 2] {
        [self.figures[0].value, self.figures[self.figures.len() - 1].value]
    }

    /// Whether its values multiply what a machine file says.
    #[must_use]
    pub fn is_factor(&self) -> bool {
        self.unit == FACTOR
    }

    /// The value at a share of the range, from 0 to less than 1.
    fn at(&self, share: f64) -> f64 {
        let [least, most] = self.ends();
        let value = match self.drawn {
            Drawn::OneOf => {
                let at = (share * self.figures.len() as f64) as usize;
                return self.figures[at.min(self.figures.len() - 1)].value;
            }
            Drawn::Evenly => least + share * (most - least),
            // In software: the same digits on every machine.
            Drawn::ByFactors => least * libm::pow(most / least, share),
        };
        let rounded = rounded(value).clamp(least, most);
        let is_whole = !self.is_factor() && self.keys.iter().all(Key::is_whole);
        if is_whole { rounded.round() } else { rounded }
    }
}

/// A number to [`DIGITS`] digits.
fn rounded(value: f64) -> f64 {
    let digits = DIGITS - 1 - libm::floor(libm::log10(value.abs())) as i32;
    match digits {
        0.. => {
            let unit = 10_f64.powi(digits);
            (value * unit).round() / unit
        }
        _ => {
            let unit = 10_f64.powi(-digits);
            (value / unit).round() * unit
        }
    }
}

// The file's form.

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "range", default)]
    ranges: BTreeMap<String, RangeValues>,
    #[serde(rename = "unknown", default)]
    unknowns: Vec<UnknownValues>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RangeValues {
    keys: Spanned<Vec<Spanned<String>>>,
    unit: String,
    drawn: Drawn,
    figures: Spanned<Vec<Figure>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UnknownValues {
    name: Spanned<String>,
    experiments: Spanned<Vec<Spanned<String>>>,
    missing: String,
    range: Spanned<String>,
}

/// Gathers what is wrong, with its line.
struct Checks<'a> {
    source: &'a Source,
    problems: Vec<InputError>,
}

impl Checks<'_> {
    fn refuse(&mut self, span: ops::Range<usize>, message: impl std::fmt::Display) {
        self.problems.push(self.source.refuse(&span, message));
    }

    fn ranges(&mut self, values: &BTreeMap<String, RangeValues>) -> BTreeMap<String, Range> {
        values
            .iter()
            .map(|(name, values)| (name.clone(), self.range(name.clone(), values)))
            .collect()
    }

    fn range(&mut self, name: String, values: &RangeValues) -> Range {
        let mut keys = Vec::new();
        for key in values.keys.get_ref() {
            match Key::parse(key.get_ref()) {
                Ok(key) => keys.push(key),
                Err(message) => self.refuse(key.span(), message),
            }
        }
        if values.keys.get_ref().is_empty() {
            self.refuse(values.keys.span(), "`keys` is empty, expected what the range sets");
        }
        let mut figures = values.figures.get_ref().clone();
        figures.sort_by(|a, b| a.value.total_cmp(&b.value));
        let span = values.figures.span();
        if figures.len() < 2 || figures.windows(2).any(|pair| pair[0].value == pair[1].value) {
            let found = figures.len();
            self.refuse(span.clone(), format!("{found} figures, expected two or more that differ"));
        }
        if let Some(figure) = figures.iter().find(|figure| figure.source.trim().is_empty()) {
            let message = format!("{} has no source, expected who says so", figure.value);
            self.refuse(span.clone(), message);
        }
        let has_room = |figure: &Figure| figure.value.is_finite() && figure.value >= 0.0;
        let is_positive = figures.first().is_some_and(|least| least.value > 0.0);
        if !figures.iter().all(has_room) || (values.drawn != Drawn::OneOf && !is_positive) {
            self.refuse(span, "a figure that is no amount, expected numbers above 0");
        }
        Range { name, keys, unit: values.unit.clone(), drawn: values.drawn, figures }
    }

    fn unknowns(
        &mut self,
        all: &[UnknownValues],
        ranges: &BTreeMap<String, Range>,
        documents: &BTreeMap<String, String>,
    ) -> Vec<Unknown> {
        let known: Vec<&str> = documents.keys().map(String::as_str).collect();
        let range_names: Vec<&str> = ranges.keys().map(String::as_str).collect();
        let mut unknowns: Vec<Unknown> = Vec::new();
        for values in all {
            let mut found = BTreeSet::new();
            for experiment in values.experiments.get_ref() {
                let name = experiment.get_ref();
                match documents.get(name) {
                    Some(document) => drop(found.insert(document.clone())),
                    None => {
                        let expected = highorder_input::expected(name, &known);
                        let message = format!("no experiment `{name}` repeats tables, {expected}");
                        self.refuse(experiment.span(), message);
                    }
                }
            }
            let document = match found.len() {
                1 => found.into_iter().next().unwrap_or_default(),
                nr => {
                    let span = values.experiments.span();
                    self.refuse(span, format!("experiments of {nr} documents, expected of one"));
                    continue;
                }
            };
            let name = values.name.get_ref().clone();
            if unknowns.iter().any(|other| (&other.document, &other.name) == (&document, &name)) {
                let message = format!("`{name}` is there twice in {document}, expected once");
                self.refuse(values.name.span(), message);
            }
            let Some(range) = ranges.get(values.range.get_ref()) else {
                let expected = highorder_input::expected(values.range.get_ref(), &range_names);
                let message = format!("no range `{}`, {expected}", values.range.get_ref());
                self.refuse(values.range.span(), message);
                continue;
            };
            let dimension = unknowns.iter().filter(|other| other.document == document).count();
            unknowns.push(Unknown {
                name,
                document,
                experiments: values
                    .experiments
                    .get_ref()
                    .iter()
                    .map(|experiment| experiment.get_ref().clone())
                    .collect(),
                missing: values.missing.clone(),
                range: range.clone(),
                dimension: dimension as u32,
            });
        }
        unknowns
    }
}

#[cfg(test)]
mod tests;
