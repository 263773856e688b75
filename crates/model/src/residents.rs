//! Whom the pages of a restored machine belong to: one process, and one file for each zone.
//!
//! A snapshot says what a page is, and on which list, but not whose it is. So all of its anonymous pages are mapped by
//! one process, which runs until the run is over and touches none of them, and all page cache is of files that nobody
//! has open. Reclaim, swap, compaction and the OOM killer find them as they find any page.
//!
//! Departs: pages that were dirty are clean, so that reclaim need not write them; slabs stay what they are, for the
//! objects in them are not known, and no shrinker frees them. Visible as: less writing, and less reclaimed of slab.

use highorder_mm::Memory;
use highorder_mm::adopt::Listed;
use highorder_mm::page_table::Vpn;
use highorder_mm::types::{Order, Pfn};
use highorder_mm::vma::ProcessId;
use highorder_mm::zone::ZoneId;
use highorder_sim::kernel::Kernel;
use highorder_sim::{DeviceId, Ns};
use highorder_system::{Advice, Area, Code, Failure, System, ThreadSpec};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The process of residents: the first that a run's main thread starts.
const PROCESS: ProcessId = ProcessId(1);

/// Pages of a restored machine, and where they were.
#[derive(Clone, Debug, Default)]
pub struct Residents {
    /// Anonymous base and huge pages.
    pub anon: Vec<(Pfn, Order)>,
    /// Base pages of files, for each zone.
    pub cached: Vec<Vec<Pfn>>,
    /// Page tables.
    pub tables: Vec<Pfn>,
    /// What generations there were, by zone.
    pub generations: Vec<(ZoneId, u64, [u64; 2])>,
    /// Pages on LRU lists, each list from head to tail.
    pub listed: Vec<(Pfn, Listed)>,
    /// Which parts of the anonymous memory their process gives back, and when, ascending, by the run's clock.
    pub freed: Vec<(Ns, Area)>,
}

/// A machine that was found somewhere else: its memory, and whose it is.
#[derive(Clone)]
pub struct Found {
    /// The memory, in the state it was in.
    pub memory: Memory,
    /// Whose pages they are; the others are in use by nobody knows whom, and stay.
    pub residents: Residents,
    /// Whether the marks are to be those that the run's knobs say, in place of those found.
    pub sets_marks: bool,
}

impl From<Memory> for Found {
    fn from(memory: Memory) -> Self {
        Self { memory, residents: Residents::default(), sets_marks: false }
    }
}

impl Residents {
    /// Where the start of a run maps the anonymous pages, in their order: what `memory`, which nobody mapped anything in, will
    /// give them.
    #[must_use]
    pub fn places(&self, memory: &Memory) -> Vec<Option<Vpn>> {
        memory.clone().adopt_anon(PROCESS, &self.anon, &self.tables)
    }

    /// Whether there is nobody.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.anon.is_empty() && self.cached.iter().all(Vec::is_empty)
    }
}

/// Gives the pages to their process and files, and puts them on their lists.
pub(crate) fn settle(kernel: &mut Kernel, residents: &Residents, has_disk: bool) {
    let memory = &mut kernel.memory;
    for &(zone, max_seq, min_seq) in &residents.generations {
        memory.adopt_generations(zone, max_seq, min_seq);
    }
    memory.adopt_anon(PROCESS, &residents.anon, &residents.tables);
    if has_disk {
        for pages in residents.cached.iter().filter(|pages| !pages.is_empty()) {
            kernel.adopt_file(DeviceId(0), pages);
        }
    }
    for &(pfn, listed) in &residents.listed {
        if kernel.memory.is_adopted_unlisted(pfn) {
            kernel.memory.adopt_listed(pfn, listed);
        }
    }
}

/// The workload, beside the process that has the residents: it stays until the workload has ended.
pub(crate) fn beside(workload: Code, freed: Vec<(Ns, Area)>) -> Code {
    Box::new(move |sys| {
        let until_the_end = sys.new_barrier(2)?;
        let was_killed = Arc::new(AtomicBool::new(false));
        let note = was_killed.clone();
        let stay: Code = Box::new(move |sys| {
            let stayed = give_back(sys, &freed).and_then(|()| sys.barrier(until_the_end));
            note.store(stayed == Err(Failure::Killed), Ordering::Relaxed);
            stayed
        });
        let resident = sys.spawn(ThreadSpec::process("resident"), stay)?;
        let done = workload(sys);
        if !was_killed.load(Ordering::Relaxed) {
            sys.barrier(until_the_end)?;
            sys.join(resident)?;
        }
        done
    })
}

fn give_back(sys: &mut dyn System, freed: &[(Ns, Area)]) -> Result<(), Failure> {
    for &(at, area) in freed {
        let left = at.saturating_sub(sys.now());
        if left > Ns::ZERO {
            sys.sleep(left)?;
        }
        sys.madvise(area, Advice::DontNeed)?;
    }
    Ok(())
}
