//! Positions for the free blocks of a counts-only snapshot.

use crate::boot_log::kernel_image;
use crate::state::{Exactness, FrameRun, FreeBlock, PageblockState, Snapshot, ZoneState};
use highorder_kernelfs::{Buddyinfo, Pagetypeinfo, TextFile};
use highorder_mm::types::{MAX_PAGE_ORDER, Migratetype, Order, Pfn, ZoneKind};
use std::mem::replace;
use std::ops::Range;

/// From which end boot leaves memory to be handed out, so that what is free lies at the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilledFrom {
    /// The lowest frame on: boot frees ascending blocks to the tails of the lists (7fef431be9c9, 5.10).
    #[default]
    Bottom,
    /// The highest one down: boot freed them to the heads.
    Top,
}

impl FilledFrom {
    /// The other end.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Bottom => Self::Top,
            Self::Top => Self::Bottom,
        }
    }
}

impl Snapshot {
    /// As [`Snapshot::placed_on`], on a kernel that fills memory from the bottom.
    #[must_use]
    pub fn placed(&self) -> Self {
        self.placed_on(FilledFrom::Bottom)
    }

    /// Returns the snapshot with a position for every free block that `/proc/buddyinfo` counts.
    ///
    /// The positions are made up, and `inferred` says so: large blocks go to the end of their
    /// zone that is filled last, smaller ones each into the smallest piece of memory in use that can hold them
    /// beside a page in use, so that no two free buddies lie side by side unmerged. They are listed from the
    /// end that is filled first, as boot leaves the lists. The same counts give the same positions. Where
    /// `/proc/pagetypeinfo` is known, as many pageblocks as it counts become Reserve, from the zone's beginning, and
    /// Unmovable, Reclaimable and HighAtomic, from the end that is filled first, and hold the free blocks of those types;
    /// all others become Movable. They lie at the other end where more finds its place then, as in ZONE_DMA, whose first
    /// MiB is in use on every kernel. If there is a log of the boot among the files (`dmesg`), and it tells of the kernel's
    /// image, that and what else is reserved has places of its own. A snapshot that knows positions is returned as it is.
    #[must_use]
    pub fn placed_on(&self, filled: FilledFrom) -> Self {
        let mut snapshot = self.clone();
        if self.exactness != Exactness::Counts || self.zones.iter().any(|z| !z.free.is_empty()) {
            return snapshot;
        }
        let buddyinfo = self.files.get("buddyinfo");
        let Some(Ok(table)) = buddyinfo.map(|text| Buddyinfo::parse("buddyinfo", text)) else {
            return snapshot;
        };
        let order = self.pageblock_order;
        let types = self.files.get("pagetypeinfo");
        let types = types.and_then(|text| Pagetypeinfo::parse("pagetypeinfo", text).ok());
        let types = types.filter(|types| types.page_block_order() == Some(u64::from(order.0)));
        let log = self.files.get("dmesg").map(|log| String::from_utf8_lossy(log));
        let image = log.and_then(|log| kernel_image(&log)).unwrap_or_default();
        let mut parts = Vec::new();
        for zone in &mut snapshot.zones {
            let Some(row) = table.zone(zone.node, zone.kind.name()) else { continue };
            let reserved = reserved_of(zone, &image);
            let lay = |rarer_from| {
                let parts =
                    parts_of(zone, order, &row.counts, types.as_ref(), rarer_from, &reserved);
                ZoneLayout::new(zone, parts, row.counts.len(), filled, &reserved)
            };
            let mut layout = lay(filled);
            if layout.nr_left_pages() > 0 {
                let other = lay(filled.other());
                if other.nr_left_pages() < layout.nr_left_pages() {
                    layout = other;
                }
            }
            let left_out = layout.left.iter().fold(0_u64, |all, left| all.saturating_add(*left));
            snapshot.reserved.extend(reserved.iter().map(|run| FrameRun {
                pfn: Pfn(run.start as u32),
                nr_pages: (run.end - run.start) as u32,
            }));
            zone.free = layout.free;
            zone.free.sort_unstable_by_key(|block| block.pfn);
            if filled == FilledFrom::Top {
                zone.free.reverse();
            }
            parts.extend(layout.parts);
            if left_out > 0 {
                snapshot.inferred.push(format!(
                    "node {} zone {}: {left_out} free blocks found no place beside pages in use",
                    zone.node, zone.kind
                ));
            }
        }
        if snapshot.pageblocks.is_empty() {
            snapshot.pageblocks = pageblocks(&snapshot, &parts);
            snapshot.inferred.push(match types {
                Some(_) => "which pageblocks have which type is made up from their numbers".into(),
                None => "every pageblock is taken to be Movable".into(),
            });
        }
        if !image.is_empty() {
            snapshot.inferred.push(
                "the kernel's image is taken to lie at 16 MiB, and its tables at the ends of zones"
                    .into(),
            );
        }
        snapshot.inferred.push("the positions of free blocks are made up from their counts".into());
        snapshot
    }
}

