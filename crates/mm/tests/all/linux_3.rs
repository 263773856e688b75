//! What was different in 3.x, worked by hand: fallback, the reserve of last resort, marks of each order, cold
//! pages, zonelists, scan counts.

use crate::dirty::zone_of_page;
use crate::scene::{all_free, linux_3_3, linux_3_4_rc2, linux_4_4, single_zone};
use highorder_mm::alloc::Request;
use highorder_mm::fallback::SearchMode;
use highorder_mm::gfp::{AllocFlags, Gfp};
use highorder_mm::lru::LruList;
use highorder_mm::pcp::pcp_index;
use highorder_mm::policy::Policy;
use highorder_mm::reclaim::{DEF_PRIORITY, Reclaimer, ScanBalance, ScanControl, ScanPlan};
use highorder_mm::types::{Migratetype, NodeId, Order, Pfn, ZoneKind};
use highorder_mm::vmstat::Vm;
use highorder_mm::watermark::Mark;
use highorder_mm::zone::ZoneId;
use highorder_mm::{CpuId, Machine, Memory, NodeSpec, ZoneSpec};

use Migratetype::{Movable, Reclaimable, Reserve, Unmovable};

const ZONE: ZoneId = ZoneId(0);

/// Memory of which only these blocks are free, all of them movable.
fn with_free(policy: &Policy, pages: u32, blocks: &[(u32, u8)]) -> Memory {
    let mut memory = Memory::new(single_zone(pages), policy.clone());
    for &(pfn, order) in blocks {
        memory.restore_free(Pfn(pfn), Order(order), Movable);
    }
    memory
}

fn take(memory: &mut Memory, order: u8, migratetype: Migratetype) -> Option<Pfn> {
    let (flags, mut mode) = (AllocFlags::NONE, SearchMode::Normal);
    memory.rmqueue_buddy_block(ZONE, Order(order), migratetype, flags, &mut mode)
}

fn list(memory: &Memory, order: u8, migratetype: Migratetype) -> Vec<u32> {
    let list = memory.zones[0].free_area.list(Order(order), migratetype);
    memory.list_blocks(list).into_iter().map(|pfn| pfn.0).collect()
}

#[test]
fn a_large_zones_lists_hold_up_to_186_pages_in_batches_of_31() {
    let mut memory = Memory::new(single_zone(1 << 18), linux_3_3());
    memory.update_pcp_limits();
    let pcp = &memory.zones[0].pcp[0];
    assert_eq!((pcp.batch, pcp.high), (31, 186));
}

#[test]
fn an_unmovable_request_takes_a_small_block_alone_and_leaves_its_rest_where_it_was() {
    let blocks = [(8, 3), (64, 0), (66, 0)];
    let mut memory = with_free(&linux_3_3(), 1024, &blocks);
    assert_eq!(take(&mut memory, 0, Unmovable), Some(Pfn(8)));
    // 8 pages less one: 9, 10 and 12 stay movable, and so does the pageblock.
    assert_eq!(
        [0, 1, 2].map(|order| list(&memory, order, Movable)),
        [vec![9, 64, 66], vec![10], vec![12]]
    );
    assert_eq!(memory.block_type(Pfn(8)), Movable);
    // From 4.0 on the pageblock's free pages move, and the rest is split onto the unmovable lists.
    let mut memory = with_free(&linux_4_4(), 1024, &blocks);
    assert_eq!(take(&mut memory, 0, Unmovable), Some(Pfn(8)));
    assert_eq!(list(&memory, 0, Movable), []);
    assert_eq!(list(&memory, 1, Unmovable), [10]);
}

#[test]
fn a_reclaimable_request_moves_the_free_pages_of_a_pageblock_and_claims_it_if_half_is_free() {
    // 8 + 2 pages of 512.
    let mut memory = with_free(&linux_3_3(), 1024, &[(8, 3), (64, 0), (66, 0)]);
    assert_eq!(take(&mut memory, 0, Reclaimable), Some(Pfn(8)));
    assert_eq!(memory.block_type(Pfn(8)), Movable);
    // Moved to the head one after the other; then what is left of the block.
    assert_eq!(list(&memory, 0, Reclaimable), [9, 66, 64]);
    assert_eq!(list(&memory, 2, Reclaimable), [12]);
    // 32 blocks of 8 pages are 256 of 512.
    let half: Vec<(u32, u8)> = (0..32).map(|n| (n * 16, 3)).collect();
    let mut memory = with_free(&linux_3_3(), 1024, &half);
    assert_eq!(take(&mut memory, 0, Reclaimable), Some(Pfn(0)));
    assert_eq!(memory.block_type(Pfn(0)), Reclaimable);
    // One less is not enough.
    let mut memory = with_free(&linux_3_3(), 1024, &half[..31]);
    assert_eq!(take(&mut memory, 0, Reclaimable), Some(Pfn(0)));
    assert_eq!(memory.block_type(Pfn(0)), Movable);
}

