//! Reclaim's and swap's formulas, worked by hand.

use crate::scene::{all_free, linux_4_4, linux_4_20, linux_6_1, linux_6_12, single_zone};
use crate::user::User;
use highorder_mm::CpuId;
use highorder_mm::frame::PageFlags;
use highorder_mm::lru::{LruList, LruvecId, inactive_ratio};
use highorder_mm::machine::ZoneSpec;
use highorder_mm::mglru::{ControlPosition, GenerationPlan, comes_back_no_more};
use highorder_mm::page_table::{Slot, Vpn};
use highorder_mm::policy::{AnonEntry, ListStats, Lru, LruKind, Policy, RefaultRule};
use highorder_mm::reclaim::{
    DEF_PRIORITY, Reclaimer, References, ScanBalance, ScanControl, ScanPlan, check_references,
};
use highorder_mm::swap::{CacheEntry, swapin_window};
use highorder_mm::types::{Access, MemPolicy, NodeId, Pfn, ZoneKind};
use highorder_mm::vma::ProcessId;
use highorder_mm::vmstat::Vm;
use highorder_mm::zone::ZoneId;

fn user(policy: &Policy, pages: u32) -> User {
    User::new(all_free(&single_zone(pages), policy))
}

#[test]
fn the_inactive_ratio_is_the_root_of_ten_times_the_gib() {
    assert_eq!(inactive_ratio(131_072), 1); // half a GiB
    assert_eq!(inactive_ratio(262_144), 3); // 1 GiB: root of 10
    assert_eq!(inactive_ratio(10 * 262_144), 10); // root of 100
    assert_eq!(inactive_ratio(100 * 262_144), 31); // root of 1000
}

#[test]
fn costs_share_the_scan() {
    // Both together 400, so 500 and 700, 1200 in all.
    // Anonymous: 60 * 1201 / 501 = 143; file: 140 * 1201 / 701 = 239.
    let shares = ScanBalance::by_cost(60, [100, 300]);
    assert_eq!(shares, ScanBalance::Fractions(143, 239, 382));
    // 8192 >> 4 = 512, of which 143/382: 191; 4096 >> 4 = 256, of which 239/382: 160.
    assert_eq!(shares.counts([8192, 0, 4096, 0], 4), [191, 0, 160, 0]);
    // Without any cost swappiness alone decides: 60 to 140 of 200.
    assert_eq!(ScanBalance::by_cost(60, [0, 0]), ScanBalance::Fractions(60, 140, 200));
}

#[test]
fn rotation_shares_the_scan() {
    // 60 * 1001 / 901 = 66; 140 * 1001 / 101 = 1387.
    let shares = ScanBalance::by_rotation(60, [1000, 1000], [900, 100]);
    assert_eq!(shares, ScanBalance::Fractions(66, 1387, 1454));
    // A twentieth of 10 pages is half a page: none, or one where shares are rounded up.
    assert_eq!(shares.counts_at_least([10, 0, 10, 0], 0, 0, false), [0, 0, 9, 0]);
    assert_eq!(shares.counts_at_least([10, 0, 10, 0], 0, 0, true), [1, 0, 10, 0]);
}

/// 1024 active anonymous pages, no page of a file, and swap, under 4.20 with these lists; and a pass at priority 4.
fn with_active_anon(lru: Lru) -> (User, ScanControl) {
    let mut user = user(&Policy { lru, ..linux_4_20() }, 4096);
    user.memory.swapon(1024, 0, true);
    let start = user.mmap(0, 1024, MemPolicy::Default);
    user.touch_range(start, 1024, Access::Write, CpuId(0));
    user.memory.lru_add_drain_all();
    (user, ScanControl { priority: 4, ..ScanControl::new(Reclaimer::Kswapd, CpuId(0), 60) })
}

