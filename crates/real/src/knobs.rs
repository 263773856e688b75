//! The kernel's settings under their own names, and putting them back whatever happens.
//!
//! `vm.swappiness` is `/proc/sys/vm/swappiness`; a name with a slash lies below `/sys/kernel/mm`, as
//! `transparent_hugepage/defrag`. What is not on the list of `highorder_system::knobs` is neither read nor set, in a
//! journal neither.
//!
//! A [`Journal`] keeps what a setting was in a file before it is changed for the first time. The file is on
//! the disk before the setting changes and goes when all are as they were, so whatever happens to this
//! process, [`restore_knobs`] finishes.

use highorder_files::{FolderError, lock_holder, own_folder};
use highorder_kernelfs::{Setting, TextFile};
use highorder_system::knobs::is_knob;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The file that tells what settings were.
const JOURNAL: &str = "knobs-to-restore";
/// Locked by whoever changes settings.
const LOCK: &str = "knobs.lock";

/// Files that do something when they are written to: there is nothing to put back.
const ACTIONS: [&str; 3] = ["vm.compact_memory", "vm.drop_caches", "vm.stat_refresh"];

/// Setting one of a pair makes the other 0: mm/page-writeback.c (`dirty_bytes_handler` and kin). Written
/// back is the one that was in force.
const PAIRS: [(&str, &str); 2] = [
    ("vm.dirty_bytes", "vm.dirty_ratio"),
    ("vm.dirty_background_bytes", "vm.dirty_background_ratio"),
];

/// Huge pages being enabled raises the free pages kept: mm/khugepaged.c
/// (`set_recommended_min_free_kbytes`).
const RAISES_MIN_FREE: &str = "transparent_hugepage/enabled";
const MIN_FREE: &str = "vm.min_free_kbytes";

/// Why a setting could not be read, set or put back.
#[derive(Debug, thiserror::Error)]
pub enum KnobError {
    /// A name that no setting of memory management has.
    #[error("knob `{name}`, {}", highorder_input::expected(name, highorder_system::knobs::names()))]
    Name {
        /// The name.
        name: String,
    },
    /// The kernel said no.
    #[error("knob {name}: {}: {source}{}", path.display(), hint(source))]
    Kernel {
        /// The knob.
        name: String,
        /// Its file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel does not take the value.
    #[error("knob {name}: the kernel does not take `{value}`; it is `{now}`")]
    Value {
        /// The knob.
        name: String,
        /// What was to be set.
        value: String,
        /// What it is.
        now: String,
    },
    /// Settings that an earlier run changed are not as they were.
    #[error(
        "{}: settings of an earlier run were not put back, expected no such file; restore-knobs \
         finishes that",
        .0.display()
    )]
    Unrestored(PathBuf),
    /// Another run changes settings right now.
    #[error(
        "{}: another run has changed settings and not ended yet: {holder} holds the lock; wait for it, or end it, \
         which puts the settings back",
        path.display()
    )]
    InUse {
        /// The file that is locked.
        path: PathBuf,
        /// Whose lock it is.
        holder: String,
    },
    /// The folder that tells what settings were is not fit for that.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The file of former settings is damaged.
    #[error("{}:{line}: `{found}`, expected a setting's name and value as JSON", path.display())]
    Journal {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What it holds.
        found: String,
    },
    /// Some settings could not be put back; the file that tells them stays.
    #[error("{} could not be put back: {}", if .0.len() == 1 { "a setting" } else { "settings" }, .0.join("; "))]
    NotRestored(Vec<String>),
    /// A file of ours could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => " (changing settings takes root)",
        io::ErrorKind::NotFound => " (this kernel has no such setting)",
        _ => "",
    }
}

impl KnobError {
    fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }
}

/// The settings of a kernel.
#[derive(Clone, Debug)]
pub struct Knobs {
    root: PathBuf,
}

impl Knobs {
    /// The settings below this folder: `/` for the running kernel's.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The file of a knob.
    ///
    /// # Errors
    /// [`KnobError::Name`].
    pub fn path(&self, name: &str) -> Result<PathBuf, KnobError> {
        if !is_knob(name) {
            return Err(KnobError::Name { name: name.to_owned() });
        }
        let (folder, parts): (&str, Vec<&str>) = match name.contains('/') {
            true => ("sys/kernel/mm", name.split('/').collect()),
            false => ("proc/sys", name.split('.').collect()),
        };
        Ok(parts.iter().fold(self.root.join(folder), |path, part| path.join(part)))
    }

