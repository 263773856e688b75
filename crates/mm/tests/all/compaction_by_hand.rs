//! Compaction worked by hand, on zones of a few pageblocks of 16 pages.

use crate::scene::{linux_4_4, linux_4_20, linux_6_1, linux_6_12, scaled_down, single_zone};
use highorder_mm::buddy::FreeTo;
use highorder_mm::compaction::{
    CompactRequest, CompactResult, CompactRun, CompactStep, Compactor, Moved, Scanned,
};
use highorder_mm::fast_search::MigrateMode;
use highorder_mm::filemap::FileId;
use highorder_mm::frame::{PageFlags, State};
use highorder_mm::gfp::{AllocFlags, Gfp};
use highorder_mm::migrate::Obstacle;
use highorder_mm::policy::{
    Compaction, Finish, FlushBy, FreePages, FreeScan, Policy, Positions, SkipHints, Suitable,
    TargetHead,
};
use highorder_mm::types::{Migratetype, NodeId, Order, Pfn, ZoneKind};
use highorder_mm::vmstat::Vm;
use highorder_mm::watermark::Mark;
use highorder_mm::zone::ZoneId;
use highorder_mm::{CpuId, Memory};

const ZONE: ZoneId = ZoneId(0);

/// A zone of pageblocks given by what their 16 pages are: `.` free, `m` a page of a file, `k` kernel memory.
fn zone(policy: &Policy, blocks: &[&str]) -> (Memory, FileId) {
    let mut memory =
        Memory::new(single_zone(16 * blocks.len() as u32), scaled_down(policy.clone()));
    let pages = || blocks.iter().flat_map(|block| block.chars()).zip(0u32..);
    for (what, pfn) in pages() {
        let movable = what != 'k';
        memory.restore_allocated(Pfn(pfn), Order(0), Migratetype::Movable, movable);
    }
    let file = memory.files.open();
    for (what, pfn) in pages() {
        match what {
            'm' => memory.add_to_page_cache(file, u64::from(pfn), Pfn(pfn), false, CpuId(0)),
            '.' => memory.free_to_buddy(ZONE, Pfn(pfn), Order(0), FreeTo::Policy),
            _ => {}
        }
    }
    memory.lru_add_drain_all();
    check(&memory);
    (memory, file)
}

#[track_caller]
fn check(memory: &Memory) {
    memory.validate().expect("sound lists");
    memory.audit().expect("sound user memory");
}

/// What is where, as [`zone`] is told it.
fn layout(memory: &Memory) -> Vec<String> {
    let of = |pfn: u32| {
        let frames = memory.frames();
        let head = match frames.state(Pfn(pfn)) {
            State::Inner => frames.head_of(Pfn(pfn)),
            _ => Pfn(pfn),
        };
        match frames.state(head) {
            State::Free => '.',
            State::Pcp => 'p',
            State::Isolated => 'i',
            _ if frames.has(head, PageFlags::LRU | PageFlags::BATCHED) => 'm',
            _ => 'k',
        }
    };
    let pages: String = (0..memory.frames().len() as u32).map(of).collect();
    pages.as_bytes().chunks(16).map(|block| String::from_utf8_lossy(block).into_owned()).collect()
}

/// Takes all steps of a run; what it waits for does not come.
fn drive(memory: &mut Memory, request: CompactRequest) -> (CompactRun, Vec<CompactStep>) {
    let mut run = memory.begin_compaction(request).expect("there is something to do");
    let mut steps = Vec::new();
    while !run.is_over() {
        steps.push(memory.compact_step(&mut run));
        check(memory);
        if matches!(steps.last(), Some(CompactStep::WaitOnPage(..) | CompactStep::TooManyIsolated))
        {
            run.contended = true;
        }
    }
    (run, steps)
}

fn moves(steps: &[CompactStep]) -> Vec<(u32, u32)> {
    let batch = |step: &CompactStep| match step {
        CompactStep::Migrated(migrated) => migrated.moved.clone(),
        _ => Vec::new(),
    };
    steps.iter().flat_map(batch).map(|Moved { from, to, .. }| (from.0, to.0)).collect()
}

