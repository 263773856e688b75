//! Spaces small enough to be enumerated whole, and the defects of other allocators as promises.

use crate::scene;
use crate::scene::{Scene, all_free, linux_6_12, policies, scaled_down, single_zone, small_numa};
use highorder_mm::alloc::Request;
use highorder_mm::buddy::FreeTo;
use highorder_mm::fallback::SearchMode;
use highorder_mm::frame::State;
use highorder_mm::gfp::{AllocFlags, Gfp};
use highorder_mm::policy::Policy;
use highorder_mm::types::{MAX_PAGE_ORDER, Migratetype, NodeId, Order, Pfn, ZoneKind};
use highorder_mm::zone::ZoneId;
use highorder_mm::{CpuId, Memory, validate::Census};

const ZONE: ZoneId = ZoneId(0);

/// The free lists of a zone: for each order and type the blocks from the head on.
fn lists(memory: &Memory, zone: ZoneId) -> Vec<Vec<Pfn>> {
    scene::every_list(&memory.zones[zone.index()]).map(|list| memory.list_blocks(list)).collect()
}

/// As [`lists`], with each list sorted: which blocks are free, not in which order.
fn free_blocks(memory: &Memory, zone: ZoneId) -> Vec<Vec<Pfn>> {
    let mut lists = lists(memory, zone);
    lists.iter_mut().for_each(|list| list.sort());
    lists
}

fn take(memory: &mut Memory, order: u8, migratetype: Migratetype) -> Option<Pfn> {
    let flags = AllocFlags::NONE;
    memory.rmqueue_buddy_block(ZONE, Order(order), migratetype, flags, &mut SearchMode::Normal)
}

fn give(memory: &mut Memory, pfn: Pfn, order: u8) {
    memory.free_to_buddy(ZONE, pfn, Order(order), FreeTo::Policy);
}

/// 16 pages whose pages are in use where `pattern` has a bit, all taken one by one.
fn sixteen_pages(policy: &Policy, pattern: u32) -> Memory {
    let mut memory = all_free(&single_zone(16), policy);
    for _ in 0..16 {
        take(&mut memory, 0, Migratetype::Movable).expect("16 pages");
    }
    for page in (0..16).filter(|page| pattern & (1 << page) == 0) {
        give(&mut memory, Pfn(page), 0);
    }
    memory
}

/// Numbers up to `n` in every order would be too many; these are all rotations, both ways, of four
/// strides that visit every page.
fn many_orders(n: u32) -> Vec<Vec<u32>> {
    let mut orders = Vec::new();
    for stride in [1, 3, 5, 7] {
        for first in 0..n {
            let forth: Vec<_> = (0..n).map(|i| (first + i * stride) % n).collect();
            orders.push(forth.iter().rev().copied().collect());
            orders.push(forth);
        }
    }
    orders
}

#[test]
fn every_pattern_of_sixteen_pages_is_free_in_the_largest_blocks_that_fit() {
    let policy = scaled_down(linux_6_12());
    for pattern in 0..1u32 << 16 {
        let memory = sixteen_pages(&policy, pattern);
        // An aligned area without a page in use is one free block, unless its parent is one too.
        let is_free = |start: u32, order: u8| {
            order <= 4 && (start..start + (1 << order)).all(|page| pattern & (1 << page) == 0)
        };
        for order in 0..=4u8 {
            for start in (0..16u32).step_by(1 << order) {
                let parent = start & !((2 << order) - 1);
                let expected = is_free(start, order) && !is_free(parent, order + 1);
                let found = memory.frames().is_free(Pfn(start), Order(order));
                assert_eq!(found, expected, "pattern {pattern:#06x}, order {order} at {start}");
            }
        }
        if pattern % 64 == 0 {
            memory.validate().unwrap_or_else(|fault| panic!("pattern {pattern:#06x}: {fault}"));
        }
    }
}

