//! Files: their size, where they lie on a disk, and how far ahead they are read.
//!
//! Departs: a file system is an allocator of contiguous space, and tables of inodes (see [`super::inodes`]) with their
//! journal: no blocks of directories, no bitmaps. Visible as: creating and deleting files writes less than there.

use super::{Kernel, PAGE_BYTES};
use crate::sched::DeviceId;
use highorder_mm::Pfn;
use highorder_mm::filemap::FileId;
use highorder_words::Ns;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;

/// What is remembered of an open file's reads (`struct file_ra_state`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readahead {
    /// First page of the window.
    pub(crate) start: u64,
    /// Pages of it.
    pub(crate) size: u64,
    /// Pages of it that were read ahead: the first of these begins the next window.
    pub(crate) async_size: u64,
    /// The last page that was read.
    pub(crate) previous: Option<u64>,
}

/// Pages of a file that lie behind each other on its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    /// The first of these pages.
    first: u64,
    /// Its first byte on the disk.
    at: u64,
    pages: u64,
}

impl Extent {
    const fn end(&self) -> u64 {
        self.first + self.pages
    }

    /// The part of it that holds these of its pages.
    const fn part(&self, pages: Range<u64>) -> Self {
        let skip = (pages.start - self.first) * PAGE_BYTES;
        Self { first: pages.start, at: self.at + skip, pages: pages.end - pages.start }
    }
}

/// A file.
#[derive(Clone, Debug)]
pub struct File {
    /// Its size in bytes.
    pub size: u64,
    /// Its disk.
    pub device: DeviceId,
    /// Where its pages lie, in their order. Most files are in one piece.
    extents: SmallVec<[Extent; 1]>,
    /// When the oldest of its dirty pages became dirty.
    pub(crate) dirtied_at: Option<Ns>,
    /// When its inode changed, unless it was written since.
    pub(crate) inode_dirtied_at: Option<Ns>,
    /// Pages that are being written.
    pub(crate) nr_writing: u64,
    /// Whether it is still in a directory.
    pub(crate) is_linked: bool,
    /// The block of the inode tables that its inode lies in; none for what has no name.
    pub(crate) inode_block: Option<u64>,
    /// Whether it was read since it was last written, so that its access time stays as it is (`relatime`).
    pub(crate) atime_is_current: bool,
    /// The tick of the clock at which XFS noted its times, from 1 on.
    pub(crate) times_tick: u64,
}

/// Free space of one disk: first byte to length.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    free: BTreeMap<u64, u64>,
    /// Pages found no place: whoever writes next is told (`AS_ENOSPC`), until something is deleted.
    pub(crate) lost_writes: bool,
}

impl Space {
    /// All of a disk but its first `reserved` bytes.
    pub(crate) fn new(reserved: u64, capacity: u64) -> Self {
        let mut free = BTreeMap::new();
        if capacity > reserved {
            free.insert(reserved, capacity - reserved);
        }
        Self { free, lost_writes: false }
    }

    /// Takes up to `bytes` in one piece: the first that is large enough, else the largest there is.
    fn take(&mut self, bytes: u64) -> Option<(u64, u64)> {
        let fits = self.free.iter().find(|&(_, &len)| len >= bytes);
        let (&at, &len) =
            fits.or_else(|| self.free.iter().max_by_key(|&(&at, &len)| (len, u64::MAX - at)))?;
        let taken = len.min(bytes);
        self.free.remove(&at);
        if len > taken {
            self.free.insert(at + taken, len - taken);
        }
        Some((at, taken))
    }

    fn give_back(&mut self, mut at: u64, mut len: u64) {
        self.lost_writes = false;
        if let Some((&before, &length)) = self.free.range(..at).next_back()
            && before + length == at
        {
            self.free.remove(&before);
            (at, len) = (before, len + length);
        }
        if let Some(length) = self.free.remove(&(at + len)) {
            len += length;
        }
        self.free.insert(at, len);
    }
}

/// A file system is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSpace;

impl File {
    pub(crate) fn new(device: DeviceId) -> Self {
        Self {
            size: 0,
            device,
            extents: SmallVec::new(),
            dirtied_at: None,
            inode_dirtied_at: None,
            nr_writing: 0,
            is_linked: true,
            inode_block: None,
            atime_is_current: false,
            times_tick: 0,
        }
    }