fn result(steps: &[CompactStep]) -> CompactResult {
    match steps.last() {
        Some(CompactStep::Done(result)) => *result,
        other => panic!("the run ends with {other:?}"),
    }
}

fn sources(steps: &[CompactStep]) -> Vec<(u32, u32, u32, u32)> {
    let scan = |step: &CompactStep| match step {
        CompactStep::IsolatedMigratepages(s) if s.end > s.start => {
            Some((s.start, s.end, s.nr_scanned, s.nr_taken))
        }
        _ => None,
    };
    steps.iter().filter_map(scan).collect()
}

fn free_scans(steps: &[CompactStep]) -> Vec<Scanned> {
    let scan = |step: &CompactStep| match step {
        CompactStep::IsolatedFreepages(scanned) => Some(*scanned),
        _ => None,
    };
    steps.iter().filter_map(scan).collect()
}

/// Marks so low that they forbid nothing.
fn without_marks(memory: &mut Memory) {
    memory.zones[0].watermarks.marks = [0; 4];
}

fn direct(order: u8, mode: MigrateMode) -> CompactRequest {
    CompactRequest::direct(ZONE, Order(order), Gfp::HIGHUSER_MOVABLE, mode, CpuId(0), false)
}

fn suitable(memory: &Memory, order: u8) -> CompactResult {
    let kind = ZoneKind::Normal;
    memory.compaction_suitable(ZONE, Order(order), Mark::Min, AllocFlags::NONE, kind)
}

const SCATTERED: [&str; 5] = [
    "m.m.............",
    "kkkkkkkkkkkkkkkk",
    "..m.k...........",
    "kkkkkkkkkkkkkkkk",
    "k.k.k...........",
];

#[test]
fn before_6_9_the_last_source_goes_to_the_last_target() {
    let (mut memory, _) = zone(&linux_4_4(), &SCATTERED);
    let (_, steps) = drive(&mut memory, CompactRequest::user(ZONE, CpuId(0)));
    // Two pages of pageblock 0, the higher one first; two free pages of pageblock 4, the higher one first.
    // Then the one of pageblock 2: the free scanner goes on behind what it took.
    assert_eq!(moves(&steps), [(2, 67), (0, 65), (34, 69)]);
    assert_eq!(result(&steps), CompactResult::Complete);
    assert_eq!(
        layout(&memory),
        [
            "................",
            "kkkkkkkkkkkkkkkk",
            "....k...........",
            "kkkkkkkkkkkkkkkk",
            "kmkmkm.........."
        ]
    );
}

#[test]
fn since_6_9_targets_are_used_as_they_were_found() {
    let (mut memory, _) = zone(&linux_6_12(), &SCATTERED);
    let (_, steps) = drive(&mut memory, CompactRequest::user(ZONE, CpuId(0)));
    assert_eq!(moves(&steps), [(2, 65), (0, 67), (34, 69)]);
}

#[test]
fn the_migrate_scanner_counts_jumped_pages_as_its_kernel_does() {
    let scans = |policy: &Policy| {
        let (mut memory, _) = zone(policy, &SCATTERED);
        let (_, steps) = drive(&mut memory, CompactRequest::user(ZONE, CpuId(0)));
        sources(&steps)
    };
    // Pageblock 0: pages 0 to 3, then free blocks of 4 and 8 pages: each counts one, or its pages.
    // Pageblock 1: nothing to take. Pageblock 2: a free block of 2, a page, three single ones, 1, 2, 8.
    let old = scans(&linux_4_4());
    assert_eq!(old[0], (0, 16, 6, 2));
    assert_eq!(old[1], (16, 32, 16, 0));
    assert_eq!(scans(&linux_6_12())[0], (0, 16, 16, 2));
}

