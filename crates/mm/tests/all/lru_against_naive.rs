//! The active and inactive lists stand in the same order as in a model of obvious code, after every
//! random step.

use crate::scene::{all_free, linux_4_4, linux_4_20, linux_6_1, single_zone};
use crate::user::User;
use highorder_mm::CpuId;
use highorder_mm::lru::{LruList, LruvecId};
use highorder_mm::page_table::Vpn;
use highorder_mm::policy::{AnonEntry, BusyPages, Policy};
use highorder_mm::reclaim::{Reclaimer, ScanControl};
use highorder_mm::types::{Access, MemPolicy};
use rand_core::Rng;
use rand_pcg::Pcg64;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const PAGES: u32 = 300;

/// A page in memory.
#[derive(Clone, Debug, Default)]
struct Page {
    mapped: bool,
    writable: bool,
    accessed: bool,
    entry_dirty: bool,
    dirty: bool,
    marked: bool,
    active: bool,
    has_slot: bool,
    writeback: bool,
    reclaim: bool,
}

/// One node's anonymous pages, by virtual page; lists have their head first.
#[derive(Default)]
struct NaiveLru {
    batch_size: usize,
    flushes_when_full: bool,
    begins_active: bool,
    /// What comes back from swap becomes active.
    swapins_activate: bool,
    busy_is_active: bool,
    pages: BTreeMap<u32, Page>,
    batch: Vec<u32>,
    active: Vec<u32>,
    inactive: Vec<u32>,
    swapped: BTreeSet<u32>,
    shadows: BTreeMap<u32, u64>,
    clock: u64,
    writes: VecDeque<u32>,
}

impl NaiveLru {
    fn new(policy: &Policy) -> Self {
        Self {
            batch_size: usize::from(policy.lru.batch_pages),
            flushes_when_full: policy.lru.batch_flushes_when_full,
            begins_active: policy.lru.anon == AnonEntry::Active,
            swapins_activate: policy.lru.swapins_activate,
            busy_is_active: policy.reclaim.busy_pages == BusyPages::Activate,
            ..Self::default()
        }
    }

    fn put(&mut self, vpn: u32, at_head: bool) {
        let list = if self.pages[&vpn].active { &mut self.active } else { &mut self.inactive };
        let at = if at_head { 0 } else { list.len() };
        list.insert(at, vpn);
    }

    fn take(&mut self, vpn: u32) -> bool {
        let before = self.active.len() + self.inactive.len();
        self.active.retain(|&v| v != vpn);
        self.inactive.retain(|&v| v != vpn);
        self.active.len() + self.inactive.len() < before
    }

    fn drain(&mut self) {
        for vpn in std::mem::take(&mut self.batch) {
            self.put(vpn, true);
        }
    }

    fn add(&mut self, vpn: u32) {
        if !self.flushes_when_full && self.batch.len() == self.batch_size {
            self.drain();
        }
        self.batch.push(vpn);
        if self.flushes_when_full && self.batch.len() == self.batch_size {
            self.drain();
        }
    }

    fn free_slot(&mut self, vpn: u32) {
        let page = self.pages.get_mut(&vpn).unwrap();
        if page.has_slot && !page.writeback {
            page.has_slot = false;
            page.dirty = true;
        }
    }

    fn touch(&mut self, vpn: u32, write: bool) {
        if !self.pages.contains_key(&vpn) {
            let mut page = Page::default();
            if self.swapped.contains(&vpn) {
                page.has_slot = true;
                if let Some(shadow) = self.shadows.remove(&vpn)
                    && self.clock - shadow <= self.active.len() as u64
                {
                    page.active = true;
                    self.clock += 1;
                }
            } else if write {
                page.active = self.begins_active;
                page.mapped = true;
                page.writable = true;
            } else {
                return;
            }
            self.pages.insert(vpn, page);
            self.add(vpn);
        }
        if self.swapped.remove(&vpn) {
            if write {
                self.free_slot(vpn);
            }
            let page = self.pages.get_mut(&vpn).unwrap();
            page.mapped = true;
            page.writable = write;
            if self.swapins_activate && !page.active {
                let listed = !self.batch.contains(&vpn);
                if listed {
                    self.take(vpn);
                }
                self.pages.get_mut(&vpn).unwrap().active = true;
                if listed {
                    self.put(vpn, true);
                }
            }
        }
        if write && !self.pages[&vpn].writable {
            self.free_slot(vpn);
            self.pages.get_mut(&vpn).unwrap().writable = true;
        }
        let page = self.pages.get_mut(&vpn).unwrap();
        page.accessed = true;
        page.entry_dirty |= write;
    }

