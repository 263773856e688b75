//! How much may be dirty, worked by hand.

use crate::scene::{all_free, linux_3_3, linux_6_12, single_zone};
use highorder_mm::alloc::Request;
use highorder_mm::gfp::Gfp;
use highorder_mm::policy::Policy;
use highorder_mm::types::{NodeId, Order, ZoneKind};
use highorder_mm::watermark::Mark;
use highorder_mm::zone::ZoneId;
use highorder_mm::{CpuId, Machine, Memory, NodeSpec, ZoneSpec};

/// One node with 8000 pages that may be dirty: of 8192 those above the high mark, which is 192 where min is 128.
fn all_free_above_192(policy: &Policy) -> Memory {
    let mut memory = all_free(&single_zone(8192), policy);
    memory.setup_watermarks(Some(512), false);
    memory.drain_all_pages(None);
    memory
}

#[test]
fn limits_are_shares_of_what_is_free_or_bytes() {
    let mut memory = all_free_above_192(&linux_3_3());
    assert_eq!(memory.zones[0].kept_from_files(), 192);
    // One more than 8000, so that it is never none: 800.1 and 1600.2.
    assert_eq!(memory.dirty_limits(), (800, 1600));
    assert_eq!(memory.dirty_limit_at_boot(), 1600);
    // Two pages and a byte are three.
    memory.policy.dirty.background_bytes = 8193;
    assert_eq!(memory.dirty_limits(), (3, 1600));
    memory.policy.dirty.bytes = 4096;
    // Flushers work at half of what lets writers wait, at the latest.
    assert_eq!(memory.dirty_limits(), (0, 1));
    memory.policy.dirty.bytes = 40960;
    memory.policy.dirty.background_bytes = 40960;
    assert_eq!(memory.dirty_limits(), (5, 10));
}

/// The zone that a page comes from where a task on node 0 asks for it at this mark. It is given back.
pub(crate) fn zone_of_page(memory: &mut Memory, gfp: Gfp, mark: Mark) -> ZoneId {
    let request =
        Request { order: Order(0), gfp, cpu: CpuId(0), node: NodeId(0), past_lists: false };
    let flags = memory.fast_path_flags(request);
    let pfn = memory.get_page_from_freelist(request, Some(mark), flags).unwrap();
    memory.free(pfn, Order(0), CpuId(0));
    memory.drain_all_pages(None);
    memory.zone_of(pfn)
}

/// The node that a page to be written comes from on the fast path.
fn node_of_written_page(memory: &mut Memory) -> NodeId {
    let zone = zone_of_page(memory, Gfp::HIGHUSER_MOVABLE | Gfp::WRITE, Mark::Low);
    memory.zones[zone.index()].node
}

#[test]
fn a_page_to_be_written_is_not_taken_from_a_node_of_which_a_fifth_is_dirty() {
    let zone = |kind, start: u32| ZoneSpec {
        kind,
        start: highorder_mm::Pfn(start),
        spanned_pages: 4096,
        present_pages: 4096,
        managed_pages: 4096,
    };
    let node = |distances: [u32; 2], zones| NodeSpec { distances: distances.to_vec(), zones };
    let machine = Machine {
        nr_frames: 16384,
        nodes: vec![
            node([10, 20], vec![zone(ZoneKind::Dma32, 0), zone(ZoneKind::Normal, 4096)]),
            node([20, 10], vec![zone(ZoneKind::Normal, 8192), zone(ZoneKind::Movable, 12288)]),
        ],
        cpu_nodes: vec![NodeId(0), NodeId(1)],
    };
    let mut memory = all_free(&machine, &linux_6_12());
    memory.setup_watermarks(Some(512), false);
    memory.drain_all_pages(None);
    let own = [0, 1].map(|zone: usize| memory.zones[zone].kept_from_files());
    let fifth = (8192 - own[0] - own[1]) / 5;
    // Node 0's lists are the first; which of its zones the pages lie in does not matter.
    memory.lru.lruvecs[0].stats.nr_dirty = 1000;
    memory.lru.lruvecs[0].stats.nr_writeback = fifth - 1000;
    assert_eq!(node_of_written_page(&mut memory), NodeId(0));
    memory.lru.lruvecs[0].stats.nr_writeback += 1;
    assert_eq!(node_of_written_page(&mut memory), NodeId(1));
    // In bytes, it has its share of them: half, as the nodes are alike but for what they keep.
    memory.policy.dirty.bytes = 1 << 20;
    memory.lru.lruvecs[0].stats.nr_writeback = 0;
    memory.lru.lruvecs[0].stats.nr_dirty = 120;
    assert_eq!(node_of_written_page(&mut memory), NodeId(0));
    memory.lru.lruvecs[0].stats.nr_dirty = 136;
    assert_eq!(node_of_written_page(&mut memory), NodeId(1));
}
