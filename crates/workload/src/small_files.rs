//! small-files: processes write very many small files, then read them at random, then delete some.
//!
//! Models: programs that open a file, write or read it, and close it: four processes write files of 64 KiB by
//! 4 KiB, one file after the other, one and a half times memory in all; sync; then four read 4 KiB at random
//! places, switching the file every 16 reads, for as long as the writing took. Inodes, directory entries and
//! other slab memory come to lie among page cache, and can be shrunk. `thpfioscale` has sizes in common, and
//! keeps its files open.
//! Departs: files are visited at random, each as likely as any other, and none is sure to be visited. Visible
//! as: nothing that is known.
//!
//! Of our own making: `unlink` says whether at the end all files are deleted (as there), half of them drawn
//! at random, or none. Half of them leave slabs that a single object pins.

use crate::Workload;
use crate::files::{Random, write_new};
use crate::parameters::{Kind, Parameter, Settings};
use crate::process::{report_killed, report_rate, report_seconds, run_processes};
use highorder_record::{Better, Metric};
use highorder_system::{Code, Failure, MachineInfo, Ns, System, ThreadSpec};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "small-files",
    about: "very many small files are written, read at random, and deleted",
    parameters: &[
        BLOCK,
        FILE_SIZE,
        MEMORY,
        Parameter {
            name: "read_seconds",
            about: "How long files are read; 0: as long as writing them took.",
            unit: "seconds",
            kind: Kind::Count { least: 0, most: 1_000_000, default: 0 },
        },
        READS_PER_FILE,
        Parameter {
            name: "unlink",
            about: "Which files are deleted at the end; half of them are drawn at random.",
            unit: "",
            kind: Kind::Word(&["all", "half", "none"]),
        },
        WRITERS,
    ],
    check: |settings| settings.check_at_most("block", "file_size"),
    late: &[],
    needs_files: |_| true,
    run,
};

/// Bytes of a call, of workloads with small files.
pub(crate) const BLOCK: Parameter = Parameter {
    name: "block",
    about: "Read or written by one call.",
    unit: "",
    kind: Kind::Fixed { default: 4096 },
};

/// Bytes of a file. Fixed: with less memory there are fewer files, not smaller ones.
pub(crate) const FILE_SIZE: Parameter = Parameter {
    name: "file_size",
    about: "One file. It stays as it is at a smaller scale: there are fewer files then.",
    unit: "",
    kind: Kind::Fixed { default: 64 << 10 },
};

/// Bytes of all files.
pub(crate) const MEMORY: Parameter = Parameter {
    name: "memory",
    about: "All files together.",
    unit: "",
    kind: Kind::Memory { default_millionths: 1_500_000 },
};

/// Reads of a file in a row.
pub(crate) const READS_PER_FILE: Parameter = Parameter {
    name: "reads_per_file",
    about: "Reads of a file before another one is opened.",
    unit: "reads",
    kind: Kind::Count { least: 1, most: 1_000_000, default: 16 },
};

/// Processes that write, and as many that read.
pub(crate) const WRITERS: Parameter = Parameter {
    name: "writers",
    about: "Processes that write, and as many that read.",
    unit: "processes",
    kind: Kind::Count { least: 1, most: 1024, default: 4 },
};

/// Begins the number of each process's random stream: "smallfil" in ASCII.
const STREAM: u128 = 0x736d_616c_6c66_696c << 64;
/// The stream that says what is deleted; readers have their own numbers.
const STREAM_UNLINK: u128 = STREAM | (1 << 32);

/// What each process does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) nr_each: u64,
    pub(crate) file_bytes: u64,
    pub(crate) block: u64,
    pub(crate) reads_per_file: u64,
}

fn run(sys: &mut dyn System, settings: &Settings) -> Result<(), Failure> {
    let writers = settings.count_u32("writers");
    let plan = Plan::new(sys.machine(), settings, "small-files")?;
    let began = sys.now();
    let wrote = run_processes(sys, processes("write", writers, move |sys, n| plan.write(sys, n)))?;
    sys.sync()?;
    if wrote.nr_killed > 0 {
        report_killed(sys, "Killed", wrote.nr_killed);
        return Ok(());
    }
    report_seconds(sys, "Write phase", wrote.elapsed);
    let with_sync = sys.now() - began;
    report_rate(sys, "Write", "MB/s", plan.megabytes(writers), with_sync);

    let time = match settings.count("read_seconds") {
        0 => wrote.elapsed,
        seconds => Ns::from_secs(seconds),
    };
    let end = sys.now() + time;
    let read =
        run_processes(sys, processes("read", writers, move |sys, n| plan.read(sys, n, end)))?;
    if read.nr_killed > 0 {
        report_killed(sys, "Killed", read.nr_killed);
    }
    sys.note_held();
    unlink(sys, plan, writers, settings.word("unlink"))
}

