//! Replay in lockstep: the state follows the recording, and before each recorded choice the model is
//! asked what it would do.
//!
//! Models: nothing of its own; it compares `highorder-mm` with a kernel.
//! Departs: a recording does not hold everything. Pages handed out without an event (bulk allocation),
//! blocks captured by compaction, and frees that bypassed a locked per-CPU list are inferred from what
//! happens to the page later, and counted as inferred, not as agreement.

pub(crate) mod compaction;
pub(crate) mod follow;

use crate::future::Future;
use crate::machine;
use crate::recording::Recording;
use crate::{InputError, KernelFile};
use follow::Follower;
use std::fmt;

/// The kinds of choice that a recording shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Choice {
    /// Which block leaves a free list.
    Take,
    /// Which block of another type serves a request, and whether its pageblock changes type.
    Fallback,
    /// Which block leaves a per-CPU list for a request.
    PcpTake,
    /// Which block leaves a per-CPU list for the free lists.
    Drain,
    /// Of the blocks taken: those that were remainders of a split.
    SplitRemainder,
    /// Of the blocks taken: those that had merged.
    Merged,
    /// How many blocks a refill fetches.
    RefillSize,
    /// How many pages a free that overflows its lists drains.
    DrainSize,
    /// Which block compaction's search of the free lists finds to migrate into, and after how many.
    FastSearch,
    /// Which pageblock compaction's search of the free lists finds to empty.
    MigrateSearch,
}

impl Choice {
    /// Every kind, in the order they are printed.
    pub const ALL: [Self; 10] = [
        Self::Take,
        Self::Fallback,
        Self::PcpTake,
        Self::Drain,
        Self::SplitRemainder,
        Self::Merged,
        Self::RefillSize,
        Self::DrainSize,
        Self::FastSearch,
        Self::MigrateSearch,
    ];

    /// What is asked, for people.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Take => "block taken from a free list",
            Self::Fallback => "fallback to another type",
            Self::PcpTake => "block taken from a per-CPU list",
            Self::Drain => "block drained from a per-CPU list",
            Self::SplitRemainder => "  of the taken: split's remainder",
            Self::Merged => "  of the taken: merged block",
            Self::RefillSize => "blocks a refill fetches",
            Self::DrainSize => "pages an overflow drains",
            Self::FastSearch => "compaction's search for a target",
            Self::MigrateSearch => "compaction's search for a source",
        }
    }

    /// A name for files.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Take => "take",
            Self::Fallback => "fallback",
            Self::PcpTake => "pcp_take",
            Self::Drain => "drain",
            Self::SplitRemainder => "split_remainder",
            Self::Merged => "merged",
            Self::RefillSize => "refill_size",
            Self::DrainSize => "drain_size",
            Self::FastSearch => "fast_search",
            Self::MigrateSearch => "migrate_search",
        }
    }
}

/// How often the model was asked, and how often it said what the kernel did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Choices.
    pub asked: u64,
    /// Of them, those that the model makes too.
    pub agreed: u64,
}

impl Tally {
    fn count(&mut self, agreed: bool) {
        self.asked += 1;
        self.agreed += u64::from(agreed);
    }

    /// The share agreed on, 0 to 1; `None` if nothing was asked.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        (self.asked > 0).then(|| self.agreed as f64 / self.asked as f64)
    }
}

/// What the recording does not tell and was inferred, in pages where not said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inferred {
    /// Taken from a per-CPU list without an event: the next thing that happened to them was a free.
    pub bulk_pages: u64,
    /// Handed out without having left a list: captured by compaction, or taken from the highatomic
    /// reserve.
    pub captured_pages: u64,
    /// Freed past the per-CPU lists, which were locked.
    pub bypassed_pages: u64,
    /// Free lists found to begin elsewhere than foreseen, as after a search by compaction that was not
    /// foreseen (a number of lists, not pages).
    pub rotations: u64,
    /// Marks of per-CPU lists found to be others than foreseen, as after a timer has lowered them (a
    /// number of marks, not pages).
    pub marks: u64,
    /// In use although the last event left them free, or the reverse.
    pub other_pages: u64,
}

/// A choice on which kernel and model differ.
#[derive(Clone, Debug)]
pub struct Disagreement {
    /// Index of the event.
    pub event: usize,
    /// Seconds since the first event.
    pub seconds: f64,
    /// What was asked.
    pub choice: Choice,
    /// What the kernel did.
    pub kernel: String,
    /// What the model would have done.
    pub model: String,
    /// The state around both.
    pub state: String,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "event {} at {:.6} s, {}: kernel {}, model {} ({})",
            self.event,
            self.seconds,
            self.choice.label().trim_start(),
            self.kernel,
            self.model,
            self.state
        )
    }
}

/// How the lists at the end compare with the recorded ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndState {
    /// Free blocks recorded.
    pub free_blocks: u64,
    /// Of them, those that the followed state has on the same list.
    pub on_same_list: u64,
    /// Of them, those whose predecessor on the list is the same too.
    pub in_same_order: u64,
    /// Pageblocks recorded.
    pub pageblocks: u64,
    /// Of them, those that compaction would skip here and there, or would not.
    pub with_same_skip_hint: u64,
}

/// The result of a replay in lockstep.
#[derive(Clone, Debug)]
pub struct Report {
    /// Agreement by [`Choice`], in the order of [`Choice::ALL`].
    pub agreement: [Tally; Choice::ALL.len()],
    /// What had to be inferred.
    pub inferred: Inferred,
    /// The first disagreements of each kind.
    pub disagreements: Vec<Disagreement>,
    /// The end, where the recording has it.
    pub end: Option<EndState>,
    /// Events replayed.
    pub nr_events: u64,
}

impl Report {
    /// Agreement on one kind of choice.
    #[must_use]
    pub fn tally(&self, choice: Choice) -> Tally {
        self.agreement[choice as usize]
    }
}

/// Follows `recording` under `kernel` and reports how often the model agrees. `progress` is told the
/// number of events done now and then.
///
/// # Errors
/// A recording whose machine the model has no room for, or that names a CPU its state does not have.
pub fn replay(
    recording: &Recording,
    kernel: &KernelFile,
    progress: &mut dyn FnMut(u64),
) -> Result<Report, InputError> {
    let memory = machine::restore(&recording.before, kernel, &recording.cpu_nodes())?;
    let future = Future::of(&recording.events, memory.frames().len());
    let mut follower = Follower::new(recording, &future, memory);
    for at in 0..recording.events.len() {
        if at.is_multiple_of(1 << 16) {
            progress(at as u64);
        }
        follower.step(at);
    }
    Ok(follower.finish())
}
