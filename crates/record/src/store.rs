//! The result store: a folder with a sub-folder for each record.
//!
//! ```text
//! store/
//!   .lock                                   held while somebody writes
//!   usemem-anon.linux-4.4.threads-48.seed-7-0123...cdef/
//!     record.json                           inputs, durations, counters, zones, metrics
//!     samples.parquet                       identity, metric, sample
//!     histograms.parquet                    identity, class, low_ns, high_ns, count
//!     timeline.parquet                      identity, time_ns, a column for each counter
//!     memory-held.svg                       a picture, if the record has one of that name
//! ```
//!
//! A record is a folder that was renamed into place, so it is there whole or not at all: whatever kills
//! a writer, at whatever moment, leaves at most a folder whose name begins with `.part-`, which readers
//! ignore and the next [`Store::open`] removes. Any number of processes may read and write at once.
//! Equal records give equal bytes: nothing in a file tells when, where or by whom it was written.
//! `record.json` holds the checksums of the other files and one of itself; what does not fit them is refused.
//! Reading needs no right to write: a store may lie on a medium that can only be read, or be somebody else's.
//!
//! `identity` stands in every table, so that tables of many records can be read as one:
//! `SELECT * FROM read_parquet('store/*/samples.parquet')`.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use highorder_files::ReadError;
use highorder_files::limits::{self, Limit};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::latencies::{Bucket, Latencies};
use crate::record::{Durations, Identity, Inputs, Metric, Record, State, is_picture_name};
use crate::stats::{Better, Sorted, Statistic};
use crate::tables::{Cells, Columns};
use crate::timeline::{Timeline, TimelineColumn, TimelineValues};

const FORMAT: &str = "highorder-record 2";
/// Before it had a checksum of its own.
const FORMAT_UNCHECKED: &str = "highorder-record 1";
const RECORD: &str = "record.json";
const SAMPLES: &str = "samples.parquet";
const HISTOGRAMS: &str = "histograms.parquet";
const TIMELINE: &str = "timeline.parquet";
/// What follows a picture's name in its file's.
const PICTURE: &str = ".svg";
const LOCK: &str = ".lock";
const PART: &str = ".part-";
/// How often it is tried to get the lock, and the pause between two tries: five seconds in all, where others hold it
/// for as long as it takes to remove some folders.
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(100);

/// The lock of a store, as long as it lives: a process that was forked meanwhile has the file open as well, and would
/// hold the lock for longer.
struct Held(File);

impl Drop for Held {
    fn drop(&mut self) {
        // One that was not held, or that a kernel does not have, is as free as it was.
        let _ = self.0.unlock();
    }
}

/// A folder of records.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

/// One record of a store, not yet read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The name of its folder: what a person would call it, and the identity.
    pub name: String,
    /// The hash of what determined it.
    pub identity: Identity,
    /// Its folder.
    pub path: PathBuf,
}

/// What [`Store::put`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// The record is new.
    Added,
    /// The store has it already, with the same bytes.
    AlreadyThere,
}

/// Why a store could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The operating system said no.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A file is not what a store holds.
    #[error("{}: {found}, expected {expected}", path.display())]
    Bad {
        /// The file.
        path: PathBuf,
        /// What it has.
        found: String,
        /// What it should have.
        expected: String,
    },
    /// Another process keeps everybody from writing.
    #[error(
        "{}: locked by {holder}, expected that nobody holds it for longer than it takes to remove what killed writers \
         left; wait for that process or end it, then run again: what is there already is not run again",
        path.display()
    )]
    Locked {
        /// The file that is locked.
        path: PathBuf,
        /// Whose it is.
        holder: String,
    },
    /// A record that is not whole was to be written.
    #[error("record {identity}: {}", problems.join("; "))]
    Unfit {
        /// Which.
        identity: Identity,
        /// What is wrong with it.
        problems: Vec<String>,
    },
    /// Two runs with equal inputs had different outcomes.
    #[error(
        "{}: holds another outcome of the same inputs, expected the same bytes; either a run is not \
         determined by its inputs, or the program changed and its version did not",
        path.display()
    )]
    Differs {
        /// The file that differs.
        path: PathBuf,
    },
}

impl StoreError {
    fn bad(path: &Path, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::Bad { path: path.to_owned(), found: found.into(), expected: expected.into() }
    }
}

/// Attaches the path to an I/O error.
fn at(path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { path, source }
}