#[test]
fn any_request_takes_over_the_pageblock_of_a_block_of_order_4() {
    let mut memory = with_free(&linux_3_3(), 1024, &[(16, 4), (64, 0)]);
    assert_eq!(take(&mut memory, 0, Unmovable), Some(Pfn(16)));
    assert_eq!(list(&memory, 0, Movable), []);
    assert_eq!(list(&memory, 0, Unmovable), [17, 64]);
    assert_eq!(list(&memory, 3, Unmovable), [24]);
    // 17 pages are not half a pageblock.
    assert_eq!(memory.block_type(Pfn(16)), Movable);
}

#[test]
fn a_zone_keeps_its_lowest_pageblocks_for_the_last_and_as_many_as_its_min_mark_fills() {
    let types = |memory: &Memory| [0, 512, 1024, 1536].map(|pfn| memory.block_type(Pfn(pfn)));
    let mut memory = all_free(&single_zone(8192), &linux_3_3());
    // 512 pages fill one pageblock.
    memory.setup_watermarks(Some(512 * 4), false);
    assert_eq!(types(&memory), [Reserve, Movable, Movable, Movable]);
    // 513 begin a second one, 1537 a fourth: two at most.
    memory.setup_watermarks(Some(1537 * 4), false);
    assert_eq!(types(&memory), [Reserve, Reserve, Movable, Movable]);
    memory.setup_watermarks(Some(400 * 4), false);
    assert_eq!(types(&memory), [Reserve, Movable, Movable, Movable]);
    memory.validate().unwrap();
    // A free block of both pageblocks went with the first of them.
    let taken: Vec<u32> = (0..8).map(|_| take(&mut memory, 10, Movable).unwrap().0).collect();
    assert_eq!(taken[7], 0, "{taken:?}: the reserve comes last");
    assert_eq!(take(&mut memory, 0, Unmovable), None);
    // What is freed into a pageblock of the reserve is reserve again, for a request of any type.
    memory.free(Pfn(0), Order(10), CpuId(0));
    memory.set_block_type(Pfn(512), Reserve);
    assert_eq!(list(&memory, 10, Reserve), [0]);
    for wanted in [Unmovable, Reclaimable, Movable] {
        assert!(take(&mut memory, 0, wanted).is_some(), "{wanted}");
    }
}

#[test]
fn a_pageblock_with_a_page_that_nobody_manages_is_no_reserve() {
    let mut memory = Memory::new(single_zone(4096), linux_3_3());
    memory.release_boot_memory(Pfn(1)..Pfn(4096));
    memory.setup_watermarks(Some(256 * 4), false);
    assert_eq!([0, 512, 1024].map(|pfn| memory.block_type(Pfn(pfn))), [Movable, Reserve, Movable]);
}

#[test]
fn a_mark_is_halved_for_each_smaller_order_whose_pages_do_not_count() {
    // 40 single pages and three blocks of 8: 64 pages.
    let mut blocks: Vec<(u32, u8)> = (0..40).map(|n| (n * 2, 0)).collect();
    blocks.extend([(128, 3), (144, 3), (160, 3)]);
    let passes = |policy: &Policy, order, mark| {
        let memory = with_free(policy, 1024, &blocks);
        memory.watermark_ok(ZONE, Order(order), mark, ZoneKind::Normal, AllocFlags::NONE)
    };
    let policy = linux_3_3();
    // 64 - 7 = 57; without the single pages 17, for which the mark must be below 17 once it is halved.
    assert!(passes(&policy, 3, 33));
    assert!(!passes(&policy, 3, 34));
    // 64 - 15 = 49; 9 without the single pages, and -15 without the blocks of 8.
    assert!(!passes(&policy, 4, 0));
    // A block of the order is enough later.
    assert!(passes(&linux_4_4(), 3, 56));
    assert!(!passes(&linux_4_4(), 3, 57));
}

