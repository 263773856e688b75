//! What a workload asks of the system it runs on.
//!
//! A workload is plain blocking code against [`System`]: it maps memory, touches it, sleeps, meets other
//! threads at barriers, and reports what it measured. Who answers decides where it runs: a model in
//! virtual time, or a real kernel. All of them leave the same [`highorder_record::Record`].
//!
//! ```
//! use highorder_system::{Access, Failure, Pattern, System};
//!
//! fn fill(sys: &mut dyn System) -> Result<(), Failure> {
//!     let area = sys.mmap(1024)?;
//!     sys.touch_range(area, Pattern::word(Access::Write))?;
//!     sys.munmap(area)
//! }
//! ```

pub mod knobs;

use highorder_record::Metric;
use std::collections::BTreeMap;

pub use highorder_words::{Access, CpuId, MemPolicy, NodeId, Ns};

/// What a thread runs.
pub type Code = Box<dyn FnOnce(&mut dyn System) -> Result<(), Failure> + Send>;

/// Why a request failed. A workload hands it on with `?`: for most there is nothing else to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The process was killed because memory ran out. Its memory is gone; its threads end.
    #[error("killed: out of memory")]
    Killed,
    /// The system refused a request (`ENOMEM`, `ENOSPC`, `EINVAL` ...), in words.
    #[error("{0}")]
    Refused(String),
}

/// The machine a workload finds itself on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineInfo {
    /// Memory that the kernel manages, in base pages (`MemTotal`).
    pub total_pages: u64,
    /// Nodes with memory or CPUs, ascending.
    pub nodes: Vec<NodeInfo>,
    /// Bytes of a base page.
    pub page_bytes: u64,
    /// Base pages of a huge page.
    pub huge_pages: u64,
}

impl MachineInfo {
    /// CPUs of all nodes.
    #[must_use]
    pub fn nr_cpus(&self) -> u32 {
        self.nodes.iter().map(|node| node.cpus.len() as u32).sum()
    }

    /// Base pages in this many bytes, rounded down.
    #[must_use]
    pub const fn pages(&self, bytes: u64) -> u64 {
        bytes / self.page_bytes
    }
}

/// A node as a workload sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// Its number.
    pub number: NodeId,
    /// Memory that the kernel manages there, in base pages.
    pub total_pages: u64,
    /// Its CPUs.
    pub cpus: Vec<CpuId>,
}

/// A range of mapped memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Its first page: an address divided by the size of a page.
    pub first: u64,
    /// Base pages.
    pub pages: u64,
}

impl Area {
    /// Page `index`.
    ///
    /// # Panics
    /// If it has none such.
    #[must_use]
    pub fn page(self, index: u64) -> Page {
        assert!(index < self.pages, "page {index} of {}", self.pages);
        Page(self.first + index)
    }

    /// `pages` of it, from page `index` on.
    ///
    /// # Panics
    /// If it is shorter.
    #[must_use]
    pub fn part(self, index: u64, pages: u64) -> Self {
        assert!(index + pages <= self.pages, "pages {index}+{pages} of {}", self.pages);
        Self { first: self.first + index, pages }
    }
}

/// A page of mapped memory: its address divided by the size of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Page(pub u64);

/// What is advised about a range (`madvise`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// `MADV_HUGEPAGE`.
    Huge,
    /// `MADV_NOHUGEPAGE`.
    NoHuge,
    /// Neither: as if nothing had been advised. The model alone knows this; kernels have no word for it.
    NeitherHuge,
    /// `MADV_DONTNEED`: the content is not needed any more.
    DontNeed,
}

/// How a range is touched: pages in ascending order, each in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Read or written.
    pub access: Access,
    /// How much of each page.
    pub extent: Extent,
}

impl Pattern {
    /// One word of every page.
    #[must_use]
    pub const fn word(access: Access) -> Self {
        Self { access, extent: Extent::Word }
    }

    /// Every byte of every page.
    #[must_use]
    pub const fn whole(access: Access) -> Self {
        Self { access, extent: Extent::Whole }
    }
}

/// How much of a page is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// One word.
    Word,
    /// All of it (`memset`, or reading it through).
    Whole,
}

/// Where a thread may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Anywhere.
    #[default]
    Any,
    /// On the CPUs of a node.
    Node(NodeId),
    /// On one CPU.
    Cpu(CpuId),
}

/// A new thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadSpec {
    /// Its name, of at most 15 bytes.
    pub name: String,
    /// Where it may run.
    pub place: Place,
    /// Whether it is the first of a new process: with memory of its own, that goes with its last thread.
    pub new_process: bool,
}

impl ThreadSpec {
    /// A thread of the same process, free to run anywhere.
    #[must_use]
    pub fn thread(name: impl Into<String>) -> Self {
        Self { name: name.into(), place: Place::Any, new_process: false }
    }