impl Store {
    /// A store that is read and not written: it is left as it is.
    #[must_use]
    pub fn to_read(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Opens a store, or makes one, and removes what killed writers left.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the folder cannot be made, locked or listed.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let folder = folder.into();
        if folder.is_file() {
            return Err(at(&folder)(io::Error::other("a file, expected a store or a free name")));
        }
        let told = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot make this store: {error}"))
        };
        fs::create_dir_all(&folder).map_err(told).map_err(at(&folder))?;
        let store = Self { folder };
        store.remove_parts()?;
        Ok(store)
    }

    /// Returns the store's folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a record, unless the store has it.
    ///
    /// # Errors
    /// [`StoreError::Unfit`] if the record is not whole; [`StoreError::Differs`] if the store has
    /// another outcome of the same inputs, which stays; [`StoreError::Io`].
    pub fn put(&self, record: &Record) -> Result<Put, StoreError> {
        let identity = record.identity();
        let problems = record.problems();
        if !problems.is_empty() {
            return Err(StoreError::Unfit { identity, problems });
        }
        let files = to_files(record)
            .map_err(|error| StoreError::Unfit { identity, problems: vec![error.to_string()] })?;
        let path = self.path_of(record);
        if path.exists() {
            return same_bytes(&path, &files);
        }
        // As long as the lock is held, nobody takes the part for a dead writer's.
        let _lock = self.lock_shared()?;
        let part = self.make_part()?;
        let done = write_files(&part, &files).and_then(|()| match fs::rename(&part, &path) {
            Ok(()) => sync(&self.folder).map(|()| Put::Added),
            // Somebody else was faster: a folder that holds something is never replaced.
            Err(_) if path.exists() => same_bytes(&path, &files),
            Err(error) => Err(at(&path)(error)),
        });
        if !matches!(done, Ok(Put::Added)) {
            // What cannot be removed now is removed when the store is opened next.
            let _ = fs::remove_dir_all(&part);
        }
        done
    }

    /// Reads a record; `None` if the store does not have it.
    ///
    /// # Errors
    /// [`StoreError::Bad`] if a file was damaged or changed; [`StoreError::Io`].
    pub fn get(&self, identity: Identity) -> Result<Option<Record>, StoreError> {
        match self.list()?.into_iter().find(|entry| entry.identity == identity) {
            Some(entry) => self.read(&entry).map(Some),
            None => Ok(None),
        }
    }

    /// Returns whether the store has the outcome of these inputs.
    #[must_use]
    pub fn has(&self, inputs: &Inputs) -> bool {
        self.folder.join(folder_name(inputs)).join(RECORD).is_file()
    }

    /// A record of these inputs that another build of the program left, if there is one; the first by name of several.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn of_another_program(&self, inputs: &Inputs) -> Result<Option<Record>, StoreError> {
        let name = inputs.readable_name();
        for entry in self.list()? {
            if entry.name.rsplit_once('-').is_some_and(|(readable, _)| readable == name) {
                let record = self.read(&entry)?;
                if record.inputs.is_same_but_for_program(inputs) {
                    return Ok(Some(record));
                }
            }
        }
        Ok(None)
    }

    /// Reads a record that [`list`](Self::list) or [`find`](Self::find) named.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn read(&self, entry: &Entry) -> Result<Record, StoreError> {
        read_record(&entry.path)
    }

    /// Writes down in which column of its experiment the outcome of these inputs stands, if the store has it and
    /// says otherwise: an experiment's variants may be put in another order, which makes none of its runs another
    /// one. Returns whether something was written.
    ///
    /// # Errors
    /// As [`get`](Self::get), and [`StoreError::Io`] if it cannot be written.
    pub fn set_column(&self, inputs: &Inputs, column: u32) -> Result<bool, StoreError> {
        /// As much of `record.json` as it takes to see that nothing is to be done.
        #[derive(Deserialize)]
        struct Head {
            column: Option<u32>,
        }
        let folder = self.folder.join(folder_name(inputs));
        let path = folder.join(RECORD);
        let text = match highorder_files::read(&path, limits::RECORD) {
            Err(error) if error.is_not_found() => return Ok(false),
            text => text.map_err(|error| unread(&path, error))?,
        };
        if serde_json::from_slice::<Head>(&text).is_ok_and(|head| head.column == Some(column)) {
            return Ok(false);
        }
        // The other files stay as they are, and so do their checksums: another build may have written them in other bytes.
        let document = Document { column: Some(column), ..read_document(&path, &text)? };
        let json = document.to_json().map_err(|error| StoreError::Unfit {
            identity: inputs.identity(),
            problems: vec![error.to_string()],
        })?;
        let _lock = self.lock_shared()?;
        let part = self.make_part()?;
        let new = part.join(RECORD);
        let written = write_files(&part, &[(RECORD.to_owned(), json)])
            .and_then(|()| fs::rename(&new, &path).map_err(at(&path)))
            .and_then(|()| sync(&folder));
        // What cannot be removed now is removed when the store is opened next.
        let _ = fs::remove_dir_all(&part);
        written.map(|()| true)
    }

    /// Lists the records by name.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the folder cannot be listed.
    pub fn list(&self) -> Result<Vec<Entry>, StoreError> {
        let mut entries = Vec::new();
        for item in fs::read_dir(&self.folder).map_err(at(&self.folder))? {
            let item = item.map_err(at(&self.folder))?;
            let Ok(name) = item.file_name().into_string() else { continue };
            if name.starts_with('.') {
                continue;
            }
            let identity = name.rsplit_once('-').and_then(|(_, hash)| hash.parse().ok());
            if let Some(identity) = identity {
                entries.push(Entry { name, identity, path: item.path() });
            }
        }
        entries.sort();
        Ok(entries)
    }

    /// Lists the records that a pattern names: the beginning of an identity (4 digits or more), or a
    /// folder's name or readable part of it, in which `*` stands for any text and `?` for any character.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the folder cannot be listed.
    pub fn find(&self, pattern: &str) -> Result<Vec<Entry>, StoreError> {
        let mut entries = self.list()?;
        let is_hash = pattern.len() >= 4 && pattern.bytes().all(|b| b.is_ascii_hexdigit());
        entries.retain(|entry| {
            let readable = entry.name.rsplit_once('-').map_or("", |(readable, _)| readable);
            matches(pattern, readable)
                || matches(pattern, &entry.name)
                || (is_hash && entry.identity.to_string().starts_with(pattern))
        });
        Ok(entries)
    }

    /// Removes a record; returns whether the store had it.
    ///
    /// # Errors
    /// [`StoreError::Io`] if it cannot be removed.
    pub fn remove(&self, identity: Identity) -> Result<bool, StoreError> {
        let Some(entry) = self.list()?.into_iter().find(|entry| entry.identity == identity) else {
            return Ok(false);
        };
        let _lock = self.lock_shared()?;
        // Out of sight at once, then gone: half a record is never under its name.
        let part = self.make_part()?;
        let gone = part.join("removed");
        fs::rename(&entry.path, &gone).map_err(at(&entry.path))?;
        fs::remove_dir_all(&part).map_err(at(&part))?;
        Ok(true)
    }

    fn path_of(&self, record: &Record) -> PathBuf {
        self.folder.join(folder_name(&record.inputs))
    }

    /// Keeps others from removing what is being written. A kernel without locks (CONFIG_FILE_LOCKING) keeps nobody, and
    /// nobody removes anything there.
    fn lock_shared(&self) -> Result<Held, StoreError> {
        let lock = self.lock_file()?;
        let path = self.folder.join(LOCK);
        for _ in 0..LOCK_TRIES {
            match lock.try_lock_shared() {
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
                Err(TryLockError::Error(error)) if error.kind() != io::ErrorKind::Unsupported => {
                    return Err(at(&path)(error));
                }
                _ => return Ok(Held(lock)),
            }
        }
        let holder = highorder_files::lock_holder(&lock);
        Err(StoreError::Locked { path, holder })
    }

    fn lock_file(&self) -> Result<File, StoreError> {
        let path = self.folder.join(LOCK);
        File::options().create(true).append(true).open(&path).map_err(at(&path))
    }

    /// Makes an empty folder to write into, under a name that nobody else uses.
    fn make_part(&self) -> Result<PathBuf, StoreError> {
        let process = std::process::id();
        let mut number = 0_u32;
        loop {
            let part = self.folder.join(format!("{PART}{process}-{number}"));
            match fs::create_dir(&part) {
                Ok(()) => return Ok(part),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(at(&part)(error)),
            }
        }
    }

    /// Removes parts, if nobody writes: then their writers are dead.
    fn remove_parts(&self) -> Result<(), StoreError> {
        let Held(lock) = &Held(self.lock_file()?);
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(()),
            // A kernel without locks (CONFIG_FILE_LOCKING): nobody can say that parts are still in use.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
                return Ok(());
            }
            Err(TryLockError::Error(error)) => return Err(at(&self.folder.join(LOCK))(error)),
        }
        for item in fs::read_dir(&self.folder).map_err(at(&self.folder))? {
            let item = item.map_err(at(&self.folder))?;
            if item.file_name().to_string_lossy().starts_with(PART) {
                fs::remove_dir_all(item.path()).map_err(at(&item.path()))?;
            }
        }
        Ok(())
    }
}

