//! `highorder list`: the names that there are, with a line for each.

use crate::failure::Failure;
use crate::output;
use crate::sheet::{Sheet, width};
use clap::ValueEnum;
use highorder_lab::catalogue::{self, Entry, Kind};
use serde_json::{Map, Value as Json, json};

/// What to list.
#[derive(clap::Args)]
#[command(after_help = "\
`highorder show NAME` tells more of each.

Examples:
  highorder list
  highorder list experiments")]
pub(crate) struct Arguments {
    /// One kind alone, with a line for each name [default: the names of all kinds]
    #[arg(value_name = "KIND")]
    kind: Option<KindWord>,
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// The form of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// To read
    #[default]
    Text,
    /// For programs
    Json,
}

/// The kinds as the command line has them: one or several of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KindWord {
    /// What `run` runs: a machine, a workload and variants
    #[value(alias = "experiment")]
    Experiments,
    /// Kernel files: what the memory manager decides
    #[value(alias = "kernel")]
    Kernels,
    /// Machine files: nodes, CPUs, disks, swap and costs
    #[value(alias = "machine")]
    Machines,
    /// What experiments let run
    #[value(alias = "workload")]
    Workloads,
    /// Settings that variants of an experiment can change
    #[value(alias = "knob")]
    Knobs,
    /// Tables that postings published
    #[value(alias = "table")]
    Tables,
    /// What postings say that their tables show
    #[value(alias = "claim")]
    Claims,
}

impl From<KindWord> for Kind {
    fn from(word: KindWord) -> Self {
        match word {
            KindWord::Experiments => Self::Experiment,
            KindWord::Kernels => Self::Kernel,
            KindWord::Machines => Self::Machine,
            KindWord::Workloads => Self::Workload,
            KindWord::Knobs => Self::Knob,
            KindWord::Tables => Self::Table,
            KindWord::Claims => Self::Claim,
        }
    }
}

/// Prints the names.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let kinds = arguments.kind.map_or(Kind::ALL.to_vec(), |kind| vec![kind.into()]);
    let text = match (arguments.format, kinds.as_slice()) {
        (Format::Json, kinds) => json_of(kinds)?,
        (Format::Text, [kind]) => with_lines(&catalogue::entries(*kind)?),
        (Format::Text, kinds) => names_alone(kinds),
    };
    output::print(text.as_bytes())
}

fn with_lines(entries: &[Entry]) -> String {
    let mut sheet = Sheet::new(width());
    let rows: Vec<(&str, &str)> =
        entries.iter().map(|entry| (entry.name.as_str(), entry.about.as_str())).collect();
    sheet.fields("", &rows);
    sheet.text()
}

fn names_alone(kinds: &[Kind]) -> String {
    let mut sheet = Sheet::new(width());
    for kind in kinds {
        let names = catalogue::names(*kind);
        sheet.heading(&format!("{} {}", names.len(), kind.plural()));
        let names = if *kind == Kind::Claim { by_document(&names) } else { names };
        sheet.paragraph("  ", &names.join(", "));
    }
    sheet.heading("More");
    sheet.fields(
        "  ",
        &[
            ("highorder list KIND", "what each of a kind is, in a line"),
            (
                "highorder show NAME",
                "everything about one of them, or about a .toml file of your own",
            ),
        ],
    );
    sheet.text()
}

/// How many claims there are of each document: their names alone would fill screens.
fn by_document(claims: &[String]) -> Vec<String> {
    let document = |claim: &String| claim.split('-').next().unwrap_or_default().to_owned();
    let groups = claims.chunk_by(|a, b| document(a) == document(b));
    groups.map(|group| format!("{} of document {}", group.len(), document(&group[0]))).collect()
}

fn json_of(kinds: &[Kind]) -> Result<String, Failure> {
    let mut all = Map::new();
    for kind in kinds {
        let entries = catalogue::entries(*kind)?;
        let entries: Vec<Json> = entries
            .into_iter()
            .map(|entry| json!({ "name": entry.name, "about": entry.about }))
            .collect();
        all.insert(kind.plural().to_owned(), Json::Array(entries));
    }
    output::json(&Json::Object(all))
}
