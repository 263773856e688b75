//! What lies in every frame of a machine, and what that says about fragmentation.

use crate::palette::{Mobility, UseClass};
use crate::text;
use highorder_mm::types::{Migratetype, NR_MIGRATETYPES, NR_PAGE_ORDERS, Order, Pfn, ZoneKind};
use highorder_snapshot::{FrameUse, Snapshot};

/// A pageblock pinned by at most this many unmovable pages counts as nearly free.
///
/// Our choice: eight pages of 512 (1.6 %) are one small slab or a kernel stack and a page table, which
/// is what one allocation gone astray leaves behind.
pub const NEARLY_FREE_FRAMES: u64 = 8;

/// A zone's place on the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapZone {
    /// NUMA node.
    pub node: u32,
    /// Which zone.
    pub kind: ZoneKind,
    /// First frame of the span.
    pub start: Pfn,
    /// Frames from first to last, holes included.
    pub spanned: u64,
}

impl MapZone {
    /// The frame after the last.
    #[must_use]
    pub fn end(&self) -> u64 {
        u64::from(self.start.0) + self.spanned
    }

    /// `Node 0, zone DMA32`, as the kernel's files name it.
    #[must_use]
    pub fn name(&self) -> String {
        format!("Node {}, zone {}", self.node, self.kind)
    }
}

/// What is printed under a picture: where it comes from and how to make it again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caption {
    /// Sentences: experiment, kernel, seed, scale, version.
    pub lines: Vec<String>,
    /// The command that repeats it.
    pub command: Option<String>,
}

/// A machine's memory, frame by frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryMap {
    /// Heading of the picture.
    pub title: String,
    /// Log2 of frames per pageblock.
    pub pageblock_order: Order,
    /// Zones in the order in which they are shown.
    pub zones: Vec<MapZone>,
    /// Use of every frame, indexed by frame number.
    pub uses: Vec<FrameUse>,
    /// Type of every pageblock, ascending by first frame; empty where not known.
    pub pageblocks: Vec<(Pfn, Migratetype)>,
    /// Printed below.
    pub caption: Caption,
}

/// What a zone, or several, hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames by class, indexed by [`UseClass::index`].
    pub frames: [u64; UseClass::COUNT],
    /// Free blocks by order, per-CPU lists not included (`nr_free` of `/proc/buddyinfo`).
    pub nr_free: [u64; NR_PAGE_ORDERS],
    /// Pageblocks with memory in them.
    pub pageblocks: u64,
    /// Of these, by type, indexed by [`Migratetype::index`].
    pub pageblocks_by_type: [u64; NR_MIGRATETYPES],
    /// Of these, those that hold allocated memory of more than one mobility.
    pub pageblocks_mixed: u64,
    /// Of these, whole ones of which every frame is in a free block.
    pub pageblocks_free: u64,
    /// Of these, whole ones that [`NEARLY_FREE_FRAMES`] unmovable frames or fewer, but at least one,
    /// keep from being emptied: all the rest is free or movable.
    pub pageblocks_nearly_free: u64,
}

impl Statistics {
    /// Frames that exist.
    #[must_use]
    pub fn present_pages(&self) -> u64 {
        self.frames.iter().sum::<u64>() - self.frames[UseClass::Hole.index()]
    }

    /// Frames in free blocks; per-CPU lists not included, as in `nr_free_pages`.
    #[must_use]
    pub fn free_pages(&self) -> u64 {
        self.nr_free.iter().enumerate().map(|(order, blocks)| blocks << order).sum()
    }

    /// Share of the free memory that lies in blocks too small for `order`, from 0 (all of it serves)
    /// to 1 (none does); 0 where nothing is free.
    ///
    /// Models: `unusable_free_index` in mm/vmstat.c, printed by
    /// `/sys/kernel/debug/extfrag/unusable_index` in thousandths.
    #[must_use]
    pub fn unusable_index(&self, order: Order) -> f64 {
        let free = self.free_pages();
        if free == 0 {
            return 0.0;
        }
        let usable: u64 = (order.index()..NR_PAGE_ORDERS).map(|o| self.nr_free[o] << o).sum();
        (free - usable) as f64 / free as f64
    }

