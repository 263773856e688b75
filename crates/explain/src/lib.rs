//! Why an allocation failed, from what the kernel's log says of it.
//!
//! [`read`] finds the reports in a log: page allocation failures, stalls, OOM kills and tasks that hang in compaction, of
//! kernels from 3.x to 6.x, with or without the prefixes of dmesg and journals. [`judge`] says of each zone what refused
//! the request.

pub mod judge;
mod log;

pub use judge::{Refusal, ZoneVerdict};
pub use log::read;

use highorder_mm::gfp::Gfp;

/// What a report is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `page allocation failure`.
    Failure,
    /// `page allocation stalls for`.
    Stall,
    /// `invoked oom-killer`.
    Oom,
    /// `blocked for more than`, or a lockup: a task that does not go on.
    Hung,
}

/// What a log says of one failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What it is of.
    pub kind: Kind,
    /// Its first line in the log, from 1.
    pub line: usize,
    /// Who asked.
    pub task: String,
    /// The order asked for.
    pub order: Option<u8>,
    /// The request's flags as the log has them.
    pub mode: String,
    /// The same as far as they are known.
    pub gfp: Gfp,
    /// Whether the log names the flags; by number only the zones and whether it is urgent are known.
    pub names_flags: bool,
    /// `uname -r`, where the log says it.
    pub release: Option<String>,
    /// Functions of its stack, innermost first, without those that may be left over.
    pub stack: Vec<String>,
    /// The zones, in the log's order.
    pub zones: Vec<Zone>,
    /// The cgroup whose limit was reached, where it was not the machine's memory that was short.
    pub cgroup: Option<Cgroup>,
    /// Whom the OOM killer killed.
    pub killed: Option<Killed>,
}

impl Report {
    /// Whether the kernel is older than a release; where the log does not say which one it is, it is not.
    #[must_use]
    pub fn is_before(&self, other: (u32, u32)) -> bool {
        let Some(release) = &self.release else { return false };
        let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
        let Some(major) = numbers.next() else { return false };
        (major, numbers.next().unwrap_or(0)) < other
    }
}

/// A task that was killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Killed {
    /// Its name.
    pub name: String,
    /// Its number.
    pub pid: u32,
}

/// A cgroup that reached its limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroup {
    /// Its path.
    pub path: Option<String>,
    /// The path of the one that the task to be killed is in: the same, or below it.
    pub task_path: Option<String>,
    /// The path of the one whose tasks are killed together, as its `memory.oom.group` says.
    pub killed_group: Option<String>,
    /// What is counted of it, in the log's order.
    pub counters: Vec<Counter>,
}

/// What is counted of a cgroup, in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// `memory` and `swap`; in version 1 `memory`, `memory+swap` and `kmem`.
    pub name: &'static str,
    /// What is used.
    pub usage_kib: u64,
    /// What may be used, if that is limited.
    pub limit_kib: Option<u64>,
}

impl Cgroup {
    /// The counter that is nearest to its limit. That of swap is not meant: at its limit nothing is refused.
    #[must_use]
    pub fn reached(&self) -> Option<&Counter> {
        let of_memory = self.counters.iter().filter(|counter| counter.name != "swap");
        let left = of_memory.filter_map(|counter| {
            Some((counter.limit_kib?.saturating_sub(counter.usage_kib), counter))
        });
        left.min_by_key(|(left, _)| *left).map(|(_, counter)| counter)
    }
}

/// A zone as the log tells it, in pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// Its node.
    pub node: u32,
    /// Its name.
    pub name: String,
    /// Free pages.
    pub free: u64,
    /// The marks min, low, high, with the boost.
    pub marks: [u64; 3],
    /// Free pages that only urgent requests may take.
    pub reserved_highatomic: u64,
    /// Pages kept from requests that could use higher zones, by the index of the highest they may use.
    pub lowmem_reserve: Vec<u64>,
    /// Free blocks by order; empty where the log has none.
    pub lists: Vec<FreeList>,
}

/// Free blocks of an order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeList {
    /// How many.
    pub blocks: u64,
    /// Letters of the types that have any: `UMEHCI`; empty before 3.10, which does not tell.
    pub types: String,
}