#[test]
fn who_cannot_wait_goes_a_quarter_below_the_mark_without_being_urgent() {
    let blocks: Vec<(u32, u8)> = (0..64).map(|n| (n * 2, 0)).collect();
    let passes = |policy: &Policy, gfp, mark| {
        let memory = with_free(policy, 1024, &blocks);
        let flags = AllocFlags::slow_path(gfp, Order(0));
        memory.watermark_ok(ZONE, Order(0), mark, ZoneKind::Normal, flags)
    };
    // 64 free: 85 less a quarter (21) is 64, 84 less 21 is 63.
    assert!(!passes(&linux_3_3(), Gfp::NOWAIT, 85));
    assert!(passes(&linux_3_3(), Gfp::NOWAIT, 84));
    assert!(!passes(&linux_4_4(), Gfp::NOWAIT, 84));
    // With __GFP_HIGH a half first: 170 is 85 is 64; 168 is 84 is 63.
    for policy in [linux_3_3(), linux_4_4()] {
        assert!(!passes(&policy, Gfp::GFP_ATOMIC, 170));
        assert!(passes(&policy, Gfp::GFP_ATOMIC, 168));
    }
}

#[test]
fn in_4_4_only_atomic_requests_count_the_highatomic_reserve_and_only_blocks_come_from_it() {
    let mut memory = with_free(&linux_4_4(), 1024, &[]);
    memory.restore_free(Pfn(512), Order(9), Migratetype::HighAtomic);
    memory.set_block_type(Pfn(512), Migratetype::HighAtomic);
    memory.zones[0].nr_reserved_highatomic = 512;
    let passes = |memory: &Memory, gfp, order| {
        let flags = AllocFlags::slow_path(gfp, Order(order));
        memory.watermark_ok(ZONE, Order(order), 100, ZoneKind::Normal, flags)
    };
    assert!(!passes(&memory, Gfp::HIGH | Gfp::KERNEL, 0));
    assert!(!passes(&memory, Gfp::NOWAIT, 0));
    assert!(passes(&memory, Gfp::GFP_ATOMIC, 0));
    assert!(passes(&memory, Gfp::GFP_ATOMIC, 1));
    let mut alloc = |order| {
        let gfp = Gfp::GFP_ATOMIC;
        let request =
            Request { order: Order(order), gfp, cpu: CpuId(0), node: NodeId(0), past_lists: false };
        let flags = AllocFlags::slow_path(gfp, Order(order));
        memory.get_page_from_freelist(request, Some(Mark::Min), flags)
    };
    assert_eq!(alloc(0), None, "a single page is none of its business");
    assert_eq!(alloc(1), Some(Pfn(512)));
}

#[test]
fn a_cold_page_is_taken_last_and_drained_first() {
    let mut memory = all_free(&single_zone(1 << 18), &linux_3_3());
    memory.update_pcp_limits();
    let request =
        |gfp| Request { order: Order(0), gfp, cpu: CpuId(0), node: NodeId(0), past_lists: false };
    let alloc = |memory: &mut Memory, gfp| {
        memory.get_page_from_freelist(request(gfp), None, AllocFlags::NONE).unwrap()
    };
    // The first of a refill of 31; then the next one hot, and the last one cold.
    let first = alloc(&mut memory, Gfp::HIGHUSER_MOVABLE);
    assert_eq!(alloc(&mut memory, Gfp::HIGHUSER_MOVABLE), first + 1);
    assert_eq!(alloc(&mut memory, Gfp::HIGHUSER_MOVABLE | Gfp::COLD), first + 30);
    memory.free_cold(first, Order(0), CpuId(0));
    memory.free(first + 1, Order(0), CpuId(0));
    let lists = memory.zones[0].pcp[0].list(pcp_index(Order(0), Movable));
    assert_eq!((lists.head(), lists.tail()), (Some(first + 1), Some(first)));
    // A cold request that has to refill finds the first page of the batch at the end it looks at.
    memory.drain_all_pages(None);
    let next = memory.peek_smallest(ZONE, Order(0), Movable).unwrap().0;
    assert_eq!(alloc(&mut memory, Gfp::HIGHUSER_MOVABLE | Gfp::COLD), next);
}

/// Nodes of these zones, in pages, twice as far from each other as from themselves.
fn machine(nodes: &[&[(ZoneKind, u32)]]) -> Machine {
    let mut end = 0;
    let specs = nodes.iter().enumerate().map(|(own, zones)| NodeSpec {
        distances: (0..nodes.len()).map(|node| if node == own { 10 } else { 20 }).collect(),
        zones: zones
            .iter()
            .map(|&(kind, pages)| {
                end += pages;
                ZoneSpec {
                    kind,
                    start: Pfn(end - pages),
                    spanned_pages: pages,
                    present_pages: pages,
                    managed_pages: u64::from(pages),
                }
            })
            .collect(),
    });
    let nodes: Vec<NodeSpec> = specs.collect();
    let cpu_nodes = NodeId::all(nodes.len()).collect();
    Machine { nr_frames: end, nodes, cpu_nodes }
}

