//! Hinting faults: entries of memory that is there are closed for a moment, so that the next touch says which
//! node uses it, and what lies on another one is moved.
//!
//! Models: `change_prot_numa`, `mpol_misplaced`, mm/mempolicy.c; `change_pte_range`, mm/mprotect.c;
//! `change_huge_pmd`, mm/huge_memory.c; `do_numa_page`, mm/memory.c; `do_huge_pmd_numa_page`;
//! `should_numa_migrate_memory`, kernel/sched/fair.c; `migrate_misplaced_page`, `migrate_balanced_pgdat`,
//! mm/migrate.c; v4.4 to v6.12, for anonymous memory.
//! Departs: of the last user of a page its node is remembered, not its process. Visible as: what two threads of one node use in turn counts as one's own. Moves are not limited to
//! 1280 MB a second and node (before 4.20). Mappings of files are left alone. Visible as: memory comes to its
//! user a little sooner; files never do.

use crate::anon::Fault;
use crate::frame::State;
use crate::gfp::AllocFlags;
use crate::memory::Memory;
use crate::page_table::{PTRS_PER_TABLE, Pmd, Pte, Vpn};
use crate::types::{CpuId, Migratetype, NodeId, Order, Pfn, ZoneKind};
use crate::vmstat::Vm;
use crate::watermark::Mark;
use core::ops::Range;

/// What a hinting fault tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hint {
    /// The page; a huge one's first frame.
    pub pfn: Pfn,
    /// Its size.
    pub order: Order,
    /// The node it lies on.
    pub node: NodeId,
    /// The node that the last hinting fault on it came from, if there was one.
    pub last_node: Option<NodeId>,
}

impl Hint {
    /// Whether the page is to go to `node`, whose CPU it was touched by: not at the first touch from there if
    /// the last one came from elsewhere, so that a page that two nodes use does not go back and forth.
    #[doc(alias = "mpol_misplaced")]
    #[must_use]
    pub fn is_misplaced(&self, node: NodeId) -> bool {
        self.node != node && self.last_node.is_none_or(|last| last == node)
    }
}

impl Memory {
    /// Closes the entries of a range, so that the next touch of each is a hinting fault. Base pages on the node
    /// `spared` stay as they are. Returns how many base pages that concerns, each huge one being 512.
    ///
    /// # Panics
    /// If part of the range was never mapped.
    #[doc(alias = "change_huge_pmd")]
    #[doc(alias = "change_pte_range")]
    pub fn change_prot_numa(&mut self, range: Range<Vpn>, spared: Option<NodeId>) -> u32 {
        let (mut updated, mut huge) = (0, 0);
        let mut at = range.start;
        while at < range.end {
            let unit_end = Vpn((at.0 | (PTRS_PER_TABLE - 1)) + 1).min(range.end);
            match self.spaces.table.pmd(at) {
                Pmd::Table => {
                    for vpn in at.0..unit_end.0 {
                        let pte = self.spaces.table.pte(Vpn(vpn));
                        let Some(pfn) = pte.pfn().filter(|_| !pte.has(Pte::PROTNONE)) else {
                            continue;
                        };
                        if spared.is_some_and(|node| self.node_of(pfn) == node) {
                            continue;
                        }
                        self.spaces.table.set_pte(Vpn(vpn), pte.with(Pte::PROTNONE));
                        updated += 1;
                    }
                    self.work.ptes_scanned += u64::from(unit_end.0 - at.0);
                }
                Pmd::Huge(pte) => {
                    if !pte.has(Pte::PROTNONE) {
                        self.spaces.table.units[at.unit()].pmd = Pmd::Huge(pte.with(Pte::PROTNONE));
                        updated += PTRS_PER_TABLE;
                        huge += 1;
                    }
                    self.work.ptes_scanned += 1;
                }
                Pmd::None | Pmd::HugeZero => {}
            }
            at = unit_end;
        }
        if updated > 0 {
            let users = self.tlb_user_at(range.start);
            self.flush_tlb(users);
        }
        self.vm.add(Vm::NumaPteUpdates, updated.into());
        self.vm.add(Vm::NumaHugePteUpdates, huge);
        updated
    }

