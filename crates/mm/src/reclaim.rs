//! Reclaim by active and inactive lists: how much to scan of which, and what becomes of each page.
//!
//! Models: mm/vmscan.c (`get_scan_count`, `shrink_lruvec`, `shrink_inactive_list`, `shrink_active_list`,
//! `shrink_folio_list`, `folio_check_references`), v6.12, v6.1, v4.4 and v3.3.
//! Departs: an anonymous page has one mapping at most; files are not mapped for execution, so that
//! executables are not protected. No control groups but the root. In 4.4 a zone counts as hopeful again when
//! something is reclaimed from it, instead of when anything is freed in it. Visible as: program text does
//! not stay in memory longer than other file pages.
//! Departs: in 3.x pages that are off the lists are no hope, and here they are. Visible as: a zone is given up some 32
//! pages later.
//!
//! A step takes up to 32 pages, decides about each, and puts back what stays. Nothing is waited for:
//! what has to be written is handed to the caller, who tells by [`Memory::end_writeback`].

use crate::anon::HUGE_ORDER;
use crate::frame::PageFlags;
use crate::lru::{Isolated, LruList, Lruvec, LruvecId};
use crate::lumpy::{Lumps, ReclaimMode};
use crate::memory::Memory;
use crate::page_table::{PTRS_PER_TABLE, Pmd, Pte, Slot, Vpn};
use crate::policy::{
    AnonEntry, Balance, BusyMappings, BusyPages, FileWrites, LruKind, RefaultRule, ScanUnit,
    SplitParts,
};
use crate::swap::SwapIo;
use crate::tlb::TlbUsers;
use crate::types::{CpuId, Order, Pfn, ZoneKind};
use crate::vma::ProcessId;
use crate::vmstat::Vm;
use crate::watermark::Mark;
use crate::zone::ZoneId;
use std_alloc::vec::Vec;

/// Pages that a step takes.
pub const SWAP_CLUSTER_MAX: u64 = 32;
/// Where reclaim begins.
pub const DEF_PRIORITY: u8 = 12;

/// Who reclaims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reclaimer {
    /// kswapd.
    Kswapd,
    /// Who needs the memory.
    Direct,
    /// khugepaged.
    Khugepaged,
}

/// What a reclaim may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanControl {
    /// Who reclaims.
    pub who: Reclaimer,
    /// On which CPU.
    pub cpu: CpuId,
    /// 12 at first, 0 at last: lists are scanned by this power of two.
    pub priority: u8,
    /// The highest zone that is of use.
    pub highest_zoneidx: ZoneKind,
    /// The order that is wanted.
    pub order: Order,
    /// Pages wanted.
    pub nr_to_reclaim: u64,
    /// `vm.swappiness`.
    pub swappiness: u8,
    /// Pages may be given to a device.
    pub may_writepage: bool,
    /// Mapped pages may be taken.
    pub may_unmap: bool,
    /// Anonymous pages may be taken.
    pub may_swap: bool,
    /// The request allows I/O (`__GFP_IO`).
    pub may_io: bool,
    /// Active lists are scanned whatever their sizes, since reclaim failed without.
    pub force_deactivate: bool,
    /// The lists are known to be full of pages under writeback (`PGDAT_WRITEBACK`).
    pub writeback_flag: bool,
    /// They are known to be full of dirty pages nobody has queued (`PGDAT_DIRTY`).
    pub dirty_flag: bool,
    /// The process whose pages count as referenced, whether they were or not (`has_swap_token`).
    pub spared: Option<ProcessId>,
}

impl ScanControl {
    /// Reclaim of 32 pages for a request that may do anything, from the lowest pressure on.
    #[must_use]
    pub const fn new(who: Reclaimer, cpu: CpuId, swappiness: u8) -> Self {
        Self {
            who,
            cpu,
            priority: DEF_PRIORITY,
            highest_zoneidx: ZoneKind::Movable,
            order: Order(0),
            nr_to_reclaim: SWAP_CLUSTER_MAX,
            swappiness,
            may_writepage: true,
            may_unmap: true,
            may_swap: true,
            may_io: true,
            force_deactivate: false,
            writeback_flag: false,
            dirty_flag: false,
            spared: None,
        }
    }
}

/// What a step of reclaim did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shrunk {
    /// Pages looked at, in the unit of the scan.
    pub nr_scanned: u64,
    /// Base pages taken off the list.
    pub nr_taken: u64,
    /// Base pages freed.
    pub nr_reclaimed: u64,
    /// Pages found dirty.
    pub nr_dirty: u64,
    /// Pages about whose being dirty was decided, anonymous ones as well (`nr_dirty` before 3.11).
    pub nr_found_dirty: u64,
    /// Of those, such as were to be written, and are not since somebody else holds them (`nr_congested` then).
    pub nr_refused: u64,
    /// Dirty file pages that nobody has queued to be written.
    pub nr_unqueued_dirty: u64,
    /// Pages found under writeback.
    pub nr_writeback: u64,
    /// Of those, marked for reclaim in a round before, so that it goes round too fast.
    pub nr_immediate: u64,
    /// Pages made active: anonymous, file.
    pub nr_activate: [u64; 2],
    /// Pages given to a device.
    pub nr_pageout: u64,
    /// Pages kept since they were referenced.
    pub nr_ref_keep: u64,
    /// What to write to swap, in order.
    pub writes: Vec<SwapIo>,
    /// Dirty pages of files to be written.
    pub file_writes: Vec<Pfn>,
    /// Owners of the files' pages that were freed, and the shadows to keep of them.
    pub freed_files: Vec<(u32, u64)>,
    /// What reclaim is about after this batch; `None` if none was inactive.
    pub mode: Option<ReclaimMode>,
    /// Pages that were left since they are being written, while nothing else was in the way of `mode`.
    pub in_writeback: Vec<Pfn>,
    /// What was taken off which list, if anything was looked at.
    pub isolation: Option<Isolation>,
    /// What is left of the batch, if others go on before it does; [`Memory::shrink_rest`] goes on with it.
    pub rest: Option<Rest>,
}

/// Why a batch pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// A page is to be written to swap: the last one in [`Shrunk::writes`].
    Write(SwapIo),
    /// A huge page of the process was split.
    Split(ProcessId),
    /// The process's mappings are locked: they have to be free before the batch goes on.
    Locked(ProcessId),
}

/// What is left of a batch at a pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    /// What the pause is for.
    pub pause: Pause,
    batch: Batch,
}

/// A batch of isolated pages while it is decided about them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Batch {
    /// About which is to be decided, the next one last.
    left: Held,
    /// Which go back to their list in the end.
    kept: Held,
    /// Which nobody has any more, and which are freed in the end.
    freed: Held,
    /// Whose entries are gone, of which the CPUs are told in the end.
    unmapped: TlbUsers,
}

/// Pages of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Held {
    pages: Vec<Pfn>,
    /// How many of them, from the first, are marked as isolated, since others went on meanwhile.
    nr_marked: usize,
}