/// Reads one record's folder, of a store or copied out of one.
///
/// # Errors
/// [`StoreError::Bad`] if it is no record, or was damaged or changed; [`StoreError::Io`].
pub fn read_record(folder: &Path) -> Result<Record, StoreError> {
    let path = folder.join(RECORD);
    let document = read_document(&path, &read_part(&path, limits::RECORD)?)?;
    let (mut tables, mut pictures) = (BTreeMap::new(), BTreeMap::new());
    for (name, sum) in &document.files {
        let picture = name.strip_suffix(PICTURE).filter(|picture| is_picture_name(picture));
        if picture.is_none() && ![SAMPLES, HISTOGRAMS, TIMELINE].contains(&name.as_str()) {
            let expected = format!("tables, and pictures NAME{PICTURE}");
            return Err(StoreError::bad(&path, format!("checksum of `{name}`"), expected));
        }
        let path = folder.join(name);
        let bytes = read_part(&path, limits::RECORD_PART)?;
        let found = Checksum::of(&bytes);
        if found != *sum {
            return Err(StoreError::bad(&path, found.to_string(), sum.to_string()));
        }
        if let Some(picture) = picture {
            let text = String::from_utf8(bytes)
                .map_err(|error| StoreError::bad(&path, error.to_string(), "an SVG file's text"))?;
            pictures.insert(picture.to_owned(), text);
            continue;
        }
        let columns = Columns::from_parquet(bytes)
            .map_err(|error| StoreError::bad(&path, error.to_string(), "a Parquet table"))?;
        tables.insert(name.as_str(), (path, columns));
    }
    let mut table = |name: &str| {
        tables.remove(name).map(|(path, columns)| Table { path, columns }).ok_or_else(|| {
            StoreError::bad(&path, format!("no checksum of {name}"), "one of each table")
        })
    };
    let (samples, histograms, timeline) = (table(SAMPLES)?, table(HISTOGRAMS)?, table(TIMELINE)?);
    Ok(Record { pictures, ..document.record(samples, histograms, timeline)? })
}

