//! Processes of a run.
//!
//! ```text
//! the program ── warden ── first process ── processes that the workload starts
//! ```
//!
//! The warden waits for all of them, also for those whose parent was killed, and kills them all when the
//! program's end of a pipe closes, which it does however the program ends; then it puts settings back.
//!
//! Each process of the workload has a thread that runs none of its code: it starts processes (a fork has to
//! come from a thread that stays) and ends the process when its last thread and child have ended, with
//! memory unmapped before. What a killed process leaves undone, its parent or the warden does.
//!
//! A process is forked and not executed anew because what it runs is a closure. It then goes on with more
//! threads, although its parent had several: glibc and musl make their allocators fit for that, and nothing
//! that a thread of the parent could have held locked is used again.

#![allow(unsafe_code, reason = "fork and wait4 have no safe interface")]

use super::blocks::Blocks;
use super::memory::Mappings;
use super::message::Message;
use super::shared::{Shared, state};
use super::thread::HostThread;
use crate::knobs::{Journal, Knobs};
use crate::signals;
use highorder_system::{Code, Failure, MachineInfo, Place, ThreadSpec};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, setrlimit};
use rustix::thread::CpuSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};

/// How long the warden waits before it looks for orphans that have ended.
const LOOK_MS: i64 = 100;
/// The workload is what the kernel kills first: the most that fs/proc/base.c takes.
const OOM_SCORE_ADJ: &str = "1000";
/// Stack of a thread that waits for a child.
const WAITER_STACK_BYTES: usize = 64 << 10;

/// Whether this process is one of a run's, whose panics are told in its record or its error, or a copy
/// ([`crate::twin`]), of whose run they are told once it is made again. Its hook for panics stays the program's: to set
/// another takes a lock, which some thread may have held when this process was forked.
static IS_FORK: AtomicBool = AtomicBool::new(false);

/// Whether this process is one of a run's: then the program's hook has nothing to tell of a panic.
pub fn is_fork() -> bool {
    IS_FORK.load(SeqCst)
}

/// Notes in a process that was forked that it is one.
pub(crate) fn note_fork() {
    IS_FORK.store(true, SeqCst);
}

/// What all processes of a run know.
pub(crate) struct World {
    pub(crate) machine: MachineInfo,
    pub(crate) shared: &'static Shared,
    /// Where they tell it.
    pub(crate) told: OwnedFd,
    pub(crate) seed: u64,
    /// The CPUs that the program may use.
    pub(crate) cpus: CpuSet,
    pub(crate) knobs: Knobs,
    pub(crate) may_set_knobs: bool,
    /// Where files lie, which goes with the run; without one, what a thread that wants files is told.
    pub(crate) folder: Result<PathBuf, String>,
    /// What a mapping that would leave too little is told.
    pub(crate) memory_rule: String,
}

impl World {
    pub(crate) fn tell(&self, message: &Message) {
        message.send(self.told.as_fd());
    }

    /// The CPUs of a place.
    pub(crate) fn cpus_of(&self, place: Place) -> Result<CpuSet, Failure> {
        let mut set = CpuSet::new();
        match place {
            Place::Any => return Ok(self.cpus),
            Place::Cpu(cpu) => {
                if !self.machine.nodes.iter().any(|node| node.cpus.contains(&cpu)) {
                    return Err(Failure::Refused(format!("no CPU {cpu}")));
                }
                set.set(cpu.index());
            }
            Place::Node(number) => {
                let node = self.machine.nodes.iter().find(|node| node.number == number);
                let node = node.ok_or_else(|| Failure::Refused(format!("no node {number}")))?;
                if node.cpus.is_empty() {
                    return Err(Failure::Refused(format!("node {number} has no CPU")));
                }
                node.cpus.iter().for_each(|&cpu| set.set(cpu.index()));
            }
        }
        Ok(set)
    }
}

/// One process of the workload, as its threads know it.
pub(crate) struct Process {
    pub(crate) world: Arc<World>,
    pub(crate) number: u32,
    pub(crate) mappings: Mappings,
    blocks: Mutex<Blocks>,
    nr_threads: AtomicU32,
    requests: mpsc::Sender<Request>,
}

/// What the thread that keeps a process is asked.
enum Request {
    Start { spec: ThreadSpec, code: Code, task: u32, answer: mpsc::Sender<io::Result<()>> },
    ThreadEnded,
    ChildEnded,
}

/// The first process's first thread.
pub(crate) struct First {
    pub(crate) spec: ThreadSpec,
    pub(crate) code: Code,
    pub(crate) task: u32,
    pub(crate) process: u32,
}

/// Starts the warden, which starts the first process; returns the warden's process id.
///
/// `lifeline` are the ends of a pipe: the warden reads, the program writes nothing and keeps the other.
pub(crate) fn start(
    world: Arc<World>,
    first: First,
    lifeline: (OwnedFd, OwnedFd),
    journal: Option<&Journal>,
) -> io::Result<(Pid, OwnedFd)> {
    // SAFETY: see the module's comment.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let (read, write) = lifeline;
            drop(write);
            let end = panic::catch_unwind(AssertUnwindSafe(|| {
                note_fork();
                warden(world, first, read.as_fd(), journal);
            }));
            exit(i32::from(end.is_err()))
        }
        pid => Ok((Pid::from_raw(pid).expect("a process id"), lifeline.1)),
    }
}

