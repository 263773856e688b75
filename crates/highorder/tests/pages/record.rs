//! `docs/record.md`: every file, key and column that records have, and examples that run.

use crate::common::{highorder, names, project, text};
use crate::page::{self, blocks, code, fields, source, table};
use highorder_record::{Record, Source, Store, read_foreign};
use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: &str = "docs/record.md";

/// Two kernels and two numbers of threads, and more memory than there is: each kind of table has rows.
const EXPERIMENT: &str = "\
description = \"nearly all memory, written once\"
machine = \"one-node-8g\"
threads = [1, 2]
sample_interval_ms = 100

[workload]
name = \"usemem\"
memory = 0.9
file = 0.0
passes = 1

[[variant]]
kernel = \"linux-4.4\"

[[variant]]
kernel = \"linux-6.12\"
";

/// A folder with a store in it as a run makes it, under the name that the page uses.
fn run() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let (experiment, store) =
        (folder.path().join("small.toml"), folder.path().join("highorder-store"));
    fs::write(&experiment, EXPERIMENT).expect("a file");
    let arguments = ["run", text(&experiment), "--scale", "1/128", "--store", text(&store)];
    highorder(&arguments).assert().success();
    folder
}

fn records(folder: &Path) -> Vec<(PathBuf, Record)> {
    let store = Store::open(folder.join("highorder-store")).expect("a store");
    let entries = store.list().expect("its records");
    entries.iter().map(|entry| (entry.path.clone(), store.read(entry).expect("whole"))).collect()
}

#[test]
fn the_record_page_tells_every_file_key_and_column_that_a_run_leaves() {
    page::check(PAGE, &[("record.json", keys_table())]);
    let page = source(PAGE);
    let folder = run();
    // One that holds what the model has none of.
    let case = project().join("tests/data/cases/612-small-churn");
    let recorded = read_foreign(&case).expect("a case");
    Store::open(folder.path().join("highorder-store"))
        .expect("a store")
        .put(&recorded)
        .expect("put");
    let records = records(folder.path());
    assert_eq!(records.len(), 5);
    let mut found = BTreeSet::new();
    for (path, record) in &records {
        for name in names(path) {
            assert!(page.contains(&format!("| `{name}` |")), "{PAGE} lacks the file {name}");
        }
        for name in ["samples", "histograms", "timeline"] {
            columns(&page, &path.join(format!("{name}.parquet")), record);
        }
        let json = fs::read(path.join("record.json")).expect("a file");
        keys(&serde_json::from_slice(&json).expect("JSON"), "", &mut found);
    }
    let told: BTreeSet<String> = told_keys().into_iter().map(|(key, ..)| key).collect();
    let untold: Vec<&String> = found.difference(&told).collect();
    assert!(untold.is_empty(), "{PAGE} lacks the keys {untold:?}");
    let unseen: Vec<&String> = told.difference(&found).collect();
    assert!(unseen.is_empty(), "{PAGE} tells of keys that no record has: {unseen:?}");
}

/// The columns of a table are on the page in the section of its file, with their types.
fn columns(page: &str, path: &Path, record: &Record) {
    let name = path.file_name().expect("a name").to_string_lossy();
    let section = page.split_once(&format!("## {name}\n")).unwrap_or_else(|| panic!("no {name}")).1;
    let section = section.split("\n## ").next().expect("a part");
    let rows: Vec<Vec<&str>> = section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    let kinds = |wanted: &str| {
        let row = rows.iter().find(|row| row[0].split(", ").any(|name| name == code(wanted)));
        row.map(|row| row[1].to_owned())
    };
    let file = SerializedFileReader::new(File::open(path).expect("a file")).expect("Parquet");
    let schema = file.metadata().file_metadata().schema_descr();
    let mut seen = BTreeSet::new();
    for column in schema.columns() {
        let kind = match column.physical_type().to_string().as_str() {
            "BYTE_ARRAY" => "text",
            "INT64" => "whole number",
            "DOUBLE" => "number",
            other => panic!("{name}: a column of type {other}"),
        };
        // Counters of the kernel and zones have names that no page can list.
        let own = column.name();
        let pattern = match own.split_once(['/', ' ']) {
            Some(("buddyinfo", _)) => "buddyinfo NODE ZONE ORDER".to_owned(),
            Some((what, _)) => format!("{what}/NODE/ZONE"),
            None => own.to_owned(),
        };
        let is_counter = record.after.counters.contains_key(own);
        let known = kinds(&pattern).or_else(|| kinds("COUNTER").filter(|_| is_counter));
        let known = known.unwrap_or_else(|| panic!("{PAGE} lacks `{}` of {name}", column.name()));
        assert_eq!(known, kind, "{PAGE}: `{}` of {name}", column.name());
        seen.insert(column.name().to_owned());
    }
    if record.inputs.source != Source::Model {
        return;
    }
    // The model has every column of a fixed name, but for those that say that only recorded runs have them.
    for row in rows.iter().filter(|row| !row[2].contains("recorded")) {
        let own = row[0].split(", ").map(|name| name.trim_matches('`'));
        for own in own.filter(|own| *own != "COUNTER" && !own.contains('/')) {
            assert!(seen.contains(own), "{PAGE}: no column `{own}` in {name}");
        }
    }
}

