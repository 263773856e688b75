//! `highorder restore-knobs`: what a run that was killed changed of this machine's settings, put back; and what it, or a
//! recording, left of files and in tracefs, removed.

use crate::failure::Failure;
use crate::output;
use crate::real::STATE_FOLDER;
use highorder_input::InputError;
use highorder_real::host::remove_left;
use highorder_real::knobs::{Knobs, restore_knobs};
use std::path::PathBuf;

/// Where it is kept what settings were.
#[derive(clap::Args)]
#[command(after_help = "\
`highorder run --on host --apply-knobs` keeps in a file what settings were before it changes them, and puts \
them back however it ends, but for a crash of the machine's kernel or of all its processes at once. Then \
this finishes it, from the file. It takes root. With --folder it also removes what such a run left there of files, as the \
next run in that folder does. And it removes what a killed `highorder record` left in tracefs, as the next recording does.

Examples:
  sudo highorder restore-knobs
  sudo highorder restore-knobs --folder /mnt/scratch")]
pub(crate) struct Arguments {
    /// The folder with the file
    #[arg(long, value_name = "DIR", default_value = STATE_FOLDER)]
    state_dir: PathBuf,
    /// A folder that was given to `run` for files: what killed runs left there goes
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// Puts them back, and says which.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let restored = restore_knobs(&Knobs::new("/"), &arguments.state_dir)
        .map_err(|error| Failure::input(error.to_string()))?;
    let mut text = String::new();
    for former in &restored {
        text.push_str(&format!("{} is {} again\n", former.name, former.value));
    }
    if let Some(folder) = &arguments.folder {
        let removed =
            remove_left(folder).map_err(|error| InputError::io(folder, "clear", &error))?;
        for path in &removed {
            text.push_str(&format!("{} is gone\n", path.display()));
        }
    }
    for left in highorder_recorder::remove_left().map_err(|e| Failure::input(e.to_string()))? {
        text.push_str(&format!("{left} is gone\n"));
    }
    if text.is_empty() {
        text += &format!("nothing to put back: no setting in {}\n", arguments.state_dir.display());
    }
    output::print(text.as_bytes())
}
