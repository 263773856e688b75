//! Files on the model: what is written is on the disk, what is read comes back, nothing is lost.

use highorder_kernels::KernelFile;
use highorder_kernels::machine;
use highorder_mm::filemap::{CachedPage, FileId};
use highorder_mm::page_table::Vpn;
use highorder_mm::slab::CacheId;
use highorder_mm::types::Access;
use highorder_mm::vma::ProcessId;
use highorder_mm::vmstat::Vm;
use highorder_sim::kernel::fault::{self, Extent, TouchError};
use highorder_sim::kernel::files::Readahead;
use highorder_sim::kernel::thp::Enabled;
use highorder_sim::kernel::{self, Kernel, KernelCx, Knobs, filemap, inodes, oom, writeback};
use highorder_sim::machine::FileSystem;
use highorder_sim::{CpuId, DeviceId, Machine, Ns, Sim, TaskId, TaskSpec};
use std::cell::Cell;
use std::rc::Rc;

const KERNELS: [&str; 3] = ["linux-4.4", "linux-6.1", "linux-6.12"];
const MIB: u64 = 1 << 20;

/// A machine of 512 MiB with a disk this many times as fast.
fn machine(speed_percent: u64) -> Machine {
    let mut machine = machine::load("one-node-8g").unwrap().scaled(1, 16).unwrap();
    if let highorder_sim::DeviceKind::Rotating { bandwidth, .. } = &mut machine.disks[0].kind {
        *bandwidth = *bandwidth * speed_percent / 100;
    }
    machine
}

