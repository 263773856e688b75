//! `highalloc`: how much of memory can be had in huge pages, one after another, while trees of files are worked on,
//! and once more when all is at rest.
//!
//! Departs: a scan of a directory beside each unit of work is left out, of which nothing but a page of the directory
//! would be seen. What a unit computes takes no time. Visible as: more units in the same time, but where results tell
//! how many there were.

use super::Unknown;
use super::arguments::Arguments;
use super::pace::{Follower, Pace, Waits, share};
use super::program::report_success;
use super::told::{Results, only};
use crate::background::{Background, Signal};
use crate::files::{Random, read_to_end, write_new};
use crate::process::run_process;
use crate::stress_highalloc::{Pass, settle};
use crate::trees::{self, BLOCK, file_name, map_heap, object_name};
use highorder_system::{Access, Code, Failure, Ns, Pattern, System, ThreadSpec};

/// Begins the number of each random stream: "highallo" in ASCII.
const STREAM: u128 = 0x6869_6768_616c_6c6f << 64;
/// Files of its tree that a unit of work reads beside the source.
const OTHER_FILES: u64 = 25;
/// Four of five of them are of one fifth of the tree: headers, of which most units read some. The descriptions are silent.
/// Recorded runs tell: what is read for the first time, from the disk or as the second use of what is in memory, comes to
/// 590 pages for each of the first units, as 26 files of any have, but to 420 for each of 100 units and 310 of 300
/// (35-highalloc.r2; 33 and 34 alike), where it would be 520 and 440 if all files were read alike.
const FIFTH: u64 = 5;
/// A unit's heap, in MiB, from and to.
const HEAP_MIB: [u64; 2] = [8, 40];
/// The file that it leaves, in KiB, from and to.
const OBJECT_KIB: [u64; 2] = [16, 128];
/// A page of the pass: order 9.
const ORDER: u8 = 9;
/// What is asked for, in percent of memory.
const GOAL_PERCENT: u64 = 95;
/// Between the first pass and the second.
const PAUSE: Ns = Ns::from_secs(5);
/// From the second pass to the load's end.
const TAIL: Ns = Ns::from_secs(20);
/// The file that is written and read when all is at rest.
const FILE: &str = "highalloc-file";
const FILE_BLOCK: u64 = 1 << 20;

/// What `highalloc` was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Highalloc {
    /// Whether it only makes the trees.
    pub makes_trees: bool,
    /// Trees, and workers.
    pub trees: u64,
    /// Files of a tree.
    pub files: u64,
    /// A tree, in MiB.
    pub tree_mib: u64,
    /// How long the workers have worked before the first pass, in seconds.
    pub warm_seconds: u64,
    /// From one attempt to the next, in milliseconds.
    pub pace_millis: u64,
    /// What the workers did, if that is known.
    pub load: Option<Load>,
}

/// Units of work that the workers of a recorded run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Before the first pass.
    pub warm: u64,
    /// In each of the two passes.
    pub passes: [u64; 2],
    /// How long each of them took, in milliseconds.
    pub pass_ms: [u64; 2],
}

impl Load {
    fn of(results: &Results) -> Option<Self> {
        let of_pass =
            |pass: u64, what: &str| only(results, &format!("highalloc.pass{pass}.{what}"));
        let units = |pass| Some(of_pass(pass, "load_units")? as u64);
        let millis = |pass| Some((of_pass(pass, "elapsed_s")? * 1e3) as u64);
        Some(Self {
            warm: only(results, "highalloc.warm_units")? as u64,
            passes: [units(1)?, units(2)?],
            pass_ms: [millis(1)?, millis(2)?],
        })
    }

    /// The workers went on at a pass's rate for so long after it.
    fn after(self, pass: usize, time: Ns) -> u64 {
        share(self.passes[pass], time.0 / 1_000_000, self.pass_ms[pass])
    }
}

impl Highalloc {
    pub(super) fn of(arguments: &Arguments) -> Result<Self, Unknown> {
        arguments.only("SkfMwm")?;
        let needed = |letter| {
            let number = arguments.number::<u64>(letter)?.filter(|&n| n > 0);
            let missing = || Unknown::Malformed(format!("no `-{letter}`, expected a number"));
            number.ok_or_else(missing)
        };
        Ok(Self {
            makes_trees: arguments.has('S'),
            trees: needed('k')?,
            files: needed('f')?,
            tree_mib: needed('M')?,
            warm_seconds: arguments.number('w')?.unwrap_or(20),
            pace_millis: arguments.number('m')?.unwrap_or(125),
            load: None,
        })
    }

    /// The workers do as much as results tell.
    pub(super) fn set_load(&mut self, results: &Results) {
        self.load = Load::of(results);
    }

