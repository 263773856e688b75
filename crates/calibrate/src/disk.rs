//! The disk that a folder lies on: what the kernel says of it, and how fast it is.

#![allow(
    clippy::disallowed_types,
    reason = "measuring real time is what it is for; no result of the model depends on it"
)]

use super::{PAGE, shuffled};
use highorder_input::InputError;
use memmap2::MmapMut;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, fstatvfs};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Size of the file that is read and written, or of that part of a device.
const FILE_BYTES: usize = 64 << 20;
/// Where that part of a device begins: what says what is on it lies before.
const DEVICE_START_BYTES: u64 = 1 << 20;
/// Size of a sequential transfer.
const LONG: usize = 1 << 20;
/// Transfers whose median is the access time.
const SINGLE: usize = 1001;
/// Transfers under way at once when their rate is measured.
const DEPTH: usize = 32;
/// Transfers of each of these threads.
const EACH: usize = 128;
/// A random read of a rotating disk takes more than this; one that does not, does not rotate.
const ROTATING_NS_MIN: f64 = 1e6;

/// CPUs that work for this share of the time are what transfers wait for.
const CPUS_BUSY: f64 = 0.75;

/// What transfers are timed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A nameless file in this folder.
    Folder(PathBuf),
    /// This block device, whose content from 1 MiB to 65 MiB is overwritten: an unused swap area's may be.
    Device(PathBuf),
}

impl Place {
    /// The folder or the device.
    #[must_use]
    pub fn path(&self) -> &Path {
        let (Self::Folder(path) | Self::Device(path)) = self;
        path
    }
}

/// Times of one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// A transfer of 4 KiB at a random place, alone, in nanoseconds: the median.
    pub single_ns: f64,
    /// Such a transfer, if 32 are under way at once: nanoseconds over their number.
    pub shared_ns: f64,
    /// Bytes a second of transfers of 1 MiB in a row.
    pub bytes_per_second: f64,
}

impl Times {
    /// The device's own part, of transfers for each of which a CPU works so long: what it does before and
    /// after a transfer is not the device's, and where it keeps the CPUs busy, the rate of transfers under
    /// way at once is theirs.
    #[must_use]
    pub fn less_cpu(self, cpu_ns: f64, nr_cpus: usize) -> Self {
        let of_cpus_ns = cpu_ns / nr_cpus.max(1) as f64;
        let is_cpus = of_cpus_ns >= CPUS_BUSY * self.shared_ns;
        let shared_ns = if is_cpus { self.transfer_ns() } else { self.shared_ns };
        let single_ns = (self.single_ns - cpu_ns).max(self.transfer_ns());
        Self { single_ns, shared_ns, ..self }
    }

    /// Nanoseconds to move 4 KiB.
    fn transfer_ns(&self) -> f64 {
        PAGE as f64 * 1e9 / self.bytes_per_second
    }

    /// What the device takes for each transfer besides moving it, while others wait.
    #[must_use]
    pub fn command_ns(&self) -> f64 {
        (self.shared_ns - self.transfer_ns()).max(0.0)
    }

    /// What a transfer takes that overlaps with others.
    #[must_use]
    pub fn access_ns(&self) -> f64 {
        (self.single_ns - self.command_ns() - self.transfer_ns()).max(0.0)
    }
}

/// A disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Disk {
    /// The kernel's name, as in `/sys/block`; `disk` where the folder's file system has no device.
    pub name: String,
    /// Its size in bytes.
    pub capacity_bytes: u64,
    /// `nr_requests` of its queue.
    pub nr_requests: u64,
    /// `max_sectors_kb` of its queue.
    pub max_request_kib: u64,
    /// `max_segments` of its queue.
    pub max_segments: u64,
    /// Its queues to the hardware.
    pub hardware_queues: u64,
    /// Whether it rotates.
    pub is_rotating: bool,
    /// Whether its queue says that it does, as those of virtual disks may.
    pub says_rotational: bool,
    /// Reads.
    pub read: Times,
    /// Writes, past the page cache; a cache of the device's own may take them.
    pub write: Times,
    /// Where it was measured.
    pub place: Place,
}

