//! `stutter`: mappings of a few MiB are timed while most of memory is taken and a large file is copied.

use super::Unknown;
use super::arguments::Arguments;
use crate::stutter::{Course, make_file};
use highorder_system::{Failure, Ns, System};

/// From the hog's start to the copy's.
const SETTLE: Ns = Ns::from_secs(5);

/// What `stutter` was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stutter {
    /// Whether it only makes the file that is to be copied.
    pub makes_file: bool,
    /// Rounds of a copy each.
    pub rounds: u64,
    /// Each mapping, in MiB.
    pub mapping_mib: u64,
    /// What the hog takes, in percent of memory.
    pub hog_percent: u64,
}

impl Stutter {
    pub(super) fn of(arguments: &Arguments) -> Result<Self, Unknown> {
        arguments.only("srmp")?;
        Ok(Self {
            makes_file: arguments.has('s'),
            rounds: arguments.number('r')?.unwrap_or(5),
            mapping_mib: arguments.number('m')?.unwrap_or(128),
            hog_percent: arguments.number('p')?.unwrap_or(75),
        })
    }

    pub(super) fn run(self, sys: &mut dyn System) -> Result<(), Failure> {
        let machine = sys.machine();
        let (total, page_bytes) = (machine.total_pages, machine.page_bytes);
        let file_bytes = 2 * total * page_bytes;
        if self.makes_file {
            return make_file(sys, file_bytes);
        }
        let course = Course {
            hog_pages: total * self.hog_percent / 100,
            file_bytes,
            mapping: (self.mapping_mib << 20) / page_bytes,
            advice: None,
            rounds: self.rounds,
            settle: SETTLE,
        };
        course.run(sys).map(drop)
    }
}
