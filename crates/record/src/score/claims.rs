//! Claims: what postings say that their tables show, and whether given cells show it.
//!
//! `published/claims.toml` has them, and describes its form at its top. A claim about two variants gives the
//! values `base` and `new` of one row, and `reduction`, `increase` and `ratio` of these; one with `cells` gives
//! each cell a name. Its relation is true or not of published cells, and of what runs measured, by the same code.
//! A claim without cells is prose, as is one whose relation is in words: it is listed, and never judged.

use std::collections::BTreeMap;
use std::fmt;

use highorder_input::{InputError, Source};
use serde::Deserialize;
use serde_spanned::Spanned;

use super::cells::{Cells, SETTINGS, Wanted};
use super::relation::Relation;

/// The claims that come with the program.
const BUILT_IN: &str = include_str!("../../../../published/claims.toml");
const BUILT_IN_PATH: &str = "published/claims.toml";
/// What is known of a row in two variants, under the names that relations have for it.
const PAIR: [&str; 5] = ["reduction", "increase", "ratio", "base", "new"];
const ENDING: &str = ".csv";

/// All claims of a file, in its order.
#[derive(Clone, Debug, PartialEq)]
pub struct Claims(pub Vec<Claim>);

/// One claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Its name, which begins with the number of its document: `000-usemem-elapsed-1t`.
    pub id: String,
    /// The benchmark.
    pub experiment: String,
    /// How much hangs on it.
    pub strength: Strength,
    /// How it is told: `quantitative`, `directional`, `mechanism` and others.
    pub kind: String,
    /// What was claimed, in short.
    pub quote: String,
    /// What has to be true, as it was written.
    pub relation: String,
    /// Of a claim that no figures of ours judge, what stands instead.
    pub instead: Option<Instead>,
    /// What there is to judge.
    subject: Subject,
}

/// What stands for the judgement of a claim that figures do not judge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instead {
    /// Tests that show it, each as `folder/file.rs::name` of a crate.
    ShownBy(Vec<String>),
    /// Why it is not judged.
    Unjudged(String),
}

/// How much hangs on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strength {
    /// A reproduction has to show it.
    Must,
    /// It should.
    Should,
    /// It may.
    May,
    /// Nothing is asked.
    Record,
}

impl fmt::Display for Strength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Must => "must",
            Self::Should => "should",
            Self::May => "may",
            Self::Record => "record",
        })
    }
}

/// What a claim is about.
#[derive(Clone, Debug, PartialEq)]
enum Subject {
    /// Words.
    Prose,
    /// A row in two variants, at some thread counts.
    Pair {
        relation: Relation,
        row: Box<Wanted>,
        baseline: String,
        variant: String,
        threads: Vec<Option<u32>>,
        is_majority: bool,
    },
    /// Cells by name.
    Cells { relation: Relation, cells: Vec<(String, Wanted, Reading)> },
}

/// What is made of a cell.
#[derive(Clone, Debug, PartialEq)]
enum Reading {
    /// Its value, of which there is one.
    Value,
    /// By what share the value is less than that of the baseline.
    Reduction(String),
    Max,
    Min,
    Sum,
}

/// What became of a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// Whether it holds.
    pub verdict: Verdict,
    /// The numbers that its relation was asked about, as far as they are known.
    pub numbers: Vec<Number>,
    /// Of the thread counts that it is about, for how many it holds; none if it is about no counts.
    pub counts: Option<[usize; 2]>,
    /// The number that the relation compares first; of a claim about several thread counts, for how many it holds.
    /// None if it is not known, or is no number.
    pub quantity: Option<f64>,
}

/// Whether a claim holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Its relation is true.
    Held,
    /// Its relation is false.
    Failed,
    /// A cell is missing.
    NotRun,
    /// It is in words, or nothing is asked.
    Prose,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Held => "held",
            Self::Failed => "failed",
            Self::NotRun => "not run",
            Self::Prose => "prose",
        })
    }
}

/// A name of a relation and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    /// The name.
    pub name: String,
    /// For which thread count, if there are several.
    pub threads: Option<u32>,
    /// The value.
    pub value: f64,
}

impl Claims {
    /// The claims that come with the program.
    ///
    /// # Panics
    /// Never: a test reads them.
    #[must_use]
    pub fn built_in() -> Self {
        Self::parse(BUILT_IN_PATH, BUILT_IN).unwrap_or_else(|problems| panic!("{problems}"))
    }

