//! A machine's shape, from what its kernel says of it.

use super::disk;
use highorder_input::InputError;
use highorder_kernelfs::{Swaps, TextFile, Zoneinfo, ZoneinfoZone};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;
const PAGES_PER_MIB: u64 = MIB / highorder_sim::machine::PAGE_BYTES;
/// End of ZONE_DMA, in MiB.
const DMA_END_MIB: u64 = 16;
/// End of ZONE_DMA32, in MiB.
const DMA32_END_MIB: u64 = 4096;
/// The hole for devices of a machine whose memory does not reach it, in MiB.
const HOLE_MIB: u64 = 1024;
/// Bytes of `struct page`.
const MEMMAP_BYTES: u64 = 64;

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundNode {
    /// Its number.
    pub number: u32,
    /// Memory in whole MiB.
    pub memory_mib: u64,
    /// Its CPUs that are online.
    pub cpus: Vec<u32>,
    /// Distance to each node that is online, itself included.
    pub distances: Vec<u32>,
}

/// A swap area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSwap {
    /// The file or device.
    pub name: String,
    /// The disk it lies on, where that is known.
    pub disk: Option<String>,
    /// Its first byte on the disk; none for files.
    pub offset_bytes: Option<u64>,
    /// Its size in bytes.
    pub bytes: u64,
}

/// A machine as its kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Nodes, ascending.
    pub nodes: Vec<FoundNode>,
    /// Memory displaced by devices below 4 GiB.
    pub device_hole_mib: u64,
    /// What is not handed out of ZONE_DMA32 on the first node.
    pub reserved_low_mib: u64,
    /// What else is not handed out on the first node, but for the map of pages.
    pub reserved_high_mib: u64,
    /// Swap areas, the first to be filled first.
    pub swap: Vec<FoundSwap>,
    /// The processor's name.
    pub processor: Option<String>,
    /// The kernel's release.
    pub release: Option<String>,
}

impl Found {
    /// Reads `proc` and `sys` below a folder: `/` for this machine.
    ///
    /// # Errors
    /// A file that is missing or cannot be understood.
    pub fn read(root: &Path) -> Result<Self, InputError> {
        let zoneinfo = Zoneinfo::read(root.join("proc/zoneinfo")).map_err(InputError::other)?;
        let node_folder = root.join("sys/devices/system/node");
        let mut numbers: Vec<u32> = zoneinfo.zones.iter().map(|zone| zone.node).collect();
        numbers.extend(node_numbers(&node_folder));
        numbers.sort_unstable();
        numbers.dedup();
        let mut nodes = Vec::new();
        for &number in &numbers {
            let zones = zoneinfo.zones.iter().filter(|zone| zone.node == number);
            let memory_mib = zones.map(mib).sum();
            let (cpus, distances) = if node_folder.is_dir() {
                let folder = node_folder.join(format!("node{number}"));
                (cpu_list(&folder.join("cpulist"))?, distances(&folder.join("distance"))?)
            } else {
                // A kernel without nodes: everything belongs to one.
                (cpu_list(&root.join("sys/devices/system/cpu/online"))?, vec![10])
            };
            nodes.push(FoundNode { number, memory_mib, cpus, distances });
        }
        let first = numbers.first().copied().unwrap_or(0);
        let shape = Low::of(&zoneinfo, first);
        let text = |path: &str| std::fs::read_to_string(root.join(path)).ok();
        Ok(Self {
            nodes,
            device_hole_mib: shape.device_hole_mib,
            reserved_low_mib: shape.reserved_low_mib,
            reserved_high_mib: shape.reserved_high_mib,
            swap: swap(root)?,
            processor: text("proc/cpuinfo").and_then(|text| {
                let line = text.lines().find(|line| line.starts_with("model name"))?;
                Some(line.split_once(':')?.1.trim().to_owned())
            }),
            release: text("proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()),
        })
    }

    /// CPUs of all nodes.
    #[must_use]
    pub fn nr_cpus(&self) -> usize {
        self.nodes.iter().map(|node| node.cpus.len()).sum()
    }

    /// Memory of all nodes, in MiB.
    #[must_use]
    pub fn memory_mib(&self) -> u64 {
        self.nodes.iter().map(|node| node.memory_mib).sum()
    }
}

/// Pages of a zone that exist, in whole MiB. ZONE_DMA always counts as a whole, as machine files have it.
fn mib(zone: &ZoneinfoZone) -> u64 {
    let present = zone.pages.get("present").unwrap_or(0);
    match zone.zone.as_str() {
        "DMA" if present > 0 => DMA_END_MIB,
        _ => present / PAGES_PER_MIB,
    }
}

/// What is special about the first node.
struct Low {
    device_hole_mib: u64,
    reserved_low_mib: u64,
    reserved_high_mib: u64,
}

impl Low {
    fn of(zoneinfo: &Zoneinfo, node: u32) -> Self {
        let own: Vec<_> = zoneinfo.zones.iter().filter(|zone| zone.node == node).collect();
        let reserved = |zone: &ZoneinfoZone| {
            let present = zone.pages.get("present").unwrap_or(0);
            present.saturating_sub(zone.managed().unwrap_or(0)) / PAGES_PER_MIB
        };
        let find = |name: &str| own.iter().find(|zone| zone.zone == name && mib(zone) > 0);
        let total: u64 = own.iter().map(|zone| mib(zone)).sum();
        let memmap = total * PAGES_PER_MIB * MEMMAP_BYTES / MIB;
        let dma32 = find("DMA32");
        let low = dma32.map_or(0, |zone| reserved(zone));
        match (dma32, find("Normal")) {
            (Some(dma32), Some(normal)) => Self {
                device_hole_mib: (DMA32_END_MIB - DMA_END_MIB).saturating_sub(mib(dma32)),
                reserved_low_mib: low,
                reserved_high_mib: reserved(normal).saturating_sub(memmap),
            },
            // One zone has it all.
            _ => Self {
                device_hole_mib: HOLE_MIB.min(DMA32_END_MIB.saturating_sub(total)),
                reserved_low_mib: low.saturating_sub(memmap),
                reserved_high_mib: 0,
            },
        }
    }
}

/// The nodes that have a folder.
fn node_numbers(folder: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.strip_prefix("node")?.parse().ok()).collect()
}