#[test]
fn freeing_in_any_order_rebuilds_the_same_free_lists() {
    for (name, policy) in policies() {
        let policy = scaled_down(policy);
        for pages in [16, 64] {
            let fresh = all_free(&single_zone(pages), &policy);
            for order in many_orders(pages) {
                let mut memory = fresh.clone();
                for _ in 0..pages {
                    take(&mut memory, 0, Migratetype::Movable).expect("every page");
                }
                assert_eq!(take(&mut memory, 0, Migratetype::Movable), None);
                for page in order {
                    give(&mut memory, Pfn(page), 0);
                }
                memory.validate().unwrap_or_else(|fault| panic!("{name}: {fault}"));
                assert_eq!(free_blocks(&memory, ZONE), free_blocks(&fresh, ZONE), "{name}");
            }
        }
    }
}

#[test]
fn splitting_then_merging_is_the_identity_for_every_order() {
    for (name, policy) in policies() {
        let fresh = all_free(&single_zone(4096), &policy);
        for order in 0..=MAX_PAGE_ORDER {
            let mut memory = fresh.clone();
            let own = if policy.freelist.mobility_grouping {
                Migratetype::Movable
            } else {
                Migratetype::Unmovable
            };
            let pfn = take(&mut memory, order, own).expect("room");
            // Before 5.10 boot gave the highest block last, to the head.
            let head = if policy.freelist.boot_to_tail { 0 } else { 4096 - (1 << MAX_PAGE_ORDER) };
            assert_eq!(pfn, Pfn(head), "{name}: the head after boot");
            // One half of each order on the way down is left.
            for left in order..MAX_PAGE_ORDER {
                assert!(
                    memory.frames().is_free(Pfn(head + (1 << left)), Order(left)),
                    "{name} order {left}"
                );
            }
            give(&mut memory, pfn, order);
            assert_eq!(
                free_blocks(&memory, ZONE),
                free_blocks(&fresh, ZONE),
                "{name} order {order}"
            );
        }
    }
}

#[test]
fn a_free_block_waits_at_the_tail_exactly_when_its_parents_buddy_is_free() {
    let policy = scaled_down(linux_6_12());
    for order in 0..4u8 {
        for aunt_is_free in [false, true] {
            let mut memory = all_free(&single_zone(256), &policy);
            // All memory in blocks of this order; then a few come back.
            while take(&mut memory, order, Migratetype::Movable).is_some() {}
            let size = 1 << order;
            give(&mut memory, Pfn(128), order);
            if aunt_is_free {
                give(&mut memory, Pfn(2 * size), order);
                give(&mut memory, Pfn(3 * size), order);
            }
            give(&mut memory, Pfn(0), order);
            let list = memory.zones[0].free_area.list(Order(order), Migratetype::Movable);
            let blocks = memory.list_blocks(list);
            let expected = if aunt_is_free { [Pfn(128), Pfn(0)] } else { [Pfn(0), Pfn(128)] };
            // Order 3 is the last that looks ahead: its parent's buddy would make the largest order.
            assert_eq!(blocks, expected, "order {order}, aunt {aunt_is_free}");
        }
    }
    // From the order below the largest on there is nothing to wait for.
    let mut memory = all_free(&single_zone(256), &policy);
    while take(&mut memory, 4, Migratetype::Movable).is_some() {}
    for pfn in [128, 32, 48, 0] {
        give(&mut memory, Pfn(pfn), 4);
    }
    let list = memory.zones[0].free_area.list(Order(4), Migratetype::Movable);
    assert_eq!(memory.list_blocks(list), [Pfn(0), Pfn(128)]);
}

