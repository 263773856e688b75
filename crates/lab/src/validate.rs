//! Recorded runs of real kernels, run again on the model: how far the counters are apart.
//!
//! A case is a folder as `highorder_record::foreign` reads it, whose `case.json` says what ran. The model
//! gets the same machine (zones, marks and free blocks as `before/` has them, with as many CPUs and as
//! much swap), the kernel file of that release, the same settings and the same script: commands in turn, and
//! programs that stay in the background. A set-up runs again on the frames that it had taken. What is compared
//! is what the run did and left: the rise of each counter from before to after, the share of anonymous
//! memory in huge pages at the workload's end, how much of what passes asked for they were given, fallbacks to other
//! types' memory, and where free blocks lie afterwards (`quantity`). The log of the boot beside `case.json`, `dmesg`, tells
//! how large the kernel's image is, if it is there.
//!
//! Departs: positions of free blocks are made up from their counts, and what is in use before the run
//! stays where it is: it is no page cache and belongs to no process. Visible as: what a guest's own
//! programs had in memory, a few MiB, is not reclaimed.
//! Departs: guests of 3.x served their disks by cfq; here requests are served as they arrive. Visible as: by cfq the model is
//! nearer to 3.4 (the mean error of its counters is 34 %, not 36) and further from 3.5 (29, not 24), and readers of
//! hugestress, which read far more than the guests' did, leave its writes no time.

mod kernels;
mod quantity;
mod repeats;

pub use kernels::{Change, Differently, OfKernel, by_kernel, changes};
pub use quantity::{
    BLOCKS_NAME, COUNTERS, FALLBACKS_NAME, FRAGMENTING_NAME, FREE_PAGES_NAME, Fallbacks,
    HUGE_SHARE_NAME, Quantity, Row, relative_error,
};
pub use repeats::{Noise, RealSpread, Repeats};

use crate::run_inputs::{kernel_values, machine_values};
use crate::start::lend_disks;
use crate::{ExecuteError, Experiment, Failed, RealOptions, Scale, Target};
use highorder_files::limits;
use highorder_input::InputError;
use highorder_kernelfs::{Settings, Slabinfo, TextFile, Zoneinfo, find_packed, read_bytes};
use highorder_kernels::{KernelFile, machine};
use highorder_mm::buddy::FreeTo;
use highorder_mm::frame::State;
use highorder_mm::policy::LruKind;
use highorder_mm::types::Migratetype;
use highorder_mm::zone::ZoneId;
use highorder_mm::{Memory, Order, Pfn};
use highorder_model::{ModelSpec, check_knob_of, run_from};
use highorder_record::{Inputs, Named, Record, Source, Store, read_foreign};
use highorder_sim::kernel::policy::Rootfs;
use highorder_sim::{ByBusy, DeviceId, DeviceKind, DeviceSpec, Host, Machine, Ns, RunError};
use highorder_snapshot::live::{Options, Way};
use highorder_snapshot::{FilledFrom, Snapshot};
use highorder_workload::recorded::{Moment, Script, Shell, Told, Unknown};
use quantity::compare;
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// The largest disk for files that a recorded guest may have had: a tebibyte.
const FILES_MIB_MAX: u64 = 1 << 20;

/// A recorded run.
#[derive(Debug)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub folder: PathBuf,
    /// What was captured.
    pub record: Record,
    /// What it was given.
    given: BTreeMap<String, Json>,
}

/// What the model makes of a case, or what is missing for it, a few words for each mechanism.
pub type Outcome<T> = Result<T, Vec<String>>;

/// A run of the model.
#[derive(Debug)]
pub struct Made {
    derived: Vec<String>,
    recorded: Option<Fallbacks>,
    model: Record,
}

/// A case that was run.
#[derive(Debug)]
pub struct Compared {
    /// What of the machine the recording does not say, and was derived.
    pub derived: Vec<String>,
    /// Each figure that either of them has.
    pub rows: Vec<Row>,
    /// What the model's first run left.
    pub model: Record,
}

