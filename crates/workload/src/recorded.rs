//! The programs that recorded cases ran, from their command lines.
//!
//! A case says what it ran as a shell would be told: `usemem -t 2 -p 80 -l 3 -H`. [`Program::parse`] makes
//! the same work of it, or says which mechanisms a system must have for it that workloads do not ask for
//! yet.

use crate::files::{append, read_all, write_new};
use crate::process::{join_all, run_process, run_threads};
use highorder_system::{
    Access, Advice, Area, Code, Extent, Failure, MemPolicy, Pattern, Place, System, ThreadSpec,
};
use rand_core::Rng;
use rand_pcg::Pcg64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Base pages of 2 MiB: what these programs align to.
const UNIT_PAGES: u64 = 512;

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
#[must_use]
pub fn written_file(setup: &str) -> Option<Written> {
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

/// The last part of a path: all of a workload's files lie in one folder.
fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

/// A recorded program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// Threads write a word to every page of their part of a mapping, with a barrier after each loop.
    Usemem {
        /// Threads.
        threads: u32,
        /// The mapping.
        size: Size,
        /// Passes.
        loops: u32,
        /// What is advised of it.
        advice: Option<Advice>,
        /// A file that another thread reads over and over meanwhile, 1 MiB at a time.
        file: Option<String>,
    },
    /// One thread fills a mapping, pass after pass.
    Mmapdemo {
        /// The mapping.
        size: Size,
        /// Passes.
        loops: u32,
        /// What is advised of it.
        advice: Option<Advice>,
        /// Where it may run, a bit for each CPU.
        cpus: Option<u64>,
        /// Where its pages come from.
        policy: MemPolicy,
    },
    /// Memory is fragmented; then threads touch huge pages' places, round after round.
    Thpscale {
        /// How memory is fragmented.
        fragments: Fragments,
        /// The mapping of each round.
        size: Size,
        /// Threads of each round.
        rounds: Vec<u32>,
    },
}

/// How memory is fragmented: anonymous memory and small files take turns, and then part of the first goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragments {
    /// Anonymous memory, in percent of memory.
    pub anon_percent: u64,
    /// Files of 64 KiB, in percent of memory.
    pub file_percent: u64,
    /// One anonymous page of so many stays; for 0 half of them do, at random.
    pub keep: u64,
}

/// How large a mapping is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// In percent of memory.
    Percent(u64),
    /// In MiB.
    Mib(u64),
}

impl Size {
    /// In whole units of 2 MiB, for each of `threads` threads.
    fn pages_each(self, total_pages: u64, threads: u64) -> u64 {
        let pages = match self {
            Self::Percent(percent) => total_pages * percent / 100,
            Self::Mib(mib) => mib * 256,
        };
        pages / threads / UNIT_PAGES * UNIT_PAGES
    }
}

/// A command that no program here stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// What it would need, a few words each.
    Needs(Vec<String>),
    /// The command cannot be understood.
    Malformed(String),
}

impl Program {
    /// Reads a command line.
    ///
    /// # Errors
    /// What is missing for it, or what is wrong with it.
    pub fn parse(line: &str) -> Result<Self, Unknown> {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        if line.contains(';') {
            return Err(Unknown::Needs(vec![format!("several commands: `{line}`")]));
        }
        match name {
            "usemem" => Arguments::read(words)?.usemem(),
            "mmapdemo" => Arguments::read(words)?.mmapdemo(),
            "thpscale" => Arguments::read(words)?.thpscale(),
            other => {
                let what = match other {
                    "fragmenter" | "fragmem" | "hugestress" | "slabload" | "dd" | "taskset"
                    | "churn" => "a program",
                    "echo" => "a setting written by the shell",
                    _ => return Err(Unknown::Needs(vec![format!("the program `{other}`")])),
                };
                Err(Unknown::Needs(vec![format!("`{other}`: {what}")]))
            }
        }
    }

    /// What is advised of its memory.
    #[must_use]
    pub const fn advice(&self) -> Option<Advice> {
        match self {
            Self::Usemem { advice, .. } | Self::Mmapdemo { advice, .. } => *advice,
            Self::Thpscale { .. } => Some(Advice::Huge),
        }
    }

