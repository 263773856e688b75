//! What became of published tables and claims, as tables, a picture and documents.

use super::across::{Machines, Where};
use super::part::Part;
use super::score::{Score, coverage_table, score_table, scores, standing_table};
use crate::failure::Failure;
use crate::output::VERSION;
use highorder_lab::unknowns::MachineNumber;
use highorder_page::reproduction::{self, Section};
use highorder_record::score::{Cells, Claim, Claims, Judged, Standing, Strength, Verdict, tidy};
use highorder_report::{Caption, DotPlot};
use highorder_tables::{Table, Value, text};
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;

/// Characters of a claim's relation and numbers that people are shown; programs get all.
const RELATION_WIDTH: usize = 44;
const NUMBERS_WIDTH: usize = 40;

/// All of it.
pub(super) struct Report {
    pub(super) parts: Vec<Part>,
    published: Cells,
    pub(super) claims: Vec<Judgement>,
    /// Of each document, and of all together.
    scores: Vec<Score>,
    pub(super) machines: Machines,
    command: String,
}

/// A claim and what became of it.
pub(super) struct Judgement {
    pub(super) claim: Claim,
    /// On the published cells.
    pub(super) published: Judged,
    /// On ours of each machine, the nominal one first.
    pub(super) ours: Vec<Judged>,
    /// What to run for what is missing.
    missing: String,
}

/// How much of long words is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words {
    /// What fits beside other columns.
    Short,
    /// All.
    Whole,
}

impl Report {
    pub(super) fn new(
        parts: Vec<Part>,
        machines: Machines,
        only: &[String],
        command: String,
    ) -> Self {
        let published = Cells::published();
        // What was measured on a machine, of all experiments together.
        let of_machine = |machine: usize| -> Cells {
            let cells = parts.iter().filter_map(|part| part.ours.get(machine));
            Cells(cells.flat_map(|cells| cells.0.iter().cloned()).collect())
        };
        let ours: Vec<Cells> = (0..machines.len()).map(of_machine).collect();
        let files: BTreeSet<&str> =
            parts.iter().flat_map(|part| &part.form.tables).map(|table| table.file).collect();
        // What is of one file belongs to whoever repeats it; what is of none, to its document as a whole.
        let is_shown = |claim: &Claim| {
            let files_of = claim.files();
            only.is_empty()
                || only.iter().any(|word| word == claim.document())
                || (!files_of.is_empty() && files_of.iter().any(|file| files.contains(file)))
        };
        let mut claims = Claims::built_in().0;
        claims.retain(is_shown);
        let claims: Vec<Judgement> = claims
            .into_iter()
            .map(|claim| Judgement {
                published: claim.judge(&published),
                ours: ours.iter().map(|ours| claim.judge(ours)).collect(),
                missing: missing(&claim, &parts),
                claim,
            })
            .collect();
        let scores = scores(&parts, &claims, &machines);
        Self { parts, published, claims, scores, machines, command }
    }

    pub(super) fn text(&self, score_only: bool) -> String {
        let mut text = String::new();
        if !score_only {
            for part in &self.parts {
                text.push_str(&format!("{}\n\n", part.heading()));
                for table in part.tables(&self.published) {
                    text.push_str(&format!("{}\n", table.text()));
                }
            }
            text.push_str(&format!("{}\n", self.claims_table(Words::Short).text()));
            self.unknown_tables().iter().for_each(|table| {
                text.push_str(&format!("{}\n", table.text()));
            });
        } else if self.claims.iter().any(|one| one.nominal().verdict == Verdict::Failed) {
            text.push_str(&format!("{}\n", self.failed_table().text()));
        }
        self.score_tables().iter().for_each(|table| {
            text.push_str(&format!("{}\n", table.text()));
        });
        self.notes().iter().for_each(|note| text.push_str(&format!("{note}\n")));
        text.push_str(&format!("\n{VERSION}; again with: {}\n", self.command));
        text
    }

