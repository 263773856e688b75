//! Memory of the kernel's own that user space can get hold of.
//!
//! A page in a pipe's buffer is not movable and stays until it is read: fs/pipe.c (`pipe_write` fills a new
//! page with each whole page written). One page in the middle of a pipe is given back by moving the pages
//! before it to the pipe's end, and the page itself to a pipe that is closed: `splice` moves pages without
//! copying them, and a pipe that lives on would keep the page for its next write
//! (`anon_pipe_buf_release`).
//!
//! A huge page comes to the hugetlb pool by raising `vm.nr_hugepages`: mm/hugetlb.c
//! (`alloc_pool_huge_folio`), which tries hard. Whether it came is what the pool says afterwards.
//!
//! Departs: the kernel insists on a pipe's page, and kills for want of memory rather than refuse it. Visible
//! as: runs that ask for more such pages than there is memory end killed.

use crate::knobs::{KnobError, Knobs};
use highorder_system::KernelBlock;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::pipe::{
    PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice,
};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The hugetlb pool's knob, of the kernel's default huge page.
pub(crate) const POOL: &str = "vm.nr_hugepages";

/// What a pipe is asked to hold: fs.pipe-max-size, unless somebody changed it.
const PIPE_BYTES: usize = 1 << 20;

/// A pipe and the blocks that lie in it, the first to be read first.
#[derive(Debug)]
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    capacity: usize,
    blocks: VecDeque<u32>,
}

/// What a process has taken.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    next: u32,
    /// The pipe of each page, by a number that the pipe keeps.
    pages: BTreeMap<u32, u32>,
    pipes: BTreeMap<u32, Pipe>,
    nr_pipes: u32,
    /// Those that are huge pages in the pool.
    huge: Vec<u32>,
}

impl Blocks {
    /// Takes a page in a pipe.
    pub(crate) fn take_page(&mut self, page_bytes: usize) -> io::Result<u32> {
        let has_room = |pipe: &Pipe| pipe.blocks.len() < pipe.capacity;
        let number = match self.pipes.iter().find(|(_, pipe)| has_room(pipe)) {
            Some((&number, _)) => number,
            None => {
                let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
                // Users other than root may be given less; the pipe says what it has.
                let _ = fcntl_setpipe_size(&write, PIPE_BYTES);
                let capacity = fcntl_getpipe_size(&write)? / page_bytes;
                let number = self.nr_pipes;
                self.nr_pipes += 1;
                self.pipes.insert(number, Pipe { read, write, capacity, blocks: VecDeque::new() });
                number
            }
        };
        let pipe = self.pipes.get_mut(&number).expect("found or made right above");
        write_whole(&pipe.write, &vec![0x5a; page_bytes])?;
        let block = self.next;
        self.next += 1;
        pipe.blocks.push_back(block);
        self.pages.insert(block, number);
        Ok(block)
    }

    /// Notes a huge page that came to the pool.
    pub(crate) fn note_huge(&mut self) -> u32 {
        let block = self.next;
        self.next += 1;
        self.huge.push(block);
        block
    }

    /// Forgets a block, of which a page is given back; which kind it was, if there is such a block.
    pub(crate) fn free(
        &mut self,
        block: u32,
        page_bytes: usize,
    ) -> io::Result<Option<KernelBlock>> {
        if let Some(at) = self.huge.iter().position(|&huge| huge == block) {
            self.huge.swap_remove(at);
            return Ok(Some(KernelBlock::Hugetlb));
        }
        let Some(number) = self.pages.remove(&block) else { return Ok(None) };
        let pipe = self.pipes.get_mut(&number).expect("a page lies in a pipe");
        let at = pipe.blocks.iter().position(|&b| b == block).expect("its pipe knows it");
        if pipe.blocks.len() > 1 {
            // The last goes back first, so that the end is not the page's own place.
            let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
            if at > 0 {
                let _ = fcntl_setpipe_size(&write, pipe.capacity * page_bytes);
                move_pages(&pipe.read, &write, at, page_bytes)?;
            }
            let (thrown_read, thrown_write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
            move_pages(&pipe.read, &thrown_write, 1, page_bytes)?;
            drop((thrown_read, thrown_write));
            move_pages(&read, &pipe.write, at, page_bytes)?;
            pipe.blocks.rotate_left(at);
            pipe.blocks.pop_front();
        } else {
            self.pipes.remove(&number);
        }
        Ok(Some(KernelBlock::PipeBuffer))
    }

    /// Gives all pages back; those in the pool go when settings are put back. Returns how many.
    pub(crate) fn free_pages(&mut self) -> u64 {
        let nr = self.pages.len() as u64;
        self.pages.clear();
        self.pipes.clear();
        nr
    }

    /// The descriptors of the pipes: a process that inherits them would keep their pages.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.pipes.values().flat_map(|pipe| [pipe.read.as_raw_fd(), pipe.write.as_raw_fd()])
    }
}

