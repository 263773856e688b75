//! The frames of a map put into cells.
//!
//! A cell stands for one pageblock, the unit that the kernel keeps unmixed and that a huge page
//! needs; on machines too large for that, for a power of two of them. A cell knows how many of its
//! frames belong to each class, and every picture shows these shares rather than one winner, because
//! a pageblock with a single pinned page is a different thing from one without.

use crate::map::{MapZone, MemoryMap, Mobilities, add_each, aligned_stretches};
use crate::palette::{DifferenceClass, Swatch, UseClass};
use highorder_mm::types::{Migratetype, Order};

/// A stretch of frames drawn as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// First frame.
    pub start: u64,
    /// The frame after the last.
    pub end: u64,
    /// Frames by class, indexed as [`CellGrid::classes`].
    pub counts: Vec<u64>,
    /// Pageblocks with memory in them that it covers.
    pub pageblocks: u64,
    /// Of these, the mixed ones.
    pub pageblocks_mixed: u64,
    /// The pageblock's type, where the cell is one pageblock and its type is known.
    pub migratetype: Option<Migratetype>,
}

impl Cell {
    /// Frames in the cell.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.end - self.start
    }

    /// Splits `height` rows between the classes in proportion to their frames, by largest remainder.
    ///
    /// A class from `pinned` with any frame at all gets at least one row as long as rows last: how
    /// much of a pageblock pins it matters less than whether anything does.
    #[must_use]
    pub fn rows(&self, height: u64, pinned: impl Fn(usize) -> bool) -> Vec<u64> {
        let total = self.frames().max(1);
        let mut rows: Vec<u64> = self.counts.iter().map(|n| n * height / total).collect();
        let mut by_remainder: Vec<usize> =
            (0..rows.len()).filter(|&i| self.counts[i] > 0).collect();
        by_remainder.sort_by_key(|&i| {
            let unseen_pin = pinned(i) && rows[i] == 0;
            (!unseen_pin, std::cmp::Reverse(self.counts[i] * height % total), i)
        });
        let left = height - rows.iter().sum::<u64>();
        for &i in by_remainder.iter().take(left as usize) {
            rows[i] += 1;
        }
        // Pins that found no spare row take one from the tallest class.
        for &i in &by_remainder {
            let tallest = (0..rows.len()).max_by_key(|&j| (rows[j], std::cmp::Reverse(j)));
            if let Some(tallest) = tallest
                && pinned(i)
                && rows[i] == 0
                && rows[tallest] > 1
            {
                rows[tallest] -= 1;
                rows[i] = 1;
            }
        }
        rows
    }
}

/// One zone's cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneCells {
    /// The zone.
    pub zone: MapZone,
    /// Ascending, covering the zone's span without gap or overlap.
    pub cells: Vec<Cell>,
    /// Stretches of frames that the kernel has no pages of, ascending: the first frame of each, and the one after its last.
    pub holes: Vec<(u64, u64)>,
}

impl ZoneCells {
    /// Frames of the holes that these cells have part in, up to the holes' ends: these may lie in cells that are drawn.
    pub(crate) fn hole_frames(&self, cells: &[Cell]) -> u64 {
        let (Some(first), Some(last)) = (cells.first(), cells.last()) else { return 0 };
        let within = |hole: &&(u64, u64)| hole.0 < last.end && first.start < hole.1;
        self.holes.iter().filter(within).map(|(start, end)| end - start).sum()
    }
}

/// The cells of every zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellGrid {
    /// What the counts of each cell mean.
    pub classes: Vec<Swatch>,
    /// Log2 of frames per cell; zone boundaries may cut a cell short.
    pub cell_order: u32,
    /// In the map's order.
    pub zones: Vec<ZoneCells>,
}

impl CellGrid {
    /// One cell per pageblock, or per the smallest power of two of them that needs no more than
    /// `cells_max` cells.
    #[must_use]
    pub fn of_map(map: &MemoryMap, cells_max: u64) -> Self {
        let classes = UseClass::ALL.map(UseClass::swatch).to_vec();
        Self::build(map, classes, cells_max, |_, _, by_class| by_class.to_vec())
    }

