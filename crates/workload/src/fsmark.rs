//! fsmark: threads write files of one size into directories of their own, iteration after iteration.
//!
//! Models: fs_mark with several threads as mmtests ran it in 2012: 4 threads a CPU, files of 30 MiB written
//! sequentially without fsync and kept, as many an iteration as memory holds, 15 iterations. A rate is the
//! sum of the threads' own rates, and overhead the sum over threads of what its calls did not take, as
//! fs_mark computes both.
//! Departs: threads of one process, where fs_mark forks. Visible as: nothing, as their memory is small. A
//! thread's rate is not rounded to a tenth of a file. Visible as: published rates are multiples of a tenth.
//! Departs: the model charges nothing for a program's own code between two calls. Visible as: there it has
//! no row `Overhead`.

use crate::Workload;
use crate::files::write_new;
use crate::parameters::{Kind, Parameter, Settings};
use crate::process::{Ended, report_killed, report_seconds, run_process, run_threads};
use highorder_record::{Better, Metric, Statistic};
use highorder_system::{Code, Failure, Ns, System, ThreadSpec};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "fsmark",
    about: "threads write files of one size, iteration after iteration",
    parameters: &[
        // fs_mark's own: DEFAULT_IO_SIZE, fs_mark.h.
        Parameter {
            name: "block",
            about: "Written by one call.",
            unit: "",
            kind: Kind::Fixed { default: 16 << 10 },
        },
        Parameter {
            name: "directories",
            about: "Directories of each thread.",
            unit: "directories",
            kind: Kind::Count { least: 1, most: 65536, default: 16 },
        },
        Parameter {
            name: "directory_files",
            about: "Files that go into a directory before the next one has its turn.",
            unit: "files",
            kind: Kind::Count { least: 1, most: 1_000_000, default: 256 },
        },
        Parameter {
            name: "file_size",
            about: "One file.",
            unit: "",
            kind: Kind::Size { default: 30 << 20 },
        },
        Parameter {
            name: "iterations",
            about: "How often as many files are written again.",
            unit: "iterations",
            kind: Kind::Count { least: 1, most: 1_000_000, default: 15 },
        },
        Parameter {
            name: "memory",
            about: "Written in each iteration, in whole files, the same number by each thread.",
            unit: "",
            kind: Kind::Memory { default_millionths: 1_000_000 },
        },
        Parameter {
            name: "threads_per_cpu",
            about: "Threads for each CPU of the machine.",
            unit: "threads",
            kind: Kind::Count { least: 1, most: 64, default: 4 },
        },
    ],
    check: |_| Ok(()),
    late: &[],
    needs_files: |_| true,
    run,
};

/// The rows of both metrics.
const SHOWN: [Statistic; 4] = [Statistic::Min, Statistic::Mean, Statistic::Stddev, Statistic::Max];

/// What each thread does in each iteration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) threads: u32,
    pub(crate) files_each: u64,
    pub(crate) file_bytes: u64,
    pub(crate) block: u64,
    pub(crate) directories: u64,
    pub(crate) directory_files: u64,
    pub(crate) iterations: u64,
}

/// What a thread measured of one iteration.
#[derive(Clone, Copy, Debug)]
struct Measured {
    /// Of the whole loop.
    elapsed: Ns,
    /// Of the calls in it.
    calls: Ns,
}

fn run(sys: &mut dyn System, settings: &Settings) -> Result<(), Failure> {
    let machine = sys.machine();
    let threads = machine.nr_cpus() * settings.count_u32("threads_per_cpu");
    let file_bytes = settings.size("file_size");
    let files = settings.pages("memory", machine) * machine.page_bytes / file_bytes;
    let plan = Plan {
        threads,
        files_each: files / u64::from(threads),
        file_bytes,
        block: settings.size("block"),
        directories: settings.count("directories"),
        directory_files: settings.count("directory_files"),
        iterations: settings.count("iterations"),
    };
    if plan.files_each == 0 {
        return Err(Failure::Refused(format!(
            "fsmark: memory for {files} files among {threads} threads, expected one for each"
        )));
    }
    let code: Code = Box::new(move |sys| process(sys, plan));
    let took = run_process(sys, ThreadSpec::process("fs_mark"), code)?;
    match took.ended {
        Ended::Done => report_seconds(sys, "System", took.system),
        Ended::Killed => report_killed(sys, "Killed", took.nr_killed),
    }
    Ok(())
}

/// All iterations.
pub(crate) fn process(sys: &mut dyn System, plan: Plan) -> Result<(), Failure> {
    for iteration in 0..plan.iterations {
        let measured = Arc::new(Mutex::new(Vec::new()));
        run_threads(sys, "fs_mark", plan.threads, |number| {
            let all = Arc::clone(&measured);
            Box::new(move |sys| {
                let measured = write_files(sys, plan, number, iteration)?;
                all.lock().unwrap_or_else(PoisonError::into_inner).push(measured);
                Ok(())
            })
        })?;
        let all = std::mem::take(&mut *measured.lock().unwrap_or_else(PoisonError::into_inner));
        report(sys, plan, &all);
    }
    sys.note_held();
    Ok(())
}

/// One thread's files of one iteration.
fn write_files(
    sys: &mut dyn System,
    plan: Plan,
    thread: u32,
    iteration: u64,
) -> Result<Measured, Failure> {
    let began = sys.now();
    let mut calls = Ns::ZERO;
    for file in 0..plan.files_each {
        let directory = file / plan.directory_files % plan.directories;
        let name = format!("fsmark/{thread}/{directory:02x}/{iteration}-{file}");
        let before = sys.now();
        write_new(sys, &name, plan.file_bytes, plan.block)?;
        calls += sys.now() - before;
    }
    Ok(Measured { elapsed: sys.now() - began, calls })
}

fn report(sys: &mut dyn System, plan: Plan, all: &[Measured]) {
    if all.iter().all(|one| one.elapsed > Ns::ZERO) {
        let rates = all.iter().map(|one| plan.files_each as f64 / one.elapsed.as_secs_f64());
        let row = Metric::new("Files/s", "files/s", Better::Higher).shown_as(&SHOWN, 2);
        sys.report(&row, rates.sum());
    }
    let overhead = all.iter().fold(Ns::ZERO, |sum, one| sum + (one.elapsed - one.calls));
    if overhead > Ns::ZERO {
        let row = Metric::new("Overhead", "us", Better::Lower).shown_as(&SHOWN, 2);
        sys.report(&row, overhead.as_secs_f64() * 1e6);
    }
}