/// What a step took off a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isolation {
    /// The list.
    pub list: LruList,
    /// The order wanted.
    pub order: Order,
    /// Pages to be looked at.
    pub nr_requested: u64,
    /// What the scan counted.
    pub nr_scanned: u64,
    /// Base pages taken.
    pub nr_taken: u64,
    /// Of those, beside victims.
    pub lumps: Lumps,
    /// What reclaim was about.
    pub mode: ReclaimMode,
}

impl Shrunk {
    /// A page stays: whatever reclaim was about, it is single pages now (`reset_reclaim_mode`).
    fn reset_mode(&mut self) {
        if self.mode.is_some() {
            self.mode = Some(ReclaimMode::Single);
        }
    }
}

impl Isolation {
    const fn new(
        list: LruList,
        sc: &ScanControl,
        nr: u64,
        mode: ReclaimMode,
        taken: &Isolated,
    ) -> Self {
        Self {
            list,
            order: sc.order,
            nr_requested: nr,
            nr_scanned: taken.nr_scanned,
            nr_taken: taken.nr_taken,
            lumps: taken.lumps,
            mode,
        }
    }
}

impl Shrunk {
    /// Adds what another step did.
    pub fn add(&mut self, other: Self) {
        self.nr_scanned += other.nr_scanned;
        self.nr_taken += other.nr_taken;
        self.nr_reclaimed += other.nr_reclaimed;
        self.nr_dirty += other.nr_dirty;
        self.nr_found_dirty += other.nr_found_dirty;
        self.nr_refused += other.nr_refused;
        self.nr_unqueued_dirty += other.nr_unqueued_dirty;
        self.nr_writeback += other.nr_writeback;
        self.nr_immediate += other.nr_immediate;
        self.nr_activate[0] += other.nr_activate[0];
        self.nr_activate[1] += other.nr_activate[1];
        self.nr_pageout += other.nr_pageout;
        self.nr_ref_keep += other.nr_ref_keep;
        self.writes.extend(other.writes);
        self.file_writes.extend(other.file_writes);
        self.freed_files.extend(other.freed_files);
        self.mode = other.mode.or(self.mode);
        self.in_writeback.extend(other.in_writeback);
    }
}

/// What references say about a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum References {
    /// Take it.
    Reclaim,
    /// Take it if it need not be written.
    ReclaimClean,
    /// Look again in the next round.
    Keep,
    /// It is in use.
    Activate,
}

/// The rule of references: by how many entries were accessed, and by whether the page was marked before.
/// A page that was used once stays one round more; it is in use once it was used twice.
/// Returns also whether it is marked now.
#[doc(alias = "folio_check_references")]
#[must_use]
pub const fn check_references(
    anon: bool,
    entry: AnonEntry,
    accessed: u32,
    marked: bool,
) -> (References, bool) {
    if accessed > 0 {
        if anon && matches!(entry, AnonEntry::Active) {
            return (References::Activate, false);
        }
        let in_use = marked || accessed > 1;
        return if in_use { (References::Activate, true) } else { (References::Keep, true) };
    }
    if marked && !anon { (References::ReclaimClean, false) } else { (References::Reclaim, false) }
}

/// How much to scan of each list, by [`LruList::EVICTABLE`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanBalance {
    /// All alike.
    Equal,
    /// Anonymous and file pages in these parts of the third.
    Fractions(u64, u64, u64),
    /// Anonymous pages alone.
    Anon,
    /// File pages alone.
    File,
}

impl ScanBalance {
    /// Pages to scan of lists of these sizes.
    #[must_use]
    pub fn counts(self, sizes: [u64; 4], priority: u8) -> [u64; 4] {
        self.counts_at_least(sizes, priority, 0, false)
    }

    /// The same, of lists so small that the priority leaves nothing of them as if that were `least`; and shares perhaps
    /// rounded up.
    #[must_use]
    pub fn counts_at_least(
        self,
        sizes: [u64; 4],
        priority: u8,
        least: u64,
        rounds_up: bool,
    ) -> [u64; 4] {
        let mut counts = [0; 4];
        for list in LruList::EVICTABLE {
            let mut scan = sizes[list as usize] >> priority;
            if scan == 0 {
                scan = least;
            }
            counts[list as usize] = match self {
                Self::Equal => scan,
                Self::Fractions(anon, file, whole) => {
                    let share = scan * if list.is_file() { file } else { anon };
                    if rounds_up { share.div_ceil(whole) } else { share / whole }
                }
                Self::Anon if list.is_file() => 0,
                Self::File if !list.is_file() => 0,
                Self::Anon | Self::File => scan,
            };
        }
        counts
    }

    /// Shares by what was scanned and put back of each type: the more came back, the less is scanned.
    #[must_use]
    pub const fn by_rotation(swappiness: u8, scanned: [u64; 2], rotated: [u64; 2]) -> Self {
        let (anon_weight, file_weight) = (swappiness as u64, 200 - swappiness as u64);
        let anon = anon_weight * (scanned[0] + 1) / (rotated[0] + 1);
        let file = file_weight * (scanned[1] + 1) / (rotated[1] + 1);
        Self::Fractions(anon, file, anon + file + 1)
    }

    /// The same with one more of either weight (before 3.5).
    #[must_use]
    pub const fn by_rotation_plus_one(
        swappiness: u8,
        scanned: [u64; 2],
        rotated: [u64; 2],
    ) -> Self {
        let (anon_weight, file_weight) = (swappiness as u64 + 1, 200 - swappiness as u64 + 1);
        let anon = anon_weight * (scanned[0] + 1) / (rotated[0] + 1);
        let file = file_weight * (scanned[1] + 1) / (rotated[1] + 1);
        Self::Fractions(anon, file, anon + file + 1)
    }

    /// Shares by what reclaim of each type has cost; neither is taken for more than three times as
    /// expensive as both together say.
    #[must_use]
    pub const fn by_cost(swappiness: u8, cost: [u64; 2]) -> Self {
        let sum = cost[0] + cost[1];
        let (anon_cost, file_cost) = (sum + cost[0], sum + cost[1]);
        let total = anon_cost + file_cost;
        let anon = swappiness as u64 * (total + 1) / (anon_cost + 1);
        let file = (200 - swappiness as u64) * (total + 1) / (file_cost + 1);
        Self::Fractions(anon, file, anon + file)
    }
}

/// What is left to scan of the lists of an [`Lruvec`] in one pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanPlan {
    /// Pages left, by [`LruList::EVICTABLE`].
    pub nr: [u64; 4],
    targets: [u64; 4],
    /// Base pages reclaimed so far.
    pub nr_reclaimed: u64,
    adjusted: bool,
    /// Where not in proportion: what is wanted, and whether it falls with each round.
    ends_at: Option<(u64, bool)>,
    at: usize,
    /// Types whose active pages may be deactivated: anonymous, file.
    pub may_deactivate: [bool; 2],
    /// An active list was left alone.
    pub skipped_deactivate: bool,
}