/// Adds the paths of all keys; the entries of a list, or of a map by name, have one path together.
fn keys(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    /// Numbers by names that are the kernel's, the machine's or the workload's.
    const VALUES: [&str; 7] = [
        "values",
        "counters",
        "meminfo",
        "nodes",
        "pages",
        "free_blocks_by_migratetype",
        "pageblocks",
    ];
    /// Objects by name.
    const OBJECTS: [&str; 2] = ["latencies", "files"];
    let last = path.rsplit('.').next().unwrap_or_default();
    match value {
        Value::Object(_) if VALUES.contains(&last) => {}
        Value::Object(map) if OBJECTS.contains(&last) => {
            map.values().for_each(|value| keys(value, &format!("{path}.*"), found));
        }
        Value::Object(map) => {
            for (key, value) in map {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                found.insert(shared(&path));
                keys(value, &path, found);
            }
        }
        Value::Array(list) => {
            list.iter().for_each(|value| keys(value, &format!("{path}[]"), found));
        }
        _ => {}
    }
}

/// The three states have the same keys, and so have the machine, the kernel and the workload.
fn shared(path: &str) -> String {
    let mut path = path.to_owned();
    for (names, shared) in [
        (&["held.", "after."][..], "before."),
        (&["inputs.kernel.", "inputs.workload."][..], "inputs.machine."),
    ] {
        for name in names {
            if let Some(rest) = path.strip_prefix(name) {
                path = format!("{shared}{rest}");
            }
        }
    }
    path
}

/// The keys of `record.json`: path, type and what the code says of them.
fn told_keys() -> Vec<(String, String, String)> {
    let store = source("crates/record/src/store.rs");
    let record = source("crates/record/src/record.rs");
    let mut told = Vec::new();
    collect(&store, &record, "Document", "", &mut told);
    told
}

fn collect(
    store: &str,
    record: &str,
    structure: &str,
    path: &str,
    told: &mut Vec<(String, String, String)>,
) {
    let head = format!("struct {structure} {{");
    let public = format!("pub {head}");
    let (text, head) = if record.contains(&public) { (record, public) } else { (store, head) };
    for field in fields(text, &head) {
        let key = if path.is_empty() { field.name } else { format!("{path}.{}", field.name) };
        if shared(&key) != key {
            continue;
        }
        told.push((key.clone(), kind(&field.kind), field.about));
        let inner = optional(&field.kind).unwrap_or(&field.kind);
        let (inside, rest) = match (list(inner), map(inner)) {
            (Some(of), _) => (of, "[]"),
            (_, Some(of)) => (of, ".*"),
            _ => (inner, ""),
        };
        if kind(inside) == "object" {
            collect(store, record, inside, &format!("{key}{rest}"), told);
        }
    }
}

fn optional(kind: &str) -> Option<&str> {
    kind.strip_prefix("Option<")?.strip_suffix('>')
}

fn list(kind: &str) -> Option<&str> {
    kind.strip_prefix("Vec<")?.strip_suffix('>')
}

fn map(kind: &str) -> Option<&str> {
    Some(kind.strip_prefix("BTreeMap<")?.strip_suffix('>')?.split_once(", ")?.1)
}

/// A type of the code in words.
fn kind(of: &str) -> String {
    if let Some(of) = optional(of) {
        return format!("{} or null", kind(of));
    }
    if let Some(of) = list(of) {
        return format!("list of {}", several(&kind(of)));
    }
    if let Some(of) = map(of) {
        return format!("{} by name", several(&kind(of)));
    }
    match of {
        "String" => "text",
        "u8" | "u32" | "u64" | "usize" => "whole number",
        "f64" => "number",
        "Better" | "Statistic" | "Source" => "word",
        _ => "object",
    }
    .to_owned()
}