#[test]
fn every_migratetype_finds_every_other_at_every_order_as_the_table_says() {
    use Migratetype::{HighAtomic, Isolate, Movable, Reclaimable, Unmovable};
    let expected = |wanted, only| match (wanted, only) {
        (_, HighAtomic | Isolate | Migratetype::Cma) => false,
        (Unmovable | Movable | Reclaimable, Unmovable | Movable | Reclaimable) => true,
        _ => unreachable!("requests are of three types"),
    };
    for (name, policy) in policies() {
        if ["never", "plain"].contains(&name) {
            continue;
        }
        for only in [Unmovable, Movable, Reclaimable, HighAtomic, Isolate] {
            for wanted in [Unmovable, Movable, Reclaimable] {
                for order in 0..=MAX_PAGE_ORDER {
                    let mut memory = Memory::new(single_zone(4096), policy.clone());
                    for block in 0..8 {
                        memory.set_block_type(Pfn(block * 512), only);
                    }
                    memory.release_boot_memory(Pfn(0)..Pfn(4096));
                    let pfn = take(&mut memory, order, wanted);
                    let mut found = expected(wanted, only);
                    // A free block of two isolated pageblocks is on the Isolate list like any other.
                    found &= order <= 10;
                    assert_eq!(pfn.is_some(), found, "{name}: {wanted} order {order} from {only}");
                    let events = memory.take_extfrag();
                    assert_eq!(events.len(), usize::from(found && wanted != only), "{name}");
                    if let Some(event) = events.first() {
                        assert_eq!(
                            (event.fallback_order, event.fallback_migratetype),
                            (Order(10), only)
                        );
                        assert!(event.change_ownership && !event.is_fragmenting(Order(9)));
                        assert_eq!(memory.block_type(pfn.expect("found")), wanted);
                    }
                    memory.validate().unwrap_or_else(|fault| panic!("{name}: {fault}"));
                }
            }
        }
    }
}

#[test]
fn of_two_foreign_types_the_table_prefers_one() {
    use Migratetype::{Movable, Reclaimable, Unmovable};
    for (wanted, first, second) in [
        (Unmovable, Reclaimable, Movable),
        (Movable, Reclaimable, Unmovable),
        (Reclaimable, Unmovable, Movable),
    ] {
        let mut memory = Memory::new(single_zone(4096), linux_6_12());
        for block in 0..8 {
            memory.set_block_type(Pfn(block * 512), if block < 4 { second } else { first });
        }
        memory.release_boot_memory(Pfn(0)..Pfn(4096));
        let pfn = take(&mut memory, 0, wanted).expect("room");
        assert_eq!(pfn, Pfn(2048), "{wanted} takes {first} before {second}");
    }
}

/// A pageblock of 512 pages with `free` of them free in single pages or larger blocks at its end, the
/// rest movable pages in use, and nothing else free in the zone.
fn one_movable_block(policy: &Policy, free: u32) -> Memory {
    let mut memory = all_free(&single_zone(4096), policy);
    while let Some(pfn) = memory.rmqueue(ZONE, request(0, Gfp::HIGHUSER_MOVABLE), AllocFlags::NONE)
    {
        assert!(pfn < Pfn(4096));
    }
    memory.drain_all_pages(None);
    for page in 512 - free..512 {
        memory.free_to_buddy(ZONE, Pfn(512 + page), Order(0), FreeTo::Policy);
    }
    memory
}

fn request(order: u8, gfp: Gfp) -> Request {
    Request { order: Order(order), gfp, cpu: CpuId(0), node: NodeId(0), past_lists: false }
}

#[test]
fn a_pageblock_is_claimed_from_half_free_on() {
    for free in [1, 64, 255, 256, 257, 511, 512] {
        let mut memory = one_movable_block(&linux_6_12(), free);
        let pfn = take(&mut memory, 0, Migratetype::Unmovable).expect("something is free");
        let events = memory.take_extfrag();
        let claimed = free >= 256;
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].change_ownership, claimed, "{free} free");
        assert_eq!(memory.block_type(pfn) == Migratetype::Unmovable, claimed, "{free} free");
        memory.validate().expect("lists follow pageblocks");
    }
}

