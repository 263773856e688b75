//! Takes a recording of the running kernel.
//!
//! The states before and after are copied while the events are traced; a mark among the events says at which moment
//! each held. A second thread takes the events out of the buffers, and only while one of them is filling: never up to
//! the events that are being written, so that they come in the order of their times.
//!
//! Overhead is measured, in two parts: the CPU time of this process, and what an event costs the kernel, which is told
//! by faults that are timed once with the events on and once with them off, before the recording begins.
//!
//! Departs: what the recorder itself allocates is among the events, as it is among the pages. Both states are kept in
//! memory until they are packed: some 24 bytes for each page of the machine.

use crate::lines::{Cleaner, Keep, VMEMMAP_BASE};
use crate::tracefs::{BufferStats, Instance, Pipe, TraceError, Tracefs};
use highorder_files::{Destination, WriteError};
use highorder_input::InputError;
use highorder_snapshot::recording_file::{self, Content};
use highorder_snapshot::{Exactness, Snapshot, live};
use highorder_system::knobs;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// What is traced: single events, and subsystems of events.
pub const EVENTS: [&str; 11] = [
    "kmem/mm_page_alloc",
    "kmem/mm_page_free",
    "kmem/mm_page_free_batched",
    "kmem/mm_page_alloc_zone_locked",
    "kmem/mm_page_pcpu_drain",
    "kmem/mm_page_alloc_extfrag",
    "compaction",
    "vmscan",
    "migrate",
    "huge_memory",
    "oom",
];
/// The mark at which a state holds.
const LISTS_COPIED: &str = "lists_copied";
/// How often the buffers are looked at. A choice of ours: at a million events a second a CPU's has 4 MB more then.
const DRAIN_EVERY: Duration = Duration::from_millis(100);
/// How often a signal and the end are looked for.
const TICK: Duration = Duration::from_millis(50);
/// Events are taken out while a CPU's buffer is fuller than one part of these, down to half of that.
const FULL_PARTS: u64 = 4;
/// Memory for all buffers, unless it is given: a part of the machine's, and no more than [`BUFFER_MOST`].
const BUFFER_PART: u64 = 32;
const BUFFER_MOST: u64 = 256 << 20;
/// Least memory for a CPU's buffer.
const BUFFER_LEAST_KIB: u64 = 1024;
/// Chosen by speed: it packs some 300 MB of events a second to a tenth.
const ZSTD_LEVEL: i32 = 1;
/// Pages touched to measure what an event costs, and how often.
const COST_PAGES: usize = 256;
const COST_ROUNDS: usize = 8;
const PAGE: usize = 4096;
/// Of a shorter time no share is told: the events of the states, which are no part of it, are most of its events. Our choice,
/// the shortest recording that can be asked for.
const SHARE_LEAST_S: f64 = 0.1;
/// Writing to these does something; reading them tells nothing.
const ACTIONS: [&str; 3] = ["vm.compact_memory", "vm.drop_caches", "vm.stat_refresh"];
/// The architecture that the model is of.
const ARCHITECTURE: &str = "x86_64";

/// What to record.
pub struct Options<'a> {
    /// How long, in seconds between the states.
    pub seconds: f64,
    /// What is left in of names and numbers.
    pub keep: Keep,
    /// Memory for all buffers, in bytes.
    pub buffer_bytes: Option<u64>,
    /// The command line, for `case.json`.
    pub command: String,
    /// Whether to end early; asked often.
    pub stop: &'a (dyn Fn() -> bool + Sync),
}

/// Why there is no recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The kernel does not trace for us.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The memory's state cannot be read.
    #[error(transparent)]
    State(#[from] InputError),
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Where pages lie cannot be known here.
    #[error(
        "a recording needs to know where pages lie, expected /proc/kcore or /proc/kpageflags to be readable: {0}"
    )]
    CountsAlone(String),
    /// The events could not be kept.
    #[error("events: {0}")]
    Events(io::Error),
}

/// What it cost to record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overhead {
    /// CPU time of the recorder between the states, in seconds.
    pub recorder_s: f64,
    /// CPU time of the recorder for the states and for the events that were left in the buffers, in seconds.
    pub around_s: f64,
    /// What an event cost the kernel, in nanoseconds; `None` where that is below what can be measured.
    pub event_ns: Option<f64>,
    /// Memory of the buffers, in bytes.
    pub buffer_bytes: u64,
}

