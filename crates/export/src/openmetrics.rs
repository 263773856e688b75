//! A state as OpenMetrics text, under the names that node_exporter gives: `node_vmstat_FIELD`, `node_memory_FIELD_bytes`,
//! `node_buddyinfo_blocks`, `node_zoneinfo_FIELD`.
//!
//! Every counter is there: node_exporter's own filter of `/proc/vmstat` leaves out those of compaction and huge pages.
//!
//! Models: collector/vmstat_linux.go, meminfo.go, buddyinfo.go and zoneinfo_linux.go of node_exporter 1.8, and the
//! OpenMetrics text format 1.0.

use crate::Texts;
use highorder_input::InputError;
use highorder_kernelfs::{Buddyinfo, Meminfo, TextFile, Vmstat, Zoneinfo};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const KIB: u64 = 1024;
/// Marks and sizes of a zone, in pages, that node_exporter tells.
const ZONE_FIELDS: [(&str, &str); 7] = [
    ("free", "nr_free_pages"),
    ("min", "min_pages"),
    ("low", "low_pages"),
    ("high", "high_pages"),
    ("spanned", "spanned_pages"),
    ("present", "present_pages"),
    ("managed", "managed_pages"),
];

/// The metrics that files of `/proc` tell.
///
/// # Errors
/// A file that is not what its name says.
pub fn of_texts(texts: &Texts) -> Result<String, InputError> {
    let mut out = String::new();
    if let Some(text) = texts.get("vmstat") {
        for counter in Vmstat::parse("vmstat", text)?.as_slice() {
            let name = format!("node_vmstat_{}", word(&counter.name));
            let _ = writeln!(out, "# TYPE {name} unknown");
            let _ = writeln!(out, "# HELP {name} /proc/vmstat information field {}.", counter.name);
            let _ = writeln!(out, "{name} {}", counter.value);
        }
    }
    if let Some(text) = texts.get("meminfo") {
        for field in Meminfo::parse("meminfo", text)?.fields {
            let (unit, times) = if field.kilobytes { ("_bytes", KIB) } else { ("", 1) };
            let name = format!("node_memory_{}{unit}", word(&field.name));
            let _ = writeln!(out, "# TYPE {name} gauge");
            if field.kilobytes {
                let _ = writeln!(out, "# UNIT {name} bytes");
            }
            let _ = writeln!(out, "# HELP {name} Memory information field {}.", field.name);
            let _ = writeln!(out, "{name} {}", field.value.saturating_mul(times));
        }
    }
    if let Some(text) = texts.get("buddyinfo") {
        let table = Buddyinfo::parse("buddyinfo", text)?;
        out.push_str("# TYPE node_buddyinfo_blocks gauge\n");
        out.push_str("# HELP node_buddyinfo_blocks Count of free blocks according to size.\n");
        for zone in &table.zones {
            for (order, nr) in zone.counts.iter().enumerate() {
                let labels = format!(r#"node="{}",size="{order}",zone="{}""#, zone.node, zone.zone);
                let _ = writeln!(out, "node_buddyinfo_blocks{{{labels}}} {nr}");
            }
        }
    }
    if let Some(text) = texts.get("zoneinfo") {
        write_zones(&Zoneinfo::parse("zoneinfo", text)?, &mut out);
    }
    out.push_str("# EOF\n");
    Ok(out)
}

fn write_zones(zoneinfo: &Zoneinfo, out: &mut String) {
    let mut metrics: BTreeMap<&str, String> = BTreeMap::new();
    for zone in &zoneinfo.zones {
        for (field, metric) in ZONE_FIELDS {
            if let Some(pages) = zone.pages.get(field) {
                let labels = format!(r#"node="{}",zone="{}""#, zone.node, zone.zone);
                let lines = metrics.entry(metric).or_default();
                let _ = writeln!(lines, "node_zoneinfo_{metric}{{{labels}}} {pages}");
            }
        }
    }
    for (metric, lines) in metrics {
        let _ = write!(out, "# TYPE node_zoneinfo_{metric} gauge\n{lines}");
    }
}

/// A field's name with nothing but letters, digits and underscores, as node_exporter makes it: `Active(anon)` is
/// `Active_anon`.
fn word(field: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    field.trim_end_matches(')').chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::texts::{self, tests::state};

    #[test]
    fn metrics_have_the_names_of_node_exporter() {
        let text = of_texts(&texts::of_state(&state())).expect("metrics");
        for line in [
            "# TYPE node_vmstat_compact_stall unknown",
            "node_vmstat_compact_stall 7",
            "node_memory_Active_anon_bytes 16384",
            "node_memory_HugePages_Total 3",
            r#"node_buddyinfo_blocks{node="0",size="3",zone="DMA32"} 5"#,
            r#"node_zoneinfo_low_pages{node="0",zone="DMA32"} 14"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