    /// Reads the claims of a file; the path is for messages.
    ///
    /// # Errors
    /// Everything that is misspelt, missing or contradicts itself, with file and line.
    pub fn parse(path: &str, text: &str) -> Result<Self, InputError> {
        let source = Source { path: path.into(), text: text.to_owned(), is_built_in: false };
        let file: File = toml::from_str(text).map_err(|error| source.refuse_toml(&error))?;
        let (mut claims, mut problems) = (Vec::<Claim>::new(), Vec::new());
        for values in file.claims {
            let span = values.span();
            match values.into_inner().finish() {
                Ok(claim) if claims.iter().any(|other| other.id == claim.id) => {
                    let id = claim.id;
                    let message = format!("`{id}` is there twice, expected once");
                    problems.push(source.refuse(&span, message));
                }
                Ok(claim) => claims.push(claim),
                Err(problem) => problems.push(source.refuse(&span, problem)),
            }
        }
        if problems.is_empty() { Ok(Self(claims)) } else { Err(InputError::all(problems)) }
    }
}

impl Claim {
    /// The number of its document: what stands before the first hyphen.
    #[must_use]
    pub fn document(&self) -> &str {
        self.id.split('-').next().unwrap_or_default()
    }

    /// The published files whose cells it is about.
    #[must_use]
    pub fn files(&self) -> Vec<&str> {
        let mut files: Vec<&str> = match &self.subject {
            Subject::Prose => Vec::new(),
            Subject::Pair { row, .. } => vec![&row.file],
            Subject::Cells { cells, .. } => {
                cells.iter().map(|(_, wanted, _)| wanted.file.as_str()).collect()
            }
        };
        files.dedup();
        files
    }

    /// Whether these cells show it.
    #[must_use]
    pub fn judge(&self, cells: &Cells) -> Judged {
        match &self.subject {
            Subject::Prose => Judged {
                verdict: Verdict::Prose,
                numbers: Vec::new(),
                counts: None,
                quantity: None,
            },
            Subject::Cells { relation, cells: named } => {
                let values: BTreeMap<&str, f64> = named
                    .iter()
                    .filter_map(|(name, wanted, reading)| {
                        Some((name.as_str(), reading.of(cells, wanted)?))
                    })
                    .collect();
                let value = |name: &str| values.get(name).copied();
                let verdict = verdict(relation.holds(&value));
                let quantity = relation.quantity(&value);
                let number = |name: &str| {
                    let value = *values.get(name)?;
                    Some(Number { name: name.to_owned(), threads: None, value })
                };
                let numbers = relation.names().into_iter().filter_map(number).collect();
                Judged { verdict, numbers, counts: None, quantity }
            }
            Subject::Pair { relation, row, baseline, variant, threads, is_majority } => {
                let mut numbers = Vec::new();
                let (mut found, mut quantity) = (Vec::new(), None);
                for threads in threads {
                    let of = |variant: &String| {
                        let variant = variant.clone();
                        let wanted = Wanted { variant, threads: *threads, ..(**row).clone() };
                        Reading::Value.of(cells, &wanted)
                    };
                    let (base, new) = (of(baseline), of(variant));
                    let value = |name: &str| pair_value(name, base?, new?);
                    found.push(relation.holds(&value));
                    quantity = relation.quantity(&value);
                    for name in relation.names() {
                        let name = name.to_owned();
                        let value = value(&name);
                        numbers.extend(value.map(|value| Number {
                            name,
                            threads: *threads,
                            value,
                        }));
                    }
                }
                let nr_held = found.iter().filter(|holds| **holds == Some(true)).count();
                let all: Option<Vec<bool>> = found.iter().copied().collect();
                let holds = all.map(|all| match is_majority {
                    true => 2 * nr_held > all.len(),
                    false => nr_held == all.len(),
                });
                let counts = (threads.len() > 1).then_some([nr_held, threads.len()]);
                if counts.is_some() {
                    quantity = holds.map(|_| nr_held as f64);
                }
                Judged { verdict: verdict(holds), numbers, counts, quantity }
            }
        }
    }
}

fn verdict(holds: Option<bool>) -> Verdict {
    match holds {
        Some(true) => Verdict::Held,
        Some(false) => Verdict::Failed,
        None => Verdict::NotRun,
    }
}

