//! Generations instead of an active and an inactive list.
//!
//! Models: the multi-generational LRU of mm/vmscan.c and include/linux/mm_inline.h, v6.12 (`lru_gen_*`).
//! Departs: a walk of the tables is one step, and what it notes of them for the next is exact, where the kernel's Bloom
//! filter takes one of thousands for another. Of the uses of a file's page by system calls two are told apart, not five, so
//! that none has the highest tier. A page that was rejected clean is not tried again in the same batch. Visible as: file
//! pages used very often are evicted as those used twice.
//!
//! A page's generation is where it belongs; the list it is on may be an older one, from which it is moved
//! when eviction comes to it.

use crate::anon::HUGE_ORDER;
use crate::frame::{End, List, PageFlags};
use crate::lru::{LruList, Lruvec, LruvecId};
use crate::memory::Memory;
use crate::page_table::{PTRS_PER_TABLE, Pmd, Pte, Vpn};
use crate::policy::LruKind;
use crate::reclaim::{DEF_PRIORITY, ScanControl, Shrunk};
use crate::types::{NR_ZONE_KINDS, Pfn, ZoneKind};
use crate::vma::Vma;
use crate::vmstat::Vm;
use crate::workingset::{Shadow, pack_shadow, unpack_shadow, workingset_events};
use core::ops::Range;
use std_alloc::vec::Vec;

/// Generations at most (`MAX_NR_GENS`).
pub const MAX_NR_GENS: usize = 4;
/// Generations that cannot be evicted from (`MIN_NR_GENS`).
const MIN_NR_GENS: u64 = 2;
/// Tiers (`MAX_NR_TIERS`).
const NR_TIERS: usize = 4;
/// Pages isolated at a time, entries looked at around one that was accessed (`MIN_LRU_BATCH`).
pub const MIN_LRU_BATCH: u64 = 64;
/// Pages looked at by a step at most (`MAX_LRU_BATCH`).
const MAX_LRU_BATCH: u64 = 4096;

/// Tables in which entries lie close together that were accessed: one of eight at least, as many as share a cache line
/// (`suitable_to_scan`).
#[derive(Clone, Default, Debug)]
struct DenseTables {
    /// A bit for each unit of 512 pages of address space.
    units: Vec<u64>,
}

impl DenseTables {
    const fn is_dense(entries: u32, accessed: u32) -> bool {
        accessed * 8 >= entries
    }

    const fn bit(unit: usize) -> (usize, u64) {
        (unit / u64::BITS as usize, 1 << (unit % u64::BITS as usize))
    }

    fn contains(&self, unit: usize) -> bool {
        let (word, bit) = Self::bit(unit);
        self.units.get(word).is_some_and(|word| word & bit != 0)
    }

    fn insert(&mut self, unit: usize) {
        let (word, bit) = Self::bit(unit);
        if word >= self.units.len() {
            self.units.resize(word + 1, 0);
        }
        self.units[word] |= bit;
    }
}

/// Generations of an [`crate::lru::Lruvec`].
#[derive(Clone, Debug)]
pub struct Generations {
    /// The youngest.
    pub max_seq: u64,
    /// The oldest: anonymous, file.
    pub min_seq: [u64; 2],
    lists: [[[List; NR_ZONE_KINDS]; 2]; MAX_NR_GENS],
    /// Base pages that belong to each generation.
    nr_pages: [[[u64; NR_ZONE_KINDS]; 2]; MAX_NR_GENS],
    /// Evictions and refaults of the oldest generation, by type and tier; and their averages before.
    evicted: [[u64; NR_TIERS]; 2],
    refaulted: [[u64; NR_TIERS]; 2],
    avg_total: [[u64; NR_TIERS]; 2],
    avg_refaulted: [[u64; NR_TIERS]; 2],
    /// Tables that ageing walks, by the number of the generation that is the youngest then: of even number, of odd. All until
    /// something is noted.
    dense_tables: [Option<DenseTables>; 2],
}

/// How often pages of a tier came back: what two tiers or types are compared by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControlPosition {
    /// Pages that came back.
    pub refaulted: u64,
    /// Pages that went.
    pub total: u64,
    /// Weight.
    pub gain: u64,
}

/// Whether the second comes back no more than the first, by their weights; too few refaults say
/// nothing (`positive_ctrl_err`).
#[must_use]
pub const fn comes_back_no_more(set_point: ControlPosition, other: ControlPosition) -> bool {
    other.refaulted < MIN_LRU_BATCH
        || other.refaulted * (set_point.total + MIN_LRU_BATCH) * set_point.gain
            <= (set_point.refaulted + 1) * other.total * other.gain
}

