//! What the tasks of a recording wanted of memory, and for how long: the demand without the kernel's answers.
//!
//! A page that was handed out belongs to the task that asked, until some task frees it. Reclaim and compaction free
//! pages too, which nobody wanted to give back: pages that reclaim took share the fate of others (`fates.rs`), and
//! pages that compaction moved go on where they went. What the kernel asked for on the way, to swap or to compact, is
//! not wanted either: a model does so for itself.
//!
//! Departs: a trace names no address, so that an area is what a task was given in a row and gave back at once. Pages
//! that a compaction moved are paired with its targets in the order of both. A page that was read from swap is a new
//! one. Visible as: lifetimes of moved pages change places; fewer major faults.

use super::fates::{self, Fate, Life};
use crate::recording::{Aside, AsideKind, Event, Kind, Recording};
use highorder_mm::gfp::Gfp;
use highorder_mm::types::{Order, Pfn};
use highorder_system::Ns;
use rand_core::Rng;
use rand_pcg::Pcg64;
use std::collections::{BTreeMap, BTreeSet};

/// What a task wants at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// So many anonymous base pages, where no huge page fits.
    Base {
        /// How many.
        pages: u32,
    },
    /// Memory for which a huge page would do.
    Huge {
        /// Base pages of it that the task uses.
        pages: u32,
        /// Whether the program asked for huge pages (`MADV_HUGEPAGE`).
        is_advised: bool,
    },
    /// Page cache, read or written.
    Cache {
        /// Base pages.
        pages: u32,
        /// Whether they were written.
        is_written: bool,
    },
    /// A block of the kernel's own.
    Kernel {
        /// Its order.
        order: Order,
        /// Whether the caller may sleep.
        may_wait: bool,
        /// `__GFP_RECLAIMABLE`.
        is_reclaimable: bool,
    },
}

/// What was still to be done with a page when the trace told of it, which it does as soon as the page is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Nothing: the page is the kernel's own.
    Nothing,
    /// A base page had to be cleared.
    Base,
    /// A huge page had to be cleared.
    Huge,
    /// A page of a file had to be put there, and to be copied.
    Cache,
}

/// Something that a task wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// When it began to ask, since the recording's first event.
    pub at: Ns,
    /// How long it took there until all of it was handed out.
    pub took: Ns,
    /// What was left to do then.
    pub rest: Rest,
    /// What it asked for.
    pub want: Want,
    /// How long it had it before it gave it back; none if it had it to the end.
    pub held: Option<Ns>,
}

/// A task, and what it wanted, by time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its number.
    pub pid: u32,
    /// What it wanted.
    pub uses: Vec<Use>,
}

/// The demand of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Tasks by number.
    pub tasks: Vec<Task>,
    /// Pages in use before the recording that were given back, and when: by the frames that they were in then.
    pub given_back: Vec<(Ns, Pfn)>,
    /// Those that reclaim took, and when.
    pub reclaimed: Vec<(Ns, Pfn)>,
    /// From the first event to the last.
    pub length: Ns,
    /// What was counted on the way.
    pub told: Told,
}

/// What a recording itself says of how its kernel served: from its events, not from counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Requests for huge pages at faults.
    pub huge_asked: u64,
    /// Of those, the ones that got one.
    pub huge_served: u64,
    /// Time that tasks spent in compaction and reclaim of their own requests.
    pub stalled: Ns,
    /// The longest such time.
    pub stalled_longest: Ns,
    /// Runs of compaction that tasks waited for.
    pub compact_stalls: u64,
    /// Pages that such runs, and those of kcompactd, moved.
    pub moved: u64,
    /// Reclaims that tasks waited for.
    pub reclaim_stalls: u64,
    /// From one base page to the next where a task faults page after page, in the median: what a fault costs there,
    /// with what tracing it costs. None where too few were seen, or the
    /// trace's clock is too coarse.
    pub fault: Option<Ns>,
    /// What a run of compaction takes for each page that it moves while no other task runs, in the median of the runs that
    /// moved some, with what tracing each page costs. None where there were too few.
    pub move_page: Option<Ns>,
}

