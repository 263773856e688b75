//! Process 1 of a guest: runs the one job that it finds, sends what came of it, and ends the machine.
//!
//! A program that can be a guest's calls [`init_if_guest`] first of all in its `main`.

use crate::host::{self, HostSpec, MemoryRule};
pub use crate::job::Files;
use crate::job::{
    ERROR, FileDisk, GuestDisk, JOB, Job, MACHINE, MODULES, Shape, TOLD, Task, Work, pack,
};
use highorder_calibrate::{self as calibrate, Disk, Found, Measured, Place, Shrinkers};
use highorder_record::{Record, Store};
use highorder_system::Ns;
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::system::{RebootCommand, init_module, reboot};
use rustix::termios::{OptionalActions, tcdrain, tcgetattr, tcsetattr};
use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::panic;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64_with_seed;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The first serial port.
const CONSOLE: &str = "/dev/console";
/// The second.
const PORT: &str = "/dev/ttyS1";
/// Memory that holds what is sent.
const RUN: &str = "/run";
/// Where the disk for files is mounted.
const DATA: &str = "/data";
/// Machine files count the capacity of disks in these.
const GB: u64 = 1_000_000_000;
/// How long a disk may take to appear.
const DISK_SECONDS: u64 = 20;

/// What a program does of its own in a guest, of several things by name, and what comes of it: see
/// [`crate::vm::ask`].
pub type Own = fn(&str) -> Result<Files, Box<dyn Error>>;

/// If this process is a guest's first, does the guest's job and never returns.
pub fn init_if_guest() {
    init_if_guest_with(|_| Err("this program does nothing of its own in a guest".into()));
}

/// As [`init_if_guest`], for a program that does something of its own too.
pub fn init_if_guest_with(own: Own) {
    if std::process::id() == 1 && Path::new(JOB).exists() {
        init(own);
    }
}

/// Does the guest's job and ends the machine.
fn init(own: Own) -> ! {
    let files = match panic::catch_unwind(|| job(own)) {
        Ok(Ok(files)) => files,
        Ok(Err(error)) => vec![(ERROR.to_owned(), error.to_string().into_bytes())],
        Err(_) => {
            vec![(ERROR.to_owned(), b"its process 1 panicked; the console tells where".to_vec())]
        }
    };
    tell("sending what came of it");
    // If it cannot be sent, whoever waits sees that the guest ended without an answer.
    let _ = send(&files);
    loop {
        // QEMU runs with -no-reboot, so this ends it, whether or not the kernel can switch the power off.
        let _ = reboot(RebootCommand::Restart);
        sleep(Duration::from_secs(1));
    }
}

fn job(own: Own) -> Outcome<Files> {
    for (kind, path) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("tmpfs", RUN)]
    {
        fs::create_dir_all(path)?;
        // The kernel may have mounted /dev already.
        match mount(kind, path, kind, MountFlags::empty(), None) {
            Err(error) if kind != "devtmpfs" => return Err(cannot_mount(kind, path, error).into()),
            _ => {}
        }
    }
    // Its console has told of the boot; what a run makes it tell would take the run's time.
    fs::write("/proc/sys/kernel/printk", "4")?;
    tell("the kernel is up");
    let text = fs::read(JOB)?;
    fill_entropy_pool(&text)?;
    let job: Job = serde_json::from_slice(&text)?;
    load_modules()?;
    let disks = job.swap.iter().map(ready);
    let disks: Vec<PathBuf> = disks.collect::<Outcome<_>>()?;
    match job.task {
        Task::Run(work) => {
            disks.iter().try_for_each(|disk| swap_on(disk))?;
            tell(&format!("running {}", work.workload));
            run(*work, job.knobs, &job.files)
        }
        Task::Calibrate(shape) => machine(&shape, &disks),
        Task::Own(what) => {
            disks.iter().try_for_each(|disk| swap_on(disk))?;
            own(&what)
        }
    }
}

/// Why a file system cannot be mounted; where the kernel does not know it, with the option that it lacks.
fn cannot_mount(kind: &str, what: &str, error: Errno) -> String {
    let option = match kind {
        "proc" => "CONFIG_PROC_FS",
        "sysfs" => "CONFIG_SYSFS",
        "tmpfs" => "CONFIG_TMPFS and CONFIG_SHMEM",
        "ext4" => "CONFIG_EXT4_FS",
        _ => "",
    };
    match error {
        Errno::NODEV => {
            format!("mount of {what}: the kernel has no {kind}, expected {option}")
        }
        _ => format!("mount of {what} as {kind}: {error}"),
    }
}