impl Generations {
    pub(crate) const NEW: Self = Self {
        max_seq: MIN_NR_GENS + 1,
        min_seq: [0; 2],
        lists: [[[List::EMPTY; NR_ZONE_KINDS]; 2]; MAX_NR_GENS],
        nr_pages: [[[0; NR_ZONE_KINDS]; 2]; MAX_NR_GENS],
        evicted: [[0; NR_TIERS]; 2],
        refaulted: [[0; NR_TIERS]; 2],
        avg_total: [[0; NR_TIERS]; 2],
        avg_refaulted: [[0; NR_TIERS]; 2],
        dense_tables: [None, None],
    };

    /// The list of a generation, by its number modulo [`MAX_NR_GENS`], type and zone class.
    pub(crate) const fn list(&self, generation: u8, file: usize, zone: ZoneKind) -> &List {
        &self.lists[generation as usize][file][zone as usize]
    }

    /// Every list with its generation, modulo [`MAX_NR_GENS`].
    pub(crate) fn lists(&self) -> impl Iterator<Item = (&List, u8)> {
        let generations = self.lists.iter().enumerate();
        generations.flat_map(|(g, lists)| lists.iter().flatten().map(move |list| (list, g as u8)))
    }

    pub(crate) const fn list_mut(
        &mut self,
        generation: u8,
        file: usize,
        zone: ZoneKind,
    ) -> &mut List {
        &mut self.lists[generation as usize][file][zone as usize]
    }

    pub(crate) const fn slot(seq: u64) -> u8 {
        (seq % MAX_NR_GENS as u64) as u8
    }

    /// Whether a generation, modulo [`MAX_NR_GENS`], is one of the two youngest.
    const fn is_active(&self, generation: u8) -> bool {
        generation == Self::slot(self.max_seq) || generation == Self::slot(self.max_seq - 1)
    }

    /// The tables that ageing will walk when this generation is the youngest.
    const fn dense_tables(&mut self, seq: u64) -> &mut Option<DenseTables> {
        &mut self.dense_tables[(seq % 2) as usize]
    }

    /// Generations of a type.
    #[must_use]
    pub const fn nr_gens(&self, file: usize) -> u64 {
        self.max_seq - self.min_seq[file] + 1
    }

    /// Base pages of a generation: anonymous, file.
    #[must_use]
    pub fn size(&self, seq: u64) -> [u64; 2] {
        self.nr_pages[usize::from(Self::slot(seq))].map(|zones| zones.iter().sum())
    }

    const fn position(&self, file: usize, tier: usize, gain: u64) -> ControlPosition {
        ControlPosition {
            refaulted: self.avg_refaulted[file][tier] + self.refaulted[file][tier],
            total: self.avg_total[file][tier] + self.evicted[file][tier],
            gain,
        }
    }

    /// The highest tier of a type that comes back no more than `first`, with tiers before it that do so, by this weight.
    fn highest_tier(&self, first: ControlPosition, file: usize, gain: u64) -> usize {
        let goes = |&tier: &usize| comes_back_no_more(first, self.position(file, tier, gain));
        (1..NR_TIERS).take_while(goes).last().unwrap_or(0)
    }

    /// The oldest generation of a type is gone: what it told fades to half.
    fn carry_over(&mut self, file: usize) {
        for tier in 0..NR_TIERS {
            let refaulted = self.avg_refaulted[file][tier] + self.refaulted[file][tier];
            let total = self.avg_total[file][tier] + self.evicted[file][tier];
            self.avg_refaulted[file][tier] = refaulted / 2;
            self.avg_total[file][tier] = total / 2;
            self.refaulted[file][tier] = 0;
            self.evicted[file][tier] = 0;
        }
    }
}

/// What a pass over generations has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GenerationPlan {
    /// Pages to look at: none where only the two youngest generations are left, which nothing goes from.
    pub nr_to_scan: u64,
    /// A new generation is due first: [`Memory::lru_gen_age`], after which this pass ends.
    pub age: bool,
}

/// What an attempt to evict came to.
#[derive(Debug, Default)]
pub struct Eviction {
    /// What became of the pages that were isolated.
    pub shrunk: Shrunk,
    /// By how much the pass has come on: base pages looked at, if any was isolated or the batch was full, and one for
    /// generations that had become empty. With none the pass ends: nothing can go before a new generation begins.
    pub progress: u64,
    /// Base pages of files isolated or passed over as dirty.
    pub nr_file_taken: u64,
    /// Base pages of files passed over as dirty that nobody has queued to be written.
    pub nr_unqueued_dirty: u64,
}

impl Lruvec {
    /// Counts pages in or out of a generation and of the sizes shown.
    pub(crate) fn account_generation(
        &mut self,
        generation: u8,
        file: usize,
        zone: ZoneKind,
        pages: i64,
    ) {
        let nr = &mut self.generations.nr_pages[usize::from(generation)][file][zone as usize];
        *nr = nr.checked_add_signed(pages).expect("a generation's size stays positive");
        let list = LruList::of(file == 1, self.generations.is_active(generation));
        self.account(list, zone, pages);
    }
}

