//! Folders of the user's own: nobody else puts anything there.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What others may do in such a folder: nothing.
const OWN: u32 = 0o700;

/// Why a folder is not the user's own, beginning with its name.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The operating system said no.
    #[error("{}: {source}", path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// It is somebody else's.
    #[error("{}: belongs to user {owner}, expected a folder of your own, user {user}", path.display())]
    NotOwn {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who asks.
        user: u32,
    },
}

/// Makes a folder in which nobody else may do anything, or makes it so if it is there and the user's own.
///
/// # Errors
/// It is somebody else's, or no folder, or cannot be made.
pub fn own_folder(path: &Path) -> Result<(), FolderError> {
    let io = |source| FolderError::Io { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(OWN).create(path).map_err(io)?;
    let found = fs::metadata(path).map_err(io)?;
    let user = rustix::process::geteuid().as_raw();
    if found.uid() != user {
        return Err(FolderError::NotOwn { path: path.to_owned(), owner: found.uid(), user });
    }
    match found.mode() & 0o777 == OWN {
        true => Ok(()),
        false => fs::set_permissions(path, Permissions::from_mode(OWN)).map_err(io),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_ones_own_is_closed_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        let mode = || fs::metadata(&path).unwrap().mode() & 0o777;
        own_folder(&path).unwrap();
        assert_eq!(mode(), OWN);
        fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        own_folder(&path).unwrap();
        assert_eq!(mode(), OWN);
        fs::write(folder.path().join("file"), "").unwrap();
        assert!(own_folder(&folder.path().join("file")).is_err());
    }

    #[test]
    fn somebody_elses_folder_is_refused() {
        let user = rustix::process::geteuid().as_raw();
        let folder = tempfile::tempdir().unwrap();
        if user != 0 {
            let told = own_folder(Path::new("/")).unwrap_err().to_string();
            assert!(told.starts_with("/: belongs to user 0, expected"), "{told}");
            return;
        }
        std::os::unix::fs::chown(folder.path(), Some(12345), None).unwrap();
        let told = own_folder(folder.path()).unwrap_err().to_string();
        assert!(told.contains("belongs to user 12345, expected a folder of your own"), "{told}");
        std::os::unix::fs::chown(folder.path(), Some(0), None).unwrap();
    }
}