    fn shrink_inactive(&mut self, nr: usize) {
        self.drain();
        let from = self.inactive.len().saturating_sub(nr);
        let taken: Vec<u32> = self.inactive.split_off(from).into_iter().rev().collect();
        let mut kept = Vec::new();
        for vpn in taken {
            let begins_active = self.begins_active;
            let page = self.pages.get_mut(&vpn).unwrap();
            if page.writeback {
                page.reclaim = true;
                page.active |= self.busy_is_active;
                kept.push(vpn);
                continue;
            }
            let accessed = page.mapped && std::mem::take(&mut page.accessed);
            let marked = std::mem::take(&mut page.marked);
            if accessed {
                if begins_active {
                    page.active = true;
                } else {
                    page.active = marked;
                    page.marked = true;
                }
                kept.push(vpn);
                continue;
            }
            if !page.has_slot {
                page.has_slot = true;
                page.dirty = true;
            }
            if std::mem::take(&mut page.mapped) {
                page.dirty |= std::mem::take(&mut page.entry_dirty);
                self.swapped.insert(vpn);
            }
            if page.dirty {
                page.dirty = false;
                page.writeback = true;
                page.reclaim = true;
                self.writes.push_back(vpn);
                kept.push(vpn);
            } else {
                self.pages.remove(&vpn);
                if !begins_active {
                    self.shadows.insert(vpn, self.clock);
                    self.clock += 1;
                }
            }
        }
        for vpn in kept {
            self.put(vpn, true);
        }
    }

    fn shrink_active(&mut self, nr: usize) {
        self.drain();
        let from = self.active.len().saturating_sub(nr);
        let taken: Vec<u32> = self.active.split_off(from).into_iter().rev().collect();
        for vpn in taken {
            let page = self.pages.get_mut(&vpn).unwrap();
            if page.mapped {
                page.accessed = false;
            }
            page.active = false;
            self.put(vpn, true);
        }
    }

    fn end_write(&mut self) {
        let Some(vpn) = self.writes.pop_front() else { return };
        let page = self.pages.get_mut(&vpn).unwrap();
        page.writeback = false;
        let stays = page.dirty || page.active && !self.busy_is_active;
        if std::mem::take(&mut page.reclaim) && !stays {
            self.take(vpn);
            self.pages.get_mut(&vpn).unwrap().active = false;
            self.put(vpn, false);
        }
    }
}

fn order(user: &User, list: LruList) -> Vec<u32> {
    let memory = &user.memory;
    let list = memory.lru.lruvecs[0].list(list);
    memory.frames().iter(list).map(|pfn| memory.vpn_of(pfn).unwrap().0).collect()
}

#[test]
fn lists_stand_in_the_order_of_the_naive_model() {
    let kernels = [("6.1", linux_6_1()), ("4.20", linux_4_20()), ("4.4", linux_4_4())];
    for (name, mut policy) in kernels {
        policy.swap.page_cluster = 0;
        for seed in 0..20 {
            let mut rng = Pcg64::new(seed, 0x6c72);
            let mut user = User::new(all_free(&single_zone(2_048), &policy));
            user.memory.swapon(8_192, 0, seed % 2 == 0);
            let mut naive = NaiveLru::new(&policy);
            user.mmap(0, PAGES, MemPolicy::Default);
            let sc = ScanControl::new(Reclaimer::Kswapd, CpuId(0), 60);
            for step in 0..4_000 {
                let r = rng.next_u32();
                let nr = 1 + u64::from(r >> 8 & 31);
                match r % 16 {
                    0..10 => {
                        let vpn = (r >> 16) % PAGES;
                        // Half of all touches go to a few pages.
                        let vpn = if r & 0x20 == 0 { vpn % 40 } else { vpn };
                        let write = r & 0x40 == 0;
                        let access = if write { Access::Write } else { Access::Read };
                        assert!(user.touch(Vpn(vpn), access, CpuId(0)));
                        naive.touch(vpn, write);
                    }
                    10..12 => {
                        let list = LruList::InactiveAnon;
                        let shrunk = user.shrink_inactive_list(LruvecId(0), list, nr, &sc);
                        user.begin(shrunk.writes);
                        naive.shrink_inactive(nr as usize);
                    }
                    12 => {
                        user.memory.shrink_active_list(LruvecId(0), LruList::ActiveAnon, nr, &sc);
                        naive.shrink_active(nr as usize);
                    }
                    13..15 => {
                        for _ in 0..nr {
                            user.complete_writes(1);
                            naive.end_write();
                        }
                    }
                    _ => {
                        user.memory.lru_add_drain(CpuId(0));
                        naive.drain();
                    }
                }
                let place = format!("{name}, seed {seed}, step {step}");
                assert_eq!(order(&user, LruList::ActiveAnon), naive.active, "{place}");
                assert_eq!(order(&user, LruList::InactiveAnon), naive.inactive, "{place}");
                if step % 500 == 0 {
                    user.audit().unwrap_or_else(|e| panic!("{place}: {e}"));
                }
            }
            assert!(naive.clock > 100 || naive.begins_active, "{name}: few evictions");
        }
    }
}