/// Tells the kernel that it has random numbers, made of the job: a guest in which nothing happens would wait for them
/// for ever (`getrandom`, before 5.6), and a kernel before 4.19 does not take the processor's. They are no secret.
#[allow(unsafe_code, reason = "no safe interface")]
fn fill_entropy_pool(job: &[u8]) -> Outcome<()> {
    /// Bytes of a seed: as many as a pool holds.
    const BYTES: usize = 512;
    /// Kernels before 4.8 pass a little of it on to the pool that `getrandom` waits for, each time that theirs is
    /// nearly full, and by and by (`credit_entropy_bits`, `push_to_pool`).
    const TIMES: u64 = 100;
    const PAUSE: Duration = Duration::from_millis(2);
    /// `_IOW('R', 0x03, int [2])`, include/uapi/linux/random.h.
    const RNDADDENTROPY: libc::Ioctl = 0x4008_5203;
    #[repr(C)]
    struct Pool {
        bits: libc::c_int,
        bytes: libc::c_int,
        seed: [u8; BYTES],
    }
    // A kernel without the device has nothing that waits for it.
    let Ok(random) = File::options().write(true).open("/dev/random") else { return Ok(()) };
    for time in 0..TIMES {
        // Kernels before 3.17 have no such call, and nobody waits.
        if getrandom(&mut [0; 1], GetRandomFlags::NONBLOCK) != Err(Errno::AGAIN) {
            break;
        }
        let mut pool =
            Pool { bits: 8 * BYTES as libc::c_int, bytes: BYTES as libc::c_int, seed: [0; BYTES] };
        for (number, part) in (time << 32..).zip(pool.seed.chunks_exact_mut(8)) {
            part.copy_from_slice(&xxh3_64_with_seed(job, number).to_le_bytes());
        }
        // SAFETY: the request reads a structure of this form, of which there is one.
        if unsafe { libc::ioctl(random.as_raw_fd(), RNDADDENTROPY, &raw const pool) } != 0 {
            return Err(format!("/dev/random: {}", io::Error::last_os_error()).into());
        }
        sleep(PAUSE);
    }
    Ok(())
}

/// Says on the console what comes next: an error shows it, should the guest never end.
fn tell(what: &str) {
    // A guest without a console does its work all the same.
    let _ = File::options()
        .write(true)
        .open(CONSOLE)
        .and_then(|mut console| console.write_all(format!("{TOLD}{what}\n").as_bytes()));
}

fn run(work: Work, knobs: BTreeMap<String, String>, files: &FileDisk) -> Outcome<Files> {
    let workload = work.configured()?;
    let mut none = String::new();
    let folder = match files {
        FileDisk::Ext4(disk) => Some(mount_files(disk)?),
        FileDisk::Missing(why) => {
            none = format!("this guest has no disk for files: {why}");
            None
        }
    };
    let spec = HostSpec {
        folder,
        no_folder: none,
        knobs,
        apply_knobs: true,
        seed: work.seed,
        sample_interval: Ns(work.sample_interval_ns),
        memory: MemoryRule::All,
        ..HostSpec::new(Path::new(RUN).join("state"))
    };
    let mut record = host::run(&spec, work.inputs, workload.code())?;
    record.notes.push(work.note);
    files_of(&record)
}

