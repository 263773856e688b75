//! thpfioscale: threads ask for huge pages while very many small files, all of them open, are read.
//!
//! Models: mmtests' adverse workload for fragmentation (2018, shellpack_src/src/thpfioscale), which runs fio
//! (io_u.c: `get_next_file_rr`, `get_next_file_rand`, `get_next_rand_block`) with a limit of open files as high
//! as the number of files. Four processes write 4 KiB to each of their files in turn, then the next 4 KiB: one
//! and a half times memory in all, and every file is open until all of it is written. Sync. Then four processes
//! draw a file at random, read each of its blocks once in random order, and go on to the next; what they have
//! opened stays open. As long after their start as writing took, the threads of one more process map three
//! quarters of the first node's memory, fill it one huge page's place after the other, and take the time of each
//! as thpscale does. Then the readers are stopped and the files removed.
//! Departs: readers end with the file they are reading, and read on at least once. Visible as: nothing that is
//! known. fio advises the kernel that it reads at random. Visible as: some pages more are read ahead at the
//! beginning of files. fio's own tables of files and of what it read of them take no memory. Visible as: a
//! hundredth of memory less is anonymous. If a file is read less often in a row than it has blocks, the next
//! visit draws among all of them again. Visible as: nothing as mmtests has it.

use crate::files::{Random, blocks};
use crate::parameters::{Kind, Parameter, Settings};
use crate::process::{
    ADVICE, advice, join_all, report_killed, report_rate, report_seconds, run_processes,
};
use crate::small_files::{
    BLOCK, FILE_SIZE, MEMORY, Plan as Files, READS_PER_FILE, WRITERS, name, processes,
};
use crate::stutter::Flag;
use crate::thpscale::{fill_by_threads, fill_units, report_units};
use crate::{THREADS, Workload};
use highorder_system::{
    Advice, Code, Failure, FileId, MachineInfo, Ns, System, ThreadId, ThreadSpec,
};

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
    late: &["advice", "area", THREADS],
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
    let wrote = run_processes(
        sys,
        processes("write", writers, move |sys, n| write_in_turns(sys, files, n)),
    )?;
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
    let settings = settings.later(sys);
    let huge = Huge::new(sys.machine(), &settings, writers);
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

/// Writes a writer's files: a block of each in turn. They are created when they are first written.
fn write_in_turns(sys: &mut dyn System, files: Files, writer: u32) -> Result<(), Failure> {
    let mut open = Vec::with_capacity(files.nr_each as usize);
    for (at, bytes) in blocks(files.file_bytes, files.block) {
        for number in 0..files.nr_each {
            if at == 0 {
                open.push(sys.create_file(&name(writer, number))?);
            }
            sys.write_file(open[number as usize], at, bytes)?;
        }
    }
    open.into_iter().try_for_each(|file| sys.close_file(file))
}

/// A process that reads files of one writer at random, and keeps open what it has opened.
struct Reader {
    files: Files,
    writer: u32,
    open: Vec<Option<FileId>>,
    random: Random,
    /// The blocks of a file, in the order in which they are read next.
    order: Vec<(u64, u64)>,
}

impl Reader {
    fn new(sys: &dyn System, files: Files, writer: u32) -> Self {
        Self {
            files,
            writer,
            open: vec![None; files.nr_each as usize],
            random: Random::new(sys.seed(), STREAM | u128::from(writer)),
            order: blocks(files.file_bytes, files.block).collect(),
        }
    }

    /// Reads blocks of a file: none of them again before all were read.
    fn visit(&mut self, sys: &mut dyn System) -> Result<(), Failure> {
        let number = self.random.below(self.files.nr_each);
        let file = match self.open[number as usize] {
            Some(file) => file,
            None => sys.open_file(&name(self.writer, number))?,
        };
        self.open[number as usize] = Some(file);
        self.random.shuffle(&mut self.order);
        let reads = self.order.iter().cycle().take(self.files.reads_per_file as usize);
        for &(at, bytes) in reads {
            sys.read_file(file, at, bytes)?;
        }
        Ok(())
    }
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
            let mut reader = Reader::new(sys, files, number);
            while !stop.is_raised() && sys.now() < end {
                reader.visit(sys)?;
            }
            reader.open.into_iter().flatten().try_for_each(|file| sys.close_file(file))
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