/// The stream of advice that is drawn: "advice" in ASCII.
const ADVICE: u128 = 0x6164_7669_6365;
/// In tables by frame: nobody.
const NOBODY: u32 = u32::MAX;
/// The same of a page that was there before: this and its frame. Machines have fewer frames, and recordings fewer blocks.
const BEFORE: u32 = 1 << 31;
/// Given back no further apart than this, pages are given back at once: unmapping frees some hundred at a time, with
/// nothing but the scheduler between.
const AT_ONCE_NS: u64 = 2_000_000;
/// Between two pages that a program takes in a row it does no more than fault: 100 us at most on the slowest of machines,
/// an emulated one. What is far above is the program's own time.
const IN_A_ROW_NS: u64 = 1_000_000;
/// Traces print microseconds: what is faster cannot be told from them.
const RESOLUTION: Ns = Ns::from_micros(1);
/// Fewer faults in a row say nothing of what one costs.
const FAULTS_TO_TELL: usize = 100;
/// Fewer runs of compaction say nothing of what moving a page costs, and neither does a run that moved fewer pages than
/// one call isolates (`COMPACT_CLUSTER_MAX`).
const RUNS_TO_TELL: usize = 3;
const MOVES_TO_TELL: usize = 32;

/// A block that was handed out.
struct Taken {
    pid: u32,
    at_ns: u64,
    end_ns: u64,
    what: What,
    freed_ns: Option<u64>,
    reclaimed_ns: Option<u64>,
    round: u32,
}

/// What a block is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Base,
    /// The first part of an area for which a huge page was wanted: a huge page, or its first base page.
    Huge {
        is_advised: Option<bool>,
        was_served: bool,
    },
    /// Another page of the area begun by this block.
    Rest {
        of: u32,
    },
    Cache {
        order: Order,
        is_written: bool,
    },
    Kernel {
        order: Order,
        may_wait: bool,
        is_reclaimable: bool,
    },
}

/// An attempt at a huge page that failed, whose base pages are still to come.
#[derive(Clone, Copy)]
struct Attempt {
    is_advised: Option<bool>,
    first: Option<u32>,
    pages: u32,
}

/// A run of compaction under way.
#[derive(Default)]
struct Compaction {
    since_ns: u64,
    /// Time from one event of it to the next where no other task was told of between them on the CPU.
    own_ns: u64,
    targets: Vec<Pfn>,
    /// The same, to look one up.
    target_set: BTreeSet<Pfn>,
    sources: Vec<u32>,
}

/// Reads a recording from beginning to end.
struct Reader {
    pageblock: Order,
    /// Whether a request that may reclaim directly is one of an area that was advised: under `always` all may.
    direct_means_advised: bool,
    taken: Vec<Taken>,
    owner: Vec<u32>,
    given_back: Vec<(Ns, Pfn)>,
    reclaimed: Vec<(Ns, Pfn)>,
    attempts: BTreeMap<u32, Attempt>,
    compactions: BTreeMap<u32, Compaction>,
    /// Tasks that reclaim for themselves, and since when.
    reclaiming: BTreeMap<u32, u64>,
    kswapds: BTreeSet<u32>,
    /// Tasks that ask for memory: kcompactd does not.
    askers: BTreeSet<u32>,
    /// How long each task has been kept by reclaim and compaction since it last got something.
    kept_ns: BTreeMap<u32, u64>,
    /// Of each task, how often it has given back what it had: what it takes in between belongs together.
    rounds: BTreeMap<u32, u32>,
    /// When each task was given a base page, if nothing else has happened to it since.
    faulted_ns: BTreeMap<u32, u64>,
    /// Times between two such.
    fault_gaps_ns: Vec<u64>,
    /// What runs of compaction took for a page each.
    moves_ns: Vec<u64>,
    /// The last event of each CPU: whose it was, and when.
    last_on_cpu: BTreeMap<u8, (u32, u64)>,
    told: Told,
}

