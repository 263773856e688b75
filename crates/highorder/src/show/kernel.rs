//! A kernel: every value with its source, or those that differ from another kernel's.

use super::{Shown, begun};
use crate::failure::Failure;
use crate::sheet::Sheet;
use highorder_lab::KernelFile;
use highorder_lab::catalogue::Kind;
use highorder_lab::kernel_file::{Explained, ExplainedValue};
use serde_json::{Value as Json, json};

const NO_SOURCE: &str = "no source is named";

/// All values.
pub(super) fn shown(name: &str) -> Result<Shown, Failure> {
    let kernel = KernelFile::explain(name)?;
    let mut sheet = begun(Kind::Kernel, &kernel.name, &kernel.description);
    sheet.heading(&format!("release   {}", kernel.release));
    sheet.line(&format!("based on  {}", bases(&kernel)));
    let own = kernel.values.iter().filter(|value| value.set_by == kernel.name).count();
    sheet.line(&format!("values    {}, of which its own file sets {own}", kernel.values.len()));
    let mut table = "";
    let groups = kernel.values.chunk_by(|a, b| table_of(a).0 == table_of(b).0);
    for group in groups {
        let (name, _) = table_of(&group[0]);
        if name != table {
            sheet.heading(&format!("[{name}]"));
            table = name;
        }
        sheet.columns("  ", &group.iter().map(|value| row(value, &kernel)).collect::<Vec<_>>());
    }
    Ok(Shown { sheet, json: json_of(&kernel) })
}

/// The values that differ.
pub(super) fn against(name: &str, other: &str) -> Result<Shown, Failure> {
    let (one, other) = (KernelFile::explain(name)?, KernelFile::explain(other)?);
    let differing: Vec<[Option<&ExplainedValue>; 2]> = pairs(&one, &other);
    let mut sheet = Sheet::new(crate::sheet::width());
    sheet.line(&format!("{} against {}", one.name, other.name));
    match differing.len() {
        0 => sheet.line("no value differs"),
        nr => sheet.line(&format!(
            "{nr} of {} {}",
            one.values.len().max(other.values.len()),
            if nr == 1 { "values differs" } else { "values differ" }
        )),
    }
    for pair in &differing {
        let Some(value) = pair.iter().flatten().next() else { continue };
        sheet.heading(&value.key);
        let rows: Vec<Vec<String>> = [&one, &other]
            .into_iter()
            .zip(pair)
            .map(|(kernel, value)| match value {
                Some(value) => {
                    vec![kernel.name.clone(), value.value.clone(), source(value, kernel)]
                }
                None => vec![kernel.name.clone(), "not set".to_owned(), String::new()],
            })
            .collect();
        sheet.columns("  ", &rows);
    }
    let values: Vec<Json> = differing
        .iter()
        .map(|[a, b]| {
            let key = a.or(*b).map(|value| value.key.as_str());
            let side = |value: &Option<&ExplainedValue>| value.map_or(Json::Null, value_json);
            json!({ "key": key, "values": [side(a), side(b)] })
        })
        .collect();
    let json = json!({ "kind": "kernel", "kernels": [one.name, other.name], "differing": values });
    Ok(Shown { sheet, json })
}

/// Values of equal keys that differ, in the order of the first kernel's.
fn pairs<'a>(one: &'a Explained, other: &'a Explained) -> Vec<[Option<&'a ExplainedValue>; 2]> {
    let of = |kernel: &'a Explained, key: &str| kernel.values.iter().find(|value| value.key == key);
    let mut pairs: Vec<[Option<&ExplainedValue>; 2]> =
        one.values.iter().map(|value| [Some(value), of(other, &value.key)]).collect();
    let more = other.values.iter().filter(|value| of(one, &value.key).is_none());
    pairs.extend(more.map(|value| [None, Some(value)]));
    pairs.retain(|[a, b]| a.map(|value| &value.value) != b.map(|value| &value.value));
    pairs
}

fn table_of(value: &ExplainedValue) -> (&str, &str) {
    value.key.split_once('.').unwrap_or(("", &value.key))
}

fn row(value: &ExplainedValue, kernel: &Explained) -> Vec<String> {
    vec![table_of(value).1.to_owned(), value.value.clone(), source(value, kernel)]
}

/// Where a value is from, with the file that sets it if that is not the kernel's own.
fn source(value: &ExplainedValue, kernel: &Explained) -> String {
    let source = value.source.as_deref().unwrap_or(NO_SOURCE);
    if value.set_by == kernel.name {
        source.to_owned()
    } else {
        format!("{source} [{}]", value.set_by)
    }
}

fn bases(kernel: &Explained) -> String {
    match kernel.chain.get(1..) {
        None | Some([]) => "no other: its own file sets every value".to_owned(),
        Some(bases) => format!(
            "{}; what stands in brackets below is set there",
            bases.join(", which is based on ")
        ),
    }
}

fn json_of(kernel: &Explained) -> Json {
    json!({
        "kind": "kernel",
        "name": kernel.name,
        "about": kernel.description,
        "release": kernel.release,
        "chain": kernel.chain,
        "values": kernel.values.iter().map(value_json).collect::<Vec<_>>(),
    })
}

fn value_json(value: &ExplainedValue) -> Json {
    json!({
        "key": value.key,
        "value": value.parsed(),
        "source": value.source,
        "set_by": value.set_by,
        "line": value.line,
    })
}
