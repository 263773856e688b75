//! Lists that changed while they were copied.
//!
//! A list is followed from page to page. A page that left it for another one between the copy of its neighbour and its
//! own leads onto that other list, and what came behind it is lost. Each page's own words, from the same copy, say what
//! it was: the head of a free block has no references and its order in `private`, a page on an LRU list has references.
//! So what does not belong on a list goes, and what is on none but belongs on one comes behind the others, in the order
//! of frames.

use crate::{FreeBlock, PageCounts, Snapshot};
use highorder_kernelfs::PageFlags;
use highorder_mm::types::{MAX_PAGE_ORDER, Order, Pfn};
use std::collections::BTreeMap;

/// What a page's words are where it heads a free block. The type differs between kernels (`PG_buddy` in `page_type`), so
/// it is what most heads on the lists have.
struct Mark(i32);

impl Mark {
    fn find(snapshot: &Snapshot, counts: &[PageCounts]) -> Option<Self> {
        let mut nr_by_type: BTreeMap<i32, usize> = BTreeMap::new();
        for block in snapshot.zones.iter().flat_map(|zone| &zone.free) {
            let words = counts.get(block.pfn.index())?;
            if words.refcount == 0 && words.private == u64::from(block.order.0) {
                *nr_by_type.entry(words.mapcount).or_default() += 1;
            }
        }
        nr_by_type.into_iter().max_by_key(|(_, nr)| *nr).map(|(mark, _)| Self(mark))
    }

    fn is_head(&self, words: PageCounts) -> bool {
        words.refcount == 0
            && words.mapcount == self.0
            && words.private <= u64::from(MAX_PAGE_ORDER)
    }
}

/// Mends the lists of a snapshot whose copy was not the same twice, by the pages' words of that copy.
pub(crate) fn mend(snapshot: &mut Snapshot, counts: &[PageCounts]) {
    let Some(mark) = Mark::find(snapshot, counts) else { return };
    let [strayed, found] = mend_free(snapshot, counts, &mark);
    if strayed + found > 0 {
        snapshot.inferred.push(format!(
            "lists of free blocks: {strayed} entries were no free blocks and were left out, {found} that were on no list \
             were put behind the others"
        ));
    }
    let [strayed, found] = mend_lru(snapshot, counts);
    if strayed + found > 0 {
        snapshot.inferred.push(format!(
            "LRU lists: {strayed} pages that nobody had were left out, {found} that were on no list were put behind the \
             others"
        ));
    }
}

/// How many entries went and came.
fn mend_free(snapshot: &mut Snapshot, counts: &[PageCounts], mark: &Mark) -> [usize; 2] {
    let words = |pfn: Pfn| counts.get(pfn.index()).copied().unwrap_or_default();
    let types: BTreeMap<Pfn, _> =
        snapshot.pageblocks.iter().map(|block| (block.pfn, block.migratetype)).collect();
    let mut is_free = vec![false; snapshot.nr_frames as usize];
    let [mut strayed, mut found] = [0; 2];
    for zone in &mut snapshot.zones {
        zone.free.retain(|block| {
            let is_head = mark.is_head(words(block.pfn))
                && words(block.pfn).private == u64::from(block.order.0);
            strayed += usize::from(!is_head);
            is_head
        });
        for pcp in &mut zone.pcp {
            pcp.blocks.retain(|block| {
                let belongs = words(block.pfn).refcount == 0 && !mark.is_head(words(block.pfn));
                strayed += usize::from(!belongs);
                belongs
            });
        }
        let listed = zone.free.iter().chain(zone.pcp.iter().flat_map(|pcp| &pcp.blocks));
        for block in listed {
            let first = block.pfn.index();
            let end = (first + block.order.pages() as usize).min(is_free.len());
            is_free[first..end].fill(true);
        }
        let mut pfn = zone.start_pfn;
        let end = zone.end_pfn().min(is_free.len() as u64);
        while u64::from(pfn.0) < end {
            let order = Order(words(pfn).private.min(u64::from(MAX_PAGE_ORDER)) as u8);
            let range = pfn.index()..pfn.index() + order.pages() as usize;
            let is_lost = mark.is_head(words(pfn))
                && pfn == pfn.align_down(order)
                && range.end as u64 <= end
                && !is_free[range.clone()].contains(&true);
            let block_type = types.get(&pfn.align_down(snapshot.pageblock_order));
            if let (true, Some(&migratetype)) = (is_lost, block_type) {
                zone.free.push(FreeBlock { pfn, order, migratetype });
                is_free[range.clone()].fill(true);
                found += 1;
            }
            pfn += if is_lost { order.pages() } else { 1 };
        }
    }
    [strayed, found]
}

