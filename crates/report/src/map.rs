//! What lies in every frame of a machine, and what that says about fragmentation.

use crate::palette::{Mobility, UseClass};
use highorder_mm::types::{Migratetype, NR_MIGRATETYPES, NR_PAGE_ORDERS, Order, Pfn, ZoneKind};
use highorder_snapshot::{Exactness, FrameUse, Snapshot, ZoneState};
use highorder_tables::text;
use std::collections::BTreeMap;

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
    /// Frames that exist.
    pub present: u64,
    /// Frames that the page allocator manages.
    pub managed: u64,
    /// Pages on per-CPU lists of which only the number is known: they are among the frames of
    /// [`UseClass::KernelOrPerCpu`].
    pub per_cpu_somewhere: u64,
}

impl MapZone {
    /// The frame after the last.
    #[must_use]
    pub fn end(&self) -> u64 {
        u64::from(self.start.0) + self.spanned
    }

    /// The zones of a snapshot in its order, without those that have no memory.
    #[must_use]
    pub fn all_of(snapshot: &Snapshot) -> Vec<Self> {
        let zones = snapshot.zones.iter().filter(|zone| zone.present_pages > 0);
        let of = |zone: &ZoneState| Self {
            node: zone.node,
            kind: zone.kind,
            start: zone.start_pfn,
            spanned: zone.spanned_pages,
            present: zone.present_pages,
            managed: zone.managed_pages,
            per_cpu_somewhere: match snapshot.exactness {
                Exactness::Frames => zone.nr_per_cpu_pages(),
                Exactness::Counts | Exactness::Lists => 0,
            },
        };
        zones.map(of).collect()
    }

    /// Its size by the kernel's own counts.
    #[must_use]
    pub fn size(&self) -> String {
        text::zone_size(self.present, self.managed)
    }