impl Memory {
    /// Whether pages that a fault brings are of the youngest generation.
    #[inline]
    pub(crate) fn faults_enter_youngest(&self) -> bool {
        self.policy.lru.kind == LruKind::MultiGenerational
    }

    fn generations(&mut self, lruvec: LruvecId) -> &mut Generations {
        &mut self.lru.lruvecs[lruvec].generations
    }

    /// The generation a page belongs to, if it is on a generation's list.
    pub(crate) fn generation_of(&self, pfn: Pfn) -> Option<u8> {
        self.frames.generation(pfn).map(|_| self.frames.home_generation(pfn))
    }

    /// The list that a page's size is counted in.
    pub(crate) fn size_list(&self, pfn: Pfn) -> LruList {
        let file = !self.frames.has(pfn, PageFlags::ANON);
        match self.frames.generation(pfn) {
            None => self.lru_list(pfn),
            Some(_) => {
                let lists = &self.lru.lruvecs[self.lruvec_of(pfn)];
                let belongs = self.frames.home_generation(pfn);
                LruList::of(file, lists.generations.is_active(belongs))
            }
        }
    }

    /// Counts a page in (1) or out (-1) of a generation and of the sizes shown.
    fn account_generation(&mut self, pfn: Pfn, generation: u8, sign: i64) {
        let file = usize::from(!self.frames.has(pfn, PageFlags::ANON));
        let (zone, pages) = (self.zone_kind(pfn), sign * self.nr_pages(pfn) as i64);
        let lruvec = self.lruvec_of(pfn);
        self.lru.lruvecs[lruvec].account_generation(generation, file, zone, pages);
    }

    fn link_generation(&mut self, pfn: Pfn, generation: u8, end: End) {
        let file = usize::from(!self.frames.has(pfn, PageFlags::ANON));
        let zone = self.zone_kind(pfn) as usize;
        let lruvec = self.lruvec_of(pfn);
        let generations = &mut self.lru.lruvecs[lruvec].generations;
        let list = &mut generations.lists[usize::from(generation)][file][zone];
        self.frames.push(list, pfn, end);
        self.frames.set_generation(pfn, Some(generation));
    }

    fn unlink_generation(&mut self, pfn: Pfn) {
        let on = self.frames.generation(pfn).expect("the page is on a generation's list");
        let file = usize::from(!self.frames.has(pfn, PageFlags::ANON));
        let zone = self.zone_kind(pfn) as usize;
        let lruvec = self.lruvec_of(pfn);
        let generations = &mut self.lru.lruvecs[lruvec].generations;
        self.frames.unlink(&mut generations.lists[usize::from(on)][file][zone], pfn);
        self.frames.set_generation(pfn, None);
    }

    /// Puts a page on a generation's list.
    pub(crate) fn lru_gen_add(&mut self, pfn: Pfn, end: End) {
        let lruvec = self.lruvec_of(pfn);
        let generation = self.generation_for(pfn, lruvec, end);
        self.enter_generation(pfn, generation, end);
    }

    /// The generation that a page enters, which then tells what its active flag did: the youngest if a
    /// fault brought it or it is in use, the second youngest if it has no other place to be read from or
    /// is being written, else one of the oldest.
    #[inline]
    pub(crate) fn generation_for(&mut self, pfn: Pfn, lruvec: LruvecId, end: End) -> u8 {
        let generations = &self.lru.lruvecs[lruvec].generations;
        if self.frames.test_clear(pfn, PageFlags::ACTIVE) {
            return Generations::slot(generations.max_seq);
        }
        let file = usize::from(!self.frames.has(pfn, PageFlags::ANON));
        let writing = self.frames.has(pfn, PageFlags::RECLAIM)
            && self.frames.has(pfn, PageFlags::DIRTY | PageFlags::WRITEBACK);
        let alone = file == 0 && !self.frames.has(pfn, PageFlags::SWAPCACHE);
        let (min, max) = (generations.min_seq[file], generations.max_seq);
        let seq = if alone || writing {
            max - 1
        } else if end == End::Tail || min + MIN_NR_GENS >= max {
            min
        } else {
            min + 1
        };
        Generations::slot(seq)
    }

    pub(crate) fn enter_generation(&mut self, pfn: Pfn, generation: u8, end: End) {
        self.link_generation(pfn, generation, end);
        self.frames.set_home_generation(pfn, generation);
        self.account_generation(pfn, generation, 1);
    }

    /// Takes a page off its list; one of the two youngest generations is active when it comes back.
    pub(crate) fn lru_gen_del(&mut self, pfn: Pfn) {
        let home = self.frames.home_generation(pfn);
        self.account_generation(pfn, home, -1);
        self.unlink_generation(pfn);
        let lruvec = self.lruvec_of(pfn);
        if self.generations(lruvec).is_active(home) {
            self.frames.set_flags(pfn, PageFlags::ACTIVE);
        }
    }

