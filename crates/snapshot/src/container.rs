//! The snapshot file: the recorded folder's files packed into one.
//!
//! ```text
//! magic           8 bytes   89 48 4F 53 4E 41 50 0A ("\x89HOSNAP\n")
//! format version  u32       1
//! sections        u32
//! file length     u64       all of it, the checksum included
//! a section:
//!     name length     u16, then the name
//!     content length  u64, uncompressed
//!     stored length   u64, then a zstd frame
//! checksum        16 bytes  xxh3-128 of everything before it
//! ```
//!
//! Numbers are little endian. Magic, version, file length and the checksum at the end keep their
//! places in every later version, so an old program can tell a damaged file from a newer one. The
//! same snapshot always gives the same bytes.

use crate::folder::{Folder, limit_of};
use crate::recording_file::{self, RecordingFiles};
use crate::state::Snapshot;
use highorder_files::{Destination, Replace, limits};
use highorder_input::InputError;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_128;

/// The first bytes of a snapshot file. Not text, and broken by a transfer that rewrites line ends.
pub const MAGIC: [u8; 8] = *b"\x89HOSNAP\n";
/// The version this program writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;

/// Where the header has the file's length.
const FILE_LEN_AT: usize = 8 + 4 + 4;
const HEADER_LEN: usize = FILE_LEN_AT + 8;
const CHECKSUM_LEN: usize = 16;
/// Chosen by size: past 12 a recorded state shrinks by less than 2 % and takes several times as long.
const ZSTD_LEVEL: i32 = 12;

impl Snapshot {
    /// Reads a snapshot file, a recorded folder, or a state of a recording file: `FILE/state0`.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, or contradicts itself: every bad line is named.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, InputError> {
        let path = path.as_ref();
        if path.is_dir() {
            return Self::read_dir(path);
        }
        if let Some((file, name)) = recording_file::state_of_file(path) {
            let state = RecordingFiles::open(file)?.state(name)?;
            return state.ok_or_else(|| InputError::file(file, format!("no {name} in it")));
        }
        let label = path.display().to_string();
        Self::from_bytes(&read_file(path, &label)?, &label)
    }

    /// Writes a snapshot file. It appears whole under its name, or not at all; one that is there is
    /// replaced. Only its owner may read it.
    ///
    /// # Errors
    /// If the file cannot be written, or the snapshot contradicts itself and so could not be read
    /// back.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), InputError> {
        let path = path.as_ref();
        let destination = Destination::new(path, Replace::Yes)?.private();
        let bytes = self.to_bytes(&path.display().to_string())?;
        Ok(destination.write(&bytes)?)
    }

    /// Packs the snapshot; `label` is what error messages call it.
    ///
    /// # Errors
    /// If the snapshot contradicts itself and so could not be read back.
    pub fn to_bytes(&self, label: &str) -> Result<Vec<u8>, InputError> {
        Ok(pack(&self.to_folder(label)?))
    }

    /// Unpacks what [`Snapshot::to_bytes`] gave; `label` is what error messages call it.
    ///
    /// # Errors
    /// If the bytes are damaged or contradict themselves.
    pub fn from_bytes(bytes: &[u8], label: &str) -> Result<Self, InputError> {
        let folder = unpack(bytes, label).map_err(|message| InputError::file(label, message))?;
        Self::from_folder(&folder)
    }
}

/// Whether a file's first bytes are those of a snapshot file.
#[must_use]
pub fn begins(path: &Path) -> bool {
    let mut first = [0; MAGIC.len()];
    path.is_file()
        && File::open(path).and_then(|mut file| file.read_exact(&mut first)).is_ok()
        && first == MAGIC
}

/// Reads a file as far as its first bytes say that it is a snapshot's.
fn read_file(path: &Path, label: &str) -> Result<Vec<u8>, InputError> {
    let mut file = highorder_files::open(path).map_err(|error| InputError::read(path, error))?;
    let mut bytes = Vec::new();
    let mut read = |bytes: &mut Vec<u8>, len: u64| {
        let read = file.by_ref().take(len).read_to_end(bytes);
        read.map_err(|e| InputError::io(path, "read", &e))
    };
    read(&mut bytes, MAGIC.len() as u64)?;
    check_magic(&bytes).map_err(|message| InputError::file(label, message))?;
    read(&mut bytes, (HEADER_LEN - MAGIC.len()) as u64)?;
    let Some(file_len) = bytes.get(FILE_LEN_AT..HEADER_LEN) else { return Ok(bytes) };
    let file_len = u64::from_le_bytes(file_len.try_into().expect("a slice of 8 bytes"));
    if file_len > limits::SNAPSHOT.most {
        let (most, of) = (limits::SNAPSHOT.told(), limits::SNAPSHOT.of);
        let message =
            format!("a length of {file_len} bytes, expected at most {most}, the limit of {of}");
        return Err(InputError::file(label, message));
    }
    // One byte more shows that there is more.
    read(&mut bytes, file_len.saturating_sub(HEADER_LEN as u64) + 1)?;
    Ok(bytes)
}

