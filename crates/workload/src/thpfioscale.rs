//! thpfioscale: small files fill memory and fragment it, and while they are read threads ask for huge pages.
//!
//! Models: mmtests' thpfioscale (2018), as its postings describe it. Four fio processes write files of 64 KiB by 4 KiB,
//! one and a half times memory in all, each created when it is first written; sync. Then as many read 4 KiB at random
//! places, switching the file about every 16 reads: for as long as the writing took alone, and on while threads, a
//! quarter as many as the node has CPUs beside the writers, fill the first half of their shares of three quarters of
//! the first node's memory, one huge page's place after the other, and take the time of each as thpscale does. Then
//! the readers are stopped and the files removed.
//! Departs: readers end with the file they are reading, and read on at least once. Visible as: nothing that is known.
//! Departs: as small-files does.

use crate::files::Random;
use crate::parameters::{Kind, Parameter, Settings};
use crate::process::{
    ADVICE, advice, join_all, report_killed, report_rate, report_seconds, run_processes,
};
use crate::small_files::{
    BLOCK, FILE_SIZE, MEMORY, Plan as Files, READS_PER_FILE, WRITERS, processes,
};
use crate::stutter::Flag;
use crate::thpscale::{fill_by_threads, fill_units, report_units};
use crate::{THREADS, Workload};
use highorder_system::{Advice, Code, Failure, MachineInfo, Ns, System, ThreadId, ThreadSpec};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "thpfioscale",
    about: "threads ask for huge pages while very many small files are read",
    parameters: &[
        Parameter {
            name: "advice",
            about: "What is advised of the memory in which the time of each huge page is taken.",
            unit: "",
            kind: Kind::Word(ADVICE),
        },
        Parameter {
            name: "area",
            about: "Memory of all threads together, as a share of the first node's; they fill half of it.",
            unit: "parts of 100",
            kind: Kind::Count { least: 1, most: 400, default: 75 },
        },
        BLOCK,
        FILE_SIZE,
        MEMORY,
        Parameter {
            name: "read_seconds",
            about: "How long files are read at most, until the huge pages are done.",
            unit: "seconds",
            kind: Kind::Count { least: 1, most: 1_000_000, default: 3600 },
        },
        READS_PER_FILE,
        Parameter {
            name: THREADS,
            about: "Threads that ask for huge pages; 0: a quarter of the first node's CPUs beside the writers.",
            unit: "threads",
            kind: Kind::Count { least: 0, most: 8192, default: 0 },
        },
        WRITERS,
    ],
    check: |settings| settings.check_at_most("block", "file_size"),
    needs_files: |_| true,
    run,
};

/// What the process with the huge pages does.
#[derive(Clone, Copy, Debug)]
struct Huge {
    threads: u32,
    /// Pages of each thread's mapping, of which the first half is filled.
    share: u64,
    advice: Option<Advice>,
}

fn run(sys: &mut dyn System, settings: &Settings) -> Result<(), Failure> {
    let machine = sys.machine();
    let writers = settings.count_u32("writers");
    let files = Files::new(machine, settings, "thpfioscale")?;
    let huge = Huge::new(machine, settings, writers);
    let wrote = run_processes(sys, processes("write", writers, move |sys, n| files.write(sys, n)))?;
    sys.sync()?;
    if wrote.nr_killed > 0 {
        report_killed(sys, "Killed", wrote.nr_killed);
        return Ok(());
    }
    report_seconds(sys, "Write phase", wrote.elapsed);
    report_rate(sys, "Write", "MB/s", files.megabytes(writers), wrote.elapsed);

    let stop = Flag::default();
    let end = sys.now() + Ns::from_secs(settings.count("read_seconds"));
    let readers = start_readers(sys, files, writers, (&stop, end))?;
    sys.sleep(wrote.elapsed)?;
    let ended = fill_huge(sys, huge);
    stop.raise();
    let read = join_all(sys, &readers);
    if ended == Err(Failure::Killed) || read == Err(Failure::Killed) {
        report_killed(sys, "Killed", 1);
    } else {
        ended?;
        read?;
    }
    files.unlink_all(sys, writers)
}

impl Huge {
    fn new(machine: &MachineInfo, settings: &Settings, writers: u32) -> Self {
        let node = &machine.nodes[0];
        let spare = (node.cpus.len() as u32).saturating_sub(writers) / 4;
        let threads = match settings.count_u32(THREADS) {
            0 => spare.max(1),
            threads => threads,
        };
        let area = node.total_pages * settings.count("area") / 100;
        Self { threads, share: area / u64::from(threads), advice: advice(settings.word("advice")) }
    }

    /// Fills the first half of a thread's share. As [`fill_units`].
    fn fill(self, sys: &mut dyn System) -> Result<[u64; 2], Failure> {
        let huge = sys.machine().huge_pages;
        let filled = self.share / 2 / huge * huge;
        let area = sys.mmap(self.share)?;
        if let Some(advice) = self.advice {
            sys.madvise(area, advice)?;
        }
        let found = fill_units(sys, area.part(0, filled), self.threads)?;
        sys.note_held();
        sys.munmap(area)?;
        Ok(found)
    }
}

/// Starts the processes that read until they are told to stop, or that moment.
fn start_readers(
    sys: &mut dyn System,
    files: Files,
    count: u32,
    (stop, end): (&Flag, Ns),
) -> Result<Vec<ThreadId>, Failure> {
    let reader = |number: u32| -> Code {
        let stop = stop.clone();
        Box::new(move |sys| {
            let mut random = Random::new(sys.seed(), STREAM | u128::from(number));
            while !stop.is_raised() && sys.now() < end {
                files.visit(sys, number, &mut random)?;
            }
            Ok(())
        })
    };
    let start =
        |number| sys.spawn(ThreadSpec::process(format!("fio-read-{number}")), reader(number));
    (0..count).map(start).collect()
}

/// Begins the number of each reader's random stream: "thpfiosc" in ASCII.
const STREAM: u128 = 0x7468_7066_696f_7363 << 64;

/// Has a process of so many threads fill its memory, and reports what it got.
fn fill_huge(sys: &mut dyn System, huge: Huge) -> Result<(), Failure> {
    let (began, threads) = (sys.now(), huge.threads);
    let code: Code = Box::new(move |sys| {
        let found = fill_by_threads(sys, threads, move |sys, _| huge.fill(sys))?;
        report_units(sys, threads, found);
        Ok(())
    });
    let process = sys.spawn(ThreadSpec::process("thpscale"), code)?;
    sys.join(process)?;
    let took = sys.now() - began;
    report_seconds(sys, &format!("Elapsd-{threads}"), took);
    Ok(())
}