impl Case {
    /// Reads a case.
    ///
    /// # Errors
    /// The file and line of what is missing or malformed.
    pub fn read(folder: &Path) -> Result<Self, InputError> {
        let record = read_foreign(folder).map_err(|error| InputError::other(error.to_string()))?;
        let path = folder.join("case.json");
        let text = highorder_files::read_text(&path, limits::NOTES)
            .map_err(|error| InputError::file(&path, error))?;
        let given: BTreeMap<String, Json> = serde_json::from_str(&text)
            .map_err(|e| InputError::line(&path, e.line(), e.to_string()))?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, folder: folder.to_owned(), record, given })
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.given.get(key).and_then(Json::as_str)
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.given.get(key).and_then(Json::as_u64)
    }

    /// A number of `case.json` that can be so large.
    fn up_to(&self, key: &str, most: u64) -> Result<Option<u64>, InputError> {
        let found = self.number(key);
        match found.filter(|found| *found > most) {
            Some(found) => {
                let message = format!("`{key}` is {found}, expected at most {most}");
                Err(InputError::file(self.folder.join("case.json"), message))
            }
            None => Ok(found),
        }
    }

    /// Settings that the run was given: name and value as text.
    #[must_use]
    pub fn settings(&self) -> BTreeMap<String, String> {
        let settings = self.given.get("settings").and_then(Json::as_object);
        let text = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        settings
            .map(|map| map.iter().map(|(k, v)| (k.clone(), text(v))).collect())
            .unwrap_or_default()
    }

    /// Settings that the run was given, and of huge pages all as they were: what the kernel sets itself
    /// depends on the machine's memory (mm/huge_memory.c, `hugepage_init`).
    fn settings_in_force(&self) -> Result<BTreeMap<String, String>, InputError> {
        const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage";
        let mut settings = self.settings();
        if let Some(found) = self.recorded_settings()? {
            for name in ["enabled", "defrag", "use_zero_page"] {
                let name = format!("{HUGE_PAGES}/{name}");
                let Some(value) = found.get(&name) else { continue };
                let text = value.chosen().map_or_else(|| value.to_string(), str::to_owned);
                settings.entry(name).or_insert(text);
            }
        }
        Ok(settings)
    }

    /// What the guest's own files of settings said.
    fn recorded_settings(&self) -> Result<Option<Settings>, InputError> {
        let path = self.folder.join("settings");
        if !path.is_file() {
            return Ok(None);
        }
        Settings::read(&path).map(Some).map_err(|e| InputError::other(e.to_string()))
    }

    /// The kernel's release, as `4.20`.
    #[must_use]
    pub fn kernel(&self) -> String {
        self.text("kernel").unwrap_or_default().to_owned()
    }

    /// The machine that comes with the program whose costs and disks are most like the guest's. A release that tells no more
    /// than its number is of a kernel that somebody built for such a guest.
    fn guest_machine(&self) -> &'static str {
        let release = self.text("kernel_release").unwrap_or_default();
        let is_lean =
            !release.is_empty() && release.chars().all(|c| c.is_ascii_digit() || c == '.');
        let mut emulator = self.text("qemu").unwrap_or_default().split_whitespace();
        let cpu = emulator.find(|&word| word == "-cpu").and_then(|_| emulator.next());
        match (is_lean, cpu) {
            (true, Some("qemu64")) => "guest-tcg-qemu64",
            (true, _) => "guest-tcg-lean",
            (false, _) => "guest-tcg",
        }
    }

    /// What the case is about but for its kernel and its settings: cases alike in this can be told apart by these.
    #[must_use]
    pub fn work(&self) -> String {
        let work = ["workload", "setup"];
        let machine = ["nodes", "node_mb", "low_mb", "smp", "append"];
        let disks = ["swap_mb", "data_mb", "disk_bps", "disk_iops", "inodes"];
        let keys = work.into_iter().chain(machine).chain(disks);
        let values = keys.map(|key| self.given.get(key).map(Json::to_string).unwrap_or_default());
        values.collect::<Vec<String>>().join("|")
    }

    /// Runs the case on the model, if there is all it needs: under this kernel, or else under the kernel file of its
    /// release. Costs and disks are this machine's, or else those of the one that is most like the guest, as are the disks where it has
    /// none; its shape is the case's.
    ///
    /// Runs differ in `nth`, from 0: what work takes is known to no more than a hundredth, so each run's CPUs are slower by
    /// that than those of the run before.
    ///
    /// # Errors
    /// A file of the case is malformed, or the machine has a disk and no swap where the guest had some; or the model
    /// cannot go on.
    pub fn run(
        &self,
        nth: u64,
        kernel: Option<&KernelFile>,
        costs_of: Option<&Machine>,
    ) -> Result<Outcome<Made>, Failed> {
        let mut waits = Vec::new();
        if let Some(status) = self.text("status").filter(|&status| status != "ok") {
            waits.push(format!("the recorded run's status is `{status}`"));
        }
        let mut script = |key: &str| {
            let text = self.text(key).filter(|text| !text.is_empty())?;
            match Script::parse(text) {
                Ok(script) => return Some(self.in_step(self.on_its_disk(script))),
                Err(Unknown::Needs(needs)) => {
                    waits.extend(needs.into_iter().map(|need| format!("{key}: {need}")));
                }
                Err(Unknown::Malformed(what)) => waits.push(format!("{key}: {what}")),
            }
            None
        };
        let (setup, workload) = (script("setup"), script("workload"));
        if self.text("workload").is_none_or(str::is_empty) {
            waits.push("no workload in case.json".to_owned());
        }
        let chosen = match kernel {
            Some(kernel) => Ok(kernel.clone()),
            None => self.kernel_of_release(),
        };
        let mut found = None;
        match chosen {
            Ok(kernel) => found = Some(self.with_settings(kernel, &mut waits)?),
            Err(missing) => waits.push(missing),
        }
        let (Some(workload), Some((kernel, knobs)), true) = (workload, found, waits.is_empty())
        else {
            return Ok(Err(waits));
        };
        let mut costs_of = match costs_of {
            Some(machine) => machine.clone(),
            None => machine::load(self.guest_machine())?,
        };
        let lent = lend_disks(&mut costs_of, self.guest_machine())?;
        let mut machine = self.machine(costs_of)?;
        machine.sched.host = slower(machine.sched.host, nth);
        let options = Options {
            way: Way::Counts,
            proc: self.folder.join("before"),
            sys: self.folder.join("sys"),
            ..Options::default()
        };
        let mut snapshot = highorder_snapshot::live::take(options)
            .map_err(|error| InputError::other(error.to_string()))?;
        if let Some(log) = find_packed(&self.folder, "dmesg") {
            let log = read_bytes(log).map_err(|error| InputError::other(error.to_string()))?;
            snapshot.files.insert("dmesg".to_owned(), log);
        }
        let filled = crate::machine::filled_from(&kernel);
        let mut memory = match crate::machine::restore(&snapshot, &kernel, &machine.cpu_nodes()) {
            Ok(memory) => memory,
            Err(error) => return Ok(Err(vec![error.to_string()])),
        };
        let rootfs = kernel.flows.files.rootfs;
        let zoneinfo = zoneinfo_of(&snapshot)?;
        let unpacked = what_was_unpacked(&zoneinfo, &memory, rootfs, filled);
        if let Some(setup) = &setup {
            let told = (&snapshot, &zoneinfo);
            free_what_setup_took(told, &mut memory, setup, &unpacked, filled)?;
        }
        // The shell puts them there anew, before anything else asks for memory.
        unpacked.iter().flatten().for_each(|&pfn| memory.restore_free_page(pfn));
        let holds_memory =
            [Some(&workload), setup.as_ref()].into_iter().flatten().any(Script::holds_memory);
        let inputs = self.model_inputs(&machine, &kernel);
        let spec = ModelSpec {
            machine,
            policy: kernel.policy,
            flows: kernel.flows,
            knobs,
            seed: 0,
            demands: Vec::new(),
            sample_interval: Ns::from_secs(1),
            draw: None,
            watch: None,
        };
        let pageblock = memory.policy.freelist.pageblock_order;
        let recorded = Fallbacks::read(&self.folder.join("extfrag.json"), pageblock)?;
        let rootfs_pages = unpacked.iter().map(Vec::len).sum::<usize>() as u64;
        let rootfs_bytes = rootfs_pages * highorder_sim::machine::PAGE_BYTES;
        let shell = Shell { copies_held: self.folder.join("held").is_dir(), rootfs_bytes };
        let workload = workload.by_shell(shell);
        let ran = run_from(memory.into(), spec, inputs, workload.code(setup));
        let mut model = match made(&self.name, ran)? {
            Ok(model) => model,
            Err(halted) => return Ok(Err(vec![halted])),
        };
        if holds_memory && let Some(held) = &model.held {
            // The guest's state was captured while a program in the background still had its memory.
            model.after = held.clone();
        }
        let derived = snapshot.inferred.into_iter().filter(|what| what.contains("`managed`"));
        let derived = derived.chain(lent).collect();
        Ok(Ok(Made { derived, recorded, model }))
    }

    /// Compares what was recorded with the model's runs: figure by figure with their median.
    ///
    /// # Errors
    /// What the first run waits for that did not come about.
    ///
    /// # Panics
    /// Without a run.
    pub fn compare(&self, runs: Vec<Outcome<Made>>) -> Outcome<Compared> {
        let made = runs.into_iter().collect::<Outcome<Vec<Made>>>()?;
        let models: Vec<&Record> = made.iter().map(|run| &run.model).collect();
        let rows = compare(&self.record, &models, made.first().and_then(|run| run.recorded));
        let Made { derived, model, .. } = made.into_iter().next().expect("there is a run");
        Ok(Compared { derived, rows, model })
    }

    /// What determines the model's run, but for the program: the machine and the kernel it was given, and of the
    /// recording its settings, its workload and all that was captured.
    fn model_inputs(&self, machine: &Machine, kernel: &KernelFile) -> Inputs {
        let recorded = self.record.inputs.clone();
        let mut values = recorded.kernel.values;
        values.extend(kernel_values(kernel, &BTreeMap::new()));
        Inputs {
            source: Source::Model,
            machine: Named { name: machine.name.clone(), values: machine_values(machine) },
            kernel: Named { name: kernel.name.clone(), values },
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..recorded
        }
    }

    /// The kernel file of the case's release, or what is missing.
    fn kernel_of_release(&self) -> Result<KernelFile, String> {
        let release = self.text("kernel_release").or_else(|| self.text("kernel"));
        let Some(release) = release else {
            return Err("no release in case.json (say which kernel file with --kernel)".to_owned());
        };
        let missing = |_| format!("no kernel file for release {release} (say which with --kernel)");
        KernelFile::for_release(release).map_err(missing)
    }

    /// The kernel with the case's settings, and knobs. What it cannot be set to, the case waits for.
    fn with_settings(
        &self,
        mut kernel: KernelFile,
        waits: &mut Vec<String>,
    ) -> Result<(KernelFile, BTreeMap<String, String>), InputError> {
        let mut knobs = BTreeMap::new();
        // Where all files of a folder are there, one that is not there is one that the kernel did not have.
        let recorded = self.recorded_settings()?;
        let had = |name: &str| match (&recorded, name.starts_with("/proc/sys/vm/")) {
            (Some(recorded), true) => recorded.get(name).is_some(),
            _ => true,
        };
        for (name, value) in self.settings_in_force()? {
            let path = name.replace("vm.", "/proc/sys/vm/");
            if !had(&path) {
                waits.push(format!("setting `{name}`: the recorded kernel has no such knob"));
                continue;
            }
            let short = name
                .strip_prefix("/sys/kernel/mm/")
                .or_else(|| name.strip_prefix("/proc/sys/"))
                .unwrap_or(&name)
                .replace("vm/", "vm.");
            match short.as_str() {
                "lru_gen/enabled" => {
                    let on = !matches!(value.trim(), "0" | "0x0000" | "n" | "N");
                    kernel.policy.lru.kind =
                        if on { LruKind::MultiGenerational } else { LruKind::Classic };
                }
                other => match check_knob_of(&kernel.policy, &kernel.flows, other, &value) {
                    Ok(()) => {
                        knobs.insert(other.to_owned(), value);
                    }
                    Err(what) => waits.push(format!("setting {what}")),
                },
            }
        }
        Ok((kernel, knobs))
    }

    /// The script as it ran on the guest's data disk: ext4 as its mke2fs made it, 3072 inodes for each group of
    /// 128 MiB, of which the first eleven are its own (`612-slab-thp` and `612-compactmem-slab` ran out of them with
    /// 36,665 and 24,584 in memory).
    fn on_its_disk(&self, script: Script) -> Script {
        const PER_GROUP: u64 = 3072;
        const GROUP_MIB: u64 = 128;
        const OWN: u64 = 11;
        match self.number("data_mb") {
            Some(mib) => {
                // A disk too large to be true is refused where the machine is made.
                let all = (mib / GROUP_MIB).saturating_mul(PER_GROUP);
                script.with_inodes(all.saturating_sub(OWN))
            }
            None => script,
        }
    }

    /// The script, with as much done in the background as the recorded programs say they did, and when they did it.
    fn in_step(&self, script: Script) -> Script {
        let metrics = self.record.metrics.iter();
        let results = metrics.map(|metric| (metric.name.clone(), metric.samples.clone()));
        let timeline = &self.record.timeline;
        let sum = |sample, names: [&str; 2]| -> u64 {
            names.iter().filter_map(|name| timeline.get(name, sample)).sum::<f64>() as u64
        };
        let moments = timeline.time_ns.iter().enumerate().map(|(sample, &time)| Moment {
            time: Ns(time),
            settled: sum(sample, ["thp_fault_alloc", "thp_fault_fallback"]),
            refaults: sum(sample, ["workingset_refault", "workingset_refault_file"]),
        });
        script.in_step(Told { results: results.collect(), moments: moments.collect() })
    }

    /// The machine with the case's CPUs, nodes and swap, and with room for its files.
    fn machine(&self, mut machine: Machine) -> Result<Machine, InputError> {
        let nr_nodes = self.up_to("nodes", limits::NODES.most)?.unwrap_or(1).max(1) as u32;
        let nr_cpus = self.up_to("smp", limits::CPUS.most)?.unwrap_or(1).max(1) as u32;
        let each = nr_cpus.div_ceil(nr_nodes);
        let template = machine.nodes[0].clone();
        machine.nodes = (0..nr_nodes)
            .map(|node| {
                let mut this = template.clone();
                this.cpus = (node * each).min(nr_cpus)..((node + 1) * each).min(nr_cpus);
                // Without a table of distances the firmware's default holds: 20 to any other node.
                this.distances = (0..nr_nodes).map(|n| if n == node { 10 } else { 20 }).collect();
                this
            })
            .collect();
        machine.sched = machine.sched.of_cpus(nr_cpus);
        for disk in &mut machine.disks {
            // As QEMU makes virtio disks since 5.2.
            disk.hardware_queues = nr_cpus;
        }
        self.set_disks(&mut machine)?;
        Ok(machine)
    }
}