#[test]
fn what_can_be_reclaimed_of_a_zone_is_its_own() {
    // The node's first zone is used last: it stays free.
    let mut machine = single_zone(4096);
    let normal = machine.nodes[0].zones[0];
    let part = |kind, start: u32, pages| ZoneSpec {
        kind,
        start: Pfn(start),
        spanned_pages: pages,
        present_pages: pages,
        managed_pages: pages.into(),
    };
    machine.nodes[0].zones =
        vec![part(ZoneKind::Dma32, 0, 1024), part(normal.kind, 1024, 4096 - 1024)];
    for policy in [linux_4_4(), linux_6_12()] {
        let policy = Policy { lru: Lru { kind: LruKind::Classic, ..policy.lru }, ..policy };
        let mut user = User::new(all_free(&machine, &policy));
        user.memory.swapon(1024, 0, true);
        let start = user.mmap(0, 1000, MemPolicy::Default);
        user.touch_range(start, 1000, Access::Write, CpuId(0));
        user.memory.lru_add_drain_all();
        let of = |zone| user.memory.zone_reclaimable_pages(ZoneId(zone));
        assert_eq!([of(0), of(1)], [0, 1000]);
    }
}

#[test]
fn refaults_of_files_deactivate_and_decide_the_balance_by_kernel() {
    use RefaultRule::{Files, FilesThroughout, Never};
    for (rule, deactivates, scans_anon) in
        [(Never, false, false), (Files, true, false), (FilesThroughout, true, true)]
    {
        let lru = linux_4_20().lru;
        let lru = Lru { deactivate_on_refault: rule, spared_by_priority: false, ..lru };
        let (mut user, sc) = with_active_anon(lru);
        let plan = user.memory.plan_scan(LruvecId(0), &sc);
        assert_eq!(
            (plan.may_deactivate[1], plan.nr),
            (false, [0; 4]),
            "files alone, of which there are none"
        );
        user.memory.lru.lruvecs[0].activated_refaults[1] += 1;
        let plan = user.memory.plan_scan(LruvecId(0), &sc);
        assert_eq!(plan.may_deactivate[1], deactivates, "{rule:?}");
        assert_eq!(plan.nr.iter().sum::<u64>() > 0, scans_anon, "{rule:?}: {:?}", plan.nr);
        user.memory.snapshot_refaults(LruvecId(0));
        assert!(!user.memory.plan_scan(LruvecId(0), &sc).may_deactivate[1], "they are of the past");
    }
}

#[test]
fn whether_active_pages_are_too_many_is_asked_each_time_or_once_for_a_pass() {
    use RefaultRule::{Both, Files, FilesThroughout, Never};
    for (rule, inactive) in [(Never, 512), (Files, 512), (FilesThroughout, 512), (Both, 960)] {
        let lru = Lru { deactivate_on_refault: rule, ..linux_4_20().lru };
        let (mut user, sc) = with_active_anon(lru);
        (0..15).for_each(|_| assert!(user.memory.age_active_anon(LruvecId(0), &sc).is_some()));
        // A pass over everything, 32 pages of each list in turn. What is inactive has to be written, and stays.
        let sc = ScanControl { priority: 0, may_writepage: false, ..sc };
        let mut plan = user.memory.plan_scan(LruvecId(0), &sc);
        assert_eq!(plan.nr, [480, 544, 0, 0], "{rule:?}");
        while user.memory.shrink_step(LruvecId(0), &mut plan, &sc).is_some() {}
        let lists = &user.memory.lru.lruvecs[LruvecId(0)];
        assert_eq!(lists.size(LruList::InactiveAnon), inactive, "{rule:?}");
    }
}

#[test]
fn the_token_spares_what_its_process_has_mapped_and_nothing_that_was_written() {
    let spared = Some(ProcessId(0));
    for (spares, written) in [(None, 32), (spared, 0)] {
        let (mut user, sc) = with_active_anon(linux_4_20().lru);
        let first = LruvecId(0);
        user.memory.age_active_anon(first, &sc).expect("all are active");
        let shrink = |user: &mut User, spared| {
            let sc = ScanControl { spared, ..sc };
            user.shrink_inactive_list(first, LruList::InactiveAnon, 32, &sc)
        };
        let shrunk = shrink(&mut user, spares);
        assert_eq!((shrunk.writes.len(), shrunk.nr_reclaimed), (written, 0), "{spares:?}");
        user.begin(shrunk.writes);
        user.complete_writes(written);
        // No entry maps them any more: the token finds nobody's page.
        assert_eq!(shrink(&mut user, spared).nr_reclaimed, written as u64, "{spares:?}");
    }
}

