//! Where an experiment's runs are made: on the model, on this machine's kernel, in virtual machines.
//!
//! On a real kernel a variant's kernel file says nothing: its knobs, workload and machine do. Variants that
//! differ in nothing else are one run there. The host is as large as it is, so of a machine file it takes
//! nothing; a guest takes nodes, CPUs, memory and swap, and no costs.

use crate::experiment::{Scale, Variant};
use crate::run_inputs::list;
use highorder_calibrate::Found;
use highorder_input::InputError;
use highorder_real::host::{self, HostError, HostSpec, MemoryRule};
use highorder_real::knobs::Knobs;
use highorder_real::vm::{self, VmError, default_cache};
use highorder_real::{Accel, Image, Limits, VmSpec};
use highorder_record::{Inputs, Named, Record};
use highorder_sim::{Machine, Ns};
use highorder_workload::Configured;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Settings of the host on which what a workload does depends most: with others it is another run.
const HOST_KNOBS: [&str; 9] = [
    "lru_gen/enabled",
    "transparent_hugepage/defrag",
    "transparent_hugepage/enabled",
    "vm.min_free_kbytes",
    "vm.overcommit_memory",
    "vm.page-cluster",
    "vm.swappiness",
    "vm.watermark_boost_factor",
    "vm.watermark_scale_factor",
];

/// Where a run is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The model.
    Model,
    /// The kernel of this machine.
    Host,
    /// A kernel in a virtual machine.
    Vm(Image),
}

impl FromStr for Target {
    type Err = String;

    /// `model`, `host`, or `vm:` and an [`Image`].
    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("vm:")) {
            ("model", _) => Ok(Self::Model),
            ("host", _) => Ok(Self::Host),
            (_, Some(image)) => image.parse().map(Self::Vm),
            _ => Err(format!(
                "`{text}`, expected model, host or vm:IMAGE, as in vm:debian:6.12 or vm:./bzImage"
            )),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model => write!(f, "model"),
            Self::Host => write!(f, "host"),
            Self::Vm(Image::Debian(release)) => write!(f, "vm:debian:{release}"),
            Self::Vm(Image::Path(path)) => write!(f, "vm:{}", path.display()),
        }
    }
}

impl Target {
    /// What records call it: of an image's path the last part, since where it lies changes nothing.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Vm(Image::Path(path)) => {
                format!("vm:{}", path.file_name().unwrap_or(path.as_os_str()).to_string_lossy())
            }
            other => other.to_string(),
        }
    }
}

/// How runs on real kernels are made.
#[derive(Clone, Debug)]
pub struct RealOptions {
    /// How often each is repeated; a guest is booted for each.
    pub boots: u32,
    /// Who executes guests' instructions.
    pub accel: Accel,
    /// Whether guests' time is counted in instructions.
    pub icount: bool,
    /// Real time that a guest may take.
    pub guest_time: Ns,
    /// Where guests' disks lie, without a name.
    pub folder: PathBuf,
    /// Where a folder is made for the files of a workload on the host; without one it has none.
    pub host_folder: Option<PathBuf>,
    /// Whether knobs of this machine may be changed.
    pub apply_knobs: bool,
    /// Whether this machine may be made to swap.
    pub may_swap: bool,
    /// Where it is kept what knobs were.
    pub state_folder: PathBuf,
}

impl Default for RealOptions {
    /// Once, emulated, at most an hour, and nothing of this machine is changed.
    fn default() -> Self {
        Self {
            boots: 1,
            accel: Accel::Tcg,
            icount: false,
            guest_time: Ns::from_secs(3600),
            folder: std::env::temp_dir(),
            host_folder: None,
            apply_knobs: false,
            may_swap: false,
            state_folder: PathBuf::from("/run/highorder"),
        }
    }
}

