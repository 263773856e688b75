//! Memory that all processes of a run share: who runs, who waits for whom, what was used.
//!
//! Nothing but atomics, so that a process that is killed at any moment leaves nothing locked.

use crate::clock::{now_ns, timespec};
use highorder_system::{Failure, Ns};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::thread::futex;
use std::ops::Deref;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::SeqCst};

pub(crate) const TASKS_MAX: usize = 8192;
pub(crate) const PROCESSES_MAX: usize = 1024;
pub(crate) const BARRIERS_MAX: usize = 1024;
const TEXT_BYTES: usize = 240;

/// How a task is.
pub(crate) mod state {
    pub(crate) const RUNNING: u32 = 1;
    pub(crate) const DONE: u32 = 2;
    pub(crate) const KILLED: u32 = 3;
    pub(crate) const REFUSED: u32 = 4;
    pub(crate) const PANICKED: u32 = 5;
    /// Its process ended by another signal than SIGKILL, or without a word.
    pub(crate) const DIED: u32 = 6;
}

/// What a task waits for, in its `waits`: a kind in the highest bits, then what the kind needs.
mod waits {
    pub(super) const NOTHING: u64 = 0;
    pub(super) const JOIN: u64 = 1 << 62;
    pub(super) const BARRIER: u64 = 2 << 62;
    pub(super) const KIND: u64 = 3 << 62;
}

/// A text of at most [`TEXT_BYTES`].
#[repr(C)]
pub(crate) struct Text {
    len: AtomicU32,
    bytes: [AtomicU8; TEXT_BYTES],
}

impl Text {
    pub(crate) fn set(&self, text: &str) {
        let len = (0..=text.len().min(TEXT_BYTES)).rev().find(|&i| text.is_char_boundary(i));
        let bytes = &text.as_bytes()[..len.unwrap_or(0)];
        for (to, &from) in self.bytes.iter().zip(bytes) {
            to.store(from, SeqCst);
        }
        self.len.store(bytes.len() as u32, SeqCst);
    }