    /// The program as a workload's main thread runs it, after this file was written.
    #[must_use]
    pub fn code(&self, file: Option<Written>) -> Code {
        let program = self.clone();
        Box::new(move |sys| {
            if let Some(file) = file {
                file.write(sys)?;
                sys.note_before();
            }
            let code: Code = Box::new(move |sys| program.run(sys));
            run_process(sys, ThreadSpec::process("program"), code).map(|_| ())
        })
    }

    fn run(&self, sys: &mut dyn System) -> Result<(), Failure> {
        match self {
            Self::Usemem { threads, size, loops, advice, file } => {
                usemem(sys, *threads, *size, *loops, *advice, file.as_deref())
            }
            &Self::Mmapdemo { size, loops, advice, cpus, policy } => {
                if let Some(cpus) = cpus {
                    let place = place_of(sys, cpus)?;
                    sys.set_place(place)?;
                }
                // The policy is the task's: page tables follow it as well.
                sys.set_mempolicy(policy)?;
                let total = sys.machine().total_pages;
                let area = map(sys, size.pages_each(total, 1), advice)?;
                for _ in 0..loops {
                    sys.touch_range(
                        area,
                        Pattern { access: Access::Write, extent: Extent::Whole },
                    )?;
                }
                sys.note_held();
                Ok(())
            }
            Self::Thpscale { fragments, size, rounds } => {
                fragments.make(sys)?;
                let total = sys.machine().total_pages;
                for (number, &threads) in rounds.iter().enumerate() {
                    let each = size.pages_each(total, threads.into());
                    let area = map(sys, each * u64::from(threads), Some(Advice::Huge))?;
                    run_threads(sys, "thpscale", threads, |number| {
                        let part = area.part(u64::from(number) * each, each);
                        Box::new(move |sys| touch_units(sys, part))
                    })?;
                    if number + 1 == rounds.len() {
                        sys.note_held();
                    }
                    sys.munmap(area)?;
                }
                Ok(())
            }
        }
    }
}

/// Touches each huge page's place; where no huge page came, all of its pages.
fn touch_units(sys: &mut dyn System, area: Area) -> Result<(), Failure> {
    for unit in (0..area.pages).step_by(UNIT_PAGES as usize) {
        let unit = area.part(unit, UNIT_PAGES);
        sys.touch(unit.page(0), Access::Write)?;
        if !sys.is_present(unit.page(1))? {
            sys.touch_range(unit.part(1, UNIT_PAGES - 1), Pattern::word(Access::Write))?;
        }
    }
    Ok(())
}

impl Fragments {
    /// Anonymous pages that are touched between two lots of files: 1 MiB.
    const STEP_PAGES: u64 = 256;
    /// A file.
    const FILE_BYTES: u64 = 64 << 10;
    /// Written at a time.
    const WRITE_BYTES: u64 = 4 << 10;

    /// Fragments memory; what stays is mapped from then on.
    fn make(self, sys: &mut dyn System) -> Result<(), Failure> {
        let machine = sys.machine();
        let (total, page_bytes) = (machine.total_pages, machine.page_bytes);
        let anon = total * self.anon_percent / 100 / UNIT_PAGES * UNIT_PAGES;
        let files = total * self.file_percent / 100 * page_bytes / Self::FILE_BYTES;
        let area = map(sys, anon, Some(Advice::NoHuge))?;
        let steps = anon.div_ceil(Self::STEP_PAGES).max(1);
        let name = |number: u64| format!("fragment-{number}");
        for step in 0..steps {
            let first = step * Self::STEP_PAGES;
            let part = area.part(first, Self::STEP_PAGES.min(anon - first));
            sys.touch_range(part, Pattern::word(Access::Write))?;
            // Equal shares.
            for number in files * step / steps..files * (step + 1) / steps {
                write_new(sys, &name(number), Self::FILE_BYTES, Self::WRITE_BYTES)?;
            }
        }
        for number in 0..files {
            let file = sys.open_file(&name(number))?;
            sys.read_file(file, 0, Self::FILE_BYTES)?;
            sys.close_file(file)?;
        }
        // The original's own sequence is not known; any random half will do.
        let mut random = Pcg64::new(0, 0);
        for page in 0..anon {
            let stays = match self.keep {
                0 => random.next_u64() & 1 == 0,
                keep => page % keep == 0,
            };
            if !stays {
                sys.madvise(area.part(page, 1), Advice::DontNeed)?;
            }
        }
        Ok(())
    }
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
            read_all(sys, file, self.bytes, BLOCK)?;
        }
        sys.set_place(Place::Any)
    }
}