/// Reads a record's document, whose text lies there.
fn read_document(path: &Path, text: &[u8]) -> Result<Document, StoreError> {
    let document: Document = serde_json::from_slice(text)
        .map_err(|error| StoreError::bad(path, error.to_string(), format!("a {FORMAT}")))?;
    check_own_checksum(text, &document)
        .map_err(|(found, expected)| StoreError::bad(path, found, expected))?;
    let identity = document.inputs.identity().to_string();
    if document.identity != identity {
        let found = format!("identity {} beside inputs of identity {identity}", document.identity);
        return Err(StoreError::bad(path, found, "the identity of its inputs"));
    }
    Ok(document)
}

/// The bytes of `record.json` with zeros for its own checksum, and where that stands; none if it has none.
fn without_checksum(text: &[u8]) -> Option<(Vec<u8>, std::ops::Range<usize>)> {
    let key = format!("\"{CHECKSUM_KEY}\": \"");
    let start = memchr::memmem::rfind(text, key.as_bytes())? + key.len();
    let digits = start..start + CHECKSUM_UNKNOWN.len();
    let mut blank = text.to_vec();
    blank.get_mut(digits.clone())?.copy_from_slice(CHECKSUM_UNKNOWN.as_bytes());
    Some((blank, digits))
}

/// Refuses a document that is not as it was written: what was found, and what was expected.
fn check_own_checksum(text: &[u8], document: &Document) -> Result<(), (String, String)> {
    let Document { format, checksum, .. } = document;
    match (format.as_str(), checksum) {
        (FORMAT_UNCHECKED, None) => Ok(()),
        (FORMAT, Some(said)) => {
            let blank = without_checksum(text).map(|(blank, _)| blank);
            let found = blank.map(|blank| format!("{:032x}", xxh3_128(&blank)));
            match found.as_ref() == Some(said) {
                true => Ok(()),
                false => {
                    let expected = "the one that it says: it was damaged or edited";
                    Err(("another checksum of the document itself".to_owned(), expected.to_owned()))
                }
            }
        }
        _ => Err((format!("format `{format}`"), format!("`{FORMAT}` and a checksum"))),
    }
}

