//! What is read writes back byte for byte: the recorded files in `tests/data`, the ones made by
//! hand from older kernels' documented formats, this machine's own, and a folder of the caller's.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};

use highorder_kernelfs::trace::{Entry, Event, Item, TraceReader};
use highorder_kernelfs::{
    Buddyinfo, Extfrag, Kpagecount, Kpageflags, Meminfo, Pagetypeinfo, Setting, Settings, Slabinfo,
    Swaps, TextFile, Vmstat, Zoneinfo, read_bytes,
};

/// A folder of kernel files to go through besides our own, with any folders in it.
const EXTRA: &str = "HIGHORDER_TRUTH";

fn data(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(folder)
}

/// What a folder held: how many files of each kind, and which had lines in another spacing than
/// the kernel's of today.
#[derive(Debug, Default)]
struct Tally {
    files: BTreeMap<String, u64>,
    events: BTreeMap<String, u64>,
    odd_spacing: Vec<PathBuf>,
    odd_gfp: BTreeMap<String, String>,
    failures: Vec<String>,
}

impl Tally {
    fn walk(&mut self, folder: &Path) {
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            if path.is_dir() {
                self.walk(&path);
            } else {
                self.file(&path);
            }
        }
    }

    fn file(&mut self, path: &Path) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let kind = name.split('.').next().unwrap();
        match kind {
            "vmstat" => self.table::<Vmstat>(path),
            "buddyinfo" => self.table::<Buddyinfo>(path),
            "pagetypeinfo" => self.table::<Pagetypeinfo>(path),
            "zoneinfo" => self.table::<Zoneinfo>(path),
            "meminfo" => self.table::<Meminfo>(path),
            "slabinfo" => self.table::<Slabinfo>(path),
            "swaps" => self.table::<Swaps>(path),
            "settings" => self.table::<Settings>(path),
            "extfrag_index" | "unusable_index" => self.table::<Extfrag>(path),
            "timeline" => self.timeline(path),
            "trace" => self.trace(path),
            "kpageflags" | "kpagecount" => {
                let bytes = read_bytes(path).unwrap();
                let name = path.display().to_string();
                let written = if kind == "kpageflags" {
                    Kpageflags::parse(&name, &bytes).unwrap().to_bytes()
                } else {
                    Kpagecount::parse(&name, &bytes).unwrap().to_bytes()
                };
                assert!(written == bytes, "{name} changed");
            }
            _ => return,
        }
        *self.files.entry(kind.into()).or_default() += 1;
    }

    fn table<T: TextFile + PartialEq + Debug>(&mut self, path: &Path) {
        let bytes = read_bytes(path).unwrap();
        self.text::<T>(path, &bytes);
    }

    fn text<T: TextFile + PartialEq + Debug>(&mut self, path: &Path, bytes: &[u8]) {
        match T::parse(&path.display().to_string(), bytes) {
            Err(error) => self.failures.push(error.to_string()),
            Ok(table) => {
                if table.to_text().as_bytes() != bytes {
                    self.failures.push(format!("{} changed", path.display()));
                }
                let again = T::parse("again", table.to_text().as_bytes());
                if again.ok().as_ref() != Some(&table) {
                    self.failures.push(format!("{} reads otherwise again", path.display()));
                }
                if format!("{table:?}").contains("Spacing(Some") {
                    self.odd_spacing.push(path.into());
                }
            }
        }
    }

    /// `T seconds`, then lines of vmstat, then lines of buddyinfo, over and over.
    fn timeline(&mut self, path: &Path) {
        let bytes = read_bytes(path).unwrap();
        for sample in String::from_utf8(bytes).unwrap().split("T ").skip(1) {
            let (_, tables) = sample.split_once('\n').unwrap();
            let split = tables.find("Node ").unwrap_or(tables.len());
            self.text::<Vmstat>(path, &tables.as_bytes()[..split]);
            self.text::<Buddyinfo>(path, &tables.as_bytes()[split..]);
        }
    }

    fn trace(&mut self, path: &Path) {
        let mut written = Vec::new();
        let mut lost = 0;
        let outcome = TraceReader::open(path).unwrap().for_each(|entry| {
            match entry {
                Entry::Event(line, event) => {
                    line.write_prefix(&mut written);
                    event.write_args(&mut written);
                    let name = match event {
                        Event::Other { .. } => "other".into(),
                        Event::Probe(_) => "probe".into(),
                        _ => String::from_utf8_lossy(event.name()).into_owned(),
                    };
                    *self.events.entry(name).or_default() += 1;
                    if let Event::MmPageAlloc(alloc) = event {
                        let text = String::from_utf8_lossy(alloc.gfp_flags.0).into_owned();
                        let flags = alloc.gfp_flags.flags().unwrap().to_string();
                        if flags != text {
                            self.odd_gfp.insert(text, flags);
                        }
                    }
                }
                Entry::Other(item) => {
                    lost += u64::from(matches!(item, Item::Lost { .. }));
                    item.write(&mut written);
                }
            }
            written.push(b'\n');
        });
        match outcome {
            Err(error) => self.failures.push(error.to_string()),
            Ok(_) if written != read_bytes(path).unwrap() => {
                self.failures.push(format!("{} changed", path.display()));
            }
            Ok(_) => {}
        }
    }

    #[track_caller]
    fn assert_no_failures(&self) {
        assert!(self.failures.is_empty(), "{}", self.failures.join("\n"));
    }
}

