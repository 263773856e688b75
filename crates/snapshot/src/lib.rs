//! The state of every page of a machine: read from a recording, taken live, kept in a file.
//!
//! | module | what it does |
//! |---|---|
//! | [`state`] | what a snapshot holds |
//! | [`recorded`] | a snapshot as a set of files: parses and renders them |
//! | [`container`] | those files packed into one, compressed and checksummed |
//! | [`recording_file`] | where a recording lies: a folder, or one file of states, trace and notes |
//! | [`live`] | takes a snapshot of the running kernel, as exact as permissions allow |
//! | [`kcore`], [`btf`], [`kallsyms`] | the running kernel's own memory, and where its structures lie in it |
//! | [`uses`] | what each frame is used for, mixed pageblocks, consistency checks |
//!
//! Reading is strict: whatever contradicts itself is an [`highorder_input::InputError`] that names every bad line.
//! Nothing here writes to the machine that is looked at.

mod boot_log;
pub mod btf;
pub mod container;
mod folder;
pub mod kallsyms;
pub mod kcore;
pub mod live;
mod placed;
mod problems;
mod process;
pub mod recorded;
pub mod recording_file;
pub mod state;
mod torn;
pub mod uses;

pub use placed::FilledFrom;
pub use process::frames_of_process;
pub use recording_file::RecordingFiles;
pub use state::*;
