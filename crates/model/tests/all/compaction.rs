//! Compaction as whole kernels do it: for requests, by their threads, and for user space; alone and beside
//! everything else.

use crate::common::model;
use highorder_kernels::machine;
use highorder_mm::frame::{PageFlags, State};
use highorder_mm::kernel_use::KernelUse;
use highorder_mm::zone::ZoneId;
use highorder_mm::{Memory, Order, Pfn};
use highorder_model::{ModelSpec, run_on};
use highorder_record::{Inputs, Record};
use highorder_sim::Ns;
use highorder_sim::kernel::Kernel as World;
use highorder_sim::kernel::demand::{Demand, DemandKind};
use highorder_system::{
    Access, Advice, Area, BarrierId, BlockId, Caches, Code, Failure, KernelBlock, Pattern, System,
    ThreadSpec,
};
use rand_core::Rng;
use rand_pcg::Pcg64;

const KERNELS: [&str; 7] = [
    "linux-3.4-rc2",
    "linux-4.4",
    "linux-4.14",
    "linux-4.14-direct-held",
    "linux-4.14-direct-tail",
    "linux-6.1",
    "linux-6.12",
];
/// Order of a pageblock and a huge page.
const HUGE: u8 = 9;

/// Runs a program on a machine of `mib` MiB in one node, with 4 CPUs, a disk and swap of its size.
fn run_on_kernel(
    kernel: &str,
    mib: u32,
    program: impl FnOnce(&mut dyn System) -> Result<(), Failure> + Send + 'static,
) -> (Record, World) {
    run_with_demands(kernel, mib, Vec::new(), program)
}

fn run_with_demands(
    kernel: &str,
    mib: u32,
    demands: Vec<Demand>,
    program: impl FnOnce(&mut dyn System) -> Result<(), Failure> + Send + 'static,
) -> (Record, World) {
    let machine = machine::load("one-node-8g").unwrap().scaled(mib, 8192).unwrap();
    let spec = ModelSpec { demands, ..model(machine, kernel, "never") };
    run_on(spec, Inputs::default(), Box::new(program)).unwrap()
}

/// Every frame is free, reserved or in the swap cache, on one list each; nothing is isolated any more.
fn check_conserved(world: &mut World, what: &str) {
    let memory: &mut Memory = &mut world.memory;
    memory.lru_add_drain_all();
    memory.audit().unwrap();
    memory.validate().unwrap();
    let mut in_use = 0;
    for zone in 0..memory.zones.len() {
        let census = memory.census(ZoneId(zone as u8)).unwrap();
        let managed = memory.zones[zone].managed_pages;
        let found = census.free + census.pcp + census.allocated;
        assert_eq!(found, managed, "{what}: zone {zone}");
        assert_eq!(memory.zones[zone].compact.nr_held, 0, "{what}: zone {zone}");
        in_use += census.allocated;
    }
    let frames = memory.frames();
    for pfn in (0..frames.len() as u32).map(Pfn) {
        assert_ne!(frames.state(pfn), State::Isolated, "{what}: {pfn}");
        if frames.state(pfn) != State::Allocated {
            continue;
        }
        // Caches keep empty slabs.
        if let Some(KernelUse::Slab(_)) = memory.kernel_use(pfn) {
            in_use -= u64::from(frames.order(pfn).pages());
        } else {
            let of = memory.kernel_use(pfn);
            // Pages of the file systems' own stay in the cache while they are dirty.
            let is_file = frames.has(pfn, PageFlags::LRU) && !frames.has(pfn, PageFlags::ANON);
            let is_known = is_file || frames.has(pfn, PageFlags::SWAPCACHE);
            assert!(is_known, "{what}: {pfn} is nobody's: {of:?}");
        }
    }
    assert_eq!(memory.swap.nr_cached() + memory.files.nr_pages(), in_use, "{what}");
    assert!(memory.lru.lruvecs.iter().all(|lists| lists.stats.nr_isolated == [0; 2]), "{what}");
    let totals = world.compaction_totals();
    assert_eq!((totals.held_pages, totals.running), (0, 0), "{what}");
    assert!(totals.free_search <= totals.all, "{what}");
}