/// Reads one of a record's files.
fn read_part(path: &Path, limit: Limit) -> Result<Vec<u8>, StoreError> {
    highorder_files::read(path, limit).map_err(|error| unread(path, error))
}

/// Why a part of a record could not be read.
fn unread(path: &Path, error: ReadError) -> StoreError {
    match error {
        ReadError::Unfit { found, expected } => StoreError::bad(path, found, expected),
        error if error.is_not_found() => StoreError::bad(path, "no such file", "a whole record"),
        ReadError::Io(source) => at(path)(source),
    }
}

fn folder_name(inputs: &Inputs) -> String {
    format!("{}-{}", inputs.readable_name(), inputs.identity())
}

fn write_files(folder: &Path, files: &Files) -> Result<(), StoreError> {
    for (name, bytes) in files {
        let path = folder.join(name);
        let mut file = File::create_new(&path).map_err(at(&path))?;
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(at(&path))?;
    }
    sync(folder)
}

/// Waits until a folder's names are on the disk, so that a power cut finds them.
fn sync(folder: &Path) -> Result<(), StoreError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(at(folder))
}

fn same_bytes(folder: &Path, files: &Files) -> Result<Put, StoreError> {
    for (name, bytes) in files {
        let path = folder.join(name);
        match fs::read(&path) {
            Ok(there) if there == *bytes => {}
            // The other outcome may have fewer pictures.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&path)(error)),
            _ => return Err(StoreError::Differs { path }),
        }
    }
    Ok(Put::AlreadyThere)
}

/// Whether a text fits a pattern with `*` and `?`, letter by letter.
fn matches(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    // fits[i]: whether the text so far fits the first i characters of the pattern.
    let mut fits = vec![false; pattern.len() + 1];
    fits[0] = true;
    for i in 0..pattern.len() {
        fits[i + 1] = fits[i] && pattern[i] == '*';
    }
    for c in text.chars() {
        let mut next = vec![false; pattern.len() + 1];
        for (i, &p) in pattern.iter().enumerate() {
            next[i + 1] = match p {
                '*' => fits[i + 1] || next[i],
                '?' => fits[i],
                _ => fits[i] && p == c,
            };
        }
        fits = next;
    }
    fits[pattern.len()]
}

/// `record.json`. What is said of its keys is what docs/record.md says of them.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    /// The format's name and version.
    format: String,
    /// The hash of `inputs`, as in each table.
    identity: String,
    /// Everything that determined the run.
    inputs: Inputs,
    /// Which column of its experiment it stands in, from 0; left out where nobody knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    column: Option<u32>,
    /// Bytes of a base page.
    page_bytes: u32,
    /// Where the time went.
    durations: Durations,
    /// The most memory that the workload had resident at once, in KiB (`ru_maxrss`).
    resident_kib_max: Option<u64>,
    /// The workload's own results, in the order it reports them; `samples.parquet` has their samples.
    metrics: Vec<MetricHead>,
    /// By class of latencies, what `histograms.parquet` does not say of it.
    latencies: BTreeMap<String, LatencyHead>,
    /// The columns of `timeline.parquet` with their units.
    timeline: Vec<TimelineHead>,
    /// What a reader should know, a paragraph each.
    notes: Vec<String>,
    /// By name of each other file, what it must be.
    files: BTreeMap<String, Checksum>,
    /// Memory right before the workload.
    before: State,
    /// Memory at the workload's end, while its mappings still were there.
    held: Option<State>,
    /// Memory right after the workload.
    after: State,
    /// The hash of this file with zeros in place of these digits: xxh3 with 128 bits. Records before `highorder-record 2`
    /// have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<String>,
}

/// The last key of `record.json`.
const CHECKSUM_KEY: &str = "checksum";
/// Stands for it while it is computed.
const CHECKSUM_UNKNOWN: &str = "00000000000000000000000000000000";

/// A metric without its samples.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricHead {
    /// The row's name; a thread count follows after `-`, as in `System-48`.
    name: String,
    /// What a sample is counted in, such as `s`, `us` or `%`.
    unit: String,
    /// Which direction is the good one: `lower`, `higher`, `points` (higher, told in percentage points) or `neutral`.
    better: Better,
    /// Digits after the point where it is printed.
    decimals: u8,
    /// The rows that a table shows of it.
    statistics: Vec<Statistic>,
    /// How many samples there are.
    nr_samples: usize,
    /// Their arithmetic mean.
    amean: Option<f64>,
}

