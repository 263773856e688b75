//! The lists that reclaim takes from: which page is on which, in which order.
//!
//! Models: mm/swap.c, include/linux/mm_inline.h, `isolate_lru_folios`, `move_folios_to_lru`,
//! mm/vmscan.c, v6.12, v6.1 and v4.4.
//! Departs: only the batch of pages to be added is kept by CPU; moving a page between lists
//! (activation, rotation) takes effect at once. Visible as: a page just activated is never scanned as
//! inactive for want of 14 others.

use crate::Machine;
use crate::anon::NOBODY;
use crate::frame::{End, List, PageFlags, State};
use crate::lumpy::{Around, Lumps};
use crate::memory::Memory;
use crate::mglru::Generations;
use crate::policy::{Activation, BusyPages, InactiveRatio, ListStats, LruKind, LruScope, ScanUnit};
use crate::reclaim::SWAP_CLUSTER_MAX;
use crate::split_queue::SplitQueue;
use crate::types::{CpuId, NR_ZONE_KINDS, NodeId, Order, Pfn, ZoneKind};
use crate::vmstat::Vm;
use crate::zone::ZoneId;
use core::ops::{Index, IndexMut};
use std_alloc::vec;
use std_alloc::vec::Vec;

/// Which list of an [`Lruvec`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum LruList {
    /// Anonymous, to be scanned.
    InactiveAnon = 0,
    /// Anonymous, in use.
    ActiveAnon = 1,
    /// Of files, to be scanned.
    InactiveFile = 2,
    /// Of files, in use.
    ActiveFile = 3,
    /// Locked into memory.
    Unevictable = 4,
}

/// Number of lists.
pub const NR_LRU_LISTS: usize = 5;

impl LruList {
    /// All of them.
    pub const ALL: [Self; NR_LRU_LISTS] = [
        Self::InactiveAnon,
        Self::ActiveAnon,
        Self::InactiveFile,
        Self::ActiveFile,
        Self::Unevictable,
    ];
    /// Those that reclaim scans, in the order in which it does.
    pub const EVICTABLE: [Self; 4] =
        [Self::InactiveAnon, Self::ActiveAnon, Self::InactiveFile, Self::ActiveFile];

    /// Whether it holds files' pages.
    #[must_use]
    pub const fn is_file(self) -> bool {
        matches!(self, Self::InactiveFile | Self::ActiveFile)
    }

    /// Whether it is an active list.
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!(self, Self::ActiveAnon | Self::ActiveFile)
    }

    /// The active or inactive list of a type: 0 for anonymous pages, 1 for files'.
    #[must_use]
    pub const fn of(file: bool, active: bool) -> Self {
        Self::ALL[file as usize * 2 + active as usize]
    }

    /// The counter of its size.
    #[must_use]
    pub const fn counter(self) -> &'static str {
        match self {
            Self::InactiveAnon => "nr_inactive_anon",
            Self::ActiveAnon => "nr_active_anon",
            Self::InactiveFile => "nr_inactive_file",
            Self::ActiveFile => "nr_active_file",
            Self::Unevictable => "nr_unevictable",
        }
    }
}

/// Sizes that are counted where the LRU lists are: of a zone or of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LruStats {
    /// Anonymous pages that are mapped.
    pub nr_anon_mapped: u64,
    /// Pages of huge pages among them, in huge pages.
    pub nr_anon_huge: u64,
    /// Pages of files that somebody maps (`NR_FILE_MAPPED`).
    pub nr_file_mapped: u64,
    /// Pages that hold page tables.
    pub nr_page_table: u64,
    /// Pages taken off the lists: anonymous, file.
    pub nr_isolated: [u64; 2],
    /// Pages being written.
    pub nr_writeback: u64,
    /// Pages of files that are to be written.
    pub nr_dirty: u64,
}

/// Which LRU lists: an index into [`LruState::lruvecs`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LruvecId(pub u8);

impl LruvecId {
    /// Index into a table by LRU lists.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Index<LruvecId> for Vec<Lruvec> {
    type Output = Lruvec;

    #[inline]
    fn index(&self, id: LruvecId) -> &Lruvec {
        &self[id.index()]
    }
}