    /// Opens the entry of a hinting fault by a CPU of `node` again, and says what it tells. `None` if the entry is
    /// open already.
    #[doc(alias = "should_numa_migrate_memory")]
    #[doc(alias = "do_huge_pmd_numa_page")]
    #[doc(alias = "do_numa_page")]
    pub fn hinting_fault(&mut self, fault: &Fault, node: NodeId) -> Option<Hint> {
        let open = |pte: Pte| pte.without(Pte::PROTNONE).with(Pte::ACCESSED).with_last_node(node);
        let vpn = fault.vpn;
        let (old, order) = match self.spaces.table.pmd(vpn) {
            Pmd::Huge(pte) if pte.has(Pte::PROTNONE) => {
                self.spaces.table.units[vpn.unit()].pmd = Pmd::Huge(open(pte));
                (pte, crate::anon::HUGE_ORDER)
            }
            Pmd::Table if self.spaces.table.pte(vpn).has(Pte::PROTNONE) => {
                let pte = self.spaces.table.pte(vpn);
                self.spaces.table.set_pte(vpn, open(pte));
                (pte, Order(0))
            }
            _ => return None,
        };
        let pfn = old.pfn().expect("only entries of pages are closed");
        let hint = Hint { pfn, order, node: self.node_of(pfn), last_node: old.last_node() };
        self.vm.add(Vm::PgFault, 1);
        self.vm.add(Vm::NumaHintFaults, 1);
        if hint.node == node {
            self.vm.add(Vm::NumaHintFaultsLocal, 1);
        }
        Some(hint)
    }

    /// Whether a node has so much free that a page of `order` may be moved there.
    #[doc(alias = "migrate_balanced_pgdat")]
    #[must_use]
    pub fn has_room_for_misplaced(&self, node: NodeId, order: Order) -> bool {
        (0..self.zones.len()).any(|index| {
            let zone = &self.zones[index];
            let high = zone.watermarks.pages(Mark::High) + u64::from(order.pages());
            let id = crate::zone::ZoneId(index as u8);
            zone.node == node
                && zone.managed_pages > 0
                && self.watermark_ok(id, Order(0), high, ZoneKind::Dma, AllocFlags::NONE)
        })
    }

    /// Moves the page that a hinting fault was about to the block `to` of its size, which is in use by nobody.
    /// Whether it did; else `to` is still the caller's.
    #[doc(alias = "migrate_misplaced_page")]
    pub fn migrate_misplaced(&mut self, vpn: Vpn, hint: &Hint, to: Pfn, cpu: CpuId) -> bool {
        let pfn = hint.pfn;
        let is_there =
            self.spaces.table.frame_at(vpn).map(|pfn| self.frames.head_of(pfn)) == Some(pfn);
        if !is_there || self.frames.order(pfn) != hint.order || !self.is_movable_page(pfn) {
            return false;
        }
        self.isolate_movable_page(pfn);
        self.frames.set(to, State::Isolated, hint.order, Migratetype::Movable);
        if self.migrate_page(pfn, to, cpu).is_err() {
            self.frames.set(to, State::Allocated, hint.order, Migratetype::Movable);
            self.putback_movable_page(pfn, cpu);
            self.vm.add(Vm::PgMigrateFail, hint.order.pages().into());
            return false;
        }
        self.vm.add(Vm::PgMigrateSuccess, hint.order.pages().into());
        self.vm.add(Vm::NumaPagesMigrated, hint.order.pages().into());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_moves_at_the_first_hint_and_then_at_two_from_one_node() {
        let hint = |last_node| Hint { pfn: Pfn(0), order: Order(0), node: NodeId(0), last_node };
        for (last_node, node, misplaced) in [
            (None, 0, false),
            (None, 1, true),
            (Some(0), 1, false),
            (Some(1), 1, true),
            (Some(1), 2, false),
            (Some(1), 0, false),
        ] {
            let (last_node, node) = (last_node.map(NodeId), NodeId(node));
            assert_eq!(hint(last_node).is_misplaced(node), misplaced, "{last_node:?} {node}");
        }
    }
}