#[test]
fn zonelists_spare_small_low_zones_of_all_nodes_and_large_ones_of_none() {
    use ZoneKind::{Dma32, Normal};
    let order = |machine: &Machine, policy: Policy| {
        let memory = Memory::new(machine.clone(), policy);
        [0, 1].map(|node| {
            let zones = memory.zones_for(NodeId(node), Gfp::HIGHUSER_MOVABLE);
            zones.into_iter().map(|id| id.0).collect::<Vec<_>>()
        })
    };
    // Zones 0 and 1 are node 0's DMA32 and Normal, 2 is node 1's Normal.
    let small = machine(&[&[(Dma32, 1024), (Normal, 3072)], &[(Normal, 4096)]]);
    assert_eq!(order(&small, linux_3_3()), [vec![1, 2, 0], vec![2, 1, 0]]);
    assert_eq!(order(&small, linux_4_4()), [vec![1, 0, 2], vec![2, 1, 0]]);
    // More than half of all memory.
    let large = machine(&[&[(Dma32, 5120), (Normal, 1024)], &[(Normal, 3072)]]);
    assert_eq!(order(&large, linux_3_3())[0], [1, 0, 2]);
    // More than 70 % of a node that is more than a third of the machine, though less than half of it all.
    let uneven = machine(&[&[(Dma32, 3072), (Normal, 512)], &[(Normal, 3584)]]);
    assert_eq!(order(&uneven, linux_3_3())[0], [1, 0, 2]);
    // A node with low memory alone.
    let low = machine(&[&[(Dma32, 512)], &[(Normal, 8192)]]);
    assert_eq!(order(&low, linux_3_3()), [vec![0, 1], vec![1, 0]]);
    // One node alone stays one node alone.
    let memory = Memory::new(small, linux_3_3());
    let own = memory.zones_for(NodeId(0), Gfp::HIGHUSER_MOVABLE | Gfp::THISNODE);
    assert_eq!(own, [ZoneId(1), ZoneId(0)]);
}

#[test]
fn a_page_to_be_written_is_not_taken_where_a_fifth_is_dirty() {
    use ZoneKind::{Dma32, Normal};
    let machine = machine(&[&[(Dma32, 8192), (Normal, 8192)]]);
    let mut memory = all_free(&machine, &linux_3_3());
    memory.setup_watermarks(Some(1024), false);
    memory.drain_all_pages(None);
    // min 128, high 192; Normal keeps nothing for others: 8000 of 8192 pages may be dirty, a fifth is 1600.
    assert_eq!(memory.zones[1].watermarks.raw(Mark::High), 192);
    let write = Gfp::HIGHUSER_MOVABLE | Gfp::WRITE;
    memory.lru.lruvecs[1].stats.nr_dirty = 1000;
    memory.lru.lruvecs[1].stats.nr_writeback = 600;
    assert_eq!(zone_of_page(&mut memory, write, Mark::Low), ZoneId(1));
    memory.lru.lruvecs[1].stats.nr_writeback = 601;
    assert_eq!(zone_of_page(&mut memory, write, Mark::Low), ZoneId(0));
    assert_eq!(zone_of_page(&mut memory, Gfp::HIGHUSER_MOVABLE, Mark::Low), ZoneId(1));
    // Only the fast path minds.
    assert_eq!(zone_of_page(&mut memory, write, Mark::Min), ZoneId(1));
}

#[test]
fn swappiness_counts_one_more_for_either_type() {
    // 61 * 1001 / 901 = 67; 141 * 1001 / 101 = 1397.
    let shares = ScanBalance::by_rotation_plus_one(60, [1000, 1000], [900, 100]);
    assert_eq!(shares, ScanBalance::Fractions(67, 1397, 1465));
    // 8192 >> 6 = 128, of which 67/1465: 5; 4096 >> 6 = 64, of which 1397/1465: 61.
    assert_eq!(shares.counts([8192, 0, 4096, 0], 6), [5, 0, 61, 0]);
    // Of a zone that was given up 32 where nothing would be left: 32 * 67 / 1465 = 1, 32 * 1397 / 1465 = 30.
    // Where one or two are left they are shared: 2 * 67 / 1465 and 1397 / 1465 are nothing.
    assert_eq!(shares.counts_at_least([8192, 1, 4095, 4096], 12, 32, false), [0, 1, 30, 0]);
}

