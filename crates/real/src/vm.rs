//! Any kernel image as a system: booted in QEMU with a machine file's nodes, CPUs, memory and swap.
//!
//! The guest's process 1 is this program: [`crate::guest`] sets the knobs, runs the workload as
//! [`crate::host`] does and sends its record over a serial port. A program that is linked statically is all
//! that the guest holds; one that is not gets its libraries beside it. Nothing of a run has a name in the
//! file system while the guest runs, so nothing is left of it however it ends, and QEMU ends with the
//! program. For a static program the C library's archive is enough (Debian's libc6-dev):
//!
//! ```sh
//! RUSTFLAGS="-C target-feature=+crt-static" cargo build --release --target x86_64-unknown-linux-gnu
//! ```
//!
//! Files lie on an ext4 of the size that swap areas leave of the machine file's first disk; mkfs.ext4 (package
//! e2fsprogs) makes it before the guest is started.
//!
//! Departs: a swap area is a disk of its own, and so are files, all as fast as the
//! files of this machine. Visible as: swap and files take another time than on the machine file's disks, and
//! never wait for their heads or for each other.
//! Departs: under QEMU 7.2 a guest of several CPUs, which have a thread each unless KVM is used, may run into the
//! breakpoints with which it patches its own code ("Oops: int3"). One that panics so before its first process has
//! started is booted again. Visible as: the run takes longer.

mod cpio;
mod elf;
mod files;
mod image;
mod modules;
mod qemu;

use crate::job::{
    ERROR, FileDisk, Files, GuestDisk, JOB, Job, MACHINE, MODULES, Received, Shape, Task, Work,
};
use crate::proc;
use crate::signals::Watch;
use cpio::Archive;
use elf::Elf;
use highorder_files::limits;
use highorder_kernels::machine;
use highorder_record::store::read_record;
use highorder_record::{Inputs, Record, Source, StoreError};
use highorder_sim::Machine;
use highorder_sim::machine::SwapArea;
use highorder_system::Ns;
use highorder_workload::Configured;
use image::Found;
pub use image::{Image, Looked};
use qemu::{Nameless, Said};
use rustix::fs::{MemfdFlags, memfd_create};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

const MIB: u64 = 1 << 20;

/// What QEMU takes beside the guest's memory: its code, devices and translated code ([`TB_MIB`]).
const QEMU_BYTES: u64 = 512 * MIB;
/// Translated code that is kept, in MiB. QEMU's own default is 1024.
const TB_MIB: u64 = 256;
/// Of the page size that swap areas use; the header is in the first.
const PAGE_BYTES: u64 = 4096;

/// QEMU's name, if no other is given.
pub const QEMU: &str = "qemu-system-x86_64";

/// Who executes the guest's instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accel {
    /// QEMU: slow, and the same everywhere.
    #[default]
    Tcg,
    /// The CPU, through `/dev/kvm`.
    Kvm,
}

/// What a guest may take at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Real time from the start that brings the kernel up to the end.
    pub time: Ns,
    /// Real time from start to the kernel's first process. A guest that takes longer is started again: an
    /// emulated kernel may hang at boot, seldom, and has told nothing of the workload by then.
    pub boot: Ns,
    /// Resident memory of QEMU, that is the guest's and its own.
    pub memory_bytes: u64,
}

impl Limits {
    /// A twelfth of the time is what the boot may take, but a minute if there is one.
    #[must_use]
    pub fn of(time: Ns, memory_bytes: u64) -> Self {
        Self { time, boot: Ns(time.0 / 12).max(Ns::from_secs(60)).min(time), memory_bytes }
    }
}

