//! Kernels that are built beside something else: copies of the sources, and in each one compiler after another (`make -j1`).
//!
//! Models: what mmtests' stress-highalloc has going on in the background (vmr/bin/bench-stresshighalloc.sh, 2012): each
//! copy is built from when it is there, the original from when the last copy is.
//! What a compiler reads, fills and leaves is measured: Linux 3.3.8 in its default configuration of x86_64 by gcc 11,
//! 1780 sources; how it uses its memory meanwhile, by gcc 12, 40 sources.
//! Departs: the programs that build are no files, and to start them costs nothing; of processes beside the compiler `make`
//! alone has memory (the others have 0.9 MiB for a tree); nothing is linked. Files are of equal size, but for sources and
//! headers. Objects stay when trees are deleted. Visible as: fewer mapped pages of files, less written at the end of a
//! build, and some page cache until caches are dropped.

use crate::background::{Background, Signal};
use crate::files::{Random, read_to_end, write_new};
use crate::process::run_process;
use crate::trees::{self, BLOCK, file_name, map_heap, object_name};
use highorder_system::{Access, Area, Code, Failure, Ns, Pattern, System, ThreadSpec};

/// Begins the number of each random stream: "kernelbu" in ASCII.
const STREAM: u128 = 0x6b65_726e_656c_6275 << 64;
/// Files of a tree: those of Linux 3.2, in round numbers ("Linux Kernel Development", The Linux Foundation, March 2012).
const FILES: u64 = 37_600;
/// All of them: what mmtests counts for a tree.
const TREE_BYTES: u64 = 400 << 20;
/// Those of them that some compiler reads beside its source, and the mean of their sizes.
const HEADERS: u64 = 1933;
const HEADER_BYTES: u64 = 6776;
/// Those that are compiled, and the mean of their sizes.
const SOURCES: u64 = 1780;
const SOURCE_BYTES: u64 = 20_656;
/// From the header that most sources include to the one that the fewest do: up to which rank, how many of 10,000 sources
/// include each. A source includes 329 in the mean.
const INCLUDED_BY: [(u64, u64); 8] = [
    (100, 9855),
    (200, 9638),
    (300, 7278),
    (400, 3393),
    (600, 1054),
    (1000, 122),
    (1500, 23),
    (HEADERS, 7),
];
/// A compiler's anonymous memory, in bytes, from and to: 27 MiB in the mean; a tenth had less than 17, a tenth more than 41.
const HEAP_BYTES: [u64; 2] = [13 << 20, 41 << 20];
/// Parts of equal length of a compiler's time, and in how many of them, from the first on, it reads headers and its heap
/// grows: at the end of the seventh tenth 96 % are there, and headers take 67 % of its time.
const PARTS: u64 = 10;
const PARTS_READING: u64 = 7;
/// What it touches in each part: 6.8 to 10.3 MiB of 22. In a quarter of its time it touches 70 to 75 % of what is there, as
/// many as if each part had pages of its own, drawn from all.
const TOUCHED_TENTHS: u64 = 4;
/// Pages that it touches together, our choice.
const TOUCHED_TOGETHER: u64 = 8;
/// Anonymous memory of the processes of `make` that wait for each other and for the compiler, 3.8 for a tree, and of the one
/// that waits for the compiler. It goes on when the compiler has ended, the others when a directory is done: 159 sources were in
/// 13.
const MAKE_BYTES: u64 = 2723 << 10;
const MAKE_INNERMOST_BYTES: u64 = 708 << 10;
const SOURCES_OF_DIRECTORY: u64 = 12;
/// An object, in bytes, from and to: 14,930 in the mean; a tenth had less than 2368, a tenth more than 35,424.
const OBJECT_BYTES: [u64; 2] = [2 << 10, 27 << 10];

/// Kernels that are built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Builds {
    /// Trees of sources: an original and its copies.
    pub(crate) trees: u64,
    /// How long the compiler computes for a source.
    pub(crate) unit_time: Ns,
}

impl Builds {
    /// Writes the original, copies it, and starts to build each copy when it is there; the original last.
    pub(crate) fn copy_and_start(self, sys: &mut dyn System) -> Result<Background, Failure> {
        let mut builds = Background::default();
        for file in 0..FILES {
            write_new(sys, &file_name(0, file), file_bytes(file), BLOCK)?;
        }
        for tree in 1..self.trees {
            for file in 0..FILES {
                read_to_end(sys, &file_name(0, file), file_bytes(file), BLOCK)?;
                write_new(sys, &file_name(tree, file), file_bytes(file), BLOCK)?;
            }
            self.start(sys, &mut builds, tree)?;
        }
        self.start(sys, &mut builds, 0)?;
        Ok(builds)
    }

    fn start(
        self,
        sys: &mut dyn System,
        builds: &mut Background,
        tree: u64,
    ) -> Result<(), Failure> {
        builds.start(sys, "make", move |sys, signal| {
            signal.set_ready();
            self.build(sys, signal, tree)
        })
    }

