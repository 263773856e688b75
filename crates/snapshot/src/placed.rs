//! Positions for the free blocks of a counts-only snapshot.

use crate::state::{Exactness, FreeBlock, PageblockState, Snapshot, ZoneState};
use highorder_kernelfs::{Buddyinfo, TextFile};
use highorder_mm::types::{MAX_PAGE_ORDER, Migratetype, Order, Pfn};

impl Snapshot {
    /// Returns the snapshot with a position for every free block that `/proc/buddyinfo` counts.
    ///
    /// The positions are made up, and `inferred` says so: large blocks go to the end of their
    /// zone, smaller ones each into the smallest piece of memory in use that can hold them beside
    /// a page in use, so that no two free buddies lie side by side unmerged. They are listed from the
    /// lowest up, as boot leaves the lists. The same counts give the same positions. Pageblocks become
    /// Movable, as their types are not known. A snapshot that knows positions is returned as it is.
    #[must_use]
    pub fn placed(&self) -> Self {
        let mut snapshot = self.clone();
        if self.exactness != Exactness::Counts || self.zones.iter().any(|z| !z.free.is_empty()) {
            return snapshot;
        }
        let buddyinfo = self.files.get("buddyinfo");
        let Some(Ok(table)) = buddyinfo.map(|text| Buddyinfo::parse("buddyinfo", text)) else {
            return snapshot;
        };
        for zone in &mut snapshot.zones {
            let Some(row) = table.zone(zone.node, zone.kind.name()) else { continue };
            let (free, left_out) = place(zone, &row.counts);
            zone.free = free;
            if left_out > 0 {
                snapshot.inferred.push(format!(
                    "node {} zone {}: {left_out} free blocks found no place beside pages in use",
                    zone.node, zone.kind
                ));
            }
        }
        if snapshot.pageblocks.is_empty() {
            snapshot.pageblocks = movable_pageblocks(&snapshot);
            snapshot.inferred.push("every pageblock is taken to be Movable".into());
        }
        snapshot.inferred.push("the positions of free blocks are made up from their counts".into());
        snapshot
    }
}

fn movable_pageblocks(snapshot: &Snapshot) -> Vec<PageblockState> {
    let order = snapshot.pageblock_order;
    let in_zone = |pfn: u64| {
        let end = pfn + u64::from(order.pages());
        snapshot.zones.iter().any(|z| u64::from(z.start_pfn.0) < end && pfn < z.end_pfn())
    };
    (0..snapshot.nr_frames)
        .step_by(order.pages() as usize)
        .filter(|&pfn| in_zone(pfn))
        .map(|pfn| PageblockState {
            pfn: Pfn(pfn as u32),
            migratetype: Migratetype::Movable,
            skip: false,
        })
        .collect()
}

/// A piece of memory in use: an aligned block.
#[derive(Clone, Copy)]
struct Piece {
    pfn: u32,
    /// Its buddy leaves the zone, so that the piece stays apart even when all of it is free.
    is_edge: bool,
}

/// Places blocks, largest first, and returns them with the number that found no place.
fn place(zone: &ZoneState, counts: &[u64]) -> (Vec<FreeBlock>, u64) {
    // Pieces in use by order; the last one of each is the highest.
    let mut pieces: [Vec<Piece>; MAX_PAGE_ORDER as usize + 1] = Default::default();
    let mut pfn = u64::from(zone.start_pfn.0);
    while pfn < zone.end_pfn() {
        let order = largest_order(pfn, zone.end_pfn());
        // A larger aligned block would have fitted otherwise; the largest order has no buddies.
        pieces[order as usize].push(Piece { pfn: pfn as u32, is_edge: true });
        pfn += 1 << order;
    }
    let mut free = Vec::new();
    let mut left_out = 0;
    for order in (0..=MAX_PAGE_ORDER).rev() {
        for _ in 0..counts.get(usize::from(order)).copied().unwrap_or(0) {
            match take_piece(&mut pieces, order) {
                Some(pfn) => free.push(FreeBlock {
                    pfn: Pfn(pfn),
                    order: Order(order),
                    migratetype: Migratetype::Movable,
                }),
                None => left_out += 1,
            }
        }
    }
    free.sort_unstable_by_key(|block| block.pfn);
    (free, left_out)
}

/// Takes a block of `order` out of the pieces: the lower end of a larger one, or else a whole one.
fn take_piece(pieces: &mut [Vec<Piece>], order: u8) -> Option<u32> {
    let larger = (order + 1..=MAX_PAGE_ORDER).find(|&o| !pieces[usize::from(o)].is_empty());
    let Some(source) = larger else {
        let same = &mut pieces[usize::from(order)];
        let whole = same.iter().rposition(|piece| piece.is_edge)?;
        return Some(same.remove(whole).pfn);
    };
    let pfn = pieces[usize::from(source)].pop()?.pfn;
    for part in order..source {
        pieces[usize::from(part)].push(Piece { pfn: pfn + (1 << part), is_edge: false });
    }
    Some(pfn)
}

/// The order of the largest aligned block that begins at `pfn` and ends by `end`.
pub(crate) fn largest_order(pfn: u64, end: u64) -> u8 {
    let aligned = if pfn == 0 { 63 } else { pfn.trailing_zeros() };
    let fits = (end - pfn).ilog2();
    aligned.min(fits).min(u32::from(MAX_PAGE_ORDER)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::zone;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn placed_blocks_are_apart_aligned_and_never_unmerged_buddies(
            counts in proptest::array::uniform11(0u64..40), start in 0u32..5000, len in 1u64..60_000,
        ) {
            let zone = zone(0, start, len);
            let (free, left_out) = place(&zone, &counts);
            prop_assert_eq!(free.len() as u64 + left_out, counts.iter().sum::<u64>());
            let mut taken: Vec<_> = free.iter().map(|b| (b.pfn.0, b.pfn.0 + b.order.pages())).collect();
            taken.sort_unstable();
            prop_assert!(taken.windows(2).all(|w| w[0].1 <= w[1].0));
            for block in &free {
                prop_assert!(zone.spans(block.pfn, block.order.pages()));
                prop_assert_eq!(block.pfn, block.pfn.align_down(block.order));
                let buddy = block.pfn.buddy(block.order);
                let merged = free.iter().any(|b| b.pfn == buddy && b.order == block.order);
                prop_assert!(!merged || block.order.0 == MAX_PAGE_ORDER);
            }
        }
    }
}