impl IndexMut<LruvecId> for Vec<Lruvec> {
    #[inline]
    fn index_mut(&mut self, id: LruvecId) -> &mut Lruvec {
        &mut self[id.index()]
    }
}

/// Counts of a zone's or node's lists at the moment at which they were last added up.
#[derive(Clone, Debug)]
struct Gathered {
    /// Base pages on each list.
    sizes: [u64; NR_LRU_LISTS],
    activated_refaults: [u64; 2],
}

/// The LRU lists of a zone or of a node.
#[derive(Clone, Debug)]
pub struct Lruvec {
    /// Its node.
    pub node: NodeId,
    /// Its zone, if it is a zone's.
    pub zone: Option<ZoneId>,
    lists: [List; NR_LRU_LISTS],
    /// Base pages on each list, by zone class.
    sizes: [[u64; NR_ZONE_KINDS]; NR_LRU_LISTS],
    /// Pages scanned lately: anonymous, file.
    pub recent_scanned: [u64; 2],
    /// Of those, put back as in use.
    pub recent_rotated: [u64; 2],
    /// What reclaim of each type has cost lately.
    pub cost: [u64; 2],
    /// Counts evictions and activations (`nonresident_age`, `inactive_age`): the clock of refaults.
    pub nonresident_age: u64,
    /// Refaults that were activated so far: anonymous, file.
    pub activated_refaults: [u64; 2],
    /// The same as the last reclaim left it.
    pub refaults_seen: [u64; 2],
    /// Pages scanned since something was reclaimed (`NR_PAGES_SCANNED`): six times what is reclaimable
    /// means hopeless.
    pub pages_scanned: u64,
    /// Sizes counted beside the lists.
    pub stats: LruStats,
    /// What was counted when counts were last added up.
    gathered: Gathered,
    /// Generations, where the policy has them.
    pub generations: Generations,
}

impl Lruvec {
    const fn new(node: NodeId, zone: Option<ZoneId>) -> Self {
        Self {
            node,
            zone,
            lists: [List::EMPTY; NR_LRU_LISTS],
            sizes: [[0; NR_ZONE_KINDS]; NR_LRU_LISTS],
            recent_scanned: [0; 2],
            recent_rotated: [0; 2],
            cost: [0; 2],
            nonresident_age: 0,
            activated_refaults: [0; 2],
            refaults_seen: [0; 2],
            pages_scanned: 0,
            stats: LruStats {
                nr_anon_mapped: 0,
                nr_anon_huge: 0,
                nr_file_mapped: 0,
                nr_page_table: 0,
                nr_isolated: [0; 2],
                nr_writeback: 0,
                nr_dirty: 0,
            },
            gathered: Gathered { sizes: [0; NR_LRU_LISTS], activated_refaults: [0; 2] },
            generations: Generations::NEW,
        }
    }

    /// One list. With generations, only the unevictable one holds pages.
    #[must_use]
    pub const fn list(&self, list: LruList) -> &List {
        &self.lists[list as usize]
    }

    /// Base pages on a list; with generations the two youngest count as active.
    #[must_use]
    pub fn size(&self, list: LruList) -> u64 {
        self.sizes[list as usize].iter().sum()
    }

    /// Base pages on a list that lie in zones of this kind.
    #[must_use]
    pub const fn size_in(&self, list: LruList, zone: ZoneKind) -> u64 {
        self.sizes[list as usize][zone as usize]
    }

    /// Base pages on a list that lie in zones up to `highest_zoneidx`.
    #[must_use]
    pub fn size_up_to(&self, list: LruList, highest_zoneidx: ZoneKind) -> u64 {
        self.sizes[list as usize][..=highest_zoneidx as usize].iter().sum()
    }

    #[inline]
    pub(crate) fn account(&mut self, list: LruList, zone: ZoneKind, pages: i64) {
        let size = &mut self.sizes[list as usize][zone as usize];
        *size = size.checked_add_signed(pages).expect("an LRU size stays positive");
    }
}

