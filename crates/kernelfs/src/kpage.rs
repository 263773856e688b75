//! `/proc/kpageflags` and `/proc/kpagecount`: eight bytes for every page frame.
//!
//! Models: fs/proc/page.c (`stable_page_flags`) and include/uapi/linux/kernel-page-flags.h. Bits
//! 0 to 26 are an interface that keeps its numbers; those from 32 on are for kernel hackers and
//! may change. Little endian, as on every machine this project knows.

use bitflags::bitflags;
use std::fmt;
use std::path::Path;

use crate::source::read_bytes;
use highorder_input::InputError;

/// Bytes of one page frame in either file.
const ENTRY_BYTES: usize = 8;

bitflags! {
    /// The flags of one page; bits without a name are kept.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub struct PageFlags: u64 {
        /// Locked for exclusive access, for example while it is read in.
        const LOCKED = 1 << 0;
        /// An I/O error happened.
        const ERROR = 1 << 1;
        /// Referenced since it was last looked at by reclaim.
        const REFERENCED = 1 << 2;
        /// Its content is valid.
        const UPTODATE = 1 << 3;
        /// Written to since it was last stored.
        const DIRTY = 1 << 4;
        /// On an LRU list.
        const LRU = 1 << 5;
        /// On the active LRU list.
        const ACTIVE = 1 << 6;
        /// Holds kernel objects (SLUB: only the first page of a slab says so).
        const SLAB = 1 << 7;
        /// Being written to storage.
        const WRITEBACK = 1 << 8;
        /// To be freed as soon as it is written.
        const RECLAIM = 1 << 9;
        /// First page of a free block.
        const BUDDY = 1 << 10;
        /// Mapped into a process.
        const MMAP = 1 << 11;
        /// Anonymous memory.
        const ANON = 1 << 12;
        /// Has a place in swap.
        const SWAPCACHE = 1 << 13;
        /// Backed by swap or by memory alone.
        const SWAPBACKED = 1 << 14;
        /// First page of a compound page.
        const COMPOUND_HEAD = 1 << 15;
        /// Further page of a compound page.
        const COMPOUND_TAIL = 1 << 16;
        /// Part of a hugetlb page.
        const HUGE = 1 << 17;
        /// On the unevictable LRU list.
        const UNEVICTABLE = 1 << 18;
        /// The hardware found it broken.
        const HWPOISON = 1 << 19;
        /// There is no page frame at this address.
        const NOPAGE = 1 << 20;
        /// Shared by same-page merging.
        const KSM = 1 << 21;
        /// Part of a transparent huge page.
        const THP = 1 << 22;
        /// Logically offline (was BALLOON until v5.1).
        const OFFLINE = 1 << 23;
        /// The zero page or the huge zero page.
        const ZERO_PAGE = 1 << 24;
        /// Not accessed since it was marked idle.
        const IDLE = 1 << 25;
        /// A page table.
        const PGTABLE = 1 << 26;
        /// Reserved: never given to the allocator.
        const RESERVED = 1 << 32;
        /// Locked into memory by mlock.
        const MLOCKED = 1 << 33;
        /// Has blocks on disk.
        const MAPPEDTODISK = 1 << 34;
        /// Carries private data of a file system.
        const PRIVATE = 1 << 35;
        /// Carries more private data.
        const PRIVATE_2 = 1 << 36;
        /// For its owner's use.
        const OWNER_PRIVATE = 1 << 37;
        /// For the architecture's use.
        const ARCH = 1 << 38;
        /// Mapped uncached.
        const UNCACHED = 1 << 39;
        /// Written to since soft-dirty bits were cleared.
        const SOFTDIRTY = 1 << 40;
        /// For the architecture's use.
        const ARCH_2 = 1 << 41;
        /// For the architecture's use.
        const ARCH_3 = 1 << 42;
    }
}

impl PageFlags {
    /// Returns the names of the flags set, lowest bit first; bits without a name are left out.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        self.iter_names().map(|(name, _)| name)
    }
}

impl fmt::Display for PageFlags {
    /// Writes the names with `|` between, and in hexadecimal what has none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gap = "";
        for name in self.names() {
            write!(f, "{gap}{name}")?;
            gap = "|";
        }
        let unnamed = self.difference(Self::all());
        if !unnamed.is_empty() || self.is_empty() {
            write!(f, "{gap}{:#x}", unnamed.bits())?;
        }
        Ok(())
    }
}

/// `/proc/kpageflags`: the flags of every page frame from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kpageflags {
    /// The flags; the index is the page frame number.
    pub flags: Vec<PageFlags>,
}

/// `/proc/kpagecount`: how often every page frame from 0 is mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kpagecount {
    /// Mappings; the index is the page frame number.
    pub counts: Vec<u64>,
}

macro_rules! binary_file {
    ($type:ident, $field:ident, $wrap:expr, $unwrap:expr) => {
        impl $type {
            /// Parses the whole content of a file; `file` is the name that errors carry.
            ///
            /// # Errors
            /// [`InputError`] if the last entry is cut short.
            pub fn parse(file: &str, bytes: &[u8]) -> Result<$type, InputError> {
                Ok($type { $field: entries(file, bytes)?.map($wrap).collect() })
            }

            /// Reads a file, plain or compressed.
            ///
            /// # Errors
            /// [`InputError`] if it cannot be read, if it is cut short.
            pub fn read(path: impl AsRef<Path>) -> Result<$type, InputError> {
                let path = path.as_ref();
                $type::parse(&path.display().to_string(), &read_bytes(path)?)
            }

            /// Returns the file's bytes.
            pub fn to_bytes(&self) -> Vec<u8> {
                self.$field.iter().map($unwrap).flat_map(u64::to_le_bytes).collect()
            }
        }
    };
}

binary_file!(Kpageflags, flags, PageFlags::from_bits_retain, |flags| flags.bits());
binary_file!(Kpagecount, counts, |count| count, |count| *count);

fn entries<'a>(file: &str, bytes: &'a [u8]) -> Result<impl Iterator<Item = u64> + 'a, InputError> {
    let (whole, rest) = bytes.as_chunks::<ENTRY_BYTES>();
    if !rest.is_empty() {
        let found = format!("{} bytes, {} of them of an entry cut short", bytes.len(), rest.len());
        return Err(InputError::whole(file, found, format!("a multiple of {ENTRY_BYTES}")));
    }
    Ok(whole.iter().map(|entry| u64::from_le_bytes(*entry)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_names_and_write_back() {
        let bytes = [0x00, 0x04, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0x80];
        let pages = Kpageflags::parse("kpageflags", &bytes).unwrap();
        assert_eq!(pages.flags[0], PageFlags::BUDDY);
        assert!(pages.flags[1].contains(PageFlags::RESERVED));
        assert_eq!(pages.flags[1].to_string(), "RESERVED|0x8000000000000000");
        assert_eq!(pages.flags[1].names().collect::<Vec<_>>(), ["RESERVED"]);
        assert_eq!(PageFlags::default().to_string(), "0x0");
        assert_eq!((PageFlags::LRU | PageFlags::ANON).to_string(), "LRU|ANON");
        assert_eq!(pages.to_bytes(), bytes);
    }

    #[test]
    fn a_file_cut_inside_an_entry_is_an_error() {
        let error = Kpageflags::parse("kpageflags", &[0; 13]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "kpageflags: 13 bytes, 5 of them of an entry cut short, expected a multiple of 8"
        );
        assert!(Kpagecount::parse("kpagecount", &[0; 7]).is_err());
        assert_eq!(Kpagecount::parse("kpagecount", &7u64.to_le_bytes()).unwrap().counts, [7]);
    }
}
