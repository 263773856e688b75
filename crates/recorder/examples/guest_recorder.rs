//! The guest of the recorder's tests: what process 1 of a small virtual machine is asked for.
//!
//! `record` records a workload and sends the file, and before that has recordings end in every other way: by a signal,
//! by a panic, and by a kill. What tracefs tells of itself has to be the same before and after each. The other verbs are
//! the processes that it starts.
//!
//! `demand KNOB=VALUE,...` fills and fragments memory, sets these knobs, and sends a recording of what goes on then: what
//! `what-if` is held against.

use highorder_files::{Destination, Replace};
use highorder_real::guest::{self, Files};
use highorder_real::signals::Watch;
use highorder_recorder::{Keep, Options, record, remove_left};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, Signal, kill_process};
use std::error::Error;
use std::fs;
use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const TRACING: &str = "/sys/kernel/tracing";
const PAGE: usize = 4096;
/// Maps and unmaps every allocation of a page or more.
const MAP_MEMORY: &str = "glibc.malloc.mmap_threshold=4096";
/// What tells whether somebody traces.
const GLOBAL: [&str; 7] = [
    "tracing_on",
    "current_tracer",
    "trace_clock",
    "buffer_size_kb",
    "set_event",
    "kprobe_events",
    "events/enable",
];
const RECORDING: &str = "/tmp/now.recording";
/// What is there once a recording has begun.
const BEGAN: &str = "/tmp/began";
/// Where one of these processes says what went wrong.
const WHY: &str = "/tmp/why";
/// Of what is free when `demand` begins, what is left by the two that fill memory, for the kernel and the recorder.
const LEFT_MIB: u64 = 112;
/// What they write and give back at once, and of how many such pieces one is not there.
const HOLE_PAGES: usize = 16;
const HOLE_EVERY: usize = 10;
/// What the third maps, writes, holds and unmaps, round after round: as base pages, so that what was free in large blocks
/// is in use piece by piece and comes back so; without advice; with advice for huge pages.
const USEMEM_MIB: usize = 96;
/// How long it holds it, and how long it rests.
const USEMEM_PAUSE: Duration = Duration::from_millis(1500);
/// How long it goes on before it is recorded.
const WARM_UP: Duration = Duration::from_secs(60);

fn main() {
    guest::init_if_guest_with(init);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.first().map_or("", String::as_str) {
        "record" => take(&arguments[1]),
        "churn" => churn(&Churn {
            live_bytes: 60 << 20,
            shares: [50, 35],
            writes: true,
            pause: Duration::from_millis(5),
        }),
        "fill" => fill(&arguments[1]),
        "usemem" => usemem(),
        _ => Err("this is the program of a guest".into()),
    };
    if let Err(error) = outcome {
        eprintln!("{error}");
        let _ = fs::write(WHY, error.to_string());
        std::process::exit(1);
    }
}

fn init(verb: &str) -> Outcome<Files> {
    fs::create_dir_all("/tmp")?;
    mount("tmpfs", "/tmp", "tmpfs", MountFlags::empty(), Some(c"mode=1777,size=90%"))?;
    fs::write("/sys/kernel/mm/transparent_hugepage/enabled", "always")?;
    match verb.split_once(' ') {
        None if verb == "record" => everything(),
        Some(("demand", knobs)) => demand(knobs),
        _ => Err(format!("found verb `{verb}`, expected record or demand").into()),
    }
}

/// This program once more. What makes a demand maps and unmaps all of its memory; what records does as it does elsewhere.
fn spawn(arguments: &[&str]) -> io::Result<Child> {
    let mut command = Command::new("/init");
    if arguments[0] != "record" {
        command.env("GLIBC_TUNABLES", MAP_MEMORY);
    }
    command.args(arguments).spawn()
}

fn everything() -> Outcome<Files> {
    // Where nobody has mounted tracefs, the recorder has a mount of its own.
    ended(spawn(&["record", "0.2"])?.wait()?)?;
    fs::remove_file(RECORDING)?;
    mount("tracefs", TRACING, "tracefs", MountFlags::empty(), None)?;
    // Somebody else traces meanwhile, and is not disturbed.
    fs::write(format!("{TRACING}/events/oom/enable"), "1")?;
    let before = told()?;

    for signal in [Signal::INT, Signal::HUP] {
        let mut child = spawn(&["record", "600"])?;
        wait_until_it_records()?;
        kill_process(Pid::from_child(&child), signal)?;
        child.wait()?;
        same(&before, &format!("after {signal:?}"))?;
        // What there was until then is kept.
        fs::remove_file(RECORDING)?;
    }
    let mut child = spawn(&["record", "panic"])?;
    child.wait()?;
    same(&before, "after a panic")?;

    kill(spawn(&["record", "600"])?)?;
    if told()? == before {
        return Err("a killed recording left nothing: the test does not test".into());
    }
    let removed = remove_left()?;
    if removed.is_empty() {
        return Err("nothing was found of a killed recording".into());
    }
    same(&before, "after restore-knobs")?;

    kill(spawn(&["record", "600"])?)?;
    let mut churning = [spawn(&["churn"])?, spawn(&["churn"])?];
    record_while(&mut churning, 4)?;
    same(&before, "after a recording behind a killed one")?;
    if fs::exists("/tmp/panicked.recording")? {
        return Err("a recording that panicked left a file".into());
    }
    let told = removed.join("\n").into_bytes();
    Ok(vec![("recording".to_owned(), fs::read(RECORDING)?), ("removed".to_owned(), told)])
}

