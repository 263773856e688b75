//! One way to write to what a user named.
//!
//! | the name is of | what happens |
//! | --- | --- |
//! | nothing | the file appears whole, or not at all |
//! | a regular file | it is replaced as a whole, if that is allowed; its owner and rights stay |
//! | a symbolic link | it is followed; what it leads to is treated as if it had been named |
//! | a pipe, a character device | it is written into |
//! | one of our open descriptors (`/dev/stdout`, `/dev/fd/3`) | it is written into, also if it is a file |
//! | a directory, a block device, a socket | it is refused |

use crate::input::kind;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Component, Path, PathBuf};

/// How many symbolic links are followed, one after the other: as many as the kernel does
/// (include/linux/namei.h, `MAXSYMLINKS`).
const LINKS_MAX: usize = 40;

/// What begins the name under which a file is written before it gets its own.
const PART: &str = ".highorder-";

/// Whether a regular file that is there already may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// Yes: that was asked for.
    Yes,
    /// No: that is an error.
    No,
}

impl Replace {
    /// Yes, if `--force` or the like was given.
    #[must_use]
    pub fn forced(is_forced: bool) -> Self {
        if is_forced { Self::Yes } else { Self::No }
    }
}

/// Why something cannot be written, beginning with its name.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// There is a regular file, and it may not be replaced.
    #[error("{}: is there already", name.display())]
    IsThere {
        /// As it was named.
        name: PathBuf,
    },
    /// It is nothing that can be written to.
    #[error("{}: cannot write: {found}, expected {expected}", name.display())]
    Unfit {
        /// As it was named.
        name: PathBuf,
        /// What there is.
        found: String,
        /// What there should be.
        expected: &'static str,
    },
    /// The operating system said no.
    #[error("{}: cannot write: {source}", name.display())]
    Io {
        /// As it was named.
        name: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// What there should be where there is nothing that can be written to.
const EXPECTED: &str = "a free name, a file, a pipe or a character device";

/// Where something is to be written, looked at before there is anything to write.
#[derive(Clone, Debug)]
pub struct Destination {
    name: PathBuf,
    replace: Replace,
    is_private: bool,
}

/// What a name leads to.
enum Place {
    /// A free name, or a regular file, which is not the name itself if that is a symbolic link.
    File { path: PathBuf, there: Option<Metadata> },
    /// Our standard output.
    Stdout,
    /// Our standard error.
    Stderr,
    /// Something to open and to write into.
    Into(PathBuf),
}

impl Destination {
    /// Looks at what is there under this name.
    ///
    /// # Errors
    /// It cannot be written to: there is a regular file that may not be replaced, its folder is missing or
    /// not ours to write to, or it is a directory, a block device, a socket or a symbolic link without end.
    pub fn new(name: impl Into<PathBuf>, replace: Replace) -> Result<Self, WriteError> {
        let destination = Self { name: name.into(), replace, is_private: false };
        destination.find()?;
        Ok(destination)
    }

    /// Has nobody but the owner read the file, if it is one.
    #[must_use]
    pub fn private(self) -> Self {
        Self { is_private: true, ..self }
    }

    /// The name as it was given.
    #[must_use]
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// Whether what is written will be a file of its own, rather than go into a pipe or a device.
    #[must_use]
    pub fn is_file(&self) -> bool {
        matches!(self.find(), Ok(Place::File { .. }))
    }

    /// Whether it is our standard output, where nothing else should then be printed.
    #[must_use]
    pub fn is_standard_output(&self) -> bool {
        matches!(self.find(), Ok(Place::Stdout))
    }

    /// Writes all bytes. A file appears whole, or not at all. A pipe whose reader has seen enough is no
    /// error.
    ///
    /// # Errors
    /// As [`Destination::new`], since things may have changed; or it cannot be written.
    pub fn write(&self, bytes: &[u8]) -> Result<(), WriteError> {
        self.write_with(&mut |out| out.write_all(bytes))
    }

    /// As [`Destination::write`], for what is not all in memory: `content` writes it.
    ///
    /// # Errors
    /// As [`Destination::write`], and what `content` returns.
    pub fn write_with(
        &self,
        content: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), WriteError> {
        let mut into = |open: &mut dyn Write| match content(open).and_then(|()| open.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            written => written,
        };
        let written = match self.find()? {
            Place::Stdout => into(&mut io::stdout().lock()),
            Place::Stderr => into(&mut io::stderr().lock()),
            Place::Into(path) => open_to_write(&path).and_then(|mut open| into(&mut open)),
            Place::File { path, there } => self.write_beside(&path, there.as_ref(), content),
        };
        written.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => WriteError::IsThere { name: self.name.clone() },
            _ => self.io(error),
        })
    }

    /// Writes a file beside its place, then gives it its name.
    fn write_beside(
        &self,
        path: &Path,
        there: Option<&Metadata>,
        content: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let mode = if self.is_private { 0o600 } else { 0o666 };
        let file = tempfile::Builder::new()
            .prefix(PART)
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(folder_of(path))
            .map_err(without_name)?;
        // Not through the wrapper, whose errors name a file that nobody asked for.
        content(&mut file.as_file())?;
        if let Some(there) = there {
            keep_owner(file.as_file(), there);
            if !self.is_private {
                let mode = there.permissions().mode() & 0o777;
                file.as_file().set_permissions(Permissions::from_mode(mode))?;
            }
        }
        file.as_file().sync_all()?;
        let named = match self.replace {
            Replace::Yes => file.persist(path),
            Replace::No => file.persist_noclobber(path),
        };
        named.map(drop).map_err(|error| error.error)
    }

    /// Follows the name to where it leads.
    fn find(&self) -> Result<Place, WriteError> {
        // The library takes `x/` and `x` for the same.
        if self.name.as_os_str().as_bytes().ends_with(b"/") || self.name.file_name().is_none() {
            let found = match self.name.as_os_str().is_empty() {
                true => "an empty name",
                false => "the name of a folder",
            };
            return Err(self.unfit(found.to_owned()));
        }
        let mut path = self.name.clone();
        for _ in 0..=LINKS_MAX {
            let found = match path.symlink_metadata() {
                Ok(found) => Some(found),
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(error) => return Err(self.io(error)),
            };
            if found.as_ref().is_some_and(Metadata::is_symlink) {
                if let Some(descriptor) = Descriptor::of(&path) {
                    return self.descriptor(descriptor, path);
                }
                let target = path.read_link().map_err(|error| self.io(error))?;
                path = folder_of(&path).join(target);
                continue;
            }
            return self.place(path, found);
        }
        Err(self.unfit(format!("a symbolic link that leads through more than {LINKS_MAX} others")))
    }

    fn place(&self, path: PathBuf, found: Option<Metadata>) -> Result<Place, WriteError> {
        let of = found.as_ref().map(Metadata::file_type);
        match of {
            Some(of) if of.is_fifo() || of.is_char_device() => {
                self.check_access(&path, Access::WRITE_OK)?;
                Ok(Place::Into(path))
            }
            Some(of) if !of.is_file() => Err(self.unfit(kind(of).to_owned())),
            Some(_) if self.replace == Replace::No => {
                Err(WriteError::IsThere { name: self.name.clone() })
            }
            _ => {
                let folder = folder_of(&path);
                if !folder.is_dir() {
                    let found = format!("there is no folder {}", folder.display());
                    let (name, expected) = (self.name.clone(), "one that is there");
                    return Err(WriteError::Unfit { name, found, expected });
                }
                self.check_access(folder, Access::WRITE_OK | Access::EXEC_OK)?;
                Ok(Place::File { path, there: found })
            }
        }
    }

    /// What one of a process's open descriptors leads to: its link tells a name, which need not be there.
    fn descriptor(&self, descriptor: Descriptor, link: PathBuf) -> Result<Place, WriteError> {
        match descriptor {
            Descriptor::Own(1) => return Ok(Place::Stdout),
            Descriptor::Own(2) => return Ok(Place::Stderr),
            Descriptor::Own(_) | Descriptor::Others => {}
        }
        let of = link.metadata().map_err(|error| self.io(error))?.file_type();
        match of.is_file() || of.is_fifo() || of.is_char_device() {
            true => Ok(Place::Into(link)),
            false => Err(self.unfit(kind(of).to_owned())),
        }
    }

    fn check_access(&self, path: &Path, access: Access) -> Result<(), WriteError> {
        let allowed = accessat(CWD, path, access, AtFlags::EACCESS);
        allowed.map_err(|error| self.io(error.into()))
    }

    fn unfit(&self, found: String) -> WriteError {
        WriteError::Unfit { name: self.name.clone(), found, expected: EXPECTED }
    }

    fn io(&self, source: io::Error) -> WriteError {
        WriteError::Io { name: self.name.clone(), source }
    }
}

