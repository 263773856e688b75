//! `highorder calibrate`: what this machine is like, as a machine file.

use crate::complete;
use crate::failure::Failure;
use crate::output::{self, Force};
use crate::real::Guests;
use clap_complete::engine::ArgValueCompleter;
use highorder_calibrate::{
    Disk, Found, Place, Shrinkers, check, machine_file, measure_until_possible,
};
use highorder_kernels::machine;
use highorder_lab::{RealOptions, Target};
use highorder_real::{Image, Limits, VmSpec, vm};
use std::path::{Path, PathBuf};

/// Where to, under which name, and which disks.
#[derive(clap::Args)]
#[command(after_help = "\
Measures what primitive work costs here, such as clearing a page, a page fault, a TLB miss or a system \
call, and writes it with nodes, memory, CPUs and distances into a machine file for `highorder run`. Each \
number says how it was measured. Costs that cannot be, such as 0 or a huge page cheaper than a base page, \
are refused and nothing is written. It takes a quarter of a minute and up to 600 MiB; whatever else runs \
meanwhile makes numbers larger, so let the machine be quiet.

For each --disk a nameless file of 64 MiB is written there. Swap areas on these disks are part of the \
machine; others are named in comments. Nothing is changed.

With --on vm:IMAGE a guest measures itself, with the nodes, CPUs, memory and swap of --machine and each \
swap area on a disk of its own: on the machine it writes, the model pays the guest's own costs.

Examples:
  highorder calibrate --out this-machine.toml
  highorder calibrate --on vm:debian:6.12 --out guest.toml")]
pub(crate) struct Arguments {
    /// The machine file to write, instead of standard output
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// A name for the machine, by default the file's
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Measure the disk that this folder lies on; may be given several times
    #[arg(long = "disk", value_name = "FOLDER")]
    disks: Vec<PathBuf>,
    /// Time the kernel's shrinkers, too, for which it gives up inodes and directory entries that nobody uses (as root)
    #[arg(long)]
    drop_caches: bool,
    /// What to measure: host, or a guest: vm:debian:6.12, vm:./bzImage
    #[arg(long, value_name = "WHERE", default_value = "host")]
    on: Target,
    /// The shape of the guest: a machine's name, or a .toml file
    #[arg(long, value_name = "MACHINE", default_value = "guest-tcg", add = ArgValueCompleter::new(complete::machines))]
    machine: String,
    #[command(flatten)]
    guests: Guests,
    #[command(flatten)]
    force: Force,
}

/// Measures, writes the file, and says where it is.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let out = arguments.force.destination(arguments.out.as_deref())?;
    if let Some(file) = out.as_ref().filter(|out| out.is_file())
        && file.name().extension().is_none_or(|ending| ending != "toml")
    {
        let message = "expected a name that ends in .toml, as machine files have to";
        return Err(Failure::input(format!("{}: {message}", file.name().display())));
    }
    let text = match &arguments.on {
        Target::Host => this_machine(arguments)?,
        Target::Vm(image) => guest(image, arguments)?,
        Target::Model => {
            let message =
                "--on model: a model costs what a machine file says, expected host or vm:IMAGE";
            return Err(Failure::input(message));
        }
    };
    match &out {
        Some(out) => output::write(out, text.as_bytes()),
        None => output::print(text.as_bytes()),
    }
}

/// The machine file that a guest writes of itself.
fn guest(image: &Image, arguments: &Arguments) -> Result<String, Failure> {
    if let Some(folder) = arguments.disks.first() {
        let message = "expected none with a guest: its swap disks are what is measured";
        return Err(Failure::input(format!("--disk {}: {message}", folder.display())));
    }
    let machine = machine::load(&arguments.machine)?;
    let input = |error: highorder_real::VmError| Failure::input(error.to_string());
    let RealOptions { accel, icount, guest_time, folder, .. } = arguments.guests.options();
    let spec = VmSpec::new(image.clone(), machine).map_err(input)?;
    let mut spec = VmSpec { accel, icount, scratch: folder, ..spec };
    spec.limits = Limits::of(guest_time, spec.limits.memory_bytes);
    let spinner = output::progress(None, "calibrating in a guest");
    let text = vm::calibrate(&spec, &name(arguments)).map_err(input)?;
    spinner.finish_and_clear();
    Ok(text)
}

/// The machine file of this machine.
fn this_machine(arguments: &Arguments) -> Result<String, Failure> {
    let input = |error: highorder_input::InputError| Failure::input(error.to_string());
    let root = Path::new("/");
    let found = Found::read(root).map_err(input)?;
    let spinner = output::progress(None, "calibrating");
    let mut tell = |what: &'static str| spinner.set_message(format!("measuring {what}"));
    let mut disks: Vec<Disk> = Vec::new();
    for folder in &arguments.disks {
        let disk = Disk::measure(root, &Place::Folder(folder.clone()), &mut tell).map_err(input)?;
        if let Some(earlier) = disks.iter().find(|earlier| earlier.name == disk.name) {
            let message = format!(
                "--disk {}: lies on `{}`, as {} does; expected folders on different disks",
                folder.display(),
                disk.name,
                earlier.place.path().display()
            );
            return Err(Failure::input(message));
        }
        disks.push(disk);
    }
    let folder = arguments.disks.first().cloned().unwrap_or_else(std::env::temp_dir);
    let cpus: Vec<Vec<u32>> = found.nodes.iter().map(|node| node.cpus.clone()).collect();
    let shrinkers = if arguments.drop_caches { Shrinkers::Asked } else { Shrinkers::Spared };
    let costs = measure_until_possible(&Place::Folder(folder), &cpus, shrinkers, &mut tell)
        .map_err(|error| Failure::input(format!("this machine cannot be measured: {error}")))?;
    spinner.finish_and_clear();
    check(&costs).map_err(input)?;
    let text = machine_file(&name(arguments), &found, &disks, &costs);
    // What cannot be read back is not written: a machine of a shape that machine files do not have.
    let path = arguments.out.as_deref().unwrap_or(Path::new("machine.toml"));
    machine::parse(path, &text).map_err(|error| {
        Failure::input(format!("this machine is none that can be modelled:\n{error}"))
    })?;
    Ok(text)
}

/// The name given, or the file's.
fn name(arguments: &Arguments) -> String {
    let file = || Some(arguments.out.as_ref()?.file_stem()?.to_string_lossy().into_owned());
    arguments.name.clone().or_else(file).unwrap_or_else(|| "this machine".to_owned())
}
