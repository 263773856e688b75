//! Recorded programs and what they do.

use super::arguments::Arguments;
use super::churn::Churn;
use super::fragmenter::Fragmenter;
use super::fragments::Fragments;
use super::fsmark::Fsmark;
use super::highalloc::Highalloc;
use super::hugestress::Hugestress;
use super::mapstream::Mapstream;
use super::pace::{Follower, Pace, Waits};
use super::postmark::Postmark;
use super::slabload::Slabload;
use super::stutter::Stutter;
use super::told::{ReadMeanwhile, Told, only};
use super::{Unknown, place_of};
use crate::process::{join_all, map, run_threads};
use highorder_record::{Better, Metric, Statistic};
use highorder_system::{
    Access, Advice, Area, Code, Extent, Failure, MemPolicy, NodeId, Ns, Pattern, System, ThreadSpec,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Base pages of 2 MiB: what these programs align to.
pub(super) const UNIT_PAGES: u64 = 512;

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
        /// How much of it was read, if that is known.
        read: Option<ReadMeanwhile>,
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
        /// How long that took, if it is known.
        took: Option<Ns>,
        /// The mapping of each round.
        size: Size,
        /// What is advised of it.
        advice: Option<Advice>,
        /// Threads of each round.
        rounds: Vec<u32>,
    },
    /// Small files fill the page cache, and are read again while huge pages are wanted.
    Fragmenter(Fragmenter),
    /// The pool of huge pages is filled while memory is in use.
    Hugestress(Hugestress),
    /// Many small files, half of which go again.
    Slabload(Slabload),
    /// Mappings of mixed sizes come and go.
    Churn(Churn),
    /// Huge pages are asked for one after another while trees of files are worked on.
    Highalloc(Highalloc),
    /// Sparse files are written through mappings.
    Mapstream(Mapstream),
    /// Threads write files of one size.
    Fsmark(Fsmark),
    /// Files of random sizes come and go.
    Postmark(Postmark),
    /// Mappings are timed while a large file is copied.
    Stutter(Stutter),
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
    pub(super) fn pages_each(self, total_pages: u64, threads: u64) -> u64 {
        let pages = match self {
            Self::Percent(percent) => total_pages * percent / 100,
            Self::Mib(mib) => mib * 256,
        };
        pages / threads / UNIT_PAGES * UNIT_PAGES
    }
}

impl Program {
    /// Reads a command line.
    ///
    /// # Errors
    /// What is missing for it, or what is wrong with it.
    pub fn parse(line: &str) -> Result<Self, Unknown> {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let arguments = Arguments::read(words);
        match name {
            "usemem" => usemem_of(&arguments?),
            "mmapdemo" => mmapdemo_of(&arguments?),
            "thpscale" => thpscale_of(&arguments?),
            "fragmenter" => Fragmenter::of(&arguments?).map(Self::Fragmenter),
            "hugestress" => Hugestress::of(&arguments?).map(Self::Hugestress),
            "slabload" => Slabload::of(&arguments?).map(Self::Slabload),
            "churn" => Churn::of(&arguments?).map(Self::Churn),
            "highalloc" => Highalloc::of(&arguments?).map(Self::Highalloc),
            "mapstream" => Mapstream::of(&arguments?).map(Self::Mapstream),
            "fsmark" => Fsmark::of(&arguments?).map(Self::Fsmark),
            "postmark" => Postmark::of(&arguments?).map(Self::Postmark),
            "stutter" => Stutter::of(&arguments?).map(Self::Stutter),
            other => Err(Unknown::Needs(vec![format!("the program `{other}`")])),
        }
    }

    /// What is advised of its memory.
    #[must_use]
    pub const fn advice(&self) -> Option<Advice> {
        match self {
            Self::Usemem { advice, .. }
            | Self::Mmapdemo { advice, .. }
            | Self::Thpscale { advice, .. } => *advice,
            Self::Fragmenter(_) => Some(Advice::Huge),
            _ => None,
        }
    }

