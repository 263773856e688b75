//! Numbers worked by hand or read off real machines: batches, marks, refills, indices.
//!
//! Zones and marks are those of `/proc/zoneinfo` of Debian's 6.12.107 and 6.1.187 guests, taken before
//! their workloads; the guest is named beside the numbers.

use crate::scene;
use crate::scene::{linux_4_4, linux_4_20, linux_6_1, linux_6_12};
use highorder_mm::alloc::Request;
use highorder_mm::gfp::{AllocFlags, Gfp};
use highorder_mm::index::{NrFree, fragmentation_index, unusable_index};
use highorder_mm::page_table::Vpn;
use highorder_mm::pcp::batch_size;
use highorder_mm::policy::Policy;
use highorder_mm::types::{MemPolicy, Migratetype, NodeId, Order, Pfn, ZoneKind};
use highorder_mm::vma::ProcessId;
use highorder_mm::vmstat::Vm;
use highorder_mm::watermark::{Mark, min_free_kbytes, recommended_min_free_kbytes};
use highorder_mm::zone::ZoneId;
use highorder_mm::{CpuId, Machine, Memory, NodeSpec, ZoneSpec};

const MIB: u64 = 256;

/// Memory with zones of these managed pages; nothing is free.
fn guest(nodes: &[&[(ZoneKind, u64)]], cpu_nodes: &[u32], policy: Policy) -> Memory {
    let mut end = 0;
    let nodes: Vec<_> = nodes
        .iter()
        .map(|zones| NodeSpec {
            distances: vec![10; nodes.len()],
            zones: zones
                .iter()
                .map(|&(kind, managed_pages)| {
                    let start = end;
                    end += managed_pages as u32;
                    ZoneSpec {
                        kind,
                        start: Pfn(start),
                        spanned_pages: end - start,
                        present_pages: end - start,
                        managed_pages,
                    }
                })
                .collect(),
        })
        .collect();
    let cpu_nodes = cpu_nodes.iter().copied().map(NodeId).collect();
    Memory::new(Machine { nr_frames: end, nodes, cpu_nodes }, policy)
}

fn marks(memory: &Memory) -> Vec<[u64; 4]> {
    memory.zones.iter().map(|zone| zone.watermarks.marks).collect()
}

use ZoneKind::{Dma, Dma32, Normal};

#[test]
fn a_batch_is_a_power_of_two_less_one_of_a_quarter_of_a_thousandth() {
    // 15 MiB: 3840 / 1024 = 3, a quarter is none, so 1; 1.5 of that is 1, less one is 0: at least 1.
    assert_eq!(batch_size(15 * MIB, 256), 1);
    // 240 MiB: 61440 / 1024 = 60, a quarter 15, with its half 22, below which 16 is, less one 15.
    assert_eq!(batch_size(240 * MIB, 256), 15);
    // 450 MiB: 112, 28, 42, 32, 31.
    assert_eq!(batch_size(450 * MIB, 256), 31);
    // 1 GiB: 256, 64, 96, 64, 63; more memory does not help.
    for gib in [1, 2, 64, 4096] {
        assert_eq!(batch_size(gib * 1024 * MIB, 256), 63);
    }
    assert_eq!(batch_size(1023 * MIB, 256), 63);
    // Before 4.19 a thousandth was at most 128 pages.
    for mib in [512, 1024, 65_536] {
        assert_eq!(batch_size(mib * MIB, 128), 31);
    }
    assert_eq!((batch_size(0, 256), batch_size(MIB, 0)), (1, 1));
}

#[test]
fn batches_of_recorded_zones_are_as_their_kernels_printed() {
    for (managed, batch) in [
        (3_840, 1),
        (50_493, 15),
        (101_136, 31),
        (115_334, 31),
        (147_590, 31),
        (243_671, 63),
        (254_598, 63),
    ] {
        assert_eq!(batch_size(managed, 256), batch, "{managed}");
    }
}

#[test]
fn old_lists_hold_six_batches_and_none_in_a_tiny_zone() {
    for (policy, batch, high) in [(linux_4_4(), 31, 186), (linux_4_20(), 63, 378)] {
        let mut memory = guest(&[&[(Dma, 3_840), (Dma32, 1024 * MIB)]], &[0], policy);
        memory.setup_watermarks(None, true);
        let limits = |zone: usize| {
            let pcp = &memory.zones[zone].pcp[0];
            (pcp.batch, pcp.high)
        };
        assert_eq!(limits(1), (batch, high));
        // Six times the batch before it is made at least one: the DMA zone's lists stay empty.
        assert_eq!(limits(0), (1, 0));
    }
}