    /// Whether it is known of any allocated memory what it is used for. Where it is not, no pageblock
    /// counts as mixed, which then says nothing.
    #[must_use]
    pub fn knows_uses(&self) -> bool {
        let is_known = |c: &UseClass| c.mobility().is_some() && self.of(*c) > 0;
        self.of(UseClass::Unknown) == 0 || UseClass::ALL.iter().any(is_known)
    }

    /// The numbers that matter first, each with what it means.
    pub(crate) fn summary(&self, order: Order) -> Vec<(String, String)> {
        let unusable = (self.unusable_index(order) * 1000.0).round() as u64;
        let (free, present) = (self.free_pages(), self.present_pages());
        let mut lines = vec![
            (text::percent(unusable, 1000), format!("of free memory unusable for order {order}")),
            (
                text::percent(free, present),
                format!("free: {} of {}", text::pages(free), text::pages(present)),
            ),
        ];
        if !self.knows_uses() {
            lines.push(("?".to_owned(), "pageblocks mixed: uses are not known".to_owned()));
            return lines;
        }
        let (mixed, all) = (self.pageblocks_mixed, self.pageblocks);
        lines.extend([
            (
                text::percent(mixed, all),
                format!("of pageblocks mixed: {} of {}", text::count(mixed), text::count(all)),
            ),
            (text::count(self.pageblocks_free), "pageblocks wholly free".to_owned()),
            (
                text::count(self.pageblocks_nearly_free),
                format!("pageblocks pinned by 1 to {NEARLY_FREE_FRAMES} unmovable pages"),
            ),
        ]);
        lines
    }

    /// Frames of one class.
    #[must_use]
    pub fn of(&self, class: UseClass) -> u64 {
        self.frames[class.index()]
    }

    /// Adds another zone's numbers.
    pub fn add(&mut self, other: &Self) {
        add_each(&mut self.frames, &other.frames);
        add_each(&mut self.nr_free, &other.nr_free);
        add_each(&mut self.pageblocks_by_type, &other.pageblocks_by_type);
        self.pageblocks += other.pageblocks;
        self.pageblocks_mixed += other.pageblocks_mixed;
        self.pageblocks_free += other.pageblocks_free;
        self.pageblocks_nearly_free += other.pageblocks_nearly_free;
    }

    /// Counts one pageblock, or the part of one that lies in the zone.
    fn count_pageblock(
        &mut self,
        frames: &[u64; UseClass::COUNT],
        whole: u64,
        migratetype: Option<Migratetype>,
    ) {
        add_each(&mut self.frames, frames);
        if frames.iter().sum::<u64>() == frames[UseClass::Hole.index()] {
            return;
        }
        let held = Mobilities::of(frames);
        let in_blocks = frames[UseClass::FreeSmall.index()]
            + frames[UseClass::FreeMiddle.index()]
            + frames[UseClass::FreeHuge.index()];
        let could_be_emptied =
            held.movable + held.unmovable + in_blocks + frames[UseClass::PerCpu.index()] == whole;
        self.pageblocks += 1;
        if let Some(migratetype) = migratetype {
            self.pageblocks_by_type[migratetype.index()] += 1;
        }
        self.pageblocks_mixed += u64::from(held.is_mixed());
        self.pageblocks_free += u64::from(in_blocks == whole);
        self.pageblocks_nearly_free +=
            u64::from(could_be_emptied && (1..=NEARLY_FREE_FRAMES).contains(&held.unmovable));
    }
}

/// Allocated frames of a stretch by mobility.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mobilities {
    movable: u64,
    reclaimable: u64,
    unmovable: u64,
}

