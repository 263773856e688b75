//! A machine: its shape drawn in text, its disks, and what work costs on it.

use super::{Shown, begun};
use crate::failure::Failure;
use crate::sheet::Sheet;
use highorder_kernels::machine;
use highorder_lab::catalogue::Kind;
use highorder_mm::types::ZoneKind;
use highorder_sim::device::{DeviceKind, FlashTimes};
use highorder_sim::machine::{Costs, PAGE_BYTES};
use highorder_sim::{DeviceSpec, Machine, Ns};
use highorder_tables::text::pages;
use serde_json::{Value as Json, json};

/// Characters of the largest node's bar.
const BAR: u64 = 64;
/// Before what says where a number is from.
const SOURCE: &str = "source:";

/// All that there is to say of a machine.
pub(super) fn shown(name: &str) -> Result<Shown, Failure> {
    let machine = machine::load(name)?;
    let mut sheet = begun(Kind::Machine, &machine.name, &machine.description);
    draw_nodes(&machine, &mut sheet);
    sheet.heading("Distances, 10 to itself");
    let mut rows = vec![numbers("", 0..machine.nodes.len() as u32)];
    for (number, node) in machine.nodes.iter().enumerate() {
        rows.push(numbers(&format!("node {number}"), node.distances.iter().copied()));
    }
    sheet.columns("  ", &rows);
    sheet.heading("Disks");
    if machine.disks.is_empty() {
        sheet.line("  none: workloads that need files cannot run");
    }
    for (number, disk) in machine.disks.iter().enumerate() {
        let file_system = machine.file_systems.get(number).map_or("", |system| system.name());
        let words = disk_words(disk, file_system);
        sheet.fields("  ", &[(disk.name.as_str(), words.as_str())]);
        sheet.fields("    ", &[(SOURCE, &machine.sources.disks[number])]);
    }
    sheet.heading("Swap");
    if machine.swap.is_empty() {
        sheet.line("  none");
    }
    for area in &machine.swap {
        let disk = &machine.disks[area.device.0 as usize].name;
        sheet.line(&format!("  {} on {disk}", bytes(area.bytes)));
    }
    costs(&machine, &mut sheet);
    Ok(Shown { sheet, json: json_of(&machine) })
}

/// Nodes as bars of their zones, in proportion.
fn draw_nodes(machine: &Machine, sheet: &mut Sheet) {
    let largest = machine.nodes.iter().map(|node| node.memory_bytes).max().unwrap_or(1).max(1);
    let memory = machine.memory();
    sheet.heading(&format!(
        "{} in {}, {}",
        bytes(machine.memory_bytes()),
        counted(machine.nodes.len(), "node"),
        counted(machine.cpu_nodes().len(), "CPU")
    ));
    for (number, (node, spec)) in machine.nodes.iter().zip(&memory.nodes).enumerate() {
        let cpus = match node.cpus.len() {
            0 => "no CPU".to_owned(),
            1 => format!("CPU {}", node.cpus.start),
            _ => format!("CPUs {} to {}", node.cpus.start, node.cpus.end - 1),
        };
        sheet.heading(&format!("node {number}: {}, {cpus}", bytes(node.memory_bytes)));
        let mut bar = String::new();
        for zone in &spec.zones {
            let size = u64::from(zone.present_pages) * PAGE_BYTES;
            // A zone that is there is seen, however small.
            let cells = (size * BAR / largest).max(1) as usize;
            bar.push_str(&letter(zone.kind).repeat(cells));
        }
        sheet.line(&format!("  [{bar}]"));
        let rows: Vec<Vec<String>> = spec
            .zones
            .iter()
            .map(|zone| {
                vec![
                    letter(zone.kind).to_owned(),
                    zone.kind.name().to_owned(),
                    format!("{} present", pages(zone.present_pages.into())),
                    format!("{} managed by the page allocator", pages(zone.managed_pages)),
                ]
            })
            .collect();
        sheet.columns("   ", &rows);
    }
    sheet.fields("  ", &[(SOURCE, &machine.sources.memory)]);
    if let (Some(in_use), Some(source)) = (&machine.in_use, &machine.sources.in_use) {
        sheet.paragraph(
            "  ",
            &format!(
                "In use before anything runs: {} of 1000 pageblocks hold unmovable pages, with holes \
                 (source: {source}).",
                in_use.unmovable_blocks_per_1000
            ),
        );
    }
    if let (Some(host), Some(source)) = (&machine.sched.host, &machine.sources.host) {
        sheet.heading("Its CPUs are emulated by a host that has other work as well");
        let waits = host.flush_wait.settles_at().max(host.access_wait.settles_at());
        let longest = host.work_percent.settles_at().max(waits);
        let row = |what: &str, told: &dyn Fn(usize) -> String| {
            std::iter::once(what.to_owned()).chain((1..=longest).map(told)).collect()
        };
        let rows: Vec<Vec<String>> = vec![
            row("CPUs with work", &|busy| busy.to_string()),
            row("work takes, of its cost", &|busy| format!("{} %", host.work_percent.at(busy))),
            row("telling others to flush takes longer by", &|busy| {
                millis(host.flush_wait.at(busy))
            }),
            row("and a disk's access by", &|busy| millis(host.access_wait.at(busy))),
        ];
        sheet.columns("  ", &rows);
        sheet.fields("  ", &[(SOURCE, source)]);
    }
}

