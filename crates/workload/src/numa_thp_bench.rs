//! numa-thp-bench: random writes over memory of one node, with huge pages and without, by a CPU of that node
//! or of another.
//!
//! Models: a program that the discussion of huge pages and nodes (2019) names and does not list: memory
//! bound to node 0, the CPU on it or elsewhere; one large anonymous area, advised for huge pages, against,
//! against, and for; the time of a fixed number of random writes each time.
//! Departs: how large the area is and how many writes there are is not said; ours is 4 GiB (2000 times the
//! reach of a TLB of base pages) and 10 million writes. Visible as: times cannot be compared with the
//! published ones, ratios can.

use crate::Workload;
use crate::files::Random;
use crate::parameters::{Kind, Parameter, Settings};
use crate::process::{Ended, report_killed, run_process};
use highorder_record::{Better, Metric};
use highorder_system::{
    Access, Advice, Code, Failure, MemPolicy, NodeId, Page, Pattern, Place, System, ThreadSpec,
};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "numa-thp-bench",
    about: "one thread writes at random, with huge pages and without, near and far",
    parameters: &[
        Parameter {
            name: "area",
            about: "What is written to.",
            unit: "",
            kind: Kind::Size { default: 4 << 30 },
        },
        Parameter {
            name: "cpu_node",
            about: "The node on whose CPUs the thread runs.",
            unit: "node",
            kind: Kind::Count { least: 0, most: 63, default: 0 },
        },
        Parameter {
            name: "memory_node",
            about: "The node that the area lies on.",
            unit: "node",
            kind: Kind::Count { least: 0, most: 63, default: 0 },
        },
        Parameter {
            name: "writes",
            about: "Writes whose time is taken, with huge pages and without.",
            unit: "writes",
            kind: Kind::Count { least: 1, most: 1 << 40, default: 10_000_000 },
        },
    ],
    check: |_| Ok(()),
    late: &[],
    needs_files: |_| false,
    run,
};

/// Begins the number of the random stream: "numathpb" in ASCII.
const STREAM: u128 = 0x6e75_6d61_7468_7062 << 64;
/// Pages that are written in one call.
const BATCH: u64 = 4096;

fn run(sys: &mut dyn System, settings: &Settings) -> Result<(), Failure> {
    let pages = (settings.size("area") / sys.machine().page_bytes).max(1);
    let writes = settings.count("writes");
    let memory_node = settings.count_u32("memory_node");
    let place = Place::Node(NodeId(settings.count_u32("cpu_node")));
    let code: Code = Box::new(move |sys| process(sys, pages, writes, memory_node));
    let took = run_process(sys, ThreadSpec::process("numa-thp-bench").on(place), code)?;
    if took.ended == Ended::Killed {
        report_killed(sys, "Killed", took.nr_killed);
    }
    Ok(())
}

fn process(sys: &mut dyn System, pages: u64, writes: u64, memory_node: u32) -> Result<(), Failure> {
    let rounds = [Advice::Huge, Advice::NoHuge, Advice::NoHuge, Advice::Huge];
    for (round, advice) in rounds.into_iter().enumerate() {
        let area = sys.mmap(pages)?;
        sys.mbind(area, MemPolicy::Bind(1 << memory_node))?;
        sys.madvise(area, advice)?;
        // Faults are not what is measured.
        sys.touch_range(area, Pattern::word(Access::Write))?;
        let mut random = Random::new(sys.seed(), STREAM | round as u128);
        let began = sys.now();
        let mut left = writes;
        while left > 0 {
            let part = left.min(BATCH);
            let drawn: Vec<Page> = (0..part).map(|_| area.page(random.below(pages))).collect();
            sys.touch_pages(&drawn, Access::Write)?;
            left -= part;
        }
        let took = sys.now() - began;
        let name = if advice == Advice::Huge { "MADV_HUGEPAGE" } else { "MADV_NOHUGEPAGE" };
        sys.report(&Metric::new(name, "us", Better::Lower), took.0 as f64 / 1000.0);
        sys.note_held();
        sys.munmap(area)?;
    }
    Ok(())
}