    pub(super) fn markdown(&self, score_only: bool) -> String {
        let mut text = String::new();
        if !score_only {
            for part in &self.parts {
                text.push_str(&format!("## {}\n\n", part.heading()));
                for table in part.tables(&self.published) {
                    text.push_str(&format!("{}\n", table.markdown()));
                }
            }
            text.push_str(&format!("{}\n", self.claims_table(Words::Whole).markdown()));
            self.unknown_tables().iter().for_each(|table| {
                text.push_str(&format!("{}\n", table.markdown()));
            });
        } else {
            text.push_str(&format!("{}\n", self.failed_table().markdown()));
        }
        self.score_tables().iter().for_each(|table| {
            text.push_str(&format!("{}\n", table.markdown()));
        });
        self.notes().iter().for_each(|note| text.push_str(&format!("- {note}\n")));
        text.push_str(&format!("\n{VERSION}; again with: `{}`\n", self.command));
        text
    }

    /// One page: the score, the picture, the claims, and the tables.
    pub(super) fn html(&self, score_only: bool) -> Result<String, Failure> {
        let mut sections = vec![
            Section { heading: "Score".to_owned(), tables: self.score_tables() },
            Section {
                heading: "Claims".to_owned(),
                tables: vec![match score_only {
                    true => self.failed_table(),
                    false => self.claims_table(Words::Whole),
                }],
            },
        ];
        if self.machines.are_many() {
            sections.push(Section {
                heading: "Where claims hold".to_owned(),
                tables: self.unknown_tables(),
            });
        }
        if !score_only {
            let of_part = |part: &Part| Section {
                heading: part.heading(),
                tables: part.tables(&self.published),
            };
            sections.extend(self.parts.iter().map(of_part));
        }
        let page = reproduction::Page {
            kind: "reproduction",
            title: "Published tables and ours",
            command: &self.command,
            version: VERSION,
            verdict: &[],
            notes: &self.notes(),
            picture: &self.picture(),
            picture_description: "By how much each published row changed, and by how much ours did",
            links: &[],
            sections: &sections,
        };
        reproduction::render(&page).map_err(|error| Failure::internal(error.to_string()))
    }

    pub(super) fn json(&self) -> Result<String, Failure> {
        let table = |table: &Table| -> Result<Json, Failure> {
            serde_json::from_str(&table.json()).map_err(|e| Failure::internal(e.to_string()))
        };
        let part = |part: &Part| -> Result<Json, Failure> {
            let tables: Result<Vec<Json>, Failure> =
                part.tables(&self.published).iter().map(table).collect();
            Ok(json!({
                "published": part.form.name,
                "experiment": part.experiment,
                "origin": part.origin,
                "columns_not_run": part.missing_columns(),
                "tables": tables?,
            }))
        };
        let numbers = |judged: &Judged| -> Vec<Json> {
            let all = judged.numbers.iter();
            all.map(|n| json!({ "name": n.name, "threads": n.threads, "value": n.value })).collect()
        };
        let claim = |one: &Judgement| {
            json!({
                "id": one.claim.id,
                "strength": one.claim.strength.to_string(),
                "kind": one.claim.kind,
                "claim": one.claim.quote,
                "relation": one.claim.relation,
                "verdict": one.nominal().verdict.to_string(),
                "published": numbers(&one.published),
                "ours": numbers(one.nominal()),
                "instead": one.claim.instead.as_ref().map(ToString::to_string),
                "to_run": one.missing,
                "on_machines": self.machines.json_of(one),
            })
        };
        let value = json!({
            "program": VERSION,
            "command": self.command,
            "notes": self.notes(),
            "machines": self.machines.json(),
            "score": table(&self.score_table())?,
            "standing": table(&self.standing_table())?,
            "coverage": table(&coverage_table(&self.scores))?,
            "claims": self.claims.iter().map(claim).collect::<Vec<_>>(),
            "parts": self.parts.iter().map(part).collect::<Result<Vec<_>, _>>()?,
        });
        Ok(format!("{value:#}\n"))
    }

    pub(super) fn claims_table(&self, words: Words) -> Table {
        self.table_of_claims("Claims", words, |_| true)
    }

