//! Files that are mapped: nothing that was written is lost, every page is found in every page table, and the
//! rules of references worked by hand.

use crate::scene::{
    all_free, linux_3_3, linux_3_4_rc2, linux_4_4, linux_4_20, linux_6_1, linux_6_12, single_zone,
};
use highorder_mm::alloc::Request;
use highorder_mm::anon::{Fault, FaultKind, TouchRange};
use highorder_mm::filemap::{CachedPage, FileId};
use highorder_mm::frame::PageFlags;
use highorder_mm::gfp::Gfp;
use highorder_mm::lru::{LruList, LruvecId};
use highorder_mm::lumpy::ReclaimMode;
use highorder_mm::page_table::{Pte, Vpn};
use highorder_mm::policy::{FileWrites, LruKind, Policy};
use highorder_mm::reclaim::{Reclaimer, ScanControl, Shrunk};
use highorder_mm::types::{Access, NodeId};
use highorder_mm::vma::ProcessId;
use highorder_mm::vmstat::Vm;
use highorder_mm::watermark::Mark;
use highorder_mm::{CpuId, Memory, Order, Pfn};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

/// Pages that a file has in the model of obvious code: what was written last, and what the disk has.
#[derive(Default)]
struct File {
    id: Option<FileId>,
    pages: u64,
    /// What was written last, by page.
    written: BTreeMap<u64, u64>,
    disk: BTreeMap<u64, u64>,
    is_linked: bool,
}

/// A mapping: its first page, its length, its file, the page it begins with.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    start: Vpn,
    pages: u32,
    file: usize,
    first: u64,
    writable: bool,
}

struct World {
    memory: Memory,
    files: Vec<File>,
    mappings: Vec<Mapping>,
    content: Vec<u64>,
    /// Pages under way to the disk, and what they held when that began.
    writes: VecDeque<(Pfn, usize, u64, u64)>,
    version: u64,
    /// Times that a page became dirty, was given to the disk, or was cut off while dirty.
    dirtied: u64,
    written: u64,
    cut: u64,
}

impl World {
    fn new(policy: &Policy, pages: u32) -> Self {
        let mut memory = all_free(&single_zone(pages), policy);
        memory.setup_watermarks(Some(400), false);
        memory.update_pcp_limits();
        let content = vec![0; memory.frames().len()];
        Self {
            memory,
            files: Vec::new(),
            mappings: Vec::new(),
            content,
            writes: VecDeque::new(),
            version: 0,
            dirtied: 0,
            written: 0,
            cut: 0,
        }
    }

    fn create(&mut self, pages: u64) -> usize {
        let id = Some(self.memory.files.open());
        self.files.push(File { id, pages, is_linked: true, ..File::default() });
        self.files.len() - 1
    }

    fn map(&mut self, task: u32, file: usize, first: u64, pages: u32, writable: bool) -> Vpn {
        let id = self.files[file].id.expect("it is there");
        let start = self.memory.spaces.mmap_file(ProcessId(task), pages, id, first, writable);
        self.mappings.push(Mapping { start, pages, file, first, writable });
        start
    }

    fn page(&mut self, fault: &Fault, gfp: Gfp) -> Option<Pfn> {
        for round in 0..60u8 {
            let (request, _) = self.memory.fault_request(fault, Order(0), gfp, CpuId(0));
            let flags = self.memory.fast_path_flags(request);
            if let Some(pfn) = self.memory.get_page_from_freelist(request, Some(Mark::Min), flags) {
                return Some(pfn);
            }
            self.reclaim(12u8.saturating_sub(round / 3), Reclaimer::Direct);
            self.write_some(usize::MAX);
            self.complete(usize::MAX);
        }
        None
    }

    /// Touches one page of a mapping. What it finds there has to be what was written last.
    fn touch(&mut self, at: Mapping, offset: u32, access: Access) -> bool {
        let (vpn, index) = (Vpn(at.start.0 + offset), at.first + u64::from(offset));
        let id = self.files[at.file].id.expect("a mapped file is there");
        for _ in 0..100 {
            let done = self.memory.touch_and_fault(TouchRange {
                start: vpn,
                pages: 1,
                access,
                cpu: CpuId(0),
                stop_for_huge: false,
                faults_max: 4,
                stop_for_remote: false,
                stop_for_buffer: false,
            });
            self.dirtied += u64::from(done.dirtied);
            let Some(fault) = done.fault else {
                assert_eq!(done.pages, 1);
                return self.check_touched(at.file, index, vpn, access);
            };
            if access == Access::Write && !at.writable || index >= self.files[at.file].pages {
                return false;
            }
            if fault.needs_table {
                let Some(table) = self.page(&fault, Gfp::KERNEL) else { return false };
                self.memory.map_table(&fault, table);
                continue;
            }
            assert_eq!(fault.kind, FaultKind::File { file: id, index });
            if let CachedPage::Page(pfn) = self.memory.files.get(id, index) {
                if !self.memory.test_clear_readahead(pfn) {
                    let newly = self.memory.map_file_page(&fault, pfn);
                    self.dirtied += u64::from(newly);
                }
                continue;
            }
            let Some(pfn) = self.page(&fault, Gfp::HIGHUSER_MOVABLE) else { return false };
            if matches!(self.memory.files.get(id, index), CachedPage::Page(_)) {
                self.memory.free(pfn, Order(0), CpuId(0));
                continue;
            }
            self.memory.add_to_page_cache_in_fault(id, index, pfn, true, CpuId(0));
            if index.is_multiple_of(13) {
                self.memory.set_readahead(pfn);
            }
            self.content[pfn.index()] = self.files[at.file].disk.get(&index).copied().unwrap_or(0);
            self.memory.end_read(pfn);
        }
        panic!("{vpn} faults for ever");
    }