/// Runs one program under a kernel and returns when it ended and what it left.
fn run(
    machine: &Machine,
    kernel: &str,
    program: impl FnOnce(&mut KernelCx<'_>) + 'static,
) -> (Ns, Sim<Kernel>) {
    let kernel = KernelFile::load(kernel).unwrap();
    let mut knobs = Knobs::at_boot(&kernel.policy, &kernel.flows);
    knobs.thp.enabled = Enabled::Never;
    let mut sim = kernel::boot(machine, kernel.policy, kernel.flows, knobs);
    sim.world_mut().add_process("program");
    sim.spawn(TaskSpec::user("program"), program);
    let end = sim.run().unwrap();
    (end, sim)
}

const PROCESS: ProcessId = ProcessId(0);

fn write_all(cx: &mut KernelCx<'_>, bytes: u64) -> FileId {
    let file = cx.world().create_file(DeviceId(0));
    let mut at = 0;
    while at < bytes {
        filemap::write(cx, PROCESS, file, at, MIB).unwrap();
        at += MIB;
    }
    file
}

fn check(sim: &mut Sim<Kernel>) {
    let memory = &mut sim.world_mut().memory;
    memory.lru_add_drain_all();
    memory.audit().unwrap();
    memory.validate().unwrap();
}

#[test]
fn a_file_larger_than_memory_is_written_and_read_back() {
    for kernel in KERNELS {
        let size = 768 * MIB;
        let (_, mut sim) = run(&machine(100), kernel, move |cx| {
            let file = write_all(cx, size);
            writeback::fsync(cx, file).unwrap();
            let written = cx.world().memory.files.nr_written();
            assert!(written >= size / 4096, "each page was written at least once: {written}");
            assert_eq!(cx.world().memory.files.nr_dirty(), 0);
            let mut readahead = Readahead::default();
            let mut at = 0;
            while at < size {
                filemap::read(cx, PROCESS, file, &mut readahead, at, 64 * 1024).unwrap();
                at += 64 * 1024;
            }
        });
        check(&mut sim);
        let memory = &sim.world().memory;
        let read = memory.vm.get(Vm::PgPgIn) * 1024;
        assert!(read >= size / 2 && read <= size + size / 8, "{kernel}: {} MiB read", read / MIB);
        // Clean pages are there to be taken: no program had to wait for reclaim for long.
        let scanned = memory.vm.get(Vm::PgScanKswapd) + memory.vm.get(Vm::PgScanDirect);
        let stolen = memory.vm.get(Vm::PgStealKswapd) + memory.vm.get(Vm::PgStealDirect);
        assert!(stolen * 10 >= scanned * 7, "{kernel}: {stolen} of {scanned}");
    }
}

#[test]
fn reclaim_wakes_a_worker_for_every_512_pages_it_looks_at_where_it_tells_of_pressure() {
    let woken = |kernel| {
        let (_, sim) = run(&machine(100), kernel, |cx| {
            write_all(cx, 768 * MIB);
        });
        let tasks = (0..sim.nr_tasks() as u32).map(TaskId);
        let workers = tasks.filter(|&task| sim.task_name(task).starts_with("kworker/"));
        // Each of their waits but the first follows a wakeup.
        let waits: u64 =
            workers.map(|task| sim.task_times(task).voluntary_switches.saturating_sub(1)).sum();
        let vm = &sim.world().memory.vm;
        (waits, vm.get(Vm::PgScanKswapd) + vm.get(Vm::PgScanDirect))
    };
    let (waits, scanned) = woken("linux-6.1");
    assert!(scanned > 50_000, "{scanned}");
    assert!((scanned / 4096..=scanned / 512).contains(&waits), "{waits} for {scanned}");
    assert_eq!(woken("linux-4.4").0, 0);
    // Lists by generation are looked through without it.
    assert_eq!(woken("linux-6.12").0, 0);
}

#[test]
fn a_writer_goes_no_faster_than_its_disk() {
    let time = |speed| {
        let (end, mut sim) = run(&machine(speed), "linux-6.12", |cx| {
            let file = write_all(cx, 1024 * MIB);
            writeback::fsync(cx, file).unwrap();
        });
        check(&mut sim);
        end.as_secs_f64()
    };
    let (whole, half) = (time(100), time(50));
    assert!((half / whole - 2.0).abs() < 0.2, "{whole} s, at half the bandwidth {half} s");
}

#[test]
fn a_file_that_is_deleted_gives_all_its_memory_and_space_back() {
    for kernel in KERNELS {
        let (_, mut sim) = run(&machine(100), kernel, |cx| {
            let free = cx.world().memory.zones.iter().map(|zone| zone.nr_free_pages).sum::<u64>();
            for _ in 0..3 {
                let file = write_all(cx, 32 * MIB);
                filemap::unlink(cx, file);
            }
            let memory = &mut cx.world().memory;
            assert_eq!((memory.files.nr_pages(), memory.files.nr_dirty()), (0, 0));
            // What buffer heads and nodes were in is kept for the next ones, until it is asked for.
            for id in CacheId::all() {
                memory.shrink_cache(id, CpuId(0));
            }
            memory.drain_all_pages(None);
            let after = memory.zones.iter().map(|zone| zone.nr_free_pages).sum::<u64>();
            assert_eq!(after, free);
        });
        check(&mut sim);
    }
}

#[test]
fn old_dirty_pages_are_written_though_nobody_asks() {
    let (_, mut sim) = run(&machine(100), "linux-6.12", |cx| {
        let file = write_all(cx, 8 * MIB);
        assert_eq!(cx.world().memory.files.counts(file).1, 2048);
        cx.sleep(Ns::from_secs(40));
        assert_eq!(cx.world().memory.files.counts(file), (2048, 0));
    });
    check(&mut sim);
}

#[test]
fn flushers_look_for_old_pages_as_often_as_they_are_told_to() {
    // Seconds between looks, seconds after which a page is old, and whether any is dirty still after so many.
    for (interval, expire, seconds, is_dirty) in [
        (None, 1, 40, true),
        (Some(1), 2, 10, false),
        (Some(20), 2, 10, true),
        (Some(1), 20, 10, true),
    ] {
        let (_, mut sim) = run(&machine(100), "linux-6.12", move |cx| {
            let knobs = &mut cx.world().knobs;
            knobs.writeback_interval = interval.map(Ns::from_secs);
            knobs.dirty_expire = Ns::from_secs(expire);
            // Flushers learn of it when they have waited as they were told to before.
            cx.sleep(Ns::from_secs(6));
            let file = write_all(cx, 8 * MIB);
            cx.sleep(Ns::from_secs(seconds));
            let (_, dirty) = cx.world().memory.files.counts(file);
            assert_eq!(dirty > 0, is_dirty, "{interval:?} {expire}: {dirty}");
        });
        check(&mut sim);
    }
}

#[test]
fn no_more_is_dirty_than_what_may_be() {
    for kernel in KERNELS {
        let (_, mut sim) = run(&machine(100), kernel, move |cx| {
            let file = write_all(cx, 32 * MIB);
            let memory = &mut cx.world().memory;
            assert_eq!(memory.files.counts(file).1, 8192, "less than a tenth of memory");
            memory.policy.dirty.bytes = 8 * MIB;
            memory.policy.dirty.background_bytes = 4 * MIB;
            let file = write_all(cx, 256 * MIB);
            let memory = &cx.world().memory;
            assert_eq!(memory.files.counts(file).0, 65536);
            let dirty = memory.files.nr_dirty();
            assert!(dirty <= 2048 + 64, "{kernel}: {dirty} pages");
        });
        check(&mut sim);
    }
}

#[test]
fn a_disk_that_was_hardly_written_to_is_left_with_hardly_anything_dirty_before_3_6() {
    // As much is written as starts flushers. What is dirty once they have stopped again, in percent of that limit.
    let left_dirty = |kernel: &str, rounds: u64| {
        let left = Rc::new(Cell::new(0));
        let seen = left.clone();
        // Its disk is faster than its flusher.
        run(&machine::load("guest-tcg").unwrap(), kernel, move |cx| {
            let limit = cx.world().memory.dirty_limits().0;
            for _ in 0..rounds {
                // Small files: a flusher looks at what is dirty only every tenth of a second.
                for _ in 0..=limit / 16 {
                    let file = cx.world().create_file(DeviceId(0));
                    filemap::write(cx, PROCESS, file, 0, 64 << 10).unwrap();
                }
                // The next look for old pages, after five seconds, would write what is queued.
                cx.sleep(Ns::from_secs(1));
            }
            seen.set(cx.world().memory.files.nr_dirty() * 100 / limit);
        });
        left.get()
    };
    for kernel in ["linux-3.3", "linux-3.5"] {
        // Of 24,422 pages that start flushers about 19,000 were written, where a period is 65,536, and then 22,000 more.
        let (once, twice) = (left_dirty(kernel, 1), left_dirty(kernel, 2));
        assert!((10..30).contains(&once), "{kernel}: {once} %");
        assert!((once + 1..60).contains(&twice), "{kernel}: {once} %, then {twice} %");
    }
    for kernel in ["linux-4.4", "linux-6.12"] {
        assert!((60..=100).contains(&left_dirty(kernel, 1)), "{kernel}");
    }
}

#[test]
fn caches_are_dropped_on_request() {
    let (_, mut sim) = run(&machine(100), "linux-6.12", |cx| {
        let file = write_all(cx, 8 * MIB);
        filemap::drop_pagecache(cx);
        assert_eq!(cx.world().cached_bytes(file), 8 * MIB, "dirty pages stay");
        writeback::sync(cx);
        filemap::drop_pagecache(cx);
        assert_eq!(cx.world().cached_bytes(file), 0);
    });
    check(&mut sim);
}

#[test]
fn dropping_caches_forgets_what_went_before_of_files_that_have_pages() {
    for kernel in KERNELS {
        let (_, mut sim) = run(&machine(1000), kernel, |cx| {
            let file = write_all(cx, 768 * MIB);
            writeback::sync(cx);
            let kernel = cx.world();
            assert!(kernel.cached_bytes(file) > 0);
            assert!(kernel.memory.files.nr_shadow_nodes() > 1000, "a third of the file went");
            filemap::drop_pagecache(cx);
            let kernel = cx.world();
            assert_eq!(kernel.cached_bytes(file), 0);
            assert_eq!(kernel.memory.files.nr_shadow_nodes(), 0);
        });
        check(&mut sim);
    }
}

/// Maps all of a file and touches a word of every page of it.
fn touch_file(cx: &mut KernelCx<'_>, process: ProcessId, file: FileId, access: Access) -> Vpn {
    let pages = cx.world().file(file).nr_pages() as u32;
    let start = filemap::map(cx, process, file, 0, pages, access == Access::Write).unwrap();
    fault::touch_range(cx, process, start, pages, access, Extent::Word).unwrap();
    start
}

#[test]
fn a_mapped_file_larger_than_memory_is_read_once_in_whole_windows() {
    for kernel in KERNELS {
        let size = 1024 * MIB;
        let (_, mut sim) = run(&machine(100), kernel, move |cx| {
            let file = write_all(cx, size);
            writeback::fsync(cx, file).unwrap();
            let written = cx.world().memory.files.nr_written();
            touch_file(cx, PROCESS, file, Access::Read);
            assert_eq!(cx.world().memory.files.nr_written(), written, "{kernel}: nothing is dirty");
            let memory = &cx.world().memory;
            let mapped = memory.lru.total_stats().nr_file_mapped;
            assert_eq!(mapped, memory.spaces.task(PROCESS).file, "{kernel}");
            assert!(mapped > 0 && mapped <= memory.files.nr_pages(), "{kernel}");
            oom::exit_mmap(cx, PROCESS);
            assert_eq!(cx.world().memory.lru.total_stats().nr_file_mapped, 0, "{kernel}");
        });
        check(&mut sim);
        let memory = &sim.world().memory;
        let read = memory.vm.get(Vm::PgPgIn) * 1024;
        assert!(read >= size / 2 && read <= size + size / 8, "{kernel}: {} MiB read", read / MIB);
        // Reading ahead is ahead: a fault in a hundred waits for the disk at most.
        let (faults, major) = (memory.vm.get(Vm::PgFault), memory.vm.get(Vm::PgMajFault));
        assert!(major * 100 <= size / 4096, "{kernel}: {major} of {faults} faults are major");
        // Sixteen pages are mapped by a fault, but for the one at the mark.
        assert!(faults < size / 4096 / 4, "{kernel}: {faults} faults");
    }
}

#[test]
fn what_is_written_through_a_mapping_is_dirtied_and_written_page_by_page() {
    for kernel in KERNELS {
        let (_, mut sim) = run(&machine(100), kernel, move |cx| {
            let file = cx.world().create_file(DeviceId(0));
            filemap::set_size(cx, PROCESS, file, 768 * MIB).unwrap();
            // A hole gets its space when it is written.
            touch_file(cx, PROCESS, file, Access::Write);
            let before = cx.now();
            writeback::fsync(cx, file).unwrap();
            assert!(cx.now() > before);
            let files = &cx.world().memory.files;
            assert_eq!((files.nr_dirtied(), files.nr_written()), (196_608, 196_608), "{kernel}");
            assert_eq!(cx.world().memory.vm.get(Vm::PgPgOut), 4 * 196_608, "{kernel}");
            assert_eq!(cx.world().memory.vm.get(Vm::PgPgIn), 0, "{kernel}: nothing was there");
        });
        check(&mut sim);
        // Whoever writes goes no faster than the disk: 768 MiB take a while.
        let stats = sim.world().memory.lru.total_stats();
        assert_eq!(stats.nr_writeback, 0, "{kernel}");
    }
}

#[test]
fn a_page_that_is_written_through_a_mapping_has_a_buffer_on_ext4() {
    let mut machine = machine(100);
    machine.file_systems.fill(FileSystem::Ext4);
    for kernel in KERNELS {
        let (_, mut sim) = run(&machine, kernel, move |cx| {
            let nr_buffers = |cx: &mut KernelCx<'_>, file| {
                let memory = &cx.world().memory;
                let page = |index| match memory.files.get(file, index) {
                    CachedPage::Page(pfn) => pfn,
                    other => panic!("{kernel}: page {index} is {other:?}"),
                };
                (0..2048).filter(|&index| memory.page_has_buffer(page(index))).count()
            };
            // A hole that is read is nothing to its file system, until it is written there.
            let file = cx.world().create_file(DeviceId(0));
            filemap::set_size(cx, PROCESS, file, 8 * MIB).unwrap();
            let start = filemap::map(cx, PROCESS, file, 0, 2048, true).unwrap();
            let touch = |cx: &mut KernelCx<'_>, first: u32, pages, access| {
                let start = Vpn(start.0 + first);
                fault::touch_range(cx, PROCESS, start, pages, access, Extent::Word).unwrap();
            };
            touch(cx, 0, 2048, Access::Read);
            assert_eq!(nr_buffers(cx, file), 0, "{kernel}");
            touch(cx, 512, 1024, Access::Write);
            assert_eq!(nr_buffers(cx, file), 1024, "{kernel}");
            assert_eq!(cx.world().memory.files.counts(file), (2048, 1024), "{kernel}");
        });
        check(&mut sim);
    }
}