    pub(crate) fn get(&self) -> String {
        let len = (self.len.load(SeqCst) as usize).min(TEXT_BYTES);
        let bytes: Vec<u8> = self.bytes[..len].iter().map(|byte| byte.load(SeqCst)).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// A thread of the workload.
#[repr(C)]
pub(crate) struct Task {
    /// One of [`state`]; a futex.
    pub(crate) state: AtomicU32,
    /// How its code ended, if it is the first of a process that has not been waited for yet.
    pub(crate) outcome: AtomicU32,
    pub(crate) process: AtomicU32,
    waits: AtomicU64,
    /// The answer to what it asked of the run's first process: 0 none, 1 done, 2 failed; a futex.
    pub(crate) reply: AtomicU32,
    pub(crate) name: Text,
    /// Why it was refused, or what its panic said.
    pub(crate) text: Text,
}

/// A process of the workload.
#[repr(C)]
pub(crate) struct Process {
    pub(crate) pid: AtomicU32,
    pub(crate) mapped_pages: AtomicU64,
    /// CPU time of its children that it waited for: the kernel adds it to its own.
    children_user_ns: AtomicU64,
    children_system_ns: AtomicU64,
    /// Who waits for it; itself for the first.
    pub(crate) parent: AtomicU32,
}

#[repr(C)]
struct Barrier {
    parties: AtomicU32,
    arrived: AtomicU32,
    /// A futex.
    generation: AtomicU32,
}

/// All of it. Zeros are its first state.
#[repr(C)]
pub(crate) struct Shared {
    /// 1 when the first process stands ready; a futex.
    pub(crate) is_ready: AtomicU32,
    /// 1 when the workload may begin; a futex.
    gate: AtomicU32,
    /// When it began, and when its last process ended.
    pub(crate) began_ns: AtomicU64,
    pub(crate) ended_ns: AtomicU64,
    /// When its preparation had ended, and what CPU time that had taken; 0 if it has none.
    pub(crate) prepared_ns: AtomicU64,
    pub(crate) prepared_user_ns: AtomicU64,
    pub(crate) prepared_system_ns: AtomicU64,
    /// CPU time of processes that have ended.
    pub(crate) user_ns: AtomicU64,
    pub(crate) system_ns: AtomicU64,
    pub(crate) resident_kib_max: AtomicU64,
    pub(crate) nr_killed: AtomicU32,
    /// Pages that may be mapped at once, and that are.
    pub(crate) allowed_pages: AtomicU64,
    mapped_pages: AtomicU64,
    /// How often a file of the run was cut.
    pub(crate) cuts: AtomicU64,
    /// Whether it is on the disk what the hugetlb pool held.
    pub(crate) is_pool_kept: AtomicU32,
    /// Whether a mapping was refused because it would not leave the machine enough.
    pub(crate) was_over: AtomicU32,
    next_task: AtomicU32,
    next_process: AtomicU32,
    next_barrier: AtomicU32,
    tasks: [Task; TASKS_MAX],
    processes: [Process; PROCESSES_MAX],
    barriers: [Barrier; BARRIERS_MAX],
}

/// The mapping of a [`Shared`], gone when dropped.
pub(crate) struct Mapping(&'static Shared);

#[allow(unsafe_code, reason = "memory shared by processes")]
impl Mapping {
    pub(crate) fn new() -> rustix::io::Result<Self> {
        // SAFETY: a new mapping, zeroed, and zeros are a valid `Shared`, which is atomics alone.
        // Pages are there when they are touched: most tasks never are.
        unsafe {
            let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
            let at = mmap_anonymous(std::ptr::null_mut(), size_of::<Shared>(), access, flags)?;
            Ok(Self(&*at.cast::<Shared>()))
        }
    }

    /// The reference for a process that keeps the mapping to its end.
    pub(crate) fn forever(&self) -> &'static Shared {
        self.0
    }
}

impl Deref for Mapping {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        self.0
    }
}

#[allow(unsafe_code, reason = "memory shared by processes")]
impl Drop for Mapping {
    fn drop(&mut self) {
        let at: *const Shared = self.0;
        // SAFETY: mapped by `new`; `forever` is for processes that never drop it.
        let _ = unsafe { munmap(at.cast_mut().cast(), size_of::<Shared>()) };
    }
}

/// Waits while the word has this value; may return early.
fn wait(word: &AtomicU32, value: u32, time: Option<Ns>) {
    let time = time.map(timespec);
    // Woken, changed already, interrupted or timed out: the caller looks again.
    let _ = futex::wait(word, futex::Flags::empty(), value, time.as_ref());
}

fn wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

impl Shared {
    /// Time since the run began.
    pub(crate) fn now(&self) -> Ns {
        Ns(now_ns().saturating_sub(self.began_ns.load(SeqCst)))
    }

    pub(crate) fn task(&self, task: u32) -> &Task {
        &self.tasks[task as usize]
    }

    pub(crate) fn process(&self, process: u32) -> &Process {
        &self.processes[process as usize]
    }

    fn started_tasks(&self) -> &[Task] {
        &self.tasks[..(self.next_task.load(SeqCst) as usize).min(TASKS_MAX)]
    }

    pub(crate) fn started_processes(&self) -> &[Process] {
        &self.processes[..(self.next_process.load(SeqCst) as usize).min(PROCESSES_MAX)]
    }

    // Gate

    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.load(SeqCst) != 0
    }

    /// Waits a moment for the first process.
    pub(crate) fn wait_ready(&self, time: Ns) {
        wait(&self.is_ready, 0, Some(time));
    }

    pub(crate) fn open_gate(&self) {
        self.began_ns.store(now_ns(), SeqCst);
        self.gate.store(1, SeqCst);
        wake(&self.gate);
    }

    pub(crate) fn wait_at_gate(&self) {
        self.is_ready.store(1, SeqCst);
        wake(&self.is_ready);
        while self.gate.load(SeqCst) == 0 {
            wait(&self.gate, 0, None);
        }
    }