impl Wanted {
    /// The demand of a recording; `defrag` is what `transparent_hugepage/defrag` was.
    #[must_use]
    pub fn of(recording: &Recording, defrag: Option<&str>) -> Self {
        let mut reader = Reader {
            pageblock: recording.before.pageblock_order,
            direct_means_advised: matches!(defrag, Some("madvise" | "defer+madvise")),
            taken: Vec::new(),
            owner: (0..recording.before.nr_frames as u32).map(|frame| BEFORE | frame).collect(),
            given_back: Vec::new(),
            reclaimed: Vec::new(),
            attempts: BTreeMap::new(),
            compactions: BTreeMap::new(),
            reclaiming: BTreeMap::new(),
            kswapds: recording
                .events
                .iter()
                .filter(|event| event.kind == Kind::KswapdWake)
                .map(|event| event.pid)
                .collect(),
            kept_ns: BTreeMap::new(),
            rounds: BTreeMap::new(),
            faulted_ns: BTreeMap::new(),
            fault_gaps_ns: Vec::new(),
            moves_ns: Vec::new(),
            last_on_cpu: BTreeMap::new(),
            told: Told::default(),
            askers: recording
                .events
                .iter()
                .filter(|event| event.kind == Kind::Alloc)
                .map(|event| event.pid)
                .collect(),
        };
        let mut asides = recording.asides.iter().peekable();
        for event in &recording.events {
            while let Some(aside) = asides.next_if(|aside| aside.time_ns <= event.time_ns) {
                reader.aside(aside);
            }
            reader.event(event);
        }
        asides.for_each(|aside| reader.aside(aside));
        reader.finish(recording.events.last().map_or(0, |event| event.time_ns))
    }

    /// Uses of all tasks.
    #[must_use]
    pub fn nr_uses(&self) -> usize {
        self.tasks.iter().map(|task| task.uses.len()).sum()
    }
}

impl Reader {
    fn aside(&mut self, aside: &Aside) {
        match aside.kind {
            AsideKind::Refused { order, gfp } => {
                if self.is_huge(order, gfp) && !self.is_kernels(aside.pid) {
                    let is_advised = self.is_advised(gfp);
                    self.attempt(aside.pid, is_advised);
                }
            }
            AsideKind::ReclaimBegin => {
                self.reclaiming.insert(aside.pid, aside.time_ns);
                self.told.reclaim_stalls += 1;
            }
            AsideKind::ReclaimEnd => {
                if let Some(since) = self.reclaiming.remove(&aside.pid) {
                    self.stalled(aside.pid, aside.time_ns.saturating_sub(since));
                }
            }
        }
    }

    fn stalled(&mut self, pid: u32, ns: u64) {
        *self.kept_ns.entry(pid).or_default() += ns;
        self.told.stalled = Ns(self.told.stalled.0 + ns);
        self.told.stalled_longest = self.told.stalled_longest.max(Ns(ns));
    }

    /// Whether what the task does now is the kernel's own work.
    fn is_kernels(&self, pid: u32) -> bool {
        self.reclaiming.contains_key(&pid)
            || self.compactions.contains_key(&pid)
            || self.kswapds.contains(&pid)
    }

    /// Whether a request is one for a huge page of a task (`GFP_TRANSHUGE_LIGHT`, with what `defrag` adds).
    fn is_huge(&self, order: Order, gfp: Gfp) -> bool {
        order == self.pageblock && gfp.contains(Gfp::HIGHMEM | Gfp::MOVABLE | Gfp::NOMEMALLOC)
    }