#[test]
fn two_processes_share_a_file_and_cutting_it_takes_its_pages_from_both() {
    for kernel in KERNELS {
        let (_, mut sim) = run(&machine(100), kernel, move |cx| {
            let other = cx.world().add_process("other");
            let file = write_all(cx, 8 * MIB);
            let mine = touch_file(cx, PROCESS, file, Access::Write);
            let theirs = touch_file(cx, other, file, Access::Read);
            let mapped = cx.world().memory.lru.total_stats().nr_file_mapped;
            assert_eq!(mapped, 2048, "{kernel}: pages, not entries");
            // In the middle of page 1000.
            filemap::set_size(cx, PROCESS, file, 1000 * 4096 + 100).unwrap();
            assert_eq!(cx.world().cached_bytes(file), 1001 * 4096, "{kernel}");
            for start in [mine, theirs] {
                let table = cx.world().memory.spaces.table();
                assert!(table.frame_at(Vpn(start.0 + 1000)).is_some(), "{kernel}");
                assert!((1001..2048).all(|at| table.frame_at(Vpn(start.0 + at)).is_none()));
            }
            let behind = Vpn(theirs.0 + 1001);
            let error = fault::touch_range(cx, other, behind, 1, Access::Read, Extent::Word);
            let expected = TouchError::BehindEnd { page: 1001, pages: 1001 };
            assert_eq!(error, Err(expected), "{kernel}");
            let error = fault::touch_range(cx, other, theirs, 1, Access::Write, Extent::Word);
            assert_eq!(error, Err(TouchError::ReadOnly), "{kernel}");
            // Made longer again, what was cut off is a hole.
            filemap::set_size(cx, PROCESS, file, 8 * MIB).unwrap();
            fault::touch_range(cx, other, behind, 1, Access::Read, Extent::Word).unwrap();
            let read = cx.world().memory.vm.get(Vm::PgPgIn);
            assert_eq!(read, 0, "{kernel}: nothing is on the disk behind the cut");
        });
        check(&mut sim);
    }
}

