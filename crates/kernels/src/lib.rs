//! Kernels and machines as files. A kernel is a file of policy values, based on another one and overriding it.
//!
//! A file is laid over those that it is based on, value by value, and what comes out is read as two policies:
//! [`Policy`] of the memory manager's steps and [`Flows`] of what runs over them. A value is the field of one of their
//! types: its name, its type, its bounds and what it decides stand there and nowhere else.

pub mod machine;

use highorder_input::layers::{Table, lay_keys};
use highorder_input::{InputError, Kind, Layers, Source, commented_values, expected};
use highorder_mm::policy::Policy;
use highorder_sim::kernel::Flows;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use toml::de::DeTable;

/// The kernel files that come with the program, by name: those of the folder `kernels`.
pub const BUILT_IN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

/// Those of them that were asked for: experiments name the same few over and over, and the oldest lie on a dozen others.
static READ: [OnceLock<KernelFile>; BUILT_IN.len()] = [const { OnceLock::new() }; BUILT_IN.len()];

/// Kernel files.
const KIND: Kind = Kind { word: "kernel", built_in: BUILT_IN };

/// Keys of a file that are no values of a policy.
const HEAD: [&str; 2] = ["release", "description"];

/// A kernel: a name and the policy it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelFile {
    /// Name of the file, without its ending.
    pub name: String,
    /// The release it describes, as `uname -r` begins.
    pub release: String,
    /// One line for people.
    pub description: String,
    /// Its allocator's and reclaim's decisions.
    pub policy: Policy,
    /// Its flows' decisions: the slow path's, kswapd's, direct reclaim's.
    pub flows: Flows,
}

/// What a file says beside its policies.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    release: String,
    #[serde(default)]
    description: String,
}

impl KernelFile {
    /// The kernel of this name: a file's path, or one that comes with the program.
    ///
    /// # Errors
    /// The file and line of a misspelt, missing or impossible value.
    pub fn load(name: &str) -> Result<Self, InputError> {
        let read = || Self::read(&layers(name)?);
        let Some(at) = BUILT_IN.iter().position(|(known, _)| *known == name) else { return read() };
        if let Some(kernel) = READ[at].get() {
            return Ok(kernel.clone());
        }
        let kernel = read()?;
        Ok(READ[at].get_or_init(|| kernel).clone())
    }

    /// As [`load`](Self::load), with values of a text over those of the file.
    ///
    /// # Errors
    /// As [`load`](Self::load); lines of the text count as the file's.
    pub fn load_under(name: &str, text: String) -> Result<Self, InputError> {
        Self::read(&layers(name)?.under(text))
    }

    fn read(layers: &Layers) -> Result<Self, InputError> {
        let merged = layers.merged(lay)?;
        let Head { release, description } = layers.values(&merged)?;
        let kernel = Self {
            name: layers.file().name(),
            release,
            description,
            policy: layers.values(&merged)?,
            flows: layers.values(&merged)?,
        };
        kernel.check_release(layers, &merged)?;
        kernel.check_tables(layers, &merged)?;
        kernel.check_orders(layers, &merged)?;
        Ok(kernel)
    }

    /// Refuses what is no release.
    fn check_release(&self, layers: &Layers, merged: &Table<'_>) -> Result<(), InputError> {
        match merged.get_ref().get("release") {
            Some(value) if !is_release(&self.release) => {
                let expected = "VERSION.PATCHLEVEL as `6.12`, and .SUBLEVEL or -rcN if need be";
                let message = format!("`release` is \"{}\", expected {expected}", self.release);
                Err(layers.refuse(&value.span(), message))
            }
            _ => Ok(()),
        }
    }

    /// Refuses what is no table of either policy.
    fn check_tables(&self, layers: &Layers, merged: &Table<'_>) -> Result<(), InputError> {
        let tables = self.tables();
        let mut known: Vec<&str> = HEAD.to_vec();
        known.extend(tables.keys().map(String::as_str));
        let is_unknown = |name: &str| !known.contains(&name);
        match merged.get_ref().keys().find(|key| is_unknown(key.get_ref())) {
            Some(key) => {
                let name = key.get_ref();
                let message = format!("unknown field `{name}`, {}", expected(name, &known));
                Err(layers.refuse(&key.span(), message))
            }
            None => Ok(()),
        }
    }

