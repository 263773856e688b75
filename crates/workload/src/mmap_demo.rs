//! mmap-demo: one thread on one node's CPUs fills a buffer that is larger than the node.
//!
//! Models: a test program posted with the discussion of huge pages and nodes (2018): a private anonymous
//! buffer of 80 % of memory, with or without `MADV_HUGEPAGE`, filled byte by byte with 0, then 1, then 2;
//! bound to node 0's CPUs, its memory policy untouched.
//! Departs: what the bytes are is not modelled. Visible as: nothing but a system that merges or compresses
//! equal pages.

use crate::Workload;
use crate::fragment::{self, FRAGMENT_WITH};
use crate::parameters::{Kind, Parameter, Settings};
use crate::process::{ADVICE, Ended, advice, report_killed, report_seconds, run_process};
use highorder_system::{Access, Advice, Code, Failure, NodeId, Pattern, Place, System, ThreadSpec};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "mmap-demo",
    about: "one thread on one node's CPUs fills a buffer larger than that node",
    parameters: &[
        Parameter {
            name: "advice",
            about: "What is advised of the buffer.",
            unit: "",
            kind: Kind::Word(ADVICE),
        },
        Parameter {
            name: "fragment",
            about: "The node's pageblocks in which a page stays in use from before.",
            unit: "percent",
            kind: Kind::Count { least: 0, most: 100, default: 0 },
        },
        Parameter {
            name: "fragment_with",
            about: "What that page is: pinned by the kernel, anonymous, or of a file.",
            unit: "",
            kind: Kind::Word(FRAGMENT_WITH),
        },
        Parameter {
            name: "memory",
            about: "The buffer.",
            unit: "",
            kind: Kind::Memory { default_millionths: 800_000 },
        },
        Parameter {
            name: "node",
            about: "The node on whose CPUs the thread runs.",
            unit: "node",
            kind: Kind::Count { least: 0, most: 63, default: 0 },
        },
        Parameter {
            name: "passes",
            about: "How often the buffer is filled.",
            unit: "passes",
            kind: Kind::Count { least: 1, most: 1_000_000, default: 3 },
        },
    ],
    check: |_| Ok(()),
    late: &[],
    needs_files: |settings| {
        settings.count("fragment") > 0 && settings.word("fragment_with") == "file"
    },
    run,
};

fn run(sys: &mut dyn System, settings: &Settings) -> Result<(), Failure> {
    let pages = settings.pages("memory", sys.machine());
    let passes = settings.count("passes");
    let advice = advice(settings.word("advice"));
    let node = NodeId(settings.count_u32("node"));
    let place = Place::Node(node);
    let fragmented = match settings.count("fragment") {
        0 => None,
        percent => {
            let kept = fragment::fragment(sys, node, percent, settings.word("fragment_with"))?;
            sys.note_before();
            Some(kept)
        }
    };
    let code: Code = Box::new(move |sys| process(sys, pages, advice, passes));
    let took = run_process(sys, ThreadSpec::process("mmap-demo").on(place), code)?;
    match took.ended {
        Ended::Done => {
            report_seconds(sys, "User", took.user);
            report_seconds(sys, "System", took.system);
            report_seconds(sys, "Elapsd", took.elapsed);
        }
        Ended::Killed => report_killed(sys, "Killed", took.nr_killed),
    }
    fragmented.map_or(Ok(()), |kept| kept.undo(sys))
}

fn process(
    sys: &mut dyn System,
    pages: u64,
    advice: Option<Advice>,
    passes: u64,
) -> Result<(), Failure> {
    let buffer = sys.mmap(pages)?;
    if let Some(advice) = advice {
        sys.madvise(buffer, advice)?;
    }
    for pass in 1..=passes {
        let began = sys.now();
        sys.touch_range(buffer, Pattern::whole(Access::Write))?;
        let took = sys.now() - began;
        report_seconds(sys, &format!("Pass {pass}"), took);
    }
    sys.note_held();
    sys.munmap(buffer)
}