/// Pages that moved, by the counter that the kernel has of it.
fn moved(record: &Record) -> i64 {
    let counters = ["pgmigrate_success", "compact_pages_moved"];
    counters.into_iter().find_map(|name| record.delta(name)).unwrap()
}

/// Each stall ended in one way; before 3.18 some did not, since no zone was worth it.
fn check_counters(record: &Record, kernel: &str) {
    let skipped = skipped(record);
    assert!(skipped == 0 || kernel.starts_with("linux-3.4") && skipped > 0, "{kernel}: {skipped}");
}

/// Stalls that neither helped nor failed.
fn skipped(record: &Record) -> i64 {
    let delta = |name: &str| record.delta(name).unwrap();
    delta("compact_stall") - delta("compact_success") - delta("compact_fail")
}

#[test]
fn before_3_18_a_stall_for_which_no_zone_was_worth_it_neither_helps_nor_fails() {
    for (kernel, are_counted) in [("linux-3.4-rc2", true), ("linux-4.4", false)] {
        let (record, _) = run_on_kernel(kernel, 256, |sys| {
            // Little is free: less than compaction needs for its targets.
            let area = fragment(sys, 99, 0)?;
            sys.note_before();
            let had = sys.take_block(KernelBlock::Module { order: HUGE })?;
            had.into_iter().try_for_each(|block| sys.free_block(block))?;
            sys.note_held();
            sys.munmap(area)
        });
        assert_eq!(skipped(&record) > 0, are_counted, "{kernel}: {}", skipped(&record));
    }
}

/// Maps `share` percent of memory and writes it, then gives back single pages drawn at random: `holes`
/// percent.
fn fragment(sys: &mut dyn System, share: u64, holes: u32) -> Result<Area, Failure> {
    let pages = sys.machine().total_pages * share / 100;
    let area = sys.mmap(pages)?;
    sys.touch_range(area, Pattern::word(Access::Write))?;
    let mut rng = Pcg64::new(7, 11);
    for page in 0..pages {
        if rng.next_u32() % 100 < holes {
            sys.madvise(area.part(page, 1), Advice::DontNeed)?;
        }
    }
    Ok(area)
}

/// Free blocks of at least this order in all zones, when counters were noted.
fn free_blocks(state: &highorder_record::State, order: u8) -> u64 {
    let of_zone = |zone: &highorder_record::ZoneState| -> u64 {
        let orders = zone.free_blocks.iter().enumerate().skip(order.into());
        orders.map(|(of, nr)| nr << (of - usize::from(order))).sum()
    };
    state.zones.iter().map(of_zone).sum()
}

#[test]
fn compact_memory_makes_blocks_of_scattered_pages() {
    for kernel in KERNELS {
        let (record, mut world) = run_on_kernel(kernel, 512, |sys| {
            let area = fragment(sys, 80, 40)?;
            sys.note_before();
            sys.set_knob("vm.compact_memory", "1")?;
            sys.note_held();
            sys.munmap(area)
        });
        check_conserved(&mut world, kernel);
        let held = record.held.as_ref().unwrap();
        let (before, after) = (free_blocks(&record.before, HUGE), free_blocks(held, HUGE));
        // 40 % of 80 % of memory, 80 blocks, were scattered; half of that is the least to expect.
        assert!(after >= before + 40, "{kernel}: {before} blocks before, {after} after");
        assert!(moved(&record) > 0, "{kernel}");
        // It is nobody's stall, and moves pages: it does not write or drop them.
        assert_eq!(record.delta("compact_stall"), Some(0), "{kernel}");
        assert_eq!(record.delta("pswpout"), Some(0), "{kernel}");
        let mapped = |state: &highorder_record::State| state.meminfo["AnonPages"];
        assert_eq!(mapped(held), mapped(&record.before), "{kernel}");
    }
}