    /// Puts a part of a page that was split where the whole belonged.
    pub(crate) fn readd_to_generation(&mut self, pfn: Pfn, generation: Option<u8>) {
        match generation {
            Some(generation) => {
                self.frames.clear_flags(pfn, PageFlags::ACTIVE);
                self.frames.set_flags(pfn, PageFlags::LRU);
                self.enter_generation(pfn, generation, End::Head);
            }
            None => self.add_page_to_lru(pfn, End::Head),
        }
    }

    /// Takes a page off its list and puts it on another generation's, to which it belongs from now on.
    fn move_to_generation(&mut self, pfn: Pfn, to: u8, end: End) {
        self.unlink_generation(pfn);
        self.link_generation(pfn, to, end);
        self.move_home(pfn, to);
        self.note_lru_op(pfn);
        self.note_lru_op(pfn);
    }

    /// A page belongs to another generation from now on; its list stays.
    fn move_home(&mut self, pfn: Pfn, generation: u8) {
        let home = self.frames.home_generation(pfn);
        if home != generation {
            self.account_generation(pfn, home, -1);
            self.frames.set_home_generation(pfn, generation);
            self.account_generation(pfn, generation, 1);
        }
    }

    /// An entry of the page was found accessed: it belongs to the youngest generation.
    fn promote(&mut self, pfn: Pfn) {
        if self.frames.generation(pfn).is_none() {
            // Isolated, or on its way to a list: whoever has it shall know (`folio_update_gen`).
            self.frames.set_flags(pfn, PageFlags::REFERENCED);
            return;
        }
        let lruvec = self.lruvec_of(pfn);
        let youngest = Generations::slot(self.generations(lruvec).max_seq);
        self.move_home(pfn, youngest);
        self.forget_uses(pfn);
    }

    /// Another generation is another beginning: how often a page was used, and that it came back, is forgotten.
    fn forget_uses(&mut self, pfn: Pfn) {
        self.frames.clear_flags(pfn, PageFlags::REFERENCED | PageFlags::WORKINGSET);
    }

    /// The tier of a page: anonymous pages that came back have the highest, pages of files that were used twice, those of
    /// tmpfs among them, have the second.
    ///
    /// Departs: a page of tmpfs that came back is one that was used twice. Visible as: it may go again sooner.
    fn tier(&self, pfn: Pfn) -> usize {
        match self.frames.has(pfn, PageFlags::WORKINGSET) {
            false => 0,
            true if self.frames.has(pfn, PageFlags::ANON) && !self.is_shmem(pfn) => NR_TIERS - 1,
            true => 1,
        }
    }

    /// What to note of a page that is evicted.
    pub(crate) fn lru_gen_eviction(&mut self, pfn: Pfn) -> u64 {
        let file = usize::from(!self.frames.has(pfn, PageFlags::ANON));
        let tier = self.tier(pfn);
        let pages = self.nr_pages(pfn);
        let lruvec = self.lruvec_of(pfn);
        let generations = self.generations(lruvec);
        generations.evicted[file][tier] += pages;
        pack_shadow(generations.min_seq[file], lruvec, tier as u8, tier > 0)
    }

    /// A page comes back; if what was the oldest generation then still is, that counts against
    /// evicting its type and tier.
    pub(crate) fn lru_gen_refault(&mut self, pfn: Pfn, shadow: u64) {
        let Shadow { age, lruvec, tier, .. } = unpack_shadow(shadow);
        if lruvec != self.lruvec_of(pfn) {
            return;
        }
        let anon = self.frames.has(pfn, PageFlags::ANON);
        let file = usize::from(!anon);
        let pages = self.nr_pages(pfn);
        let [refault, activate, restore] = workingset_events(!anon);
        self.vm.add(refault, pages);
        let generations = self.generations(lruvec);
        if age != generations.min_seq[file] {
            return;
        }
        generations.refaulted[file][usize::from(tier)] += pages;
        self.vm.add(activate, pages);
        if anon {
            self.frames.set_flags(pfn, PageFlags::WORKINGSET);
            self.vm.add(restore, pages);
        }
    }

    /// Whether anonymous pages can be evicted.
    fn can_swap(&self, sc: &ScanControl) -> bool {
        sc.may_swap && sc.swappiness > 0 && self.swap.nr_free() >= MIN_LRU_BATCH
    }