impl Mobilities {
    pub(crate) fn of(frames: &[u64; UseClass::COUNT]) -> Self {
        let mut held = Self::default();
        for class in UseClass::ALL {
            let count = frames[class.index()];
            match class.mobility() {
                Some(Mobility::Movable) => held.movable += count,
                Some(Mobility::Reclaimable) => held.reclaimable += count,
                Some(Mobility::Unmovable) => held.unmovable += count,
                None => {}
            }
        }
        held
    }

    /// Whether more than one mobility is present.
    pub(crate) fn is_mixed(self) -> bool {
        [self.movable, self.reclaimable, self.unmovable].iter().filter(|&&n| n > 0).count() > 1
    }
}

impl MemoryMap {
    /// A map from its parts, with an empty caption.
    ///
    /// # Panics
    /// If a zone ends beyond the frames given, or the pageblocks do not ascend.
    #[must_use]
    pub fn new(
        title: impl Into<String>,
        pageblock_order: Order,
        zones: Vec<MapZone>,
        uses: Vec<FrameUse>,
        pageblocks: Vec<(Pfn, Migratetype)>,
    ) -> Self {
        for zone in &zones {
            assert!(
                zone.end() <= uses.len() as u64,
                "{} ends at frame {:#x}, but the uses of {:#x} frames are known",
                zone.name(),
                zone.end(),
                uses.len()
            );
        }
        assert!(pageblocks.is_sorted_by_key(|(pfn, _)| *pfn), "pageblocks must ascend");
        let title = title.into();
        Self { title, pageblock_order, zones, uses, pageblocks, caption: Caption::default() }
    }

    /// The map of a snapshot whose frames have these uses; empty zones are left out.
    ///
    /// The caption begins with the kernel's release and what had to be inferred.
    ///
    /// # Panics
    /// If `uses` does not reach to the end of the last zone.
    #[must_use]
    pub fn from_snapshot(
        title: impl Into<String>,
        snapshot: &Snapshot,
        uses: Vec<FrameUse>,
    ) -> Self {
        let zones = snapshot.zones.iter().filter(|z| z.present_pages > 0).map(|z| MapZone {
            node: z.node,
            kind: z.kind,
            start: z.start_pfn,
            spanned: z.spanned_pages,
        });
        let pageblocks = snapshot.pageblocks.iter().map(|b| (b.pfn, b.migratetype)).collect();
        let mut map = Self::new(title, snapshot.pageblock_order, zones.collect(), uses, pageblocks);
        map.caption.lines.extend(snapshot.kernel_release.iter().map(|r| format!("kernel {r}")));
        map.caption.lines.extend(snapshot.inferred.iter().map(|s| format!("inferred: {s}")));
        map
    }

    /// The same map with this caption.
    #[must_use]
    pub fn with_caption(mut self, caption: Caption) -> Self {
        self.caption = caption;
        self
    }

    /// What one zone holds.
    #[must_use]
    pub fn zone_statistics(&self, zone: &MapZone) -> Statistics {
        let mut statistics = Statistics::default();
        let whole = u64::from(self.pageblock_order.pages());
        let mut free_frames = [0u64; NR_PAGE_ORDERS];
        for (start, end) in aligned_stretches(zone, whole) {
            let migratetype = self.pageblock_type(start);
            let mut counts = [0; UseClass::COUNT];
            self.each_run(start, end, |usage, frames| {
                counts[UseClass::of(usage, self.pageblock_order).index()] += frames;
                if let FrameUse::Free(order) = usage {
                    free_frames[usize::from(order)] += frames;
                }
            });
            statistics.count_pageblock(&counts, whole, migratetype);
        }
        for (order, frames) in free_frames.iter().enumerate() {
            statistics.nr_free[order] = frames >> order;
        }
        statistics
    }

