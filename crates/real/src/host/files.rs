//! The folder of a run's files on this machine.
//!
//! ```text
//! FOLDER/highorder-x7Rk2a/
//!     lock      held by all processes of the run, so that nobody takes it for a dead run's
//!     files/    what the workload writes
//! ```
//!
//! It goes with the run: the program removes it, or the warden does if the program is killed. Where all processes of a
//! run are killed at once, the next run in that folder, and `restore-knobs`, find that nobody holds the lock.

use super::HostError;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// What names of such folders begin with.
const PREFIX: &str = "highorder-";
const LOCK: &str = "lock";
const FILES: &str = "files";

/// A new folder for files, gone when dropped.
pub(super) struct Files {
    folder: TempDir,
    _lock: File,
}

impl Files {
    /// Makes one, after it has removed what dead runs left.
    pub(super) fn new(within: &Path) -> Result<Self, HostError> {
        let folder = |source| HostError::Folder { path: within.to_owned(), source };
        let within = std::path::absolute(within).map_err(folder)?;
        remove_left(&within).map_err(folder)?;
        let made = tempfile::Builder::new().prefix(PREFIX).tempdir_in(within).map_err(|error| {
            // Without the path of the attempt, which says nothing to anybody.
            folder(error.kind().into())
        })?;
        // Under its name it is locked: what has no lock is not taken for a dead run's.
        let unnamed = made.path().join("new");
        let lock = File::create_new(&unnamed).map_err(folder)?;
        match lock.try_lock() {
            Err(TryLockError::Error(error)) if error.kind() != io::ErrorKind::Unsupported => {
                return Err(folder(error));
            }
            Err(TryLockError::Error(_)) => {}
            _ => fs::rename(&unnamed, made.path().join(LOCK)).map_err(folder)?,
        }
        fs::create_dir(made.path().join(FILES)).map_err(folder)?;
        Ok(Self { folder: made, _lock: lock })
    }

    /// All of it.
    pub(super) fn whole(&self) -> PathBuf {
        self.folder.path().to_owned()
    }
}

/// Where the workload's files lie in the folder of a run.
pub(super) fn files_in(whole: &Path) -> PathBuf {
    whole.join(FILES)
}

/// Removes the folders that runs of this user left in there when all their processes were killed at once; returns
/// them.
///
/// # Errors
/// The folder cannot be listed, or one in it not be removed.
pub fn remove_left(within: &Path) -> io::Result<Vec<PathBuf>> {
    let user = rustix::process::geteuid().as_raw();
    let mut removed = Vec::new();
    for entry in fs::read_dir(within)? {
        let entry = entry?;
        let path = entry.path();
        let is_named = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let found = entry.metadata()?;
        if !is_named || !found.is_dir() || found.uid() != user {
            continue;
        }
        let Ok(lock) = File::open(path.join(LOCK)) else { continue };
        if lock.try_lock().is_ok() {
            fs::remove_dir_all(&path)?;
            removed.push(path);
        }
    }
    removed.sort();
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_run_left_is_removed_and_what_a_live_one_has_is_not() {
        let within = tempfile::tempdir().unwrap();
        let (dead, live) = (Files::new(within.path()).unwrap(), Files::new(within.path()).unwrap());
        fs::write(files_in(&dead.whole()).join("data"), "x").unwrap();
        fs::create_dir(within.path().join("highorder-of-somebody-else")).unwrap();
        fs::create_dir(within.path().join("other")).unwrap();
        assert!(remove_left(within.path()).unwrap().is_empty());
        let left = dead.whole();
        let Files { folder, _lock } = dead;
        // As a kill leaves it: nothing removed, the lock gone.
        let _ = folder.keep();
        drop(_lock);
        assert_eq!(remove_left(within.path()).unwrap(), std::slice::from_ref(&left));
        assert!(!left.exists() && live.whole().exists());
        assert_eq!(fs::read_dir(within.path()).unwrap().count(), 3);
    }
}
