//! What workloads share: processes that may be killed, threads, and the rows they report.

use highorder_record::{Better, Metric, Statistic};
use highorder_system::{Advice, Area, Code, Failure, Ns, System, ThreadId, ThreadSpec};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Its work was done.
    Done,
    /// It was killed because memory ran out.
    Killed,
}

/// What a process took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Took {
    pub(crate) user: Ns,
    pub(crate) system: Ns,
    pub(crate) elapsed: Ns,
    /// [`Ended::Killed`] if any of them was.
    pub(crate) ended: Ended,
    /// How many were killed.
    pub(crate) nr_killed: u32,
}

/// Runs a process to its end.
///
/// # Errors
/// What the system refused it.
pub(crate) fn run_process(
    sys: &mut dyn System,
    spec: ThreadSpec,
    code: Code,
) -> Result<Took, Failure> {
    run_processes(sys, [(spec, code)])
}

/// Starts processes one after another and waits for all of them.
///
/// # Errors
/// What the system refused one of them, once all that were started have ended.
pub(crate) fn run_processes(
    sys: &mut dyn System,
    processes: impl IntoIterator<Item = (ThreadSpec, Code)>,
) -> Result<Took, Failure> {
    let (began, before) = (sys.now(), sys.cpu_use());
    let (mut started, mut refused, mut nr_killed) = (Vec::new(), Ok(()), 0);
    for (spec, code) in processes {
        match sys.spawn(spec, code) {
            Ok(thread) => started.push(thread),
            Err(failure) => {
                refused = Err(failure);
                break;
            }
        }
    }
    for thread in started {
        match sys.join(thread) {
            Ok(()) => {}
            Err(Failure::Killed) => nr_killed += 1,
            Err(failure) => refused = refused.and(Err(failure)),
        }
    }
    refused?;
    let (now, after) = (sys.now(), sys.cpu_use());
    Ok(Took {
        user: after.user - before.user,
        system: after.system - before.system,
        elapsed: now - began,
        ended: if nr_killed > 0 { Ended::Killed } else { Ended::Done },
        nr_killed,
    })
}

/// Waits for all of these threads.
///
/// # Errors
/// The first failure among them, once all have ended; but that one was killed only if nothing else went
/// wrong.
pub(crate) fn join_all(sys: &mut dyn System, threads: &[ThreadId]) -> Result<(), Failure> {
    let mut first = Ok(());
    for &thread in threads {
        let ended = sys.join(thread);
        if matches!(first, Ok(()) | Err(Failure::Killed)) && ended.is_err() {
            first = ended;
        }
    }
    first
}

/// Starts `count` threads, waits for them, and ends as [`join_all`].
pub(crate) fn run_threads(
    sys: &mut dyn System,
    name: &str,
    count: u32,
    code: impl Fn(u32) -> Code,
) -> Result<(), Failure> {
    let mut threads = Vec::new();
    let mut refused = Ok(());
    for number in 0..count {
        match sys.spawn(ThreadSpec::thread(format!("{name}-{number}")), code(number)) {
            Ok(thread) => threads.push(thread),
            Err(failure) => {
                refused = Err(failure);
                break;
            }
        }
    }
    let ended = join_all(sys, &threads);
    refused.and(ended)
}

/// Adds a sample in seconds to the row `name`.
pub(crate) fn report_seconds(sys: &mut dyn System, name: &str, time: Ns) {
    sys.report(&Metric::new(name, "s", Better::Lower), time.as_secs_f64());
}

/// Adds a rate per second to the row `name`, if time has passed at all.
pub(crate) fn report_rate(sys: &mut dyn System, name: &str, unit: &str, amount: f64, took: Ns) {
    if took > Ns::ZERO {
        sys.report(&Metric::new(name, unit, Better::Higher), amount / took.as_secs_f64());
    }
}

/// Counts the processes that were killed.
pub(crate) fn report_killed(sys: &mut dyn System, name: &str, nr_killed: u32) {
    let row = Metric::new(name, "processes", Better::Lower).shown_as(&[Statistic::Amean], 0);
    sys.report(&row, f64::from(nr_killed));
}

/// What the word of an `advice` parameter stands for.
pub(crate) fn advice(word: &str) -> Option<Advice> {
    match word {
        "huge" => Some(Advice::Huge),
        "no-huge" => Some(Advice::NoHuge),
        _ => None,
    }
}

/// Maps anonymous memory and says what is advised of it.
pub(crate) fn map(
    sys: &mut dyn System,
    pages: u64,
    advice: Option<Advice>,
) -> Result<Area, Failure> {
    let area = sys.mmap(pages)?;
    if let Some(advice) = advice {
        sys.madvise(area, advice)?;
    }
    Ok(area)
}

/// The words of an `advice` parameter.
pub(crate) const ADVICE: &[&str] = &["none", "huge", "no-huge"];