    fn check_touched(&mut self, file: usize, index: u64, vpn: Vpn, access: Access) -> bool {
        let pfn = self.memory.spaces.table().frame_at(vpn).expect("it is mapped");
        let file = &mut self.files[file];
        let wanted = file.written.get(&index).copied().unwrap_or(0);
        assert_eq!(self.content[pfn.index()], wanted, "page {index} lost what was written");
        if access == Access::Write {
            self.version += 1;
            file.written.insert(index, self.version);
            self.content[pfn.index()] = self.version;
        }
        true
    }

    /// Begins to write some dirty pages.
    fn write_some(&mut self, most: usize) {
        let mut left = most;
        for number in 0..self.files.len() {
            let Some(id) = self.files[number].id else { continue };
            let mut from = 0;
            while let Some(index) = self.memory.files.next_dirty(id, from).filter(|_| left > 0) {
                let is_dirty = |&page: &u64| self.memory.files.next_dirty(id, page) == Some(page);
                let nr = (index..index + 70).take_while(is_dirty).count() as u64;
                assert_eq!(self.memory.files.end_of_dirty(id, index, 70), index + nr);
                let CachedPage::Page(pfn) = self.memory.files.get(id, index) else { panic!() };
                self.begin(pfn, number, index);
                (from, left) = (index + 1, left - 1);
            }
        }
    }

    fn begin(&mut self, pfn: Pfn, file: usize, index: u64) {
        if self.memory.begin_page_writeback(pfn) {
            self.writes.push_back((pfn, file, index, self.content[pfn.index()]));
            self.written += 1;
        }
    }

    fn complete(&mut self, most: usize) {
        for _ in 0..most.min(self.writes.len()) {
            let (pfn, file, index, content) = self.writes.pop_front().expect("there is one");
            self.files[file].disk.insert(index, content);
            self.memory.end_writeback(pfn);
        }
    }

    fn reclaim(&mut self, priority: u8, who: Reclaimer) -> u64 {
        let mut sc = ScanControl::new(who, CpuId(0), 60);
        sc.priority = priority;
        sc.dirty_flag = priority < 6;
        let mut reclaimed = 0;
        if self.memory.policy.lru.kind == LruKind::MultiGenerational {
            let plan = self.memory.lru_gen_plan(LruvecId(0), &sc);
            if plan.age {
                self.memory.lru_gen_age(LruvecId(0), &sc);
            }
            self.memory.lru_add_drain(CpuId(0));
            let mut scanned = 0;
            while scanned < plan.nr_to_scan {
                let evicted = self.memory.lru_gen_evict(LruvecId(0), &sc);
                scanned += evicted.progress;
                reclaimed += self.take(evicted.shrunk);
                if evicted.progress == 0 {
                    break;
                }
            }
            return reclaimed;
        }
        let mut plan = self.memory.plan_scan(LruvecId(0), &sc);
        while let Some(shrunk) = self.memory.shrink_step(LruvecId(0), &mut plan, &sc) {
            reclaimed += self.take(shrunk);
        }
        self.memory.snapshot_refaults(LruvecId(0));
        reclaimed
    }

    fn take(&mut self, shrunk: Shrunk) -> u64 {
        self.memory.note_freed_files(&shrunk.freed_files);
        for pfn in shrunk.file_writes {
            let (id, index) = self.memory.file_page_at(pfn).expect("it was just met");
            let file = self.files.iter().position(|file| file.id == Some(id)).expect("a file");
            self.begin(pfn, file, index);
        }
        shrunk.nr_reclaimed
    }

    /// Cuts a file to this many pages.
    fn truncate(&mut self, number: usize, pages: u64) {
        let id = self.files[number].id.expect("it is there");
        self.files[number].pages = pages;
        let mut from = pages;
        while let Some((index, pfn)) = self.memory.files.next_page(id, from) {
            let was_dirty = self.memory.frames().has(pfn, PageFlags::DIRTY);
            if self.memory.truncate_page(pfn, CpuId(0)) {
                self.cut += u64::from(was_dirty);
                from = index + 1;
            } else {
                assert!(
                    self.memory.file_places(pfn).is_empty(),
                    "unmapped before it is waited for"
                );
                self.complete(usize::MAX);
            }
        }
        self.memory.forget_shadows(id, pages, CpuId(0));
        let file = &mut self.files[number];
        file.written.retain(|&index, _| index < pages);
        file.disk.retain(|&index, _| index < pages);
    }