/// What a histogram forgets.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LatencyHead {
    /// How many there were.
    count: u64,
    /// Their sum, exactly.
    sum_ns: u64,
    /// The shortest.
    min_ns: Option<u64>,
    /// The longest.
    max_ns: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimelineHead {
    /// The column's name.
    column: String,
    /// Its unit; empty where the name says it.
    unit: String,
}

/// What a file must be.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Checksum {
    /// Its length.
    bytes: u64,
    /// Its hash: xxh3 with 128 bits, in hexadecimal digits.
    xxh3_128: String,
}

impl Checksum {
    fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, xxh3_128: format!("{:032x}", xxh3_128(bytes)) }
    }
}

impl std::fmt::Display for Checksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes with checksum {}", self.bytes, self.xxh3_128)
    }
}

/// Files by name.
type Files = [(String, Vec<u8>)];

/// The record's files; `record.json` last, since it holds the checksums of the others.
fn to_files(record: &Record) -> parquet::errors::Result<Vec<(String, Vec<u8>)>> {
    let mut files = vec![
        (SAMPLES.to_owned(), samples_table(record).to_parquet()?),
        (HISTOGRAMS.to_owned(), histograms_table(record).to_parquet()?),
        (TIMELINE.to_owned(), timeline_table(record).to_parquet()?),
    ];
    let pictures = record.pictures.iter();
    files.extend(
        pictures.map(|(name, text)| (format!("{name}{PICTURE}"), text.clone().into_bytes())),
    );
    let document = Document {
        format: FORMAT.to_owned(),
        identity: record.identity().to_string(),
        inputs: record.inputs.clone(),
        column: record.column,
        page_bytes: record.page_bytes,
        durations: record.durations,
        resident_kib_max: record.resident_kib_max,
        metrics: record.metrics.iter().map(MetricHead::of).collect(),
        latencies: record
            .latencies
            .iter()
            .map(|(class, latencies)| (class.clone(), LatencyHead::of(latencies)))
            .collect(),
        timeline: record
            .timeline
            .columns
            .iter()
            .map(|column| TimelineHead { column: column.name.clone(), unit: column.unit.clone() })
            .collect(),
        notes: record.notes.clone(),
        files: files.iter().map(|(name, bytes)| (name.clone(), Checksum::of(bytes))).collect(),
        before: record.before.clone(),
        held: record.held.clone(),
        after: record.after.clone(),
        checksum: Some(CHECKSUM_UNKNOWN.to_owned()),
    };
    let json = document
        .to_json()
        .map_err(|error| parquet::errors::ParquetError::General(error.to_string()))?;
    files.push((RECORD.to_owned(), json));
    Ok(files)
}

impl MetricHead {
    fn of(metric: &Metric) -> Self {
        Self {
            name: metric.name.clone(),
            unit: metric.unit.clone(),
            better: metric.better,
            decimals: metric.decimals,
            statistics: metric.statistics.clone(),
            nr_samples: metric.samples.len(),
            amean: Sorted::new(metric.samples.iter().copied()).amean(),
        }
    }
}

impl LatencyHead {
    fn of(latencies: &Latencies) -> Self {
        Self {
            count: latencies.count(),
            sum_ns: latencies.sum_ns(),
            min_ns: latencies.min_ns(),
            max_ns: latencies.max_ns(),
        }
    }
}

fn identities(record: &Record, rows: usize) -> (String, Cells) {
    ("identity".to_owned(), Cells::Text(vec![record.identity().to_string(); rows]))
}

fn samples_table(record: &Record) -> Columns {
    let names = record.metrics.iter().flat_map(|m| m.samples.iter().map(|_| m.name.clone()));
    let names: Vec<String> = names.collect();
    let samples = record.metrics.iter().flat_map(|m| m.samples.iter().copied().map(Some));
    Columns(vec![
        identities(record, names.len()),
        ("metric".to_owned(), Cells::Text(names)),
        ("sample".to_owned(), Cells::Reals(samples.collect())),
    ])
}