#[test]
fn a_movable_request_leaves_small_unmovable_blocks_in_their_pageblock() {
    // The same with the roles changed: an unmovable pageblock, free pages of order 3 at most.
    let mut memory = Memory::new(single_zone(4096), linux_6_12());
    for block in 0..8 {
        memory.set_block_type(Pfn(block * 512), Migratetype::Unmovable);
    }
    memory.release_boot_memory(Pfn(0)..Pfn(4096));
    while take(&mut memory, 0, Migratetype::Unmovable).is_some() {}
    // 480 of 512 pages come back, but never 16 in a row.
    for page in (0..512u32).filter(|page| page % 16 != 15) {
        give(&mut memory, Pfn(512 + page), 0);
    }
    let pfn = take(&mut memory, 0, Migratetype::Movable).expect("480 pages");
    assert_eq!(memory.block_type(pfn), Migratetype::Unmovable, "order 3 is below half a pageblock");
    // It took the smallest: an order-0 block there is behind each eight, four and two.
    assert_eq!(pfn.0 % 16, 14);
    let pfn = take(&mut memory, 0, Migratetype::Reclaimable).expect("479 pages");
    assert_eq!(memory.block_type(pfn), Migratetype::Reclaimable, "others claim at any order");
}

#[test]
fn one_refill_that_stole_goes_on_stealing_without_another_claim() {
    // Every fourth page of four pageblocks is free: no claim can succeed, each steal takes a page.
    let mut memory = all_free(&single_zone(4096), &linux_6_12());
    while memory.rmqueue(ZONE, request(0, Gfp::HIGHUSER_MOVABLE), AllocFlags::NONE).is_some() {}
    for page in (0..2048).step_by(4) {
        give(&mut memory, Pfn(page), 0);
    }
    memory.setup_watermarks(Some(400), false);
    let moved = memory.refill_pcp(
        ZONE,
        CpuId(0),
        (Order(0), Migratetype::Unmovable),
        5,
        AllocFlags::KSWAPD,
    );
    let events = memory.take_extfrag();
    assert_eq!((moved, events.len()), (5, 5));
    assert!(events.iter().all(|event| !event.change_ownership));
    // The first page's claim was tried at order 0 alone, and boosted once; the others' never.
    assert_eq!(memory.zones[0].watermarks.boost, 512);
    assert!(memory.zones[0].flags.boosted_watermark);
}

#[test]
fn an_exhausted_list_leaves_its_share_of_a_drain_to_the_next() {
    // 5.15, 14 lists: one reclaimable page, three unmovable and three movable pairs of pages.
    use Migratetype::{Movable, Reclaimable, Unmovable};
    let mut memory = all_free(&single_zone(4096), &scene::linux_5_15());
    (memory.zones[0].pcp[0].batch, memory.zones[0].pcp[0].high) = (7, 1_000);
    let mut put = |order, migratetype| {
        let pfn = take(&mut memory, 10, Movable).expect("a block of its own");
        memory.reshape_allocated(pfn, Order(order), Movable);
        memory.set_block_type(pfn, migratetype);
        memory.free(pfn, Order(order), CpuId(0));
    };
    for (order, migratetype) in [(0, Reclaimable), (1, Unmovable), (1, Movable)] {
        put(order, migratetype);
    }
    let lens = |memory: &Memory| [2, 3, 4].map(|index| memory.zones[0].pcp[0].list(index).len());
    assert_eq!(lens(&memory), [1, 1, 1]);
    for (pfn, migratetype) in [(2, Unmovable), (4, Unmovable), (6, Movable), (8, Movable)] {
        memory.set_block_type(Pfn(0), migratetype);
        memory.reshape_allocated(Pfn(pfn), Order(1), migratetype);
        memory.free(Pfn(pfn), Order(1), CpuId(0));
    }
    assert_eq!(lens(&memory), [1, 3, 3]);
    // One empty list is stepped over, so two blocks are asked of the reclaimable list. It has one; what
    // it owes and the step onwards make two of the unmovable one, and five pages have left.
    memory.drain_pcp_bulk(ZONE, CpuId(0), highorder_mm::pcp::Drain { pages: 5, first_list: 0 });
    assert_eq!(lens(&memory), [0, 1, 3]);
}

