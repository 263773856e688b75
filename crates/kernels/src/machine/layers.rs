//! A machine file and those that it is based on, laid over one another.
//!
//! What a file says stands, and the rest is its base's:
//!
//! - A key of `[memory]`, `[in_use]`, `[sched]` and `[host]`. Whoever changes one says where the table's values are from.
//! - A cost, whole: its number and its source.
//! - All entries of `[[node]]`, of `[[disk]]` or of `[[swap]]`, each list for itself. An entry has what it does not
//!   say from the base's entry of the same number, and a node beyond those from the base's first.
//! - No description: it is of another machine.

use highorder_input::layers::{Table, Value, lay_keys};
use highorder_input::{InputError, Layers};
use toml::de::{DeTable, DeValue};

/// Tables whose values have one source.
const SOURCED: [&str; 4] = ["memory", "in_use", "sched", "host"];
/// Tables whose values have a source each.
const COSTS: &str = "costs";
const DESCRIPTION: &str = "description";
/// Lists of tables.
const LISTS: [&str; 3] = [NODE, DISK, SWAP];
const NODE: &str = "node";
const DISK: &str = "disk";
const SWAP: &str = "swap";
const SOURCE: &str = "source";
/// What a node has of a base only if that has as many nodes.
const DISTANCES: &str = "distances";
/// The kinds of disks, and what goes with them.
const DISK_KINDS: [&str; 2] = ["rotating", "flash"];
const OF_KIND: [&str; 2] = ["says_rotational", "elevator"];

/// The file's values over those of its bases.
///
/// # Errors
/// A table that changes what its base says and does not say where its values are from.
pub(super) fn merged(layers: &Layers) -> Result<Table<'_>, InputError> {
    let mut laying = Laying { layers, problems: Vec::new() };
    let merged = layers.merged(|own, base| laying.lay(own, base))?;
    match laying.problems {
        problems if problems.is_empty() => Ok(merged),
        problems => Err(InputError::all(problems)),
    }
}

/// One file after another laid over its base.
struct Laying<'a> {
    layers: &'a Layers,
    problems: Vec<InputError>,
}

impl Laying<'_> {
    /// Adds to a file's values what only its base says.
    fn lay<'i>(&mut self, own: &mut DeTable<'i>, base: DeTable<'i>) {
        for (key, base) in base {
            let name = key.get_ref().to_string();
            let Some(own) = own.get_mut(name.as_str()) else {
                if name != DESCRIPTION {
                    own.insert(key, base);
                }
                continue;
            };
            if LISTS.contains(&name.as_str()) {
                self.lay_list(&name, own, base);
            } else if SOURCED.contains(&name.as_str()) || name == COSTS {
                if name != COSTS {
                    self.expect_source(&format!("[{name}]"), own);
                }
                lay_keys(own, base, |_| true);
            }
        }
    }

    /// Adds to the entries of a list what they have from the base's.
    fn lay_list<'i>(&mut self, name: &str, own: &mut Value<'i>, base: Value<'i>) {
        let (DeValue::Array(own), DeValue::Array(base)) = (own.get_mut(), base.into_inner()) else {
            return;
        };
        let nr_own = own.len();
        for (number, own) in own.iter_mut().enumerate() {
            let same = base.get(number).or_else(|| base.first().filter(|_| name == NODE));
            let Some(same) = same.cloned() else { continue };
            match name {
                NODE => {
                    let is_same_shape = nr_own == base.len();
                    lay_keys(own, same, |key| key != DISTANCES || is_same_shape);
                }
                DISK => {
                    self.expect_source("[[disk]]", own);
                    lay_disk(own, same);
                }
                _ => lay_keys(own, same, |_| true),
            }
        }
    }

    /// Refuses a table that changes values and does not say where they are from.
    fn expect_source(&mut self, name: &str, own: &Value<'_>) {
        if let DeValue::Table(table) = own.get_ref()
            && !table.is_empty()
            && !table.contains_key(SOURCE)
        {
            let message = format!(
                "`{name}` changes what the file is based on, expected a `source` of its own"
            );
            self.problems.push(self.layers.refuse(&own.span(), message));
        }
    }
}

/// Adds to a disk what it lacks and another has: one of another kind has nothing of the base's kind, one of the same kind the rest of it.
fn lay_disk<'i>(own: &mut Value<'i>, base: Value<'i>) {
    let (DeValue::Table(table), DeValue::Table(of_base)) = (own.get_mut(), base.get_ref()) else {
        return;
    };
    let kind_of =
        |table: &DeTable<'_>| DISK_KINDS.into_iter().find(|kind| table.contains_key(*kind));
    let own_kind = kind_of(table);
    let is_other_kind = own_kind.is_some() && own_kind != kind_of(of_base);
    if let Some(kind) = own_kind.filter(|_| !is_other_kind)
        && let (Some(own), Some(base)) = (table.get_mut(kind), of_base.get(kind))
    {
        lay_keys(own, base.clone(), |_| true);
    }
    lay_keys(own, base, |key| {
        !is_other_kind || !(DISK_KINDS.contains(&key) || OF_KIND.contains(&key))
    });
}
