//! Where a recording lies: a folder, or one file that holds what such a folder holds.
//!
//! ```text
//! state0.snapshot     every page before: a snapshot file (`container`)
//! state1.snapshot     every page after
//! trace.txt.zst       the events between, as ftrace prints them
//! timeline.zst        counters of /proc/vmstat and /proc/buddyinfo once a second
//! settings swaps      knobs, a line `PATH VALUE` each; /proc/swaps
//! case.json           how it was recorded; under `notes` what is to be known of it, a sentence each
//! ```
//!
//! A folder may have its states as folders, and any file plain or compressed (`.gz`, `.zst`); only the state before
//! and the trace have to be there. The recording file has the same files under the same names, one after the other:
//!
//! ```text
//! magic           8 bytes   89 48 4F 52 45 43 44 0A ("\x89HORECD\n")
//! format version  u32       1
//! sections        u32
//! file length     u64       all of it, the checksum included
//! a section:
//!     name length     u16, then the name
//!     content length  u64, then the content as it is
//! checksum        16 bytes  xxh3-128 of everything before it
//! ```
//!
//! Numbers are little endian; magic, version, file length and checksum keep their places in every later version. The
//! contents are packed by themselves, so a trace of any length is read as it lies. `FILE/state0` names a state of it,
//! as of a folder.

use crate::container;
use crate::state::Snapshot;
use highorder_files::limits::{self, Limit};
use highorder_files::{Destination, WriteError};
use highorder_input::InputError;
use highorder_kernelfs::{Source, read_bytes};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

/// The first bytes of a recording file. Not text, and broken by a transfer that rewrites line ends.
pub const MAGIC: [u8; 8] = *b"\x89HORECD\n";
/// The version this program writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;

const HEADER_LEN: u64 = 8 + 4 + 4 + 8;
const CHECKSUM_LEN: u64 = 16;
/// Sections that a file may promise: a recording has a dozen.
const SECTIONS_MAX: u32 = 4096;
/// The state before the events; the one after is `state1`.
pub const STATE_BEFORE: &str = "state0";
/// The state after the events.
pub const STATE_AFTER: &str = "state1";
/// The file that tells how a recording came about.
const CASE: &str = "case.json";
/// Names of the trace in a recording.
const TRACES: [&str; 3] = ["trace.txt.zst", "trace.txt.gz", "trace.txt"];
/// What a file's name may end in, packed or not.
const SUFFIXES: [&str; 3] = [".zst", ".gz", ""];

/// A recording's files, in a folder or in one file.
#[derive(Clone, Debug)]
pub enum RecordingFiles {
    /// In a folder.
    Folder(PathBuf),
    /// In one file.
    File(RecordingFile),
}