#[test]
fn min_free_kbytes_is_the_root_of_sixteen_times_memory_within_bounds() {
    // 1 GiB: sqrt(1048576 * 16) = 4096.
    assert_eq!(min_free_kbytes(1 << 20, 262_144), 4096);
    assert_eq!(min_free_kbytes(0, 262_144), 128);
    assert_eq!(min_free_kbytes(1 << 40, 262_144), 262_144);
    assert_eq!(min_free_kbytes(1 << 40, 65_536), 65_536);
}

#[test]
fn khugepaged_raises_what_is_computed_but_not_what_was_written() {
    let mut memory = guest(&[&[(Dma, 3_840), (Dma32, 1024 * MIB)]], &[0], linux_6_12());
    let mut min = |set, thp| {
        memory.setup_watermarks(set, thp);
        memory.zones[1].watermarks.raw(Mark::Min)
    };
    assert!(min(None, true) > min(None, false));
    assert_eq!(min(Some(1024), true), min(Some(1024), false));
    assert!(min(Some(1024), true) < min(None, false));
}

#[test]
fn khugepaged_asks_for_eleven_pageblocks_a_zone_but_five_percent_at_most() {
    // 11 * 512 pages * 4 kB: 22528 kB a zone.
    assert_eq!(recommended_min_free_kbytes(2, Order(9), 1 << 30), 45_056);
    assert_eq!(recommended_min_free_kbytes(3, Order(9), 1 << 30), 67_584);
    assert_eq!(recommended_min_free_kbytes(4, Order(9), 1 << 30), 90_112);
    assert_eq!(recommended_min_free_kbytes(2, Order(9), 20 * 100), 400);
}

#[test]
fn the_recommendation_of_one_gib_in_two_zones_is_what_the_guest_had() {
    // 612-thpscale-always: min_free_kbytes 45056 came from khugepaged, so none is given here.
    let mut memory = guest(&[&[(Dma, 3_840), (Dma32, 243_671)]], &[0, 0], linux_6_12());
    memory.setup_watermarks(None, true);
    assert_eq!(marks(&memory), [[174, 217, 260, 303], [11_089, 13_861, 16_633, 19_405]]);
}

#[test]
fn five_percent_are_of_what_lies_above_the_high_marks() {
    // 612-small-churn, 256 MiB: 54333 managed pages. At boot min is 466 pages, the high marks of both
    // zones are 697; (54333 - 697) / 20 = 2681 pages. The guest said 10728 kB = 2682 pages: its boot
    // marks were set before 2 % of memory was freed by the kernel's own start, so they were lower.
    let mut memory = guest(&[&[(Dma, 3_840), (Dma32, 50_493)]], &[0], linux_6_12());
    memory.setup_watermarks(None, true);
    let sum: u64 = marks(&memory).iter().map(|marks| marks[0]).sum();
    assert_eq!(sum, 2_680, "2681 pages less one for rounding down twice");
    // Given the recorded value, all marks are exact.
    memory.setup_watermarks(Some(10_728), true);
    assert_eq!(marks(&memory), [[189, 236, 283, 330], [2_492, 3_115, 3_738, 4_361]]);
}

#[test]
fn marks_follow_from_min_free_kbytes_and_managed_pages_as_recorded() {
    // 612-zones-usemem80-stream: three zones.
    let zones = [(Dma, 3_840), (Dma32, 101_136), (Normal, 254_598)];
    let mut memory = guest(&[&zones], &[0, 0], linux_6_12());
    memory.setup_watermarks(Some(67_584), true);
    assert_eq!(
        marks(&memory),
        [[180, 225, 270, 315], [4_752, 5_940, 7_128, 8_316], [11_963, 14_953, 17_943, 20_933]]
    );
    // 612-fragmenter-2node-boost15000.
    let nodes: [&[_]; 2] = [&[(Dma, 3_840), (Dma32, 115_334)], &[(Dma32, 128_546)]];
    let mut memory = guest(&nodes, &[0, 0, 1, 1], linux_6_12());
    memory.setup_watermarks(Some(48_768), true);
    assert_eq!(
        marks(&memory),
        [[188, 235, 282, 329], [5_676, 7_095, 8_514, 9_933], [6_326, 7_907, 9_488, 11_069]]
    );
    // 61-thpscale-always.
    let mut memory = guest(&[&[(Dma, 3_840), (Dma32, 244_994)]], &[0, 0], linux_6_1());
    memory.setup_watermarks(Some(45_056), true);
    assert_eq!(marks(&memory)[0][..3], [173, 216, 259]);
    assert_eq!(marks(&memory)[1][..3], [11_090, 13_862, 16_634]);
}