/// All LRU lists, and the pages on the way there.
#[derive(Clone, Debug)]
pub struct LruState {
    /// By zone or by node, ascending.
    pub lruvecs: Vec<Lruvec>,
    /// The lists that a zone's pages are on.
    of_zone: Vec<LruvecId>,
    /// Pages to be added, by CPU.
    pub(crate) batches: Vec<Vec<Pfn>>,
    /// Inactive pages to become active, by CPU, each with whom it belonged to: one that was freed meanwhile does not.
    activating: Vec<Vec<(Pfn, u32)>>,
    /// Huge pages of which a part is unmapped, oldest first.
    pub(crate) deferred_split: SplitQueue,
}

impl LruState {
    pub(crate) fn new(machine: &Machine, scope: LruScope) -> Self {
        let mut lruvecs = Vec::new();
        let mut of_zone = Vec::new();
        for (node, spec) in NodeId::all(machine.nr_nodes()).zip(&machine.nodes) {
            for zone in 0..spec.zones.len() {
                if scope == LruScope::Zone || zone == 0 {
                    let id = ZoneId(of_zone.len() as u8);
                    let zone = Some(id).filter(|_| scope == LruScope::Zone);
                    lruvecs.push(Lruvec::new(node, zone));
                }
                of_zone.push(LruvecId(lruvecs.len() as u8 - 1));
            }
        }
        let nr_cpus = machine.cpu_nodes.len();
        Self {
            lruvecs,
            of_zone,
            batches: vec![Vec::new(); nr_cpus],
            activating: vec![Vec::new(); nr_cpus],
            deferred_split: SplitQueue::default(),
        }
    }

    /// The lists that a zone's pages are on.
    #[inline]
    #[must_use]
    pub fn of_zone(&self, zone: ZoneId) -> LruvecId {
        self.of_zone[zone.index()]
    }

    /// Every zone's or node's lists, ascending.
    pub fn ids(&self) -> impl Iterator<Item = LruvecId> + use<> {
        (0..self.lruvecs.len() as u8).map(LruvecId)
    }

    /// Sizes counted beside the lists, of the whole machine.
    #[must_use]
    pub fn total_stats(&self) -> LruStats {
        let mut total = LruStats::default();
        for lruvec in &self.lruvecs {
            let stats = &lruvec.stats;
            total.nr_anon_mapped += stats.nr_anon_mapped;
            total.nr_anon_huge += stats.nr_anon_huge;
            total.nr_file_mapped += stats.nr_file_mapped;
            total.nr_page_table += stats.nr_page_table;
            total.nr_isolated[0] += stats.nr_isolated[0];
            total.nr_isolated[1] += stats.nr_isolated[1];
            total.nr_writeback += stats.nr_writeback;
            total.nr_dirty += stats.nr_dirty;
        }
        total
    }
}

/// Where a page of a batch goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    List(LruList),
    /// A generation, modulo four, of a type.
    Generation(u8, usize),
}

/// Pages taken off a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Isolated {
    /// In the order taken, from the tail.
    pub pages: Vec<Pfn>,
    /// Base pages taken.
    pub nr_taken: u64,
    /// What the scan counts, in [`crate::policy::Lru::scan_unit`], pages passed over included.
    pub nr_scanned: u64,
    /// Base pages passed over, by zone class.
    pub nr_skipped: [u64; NR_ZONE_KINDS],
    /// Of what was taken, what was beside the victims.
    pub lumps: Lumps,
}

impl Memory {
    /// Base pages on a list, of the whole machine.
    #[must_use]
    pub fn nr_lru(&self, list: LruList) -> u64 {
        self.lru.lruvecs.iter().map(|lruvec| lruvec.size(list)).sum()
    }

    /// The LRU lists that a page belongs to.
    #[inline]
    #[must_use]
    pub fn lruvec_of(&self, pfn: Pfn) -> LruvecId {
        self.lru.of_zone(self.zone_of(pfn))
    }

    #[inline]
    pub(crate) fn zone_kind(&self, pfn: Pfn) -> ZoneKind {
        self.zones[self.zone_of(pfn).index()].kind
    }

    #[inline]
    pub(crate) fn nr_pages(&self, pfn: Pfn) -> u64 {
        u64::from(self.frames.order(pfn).pages())
    }

    /// The list that a page's flags name.
    #[inline]
    #[must_use]
    pub fn lru_list(&self, pfn: Pfn) -> LruList {
        if self.frames.has(pfn, PageFlags::UNEVICTABLE) {
            return LruList::Unevictable;
        }
        let file = !self.frames.has(pfn, PageFlags::ANON);
        LruList::of(file, self.frames.has(pfn, PageFlags::ACTIVE))
    }

