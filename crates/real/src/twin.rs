//! A process that goes on twice from where it is: what has been computed until then need not be computed again.
//!
//! The copy has one thread, the one that asked, with its stack and all memory as they were; other threads do not go on
//! in it. So it must not wait for them, nor use what they may have locked: memory can be had (glibc and musl make their
//! allocators fit for that), files can be written, and in the end it says something short and is gone.

#![allow(unsafe_code, reason = "fork and waitpid have no safe interface")]

use crate::host::process::{exit, note_fork};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, getpid, getppid, waitpid};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

/// What a copy can say at its end: a pipe takes that much without anybody reading.
pub const SAID_MAX: usize = 4096;

/// Which of two a process is that went on twice.
#[derive(Debug)]
pub enum Twin {
    /// The one that was there before.
    Original(Copied),
    /// The other one.
    Copy(Teller),
}

/// A copy, as the original sees it.
#[derive(Debug)]
pub struct Copied {
    pid: Pid,
    said: File,
}

/// A copy's way to end.
#[derive(Debug)]
pub struct Teller(File);

/// Goes on twice.
///
/// # Errors
/// The kernel has no room for another process.
pub fn part() -> io::Result<Twin> {
    let (said, tell) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let original = getpid();
    // SAFETY: see the module's comment.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            note_fork();
            drop(said);
            end_with_original(original);
            Ok(Twin::Copy(Teller(File::from(tell))))
        }
        pid => {
            drop::<OwnedFd>(tell);
            let pid = Pid::from_raw(pid).expect("a process id");
            Ok(Twin::Original(Copied { pid, said: File::from(said) }))
        }
    }
}

/// Has this process be killed when the thread ends that it is a copy of.
fn end_with_original(original: Pid) {
    let asked = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // It may have ended before it was asked for.
    if asked.is_err() || getppid() != Some(original) {
        exit(1);
    }
}

impl Copied {
    /// Waits for its end; returns what it said, or `None` if it ended in another way.
    #[must_use]
    pub fn wait(mut self) -> Option<Vec<u8>> {
        let status = loop {
            match waitpid(Some(self.pid), WaitOptions::empty()) {
                Err(Errno::INTR) => {}
                Err(_) | Ok(None) => return None,
                Ok(Some((_, status))) => break status,
            }
        };
        // The end of the pipe may not come: a process that another thread started meanwhile may have it open, too.
        let mut said = vec![0; SAID_MAX];
        let bytes = self.said.read(&mut said).ok()?;
        said.truncate(bytes);
        (status.exit_status() == Some(0)).then_some(said)
    }
}

impl Teller {
    /// Says this and ends the process, in which nothing else is done: nothing is dropped.
    ///
    /// # Panics
    /// If it is more than [`SAID_MAX`] bytes.
    pub fn end(mut self, said: &[u8]) -> ! {
        assert!(said.len() <= SAID_MAX, "{} bytes to say", said.len());
        let told = self.0.write_all(said);
        exit(i32::from(told.is_err()))
    }

    /// Ends the process as one that has nothing to say.
    pub fn fail(self) -> ! {
        exit(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{self, AssertUnwindSafe};

    /// What a copy says that does so much.
    fn said(copy: impl FnOnce(Teller)) -> Option<Vec<u8>> {
        match part().unwrap() {
            Twin::Original(copied) => copied.wait(),
            Twin::Copy(teller) => {
                let failed = panic::catch_unwind(AssertUnwindSafe(|| copy(teller)));
                exit(if failed.is_err() { 101 } else { 0 })
            }
        }
    }

    #[test]
    fn both_go_on_with_what_was_there_and_the_copy_says_what_it_made_of_it() {
        let mut numbers: Vec<u8> = (1..=5).collect();
        let heard = said(|teller| {
            numbers.iter_mut().for_each(|number| *number *= 2);
            teller.end(&numbers)
        });
        assert_eq!(heard, Some(vec![2, 4, 6, 8, 10]));
        assert_eq!(numbers, [1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_copy_that_ends_in_another_way_has_said_nothing() {
        assert_eq!(said(|teller| teller.fail()), None);
        assert_eq!(said(|_| panic!("in the copy")), None);
        let killed = said(|_| rustix::process::kill_process(getpid(), Signal::KILL).unwrap());
        assert_eq!(killed, None);
    }

    #[test]
    fn threads_go_on_twice_beside_each_other() {
        let each = |number: u8| move || said(|teller| teller.end(&[number; SAID_MAX]));
        let threads: Vec<_> = (0..8).map(|number| std::thread::spawn(each(number))).collect();
        for (number, thread) in threads.into_iter().enumerate() {
            assert_eq!(thread.join().unwrap(), Some(vec![number as u8; SAID_MAX]));
        }
    }
}