/// A part of a zone whose pageblocks are of one type.
struct Part {
    migratetype: Migratetype,
    pfns: Range<u64>,
    /// Free blocks in it, by order.
    counts: Vec<u64>,
}

/// A zone's free blocks in their places.
struct ZoneLayout {
    parts: Vec<Part>,
    free: Vec<FreeBlock>,
    /// Blocks that found no place, by order.
    left: Vec<u64>,
}

impl ZoneLayout {
    fn new(
        zone: &ZoneState,
        parts: Vec<Part>,
        nr_orders: usize,
        filled: FilledFrom,
        reserved: &[Range<u64>],
    ) -> Self {
        let mut free = Vec::new();
        // What finds no place among its like goes to the movable ones, which come last.
        let mut left = vec![0; nr_orders];
        for part in &parts {
            let mut counts = part.counts.clone();
            if part.migratetype == Migratetype::Movable {
                let all = counts.iter_mut().zip(&left);
                all.for_each(|(count, more)| *count = count.saturating_add(*more));
                left.fill(0);
            }
            let (placed, homeless) = place(zone, part, &counts, filled, reserved);
            free.extend(placed);
            let all = left.iter_mut().zip(homeless);
            all.for_each(|(all, homeless)| *all = all.saturating_add(homeless));
        }
        Self { parts, free, left }
    }

    fn nr_left_pages(&self) -> u64 {
        let by_order = (0_u32..).zip(&self.left);
        by_order.fold(0, |all, (order, blocks)| {
            all.saturating_add(blocks.saturating_mul(1_u64.checked_shl(order).unwrap_or(u64::MAX)))
        })
    }
}

/// The parts of a zone with these free blocks: as many pageblocks of each rarer type as are counted, from this end, and
/// what remains for movable pages.
fn parts_of(
    zone: &ZoneState,
    order: Order,
    counts: &[u64],
    types: Option<&Pagetypeinfo>,
    rarer_from: FilledFrom,
    reserved: &[Range<u64>],
) -> Vec<Part> {
    const RARER: [Migratetype; 4] = [
        // Before 4.4, the first pageblocks of a zone, whatever is filled first (setup_zone_migrate_reserve).
        Migratetype::Reserve,
        Migratetype::Unmovable,
        Migratetype::Reclaimable,
        Migratetype::HighAtomic,
    ];
    let (node, name) = (zone.node, zone.kind.name());
    let mut rest = u64::from(zone.start_pfn.0)..zone.end_pfn();
    // What is reserved at an end, and holes behind it, lie in movable pageblocks, as memory does that is handed out later.
    let present_end = rest.end.saturating_sub(zone.nr_holes());
    for run in reserved {
        if run.start <= rest.start {
            rest.start = run.end.max(rest.start).min(rest.end);
        } else if run.end >= present_end {
            rest.end = run.start.max(rest.start);
        }
    }
    let mut left = counts.to_vec();
    let mut parts = Vec::new();
    for (types, migratetype) in types.into_iter().flat_map(|types| RARER.map(|of| (types, of))) {
        let nr_blocks = types.nr_blocks(node, name, migratetype.name()).unwrap_or(0);
        let pages = u64::from(order.pages());
        let all = nr_blocks.saturating_mul(pages);
        let pfns = if rarer_from == FilledFrom::Bottom || migratetype == Migratetype::Reserve {
            let end = (rest.start / pages * pages).saturating_add(all);
            let end = end.clamp(rest.start, rest.end);
            replace(&mut rest.start, end)..end
        } else {
            let start = rest.end.next_multiple_of(pages).saturating_sub(all);
            let start = start.clamp(rest.start, rest.end);
            start..replace(&mut rest.end, start)
        };
        let row = types.free_row(node, name, migratetype.name());
        let mut of_type = vec![0; left.len()];
        for (order, said) in row.iter().flat_map(|row| row.counts.iter().enumerate()) {
            // The files were read one after the other: buddyinfo has the last word.
            if let Some(all) = left.get_mut(order) {
                of_type[order] = said.blocks.min(*all);
                *all -= of_type[order];
            }
        }
        parts.push(Part { migratetype, pfns, counts: of_type });
    }
    parts.push(Part { migratetype: Migratetype::Movable, pfns: rest, counts: left });
    parts
}