impl Case {
    /// Gives the guest as much swap and as much room for files as it had. Where its two disks, for files and for swap,
    /// were limited, each is as fast as the limit lets it be; else the machine's one disk stands for both.
    fn set_disks(&self, machine: &mut Machine) -> Result<(), InputError> {
        let disk_mib = machine.disks.first().map_or(0, |disk| disk.capacity_bytes >> 20);
        let swap_bytes = self.up_to("swap_mb", disk_mib)?.unwrap_or(0) << 20;
        let file_bytes = self.up_to("data_mb", FILES_MIB_MAX)?.unwrap_or(0) << 20;
        if swap_bytes > 0 && machine.swap.is_empty() {
            let message = format!("machine {} has no swap, and the guest had", machine.name);
            return Err(InputError::other(message));
        }
        machine.swap.truncate(if swap_bytes == 0 { 0 } else { 1 });
        for area in &mut machine.swap {
            // The header takes the first page.
            area.bytes = swap_bytes - 4096;
        }
        let (Some(disk), Some(&file_system)) =
            (machine.disks.first_mut(), machine.file_systems.first())
        else {
            return Err(InputError::other(format!("machine {} has no disk", machine.name)));
        };
        disk.capacity_bytes = disk.capacity_bytes.max(swap_bytes + file_bytes);
        if let Some(nr) = self.nr_requests()? {
            disk.nr_requests = nr;
        }
        let Some(limit) = self.number("disk_bps").filter(|&limit| limit > 0) else { return Ok(()) };
        // QEMU counts both directions together (throttling.bps-total), as the interface of flash does.
        if let DeviceKind::Flash { read, write, .. } = &mut disk.kind {
            read.bandwidth = read.bandwidth.min(limit);
            write.bandwidth = write.bandwidth.min(limit);
        }
        if let Some(area) = machine.swap.first_mut() {
            let name = "vdb".to_owned();
            let swap = DeviceSpec { name, capacity_bytes: swap_bytes, ..disk.clone() };
            (area.device, area.offset_bytes) = (DeviceId(machine.disks.len() as u32), 0);
            machine.disks.push(swap);
            machine.file_systems.push(file_system);
        }
        Ok(())
    }