impl Disk {
    /// Measures a disk with 64 MiB of it.
    ///
    /// `root` is where `sys` lies: `/`. `tell` is called with what is measured next.
    ///
    /// # Errors
    /// There is no such folder or device, or it cannot be written to, or it has no transfers past the page
    /// cache.
    pub fn measure(
        root: &Path,
        place: &Place,
        tell: &mut dyn FnMut(&'static str),
    ) -> Result<Self, InputError> {
        let path = place.path();
        let cannot = |action: &str, error: io::Error| InputError::io(path, action, &error);
        let found = std::fs::metadata(path).map_err(|e| cannot("read", e))?;
        let (is_it, expected, device) = match place {
            Place::Folder(_) => {
                (found.is_dir(), "is no folder, expected one on the disk to measure", found.dev())
            }
            Place::Device(_) => {
                let is_block = found.file_type().is_block_device();
                (is_block, "is no block device, expected the disk to measure", found.rdev())
            }
        };
        if !is_it {
            return Err(InputError::file(path, expected));
        }
        tell("disk: writing");
        let file = DirectFile::new(place, FILE_BYTES).map_err(|e| cannot("write", e))?;
        let file = file.ok_or_else(|| {
            let message = "its file system has no transfers past the page cache (O_DIRECT), expected \
                           a folder on a disk";
            InputError::file(path, message)
        })?;
        let time = |is_write| times(&file, is_write).map_err(|e| cannot("measure", e));
        tell("disk: reads");
        let read = time(false)?;
        tell("disk: writes");
        let write = time(true)?;
        let capacity = fstatvfs(&file.file).map_or(0, |fs| fs.f_blocks * fs.f_frsize);
        let block = disk_of(root, device);
        let number = |name: &str| -> Option<u64> {
            std::fs::read_to_string(block.as_ref()?.join(name)).ok()?.trim().parse().ok()
        };
        let says_rotational = number("queue/rotational") == Some(1);
        Ok(Self {
            name: block.as_deref().and_then(name).unwrap_or_else(|| "disk".to_owned()),
            // In sectors of 512 bytes, whatever the disk's own are.
            capacity_bytes: number("size").map_or(capacity, |sectors| sectors * 512),
            // BLKDEV_MAX_RQ, BLK_DEF_MAX_SECTORS and BLK_MAX_SEGMENTS, where no device says.
            nr_requests: number("queue/nr_requests").unwrap_or(128),
            max_request_kib: number("queue/max_sectors_kb").unwrap_or(1280),
            max_segments: number("queue/max_segments").unwrap_or(128),
            hardware_queues: block.as_deref().map_or(1, hardware_queues),
            is_rotating: says_rotational && read.single_ns > ROTATING_NS_MIN,
            says_rotational,
            read,
            write,
            place: place.clone(),
        })
    }
}

/// The folder of `/sys/block` of the disk with this device number, or on which that partition lies.
pub(super) fn disk_of(root: &Path, device: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let path = root.join(format!("sys/dev/block/{major}:{minor}")).canonicalize().ok()?;
    let is_partition = path.join("partition").exists();
    if is_partition { path.parent().map(Path::to_owned) } else { Some(path) }
}

/// How many queues to the hardware a disk of `/sys/block` has.
fn hardware_queues(block: &Path) -> u64 {
    std::fs::read_dir(block.join("mq")).map_or(1, |queues| (queues.count() as u64).max(1))
}

/// The last part of a path.
pub(super) fn name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_string_lossy().into_owned())
}

/// Bytes with content that does not compress, read and written past the page cache.
pub(super) struct DirectFile {
    file: File,
    start: u64,
}

/// So many bytes of a place with content that does not compress, on the disk; and where they begin.
pub(super) fn written(place: &Place, bytes: usize) -> io::Result<(File, u64)> {
    let (file, start) = match place {
        Place::Folder(folder) => (tempfile::tempfile_in(folder)?, 0),
        Place::Device(path) => {
            (File::options().read(true).write(true).open(path)?, DEVICE_START_BYTES)
        }
    };
    let content: Vec<u8> =
        shuffled(LONG / 4).into_iter().flat_map(|n| (n as u32).to_ne_bytes()).collect();
    for at in (0..bytes).step_by(LONG) {
        file.write_all_at(&content[..LONG.min(bytes - at)], start + at as u64)?;
    }
    file.sync_all()?;
    Ok((file, start))
}

impl DirectFile {
    /// So many bytes of a place; none where it cannot be read past the page cache.
    pub(super) fn new(place: &Place, bytes: usize) -> io::Result<Option<Self>> {
        let (file, start) = written(place, bytes)?;
        let flags = fcntl_getfl(&file)?;
        if fcntl_setfl(&file, flags | OFlags::DIRECT).is_err() {
            return Ok(None);
        }
        let direct = Self { file, start };
        let mut page = MmapMut::map_anon(PAGE)?;
        Ok(direct.read(&mut page, 0).is_ok().then_some(direct))
    }

    /// Fills memory with what begins at this byte.
    pub(super) fn read(&self, memory: &mut [u8], at: usize) -> io::Result<()> {
        self.file.read_exact_at(memory, self.start + at as u64)
    }

    fn transfer(&self, memory: &mut [u8], at: usize, is_write: bool) -> io::Result<()> {
        match is_write {
            true => self.file.write_all_at(memory, self.start + at as u64),
            false => self.read(memory, at),
        }
    }
}