#[test]
fn before_4_6_marks_stand_a_quarter_of_min_apart() {
    let mut memory = guest(&[&[(Normal, 1 << 20)]], &[0], linux_4_4());
    memory.setup_watermarks(Some(4 * 2048), false);
    assert_eq!(marks(&memory)[0][..3], [2048, 2560, 3072]);
    // Since then a thousandth of the zone, if that is more.
    let mut memory = guest(&[&[(Normal, 1 << 20)]], &[0], linux_4_20());
    memory.setup_watermarks(Some(4 * 2048), false);
    assert_eq!(marks(&memory)[0][..3], [2048, 2048 + 1048, 2048 + 2 * 1048]);
}

#[test]
fn protection_vectors_are_the_zones_above_by_ratio() {
    // 612-zones-usemem80-stream printed protection (0, 385, 1380, 1380) and (0, 0, 994, 994); it was
    // computed before the kernel freed its start-up pages, when DMA32 managed about 98700.
    let zones = [(Dma, 3_840), (Dma32, 98_700), (Normal, 254_598)];
    let mut memory = guest(&[&zones], &[0, 0], linux_6_12());
    memory.setup_watermarks(Some(67_584), true);
    let protection: Vec<_> = memory.zones.iter().map(|zone| zone.lowmem_reserve).collect();
    assert_eq!(protection, [[0, 385, 1_380, 1_380], [0, 0, 994, 994], [0, 0, 0, 0]]);
    // Another node's zones do not count: 612-fragmenter-2node's node 1 prints only zeros.
    let nodes: [&[_]; 2] = [&[(Dma, 3_840), (Dma32, 113_500)], &[(Dma32, 128_546)]];
    let mut memory = guest(&nodes, &[0, 0, 1, 1], linux_6_12());
    memory.setup_watermarks(Some(48_768), true);
    assert_eq!(memory.zones[0].lowmem_reserve, [0, 443, 443, 443]);
    assert_eq!(memory.zones[2].lowmem_reserve, [0; 4]);
}

#[test]
fn cpu_limits_share_the_low_mark_among_the_nodes_cpus() {
    // 61-thpscale-always: high 108 and 6931; two CPUs.
    let mut memory = guest(&[&[(Dma, 3_840), (Dma32, 244_994)]], &[0, 0], linux_6_1());
    memory.setup_watermarks(Some(45_056), true);
    assert_eq!(memory.zones.iter().map(|z| z.pcp[0].high).collect::<Vec<_>>(), [108, 6_931]);
    // 61-mmapdemo-zrm0: two nodes of two CPUs each; 118 and 4587.
    let nodes: [&[_]; 2] = [&[(Dma, 3_840), (Dma32, 148_912)], &[(Dma32, 160_812)]];
    let mut memory = guest(&nodes, &[0, 0, 1, 1], linux_6_1());
    memory.setup_watermarks(Some(61_824), true);
    let highs: Vec<_> = memory.zones.iter().map(|zone| zone.pcp[3].high).collect();
    assert_eq!(highs[..2], [118, 4_587]);
    // 6.12 has a range: from that to an eighth of the zone; a mark of 0 until first used.
    let mut memory = guest(&[&[(Dma, 3_840), (Dma32, 243_671)]], &[0, 0], linux_6_12());
    memory.setup_watermarks(Some(45_056), true);
    let pcp = &memory.zones[1].pcp[1];
    assert_eq!((pcp.high, pcp.high_min, pcp.high_max), (0, 6_930, 15_229));
    let pcp = &memory.zones[0].pcp[1];
    assert_eq!((pcp.high_min, pcp.high_max), (108, 240));
    // A node without CPUs divides by all of them.
    let mut memory = guest(&[&[(Normal, 100_000)], &[(Normal, 100_000)]], &[0, 0, 0], linux_6_12());
    memory.setup_watermarks(Some(40_000), false);
    assert_eq!(memory.zones[1].pcp[0].high_max, 100_000 / 8 / 3);
}