#[test]
fn lists_of_higher_orders_are_drained_in_turn_too() {
    // 5.15: with nothing on the order-0 lists a drain must find the others.
    let mut memory = all_free(&single_zone(4096), &scene::linux_5_15());
    memory.setup_watermarks(Some(400), false);
    let pfn = memory.rmqueue(ZONE, request(3, Gfp::KERNEL), AllocFlags::NONE).expect("room");
    memory.drain_all_pages(None);
    memory.zones[0].pcp[0].high = 1_000;
    memory.free(pfn, Order(3), CpuId(0));
    assert_eq!(memory.zones[0].pcp[0].count, 8);
    memory.drain_all_pages(None);
    assert_eq!(memory.zones[0].pcp[0].count, 0);
}

// Defects of other allocators (docs of the project: "Defects seen in peers").

#[test]
fn two_hundred_thousand_pages_taken_and_freed_leave_every_huge_block() {
    // A peer's buddy allocator never merges: 188 of 4096 huge blocks were left of such a round.
    for (name, policy) in policies() {
        let machine = single_zone(1 << 18);
        let mut memory = all_free(&machine, &policy);
        memory.setup_watermarks(Some(4_000), false);
        let fresh = free_blocks(&memory, ZONE);
        let pages: Vec<_> = (0..200_000)
            .map(|_| {
                let request = request(0, Gfp::HIGHUSER_MOVABLE);
                memory.alloc_without_reclaim(request).unwrap_or_else(|| panic!("{name}: room"))
            })
            .collect();
        for pfn in pages {
            memory.free(pfn, Order(0), CpuId(0));
        }
        memory.drain_all_pages(None);
        assert_eq!(memory.zones[0].free_area.nr_free(Order(10)), 256, "{name}");
        assert_eq!(free_blocks(&memory, ZONE), fresh, "{name}");
    }
}

#[test]
fn a_huge_block_cut_into_pages_is_freed_page_by_page_and_no_frame_twice() {
    // A peer's demotion hands the free routine one page too many, so that freed blocks overlap.
    for (name, policy) in policies() {
        let mut memory = all_free(&single_zone(4096), &policy);
        let fresh = free_blocks(&memory, ZONE);
        let huge =
            memory.rmqueue(ZONE, request(9, Gfp::TRANSHUGE_LIGHT), AllocFlags::NONE).expect("room");
        memory.reshape_allocated(huge, Order(0), Migratetype::Movable);
        for page in 0..512 {
            let sound = memory.validate();
            sound.unwrap_or_else(|fault| panic!("{name}, page {page}: {fault}"));
            memory.free(huge + page, Order(0), CpuId(0));
        }
        memory.drain_all_pages(None);
        memory.validate().unwrap_or_else(|fault| panic!("{name}: {fault}"));
        let census = memory.census(ZONE).expect("blocks tile memory");
        assert_eq!(census, Census { free: 4096, ..Census::default() }, "{name}");
        assert_eq!(free_blocks(&memory, ZONE), fresh, "{name}");
    }
}

#[test]
fn managed_pages_are_free_on_cpu_lists_isolated_or_allocated_after_every_step() {
    let mut rng = rand_pcg::Pcg64::new(11, 0x6370);
    let mut scene = Scene::new(&small_numa(), &scaled_down(linux_6_12()), 800, false);
    for _ in 0..4_000 {
        let op = scene::random_op(&mut rng, 160, 5);
        scene.step(op).expect("nobody to differ from");
        scene.check_conservation().unwrap_or_else(|fault| panic!("{op:?}: {fault}"));
        scene.fast.validate().unwrap_or_else(|fault| panic!("{op:?}: {fault}"));
    }
}

#[test]
fn a_request_larger_than_the_largest_block_fails_without_harm() {
    for (_, policy) in policies() {
        let mut memory = all_free(&single_zone(4096), &policy);
        memory.setup_watermarks(Some(100), false);
        let before = lists(&memory, ZONE);
        assert_eq!(memory.alloc_without_reclaim(request(MAX_PAGE_ORDER + 1, Gfp::KERNEL)), None);
        assert_eq!(lists(&memory, ZONE), before);
    }
}