#[test]
fn where_counts_are_added_up_from_time_to_time_reclaim_goes_by_the_last_ones() {
    for (stats, knows_at_once) in [(ListStats::Exact, true), (ListStats::Periodic, false)] {
        let lru = Lru { deactivate_on_refault: RefaultRule::FilesThroughout, ..linux_4_20().lru };
        let (mut user, sc) = with_active_anon(Lru { stats, ..lru });
        let anon_is_low = |user: &User| user.memory.inactive_is_low(LruvecId(0), false);
        assert_eq!(anon_is_low(&user), knows_at_once, "1024 are active, none is inactive");
        user.memory.gather_list_stats();
        assert!(anon_is_low(&user));
        user.memory.lru.lruvecs[0].activated_refaults[1] += 1;
        let deactivates =
            |user: &mut User| user.memory.plan_scan(LruvecId(0), &sc).may_deactivate[1];
        assert_eq!(deactivates(&mut user), knows_at_once, "{stats:?}");
        // What is not known yet is not of the past either.
        user.memory.snapshot_refaults(LruvecId(0));
        user.memory.gather_list_stats();
        assert_eq!(deactivates(&mut user), !knows_at_once, "{stats:?}");
    }
}

#[test]
fn files_spare_anonymous_pages_only_where_some_are_scanned_and_a_tiny_cache_wants_inactive_ones() {
    for is_new in [false, true] {
        let lru = linux_4_20().lru;
        let lru = Lru { spared_by_priority: is_new, tiny_cache_wants_inactive: is_new, ..lru };
        let (mut user, sc) = with_active_anon(lru);
        // No file page: none is too few before 4.5 as well, where nothing is active.
        let plan = user.memory.plan_scan(LruvecId(0), &sc);
        assert_eq!(plan.nr.iter().sum::<u64>() > 0, is_new);
        // As if all that is free were below the high mark: anonymous pages alone, all of which are active.
        user.memory.zones[0].watermarks.boost = 4096;
        let plan = user.memory.plan_scan(LruvecId(0), &sc);
        let is_whole = plan.nr.iter().sum::<u64>() == 1024 >> 4;
        assert_eq!(is_whole, !is_new, "{:?}", plan.nr);
    }
}

#[test]
fn references_decide_by_kernel_and_type() {
    use AnonEntry::{Active, Inactive};
    use References::{Activate, Keep, Reclaim, ReclaimClean};
    for (anon, entry, accessed, marked, wanted) in [
        (true, Active, 1, false, (Activate, false)),
        (true, Active, 0, false, (Reclaim, false)),
        (true, Inactive, 1, false, (Keep, true)),
        (true, Inactive, 1, true, (Activate, true)),
        (true, Inactive, 0, true, (Reclaim, false)),
        (false, Active, 1, false, (Keep, true)),
        (false, Active, 1, true, (Activate, true)),
        (false, Active, 2, false, (Activate, true)),
        (false, Inactive, 0, true, (ReclaimClean, false)),
        (false, Inactive, 0, false, (Reclaim, false)),
    ] {
        assert_eq!(check_references(anon, entry, accessed, marked), wanted);
    }
}

#[test]
fn a_pass_that_has_enough_drops_the_smaller_type_and_keeps_the_proportion() {
    let sc = ScanControl::new(Reclaimer::Kswapd, CpuId(0), 60);
    let mut plan = ScanPlan::new([96, 64, 320, 64], &sc, [true; 2]);
    let first: Vec<_> = (0..4).map(|_| plan.next(&sc).unwrap()).collect();
    assert_eq!(first, LruList::EVICTABLE.map(|list| (list, 32)));
    plan.nr_reclaimed = 40;
    // Left: 96 anonymous, 320 file. The anonymous scan was done to 100 - 96 * 100 / 161 = 41 %.
    // File: 41 % of 320 = 131, less the 32 done: 99; 41 % of 64 = 26, done already.
    let rest: Vec<_> = std::iter::from_fn(|| plan.next(&sc)).collect();
    let file = LruList::InactiveFile;
    assert_eq!(rest, [(file, 32), (file, 32), (file, 32), (file, 3)]);
    // The lightest pass of a direct reclaimer scans all it planned.
    let sc = ScanControl::new(Reclaimer::Direct, CpuId(0), 60);
    assert_eq!(sc.priority, DEF_PRIORITY);
    let mut plan = ScanPlan::new([96, 64, 320, 64], &sc, [true; 2]);
    plan.nr_reclaimed = 1_000;
    let all: u64 = std::iter::from_fn(|| plan.next(&sc)).map(|(_, nr)| nr).sum();
    assert_eq!(all, 96 + 64 + 320 + 64);
}