fn histograms_table(record: &Record) -> Columns {
    let buckets: Vec<(&String, Bucket)> = record
        .latencies
        .iter()
        .flat_map(|(class, latencies)| latencies.buckets().map(move |bucket| (class, bucket)))
        .collect();
    let counts = |of: fn(&Bucket) -> u64| {
        Cells::Counts(buckets.iter().map(|(_, bucket)| Some(of(bucket))).collect())
    };
    Columns(vec![
        identities(record, buckets.len()),
        (
            "class".to_owned(),
            Cells::Text(buckets.iter().map(|(class, _)| (*class).clone()).collect()),
        ),
        ("low_ns".to_owned(), counts(|bucket| bucket.low_ns)),
        ("high_ns".to_owned(), counts(|bucket| bucket.high_ns)),
        ("count".to_owned(), counts(|bucket| bucket.count)),
    ])
}

fn timeline_table(record: &Record) -> Columns {
    let timeline = &record.timeline;
    let times = timeline.time_ns.iter().copied().map(Some).collect();
    let mut columns =
        vec![identities(record, timeline.len()), ("time_ns".to_owned(), Cells::Counts(times))];
    columns.extend(timeline.columns.iter().map(|column| {
        let cells = match &column.values {
            TimelineValues::Counts(values) => Cells::Counts(values.clone()),
            TimelineValues::Reals(values) => Cells::Reals(values.clone()),
        };
        (column.name.clone(), cells)
    }));
    Columns(columns)
}

/// A table that was read, and where.
struct Table {
    path: PathBuf,
    columns: Columns,
}

impl Table {
    fn bad(&self, found: impl Into<String>, expected: impl Into<String>) -> StoreError {
        StoreError::bad(&self.path, found, expected)
    }

    fn take(&mut self, name: &str) -> Result<Cells, StoreError> {
        self.columns
            .take(name)
            .ok_or_else(|| self.bad("no such column", format!("column `{name}`")))
    }

    fn text(&mut self, name: &str) -> Result<Vec<String>, StoreError> {
        match self.take(name)? {
            Cells::Text(cells) => Ok(cells),
            _ => Err(self.bad(format!("column `{name}` of numbers"), "text")),
        }
    }

    fn counts(&mut self, name: &str) -> Result<Vec<u64>, StoreError> {
        let whole = match self.take(name)? {
            Cells::Counts(cells) => cells.into_iter().collect::<Option<Vec<u64>>>(),
            _ => None,
        };
        whole.ok_or_else(|| self.bad(format!("column `{name}` with gaps"), "whole numbers"))
    }

    fn reals(&mut self, name: &str) -> Result<Vec<f64>, StoreError> {
        let whole = match self.take(name)? {
            Cells::Reals(cells) => cells.into_iter().collect::<Option<Vec<f64>>>(),
            _ => None,
        };
        whole.ok_or_else(|| self.bad(format!("column `{name}` with gaps"), "numbers"))
    }
}

impl Document {
    /// The file's bytes, with a checksum of their own if it has one.
    fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        let mut json = serde_json::to_vec_pretty(self)?;
        json.push(b'\n');
        if self.checksum.is_some() {
            let (blank, digits) = without_checksum(&json).expect("a document with a checksum");
            json[digits].copy_from_slice(format!("{:032x}", xxh3_128(&blank)).as_bytes());
        }
        Ok(json)
    }

    fn record(
        self,
        samples: Table,
        histograms: Table,
        timeline: Table,
    ) -> Result<Record, StoreError> {
        Ok(Record {
            metrics: metrics(self.metrics, samples)?,
            latencies: latencies(self.latencies, histograms)?,
            timeline: read_timeline(self.timeline, timeline)?,
            inputs: self.inputs,
            page_bytes: self.page_bytes,
            before: self.before,
            held: self.held,
            after: self.after,
            durations: self.durations,
            resident_kib_max: self.resident_kib_max,
            notes: self.notes,
            pictures: BTreeMap::new(),
            column: self.column,
        })
    }
}

fn metrics(heads: Vec<MetricHead>, mut table: Table) -> Result<Vec<Metric>, StoreError> {
    let (names, samples) = (table.text("metric")?, table.reals("sample")?);
    let mut rows = names.iter().zip(samples).peekable();
    let mut metrics = Vec::new();
    for head in heads {
        let mut taken = Vec::new();
        while let Some((_, sample)) = rows.next_if(|(name, _)| **name == head.name) {
            taken.push(sample);
        }
        if taken.len() != head.nr_samples {
            let found = format!("{} samples of `{}`", taken.len(), head.name);
            return Err(table.bad(found, head.nr_samples.to_string()));
        }
        metrics.push(Metric {
            name: head.name,
            unit: head.unit,
            better: head.better,
            decimals: head.decimals,
            statistics: head.statistics,
            samples: taken,
        });
    }
    match rows.next() {
        Some((name, _)) => Err(table.bad(format!("samples of `{name}`"), "no more samples")),
        None => Ok(metrics),
    }
}

