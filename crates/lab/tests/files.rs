//! Files on the model: what is written is on the disk, what is read comes back, nothing is lost.

use highorder_lab::Kernel as KernelFile;
use highorder_mm::filemap::FileId;
use highorder_mm::vmstat::Vm;
use highorder_sim::kernel::files::Readahead;
use highorder_sim::kernel::{self, Kernel, KernelCx, Knobs, filemap, writeback};
use highorder_sim::{DeviceId, Machine, Ns, Sim, TaskSpec};

const KERNELS: [&str; 3] = ["linux-4.4", "linux-6.1", "linux-6.12"];
const MIB: u64 = 1 << 20;

/// A machine of 512 MiB with a disk this many times as fast.
fn machine(speed_percent: u64) -> Machine {
    let mut machine = Machine::load("one-node-8g").unwrap().scaled(1, 16).unwrap();
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
    let knobs = Knobs { swappiness: kernel.policy.reclaim.swappiness };
    let mut sim = kernel::boot(machine, kernel.policy, kernel.flows, knobs);
    sim.world_mut().add_process("program");
    sim.spawn(TaskSpec::user("program"), program);
    let end = sim.run().unwrap();
    (end, sim)
}

const PROCESS: highorder_mm::vma::TaskId = highorder_mm::vma::TaskId(0);

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
            writeback::fsync(cx, file);
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
fn a_writer_goes_no_faster_than_its_disk() {
    let time = |speed| {
        let (end, mut sim) = run(&machine(speed), "linux-6.12", |cx| {
            let file = write_all(cx, 1024 * MIB);
            writeback::fsync(cx, file);
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
                let file = write_all(cx, 64 * MIB);
                filemap::unlink(cx, file);
            }
            let memory = &mut cx.world().memory;
            assert_eq!((memory.files.nr_pages(), memory.files.nr_dirty()), (0, 0));
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