/// A virtual machine.
#[derive(Clone, Debug)]
pub struct VmSpec {
    /// The kernel.
    pub image: Image,
    /// Nodes, CPUs, memory and swap.
    pub machine: Machine,
    /// Settings, by the kernel's names.
    pub knobs: BTreeMap<String, String>,
    /// Words of the kernel's command line: [`STEADY`], if nothing else is asked for.
    pub options: String,
    /// The root of the workload's random streams.
    pub seed: u64,
    /// How often the timeline is sampled, in the guest's time; never if it is 0.
    pub sample_interval: Ns,
    /// Who executes.
    pub accel: Accel,
    /// Whether the guest's time is counted in instructions, which makes runs nearly repeatable; TCG only.
    pub icount: bool,
    /// Whether its CPUs take turns instead of running at the same time; TCG only. For programs that trace: where one CPU
    /// changes the kernel's code (a static key) while another runs it, QEMU 7.2 jumped into the middle of an instruction
    /// in one of eight guests.
    pub takes_turns: bool,
    /// What it may take.
    pub limits: Limits,
    /// The program that is the guest's process 1: one whose `main` begins with
    /// [`crate::guest::init_if_guest`].
    pub program: PathBuf,
    /// QEMU: a path, or a name that is looked up in `PATH`.
    pub qemu: PathBuf,
    /// Where fetched kernels are kept.
    pub cache: PathBuf,
    /// Where the guest's disks lie, as files without a name.
    pub scratch: PathBuf,
    /// What makes the file system for files: a path, or a name that is looked up in `PATH` and where
    /// administrators' programs lie.
    pub mkfs: PathBuf,
}

impl VmSpec {
    /// A kernel on a machine, emulated, run by the program that runs now: at most an hour, and the machine's
    /// memory with what QEMU takes.
    ///
    /// # Errors
    /// The running program cannot be found.
    pub fn new(image: Image, machine: Machine) -> Result<Self, VmError> {
        let limits = Limits::of(Ns::from_secs(3600), machine.memory_bytes() + QEMU_BYTES);
        Ok(Self {
            image,
            machine,
            knobs: BTreeMap::new(),
            options: STEADY.to_owned(),
            seed: 0,
            sample_interval: Ns::from_secs(1),
            accel: Accel::Tcg,
            icount: false,
            takes_turns: false,
            limits,
            program: std::env::current_exe().map_err(VmError::os("the running program"))?,
            qemu: PathBuf::from(QEMU),
            cache: default_cache(),
            scratch: std::env::temp_dir(),
            mkfs: PathBuf::from(files::MKFS),
        })
    }
}