impl ScanPlan {
    /// A pass over lists by these counts.
    #[must_use]
    pub fn new(nr: [u64; 4], sc: &ScanControl, may_deactivate: [bool; 2]) -> Self {
        Self {
            nr,
            targets: nr,
            nr_reclaimed: 0,
            // The first, lightest pass of direct reclaim scans all it planned.
            adjusted: sc.who != Reclaimer::Kswapd && sc.priority == DEF_PRIORITY,
            ends_at: None,
            at: 0,
            may_deactivate,
            skipped_deactivate: false,
        }
    }

    /// The same plan without proportion (before 3.11): a round that has come to as many pages as are wanted
    /// is the last one, but at the lightest pressure. With `decrement` what all rounds came to is taken off
    /// the number wanted after each.
    #[must_use]
    pub const fn ending_at_target(mut self, sc: &ScanControl, decrement: bool) -> Self {
        self.ends_at = Some((sc.nr_to_reclaim, decrement));
        self
    }

    /// A round is over. Whether it was the last one.
    fn round_is_last(&mut self, sc: &ScanControl) -> bool {
        let Some((target, decrement)) = &mut self.ends_at else {
            return self.nr_reclaimed >= sc.nr_to_reclaim && !self.adjusted && !self.adjust();
        };
        let is_enough = self.nr_reclaimed >= *target;
        if *decrement {
            *target = target.saturating_sub(self.nr_reclaimed);
        }
        is_enough && sc.priority < DEF_PRIORITY
    }

    /// The next list to shrink and by how many pages.
    pub fn next(&mut self, sc: &ScanControl) -> Option<(LruList, u64)> {
        loop {
            if self.at == 0 {
                let [inactive_anon, _, inactive_file, active_file] = self.nr;
                if inactive_anon + inactive_file + active_file == 0 {
                    return None;
                }
            }
            if self.at == 4 {
                self.at = 0;
                if self.round_is_last(sc) {
                    self.nr = [0; 4];
                }
                continue;
            }
            let at = self.at;
            self.at += 1;
            if self.nr[at] > 0 {
                let nr = self.nr[at].min(SWAP_CLUSTER_MAX);
                self.nr[at] -= nr;
                return Some((LruList::EVICTABLE[at], nr));
            }
        }
    }

    /// Enough is reclaimed: the type of which less is left is dropped, of the other as much is left as
    /// keeps their proportion. Whether there is anything left to do.
    fn adjust(&mut self) -> bool {
        let (anon, file) = (self.nr[0] + self.nr[1], self.nr[2] + self.nr[3]);
        if anon == 0 || file == 0 {
            return false;
        }
        let (dropped, left) = if file > anon { (0, 2) } else { (2, 0) };
        let target = self.targets[dropped] + self.targets[dropped + 1] + 1;
        let percentage = anon.min(file) * 100 / target;
        self.nr[dropped] = 0;
        self.nr[dropped + 1] = 0;
        for list in [left, left + 1] {
            let scanned = self.targets[list] - self.nr[list];
            let wanted = self.targets[list] * (100 - percentage) / 100;
            self.nr[list] = wanted - wanted.min(scanned);
        }
        self.adjusted = true;
        true
    }
}

impl Memory {
    /// How much to scan of each list, and which active ones may be deactivated.
    #[doc(alias = "get_scan_count")]
    pub fn plan_scan(&mut self, lruvec: LruvecId, sc: &ScanControl) -> ScanPlan {
        let may_deactivate = [false, true].map(|file| self.may_deactivate(lruvec, file, sc));
        // What decides between the types.
        let too_few = match self.policy.lru.deactivate_on_refault {
            RefaultRule::Files => [false, true].map(|file| self.inactive_is_low(lruvec, file)),
            _ => may_deactivate,
        };
        let balance = self.scan_balance(lruvec, sc, too_few);
        let lists = &self.lru.lruvecs[lruvec];
        let sizes = LruList::EVICTABLE.map(|list| lists.size_up_to(list, sc.highest_zoneidx));
        // kswapd keeps on trying a zone that it has given up.
        let is_given_up =
            lists.zone.is_some_and(|zone| self.zones[zone.index()].flags.all_unreclaimable);
        let least = if is_given_up && sc.who == Reclaimer::Kswapd { SWAP_CLUSTER_MAX } else { 0 };
        let counts =
            balance.counts_at_least(sizes, sc.priority, least, self.policy.lru.share_rounds_up);
        let plan = ScanPlan::new(counts, sc, may_deactivate);
        if self.policy.reclaim.proportional {
            plan
        } else {
            plan.ending_at_target(sc, self.policy.reclaim.target_decrement)
        }
    }

    /// Whether active pages of a type may be deactivated.
    #[doc(alias = "inactive_list_is_low")]
    fn may_deactivate(&self, lruvec: LruvecId, file: bool, sc: &ScanControl) -> bool {
        let kind = usize::from(file);
        let has_moved =
            self.known_refaults(lruvec)[kind] != self.lru.lruvecs[lruvec].refaults_seen[kind];
        let is_due = match self.policy.lru.deactivate_on_refault {
            RefaultRule::Never => false,
            RefaultRule::Files | RefaultRule::FilesThroughout => file && has_moved,
            RefaultRule::Both => has_moved || sc.force_deactivate,
        };
        is_due || self.inactive_is_low(lruvec, file)
    }

    /// The refaults seen so far are those of the past (`snapshot_refaults`): to be called when a reclaim
    /// begins its last look at these lists.
    pub fn snapshot_refaults(&mut self, lruvec: LruvecId) {
        self.lru.lruvecs[lruvec].refaults_seen = self.known_refaults(lruvec);
    }

    fn scan_balance(
        &mut self,
        lruvec: LruvecId,
        sc: &ScanControl,
        too_few: [bool; 2],
    ) -> ScanBalance {
        if !sc.may_swap || self.swap.nr_free() == 0 {
            return ScanBalance::File;
        }
        let policy = self.policy.lru;
        let is_plain = policy.balance == Balance::RotatedAlways;
        if sc.priority == 0 && (sc.swappiness > 0 || is_plain) {
            return ScanBalance::Equal;
        }
        let (free, high) = self.free_and_high(lruvec);
        let known_files = self.known_size(lruvec, LruList::InactiveFile);
        let lists = &mut self.lru.lruvecs[lruvec];
        let anon = lists.size(LruList::InactiveAnon) + lists.size(LruList::ActiveAnon);
        let file = lists.size(LruList::InactiveFile) + lists.size(LruList::ActiveFile);
        let inactive_is_left = lists.size(LruList::InactiveAnon) >> sc.priority > 0;
        let may_be_anon = !policy.tiny_cache_wants_inactive || !too_few[0] && inactive_is_left;
        if free + file <= high && may_be_anon {
            return ScanBalance::Anon;
        }
        let may_be_file = !policy.spared_by_priority || known_files >> sc.priority > 0;
        if !is_plain && !too_few[1] && may_be_file {
            return ScanBalance::File;
        }
        if !policy.balance.is_by_rotation() {
            return ScanBalance::by_cost(sc.swappiness, lists.cost);
        }
        for (kind, pages) in [(0, anon), (1, file)] {
            if lists.recent_scanned[kind] > pages / 4 {
                lists.recent_scanned[kind] /= 2;
                lists.recent_rotated[kind] /= 2;
            }
        }
        let (scanned, rotated) = (lists.recent_scanned, lists.recent_rotated);
        match is_plain {
            true => ScanBalance::by_rotation_plus_one(sc.swappiness, scanned, rotated),
            false => ScanBalance::by_rotation(sc.swappiness, scanned, rotated),
        }
    }

