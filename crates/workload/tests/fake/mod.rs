//! A system that keeps account of what it is asked: threads run at once when they are started, one after
//! another, and nothing is simulated but who mapped and touched what.

use highorder_record::Metric;
use highorder_system::{
    Access, Advice, Area, BarrierId, BlockId, Caches, Code, CpuId, CpuUse, Failure, FileId,
    KernelBlock, MachineInfo, MemPolicy, NodeId, NodeInfo, Ns, Page, Pattern, Place, System,
    ThreadId, ThreadSpec,
};
use std::collections::{BTreeMap, BTreeSet};

/// What each page touched costs here, in the kernel and outside.
const SYSTEM_NS: u64 = 10;
const USER_NS: u64 = 1;

/// What a call on a file costs, and what each KiB of it does, all in the kernel.
const CALL_NS: u64 = 100;
const KIB_NS: u64 = 50;

/// A mapped area.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    pub(crate) area: Area,
    pub(crate) process: usize,
    pub(crate) advice: Option<Advice>,
    /// How often each page was written, and read.
    pub(crate) writes: Vec<u64>,
    pub(crate) reads: Vec<u64>,
    /// The file that is mapped, the page where that begins, and how it may be touched.
    pub(crate) file: Option<(String, u64, Access)>,
}

impl Mapping {
    /// The pages from `from` up to `to`.
    fn part(&self, from: u64, to: u64) -> Self {
        let pages = from as usize..to as usize;
        Self {
            area: Area { first: self.area.first + from, pages: to - from },
            writes: self.writes[pages.clone()].to_vec(),
            reads: self.reads[pages].to_vec(),
            ..self.clone()
        }
    }
}

/// A process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Process {
    pub(crate) killed: bool,
    /// How often it has slept.
    naps: usize,
}

/// Something a workload did, in the order it did so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Spawn(ThreadSpec),
    Map(Area),
    ThpDisable(bool),
    Touch(Area, Pattern),
    Unmap(Area),
    Bind(Area, MemPolicy),
    /// The thread is told where to run.
    Move(Place),
    Held,
    /// Counters begin anew.
    Before,
    Create(String),
    Open(String),
    /// A file's name, where it begins, and bytes.
    Read(String, u64, u64),
    Write(String, u64, u64),
    Resize(String, u64),
    Close(String),
    MapFile(String, Area),
    Unlink(String),
    Sync,
    Drop(Caches),
    Sleep(Ns),
    Compute(Ns),
    /// Whether it was had.
    Take(KernelBlock, bool),
    Free(BlockId),
    Knob(String, String),
}

pub(crate) struct Fake {
    pub(crate) machine: MachineInfo,
    pub(crate) seed: u64,
    pub(crate) events: Vec<Event>,
    pub(crate) mapped: Vec<Mapping>,
    /// Those that were unmapped, as they were then.
    pub(crate) unmapped: Vec<Mapping>,
    /// What was mapped when it was last noted.
    pub(crate) held: Option<Vec<Mapping>>,
    pub(crate) rows: BTreeMap<String, Metric>,
    pub(crate) latencies: BTreeMap<String, u64>,
    /// The most that was mapped at a time, in pages.
    pub(crate) peak: u64,
    /// Pages that can be present; a process that wants one more is killed.
    pub(crate) capacity: u64,
    /// A fault brings a huge page.
    pub(crate) faults_are_huge: bool,
    /// How often a process may sleep; then somebody kills it, unless it is the workload's own.
    pub(crate) naps_max: usize,
    /// Mappings that are granted; the next is refused.
    pub(crate) mappings_max: usize,
    /// What is done when it parts.
    pub(crate) at_part: Option<Box<dyn Fn()>>,
    pub(crate) nr_parts: usize,
    processes: Vec<Process>,
    /// Files by name, with their sizes.
    pub(crate) files: BTreeMap<String, u64>,
    /// Files that are open, by the number that their thread has for them.
    open: BTreeMap<FileId, String>,
    nr_opened: u32,
    /// Memory of the kernel's own: what can be had at once, and what was.
    pub(crate) blocks_max: usize,
    taken: BTreeSet<BlockId>,
    nr_taken: u32,
    /// The process of each thread that runs now, innermost last.
    running: Vec<usize>,
    ended: BTreeMap<ThreadId, Result<(), Failure>>,
    nr_threads: u32,
    next_page: u64,
    now: Ns,
    cpu: CpuUse,
}

