//! A sample as OpenMetrics text, under the names of Prometheus' node_exporter, so that dashboards for it do.
//!
//! | metric | from |
//! |---|---|
//! | `node_vmstat_NAME` | `/proc/vmstat`, all of it |
//! | `node_memory_NAME_bytes`, `node_memory_HugePages_Total` | `/proc/meminfo` |
//! | `node_buddyinfo_blocks{node,zone,size}` | `/proc/buddyinfo`; `size` is the order |
//! | `node_zoneinfo_{nr_free,min,low,high}_pages{node,zone}` | `/proc/zoneinfo` |
//! | `node_pressure_memory_{waiting,stalled}_seconds_total` | `/proc/pressure/memory` |
//!
//! Models: the OpenMetrics specification 1.0 and node_exporter 1.8's collectors vmstat, meminfo, buddyinfo, zoneinfo and
//! pressure. Departs: node_exporter tells a part of vmstat unless asked for all.

use crate::sample::{Sample, Zone};
use std::fmt::{Display, Write as _};

/// What HTTP calls this text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The whole of a sample, ended by `# EOF`.
#[must_use]
pub fn text(sample: &Sample) -> String {
    let mut out = String::new();
    for (name, value) in &sample.vmstat {
        family(&mut out, &format!("node_vmstat_{}", word(name)), "unknown", [("", value)]);
    }
    for field in &sample.meminfo {
        let name = format!("node_memory_{}", word(&field.name));
        match field.is_kib {
            true => family(&mut out, &format!("{name}_bytes"), "gauge", [("", field.value << 10)]),
            false => family(&mut out, &name, "gauge", [("", field.value)]),
        }
    }
    of_zones(&mut out, "node_buddyinfo_blocks", &sample.zones, |zone| {
        let size = |(order, blocks): (usize, &u64)| (format!(",size=\"{order}\""), *blocks);
        zone.blocks.iter().enumerate().map(size).collect()
    });
    let one = |value: u64| vec![(String::new(), value)];
    of_zones(&mut out, "node_zoneinfo_nr_free_pages", &sample.zones, |zone| one(zone.free));
    for (mark, name) in ["min", "low", "high"].into_iter().enumerate() {
        let name = format!("node_zoneinfo_{name}_pages");
        of_zones(&mut out, &name, &sample.zones, |zone| one(zone.marks[mark]));
    }
    if let Some([some, full]) = sample.pressure_us {
        for (name, micros) in [("waiting", some), ("stalled", full)] {
            let name = format!("node_pressure_memory_{name}_seconds");
            family(&mut out, &name, "counter", [("_total", micros as f64 / 1e6)]);
        }
    }
    out.push_str("# EOF\n");
    out
}

/// A family of metrics: its type, then a line for each sample, after what follows its name.
fn family<V: Display, S: Display>(
    out: &mut String,
    name: &str,
    kind: &str,
    samples: impl IntoIterator<Item = (S, V)>,
) {
    let _ = writeln!(out, "# TYPE {name} {kind}");
    for (suffix, value) in samples {
        let _ = writeln!(out, "{name}{suffix} {value}");
    }
}

fn of_zones(
    out: &mut String,
    name: &str,
    zones: &[Zone],
    values: impl Fn(&Zone) -> Vec<(String, u64)>,
) {
    let samples = zones.iter().flat_map(|zone| {
        let labels = format!("node=\"{}\",zone=\"{}\"", zone.node, zone.name);
        let labelled = move |(more, value): (String, u64)| (format!("{{{labels}{more}}}"), value);
        values(zone).into_iter().map(labelled).collect::<Vec<_>>()
    });
    family(out, name, "gauge", samples.collect::<Vec<_>>());
}

/// A name as metrics may have it: `Active(anon)` is `Active_anon`.
fn word(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    name.chars().map(plain).collect::<String>().trim_end_matches('_').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::tests::two;

    #[test]
    fn names_are_node_exporters_and_every_line_is_a_metric() {
        let [sample, _] = two();
        let sample = Sample { pressure_us: Some([1_500_000, 20]), ..sample };
        let text = text(&sample);
        for line in [
            "# TYPE node_vmstat_compact_stall unknown\n",
            "# TYPE node_memory_MemTotal_bytes gauge\n",
            "\nnode_memory_HugePages_Total ",
            "\nnode_buddyinfo_blocks{node=\"0\",zone=\"DMA\",size=\"10\"} ",
            "\nnode_zoneinfo_min_pages{node=\"0\",zone=\"Normal\"} ",
            "# TYPE node_pressure_memory_waiting_seconds counter\nnode_pressure_memory_waiting_seconds_total 1.5\n",
            "\nnode_memory_Active_anon_bytes ",
        ] {
            assert!(text.contains(line), "no {line:?} in {text}");
        }
        assert!(text.ends_with("# EOF\n"));
        let mut families = Vec::new();
        for line in text.lines().filter(|line| *line != "# EOF") {
            match line.strip_prefix("# TYPE ") {
                Some(family) => families.push(family.split(' ').next().unwrap()),
                None => {
                    let (name, value) = line.rsplit_once(' ').unwrap();
                    assert!(name.starts_with(families.last().unwrap()), "{line}");
                    assert!(value.parse::<f64>().is_ok(), "{line}");
                }
            }
        }
        let nr = families.len();
        families.sort_unstable();
        families.dedup();
        assert_eq!(families.len(), nr, "each family stands together");
    }
}