/// Why there is no record of a run on a real kernel.
#[derive(Debug, thiserror::Error)]
pub enum RealError {
    /// On this machine.
    #[error(transparent)]
    Host(#[from] HostError),
    /// In a guest.
    #[error(transparent)]
    Vm(#[from] VmError),
}

impl RealError {
    /// Whether a signal ended it.
    #[must_use]
    pub fn is_interrupt(&self) -> bool {
        matches!(self, Self::Host(HostError::Interrupted(_)) | Self::Vm(VmError::Interrupted(_)))
    }
}

/// A target that is there and ready, with what records say of it.
#[derive(Clone, Debug)]
pub(crate) enum Ready {
    Model,
    Host { machine: BTreeMap<String, String>, kernel: BTreeMap<String, String> },
    Vm { image: Image, emulator: BTreeMap<String, String>, kernel: BTreeMap<String, String> },
}

/// What a run on a real kernel is given beside what any run is.
#[derive(Clone, Debug)]
pub(crate) enum Real {
    Host(HostSpec),
    Vm(Box<VmSpec>),
}

impl Target {
    /// Looks whether it is there, so that nothing is begun that cannot be.
    ///
    /// # Errors
    /// There is no image, no QEMU, no right to set knobs.
    pub(crate) fn ready(&self, options: &RealOptions, scale: Scale) -> Result<Ready, InputError> {
        match self {
            Self::Model => Ok(Ready::Model),
            Self::Host => {
                if scale != Scale::FULL {
                    return Err(InputError::other(format!(
                        "scale {scale} on the host, expected 1: this machine is as large as it is"
                    )));
                }
                if options.apply_knobs && !rustix::process::geteuid().is_root() {
                    return Err(InputError::other(
                        "knobs of this machine may be set by root only, and this is another user",
                    ));
                }
                if let Some(folder) = options.host_folder.as_deref().filter(|f| !f.is_dir()) {
                    let message = "expected a folder for the workload's files";
                    return Err(InputError::file(folder, message));
                }
                let found = Found::read(Path::new("/"))?;
                let mut machine = host_values(&found);
                if let Some(file_system) = options.host_folder.as_deref().and_then(file_system) {
                    machine.insert("files.file_system".to_owned(), file_system);
                }
                let mut kernel = BTreeMap::new();
                let uname = rustix::system::uname();
                let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
                kernel.insert("kernel".to_owned(), text(uname.release()));
                kernel.insert("version".to_owned(), text(uname.version()));
                let knobs = Knobs::new("/");
                // A kernel may lack any of them.
                let now = HOST_KNOBS.iter().filter_map(|name| Some((name, knobs.get(name).ok()?)));
                kernel.extend(now.map(|(name, value)| ((*name).to_owned(), value)));
                Ok(Ready::Host { machine, kernel })
            }
            Self::Vm(image) => {
                let input = |error: VmError| InputError::other(error);
                let accel = match options.accel {
                    Accel::Tcg => "tcg",
                    Accel::Kvm => "kvm",
                };
                let qemu = vm::qemu_version(Path::new(vm::QEMU)).map_err(input)?;
                let looked = image.look(&default_cache()).map_err(input)?;
                let text = |pairs: &[(&str, String)]| {
                    pairs.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
                };
                let none = || "none".to_owned();
                Ok(Ready::Vm {
                    image: image.clone(),
                    emulator: text(&[
                        ("accel", accel.to_owned()),
                        ("icount", options.icount.to_string()),
                        ("qemu", qemu),
                    ]),
                    kernel: text(&[
                        ("kernel", looked.release),
                        ("image_xxh3", looked.xxh3),
                        ("modules_xxh3", looked.modules_xxh3.unwrap_or_else(none)),
                    ]),
                })
            }
        }
    }

    /// What a variant is called here, if this target is called so.
    ///
    /// A variant that is called as its kernel file is adds nothing to a real kernel's name.
    pub(crate) fn column(&self, name: &str, variant: &Variant) -> String {
        match (self, variant.name == variant.kernel.name) {
            (Self::Model, true) => format!("{name}:{}", variant.name),
            (_, true) => name.to_owned(),
            (_, false) => format!("{} {name}", variant.name),
        }
    }
}

impl Ready {
    /// Machine and kernel of a run's inputs, and what else it takes. None on the model.
    ///
    /// # Errors
    /// The running program cannot be found.
    pub(crate) fn real(
        &self,
        name: String,
        variant: &Variant,
        options: &RealOptions,
        seed: u64,
        sample_interval: Ns,
    ) -> Result<Option<(Named, Named, Real)>, InputError> {
        let (machine, mut kernel, real) = match self {
            Self::Model => return Ok(None),
            Self::Host { machine, kernel } => {
                let rule =
                    MemoryRule::Leave { bytes: host::LEAVE_BYTES, may_swap: options.may_swap };
                let spec = HostSpec {
                    knobs: variant.knobs.clone(),
                    apply_knobs: options.apply_knobs,
                    seed,
                    sample_interval,
                    memory: rule,
                    folder: options.host_folder.clone(),
                    no_folder: NO_FOLDER.to_owned(),
                    ..HostSpec::new(&options.state_folder)
                };
                let machine = Named { name: "this machine".to_owned(), values: machine.clone() };
                (machine, kernel.clone(), Real::Host(spec))
            }
            Self::Vm { image, emulator, kernel } => {
                let spec = VmSpec::new(image.clone(), variant.machine.clone());
                let mut spec = VmSpec {
                    knobs: variant.knobs.clone(),
                    seed,
                    sample_interval,
                    accel: options.accel,
                    icount: options.icount,
                    scratch: options.folder.clone(),
                    ..spec.map_err(InputError::other)?
                };
                spec.limits = Limits::of(options.guest_time, spec.limits.memory_bytes);
                let mut values = guest_values(&variant.machine);
                values.extend(emulator.clone());
                let machine = Named { name: variant.machine.name.clone(), values };
                (machine, kernel.clone(), Real::Vm(Box::new(spec)))
            }
        };
        kernel.extend(variant.knob_texts());
        Ok(Some((machine, Named { name, values: kernel }, real)))
    }
}

impl Real {
    /// Makes the run.
    pub(crate) fn make(&self, inputs: Inputs, workload: &Configured) -> Result<Record, RealError> {
        Ok(match self {
            Self::Host(spec) => host::run(spec, inputs, workload.code())?,
            Self::Vm(spec) => vm::run(spec, inputs, workload)?,
        })
    }

    /// How many such runs may be made at once on so many CPUs; the host's own is alone on the machine.
    pub(crate) fn at_once(&self, nr_cpus: usize) -> usize {
        match self {
            Self::Host(_) => 1,
            Self::Vm(spec) => {
                let all: usize = spec.machine.nodes.iter().map(|node| node.cpus.len()).sum();
                // Emulated CPUs share one thread.
                let each = if spec.accel == Accel::Kvm { all.max(1) } else { 1 };
                (nr_cpus / each).clamp(1, GUESTS_MAX)
            }
        }
    }
}

/// More guests at once disturb each other.
const GUESTS_MAX: usize = 2;

/// What there is in a guest of a machine file.
fn guest_values(machine: &Machine) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    let mut put = |key: String, value: String| drop(values.insert(key, value));
    for (number, node) in machine.nodes.iter().enumerate() {
        put(format!("node.{number}.memory_bytes"), node.memory_bytes.to_string());
        put(format!("node.{number}.cpus"), format!("{}..{}", node.cpus.start, node.cpus.end));
        put(format!("node.{number}.distances"), list(&node.distances));
    }
    for (number, area) in machine.swap.iter().enumerate() {
        let says_rotational = machine.disks[area.device.0 as usize].says_rotational;
        put(format!("swap.{number}.bytes"), area.bytes.to_string());
        put(format!("swap.{number}.says_rotational"), says_rotational.to_string());
    }
    if let Some(disk) = machine.disks.first() {
        put("files.bytes".to_owned(), vm::file_bytes(machine).to_string());
        put("files.says_rotational".to_owned(), disk.says_rotational.to_string());
    }
    values
}

/// What a workload on the host that wants files is told without a folder.
pub(crate) const NO_FOLDER: &str =
    "no folder was given for its files, expected --folder DIR with --on host";

/// The kind of file system that a folder lies on, as `/proc/self/mountinfo` names it.
fn file_system(folder: &Path) -> Option<String> {
    let folder = folder.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    file_system_in(&mounts, &folder)
}

/// Documentation/filesystems/proc.rst: field 5 is where it is mounted; the kind is the first after ` - `. Of
/// two mounts in one place the later hides the earlier.
fn file_system_in(mounts: &str, folder: &Path) -> Option<String> {
    let mount = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        // Blanks in names are written in octal.
        let at = before.split(' ').nth(4)?.replace("\\040", " ");
        let kind = after.split(' ').next()?.to_owned();
        folder.starts_with(&at).then_some((at.len(), kind))
    };
    mounts.lines().filter_map(mount).max_by_key(|(len, _)| *len).map(|(_, kind)| kind)
}

