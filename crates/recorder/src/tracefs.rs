//! A tracefs instance of our own.
//!
//! ```text
//! instances/highorder-PID/     locked (flock) as long as its recording lives
//! events/highorder_PID/        the probes on __isolate_free_page, which are the whole kernel's
//! ```
//!
//! Both go when the [`Instance`] is dropped: also by a signal, if that is noted rather than obeyed, and by a panic.
//! What a killed process left has no lock, and [`remove_left`] removes it: the next recording does, and
//! `restore-knobs`.
//!
//! Models: Documentation/trace/ftrace.rst ("Instances") and kprobetrace.rst, v6.12: an instance has its own buffers,
//! enabled events, clock and marker; probes are defined for all and are enabled in each.

use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What names of instances begin with.
const INSTANCE: &str = "highorder-";
/// What groups of probes begin with: a group's name has no dash.
const GROUP: &str = "highorder_";
/// Taken off the free lists by compaction: no event tells that.
const PROBED: &str = "__isolate_free_page";

/// Why the kernel does not trace for us.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// Only root may.
    #[error(
        "tracing takes root: it reads the kernel's lists and makes a tracefs instance; sudo gives it"
    )]
    NotRoot,
    /// There is no tracefs.
    #[error(
        "this kernel has no tracefs ({0}), expected CONFIG_FTRACE and CONFIG_ENABLE_DEFAULT_TRACERS"
    )]
    NoTracefs(io::Error),
    /// A file of tracefs said no.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

impl TraceError {
    /// Whether the kernel had no memory for what it was asked.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::OutOfMemory)
    }
}

fn io_at(path: &Path) -> impl FnOnce(io::Error) -> TraceError {
    let path = path.to_owned();
    move |source| TraceError::Io { path, source }
}

/// The kernel's tracefs.
#[derive(Debug)]
pub struct Tracefs {
    root: PathBuf,
    /// A mount that has no place in the file system, where nobody has mounted it: gone with this.
    _mount: Option<OwnedFd>,
}

impl Tracefs {
    /// Finds where it is mounted, or mounts it for this process alone.
    ///
    /// # Errors
    /// [`TraceError::NotRoot`], [`TraceError::NoTracefs`].
    pub fn find() -> Result<Self, TraceError> {
        if !rustix::process::geteuid().is_root() {
            return Err(TraceError::NotRoot);
        }
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mounted = mounts.lines().find_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (place, kind) = (words.next()?, words.next()?);
            (kind == "tracefs").then(|| PathBuf::from(place))
        });
        match mounted {
            Some(root) => Ok(Self { root, _mount: None }),
            None => Self::mount().map_err(TraceError::NoTracefs),
        }
    }

    /// A mount that no name leads to, since 5.2.
    fn mount() -> io::Result<Self> {
        use rustix::mount::{
            FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen,
        };
        let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        let root = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        Ok(Self { root, _mount: Some(mount) })
    }

    /// Removes what killed recordings left; returns what that was, as messages name it.
    ///
    /// # Errors
    /// The kernel does not let it go.
    pub fn remove_left(&self) -> Result<Vec<String>, TraceError> {
        let mut removed = Vec::new();
        let mut alive = Vec::new();
        let instances = self.root.join("instances");
        for name in names(&instances) {
            let Some(pid) = name.strip_prefix(INSTANCE) else { continue };
            let path = instances.join(&name);
            // Whoever has the lock is at work; what is gone by now was removed by its owner.
            match lock(&path) {
                Ok(true) => {
                    self.remove_probes(pid)?;
                    fs::remove_dir(&path).map_err(io_at(&path))?;
                    removed.push(format!("tracefs instance {name}"));
                }
                Ok(false) => alive.push(pid.to_owned()),
                Err(_) => {}
            }
        }
        for group in names(&self.root.join("events")) {
            let Some(pid) = group.strip_prefix(GROUP) else { continue };
            if !alive.iter().any(|alive| alive == pid) {
                self.remove_probes(pid)?;
                removed.push(format!("probes {group}"));
            }
        }
        Ok(removed)
    }

    /// Removes the probes of a process, in whichever instance they are enabled.
    fn remove_probes(&self, pid: &str) -> Result<(), TraceError> {
        let group = format!("{GROUP}{pid}");
        let probes = names(&self.root.join("events").join(&group));
        let instance = self.root.join("instances").join(format!("{INSTANCE}{pid}"));
        for probe in probes.iter().filter(|name| !matches!(name.as_str(), "enable" | "filter")) {
            let enable = instance.join("events").join(&group).join(probe).join("enable");
            if enable.exists() {
                put(&enable, "0")?;
            }
            append(&self.root.join("kprobe_events"), &format!("-:{group}/{probe}\n"))?;
        }
        Ok(())
    }
}