impl Overhead {
    /// The share of all CPUs' time that recording took between the states; none of a time that is too short for that.
    #[must_use]
    pub fn share(&self, nr_events: u64, seconds: f64, nr_cpus: usize) -> Option<f64> {
        let events_s = self.event_ns.unwrap_or(0.0) * nr_events as f64 / 1e9;
        (seconds >= SHARE_LEAST_S)
            .then(|| (self.recorder_s + events_s) / (seconds * nr_cpus as f64))
    }
}

/// A recording as it was made.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The release of the kernel.
    pub release: String,
    /// How exact the states are.
    pub exactness: Exactness,
    /// How long it took from state to state, in seconds.
    pub seconds: f64,
    /// Events that were recorded.
    pub nr_events: u64,
    /// Events that were lost.
    pub nr_lost: u64,
    /// What is to be known of it, a sentence each.
    pub notes: Vec<String>,
    /// What it cost.
    pub overhead: Overhead,
    /// CPUs of the machine.
    pub nr_cpus: usize,
    /// Bytes of the file.
    pub file_bytes: u64,
}

/// Records the running kernel into a file.
///
/// # Errors
/// Any [`RecordError`]; nothing is left of it then, neither in tracefs nor of the file.
pub fn record(destination: &Destination, options: &Options<'_>) -> Result<Recorded, RecordError> {
    let tracefs = Tracefs::find()?;
    // So that memory and code are there when it counts.
    let warm = live::take(live::Options::default())?;
    if warm.exactness == Exactness::Counts {
        return Err(RecordError::CountsAlone(warm.inferred.join("; ")));
    }
    let vmemmap_base = warm.vmemmap_base;
    drop(warm);
    let instance = Instance::new(tracefs)?;
    let setup = set_up(&instance, options)?;
    let taken = take(&instance, &setup, destination, vmemmap_base, options)?;
    let stats = instance.stats_by_cpu();
    let counts = instance.stats();
    let nr_cpus = instance.nr_cpus();
    instance.remove()?;

    let Taken { mut before, mut after, seconds, timeline, events, recorder_s, around_s } = taken;
    let mut notes = setup.notes;
    if counts.nr_lost > 0 {
        let mib = setup.buffer_bytes >> 20;
        let lost = counts.nr_lost;
        notes.push(format!("{lost} events were lost: buffers of {mib} MiB were full"));
    }
    if seconds + 1.0 < options.seconds {
        notes.push(format!("it was ended after {seconds:.1} s of {} s", options.seconds));
    }
    if before.exactness == Exactness::Frames {
        let why = before.inferred.first().cloned().unwrap_or_default();
        notes.push(format!("the states do not know the order of lists: {why}"));
    }
    if !options.keep.numbers {
        make_anonymous(&mut before);
        make_anonymous(&mut after);
    }
    let release = before.kernel_release.clone().unwrap_or_default();
    let overhead = Overhead {
        recorder_s,
        around_s,
        event_ns: setup.event_ns,
        buffer_bytes: setup.buffer_bytes,
    };
    let mut recorded = Recorded {
        release,
        exactness: before.exactness,
        seconds,
        nr_events: events.nr,
        nr_lost: counts.nr_lost,
        notes,
        overhead,
        nr_cpus,
        file_bytes: 0,
    };
    let label = destination.name().display().to_string();
    let case = case(&recorded, &setup.missing, options);
    let mut sections = BTreeMap::from([
        ("state0.snapshot".to_owned(), Content::Bytes(before.to_bytes(&label)?)),
        ("state1.snapshot".to_owned(), Content::Bytes(after.to_bytes(&label)?)),
        ("trace.txt.zst".to_owned(), Content::File(events.packed)),
        ("timeline.zst".to_owned(), Content::Bytes(pack(timeline.as_bytes())?)),
        ("settings".to_owned(), Content::Bytes(settings(Path::new("/")).into_bytes())),
        ("case.json".to_owned(), Content::Bytes(format!("{case:#}\n").into_bytes())),
    ]);
    if let Ok(swaps) = fs::read("/proc/swaps") {
        sections.insert("swaps".to_owned(), Content::Bytes(swaps));
    }
    for (cpu, text) in stats {
        sections.insert(format!("stats/{cpu}"), Content::Bytes(text.into_bytes()));
    }
    recorded.file_bytes = recording_file::write(destination, &mut sections)?;
    Ok(recorded)
}

