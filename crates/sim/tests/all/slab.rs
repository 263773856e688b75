//! What files leave in slab caches on the model, and what takes it away.

use highorder_kernels::KernelFile;
use highorder_kernels::machine;
use highorder_mm::kernel_use::KernelUse;
use highorder_mm::policy::SlabAllocator;
use highorder_mm::slab::CacheId;
use highorder_mm::vma::ProcessId;
use highorder_mm::vmstat::Vm;
use highorder_mm::{CpuId, Order, Pfn};
use highorder_sim::kernel::demand::{self, Demand, DemandKind};
use highorder_sim::kernel::files::Readahead;
use highorder_sim::kernel::inodes::{self, OpenFile};
use highorder_sim::kernel::thp::Enabled;
use highorder_sim::kernel::{self, Kernel, KernelCx, Knobs, filemap, slab, writeback};
use highorder_sim::machine::FileSystem;
use highorder_sim::{DeviceId, Machine, Ns, Sim, TaskSpec};
use rand_core::Rng;
use rand_pcg::Pcg64;

const KERNELS: [&str; 5] = ["linux-3.3", "linux-4.4", "linux-4.14", "linux-6.1", "linux-6.12"];
const PROCESS: ProcessId = ProcessId(0);

fn boot(kernel: &str, change: impl FnOnce(&mut KernelFile, &mut Machine)) -> Sim<Kernel> {
    let mut machine = machine::load("one-node-8g").unwrap().scaled(1, 32).unwrap();
    let mut kernel = KernelFile::load(kernel).unwrap();
    change(&mut kernel, &mut machine);
    let mut knobs = Knobs::at_boot(&kernel.policy, &kernel.flows);
    knobs.thp.enabled = Enabled::Never;
    let mut sim = kernel::boot(&machine, kernel.policy, kernel.flows, knobs);
    sim.world_mut().add_process("program");
    sim
}