    /// What stands in place of so many frames of it that the kernel has no pages of.
    pub(crate) fn words_for_holes(&self, frames: u64) -> String {
        let amount = text::pages(frames);
        match self.spanned.saturating_sub(self.present) {
            0 => format!("memory not in use yet: {amount}"),
            absent if frames <= absent => format!("no memory: {amount}"),
            _ => format!("no memory, or not in use yet: {amount}"),
        }
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

/// Who holds stretches of frames, by names finer than those of [`FrameUse`]: `slab dentry`, `pipe`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    names: Vec<String>,
    /// First frame, the frame after the last, and whose they are; ascending.
    runs: Vec<(u64, u64, usize)>,
}

impl Holders {
    /// Notes that `frames` frames from `start` are held by `name`.
    ///
    /// # Panics
    /// If `start` lies before the end of what was noted last.
    pub fn push(&mut self, start: Pfn, frames: u32, name: &str) {
        let start = u64::from(start.0);
        let end = start + u64::from(frames);
        let number = self.names.iter().position(|known| known == name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        match self.runs.last_mut() {
            Some(last) if last.1 > start => panic!("holders must ascend: frame {start:#x}"),
            Some(last) if last.1 == start && last.2 == number => last.1 = end,
            _ => self.runs.push((start, end, number)),
        }
    }

    /// Tells of each stretch of `start..end` that one name holds, or none, and its length.
    fn each(&self, start: u64, end: u64, mut tell: impl FnMut(Option<&str>, u64)) {
        let mut at = start;
        let first = self.runs.partition_point(|run| run.1 <= start);
        for (from, to, number) in self.runs[first..].iter().take_while(|run| run.0 < end) {
            if *from > at {
                tell(None, from - at);
                at = *from;
            }
            let to = (*to).min(end);
            tell(Some(&self.names[*number]), to - at);
            at = to;
        }
        if at < end {
            tell(None, end - at);
        }
    }
}

/// Something that keeps mixed or nearly free pageblocks from being emptied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinner {
    /// What it is: as [`Holders`] call it, or else as the legend does.
    pub name: String,
    /// Whether a shrinker could free it, or it stays.
    pub mobility: Mobility,
    /// Mixed or nearly free pageblocks that it has pages in.
    pub pageblocks: u64,
    /// Its pages in them.
    pub pages: u64,
}

impl Pinner {
    /// Its name, and behind it that it can be reclaimed, where the name does not say so.
    pub(crate) fn caption(&self) -> String {
        match self.mobility {
            Mobility::Reclaimable if !self.name.contains(self.mobility.name()) => {
                format!("{} ({})", self.name, self.mobility.name())
            }
            _ => self.name.clone(),
        }
    }
}

/// The most frequent first, by pageblocks, then by pages.
fn sort_pinners(pinners: &mut [Pinner]) {
    pinners.sort_by(|a, b| {
        let rank = |p: &Pinner| (p.pageblocks, p.pages);
        rank(b).cmp(&rank(a)).then_with(|| a.name.cmp(&b.name)).then(a.mobility.cmp(&b.mobility))
    });
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
    /// Who holds frames, where more is known than their use.
    pub holders: Holders,
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
    /// Of these, those that hold allocated memory of more than one mobility, whatever the frames are of which
    /// that is not known.
    pub pageblocks_mixed: u64,
    /// Of the others, those that do if their frames of [`UseClass::KernelOrPerCpu`] are the kernel's.
    pub pageblocks_maybe_mixed: u64,
    /// Of these, whole ones of which every frame is in a free block.
    pub pageblocks_free: u64,
    /// Of these, whole ones that [`NEARLY_FREE_FRAMES`] unmovable frames or fewer, but at least one,
    /// keep from being emptied: all the rest is free or movable. As with mixed ones, those that are so
    /// whatever is not known.
    pub pageblocks_nearly_free: u64,
    /// Of the others, those of which that depends on what their frames of [`UseClass::KernelOrPerCpu`] are.
    pub pageblocks_maybe_nearly_free: u64,
    /// Frames that the page allocator manages (`managed` of `/proc/zoneinfo`).
    pub managed_pages: u64,
    /// Frames of [`UseClass::KernelOrPerCpu`] that are the kernel's at least: there are more of them than
    /// pages on per-CPU lists and frames that nobody manages.
    pub kernel_pages_least: u64,
    /// What cannot be moved in pageblocks that are mixed or nearly free, the most frequent first.
    pub pinners: Vec<Pinner>,
}

impl Statistics {
    /// Frames that the kernel has pages of: those that exist, but for memory that it has not taken into use.
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
        let managed = self.managed_pages;
        let mut lines = vec![
            (text::percent(unusable, 1000), format!("of free memory unusable for order {order}")),
            (
                text::percent(free, managed),
                format!("free: {} of {} managed", text::pages(free), text::pages(managed)),
            ),
        ];
        if !self.knows_uses() {
            lines.push(("?".to_owned(), "pageblocks mixed: uses are not known".to_owned()));
            return lines;
        }
        let share = |pages| text::percent(pages, present);
        let of_mobility = |mobility| share(self.of_mobility(mobility));
        let pinned = text::range(self.pinned_pages().map(share));
        lines.push((
            of_mobility(Mobility::Movable),
            format!("movable, {} reclaimable, {pinned} pinned", of_mobility(Mobility::Reclaimable)),
        ));
        let unknown = self.of(UseClass::KernelOrPerCpu);
        if unknown > 0 {
            let meaning = "unknown: kernel or free per-CPU pages".to_owned();
            lines.push((share(unknown), meaning));
        }
        let (mixed, all) = (self.mixed(), self.pageblocks);
        let [least, most] = mixed.map(|blocks| text::percent(blocks, all));
        let count = text::count(all);
        lines.push(match mixed[0] == mixed[1] {
            true => (least, format!("of pageblocks mixed: {} of {count}", text::count(mixed[0]))),
            false => (least, format!("to {most} of {count} pageblocks mixed")),
        });
        lines.push((text::count(self.pageblocks_free), "pageblocks wholly free".to_owned()));
        let [least, most] = self.nearly_free().map(text::count);
        let to_most = if least == most { String::new() } else { format!("to {most} ") };
        let meaning =
            format!("{to_most}pageblocks pinned by 1 to {NEARLY_FREE_FRAMES} unmovable pages");
        lines.push((least, meaning));
        lines
    }

    /// Mixed pageblocks, at least and at most.
    #[must_use]
    pub fn mixed(&self) -> [u64; 2] {
        [self.pageblocks_mixed, self.pageblocks_mixed + self.pageblocks_maybe_mixed]
    }

    /// Pageblocks that few unmovable frames keep from being emptied, at least and at most.
    #[must_use]
    pub fn nearly_free(&self) -> [u64; 2] {
        let least = self.pageblocks_nearly_free;
        [least, least + self.pageblocks_maybe_nearly_free]
    }

