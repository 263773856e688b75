//! The memory manager's flows: what tasks do with memory, and what the kernel's own tasks do for it.
//!
//! Straight-line code over the atomic steps of [`highorder_mm`]: do a step, spend the time that its work
//! costs, wait for what has to be waited for. Between two steps others run, so whoever has waited looks
//! again before it goes on.
//!
//! Reading order: [`policy`], [`fault`] (a touch and its faults), [`slowpath`] (a page for a request),
//! [`direct`], [`kswapd`] and `node_reclaim` (who reclaims), [`shrink`] (what both do), [`throttle`] (when they wait),
//! [`swap`], [`oom`]; [`filemap`], [`files`] and [`writeback`] for files; [`inodes`] and [`slab`] for what the
//! kernel keeps for itself, [`demand`] for what else it wants.
//!
//! Models: mm/page_alloc.c, mm/vmscan.c, mm/memory.c, mm/page_io.c, mm/oom_kill.c, v4.4, v6.1 and v6.12.
//! Departs: up to [`fault::FAULTS_MAX`] faults of one task happen at one moment, and a step of reclaim
//! does; their locks are held for as long as their list operations take, at the step's end. Visible as:
//! contention is shared out in pieces of some hundred microseconds.

pub mod compaction;
pub mod demand;
pub mod direct;
pub mod fault;
pub mod filemap;
pub mod files;
mod fragment_stall;
mod in_use;
pub mod inodes;
pub(crate) mod journal;
pub mod kswapd;
mod kswapd_by_cluster;
mod list_stats;
mod mixed_blocks;
pub mod mmap_lock;
mod node_reclaim;
pub mod numa;
pub mod oom;
mod plug;
pub mod policy;
pub mod rootfs;
pub mod shrink;
pub mod slab;
pub mod slowpath;
pub mod swap;
mod swap_token;
pub mod thp;
pub mod throttle;
pub mod trace;
mod vmpressure;
mod work;
pub mod writeback;
mod xfs_buffers;
pub(crate) mod xfs_log;

pub use policy::Flows;

use crate::device::{Completion, Elevator};
use crate::machine::{Costs, Machine};
use crate::sched::{DeviceId, LockId, LockKind, SimSpec, WaitQueue};
use crate::sim::{Cx, Sim, Waker};
use crate::task::{Affinity, TaskId, TaskSpec};
use highorder_mm::frame::PageFlags;
use highorder_mm::lru::LruvecId;
use highorder_mm::page_table::{Slot, Vpn};
use highorder_mm::policy::Policy;
use highorder_mm::types::NodeId;
use highorder_mm::vma::ProcessId;
use highorder_mm::zone::ZoneId;
use highorder_mm::{Memory, Order, Pfn, ZoneKind};
use highorder_words::Ns;
use std::collections::BTreeMap;

/// Bytes of a base page.
pub(crate) const PAGE_BYTES: u64 = crate::machine::PAGE_BYTES;

/// A tenth of a second: how long most waits of reclaim last at most (`HZ / 10`).
pub(crate) const TENTH: Ns = Ns::from_millis(100);

/// What a task of the kernel or of a program sees.
pub type KernelCx<'a> = Cx<'a, Kernel>;

/// A class of waits that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stall {
    /// A request in direct reclaim, from beginning to end.
    DirectReclaim,
    /// A request in the slow path, from beginning to end.
    Slowpath,
    /// A request in direct compaction, once.
    DirectCompaction,
    /// A fault that waited for swap.
    SwapIn,
    /// A wait before direct reclaim, for kswapd to free some of the reserves.
    PfmemallocThrottle,
    /// A wait of a movable request before it mixes pageblocks, in whole ticks of the timer.
    Fragmentation,
    /// A wait within reclaim, for devices.
    ReclaimThrottle,
    /// A wait of a writer, for dirty pages to be written.
    DirtyThrottle,
    /// A wait within direct reclaim, for a page that is being written.
    ReclaimWriteback,
    /// A call of `congestion_wait`.
    CongestionWait(Waiter),
    /// Such a call that lasted as long as it was meant to at most.
    CongestionWaitFull(Waiter),
    /// A call of `wait_iff_congested`, which may have waited for nothing.
    WaitIffCongested(Waiter),
    /// Such a call that lasted as long as it was meant to at most.
    WaitIffCongestedFull(Waiter),
    /// A request of a demand for memory of the kernel's own, from beginning to end.
    Demand(demand::DemandKind),
}