    /// Whether the area of a request for a huge page was advised, as far as its flags say
    /// (`vma_thp_gfp_mask`, mm/huge_memory.c, v6.1): under `always` a second try, at any node, insists unless it
    /// was; under `madvise` who may reclaim was.
    fn is_advised(&self, gfp: Gfp) -> Option<bool> {
        if self.direct_means_advised {
            return Some(gfp.contains(Gfp::DIRECT_RECLAIM));
        }
        let is_second_try = !gfp.contains(Gfp::THISNODE);
        (is_second_try && gfp.contains(Gfp::DIRECT_RECLAIM)).then(|| !gfp.contains(Gfp::NORETRY))
    }

    fn attempt(&mut self, pid: u32, is_advised: Option<bool>) {
        let begun = self.attempts.get(&pid).filter(|attempt| attempt.first.is_none());
        let is_advised = match begun {
            // A second try at other nodes.
            Some(begun) => is_advised.or(begun.is_advised),
            None => {
                self.told.huge_asked += 1;
                is_advised
            }
        };
        self.attempts.insert(pid, Attempt { is_advised, first: None, pages: 0 });
    }

    fn event(&mut self, event: &Event) {
        let pid = event.pid;
        if !matches!(event.kind, Kind::Take | Kind::Alloc) {
            self.faulted_ns.remove(&pid);
        }
        let last = self.last_on_cpu.insert(event.cpu, (pid, event.time_ns));
        if let Some((of, then_ns)) = last
            && of == pid
            && let Some(run) = self.compactions.get_mut(&pid)
        {
            run.own_ns += event.time_ns.saturating_sub(then_ns);
        }
        match event.kind {
            Kind::Alloc if self.is_kernels(pid) => self.forget(event.pfn, event.order),
            Kind::Alloc => self.alloc(event),
            Kind::Free | Kind::FreeBatched => self.free(event),
            Kind::Isolate => {
                let targets = (event.pfn.0..event.pfn.0 + event.order.pages()).map(Pfn);
                let run = self.compactions.entry(pid).or_default();
                run.targets.extend(targets.clone());
                run.target_set.extend(targets);
            }
            Kind::CompactBegin => {
                self.compactions
                    .insert(pid, Compaction { since_ns: event.time_ns, ..Compaction::default() });
            }
            Kind::CompactEnd => self.compacted(pid, event.time_ns),
            _ => {}
        }
    }

    /// The run of compaction is over: what moved is where its targets were that were not returned.
    fn compacted(&mut self, pid: u32, now_ns: u64) {
        let Some(run) = self.compactions.remove(&pid) else { return };
        let nr_moved = run.sources.len();
        self.told.moved += nr_moved as u64;
        if nr_moved >= MOVES_TO_TELL {
            self.moves_ns.push(run.own_ns / nr_moved as u64);
        }
        for (owner, target) in run.sources.into_iter().zip(run.targets) {
            self.owner[target.index()] = owner;
        }
        if self.askers.contains(&pid) && !self.kswapds.contains(&pid) {
            self.told.compact_stalls += 1;
            self.stalled(pid, now_ns.saturating_sub(run.since_ns));
        }
    }

    fn forget(&mut self, pfn: Pfn, order: Order) {
        self.owner[pfn.index()..][..order.pages() as usize].fill(NOBODY);
    }

