//! One thread of a workload on the model.

use super::{Barrier, Moment, Shared, SharedRef, state};
use crate::{
    Access, Advice, Area, BarrierId, Code, CpuUse, Extent, Failure, MachineInfo, MemPolicy, Ns,
    Page, Pattern, Place, System, ThreadId, ThreadSpec,
};
use highorder_mm::filemap::FileId;
use highorder_mm::page_table::Vpn;
use highorder_mm::vma::{HugeAdvice, TaskId as ProcessId};
use highorder_record::Metric;
use highorder_sim::kernel::fault::{self, Killed};
use highorder_sim::kernel::filemap::{self, FileError};
use highorder_sim::kernel::files::Readahead;
use highorder_sim::kernel::{KernelCx, oom, writeback};
use highorder_sim::{Affinity, CpuId, DeviceId, Mode, TaskSpec};
use std::collections::BTreeMap;
use std::ops::Range;

/// Runs a thread's code; the process's memory goes with its last thread.
pub(super) fn run(
    cx: &mut KernelCx<'_>,
    shared: SharedRef,
    process: ProcessId,
    id: ThreadId,
    code: Code,
) {
    let machine = shared.borrow().machine.clone();
    let mut thread =
        Thread { cx, shared, machine, process, id, policy: MemPolicy::Default, files: Vec::new() };
    let outcome = code(&mut thread);
    thread.exit(outcome);
}

pub(super) struct Thread<'a, 'b> {
    cx: &'a mut KernelCx<'b>,
    shared: SharedRef,
    machine: MachineInfo,
    process: ProcessId,
    id: ThreadId,
    policy: MemPolicy,
    /// Files that it has open, and how it reads them.
    files: Vec<(FileId, Readahead)>,
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Killed => Self::Killed,
            FileError::NoSpace => Self::Refused("no space left on the disk".to_owned()),
        }
    }
}

impl From<Killed> for Failure {
    fn from(_: Killed) -> Self {
        Self::Killed
    }
}

impl Thread<'_, '_> {
    fn exit(self, outcome: Result<(), Failure>) {
        let Thread { cx, shared, process, id, .. } = self;
        let waiting = {
            let mut shared = shared.borrow_mut();
            let Shared { living, threads, failure, waiting, .. } = &mut *shared;
            living[process.0 as usize] -= 1;
            if id == ThreadId(0)
                && let Err(error) = &outcome
            {
                *failure = Some(format!("the workload ended early: {error}"));
            }
            threads[id.0 as usize].outcome = Some(outcome);
            *waiting
        };
        let is_last = shared.borrow().living[process.0 as usize] == 0;
        if is_last {
            oom::exit_mmap(cx, process);
        }
        cx.wake_all(waiting);
    }

    /// Enters the kernel, unless the process is killed.
    fn system_call(&mut self) -> Result<(), Failure> {
        let cost = self.cx.world().costs.system_call.once();
        self.cx.spend(cost, Mode::System);
        self.check()
    }

    fn check(&mut self) -> Result<(), Failure> {
        if self.cx.world().process(self.process).killed { Err(Failure::Killed) } else { Ok(()) }
    }

    /// The pages of a range that the process has mapped.
    fn range(&mut self, area: Area) -> Result<Range<Vpn>, Failure> {
        let refuse =
            || Failure::Refused(format!("pages {}+{} are not mapped", area.first, area.pages));
        let first = u32::try_from(area.first).map_err(|_| refuse())?;
        let end = u32::try_from(area.first + area.pages).map_err(|_| refuse())?;
        let spaces = &self.cx.world().memory.spaces;
        let mut at = first;
        while at < end {
            match spaces.find(Vpn(at)) {
                Some(vma) if vma.task == self.process => at = vma.end.0,
                _ => return Err(refuse()),
            }
        }
        Ok(Vpn(first)..Vpn(end))
    }

    /// Waits until `ready` holds; whoever changes what it looks at wakes all who wait.
    fn wait_until(&mut self, ready: impl Fn(&Shared) -> bool) -> Result<(), Failure> {
        loop {
            self.check()?;
            let waiting = {
                let shared = self.shared.borrow();
                if ready(&shared) {
                    return Ok(());
                }
                shared.waiting
            };
            self.cx.wait(waiting);
        }
    }
}

fn affinity(place: Place) -> Affinity {
    match place {
        Place::Any => Affinity::Any,
        Place::Node(node) => Affinity::Node(node),
        Place::Cpu(cpu) => Affinity::Cpu(CpuId(cpu)),
    }
}

impl System for Thread<'_, '_> {
    fn machine(&self) -> &MachineInfo {
        &self.machine
    }

    fn seed(&self) -> u64 {
        self.shared.borrow().seed
    }

    fn now(&mut self) -> Ns {
        self.cx.now()
    }

    fn cpu_use(&mut self) -> CpuUse {
        let [user, system] = self.cx.programs_times();
        CpuUse { user, system }
    }

