//! A program for tests and for trying things out: workloads on this machine or in a virtual one.
//!
//! ```text
//! on-real host-sleep NAME ROOT     sleeps in a thread NAME while knobs below ROOT are changed
//! on-real vm IMAGE MACHINE WORKLOAD [NAME=VALUE ...]
//!                                  runs a workload in a guest and prints what came of it
//! on-real calibrate IMAGE MACHINE NAME
//!                                  prints the machine file of a guest
//! ```
//!
//! As process 1 of a guest it is that guest's program.

use highorder_real::host::{self, HostSpec};
use highorder_real::{VmSpec, guest, vm};
use highorder_record::{Inputs, time_lines};
use highorder_sim::Machine;
use highorder_system::{Ns, System, ThreadSpec};
use highorder_workload::{Value, find};
use std::collections::BTreeMap;
use std::process::ExitCode;

fn main() -> ExitCode {
    guest::init_if_guest();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        ["host-sleep", name, root] => host_sleep(name, root),
        ["vm", image, machine, workload, ref values @ ..] => vm(image, machine, workload, values),
        ["calibrate", image, machine, name] => calibrate(image, machine, name),
        _ => Err(
            "expected host-sleep NAME ROOT, vm IMAGE MACHINE WORKLOAD or calibrate IMAGE MACHINE \
                 NAME"
                .to_owned(),
        ),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn host_sleep(name: &str, root: &str) -> Result<(), String> {
    let mut spec = HostSpec::new(format!("{root}/state"));
    spec.knob_root = root.into();
    spec.apply_knobs = true;
    spec.knobs.insert("vm.swappiness".to_owned(), "10".to_owned());
    let name = name.to_owned();
    let code = Box::new(move |sys: &mut dyn System| {
        let sleep = Box::new(|sys: &mut dyn System| sys.sleep(Ns::from_secs(60)));
        let thread = sys.spawn(ThreadSpec::process(name), sleep)?;
        sys.join(thread)
    });
    host::run(&spec, Inputs::default(), code).map(drop).map_err(|error| error.to_string())
}

fn vm(image: &str, machine: &str, workload: &str, values: &[&str]) -> Result<(), String> {
    let machine = Machine::load(machine).map_err(|error| error.to_string())?;
    let mut given = BTreeMap::new();
    for value in values {
        let (name, text) = value.split_once('=').ok_or("expected NAME=VALUE")?;
        let value = match (text.parse(), text.parse()) {
            (Ok(integer), _) => Value::Integer(integer),
            (_, Ok(float)) => Value::Float(float),
            _ => Value::Text(text.to_owned()),
        };
        given.insert(name.to_owned(), value);
    }
    let workload = find(workload, &given).map_err(|error| error.to_string())?;
    let spec = VmSpec::new(image.parse()?, machine).map_err(|error| error.to_string())?;
    let record = vm::run(&spec, Inputs::default(), &workload).map_err(|error| error.to_string())?;
    for metric in &record.metrics {
        println!("{} {:?} {}", metric.name, metric.samples, metric.unit);
    }
    print!("{}", time_lines(&record));
    record.notes.iter().for_each(|note| println!("{note}"));
    Ok(())
}

fn calibrate(image: &str, machine: &str, name: &str) -> Result<(), String> {
    let machine = Machine::load(machine).map_err(|error| error.to_string())?;
    let spec = VmSpec::new(image.parse()?, machine).map_err(|error| error.to_string())?;
    print!("{}", vm::calibrate(&spec, name).map_err(|error| error.to_string())?);
    Ok(())
}
