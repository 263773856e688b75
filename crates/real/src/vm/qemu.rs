//! QEMU as a process: started, watched, and gone whatever happens.

use super::{Limits, VmError};
use crate::clock::now_ns;
use crate::job::{Received, TOLD, unpack};
use crate::signals::Watch;
use highorder_files::limits;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// How often limits are looked at.
const LOOK_MS: u64 = 100;
/// How long a guest that has sent its answer may take to go.
const FAREWELL_NS: u64 = 10_000_000_000;
/// How much of the console is kept.
const CONSOLE_BYTES_MAX: usize = limits::CONSOLE.most as usize;
/// How much of a stream is read before limits are looked at again: a guest may say more all the time.
const READ_BYTES_MAX: usize = 1 << 20;
/// How many of its last lines an error shows.
const CONSOLE_LINES: usize = 20;

/// What a kernel's last words begin with: kernel/panic.c (`panic`).
const PANIC: &str = "Kernel panic - not syncing";

/// What a guest said until it ended.
pub(super) struct Said {
    pub(super) answer: Received,
    /// What its kernel said when it panicked.
    pub(super) panic: Option<String>,
    /// The last lines of its console.
    pub(super) console: String,
    /// Its first process had started.
    pub(super) is_up: bool,
}

/// Files that QEMU finds under `/proc/self/fd`: they have no name, so nothing is left of them.
pub(super) struct Nameless(pub(super) Vec<OwnedFd>);

impl Nameless {
    pub(super) fn path(fd: &impl AsRawFd) -> String {
        format!("/proc/self/fd/{}", fd.as_raw_fd())
    }
}