/// Ends this process at once: what the program would do at its end is not the business of its forks.
pub(crate) fn exit(status: i32) -> ! {
    // SAFETY: always.
    unsafe { libc::_exit(status) }
}

/// Lets this process and those that it starts have as many files open as they may: as the kernel allows, or else as
/// they have been allowed.
fn raise_file_limit() {
    let allowed = getrlimit(Resource::Nofile);
    let most = std::fs::read_to_string("/proc/sys/fs/nr_open");
    let most = most.ok().and_then(|text| text.trim().parse().ok()).max(allowed.maximum);
    // Whoever may not go beyond what he was allowed is told when files are opened.
    let raised = [most, allowed.maximum].into_iter().any(|limit| {
        setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit }).is_ok()
    });
    debug_assert!(raised, "what is allowed can be had");
}

fn warden(world: Arc<World>, first: First, lifeline: BorrowedFd<'_>, journal: Option<&Journal>) {
    signals::forget();
    raise_file_limit();
    // Away from the terminal's signals: an interrupt is the program's to act upon.
    let _ = rustix::process::setpgid(None, None);
    let warden = rustix::process::getpid();
    let _ = rustix::process::set_child_subreaper(Some(warden));
    let shared = world.shared;
    // SAFETY: this process has one thread.
    let pid = match unsafe { libc::fork() } {
        -1 => return,
        0 => first_process(world, first, warden),
        pid => Pid::from_raw(pid).expect("a process id"),
    };
    let files = world.folder.clone().ok();
    // So that the program sees the end when the last process of the workload is gone.
    drop(world);
    let child = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok();
    let wait = rustix::time::Timespec { tv_sec: 0, tv_nsec: LOOK_MS * 1_000_000 };
    let (mut is_over, mut is_child_there) = (false, true);
    while wait_all(shared) {
        let mut fds = Vec::new();
        if !is_over {
            fds.push(PollFd::from_borrowed_fd(lifeline, PollFlags::IN));
        }
        // Once it has ended it would always be ready.
        if let Some(child) = child.as_ref().filter(|_| is_child_there) {
            fds.push(PollFd::new(child, PollFlags::IN));
        }
        let polled = poll(&mut fds, Some(&wait));
        if polled.is_ok_and(|ready| ready > 0) {
            if !is_over && !fds[0].revents().is_empty() {
                is_over = true;
            } else {
                is_child_there = false;
            }
        }
        if is_over {
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
    }
    if let Some(files) = &files {
        // The program does so too, if it still can.
        let _ = std::fs::remove_dir_all(files);
    }
    if let Some(journal) = journal
        && (is_over || hung_up(lifeline))
    {
        // What fails stays in the file, for whoever looks next.
        let _ = journal.restore();
    }
}

/// Whether the program is gone.
fn hung_up(lifeline: BorrowedFd<'_>) -> bool {
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [PollFd::from_borrowed_fd(lifeline, PollFlags::IN)];
    poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Notes the end of every child that has ended; false if there are no more.
fn wait_all(shared: &Shared) -> bool {
    loop {
        let (pid, status, usage) = wait_for(-1, libc::WNOHANG);
        match pid {
            -1 => return false,
            0 => return true,
            _ => {}
        }
        let is_it = |process: &super::shared::Process| process.pid.load(SeqCst) == pid as u32;
        if let Some(number) = shared.started_processes().iter().position(is_it) {
            shared.end_process(number as u32, status, &usage);
        }
    }
}

fn wait_for(pid: i32, options: i32) -> (i32, i32, libc::rusage) {
    let mut status = 0;
    loop {
        // SAFETY: zeros are a valid `rusage`; both are written by the kernel.
        unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            let ended = libc::wait4(pid, &raw mut status, options, &raw mut usage);
            if ended == -1 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return (ended, status, usage);
        }
    }
}

fn first_process(world: Arc<World>, first: First, warden: Pid) -> ! {
    let _ = rustix::process::setpgid(None, None);
    // Should the warden be killed, this process is as well; the program sees to the others of its group.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    if rustix::process::getppid() != Some(warden) {
        exit(1);
    }
    let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ);
    keep_process(world, first, true)
}

