//! `docs/fidelity.md`, collected from what the code says of itself.
//!
//! A passage begins with `Models:` or `Departs:` in a doc comment and ends with the paragraph, or where
//! the next one begins. `UPDATE=1` in the environment rewrites the page.

mod common;

use common::project;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const PAGE: &str = "docs/fidelity.md";
const HEADING: &str = "\
# Fidelity

Which behaviour of which kernel each file models, and where it departs from it. *Visible as* says how
a departure could be noticed.

This page is collected from the `Models:` and `Departs:` passages in the code: correct them there, then
run `UPDATE=1 cargo test -p highorder --test fidelity`.
";
const WORDS: [&str; 2] = ["Models:", "Departs:"];

#[test]
fn the_fidelity_page_says_what_the_code_says() {
    let page = page();
    let path = project().join(PAGE);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &page).expect("the page can be written");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let differs = page.lines().zip(kept.lines()).position(|(new, old)| new != old);
    let line = 1 + differs.unwrap_or(page.lines().count().min(kept.lines().count()));
    assert!(
        page == kept,
        "{PAGE}:{line}: not what the code says; UPDATE=1 in the environment rewrites it:\n\
         UPDATE=1 cargo test -p highorder --test fidelity"
    );
}

#[test]
fn a_passage_ends_with_its_paragraph_or_at_the_next() {
    let text =
        "//! A file.\n//!\n//! Models: this\n//! and that.\n//! Departs: there.\n//!\n//! More.\n";
    assert_eq!(passages(text), ["**Models:** this\nand that.", "**Departs:** there."]);
}

#[test]
fn a_passage_on_a_function_names_it() {
    let text = "    /// Does it.\n    ///\n    /// Models: [`it`], v6.12.\n    #[must_use]\n    pub fn it(&self) {}\n";
    assert_eq!(passages(text)[0], "`it`: **Models:** `it`, v6.12.");
}

/// In the search of the documentation, under the kernel's name for what a function of ours does. Names with `mm_`
/// are those of trace events.
#[test]
fn each_function_that_is_modelled_is_found_by_its_name() {
    let mut lost = Vec::new();
    for name in ["mm", "sim"] {
        let mut files = Vec::new();
        rust_files(&project().join("crates").join(name).join("src"), &mut files);
        let text_of = |file: &PathBuf| fs::read_to_string(file).expect("a source file");
        let texts: Vec<String> = files.iter().map(text_of).collect();
        let found: BTreeSet<&str> = texts.iter().flat_map(|text| searchable(text)).collect();
        for (file, text) in files.iter().zip(&texts) {
            for passage in passages(text).iter().filter(|text| text.contains("**Models:**")) {
                let missing = kernel_functions(passage).filter(|name| !found.contains(name));
                lost.extend(missing.map(|name| format!("{}: `{name}`", file.display())));
            }
        }
    }
    assert!(lost.is_empty(), "no function with this name or `doc(alias)`:\n{}", lost.join("\n"));
}

/// The names of functions and types, and their aliases.
fn searchable(source: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    ["fn ", "struct ", "doc(alias = \""].into_iter().flat_map(move |before| {
        let rests = source.split(before).skip(1);
        rests.map(move |rest| &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())])
    })
}

/// The functions that a passage names.
fn kernel_functions(passage: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_function = move |name: &&str| {
        name.contains('_') && name.chars().all(is_part) && !name.starts_with("mm_")
    };
    passage.split('`').skip(1).step_by(2).filter(is_function)
}

/// The page as it ought to be.
fn page() -> String {
    let mut page = HEADING.to_owned();
    for folder in sorted(&project().join("crates")) {
        let name = file_name(&folder);
        let mut files = Vec::new();
        rust_files(&folder.join("src"), &mut files);
        let sections: String = files.iter().map(|file| section(&folder, file)).collect();
        if !sections.is_empty() {
            page.push_str(&format!("\n## {name}\n{sections}"));
        }
    }
    page
}

/// What one file says; nothing if it has no passage.
fn section(folder: &Path, file: &Path) -> String {
    let text = fs::read_to_string(file).expect("a source file");
    let found = passages(&text);
    if found.is_empty() {
        return String::new();
    }
    let crate_name = file_name(folder);
    let name = file.strip_prefix(folder.join("src")).expect("it lies there").display();
    let mut out = format!("\n### [{name}](../crates/{crate_name}/src/{name})\n");
    for passage in found {
        out.push_str(&format!("\n{passage}\n"));
    }
    out
}

/// What the code says of itself, as Markdown with the line breaks of the code.
fn passages(source: &str) -> Vec<String> {
    let lines: Vec<&str> = source.lines().collect();
    let begins = |line: &str| WORDS.iter().any(|word| line.starts_with(word));
    let mut found = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let Some((marker, first)) = doc(line).filter(|(_, text)| begins(text)) else { continue };
        let rest = lines[i + 1..].iter().map_while(|line| doc(line));
        let rest = rest.take_while(|(m, text)| *m == marker && !text.is_empty() && !begins(text));
        let mut text = first.replacen(":", ":**", 1);
        text.insert_str(0, "**");
        for (_, line) in rest {
            text.push('\n');
            text.push_str(line);
        }
        if marker == "///" {
            text.insert_str(0, &format!("`{}`: ", item_after(&lines[i..])));
        }
        found.push(text.replace("[`", "`").replace("`]", "`"));
    }
    found
}

/// The kind of doc comment that a line is, and its text.
fn doc(line: &str) -> Option<(&'static str, &str)> {
    let line = line.trim();
    ["//!", "///"].into_iter().find_map(|marker| Some((marker, line.strip_prefix(marker)?.trim())))
}

/// The name of the item that the doc comment at the head of `lines` belongs to.
fn item_after<'a>(lines: &[&'a str]) -> &'a str {
    const KEYWORDS: [&str; 7] = ["fn", "struct", "enum", "const", "trait", "type", "mod"];
    let is_item = |line: &&&str| !line.trim().starts_with("///") && !line.trim().starts_with("#[");
    let item = lines.iter().find(is_item).expect("a doc comment belongs to an item");
    let mut words =
        item.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty());
    // `const fn name`: the name follows the last keyword.
    let name = words.by_ref().skip_while(|w| !KEYWORDS.contains(w)).find(|w| !KEYWORDS.contains(w));
    name.unwrap_or_else(|| item.trim().trim_end_matches(','))
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for path in sorted(folder) {
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of the project");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

fn file_name(path: &Path) -> String {
    path.file_name().expect("a name").to_string_lossy().into_owned()
}
