//! A thread of a workload on a real kernel.
//!
//! Departs: `join` of a process's first thread returns when the whole process is gone, as waitpid(2) does.
//! Visible as: nothing, unless a process outlives its first thread.

use super::blocks;
use super::files::files_in;
use super::memory::{self, Ask, Mappings, Range, Remembered, Unmapped};
use super::message::{Message, MetricHead};
use super::process::Process;
use crate::clock::{thread_ns, timespec};
use crate::proc;
use highorder_record::Metric;
use highorder_system::{
    Access, Advice, Area, BarrierId, BlockId, Caches, Code, CpuUse, Extent, Failure, FileId,
    KernelBlock, MachineInfo, MemPolicy, Ns, Page, Pattern, Place, System, ThreadId, ThreadSpec,
};

use rustix::process::{Resource, getrlimit};
use rustix::thread::{
    NanosleepRelativeResult, disable_transparent_huge_pages, nanosleep, sched_setaffinity,
};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// Latencies of a class that are sent at once.
const LATENCIES_MAX: usize = 512;

pub(crate) struct HostThread {
    process: Arc<Process>,
    task: u32,
    remembered: Remembered,
    latencies: BTreeMap<String, Vec<u64>>,
    /// None for those that were closed.
    files: Vec<Option<File>>,
}

/// What a system call refused, in words.
fn refused(what: &str, error: impl Into<io::Error>) -> Failure {
    let error: io::Error = error.into();
    Failure::Refused(format!("{what}: {error}"))
}

/// Why a file cannot be opened.
fn unopened(name: &str, error: io::Error) -> Failure {
    if error.raw_os_error() != Some(libc::EMFILE) {
        return refused(name, error);
    }
    let limit = getrlimit(Resource::Nofile).current.map_or("no end of".into(), |n| n.to_string());
    Failure::Refused(format!(
        "{name}: {limit} files are open, expected a process to be allowed more: raise the hard limit (`ulimit -Hn`), \
         or run as root"
    ))
}

fn range(area: Area) -> Range {
    Range { first: area.first, end: area.first.saturating_add(area.pages) }
}

impl HostThread {
    pub(crate) fn new(process: Arc<Process>, task: u32) -> Self {
        Self {
            process,
            task,
            remembered: Remembered::NOTHING,
            latencies: BTreeMap::new(),
            files: Vec::new(),
        }
    }

    /// Moves to a place.
    pub(crate) fn move_to(&mut self, place: Place) -> Result<(), Failure> {
        let cpus = self.process.world.cpus_of(place)?;
        sched_setaffinity(None, &cpus).map_err(|e| refused("sched_setaffinity", e))
    }

    /// Sends the latencies that are left.
    pub(crate) fn flush(&mut self) {
        for (class, ns) in std::mem::take(&mut self.latencies) {
            self.process.world.tell(&Message::Latencies { class, ns });
        }
    }

    fn page_bytes(&self) -> u64 {
        self.process.world.machine.page_bytes
    }

    fn check(&mut self, range: Range, what: &str) -> Result<(), Failure> {
        if self.process.mappings.has(range, &mut self.remembered) {
            return Ok(());
        }
        let Range { first, end } = range;
        Err(Failure::Refused(format!("{what}: pages {first:#x}..{end:#x} are not mapped here")))
    }

    #[allow(unsafe_code, reason = "real memory")]
    fn touch_checked(&mut self, range: Range, pattern: Pattern) -> Result<(), Failure> {
        if range.first >= range.end {
            return Ok(());
        }
        self.check(range, "touch")?;
        let cuts = self.process.world.shared.cuts.load(SeqCst);
        self.remembered
            .may_touch(range, pattern.access, self.page_bytes(), cuts)
            .map_err(|why| Failure::Refused(format!("touch: {why}")))?;
        // SAFETY: checked right above.
        unsafe { memory::touch(range, self.page_bytes(), pattern.access, pattern.extent) };
        Ok(())
    }

    #[allow(unsafe_code, reason = "real memory")]
    fn ask(&mut self, area: Area, what: &str, ask: Ask) -> Result<(), Failure> {
        let range = range(area);
        self.check(range, what)?;
        // SAFETY: checked right above.
        unsafe { memory::ask(range, self.page_bytes(), ask) }.map_err(|e| refused(what, e))
    }
}