#[test]
fn the_scanners_meet_and_the_next_run_begins_at_the_ends() {
    let (mut memory, _) = zone(&linux_4_4(), &SCATTERED);
    without_marks(&mut memory);
    memory.zones[0].compact.cached_migrate_pfn = [Pfn(32); 2];
    memory.zones[0].compact.cached_free_pfn = Pfn(64);
    let mut request = direct(4, MigrateMode::SyncLight);
    request.gfp = Gfp::KERNEL;
    // Unmovable, and all pageblocks are movable: only a steal would serve, which needs order 4 for none.
    memory.policy.fallback.rule = highorder_mm::policy::FallbackRule::Never;
    memory.policy.compaction.extfrag_threshold = 0;
    let (_, steps) = drive(&mut memory, request);
    assert_eq!(sources(&steps)[0].0, 32, "where the last run stopped");
    assert_eq!(result(&steps), CompactResult::Complete);
    let compact = memory.zones[0].compact;
    assert_eq!(compact.cached_migrate_pfn, [Pfn(0); 2]);
    assert_eq!(compact.cached_free_pfn, Pfn(64));
    assert!(compact.blockskip_flush);
}

#[test]
fn a_pageblock_scanned_in_vain_is_skipped_until_kswapd_clears_its_mark() {
    let (mut memory, _) = zone(&linux_4_4(), &SCATTERED);
    without_marks(&mut memory);
    let request = CompactRequest { order: None, ..direct(4, MigrateMode::SyncLight) };
    let scanned = |memory: &mut Memory| {
        let (_, steps) = drive(memory, request);
        sources(&steps).into_iter().map(|(start, ..)| start).collect::<Vec<_>>()
    };
    assert_eq!(scanned(&mut memory), [0, 16, 32, 48]);
    assert!(memory.block_skip(Pfn(16)) && !memory.block_skip(Pfn(0)));
    // Pageblocks 0 and 2 are empty by now, and so marked as well by the second run.
    memory.drain_all_pages(None);
    assert_eq!(scanned(&mut memory), [0, 32]);
    assert!(memory.block_skip(Pfn(0)) && memory.block_skip(Pfn(32)));
    assert!(scanned(&mut memory).is_empty());
    memory.reset_isolation_hints(ZONE);
    assert!(!memory.block_skip(Pfn(16)));
    assert_eq!(scanned(&mut memory), [0, 16, 32, 48]);
}

#[test]
fn async_compaction_of_4_14_gives_a_block_up_with_its_first_failure() {
    let mut policy = linux_4_20();
    policy.compaction.sampled_reset = false;
    let blocks = ["mmk.m.........kk", "kkkkkkkkkkkkkkkk", "k...............", "k..............."];
    let (mut memory, _) = zone(&policy, &blocks);
    without_marks(&mut memory);
    memory.policy.compaction.extfrag_threshold = 0;
    // Order 2: pages 0 and 1 are put back when page 2 cannot be taken; page 4 alone is moved.
    memory.policy.compaction.finish = Finish::MarkAndType;
    memory.zones[0].watermarks.marks = [0, 1_000, 0, 0];
    let mut run =
        memory.begin_compaction(CompactRequest { order: None, ..direct(2, MigrateMode::Async) });
    let run = run.as_mut().expect("nothing forbids it");
    run.cc.order = Some(Order(2));
    let mut steps = Vec::new();
    while !run.is_over() {
        steps.push(memory.compact_step(run));
        check(&memory);
    }
    // Looked at: 0, 1, 2, then 4, 5, and the free block at 6.
    assert_eq!(sources(&steps)[0], (0, 8, 6, 1), "up to the end of the block of four");
    assert_eq!(moves(&steps)[0].0, 4);
    let lru = |pfn| memory.frames().has(Pfn(pfn), PageFlags::LRU);
    assert!(lru(0) && lru(1), "what was put back is on its list again");
}