    fn unlink(&mut self, number: usize) {
        self.files[number].is_linked = false;
        self.release();
    }

    fn unmap(&mut self, which: usize, from: u32, pages: u32) {
        let Mapping { start, pages: all, file, first, writable } = self.mappings.swap_remove(which);
        let end = from + pages;
        self.memory.munmap(Vpn(start.0 + from)..Vpn(start.0 + end), CpuId(0));
        for (from, to) in [(0, from), (end, all)] {
            if from < to {
                self.mappings.push(Mapping {
                    start: Vpn(start.0 + from),
                    pages: to - from,
                    file,
                    first: first + u64::from(from),
                    writable,
                });
            }
        }
        self.release();
    }

    /// Files without a name go once nobody maps them.
    fn release(&mut self) {
        let _ = self.memory.spaces.take_unmapped_files();
        for number in 0..self.files.len() {
            let Some(id) = self.files[number].id else { continue };
            if !self.files[number].is_linked && !self.memory.spaces.is_file_mapped(id) {
                self.truncate(number, 0);
                self.memory.files.close(id);
                self.files[number].id = None;
            }
        }
    }

    fn audit(&self) {
        self.memory.audit().unwrap();
        self.memory.validate().unwrap();
        // What was written is in memory, or on the disk and in memory not otherwise.
        for file in self.files.iter().filter(|file| file.id.is_some()) {
            for (&index, &version) in &file.written {
                let found = match self.memory.files.get(file.id.unwrap(), index) {
                    CachedPage::Page(pfn) => self.content[pfn.index()],
                    _ => file.disk.get(&index).copied().unwrap_or(0),
                };
                assert_eq!(found, version, "page {index}");
            }
        }
        // Each time that a page became dirty it was written once, cut off, or still is dirty.
        let files = &self.memory.files;
        assert_eq!(self.dirtied, self.written + self.cut + files.nr_dirty());
        assert_eq!((files.nr_dirtied(), files.nr_written()), (self.dirtied, self.written));
        assert_eq!(self.memory.lru.total_stats().nr_writeback, self.writes.len() as u64);
        let mapped: u64 = (0..4).map(|task| self.memory.spaces.task(ProcessId(task)).file).sum();
        let mut places = 0;
        for file in self.files.iter().filter_map(|file| file.id) {
            let mut from = 0;
            while let Some((index, pfn)) = files.next_page(file, from) {
                places += self.memory.file_places(pfn).len() as u64;
                from = index + 1;
            }
        }
        assert_eq!(mapped, places, "every entry is found from its page");
    }
}

#[derive(Clone, Debug)]
enum Op {
    Create { pages: u64 },
    Map { task: u32, file: usize, first: u64, pages: u32, writable: bool },
    Touch { which: usize, from: u32, pages: u32, write: bool },
    Unmap { which: usize, from: u32, pages: u32 },
    Lock { which: usize, from: u32, pages: u32, locked: bool },
    Zap { which: usize, from: u32, pages: u32 },
    Truncate { file: usize, percent: u64 },
    Unlink { file: usize },
    Reclaim { priority: u8, kswapd: bool },
    Write { pages: usize },
    Complete { pages: usize },
    DropCaches,
}

fn op() -> impl Strategy<Value = Op> {
    let at = || (any::<usize>(), any::<u32>(), 1..200u32);
    prop_oneof![
        1 => (1..600u64).prop_map(|pages| Op::Create { pages }),
        4 => (0..4u32, any::<usize>(), 0..300u64, 1..400u32, any::<bool>()).prop_map(
            |(task, file, first, pages, writable)| Op::Map { task, file, first, pages, writable }
        ),
        14 => (at(), any::<bool>())
            .prop_map(|((which, from, pages), write)| Op::Touch { which, from, pages, write }),
        2 => at().prop_map(|(which, from, pages)| Op::Unmap { which, from, pages }),
        1 => (at(), any::<bool>()).prop_map(
            |((which, from, pages), locked)| Op::Lock { which, from, pages: pages.min(40), locked }
        ),
        1 => at().prop_map(|(which, from, pages)| Op::Zap { which, from, pages }),
        2 => (any::<usize>(), 0..130u64).prop_map(|(file, percent)| Op::Truncate { file, percent }),
        1 => any::<usize>().prop_map(|file| Op::Unlink { file }),
        4 => (0..13u8, any::<bool>()).prop_map(|(priority, kswapd)| Op::Reclaim { priority, kswapd }),
        3 => (1..150usize).prop_map(|pages| Op::Write { pages }),
        3 => (1..150usize).prop_map(|pages| Op::Complete { pages }),
        1 => Just(Op::DropCaches),
    ]
}

