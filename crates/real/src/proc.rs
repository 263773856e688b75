//! What the running kernel tells: machine, counters, samples for a timeline.

use highorder_input::InputError;
use highorder_kernelfs::{Buddyinfo, Meminfo, TextFile, Vmstat};
use highorder_system::{CpuId, MachineInfo, NodeId, NodeInfo};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Fields of `/proc/meminfo` that a listing shows.
const MEMINFO: [&str; 6] =
    ["MemFree", "Buffers", "Cached", "SReclaimable", "SwapTotal", "SwapFree"];

const NODES: &str = "/sys/devices/system/node";
const HUGE_PAGE_BYTES: &str = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size";
/// Pages of 2 MiB, where the kernel does not say.
const HUGE_PAGES: u64 = 512;

/// The counters of `/proc/vmstat`.
pub(crate) fn counters() -> Result<BTreeMap<String, u64>, InputError> {
    let vmstat = Vmstat::read("/proc/vmstat")?;
    Ok(vmstat.iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// How many processes the kernel has killed for want of memory; it counts since 4.13 (8e675f7af507).
pub(crate) fn nr_oom_kills() -> Result<Option<u64>, InputError> {
    Ok(counters()?.get("oom_kill").copied())
}

/// Fields of `/proc/meminfo` in KiB.
pub(crate) fn meminfo_kib() -> Result<BTreeMap<String, u64>, InputError> {
    let meminfo = Meminfo::read("/proc/meminfo")?;
    Ok(meminfo.fields.into_iter().map(|field| (field.name, field.value)).collect())
}

/// Bytes that can be had without swapping, as the kernel estimates; none free if it does not say.
pub(crate) fn available_bytes() -> Result<u64, InputError> {
    Ok(meminfo_kib()?.get("MemAvailable").copied().unwrap_or(0) << 10)
}

/// Times of all CPUs since the machine's start, from `/proc/stat`, and what else a listing wants of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) user_ns: u64,
    pub(crate) system_ns: u64,
    pub(crate) idle_ns: u64,
    pub(crate) iowait_ns: u64,
    steal_ns: u64,
    intr: u64,
    ctxt: u64,
    procs_running: u64,
    procs_blocked: u64,
}

impl Stat {
    pub(crate) fn read() -> std::io::Result<Self> {
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        Ok(Self::parse(&fs::read_to_string("/proc/stat")?, tick_ns))
    }

    /// What is not there is 0: fields were added at the ends of lines, `steal` in 2.6.11.
    fn parse(text: &str, tick_ns: u64) -> Self {
        let mut stat = Self::default();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let name = words.next().unwrap_or("");
            let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
            let number = |i: usize| numbers.get(i).copied().unwrap_or(0);
            match name {
                "cpu" => {
                    // user nice system idle iowait irq softirq steal, as vmstat(8) sums them.
                    stat.user_ns = (number(0) + number(1)) * tick_ns;
                    stat.system_ns = (number(2) + number(5) + number(6)) * tick_ns;
                    stat.idle_ns = number(3) * tick_ns;
                    stat.iowait_ns = number(4) * tick_ns;
                    stat.steal_ns = number(7) * tick_ns;
                }
                "intr" => stat.intr = number(0),
                "ctxt" => stat.ctxt = number(0),
                "procs_running" => stat.procs_running = number(0),
                "procs_blocked" => stat.procs_blocked = number(0),
                _ => {}
            }
        }
        stat
    }
}