    /// Refuses pageblocks that are larger than any block.
    fn check_orders(&self, layers: &Layers, merged: &Table<'_>) -> Result<(), InputError> {
        let freelist = &self.policy.freelist;
        if freelist.pageblock_order <= freelist.max_order {
            return Ok(());
        }
        let (found, most) = (freelist.pageblock_order, freelist.max_order);
        let message = format!(
            "`freelist.pageblock_order` is {found}, expected at most `freelist.max_order`, {most}"
        );
        let table = merged.get_ref().get("freelist").and_then(|table| table.get_ref().as_table());
        let span = table.and_then(|table| table.get("pageblock_order")).map(|value| value.span());
        Err(layers.refuse(&span.unwrap_or_default(), message))
    }

    /// The values of both policies as files write them, by table and key.
    ///
    /// This is the canonical form: equal kernels have equal values, whatever files they come from.
    #[must_use]
    pub fn tables(&self) -> BTreeMap<String, BTreeMap<String, toml::Value>> {
        let mut tables = tables_of(&self.policy);
        tables.extend(tables_of(&self.flows));
        tables
    }

    /// Every value of this kernel with the file that sets it and the source that is named there.
    ///
    /// # Errors
    /// As [`KernelFile::load`].
    pub fn explain(name: &str) -> Result<Explained, InputError> {
        let layers = layers(name)?;
        let kernel = Self::read(&layers)?;
        let mut values = Vec::<ExplainedValue>::new();
        for source in layers.sources().iter().rev() {
            let commented =
                commented_values(&source.text).map_err(|error| source.refuse_toml(&error))?;
            for value in commented.into_iter().filter(|value| value.key.contains('.')) {
                let explained = ExplainedValue {
                    key: value.key,
                    value: value.text,
                    source: value.comment,
                    set_by: source.name(),
                    line: value.line,
                };
                match values.iter_mut().find(|known| known.key == explained.key) {
                    Some(known) => *known = explained,
                    None => values.push(explained),
                }
            }
        }
        let chain = layers.sources().iter().map(Source::name).collect();
        let Self { name, release, description, .. } = kernel;
        Ok(Explained { name, release, description, chain, values })
    }

    /// The kernel of this release among those that come with the program.
    ///
    /// # Errors
    /// There is none: names the nearest.
    pub fn for_release(release: &str) -> Result<Self, InputError> {
        let belongs = |name: &str| {
            let version = name.trim_start_matches("linux-");
            release
                .strip_prefix(version)
                .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        match BUILT_IN.iter().find(|(name, _)| belongs(name)) {
            Some((name, _)) => Self::load(name),
            None => Err(InputError::other(format!(
                "no kernel file for release {release}, expected --kernel {}, the nearest there is, or another one that \
                 `highorder list kernels` shows",
                nearest(release)
            ))),
        }
    }
}

/// A kernel as its files tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// Name of the file, without its ending.
    pub name: String,
    /// The release it describes.
    pub release: String,
    /// One line for people.
    pub description: String,
    /// The files that set its values: its own, what that is based on, and so on.
    pub chain: Vec<String>,
    /// Its values in the order of the file that all others are based on.
    pub values: Vec<ExplainedValue>,
}

/// A value of a kernel, and where it is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedValue {
    /// Its table and key: `compaction.free_scan`.
    pub key: String,
    /// The value as the file has it.
    pub value: String,
    /// The comment beside it, which names its source.
    pub source: Option<String>,
    /// The file that sets it, one of the chain.
    pub set_by: String,
    /// The line of that file, counted from 1.
    pub line: usize,
}

impl ExplainedValue {
    /// The value as programs read it.
    #[must_use]
    pub fn parsed(&self) -> toml::Value {
        let text = || toml::Value::String(self.value.clone());
        self.value.parse().unwrap_or_else(|_| text())
    }
}

