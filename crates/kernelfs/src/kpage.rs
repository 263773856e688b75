//! `/proc/kpageflags` and `/proc/kpagecount`: eight bytes for every page frame.
//!
//! Models: fs/proc/page.c (`stable_page_flags`) and include/uapi/linux/kernel-page-flags.h. Bits
//! 0 to 26 are an interface that keeps its numbers; those from 32 on are for kernel hackers and
//! may change. Little endian, as on every machine this project knows.

use std::fmt;
use std::path::Path;

use crate::error::Error;
use crate::source::read_bytes;

/// Bytes of one page frame in either file.
const ENTRY_BYTES: usize = 8;

/// The flags of one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageFlags(pub u64);

macro_rules! flags {
    ($($bit:literal $name:ident $doc:literal)*) => {
        impl PageFlags {
            $(#[doc = $doc] pub const $name: PageFlags = PageFlags(1 << $bit);)*

            /// All named flags, lowest bit first.
            pub const ALL: &[(&str, PageFlags)] = &[$((stringify!($name), PageFlags::$name)),*];
        }
    };
}

flags! {
    0 LOCKED "Locked for exclusive access, for example while it is read in."
    1 ERROR "An I/O error happened."
    2 REFERENCED "Referenced since it was last looked at by reclaim."
    3 UPTODATE "Its content is valid."
    4 DIRTY "Written to since it was last stored."
    5 LRU "On an LRU list."
    6 ACTIVE "On the active LRU list."
    7 SLAB "Holds kernel objects (SLUB: only the first page of a slab says so)."
    8 WRITEBACK "Being written to storage."
    9 RECLAIM "To be freed as soon as it is written."
    10 BUDDY "First page of a free block."
    11 MMAP "Mapped into a process."
    12 ANON "Anonymous memory."
    13 SWAPCACHE "Has a place in swap."
    14 SWAPBACKED "Backed by swap or by memory alone."
    15 COMPOUND_HEAD "First page of a compound page."
    16 COMPOUND_TAIL "Further page of a compound page."
    17 HUGE "Part of a hugetlb page."
    18 UNEVICTABLE "On the unevictable LRU list."
    19 HWPOISON "The hardware found it broken."
    20 NOPAGE "There is no page frame at this address."
    21 KSM "Shared by same-page merging."
    22 THP "Part of a transparent huge page."
    23 OFFLINE "Logically offline (was BALLOON until v5.1)."
    24 ZERO_PAGE "The zero page or the huge zero page."
    25 IDLE "Not accessed since it was marked idle."
    26 PGTABLE "A page table."
    32 RESERVED "Reserved: never given to the allocator."
    33 MLOCKED "Locked into memory by mlock."
    34 MAPPEDTODISK "Has blocks on disk."
    35 PRIVATE "Carries private data of a file system."
    36 PRIVATE_2 "Carries more private data."
    37 OWNER_PRIVATE "For its owner's use."
    38 ARCH "For the architecture's use."
    39 UNCACHED "Mapped uncached."
    40 SOFTDIRTY "Written to since soft-dirty bits were cleared."
    41 ARCH_2 "For the architecture's use."
    42 ARCH_3 "For the architecture's use."
}

impl PageFlags {
    /// Returns whether all of `flags` are set.
    pub fn contains(self, flags: PageFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Returns whether any of `flags` is set.
    pub fn intersects(self, flags: PageFlags) -> bool {
        self.0 & flags.0 != 0
    }

    /// Returns the names of the flags set, lowest bit first; bits without a name are left out.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().filter(move |(_, flag)| self.contains(*flag)).map(|(name, _)| *name)
    }
}

impl std::ops::BitOr for PageFlags {
    type Output = PageFlags;
    fn bitor(self, other: PageFlags) -> PageFlags {
        PageFlags(self.0 | other.0)
    }
}

impl fmt::Display for PageFlags {
    /// Writes the names with `|` between, and in hexadecimal what has none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        let mut gap = "";
        for (name, flag) in Self::ALL {
            if self.contains(*flag) {
                write!(f, "{gap}{name}")?;
                rest &= !flag.0;
                gap = "|";
            }
        }
        if rest != 0 || self.0 == 0 {
            write!(f, "{gap}{rest:#x}")?;
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
            /// [`Error::Bad`] if the last entry is cut short.
            pub fn parse(file: &str, bytes: &[u8]) -> Result<$type, Error> {
                Ok($type { $field: entries(file, bytes)?.map($wrap).collect() })
            }

            /// Reads a file, plain or compressed.
            ///
            /// # Errors
            /// [`Error::Io`] if it cannot be read, [`Error::Bad`] if it is cut short.
            pub fn read(path: impl AsRef<Path>) -> Result<$type, Error> {
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

binary_file!(Kpageflags, flags, PageFlags, |flags| flags.0);
binary_file!(Kpagecount, counts, |count| count, |count| *count);

fn entries<'a>(file: &str, bytes: &'a [u8]) -> Result<impl Iterator<Item = u64> + 'a, Error> {
    let (whole, rest) = bytes.as_chunks::<ENTRY_BYTES>();
    if !rest.is_empty() {
        let found = format!("{} bytes, {} of them of an entry cut short", bytes.len(), rest.len());
        return Err(Error::whole(file, found, format!("a multiple of {ENTRY_BYTES}")));
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
