//! `fsmark`: threads write files of one size, iteration after iteration, and keep them.

use super::Unknown;
use super::arguments::Arguments;
use crate::fsmark::{Plan, process};
use highorder_system::{Failure, System};

/// Written at a time.
const WRITE_BYTES: u64 = 64 << 10;

/// What `fsmark` was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fsmark {
    /// Threads.
    pub threads: u32,
    /// A file, in KiB.
    pub file_kib: u64,
    /// Iterations.
    pub iterations: u64,
    /// All files of an iteration, in percent of memory.
    pub percent: u64,
}

impl Fsmark {
    pub(super) fn of(arguments: &Arguments) -> Result<Self, Unknown> {
        arguments.only("tsip")?;
        let file_kib = arguments.number('s')?.unwrap_or(1024);
        if file_kib == 0 {
            return Err(Unknown::Malformed(
                "`-s 0`, expected the size of a file in KiB".to_owned(),
            ));
        }
        Ok(Self {
            threads: arguments.threads(8)?,
            file_kib,
            iterations: arguments.number('i')?.unwrap_or(1),
            percent: arguments.number('p')?.unwrap_or(100),
        })
    }

    pub(super) fn run(self, sys: &mut dyn System) -> Result<(), Failure> {
        let machine = sys.machine();
        let file_bytes = self.file_kib << 10;
        let all = machine.total_pages * machine.page_bytes * self.percent / 100;
        let plan = Plan {
            threads: self.threads,
            files_each: all / file_bytes / u64::from(self.threads),
            file_bytes,
            block: WRITE_BYTES,
            directories: 1,
            directory_files: u64::MAX,
            iterations: self.iterations,
        };
        process(sys, plan)
    }
}
