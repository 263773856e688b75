//! Huge pages of which a part is unmapped: they wait to be split, the oldest first.
//!
//! Models: `deferred_split_folio`, `__folio_unqueue_deferred_split`, mm/huge_memory.c, v6.12.
//! Departs: one queue for all nodes. Visible as: memory that runs short on one node splits another's first.

use crate::types::Pfn;
use std_alloc::collections::BTreeMap;

/// The pages that wait, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct SplitQueue {
    /// Each page's number in the order in which they came.
    numbers: BTreeMap<Pfn, u64>,
    in_order: BTreeMap<u64, Pfn>,
    next: u64,
}

impl SplitQueue {
    /// Puts a page at the end. Whether it was not there yet.
    #[doc(alias = "deferred_split_folio")]
    pub(crate) fn push(&mut self, head: Pfn) -> bool {
        if self.numbers.contains_key(&head) {
            return false;
        }
        self.numbers.insert(head, self.next);
        self.in_order.insert(self.next, head);
        self.next += 1;
        true
    }

    /// Takes a page off, if it is there.
    #[doc(alias = "__folio_unqueue_deferred_split")]
    pub(crate) fn remove(&mut self, head: Pfn) {
        if let Some(number) = self.numbers.remove(&head) {
            self.in_order.remove(&number);
        }
    }

    /// Puts another page in the place of one that moved there.
    pub(crate) fn replace(&mut self, from: Pfn, to: Pfn) {
        if let Some(number) = self.numbers.remove(&from) {
            self.numbers.insert(to, number);
            self.in_order.insert(number, to);
        }
    }

    /// The oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Pfn> {
        self.in_order.values().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std_alloc::vec::Vec;

    #[test]
    fn a_page_waits_once_and_keeps_its_place_where_it_moves() {
        let mut queue = SplitQueue::default();
        let pages = [Pfn(512), Pfn(0), Pfn(1024)];
        assert!(pages.iter().all(|&page| queue.push(page)));
        assert!(!queue.push(Pfn(0)));
        queue.replace(Pfn(512), Pfn(2048));
        queue.replace(Pfn(512), Pfn(4096));
        assert_eq!(queue.iter().collect::<Vec<_>>(), [Pfn(2048), Pfn(0), Pfn(1024)]);
        queue.remove(Pfn(0));
        queue.remove(Pfn(512));
        assert!(queue.push(Pfn(0)));
        assert_eq!(queue.iter().collect::<Vec<_>>(), [Pfn(2048), Pfn(1024), Pfn(0)]);
    }
}