/// The names of the kernels that come with the program.
#[must_use]
pub fn names() -> Vec<&'static str> {
    BUILT_IN.iter().map(|(name, _)| *name).collect()
}

/// The newest kernel file of a release that is no newer than this one, and of none that is older the oldest.
///
/// # Panics
/// Never: there are kernel files of releases.
#[must_use]
pub fn nearest(release: &str) -> &'static str {
    let of_name = |name: &str| version(name.trim_start_matches("linux-"));
    // Those of variants and candidates have more in their names.
    let is_plain = |name: &&str| of_name(name).is_some() && name.matches('-').count() == 1;
    let mut names: Vec<_> = names().into_iter().filter(is_plain).collect();
    names.sort_by_key(|name| of_name(name));
    let is_older = |name: &&&str| of_name(name) <= version(release);
    names.iter().rev().find(is_older).or(names.first()).expect("kernel files of releases")
}

/// VERSION and PATCHLEVEL of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split('.').map(|number| number.split('-').next()?.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Whether this is VERSION.PATCHLEVEL, maybe with .SUBLEVEL, -rcN or both.
fn is_release(text: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let (numbers, candidate) = text.split_once("-rc").map_or((text, "1"), |parts| parts);
    let nr = numbers.split('.').count();
    (2..=3).contains(&nr) && numbers.split('.').all(is_number) && is_number(candidate)
}

fn layers(name: &str) -> Result<Layers, InputError> {
    Layers::read(&KIND, KIND.find(name)?)
}

/// Adds to a file's values what only its base says, key by key.
fn lay<'i>(own: &mut DeTable<'i>, base: DeTable<'i>) {
    for (key, value) in base {
        match own.get_mut(&**key.get_ref()) {
            Some(own) => lay_keys(own, value, |_| true),
            None => drop(own.insert(key, value)),
        }
    }
}