    /// Whether it leaves files in the page cache.
    #[must_use]
    pub const fn leaves_files(&self) -> bool {
        match self {
            Self::Usemem { .. } | Self::Mmapdemo { .. } | Self::Churn(_) => false,
            Self::Thpscale { fragments, .. } => fragments.file_percent > 0,
            // It drops what it made.
            Self::Stutter(stutter) => !stutter.makes_file,
            Self::Fragmenter(_)
            | Self::Hugestress(_)
            | Self::Slabload(_)
            | Self::Highalloc(_)
            | Self::Mapstream(_)
            | Self::Fsmark(_)
            | Self::Postmark(_) => true,
        }
    }

    /// Whether it leaves many small files, whose inodes fill slab caches.
    #[must_use]
    pub const fn loads_slab(&self) -> bool {
        matches!(self, Self::Slabload(_) | Self::Highalloc(_))
    }

    /// The same, with as much done in the background as is told of a recorded run.
    #[must_use]
    pub(super) fn in_step(mut self, told: &Told) -> Self {
        match &mut self {
            Self::Usemem { loops, advice, file: Some(_), read, .. } => {
                *read = ReadMeanwhile::of(told, *loops, *advice != Some(Advice::NoHuge));
            }
            Self::Thpscale { took, .. } => {
                *took = only(&told.results, "thpscale.frag_s").map(|s| Ns((s * 1e9) as u64));
            }
            Self::Fragmenter(fragmenter) => fragmenter.set_reread(told),
            Self::Highalloc(highalloc) => highalloc.set_load(&told.results),
            _ => {}
        }
        self
    }

    /// The program as a process's first thread runs it.
    #[must_use]
    pub fn code(&self) -> Code {
        let program = self.clone();
        Box::new(move |sys| program.run(sys))
    }

