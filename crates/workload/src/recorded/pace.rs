//! Keeps what a program does in the background in step with what it does in front, as it was when it was recorded.
//!
//! How much a reader beside a workload reads hangs on who else used the host of a guest, and differs by a factor of
//! eight between two recordings of one case. It is part of what was asked of memory, not of what memory management
//! made of it. So where results tell how much was done in the background, as much is done here, in step with the work
//! in front: each side waits for the other. How far one had come when the other had come so far, [`Told`] tells.
//!
//! [`Told`]: super::Told

use highorder_system::{Failure, Ns, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How long a side waits before it looks at the other one again.
const PAUSE: Ns = Ns::from_millis(1);

/// So many units ahead of the other one, a side waits as long for each of its own as the other takes for one.
const SLACK: u64 = 8;

/// What a side does while it waits for the other one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Waits {
    /// It keeps its CPU. Where a recorded program got no further in that time it was slow, not asleep, and whoever else
    /// ran meanwhile, kswapd for one, had to share the CPUs with it.
    Busy,
    /// It keeps its CPU and becomes slower, the more the further it is ahead. So neither side stands still when the other
    /// one does for a moment, for reclaim or for a CPU.
    Slower,
    /// It sleeps, as it does for most of the time.
    #[default]
    Asleep,
}

/// What is due in the background, and what was done of it.
#[derive(Debug)]
struct Counts {
    began: Ns,
    due: AtomicU64,
    done: AtomicU64,
}

impl Counts {
    fn due(&self) -> u64 {
        self.due.load(Ordering::Relaxed)
    }

    fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

/// Keeps both sides in step, or leaves each to itself where nobody knows how much was done.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    counts: Option<Arc<Counts>>,
    waits: Waits,
}

impl Pace {
    /// A pace from now on.
    pub(super) fn new(sys: &mut dyn System, is_known: bool, waits: Waits) -> Self {
        let counts = Counts { began: sys.now(), due: AtomicU64::new(0), done: AtomicU64::new(0) };
        Self { counts: is_known.then(|| Arc::new(counts)), waits }
    }

    pub(super) const fn is_known(&self) -> bool {
        self.counts.is_some()
    }

    /// One of those in the background.
    pub(super) fn follower(&self) -> Follower {
        Follower(self.clone())
    }

    /// The work in front has come so far that this much is due, and waits for the background. Does nothing when that is gone.
    pub(super) fn lead(&self, sys: &mut dyn System, due: u64) -> Result<(), Failure> {
        let Some(counts) = &self.counts else { return Ok(()) };
        counts.due.fetch_max(due, Ordering::Relaxed);
        // One of them is under way.
        let ahead = || due.saturating_sub(counts.done().saturating_add(1));
        self.wait(sys, counts, ahead, || counts.done())
    }

    /// Waits as a side does that is so far `ahead` of the other one, of which so many units are done.
    fn wait(
        &self,
        sys: &mut dyn System,
        counts: &Counts,
        ahead: impl Fn() -> u64,
        others: impl Fn() -> u64,
    ) -> Result<(), Failure> {
        let mut waited = Ns::ZERO;
        loop {
            let each = (sys.now() - counts.began) / others().max(1);
            let is_enough = match self.waits {
                Waits::Busy | Waits::Asleep => ahead() == 0,
                Waits::Slower => waited >= Ns(each.0.saturating_mul(ahead()) / SLACK),
            };
            if is_enough {
                return Ok(());
            }
            match self.waits {
                Waits::Busy | Waits::Slower => sys.compute(PAUSE)?,
                Waits::Asleep => sys.sleep(PAUSE)?,
            }
            waited += PAUSE;
        }
    }
}

/// The background's hold on its pace: nobody waits for it when it is gone, however it ended.
pub(super) struct Follower(Pace);

impl Follower {
    /// Waits for the work in front; false if it `is_over`.
    pub(super) fn goes_on(
        &self,
        sys: &mut dyn System,
        is_over: impl Fn() -> bool,
    ) -> Result<bool, Failure> {
        let Some(counts) = &self.0.counts else { return Ok(!is_over()) };
        let ahead = || {
            // What comes next is one of those that are due, or ahead.
            let ahead = (counts.done() + 1).saturating_sub(counts.due());
            if is_over() { 0 } else { ahead }
        };
        self.0.wait(sys, counts, ahead, || counts.due())?;
        Ok(!is_over())
    }

    /// One more of what is due was done.
    pub(super) fn count(&self) {
        if let Some(counts) = &self.0.counts {
            counts.done.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if let Some(counts) = &self.0.counts {
            counts.done.store(u64::MAX / 2, Ordering::Relaxed);
        }
    }
}

/// A share of an amount: `amount * part / whole`, rounded down.
pub(super) fn share(amount: u64, part: u64, whole: u64) -> u64 {
    (u128::from(amount) * u128::from(part) / u128::from(whole.max(1))) as u64
}
