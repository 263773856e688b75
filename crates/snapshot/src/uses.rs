//! What each frame is used for, which pageblocks are mixed, and whether a snapshot agrees with
//! the machine's own counts.
//!
//! A page on a per-CPU list has no flag at all, and neither has a kernel page of no special kind;
//! `/proc/kpagecount` counts mappings, which neither has. So where the lists were not read, a frame without
//! flags is [`FrameUse::KernelOrPerCpu`], and only how many of a zone's are free is known: the `count` of its
//! `pagesets` in `/proc/zoneinfo`.
//!
//! Models: fs/proc/page.c (`stable_page_flags`), v6.1 and v6.12: the flags say what a page is, not
//! who owns it, so that kernel memory is whatever has none of the other flags.
//! Departs: stacks, network buffers, a block device's pages and pages that are held in place have no flag of their
//! own. Visible as: the first two are kernel memory of another use, buffers are page cache, and a page that
//! cannot be moved for now counts as movable.

use crate::state::{Exactness, FrameUse, Snapshot, ZoneState};
use highorder_kernelfs::{Buddyinfo, PageFlags, Pagetypeinfo, TextFile, Zoneinfo};
use highorder_mm::types::{Migratetype, Pfn};
use std::collections::BTreeMap;

/// Flags that only pages of user memory carry, also while they are off the LRU lists.
const USER: PageFlags = PageFlags::LRU
    .union(PageFlags::UPTODATE)
    .union(PageFlags::SWAPBACKED)
    .union(PageFlags::SWAPCACHE)
    .union(PageFlags::WRITEBACK)
    .union(PageFlags::UNEVICTABLE);

/// A pageblock in which pages of different mobility are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MixedPageblock {
    /// First frame.
    pub pfn: Pfn,
    /// Its type.
    pub migratetype: Migratetype,
    /// Pages that migration can move: anonymous, page cache, huge.
    pub nr_movable: u32,
    /// Kernel pages, page tables, unreclaimable slab and what is pinned.
    pub nr_unmovable: u32,
    /// Reclaimable slab.
    pub nr_reclaimable: u32,
}

impl MixedPageblock {
    fn is_mixed(&self) -> bool {
        let kinds = [self.nr_movable, self.nr_unmovable, self.nr_reclaimable];
        kinds.into_iter().filter(|&nr| nr > 0).count() > 1
    }
}

impl Snapshot {
    /// Returns what each frame is used for, frame 0 first.
    ///
    /// Free and per-CPU pages come from the lists, everything else from `kpageflags`. Where per-CPU lists
    /// were counted but not read, a frame without flags is [`FrameUse::KernelOrPerCpu`]. A slab is
    /// reclaimable if the snapshot says that its cache is, and where it does not say, if its
    /// pageblock's type is Reclaimable. Where nothing but counts is known, a zone's frames are
    /// [`FrameUse::Unknown`], but for as many holes as it has, which are taken to be at its end.
    #[must_use]
    pub fn frame_uses(&self) -> Vec<FrameUse> {
        let mut uses = self.uses_by_flags();
        for run in self.reclaimable_slabs.iter().flatten() {
            let range = run.pfn.index()..run.pfn.index() + run.nr_pages as usize;
            for frame in uses.get_mut(range).into_iter().flatten() {
                if *frame == FrameUse::Slab {
                    *frame = FrameUse::SlabReclaimable;
                }
            }
        }
        if self.reclaimable_slabs.is_none() {
            self.reclaimable_by_pageblock(&mut uses);
        }
        for zone in &self.zones {
            for pcp in &zone.pcp {
                for block in &pcp.blocks {
                    fill(&mut uses, block.pfn, block.order.pages(), FrameUse::PerCpu);
                }
            }
            for block in &zone.free {
                let free = FrameUse::Free(block.order.0);
                fill(&mut uses, block.pfn, block.order.pages(), free);
            }
        }
        for run in &self.reserved {
            fill(&mut uses, run.pfn, run.nr_pages, FrameUse::Reserved);
        }
        if self.kpageflags.is_empty() {
            self.place_holes(&mut uses);
        } else if self.exactness == Exactness::Frames {
            self.doubt_frames_without_flags(&mut uses);
        }
        uses
    }