/// A process of the workload from its beginning to its end.
fn keep_process(world: Arc<World>, first: First, waits_at_gate: bool) -> ! {
    let end = panic::catch_unwind(AssertUnwindSafe(|| {
        IS_FORK.store(true, SeqCst);
        world.shared.process(first.process).pid.store(std::process::id(), SeqCst);
        let (requests, asked) = mpsc::channel();
        let process = Arc::new(Process {
            world,
            number: first.process,
            mappings: Mappings::default(),
            blocks: Mutex::default(),
            nr_threads: AtomicU32::new(0),
            requests,
        });
        if waits_at_gate {
            process.world.shared.wait_at_gate();
        }
        if let Err(error) = process.start_thread(first.spec, first.code, first.task, true) {
            let task = process.world.shared.task(first.task);
            task.text.set(&format!("thread: {error}"));
            task.outcome.store(state::REFUSED, SeqCst);
        }
        process.keep(&asked);
    }));
    exit(i32::from(end.is_err()))
}

impl Process {
    /// What the process has taken of the kernel's own memory.
    pub(crate) fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Starts a thread of this process.
    pub(crate) fn start_thread(
        self: &Arc<Self>,
        spec: ThreadSpec,
        code: Code,
        task: u32,
        is_first: bool,
    ) -> io::Result<()> {
        let process = Arc::clone(self);
        self.nr_threads.fetch_add(1, SeqCst);
        // The kernel keeps 15 bytes of a name.
        let name: String = spec.name.chars().filter(|&c| c != '\0').collect();
        let started = std::thread::Builder::new().name(name).spawn(move || {
            run_code(&process, spec.place, code, task, is_first);
            process.thread_ended();
        });
        if started.is_err() {
            self.thread_ended();
        }
        started.map(drop)
    }

    fn thread_ended(&self) {
        self.nr_threads.fetch_sub(1, SeqCst);
        // Its receiver ends with the process.
        let _ = self.requests.send(Request::ThreadEnded);
    }

    /// Starts a process, from any thread.
    pub(crate) fn start_process(&self, spec: ThreadSpec, code: Code, task: u32) -> io::Result<()> {
        let (answer, answered) = mpsc::channel();
        let gone = || io::Error::other("the process ends");
        self.requests.send(Request::Start { spec, code, task, answer }).map_err(|_| gone())?;
        answered.recv().map_err(|_| gone())?
    }

    /// Serves requests until the last thread and the last child have ended.
    fn keep(&self, asked: &mpsc::Receiver<Request>) {
        let mut nr_children = 0_u32;
        loop {
            if self.nr_threads.load(SeqCst) == 0 {
                // Its memory goes with its last thread; children may take longer.
                let pages = self.mappings.unmap_all(self.world.machine.page_bytes)
                    + self.blocks().free_pages();
                self.world.shared.give_pages(self.number, pages);
                if nr_children == 0 {
                    return;
                }
            }
            match asked.recv().expect("this process holds a sender itself") {
                Request::Start { spec, code, task, answer } => {
                    let started = self.fork(spec, code, task);
                    nr_children += u32::from(started.is_ok());
                    // Its receiver waits.
                    let _ = answer.send(started);
                }
                Request::ThreadEnded => {}
                Request::ChildEnded => nr_children -= 1,
            }
        }
    }

    fn fork(&self, spec: ThreadSpec, code: Code, task: u32) -> io::Result<()> {
        let shared = self.world.shared;
        let world = Arc::clone(&self.world);
        let number = shared.task(task).process.load(SeqCst);
        // Held, so that no other thread changes them meanwhile.
        let blocks = self.blocks();
        // SAFETY: see the module's comment.
        let pid = match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                for descriptor in blocks.descriptors() {
                    // SAFETY: the child's copy, which nothing there uses: its parent's blocks are never
                    // looked at again.
                    unsafe { libc::close(descriptor) };
                }
                keep_process(world, First { spec, code, task, process: number }, false)
            }
            pid => pid,
        };
        drop(blocks);
        shared.process(number).pid.store(pid as u32, SeqCst);
        let requests = self.requests.clone();
        let wait = move || {
            let (_, status, usage) = wait_for(pid, 0);
            shared.end_process(number, status, &usage);
            let _ = requests.send(Request::ChildEnded);
        };
        let waiter = std::thread::Builder::new().stack_size(WAITER_STACK_BYTES).spawn(wait);
        waiter.map(drop)
    }
}

/// Runs a thread's code and notes how it ended.
fn run_code(process: &Arc<Process>, place: Place, code: Code, task: u32, is_first: bool) {
    let shared = process.world.shared;
    let mut thread = HostThread::new(Arc::clone(process), task);
    let ended = panic::catch_unwind(AssertUnwindSafe(|| {
        thread.move_to(place)?;
        code(&mut thread)
    }));
    thread.flush();
    let slot = shared.task(task);
    let how = match ended {
        Ok(Ok(())) => state::DONE,
        Ok(Err(Failure::Killed)) => state::KILLED,
        Ok(Err(Failure::Refused(text))) => {
            slot.text.set(&text);
            state::REFUSED
        }
        Err(payload) => {
            let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
            slot.text.set(&format!("panicked: {}", text.as_deref().unwrap_or("no message")));
            state::PANICKED
        }
    };
    if is_first {
        // Whoever waits for a process waits until it is gone, its memory included.
        slot.outcome.store(how, SeqCst);
    } else {
        shared.end_task(slot, how);
    }
}
