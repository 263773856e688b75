//! What a guest is to do, and how what it did comes back.
//!
//! The job is a file of JSON in the guest's first file system. The answer goes over a serial port: a mark,
//! then files, each as the length of its name (u32), name, length (u64), bytes and their xxh3 (u64); a name
//! of length 0 ends them. Numbers are little endian. A record is sent as the files that a store keeps of it,
//! a machine as its machine file.

use highorder_record::Inputs;
use highorder_workload::{Configured, ParameterError, Value, find};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64;

/// Where the guest finds its job.
pub(crate) const JOB: &str = "/highorder-job.json";
/// Where modules lie, in the order in which they are loaded.
pub(crate) const MODULES: &str = "/highorder-modules";
/// What every line of process 1 on the console begins with; the first one tells that the kernel is up.
pub(crate) const TOLD: &str = "highorder: ";
/// The name under which the guest says why there is no record.
pub(crate) const ERROR: &str = "error";
/// The name under which it sends the machine file.
pub(crate) const MACHINE: &str = "machine.toml";

const MARK: &[u8; 12] = b"highorder 1\n";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Job {
    pub(crate) task: Task,
    pub(crate) knobs: BTreeMap<String, String>,
    pub(crate) swap: Vec<GuestDisk>,
    /// The disk with the file system for the workload's files.
    pub(crate) files: FileDisk,
}

/// Where a guest's files lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum FileDisk {
    /// On this disk, which has an ext4 on it.
    Ext4(GuestDisk),
    /// Nowhere, and why.
    Missing(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum Task {
    /// Run a workload and send its record.
    Run(Box<Work>),
    /// Measure what primitive work costs and send the machine file.
    Calibrate(Shape),
    /// Do what the guest's program calls by this name, and send what comes of it.
    Own(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Work {
    pub(crate) inputs: Inputs,
    pub(crate) workload: String,
    pub(crate) values: BTreeMap<String, String>,
    pub(crate) seed: u64,
    pub(crate) sample_interval_ns: u64,
    /// What the record is to say of where it ran.
    pub(crate) note: String,
}

/// What the machine file is to say that the guest cannot know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shape {
    /// Its name.
    pub(crate) name: String,
    /// What the guest was given on each node: of it, the kernel sees what the firmware leaves.
    pub(crate) node_mib: Vec<u64>,
    /// What every source is to say of where it was measured.
    pub(crate) whence: String,
}

/// A disk of a guest's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GuestDisk {
    /// As in `vda`.
    pub(crate) name: String,
    pub(crate) says_rotational: bool,
}

impl Work {
    /// The workload, from the texts of its values.
    pub(crate) fn configured(&self) -> Result<Configured, ParameterError> {
        let values = self.values.iter().map(|(name, text)| (name.clone(), value(text)));
        find(&self.workload, &values.collect())
    }
}

/// The value that a configured workload prints as this text.
fn value(text: &str) -> Value {
    if let Ok(integer) = text.parse() {
        return Value::Integer(integer);
    }
    match text.parse::<f64>() {
        Ok(float) if text.contains('.') => Value::Float(float),
        _ => Value::Text(text.to_owned()),
    }
}

/// Files by name, in the order in which they are sent.
pub type Files = Vec<(String, Vec<u8>)>;

/// Packs files for the way out.
pub(crate) fn pack(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut packed = MARK.to_vec();
    for (name, bytes) in files {
        assert!(!name.is_empty(), "a file without a name");
        packed.extend_from_slice(&(name.len() as u32).to_le_bytes());
        packed.extend_from_slice(name.as_bytes());
        packed.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        packed.extend_from_slice(bytes);
        packed.extend_from_slice(&xxh3_64(bytes).to_le_bytes());
    }
    packed.extend_from_slice(&0_u32.to_le_bytes());
    packed
}

/// What came over the port.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// All of it.
    Whole(Files),
    /// Not yet all.
    Part,
    /// Something else.
    Damaged(String),
}

pub(crate) fn unpack(mut bytes: &[u8]) -> Received {
    let mark = bytes.split_off(..MARK.len().min(bytes.len())).unwrap_or_default();
    if !MARK.starts_with(mark) {
        return Received::Damaged(format!("{:?}", String::from_utf8_lossy(mark)));
    }
    let mut files = Vec::new();
    let mut next = || -> Option<Result<bool, String>> {
        let len = u32::from_le_bytes(*bytes.split_off(..4)?.first_chunk()?);
        if len == 0 {
            return Some(Ok(false));
        }
        let name = String::from_utf8_lossy(bytes.split_off(..len as usize)?).into_owned();
        let len = u64::from_le_bytes(*bytes.split_off(..8)?.first_chunk()?);
        let content = bytes.split_off(..usize::try_from(len).ok()?)?.to_vec();
        let sum = u64::from_le_bytes(*bytes.split_off(..8)?.first_chunk()?);
        if sum != xxh3_64(&content) {
            return Some(Err(format!("a checksum of {name} that is not its own")));
        }
        files.push((name, content));
        Some(Ok(true))
    };
    loop {
        match next() {
            None => return Received::Part,
            Some(Err(found)) => return Received::Damaged(found),
            Some(Ok(true)) => {}
            Some(Ok(false)) => return Received::Whole(files),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_unpacks_and_nothing_less() {
        let files = vec![("a".to_owned(), vec![1, 2, 3]), ("empty".to_owned(), Vec::new())];
        let packed = pack(&files);
        for len in 0..packed.len() {
            assert_eq!(unpack(&packed[..len]), Received::Part, "{len} bytes");
        }
        assert_eq!(unpack(&packed), Received::Whole(files));
        let content = packed.windows(3).position(|w| w == [1, 2, 3]).unwrap();
        for at in [0, content] {
            let mut damaged = packed.clone();
            damaged[at] ^= 4;
            assert!(matches!(unpack(&damaged), Received::Damaged(_)), "byte {at}");
        }
    }

    #[test]
    fn a_workload_is_found_again_from_the_texts_of_its_values() {
        for name in highorder_workload::names() {
            let mut given = BTreeMap::new();
            for size in [None, Some("96 MiB")] {
                if let (Some(size), Ok(_)) = (size, find(name, &given)) {
                    given.insert("memory".to_owned(), Value::Text(size.to_owned()));
                }
                let Ok(configured) = find(name, &given) else { continue };
                let work = Work {
                    inputs: Inputs::default(),
                    workload: (*name).to_owned(),
                    values: configured.values(),
                    seed: 0,
                    sample_interval_ns: 0,
                    note: String::new(),
                };
                assert_eq!(work.configured().unwrap().values(), configured.values());
            }
        }
    }
}