    /// The same division of `first`'s zones, counting how its frames differ from `second`'s.
    #[must_use]
    pub fn of_difference(first: &MemoryMap, second: &MemoryMap, cells_max: u64) -> Self {
        let classes = DifferenceClass::ALL.map(DifferenceClass::swatch).to_vec();
        Self::build(first, classes, cells_max, |start, end, _| {
            let mut counts = vec![0; DifferenceClass::ALL.len()];
            for pfn in start..end {
                let class = DifferenceClass::of(first.class(pfn), second.class(pfn));
                counts[class as usize] += 1;
            }
            counts
        })
    }

    /// Cells in all zones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.zones.iter().map(|z| z.cells.len()).sum()
    }

    /// Whether there is no cell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn build(
        map: &MemoryMap,
        classes: Vec<Swatch>,
        cells_max: u64,
        count: impl Fn(u64, u64, &[u64; UseClass::COUNT]) -> Vec<u64>,
    ) -> Self {
        let cell_order = cell_order(map, cells_max);
        let cell = |(start, end)| {
            let (by_class, pageblocks, pageblocks_mixed) = count_pageblocks(map, start, end);
            let one_pageblock = cell_order == u32::from(map.pageblock_order.0);
            Cell {
                start,
                end,
                counts: count(start, end, &by_class),
                pageblocks,
                pageblocks_mixed,
                migratetype: map.pageblock_type(start).filter(|_| one_pageblock && pageblocks > 0),
            }
        };
        let zones = map.zones.iter().map(|zone| ZoneCells {
            zone: *zone,
            cells: aligned_stretches(zone, 1 << cell_order).map(cell).collect(),
            holes: map.holes(zone),
        });
        Self { zones: zones.collect(), classes, cell_order }
    }
}

/// The smallest order, from the pageblock's up, at which the zones need at most `cells_max` cells.
///
/// Zones always have one cell each, so a `cells_max` below their number cannot be kept.
fn cell_order(map: &MemoryMap, cells_max: u64) -> u32 {
    let Order(pageblock_order) = map.pageblock_order;
    (u32::from(pageblock_order)..40)
        .find(|order| {
            let size = 1u64 << order;
            let cells = |z: &MapZone| z.end().div_ceil(size) - u64::from(z.start.0) / size;
            map.zones.iter().map(cells).sum::<u64>() <= cells_max.max(map.zones.len() as u64)
        })
        .unwrap_or(40)
}