impl Fake {
    /// Two nodes with half of these pages each, and two CPUs each.
    pub(crate) fn new(total_pages: u64) -> Self {
        let node = |number: NodeId| NodeInfo {
            number,
            total_pages: total_pages / 2,
            cpus: vec![CpuId(2 * number.0), CpuId(2 * number.0 + 1)],
        };
        let machine = MachineInfo {
            total_pages,
            nodes: vec![node(NodeId(0)), node(NodeId(1))],
            page_bytes: 4096,
            huge_pages: 512,
        };
        Self {
            machine,
            seed: 1,
            events: Vec::new(),
            mapped: Vec::new(),
            unmapped: Vec::new(),
            held: None,
            rows: BTreeMap::new(),
            latencies: BTreeMap::new(),
            peak: 0,
            capacity: u64::MAX,
            faults_are_huge: false,
            naps_max: usize::MAX,
            at_part: None,
            nr_parts: 0,
            mappings_max: usize::MAX,
            files: BTreeMap::new(),
            open: BTreeMap::new(),
            nr_opened: 0,
            blocks_max: usize::MAX,
            taken: BTreeSet::new(),
            nr_taken: 0,
            processes: vec![Process::default()],
            running: vec![0],
            ended: BTreeMap::new(),
            nr_threads: 0,
            next_page: 512,
            now: Ns::ZERO,
            cpu: CpuUse::default(),
        }
    }

    /// Runs a workload, and checks what every one owes: that each thread was waited for, and that
    /// nothing is left mapped, open or taken.
    pub(crate) fn run(&mut self, code: Code) -> Result<(), Failure> {
        let result = code(self);
        assert_eq!(self.ended, BTreeMap::new(), "threads that nobody waited for");
        if result.is_ok() {
            assert!(self.mapped.is_empty(), "left mapped: {:?}", self.mapped);
            assert_eq!(self.open, BTreeMap::new(), "left open");
            assert_eq!(self.taken, BTreeSet::new(), "never given back");
        }
        result
    }

    /// Samples of a row; none if there is no such row.
    pub(crate) fn samples(&self, row: &str) -> &[f64] {
        self.rows.get(row).map_or(&[], |metric| &metric.samples)
    }

    pub(crate) fn spawned(&self) -> Vec<&ThreadSpec> {
        let mut specs = Vec::new();
        for event in &self.events {
            if let Event::Spawn(spec) = event {
                specs.push(spec);
            }
        }
        specs
    }

    pub(crate) fn mapped_pages(&self) -> u64 {
        self.mapped.iter().map(|mapping| mapping.area.pages).sum()
    }

    /// What was done with files, in order.
    pub(crate) fn file_events(&self) -> Vec<&Event> {
        let of_files = |event: &&Event| {
            matches!(
                event,
                Event::Create(_)
                    | Event::Open(_)
                    | Event::Read(..)
                    | Event::Write(..)
                    | Event::Resize(..)
                    | Event::Close(_)
                    | Event::MapFile(..)
                    | Event::Unlink(_)
                    | Event::Sync
                    | Event::Drop(_)
            )
        };
        self.events.iter().filter(of_files).collect()
    }

    /// Bytes written to files, and read.
    pub(crate) fn file_bytes_moved(&self) -> (u64, u64) {
        self.events.iter().fold((0, 0), |(written, read), event| match event {
            Event::Write(_, _, bytes) => (written + bytes, read),
            Event::Read(_, _, bytes) => (written, read + bytes),
            _ => (written, read),
        })
    }

    /// Time for a call that moves so much.
    fn call(&mut self, bytes: u64) {
        let took = Ns(CALL_NS) + Ns(KIB_NS * bytes / 1024);
        self.cpu.system += took;
        self.now += took;
    }

    fn opened(&mut self, name: &str) -> FileId {
        let file = FileId(self.nr_opened);
        self.nr_opened += 1;
        self.open.insert(file, name.to_owned());
        file
    }

    fn name_of(&self, file: FileId) -> String {
        self.open.get(&file).unwrap_or_else(|| panic!("{file:?} is not open")).clone()
    }