#[test]
fn each_mode_takes_what_it_may_wait_for() {
    let taken = |policy: &Policy, mode| {
        let (mut memory, _) =
            zone(policy, &["mm..............", "k...............", "k..............."]);
        memory.set_page_dirty(Pfn(0));
        assert!(memory.begin_page_writeback(Pfn(0)));
        let request = CompactRequest { mode, ..CompactRequest::user(ZONE, CpuId(0)) };
        let (_, steps) = drive(&mut memory, request);
        let waits = steps.contains(&CompactStep::WaitOnPage(Pfn(0), Obstacle::Writeback));
        (sources(&steps)[0].3, moves(&steps).len(), waits)
    };
    // The page being written is isolated by sync-light runs before 4.8, which then leave it.
    assert_eq!(taken(&linux_4_4(), MigrateMode::Async), (1, 1, false));
    assert_eq!(taken(&linux_4_4(), MigrateMode::SyncLight), (2, 1, false));
    assert_eq!(taken(&linux_4_4(), MigrateMode::Sync), (2, 1, true));
    assert_eq!(taken(&linux_6_12(), MigrateMode::SyncLight), (1, 1, false));
    assert_eq!(taken(&linux_6_12(), MigrateMode::Sync), (2, 1, true));
}

#[test]
fn async_runs_before_5_0_pass_over_metadata_that_is_to_be_written() {
    // A page that a journal holds is all that is in the block.
    let taken = |policy: &Policy, mode, is_committed: bool| {
        let (mut memory, _) =
            zone(policy, &["m...............", "k...............", "k..............."]);
        memory.pin_page(Pfn(0));
        if is_committed {
            memory.set_page_dirty(Pfn(0));
        }
        let request = CompactRequest { mode, ..CompactRequest::user(ZONE, CpuId(0)) };
        let (_, steps) = drive(&mut memory, CompactRequest { ignore_skip_hint: false, ..request });
        assert!(moves(&steps).is_empty(), "nobody can move it");
        (sources(&steps)[0].3, memory.block_skip(Pfn(0)))
    };
    for (policy, passes_over) in [(linux_4_4(), true), (linux_4_20(), true), (linux_6_1(), false)] {
        assert_eq!(taken(&policy, MigrateMode::Async, false).0, 1, "not committed");
        assert_eq!(taken(&policy, MigrateMode::Async, true).0, u32::from(!passes_over));
        assert_eq!(taken(&policy, MigrateMode::SyncLight, true).0, 1, "it could wait");
    }
    // Where nothing was taken, the next run does not look again.
    assert!(taken(&linux_4_4(), MigrateMode::Async, true).1);
    assert!(!taken(&linux_4_4(), MigrateMode::Async, false).1);
}

#[test]
fn a_sync_run_moves_the_page_once_it_is_written() {
    let (mut memory, file) =
        zone(&linux_6_12(), &["mm..............", "k...............", "k..............."]);
    memory.set_page_dirty(Pfn(0));
    memory.begin_page_writeback(Pfn(0));
    let mut run =
        memory.begin_compaction(CompactRequest::user(ZONE, CpuId(0))).expect("nothing forbids it");
    let mut moved = Vec::new();
    loop {
        match memory.compact_step(&mut run) {
            CompactStep::WaitOnPage(pfn, Obstacle::Writeback) => memory.end_writeback(pfn),
            CompactStep::Migrated(migrated) => moved.extend(migrated.moved),
            CompactStep::Done(_) => break,
            _ => {}
        }
        check(&memory);
    }
    assert_eq!(moved.iter().map(|m| m.from.0).collect::<Vec<_>>(), [1, 0]);
    let found = memory.files.get(file, 0);
    assert_eq!(found, highorder_mm::filemap::CachedPage::Page(moved[1].to));
    assert_eq!(memory.vm.get(Vm::PgMigrateSuccess), 2);
    assert_eq!(memory.vm.get(Vm::PgMigrateFail), 0);
}