fn pack(bytes: &[u8]) -> Result<Vec<u8>, RecordError> {
    zstd::encode_all(bytes, 0).map_err(RecordError::Events)
}

/// How the instance is set up.
struct Setup {
    buffer_bytes: u64,
    event_ns: Option<f64>,
    /// Events of [`EVENTS`] that the kernel lacks.
    missing: Vec<&'static str>,
    notes: Vec<String>,
}

fn set_up(instance: &Instance, options: &Options<'_>) -> Result<Setup, RecordError> {
    let mut notes = Vec::new();
    if std::env::consts::ARCH != ARCHITECTURE {
        let found = std::env::consts::ARCH;
        notes.push(format!(
            "recorded on {found}, the model is of {ARCHITECTURE}: zones, pageblocks and costs may differ"
        ));
    }
    let page = rustix::param::page_size();
    if page != PAGE {
        notes.push(format!("a page has {page} bytes there, {PAGE} in the model"));
    }
    // One order of all CPUs' events.
    if instance.set("trace_clock", "global").is_err() {
        notes.push(
            "the kernel has no global trace clock: events of two CPUs may stand in a wrong order"
                .into(),
        );
    }
    let nr_cpus = instance.nr_cpus() as u64;
    let wanted = options.buffer_bytes.unwrap_or_else(|| {
        let system = rustix::system::sysinfo();
        let memory = system.totalram as u64 * u64::from(system.mem_unit);
        (memory / BUFFER_PART).min(BUFFER_MOST)
    });
    let kib_wanted = (wanted / 1024 / nr_cpus).max(BUFFER_LEAST_KIB);
    let kib = buffers(instance, kib_wanted)?;
    if kib < kib_wanted {
        let [got, asked] = [kib, kib_wanted].map(|kib| kib * nr_cpus / 1024);
        notes.push(format!("buffers have {got} MiB: for {asked} MiB the kernel had no memory"));
    }
    let mut missing = Vec::new();
    for event in EVENTS {
        if !instance.enable(event)? {
            missing.push(event);
            notes.push(format!("this kernel has no event {event}"));
        }
    }
    if let Err(error) = instance.probe_isolation() {
        notes
            .push(format!("what compaction takes off free lists is not among the events: {error}"));
    }
    let event_ns = event_cost(instance)?;
    Ok(Setup { buffer_bytes: kib * 1024 * nr_cpus, event_ns, missing, notes })
}

/// Gives each CPU a buffer of so many KiB, or of half as many as often as the kernel has no memory for that: a machine
/// that is recorded may have little. What it has got.
fn buffers(instance: &Instance, wanted_kib: u64) -> Result<u64, TraceError> {
    let mut kib = wanted_kib;
    loop {
        match instance.set("buffer_size_kb", &kib.to_string()) {
            Err(error) if error.is_out_of_memory() && kib / 2 >= BUFFER_LEAST_KIB => kib /= 2,
            other => return other.map(|()| kib),
        }
    }
}

/// What an event costs the kernel, in nanoseconds: faults with the events on and off, the fastest rounds of each.
fn event_cost(instance: &Instance) -> Result<Option<f64>, RecordError> {
    let len = COST_PAGES * PAGE;
    let io = |error: rustix::io::Errno| RecordError::Events(error.into());
    // SAFETY: a mapping of our own, used below by nobody else, and not after it is unmapped.
    #[allow(
        unsafe_code,
        reason = "memory that can be given back page by page has no safe interface"
    )]
    let round = || -> Result<f64, RecordError> {
        unsafe {
            let flags = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            let memory = mmap_anonymous(std::ptr::null_mut(), len, flags.0, flags.1).map_err(io)?;
            // Base pages, so that each fault has its own events.
            let _ = madvise(memory, len, Advice::LinuxNoHugepage);
            let start = thread_cpu_s();
            for page in 0..COST_PAGES {
                memory.cast::<u8>().add(page * PAGE).write_volatile(1);
            }
            munmap(memory, len).map_err(io)?;
            Ok(thread_cpu_s() - start)
        }
    };
    let fastest = |is_on: bool| -> Result<f64, RecordError> {
        instance.set("tracing_on", if is_on { "1" } else { "0" })?;
        let mut fastest = f64::INFINITY;
        for _ in 0..COST_ROUNDS {
            fastest = fastest.min(round()?);
        }
        Ok(fastest)
    };
    let without = fastest(false)?;
    let with = fastest(true)?;
    instance.set("tracing_on", "0")?;
    let BufferStats { nr_entries, nr_lost, .. } = instance.stats();
    // What was traced is none of the recording.
    instance.set("trace", "")?;
    let per_round = (nr_entries + nr_lost) as f64 / COST_ROUNDS as f64;
    Ok(Some(1e9 * (with - without) / per_round).filter(|ns| ns.is_finite() && *ns > 0.0))
}