impl RecordingFiles {
    /// Looks at what is there.
    ///
    /// # Errors
    /// There is nothing, or a file that is no recording's, or a damaged one.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, InputError> {
        let path = path.as_ref();
        match path.is_dir() {
            true => Ok(Self::Folder(path.to_owned())),
            false => Ok(Self::File(RecordingFile::open(path)?)),
        }
    }

    /// Whether this is a recording: a folder with a state before, or a file that begins as a recording file does.
    #[must_use]
    pub fn are_at(path: &Path) -> bool {
        RecordingFile::begins(path) || state_in(path, STATE_BEFORE).is_some()
    }

    /// The folder or the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Folder(path) => path,
            Self::File(file) => &file.path,
        }
    }

    /// What messages call a file of it.
    #[must_use]
    pub fn label(&self, name: &str) -> String {
        self.path().join(name).display().to_string()
    }

    /// What messages call a state of it: where it is found.
    #[must_use]
    pub fn label_of_state(&self, name: &str) -> String {
        let found = match self {
            Self::Folder(folder) => state_in(folder, name),
            Self::File(_) => None,
        };
        found.map_or_else(|| self.label(name), |path| path.display().to_string())
    }

    /// A state: [`STATE_BEFORE`] or [`STATE_AFTER`]; `None` where there is none.
    ///
    /// # Errors
    /// It cannot be read, is damaged or contradicts itself.
    pub fn state(&self, name: &str) -> Result<Option<Snapshot>, InputError> {
        match self {
            Self::Folder(folder) => state_in(folder, name).map(Snapshot::read).transpose(),
            Self::File(file) => {
                let Some(bytes) = file.bytes(&format!("{name}.snapshot"), limits::SNAPSHOT)? else {
                    return Ok(None);
                };
                Snapshot::from_bytes(&bytes, &self.label(name)).map(Some)
            }
        }
    }

    /// How it was recorded, as its `case.json` says; nothing where there is none.
    ///
    /// # Errors
    /// It cannot be read, or is no JSON.
    pub fn case(&self) -> Result<serde_json::Value, InputError> {
        let Some(text) = self.file(CASE)? else { return Ok(serde_json::Value::Null) };
        serde_json::from_slice(&text)
            .map_err(|error| InputError::line(self.label(CASE), error.line(), error.to_string()))
    }

    /// The trace.
    ///
    /// # Errors
    /// There is none, or it cannot be opened.
    pub fn trace(&self) -> Result<Source, InputError> {
        for name in TRACES {
            match self {
                Self::Folder(folder) if folder.join(name).is_file() => {
                    return highorder_kernelfs::open(folder.join(name));
                }
                Self::Folder(_) => {}
                Self::File(file) => {
                    if let Some(section) = file.section(name)? {
                        return Source::new(&self.label(name), section);
                    }
                }
            }
        }
        Err(InputError::file(self.path(), "no trace.txt (plain, .gz or .zst) here"))
    }

    /// Another file, unpacked; `None` where there is none.
    ///
    /// # Errors
    /// It cannot be read or is damaged.
    pub fn file(&self, name: &str) -> Result<Option<Vec<u8>>, InputError> {
        for suffix in SUFFIXES {
            let name = format!("{name}{suffix}");
            match self {
                Self::Folder(folder) if folder.join(&name).is_file() => {
                    return read_bytes(folder.join(&name)).map(Some);
                }
                Self::Folder(_) => {}
                Self::File(file) => {
                    if let Some(section) = file.section(&name)? {
                        return Source::new(&self.label(&name), section)?.read_table().map(Some);
                    }
                }
            }
        }
        Ok(None)
    }
}

/// A recorded state in a folder: a folder itself, or a snapshot file of that name.
fn state_in(folder: &Path, name: &str) -> Option<PathBuf> {
    [name.to_owned(), format!("{name}.snapshot"), format!("{name}.hos")]
        .map(|name| folder.join(name))
        .into_iter()
        .find(|path| path.exists())
}

/// Opens what has events in it: a recording's trace, or a trace by itself, plain or compressed.
///
/// # Errors
/// There is no trace, it is a snapshot, or it cannot be opened.
pub fn open_trace(path: &Path) -> Result<Source, InputError> {
    if container::begins(path) {
        let message =
            "a snapshot, which has no events, expected a trace, or a recording's file or folder";
        return Err(InputError::file(path, message));
    }
    match path.is_dir() || RecordingFile::begins(path) {
        true => RecordingFiles::open(path)?.trace(),
        false => highorder_kernelfs::open(path),
    }
}

/// The recording file and the name of a state in it, where `path` is `FILE/NAME`.
pub(crate) fn state_of_file(path: &Path) -> Option<(&Path, &str)> {
    let (file, name) = (path.parent()?, path.file_name()?.to_str()?);
    let is_state = matches!(name, STATE_BEFORE | STATE_AFTER);
    (is_state && RecordingFile::begins(file)).then_some((file, name))
}

/// A recording file: which sections there are, and where.
#[derive(Clone, Debug)]
pub struct RecordingFile {
    path: PathBuf,
    sections: BTreeMap<String, Range<u64>>,
}