/// Who waits for devices, as far as statistics tell waiters apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waiter {
    /// Whoever needs the memory.
    Direct,
    /// kswapd.
    Kswapd,
}

impl Stall {
    /// The class's name in records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DirectReclaim => "stall-direct-reclaim",
            Self::Slowpath => "stall-allocation",
            Self::DirectCompaction => "stall-direct-compaction",
            Self::SwapIn => "stall-swap-in",
            Self::PfmemallocThrottle => "stall-pfmemalloc",
            Self::Fragmentation => "stall-fragmentation",
            Self::ReclaimThrottle => "stall-reclaim-throttle",
            Self::DirtyThrottle => "stall-dirty-throttle",
            Self::ReclaimWriteback => "stall-reclaim-writeback",
            Self::CongestionWait(Waiter::Direct) => "congestion-wait-direct",
            Self::CongestionWait(Waiter::Kswapd) => "congestion-wait-kswapd",
            Self::CongestionWaitFull(Waiter::Direct) => "congestion-wait-direct-full",
            Self::CongestionWaitFull(Waiter::Kswapd) => "congestion-wait-kswapd-full",
            Self::WaitIffCongested(Waiter::Direct) => "wait-iff-congested-direct",
            Self::WaitIffCongested(Waiter::Kswapd) => "wait-iff-congested-kswapd",
            Self::WaitIffCongestedFull(Waiter::Direct) => "wait-iff-congested-direct-full",
            Self::WaitIffCongestedFull(Waiter::Kswapd) => "wait-iff-congested-kswapd-full",
            Self::Demand(demand::DemandKind::KernelStack) => "demand-kernel-stack",
            Self::Demand(demand::DemandKind::NetworkBuffer) => "demand-network-buffer",
            Self::Demand(demand::DemandKind::PageTable) => "demand-page-table",
            Self::Demand(demand::DemandKind::Pipe) => "demand-pipe",
            Self::Demand(demand::DemandKind::Module) => "demand-module",
            Self::Demand(demand::DemandKind::Object) => "demand-object",
        }
    }
}

/// Settings that an administrator can change while the kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knobs {
    /// `vm.swappiness`.
    pub swappiness: u8,
    /// `vm.zone_reclaim_mode`.
    pub zone_reclaim_mode: u32,
    /// Percent of a node's pages that node reclaim leaves to unmapped files: `vm.min_unmapped_ratio`.
    pub min_unmapped_ratio: u8,
    /// How many of 100 unused names and inodes shrinkers are told of: `vm.vfs_cache_pressure`.
    pub vfs_cache_pressure: u32,
    /// How often flushers look for old pages; never if none: `vm.dirty_writeback_centisecs`.
    pub writeback_interval: Option<Ns>,
    /// Pages dirty for longer are old: `vm.dirty_expire_centisecs`.
    pub dirty_expire: Ns,
    /// `kernel.numa_balancing`.
    pub numa_balancing: bool,
    /// `transparent_hugepage/*`.
    pub thp: thp::ThpKnobs,
}

impl Knobs {
    /// Those that a kernel boots with.
    #[must_use]
    pub fn at_boot(policy: &Policy, flows: &Flows) -> Self {
        Self {
            swappiness: policy.reclaim.swappiness,
            zone_reclaim_mode: 0,
            // mm/page_alloc.c: sysctl_min_unmapped_ratio; fs/dcache.c: sysctl_vfs_cache_pressure.
            min_unmapped_ratio: 1,
            vfs_cache_pressure: 100,
            // mm/page-writeback.c: dirty_writeback_interval, dirty_expire_interval.
            writeback_interval: Some(Ns::from_secs(5)),
            dirty_expire: Ns::from_secs(30),
            numa_balancing: flows.numa.default_on,
            thp: flows.thp_knobs(),
        }
    }
}