    // Tasks and processes

    /// A new task of this process.
    pub(crate) fn new_task(&self, process: u32, name: &str) -> Result<u32, Failure> {
        let number = self.next_task.fetch_add(1, SeqCst);
        if number as usize >= TASKS_MAX {
            return Err(Failure::Refused(format!("more than {TASKS_MAX} threads in one run")));
        }
        let task = self.task(number);
        task.process.store(process, SeqCst);
        task.name.set(name);
        task.state.store(state::RUNNING, SeqCst);
        Ok(number)
    }

    /// A new process, started by `parent`.
    pub(crate) fn new_process(&self, parent: u32) -> Result<u32, Failure> {
        let number = self.next_process.fetch_add(1, SeqCst);
        if number as usize >= PROCESSES_MAX {
            return Err(Failure::Refused(format!(
                "more than {PROCESSES_MAX} processes in one run"
            )));
        }
        self.process(number).parent.store(parent, SeqCst);
        Ok(number)
    }

    /// Notes how a task ended and wakes who waits for it.
    pub(crate) fn end_task(&self, task: &Task, how: u32) {
        task.state.store(how, SeqCst);
        wake(&task.state);
    }

    /// Notes the end of a process, which its parent or else the run's warden saw. `status` is what wait(2)
    /// tells; times are those of it and of the children it waited for.
    pub(crate) fn end_process(&self, number: u32, status: i32, usage: &libc::rusage) {
        let process = self.process(number);
        let ns = |t: libc::timeval| (t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64) * 1000;
        let (user, system) = (ns(usage.ru_utime), ns(usage.ru_stime));
        self.user_ns.fetch_add(user.saturating_sub(process.children_user_ns.load(SeqCst)), SeqCst);
        self.system_ns
            .fetch_add(system.saturating_sub(process.children_system_ns.load(SeqCst)), SeqCst);
        let parent = self.process(process.parent.load(SeqCst));
        parent.children_user_ns.fetch_add(user, SeqCst);
        parent.children_system_ns.fetch_add(system, SeqCst);
        self.resident_kib_max.fetch_max(usage.ru_maxrss as u64, SeqCst);
        self.mapped_pages.fetch_sub(process.mapped_pages.swap(0, SeqCst), SeqCst);
        process.pid.store(0, SeqCst);
        self.ended_ns.fetch_max(now_ns(), SeqCst);
        let was_killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
        self.nr_killed.fetch_add(u32::from(was_killed), SeqCst);
        for task in self.started_tasks() {
            if task.process.load(SeqCst) != number || task.state.load(SeqCst) != state::RUNNING {
                continue;
            }
            let how = match task.outcome.load(SeqCst) {
                0 if was_killed => state::KILLED,
                0 => {
                    task.text.set(&match libc::WIFSIGNALED(status) {
                        true => format!("ended by signal {}", libc::WTERMSIG(status)),
                        false => format!("exited with {}", libc::WEXITSTATUS(status)),
                    });
                    state::DIED
                }
                how => how,
            };
            self.end_task(task, how);
        }
    }

    /// Waits for a task's end.
    pub(crate) fn join(&self, me: u32, task: u32) -> Result<(), Failure> {
        if task >= self.next_task.load(SeqCst) || task as usize >= TASKS_MAX {
            return Err(Failure::Refused(format!("join: no thread {task}")));
        }
        let waits = &self.task(me).waits;
        waits.store(waits::JOIN | u64::from(task), SeqCst);
        let task = self.task(task);
        while task.state.load(SeqCst) == state::RUNNING {
            wait(&task.state, state::RUNNING, None);
        }
        waits.store(waits::NOTHING, SeqCst);
        match task.state.load(SeqCst) {
            state::DONE => Ok(()),
            state::KILLED => Err(Failure::Killed),
            state::REFUSED => Err(Failure::Refused(task.text.get())),
            _ => Err(Failure::Refused(format!("{}: {}", task.name.get(), task.text.get()))),
        }
    }

