//! Compaction as whole kernels do it: for requests, by their threads, and for user space; alone and beside
//! everything else.

use highorder_lab::Kernel;
use highorder_mm::frame::{PageFlags, State};
use highorder_mm::zone::ZoneId;
use highorder_mm::{Memory, Pfn};
use highorder_record::{Inputs, Record};
use highorder_sim::kernel::Kernel as World;
use highorder_sim::{Machine, Ns};
use highorder_system::model::{ModelSpec, run_on};
use highorder_system::{
    Access, Advice, Area, BarrierId, BlockId, Code, Failure, KernelBlock, Pattern, System,
    ThreadSpec,
};
use rand_core::Rng;
use rand_pcg::Pcg64;
use std::collections::BTreeMap;

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
    let kernel = Kernel::load(kernel).unwrap();
    let spec = ModelSpec {
        machine: Machine::load("one-node-8g").unwrap().scaled(mib, 8192).unwrap(),
        policy: kernel.policy,
        flows: kernel.flows,
        knobs: BTreeMap::from([("transparent_hugepage/enabled".to_owned(), "never".to_owned())]),
        seed: 1,
        demands: Vec::new(),
        sample_interval: Ns::from_secs(5),
        draw: None,
    };
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
        if frames.state(pfn) == State::Allocated {
            assert!(frames.has(pfn, PageFlags::SWAPCACHE), "{what}: {pfn} belongs to nobody");
        }
    }
    assert_eq!(memory.swap.nr_cached(), in_use, "{what}");
    assert!(memory.lru.lruvecs.iter().all(|lists| lists.stats.nr_isolated == [0; 2]), "{what}");
    let totals = world.compaction_totals();
    assert_eq!((totals.held_pages, totals.running), (0, 0), "{what}");
    assert!(totals.free_search <= totals.all, "{what}");
}

/// Each stall ended in one way.
fn check_counters(record: &Record, what: &str) {
    let delta = |name: &str| record.delta(name).unwrap();
    let ended = delta("compact_success") + delta("compact_fail");
    assert_eq!(delta("compact_stall"), ended, "{what}");
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
        assert!(record.delta("pgmigrate_success").unwrap() > 0, "{kernel}");
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
        assert!(delta("compact_migrate_scanned") > 0, "{kernel}");
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
fn whoever_only_wakes_the_kernels_threads_finds_blocks_later() {
    for kernel in KERNELS {
        let (record, mut world) = run_on_kernel(kernel, 512, |sys| {
            let area = fragment(sys, 95, 20)?;
            sys.note_before();
            // A request of its own wakes kswapd first, and kswapd whoever compacts for it.
            let mut blocks = Vec::new();
            for _ in 0..20 {
                blocks.extend(sys.take_block(KernelBlock::Module { order: 4 })?);
                sys.sleep(Ns::from_millis(500))?;
            }
            sys.note_held();
            blocks.into_iter().try_for_each(|block| sys.free_block(block))?;
            sys.munmap(area)
        });
        check_conserved(&mut world, kernel);
        check_counters(&record, kernel);
        if kernel.starts_with("linux-3.4") || kernel == "linux-4.4" {
            assert!(!record.after.counters.contains_key("compact_daemon_wake"), "{kernel}");
        } else {
            assert!(record.delta("compact_daemon_wake").unwrap() > 0, "{kernel}");
        }
    }
}

#[test]
fn failures_put_compaction_off_for_longer_and_longer() {
    for kernel in KERNELS {
        let (record, mut world) = run_on_kernel(kernel, 256, |sys| {
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
            sys.note_before();
            let mut stalls = Vec::new();
            for _ in 0..4 {
                let before = sys.counters()["compact_stall"];
                for _ in 0..100 {
                    if let Some(block) = sys.take_block(KernelBlock::Module { order: HUGE })? {
                        sys.free_block(block)?;
                    }
                }
                stalls.push(sys.counters()["compact_stall"] - before);
            }
            println!("{stalls:?}");
            assert!(stalls[0] > 0, "{stalls:?}");
            assert!(stalls[3] * 3 <= stalls[0], "{stalls:?}");
            assert!(stalls[3] > 0 && stalls[3] <= 100 * 2 / 16, "{stalls:?}");
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
                sys.drop_caches(highorder_system::Caches::All)
            });
            assert!(record.notes.is_empty(), "{what}: {:?}", record.notes);
            check_conserved(&mut world, &what);
            check_counters(&record, &what);
            let delta = |name: &str| record.delta(name).unwrap();
            assert!(delta("pgmigrate_success") > 0 && delta("pswpout") > 0, "{what}");
            assert!(delta("compact_stall") > 0, "{what}");
        }
    }
}

/// One of several threads that all want more memory together than there is.
fn at_random(sys: &mut dyn System, seed: u64, number: u32) -> Result<(), Failure> {
    let mut rng = Pcg64::new(u128::from(seed), u128::from(number));
    let mut below = move |n: u64| (u64::from(rng.next_u32()) * n) >> 32;
    let most = sys.machine().total_pages / 6;
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
            7 => sys.write_file(file, below(15) << 18, 1 << 18)?,
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