/// What belongs to a node.
#[derive(Clone, Debug)]
pub struct NodeState {
    /// Where kswapd sleeps.
    pub(crate) kswapd_wait: WaitQueue,
    /// The order it was last woken for.
    pub(crate) kswapd_order: Order,
    /// The highest zone its wakers can use.
    pub(crate) kswapd_highest_zoneidx: Option<ZoneKind>,
    /// Runs without success in a row.
    pub(crate) kswapd_failures: u32,
    /// Where tasks wait for half of the reserves to be free.
    pub(crate) pfmemalloc_wait: WaitQueue,
    /// Where reclaimers wait for pages to be written.
    pub(crate) writeback_wait: WaitQueue,
    /// Pages written since somebody waits there.
    pub(crate) throttled_written: u64,
    /// Where reclaimers wait for progress.
    pub(crate) progress_wait: WaitQueue,
    /// The thread that compacts.
    pub(crate) kcompactd: compaction::Kcompactd,
}

/// What reclaim found out about LRU lists lately (`PGDAT_WRITEBACK` and its like, `ZONE_WRITEBACK`
/// before).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LruFlags {
    /// All that was taken was under writeback.
    pub writeback: bool,
    /// All that was taken was dirty and queued by nobody.
    pub dirty: bool,
    /// All dirty pages were behind a congested device.
    pub congested: bool,
    /// Somebody reclaims them before using another node (`PGDAT_RECLAIM_LOCKED`).
    pub node_reclaim: bool,
}

/// A process: whose memory it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its name.
    pub name: String,
    /// Whether the OOM killer chose it.
    pub killed: bool,
    /// Whether its memory is gone.
    pub gone: bool,
    /// The most base pages it had in memory at once, as far as faults and exits noticed.
    pub resident_max: u64,
    pub(crate) mmap_lock: mmap_lock::MmapLock,
    /// It wants no huge pages (`PR_SET_THP_DISABLE`).
    pub thp_disabled: bool,
}

/// Where a swap area lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwapDevice {
    pub(crate) device: DeviceId,
    pub(crate) offset_bytes: u64,
    pub(crate) first_slot: u32,
}

