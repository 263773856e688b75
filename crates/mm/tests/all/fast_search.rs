//! Compaction's searches of the free lists, on lists made by hand.

use crate::scene::{linux_6_1, linux_6_12, single_zone};
use highorder_mm::fast_search::{CompactControl, FastIsolated, FastStart, MigrateMode};
use highorder_mm::policy::{Policy, TargetSearch};
use highorder_mm::types::{Migratetype, Order, Pfn};
use highorder_mm::zone::ZoneId;
use highorder_mm::{Memory, frame::State};

/// One zone of 64 pageblocks.
const PAGES: u32 = 64 * 512;
const ZONE: ZoneId = ZoneId(0);

/// Memory in use but for these blocks, which are on the Movable lists in this order.
fn with_free(policy: Policy, blocks: &[(u32, u8)]) -> Memory {
    let mut memory = Memory::new(single_zone(PAGES), policy);
    for &(pfn, order) in blocks {
        memory.restore_free(Pfn(pfn), Order(order), Migratetype::Movable);
    }
    for pfn in (0..PAGES).map(Pfn) {
        if memory.frames().state(pfn) == State::Reserved {
            memory.restore_allocated(pfn, Order(0), Migratetype::Movable, true);
        }
    }
    memory
}

fn list(memory: &Memory, order: u8) -> Vec<u32> {
    let list = memory.zones[0].free_area.list(Order(order), Migratetype::Movable);
    memory.frames().iter(list).map(|pfn| pfn.0).collect()
}

/// An async compaction for order 9, with the scanners at pageblocks 0 and 40 and 32 pages waiting. Blocks
/// from pageblock 30 up are taken at once, from pageblock 20 up as candidates.
fn run(memory: &mut Memory) -> CompactControl {
    let free_pfn = Pfn(block(40));
    // Not at the start of its scan, so that few blocks are looked at.
    memory.zones[0].compact.init_free_pfn = Pfn(PAGES - 1);
    let mut cc = CompactControl::new(ZONE, Some(Order(9)), MigrateMode::Async, Pfn(0), free_pfn);
    cc.direct_compaction = true;
    cc.nr_migratepages = 32;
    cc
}

const fn block(nr: u32) -> u32 {
    nr * 512
}

fn search(memory: &mut Memory, cc: &mut CompactControl) -> FastIsolated {
    let result = memory.fast_isolate_freepages(cc).expect("a run that searches");
    memory.validate().expect("sound lists");
    result
}

#[test]
fn a_block_in_the_upper_quarter_is_taken_and_what_was_passed_comes_to_the_front() {
    let pages = [block(1), block(2), block(35), block(3), block(4)].map(|pfn| (pfn, 0));
    let mut memory = with_free(linux_6_12(), &pages);
    let mut cc = run(&mut memory);
    cc.search_order = Order(0);
    cc.fast_search_fail = 2;
    let found = search(&mut memory, &mut cc);
    assert_eq!(found.block, Some((Pfn(block(35)), Order(0))));
    assert_eq!((found.nr_scanned, found.min_pfn), (3, Pfn(block(20))));
    assert_eq!(list(&memory, 0), [block(3), block(4), block(1), block(2)]);
    assert_eq!((cc.fast_search_fail, cc.search_order), (0, Order(0)));
    assert_eq!((cc.nr_freepages, memory.frames().state(Pfn(block(35)))), (1, State::Isolated));
}

#[test]
fn without_one_the_highest_candidate_is_taken_and_each_better_one_halves_the_limit() {
    // From the tail: two below half way, then candidates in pageblocks 21 and 25. The limit of 16 becomes 8
    // and 4, and four have been looked at: those in front of them, 29 among them, are not.
    let pages = [29, 2, 25, 21, 3, 4].map(|nr| (block(nr), 0));
    let mut memory = with_free(linux_6_12(), &pages);
    let mut cc = run(&mut memory);
    cc.search_order = Order(0);
    cc.fast_search_fail = 0;
    let found = search(&mut memory, &mut cc);
    assert_eq!(found.block, Some((Pfn(block(25)), Order(0))));
    assert_eq!(found.nr_scanned, 4);
    assert_eq!(list(&memory, 0), [21, 3, 4, 29, 2].map(block));
    // A candidate is no reason to search more next time, or to begin with its order.
    assert_eq!(cc.fast_search_fail, 0);
}

