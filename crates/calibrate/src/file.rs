//! The text of a machine file.

use super::{Disk, Found, Measured, Place, Times};
use std::fmt::Write as _;

const MIB: u64 = 1 << 20;
/// Turns of a disk that does not say how fast it turns.
const TURNS_PER_MINUTE: u64 = 7200;

/// The machine file of what was found and measured; [`highorder_kernels::machine::parse`] reads it back.
///
/// Swap areas on disks that were not measured are named in comments.
#[must_use]
pub fn machine_file(name: &str, found: &Found, disks: &[Disk], costs: &[Measured]) -> String {
    let mut out = String::new();
    let processor = found.processor.as_deref().unwrap_or("an unnamed processor");
    let release = found.release.as_deref().unwrap_or("of an unknown release");
    let shape = format!(
        "{} x {processor}, {} MiB in {}",
        found.nr_cpus(),
        found.memory_mib(),
        if found.nodes.len() == 1 {
            "one node".into()
        } else {
            format!("{} nodes", found.nodes.len())
        }
    );
    let add = &mut out;
    line(
        add,
        &format!("# {}: written by `highorder calibrate` on Linux {release}.", comment(name)),
    );
    line(add, "");
    line(add, &format!("description = {}", quoted(&format!("{name}: {shape}"))));
    line(add, "\n[memory]");
    line(add, &format!("device_hole_mib = {}", found.device_hole_mib));
    line(add, "memmap_bytes_per_page = 64");
    line(add, &format!("reserved_low_mib = {}", found.reserved_low_mib));
    line(add, &format!("reserved_high_mib = {}", found.reserved_high_mib));
    let source = format!(
        "/proc/zoneinfo of Linux {release}: present less managed pages, of which the map of pages takes \
         64 bytes each"
    );
    line(add, &format!("source = {}", quoted(&source)));
    for node in &found.nodes {
        line(add, &format!("\n[[node]]           # node {}", node.number));
        line(add, &format!("memory_mib = {}", node.memory_mib));
        line(add, &format!("cpus = {}", node.cpus.len()));
        line(add, &format!("distances = {:?}", node.distances));
    }
    sched(add, found.nr_cpus());
    for disk in disks {
        let cost = |name: &str| costs.iter().find(|cost| cost.name == name).map_or(0.0, |c| c.ns);
        self::disk(add, disk, cost("block_request") + cost("system_call"), found.nr_cpus());
    }
    swap(add, found, disks);
    line(add, "\n# What primitive work costs; how each is measured: crates/calibrate/src/lib.rs.");
    line(add, "[costs]");
    for Measured { name, ns, source } in costs {
        line(add, &format!("{name} = {{ ns = {ns:?}, source = {} }}", quoted(source)));
    }
    out
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Text that cannot leave its comment.
fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Times of the fair scheduler as kernels to 6.5 compute them from the number of CPUs.
fn sched(out: &mut String, nr_cpus: usize) {
    let factor = 1 + u64::from(nr_cpus.clamp(1, 8).ilog2());
    let _ = writeln!(
        out,
        "\n[sched]\nlatency_ns = {}\nmin_granularity_ns = {}\nwakeup_granularity_ns = {}\nsource = {}",
        6_000_000 * factor,
        750_000 * factor,
        1_000_000 * factor,
        quoted(
            "kernel/sched/fair.c, v2.6.38 to v6.5: 6, 0.75 and 1 ms, times 1 + log2(CPUs), of which at \
             most 8 count"
        )
    );
}

fn disk(out: &mut String, disk: &Disk, cpu_ns: f64, nr_cpus: usize) {
    line(out, "\n[[disk]]");
    line(out, &format!("name = {}", quoted(&disk.name)));
    // In units of 10^9 bytes, at least one: what lies beyond the end of the last is not usable.
    line(
        out,
        &format!("capacity_gb = {}", (disk.capacity_bytes / 1_000_000_000).clamp(1, 1_000_000)),
    );
    line(out, &format!("nr_requests = {}", disk.nr_requests.clamp(4, 65_536)));
    line(out, &format!("max_request_kib = {}", disk.max_request_kib.clamp(4, 65_536)));
    line(out, &format!("max_segments = {}", disk.max_segments.clamp(1, 65_536)));
    line(out, &format!("hardware_queues = {}", disk.hardware_queues.clamp(1, 8192)));
    if disk.says_rotational && !disk.is_rotating {
        line(out, "says_rotational = true # its queue does");
    }
    let path = disk.place.path().display();
    let what = match &disk.place {
        Place::Folder(_) => "a file of 64 MiB in",
        Place::Device(_) => "64 MiB of",
    };
    let how = format!(
        "measured with direct transfers in {what} {path}: 4 KiB at random places, alone and \
         32 at once, and 1 MiB in a row; less block_request and system_call, which are the CPU's"
    );
    let [read, write] = [disk.read, disk.write].map(|times| times.less_cpu(cpu_ns, nr_cpus));
    if disk.is_rotating {
        rotating(out, &read, &how);
        return;
    }
    line(out, &format!("source = {}", quoted(&how)));
    line(out, "[disk.flash]");
    line(out, "queue_depth = 32");
    for (name, times) in [("read", &read), ("write", &write)] {
        let _ = writeln!(
            out,
            "{name} = {{ access_ns = {:.0}, command_ns = {:.0}, bytes_per_second = {} }}",
            times.access_ns(),
            times.command_ns(),
            bandwidth(times)
        );
    }
}

/// What a random access takes beyond half a turn is called its seek: how it is shared between the two does
/// not show in times of small transfers.
fn rotating(out: &mut String, read: &Times, how: &str) {
    let turn_ns = 60e9 / TURNS_PER_MINUTE as f64;
    let seek = (read.single_ns - turn_ns / 2.0).max(0.0);
    let source = format!("{how}; 7200 turns a minute are assumed, and the seek is what is left");
    line(out, &format!("source = {}", quoted(&source)));
    line(out, "[disk.rotating]");
    line(out, &format!("turns_per_minute = {TURNS_PER_MINUTE}"));
    line(out, &format!("seek_track_ns = {:.0}", seek.min(1e6)));
    line(out, &format!("seek_average_ns = {seek:.0}"));
    line(out, "command_ns = 0");
    line(out, &format!("bytes_per_second = {}", bandwidth(read)));
}

fn bandwidth(times: &Times) -> u64 {
    (times.bytes_per_second as u64).clamp(100_000, 1_000_000_000_000)
}

fn swap(out: &mut String, found: &Found, disks: &[Disk]) {
    for area in &found.swap {
        let disk = disks.iter().find(|disk| Some(&disk.name) == area.disk.as_ref());
        let Some(disk) = disk else {
            let on = area.disk.as_deref().unwrap_or("no disk that is known");
            let text =
                format!("# Left out: swap on {}, of {on}, which was not measured.", area.name);
            line(out, &format!("\n{}", comment(&text)));
            continue;
        };
        let offset_mib = area.offset_bytes.unwrap_or(0) / MIB;
        let capacity_mib = disk.capacity_bytes / 1_000_000_000 * 1_000_000_000 / MIB;
        let size_mib = (area.bytes / MIB).min(capacity_mib.saturating_sub(offset_mib)).max(1);
        line(out, &format!("\n[[swap]]           # {}", comment(&area.name)));
        line(out, &format!("disk = {}", quoted(&disk.name)));
        let whence =
            if area.offset_bytes.is_some() { "" } else { " # a file: where it lies is not known" };
        line(out, &format!("offset_mib = {offset_mib}{whence}"));
        line(out, &format!("size_mib = {size_mib}"));
    }
}