    /// Free pages and high marks of the zones that lists belong to.
    fn free_and_high(&self, lruvec: LruvecId) -> (u64, u64) {
        let own = (0..self.zones.len()).filter(|&z| self.lru.of_zone(ZoneId(z as u8)) == lruvec);
        own.map(|z| &self.zones[z]).fold((0, 0), |(free, high), zone| {
            (free + zone.nr_free_pages, high + zone.watermarks.pages(Mark::High))
        })
    }

    /// Does the next step of a pass: 32 pages of one list. `None` if the pass is at its end, which it
    /// completes by ageing anonymous pages if too few are inactive.
    pub fn shrink_step(
        &mut self,
        lruvec: LruvecId,
        plan: &mut ScanPlan,
        sc: &ScanControl,
    ) -> Option<Shrunk> {
        let (list, nr) = plan.next(sc)?;
        if list.is_active() {
            let file = list.is_file();
            // Decided for the whole pass since 5.5 (b91ac374346b), and before 32 pages at a time.
            if self.policy.lru.deactivate_on_refault != RefaultRule::Both {
                plan.may_deactivate[usize::from(file)] = self.may_deactivate(lruvec, file, sc);
            }
            if plan.may_deactivate[usize::from(file)] {
                return Some(self.shrink_active_list(lruvec, list, nr, sc));
            }
            plan.skipped_deactivate = true;
            return Some(Shrunk::default());
        }
        let shrunk = self.shrink_inactive_list(lruvec, list, nr, sc);
        plan.nr_reclaimed += shrunk.nr_reclaimed;
        Some(shrunk)
    }

    /// Ages anonymous pages if there is swap and too few are inactive (`age_active_anon`, and the end of
    /// `shrink_lruvec`).
    #[doc(alias = "shrink_lruvec")]
    pub fn age_active_anon(&mut self, lruvec: LruvecId, sc: &ScanControl) -> Option<Shrunk> {
        if self.swap.nr_total() == 0 || !self.inactive_is_low(lruvec, false) {
            return None;
        }
        Some(self.shrink_active_list(lruvec, LruList::ActiveAnon, SWAP_CLUSTER_MAX, sc))
    }

    /// The zone class that old kernels count these lists' events for.
    fn event_zone(&self, lruvec: LruvecId) -> ZoneKind {
        let zone = self.lru.lruvecs[lruvec].zone;
        zone.map_or(ZoneKind::Dma, |zone| self.zones[zone.index()].kind)
    }

    /// Makes up to `nr` pages from the tail of an active list inactive.
    pub fn shrink_active_list(
        &mut self,
        lruvec: LruvecId,
        list: LruList,
        nr: u64,
        sc: &ScanControl,
    ) -> Shrunk {
        self.lru_add_drain(sc.cpu);
        let mode = ReclaimMode::Single;
        let around = self.around(sc.order, mode);
        let taken = self.isolate_lru_blocks(lruvec, list, nr, sc.highest_zoneidx, around);
        let kind = usize::from(list.is_file());
        self.lru.lruvecs[lruvec].recent_scanned[kind] += taken.nr_taken;
        self.vm.add_in(Vm::PgRefill, self.event_zone(lruvec), taken.nr_scanned);
        let mut rotated = 0;
        for &pfn in &taken.pages {
            if self.page_referenced(pfn) + self.is_spared(pfn, sc) > 0 {
                rotated += self.nr_pages(pfn);
            }
            let pages = self.nr_pages(pfn);
            self.frames.clear_flags(pfn, PageFlags::ACTIVE);
            self.frames.set_flags(pfn, PageFlags::WORKINGSET);
            self.vm.add(Vm::PgDeactivate, pages);
            self.putback_lru_page(pfn);
        }
        self.lru.lruvecs[lruvec].recent_rotated[kind] += rotated;
        // What ages is no progress of the scan: `sc->nr_scanned` counts in `shrink_page_list` alone.
        let isolation = Some(Isolation::new(list, sc, nr, mode, &taken));
        Shrunk { nr_taken: taken.nr_taken, isolation, ..Shrunk::default() }
    }

    /// Reclaims up to `nr` pages from the tail of an inactive list.
    pub fn shrink_inactive_list(
        &mut self,
        lruvec: LruvecId,
        list: LruList,
        nr: u64,
        sc: &ScanControl,
    ) -> Shrunk {
        self.lru_add_drain(sc.cpu);
        let mode = self.reclaim_mode(sc.order, sc.priority);
        let around = self.around(sc.order, mode);
        let taken = self.isolate_lru_blocks(lruvec, list, nr, sc.highest_zoneidx, around);
        let file = list.is_file();
        self.count_scan(lruvec, file, taken.nr_scanned, sc.who);
        let mut shrunk = Shrunk {
            nr_scanned: taken.nr_scanned,
            nr_taken: taken.nr_taken,
            mode: Some(mode),
            isolation: Some(Isolation::new(list, sc, nr, mode, &taken)),
            ..Shrunk::default()
        };
        if mode == ReclaimMode::Lumpy {
            self.deactivate_isolated(lruvec, &taken.pages);
        } else {
            self.lru.lruvecs[lruvec].recent_scanned[usize::from(file)] += taken.nr_taken;
        }
        if taken.pages.is_empty() {
            return shrunk;
        }
        self.shrink_batch(lruvec, file, taken.pages, sc, &mut shrunk);
        shrunk
    }

    /// Decides about a batch of isolated pages, as far as it goes without a pause.
    pub(crate) fn shrink_batch(
        &mut self,
        lruvec: LruvecId,
        file: bool,
        pages: Vec<Pfn>,
        sc: &ScanControl,
        shrunk: &mut Shrunk,
    ) {
        if let Some(kept) = self.shrink_page_list(pages, sc, shrunk) {
            self.finish_batch(lruvec, file, kept, sc, shrunk);
        }
    }