fn times(file: &DirectFile, is_write: bool) -> io::Result<Times> {
    let mut memory = MmapMut::map_anon(LONG)?;
    memory.fill(1);
    let mut fastest = f64::INFINITY;
    for _ in 0..3 {
        let start = Instant::now();
        for at in (0..FILE_BYTES).step_by(LONG) {
            file.transfer(&mut memory, at, is_write)?;
        }
        fastest = fastest.min(start.elapsed().as_secs_f64());
    }
    let places = shuffled(FILE_BYTES / PAGE);
    let mut singles = Vec::new();
    for place in &places[..SINGLE] {
        let start = Instant::now();
        file.transfer(&mut memory[..PAGE], place * PAGE, is_write)?;
        singles.push(start.elapsed().as_nanos());
    }
    singles.sort_unstable();
    let mut least = f64::INFINITY;
    for _ in 0..3 {
        let start = Instant::now();
        shared(file, &places, is_write)?;
        least = least.min(start.elapsed().as_nanos() as f64 / (DEPTH * EACH) as f64);
    }
    Ok(Times {
        single_ns: singles[SINGLE / 2] as f64,
        shared_ns: least,
        bytes_per_second: FILE_BYTES as f64 / fastest,
    })
}

/// Transfers of many threads at once.
fn shared(file: &DirectFile, places: &[usize], is_write: bool) -> io::Result<()> {
    std::thread::scope(|scope| {
        let thread = |places: &[usize]| {
            let mut memory = MmapMut::map_anon(PAGE)?;
            places.iter().try_for_each(|place| file.transfer(&mut memory, place * PAGE, is_write))
        };
        let threads: Vec<_> = places[..DEPTH * EACH]
            .chunks(EACH)
            .map(|places| scope.spawn(move || thread(places)))
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a transfer does not panic"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_not_there_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let told = |place: &Place| {
            Disk::measure(Path::new("/"), place, &mut |_| {}).unwrap_err().to_string()
        };
        let of_missing = told(&Place::Folder(missing.clone()));
        assert!(
            of_missing.starts_with(&format!("{}: cannot read: ", missing.display())),
            "{of_missing}"
        );
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(told(&Place::Folder(file.clone())).contains("is no folder"));
        assert!(told(&Place::Device(file)).contains("is no block device"));
    }

    #[test]
    fn nothing_is_left_in_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::Folder(folder.path().to_owned());
        let file = DirectFile::new(&place, 3 * PAGE).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        if let Some(file) = file {
            assert_eq!(file.file.metadata().unwrap().len(), 3 * PAGE as u64);
        }
    }

    #[test]
    fn a_lone_transfer_is_access_command_and_the_move() {
        // 4096 B at 409.6 MB/s are 10 us; at depth 32 each takes 25 us, so 15 are the command.
        let times = Times { single_ns: 100_000.0, shared_ns: 25_000.0, bytes_per_second: 409.6e6 };
        assert!((times.command_ns() - 15_000.0).abs() < 1e-6);
        assert!((times.access_ns() - 75_000.0).abs() < 1e-6);
        let cached = Times { single_ns: 5_000.0, ..times };
        assert_eq!(cached.access_ns(), 0.0);
    }

    #[test]
    fn the_work_of_cpus_is_not_the_disks() {
        let times = Times { single_ns: 100_000.0, shared_ns: 50_000.0, bytes_per_second: 409.6e6 };
        // 45 us of one CPU are most of 50; of the lone 100, 55 are left, of them 10 for the move.
        let own = times.less_cpu(45_000.0, 1);
        assert_eq!([own.command_ns(), own.access_ns()], [0.0, 45_000.0]);
        // Two CPUs would do twice as many: so it is the disk that takes 50, and 40 for the command.
        let own = times.less_cpu(45_000.0, 2);
        assert_eq!([own.command_ns(), own.access_ns()], [40_000.0, 5_000.0]);
    }

    #[test]
    fn a_partition_belongs_to_its_disk() {
        let root = tempfile::tempdir().unwrap();
        let disk = root.path().join("sys/devices/pci/block/vda");
        std::fs::create_dir_all(disk.join("vda1")).unwrap();
        std::fs::write(disk.join("vda1/partition"), "1\n").unwrap();
        let links = root.path().join("sys/dev/block");
        std::fs::create_dir_all(&links).unwrap();
        std::os::unix::fs::symlink(&disk, links.join("254:0")).unwrap();
        std::os::unix::fs::symlink(disk.join("vda1"), links.join("254:1")).unwrap();
        for minor in [0, 1] {
            let found = disk_of(root.path(), rustix::fs::makedev(254, minor)).unwrap();
            assert_eq!(name(&found).as_deref(), Some("vda"));
        }
        assert_eq!(disk_of(root.path(), rustix::fs::makedev(0, 40)), None);
    }
}
