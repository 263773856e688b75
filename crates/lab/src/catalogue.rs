//! What there is by name: experiments, kernels, machines, workloads, knobs, published tables and claims.

use crate::{Experiment, experiment};
use highorder_files::limits;
use highorder_input::{InputError, Source};
use highorder_kernels::KernelFile;
use highorder_kernels::machine;
use highorder_model::knobs;
use highorder_record::published;
use highorder_record::score::Claims;
use serde::Deserialize;
use serde_spanned::Spanned;
use std::fmt;
use std::path::Path;

/// A kind of thing that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Experiments.
    Experiment,
    /// Kernels.
    Kernel,
    /// Machines.
    Machine,
    /// Workloads.
    Workload,
    /// Knobs of kernels.
    Knob,
    /// Published tables.
    Table,
    /// Claims of postings.
    Claim,
}

impl Kind {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 7] = [
        Self::Experiment,
        Self::Kernel,
        Self::Machine,
        Self::Workload,
        Self::Knob,
        Self::Table,
        Self::Claim,
    ];

    /// One of the kind.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Experiment => "experiment",
            Self::Kernel => "kernel",
            Self::Machine => "machine",
            Self::Workload => "workload",
            Self::Knob => "knob",
            Self::Table => "table",
            Self::Claim => "claim",
        }
    }

    /// Several of the kind.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Experiment => "experiments",
            Self::Kernel => "kernels",
            Self::Machine => "machines",
            Self::Workload => "workloads",
            Self::Knob => "knobs",
            Self::Table => "tables",
            Self::Claim => "claims",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Something that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// What it is, in one line.
    pub about: String,
}

/// The names of a kind.
#[must_use]
pub fn names(kind: Kind) -> Vec<String> {
    fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        names.into_iter().map(ToOwned::to_owned).collect()
    }
    match kind {
        Kind::Experiment => of(experiment::BUILT_IN.iter().map(|(name, _)| *name)),
        Kind::Kernel => of(highorder_kernels::names()),
        Kind::Machine => of(machine::BUILT_IN.iter().map(|(name, _)| *name)),
        Kind::Workload => of(highorder_workload::names().iter().copied()),
        Kind::Knob => of(knobs().iter().map(|knob| knob.name)),
        Kind::Table => of(published::names()),
        Kind::Claim => Claims::built_in().0.into_iter().map(|claim| claim.id).collect(),
    }
}

/// Everything of a kind with a line about it.
///
/// # Errors
/// None that a test would not find: what comes with the program can be read.
pub fn entries(kind: Kind) -> Result<Vec<Entry>, InputError> {
    if kind == Kind::Claim {
        let claims = Claims::built_in().0.into_iter();
        return Ok(claims
            .map(|claim| Entry { kind, name: claim.id, about: claim.quote })
            .collect());
    }
    let about = |name: &str| -> Result<String, InputError> {
        Ok(match kind {
            Kind::Experiment => Experiment::load(name)?.description,
            Kind::Kernel => KernelFile::load(name)?.description,
            Kind::Machine => machine::load(name)?.description,
            Kind::Workload => {
                highorder_workload::describe(name).map_or("", |workload| workload.about).to_owned()
            }
            Kind::Knob => {
                let knob = knobs().iter().find(|knob| knob.name == name);
                knob.map_or("", |knob| knob.about).to_owned()
            }
            Kind::Table | Kind::Claim => {
                let form = published::find(name);
                let titles: Vec<&str> =
                    form.iter().flat_map(|form| &form.tables).map(|table| table.title).collect();
                titles.join("; ")
            }
        })
    };
    let entry = |name: String| Ok(Entry { kind, about: about(&name)?, name });
    names(kind).into_iter().map(entry).collect()
}