fn apply(world: &mut World, op: Op) {
    let living: Vec<usize> = (0..world.files.len()).filter(|&f| world.files[f].is_linked).collect();
    let pick = |which: usize, from: u32, pages: u32, world: &World| {
        let which = which.checked_rem(world.mappings.len())?;
        let from = from % world.mappings[which].pages;
        Some((which, from, pages.min(world.mappings[which].pages - from)))
    };
    let file_of = |file: usize| file.checked_rem(living.len()).map(|at| living[at]);
    match op {
        Op::Create { pages } => {
            world.create(pages);
        }
        Op::Map { task, file, first, pages, writable } => {
            if let Some(file) = file_of(file).filter(|_| world.mappings.len() < 24) {
                world.map(task, file, first, pages, writable);
            }
        }
        Op::Touch { which, from, pages, write } => {
            let Some((which, from, pages)) = pick(which, from, pages, world) else { return };
            let mapping = world.mappings[which];
            let access = if write { Access::Write } else { Access::Read };
            for offset in from..from + pages {
                if !world.touch(mapping, offset, access) {
                    break;
                }
            }
        }
        Op::Unmap { which, from, pages } => {
            if let Some((which, from, pages)) = pick(which, from, pages, world) {
                world.unmap(which, from, pages);
            }
        }
        Op::Lock { which, from, pages, locked } => {
            if let Some((which, from, pages)) = pick(which, from, pages, world) {
                let start = world.mappings[which].start.0 + from;
                world.memory.mlock(Vpn(start)..Vpn(start + pages), locked);
            }
        }
        Op::Zap { which, from, pages } => {
            if let Some((which, from, pages)) = pick(which, from, pages, world) {
                let start = world.mappings[which].start.0 + from;
                world.memory.dontneed(Vpn(start)..Vpn(start + pages), CpuId(0));
            }
        }
        Op::Truncate { file, percent } => {
            if let Some(file) = file_of(file) {
                world.truncate(file, world.files[file].pages * percent / 100);
            }
        }
        Op::Unlink { file } => {
            if let Some(file) = file_of(file) {
                world.unlink(file);
            }
        }
        Op::Reclaim { priority, kswapd } => {
            let who = if kswapd { Reclaimer::Kswapd } else { Reclaimer::Direct };
            world.reclaim(priority, who);
        }
        Op::Write { pages } => world.write_some(pages),
        Op::Complete { pages } => world.complete(pages),
        Op::DropCaches => drop_caches(world),
    }
}

fn drop_caches(world: &mut World) {
    for file in world.files.iter().filter_map(|file| file.id) {
        let mut from = 0;
        while let Some((index, pfn)) = world.memory.files.next_page(file, from) {
            let is_mapped = !world.memory.file_places(pfn).is_empty();
            let went = world.memory.invalidate_page(pfn, CpuId(0));
            assert!(!(went && is_mapped), "what is mapped stays");
            from = index + 1;
        }
    }
}

fn policies() -> Vec<Policy> {
    let mut old = linux_4_4();
    old.reclaim.file_writes = FileWrites::LowPriority;
    old.filemap.fault_around_pages = 1;
    vec![linux_6_12(), linux_6_1(), linux_4_20(), linux_4_4(), old]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn random_uses_of_mapped_files_lose_nothing(
        policy in 0..5usize,
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let mut world = World::new(&policies()[policy], 1_024);
        world.create(700);
        for op in ops {
            apply(&mut world, op);
            world.audit();
        }
        // In the end all goes: every page comes back.
        while let Some(last) = world.mappings.len().checked_sub(1) {
            world.unmap(last, 0, world.mappings[last].pages);
        }
        for file in 0..world.files.len() {
            if world.files[file].is_linked {
                world.unlink(file);
            }
        }
        world.audit();
        let memory = &world.memory;
        let stats = memory.lru.total_stats();
        prop_assert_eq!((stats.nr_file_mapped, stats.nr_page_table), (0, 0));
        prop_assert_eq!((memory.files.nr_pages(), memory.files.nr_dirty()), (0, 0));
        let free = memory.zones[0].nr_free_pages + u64::from(memory.zones[0].pcp[0].count);
        prop_assert_eq!(free, 1_024);
    }
}

/// A file of 14 pages, one batch of 4.4's, on the inactive list.
fn fourteen(policy: &Policy, tasks: u32) -> World {
    let mut world = World::new(policy, 1_024);
    let file = world.create(14);
    for task in 0..tasks {
        world.map(task, file, 0, 14, true);
    }
    world
}

fn scan(world: &mut World, pages: u64) -> Shrunk {
    let sc = ScanControl::new(Reclaimer::Kswapd, CpuId(0), 60);
    let shrunk = world.memory.shrink_inactive_list(LruvecId(0), LruList::InactiveFile, pages, &sc);
    world.memory.note_freed_files(&shrunk.freed_files);
    shrunk
}

fn touch_all(world: &mut World, access: Access) {
    for mapping in world.mappings.clone() {
        for offset in 0..mapping.pages {
            assert!(world.touch(mapping, offset, access));
        }
    }
}