/// What a relation's name means for a row in two variants. Equal values are no change, 0 and 0 too.
fn pair_value(name: &str, base: f64, new: f64) -> Option<f64> {
    let ratio = if base == new { 1.0 } else { new / base };
    match name {
        "reduction" => Some(1.0 - ratio),
        "increase" => Some(ratio - 1.0),
        "ratio" => Some(ratio),
        "base" => Some(base),
        "new" => Some(new),
        _ => None,
    }
}

impl Instead {
    /// The tests that show it.
    #[must_use]
    pub fn tests(&self) -> &[String] {
        match self {
            Self::ShownBy(tests) => tests,
            Self::Unjudged(_) => &[],
        }
    }
}

impl fmt::Display for Instead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShownBy(tests) => write!(f, "shown by {}", tests.join(", ")),
            Self::Unjudged(reason) => f.write_str(reason),
        }
    }
}

impl Reading {
    /// The value, if every cell that it takes is there. A single value is the first of those meant: which these
    /// are is checked where claims are, on the published cells.
    fn of(&self, cells: &Cells, wanted: &Wanted) -> Option<f64> {
        let values = cells.find(wanted);
        let first = *values.first()?;
        let values = values.into_iter();
        match self {
            Self::Value => Some(first),
            Self::Max => values.reduce(f64::max),
            Self::Min => values.reduce(f64::min),
            // Of a part of what was published it would be another sum.
            Self::Sum if values.len() < Cells::published().find(wanted).len() => None,
            Self::Sum => Some(values.sum()),
            Self::Reduction(baseline) => {
                let base = Wanted { variant: baseline.clone(), ..wanted.clone() };
                pair_value("reduction", *cells.find(&base).first()?, first)
            }
        }
    }
}

