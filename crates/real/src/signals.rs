//! SIGINT, SIGTERM and SIGHUP while something has to be put back first.
//!
//! As long as a [`Watch`] lives, these signals are only noted. When the last one ends, the signals have
//! their former meaning again, and the one that came is raised anew: a program without handlers of its own
//! ends by it, after everything was put back.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};

const WATCHED: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// The signal that came, or 0.
static CAME: AtomicI32 = AtomicI32::new(0);

/// Watches, and the former actions as long as there are any.
static WATCHES: Mutex<(usize, Vec<libc::sigaction>)> = Mutex::new((0, Vec::new()));

/// Keeps the signals from ending the process.
pub struct Watch(());

extern "C" fn note(signal: libc::c_int) {
    CAME.store(signal, Ordering::SeqCst);
}

impl Watch {
    /// Begins to note signals.
    #[allow(clippy::new_without_default, reason = "it changes what signals do")]
    pub fn new() -> Self {
        let mut watches = WATCHES.lock().unwrap_or_else(|e| e.into_inner());
        if watches.0 == 0 {
            CAME.store(0, Ordering::SeqCst);
            watches.1 = WATCHED.iter().map(|&signal| replace(signal, &noting())).collect();
        }
        watches.0 += 1;
        Self(())
    }

    /// The signal that came, if one did.
    #[must_use]
    pub fn came(&self) -> Option<i32> {
        Some(CAME.load(Ordering::SeqCst)).filter(|&signal| signal != 0)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watches = WATCHES.lock().unwrap_or_else(|e| e.into_inner());
        watches.0 -= 1;
        if watches.0 > 0 {
            return;
        }
        for (&signal, former) in WATCHED.iter().zip(&watches.1) {
            replace(signal, former);
        }
        watches.1.clear();
        drop(watches);
        let came = CAME.swap(0, Ordering::SeqCst);
        if came != 0 {
            raise(came);
        }
    }
}

/// Gives the watched signals their usual meaning, in a process that was forked under a [`Watch`].
pub(crate) fn forget() {
    for signal in WATCHED {
        replace(signal, &default());
    }
    CAME.store(0, Ordering::SeqCst);
}

/// Has the watched signals mean nothing to this process, a copy of the one whose business they are.
pub(crate) fn ignore() {
    let mut action = default();
    action.sa_sigaction = libc::SIG_IGN;
    for signal in WATCHED {
        replace(signal, &action);
    }
}

/// Keeps the watched signals from this thread for as long as it lives.
pub(crate) struct Held(libc::sigset_t);

impl Held {
    #[allow(unsafe_code, reason = "no safe interface")]
    pub(crate) fn new() -> Self {
        // SAFETY: all three point to sets that live; all zeros is a set, and is emptied all the same.
        unsafe {
            let (mut held, mut former): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
            libc::sigemptyset(&mut held);
            for signal in WATCHED {
                libc::sigaddset(&mut held, signal);
            }
            let done = libc::pthread_sigmask(libc::SIG_BLOCK, &held, &mut former);
            assert_eq!(done, 0, "signals can be held");
            Self(former)
        }
    }
}

impl Drop for Held {
    #[allow(unsafe_code, reason = "no safe interface")]
    fn drop(&mut self) {
        // SAFETY: the set is the one that the thread had before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

fn noting() -> libc::sigaction {
    // No SA_RESTART: a wait ends, and its loop looks at `CAME`.
    let mut action = default();
    action.sa_sigaction = note as *const () as libc::sighandler_t;
    action
}

#[allow(unsafe_code, reason = "a plain struct of C")]
fn default() -> libc::sigaction {
    // SAFETY: all zeros is a valid `sigaction`: the default action, no flags, an empty mask.
    unsafe { std::mem::zeroed() }
}

#[allow(unsafe_code, reason = "signal actions have no safe interface that restores the former one")]
fn replace(signal: libc::c_int, action: &libc::sigaction) -> libc::sigaction {
    // SAFETY: both point to valid actions; the handler does nothing but an atomic store.
    unsafe {
        let mut former: libc::sigaction = std::mem::zeroed();
        let done = libc::sigaction(signal, action, &mut former);
        assert_eq!(done, 0, "signal {signal} can be caught");
        former
    }
}

#[allow(unsafe_code, reason = "no safe interface")]
fn raise(signal: libc::c_int) {
    // SAFETY: raising a signal for the calling thread; what its handler does is its owner's business.
    unsafe { libc::raise(signal) };
}
