//! A history of the machine in a folder.
//!
//! ```text
//! before/ after/    vmstat, meminfo, zoneinfo, buddyinfo at the first and at the last sample
//! timeline          `T SECONDS`, counters, and lines of buddyinfo, for each sample
//! state.snapshot    where free blocks are, by counts, at the last sample
//! ```
//!
//! It is the layout in which the runs of real kernels are kept: `compare` reads it as a record, with its timeline, and
//! `map` reads its state. The timeline only grows, so that of a watch that is killed all but its last sample is there;
//! a sample takes some 1.5 KB, a day of one a minute 2 MB.

use crate::sample::Sample;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Files of `/proc` that are kept of the first and the last sample.
const FILES: [&str; 4] = ["vmstat", "meminfo", "zoneinfo", "buddyinfo"];

/// What counters of vmstat begin with that a timeline has: free memory, allocation and its stalls, reclaim, compaction,
/// huge pages, swap, faults.
const KEPT: [&str; 12] = [
    "nr_free_pages",
    "nr_anon_transparent_hugepages",
    "allocstall",
    "compact_",
    "pgscan_",
    "pgsteal_",
    "pgmigrate_",
    "thp_",
    "pswp",
    "pgfault",
    "pgmajfault",
    "oom_kill",
];

/// A history under way.
#[derive(Debug)]
pub struct Series {
    folder: PathBuf,
    timeline: File,
    began_s: f64,
    /// When the last sample was, in milliseconds since the beginning.
    last_ms: Option<u64>,
}

impl Series {
    /// Begins one in a folder, which is made; `seconds` is the time of the first sample.
    ///
    /// # Errors
    /// There is a history already, or the folder cannot be written to.
    pub fn begin(folder: &Path, proc: &Path, seconds: f64) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let path = folder.join("timeline");
        let timeline = OpenOptions::new().create_new(true).append(true).open(path)?;
        capture(proc, &folder.join("before"))?;
        Ok(Self { folder: folder.to_owned(), timeline, began_s: seconds, last_ms: None })
    }

    /// Adds a sample.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add(&mut self, sample: &Sample, proc: &Path) -> io::Result<()> {
        let ms = ((sample.seconds - self.began_s) * 1000.0).round() as u64;
        if self.last_ms.is_some_and(|last| last >= ms) {
            return Ok(());
        }
        self.last_ms = Some(ms);
        self.timeline.write_all(lines(ms, sample).as_bytes())?;
        capture(proc, &self.folder.join("after"))
    }

    /// Where the state of the last sample belongs.
    #[must_use]
    pub fn state_path(&self) -> PathBuf {
        self.folder.join("state.snapshot")
    }
}

/// Copies files of `/proc`, each of which appears whole.
fn capture(proc: &Path, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for name in FILES {
        let part = folder.join(format!(".{name}"));
        fs::write(&part, fs::read(proc.join(name))?)?;
        fs::rename(part, folder.join(name))?;
    }
    Ok(())
}

fn lines(ms: u64, sample: &Sample) -> String {
    let mut out = format!("T {}.{:03}\n", ms / 1000, ms % 1000);
    for (name, value) in &sample.vmstat {
        if KEPT.iter().any(|kept| name.starts_with(kept)) {
            let _ = writeln!(out, "{name} {value}");
        }
    }
    if let Some([some, full]) = sample.pressure_us {
        let _ = writeln!(out, "psi_memory_some_us {some}\npsi_memory_full_us {full}");
    }
    for zone in &sample.zones {
        let _ = write!(out, "Node {}, zone {:>8} ", zone.node, zone.name);
        for blocks in &zone.blocks {
            let _ = write!(out, "{blocks:6} ");
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::tests::two;

    #[test]
    fn a_history_grows_by_its_samples_and_is_not_begun_twice() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("series");
        let proc =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/proc-recorded/6.18");
        let [first, second] = two();
        let mut series = Series::begin(&folder, &proc, first.seconds).unwrap();
        for sample in [&first, &first, &second] {
            series.add(sample, &proc).unwrap();
        }
        let timeline = fs::read_to_string(folder.join("timeline")).unwrap();
        let times: Vec<&str> = timeline.lines().filter(|line| line.starts_with("T ")).collect();
        assert_eq!(times, ["T 0.000", "T 2.000"]);
        assert!(timeline.contains("compact_stall ") && timeline.contains("Node 0, zone   Normal "));
        for state in ["before", "after"] {
            let kept = fs::read(folder.join(state).join("zoneinfo")).unwrap();
            assert_eq!(kept, fs::read(proc.join("zoneinfo")).unwrap());
        }
        let again = Series::begin(&folder, &proc, 0.0).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    }
}
