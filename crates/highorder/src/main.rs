//! The command line: verbs, progress, exit codes. The only crate that prints, but for what
//! build scripts tell cargo, and for `on_real.rs` of `highorder-real`, a program for tests.
//!
//! To add a verb:
//!
//! 1. write `src/VERB.rs` with its arguments and its work:
//!    `#[derive(clap::Args)] pub(crate) struct Arguments { ... }` and
//!    `pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure>`;
//! 2. add it to [`cli::Verb`] and to [`cli::GROUPS`], an example to `cli::EXAMPLES`, and examples to the end of its
//!    help, which a test runs or reads;
//! 3. add its arm to [`run()`] below.
//!
//! Help, completions and man pages follow from the definition. What a verb prints and writes goes
//! through [`output`]; what can go wrong is a [`failure::Failure`].

mod attainable;
mod calibrate;
mod cli;
mod compare;
mod complete;
mod completions;
mod eta;
mod explain;
mod export;
mod failure;
mod import;
mod list;
mod man;
mod map;
mod matrix;
mod output;
mod real;
mod record;
mod replay;
mod reproduce;
mod restore_knobs;
mod results;
mod run;
mod sheet;
mod shipped_cases;
mod show;
mod snapshot;
mod sweep;
mod trace;
mod validate;
mod watch;
mod what_if;

use cli::Verb;
use failure::Failure;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{self, PanicHookInfo};
use std::process::ExitCode;

fn main() -> ExitCode {
    // As process 1 of a guest it is that guest's program, and this does not return.
    highorder_real::guest::init_if_guest();
    // Asked by a shell for completions, it prints these, and this does not return either.
    completions::complete_if_asked();
    ignore_size_limit_signal();
    panic::set_hook(Box::new(tell_panic));
    let verb = cli::parse();
    match panic::catch_unwind(|| run(&verb)) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(failure)) => {
            output::say(&failure.told());
            failure.exit_code()
        }
        Err(_) => ExitCode::FAILURE,
    }
}

/// Tells of a panic on whatever thread, and asks for a report. Nobody may be listening.
fn tell_panic(panic: &PanicHookInfo<'_>) {
    if highorder_input::is_fenced() || highorder_real::host::is_fork() {
        return;
    }
    let message = panic.payload_as_str().unwrap_or("no message");
    let place = panic.location().map(|place| format!(" ({place})")).unwrap_or_default();
    output::say(&highorder_input::printable(&format!("panic: {message}{place}")));
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        output::say(&backtrace.to_string());
    }
    output::say(&format!(
        "this is a fault of highorder itself, not of what it was given: please report it, and attach this message (with \
         RUST_BACKTRACE=1 in the environment it says more), the command line, the files that it names, and: {}, sources \
         {}",
        output::VERSION,
        env!("HIGHORDER_SOURCES")
    ));
}

/// Has a write past the limit of a file's size (`ulimit -f`) fail, so that it is told of, rather than end the
/// process by SIGXFSZ.
#[allow(unsafe_code, reason = "no safe interface")]
fn ignore_size_limit_signal() {
    // SAFETY: no handler runs: the signal is ignored, as SIGPIPE is from the start.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

fn run(verb: &Verb) -> Result<(), Failure> {
    match verb {
        Verb::Snapshot(arguments) => snapshot::run(arguments),
        Verb::Map(arguments) => map::run(arguments),
        Verb::Attainable(arguments) => attainable::run(arguments),
        Verb::Watch(arguments) => watch::run(arguments),
        Verb::Record(arguments) => record::run(arguments),
        Verb::Calibrate(arguments) => calibrate::run(arguments),
        Verb::Replay(arguments) => replay::run(arguments),
        Verb::WhatIf(arguments) => what_if::run(arguments),
        Verb::Advise(arguments) => what_if::advise(arguments),
        Verb::Trace(arguments) => trace::run(arguments),
        Verb::List(arguments) => list::run(arguments),
        Verb::Show(arguments) => show::run(arguments),
        Verb::Run(arguments) => run::run(arguments),
        Verb::Compare(arguments) => compare::run(arguments),
        Verb::Reproduce(arguments) => reproduce::run(arguments),
        Verb::Validate(arguments) => validate::run(arguments),
        Verb::Explain(arguments) => explain::run(arguments),
        Verb::Export(arguments) => export::run(arguments),
        Verb::Import(arguments) => import::run(arguments),
        Verb::RestoreKnobs(arguments) => restore_knobs::run(arguments),
        Verb::Completions(arguments) => completions::run(arguments),
        Verb::Man(arguments) => man::run(arguments),
    }
}
