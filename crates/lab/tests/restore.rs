//! Restoring the model from snapshots that the shipped recordings have none like.

use highorder_kernelfs::{PageFlags, Pagetypeinfo, TextFile};
use highorder_kernels::KernelFile;
use highorder_lab::{Recording, machine};
use highorder_mm::CpuId;
use highorder_mm::frame::State;
use highorder_mm::types::{MAX_PAGE_ORDER, Migratetype, NodeId, Order, Pfn};
use highorder_snapshot::live::{Options, Way};
use highorder_snapshot::{FreeBlock, Snapshot};
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
        *flags = part.bits() | PageFlags::HUGE.bits();
    }
    let kernel = KernelFile::load("linux-6.12").expect("a built-in kernel");
    let memory =
        machine::restore(&snapshot, &kernel, &[NodeId(0), NodeId(0)]).expect("there is room");
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
    let kernel = KernelFile::load("linux-6.12").expect("a built-in kernel");
    let mut memory =
        machine::restore(&snapshot, &kernel, &[NodeId(0), NodeId(0)]).expect("there is room");
    let (zone, pcp) = (0..memory.zones.len())
        .map(|zone| (zone, &memory.zones[zone].pcp[0]))
        .find(|(_, pcp)| pcp.high_min > pcp.high_max && pcp.count > 0)
        .expect("bounds that cross");
    let high_max = pcp.high_max;
    memory.set_pcp_high(highorder_mm::zone::ZoneId(zone as u8), CpuId(0), u32::MAX);
    assert_eq!(memory.zones[zone].pcp[0].high, high_max);
}

#[test]
fn counts_alone_give_each_type_its_pageblocks_and_its_free_blocks() {
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/cases/612-small-churn");
    let proc = case.join("before");
    let text = std::fs::read(proc.join("pagetypeinfo")).unwrap();
    let table = Pagetypeinfo::parse("pagetypeinfo", &text).unwrap();
    let options = Options { way: Way::Counts, proc, sys: case.join("sys"), ..Options::default() };
    let snapshot = highorder_snapshot::live::take(options).unwrap();
    let placed = snapshot.placed();
    let mut nr_rarer = 0;
    for zone in &placed.zones {
        for migratetype in [Migratetype::Unmovable, Migratetype::Movable, Migratetype::Reclaimable]
        {
            let name = migratetype.name();
            let row = table.free_row(zone.node, zone.kind.name(), name).unwrap();
            for (order, said) in row.counts.iter().enumerate() {
                let is_it = |b: &&FreeBlock| {
                    b.migratetype == migratetype && usize::from(b.order.0) == order
                };
                let free: Vec<_> = zone.free.iter().filter(is_it).collect();
                assert_eq!(free.len() as u64, said.blocks, "{name} {order}");
                for block in free {
                    let of = placed.pageblocks.iter().rfind(|b| b.pfn <= block.pfn).unwrap();
                    assert_eq!(of.migratetype, migratetype, "{:?}", block.pfn);
                }
            }
        }
        let rarer = |b: &&highorder_snapshot::PageblockState| {
            let is_here = zone.spans(b.pfn, 1);
            is_here && b.migratetype != Migratetype::Movable
        };
        nr_rarer += placed.pageblocks.iter().filter(rarer).count() as u64;
    }
    let said: u64 = table
        .nodes
        .iter()
        .flat_map(|node| &node.blocks)
        .map(|row| row.counts.iter().sum::<u64>() - row.counts[1])
        .sum();
    assert!(said > 5, "{said}");
    // A zone that begins within a pageblock shares that one.
    assert!(nr_rarer + 2 >= said && nr_rarer <= said, "{nr_rarer} of {said}");
}