/// Writes to what this name leads to: [`Destination`] in one step.
///
/// # Errors
/// As [`Destination::new`] and [`Destination::write`].
pub fn write(name: impl Into<PathBuf>, bytes: &[u8], replace: Replace) -> Result<(), WriteError> {
    Destination::new(name, replace)?.write(bytes)
}

/// Looks whether files of these names can be written into a folder, which need not be there yet. Nor need folders in it
/// be, where names begin with theirs.
///
/// # Errors
/// It cannot be made, or one of the files cannot be written.
pub fn check_folder(
    folder: &Path,
    names: impl IntoIterator<Item = impl AsRef<Path>>,
    replace: Replace,
) -> Result<(), WriteError> {
    if !folder.is_dir() {
        return check_new_folder(folder);
    }
    for name in names {
        let path = folder.join(name);
        match path.parent().filter(|own| !own.is_dir()) {
            Some(own) => check_new_folder(own)?,
            None => drop(Destination::new(&path, replace)?),
        }
    }
    Ok(())
}

/// Looks whether a folder can be made that is not there yet.
fn check_new_folder(folder: &Path) -> Result<(), WriteError> {
    // What would be made lies in the first folder above that is there.
    let nearest = folder.ancestors().find(|above| above.symlink_metadata().is_ok());
    let nearest = nearest.filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = || folder.to_owned();
    if !nearest.is_dir() {
        let found = format!("{} is no folder", nearest.display());
        return Err(WriteError::Unfit { name: name(), found, expected: "a folder" });
    }
    accessat(CWD, nearest, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
        .map_err(|error| WriteError::Io { name: name(), source: error.into() })
}

/// A descriptor that a symbolic link below `/proc` stands for.
enum Descriptor {
    /// One of this process.
    Own(u32),
    /// One of another process.
    Others,
}

impl Descriptor {
    /// What `/dev/stdout`, `/dev/fd/N` and `/proc/PID/fd/N` are in the end.
    fn of(link: &Path) -> Option<Self> {
        let number = link.file_name()?.to_str()?.parse().ok()?;
        let folder = folder_of(link).canonicalize().ok()?;
        let mut words = folder.components().rev().map(Component::as_os_str);
        let (fd, process) = (words.next()?, words.next()?.to_str()?);
        let is_descriptor = fd == "fd" && folder.starts_with("/proc");
        let process: u32 = process.parse().ok().filter(|_| is_descriptor)?;
        // Below `task`, the first thread has the process's number, and all share descriptors.
        match process == std::process::id() {
            true => Some(Self::Own(number)),
            false => Some(Self::Others),
        }
    }
}

/// The folder that a path lies in.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// An error of the library for temporary files without the name that it puts behind: nobody asked for that file.
fn without_name(error: io::Error) -> io::Error {
    let told = error.to_string();
    told.split_once(" at path ")
        .map_or(error.kind().into(), |(told, _)| io::Error::new(error.kind(), told))
}

/// Opens what is written into. A file, which only a descriptor can be here, is written to at its end.
fn open_to_write(path: &Path) -> io::Result<File> {
    let is_file = path.metadata()?.is_file();
    let file = OpenOptions::new().write(true).append(is_file).open(path)?;
    // It may have been exchanged since it was looked at.
    let of = file.metadata()?.file_type();
    match of.is_fifo() || of.is_char_device() || (is_file && of.is_file()) {
        true => Ok(file),
        false => Err(io::Error::other(format!("it has become {}", kind(of)))),
    }
}

/// Gives a file the owner that another has. Only root may, and for others it is no loss.
fn keep_owner(file: &File, of: &Metadata) {
    let is_the_same =
        file.metadata().is_ok_and(|own| (own.uid(), own.gid()) == (of.uid(), of.gid()));
    if !is_the_same {
        let _ = fchown(file, Some(of.uid()), Some(of.gid()));
    }
}

/// Makes a folder and those above it.
///
/// # Errors
/// It cannot be made.
pub fn make_folder(folder: &Path) -> Result<(), WriteError> {
    fs::create_dir_all(folder).map_err(|source| WriteError::Io { name: folder.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_between_the_look_and_the_writing_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let free = Destination::new(&path, Replace::No).unwrap();
        fs::write(&path, "precious").unwrap();
        assert!(matches!(free.write(b"new"), Err(WriteError::IsThere { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        let forced = Destination::new(&path, Replace::Yes).unwrap();
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let told = forced.write(b"new").unwrap_err().to_string();
        assert!(told.contains("file: cannot write: a directory, expected a free name"), "{told}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_empty_name_and_the_name_of_a_folder_are_refused() {
        for (name, found) in [
            ("", "an empty name"),
            ("..", "the name of a folder"),
            ("new/", "the name of a folder"),
        ] {
            let told = Destination::new(name, Replace::Yes).unwrap_err().to_string();
            assert!(told.contains(&format!("cannot write: {found}, expected")), "{told}");
        }
    }

    #[test]
    fn what_the_system_refuses_is_told_without_a_file_that_nobody_asked_for() {
        let at = Destination::new("/proc/a.png", Replace::Yes);
        let told = at.and_then(|at| at.write(b"x")).unwrap_err().to_string();
        assert!(told.starts_with("/proc/a.png: cannot write: "), "{told}");
        assert!(!told.contains(PART), "{told}");
    }

    #[test]
    fn a_private_file_is_its_owners_alone_whatever_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        Destination::new(&path, Replace::Yes).unwrap().private().write(b"new").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_folder_is_checked_as_far_as_it_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let check = |path: &Path| check_folder(path, ["a", "b"], Replace::No);
        check(folder.path()).unwrap();
        check(&folder.path().join("to/be/made")).unwrap();
        fs::write(folder.path().join("b"), "precious").unwrap();
        assert!(matches!(check(folder.path()), Err(WriteError::IsThere { .. })));
        let told = check(&folder.path().join("b/below")).unwrap_err().to_string();
        assert!(
            told.contains("below: cannot write: ") && told.contains("b is no folder"),
            "{told}"
        );
    }

    #[test]
    fn a_folder_is_checked_with_the_folders_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let check = || check_folder(folder.path(), ["own/a", "own/b"], Replace::No);
        check().unwrap();
        fs::create_dir(folder.path().join("own")).unwrap();
        check().unwrap();
        fs::write(folder.path().join("own/b"), "precious").unwrap();
        assert!(matches!(check(), Err(WriteError::IsThere { .. })));
        fs::remove_dir_all(folder.path().join("own")).unwrap();
        fs::write(folder.path().join("own"), "precious").unwrap();
        assert!(check().unwrap_err().to_string().contains("own is no folder"));
    }
}
