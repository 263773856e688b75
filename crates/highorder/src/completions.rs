//! `highorder completions`: what a shell needs to complete our arguments.

use crate::cli;
use crate::failure::Failure;
use crate::output;
use clap_complete::Shell;

/// Which shell.
#[derive(clap::Args)]
#[command(after_help = "\
For bash, for example:

  highorder completions bash > ~/.local/share/bash-completion/completions/highorder")]
pub(crate) struct Arguments {
    /// The shell to complete in
    shell: Shell,
}

/// Prints the completions.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut cli::command(), "highorder", &mut script);
    output::print(&script)
}