#[test]
fn a_deleted_file_lives_until_its_last_mapping_goes() {
    let (_, mut sim) = run(&machine(100), "linux-6.12", |cx| {
        let other = cx.world().add_process("other");
        let file = write_all(cx, 8 * MIB);
        let mine = touch_file(cx, PROCESS, file, Access::Write);
        touch_file(cx, other, file, Access::Read);
        filemap::unlink(cx, file);
        filemap::drop_pagecache(cx);
        assert_eq!(cx.world().cached_bytes(file), 8 * MIB);
        oom::exit_mmap(cx, other);
        fault::touch_range(cx, PROCESS, mine, 2048, Access::Write, Extent::Word).unwrap();
        assert_eq!(cx.world().cached_bytes(file), 8 * MIB);
        oom::exit_mmap(cx, PROCESS);
        let memory = &cx.world().memory;
        let stats = memory.lru.total_stats();
        assert_eq!((memory.files.nr_pages(), memory.files.nr_dirty()), (0, 0));
        assert_eq!((stats.nr_file_mapped, stats.nr_page_table), (0, 0));
    });
    check(&mut sim);
}

#[test]
fn a_call_for_much_has_as_much_read_ahead_since_4_10() {
    // The call wants 256 pages, of which the disk takes 128 at once.
    let behind = |kernel: &str, bytes: u64| {
        let ahead = Rc::new(Cell::new(0));
        let seen = ahead.clone();
        let (_, mut sim) = run(&machine(100), kernel, move |cx| {
            let file = write_all(cx, 32 * MIB);
            writeback::fsync(cx, file).unwrap();
            filemap::drop_pagecache(cx);
            assert_eq!(cx.world().memory.files.counts(file).0, 0);
            let mut readahead = Readahead::default();
            for at in (0..MIB).step_by(bytes as usize) {
                filemap::read(cx, PROCESS, file, &mut readahead, at, bytes).unwrap();
            }
            seen.set(cx.world().memory.files.counts(file).0 - MIB / 4096);
        });
        check(&mut sim);
        ahead.get()
    };
    for (kernel, window) in [("linux-4.4", 32), ("linux-4.14", 128), ("linux-6.12", 128)] {
        assert_eq!(behind(kernel, MIB), window, "{kernel}: the last window");
        // Page by page windows are those of 128 KiB, whatever the kernel.
        assert!(behind(kernel, 4096) <= 64, "{kernel}");
    }
}