/// `$HIGHORDER_CACHE`, or else `highorder` in the user's cache folder.
#[must_use]
pub fn default_cache() -> PathBuf {
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(cache) = of("HIGHORDER_CACHE") {
        return PathBuf::from(cache);
    }
    let user = of("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || of("HOME").map(|home| PathBuf::from(home).join(".cache"));
    user.or_else(home).unwrap_or_else(std::env::temp_dir).join("highorder")
}

/// What a QEMU says of its version.
///
/// # Errors
/// There is none, or it does not run.
pub fn qemu_version(qemu: &Path) -> Result<String, VmError> {
    let output = Command::new(qemu).arg("--version").stdin(Stdio::null()).output();
    let output = output.map_err(|source| qemu::not_started(qemu.display(), source))?;
    let first =
        |text: &[u8]| String::from_utf8_lossy(text).lines().next().unwrap_or("no word").to_owned();
    match output.status.success() {
        true => Ok(first(&output.stdout)),
        false => Err(VmError::Qemu { status: output.status, why: first(&output.stderr) }),
    }
}

/// What a program that makes file systems says of its version.
///
/// # Errors
/// There is none, or it does not run.
pub fn mkfs_version(mkfs: &Path) -> Result<String, VmError> {
    files::version(mkfs).map_err(|why| VmError::Mkfs { mkfs: mkfs.to_owned(), why })
}

/// Why there is no record of a guest's run.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
    /// The cache's folder is not fit to be one.
    #[error(transparent)]
    Cache(#[from] highorder_files::FolderError),
    /// The guest says more than any record has.
    #[error("the guest sent more than {}, the limit of {}", limits::GUEST_ANSWER.told(), limits::GUEST_ANSWER.of)]
    Endless,
    /// There is no QEMU.
    #[error("{program}: no such program; Debian's package is qemu-system-x86")]
    NoQemu {
        /// What was looked for.
        program: String,
    },
    /// QEMU itself failed.
    #[error("QEMU ended with {status}: {why}")]
    Qemu {
        /// How.
        status: ExitStatus,
        /// The last line it printed.
        why: String,
    },
    /// `/dev/kvm` is not there or not ours.
    #[error("/dev/kvm: {0}; without it, guests are emulated (tcg)")]
    NoKvm(io::Error),
    /// No file system could be made for files.
    #[error("{}: {why}, expected it to make an ext4 for the guest's files", mkfs.display())]
    Mkfs {
        /// The program.
        mkfs: PathBuf,
        /// What it said.
        why: String,
    },
    /// Two things that do not go together.
    #[error("instructions are counted under tcg only, not under kvm")]
    IcountUnderKvm,
    /// The image is no kernel.
    #[error("{}: {found}, expected a kernel image (bzImage)", path.display())]
    NotAKernel {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: String,
    },
    /// Debian's kernel could not be fetched.
    #[error("debian:{release} cannot be fetched: {why}")]
    Fetch {
        /// Which.
        release: String,
        /// Why.
        why: String,
    },
    /// A module could not be read.
    #[error("{}: {found}, expected a kernel module", path.display())]
    Module {
        /// Its file.
        path: PathBuf,
        /// What it is.
        found: String,
    },
    /// The guest's program cannot run there.
    #[error("{}: {why}, expected a program of x86-64 for the guest", path.display())]
    Program {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The guest has too little memory for kernel and program.
    #[error(
        "a guest of {mib} MiB, expected at least {needed_mib} MiB: the kernel needs {kernel_mib} MiB to \
         start and the program {program_mib} MiB twice, packed and unpacked"
    )]
    SmallGuest {
        /// What the machine file gives it.
        mib: u64,
        /// What it needs.
        needed_mib: u64,
        /// Of it, the kernel.
        kernel_mib: u64,
        /// Of it, the program.
        program_mib: u64,
    },
    /// This machine has too little memory.
    #[error(
        "a guest of {mib} MiB and {qemu_mib} MiB for QEMU: {available_mib} MiB of memory are available, \
         and 1024 MiB are left to others"
    )]
    NoMemory {
        /// The guest's.
        mib: u64,
        /// QEMU's own.
        qemu_mib: u64,
        /// What there is.
        available_mib: u64,
    },
    /// The limit does not even hold the guest's memory.
    #[error("QEMU holds {mib} MiB, expected at most {limit_mib} MiB, the limit")]
    OverMemory {
        /// What it holds.
        mib: u64,
        /// What it may.
        limit_mib: u64,
    },
    /// The kernel did not come up.
    #[error(
        "the guest's kernel had not started its first process after {limit}, {times} times (the boot \
         may take a twelfth of the guest's time, but a minute); its console:\n{console}"
    )]
    NotUp {
        /// What its boot may take.
        limit: Ns,
        /// How often it was tried.
        times: u32,
        /// Its last lines.
        console: String,
    },
    /// It took too long.
    #[error("the guest had not ended after {limit}, the limit; its console:\n{console}")]
    TimedOut {
        /// The limit.
        limit: Ns,
        /// Its last lines.
        console: String,
    },
    /// The guest's kernel panicked.
    #[error("the guest's kernel panicked: {why}; its console:\n{console}")]
    Panicked {
        /// What it said.
        why: String,
        /// Its last lines.
        console: String,
    },
    /// The guest ended without a record.
    #[error("the guest ended without an answer; its console:\n{console}")]
    NoAnswer {
        /// Its last lines.
        console: String,
    },
    /// What came over the serial port is no answer.
    #[error("the guest's answer has {found}, expected a record; its console:\n{console}")]
    Garbled {
        /// What came.
        found: String,
        /// Its last lines.
        console: String,
    },
    /// The guest says why it could not.
    #[error("in the guest: {0}")]
    Guest(String),
    /// A signal asked the program to end.
    #[error("interrupted by signal {0}")]
    Interrupted(i32),
    /// The record that came is none.
    #[error(transparent)]
    Record(#[from] StoreError),
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The operating system said no.
    #[error("{what}: {source}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
}