    /// Pages that it has, the last one perhaps in part.
    #[must_use]
    pub const fn nr_pages(&self) -> u64 {
        self.size.div_ceil(PAGE_BYTES)
    }

    /// In how many pieces it lies on the disk.
    pub(crate) fn nr_pieces(&self) -> u32 {
        self.extents.len() as u32
    }

    /// The number of its extents that begin at page `index` or before.
    fn nr_extents_to(&self, index: u64) -> usize {
        self.extents.partition_point(|extent| extent.first <= index)
    }

    /// Where page `index` lies on the disk, and how many of the pages behind it lie behind it there too.
    /// `None` for a hole.
    pub(crate) fn find(&self, index: u64) -> Option<(u64, u64)> {
        let extent = self.extents[..self.nr_extents_to(index)].last()?;
        if index >= extent.end() {
            return None;
        }
        let rest = extent.part(index..extent.end());
        Some((rest.at, rest.pages))
    }

    /// Pages from `index` on that lie nowhere, up to `most`.
    fn hole_at(&self, index: u64, most: u64) -> u64 {
        let before = self.extents.partition_point(|extent| extent.first < index);
        let next = self.extents.get(before).map_or(u64::MAX, |extent| extent.first);
        (next - index).min(most)
    }

    /// Forgets where some of its pages lie. Returns those places: first bytes and numbers of pages.
    fn cut(&mut self, gone: Range<u64>) -> Vec<(u64, u64)> {
        let mut freed = Vec::new();
        let mut left = SmallVec::with_capacity(self.extents.len());
        for extent in &self.extents {
            let cut = extent.first.max(gone.start)..extent.end().min(gone.end);
            if cut.is_empty() {
                left.push(*extent);
                continue;
            }
            let (before, after) = (extent.first..cut.start, cut.end..extent.end());
            left.extend(
                [before, after].into_iter().filter(|r| !r.is_empty()).map(|r| extent.part(r)),
            );
            let cut = extent.part(cut);
            freed.push((cut.at, cut.pages));
        }
        self.extents = left;
        freed
    }

    fn extend(&mut self, index: u64, at: u64, pages: u64) {
        let place = self.nr_extents_to(index);
        if let Some(before) = self.extents[..place].last_mut()
            && before.end() == index
            && before.at + before.pages * PAGE_BYTES == at
        {
            before.pages += pages;
            return;
        }
        self.extents.insert(place, Extent { first: index, at, pages });
    }
}

impl Kernel {
    /// A file.
    ///
    /// # Panics
    /// If there is none such.
    #[must_use]
    pub fn file(&self, file: FileId) -> &File {
        match &self.file_table[file.0 as usize] {
            Some(file) => file,
            None => panic!("file {} is gone", file.0),
        }
    }

    pub(crate) fn file_mut(&mut self, file: FileId) -> &mut File {
        match &mut self.file_table[file.0 as usize] {
            Some(file) => file,
            None => panic!("file {} is gone", file.0),
        }
    }

    /// Creates an empty file on a disk.
    pub fn create_file(&mut self, device: DeviceId) -> FileId {
        let file = self.memory.files.open();
        if self.file_table.len() <= file.0 as usize {
            self.file_table.resize(file.0 as usize + 1, None);
        }
        self.file_table[file.0 as usize] = Some(File::new(device));
        file
    }

    /// Makes a file of these pages, which were restored and belong to nobody: clean, in this order, and with a place on
    /// the disk each. Nothing where the disk is too small for them.
    pub fn adopt_file(&mut self, device: DeviceId, pages: &[Pfn]) -> Option<FileId> {
        let file = self.create_file(device);
        let nr = pages.len() as u64;
        if self.allocate_space(file, 0, nr).is_err() {
            self.forget_file(file);
            return None;
        }
        self.file_mut(file).size = nr * PAGE_BYTES;
        for (&pfn, index) in pages.iter().zip(0..) {
            self.memory.adopt_cached(file, index, pfn);
        }
        Some(file)
    }

