//! How much of each kind of file is read, and why as much: a file beyond its limit is not what it seems.
//!
//! The limits are choices of ours, each far above what the kind needs. Of packed files the limit is that of
//! the unpacked bytes, so that a small file cannot fill memory.

/// How much is read of one kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Bytes, unpacked.
    pub bytes: u64,
    /// What such a file is called in messages.
    pub of: &'static str,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Experiments, machines and kernels. The longest that comes with the program has 14 KiB.
pub const SETUP: Limit = Limit { bytes: MIB, of: "a TOML file" };

/// What stands beside captures and recordings: `case.json`, `extfrag.json`. The longest in use has less than
/// 100 KiB.
pub const NOTES: Limit = Limit { bytes: 16 * MIB, of: "a file of notes" };

/// A file of `/proc`, or what programs or mmtests printed. `zoneinfo` of a thousand CPUs has a few MiB;
/// mmtests' log has many copies of such files.
pub const TABLE: Limit = Limit { bytes: 256 * MIB, of: "a kernel's table" };

/// A trace, which is read as it comes. An event has about 100 bytes of text, and 24 in memory.
pub const TRACE: Limit = Limit { bytes: 64 * GIB, of: "a trace" };

/// One line of a trace. The kernel prints none that is longer than a page (include/linux/trace_seq.h; almost two
/// pages since 6.8).
pub const TRACE_LINE: Limit = Limit { bytes: MIB, of: "a line of a trace" };

/// A snapshot file, packed. The recorded ones take up to 4 bytes for each page, so that this is 2 TiB of memory.
pub const SNAPSHOT: Limit = Limit { bytes: 2 * GIB, of: "a snapshot file" };

/// All tables of a snapshot or of a recorded state, unpacked. They hold up to 24 bytes for each page and some
/// 30 for each free block, so that this is 2 TiB of memory.
pub const SNAPSHOT_UNPACKED: Limit = Limit { bytes: 16 * GIB, of: "a state's tables" };

/// The document of a record. It has counters, not samples, and some 100 KiB.
pub const RECORD: Limit = Limit { bytes: 64 * MIB, of: "a record's document" };

/// A table or a picture of a record. A day of samples at ten a second has less than 100 MiB.
pub const RECORD_PART: Limit = Limit { bytes: GIB, of: "a part of a record" };

/// A kernel image, of which a distribution's has 8 to 20 MiB.
pub const KERNEL_IMAGE: Limit = Limit { bytes: 512 * MIB, of: "a kernel image" };

/// A kernel module, which has up to some 10 MiB, or more with debugging information.
pub const MODULE: Limit = Limit { bytes: 256 * MIB, of: "a kernel module" };

impl Limit {
    /// The limit as people say it: `16 MiB`.
    #[must_use]
    pub fn told(&self) -> String {
        match self.bytes {
            bytes if bytes.is_multiple_of(GIB) => format!("{} GiB", bytes / GIB),
            bytes if bytes.is_multiple_of(MIB) => format!("{} MiB", bytes / MIB),
            bytes => format!("{} KiB", bytes / KIB),
        }
    }
}
