//! `docs/kernels.md`: the kernels that come with the program, and what a kernel file may say.

use crate::page::{self, blocks, code, fields, source, table};
use highorder_kernels::KernelFile;
use highorder_kernels::{Explained, names};
use std::collections::BTreeMap;
use std::fs;

const PAGE: &str = "docs/kernels.md";
/// The kernel that sets every value.
const WHOLE: &str = "linux-6.12";

#[test]
fn the_kernels_page_says_what_the_code_says() {
    let all: Vec<Explained> =
        names().into_iter().map(|name| KernelFile::explain(name).expect("a kernel")).collect();
    let parts =
        [("kernels", list(&all)), ("values", values(&all)), ("differences", differences(&all))];
    page::check(PAGE, &parts);
}

#[test]
fn every_kernel_file_on_the_page_is_a_kernel() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = blocks(&source(PAGE), "toml");
    assert!(!files.is_empty());
    for file in files {
        let path = folder.path().join("mine.toml");
        fs::write(&path, &file).expect("a file");
        let kernel = KernelFile::load(path.to_str().expect("UTF-8"));
        kernel.unwrap_or_else(|error| panic!("{error}\n{file}"));
    }
}

fn list(all: &[Explained]) -> String {
    let rows = all.iter().map(|kernel| {
        let base = kernel.chain.get(1).map_or(String::new(), |base| code(base));
        let own = kernel.values.iter().filter(|value| value.set_by == kernel.name).count();
        vec![
            format!("[`{0}`](#{1})", kernel.name, kernel.name.replace('.', "")),
            kernel.description.clone(),
            base,
            own.to_string(),
        ]
    });
    let head = ["name", "kernel", "based on", "values of its own"];
    table(&head, &rows.collect::<Vec<_>>())
}

/// A table for each table of kernel files.
fn values(all: &[Explained]) -> String {
    let code_of_keys = Keys::read();
    let whole = all.iter().find(|kernel| kernel.name == WHOLE).expect("it is there");
    let mut tables: Vec<(&str, Vec<Vec<String>>)> = Vec::new();
    for value in &whole.values {
        let (name, key) = value.key.split_once('.').expect("a table and a key");
        if tables.last().is_none_or(|(last, _)| *last != name) {
            tables.push((name, Vec::new()));
        }
        let (about, allowed) = code_of_keys.key(name, key);
        let others: Vec<&String> = all
            .iter()
            .flat_map(|kernel| &kernel.values)
            .filter(|other| other.key == value.key && other.value != value.value)
            .map(|other| &other.value)
            .collect();
        let differs = if others.is_empty() { "" } else { "yes" };
        let rows = &mut tables.last_mut().expect("just added").1;
        rows.push(vec![code(key), about, allowed, code(&value.value), differs.to_owned()]);
    }
    let head = ["key", "what it decides", "values", WHOLE, "differs"];
    let parts =
        tables.into_iter().map(|(name, rows)| format!("### `[{name}]`\n\n{}", table(&head, &rows)));
    parts.collect::<Vec<_>>().join("\n")
}

/// What each kernel sets itself.
fn differences(all: &[Explained]) -> String {
    let parts = all.iter().map(|kernel| {
        let own = kernel.values.iter().filter(|value| value.set_by == kernel.name);
        let rows = own.map(|value| {
            let source = value.source.clone().unwrap_or_default();
            vec![code(&value.key), code(&value.value), source]
        });
        let rows = table(&["value", "is", "source"], &rows.collect::<Vec<_>>());
        let chain = match kernel.chain.get(1..).unwrap_or_default() {
            [] => "Based on no other.".to_owned(),
            bases => {
                let bases: Vec<String> = bases.iter().map(|base| code(base)).collect();
                format!("Based on {}.", bases.join(", which is based on "))
            }
        };
        format!("### {}\n\n{}. {chain}\n\n{rows}", kernel.name, kernel.description)
    });
    parts.collect::<Vec<_>>().join("\n")
}

/// What the code says of the keys of kernel files: a table is a field of a policy, a key a field of its type.
struct Keys {
    /// The files in which the policies are, and the words that their values take.
    policies: [String; 5],
    /// The type of each table by its name, and which of the files has it.
    tables: BTreeMap<String, (usize, String)>,
}

impl Keys {
    fn read() -> Self {
        let policies = [
            "crates/mm/src/policy.rs",
            "crates/sim/src/kernel/policy.rs",
            "crates/sim/src/kernel/thp.rs",
            "crates/mm/src/frame.rs",
            "crates/sim/src/sched.rs",
        ]
        .map(source);
        let wholes = ["pub struct Policy {", "pub struct Flows {"];
        let tables = wholes.iter().enumerate().flat_map(|(file, whole)| {
            let tables = fields(&policies[file], whole).into_iter();
            tables.map(move |table| (table.name, (file, table.kind)))
        });
        let tables = tables.collect();
        Self { policies, tables }
    }

    /// What a key decides, and which values it takes.
    fn key(&self, table: &str, key: &str) -> (String, String) {
        let (file, name) = &self.tables[table];
        let keys = fields(&self.policies[*file], &format!("pub struct {name} {{"));
        let own = keys.into_iter().find(|field| field.name == key).expect("the policy has it");
        (own.about, self.allowed(&own.kind))
    }

    fn allowed(&self, kind: &str) -> String {
        match kind {
            "bool" => return "`true` or `false`".to_owned(),
            "u8" | "u16" | "u32" | "u64" | "Option<u32>" | "Order" => {
                return "a whole number".to_owned();
            }
            "[u32; 3]" => return "three whole numbers".to_owned(),
            _ => {}
        }
        let head = format!("pub enum {kind} {{");
        let text = self.policies.iter().find(|text| text.contains(&head)).expect("words");
        let words = fields(text, &head).into_iter().map(|word| match word.about.as_str() {
            "" => code(&format!("\"{}\"", kebab(&word.name))),
            about => format!("`\"{}\"`: {about}", kebab(&word.name)),
        });
        words.collect::<Vec<_>>().join("<br>")
    }
}

/// `MoveOrTake` as `move-or-take`.
fn kebab(name: &str) -> String {
    let mut word = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_uppercase() && at > 0 {
            word.push('-');
        }
        word.extend(letter.to_lowercase());
    }
    word
}