impl RecordingFile {
    /// Whether a file's first bytes are those of a recording file.
    #[must_use]
    pub fn begins(path: &Path) -> bool {
        let mut first = [0; MAGIC.len()];
        path.is_file()
            && File::open(path).and_then(|mut file| file.read_exact(&mut first)).is_ok()
            && first == MAGIC
    }

    /// Reads the list of sections, and checks that no byte of the file has changed since it was written.
    ///
    /// # Errors
    /// It cannot be read, or is none, cut short, damaged or newer than this program.
    pub fn open(path: &Path) -> Result<Self, InputError> {
        let mut file =
            highorder_files::open(path).map_err(|error| InputError::read(path, error))?;
        let bad = |found: String| InputError::file(path, found);
        let io = |e: io::Error| InputError::io(path, "read", &e);
        let mut header = [0; HEADER_LEN as usize];
        let len = read_all(&mut file, &mut header).map_err(io)?;
        if len == 0 {
            return Err(bad("an empty file, expected a recording".to_owned()));
        }
        if !header[..len].starts_with(&MAGIC) {
            let found = &header[..len.min(MAGIC.len())];
            return Err(bad(format!(
                "not a recording file: begins with {found:02x?}, expected {MAGIC:02x?}"
            )));
        }
        if len < header.len() {
            return Err(bad(format!("truncated: found {len} bytes, expected a header")));
        }
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("4 bytes"));
        let (version, nr_sections) = (word(8), word(12));
        let expected_len = u64::from_le_bytes(header[16..24].try_into().expect("8 bytes"));
        let file_len = file.metadata().map_err(io)?.len();
        if file_len > limits::RECORDING.most {
            let (most, of) = (limits::RECORDING.told(), limits::RECORDING.of);
            return Err(bad(format!(
                "{file_len} bytes, expected at most {most}, the limit of {of}"
            )));
        }
        if file_len < expected_len {
            return Err(bad(format!("truncated: found {file_len} bytes, expected {expected_len}")));
        }
        let is_whole = file_len == expected_len && expected_len >= HEADER_LEN + CHECKSUM_LEN;
        if !is_whole || !is_unaltered(&mut file, expected_len - CHECKSUM_LEN).map_err(io)? {
            return Err(bad(
                "damaged: the checksum does not match, expected an unaltered file".to_owned()
            ));
        }
        if version != FORMAT_VERSION {
            return Err(bad(format!(
                "format version {version}, expected {FORMAT_VERSION}: written by a newer highorder"
            )));
        }
        let sections = sections(&mut file, nr_sections, expected_len - CHECKSUM_LEN);
        Ok(Self { path: path.to_owned(), sections: sections.map_err(bad)? })
    }

    /// The names of its sections, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sections.keys().map(String::as_str)
    }

    /// A section as it lies in the file; `None` where there is none of this name.
    ///
    /// # Errors
    /// The file cannot be read any more.
    pub fn section(&self, name: &str) -> Result<Option<impl Read + Send + 'static>, InputError> {
        let Some(range) = self.sections.get(name) else { return Ok(None) };
        let io = |e: io::Error| InputError::io(&self.path, "read", &e);
        let mut file = File::open(&self.path).map_err(io)?;
        file.seek(SeekFrom::Start(range.start)).map_err(io)?;
        Ok(Some(file.take(range.end - range.start)))
    }

    fn bytes(&self, name: &str, limit: Limit) -> Result<Option<Vec<u8>>, InputError> {
        let Some(section) = self.section(name)? else { return Ok(None) };
        let mut bytes = Vec::new();
        let read = section.take(limit.most + 1).read_to_end(&mut bytes);
        read.map_err(|e| InputError::io(&self.path, "read", &e))?;
        if bytes.len() as u64 > limit.most {
            let message = format!(
                "section `{name}` has more than {}, the limit of {}",
                limit.told(),
                limit.of
            );
            return Err(InputError::file(&self.path, message));
        }
        Ok(Some(bytes))
    }
}

