//! `highorder watch`: the memory of this machine as it goes.

mod terminal;

use crate::failure::Failure;
use crate::map;
use crate::output;
use highorder_real::signals::Watch;
use highorder_report::{Colour, MemoryMap, TerminalOptions, render_cells};
use highorder_snapshot::live::{self, Options, Way};
use highorder_watch::{Sample, Series, Threshold, openmetrics, screen, serve};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use std::io::{self, IsTerminal};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use terminal::{Key, Terminal};

/// Most of a CPU that taking the map may cost: half of what all of it may.
const MAP_SHARE: f64 = 0.005;
/// How often the terminal's size is looked at, in seconds.
const RESIZE_S: f64 = 0.5;
/// How often a history gets the state of the moment, in seconds: reading it costs more than a sample.
const STATE_S: f64 = 60.0;
/// Lines of the map.
const MAP_LINES: usize = 8;

/// What to look at, and what to do of it.
#[derive(clap::Args)]
#[command(after_help = "\
On a terminal it shows a screen until q is pressed: free memory of each zone against its watermarks, free blocks by order, \
who had to wait, what reclaim, compaction and huge pages do, and, for root, where memory lies. The map is taken as seldom as \
keeps it below half a percent of a CPU. Nothing on the machine is changed.

A threshold is a counter of /proc/vmstat or /proc/meminfo, allocstall, psi_memory_some_us or psi_memory_full_us; its rate, if \
/s follows; and > or < a number. When one is crossed the exit code is 3, or, with --run, the command runs in a shell, with \
the threshold in $HIGHORDER_WHEN, and the watch goes on.

A history is a folder as runs of real kernels are kept in: `compare` reads it, and `map` its state.snapshot. The timeline in \
it only grows, so that nothing is lost when the watch is killed.

--serve answers to whoever can reach the address; it has neither encryption nor passwords.

Examples:
  highorder watch --once
  highorder watch --every 60 --series today
  highorder watch --serve 127.0.0.1:9101
  highorder watch --when 'compact_stall/s>10' --when 'MemAvailable<262144'")]
pub(crate) struct Arguments {
    /// Seconds from one sample to the next
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    every: f64,
    /// Print one screen, with the rates of the time between two samples
    #[arg(long, conflicts_with_all = ["series", "serve", "when", "run"])]
    once: bool,
    /// Keep a history in this folder
    #[arg(long, value_name = "DIR")]
    series: Option<PathBuf>,
    /// Serve OpenMetrics over HTTP, at /metrics of this address and port
    #[arg(long, value_name = "ADDR", value_parser = address)]
    serve: Option<String>,
    /// End, or run a command, when this becomes true; may be given several times
    #[arg(long, value_name = "THRESHOLD")]
    when: Vec<Threshold>,
    /// Run this command when a threshold is crossed, and go on
    #[arg(long, value_name = "COMMAND", requires = "when")]
    run: Option<String>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|s| (0.1..=86400.0).contains(s));
    seconds.ok_or_else(|| "expected seconds, 0.1 to 86400".to_owned())
}

/// An address with a port; a port alone is one of this machine, which nobody else reaches.
fn address(text: &str) -> Result<String, String> {
    match text.parse::<u16>() {
        Ok(port) => Ok(format!("127.0.0.1:{port}")),
        Err(_) if text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) => {
            Ok(text.to_owned())
        }
        Err(_) => Err("expected ADDRESS:PORT or a port, such as 127.0.0.1:9101".to_owned()),
    }
}

/// Watches until it is to end.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let has_work =
        arguments.series.is_some() || arguments.serve.is_some() || !arguments.when.is_empty();
    let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    if !arguments.once && !is_terminal && !has_work {
        let expected = "expected --once, --series, --serve or --when";
        return Err(Failure::input(format!(
            "there is no terminal to show a screen on: {expected}"
        )));
    }
    let mut watcher = Watcher::begin(arguments)?;
    if arguments.once {
        return watcher.once();
    }
    let signals = Watch::new();
    let terminal = match is_terminal {
        true => Some(Terminal::begin().map_err(|e| Failure::input(format!("terminal: {e}")))?),
        false => None,
    };
    let ended = watcher.go_on(&signals, terminal.as_ref());
    drop(terminal);
    watcher.end();
    ended
}

/// A watch under way.
struct Watcher<'a> {
    arguments: &'a Arguments,
    series: Option<Series>,
    state_s: f64,
    listener: Option<TcpListener>,
    before: Option<Sample>,
    now: Sample,
    map: LiveMap,
    /// Which thresholds are crossed.
    crossed: Vec<bool>,
    command: Option<Child>,
    began: (f64, f64),
}

