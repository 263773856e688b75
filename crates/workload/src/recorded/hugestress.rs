//! `hugestress`: the pool of huge pages is filled while memory is in use, and once more when it no longer is.
//!
//! Which of its files a writer reads again is not described. Recorded runs tell that chance decides: from the first
//! second of reading on, 3.4 and 3.5 activate as many pages for each that they read from the disk as are in memory for
//! each that is not, which no order of files would do.

use super::Unknown;
use super::arguments::Arguments;
use super::fragments::{FILE_BYTES, WRITE_BYTES};
use super::program::{Size, UNIT_PAGES, report_success};
use crate::background::Background;
use crate::files::{Random, read_to_end, write_new};
use crate::process::map;
use highorder_system::{Access, Advice, Failure, KernelBlock, Ns, Page, Pattern, System};

/// Begins the number of the random stream: "hugestre" in ASCII.
const STREAM: u128 = 0x6875_6765_7374_7265 << 64;
/// How often the pool's target is written, until it is reached.
const TRIES: u32 = 4;
/// Between two of them.
const PACE: Ns = Ns::from_millis(300);
/// After the load has ended.
const REST: Ns = Ns::from_secs(3);
/// Processes that write files and read them again.
const NR_WRITERS: u64 = 2;
/// Pages that are touched before the process asks whether it is to end.
const TOUCHES: usize = 1024;

/// What `hugestress` was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hugestress {
    /// Anonymous memory that is in use, in percent of memory.
    pub anon_percent: u64,
    /// Files of 64 KiB, in percent of memory.
    pub file_percent: u64,
    /// What the pool is to have, in percent of memory.
    pub goal_percent: u64,
}

impl Hugestress {
    pub(super) fn of(arguments: &Arguments) -> Result<Self, Unknown> {
        arguments.only("dafg")?;
        Ok(Self {
            anon_percent: arguments.number('a')?.unwrap_or(40),
            file_percent: arguments.number('f')?.unwrap_or(60),
            goal_percent: arguments.number('g')?.unwrap_or(70),
        })
    }

    pub(super) fn run(self, sys: &mut dyn System) -> Result<(), Failure> {
        let machine = sys.machine();
        let (total, page_bytes) = (machine.total_pages, machine.page_bytes);
        let goal = total * self.goal_percent / 100 / UNIT_PAGES;
        let anon = Size::Percent(self.anon_percent).pages_each(total, 1);
        let files = total * page_bytes * self.file_percent / 100 / FILE_BYTES / NR_WRITERS;
        let mut load = Background::default();
        load.start(sys, "anon", move |sys, signal| {
            let mut random = Random::new(sys.seed(), STREAM);
            let area = map(sys, anon, Some(Advice::NoHuge))?;
            sys.touch_range(area, Pattern::word(Access::Write))?;
            signal.set_ready();
            while !signal.is_over() && anon > 0 {
                let pages: Vec<Page> =
                    (0..TOUCHES).map(|_| area.page(random.below(anon))).collect();
                sys.touch_pages(&pages, Access::Write)?;
            }
            Ok(())
        })?;
        for writer in 0..NR_WRITERS {
            load.start(sys, "files", move |sys, signal| {
                let name = |file: u64| format!("file-{writer}-{file}");
                for file in 0..files {
                    write_new(sys, &name(file), FILE_BYTES, WRITE_BYTES)?;
                }
                signal.set_ready();
                let mut random = Random::new(sys.seed(), STREAM | u128::from(writer + 1));
                while !signal.is_over() && files > 0 {
                    read_to_end(sys, &name(random.below(files)), FILE_BYTES, WRITE_BYTES)?;
                }
                Ok(())
            })?;
        }
        load.wait_until_ready(sys)?;
        fill_pool(sys, goal, "pass1")?;
        fill_pool(sys, goal, "pass2")?;
        load.end(sys)?;
        sys.sleep(REST)?;
        fill_pool(sys, goal, "rested")
    }
}

/// Fills the pool as far as it can be, and empties it.
fn fill_pool(sys: &mut dyn System, goal: u64, pass: &str) -> Result<(), Failure> {
    let mut pool = Vec::new();
    for number in 0..TRIES {
        if number > 0 {
            sys.sleep(PACE)?;
        }
        while (pool.len() as u64) < goal
            && let Some(page) = sys.take_block(KernelBlock::Hugetlb)?
        {
            pool.push(page);
        }
        if pool.len() as u64 == goal {
            break;
        }
    }
    sys.note_held();
    report_success(sys, &format!("hugestress.{pass}"), pool.len() as u64, goal);
    pool.into_iter().try_for_each(|page| sys.free_block(page))
}
