//! Tables and a picture as one HTML file, which needs nothing else and has no script: published tables and ours,
//! or many variants.

use crate::{Image, PageError, environment, style};
use highorder_record::verdict::Paragraph;
use highorder_tables::{Table, Value};
use minijinja::value::Serde;
use serde::Serialize;

/// What the page shows, top to bottom.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// What it is, in a word.
    pub kind: &'a str,
    /// The heading.
    pub title: &'a str,
    /// The command that repeats it.
    pub command: &'a str,
    /// The program and its version.
    pub version: &'a str,
    /// What it says, first of all; may be empty.
    pub verdict: &'a [Paragraph],
    /// What a reader should know, a sentence or two each.
    pub notes: &'a [String],
    /// The text of an SVG file.
    pub picture: &'a str,
    /// What is seen on it, for those who do not see it.
    pub picture_description: &'a str,
    /// Other pages: their addresses and what they are called.
    pub links: &'a [(String, String)],
    /// The tables; the picture comes after the first section.
    pub sections: &'a [Section],
}

/// Tables under a heading.
#[derive(Clone, Debug)]
pub struct Section {
    /// The heading.
    pub heading: String,
    /// The tables.
    pub tables: Vec<Table>,
}

/// Draws the page.
///
/// # Errors
/// [`PageError::Template`]: a fault of this crate.
pub fn render(page: &Page<'_>) -> Result<String, PageError> {
    let view = View {
        kind: page.kind,
        title: page.title,
        command: page.command,
        version: page.version,
        style: style(),
        verdict: page.verdict,
        notes: page.notes,
        picture: Image::Svg(page.picture).data(),
        picture_description: page.picture_description,
        links: page.links,
        sections: page.sections.iter().enumerate().map(SectionView::new).collect(),
    };
    Ok(environment()?.get_template("reproduction.html")?.render(Serde(&view))?)
}

#[derive(Serialize)]
struct View<'a> {
    kind: &'a str,
    title: &'a str,
    command: &'a str,
    version: &'a str,
    style: String,
    verdict: &'a [Paragraph],
    notes: &'a [String],
    picture: String,
    picture_description: &'a str,
    links: &'a [(String, String)],
    sections: Vec<SectionView<'a>>,
}

#[derive(Serialize)]
pub(crate) struct SectionView<'a> {
    id: String,
    heading: &'a str,
    tables: Vec<TableView<'a>>,
}

#[derive(Serialize)]
struct TableView<'a> {
    title: &'a str,
    headings: Vec<CellView>,
    rows: Vec<Vec<CellView>>,
}

/// A cell, and the class of how it stands.
#[derive(Serialize)]
struct CellView {
    text: String,
    class: &'static str,
}

impl<'a> SectionView<'a> {
    pub(crate) fn new((number, section): (usize, &'a Section)) -> Self {
        Self {
            id: format!("section-{number}"),
            heading: &section.heading,
            tables: section.tables.iter().map(TableView::new).collect(),
        }
    }
}

impl<'a> TableView<'a> {
    fn new(table: &'a Table) -> Self {
        let class = |is_words: bool| if is_words { "words" } else { "number" };
        let is_words = |at: usize| table.rows.iter().all(|row| matches!(row[at], Value::Text(_)));
        let heading = |(at, column): (usize, &highorder_tables::Column)| CellView {
            text: column.heading.clone(),
            class: class(is_words(at)),
        };
        let cell = |(at, value): (usize, &Value)| CellView {
            text: value.show(),
            class: match value.show().as_str() {
                "failed" | "no" => "worse",
                "held" | "yes" | "robust" => "better",
                _ => class(is_words(at)),
            },
        };
        Self {
            title: &table.title,
            headings: table.columns.iter().enumerate().map(heading).collect(),
            rows: table.rows.iter().map(|row| row.iter().enumerate().map(cell).collect()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_on_the_page_and_escaped() {
        let mut table = Table::new("a <b> table", &[("claim", "claim"), ("value", "value")]);
        table.push(vec!["x & y".into(), Value::Real(1.25, 2)]);
        table.push(vec!["z".into(), "failed".into()]);
        let sections = [Section { heading: "Claims".to_owned(), tables: vec![table] }];
        let page = Page {
            kind: "reproduction",
            title: "Published & ours",
            command: "highorder reproduce",
            version: "highorder 0",
            verdict: &[Paragraph { text: "x > y".to_owned(), items: vec!["by 1 & 2".to_owned()] }],
            notes: &["A note.".to_owned()],
            picture: "<svg/>",
            picture_description: "dots",
            links: &[("000.html".to_owned(), "a & b".to_owned())],
            sections: &sections,
        };
        let html = render(&page).unwrap();
        for expected in [
            "<h1>Published &amp; ours</h1>",
            "a &lt;b&gt; table",
            "x &amp; y",
            r#"<td class="number">1.25</td>"#,
            r#"class="worse">failed"#,
            "data:image/svg+xml;base64,",
            "A note.",
            "x &gt; y",
            "<li>by 1 &amp; 2</li>",
            r#"<a href="000.html">a &amp; b</a>"#,
            r#"<code id="command">highorder reproduce</code>"#,
        ] {
            assert!(html.contains(expected), "{expected} in {html}");
        }
        assert!(!html.contains("<script"));
    }
}