fn pageblocks(snapshot: &Snapshot, parts: &[Part]) -> Vec<PageblockState> {
    let order = snapshot.pageblock_order;
    let type_of = |pfn: u64| {
        let end = pfn + u64::from(order.pages());
        let part = parts.iter().rfind(|part| part.pfns.start < end && pfn < part.pfns.end);
        let is_in_zone = |z: &ZoneState| u64::from(z.start_pfn.0) < end && pfn < z.end_pfn();
        let is_somewhere = snapshot.zones.iter().any(is_in_zone);
        is_somewhere.then(|| part.map_or(Migratetype::Movable, |part| part.migratetype))
    };
    (0..snapshot.nr_frames)
        .step_by(order.pages() as usize)
        .filter_map(|pfn| {
            let migratetype = type_of(pfn)?;
            Some(PageblockState { pfn: Pfn(pfn as u32), migratetype, skip: false })
        })
        .collect()
}

/// A piece of memory in use: an aligned block.
#[derive(Clone, Copy)]
struct Piece {
    pfn: u32,
    /// Its buddy leaves the zone, or is reserved, so that the piece stays apart even when all of it is free.
    is_edge: bool,
}

/// What a kernel has for good of a zone, if its image is known: that, and at the zone's end, where memory is taken from first
/// while it starts, the map of pages and other tables (in a guest of 6.12 the map lies 3.5 MiB below the end). Of ZONE_DMA it
/// is the first MiB.
fn reserved_of(zone: &ZoneState, image: &Range<u64>) -> Vec<Range<u64>> {
    let (start, end) = (u64::from(zone.start_pfn.0), zone.end_pfn());
    let here = image.start.clamp(start, end)..image.end.clamp(start, end);
    if image.is_empty() || zone.kind == ZoneKind::Dma {
        return Vec::new();
    }
    let all = zone.present_pages.saturating_sub(zone.managed_pages);
    let end = end.saturating_sub(zone.nr_holes()).max(here.end);
    let rest = all.saturating_sub(here.end - here.start).min(end - here.end);
    let runs = [here, end - rest..end];
    runs.into_iter().filter(|run| !run.is_empty()).collect()
}

/// The parts of a range that lie in none of these, ascending.
fn without(range: Range<u64>, taken: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut from = range.start;
    let mut parts = Vec::new();
    for run in taken {
        parts.push(from..run.start.min(range.end));
        from = from.max(run.end);
    }
    parts.push(from..range.end);
    parts.retain(|part| !part.is_empty());
    parts
}