    fn alloc(&mut self, event: &Event) {
        let Event { pid, order, time_ns, .. } = *event;
        let gfp = event.gfp();
        let number = self.taken.len() as u32;
        let what = if self.is_huge(order, gfp) {
            self.huge_served(pid, self.is_advised(gfp))
        } else if !gfp.contains(Gfp::MOVABLE) {
            let may_wait = gfp.contains(Gfp::DIRECT_RECLAIM);
            let is_reclaimable = gfp.contains(Gfp::RECLAIMABLE);
            if order == Order(0) && gfp.contains(Gfp::ACCOUNT | Gfp::ZERO) {
                // A page table, which the model has for itself.
                return self.forget(event.pfn, order);
            }
            What::Kernel { order, may_wait, is_reclaimable }
        } else if gfp.contains(Gfp::ZERO) || gfp.contains(Gfp::FS) && !is_of_file(gfp) {
            self.base(pid, number)
        } else {
            What::Cache { order, is_written: gfp.contains(Gfp::WRITE) }
        };
        let kept_ns = self.kept_ns.remove(&pid).unwrap_or(0);
        let at_ns = time_ns.saturating_sub(kept_ns);
        let is_fault = matches!(what, What::Base | What::Rest { .. });
        let before = match is_fault {
            true => self.faulted_ns.insert(pid, time_ns),
            false => self.faulted_ns.remove(&pid).and(None),
        };
        self.fault_gaps_ns.extend(before.map(|before| time_ns.saturating_sub(before)));
        if let What::Rest { of } = what {
            self.taken[of as usize].end_ns = time_ns;
        }
        if let What::Huge { was_served: true, .. } = what {
            self.attempts.remove(&pid);
        }
        let round = self.rounds.get(&pid).copied().unwrap_or(0);
        let (freed_ns, reclaimed_ns) = (None, None);
        self.taken.push(Taken { pid, at_ns, end_ns: time_ns, what, freed_ns, reclaimed_ns, round });
        self.owner[event.pfn.index()..][..order.pages() as usize].fill(number);
    }

    /// A huge page was given: after a first try that failed, the second one's.
    fn huge_served(&mut self, pid: u32, is_advised: Option<bool>) -> What {
        self.told.huge_served += 1;
        let begun = self.attempts.get(&pid).filter(|attempt| attempt.first.is_none());
        self.told.huge_asked += u64::from(begun.is_none());
        let is_advised = is_advised.or(begun.and_then(|begun| begun.is_advised));
        What::Huge { is_advised, was_served: true }
    }

    /// A base page was given: of the area whose huge page was refused just before, or of another one.
    fn base(&mut self, pid: u32, number: u32) -> What {
        let huge_pages = self.pageblock.pages();
        let Some(attempt) = self.attempts.get_mut(&pid) else { return What::Base };
        attempt.pages += 1;
        let (first, is_advised) = (attempt.first, attempt.is_advised);
        attempt.first.get_or_insert(number);
        if attempt.pages == huge_pages {
            self.attempts.remove(&pid);
        }
        match first {
            Some(of) => What::Rest { of },
            None => What::Huge { is_advised, was_served: false },
        }
    }

    fn free(&mut self, event: &Event) {
        for pfn in (event.pfn.0..event.pfn.0 + event.order.pages()).map(Pfn) {
            let owner = std::mem::replace(&mut self.owner[pfn.index()], NOBODY);
            if let Some(run) = self.compactions.get_mut(&event.pid) {
                if run.target_set.remove(&pfn) {
                    let returned = run.targets.iter().position(|&target| target == pfn);
                    returned.map(|returned| run.targets.remove(returned));
                } else {
                    run.sources.push(owner);
                }
                continue;
            }
            let is_reclaimed = self.is_kernels(event.pid);
            match self.taken.get_mut(owner as usize) {
                Some(taken) if is_reclaimed => taken.reclaimed_ns = Some(event.time_ns),
                Some(taken) => {
                    taken.freed_ns = Some(event.time_ns);
                    if taken.pid == event.pid {
                        *self.rounds.entry(event.pid).or_default() += 1;
                    }
                }
                None if owner == NOBODY => {}
                None => {
                    let was = (Ns(event.time_ns), Pfn(owner & !BEFORE));
                    if is_reclaimed { &mut self.reclaimed } else { &mut self.given_back }.push(was);
                }
            }
        }
    }