/// Removes what killed recordings left; returns what that was. Nothing where nobody may trace here.
///
/// # Errors
/// The kernel does not let it go.
pub fn remove_left() -> Result<Vec<String>, TraceError> {
    match Tracefs::find() {
        Ok(tracefs) => tracefs.remove_left(),
        Err(_) => Ok(Vec::new()),
    }
}

/// What a folder holds, in order; nothing if it is not there.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Whether nobody holds the lock of a folder.
fn lock(folder: &Path) -> io::Result<bool> {
    let file = File::open(folder)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn put(path: &Path, text: &str) -> Result<(), TraceError> {
    let written = OpenOptions::new().write(true).truncate(true).open(path);
    written.and_then(|mut file| file.write_all(text.as_bytes())).map_err(io_at(path))
}

fn append(path: &Path, text: &str) -> Result<(), TraceError> {
    let written = OpenOptions::new().append(true).open(path);
    written.and_then(|mut file| file.write_all(text.as_bytes())).map_err(io_at(path))
}

/// What a CPU's buffer has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferStats {
    /// Events in it now.
    pub nr_entries: u64,
    /// Bytes of them.
    pub nr_bytes: u64,
    /// Events that were taken out.
    pub nr_read: u64,
    /// Events that were overwritten or not written, the buffer being full.
    pub nr_lost: u64,
}

impl BufferStats {
    /// Parses a CPU's `stats`.
    fn parse(text: &str) -> Self {
        let value = |name: &str| -> u64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
        };
        Self {
            nr_entries: value("entries"),
            nr_bytes: value("bytes"),
            nr_read: value("read events"),
            nr_lost: value("overrun") + value("dropped events"),
        }
    }

    fn add(&mut self, other: Self) {
        self.nr_entries += other.nr_entries;
        self.nr_bytes += other.nr_bytes;
        self.nr_read += other.nr_read;
        self.nr_lost += other.nr_lost;
    }
}

/// Asks the kernel for an instance. Its first buffers, 1.4 MB a CPU, have to be available at once: anonymous memory that
/// could be swapped does not count (`si_mem_available`, which `__rb_allocate_pages` asks). Where nothing else is there, as
/// on a machine that stalls, room is made as any program makes it: memory is written and given back.
fn make_instance(path: &Path) -> io::Result<()> {
    let mut made = fs::create_dir(path);
    for mib in [8, 16, 32, 64] {
        if !made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::OutOfMemory) {
            break;
        }
        drop(std::hint::black_box(vec![1_u8; mib << 20]));
        made = fs::create_dir(path);
    }
    made
}

/// An instance, gone when dropped.
#[derive(Debug)]
pub struct Instance {
    tracefs: Tracefs,
    name: String,
    path: PathBuf,
    nr_cpus: usize,
    _lock: File,
}

impl Instance {
    /// Makes one, after it has removed what killed recordings left. Nothing is traced yet.
    ///
    /// # Errors
    /// Any [`TraceError`].
    pub fn new(tracefs: Tracefs) -> Result<Self, TraceError> {
        tracefs.remove_left()?;
        let pid = std::process::id().to_string();
        let path = tracefs.root.join("instances").join(format!("{INSTANCE}{pid}"));
        make_instance(&path).map_err(io_at(&path))?;
        let locked = File::open(&path).and_then(|file| {
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            Ok(file)
        });
        let lock = match locked {
            Ok(lock) => lock,
            Err(source) => {
                // Without a lock it would be taken for a dead one's.
                let _ = fs::remove_dir(&path);
                return Err(TraceError::Io { path, source });
            }
        };
        let nr_cpus = names(&path.join("per_cpu")).len().max(1);
        let instance = Self { tracefs, name: pid, path, nr_cpus, _lock: lock };
        instance.set("tracing_on", "0")?;
        Ok(instance)
    }