    /// How many requests of a class a disk's queue had, if the recording says so.
    fn nr_requests(&self) -> Result<Option<u32>, InputError> {
        let Some(settings) = self.recorded_settings()? else { return Ok(None) };
        let Some(queue) = settings.get("/sys/block/vdb/queue") else { return Ok(None) };
        let text = queue.to_string();
        let nr = text.split_once("nr_requests ").map(|(_, nr)| nr.trim());
        Ok(nr.and_then(|nr| nr.parse().ok()).filter(|&nr| nr > 0))
    }
}

/// A host on which work takes so many hundredths longer.
fn slower(host: Option<Host>, hundredths: u64) -> Option<Host> {
    let none = || Host {
        work_percent: ByBusy::new(&[100]),
        flush_wait: ByBusy::new(&[Ns::ZERO]),
        access_wait: ByBusy::new(&[Ns::ZERO]),
    };
    if hundredths == 0 {
        return host;
    }
    let host = host.unwrap_or_else(none);
    let work_percent = host.work_percent.map(|percent| percent * (100 + hundredths) / 100);
    Some(Host { work_percent, ..host })
}

/// What a case's run on the model left, or that the machine came to its end there, in words. Whatever else ends a run is
/// nothing that a case waits for.
fn made<T>(
    name: &str,
    ran: Result<(Record, T), RunError>,
) -> Result<Result<Record, String>, ExecuteError> {
    match ran {
        Ok((record, _)) => Ok(Ok(record)),
        Err(error @ RunError::Halted { .. }) => Ok(Err(format!("the model's run: {error}"))),
        Err(error) => Err(ExecuteError::Run { name: name.to_owned(), error }),
    }
}