/// Bytes that files are read and written by.
const BUFFER_BYTES: u64 = 1 << 20;

impl HostThread {
    /// Where a file of this name lies: in the run's folder or a folder in there, and nowhere else.
    fn path_of(&self, name: &str) -> Result<PathBuf, Failure> {
        let folder = self.process.world.folder.as_ref();
        let folder = folder.map_err(|why| Failure::Refused(why.clone()))?;
        let is_plain = |part: &str| !part.is_empty() && !part.starts_with('.');
        if name.contains('\0') || !name.split('/').all(is_plain) {
            let expected = "expected a file's name, perhaps with folders before it";
            return Err(Failure::Refused(format!("`{name}`, {expected}")));
        }
        Ok(files_in(folder).join(name))
    }

    fn keep(&mut self, file: File) -> Result<FileId, Failure> {
        self.files.push(Some(file));
        Ok(FileId(self.files.len() as u32 - 1))
    }

    fn file(&self, file: FileId) -> Result<&File, Failure> {
        let open = self.files.get(file.0 as usize).and_then(Option::as_ref);
        open.ok_or_else(|| Failure::Refused(format!("file {} is not open", file.0)))
    }

    /// Maps anonymous pages as `place` does, if the run may have so many.
    fn map(
        &self,
        pages: u64,
        place: impl Fn(&Mappings, u64) -> io::Result<u64>,
    ) -> Result<Area, Failure> {
        self.take_pages(pages, "mmap")?;
        let world = &self.process.world;
        match place(&self.process.mappings, world.machine.page_bytes) {
            Ok(first) => Ok(Area { first, pages }),
            Err(error) => {
                world.shared.give_pages(self.process.number, pages);
                Err(refused("mmap", error))
            }
        }
    }

    /// Takes pages from what the run may have, or says why not.
    fn take_pages(&self, pages: u64, what: &str) -> Result<(), Failure> {
        let world = &self.process.world;
        let Err(left) = world.shared.take_pages(self.process.number, pages) else { return Ok(()) };
        world.shared.was_over.store(1, SeqCst);
        let bytes = |pages: u64| match pages * world.machine.page_bytes {
            bytes if bytes < 1 << 20 => format!("{} KiB", bytes >> 10),
            bytes => format!("{} MiB", bytes >> 20),
        };
        Err(Failure::Refused(format!(
            "{what} of {}: {} are left to this run; {}",
            bytes(pages),
            bytes(left),
            world.memory_rule
        )))
    }

    /// Has it on the disk what the hugetlb pool held, before it changes for the first time.
    fn keep_pool(&mut self) -> Result<(), Failure> {
        if self.process.world.shared.is_pool_kept.load(SeqCst) == 0 {
            let now = self.knob(blocks::POOL)?;
            self.set_knob(blocks::POOL, &now)?;
            self.process.world.shared.is_pool_kept.store(1, SeqCst);
        }
        Ok(())
    }
}

impl System for HostThread {
    fn machine(&self) -> &MachineInfo {
        &self.process.world.machine
    }

    fn seed(&self) -> u64 {
        self.process.world.seed
    }

    fn now(&mut self) -> Ns {
        self.process.world.shared.now()
    }

    fn cpu_use(&mut self) -> CpuUse {
        let shared = self.process.world.shared;
        let mut sum = CpuUse {
            user: Ns(shared.user_ns.load(SeqCst)),
            system: Ns(shared.system_ns.load(SeqCst)),
        };
        for process in shared.started_processes() {
            let running = match process.pid.load(SeqCst) {
                0 => None,
                pid if pid == std::process::id() => Some(own_cpu_use()),
                pid => cpu_use_of(pid),
            };
            let running = running.unwrap_or_default();
            sum.user += running.user;
            sum.system += running.system;
        }
        sum
    }

    fn sleep(&mut self, time: Ns) -> Result<(), Failure> {
        let mut left = timespec(time);
        loop {
            match nanosleep(&left) {
                NanosleepRelativeResult::Ok => return Ok(()),
                NanosleepRelativeResult::Interrupted(rest) => left = rest,
                NanosleepRelativeResult::Err(e) => return Err(refused("nanosleep", e)),
            }
        }
    }

