//! Memory that is fragmented on purpose: `fragmem`, and how `thpscale` begins.

use super::Unknown;
use super::arguments::Arguments;
use super::pace::share;
use super::program::UNIT_PAGES;
use crate::background::Background;
use crate::files::{Random, read_to_end, write_new};
use crate::process::map;
use highorder_system::{Access, Advice, Failure, Ns, Pattern, System};

/// Begins the number of the random stream: "fragmem" in ASCII.
const STREAM: u128 = 0x66_7261_676d_656d << 64;
/// Anonymous pages that are touched between two lots of files: 1 MiB.
const STEP_PAGES: u64 = 256;
/// A file.
pub(super) const FILE_BYTES: u64 = 64 << 10;
/// Written at a time.
pub(super) const WRITE_BYTES: u64 = 4 << 10;

/// How memory is fragmented: anonymous memory and small files take turns, and then part of the first goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragments {
    /// Anonymous memory, in percent of memory.
    pub anon_percent: u64,
    /// Files of 64 KiB, in percent of memory.
    pub file_percent: u64,
    /// One anonymous page of so many stays; for 0 half of them do, at random.
    pub keep: u64,
}

impl Fragments {
    pub(super) fn of(arguments: &Arguments) -> Result<Self, Unknown> {
        let file_percent = match arguments.has('d') {
            true => arguments.number('f')?.unwrap_or(50),
            false => 0,
        };
        Ok(Self {
            anon_percent: arguments.number('a')?.unwrap_or(30),
            file_percent,
            keep: arguments.number('k')?.unwrap_or(2),
        })
    }

    /// Fragments memory; what stays is mapped from then on. It is kept busy until it has taken as long as it did when it
    /// was recorded, if that is known, for a journal commits and writers write by the clock. A page that is new takes
    /// twice as long as one that is read again: it has to be had as well as filled (files had been written after 75 % of
    /// the time in `50-thpscale-always`, and after 81 % in `44-thpscale-always`, where this says 76 %).
    pub(super) fn make(self, sys: &mut dyn System, took: Option<Ns>) -> Result<(), Failure> {
        let machine = sys.machine();
        let (total, page_bytes) = (machine.total_pages, machine.page_bytes);
        let anon = total * self.anon_percent / 100 / UNIT_PAGES * UNIT_PAGES;
        let files = total * self.file_percent / 100 * page_bytes / FILE_BYTES;
        let area = map(sys, anon, Some(Advice::NoHuge))?;
        let steps = anon.div_ceil(STEP_PAGES).max(1);
        let name = |number: u64| format!("fragment-{number}");
        let began = sys.now();
        let file_pages = FILE_BYTES / page_bytes;
        let all = 2 * anon + 3 * files * file_pages;
        let keep_pace = |sys: &mut dyn System, done: u64| {
            let Some(took) = took else { return Ok(()) };
            let due = began.saturating_add(Ns(share(took.0, done, all)));
            let left = due.saturating_sub(sys.now());
            sys.compute(left)
        };
        for step in 0..steps {
            let first = step * STEP_PAGES;
            let part = area.part(first, STEP_PAGES.min(anon - first));
            sys.touch_range(part, Pattern::word(Access::Write))?;
            // Equal shares.
            let written = files * (step + 1) / steps;
            for number in files * step / steps..written {
                write_new(sys, &name(number), FILE_BYTES, WRITE_BYTES)?;
            }
            keep_pace(sys, 2 * (first + part.pages + written * file_pages))?;
        }
        for number in 0..files {
            read_to_end(sys, &name(number), FILE_BYTES, FILE_BYTES)?;
            keep_pace(sys, 2 * anon + (2 * files + number + 1) * file_pages)?;
        }
        // The original's own sequence is not known, but was the same in every run; any random half will do.
        let mut random = Random::new(0, STREAM);
        for page in 0..anon {
            let stays = match self.keep {
                0 => random.coin(),
                keep => page % keep == 0,
            };
            if !stays {
                sys.madvise(area.part(page, 1), Advice::DontNeed)?;
            }
        }
        Ok(())
    }

    /// Fragments memory in a process that holds what stays until `background` ends.
    pub(super) fn hold(
        self,
        sys: &mut dyn System,
        background: &mut Background,
    ) -> Result<(), Failure> {
        const PAUSE: Ns = Ns::from_secs(1);
        background.start(sys, "fragmem", move |sys, signals| {
            self.make(sys, None)?;
            signals.set_ready();
            while !signals.is_over() {
                sys.sleep(PAUSE)?;
            }
            Ok(())
        })?;
        background.wait_until_ready(sys)
    }
}