#[test]
fn an_empty_list_fetches_two_huge_pages_three_of_order_3_seven_of_order_2() {
    // 115334 pages: batch 31. Order 9: max(31 >> 9, 2); order 3: 31 >> 3; order 2: 31 >> 2.
    for policy in [linux_6_12(), linux_6_1()] {
        let mut memory = guest(&[&[(Dma32, 115_334)]], &[0], policy);
        memory.setup_watermarks(Some(45_056), false);
        for (order, blocks) in [(9, 2), (3, 3), (2, 7), (1, 15), (0, 31)] {
            assert_eq!(
                memory.refill_size(ZoneId(0), CpuId(0), Order(order)),
                blocks,
                "order {order}"
            );
        }
    }
}

#[test]
fn refills_of_single_pages_double_until_they_would_overfill_the_set() {
    let mut memory = guest(&[&[(Dma32, 115_334)]], &[0], linux_6_12());
    memory.setup_watermarks(Some(8_000), false);
    // high_min 2500, high_max 14416: the mark grows by each refill, so 31 << 5 always fits.
    let sizes: Vec<_> = (0..7).map(|_| memory.refill_size(ZoneId(0), CpuId(0), Order(0))).collect();
    assert_eq!(sizes, [31, 62, 124, 248, 496, 992, 992]);
    // Below the high mark the set stops growing: what fits is high - count - batch.
    let pcp = &mut memory.zones[0].pcp[0];
    (pcp.high, pcp.count) = (2_500, 2_300);
    memory.zones[0].flags.below_high = true;
    assert_eq!(memory.refill_size(ZoneId(0), CpuId(0), Order(0)), 2_500 - 2_300 - 31);
}

#[test]
fn a_small_zones_batch_of_one_fetches_one_block_of_any_order() {
    let mut memory = guest(&[&[(Dma, 3_840)]], &[0], linux_6_12());
    memory.setup_watermarks(Some(1_000), false);
    assert_eq!(memory.refill_size(ZoneId(0), CpuId(0), Order(9)), 1);
    assert_eq!(memory.refill_size(ZoneId(0), CpuId(0), Order(3)), 1);
}

#[test]
fn a_boost_is_one_pageblock_a_time_up_to_one_and_a_half_high_marks() {
    let (machine, policy) = (scene::single_zone(16_384), linux_6_12());
    let mut memory = scene::all_free(&machine, &policy);
    memory.setup_watermarks(Some(4 * 800), false);
    // high = 800 + 2 * 200 = 1200; the most is 1800: 512, 1024, 1536, then 1800.
    let mut boosts = Vec::new();
    for _ in 0..5 {
        // All but one order-7 block is taken by movable requests.
        let mut used = Vec::new();
        let zone = ZoneId(0);
        let mut mode = highorder_mm::fallback::SearchMode::Normal;
        let none = highorder_mm::gfp::AllocFlags::KSWAPD;
        let mut take = |memory: &mut Memory, order, mt| {
            memory.rmqueue_buddy_block(zone, Order(order), mt, none, &mut mode).expect("room")
        };
        while memory.zones[0].nr_free_pages > 128 {
            used.push(take(&mut memory, 7, Migratetype::Movable));
        }
        // An unmovable request finds it and asks for its pageblock, which boosts whatever comes of it.
        take(&mut memory, 0, Migratetype::Unmovable);
        boosts.push(memory.zones[0].watermarks.boost);
        memory = {
            let mut fresh = scene::all_free(&machine, &policy);
            fresh.setup_watermarks(Some(4 * 800), false);
            fresh.zones[0].watermarks.boost = memory.zones[0].watermarks.boost;
            fresh
        };
    }
    assert_eq!(boosts, [512, 1_024, 1_536, 1_800, 1_800]);
}