#[test]
fn read_ahead_doubles_on_hits_and_halves_without() {
    assert_eq!(swapin_window(0, false, 0, 8), 1);
    assert_eq!(swapin_window(0, true, 0, 8), 2);
    assert_eq!(swapin_window(1, false, 0, 8), 4); // 3 pages, rounded up
    assert_eq!(swapin_window(3, false, 4, 8), 8); // 5, rounded up
    assert_eq!(swapin_window(31, false, 8, 8), 8);
    assert_eq!(swapin_window(0, false, 8, 8), 4); // not below half of the last
}

#[test]
fn a_type_is_protected_once_it_comes_back_more_than_its_weight() {
    let at = |refaulted, total, gain| ControlPosition { refaulted, total, gain };
    // 200 * 1064 * 60 = 12 768 000, not above 101 * 1000 * 140 = 14 140 000.
    assert!(comes_back_no_more(at(100, 1000, 60), at(200, 1000, 140)));
    // 250 * 1064 * 60 = 15 960 000 is.
    assert!(!comes_back_no_more(at(100, 1000, 60), at(250, 1000, 140)));
    // Fewer than 64 say nothing.
    assert!(comes_back_no_more(at(0, 1000, 60), at(63, 64, 140)));
}

#[test]
fn new_pages_enter_their_kernels_list_a_batch_at_a_time() {
    // 4.4: the fifteenth page empties a batch of fourteen; pages begin active.
    let mut old = user(&linux_4_4(), 1024);
    let start = old.mmap(0, 100, MemPolicy::Default);
    old.touch_range(start, 14, Access::Write, CpuId(0));
    assert_eq!(old.memory.nr_lru(LruList::ActiveAnon), 0);
    old.touch_range(Vpn(start.0 + 14), 1, Access::Write, CpuId(0));
    assert_eq!(old.memory.nr_lru(LruList::ActiveAnon), 14);
    // 6.1: the fifteenth fills a batch of fifteen; pages begin inactive.
    let mut new = user(&linux_6_1(), 1024);
    let start = new.mmap(0, 100, MemPolicy::Default);
    new.touch_range(start, 14, Access::Write, CpuId(0));
    assert_eq!(new.memory.nr_lru(LruList::InactiveAnon), 0);
    new.touch_range(Vpn(start.0 + 14), 1, Access::Write, CpuId(0));
    assert_eq!(new.memory.nr_lru(LruList::InactiveAnon), 15);
    // 6.12: a batch of 31, and the youngest generation, which counts as active.
    let mut young = user(&linux_6_12(), 1024);
    let start = young.mmap(0, 100, MemPolicy::Default);
    young.touch_range(start, 31, Access::Write, CpuId(0));
    assert_eq!(young.memory.nr_lru(LruList::ActiveAnon), 31);
    assert_eq!(young.memory.lru.lruvecs[0].generations.size(3), [31, 0]);
}