    /// Returns the pageblocks with allocated pages of more than one mobility, ascending.
    ///
    /// Free pages, pages on per-CPU lists, reserved ones, holes and those of unknown use count for nothing.
    #[must_use]
    pub fn mixed_pageblocks(&self) -> Vec<MixedPageblock> {
        let uses = self.frame_uses();
        let tally = |pfn: Pfn, migratetype| {
            let end = (pfn.index() + self.pageblock_order.pages() as usize).min(uses.len());
            let mut block = MixedPageblock {
                pfn,
                migratetype,
                nr_movable: 0,
                nr_unmovable: 0,
                nr_reclaimable: 0,
            };
            for frame in uses.get(pfn.index()..end).into_iter().flatten() {
                match mobility(*frame) {
                    Some(Migratetype::Movable) => block.nr_movable += 1,
                    Some(Migratetype::Reclaimable) => block.nr_reclaimable += 1,
                    Some(_) => block.nr_unmovable += 1,
                    None => {}
                }
            }
            block
        };
        let blocks = self.pageblocks.iter().map(|block| tally(block.pfn, block.migratetype));
        blocks.filter(MixedPageblock::is_mixed).collect()
    }

    /// Compares the snapshot with its own text files and its parts with each other, and returns
    /// each difference as a sentence.
    ///
    /// Differences are no damage: the text was read a moment before or after the lists.
    #[must_use]
    pub fn check(&self) -> Vec<String> {
        let mut found = Vec::new();
        if let Some(text) = self.files.get("buddyinfo") {
            match Buddyinfo::parse("buddyinfo", text) {
                Ok(table) => self.check_buddyinfo(&table, &mut found),
                Err(error) => found.push(error.to_string()),
            }
        }
        if let Some(text) = self.files.get("pagetypeinfo") {
            match Pagetypeinfo::parse("pagetypeinfo", text) {
                Ok(table) => self.check_pagetypeinfo(&table, &mut found),
                Err(error) => found.push(error.to_string()),
            }
        }
        if let Some(text) = self.files.get("zoneinfo") {
            match Zoneinfo::parse("zoneinfo", text) {
                Ok(table) => self.check_zoneinfo(&table, &mut found),
                Err(error) => found.push(error.to_string()),
            }
        }
        self.check_flags(&mut found);
        found
    }

    /// Returns the zone that a frame lies in; where spans overlap, the one that comes first.
    #[must_use]
    pub fn zone_of(&self, pfn: Pfn) -> Option<&ZoneState> {
        self.zones.iter().find(|zone| zone.spans(pfn, 1))
    }

    fn uses_by_flags(&self) -> Vec<FrameUse> {
        if self.kpageflags.is_empty() {
            let mut uses = vec![FrameUse::Hole; self.nr_frames as usize];
            for zone in &self.zones {
                let range = zone.start_pfn.index()..zone.end_pfn() as usize;
                uses[range].fill(FrameUse::Unknown);
            }
            return uses;
        }
        let mut uses = Vec::with_capacity(self.kpageflags.len());
        let mut head = FrameUse::Kernel;
        for &flags in &self.kpageflags {
            let flags = PageFlags::from_bits_retain(flags);
            // A tail's own flags differ by kernel; it is what its head is.
            if !flags.contains(PageFlags::COMPOUND_TAIL) {
                head = use_of(flags);
            }
            uses.push(head);
        }
        uses
    }

    /// Makes holes of as many unknown frames as each zone has, from its end.
    fn place_holes(&self, uses: &mut [FrameUse]) {
        for zone in &self.zones {
            let frames = uses[zone.start_pfn.index()..zone.end_pfn() as usize].iter_mut().rev();
            let unknown = frames.filter(|frame| **frame == FrameUse::Unknown);
            unknown.take(zone.nr_holes() as usize).for_each(|frame| *frame = FrameUse::Hole);
        }
    }

    /// Takes back that frames without flags are the kernel's, in zones whose per-CPU lists hold pages.
    fn doubt_frames_without_flags(&self, uses: &mut [FrameUse]) {
        for zone in self.zones.iter().filter(|zone| zone.nr_per_cpu_pages() > 0) {
            let start = zone.start_pfn.index().min(uses.len());
            let end = (zone.end_pfn() as usize).min(uses.len());
            let frames = uses[start..end].iter_mut().zip(&self.kpageflags[start..end]);
            for (usage, _) in frames.filter(|(_, flags)| **flags == 0) {
                if *usage == FrameUse::Kernel {
                    *usage = FrameUse::KernelOrPerCpu;
                }
            }
        }
    }

    fn reclaimable_by_pageblock(&self, uses: &mut [FrameUse]) {
        for block in self.pageblocks.iter().filter(|b| b.migratetype == Migratetype::Reclaimable) {
            let start = block.pfn.index().min(uses.len());
            let end = (start + self.pageblock_order.pages() as usize).min(uses.len());
            for frame in uses[start..end].iter_mut().filter(|f| **f == FrameUse::Slab) {
                *frame = FrameUse::SlabReclaimable;
            }
        }
    }