    fn finish(self, length_ns: u64) -> Wanted {
        let Self { pageblock, mut taken, given_back, reclaimed, mut told, .. } = self;
        give_fates(&mut taken);
        told.fault = median(self.fault_gaps_ns, FAULTS_TO_TELL);
        told.move_page = median(self.moves_ns, RUNS_TO_TELL);
        let mut parts: BTreeMap<u32, u32> = BTreeMap::new();
        for block in &taken {
            if let What::Rest { of } = block.what {
                *parts.entry(of).or_insert(1) += 1;
            }
        }
        let advice = advice_by_round(&taken);
        let pages_of_refused = pages_of_refused(&taken, &parts, pageblock);
        let mut tasks: BTreeMap<u32, Vec<Use>> = BTreeMap::new();
        for (number, block) in taken.iter().enumerate() {
            let want = match block.what {
                What::Rest { .. } => continue,
                What::Base => Want::Base { pages: 1 },
                What::Huge { is_advised, was_served } => Want::Huge {
                    pages: match was_served {
                        true => {
                            pages_of_refused.get(&block.pid).copied().unwrap_or(pageblock.pages())
                        }
                        false => parts.get(&(number as u32)).copied().unwrap_or(1),
                    },
                    is_advised: is_advised.unwrap_or(advice[&(block.pid, block.round)]),
                },
                What::Cache { order, is_written } => {
                    Want::Cache { pages: order.pages(), is_written }
                }
                What::Kernel { order, may_wait, is_reclaimable } => {
                    Want::Kernel { order, may_wait, is_reclaimable }
                }
            };
            let uses = tasks.entry(block.pid).or_default();
            add(uses, block, want);
        }
        let tasks = tasks.into_iter().map(|(pid, uses)| Task { pid, uses }).collect();
        Wanted { tasks, given_back, reclaimed, length: Ns(length_ns), told }
    }
}

/// The median of times, where there are so many and the trace's clock is fine enough.
fn median(mut times_ns: Vec<u64>, at_least: usize) -> Option<Ns> {
    if times_ns.len() < at_least {
        return None;
    }
    let middle = times_ns.len() / 2;
    let median = Ns(*times_ns.select_nth_unstable(middle).1);
    (median >= RESOLUTION).then_some(median)
}

/// Says of tasks' own memory that reclaim took when it would have been given back.
fn give_fates(taken: &mut [Taken]) {
    let mut by_task: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (number, block) in taken.iter().enumerate() {
        if matches!(block.what, What::Base | What::Huge { .. } | What::Rest { .. }) {
            by_task.entry(block.pid).or_default().push(number);
        }
    }
    for (pid, numbers) in by_task {
        let life = |&number: &usize| {
            let Taken { at_ns, end_ns, freed_ns, reclaimed_ns, .. } = taken[number];
            let fate = match (freed_ns, reclaimed_ns) {
                (Some(ns), _) => Fate::GivenBack(Ns(ns)),
                (None, Some(ns)) => Fate::Reclaimed(Ns(ns)),
                (None, None) => Fate::Kept,
            };
            Life { born: Ns(at_ns), complete: Ns(end_ns), fate }
        };
        let mut lives: Vec<Life> = numbers.iter().map(life).collect();
        fates::give(&mut lives, Ns(IN_A_ROW_NS), pid.into());
        for (number, life) in numbers.into_iter().zip(lives) {
            if let Fate::GivenBack(at) = life.fate {
                taken[number].freed_ns = Some(at.0);
            }
        }
    }
}

/// Whether a request without zeroing is one for the page cache: it says that it is written, or is one of read-ahead, or
/// must not enter the file system again. What is left is a copy for a task (`GFP_HIGHUSER_MOVABLE`).
fn is_of_file(gfp: Gfp) -> bool {
    gfp.intersects(Gfp::WRITE | Gfp::NORETRY | Gfp::NOFAIL) || !gfp.contains(Gfp::FS)
}