fn zoneinfo_of(snapshot: &Snapshot) -> Result<Zoneinfo, InputError> {
    let text = snapshot.files.get("zoneinfo").map_or(&[][..], Vec::as_slice);
    Zoneinfo::parse("zoneinfo", text).map_err(|e| InputError::other(e.to_string()))
}

/// The frames of each zone that hold what the kernel had unpacked into tmpfs when it started, in the order in which it
/// took them: as many as it counts there.
///
/// A kernel that fills memory from the bottom takes what its own tables left of pageblocks first, which lie at either end
/// ([`at_the_other_end`]).
/// Departs: files of ramfs are not told apart from others. Visible as: on 3.x they are in memory twice, 1.5 MiB in all.
fn what_was_unpacked(
    table: &Zoneinfo,
    memory: &Memory,
    rootfs: Rootfs,
    filled: FilledFrom,
) -> Vec<Vec<Pfn>> {
    if rootfs == Rootfs::Ramfs {
        return vec![Vec::new(); memory.zones.len()];
    }
    let of_node = |node| table.node_stats(node).and_then(|of| of.get("nr_shmem")).unwrap_or(0);
    let mut left: BTreeMap<u32, u64> =
        table.zones.iter().map(|zone| (zone.node, of_node(zone.node))).collect();
    let nodes = left.len();
    let zones = 0..memory.zones.len();
    let unpacked = zones.map(|at| {
        let (node, kind) = (memory.zones[at].node.0, memory.zones[at].kind);
        let counters = table.zone(node, kind.name()).map(|zone| &zone.counters);
        let count = |name: &str| counters.and_then(|counters| counters.get(name)).unwrap_or(0);
        let listed = count("nr_zone_inactive_anon") + count("nr_zone_active_anon");
        let left = left.entry(node).or_default();
        // By zone before 4.8; since then a zone tells how much of its node's lists it has.
        let pages = count("nr_shmem").max(listed.min(*left));
        *left = left.saturating_sub(pages);
        let zone = ZoneId(at as u8);
        let of_type = |from| pages_in_use(memory, zone, Migratetype::Movable, from);
        match filled {
            FilledFrom::Top => of_type(FilledFrom::Top).take(pages as usize).collect(),
            FilledFrom::Bottom => {
                let last = at_the_other_end(pages, nodes) as usize;
                let first = of_type(FilledFrom::Bottom).take(pages as usize - last);
                let mut taken: Vec<Pfn> = first.collect();
                // Where fewer are in use than the kernel counts, none is taken twice.
                let behind = taken.last().copied();
                let is_left = |pfn: &Pfn| behind.is_none_or(|behind| *pfn > behind);
                taken.extend(of_type(FilledFrom::Top).take_while(is_left).take(last));
                taken
            }
        }
    });
    unpacked.collect()
}

/// How many pages of those that were unpacked lie at the end that is filled last: in a guest of one node a part of one
/// pageblock, 291 of 1413 pages in the recording of 6.12's `churn`; in one of two nodes, where more pageblocks are shared
/// with tables, 902 of 1409 pages in that of `fragslab`, about as much of each.
fn at_the_other_end(pages: u64, nodes: usize) -> u64 {
    if nodes == 1 { pages.min(291) } else { pages * 64 / 100 }
}

/// Frees as many frames in use of each zone as the set-up had taken there, those that lie nearest to what is free, for it
/// came last: what it did is done anew. Pages of programs and files are taken from movable pageblocks, those of slab caches
/// from reclaimable ones.
/// What remains in use are the kernel's pages and the programs'.
///
/// Departs: which slab pages were there before the set-up is not told. All reclaimable ones go if it fills caches, those of
/// [`FILE_CACHES`] if it leaves files. Visible as: what boot had left in them, about 2 MiB or a tenth of that, is free.
fn free_what_setup_took(
    (snapshot, table): (&Snapshot, &Zoneinfo),
    memory: &mut Memory,
    setup: &Script,
    unpacked: &[Vec<Pfn>],
    filled: FilledFrom,
) -> Result<(), InputError> {
    let mut names: Vec<&str> = Vec::new();
    if setup.leaves_files() {
        names.extend(["inactive_file", "active_file"]);
    }
    if setup.holds_memory() {
        names.extend(["inactive_anon", "active_anon"]);
    }
    // Counted by node since 4.13 (385386cff4c6): of each node's zones the first has to give what it can.
    let of_node = |node: u32| table.node_stats(node)?.get("nr_slab_reclaimable");
    let share = slab_share(snapshot, setup, table)?;
    let part = |pages: u64| (pages as f64 * share).round() as u64;
    let nodes = table.zones.iter().map(|zone| zone.node);
    let mut slab_of_nodes: BTreeMap<u32, u64> =
        nodes.filter_map(|node| Some((node, part(of_node(node)?)))).collect();
    for (at, stays) in unpacked.iter().enumerate() {
        let (node, kind) = (memory.zones[at].node.0, memory.zones[at].kind);
        let found = table.zone(node, kind.name());
        let count = |name: &str| found.and_then(|zone| zone.counters.get(name));
        // Lists were by zone before 4.8, and zones still count what lists of nodes have of them.
        let on_list = |name: &&str| {
            count(&format!("nr_zone_{name}")).or_else(|| count(&format!("nr_{name}"))).unwrap_or(0)
        };
        let mut pages: u64 = names.iter().map(on_list).sum();
        if setup.holds_memory() {
            pages = pages.saturating_sub(stays.len() as u64);
        }
        let zone = ZoneId(at as u8);
        free_in_use(memory, zone, (Migratetype::Movable, pages), filled, stays);
        let by_zone = count("nr_slab_reclaimable").map(part);
        let slab = by_zone.unwrap_or_else(|| slab_of_nodes.get(&node).copied().unwrap_or(0));
        let freed = free_in_use(memory, zone, (Migratetype::Reclaimable, slab), filled, &[]);
        if let Some(left) = slab_of_nodes.get_mut(&node) {
            *left = left.saturating_sub(freed);
        }
    }
    Ok(())
}

