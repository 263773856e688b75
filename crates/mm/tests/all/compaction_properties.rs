//! Compaction beside everything else that happens to memory: no page is lost, none is in two places,
//! what was written follows its page, and what is held does not move.

use crate::scene::{
    all_free, linux_4_4, linux_4_20, linux_6_1, linux_6_12, scaled_down, single_zone,
};
use crate::user::User;
use highorder_mm::buddy::FreeTo;
use highorder_mm::compaction::{CompactRequest, CompactResult, CompactRun, CompactStep, Compactor};
use highorder_mm::fast_search::MigrateMode;
use highorder_mm::filemap::{CachedPage, FileId};
use highorder_mm::frame::PageFlags;
use highorder_mm::gfp::Gfp;
use highorder_mm::lru::LruvecId;
use highorder_mm::migrate::Obstacle;
use highorder_mm::page_table::Vpn;
use highorder_mm::policy::{
    Finish, FlushBy, FreePages, FreeScan, Policy, Positions, SkipHints, Suitable, TargetHead,
};
use highorder_mm::reclaim::Reclaimer;
use highorder_mm::types::{Access, MemPolicy, Migratetype, NodeId, Order, Pfn, ZoneKind};
use highorder_mm::vmstat::Vm;
use highorder_mm::zone::ZoneId;
use highorder_mm::{CpuId, Memory};
use rand_core::Rng;
use rand_pcg::Pcg64;
use std::collections::BTreeSet;

const ZONE: ZoneId = ZoneId(0);

/// The rules of 3.4's compaction on 4.4's lists.
fn linux_3_4() -> Policy {
    let mut policy = linux_4_4();
    let compaction = &mut policy.compaction;
    compaction.free_scan = FreeScan::WholeBlocks;
    compaction.positions = Positions::None;
    compaction.skip_hints = SkipHints::Off;
    compaction.flush_by = FlushBy::Direct;
    compaction.target_head = TargetHead::Any;
    compaction.finish = Finish::MarkAndType;
    compaction.suitable = Suitable::RoomFirst;
    compaction.unevictable = false;
    policy
}

fn direct(free_pages: FreePages) -> Policy {
    let mut policy = linux_4_20();
    policy.compaction.free_pages = free_pages;
    policy
}

fn policies() -> Vec<(&'static str, Policy)> {
    vec![
        ("6.12", linux_6_12()),
        ("6.1", linux_6_1()),
        ("4.20", linux_4_20()),
        ("4.4", linux_4_4()),
        ("3.4", linux_3_4()),
        ("held", direct(FreePages::DirectHeld)),
        ("tail", direct(FreePages::DirectTail)),
        ("tail as posted", direct(FreePages::DirectTailAsPosted)),
    ]
}

fn below(rng: &mut Pcg64, n: u32) -> u32 {
    ((u64::from(rng.next_u32()) * u64::from(n)) >> 32) as u32
}

fn some_request(rng: &mut Pcg64, memory: &Memory, cpu: CpuId) -> CompactRequest {
    let max_order = memory.policy.freelist.max_order.0;
    let any = Order(1 + below(rng, u32::from(max_order)) as u8);
    // Mostly the smallest order that is not to be had, so that there is something to do.
    let is_free = |order: &Order| memory.zones[0].free_area.nr_free(*order) > 0;
    let lacking = (1..=max_order).map(Order).rev().take_while(|order| !is_free(order)).last();
    let order = lacking.filter(|_| below(rng, 4) > 0).unwrap_or(any);
    let mode =
        [MigrateMode::Async, MigrateMode::SyncLight, MigrateMode::Sync][below(rng, 3) as usize];
    let gfp = if below(rng, 3) == 0 { Gfp::KERNEL } else { Gfp::HIGHUSER_MOVABLE };
    match below(rng, 8) {
        0 => CompactRequest::user(ZONE, cpu),
        1 => CompactRequest::proactive(ZONE, cpu),
        2 => CompactRequest::kcompactd(memory, ZONE, order, ZoneKind::Normal, cpu),
        3 => CompactRequest::kswapd(ZONE, order, cpu),
        4 => CompactRequest::direct(ZONE, order, gfp, MigrateMode::SyncLight, cpu, true),
        _ => CompactRequest::direct(ZONE, order, gfp, mode, cpu, false),
    }
}

