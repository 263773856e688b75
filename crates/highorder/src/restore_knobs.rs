//! `highorder restore-knobs`: what a run that was killed changed of this machine's settings, put back.

use crate::failure::Failure;
use crate::output;
use crate::real::STATE_FOLDER;
use highorder_real::knobs::{Knobs, restore_knobs};
use std::path::PathBuf;

/// Where it is kept what settings were.
#[derive(clap::Args)]
#[command(after_help = "\
`highorder run --on host --apply-knobs` keeps in a file what settings were before it changes them, and puts \
them back however it ends, but for a crash of the machine's kernel or of all its processes at once. Then \
this finishes it, from the file. It takes root.

Examples:
  sudo highorder restore-knobs")]
pub(crate) struct Arguments {
    /// The folder with the file
    #[arg(long, value_name = "DIR", default_value = STATE_FOLDER)]
    state_dir: PathBuf,
}

/// Puts them back, and says which.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let restored = restore_knobs(&Knobs::new("/"), &arguments.state_dir)
        .map_err(|error| Failure::input(error.to_string()))?;
    let mut text = String::new();
    for former in &restored {
        text.push_str(&format!("{} is {} again\n", former.name, former.value));
    }
    if restored.is_empty() {
        text = format!("nothing to put back: no setting in {}\n", arguments.state_dir.display());
    }
    output::print(text.as_bytes())
}
