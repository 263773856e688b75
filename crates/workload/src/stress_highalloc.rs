//! stress-highalloc: how much of memory can be had in huge pages, one after another.
//!
//! Models: the test of that name in mmtests (2012; vmr/bin/bench-stresshighalloc.sh): in each pass a module asks for pages
//! of order 9 until it has asked for 95 % of memory, one every 125 ms (16 MB a second), keeps those it gets and frees them
//! at the pass's end. Two passes, with 5 seconds after each; then, after three minutes, a file of memory's size is
//! written, read and deleted, caches are dropped, `vm.min_free_kbytes` is set to 1024, and a third pass
//! follows. With `builds`, a kernel's sources are copied again and again first, and each copy is built from when it is
//! there until the rest ends (kernel_build.rs).

use crate::Workload;
use crate::files::{read_to_end, write_new};
use crate::kernel_build::Builds;
use crate::parameters::{Kind, Parameter, Settings};
use highorder_record::{Better, Metric, Statistic};
use highorder_system::{Caches, Failure, KernelBlock, Ns, System};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "stress-highalloc",
    about: "a module asks for most of memory in huge pages, pass after pass",
    parameters: &[
        Parameter {
            name: "builds",
            about: "Whether kernels are built beside the passes before the rest: a copy of the sources for each 400 MiB of memory, and the original.",
            unit: "",
            kind: Kind::Word(&["no", "yes"]),
        },
        Parameter {
            name: "memory",
            about: "Asked for in a pass.",
            unit: "",
            kind: Kind::Memory { default_millionths: 950_000 },
        },
        Parameter {
            name: "order",
            about: "The order of what is asked for.",
            unit: "order",
            kind: Kind::Count { least: 0, most: 10, default: 9 },
        },
        Parameter {
            name: "passes",
            about: "Passes before the rest.",
            unit: "passes",
            kind: Kind::Count { least: 0, most: 1000, default: 2 },
        },
        Parameter {
            name: "pause_seconds",
            about: "After each of these passes.",
            unit: "seconds",
            kind: Kind::Count { least: 0, most: 86_400, default: 5 },
        },
        Parameter {
            name: "rate",
            about: "Asked for in a second.",
            unit: "a second",
            kind: Kind::Fixed { default: 16 << 20 },
        },
        Parameter {
            name: "rest_seconds",
            about: "How long the machine rests before the last pass.",
            unit: "seconds",
            kind: Kind::Count { least: 0, most: 86_400, default: 180 },
        },
        Parameter {
            name: "rested",
            about: "Whether a last pass follows: after a rest, a file of the size of memory, and with `vm.min_free_kbytes` at 1024.",
            unit: "",
            kind: Kind::Word(&["yes", "no"]),
        },
        Parameter {
            name: "unit_ms",
            about: "How long the compiler computes for a source. The default is our choice for a desktop of 2012: twice the 147 ms that gcc 11 takes on a server of the 2020s.",
            unit: "milliseconds",
            kind: Kind::Count { least: 0, most: 3_600_000, default: 300 },
        },
        Parameter {
            name: "warm_seconds",
            about: "How long all of them are built before the first pass.",
            unit: "seconds",
            kind: Kind::Count { least: 0, most: 86_400, default: 300 },
        },
    ],
    check: |_| Ok(()),
    late: &[],
    needs_files: |settings| settings.word("rested") == "yes" || settings.word("builds") == "yes",
    run,
};

/// Each so many bytes of memory are a copy of a kernel's sources that is built, as mmtests counts them.
const MEMORY_FOR_A_COPY: u64 = 400 << 20;

/// The file that is written and read before the last pass.
const FILE: &str = "stress-highalloc";
/// How much of it is written at a time: the test tells `dd` how much to read at once (`ibs`), not how much to write.
const WRITTEN: u64 = 512;
/// How much is read: as `cat` of coreutils 8 does.
const READ: u64 = 32 << 10;