/// A machine's memory and all that its flows share.
pub struct Kernel {
    /// Physical memory.
    pub memory: Memory,
    /// The flows' decisions.
    pub flows: Flows,
    /// Settings.
    pub knobs: Knobs,
    /// What work costs.
    pub costs: Costs,
    /// Nodes.
    pub nodes: Vec<NodeState>,
    /// By LRU lists.
    pub lru_flags: Vec<LruFlags>,
    /// Processes, by the number that their mappings bear.
    pub processes: Vec<Process>,
    /// The process of each task, by its number, that belongs to one.
    tasks: Vec<Option<ProcessId>>,
    /// Processes killed for want of memory.
    pub oom_kills: u64,
    /// Told of every wait that is measured.
    pub on_stall: Box<dyn FnMut(Stall, Ns)>,
    pub(crate) zone_locks: Vec<LockId>,
    pub(crate) lru_locks: Vec<LockId>,
    pub(crate) swap_devices: Vec<SwapDevice>,
    /// Pages being read, and the transfers they wait for.
    pub(crate) reads: BTreeMap<Pfn, crate::device::Ticket>,
    /// Where tasks wait for another one to begin a read.
    pub(crate) reads_begin: WaitQueue,
    /// Where tasks wait for the mappings of a process to be unlocked.
    pub(crate) mappings_wait: WaitQueue,
    pub(crate) oom_wait: WaitQueue,
    /// Files, by number.
    pub(crate) file_table: Vec<Option<files::File>>,
    /// Free space of each disk.
    pub(crate) spaces_on_disks: Vec<files::Space>,
    /// Writeback to each disk.
    pub(crate) flushers: Vec<writeback::Flusher>,
    /// What else the kernel wants for itself, and what became of that.
    pub demands: Vec<(demand::Demand, demand::DemandStats)>,
    /// Names, inodes and what shrinkers know of them.
    pub(crate) vfs: inodes::Vfs,
    /// Journals, by disk.
    pub(crate) journals: Vec<Option<journal::Journal>>,
    /// XFS's logs, by disk.
    pub(crate) xfs_logs: Vec<Option<xfs_log::Log>>,
    /// The task that collapses huge pages.
    pub(crate) khugepaged: Option<TaskId>,
    /// Where tasks wait for files to be written.
    pub(crate) written_wait: WaitQueue,
    /// Tasks among them that wait for a page on its way to swap.
    pub(crate) nr_awaiting_swap_writes: u32,
    /// Pages of files that are being written.
    pub(crate) nr_file_writeback: u64,
    /// Processes that were held back for what they write, and when.
    pub(crate) writers: BTreeMap<u32, Ns>,
    /// What is remembered of reads through mappings of files, by where these began.
    pub(crate) mapped_readahead: BTreeMap<Vpn, files::Readahead>,
    /// Pages dirtied since a writer last looked at the limits.
    pub(crate) dirtied_since_balanced: u64,
    /// The dirty limit, which falls slowly, and when it last did (`global_dirty_limit`).
    pub(crate) smoothed_dirty_limit: (u64, Ns),
    /// Pages that disks have written.
    pub(crate) completions: writeback::Completions,
    /// The huge page of zeros, once somebody needed it.
    pub(crate) huge_zero: Option<Pfn>,
    /// Pages that reclaim gave to devices.
    pub reclaim_writes: trace::ReclaimWrites,
    /// Whose pages reclaim spares, on kernels that know this.
    pub(crate) swap_token: swap_token::SwapToken,
    pub(crate) pressure: vmpressure::Pressure,
    /// What hinting faults told.
    pub(crate) numa: numa::NumaState,
    pub(crate) compaction: compaction::CompactionTotals,
    /// Events, if anybody wants to know them.
    pub trace: Option<Vec<trace::Traced>>,
    /// Queues whose tasks are woken when a process is killed, to see whether it is theirs.
    pub interruptible: Vec<WaitQueue>,
}

impl Kernel {
    /// Adds a process.
    pub fn add_process(&mut self, name: &str) -> ProcessId {
        self.processes.push(Process {
            name: name.to_owned(),
            killed: false,
            gone: false,
            resident_max: 0,
            mmap_lock: mmap_lock::MmapLock::default(),
            thp_disabled: false,
        });
        ProcessId(self.processes.len() as u32 - 1)
    }

    /// A task belongs to a process: from now on CPUs that run it use its entries.
    pub fn note_task(&mut self, task: TaskId, process: ProcessId) {
        let at = task.0 as usize;
        if at >= self.tasks.len() {
            self.tasks.resize(at + 1, None);
        }
        self.tasks[at] = Some(process);
    }

    /// The process that a task belongs to, if any.
    pub(crate) fn process_of(&self, task: TaskId) -> Option<ProcessId> {
        self.tasks.get(task.0 as usize).copied().flatten()
    }

    /// A process.
    #[must_use]
    pub fn process(&self, id: ProcessId) -> &Process {
        &self.processes[id.0 as usize]
    }

    pub(crate) fn process_mut(&mut self, id: ProcessId) -> &mut Process {
        &mut self.processes[id.0 as usize]
    }

