//! What recorded cases ran, from their command lines.
//!
//! A case says what it ran as a shell would be told: `fragmem -a 80 -k 2; sleep 40`. [`Script::parse`] makes the
//! same work of it, or says which mechanisms a system must have for it that workloads do not ask for yet.

mod arguments;
mod churn;
mod fragmenter;
mod fragments;
mod fsmark;
pub(crate) mod highalloc;
mod hugestress;
mod mapstream;
mod pace;
mod postmark;
mod program;
mod shell;
mod slabload;
mod stutter;
mod told;

pub use churn::Churn;
pub use fragmenter::Fragmenter;
pub use fragments::Fragments;
pub use fsmark::Fsmark;
pub use highalloc::{Highalloc, Load};
pub use hugestress::Hugestress;
pub use mapstream::Mapstream;
pub use postmark::Postmark;
pub use program::{Program, Size};
pub use slabload::Slabload;
pub use stutter::Stutter;
pub use told::{Moment, ReadMeanwhile, Results, Told};

use crate::background::Background;
use crate::files::{append, blocks};
use crate::process::{map, run_process};
use arguments::Arguments;
use highorder_system::{
    Access, Advice, Code, CpuId, Failure, Ns, Pattern, Place, System, ThreadSpec,
};

/// What a case ran: one command after another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// In this order.
    pub steps: Vec<Step>,
    /// Who starts the programs and copies the counters, which costs memory itself.
    shell: Option<Shell>,
}

/// The shell that started a script's programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shell {
    /// Whether a child of each program copied the counters as well, once that was done.
    pub copies_held: bool,
    /// Bytes of the files in the file system that the guest's kernel started from, programs among them; 0 where they are
    /// not told apart from others.
    pub rootfs_bytes: u64,
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A program runs to its end.
    Run(Program),
    /// `fragmem`: memory is fragmented, and what stays is held in the background from then on.
    Hold(Fragments),
    /// `dd` and `sync`, perhaps `cat`: a file is written.
    Write(Written),
    /// `dd` alone: a file is written by blocks, or read.
    Dd(Dd),
    /// `sync`: what is dirty is written.
    Sync,
    /// `echo`: a file of /proc/sys is written.
    Set {
        /// The knob, as `vm.compact_memory`.
        knob: String,
        /// What is written.
        value: String,
    },
    /// Nothing happens for so many seconds.
    Sleep(u64),
    /// The state is captured.
    Capture,
}

impl Script {
    /// Reads command lines.
    ///
    /// # Errors
    /// What is missing for one, or what is wrong with it.
    pub fn parse(line: &str) -> Result<Self, Unknown> {
        if let Some(written) = written_file(line) {
            return Ok(Self { steps: vec![Step::Write(written)], shell: None });
        }
        let steps = line.split(';').map(|command| Step::parse(command.trim()));
        Ok(Self { steps: steps.collect::<Result<_, _>>()?, shell: None })
    }

    /// What is advised of the memory of its programs.
    #[must_use]
    pub fn advice(&self) -> Option<Advice> {
        self.programs().find_map(Program::advice)
    }

    fn programs(&self) -> impl Iterator<Item = &Program> {
        self.steps.iter().filter_map(|step| match step {
            Step::Run(program) => Some(program),
            _ => None,
        })
    }

    /// Whether it leaves files in the page cache.
    #[must_use]
    pub fn leaves_files(&self) -> bool {
        self.steps.iter().any(|step| match step {
            Step::Write(_) | Step::Dd(_) => true,
            Step::Hold(fragments) => fragments.file_percent > 0,
            Step::Run(program) => program.leaves_files(),
            Step::Set { .. } | Step::Sleep(_) | Step::Capture | Step::Sync => false,
        })
    }