    /// How many pages a pass looks at, and whether a new generation is due.
    #[must_use]
    pub fn lru_gen_plan(&self, lruvec: LruvecId, sc: &ScanControl) -> GenerationPlan {
        let lists = &self.lru.lruvecs[lruvec];
        let generations = &lists.generations;
        let can_swap = self.can_swap(sc);
        let first = usize::from(!can_swap);
        let (mut total, mut young, mut old) = (0, 0, 0);
        // The coldest generation of the types that can be evicted.
        let min = (first..2).map(|file| generations.min_seq[file]).min().unwrap_or(0);
        for file in first..2 {
            for seq in generations.min_seq[file]..=generations.max_seq {
                let size = generations.size(seq)[file];
                total += size;
                if seq == generations.max_seq {
                    young += size;
                }
                if seq + MIN_NR_GENS == generations.max_seq {
                    old += size;
                }
            }
        }
        let is_out_of_cold = min + MIN_NR_GENS > generations.max_seq;
        let is_uneven =
            min + MIN_NR_GENS == generations.max_seq && (young * 2 > total || old * 4 < total);
        GenerationPlan {
            nr_to_scan: if is_out_of_cold { 0 } else { total >> sc.priority },
            age: (is_out_of_cold || is_uneven) && sc.priority < DEF_PRIORITY,
        }
    }

    /// Begins a new generation: every page whose entry was accessed belongs to the one that was the
    /// youngest, and the entries forget it (`try_to_inc_max_seq`).
    pub fn lru_gen_age(&mut self, lruvec: LruvecId, sc: &ScanControl) {
        self.lru_add_drain(sc.cpu);
        self.walk_tables(lruvec, self.can_swap(sc));
        for file in 0..2 {
            if self.generations(lruvec).nr_gens(file) == MAX_NR_GENS as u64 {
                self.merge_oldest(lruvec, file);
            }
        }
        // The second youngest stops counting as active, and the new one begins.
        let lists = &mut self.lru.lruvecs[lruvec];
        let previous = usize::from(Generations::slot(lists.generations.max_seq - 1));
        for file in 0..2 {
            for zone in ZoneKind::ALL {
                let pages = lists.generations.nr_pages[previous][file][zone as usize] as i64;
                lists.account(LruList::of(file == 1, false), zone, pages);
                lists.account(LruList::of(file == 1, true), zone, -pages);
            }
        }
        lists.generations.max_seq += 1;
    }

    /// Anonymous memory is passed over where nothing of it could go, and so are tables that were sparse when they were last
    /// looked at, or were not looked at since the last time (`walk_pmd_range`).
    fn walk_tables(&mut self, lruvec: LruvecId, can_swap: bool) {
        let generations = self.generations(lruvec);
        let seq = generations.max_seq;
        let of_interest = generations.dense_tables(seq).take();
        *generations.dense_tables(seq + 1) = Some(DenseTables::default());
        for unit in 0..self.spaces.table.units.len() {
            if !can_swap && !self.is_of_file(unit) {
                continue;
            }
            match self.spaces.table.units[unit].pmd {
                Pmd::None | Pmd::HugeZero => {}
                Pmd::Huge(pte) => {
                    self.work.ptes_scanned += 1;
                    let head = pte.pfn().expect("a huge page");
                    if pte.has(Pte::ACCESSED) && self.lruvec_of(head) == lruvec {
                        self.spaces.table.units[unit].pmd = Pmd::Huge(pte.without(Pte::ACCESSED));
                        self.promote(head);
                    }
                }
                Pmd::Table => {
                    if of_interest.as_ref().is_some_and(|tables| !tables.contains(unit)) {
                        continue;
                    }
                    self.work.ptes_scanned += u64::from(PTRS_PER_TABLE);
                    let entries = unit as u32 * PTRS_PER_TABLE..(unit as u32 + 1) * PTRS_PER_TABLE;
                    let accessed = self.promote_accessed(entries, lruvec);
                    self.note_table(unit, (self.mapped_of(unit), accessed), (lruvec, seq + 1));
                }
            }
        }
    }

    /// Notes a table for the walk that comes when this generation is the youngest, if of so many entries enough were accessed.
    fn note_table(
        &mut self,
        unit: usize,
        (entries, accessed): (u32, u32),
        (lruvec, seq): (LruvecId, u64),
    ) {
        if DenseTables::is_dense(entries, accessed)
            && let Some(tables) = self.generations(lruvec).dense_tables(seq)
        {
            tables.insert(unit);
        }
    }

    /// Whether the pages of a unit, which has one owner, are those of files.
    fn is_of_file(&self, unit: usize) -> bool {
        self.mappings_of(unit).iter().any(|vma| vma.file.is_some())
    }

    /// How many pages of a unit lie in mappings.
    fn mapped_of(&self, unit: usize) -> u32 {
        let (first, behind) = (unit as u32 * PTRS_PER_TABLE, (unit as u32 + 1) * PTRS_PER_TABLE);
        let mappings = self.mappings_of(unit);
        mappings.iter().map(|vma| vma.end.0.min(behind) - vma.start.0.max(first)).sum()
    }

    fn mappings_of(&self, unit: usize) -> Vec<Vma> {
        let start = Vpn(unit as u32 * PTRS_PER_TABLE);
        self.spaces.vmas_in(start..Vpn(start.0 + PTRS_PER_TABLE))
    }