    /// The first thread of a process of its own.
    #[must_use]
    pub fn process(name: impl Into<String>) -> Self {
        Self { new_process: true, ..Self::thread(name) }
    }

    /// The same, but running there.
    #[must_use]
    pub fn on(self, place: Place) -> Self {
        Self { place, ..self }
    }
}

/// A thread that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ThreadId(pub u32);

/// A barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BarrierId(pub u32);

/// A file that a thread has open: a number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// What `vm.drop_caches` drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caches {
    /// Pages of files (1).
    Pages,
    /// Inodes, directory entries and whatever else can shrink (2).
    Slab,
    /// Both (3).
    All,
}

/// Memory of the kernel's own that a workload can ask for: what user space can do towards it on a real
/// kernel, and what only a module could.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelBlock {
    /// A huge page for the hugetlb pool (`vm.nr_hugepages` raised by one).
    Hugetlb,
    /// A page in a pipe's buffer, which does not move and stays until it is read.
    PipeBuffer,
    /// 2^order pages, asked for as a module does that wants movable ones and may fail: direct reclaim and
    /// compaction, kswapd woken, no second try. Only the model has such a module.
    Module {
        /// The order.
        order: u8,
    },
    /// 2^order pages, asked for as the kernel asks for memory of its own, which does not move. Only the model has
    /// such a caller.
    Own {
        /// The order.
        order: u8,
        /// Whether the caller may sleep, and so reclaim.
        may_wait: bool,
        /// Whether it is memory that could be given back (`__GFP_RECLAIMABLE`), though nobody asks for it.
        is_reclaimable: bool,
    },
}

/// A block that [`System::take_block`] gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockId(pub u32);

/// CPU time that a workload's threads have spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuUse {
    /// In their own code.
    pub user: Ns,
    /// In the kernel on their behalf.
    pub system: Ns,
}

/// What one thread of a workload asks of the system it runs on.
///
/// Each method does all of what it says before it returns; the time that takes is the thread's. A process
/// that was killed gets [`Failure::Killed`] from whatever it asks next.
pub trait System {
    /// The machine.
    fn machine(&self) -> &MachineInfo;

    /// The root of the workload's random streams.
    fn seed(&self) -> u64;

    /// Time since the run began.
    fn now(&mut self) -> Ns;

    /// CPU time of all threads of the workload until now, those that have ended included (what `time`
    /// prints of a process and its children). Threads of the kernel are not among them.
    fn cpu_use(&mut self) -> CpuUse;

    /// Sleeps.
    fn sleep(&mut self, time: Ns) -> Result<(), Failure>;

    /// Keeps a CPU busy until this thread has used so much of its time, whoever else wants it.
    fn compute(&mut self, time: Ns) -> Result<(), Failure>;

    /// Starts a thread.
    fn spawn(&mut self, spec: ThreadSpec, code: Code) -> Result<ThreadId, Failure>;

    /// Waits for a thread's end, and says how it ended.
    fn join(&mut self, thread: ThreadId) -> Result<(), Failure>;

    /// Moves this thread.
    fn set_place(&mut self, place: Place) -> Result<(), Failure>;

    /// Creates a barrier for this many threads, of whatever processes.
    fn new_barrier(&mut self, parties: u32) -> Result<BarrierId, Failure>;

    /// Waits until all have come.
    fn barrier(&mut self, barrier: BarrierId) -> Result<(), Failure>;

    /// Lets this process have huge pages, or none from now on (`prctl(PR_SET_THP_DISABLE)`); those that it starts
    /// begin likewise. Kernels from 4.15 on look at every fault, those before at new mappings; none before 3.15.
    fn set_thp_disable(&mut self, disable: bool) -> Result<(), Failure>;

    /// Maps private anonymous memory, of which nothing is there yet; it begins at a multiple of a huge
    /// page.
    fn mmap(&mut self, pages: u64) -> Result<Area, Failure>;

    /// Maps private anonymous memory where the kernel puts it: up to 6.6 that may be at any page, and the ends
    /// of the mapping hold no huge page.
    fn mmap_anywhere(&mut self, pages: u64) -> Result<Area, Failure>;

    /// Unmaps a range.
    fn munmap(&mut self, area: Area) -> Result<(), Failure>;

    /// Advises about a range.
    fn madvise(&mut self, area: Area, advice: Advice) -> Result<(), Failure>;

    /// Says from which nodes a range's pages come.
    fn mbind(&mut self, area: Area, policy: MemPolicy) -> Result<(), Failure>;

    /// Says from which nodes the pages of this thread's mappings to come shall be.
    fn set_mempolicy(&mut self, policy: MemPolicy) -> Result<(), Failure>;