#[test]
fn a_mapped_page_touched_once_costs_two_laps_on_4_4() {
    let mut world = fourteen(&linux_4_4(), 1);
    touch_all(&mut world, Access::Read);
    let first = scan(&mut world, 32);
    // Kept once, marked; each counts twice in what was scanned, since it is mapped.
    assert_eq!((first.nr_taken, first.nr_ref_keep, first.nr_reclaimed), (14, 14, 0));
    assert_eq!(first.nr_scanned, 28);
    let second = scan(&mut world, 32);
    assert_eq!((second.nr_taken, second.nr_reclaimed, second.nr_scanned), (14, 14, 28));
    assert_eq!(world.memory.vm.get(Vm::PgScanKswapd), 28, "half of what was scanned went");
    assert_eq!(world.memory.vm.get(Vm::PgStealKswapd), 14);
    assert_eq!(world.memory.lru.total_stats().nr_file_mapped, 0);
    world.audit();
}

#[test]
fn a_page_that_nobody_maps_counts_once_and_goes_at_once() {
    let mut world = fourteen(&linux_4_4(), 1);
    touch_all(&mut world, Access::Read);
    world.unmap(0, 0, 14);
    // The entries that go were accessed, so that each page was used once: marked, and clean.
    let shrunk = scan(&mut world, 32);
    assert_eq!((shrunk.nr_scanned, shrunk.nr_reclaimed), (14, 14));
    world.audit();
}

#[test]
fn a_page_used_through_two_entries_or_twice_becomes_active() {
    for policy in [linux_4_4(), linux_6_1()] {
        let mut world = fourteen(&policy, 2);
        touch_all(&mut world, Access::Read);
        world.memory.lru_add_drain(CpuId(0));
        let shrunk = scan(&mut world, 32);
        assert_eq!(shrunk.nr_activate, [0, 14]);
        let mut world = fourteen(&policy, 1);
        touch_all(&mut world, Access::Read);
        world.memory.lru_add_drain(CpuId(0));
        assert_eq!(scan(&mut world, 32).nr_ref_keep, 14);
        touch_all(&mut world, Access::Read);
        assert_eq!(scan(&mut world, 32).nr_activate, [0, 14]);
        assert_eq!(world.memory.nr_lru(LruList::ActiveFile), 14);
        world.audit();
    }
}

#[test]
fn a_mapping_is_gone_when_its_last_part_is_whatever_follows_it() {
    let mut world = World::new(&linux_6_12(), 4096);
    let file = world.create(1024);
    let first = world.map(0, file, 0, 1024, false);
    let second = world.map(0, file, 0, 512, false);
    let mut unmap = |from: u32, to: u32| {
        world.memory.munmap(Vpn(first.0 + from)..Vpn(first.0 + to), CpuId(0));
        [first, second].map(|origin| world.memory.spaces.is_anything_left(origin))
    };
    assert_eq!(unmap(0, 512), [true, true], "its second half");
    assert_eq!(unmap(600, 1024), [true, true], "what is left in the middle of it");
    assert_eq!(unmap(512, 600), [false, true]);
}

#[test]
fn a_page_mapped_by_three_processes_is_unmapped_in_all_before_it_is_freed() {
    for cut in [true, false] {
        let mut world = fourteen(&linux_4_4(), 3);
        touch_all(&mut world, Access::Write);
        let id = world.files[0].id.unwrap();
        let CachedPage::Page(pfn) = world.memory.files.get(id, 5) else { panic!() };
        let places = world.memory.file_places(pfn);
        assert_eq!(places.len(), 3);
        assert_eq!(world.memory.lru.total_stats().nr_file_mapped, 14, "pages, not entries");
        assert_eq!(world.memory.spaces.task(ProcessId(2)).file, 14);
        if cut {
            world.truncate(0, 5);
        } else {
            world.write_some(usize::MAX);
            world.complete(usize::MAX);
            for _ in 0..6 {
                scan(&mut world, 32);
                let sc = ScanControl::new(Reclaimer::Kswapd, CpuId(0), 60);
                world.memory.shrink_active_list(LruvecId(0), LruList::ActiveFile, 32, &sc);
            }
        }
        for vpn in places {
            assert_eq!(world.memory.spaces.table().pte(vpn), Pte::NONE);
        }
        assert_eq!(world.memory.lru.total_stats().nr_file_mapped, if cut { 5 } else { 0 });
        world.audit();
    }
}

#[test]
fn a_page_that_is_written_back_faults_before_it_is_dirty_again() {
    let mut world = fourteen(&linux_6_12(), 2);
    touch_all(&mut world, Access::Write);
    assert_eq!(world.memory.files.nr_dirtied(), 14, "the second mapping found them dirty");
    assert_eq!(world.memory.vm.get(Vm::PgFault), 28);
    world.write_some(usize::MAX);
    // While they are being written they can be read without a fault, and written with one.
    touch_all(&mut world, Access::Read);
    assert_eq!(world.memory.vm.get(Vm::PgFault), 28);
    touch_all(&mut world, Access::Write);
    assert_eq!(world.memory.vm.get(Vm::PgFault), 56);
    assert_eq!(world.memory.files.nr_dirtied(), 28);
    world.complete(usize::MAX);
    world.write_some(usize::MAX);
    world.complete(usize::MAX);
    assert_eq!(world.files[0].disk, world.files[0].written);
    world.audit();
}

