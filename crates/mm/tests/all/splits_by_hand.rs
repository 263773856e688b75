//! Batches of reclaim in which a huge page is split, worked by hand.

use crate::scene::{all_free, linux_6_1, linux_6_12, single_zone};
use crate::user::User;
use highorder_mm::CpuId;
use highorder_mm::lru::{LruList, LruvecId};
use highorder_mm::page_table::Vpn;
use highorder_mm::policy::{BusyMappings, LruKind, Policy, ScanUnit, SplitParts};
use highorder_mm::reclaim::{Pause, Reclaimer, ScanControl, Shrunk};
use highorder_mm::types::{Access, MemPolicy};
use highorder_mm::vma::ProcessId;
use highorder_mm::vmstat::Vm;

const HUGE: u64 = 512;
const LISTS: LruvecId = LruvecId(0);

fn control() -> ScanControl {
    ScanControl::new(Reclaimer::Kswapd, CpuId(0), 60)
}

/// Two huge pages of process 0, of which one has just been split to be written; what is done so far.
fn after_a_split(policy: &Policy) -> (User, Vpn, Shrunk) {
    let mut user = User::new(all_free(&single_zone(8192), policy));
    user.memory.swapon(4096, 0, true);
    user.huge = true;
    let start = user.mmap(0, 1024, MemPolicy::Default);
    user.touch_range(start, 1024, Access::Write, CpuId(0));
    let sc = control();
    for _ in 0..6 {
        let shrunk = match policy.lru.kind {
            LruKind::Classic => {
                user.memory.shrink_inactive_list(LISTS, LruList::InactiveAnon, 32, &sc)
            }
            LruKind::MultiGenerational => {
                user.memory.lru_gen_age(LISTS, &sc);
                user.memory.lru_gen_evict(LISTS, &sc).shrunk
            }
        };
        if matches!(pause_of(&shrunk), Some(Pause::Split(_))) {
            return (user, start, shrunk);
        }
    }
    panic!("no huge page was split");
}

fn pause_of(shrunk: &Shrunk) -> Option<Pause> {
    shrunk.rest.as_ref().map(|rest| rest.pause)
}

fn on_lists(user: &User) -> u64 {
    let lists = &user.memory.lru.lruvecs[LISTS];
    lists.size(LruList::InactiveAnon) + lists.size(LruList::ActiveAnon)
}

#[test]
fn a_batch_goes_on_when_the_split_is_over_and_writes_all_parts() {
    for policy in [linux_6_1(), linux_6_12()] {
        let (mut user, _, mut shrunk) = after_a_split(&policy);
        assert_eq!(pause_of(&shrunk), Some(Pause::Split(ProcessId(0))));
        assert!(shrunk.writes.is_empty());
        assert_eq!(on_lists(&user), HUGE, "the parts are held");
        for nr_written in 1..=HUGE {
            user.memory.shrink_rest(LISTS, &mut shrunk, &control());
            assert_eq!(pause_of(&shrunk), shrunk.writes.last().copied().map(Pause::Write));
            assert_eq!((shrunk.nr_pageout, shrunk.writes.len() as u64), (nr_written, nr_written));
        }
        user.memory.shrink_rest(LISTS, &mut shrunk, &control());
        assert!(shrunk.rest.is_none());
        assert_eq!((shrunk.nr_pageout, shrunk.nr_ref_keep), (HUGE, 0));
        assert_eq!(on_lists(&user), 2 * HUGE, "they are back until they are written");
        user.memory.audit().unwrap();
    }
}

#[test]
fn whoever_has_split_a_page_keeps_its_parts_while_another_splits_the_next() {
    for policy in [linux_6_1(), linux_6_12()] {
        let (mut user, _, mut shrunk) = after_a_split(&policy);
        assert!(user.memory.try_lock_mappings(ProcessId(0)));
        assert!(!user.memory.try_lock_mappings(ProcessId(0)), "one at a time");
        user.memory.shrink_rest(LISTS, &mut shrunk, &control());
        user.memory.unlock_mappings(ProcessId(0));
        assert_eq!((shrunk.nr_pageout, shrunk.nr_ref_keep), (0, HUGE));
        assert_eq!(on_lists(&user), 2 * HUGE);
        user.memory.audit().unwrap();
    }
}

#[test]
fn a_page_kept_because_another_is_split_was_not_found_in_use() {
    for is_locked in [false, true] {
        let mut user = User::new(all_free(&single_zone(8192), &linux_6_1()));
        user.memory.swapon(4096, 0, true);
        user.huge = true;
        let start = user.mmap(0, 1024, MemPolicy::Default);
        let look = |user: &mut User| {
            for _ in 0..2 {
                let list = LruList::InactiveAnon;
                let shrunk = user.memory.shrink_inactive_list(LISTS, list, 32, &control());
                assert_eq!(pause_of(&shrunk), None);
            }
            user.memory.lru.lruvecs[LISTS].size(LruList::ActiveAnon)
        };
        user.touch_range(start, 1024, Access::Write, CpuId(0));
        assert_eq!(look(&mut user), 0, "found in use once");
        if is_locked {
            assert!(user.memory.try_lock_mappings(ProcessId(0)));
            assert_eq!(look(&mut user), 0);
            user.memory.unlock_mappings(ProcessId(0));
        }
        user.touch_range(start, 1024, Access::Write, CpuId(0));
        // In use again: twice in a row, or once.
        assert_eq!(look(&mut user), if is_locked { 0 } else { 2 * HUGE });
    }
}