    /// Whether a program still holds memory when the others have ended.
    #[must_use]
    pub fn holds_memory(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Hold(_)))
    }

    /// Whether it fills slab caches that nobody else did.
    #[must_use]
    pub fn loads_slab(&self) -> bool {
        self.programs().any(Program::loads_slab)
    }

    /// The same on a file system that can give so many inodes.
    #[must_use]
    pub fn with_inodes(mut self, inodes: u64) -> Self {
        for step in &mut self.steps {
            if let Step::Run(Program::Slabload(slabload)) = step {
                slabload.inodes = Some(inodes);
            }
        }
        self
    }

    /// The same, where what it does in the background goes as far as is told of a run of it. Results are of the only program
    /// of their name.
    #[must_use]
    pub fn in_step(mut self, mut told: Told) -> Self {
        // What was seen at a moment is all programs' doing.
        let runs_one =
            self.programs().count() == 1 && matches!(self.steps.first(), Some(Step::Run(_)));
        if !runs_one {
            told.moments.clear();
        }
        for step in &mut self.steps {
            if let Step::Run(program) = step {
                *program = program.clone().in_step(&told);
            }
        }
        self
    }

    /// The same as a shell ran it, which copied the counters before and after: with what its programs take to start.
    #[must_use]
    pub fn by_shell(mut self, shell: Shell) -> Self {
        self.shell = Some(shell);
        self
    }

    /// The script as a workload's main thread runs it, after `setup`, which does not count. Where a program still holds
    /// memory, the state at the end is noted while it does, in place of one that was captured before.
    #[must_use]
    pub fn code(self, setup: Option<Self>) -> Code {
        Box::new(move |sys| {
            let mut background = Background::default();
            let ended = self.run_after(setup.as_ref(), sys, &mut background);
            let scripts = [Some(&self), setup.as_ref()];
            if scripts.into_iter().flatten().any(Self::holds_memory) {
                sys.note_held();
            }
            ended.and(background.end(sys))
        })
    }

    fn run_after(
        &self,
        setup: Option<&Self>,
        sys: &mut dyn System,
        background: &mut Background,
    ) -> Result<(), Failure> {
        if let Some(shell) = self.shell {
            shell::prepare(shell, sys)?;
            shell::start_sampler(sys, background)?;
        }
        if let Some(setup) = setup {
            setup.run(sys, background)?;
        }
        if self.shell.is_some() || setup.is_some() {
            sys.note_before();
        }
        if self.shell.is_some() {
            shell::copy_counters(sys)?;
        }
        self.run(sys, background)
    }

    fn run(&self, sys: &mut dyn System, background: &mut Background) -> Result<(), Failure> {
        self.steps.iter().try_for_each(|step| step.run(sys, background, self.shell))
    }
}

impl Step {
    fn parse(command: &str) -> Result<Self, Unknown> {
        let malformed = |what: &str| Unknown::Malformed(format!("`{command}`, expected {what}"));
        // What a program prints does not matter; `echo` is for a file's sake.
        let command = if command.starts_with("echo") { command } else { without_output(command) };
        let mut words = command.split_whitespace();
        match words.next().unwrap_or_default() {
            "fragmem" => {
                let arguments = Arguments::read(words)?;
                arguments.only("afdk")?;
                Fragments::of(&arguments).map(Self::Hold)
            }
            "echo" => match (words.next(), words.next(), words.next(), words.next()) {
                (Some(value), Some(">"), Some(path), None) => {
                    let knob = path.strip_prefix("/proc/sys/");
                    let knob = knob.ok_or_else(|| malformed("a file below /proc/sys"))?;
                    Ok(Self::Set { knob: knob.replace('/', "."), value: value.to_owned() })
                }
                _ => Err(malformed("`echo VALUE > FILE`")),
            },
            "sleep" => {
                let seconds = words.next().and_then(|word| word.parse().ok());
                seconds.map(Self::Sleep).ok_or_else(|| malformed("whole seconds"))
            }
            "snap" => Ok(Self::Capture),
            "sync" if words.next().is_none() => Ok(Self::Sync),
            "dd" if let Some(dd) = Dd::of(words.clone()) => Ok(Self::Dd(dd)),
            "dd" | "taskset" | "sync" | "cat" => {
                let command = command.to_owned();
                Err(Unknown::Needs(vec![format!("files written otherwise: `{command}`")]))
            }
            _ => Program::parse(command).map(Self::Run),
        }
    }