    fn sleep(&mut self, time: Ns) -> Result<(), Failure> {
        self.system_call()?;
        let end = self.cx.now().saturating_add(time);
        let waiting = self.shared.borrow().waiting;
        loop {
            self.check()?;
            let left = end.saturating_sub(self.cx.now());
            if left == Ns::ZERO {
                return Ok(());
            }
            self.cx.wait_timeout(waiting, left);
        }
    }

    fn spawn(&mut self, spec: ThreadSpec, code: Code) -> Result<ThreadId, Failure> {
        self.system_call()?;
        let process =
            if spec.new_process { self.cx.world().add_process(&spec.name) } else { self.process };
        let id = self.shared.borrow_mut().add_thread(process);
        let shared = self.shared.clone();
        let task = TaskSpec::user(spec.name).on(affinity(spec.place));
        self.cx.spawn(task, move |cx| run(cx, shared, process, id, code));
        Ok(id)
    }

    fn join(&mut self, thread: ThreadId) -> Result<(), Failure> {
        self.system_call()?;
        let at = thread.0 as usize;
        self.wait_until(|shared| shared.threads[at].outcome.is_some())?;
        self.shared.borrow().threads[at].outcome.clone().unwrap_or(Ok(()))
    }

    fn set_place(&mut self, place: Place) -> Result<(), Failure> {
        self.system_call()?;
        self.cx.set_affinity(affinity(place));
        Ok(())
    }

    fn new_barrier(&mut self, parties: u32) -> Result<BarrierId, Failure> {
        if parties == 0 {
            return Err(Failure::Refused("a barrier for nobody".to_owned()));
        }
        let barriers = &mut self.shared.borrow_mut().barriers;
        barriers.push(Barrier { parties, arrived: 0, round: 0 });
        Ok(BarrierId(barriers.len() as u32 - 1))
    }

    fn barrier(&mut self, barrier: BarrierId) -> Result<(), Failure> {
        self.system_call()?;
        let at = barrier.0 as usize;
        let (round, complete, waiting) = {
            let mut shared = self.shared.borrow_mut();
            let waiting = shared.waiting;
            let barrier = &mut shared.barriers[at];
            let round = barrier.round;
            barrier.arrived += 1;
            let complete = barrier.arrived == barrier.parties;
            if complete {
                barrier.arrived = 0;
                barrier.round += 1;
            }
            (round, complete, waiting)
        };
        if complete {
            self.cx.wake_all(waiting);
            return Ok(());
        }
        self.wait_until(|shared| shared.barriers[at].round > round)
    }

    fn mmap(&mut self, pages: u64) -> Result<Area, Failure> {
        self.system_call()?;
        // All mappings together have numbers below 2^32.
        const MOST: u64 = 1 << 31;
        if pages == 0 || pages > MOST {
            return Err(Failure::Refused(format!("{pages} pages, expected 1 to {MOST}")));
        }
        let (process, policy) = (self.process, self.policy);
        let first = self.cx.world().memory.spaces.mmap(process, pages as u32, policy);
        Ok(Area { first: u64::from(first.0), pages })
    }

    fn munmap(&mut self, area: Area) -> Result<(), Failure> {
        self.system_call()?;
        let range = self.range(area)?;
        oom::unmap(self.cx, range);
        self.check()
    }

    fn madvise(&mut self, area: Area, advice: Advice) -> Result<(), Failure> {
        self.system_call()?;
        let range = self.range(area)?;
        let huge = match advice {
            Advice::Huge => HugeAdvice::Huge,
            Advice::NoHuge => HugeAdvice::NoHuge,
            Advice::DontNeed => {
                oom::zap(self.cx, range);
                return self.check();
            }
        };
        self.cx.world().memory.spaces.change(range, |vma| vma.huge = huge);
        Ok(())
    }

    fn mbind(&mut self, area: Area, policy: MemPolicy) -> Result<(), Failure> {
        self.system_call()?;
        let range = self.range(area)?;
        self.cx.world().memory.spaces.change(range, |vma| vma.policy = policy);
        Ok(())
    }

    fn set_mempolicy(&mut self, policy: MemPolicy) -> Result<(), Failure> {
        self.system_call()?;
        self.policy = policy;
        Ok(())
    }

    fn mlock(&mut self, area: Area, locked: bool) -> Result<(), Failure> {
        self.system_call()?;
        let range = self.range(area)?;
        self.cx.world().memory.mlock(range, locked);
        if locked {
            // What is missing is faulted in as by a write.
            self.touch_range(area, Pattern::word(Access::Write))?;
        }
        Ok(())
    }

    fn touch(&mut self, page: Page, access: Access) -> Result<(), Failure> {
        self.touch_range(Area { first: page.0, pages: 1 }, Pattern::word(access))
    }

    fn touch_range(&mut self, area: Area, pattern: Pattern) -> Result<(), Failure> {
        self.check()?;
        let range = self.range(area)?;
        let extent = match pattern.extent {
            Extent::Word => fault::Extent::Word,
            Extent::Whole => fault::Extent::Whole,
        };
        let pages = range.end.0 - range.start.0;
        fault::touch_range(self.cx, self.process, range.start, pages, pattern.access, extent)?;
        Ok(())
    }

