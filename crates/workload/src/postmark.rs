//! postmark: many files of random sizes are created, read, made longer and deleted.
//!
//! Models: postmark 1.51 as mmtests ran it in 2012: four times as much memory in files as there is, were
//! each of the largest size; 15000 transactions, each a read of a whole file or an append to one, and the
//! creation or the deletion of one, at even odds; then whatever is left is deleted. Reads and writes are of
//! 4 KiB, its default. An append makes a file at most as long as the longest.
//! Departs: rates are quotients of exact times, where postmark divides by whole seconds and rounds most of
//! them down. Visible as: decimals, and rates of phases shorter than a second. Its buffered streams ask the
//! kernel for the blocks that it asks of them.

use crate::Workload;
use crate::files::{Random, append, read_all, write_new};
use crate::parameters::{Kind, Parameter, Settings};
use crate::process::{Ended, report_killed, report_seconds, run_process};
use highorder_record::{Better, Metric, Statistic};
use highorder_system::{Code, Failure, Ns, System, ThreadSpec};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "postmark",
    about: "files of random sizes are created, read, made longer and deleted",
    parameters: &[
        Parameter {
            name: "block",
            about: "Read or written by one call.",
            unit: "",
            kind: Kind::Fixed { default: 4096 },
        },
        Parameter {
            name: "memory",
            about: "Files at the beginning: as many of the largest size as fit this.",
            unit: "",
            kind: Kind::Memory { default_millionths: 4_000_000 },
        },
        Parameter {
            name: "size_max",
            about: "The largest file.",
            unit: "",
            kind: Kind::Size { default: 5 << 20 },
        },
        Parameter {
            name: "size_min",
            about: "The smallest file.",
            unit: "",
            kind: Kind::Size { default: 3096 },
        },
        Parameter {
            name: "subdirectories",
            about: "Directories that the files are spread over.",
            unit: "directories",
            kind: Kind::Count { least: 1, most: 100_000, default: 100 },
        },
        Parameter {
            name: "transactions",
            about: "Each reads a file or makes it longer, and creates a file or deletes one.",
            unit: "transactions",
            kind: Kind::Count { least: 0, most: 1_000_000_000, default: 15_000 },
        },
    ],
    check: |settings| settings.check_at_most("size_min", "size_max"),
    late: &[],
    needs_files: |_| true,
    run,
};

/// Its random stream: "postmark" in ASCII.
const STREAM: u128 = 0x706f_7374_6d61_726b << 64;

fn run(sys: &mut dyn System, settings: &Settings) -> Result<(), Failure> {
    let machine = sys.machine();
    let size_max = settings.size("size_max");
    let plan = Plan {
        files: settings.pages("memory", machine) * machine.page_bytes / size_max,
        size_min: settings.size("size_min"),
        size_max,
        block: settings.size("block"),
        subdirectories: settings.count("subdirectories"),
        transactions: settings.count("transactions"),
        append_max: size_max,
    };
    let code: Code = Box::new(move |sys| Postmark::new(plan, sys.seed()).run(sys));
    let took = run_process(sys, ThreadSpec::process("postmark"), code)?;
    match took.ended {
        Ended::Done => report_seconds(sys, "System", took.system),
        Ended::Killed => report_killed(sys, "Killed", took.nr_killed),
    }
    Ok(())
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) files: u64,
    pub(crate) size_min: u64,
    pub(crate) size_max: u64,
    pub(crate) block: u64,
    pub(crate) subdirectories: u64,
    pub(crate) transactions: u64,
    /// An append adds at most so many bytes, and no more than make the file as long as the longest.
    pub(crate) append_max: u64,
}

/// A file that is there.
struct File {
    number: u64,
    bytes: u64,
}

/// What is there, and what was done.
pub(crate) struct Postmark {
    plan: Plan,
    random: Random,
    files: Vec<File>,
    nr_created: u64,
    nr_deleted: u64,
    bytes_read: u64,
    bytes_written: u64,
}

