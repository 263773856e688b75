//! Files that are in memory alone: what of them goes to swap comes back to its place, and what may not go stays.

use crate::scene::{
    all_free, linux_3_3, linux_3_4_rc2, linux_4_4, linux_4_20, linux_6_1, linux_6_12, single_zone,
};
use crate::user::User;
use highorder_mm::alloc::Request;
use highorder_mm::anon::{FaultKind, TouchRange};
use highorder_mm::buddy::FreeTo;
use highorder_mm::filemap::{CachedPage, FileId};
use highorder_mm::frame::PageFlags;
use highorder_mm::gfp::Gfp;
use highorder_mm::lru::{LruList, LruvecId};
use highorder_mm::page_table::{Slot, Vpn};
use highorder_mm::policy::Policy;
use highorder_mm::reclaim::Reclaimer;
use highorder_mm::types::{Access, NodeId};
use highorder_mm::vma::ProcessId;
use highorder_mm::vmstat::Vm;
use highorder_mm::watermark::Mark;
use highorder_mm::zone::ZoneId;
use highorder_mm::{CpuId, Order, Pfn};
use std::collections::BTreeSet;

const CPU: CpuId = CpuId(0);
const PAGES: u64 = 64;

fn user(policy: &Policy, slots: u32) -> User {
    let mut user = User::new(all_free(&single_zone(4096), policy));
    user.memory.swapon(slots, 0, true);
    user
}

fn fresh(user: &mut User) -> Pfn {
    let gfp = Gfp::HIGHUSER_MOVABLE;
    let request = Request { order: Order(0), gfp, cpu: CPU, node: NodeId(0), past_lists: false };
    let flags = user.memory.fast_path_flags(request);
    user.memory.get_page_from_freelist(request, Some(Mark::Min), flags).expect("memory is free")
}

fn tmpfs_file(user: &mut User) -> FileId {
    let file = user.memory.files.open();
    for index in 0..PAGES {
        let pfn = fresh(user);
        user.memory.add_to_tmpfs(file, index, pfn, CPU);
    }
    user.memory.lru_add_drain(CPU);
    user.audit().unwrap();
    file
}

fn slots(user: &User, file: FileId) -> Vec<Slot> {
    let slot = |index| match user.memory.files.get(file, index) {
        CachedPage::Swapped(slot) => Some(slot),
        _ => None,
    };
    (0..PAGES).filter_map(slot).collect()
}

fn reclaim(user: &mut User, rounds: u32) {
    for _ in 0..rounds {
        user.reclaim(LruvecId(0), 0, Reclaimer::Kswapd, CPU);
        user.memory.audit().unwrap();
        user.complete_writes(usize::MAX);
        user.memory.audit().unwrap();
    }
}

#[test]
fn pages_of_tmpfs_go_to_swap_and_come_back_to_their_places() {
    for policy in [linux_4_4(), linux_4_20(), linux_6_1(), linux_6_12()] {
        let mut user = user(&policy, 1024);
        let file = tmpfs_file(&mut user);
        // They are on the lists of anonymous memory, though they are pages of a file.
        let on_lists =
            [LruList::InactiveAnon, LruList::ActiveAnon].map(|list| user.memory.nr_lru(list));
        assert_eq!(on_lists.iter().sum::<u64>(), PAGES);
        assert_eq!(user.memory.nr_lru(LruList::InactiveFile), 0);
        let CachedPage::Page(first) = user.memory.files.get(file, 0) else { panic!("it is there") };
        assert!(user.memory.is_shmem(first));
        assert_eq!(user.memory.file_page_at(first), Some((file, 0)));
        reclaim(&mut user, 12);
        let swapped = slots(&user, file);
        assert_eq!(swapped.len() as u64, PAGES, "all went");
        assert_eq!(
            swapped.iter().map(|slot| slot.0).collect::<BTreeSet<u32>>().len(),
            swapped.len()
        );
        assert_eq!(user.memory.vm.get(Vm::PswpOut), PAGES);
        assert_eq!(user.memory.swap.nr_free(), 1024 - PAGES);
        for index in 0..PAGES {
            let CachedPage::Swapped(slot) = user.memory.files.get(file, index) else {
                panic!("page {index} is in swap until it is read")
            };
            if let Some(plan) = user.memory.shmem_swapin_plan(slot) {
                for &other in plan.slots() {
                    let pfn = fresh(&mut user);
                    let read = user.memory.begin_swapin(other, pfn, plan.target, CPU);
                    user.memory.end_swapin(read.pfn);
                }
            }
            user.memory.shmem_from_swap(file, index, slot);
            let CachedPage::Page(pfn) = user.memory.files.get(file, index) else {
                panic!("page {index} is back")
            };
            assert!(user.memory.is_shmem(pfn));
            assert!(user.memory.frames().has(pfn, PageFlags::DIRTY), "its slot is gone");
            user.audit().unwrap();
        }
        assert_eq!(slots(&user, file), []);
        assert_eq!(user.memory.swap.nr_free(), 1024);
        assert_eq!(user.memory.vm.get(Vm::PswpIn), PAGES, "by clusters, each page once");
    }
}