    fn compute(&mut self, time: Ns) -> Result<(), Failure> {
        let end = thread_ns().saturating_add(time.0);
        while thread_ns() < end {
            std::hint::spin_loop();
        }
        Ok(())
    }

    fn spawn(&mut self, spec: ThreadSpec, code: Code) -> Result<ThreadId, Failure> {
        let shared = self.process.world.shared;
        // A place that is not there is the caller's mistake, not the new thread's.
        self.process.world.cpus_of(spec.place)?;
        let (task, started) = if spec.new_process {
            let process = shared.new_process(self.process.number)?;
            let task = shared.new_task(process, &spec.name)?;
            (task, self.process.start_process(spec, code, task))
        } else {
            let task = shared.new_task(self.process.number, &spec.name)?;
            (task, self.process.start_thread(spec, code, task, false))
        };
        started.map_err(|error| {
            shared.end_task(shared.task(task), super::shared::state::REFUSED);
            refused("spawn", error)
        })?;
        Ok(ThreadId(task))
    }

    fn join(&mut self, thread: ThreadId) -> Result<(), Failure> {
        self.process.world.shared.join(self.task, thread.0)
    }

    fn set_place(&mut self, place: Place) -> Result<(), Failure> {
        self.move_to(place)
    }

    fn new_barrier(&mut self, parties: u32) -> Result<BarrierId, Failure> {
        self.process.world.shared.new_barrier(parties).map(BarrierId)
    }

    fn barrier(&mut self, barrier: BarrierId) -> Result<(), Failure> {
        self.process.world.shared.barrier(self.task, barrier.0)
    }

    fn set_thp_disable(&mut self, disable: bool) -> Result<(), Failure> {
        disable_transparent_huge_pages(disable)
            .map_err(|error| refused("prctl(PR_SET_THP_DISABLE)", io::Error::from(error)))
    }

    fn mmap(&mut self, pages: u64) -> Result<Area, Failure> {
        let huge = self.process.world.machine.huge_pages;
        self.map(pages, |mappings, page_bytes| mappings.map(pages, page_bytes, huge))
    }

    fn mmap_anywhere(&mut self, pages: u64) -> Result<Area, Failure> {
        self.map(pages, |mappings, page_bytes| mappings.map_anywhere(pages, page_bytes))
    }

    fn munmap(&mut self, area: Area) -> Result<(), Failure> {
        match self.process.mappings.unmap(range(area), self.page_bytes()) {
            Ok(Some(Unmapped::Anonymous)) => {
                self.process.world.shared.give_pages(self.process.number, area.pages);
                Ok(())
            }
            Ok(Some(Unmapped::File)) => Ok(()),
            Ok(None) => self.check(range(area), "munmap"),
            Err(error) => Err(refused("munmap", error)),
        }
    }

    fn madvise(&mut self, area: Area, advice: Advice) -> Result<(), Failure> {
        self.ask(area, "madvise", Ask::Advise(advice))
    }

    fn mbind(&mut self, area: Area, policy: MemPolicy) -> Result<(), Failure> {
        self.ask(area, "mbind", Ask::Bind(policy))
    }

    fn set_mempolicy(&mut self, policy: MemPolicy) -> Result<(), Failure> {
        memory::set_mempolicy(policy).map_err(|e| refused("set_mempolicy", e))
    }

    fn mlock(&mut self, area: Area, locked: bool) -> Result<(), Failure> {
        self.ask(area, if locked { "mlock" } else { "munlock" }, Ask::Lock(locked))
    }

    fn touch(&mut self, page: Page, access: Access) -> Result<(), Failure> {
        let range = Range { first: page.0, end: page.0.saturating_add(1) };
        self.touch_checked(range, Pattern { access, extent: Extent::Word })
    }

    fn touch_range(&mut self, area: Area, pattern: Pattern) -> Result<(), Failure> {
        self.touch_checked(range(area), pattern)
    }

    fn is_present(&mut self, page: Page) -> Result<bool, Failure> {
        memory::is_present(page.0, self.page_bytes()).map_err(|e| refused("mincore", e))
    }

