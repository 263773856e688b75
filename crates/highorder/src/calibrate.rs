//! `highorder calibrate`: what this machine is like, as a machine file.

use crate::failure::Failure;
use crate::output::{self, Replace};
use highorder_sim::Machine;
use highorder_sim::calibrate::{Disk, Found, machine_file, measure};
use std::path::{Path, PathBuf};

/// Where to, under which name, and which disks.
#[derive(clap::Args)]
#[command(after_help = "\
Measures what primitive work costs here, such as clearing a page, a page fault, a TLB miss or a system \
call, and writes it with nodes, memory, CPUs and distances into a machine file for `highorder run`. Each \
number says how it was measured. It takes a quarter of a minute and up to 600 MiB; whatever else runs \
meanwhile makes numbers larger, so let the machine be quiet.

For each --disk a nameless file of 64 MiB is written there. Swap areas on these disks are part of the \
machine; others are named in comments. Nothing is changed.")]
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
    /// Replace the file if it is there already
    #[arg(long)]
    force: bool,
}

/// Measures, writes the file, and says where it is.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let replace = if arguments.force { Replace::Yes } else { Replace::No };
    if let Some(path) = &arguments.out {
        if path.exists() && replace == Replace::No {
            let message = "is there already; --force replaces it";
            return Err(Failure::input(format!("{}: {message}", path.display())));
        }
        if path.extension().is_none_or(|ending| ending != "toml") {
            let message = "expected a name that ends in .toml, as machine files have to";
            return Err(Failure::input(format!("{}: {message}", path.display())));
        }
    }
    let input = |error: highorder_sim::InputError| Failure::input(error.to_string());
    let root = Path::new("/");
    let found = Found::read(root).map_err(input)?;
    let spinner = output::progress(None, "calibrating");
    let mut tell = |what: &'static str| spinner.set_message(format!("measuring {what}"));
    let mut disks: Vec<Disk> = Vec::new();
    for folder in &arguments.disks {
        let disk = Disk::measure(root, folder, &mut tell).map_err(input)?;
        if let Some(earlier) = disks.iter().find(|earlier| earlier.name == disk.name) {
            let message = format!(
                "--disk {}: lies on `{}`, as {} does; expected folders on different disks",
                folder.display(),
                disk.name,
                earlier.folder.display()
            );
            return Err(Failure::input(message));
        }
        disks.push(disk);
    }
    let folder = arguments.disks.first().cloned().unwrap_or_else(std::env::temp_dir);
    let cpus: Vec<Vec<u32>> = found.nodes.iter().map(|node| node.cpus.clone()).collect();
    let costs = measure(&folder, &cpus, &mut tell)
        .map_err(|error| Failure::input(format!("this machine cannot be measured: {error}")))?;
    spinner.finish_and_clear();
    let text = machine_file(&name(arguments), &found, &disks, &costs);
    // What cannot be read back is not written: a machine of a shape that machine files do not have.
    let path = arguments.out.as_deref().unwrap_or(Path::new("machine.toml"));
    Machine::parse(path, &text).map_err(|error| {
        Failure::input(format!("this machine is none that can be modelled:\n{error}"))
    })?;
    match &arguments.out {
        Some(path) => {
            output::write_file(path, text.as_bytes(), replace)?;
            output::wrote(path);
            Ok(())
        }
        None => output::print(text.as_bytes()),
    }
}

/// The name given, or the file's.
fn name(arguments: &Arguments) -> String {
    let file = || Some(arguments.out.as_ref()?.file_stem()?.to_string_lossy().into_owned());
    arguments.name.clone().or_else(file).unwrap_or_else(|| "this machine".to_owned())
}