/// One row of a timeline, under the names that `highorder_record::timeline` lists.
pub(crate) fn sample() -> Result<Vec<(String, u64)>, InputError> {
    let mut row: Vec<(String, u64)> = counters()?.into_iter().collect();
    let meminfo = meminfo_kib()?;
    row.extend(MEMINFO.iter().filter_map(|&n| Some((n.to_owned(), *meminfo.get(n)?))));
    if let Ok(stat) = Stat::read() {
        let values = [
            ("procs_running", stat.procs_running),
            ("procs_blocked", stat.procs_blocked),
            ("intr", stat.intr),
            ("ctxt", stat.ctxt),
            ("cpu_user_ns", stat.user_ns),
            ("cpu_system_ns", stat.system_ns),
            ("cpu_idle_ns", stat.idle_ns),
            ("cpu_iowait_ns", stat.iowait_ns),
            ("cpu_steal_ns", stat.steal_ns),
        ];
        row.extend(values.map(|(name, value)| (name.to_owned(), value)));
    }
    for zone in Buddyinfo::read("/proc/buddyinfo")?.zones {
        for (order, count) in zone.counts.iter().enumerate() {
            row.push((format!("buddyinfo {} {} {order:02}", zone.node, zone.zone), *count));
        }
    }
    Ok(row)
}

/// The machine as workloads see it.
pub(crate) fn machine() -> Result<MachineInfo, InputError> {
    let page_bytes = rustix::param::page_size() as u64;
    let total_kib = meminfo_kib()?.get("MemTotal").copied().unwrap_or(0);
    let huge_bytes: Option<u64> =
        fs::read_to_string(HUGE_PAGE_BYTES).ok().and_then(|text| text.trim().parse().ok());
    let huge_pages = huge_bytes.map_or(HUGE_PAGES, |bytes| bytes / page_bytes);
    let mut nodes = nodes(Path::new(NODES), page_bytes);
    let total_pages = (total_kib << 10) / page_bytes;
    if nodes.is_empty() {
        // A kernel without NUMA.
        let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        nodes.push(NodeInfo { number: NodeId(0), total_pages, cpus: cpus(&online) });
    }
    Ok(MachineInfo { total_pages, nodes, page_bytes, huge_pages })
}

fn nodes(folder: &Path, page_bytes: u64) -> Vec<NodeInfo> {
    let online = fs::read_to_string(folder.join("online")).unwrap_or_default();
    let node = |number: u32| {
        let folder: PathBuf = folder.join(format!("node{number}"));
        let cpus = cpus(&fs::read_to_string(folder.join("cpulist")).unwrap_or_default());
        let meminfo = Meminfo::read(folder.join("meminfo")).ok()?;
        let total = meminfo.fields.iter().find(|field| field.name == "MemTotal")?.value;
        let number = NodeId(number);
        Some(NodeInfo { number, total_pages: (total << 10) / page_bytes, cpus })
    };
    list(&online).into_iter().filter_map(node).collect()
}

fn cpus(text: &str) -> Vec<CpuId> {
    list(text).into_iter().map(CpuId).collect()
}

/// Numbers of a list such as `0-3,8`.
pub(crate) fn list(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_cpus_are_summed_as_listings_do() {
        let text = "cpu  10 1 20 300 40 5 6 7 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\nintr 99 1 2\n\
                    ctxt 1234\nprocs_running 3\nprocs_blocked 1\n";
        let stat = Stat::parse(text, 10);
        assert_eq!((stat.user_ns, stat.system_ns), (110, 310));
        assert_eq!((stat.idle_ns, stat.iowait_ns, stat.steal_ns), (3000, 400, 70));
        assert_eq!((stat.intr, stat.ctxt), (99, 1234));
        assert_eq!((stat.procs_running, stat.procs_blocked), (3, 1));
    }

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(list("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(list("\n"), Vec::<u32>::new());
    }

    #[test]
    fn this_machine_tells_what_a_listing_shows() {
        let names: Vec<String> = sample().unwrap().into_iter().map(|(name, _)| name).collect();
        for name in ["pgfault", "nr_free_pages", "MemFree", "SwapFree", "ctxt", "cpu_idle_ns"] {
            assert!(names.iter().any(|n| n == name), "{name}");
        }
        assert!(names.iter().any(|name| name.starts_with("buddyinfo 0 ")));
        let machine = machine().unwrap();
        assert!(machine.nr_cpus() > 0 && machine.total_pages > 0);
    }
}