    /// A task whose code panicked or whose process ended without a word: its name and what is known.
    pub(crate) fn broken(&self) -> Option<(String, String)> {
        let is_broken = |task: &&Task| {
            let (state, outcome) = (task.state.load(SeqCst), task.outcome.load(SeqCst));
            matches!(state, state::PANICKED | state::DIED) || outcome == state::PANICKED
        };
        let task = self.started_tasks().iter().find(is_broken)?;
        Some((task.name.get(), task.text.get()))
    }

    /// The tasks that wait, if all do and nothing will ever wake one of them.
    pub(crate) fn deadlock(&self) -> Option<Vec<(String, String)>> {
        let mut waiting = Vec::new();
        for task in self.started_tasks() {
            let runs = task.state.load(SeqCst) == state::RUNNING && task.outcome.load(SeqCst) == 0;
            if !runs {
                continue;
            }
            let waits = task.waits.load(SeqCst);
            let (number, generation) = ((waits & !waits::KIND) >> 32, waits as u32);
            let what = match waits & waits::KIND {
                waits::JOIN => {
                    let other = self.task(generation);
                    if other.state.load(SeqCst) != state::RUNNING {
                        return None;
                    }
                    format!("the end of {}", other.name.get())
                }
                waits::BARRIER => {
                    let barrier = &self.barriers[number as usize];
                    if barrier.generation.load(SeqCst) != generation {
                        return None;
                    }
                    let (arrived, parties) =
                        (barrier.arrived.load(SeqCst), barrier.parties.load(SeqCst));
                    format!("barrier {number}, where {arrived} of {parties} are")
                }
                _ => return None,
            };
            waiting.push((task.name.get(), what));
        }
        // Between a process's last thread and its end nobody runs; that passes.
        (!waiting.is_empty() && !self.is_ending()).then_some(waiting)
    }

    /// Whether some task's code has ended and its process not yet.
    fn is_ending(&self) -> bool {
        self.started_tasks()
            .iter()
            .any(|task| task.state.load(SeqCst) == state::RUNNING && task.outcome.load(SeqCst) != 0)
    }

    // Barriers

    pub(crate) fn new_barrier(&self, parties: u32) -> Result<u32, Failure> {
        if parties == 0 {
            return Err(Failure::Refused("a barrier for nobody".to_owned()));
        }
        let number = self.next_barrier.fetch_add(1, SeqCst);
        let Some(barrier) = self.barriers.get(number as usize) else {
            return Err(Failure::Refused(format!("more than {BARRIERS_MAX} barriers in one run")));
        };
        barrier.parties.store(parties, SeqCst);
        Ok(number)
    }

    pub(crate) fn barrier(&self, me: u32, number: u32) -> Result<(), Failure> {
        if number >= self.next_barrier.load(SeqCst) || number as usize >= BARRIERS_MAX {
            return Err(Failure::Refused(format!("no barrier {number}")));
        }
        let barrier = &self.barriers[number as usize];
        let generation = barrier.generation.load(SeqCst);
        if barrier.arrived.fetch_add(1, SeqCst) + 1 == barrier.parties.load(SeqCst) {
            barrier.arrived.store(0, SeqCst);
            barrier.generation.fetch_add(1, SeqCst);
            wake(&barrier.generation);
            return Ok(());
        }
        let waits = &self.task(me).waits;
        let what = u64::from(number) << 32 | u64::from(generation);
        waits.store(waits::BARRIER | what, SeqCst);
        while barrier.generation.load(SeqCst) == generation {
            wait(&barrier.generation, generation, None);
        }
        waits.store(waits::NOTHING, SeqCst);
        Ok(())
    }

    // Questions to the run's first process