    fn failed_table(&self) -> Table {
        let has_failed = |one: &Judgement| one.nominal().verdict == Verdict::Failed;
        self.table_of_claims("Claims that failed", Words::Short, has_failed)
    }

    pub(super) fn table_of_claims(
        &self,
        title: &str,
        words: Words,
        is_shown: impl Fn(&Judgement) -> bool,
    ) -> Table {
        let columns = [
            ("claim", "claim"),
            ("strength", "strength"),
            ("verdict", "verdict"),
            ("has to be true", "relation"),
            ("published", "published"),
            ("ours", "ours"),
        ];
        let mut table = Table::new(title, &columns);
        let cut = |words_of: &str, width: usize| match words {
            Words::Short => text::shorten(words_of, width),
            Words::Whole => words_of.to_owned(),
        };
        for one in self.claims.iter().filter(|one| is_shown(one)) {
            let ours = match (&one.claim.instead, one.nominal().verdict) {
                (Some(instead), _) => instead.to_string(),
                (None, Verdict::NotRun) => one.missing.clone(),
                (None, _) => told(one.nominal()),
            };
            table.push(vec![
                one.claim.id.as_str().into(),
                one.claim.strength.to_string().into(),
                one.nominal().verdict.to_string().into(),
                cut(&one.claim.relation, RELATION_WIDTH).into(),
                cut(&told(&one.published), NUMBERS_WIDTH).into(),
                cut(&ours, NUMBERS_WIDTH).into(),
            ]);
        }
        table
    }

    pub(super) fn score_table(&self) -> Table {
        score_table(&self.scores)
    }

    fn standing_table(&self) -> Table {
        standing_table(&self.scores, self.machines.len())
    }

    /// The score on the nominal machine, that on all if there are others, and what becomes of every claim.
    pub(super) fn score_tables(&self) -> Vec<Table> {
        let mut tables = vec![self.score_table()];
        tables.extend(self.machines.are_many().then(|| self.standing_table()));
        tables.push(coverage_table(&self.scores));
        tables
    }

    /// The same of one document.
    pub(super) fn score_tables_of(&self, document: &str) -> Vec<Table> {
        let is_it = |score: &&Score| score.document == document;
        let scores: Vec<Score> = self.scores.iter().filter(is_it).cloned().collect();
        let mut tables = vec![score_table(&scores)];
        if self.machines.are_many() {
            tables.push(standing_table(&scores, self.machines.len()));
        }
        tables.push(coverage_table(&scores));
        tables
    }

    /// The documents that are shown.
    pub(super) fn documents(&self) -> BTreeSet<&str> {
        self.parts.iter().map(Part::document).collect()
    }

    /// Where claims hold, and what the machines were; nothing if there is only the nominal one.
    fn unknown_tables(&self) -> Vec<Table> {
        if !self.machines.are_many() {
            return Vec::new();
        }
        let claims: Vec<&Judgement> = self.claims.iter().collect();
        let mut tables = vec![self.machines.claims_table(&claims)];
        tables.extend(self.documents().into_iter().map(|document| self.machines.table(document)));
        tables
    }

    /// What was measured on each machine, in the form of the published files: the folder's name, which is empty for
    /// the nominal one, the file's and its text.
    pub(super) fn tidy(&self) -> Vec<(String, String, String)> {
        let mut files = Vec::new();
        for part in &self.parts {
            for (machine, cells) in self.machines.numbers().iter().zip(&part.ours) {
                let folder = match *machine {
                    MachineNumber::MIN => String::new(),
                    machine => format!("machine-{machine}"),
                };
                let source = part.source(*machine, VERSION);
                for (name, text) in tidy::files(cells, &source) {
                    append(&mut files, &folder, name, &text);
                }
            }
        }
        files
    }

    pub(super) fn published(&self) -> &Cells {
        &self.published
    }

    pub(super) fn command(&self) -> &str {
        &self.command
    }

