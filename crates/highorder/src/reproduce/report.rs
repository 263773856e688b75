//! What became of published tables and claims, as tables, a picture and documents.

use crate::failure::Failure;
use crate::output::VERSION;
use highorder_lab::Plan;
use highorder_lab::reproduce::Reproduction;
use highorder_page::reproduction::{self, Section};
use highorder_record::published::{PublishedRow, PublishedTable};
use highorder_record::score::{
    Cells, Claim, Claims, Direction, Judged, Measured, Strength, Verdict, directions,
};
use highorder_record::{Group, PublishedForm, Record, Scale};
use highorder_report::{Caption, DotPanel, DotPlot, DotRow};
use highorder_tables::{Column, Table, Value, text};
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;

/// Characters of a claim's relation and numbers that people are shown; programs get all.
const RELATION_WIDTH: usize = 44;
const NUMBERS_WIDTH: usize = 40;

/// One experiment beside its published tables.
pub(super) struct Part {
    form: PublishedForm,
    experiment: String,
    origin: String,
    /// What was measured, under the published names.
    ours: Cells,
    directions: Vec<Direction>,
    /// Published columns that have runs.
    columns: BTreeSet<String>,
}

/// All of it.
pub(super) struct Report {
    parts: Vec<Part>,
    published: Cells,
    claims: Vec<Judgement>,
    /// Whether all documents are shown, and not only those that were chosen.
    scores: Vec<Score>,
    command: String,
}

/// A claim and what became of it.
struct Judgement {
    claim: Claim,
    /// On the published cells.
    published: Judged,
    /// On ours.
    ours: Judged,
    /// What to run for what is missing.
    missing: String,
}

/// How much of a document is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Score {
    document: String,
    /// Of must, should and may: how many hold, and of how many that could be judged if all had run.
    held: [[usize; 2]; 3],
    nr_failed: usize,
    nr_not_run: usize,
    nr_prose: usize,
    /// Rows that go the same way, and rows that were measured.
    rows: [usize; 2],
    rows_not_run: usize,
    /// The same of rows of which one direction is the good one.
    rows_with_a_good_way: [usize; 2],
}

/// How much of long words is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words {
    /// What fits beside other columns.
    Short,
    /// All.
    Whole,
}

impl Part {
    pub(super) fn new(
        reproduction: &Reproduction,
        scale: Scale,
        plan: &Plan,
        records: &[Vec<Record>],
    ) -> Self {
        let Reproduction { experiment, form } = reproduction;
        let measured: Vec<Measured<'_>> = experiment
            .variants
            .iter()
            .zip(records)
            // A column of which some steps are missing has no sums.
            .filter(|(_, records)| records.len() * plan.columns.len() == plan.runs.len())
            .map(|(variant, records)| Measured {
                columns: &variant.published,
                group: Group { label: variant.name.clone(), records: records.iter().collect() },
                scale,
            })
            .collect();
        let ours = Cells::measured(form, &measured);
        let columns = measured.iter().flat_map(|one| one.columns.iter().cloned()).collect();
        let machines: BTreeSet<&str> =
            experiment.variants.iter().map(|variant| variant.machine.name.as_str()).collect();
        let machines: Vec<&str> = machines.into_iter().collect();
        let origin = format!("{} at scale {scale}", machines.join(", "));
        Self {
            directions: directions(form, &Cells::published(), &ours),
            form: form.clone(),
            experiment: experiment.name.clone(),
            origin,
            ours,
            columns,
        }
    }

    fn document(&self) -> &str {
        self.form.name.split('_').next().unwrap_or_default()
    }

    /// The published tables, ours beside them: one for each column with runs, but for the first. A table whose
    /// columns share no row with the first has one for each.
    fn tables(&self, published: &Cells) -> Vec<Table> {
        let mut tables = Vec::new();
        for table in &self.form.tables {
            let Some((base, others)) = table.columns.split_first() else { continue };
            let ran: Vec<&str> =
                others.iter().filter(|column| self.columns.contains(**column)).copied().collect();
            let shown = match ran.is_empty() {
                true => others.first().copied().into_iter().collect(),
                false => ran,
            };
            for column in shown {
                tables.push(self.table(published, table, base, column));
            }
        }
        tables
    }

    fn table(&self, published: &Cells, like: &PublishedTable, base: &str, column: &str) -> Table {
        let columns = [
            ("", "row"),
            (base, "base_published"),
            ("ours", "base_ours"),
            (column, "new_published"),
            ("ours", "new_ours"),
            ("changed by", "change_published_percent"),
            ("ours", "change_ours_percent"),
            ("same way", "is_same_way"),
        ];
        let title = format!("{} ({})", like.title, like.file);
        let mut table = Table::new(title, &columns);
        for row in &like.rows {
            let of = |cells: &Cells, column| cells.of_row(like, row, column);
            let values = [base, column].map(|c| [of(published, c), of(&self.ours, c)]);
            if values.iter().flatten().all(Option::is_none) {
                continue;
            }
            let value = |value: Option<f64>| match value {
                Some(value) => Value::Real(value, row.decimals.into()),
                None => Value::Missing,
            };
            let [base, new] = values;
            let changes = [0, 1].map(|i| Some((base[i]?, new[i]?)));
            let same = match changes {
                // Of a listing's extremes nobody said where they go.
                _ if row.cells.stat == "sample" => "",
                [Some((a, b)), Some((c, d))] if a != b => {
                    if (d - c) * (b - a) > 0.0 {
                        "yes"
                    } else {
                        "no"
                    }
                }
                [Some((a, b)), None] if a != b => "-",
                _ => "",
            };
            table.push(vec![
                row_name(row).into(),
                value(base[0]),
                value(base[1]),
                value(new[0]),
                value(new[1]),
                change(changes[0]),
                change(changes[1]),
                same.into(),
            ]);
        }
        table
    }