fn thread_cpu_s() -> f64 {
    seconds_of(ClockId::ThreadCPUTime)
}

fn seconds_of(clock: ClockId) -> f64 {
    let now = clock_gettime(clock);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// What was taken between the first mark and the last event.
struct Taken {
    before: Snapshot,
    after: Snapshot,
    seconds: f64,
    timeline: String,
    events: Events,
    recorder_s: f64,
    around_s: f64,
}

/// Events as they were read, packed.
struct Events {
    nr: u64,
    packed: File,
}

fn take(
    instance: &Instance,
    setup: &Setup,
    destination: &Destination,
    vmemmap_base: Option<u64>,
    options: &Options<'_>,
) -> Result<Taken, RecordError> {
    let mut marker = instance.marker()?;
    let pipe = instance.pipe()?;
    let folder = scratch_folder(destination);
    let packed = tempfile::tempfile_in(&folder).map_err(RecordError::Events)?;
    let packing =
        zstd::stream::write::Encoder::new(packed, ZSTD_LEVEL).map_err(RecordError::Events)?;
    let cleaner = Cleaner::new(options.keep, vmemmap_base);
    let mut drain = Drain { pipe, cleaner, packing, nr: 0, part: Vec::new(), out: Vec::new() };
    let nr_cpus = instance.nr_cpus() as u64;
    let full_bytes = setup.buffer_bytes / nr_cpus / FULL_PARTS;
    let is_done = AtomicBool::new(false);

    let cpu_before = seconds_of(ClockId::ProcessCPUTime);
    instance.set("tracing_on", "1")?;
    let (states, drained) = thread::scope(|scope| {
        let drainer = scope.spawn(|| -> io::Result<()> {
            while !is_done.load(Ordering::Relaxed) {
                thread::sleep(DRAIN_EVERY);
                drain.while_filling(instance, full_bytes, &is_done)?;
            }
            Ok(())
        });
        // The reader is waited for, also where this thread panics.
        let done = SetAtTheEnd(&is_done);
        let states = states(&mut marker, options);
        // What comes later is none of the recording.
        let ended = instance.set("tracing_on", "0");
        drop(done);
        let drained =
            drainer.join().unwrap_or_else(|_| Err(io::Error::other("the reader panicked")));
        (states.and_then(|states| Ok(ended.map(|()| states)?)), drained)
    });
    let States { before, after, seconds, timeline, recorder_s } = states?;
    drained.map_err(RecordError::Events)?;
    let events = drain.finish().map_err(RecordError::Events)?;
    let around_s = seconds_of(ClockId::ProcessCPUTime) - cpu_before - recorder_s;
    Ok(Taken { before, after, seconds, timeline, events, recorder_s, around_s })
}

/// Becomes true when this is dropped.
struct SetAtTheEnd<'a>(&'a AtomicBool);

impl Drop for SetAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Where what is not yet a file may lie: beside it, or with other temporary files.
fn scratch_folder(destination: &Destination) -> PathBuf {
    match destination.is_file() {
        true => match destination.name().parent() {
            Some(folder) if folder != Path::new("") => folder.to_owned(),
            _ => PathBuf::from("."),
        },
        false => std::env::temp_dir(),
    }
}

/// The states, and what was between them.
struct States {
    before: Snapshot,
    after: Snapshot,
    seconds: f64,
    timeline: String,
    recorder_s: f64,
}

