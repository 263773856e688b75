//! The one definition of the command line, from which help, completions and man pages follow.

use crate::{
    attainable, calibrate, compare, completions, explain, export, import, list, man, map, record,
    replay, reproduce, restore_knobs, run, show, snapshot, trace, validate, watch, what_if,
};
use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::fmt::Write as _;
use std::num::NonZeroUsize;

/// What would memory do under another policy?
///
/// A laboratory for Linux's physical memory: page allocator, reclaim, compaction, transparent huge
/// pages.
///
/// Exit codes: 0 done, 1 a fault of highorder itself, 2 bad arguments or bad input, 3 a threshold of `watch` was
/// crossed, 130 interrupted, 143 ended by SIGTERM.
#[derive(Parser)]
#[command(name = "highorder", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Take the state of this machine's memory into a file
    Snapshot(snapshot::Arguments),
    /// Draw physical memory: of this machine, or of a snapshot
    Map(map::Arguments),
    /// Say how many huge pages or contiguous ranges can be had, and what blocks the rest
    Attainable(attainable::Arguments),
    /// Watch this machine's memory: a screen, a history, metrics, thresholds
    Watch(watch::Arguments),
    /// Record what happens in this machine's memory, every page of it, into a file
    Record(record::Arguments),
    /// Explain why an allocation failed, from what the kernel's log says of it
    Explain(explain::Arguments),
    /// List the names there are: experiments, kernels, machines, workloads, knobs, tables, claims
    List(list::Arguments),
    /// Show all about one of them, or about a .toml file of your own
    Show(show::Arguments),
    /// Run an experiment: a workload under several kernels, modelled or real, side by side
    Run(run::Arguments),
    /// Compare what runs left: of the model, or of real machines
    Compare(compare::Arguments),
    /// Measure what work costs on this machine or in a guest, into a machine file
    Calibrate(calibrate::Arguments),
    /// Replay a recording of a real kernel, and compare
    Replay(replay::Arguments),
    /// Ask what a recorded machine would do under other settings
    WhatIf(what_if::Arguments),
    /// Try the known settings on a recorded machine, and say which help
    Advise(what_if::AdviseArguments),
    /// Show runs of compaction in a trace: where the scanners were, and what they moved
    Trace(trace::Arguments),
    /// Repeat published experiments, and say which of their claims hold
    Reproduce(reproduce::Arguments),
    /// Compare the model with recorded runs of real kernels
    Validate(validate::Arguments),
    /// Make records of results that mmtests left
    Import(import::Arguments),
    /// Export runs, recordings and states in the forms of other tools
    Export(export::Arguments),
    /// Put back settings of this machine that a killed run changed
    RestoreKnobs(restore_knobs::Arguments),
    /// Print completions for a shell
    Completions(completions::Arguments),
    /// Print the man page, or write all of them to a folder
    Man(man::Arguments),
}

/// The headings under which `--help` lists the verbs.
pub(crate) const GROUPS: [(&str, &[&str]); 4] = [
    ("Look at memory", &["snapshot", "map", "attainable", "explain", "watch", "record"]),
    ("Find out what there is", &["list", "show"]),
    (
        "Ask the model and real kernels",
        &[
            "run",
            "compare",
            "reproduce",
            "import",
            "export",
            "calibrate",
            "replay",
            "what-if",
            "advise",
            "trace",
            "validate",
            "restore-knobs",
        ],
    ),
    ("This program", &["completions", "man", "help"]),
];

/// Command lines to begin with, for help and man page.
pub(crate) const EXAMPLES: &str = concat!(
    "  highorder map                                the memory of this machine\n",
    "  sudo highorder snapshot -o today.snap        keep it, page for page\n",
    "  highorder map today.snap --png today.png     look at it later, or elsewhere\n",
    "  highorder attainable --order 9               how many huge pages could it have?\n",
    "  highorder watch                              as it goes: free memory, stalls, compaction\n",
    "  sudo highorder record -o now.recording       ... and what happens in it, for 30 seconds\n",
    "  dmesg | highorder explain                    why did an allocation fail?\n",
    "  highorder list                               what there is to run, by name\n",
    "  highorder show usemem-anon                   what an experiment compares, and how long it takes\n",
    "  highorder run usemem-anon --scale 1/16       the same work at two values of vm.swappiness\n",
    "  highorder run usemem-small --on vm:bzImage   ... on a real kernel, in QEMU\n",
    "  highorder compare 'usemem-anon:*' --noise    its tables again: is a change more than noise?\n",
    "  highorder reproduce --scale 1/16 --score     do published claims hold here?\n",
    "  highorder replay RECORDING --lockstep        does the model choose as the kernel did?\n",
    "  highorder replay RECORDING --vs linux-6.1    the same demand under another kernel's rules\n",
    "  highorder what-if RECORDING --set transparent_hugepage/defrag=defer   ... and other settings?\n",
    "  highorder trace trace.txt --picture out.png  where compaction was, and what it moved\n",
);

/// How many runs at once an argument asks for.
pub(crate) fn nr_workers(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "expected a whole number, at least 1".to_owned())
}

/// Reads the arguments of this process; on bad ones, or for help, it prints and ends the process.
pub(crate) fn parse() -> Verb {
    let matches = command().get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).verb
}

/// The command with its verbs listed by group.
pub(crate) fn command() -> Command {
    let mut command = Cli::command();
    command.build();
    let header = command.get_styles().get_header();
    let literal = command.get_styles().get_literal();
    let mut template = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (heading, verbs) in GROUPS {
        let _ = writeln!(template, "\n{header}{heading}:{header:#}");
        for verb in verbs {
            let about = command.find_subcommand(verb).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(template, "  {literal}{verb:<13}{literal:#} {about}");
        }
    }
    let _ = write!(template, "\n{header}Options:{header:#}\n{{options}}{{after-help}}");
    let examples = format!("{header}Examples:{header:#}\n{}", EXAMPLES.trim_end());
    // Built again from the definition: a built command would list `help` twice in completions.
    Cli::command().help_template(template).after_help(examples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_is_listed_in_exactly_one_group() {
        let mut command = Cli::command();
        command.build();
        let mut listed: Vec<_> = GROUPS.iter().flat_map(|(_, verbs)| verbs.iter()).collect();
        let mut verbs: Vec<_> = command.get_subcommands().map(Command::get_name).collect();
        listed.sort();
        verbs.sort_unstable();
        assert_eq!(listed.into_iter().copied().collect::<Vec<_>>(), verbs);
    }

    #[test]
    fn the_definition_is_sound() {
        command().debug_assert();
    }
}