#[test]
fn a_page_is_written_once_and_dropped_the_second_time_unless_it_changed() {
    let mut policy = linux_6_1();
    policy.swap.page_cluster = 0;
    let mut user = user(&policy, 1024);
    user.memory.swapon(1024, 0, true);
    let start = user.mmap(0, 15, MemPolicy::Default);
    user.touch_range(start, 15, Access::Write, CpuId(0));
    let sc = ScanControl::new(Reclaimer::Kswapd, CpuId(0), 60);
    let scan =
        |user: &mut User| user.shrink_inactive_list(LruvecId(0), LruList::InactiveAnon, 32, &sc);
    // First all were accessed by the fault: kept and marked. Then written, and kept for that. 6.1 moves
    // pages under writeback out of the way only where it meets them so.
    assert_eq!(scan(&mut user).nr_ref_keep, 15);
    let shrunk = scan(&mut user);
    assert_eq!((shrunk.nr_pageout, shrunk.nr_reclaimed), (15, 0));
    let slots: Vec<u32> = shrunk.writes.iter().map(|io| io.slot.0).collect();
    assert_eq!(slots, (0..15).collect::<Vec<_>>(), "one behind the other, oldest page first");
    for io in shrunk.writes {
        user.memory.end_writeback(io.pfn);
    }
    assert_eq!(user.memory.vm.get(Vm::PgRotated), 15);
    assert_eq!(scan(&mut user).nr_reclaimed, 15);
    assert_eq!(user.memory.spaces.task(ProcessId(0)).swap, 15);
    assert_eq!(user.memory.vm.get(Vm::PswpOut), 15);
    // Read back to be read, a page keeps its slot: it goes again without being written.
    let touched = user.memory.touch(start, 1, Access::Read);
    let fault = touched.fault.unwrap();
    let plan = user.memory.swapin_plan(start, Slot(0)).unwrap();
    assert_eq!(plan.slots(), [Slot(0)], "no read-ahead with a window of one");
    let request = user
        .memory
        .fault_request(
            &fault,
            highorder_mm::Order(0),
            highorder_mm::gfp::Gfp::HIGHUSER_MOVABLE,
            CpuId(0),
        )
        .0;
    let pfn = user.memory.alloc_without_reclaim(request).unwrap();
    user.memory.begin_swapin(Slot(0), pfn, Slot(0), CpuId(0));
    user.memory.end_swapin(pfn);
    user.memory.map_swapped(&fault, Slot(0), true);
    // The clock has gone on by 15 evictions, and no list has as many active pages: not active.
    assert!(!user.memory.frames().has(pfn, PageFlags::ACTIVE));
    assert_eq!(user.memory.vm.get(Vm::WorkingsetRefaultAnon), 1);
    user.memory.lru_add_drain(CpuId(0));
    assert_eq!(scan(&mut user).nr_ref_keep, 1);
    let shrunk = scan(&mut user);
    assert_eq!((shrunk.nr_pageout, shrunk.nr_reclaimed), (0, 1));
    user.memory.audit().unwrap();
}

#[test]
fn a_full_area_leaves_pages_in_memory_and_unmapping_empties_it() {
    let mut policy = linux_6_12();
    policy.lru.kind = LruKind::Classic;
    policy.swap.cluster_pages = 8;
    let mut user = user(&policy, 1024);
    user.memory.swapon(24, 0, false);
    user.sync_writes = true;
    let start = user.mmap(0, 62, MemPolicy::Default);
    user.touch_range(start, 62, Access::Write, CpuId(0));
    for _ in 0..8 {
        user.reclaim(LruvecId(0), 0, Reclaimer::Kswapd, CpuId(0));
    }
    assert_eq!(user.memory.swap.nr_free(), 0);
    assert_eq!(user.memory.spaces.task(ProcessId(0)).swap, 24);
    assert_eq!(user.memory.spaces.task(ProcessId(0)).anon, 62 - 24);
    user.audit().unwrap();
    user.munmap(0, CpuId(0));
    assert_eq!(user.memory.swap.nr_free(), 24);
    user.audit().unwrap();
    let free = user.memory.zones[0].nr_free_pages + u64::from(user.memory.zones[0].pcp[0].count);
    assert_eq!(free, 1024);
}

#[test]
fn interleaving_takes_the_nodes_in_turn_and_ranges_are_given_again() {
    let policy = MemPolicy::Interleave(0b1011);
    let nodes: Vec<u32> = (0..5).map(|i| policy.placement(i, NodeId(7)).node.0).collect();
    assert_eq!(nodes, [0, 1, 3, 0, 1]);
    let mut user = user(&linux_6_1(), 1024);
    let first = user.mmap(0, 600, MemPolicy::Default);
    let second = user.mmap(0, 10, MemPolicy::Default);
    assert_eq!((first, second), (Vpn(0), Vpn(1024)));
    // The middle goes: its units are shared with what stays, but for none.
    user.memory.munmap(Vpn(100)..Vpn(550), CpuId(0));
    assert_eq!(user.mmap(1, 1, MemPolicy::Default), Vpn(1536));
    user.memory.munmap(Vpn(0)..Vpn(100), CpuId(0));
    assert_eq!(user.mmap(1, 512, MemPolicy::Default), Vpn(0));
}