impl VmError {
    fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }

    fn os<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Os { what, source: source.into() }
    }
}

/// Boots a guest, runs a workload in it and returns its record.
///
/// # Errors
/// [`VmError`]; the guest is gone then as well, and there is never a record of a run that did not end.
pub fn run(spec: &VmSpec, inputs: Inputs, workload: &Configured) -> Result<Record, VmError> {
    let watch = Watch::new();
    let work = Work {
        inputs: Inputs { source: Source::Vm, ..inputs },
        workload: workload.name().to_owned(),
        values: workload.values(),
        seed: spec.seed,
        sample_interval_ns: spec.sample_interval.0,
        note: format!("In a virtual machine: {}.", spec.emulator()),
    };
    let outcome = boot(spec, Task::Run(Box::new(work)), &watch).and_then(record);
    drop(watch);
    outcome
}

/// Boots a guest, measures there what primitive work costs, and returns the guest's machine file, which can
/// be read back. Its swap disks are measured as well.
///
/// # Errors
/// [`VmError`]; the guest is gone then as well.
pub fn calibrate(spec: &VmSpec, name: &str) -> Result<String, VmError> {
    let watch = Watch::new();
    let shape = Shape {
        name: name.to_owned(),
        node_mib: spec.machine.nodes.iter().map(|node| node.memory_bytes / MIB).collect(),
        whence: spec.emulator(),
    };
    let outcome = boot(spec, Task::Calibrate(shape), &watch).and_then(machine_file);
    drop(watch);
    outcome
}

/// Boots a guest whose program does something of its own there, which it gave to
/// [`crate::guest::init_if_guest_with`], asks it for what it knows by this name, and returns the files that came of it.
///
/// # Errors
/// [`VmError`]; the guest is gone then as well.
pub fn ask(spec: &VmSpec, what: &str) -> Result<Files, VmError> {
    let watch = Watch::new();
    let outcome = boot(spec, Task::Own(what.to_owned()), &watch).and_then(files);
    drop(watch);
    Ok(outcome?.0)
}

impl VmSpec {
    /// Who executes the guest's instructions, in words.
    fn emulator(&self) -> String {
        let accel = match (self.accel, self.icount) {
            (Accel::Kvm, _) => "kvm",
            (Accel::Tcg, false) => "tcg",
            (Accel::Tcg, true) => "tcg with icount",
        };
        format!("QEMU, {accel}")
    }

    /// Whether each of several CPUs is emulated by a thread of its own.
    fn emulates_at_once(&self) -> bool {
        self.accel == Accel::Tcg && self.nr_cpus() > 1 && !self.icount && !self.takes_turns
    }

    fn nr_cpus(&self) -> usize {
        self.machine.nodes.iter().map(|node| node.cpus.len()).sum()
    }

    /// What the guest's kernel is told at boot.
    #[must_use]
    pub fn command_line(&self) -> String {
        format!("{COMMAND_LINE} {} rdinit=/init", self.options)
    }
}