    fn run(&self, sys: &mut dyn System) -> Result<(), Failure> {
        match self {
            Self::Usemem { threads, size, loops, advice, file, read } => {
                let size = (*threads, *size, *loops);
                usemem(sys, size, *advice, file.as_deref(), read.as_ref())
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
            Self::Thpscale { fragments, took, size, advice, rounds } => {
                fragments.make(sys, *took)?;
                let total = sys.machine().total_pages;
                for (number, &threads) in rounds.iter().enumerate() {
                    let each = size.pages_each(total, threads.into());
                    let area = map(sys, each * u64::from(threads), *advice)?;
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
            Self::Fragmenter(fragmenter) => fragmenter.clone().run(sys),
            Self::Hugestress(hugestress) => hugestress.run(sys),
            Self::Slabload(slabload) => slabload.run(sys),
            Self::Churn(churn) => churn.run(sys),
            Self::Highalloc(highalloc) => highalloc.run(sys),
            Self::Mapstream(mapstream) => mapstream.run(sys),
            Self::Fsmark(fsmark) => fsmark.run(sys),
            Self::Postmark(postmark) => postmark.run(sys),
            Self::Stutter(stutter) => stutter.run(sys),
        }
    }
}

/// Touches each huge page's place; where no huge page came, all of its pages.
pub(super) fn touch_units(sys: &mut dyn System, area: Area) -> Result<(), Failure> {
    for unit in (0..area.pages).step_by(UNIT_PAGES as usize) {
        let unit = area.part(unit, UNIT_PAGES);
        sys.touch(unit.page(0), Access::Write)?;
        if !sys.is_present(unit.page(1))? {
            sys.touch_range(unit.part(1, UNIT_PAGES - 1), Pattern::word(Access::Write))?;
        }
    }
    Ok(())
}

fn usemem(
    sys: &mut dyn System,
    (threads, size, loops): (u32, Size, u32),
    advice: Option<Advice>,
    file: Option<&str>,
    read: Option<&ReadMeanwhile>,
) -> Result<(), Failure> {
    let total = sys.machine().total_pages;
    let each = size.pages_each(total, u64::from(threads));
    let all = each * u64::from(threads);
    let area = map(sys, all, advice)?;
    let barrier = sys.new_barrier(threads)?;
    let done = Arc::new(AtomicBool::new(false));
    let pace = Pace::new(sys, read.is_some(), Waits::Busy);
    let reader = match file {
        Some(name) => {
            let (name, done, pace) = (name.to_owned(), done.clone(), pace.follower());
            let code: Code = Box::new(move |sys| stream(sys, &name, &done, &pace));
            Some(sys.spawn(ThreadSpec::thread("reader"), code)?)
        }
        None => None,
    };
    let touched = Arc::new(AtomicU64::new(0));
    let mut started = Vec::new();
    for number in 0..threads {
        let part = area.part(u64::from(number) * each, each);
        let (pace, read, touched) = (pace.clone(), read.cloned(), touched.clone());
        let code: Code = Box::new(move |sys| {
            for number in 0..loops as usize {
                match &read {
                    None => sys.touch_range(part, Pattern::word(Access::Write))?,
                    Some(read) => {
                        for unit in (0..part.pages).step_by(UNIT_PAGES as usize) {
                            let unit = part.part(unit, UNIT_PAGES);
                            sys.touch_range(unit, Pattern::word(Access::Write))?;
                            let touched = touched.fetch_add(unit.pages, Ordering::Relaxed);
                            let in_loop =
                                (touched + unit.pages).saturating_sub(number as u64 * all);
                            pace.lead(sys, read.due(number, in_loop, all))?;
                        }
                    }
                }
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

/// Reads a file over and over, or as much of it as is due.
fn stream(
    sys: &mut dyn System,
    name: &str,
    done: &AtomicBool,
    pace: &Follower,
) -> Result<(), Failure> {
    const BLOCK: u64 = 1 << 20;
    let file = sys.open_file(name)?;
    let size = sys.file_bytes(file)?;
    let is_over = || done.load(Ordering::Relaxed);
    loop {
        let mut at = 0;
        while at < size {
            if !pace.goes_on(sys, is_over)? {
                return Ok(());
            }
            sys.read_file(file, at, BLOCK)?;
            pace.count();
            at += BLOCK;
        }
        if size == 0 {
            return Ok(());
        }
    }
}

/// Reports which share of what a pass asked for it was given, under the name that recorded results have.
pub(super) fn report_success(sys: &mut dyn System, pass: &str, had: u64, asked: u64) {
    if asked > 0 {
        let row = Metric::new(format!("{pass}.pct"), "%", Better::Higher);
        sys.report(&row.shown_as(&[Statistic::Amean], 2), 100.0 * had as f64 / asked as f64);
    }
}

fn usemem_of(arguments: &Arguments) -> Result<Program, Unknown> {
    arguments.only("tplHNfm")?;
    Ok(Program::Usemem {
        threads: arguments.threads(1)?,
        size: arguments.size(80)?,
        loops: arguments.number('l')?.unwrap_or(1),
        advice: arguments.advice(),
        file: arguments.file('f'),
        read: None,
    })
}

fn thpscale_of(arguments: &Arguments) -> Result<Program, Unknown> {
    arguments.only("dafkptN")?;
    let fragments = Fragments::of(arguments)?;
    let list = arguments.text('t').unwrap_or("1");
    let wrong =
        || Unknown::Malformed(format!("`-t {list}`, expected numbers of threads, as 1,2,4"));
    let threads = |text: &str| text.parse().ok().filter(|&n| n > 0).ok_or_else(wrong);
    let rounds = list.split(',').map(threads).collect::<Result<_, _>>()?;
    // `-N` advises nothing, where for other programs it advises against.
    let advice = if arguments.has('N') { None } else { Some(Advice::Huge) };
    Ok(Program::Thpscale { fragments, took: None, size: arguments.size(40)?, advice, rounds })
}

fn mmapdemo_of(arguments: &Arguments) -> Result<Program, Unknown> {
    arguments.only("pmlHNcbiP")?;
    let (bind, interleave) = (arguments.number('b')?, arguments.number('i')?);
    let policy = match (bind, interleave, arguments.number::<u64>('P')?) {
        (Some(mask), None, None) => MemPolicy::Bind(mask),
        (None, Some(mask), None) => MemPolicy::Interleave(mask),
        (None, None, Some(mask)) => MemPolicy::Preferred(NodeId(mask.trailing_zeros())),
        (None, None, None) => MemPolicy::Default,
        _ => return Err(Unknown::Malformed("two memory policies, expected one".to_owned())),
    };
    Ok(Program::Mmapdemo {
        size: arguments.size(80)?,
        loops: arguments.number('l')?.unwrap_or(1),
        advice: arguments.advice(),
        cpus: arguments.number('c')?,
        policy,
    })
}
