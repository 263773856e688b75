//! `fragmenter`: threads fill the page cache with small files; then they read files of their own again while
//! another process wants huge pages.

use super::Unknown;
use super::arguments::Arguments;
use super::fragments::{FILE_BYTES, WRITE_BYTES};
use super::pace::{Pace, Waits, share};
use super::program::{Size, UNIT_PAGES, touch_units};
use super::told::{Course, Told, only};
use crate::background::Background;
use crate::files::{Random, read_to_end, write_new};
use crate::process::{map, run_process, run_threads};
use highorder_system::{Advice, Failure, System, ThreadSpec};

/// Begins the number of each thread's random stream: "fragread" in ASCII.
const STREAM: u128 = 0x6672_6167_7265_6164 << 64;

/// What `fragmenter` was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragmenter {
    /// Threads that write, and then read.
    pub threads: u32,
    /// All files, of 64 KiB each, in percent of memory.
    pub file_percent: u64,
    /// The mapping that is to be made of huge pages, in percent of memory.
    pub anon_percent: u64,
    /// Files that its threads read again in all, if that is known.
    pub nr_reread: Option<u64>,
    /// How far the mapping had come by when, if that is known.
    course: Option<Course>,
}

impl Fragmenter {
    pub(super) fn of(arguments: &Arguments) -> Result<Self, Unknown> {
        arguments.only("tfa")?;
        Ok(Self {
            threads: arguments.threads(4)?,
            file_percent: arguments.number('f')?.unwrap_or(150),
            anon_percent: arguments.number('a')?.unwrap_or(75),
            nr_reread: None,
            course: None,
        })
    }

    /// As much is read again as results tell, at one rate while memory is mapped.
    pub(super) fn set_reread(&mut self, told: &Told) {
        let mib = only(&told.results, "fragmenter.reread_mb");
        self.nr_reread = mib.map(|mib| mib as u64 * (1 << 20) / FILE_BYTES);
        self.course = Course::of(&told.moments);
    }

    pub(super) fn run(self, sys: &mut dyn System) -> Result<(), Failure> {
        let machine = sys.machine();
        let file_bytes = machine.total_pages * machine.page_bytes * self.file_percent / 100;
        let each = file_bytes / FILE_BYTES / u64::from(self.threads);
        let name = |thread: u32, file: u64| format!("file-{thread}-{file}");
        run_threads(sys, "fragmenter", self.threads, |number| {
            Box::new(move |sys| {
                (0..each).try_for_each(|file| {
                    write_new(sys, &name(number, file), FILE_BYTES, WRITE_BYTES)
                })
            })
        })?;
        let nr_reread = self.nr_reread.filter(|_| each > 0);
        let pace = Pace::new(sys, nr_reread.is_some(), Waits::Slower);
        let mut readers = Background::default();
        for number in (0..self.threads).filter(|_| each > 0) {
            let spec = ThreadSpec::thread(format!("reader-{number}"));
            let pace = pace.follower();
            readers.start_on(sys, spec, move |sys, signal| {
                let mut random = Random::new(sys.seed(), STREAM | u128::from(number));
                while pace.goes_on(sys, || signal.is_over())? {
                    let file = name(number, random.below(each));
                    read_to_end(sys, &file, FILE_BYTES, WRITE_BYTES)?;
                    pace.count();
                }
                Ok(())
            })?;
        }
        let child = ThreadSpec::process("fragmenter");
        let Self { anon_percent, course, .. } = self;
        let mapped = run_process(
            sys,
            child,
            Box::new(move |sys| {
                let pages = Size::Percent(anon_percent).pages_each(sys.machine().total_pages, 1);
                let area = map(sys, pages, Some(Advice::Huge))?;
                for unit in (0..area.pages).step_by(UNIT_PAGES as usize) {
                    touch_units(sys, area.part(unit, UNIT_PAGES))?;
                    let (all, done) = (nr_reread.unwrap_or(0), unit + UNIT_PAGES);
                    let due = match &course {
                        Some(course) => course.at_one_rate(all, done, area.pages),
                        None => share(all, done, area.pages),
                    };
                    pace.lead(sys, due)?;
                }
                sys.note_held();
                Ok(())
            }),
        );
        readers.end(sys)?;
        mapped.map(|_| ())
    }
}