    fn check_buddyinfo(&self, table: &Buddyinfo, found: &mut Vec<String>) {
        // Without positions there is nothing to compare with.
        if self.exactness == Exactness::Counts && self.zones.iter().all(|z| z.free.is_empty()) {
            return;
        }
        for zone in &self.zones {
            let Some(row) = table.zone(zone.node, zone.kind.name()) else {
                let what = format!("node {} zone {}", zone.node, zone.kind);
                found.push(format!("{what} is missing in buddyinfo"));
                continue;
            };
            for (order, listed) in zone.nr_free().into_iter().enumerate() {
                let said = row.counts.get(order).copied().unwrap_or(0);
                if said != listed {
                    found.push(format!(
                        "node {} zone {}: {listed} free blocks of order {order}, buddyinfo says {said}",
                        zone.node, zone.kind
                    ));
                }
            }
        }
    }

    fn check_pagetypeinfo(&self, table: &Pagetypeinfo, found: &mut Vec<String>) {
        let ours = self.pageblock_order;
        if let Some(said) = table.page_block_order().filter(|&said| said != u64::from(ours.0)) {
            found.push(format!("pageblocks of order {ours}, pagetypeinfo says {said}"));
        }
        for zone in self.zones.iter().filter(|_| self.exactness > Exactness::Counts) {
            let mut listed = BTreeMap::new();
            for block in &zone.free {
                *listed.entry((block.migratetype, block.order)).or_insert(0u64) += 1;
            }
            for row in table.free() {
                let Some(migratetype) = Migratetype::from_name(&row.migratetype) else { continue };
                if row.node != zone.node || row.zone != zone.kind.name() {
                    continue;
                }
                for (order, said) in row.counts.iter().enumerate() {
                    let key = (migratetype, highorder_mm::types::Order(order as u8));
                    let listed = listed.get(&key).copied().unwrap_or(0);
                    let agrees = match said.is_lower_bound {
                        true => listed >= said.blocks,
                        false => listed == said.blocks,
                    };
                    if !agrees {
                        found.push(format!(
                            "node {} zone {}: {listed} free {migratetype} blocks of order {order}, \
                             pagetypeinfo says {}",
                            zone.node, zone.kind, said.blocks
                        ));
                    }
                }
            }
            for migratetype in Migratetype::ALL {
                let said = table.nr_blocks(zone.node, zone.kind.name(), migratetype.name());
                let nr = self
                    .pageblocks_of(zone)
                    .filter(|block| block.migratetype == migratetype)
                    .count() as u64;
                if let Some(said) = said.filter(|&said| said != nr) {
                    found.push(format!(
                        "node {} zone {}: {nr} {migratetype} pageblocks, pagetypeinfo says {said}",
                        zone.node, zone.kind
                    ));
                }
            }
        }
    }