    /// Published columns that nothing was run for.
    fn missing_columns(&self) -> Vec<&str> {
        let mut missing = Vec::new();
        for column in self.form.tables.iter().flat_map(|table| &table.columns) {
            if !self.columns.contains(*column) && !missing.contains(column) {
                missing.push(*column);
            }
        }
        missing
    }

    fn heading(&self) -> String {
        let missing = self.missing_columns();
        let missing = match missing.is_empty() {
            true => String::new(),
            false => format!("; not run: {}", missing.join(", ")),
        };
        format!("{}: experiment {}, {}{missing}", self.form.name, self.experiment, self.origin)
    }

    fn panels(&self) -> Vec<DotPanel> {
        let mut panels: Vec<DotPanel> = Vec::new();
        for direction in &self.directions {
            if direction.ours.is_none() {
                continue;
            }
            let title = direction.table.to_owned();
            let subtitle = direction.column.to_owned();
            let is_it =
                |panel: &&mut DotPanel| (&panel.title, &panel.subtitle) == (&title, &subtitle);
            let row = DotRow {
                label: direction.row.clone(),
                ratios: [Some(direction.published), direction.ours].map(|both| both.map(ratio)),
            };
            match panels.iter_mut().find(is_it) {
                Some(panel) => panel.rows.push(row),
                None => panels.push(DotPanel { title, subtitle, rows: vec![row] }),
            }
        }
        panels
    }
}

/// The new value over the base's; equal values are no change, 0 and 0 too.
fn ratio([base, new]: [f64; 2]) -> f64 {
    if base == new { 1.0 } else { new / base }
}

fn change(values: Option<(f64, f64)>) -> Value {
    match values {
        None => Value::Missing,
        Some((base, new)) if base == new => Value::Change(0.0),
        Some((0.0, _)) => Value::Text("from 0".to_owned()),
        Some((base, new)) => Value::Text(Value::Change(100.0 * (new / base - 1.0)).show()),
    }
}

fn row_name(row: &PublishedRow) -> String {
    [row.statistic, &row.metric].join(" ").trim().to_owned()
}