    /// Makes the pages young whose entries among these were accessed, and says how many that were.
    fn promote_accessed(&mut self, entries: Range<u32>, lruvec: LruvecId) -> u32 {
        let mut accessed = 0;
        for vpn in entries.map(Vpn) {
            let pte = self.spaces.table.pte(vpn);
            let Some(pfn) = pte.pfn().filter(|_| pte.has(Pte::ACCESSED)) else { continue };
            if self.lruvec_of(pfn) == lruvec {
                self.spaces.table.set_pte(vpn, pte.without(Pte::ACCESSED));
                self.promote(self.frames.head_of(pfn));
                accessed += 1;
            }
        }
        accessed
    }

    /// An entry was found accessed while evicting: those around it that were too make their pages young
    /// (`lru_gen_look_around`). If many of them were, the next walk comes by.
    pub(crate) fn look_around(&mut self, pfn: Pfn, vpn: Vpn) {
        let Some(vma) = self.spaces.find(vpn) else { return };
        let start = vpn.unit_start().0;
        let (mut first, mut last) =
            (start.max(vma.start.0), (start + PTRS_PER_TABLE).min(vma.end.0));
        let (window, half) = (MIN_LRU_BATCH as u32, MIN_LRU_BATCH as u32 / 2);
        if last - first > window {
            if vpn.0 - first < half {
                last = first + window;
            } else if last - vpn.0 < half {
                first = last - window;
            } else {
                (first, last) = (vpn.0 - half, vpn.0 + half);
            }
        }
        let lruvec = self.lruvec_of(pfn);
        self.work.ptes_scanned += u64::from(last - first);
        // This one was, too.
        let accessed = self.promote_accessed(first..last, lruvec) + 1;
        let seq = self.generations(lruvec).max_seq;
        self.note_table(vpn.unit(), (last - first, accessed), (lruvec, seq));
    }

    /// Joins the oldest generation of a type with the next, since there can be no more than four.
    fn merge_oldest(&mut self, lruvec: LruvecId, file: usize) {
        let min = self.generations(lruvec).min_seq[file];
        let (oldest, next) = (Generations::slot(min), Generations::slot(min + 1));
        for zone in ZoneKind::ALL {
            while let Some(pfn) = self.generations(lruvec).list(oldest, file, zone).tail() {
                let home = self.frames.home_generation(pfn);
                let to = if home == oldest { next } else { home };
                if home == oldest {
                    self.forget_uses(pfn);
                }
                self.move_to_generation(pfn, to, End::Tail);
            }
        }
        let generations = self.generations(lruvec);
        generations.carry_over(file);
        generations.min_seq[file] += 1;
    }

    /// Forgets oldest generations that are empty, of the types that can be evicted (`try_to_inc_min_seq`). Whether any
    /// type begins with another one now.
    fn advance_min_seq(&mut self, lruvec: LruvecId, can_swap: bool) -> bool {
        let generations = self.generations(lruvec);
        let mut min = generations.min_seq;
        let types = usize::from(!can_swap)..2;
        for file in types.clone() {
            while min[file] + MIN_NR_GENS <= generations.max_seq {
                let slot = usize::from(Generations::slot(min[file]));
                if generations.lists[slot][file].iter().any(|list| !list.is_empty()) {
                    break;
                }
                min[file] += 1;
            }
        }
        // With swapping the two types stay together: file pages are not younger than what anonymous
        // ones have left. What was ahead while nothing could be swapped comes back.
        if can_swap {
            min[0] = min[0].min(min[1]);
            min[1] = min[0].max(generations.min_seq[1]);
        }
        let mut changes = false;
        for file in types {
            if generations.min_seq[file] != min[file] {
                generations.carry_over(file);
                generations.min_seq[file] = min[file];
                changes = true;
            }
        }
        changes
    }

    /// The type to evict from, and the highest tier of it that goes.
    fn type_and_tier(&self, lruvec: LruvecId, sc: &ScanControl) -> (usize, usize) {
        let generations = &self.lru.lruvecs[lruvec].generations;
        let swappiness = u64::from(sc.swappiness);
        let file = if !self.can_swap(sc) {
            1
        } else if generations.min_seq[0] < generations.min_seq[1] {
            0
        } else if swappiness == 1 {
            1
        } else if swappiness == 200 {
            0
        } else if !sc.may_io {
            1
        } else {
            return self.type_by_refaults(lruvec, swappiness);
        };
        (file, self.highest_tier(lruvec, file))
    }

    /// The type whose first tier comes back less, by swappiness, and the highest tier of it that comes back no more than
    /// the first of the other type does.
    #[doc(alias = "get_type_to_scan")]
    fn type_by_refaults(&self, lruvec: LruvecId, swappiness: u64) -> (usize, usize) {
        let generations = &self.lru.lruvecs[lruvec].generations;
        let gains = [swappiness, 200 - swappiness];
        let first_of = |file: usize| generations.position(file, 0, gains[file]);
        let file = usize::from(comes_back_no_more(first_of(0), first_of(1)));
        (file, generations.highest_tier(first_of(1 - file), file, gains[file]))
    }