#[test]
fn a_mark_decays_by_an_eighth_but_drains_no_more_than_a_large_batch() {
    let decayed = |count: u32, high: u32| {
        let mut memory = scene::all_free(&scene::single_zone(16_384), &linux_6_12());
        let pcp = &mut memory.zones[0].pcp[0];
        (pcp.batch, pcp.high_min, pcp.high_max) = (1, 100, 2_000);
        (pcp.high, pcp.factor) = (2_000, 0);
        let single = (Order(0), Migratetype::Movable);
        let flags = highorder_mm::gfp::AllocFlags::NONE;
        assert_eq!(memory.refill_pcp(ZoneId(0), CpuId(0), single, count, flags), count);
        memory.zones[0].pcp[0].high = high;
        memory.decay_pcp_high(ZoneId(0), CpuId(0));
        (memory.zones[0].pcp[0].high, memory.zones[0].pcp[0].count)
    };
    // 1000 - 1000 / 8 = 875, but 990 pages less 32 batches are 958.
    assert_eq!(decayed(990, 1_000), (958, 958));
    // 880 - 32 = 848 is less than 875: five pages go.
    assert_eq!(decayed(880, 1_000), (875, 875));
    assert_eq!(decayed(10, 1_000), (875, 10));
    // Not below the lower bound; and a mark that is there already stays.
    assert_eq!(decayed(10, 104), (100, 10));
    assert_eq!(decayed(120, 100), (100, 100));
}

/// A line of `/proc/buddyinfo` with the lines of `extfrag_index` and `unusable_index` beside it.
#[track_caller]
fn check_indices(nr_free: NrFree, fragmentation: [i64; 11], unusable: [u64; 11]) {
    for order in 0..11u8 {
        let index = usize::from(order);
        assert_eq!(
            fragmentation_index(&nr_free, Order(order)),
            fragmentation[index],
            "order {order}"
        );
        assert_eq!(unusable_index(&nr_free, Order(order)), unusable[index], "order {order}");
    }
}

const WOULD_SUCCEED: i64 = -1_000;

#[test]
fn indices_of_recorded_zones_are_as_their_kernels_printed() {
    const S: i64 = WOULD_SUCCEED;
    // 612-thpscale-always, its memory held: DMA32, DMA.
    check_indices(
        [423, 284, 92, 7, 6, 2, 31, 112, 62, 0, 0],
        [S, S, S, S, S, S, S, S, S, 935, 967],
        [0, 12, 29, 40, 41, 44, 46, 105, 529, 1_000, 1_000],
    );
    check_indices(
        [0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 1],
        [S; 11],
        [0, 0, 0, 0, 0, 0, 25, 76, 179, 179, 179],
    );
    // 612-thpscale-always, afterwards: DMA32.
    check_indices(
        [23_723, 3_806, 967, 568, 377, 333, 275, 255, 125, 8, 18],
        [S; 11],
        [0, 147, 194, 218, 246, 283, 350, 459, 661, 860, 885],
    );
    // 612-zones-usemem80-stream, before and held: DMA, DMA, DMA32, Normal.
    check_indices(
        [1, 0, 1, 1, 1, 1, 2, 3, 2, 1, 0],
        [S, S, S, S, S, S, S, S, S, S, 804],
        [0, 0, 0, 3, 8, 18, 38, 118, 358, 679, 1_000],
    );
    check_indices(
        [2, 6, 4, 4, 2, 3, 0, 3, 2, 1, 0],
        [S, S, S, S, S, S, S, S, S, S, 906],
        [0, 1, 8, 18, 38, 58, 118, 118, 359, 679, 1_000],
    );
    check_indices(
        [6, 11, 8, 10, 11, 13, 11, 6, 15, 1, 0],
        [S, S, S, S, S, S, S, S, S, S, 920],
        [0, 0, 4, 9, 21, 48, 111, 219, 336, 921, 1_000],
    );
    check_indices(
        [12, 33, 36, 33, 31, 26, 108, 34, 15, 1, 0],
        [S, S, S, S, S, S, S, S, S, S, 946],
        [0, 0, 4, 12, 27, 56, 104, 500, 750, 970, 1_000],
    );
    // 612-compactmem-anon, every other page free: DMA32.
    check_indices(
        [87_380, 3, 1, 3, 2, 2, 1, 1, 2, 3, 35],
        [S; 11],
        [0, 695, 695, 695, 696, 696, 696, 697, 698, 702, 714],
    );
}

/// `numa_hit`, `numa_miss`, `numa_foreign`, `numa_local` and `numa_other`.
fn counted_by_node(memory: &Memory) -> [u64; 5] {
    [Vm::NumaHit, Vm::NumaMiss, Vm::NumaForeign, Vm::NumaLocal, Vm::NumaOther]
        .map(|event| memory.vm.get(event))
}