#[test]
fn counters_have_the_names_of_their_kernel() {
    let names = |policy: &Policy| {
        let mut user = user(policy, 1024);
        let start = user.mmap(0, 40, MemPolicy::Default);
        user.touch_range(start, 40, Access::Write, CpuId(0));
        user.memory.vmstat()
    };
    let value = |list: &[(String, u64)], name: &str| {
        list.iter().find(|(n, _)| n == name).map(|&(_, value)| value)
    };
    let old = names(&linux_4_4());
    for name in ["pgscan_kswapd_normal", "allocstall", "workingset_refault", "thp_split"] {
        assert_eq!(value(&old, name), Some(0), "{name}");
    }
    let new = names(&linux_6_12());
    for name in ["pgscan_kswapd", "allocstall_movable", "workingset_refault_anon", "pgscan_anon"] {
        assert_eq!(value(&new, name), Some(0), "{name}");
    }
    for list in [&old, &new] {
        assert_eq!(value(list, "pgfault"), Some(40));
        assert_eq!(value(list, "pgalloc_normal"), Some(41), "40 pages and a table");
        assert_eq!(value(list, "nr_anon_pages"), Some(40));
    }
    assert_eq!(value(&old, "pgscan_anon"), None);
    assert_eq!(value(&new, "allocstall"), None);
}

#[test]
fn a_huge_page_goes_to_swap_whole_only_where_there_are_clusters() {
    for (rotational, whole) in [(false, true), (true, false)] {
        let mut policy = linux_6_12();
        policy.lru.kind = LruKind::Classic;
        let mut user = user(&policy, 4096);
        user.huge = true;
        user.memory.swapon(2048, 0, rotational);
        let start = user.mmap(0, 512, MemPolicy::Default);
        assert!(user.touch(start, Access::Write, CpuId(0)));
        assert_eq!(user.memory.vm.get(Vm::ThpFaultAlloc), 1);
        for _ in 0..4 {
            user.reclaim(LruvecId(0), 0, Reclaimer::Kswapd, CpuId(0));
        }
        user.complete_writes(usize::MAX);
        let vm = |event| user.memory.vm.get(event);
        assert_eq!((vm(Vm::ThpSwpout), vm(Vm::ThpSwpoutFallback)), (whole.into(), (!whole).into()));
        assert_eq!(vm(Vm::ThpSplitPage), u64::from(!whole));
        assert_eq!(vm(Vm::PswpOut), 512);
        user.audit().unwrap();
    }
}

/// A page that comes back from swap is put on the inactive list. From 4.8 to 5.8 the fault makes it active; before, it
/// waits there for reclaim to find it used.
#[test]
fn what_comes_back_from_swap_is_active_from_4_8_on_alone() {
    for (policy, is_active) in [(linux_4_4(), false), (linux_4_20(), true)] {
        let mut user = user(&policy, 4096);
        user.memory.swapon(1024, 0, true);
        let start = user.mmap(0, 31, MemPolicy::Default);
        user.touch_range(start, 31, Access::Write, CpuId(0));
        for _ in 0..8 {
            user.reclaim(LruvecId(0), 0, Reclaimer::Kswapd, CpuId(0));
            user.complete_writes(usize::MAX);
        }
        assert_eq!(user.memory.spaces.table().frame_at(start), None, "it went to swap");
        assert!(user.touch(start, Access::Read, CpuId(0)));
        user.memory.lru_add_drain_all();
        let pfn = user.memory.spaces.table().frame_at(start).expect("it is back");
        assert_eq!(user.memory.frames().has(pfn, PageFlags::ACTIVE), is_active);
        // Reclaim finds it referenced by the fault.
        user.reclaim(LruvecId(0), 0, Reclaimer::Kswapd, CpuId(0));
        assert_eq!(user.memory.spaces.table().frame_at(start), Some(pfn));
        user.audit().unwrap();
    }
}

