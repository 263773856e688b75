//! Pages of `docs/` of which parts are collected from the code.
//!
//! A part stands between `<!-- generated: NAME -->` and `<!-- end: NAME -->`. `UPDATE=1` in the environment rewrites it.

use crate::common::project;
use std::fs;

/// A field of a structure in the code: its name where people write it, and what its doc comment says.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) about: String,
}

/// Checks that the parts of a page are these, or rewrites them.
#[track_caller]
pub(crate) fn check(page: &str, parts: &[(&str, String)]) {
    let path = project().join(page);
    let kept = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
    let mut wanted = kept.clone();
    for (name, part) in parts {
        let (begin, end) =
            (format!("<!-- generated: {name} -->\n"), format!("<!-- end: {name} -->"));
        let from = wanted.find(&begin).unwrap_or_else(|| panic!("{page} lacks {begin}"));
        let to = wanted.find(&end).unwrap_or_else(|| panic!("{page} lacks {end}"));
        wanted.replace_range(from + begin.len()..to, &format!("\n{}\n\n", part.trim()));
    }
    let marks = wanted.matches("<!-- generated: ").count();
    assert_eq!(marks, parts.len(), "{page}: generated parts that nobody generates");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &wanted).expect("the page can be written");
        return;
    }
    let differs = wanted.lines().zip(kept.lines()).position(|(new, old)| new != old);
    let line = 1 + differs.unwrap_or(wanted.lines().count().min(kept.lines().count()));
    assert!(
        wanted == kept,
        "{page}:{line}: not what the code says, expected\n{}\nUPDATE=1 in the environment rewrites it:\n\
         UPDATE=1 cargo test -p highorder --test pages",
        wanted.lines().nth(line - 1).unwrap_or_default()
    );
}

/// The text of a source file of the project.
pub(crate) fn source(path: &str) -> String {
    fs::read_to_string(project().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The fields, or keys, that follow a line which begins with `head`, to the brace that closes them.
#[track_caller]
pub(crate) fn fields(source: &str, head: &str) -> Vec<Field> {
    let mut lines = source.lines().skip_while(|line| !line.trim_start().starts_with(head)).skip(1);
    let mut fields = Vec::new();
    let (mut about, mut renamed) = (String::new(), None);
    let mut in_attribute = false;
    for line in lines.by_ref() {
        // One of several lines.
        if in_attribute || (line.trim().starts_with("#[") && !line.ends_with(']')) {
            in_attribute = !line.trim().ends_with(']');
            continue;
        }
        if line.starts_with('}') {
            assert!(!fields.is_empty(), "`{head}` has no fields");
            return fields;
        }
        let line = line.trim();
        if let Some(text) = line.strip_prefix("///") {
            about.push(' ');
            about.push_str(text.trim());
        } else if line.starts_with('#') {
            let name = line.split_once("rename = \"").and_then(|(_, rest)| rest.split_once('"'));
            renamed = name.map(|(name, _)| name.to_owned()).or(renamed);
        } else if !line.is_empty() && !line.starts_with("//") && !line.starts_with('}') {
            let field = line.trim_start_matches("pub ").trim_end_matches(',');
            let (name, kind) = field.split_once(": ").unwrap_or((field, ""));
            let (name, kind) = (renamed.take().unwrap_or_else(|| name.to_owned()), kind.to_owned());
            let about = unlinked(std::mem::take(&mut about).trim());
            fields.push(Field { name, kind, about });
        }
    }
    panic!("no `{head}` in the code");
}

/// Text of a doc comment without its links to items.
fn unlinked(text: &str) -> String {
    text.replace("[`", "`").replace("`]", "`")
}

/// A table in Markdown.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let row = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let head: Vec<String> = head.iter().map(|text| (*text).to_owned()).collect();
    let rule = format!("|{}\n", " --- |".repeat(head.len()));
    let rows: String = rows.iter().map(|cells| row(cells)).collect();
    format!("{}{rule}{rows}", row(&head))
}

/// A word in the font of code.
pub(crate) fn code(text: &str) -> String {
    format!("`{text}`")
}

/// The blocks of code in a page of this language.
pub(crate) fn blocks(page: &str, language: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line.trim_end() == format!("```{language}") {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            found.push(block.join("\n") + "\n");
        } else if line.starts_with("```") {
            // Of another language.
            let _ = lines.by_ref().find(|line| *line == "```");
        }
    }
    found
}