    /// Asks by `send` and waits for the answer.
    pub(crate) fn ask(&self, me: u32, send: impl FnOnce()) -> Result<(), Failure> {
        let task = self.task(me);
        task.reply.store(0, SeqCst);
        send();
        while task.reply.load(SeqCst) == 0 {
            wait(&task.reply, 0, None);
        }
        match task.reply.load(SeqCst) {
            1 => Ok(()),
            _ => Err(Failure::Refused(task.text.get())),
        }
    }

    pub(crate) fn answer(&self, task: u32, answer: Result<(), String>) {
        let Some(task) = self.tasks.get(task as usize) else { return };
        let reply = match answer {
            Ok(()) => 1,
            Err(text) => {
                task.text.set(&text);
                2
            }
        };
        task.reply.store(reply, SeqCst);
        wake(&task.reply);
    }

    // Memory

    /// Takes pages from what may be mapped, or says how many are left.
    pub(crate) fn take_pages(&self, process: u32, pages: u64) -> Result<(), u64> {
        let before = self.mapped_pages.fetch_add(pages, SeqCst);
        let allowed = self.allowed_pages.load(SeqCst);
        if before.saturating_add(pages) > allowed {
            self.mapped_pages.fetch_sub(pages, SeqCst);
            return Err(allowed.saturating_sub(before));
        }
        self.process(process).mapped_pages.fetch_add(pages, SeqCst);
        Ok(())
    }

    pub(crate) fn give_pages(&self, process: u32, pages: u64) {
        self.mapped_pages.fetch_sub(pages, SeqCst);
        self.process(process).mapped_pages.fetch_sub(pages, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_where_a_character_ends() {
        let shared = Mapping::new().unwrap();
        let text = &shared.task(0).text;
        text.set(&"ä".repeat(200));
        assert_eq!(text.get(), "ä".repeat(TEXT_BYTES / 2));
        text.set("short");
        assert_eq!(text.get(), "short");
    }

    #[test]
    fn pages_are_given_until_the_limit_and_taken_back() {
        let shared = Mapping::new().unwrap();
        shared.allowed_pages.store(100, SeqCst);
        assert_eq!(shared.take_pages(0, 60), Ok(()));
        assert_eq!(shared.take_pages(0, 41), Err(40));
        shared.give_pages(0, 60);
        assert_eq!(shared.take_pages(0, 100), Ok(()));
    }

    #[test]
    fn a_barrier_is_passed_by_all_or_none() {
        let shared = Mapping::new().unwrap();
        let barrier = shared.new_barrier(3).unwrap();
        let passed = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let wait = |task: u32| {
                for round in 1..=50 {
                    shared.barrier(task, barrier).unwrap();
                    passed.fetch_add(1, SeqCst);
                    shared.barrier(task, barrier).unwrap();
                    assert_eq!(passed.load(SeqCst), 3 * round);
                    shared.barrier(task, barrier).unwrap();
                }
            };
            (0..3).for_each(|task| drop(scope.spawn(move || wait(task))));
        });
        assert_eq!(passed.load(SeqCst), 150);
    }

    #[test]
    fn all_waiting_for_each_other_is_a_deadlock_and_told() {
        let shared = Mapping::new().unwrap();
        for name in ["one", "two"] {
            shared.new_task(0, name).unwrap();
        }
        assert_eq!(shared.deadlock(), None, "both run");
        let barrier = shared.new_barrier(2).unwrap();
        shared.barriers[barrier as usize].arrived.store(1, SeqCst);
        shared.task(0).waits.store(waits::JOIN | 1, SeqCst);
        assert_eq!(shared.deadlock(), None, "the other runs");
        shared.task(1).waits.store(waits::BARRIER, SeqCst);
        let waiting = shared.deadlock().unwrap();
        assert_eq!(waiting[0], ("one".to_owned(), "the end of two".to_owned()));
        assert_eq!(waiting[1], ("two".to_owned(), "barrier 0, where 1 of 2 are".to_owned()));
        shared.barriers[0].generation.store(1, SeqCst);
        assert_eq!(shared.deadlock(), None, "the other was woken");
    }
}
