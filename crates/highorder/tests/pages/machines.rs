//! `docs/machines.md`: its keys, ranges and lists are those of the code, its examples load.

use crate::page::{self, Field, blocks, code, fields, source, table};
use highorder_kernels::machine::{self, BUILT_IN};
use highorder_sim::Host;
use std::path::Path;

const PAGE: &str = "docs/machines.md";

#[test]
fn the_machines_page_says_what_the_code_says() {
    let mut parts = vec![("machines", machines())];
    let tables = tables();
    parts.extend(tables.iter().map(|(name, text)| (name.as_str(), text.clone())));
    parts.push(("costs", costs()));
    page::check(PAGE, &parts);
}

#[test]
fn every_machine_file_on_the_page_is_a_machine() {
    let page = source(PAGE);
    let files = blocks(&page, "toml");
    assert!(files.len() >= 4, "{files:?}");
    for file in &files {
        let machine = machine::parse(Path::new("mine.toml"), file);
        machine.unwrap_or_else(|error| panic!("{error}\n{file}"));
    }
    // What the page promises of the first.
    let lines = files[0].lines().count();
    let mine = machine::parse(Path::new("mine.toml"), &files[0]).unwrap();
    assert_eq!((lines, mine.nodes.len(), mine.memory_bytes()), (3, 1, 16 << 30));
}

/// What comes with the program.
fn machines() -> String {
    let rows: Vec<Vec<String>> = BUILT_IN
        .iter()
        .map(|(name, text)| {
            let machine = machine::load(name).unwrap();
            let base = text.lines().find_map(|line| line.strip_prefix("based_on = "));
            let base = base.map_or(String::new(), |base| code(base.trim_matches('"')));
            vec![code(name), machine.description, base]
        })
        .collect();
    table(&["name", "machine", "based on"], &rows)
}

/// A part for each table of a machine file.
fn tables() -> Vec<(String, String)> {
    let source = source("crates/kernels/src/machine.rs");
    let one_node = "based_on = \"one-node-8g-in-use\"\n";
    let rest = "source = \"x\"\n";
    let kinds: [(&str, &str, &str, &str); 9] = [
        ("memory", "struct MemoryValues", "[memory]\n", rest),
        ("in_use", "struct InUseValues", "[in_use]\n", rest),
        ("node", "struct NodeValues", "[[node]]\n", ""),
        ("sched", "struct SchedValues", "[sched]\n", rest),
        ("host", "struct HostValues", "[host]\n", rest),
        ("disk", "struct DiskValues", "[[disk]]\n", rest),
        ("rotating", "struct RotatingValues", "[[disk]]\nsource = \"x\"\n[disk.rotating]\n", ""),
        ("flash", "struct FlashValues", "[[disk]]\n[[disk]]\nsource = \"x\"\n[disk.flash]\n", ""),
        ("swap", "struct SwapValues", "[[swap]]\n", ""),
    ];
    let mut parts: Vec<(String, String)> = kinds
        .into_iter()
        .map(|(name, head, before, after)| {
            let base = match name {
                "flash" => "based_on = \"two-node-64g\"\n",
                "host" => "based_on = \"guest-tcg\"\n",
                _ => one_node,
            };
            let rows = fields(&source, head).into_iter().map(|field| {
                let after = if field.name == "source" { "" } else { after };
                let text = |value: &str| format!("{base}{before}{} = {value}\n{after}", field.name);
                row(&field, &text)
            });
            (name.to_owned(), table(&["key", "what it is", "values"], &rows.collect::<Vec<_>>()))
        })
        .collect();
    let times = fields(&source, "struct FlashTimesValues");
    let rows = times.iter().map(|field| {
        let text = |value: &str| {
            let of = |key: &str| if key == field.name { value.to_owned() } else { "200000".into() };
            let all = times.iter().map(|time| format!("{} = {}", time.name, of(&time.name)));
            let all = all.collect::<Vec<_>>().join(", ");
            format!(
                "based_on = \"two-node-64g\"\n[[disk]]\n[[disk]]\nsource = \"x\"\n[disk.flash]\n\
                 read = {{ {all} }}\n"
            )
        };
        row(field, &text)
    });
    let rows: Vec<Vec<String>> = rows.collect();
    parts.push(("flash times".to_owned(), table(&["key", "what it is", "values"], &rows)));
    parts.insert(0, ("top".to_owned(), top(&source)));
    parts
}

/// The tables themselves.
fn top(source: &str) -> String {
    let rows = fields(source, "struct Values").into_iter().map(|field| {
        let name = match field.kind.as_str() {
            kind if kind.contains("Vec<") => format!("[[{}]]", field.name),
            kind if kind.contains("Values") => format!("[{}]", field.name),
            _ => field.name,
        };
        vec![code(&name), field.about]
    });
    let mut rows: Vec<Vec<String>> = rows.collect();
    let based_on = "The machine that this one is based on: a path, relative to this file; or the name of a file \
                    beside it, or of a machine that comes with the program. See above.";
    rows.insert(0, vec![code("based_on"), based_on.to_owned()]);
    table(&["key", "what it is"], &rows)
}

/// A key with what the program says that it expects.
fn row(field: &Field, text: &dyn Fn(&str) -> String) -> Vec<String> {
    vec![code(&field.name), field.about.clone(), values(field, text)]
}

/// The values of a key: of a number what a message about one that is too large expects.
fn values(field: &Field, text: &dyn Fn(&str) -> String) -> String {
    let Field { name, kind, .. } = field;
    if kind.contains("u64") {
        let is_list = kind.contains("Vec<");
        let most = i64::MAX.to_string();
        let most = if is_list { format!("[{most}]") } else { most };
        let message = machine::parse(Path::new("mine.toml"), &text(&most));
        let message = message.unwrap_err().to_string();
        let begin = format!("`{name}` is {}, expected ", i64::MAX);
        let expected = message.split_once(&begin).unwrap_or_else(|| panic!("{name}: {message}")).1;
        let range = expected.lines().next().unwrap().replace("..=", " to ");
        let each = if is_list { format!("1 to {} of ", Host::MOST_BUSY) } else { String::new() };
        return each + &range;
    }
    let word = match kind.as_str() {
        kind if kind.contains("Vec<u32>") => "a list of whole numbers",
        kind if kind.contains("String") => "text",
        kind if kind.contains("bool") => "`true` or `false`",
        kind if kind.contains("Elevator") => "`\"noop\"`, `\"deadline\"` or `\"cfq\"`",
        kind if kind.contains("FileSystem") => "`\"ext4\"` or `\"xfs\"`",
        kind if kind.contains("Values") => "a table",
        other => panic!("a key of type {other}"),
    };
    word.to_owned()
}

fn costs() -> String {
    let costs = fields(&source("crates/sim/src/machine.rs"), "costs! {");
    let rows: Vec<Vec<String>> =
        costs.into_iter().map(|field| vec![code(&field.name), field.about]).collect();
    table(&["cost", "of what"], &rows)
}
