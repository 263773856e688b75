//! `docs/workloads.md`: what the program says of each workload and its parameters.

use crate::page::{self, code, table};
use highorder_lab::experiment::BUILT_IN;
use highorder_workload::{describe, names};

const PAGE: &str = "docs/workloads.md";

#[test]
fn the_workloads_page_says_what_the_code_says() {
    let parts =
        [("list", list()), ("workloads", names().iter().map(|name| section(name)).collect())];
    page::check(PAGE, &parts);
}

fn list() -> String {
    let rows = names().iter().map(|name| {
        let about = describe(name).expect("a workload").about.to_owned();
        vec![format!("[`{name}`](#{name})"), about]
    });
    table(&["name", "what it does"], &rows.collect::<Vec<_>>())
}

fn section(name: &str) -> String {
    let workload = describe(name).expect("a workload");
    let rows = workload.parameters.iter().map(|parameter| {
        let scaled = if parameter.is_scaled { "yes" } else { "" };
        vec![
            code(parameter.name),
            parameter.about.to_owned(),
            parameter.unit.clone(),
            parameter.allowed.clone(),
            code(&parameter.default),
            scaled.to_owned(),
        ]
    });
    let head = ["parameter", "what it is", "unit", "values", "default", "scaled"];
    let parameters = table(&head, &rows.collect::<Vec<_>>());
    let line = format!("name = \"{name}\"");
    let used: Vec<String> = BUILT_IN
        .iter()
        .filter(|(_, text)| text.lines().any(|other| other.trim_end() == line))
        .map(|(experiment, _)| code(experiment))
        .collect();
    let used = match used.as_slice() {
        [] => "no experiment that comes with the program".to_owned(),
        some => some.join(", "),
    };
    format!("## {name}\n\n{}\n\nUsed by: {used}.\n\n{parameters}\n", sentence(workload.about))
}

/// With a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let (first, rest) = text.split_at(text.chars().next().map_or(0, char::len_utf8));
    format!("{}{}.", first.to_uppercase(), rest.trim_end_matches('.'))
}