/// Takes the states, so many seconds apart, and samples counters between.
fn states(marker: &mut File, options: &Options<'_>) -> Result<States, RecordError> {
    let mut timeline = String::with_capacity(1 << 20);
    mark(marker, "snap0_begin")?;
    let before = state(marker)?;
    mark(marker, "snap0_end")?;
    mark(marker, "workload_begin")?;
    let start = seconds_of(ClockId::Monotonic);
    let cpu_start = seconds_of(ClockId::ProcessCPUTime);
    let mut nr_samples = 0.0;
    let seconds = loop {
        let elapsed = seconds_of(ClockId::Monotonic) - start;
        if elapsed >= nr_samples {
            sample(elapsed, &mut timeline);
            nr_samples = elapsed.floor() + 1.0;
        }
        if elapsed >= options.seconds || (options.stop)() {
            break elapsed;
        }
        let left = Duration::from_secs_f64((options.seconds - elapsed).max(0.0));
        thread::sleep(left.min(TICK));
    };
    let recorder_s = seconds_of(ClockId::ProcessCPUTime) - cpu_start;
    mark(marker, "workload_end")?;
    mark(marker, "snap1_begin")?;
    let after = state(marker)?;
    mark(marker, "snap1_end")?;
    Ok(States { before, after, seconds, timeline, recorder_s })
}

/// A state, with a mark at the moment at which it holds.
fn state(marker: &mut File) -> Result<Snapshot, RecordError> {
    let mut marked = Ok(());
    let mut at_lists = || marked = mark(marker, LISTS_COPIED);
    let state =
        live::take(live::Options { at_lists: Some(&mut at_lists), ..live::Options::default() })?;
    marked.map(|()| state)
}

fn mark(marker: &mut File, text: &str) -> Result<(), RecordError> {
    marker.write_all(text.as_bytes()).map_err(RecordError::Events)
}

/// Adds what counters are now: `T SECONDS`, then vmstat's that are not 0, pressure, and buddyinfo.
fn sample(elapsed: f64, timeline: &mut String) {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let _ = writeln!(timeline, "T {elapsed:.3}");
    for line in read("/proc/vmstat").lines().filter(|line| !line.ends_with(" 0")) {
        let _ = writeln!(timeline, "{line}");
    }
    for line in read("/proc/pressure/memory").lines() {
        let kind = line.split(' ').next().unwrap_or_default();
        if let Some((_, total)) = line.split_once("total=") {
            let _ = writeln!(timeline, "psi_memory_{kind}_us {total}");
        }
    }
    timeline.push_str(&read("/proc/buddyinfo"));
}

/// Takes events out of the buffers, cleans them and packs them.
struct Drain {
    pipe: Pipe,
    cleaner: Cleaner,
    packing: zstd::stream::write::Encoder<'static, File>,
    nr: u64,
    /// The beginning of a line.
    part: Vec<u8>,
    out: Vec<u8>,
}