/// A pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    pub(crate) order: u8,
    pub(crate) attempts: u64,
    /// From one attempt to the next.
    pub(crate) pace: Ns,
}

fn run(sys: &mut dyn System, settings: &Settings) -> Result<(), Failure> {
    let machine = sys.machine();
    let order = settings.count_u32("order") as u8;
    let block_bytes = machine.page_bytes << order;
    let pace = u128::from(block_bytes) * 1_000_000_000 / u128::from(settings.size("rate"));
    let pass =
        Pass { order, attempts: settings.pages("memory", machine) >> order, pace: Ns(pace as u64) };
    let memory_bytes = machine.total_pages * machine.page_bytes;
    let under_load = |sys: &mut dyn System| {
        for number in 1..=settings.count("passes") {
            pass.run_and_report(sys, &format!("Pass {number}"))?;
            sys.sleep(Ns::from_secs(settings.count("pause_seconds")))?;
        }
        if settings.word("rested") == "yes" {
            sys.sleep(Ns::from_secs(settings.count("rest_seconds")))?;
        }
        Ok(())
    };
    if settings.word("builds") == "yes" {
        let builds = Builds {
            trees: memory_bytes / MEMORY_FOR_A_COPY + 1,
            unit_time: Ns::from_millis(settings.count("unit_ms")),
        };
        let building = builds.copy_and_start(sys)?;
        sys.sleep(Ns::from_secs(settings.count("warm_seconds")))?;
        under_load(sys)?;
        building.end(sys)?;
        builds.remove(sys)?;
    } else {
        under_load(sys)?;
    }
    if settings.word("rested") == "yes" {
        settle(sys, FILE, memory_bytes, [WRITTEN, READ])?;
        pass.run_and_report(sys, "while Rested")?;
    }
    Ok(())
}

/// What comes before the pass at rest: a file is written, read, each by so many bytes at a time, and deleted, caches are
/// dropped, and little memory is to be kept free.
pub(crate) fn settle(
    sys: &mut dyn System,
    file: &str,
    bytes: u64,
    [written, read]: [u64; 2],
) -> Result<(), Failure> {
    write_new(sys, file, bytes, written)?;
    read_to_end(sys, file, bytes, read)?;
    sys.unlink(file)?;
    sys.drop_caches(Caches::All)?;
    sys.set_knob("vm.min_free_kbytes", "1024")
}

impl Pass {
    fn run_and_report(self, sys: &mut dyn System, row: &str) -> Result<(), Failure> {
        let nr_taken = self.run(sys)?;
        // A whole number, as the test's script computes it.
        if let Some(percent) = (100 * nr_taken).checked_div(self.attempts) {
            let like = Metric::new(row, "%", Better::Points).shown_as(&[Statistic::Plain], 2);
            sys.report(&like, percent as f64);
        }
        Ok(())
    }

    /// Asks for all of them, keeps those that it gets, frees them at the end, and says how many they were.
    pub(crate) fn run(self, sys: &mut dyn System) -> Result<u64, Failure> {
        self.run_beside(sys, |_, _| Ok(()))
    }

    /// The same, where something else is done before each of them, which is told how many there were.
    pub(crate) fn run_beside(
        self,
        sys: &mut dyn System,
        mut beside: impl FnMut(&mut dyn System, u64) -> Result<(), Failure>,
    ) -> Result<u64, Failure> {
        let mut taken = Vec::new();
        for attempts in 0..self.attempts {
            beside(sys, attempts)?;
            let next = sys.now() + self.pace;
            taken.extend(sys.take_block(KernelBlock::Module { order: self.order })?);
            let now = sys.now();
            if now < next {
                sys.sleep(next - now)?;
            }
        }
        sys.note_held();
        let nr_taken = taken.len() as u64;
        taken.into_iter().try_for_each(|block| sys.free_block(block))?;
        Ok(nr_taken)
    }
}