    #[inline]
    fn has_generations(&self, pfn: Pfn) -> bool {
        self.policy.lru.kind == LruKind::MultiGenerational
            && !self.frames.has(pfn, PageFlags::UNEVICTABLE)
    }

    /// Puts a page on the list that its flags name.
    pub(crate) fn add_page_to_lru(&mut self, pfn: Pfn, end: End) {
        debug_assert!(!self.frames.has(pfn, PageFlags::LRU), "{pfn} is on a list already");
        self.frames.set_flags(pfn, PageFlags::LRU);
        self.note_lru_op(pfn);
        if self.has_generations(pfn) {
            self.lru_gen_add(pfn, end);
            return;
        }
        let list = self.lru_list(pfn);
        let (zone, pages) = (self.zone_kind(pfn), self.nr_pages(pfn));
        let lruvec = self.lruvec_of(pfn);
        let lruvec = &mut self.lru.lruvecs[lruvec];
        self.frames.push(&mut lruvec.lists[list as usize], pfn, end);
        lruvec.account(list, zone, pages as i64);
    }

    /// Takes a page off its list; its flags stay.
    pub(crate) fn del_page_from_lru(&mut self, pfn: Pfn) {
        debug_assert!(self.frames.has(pfn, PageFlags::LRU), "{pfn} is on no list");
        self.frames.clear_flags(pfn, PageFlags::LRU);
        self.note_lru_op(pfn);
        if self.has_generations(pfn) {
            self.lru_gen_del(pfn);
            return;
        }
        let list = self.lru_list(pfn);
        let (zone, pages) = (self.zone_kind(pfn), self.nr_pages(pfn));
        let lruvec = self.lruvec_of(pfn);
        let lruvec = &mut self.lru.lruvecs[lruvec];
        self.frames.unlink(&mut lruvec.lists[list as usize], pfn);
        lruvec.account(list, zone, -(pages as i64));
    }

    /// Hands a page to a CPU's batch, which goes to the lists once it is full.
    #[inline]
    pub fn lru_cache_add(&mut self, pfn: Pfn, cpu: CpuId) {
        let lru = self.policy.lru;
        self.frames.set_flags(pfn, PageFlags::BATCHED);
        if !lru.batch_flushes_when_full
            && self.lru.batches[cpu.index()].len() >= usize::from(lru.batch_pages)
        {
            self.add_batch(cpu);
        }
        let batch = &mut self.lru.batches[cpu.index()];
        batch.push(pfn);
        let is_full = batch.len() >= usize::from(lru.batch_pages);
        let is_huge = lru.batch_flushes_for_huge && self.frames.order(pfn) > Order(0);
        if lru.batch_flushes_when_full && is_full || is_huge {
            self.add_batch(cpu);
        }
    }

    /// Empties a CPU's batches: puts its new pages on the lists, those in use on the active ones.
    pub fn lru_add_drain(&mut self, cpu: CpuId) {
        self.add_batch(cpu);
        self.activate_batch(cpu);
    }

    /// Puts a CPU's batch on the lists. A page that was unmapped meanwhile is freed.
    #[doc(alias = "__pagevec_lru_add")]
    fn add_batch(&mut self, cpu: CpuId) {
        let mut batch = core::mem::take(&mut self.lru.batches[cpu.index()]);
        let mut any_abandoned = false;
        // Pages of one kind follow each other: their sizes are noted together.
        let mut run: Option<(LruvecId, ZoneKind, Target, i64)> = None;
        for &pfn in &batch {
            let id = self.zone_of(pfn);
            let (lruvec, zone) = (self.lru.of_zone(id), self.zones[id.index()].kind);
            let pages = self.nr_pages(pfn) as i64;
            let target = self.link_fresh(pfn, lruvec, zone);
            match &mut run {
                Some((of, kind, to, nr)) if (*of, *kind, *to) == (lruvec, zone, target) => {
                    *nr += pages;
                }
                _ => {
                    self.note_run(run);
                    run = Some((lruvec, zone, target, pages));
                }
            }
            any_abandoned |= self.frames.owner(pfn) == NOBODY;
        }
        self.note_run(run);
        // Each was filled or unmapped a moment ago.
        self.work.near_lru_ops += batch.len() as u64;
        if any_abandoned {
            for &pfn in &batch {
                if self.is_abandoned(pfn) {
                    self.del_page_from_lru(pfn);
                    self.free_page(pfn, cpu);
                }
            }
        }
        batch.clear();
        self.lru.batches[cpu.index()] = batch;
    }