/// The kinds that have something of this name; `only` looks at one kind alone.
///
/// A published table can also be named by one of its files.
///
/// # Errors
/// There is nothing of the name: what was probably meant, or where names are listed.
pub fn find(name: &str, only: Option<Kind>) -> Result<Vec<(Kind, String)>, InputError> {
    let kinds: Vec<Kind> = only.map_or(Kind::ALL.to_vec(), |kind| vec![kind]);
    let mut found = Vec::new();
    let mut known = Vec::new();
    for kind in kinds {
        let names = names(kind);
        if names.iter().any(|known| known == name) {
            found.push((kind, name.to_owned()));
        } else if kind == Kind::Table
            && let Some(form) = names.iter().find(|form| is_file_of(form, name))
        {
            found.push((kind, form.clone()));
        }
        known.extend(names);
    }
    if !found.is_empty() {
        return Ok(found);
    }
    known.sort();
    known.dedup();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let what = only.map_or("nothing is called".to_owned(), |kind| format!("no {kind}"));
    let expected = highorder_input::did_you_mean(name, &known).unwrap_or_else(|| {
        let kind = only.map_or(String::new(), |kind| format!(" {}", kind.plural()));
        format!("expected a name that `highorder list{kind}` shows, or a .toml file")
    });
    Err(InputError::other(format!("{what} `{name}`, {expected}")))
}

fn is_file_of(form: &str, file: &str) -> bool {
    let file = file.strip_suffix(".csv").unwrap_or(file);
    let form = published::find(form);
    form.is_some_and(|form| form.tables.iter().any(|table| table.file == file))
}

/// What a file of one's own describes: an experiment, a machine or a kernel.
///
/// # Errors
/// The file cannot be read, is no TOML, or describes none of them.
pub fn kind_of_file(path: &Path) -> Result<Kind, InputError> {
    let mut files = vec![read(path)?];
    loop {
        let last = &files[files.len() - 1];
        if let Some(kind) = kind_of_table(&last.values()?) {
            return Ok(kind);
        }
        let Based { based_on } = last.values()?;
        let Some(based_on) = based_on else {
            let expected = "expected an experiment (`[workload]`), a machine (`[[node]]`) or a kernel \
                            (`based_on` or policy values)";
            return Err(InputError::file(&last.path, expected));
        };
        let (at, base) = (based_on.span(), based_on.as_ref());
        let beside = last.path.parent().unwrap_or(Path::new("")).join(base);
        let named = beside.with_file_name(format!("{base}.toml"));
        let next = match () {
            () if base.ends_with(".toml") || base.contains('/') => beside,
            // A file of the name of its base is based on the one that comes with the program.
            () if named != last.path && named.is_file() => named,
            () => return kind_of_base(base).map_err(|message| last.refuse(&at, message)),
        };
        let next = read(&next).map_err(|error| last.refuse(&at, format!("`based_on`: {error}")))?;
        if files.iter().any(|file| file.is_same_file(&next)) {
            return Err(last.refuse(&at, "`based_on` goes round in a circle"));
        }
        files.push(next);
    }
}

/// What a file says of its base.
#[derive(Deserialize)]
struct Based {
    based_on: Option<Spanned<String>>,
}

fn read(path: &Path) -> Result<Source, InputError> {
    let text = highorder_files::read_text(path, limits::SETUP)
        .map_err(|error| InputError::read(path, error))?;
    Ok(Source { path: path.to_owned(), text, is_built_in: false })
}

/// The kind of a base that comes with the program.
fn kind_of_base(base: &str) -> Result<Kind, String> {
    let kinds = [Kind::Kernel, Kind::Machine];
    let all: Vec<String> = kinds.into_iter().flat_map(names).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let found = kinds.into_iter().find(|kind| names(*kind).iter().any(|name| name == base));
    found.ok_or_else(|| {
        let expected = highorder_input::expected_or_file(base, &all);
        format!("`based_on`: no kernel or machine `{base}`, {expected}")
    })
}

