//! Giving restored frames back to tasks and files, and to the LRU lists they were on.
//!
//! Models: nothing that a kernel does; it makes the state that one would be in.
//! Departs: a snapshot does not say who maps a page, so that one task may have them all. Visible as: what one
//! process maps there lies apart in address spaces, here together.

use crate::anon::HUGE_ORDER;
use crate::filemap::FileId;
use crate::frame::{End, PageFlags, State};
use crate::kernel_use::KernelUse;
use crate::lru::LruvecId;
use crate::memory::Memory;
use crate::page_table::{PTRS_PER_TABLE, Pmd, Pte, Vpn};
use crate::policy::LruKind;
use crate::types::{MemPolicy, Order, Pfn};
use crate::vma::ProcessId;
use crate::zone::ZoneId;
use std_alloc::vec::Vec;

/// Where on the LRU lists a page was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listed {
    /// On an active or inactive list.
    Classic {
        /// Which of the two.
        active: bool,
    },
    /// On the list of a generation.
    Generation {
        /// The generation's number.
        seq: u64,
    },
    /// Locked into memory.
    Unevictable,
}

impl Memory {
    /// Maps restored pages into memory of `task`, one behind the other: huge ones first, each at the place of one.
    /// Page tables are taken from `tables`, restored blocks of the kernel's; where they run out, base pages have a
    /// table that takes no frame, and huge ones stay without an owner.
    ///
    /// Returns where each page is now, in the order given; `None` for those without an owner.
    ///
    /// # Panics
    /// If one of the pages is not a restored one of this order, or of another order than a base or a huge page's.
    pub fn adopt_anon(
        &mut self,
        task: ProcessId,
        pages: &[(Pfn, Order)],
        tables: &[Pfn],
    ) -> Vec<Option<Vpn>> {
        let nr_huge = pages.iter().filter(|&&(_, order)| order == HUGE_ORDER).count();
        let nr_huge = nr_huge.min(tables.len()) as u32;
        let nr_base = pages.iter().filter(|&&(_, order)| order == Order(0)).count() as u32;
        let size = nr_huge * PTRS_PER_TABLE + nr_base;
        if size == 0 {
            return std_alloc::vec![None; pages.len()];
        }
        let start = self.spaces.mmap(task, size, MemPolicy::Default);
        let mut tables = tables.iter().copied();
        let (mut huge_left, mut next_huge) = (nr_huge, start.0);
        let mut next_base = start.0 + nr_huge * PTRS_PER_TABLE;
        let mut places = Vec::with_capacity(pages.len());
        for &(pfn, order) in pages {
            self.check_restored(pfn, order);
            let place = match order {
                HUGE_ORDER if huge_left > 0 => {
                    let vpn = Vpn(next_huge);
                    (huge_left, next_huge) = (huge_left - 1, next_huge + PTRS_PER_TABLE);
                    self.adopt_huge(task, vpn, pfn, tables.next());
                    Some(vpn)
                }
                HUGE_ORDER => None,
                Order(0) => {
                    let vpn = Vpn(next_base);
                    next_base += 1;
                    self.adopt_base(task, vpn, pfn, &mut tables);
                    Some(vpn)
                }
                _ => panic!("{pfn} is of {order}, no base or huge page"),
            };
            places.push(place);
        }
        places
    }

    fn check_restored(&self, pfn: Pfn, order: Order) {
        let is_restored =
            self.frames.state(pfn) == State::Allocated && self.frames.order(pfn) == order;
        assert!(is_restored, "{pfn} was not restored as a page of {order}");
    }

    fn adopt_table(&mut self, task: ProcessId, vpn: Vpn, table: Option<Pfn>) {
        let Some(table) = table else { return };
        self.spaces.table.units[vpn.unit()].table = Some(table);
        self.set_kernel_use(table, KernelUse::PageTable);
        let lruvec = self.lruvec_of(table);
        self.lru.lruvecs[lruvec].stats.nr_page_table += 1;
        self.spaces.task_mut(task).tables += 1;
    }

    fn adopt_huge(&mut self, task: ProcessId, vpn: Vpn, pfn: Pfn, table: Option<Pfn>) {
        self.adopt_table(task, vpn, table);
        let pte = Pte::page(pfn, Pte::WRITE | Pte::DIRTY);
        self.spaces.table.units[vpn.unit()].pmd = Pmd::Huge(pte);
        self.frames.adopt(pfn, vpn.0, PageFlags::ANON);
        let lruvec = self.lruvec_of(pfn);
        self.lru.lruvecs[lruvec].stats.nr_anon_huge += 1;
        self.account_mapped(pfn, task, i64::from(HUGE_ORDER.pages()));
    }