fn run(sim: &mut Sim<Kernel>, program: impl FnOnce(&mut KernelCx<'_>) + 'static) {
    sim.spawn(TaskSpec::user("program"), program);
    sim.run().unwrap();
}

fn check(sim: &mut Sim<Kernel>) {
    let world = sim.world_mut();
    world.memory.lru_add_drain_all();
    world.memory.audit().unwrap();
    world.memory.validate().unwrap();
    world.audit_entries().unwrap();
}

/// Files of so many bytes, 500 to a directory, closed again.
fn create_files(cx: &mut KernelCx<'_>, number: u32, bytes: u64) -> Vec<OpenFile> {
    (0..number)
        .map(|n| {
            let name = format!("d{}/f{n}", n / 500);
            let open = inodes::create(cx, PROCESS, &name, DeviceId(0));
            filemap::write(cx, PROCESS, open.file, 0, bytes).unwrap();
            inodes::close(cx, open);
            open
        })
        .collect()
}

fn objects(kernel: &Kernel, id: CacheId) -> (u64, u64) {
    let info = kernel.memory.slabinfo();
    let line = info.iter().find(|line| line.name == id.name());
    line.map_or((0, 0), |line| (line.active_objects, line.nr_pages))
}

/// Everything that caches keep for later goes.
fn shrink_caches(kernel: &mut Kernel) {
    for id in CacheId::all() {
        kernel.memory.shrink_cache(id, CpuId(0));
    }
}

/// `left`: directories that stay, there being too few unused objects to be asked for.
fn half_and_then_all(mut sim: Sim<Kernel>, inode: CacheId, left: u64) {
    const FILES: u32 = 6000;
    run(&mut sim, move |cx| {
        let mut files = create_files(cx, FILES, 100);
        writeback::sync(cx);
        let (inodes, pages_full) = objects(cx.world(), inode);
        // Twelve directories beside the files.
        assert_eq!(inodes, u64::from(FILES) + 12);
        let mut rng = Pcg64::new(1, 0x736c);
        for _ in 0..FILES / 2 {
            let at = rng.next_u32() as usize % files.len();
            filemap::unlink(cx, files.swap_remove(at).file);
        }
        shrink_caches(cx.world());
        let (inodes, pages_half) = objects(cx.world(), inode);
        assert_eq!(inodes, u64::from(FILES) / 2 + 12);
        // Of slabs of n objects, one in 2^n is empty when half of all are gone.
        let memory = &cx.world().memory;
        let info = memory.slabinfo();
        let line = info.iter().find(|line| line.name == inode.name()).unwrap();
        let empty_percent = 100 >> line.objects_per_slab;
        assert!(
            pages_half * 100 > pages_full * (97 - empty_percent),
            "{pages_half} of {pages_full} are pinned"
        );
        for open in files {
            filemap::unlink(cx, open.file);
        }
        writeback::sync(cx);
        // Directories and names of deleted files are remembered until somebody asks for their memory.
        for _ in 0..4 {
            slab::drop_slab(cx);
        }
        filemap::drop_pagecache(cx);
    });
    check(&mut sim);
    shrink_caches(sim.world_mut());
    check(&mut sim);
    let memory = &sim.world().memory;
    assert_eq!(memory.files.nr_pages(), 0);
    let in_use: u64 = memory.slabinfo().iter().map(|line| line.active_objects).sum();
    assert_eq!(in_use, left, "{:?}", memory.slabinfo());
    if left == 0 {
        assert_eq!(memory.slab_pages(), [0, 0]);
        let frames = (0..memory.frames().len() as u32).map(Pfn);
        assert_eq!(frames.filter(|&pfn| memory.kernel_use(pfn).is_some()).count(), 0);
    }
}

#[test]
fn unlinking_half_the_files_pins_their_slabs_and_unlinking_all_returns_every_page() {
    for kernel in KERNELS {
        // 3.3 asks for hundreds, and twelve inodes of directories are none.
        let left = if kernel == "linux-3.3" { 12 } else { 0 };
        half_and_then_all(boot(kernel, |_, _| ()), CacheId::EXT4_INODE, left);
    }
    let xfs = boot("linux-6.12", |_, machine| machine.file_systems[0] = FileSystem::Xfs);
    half_and_then_all(xfs, CacheId::XFS_INODE, 0);
    let slab = boot("linux-4.4", |kernel, _| kernel.policy.slab.allocator = SlabAllocator::Slab);
    half_and_then_all(slab, CacheId::EXT4_INODE, 0);
}

#[test]
fn dropped_inodes_come_back_from_the_disk() {
    for kernel in KERNELS {
        let mut sim = boot(kernel, |_, _| ());
        run(&mut sim, |cx| {
            let files = create_files(cx, 1000, 4096);
            writeback::sync(cx);
            filemap::drop_pagecache(cx);
            slab::drop_slab(cx);
            slab::drop_slab(cx);
            slab::drop_slab(cx);
            assert_eq!(objects(cx.world(), CacheId::EXT4_INODE).0, 0);
            assert_eq!(objects(cx.world(), CacheId::DENTRY).0, 0);
            filemap::drop_pagecache(cx);
            let before = cx.world().memory.vm.get(Vm::PgPgIn);
            for open in files {
                let open = inodes::open(cx, PROCESS, open.file);
                inodes::close(cx, open);
            }
            let (inodes, _) = objects(cx.world(), CacheId::EXT4_INODE);
            assert_eq!(inodes, 1002);
            // 1002 inodes of 256 bytes: 63 blocks.
            let read = cx.world().memory.vm.get(Vm::PgPgIn) - before;
            assert!((63 * 4..=66 * 4).contains(&read), "{read} KiB");
        });
        check(&mut sim);
    }
}

/// Has shrinkers asked until nothing unused is left, but for what is too little for 3.x to ask for.
fn drop_unused(cx: &mut KernelCx<'_>) {
    for _ in 0..8 {
        slab::drop_slab(cx);
    }
}

#[test]
fn an_inode_that_goes_takes_what_is_remembered_of_its_pages_with_it() {
    for kernel in ["linux-4.4", "linux-4.14"] {
        let mut sim = boot(kernel, |_, _| ());
        run(&mut sim, |cx| {
            // More than memory: of most files the pages are gone, and shadows there.
            create_files(cx, 6400, 64 * 1024);
            writeback::sync(cx);
            assert!(cx.world().memory.files.nr_shadow_nodes() > 0);
            drop_unused(cx);
            assert_eq!(objects(cx.world(), CacheId::EXT4_INODE).0, 0);
            assert_eq!(cx.world().memory.files.nr_shadow_nodes(), 0);
        });
        check(&mut sim);
    }
}

#[test]
fn an_inode_that_changed_stays_until_its_flusher_has_seen_to_it() {
    for kernel in KERNELS {
        let mut sim = boot(kernel, |_, _| ());
        run(&mut sim, move |cx| {
            let files = create_files(cx, 4000, 4096);
            writeback::sync(cx);
            // The first reading changes a file's access time; there is no other after it.
            for (nr, open) in files.iter().enumerate() {
                let open = inodes::open(cx, PROCESS, open.file);
                if nr % 2 == 0 {
                    let mut readahead = Readahead::default();
                    filemap::read(cx, PROCESS, open.file, &mut readahead, 0, 4096).unwrap();
                }
                inodes::close(cx, open);
            }
            filemap::drop_pagecache(cx);
            drop_unused(cx);
            // 512 unused objects are too few for 3.x to ask for.
            let left = objects(cx.world(), CacheId::EXT4_INODE).0;
            assert!((2000..2000 + 512).contains(&left), "{kernel}: {left}");
            // Thirty seconds, and up to five until the flusher looks.
            cx.sleep(Ns::from_secs(36));
            filemap::drop_pagecache(cx);
            drop_unused(cx);
            let left = objects(cx.world(), CacheId::EXT4_INODE).0;
            assert!(left < 512, "{kernel}: {left}");
        });
        check(&mut sim);
    }
}

#[test]
fn reclaim_shrinks_inodes_when_files_fill_memory() {
    // Since 4.16 the lowest pressure asks for two of every 4096 objects, which is less than a batch here.
    for kernel in ["linux-3.3", "linux-4.4", "linux-4.14"] {
        let mut sim = boot(kernel, |_, _| ());
        run(&mut sim, move |cx| {
            // 240 MiB of memory, 400 MiB of files.
            create_files(cx, 6400, 64 * 1024);
            let vm = &cx.world().memory.vm;
            let scanned = vm.get(Vm::PgScanKswapd) + vm.get(Vm::PgScanDirect);
            assert!(vm.get(Vm::SlabsScanned) > 0, "{kernel}: {scanned} pages scanned, no object");
        });
        check(&mut sim);
    }
}

#[test]
fn demands_are_held_and_given_back() {
    let mut sim = boot("linux-6.12", |_, _| ());
    let demand = |kind, order| Demand {
        kind,
        order: Order(order),
        bytes: if kind == DemandKind::Object { 700 } else { 0 },
        sleeps: true,
        gap: Ns::from_millis(1),
        lifetime: Ns::from_millis(100),
    };
    let demands = [
        demand(DemandKind::NetworkBuffer, 3),
        demand(DemandKind::KernelStack, 0),
        demand(DemandKind::Object, 0),
    ];
    demand::start(&mut sim, &demands, 1);
    run(&mut sim, |cx| cx.sleep(Ns::from_secs(20)));
    let world = sim.world();
    // A hundred of each at a time, and twenty thousand in all.
    for (_, stats) in &world.demands {
        assert!(stats.nr_asked.abs_diff(20_000) < 1000, "{stats:?}");
        assert_eq!((stats.nr_failed, stats.nr_smaller), (0, 0));
    }
    let memory = &world.memory;
    let count = |of: KernelUse| {
        let frames = (0..memory.frames().len() as u32).map(Pfn);
        frames.filter(|&pfn| memory.kernel_use(pfn) == Some(of)).count()
    };
    assert!(count(KernelUse::NetworkBuffer).abs_diff(800) < 400);
    assert_eq!(count(KernelUse::KernelStack) as u64 * 4, memory.kernel_stack_kib());
    assert!(memory.kernel_stack_kib().abs_diff(1600) < 800);
    // The next larger cache has 1 KiB: four a page.
    let objects = count(KernelUse::Slab(CacheId::kmalloc(1024).unwrap()));
    assert!((25..200).contains(&objects), "{objects}");
    check(&mut sim);
}