/// Slab caches that little else fills than files of a disk, in the page cache or open: heads of buffers, nodes of the trees
/// that find pages, inodes.
const FILE_CACHES: [&str; 4] = ["buffer_head", "radix_tree_node", "ext4_inode_cache", "xfs_inode"];

/// How much of what reclaimable slab caches hold the set-up put there, from 0 to 1: all where it fills caches, what the
/// caches of files hold where it leaves files.
fn slab_share(snapshot: &Snapshot, setup: &Script, zoneinfo: &Zoneinfo) -> Result<f64, InputError> {
    if setup.loads_slab() {
        return Ok(1.0);
    }
    let Some(text) = snapshot.files.get("slabinfo").filter(|_| setup.leaves_files()) else {
        return Ok(0.0);
    };
    let caches = Slabinfo::parse("slabinfo", text).map_err(|e| InputError::other(e.to_string()))?;
    let of_files = caches.caches.iter().filter(|cache| FILE_CACHES.contains(&cache.name.as_str()));
    let of_files: u64 =
        of_files.map(|cache| cache.num_slabs.saturating_mul(cache.pagesperslab)).sum();
    let counts = zoneinfo.zones.iter().map(|zone| &zone.counters);
    let counts = counts.chain(zoneinfo.zones.iter().filter_map(|zone| zone.node_stats.as_ref()));
    let all: u64 = counts.filter_map(|counters| counters.get("nr_slab_reclaimable")).sum();
    Ok(of_files.min(all) as f64 / all.max(1) as f64)
}

/// The pages in use that lie in a zone's pageblocks of this type, from one end.
fn pages_in_use(
    memory: &Memory,
    zone: ZoneId,
    migratetype: Migratetype,
    from: FilledFrom,
) -> impl Iterator<Item = Pfn> {
    let (start, end) = (memory.zones[zone.index()].start, memory.zones[zone.index()].end);
    let at = move |index: u32| match from {
        FilledFrom::Bottom => Pfn(start.0 + index),
        FilledFrom::Top => Pfn(end.0 - 1 - index),
    };
    (0..end.0 - start.0).map(at).filter(move |&pfn| {
        let frames = memory.frames();
        let is_page = frames.state(pfn) == State::Allocated && frames.order(pfn) == Order(0);
        is_page && memory.block_type(pfn) == migratetype
    })
}

/// Frees the pages in use that were handed out last in pageblocks of this type, so many at most, but for those that stay, and
/// says how many they were. They are freed from the lowest one on, as boot does.
fn free_in_use(
    memory: &mut Memory,
    zone: ZoneId,
    (migratetype, pages): (Migratetype, u64),
    filled: FilledFrom,
    stays: &[Pfn],
) -> u64 {
    let stays: BTreeSet<Pfn> = stays.iter().copied().collect();
    let in_use = pages_in_use(memory, zone, migratetype, filled.other());
    let mut taken: Vec<Pfn> =
        in_use.filter(|pfn| !stays.contains(pfn)).take(pages as usize).collect();
    taken.sort_unstable();
    for &pfn in &taken {
        memory.free_to_buddy(zone, pfn, Order(0), FreeTo::Policy);
    }
    taken.len() as u64
}

/// A fresh run of a real kernel in a guest, and the model's of the same experiment.
#[derive(Debug)]
pub struct Live {
    /// The guest's target, kernel and threads.
    pub name: String,
    /// Each figure that either of them has.
    pub rows: Vec<Row>,
}

/// Runs an experiment's first variant on a kernel in a guest and, under the kernel file of that kernel's
/// release, or under `kernel`, on the model; both from the machine's boot. `store` keeps the records.
///
/// # Errors
/// No such experiment, image or kernel file; or a run failed.
pub fn live(
    experiment: &str,
    target: &Target,
    kernel: Option<&KernelFile>,
    options: &RealOptions,
    workers: NonZeroUsize,
    store: &Store,
) -> Result<Vec<Live>, Failed> {
    let mut experiment = Experiment::load(experiment)?;
    experiment.variants.truncate(1);
    let run = |experiment: &Experiment, target: &Target| -> Result<Vec<Record>, Failed> {
        let plan = experiment.plan_on(std::slice::from_ref(target), Scale::FULL, options)?;
        plan.execute(store, workers, &())?;
        let records = plan.records(store).map_err(ExecuteError::from)?;
        Ok(records.into_iter().flatten().collect())
    };
    let real = run(&experiment, target)?;
    let release = real.first().and_then(|record| record.inputs.kernel.values.get("kernel"));
    let release = release.map(String::as_str).unwrap_or_default();
    experiment.variants[0].kernel = match kernel {
        Some(kernel) => kernel.clone(),
        None => KernelFile::for_release(release)?,
    };
    let model = run(&experiment, &Target::Model)?;
    let threads = |record: &Record| record.inputs.workload.values.get("threads").cloned();
    let pairs = real.iter().filter_map(|real| {
        let model = model.iter().find(|model| threads(model) == threads(real))?;
        let threads = threads(real).unwrap_or_default();
        let name = format!("{target} {} threads {threads}", experiment.name);
        Some(Live { name, rows: compare(real, &[model], None) })
    });
    Ok(pairs.collect())
}