fn latencies(
    heads: BTreeMap<String, LatencyHead>,
    mut table: Table,
) -> Result<BTreeMap<String, Latencies>, StoreError> {
    let classes = table.text("class")?;
    let (lows, highs, counts) =
        (table.counts("low_ns")?, table.counts("high_ns")?, table.counts("count")?);
    let mut buckets: BTreeMap<&str, Vec<Bucket>> = BTreeMap::new();
    for (((class, low_ns), high_ns), count) in classes.iter().zip(lows).zip(highs).zip(counts) {
        buckets.entry(class).or_default().push(Bucket { low_ns, high_ns, count });
    }
    let mut all = BTreeMap::new();
    for (class, head) in heads {
        let buckets = buckets.remove(class.as_str()).unwrap_or_default();
        let (least, most) = (head.min_ns.unwrap_or(0), head.max_ns.unwrap_or(u64::MAX));
        if least > most {
            let found = format!("a shortest latency of {least} ns in class `{class}`");
            return Err(table.bad(found, format!("at most the longest, {most}")));
        }
        let latencies = Latencies::from_parts(buckets, head.sum_ns, least, most);
        if latencies.count() != head.count {
            let found = format!("{} latencies of class `{class}`", latencies.count());
            return Err(table.bad(found, head.count.to_string()));
        }
        all.insert(class, latencies);
    }
    match buckets.keys().next() {
        Some(class) => Err(table.bad(format!("latencies of class `{class}`"), "no such class")),
        None => Ok(all),
    }
}

fn read_timeline(heads: Vec<TimelineHead>, mut table: Table) -> Result<Timeline, StoreError> {
    let mut timeline = Timeline { time_ns: table.counts("time_ns")?, columns: Vec::new() };
    for head in heads {
        let values = match table.take(&head.column)? {
            Cells::Counts(values) => TimelineValues::Counts(values),
            Cells::Reals(values) => TimelineValues::Reals(values),
            Cells::Text(_) => {
                return Err(table.bad(format!("column `{}` of text", head.column), "numbers"));
            }
        };
        timeline.columns.push(TimelineColumn { name: head.column, unit: head.unit, values });
    }
    match timeline.problems().into_iter().next() {
        Some(problem) => Err(table.bad(problem, "a timeline")),
        None => Ok(timeline),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::basic::Compression;
    use parquet::file::properties::WriterProperties;

    use super::*;

    #[test]
    fn a_record_whose_tables_another_encoder_made_changes_its_column_and_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let mut record = Record::new(Inputs::default());
        record.metrics.push(
            Metric::new("mmap", "ms", Better::Lower)
                .with_samples((0..50).map(|i| f64::from(i * i) / 3.0)),
        );
        store.put(&record).unwrap();
        let path = store.path_of(&record);
        let samples = samples_table(&record);
        let properties =
            WriterProperties::builder().set_compression(Compression::UNCOMPRESSED).build();
        let table = samples.encoded(Arc::new(properties)).unwrap();
        assert_ne!(table, samples.to_parquet().unwrap());
        let text = fs::read(path.join(RECORD)).unwrap();
        let mut document = read_document(&path.join(RECORD), &text).unwrap();
        document.files.insert(SAMPLES.to_owned(), Checksum::of(&table));
        fs::write(path.join(SAMPLES), &table).unwrap();
        fs::write(path.join(RECORD), document.to_json().unwrap()).unwrap();
        assert_eq!(read_record(&path).unwrap(), record);
        assert!(store.set_column(&record.inputs, 3).unwrap());
        record.column = Some(3);
        assert_eq!(read_record(&path).unwrap(), record);
        assert_eq!(fs::read(path.join(SAMPLES)).unwrap(), table);
    }

    #[test]
    fn a_pattern_is_a_name_with_stars() {
        for (pattern, text) in [
            ("", ""),
            ("*", ""),
            ("*", "usemem"),
            ("usemem*seed-?", "usemem.linux-4.4.seed-7"),
            ("*4.4*", "usemem.linux-4.4.seed-7"),
            ("a*a*a", "aaa"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("", "a"), ("usemem", "usemem2"), ("?", ""), ("a*a*a", "aa")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