#[test]
fn a_read_fault_maps_the_sixteen_pages_around_since_3_15() {
    for (around, faults, mapped) in [(16, 1, 8), (1, 8, 8)] {
        let mut policy = linux_6_12();
        policy.filemap.fault_around_pages = around;
        let mut world = World::new(&policy, 1_024);
        let file = world.create(64);
        let start = world.map(0, file, 4, 60, false);
        for index in 8..24 {
            cache(&mut world, file, index, index == 11);
        }
        // The mapping begins with page 4: places 16..32 are pages 20..36, of which 20..24 are in memory.
        let range = TouchRange {
            start: Vpn(start.0 + 16),
            pages: 4,
            access: Access::Read,
            cpu: CpuId(0),
            stop_for_huge: false,
            faults_max: 100,
            stop_for_remote: false,
            stop_for_buffer: false,
        };
        let done = world.memory.touch_and_fault(range);
        assert_eq!((done.pages, done.faults), (4, if around == 16 { 1 } else { 4 }));
        // Places 8..16 are pages 12..20, and around them 0..8 are pages 4..12: 11 is still being read.
        let done =
            world.memory.touch_and_fault(TouchRange { start: Vpn(start.0 + 8), pages: 8, ..range });
        assert_eq!((done.pages, done.faults), (8, faults));
        let there = |at: &u32| !world.memory.spaces.table().pte(Vpn(start.0 + at)).is_none();
        assert_eq!((8..16).filter(there).count(), mapped);
        let before: Vec<u32> = (0..8).filter(there).collect();
        assert_eq!(before, if around == 16 { vec![4, 5, 6] } else { vec![] });
    }
}

/// A page of a file, in memory without being mapped.
fn cache(world: &mut World, file: usize, index: u64, to_be_read: bool) -> Pfn {
    let gfp = Gfp::HIGHUSER_MOVABLE;
    let request =
        Request { order: Order(0), gfp, cpu: CpuId(0), node: NodeId(0), past_lists: false };
    let pfn = world.memory.alloc_without_reclaim(request).unwrap();
    let id = world.files[file].id.unwrap();
    world.memory.add_to_page_cache(id, index, pfn, to_be_read, CpuId(0));
    pfn
}

#[test]
fn reclaim_marks_dirty_pages_and_only_kswapd_writes_them_when_its_kernel_says_so() {
    use FileWrites::{LowPriority, ManyDirty, ManyDirtySeenTwice};
    let kswapd = ScanControl::new(Reclaimer::Kswapd, CpuId(0), 60);
    let direct = ScanControl::new(Reclaimer::Direct, CpuId(0), 60);
    for (rule, sc, writes) in [
        (LowPriority, ScanControl { priority: 10, ..kswapd }, [0, 0]),
        (LowPriority, ScanControl { priority: 9, ..kswapd }, [14, 0]),
        (LowPriority, ScanControl { priority: 1, ..direct }, [0, 0]),
        (ManyDirty, kswapd, [0, 0]),
        (ManyDirty, ScanControl { dirty_flag: true, ..kswapd }, [14, 0]),
        (ManyDirtySeenTwice, ScanControl { dirty_flag: true, ..kswapd }, [0, 14]),
        (ManyDirtySeenTwice, ScanControl { dirty_flag: true, ..direct }, [0, 0]),
    ] {
        let mut policy = linux_4_4();
        policy.reclaim.file_writes = rule;
        let mut world = World::new(&policy, 1_024);
        let file = world.create(14);
        for index in 0..14 {
            let pfn = cache(&mut world, file, index, false);
            world.dirtied += u64::from(world.memory.set_page_dirty(pfn));
        }
        for (round, writes) in writes.into_iter().enumerate() {
            let list = LruList::InactiveFile;
            let shrunk = world.memory.shrink_inactive_list(LruvecId(0), list, 32, &sc);
            assert_eq!(shrunk.file_writes.len(), writes, "{rule:?} {round} {sc:?}");
            assert_eq!((shrunk.nr_reclaimed, shrunk.nr_taken), (0, 14));
            world.take(shrunk);
        }
        let marked = if writes[0] == 0 && writes[1] == 0 { 28 } else { writes[1] as u64 };
        assert_eq!(world.memory.vm.get(Vm::NrVmscanImmediate), marked);
        world.audit();
    }
}

/// The pages of a file of 64, all of them inactive, and clean.
fn inactive(policy: &Policy) -> (World, Vec<Pfn>) {
    let mut world = World::new(policy, 1_024);
    let file = world.create(64);
    let pages = (0..64).map(|index| cache(&mut world, file, index, false)).collect();
    world.memory.lru_add_drain(CpuId(0));
    (world, pages)
}