/// A 6.12 machine with swap on which somebody has written 124 pages, all in the youngest generation, the first of which
/// is returned; and what reclaim of some pressure is told.
fn with_124_young_pages(who: Reclaimer) -> (User, Vpn, ScanControl) {
    let mut user = user(&linux_6_12(), 4096);
    user.memory.swapon(1024, 0, true);
    let start = user.mmap(0, 124, MemPolicy::Default);
    user.touch_range(start, 124, Access::Write, CpuId(0));
    user.memory.lru_add_drain(CpuId(0));
    (user, start, ScanControl { priority: 4, ..ScanControl::new(who, CpuId(0), 60) })
}

#[test]
fn an_attempt_to_evict_that_only_sorts_does_not_count() {
    let (mut user, start, sc) = with_124_young_pages(Reclaimer::Kswapd);
    // Every page is used again after each new generation: none stays where it lies.
    for _ in 0..2 {
        user.memory.lru_gen_age(LruvecId(0), &sc);
        user.touch_range(start, 124, Access::Read, CpuId(0));
    }
    user.memory.lru_gen_age(LruvecId(0), &sc);
    assert_eq!(user.memory.lru.lruvecs[0].generations.size(5), [124, 0]);
    // The oldest generation's list empties, which leaves the two that nothing can go from.
    loop {
        let evicted = user.lru_gen_evict(LruvecId(0), &sc);
        assert_eq!((evicted.shrunk.nr_taken, evicted.shrunk.nr_scanned), (0, 0));
        if evicted.progress == 0 {
            break;
        }
    }
    let vm = |event| user.memory.vm.get(event);
    assert_eq!((vm(Vm::PgRefill), vm(Vm::PgScanKswapd), vm(Vm::PswpOut)), (124, 0, 0));
    assert!(user.memory.lru_gen_plan(LruvecId(0), &sc).age);
    user.audit().unwrap();
}

#[test]
fn ageing_passes_over_a_table_that_was_sparse_until_eviction_finds_it_dense() {
    let (mut user, start, sc) = with_124_young_pages(Reclaimer::Kswapd);
    let sizes = |user: &User| {
        let generations = user.memory.lru.lruvecs[0].generations.clone();
        [3, 4, 5, 6].map(|seq| generations.size(seq)[0])
    };
    // Nothing is known of tables at first. All 124 entries were accessed: the next walk comes by, and finds 15, which is
    // less than one of eight. The one after it does not.
    user.memory.lru_gen_age(LruvecId(0), &sc);
    user.touch_range(start, 15, Access::Read, CpuId(0));
    user.memory.lru_gen_age(LruvecId(0), &sc);
    assert_eq!(sizes(&user), [109, 15, 0, 0]);
    user.touch_range(start, 124, Access::Read, CpuId(0));
    user.memory.lru_gen_age(LruvecId(0), &sc);
    assert_eq!(sizes(&user), [109, 15, 0, 0], "not walked");
    // Eviction meets pages whose entries were accessed, keeps them all, and puts the table back.
    let evicted = user.lru_gen_evict(LruvecId(0), &sc);
    assert_eq!((evicted.shrunk.nr_taken, evicted.shrunk.nr_pageout), (64, 0));
    user.touch_range(start, 124, Access::Read, CpuId(0));
    user.memory.lru_gen_age(LruvecId(0), &sc);
    assert_eq!(sizes(&user)[3], 124);
    user.audit().unwrap();
}

#[test]
fn without_io_pages_that_only_swap_could_take_are_passed_over() {
    let (mut user, _, mut sc) = with_124_young_pages(Reclaimer::Direct);
    for _ in 0..2 {
        user.memory.lru_gen_age(LruvecId(0), &sc);
    }
    // The generations before theirs are empty.
    user.lru_gen_evict(LruvecId(0), &sc);
    sc.may_io = false;
    let evicted = user.lru_gen_evict(LruvecId(0), &sc);
    assert_eq!((evicted.progress, evicted.shrunk.nr_taken), (0, 0));
    let vm = |event| user.memory.vm.get(event);
    assert_eq!((vm(Vm::PgScanDirect), vm(Vm::PgRefill)), (0, 0));
    assert_eq!(
        user.memory.lru.lruvecs[0].generations.size(3),
        [124, 0],
        "nor do they become young"
    );
    user.audit().unwrap();
    sc.may_io = true;
    assert_eq!(user.lru_gen_evict(LruvecId(0), &sc).shrunk.nr_pageout, 64);
}