#[test]
fn a_node_without_memory_allocates_as_its_nearest_neighbour() {
    // Node 1 has CPUs alone. Its preferred zone is node 0's Normal, whose lower zone is tried before
    // pageblocks are mixed.
    let mut machine = scene::single_zone(4096);
    machine.nodes[0].distances = vec![10, 20];
    machine.nodes[0].zones[0].kind = ZoneKind::Normal;
    machine.nodes[0].zones[0].start = Pfn(2048);
    machine.nodes[0].zones[0].spanned_pages = 2048;
    machine.nodes[0].zones[0].present_pages = 2048;
    machine.nodes[0].zones[0].managed_pages = 2048;
    let mut lower = machine.nodes[0].zones[0];
    (lower.kind, lower.start) = (ZoneKind::Dma32, Pfn(0));
    machine.nodes[0].zones.insert(0, lower);
    machine.nodes.push(highorder_mm::NodeSpec { distances: vec![20, 10], zones: Vec::new() });
    machine.cpu_nodes = vec![NodeId(0), NodeId(1)];
    for node in NodeId::all(2) {
        let mut memory = all_free(&machine, &linux_6_12());
        let from = |memory: &mut Memory, order| {
            let request = Request {
                order: Order(order),
                gfp: Gfp::HIGHUSER_MOVABLE,
                cpu: CpuId(0),
                node,
                past_lists: false,
            };
            let flags = memory.fast_path_flags(request);
            assert!(flags.intersects(AllocFlags::NOFRAGMENT));
            memory.get_page_from_freelist(request, None, flags)
        };
        // Normal keeps only unmovable pageblocks of which a little is free.
        for block in 4..8 {
            memory.set_block_type(Pfn(block * 512), Migratetype::Movable);
        }
        let normal = ZoneId(1);
        while memory
            .rmqueue_buddy_block(
                normal,
                Order(0),
                Migratetype::Unmovable,
                AllocFlags::NONE,
                &mut SearchMode::Normal,
            )
            .is_some()
        {}
        memory.free_to_buddy(normal, Pfn(2048), Order(0), FreeTo::Policy);
        let pfn = from(&mut memory, 0).expect("the lower zone is free");
        assert!(pfn < Pfn(2048), "node {node} mixed a pageblock at {pfn}");
        assert_eq!(memory.take_extfrag().iter().filter(|e| e.fallback_order < Order(9)).count(), 0);
    }
}

#[test]
fn two_reserved_pageblocks_that_merged_are_given_back_together() {
    let mut memory = all_free(&single_zone(1 << 16), &linux_6_12());
    // 65536 / 100 rounds up to two pageblocks.
    let first = take(&mut memory, 9, Migratetype::Movable).expect("room");
    let second = take(&mut memory, 9, Migratetype::Movable).expect("room");
    memory.reserve_highatomic(ZONE, first);
    memory.reserve_highatomic(ZONE, second);
    assert_eq!(memory.zones[0].nr_reserved_highatomic, 1024);
    give(&mut memory, first, 9);
    give(&mut memory, second, 9);
    assert!(memory.frames().is_free(first, Order(10)));
    assert!(memory.unreserve_highatomic(ZONE, Migratetype::Unmovable, false));
    assert_eq!(memory.zones[0].nr_reserved_highatomic, 0);
    for pfn in [first, second] {
        assert_eq!(memory.block_type(pfn), Migratetype::Unmovable);
    }
    memory.validate().expect("lists follow pageblocks");
    assert_eq!(memory.frames().state(first), State::Free);
}