    /// The pageblocks that `/proc/pagetypeinfo` counts for a zone: those whose first frame in the
    /// span has memory.
    pub(crate) fn pageblocks_of<'a>(
        &'a self,
        zone: &'a ZoneState,
    ) -> impl Iterator<Item = &'a crate::state::PageblockState> {
        let first = zone.start_pfn.align_down(self.pageblock_order);
        self.pageblocks.iter().filter(move |block| {
            let looked_at = block.pfn.max(zone.start_pfn);
            block.pfn >= first
                && u64::from(block.pfn.0) < zone.end_pfn()
                && self.has_memory(looked_at)
        })
    }

    pub(crate) fn has_memory(&self, pfn: Pfn) -> bool {
        self.kpageflags
            .get(pfn.index())
            .is_none_or(|&flags| !PageFlags::from_bits_retain(flags).contains(PageFlags::NOPAGE))
    }

    fn check_zoneinfo(&self, table: &Zoneinfo, found: &mut Vec<String>) {
        for zone in &self.zones {
            let what = format!("node {} zone {}", zone.node, zone.kind);
            let Some(row) = table.zone(zone.node, zone.kind.name()) else {
                found.push(format!("{what} is missing in zoneinfo"));
                continue;
            };
            let boost = zone.watermark_boost;
            let ours = [
                ("spanned", zone.spanned_pages),
                ("present", zone.present_pages),
                ("managed", zone.managed_pages),
                ("min", zone.watermark[0] + boost),
                ("low", zone.watermark[1] + boost),
                ("high", zone.watermark[2] + boost),
            ];
            for (name, ours) in ours {
                if let Some(said) = row.pages.get(name).filter(|&said| said != ours) {
                    found.push(format!("{what}: {name} is {ours} pages, zoneinfo says {said}"));
                }
            }
            let start = u64::from(zone.start_pfn.0);
            if let Some(said) = row.start_pfn().filter(|&said| said != start) {
                found.push(format!("{what}: begins at pfn {start}, zoneinfo says {said}"));
            }
        }
    }

    fn check_flags(&self, found: &mut Vec<String>) {
        if self.kpageflags.is_empty() {
            return;
        }
        let mut is_free = vec![false; self.kpageflags.len()];
        for block in self.zones.iter().flat_map(|zone| &zone.free) {
            let end = block.pfn.index() + block.order.pages() as usize;
            is_free[block.pfn.index()..end].fill(true);
        }
        let flagged = self
            .kpageflags
            .iter()
            .map(|&f| PageFlags::from_bits_retain(f).contains(PageFlags::BUDDY));
        let differ = flagged.zip(&is_free).filter(|(flagged, listed)| flagged != *listed).count();
        if differ > 0 {
            found.push(format!("{differ} frames are free by list or by kpageflags, not by both"));
        }
        let in_use = |pfn: &&Pfn| is_free.get(pfn.index()).copied().unwrap_or(true);
        let both = self.lru.iter().flat_map(|list| &list.pages).filter(in_use).count();
        if both > 0 {
            found.push(format!("{both} frames are on an LRU list and in a free block"));
        }
    }
}

fn fill(uses: &mut [FrameUse], pfn: Pfn, nr_pages: u32, value: FrameUse) {
    let end = (pfn.index() + nr_pages as usize).min(uses.len());
    if let Some(frames) = uses.get_mut(pfn.index()..end) {
        frames.fill(value);
    }
}

/// What a page that is no compound tail is used for, by its flags alone.
fn use_of(flags: PageFlags) -> FrameUse {
    let has = |flag| flags.contains(flag);
    if has(PageFlags::NOPAGE) {
        FrameUse::Hole
    } else if has(PageFlags::RESERVED) || has(PageFlags::OFFLINE) {
        FrameUse::Reserved
    } else if has(PageFlags::BUDDY) {
        FrameUse::Free(0)
    } else if has(PageFlags::SLAB) {
        // Before ANON and KSM: kernels report those on slabs, whose fields share the mapping word.
        FrameUse::Slab
    } else if has(PageFlags::PGTABLE) {
        FrameUse::PageTable
    } else if has(PageFlags::HUGE) {
        FrameUse::Hugetlb
    } else if has(PageFlags::COMPOUND_HEAD) {
        // The huge zero page is the kernel's own and cannot move.
        let is_user = flags.intersects(USER) && !has(PageFlags::ZERO_PAGE);
        if is_user { FrameUse::Huge } else { FrameUse::Kernel }
    } else if has(PageFlags::ANON) {
        FrameUse::Anon
    } else if flags.intersects(USER) {
        if has(PageFlags::MMAP) { FrameUse::FileMapped } else { FrameUse::File }
    } else {
        FrameUse::Kernel
    }
}

