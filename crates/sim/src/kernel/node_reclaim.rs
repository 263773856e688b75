//! Reclaim of the local node before a request goes to another one (`vm.zone_reclaim_mode`).
//!
//! Models: `node_reclaim`, `__node_reclaim`, `node_pagecache_reclaimable`, mm/vmscan.c, and its call in
//! `get_page_from_freelist`, mm/page_alloc.c, v4.20 and v5.4; `zone_reclaim`, v4.4.
//! Departs: a node without CPUs is not reclaimed for others; neither is the CPU's node for a request that
//! begins at another one. Visible as: under a memory policy that prefers a node, the CPU's own keeps its
//! page cache.
//! Departs: reclaimable slab alone does not open the door, behind which the kernel would find nothing to do;
//! pages of the swap cache do not count as files'. Visible as: fewer `zone_reclaim_failed`.

use super::shrink::{Scan, shrink_lruvec};
use super::slowpath::Want;
use super::trace::{self, TraceEvent};
use super::{Kernel, KernelCx};
use highorder_mm::Pfn;
use highorder_mm::alloc::Request;
use highorder_mm::gfp::{AllocFlags, Gfp};
use highorder_mm::lru::{LruList, LruvecId};
use highorder_mm::reclaim::{Reclaimer, SWAP_CLUSTER_MAX};
use highorder_mm::vmstat::Vm;
use highorder_mm::watermark::Mark;
use highorder_mm::zone::ZoneId;

/// Bits of `vm.zone_reclaim_mode` of which any switches it on (`RECLAIM_ZONE`, `RECLAIM_WRITE`,
/// `RECLAIM_UNMAP`).
const ON: u32 = 1 | WRITE | UNMAP;
/// Dirty pages may be written.
const WRITE: u32 = 2;
/// Mapped pages may be unmapped, and so swapped out.
const UNMAP: u32 = 4;
/// Pressure that it begins with (`NODE_RECLAIM_PRIORITY`, mm/vmscan.c).
const PRIORITY: u8 = 4;
/// Nodes further apart than this are not reclaimed for each other (`RECLAIM_DISTANCE`,
/// include/linux/topology.h).
pub(crate) const RECLAIM_DISTANCE: u32 = 30;

impl Kernel {
    /// Whether nodes are reclaimed before others are used.
    pub(crate) const fn reclaims_nodes(&self) -> bool {
        self.knobs.zone_reclaim_mode & ON != 0
    }

    /// Pages of files that it may take from some lists.
    #[doc(alias = "node_pagecache_reclaimable")]
    fn reclaimable_cache(&self, lruvec: LruvecId) -> u64 {
        let mode = self.knobs.zone_reclaim_mode;
        let lists = &self.memory.lru.lruvecs[lruvec];
        let files = lists.size(LruList::InactiveFile) + lists.size(LruList::ActiveFile);
        let stats = &lists.stats;
        let mapped = if mode & UNMAP == 0 { stats.nr_file_mapped } else { 0 };
        let dirty = if mode & WRITE == 0 { stats.nr_dirty } else { 0 };
        files.saturating_sub(mapped).saturating_sub(dirty)
    }
}

/// Walks the zones of the node where the request begins alone, reclaiming those that are below the mark. `None`
/// if there is no page, and others are next. Suspends.
#[doc(alias = "get_page_from_freelist")]
pub(crate) fn get_local_page(
    cx: &mut KernelCx<'_>,
    want: Want,
    mark: Mark,
    flags: AllocFlags,
) -> Option<Pfn> {
    let Request { node, gfp, order, .. } = want.request;
    let begins_here = node == cx.node() && want.allowed & node.bit() != 0;
    let kernel = cx.world();
    let may = kernel.reclaims_nodes() && gfp.contains(Gfp::DIRECT_RECLAIM);
    if !may || !begins_here {
        return None;
    }
    let (highest_zoneidx, gfp) = (gfp.highest_zone(), gfp | Gfp::THISNODE);
    let get = |cx: &mut KernelCx<'_>| {
        let cpu = cx.cpu();
        let request = Request { cpu, gfp, ..want.request };
        cx.world().memory.get_page_from_freelist(request, Some(mark), flags)
    };
    if let Some(pfn) = get(cx) {
        return Some(pfn);
    }
    for id in cx.world().memory.zones_for(node, gfp) {
        let is_above = |kernel: &Kernel| {
            let pages = kernel.memory.zones[id.index()].watermarks.pages(mark);
            kernel.memory.watermark_ok(id, order, pages, highest_zoneidx, flags)
        };
        if !is_above(cx.world())
            && node_reclaim(cx, id, want.request)
            && is_above(cx.world())
            && let Some(pfn) = get(cx)
        {
            return Some(pfn);
        }
    }
    None
}

/// Reclaims the lists that a zone belongs to, if they hold enough that may be taken and nobody else is at it.
/// Whether it did. Suspends.
#[doc(alias = "zone_reclaim")]
#[doc(alias = "__node_reclaim")]
fn node_reclaim(cx: &mut KernelCx<'_>, id: ZoneId, request: Request) -> bool {
    let kernel = cx.world();
    let mode = kernel.knobs.zone_reclaim_mode;
    let lruvec = kernel.memory.lru.of_zone(id);
    let zones = kernel.memory.zones.iter().enumerate();
    let managed: u64 = zones
        .filter(|(zone, _)| kernel.memory.lru.of_zone(ZoneId(*zone as u8)) == lruvec)
        .map(|(_, zone)| zone.managed_pages)
        .sum();
    let min_unmapped = managed * u64::from(kernel.knobs.min_unmapped_ratio) / 100;
    let is_full = kernel.reclaimable_cache(lruvec) <= min_unmapped;
    if is_full || std::mem::replace(&mut kernel.lru_flags[lruvec.index()].node_reclaim, true) {
        return false;
    }
    let node = kernel.memory.zones[id.index()].node;
    trace::note(cx, TraceEvent::NodeReclaimBegin { node, order: request.order, gfp: request.gfp });
    let kernel = cx.world();
    let wanted = u64::from(request.order.pages());
    let highest_zoneidx = request.gfp.highest_zone();
    let mut scan =
        Scan::new(kernel, Reclaimer::Direct, request.order, highest_zoneidx, request.gfp);
    scan.control.nr_to_reclaim = wanted.max(SWAP_CLUSTER_MAX);
    scan.control.may_writepage = mode & WRITE != 0;
    scan.control.may_unmap = mode & UNMAP != 0;
    for priority in (0..=PRIORITY).rev() {
        scan.control.priority = priority;
        shrink_lruvec(cx, lruvec, &mut scan);
        if scan.nr_reclaimed >= wanted {
            break;
        }
    }
    trace::note(cx, TraceEvent::NodeReclaimEnd { nr_reclaimed: scan.nr_reclaimed });
    let kernel = cx.world();
    kernel.lru_flags[lruvec.index()].node_reclaim = false;
    if scan.nr_reclaimed < wanted {
        kernel.memory.vm.add(Vm::ZoneReclaimFailed, 1);
    }
    true
}
