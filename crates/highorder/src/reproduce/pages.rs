//! The report: a page for each document, and an index.

use super::part::Part;
use super::report::{Judgement, Report, Words};
use crate::failure::Failure;
use crate::output::{self, VERSION};
use highorder_lab::Scale;
use highorder_page::document::{self, Document, Experiment};
use highorder_page::reproduction::{self, Section};
use highorder_record::Group;

/// The index among the files.
pub(super) const INDEX: &str = "index.html";

/// What the documents are about: published/README.md tells more.
const DOCUMENTS: [(&str, &str); 5] = [
    ("000", "Huge page faults that no longer reclaim or compact by default (2016)"),
    ("001", "Compaction that takes free pages straight from the free lists (2017)"),
    ("002", "Huge pages and remote nodes (2019)"),
    ("003", "Lumpy reclaim and synchronous reclaim removed (2012)"),
    ("004", "Fewer fragmentation events (2018)"),
];

/// What a document is called.
fn title(document: &str) -> String {
    let about = DOCUMENTS.iter().find(|(number, _)| *number == document);
    about.map_or(document.to_owned(), |(number, about)| format!("{number}: {about}"))
}

fn file_name(document: &str) -> String {
    format!("{document}.html")
}

/// The names of all files that there may be.
pub(super) fn file_names() -> Vec<String> {
    let documents = DOCUMENTS.iter().map(|(number, _)| file_name(number));
    documents.chain([INDEX.to_owned()]).collect()
}

impl Report {
    /// The pages by their files' names, the index last.
    pub(super) fn pages(&self, scale: Scale) -> Result<Vec<(String, String)>, Failure> {
        let mut pages = Vec::new();
        for document in self.documents() {
            pages.push((file_name(document), self.document_page(document, scale)?));
        }
        pages.push((INDEX.to_owned(), self.index()?));
        Ok(pages)
    }

    fn index(&self) -> Result<String, Failure> {
        let sections = [Section { heading: "Score".to_owned(), tables: self.score_tables() }];
        let links: Vec<(String, String)> = self
            .documents()
            .into_iter()
            .map(|document| (file_name(document), title(document)))
            .collect();
        let page = reproduction::Page {
            kind: "reproduction",
            title: "Published tables and ours",
            command: self.command(),
            version: VERSION,
            verdict: &[],
            notes: &self.notes(),
            picture: &self.picture(),
            picture_description: "By how much each published row changed, and by how much ours did",
            links: &links,
            sections: &sections,
        };
        reproduction::render(&page).map_err(|error| Failure::internal(error.to_string()))
    }

    fn document_page(&self, document: &str, scale: Scale) -> Result<String, Failure> {
        let claims: Vec<&Judgement> =
            self.claims.iter().filter(|one| one.claim.document() == document).collect();
        let section = |heading: &str, tables| Section { heading: heading.to_owned(), tables };
        let is_of = |one: &Judgement| one.claim.document() == document;
        let mut sections = vec![
            section("Score", self.score_tables_of(document)),
            section("Claims", vec![self.table_of_claims("Claims", Words::Whole, is_of)]),
        ];
        let mut appendix = Vec::new();
        if self.machines.are_many() {
            let table = self.machines.claims_table(&claims);
            sections.insert(1, section("Where claims hold", vec![table]));
            appendix.push(section("What is unknown", vec![self.machines.ranges(document)]));
            appendix.push(section("Machines", vec![self.machines.table(document)]));
        }
        let scatters: Vec<_> = claims.iter().filter_map(|one| self.machines.scatter(one)).collect();
        let parts: Vec<&Part> =
            self.parts.iter().filter(|part| part.document() == document).collect();
        let shown: Vec<Shown<'_>> = parts.iter().map(|part| Shown::new(part, scale)).collect();
        let experiments: Vec<Experiment<'_>> = shown
            .iter()
            .filter(|shown| !shown.groups.is_empty())
            .map(|shown| Experiment {
                name: &shown.part.experiment,
                description: &shown.part.description,
                command: &shown.command,
                groups: &shown.groups,
                tables: section(&shown.part.heading(), shown.part.tables(self.published())),
            })
            .collect();
        let page = Document {
            title: &title(document),
            command: self.command(),
            version: VERSION,
            notes: &self.notes(),
            sections: &sections,
            scatters: &scatters,
            experiments: &experiments,
            appendix: &appendix,
        };
        document::render(&page).map_err(|error| Failure::internal(error.to_string()))
    }
}

/// An experiment with what a page borrows of it.
struct Shown<'a> {
    part: &'a Part,
    command: String,
    /// The variants that have runs.
    groups: Vec<Group<'a>>,
}

impl<'a> Shown<'a> {
    fn new(part: &'a Part, scale: Scale) -> Self {
        let mut words = vec!["highorder".to_owned(), "run".to_owned(), part.experiment.clone()];
        if scale != Scale::FULL {
            words.extend(["--scale".to_owned(), scale.to_string()]);
        }
        let group = |(label, records): &'a (String, Vec<_>)| Group {
            label: label.clone(),
            records: records.iter().collect(),
        };
        let groups = part.records.iter().map(group);
        Self {
            part,
            command: output::shell_command(words.iter().map(String::as_str)),
            groups: groups.filter(|group| !group.records.is_empty()).collect(),
        }
    }
}