fn check_magic(bytes: &[u8]) -> Result<(), String> {
    if bytes.starts_with(&MAGIC) {
        return Ok(());
    }
    if bytes.is_empty() {
        return Err("an empty file, expected a snapshot".to_owned());
    }
    let found = &bytes[..bytes.len().min(MAGIC.len())];
    Err(format!("not a snapshot file: begins with {found:02x?}, expected {MAGIC:02x?}"))
}

fn pack(folder: &Folder) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes.extend_from_slice(&(folder.files.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&0u64.to_le_bytes());
    for (name, file) in &folder.files {
        let stored = zstd::bulk::compress(&file.bytes, ZSTD_LEVEL)
            .expect("compressing from memory to memory does not fail");
        bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(&(file.bytes.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&(stored.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&stored);
    }
    let file_len = (bytes.len() + CHECKSUM_LEN) as u64;
    bytes[FILE_LEN_AT..HEADER_LEN].copy_from_slice(&file_len.to_le_bytes());
    let checksum = xxh3_128(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

fn unpack(bytes: &[u8], label: &str) -> Result<Folder, String> {
    check_magic(bytes)?;
    if bytes.len() < HEADER_LEN + CHECKSUM_LEN {
        return Err(format!("truncated: found {} bytes, expected a header", bytes.len()));
    }
    let mut header = Cursor { bytes: &bytes[MAGIC.len()..HEADER_LEN] };
    let version = u32::from_le_bytes(header.take()?);
    let nr_sections = u32::from_le_bytes(header.take()?);
    let file_len = u64::from_le_bytes(header.take()?);
    if (bytes.len() as u64) < file_len {
        return Err(format!("truncated: found {} bytes, expected {file_len}", bytes.len()));
    }
    let (content, checksum) = bytes.split_at(bytes.len() - CHECKSUM_LEN);
    if xxh3_128(content).to_le_bytes() != *checksum || bytes.len() as u64 != file_len {
        return Err("damaged: the checksum does not match, expected an unaltered file".into());
    }
    if version != FORMAT_VERSION {
        return Err(format!(
            "format version {version}, expected {FORMAT_VERSION}: written by a newer highorder"
        ));
    }
    let mut cursor = Cursor { bytes: &content[HEADER_LEN..] };
    let mut folder = Folder::new(label);
    let mut room = limits::SNAPSHOT_UNPACKED;
    for _ in 0..nr_sections {
        let name_len = usize::from(u16::from_le_bytes(cursor.take()?));
        let name = std::str::from_utf8(cursor.slice(name_len)?)
            .map_err(|e| format!("a section's name is not text: {e}"))?;
        let content_len = cursor.length()?;
        let stored_len = cursor.length()?;
        let stored = cursor.slice(stored_len)?;
        let limit = limit_of(name, room);
        if content_len as u64 > limit.most {
            let (most, of) = (limit.told(), limit.of);
            return Err(format!(
                "section `{name}` promises {content_len} bytes, expected at most {most}, the limit of {of}"
            ));
        }
        room.most -= content_len as u64;
        let mut content = Vec::new();
        // The length is a promise to be checked, not a size to be trusted with memory.
        let unpacking = zstd::stream::read::Decoder::new(stored);
        let unpacking = unpacking.map_err(|e| format!("section `{name}`: {e}"))?;
        let mut limited = unpacking.take(content_len as u64 + 1);
        limited.read_to_end(&mut content).map_err(|e| format!("section `{name}`: {e}"))?;
        if content.len() != content_len {
            return Err(format!(
                "section `{name}` holds {} bytes or more, expected {content_len}",
                content.len()
            ));
        }
        if folder.files.contains_key(name) {
            return Err(format!("found section `{name}` twice"));
        }
        folder.insert(name, content);
    }
    match cursor.bytes.len() {
        0 => Ok(folder),
        more => Err(format!("{more} bytes after the last section, expected none")),
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn slice(&mut self, len: usize) -> Result<&'a [u8], String> {
        let (slice, rest) = self
            .bytes
            .split_at_checked(len)
            .ok_or_else(|| format!("a section needs {len} bytes, {} are left", self.bytes.len()))?;
        self.bytes = rest;
        Ok(slice)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], String> {
        Ok(self.slice(N)?.try_into().expect("a slice of N bytes is an array of N"))
    }

    fn length(&mut self) -> Result<usize, String> {
        let len = u64::from_le_bytes(self.take()?);
        usize::try_from(len).map_err(|_| format!("a length of {len} bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::any_snapshot;
    use proptest::prelude::*;
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    use std::fs;

    fn sample() -> Snapshot {
        let mut runner = TestRunner::deterministic();
        any_snapshot().new_tree(&mut runner).unwrap().current()
    }

    fn refused(bytes: &[u8]) -> String {
        let error = Snapshot::from_bytes(bytes, "x.snapshot").unwrap_err();
        assert_eq!(error.problems().len(), 1, "{error}");
        error.to_string()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_snapshot_reads_back_from_its_file_as_it_was(snapshot in any_snapshot()) {
            let bytes = snapshot.to_bytes("x").unwrap_or_else(|e| panic!("{e}"));
            prop_assert_eq!(&Snapshot::from_bytes(&bytes, "x").unwrap(), &snapshot);
            prop_assert_eq!(snapshot.to_bytes("y").unwrap(), bytes);
        }

        #[test]
        fn a_snapshot_reads_back_from_a_folder_as_it_was(snapshot in any_snapshot()) {
            let directory = tempfile::tempdir().unwrap();
            snapshot.write_dir(directory.path()).unwrap();
            prop_assert_eq!(Snapshot::read(directory.path()).unwrap(), snapshot);
        }
    }

    #[test]
    fn any_single_flipped_bit_is_refused_with_one_error() {
        let bytes = sample().to_bytes("x").unwrap();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut altered = bytes.clone();
                altered[at] ^= 1 << bit;
                refused(&altered);
            }
        }
    }

    #[test]
    fn any_prefix_is_refused_with_one_error() {
        let bytes = sample().to_bytes("x").unwrap();
        for len in 0..bytes.len() {
            let message = refused(&bytes[..len]);
            assert!(message.contains("truncated") || len < MAGIC.len(), "{len}: {message}");
        }
        refused(&[bytes.as_slice(), b"\0"].concat());
    }

    #[test]
    fn a_newer_format_version_is_called_newer() {
        let mut bytes = sample().to_bytes("x").unwrap();
        bytes[8..12].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
        let end = bytes.len() - CHECKSUM_LEN;
        let checksum = xxh3_128(&bytes[..end]).to_le_bytes();
        bytes[end..].copy_from_slice(&checksum);
        assert_eq!(
            refused(&bytes),
            "x.snapshot: format version 2, expected 1: written by a newer highorder"
        );
    }

    #[test]
    fn a_file_of_another_kind_is_refused_by_its_first_bytes() {
        assert!(refused(b"PK\x03\x04 and so on").contains("not a snapshot file"));
        assert!(refused(b"").contains("an empty file, expected a snapshot"));
    }

    #[test]
    fn writing_replaces_a_file_whole_and_leaves_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.snapshot");
        fs::write(&path, "old").unwrap();
        let snapshot = sample();
        snapshot.write(&path).unwrap();
        assert_eq!(Snapshot::read(&path).unwrap(), snapshot);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        let missing = directory.path().join("absent/x.snapshot");
        assert!(snapshot.write(&missing).unwrap_err().to_string().contains("cannot write"));
    }

    #[test]
    fn a_snapshot_that_contradicts_itself_is_not_written() {
        let mut snapshot = sample();
        snapshot.pageblocks.reverse();
        assert!(snapshot.to_bytes("x").is_err());
        let mut snapshot = sample();
        snapshot.files.insert("../escape".into(), Vec::new());
        assert!(snapshot.to_bytes("x").unwrap_err().to_string().contains("no slash"));
        let mut snapshot = sample();
        snapshot.lru[0].pages.clear();
        assert!(snapshot.to_bytes("x").unwrap_err().to_string().contains("would not read back"));
    }
}