/// Two processes fill what memory there is but [`LEFT_MIB`], with holes that wander; a third wants huge pages, round after
/// round. Once they have for a while, the knobs are set, and what goes on then is recorded.
fn demand(knobs: &str) -> Outcome<Files> {
    let system = rustix::system::sysinfo();
    let free_mib = (system.freeram as u64 * u64::from(system.mem_unit)) >> 20;
    let each_mib = (free_mib.saturating_sub(LEFT_MIB) / 2).to_string();
    eprintln!("{free_mib} MiB free, {each_mib} for each");
    let mut children =
        [spawn(&["fill", &each_mib])?, spawn(&["fill", &each_mib])?, spawn(&["usemem"])?];
    sleep(WARM_UP);
    for knob in knobs.split(',').filter(|knob| !knob.is_empty()) {
        let (name, value) = knob.split_once('=').ok_or("expected KNOB=VALUE")?;
        let path = match name.strip_prefix("transparent_hugepage/") {
            Some(_) => format!("/sys/kernel/mm/{name}"),
            None => format!("/proc/sys/{}", name.replace('.', "/")),
        };
        fs::write(&path, value).map_err(|error| format!("{path}: {error}"))?;
    }
    sleep(Duration::from_secs(1));
    record_while(&mut children, 30)?;
    Ok(vec![("recording".to_owned(), fs::read(RECORDING)?)])
}

/// Records while these go on, and ends them. They rest while the states are copied: an emulated machine takes seconds for
/// that, and lists that change meanwhile are known less well.
fn record_while(children: &mut [Child], seconds: u64) -> Outcome {
    let signal = |children: &[Child], signal| {
        children.iter().try_for_each(|child| kill_process(Pid::from_child(child), signal))
    };
    let _ = fs::remove_file(BEGAN);
    signal(children, Signal::STOP)?;
    let mut recorder = spawn(&["record", &seconds.to_string()])?;
    while !fs::exists(BEGAN)? && recorder.try_wait()?.is_none() {
        sleep(Duration::from_millis(20));
    }
    signal(children, Signal::CONT)?;
    sleep(Duration::from_secs(seconds));
    signal(children, Signal::STOP)?;
    let recorded = recorder.wait()?;
    for child in children {
        // One that the kernel has ended meanwhile made no demand.
        if let Some(status) = child.try_wait()? {
            return Err(format!("a process of the demand ended with {status}").into());
        }
        kill_process(Pid::from_child(child), Signal::KILL)?;
        child.wait()?;
    }
    ended(recorded)
}

fn ended(status: ExitStatus) -> Outcome {
    match status.success() {
        true => Ok(()),
        false => {
            let why = fs::read_to_string(WHY).unwrap_or_default();
            Err(format!("a recording ended with {status}: {why}").into())
        }
    }
}

/// Ends a recording by a kill, once it is under way.
fn kill(mut child: Child) -> Outcome {
    wait_until_it_records()?;
    kill_process(Pid::from_child(&child), Signal::KILL)?;
    child.wait()?;
    Ok(())
}

fn wait_until_it_records() -> Outcome {
    for _ in 0..6000 {
        for instance in fs::read_dir(format!("{TRACING}/instances"))? {
            if fs::read_to_string(instance?.path().join("tracing_on")).is_ok_and(|on| on == "1\n") {
                sleep(Duration::from_millis(300));
                return Ok(());
            }
        }
        sleep(Duration::from_millis(20));
    }
    Err("no recording began".into())
}

/// What tracefs tells of itself: who traces what.
fn told() -> Outcome<String> {
    let mut told = String::new();
    for name in GLOBAL {
        told += &format!("{name}: {}\n", fs::read_to_string(format!("{TRACING}/{name}"))?);
    }
    for folder in ["instances", "events"] {
        let mut names: Vec<String> = fs::read_dir(format!("{TRACING}/{folder}"))?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<_>>()?;
        names.sort();
        told += &format!("{folder}: {names:?}\n");
    }
    Ok(told)
}

fn same(before: &str, when: &str) -> Outcome {
    eprintln!("looking at tracefs {when}");
    let now = told()?;
    let differ = before.lines().zip(now.lines()).find(|(before, now)| before != now);
    match differ {
        None if now.len() == before.len() => Ok(()),
        _ => Err(format!("tracefs {when}: {differ:?}").into()),
    }
}