    /// Puts a page of a batch at the head of its list, whose size is still to be noted.
    #[inline]
    fn link_fresh(&mut self, pfn: Pfn, lruvec: LruvecId, zone: ZoneKind) -> Target {
        let active = self.frames.has(pfn, PageFlags::ACTIVE);
        let file = !self.frames.has(pfn, PageFlags::ANON);
        let target = if self.has_generations(pfn) {
            let generation = self.generation_for(pfn, lruvec, End::Head);
            self.frames.set_home_generation(pfn, generation);
            let generations = &mut self.lru.lruvecs[lruvec].generations;
            let list = generations.list_mut(generation, usize::from(file), zone);
            self.frames.push(list, pfn, End::Head);
            self.frames.set_generation(pfn, Some(generation));
            Target::Generation(generation, usize::from(file))
        } else {
            let list = self.lru_list(pfn);
            let lists = &mut self.lru.lruvecs[lruvec].lists[list as usize];
            self.frames.push(lists, pfn, End::Head);
            Target::List(list)
        };
        self.frames.turn_listed(pfn);
        if self.policy.lru.balance.is_by_rotation() {
            // A page that comes in counts as scanned, an active one as put back (`__pagevec_lru_add_fn`).
            let lists = &mut self.lru.lruvecs[lruvec];
            lists.recent_scanned[usize::from(file)] += 1;
            lists.recent_rotated[usize::from(file)] += u64::from(active);
        }
        target
    }

    fn note_run(&mut self, run: Option<(LruvecId, ZoneKind, Target, i64)>) {
        let Some((lruvec, zone, target, pages)) = run else { return };
        let lists = &mut self.lru.lruvecs[lruvec];
        match target {
            Target::List(list) => lists.account(list, zone, pages),
            Target::Generation(generation, file) => {
                lists.account_generation(generation, file, zone, pages);
            }
        }
    }

    /// Puts every CPU's batch on the lists.
    pub fn lru_add_drain_all(&mut self) {
        for cpu in CpuId::all(self.lru.batches.len()) {
            self.lru_add_drain(cpu);
        }
    }

    /// Makes a page on an inactive list active (`activate_page`).
    pub fn activate_page(&mut self, pfn: Pfn) {
        if self.frames.has(pfn, PageFlags::ACTIVE | PageFlags::UNEVICTABLE) {
            return;
        }
        if !self.frames.has(pfn, PageFlags::LRU) {
            // Still in a batch: it will go to the right list.
            self.frames.set_flags(pfn, PageFlags::ACTIVE);
            return;
        }
        let pages = self.nr_pages(pfn);
        self.del_page_from_lru(pfn);
        self.frames.set_flags(pfn, PageFlags::ACTIVE);
        self.add_page_to_lru(pfn, End::Head);
        self.vm.add_in(Vm::PgActivate, ZoneKind::Dma, pages);
        let lruvec = self.lruvec_of(pfn);
        if self.policy.lru.balance.is_by_rotation() {
            let file = usize::from(!self.frames.has(pfn, PageFlags::ANON));
            self.lru.lruvecs[lruvec].recent_scanned[file] += 1;
            self.lru.lruvecs[lruvec].recent_rotated[file] += 1;
        }
    }

    /// Makes the inactive pages that a CPU has gathered active.
    #[doc(alias = "activate_page_drain")]
    fn activate_batch(&mut self, cpu: CpuId) {
        for (pfn, owner) in core::mem::take(&mut self.lru.activating[cpu.index()]) {
            if self.frames.state(pfn) == State::Allocated
                && self.frames.has(pfn, PageFlags::LRU)
                && self.frames.owner(pfn) == owner
            {
                self.activate_page(pfn);
            }
        }
    }