/// Maps a page of a file, which is in memory.
fn fault_in(user: &mut User, start: Vpn, index: u32) {
    loop {
        let done = user.memory.touch_and_fault(TouchRange {
            start: Vpn(start.0 + index),
            pages: 1,
            access: Access::Read,
            cpu: CPU,
            stop_for_huge: false,
            faults_max: 4,
            stop_for_remote: false,
            stop_for_buffer: false,
        });
        let Some(fault) = done.fault else { return };
        if fault.needs_table {
            let table = fresh(user);
            user.memory.map_table(&fault, table);
            continue;
        }
        let FaultKind::File { file, index } = fault.kind else { panic!("it is a file's") };
        let CachedPage::Page(pfn) = user.memory.files.get(file, index) else {
            panic!("page {index} is in memory")
        };
        user.memory.map_file_page(&fault, pfn);
    }
}

#[test]
fn a_mapped_page_of_tmpfs_is_unmapped_before_it_goes_and_mapped_again_after() {
    for policy in [linux_4_4(), linux_6_1(), linux_6_12()] {
        let mut user = user(&policy, 1024);
        let file = tmpfs_file(&mut user);
        let start = user.memory.spaces.mmap_file(ProcessId(0), PAGES as u32, file, 0, false);
        for index in 0..PAGES as u32 {
            fault_in(&mut user, start, index);
        }
        user.memory.audit().unwrap();
        let at =
            |user: &User, index: u32| user.memory.spaces.table().frame_at(Vpn(start.0 + index));
        assert!((0..PAGES as u32).all(|index| at(&user, index).is_some()));
        // Those used since they were last looked at stay a while.
        reclaim(&mut user, 1);
        assert_eq!(slots(&user, file), []);
        reclaim(&mut user, 20);
        assert_eq!(slots(&user, file).len() as u64, PAGES);
        assert!((0..PAGES as u32).all(|index| at(&user, index).is_none()));
        let CachedPage::Swapped(slot) = user.memory.files.get(file, 0) else { panic!("it went") };
        for &other in user.memory.shmem_swapin_plan(slot).expect("no copy is left").slots() {
            let pfn = fresh(&mut user);
            let read = user.memory.begin_swapin(other, pfn, slot, CPU);
            user.memory.end_swapin(read.pfn);
        }
        user.memory.shmem_from_swap(file, 0, slot);
        fault_in(&mut user, start, 0);
        user.memory.lru_add_drain(CPU);
        user.memory.audit().unwrap();
        let CachedPage::Page(pfn) = user.memory.files.get(file, 0) else { panic!("it is back") };
        assert_eq!(at(&user, 0), Some(pfn));
    }
}

#[test]
fn a_page_of_tmpfs_has_no_slot_while_it_may_not_be_written() {
    let mut user = user(&linux_4_4(), 1024);
    let file = tmpfs_file(&mut user);
    user.may_writepage = false;
    reclaim(&mut user, 12);
    assert_eq!(slots(&user, file), []);
    assert_eq!(user.memory.swap.nr_free(), 1024);
    user.may_writepage = true;
    reclaim(&mut user, 12);
    assert_eq!(slots(&user, file).len() as u64, PAGES);
}

#[test]
fn a_full_area_leaves_pages_of_tmpfs_where_they_are() {
    let mut user = user(&linux_4_4(), 16);
    let file = tmpfs_file(&mut user);
    reclaim(&mut user, 12);
    assert_eq!(slots(&user, file).len(), 16);
    assert_eq!(user.memory.swap.nr_free(), 0);
}

#[test]
fn a_page_of_tmpfs_that_moves_stays_in_its_place() {
    let mut user = user(&linux_6_12(), 1024);
    let file = tmpfs_file(&mut user);
    let CachedPage::Page(from) = user.memory.files.get(file, 7) else { panic!("it is there") };
    let (to, buddy) = (fresh(&mut user), fresh(&mut user));
    assert_eq!(buddy, to.buddy(Order(0)), "which keeps it from merging");
    user.memory.free_to_buddy(ZoneId(0), to, Order(0), FreeTo::Policy);
    assert!(user.memory.isolate_free_page(to, Order(0)));
    user.memory.isolate_movable_page(from);
    user.memory.migrate_page(from, to, CPU).expect("nothing is in its way");
    assert_eq!(user.memory.files.get(file, 7), CachedPage::Page(to));
    assert!(user.memory.is_shmem(to));
    user.memory.lru_add_drain(CPU);
    user.memory.audit().unwrap();
    reclaim(&mut user, 12);
    assert_eq!(slots(&user, file).len() as u64, PAGES);
}

#[test]
fn pages_of_ramfs_are_taken_off_the_lists_and_stay() {
    for policy in [linux_3_3(), linux_3_4_rc2()] {
        let mut user = user(&policy, 1024);
        let file = user.memory.files.open();
        for index in 0..PAGES {
            let pfn = fresh(&mut user);
            user.memory.add_to_ramfs(file, index, pfn, CPU);
        }
        user.memory.lru_add_drain(CPU);
        assert_eq!(user.memory.nr_lru(LruList::InactiveFile), PAGES);
        reclaim(&mut user, 12);
        assert_eq!(user.memory.nr_lru(LruList::InactiveFile), 0);
        for index in 0..PAGES {
            let CachedPage::Page(pfn) = user.memory.files.get(file, index) else {
                panic!("page {index} never leaves memory")
            };
            assert!(user.memory.frames().has(pfn, PageFlags::UNEVICTABLE));
            assert!(!user.memory.invalidate_page(pfn, CPU), "nor does drop_caches take it");
        }
        assert_eq!(user.memory.vm.get(Vm::PswpOut), 0);
    }
}
