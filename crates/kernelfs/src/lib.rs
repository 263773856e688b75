//! The kernel's text and binary formats, read and written.
//!
//! | file | type |
//! | --- | --- |
//! | `/proc/vmstat` | [`Vmstat`] |
//! | `/proc/meminfo`, a node's `meminfo` | [`Meminfo`] |
//! | `/proc/buddyinfo` | [`Buddyinfo`] |
//! | `/proc/pagetypeinfo` | [`Pagetypeinfo`] |
//! | `/proc/zoneinfo` | [`Zoneinfo`] |
//! | `/proc/slabinfo` | [`Slabinfo`] |
//! | `/proc/swaps` | [`Swaps`] |
//! | debugfs `extfrag_index`, `unusable_index` | [`Extfrag`] |
//! | `/proc/sys/vm/*`, `/sys/kernel/mm/*` | [`Setting`], [`Settings`] |
//! | `/proc/kpageflags`, `/proc/kpagecount` | [`Kpageflags`], [`Kpagecount`] |
//! | ftrace's `trace`, `trace-cmd report` | [`trace`] |
//!
//! Three promises hold for every format:
//!
//! - **What parses writes back byte for byte.** A table is kept as its values. Writing uses the
//!   kernel's own column widths; a line spaced in another way keeps its spacing, also when one of
//!   its values is changed. A line that neither way can give back is an error, not a guess.
//! - **A file says which kernel it is from.** Columns, counters and sections are taken as they
//!   come, so the same code reads 3.x and 6.x. Nothing here asks for a version.
//! - **All bad lines are reported at once**, each as `file:line: found, expected`; see [`InputError`].
//!
//! They are why these formats are read here and not by a library.
//!
//! Files compressed with gzip or zstd open like plain ones: see [`open`] and [`read_bytes`].
//!
//! Models: mm/vmstat.c, mm/slab_common.c, mm/swapfile.c, fs/proc/meminfo.c, fs/proc/page.c,
//! kernel/trace/trace_output.c and include/trace/events/, v6.12, with what older and newer
//! kernels print differently.
//!
//! Departs: fields are text and numbers only; nothing is cross-checked (a `buddyinfo` that
//! disagrees with its `pagetypeinfo` reads without complaint).

mod buddyinfo;
mod counters;
mod extfrag;
mod gfp;
mod kpage;
mod lines;
mod meminfo;
mod pagetypeinfo;
mod settings;
mod slabinfo;
mod source;
mod swaps;
pub mod trace;
mod vmstat;
mod zoneinfo;

pub use buddyinfo::{Buddyinfo, BuddyinfoZone};
pub use counters::{Counter, Counters};
pub use extfrag::{Extfrag, ExtfragZone};
pub use gfp::{GfpFlags, UnknownGfp};
pub use kpage::{Kpagecount, Kpageflags, PageFlags};
pub use lines::Spacing;
pub use meminfo::{Meminfo, MeminfoField};
pub use pagetypeinfo::{BlockRow, FreeCount, FreeRow, Pagetypeinfo, PagetypeinfoNode};
pub use settings::{NamedSetting, Setting, Settings};
pub use slabinfo::{SlabCache, Slabinfo};
pub use source::{Source, find_packed, open, read_bytes};
pub use swaps::{SwapArea, Swaps};
pub use vmstat::Vmstat;
pub use zoneinfo::{Pageset, Protection, Zoneinfo, ZoneinfoForm, ZoneinfoZone};

use highorder_files::{Replace, WriteError};
use highorder_input::InputError;
use std::path::Path;

/// A kernel file that is a table of text.
pub trait TextFile: Sized {
    /// Parses the whole text of a file; `file` is the name that errors carry.
    ///
    /// # Errors
    /// [`InputError`] lists every line that is not what the format allows.
    fn parse(file: &str, text: &[u8]) -> Result<Self, InputError>;

    /// Returns the text, formatted as the kernel would.
    fn to_text(&self) -> String;

    /// Reads a file, plain or compressed.
    ///
    /// # Errors
    /// [`InputError`] if it cannot be read, if it cannot be understood or is too long for a
    /// kernel's table.
    fn read(path: impl AsRef<Path>) -> Result<Self, InputError> {
        let path = path.as_ref();
        Self::parse(&path.display().to_string(), &read_bytes(path)?)
    }

    /// Writes the text to a file; one that is there is replaced.
    ///
    /// # Errors
    /// [`WriteError`] if the file cannot be written.
    fn write(&self, path: impl AsRef<Path>) -> Result<(), WriteError> {
        highorder_files::write(path.as_ref(), self.to_text().as_bytes(), Replace::Yes)
    }
}