/// One process for each writer's files.
pub(crate) fn processes(
    verb: &str,
    count: u32,
    work: impl Fn(&mut dyn System, u32) -> Result<(), Failure> + Copy + Send + 'static,
) -> impl Iterator<Item = (ThreadSpec, Code)> {
    (0..count).map(move |number| {
        let code: Code = Box::new(move |sys| work(sys, number));
        (ThreadSpec::process(format!("fio-{verb}-{number}")), code)
    })
}

pub(crate) fn name(writer: u32, file: u64) -> String {
    format!("small-files/{writer}/{file}")
}

impl Plan {
    /// From parameters that workloads with small files have in common.
    ///
    /// # Errors
    /// Less than a file for each writer.
    pub(crate) fn new(
        machine: &MachineInfo,
        settings: &Settings,
        workload: &str,
    ) -> Result<Self, Failure> {
        let writers = settings.count_u32("writers");
        let file_bytes = settings.size("file_size");
        let bytes = settings.pages("memory", machine) * machine.page_bytes;
        let nr_each = bytes / file_bytes / u64::from(writers);
        if nr_each == 0 {
            return Err(Failure::Refused(format!(
                "{workload}: {bytes} bytes for {writers} writers, expected a file of {file_bytes} for each"
            )));
        }
        let block = settings.size("block");
        Ok(Self { nr_each, file_bytes, block, reads_per_file: settings.count("reads_per_file") })
    }

    /// What all files hold together, in millions of bytes.
    pub(crate) fn megabytes(self, writers: u32) -> f64 {
        (self.nr_each * u64::from(writers) * self.file_bytes) as f64 / 1e6
    }

    fn write(self, sys: &mut dyn System, writer: u32) -> Result<(), Failure> {
        for file in 0..self.nr_each {
            write_new(sys, &name(writer, file), self.file_bytes, self.block)?;
        }
        Ok(())
    }

    /// Reads at random in one of a writer's files, drawn at random.
    fn visit(self, sys: &mut dyn System, writer: u32, random: &mut Random) -> Result<(), Failure> {
        let file = sys.open_file(&name(writer, random.below(self.nr_each)))?;
        for _ in 0..self.reads_per_file {
            let at = random.below(self.file_bytes / self.block) * self.block;
            sys.read_file(file, at, self.block)?;
        }
        sys.close_file(file)
    }

    /// Deletes all files, in the order they were written.
    pub(crate) fn unlink_all(self, sys: &mut dyn System, writers: u32) -> Result<(), Failure> {
        unlink(sys, self, writers, "all")
    }

    /// Reads at random until that moment.
    fn read(self, sys: &mut dyn System, writer: u32, end: Ns) -> Result<(), Failure> {
        let mut random = Random::new(sys.seed(), STREAM | u128::from(writer));
        let began = sys.now();
        let mut nr_reads = 0;
        while sys.now() < end {
            let visited = sys.now();
            self.visit(sys, writer, &mut random)?;
            nr_reads += self.reads_per_file;
            let took = sys.now() - visited;
            sys.latency("small-files-visit", took);
        }
        let took = sys.now() - began;
        if took > Ns::ZERO {
            let row = Metric::new("Reads of a reader", "reads/s", Better::Higher);
            sys.report(&row, nr_reads as f64 / took.as_secs_f64());
        }
        Ok(())
    }
}

/// Deletes what shall be deleted: all in the order they were written, or half in random order.
fn unlink(sys: &mut dyn System, plan: Plan, writers: u32, which: &str) -> Result<(), Failure> {
    let mut all: Vec<(u32, u64)> =
        (0..writers).flat_map(|w| (0..plan.nr_each).map(move |file| (w, file))).collect();
    match which {
        "none" => all.clear(),
        "half" => {
            Random::new(sys.seed(), STREAM_UNLINK).shuffle(&mut all);
            all.truncate(all.len() / 2);
        }
        _ => {}
    }
    all.into_iter().try_for_each(|(writer, file)| sys.unlink(&name(writer, file)))
}
