//! A machine on which a system has run: what is in its unmovable pageblocks from the start.

use highorder_kernels::KernelFile;
use highorder_kernels::machine;
use highorder_mm::kernel_use::KernelUse;
use highorder_mm::{Migratetype, Order, Pfn};
use highorder_sim::Ns;
use highorder_sim::kernel::{self, Knobs};

const KERNELS: [&str; 4] = ["linux-3.3", "linux-4.4", "linux-4.14", "linux-6.12"];

#[test]
fn pageblocks_in_use_have_the_holes_that_the_machine_file_says() {
    let machine = machine::load("one-node-8g-in-use").unwrap().scaled(1, 4).unwrap();
    let in_use = machine.in_use.unwrap();
    // 1024 pageblocks, of which 40 in 1000.
    let blocks: u32 = 40;
    for name in KERNELS {
        let kernel = KernelFile::load(name).unwrap();
        let knobs = Knobs::at_boot(&kernel.policy, &kernel.flows);
        let mut sim = kernel::boot(&machine, kernel.policy, kernel.flows, knobs);
        let memory = &mut sim.world_mut().memory;
        memory.validate().unwrap();
        assert_eq!(
            memory.take_work(),
            highorder_mm::memory::Work::default(),
            "nobody waited for it"
        );
        for order in 0..9 {
            let found: u32 = memory
                .zones
                .iter()
                .map(|zone| zone.free_area.list(Order(order), Migratetype::Unmovable).len())
                .sum();
            let wanted = blocks * in_use.holes_per_1000_blocks[usize::from(order)] / 1000;
            assert_eq!(found, wanted, "{name} {order}");
        }
        let held = (0..memory.machine.nr_frames)
            .filter(|&pfn| memory.kernel_use(Pfn(pfn)) == Some(KernelUse::Unknown))
            .count() as u32;
        let holes = in_use.holes_per_1000_blocks.iter().zip(0..);
        let free: u32 = holes.map(|(&holes, order)| (blocks * holes / 1000) << order).sum();
        assert_eq!(held, blocks * 512 - free, "{name}");
        assert_eq!(sim.now(), Ns::ZERO);
    }
}

#[test]
fn a_machine_boots_the_same_every_time_and_without_the_table_nothing_is_held() {
    let kernel = KernelFile::load("linux-6.1").unwrap();
    let free = |machine: &str| {
        let machine = machine::load(machine).unwrap().scaled(1, 16).unwrap();
        let kernel = kernel.clone();
        let knobs = Knobs::at_boot(&kernel.policy, &kernel.flows);
        let sim = kernel::boot(&machine, kernel.policy, kernel.flows, knobs);
        let memory = &sim.world().memory;
        let lists = memory.zones.iter().map(|zone| format!("{:?}", zone.free_area));
        (lists.collect::<String>(), memory.zones.iter().map(|zone| zone.nr_free_pages).sum::<u64>())
    };
    let in_use = free("one-node-8g-in-use");
    assert_eq!(in_use, free("one-node-8g-in-use"));
    assert!(in_use.1 < free("one-node-8g").1);
}