/// What each task's areas were advised, by what it took between giving back and giving back: mappings are advised as a
/// whole. Where no request tells, it is drawn, as often as the rule of succession has it from those rounds of the task that
/// were told; of a task that tells nowhere nothing was advised.
fn advice_by_round(taken: &[Taken]) -> BTreeMap<(u32, u32), bool> {
    let mut told: BTreeMap<(u32, u32), Option<bool>> = BTreeMap::new();
    for block in taken {
        if let What::Huge { is_advised, .. } = block.what {
            let round = told.entry((block.pid, block.round)).or_default();
            *round = is_advised.or(*round);
        }
    }
    let mut by_task: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for (&(pid, _), round) in &told {
        if let Some(is_advised) = *round {
            let (advised, rounds) = by_task.entry(pid).or_default();
            *advised += u64::from(is_advised);
            *rounds += 1;
        }
    }
    let mut rng = Pcg64::new(0, ADVICE);
    let mut is_advised = |pid: u32| {
        let Some(&(advised, rounds)) = by_task.get(&pid) else { return false };
        rng.next_u64() % (rounds + 2) < advised + 1
    };
    told.into_iter()
        .map(|(round, told)| (round, told.unwrap_or_else(|| is_advised(round.0))))
        .collect()
}

/// How many base pages of an area each task used on average where it got no huge page.
fn pages_of_refused(
    taken: &[Taken],
    parts: &BTreeMap<u32, u32>,
    pageblock: Order,
) -> BTreeMap<u32, u32> {
    let mut sums: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for (block, number) in taken.iter().zip(0..) {
        if let What::Huge { was_served: false, .. } = block.what {
            let (areas, pages) = sums.entry(block.pid).or_default();
            *areas += 1;
            *pages += u64::from(parts.get(&number).copied().unwrap_or(1));
        }
    }
    let mean = |(areas, pages): (u64, u64)| (pages.div_ceil(areas) as u32).min(pageblock.pages());
    sums.into_iter().map(|(pid, sums)| (pid, mean(sums))).collect()
}

/// Adds what a task wanted: to the area before, if it came in a row and went at once with it.
fn add(uses: &mut Vec<Use>, block: &Taken, want: Want) {
    let held = |freed_ns: Option<u64>| freed_ns.map(|ns| Ns(ns.saturating_sub(block.end_ns)));
    let this = Use {
        at: Ns(block.at_ns),
        took: Ns(block.end_ns.saturating_sub(block.at_ns)),
        rest: match block.what {
            What::Huge { was_served: true, .. } => Rest::Huge,
            What::Base | What::Huge { .. } | What::Rest { .. } => Rest::Base,
            What::Cache { .. } => Rest::Cache,
            What::Kernel { .. } => Rest::Nothing,
        },
        want,
        held: held(block.freed_ns),
    };
    let Some(last) = uses.last_mut() else { return uses.push(this) };
    let end = last.at + last.took;
    let last_freed = last.held.map(|held| end + held);
    let goes_with = match (last_freed, block.freed_ns) {
        (None, None) => true,
        (Some(last), Some(this)) => last.0.abs_diff(this) < AT_ONCE_NS,
        _ => false,
    };
    let joined = match (last.want, want) {
        (Want::Base { pages: a }, Want::Base { pages: b }) => Some(Want::Base { pages: a + b }),
        (
            Want::Cache { pages: a, is_written: one },
            Want::Cache { pages: b, is_written: other },
        ) if one == other => Some(Want::Cache { pages: a + b, is_written: one }),
        _ => None,
    };
    let comes_with = block.at_ns.saturating_sub(end.0) < IN_A_ROW_NS;
    match joined.filter(|_| goes_with && comes_with) {
        Some(joined) => {
            last.want = joined;
            last.took = Ns(block.end_ns.saturating_sub(last.at.0));
            last.held = held(block.freed_ns);
        }
        None => uses.push(this),
    }
}