/// Boots a guest and waits for what it says.
fn boot(spec: &VmSpec, task: Task, watch: &Watch) -> Result<Said, VmError> {
    if spec.accel == Accel::Kvm {
        if spec.icount {
            return Err(VmError::IcountUnderKvm);
        }
        File::options().read(true).write(true).open("/dev/kvm").map_err(VmError::NoKvm)?;
    }
    let kernel = spec.image.resolve(&spec.cache)?;
    let mut disks = swap_files(spec)?;
    let file_disk = match task {
        Task::Run(_) => file_disk(spec, &mut disks)?,
        Task::Calibrate(_) | Task::Own(_) => FileDisk::Missing("nothing needs one".to_owned()),
    };
    let swap = swap_disks(&spec.machine);
    let job = Job { task, knobs: spec.knobs.clone(), swap, files: file_disk };
    let initramfs = initramfs(&spec.program, &kernel, &job)?;
    check_memory(&spec.machine, &kernel, initramfs.len() as u64)?;

    let mut files = Nameless(Vec::new());
    let mut arguments = machine_arguments(spec);
    let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    add("-append", spec.command_line());
    let archive = memory_file(&initramfs)?;
    add("-initrd", Nameless::path(&archive));
    files.0.push(archive);
    for (number, disk) in disks.into_iter().enumerate() {
        let drive = format!(
            "file={},if=none,id=disk{number},format=raw,cache=unsafe,aio=threads",
            Nameless::path(&disk)
        );
        add("-drive", drive);
        add("-device", format!("virtio-blk-pci,drive=disk{number}"));
        files.0.push(disk);
    }
    drop(initramfs);
    let mut boots = 1;
    loop {
        let mut command = Command::new(&spec.qemu);
        command.args(&arguments).arg("-kernel").arg(&kernel.image);
        match qemu::run(command, &files, spec.limits, watch) {
            // Nothing has been written to its disks.
            Err(VmError::NotUp { .. }) if boots < BOOTS => boots += 1,
            // Most likely it ran into a breakpoint of its own.
            Ok(Said { is_up: false, panic: Some(_), .. })
                if spec.emulates_at_once() && boots < BOOTS =>
            {
                boots += 1;
            }
            Err(VmError::NotUp { limit, console, .. }) => {
                return Err(VmError::NotUp { limit, times: boots, console });
            }
            ended => return ended,
        }
    }
}

/// How often a kernel that does not come up is booted.
const BOOTS: u32 = 3;

/// A panic ends the machine. The kernel tells on the console what it does, so that an error can show it.
const COMMAND_LINE: &str = "console=ttyS0 panic=-1 random.trust_cpu=on";

/// As the recorded cases were booted: addresses and costs that do not differ from boot to boot.
pub const STEADY: &str = "nokaslr mitigations=off";

/// The files of an answer, beside the console's last lines, or why there are none.
fn files(said: Said) -> Result<(Files, String), VmError> {
    let Said { answer, panic, console, is_up: _ } = said;
    match answer {
        Received::Whole(files) => match files.iter().find(|(name, _)| name == ERROR) {
            Some((_, text)) => Err(VmError::Guest(String::from_utf8_lossy(text).into_owned())),
            None => Ok((files, console)),
        },
        Received::Damaged(found) => Err(VmError::Garbled { found, console }),
        Received::Part => Err(match panic {
            Some(why) => VmError::Panicked { why, console },
            None => VmError::NoAnswer { console },
        }),
    }
}

/// What an answer to a workload means.
fn record(said: Said) -> Result<Record, VmError> {
    let (files, console) = files(said)?;
    let folder = tempfile::tempdir().map_err(VmError::os("a temporary folder"))?;
    for (name, bytes) in files {
        let is_plain = !name.starts_with('.') && !name.contains('/');
        if !is_plain {
            return Err(VmError::Garbled { found: format!("a file `{name}`"), console });
        }
        let path = folder.path().join(name);
        fs::write(&path, bytes).map_err(|source| VmError::io(&path, source))?;
    }
    Ok(read_record(folder.path())?)
}

