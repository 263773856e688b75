//! A process that goes on twice from where it is: what has been computed until then need not be computed again.
//!
//! The copy has one thread, the one that asked, with its stack and all memory as they were; other threads do not go on
//! in it. So it must not wait for them, nor use what they may have locked: memory can be had (glibc and musl make their
//! allocators fit for that), files can be written, and in the end it says something short and is gone. An interrupt is
//! the original's to act upon: a copy goes on, and ends with the original if that ends.

#![allow(unsafe_code, reason = "fork has no safe interface")]

use crate::host::process::{exit, note_fork};
use crate::signals;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, getpid, getppid, pidfd_open, waitpid};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// What a copy can say at its end: the line takes that much without anybody reading.
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
    /// Ready once it has ended; none from a kernel that has none (before 5.3).
    end: Option<OwnedFd>,
    line: UnixStream,
}

/// A copy's line to the original, and its way to end.
#[derive(Debug)]
pub struct Teller(UnixStream);

/// Goes on twice.
///
/// # Errors
/// The kernel has no room for another process, or the process may not open another file.
pub fn part() -> io::Result<Twin> {
    let (line, other) = UnixStream::pair()?;
    let original = getpid();
    // A handler may tell of a signal by what a copy shares, so that the original would hear of it twice.
    let held = signals::Held::new();
    // SAFETY: see the module's comment.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            note_fork();
            signals::ignore();
            drop((line, held));
            end_with_original(original);
            Ok(Twin::Copy(Teller(other)))
        }
        pid => {
            drop(other);
            let pid = Pid::from_raw(pid).expect("a process id");
            let end = pidfd_open(pid, PidfdFlags::empty()).ok();
            Ok(Twin::Original(Copied { pid, end, line }))
        }
    }
}

/// Has the kernel kill this process when the thread ends of which it is a copy.
fn end_with_original(original: Pid) {
    let asked = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // It may have ended before it was asked for.
    if asked.is_err() || getppid() != Some(original) {
        exit(1);
    }
}

/// Ends this process, a copy, as one that has nothing to say.
pub fn fail() -> ! {
    exit(1)
}

/// Waits until one of these has ended, and says which; where the kernel does not tell, it is taken for the first.
#[must_use]
pub fn wait_for_any<'a>(copies: impl IntoIterator<Item = &'a Copied>) -> usize {
    let ends: Option<Vec<_>> =
        copies.into_iter().map(|copy| copy.end.as_ref().map(AsFd::as_fd)).collect();
    let mut ends: Vec<PollFd<'_>> = ends
        .into_iter()
        .flatten()
        .map(|end| PollFd::from_borrowed_fd(end, PollFlags::IN))
        .collect();
    while poll(&mut ends, None) == Err(Errno::INTR) {}
    ends.iter().position(|end| !end.revents().is_empty()).unwrap_or(0)
}

impl Copied {
    /// Waits for what it tells next, which is as long as this; whether something came before it ended.
    pub fn hear(&mut self, told: &mut [u8]) -> bool {
        // The line's end may not come: a process that another thread started meanwhile may have it open, too.
        let mut ready = vec![PollFd::new(&self.line, PollFlags::IN)];
        ready.extend(self.end.as_ref().map(|end| PollFd::new(end, PollFlags::IN)));
        while poll(&mut ready, None) == Err(Errno::INTR) {}
        let has_come = !ready[0].revents().is_empty();
        has_come && self.line.read_exact(told).is_ok()
    }

    /// Answers what it told, if it is still there to hear it.
    pub fn answer(&mut self, yes: bool) {
        let _ = self.line.write_all(&[u8::from(yes)]);
    }