#[test]
fn a_request_for_a_huge_page_gets_one_by_compaction() {
    for kernel in KERNELS {
        let (record, mut world) = run_on_kernel(kernel, 512, |sys| {
            let area = fragment(sys, 95, 20)?;
            sys.note_before();
            let mut blocks = Vec::new();
            for _ in 0..10 {
                blocks.extend(sys.take_block(KernelBlock::Module { order: HUGE })?);
            }
            sys.note_held();
            let had: Vec<BlockId> = blocks;
            assert!(had.len() >= 5, "{} of 10 blocks", had.len());
            had.into_iter().try_for_each(|block| sys.free_block(block))?;
            sys.munmap(area)
        });
        check_conserved(&mut world, kernel);
        check_counters(&record, kernel);
        let delta = |name: &str| record.delta(name).unwrap();
        assert!(delta("compact_success") > 0, "{kernel}");
        assert!(moved(&record) > 0, "{kernel}");
        let stalls = &record.latencies["stall-direct-compaction"];
        assert!(stalls.count() >= delta("compact_stall") as u64, "{kernel}");
        // Which form takes its targets from where.
        let taken = |name: &str| record.after.counters.get(name).copied().unwrap_or(0);
        let [held, tail] = ["compact_free_direct_alloc", "compact_free_list_alloc"].map(taken);
        match kernel {
            "linux-4.14-direct-held" => assert!(held > 0 && tail == 0, "{held} {tail}"),
            "linux-4.14-direct-tail" => {
                assert!(held == 0 && tail > 0, "{held} {tail}");
                assert_eq!(delta("compact_free_scanned"), 0, "no scanner is left");
            }
            _ => assert_eq!((held, tail), (0, 0), "{kernel}"),
        }
        assert!(taken("compact_free_direct_miss") <= held, "{kernel}");
    }
}

#[test]
fn whoever_may_not_wait_has_the_kernels_threads_compact() {
    // On 4.4 kswapd compacts only after it has reclaimed, and for an order that it cannot have it never sleeps.
    for kernel in KERNELS.into_iter().filter(|kernel| *kernel != "linux-4.4") {
        let packets = Demand {
            kind: DemandKind::NetworkBuffer,
            order: Order(3),
            bytes: 0,
            sleeps: false,
            gap: Ns::from_millis(2),
            lifetime: Ns::from_secs(1000),
        };
        // With few pages free, 3.4 has kswapd reclaim blocks itself.
        let mut nr_moved = 0;
        for holes in [25, 5] {
            let what = format!("{kernel}, {holes} %");
            let (record, mut world) = run_with_demands(kernel, 256, vec![packets], move |sys| {
                let area = fragment(sys, 97, holes)?;
                sys.note_before();
                sys.sleep(Ns::from_secs(20))?;
                sys.note_held();
                sys.munmap(area)
            });
            world.memory.lru_add_drain_all();
            world.memory.audit().unwrap();
            world.memory.validate().unwrap();
            assert_eq!(record.delta("compact_stall"), Some(0), "{what}");
            nr_moved += moved(&record);
            if let Some(woken) = record.delta("compact_daemon_wake") {
                assert!(woken > 0, "{what}");
            }
            let (_, served) = world.demands[0];
            assert!(served.nr_asked > 5000, "{what}: {served:?}");
            assert!(served.nr_smaller < served.nr_asked, "{what}: {served:?}");
        }
        assert!(nr_moved > 0, "{kernel}");
    }
}