    /// What all zones hold together.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let mut sum = Statistics::default();
        for zone in &self.zones {
            sum.add(&self.zone_statistics(zone));
        }
        sum
    }

    /// The type of the pageblock that holds frame `pfn`, where known.
    #[must_use]
    pub fn pageblock_type(&self, pfn: u64) -> Option<Migratetype> {
        let first = pfn >> self.pageblock_order.0 << self.pageblock_order.0;
        let i = self.pageblocks.binary_search_by_key(&first, |(p, _)| u64::from(p.0)).ok()?;
        Some(self.pageblocks[i].1)
    }

    /// The class of one frame; frames beyond the map are holes.
    #[must_use]
    pub fn class(&self, pfn: u64) -> UseClass {
        let frame = self.uses.get(pfn as usize).copied().unwrap_or(FrameUse::Hole);
        UseClass::of(frame, self.pageblock_order)
    }

    /// Frames of each class in `start..end`.
    pub(crate) fn class_counts(&self, start: u64, end: u64) -> [u64; UseClass::COUNT] {
        let mut counts = [0; UseClass::COUNT];
        self.each_run(start, end, |usage, frames| {
            counts[UseClass::of(usage, self.pageblock_order).index()] += frames;
        });
        counts
    }

    /// Tells of each run of frames of one use in `start..end`, and its length: most are long, and to count
    /// frame by frame takes several times as long.
    fn each_run(&self, start: u64, end: u64, mut tell: impl FnMut(FrameUse, u64)) {
        let mut rest = &self.uses[start as usize..end as usize];
        while let Some(first) = rest.first() {
            let frames = rest.iter().position(|usage| usage != first).unwrap_or(rest.len());
            tell(*first, frames as u64);
            rest = &rest[frames..];
        }
    }
}

/// Cuts a zone's span at the multiples of `size`, giving each stretch's first frame and the one after its
/// last: the first and the last stretch may be partial.
pub(crate) fn aligned_stretches(zone: &MapZone, size: u64) -> impl Iterator<Item = (u64, u64)> {
    let (first, end) = (u64::from(zone.start.0), zone.end());
    (first / size..end.div_ceil(size))
        .map(move |i| ((i * size).max(first), ((i + 1) * size).min(end)))
        .filter(|(start, end)| start < end)
}