#[test]
fn a_pageblock_that_two_zones_share_never_changes_type() {
    // The small machine with a border inside a pageblock.
    let mut machine = small_numa();
    for (zone, start, end) in [(0, 1, 1032), (1, 1032, 3072)] {
        let spec = &mut machine.nodes[0].zones[zone];
        spec.start = Pfn(start);
        spec.spanned_pages = end - start;
        spec.present_pages = end - start;
        spec.managed_pages = u64::from(end - start);
    }
    for (name, policy) in policies() {
        let mut scene =
            Scene::new(&machine, &scaled_down(policy), 800, true).with_batches(3, 12, 40);
        let mut rng = rand_pcg::Pcg64::new(5, 0x7368);
        for step in 0..20_000u32 {
            let fill = if step / 2_000 % 2 == 0 { 180 } else { 90 };
            let op = scene::random_op(&mut rng, fill, 5);
            let outcome = scene.step(op).and_then(|()| {
                if step % 50 == 0 {
                    scene.compare().and_then(|()| scene.fast.validate())
                } else {
                    Ok(())
                }
            });
            outcome.unwrap_or_else(|fault| panic!("{name}, step {step}, {op:?}: {fault}"));
        }
    }
}

#[test]
fn zones_without_pages_change_nothing() {
    // A node has all its zones, most of them empty, in `/proc/zoneinfo`.
    let machine = small_numa();
    let mut with_empty = machine.clone();
    for (node, kind) in [(0, ZoneKind::Movable), (1, ZoneKind::Dma32)] {
        let zones = &mut with_empty.nodes[node].zones;
        let at = zones.partition_point(|zone| zone.kind < kind);
        let mut empty = zones[0];
        (empty.kind, empty.spanned_pages, empty.present_pages, empty.managed_pages) =
            (kind, 0, 0, 0);
        zones.insert(at, empty);
    }
    let policy = scaled_down(linux_6_12());
    let mut answers = Vec::new();
    for machine in [machine, with_empty] {
        let mut memory = all_free(&machine, &policy);
        memory.setup_watermarks(Some(800), true);
        for node in NodeId::all(2) {
            for gfp in scene::gfps() {
                let request =
                    Request { order: Order(0), gfp, cpu: CpuId(0), node, past_lists: false };
                let flags = memory.fast_path_flags(request);
                answers.push((flags, memory.alloc_without_reclaim(request)));
            }
        }
    }
    let (without, with) = answers.split_at(answers.len() / 2);
    assert_eq!(without, with);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "no block of order 0 is in use")]
fn a_page_freed_twice_is_caught() {
    let mut memory = all_free(&single_zone(4096), &linux_6_12());
    memory.setup_watermarks(Some(400), false);
    let pfn = memory.rmqueue(ZONE, request(0, Gfp::KERNEL), AllocFlags::NONE).expect("room");
    memory.free(pfn, Order(0), CpuId(0));
    memory.free(pfn, Order(0), CpuId(0));
}

#[test]
fn a_free_of_two_pageblocks_asks_each_for_its_type_where_lists_follow_pageblocks() {
    use Migratetype::{HighAtomic, Movable, Unmovable};
    let after = |policy: &Policy, second| {
        let mut memory = all_free(&single_zone(4096), policy);
        let pfn = take(&mut memory, 10, Movable).expect("room");
        memory.set_block_type(pfn + 512, second);
        memory.free(pfn, Order(10), CpuId(0));
        let of = |pfn: u32| {
            let (order, list) =
                (memory.frames().order(Pfn(pfn)), memory.frames().migratetype(Pfn(pfn)));
            (memory.frames().state(Pfn(pfn)) == State::Free).then_some((order.0, list))
        };
        (of(pfn.0), of(pfn.0 + 512), memory.block_type(pfn))
    };
    // The second piece merges with the first, which takes over its type; the reserve stays apart.
    let policy = linux_6_12();
    assert_eq!(after(&policy, Unmovable), (Some((10, Unmovable)), None, Unmovable));
    assert_eq!(after(&policy, HighAtomic), (Some((9, Movable)), Some((9, HighAtomic)), Movable));
    // Before, the whole goes by its first pageblock.
    for second in [Unmovable, HighAtomic] {
        let whole = (Some((10, Movable)), None, Movable);
        assert_eq!(after(&scene::linux_6_1(), second), whole);
    }
}