    fn run(
        &self,
        sys: &mut dyn System,
        background: &mut Background,
        shell: Option<Shell>,
    ) -> Result<(), Failure> {
        let started = |code| match shell {
            Some(shell) => shell::started(shell, code),
            None => code,
        };
        match self {
            Self::Run(program) => {
                let code = started(program.code());
                run_process(sys, ThreadSpec::process("program"), code).map(|_| ())
            }
            Self::Hold(fragments) => fragments.hold(sys, background),
            Self::Write(written) => written.write(sys),
            Self::Dd(dd) => {
                let dd = dd.clone();
                let code = started(Box::new(move |sys| dd.run(sys)));
                run_process(sys, ThreadSpec::process("dd"), code).map(|_| ())
            }
            Self::Sync => sys.sync(),
            Self::Set { knob, value } => sys.set_knob(knob, value),
            Self::Sleep(seconds) => sys.sleep(Ns::from_secs(*seconds)),
            Self::Capture => {
                sys.note_held();
                Ok(())
            }
        }
    }
}

/// A file that a set-up wrote and synced before the program began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Whether it was read through afterwards.
    pub is_read: bool,
    /// Where the set-up ran, a bit for each CPU.
    pub cpus: Option<u64>,
}

/// What a set-up wrote, if it does no more than that: `dd`, `sync` and perhaps `cat`, perhaps on some CPUs.
fn written_file(setup: &str) -> Option<Written> {
    let (setup, cpus) = match setup.strip_prefix("taskset ") {
        None => (setup, None),
        Some(rest) => {
            let (mask, command) = rest.split_once(' ')?;
            let command = command.strip_prefix("sh -c '")?.strip_suffix('\'')?;
            // taskset(1): hexadecimal, whatever it begins with.
            let digits = mask.strip_prefix("0x").unwrap_or(mask);
            (command, Some(u64::from_str_radix(digits, 16).ok()?))
        }
    };
    let mut commands = setup.split("; ");
    let dd = commands.next()?.strip_prefix("dd if=/dev/zero of=")?.strip_suffix(" 2>/dev/null")?;
    let mut words = dd.split_whitespace();
    let (path, bs, count) = (words.next()?, words.next()?, words.next()?);
    let count: u64 = count.strip_prefix("count=")?.parse().ok()?;
    if bs != "bs=1M" || words.next().is_some() || commands.next() != Some("sync") {
        return None;
    }
    let is_read = match commands.next() {
        None => false,
        Some(cat) if cat == format!("cat {path} > /dev/null") => true,
        Some(_) => return None,
    };
    let written = Written { name: file_name(path), bytes: count << 20, is_read, cpus };
    commands.next().is_none().then_some(written)
}

/// A command without what says where its output goes, if that is nowhere.
fn without_output(command: &str) -> &str {
    const NOWHERE: [&str; 5] = ["2>&1", "2>/dev/null", ">/dev/null", "> /dev/null", "2> /dev/null"];
    let mut command = command.trim_end();
    while let Some(rest) = NOWHERE.iter().find_map(|what| command.strip_suffix(what)) {
        command = rest.trim_end();
    }
    command
}

/// A `dd` that writes zeros to a file, or reads a file through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dd {
    /// The file.
    pub name: String,
    /// Bytes at a time.
    pub block: u64,
    /// Written in all; `None` if the file is read.
    pub writes: Option<u64>,
}

impl Dd {
    /// Its operands, if they ask for no more than that.
    fn of<'a>(operands: impl Iterator<Item = &'a str>) -> Option<Self> {
        let (mut from, mut to, mut block, mut count) = (None, None, None, None);
        for operand in operands {
            match operand.split_once('=')? {
                ("if", path) => from = Some(path),
                ("of", path) => to = Some(path),
                ("bs", size) => block = Some(size_of(size)?),
                ("count", blocks) => count = Some(blocks.parse::<u64>().ok()?),
                _ => return None,
            }
        }
        let block = block.filter(|&bytes| bytes > 0)?;
        match (from?, to?, count) {
            ("/dev/zero", path, Some(count)) if path.starts_with("/data/") => {
                Some(Self { name: file_name(path), block, writes: Some(count.checked_mul(block)?) })
            }
            (path, "/dev/null", None) if path.starts_with("/data/") => {
                Some(Self { name: file_name(path), block, writes: None })
            }
            _ => None,
        }
    }

    /// Each block goes through a buffer of that size.
    fn run(&self, sys: &mut dyn System) -> Result<(), Failure> {
        let pages = self.block.div_ceil(sys.machine().page_bytes);
        let buffer = map(sys, pages, Some(Advice::NoHuge))?;
        let (file, bytes) = match self.writes {
            Some(bytes) => (sys.create_file(&self.name)?, bytes),
            None => {
                let file = sys.open_file(&self.name)?;
                (file, sys.file_bytes(file)?)
            }
        };
        for (at, part) in blocks(bytes, self.block) {
            sys.touch_range(buffer, Pattern::word(Access::Write))?;
            match self.writes {
                Some(_) => sys.write_file(file, at, part)?,
                None => sys.read_file(file, at, part)?,
            }
        }
        sys.close_file(file)
    }
}