impl Drain {
    /// Reads while a CPU's buffer has as many bytes, down to half of that, or until the recording is done: events may come
    /// faster than they can be read, for ever.
    fn while_filling(
        &mut self,
        instance: &Instance,
        full_bytes: u64,
        is_done: &AtomicBool,
    ) -> io::Result<()> {
        if instance.most_bytes() < full_bytes {
            return Ok(());
        }
        while instance.most_bytes() > full_bytes / 2 && !is_done.load(Ordering::Relaxed) {
            for _ in 0..64 {
                if self.read()? == 0 {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Reads all there is; nothing comes any more.
    fn finish(mut self) -> io::Result<Events> {
        while self.read()? > 0 {}
        let packed = self.packing.finish()?;
        Ok(Events { nr: self.nr, packed })
    }

    fn read(&mut self) -> io::Result<usize> {
        let mut chunk = [0; 1 << 14];
        let len = self.pipe.read(&mut chunk)?;
        let mut rest = &chunk[..len];
        self.out.clear();
        while let Some(end) = memchr::memchr(b'\n', rest) {
            self.part.extend_from_slice(&rest[..end]);
            self.nr += u64::from(self.cleaner.line(&self.part, &mut self.out));
            self.part.clear();
            rest = &rest[end + 1..];
        }
        self.part.extend_from_slice(rest);
        self.packing.write_all(&self.out)?;
        Ok(len)
    }
}

/// Takes out of a state what tells which machine it is of.
fn make_anonymous(state: &mut Snapshot) {
    state.kernel_release = state.kernel_release.take().map(|release| plain_release(&release));
    state.vmemmap_base = state.vmemmap_base.map(|_| VMEMMAP_BASE);
    state.taken_at_s = None;
}

/// A release without what its builder added: `6.12.107+deb13-cloud-amd64` is 6.12.107.
fn plain_release(release: &str) -> String {
    let end = release.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(release.len());
    release[..end].trim_end_matches('.').to_owned()
}

fn case(recorded: &Recorded, missing: &[&str], options: &Options<'_>) -> Value {
    let Recorded { overhead, nr_events, nr_lost, .. } = recorded;
    json!({
        "kernel_release": recorded.release,
        "record": options.command,
        "seconds": recorded.seconds,
        "smp": recorded.nr_cpus,
        "architecture": std::env::consts::ARCH,
        "page_bytes": rustix::param::page_size(),
        "events": nr_events,
        "events_lost": nr_lost,
        "events_missing": missing,
        "names": options.keep.names,
        "anonymous": !options.keep.numbers,
        "overhead": {
            "recorder_cpu_s": overhead.recorder_s,
            "around_cpu_s": overhead.around_s,
            "event_ns": overhead.event_ns,
            "buffer_bytes": overhead.buffer_bytes,
        },
        "notes": recorded.notes,
        "status": "ok",
    })
}

/// Every knob that the kernel below `root` (`/` of a running machine) has: `PATH VALUE`, a line each.
pub fn settings(root: &Path) -> String {
    let mut text = String::new();
    let names = knobs::names().iter().filter(|name| !ACTIONS.contains(name));
    for path in names.flat_map(|name| knob_paths(root, name)) {
        if let Ok(value) = fs::read_to_string(&path) {
            let _ = writeln!(text, "{} {}", path.display(), value.trim());
        }
    }
    text
}

/// The files of a knob: several where a size stands in its name.
fn knob_paths(root: &Path, name: &str) -> Vec<PathBuf> {
    let (folder, parts): (_, Vec<&str>) = match name.contains('/') {
        true => ("sys/kernel/mm", name.split('/').collect()),
        false => ("proc/sys", name.split('.').collect()),
    };
    let mut paths = vec![root.join(folder)];
    for part in parts {
        paths = match part.split_once('*') {
            None => paths.iter().map(|path| path.join(part)).collect(),
            Some((before, after)) => {
                let entries =
                    paths.iter().flat_map(|path| fs::read_dir(path).into_iter().flatten());
                let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
                found.retain(|path| {
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    name.starts_with(before) && name.ends_with(after)
                });
                found.sort();
                found
            }
        };
    }
    paths.retain(|path| path.is_file());
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_told_without_its_builder() {
        assert_eq!(plain_release("6.12.107+deb13-cloud-amd64"), "6.12.107");
        assert_eq!(plain_release("6.1.0-49-cloud-amd64"), "6.1.0");
        assert_eq!(plain_release("7.1-rc3"), "7.1");
    }

    #[test]
    fn overhead_is_a_share_of_all_cpus() {
        let overhead =
            Overhead { recorder_s: 0.5, around_s: 9.0, event_ns: Some(250.0), buffer_bytes: 0 };
        assert_eq!(overhead.share(2_000_000, 10.0, 2), Some(0.05));
        let unmeasured = Overhead { event_ns: None, ..overhead };
        assert_eq!(unmeasured.share(2_000_000, 10.0, 2), Some(0.025));
        assert_eq!(overhead.share(2_000_000, 0.05, 2), None);
    }

    #[test]
    fn knobs_with_sizes_in_their_names_are_found() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("proc/sys/vm/swappiness", "60\n"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0\n"),
            ("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "1\n"),
            ("proc/sys/vm/drop_caches", "\n"),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let told = settings(root.path());
        let values: Vec<&str> =
            told.lines().filter_map(|line| line.rsplit_once('/').map(|(_, end)| end)).collect();
        assert_eq!(values, ["swappiness 60", "nr_hugepages 1", "nr_hugepages 0"], "{told}");
    }
}