    fn highest_tier(&self, lruvec: LruvecId, file: usize) -> usize {
        let generations = &self.lru.lruvecs[lruvec].generations;
        // A tier must come back half as often again to be protected: 2 to 3.
        generations.highest_tier(generations.position(file, 0, 2), file, 3)
    }

    /// Evicts from the oldest generation: up to 64 pages are isolated, up to 4096 looked at. What is in
    /// use or cannot go now moves to a younger generation.
    #[doc(alias = "evict_folios")]
    pub fn lru_gen_evict(&mut self, lruvec: LruvecId, sc: &ScanControl) -> Eviction {
        if !sc.may_writepage || !sc.may_unmap {
            return Eviction::default();
        }
        let can_swap = self.can_swap(sc);
        let (mut file, mut tier) = self.type_and_tier(lruvec, sc);
        let mut pages = Vec::new();
        let mut found = Eviction::default();
        for _ in 0..2 {
            if file == 1 || can_swap {
                pages = self.scan_generation(lruvec, file, tier, sc, &mut found);
            }
            if found.progress > 0 {
                break;
            }
            file = 1 - file;
            tier = self.highest_tier(lruvec, file);
        }
        found.progress += u64::from(self.advance_min_seq(lruvec, can_swap));
        let coldest = usize::from(!can_swap);
        if self.generations(lruvec).nr_gens(coldest) == MIN_NR_GENS {
            found.progress = 0;
        }
        let isolated: u64 = pages.iter().map(|&pfn| self.nr_pages(pfn)).sum();
        if file == 1 {
            found.nr_file_taken += isolated;
        }
        self.count_scan(lruvec, file == 1, isolated, sc.who);
        let mut shrunk = Shrunk { nr_scanned: isolated, nr_taken: isolated, ..Shrunk::default() };
        self.shrink_batch(lruvec, file == 1, pages, sc, &mut shrunk);
        Eviction { shrunk, ..found }
    }

    /// The pages of a batch that stay go back to their lists. Those that have been written since they were isolated are
    /// looked at once more, if the policy has it.
    #[doc(alias = "evict_folios")]
    pub(crate) fn putback_rejected(
        &mut self,
        kept: Vec<Pfn>,
        sc: &ScanControl,
        shrunk: &mut Shrunk,
    ) {
        let (written, others) = kept.into_iter().partition(|&pfn| self.may_have_been_written(pfn));
        self.putback_apart(others);
        if written.is_empty() {
            return;
        }
        let kept = self.shrink_page_list(written, sc, shrunk);
        self.putback_apart(kept.expect("clean base pages are neither written nor split"));
    }

    /// Whether a page that stays may have been written meanwhile, and its end found it on no list.
    fn may_have_been_written(&self, pfn: Pfn) -> bool {
        let used = PageFlags::ACTIVE
            | PageFlags::REFERENCED
            | PageFlags::LOCKED
            | PageFlags::DIRTY
            | PageFlags::WRITEBACK
            | PageFlags::UNEVICTABLE;
        self.policy.reclaim.retries_written && !self.frames.has(pfn, used) && !self.is_mapped(pfn)
    }

    fn putback_apart(&mut self, kept: Vec<Pfn>) {
        for pfn in kept {
            let busy = PageFlags::DIRTY | PageFlags::WRITEBACK;
            let writing = self.frames.has(pfn, PageFlags::RECLAIM) && self.frames.has(pfn, busy);
            if writing {
                self.frames.clear_flags(pfn, PageFlags::ACTIVE);
            } else if !self.frames.has(pfn, PageFlags::UNEVICTABLE) {
                // What was rejected for another reason does not go back to the oldest.
                self.frames.set_flags(pfn, PageFlags::ACTIVE);
                self.frames.clear_flags(pfn, PageFlags::REFERENCED | PageFlags::WORKINGSET);
            }
            self.putback_lru_page(pfn);
        }
    }