fn usemem(
    sys: &mut dyn System,
    threads: u32,
    size: Size,
    loops: u32,
    advice: Option<Advice>,
    file: Option<&str>,
) -> Result<(), Failure> {
    let total = sys.machine().total_pages;
    let each = size.pages_each(total, u64::from(threads));
    let area = map(sys, each * u64::from(threads), advice)?;
    let barrier = sys.new_barrier(threads)?;
    let done = Arc::new(AtomicBool::new(false));
    let reader = match file {
        Some(name) => {
            let (name, done) = (name.to_owned(), done.clone());
            let code: Code = Box::new(move |sys| stream(sys, &name, &done));
            Some(sys.spawn(ThreadSpec::thread("reader"), code)?)
        }
        None => None,
    };
    let mut started = Vec::new();
    for number in 0..threads {
        let part = area.part(u64::from(number) * each, each);
        let code: Code = Box::new(move |sys| {
            for _ in 0..loops {
                sys.touch_range(part, Pattern::word(Access::Write))?;
                sys.barrier(barrier)?;
            }
            Ok(())
        });
        started.push(sys.spawn(ThreadSpec::thread(format!("usemem-{number}")), code)?);
    }
    let ended = join_all(sys, &started);
    done.store(true, Ordering::Relaxed);
    sys.note_held();
    match reader {
        Some(reader) => ended.and(sys.join(reader)),
        None => ended,
    }
}

/// Reads a file over and over.
fn stream(sys: &mut dyn System, name: &str, done: &AtomicBool) -> Result<(), Failure> {
    const BLOCK: u64 = 1 << 20;
    let file = sys.open_file(name)?;
    let size = sys.file_bytes(file)?;
    loop {
        let mut at = 0;
        while at < size {
            if done.load(Ordering::Relaxed) {
                return Ok(());
            }
            sys.read_file(file, at, BLOCK)?;
            at += BLOCK;
        }
        if size == 0 {
            return Ok(());
        }
    }
}

fn map(sys: &mut dyn System, pages: u64, advice: Option<Advice>) -> Result<Area, Failure> {
    let area = sys.mmap(pages)?;
    if let Some(advice) = advice {
        sys.madvise(area, advice)?;
    }
    Ok(area)
}

/// A place that is exactly these CPUs.
fn place_of(sys: &dyn System, cpus: u64) -> Result<Place, Failure> {
    let machine = sys.machine();
    let bit = |cpu: &u32| 1u64.checked_shl(*cpu).unwrap_or(0);
    let mask = |cpus: &[u32]| cpus.iter().map(bit).sum::<u64>();
    if cpus == machine.nodes.iter().map(|node| mask(&node.cpus)).sum::<u64>() {
        return Ok(Place::Any);
    }
    if let Some(node) = machine.nodes.iter().find(|node| mask(&node.cpus) == cpus) {
        return Ok(Place::Node(node.number));
    }
    if cpus.count_ones() == 1 {
        return Ok(Place::Cpu(cpus.trailing_zeros()));
    }
    Err(Failure::Refused(format!("CPUs {cpus:#x}, expected one, those of a node, or all")))
}

/// Options of one letter and their values.
struct Arguments {
    options: Vec<(char, Option<String>)>,
}