    fn adopt_base(
        &mut self,
        task: ProcessId,
        vpn: Vpn,
        pfn: Pfn,
        tables: &mut impl Iterator<Item = Pfn>,
    ) {
        if self.spaces.table.pmd(vpn) == Pmd::None {
            self.spaces.table.units[vpn.unit()].pmd = Pmd::Table;
            let table = tables.next();
            self.adopt_table(task, vpn, table);
        }
        self.spaces.table.set_pte(vpn, Pte::page(pfn, Pte::WRITE | Pte::DIRTY));
        self.frames.adopt(pfn, vpn.0, PageFlags::ANON);
        self.account_mapped(pfn, task, 1);
    }

    /// Makes a restored base page page `index` of a file: clean, and mapped by nobody.
    ///
    /// # Panics
    /// If it is not a restored base page, or the file has another one there.
    pub fn adopt_cached(&mut self, file: FileId, index: u64, pfn: Pfn) {
        self.check_restored(pfn, Order(0));
        let (owner, _) = self.files.insert(file, index, pfn);
        self.frames.set_owner(pfn, owner);
    }

    /// Sets which generations the LRU lists of a zone's node have: the youngest, and the oldest of anonymous pages and
    /// of files. Nothing where the policy has none, or the numbers cannot be.
    pub fn adopt_generations(&mut self, zone: ZoneId, max_seq: u64, min_seq: [u64; 2]) {
        let possible = min_seq.iter().all(|&min| min < max_seq && max_seq - min < 4);
        if self.policy.lru.kind == LruKind::MultiGenerational && possible {
            let lruvec = self.lru.of_zone(zone);
            let generations = &mut self.lru.lruvecs[lruvec].generations;
            (generations.max_seq, generations.min_seq) = (max_seq, min_seq);
        }
    }

    /// Puts an adopted page behind the others on the LRU list where it was found. Where the policy has lists of the
    /// other kind, an active page is of the youngest generation, and the two youngest generations are active.
    ///
    /// # Panics
    /// If the page belongs to nobody, or is on a list already.
    pub fn adopt_listed(&mut self, pfn: Pfn, listed: Listed) {
        let is_file = self.file_page_at(pfn).is_some();
        assert!(is_file || self.frames.has(pfn, PageFlags::ANON), "{pfn} belongs to nobody");
        if listed == Listed::Unevictable {
            self.frames.set_flags(pfn, PageFlags::UNEVICTABLE);
            return self.add_page_to_lru(pfn, End::Tail);
        }
        let lruvec = self.lruvec_of(pfn);
        if self.policy.lru.kind == LruKind::MultiGenerational {
            let generation = self.generation_to_adopt(lruvec, usize::from(is_file), listed);
            self.frames.set_flags(pfn, PageFlags::LRU);
            return self.enter_generation(pfn, generation, End::Tail);
        }
        let is_active = match listed {
            Listed::Classic { active } => active,
            Listed::Generation { seq } => seq + 1 >= self.lru.lruvecs[lruvec].generations.max_seq,
            Listed::Unevictable => false,
        };
        if is_active {
            self.frames.set_flags(pfn, PageFlags::ACTIVE);
        }
        self.add_page_to_lru(pfn, End::Tail);
    }

    /// The generation, as the lists' index, of a page that was found there.
    fn generation_to_adopt(&self, lruvec: LruvecId, file: usize, listed: Listed) -> u8 {
        let generations = &self.lru.lruvecs[lruvec].generations;
        let (min, max) = (generations.min_seq[file], generations.max_seq);
        let seq = match listed {
            Listed::Generation { seq } => seq.clamp(min, max),
            Listed::Classic { active: true } => max,
            Listed::Classic { active: false } | Listed::Unevictable => min,
        };
        crate::mglru::Generations::slot(seq)
    }

    /// Whether a page has an owner and is on no list yet.
    #[must_use]
    pub fn is_adopted_unlisted(&self, pfn: Pfn) -> bool {
        let is_owned = self.frames.has(pfn, PageFlags::ANON) || self.file_page_at(pfn).is_some();
        is_owned && !self.frames.has(pfn, PageFlags::LRU)
    }
}
