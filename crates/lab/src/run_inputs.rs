//! What a run on the model depends on, as the values of a record's [`Inputs`].
//!
//! A store takes two runs with equal inputs for one. So everything is here that could change a run, and
//! nothing that cannot: no description, no source of a number, no path, and not what other runs of the
//! experiment there are.

use crate::KernelFile;
use highorder_sim::machine::{InUse, Node, Reserved, SwapArea};
use highorder_sim::{DeviceSpec, Machine};
use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};

/// Values by key.
type Map = BTreeMap<String, String>;

/// All values of a machine.
pub(crate) fn machine_values(machine: &Machine) -> Map {
    // Taken apart whole, so that a field to come cannot be forgotten here.
    let Machine {
        name: _,
        description: _,
        nodes,
        dma32_end_bytes,
        device_hole_bytes,
        reserved,
        in_use,
        disks,
        file_systems,
        swap,
        sched,
        costs,
        sources: _,
    } = machine;
    let mut map = Map::new();
    let mut put = |key: String, value: String| drop(map.insert(key, value));
    for (number, Node { memory_bytes, cpus, distances }) in nodes.iter().enumerate() {
        put(format!("node.{number}.memory_bytes"), memory_bytes.to_string());
        put(format!("node.{number}.cpus"), format!("{}..{}", cpus.start, cpus.end));
        put(format!("node.{number}.distances"), format!("{distances:?}"));
    }
    put("dma32_end_bytes".into(), dma32_end_bytes.to_string());
    put("device_hole_bytes".into(), device_hole_bytes.to_string());
    let Reserved { memmap_bytes_per_page, low_bytes, high_bytes } = reserved;
    put("reserved.memmap_bytes_per_page".into(), memmap_bytes_per_page.to_string());
    put("reserved.low_bytes".into(), low_bytes.to_string());
    put("reserved.high_bytes".into(), high_bytes.to_string());
    if let Some(InUse { unmovable_blocks_per_1000, holes_per_1000_blocks }) = in_use {
        put("in_use.unmovable_blocks_per_1000".into(), unmovable_blocks_per_1000.to_string());
        put("in_use.holes_per_1000_blocks".into(), format!("{holes_per_1000_blocks:?}"));
    }
    for (number, disk) in disks.iter().enumerate() {
        let DeviceSpec {
            name,
            capacity_bytes,
            nr_requests,
            max_request_bytes,
            says_rotational,
            kind,
        } = disk;
        put(format!("disk.{number}.name"), name.clone());
        put(format!("disk.{number}.capacity_bytes"), capacity_bytes.to_string());
        put(format!("disk.{number}.nr_requests"), nr_requests.to_string());
        put(format!("disk.{number}.max_request_bytes"), max_request_bytes.to_string());
        put(format!("disk.{number}.says_rotational"), says_rotational.to_string());
        put(format!("disk.{number}.kind"), format!("{kind:?}"));
    }
    for (number, file_system) in file_systems.iter().enumerate() {
        put(format!("disk.{number}.filesystem"), file_system.name().to_owned());
    }
    for (number, SwapArea { device, offset_bytes, bytes }) in swap.iter().enumerate() {
        put(format!("swap.{number}.disk"), device.0.to_string());
        put(format!("swap.{number}.offset_bytes"), offset_bytes.to_string());
        put(format!("swap.{number}.bytes"), bytes.to_string());
    }
    map.extend(fields("sched", sched));
    for (name, cost) in costs.by_name() {
        map.insert(format!("cost.{name}_ps"), cost.picoseconds().to_string());
    }
    map
}

/// All values of a kernel: its policy, its flows' and the knobs that were set.
pub(crate) fn kernel_values(kernel: &KernelFile, knobs: &BTreeMap<String, String>) -> Map {
    let KernelFile { name, release, description: _, policy, flows } = kernel;
    let mut map = fields("", policy);
    map.extend(fields("flows", flows));
    map.insert("kernel".to_owned(), name.clone());
    map.insert("release".to_owned(), release.clone());
    map.extend(knobs.clone());
    map
}

/// The fields of a structure of numbers and words, `outer.inner` for nested ones, each with its value as
/// `Debug` prints it.
///
/// # Panics
/// If `Debug` does not print a structure.
fn fields(prefix: &str, value: &impl Debug) -> Map {
    let mut map = Map::new();
    let text = format!("{value:?}");
    let (_, inside) = body(&text).unwrap_or_else(|| panic!("`{text}` is no structure"));
    collect(prefix, inside, &mut map);
    map
}

/// The name and what stands between the braces of `Name { ... }`.
fn body(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.split_once(" { ")?;
    let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    Some((name, rest.strip_suffix(" }").filter(|_| is_name)?))
}

/// Adds `key: value, key: value`.
fn collect(prefix: &str, inside: &str, map: &mut Map) {
    for field in split(inside) {
        let Some((name, value)) = field.split_once(": ") else {
            panic!("`{field}` is no field with its value");
        };
        let mut key = prefix.to_owned();
        let dot = if prefix.is_empty() { "" } else { "." };
        let _ = write!(key, "{dot}{name}");
        let Some((kind, inside)) = body(value) else {
            map.insert(key, value.to_owned());
            continue;
        };
        collect(&key, inside, map);
        // `kswapd: Kswapd { ... }` says nothing more, but one of several choices does.
        if !kind.eq_ignore_ascii_case(&name.replace('_', "")) {
            map.insert(key, kind.to_owned());
        }
    }
}

/// Splits at commas that are in no brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_i32, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_file;

    #[test]
    fn every_field_of_a_policy_is_a_value_of_its_own() {
        #[derive(Debug)]
        #[allow(dead_code, reason = "read through Debug")]
        struct Outer {
            plain: u32,
            inner: Inner,
            list: [u32; 3],
            choice: Choice,
        }
        #[derive(Debug)]
        #[allow(dead_code, reason = "read through Debug")]
        struct Inner {
            optional: Option<u8>,
            word: Choice,
        }
        #[derive(Debug)]
        #[allow(dead_code, reason = "read through Debug")]
        enum Choice {
            Plain,
            With { least: u32, most: u32 },
        }
        let value = Outer {
            plain: 7,
            inner: Inner { optional: Some(3), word: Choice::Plain },
            list: [1, 2, 3],
            choice: Choice::With { least: 1, most: 2 },
        };
        let found: Vec<_> = fields("x", &value).into_iter().collect();
        let expected = [
            ("x.choice", "With"),
            ("x.choice.least", "1"),
            ("x.choice.most", "2"),
            ("x.inner.optional", "Some(3)"),
            ("x.inner.word", "Plain"),
            ("x.list", "[1, 2, 3]"),
            ("x.plain", "7"),
        ];
        assert_eq!(found, expected.map(|(k, v)| (k.to_owned(), v.to_owned())));
    }

    #[test]
    fn kernels_that_differ_have_different_values() {
        let mut seen = Vec::new();
        for (name, _) in kernel_file::BUILT_IN {
            let mut values = kernel_values(&KernelFile::load(name).unwrap(), &Map::new());
            assert!(values.contains_key("freelist.max_order"), "{values:?}");
            values.retain(|key, _| key != "kernel" && key != "release");
            assert!(!seen.contains(&values), "{name}");
            seen.push(values);
        }
    }

    #[test]
    fn whatever_a_machine_has_changes_its_values() {
        let machine = || Machine::load("two-node-64g").unwrap();
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