/// The folders in `folder` that are cases, by name.
///
/// # Errors
/// The folder cannot be read, or holds none.
pub fn case_folders(folder: &Path) -> Result<Vec<PathBuf>, InputError> {
    let unreadable =
        |error: std::io::Error| InputError::file(folder, format!("cannot read: {error}"));
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.join("case.json").is_file() && path.join("before/vmstat").is_file() {
            cases.push(path);
        }
    }
    cases.sort();
    if cases.is_empty() {
        let message = "no folder with case.json and before/vmstat in it, expected recorded cases";
        return Err(InputError::file(folder, message));
    }
    Ok(cases)
}

/// Cases that were compared, with their settings and rows.
#[derive(Clone, Debug)]
pub struct Judged<'a> {
    /// Its name.
    pub name: String,
    /// The kernel's release.
    pub kernel: String,
    /// What it is about but for its kernel and its settings.
    pub work: String,
    /// Settings.
    pub settings: BTreeMap<String, String>,
    /// What was compared.
    pub rows: &'a [Row],
}

impl Judged<'_> {
    /// A figure of a case, real and modelled, if it has a row.
    fn pair(&self, name: &str) -> Option<(f64, f64)> {
        self.rows.iter().find(|row| row.name == name).map(|row| (row.real, row.model))
    }

    /// A figure of a case, real and modelled. A counter that has no row here, though it has one in another case of the same
    /// kernel, did not rise on either side; of other figures nothing is known then.
    fn figure(&self, like: &Row) -> Option<(f64, f64)> {
        let nothing = (like.quantity == Quantity::Counter).then_some((0.0, 0.0));
        self.pair(&like.name).or(nothing)
    }
}

/// The middle of all relative errors; `None` without any.
#[must_use]
pub fn median_relative_error<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Option<f64> {
    median(&mut rows.into_iter().map(|row| row.relative_error).collect::<Vec<f64>>())
}

/// The median, where there are any; they are in order afterwards.
pub(crate) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        nr if nr.is_multiple_of(2) => Some(values[middle - 1].midpoint(values[middle])),
        _ => Some(values[middle]),
    }
}

/// A difference between two real runs that counts: of more than a tenth, and more than the floor.
fn differs(a: f64, b: f64, floor: f64) -> bool {
    (a - b).abs() > floor.max(0.1 * a.abs().max(b.abs()))
}

/// How often the model puts two cases in the same order as the real kernel does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderAgreement {
    /// How often it does.
    pub agree: u64,
    /// Of how many.
    pub pairs: u64,
}

impl OrderAgreement {
    /// As a share; none of none.
    #[must_use]
    pub fn share(self) -> Option<f64> {
        (self.pairs > 0).then(|| self.agree as f64 / self.pairs as f64)
    }
}

