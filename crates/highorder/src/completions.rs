//! `highorder completions`: what a shell needs to complete our arguments.
//!
//! The script asks the program itself whenever something is to be completed, with an environment variable that names
//! the shell. So names of experiments, kernels and others are completed too, and what a store has runs of.

use crate::cli;
use crate::failure::Failure;
use crate::output;
use clap_complete::Shell;
use clap_complete::env::{CompleteEnv, Shells};

/// The variable by which a script asks: as other programs with this library have it.
const VARIABLE: &str = "COMPLETE";
const NAME: &str = "highorder";

/// Which shell.
#[derive(clap::Args)]
#[command(after_help = "\
The script completes verbs, options, files, and the names that `highorder list` has.

Examples:
  highorder completions bash > ~/.local/share/bash-completion/completions/highorder
  highorder completions zsh > ~/.zfunc/_highorder
  highorder completions fish > ~/.config/fish/completions/highorder.fish")]
pub(crate) struct Arguments {
    /// The shell to complete in
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (shells, name) = (Shells::builtins(), arguments.shell.to_string());
    let shell = shells
        .completer(&name)
        .ok_or_else(|| Failure::internal(format!("no completions for the shell {name}")))?;
    let mut script = Vec::new();
    shell
        .write_registration(VARIABLE, NAME, NAME, NAME, &mut script)
        .map_err(|error| Failure::internal(format!("completions for {name}: {error}")))?;
    output::print(&script)
}

/// Completes for the script, if that is why this process is there.
pub(crate) fn complete_if_asked() {
    CompleteEnv::with_factory(cli::command).var(VARIABLE).completer(NAME).complete();
}