#[test]
fn generations_keep_what_is_used_and_evict_what_is_not() {
    let (mut user, start, sc) = with_124_young_pages(Reclaimer::Kswapd);
    let generations = |user: &User| user.memory.lru.lruvecs[0].generations.clone();
    // Everything is in the youngest of four generations, 3; the two oldest are empty and forgotten.
    assert_eq!(user.lru_gen_evict(LruvecId(0), &sc).progress, 0);
    assert_eq!((generations(&user).min_seq, generations(&user).max_seq), ([2, 2], 3));
    // With two left nothing can go: a new one is due. The entries were accessed by the faults.
    let plan = user.memory.lru_gen_plan(LruvecId(0), &sc);
    assert_eq!(plan, GenerationPlan { nr_to_scan: 0, age: true });
    user.memory.lru_gen_age(LruvecId(0), &sc);
    assert_eq!(generations(&user).size(3), [124, 0]);
    assert_eq!(user.lru_gen_evict(LruvecId(0), &sc).progress, 0);
    // The first 31 are used again, and belong to 4 from then on; they stay on the list of 3.
    user.touch_range(start, 31, Access::Read, CpuId(0));
    assert!(user.memory.lru_gen_plan(LruvecId(0), &sc).age);
    user.memory.lru_gen_age(LruvecId(0), &sc);
    let sizes = generations(&user);
    assert_eq!((sizes.size(3), sizes.size(4), sizes.size(5)), ([93, 0], [31, 0], [0, 0]));
    assert_eq!(user.memory.nr_lru(LruList::ActiveAnon), 31, "the two youngest");
    user.audit().unwrap();
    // Eviction meets the 31 first, sorts them, and takes 64 of the others.
    // By the 95 it has looked at a pass comes to its end; what was scanned is what was isolated.
    let evicted = user.lru_gen_evict(LruvecId(0), &sc);
    assert_eq!(evicted.progress, 95);
    let shrunk = evicted.shrunk;
    assert_eq!((shrunk.nr_scanned, shrunk.nr_taken, shrunk.nr_pageout), (64, 64, 64));
    assert_eq!(user.memory.vm.get(Vm::PgRefill), 31);
    assert_eq!(user.memory.vm.get(Vm::PgScanKswapd), 64);
    assert_eq!(shrunk.writes[0].slot, Slot(0));
    assert_eq!(user.memory.vpn_of(shrunk.writes[0].pfn), Some(Vpn(31)));
    user.begin(shrunk.writes);
    // What is being written waits in the second youngest; once written, at the tail of the oldest.
    assert_eq!(generations(&user).size(4), [95, 0]);
    user.complete_writes(64);
    assert_eq!(generations(&user).size(3), [93, 0]);
    let evicted = user.lru_gen_evict(LruvecId(0), &sc);
    assert_eq!(evicted.shrunk.nr_reclaimed, 64);
    // The first that went comes back while its generation is the oldest: it counts.
    user.touch(Vpn(31), Access::Read, CpuId(0));
    assert!(user.memory.vm.get(Vm::WorkingsetRefaultAnon) >= 1);
    assert_eq!(
        user.memory.vm.get(Vm::WorkingsetActivateAnon),
        user.memory.vm.get(Vm::WorkingsetRefaultAnon)
    );
    // So did one that was read with it. Nobody has touched that one, so that ageing does not forget it.
    let CacheEntry::Page(pfn) = user.memory.swap.cached(Slot(1)) else { panic!("read ahead") };
    user.memory.lru_add_drain_all();
    for _ in 0..2 {
        user.memory.lru_gen_age(LruvecId(0), &sc);
        assert!(user.memory.frames().has(pfn, PageFlags::WORKINGSET));
    }
    // Once in the oldest generation it goes round once more, and is one like others from then on.
    let sorted = user.memory.vm.get(Vm::PgRefill);
    while user.memory.frames().has(pfn, PageFlags::WORKINGSET) {
        let evicted = user.lru_gen_evict(LruvecId(0), &sc);
        user.begin(evicted.shrunk.writes);
    }
    assert!(user.memory.vm.get(Vm::PgRefill) > sorted);
    assert!(matches!(user.memory.swap.cached(Slot(1)), CacheEntry::Page(kept) if kept == pfn));
    user.audit().unwrap();
}
