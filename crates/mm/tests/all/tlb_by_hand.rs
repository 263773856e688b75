//! Of what CPUs are told when entries are gone, worked by hand.

use crate::scene::{all_free, linux_6_1, single_zone};
use crate::user::User;
use highorder_mm::CpuId;
use highorder_mm::lru::{LruList, LruvecId};
use highorder_mm::memory::Work;
use highorder_mm::policy::Policy;
use highorder_mm::reclaim::{Reclaimer, ScanControl};
use highorder_mm::types::{Access, MemPolicy};
use highorder_mm::vma::ProcessId;

/// What writing 15 pages of process 0 to swap takes, the second time that reclaim meets them; and dropping them after it.
fn work_of_swapping(policy: &Policy) -> [Work; 2] {
    let mut user = User::new(all_free(&single_zone(1024), policy));
    user.memory.swapon(1024, 0, true);
    let start = user.mmap(0, 15, MemPolicy::Default);
    user.touch_range(start, 15, Access::Write, CpuId(0));
    let sc = ScanControl::new(Reclaimer::Kswapd, CpuId(0), 60);
    let scan = |user: &mut User| {
        user.memory.take_work();
        user.shrink_inactive_list(LruvecId(0), LruList::InactiveAnon, 32, &sc)
    };
    scan(&mut user);
    let shrunk = scan(&mut user);
    assert_eq!(shrunk.nr_pageout, 15);
    let written = user.memory.take_work();
    for io in shrunk.writes {
        user.memory.end_writeback(io.pfn);
    }
    assert_eq!(scan(&mut user).nr_reclaimed, 15);
    [written, user.memory.take_work()]
}

#[test]
fn each_page_is_told_of_before_it_is_written_and_nothing_of_pages_that_nobody_maps() {
    // Together with others where flushes are batched, but for what has to be written at once; else by itself.
    for (batches_flushes, told, told_all) in [(true, 0, 15), (false, 15, 0)] {
        let mut policy = linux_6_1();
        policy.reclaim.batches_flushes = batches_flushes;
        let [written, dropped] = work_of_swapping(&policy);
        assert_eq!((written.tlb_flushes, written.tlb_flushes_all), (told, told_all));
        assert!(written.tlb_users.has(ProcessId(0)) && !written.tlb_users.has(ProcessId(1)));
        assert_eq!((dropped.tlb_flushes, dropped.tlb_flushes_all), (0, 0));
        assert!(!dropped.tlb_users.is_any());
    }
}

#[test]
fn of_an_entry_that_forgets_its_access_cpus_are_told_before_3_15_and_of_a_huge_one_always() {
    for (huge, flushes, told) in
        [(false, false, 0), (false, true, 15), (true, false, 1), (true, true, 1)]
    {
        let mut policy = linux_6_1();
        policy.reclaim.flushes_accessed = flushes;
        let mut user = User::new(all_free(&single_zone(4096), &policy));
        user.huge = huge;
        user.memory.swapon(1024, 0, true);
        let pages = if huge { 512 } else { 15 };
        let start = user.mmap(0, pages, MemPolicy::Default);
        user.touch_range(start, pages, Access::Write, CpuId(0));
        let sc = ScanControl::new(Reclaimer::Kswapd, CpuId(0), 60);
        user.memory.take_work();
        user.shrink_inactive_list(LruvecId(0), LruList::InactiveAnon, 32, &sc);
        let work = user.memory.take_work();
        assert_eq!(work.tlb_flushes, told, "huge: {huge}, told: {flushes}");
        assert_eq!(work.tlb_users.has(ProcessId(0)), told > 0);
    }
}

#[test]
fn splitting_a_huge_page_tells_of_each_part_where_each_is_unmapped_by_itself() {
    use highorder_mm::policy::HugePartialUnmap;
    for (unmap, batched, told, told_all) in [
        (HugePartialUnmap::Split, false, 1, 0),
        (HugePartialUnmap::Defer, false, 512, 0),
        (HugePartialUnmap::Defer, true, 0, 1),
    ] {
        let mut policy = linux_6_1();
        policy.reclaim.huge_partial_unmap = unmap;
        policy.compaction.batched = batched;
        let mut user = User::new(all_free(&single_zone(4096), &policy));
        user.huge = true;
        let start = user.mmap(0, 512, MemPolicy::Default);
        user.touch_range(start, 512, Access::Write, CpuId(0));
        let head = user.memory.spaces.table().frame_at(start).expect("a huge page");
        user.memory.take_work();
        user.memory.split_huge_page(head, CpuId(0));
        let work = user.memory.take_work();
        assert_eq!((work.tlb_flushes, work.tlb_flushes_all), (told, told_all), "{unmap:?}");
        assert!(work.tlb_users.has(ProcessId(0)));
    }
}