/// The machine file in an answer.
fn machine_file(said: Said) -> Result<String, VmError> {
    let (files, console) = files(said)?;
    let garbled = |found: String| VmError::Garbled { found, console: console.clone() };
    let file = files.into_iter().find(|(name, _)| name == MACHINE);
    let (_, bytes) = file.ok_or_else(|| garbled("no machine file".to_owned()))?;
    let text = String::from_utf8(bytes).map_err(|error| garbled(error.to_string()))?;
    machine::parse(Path::new(MACHINE), &text).map_err(|error| garbled(error.to_string()))?;
    Ok(text)
}

fn machine_arguments(spec: &VmSpec) -> Vec<String> {
    let machine = &spec.machine;
    let nr_cpus = spec.nr_cpus();
    let mut arguments: Vec<String> = Vec::new();
    let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    match spec.accel {
        Accel::Tcg => {
            // CPUs that share a thread take turns ten times a second; instructions are counted in one thread alone.
            let thread = if spec.emulates_at_once() { "multi" } else { "single" };
            add("-accel", format!("tcg,thread={thread},tb-size={TB_MIB}"));
            add("-cpu", "max".to_owned());
        }
        Accel::Kvm => {
            add("-accel", "kvm".to_owned());
            add("-cpu", "host".to_owned());
        }
    }
    if spec.icount {
        // Two nanoseconds an instruction; idle time passes at once.
        add("-icount", "shift=1,sleep=off".to_owned());
        add("-rtc", "base=2020-01-01,clock=vm".to_owned());
        add("-seed", "0".to_owned());
    }
    add("-smp", nr_cpus.to_string());
    add("-m", format!("{}M", machine.memory_bytes() / MIB));
    if machine.nodes.len() > 1 {
        for (number, node) in machine.nodes.iter().enumerate() {
            let backend =
                format!("memory-backend-ram,id=m{number},size={}M", node.memory_bytes / MIB);
            add("-object", backend);
            let mut cpus = String::new();
            if !node.cpus.is_empty() {
                cpus = format!(",cpus={}-{}", node.cpus.start, node.cpus.end - 1);
            }
            add("-numa", format!("node,nodeid={number},memdev=m{number}{cpus}"));
        }
        for (from, node) in machine.nodes.iter().enumerate() {
            for (to, distance) in node.distances.iter().enumerate().filter(|(to, _)| *to != from) {
                add("-numa", format!("dist,src={from},dst={to},val={distance}"));
            }
        }
    }
    add("-display", "none".to_owned());
    add("-monitor", "none".to_owned());
    add("-nic", "none".to_owned());
    // A guest that breaks out of its QEMU can start nothing and change nobody's rights.
    add(
        "-sandbox",
        "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny".to_owned(),
    );
    arguments.push("-no-user-config".to_owned());
    arguments.push("-no-reboot".to_owned());
    arguments
}

/// Kernel and program have to fit, and this machine has to have room for the guest.
fn check_memory(machine: &Machine, kernel: &Found, initramfs: u64) -> Result<(), VmError> {
    let bytes = machine.memory_bytes();
    let needed = kernel.init_bytes + 2 * initramfs;
    let mib = |bytes: u64| bytes.div_ceil(MIB);
    if bytes < needed {
        return Err(VmError::SmallGuest {
            mib: mib(bytes),
            needed_mib: mib(needed),
            kernel_mib: mib(kernel.init_bytes),
            program_mib: mib(initramfs),
        });
    }
    let available = proc::available_bytes()
        .map_err(|error| VmError::Os { what: "/proc/meminfo", source: io::Error::other(error) })?;
    if available < bytes + QEMU_BYTES + crate::host::LEAVE_BYTES {
        return Err(VmError::NoMemory {
            mib: mib(bytes),
            qemu_mib: QEMU_BYTES / MIB,
            available_mib: available / MIB,
        });
    }
    Ok(())
}

/// The guest's swap disks, which it finds first, in this order.
fn swap_disks(machine: &Machine) -> Vec<GuestDisk> {
    let disk = |(number, area): (usize, &SwapArea)| {
        let says_rotational = machine.disks[area.device.0 as usize].says_rotational;
        GuestDisk { name: disk_name(number), says_rotational }
    };
    machine.swap.iter().enumerate().map(disk).collect()
}