#[test]
fn pages_that_are_held_stay_and_those_of_drivers_move() {
    let (mut memory, _) =
        zone(&linux_6_12(), &["mmk.............", "k...............", "k..............."]);
    memory.pin_page(Pfn(0));
    memory.set_movable_ops(Pfn(2));
    let (_, steps) = drive(&mut memory, CompactRequest::user(ZONE, CpuId(0)));
    let from: Vec<u32> = moves(&steps).into_iter().map(|(from, _)| from).collect();
    assert_eq!(from, [2, 1]);
    assert_eq!(memory.vm.get(Vm::PgMigrateFail), 1);
    assert!(memory.frames().has(Pfn(0), PageFlags::LRU));
}

#[test]
fn the_block_that_direct_compaction_frees_is_its_own() {
    let blocks = ["mm..............", "k.k.k.k.k.k.k.k.", "k.k.k.k.k.k.k.k.", "k.k.k.k.k.k.k.k."];
    let (mut memory, _) = zone(&linux_6_12(), &blocks);
    without_marks(&mut memory);
    memory.policy.compaction.extfrag_threshold = 0;
    let (run, steps) = drive(&mut memory, direct(4, MigrateMode::SyncLight));
    assert_eq!(result(&steps), CompactResult::Success);
    assert_eq!(run.captured, Some(Pfn(0)));
    assert_eq!(memory.frames().state(Pfn(0)), State::Allocated);
    assert_eq!(memory.frames().order(Pfn(0)), Order(4));
    // Without capture the same block reaches the free list.
    let (mut memory, _) = zone(&linux_4_20(), &blocks);
    without_marks(&mut memory);
    memory.policy.compaction.extfrag_threshold = 0;
    let (run, steps) = drive(&mut memory, direct(4, MigrateMode::SyncLight));
    assert_eq!((result(&steps), run.captured), (CompactResult::Success, None));
    assert!(memory.frames().is_free(Pfn(0), Order(4)));
}

#[test]
fn deferral_doubles_from_two_to_64() {
    let (mut memory, _) = zone(&linux_4_4(), &["................"]);
    let order = Order(3);
    assert!(!memory.compaction_deferred(ZONE, order), "nothing has failed");
    let mut asked = Vec::new();
    for _ in 0..8 {
        memory.defer_compaction(ZONE, order);
        asked.push((1..).find(|_| !memory.compaction_deferred(ZONE, order)).expect("it ends"));
    }
    assert_eq!(asked, [2, 4, 8, 16, 32, 64, 64, 64]);
    assert!(memory.compaction_restarting(ZONE, order));
    // Smaller orders are not deferred; one that serves lifts the bar, a block really had clears it.
    memory.zones[0].compact.order_failed = Order(3);
    memory.defer_compaction(ZONE, Order(3));
    assert!(!memory.compaction_deferred(ZONE, Order(2)));
    assert!(memory.compaction_deferred(ZONE, Order(5)));
    memory.compaction_defer_reset(ZONE, Order(4), false);
    assert!(!memory.compaction_deferred(ZONE, Order(4)));
    assert!(memory.compaction_deferred(ZONE, Order(5)));
    memory.compaction_defer_reset(ZONE, Order(4), true);
    assert!(!memory.compaction_deferred(ZONE, Order(5)));
}

#[test]
fn the_deferral_of_3_3_knows_no_order() {
    let (mut memory, _) = zone(&linux_4_4(), &["................"]);
    memory.policy.compaction.defer_by_order = false;
    memory.zones[0].compact.order_failed = Order(0);
    memory.defer_compaction(ZONE, Order(9));
    assert!(memory.compaction_deferred(ZONE, Order(1)), "a smaller one waits too");
    assert!(!memory.compaction_deferred(ZONE, Order(1)));
    memory.compaction_defer_reset(ZONE, Order(1), false);
    assert_eq!(memory.zones[0].compact.defer_shift, 1, "only a block had is a success");
    memory.compaction_defer_reset(ZONE, Order(1), true);
    assert_eq!(memory.zones[0].compact.defer_shift, 0);
}