    /// The pages of a batch that stay go back to their lists, and what became of the others is counted.
    fn finish_batch(
        &mut self,
        lruvec: LruvecId,
        file: bool,
        kept: Vec<Pfn>,
        sc: &ScanControl,
        shrunk: &mut Shrunk,
    ) {
        match self.policy.lru.kind {
            LruKind::Classic => {
                self.putback_pages(lruvec, kept);
                let in_vain = shrunk.nr_scanned.saturating_sub(shrunk.nr_reclaimed);
                self.note_lru_cost(lruvec, file, shrunk.nr_pageout, in_vain);
            }
            LruKind::MultiGenerational => self.putback_rejected(kept, sc, shrunk),
        }
        self.count_steal(lruvec, file, shrunk.nr_reclaimed, sc.who);
    }

    /// Goes on with a batch of anonymous pages after a pause, the time of which was spent, up to the next one; without `rest`
    /// in `shrunk` nothing is done.
    pub fn shrink_rest(&mut self, lruvec: LruvecId, shrunk: &mut Shrunk, sc: &ScanControl) {
        let Some(rest) = shrunk.rest.take() else { return };
        if let Some(kept) = self.decide_about(rest.batch, sc, shrunk) {
            self.finish_batch(lruvec, false, kept, sc, shrunk);
        }
    }

    /// Counts pages that were taken off lists of either kind and state as scanned, and forgets that some of them
    /// were active (`update_isolated_counts`, v3.3).
    fn deactivate_isolated(&mut self, lruvec: LruvecId, pages: &[Pfn]) {
        for &pfn in pages {
            let nr = self.nr_pages(pfn);
            let kind = usize::from(!self.frames.has(pfn, PageFlags::ANON));
            self.lru.lruvecs[lruvec].recent_scanned[kind] += nr;
            if self.frames.test_clear(pfn, PageFlags::ACTIVE) {
                self.vm.add(Vm::PgDeactivate, nr);
            }
        }
    }

    /// Puts pages that stay back at the heads of their lists.
    pub(crate) fn putback_pages(&mut self, lruvec: LruvecId, pages: Vec<Pfn>) {
        for pfn in pages {
            if self.frames.has(pfn, PageFlags::ACTIVE) {
                let kind = usize::from(!self.frames.has(pfn, PageFlags::ANON));
                let nr = self.nr_pages(pfn);
                self.lru.lruvecs[lruvec].recent_rotated[kind] += nr;
            }
            self.putback_lru_page(pfn);
        }
    }

    pub(crate) fn count_scan(&mut self, lruvec: LruvecId, file: bool, nr: u64, who: Reclaimer) {
        let event = match who {
            Reclaimer::Kswapd => Vm::PgScanKswapd,
            Reclaimer::Khugepaged if self.policy.vmstat.khugepaged_apart => Vm::PgScanKhugepaged,
            Reclaimer::Direct | Reclaimer::Khugepaged => Vm::PgScanDirect,
        };
        self.vm.add_in(event, self.event_zone(lruvec), nr);
        self.vm.add(if file { Vm::PgScanFile } else { Vm::PgScanAnon }, nr);
        self.lru.lruvecs[lruvec].pages_scanned += nr;
    }

    pub(crate) fn count_steal(&mut self, lruvec: LruvecId, file: bool, nr: u64, who: Reclaimer) {
        let event = match who {
            Reclaimer::Kswapd => Vm::PgStealKswapd,
            Reclaimer::Khugepaged if self.policy.vmstat.khugepaged_apart => Vm::PgStealKhugepaged,
            Reclaimer::Direct | Reclaimer::Khugepaged => Vm::PgStealDirect,
        };
        self.vm.add_in(event, self.event_zone(lruvec), nr);
        self.vm.add(if file { Vm::PgStealFile } else { Vm::PgStealAnon }, nr);
        if nr > 0 && !self.policy.reclaim.freeing_restores_hope {
            self.lru.lruvecs[lruvec].pages_scanned = 0;
        }
    }

    /// Decides about each isolated page: frees it, has it written, or keeps it. Returns those kept, in
    /// the order in which they go back, or none if the batch pauses and `shrunk` has the rest.
    #[doc(alias = "shrink_folio_list")]
    pub(crate) fn shrink_page_list(
        &mut self,
        mut pages: Vec<Pfn>,
        sc: &ScanControl,
        shrunk: &mut Shrunk,
    ) -> Option<Vec<Pfn>> {
        self.warm_places(&pages);
        // The next page is the last: parts of a page that is split come next.
        pages.reverse();
        let left = Held { pages, nr_marked: 0 };
        self.decide_about(Batch { left, ..Batch::default() }, sc, shrunk)
    }

    fn decide_about(
        &mut self,
        mut batch: Batch,
        sc: &ScanControl,
        shrunk: &mut Shrunk,
    ) -> Option<Vec<Pfn>> {
        while let Some(pfn) = batch.left.pages.pop() {
            if batch.left.pages.len() < batch.left.nr_marked {
                batch.left.nr_marked = batch.left.pages.len();
                if !self.take_back_isolated(pfn, sc.cpu) {
                    continue;
                }
            }
            let mut pause = None;
            match self.shrink_page(pfn, sc, shrunk, &mut batch.left.pages, &mut batch.unmapped) {
                Fate::Keep => {
                    shrunk.reset_mode();
                    batch.kept.pages.push(pfn);
                }
                Fate::Written(io) => {
                    pause = io.map(Pause::Write);
                    if shrunk.mode.is_some_and(|mode| mode != ReclaimMode::Single) {
                        shrunk.in_writeback.push(pfn);
                    }
                    batch.kept.pages.push(pfn);
                }
                Fate::Split(process) => pause = process.map(Pause::Split),
                Fate::Unknown(process) => {
                    batch.left.pages.push(pfn);
                    pause = Some(Pause::Locked(process));
                }
                Fate::Activate => {
                    shrunk.reset_mode();
                    if self.swap.is_half_full() {
                        self.try_to_free_swap(pfn);
                    }
                    let nr = self.nr_pages(pfn);
                    if !self.frames.has(pfn, PageFlags::UNEVICTABLE) {
                        let kind = usize::from(!self.frames.has(pfn, PageFlags::ANON));
                        self.frames.set_flags(pfn, PageFlags::ACTIVE);
                        shrunk.nr_activate[kind] += nr;
                        self.vm.add(Vm::PgActivate, nr);
                    }
                    batch.kept.pages.push(pfn);
                }
                Fate::Free => {
                    self.work.pages_reclaimed += 1;
                    shrunk.nr_reclaimed += match self.policy.lru.scan_unit {
                        ScanUnit::Page => self.nr_pages(pfn),
                        ScanUnit::Entry | ScanUnit::EntryUnbounded => 1,
                    };
                    batch.freed.pages.push(pfn);
                }
            }
            if let Some(pause) = pause {
                for held in [&mut batch.left, &mut batch.kept, &mut batch.freed] {
                    self.mark_isolated(held);
                }
                shrunk.rest = Some(Rest { pause, batch });
                return None;
            }
        }
        self.flush_tlb(batch.unmapped);
        let mut freed = batch.freed.pages;
        for (at, &pfn) in freed.iter().enumerate() {
            if at < batch.freed.nr_marked {
                self.frames.clear_flags(pfn, PageFlags::ISOLATED);
            }
            self.account_isolated(pfn, -1);
        }
        self.free_cold_batch(&mut freed, sc.cpu);
        let Held { pages: mut kept, nr_marked } = batch.kept;
        let mut at = 0;
        kept.retain(|&pfn| {
            at += 1;
            at > nr_marked || self.take_back_isolated(pfn, sc.cpu)
        });
        Some(kept)
    }