impl Postmark {
    pub(crate) fn new(plan: Plan, seed: u64) -> Self {
        Self {
            plan,
            random: Random::new(seed, STREAM),
            files: Vec::new(),
            nr_created: 0,
            nr_deleted: 0,
            bytes_read: 0,
            bytes_written: 0,
        }
    }

    pub(crate) fn run(mut self, sys: &mut dyn System) -> Result<(), Failure> {
        let began = sys.now();
        for _ in 0..self.plan.files {
            self.create(sys)?;
        }
        let created = (self.nr_created, sys.now() - began);

        let transacting = sys.now();
        for _ in 0..self.plan.transactions {
            self.transact(sys)?;
        }
        let transacted = sys.now() - transacting;
        let (more_created, more_deleted) = (self.nr_created - created.0, self.nr_deleted);

        sys.note_held();
        let deleting = sys.now();
        while !self.files.is_empty() {
            self.delete(sys, self.files.len() - 1)?;
        }
        let deleted = (self.nr_deleted - more_deleted, sys.now() - deleting);
        let all = sys.now() - began;

        let megabytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let mut rate = |name: &str, unit: &str, amount: f64, took: Ns| {
            if took > Ns::ZERO {
                let row = Metric::new(name, unit, Better::Higher).shown_as(&[Statistic::Plain], 2);
                sys.report(&row, amount / took.as_secs_f64());
            }
        };
        let transactions = self.plan.transactions as f64;
        rate("Transactions per second", "transactions/s", transactions, transacted);
        rate("Data megabytes read per second", "MiB/s", megabytes(self.bytes_read), all);
        rate("Data megabytes written per second", "MiB/s", megabytes(self.bytes_written), all);
        rate("Files created alone per second", "files/s", created.0 as f64, created.1);
        rate("Files create/transact per second", "files/s", more_created as f64, transacted);
        rate("Files deleted alone per second", "files/s", deleted.0 as f64, deleted.1);
        rate("Files delete/transact per second", "files/s", more_deleted as f64, transacted);
        Ok(())
    }

    /// Reads or appends, then creates or deletes; without files there is nothing to do but create one.
    fn transact(&mut self, sys: &mut dyn System) -> Result<(), Failure> {
        if !self.files.is_empty() {
            let at = self.random.below(self.files.len() as u64) as usize;
            if self.random.coin() { self.read(sys, at)? } else { self.append(sys, at)? }
        }
        if self.random.coin() || self.files.is_empty() {
            return self.create(sys);
        }
        let at = self.random.below(self.files.len() as u64) as usize;
        self.delete(sys, at)
    }

    fn name(&self, number: u64) -> String {
        format!("postmark/s{}/{number}", number % self.plan.subdirectories)
    }

    fn create(&mut self, sys: &mut dyn System) -> Result<(), Failure> {
        let number = self.nr_created;
        let bytes = self.random.between(self.plan.size_min, self.plan.size_max);
        write_new(sys, &self.name(number), bytes, self.plan.block)?;
        self.files.push(File { number, bytes });
        self.nr_created += 1;
        self.bytes_written += bytes;
        Ok(())
    }

    fn read(&mut self, sys: &mut dyn System, at: usize) -> Result<(), Failure> {
        let File { number, bytes } = self.files[at];
        let file = sys.open_file(&self.name(number))?;
        read_all(sys, file, bytes, self.plan.block)?;
        self.bytes_read += bytes;
        sys.close_file(file)
    }

    fn append(&mut self, sys: &mut dyn System, at: usize) -> Result<(), Failure> {
        let File { number, bytes } = self.files[at];
        let room = self.plan.size_max.saturating_sub(bytes).min(self.plan.append_max);
        if room == 0 {
            return Ok(());
        }
        let more = self.random.between(1, room);
        let file = sys.open_file(&self.name(number))?;
        append(sys, file, bytes, more, self.plan.block)?;
        self.files[at].bytes += more;
        self.bytes_written += more;
        sys.close_file(file)
    }

    fn delete(&mut self, sys: &mut dyn System, at: usize) -> Result<(), Failure> {
        let File { number, .. } = self.files.swap_remove(at);
        self.nr_deleted += 1;
        sys.unlink(&self.name(number))
    }
}