fn tables_of(policy: &impl Serialize) -> BTreeMap<String, BTreeMap<String, toml::Value>> {
    let tables = toml::Table::try_from(policy).expect("a policy is tables of plain values");
    let keys = |table: toml::Value| match table {
        toml::Value::Table(table) => table.into_iter().collect(),
        value => panic!("`{value}` is no table of a policy"),
    };
    tables.into_iter().map(|(name, table)| (name, keys(table))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use highorder_mm::policy::{FreePages, MigrateSearch, TargetSearch};
    use highorder_sim::kernel::policy::StallRule;

    fn written(text: &str) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        std::fs::write(&path, text).unwrap();
        (folder, path.to_str().unwrap().to_owned())
    }

    #[test]
    fn every_kernel_that_comes_with_the_program_loads() {
        for (name, _) in BUILT_IN {
            assert_eq!(KernelFile::load(name).unwrap().name, *name);
        }
    }

    #[test]
    fn a_file_overrides_what_it_is_based_on_and_nothing_else() {
        let base = KernelFile::load("linux-6.12").unwrap();
        let (_folder, path) = written("based_on = \"linux-6.12\"\n[watermark]\nboost_factor = 0\n");
        let mine = KernelFile::load(&path).unwrap();
        assert_eq!(mine.name, "mine");
        assert_eq!(mine.policy.watermark.boost_factor, 0);
        let mut restored = mine.policy;
        restored.watermark.boost_factor = base.policy.watermark.boost_factor;
        assert_eq!(restored, base.policy);
    }

    #[test]
    fn a_misspelt_policy_is_named_with_its_line() {
        let (_folder, path) = written("based_on = \"linux-6.12\"\n\n[freelist]\nmerg = \"head\"\n");
        let error = KernelFile::load(&path).unwrap_err().to_string();
        assert!(error.contains("mine.toml:4: unknown field `merg`"), "{error}");
    }

    #[test]
    fn a_word_no_policy_knows_is_named_with_its_line_and_the_words_there_are() {
        let (_folder, path) =
            written("based_on = \"linux-6.12\"\n[freelist]\nmerge = \"middle\"\n");
        let error = KernelFile::load(&path).unwrap_err().to_string();
        assert!(error.contains("mine.toml:3: unknown variant `middle`"), "{error}");
        assert!(error.contains("look-ahead"), "{error}");
    }

    #[test]
    fn orders_and_scales_that_no_kernel_could_have_are_refused() {
        let refused = |lines: &str| {
            let (_folder, path) = written(&format!("based_on = \"linux-6.12\"\n{lines}"));
            KernelFile::load(&path).unwrap_err().to_string()
        };
        let complaint = refused("[freelist]\nmax_order = 8\n");
        assert!(complaint.contains("`freelist.pageblock_order` is 9"), "{complaint}");
        let complaint = refused("[pcp]\nbatch_scale_max = 32\n");
        assert!(complaint.contains("`pcp.batch_scale_max` is 32"), "{complaint}");
    }

    #[test]
    fn flows_are_read_from_their_tables_and_overridden_alone() {
        let flows = |name| KernelFile::load(name).unwrap().flows;
        assert_eq!(flows("linux-6.12").kswapd.failures_max, Some(16));
        assert_eq!(flows("linux-4.4").kswapd.failures_max, None, "0 stands for no limit");
        assert_eq!(flows("linux-4.4").stall.rule, StallRule::Congestion);
        let (_folder, path) =
            written("based_on = \"linux-6.12\"\n[stall]\nrule = \"congestion\"\n");
        let mine = flows(&path);
        let mut expected = flows("linux-6.12");
        expected.stall.rule = StallRule::Congestion;
        assert_eq!(mine, expected);
        let (_folder, path) =
            written("based_on = \"linux-6.12\"\n[kswapd]\nbalance_gap_permille = 1001\n");
        let complaint = KernelFile::load(&path).unwrap_err().to_string();
        assert!(complaint.contains("`kswapd.balance_gap_permille` is 1001, expected 0..=1000"));
    }

    #[test]
    fn a_kernel_without_fast_searches_can_be_told() {
        let compaction = KernelFile::load("linux-4.4").unwrap().policy.compaction;
        assert_eq!(compaction.target_search, TargetSearch::Off);
        assert_eq!(compaction.migrate_search, MigrateSearch::Off);
    }

    #[test]
    fn the_two_forms_of_direct_targets_differ_from_4_14_in_nothing_else() {
        let policy = |name| KernelFile::load(name).unwrap().policy;
        let base = policy("linux-4.14");
        assert_eq!(base.compaction.free_pages, FreePages::Scanner);
        for (name, form) in [
            ("linux-4.14-direct-held", FreePages::DirectHeld),
            ("linux-4.14-direct-tail", FreePages::DirectTail),
        ] {
            let mut found = policy(name);
            assert_eq!(found.compaction.free_pages, form);
            found.compaction.free_pages = FreePages::Scanner;
            assert_eq!(found, base, "{name}");
        }
    }

    #[test]
    fn every_value_of_every_kernel_names_its_source() {
        let all = KernelFile::explain("linux-6.12").unwrap().values.len();
        for name in names() {
            let explained = KernelFile::explain(name).unwrap();
            assert_eq!(explained.values.len(), all, "{name}");
            for value in &explained.values {
                let source = value.source.as_deref().unwrap_or_default();
                assert!(source.len() > 3 && !source.starts_with("likewise"), "{name}: {value:?}");
                assert!(explained.chain.contains(&value.set_by), "{name}: {value:?}");
            }
        }
    }

    #[test]
    fn a_value_is_told_with_the_file_of_the_chain_that_sets_it() {
        let (_folder, path) =
            written("based_on = \"linux-6.1\"\n\n[watermark]\nboost_factor = 0   # our choice\n");
        let explained = KernelFile::explain(&path).unwrap();
        assert_eq!(explained.chain, ["mine", "linux-6.1", "linux-6.12"]);
        assert_eq!(explained.release, "6.1");
        let value = |key: &str| explained.values.iter().find(|value| value.key == key).unwrap();
        let boost = ExplainedValue {
            key: "watermark.boost_factor".into(),
            value: "0".into(),
            source: Some("our choice".into()),
            set_by: "mine".into(),
            line: 4,
        };
        assert_eq!(*value("watermark.boost_factor"), boost);
        assert_eq!(value("lru.kind").set_by, "linux-6.1");
        assert_eq!(value("lru.kind").value, "\"classic\"");
        assert_eq!(value("freelist.max_order").set_by, "linux-6.12");
        assert_eq!(
            value("khugepaged.scan_sleep_ms").source.as_deref(),
            Some("mm/khugepaged.c: khugepaged_init")
        );
    }

    #[test]
    fn a_near_miss_is_told_what_was_meant() {
        let refused = |name: &str| KernelFile::load(name).unwrap_err().to_string();
        assert_eq!(refused("linux-6.22"), "no kernel `linux-6.22`, did you mean `linux-6.12`?");
        assert!(refused("plan-9").contains("expected one of linux-3.3, "));
        let (_folder, path) = written("based_on = \"linux-6.12\"\n\n[freelist]\nmerg = \"head\"\n");
        let error = refused(&path);
        assert!(
            error.ends_with("mine.toml:4: unknown field `merg`, did you mean `merge`?"),
            "{error}"
        );
    }

    #[test]
    fn what_is_no_release_is_refused_where_it_stands() {
        for (release, is_one) in [
            ("6.12", true),
            ("6.12.107", true),
            ("4.20-rc1", true),
            ("3.4.0-rc2", true),
            ("banana", false),
            ("6", false),
            ("6.12.", false),
            ("6.12-rc", false),
            ("6.12.1.1", false),
        ] {
            let text = format!("based_on = \"linux-6.12\"\nrelease = \"{release}\"\n");
            let (_folder, path) = written(&text);
            match KernelFile::load(&path) {
                Ok(_) => assert!(is_one, "{release}"),
                Err(error) => {
                    let told = error.to_string();
                    assert!(!is_one && told.contains("mine.toml:2: `release` is "), "{told}");
                }
            }
        }
    }

    #[test]
    fn a_circle_of_bases_is_an_error() {
        let (folder, path) = written("based_on = \"yours\"\n");
        std::fs::write(folder.path().join("yours.toml"), "based_on = \"mine\"\n").unwrap();
        let error = KernelFile::load(&path).unwrap_err().to_string();
        assert!(error.contains("yours.toml:1: `based_on` goes round in a circle"), "{error}");
    }

    #[test]
    fn a_base_that_there_is_not_is_named_with_its_line() {
        let (_folder, path) = written("release = \"6.12\"\nbased_on = \"nothing\"\n");
        let error = KernelFile::load(&path).unwrap_err().to_string();
        assert!(error.contains("mine.toml:2: `based_on`: no kernel `nothing`"), "{error}");
    }

    #[test]
    fn releases_find_their_kernel_file() {
        let name = |release| KernelFile::for_release(release).map(|k| k.name);
        assert_eq!(name("6.12.107+deb12-cloud-amd64").unwrap(), "linux-6.12");
        assert_eq!(name("6.1.0-53-cloud-amd64").unwrap(), "linux-6.1");
        assert_eq!(name("4.4.302").unwrap(), "linux-4.4");
        // The kernels of the recorded cases of the documents' time.
        for (release, expected) in [
            ("3.3.8", "linux-3.3"),
            ("3.4.4", "linux-3.4"),
            ("3.5.0", "linux-3.5"),
            ("4.4.155", "linux-4.4"),
            ("4.5.0", "linux-4.5"),
            ("4.6.2", "linux-4.6"),
            ("4.20.0", "linux-4.20"),
            ("5.0.0", "linux-5.0"),
        ] {
            assert_eq!(name(release).unwrap(), expected);
        }
        let refused = name("6.18.1").unwrap_err().to_string();
        assert!(refused.contains("6.18.1, expected --kernel linux-6.12, the nearest"), "{refused}");
        assert_eq!(nearest("2.6.39"), "linux-3.3");
        assert_eq!(nearest("4.15.0-20-generic"), "linux-4.14");
        assert!(name("4.49.1").is_err());
        assert!(name("6.18.1").is_err());
    }
}
