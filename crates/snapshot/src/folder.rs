//! The files of a snapshot by name, uncompressed, wherever they came from.

use crate::problems::Problems;
use highorder_files::limits::{self, Limit};
use highorder_files::{Limited, Replace};
use highorder_input::InputError;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

/// The files that hold data rather than the kernel's own text; everything else is kept as text.
pub(crate) const DATA_FILES: [&str; 10] = [
    "freelist.csv",
    "kpageflags.bin",
    "lru.csv",
    "meta.json",
    "pageblock.csv",
    "pagecounts.bin",
    "pcp.csv",
    "pcpmeta.csv",
    "slab.csv",
    "zones.json",
];

/// The file that every recorded state has.
pub(crate) const ZONES: &str = "zones.json";

/// One file of a folder.
pub(crate) struct FolderFile {
    /// What messages call it.
    pub(crate) label: String,
    /// Its uncompressed content.
    pub(crate) bytes: Vec<u8>,
}

/// A recorded folder: a directory, or a container's sections.
pub(crate) struct Folder {
    /// What messages call it.
    pub(crate) label: String,
    /// By name without compression suffix.
    pub(crate) files: BTreeMap<String, FolderFile>,
}

impl Folder {
    pub(crate) fn new(label: impl Into<String>) -> Self {
        Self { label: label.into(), files: BTreeMap::new() }
    }

    /// Adds a file whose label is that of the folder and `name`.
    pub(crate) fn insert(&mut self, name: &str, bytes: Vec<u8>) {
        let label = format!("{}:{name}", self.label);
        self.files.insert(name.to_owned(), FolderFile { label, bytes });
    }

    /// Reads a directory: the data files and every file without a dot in its name, plain, gz or zst.
    pub(crate) fn read_dir(path: &Path, problems: &mut Problems) -> Result<Self, InputError> {
        let mut folder = Self::new(path.display().to_string());
        let entries =
            fs::read_dir(path).map_err(|e| InputError::io(path, "read the directory", &e))?;
        let mut paths = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|e| InputError::io(path, "read the directory", &e))?;
            paths.push(entry.path());
        }
        paths.sort();
        // What has no list of zones is no recorded state: nothing of it is read.
        let names = paths.iter().filter_map(|path| path.file_name()?.to_str());
        if !names.map(split_suffix).any(|(name, _)| name == ZONES) {
            return Ok(folder);
        }
        let mut room = limits::SNAPSHOT_UNPACKED;
        for path in paths.iter().filter(|p| p.is_file()) {
            let Some(file_name) = path.file_name().and_then(|n| n.to_str()) else { continue };
            let (name, suffix) = split_suffix(file_name);
            if !DATA_FILES.contains(&name) && name.contains('.') {
                continue;
            }
            let label = path.display().to_string();
            if let Some(other) = folder.files.get(name) {
                let message = format!("found twice, also as {}; expected one of them", other.label);
                problems.add(&label, message);
                continue;
            }
            match read_file(path, suffix, limit_of(name, room)) {
                Ok(bytes) => {
                    room.most -= bytes.len() as u64;
                    folder.files.insert(name.to_owned(), FolderFile { label, bytes });
                }
                Err(message) => problems.add(&label, message),
            }
        }
        Ok(folder)
    }

    /// Writes a directory as the recordings have it: data files gzipped but JSON, text as it is.
    pub(crate) fn write_dir(&self, path: &Path) -> Result<(), InputError> {
        fs::create_dir_all(path).map_err(|e| InputError::io(path, "create", &e))?;
        for (name, file) in &self.files {
            let packed = DATA_FILES.contains(&name.as_str()) && !name.ends_with(".json");
            let target = path.join(if packed { format!("{name}.gz") } else { name.clone() });
            let bytes = if packed { gzip(&file.bytes) } else { file.bytes.clone() };
            highorder_files::write(target, &bytes, Replace::Yes)?;
        }
        Ok(())
    }
}

/// How much of a file is read, where there is so much room left for all of them.
pub(crate) fn limit_of(name: &str, room: Limit) -> Limit {
    let own = match name {
        _ if name.ends_with(".json") => limits::NOTES,
        _ if DATA_FILES.contains(&name) => limits::SNAPSHOT_UNPACKED,
        _ => limits::TABLE,
    };
    if own.most <= room.most { own } else { room }
}

fn split_suffix(file_name: &str) -> (&str, &str) {
    for suffix in [".gz", ".zst"] {
        if let Some(name) = file_name.strip_suffix(suffix) {
            return (name, suffix);
        }
    }
    (file_name, "")
}

/// Reads a file, unpacked, for which there is so much room left.
fn read_file(path: &Path, suffix: &str, room: Limit) -> Result<Vec<u8>, String> {
    let raw = highorder_files::read(path, room).map_err(|error| error.to_string())?;
    if raw.is_empty() && !suffix.is_empty() {
        return Err(format!("found an empty file, expected {} data", &suffix[1..]));
    }
    let unpacking: io::Result<Box<dyn Read + '_>> = match suffix {
        ".gz" => Ok(Box::new(flate2::read::MultiGzDecoder::new(raw.as_slice()))),
        ".zst" => zstd::Decoder::new(raw.as_slice()).map(|decoder| Box::new(decoder) as _),
        _ => return Ok(raw),
    };
    let mut bytes = Vec::new();
    let read = unpacking.and_then(|reader| Limited::new(reader, room).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(bytes),
        Err(error) if error.kind() == ErrorKind::FileTooLarge => Err(error.to_string()),
        Err(error) => {
            let (packed, len) =
                (&suffix[1..].replace("gz", "gzip").replace("zst", "zstd"), bytes.len());
            Err(format!("not a whole {packed} file: {error} after {len} bytes"))
        }
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).expect("writing to memory does not fail");
    encoder.finish().expect("writing to memory does not fail")
}