/// How many pages went and came. A page that was on no list comes behind those that are most like it: of the same zone,
/// anonymous or not, active or not, on the list that has most of these.
fn mend_lru(snapshot: &mut Snapshot, counts: &[PageCounts]) -> [usize; 2] {
    let [mut strayed, mut found] = [0; 2];
    let mut is_listed = vec![false; snapshot.nr_frames as usize];
    for list in &mut snapshot.lru {
        list.pages.retain(|pfn| {
            let belongs = counts.get(pfn.index()).is_some_and(|words| words.refcount > 0);
            strayed += usize::from(!belongs);
            belongs
        });
        for pfn in &list.pages {
            is_listed[pfn.index()] = true;
        }
    }
    let flags = |pfn: Pfn| {
        PageFlags::from_bits_retain(snapshot.kpageflags.get(pfn.index()).copied().unwrap_or(0))
    };
    let zone_of = |pfn: Pfn| {
        snapshot.zones.iter().position(|zone| {
            (u64::from(zone.start_pfn.0)..zone.end_pfn()).contains(&u64::from(pfn.0))
        })
    };
    let like = |pfn: Pfn| {
        let same = PageFlags::SWAPBACKED | PageFlags::ACTIVE | PageFlags::UNEVICTABLE;
        (zone_of(pfn), (flags(pfn) & same).bits())
    };
    let mut nr_by_list: BTreeMap<_, BTreeMap<usize, usize>> = BTreeMap::new();
    for (at, list) in snapshot.lru.iter().enumerate() {
        for &pfn in &list.pages {
            *nr_by_list.entry(like(pfn)).or_default().entry(at).or_default() += 1;
        }
    }
    let mut lost: Vec<(usize, Pfn)> = Vec::new();
    for pfn in (0..snapshot.nr_frames as u32).map(Pfn) {
        let has_references = counts.get(pfn.index()).is_some_and(|words| words.refcount > 0);
        if is_listed[pfn.index()] || !has_references || !flags(pfn).contains(PageFlags::LRU) {
            continue;
        }
        // A huge page is on a list by its first page.
        if flags(pfn).contains(PageFlags::COMPOUND_TAIL) {
            continue;
        }
        let lists = nr_by_list.get(&like(pfn)).into_iter().flatten();
        if let Some((&at, _)) = lists.max_by_key(|(_, nr)| **nr) {
            lost.push((at, pfn));
            found += 1;
        }
    }
    for (at, pfn) in lost {
        snapshot.lru[at].pages.push(pfn);
    }
    [strayed, found]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    fn recorded() -> Snapshot {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/recordings");
        Snapshot::read(folder.join("612-rec-fragslab/state0")).unwrap()
    }

    fn free(snapshot: &Snapshot) -> BTreeSet<(u32, u8)> {
        let blocks = snapshot.zones.iter().flat_map(|zone| &zone.free);
        blocks.map(|block| (block.pfn.0, block.order.0)).collect()
    }

    fn on_lru(snapshot: &Snapshot) -> BTreeSet<(u32, u32)> {
        let pages = |list: &crate::LruList| {
            let node = list.node;
            list.pages.iter().map(move |pfn| (node, pfn.0)).collect::<Vec<_>>()
        };
        snapshot.lru.iter().flat_map(pages).collect()
    }

    #[test]
    fn whole_lists_stay_as_they_are() {
        let whole = recorded();
        let mut mended = whole.clone();
        mend(&mut mended, &whole.pagecounts);
        assert_eq!(mended.zones, whole.zones);
        let [strayed, found] = [&mended, &whole].map(|snapshot| on_lru(snapshot).len());
        assert!(strayed.abs_diff(found) * 100 < found, "{strayed} of {found}");
    }

    #[test]
    fn torn_lists_lose_what_strayed_and_get_back_what_was_lost() {
        let whole = recorded();
        let mut torn = whole.clone();
        // A list of free blocks goes on over an LRU list; the rest of it is lost, and so is half of an LRU list.
        let zone = torn.zones.iter_mut().max_by_key(|zone| zone.free.len()).unwrap();
        let half = zone.free.len() / 2;
        let last = *zone.free.last().unwrap();
        zone.free.truncate(half);
        let listed = torn.lru.iter().flat_map(|list| &list.pages);
        let strayed = listed.filter(|pfn| zone.start_pfn <= **pfn);
        let strayed: Vec<FreeBlock> = strayed
            .filter(|pfn| u64::from(pfn.0) < zone.end_pfn())
            .take(100)
            .map(|&pfn| FreeBlock { pfn, order: Order(0), migratetype: last.migratetype })
            .collect();
        assert!(strayed.len() > 20 && half > 20);
        zone.free.extend(strayed);
        let list = torn.lru.iter_mut().max_by_key(|list| list.pages.len()).unwrap();
        let nr = list.pages.len();
        list.pages.truncate(nr / 2);
        list.pages.push(whole.zones.iter().flat_map(|zone| &zone.free).next().unwrap().pfn);

        mend(&mut torn, &whole.pagecounts);
        assert_eq!(free(&torn), free(&whole));
        let (mended, all) = (on_lru(&torn), on_lru(&whole));
        assert!(all.difference(&mended).count() * 100 < all.len(), "{}", mended.len());
        assert!(torn.inferred.iter().any(|told| told.contains("were put behind the others")));
    }
}
