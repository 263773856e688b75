//! dd: one file is written from beginning to end, and perhaps read again.
//!
//! Models: dd(1) with `bs` and `conv=fsync`, and a second one that reads what the first has written, after
//! the caches were dropped.

use crate::Workload;
use crate::files::blocks;
use crate::parameters::{Kind, Parameter, Settings};
use crate::process::{Ended, report_killed, report_rate, report_seconds, run_process};
use highorder_system::{Caches, Code, Failure, Ns, System, ThreadSpec};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "dd",
    about: "one file is written from beginning to end, and read again",
    parameters: &[
        Parameter {
            name: "block",
            about: "Written or read by one call.",
            unit: "",
            kind: Kind::Size { default: 1 << 20 },
        },
        Parameter {
            name: "reads",
            about: "How often the file is read after it was written, each time from an empty page cache.",
            unit: "times",
            kind: Kind::Count { least: 0, most: 1000, default: 1 },
        },
        Parameter {
            name: "size",
            about: "The file.",
            unit: "",
            kind: Kind::Memory { default_millionths: 1_500_000 },
        },
    ],
    check: |_| Ok(()),
    late: &[],
    needs_files: |_| true,
    run,
};

/// The file's name.
const NAME: &str = "dd-file";

fn run(sys: &mut dyn System, settings: &Settings) -> Result<(), Failure> {
    let machine = sys.machine();
    let bytes = settings.pages("size", machine) * machine.page_bytes;
    let block = settings.size("block").max(1);
    let reads = settings.count("reads");
    let code: Code = Box::new(move |sys| process(sys, bytes, block, reads));
    let took = run_process(sys, ThreadSpec::process("dd"), code)?;
    match took.ended {
        Ended::Done => report_seconds(sys, "System", took.system),
        Ended::Killed => report_killed(sys, "Killed", took.nr_killed),
    }
    Ok(())
}

fn process(sys: &mut dyn System, bytes: u64, block: u64, reads: u64) -> Result<(), Failure> {
    let file = sys.create_file(NAME)?;
    let began = sys.now();
    blocks(bytes, block).try_for_each(|(at, part)| sys.write_file(file, at, part))?;
    sys.fsync(file)?;
    report_speed(sys, "Write", bytes, began);
    sys.note_held();
    if reads > 0 {
        sys.drop_caches(Caches::Pages)?;
    }
    for _ in 0..reads {
        let began = sys.now();
        blocks(bytes, block).try_for_each(|(at, part)| sys.read_file(file, at, part))?;
        report_speed(sys, "Read", bytes, began);
    }
    sys.close_file(file)?;
    sys.unlink(NAME)
}

fn report_speed(sys: &mut dyn System, name: &str, bytes: u64, began: Ns) {
    let took = sys.now() - began;
    report_rate(sys, name, "MB/s", bytes as f64 / 1e6, took);
}