    fn create_file(&mut self, name: &str) -> Result<FileId, Failure> {
        let path = self.path_of(name)?;
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|e| refused(name, e))?;
        }
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path);
        // One of that name may have been there, and be mapped.
        self.process.world.shared.cuts.fetch_add(1, SeqCst);
        self.keep(file.map_err(|e| unopened(name, e))?)
    }

    fn open_file(&mut self, name: &str) -> Result<FileId, Failure> {
        let path = self.path_of(name)?;
        let file = OpenOptions::new().read(true).write(true).open(path);
        self.keep(file.map_err(|e| unopened(name, e))?)
    }

    fn file_bytes(&mut self, file: FileId) -> Result<u64, Failure> {
        let found = self.file(file)?.metadata();
        found.map(|found| found.len()).map_err(|e| refused("fstat", e))
    }

    fn read_file(&mut self, file: FileId, offset: u64, bytes: u64) -> Result<(), Failure> {
        let mut buffer = vec![0; bytes.min(BUFFER_BYTES) as usize];
        let (mut at, end) = (offset, offset.saturating_add(bytes));
        while at < end {
            let part = &mut buffer[..(end - at).min(BUFFER_BYTES) as usize];
            match self.file(file)?.read_at(part, at).map_err(|e| refused("read", e))? {
                0 => break,
                read => at += read as u64,
            }
        }
        Ok(())
    }

    fn write_file(&mut self, file: FileId, offset: u64, bytes: u64) -> Result<(), Failure> {
        // Not zeros: some disks and file systems spare those.
        let buffer = vec![0x5a; bytes.min(BUFFER_BYTES) as usize];
        let (mut at, end) = (offset, offset.saturating_add(bytes));
        while at < end {
            let part = &buffer[..(end - at).min(BUFFER_BYTES) as usize];
            self.file(file)?.write_all_at(part, at).map_err(|e| refused("write", e))?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn fsync(&mut self, file: FileId) -> Result<(), Failure> {
        self.file(file)?.sync_all().map_err(|e| refused("fsync", e))
    }

    fn unlink(&mut self, name: &str) -> Result<(), Failure> {
        let path = self.path_of(name)?;
        std::fs::remove_file(path).map_err(|e| refused(name, e))
    }

    fn sync(&mut self) -> Result<(), Failure> {
        rustix::fs::sync();
        Ok(())
    }

    fn drop_caches(&mut self, what: Caches) -> Result<(), Failure> {
        let value = match what {
            Caches::Pages => "1",
            Caches::Slab => "2",
            Caches::All => "3",
        };
        self.set_knob("vm.drop_caches", value)
    }

    fn set_file_bytes(&mut self, file: FileId, bytes: u64) -> Result<(), Failure> {
        let done = self.file(file)?.set_len(bytes).map_err(|e| refused("ftruncate", e));
        self.process.world.shared.cuts.fetch_add(1, SeqCst);
        done
    }

    fn close_file(&mut self, file: FileId) -> Result<(), Failure> {
        self.file(file)?;
        self.files[file.0 as usize] = None;
        Ok(())
    }

    fn map_file(
        &mut self,
        file: FileId,
        first: u64,
        pages: u64,
        access: Access,
    ) -> Result<Area, Failure> {
        // The mapping keeps the file, whoever closes or deletes it.
        let file = self.file(file)?.try_clone().map_err(|e| refused("dup", e))?;
        let mapped =
            self.process.mappings.map_file(file, (first, pages), access, self.page_bytes());
        let first = mapped.map_err(|e| refused("mmap of a file", e))?;
        Ok(Area { first, pages })
    }

    fn take_block(&mut self, kind: KernelBlock) -> Result<Option<BlockId>, Failure> {
        match kind {
            KernelBlock::Hugetlb => {
                self.keep_pool()?;
                let knobs = &self.process.world.knobs;
                let grew = blocks::grow_pool(knobs).map_err(|e| Failure::Refused(e.to_string()))?;
                Ok(grew.then(|| BlockId(self.process.blocks().note_huge())))
            }
            KernelBlock::PipeBuffer => {
                self.take_pages(1, "a page in a pipe")?;
                match self.process.blocks().take_page(self.page_bytes() as usize) {
                    Ok(block) => Ok(Some(BlockId(block))),
                    Err(error) => {
                        self.process.world.shared.give_pages(self.process.number, 1);
                        match error.raw_os_error() {
                            Some(libc::ENOMEM) => Ok(None),
                            _ => Err(refused("a page in a pipe", error)),
                        }
                    }
                }
            }
            KernelBlock::Own { order, .. } => Err(Failure::Refused(format!(
                "a block of order {order} of the kernel's own: only the model takes one on request"
            ))),
            KernelBlock::Module { order } => Err(Failure::Refused(format!(
                "a block of order {order} for a module of the kernel's: only the model has such a module"
            ))),
        }
    }

    fn free_block(&mut self, block: BlockId) -> Result<(), Failure> {
        let freed = self.process.blocks().free(block.0, self.page_bytes() as usize);
        match freed.map_err(|e| refused("splice", e))? {
            Some(KernelBlock::Hugetlb) => blocks::shrink_pool(&self.process.world.knobs)
                .map_err(|e| Failure::Refused(e.to_string())),
            Some(_) => {
                self.process.world.shared.give_pages(self.process.number, 1);
                Ok(())
            }
            None => Err(Failure::Refused(format!("no block {}", block.0))),
        }
    }

    fn knob(&mut self, name: &str) -> Result<String, Failure> {
        self.process.world.knobs.get(name).map_err(|e| Failure::Refused(e.to_string()))
    }

    fn set_knob(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        if !self.process.world.may_set_knobs {
            return Err(Failure::Refused(format!(
                "knob {name}: this run may not change settings (apply_knobs)"
            )));
        }
        let message =
            Message::SetKnob { task: self.task, name: name.to_owned(), value: value.to_owned() };
        let world = &self.process.world;
        world.shared.ask(self.task, || world.tell(&message))
    }

    fn counters(&mut self) -> BTreeMap<String, u64> {
        proc::counters().expect("/proc/vmstat can be read")
    }

    fn report(&mut self, like: &Metric, sample: f64) {
        let like = MetricHead::of(like);
        self.process.world.tell(&Message::Sample { like, bits: sample.to_bits() });
    }

    fn latency(&mut self, class: &str, latency: Ns) {
        if !self.latencies.contains_key(class) {
            self.latencies.insert(class.to_owned(), Vec::with_capacity(LATENCIES_MAX));
        }
        let ns = self.latencies.get_mut(class).expect("there since the line above");
        ns.push(latency.0);
        if ns.len() >= LATENCIES_MAX {
            let message = Message::Latencies { class: class.to_owned(), ns: ns.clone() };
            ns.clear();
            self.process.world.tell(&message);
        }
    }

    fn note_before(&mut self) {
        let world = &self.process.world;
        let message = Message::Before { task: self.task };
        // What cannot be read then is told by whoever reads it.
        let _ = world.shared.ask(self.task, || world.tell(&message));
        let so_far = self.cpu_use();
        let shared = self.process.world.shared;
        shared.prepared_user_ns.store(so_far.user.0, SeqCst);
        shared.prepared_system_ns.store(so_far.system.0, SeqCst);
        shared.prepared_ns.store(crate::clock::now_ns(), SeqCst);
    }

    fn note_held(&mut self) {
        let world = &self.process.world;
        let message = Message::Held { task: self.task };
        // What cannot be read then is told by whoever reads it.
        let _ = world.shared.ask(self.task, || world.tell(&message));
    }
}

#[allow(unsafe_code, reason = "no safe interface")]
fn own_cpu_use() -> CpuUse {
    // SAFETY: zeros are a valid `rusage`, which the kernel fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let ns = |t: libc::timeval| Ns((t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64) * 1000);
    CpuUse { user: ns(usage.ru_utime), system: ns(usage.ru_stime) }
}

/// CPU time of another process, in ticks of the clock (10 ms).
fn cpu_use_of(pid: u32) -> Option<CpuUse> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // utime and stime are fields 14 and 15; the name, field 2, may hold blanks.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(CpuUse { user: Ns(next()? * tick_ns), system: Ns(next()? * tick_ns) })
}