    /// Compiles source after source, each by a process, until all are or the build is to end.
    fn build(self, sys: &mut dyn System, signal: &Signal, tree: u64) -> Result<(), Failure> {
        let mut random = Random::new(sys.seed(), STREAM | u128::from(tree));
        let page_bytes = sys.machine().page_bytes;
        let make = map_heap(sys, MAKE_BYTES)?;
        let innermost = make.part(0, MAKE_INNERMOST_BYTES / page_bytes);
        for source in 0..SOURCES {
            if signal.is_over() {
                break;
            }
            let goes_on = if source % SOURCES_OF_DIRECTORY == 0 { make } else { innermost };
            sys.touch_range(goes_on, Pattern::word(Access::Write))?;
            let headers = included(&mut random);
            let [least, most] = HEAP_BYTES;
            let heap_bytes = random.between(least, most);
            let [least, most] = OBJECT_BYTES;
            let object_bytes = random.between(least, most);
            let compiler =
                Compiler { tree, source, headers, heap_bytes, time: self.unit_time, object_bytes };
            let code: Code = Box::new(move |sys| compiler.run(sys));
            run_process(sys, ThreadSpec::process("cc1"), code)?;
        }
        Ok(())
    }

    /// Deletes the trees.
    pub(crate) fn remove(self, sys: &mut dyn System) -> Result<(), Failure> {
        trees::remove(sys, self.trees, FILES)
    }
}

/// A compiler, from its source to the object.
struct Compiler {
    tree: u64,
    source: u64,
    headers: Vec<u64>,
    heap_bytes: u64,
    /// How long it computes.
    time: Ns,
    object_bytes: u64,
}

impl Compiler {
    /// Runs it to its end. One that was killed for want of memory has left no object, or part of it.
    fn run(self, sys: &mut dyn System) -> Result<(), Failure> {
        let stream = u128::from(self.source + 1) << 32 | u128::from(self.tree);
        let mut random = Random::new(sys.seed(), STREAM | stream);
        let heap = map_heap(sys, self.heap_bytes)?;
        let files: Vec<u64> = std::iter::once(HEADERS + self.source).chain(self.headers).collect();
        // What there is of it, of so many, once a part is over.
        let by_end_of = |all: u64, part: u64| all * part.min(PARTS_READING) / PARTS_READING;
        let nr_files = files.len() as u64;
        for part in 0..PARTS {
            let read = by_end_of(nr_files, part)..by_end_of(nr_files, part + 1);
            for &file in &files[read.start as usize..read.end as usize] {
                read_to_end(sys, &file_name(self.tree, file), file_bytes(file), BLOCK)?;
            }
            let [old, now] = [part, part + 1].map(|part| by_end_of(heap.pages, part));
            sys.touch_range(heap.part(old, now - old), Pattern::word(Access::Write))?;
            let wanted = heap.pages * TOUCHED_TENTHS / 10 - (now - old);
            touch_some(sys, heap.part(0, old), wanted, &mut random)?;
            sys.compute(Ns(self.time.0 / PARTS))?;
        }
        write_new(sys, &object_name(self.tree, self.source), self.object_bytes, BLOCK)
    }
}

/// Touches about so many pages of these.
fn touch_some(
    sys: &mut dyn System,
    area: Area,
    wanted: u64,
    random: &mut Random,
) -> Result<(), Failure> {
    for first in (0..area.pages).step_by(TOUCHED_TOGETHER as usize) {
        if random.below(area.pages) < wanted {
            let pages = TOUCHED_TOGETHER.min(area.pages - first);
            sys.touch_range(area.part(first, pages), Pattern::word(Access::Write))?;
        }
    }
    Ok(())
}

/// The headers that a source includes.
fn included(random: &mut Random) -> Vec<u64> {
    let mut headers = Vec::new();
    let mut rank = 0;
    for (end, of_10_000) in INCLUDED_BY {
        headers.extend((rank..end).filter(|_| random.below(10_000) < of_10_000));
        rank = end;
    }
    headers
}

/// Headers come first, then sources, then what nothing of a build reads.
const fn file_bytes(file: u64) -> u64 {
    const OTHERS: u64 = TREE_BYTES - HEADERS * HEADER_BYTES - SOURCES * SOURCE_BYTES;
    if file < HEADERS {
        HEADER_BYTES
    } else if file < HEADERS + SOURCES {
        SOURCE_BYTES
    } else {
        OTHERS / (FILES - HEADERS - SOURCES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_includes_as_many_headers_as_was_measured_and_most_of_them_are_the_same() {
        let mut random = Random::new(1, STREAM);
        let of_units: Vec<Vec<u64>> = (0..200).map(|_| included(&mut random)).collect();
        let read: usize = of_units.iter().map(Vec::len).sum();
        assert!((320..=338).contains(&(read / of_units.len())), "{read}");
        assert!(of_units.iter().flatten().all(|&header| header < HEADERS));
        let in_most = |header: u64| of_units.iter().filter(|unit| unit.contains(&header)).count();
        assert!(in_most(50) > 185 && in_most(1800) < 5);
    }

    #[test]
    fn a_tree_is_as_large_as_mmtests_counts_it() {
        let bytes: u64 = (0..FILES).map(file_bytes).sum();
        assert!(TREE_BYTES - bytes < FILES, "{bytes}");
    }
}
