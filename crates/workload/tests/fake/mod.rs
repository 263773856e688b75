//! A system that keeps account of what it is asked: threads run at once when they are started, one after
//! another, and nothing is simulated but who mapped and touched what.

use highorder_record::Metric;
use highorder_system::{
    Access, Advice, Area, BarrierId, Code, CpuUse, Failure, FileId, MachineInfo, MemPolicy,
    NodeInfo, Ns, Page, Pattern, Place, System, ThreadId, ThreadSpec,
};
use std::collections::BTreeMap;

/// What each page touched costs here, in the kernel and outside.
const SYSTEM_NS: u64 = 10;
const USER_NS: u64 = 1;

/// A mapped area.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    pub(crate) area: Area,
    pub(crate) process: usize,
    pub(crate) advice: Option<Advice>,
    /// How often each page was written.
    pub(crate) writes: Vec<u64>,
}

/// A process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Process {
    pub(crate) killed: bool,
}

/// Something a workload did, in the order it did so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Spawn(ThreadSpec),
    Map(Area),
    Touch(Area, Pattern),
    Unmap(Area),
    Held,
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
    /// Mappings that are granted; the next is refused.
    pub(crate) mappings_max: usize,
    processes: Vec<Process>,
    /// Files by name, with their sizes.
    pub(crate) files: Vec<(String, u64)>,
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
        let node = |number| NodeInfo {
            number,
            total_pages: total_pages / 2,
            cpus: vec![2 * number, 2 * number + 1],
        };
        let machine = MachineInfo {
            total_pages,
            nodes: vec![node(0), node(1)],
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
            mappings_max: usize::MAX,
            files: Vec::new(),
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
    /// nothing is left mapped.
    pub(crate) fn run(&mut self, code: Code) -> Result<(), Failure> {
        let result = code(self);
        assert_eq!(self.ended, BTreeMap::new(), "threads that nobody waited for");
        if result.is_ok() {
            assert!(self.mapped.is_empty(), "left mapped: {:?}", self.mapped);
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
        Ok(())
    }

    fn spawn(&mut self, spec: ThreadSpec, code: Code) -> Result<ThreadId, Failure> {
        self.alive()?;
        assert!(spec.name.len() <= 15, "`{}` is too long for a thread", spec.name);
        if let Place::Node(node) = spec.place
            && node as usize >= self.machine.nodes.len()
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

    fn set_place(&mut self, _: Place) -> Result<(), Failure> {
        unreachable!("no workload here moves a thread")
    }

    fn new_barrier(&mut self, _: u32) -> Result<BarrierId, Failure> {
        unreachable!("threads run one after another here")
    }

    fn barrier(&mut self, _: BarrierId) -> Result<(), Failure> {
        unreachable!("threads run one after another here")
    }

    fn mmap(&mut self, pages: u64) -> Result<Area, Failure> {
        self.alive()?;
        assert!(pages > 0, "an area of no pages");
        if self.mapped.len() >= self.mappings_max {
            return Err(Failure::Refused("no room for another mapping".to_owned()));
        }
        let area = Area { first: self.next_page, pages };
        // A hole after each, so that nothing is touched beyond an end unnoticed.
        self.next_page = (area.first + pages + 1).next_multiple_of(512);
        let writes = vec![0; pages as usize];
        let process = self.process();
        self.mapped.push(Mapping { area, process, advice: None, writes });
        self.events.push(Event::Map(area));
        self.peak = self.peak.max(self.mapped_pages());
        Ok(area)
    }

    fn munmap(&mut self, area: Area) -> Result<(), Failure> {
        self.alive()?;
        assert_eq!(self.mapping(area).area, area, "a part is unmapped");
        let position = self.mapped.iter().position(|mapping| mapping.area == area).unwrap();
        let mapping = self.mapped.remove(position);
        self.unmapped.push(mapping);
        self.events.push(Event::Unmap(area));
        Ok(())
    }

    fn madvise(&mut self, area: Area, advice: Advice) -> Result<(), Failure> {
        self.alive()?;
        let mapping = self.mapping(area);
        assert_eq!(mapping.area, area, "a part is advised about");
        assert!(mapping.writes.iter().all(|&writes| writes == 0), "advised after it was written");
        mapping.advice = Some(advice);
        Ok(())
    }

    fn mbind(&mut self, _: Area, _: MemPolicy) -> Result<(), Failure> {
        unreachable!("no workload here binds memory")
    }

    fn set_mempolicy(&mut self, _: MemPolicy) -> Result<(), Failure> {
        unreachable!("no workload here binds memory")
    }

    fn mlock(&mut self, _: Area, _: bool) -> Result<(), Failure> {
        unreachable!("no workload here locks memory")
    }

    fn touch(&mut self, page: Page, access: Access) -> Result<(), Failure> {
        self.touch_range(Area { first: page.0, pages: 1 }, Pattern::word(access))
    }

    fn touch_range(&mut self, area: Area, pattern: Pattern) -> Result<(), Failure> {
        self.alive()?;
        assert_eq!(pattern.access, Access::Write, "no workload here reads");
        let mapping = self.mapping(area);
        let start = (area.first - mapping.area.first) as usize;
        for writes in &mut mapping.writes[start..start + area.pages as usize] {
            *writes += 1;
        }
        self.events.push(Event::Touch(area, pattern));
        self.cpu.system += Ns(SYSTEM_NS) * area.pages;
        self.cpu.user += Ns(USER_NS) * area.pages;
        self.now += Ns(SYSTEM_NS + USER_NS) * area.pages;
        let present = |mapping: &Mapping| mapping.writes.iter().filter(|&&n| n > 0).count() as u64;
        if self.mapped.iter().map(present).sum::<u64>() > self.capacity {
            return Err(self.kill());
        }
        Ok(())
    }

    fn is_present(&mut self, page: Page) -> Result<bool, Failure> {
        let mapping = self.mapping(Area { first: page.0, pages: 1 });
        Ok(mapping.writes[(page.0 - mapping.area.first) as usize] > 0)
    }

    fn create_file(&mut self, name: &str) -> Result<FileId, Failure> {
        self.files.push((name.to_owned(), 0));
        Ok(FileId(self.files.len() as u32 - 1))
    }

    fn open_file(&mut self, name: &str) -> Result<FileId, Failure> {
        let at = self.files.iter().rposition(|(other, _)| other == name);
        at.map(|at| FileId(at as u32)).ok_or_else(|| Failure::Refused(format!("no file {name}")))
    }

    fn file_bytes(&mut self, file: FileId) -> Result<u64, Failure> {
        Ok(self.files[file.0 as usize].1)
    }

    fn read_file(&mut self, file: FileId, offset: u64, bytes: u64) -> Result<(), Failure> {
        assert!(offset + bytes <= self.files[file.0 as usize].1, "reads what was written");
        Ok(())
    }

    fn write_file(&mut self, file: FileId, offset: u64, bytes: u64) -> Result<(), Failure> {
        let size = &mut self.files[file.0 as usize].1;
        *size = (offset + bytes).max(*size);
        Ok(())
    }

    fn fsync(&mut self, _: FileId) -> Result<(), Failure> {
        Ok(())
    }

    fn unlink(&mut self, name: &str) -> Result<(), Failure> {
        let at = self.files.iter().rposition(|(other, _)| other == name).expect("it is there");
        self.files[at].0.clear();
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn drop_caches(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn knob(&mut self, name: &str) -> Result<String, Failure> {
        Err(Failure::Refused(format!("no knob {name}")))
    }

    fn set_knob(&mut self, name: &str, _: &str) -> Result<(), Failure> {
        Err(Failure::Refused(format!("no knob {name}")))
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

    fn note_before(&mut self) {}

    fn note_held(&mut self) {
        self.events.push(Event::Held);
        self.held = Some(self.mapped.clone());
    }
}