/// Takes one step of a run; what it says goes to the content and the device. Returns whether it is over.
fn step(user: &mut User, run: &mut CompactRun, rng: &mut Pcg64) -> bool {
    let pinned = |memory: &Memory, pfn: Pfn| memory.frames().has(pfn, PageFlags::PINNED);
    let before: BTreeSet<Pfn> = (0..user.memory.frames().len() as u32)
        .map(Pfn)
        .filter(|&pfn| pinned(&user.memory, pfn))
        .collect();
    match user.memory.compact_step(run) {
        CompactStep::Migrated(migrated) => {
            for moved in &migrated.moved {
                assert!(!before.contains(&moved.from), "{} was held and moved", moved.from);
            }
            user.follow(&migrated.moved);
        }
        CompactStep::WaitOnPage(_, obstacle) => {
            assert_eq!(obstacle, Obstacle::Writeback, "nothing is being read between two steps");
            user.complete_writes(usize::MAX);
        }
        CompactStep::TooManyIsolated => run.contended = true,
        CompactStep::Done(_) => {
            if let Some(pfn) = run.captured {
                let order = user.memory.frames().order(pfn);
                user.memory.free(pfn, order, CpuId(below(rng, 2)));
            }
            return true;
        }
        _ => {}
    }
    for &pfn in &before {
        assert!(pinned(&user.memory, pfn), "{pfn} was held");
    }
    false
}

/// Random uses of memory, with up to three compactions going on between them.
fn run(name: &str, policy: &Policy, seed: u64, ops: u32) -> User {
    // Half of the time with pageblocks of 16 pages, so that there are many, and no huge pages.
    let is_small = seed.is_multiple_of(2);
    let policy = if is_small { scaled_down(policy.clone()) } else { policy.clone() };
    let mut memory = all_free(&single_zone(4_096), &policy);
    memory.setup_watermarks(Some(100), false);
    memory.update_pcp_limits();
    let mut user = User::new(memory);
    user.huge = !is_small;
    user.memory.swapon(8_192, 0, seed.is_multiple_of(3));
    user.memory.policy.compaction.extfrag_threshold = 0;
    let mut rng = Pcg64::new(u128::from(seed), 0x636f_6d70);
    let nr_cpus = user.memory.machine.cpu_nodes.len() as u32;
    // Broken up from the start: every third page of most of memory is free.
    let start = user.mmap(0, 3_900, MemPolicy::Default);
    user.touch_range(start, 3_900, Access::Write, CpuId(0));
    for at in (start.0..start.0 + 3_900).step_by(3) {
        user.dontneed(Vpn(at), 1, CpuId(0));
    }
    let mut runs: Vec<CompactRun> = Vec::new();
    for at in 0..ops {
        let cpu = CpuId(below(&mut rng, nr_cpus));
        let op = below(&mut rng, 100);
        if user.areas.is_empty() || op < 3 && user.areas.len() < 8 {
            let pages = 1 + below(&mut rng, 1_500);
            user.mmap(below(&mut rng, 3), pages, MemPolicy::Default);
            continue;
        }
        let which = below(&mut rng, user.areas.len() as u32) as usize;
        let (start, pages) = user.areas[which];
        let from = below(&mut rng, pages);
        let some = 1 + below(&mut rng, (pages - from).min(300));
        let access = if below(&mut rng, 3) == 0 { Access::Read } else { Access::Write };
        let vpn = Vpn(start.0 + from);
        match op {
            3..20 => {
                user.touch_range(vpn, some, access, cpu);
            }
            20..28 => {
                for _ in 0..20 {
                    user.touch(Vpn(start.0 + below(&mut rng, pages)), access, cpu);
                }
            }
            28..32 => {
                let priority = below(&mut rng, 13) as u8;
                user.reclaim(LruvecId(0), priority, Reclaimer::Direct, cpu);
            }
            32..35 => user.complete_writes(below(&mut rng, 40) as usize),
            35..37 => user.dontneed(vpn, some, cpu),
            37..39 => {
                // Single pages here and there: nothing breaks memory up like it.
                let step = 2 + below(&mut rng, 4) as usize;
                for at in (vpn.0..vpn.0 + some).step_by(step) {
                    user.dontneed(Vpn(at), 1, cpu);
                }
            }
            39 => user.memory.mlock(vpn..Vpn(vpn.0 + some.min(40)), true),
            40 => user.memory.mlock(start..Vpn(start.0 + pages), false),
            41 => user.memory.lru_add_drain_all(),
            42 => user.munmap(which, cpu),
            43..46 => {
                // Held for a while: whatever page of the zone that is a task's.
                let pfn = Pfn(below(&mut rng, 4_096));
                if user.memory.frames().has(pfn, PageFlags::LRU) {
                    user.memory.pin_page(pfn);
                }
            }
            46 => {
                for pfn in (0..4_096).map(Pfn) {
                    if user.memory.frames().has(pfn, PageFlags::PINNED) {
                        user.memory.unpin_page(pfn);
                    }
                }
            }
            47 => user.memory.reset_isolation_hints(ZONE),
            48..60 if runs.len() < 3 => {
                let request = some_request(&mut rng, &user.memory, cpu);
                if let Ok(run) = user.memory.begin_compaction(request) {
                    runs.push(run);
                }
            }
            60 if !runs.is_empty() => runs[0].contended = true,
            _ => {
                for _ in 0..below(&mut rng, 12) {
                    if runs.is_empty() {
                        break;
                    }
                    let at = below(&mut rng, runs.len() as u32) as usize;
                    if step(&mut user, &mut runs[at], &mut rng) {
                        runs.swap_remove(at);
                    }
                    user.memory.audit().unwrap_or_else(|e| panic!("{name}, seed {seed}: {e}"));
                    user.memory.validate().unwrap_or_else(|e| panic!("{name}, seed {seed}: {e}"));
                }
            }
        }
        user.audit().unwrap_or_else(|e| panic!("{name}, seed {seed}, op {at} ({op}): {e}"));
        let held: u64 = runs.iter().map(|run| run.nr_held()).map(|n| (n[1] + n[2]) as u64).sum();
        assert_eq!(user.memory.zones[0].compact.nr_held, held, "{name}, seed {seed}, op {at}");
    }
    while let Some(mut run) = runs.pop() {
        while !step(&mut user, &mut run, &mut rng) {}
    }
    user.audit().unwrap_or_else(|e| panic!("{name}, seed {seed}, at the end: {e}"));
    user
}