    pub(super) fn run(self, sys: &mut dyn System) -> Result<(), Failure> {
        let trees = Trees { trees: self.trees, files: self.files, tree_mib: self.tree_mib };
        if self.makes_trees {
            return trees.make(sys);
        }
        let machine = sys.machine();
        let (total, page_bytes) = (machine.total_pages, machine.page_bytes);
        let pass = Pass {
            order: ORDER,
            attempts: (total * GOAL_PERCENT / 100) >> ORDER,
            pace: Ns::from_millis(self.pace_millis),
        };
        let pace = Pace::new(sys, self.load.is_some(), Waits::Asleep);
        let load = self.load.unwrap_or_default();
        let workers = trees.start(sys, &pace)?;
        let mut front = Front { pace, due: 0 };
        front.sleep(sys, Ns::from_secs(self.warm_seconds), load.warm)?;
        for (number, rest) in [PAUSE, TAIL].into_iter().enumerate() {
            front.run_pass(sys, pass, &format!("pass{}", number + 1), load.passes[number])?;
            front.sleep(sys, rest, load.after(number, rest))?;
        }
        workers.end(sys)?;
        trees::remove(sys, self.trees, self.files)?;
        settle(sys, FILE, total * page_bytes, [FILE_BLOCK; 2])?;
        Front::default().run_pass(sys, pass, "rested", 0)
    }
}

/// Trees of files that are worked on, each by a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trees {
    /// Trees, and workers.
    trees: u64,
    /// Files of a tree.
    files: u64,
    /// A tree, in MiB.
    tree_mib: u64,
}

impl Trees {
    /// Starts the workers.
    fn start(self, sys: &mut dyn System, pace: &Pace) -> Result<Background, Failure> {
        let mut workers = Background::default();
        for worker in 0..self.trees {
            let pace = pace.follower();
            workers.start(sys, "worker", move |sys, signal| {
                signal.set_ready();
                self.work(sys, signal, worker, &pace)
            })?;
        }
        Ok(workers)
    }

    /// Files are of equal size: how theirs differed is not known.
    fn file_bytes(self) -> u64 {
        (self.tree_mib << 20) / self.files
    }

    /// Writes the trees.
    fn make(self, sys: &mut dyn System) -> Result<(), Failure> {
        for tree in 0..self.trees {
            for file in 0..self.files {
                write_new(sys, &file_name(tree, file), self.file_bytes(), BLOCK)?;
            }
        }
        sys.sync()
    }

    /// The files that a unit of work reads: its source, and others.
    fn read_by_unit(self, random: &mut Random) -> Vec<u64> {
        let source = random.below(self.files);
        let other = |_| {
            let is_header = random.below(FIFTH) > 0;
            random.below(if is_header { self.files.div_ceil(FIFTH) } else { self.files })
        };
        std::iter::once(source).chain((0..OTHER_FILES).map(other)).collect()
    }

    /// Units of work, each a process, until the load is to end; then what they left goes.
    fn work(
        self,
        sys: &mut dyn System,
        signal: &Signal,
        worker: u64,
        pace: &Follower,
    ) -> Result<(), Failure> {
        let mut random = Random::new(sys.seed(), STREAM | u128::from(worker));
        let mut number = 0;
        while pace.goes_on(sys, || signal.is_over())? {
            let files = self.read_by_unit(&mut random);
            let [least, most] = HEAP_MIB;
            let heap_bytes = random.between(least << 20, most << 20);
            let [least, most] = OBJECT_KIB;
            let object_bytes = random.between(least << 10, most << 10);
            let unit: Code = Box::new(move |sys| {
                for file in files {
                    read_to_end(sys, &file_name(worker, file), self.file_bytes(), BLOCK)?;
                }
                let heap = map_heap(sys, heap_bytes)?;
                sys.touch_range(heap, Pattern::word(Access::Write))?;
                write_new(sys, &object_name(worker, number), object_bytes, BLOCK)
            });
            // One that is killed for want of memory leaves no file, or part of it.
            run_process(sys, ThreadSpec::process("unit"), unit)?;
            number += 1;
            pace.count();
        }
        Ok(())
    }
}

/// What goes on in front of the workers, and how many units of work are due so far.
#[derive(Default)]
struct Front {
    pace: Pace,
    due: u64,
}

impl Front {
    /// Rests, while so many units become due evenly.
    fn sleep(&mut self, sys: &mut dyn System, time: Ns, units: u64) -> Result<(), Failure> {
        if !self.pace.is_known() {
            return sys.sleep(time);
        }
        let parts = (time.0 / 1_000_000_000).max(1);
        for part in 1..=parts {
            sys.sleep(Ns(time.0 / parts))?;
            self.pace.lead(sys, self.due + share(units, part, parts))?;
        }
        self.due += units;
        Ok(())
    }

    /// Asks for block after block, while so many units become due evenly.
    fn run_pass(
        &mut self,
        sys: &mut dyn System,
        pass: Pass,
        name: &str,
        units: u64,
    ) -> Result<(), Failure> {
        let had = pass.run_beside(sys, |sys, attempts| {
            self.pace.lead(sys, self.due + share(units, attempts, pass.attempts))
        })?;
        self.due += units;
        report_success(sys, &format!("highalloc.{name}"), had, pass.attempts);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_files_of_a_unit_are_headers() {
        let trees = Trees { trees: 1, files: 1000, tree_mib: 100 };
        let mut random = Random::new(1, STREAM);
        let files: Vec<u64> = (0..100).flat_map(|_| trees.read_by_unit(&mut random)).collect();
        assert_eq!(files.len(), 2600);
        assert!(files.iter().all(|&file| file < 1000));
        // A fifth of the source's, four fifths and a fifth of the rest of the others'.
        let of_the_first_fifth = files.iter().filter(|&&file| file < 200).count();
        assert!((78..=86).contains(&(of_the_first_fifth * 100 / files.len())));
    }
}
