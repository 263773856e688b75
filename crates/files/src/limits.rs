//! How much of each kind of file is read, and why as much: a file beyond its limit is not what it seems.
//!
//! The limits are choices of ours, each far above what the kind needs, and looked at before memory is taken for what
//! a file promises. Of packed files the limit is that of the unpacked bytes, so that a small file cannot fill memory.
//! docs/limits.md is made from them.

/// How much is read of one kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Bytes, unpacked.
    pub most: u64,
    /// What such a file is called in messages.
    pub of: &'static str,
}

/// How many there may be of something that a file tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The most that there may be.
    pub most: u64,
    /// What they are called in messages.
    pub of: &'static str,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Defines the limits, and the list of them that docs/limits.md is made from.
macro_rules! limits {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident: $kind:ident = $most:expr, $of:literal;
    )+) => {
        $($(#[doc = $doc])+ pub const $name: $kind = $kind { most: $most, of: $of };)+

        /// Every limit: what is limited, the limit as people say it, and why it is as large.
        #[must_use]
        pub fn all() -> Vec<(&'static str, String, String)> {
            vec![$(($of, $name.told(), [$($doc),+].concat().trim().to_owned())),+]
        }
    };
}

limits! {
    /// Experiments, machines and kernels. The longest that comes with the program has 14 KiB.
    SETUP: Limit = MIB, "a TOML file";

    /// What stands beside captures and recordings: `case.json`, `extfrag.json`. The longest in use has less than
    /// 100 KiB.
    NOTES: Limit = 16 * MIB, "a file of notes";

    /// A file of `/proc`, or what programs or mmtests printed. `zoneinfo` of a thousand CPUs has a few MiB;
    /// mmtests' log has many copies of such files.
    TABLE: Limit = 256 * MIB, "a kernel's table";

    /// A trace, which is read as it comes. An event has about 100 bytes of text, and 24 in memory.
    TRACE: Limit = 64 * GIB, "a trace";

    /// One line of a trace. The kernel prints none that is longer than a page (include/linux/trace_seq.h; almost two
    /// pages since 6.8).
    TRACE_LINE: Limit = MIB, "a line of a trace";

    /// A kernel's log. The ring has at most some MiB; a journal of a month has more.
    KERNEL_LOG: Limit = 256 * MIB, "a kernel's log";

    /// Each is a screen of text in the answer.
    REPORTS: Count = 10_000, "failures in a kernel's log";

    /// A snapshot file, packed. The recorded ones take up to 4 bytes for each page, so that this is 2 TiB of memory.
    SNAPSHOT: Limit = 2 * GIB, "a snapshot file";

    /// All tables of a snapshot or of a recorded state, unpacked. They hold up to 24 bytes for each page and some
    /// 30 for each free block, so that this is 2 TiB of memory.
    SNAPSHOT_UNPACKED: Limit = 16 * GIB, "a state's tables";

    /// A recording: two snapshots and a packed trace, of which an event takes some 10 bytes.
    RECORDING: Limit = 64 * GIB, "a recording file";

    /// The document of a record. It has counters, not samples, and some 100 KiB.
    RECORD: Limit = 64 * MIB, "a record's document";

    /// A table or a picture of a record. A day of samples at ten a second has less than 100 MiB.
    RECORD_PART: Limit = GIB, "a part of a record";

    /// A record on its way out of a guest. One of the longest runs has some 10 MiB.
    GUEST_ANSWER: Limit = 256 * MIB, "a guest's answer";

    /// The last words of a guest's console that are kept; of a message the last lines.
    CONSOLE: Limit = 64 * KIB, "a guest's console";

    /// A kernel image, of which a distribution's has 8 to 20 MiB.
    KERNEL_IMAGE: Limit = 512 * MIB, "a kernel image";

    /// A kernel module, which has up to some 10 MiB, or more with debugging information.
    MODULE: Limit = 256 * MIB, "a kernel module";

    /// 2 TiB of memory; the model needs 16 bytes for each, a map of memory 2.
    FRAMES: Count = 1 << 29, "frames of a snapshot";

    /// As x86-64 kernels have unless they are built for more (`NODES_SHIFT`); a mask of nodes is one number.
    NODES: Count = 64, "nodes of a snapshot or a machine";

    /// A zone's number has a byte.
    ZONES: Count = 254, "zones of a snapshot or a machine";

    /// A CPU's number has a byte where pages are on per-CPU lists. Kernels can have up to 8192.
    CPUS: Count = 256, "CPUs of a snapshot or a machine";

    /// The kernel's structure of a per-CPU list has a dozen fields.
    COLUMNS: Count = 256, "columns of a state's table";

    /// Kernels have 11, with huge base pages up to 14.
    ORDERS: Count = 20, "orders of a kernel's table";

    /// As many as there can be frames with numbers of 32 bits.
    BLOCKS: Count = 1 << 32, "blocks of an order";

    /// A day of samples at ten a second has 864,000 for each metric.
    TABLE_ROWS: Count = 100_000_000, "rows of a record's table";

    /// It heads a column, and is a part of a folder's name.
    NAME_CHARS: Count = 200, "characters of a name";

    /// Descriptions and sources have a few sentences.
    TEXT_CHARS: Count = 4096, "characters of a text in a TOML file";

    /// At a second each, eleven days.
    RUNS: Count = 1_000_000, "runs of an experiment";

    /// 50 of them are printed; the others are counted.
    PROBLEMS: Count = 1000, "problems of a file that are kept";
}

impl Limit {
    /// The limit as people say it: `16 MiB`.
    #[must_use]
    pub fn told(&self) -> String {
        match self.most {
            bytes if bytes.is_multiple_of(GIB) => format!("{} GiB", bytes / GIB),
            bytes if bytes.is_multiple_of(MIB) => format!("{} MiB", bytes / MIB),
            bytes => format!("{} KiB", bytes / KIB),
        }
    }
}

impl Count {
    /// Refuses more than there may be, before anything is made of them.
    ///
    /// # Errors
    /// What was found and what was expected, without the file.
    pub fn check(&self, found: u64) -> Result<(), String> {
        match found <= self.most {
            true => Ok(()),
            false => Err(format!("{found} {}, expected at most {}", self.of, self.most)),
        }
    }

    /// The limit as people say it.
    #[must_use]
    pub fn told(&self) -> String {
        self.most.to_string()
    }
}
