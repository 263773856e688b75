//! How much of each document is shown.

use super::across::Machines;
use super::part::Part;
use super::report::Judgement;
use highorder_record::Better;
use highorder_record::score::{Direction, Instead, Standing, Strength, Tally, Verdict};
use highorder_tables::{Column, Table, Value};
use std::collections::BTreeSet;

/// How much of a document is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Score {
    pub(super) document: String,
    /// Of must, should and may: how many hold, and of how many that could be judged if all had run.
    held: [[usize; 2]; 3],
    /// Of the same: robust, possible, failed.
    standing: [[usize; 3]; 3],
    nr_failed: usize,
    nr_not_run: usize,
    nr_shown: usize,
    nr_unjudged: usize,
    /// Neither judged, nor shown, nor with a reason.
    nr_open: usize,
    /// Rows that go the same way, and rows that were measured.
    rows: [usize; 2],
    /// Rows that go the same way on nine tenths of the machines, on some, on none.
    rows_standing: [usize; 3],
    rows_not_run: usize,
    /// The same of rows of which one direction is the good one.
    pub(super) rows_with_a_good_way: [usize; 2],
}

/// A score for each document, and one for all.
pub(super) fn scores(parts: &[Part], claims: &[Judgement], machines: &Machines) -> Vec<Score> {
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
                score.count_claim(one, machines);
            }
            for part in parts.iter().filter(|part| part.document() == document) {
                for (direction, tally) in part.directions.iter().zip(&part.tallies) {
                    score.count_row(direction, *tally);
                }
            }
        }
        scores.push(score);
    }
    scores.push(total);
    scores
}

impl Score {
    fn count_claim(&mut self, one: &Judgement, machines: &Machines) {
        let verdict = one.nominal().verdict;
        if verdict == Verdict::Prose || one.claim.strength == Strength::Record {
            match &one.claim.instead {
                Some(Instead::ShownBy(_)) => self.nr_shown += 1,
                Some(Instead::Unjudged(_)) => self.nr_unjudged += 1,
                None => self.nr_open += 1,
            }
            return;
        }
        match verdict {
            Verdict::Failed => self.nr_failed += 1,
            Verdict::NotRun => self.nr_not_run += 1,
            Verdict::Held | Verdict::Prose => {}
        }
        let place = match one.claim.strength {
            Strength::Must => 0,
            Strength::Should => 1,
            Strength::May | Strength::Record => 2,
        };
        self.held[place][0] += usize::from(verdict == Verdict::Held);
        self.held[place][1] += 1;
        count(&mut self.standing[place], machines.place(one).tally);
    }

    fn count_row(&mut self, direction: &Direction, tally: Tally) {
        count(&mut self.rows_standing, tally);
        let Some(is_same) = direction.is_same() else {
            self.rows_not_run += 1;
            return;
        };
        self.rows[0] += usize::from(is_same);
        self.rows[1] += 1;
        if direction.better != Better::Neutral {
            self.rows_with_a_good_way[0] += usize::from(is_same);
            self.rows_with_a_good_way[1] += 1;
        }
    }

    fn nr_claims(&self) -> usize {
        let judged: usize = self.held.iter().map(|[_, all]| all).sum();
        judged + self.nr_shown + self.nr_unjudged + self.nr_open
    }
}

/// Adds to robust, possible and failed.
fn count(counts: &mut [usize; 3], tally: Tally) {
    let place = match tally.standing() {
        Standing::Robust => 0,
        Standing::Possible => 1,
        Standing::Failed => 2,
        Standing::NotRun | Standing::Prose => return,
    };
    counts[place] += 1;
}

fn number(n: usize) -> Value {
    Value::Count(n as i64)
}

fn columns(all: Vec<(String, String)>) -> Vec<Column> {
    all.into_iter().map(|(heading, key)| Column { heading, key }).collect()
}

const STRENGTHS: [&str; 3] = ["must", "should", "may"];

/// On the nominal machine.
pub(super) fn score_table(scores: &[Score]) -> Table {
    let mut headings = vec![("document".to_owned(), "document".to_owned())];
    for strength in STRENGTHS {
        headings.push((format!("{strength} held"), format!("{strength}_held")));
        headings.push(("of".to_owned(), format!("{strength}_all")));
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
        headings.push((heading.to_owned(), key.to_owned()));
    }
    let mut table =
        Table { title: "Score".to_owned(), columns: columns(headings), rows: Vec::new() };
    for score in scores {
        let mut row = vec![score.document.as_str().into()];
        row.extend(score.held.iter().flatten().map(|n| number(*n)));
        let nr_prose = score.nr_shown + score.nr_unjudged + score.nr_open;
        row.extend([score.nr_failed, score.nr_not_run, nr_prose].map(number));
        row.extend(score.rows.map(number));
        row.push(match score.rows {
            [_, 0] => Value::Missing,
            [same, all] => Value::Percent(100.0 * same as f64 / all as f64),
        });
        row.push(number(score.rows_not_run));
        table.push(row);
    }
    table
}

/// On all machines: three numbers for each strength, of which none is the score alone.
pub(super) fn standing_table(scores: &[Score], nr_machines: usize) -> Table {
    let mut headings = vec![("document".to_owned(), "document".to_owned())];
    for what in STRENGTHS.into_iter().chain(["rows"]) {
        for (number, standing) in ["robust", "possible", "failed"].into_iter().enumerate() {
            let heading = if number == 0 { format!("{what} {standing}") } else { standing.into() };
            headings.push((heading, format!("{what}_{standing}")));
        }
    }
    let title = format!("Score on {nr_machines} machines");
    let mut table = Table { title, columns: columns(headings), rows: Vec::new() };
    for score in scores {
        let mut row = vec![score.document.as_str().into()];
        let all = score.standing.iter().flatten().chain(&score.rows_standing);
        row.extend(all.map(|n| number(*n)));
        table.push(row);
    }
    table
}

/// What becomes of every claim: figures judge it, a test shows it, or there is a reason.
pub(super) fn coverage_table(scores: &[Score]) -> Table {
    let headings = [
        ("document", "document"),
        ("claims", "claims"),
        ("judged by figures", "judged"),
        ("not run", "not_run"),
        ("shown by tests", "shown_by_tests"),
        ("not judged, for a reason", "unjudged"),
        ("not judged", "open"),
    ];
    let mut table = Table::new("Coverage", &headings);
    for score in scores {
        let judged: usize = score.held.iter().map(|[_, all]| all).sum();
        let mut row = vec![score.document.as_str().into()];
        let counts = [
            score.nr_claims(),
            judged - score.nr_not_run,
            score.nr_not_run,
            score.nr_shown,
            score.nr_unjudged,
            score.nr_open,
        ];
        row.extend(counts.map(number));
        table.push(row);
    }
    table
}