    fn is_present(&mut self, page: Page) -> Result<bool, Failure> {
        self.system_call()?;
        let range = self.range(Area { first: page.0, pages: 1 })?;
        Ok(self.cx.world().memory.spaces.table().frame_at(range.start).is_some())
    }

    fn create_file(&mut self, name: &str) -> Result<crate::FileId, Failure> {
        self.system_call()?;
        let old = self.shared.borrow_mut().files.remove(name);
        if let Some(old) = old {
            filemap::unlink(self.cx, old);
        }
        if self.cx.nr_devices() == 0 {
            return Err(Failure::Refused("this machine has no disk for files".to_owned()));
        }
        let file = self.cx.world().create_file(DeviceId(0));
        self.shared.borrow_mut().files.insert(name.to_owned(), file);
        self.files.push((file, Readahead::default()));
        Ok(crate::FileId(self.files.len() as u32 - 1))
    }

    fn open_file(&mut self, name: &str) -> Result<crate::FileId, Failure> {
        self.system_call()?;
        let file = self.shared.borrow().files.get(name).copied();
        let file = file.ok_or_else(|| Failure::Refused(format!("no file `{name}`")))?;
        self.files.push((file, Readahead::default()));
        Ok(crate::FileId(self.files.len() as u32 - 1))
    }

    fn file_bytes(&mut self, file: crate::FileId) -> Result<u64, Failure> {
        self.system_call()?;
        let (file, _) = self.files[file.0 as usize];
        Ok(self.cx.world().file(file).size)
    }

    fn read_file(&mut self, file: crate::FileId, offset: u64, bytes: u64) -> Result<(), Failure> {
        self.system_call()?;
        let (file, readahead) = &mut self.files[file.0 as usize];
        filemap::read(self.cx, self.process, *file, readahead, offset, bytes)?;
        Ok(())
    }

    fn write_file(&mut self, file: crate::FileId, offset: u64, bytes: u64) -> Result<(), Failure> {
        self.system_call()?;
        let (file, _) = self.files[file.0 as usize];
        filemap::write(self.cx, self.process, file, offset, bytes)?;
        Ok(())
    }

    fn fsync(&mut self, file: crate::FileId) -> Result<(), Failure> {
        self.system_call()?;
        let (file, _) = self.files[file.0 as usize];
        writeback::fsync(self.cx, file);
        self.check()
    }

    fn unlink(&mut self, name: &str) -> Result<(), Failure> {
        self.system_call()?;
        let file = self.shared.borrow_mut().files.remove(name);
        let file = file.ok_or_else(|| Failure::Refused(format!("no file `{name}`")))?;
        filemap::unlink(self.cx, file);
        self.check()
    }

    fn sync(&mut self) -> Result<(), Failure> {
        self.system_call()?;
        writeback::sync(self.cx);
        self.check()
    }

    fn drop_caches(&mut self) -> Result<(), Failure> {
        self.system_call()?;
        filemap::drop_pagecache(self.cx);
        self.check()
    }

    fn knob(&mut self, name: &str) -> Result<String, Failure> {
        self.system_call()?;
        let settings = self.shared.borrow().settings;
        let value = settings.get(name, self.cx.world());
        value.ok_or_else(|| Failure::Refused(format!("this kernel has no knob `{name}`")))
    }

    fn set_knob(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        self.system_call()?;
        let settings = {
            let mut shared = self.shared.borrow_mut();
            shared.settings.set(name, value).map_err(Failure::Refused)?;
            shared.settings
        };
        let kernel = self.cx.world();
        kernel.knobs = settings.knobs;
        settings.apply(&mut kernel.memory.policy);
        if name.starts_with("vm.watermark") || name == "vm.min_free_kbytes" {
            settings.apply_to_marks(kernel);
        }
        Ok(())
    }

    fn counters(&mut self) -> BTreeMap<String, u64> {
        state::counters(self.cx.world())
    }

    fn report(&mut self, like: &Metric, sample: f64) {
        let metrics = &mut self.shared.borrow_mut().metrics;
        match metrics.iter_mut().find(|metric| metric.name == like.name) {
            Some(metric) => metric.samples.push(sample),
            None => metrics.push(like.clone().with_samples([sample])),
        }
    }

    fn latency(&mut self, class: &str, latency: Ns) {
        let latencies = &mut self.shared.borrow_mut().latencies;
        latencies.entry(class.to_owned()).or_default().record(latency.0);
    }

    fn note_before(&mut self) {
        let before = state::of(self.cx.world());
        self.shared.borrow_mut().before = Some(before);
    }

    fn note_held(&mut self) {
        let kernel = self.cx.world();
        let mut shared = self.shared.borrow_mut();
        shared.held = Some(state::of(kernel));
        shared.draw(&kernel.memory, Moment::Held);
    }
}