#[test]
fn blocks_are_counted_by_the_nodes_they_come_from() {
    // Two blocks of 512 pages on each of two nodes.
    let nodes: [&[_]; 2] = [&[(Normal, 1024)]; 2];
    let machine = guest(&nodes, &[0, 1], linux_6_12()).machine;
    let ask = |cpu, node| Request {
        order: Order(9),
        gfp: Gfp::HIGHUSER_MOVABLE,
        cpu: CpuId(cpu),
        node: NodeId(node),
        past_lists: false,
    };
    let flags = AllocFlags::NONE;

    let mut memory = scene::all_free(&machine, &linux_6_12());
    for (request, counted) in [
        (ask(0, 0), [1, 0, 0, 1, 0]),
        // For another CPU's node, and given: a hit, though far away.
        (ask(0, 1), [2, 0, 0, 1, 1]),
        (ask(1, 0), [3, 0, 0, 1, 2]),
        // The node has none left.
        (ask(0, 0), [3, 1, 1, 1, 3]),
        // No node has.
        (ask(0, 0), [3, 1, 1, 1, 3]),
    ] {
        memory.get_page_from_freelist(request, None, flags);
        assert_eq!(counted_by_node(&memory), counted);
    }

    // Where a mask leaves the nearest node out, it is not missed.
    let mut memory = scene::all_free(&machine, &linux_6_12());
    for (allowed, counted) in [
        (0b10, [1, 0, 0, 0, 1]),
        (0b11, [2, 0, 0, 1, 1]),
        (0b11, [3, 0, 0, 2, 1]),
        (0b11, [3, 1, 1, 2, 2]),
    ] {
        memory.get_page_from_nodes(ask(0, 0), allowed, None, flags).expect("one is left");
        assert_eq!(counted_by_node(&memory), counted);
    }
}

#[test]
fn the_nodes_of_a_distant_pair_take_turns_as_second_choice() {
    // Two pairs: 15 inside a pair, 20 across. Node 0 goes 1, then 2 (equal to 3, first number), which
    // makes 2 a little dearer; so node 1 goes 0, then 3. Nodes 2 and 3 choose among 0 and 1 alike.
    let distances = [[10, 15, 20, 20], [15, 10, 20, 20], [20, 20, 10, 15], [20, 20, 15, 10]];
    let nodes: [&[_]; 4] = [&[(Normal, 1024)]; 4];
    let mut memory = guest(&nodes, &[0, 1, 2, 3], linux_6_12());
    let mut machine = memory.machine.clone();
    for (spec, distances) in machine.nodes.iter_mut().zip(distances) {
        spec.distances = distances.to_vec();
    }
    for (node, order) in
        [[0, 1, 2, 3], [1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0]].into_iter().enumerate()
    {
        memory = scene::all_free(&machine, &memory.policy);
        let request = highorder_mm::alloc::Request {
            order: Order(10),
            gfp: highorder_mm::gfp::Gfp::HIGHUSER_MOVABLE,
            cpu: CpuId(0),
            node: NodeId(node as u32),
            past_lists: false,
        };
        let visited = [(); 4].map(|()| {
            let flags = highorder_mm::gfp::AllocFlags::NONE;
            memory.get_page_from_freelist(request, None, flags).expect("a block a node").0 / 1024
        });
        assert_eq!(visited, order, "from node {node}");
    }
}

/// A node of 64 MiB of DMA32 and 192 MiB of Normal, and one of 64 MiB of Normal, all free; marks that stand
/// 64, 192 and 64 pages apart.
fn two_nodes_with_marks(policy: Policy) -> Memory {
    let zones: [&[(ZoneKind, u64)]; 2] =
        [&[(Dma32, 64 * MIB), (Normal, 192 * MIB)], &[(Normal, 64 * MIB)]];
    let mut memory = guest(&zones, &[0, 1], policy);
    for zone in 0..3 {
        let (start, end) = (memory.zones[zone].start, memory.zones[zone].end);
        memory.release_boot_memory(start..end);
    }
    // 5 MiB in 320 are a 64th: min 256, 768 and 256 pages.
    memory.setup_watermarks(Some(5 * 1024), false);
    memory
}