/// Places blocks in a part beside what is reserved, largest first, and returns them with the numbers by order that found
/// no place.
fn place(
    zone: &ZoneState,
    part: &Part,
    counts: &[u64],
    filled: FilledFrom,
    reserved: &[Range<u64>],
) -> (Vec<FreeBlock>, Vec<u64>) {
    // Pieces in use by order; the last one of each is the one to be filled last.
    let mut pieces: [Vec<Piece>; MAX_PAGE_ORDER as usize + 1] = Default::default();
    for pfns in without(part.pfns.clone(), reserved) {
        let mut pfn = pfns.start;
        while pfn < pfns.end {
            let order = largest_order(pfn, pfns.end);
            let buddy = pfn ^ (1 << order);
            let buddy_end = buddy + (1 << order);
            let is_in_zone = u64::from(zone.start_pfn.0) <= buddy && buddy_end <= zone.end_pfn();
            let is_in_use = reserved.iter().any(|run| buddy < run.end && run.start < buddy_end);
            let is_edge = order == MAX_PAGE_ORDER || !is_in_zone || is_in_use;
            pieces[order as usize].push(Piece { pfn: pfn as u32, is_edge });
            pfn += 1 << order;
        }
    }
    if filled == FilledFrom::Top {
        pieces.iter_mut().for_each(|pieces| pieces.reverse());
    }
    let mut free = Vec::new();
    let mut left = vec![0; counts.len()];
    for order in (0..=MAX_PAGE_ORDER).rev() {
        let nr = counts.get(usize::from(order)).copied().unwrap_or(0);
        let before = free.len();
        // However many are counted, no more are looked at than there is room for.
        while ((free.len() - before) as u64) < nr
            && let Some(pfn) = take_piece(&mut pieces, order)
        {
            let (pfn, order) = (Pfn(pfn), Order(order));
            free.push(FreeBlock { pfn, order, migratetype: part.migratetype });
        }
        if let Some(left) = left.get_mut(usize::from(order)) {
            *left = nr - (free.len() - before) as u64;
        }
    }
    (free, left)
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

    fn run(start: u64, end: u64) -> Range<u64> {
        start..end
    }

    /// What `/proc/pagetypeinfo` says of a zone without free pages that has so many pageblocks of these types.
    fn types_of(names: &str, numbers: &str) -> Pagetypeinfo {
        let text = format!(
            "Page block order: 9\n\
            Pages per block:  512\n\
            \n\
            Free pages count per migrate type at order       0 \n\
            Node    0, zone    DMA32, type    Unmovable      0 \n\
            \n\
            Number of blocks type     {names} \n\
            Node 0, zone    DMA32            {numbers} \n"
        );
        Pagetypeinfo::parse("pagetypeinfo", text.as_bytes()).unwrap()
    }

    /// The parts of a zone that are not empty.
    fn filled_parts(
        zone: &ZoneState,
        types: &Pagetypeinfo,
        filled: FilledFrom,
        reserved: &[Range<u64>],
    ) -> Vec<(Migratetype, Range<u64>)> {
        let parts = parts_of(zone, Order(9), &[0; 11], Some(types), filled, reserved);
        let parts = parts.into_iter().map(|part| (part.migratetype, part.pfns));
        parts.filter(|(_, pfns)| !pfns.is_empty()).collect()
    }

    proptest! {
        #[test]
        fn placed_blocks_are_apart_aligned_and_never_unmerged_buddies(
            counts in proptest::array::uniform11(0u64..40), start in 0u32..5000, len in 1u64..60_000,
            is_top in proptest::bool::ANY, image_start in 0u64..70_000, image_len in 0u64..5000,
        ) {
            let image = image_start..image_start + image_len;
            let zone = zone(0, start, len);
            let part = Part {
                migratetype: Migratetype::Movable,
                pfns: u64::from(start)..zone.end_pfn(),
                counts: counts.to_vec(),
            };
            let filled = if is_top { FilledFrom::Top } else { FilledFrom::Bottom };
            let (free, left) = place(&zone, &part, &counts, filled, std::slice::from_ref(&image));
            prop_assert_eq!(free.len() as u64 + left.iter().sum::<u64>(), counts.iter().sum::<u64>());
            let mut taken: Vec<_> = free.iter().map(|b| (b.pfn.0, b.pfn.0 + b.order.pages())).collect();
            taken.sort_unstable();
            prop_assert!(taken.windows(2).all(|w| w[0].1 <= w[1].0));
            for block in &free {
                prop_assert!(zone.spans(block.pfn, block.order.pages()));
                let (start, end) = (u64::from(block.pfn.0), u64::from(block.pfn.0 + block.order.pages()));
                prop_assert!(image.is_empty() || end <= image.start || image.end <= start);
                prop_assert_eq!(block.pfn, block.pfn.align_down(block.order));
                let buddy = block.pfn.buddy(block.order);
                let merged = free.iter().any(|b| b.pfn == buddy && b.order == block.order);
                prop_assert!(!merged || block.order.0 == MAX_PAGE_ORDER);
            }
        }
    }

    #[test]
    fn a_kernel_has_its_image_at_16_mib_and_its_tables_at_the_end() {
        // As a guest of 6.12 with 512 MiB had it: 9398 frames of the image and 2738 near the end.
        let mut low = zone(0, 4096, 126_935);
        low.managed_pages = 114_839;
        let image = 4096..4096 + 8777;
        let end = 4096 + 126_935;
        assert_eq!(reserved_of(&low, &image), [image.clone(), end - (12_096 - 8777)..end]);
        assert_eq!(reserved_of(&low, &(0..0)), [], "nothing is known");
        low.kind = ZoneKind::Dma;
        assert_eq!(reserved_of(&low, &image), [], "the first MiB is told by nobody");
        // A node without the image has tables alone, below its holes.
        let mut other = zone(0, 300_000, 10_000);
        (other.present_pages, other.managed_pages) = (9000, 8900);
        assert_eq!(reserved_of(&other, &image), [run(308_900, 309_000)]);
    }

    #[test]
    fn what_is_reserved_is_in_no_part_and_movable() {
        let zone = zone(0, 4096, 20 << 9);
        let types = types_of("Unmovable      Movable", "2           18");
        let reserved = [4096..5000, 14_000..14_336];
        let parts = |filled| filled_parts(&zone, &types, filled, &reserved);
        assert_eq!(
            parts(FilledFrom::Bottom),
            [(Migratetype::Unmovable, 5000..5632), (Migratetype::Movable, 5632..14_000)]
        );
        assert_eq!(
            parts(FilledFrom::Top),
            [(Migratetype::Unmovable, 13_312..14_000), (Migratetype::Movable, 5000..13_312)]
        );
        let pieces = |range, taken: &[Range<u64>]| without(range, taken);
        assert_eq!(pieces(0..10, &[2..4, 6..20]), [0..2, 4..6]);
        assert_eq!(pieces(5..10, &[run(0, 5)]), [run(5, 10)]);
        assert_eq!(pieces(5..10, &[run(0, 20)]), []);
    }

    #[test]
    fn however_many_blocks_are_counted_no_more_are_placed_than_there_is_room_for() {
        let zone = zone(0, 0, 1 << 12);
        let part = |counts| Part { migratetype: Migratetype::Movable, pfns: 0..1 << 12, counts };
        let most = vec![u64::MAX; 11];
        let (free, left) = place(&zone, &part(most.clone()), &most, FilledFrom::Bottom, &[]);
        assert_eq!(free.len(), 4, "of the largest order");
        assert_eq!(left[10], u64::MAX - 4);
        assert_eq!(left[0], u64::MAX);
    }

    #[test]
    fn rarer_pageblocks_lie_where_memory_is_filled_first() {
        let zone = zone(0, 4096, (10 << 9) + 100);
        let types = types_of(
            "Unmovable      Movable  Reclaimable      Reserve",
            "2            7            1            1",
        );
        let parts = |filled| filled_parts(&zone, &types, filled, &[]);
        // Whole pageblocks, but for the last one, of 100 frames.
        let end = 4096 + (10 << 9) + 100;
        assert_eq!(
            parts(FilledFrom::Bottom),
            [
                (Migratetype::Reserve, 4096..4608),
                (Migratetype::Unmovable, 4608..5632),
                (Migratetype::Reclaimable, 5632..6144),
                (Migratetype::Movable, 6144..end),
            ]
        );
        assert_eq!(
            parts(FilledFrom::Top),
            [
                (Migratetype::Reserve, 4096..4608),
                (Migratetype::Unmovable, 8704..end),
                (Migratetype::Reclaimable, 8192..8704),
                (Migratetype::Movable, 4608..8192),
            ]
        );
    }

    #[test]
    fn large_free_blocks_lie_where_memory_is_filled_last() {
        let zone = zone(0, 0, 64 << 10);
        let part = Part {
            migratetype: Migratetype::Movable,
            pfns: 0..zone.end_pfn(),
            counts: vec![0; 11],
        };
        let mut counts = vec![0; 11];
        counts[10] = 2;
        let pfns = |filled| {
            let (free, left) = place(&zone, &part, &counts, filled, &[]);
            assert_eq!(left.iter().sum::<u64>(), 0);
            free.iter().map(|block| block.pfn.0).collect::<Vec<_>>()
        };
        assert_eq!(pfns(FilledFrom::Bottom), [63 << 10, 62 << 10]);
        assert_eq!(pfns(FilledFrom::Top), [0, 1 << 10]);
    }

    #[test]
    fn where_more_finds_its_place_rarer_pageblocks_lie_at_the_other_end() {
        // As a guest of 4.20 had it: three blocks of order 10 and what is left of the first.
        let zone = zone(0, 1, 4095);
        let text = "Page block order: 9\n\
            Pages per block:  512\n\
            \n\
            Free pages count per migrate type at order 0 1 2 3 4 5 6 7 8 9 10\n\
            Node 0, zone DMA32, type Unmovable 1 0 0 1 2 1 1 0 1 0 0\n\
            Node 0, zone DMA32, type Movable 0 0 0 0 0 0 0 0 0 1 3\n\
            \n\
            Number of blocks type Unmovable Movable\n\
            Node 0, zone DMA32 1 7\n";
        let types = Pagetypeinfo::parse("pagetypeinfo", text.as_bytes()).unwrap();
        let counts = [1, 0, 0, 1, 2, 1, 1, 0, 1, 1, 3];
        let left = |rarer_from| {
            let parts = parts_of(&zone, Order(9), &counts, Some(&types), rarer_from, &[]);
            ZoneLayout::new(&zone, parts, counts.len(), FilledFrom::Top, &[]).nr_left_pages()
        };
        assert_eq!(left(FilledFrom::Top), 1024);
        assert_eq!(left(FilledFrom::Bottom), 0);
    }
}
