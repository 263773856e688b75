//! A program for tests and for trying things out: workloads on this machine or in a virtual one.
//!
//! ```text
//! on-real host-sleep NAME ROOT     sleeps in a thread NAME while knobs below ROOT are changed
//! on-real vm IMAGE MACHINE WORKLOAD [NAME=VALUE ...]
//!                                  runs a workload in a guest and prints what came of it
//! on-real calibrate IMAGE MACHINE NAME
//!                                  prints the machine file of a guest
//! on-real change-knobs END         changes settings of this machine and sleeps, panics or is refused
//! ```
//!
//! As process 1 of a guest it is that guest's program. What it does there of its own is to end runs that have
//! changed settings in every way, and to say what the settings were afterwards.

use highorder_kernels::machine;
use highorder_real::host::{self, HostSpec, MemoryRule};
use highorder_real::knobs::{KnobError, Knobs, restore_knobs};
use highorder_real::{VmSpec, guest, vm};
use highorder_record::{Inputs, time_lines};
use highorder_system::{Failure, KernelBlock, Ns, System, ThreadSpec};
use highorder_workload::{Value, find};
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

/// Where a guest's run keeps what settings were.
const STATE: &str = "/run/state-of-knobs";
/// No kernel boots with this swappiness.
const SWAPPINESS: &str = "93";

fn main() -> ExitCode {
    guest::init_if_guest_with(own);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        ["host-sleep", name, root] => host_sleep(name, root),
        ["vm", image, machine, workload, ref values @ ..] => vm(image, machine, workload, values),
        ["calibrate", image, machine, name] => calibrate(image, machine, name),
        ["change-knobs", end] => change_knobs(end),
        _ => Err(
            "expected host-sleep NAME ROOT, vm IMAGE MACHINE WORKLOAD, calibrate IMAGE MACHINE \
                  NAME or change-knobs END"
                .to_owned(),
        ),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody may be listening.
            let _ = writeln!(std::io::stderr(), "error: {error}");
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
    let machine = machine::load(machine).map_err(|error| error.to_string())?;
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
    let machine = machine::load(machine).map_err(|error| error.to_string())?;
    let spec = VmSpec::new(image.parse()?, machine).map_err(|error| error.to_string())?;
    print!("{}", vm::calibrate(&spec, name).map_err(|error| error.to_string())?);
    Ok(())
}

/// Settings that a run changes, and that its workload does.
fn change_knobs(end: &str) -> Result<(), String> {
    let mut spec = HostSpec { memory: MemoryRule::All, ..HostSpec::new(STATE) };
    spec.apply_knobs = true;
    for (name, value) in [
        ("lru_gen/enabled", "0"),
        ("transparent_hugepage/enabled", "always"),
        ("transparent_hugepage/defrag", "defer"),
        ("vm.dirty_bytes", "67108864"),
        ("vm.watermark_scale_factor", "200"),
    ] {
        spec.knobs.insert(name.to_owned(), value.to_owned());
    }
    let end = end.to_owned();
    let code = Box::new(move |sys: &mut dyn System| {
        let huge = sys.take_block(KernelBlock::Hugetlb)?;
        huge.ok_or_else(|| Failure::Refused("no huge page for the pool".to_owned()))?;
        sys.set_knob("vm.page-cluster", "0")?;
        sys.set_knob("vm.swappiness", SWAPPINESS)?;
        match end.as_str() {
            "panic" => panic!("as it was told"),
            "refusal" => Err(Failure::Refused("as it was told".to_owned())),
            "end" => Ok(()),
            _ => sys.sleep(Ns::from_secs(600)),
        }
    });
    host::run(&spec, Inputs::default(), code).map(drop).map_err(|error| error.to_string())
}

/// In a guest, whatever it is asked for: [`end_runs_in_every_way`].
fn own(_: &str) -> Result<guest::Files, Box<dyn Error>> {
    Ok(vec![("ends".to_owned(), end_runs_in_every_way()?.into_bytes())])
}