#[test]
fn failures_put_compaction_off_for_longer_and_longer() {
    // On 6.1 and later a request whose runs were all deferred counts as a stall too: stalls tell nothing
    // there. Before 3.18 so does one for which no zone was worth a run, which puts nothing off: failures tell.
    for kernel in &KERNELS[..5] {
        let counter = if *kernel == "linux-3.4-rc2" { "compact_fail" } else { "compact_stall" };
        let (record, mut world) = run_on_kernel(kernel, 256, move |sys| {
            const FILE: u64 = 64 << 20;
            // Pages of pipes stay where they are: some in every block of 16 pages.
            let pages = sys.machine().total_pages * 95 / 100;
            let area = sys.mmap(pages)?;
            let mut pipes = Vec::new();
            for page in 0..pages {
                match page % 8 {
                    0 => pipes.extend(sys.take_block(KernelBlock::PipeBuffer)?),
                    _ => sys.touch(area.page(page), Access::Write)?,
                }
            }
            sys.munmap(area)?;
            let file = sys.create_file("file")?;
            sys.write_file(file, 0, FILE)?;
            sys.note_before();
            let (mut runs, mut had) = (Vec::new(), Vec::new());
            for _ in 0..4 {
                let (before, nr_blocks) = (sys.counters()[counter], pipes.len());
                for round in 0..100 {
                    // There is always something to reclaim: where that makes no progress, old kernels
                    // fail before they have compacted in earnest.
                    sys.read_file(file, (round << 22) % FILE, 4 << 20)?;
                    // What has no pipe's page in it is had at first.
                    pipes.extend(sys.take_block(KernelBlock::Module { order: HUGE })?);
                }
                runs.push(sys.counters()[counter] - before);
                had.push((pipes.len() - nr_blocks) as u64);
            }
            assert!(runs[0] > 0 && runs[1] > 0, "{runs:?}");
            // Of a hundred attempts in a row, those between two runs have doubled up to 64; a run that frees a
            // block after all begins anew.
            let most = had.iter().map(|nr| 25 * (1 + nr));
            assert!(
                runs.iter().zip(most).skip(1).all(|(&nr, most)| nr <= most),
                "{runs:?}, {had:?}"
            );
            sys.close_file(file)?;
            sys.unlink("file")?;
            sys.drop_caches(Caches::All)?;
            pipes.into_iter().try_for_each(|block| sys.free_block(block))
        });
        check_conserved(&mut world, kernel);
        check_counters(&record, kernel);
    }
}

#[test]
fn tasks_that_compact_at_once_do_not_lose_each_others_pages() {
    for kernel in KERNELS {
        let (record, mut world) = run_on_kernel(kernel, 512, |sys| {
            let area = fragment(sys, 95, 25)?;
            sys.note_before();
            let parties = 8;
            let begin = sys.new_barrier(parties)?;
            let mut threads = Vec::new();
            for number in 0..parties {
                let code: Code = Box::new(move |sys| compact_often(sys, begin, number));
                threads.push(sys.spawn(ThreadSpec::thread(format!("c{number}")), code)?);
            }
            for thread in threads {
                sys.join(thread)?;
            }
            sys.note_held();
            sys.munmap(area)
        });
        check_conserved(&mut world, kernel);
        check_counters(&record, kernel);
        let held = record.held.as_ref().unwrap();
        assert!(free_blocks(held, HUGE) > free_blocks(&record.before, HUGE), "{kernel}");
    }
}

fn compact_often(sys: &mut dyn System, begin: BarrierId, number: u32) -> Result<(), Failure> {
    sys.barrier(begin)?;
    let mut blocks = Vec::new();
    for round in 0..10 {
        if number == 0 && round % 4 == 0 {
            sys.set_knob("vm.compact_memory", "1")?;
        }
        let order = if number.is_multiple_of(2) { HUGE } else { 4 };
        blocks.extend(sys.take_block(KernelBlock::Module { order })?);
    }
    blocks.into_iter().try_for_each(|block| sys.free_block(block))
}

#[test]
fn nothing_is_lost_by_any_interleaving_of_compaction_reclaim_and_unmapping() {
    for kernel in KERNELS {
        let mut happened = [0; 3];
        for seed in 0..3 {
            let what = format!("{kernel}, seed {seed}");
            let (record, mut world) = run_on_kernel(kernel, 128, move |sys| {
                let mut threads = Vec::new();
                for number in 0..6 {
                    let code: Code = Box::new(move |sys| at_random(sys, seed, number));
                    threads.push(sys.spawn(ThreadSpec::thread(format!("r{number}")), code)?);
                }
                threads.into_iter().try_for_each(|thread| sys.join(thread))?;
                sys.note_held();
                (0..6).try_for_each(|number| sys.unlink(&format!("file-{number}")))?;
                sys.drop_caches(Caches::All)
            });
            assert!(record.notes.is_empty(), "{what}: {:?}", record.notes);
            check_conserved(&mut world, &what);
            check_counters(&record, &what);
            let delta = |name: &str| record.delta(name).unwrap();
            for (sum, nr) in
                happened.iter_mut().zip([moved(&record), delta("compact_stall"), delta("pswpout")])
            {
                *sum += nr;
            }
        }
        assert!(happened.iter().all(|&nr| nr > 0), "{kernel}: {happened:?} moves, stalls, swapped");
    }
}