    /// Unmovable frames, at least and at most.
    #[must_use]
    pub fn pinned_pages(&self) -> [u64; 2] {
        let known = self.of_mobility(Mobility::Unmovable);
        [known + self.kernel_pages_least, known + self.of(UseClass::KernelOrPerCpu)]
    }

    /// Frames of one class.
    #[must_use]
    pub fn of(&self, class: UseClass) -> u64 {
        self.frames[class.index()]
    }

    /// Allocated frames of one mobility.
    #[must_use]
    pub fn of_mobility(&self, mobility: Mobility) -> u64 {
        let classes = UseClass::ALL.into_iter().filter(|class| class.mobility() == Some(mobility));
        classes.map(|class| self.of(class)).sum()
    }

    /// Adds another zone's numbers.
    pub fn add(&mut self, other: &Self) {
        add_each(&mut self.frames, &other.frames);
        add_each(&mut self.nr_free, &other.nr_free);
        add_each(&mut self.pageblocks_by_type, &other.pageblocks_by_type);
        self.pageblocks += other.pageblocks;
        self.pageblocks_mixed += other.pageblocks_mixed;
        self.pageblocks_free += other.pageblocks_free;
        self.pageblocks_maybe_mixed += other.pageblocks_maybe_mixed;
        self.pageblocks_nearly_free += other.pageblocks_nearly_free;
        self.pageblocks_maybe_nearly_free += other.pageblocks_maybe_nearly_free;
        self.managed_pages += other.managed_pages;
        self.kernel_pages_least += other.kernel_pages_least;
        for pinner in &other.pinners {
            let same =
                |ours: &&mut Pinner| (&ours.name, ours.mobility) == (&pinner.name, pinner.mobility);
            match self.pinners.iter_mut().find(same) {
                Some(ours) => {
                    ours.pageblocks += pinner.pageblocks;
                    ours.pages += pinner.pages;
                }
                None => self.pinners.push(pinner.clone()),
            }
        }
        sort_pinners(&mut self.pinners);
    }