    /// The zones of a node that a request for zones up to `highest_zoneidx` can use.
    pub(crate) fn zones_of(
        &self,
        node: NodeId,
        highest_zoneidx: ZoneKind,
    ) -> impl DoubleEndedIterator<Item = ZoneId> + '_ {
        let zones = self.memory.zones.iter().enumerate();
        zones
            .filter(move |(_, z)| {
                z.node == node && z.kind <= highest_zoneidx && z.managed_pages > 0
            })
            .map(|(z, _)| ZoneId(z as u8))
    }

    /// The LRU lists of a node's zones up to `highest_zoneidx`, lowest zone first; the node's own where lists
    /// belong to nodes.
    pub(crate) fn lruvecs_of(&self, node: NodeId, highest_zoneidx: ZoneKind) -> Vec<LruvecId> {
        let mut lruvecs: Vec<LruvecId> =
            self.zones_of(node, highest_zoneidx).map(|id| self.memory.lru.of_zone(id)).collect();
        lruvecs.dedup();
        lruvecs
    }
}

/// A machine just booted: its free memory on the free lists, swap on, kswapd asleep.
///
/// Departs: nothing is in use but what the machine file reserves and the unmovable pages that it may tell of.
/// Visible as: the reclaimable slabs and the programs of a running system are missing from the start.
#[must_use]
pub fn boot(machine: &Machine, policy: Policy, flows: Flows, knobs: Knobs) -> Sim<Kernel> {
    let mut memory = Memory::new(machine.memory(), policy);
    release_free_memory(machine, &mut memory);
    memory.setup_watermarks(None, knobs.thp.enabled != thp::Enabled::Never);
    in_use::hold(machine, &mut memory);
    start(machine, memory, flows, knobs)
}

