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

/// What a side does while it waits for the other one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Waits {
    /// It keeps its CPU. Where a recorded program got no further in that time it was slow, not asleep, and whoever else
    /// ran meanwhile, kswapd for one, had to share the CPUs with it.
    Busy,
    /// It sleeps, as it does for most of the time.
    #[default]
    Asleep,
}

impl Waits {
    fn pause(self, sys: &mut dyn System) -> Result<(), Failure> {
        match self {
            Self::Busy => sys.compute(PAUSE),
            Self::Asleep => sys.sleep(PAUSE),
        }
    }
}

/// What is due in the background, and what was done of it.
#[derive(Debug, Default)]
struct Counts {
    due: AtomicU64,
    done: AtomicU64,
}

/// Keeps both sides in step, or leaves each to itself where nobody knows how much was done.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    counts: Option<Arc<Counts>>,
    waits: Waits,
}

impl Pace {
    pub(super) fn new(is_known: bool, waits: Waits) -> Self {
        Self { counts: is_known.then(Arc::default), waits }
    }

    pub(super) const fn is_known(&self) -> bool {
        self.counts.is_some()
    }

    /// One of those in the background.
    pub(super) fn follower(&self) -> Follower {
        Follower(self.clone())
    }

    /// The work in front has come so far that this much is due, and waits until it is done, but for what is under
    /// way. Does nothing when the background is gone.
    pub(super) fn lead(&self, sys: &mut dyn System, due: u64) -> Result<(), Failure> {
        let Some(counts) = &self.counts else { return Ok(()) };
        counts.due.fetch_max(due, Ordering::Relaxed);
        while counts.done.load(Ordering::Relaxed).saturating_add(1) < due {
            self.waits.pause(sys)?;
        }
        Ok(())
    }
}

/// The background's hold on its pace: nobody waits for it when it is gone, however it ended.
pub(super) struct Follower(Pace);

impl Follower {
    /// Waits until more is due; false if it `is_over` instead.
    pub(super) fn goes_on(
        &self,
        sys: &mut dyn System,
        is_over: impl Fn() -> bool,
    ) -> Result<bool, Failure> {
        while !is_over() {
            let is_due = self.0.counts.as_ref().is_none_or(|counts| {
                counts.done.load(Ordering::Relaxed) < counts.due.load(Ordering::Relaxed)
            });
            if is_due {
                return Ok(true);
            }
            self.0.waits.pause(sys)?;
        }
        Ok(false)
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