#[test]
fn compaction_beside_anything_loses_nothing_and_moves_nothing_that_is_held() {
    for (name, policy) in policies() {
        let mut moved = 0;
        for seed in 0..4 {
            let user = run(name, &policy, seed, 350);
            moved += user.memory.vm.get(Vm::PgMigrateSuccess);
        }
        println!("{name}: {moved} pages moved");
        assert!(moved > 500, "{name}: {moved} pages moved");
    }
}

/// Files' pages at some frames of an otherwise free zone.
fn files_at(memory: &mut Memory, frames: impl Iterator<Item = u32>) -> FileId {
    let file = memory.files.open();
    for (index, pfn) in frames.enumerate() {
        let (head, order) = memory.free_block_of(Pfn(pfn)).expect("it is free");
        memory.take_free_page(head, order);
        memory.free_to_buddy(ZONE, head, order, FreeTo::Policy);
        memory.force_take(Pfn(pfn), Order(0), Migratetype::Movable).expect("it is free");
        memory.add_to_page_cache(file, index as u64, Pfn(pfn), false, CpuId(0));
    }
    memory.lru_add_drain_all();
    file
}

#[test]
fn a_file_truncated_under_compaction_leaves_nothing_behind() {
    for (name, policy) in policies() {
        let mut memory = all_free(&single_zone(4_096), &policy);
        let file = files_at(&mut memory, (0..2_048).step_by(5));
        let mut run =
            memory.begin_compaction(CompactRequest::user(ZONE, CpuId(0))).expect("it begins");
        for turn in 0u64.. {
            if matches!(memory.compact_step(&mut run), CompactStep::Done(_)) {
                break;
            }
            for index in [turn * 3, turn * 7] {
                if let CachedPage::Page(pfn) = memory.files.get(file, index) {
                    assert!(memory.truncate_page(pfn, CpuId(0)), "{name}: {pfn} is not busy");
                }
            }
            memory.validate().unwrap_or_else(|e| panic!("{name}, step {turn}: {e}"));
            memory.audit().unwrap_or_else(|e| panic!("{name}, step {turn}: {e}"));
        }
        memory.lru_add_drain_all();
        memory.drain_all_pages(None);
        let (pages, _) = memory.files.counts(file);
        assert_eq!(memory.census(ZONE).unwrap().allocated, pages, "{name}");
        assert_eq!(memory.lru.total_stats().nr_isolated, [0; 2], "{name}");
    }
}