fn read(path: &Path) -> Result<String, InputError> {
    std::fs::read_to_string(path).map_err(|error| InputError::io(path, "read", &error))
}

/// A list such as `0-3,8`.
fn cpu_list(path: &Path) -> Result<Vec<u32>, InputError> {
    let text = read(path)?;
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else {
            let message = format!("`{part}` in a list of CPUs, expected numbers such as 0-3");
            return Err(InputError::line(path, 1, message));
        };
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

fn distances(path: &Path) -> Result<Vec<u32>, InputError> {
    let text = read(path)?;
    text.split_whitespace().map(str::parse).collect::<Result<_, _>>().map_err(|_| {
        InputError::line(path, 1, format!("`{}`, expected distances such as 10 21", text.trim()))
    })
}

/// The swap areas with the disks they are on. They are in order of priority already.
fn swap(root: &Path) -> Result<Vec<FoundSwap>, InputError> {
    let path = root.join("proc/swaps");
    if !path.exists() {
        // A kernel that cannot swap.
        return Ok(Vec::new());
    }
    let swaps = Swaps::read(&path).map_err(InputError::other)?;
    let mut named = BTreeMap::new();
    for entry in std::fs::read_dir(root.join("sys/class/block")).into_iter().flatten().flatten() {
        named.insert(entry.file_name().to_string_lossy().into_owned(), entry.path());
    }
    let area = |area: &highorder_kernelfs::SwapArea| {
        let file = PathBuf::from(area.filename.replace("\\040", " "));
        let device = disk::name(&file).and_then(|name| named.get(&name)).cloned();
        let sysfs = device.filter(|_| area.kind == "partition");
        let (disk, offset_bytes) = match sysfs.and_then(|path| path.canonicalize().ok()) {
            Some(path) => {
                let start = std::fs::read_to_string(path.join("start")).ok();
                let sectors = start.and_then(|text| text.trim().parse::<u64>().ok());
                let is_partition = path.join("partition").exists();
                let whole = if is_partition { path.parent() } else { Some(path.as_path()) };
                (whole.and_then(disk::name), Some(sectors.unwrap_or(0) * 512))
            }
            None => {
                let device = std::fs::metadata(&file).ok().map(|file| file.dev());
                (device.and_then(|dev| disk::name(&disk::disk_of(root, dev)?)), None)
            }
        };
        FoundSwap {
            name: file.display().to_string(),
            disk,
            offset_bytes,
            // The page that says that it is one is no swap space, but of the area.
            bytes: area.size_kb * 1024 + highorder_sim::machine::PAGE_BYTES,
        }
    };
    Ok(swaps.areas.iter().map(area).collect())
}