/// A line for each way in which a run ends, with what its settings were afterwards.
fn end_runs_in_every_way() -> Result<String, String> {
    let mut lines = String::new();
    let before = settings();
    for (name, end, signal) in [
        ("end", "end", None),
        ("refusal", "refusal", None),
        ("panic", "panic", None),
        ("SIGINT", "sleep", Some(libc::SIGINT)),
        ("SIGTERM", "sleep", Some(libc::SIGTERM)),
        ("SIGHUP", "sleep", Some(libc::SIGHUP)),
        ("SIGKILL", "sleep", Some(libc::SIGKILL)),
    ] {
        let mut child = start(end)?;
        if let Some(signal) = signal {
            wait_until_changed()?;
            send(child.id() as i32, signal);
        }
        let status = child.wait().map_err(|error| error.to_string())?;
        let how = match (status.signal(), status.code()) {
            (Some(signal), _) => format!("signal {signal}"),
            (None, code) => format!("code {}", code.unwrap_or_default()),
        };
        // Of a program that was killed, its warden puts them back.
        if signal == Some(libc::SIGKILL) {
            wait_until("settings are put back", || !journal().exists())?;
        }
        let differ = differences(&before, &settings());
        let _ = writeln!(lines, "{name}: {how}, {} {differ:?}", is_there(&journal()));
    }
    // A crash: all of the run's processes at once, those that put settings back too.
    let mut child = start("sleep")?;
    wait_until_changed()?;
    send(-1, libc::SIGKILL);
    child.wait().map_err(|error| error.to_string())?;
    let changed = differences(&before, &settings()).len();
    let _ = writeln!(lines, "crash: {}, {changed} settings differ", is_there(&journal()));
    let restored = loop {
        match restore_knobs(&Knobs::new("/"), Path::new(STATE)) {
            // Until the last of them is gone.
            Err(KnobError::InUse { .. }) => std::thread::sleep(Duration::from_millis(20)),
            outcome => break outcome.map_err(|error| error.to_string())?,
        }
    };
    let differ = differences(&before, &settings());
    let names: Vec<String> = restored.into_iter().map(|former| former.name).collect();
    let _ =
        writeln!(lines, "restore-knobs: {} {differ:?}, put back {names:?}", is_there(&journal()));
    Ok(lines)
}

fn journal() -> PathBuf {
    Path::new(STATE).join("knobs-to-restore")
}

fn is_there(path: &Path) -> &'static str {
    if path.exists() { "a journal" } else { "no journal" }
}

fn start(end: &str) -> Result<Child, String> {
    let mut command = Command::new("/proc/self/exe");
    command.args(["change-knobs", end]).stdin(Stdio::null()).stderr(Stdio::null());
    command.spawn().map_err(|error| format!("/proc/self/exe: {error}"))
}

/// The workload sets it last.
fn wait_until_changed() -> Result<(), String> {
    let knobs = Knobs::new("/");
    wait_until("settings have changed", || {
        knobs.get("vm.swappiness").is_ok_and(|now| now == SWAPPINESS)
    })
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) -> Result<(), String> {
    for _ in 0..1500 {
        if is_so() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(format!("30 s passed, and not: {what}"))
}

/// What can be read below `/proc/sys/vm` and `/sys/kernel/mm`, by path.
fn settings() -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let folders = ["transparent_hugepage", "lru_gen", "hugepages"];
    let folders = folders.map(|folder| Path::new("/sys/kernel/mm").join(folder));
    let mut waiting: Vec<PathBuf> = vec![PathBuf::from("/proc/sys/vm")];
    waiting.extend(folders);
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                waiting.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                // What khugepaged has done is no setting.
                let is_count = ["full_scans", "pages_collapsed"].iter().any(|n| path.ends_with(n));
                if !is_count {
                    found.insert(path, text);
                }
            }
        }
    }
    found
}

fn differences(
    before: &BTreeMap<PathBuf, String>,
    after: &BTreeMap<PathBuf, String>,
) -> Vec<String> {
    let differs = |(path, text): (&PathBuf, &String)| {
        let now = after.get(path).map_or("nothing", String::as_str);
        let (text, now) = (text.trim(), now.trim());
        (text != now).then(|| format!("{} was {text}, is {now}", path.display()))
    };
    before.iter().filter_map(differs).collect()
}

#[allow(unsafe_code, reason = "the signals that people send")]
fn send(pid: i32, signal: i32) {
    // SAFETY: to a child that has not been waited for, or in a guest to all but process 1.
    unsafe { libc::kill(pid, signal) };
}