    fn add_mapping(&mut self, pages: u64, file: Option<(String, u64, Access)>) -> Area {
        let area = Area { first: self.next_page, pages };
        // A hole after each, so that nothing is touched beyond an end unnoticed.
        self.next_page = (area.first + pages + 1).next_multiple_of(512);
        let (writes, reads) = (vec![0; pages as usize], vec![0; pages as usize]);
        let process = self.process();
        self.mapped.push(Mapping { area, process, advice: None, writes, reads, file });
        self.peak = self.peak.max(self.mapped_pages());
        area
    }

    fn process(&self) -> usize {
        *self.running.last().expect("a thread runs")
    }

    fn alive(&self) -> Result<(), Failure> {
        if self.processes[self.process()].killed { Err(Failure::Killed) } else { Ok(()) }
    }

    fn kill(&mut self) -> Failure {
        let process = self.process();
        assert_ne!(process, 0, "the workload's own process was killed");
        self.processes[process].killed = true;
        self.mapped.retain(|mapping| mapping.process != process);
        Failure::Killed
    }

    fn mapping(&mut self, area: Area) -> &mut Mapping {
        let process = self.process();
        let found = self.mapped.iter_mut().find(|mapping| {
            let has = mapping.area;
            has.first <= area.first && area.first + area.pages <= has.first + has.pages
        });
        let found = found.unwrap_or_else(|| panic!("{area:?} is not mapped"));
        assert_eq!(found.process, process, "{area:?} is another process's");
        found
    }
}