/// Frames of each class in `start..end`, pageblocks with memory in them, and the mixed ones among them.
fn count_pageblocks(map: &MemoryMap, start: u64, end: u64) -> ([u64; UseClass::COUNT], u64, u64) {
    let size = u64::from(map.pageblock_order.pages());
    let mut by_class = [0; UseClass::COUNT];
    let (mut pageblocks, mut mixed) = (0, 0);
    let mut from = start;
    while from < end {
        let to = ((from / size + 1) * size).min(end);
        let counts = map.class_counts(from, to);
        pageblocks += u64::from(counts[UseClass::Hole.index()] < to - from);
        mixed += u64::from(Mobilities::of(&counts).is_mixed());
        add_each(&mut by_class, &counts);
        from = to;
    }
    (by_class, pageblocks, mixed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use highorder_mm::types::{Pfn, ZoneKind};
    use highorder_snapshot::FrameUse;
    use proptest::prelude::*;

    fn cell(counts: Vec<u64>) -> Cell {
        Cell {
            start: 0,
            end: counts.iter().sum(),
            counts,
            pageblocks: 1,
            pageblocks_mixed: 0,
            migratetype: None,
        }
    }

    #[test]
    fn rows_follow_the_shares() {
        assert_eq!(cell(vec![256, 128, 128]).rows(8, |_| false), [4, 2, 2]);
        assert_eq!(cell(vec![511, 1]).rows(8, |_| false), [8, 0]);
    }

    #[test]
    fn a_single_pinning_page_is_seen() {
        assert_eq!(cell(vec![1, 511]).rows(5, |i| i == 0), [1, 4]);
        assert_eq!(cell(vec![1, 0, 128, 384]).rows(4, |i| i == 0), [1, 0, 1, 2]);
        assert_eq!(cell(vec![1, 1, 510]).rows(1, |i| i < 2), [1, 0, 0]);
    }

    prop_compose! {
        fn any_map()(
            lengths in prop::collection::vec(1u64..200, 1..5),
            gap in 0u64..20,
            seed in any::<u64>(),
        ) -> MemoryMap {
            let mut zones = Vec::new();
            let mut next = seed % 7;
            for (i, spanned) in lengths.into_iter().enumerate() {
                let node = i as u32;
                zones.push(MapZone { node, kind: ZoneKind::Normal, start: Pfn(next as u32), spanned, present: spanned, managed: spanned, per_cpu_somewhere: 0 });
                next += spanned + gap;
            }
            let kinds = [FrameUse::Anon, FrameUse::Slab, FrameUse::Free(0), FrameUse::Hole, FrameUse::File];
            let uses = (0..next).map(|i| kinds[((i * 31 + seed % 97) / 3 % 5) as usize]).collect();
            MemoryMap::new("any", Order(3), zones, uses, Vec::new())
        }
    }

    proptest! {
        #[test]
        fn cells_cover_each_frame_of_the_zones_exactly_once(map in any_map(), cells_max in 1u64..60) {
            let grid = CellGrid::of_map(&map, cells_max);
            let mut covered = vec![0u32; map.uses.len()];
            for zone in &grid.zones {
                for cell in &zone.cells {
                    prop_assert_eq!(cell.counts.iter().sum::<u64>(), cell.frames());
                    for pfn in cell.start..cell.end {
                        covered[pfn as usize] += 1;
                        prop_assert!(pfn >= u64::from(zone.zone.start.0) && pfn < zone.zone.end());
                    }
                }
            }
            for (pfn, times) in covered.into_iter().enumerate() {
                let in_zone = map.zones.iter()
                    .any(|z| pfn as u64 >= u64::from(z.start.0) && (pfn as u64) < z.end());
                prop_assert_eq!(times, u32::from(in_zone));
            }
            prop_assert!(grid.len() as u64 <= cells_max.max(map.zones.len() as u64) || grid.cell_order == 40);
        }

        #[test]
        fn cells_and_statistics_agree(map in any_map(), cells_max in 1u64..60) {
            let statistics = map.statistics();
            let grid = CellGrid::of_map(&map, cells_max);
            let cells: Vec<&Cell> = grid.zones.iter().flat_map(|z| &z.cells).collect();
            for class in UseClass::ALL {
                let sum: u64 = cells.iter().map(|c| c.counts[class.index()]).sum();
                prop_assert_eq!(sum, statistics.of(class));
            }
            prop_assert_eq!(cells.iter().map(|c| c.pageblocks).sum::<u64>(), statistics.pageblocks);
            prop_assert_eq!(
                cells.iter().map(|c| c.pageblocks_mixed).sum::<u64>(),
                statistics.pageblocks_mixed
            );
        }

        #[test]
        fn rows_fill_the_height(counts in prop::collection::vec(0u64..600, 1..15), height in 0u64..40) {
            prop_assume!(counts.iter().sum::<u64>() > 0);
            let rows = cell(counts.clone()).rows(height, |i| i < 3);
            prop_assert_eq!(rows.iter().sum::<u64>(), height);
            for (row, count) in rows.iter().zip(&counts) {
                prop_assert!(*count > 0 || *row == 0);
            }
        }

        #[test]
        fn a_map_does_not_differ_from_itself(map in any_map()) {
            let grid = CellGrid::of_difference(&map, &map, 1000);
            for cell in grid.zones.iter().flat_map(|z| &z.cells) {
                for class in DifferenceClass::ALL {
                    let same = matches!(class, DifferenceClass::Same | DifferenceClass::Hole);
                    prop_assert!(same || cell.counts[class as usize] == 0);
                }
            }
        }
    }
}