/// A size as dd has it: a number, perhaps of KiB or MiB.
fn size_of(text: &str) -> Option<u64> {
    let (digits, shift) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 10),
        None => text.strip_suffix('M').map_or((text, 0), |digits| (digits, 20)),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// The last part of a path: all of a workload's files lie in one folder.
fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

/// A command that no program here stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// What it would need, a few words each.
    Needs(Vec<String>),
    /// The command cannot be understood.
    Malformed(String),
}

impl Written {
    fn write(&self, sys: &mut dyn System) -> Result<(), Failure> {
        const BLOCK: u64 = 1 << 20;
        if let Some(cpus) = self.cpus {
            let place = place_of(sys, cpus)?;
            sys.set_place(place)?;
        }
        let file = sys.create_file(&self.name)?;
        append(sys, file, 0, self.bytes, BLOCK)?;
        sys.sync()?;
        if self.is_read {
            blocks(self.bytes, BLOCK).try_for_each(|(at, part)| sys.send_file(file, at, part))?;
        }
        sys.set_place(Place::Any)
    }
}

/// A place that is exactly these CPUs.
fn place_of(sys: &dyn System, cpus: u64) -> Result<Place, Failure> {
    let machine = sys.machine();
    let bit = |cpu: &CpuId| 1u64.checked_shl(cpu.0).unwrap_or(0);
    let mask = |cpus: &[CpuId]| cpus.iter().map(bit).sum::<u64>();
    if cpus == machine.nodes.iter().map(|node| mask(&node.cpus)).sum::<u64>() {
        return Ok(Place::Any);
    }
    if let Some(node) = machine.nodes.iter().find(|node| mask(&node.cpus) == cpus) {
        return Ok(Place::Node(node.number));
    }
    if cpus.count_ones() == 1 {
        return Ok(Place::Cpu(CpuId(cpus.trailing_zeros())));
    }
    Err(Failure::Refused(format!("CPUs {cpus:#x}, expected one, those of a node, or all")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use highorder_system::MemPolicy;

    #[test]
    fn commands_follow_each_other() {
        let script = Script::parse("fragmem -a 80 -k 0; snap /out/held; sleep 40").unwrap();
        let fragments = Fragments { anon_percent: 80, file_percent: 0, keep: 0 };
        assert_eq!(script.steps, [Step::Hold(fragments), Step::Capture, Step::Sleep(40)]);
        assert!(script.holds_memory() && !script.leaves_files());
        let script = Script::parse("echo 1 > /proc/sys/vm/compact_memory; sleep 1").unwrap();
        let set = Step::Set { knob: "vm.compact_memory".to_owned(), value: "1".to_owned() };
        assert_eq!(script.steps, [set, Step::Sleep(1)]);
        assert!(!script.holds_memory());
        let script = Script::parse("slabload -n 40000; usemem -t 2 -p 75 -l 2 -H").unwrap();
        assert_eq!((script.steps.len(), script.advice()), (2, Some(Advice::Huge)));
        assert!(script.loads_slab());
    }

    #[test]
    fn moments_tell_of_the_only_program() {
        let moment = |seconds, settled| {
            let time = Ns::from_secs(seconds);
            Moment { time, settled, refaults: 0 }
        };
        let results = [("usemem.streamed_mb", vec![100.0]), ("usemem.loop_s", vec![10.0])];
        let results = results.map(|(name, values)| (name.to_owned(), values)).into();
        // The first half takes one second of ten.
        let told = Told { results, moments: vec![moment(0, 0), moment(1, 50), moment(10, 100)] };
        let due_at_half = |line: &str| {
            let script = Script::parse(line).unwrap().in_step(told.clone());
            let due = script.programs().find_map(|program| match program {
                Program::Usemem { read, .. } => Some(read.as_ref().unwrap().due(0, 1, 2)),
                _ => None,
            });
            due.unwrap()
        };
        let usemem = "usemem -t 2 -p 80 -l 1 -f /data/stream";
        assert_eq!(due_at_half(usemem), 10);
        for others in ["sleep 9", "slabload -n 40000"] {
            assert_eq!(due_at_half(&format!("{others}; {usemem}")), 50, "{others}");
        }
    }

    #[test]
    fn command_lines_become_programs() {
        let usemem = Program::parse("usemem -t 2 -p 80 -l 3 -H").unwrap();
        let expected = Program::Usemem {
            threads: 2,
            size: Size::Percent(80),
            loops: 3,
            advice: Some(Advice::Huge),
            file: None,
            read: None,
        };
        assert_eq!(usemem, expected);
        let demo = Program::parse("mmapdemo -p 40 -c 3 -l 3 -b 1").unwrap();
        let expected = Program::Mmapdemo {
            size: Size::Percent(40),
            loops: 3,
            advice: None,
            cpus: Some(3),
            policy: MemPolicy::Bind(1),
        };
        assert_eq!(demo, expected);
        let scale = Program::parse("thpscale -d /data -t 1,2 -k 0").unwrap();
        let expected = Program::Thpscale {
            fragments: Fragments { anon_percent: 30, file_percent: 50, keep: 0 },
            took: None,
            size: Size::Percent(40),
            advice: Some(Advice::Huge),
            rounds: vec![1, 2],
        };
        assert_eq!(scale, expected);
        assert_eq!(scale.advice(), Some(Advice::Huge));
    }

    #[test]
    fn a_setup_that_only_writes_a_file_is_understood() {
        let plain = "dd if=/dev/zero of=/data/stream bs=1M count=800 2>/dev/null; sync";
        let written = |name: &str, mib: u64, is_read, cpus| {
            Some(Written { name: name.to_owned(), bytes: mib << 20, is_read, cpus })
        };
        assert_eq!(written_file(plain), written("stream", 800, false, None));
        let pinned = "taskset 3 sh -c 'dd if=/dev/zero of=/data/f bs=1M count=400 2>/dev/null; sync; \
                      cat /data/f > /dev/null'";
        assert_eq!(written_file(pinned), written("f", 400, true, Some(3)));
        for other in [
            "fragmem -a 80 -k 2",
            "dd if=/dev/zero of=/data/f bs=4k count=400 2>/dev/null; sync",
            "dd if=/dev/zero of=/data/f bs=1M count=400 2>/dev/null",
            "dd if=/dev/zero of=/data/f bs=1M count=4 2>/dev/null; sync; cat /data/g > /dev/null",
            "dd if=/dev/zero of=/data/f bs=1M count=4 2>/dev/null; sync; cat /data/f > /dev/null; sync",
        ] {
            assert_eq!(written_file(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_missing_or_wrong_is_said() {
        let needs = |line| Program::parse(line).unwrap_err();
        assert!(matches!(needs("stress -t 4"), Unknown::Needs(_)));
        assert!(matches!(needs("churn -n 100"), Unknown::Malformed(_)));
        for line in ["echo 1 > /sys/kernel/x", "echo 1", "sleep long"] {
            assert!(matches!(Script::parse(line).unwrap_err(), Unknown::Malformed(_)), "{line}");
        }
        assert!(matches!(Script::parse("cat /data/f").unwrap_err(), Unknown::Needs(_)));
        assert!(matches!(needs("thpscale -t 1,0"), Unknown::Malformed(_)));
        assert!(matches!(needs("usemem -t two"), Unknown::Malformed(_)));
        assert!(matches!(needs("usemem -q 1"), Unknown::Malformed(_)));
        assert!(matches!(needs("usemem 1"), Unknown::Malformed(_)));
    }

    #[test]
    fn a_mapping_is_whole_units_for_each_thread() {
        // As recorded: 120 % of 217332 KiB for one thread are 266338304 bytes.
        let pages = Size::Percent(120).pages_each(217_332 / 4, 1);
        assert_eq!(pages * 4096, 266_338_304);
        assert_eq!(Size::Mib(5).pages_each(0, 2), 512);
    }
}