    /// Waits for its end; returns what it said in the end, or `None` if it ended in another way.
    #[must_use]
    pub fn wait(mut self) -> Option<Vec<u8>> {
        // If it waits for an answer, it waits no longer.
        let _ = self.line.shutdown(Shutdown::Write);
        loop {
            match waitpid(Some(self.pid), WaitOptions::empty()) {
                Err(Errno::INTR) => {}
                // Where nobody is told how children end (SIGCHLD is ignored), what it said says that it ended well.
                Err(Errno::CHILD) => break,
                Ok(Some((_, status))) if status.exit_status() == Some(0) => break,
                _ => return None,
            }
        }
        self.line.set_nonblocking(true).ok()?;
        let mut said = vec![0; SAID_MAX];
        let bytes = self.line.read(&mut said).ok()?;
        said.truncate(bytes);
        Some(said)
    }
}

impl Teller {
    /// Tells the original something.
    pub fn tell(&mut self, told: &[u8]) {
        // Without an original there is nothing left to do.
        if self.0.write_all(told).is_err() {
            exit(1);
        }
    }

    /// Waits for the original's answer to what it was told.
    pub fn hear_answer(&mut self) -> bool {
        let mut answer = [0];
        if self.0.read_exact(&mut answer).is_err() {
            exit(1);
        }
        answer == [1]
    }

    /// Says this and ends the process, in which nothing else is done: nothing is dropped.
    ///
    /// # Panics
    /// If it is more than [`SAID_MAX`] bytes.
    pub fn end(mut self, said: &[u8]) -> ! {
        assert!(said.len() <= SAID_MAX, "{} bytes to say", said.len());
        self.tell(said);
        exit(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{self, AssertUnwindSafe};
    use std::time::Duration;

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
    fn a_copy_that_fails_or_is_killed_has_said_nothing_and_an_interrupt_is_not_its_own() {
        assert_eq!(said(|_| fail()), None);
        assert_eq!(said(|_| panic!("in the copy")), None);
        let interrupted = said(|teller| {
            rustix::process::kill_process(getpid(), Signal::INT).unwrap();
            teller.end(b"went on")
        });
        assert_eq!(interrupted, Some(b"went on".to_vec()));
        let killed = said(|_| rustix::process::kill_process(getpid(), Signal::KILL).unwrap());
        assert_eq!(killed, None);
    }

    #[test]
    fn a_copy_is_answered_until_it_has_ended() {
        let mut copied = match part().unwrap() {
            Twin::Original(copied) => copied,
            Twin::Copy(mut teller) => {
                teller.tell(b"one");
                let first = teller.hear_answer();
                teller.tell(b"two");
                let second = teller.hear_answer();
                teller.tell(if (first, second) == (true, false) { b"yes" } else { b"no!" });
                fail()
            }
        };
        let mut told = [0; 3];
        for (word, answer) in [(b"one", true), (b"two", false)] {
            assert!(copied.hear(&mut told));
            assert_eq!(&told, word);
            copied.answer(answer);
        }
        assert!(copied.hear(&mut told));
        assert_eq!(&told, b"yes");
        assert!(!copied.hear(&mut told));
        copied.answer(true);
        assert_eq!(copied.wait(), None);
    }

    #[test]
    fn a_copy_that_nobody_answers_ends() {
        let copied = match part().unwrap() {
            Twin::Original(copied) => copied,
            Twin::Copy(mut teller) => {
                teller.tell(b"?");
                teller.hear_answer();
                teller.end(b"never")
            }
        };
        assert_eq!(copied.wait(), None);
    }

    #[test]
    fn the_first_that_ends_is_waited_for_first() {
        let copy = |after: Duration| match part().unwrap() {
            Twin::Original(copied) => copied,
            Twin::Copy(teller) => {
                std::thread::sleep(after);
                teller.end(b"slept")
            }
        };
        let mut copies = vec![copy(Duration::from_secs(60)), copy(Duration::ZERO)];
        assert_eq!(wait_for_any(&copies), 1);
        assert_eq!(copies.remove(1).wait(), Some(b"slept".to_vec()));
        rustix::process::kill_process(copies[0].pid, Signal::KILL).unwrap();
        assert_eq!(wait_for_any(&copies), 0);
        assert_eq!(copies.remove(0).wait(), None);
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