    /// What a reader should know before taking the score for more than it is.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            "Held: of all claims that can be judged, so one that was not run is not held. Prose is judged by \
             no program, and is in no count but its own."
                .to_owned(),
        ];
        if self.machines.are_many() {
            notes.push(format!(
                "Machine 1 is nominal: as its machine file has it. The other {} are drawn from what documents do not \
                 say (published/unknowns.toml). Robust holds on at least nine tenths of the machines, possible on \
                 some, failed on none.",
                self.machines.len() - 1
            ));
        }
        if let Some(total) = self.scores.last() {
            let [same, all] = total.rows_with_a_good_way;
            notes.push(format!(
                "Rows: published values that differ from their table's first column. Of those of which one \
                 direction is the good one, {same} of {all} go the same way."
            ));
        }
        let scales: BTreeSet<&str> = self
            .parts
            .iter()
            .filter_map(|part| part.origin.rsplit_once("scale ").map(|(_, scale)| scale))
            .filter(|scale| *scale != "1")
            .collect();
        notes.extend(scales.into_iter().map(|scale| {
            format!("Ours is at scale {scale}; amounts are shown as of full size, divided by it.")
        }));
        notes
    }

    /// A panel for each table: by how much its rows changed.
    pub(super) fn picture(&self) -> String {
        let lines = [format!("{VERSION}; a dot is the new value over the base's")]
            .into_iter()
            .chain(self.notes())
            .collect();
        let plot = DotPlot {
            title: "By how much published rows changed, and ours".to_owned(),
            names: ["published".to_owned(), "ours".to_owned()],
            panels: self.parts.iter().flat_map(Part::panels).collect(),
            caption: Caption { lines, command: Some(self.command.clone()) },
        };
        plot.svg()
    }
}

impl Judgement {
    /// On the nominal machine.
    pub(super) fn nominal(&self) -> &Judged {
        &self.ours[0]
    }

    /// Where it stands, prose apart.
    pub(super) fn standing(&self, place: &Where) -> Standing {
        match (self.nominal().verdict, self.claim.strength) {
            (Verdict::Prose, _) | (_, Strength::Record) => Standing::Prose,
            _ => place.tally.standing(),
        }
    }
}

/// A number as one would say it.
pub(super) fn told_number(value: f64) -> String {
    match value {
        v if v.fract() == 0.0 && v.abs() < 1e15 => format!("{v:.0}"),
        v if v.abs() < 10.0 => format!("{v:.3}"),
        v => text::significant(v),
    }
}

/// The same for a table, from which programs read all digits.
pub(super) fn figure(value: f64) -> Value {
    let shown = told_number(value);
    let decimals = shown.split_once('.').map_or(0, |(_, digits)| digits.len());
    Value::Real(value, decimals)
}

/// The numbers of a judged claim, as one would say them.
fn told(judged: &Judged) -> String {
    if let Some([held, all]) = judged.counts {
        let values: Vec<String> = judged.numbers.iter().map(|n| told_number(n.value)).collect();
        return format!("{held} of {all}: {}", values.join(" "));
    }
    let numbers = judged.numbers.iter().map(|n| format!("{} {}", n.name, told_number(n.value)));
    numbers.collect::<Vec<_>>().join(", ")
}

/// Adds a file; two experiments may each have a part of one, of which the second comes without its header.
fn append(files: &mut Vec<(String, String, String)>, folder: &str, name: &str, text: &str) {
    let is_it = |(known, file, _): &&mut (String, String, String)| known == folder && file == name;
    match files.iter_mut().find(is_it) {
        Some((.., there)) => there.extend(text.split_inclusive('\n').skip(1)),
        None => files.push((folder.to_owned(), name.to_owned(), text.to_owned())),
    }
}

/// What to run for the numbers of a claim that are missing.
fn missing(claim: &Claim, parts: &[Part]) -> String {
    let mut found: Vec<String> = Vec::new();
    for file in claim.files() {
        let is_it = |part: &&Part| part.form.tables.iter().any(|table| table.file == file);
        let what = match parts.iter().find(is_it) {
            Some(part) if part.columns.is_empty() => format!("run {}", part.experiment),
            Some(part) => format!("not in {}", part.experiment),
            None => "no experiment yet".to_owned(),
        };
        if !found.contains(&what) {
            found.push(what);
        }
    }
    found.join(", ")
}