fn take_page(memory: &mut Memory, order: u8) -> Option<ZoneId> {
    let request = Request {
        order: Order(order),
        gfp: Gfp::HIGHUSER_MOVABLE,
        cpu: CpuId(0),
        node: NodeId(0),
        past_lists: false,
    };
    let flags = memory.fast_path_flags(request);
    let pfn = memory.get_page_from_freelist(request, Some(Mark::Low), flags)?;
    Some(memory.zone_of(pfn))
}

#[test]
fn fair_shares_fill_a_nodes_zones_in_proportion_before_another_node_is_looked_at() {
    let mut memory = two_nodes_with_marks(linux_4_4());
    assert_eq!(marks(&memory)[1][..3], [768, 960, 1152]);
    let zones: Vec<_> = (0..1024).map(|_| take_page(&mut memory, 0).unwrap().0).collect();
    // The highest zone first, until 192 are taken; then 64 of the lower; then both shares are renewed.
    for round in zones.chunks(256) {
        assert!(round[..192].iter().all(|&zone| zone == 1), "{round:?}");
        assert!(round[192..].iter().all(|&zone| zone == 0), "{round:?}");
    }
    let mut taken = [256, 768, 0];
    while let Some(zone) = take_page(&mut memory, 0) {
        taken[zone.index()] += 1;
        let is_home_full = taken[0] + taken[1] > (62 + 186) * MIB;
        assert!(zone.0 < 2 || is_home_full, "{taken:?}");
    }
    assert!(taken[2] > 60 * MIB, "{taken:?}: the other node is used in the end");
}

#[test]
fn without_fair_shares_the_highest_zone_fills_first() {
    let mut policy = linux_4_4();
    policy.zone.fair_batches = false;
    let mut memory = two_nodes_with_marks(policy);
    assert!((0..4096).all(|_| take_page(&mut memory, 0) == Some(ZoneId(1))));
}

#[test]
fn a_block_uses_up_its_pages_of_the_share_and_a_share_may_go_below_nothing() {
    let mut memory = two_nodes_with_marks(linux_4_4());
    assert_eq!(take_page(&mut memory, 9), Some(ZoneId(1)));
    assert_eq!(memory.zones[1].alloc_batch, 192 - 512);
    assert!(memory.zones[1].flags.fair_depleted);
    assert_eq!(take_page(&mut memory, 9), Some(ZoneId(0)));
    // Both are used up: the shares are renewed, whatever was overdrawn, and the highest comes first.
    assert_eq!(take_page(&mut memory, 0), Some(ZoneId(1)));
    assert_eq!((memory.zones[0].alloc_batch, memory.zones[1].alloc_batch), (64, 191));
    assert!(!memory.zones[0].flags.fair_depleted && !memory.zones[1].flags.fair_depleted);
}

#[test]
fn frames_whose_struct_pages_share_a_page_are_near_each_other() {
    let mut memory = guest(&[&[(Normal, 64 * MIB)]], &[0], linux_4_4());
    let mut release = |from: u32| {
        memory.take_work();
        memory.release_boot_memory(Pfn(from)..Pfn(from + 1));
        let work = memory.take_work();
        (work.list_ops, work.near_list_ops)
    };
    assert_eq!(release(129), (1, 0), "far from where nothing was before");
    assert_eq!(release(191), (0, 1), "the last of the same 64");
    assert_eq!(release(192), (1, 0), "the first of the next 64");
    // Its buddy is taken off its list, and both are put back as one.
    assert_eq!(release(193), (0, 2));
}

#[test]
fn khugepaged_goes_from_process_to_process() {
    let mut memory = guest(&[&[(Normal, 64 * MIB)]], &[0], linux_4_4());
    let [first, second] = [ProcessId(0), ProcessId(1)];
    let spaces = &mut memory.spaces;
    let of_second = spaces.mmap(second, 1024, MemPolicy::Default);
    let of_first = spaces.mmap(first, 512, MemPolicy::Default);
    assert!(of_second < of_first);
    let behind = |(task, at): (ProcessId, Vpn)| (task, Vpn(at.0 + 512));
    let next = |from| memory.next_unit_to_collapse(from, |_| true);
    let units = [(first, of_first), (second, of_second), behind((second, of_second))];
    let mut at = (ProcessId(0), Vpn(0));
    for unit in units {
        assert_eq!(next(at), Some(unit));
        at = behind(unit);
    }
    assert_eq!(next(at), None);
}
