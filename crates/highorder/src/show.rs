//! `highorder show`: everything about something that has a name, or about a file of one's own.

mod experiment;
mod kernel;
mod knob;
mod machine;
mod published;
mod workload;

use crate::complete;
use crate::failure::Failure;
use crate::list::{Format, KindWord};
use crate::output;
use crate::sheet::{Sheet, width};
use clap_complete::engine::ArgValueCompleter;
use highorder_lab::catalogue::{self, Kind};
use serde_json::Value as Json;
use std::path::Path;

/// What to show.
#[derive(clap::Args)]
#[command(after_help = "\
A name of several kinds is shown once for each. A .toml file of your own is shown as what it describes: an \
experiment, a machine or a kernel. `highorder list` has the names.

Examples:
  highorder show usemem
  highorder show linux-4.4 --against linux-6.12
  highorder show vm.swappiness")]
pub(crate) struct Arguments {
    /// The name, or a .toml file
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(complete::anything))]
    name: String,
    /// Only what is of this kind
    #[arg(long, value_name = "KIND", hide_possible_values = true)]
    kind: Option<KindWord>,
    /// Only the values of a kernel that differ from this kernel's: a name, or a .toml file
    #[arg(long, value_name = "KERNEL", add = ArgValueCompleter::new(complete::kernels))]
    against: Option<String>,
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// What is shown: for people and for programs.
struct Shown {
    sheet: Sheet,
    json: Json,
}

/// Looks it up and prints it.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let found = found(&arguments.name, arguments.kind.map(Kind::from))?;
    let shown: Vec<Shown> = match &arguments.against {
        Some(other) => {
            let kernel = found.iter().find(|(kind, _)| *kind == Kind::Kernel);
            let Some((_, name)) = kernel else {
                let (kind, name) = &found[0];
                return Err(Failure::input(format!(
                    "--against of the {kind} `{name}`, expected a kernel before it"
                )));
            };
            vec![kernel::against(name, other)?]
        }
        None => found.iter().map(|(kind, name)| one(*kind, name)).collect::<Result<_, _>>()?,
    };
    let text = match arguments.format {
        Format::Json => output::json(&Json::Array(shown.into_iter().map(|s| s.json).collect()))?,
        Format::Text => {
            let texts: Vec<String> = shown.into_iter().map(|shown| shown.sheet.text()).collect();
            texts.join("\n\n")
        }
    };
    output::print(text.as_bytes())
}

/// What the name stands for: what comes with the program, or else a file.
fn found(name: &str, only: Option<Kind>) -> Result<Vec<(Kind, String)>, Failure> {
    let is_file = name.ends_with(".toml") || Path::new(name).is_file();
    match catalogue::find(name, only) {
        Err(_) if is_file => {
            let kind = catalogue::kind_of_file(Path::new(name))?;
            match only.filter(|only| *only != kind) {
                Some(only) => {
                    Err(Failure::input(format!("{name}: is a {kind}, expected a {only}")))
                }
                None => Ok(vec![(kind, as_path(name))]),
            }
        }
        found => Ok(found?),
    }
}

/// A file's name, such that whoever loads it takes it for no other name.
fn as_path(name: &str) -> String {
    if name.ends_with(".toml") || name.contains('/') {
        name.to_owned()
    } else {
        format!("./{name}")
    }
}

fn one(kind: Kind, name: &str) -> Result<Shown, Failure> {
    match kind {
        Kind::Experiment => experiment::shown(name),
        Kind::Kernel => kernel::shown(name),
        Kind::Machine => machine::shown(name),
        Kind::Workload => workload::shown(name),
        Kind::Knob => knob::shown(name),
        Kind::Table => published::table(name),
        Kind::Claim => published::claim(name),
    }
}

/// A sheet with the name, the kind and the line about it at its top.
fn begun(kind: Kind, name: &str, about: &str) -> Sheet {
    let mut sheet = Sheet::new(width());
    sheet.line(&format!("{name}: {}", article(kind)));
    sheet.paragraph("", about);
    sheet
}

const fn article(kind: Kind) -> &'static str {
    match kind {
        Kind::Experiment => "an experiment",
        Kind::Kernel => "a kernel",
        Kind::Machine => "a machine",
        Kind::Workload => "a workload",
        Kind::Knob => "a knob",
        Kind::Table => "published tables",
        Kind::Claim => "a claim",
    }
}