/// vda, vdb ...: more than 26 swap areas are none that a kernel takes (MAX_SWAPFILES is 32, less what other
/// uses take).
fn disk_name(number: usize) -> String {
    format!("vd{}", char::from(b'a' + (number % 26) as u8))
}

fn swap_files(spec: &VmSpec) -> Result<Vec<OwnedFd>, VmError> {
    spec.machine.swap.iter().map(|area| swap_file(area.bytes, &spec.scratch)).collect()
}

/// Adds the disk for files, if there can be one.
fn file_disk(spec: &VmSpec, disks: &mut Vec<OwnedFd>) -> Result<FileDisk, VmError> {
    let Some(disk) = spec.machine.disks.first() else {
        return Ok(FileDisk::Missing("its machine file has no disk".to_owned()));
    };
    let made = files::make(file_bytes(&spec.machine), &spec.scratch, &spec.mkfs)?;
    let name = disk_name(disks.len());
    Ok(match made {
        Ok(file) => {
            disks.push(file);
            FileDisk::Ext4(GuestDisk { name, says_rotational: disk.says_rotational })
        }
        Err(why) => FileDisk::Missing(why),
    })
}

/// Bytes for files on a machine's first disk: what lies behind its last swap area, as in the model.
#[must_use]
pub fn file_bytes(machine: &Machine) -> u64 {
    let Some(disk) = machine.disks.first() else { return 0 };
    let areas = machine.swap.iter().filter(|area| area.device.0 == 0);
    let end = areas.map(|area| area.offset_bytes + area.bytes).max().unwrap_or(0);
    disk.capacity_bytes.saturating_sub(end.next_multiple_of(PAGE_BYTES))
}

/// A file without a name that begins as a swap area does: include/linux/swap.h (`union swap_header`).
fn swap_file(bytes: u64, scratch: &Path) -> Result<OwnedFd, VmError> {
    let io = |source| VmError::io(scratch, source);
    let mut file = tempfile::tempfile_in(scratch).map_err(io)?;
    let last_page = (bytes / PAGE_BYTES).saturating_sub(1) as u32;
    let mut write = || {
        file.set_len(bytes)?;
        file.seek(SeekFrom::Start(1024))?;
        // Version, last page, number of bad pages.
        for number in [1, last_page, 0] {
            file.write_all(&number.to_le_bytes())?;
        }
        file.seek(SeekFrom::Start(PAGE_BYTES - 10))?;
        file.write_all(b"SWAPSPACE2")
    };
    write().map_err(io)?;
    Ok(OwnedFd::from(file))
}

fn memory_file(content: &[u8]) -> Result<OwnedFd, VmError> {
    let fd = memfd_create("initramfs", MemfdFlags::CLOEXEC).map_err(VmError::os("memfd_create"))?;
    let mut file = File::from(fd);
    file.write_all(content).map_err(VmError::os("memfd_create"))?;
    Ok(OwnedFd::from(file))
}

/// The guest's first file system: the program as `/init`, its libraries if it has any, modules and the job.
fn initramfs(program: &Path, kernel: &Found, job: &Job) -> Result<Vec<u8>, VmError> {
    let mut archive = Archive::new();
    let bytes = fs::read(program).map_err(|source| VmError::io(program, source))?;
    let bad = |why: &str| VmError::Program { path: program.to_owned(), why: why.to_owned() };
    let elf = Elf::new(&bytes).ok_or_else(|| bad("no ELF file of 64 bits"))?;
    let small = elf.without_debugging().ok_or_else(|| bad("a damaged ELF file"))?;
    archive.file("init", &small);
    if let Some(loader) = elf.interpreter() {
        for library in libraries(program, &loader)? {
            let bytes = fs::read(&library).map_err(|source| VmError::io(&library, source))?;
            let small = Elf::new(&bytes).and_then(|elf| elf.without_debugging()).unwrap_or(bytes);
            archive.file(&library.display().to_string(), &small);
        }
    }
    archive.folder(MODULES.trim_start_matches('/'));
    if let Some(folder) = &kernel.modules {
        for (number, (name, module)) in modules::needed(folder)?.into_iter().enumerate() {
            archive.file(&format!("{MODULES}/{number:02}-{name}.ko"), &module);
        }
    }
    archive.file(JOB, &serde_json::to_vec(job).expect("a job is JSON"));
    Ok(archive.finish())
}