/// Cached pages in the block of order 4 around one.
fn around(pages: &[Pfn], tag: Pfn) -> Vec<Pfn> {
    let start = tag.align_down(Order(4));
    let mut block: Vec<Pfn> =
        pages.iter().copied().filter(|pfn| pfn.align_down(Order(4)) == start).collect();
    block.sort_unstable();
    block
}

#[test]
fn lumpy_reclaim_takes_the_block_around_each_victim() {
    let list = LruList::InactiveFile;
    let sc = ScanControl { order: Order(4), ..ScanControl::new(Reclaimer::Direct, CpuId(0), 60) };
    let (mut world, pages) = inactive(&linux_3_3());
    let tag = world.memory.lru.lruvecs[0].list(list).tail().unwrap();
    let block = around(&pages, tag).len() as u64;
    assert!(block > 1, "the pages of a file lie side by side");
    let shrunk = world.memory.shrink_inactive_list(LruvecId(0), list, 1, &sc);
    assert_eq!((shrunk.nr_scanned, shrunk.nr_taken, shrunk.nr_reclaimed), (block, block, block));
    let lumps = shrunk.isolation.unwrap().lumps;
    assert_eq!((lumps.nr_taken, lumps.nr_dirty, lumps.nr_failed), (block - 1, 0, 0));
    world.take(shrunk);
    world.audit();
    // 3.4 with compaction takes victims alone, and so does 3.3 for a single page.
    let single = ScanControl { order: Order(0), ..sc };
    for (policy, sc) in [(linux_3_4_rc2(), sc), (linux_3_3(), single)] {
        let (mut world, _) = inactive(&policy);
        let shrunk = world.memory.shrink_inactive_list(LruvecId(0), list, 1, &sc);
        assert_eq!((shrunk.nr_taken, shrunk.isolation.unwrap().lumps.nr_taken), (1, 0));
        world.take(shrunk);
    }
}

#[test]
fn what_is_in_the_way_ends_the_walk_through_a_block_which_begins_at_its_first_frame() {
    let list = LruList::InactiveFile;
    let sc = ScanControl { order: Order(4), ..ScanControl::new(Reclaimer::Kswapd, CpuId(0), 60) };
    let (mut world, pages) = inactive(&linux_3_3());
    let tag = world.memory.lru.lruvecs[0].list(list).tail().unwrap();
    let block = around(&pages, tag);
    let obstacle = *block.iter().find(|&&pfn| pfn != tag).unwrap();
    assert!(world.memory.isolate_lru_page(obstacle));
    let before = block.iter().filter(|&&pfn| pfn < obstacle && pfn != tag).count() as u64;
    let shrunk = world.memory.shrink_inactive_list(LruvecId(0), list, 1, &sc);
    let lumps = shrunk.isolation.unwrap().lumps;
    assert_eq!((lumps.nr_taken, lumps.nr_failed), (before, 1));
    world.take(shrunk);
    world.memory.putback_lru_page(obstacle);
    world.audit();
}

#[test]
fn the_mode_of_reclaim_falls_back_when_a_page_is_kept() {
    let list = LruList::InactiveFile;
    let sc = ScanControl { order: Order(9), ..ScanControl::new(Reclaimer::Kswapd, CpuId(0), 60) };
    let (mut world, _) = inactive(&linux_3_4_rc2());
    let shrunk = world.memory.shrink_inactive_list(LruvecId(0), list, 8, &sc);
    assert_eq!((shrunk.mode, shrunk.nr_reclaimed), (Some(ReclaimMode::Compaction), 8));
    world.take(shrunk);
    let tail = world.memory.lru.lruvecs[0].list(list).tail().unwrap();
    world.dirtied += u64::from(world.memory.set_page_dirty(tail));
    let shrunk = world.memory.shrink_inactive_list(LruvecId(0), list, 8, &sc);
    assert_eq!((shrunk.mode, shrunk.nr_reclaimed), (Some(ReclaimMode::Single), 7));
    world.take(shrunk);
    // Small orders are served by single pages until pressure is high.
    let modes = [12, 10, 9].map(|priority| world.memory.reclaim_mode(Order(3), priority));
    assert_eq!(modes, [ReclaimMode::Single, ReclaimMode::Single, ReclaimMode::Compaction]);
}

#[test]
fn a_dirty_page_is_unmapped_before_it_is_passed_over() {
    let mut world = fourteen(&linux_4_4(), 2);
    touch_all(&mut world, Access::Write);
    assert_eq!(scan(&mut world, 32).nr_activate, [0, 14]);
    let sc = ScanControl::new(Reclaimer::Kswapd, CpuId(0), 60);
    world.memory.shrink_active_list(LruvecId(0), LruList::ActiveFile, 32, &sc);
    let shrunk = scan(&mut world, 32);
    assert_eq!((shrunk.nr_reclaimed, shrunk.nr_unqueued_dirty), (0, 14));
    assert_eq!(world.memory.lru.total_stats().nr_file_mapped, 0);
    assert_eq!(world.memory.files.nr_dirty(), 14);
    world.audit();
}