#[test]
fn recorded_files_write_back_the_same_without_keeping_any_spacing() {
    let mut tally = Tally::default();
    tally.walk(&data("proc-recorded"));
    tally.assert_no_failures();
    assert_eq!(tally.odd_spacing, Vec::<PathBuf>::new(), "the kernel's spacing is modelled");
    assert_eq!(tally.odd_gfp, BTreeMap::new(), "flags print as the kernel prints them");
    for kind in [
        "vmstat",
        "buddyinfo",
        "pagetypeinfo",
        "zoneinfo",
        "meminfo",
        "slabinfo",
        "swaps",
        "settings",
        "extfrag_index",
        "unusable_index",
        "kpageflags",
        "trace",
        "timeline",
    ] {
        assert!(tally.files.contains_key(kind), "no {kind} among {:?}", tally.files);
    }
    assert!(tally.files["vmstat"] >= 4 && tally.files["zoneinfo"] >= 4, "{:?}", tally.files);
    // The recordings hold each of these; `other` would mean that one lost its type.
    for event in ["mm_page_alloc", "mm_page_pcpu_drain", "mm_compaction_end", "probe"] {
        assert!(tally.events.contains_key(event), "no {event} among {:?}", tally.events);
    }
    assert_eq!(tally.events.get("other"), None, "{:?}", tally.events);
}

#[test]
fn files_of_older_kernels_write_back_the_same() {
    let mut tally = Tally::default();
    tally.walk(&data("proc-by-hand"));
    tally.assert_no_failures();
    let odd: Vec<_> = tally.odd_spacing.iter().map(|path| path.file_name().unwrap()).collect();
    assert_eq!(odd, ["swaps"], "only the tabs of old swaps differ from today's");
    assert!(tally.files["zoneinfo"] >= 3 && tally.files["trace"] >= 3, "{:?}", tally.files);
    assert!(tally.events["other"] > 0, "an event without a type is among them");
    assert!(!tally.odd_gfp.is_empty(), "older names of flags are among them");
    // All 57 typed events are in a trace made by hand or recorded; markers, probes and others.
    tally.walk(&data("proc-recorded"));
    assert_eq!(tally.events.len(), 57 + 3, "{:?}", tally.events.keys());
}

#[test]
fn an_extra_folder_writes_back_the_same() {
    let Some(folder) = std::env::var_os(EXTRA) else {
        eprintln!("skipped: {EXTRA} names no folder of kernel files");
        return;
    };
    let mut tally = Tally::default();
    tally.walk(Path::new(&folder));
    eprintln!("{:#?}\n{:#?}", tally.files, tally.events);
    eprintln!("in a spacing that is not the kernel's: {:?}", tally.odd_spacing);
    tally.assert_no_failures();
    assert!(!tally.files.is_empty(), "no kernel file in {folder:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn this_machines_own_files_write_back_the_same() {
    let mut tally = Tally::default();
    let mut denied = 0;
    for name in [
        "vmstat",
        "buddyinfo",
        "zoneinfo",
        "meminfo",
        "swaps",
        "pagetypeinfo",
        "slabinfo",
        "kpageflags",
    ] {
        // The last three are for root only.
        let path = Path::new("/proc").join(name);
        match std::fs::File::open(&path) {
            Ok(_) => tally.file(&path),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => denied += 1,
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }
    settings(&mut tally, Path::new("/proc/sys/vm"));
    let huge = Path::new("/sys/kernel/mm/transparent_hugepage");
    if huge.exists() {
        settings(&mut tally, huge);
    }
    let nodes = Path::new("/sys/devices/system/node/node0/meminfo");
    if nodes.exists() {
        tally.file(nodes);
    }
    eprintln!("{:?}, {denied} for root only", tally.files);
    tally.assert_no_failures();
    assert_eq!(tally.odd_spacing, Vec::<PathBuf>::new(), "files in a spacing that is not modelled");
    assert!(tally.files["vmstat"] == 1 && tally.files["setting"] > 10, "{:?}", tally.files);
}

/// Goes through the settings in a folder that can be read: a few can only be written.
fn settings(tally: &mut Tally, folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            settings(tally, &path);
        } else if let Ok(bytes) = std::fs::read(&path) {
            tally.text::<Setting>(&path, &bytes);
            *tally.files.entry("setting".into()).or_default() += 1;
        }
    }
}