/// Records for so many seconds; or panics in the middle of it.
fn take(seconds: &str) -> Outcome {
    let watch = Watch::new();
    let panics = seconds == "panic";
    let path = if panics { "/tmp/panicked.recording" } else { RECORDING };
    let began = AtomicBool::new(false);
    let stop = || {
        assert!(!panics, "as asked for");
        // It is asked for the first time when the state before is known.
        if !began.swap(true, Ordering::Relaxed) {
            let _ = fs::write(BEGAN, "");
        }
        watch.came().is_some()
    };
    let options = Options {
        seconds: if panics { 600.0 } else { seconds.parse()? },
        keep: Keep { names: false, numbers: true },
        buffer_bytes: Some(64 << 20),
        command: "guest_recorder".to_owned(),
        stop: &stop,
    };
    let recorded = record(&Destination::new(path, Replace::Yes)?, &options)?;
    eprintln!("{recorded:?}");
    Ok(())
}

/// Memory of this process, mapped as it is asked for.
struct Mapped {
    start: *mut u8,
    pages: usize,
}

#[allow(unsafe_code, reason = "memory that is given back page by page has no safe interface")]
impl Mapped {
    fn new(mib: usize, advice: Advice) -> Outcome<Self> {
        let (len, flags) = (mib << 20, (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE));
        // SAFETY: a new mapping, of which nothing else knows.
        let start = unsafe {
            let start = mmap_anonymous(std::ptr::null_mut(), len, flags.0, flags.1)?;
            madvise(start, len, advice)?;
            start.cast::<u8>()
        };
        Ok(Self { start, pages: len / PAGE })
    }

    fn write(&self, pages: std::ops::Range<usize>) {
        assert!(pages.end <= self.pages);
        for page in pages {
            // SAFETY: within the mapping, which is written by this thread alone.
            unsafe { self.start.add(page * PAGE).write_volatile(1) };
        }
    }

    fn give_back(&self, pages: std::ops::Range<usize>) -> Outcome {
        assert!(pages.end <= self.pages);
        // SAFETY: within the mapping; its content is not read again.
        unsafe {
            let start = self.start.add(pages.start * PAGE);
            madvise(start.cast(), pages.len() * PAGE, Advice::LinuxDontNeed)?;
        }
        Ok(())
    }
}

#[allow(unsafe_code, reason = "as for what it ends")]
impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping that this made, to which nothing refers any more.
        let _ = unsafe { munmap(self.start.cast(), self.pages * PAGE) };
    }
}

/// Base pages with holes at random places, which wander: what is free lies in pieces that are too small for a huge page.
fn fill(mib: &str) -> Outcome {
    let memory = Mapped::new(mib.parse()?, Advice::LinuxNoHugepage)?;
    let pieces = memory.pages / HOLE_PAGES;
    let piece = |number: usize| number * HOLE_PAGES..(number + 1) * HOLE_PAGES;
    let mut below = random();
    (0..pieces).for_each(|number| memory.write(piece(number)));
    let mut holes = Vec::new();
    for number in (0..pieces).step_by(HOLE_EVERY) {
        memory.give_back(piece(number))?;
        holes.push(number);
    }
    loop {
        let hole = below(holes.len() as u64) as usize;
        let taken = below(pieces as u64) as usize;
        if !holes.contains(&taken) {
            memory.give_back(piece(taken))?;
            memory.write(piece(holes[hole]));
            holes[hole] = taken;
        }
        sleep(Duration::from_millis(2));
    }
}

fn usemem() -> Outcome {
    let advices = [Advice::LinuxNoHugepage, Advice::Normal, Advice::LinuxHugepage];
    for advice in advices.into_iter().cycle() {
        let memory = Mapped::new(USEMEM_MIB, advice)?;
        memory.write(0..memory.pages);
        sleep(USEMEM_PAUSE);
        drop(memory);
        sleep(USEMEM_PAUSE);
    }
    Ok(())
}

/// Numbers below a bound, the same for the same process.
fn random() -> impl FnMut(u64) -> u64 {
    let mut state = u64::from(std::process::id());
    move |bound: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % bound
    }
}

struct Churn {
    live_bytes: usize,
    /// How many pieces in a hundred have up to 16 pages, and up to 256; the others have 2 to 8 MiB.
    shares: [u64; 2],
    /// Whether it writes files.
    writes: bool,
    /// After each piece.
    pause: Duration,
}

/// Maps, touches and unmaps pieces of 4 KiB to 8 MiB, and never ends.
fn churn(how: &Churn) -> Outcome {
    let mut below = random();
    let (mut held, mut bytes): (Vec<Vec<u8>>, usize) = (Vec::new(), 0);
    let [small, middle] = how.shares;
    for nr in 0_u64.. {
        let pages = match below(100) {
            share if share < small => 1 + below(16),
            share if share < small + middle => 16 + below(240),
            _ => 512 + below(1536),
        };
        let mut memory = vec![0u8; PAGE * pages as usize];
        memory.chunks_mut(PAGE).for_each(|page| page[0] = 1);
        bytes += memory.len();
        held.push(memory);
        while bytes > how.live_bytes {
            let victim = below(held.len() as u64) as usize;
            bytes -= held.swap_remove(victim).len();
        }
        if how.writes {
            fs::write(format!("/tmp/{}-{}", std::process::id(), nr % 200), &held[0][..PAGE])?;
        }
        sleep(how.pause);
    }
    Ok(())
}