/// What a file's keys belong to, if they belong to one kind alone.
fn kind_of_table(table: &toml::Table) -> Option<Kind> {
    let has = |keys: &[&str]| keys.iter().any(|key| table.contains_key(*key));
    if has(&["workload", "variant"]) {
        return Some(Kind::Experiment);
    }
    // Kernels have a table `swap` as well, machines a list of them.
    let has_swap_areas = table.get("swap").is_some_and(toml::Value::is_array);
    if has_swap_areas || has(&["memory", "in_use", "node", "sched", "host", "disk", "costs"]) {
        return Some(Kind::Machine);
    }
    let has_policy = table.values().any(toml::Value::is_table);
    (has_policy || has(&["release"])).then_some(Kind::Kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_listed_has_a_line_and_is_found_by_its_name() {
        for kind in Kind::ALL {
            let entries = entries(kind).unwrap();
            assert_eq!(
                entries.iter().map(|entry| &entry.name).collect::<Vec<_>>(),
                names(kind).iter().collect::<Vec<_>>()
            );
            for entry in entries {
                assert!(entry.about.len() > 8 && !entry.about.contains('\n'), "{entry:?}");
                assert!(find(&entry.name, None).unwrap().contains(&(kind, entry.name.clone())));
                assert_eq!(find(&entry.name, Some(kind)).unwrap(), [(kind, entry.name.clone())]);
            }
        }
    }

    #[test]
    fn a_name_of_several_kinds_is_found_in_each() {
        let usemem = "usemem".to_owned();
        assert_eq!(
            find("usemem", None).unwrap(),
            [(Kind::Experiment, usemem.clone()), (Kind::Workload, usemem)]
        );
        assert_eq!(
            find("000_usemem_times.csv", None).unwrap(),
            [(Kind::Table, "000_usemem".to_owned())]
        );
    }

    #[test]
    fn what_is_not_there_is_answered_with_what_was_meant() {
        let refused = |name, only| find(name, only).unwrap_err().to_string();
        assert_eq!(
            refused("linux-6.22", None),
            "nothing is called `linux-6.22`, did you mean `linux-6.12`?"
        );
        assert_eq!(
            refused("stuter", Some(Kind::Workload)),
            "no workload `stuter`, did you mean `stutter`?"
        );
        assert_eq!(
            refused("kernbench", Some(Kind::Workload)),
            "no workload `kernbench`, expected a name that `highorder list workloads` shows, or a .toml file"
        );
    }

    #[test]
    fn a_files_keys_say_what_it_describes() {
        let folder = tempfile::tempdir().unwrap();
        let kind = |text: &str| {
            let path = folder.path().join("mine.toml");
            std::fs::write(&path, text).unwrap();
            kind_of_file(&path).map_err(|error| error.to_string())
        };
        assert_eq!(
            kind("machine = \"one-node-8g\"\n[workload]\nname = \"dd\"\n"),
            Ok(Kind::Experiment)
        );
        assert_eq!(kind("[[swap]]\ndisk = \"sda\"\n"), Ok(Kind::Machine));
        assert_eq!(kind("based_on = \"linux-6.12\"\n[swap]\npage_cluster = 0\n"), Ok(Kind::Kernel));
        assert_eq!(kind("based_on = \"one-node-8g\"\ndescription = \"mine\"\n"), Ok(Kind::Machine));
        assert_eq!(kind("based_on = \"linux-6.12\"\n"), Ok(Kind::Kernel));
        std::fs::write(folder.path().join("yours.toml"), "[costs]\n").unwrap();
        assert_eq!(kind("based_on = \"yours\"\n"), Ok(Kind::Machine));
        assert_eq!(kind("based_on = \"./yours.toml\"\n"), Ok(Kind::Machine));
        assert!(
            kind("colour = \"red\"\n").unwrap_err().contains("mine.toml: expected an experiment")
        );
        assert!(kind("a = \n").unwrap_err().contains("mine.toml:1: "));
        std::fs::write(folder.path().join("yours.toml"), "based_on = \"mine\"\n").unwrap();
        let circle = kind("based_on = \"yours\"\n").unwrap_err();
        assert!(circle.contains("yours.toml:1: `based_on` goes round in a circle"), "{circle}");
        let missing = kind("\nbased_on = \"./nofile.toml\"\n").unwrap_err();
        assert!(missing.contains("mine.toml:2: `based_on`: "), "{missing}");
        let near = kind("based_on = \"one-node-8\"\n").unwrap_err();
        assert!(near.ends_with("`one-node-8`, did you mean `one-node-8g`?"), "{near}");
        std::fs::write(folder.path().join("linux-6.12.toml"), "based_on = \"linux-6.12\"\n")
            .unwrap();
        assert_eq!(kind_of_file(&folder.path().join("linux-6.12.toml")), Ok(Kind::Kernel));
    }
}
