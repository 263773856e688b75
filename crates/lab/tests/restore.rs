//! Restoring the model from snapshots that the shipped recordings have none like.

use highorder_kernelfs::PageFlags;
use highorder_lab::{Kernel, Recording, machine};
use highorder_mm::frame::State;
use highorder_mm::types::{MAX_PAGE_ORDER, Order, Pfn};
use highorder_snapshot::Snapshot;
use std::path::Path;

fn snapshot() -> Snapshot {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = folder.join("../../tests/data/recordings/612-rec-churn");
    Recording::read(folder).expect("a shipped recording").before
}

#[test]
fn a_gigantic_page_lies_in_blocks_of_the_largest_order() {
    let mut snapshot = snapshot();
    let (first, nr_frames) = (0x4000, 4 << MAX_PAGE_ORDER);
    let is_there = |pfn: Pfn| (first..first + nr_frames).contains(&pfn.0);
    for zone in &mut snapshot.zones {
        zone.free.retain(|block| !is_there(block.pfn));
        zone.pcp.iter_mut().for_each(|pcp| pcp.blocks.retain(|block| !is_there(block.pfn)));
    }
    for (at, flags) in
        snapshot.kpageflags[first as usize..][..nr_frames as usize].iter_mut().enumerate()
    {
        let part = if at == 0 { PageFlags::COMPOUND_HEAD } else { PageFlags::COMPOUND_TAIL };
        *flags = part.0 | PageFlags::HUGE.0;
    }
    let kernel = Kernel::load("linux-6.12").expect("a built-in kernel");
    let memory = machine::restore(&snapshot, &kernel, &[0, 0]).expect("there is room");
    for block in (first..first + nr_frames).step_by(1 << MAX_PAGE_ORDER) {
        assert_eq!(memory.frames().state(Pfn(block)), State::Allocated, "{block:#x}");
        assert_eq!(memory.frames().order(Pfn(block)), Order(MAX_PAGE_ORDER), "{block:#x}");
    }
    assert_eq!(memory.validate(), Ok(()));
}

#[test]
fn lists_whose_bounds_cross_serve_as_the_kernel_lets_them() {
    let mut snapshot = snapshot();
    // A min_free_kbytes of most of memory: the low mark's share exceeds an eighth of the zone.
    for zone in &mut snapshot.zones {
        zone.watermark = [zone.managed_pages / 2; 4];
        zone.pcp.iter_mut().for_each(|pcp| pcp.fields.clear());
    }
    let kernel = Kernel::load("linux-6.12").expect("a built-in kernel");
    let mut memory = machine::restore(&snapshot, &kernel, &[0, 0]).expect("there is room");
    let (zone, pcp) = (0..memory.zones.len())
        .map(|zone| (zone, &memory.zones[zone].pcp[0]))
        .find(|(_, pcp)| pcp.high_min > pcp.high_max && pcp.count > 0)
        .expect("bounds that cross");
    let high_max = pcp.high_max;
    memory.set_pcp_high(highorder_mm::zone::ZoneId(zone as u8), 0, u32::MAX);
    assert_eq!(memory.zones[zone].pcp[0].high, high_max);
}
