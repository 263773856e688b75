//! Shadows: what is remembered of an evicted page, and what it says when the page comes back.
//!
//! Models: mm/workingset.c, v6.12, v6.1 and v4.4.
//! Departs: shadows are as wide as they need to be and never dropped while the slot is in use. Visible
//! as: on machines above some TiB refault distances are exact, where the kernel's are rounded.

use crate::frame::PageFlags;
use crate::lru::{LruList, LruvecId};
use crate::memory::Memory;
use crate::policy::{AnonEntry, Balance, LruKind};
use crate::types::Pfn;
use crate::vmstat::Vm;

// A shadow: the age at eviction above, then the lists it was evicted from, then two bits that generations
// use for tiers, then whether the page was in use.
const LISTS_SHIFT: u32 = 3;
const AGE_SHIFT: u32 = 11;
const AGE_MASK: u64 = (1 << (62 - AGE_SHIFT)) - 1;

impl Memory {
    /// What to note of a page that is evicted; the clock of refaults goes on.
    pub(crate) fn workingset_eviction(&mut self, pfn: Pfn) -> u64 {
        if self.policy.lru.kind == LruKind::MultiGenerational {
            return self.lru_gen_eviction(pfn);
        }
        let lruvec = self.lruvec_of(pfn);
        let age = self.lru.lruvecs[lruvec].nonresident_age;
        let in_use = self.frames.has(pfn, PageFlags::WORKINGSET);
        self.age_nonresident(pfn);
        pack_shadow(age, lruvec, 0, in_use)
    }

    /// A page became active: one more that those evicted have to compete with.
    pub(crate) fn workingset_activation(&mut self, pfn: Pfn) {
        self.age_nonresident(pfn);
    }

    fn age_nonresident(&mut self, pfn: Pfn) {
        let lruvec = self.lruvec_of(pfn);
        self.lru.lruvecs[lruvec].nonresident_age += self.nr_pages(pfn);
    }

    /// A page comes back: if fewer pages were evicted or activated meanwhile than could have made room
    /// for it, it is active at once.
    pub(crate) fn workingset_refault(&mut self, pfn: Pfn, shadow: u64) {
        if self.policy.lru.kind == LruKind::MultiGenerational {
            self.lru_gen_refault(pfn, shadow);
            return;
        }
        let Shadow { age, lruvec, in_use, .. } = unpack_shadow(shadow);
        let file = !self.frames.has(pfn, PageFlags::ANON);
        let pages = self.nr_pages(pfn);
        let [refault, activate, restore] = workingset_events(file);
        self.vm.add(refault, pages);
        let lists = &self.lru.lruvecs[lruvec];
        let distance = lists.nonresident_age.wrapping_sub(age) & AGE_MASK;
        let known = |list| self.known_size(lruvec, list);
        let mut size = known(LruList::ActiveFile);
        if self.policy.lru.anon == AnonEntry::Inactive {
            if !file {
                size += known(LruList::InactiveFile);
            }
            if self.swap.nr_free() > 0 {
                size += known(LruList::ActiveAnon);
                if file {
                    size += known(LruList::InactiveAnon);
                }
            }
        }
        if distance > size {
            return;
        }
        self.frames.set_flags(pfn, PageFlags::ACTIVE);
        let lruvec = self.lruvec_of(pfn);
        self.lru.lruvecs[lruvec].nonresident_age += pages;
        self.lru.lruvecs[lruvec].activated_refaults[usize::from(file)] += pages;
        self.vm.add(activate, pages);
        if in_use {
            self.frames.set_flags(pfn, PageFlags::WORKINGSET);
            self.note_lru_cost(lruvec, file, pages, 0);
            self.vm.add(restore, pages);
        }
    }

    /// Notes what reclaim of a type has cost: pages written or read back, and pages looked at in vain.
    /// The notes fade once they exceed a quarter of the lists.
    pub(crate) fn note_lru_cost(
        &mut self,
        lruvec: LruvecId,
        file: bool,
        nr_io: u64,
        nr_rotated: u64,
    ) {
        let cost = match self.policy.lru.balance {
            Balance::RotatedAlways | Balance::Rotated => return,
            Balance::Written => nr_io,
            Balance::WrittenAndRotated => nr_io * crate::reclaim::SWAP_CLUSTER_MAX + nr_rotated,
        };
        let size: u64 = LruList::EVICTABLE.iter().map(|&list| self.known_size(lruvec, list)).sum();
        let lists = &mut self.lru.lruvecs[lruvec];
        lists.cost[usize::from(file)] += cost;
        if lists.cost[0] + lists.cost[1] > size / 4 {
            lists.cost[0] /= 2;
            lists.cost[1] /= 2;
        }
    }
}

/// The counters of refaults: all, those made active, those in use before.
pub(crate) const fn workingset_events(file: bool) -> [Vm; 3] {
    if file {
        [Vm::WorkingsetRefaultFile, Vm::WorkingsetActivateFile, Vm::WorkingsetRestoreFile]
    } else {
        [Vm::WorkingsetRefaultAnon, Vm::WorkingsetActivateAnon, Vm::WorkingsetRestoreAnon]
    }
}

/// What a shadow says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shadow {
    /// The clock, or the generation, at eviction.
    pub(crate) age: u64,
    /// From which lists.
    pub(crate) lruvec: LruvecId,
    /// The tier it had.
    pub(crate) tier: u8,
    /// Whether it was in use.
    pub(crate) in_use: bool,
}

pub(crate) const fn pack_shadow(age: u64, lruvec: LruvecId, tier: u8, in_use: bool) -> u64 {
    (age & AGE_MASK) << AGE_SHIFT
        | (lruvec.0 as u64) << LISTS_SHIFT
        | (tier as u64) << 1
        | in_use as u64
}

pub(crate) const fn unpack_shadow(shadow: u64) -> Shadow {
    Shadow {
        age: shadow >> AGE_SHIFT & AGE_MASK,
        lruvec: LruvecId((shadow >> LISTS_SHIFT) as u8),
        tier: (shadow >> 1 & 0b11) as u8,
        in_use: shadow & 1 != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shadow_gives_back_what_was_put_in() {
        for (age, lruvec, tier, in_use) in
            [(0, 0, 0, false), (AGE_MASK, 253, 3, true), (12_345, 7, 2, false)]
        {
            let lruvec = LruvecId(lruvec);
            let shadow = pack_shadow(age, lruvec, tier, in_use);
            assert_eq!(unpack_shadow(shadow), Shadow { age, lruvec, tier, in_use });
            assert_eq!(shadow >> 62, 0, "the two marks of a cache entry are free");
        }
    }
}
