//! `churn`: mappings of mixed sizes come and go.

use super::Unknown;
use super::arguments::Arguments;
use super::program::{UNIT_PAGES, touch_units};
use crate::files::Random;
use crate::process::run_threads;
use highorder_system::{Access, Advice, Area, Failure, Pattern, System};

/// Begins the number of each thread's random stream: "slots" in ASCII.
const STREAM: u128 = 0x73_6c6f_7473 << 64;
/// Mappings that a thread has at most.
const NR_SLOTS: u64 = 256;

/// What `churn` was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Churn {
    /// Threads.
    pub threads: u32,
    /// Mappings that each of them makes.
    pub operations: u64,
    /// What each of them has mapped at most, in MiB.
    pub live_mib: u64,
}

impl Churn {
    pub(super) fn of(arguments: &Arguments) -> Result<Self, Unknown> {
        arguments.only("tnm")?;
        let needs = |letter: char, what: &str| {
            let missing = Unknown::Malformed(format!("no `-{letter}`, expected {what}"));
            arguments.number(letter)?.ok_or(missing)
        };
        Ok(Self {
            threads: arguments.threads(1)?,
            operations: needs('n', "the number of operations")?,
            live_mib: needs('m', "MiB to stay under")?,
        })
    }

    pub(super) fn run(self, sys: &mut dyn System) -> Result<(), Failure> {
        run_threads(sys, "churn", self.threads, |number| {
            Box::new(move |sys| {
                let mut slots = Slots::new(sys.seed(), number, self.live_mib * 256);
                (0..self.operations).try_for_each(|_| slots.replace_one(sys))
            })
        })?;
        // What they mapped is there until the process ends.
        sys.note_held();
        Ok(())
    }
}

/// A thread's mappings.
struct Slots {
    random: Random,
    /// Each mapping, and the number of the operation that made it.
    slots: Vec<Option<(Area, u64)>>,
    nr_made: u64,
    live_pages: u64,
    most_pages: u64,
}

impl Slots {
    fn new(seed: u64, thread: u32, most_pages: u64) -> Self {
        let random = Random::new(seed, STREAM | u128::from(thread));
        let slots = vec![None; NR_SLOTS as usize];
        Self { random, slots, nr_made: 0, live_pages: 0, most_pages }
    }

    fn replace_one(&mut self, sys: &mut dyn System) -> Result<(), Failure> {
        let slot = self.random.below(NR_SLOTS) as usize;
        let (pages, advice) = match self.random.below(100) {
            0..50 => (self.random.between(1, 16), None),
            50..85 => (self.random.between(16, 256), None),
            _ => (self.random.between(1, 4) * UNIT_PAGES, Some(Advice::Huge)),
        };
        self.unmap(sys, slot)?;
        while self.live_pages + pages > self.most_pages
            && let Some(oldest) = self.oldest()
        {
            self.unmap(sys, oldest)?;
        }
        let area = match advice {
            None => sys.mmap_anywhere(pages)?,
            Some(_) => sys.mmap(pages)?,
        };
        self.slots[slot] = Some((area, self.nr_made));
        self.nr_made += 1;
        self.live_pages += pages;
        match advice {
            None => sys.touch_range(area, Pattern::word(Access::Write)),
            Some(advice) => {
                sys.madvise(area, advice)?;
                touch_units(sys, area)
            }
        }
    }

    /// The slot whose mapping was made first.
    fn oldest(&self) -> Option<usize> {
        let made = self.slots.iter().enumerate();
        let made = made.filter_map(|(at, slot)| slot.map(|(_, number)| (number, at)));
        made.min().map(|(_, at)| at)
    }

    fn unmap(&mut self, sys: &mut dyn System, slot: usize) -> Result<(), Failure> {
        let Some((area, _)) = self.slots[slot].take() else { return Ok(()) };
        self.live_pages -= area.pages;
        sys.munmap(area)
    }
}