/// The mobility of what an allocated frame is used for; `None` for what is not allocated.
fn mobility(frame: FrameUse) -> Option<Migratetype> {
    match frame {
        FrameUse::Anon
        | FrameUse::File
        | FrameUse::FileMapped
        | FrameUse::Buffers
        | FrameUse::Huge
        | FrameUse::Hugetlb => Some(Migratetype::Movable),
        FrameUse::SlabReclaimable => Some(Migratetype::Reclaimable),
        FrameUse::Slab
        | FrameUse::PageTable
        | FrameUse::KernelStack
        | FrameUse::NetworkBuffer
        | FrameUse::Pinned
        | FrameUse::Kernel => Some(Migratetype::Unmovable),
        FrameUse::Hole
        | FrameUse::Reserved
        | FrameUse::Free(_)
        | FrameUse::PerCpu
        | FrameUse::KernelOrPerCpu
        | FrameUse::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::{any_snapshot, zone};
    use crate::state::{FreeBlock, PageblockState, PcpState};
    use highorder_mm::types::Order;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn of_counts_alone_a_zone_has_as_many_frames_as_are_present(
            mut snapshot in any_snapshot(), nr_holes in 0usize..100,
        ) {
            snapshot.kpageflags.clear();
            snapshot.zones[1].present_pages -= nr_holes as u64;
            let uses = snapshot.frame_uses();
            let zone = &snapshot.zones[1];
            let frames = &uses[zone.start_pfn.index()..zone.end_pfn() as usize];
            prop_assert_eq!(frames.iter().filter(|f| **f == FrameUse::Hole).count(), nr_holes);
            let listed = zone.free.iter().map(|b| b.order.pages() as usize).sum::<usize>();
            let free = frames.iter().filter(|f| matches!(f, FrameUse::Free(_))).count();
            prop_assert_eq!(free, listed);
        }
    }

    /// Two zones of which one has pages on a per-CPU list, and frames with and without flags.
    fn of_frames(exactness: Exactness) -> Snapshot {
        let mut zones = vec![zone(0, 0, 8), zone(1, 8, 8)];
        zones[1].pcp = vec![PcpState {
            cpu: 0,
            fields: BTreeMap::from([("count".to_owned(), 3)]),
            blocks: Vec::new(),
        }];
        let mut kpageflags = vec![0; 16];
        kpageflags[9] = PageFlags::SLAB.bits();
        kpageflags[10] = PageFlags::COMPOUND_HEAD.bits();
        kpageflags[11] = PageFlags::COMPOUND_TAIL.bits();
        kpageflags[12] = PageFlags::MMAP.bits();
        kpageflags[13] = PageFlags::BUDDY.bits();
        zones[1].free =
            vec![FreeBlock { pfn: Pfn(13), order: Order(0), migratetype: Migratetype::Movable }];
        let pageblocks =
            vec![PageblockState { pfn: Pfn(0), migratetype: Migratetype::Movable, skip: false }];
        Snapshot {
            exactness,
            kernel_release: None,
            inferred: Vec::new(),
            taken_at_s: None,
            nr_frames: 16,
            pageblock_order: Order(9),
            zones,
            nodes: Vec::new(),
            vmemmap_base: None,
            pageblocks,
            kpageflags,
            pagecounts: Vec::new(),
            lru: Vec::new(),
            reclaimable_slabs: None,
            reserved: Vec::new(),
            files: BTreeMap::new(),
        }
    }

    #[test]
    fn a_frame_without_flags_is_the_kernels_only_where_no_per_cpu_list_can_hold_it() {
        use FrameUse::{Free, Kernel, KernelOrPerCpu as Unsure, Slab};
        let uses = of_frames(Exactness::Frames).frame_uses();
        assert_eq!(uses[..8], [Kernel; 8], "the zone's per-CPU lists are empty");
        let expected = [Unsure, Slab, Kernel, Kernel, Kernel, Free(0), Unsure, Unsure];
        assert_eq!(uses[8..], expected);
        let uses = of_frames(Exactness::Lists).frame_uses();
        assert!(!uses.contains(&Unsure), "where lists were read, what lies on them is known");
    }

    #[test]
    fn a_pageblock_is_not_mixed_for_the_sake_of_frames_that_may_be_free() {
        let mut snapshot = of_frames(Exactness::Frames);
        snapshot.zones.remove(0);
        snapshot.kpageflags.fill(0);
        snapshot.kpageflags[9] = (PageFlags::ANON | PageFlags::SWAPBACKED).bits();
        snapshot.zones[0].spanned_pages = 16;
        snapshot.zones[0].start_pfn = Pfn(0);
        snapshot.zones[0].free.clear();
        assert!(snapshot.mixed_pageblocks().is_empty());
        snapshot.exactness = Exactness::Lists;
        assert_eq!(snapshot.mixed_pageblocks().len(), 1);
    }

    #[test]
    fn slabs_win_over_the_flags_that_share_their_words() {
        assert_eq!(use_of(PageFlags::SLAB | PageFlags::ANON), FrameUse::Slab);
        assert_eq!(use_of(PageFlags::empty()), FrameUse::Kernel);
        assert_eq!(use_of(PageFlags::UPTODATE | PageFlags::LRU), FrameUse::File);
        assert_eq!(use_of(PageFlags::MMAP), FrameUse::Kernel);
    }

    #[test]
    fn pages_of_files_are_told_apart_by_whether_they_are_mapped() {
        let file = PageFlags::UPTODATE | PageFlags::LRU;
        assert_eq!(use_of(file), FrameUse::File);
        assert_eq!(use_of(file | PageFlags::MMAP), FrameUse::FileMapped);
        let anon = PageFlags::ANON | PageFlags::SWAPBACKED;
        assert_eq!(use_of(anon | PageFlags::MMAP), FrameUse::Anon);
    }
}