    /// Gathers an inactive page that is in use, to be made active with others.
    fn activate_later(&mut self, pfn: Pfn, cpu: CpuId) {
        let owner = self.frames.owner(pfn);
        let gathered = &mut self.lru.activating[cpu.index()];
        gathered.push((pfn, owner));
        if gathered.len() >= usize::from(self.policy.lru.batch_pages) {
            self.activate_batch(cpu);
        }
    }

    /// Whether a CPU's batch holds a page that is to become active, so that it can be neither written nor freed by
    /// reclaim (`is_page_cache_freeable`).
    pub(crate) fn is_being_activated(&self, pfn: Pfn) -> bool {
        self.lru.activating.iter().flatten().any(|&(held, _)| held == pfn)
    }

    /// Notes a use through a system call: the first marks the page, the second makes it active
    /// (`mark_page_accessed`).
    pub fn mark_page_accessed(&mut self, pfn: Pfn, cpu: CpuId) {
        if !self.frames.has(pfn, PageFlags::REFERENCED) {
            self.frames.set_flags(pfn, PageFlags::REFERENCED);
            return;
        }
        if self.frames.has(pfn, PageFlags::UNEVICTABLE) {
            return;
        }
        if !self.frames.has(pfn, PageFlags::ACTIVE) && self.policy.lru.kind == LruKind::Classic {
            match self.policy.lru.activation {
                Activation::AtOnce => self.activate_page(pfn),
                Activation::Batched if self.frames.has(pfn, PageFlags::LRU) => {
                    self.activate_later(pfn, cpu);
                }
                Activation::Batched => return,
            }
            self.frames.clear_flags(pfn, PageFlags::REFERENCED);
            self.workingset_activation(pfn);
        } else if self.policy.lru.kind == LruKind::MultiGenerational {
            self.frames.set_flags(pfn, PageFlags::WORKINGSET);
        }
    }

    /// Moves a page that has been written to the tail of its inactive list, to be freed next
    /// (`folio_rotate_reclaimable`).
    pub(crate) fn rotate_reclaimable_page(&mut self, pfn: Pfn) {
        let mut stays = PageFlags::UNEVICTABLE | PageFlags::DIRTY | PageFlags::LOCKED;
        if self.policy.reclaim.busy_pages == BusyPages::Keep {
            stays |= PageFlags::ACTIVE;
        }
        if !self.frames.has(pfn, PageFlags::LRU) || self.frames.has(pfn, stays) {
            return;
        }
        self.del_page_from_lru(pfn);
        self.frames.clear_flags(pfn, PageFlags::ACTIVE);
        self.add_page_to_lru(pfn, End::Tail);
        let pages = self.nr_pages(pfn);
        self.vm.add(Vm::PgRotated, pages);
    }

    /// Adds up the counts of all lists that the balance between types, and refaults, go by.
    #[doc(alias = "flush_memcg_stats_dwork")]
    pub fn gather_list_stats(&mut self) {
        for lists in &mut self.lru.lruvecs {
            lists.gathered = Gathered {
                sizes: lists.sizes.map(|of_zones| of_zones.iter().sum()),
                activated_refaults: lists.activated_refaults,
            };
        }
    }

    /// Base pages on a list, as far as is known.
    #[doc(alias = "lruvec_page_state")]
    pub(crate) fn known_size(&self, lruvec: LruvecId, list: LruList) -> u64 {
        let lists = &self.lru.lruvecs[lruvec];
        match self.policy.lru.stats {
            ListStats::Exact => lists.size(list),
            ListStats::Periodic => lists.gathered.sizes[list as usize],
        }
    }

    /// Refaults that were activated so far, as far as is known: anonymous, file.
    pub(crate) fn known_refaults(&self, lruvec: LruvecId) -> [u64; 2] {
        let lists = &self.lru.lruvecs[lruvec];
        match self.policy.lru.stats {
            ListStats::Exact => lists.activated_refaults,
            ListStats::Periodic => lists.gathered.activated_refaults,
        }
    }

