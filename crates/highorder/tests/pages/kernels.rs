//! `docs/kernels.md`: the kernels that come with the program, and what a kernel file may say.

use crate::page::{self, Field, blocks, code, fields, source, table};
use highorder_lab::KernelFile;
use highorder_lab::kernel_file::{Explained, names};
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

/// What the code says of the keys of kernel files.
struct Keys {
    /// The file that reads them.
    reader: String,
    /// The files in which the decisions are.
    policies: [String; 4],
    /// The type of each table by its name.
    tables: BTreeMap<String, String>,
}

impl Keys {
    fn read() -> Self {
        let reader = source("crates/lab/src/kernel_file.rs");
        // Short tables stand on one line.
        let lines = reader.lines().map(|line| match line.strip_suffix(" });") {
            Some(table) if table.starts_with("table!(") => {
                format!("{},\n}});\n", table.replacen("{ ", "{\n", 1).replace(", ", ",\n"))
            }
            _ => format!("{line}\n"),
        });
        let reader: String = lines.collect();
        let policies = [
            "crates/mm/src/policy.rs",
            "crates/sim/src/kernel/policy.rs",
            "crates/sim/src/kernel/thp.rs",
            "crates/mm/src/frame.rs",
        ]
        .map(source);
        let tables = fields(&reader, "struct Values {");
        let tables = tables.into_iter().map(|field| (field.name, field.kind)).collect();
        Self { reader, policies, tables }
    }

    /// What a key decides, and which values it takes.
    fn key(&self, table: &str, key: &str) -> (String, String) {
        let values = &self.tables[table];
        let keys = fields(&self.reader, &format!("table!({values} {{"));
        let own = keys.into_iter().find(|field| field.name == key).expect("the reader has it");
        let about = match own.about.as_str() {
            "" => self.decision(table, key),
            about => about.to_owned(),
        };
        (about, self.allowed(&own.kind))
    }

    /// What the decision's own code says of it.
    fn decision(&self, table: &str, key: &str) -> String {
        let type_name: &[(usize, &str)] = match table {
            "numa" => &[(1, "NumaBalancing")],
            "mmap_lock" => &[(1, "MmapLocking")],
            "shrinkers" => &[(1, "Slab")],
            "thp" => &[(1, "Thp"), (2, "ThpKnobs")],
            "khugepaged" => &[(2, "KhugepagedKnobs"), (1, "Thp")],
            _ => &[],
        };
        let its_own = self.tables[table].trim_end_matches("Values");
        let places = if type_name.is_empty() {
            vec![(0, its_own), (1, its_own)]
        } else {
            type_name.to_vec()
        };
        // The unit is in a file's key, and in the code's type.
        let bare = key.trim_end_matches("_pages").trim_end_matches("_ms");
        for (file, name) in places {
            let (text, head) = (&self.policies[file], format!("pub struct {name} {{"));
            if !text.contains(&head) {
                continue;
            }
            let all = fields(text, &head);
            let found = [key, bare].iter().find_map(|key| all.iter().find(|f| f.name == *key));
            if let Some(Field { about, .. }) = found {
                return about.clone();
            }
        }
        panic!(
            "nothing says what `{table}.{key}` decides: write it beside the key in kernel_file.rs"
        )
    }

    fn allowed(&self, kind: &str) -> String {
        match kind {
            "bool" => return "`true` or `false`".to_owned(),
            "u8" | "u16" | "u32" | "u64" => return "a whole number".to_owned(),
            "[u32; 3]" => return "three whole numbers".to_owned(),
            _ => {}
        }
        let words = self.words(kind).into_iter().map(|(word, about)| match about.as_str() {
            "" => code(&format!("\"{word}\"")),
            about => format!("`\"{word}\"`: {about}"),
        });
        words.collect::<Vec<_>>().join("<br>")
    }

    /// The words that a key of this type takes, and what the decision's code says of each.
    fn words(&self, kind: &str) -> Vec<(String, String)> {
        if let Some((_, rest)) = self.reader.split_once(&format!("words!({kind} for ")) {
            let (target, rest) = rest.split_once(" {").expect("a brace");
            let body = rest.split_once("});").expect("an end").0;
            let arms: Vec<&str> = body.split('"').collect();
            return arms[1..]
                .chunks(2)
                .map(|arm| {
                    let variant = arm[1].split_once("=> ").map_or("", |(_, value)| value);
                    let variant = variant.trim_start_matches("Self::");
                    let variant = variant.split(|c: char| !c.is_alphanumeric()).next();
                    (arm[0].to_owned(), self.variant(target, variant.unwrap_or_default()))
                })
                .collect();
        }
        // The words are the names of its variants.
        let variants = fields(&self.reader, &format!("enum {kind} {{"));
        assert_eq!(kind, "RuleValue", "of which enum is this?");
        variants
            .into_iter()
            .map(|v| (kebab(&v.name), self.variant("FallbackRule", &v.name)))
            .collect()
    }

    /// What is said of a variant.
    fn variant(&self, target: &str, variant: &str) -> String {
        let head = format!("pub enum {target} {{");
        let Some(text) = self.policies.iter().find(|text| text.contains(&head)) else {
            return String::new();
        };
        let is_it = |field: &Field| {
            field.name.split(|c: char| !c.is_alphanumeric()).next() == Some(variant)
        };
        fields(text, &head).into_iter().find(is_it).map_or(String::new(), |field| field.about)
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