    /// Others go on before the rest of a batch does: these pages of it are marked.
    fn mark_isolated(&mut self, held: &mut Held) {
        for &pfn in &held.pages[held.nr_marked..] {
            self.frames.set_flags(pfn, PageFlags::ISOLATED);
        }
        held.nr_marked = held.pages.len();
    }

    fn shrink_page(
        &mut self,
        pfn: Pfn,
        sc: &ScanControl,
        shrunk: &mut Shrunk,
        pages: &mut Vec<Pfn>,
        unmapped: &mut TlbUsers,
    ) -> Fate {
        if self.frames.has(pfn, PageFlags::LOCKED) {
            return Fate::Keep;
        }
        if self.is_unevictable(pfn) {
            let nr = self.nr_pages(pfn);
            self.frames.set_flags(pfn, PageFlags::UNEVICTABLE);
            self.vm.add(Vm::UnevictablePgsCulled, nr);
            return Fate::Activate;
        }
        let anon = self.frames.has(pfn, PageFlags::ANON);
        let nr = self.nr_pages(pfn);
        let busy = match self.policy.reclaim.busy_pages {
            BusyPages::Keep => Fate::Keep,
            BusyPages::Activate => Fate::Activate,
        };
        if !sc.may_unmap && self.is_mapped(pfn) {
            return Fate::Keep;
        }
        // Whoever looked around an entry nearby found this page's accessed since it was isolated (`folio_update_gen`).
        let was_found = self.frames.has(pfn, PageFlags::REFERENCED);
        if self.faults_enter_youngest() && was_found && self.is_mapped(pfn) {
            return Fate::Keep;
        }
        let mapper = self.locked_mapper(pfn).filter(|_| anon);
        if let Some(process) = mapper
            && self.policy.reclaim.busy_mappings == BusyMappings::Wait
            && !self.frames.has(pfn, PageFlags::WRITEBACK)
        {
            return Fate::Unknown(process);
        }
        // An anonymous page is mapped or in the swap cache.
        let has_no_file = anon && !self.is_shmem(pfn);
        if self.policy.reclaim.mapped_count_twice && (has_no_file || self.is_mapped(pfn)) {
            shrunk.nr_scanned += 1;
        }
        if self.frames.has(pfn, PageFlags::DIRTY | PageFlags::WRITEBACK) && !anon {
            shrunk.nr_dirty += nr;
            if !self.frames.has(pfn, PageFlags::WRITEBACK) {
                shrunk.nr_unqueued_dirty += nr;
            }
        }
        if self.frames.has(pfn, PageFlags::WRITEBACK) {
            let marked = self.frames.has(pfn, PageFlags::RECLAIM);
            if sc.who == Reclaimer::Kswapd && marked && sc.writeback_flag {
                shrunk.nr_immediate += nr;
            } else {
                if self.policy.reclaim.file_writes != FileWrites::LowPriority {
                    self.frames.set_flags(pfn, PageFlags::RECLAIM);
                }
                shrunk.nr_writeback += nr;
            }
            return if busy == Fate::Keep { Fate::Written(None) } else { busy };
        }
        let ignores_references = shrunk.mode == Some(ReclaimMode::Lumpy);
        if mapper.is_some() {
            // The walk to its entries ends where it begins. That the page was found in use before is forgotten.
            self.work.rmap_walks += 1;
            self.frames.clear_flags(pfn, PageFlags::REFERENCED);
            shrunk.nr_ref_keep += nr;
            return Fate::Keep;
        }
        let accessed = self.page_referenced(pfn) + self.is_spared(pfn, sc);
        if accessed > 0
            && anon
            && self.faults_enter_youngest()
            && let Some(vpn) = self.vpn_of(pfn)
        {
            self.look_around(pfn, vpn);
        }
        let marked = self.frames.test_clear(pfn, PageFlags::REFERENCED);
        let entry = self.policy.lru.anon;
        let (mut references, mark) = check_references(anon, entry, accessed, marked);
        if mark && !ignores_references {
            self.frames.set_flags(pfn, PageFlags::REFERENCED);
        }
        match references {
            _ if ignores_references => references = References::Reclaim,
            References::Activate => return Fate::Activate,
            References::Keep => {
                shrunk.nr_ref_keep += nr;
                return Fate::Keep;
            }
            References::Reclaim | References::ReclaimClean => {}
        }
        if !anon {
            let users = self.unmap_file_page(pfn);
            self.note_unmapped(users, unmapped);
            return self.shrink_file_page(pfn, references, sc, shrunk, busy);
        }
        if !has_no_file {
            // A file's page has a slot only once it may be written, and is unmapped by then.
            let users = self.unmap_file_page(pfn);
            self.note_unmapped(users, unmapped);
            if !sc.may_writepage || !sc.may_io {
                return Fate::Keep;
            }
            if !self.shmem_to_swap(pfn, sc.cpu) {
                return Fate::Activate;
            }
        } else if !self.frames.has(pfn, PageFlags::SWAPCACHE) {
            if !sc.may_io {
                return Fate::Keep;
            }
            match self.give_slot(pfn, sc, pages) {
                Slotted::Yes => {}
                Slotted::No => return Fate::Activate,
                Slotted::Split(process) => return Fate::Split(process),
            }
        }
        let users = self.try_to_unmap(pfn);
        self.note_unmapped(users, unmapped);
        if self.frames.has(pfn, PageFlags::DIRTY) {
            shrunk.nr_found_dirty += 1;
            if !sc.may_writepage {
                return Fate::Keep;
            }
            if self.is_being_activated(pfn) {
                shrunk.nr_refused += 1;
                return Fate::Keep;
            }
            self.flush_before_write(unmapped);
            let io = self.begin_swapout(pfn);
            let nr = self.nr_pages(pfn);
            shrunk.nr_pageout += nr;
            self.vm.add(Vm::NrVmscanWrite, nr);
            shrunk.writes.push(io);
            return Fate::Written(Some(io));
        }
        let shadow = match self.policy.lru.anon {
            AnonEntry::Inactive => Some(self.workingset_eviction(pfn)),
            AnonEntry::Active => None,
        };
        self.delete_from_swap_cache(pfn, shadow);
        if self.frames.order(pfn) > Order(0) {
            self.lru.deferred_split.remove(pfn);
        }
        Fate::Free
    }