impl Arguments {
    fn read<'a>(words: impl Iterator<Item = &'a str>) -> Result<Self, Unknown> {
        let mut options: Vec<(char, Option<String>)> = Vec::new();
        for word in words {
            let letter = word.strip_prefix('-').and_then(|rest| {
                let mut chars = rest.chars();
                chars.next().filter(|c| c.is_ascii_alphabetic() && chars.as_str().is_empty())
            });
            match (letter, options.last_mut()) {
                (Some(letter), _) => options.push((letter, None)),
                (None, Some((_, value @ None))) => *value = Some(word.to_owned()),
                (None, _) => {
                    return Err(Unknown::Malformed(format!("`{word}`, expected an option")));
                }
            }
        }
        Ok(Self { options })
    }

    fn find(&self, letter: char) -> Option<&(char, Option<String>)> {
        self.options.iter().find(|(other, _)| *other == letter)
    }

    fn number<T: std::str::FromStr>(&self, letter: char) -> Result<Option<T>, Unknown> {
        let Some((_, value)) = self.find(letter) else { return Ok(None) };
        let text = value.as_deref().unwrap_or_default();
        let wrong = || Unknown::Malformed(format!("`-{letter} {text}`, expected a number"));
        text.parse().map(Some).map_err(|_| wrong())
    }

    fn size(&self, default_percent: u64) -> Result<Size, Unknown> {
        let percent = self.number('p')?.unwrap_or(default_percent);
        Ok(self.number('m')?.map_or(Size::Percent(percent), Size::Mib))
    }

    fn advice(&self) -> Option<Advice> {
        if self.find('H').is_some() {
            Some(Advice::Huge)
        } else if self.find('N').is_some() {
            Some(Advice::NoHuge)
        } else {
            None
        }
    }

    /// Refuses options that a program does not have.
    fn only(&self, letters: &str) -> Result<(), Unknown> {
        match self.options.iter().find(|(letter, _)| !letters.contains(*letter)) {
            None => Ok(()),
            Some((letter, _)) => {
                Err(Unknown::Malformed(format!("`-{letter}`, expected one of -{letters}")))
            }
        }
    }

    fn usemem(&self) -> Result<Program, Unknown> {
        self.only("tplHNfm")?;
        Ok(Program::Usemem {
            threads: self.number('t')?.unwrap_or(1).max(1),
            size: self.size(80)?,
            loops: self.number('l')?.unwrap_or(1),
            advice: self.advice(),
            file: self.find('f').and_then(|(_, name)| name.as_deref().map(file_name)),
        })
    }

    fn thpscale(&self) -> Result<Program, Unknown> {
        self.only("dafkpt")?;
        let file_percent = match self.find('d') {
            Some(_) => self.number('f')?.unwrap_or(50),
            None => 0,
        };
        let fragments = Fragments {
            anon_percent: self.number('a')?.unwrap_or(30),
            file_percent,
            keep: self.number('k')?.unwrap_or(2),
        };
        let list = self.find('t').and_then(|(_, value)| value.as_deref()).unwrap_or("1");
        let wrong =
            || Unknown::Malformed(format!("`-t {list}`, expected numbers of threads, as 1,2,4"));
        let threads = |text: &str| text.parse().ok().filter(|&n| n > 0).ok_or_else(wrong);
        let rounds = list.split(',').map(threads).collect::<Result<_, _>>()?;
        Ok(Program::Thpscale { fragments, size: self.size(40)?, rounds })
    }

    fn mmapdemo(&self) -> Result<Program, Unknown> {
        self.only("pmlHNcbiP")?;
        let policy = match (self.number('b')?, self.number('i')?, self.number::<u64>('P')?) {
            (Some(mask), None, None) => MemPolicy::Bind(mask),
            (None, Some(mask), None) => MemPolicy::Interleave(mask),
            (None, None, Some(mask)) => MemPolicy::Preferred(mask.trailing_zeros()),
            (None, None, None) => MemPolicy::Default,
            _ => return Err(Unknown::Malformed("two memory policies, expected one".to_owned())),
        };
        Ok(Program::Mmapdemo {
            size: self.size(80)?,
            loops: self.number('l')?.unwrap_or(1),
            advice: self.advice(),
            cpus: self.number('c')?,
            policy,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_become_programs() {
        let usemem = Program::parse("usemem -t 2 -p 80 -l 3 -H").unwrap();
        let expected = Program::Usemem {
            threads: 2,
            size: Size::Percent(80),
            loops: 3,
            advice: Some(Advice::Huge),
            file: None,
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
            size: Size::Percent(40),
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
        assert!(matches!(needs("fragmenter -t 4"), Unknown::Needs(_)));
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