fn write_whole(pipe: &OwnedFd, page: &[u8]) -> io::Result<()> {
    loop {
        match rustix::io::write(pipe, page) {
            // A page is written as a whole or not at all (PIPE_BUF).
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Moves so many pages from one pipe's beginning to another's end.
fn move_pages(from: &OwnedFd, to: &OwnedFd, pages: usize, page_bytes: usize) -> io::Result<()> {
    let mut left = pages * page_bytes;
    while left > 0 {
        match splice(from, None, to, None, left, SpliceFlags::MOVE) {
            Ok(moved) => left -= moved,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Grows the hugetlb pool by a page, if it can be had.
pub(crate) fn grow_pool(knobs: &Knobs) -> Result<bool, KnobError> {
    with_pool(knobs, |before| {
        let wanted = before + 1;
        knobs.put(POOL, &wanted.to_string())?;
        Ok(pool(knobs)? >= wanted)
    })
}

/// Gives a page of the pool back.
pub(crate) fn shrink_pool(knobs: &Knobs) -> Result<(), KnobError> {
    with_pool(knobs, |before| knobs.put(POOL, &before.saturating_sub(1).to_string()))
}

/// Does something that begins with what the pool holds, while no other process of a run does. The lock is
/// the kernel's: it goes with whoever holds it.
fn with_pool<T>(
    knobs: &Knobs,
    act: impl FnOnce(u64) -> Result<T, KnobError>,
) -> Result<T, KnobError> {
    let path = knobs.path(POOL)?;
    let kernel = |source| KnobError::Kernel { name: POOL.to_owned(), path: path.clone(), source };
    let file = File::open(&path).map_err(kernel)?;
    while let Err(error) = flock(&file, FlockOperation::LockExclusive) {
        match error {
            Errno::INTR => {}
            Errno::NOSYS => {
                let missing = "the kernel has no locks for it, expected CONFIG_FILE_LOCKING";
                return Err(kernel(io::Error::other(missing)));
            }
            _ => return Err(kernel(error.into())),
        }
    }
    act(pool(knobs)?)
}

/// Huge pages in the pool.
fn pool(knobs: &Knobs) -> Result<u64, KnobError> {
    let text = knobs.get(POOL)?;
    text.parse().map_err(|_| KnobError::Kernel {
        name: POOL.to_owned(),
        path: knobs.path(POOL).unwrap_or_default(),
        source: io::Error::other(format!("`{text}`, expected a number of huge pages")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    /// Bytes in all pipes.
    fn bytes(blocks: &Blocks) -> u64 {
        let of = |pipe: &Pipe| rustix::io::ioctl_fionread(&pipe.read).unwrap();
        blocks.pipes.values().map(of).sum()
    }

    #[test]
    fn pages_in_pipes_are_given_back_in_any_order() {
        let mut blocks = Blocks::default();
        let taken: Vec<u32> = (0..600).map(|_| blocks.take_page(PAGE).unwrap()).collect();
        assert_eq!(bytes(&blocks), 600 * PAGE as u64);
        assert!(blocks.pipes.len() >= 3, "a pipe holds 256 pages: {}", blocks.pipes.len());
        // All but each seventh, from behind, from the front and from within.
        for (number, &block) in taken.iter().enumerate().rev().filter(|(n, _)| n % 7 != 0) {
            let freed = blocks.free(block, PAGE).unwrap();
            assert_eq!(freed, Some(KernelBlock::PipeBuffer), "page {number}");
        }
        let left: Vec<u32> = taken.iter().copied().step_by(7).collect();
        assert_eq!(bytes(&blocks), (left.len() * PAGE) as u64);
        assert_eq!(blocks.free(taken[1], PAGE).unwrap(), None, "it is gone");
        for &block in &left {
            assert!(blocks.free(block, PAGE).unwrap().is_some());
        }
        assert!(blocks.pipes.is_empty());
        let block = blocks.take_page(PAGE).unwrap();
        assert!(block > taken[599], "no number is given twice");
        assert_eq!(blocks.free_pages(), 1);
        assert_eq!(blocks.descriptors().count(), 0);
    }

    #[test]
    fn the_pool_grows_by_one_and_shrinks_again() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("proc/sys/vm/nr_hugepages");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "3\n").unwrap();
        let knobs = Knobs::new(root.path());
        assert!(grow_pool(&knobs).unwrap());
        assert_eq!(knobs.get(POOL).unwrap(), "4");
        shrink_pool(&knobs).unwrap();
        assert_eq!(knobs.get(POOL).unwrap(), "3");
        std::fs::write(&path, "none\n").unwrap();
        let error = grow_pool(&knobs).unwrap_err().to_string();
        assert!(error.contains("`none`, expected a number of huge pages"), "{error}");
    }
}