/// A child that is killed and waited for when it is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs QEMU with a console and a port until it ends or a limit is reached.
pub(super) fn run(
    mut command: Command,
    files: &Nameless,
    limits: Limits,
    watch: &Watch,
) -> Result<Said, VmError> {
    let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(VmError::os("pipe"));
    let ((console, console_in), (port, port_in)) = (pipe()?, pipe()?);
    for (id, end) in [("console", &console_in), ("port", &port_in)] {
        command.arg("-chardev").arg(format!("file,id={id},path={}", Nameless::path(end)));
        command.args(["-serial", &format!("chardev:{id}")]);
    }
    let mut inherited: Vec<RawFd> = files.0.iter().map(AsRawFd::as_raw_fd).collect();
    inherited.extend([console_in.as_raw_fd(), port_in.as_raw_fd()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // An interrupt from the terminal is ours to act upon.
    command.process_group(0);
    prepare(&mut command, inherited);
    let program = command.get_program().to_string_lossy().into_owned();
    let child = command.spawn().map_err(|source| not_started(program, source))?;
    let mut child = Killed(child);
    drop((console_in, port_in));
    let complaints = child.0.stderr.take().map(OwnedFd::from);
    let mut guest = Guest {
        console: Stream::new(console)?,
        port: Stream::new(port)?,
        complaints: complaints.map(Stream::new).transpose()?,
        is_up: false,
    };
    guest.watch(&mut child, limits, watch)
}

pub(super) fn not_started(program: impl ToString, source: io::Error) -> VmError {
    match source.kind() {
        io::ErrorKind::NotFound => VmError::NoQemu { program: program.to_string() },
        _ => VmError::Os { what: "QEMU", source },
    }
}

#[allow(unsafe_code, reason = "what a child does between fork and exec")]
fn prepare(command: &mut Command, inherited: Vec<RawFd>) {
    let before = move || {
        // Should this process be killed, QEMU is as well.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        for &fd in &inherited {
            // SAFETY: open in the parent until it has spawned.
            let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
            fcntl_setfd(fd, FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: system calls only, and nothing is allocated.
    unsafe { command.pre_exec(before) };
}

/// The output of a child, as far as it was read.
struct Stream {
    fd: OwnedFd,
    bytes: VecDeque<u8>,
    is_open: bool,
}

impl Stream {
    fn new(fd: OwnedFd) -> Result<Self, VmError> {
        rustix::io::ioctl_fionbio(&fd, true).map_err(VmError::os("pipe"))?;
        Ok(Self { fd, bytes: VecDeque::new(), is_open: true })
    }

    /// Reads what is there; returns whether there was anything.
    fn read(&mut self) -> bool {
        let mut buffer = [0_u8; 16 << 10];
        let (mut any, mut nr_read) = (false, 0);
        while self.is_open && nr_read < READ_BYTES_MAX {
            match rustix::io::read(&self.fd, &mut buffer) {
                Ok(0) => self.is_open = false,
                Ok(len) => {
                    (any, nr_read) = (true, nr_read + len);
                    self.bytes.extend(&buffer[..len]);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => self.is_open = false,
            }
        }
        any
    }

    fn keep_last(&mut self, len: usize) {
        let over = self.bytes.len().saturating_sub(len);
        self.bytes.drain(..over);
    }

    fn holds(&mut self, word: &str) -> bool {
        let bytes = self.bytes.make_contiguous();
        memchr::memmem::find(bytes, word.as_bytes()).is_some()
    }

    fn text(&self) -> String {
        let bytes: Vec<u8> = self.bytes.iter().copied().collect();
        String::from_utf8_lossy(&bytes).replace('\r', "")
    }
}

struct Guest {
    console: Stream,
    port: Stream,
    complaints: Option<Stream>,
    /// Its first process has started.
    is_up: bool,
}

impl Guest {
    fn watch(
        &mut self,
        child: &mut Killed,
        limits: Limits,
        watch: &Watch,
    ) -> Result<Said, VmError> {
        let began = now_ns();
        let mut answered = None;
        loop {
            let has_ended = child.0.try_wait().map_err(VmError::os("QEMU"))?;
            self.read_all();
            if let Some(status) = has_ended {
                let said = self.said();
                // A guest that ends ends QEMU well; else QEMU itself says why.
                if !status.success() && !matches!(said.answer, Received::Whole(_)) {
                    let text = self.complaints.as_ref().map(Stream::text).unwrap_or_default();
                    let why = text.lines().last().unwrap_or("no reason given").to_owned();
                    return Err(VmError::Qemu { status, why });
                }
                return Ok(said);
            }
            if let Some(signal) = watch.came() {
                return Err(VmError::Interrupted(signal));
            }
            if self.port.bytes.len() as u64 > limits::GUEST_ANSWER.most {
                return Err(VmError::Endless);
            }
            let now = now_ns();
            if answered.is_none() && matches!(self.answer(), Received::Whole(_)) {
                answered = Some(now);
            }
            if answered.is_some_and(|at| now - at > FAREWELL_NS) {
                return Ok(self.said());
            }
            if !self.is_up && now - began > limits.boot.0 {
                let console = self.said().console;
                return Err(VmError::NotUp { limit: limits.boot, times: 1, console });
            }
            if now - began > limits.time.0 {
                let console = self.said().console;
                return Err(VmError::TimedOut { limit: limits.time, console });
            }
            let resident = resident_bytes(child.0.id());
            if resident > limits.memory_bytes {
                return Err(VmError::OverMemory {
                    mib: resident >> 20,
                    limit_mib: limits.memory_bytes >> 20,
                });
            }
            self.wait();
        }
    }

    fn wait(&self) {
        let streams = [Some(&self.console), Some(&self.port), self.complaints.as_ref()];
        let open = streams.into_iter().flatten().filter(|stream| stream.is_open);
        let mut fds: Vec<PollFd<'_>> =
            open.map(|s| PollFd::from_borrowed_fd(s.fd.as_fd(), PollFlags::IN)).collect();
        let time = crate::clock::timespec(highorder_system::Ns::from_millis(LOOK_MS));
        if fds.is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(LOOK_MS));
        } else {
            // Interrupted by a signal: looked at in the next round.
            let _ = poll(&mut fds, Some(&time));
        }
    }

    fn read_all(&mut self) {
        self.console.read();
        self.is_up = self.is_up || self.console.holds(TOLD);
        self.console.keep_last(CONSOLE_BYTES_MAX);
        self.port.read();
        if let Some(complaints) = &mut self.complaints {
            complaints.read();
            complaints.keep_last(CONSOLE_BYTES_MAX);
        }
    }

    fn answer(&mut self) -> Received {
        unpack(self.port.bytes.make_contiguous())
    }

    fn said(&mut self) -> Said {
        let text = self.console.text();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = &lines[lines.len().saturating_sub(CONSOLE_LINES)..];
        let panic = lines.iter().find_map(|line| line.split_once(PANIC));
        let panic = panic.map(|(_, why)| why.trim_start_matches(": ").to_owned());
        let is_up = self.is_up;
        Said { answer: self.answer(), panic, console: last.join("\n"), is_up }
    }
}

/// What a process has resident; 0 if it is gone.
fn resident_bytes(pid: u32) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = statm.split_ascii_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}