#[test]
fn who_looks_for_a_file_s_end_takes_a_page_behind_it_before_5_16() {
    // Bytes of a file, and what is read of it: from where, and how many.
    let taken = |kernel: &'static str, bytes: u64, (offset, wanted): (u64, u64)| {
        let taken = Rc::new(Cell::new(0));
        let seen = taken.clone();
        let (_, mut sim) = run(&machine(100), kernel, move |cx| {
            let file = cx.world().create_file(DeviceId(0));
            filemap::write(cx, PROCESS, file, 0, bytes).unwrap();
            let written = cx.world().memory.files.counts(file).0;
            for _ in 0..2 {
                let mut readahead = Readahead::default();
                filemap::read(cx, PROCESS, file, &mut readahead, offset, wanted).unwrap();
                assert_eq!(cx.world().file(file).size, bytes, "{kernel}");
            }
            seen.set(cx.world().memory.files.counts(file).0 - written);
            // It is a page as any other: what is written there is in it, and cutting the file takes it.
            filemap::write(cx, PROCESS, file, bytes, 1).unwrap();
            assert_eq!(cx.world().memory.files.counts(file).0, bytes / 4096 + 1, "{kernel}");
            filemap::set_size(cx, PROCESS, file, 0).unwrap();
            assert_eq!(cx.world().memory.files.counts(file).0, 0, "{kernel}");
            filemap::read(cx, PROCESS, file, &mut Readahead::default(), 0, 1).unwrap();
            filemap::unlink(cx, file);
        });
        check(&mut sim);
        assert_eq!(sim.world().memory.files.nr_pages(), 0, "{kernel}");
        taken.get()
    };
    let whole = 16 * 4096;
    for (kernel, page) in [("linux-3.3", 1), ("linux-4.4", 1), ("linux-5.4", 1), ("linux-6.12", 0)]
    {
        // At the end, and over the end.
        assert_eq!(taken(kernel, whole, (whole, 4096)), page, "{kernel}");
        assert_eq!(taken(kernel, whole, (0, whole + 1)), page, "{kernel}");
        assert_eq!(taken(kernel, whole, (0, whole)), 0, "{kernel}: all of it and no more");
        assert_eq!(
            taken(kernel, whole + 1, (whole + 1, 4096)),
            0,
            "{kernel}: its last page is there"
        );
    }
}