// The file's form.

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "claim")]
    claims: Vec<Spanned<ClaimValues>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimValues {
    id: String,
    #[serde(rename = "seed")]
    _document: String,
    experiment: String,
    kind: String,
    strength: Strength,
    metric: String,
    stat: Option<String>,
    threads: Option<Threads>,
    agg: Option<Aggregate>,
    baseline: Option<String>,
    variant: Option<String>,
    data: Option<String>,
    quote: String,
    relation: String,
    #[serde(default)]
    cells: Vec<CellValues>,
    machine: Option<String>,
    config: Option<String>,
    posting: Option<String>,
    shown_by: Option<Vec<String>>,
    unjudged: Option<String>,
    /// What the posting told, and what is to be said of it: for readers of the file.
    #[serde(rename = "published")]
    _published: Option<toml::Value>,
    #[serde(rename = "source")]
    _source: Option<String>,
    #[serde(rename = "note")]
    _note: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CellValues {
    name: String,
    data: String,
    metric: String,
    stat: Option<String>,
    threads: Option<u32>,
    baseline: Option<String>,
    variant: String,
    machine: Option<String>,
    config: Option<String>,
    posting: Option<String>,
    value: Option<CellReading>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum CellReading {
    Reduction,
    Max,
    Min,
    Sum,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Threads {
    One(u32),
    Several(Vec<u32>),
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Aggregate {
    All,
    Majority,
}

impl ClaimValues {
    fn finish(self) -> Result<Claim, String> {
        let subject = self.subject()?;
        let Self { id, experiment, strength, kind, quote, relation, shown_by, unjudged, .. } = self;
        let instead = match (shown_by, unjudged) {
            (None, None) => None,
            (Some(tests), None) => Some(Instead::ShownBy(tests)),
            (None, Some(reason)) => Some(Instead::Unjudged(reason)),
            (Some(_), Some(_)) => {
                return Err(format!("{id}: both `shown_by` and `unjudged`, expected one of them"));
            }
        };
        if instead.is_some() && subject != Subject::Prose && strength != Strength::Record {
            return Err(format!(
                "{id}: figures judge it, expected neither `shown_by` nor `unjudged`"
            ));
        }
        Ok(Claim { id, experiment, strength, kind, quote, relation, instead, subject })
    }

    fn subject(&self) -> Result<Subject, String> {
        let id = &self.id;
        if !self.cells.is_empty() {
            let relation = Relation::parse(&self.relation).map_err(|e| format!("{id}: {e}"))?;
            let cells: Vec<_> =
                self.cells.iter().map(|cell| cell.finish(id)).collect::<Result<_, _>>()?;
            let known: Vec<&str> = cells.iter().map(|(name, ..)| name.as_str()).collect();
            self.check_names(&relation, &known)?;
            return Ok(Subject::Cells { relation, cells });
        }
        let (Some(data), Some(baseline), Some(variant)) =
            (&self.data, &self.baseline, &self.variant)
        else {
            return Ok(Subject::Prose);
        };
        // Of a row nothing may be asked that could be computed: the relation then is in words.
        let Ok(relation) = Relation::parse(&self.relation) else { return Ok(Subject::Prose) };
        self.check_names(&relation, &PAIR)?;
        let threads = match &self.threads {
            None => vec![None],
            Some(Threads::One(threads)) => vec![Some(*threads)],
            Some(Threads::Several(all)) => all.iter().copied().map(Some).collect(),
        };
        if (threads.len() > 1) != self.agg.is_some() {
            return Err(format!(
                "{id}: {} thread counts, expected `agg` beside several and only there",
                threads.len()
            ));
        }
        let settings = SETTINGS.map(|setting| match setting {
            "machine" => self.machine.clone(),
            "config" => self.config.clone(),
            _ => self.posting.clone(),
        });
        let row = Wanted {
            file: stem(id, data)?,
            metric: self.metric.clone(),
            stat: self.stat.clone(),
            settings,
            ..Wanted::default()
        };
        Ok(Subject::Pair {
            relation,
            row: Box::new(row),
            baseline: baseline.clone(),
            variant: variant.clone(),
            threads,
            is_majority: self.agg == Some(Aggregate::Majority),
        })
    }

    fn check_names(&self, relation: &Relation, known: &[&str]) -> Result<(), String> {
        let names = relation.names();
        match names.iter().find(|name| !known.contains(name)) {
            None => Ok(()),
            Some(name) => Err(format!(
                "{}: the relation asks for `{name}`, expected one of {}",
                self.id,
                known.join(", ")
            )),
        }
    }
}

impl CellValues {
    fn finish(&self, id: &str) -> Result<(String, Wanted, Reading), String> {
        let reading = match (self.value, &self.baseline) {
            (None, None) => Reading::Value,
            (Some(CellReading::Max), None) => Reading::Max,
            (Some(CellReading::Min), None) => Reading::Min,
            (Some(CellReading::Sum), None) => Reading::Sum,
            (Some(CellReading::Reduction), Some(baseline)) => Reading::Reduction(baseline.clone()),
            _ => {
                return Err(format!(
                    "{id}: cell `{}`, expected `baseline` beside `value = \"reduction\"` and only there",
                    self.name
                ));
            }
        };
        let wanted = Wanted {
            file: stem(id, &self.data)?,
            metric: self.metric.clone(),
            stat: self.stat.clone(),
            threads: self.threads,
            variant: self.variant.clone(),
            settings: [self.machine.clone(), self.config.clone(), self.posting.clone()],
        };
        Ok((self.name.clone(), wanted, reading))
    }
}

/// A file's name without its ending.
fn stem(id: &str, file: &str) -> Result<String, String> {
    let stem = file.strip_suffix(ENDING).map(ToOwned::to_owned);
    stem.ok_or_else(|| format!("{id}: `data` is `{file}`, expected a file that ends in {ENDING}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::Cell;

    #[test]
    fn each_relation_is_true_of_the_published_cells() {
        let (claims, cells) = (Claims::built_in(), Cells::published());
        let mut nr = 0;
        for claim in &claims.0 {
            let judged = claim.judge(&cells);
            if judged.verdict != Verdict::Prose {
                assert_eq!(judged.verdict, Verdict::Held, "{}: {judged:?}", claim.id);
                assert!(!judged.numbers.is_empty(), "{}", claim.id);
                nr += 1;
            }
        }
        assert_eq!((claims.0.len(), nr), (208, 169), "all claims, and those that can be judged");
    }

    #[test]
    fn each_claim_is_judged_by_figures_or_shown_by_a_test_or_has_a_reason() {
        for claim in &Claims::built_in().0 {
            let is_judged = claim.subject != Subject::Prose && claim.strength != Strength::Record;
            assert_eq!(is_judged, claim.instead.is_none(), "{}", claim.id);
            for test in claim.instead.iter().flat_map(|instead| instead.tests()) {
                let (file, name) = test.split_once("::").expect("a file and a test");
                let path = format!("{}/../{file}", env!("CARGO_MANIFEST_DIR"));
                let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
                let marked = format!(
                    "#[test]\n{}fn {name}(",
                    if file.contains("/src/") { "    " } else { "" }
                );
                assert!(text.contains(&marked), "{}: no test {test}", claim.id);
            }
        }
    }

    #[test]
    fn a_claim_means_one_cell_where_it_reads_one() {
        let cells = Cells::published();
        let check = |claim: &Claim, wanted: &Wanted| {
            let found = cells.find(wanted);
            let is_one = found.iter().all(|value| *value == found[0]);
            assert!(!found.is_empty() && is_one, "{}: {wanted:?} is {found:?}", claim.id);
        };
        for claim in &Claims::built_in().0 {
            match &claim.subject {
                Subject::Prose => {}
                Subject::Pair { row, baseline, variant, threads, .. } => {
                    for (variant, threads) in [baseline, variant]
                        .into_iter()
                        .flat_map(|v| threads.iter().map(move |t| (v, t)))
                    {
                        let variant = variant.clone();
                        check(claim, &Wanted { variant, threads: *threads, ..(**row).clone() });
                    }
                }
                Subject::Cells { cells: named, .. } => {
                    for (_, wanted, reading) in named {
                        if matches!(reading, Reading::Value | Reading::Reduction(_)) {
                            check(claim, wanted);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn only_one_claim_about_a_row_asks_for_nothing() {
        let text: toml::Value = toml::from_str(BUILT_IN).unwrap();
        let claims = Claims::built_in();
        let has_row = |id: &str| {
            let all = text["claim"].as_array().unwrap();
            all.iter().any(|claim| claim["id"].as_str() == Some(id) && claim.get("data").is_some())
        };
        let prose = claims.0.iter().filter(|claim| claim.subject == Subject::Prose);
        let found: Vec<&str> =
            prose.map(|claim| claim.id.as_str()).filter(|id| has_row(id)).collect();
        assert_eq!(found, ["003-postmark-tps"]);
    }

    const CLAIM: &str = r#"
[[claim]]
id = "000-x"
seed = "x"
experiment = "x"
kind = "directional"
strength = "must"
metric = "System"
data = "x.csv"
baseline = "a"
variant = "b"
threads = [1, 4, 7]
agg = "all"
quote = "It is less."
relation = "reduction > 0.1"
"#;

    fn cells(values: &[(u32, &str, f64)]) -> Cells {
        let cell = |&(threads, variant, value): &(u32, &str, f64)| Cell {
            file: "x".into(),
            metric: "System".into(),
            stat: "Amean".into(),
            threads: Some(threads),
            variant: variant.into(),
            settings: Default::default(),
            value,
        };
        Cells(values.iter().map(cell).collect())
    }

    #[test]
    fn several_thread_counts_have_to_agree_all_or_by_majority() {
        let found = [(1, "a", 10.0), (1, "b", 5.0), (4, "a", 10.0), (4, "b", 8.0), (7, "a", 0.0)];
        let mut found = found.to_vec();
        let all = &Claims::parse("x.toml", CLAIM).unwrap().0[0];
        let majority = CLAIM.replace("\"all\"", "\"majority\"");
        let majority = &Claims::parse("x.toml", &majority).unwrap().0[0];
        assert_eq!(all.judge(&cells(&found)).verdict, Verdict::NotRun, "one cell is missing");
        found.push((7, "b", 0.0));
        let judged = all.judge(&cells(&found));
        assert_eq!((judged.verdict, judged.counts), (Verdict::Failed, Some([2, 3])));
        let values: Vec<f64> = judged.numbers.iter().map(|number| number.value).collect();
        assert_eq!(values, [0.5, 1.0 - 0.8, 0.0], "0 and 0 are no change");
        assert_eq!(majority.judge(&cells(&found)).verdict, Verdict::Held);
    }

    #[test]
    fn what_is_wrong_in_a_file_is_told_with_its_line() {
        for (from, to, expected) in [
            (
                "reduction > 0.1",
                "shrinkage > 0.1",
                "x.toml:2: 000-x: the relation asks for `shrinkage`",
            ),
            ("agg = \"all\"\n", "", "x.toml:2: 000-x: 3 thread counts, expected `agg`"),
            ("\"must\"", "\"will\"", "x.toml:7: unknown variant `will`"),
            ("x.csv", "x.tsv", "x.toml:2: 000-x: `data` is `x.tsv`, expected a file"),
            ("quote", "qoute", "x.toml:14: unknown field `qoute`"),
        ] {
            let error = Claims::parse("x.toml", &CLAIM.replacen(from, to, 1));
            let error = error.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let twice = format!("{CLAIM}{CLAIM}");
        let error = Claims::parse("x.toml", &twice).unwrap_err();
        assert_eq!(error.to_string(), "x.toml:17: `000-x` is there twice, expected once");
    }
}