    /// Looks through the oldest generation of a type from its tail, the highest zone of use first.
    /// Returns what is to be evicted. `found` is told how many base pages were looked at (none where all of them only
    /// moved), and which dirty ones of files were met.
    #[doc(alias = "scan_folios")]
    fn scan_generation(
        &mut self,
        lruvec: LruvecId,
        file: usize,
        tier: usize,
        sc: &ScanControl,
        found: &mut Eviction,
    ) -> Vec<Pfn> {
        found.progress = 0;
        if self.generations(lruvec).nr_gens(file) == MIN_NR_GENS {
            return Vec::new();
        }
        let min = self.generations(lruvec).min_seq[file];
        let (oldest, next) = (Generations::slot(min), Generations::slot(min + 1));
        let mut pages = Vec::new();
        let (mut looked_at, mut sorted, mut isolated) = (0, 0, 0);
        let mut remaining = MAX_LRU_BATCH;
        let highest_zoneidx = sc.highest_zoneidx as usize;
        for i in 0..NR_ZONE_KINDS {
            let zone = ZoneKind::ALL[(highest_zoneidx + NR_ZONE_KINDS - i) % NR_ZONE_KINDS];
            let mut passed_over = Vec::new();
            let mut skipped = 0;
            while let Some(pfn) = self.generations(lruvec).list(oldest, file, zone).tail() {
                let nr = self.nr_pages(pfn);
                looked_at += nr;
                self.work.pfns_scanned += 1;
                if let Some(sorts) = self.sort_page(pfn, oldest, next, tier, sc) {
                    sorted += nr;
                    if sorts == Sorts::Dirty {
                        found.nr_file_taken += nr;
                        let is_queued = self.frames.has(pfn, PageFlags::WRITEBACK);
                        found.nr_unqueued_dirty += if is_queued { 0 } else { nr };
                    }
                } else if !sc.may_io && self.needs_io(pfn) {
                    self.unlink_generation(pfn);
                    passed_over.push(pfn);
                    skipped += nr;
                } else {
                    self.del_page_from_lru(pfn);
                    // Of a page that is not referenced it is forgotten how often it came back.
                    let is_used = self.frames.has(pfn, PageFlags::REFERENCED);
                    let marks = if is_used { PageFlags::empty() } else { PageFlags::WORKINGSET };
                    let cleared =
                        PageFlags::ACTIVE | PageFlags::REFERENCED | PageFlags::RECLAIM | marks;
                    self.frames.clear_flags(pfn, cleared);
                    self.account_isolated(pfn, 1);
                    isolated += nr;
                    pages.push(pfn);
                }
                remaining -= 1;
                if remaining == 0 || isolated.max(skipped) >= MIN_LRU_BATCH {
                    break;
                }
            }
            self.vm.add_in(Vm::PgScanSkip, zone, skipped);
            for pfn in passed_over {
                self.link_generation(pfn, oldest, End::Head);
            }
            if remaining == 0 || isolated >= MIN_LRU_BATCH {
                break;
            }
        }
        self.vm.add(Vm::PgRefill, sorted);
        let is_progress = isolated > 0 || remaining == 0;
        found.progress = if is_progress { looked_at } else { 0 };
        pages
    }

    /// Whether a page cannot go without a transfer to a device.
    fn needs_io(&self, pfn: Pfn) -> bool {
        let is_alone =
            self.frames.has(pfn, PageFlags::ANON) && !self.frames.has(pfn, PageFlags::SWAPCACHE);
        is_alone || self.frames.has(pfn, PageFlags::DIRTY)
    }

    /// Moves a page of the oldest generation that does not belong there, or cannot go now, to where it
    /// does. Whether it was moved.
    fn sort_page(
        &mut self,
        pfn: Pfn,
        oldest: u8,
        next: u8,
        highest_tier: usize,
        sc: &ScanControl,
    ) -> Option<Sorts> {
        let file = !self.frames.has(pfn, PageFlags::ANON);
        let mut sorts = Sorts::Elsewhere;
        let home = self.frames.home_generation(pfn);
        let tier = self.tier(pfn);
        // One that came back goes round once more, however often others of its tier come back.
        let is_protected = tier > highest_tier || tier == NR_TIERS - 1;
        let (to, end) = if home != oldest {
            (home, End::Head)
        } else if is_protected || self.zone_kind(pfn) > sc.highest_zoneidx {
            (next, End::Tail)
        } else if self.frames.has(pfn, PageFlags::LOCKED | PageFlags::WRITEBACK)
            || file && self.frames.has(pfn, PageFlags::DIRTY)
        {
            if file && self.frames.has(pfn, PageFlags::DIRTY) {
                sorts = Sorts::Dirty;
            }
            self.frames.set_flags(pfn, PageFlags::RECLAIM);
            (next, End::Head)
        } else {
            return None;
        };
        if home == oldest {
            self.forget_uses(pfn);
            if is_protected {
                let pages = self.nr_pages(pfn);
                let lruvec = self.lruvec_of(pfn);
                // It counts as one that could have gone.
                self.generations(lruvec).evicted[usize::from(file)][tier] += pages;
            }
        }
        self.move_to_generation(pfn, to, end);
        Some(sorts)
    }
}

/// Why a page is moved to a younger generation instead of being evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sorts {
    /// It is a dirty page of a file.
    Dirty,
    /// It is in use, protected, of a zone that is not asked for, or held by somebody.
    Elsewhere,
}

const _: () = assert!(HUGE_ORDER.pages() == PTRS_PER_TABLE);