#[test]
fn reclaim_and_flushers_take_their_time_for_each_page_they_free_or_write() {
    // A file larger than memory, as if freeing or writing a page took as long as a lock, or as clearing a page.
    let run = |is_slow: bool| {
        let mut machine = machine(100);
        let costs = &mut machine.costs;
        let price = if is_slow { &costs.clear_base_page } else { &costs.lock_pair };
        costs.reclaim_page = price.clone();
        let (_, mut sim) = run(&machine, "linux-4.4", |cx| {
            let file = write_all(cx, 768 * MIB);
            writeback::fsync(cx, file).unwrap();
        });
        check(&mut sim);
        let vm = &sim.world().memory.vm;
        let freed = vm.get(Vm::PgStealKswapd) + vm.get(Vm::PgStealDirect);
        let cpus = (0..sim.nr_cpus()).map(|cpu| sim.cpu_times(CpuId(cpu as u32)).system.0);
        (freed, sim.world().memory.files.nr_written(), cpus.sum::<u64>())
    };
    let ((freed, written, fast), (freed_slowly, written_slowly, slow)) = (run(false), run(true));
    assert_eq!((written, written_slowly), (768 * MIB / 4096, 768 * MIB / 4096));
    assert!(freed > 32 * MIB / 4096 && freed.abs_diff(freed_slowly) < freed / 10);
    let costs = machine(100).costs;
    let price = (costs.clear_base_page.once() - costs.lock_pair.once()).0;
    let pages = freed_slowly + written;
    let ratio = (slow - fast) as f64 / (pages * price) as f64;
    // Where reclaim is slow a writer finds other zones full, and does other work.
    assert!((0.85..1.15).contains(&ratio), "{ratio} of what {pages} pages cost");
}

