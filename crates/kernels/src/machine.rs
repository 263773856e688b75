//! Machine files: a machine is a file of its parts and of what things cost on it, each number with its source.
//!
//! A file says what is its own, and has the rest of the file that it is based on.

mod layers;

use highorder_files::limits;
use highorder_input::{InputError, Kind, Layers, Source};
use highorder_sim::device::FlashTimes;
use highorder_sim::machine::{
    Cost, Costs, DMA_END_MIB, DMA32_END_MIB, FileSystem, HOLE_ORDERS, InUse, LOCAL_DISTANCE,
    Machine, NODE_MIN_MIB, Node, REMOTE_DISTANCE, Reserved, SWAP_MIN_MIB, Sources, SwapArea,
    least_memory_mib,
};
use highorder_sim::{ByBusy, DeviceId, DeviceKind, DeviceSpec, Elevator, Host, Ns, SchedSpec};
use serde::Deserialize;
use serde_spanned::Spanned;
use std::ops::Range;
use std::path::Path;

/// The machine files that come with the program, by name: those of the folder `machines`.
pub const BUILT_IN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/machines.rs"));

/// Machine files.
const KIND: Kind = Kind { word: "machine", built_in: BUILT_IN };

const MIB: u64 = 1 << 20;
/// The most that a distance can be: a byte in the firmware's table (SLIT), 255 meaning unreachable.
const DISTANCE_MAX: u32 = 254;
/// Disks are smaller than this many GB.
const CAPACITY_END_GB: u64 = 1_000_001;

/// The machine of this name: a file's path, or one that comes with the program.
///
/// # Errors
/// The file and line of every misspelt, missing or impossible value.
pub fn load(name: &str) -> Result<Machine, InputError> {
    finish(&Layers::read(&KIND, KIND.find(name)?)?)
}

/// As [`load`], with values of a text over those of the file.
///
/// # Errors
/// As [`load`]; lines of the text count as the file's.
pub fn load_under(name: &str, text: String) -> Result<Machine, InputError> {
    finish(&Layers::read(&KIND, KIND.find(name)?)?.under(text))
}

/// The machine that a file's text describes; the path is for its name, for messages, and to find what the
/// file is based on.
///
/// # Errors
/// As [`load`].
pub fn parse(path: &Path, text: &str) -> Result<Machine, InputError> {
    let (path, text) = (path.to_owned(), text.to_owned());
    finish(&Layers::read(&KIND, Source { path, text, is_built_in: false })?)
}

fn finish(layers: &Layers) -> Result<Machine, InputError> {
    let values: Values = layers.values(&layers::merged(layers)?)?;
    let mut checks = Checks { layers, problems: Vec::new() };
    let machine = values.finish(&mut checks);
    if !checks.problems.is_empty() {
        return Err(InputError::all(checks.problems));
    }
    let fits = machine.memory().check();
    fits.map_err(|error| InputError::file(&layers.file().path, error))?;
    Ok(machine)
}

/// Gathers what is wrong, with its line.
struct Checks<'a> {
    layers: &'a Layers,
    problems: Vec<InputError>,
}

impl Checks<'_> {
    fn refuse(&mut self, span: &Range<usize>, message: impl std::fmt::Display) {
        self.problems.push(self.layers.refuse(span, message));
    }

    /// The value, if it lies in the range.
    fn within(&mut self, key: &str, value: &Spanned<u64>, range: Range<u64>, unit: &str) -> u64 {
        let found = *value.get_ref();
        if !range.contains(&found) {
            let Range { start, end } = range;
            let expected = if end == u64::MAX {
                format!("at least {start}")
            } else {
                format!("{start}..={}", end - 1)
            };
            self.refuse(&value.span(), format!("`{key}` is {found}, expected {expected}{unit}"));
            return start;
        }
        found
    }

    /// The values by number of busy CPUs, if they are neither none nor too many and each lies in the range.
    fn by_busy<T: Copy + PartialEq>(
        &mut self,
        key: &str,
        values: &Spanned<Vec<Spanned<u64>>>,
        range: Range<u64>,
        unit: &str,
        of: fn(u64) -> T,
    ) -> ByBusy<T> {
        let (found, most) = (values.get_ref().len(), Host::MOST_BUSY);
        if !(1..=most).contains(&found) {
            let message = format!(
                "`{key}` has {found} values, expected 1..={most}: for one busy CPU, two, ..."
            );
            self.refuse(&values.span(), message);
            return ByBusy::new(&[of(range.start)]);
        }
        let mut value = |value| of(self.within(key, value, range.clone(), unit));
        ByBusy::new(&values.get_ref().iter().map(&mut value).collect::<Vec<_>>())
    }

    fn some_text(&mut self, key: &str, value: &Spanned<String>) {
        if value.get_ref().trim().is_empty() {
            self.refuse(&value.span(), format!("`{key}` is empty, expected where it is from"));
        }
    }
}