#[test]
fn a_search_in_vain_stops_at_its_limit_and_the_next_goes_on_from_there() {
    let pages: Vec<_> = (0..40).map(|nr| (1024 + 2 * nr, 0)).collect();
    let mut memory = with_free(linux_6_12(), &pages);
    let mut cc = run(&mut memory);
    cc.search_order = Order(0);
    // (32 + 1) / 2 = 16 entries of the only list there is.
    let first = search(&mut memory, &mut cc);
    assert_eq!((first.block, first.nr_scanned), (None, 16));
    assert_eq!(list(&memory, 0)[0], 1024 + 2 * 24);
    assert_eq!((cc.fast_search_fail, cc.search_order), (1, Order(8)));
    // Half as many the next time: (16 + 1) / 2 = 8.
    let second = search(&mut memory, &mut cc);
    assert_eq!((second.block, second.nr_scanned), (None, 8));
    assert_eq!(list(&memory, 0)[0], 1024 + 2 * 16);
    cc.fast_search_fail = 40;
    assert_eq!(search(&mut memory, &mut cc).nr_scanned, 1);
}

#[test]
fn a_list_that_is_searched_to_its_end_stays_as_it_is() {
    let pages = [5, 6, 7].map(|nr| (block(nr), 3));
    let mut memory = with_free(linux_6_12(), &pages);
    let mut cc = run(&mut memory);
    let found = search(&mut memory, &mut cc);
    assert_eq!((found.block, found.nr_scanned), (None, 3));
    assert_eq!(list(&memory, 3), [5, 6, 7].map(block));
}

#[test]
fn a_list_searched_to_the_limit_halves_it_for_the_next_order() {
    let singles = (0..40).map(|nr| (1024 + 2 * nr, 0));
    let pairs = (0..40).map(|nr| (4096 + 4 * nr, 1));
    let mut memory = with_free(linux_6_12(), &singles.chain(pairs).collect::<Vec<_>>());
    let mut cc = run(&mut memory);
    cc.search_order = Order(1);
    assert_eq!(search(&mut memory, &mut cc).nr_scanned, 16 + 8);
    assert_eq!(list(&memory, 1)[0], 4096 + 4 * 24);
    assert_eq!(list(&memory, 0)[0], 1024 + 2 * 32);
}

#[test]
fn the_first_kernels_look_at_one_entry_of_each_list_but_where_the_scan_begins() {
    let singles = (0..400).map(|nr| (block(8) + 2 * nr, 0));
    let pairs = (0..400).map(|nr| (block(12) + 4 * nr, 1));
    let blocks: Vec<_> = singles.chain(pairs).collect();
    let looked_at = |is_at_start| {
        let mut policy = linux_6_1();
        policy.compaction.target_search = TargetSearch::OneOfEach;
        let mut memory = with_free(policy, &blocks);
        let mut cc = run(&mut memory);
        if is_at_start {
            memory.zones[0].compact.init_free_pfn = cc.free_pfn;
        }
        cc.search_order = Order(1);
        search(&mut memory, &mut cc).nr_scanned
    };
    assert_eq!((looked_at(false), looked_at(true)), (1 + 1, 256 + 1));
}

#[test]
fn at_the_start_of_the_scan_half_a_pageblock_is_searched_and_the_highest_seen_is_where_it_begins() {
    let pages: Vec<_> = (0..400).map(|nr| (block(12) + 2 * nr, 0)).collect();
    let start = |policy| {
        let mut memory = with_free(policy, &pages);
        let mut cc = run(&mut memory);
        memory.zones[0].compact.init_free_pfn = cc.free_pfn;
        cc.search_order = Order(0);
        let found = search(&mut memory, &mut cc);
        assert_eq!(found.block, None);
        (found, cc.free_pfn)
    };
    // Nothing seen is half way up: half way it is, for an allocation.
    let (found, free_pfn) = start(linux_6_12());
    assert_eq!((found.nr_scanned, free_pfn), (256, Pfn(block(20))));
    // Before 6.5, whatever was seen: 800 frames reach into the pageblock behind.
    assert_eq!(start(linux_6_1()).1, Pfn(block(13)));
}

#[test]
fn pages_isolated_beyond_the_first_count_as_scanned_since_6_5() {
    for (policy, nr_scanned) in [(linux_6_12(), 8), (linux_6_1(), 1)] {
        let mut memory = with_free(policy, &[(block(33), 3), (block(1), 0)]);
        let mut cc = run(&mut memory);
        let found = search(&mut memory, &mut cc);
        assert_eq!((found.block, found.nr_scanned), (Some((Pfn(block(33)), Order(3))), nr_scanned));
        assert_eq!(cc.search_order, Order(3));
    }
}