/// Reads until the buffer is full or the file ends.
fn read_all(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match file.read(&mut buffer[len..])? {
            0 => break,
            nr => len += nr,
        }
    }
    Ok(len)
}

/// Whether the checksum behind the first `len` bytes is theirs.
fn is_unaltered(file: &mut File, len: u64) -> io::Result<bool> {
    file.seek(SeekFrom::Start(0))?;
    let mut hash = Xxh3::new();
    let mut content = file.take(len);
    let mut chunk = vec![0; 1 << 18];
    loop {
        match content.read(&mut chunk)? {
            0 => break,
            nr => hash.update(&chunk[..nr]),
        }
    }
    let mut checksum = [0; CHECKSUM_LEN as usize];
    file.read_exact(&mut checksum)?;
    Ok(checksum == hash.digest128().to_le_bytes())
}

/// The sections between the header and `end`.
fn sections(
    file: &mut File,
    nr_sections: u32,
    end: u64,
) -> Result<BTreeMap<String, Range<u64>>, String> {
    if nr_sections > SECTIONS_MAX {
        return Err(format!("{nr_sections} sections, expected at most {SECTIONS_MAX}"));
    }
    let io = |e: io::Error| format!("cannot read: {e}");
    let mut sections = BTreeMap::new();
    let mut at = HEADER_LEN;
    let take = |file: &mut File, at: &mut u64, buffer: &mut [u8]| -> Result<(), String> {
        let len = buffer.len() as u64;
        if end - *at < len {
            return Err(format!("a section needs {len} bytes, {} are left", end - *at));
        }
        file.seek(SeekFrom::Start(*at)).and_then(|_| file.read_exact(buffer)).map_err(io)?;
        *at += len;
        Ok(())
    };
    for _ in 0..nr_sections {
        let (mut name_len, mut content_len) = ([0; 2], [0; 8]);
        take(file, &mut at, &mut name_len)?;
        let mut name = vec![0; usize::from(u16::from_le_bytes(name_len))];
        take(file, &mut at, &mut name)?;
        take(file, &mut at, &mut content_len)?;
        let name =
            String::from_utf8(name).map_err(|e| format!("a section's name is not text: {e}"))?;
        let content_len = u64::from_le_bytes(content_len);
        if content_len > end - at {
            let left = end - at;
            return Err(format!("section `{name}` has {content_len} bytes, {left} are left"));
        }
        if sections.insert(name.clone(), at..at + content_len).is_some() {
            return Err(format!("found section `{name}` twice"));
        }
        at += content_len;
    }
    match end - at {
        0 => Ok(sections),
        more => Err(format!("{more} bytes after the last section, expected none")),
    }
}

/// What goes into a recording file.
#[derive(Debug)]
pub enum Content {
    /// Bytes in memory.
    Bytes(Vec<u8>),
    /// All of a file.
    File(File),
}

impl Content {
    fn len(&self) -> io::Result<u64> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.len() as u64),
            Self::File(file) => Ok(file.metadata()?.len()),
        }
    }
}

/// Writes a recording file and returns its length.
///
/// # Errors
/// It cannot be written.
pub fn write(
    destination: &Destination,
    sections: &mut BTreeMap<String, Content>,
) -> Result<u64, WriteError> {
    let mut written = 0;
    destination.write_with(&mut |out| {
        written = pack(out, sections)?;
        Ok(())
    })?;
    Ok(written)
}