    /// A knob's value: of several words the one in force, numbers with a blank between.
    ///
    /// # Errors
    /// [`KnobError::Name`], [`KnobError::Kernel`].
    pub fn get(&self, name: &str) -> Result<String, KnobError> {
        let path = self.path(name)?;
        read(&path).map_err(|source| KnobError::Kernel { name: name.to_owned(), path, source })
    }

    /// Sets a knob, of which nothing is kept.
    pub(crate) fn put(&self, name: &str, value: &str) -> Result<(), KnobError> {
        let path = self.path(name)?;
        write(&path, value).map_err(|source| {
            let now = read(&path).unwrap_or_default();
            match source.raw_os_error() {
                Some(libc::EINVAL | libc::ERANGE) => {
                    KnobError::Value { name: name.to_owned(), value: value.to_owned(), now }
                }
                _ => KnobError::Kernel { name: name.to_owned(), path, source },
            }
        })
    }
}

fn read(path: &Path) -> io::Result<String> {
    let text = fs::read(path)?;
    let setting = Setting::parse("", &text).ok();
    if let Some(chosen) = setting.as_ref().and_then(Setting::chosen) {
        return Ok(chosen.to_owned());
    }
    let text = String::from_utf8_lossy(&text);
    Ok(text.split_ascii_whitespace().collect::<Vec<_>>().join(" "))
}

fn write(path: &Path, value: &str) -> io::Result<()> {
    // Not created if it is not there: a knob that the kernel lacks is an error.
    let mut file = File::options().write(true).truncate(true).open(path)?;
    file.write_all(format!("{value}\n").as_bytes())
}

/// What a setting was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Former {
    /// The knob.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// Changes settings, and puts back what it changed when it is dropped.
#[derive(Debug)]
pub struct Journal {
    knobs: Knobs,
    folder: PathBuf,
    _lock: Lock,
}

impl Journal {
    /// Begins to change settings; what they were is kept in `folder`, which is made.
    ///
    /// # Errors
    /// [`KnobError::Unrestored`], [`KnobError::InUse`], [`KnobError::Io`].
    pub fn open(knobs: Knobs, folder: &Path) -> Result<Self, KnobError> {
        let lock = lock(folder)?;
        let path = folder.join(JOURNAL);
        if path.exists() {
            return Err(KnobError::Unrestored(path));
        }
        Ok(Self { knobs, folder: folder.to_owned(), _lock: lock })
    }

    /// Sets a knob; what it was is on the disk before.
    ///
    /// # Errors
    /// Any [`KnobError`]; the setting then is what it was.
    pub fn set(&self, name: &str, value: &str) -> Result<(), KnobError> {
        if !ACTIONS.contains(&name) {
            if name == RAISES_MIN_FREE && self.knobs.get(MIN_FREE).is_ok() {
                self.keep(MIN_FREE)?;
            }
            self.keep(name)?;
        }
        self.knobs.put(name, value)
    }

    /// Puts every setting back that was changed, the last first.
    ///
    /// # Errors
    /// [`KnobError::NotRestored`] names all that could not be; the others are as they were.
    pub fn restore(&self) -> Result<Vec<Former>, KnobError> {
        restore(&self.knobs, &self.folder)
    }

    fn keep(&self, name: &str) -> Result<(), KnobError> {
        let mut former = Former { name: name.to_owned(), value: self.knobs.get(name)? };
        let pair = PAIRS.iter().find(|(a, b)| *a == name || *b == name);
        if let Some((bytes, ratio)) = pair
            && former.value == "0"
        {
            let other = if *bytes == name { ratio } else { bytes };
            former = Former { name: (*other).to_owned(), value: self.knobs.get(other)? };
        }
        let path = self.folder.join(JOURNAL);
        if entries(&path)?.iter().any(|entry| entry.name == former.name) {
            return Ok(());
        }
        let line = serde_json::to_string(&former).expect("two texts are JSON") + "\n";
        let append = || {
            let mut file = File::options().create(true).append(true).open(&path)?;
            file.write_all(line.as_bytes())?;
            file.sync_all()?;
            File::open(&self.folder)?.sync_all()
        };
        append().map_err(|source| KnobError::io(&path, source))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Whoever wants to know calls `restore`; what fails here stays in the file.
        let _ = self.restore();
    }
}