#[test]
fn a_block_that_the_watermark_refuses_ends_the_search() {
    let mut memory = with_free(linux_6_12(), &[(block(33), 3)]);
    let mut cc = run(&mut memory);
    let found = search(&mut memory, &mut cc);
    assert_eq!((found.block, found.nr_scanned, cc.fast_search_fail), (None, 1, 1));
    // The next one begins one order lower.
    assert_eq!((list(&memory, 3), cc.search_order), (vec![block(33)], Order(2)));
}

#[test]
fn the_whole_zone_is_compacted_without_searches() {
    let mut memory = with_free(linux_6_12(), &[(block(33), 3)]);
    let mut cc = CompactControl { order: None, ..run(&mut memory) };
    assert_eq!(memory.fast_isolate_freepages(&mut cc), None);
    assert_eq!(memory.fast_find_migrateblock(&mut cc), Pfn(0));
}

#[test]
fn a_pageblock_to_empty_is_searched_from_the_head_and_goes_with_what_was_passed_to_the_tail() {
    let blocks = [30, 3, 5, 31].map(|nr| (block(nr), 4));
    let mut memory = with_free(linux_6_12(), &blocks);
    memory.set_block_skip(Pfn(block(3)), true);
    let mut cc = run(&mut memory);
    cc.fast_search_fail = 1;
    // 30 is above half way, 3 is to be skipped.
    assert_eq!(memory.fast_find_migrateblock(&mut cc), Pfn(block(5)));
    assert_eq!(list(&memory, 4), [31, 30, 3, 5].map(block));
    assert_eq!((cc.fast_search_fail, cc.fast_start_pfn), (0, FastStart::Lowest(Pfn(block(5)))));
    assert!(!memory.block_skip(Pfn(block(5))));
    memory.validate().expect("sound lists");
}

#[test]
fn a_search_for_a_pageblock_that_reaches_its_limit_turns_the_list_and_falls_back_to_the_lowest_found()
 {
    let blocks: Vec<_> = (0..40).map(|nr| (block(41) + 16 * nr, 3)).collect();
    let mut memory = with_free(linux_6_12(), &blocks);
    let mut cc = run(&mut memory);
    cc.migrate_pfn = Pfn(block(8));
    cc.fast_start_pfn = FastStart::Lowest(Pfn(block(2)));
    // 33 entries, and the one that is too many goes with them.
    assert_eq!(memory.fast_find_migrateblock(&mut cc), Pfn(block(2)));
    assert_eq!(list(&memory, 3)[0], block(41) + 16 * 34);
    assert_eq!((cc.fast_search_fail, cc.fast_start_pfn), (1, FastStart::Used));
    assert_eq!(cc.migrate_pfn, Pfn(block(2)));
}

#[test]
fn a_pageblock_half_done_is_finished_and_before_6_3_the_one_found_was_marked() {
    let blocks = [5, 6].map(|nr| (block(nr), 4));
    let mut memory = with_free(linux_6_12(), &blocks);
    let mut cc = CompactControl { finish_pageblock: true, ..run(&mut memory) };
    assert_eq!(memory.fast_find_migrateblock(&mut cc), Pfn(0));
    let mut memory = with_free(linux_6_1(), &blocks);
    assert_eq!(memory.fast_find_migrateblock(&mut cc), Pfn(block(5)));
    assert!(memory.block_skip(Pfn(block(5))));
}

#[test]
fn skip_hints_are_reset_where_a_sample_shows_something_and_the_next_run_begins_there() {
    let mut memory = with_free(linux_6_12(), &[(block(50), 3), (block(60) + 1, 0)]);
    for nr in 0..64 {
        memory.set_block_skip(Pfn(block(nr)), true);
        for pfn in block(nr)..block(nr + 1) {
            if memory.frames().state(Pfn(pfn)) == State::Allocated && nr != 7 {
                memory.force_allocated(Pfn(pfn), Order(0), Migratetype::Unmovable, false);
            }
        }
    }
    // Nobody has asked for it.
    memory.reset_isolation_suitable(ZONE);
    assert!(memory.block_skip(Pfn(block(7))));
    memory.zones[0].compact.blockskip_flush = true;
    memory.reset_isolation_suitable(ZONE);
    let skipped: Vec<_> = (0..64).filter(|&nr| !memory.block_skip(Pfn(block(nr)))).collect();
    // The page in pageblock 60 is not among those looked at, every eighth.
    assert_eq!(skipped, [7, 50]);
    let compact = &memory.zones[0].compact;
    assert_eq!(compact.cached_migrate_pfn, [Pfn(block(7)); 2]);
    assert_eq!(compact.cached_free_pfn, Pfn(block(51) - 1));
    assert!(!compact.blockskip_flush);
}