fn pack(out: &mut dyn Write, sections: &mut BTreeMap<String, Content>) -> io::Result<u64> {
    let mut file_len = HEADER_LEN + CHECKSUM_LEN;
    for (name, content) in sections.iter() {
        file_len += 2 + name.len() as u64 + 8 + content.len()?;
    }
    let mut out = Hashing { out, hash: Xxh3::new() };
    out.write_all(&MAGIC)?;
    out.write_all(&FORMAT_VERSION.to_le_bytes())?;
    out.write_all(&(sections.len() as u32).to_le_bytes())?;
    out.write_all(&file_len.to_le_bytes())?;
    for (name, content) in sections {
        let len = content.len()?;
        out.write_all(&(name.len() as u16).to_le_bytes())?;
        out.write_all(name.as_bytes())?;
        out.write_all(&len.to_le_bytes())?;
        match content {
            Content::Bytes(bytes) => out.write_all(bytes)?,
            Content::File(file) => {
                file.seek(SeekFrom::Start(0))?;
                if io::copy(&mut file.take(len), &mut out)? != len {
                    return Err(io::Error::other("a part of the recording became shorter"));
                }
            }
        }
    }
    let checksum = out.hash.digest128().to_le_bytes();
    out.write_all(&checksum)?;
    Ok(file_len)
}

/// Writes on, and keeps the checksum of what it has written.
struct Hashing<'a> {
    out: &'a mut dyn Write,
    hash: Xxh3,
}

impl Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let nr = self.out.write(bytes)?;
        self.hash.update(&bytes[..nr]);
        Ok(nr)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::any_snapshot;
    use highorder_files::Replace;
    use proptest::strategy::{Strategy, ValueTree};
    use proptest::test_runner::TestRunner;
    use std::fs;

    const TRACE: &str = "     kworker/1:1-51      [001] d..2.    13.775943: mm_page_free: page=0x1 pfn=0x1 order=1\n";

    fn sample() -> Snapshot {
        any_snapshot().new_tree(&mut TestRunner::deterministic()).unwrap().current()
    }

    /// A folder with a recording file in it.
    fn written() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.recording");
        let mut trace = tempfile::tempfile().unwrap();
        trace.write_all(&zstd::encode_all(TRACE.as_bytes(), 3).unwrap()).unwrap();
        let mut sections = BTreeMap::from([
            ("state0.snapshot".to_owned(), Content::Bytes(sample().to_bytes("x").unwrap())),
            ("trace.txt.zst".to_owned(), Content::File(trace)),
            ("settings".to_owned(), Content::Bytes(b"/proc/sys/vm/swappiness 60\n".to_vec())),
        ]);
        let destination = Destination::new(&path, Replace::No).unwrap();
        let len = write(&destination, &mut sections).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), len);
        (folder, path)
    }

    #[test]
    fn a_recording_reads_back_from_its_file_as_from_a_folder() {
        let (_folder, path) = written();
        assert!(RecordingFiles::are_at(&path));
        let files = RecordingFiles::open(&path).unwrap();
        assert_eq!(files.state(STATE_BEFORE).unwrap(), Some(sample()));
        assert_eq!(files.state(STATE_AFTER).unwrap(), None);
        assert_eq!(files.file("settings").unwrap().unwrap(), b"/proc/sys/vm/swappiness 60\n");
        assert_eq!(files.file("swaps").unwrap(), None);
        for mut trace in [files.trace().unwrap(), open_trace(&path).unwrap()] {
            let mut text = String::new();
            trace.read_to_string(&mut text).unwrap();
            assert_eq!(text, TRACE);
        }
        assert_eq!(Snapshot::read(path.join("state0")).unwrap(), sample());
    }

    #[test]
    fn a_truncated_or_altered_recording_is_refused() {
        let (_folder, path) = written();
        let whole = fs::read(&path).unwrap();
        let refused = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            RecordingFile::open(&path).unwrap_err().to_string()
        };
        for at in (0..whole.len()).step_by(7) {
            let mut altered = whole.clone();
            altered[at] ^= 1 << (at % 8);
            refused(&altered);
            let told = refused(&whole[..at]);
            assert!(told.contains("truncated") || at < MAGIC.len(), "{at}: {told}");
        }
        refused(&[&whole[..], b"\0"].concat());
        assert!(refused(b"PK\x03\x04").contains("not a recording file"));
    }
}