/// Finishes what a run that was killed left: puts back the settings that `folder` tells, and returns them.
///
/// # Errors
/// [`KnobError::InUse`] if the run has not ended, [`KnobError::Journal`] if the file is damaged,
/// [`KnobError::NotRestored`], [`KnobError::Io`].
pub fn restore_knobs(knobs: &Knobs, folder: &Path) -> Result<Vec<Former>, KnobError> {
    if !folder.join(JOURNAL).exists() {
        return Ok(Vec::new());
    }
    let _lock = lock(folder)?;
    restore(knobs, folder)
}

/// Held by all processes of a run: gone once its first one gives it up, or with the last of them.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // A process that is just being started may have the file still.
        let _ = self.0.unlock();
    }
}

fn lock(folder: &Path) -> Result<Lock, KnobError> {
    own_folder(folder)?;
    let path = folder.join(LOCK);
    let file = File::options().create(true).append(true).open(&path);
    let file = file.map_err(|source| KnobError::io(&path, source))?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(TryLockError::WouldBlock) => Err(KnobError::InUse { path, holder: lock_holder(&file) }),
        Err(TryLockError::Error(source)) => Err(KnobError::io(&path, source)),
    }
}

/// The entries of a journal; none if there is no file. A last line without its end was never acted upon.
fn entries(path: &Path) -> Result<Vec<Former>, KnobError> {
    let text = match fs::read_to_string(path) {
        Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.map_err(|source| KnobError::io(path, source))?,
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole.lines().enumerate().map(|(i, line)| {
        serde_json::from_str(line).map_err(|_| KnobError::Journal {
            path: path.to_owned(),
            line: i + 1,
            found: line.to_owned(),
        })
    });
    lines.collect()
}

fn restore(knobs: &Knobs, folder: &Path) -> Result<Vec<Former>, KnobError> {
    let path = folder.join(JOURNAL);
    let entries = entries(&path)?;
    let mut failed = Vec::new();
    for Former { name, value } in entries.iter().rev() {
        let is_back = || knobs.get(name).is_ok_and(|now| now == *value);
        if is_back() {
            continue;
        }
        match knobs.put(name, value) {
            Ok(()) if is_back() => {}
            Ok(()) => failed.push(format!(
                "knob {name}: is `{}` after `{value}` was written",
                knobs.get(name).unwrap_or_default()
            )),
            Err(error) => failed.push(error.to_string()),
        }
    }
    if !failed.is_empty() {
        return Err(KnobError::NotRestored(failed));
    }
    match fs::remove_file(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(KnobError::io(&path, source))
        }
        _ => Ok(entries),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake() -> (tempfile::TempDir, Knobs, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("proc/sys/vm/swappiness", "60\n"),
            ("proc/sys/vm/dirty_bytes", "0\n"),
            ("proc/sys/vm/dirty_ratio", "20\n"),
            ("proc/sys/vm/min_free_kbytes", "11264\n"),
            ("proc/sys/vm/lowmem_reserve_ratio", "256\t256\t32\t0\t0\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let (knobs, folder) = (Knobs::new(root.path()), root.path().join("state"));
        (root, knobs, folder)
    }

    #[test]
    fn names_are_the_kernels_and_lead_nowhere_else() {
        let knobs = Knobs::new("/");
        let path = |name: &str| knobs.path(name).ok().map(|path| path.display().to_string());
        assert_eq!(path("vm.swappiness").as_deref(), Some("/proc/sys/vm/swappiness"));
        assert_eq!(
            path("transparent_hugepage/khugepaged/defrag").as_deref(),
            Some("/sys/kernel/mm/transparent_hugepage/khugepaged/defrag")
        );
        for bad in
            ["", "swappiness", "vm..x", "../x", "/etc/passwd", "vm.x y", "kernel.core_pattern"]
        {
            assert_eq!(path(bad), None, "{bad}");
        }
    }

    #[test]
    fn values_read_as_they_are_set() {
        let (_root, knobs, _) = fake();
        assert_eq!(knobs.get("vm.swappiness").unwrap(), "60");
        assert_eq!(knobs.get("transparent_hugepage/enabled").unwrap(), "madvise");
        assert_eq!(knobs.get("vm.lowmem_reserve_ratio").unwrap(), "256 256 32 0 0");
        let error = knobs.get("vm.defrag_mode").unwrap_err().to_string();
        assert!(error.contains("vm.defrag_mode") && error.contains("no such setting"), "{error}");
        let error = knobs.get("vm.swapiness").unwrap_err().to_string();
        assert_eq!(error, "knob `vm.swapiness`, did you mean `vm.swappiness`?");
    }

    #[test]
    fn dropping_a_journal_puts_everything_back() {
        let (_root, knobs, folder) = fake();
        let journal = Journal::open(knobs.clone(), &folder).unwrap();
        journal.set("vm.swappiness", "10").unwrap();
        journal.set("vm.swappiness", "20").unwrap();
        journal.set("transparent_hugepage/enabled", "always").unwrap();
        assert_eq!(knobs.get("vm.swappiness").unwrap(), "20");
        let in_use = Journal::open(knobs.clone(), &folder).unwrap_err().to_string();
        assert!(in_use.contains(&format!("process {}", std::process::id())), "{in_use}");
        assert!(matches!(restore_knobs(&knobs, &folder), Err(KnobError::InUse { .. })));
        drop(journal);
        assert_eq!(knobs.get("vm.swappiness").unwrap(), "60");
        assert_eq!(knobs.get("transparent_hugepage/enabled").unwrap(), "madvise");
        assert!(!folder.join(JOURNAL).exists());
    }

    #[test]
    fn what_a_killed_run_left_is_finished_later() {
        let (_root, knobs, folder) = fake();
        let journal = Journal::open(knobs.clone(), &folder).unwrap();
        journal.set("vm.swappiness", "10").unwrap();
        let left = fs::read(folder.join(JOURNAL)).unwrap();
        drop(journal);
        // As if nothing had been put back, and the next entry was only half written.
        fs::write(folder.join(JOURNAL), [&left[..], b"{\"name\":\"vm.d"].concat()).unwrap();
        knobs.put("vm.swappiness", "10").unwrap();
        let error = Journal::open(knobs.clone(), &folder).unwrap_err();
        assert!(matches!(error, KnobError::Unrestored(_)), "{error}");
        let restored = restore_knobs(&knobs, &folder).unwrap();
        assert_eq!(restored, [Former { name: "vm.swappiness".into(), value: "60".into() }]);
        assert_eq!(knobs.get("vm.swappiness").unwrap(), "60");
        assert_eq!(restore_knobs(&knobs, &folder).unwrap(), []);
    }

    #[test]
    fn of_a_pair_the_one_in_force_is_put_back() {
        let (_root, knobs, folder) = fake();
        let journal = Journal::open(knobs.clone(), &folder).unwrap();
        journal.set("vm.dirty_bytes", "1000000").unwrap();
        // The kernel does so by itself.
        knobs.put("vm.dirty_ratio", "0").unwrap();
        let restored = journal.restore().unwrap();
        assert_eq!(restored, [Former { name: "vm.dirty_ratio".into(), value: "20".into() }]);
        assert_eq!(knobs.get("vm.dirty_ratio").unwrap(), "20");
    }

    #[test]
    fn a_damaged_file_of_former_settings_is_told_with_its_line() {
        let (_root, knobs, folder) = fake();
        fs::create_dir_all(&folder).unwrap();
        let text = "{\"name\":\"vm.swappiness\",\"value\":\"1\"}\nnothing\n";
        fs::write(folder.join(JOURNAL), text).unwrap();
        let error = restore_knobs(&knobs, &folder).unwrap_err().to_string();
        assert!(error.ends_with(
            "knobs-to-restore:2: `nothing`, expected a setting's name and value as JSON"
        ));
        assert_eq!(knobs.get("vm.swappiness").unwrap(), "60");
    }

    #[test]
    fn a_setting_that_cannot_be_put_back_is_named_and_stays_in_the_file() {
        let (root, knobs, folder) = fake();
        let journal = Journal::open(knobs.clone(), &folder).unwrap();
        journal.set("vm.swappiness", "10").unwrap();
        fs::remove_file(root.path().join("proc/sys/vm/swappiness")).unwrap();
        let error = journal.restore().unwrap_err().to_string();
        assert!(error.contains("vm.swappiness"), "{error}");
        drop(journal);
        assert!(folder.join(JOURNAL).exists());
    }

    #[test]
    fn a_knob_that_the_kernel_lacks_is_not_made() {
        let (_root, knobs, folder) = fake();
        let journal = Journal::open(knobs.clone(), &folder).unwrap();
        assert!(journal.set("vm.defrag_mode", "1").is_err());
        assert!(!knobs.path("vm.defrag_mode").unwrap().exists());
        assert_eq!(journal.restore().unwrap(), []);
    }
}