impl System for Fake {
    fn machine(&self) -> &MachineInfo {
        &self.machine
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn now(&mut self) -> Ns {
        self.now
    }

    fn cpu_use(&mut self) -> CpuUse {
        self.cpu
    }

    fn sleep(&mut self, time: Ns) -> Result<(), Failure> {
        self.alive()?;
        self.now += time;
        self.events.push(Event::Sleep(time));
        let process = self.process();
        self.processes[process].naps += 1;
        if process != 0 && self.processes[process].naps > self.naps_max {
            return Err(self.kill());
        }
        Ok(())
    }

    fn compute(&mut self, time: Ns) -> Result<(), Failure> {
        self.alive()?;
        self.now += time;
        self.cpu.user += time;
        self.events.push(Event::Compute(time));
        Ok(())
    }

    fn spawn(&mut self, spec: ThreadSpec, code: Code) -> Result<ThreadId, Failure> {
        self.alive()?;
        assert!(spec.name.len() <= 15, "`{}` is too long for a thread", spec.name);
        if let Place::Node(node) = spec.place
            && node.index() >= self.machine.nodes.len()
        {
            return Err(Failure::Refused(format!("no node {node}")));
        }
        let process = if spec.new_process {
            self.processes.push(Process::default());
            self.processes.len() - 1
        } else {
            self.process()
        };
        self.events.push(Event::Spawn(spec));
        let id = ThreadId(self.nr_threads);
        self.nr_threads += 1;
        self.running.push(process);
        let ended = code(self);
        self.running.pop();
        self.ended.insert(id, ended);
        Ok(id)
    }

    fn join(&mut self, thread: ThreadId) -> Result<(), Failure> {
        // Who is killed waits for nobody, but its threads have ended with it.
        let ended = self.ended.remove(&thread).expect("a thread is waited for once");
        self.alive()?;
        ended
    }

    fn set_place(&mut self, place: Place) -> Result<(), Failure> {
        self.alive()?;
        self.events.push(Event::Move(place));
        Ok(())
    }

    fn new_barrier(&mut self, parties: u32) -> Result<BarrierId, Failure> {
        assert_eq!(parties, 1, "threads run one after another here");
        Ok(BarrierId(0))
    }

    fn barrier(&mut self, _: BarrierId) -> Result<(), Failure> {
        self.alive()
    }

    fn mmap(&mut self, pages: u64) -> Result<Area, Failure> {
        self.alive()?;
        assert!(pages > 0, "an area of no pages");
        if self.mapped.len() >= self.mappings_max {
            return Err(Failure::Refused("no room for another mapping".to_owned()));
        }
        let area = self.add_mapping(pages, None);
        self.events.push(Event::Map(area));
        Ok(area)
    }

    fn set_thp_disable(&mut self, disable: bool) -> Result<(), Failure> {
        self.alive()?;
        self.events.push(Event::ThpDisable(disable));
        Ok(())
    }

    fn mmap_anywhere(&mut self, pages: u64) -> Result<Area, Failure> {
        self.mmap(pages)
    }

    fn munmap(&mut self, area: Area) -> Result<(), Failure> {
        self.alive()?;
        let whole = self.mapping(area).area;
        let position = self.mapped.iter().position(|mapping| mapping.area == whole).unwrap();
        let mapping = self.mapped.remove(position);
        // What lies before and behind a part stays.
        let begin = area.first - whole.first;
        let end = begin + area.pages;
        for (from, to) in [(0, begin), (end, whole.pages)] {
            if from < to {
                self.mapped.push(mapping.part(from, to));
            }
        }
        self.unmapped.push(mapping.part(begin, end));
        self.events.push(Event::Unmap(area));
        Ok(())
    }

    fn madvise(&mut self, area: Area, advice: Advice) -> Result<(), Failure> {
        self.alive()?;
        let mapping = self.mapping(area);
        if advice == Advice::DontNeed {
            let start = (area.first - mapping.area.first) as usize;
            mapping.writes[start..start + area.pages as usize].fill(0);
            return Ok(());
        }
        assert_eq!(mapping.area, area, "a part is advised about");
        assert!(mapping.writes.iter().all(|&writes| writes == 0), "advised after it was written");
        mapping.advice = Some(advice);
        Ok(())
    }

    fn mbind(&mut self, area: Area, policy: MemPolicy) -> Result<(), Failure> {
        self.alive()?;
        assert_eq!(self.mapping(area).area, area, "a part is bound");
        self.events.push(Event::Bind(area, policy));
        Ok(())
    }

    fn set_mempolicy(&mut self, _: MemPolicy) -> Result<(), Failure> {
        unreachable!("no workload here binds itself")
    }

    fn mlock(&mut self, _: Area, _: bool) -> Result<(), Failure> {
        unreachable!("no workload here locks memory")
    }

    fn touch(&mut self, page: Page, access: Access) -> Result<(), Failure> {
        self.touch_range(Area { first: page.0, pages: 1 }, Pattern::word(access))
    }

    fn touch_range(&mut self, area: Area, pattern: Pattern) -> Result<(), Failure> {
        self.alive()?;
        let mapping = self.mapping(area);
        let start = (area.first - mapping.area.first) as usize;
        let touched = match (pattern.access, &mapping.file) {
            (Access::Read, _) => &mut mapping.reads,
            (Access::Write, Some((name, _, Access::Read))) => panic!("{name} is mapped to be read"),
            (Access::Write, _) => &mut mapping.writes,
        };
        for count in &mut touched[start..start + area.pages as usize] {
            *count += 1;
        }
        self.events.push(Event::Touch(area, pattern));
        self.cpu.system += Ns(SYSTEM_NS) * area.pages;
        self.cpu.user += Ns(USER_NS) * area.pages;
        self.now += Ns(SYSTEM_NS + USER_NS) * area.pages;
        // Pages of files can be dropped.
        let present = |mapping: &Mapping| match mapping.file {
            None => mapping.writes.iter().filter(|&&n| n > 0).count() as u64,
            Some(_) => 0,
        };
        if self.mapped.iter().map(present).sum::<u64>() > self.capacity {
            return Err(self.kill());
        }
        Ok(())
    }

    fn is_present(&mut self, page: Page) -> Result<bool, Failure> {
        let (all, huge) = (self.faults_are_huge, self.machine.huge_pages);
        let mapping = self.mapping(Area { first: page.0, pages: 1 });
        let at = (page.0 - mapping.area.first) as usize;
        // Mappings begin where a huge page can.
        let unit = at / huge as usize * huge as usize;
        Ok(mapping.writes[at] > 0 || all && mapping.writes[unit] > 0)
    }

    fn create_file(&mut self, name: &str) -> Result<FileId, Failure> {
        self.alive()?;
        self.call(0);
        self.files.insert(name.to_owned(), 0);
        self.events.push(Event::Create(name.to_owned()));
        Ok(self.opened(name))
    }

    fn open_file(&mut self, name: &str) -> Result<FileId, Failure> {
        self.alive()?;
        self.call(0);
        if !self.files.contains_key(name) {
            return Err(Failure::Refused(format!("no file {name}")));
        }
        self.events.push(Event::Open(name.to_owned()));
        Ok(self.opened(name))
    }

    fn file_bytes(&mut self, file: FileId) -> Result<u64, Failure> {
        Ok(self.files[&self.name_of(file)])
    }

    fn read_file(&mut self, file: FileId, offset: u64, bytes: u64) -> Result<(), Failure> {
        self.alive()?;
        let name = self.name_of(file);
        if offset == self.files[&name] {
            // That is how programs learn that a file ends.
            return Ok(());
        }
        self.call(bytes);
        assert!(offset + bytes <= self.files[&name], "{name}: reads what was written");
        self.events.push(Event::Read(name, offset, bytes));
        Ok(())
    }

    fn write_file(&mut self, file: FileId, offset: u64, bytes: u64) -> Result<(), Failure> {
        self.alive()?;
        self.call(bytes);
        let name = self.name_of(file);
        let size = self.files.get_mut(&name).expect("it is there");
        *size = (offset + bytes).max(*size);
        self.events.push(Event::Write(name, offset, bytes));
        Ok(())
    }

    fn set_file_bytes(&mut self, file: FileId, bytes: u64) -> Result<(), Failure> {
        self.alive()?;
        self.call(0);
        let name = self.name_of(file);
        self.files.insert(name.clone(), bytes);
        self.events.push(Event::Resize(name, bytes));
        Ok(())
    }

    fn close_file(&mut self, file: FileId) -> Result<(), Failure> {
        self.alive()?;
        self.call(0);
        let name = self.name_of(file);
        self.open.remove(&file);
        self.events.push(Event::Close(name));
        Ok(())
    }

    fn map_file(
        &mut self,
        file: FileId,
        first: u64,
        pages: u64,
        access: Access,
    ) -> Result<Area, Failure> {
        self.alive()?;
        assert!(pages > 0, "an area of no pages");
        let name = self.name_of(file);
        let bytes = self.files[&name];
        assert!((first + pages) * 4096 <= bytes, "{name} of {bytes} bytes, mapped beyond");
        let area = self.add_mapping(pages, Some((name.clone(), first, access)));
        self.events.push(Event::MapFile(name, area));
        Ok(area)
    }

    fn fsync(&mut self, _: FileId) -> Result<(), Failure> {
        Ok(())
    }

    fn unlink(&mut self, name: &str) -> Result<(), Failure> {
        self.alive()?;
        self.call(0);
        assert!(!self.open.values().any(|other| other == name), "{name} is open");
        self.files.remove(name).unwrap_or_else(|| panic!("no file {name}"));
        self.events.push(Event::Unlink(name.to_owned()));
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Failure> {
        self.events.push(Event::Sync);
        Ok(())
    }

    fn drop_caches(&mut self, what: Caches) -> Result<(), Failure> {
        self.events.push(Event::Drop(what));
        Ok(())
    }

    fn take_block(&mut self, kind: KernelBlock) -> Result<Option<BlockId>, Failure> {
        self.call(0);
        let is_had = self.taken.len() < self.blocks_max;
        self.events.push(Event::Take(kind, is_had));
        if !is_had {
            return Ok(None);
        }
        let block = BlockId(self.nr_taken);
        self.nr_taken += 1;
        self.taken.insert(block);
        Ok(Some(block))
    }

    fn free_block(&mut self, block: BlockId) -> Result<(), Failure> {
        assert!(self.taken.remove(&block), "{block:?} was not taken");
        self.events.push(Event::Free(block));
        Ok(())
    }

    fn knob(&mut self, name: &str) -> Result<String, Failure> {
        Err(Failure::Refused(format!("no knob {name}")))
    }

    fn set_knob(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        self.events.push(Event::Knob(name.to_owned(), value.to_owned()));
        Ok(())
    }

    fn counters(&mut self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    fn report(&mut self, like: &Metric, sample: f64) {
        let row = self.rows.entry(like.name.clone()).or_insert_with(|| like.clone());
        row.samples.push(sample);
    }

    fn latency(&mut self, class: &str, _: Ns) {
        *self.latencies.entry(class.to_owned()).or_default() += 1;
    }

    fn part(&mut self) {
        self.nr_parts += 1;
        if let Some(at_part) = &self.at_part {
            at_part();
        }
    }

    fn note_before(&mut self) {
        self.events.push(Event::Before);
    }

    fn note_held(&mut self) {
        self.events.push(Event::Held);
        self.held = Some(self.mapped.clone());
    }
}