pub(crate) fn add_each(sums: &mut [u64], addends: &[u64]) {
    for (sum, addend) in sums.iter_mut().zip(addends) {
        *sum += addend;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FrameUse::{
        Anon, File, Free, Hole, Kernel, PerCpu, Reserved, Slab, SlabReclaimable, Unknown,
    };
    use proptest::prelude::*;

    /// A one-zone map with pageblocks of eight frames.
    fn map(uses: Vec<FrameUse>) -> MemoryMap {
        let zone =
            MapZone { node: 0, kind: ZoneKind::Normal, start: Pfn(0), spanned: uses.len() as u64 };
        let pageblocks = (0..uses.len() as u32 / 8).map(|i| (Pfn(i * 8), Migratetype::Movable));
        MemoryMap::new("test", Order(3), vec![zone], uses, pageblocks.collect())
    }

    #[test]
    fn a_hand_worked_zone_counts_right() {
        let uses = [
            vec![Free(3); 8],                                                        // free
            vec![Anon, Anon, File, Slab, Free(2), Free(2), Free(2), Free(2)], // mixed, nearly free
            vec![SlabReclaimable, Slab, Hole, Hole, Hole, Hole, Hole, Hole],  // mixed, not whole
            vec![Kernel, PerCpu, Free(1), Free(1), Free(0), Anon, Free(1), Free(1)], // mixed, nearly
            vec![Reserved, Anon, Anon, Anon, Anon, Anon, Anon, Anon], // reserved does not mix
            vec![Hole; 8],
        ];
        let map = map(uses.concat());
        let s = map.statistics();
        assert_eq!(s.pageblocks, 5);
        assert_eq!(s.pageblocks_mixed, 3);
        assert_eq!(s.pageblocks_free, 1);
        assert_eq!(s.pageblocks_nearly_free, 2);
        assert_eq!(s.nr_free, [1, 2, 1, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(s.free_pages(), 1 + 4 + 4 + 8);
        assert_eq!(s.present_pages(), 48 - 6 - 8);
        assert_eq!(s.of(UseClass::Anon), 2 + 1 + 7);
        assert_eq!(s.of(UseClass::PerCpu), 1);
        assert_eq!(s.pageblocks_by_type[Migratetype::Movable.index()], 5);
    }

    #[test]
    fn the_unusable_index_is_the_share_in_smaller_blocks() {
        let map = map([
            vec![Free(3); 8],
            vec![Free(0), Anon, Free(1), Free(1), Anon, Anon, Anon, Free(0)],
        ]
        .concat());
        let s = map.statistics();
        // 12 free pages: 2 of order 0, 2 in order 1, 8 in order 3.
        assert_eq!(s.unusable_index(Order(0)), 0.0);
        assert_eq!(s.unusable_index(Order(1)), 2.0 / 12.0);
        assert_eq!(s.unusable_index(Order(2)), 4.0 / 12.0);
        assert_eq!(s.unusable_index(Order(3)), 4.0 / 12.0);
        assert_eq!(s.unusable_index(Order(4)), 1.0);
    }

    #[test]
    fn nothing_free_means_nothing_unusable() {
        assert_eq!(map(vec![Anon; 8]).statistics().unusable_index(Order(9)), 0.0);
    }

    #[test]
    fn uses_are_known_where_any_is_or_none_is_asked_for() {
        assert!(map(vec![Free(3); 8]).statistics().knows_uses());
        assert!(map(vec![Unknown, Anon, Free(0)]).statistics().knows_uses());
        let unknown = map(vec![Unknown, Free(0), Reserved]).statistics();
        assert!(!unknown.knows_uses());
        assert_eq!(unknown.summary(Order(9))[2].0, "?");
    }

    #[test]
    fn nine_unmovable_frames_are_too_many_to_be_nearly_free() {
        let zone = MapZone { node: 0, kind: ZoneKind::Normal, start: Pfn(0), spanned: 16 };
        let nearly_free = |pinned: usize| {
            let mut uses = vec![Anon; 16];
            uses[..pinned].fill(Slab);
            let map = MemoryMap::new("test", Order(4), vec![zone], uses, Vec::new());
            map.statistics().pageblocks_nearly_free
        };
        assert_eq!([0, 1, 8, 9].map(nearly_free), [0, 1, 1, 0]);
    }

    #[test]
    fn a_zone_that_begins_inside_a_pageblock_counts_its_part() {
        let zone = MapZone { node: 0, kind: ZoneKind::Dma, start: Pfn(1), spanned: 15 };
        let map = MemoryMap::new("test", Order(3), vec![zone], vec![Free(0); 16], Vec::new());
        let s = map.statistics();
        assert_eq!((s.pageblocks, s.pageblocks_free, s.free_pages()), (2, 1, 15));
    }

    #[test]
    #[should_panic(
        expected = "Node 1, zone Normal ends at frame 0x9, but the uses of 0x8 frames are known"
    )]
    fn a_zone_beyond_the_frames_is_refused() {
        let zone = MapZone { node: 1, kind: ZoneKind::Normal, start: Pfn(1), spanned: 8 };
        let _ = MemoryMap::new("test", Order(3), vec![zone], vec![Anon; 8], Vec::new());
    }

    proptest! {
        #[test]
        fn stretches_tile_the_span(start in 0u32..100, spanned in 0u64..300, order in 0u8..6) {
            let zone = MapZone { node: 0, kind: ZoneKind::Normal, start: Pfn(start), spanned };
            let mut next = u64::from(start);
            for (from, to) in aligned_stretches(&zone, 1 << order) {
                prop_assert_eq!(from, next);
                prop_assert!(to > from && to - from <= 1 << order);
                next = to;
            }
            prop_assert_eq!(next, zone.end());
        }
    }
}