/// A zone in a node's bar.
const fn letter(zone: ZoneKind) -> &'static str {
    match zone {
        ZoneKind::Dma => "D",
        ZoneKind::Dma32 => "3",
        ZoneKind::Normal => "N",
        ZoneKind::Movable => "M",
    }
}

fn costs(machine: &Machine, sheet: &mut Sheet) {
    sheet.heading("What work costs, in time of one CPU");
    let about = Costs::about();
    for ((name, cost), (_, about)) in machine.costs.by_name().into_iter().zip(about) {
        sheet.line(&format!("  {name}: {} ns", cost.picoseconds() as f64 / 1000.0));
        sheet.paragraph("    ", about);
        sheet.fields("    ", &[(SOURCE, &cost.source)]);
    }
}

fn disk_words(disk: &DeviceSpec, file_system: &str) -> String {
    let rate = |bandwidth: u64| format!("{} MB/s", bandwidth / 1_000_000);
    let how = match disk.kind {
        DeviceKind::Rotating { queue_depth, turn, seek_average, bandwidth, .. } => {
            let queue = match queue_depth {
                1 => String::new(),
                depth => format!("{depth} requests at once, "),
            };
            format!(
                "rotating, {queue}{} turns a minute, seeks of {} on average, {}",
                60_000_000_000 / turn.0.max(1),
                millis(seek_average),
                rate(bandwidth)
            )
        }
        DeviceKind::Flash { queue_depth, read, write } => {
            let way = |times: FlashTimes| {
                format!("{} us and {}", times.access.0 as f64 / 1000.0, rate(times.bandwidth))
            };
            format!(
                "flash, {queue_depth} requests at once, reads of {}, writes of {}",
                way(read),
                way(write)
            )
        }
    };
    let elevator = disk.elevator.name();
    format!("{} GB, {file_system}, {elevator}, {how}", disk.capacity_bytes / 1_000_000_000)
}

fn millis(time: Ns) -> String {
    format!("{} ms", time.0 as f64 / 1e6)
}

fn counted(nr: usize, what: &str) -> String {
    let several = if nr == 1 { "" } else { "s" };
    format!("{nr} {what}{several}")
}

fn numbers(name: &str, numbers: impl IntoIterator<Item = u32>) -> Vec<String> {
    let numbers = numbers.into_iter().map(|number| format!("{number:>3}"));
    std::iter::once(name.to_owned()).chain(numbers).collect()
}

fn bytes(bytes: u64) -> String {
    pages(bytes / PAGE_BYTES)
}

fn json_of(machine: &Machine) -> Json {
    let memory = machine.memory();
    let nodes: Vec<Json> = machine
        .nodes
        .iter()
        .zip(&memory.nodes)
        .map(|(node, spec)| {
            let zones: Vec<Json> = spec
                .zones
                .iter()
                .map(|zone| {
                    json!({
                        "zone": zone.kind.name(),
                        "present_pages": zone.present_pages,
                        "managed_pages": zone.managed_pages,
                    })
                })
                .collect();
            json!({
                "memory_bytes": node.memory_bytes,
                "cpus": [node.cpus.start, node.cpus.end],
                "distances": node.distances,
                "zones": zones,
            })
        })
        .collect();
    let disks: Vec<Json> = machine
        .disks
        .iter()
        .enumerate()
        .map(|(number, disk)| {
            let file_system = machine.file_systems.get(number).map(|system| system.name());
            json!({
                "name": disk.name,
                "capacity_bytes": disk.capacity_bytes,
                "file_system": file_system,
                "elevator": disk.elevator.name(),
                "is_rotating": matches!(disk.kind, DeviceKind::Rotating { .. }),
                "source": machine.sources.disks[number],
            })
        })
        .collect();
    let swap: Vec<Json> = machine
        .swap
        .iter()
        .map(|area| {
            let disk = &machine.disks[area.device.0 as usize].name;
            json!({ "disk": disk, "bytes": area.bytes })
        })
        .collect();
    let costs: serde_json::Map<String, Json> = machine
        .costs
        .by_name()
        .into_iter()
        .map(|(name, cost)| {
            let ns = cost.picoseconds() as f64 / 1000.0;
            (name.to_owned(), json!({ "ns": ns, "source": cost.source }))
        })
        .collect();
    json!({
        "kind": "machine",
        "name": machine.name,
        "about": machine.description,
        "nodes": nodes,
        "disks": disks,
        "swap": swap,
        "unmovable_blocks_per_1000": machine.in_use.map(|in_use| in_use.unmovable_blocks_per_1000),
        "costs": costs,
        "sources": {
            "memory": machine.sources.memory,
            "in_use": machine.sources.in_use,
            "sched": machine.sources.sched,
            "host": machine.sources.host,
        },
    })
}