    /// Gives a page a slot, splitting a huge page that cannot have a cluster: its parts come next in
    /// `pages`.
    fn give_slot(&mut self, pfn: Pfn, sc: &ScanControl, pages: &mut Vec<Pfn>) -> Slotted {
        if self.frames.order(pfn) > Order(0) {
            let whole = self.mapped_parts(pfn) == HUGE_ORDER.pages();
            if whole && self.policy.reclaim.huge_swapout && self.add_to_swap(pfn, sc.cpu) {
                return Slotted::Yes;
            }
            if self.swap.nr_free() == 0 {
                return Slotted::No;
            }
            if self.policy.reclaim.huge_swapout {
                self.vm.add(Vm::ThpSwpoutFallback, 1);
            }
            let vpn = self.vpn_of(pfn).expect("an anonymous page that is mapped");
            let process = self.process_of(pfn);
            self.split_huge_page(pfn, sc.cpu);
            let mapped = |i: u32| self.spaces.table.pte(Vpn(vpn.0 + i)).pfn() == Some(pfn + i);
            // The batch pauses here; the first part is looked at as the others are.
            let nr_parts = match self.policy.reclaim.split_parts {
                SplitParts::ListTail => 1,
                SplitParts::Batch => HUGE_ORDER.pages(),
            };
            pages.extend((0..nr_parts).rev().filter(|&i| mapped(i)).map(|i| pfn + i));
            return Slotted::Split(process);
        }
        if self.add_to_swap(pfn, sc.cpu) { Slotted::Yes } else { Slotted::No }
    }

    fn shrink_file_page(
        &mut self,
        pfn: Pfn,
        references: References,
        sc: &ScanControl,
        shrunk: &mut Shrunk,
        busy: Fate,
    ) -> Fate {
        let nr = self.nr_pages(pfn);
        if self.frames.has(pfn, PageFlags::DIRTY) {
            shrunk.nr_found_dirty += 1;
            // Only kswapd writes files, and only where little else is left.
            let marked = self.frames.has(pfn, PageFlags::RECLAIM);
            let writes = match self.policy.reclaim.file_writes {
                FileWrites::LowPriority => sc.priority < DEF_PRIORITY - 2,
                FileWrites::ManyDirty => sc.dirty_flag,
                FileWrites::ManyDirtySeenTwice => sc.dirty_flag && marked,
            };
            if sc.who != Reclaimer::Kswapd || !writes {
                self.frames.set_flags(pfn, PageFlags::RECLAIM);
                self.vm.add(Vm::NrVmscanImmediate, nr);
                return busy;
            }
            if references == References::ReclaimClean || !sc.may_writepage || !sc.may_io {
                return Fate::Keep;
            }
            if self.is_being_activated(pfn) {
                shrunk.nr_refused += 1;
                return Fate::Keep;
            }
            shrunk.nr_pageout += nr;
            shrunk.file_writes.push(pfn);
            self.frames.set_flags(pfn, PageFlags::RECLAIM);
            self.vm.add(Vm::NrVmscanWrite, nr);
            return Fate::Written(None);
        }
        if self.frames.has(pfn, PageFlags::PINNED) {
            // Somebody refers to its buffers (`try_to_free_buffers`).
            return Fate::Activate;
        }
        if self.is_being_activated(pfn) {
            return Fate::Keep;
        }
        let shadow = self.workingset_eviction(pfn);
        shrunk.freed_files.push((self.frames.owner(pfn), shadow));
        Fate::Free
    }

    /// Nobody else may look for the mappings of a process's anonymous pages until they are unlocked: a huge page of it
    /// is being split.
    ///
    /// Departs: a process has one lock for all its mappings, where each has an `anon_vma` of its own. Visible as: a process
    /// that keeps memory in several mappings has its pages kept more often.
    ///
    /// Returns whether they are this caller's: not while somebody else has them.
    #[doc(alias = "anon_vma_lock_write")]
    #[must_use]
    pub fn try_lock_mappings(&mut self, process: ProcessId) -> bool {
        let is_free = !self.locked_mappings.contains(&process);
        if is_free {
            self.locked_mappings.push(process);
        }
        is_free
    }

    /// The end of what [`Self::try_lock_mappings`] began.
    ///
    /// # Panics
    /// If they were not locked.
    #[doc(alias = "anon_vma_unlock_write")]
    pub fn unlock_mappings(&mut self, process: ProcessId) {
        let at = self.locked_mappings.iter().position(|&locked| locked == process);
        self.locked_mappings.swap_remove(at.expect("mappings that were locked"));
    }

    /// Whether a process's mappings are locked.
    #[must_use]
    pub fn are_mappings_locked(&self, process: ProcessId) -> bool {
        self.locked_mappings.contains(&process)
    }

    /// The process that has an anonymous page mapped, if its mappings are locked. What is mapped nowhere is found so without
    /// them.
    #[doc(alias = "page_lock_anon_vma_read")]
    fn locked_mapper(&self, pfn: Pfn) -> Option<ProcessId> {
        if self.locked_mappings.is_empty() {
            return None;
        }
        self.process_of(pfn).filter(|&it| self.are_mappings_locked(it) && self.is_mapped(pfn))
    }

    /// The process whose anonymous page it is, if any maps it.
    fn process_of(&self, pfn: Pfn) -> Option<ProcessId> {
        let vma = self.spaces.find(self.vpn_of(pfn)?)?;
        Some(vma.task)
    }

    /// A page was unmapped from these processes: the CPUs are told now, or with others.
    fn note_unmapped(&mut self, users: TlbUsers, unmapped: &mut TlbUsers) {
        if self.policy.reclaim.batches_flushes {
            *unmapped |= users;
        } else {
            self.flush_entries(users, 1);
        }
    }

    /// Tells the CPUs that entries are gone before a page is written that they could still write to.
    ///
    /// Models: `try_to_unmap_flush_dirty`, mm/vmscan.c and mm/rmap.c, v4.3 to v6.12; what is not written waits for the end of
    /// the batch.
    #[doc(alias = "try_to_unmap_flush_dirty")]
    fn flush_before_write(&mut self, unmapped: &mut TlbUsers) {
        self.flush_tlb(core::mem::take(unmapped));
    }

    /// Whether anybody maps a page.
    pub(crate) fn is_mapped(&self, pfn: Pfn) -> bool {
        match self.place_of(pfn) {
            Some(place) => self.files.mapcount(place) > 0,
            None => self.has_mapped_part(pfn),
        }
    }

