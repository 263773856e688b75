//! Prints the machine file of this machine: its shape and what primitive work costs, without disks.

use highorder_calibrate::{Found, Place, Shrinkers, machine_file, measure};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let found = Found::read(Path::new("/"))?;
    let cpus: Vec<Vec<u32>> = found.nodes.iter().map(|node| node.cpus.clone()).collect();
    let costs =
        measure(&Place::Folder(std::env::temp_dir()), &cpus, Shrinkers::Spared, &mut |name| {
            eprintln!("{name}");
        })?;
    print!("{}", machine_file("here", &found, &[], &costs));
    Ok(())
}
