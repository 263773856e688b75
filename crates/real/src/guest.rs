//! Process 1 of a guest: runs the one job that it finds, sends what came of it, and ends the machine.
//!
//! A program that can be a guest's calls [`init_if_guest`] first of all in its `main`.

use crate::host::{self, HostSpec, MemoryRule};
use crate::job::{ERROR, JOB, Job, MODULES, SwapDisk, pack};
use highorder_record::{Record, Store};
use highorder_system::Ns;
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, init_module, reboot};
use rustix::termios::{OptionalActions, tcdrain, tcgetattr, tcsetattr};
use std::error::Error;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::panic;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The second serial port; the first is the console.
const PORT: &str = "/dev/ttyS1";
/// Memory that holds what is sent.
const RUN: &str = "/run";
/// How long a disk may take to appear.
const DISK_SECONDS: u64 = 20;

/// If this process is a guest's first, does the guest's job and never returns.
pub fn init_if_guest() {
    if std::process::id() == 1 && Path::new(JOB).exists() {
        init();
    }
}

/// Does the guest's job and ends the machine.
fn init() -> ! {
    let files = match panic::catch_unwind(job) {
        Ok(Ok(files)) => files,
        Ok(Err(error)) => vec![(ERROR.to_owned(), error.to_string().into_bytes())],
        Err(_) => {
            vec![(ERROR.to_owned(), b"its process 1 panicked; the console tells where".to_vec())]
        }
    };
    // If it cannot be sent, whoever waits sees that the guest ended without an answer.
    let _ = send(&files);
    loop {
        // QEMU runs with -no-reboot, so this ends it, whether or not the kernel can switch the power off.
        let _ = reboot(RebootCommand::Restart);
        sleep(Duration::from_secs(1));
    }
}

fn job() -> Outcome<Vec<(String, Vec<u8>)>> {
    for (kind, path) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("tmpfs", RUN)]
    {
        fs::create_dir_all(path)?;
        // The kernel may have mounted /dev already.
        match mount(kind, path, kind, MountFlags::empty(), None) {
            Err(error) if kind != "devtmpfs" => return Err(format!("mount {path}: {error}").into()),
            _ => {}
        }
    }
    let job: Job = serde_json::from_slice(&fs::read(JOB)?)?;
    load_modules()?;
    for disk in &job.swap {
        swap_on(disk).map_err(|error| format!("swap on {}: {error}", disk.name))?;
    }
    let workload = job.configured()?;
    let spec = HostSpec {
        knobs: job.knobs,
        apply_knobs: true,
        seed: job.seed,
        sample_interval: Ns(job.sample_interval_ns),
        memory: MemoryRule::All,
        ..HostSpec::new(Path::new(RUN).join("state"))
    };
    let mut record = host::run(&spec, job.inputs, workload.code())?;
    record.notes.push(job.note);
    files_of(&record)
}

/// A record as the files of a store.
fn files_of(record: &Record) -> Outcome<Vec<(String, Vec<u8>)>> {
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
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(format!("{}: {error}", path.display()).into()),
        }
        // Its content is in the kernel now.
        fs::remove_file(&path)?;
    }
    Ok(())
}

/// Tells the kernel what kind of disk it is, on which how it uses swap depends, and swaps to it.
fn swap_on(disk: &SwapDisk) -> Outcome<()> {
    let device = Path::new("/dev").join(&disk.name);
    let pause = Duration::from_millis(20);
    let mut waited = Duration::ZERO;
    while !device.exists() {
        if waited.as_secs() >= DISK_SECONDS {
            return Err("no such disk; the kernel has no driver for it".into());
        }
        sleep(pause);
        waited += pause;
    }
    let rotational = format!("/sys/block/{}/queue/rotational", disk.name);
    fs::write(rotational, if disk.is_rotating { "1" } else { "0" })?;
    swapon(&device)?;
    Ok(())
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