#[test]
fn the_fragmentation_index_tells_want_from_fragmentation() {
    let (memory, _) = zone(&linux_6_12(), &["k.k.k.k.k.k.k.k.", "k.k.k.k.k.k.k.k."]);
    // 16 pages in 16 blocks, order 4: 1000 - (1000 + 16 * 1000 / 16) / 16.
    assert_eq!(memory.fragmentation_index(ZONE, Order(4)), 875);
    assert_eq!(memory.fragmentation_index(ZONE, Order(0)), -1000);
    let (memory, _) = zone(&linux_6_12(), &["kkkkkkkkkkkkkkkk"]);
    assert_eq!(memory.fragmentation_index(ZONE, Order(4)), 0);
    let (memory, _) = zone(&linux_6_12(), &["........kkkkkkkk"]);
    // 8 pages in one block: 1000 - (1000 + 500) / 1.
    assert_eq!(memory.fragmentation_index(ZONE, Order(4)), -500);
}

#[test]
fn a_zone_is_suitable_by_its_kernels_rule() {
    // 32 single free pages.
    let blocks = ["k.k.k.k.k.k.k.k."; 4];
    let with = |rule: Suitable, marks: [u64; 4]| {
        let (mut memory, _) = zone(&linux_6_12(), &blocks);
        memory.policy.compaction.suitable = rule;
        memory.zones[0].watermarks.marks = marks;
        memory
    };
    // Order 3 wants 2 * 8 pages above the mark: 32 > 15 + 16 but not > 16 + 16.
    for rule in [Suitable::RoomFirst, Suitable::LowMark] {
        assert_eq!(suitable(&with(rule, [0, 15, 20, 20]), 3), CompactResult::Continue);
        assert_eq!(suitable(&with(rule, [0, 16, 20, 20]), 3), CompactResult::Skipped);
    }
    // Since 4.9 the min mark for orders up to 3, the low one above.
    let rule = Suitable::CallersMark;
    assert_eq!(suitable(&with(rule, [15, 30, 30, 30]), 3), CompactResult::Continue);
    assert_eq!(suitable(&with(rule, [16, 30, 30, 30]), 3), CompactResult::Skipped);
    assert_eq!(suitable(&with(rule, [0, 0, 0, 0]), 4), CompactResult::Skipped, "32 is not > 32");
    // The index: 1000 - (1000 + 32 * 1000 / 8) / 32 = 844 is fragmentation.
    let mut memory = with(Suitable::LowMark, [0; 4]);
    memory.policy.compaction.extfrag_threshold = 843;
    assert_eq!(suitable(&memory, 3), CompactResult::Continue);
    memory.policy.compaction.extfrag_threshold = 844;
    assert_eq!(suitable(&memory, 3), CompactResult::NotSuitableZone);
    memory.policy.compaction.suitable = Suitable::CallersMark;
    assert_eq!(suitable(&memory, 3), CompactResult::Continue, "not asked for order 3");
    // A block that is free already.
    for rule in [Suitable::RoomFirst, Suitable::LowMark, Suitable::CallersMark] {
        let (mut memory, _) = zone(&linux_6_12(), &["................"; 4]);
        memory.policy.compaction.suitable = rule;
        assert_eq!(suitable(&memory, 3), CompactResult::Success, "{rule:?}");
    }
}

#[test]
fn the_score_is_the_share_outside_huge_pages() {
    // 1024 pages: a whole huge page, and every second page of the other half.
    let mut memory = Memory::new(single_zone(1024), linux_6_12());
    for pfn in 0..1024 {
        memory.restore_allocated(Pfn(pfn), Order(0), Migratetype::Movable, true);
    }
    for pfn in (0..512).chain((512..1024).step_by(2)) {
        memory.free_to_buddy(ZONE, Pfn(pfn), Order(0), FreeTo::Policy);
    }
    // 256 of 768 free pages.
    assert_eq!(memory.fragmentation_score(ZONE), 33);
    // Of 1024 present pages, by one more than there are.
    assert_eq!(memory.fragmentation_score_node(NodeId(0)), 1024 * 33 / 1025);
    assert_eq!(memory.fragmentation_mark(Mark::Low), 80);
    assert_eq!(memory.fragmentation_mark(Mark::High), 90);
    assert!(!memory.should_proactive_compact(NodeId(0)));
    memory.policy.compaction.proactiveness = 85;
    assert!(memory.should_proactive_compact(NodeId(0)), "32 is above 25");
    memory.zones[0].flags.reclaim_active = true;
    assert!(!memory.should_proactive_compact(NodeId(0)), "not beside kswapd");
}