fn several(kind: &str) -> String {
    match kind.split_once(' ') {
        Some(("list", of)) => format!("lists {of}"),
        _ if kind.ends_with("by name") => kind.to_owned(),
        _ => format!("{kind}s"),
    }
}

fn keys_table() -> String {
    let rows = told_keys().into_iter().map(|(key, kind, about)| vec![code(&key), kind, about]);
    table(&["key", "type", "what it is"], &rows.collect::<Vec<_>>())
}

/// Runs a block of the page in a folder and returns its `result` in JSON, as this expression makes it.
fn result(python: &Path, folder: &Path, block: &str, as_json: &str) -> Value {
    let program =
        format!("{block}\nimport json, sys\nprint(json.dumps({as_json}), file=sys.stderr)\n");
    let output = Command::new(python).current_dir(folder).args(["-c", &program]).output();
    let output = output.expect("Python starts");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{err}\n{block}");
    assert!(!out.trim().is_empty(), "an example prints what it found:\n{block}");
    serde_json::from_str(err.lines().last().expect("a line")).expect("JSON")
}

#[test]
fn the_examples_of_the_record_page_run_and_find_what_the_records_hold() {
    let python = match crate::common::python() {
        Ok(python) => python,
        Err(reason) => {
            eprintln!(
                "SKIPPED: no Python with duckdb, pandas, polars and pyarrow (`make python-setup`): {reason}"
            );
            return;
        }
    };
    let page = source(PAGE);
    let blocks = blocks(&page, "python");
    assert_eq!(blocks.len(), 3, "DuckDB, pandas and Polars");
    let folder = run();
    let records = records(folder.path());
    for (block, library) in blocks.iter().zip(["duckdb", "pandas", "polars"]) {
        assert!(block.contains(&format!("import {library}")), "{library}:\n{block}");
        let as_json = match library {
            "duckdb" => "[list(row) for row in result.fetchall()]",
            "pandas" => "[[*names, int(count)] for names, count in result.items()]",
            _ => "[list(row) for row in result.rows()]",
        };
        let found = result(&python, folder.path(), block, as_json);
        assert_eq!(rounded(found), rounded(expected(library, &records)), "{library}");
    }
}

/// What an example prints, out of the records as the program reads them.
fn expected(library: &str, records: &[(PathBuf, Record)]) -> Value {
    let mut rows: Vec<Vec<Value>> = Vec::new();
    for (_, record) in records {
        let kernel: Value = record.inputs.kernel.name.clone().into();
        let threads: Value = record.inputs.workload.values["threads"].clone().into();
        match library {
            "duckdb" => {
                rows.extend(record.metrics.iter().filter(|m| !m.samples.is_empty()).map(|m| {
                    let mean = m.samples.iter().sum::<f64>() / m.samples.len() as f64;
                    vec![kernel.clone(), threads.clone(), m.name.clone().into(), mean.into()]
                }));
            }
            "pandas" => rows.extend(record.latencies.iter().filter(|(_, l)| l.count() > 0).map(
                |(class, latencies)| {
                    let (class, count) = (class.clone().into(), latencies.count().into());
                    vec![kernel.clone(), threads.clone(), class, count]
                },
            )),
            _ => {
                let timeline = &record.timeline;
                let free = (0..timeline.len()).filter_map(|at| timeline.get("nr_free_pages", at));
                let least = free.map(|pages| pages as u64).min().expect("samples");
                let mib = least * u64::from(record.page_bytes) / (1 << 20);
                rows.push(vec![record.identity().to_string().into(), mib.into()]);
            }
        }
    }
    assert!(!rows.is_empty(), "{library}: nothing to find");
    rows.into()
}

/// With lists in one order, and numbers to nine digits: sums are added up in different orders.
fn rounded(value: Value) -> Value {
    match value {
        Value::Array(list) if list.iter().all(Value::is_array) => {
            let mut rows: Vec<Value> = list.into_iter().map(rounded).collect();
            rows.sort_by_key(Value::to_string);
            rows.into()
        }
        Value::Array(list) => list.into_iter().map(rounded).collect(),
        Value::Number(number) => format!("{:.8e}", number.as_f64().expect("a number")).into(),
        other => other,
    }
}