#[test]
fn files_take_their_time_for_each_page_and_for_what_is_kept_of_them() {
    // A file of 16 pages that is made, written twice, read from the disk and removed, as if the named cost were a lock's
    // time, and as if it were that of clearing a huge page.
    let times = |name: &str| {
        let run = |is_slow: bool| {
            let mut machine = machine(100);
            let costs = &mut machine.costs;
            let price = if is_slow { &costs.clear_huge_page } else { &costs.lock_pair };
            *costs.named_mut(name).unwrap() = price.clone();
            let (_, mut sim) = run(&machine, "linux-4.4", |cx| {
                let file = inodes::create(cx, PROCESS, "small", DeviceId(0)).file;
                for at in (0..32).map(|n| n % 16 * 4096) {
                    filemap::write(cx, PROCESS, file, at, 4096).unwrap();
                }
                writeback::fsync(cx, file).unwrap();
                filemap::drop_pagecache(cx);
                assert_eq!(cx.world().cached_bytes(file), 0);
                filemap::read(cx, PROCESS, file, &mut Readahead::default(), 0, 16 * 4096).unwrap();
                filemap::unlink(cx, file);
            });
            check(&mut sim);
            let cpus = (0..sim.nr_cpus()).map(|cpu| sim.cpu_times(CpuId(cpu as u32)).system.0);
            cpus.sum::<u64>()
        };
        let costs = machine(100).costs;
        let price = costs.clear_huge_page.once() - costs.lock_pair.once();
        (run(true) - run(false)) as f64 / price.0 as f64
    };
    // Each page comes into the file twice, and one or two of the inode tables.
    assert!((33.0..34.5).contains(&times("cache_page")), "{}", times("cache_page"));
    assert_eq!(times("write_page").round(), 32.0);
    // Making it, finding room for its pages, removing it, giving the room back.
    assert_eq!(times("metadata_change").round(), 4.0);
}
