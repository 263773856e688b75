//! `mapstream`: processes write a word to every page of sparse files that they have mapped.

use super::Unknown;
use super::arguments::Arguments;
use crate::micro;
use crate::process::run_processes;
use highorder_system::{Code, Failure, System, ThreadSpec};

/// What `mapstream` was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapstream {
    /// Processes, each with a file of its own.
    pub processes: u32,
    /// All files, in percent of memory.
    pub percent: u64,
}

impl Mapstream {
    pub(super) fn of(arguments: &Arguments) -> Result<Self, Unknown> {
        arguments.only("np")?;
        let missing = |what| Unknown::Malformed(format!("no `{what}`, expected a number"));
        let processes = arguments.number('n')?.filter(|&n| n > 0);
        Ok(Self {
            processes: processes.ok_or_else(|| missing("-n"))?,
            percent: arguments.number('p')?.ok_or_else(|| missing("-p"))?,
        })
    }

    pub(super) fn run(self, sys: &mut dyn System) -> Result<(), Failure> {
        let machine = sys.machine();
        let page_bytes = machine.page_bytes;
        let pages = machine.total_pages * self.percent / 100 / u64::from(self.processes);
        let all = (0..self.processes).map(|number| {
            let name = format!("mapstream-{number}");
            let code: Code = Box::new(move |sys| micro::process(sys, &name, pages, page_bytes));
            (ThreadSpec::process(format!("mapstream-{number}")), code)
        });
        run_processes(sys, all)?;
        micro::wait_for_kswapd(sys)
    }
}
