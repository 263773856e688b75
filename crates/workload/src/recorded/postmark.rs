//! `postmark`: files of random sizes are created, read, made longer and deleted.

use super::Unknown;
use super::arguments::Arguments;
use crate::postmark::{Plan, Postmark as Run};
use highorder_system::{Failure, System};

/// Sizes of files, from and to.
const SIZES: [u64; 2] = [3096, 5 << 20];
/// Read and written at a time: postmark's default.
const BLOCK: u64 = 4096;

/// An append adds at most so much: the three recorded runs wrote 2232.7 MiB, of which 897 files of 2.5 MiB on average
/// leave nothing for more.
const APPEND_MAX: u64 = BLOCK;

/// What `postmark` was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Postmark {
    /// Files at the beginning: as many of the largest size as are so many percent of memory.
    pub percent: u64,
    /// Transactions.
    pub transactions: u64,
}

impl Postmark {
    pub(super) fn of(arguments: &Arguments) -> Result<Self, Unknown> {
        arguments.only("px")?;
        Ok(Self {
            percent: arguments.number('p')?.unwrap_or(400),
            transactions: arguments.number('x')?.unwrap_or(15_000),
        })
    }

    pub(super) fn run(self, sys: &mut dyn System) -> Result<(), Failure> {
        let machine = sys.machine();
        let [size_min, size_max] = SIZES;
        let plan = Plan {
            files: machine.total_pages * machine.page_bytes * self.percent / 100 / size_max,
            size_min,
            size_max,
            block: BLOCK,
            subdirectories: 1,
            transactions: self.transactions,
            append_max: APPEND_MAX,
        };
        Run::new(plan, sys.seed()).run(sys)
    }
}