#[test]
fn a_page_reclaim_waits_for_goes_next_once_it_is_written() {
    let mut world = fourteen(&linux_6_1(), 1);
    touch_all(&mut world, Access::Write);
    world.memory.lru_add_drain(CpuId(0));
    assert_eq!(scan(&mut world, 32).nr_ref_keep, 14);
    scan(&mut world, 32);
    assert_eq!(world.memory.vm.get(Vm::NrVmscanImmediate), 14);
    assert_eq!(world.memory.nr_lru(LruList::ActiveFile), 14, "out of the way until then");
    world.write_some(usize::MAX);
    world.complete(usize::MAX);
    assert_eq!(world.memory.vm.get(Vm::PgRotated), 14);
    let shrunk = scan(&mut world, 32);
    assert_eq!(shrunk.nr_reclaimed, 14);
    // They were in use when they went as far as the lists knew: that counts when they come back.
    touch_all(&mut world, Access::Read);
    assert_eq!(world.memory.vm.get(Vm::WorkingsetRefaultFile), 14);
    world.audit();
}

#[test]
fn generations_keep_a_mapped_page_that_was_touched_and_drop_the_others() {
    let mut world = World::new(&linux_6_12(), 4_096);
    let file = world.create(512);
    world.map(0, file, 0, 512, true);
    touch_all(&mut world, Access::Read);
    world.memory.lru_add_drain(CpuId(0));
    let mapping = world.mappings[0];
    let sc = ScanControl { priority: 4, ..ScanControl::new(Reclaimer::Kswapd, CpuId(0), 60) };
    // Pages that a fault brought are of the youngest generation.
    let lists = |world: &World| world.memory.lru.lruvecs[0].generations.clone();
    assert_eq!(lists(&world).size(lists(&world).max_seq), [0, 512]);
    // Ageing finds file entries though there is no swap. Then a quarter is used again.
    assert_eq!(world.memory.lru_gen_evict(LruvecId(0), &sc).progress, 0);
    world.memory.lru_gen_age(LruvecId(0), &sc);
    for offset in 0..128 {
        world.touch(mapping, offset, Access::Read);
    }
    world.memory.lru_gen_age(LruvecId(0), &sc);
    let sizes = lists(&world);
    assert_eq!(sizes.size(sizes.max_seq - 1), [0, 128]);
    assert_eq!(sizes.size(sizes.max_seq - 2), [0, 384]);
    let mut reclaimed = 0;
    // The first step only finds that the oldest generation is empty.
    let first = world.memory.lru_gen_evict(LruvecId(0), &sc);
    assert_eq!((first.shrunk.nr_taken, first.progress), (0, 1));
    loop {
        let evicted = world.memory.lru_gen_evict(LruvecId(0), &sc);
        reclaimed += world.take(evicted.shrunk);
        if evicted.progress == 0 {
            break;
        }
    }
    assert_eq!(reclaimed, 384);
    assert_eq!(world.memory.lru.total_stats().nr_file_mapped, 128);
    world.audit();
}

#[test]
fn generations_tell_how_many_of_the_pages_of_files_that_they_met_were_dirty() {
    let mut world = World::new(&linux_6_12(), 4_096);
    let file = world.create(512);
    world.map(0, file, 0, 512, true);
    touch_all(&mut world, Access::Write);
    world.memory.lru_add_drain(CpuId(0));
    let sc = ScanControl { priority: 4, ..ScanControl::new(Reclaimer::Kswapd, CpuId(0), 60) };
    for _ in 0..3 {
        world.memory.lru_gen_age(LruvecId(0), &sc);
    }
    let (mut met, mut dirty) = (0, 0);
    for _ in 0..4 {
        let evicted = world.memory.lru_gen_evict(LruvecId(0), &sc);
        met += evicted.nr_file_taken;
        dirty += evicted.nr_unqueued_dirty;
        assert_eq!(world.take(evicted.shrunk), 0, "what is dirty stays");
    }
    assert!(met >= 512, "{met}");
    assert_eq!(met, dirty);
    world.audit();
}

#[test]
fn a_page_locked_by_one_of_two_processes_stays_until_that_one_unlocks_it() {
    let mut world = fourteen(&linux_6_1(), 2);
    touch_all(&mut world, Access::Read);
    world.memory.lru_add_drain(CpuId(0));
    for which in 0..2 {
        let start = world.mappings[which].start;
        world.memory.mlock(start..Vpn(start.0 + 7), true);
    }
    assert_eq!(world.memory.nr_lru(LruList::Unevictable), 7);
    let start = world.mappings[0].start;
    world.memory.mlock(start..Vpn(start.0 + 7), false);
    assert_eq!(world.memory.nr_lru(LruList::Unevictable), 7, "the other still has them locked");
    let which = world.mappings.iter().position(|mapping| mapping.start != start).unwrap();
    world.unmap(which, 0, 14);
    assert_eq!(world.memory.nr_lru(LruList::Unevictable), 0);
    world.audit();
}