/// What this machine is.
fn host_values(found: &Found) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    let mut put = |key: String, value: String| drop(values.insert(key, value));
    for node in &found.nodes {
        let bytes = node.memory_mib << 20;
        put(format!("node.{}.memory_bytes", node.number), bytes.to_string());
        put(format!("node.{}.cpus", node.number), list(&node.cpus));
        put(format!("node.{}.distances", node.number), list(&node.distances));
    }
    for (number, area) in found.swap.iter().enumerate() {
        put(format!("swap.{number}.bytes"), area.bytes.to_string());
    }
    if let Some(processor) = &found.processor {
        put("processor".to_owned(), processor.clone());
    }
    values
}

/// The variants that are different runs on a real kernel, each with the first that is it.
pub(crate) fn different(variants: &[Variant]) -> Vec<usize> {
    let is_same = |a: &Variant, b: &Variant| {
        a.knobs == b.knobs
            && a.workload.name() == b.workload.name()
            && a.workload.values() == b.workload.values()
            && guest_values(&a.machine) == guest_values(&b.machine)
    };
    let mut first = Vec::new();
    for (number, variant) in variants.iter().enumerate() {
        if !first.iter().any(|&earlier: &usize| is_same(&variants[earlier], variant)) {
            first.push(number);
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_told_by_what_they_are_called() {
        let image = |text: &str| Target::Vm(text.parse().unwrap());
        for (text, target) in [
            ("model", Target::Model),
            ("host", Target::Host),
            ("vm:debian:6.12", image("debian:6.12")),
            ("vm:./a/bzImage", image("./a/bzImage")),
        ] {
            assert_eq!(text.parse::<Target>(), Ok(target.clone()));
            assert_eq!(target.to_string(), text);
        }
        assert_eq!(image("./a/bzImage").name(), "vm:bzImage");
        for bad in ["", "vm", "vm:", "vm:debian:x", "guest"] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_folder_lies_on_the_innermost_and_last_mount() {
        let mounts = "\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
23 22 0:5 / /tmp rw - tmpfs tmpfs rw
24 22 8:2 / /tmp/a\\040b rw shared:1 - xfs /dev/sdb rw
25 22 0:6 / /tmp rw - btrfs x rw
";
        let of = |folder: &str| file_system_in(mounts, Path::new(folder));
        assert_eq!(of("/home/me").as_deref(), Some("ext4"));
        assert_eq!(of("/tmp/c").as_deref(), Some("btrfs"));
        assert_eq!(of("/tmp/a b/c").as_deref(), Some("xfs"));
        assert_eq!(of("/tmpfile").as_deref(), Some("ext4"), "a name that only begins so");
    }

    #[test]
    fn a_scaled_experiment_is_refused_on_the_host() {
        let half = "1/2".parse().unwrap();
        let error = Target::Host.ready(&RealOptions::default(), half).unwrap_err().to_string();
        assert!(error.contains("scale 1/2 on the host, expected 1"), "{error}");
    }
}