/// A machine whose memory is in this state already; of the machine file only CPUs, disks, swap and costs
/// are taken.
///
/// # Panics
/// If the memory is of other nodes or CPUs than the machine.
#[must_use]
pub fn start(machine: &Machine, mut memory: Memory, flows: Flows, knobs: Knobs) -> Sim<Kernel> {
    assert_eq!(memory.machine.cpu_nodes, machine.cpu_nodes(), "memory of this machine's CPUs");
    let has_kcompactd = flows.compactors.kcompactd != policy::KcompactdWake::Never;
    let mut swap_devices = Vec::new();
    for (number, area) in machine.swap.iter().enumerate() {
        let nr_slots = (area.bytes / PAGE_BYTES) as u32;
        let rotational = machine.disks[area.device.0 as usize].says_rotational;
        let first_slot = memory.swap.nr_total() as u32;
        // Priorities fall from -1 in the order of swapon (`least_priority`, mm/swapfile.c).
        memory.swapon(nr_slots, -1 - number as i32, rotational);
        swap_devices.push(SwapDevice {
            device: area.device,
            offset_bytes: area.offset_bytes,
            first_slot,
        });
    }
    let mut spec = SimSpec { picks: flows.sched.picks, ..machine.sim_spec() };
    let longest = u64::from(flows.files.request_kib_max) << 10;
    for device in &mut spec.devices {
        device.max_request_bytes = device.max_request_bytes.min(longest);
        if device.elevator == Elevator::Cfq && !flows.block.has_cfq {
            device.elevator = Elevator::Deadline;
        }
    }
    let nr_zones = memory.zones.len();
    let nr_lruvecs = memory.lru.lruvecs.len();
    let nr_nodes = memory.machine.nr_nodes();
    let completions = writeback::Completions::new(memory.dirty_limit_at_boot());
    let world = Kernel {
        memory,
        flows,
        knobs,
        costs: machine.costs.clone(),
        nodes: Vec::new(),
        lru_flags: vec![LruFlags::default(); nr_lruvecs],
        processes: Vec::new(),
        tasks: Vec::new(),
        oom_kills: 0,
        on_stall: Box::new(|_, _| ()),
        zone_locks: Vec::new(),
        lru_locks: Vec::new(),
        swap_devices,
        reads: BTreeMap::new(),
        reads_begin: WaitQueue(0),
        mappings_wait: WaitQueue(0),
        oom_wait: WaitQueue(0),
        interruptible: Vec::new(),
        file_table: Vec::new(),
        spaces_on_disks: spaces_on_disks(machine),
        demands: Vec::new(),
        vfs: inodes::Vfs::new(machine.file_systems.iter().copied(), nr_nodes),
        flushers: Vec::new(),
        journals: Vec::new(),
        xfs_logs: Vec::new(),
        khugepaged: None,
        written_wait: WaitQueue(0),
        nr_awaiting_swap_writes: 0,
        nr_file_writeback: 0,
        writers: BTreeMap::new(),
        mapped_readahead: BTreeMap::new(),
        dirtied_since_balanced: 0,
        smoothed_dirty_limit: (0, Ns::ZERO),
        completions,
        huge_zero: None,
        reclaim_writes: trace::ReclaimWrites::default(),
        swap_token: swap_token::SwapToken::default(),
        pressure: vmpressure::Pressure::default(),
        numa: numa::NumaState::default(),
        compaction: compaction::CompactionTotals::default(),
        trace: None,
    };
    let mut sim = Sim::new(spec, world);
    let oom_wait = sim.add_queue("oom_reaper");
    sim.world_mut().oom_wait = oom_wait;
    let written_wait = sim.add_queue("files written");
    sim.world_mut().written_wait = written_wait;
    for disk in &machine.disks {
        let queue = sim.add_queue(format!("flusher of {}", disk.name));
        sim.world_mut().flushers.push(writeback::Flusher::new(queue));
    }
    for (disk, &file_system) in machine.disks.iter().zip(&machine.file_systems) {
        let queue = sim.add_queue(format!("journal of {}", disk.name));
        let committed = sim.add_queue(format!("commits to {}", disk.name));
        let capacity = disk.capacity_bytes;
        let world = sim.world_mut();
        world.journals.push(journal::Journal::new(file_system, capacity, queue, committed));
        world.xfs_logs.push(xfs_log::Log::new(file_system, capacity, queue, committed));
    }
    let reads_begin = sim.add_queue("reads begin");
    sim.world_mut().reads_begin = reads_begin;
    let mappings_wait = sim.add_queue("mappings");
    sim.world_mut().mappings_wait = mappings_wait;
    for zone in 0..nr_zones {
        let lock = sim.add_lock(format!("zone {zone}"), LockKind::Spin);
        sim.world_mut().zone_locks.push(lock);
    }
    for lruvec in 0..nr_lruvecs {
        let lock = sim.add_lock(format!("lru {lruvec}"), LockKind::Spin);
        sim.world_mut().lru_locks.push(lock);
    }
    for node in 0..nr_nodes {
        let queue = |sim: &mut Sim<Kernel>, name: &str| sim.add_queue(format!("{name}{node}"));
        let state = NodeState {
            kswapd_wait: queue(&mut sim, "kswapd"),
            kswapd_order: Order(0),
            kswapd_highest_zoneidx: None,
            kswapd_failures: 0,
            pfmemalloc_wait: queue(&mut sim, "pfmemalloc_wait"),
            writeback_wait: queue(&mut sim, "reclaim_wait writeback "),
            throttled_written: 0,
            progress_wait: queue(&mut sim, "reclaim_wait progress "),
            kcompactd: compaction::Kcompactd {
                wait: queue(&mut sim, "kcompactd"),
                order: Order(0),
                highest_zoneidx: None,
            },
        };
        sim.world_mut().nodes.push(state);
    }
    sim.on_completion(complete);
    sim.on_expected(|kernel, soon| {
        if soon.io.tag != journal::TAG {
            kernel.memory.warm_frame(Pfn(soon.io.tag as u32));
        }
    });
    for (node, spec) in NodeId::all(nr_nodes).zip(&machine.nodes) {
        if spec.memory_bytes > 0 {
            let place = if spec.cpus.is_empty() { Affinity::Any } else { Affinity::Node(node) };
            let task = TaskSpec::kernel_thread(format!("kswapd{node}")).on(place);
            sim.spawn(task, move |cx| kswapd::kswapd(cx, node));
            if has_kcompactd {
                let task = TaskSpec::kernel_thread(format!("kcompactd{node}")).on(place);
                sim.spawn(task, move |cx| compaction::kcompactd(cx, node));
            }
        }
    }
    sim.spawn(TaskSpec::kernel_thread("oom_reaper"), oom::oom_reaper);
    let khugepaged = sim.spawn(TaskSpec::kernel_thread("khugepaged"), thp::khugepaged);
    sim.world_mut().khugepaged = Some(khugepaged);
    for (number, disk) in machine.disks.iter().enumerate() {
        let device = DeviceId(number as u32);
        let task = TaskSpec::kernel_thread(format!("flush-{}", disk.name));
        sim.spawn(task, move |cx| writeback::flusher(cx, device));
        if sim.world().has_journal(device) {
            let task = TaskSpec::kernel_thread(format!("jbd2-{}", disk.name));
            sim.spawn(task, move |cx| journal::kjournald(cx, device));
        }
        if sim.world_mut().xfs_log(device).is_some() {
            let task = TaskSpec::kernel_thread(format!("xfs-log-{}", disk.name));
            sim.spawn(task, move |cx| xfs_log::worker(cx, device));
        }
    }
    if sim.world().flows.sched.pressure_worker {
        vmpressure::start_workers(&mut sim);
    }
    list_stats::start_worker(&mut sim);
    sim
}