#[test]
fn a_scan_ends_with_the_round_that_reaches_the_target() {
    let mut sc = ScanControl::new(Reclaimer::Direct, CpuId(0), 60);
    // Pages reclaimed so far, as each round ends; how many rounds of two lists there were.
    let rounds = |sc: &ScanControl, decrement, progress: [u64; 4]| {
        let plan = ScanPlan::new([128, 0, 128, 0], sc, [true; 2]);
        let mut plan = plan.ending_at_target(sc, decrement);
        let mut rounds = 0;
        while let Some((first, nr)) = plan.next(sc) {
            assert_eq!((first, nr), (LruList::InactiveAnon, 32));
            assert_eq!(plan.next(sc), Some((LruList::InactiveFile, 32)));
            plan.nr_reclaimed = progress[rounds];
            rounds += 1;
        }
        rounds
    };
    sc.priority = DEF_PRIORITY - 1;
    assert_eq!(rounds(&sc, false, [20, 22, 32, 40]), 3);
    // 32 less 20 are 12, which 22 are more than.
    assert_eq!(rounds(&sc, true, [20, 22, 32, 40]), 2);
    // 32 - 5 = 27, - 15 = 12, and 24 are more.
    assert_eq!(rounds(&sc, true, [5, 15, 24, 30]), 3);
    // The lightest round goes through all of it, and so does whoever wants all there is.
    sc.priority = DEF_PRIORITY;
    assert_eq!(rounds(&sc, true, [40, 80, 90, 100]), 4);
    sc.priority = 0;
    sc.nr_to_reclaim = u64::MAX;
    assert_eq!(rounds(&sc, true, [40, 80, 90, 100]), 4);
    assert!(linux_3_4_rc2().reclaim.target_decrement && !linux_3_3().reclaim.target_decrement);
}

#[test]
fn whatever_is_freed_gives_a_zone_hope_again() {
    let mut memory = all_free(&single_zone(4096), &linux_3_3());
    let pfn = take(&mut memory, 3, Movable).unwrap();
    memory.zones[0].flags.all_unreclaimable = true;
    memory.lru.lruvecs[0].pages_scanned = 1000;
    memory.free(pfn, Order(3), CpuId(0));
    assert!(!memory.zones[0].flags.all_unreclaimable);
    assert_eq!(memory.lru.lruvecs[0].pages_scanned, 0);
}

#[test]
fn anonymous_pages_are_counted_without_huge_ones_until_3_12() {
    for (policy, counted) in [(linux_3_3(), 7), (linux_4_4(), 7 + 2 * 512)] {
        let mut memory = all_free(&single_zone(4096), &policy);
        let stats = &mut memory.lru.lruvecs[0].stats;
        (stats.nr_anon_mapped, stats.nr_anon_huge) = (7 + 2 * 512, 2);
        let vmstat = memory.vmstat();
        let value = |name: &str| vmstat.iter().find(|(n, _)| n == name).map(|&(_, value)| value);
        assert_eq!(value("nr_anon_pages"), Some(counted));
        assert_eq!(value("nr_anon_transparent_hugepages"), Some(2));
    }
}

#[test]
fn counters_have_the_names_of_their_time() {
    let mut memory = all_free(&single_zone(4096), &linux_3_3());
    memory.vm.add_in(Vm::PgStealKswapd, ZoneKind::Normal, 5);
    memory.vm.add_in(Vm::PgStealDirect, ZoneKind::Normal, 2);
    memory.vm.add_in(Vm::PgStealDirect, ZoneKind::Dma32, 1);
    memory.vm.add(Vm::KswapdSkipCongestionWait, 3);
    let vmstat = memory.vmstat();
    let value = |name: &str| vmstat.iter().find(|(n, _)| n == name).map(|&(_, value)| value);
    assert_eq!(value("kswapd_steal"), Some(5));
    assert_eq!(value("pgsteal_normal"), Some(7));
    assert_eq!(value("pgsteal_dma32"), Some(1));
    assert_eq!(value("kswapd_skip_congestion_wait"), Some(3));
    for name in [
        "pgsteal_kswapd_normal",
        "pgscan_direct_throttle",
        "workingset_refault",
        "thp_zero_page_alloc",
        "swap_ra",
        "allocstall_normal",
    ] {
        assert_eq!(value(name), None, "{name}");
    }
    for name in ["allocstall", "pageoutrun", "pgrotated", "pgscan_direct_dma", "thp_split"] {
        assert_eq!(value(name), Some(0), "{name}");
    }
}