// What is said of a key here is what docs/machines.md says of it.

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Values {
    /// One line for people.
    description: Option<String>,
    /// Memory that is there and that the page allocator does not hand out.
    memory: MemoryValues,
    /// What a system that has run for a while holds; left out, memory is as boot leaves it.
    in_use: Option<InUseValues>,
    /// The nodes, node 0 first; one at least.
    #[serde(rename = "node")]
    nodes: Spanned<Vec<NodeValues>>,
    /// Times of the scheduler.
    sched: SchedValues,
    /// The host that emulates the CPUs; left out, each of them has a CPU for itself.
    host: Option<HostValues>,
    /// Disks; left out, there is none, and workloads that use files cannot run.
    #[serde(rename = "disk", default)]
    disks: Vec<DiskValues>,
    /// Swap areas, the first to be filled first; left out, there is none.
    #[serde(rename = "swap", default)]
    swap: Vec<SwapValues>,
    /// What primitive work costs, in time of one CPU that does nothing else meanwhile.
    costs: Costs<CostValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryValues {
    /// Addresses below 4 GiB that are no memory but devices (PCI); the memory that they displace lies above 4 GiB.
    device_hole_mib: Spanned<u64>,
    /// Bytes of `struct page` for each page, taken from the top of each node.
    memmap_bytes_per_page: Spanned<u64>,
    /// What the kernel keeps below 4 GiB on the first node: its image.
    reserved_low_mib: Spanned<u64>,
    /// What it keeps at the top of the first node: hash tables and other early allocations.
    reserved_high_mib: Spanned<u64>,
    /// Where the table's values are from.
    source: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InUseValues {
    /// Of 1000 pageblocks, those that the kernel has filled with unmovable pages.
    unmovable_blocks_per_1000: Spanned<u64>,
    /// Holes in 1000 such pageblocks: the number of free blocks of each order from 0 to 8.
    holes_per_1000_blocks: Spanned<Vec<u32>>,
    /// Where the table's values are from.
    source: Spanned<String>,
}

impl InUseValues {
    fn finish(&self, checks: &mut Checks<'_>) -> InUse {
        checks.some_text("in_use.source", &self.source);
        let key = "unmovable_blocks_per_1000";
        // Half of memory: more would leave nothing to run with.
        let blocks = checks.within(key, &self.unmovable_blocks_per_1000, 1..501, "");
        let found = self.holes_per_1000_blocks.get_ref();
        let mut holes = [0; HOLE_ORDERS];
        if let Ok(all) = <[u32; HOLE_ORDERS]>::try_from(found.as_slice()) {
            holes = all;
        } else {
            let message = format!(
                "`holes_per_1000_blocks` has {} entries, expected {HOLE_ORDERS}: orders 0 to 8",
                found.len()
            );
            checks.refuse(&self.holes_per_1000_blocks.span(), message);
        }
        for (order, &nr) in holes.iter().enumerate() {
            // Of two buddies one at most: both would be one of the next order.
            let most = 256_000 >> order;
            if nr > most {
                let message = format!(
                    "`holes_per_1000_blocks` has {nr} of order {order}, expected at most {most}"
                );
                checks.refuse(&self.holes_per_1000_blocks.span(), message);
            }
        }
        let pages = holes.iter().zip(0..).map(|(&holes, order)| u64::from(holes) << order);
        let pages: u64 = pages.sum();
        if pages >= 512_000 {
            let message = format!(
                "`holes_per_1000_blocks` are {pages} pages, expected fewer than the 512000 of 1000 \
                 pageblocks"
            );
            checks.refuse(&self.holes_per_1000_blocks.span(), message);
        }
        InUse { unmovable_blocks_per_1000: blocks as u32, holes_per_1000_blocks: holes }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeValues {
    /// The node's memory; the first node needs what is reserved and 32 MiB.
    memory_mib: Spanned<u64>,
    /// The node's CPUs; 0 for a node that has memory alone.
    cpus: Spanned<u64>,
    /// The distance to each node in the firmware's unit (SLIT): 10 to itself, 11 to 254 to another one. Left out, 10
    /// and 20, as the kernel takes them to be where the firmware says nothing.
    distances: Option<Spanned<Vec<u32>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SchedValues {
    /// In this time each task that can run has its turn (`sched_latency_ns`).
    latency_ns: Spanned<u64>,
    /// The least time that a task runs before another takes over (`sched_min_granularity_ns`).
    min_granularity_ns: Spanned<u64>,
    /// How far a woken task must be behind the running one to take over at once (`sched_wakeup_granularity_ns`).
    wakeup_granularity_ns: Spanned<u64>,
    /// Where the table's values are from.
    source: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostValues {
    /// How long work takes, in hundredths of its cost.
    work_percent: Spanned<Vec<Spanned<u64>>>,
    /// How much longer than its cost it takes to make other CPUs flush translations.
    flush_wait_ns: Spanned<Vec<Spanned<u64>>>,
    /// How much longer a disk's access takes.
    access_wait_ns: Spanned<Vec<Spanned<u64>>>,
    /// Where the table's values are from.
    source: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DiskValues {
    /// Its name, such as `sda`; no two disks have one.
    name: Spanned<String>,
    /// Its size in units of 10^9 bytes. Swap areas have their places on it, and files the rest.
    capacity_gb: Spanned<u64>,
    /// Requests that may wait for it (`queue/nr_requests`).
    nr_requests: Spanned<u64>,
    /// The longest request (`queue/max_sectors_kb`).
    max_request_kib: Spanned<u64>,
    /// Pieces of memory in a request at most (`queue/max_segments`). Left out, 128 (`BLK_MAX_SEGMENTS`).
    max_segments: Option<Spanned<u64>>,
    /// Its queues, where the kernel knows of more than one (directories of `mq`). Left out, 1.
    hardware_queues: Option<Spanned<u64>>,
    /// What `queue/rotational` says: `true` or `false`. Left out, the truth.
    says_rotational: Option<bool>,
    /// What decides about the order in which it serves (`queue/scheduler`): `noop`, `deadline` or, before 5.0, `cfq`.
    /// Left out, `deadline` for a disk that turns and `noop` for another one.
    elevator: Option<Elevator>,
    /// The file system on it: `ext4` or `xfs`. Left out, `ext4`.
    filesystem: Option<FileSystem>,
    /// The times of a disk that turns. A disk has either this or `flash`.
    rotating: Option<RotatingValues>,
    /// The times of one that does not.
    flash: Option<FlashValues>,
    /// Where its values are from.
    source: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RotatingValues {
    /// Requests that it takes before the first of them is done (`device/queue_depth`); it serves them as they came. Left
    /// out, 1.
    queue_depth: Option<Spanned<u64>>,
    /// How fast it turns.
    turns_per_minute: Spanned<u64>,
    /// Time to move the heads to the next track.
    seek_track_ns: Spanned<u64>,
    /// Time to move them to a track somewhere; at least `seek_track_ns`.
    seek_average_ns: Spanned<u64>,
    /// Time that a request takes besides moving, turning and transfer.
    command_ns: Spanned<u64>,
    /// Its bandwidth along a track.
    bytes_per_second: Spanned<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlashValues {
    /// Requests that it works on at the same time.
    queue_depth: Spanned<u64>,
    /// The times of reads, the three keys below.
    read: FlashTimesValues,
    /// The times of writes, the same keys.
    write: FlashTimesValues,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlashTimesValues {
    /// Time until the data of a request begin to come; those of several requests overlap.
    access_ns: Spanned<u64>,
    /// Time of a request during which no other one makes progress, besides its transfer.
    command_ns: Spanned<u64>,
    /// Its bandwidth.
    bytes_per_second: Spanned<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SwapValues {
    /// The name of the disk that the area lies on.
    disk: Spanned<String>,
    /// Where it begins there.
    offset_mib: Spanned<u64>,
    /// Its size.
    size_mib: Spanned<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CostValue {
    /// The time that it takes.
    ns: Spanned<f64>,
    /// Where the number is from.
    source: Spanned<String>,
}

impl CostValue {
    fn finish(self, name: &str, checks: &mut Checks<'_>) -> Cost {
        checks.some_text("source", &self.source);
        let ns = *self.ns.get_ref();
        // Up to a second: no primitive takes longer, and a number in another unit is caught.
        if !(0.0..=1e9).contains(&ns) {
            let message = format!("`{name}` costs {ns} ns, expected 0..=1000000000");
            checks.refuse(&self.ns.span(), message);
            return Cost::of_ns(0.0, String::new());
        }
        Cost::of_ns(ns, self.source.into_inner())
    }
}

impl Values {
    fn finish(self, checks: &mut Checks<'_>) -> Machine {
        let costs = self.costs.map(|name, cost| cost.finish(name, checks));
        let memory = &self.memory;
        checks.some_text("memory.source", &memory.source);
        let hole = checks.within(
            "device_hole_mib",
            &memory.device_hole_mib,
            0..DMA32_END_MIB - DMA_END_MIB,
            " (what lies below 4 GiB and is not in ZONE_DMA)",
        );
        let memmap =
            checks.within("memmap_bytes_per_page", &memory.memmap_bytes_per_page, 0..257, "");
        let low = checks.within("reserved_low_mib", &memory.reserved_low_mib, 0..4096, "");
        let high = checks.within("reserved_high_mib", &memory.reserved_high_mib, 0..1 << 20, "");
        let in_use = self.in_use.as_ref().map(|values| values.finish(checks));
        let host = self.host.as_ref().map(|values| values.finish(checks));
        let nodes = nodes(&self.nodes, low + high, checks);
        let disks: Vec<DeviceSpec> = self.disks.iter().map(|disk| disk.finish(checks)).collect();
        for (n, disk) in self.disks.iter().enumerate() {
            if disks[..n].iter().any(|earlier| earlier.name == *disk.name.get_ref()) {
                let message = format!("there is a disk `{}` already", disk.name.get_ref());
                checks.refuse(&disk.name.span(), message);
            }
        }
        let swap: Vec<SwapArea> =
            self.swap.iter().filter_map(|swap| swap.finish(&disks, checks)).collect();
        let description = self.description.unwrap_or_else(|| {
            let Some(base) = checks.layers.base() else {
                checks.refuse(&(0..0), "missing field `description`");
                return String::new();
            };
            format!("{}, otherwise {}", shape(&nodes, &disks, &swap), base.name())
        });
        let sources = Sources {
            memory: memory.source.get_ref().clone(),
            in_use: self.in_use.as_ref().map(|values| values.source.get_ref().clone()),
            sched: self.sched.source.get_ref().clone(),
            host: self.host.as_ref().map(|host| host.source.get_ref().clone()),
            disks: self.disks.iter().map(|disk| disk.source.get_ref().clone()).collect(),
        };
        Machine {
            name: checks.layers.file().name(),
            description,
            nodes,
            dma32_end_bytes: DMA32_END_MIB * MIB,
            device_hole_bytes: hole * MIB,
            reserved: Reserved {
                memmap_bytes_per_page: memmap,
                low_bytes: low * MIB,
                high_bytes: high * MIB,
            },
            in_use,
            disks,
            file_systems: self
                .disks
                .iter()
                .map(|disk| disk.filesystem.unwrap_or_default())
                .collect(),
            swap,
            sched: self.sched.finish(costs.context_switch.once(), host, checks),
            costs,
            sources,
        }
    }
}

/// A machine's shape in a line, in the words of the descriptions of those that come with the program.
fn shape(nodes: &[Node], disks: &[DeviceSpec], swap: &[SwapArea]) -> String {
    let size = |bytes: u64| {
        let mib = bytes / MIB;
        if mib > 0 && mib.is_multiple_of(1024) {
            format!("{} GiB", mib / 1024)
        } else {
            format!("{mib} MiB")
        }
    };
    let nr = nodes.len();
    let all_alike = nodes.iter().all(|node| {
        node.memory_bytes == nodes[0].memory_bytes && node.cpus.len() == nodes[0].cpus.len()
    });
    let mut parts = Vec::new();
    match nodes {
        [node] => {
            parts.push(format!("1 node x {}", size(node.memory_bytes)));
            parts.push(format!("{} CPUs", node.cpus.len()));
        }
        [node, ..] if all_alike => {
            parts.push(format!("{nr} nodes x {}", size(node.memory_bytes)));
            parts.push(format!("{nr} x {} CPUs", node.cpus.len()));
        }
        _ => {
            let sizes: Vec<String> = nodes.iter().map(|node| size(node.memory_bytes)).collect();
            let cpus: Vec<String> = nodes.iter().map(|node| node.cpus.len().to_string()).collect();
            parts.push(format!("{nr} nodes x {}", sizes.join(" + ")));
            parts.push(format!("{} CPUs", cpus.join(" + ")));
        }
    }
    parts.push(match disks.len() {
        0 => "no disk".to_owned(),
        1 => "a disk".to_owned(),
        nr => format!("{nr} disks"),
    });
    parts.push(match swap.iter().map(|area| area.bytes).sum() {
        0 => "no swap".to_owned(),
        bytes => format!("{} of swap", size(bytes)),
    });
    parts.join(", ")
}

fn nodes(
    values: &Spanned<Vec<NodeValues>>,
    reserved_mib: u64,
    checks: &mut Checks<'_>,
) -> Vec<Node> {
    let nr = values.get_ref().len();
    if nr == 0 {
        checks.refuse(&values.span(), "no `[[node]]`, expected at least one");
    }
    let mut nodes = Vec::new();
    let mut next_cpu = 0;
    let mut total_mib = 0_u64;
    for (number, value) in values.get_ref().iter().enumerate() {
        // Up to 4 TiB: frame numbers have 32 bits, and some are kept for marks.
        let mib = checks.within("memory_mib", &value.memory_mib, NODE_MIN_MIB..1 << 22, " MiB");
        total_mib = total_mib.saturating_add(mib);
        let least = least_memory_mib(number, reserved_mib);
        // Of a value that was refused nothing more is said.
        if mib < least && mib == *value.memory_mib.get_ref() {
            let message = format!(
                "`memory_mib` is {mib}, expected at least {least}: the reserved memory and 32 MiB"
            );
            checks.refuse(&value.memory_mib.span(), message);
        }
        let cpus = checks.within("cpus", &value.cpus, 0..limits::CPUS.most + 1, "") as u32;
        let from_default = |to| if to == number { LOCAL_DISTANCE } else { REMOTE_DISTANCE };
        let (distances, span) = match &value.distances {
            Some(given) => (given.get_ref().clone(), given.span()),
            None => ((0..nr).map(from_default).collect(), values.span()),
        };
        if distances.len() != nr {
            let message = format!(
                "`distances` has {} entries, expected {nr}: one to each node",
                distances.len()
            );
            checks.refuse(&span, message);
        }
        for (to, &distance) in distances.iter().enumerate() {
            let expected = if to == number {
                LOCAL_DISTANCE..=LOCAL_DISTANCE
            } else {
                LOCAL_DISTANCE + 1..=DISTANCE_MAX
            };
            if !expected.contains(&distance) {
                let message = format!(
                    "the distance of node {number} to node {to} is {distance}, expected {}..={}",
                    expected.start(),
                    expected.end()
                );
                checks.refuse(&span, message);
            }
        }
        nodes.push(Node { memory_bytes: mib * MIB, cpus: next_cpu..next_cpu + cpus, distances });
        next_cpu += cpus;
    }
    for (count, found) in [(limits::NODES, nr as u64), (limits::CPUS, u64::from(next_cpu))] {
        if let Err(message) = count.check(found) {
            checks.refuse(&values.span(), message);
        }
    }
    if nr > 0 && values.get_ref().iter().all(|value| *value.cpus.get_ref() == 0) {
        checks.refuse(&values.span(), "no node has a CPU, expected at least one");
    }
    if total_mib >= 1 << 22 {
        checks.refuse(&values.span(), format!("{total_mib} MiB in all, expected below 4 TiB"));
    }
    nodes
}

impl SchedValues {
    fn finish(&self, context_switch: Ns, host: Option<Host>, checks: &mut Checks<'_>) -> SchedSpec {
        checks.some_text("sched.source", &self.source);
        // /proc/sys/kernel/sched_*_ns accept 100 us to 1 s, and 0 to 1 s (kernel/sysctl.c, v4.4).
        let range = 100_000..1_000_000_001;
        let wakeup = 0..1_000_000_001;
        SchedSpec {
            latency: Ns(checks.within("latency_ns", &self.latency_ns, range.clone(), " ns")),
            min_granularity: Ns(checks.within(
                "min_granularity_ns",
                &self.min_granularity_ns,
                range,
                " ns",
            )),
            wakeup_granularity: Ns(checks.within(
                "wakeup_granularity_ns",
                &self.wakeup_granularity_ns,
                wakeup,
                " ns",
            )),
            context_switch,
            host,
        }
    }
}

impl HostValues {
    fn finish(&self, checks: &mut Checks<'_>) -> Host {
        checks.some_text("host.source", &self.source);
        // A hundredth of a CPU, and a wait of a second, would be a host that does something else.
        Host {
            work_percent: checks.by_busy(
                "work_percent",
                &self.work_percent,
                100..10_001,
                " %",
                |it| it,
            ),
            flush_wait: checks.by_busy("flush_wait_ns", &self.flush_wait_ns, 0..SECOND, " ns", Ns),
            access_wait: checks.by_busy(
                "access_wait_ns",
                &self.access_wait_ns,
                0..SECOND,
                " ns",
                Ns,
            ),
        }
    }
}

/// A second, beyond which no time of a disk lies.
const SECOND: u64 = 1_000_000_000;

/// `BLK_MAX_SEGMENTS`, include/linux/blkdev.h.
const BLK_MAX_SEGMENTS: u64 = 128;

impl DiskValues {
    fn finish(&self, checks: &mut Checks<'_>) -> DeviceSpec {
        checks.some_text("disk.source", &self.source);
        let name = self.name.get_ref();
        if name.is_empty() {
            checks.refuse(&self.name.span(), "a disk without a name");
        }
        let kind = match (&self.rotating, &self.flash) {
            (Some(rotating), None) => rotating.finish(checks),
            (None, Some(flash)) => flash.finish(checks),
            (rotating, _) => {
                let found = if rotating.is_some() { "both" } else { "neither" };
                let message = format!(
                    "disk `{name}` has {found} of `rotating` and `flash`, expected one of them"
                );
                checks.refuse(&self.name.span(), message);
                RotatingValues::nothing()
            }
        };
        let mut capacity =
            checks.within("capacity_gb", &self.capacity_gb, 1..CAPACITY_END_GB, " GB");
        if capacity != *self.capacity_gb.get_ref() {
            // So that no swap area is refused for the size that was.
            capacity = CAPACITY_END_GB - 1;
        }
        let nr_requests = checks.within("nr_requests", &self.nr_requests, 4..65_537, "");
        let longest = checks.within("max_request_kib", &self.max_request_kib, 4..65_537, " KiB");
        let segments = self.max_segments.as_ref().map_or(BLK_MAX_SEGMENTS, |segments| {
            checks.within("max_segments", segments, 1..65_537, "")
        });
        let queues = self
            .hardware_queues
            .as_ref()
            .map_or(1, |queues| checks.within("hardware_queues", queues, 1..8193, ""));
        let usual = match kind {
            DeviceKind::Rotating { .. } => Elevator::Deadline,
            DeviceKind::Flash { .. } => Elevator::Noop,
        };
        DeviceSpec {
            name: name.clone(),
            capacity_bytes: capacity * 1_000_000_000,
            nr_requests: nr_requests as u32,
            max_request_bytes: longest * 1024,
            max_segments: segments as u32,
            hardware_queues: queues as u32,
            says_rotational: self.says_rotational.unwrap_or(self.rotating.is_some()),
            elevator: self.elevator.unwrap_or(usual),
            kind,
        }
    }
}

impl RotatingValues {
    fn finish(&self, checks: &mut Checks<'_>) -> DeviceKind {
        let turns =
            checks.within("turns_per_minute", &self.turns_per_minute, 1000..30_001, " a minute");
        let track = checks.within("seek_track_ns", &self.seek_track_ns, 0..SECOND, " ns");
        let average = checks.within("seek_average_ns", &self.seek_average_ns, 0..SECOND, " ns");
        if average < track {
            let message = format!(
                "`seek_average_ns` is {average}, expected at least `seek_track_ns` ({track})"
            );
            checks.refuse(&self.seek_average_ns.span(), message);
            return Self::nothing();
        }
        DeviceKind::Rotating {
            queue_depth: self.queue_depth.as_ref().map_or(1, |depth| queue_depth(depth, checks)),
            turn: Ns(60 * SECOND / turns),
            seek_track: Ns(track),
            seek_average: Ns(average),
            command: Ns(checks.within("command_ns", &self.command_ns, 0..SECOND, " ns")),
            bandwidth: bandwidth(&self.bytes_per_second, checks),
        }
    }

    /// Stands for a disk that was refused.
    fn nothing() -> DeviceKind {
        let (turn, seek) = (Ns(SECOND), Ns(0));
        DeviceKind::Rotating {
            queue_depth: 1,
            turn,
            seek_track: seek,
            seek_average: seek,
            command: seek,
            bandwidth: SECOND,
        }
    }
}

impl FlashValues {
    fn finish(&self, checks: &mut Checks<'_>) -> DeviceKind {
        DeviceKind::Flash {
            queue_depth: queue_depth(&self.queue_depth, checks),
            read: self.read.finish(checks),
            write: self.write.finish(checks),
        }
    }
}

impl FlashTimesValues {
    fn finish(&self, checks: &mut Checks<'_>) -> FlashTimes {
        FlashTimes {
            access: Ns(checks.within("access_ns", &self.access_ns, 0..SECOND, " ns")),
            command: Ns(checks.within("command_ns", &self.command_ns, 0..SECOND, " ns")),
            bandwidth: bandwidth(&self.bytes_per_second, checks),
        }
    }
}

/// Requests that a disk has at once: no more than an NVMe queue holds.
fn queue_depth(value: &Spanned<u64>, checks: &mut Checks<'_>) -> u32 {
    checks.within("queue_depth", value, 1..65_537, "") as u32
}

/// From 100 kB to 1 TB a second: beyond, the unit is wrong.
fn bandwidth(value: &Spanned<u64>, checks: &mut Checks<'_>) -> u64 {
    checks.within("bytes_per_second", value, 100_000..1_000_000_000_001, " bytes")
}

impl SwapValues {
    fn finish(&self, disks: &[DeviceSpec], checks: &mut Checks<'_>) -> Option<SwapArea> {
        let name = self.disk.get_ref();
        let Some(device) = disks.iter().position(|disk| disk.name == *name) else {
            let known: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
            let expected = highorder_input::did_you_mean(name, &known).unwrap_or_else(|| {
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                format!("expected one of this machine: {known}")
            });
            let message = format!("no disk `{name}`, {expected}");
            checks.refuse(&self.disk.span(), message);
            return None;
        };
        let offset = checks.within("offset_mib", &self.offset_mib, 0..1 << 40, " MiB") * MIB;
        let bytes = checks.within("size_mib", &self.size_mib, SWAP_MIN_MIB..1 << 40, " MiB") * MIB;
        let capacity = disks[device].capacity_bytes;
        if offset + bytes > capacity {
            let message = format!(
                "the swap area ends at byte {}, expected at most {capacity}, where `{name}` ends",
                offset + bytes
            );
            checks.refuse(&self.size_mib.span(), message);
            return None;
        }
        Some(SwapArea { device: DeviceId(device as u32), offset_bytes: offset, bytes })
    }
}
