//! What a run on the model depends on, as the values of a record's [`Inputs`].
//!
//! A store takes two runs with equal inputs for one. So everything is here that could change a run, and
//! nothing that cannot: no description, no source of a number, no path, and not what other runs of the
//! experiment there are.

use highorder_kernels::KernelFile;
use highorder_sim::Machine;
use serde::Serialize;
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// Values by key.
type Map = BTreeMap<String, String>;

/// All values of a machine.
pub(crate) fn machine_values(machine: &Machine) -> Map {
    let mut map = Map::new();
    flatten("", serialized(machine), &mut map);
    map
}

/// All values of a kernel, under the names that kernel files have for them, and the knobs that were set.
pub(crate) fn kernel_values(kernel: &KernelFile, knobs: &BTreeMap<String, String>) -> Map {
    let KernelFile { name, release, description: _, policy, flows } = kernel;
    let mut map = Map::new();
    flatten("", serialized(policy), &mut map);
    flatten("", serialized(flows), &mut map);
    map.insert("kernel".to_owned(), name.clone());
    map.insert("release".to_owned(), release.clone());
    map.extend(knobs.clone());
    map
}

/// Numbers as a value of a record's inputs.
pub(crate) fn list(numbers: &[u32]) -> String {
    serialized(&numbers).to_string()
}

fn serialized(value: &impl Serialize) -> Json {
    serde_json::to_value(value).expect("plain values under names")
}

/// Adds each value that is within another one: `outer.inner` of a structure or a choice with values, `outer.0` of a
/// list of such. What there is not is no value.
fn flatten(prefix: &str, value: Json, map: &mut Map) {
    let inner = |key: &str| match prefix {
        "" => key.to_owned(),
        prefix => format!("{prefix}.{key}"),
    };
    match value {
        Json::Null => {}
        Json::Object(fields) => {
            for (key, value) in fields {
                flatten(&inner(&key), value, map);
            }
        }
        Json::Array(items) if items.iter().any(Json::is_object) => {
            for (number, item) in items.into_iter().enumerate() {
                flatten(&inner(&number.to_string()), item, map);
            }
        }
        Json::String(text) => drop(map.insert(prefix.to_owned(), text)),
        plain => drop(map.insert(prefix.to_owned(), plain.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highorder_kernels::machine;

    #[test]
    fn every_field_is_a_value_of_its_own() {
        #[derive(Serialize)]
        struct Outer {
            plain: u32,
            inner: Inner,
            list: [u32; 3],
            choice: Choice,
            parts: Vec<Inner>,
        }
        #[derive(Clone, Serialize)]
        struct Inner {
            optional: Option<u8>,
            word: Choice,
        }
        #[derive(Clone, Serialize)]
        #[serde(rename_all = "kebab-case")]
        enum Choice {
            AsBefore,
            With { least: u32, most: u32 },
        }
        let inner = Inner { optional: Some(3), word: Choice::AsBefore };
        let value = Outer {
            plain: 7,
            inner: inner.clone(),
            list: [1, 2, 3],
            choice: Choice::With { least: 1, most: 2 },
            parts: vec![Inner { optional: None, ..inner }],
        };
        let mut found = Map::new();
        flatten("x", serialized(&value), &mut found);
        let expected = [
            ("x.choice.with.least", "1"),
            ("x.choice.with.most", "2"),
            ("x.inner.optional", "3"),
            ("x.inner.word", "as-before"),
            ("x.list", "[1,2,3]"),
            ("x.parts.0.word", "as-before"),
            ("x.plain", "7"),
        ];
        assert_eq!(found, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    }

    #[test]
    fn the_values_of_a_machine_and_a_kernel_have_the_names_of_their_files() {
        let machine = machine::load("two-node-64g").unwrap();
        let values = machine_values(&machine);
        for (key, number) in [
            ("node.1.memory_bytes", machine.nodes[1].memory_bytes),
            ("node.1.cpus.end", machine.nodes[1].cpus.end.into()),
            ("disk.0.capacity_bytes", machine.disks[0].capacity_bytes),
            ("cost.clear_base_page.picoseconds", machine.costs.clear_base_page.picoseconds()),
        ] {
            assert_eq!(values.get(key), Some(&number.to_string()), "{key}");
        }
        assert_eq!(values["node.0.distances"], list(&machine.nodes[0].distances));
        let kernel = kernel_values(&KernelFile::load("linux-3.3").unwrap(), &Map::new());
        for (key, value) in [
            ("freelist.max_order", "10"),
            ("stall.rule", "congestion-by-share"),
            ("khugepaged.max_ptes_swap", "0"),
            ("watermark.lowmem_reserve_ratio", "[256,256,32]"),
        ] {
            assert_eq!(kernel.get(key).map(String::as_str), Some(value), "{key}");
        }
    }

    #[test]
    fn kernels_that_differ_have_different_values() {
        let mut seen = Vec::new();
        for (name, _) in highorder_kernels::BUILT_IN {
            let mut values = kernel_values(&KernelFile::load(name).unwrap(), &Map::new());
            assert!(values.contains_key("freelist.max_order"), "{values:?}");
            values.retain(|key, _| key != "kernel" && key != "release");
            assert!(!seen.contains(&values), "{name}");
            seen.push(values);
        }
    }

    #[test]
    fn whatever_a_machine_has_changes_its_values() {
        let machine = || machine::load("two-node-64g").unwrap();
        let base = machine_values(&machine());
        let changes: [fn(&mut Machine); 8] = [
            |m| m.nodes[1].memory_bytes += 1 << 20,
            |m| m.nodes[0].distances[1] += 1,
            |m| m.device_hole_bytes += 1 << 20,
            |m| m.reserved.high_bytes += 4096,
            |m| m.disks[0].nr_requests += 1,
            |m| m.swap[0].bytes += 4096,
            |m| m.sched.latency.0 += 1,
            |m| m.swap.clear(),
        ];
        for change in changes {
            let mut changed = machine();
            change(&mut changed);
            assert_ne!(machine_values(&changed), base, "{changed:?}");
        }
        let mut renamed = machine();
        renamed.description.push('x');
        assert_eq!(machine_values(&renamed), base, "words do not change a run");
    }
}
