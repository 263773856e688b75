//! Published tables and claims: what they say, and which experiment repeats them.

use super::{Shown, begun};
use crate::failure::Failure;
use highorder_lab::catalogue::Kind;
use highorder_lab::reproduce::{Reproduction, reproductions};
use highorder_record::published::{self, PublishedForm, PublishedTable};
use highorder_record::score::{Cells, Claim, Claims, Strength};
use highorder_tables::{Table, Value};
use serde_json::{Value as Json, json};

/// The tables of a published form, with their values.
pub(super) fn table(name: &str) -> Result<Shown, Failure> {
    let form = published::find(name)
        .ok_or_else(|| Failure::internal(format!("no tables `{name}` among those listed")))?;
    let cells = Cells::published();
    let titles: Vec<&str> = form.tables.iter().map(|table| table.title).collect();
    let mut sheet = begun(Kind::Table, name, &titles.join("; "));
    let repeated = repeated_by(form)?;
    sheet.heading("Repeated by");
    sheet.paragraph("  ", &by_whom(repeated.as_ref()));
    let claims = claims_about(form);
    let ids: Vec<&str> = claims.iter().map(|claim| claim.id.as_str()).collect();
    sheet.heading("Claims about them");
    sheet.paragraph("  ", &if ids.is_empty() { "none".to_owned() } else { ids.join(", ") });
    let tables: Vec<(Table, &PublishedTable)> =
        form.tables.iter().map(|table| (values(table, &cells), table)).collect();
    for (table, published) in &tables {
        sheet.heading(&format!("published/{}.csv", published.file));
        sheet.line("");
        sheet.line(&table.text());
    }
    let tables: Vec<Json> = tables
        .iter()
        .map(|(table, published)| {
            json!({
                "file": published.file,
                "title": published.title,
                "columns": published.columns,
                "rows": table.json(),
            })
        })
        .collect();
    let json = json!({
        "kind": "table",
        "name": name,
        "experiment": repeated.map(|one| one.experiment.name),
        "claims": ids,
        "tables": tables,
    });
    Ok(Shown { sheet, json })
}

/// A claim, its level, and what would judge it.
pub(super) fn claim(id: &str) -> Result<Shown, Failure> {
    let claims = Claims::built_in().0;
    let claim = claims
        .into_iter()
        .find(|claim| claim.id == id)
        .ok_or_else(|| Failure::internal(format!("no claim `{id}` among those listed")))?;
    let mut sheet = begun(Kind::Claim, id, &claim.quote);
    let level = level(claim.strength);
    let files = claim.files();
    let form = form_of(&claim);
    let repeated = form.map(repeated_by).transpose()?.flatten();
    let data = match files.is_empty() {
        true => "none: it is in words, and no program judges it".to_owned(),
        false => files.join(", "),
    };
    sheet.line("");
    sheet.fields(
        "",
        &[
            ("level", level.to_owned()),
            ("kind", claim.kind.clone()),
            ("benchmark", claim.experiment.clone()),
            ("holds if", claim.relation.clone()),
            ("tables", data),
            ("run by", by_whom(repeated.as_ref())),
        ],
    );
    let json = json!({
        "kind": "claim",
        "name": id,
        "quote": claim.quote,
        "level": claim.strength.to_string(),
        "told": claim.kind,
        "benchmark": claim.experiment,
        "relation": claim.relation,
        "files": files,
        "experiment": repeated.map(|one| one.experiment.name),
    });
    Ok(Shown { sheet, json })
}

const fn level(strength: Strength) -> &'static str {
    match strength {
        Strength::Must => "must: a reproduction has to show it",
        Strength::Should => "should: a reproduction is expected to show it",
        Strength::May => "may: a reproduction can lack it",
        Strength::Record => "record: nothing is asked of it",
    }
}

/// The form that has all tables of a claim, or at least one.
fn form_of(claim: &Claim) -> Option<&'static PublishedForm> {
    let files = claim.files();
    let forms = published::names().into_iter().filter_map(published::find);
    let nr = |form: &&'static PublishedForm| {
        form.tables.iter().filter(|table| files.contains(&table.file)).count()
    };
    forms.filter(|form| nr(form) > 0).max_by_key(nr)
}

fn claims_about(form: &PublishedForm) -> Vec<Claim> {
    let mut claims = Claims::built_in().0;
    claims.retain(|claim| form_of(claim).is_some_and(|found| found.name == form.name));
    claims
}

fn repeated_by(form: &PublishedForm) -> Result<Option<Reproduction>, Failure> {
    Ok(reproductions()?.into_iter().find(|one| one.form.name == form.name))
}

fn by_whom(repeated: Option<&Reproduction>) -> String {
    match repeated {
        Some(one) => format!(
            "the experiment {}: highorder reproduce --only {}",
            one.experiment.name, one.form.name
        ),
        None => "no experiment that comes with the program".to_owned(),
    }
}

/// The published values, row by row.
fn values(table: &PublishedTable, cells: &Cells) -> Table {
    let mut columns = vec![("row", "row"), ("unit", "unit")];
    columns.extend(table.columns.iter().map(|column| (*column, *column)));
    let mut shown = Table::new(table.title, &columns);
    for row in &table.rows {
        let name = [row.statistic, row.metric.as_str()].join(" ");
        let mut line = vec![Value::from(name.trim()), Value::from(row.unit)];
        for column in &table.columns {
            let value = cells.of_row(table, row, column);
            line.push(
                value.map_or(Value::Missing, |value| Value::Real(value, row.decimals.into())),
            );
        }
        shown.push(line);
    }
    shown
}