impl<'a> Watcher<'a> {
    fn begin(arguments: &'a Arguments) -> Result<Self, Failure> {
        let now = sample()?;
        for threshold in &arguments.when {
            if !threshold.is_known(&now) {
                let expected = "a counter of /proc/vmstat or /proc/meminfo here";
                return Err(Failure::input(format!("--when '{threshold}': expected {expected}")));
            }
        }
        let series = match &arguments.series {
            None => None,
            Some(folder) => {
                let begun = Series::begin(folder, Path::new(PROC), now.seconds);
                Some(begun.map_err(|error| series_failure(folder, &error))?)
            }
        };
        let listener = arguments.serve.as_deref().map(|at| {
            serve::listen(at).map_err(|error| Failure::input(format!("--serve {at}: {error}")))
        });
        let listener = listener.transpose()?;
        let began = (now.seconds, clock_s(ClockId::ProcessCPUTime));
        let crossed = vec![false; arguments.when.len()];
        let mut watcher = Self {
            arguments,
            series,
            state_s: f64::NEG_INFINITY,
            listener,
            before: None,
            now,
            map: LiveMap::default(),
            crossed,
            command: None,
            began,
        };
        watcher.keep()?;
        Ok(watcher)
    }

    /// Prints one screen.
    fn once(&mut self) -> Result<(), Failure> {
        std::thread::sleep(std::time::Duration::from_secs_f64(self.arguments.every));
        self.next_sample()?;
        let width = terminal::size().0;
        let mut told = screen::lines(self.before.as_ref(), &self.now, width).join("\n");
        told.push('\n');
        let colour = map::automatic_colour();
        if let Some(cells) = self.map.cells(self.now.seconds, width, colour) {
            told.push_str(&format!("\n{cells}"));
        }
        output::print(told.as_bytes())
    }

    /// Takes sample after sample until a key, a signal or a threshold ends it.
    fn go_on(&mut self, signals: &Watch, terminal: Option<&Terminal>) -> Result<(), Failure> {
        let mut next = self.now.seconds + self.arguments.every;
        self.draw(terminal)?;
        while signals.came().is_none() {
            let left = next - clock_s(ClockId::Monotonic);
            if left > 0.0 {
                match self.wait(left, terminal)? {
                    Some(Key::Quit) => return Ok(()),
                    Some(Key::Redraw) => self.draw(terminal)?,
                    None => {}
                }
                continue;
            }
            self.next_sample()?;
            // What took longer than it should is not made up for.
            next = (next + self.arguments.every).max(self.now.seconds);
            self.heed_thresholds()?;
            self.draw(terminal)?;
        }
        Ok(())
    }

    fn next_sample(&mut self) -> Result<(), Failure> {
        self.before = Some(std::mem::replace(&mut self.now, sample()?));
        self.keep()
    }

    /// Adds what is now to the history, if there is one.
    fn keep(&mut self) -> Result<(), Failure> {
        let Some(series) = &mut self.series else { return Ok(()) };
        let folder = self.arguments.series.as_deref().unwrap_or(Path::new(""));
        let added = series.add(&self.now, Path::new(PROC));
        added.map_err(|error| series_failure(folder, &error))?;
        if self.now.seconds - self.state_s >= STATE_S {
            self.state_s = self.now.seconds;
            live::take(Options { way: Way::Counts, ..Options::default() })?
                .write(series.state_path())?;
        }
        Ok(())
    }