    /// Counts one pageblock, or the part of one that lies in the zone. Whether it is mixed or nearly free for
    /// certain.
    fn count_pageblock(
        &mut self,
        frames: &[u64; UseClass::COUNT],
        whole: u64,
        migratetype: Option<Migratetype>,
    ) -> bool {
        add_each(&mut self.frames, frames);
        if frames.iter().sum::<u64>() == frames[UseClass::Hole.index()] {
            return false;
        }
        let held = Mobilities::of(frames);
        let in_blocks = frames[UseClass::FreeSmall.index()]
            + frames[UseClass::FreeMiddle.index()]
            + frames[UseClass::FreeHuge.index()];
        let unknown = frames[UseClass::KernelOrPerCpu.index()];
        let others = in_blocks + frames[UseClass::PerCpu.index()] + unknown;
        let could_be_emptied = held.movable + held.unmovable + others == whole;
        self.pageblocks += 1;
        if let Some(migratetype) = migratetype {
            self.pageblocks_by_type[migratetype.index()] += 1;
        }
        self.pageblocks_mixed += u64::from(held.is_mixed());
        self.pageblocks_free += u64::from(in_blocks == whole);
        let if_kernel = Mobilities { unmovable: held.unmovable + unknown, ..held };
        self.pageblocks_maybe_mixed += u64::from(!held.is_mixed() && if_kernel.is_mixed());
        let is_few = |pages: u64| (1..=NEARLY_FREE_FRAMES).contains(&pages);
        let is_nearly_free =
            could_be_emptied && is_few(held.unmovable) && is_few(if_kernel.unmovable);
        // Some number from the least to the most is a few.
        let may_be =
            could_be_emptied && held.unmovable <= NEARLY_FREE_FRAMES && if_kernel.unmovable >= 1;
        self.pageblocks_nearly_free += u64::from(is_nearly_free);
        self.pageblocks_maybe_nearly_free += u64::from(may_be && !is_nearly_free);
        held.is_mixed() || is_nearly_free
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
        let (holders, caption) = (Holders::default(), Caption::default());
        Self { title, pageblock_order, zones, uses, pageblocks, holders, caption }
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
        let zones = MapZone::all_of(snapshot);
        let pageblocks = snapshot.pageblocks.iter().map(|b| (b.pfn, b.migratetype)).collect();
        let mut map = Self::new(title, snapshot.pageblock_order, zones, uses, pageblocks);
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

    /// The same map with names of who holds frames.
    #[must_use]
    pub fn with_holders(mut self, holders: Holders) -> Self {
        self.holders = holders;
        self
    }

    /// What one zone holds.
    #[must_use]
    pub fn zone_statistics(&self, zone: &MapZone) -> Statistics {
        let mut statistics = Statistics::default();
        let whole = u64::from(self.pageblock_order.pages());
        let mut free_frames = [0u64; NR_PAGE_ORDERS];
        let mut pinners = BTreeMap::new();
        for (start, end) in aligned_stretches(zone, whole) {
            let migratetype = self.pageblock_type(start);
            let mut counts = [0; UseClass::COUNT];
            self.each_run(start, end, |_, usage, frames| {
                counts[UseClass::of(usage, self.pageblock_order).index()] += frames;
                if let FrameUse::Free(order) = usage {
                    free_frames[usize::from(order)] += frames;
                }
            });
            if statistics.count_pageblock(&counts, whole, migratetype) {
                for (name, pages) in self.pinned_in(start, end) {
                    let sums: &mut (u64, u64) = pinners.entry(name).or_default();
                    *sums = (sums.0 + 1, sums.1 + pages);
                }
            }
        }
        let pinners = pinners.into_iter().map(|((name, mobility), (pageblocks, pages))| Pinner {
            name,
            mobility,
            pageblocks,
            pages,
        });
        statistics.pinners = pinners.collect();
        sort_pinners(&mut statistics.pinners);
        for (order, frames) in free_frames.iter().enumerate() {
            statistics.nr_free[order] = frames >> order;
        }
        statistics.managed_pages = zone.managed;
        let unreserved = statistics.present_pages() - statistics.of(UseClass::Reserved);
        let not_kernel = zone.per_cpu_somewhere + unreserved.saturating_sub(zone.managed);
        statistics.kernel_pages_least =
            statistics.of(UseClass::KernelOrPerCpu).saturating_sub(not_kernel);
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
        self.each_run(start, end, |_, usage, frames| {
            counts[UseClass::of(usage, self.pageblock_order).index()] += frames;
        });
        counts
    }

    /// What in `start..end` cannot be moved, by name, and how many pages of each.
    fn pinned_in(&self, start: u64, end: u64) -> BTreeMap<(String, Mobility), u64> {
        let mut pinned = BTreeMap::new();
        self.each_run(start, end, |at, usage, frames| {
            let class = UseClass::of(usage, self.pageblock_order);
            let Some(mobility) = class.mobility().filter(|m| *m != Mobility::Movable) else {
                return;
            };
            self.holders.each(at, at + frames, |name, pages| {
                let name = name.unwrap_or(class.swatch().label).to_owned();
                *pinned.entry((name, mobility)).or_default() += pages;
            });
        });
        pinned
    }

    /// Stretches of a zone's frames that the kernel has no pages of.
    pub(crate) fn holes(&self, zone: &MapZone) -> Vec<(u64, u64)> {
        let mut holes = Vec::new();
        self.each_run(u64::from(zone.start.0), zone.end(), |start, usage, frames| {
            if UseClass::of(usage, self.pageblock_order) == UseClass::Hole {
                holes.push((start, start + frames));
            }
        });
        holes
    }

    /// Tells of each run of frames of one use in `start..end`: where it begins, the use, and its length.
    /// Most are long, and to count frame by frame takes several times as long.
    fn each_run(&self, start: u64, end: u64, mut tell: impl FnMut(u64, FrameUse, u64)) {
        let mut at = start;
        while at < end {
            let rest = &self.uses[at as usize..end as usize];
            let frames = rest.iter().position(|usage| *usage != rest[0]).unwrap_or(rest.len());
            tell(at, rest[0], frames as u64);
            at += frames as u64;
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
        let zone = MapZone {
            node: 0,
            kind: ZoneKind::Normal,
            start: Pfn(0),
            spanned: uses.len() as u64,
            present: uses.len() as u64,
            managed: uses.len() as u64,
            per_cpu_somewhere: 0,
        };
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
        assert_eq!(s.of_mobility(Mobility::Movable), 3 + 1 + 7);
        assert_eq!(s.of_mobility(Mobility::Reclaimable), 1);
        assert_eq!(s.of_mobility(Mobility::Unmovable), 1 + 1 + 1);
    }

    #[test]
    fn frames_that_may_be_free_make_ranges_of_what_is_mixed_and_pinned() {
        use FrameUse::KernelOrPerCpu as Unsure;
        let uses = [
            vec![Anon, Slab, Unsure, Unsure, Anon, Anon, Anon, Anon], // mixed and nearly free, always
            vec![Anon, Anon, Anon, Unsure, Unsure, Anon, Anon, Free(0)], // both, if one is the kernel's
            vec![Slab, Slab, Unsure, Unsure, Slab, Slab, Slab, Reserved], // neither
            vec![Unsure; 8],                                             // nearly free, if one is
            vec![SlabReclaimable, Unsure, Hole, Hole, Hole, Hole, Hole, Hole], // mixed, if it is
        ];
        let mut map = map(uses.concat());
        let s = map.statistics();
        assert_eq!(s.mixed(), [1, 3]);
        assert_eq!(s.nearly_free(), [1, 3]);
        assert_eq!(s.of(UseClass::KernelOrPerCpu), 15);
        assert_eq!(s.of_mobility(Mobility::Unmovable), 1 + 5);
        map.zones[0].managed = 33;
        map.zones[0].per_cpu_somewhere = 11;
        let pinned = map.statistics().pinned_pages();
        assert_eq!(
            pinned,
            [6 + 4, 6 + 15],
            "four more are without flags than lie on per-CPU lists"
        );
        map.zones[0].managed = 30;
        let pinned = map.statistics().pinned_pages();
        assert_eq!(pinned, [6 + 1, 6 + 15], "three of them are not the allocator's");
        let told: Vec<String> = map
            .statistics()
            .summary(Order(3))
            .into_iter()
            .map(|(a, b)| format!("{a} {b}"))
            .collect();
        assert_eq!(told[3], "44 % unknown: kernel or free per-CPU pages");
        assert_eq!(told[4], "20 % to 60 % of 5 pageblocks mixed");
        assert_eq!(told[6], "1 to 3 pageblocks pinned by 1 to 8 unmovable pages");
    }

    #[test]
    fn draining_per_cpu_lists_leaves_ranges_that_overlap() {
        use FrameUse::KernelOrPerCpu as Unsure;
        let block = |usage| vec![Anon, Anon, usage, usage, Anon, Anon, Anon, Anon];
        let with_per_cpu = |uses: Vec<FrameUse>, per_cpu_somewhere| {
            let mut map = map(uses);
            map.zones[0].per_cpu_somewhere = per_cpu_somewhere;
            map.statistics()
        };
        let held = with_per_cpu([block(Unsure), block(Unsure), block(Slab)].concat(), 3);
        let drained = with_per_cpu([block(Free(0)), block(Unsure), block(Slab)].concat(), 1);
        for ranges in [
            [held.mixed(), drained.mixed()],
            [held.nearly_free(), drained.nearly_free()],
            [held.pinned_pages(), drained.pinned_pages()],
        ] {
            let [[a_least, a_most], [b_least, b_most]] = ranges;
            assert!(a_least <= b_most && b_least <= a_most, "{ranges:?}");
        }
        assert_eq!((held.mixed(), drained.mixed()), ([1, 3], [1, 2]));
        assert_eq!((held.pinned_pages(), drained.pinned_pages()), ([3, 6], [3, 4]));
    }

    #[test]
    fn memory_that_is_present_but_not_in_use_yet_is_not_called_no_memory() {
        let zone = |present| MapZone {
            node: 0,
            kind: ZoneKind::Normal,
            start: Pfn(0),
            spanned: 4096,
            present,
            managed: 1024,
            per_cpu_somewhere: 0,
        };
        assert_eq!(zone(4096).words_for_holes(2048), "memory not in use yet: 8 MiB");
        assert_eq!(zone(2048).words_for_holes(2048), "no memory: 8 MiB");
        assert_eq!(zone(3072).words_for_holes(2048), "no memory, or not in use yet: 8 MiB");
        assert_eq!(zone(2048).size(), "8 MiB present, 4 MiB managed");
    }

    #[test]
    fn what_pins_mixed_and_nearly_free_pageblocks_is_told_by_name_the_most_frequent_first() {
        use FrameUse::{KernelStack, Pinned};
        let uses = [
            vec![Anon, Anon, File, Slab, Slab, Slab, Free(0), Free(0)], // mixed
            vec![Slab, Slab, SlabReclaimable, Kernel, Anon, Anon, Anon, Anon], // mixed
            vec![KernelStack, KernelStack, Free(1), Free(1), Free(2), Free(2), Free(2), Free(2)],
            vec![Slab, Slab, Slab, Slab, Slab, Slab, Slab, Reserved], // neither
            vec![Pinned, Anon, Anon, Anon, Anon, Anon, Anon, Anon],   // mixed
        ];
        let mut holders = Holders::default();
        holders.push(Pfn(3), 2, "slab dentry");
        holders.push(Pfn(8), 1, "slab dentry");
        holders.push(Pfn(9), 1, "slab kmalloc-64");
        holders.push(Pfn(24), 7, "slab dentry");
        let s = map(uses.concat()).with_holders(holders).statistics();
        assert_eq!((s.pageblocks_mixed, s.pageblocks_nearly_free), (3, 3));
        let found: Vec<(&str, &str, u64, u64)> = s
            .pinners
            .iter()
            .map(|p| (p.name.as_str(), p.mobility.name(), p.pageblocks, p.pages))
            .collect();
        assert_eq!(
            found,
            [
                ("slab dentry", "pinned", 2, 3),
                ("kernel stacks", "pinned", 1, 2),
                ("kernel, other", "pinned", 1, 1),
                ("pinned user pages", "pinned", 1, 1),
                ("slab kmalloc-64", "pinned", 1, 1),
                ("slab, reclaimable", "reclaimable", 1, 1),
                ("slab, unreclaimable", "pinned", 1, 1),
            ]
        );
        let mut twice = s.clone();
        twice.add(&s);
        let doubled =
            |p: &Pinner| Pinner { pageblocks: 2 * p.pageblocks, pages: 2 * p.pages, ..p.clone() };
        assert_eq!(twice.pinners, s.pinners.iter().map(doubled).collect::<Vec<_>>());
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
        let zone = MapZone {
            node: 0,
            kind: ZoneKind::Normal,
            start: Pfn(0),
            spanned: 16,
            present: 16,
            managed: 16,
            per_cpu_somewhere: 0,
        };
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
        let zone = MapZone {
            node: 0,
            kind: ZoneKind::Dma,
            start: Pfn(1),
            spanned: 15,
            present: 15,
            managed: 15,
            per_cpu_somewhere: 0,
        };
        let map = MemoryMap::new("test", Order(3), vec![zone], vec![Free(0); 16], Vec::new());
        let s = map.statistics();
        assert_eq!((s.pageblocks, s.pageblocks_free, s.free_pages()), (2, 1, 15));
    }

    #[test]
    #[should_panic(
        expected = "Node 1, zone Normal ends at frame 0x9, but the uses of 0x8 frames are known"
    )]
    fn a_zone_beyond_the_frames_is_refused() {
        let zone = MapZone {
            node: 1,
            kind: ZoneKind::Normal,
            start: Pfn(1),
            spanned: 8,
            present: 8,
            managed: 8,
            per_cpu_somewhere: 0,
        };
        let _ = MemoryMap::new("test", Order(3), vec![zone], vec![Anon; 8], Vec::new());
    }

    proptest! {
        #[test]
        fn holders_cover_each_stretch_once(
            runs in prop::collection::vec((0u32..5, 1u32..9, 0usize..3), 0..20),
            start in 0u64..60, frames in 0u64..80,
        ) {
            let names = ["a", "b", "c"];
            let mut holders = Holders::default();
            let mut of_frame: Vec<Option<&str>> = Vec::new();
            for (gap, frames, name) in runs {
                of_frame.extend(vec![None; gap as usize]);
                holders.push(Pfn(of_frame.len() as u32), frames, names[name]);
                of_frame.extend(vec![Some(names[name]); frames as usize]);
            }
            let mut at = start;
            holders.each(start, start + frames, |name, frames| {
                for frame in at..at + frames {
                    assert_eq!(of_frame.get(frame as usize).copied().flatten(), name);
                }
                at += frames;
            });
            prop_assert_eq!(at, start + frames);
        }

        #[test]
        fn stretches_tile_the_span(start in 0u32..100, spanned in 0u64..300, order in 0u8..6) {
            let zone = MapZone { node: 0, kind: ZoneKind::Normal, start: Pfn(start), spanned, present: spanned, managed: spanned, per_cpu_somewhere: 0 };
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
