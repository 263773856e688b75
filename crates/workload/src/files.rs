//! What workloads that use files share: the pieces that a file is written and read by, and random numbers.

use highorder_system::{Code, Failure, FileId, System, ThreadSpec};
use rand_core::Rng;
use rand_pcg::Pcg64;

/// The pieces of `block` bytes, the last one perhaps shorter, that make up `bytes`: where each begins and
/// how long it is.
pub(crate) fn blocks(bytes: u64, block: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..bytes.div_ceil(block)).map(move |n| (n * block, block.min(bytes - n * block)))
}

/// Creates a file, writes it from beginning to end by pieces of `block` bytes, and closes it.
pub(crate) fn write_new(
    sys: &mut dyn System,
    name: &str,
    bytes: u64,
    block: u64,
) -> Result<(), Failure> {
    let file = sys.create_file(name)?;
    append(sys, file, 0, bytes, block)?;
    sys.close_file(file)
}

/// Creates a file full of what cannot be compressed, as mmtests does (`create_random_file`, shellpacks/common.sh, 2016):
/// `dd` copies a file of 20 MB over and over, in pieces of 512 bytes, which is what it takes where it is told nothing.
/// That is slower than memory is written, so that disks may keep up. It is a process of its own: where the scheduler
/// lets that run, the file's pages are.
///
/// Departs: one process does it, not one for each 20 MB. Visible as: all of the file is written from one node.
///
/// # Errors
/// What the system refused it, or [`Failure::Killed`].
pub(crate) fn create_random_file(
    sys: &mut dyn System,
    name: &'static str,
    bytes: u64,
) -> Result<(), Failure> {
    const BASE: &str = "random_base_file";
    const BASE_BYTES: u64 = 20 * 1_048_575;
    const BLOCK: u64 = 512;
    let code: Code = Box::new(move |sys| {
        write_new(sys, BASE, BASE_BYTES.min(bytes), BLOCK)?;
        let base = sys.open_file(BASE)?;
        let file = sys.create_file(name)?;
        for (at, part) in blocks(bytes, BLOCK) {
            let from = at % (BASE_BYTES / BLOCK * BLOCK);
            sys.read_file(base, from, part)?;
            sys.write_file(file, at, part)?;
        }
        sys.close_file(file)?;
        sys.close_file(base)?;
        sys.unlink(BASE)
    });
    let writer = sys.spawn(ThreadSpec::process("dd"), code)?;
    sys.join(writer)
}

/// Writes `bytes` from `offset` on by pieces of `block` bytes.
pub(crate) fn append(
    sys: &mut dyn System,
    file: FileId,
    offset: u64,
    bytes: u64,
    block: u64,
) -> Result<(), Failure> {
    blocks(bytes, block).try_for_each(|(at, part)| sys.write_file(file, offset + at, part))
}

/// Reads the first `bytes` of a file by pieces of `block` bytes.
pub(crate) fn read_all(
    sys: &mut dyn System,
    file: FileId,
    bytes: u64,
    block: u64,
) -> Result<(), Failure> {
    blocks(bytes, block).try_for_each(|(at, part)| sys.read_file(file, at, part))
}

/// Opens a file of `bytes`, reads it by pieces of `block` bytes until a call finds nothing more, and closes it.
pub(crate) fn read_to_end(
    sys: &mut dyn System,
    name: &str,
    bytes: u64,
    block: u64,
) -> Result<(), Failure> {
    let file = sys.open_file(name)?;
    read_all(sys, file, bytes, block)?;
    sys.read_file(file, bytes, block)?;
    sys.close_file(file)
}

/// A stream of random numbers: the same for the same seed and stream.
pub(crate) struct Random(Pcg64);

impl Random {
    /// The stream of this number. Workloads begin theirs with their name in ASCII, in the upper 64 bits, so
    /// that no two are the same.
    pub(crate) fn new(seed: u64, stream: u128) -> Self {
        Self(Pcg64::new(seed.into(), stream))
    }

    /// A number below `bound`: the upper half of a product of 64 by 64 bits.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number between these two, both included.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// Whether a coin shows heads.
    pub(crate) fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    /// Puts these in random order (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            all.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_a_file_once() {
        let all: Vec<_> = blocks(10, 4).collect();
        assert_eq!(all, [(0, 4), (4, 4), (8, 2)]);
        assert_eq!(blocks(0, 4).count(), 0);
    }

    #[test]
    fn a_shuffle_loses_nothing_and_leaves_little_in_its_place() {
        let mut all: Vec<u32> = (0..1000).collect();
        Random::new(7, 1).shuffle(&mut all);
        let in_place = all.iter().zip(0..).filter(|&(&found, at)| found == at).count();
        // One is expected.
        assert!(in_place < 10, "{in_place}");
        all.sort_unstable();
        assert!(all.into_iter().eq(0..1000));
    }

    #[test]
    fn numbers_between_bounds_reach_both() {
        let mut random = Random::new(1, 1);
        let drawn: Vec<u64> = (0..200).map(|_| random.between(3, 6)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&3), Some(&6)));
        assert_eq!(random.between(5, 5), 5);
    }
}