    /// Writes to a file of the instance.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn set(&self, name: &str, value: &str) -> Result<(), TraceError> {
        put(&self.path.join(name), value)
    }

    /// CPUs that have a buffer.
    #[must_use]
    pub fn nr_cpus(&self) -> usize {
        self.nr_cpus
    }

    /// Enables an event or a whole subsystem of events; false where the kernel has none of this name.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn enable(&self, event: &str) -> Result<bool, TraceError> {
        let path = self.path.join("events").join(event).join("enable");
        match path.exists() {
            true => put(&path, "1").map(|()| true),
            false => Ok(false),
        }
    }

    /// Whether the kernel has an event.
    #[must_use]
    pub fn has(&self, event: &str) -> bool {
        self.path.join("events").join(event).exists()
    }

    /// Puts probes on entry and return of the function by which compaction takes free blocks, and enables them.
    ///
    /// # Errors
    /// Why the kernel does not let us: it has no probes, no such function, or an architecture whose arguments it
    /// does not name.
    pub fn probe_isolation(&self) -> Result<(), TraceError> {
        let group = format!("{GROUP}{}", self.name);
        // Where the first two arguments are: by the calling convention, else as the kernel names them (since 4.20).
        let [page, order] = match std::env::consts::ARCH {
            "x86_64" => ["%di", "%si"],
            _ => ["$arg1", "$arg2"],
        };
        let definitions = [
            format!("p:{group}/isolate_free {PROBED} page={page}:x64 order={order}:u32\n"),
            format!("r:{group}/isolate_free_ret {PROBED} ret=$retval:s32\n"),
        ];
        let made = definitions
            .iter()
            .try_for_each(|text| append(&self.tracefs.root.join("kprobe_events"), text))
            .and_then(|()| self.enable(&group).map(drop));
        if made.is_err() {
            let _ = self.tracefs.remove_probes(&self.name);
        }
        made
    }

    /// What is in all buffers, and what is not.
    #[must_use]
    pub fn stats(&self) -> BufferStats {
        let mut all = BufferStats::default();
        for cpu in self.stats_by_cpu() {
            all.add(BufferStats::parse(&cpu.1));
        }
        all
    }

    /// Bytes in the fullest of the buffers.
    #[must_use]
    pub fn most_bytes(&self) -> u64 {
        let bytes = |(_, text): (String, String)| BufferStats::parse(&text).nr_bytes;
        self.stats_by_cpu().into_iter().map(bytes).max().unwrap_or(0)
    }

    /// The kernel's own words of each CPU's buffer.
    #[must_use]
    pub fn stats_by_cpu(&self) -> Vec<(String, String)> {
        let folder = self.path.join("per_cpu");
        let text = |cpu: String| {
            let text = fs::read_to_string(folder.join(&cpu).join("stats")).unwrap_or_default();
            (cpu, text)
        };
        names(&folder).into_iter().map(text).collect()
    }

    /// Opens what is written into to leave a mark among the events.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn marker(&self) -> Result<File, TraceError> {
        let path = self.path.join("trace_marker");
        OpenOptions::new().write(true).open(&path).map_err(io_at(&path))
    }

    /// Opens the events as text; those read are gone from the buffers.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn pipe(&self) -> Result<Pipe, TraceError> {
        let path = self.path.join("trace_pipe");
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(&path);
        Ok(Pipe(file.map_err(io_at(&path))?))
    }

    /// Removes it, which dropping does too, and says whether that went well.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn remove(self) -> Result<(), TraceError> {
        self.take_down()
    }

    fn take_down(&self) -> Result<(), TraceError> {
        if !self.path.exists() {
            return Ok(());
        }
        self.set("tracing_on", "0")?;
        self.tracefs.remove_probes(&self.name)?;
        fs::remove_dir(&self.path).map_err(io_at(&self.path))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // What fails here the next recording finds.
        let _ = self.take_down();
    }
}

/// The events of an instance as text.
#[derive(Debug)]
pub struct Pipe(File);

impl Read for Pipe {
    /// As many as there are, 0 if there are none now.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            read => read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffers_counts_are_read_as_the_kernel_prints_them() {
        let text = "entries: 12\noverrun: 3\ncommit overrun: 0\nbytes: 496\noldest event ts:   \
                    33.130372\nnow ts:    35.514203\ndropped events: 4\nread events: 5\n";
        let expected = BufferStats { nr_entries: 12, nr_bytes: 496, nr_read: 5, nr_lost: 7 };
        assert_eq!(BufferStats::parse(text), expected);
    }

    /// On a machine that lets us: an instance and what a killed one left are gone afterwards.
    #[test]
    fn an_instance_is_gone_when_it_is_dropped_and_a_dead_ones_is_found() {
        let Ok(tracefs) = Tracefs::find() else {
            eprintln!("SKIPPED: tracefs is root's, or not in this kernel");
            return;
        };
        let root = tracefs.root.clone();
        // No process has this number.
        let left = root.join("instances/highorder-4194305");
        if let Err(error) = fs::create_dir(&left) {
            eprintln!("SKIPPED: {}: {error}", left.display());
            return;
        }
        let instance = Instance::new(tracefs).unwrap();
        assert!(!left.exists() && instance.path.exists());
        assert!(instance.enable("kmem/mm_page_alloc").unwrap());
        assert!(!instance.enable("kmem/mm_no_such_event").unwrap());
        assert_eq!(instance.tracefs.remove_left().unwrap(), Vec::<String>::new());
        let path = instance.path.clone();
        instance.remove().unwrap();
        assert!(!path.exists());
    }
}