    /// Makes a range present and keeps it so; or lets it go.
    fn mlock(&mut self, area: Area, locked: bool) -> Result<(), Failure>;

    /// Touches one word of a page.
    fn touch(&mut self, page: Page, access: Access) -> Result<(), Failure>;

    /// Touches every page of a range, ascending.
    fn touch_range(&mut self, area: Area, pattern: Pattern) -> Result<(), Failure>;

    /// Touches one word of each of these pages, in this order.
    fn touch_pages(&mut self, pages: &[Page], access: Access) -> Result<(), Failure> {
        pages.iter().try_for_each(|&page| self.touch(page, access))
    }

    /// Whether a page is present (`mincore`).
    fn is_present(&mut self, page: Page) -> Result<bool, Failure>;

    /// Creates an empty file of this name, in place of any that was there.
    fn create_file(&mut self, name: &str) -> Result<FileId, Failure>;

    /// Opens a file that is there. What a thread has opened is its own: where it reads, how far ahead.
    fn open_file(&mut self, name: &str) -> Result<FileId, Failure>;

    /// Puts a file of so many bytes into the file system that the kernel starts from, where programs are in a guest without
    /// a disk for them. Refused where there is none that could be filled.
    fn unpack_file(&mut self, name: &str, bytes: u64) -> Result<(), Failure> {
        Err(Failure::Refused(format!(
            "`{name}`, {bytes} bytes: nothing is unpacked on this system"
        )))
    }

    /// A file's size in bytes.
    fn file_bytes(&mut self, file: FileId) -> Result<u64, Failure>;

    /// Reads, less where the file ends.
    fn read_file(&mut self, file: FileId, offset: u64, bytes: u64) -> Result<(), Failure>;

    /// Has pages of a file go nowhere, as `cat FILE > /dev/null` does by `sendfile`: they are read and not copied.
    fn send_file(&mut self, file: FileId, offset: u64, bytes: u64) -> Result<(), Failure> {
        self.read_file(file, offset, bytes)
    }

    /// Writes, making the file longer if it ends before.
    fn write_file(&mut self, file: FileId, offset: u64, bytes: u64) -> Result<(), Failure>;

    /// Writes what is dirty of a file and waits for it.
    fn fsync(&mut self, file: FileId) -> Result<(), Failure>;

    /// Deletes a file, which nobody has open any more.
    fn unlink(&mut self, name: &str) -> Result<(), Failure>;

    /// Writes all that is dirty and waits for it.
    fn sync(&mut self) -> Result<(), Failure>;

    /// Drops clean pages of files that nobody uses, unused inodes and directory entries, or both
    /// (`vm.drop_caches`).
    fn drop_caches(&mut self, what: Caches) -> Result<(), Failure>;

    /// Sets a file's size (`ftruncate`): what is cut off is gone, what is added is a hole.
    fn set_file_bytes(&mut self, file: FileId, bytes: u64) -> Result<(), Failure>;

    /// Closes a file. Its mappings stay.
    fn close_file(&mut self, file: FileId) -> Result<(), Failure>;

    /// Maps pages of a file, shared with whoever maps them too: `first` and `pages` in base pages. Reading or
    /// writing behind the file's end is refused when it is tried.
    fn map_file(
        &mut self,
        file: FileId,
        first: u64,
        pages: u64,
        access: Access,
    ) -> Result<Area, Failure>;

    /// Asks for memory of the kernel's own, once, without insisting. `None` if it cannot be had.
    fn take_block(&mut self, kind: KernelBlock) -> Result<Option<BlockId>, Failure>;

    /// Gives it back.
    fn free_block(&mut self, block: BlockId) -> Result<(), Failure>;

    /// A knob's value, under the kernel's name: `vm.swappiness`, `transparent_hugepage/enabled`.
    fn knob(&mut self, name: &str) -> Result<String, Failure>;

    /// Sets a knob.
    fn set_knob(&mut self, name: &str, value: &str) -> Result<(), Failure>;

    /// The counters of `/proc/vmstat`.
    fn counters(&mut self) -> BTreeMap<String, u64>;

    /// Adds a sample to a metric, which is as `like` says if this is its first.
    fn report(&mut self, like: &Metric, sample: f64);

    /// Adds a latency to a class.
    fn latency(&mut self, class: &str, latency: Ns);

    /// Says that what the workload does from here on depends on parameters of its that did not matter until now. A
    /// system that can goes on from here once for each run that differs in these alone; others do nothing.
    fn part(&mut self) {}

    /// Says that what came until now was preparation: the run's counters and durations begin here.
    fn note_before(&mut self);

    /// Notes the state of memory, while what the workload mapped is still there; the last call counts.
    fn note_held(&mut self);
}