#[test]
fn what_is_unmapped_while_a_batch_pauses_is_freed_by_it() {
    for policy in [linux_6_1(), linux_6_12()] {
        let (mut user, start, mut shrunk) = after_a_split(&policy);
        user.memory.munmap(start..Vpn(start.0 + 1024), CpuId(0));
        let free = |user: &User| user.memory.zones[0].nr_free_pages;
        let before = free(&user);
        user.memory.shrink_rest(LISTS, &mut shrunk, &control());
        user.memory.drain_all_pages(None);
        assert!(free(&user) >= before + HUGE, "{} and {before}", free(&user));
        assert_eq!((shrunk.nr_pageout, on_lists(&user)), (0, 0));
        assert_eq!(user.memory.lru.total_stats().nr_isolated, [0, 0]);
        user.memory.audit().unwrap();
    }
}

#[test]
fn kernels_that_wait_for_the_lock_look_at_a_page_only_when_it_is_free() {
    let mut policy = linux_6_1();
    policy.reclaim.busy_mappings = BusyMappings::Wait;
    let (mut user, _, mut shrunk) = after_a_split(&policy);
    assert!(user.memory.try_lock_mappings(ProcessId(0)));
    for _ in 0..2 {
        user.memory.shrink_rest(LISTS, &mut shrunk, &control());
        assert_eq!(pause_of(&shrunk), Some(Pause::Locked(ProcessId(0))));
        user.memory.audit().unwrap();
    }
    user.memory.unlock_mappings(ProcessId(0));
    while shrunk.rest.is_some() {
        user.memory.shrink_rest(LISTS, &mut shrunk, &control());
        assert!(!matches!(pause_of(&shrunk), Some(Pause::Locked(_))));
    }
    assert_eq!((shrunk.nr_pageout, shrunk.nr_ref_keep), (HUGE, 0));
    user.memory.audit().unwrap();
}

#[test]
fn whatever_others_do_between_two_pages_of_a_batch_every_page_has_one_place() {
    for policy in [linux_6_1(), linux_6_12()] {
        let (mut user, start, mut shrunk) = after_a_split(&policy);
        for _ in 0..200 {
            user.memory.shrink_rest(LISTS, &mut shrunk, &control());
        }
        // Written so far are the first 200. Of those, and of the others, some are used, some go, and some writes end.
        let written = shrunk.writes.clone();
        user.begin(written[..100].to_vec());
        user.complete_writes(100);
        user.memory.audit().unwrap();
        let [pages, rotated] = [Vm::PswpOut, Vm::PgRotated].map(|event| user.memory.vm.get(event));
        assert_eq!((pages, rotated), (200, 0), "what is off its list is not rotated");
        assert!(user.touch(Vpn(start.0 + HUGE as u32 + 10), Access::Write, CpuId(0)));
        user.memory.munmap(Vpn(start.0 + 150)..Vpn(start.0 + 250), CpuId(0));
        user.memory.munmap(Vpn(start.0 + 662)..Vpn(start.0 + 762), CpuId(0));
        user.memory.audit().unwrap();
        let mut shrunk = user.finish_batch(LISTS, shrunk, &control());
        user.begin(shrunk.writes.split_off(100));
        assert_eq!(user.memory.lru.total_stats().nr_isolated, [0, 0]);
        user.memory.audit().unwrap();
    }
}

#[test]
fn before_3_10_the_parts_of_a_split_page_are_anybodys() {
    let mut policy = linux_6_1();
    policy.lru.scan_unit = ScanUnit::EntryUnbounded;
    policy.reclaim.split_parts = SplitParts::ListTail;
    let (mut user, start, mut shrunk) = after_a_split(&policy);
    // Both huge pages are in the batch: their first parts are, and the others wait at the tail of their list in order.
    let lists = |user: &User| user.memory.lru.lruvecs[LISTS].size(LruList::InactiveAnon);
    assert_eq!(lists(&user), HUGE - 1);
    let mut nr_splits = 0;
    while let Some(pause) = pause_of(&shrunk) {
        nr_splits += u32::from(matches!(pause, Pause::Split(_)));
        user.memory.shrink_rest(LISTS, &mut shrunk, &control());
        user.memory.audit().unwrap();
    }
    assert_eq!((nr_splits, shrunk.nr_pageout), (2, 2));
    assert_eq!(lists(&user), 2 * HUGE);
    let next = user.shrink_inactive_list(LISTS, LruList::InactiveAnon, 32, &control());
    let vpns: Vec<_> =
        next.writes.iter().map(|io| user.memory.vpn_of(io.pfn).unwrap().0 - start.0).collect();
    let expected: Vec<_> = (513..545).collect();
    assert_eq!(vpns, expected, "what was split last is taken first, in order");
}