/// One of several threads that all want more memory together than there is.
fn at_random(sys: &mut dyn System, seed: u64, number: u32) -> Result<(), Failure> {
    let mut rng = Pcg64::new(u128::from(seed), u128::from(number));
    let mut below = move |n: u64| (u64::from(rng.next_u32()) * n) >> 32;
    let most = sys.machine().total_pages / 5;
    let file = sys.create_file(&format!("file-{number}"))?;
    sys.write_file(file, 0, 4 << 20)?;
    let (mut areas, mut live): (Vec<Area>, u64) = (Vec::new(), 0);
    let mut blocks: Vec<BlockId> = Vec::new();
    for _ in 0..300 {
        match below(12) {
            0..=3 => {
                let area = sys.mmap(1 + below(600))?;
                sys.touch_range(area, Pattern::word(Access::Write))?;
                live += area.pages;
                areas.push(area);
            }
            4 if !areas.is_empty() => {
                let area = areas[below(areas.len() as u64) as usize];
                let first = below(area.pages);
                let pages = 1 + below(area.pages - first);
                sys.madvise(area.part(first, pages), Advice::DontNeed)?;
            }
            5 if !areas.is_empty() => {
                let area = areas[below(areas.len() as u64) as usize];
                sys.touch_range(area, Pattern::word(Access::Write))?;
            }
            6 => sys.read_file(file, below(15) << 18, 1 << 18)?,
            7 => match below(8) {
                0 => sys.fsync(file)?,
                _ => sys.write_file(file, below(15) << 18, 1 << 18)?,
            },
            8 | 9 => {
                let order = below(u64::from(HUGE) + 1) as u8;
                if order > 3 {
                    blocks.extend(sys.take_block(KernelBlock::Module { order })?);
                } else {
                    blocks.extend(sys.take_block(KernelBlock::PipeBuffer)?);
                }
            }
            10 if below(8) == 0 => sys.set_knob("vm.compact_memory", "1")?,
            10 => {
                let area = sys.mmap(1 + below(64))?;
                sys.mlock(area, true)?;
                live += area.pages;
                areas.push(area);
            }
            _ if !blocks.is_empty() => {
                let block = blocks.swap_remove(below(blocks.len() as u64) as usize);
                sys.free_block(block)?;
            }
            _ => sys.sleep(Ns(below(2_000_000)))?,
        }
        while live > most || blocks.len() > 6 {
            if blocks.len() > 6 {
                sys.free_block(blocks.remove(0))?;
                continue;
            }
            let area = areas.swap_remove(below(areas.len() as u64) as usize);
            sys.munmap(area)?;
            live -= area.pages;
        }
    }
    areas.into_iter().try_for_each(|area| sys.munmap(area))?;
    blocks.into_iter().try_for_each(|block| sys.free_block(block))?;
    sys.close_file(file)
}

/// How long the model takes for compaction of a large machine, beside how long that machine does:
/// `cargo test --release -p highorder-model --test all compaction -- --ignored --nocapture`.
#[test]
#[ignore = "takes 128 GiB of model: 2 GiB of memory, and a minute"]
fn a_second_of_compaction_at_128_gib_takes_less_than_a_second() {
    for kernel in ["linux-4.14", "linux-6.12"] {
        let spec = ModelSpec {
            sample_interval: Ns::from_secs(60),
            ..model(machine::load("fleet-128g").unwrap(), kernel, "never")
        };
        let program = move |sys: &mut dyn System| {
            let area = fragment(sys, 95, 10)?;
            let began = sys.now();
            #[expect(clippy::disallowed_types, reason = "how fast the model is")]
            let clock = std::time::Instant::now();
            sys.set_knob("vm.compact_memory", "1")?;
            let (wall, virtual_time) = (clock.elapsed().as_secs_f64(), sys.now() - began);
            let virtual_s = virtual_time.0 as f64 / 1e9;
            println!(
                "{kernel}: {virtual_s:.2} s of compaction in {wall:.2} s: {:.2}",
                wall / virtual_s
            );
            assert!(wall < virtual_s, "{kernel}: {wall} s for {virtual_s} s");
            sys.munmap(area)
        };
        run_on(spec, Inputs::default(), Box::new(program)).unwrap();
    }
}