fn with_direct(free_pages: FreePages) -> Policy {
    let mut policy = linux_4_20();
    policy.compaction.free_pages = free_pages;
    policy
}

#[test]
fn held_pages_of_the_block_at_hand_are_kept_until_it_is_done() {
    // The free list of order 0, from its head: 15, 13, ... were freed last.
    let blocks = ["m.m.m.m.m.m.m.m.", "kkkkkkkkkkkkkkkk", "kkkkkkkkkkkkkkk.", "kkkkkkkkkkkkkkkk"];
    let (mut memory, _) = zone(&with_direct(FreePages::DirectHeld), &blocks);
    without_marks(&mut memory);
    memory.policy.compaction.extfrag_threshold = 0;
    memory.policy.compaction.suitable = Suitable::RoomFirst;
    let request = CompactRequest { order: None, ..direct(4, MigrateMode::Async) };
    let mut run = memory.begin_compaction(request).expect("nothing forbids it");
    run.cc.order = Some(Order(4));
    let mut most_held = 0;
    let mut steps = Vec::new();
    while !run.is_over() {
        steps.push(memory.compact_step(&mut run));
        most_held = most_held.max(run.nr_held()[2]);
        check(&memory);
    }
    // Free pages: 47 first (freed last), then 15, 13, 11 and so on, which are of the block being emptied;
    // the mark low + 1 leaves one. Page 14, freed by its move, is the ninth: of the block too.
    assert_eq!(moves(&steps), [(14, 47)]);
    assert_eq!(memory.vm.get(Vm::CompactFreeDirectAlloc), 9);
    assert_eq!(memory.vm.get(Vm::CompactFreeDirectMiss), 8);
    assert_eq!(memory.vm.get(Vm::CompactIsolated), 8, "sources alone");
    assert_eq!(memory.vm.get(Vm::CompactFreeScanned), 0);
    assert_eq!(most_held, 8);
    assert_eq!(memory.zones[0].compact.nr_held, 0);
    assert_eq!(memory.zones[0].compact.nr_held_max, 8);
    assert_eq!(result(&steps), CompactResult::Contended, "no targets are left");
}

#[test]
fn blocks_of_the_pageblock_at_hand_go_to_the_tail() {
    let blocks = ["m.m.m.m.kkkkkkkk", "kkkkkkkkkkkkkkkk", "k.....kkkkkkkkkk", "kkkkkkkkkkkkkkkk"];
    let (mut memory, _) = zone(&with_direct(FreePages::DirectTail), &blocks);
    memory.zones[0].watermarks.marks = [0; 4];
    let mut request = CompactRequest::user(ZONE, CpuId(0));
    request.whole_zone = true;
    let (_, steps) = drive(&mut memory, request);
    // Order 0 has 33 and, of pageblock 0, 7, 5, 3, 1; order 1 has 34 and 36: one more than four.
    assert!(steps.contains(&CompactStep::TookFreepages { nr_taken: 5, nr_missed: 4 }));
    assert_eq!(moves(&steps).len(), 4);
    assert_eq!(memory.vm.get(Vm::CompactFreeListAlloc), 5);
    assert_eq!(memory.vm.get(Vm::CompactFreeListSkip), 4);
    assert_eq!(memory.vm.get(Vm::CompactFreeDirectAlloc), 0);
    assert_eq!(memory.zones[0].compact.nr_split, 2);
    assert_eq!(memory.zones[0].compact.nr_held, 0);
}

