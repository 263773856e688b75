//! micro: processes write one word to every page of sparse files that they have mapped.
//!
//! Models: the test "micro" of mmtests (2012), which hammers on file-backed mappings: in each of two tests,
//! one process a CPU maps a sparse file of its own, shared, and writes a word every 4096 bytes, once; the
//! files of a test hold ten times memory together. Both tests write, `mmap-read` too: the script of the
//! time did. When all processes have ended, it waits until kswapd is idle.
//! Departs: kswapd is idle when its counters have not moved for a second. Visible as: up to a second more
//! of elapsed time.

use crate::Workload;
use crate::parameters::{Kind, Parameter, Settings};
use crate::process::{report_killed, report_seconds, run_processes};
use highorder_system::{Access, Code, Failure, Ns, Pattern, System, ThreadSpec};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "micro",
    about: "processes write every page of sparse files that they have mapped",
    parameters: &[
        Parameter {
            name: "memory",
            about: "All files of a test together; there are two tests.",
            unit: "",
            kind: Kind::Memory { default_millionths: 10_000_000 },
        },
        Parameter {
            name: "processes_per_cpu",
            about: "Processes for each CPU of the machine, each with a file of its own.",
            unit: "processes",
            kind: Kind::Count { least: 1, most: 64, default: 1 },
        },
    ],
    check: |_| Ok(()),
    late: &[],
    needs_files: |_| true,
    run,
};

/// The tests, in order.
const TESTS: [&str; 2] = ["mmap-read", "mmap-write"];

/// How long nothing has to happen for kswapd to be idle, and how often that is tried.
const IDLE: Ns = Ns::from_secs(1);
const TRIES: u32 = 600;

fn run(sys: &mut dyn System, settings: &Settings) -> Result<(), Failure> {
    let machine = sys.machine();
    let page_bytes = machine.page_bytes;
    let processes = machine.nr_cpus() * settings.count_u32("processes_per_cpu");
    let pages = settings.pages("memory", machine) / u64::from(processes);
    for test in TESTS {
        let all = (0..processes).map(|number| {
            let name = format!("micro/{test}-{number}");
            let code: Code = Box::new(move |sys| process(sys, &name, pages, page_bytes));
            (ThreadSpec::process(format!("micro-{number}")), code)
        });
        let took = run_processes(sys, all)?;
        match took.nr_killed {
            0 => report_seconds(sys, &format!("Elapsd {test}"), took.elapsed),
            killed => report_killed(sys, &format!("Killed {test}"), killed),
        }
        wait_for_kswapd(sys)?;
    }
    Ok(())
}

/// Writes a word to every page of a new sparse file through a shared mapping.
pub(crate) fn process(
    sys: &mut dyn System,
    name: &str,
    pages: u64,
    page_bytes: u64,
) -> Result<(), Failure> {
    let file = sys.create_file(name)?;
    sys.set_file_bytes(file, pages * page_bytes)?;
    let area = sys.map_file(file, 0, pages, Access::Write)?;
    sys.close_file(file)?;
    sys.touch_range(area, Pattern::word(Access::Write))?;
    sys.note_held();
    sys.munmap(area)
}

/// Waits until kswapd scans nothing any more, but not for ever.
pub(crate) fn wait_for_kswapd(sys: &mut dyn System) -> Result<(), Failure> {
    let mut before = scanned(sys);
    for _ in 0..TRIES {
        sys.sleep(IDLE)?;
        let now = scanned(sys);
        if now == before {
            break;
        }
        before = now;
    }
    Ok(())
}

/// What kswapd has scanned since boot: by zone before 4.8, one counter since.
fn scanned(sys: &mut dyn System) -> u64 {
    let counters = sys.counters();
    let of_kswapd = counters.iter().filter(|(name, _)| name.starts_with("pgscan_kswapd"));
    of_kswapd.map(|(_, count)| count).sum()
}