    /// Forgets a file without pages in memory, and frees its space.
    pub(crate) fn forget_file(&mut self, file: FileId) {
        let Some(gone) = self.file_table[file.0 as usize].take() else { return };
        self.forget_dirty_inode(file, &gone);
        let space = &mut self.spaces_on_disks[gone.device.0 as usize];
        for Extent { at, pages, .. } in gone.extents {
            space.give_back(at, pages * PAGE_BYTES);
        }
        self.memory.files.close(file);
    }

    /// Gives `pages` pages of a file from `index` on a place on the disk, where they have none yet: as late
    /// as when they are written, so that what is written together lies together. Whether some had none.
    ///
    /// # Errors
    /// The disk is full.
    pub(crate) fn allocate_space(
        &mut self,
        file: FileId,
        index: u64,
        pages: u64,
    ) -> Result<bool, NoSpace> {
        let (mut at, mut is_new) = (index, false);
        while at < index + pages {
            let this = self.file(file);
            if let Some((_, there)) = this.find(at) {
                at += there;
                continue;
            }
            let hole = this.hole_at(at, index + pages - at);
            let device = this.device.0 as usize;
            let taken = self.spaces_on_disks[device].take(hole * PAGE_BYTES).ok_or(NoSpace)?;
            let got = taken.1 / PAGE_BYTES;
            if got == 0 {
                return Err(NoSpace);
            }
            self.file_mut(file).extend(at, taken.0, got);
            (at, is_new) = (at + got, true);
        }
        Ok(is_new)
    }

    /// Whether pages of files on this file's disk found no place there.
    pub(crate) fn has_lost_writes(&self, file: FileId) -> bool {
        self.spaces_on_disks[self.file(file).device.0 as usize].lost_writes
    }

    /// Frees the space of pages of a file, none of which is in memory. Returns in how many pieces it lay.
    pub(crate) fn free_space(&mut self, file: FileId, pages: Range<u64>) -> u64 {
        let this = self.file_mut(file);
        let device = this.device.0 as usize;
        let pieces = this.cut(pages);
        for &(at, pages) in &pieces {
            self.spaces_on_disks[device].give_back(at, pages * PAGE_BYTES);
        }
        pieces.len() as u64
    }

    /// Every file there is, by number.
    pub(crate) fn files(&self) -> impl Iterator<Item = (FileId, &File)> {
        let files = self.file_table.iter().zip(0..);
        files.filter_map(|(file, number)| Some((FileId(number), file.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_taken_in_one_piece_and_joins_again() {
        let mut space = Space::new(100, 1000);
        assert_eq!(space.take(300), Some((100, 300)));
        assert_eq!(space.take(300), Some((400, 300)));
        space.give_back(100, 300);
        assert_eq!(space.take(600), Some((100, 300)), "no piece is large enough");
        space.give_back(400, 300);
        space.give_back(100, 300);
        assert_eq!(space.take(1000), Some((100, 900)));
        assert_eq!(space.take(1), None);
    }

    #[test]
    fn neighbouring_extents_of_a_file_are_one() {
        let mut file = File::new(DeviceId(0));
        file.extend(0, 8192, 2);
        file.extend(2, 8192 + 2 * PAGE_BYTES, 3);
        file.extend(10, 0, 1);
        assert_eq!(file.extents.len(), 2);
        assert_eq!(file.find(1), Some((8192 + PAGE_BYTES, 4)));
        assert_eq!(file.find(5), None);
        assert_eq!(file.hole_at(5, 100), 5);
    }

    #[test]
    fn what_is_cut_of_a_file_is_free_and_nothing_else() {
        let mut file = File::new(DeviceId(0));
        file.extend(0, 0, 10);
        file.extend(20, 100 * PAGE_BYTES, 10);
        assert_eq!(file.cut(4..25), [(4 * PAGE_BYTES, 6), (100 * PAGE_BYTES, 5)]);
        assert_eq!((file.find(3), file.find(4)), (Some((3 * PAGE_BYTES, 1)), None));
        assert_eq!((file.find(24), file.find(25)), (None, Some((105 * PAGE_BYTES, 5))));
        assert_eq!(file.cut(1..2), [(PAGE_BYTES, 1)]);
        assert_eq!((file.find(0), file.find(1)), (Some((0, 1)), None));
        assert_eq!(file.find(2), Some((2 * PAGE_BYTES, 2)));
    }
}