impl Report {
    pub(super) fn new(parts: Vec<Part>, only: &[String], command: String) -> Self {
        let published = Cells::published();
        let ours = Cells(parts.iter().flat_map(|part| part.ours.0.iter().cloned()).collect());
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
                ours: claim.judge(&ours),
                missing: missing(&claim, &parts),
                claim,
            })
            .collect();
        let scores = scores(&parts, &claims);
        Self { parts, published, claims, scores, command }
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
        } else if self.claims.iter().any(|one| one.ours.verdict == Verdict::Failed) {
            text.push_str(&format!("{}\n", self.failed_table().text()));
        }
        text.push_str(&format!("{}\n", self.score_table().text()));
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
        } else {
            text.push_str(&format!("{}\n", self.failed_table().markdown()));
        }
        text.push_str(&format!("{}\n", self.score_table().markdown()));
        self.notes().iter().for_each(|note| text.push_str(&format!("- {note}\n")));
        text.push_str(&format!("\n{VERSION}; again with: `{}`\n", self.command));
        text
    }

    /// One page: the score, the picture, the claims, and the tables.
    pub(super) fn html(&self, score_only: bool) -> Result<String, Failure> {
        let mut sections = vec![
            Section { heading: "Score".to_owned(), tables: vec![self.score_table()] },
            Section {
                heading: "Claims".to_owned(),
                tables: vec![match score_only {
                    true => self.failed_table(),
                    false => self.claims_table(Words::Whole),
                }],
            },
        ];
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
                "verdict": one.ours.verdict.to_string(),
                "published": numbers(&one.published),
                "ours": numbers(&one.ours),
                "to_run": one.missing,
            })
        };
        let value = json!({
            "program": VERSION,
            "command": self.command,
            "notes": self.notes(),
            "score": table(&self.score_table())?,
            "claims": self.claims.iter().map(claim).collect::<Vec<_>>(),
            "parts": self.parts.iter().map(part).collect::<Result<Vec<_>, _>>()?,
        });
        Ok(format!("{value:#}\n"))
    }

    pub(super) fn claims_table(&self, words: Words) -> Table {
        self.table_of_claims("Claims", words, |_| true)
    }

    fn failed_table(&self) -> Table {
        let has_failed = |one: &Judgement| one.ours.verdict == Verdict::Failed;
        self.table_of_claims("Claims that failed", Words::Short, has_failed)
    }

    fn table_of_claims(
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
            let ours = match one.ours.verdict {
                Verdict::NotRun => one.missing.clone(),
                _ => told(&one.ours),
            };
            table.push(vec![
                one.claim.id.as_str().into(),
                one.claim.strength.to_string().into(),
                one.ours.verdict.to_string().into(),
                cut(&one.claim.relation, RELATION_WIDTH).into(),
                cut(&told(&one.published), NUMBERS_WIDTH).into(),
                cut(&ours, NUMBERS_WIDTH).into(),
            ]);
        }
        table
    }

    pub(super) fn score_table(&self) -> Table {
        let mut columns = vec![("document".to_owned(), "document".to_owned())];
        for strength in ["must", "should", "may"] {
            columns.push((format!("{strength} held"), format!("{strength}_held")));
            columns.push(("of".to_owned(), format!("{strength}_all")));
        }
        for (heading, key) in [
            ("failed", "failed"),
            ("not run", "not_run"),
            ("prose", "prose"),
            ("rows the same way", "rows_same_way"),
            ("of", "rows_measured"),
            ("share", "rows_same_way_percent"),
            ("not run", "rows_not_run"),
        ] {
            columns.push((heading.to_owned(), key.to_owned()));
        }
        let columns = columns.into_iter().map(|(heading, key)| Column { heading, key }).collect();
        let mut table = Table { title: "Score".to_owned(), columns, rows: Vec::new() };
        let count = |n: usize| Value::Count(n as i64);
        for score in &self.scores {
            let mut row = vec![score.document.as_str().into()];
            row.extend(score.held.iter().flatten().map(|n| count(*n)));
            row.extend([score.nr_failed, score.nr_not_run, score.nr_prose].map(count));
            row.extend(score.rows.map(count));
            row.push(match score.rows {
                [_, 0] => Value::Missing,
                [same, all] => Value::Percent(100.0 * same as f64 / all as f64),
            });
            row.push(count(score.rows_not_run));
            table.push(row);
        }
        table
    }

    /// What a reader should know before taking the score for more than it is.
    fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            "Held: of all claims that can be judged, so one that was not run is not held. Prose is judged by \
             no program, and is in no count but its own."
                .to_owned(),
        ];
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

/// The numbers of a judged claim, as one would say them.
fn told(judged: &Judged) -> String {
    let number = |value: f64| match value {
        v if v.fract() == 0.0 && v.abs() < 1e15 => format!("{v:.0}"),
        v if v.abs() < 10.0 => format!("{v:.3}"),
        v => text::significant(v),
    };
    if let Some([held, all]) = judged.counts {
        let values: Vec<String> = judged.numbers.iter().map(|n| number(n.value)).collect();
        return format!("{held} of {all}: {}", values.join(" "));
    }
    let numbers = judged.numbers.iter().map(|n| format!("{} {}", n.name, number(n.value)));
    numbers.collect::<Vec<_>>().join(", ")
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

fn scores(parts: &[Part], claims: &[Judgement]) -> Vec<Score> {
    let documents: BTreeSet<&str> = parts
        .iter()
        .map(Part::document)
        .chain(claims.iter().map(|one| one.claim.document()))
        .collect();
    let mut scores: Vec<Score> = Vec::new();
    let mut total = Score { document: "all".to_owned(), ..Score::default() };
    for document in documents {
        let mut score = Score { document: document.to_owned(), ..Score::default() };
        for score in [&mut score, &mut total] {
            for one in claims.iter().filter(|one| one.claim.document() == document) {
                score.count_claim(one);
            }
            for part in parts.iter().filter(|part| part.document() == document) {
                part.directions.iter().for_each(|direction| score.count_row(direction));
            }
        }
        scores.push(score);
    }
    scores.push(total);
    scores
}

impl Score {
    fn count_claim(&mut self, one: &Judgement) {
        let verdict = match one.claim.strength {
            Strength::Record => Verdict::Prose,
            _ => one.ours.verdict,
        };
        match verdict {
            Verdict::Prose => {
                self.nr_prose += 1;
                return;
            }
            Verdict::Failed => self.nr_failed += 1,
            Verdict::NotRun => self.nr_not_run += 1,
            Verdict::Held => {}
        }
        let place = match one.claim.strength {
            Strength::Must => 0,
            Strength::Should => 1,
            Strength::May | Strength::Record => 2,
        };
        self.held[place][0] += usize::from(verdict == Verdict::Held);
        self.held[place][1] += 1;
    }

    fn count_row(&mut self, direction: &Direction) {
        let Some(is_same) = direction.is_same() else {
            self.rows_not_run += 1;
            return;
        };
        self.rows[0] += usize::from(is_same);
        self.rows[1] += 1;
        if direction.better != highorder_record::Better::Neutral {
            self.rows_with_a_good_way[0] += usize::from(is_same);
            self.rows_with_a_good_way[1] += 1;
        }
    }
}