/// This guest's machine file, with its swap disks, whose space is measured before it is used.
fn machine(shape: &Shape, disks: &[PathBuf]) -> Outcome<Files> {
    let root = Path::new("/");
    let mut measured = Vec::new();
    let mut tell = |what: &'static str| tell(&format!("measuring {what}"));
    for path in disks {
        let mut disk = Disk::measure(root, &Place::Device(path.clone()), &mut tell)?;
        // It is as large as its swap area; what a part of a unit holds would be lost.
        disk.capacity_bytes = disk.capacity_bytes.next_multiple_of(GB);
        measured.push(disk);
    }
    // Direct reads are timed on a disk; in memory there are none.
    let place = match disks.first() {
        Some(disk) => Place::Device(disk.clone()),
        None => Place::Folder(PathBuf::from(RUN)),
    };
    let cpus: Vec<Vec<u32>> = Found::read(root)?.nodes.into_iter().map(|node| node.cpus).collect();
    let mut costs = calibrate::measure_until_possible(&place, &cpus, Shrinkers::Asked, &mut tell)?;
    calibrate::check(&costs)?;
    // Once a disk is swapped to, nobody else may write to it.
    disks.iter().try_for_each(|disk| swap_on(disk))?;
    if let [disk] = disks {
        tell("swap");
        calibrate::measure_swap(disk, &mut costs)?;
        calibrate::check(&costs)?;
    }
    let mut found = Found::read(root)?;
    for (node, &mib) in found.nodes.iter_mut().zip(&shape.node_mib) {
        node.memory_mib = mib;
    }
    for Measured { source, .. } in &mut costs {
        source.push_str(&format!("; {}", shape.whence));
    }
    let text = calibrate::machine_file(&shape.name, &found, &measured, &costs);
    Ok(vec![(MACHINE.to_owned(), text.into_bytes())])
}

/// A record as the files of a store.
fn files_of(record: &Record) -> Outcome<Files> {
    let store = Store::open(Path::new(RUN).join("store"))?;
    store.put(record)?;
    let entry = store.list()?.pop().ok_or("the store has no record")?;
    let mut files = Vec::new();
    for file in fs::read_dir(entry.path)? {
        let path = file?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        files.push((name, fs::read(path)?));
    }
    Ok(files)
}

fn load_modules() -> Outcome<()> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(MODULES)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    paths.sort();
    for path in paths {
        match init_module(&fs::read(&path)?, c"") {
            // There already: the kernel found it itself.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(format!("{}: {error}", path.display()).into()),
        }
        // Its content is in the kernel now.
        fs::remove_file(&path)?;
    }
    Ok(())
}

/// Mounts the disk for files.
fn mount_files(disk: &GuestDisk) -> Outcome<PathBuf> {
    let device = ready(disk)?;
    fs::create_dir_all(DATA)?;
    // What mkfs left for later is not to be written while a workload runs: fs/ext4/super.c
    // (`ext4_register_li_request`).
    mount(&device, DATA, "ext4", MountFlags::empty(), Some(c"noinit_itable"))
        .map_err(|error| cannot_mount("ext4", &device.display().to_string(), error))?;
    Ok(PathBuf::from(DATA))
}

/// The device of a disk, once it is there, which says of itself whether it rotates as it is to say: how the
/// kernel uses swap depends on it.
fn ready(disk: &GuestDisk) -> Outcome<PathBuf> {
    let device = Path::new("/dev").join(&disk.name);
    let pause = Duration::from_millis(20);
    let mut waited = Duration::ZERO;
    while !device.exists() {
        if waited.as_secs() >= DISK_SECONDS {
            let name = &disk.name;
            return Err(format!(
                "{name}: no such disk; the kernel has no driver for it, expected CONFIG_VIRTIO_PCI and \
                 CONFIG_VIRTIO_BLK, or modules of theirs, and CONFIG_DEVTMPFS"
            )
            .into());
        }
        sleep(pause);
        waited += pause;
    }
    let rotational = format!("/sys/block/{}/queue/rotational", disk.name);
    fs::write(rotational, if disk.says_rotational { "1" } else { "0" })?;
    Ok(device)
}

fn swap_on(device: &Path) -> Outcome<()> {
    swapon(device).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOSYS) => "the kernel cannot swap, expected CONFIG_SWAP".into(),
        _ => format!("swap on {}: {error}", device.display()).into(),
    })
}

#[allow(unsafe_code, reason = "no safe interface")]
fn swapon(device: &Path) -> io::Result<()> {
    let path = CString::new(device.as_os_str().as_encoded_bytes())?;
    // SAFETY: a path that ends with a zero.
    match unsafe { libc::swapon(path.as_ptr(), 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn send(files: &[(String, Vec<u8>)]) -> io::Result<()> {
    let mut port = File::options().write(true).open(PORT)?;
    let mut mode = tcgetattr(&port)?;
    // Bytes as they are: no line ends made of them.
    mode.make_raw();
    tcsetattr(&port, OptionalActions::Now, &mode)?;
    port.write_all(&pack(files))?;
    tcdrain(&port)?;
    Ok(())
}