/// Whether the settings come in the same order, for cases that differ in one setting: figure by figure where
/// the real ones differ beyond what repeats of the work do, those of one name or all.
#[must_use]
pub fn order_agreement(
    judged: &[Judged<'_>],
    noise: &Noise<'_>,
    name: Option<&str>,
) -> OrderAgreement {
    let mut all = OrderAgreement::default();
    for (i, a) in judged.iter().enumerate() {
        for b in &judged[i + 1..] {
            if (&a.kernel, &a.work) != (&b.kernel, &b.work)
                || nr_differences(&a.settings, &b.settings) != 1
            {
                continue;
            }
            let wanted = |row: &&Row| name.is_none_or(|name| name == row.name);
            for row in repeats::figures(&[a, b]).filter(wanted) {
                let (Some((real_a, model_a)), Some((real_b, model_b))) =
                    (a.figure(row), b.figure(row))
                else {
                    continue;
                };
                if noise.is_exceeded(&a.work, row, real_a, real_b) {
                    all.pairs += 1;
                    let real = real_a.total_cmp(&real_b);
                    all.agree += u64::from(model_a.total_cmp(&model_b) == real);
                }
            }
        }
    }
    all
}

fn nr_differences(a: &BTreeMap<String, String>, b: &BTreeMap<String, String>) -> usize {
    let mut names: Vec<&String> = a.keys().chain(b.keys()).collect();
    names.sort();
    names.dedup();
    names.into_iter().filter(|name| a.get(*name) != b.get(*name)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(counter: &str, real: f64, model: f64) -> Row {
        Row::new(Quantity::Counter, counter, real, model, 512.0)
    }

    #[test]
    fn order_is_judged_between_cases_that_differ_in_one_setting() {
        let settings = |swappiness: &str, page_cluster: &str| {
            [("vm.swappiness", swappiness), ("vm.page-cluster", page_cluster)]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into()
        };
        let rows = [
            [row("pswpout", 10_000.0, 9_000.0), row("pgfault", 100.0, 300.0)],
            [row("pswpout", 20_000.0, 8_000.0), row("pgfault", 150.0, 200.0)],
            [row("pswpout", 5_000.0, 500.0), row("pgfault", 100.0, 100.0)],
        ];
        let judged = |i: usize, swappiness: &str, page_cluster: &str| Judged {
            name: String::new(),
            kernel: "6.12".to_owned(),
            work: "usemem".to_owned(),
            settings: settings(swappiness, page_cluster),
            rows: &rows[i],
        };
        let cases = [judged(0, "60", "3"), judged(1, "100", "3"), judged(2, "0", "0")];
        // pgfault differs by less than its floor; the third differs from the others in two settings.
        let agreement = |agree, pairs| OrderAgreement { agree, pairs };
        assert_eq!(order_agreement(&cases, &Noise::of(&cases), None), agreement(0, 1));
        assert_eq!(order_agreement(&cases, &Noise::of(&cases), Some("pswpout")), agreement(0, 1));
        assert_eq!(order_agreement(&cases, &Noise::of(&cases), Some("pgfault")), agreement(0, 0));
        assert_eq!(agreement(0, 0).share(), None);
        let mut without = judged(1, "0", "3");
        without.rows = &rows[1][1..];
        let agreed = [judged(0, "60", "3"), without];
        assert_eq!(order_agreement(&agreed, &Noise::of(&agreed), None), agreement(1, 1), "no swap");
        let cases = [judged(0, "60", "3"), judged(2, "0", "3")];
        assert_eq!(order_agreement(&cases, &Noise::of(&cases), None), agreement(1, 1));
        assert_eq!(median_relative_error([]), None);
        let errors = [0.1, 200.0 / 512.0, 0.9, 0.0];
        let mut sorted = errors;
        sorted.sort_by(f64::total_cmp);
        let rows = cases.iter().flat_map(|case| case.rows);
        assert_eq!(median_relative_error(rows), Some((sorted[1] + sorted[2]) / 2.0));
    }

    #[test]
    fn each_run_has_cpus_that_are_slower_by_a_hundredth() {
        let host = Host {
            work_percent: ByBusy::new(&[136, 200]),
            flush_wait: ByBusy::new(&[Ns(3)]),
            access_wait: ByBusy::new(&[Ns(4)]),
        };
        assert_eq!(slower(Some(host), 0), Some(host));
        assert_eq!(slower(None, 0), None);
        let second = slower(Some(host), 2).unwrap();
        assert_eq!([1, 2, 8].map(|busy| second.work_percent.at(busy)), [138, 204, 204]);
        assert_eq!((second.flush_wait, second.access_wait), (host.flush_wait, host.access_wait));
        let alone = slower(None, 1).unwrap();
        assert_eq!((alone.work_percent.at(4), alone.access_wait.at(4)), (101, Ns::ZERO));
    }

    #[test]
    fn no_case_waits_for_a_fault_of_the_model() {
        let at = Ns::from_secs(1);
        let of = |error| made::<()>("churn", Err(error));
        let halted = of(RunError::Halted { at, message: "no memory is left".to_owned() });
        assert!(halted.unwrap().unwrap_err().contains("no memory is left"));
        for fault in [
            RunError::Panicked { task: "kswapd0".to_owned(), at, message: "a bug".to_owned() },
            RunError::Deadlock { at, waiting: Vec::new() },
            RunError::Livelock { at, tasks: vec!["kswapd0".to_owned()] },
        ] {
            let told = format!("run churn: {fault}");
            assert_eq!(of(fault).unwrap_err().to_string(), told);
        }
    }

    #[test]
    fn costs_are_those_of_a_guest_with_such_a_kernel_and_cpu() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/cases");
        for (name, machine) in [
            ("34-usemem80-hint-madvise", "guest-tcg-qemu64"),
            ("44-usemem80-stream-never", "guest-tcg-lean"),
            ("612-fragmenter-2node-boost15000", "guest-tcg"),
        ] {
            assert_eq!(Case::read(&folder.join(name)).unwrap().guest_machine(), machine);
        }
    }

    #[test]
    fn what_tmpfs_held_is_known_and_what_ramfs_held_is_not() {
        use highorder_mm::types::NodeId;
        let cases = [
            ("34-usemem80-hint-madvise", "linux-3.4", vec![NodeId(0); 2], 0),
            ("44-usemem80-stream-never", "linux-4.4", vec![NodeId(0); 2], 1185),
            (
                "612-fragmenter-2node-boost15000",
                "linux-6.12",
                vec![NodeId(0), NodeId(0), NodeId(1), NodeId(1)],
                1037,
            ),
        ];
        for (name, kernel, cpus, pages) in cases {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/cases");
            let options = Options {
                way: Way::Counts,
                proc: folder.join(name).join("before"),
                sys: folder.join(name).join("sys"),
                ..Options::default()
            };
            let snapshot = highorder_snapshot::live::take(options).unwrap();
            let kernel = KernelFile::load(kernel).unwrap();
            let mut memory = crate::machine::restore(&snapshot, &kernel, &cpus).unwrap();
            let free = |memory: &Memory| -> u64 {
                memory.zones.iter().map(|zone| zone.nr_free_pages).sum()
            };
            let before = free(&memory);
            let filled = crate::machine::filled_from(&kernel);
            let rootfs = kernel.flows.files.rootfs;
            let zoneinfo = zoneinfo_of(&snapshot).unwrap();
            let unpacked = what_was_unpacked(&zoneinfo, &memory, rootfs, filled);
            assert_eq!(unpacked.iter().map(Vec::len).sum::<usize>() as u64, pages, "{name}");
            // The set-up's pages go, and these stay where they were.
            for (at, stays) in unpacked.iter().enumerate() {
                let all = (Migratetype::Movable, u64::MAX);
                free_in_use(&mut memory, ZoneId(at as u8), all, filled, stays);
                let left = pages_in_use(&memory, ZoneId(at as u8), Migratetype::Movable, filled);
                assert_eq!(
                    left.collect::<BTreeSet<_>>(),
                    stays.iter().copied().collect(),
                    "{name}"
                );
            }
            let free_of_setup = free(&memory);
            unpacked.iter().flatten().for_each(|&pfn| memory.restore_free_page(pfn));
            assert!(free_of_setup > before, "{name}");
            assert_eq!(free(&memory) - free_of_setup, pages, "{name}");
        }
    }
}