#[test]
fn a_page_that_moves_twice_is_counted() {
    let blocks = [
        "m...............",
        "k...............",
        "k...............",
        "kkkkkkkkkkkkkkkk",
        "k...............",
    ];
    let (mut memory, _) = zone(&linux_4_4(), &blocks);
    // The free scanner stands at pageblock 2, then at the last one.
    memory.zones[0].compact.cached_migrate_pfn = [Pfn(0); 2];
    memory.zones[0].compact.cached_free_pfn = Pfn(32);
    let request = CompactRequest {
        whole_zone: false,
        who: Compactor::Kswapd,
        ..CompactRequest::user(ZONE, CpuId(0))
    };
    let (_, steps) = drive(&mut memory, request);
    assert_eq!(moves(&steps), [(0, 33)]);
    assert_eq!(memory.zones[0].compact.nr_moved_again, 0);
    memory.lru_add_drain_all();
    let (_, steps) = drive(&mut memory, CompactRequest::user(ZONE, CpuId(0)));
    assert_eq!(moves(&steps), [(33, 65)]);
    assert_eq!(memory.zones[0].compact.nr_moved_again, 1);
}

#[test]
fn stride_32_passes_over_what_lies_between() {
    // Pageblocks of 16 pages: with a stride of 32 only the first page of each is looked at.
    let blocks = ["m...............", "k...............", "k...............", ".k.............."];
    let scans = |mode| {
        let (mut memory, _) = zone(&linux_6_1(), &blocks);
        without_marks(&mut memory);
        let request = CompactRequest {
            mode,
            who: Compactor::Kcompactd,
            ..CompactRequest::user(ZONE, CpuId(0))
        };
        let (_, steps) = drive(&mut memory, request);
        free_scans(&steps)
            .into_iter()
            .map(|s| (s.start, s.nr_scanned, s.nr_taken))
            .collect::<Vec<_>>()
    };
    assert_eq!(scans(MigrateMode::Async)[0], (48, 1, 1), "the first page is free");
    let blocks_from_above = scans(MigrateMode::SyncLight);
    assert_eq!(blocks_from_above[0], (48, 1, 1));
}

#[test]
fn the_scanners_of_3_x_begin_anew_and_take_whole_pageblocks() {
    let mut policy = linux_4_4();
    policy.compaction = Compaction {
        free_scan: FreeScan::WholeBlocks,
        positions: Positions::None,
        skip_hints: SkipHints::Off,
        flush_by: FlushBy::Direct,
        target_head: TargetHead::Any,
        finish: Finish::MarkAndType,
        suitable: Suitable::RoomFirst,
        unevictable: false,
        counters: highorder_mm::policy::CompactCounters::Moved,
        ..policy.compaction
    };
    let (mut memory, _) = zone(&policy, &SCATTERED);
    let (_, steps) = drive(&mut memory, CompactRequest::user(ZONE, CpuId(0)));
    // All 13 free pages of pageblock 4 are taken at once; the highest is used first.
    assert_eq!(free_scans(&steps)[0].nr_taken, 13);
    assert_eq!(moves(&steps)[..2], [(2, 79), (0, 78)]);
    assert_eq!(memory.vm.get(Vm::CompactPagesMoved), 3);
    // Each scan is a block, even one that takes nothing.
    let scans = steps.iter().filter_map(|step| match step {
        CompactStep::IsolatedMigratepages(scanned) => {
            Some((scanned.end - scanned.start, scanned.nr_taken))
        }
        _ => None,
    });
    let scans: Vec<(u32, u32)> = scans.collect();
    assert_eq!(scans, [(16, 2), (16, 0), (16, 1), (16, 0)]);
    assert_eq!(memory.vm.get(Vm::CompactBlocksMoved), 4);
    assert!(
        memory.vmstat().iter().any(|(name, value)| name == "compact_pages_moved" && *value == 3)
    );
    assert!(memory.vmstat().iter().all(|(name, _)| name != "compact_migrate_scanned"));
}