    /// Entries through which the page was accessed, which forget it (`page_referenced`). A huge page has one,
    /// or those of its parts.
    pub(crate) fn page_referenced(&mut self, pfn: Pfn) -> u32 {
        if self.place_of(pfn).is_some() {
            return self.file_page_referenced(pfn);
        }
        let Some(vpn) = self.vpn_of(pfn) else { return 0 };
        self.work.rmap_walks += 1;
        let pages = self.frames.order(pfn).pages();
        let table = &mut self.spaces.table;
        if let Pmd::Huge(pte) = &mut table.units[vpn.unit()].pmd {
            let was = pte.pfn() == Some(pfn) && pte.has(Pte::ACCESSED);
            *pte = pte.without(Pte::ACCESSED);
            self.work.ptes_scanned += 1;
            if was {
                // Of huge entries the CPUs are told in every version.
                self.flush_entries(self.tlb_user_at(vpn), 1);
            }
            return u32::from(was);
        }
        self.work.ptes_scanned += u64::from(pages);
        let mut was = 0;
        for i in 0..pages {
            let pte = table.pte(Vpn(vpn.0 + i));
            if pte.pfn() == Some(pfn + i) && pte.has(Pte::ACCESSED) {
                was += 1;
                table.set_pte(Vpn(vpn.0 + i), pte.without(Pte::ACCESSED));
            }
        }
        self.note_forgotten(vpn, was);
        was
    }

    /// So many entries of a mapping, this one first, forgot that they were accessed.
    ///
    /// Models: `ptep_clear_flush_young`, arch/x86/mm/pgtable.c: before 3.15 the CPUs are told of each, so that whoever uses it
    /// next notes that again.
    /// Departs: where they are not told, the next access is noted all the same. Visible as: pages in use look used a little
    /// more often than under kernels from 3.15 on.
    #[doc(alias = "ptep_clear_flush_young")]
    pub(crate) fn note_forgotten(&mut self, vpn: Vpn, entries: u32) {
        if self.policy.reclaim.flushes_accessed && entries > 0 {
            self.flush_entries(self.tlb_user_at(vpn), entries);
        }
    }

    /// 1 for an anonymous page that the process that is spared has mapped: what has been unmapped to be written is nobody's.
    #[doc(alias = "page_referenced_one")]
    fn is_spared(&self, pfn: Pfn, sc: &ScanControl) -> u32 {
        let spared = sc.spared.filter(|_| self.frames.has(pfn, PageFlags::ANON));
        u32::from(spared.is_some() && self.process_of(pfn) == spared && self.is_mapped(pfn))
    }

    /// Puts the slots of a page of the swap cache into the entries that map it. Whether there were any.
    fn try_to_unmap(&mut self, pfn: Pfn) -> TlbUsers {
        let slot = self.slot_of(pfn).expect("a page to be unmapped has a slot");
        let Some(vpn) = self.vpn_of(pfn) else { return TlbUsers::NONE };
        self.work.rmap_walks += 1;
        let pages = self.frames.order(pfn).pages();
        if matches!(self.spaces.table.pmd(vpn), Pmd::Huge(pte) if pte.pfn() == Some(pfn)) {
            debug_assert_eq!(pages, PTRS_PER_TABLE);
            self.split_huge_pmd(vpn);
        }
        let task = self.spaces.find(vpn).map(|vma| vma.task);
        let mut users = TlbUsers::NONE;
        for i in 0..pages {
            let (at, part) = (Vpn(vpn.0 + i), pfn + i);
            let pte = self.spaces.table.pte(at);
            self.work.ptes_scanned += 1;
            if pte.pfn() != Some(part) {
                continue;
            }
            if pte.has(Pte::DIRTY) {
                self.frames.set_flags(pfn, PageFlags::DIRTY);
            }
            let slot = Slot(slot.0 + i);
            self.spaces.table.set_pte(at, Pte::swap(slot));
            self.map_slot(slot, at);
            let task = self.spaces.find(at).map(|vma| vma.task).or(task);
            let task = task.expect("a mapped page lies in a mapping");
            self.account_mapped(part, task, -1);
            self.spaces.task_mut(task).swap += 1;
            users |= TlbUsers::of(task);
        }
        users
    }

    /// Puts a file's page on its way to the LRU; `owner` is what a reclaim that frees it will name, and
    /// `shadow` what an earlier one left.
    pub fn add_file_page(&mut self, pfn: Pfn, owner: u32, shadow: Option<u64>, cpu: CpuId) {
        self.frames.set_owner(pfn, owner);
        if let Some(shadow) = shadow.filter(|_| self.policy.lru.refaults) {
            self.workingset_refault(pfn, shadow);
        }
        self.lru_cache_add(pfn, cpu);
    }

    /// Begins to write a file's page.
    pub fn begin_file_writeback(&mut self, pfn: Pfn) {
        self.frames.clear_flags(pfn, PageFlags::DIRTY);
        self.frames.set_flags(pfn, PageFlags::WRITEBACK);
        let lruvec = self.lruvec_of(pfn);
        self.lru.lruvecs[lruvec].stats.nr_writeback += self.nr_pages(pfn);
    }

    /// Takes a file's page out of memory, as truncation does. Whether it went: a page in a batch or
    /// under writeback stays.
    pub fn remove_file_page(&mut self, pfn: Pfn, cpu: CpuId) -> bool {
        if self.frames.has(pfn, PageFlags::BATCHED | PageFlags::WRITEBACK) {
            return false;
        }
        if self.frames.has(pfn, PageFlags::LRU) {
            self.del_page_from_lru(pfn);
        }
        self.free_page(pfn, cpu);
        true
    }

    /// Pages that reclaim could take from these lists: file pages, and anonymous ones if there is swap.
    #[must_use]
    pub fn reclaimable_pages(&self, lruvec: LruvecId) -> u64 {
        let lists: &Lruvec = &self.lru.lruvecs[lruvec];
        let mut pages = lists.size(LruList::InactiveFile) + lists.size(LruList::ActiveFile);
        pages += lists.stats.nr_isolated[1];
        if self.swap.nr_free() > 0 {
            pages += lists.size(LruList::InactiveAnon) + lists.size(LruList::ActiveAnon);
            pages += lists.stats.nr_isolated[0];
        }
        pages
    }

    /// The same of a zone alone. Where lists are by node, pages that are off their lists are nobody's.
    #[must_use]
    pub fn zone_reclaimable_pages(&self, id: ZoneId) -> u64 {
        let lruvec = self.lru.of_zone(id);
        let lists = &self.lru.lruvecs[lruvec];
        if lists.zone.is_some() {
            return self.reclaimable_pages(lruvec);
        }
        let kind = self.zones[id.index()].kind;
        let mut pages =
            lists.size_in(LruList::InactiveFile, kind) + lists.size_in(LruList::ActiveFile, kind);
        if self.swap.nr_free() > 0 {
            pages += lists.size_in(LruList::InactiveAnon, kind);
            pages += lists.size_in(LruList::ActiveAnon, kind);
        }
        pages
    }
}

/// What becomes of an isolated page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Free,
    Keep,
    /// Kept for no other reason than that it is being written; to swap, and from now on, if it says how.
    Written(Option<SwapIo>),
    Activate,
    /// It was a huge page of that process: its parts come next, or are on their list.
    Split(Option<ProcessId>),
    /// The mappings of that process, which has it, are locked.
    Unknown(ProcessId),
}

/// Whether a page has a slot now.
enum Slotted {
    Yes,
    No,
    /// See [`Fate::Split`].
    Split(Option<ProcessId>),
}
