//! One way to open what a user named: regular files and pipes, up to a limit.

use crate::limits::Limit;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::fs::{File, FileType, Metadata};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Why a file cannot be used. The text does not name the file: whoever names it in messages does.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The operating system said no.
    #[error("cannot read: {0}")]
    Io(#[from] io::Error),
    /// It is there, and nothing that can be read here.
    #[error("{found}, expected {expected}")]
    Unfit {
        /// What it is.
        found: String,
        /// What it should be.
        expected: String,
    },
}

impl ReadError {
    fn unfit(found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::Unfit { found: found.into(), expected: expected.into() }
    }

    fn too_long(found: String, limit: Limit) -> Self {
        Self::unfit(found, format!("at most {}, the limit of {}", limit.told(), limit.of))
    }

    /// Whether there is no such file.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

/// What a file is that is neither a regular file nor a symbolic link, as messages have it.
pub(crate) fn kind(of: FileType) -> &'static str {
    match of {
        of if of.is_dir() => "a directory",
        of if of.is_char_device() => "a character device",
        of if of.is_block_device() => "a block device",
        of if of.is_socket() => "a socket",
        of if of.is_fifo() => "a pipe",
        _ => "a file of an unknown kind",
    }
}

fn check_kind(found: &Metadata) -> Result<(), ReadError> {
    let of = found.file_type();
    match of.is_file() || of.is_fifo() {
        true => Ok(()),
        false => Err(ReadError::unfit(kind(of), "a file or a pipe")),
    }
}

/// Whether this names what stands on our standard input.
fn is_standard_input(path: &Path) -> bool {
    ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"].iter().any(|name| path == Path::new(name))
}

/// Opens a regular file or a pipe.
///
/// What it is is asked before it is opened, since opening a device may already do something.
///
/// # Errors
/// It cannot be opened, or is something else.
pub fn open(path: &Path) -> Result<File, ReadError> {
    let file = if is_standard_input(path) {
        // Opened by its name, it would begin anew, and may not be ours to open.
        File::from(io::stdin().as_fd().try_clone_to_owned()?)
    } else {
        check_kind(&path.metadata()?)?;
        File::open(path)?
    };
    check_kind(&file.metadata()?)?;
    Ok(file)
}

/// Whether [`open`] would open it, without opening it: what a pipe holds is there only once.
///
/// # Errors
/// As [`open`].
pub fn check_readable(path: &Path) -> Result<(), ReadError> {
    check_kind(&path.metadata()?)?;
    accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS).map_err(io::Error::from)?;
    Ok(())
}

/// As [`open`], unless the file is longer than the limit: then it is refused before it is read.
///
/// # Errors
/// As [`open`], or it is too long.
pub fn open_within(path: &Path, limit: Limit) -> Result<File, ReadError> {
    let file = open(path)?;
    let found = file.metadata()?;
    match found.is_file() && found.len() > limit.most {
        true => Err(ReadError::too_long(format!("{} bytes", found.len()), limit)),
        false => Ok(file),
    }
}

/// Reads a whole file as it is.
///
/// # Errors
/// It cannot be read, is no file or pipe, or holds more than the limit.
pub fn read(path: &Path, limit: Limit) -> Result<Vec<u8>, ReadError> {
    let file = open_within(path, limit)?;
    let mut bytes = Vec::new();
    file.take(limit.most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > limit.most {
        true => Err(ReadError::too_long(format!("more than {} bytes", limit.most), limit)),
        false => Ok(bytes),
    }
}

/// Reads a whole file of text.
///
/// # Errors
/// As [`read`], or it is not UTF-8.
pub fn read_text(path: &Path, limit: Limit) -> Result<String, ReadError> {
    String::from_utf8(read(path, limit)?).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()]
            .iter()
            .filter(|&&byte| byte == b'\n')
            .count()
            + 1;
        ReadError::unfit(format!("bytes in line {line} that are no text"), "text in UTF-8")
    })
}

/// A reader that fails once more than the limit has come, as unpacked data may.
#[derive(Debug)]
pub struct Limited<R> {
    inner: R,
    left: u64,
    limit: Limit,
}

impl<R: Read> Limited<R> {
    /// Reads from `inner` up to the limit.
    pub fn new(inner: R, limit: Limit) -> Self {
        Self { inner, left: limit.most, limit }
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        match self.left.checked_sub(read as u64) {
            Some(left) => self.left = left,
            None => {
                let found = format!("more than {} bytes", self.limit.most);
                let error = ReadError::too_long(found, self.limit);
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, error.to_string()));
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    const SMALL: Limit = Limit { most: 1024, of: "a test" };

    #[test]
    fn a_file_is_read_whole_up_to_its_limit_and_not_beyond() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [b'x'; 1024]).unwrap();
        assert_eq!(read(&path, SMALL).unwrap().len(), 1024);
        assert_eq!(read_text(&path, SMALL).unwrap().len(), 1024);
        std::fs::write(&path, [b'x'; 1025]).unwrap();
        let told = read(&path, SMALL).unwrap_err().to_string();
        assert_eq!(told, "1025 bytes, expected at most 1 KiB, the limit of a test");
        std::fs::write(&path, b"one\ntwo \xff\n").unwrap();
        let told = read_text(&path, SMALL).unwrap_err().to_string();
        assert_eq!(told, "bytes in line 2 that are no text, expected text in UTF-8");
    }

    #[test]
    fn a_sparse_file_is_refused_by_its_length() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let told = read(&path, SMALL).unwrap_err().to_string();
        assert!(told.starts_with("1099511627776 bytes, expected at most 1 KiB"), "{told}");
    }

    #[test]
    fn what_is_neither_a_file_nor_a_pipe_is_refused_by_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        for (path, kind) in [
            (Path::new("/dev/zero"), "a character device"),
            (folder.path(), "a directory"),
            (socket.as_path(), "a socket"),
        ] {
            let expected = format!("{kind}, expected a file or a pipe");
            assert_eq!(read(path, SMALL).unwrap_err().to_string(), expected);
            assert_eq!(check_readable(path).unwrap_err().to_string(), expected);
        }
        let missing = folder.path().join("missing");
        assert!(read(&missing, SMALL).unwrap_err().is_not_found());
        assert!(check_readable(&missing).unwrap_err().is_not_found());
    }

    #[test]
    fn a_reader_that_gives_more_than_its_limit_fails() {
        let mut bytes = Vec::new();
        Limited::new(&[0_u8; 1024][..], SMALL).read_to_end(&mut bytes).unwrap();
        let error = Limited::new(io::repeat(0), SMALL).read_to_end(&mut bytes).unwrap_err();
        assert!(error.to_string().contains("expected at most 1 KiB, the limit of a test"));
    }
}
