//! memhog: one process writes a word to every page of its memory, then sleeps with it.
//!
//! Models: the memory hog of mmtests' stutter benchmark (2016): three quarters of memory, anonymous,
//! written once.
//! Departs: it ends after a given time, where the benchmark kills it. Visible as: nothing but its length.

use crate::Workload;
use crate::parameters::{Kind, Parameter, Settings};
use crate::process::{ADVICE, Ended, advice, report_killed, report_seconds, run_process};
use highorder_system::{Access, Code, Failure, Ns, Pattern, System, ThreadSpec};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "memhog",
    about: "one process writes its memory once and sleeps with it",
    parameters: &[
        Parameter {
            name: "advice",
            about: "What is advised of the memory.",
            unit: "",
            kind: Kind::Word(ADVICE),
        },
        // As long as stutter waits before it copies.
        Parameter {
            name: "hold_seconds",
            about: "How long it sleeps.",
            unit: "seconds",
            kind: Kind::Count { least: 0, most: 1_000_000, default: 10 },
        },
        Parameter {
            name: "memory",
            about: "What it writes.",
            unit: "",
            kind: Kind::Memory { default_millionths: 750_000 },
        },
    ],
    check: |_| Ok(()),
    late: &[],
    needs_files: |_| false,
    run,
};

fn run(sys: &mut dyn System, settings: &Settings) -> Result<(), Failure> {
    let pages = settings.pages("memory", sys.machine());
    let advice = advice(settings.word("advice"));
    let hold = Ns::from_secs(settings.count("hold_seconds"));
    let code: Code = Box::new(move |sys| {
        let area = sys.mmap(pages)?;
        if let Some(advice) = advice {
            sys.madvise(area, advice)?;
        }
        sys.touch_range(area, Pattern::word(Access::Write))?;
        sys.sleep(hold)?;
        sys.note_held();
        sys.munmap(area)
    });
    let took = run_process(sys, ThreadSpec::process("memhog"), code)?;
    match took.ended {
        Ended::Done => {
            report_seconds(sys, "System", took.system);
            report_seconds(sys, "Elapsd", took.elapsed);
        }
        Ended::Killed => report_killed(sys, "Killed", took.nr_killed),
    }
    Ok(())
}