#[test]
fn what_parallel_runs_hold_of_the_lists_is_given_back() {
    for (name, policy) in policies().into_iter().skip(5) {
        let policy = scaled_down(policy);
        let mut memory = all_free(&single_zone(4_096), &policy);
        let file = files_at(&mut memory, (0..4_096).step_by(3));
        memory.policy.compaction.extfrag_threshold = 0;
        let mut rng = Pcg64::new(7, 0x6865_6c64);
        let request = CompactRequest::direct(
            ZONE,
            Order(5),
            Gfp::HIGHUSER_MOVABLE,
            MigrateMode::Async,
            CpuId(0),
            false,
        );
        let (mut runs, mut begun, mut gone) = (Vec::new(), 0, 0);
        while begun < 40 || !runs.is_empty() {
            if begun < 40 && runs.len() < 3 {
                begun += 1;
                match memory.begin_compaction(request) {
                    Ok(run) => runs.push(run),
                    Err(CompactResult::Success) => {
                        // Somebody takes the block, and so there is need of another.
                        let order = Order(5);
                        let request = highorder_mm::alloc::Request {
                            order,
                            gfp: Gfp::KERNEL,
                            cpu: CpuId(0),
                            node: NodeId(0),
                            past_lists: false,
                        };
                        memory.alloc_without_reclaim(request).expect("there is one");
                        gone += u64::from(order.pages());
                    }
                    Err(_) => {}
                }
            }
            if !runs.is_empty() {
                let at = below(&mut rng, runs.len() as u32) as usize;
                if matches!(memory.compact_step(&mut runs[at]), CompactStep::Done(_)) {
                    runs.swap_remove(at);
                }
            }
            if below(&mut rng, 4) == 0
                && let CachedPage::Page(pfn) =
                    memory.files.get(file, u64::from(below(&mut rng, 1_366)))
            {
                memory.truncate_page(pfn, CpuId(0));
            }
            memory.validate().unwrap_or_else(|e| panic!("{name}: {e}"));
            memory.audit().unwrap_or_else(|e| panic!("{name}: {e}"));
            let held: usize = runs.iter().map(CompactRun::nr_held).map(|n| n[1] + n[2]).sum();
            assert_eq!(memory.zones[0].compact.nr_held, held as u64, "{name}");
        }
        let (pages, _) = memory.files.counts(file);
        assert_eq!(memory.census(ZONE).unwrap().allocated, pages + gone, "{name}");
        assert_eq!(memory.census(ZONE).unwrap().isolated, 0, "{name}");
        let taken =
            memory.vm.get(Vm::CompactFreeDirectAlloc) + memory.vm.get(Vm::CompactFreeListAlloc);
        let missed =
            memory.vm.get(Vm::CompactFreeDirectMiss) + memory.vm.get(Vm::CompactFreeListSkip);
        println!("{name}: {taken} taken, {missed} missed, {gone} gone");
        assert!(taken > 100, "{name}: {taken} taken");
    }
}

#[test]
fn the_whole_of_8_gib_is_compacted_into_huge_pages() {
    const PAGES: u32 = 2 << 20;
    for (name, policy) in [("6.12", linux_6_12()), ("4.4", linux_4_4())] {
        let mut memory = Memory::new(single_zone(PAGES), policy);
        let file = memory.files.open();
        // Every fourth page is a file's.
        for pfn in 0..PAGES {
            if pfn % 4 == 1 {
                memory.restore_allocated(Pfn(pfn), Order(0), Migratetype::Movable, true);
                memory.add_to_page_cache(file, u64::from(pfn), Pfn(pfn), false, CpuId(0));
            } else if pfn % 4 == 0 {
                memory.restore_free(Pfn(pfn), Order(0), Migratetype::Movable);
            } else if pfn % 4 == 2 {
                memory.restore_free(Pfn(pfn), Order(1), Migratetype::Movable);
            }
        }
        memory.lru_add_drain_all();
        memory.setup_watermarks(None, true);
        memory.update_pcp_limits();
        let (result, _) = memory.compact_zone(CompactRequest::user(ZONE, CpuId(0)));
        assert_eq!(result, CompactResult::Complete, "{name}");
        memory.validate().unwrap_or_else(|e| panic!("{name}: {e}"));
        let area = &memory.zones[0].free_area;
        let huge = u64::from(area.nr_free(Order(9))) + 2 * u64::from(area.nr_free(Order(10)));
        let free = memory.zones[0].nr_free_pages;
        println!("{name}: {} of {} pages moved", memory.vm.get(Vm::PgMigrateSuccess), PAGES / 4);
        assert!(huge * 512 > free / 100 * 95, "{name}: {huge} huge pages of {free} free pages");
    }
}

#[test]
fn async_runs_of_others_than_the_requester_take_any_pageblock() {
    // kswapd's runs and direct ones share the zone's positions; neither loses the other's.
    let mut memory = all_free(&single_zone(4_096), &linux_4_4());
    files_at(&mut memory, (0..4_096).step_by(3));
    memory.setup_watermarks(Some(100), false);
    let request = CompactRequest::kswapd(ZONE, Order(9), CpuId(0));
    let (result, _) = memory.compact_zone(request);
    assert_eq!(result, CompactResult::Success);
    let compact = memory.zones[0].compact;
    assert!(compact.cached_free_pfn < Pfn(4_096));
    assert_eq!(request.who, Compactor::Kswapd);
    memory.validate().expect("sound lists");
    memory.audit().expect("sound user memory");
}