    /// Waits so long at most, and answers who asks for metrics meanwhile.
    fn wait(&self, seconds: f64, terminal: Option<&Terminal>) -> Result<Option<Key>, Failure> {
        let seconds = if terminal.is_some() { seconds.min(RESIZE_S) } else { seconds };
        let nanoseconds = (seconds.clamp(0.001, 3600.0) * 1e9) as i64;
        let timeout =
            Timespec { tv_sec: nanoseconds / 1_000_000_000, tv_nsec: nanoseconds % 1_000_000_000 };
        let stdin = io::stdin();
        let mut waited = Vec::new();
        if terminal.is_some() {
            waited.push(PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN));
        }
        if let Some(listener) = &self.listener {
            waited.push(PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN));
        }
        match poll(&mut waited, Some(&timeout)) {
            // A signal: whoever called looks which.
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Failure::internal(format!("poll: {error}"))),
        }
        if let Some(listener) = &self.listener {
            let answered = serve::answer(listener, &mut || openmetrics::text(&self.now));
            answered.map_err(|error| Failure::internal(format!("--serve: {error}")))?;
        }
        Ok(terminal.and_then(Terminal::key))
    }

    fn heed_thresholds(&mut self) -> Result<(), Failure> {
        for (threshold, crossed) in self.arguments.when.iter().zip(&mut self.crossed) {
            let Some(found) = threshold.found(self.before.as_ref(), &self.now) else { continue };
            let was = std::mem::replace(crossed, threshold.is_crossed(found));
            if was || !*crossed {
                continue;
            }
            let Some(command) = &self.arguments.run else {
                return Err(Failure::Crossed(format!("{threshold}: it is {found}")));
            };
            // Of one that still runs there is not another.
            if self.command.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None))) {
                continue;
            }
            let mut shell = Command::new("sh");
            shell.args(["-c", command]).env("HIGHORDER_WHEN", threshold.to_string());
            let child = shell.env("HIGHORDER_VALUE", found.to_string()).spawn();
            self.command =
                Some(child.map_err(|error| Failure::input(format!("--run: sh: {error}")))?);
        }
        Ok(())
    }

    fn draw(&mut self, terminal: Option<&Terminal>) -> Result<(), Failure> {
        let Some(terminal) = terminal else { return Ok(()) };
        let (width, height) = terminal::size();
        let mut lines = screen::lines(self.before.as_ref(), &self.now, width);
        let colour = map::automatic_colour();
        if let Some(cells) = self.map.cells(self.now.seconds, width, colour) {
            lines.push(String::new());
            lines.extend(cells.lines().map(str::to_owned));
        }
        lines.truncate(height.saturating_sub(1));
        lines.resize(height.saturating_sub(1), String::new());
        lines.push(format!("q quits; watching takes {}", self.cost()));
        terminal.draw(&lines).map_err(|error| Failure::input(format!("terminal: {error}")))
    }

    /// What it costs: of a CPU, and what each map costs beside that.
    fn cost(&self) -> String {
        let elapsed_s = (clock_s(ClockId::Monotonic) - self.began.0).max(self.arguments.every);
        let cpu_s = clock_s(ClockId::ProcessCPUTime) - self.began.1 - self.map.all_s;
        let mut told = format!("{:.2} % of a CPU", 100.0 * cpu_s / elapsed_s);
        if self.map.last_s > 0.0 {
            let (map_s, every_s) = (self.map.last_s, self.map.last_s / MAP_SHARE);
            told += &format!(", and {map_s:.1} s for a map every {every_s:.0} s");
        }
        told
    }

    /// Says what it cost.
    fn end(&self) {
        let elapsed_s = clock_s(ClockId::Monotonic) - self.began.0;
        output::say(&format!("watched for {elapsed_s:.0} s; it took {}", self.cost()));
    }
}

const PROC: &str = "/proc";

fn sample() -> Result<Sample, Failure> {
    Ok(Sample::read(Path::new(PROC), clock_s(ClockId::Monotonic))?)
}

fn clock_s(clock: ClockId) -> f64 {
    let now = clock_gettime(clock);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn series_failure(path: &Path, error: &io::Error) -> Failure {
    let folder = path.display();
    Failure::input(match error.kind() {
        _ if path.exists() && !path.is_dir() => format!("{folder}: not a folder, expected one"),
        io::ErrorKind::AlreadyExists => {
            format!("{folder}: has a history already, expected another folder")
        }
        _ => format!("{folder}: cannot write: {error}"),
    })
}

/// The map of this machine, taken as seldom as it is dear.
#[derive(Default)]
struct LiveMap {
    map: Option<MemoryMap>,
    /// When the next may be taken.
    due_s: f64,
    /// CPU time that the last took, and all of them.
    last_s: f64,
    all_s: f64,
}

impl LiveMap {
    /// The map as text, taken anew if it is time; nothing where this user may not know where memory lies.
    fn cells(&mut self, now_s: f64, width: usize, colour: Colour) -> Option<String> {
        if now_s >= self.due_s {
            let start = clock_s(ClockId::ProcessCPUTime);
            self.map =
                live::take(Options { way: Way::Frames, ..Options::default() }).ok().map(|state| {
                    MemoryMap::from_snapshot("memory".to_owned(), &state, state.frame_uses())
                });
            self.last_s = clock_s(ClockId::ProcessCPUTime) - start;
            self.all_s += self.last_s;
            self.due_s = now_s + self.last_s / MAP_SHARE;
        }
        let options = TerminalOptions { width, map_lines: MAP_LINES, colour };
        self.map.as_ref().map(|map| render_cells(map, options))
    }
}