/// The loader of a program and the libraries that it would load, as ldd(1) asks it.
fn libraries(program: &Path, loader: &str) -> Result<Vec<PathBuf>, VmError> {
    let bad = |why: String| VmError::Program { path: program.to_owned(), why };
    let listed = Command::new(loader).arg("--list").arg(program).stdin(Stdio::null()).output();
    let listed = listed.map_err(|e| bad(format!("its loader {loader} does not run: {e}")))?;
    if !listed.status.success() {
        let why = String::from_utf8_lossy(&listed.stderr).trim().to_owned();
        return Err(bad(format!("its libraries are not found: {why}")));
    }
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let mut paths = vec![PathBuf::from(loader)];
    // `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x...)`; the vdso has no path.
    for line in text.lines() {
        let path = line.split_once("=> ").map(|(_, rest)| rest);
        let path = path.and_then(|rest| rest.split(" (0x").next()).map(str::trim);
        if let Some(path) = path.filter(|path| path.starts_with('/') && *path != loader) {
            paths.push(PathBuf::from(path));
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_swap_area_begins_as_the_kernel_wants_it() {
        let folder = tempfile::tempdir().unwrap();
        let fd = swap_file(64 * MIB, folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "it has no name");
        let mut file = File::from(fd);
        file.rewind().unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len() as u64, 64 * MIB);
        assert_eq!(&bytes[4086..4096], b"SWAPSPACE2");
        assert_eq!(&bytes[1024..1032], [1, 0, 0, 0, 0xff, 0x3f, 0, 0]);
    }

    #[test]
    fn files_get_what_swap_leaves_of_the_first_disk() {
        let mut machine = machine::load("guest-tcg").unwrap();
        let capacity = machine.disks[0].capacity_bytes;
        assert_eq!(file_bytes(&machine), capacity - machine.swap[0].bytes);
        machine.swap.clear();
        assert_eq!(file_bytes(&machine), capacity);
        machine.disks.clear();
        assert_eq!(file_bytes(&machine), 0);
    }

    #[test]
    fn machines_are_given_to_qemu_with_their_nodes() {
        let machine = machine::load("two-node-64g").unwrap();
        let spec = VmSpec::new(Image::Debian("6.12".into()), machine.clone()).unwrap();
        let arguments = machine_arguments(&spec).join(" ");
        assert!(arguments.contains("-m 65536M"), "{arguments}");
        assert!(arguments.contains("-numa node,nodeid=1,memdev=m1,cpus="), "{arguments}");
        let distance = machine.nodes[0].distances[1];
        assert!(arguments.contains(&format!("-numa dist,src=0,dst=1,val={distance}")));
        assert!(arguments.contains("-accel tcg"), "{arguments}");
    }

    #[test]
    fn a_dynamic_program_gets_its_libraries_and_loader() {
        let program = std::env::current_exe().unwrap();
        let bytes = fs::read(&program).unwrap();
        let Some(loader) = Elf::new(&bytes).unwrap().interpreter() else {
            eprintln!("SKIPPED: the test itself is linked statically");
            return;
        };
        let found = libraries(&program, &loader).unwrap();
        assert_eq!(found[0], PathBuf::from(loader));
        assert!(found.iter().any(|path| path.to_string_lossy().contains("libc.so")), "{found:?}");
        assert!(found.iter().all(|path| path.is_file()), "{found:?}");
    }
}
