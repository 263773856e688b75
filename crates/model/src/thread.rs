//! One thread of a workload on the model.
//!
//! Departs: huge pages of the pool are asked for as since 3.12 (86cdb465cf3a). Visible as: on 3.3 and 3.4 they
//! come from movable pageblocks, too.

use super::handles::Handles;
use super::{Barrier, Moment, Shared, SharedRef, Spent, state};
use highorder_mm::gfp::Gfp;
use highorder_mm::kernel_use::KernelUse;
use highorder_mm::page_table::Vpn;
use highorder_mm::types::MAX_PAGE_ORDER;
use highorder_mm::vma::{HugeAdvice, ProcessId, Vma};
use highorder_mm::{Order, Pfn};
use highorder_record::Metric;
use highorder_record::ended::ended_early_note;
use highorder_sim::kernel::fault::{self, TouchError};
use highorder_sim::kernel::filemap::{self, FileError};
use highorder_sim::kernel::files::Readahead;
use highorder_sim::kernel::inodes::{self, OpenFile};
use highorder_sim::kernel::mmap_lock::{self, Hold};
use highorder_sim::kernel::{KernelCx, compaction, numa, oom, rootfs, slab, thp, writeback};
use highorder_sim::{Affinity, DeviceId, Mode, TaskSpec};
use highorder_system::{
    Access, Advice, Area, BarrierId, BlockId, Caches, Code, CpuUse, Extent, Failure, KernelBlock,
    MachineInfo, MemPolicy, Ns, Page, Pattern, Place, System, ThreadId, ThreadSpec,
};
use rand_core::Rng;
use rand_pcg::Pcg64;
use std::collections::BTreeMap;
use std::ops::Range;

/// Pages that a mapping has at most: all mappings together have numbers below 2^32.
const MAPPED_MOST: u64 = 1 << 31;

/// Begins the number of the random stream of address spaces: "mmapbase" in ASCII.
const MMAP_STREAM: u128 = 0x6d6d_6170_6261_7365 << 64;
/// `mmap_rnd_bits`, arch/x86/Kconfig: ARCH_MMAP_RND_BITS_MIN.
const MMAP_RND_BITS: u32 = 28;

/// Runs a thread's code; the process's memory goes with its last thread.
pub(super) fn run(
    cx: &mut KernelCx<'_>,
    shared: SharedRef,
    process: ProcessId,
    id: ThreadId,
    code: Code,
) {
    let machine = shared.borrow().machine.clone();
    let task = cx.task();
    cx.world().note_task(task, process);
    let mut thread = Thread {
        cx,
        shared,
        machine,
        process,
        id,
        policy: MemPolicy::Default,
        files: Handles::new(),
        blocks: Handles::new(),
    };
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
    files: Handles<(OpenFile, Readahead)>,
    /// Memory of the kernel's own that it has asked for.
    blocks: Handles<Block>,
}

/// Memory of the kernel's own.
#[derive(Clone, Copy)]
struct Block {
    pfn: Pfn,
    order: Order,
    kind: KernelBlock,
}

/// What a program learns of an error of files.
fn not_open(file: highorder_system::FileId) -> Failure {
    Failure::Refused(format!("file {} is not open", file.0))
}

fn only_read(name: &str) -> Failure {
    Failure::Refused(format!(
        "`{name}` is one of the files that the kernel started from: they are only read"
    ))
}

fn file_failure(error: FileError) -> Failure {
    match error {
        FileError::Killed => Failure::Killed,
        FileError::NoSpace => Failure::Refused("no space left on the disk".to_owned()),
    }
}

/// What a program learns of an access that failed.
fn touch_failure(error: TouchError) -> Failure {
    match error {
        TouchError::Killed => Failure::Killed,
        TouchError::BehindEnd { page, pages } => Failure::Refused(format!(
            "page {page} of a mapped file was touched, which has {pages} pages (SIGBUS)"
        )),
        TouchError::ReadOnly => {
            Failure::Refused("a file that is mapped to be read was written (SIGSEGV)".to_owned())
        }
    }
}

