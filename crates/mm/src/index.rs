//! Two measures of external fragmentation.
//!
//! Models: `__fragmentation_index`, `unusable_free_index`, mm/vmstat.c, v6.12.

use crate::types::{NR_PAGE_ORDERS, Order};

/// Free blocks of each order of a zone.
pub type NrFree = [u64; NR_PAGE_ORDERS];

/// Free pages in all blocks.
#[must_use]
pub fn free_pages(nr_free: &NrFree) -> u64 {
    nr_free.iter().enumerate().map(|(order, blocks)| blocks << order).sum()
}

/// Whether an allocation of `order` that failed did so for lack of memory (towards 0) or because of
/// fragmentation (towards 1000), in thousandths; -1000 if it would not fail.
#[doc(alias = "__fragmentation_index")]
#[must_use]
pub fn fragmentation_index(nr_free: &NrFree, order: Order) -> i64 {
    let blocks: u64 = nr_free.iter().sum();
    if blocks == 0 {
        return 0;
    }
    if nr_free[order.index()..].iter().any(|&n| n > 0) {
        return -1000;
    }
    let requested = i64::from(order.pages());
    1000 - (1000 + free_pages(nr_free) as i64 * 1000 / requested) / blocks as i64
}

/// The share of free memory, in thousandths, that lies in blocks too small for `order`.
#[doc(alias = "unusable_free_index")]
#[must_use]
pub fn unusable_index(nr_free: &NrFree, order: Order) -> u64 {
    let free = free_pages(nr_free);
    if free == 0 {
        return 1000;
    }
    let usable: u64 =
        nr_free.iter().enumerate().skip(order.index()).map(|(o, blocks)| blocks << o).sum();
    (free - usable) * 1000 / free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_of_single_pages_fails_for_fragmentation() {
        let nr_free = [1024, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(fragmentation_index(&nr_free, Order(0)), -1000);
        // 1024 pages are two blocks of order 9: 1000 - (1000 + 2000) / 1024.
        assert_eq!(fragmentation_index(&nr_free, Order(9)), 998);
        assert_eq!(unusable_index(&nr_free, Order(9)), 1000);
        assert_eq!(unusable_index(&nr_free, Order(0)), 0);
    }

    #[test]
    fn an_empty_zone_fails_for_lack_of_memory() {
        assert_eq!(fragmentation_index(&[0; NR_PAGE_ORDERS], Order(3)), 0);
        assert_eq!(unusable_index(&[0; NR_PAGE_ORDERS], Order(0)), 1000);
    }

    #[test]
    fn half_of_free_memory_in_small_blocks_is_half_unusable() {
        let nr_free = [512, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        assert_eq!(unusable_index(&nr_free, Order(9)), 500);
        assert_eq!(fragmentation_index(&nr_free, Order(9)), -1000);
    }
}