/// Gives what the machine file does not reserve to the allocator: what lies low is the kernel's image,
/// what lies high the map of pages and the early tables.
fn release_free_memory(machine: &Machine, memory: &mut Memory) {
    for zone in 0..memory.zones.len() {
        let zone = &memory.zones[zone];
        let spanned = u64::from(zone.end.0 - zone.start.0);
        let reserved = spanned - zone.managed_pages;
        let low = match zone.kind {
            // The first MiB.
            ZoneKind::Dma => reserved,
            ZoneKind::Dma32 if zone.node == NodeId(0) => {
                machine.reserved.low_bytes.div_ceil(PAGE_BYTES).min(reserved)
            }
            _ => 0,
        };
        let first = zone.start + low as u32;
        let last = first + zone.managed_pages as u32;
        memory.release_boot_memory(first..last);
    }
}

/// What swap areas leave of each disk.
fn spaces_on_disks(machine: &Machine) -> Vec<files::Space> {
    let disks = machine.disks.iter().enumerate();
    disks
        .map(|(number, disk)| {
            let swap = machine.swap.iter().filter(|area| area.device.0 as usize == number);
            let end = swap.map(|area| area.offset_bytes + area.bytes).max().unwrap_or(0);
            files::Space::new(end.next_multiple_of(PAGE_BYTES), disk.capacity_bytes)
        })
        .collect()
}

/// A transfer of a page is done.
fn complete(kernel: &mut Kernel, waker: &mut Waker<'_>, _: DeviceId, done: Completion) {
    if done.io.tag == journal::TAG {
        return;
    }
    let pfn = Pfn(done.io.tag as u32);
    match done.io.direction {
        crate::device::Direction::Read => {
            kernel.reads.remove(&pfn);
            kernel.memory.end_swapin(pfn);
        }
        crate::device::Direction::Write => {
            let node = kernel.memory.zones[kernel.memory.zone_of(pfn).index()].node;
            if !kernel.memory.frames().has(pfn, PageFlags::ANON)
                && let Some(file) = kernel.end_file_write(waker.now(), pfn)
            {
                kernel.consider_inode(file);
                waker.wake_all(kernel.written_wait);
            } else if kernel.flows.stall.sync_pass || kernel.nr_awaiting_swap_writes > 0 {
                waker.wake_all(kernel.written_wait);
            }
            kernel.memory.end_writeback(pfn);
            kernel.note_block_written(pfn);
            throttle::note_written(kernel, waker, node, done.io.bytes / PAGE_BYTES);
        }
    }
}

impl SwapDevice {
    /// Where a slot lies on its device.
    pub(crate) const fn offset(&self, slot: Slot) -> u64 {
        self.offset_bytes + (slot.0 - self.first_slot) as u64 * PAGE_BYTES
    }
}