impl Thread<'_, '_> {
    fn exit(self, outcome: Result<(), Failure>) {
        let Thread { cx, shared, process, id, files, blocks, .. } = self;
        for (open, _) in files.into_held() {
            inodes::close(cx, open);
        }
        // Pipes and the module's file are closed with the thread; the pool of huge pages stays.
        for block in blocks.into_held().filter(|block| block.kind != KernelBlock::Hugetlb) {
            slab::free_block(cx, block.pfn, block.order);
        }
        let waiting = {
            let mut shared = shared.borrow_mut();
            let Shared { living, threads, failure, waiting, .. } = &mut *shared;
            living[process.0 as usize] -= 1;
            if id == ThreadId(0)
                && let Err(error) = &outcome
            {
                *failure = Some(ended_early_note(error));
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

    /// Maps anonymous memory that begins `offset` pages behind the place of a huge page.
    fn map_behind(&mut self, offset: u32, pages: u64) -> Result<Area, Failure> {
        self.system_call()?;
        if pages == 0 || pages > MAPPED_MOST {
            return Err(Failure::Refused(format!("{pages} pages, expected 1 to {MAPPED_MOST}")));
        }
        let (process, policy) = (self.process, self.policy);
        let first = mmap_lock::with(self.cx, process, Hold::Write, |cx| {
            let kernel = cx.world();
            let advice = kernel.first_advice(process);
            let spaces = &mut kernel.memory.spaces;
            let first = spaces.mmap_behind(process, offset, pages as u32, policy);
            if advice != HugeAdvice::None {
                spaces.change(first..Vpn(first.0 + pages as u32), |vma| vma.huge = advice);
            }
            first
        });
        Ok(Area { first: u64::from(first.0), pages })
    }

    /// Maps a new thread's stack and writes to it, as the C library does for the thread's own data.
    fn write_stack(&mut self) -> Result<Option<Vpn>, Failure> {
        if !self.cx.world().balances_numa() {
            return Ok(None);
        }
        let area = self.map_behind(0, 1)?;
        let page = Vpn(area.first as u32);
        fault::touch_range(self.cx, self.process, page, 1, Access::Write, fault::Extent::Word)
            .map_err(touch_failure)?;
        Ok(Some(page))
    }

    /// Whether the kernel has such a policy, and it is one.
    fn knows(&mut self, policy: MemPolicy, call: &str) -> Result<(), Failure> {
        let MemPolicy::PreferredMany(mask) = policy else { return Ok(()) };
        let refuse =
            |why: &str| Err(Failure::Refused(format!("{call}: MPOL_PREFERRED_MANY {why}")));
        if !self.cx.world().flows.numa.preferred_many {
            return refuse("is unknown to kernels before 5.15");
        }
        if mask == 0 { refuse("of no node") } else { Ok(()) }
    }

    /// Does something with the lock of the process held, unless the process was killed meanwhile.
    fn locked<R>(
        &mut self,
        hold: Hold,
        work: impl FnOnce(&mut Self) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let process = self.process;
        mmap_lock::lock(self.cx, process, hold);
        let result = self.check().and_then(|()| work(self));
        mmap_lock::unlock(self.cx, process, hold);
        result
    }

    /// Changes the mappings of a range.
    fn change(&mut self, area: Area, change: impl Fn(&mut Vma)) -> Result<(), Failure> {
        self.locked(Hold::Write, |thread| {
            let range = thread.range(area)?;
            thread.cx.world().memory.spaces.change(range, change);
            Ok(())
        })
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

    /// A file that the thread has open.
    fn open(
        &mut self,
        file: highorder_system::FileId,
    ) -> Result<&mut (OpenFile, Readahead), Failure> {
        self.files.get_mut(file.0).ok_or_else(|| not_open(file))
    }

    /// Refuses a name that a file has which the kernel unpacked.
    fn check_is_no_program(&self, name: &str) -> Result<(), Failure> {
        match self.shared.borrow().unpacked.contains_key(name) {
            true => Err(only_read(name)),
            false => Ok(()),
        }
    }

    /// Refuses to change a file that the kernel unpacked.
    fn check_may_change(&self, file: highorder_mm::filemap::FileId) -> Result<(), Failure> {
        let shared = self.shared.borrow();
        match shared.unpacked.iter().find(|&(_, &other)| other == file) {
            Some((name, _)) => Err(only_read(name)),
            None => Ok(()),
        }
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

/// The page below which a process's mappings lie.
///
/// Models: `mmap_base`, arch/x86/mm/mmap.c: 28 random bits.
/// Departs: each mapping begins as far behind a huge page's place as this is, where the kernel puts it below the
/// last. Visible as: mappings of other lengths than whole huge pages begin at other pages of one.
fn mmap_base(seed: u64, process: ProcessId) -> u64 {
    Pcg64::new(seed.into(), MMAP_STREAM | u128::from(process.0)).next_u64() >> (64 - MMAP_RND_BITS)
}

/// Where a task may run, if the machine has a CPU there.
fn affinity(machine: &MachineInfo, place: Place) -> Result<Affinity, Failure> {
    let refuse = |what| Err(Failure::Refused(what));
    match place {
        Place::Any => Ok(Affinity::Any),
        Place::Node(node) => {
            let is_there = machine.nodes.iter().any(|n| n.number == node && !n.cpus.is_empty());
            if is_there {
                return Ok(Affinity::Node(node));
            }
            refuse(format!("the machine has no CPU on node {node}"))
        }
        Place::Cpu(cpu) if cpu.0 < machine.nr_cpus() => Ok(Affinity::Cpu(cpu)),
        Place::Cpu(cpu) => refuse(format!("the machine has no CPU {}", cpu.0)),
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

    fn compute(&mut self, time: Ns) -> Result<(), Failure> {
        self.cx.keep_busy(time, Mode::User);
        self.check()
    }

    fn spawn(&mut self, spec: ThreadSpec, code: Code) -> Result<ThreadId, Failure> {
        self.system_call()?;
        let affinity = affinity(&self.machine, spec.place)?;
        let user_stack = if spec.new_process { None } else { self.write_stack()? };
        let stack = slab::alloc_stack(self.cx, Some(self.process));
        let stack =
            stack.ok_or_else(|| Failure::Refused("no memory for a thread's stack".to_owned()));
        if let Err(killed) = self.check() {
            if let Ok(stack) = stack {
                slab::free_stack(self.cx, stack);
            }
            return Err(killed);
        }
        let stack = stack?;
        let process = if spec.new_process {
            let disabled = self.cx.world().process(self.process).thp_disabled;
            let process = self.cx.world().add_process(&spec.name);
            self.cx.world().set_thp_disabled(process, disabled);
            process
        } else {
            self.process
        };
        let id = self.shared.borrow_mut().add_thread(process);
        let shared = self.shared.clone();
        let task = TaskSpec::user(spec.name).on(affinity);
        self.cx.spawn(task, move |cx| {
            if let Some(page) = user_stack {
                numa::use_stack(cx, page);
            }
            run(cx, shared, process, id, code);
            slab::free_stack(cx, stack);
        });
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
        let affinity = affinity(&self.machine, place)?;
        self.cx.set_affinity(affinity);
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

    fn set_thp_disable(&mut self, disable: bool) -> Result<(), Failure> {
        self.system_call()?;
        if self.cx.world().set_thp_disabled(self.process, disable) {
            return Ok(());
        }
        Err(Failure::Refused(
            "prctl(PR_SET_THP_DISABLE): unknown to kernels before 3.15".to_owned(),
        ))
    }

    fn mmap(&mut self, pages: u64) -> Result<Area, Failure> {
        self.map_behind(0, pages)
    }

    fn mmap_anywhere(&mut self, pages: u64) -> Result<Area, Failure> {
        let huge = self.machine.huge_pages;
        let is_whole = pages.is_multiple_of(huge);
        if is_whole && self.cx.world().flows.thp.aligns_mappings {
            return self.mmap(pages);
        }
        let offset = mmap_base(self.seed(), self.process) % huge;
        self.map_behind(offset as u32, pages)
    }

    fn munmap(&mut self, area: Area) -> Result<(), Failure> {
        self.system_call()?;
        let process = self.process;
        mmap_lock::lock(self.cx, process, Hold::Write);
        let range = match self.check().and_then(|()| self.range(area)) {
            Ok(range) => range,
            Err(failure) => {
                mmap_lock::unlock(self.cx, process, Hold::Write);
                return Err(failure);
            }
        };
        let hold = if self.cx.world().flows.mmap_lock.unmap_downgrades {
            mmap_lock::downgrade(self.cx, process);
            Hold::Read
        } else {
            Hold::Write
        };
        oom::unmap(self.cx, range);
        mmap_lock::unlock(self.cx, process, hold);
        self.check()
    }

    fn madvise(&mut self, area: Area, advice: Advice) -> Result<(), Failure> {
        self.system_call()?;
        let huge = match advice {
            Advice::Huge => HugeAdvice::Huge,
            Advice::NoHuge => HugeAdvice::NoHuge,
            Advice::NeitherHuge => HugeAdvice::None,
            Advice::DontNeed => {
                return self.locked(Hold::Read, |thread| {
                    let range = thread.range(area)?;
                    oom::zap(thread.cx, range);
                    thread.check()
                });
            }
        };
        self.change(area, |vma| {
            if vma.file.is_none() {
                vma.huge = huge;
            }
        })
    }

    fn mbind(&mut self, area: Area, policy: MemPolicy) -> Result<(), Failure> {
        self.system_call()?;
        self.knows(policy, "mbind")?;
        self.change(area, |vma| vma.policy = policy)
    }

    fn set_mempolicy(&mut self, policy: MemPolicy) -> Result<(), Failure> {
        self.system_call()?;
        self.knows(policy, "set_mempolicy")?;
        self.policy = policy;
        let process = self.process;
        self.cx.world().memory.spaces.set_task_policy(process, policy);
        Ok(())
    }

    fn mlock(&mut self, area: Area, locked: bool) -> Result<(), Failure> {
        self.system_call()?;
        let range = self.locked(Hold::Write, |thread| {
            let range = thread.range(area)?;
            thread.cx.world().memory.mlock(range.clone(), locked);
            Ok(range)
        })?;
        if locked {
            // What is missing is faulted in as by a write.
            let mut at = range.start;
            while at < range.end {
                let vma = self.cx.world().memory.spaces.find(at);
                let (end, is_file) =
                    vma.map_or((range.end, false), |vma| (vma.end, vma.file.is_some()));
                // Files are shared: `populate_vma_page_range` writes private memory alone.
                let access = if is_file { Access::Read } else { Access::Write };
                let pages = u64::from(end.min(range.end).0 - at.0);
                self.touch_range(Area { first: at.0.into(), pages }, Pattern::word(access))?;
                at = end;
            }
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
        fault::touch_range(self.cx, self.process, range.start, pages, pattern.access, extent)
            .map_err(touch_failure)?;
        Ok(())
    }

    fn is_present(&mut self, page: Page) -> Result<bool, Failure> {
        self.system_call()?;
        self.locked(Hold::Read, |thread| {
            let range = thread.range(Area { first: page.0, pages: 1 })?;
            Ok(thp::is_in_pagemap(thread.cx, thread.process, range.start))
        })
    }

    fn create_file(&mut self, name: &str) -> Result<highorder_system::FileId, Failure> {
        self.system_call()?;
        self.check_is_no_program(name)?;
        let old = self.shared.borrow_mut().files.remove(name);
        if let Some(old) = old {
            filemap::unlink(self.cx, old);
        }
        if self.cx.nr_devices() == 0 {
            return Err(Failure::Refused("this machine has no disk for files".to_owned()));
        }
        let open = inodes::create(self.cx, self.process, name, DeviceId(0));
        let number = self.files.add((open, Readahead::default()));
        let other = self.shared.borrow_mut().files.insert(name.to_owned(), open.file);
        if let Some(other) = other {
            // Another thread created it meanwhile.
            filemap::unlink(self.cx, other);
        }
        self.check()?;
        Ok(highorder_system::FileId(number))
    }

    fn open_file(&mut self, name: &str) -> Result<highorder_system::FileId, Failure> {
        self.system_call()?;
        let file = {
            let shared = self.shared.borrow();
            shared.files.get(name).or_else(|| shared.unpacked.get(name)).copied()
        };
        let file = file.ok_or_else(|| Failure::Refused(format!("no file `{name}`")))?;
        let open = inodes::open(self.cx, self.process, file);
        let number = self.files.add((open, Readahead::default()));
        self.check()?;
        Ok(highorder_system::FileId(number))
    }

    fn unpack_file(&mut self, name: &str, bytes: u64) -> Result<(), Failure> {
        self.system_call()?;
        self.check_is_no_program(name)?;
        if self.shared.borrow().files.contains_key(name) {
            return Err(Failure::Refused(format!("there is a file `{name}`")));
        }
        if self.cx.nr_devices() == 0 {
            return Err(Failure::Refused("this machine has no disk for files".to_owned()));
        }
        let file = rootfs::unpack(self.cx, self.process, bytes).map_err(file_failure)?;
        self.shared.borrow_mut().unpacked.insert(name.to_owned(), file);
        self.check()
    }

    fn file_bytes(&mut self, file: highorder_system::FileId) -> Result<u64, Failure> {
        self.system_call()?;
        let file = self.open(file)?.0.file;
        Ok(self.cx.world().file(file).size)
    }

    fn read_file(
        &mut self,
        file: highorder_system::FileId,
        offset: u64,
        bytes: u64,
    ) -> Result<(), Failure> {
        self.system_call()?;
        let (OpenFile { file: inode, .. }, mut readahead) = *self.open(file)?;
        let done = filemap::read(self.cx, self.process, inode, &mut readahead, offset, bytes);
        self.open(file)?.1 = readahead;
        done.map_err(file_failure)
    }

    fn send_file(
        &mut self,
        file: highorder_system::FileId,
        offset: u64,
        bytes: u64,
    ) -> Result<(), Failure> {
        self.system_call()?;
        let (OpenFile { file: inode, .. }, mut readahead) = *self.open(file)?;
        let done = filemap::send(self.cx, self.process, inode, &mut readahead, offset, bytes);
        self.open(file)?.1 = readahead;
        done.map_err(file_failure)
    }

    fn write_file(
        &mut self,
        file: highorder_system::FileId,
        offset: u64,
        bytes: u64,
    ) -> Result<(), Failure> {
        self.system_call()?;
        let file = self.open(file)?.0.file;
        self.check_may_change(file)?;
        filemap::write(self.cx, self.process, file, offset, bytes).map_err(file_failure)?;
        Ok(())
    }

    fn fsync(&mut self, file: highorder_system::FileId) -> Result<(), Failure> {
        self.system_call()?;
        let file = self.open(file)?.0.file;
        writeback::fsync(self.cx, file).map_err(file_failure)?;
        self.check()
    }

    fn unlink(&mut self, name: &str) -> Result<(), Failure> {
        self.system_call()?;
        self.check_is_no_program(name)?;
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

    fn drop_caches(&mut self, what: Caches) -> Result<(), Failure> {
        self.system_call()?;
        if what != Caches::Slab {
            filemap::drop_pagecache(self.cx);
        }
        if what != Caches::Pages {
            slab::drop_slab(self.cx);
        }
        self.check()
    }

    fn set_file_bytes(
        &mut self,
        file: highorder_system::FileId,
        bytes: u64,
    ) -> Result<(), Failure> {
        self.system_call()?;
        let file = self.open(file)?.0.file;
        self.check_may_change(file)?;
        filemap::set_size(self.cx, self.process, file, bytes).map_err(file_failure)?;
        Ok(())
    }

    fn close_file(&mut self, file: highorder_system::FileId) -> Result<(), Failure> {
        self.system_call()?;
        let (open, _) = self.files.take(file.0).ok_or_else(|| not_open(file))?;
        inodes::close(self.cx, open);
        Ok(())
    }

    fn map_file(
        &mut self,
        file: highorder_system::FileId,
        first: u64,
        pages: u64,
        access: Access,
    ) -> Result<Area, Failure> {
        self.system_call()?;
        if pages == 0 || pages > MAPPED_MOST {
            return Err(Failure::Refused(format!("{pages} pages, expected 1 to {MAPPED_MOST}")));
        }
        let file = self.open(file)?.0.file;
        let writable = access == Access::Write;
        if writable {
            self.check_may_change(file)?;
        }
        let start = self.locked(Hold::Write, |thread| {
            Ok(filemap::map(thread.cx, thread.process, file, first, pages as u32, writable))
        })?;
        let start = start.ok_or_else(|| Failure::Refused("the file was deleted".to_owned()))?;
        Ok(Area { first: u64::from(start.0), pages })
    }

    fn take_block(&mut self, kind: KernelBlock) -> Result<Option<BlockId>, Failure> {
        self.system_call()?;
        let huge_order = self.cx.world().memory.policy.freelist.pageblock_order;
        let possible = |order: u8| match order {
            0..=MAX_PAGE_ORDER => Ok(Order(order)),
            _ => Err(Failure::Refused(format!(
                "a block of order {order}, expected 0 to {MAX_PAGE_ORDER}"
            ))),
        };
        // `alloc_buddy_hugetlb_folio`, mm/hugetlb.c: user pages, since 3.12 such that migration can move, and that are
        // worth some trying (`__GFP_REPEAT` before 4.13). `anon_pipe_get_page`, fs/pipe.c: GFP_HIGHUSER.
        let (order, gfp, of) = match kind {
            KernelBlock::Hugetlb => {
                let insists = Gfp::REPEAT | Gfp::RETRY_MAYFAIL;
                let user = match self.cx.world().flows.hugetlb.movable {
                    true => Gfp::HIGHUSER_MOVABLE,
                    false => Gfp::HIGHUSER,
                };
                let gfp = user | Gfp::COMP | Gfp::NOWARN | insists;
                (huge_order, gfp, KernelUse::Hugetlb)
            }
            KernelBlock::PipeBuffer => (Order(0), Gfp::HIGHUSER, KernelUse::Pipe),
            KernelBlock::Module { order } => {
                (possible(order)?, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN, KernelUse::Module)
            }
            KernelBlock::Own { order, may_wait, is_reclaimable } => {
                let mut gfp = if may_wait { Gfp::KERNEL } else { Gfp::NOWAIT } | Gfp::NOWARN;
                gfp |= if is_reclaimable { Gfp::RECLAIMABLE } else { Gfp::NONE };
                gfp |= if order > 0 { Gfp::COMP } else { Gfp::NONE };
                (possible(order)?, gfp, KernelUse::Unknown)
            }
        };
        let found = slab::take_block(self.cx, order, gfp, of, Some(self.process));
        let number = found.map(|pfn| self.blocks.add(Block { pfn, order, kind }));
        self.check()?;
        Ok(number.map(BlockId))
    }

    fn free_block(&mut self, block: BlockId) -> Result<(), Failure> {
        self.system_call()?;
        let taken = self.blocks.take(block.0);
        let Block { pfn, order, .. } =
            taken.ok_or_else(|| Failure::Refused(format!("block {} was not given", block.0)))?;
        slab::free_block(self.cx, pfn, order);
        Ok(())
    }

    fn knob(&mut self, name: &str) -> Result<String, Failure> {
        self.system_call()?;
        let settings = self.shared.borrow().settings;
        let value = settings.get(name, self.cx.world());
        value.ok_or_else(|| Failure::Refused(format!("this kernel has no knob `{name}`")))
    }

    fn set_knob(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        self.system_call()?;
        if name == "vm.compact_memory" {
            if value != "1" {
                return Err(Failure::Refused(format!("`{name}` is `{value}`, expected 1")));
            }
            compaction::compact_memory(self.cx);
            return self.check();
        }
        let settings = {
            let mut shared = self.shared.borrow_mut();
            shared.settings.set(name, value).map_err(Failure::Refused)?;
            shared.settings
        };
        let kernel = self.cx.world();
        kernel.knobs = settings.knobs;
        settings.apply(&mut kernel.memory.policy);
        let raises_marks = ["vm.min_free_kbytes", "transparent_hugepage/enabled"];
        if name.starts_with("vm.watermark") || raises_marks.contains(&name) {
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

    fn part(&mut self) {
        let part = self.shared.borrow_mut().part.take();
        if let Some(part) = part {
            let inputs = part();
            self.shared.borrow_mut().inputs = inputs;
        }
    }

    fn note_before(&mut self) {
        let before = state::of(self.cx.world());
        let so_far = Spent {
            elapsed: self.cx.now(),
            programs: self.cx.programs_times(),
            idle: self.cx.idle_times(),
        };
        let mut shared = self.shared.borrow_mut();
        (shared.before, shared.so_far) = (Some(before), so_far);
        self.cx.world().restart_compaction_peaks();
    }

    fn note_held(&mut self) {
        let kernel = self.cx.world();
        let mut shared = self.shared.borrow_mut();
        shared.held = Some(state::of(kernel));
        shared.draw(kernel, Moment::Held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_and_every_seed_has_mappings_of_its_own_place() {
        let bases: Vec<u64> =
            (0..100).map(|n| mmap_base(n / 10, ProcessId((n % 10) as u32))).collect();
        assert!(bases.iter().all(|&base| base < 1 << MMAP_RND_BITS));
        let mut places: Vec<u64> = bases.iter().map(|base| base % 512).collect();
        places.sort_unstable();
        places.dedup();
        assert!(places.len() > 80, "{} places", places.len());
        assert_eq!(mmap_base(7, ProcessId(3)), mmap_base(7, ProcessId(3)));
    }
}