    /// Whether there are too few inactive pages of a type.
    #[must_use]
    pub fn inactive_is_low(&self, lruvec: LruvecId, file: bool) -> bool {
        let inactive = self.known_size(lruvec, LruList::of(file, false));
        let active = self.known_size(lruvec, LruList::of(file, true));
        let ratio = match self.policy.lru.inactive_ratio {
            InactiveRatio::ListSize => inactive_ratio(inactive + active),
            InactiveRatio::ZoneSize if file => 1,
            InactiveRatio::ZoneSize => {
                let zones = self.zones.iter().enumerate();
                let own = zones.filter(|(z, _)| self.lru.of_zone(ZoneId(*z as u8)) == lruvec);
                inactive_ratio(own.map(|(_, zone)| zone.managed_pages).sum())
            }
        };
        inactive * ratio < active
    }

    /// Takes up to `nr_to_scan` pages from the tail of a list, and with each page those of the block around it,
    /// where that is wanted. Those of zones above `highest_zoneidx` are passed over and put at the head.
    #[doc(alias = "isolate_lru_folios")]
    #[doc(alias = "isolate_lru_pages")]
    pub(crate) fn isolate_lru_blocks(
        &mut self,
        lruvec: LruvecId,
        list: LruList,
        nr_to_scan: u64,
        highest_zoneidx: ZoneKind,
        around: Option<Around>,
    ) -> Isolated {
        let most = nr_to_scan.min(SWAP_CLUSTER_MAX) as usize;
        let mut found = Isolated { pages: Vec::with_capacity(most), ..Isolated::default() };
        let mut skipped = Vec::new();
        let mut scan = 0;
        let is_bounded = self.policy.lru.scan_unit != ScanUnit::EntryUnbounded;
        while scan < nr_to_scan && !(is_bounded && found.nr_taken >= nr_to_scan) {
            let Some(pfn) = self.lru.lruvecs[lruvec].list(list).tail() else { break };
            let (zone, pages) = (self.zone_kind(pfn), self.nr_pages(pfn));
            let counts = if self.policy.lru.scan_unit == ScanUnit::Page { pages } else { 1 };
            self.del_page_from_lru(pfn);
            self.work.pfns_scanned += 1;
            found.nr_scanned += counts;
            if zone > highest_zoneidx {
                found.nr_skipped[zone as usize] += pages;
                skipped.push(pfn);
                continue;
            }
            scan += counts;
            self.account_isolated(pfn, 1);
            found.nr_taken += pages;
            found.pages.push(pfn);
            if let Some(around) = around {
                let before = found.nr_scanned;
                self.isolate_block_around(pfn, list, around, &mut found);
                scan += found.nr_scanned - before;
            }
        }
        for pfn in skipped {
            self.add_page_to_lru(pfn, End::Head);
        }
        for zone in ZoneKind::ALL {
            self.vm.add_in(Vm::PgScanSkip, zone, found.nr_skipped[zone as usize]);
        }
        found
    }

    /// Takes one page off its list for private use; whether it was on one.
    pub fn isolate_lru_page(&mut self, pfn: Pfn) -> bool {
        if !self.frames.has(pfn, PageFlags::LRU) {
            return false;
        }
        self.del_page_from_lru(pfn);
        self.account_isolated(pfn, 1);
        true
    }

    /// Puts an isolated page back at the head of the list that its flags name.
    #[doc(alias = "move_folios_to_lru")]
    pub fn putback_lru_page(&mut self, pfn: Pfn) {
        self.account_isolated(pfn, -1);
        self.add_page_to_lru(pfn, End::Head);
    }

    /// Counts a page in (1) or out (-1) of those isolated.
    pub(crate) fn account_isolated(&mut self, pfn: Pfn, sign: i64) {
        let pages = sign * self.nr_pages(pfn) as i64;
        let file = usize::from(!self.frames.has(pfn, PageFlags::ANON));
        let lruvec = self.lruvec_of(pfn);
        let isolated = &mut self.lru.lruvecs[lruvec].stats.nr_isolated[file];
        *isolated = isolated.checked_add_signed(pages).expect("isolated pages are put back once");
    }
}

/// Active pages for each inactive one, for lists or a zone of `pages` pages: the square root of ten
/// times the GiB, 1 below one GiB.
#[must_use]
pub const fn inactive_ratio(pages: u64) -> u64 {
    let gib = pages >> 18;
    if gib == 0 { 1 } else { (10 * gib).isqrt() }
}
