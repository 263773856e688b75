//! The walk over zones: which zone serves a request, and from where in it.
//!
//! Models: `get_page_from_freelist`, `rmqueue`, `rmqueue_buddy`, `alloc_flags_nofragment`,
//! mm/page_alloc.c, v6.12.
//! Departs: no cpusets, no node reclaim here, no memory of zones found full (`zlc_setup`, before 4.4). Visible as:
//! nothing known.
//! Models: the fair shares of a node's zones (`ALLOC_FAIR`, `reset_alloc_batches`), mm/page_alloc.c, v4.4.

use crate::fallback::SearchMode;
use crate::frame::State;
use crate::gfp::{AllocFlags, Gfp};
use crate::memory::Memory;
use crate::policy::{FragmentAvoidance, PcpHigh, Urgency};
use crate::types::{CpuId, Migratetype, NodeId, Order, Pfn, ZoneKind};
use crate::vmstat::Vm;
use crate::watermark::Mark;
use crate::zone::{Zone, ZoneId};
use std_alloc::vec::Vec;

/// A request for one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Size.
    pub order: Order,
    /// Flags.
    pub gfp: Gfp,
    /// The CPU that asks.
    pub cpu: CpuId,
    /// The node to begin with: the CPU's own, unless a memory policy says otherwise.
    pub node: NodeId,
    /// The CPU's lists are locked, because an interrupt came while they were in use: the free lists
    /// serve.
    pub past_lists: bool,
}

impl Memory {
    /// Walks the zonelist once and takes a block from the first zone that stays above `mark`; `None` for
    /// the mark means any zone will do.
    ///
    /// Returns `None` if no zone has one to give.
    #[inline]
    pub fn get_page_from_freelist(
        &mut self,
        request: Request,
        mark: Option<Mark>,
        flags: AllocFlags,
    ) -> Option<Pfn> {
        let pfn = self.walk_zonelist(request, mark, flags)?;
        self.count_node(self.preferred_zone(request.node, request.gfp), pfn, request.cpu);
        Some(pfn)
    }

    /// As [`Self::get_page_from_freelist`], but what was found is still to be counted.
    #[inline]
    fn walk_zonelist(
        &mut self,
        request: Request,
        mark: Option<Mark>,
        flags: AllocFlags,
    ) -> Option<Pfn> {
        let highest_zoneidx = request.gfp.highest_zone();
        let zonelist = self.zonelist(request.node, request.gfp);
        let mut flags = flags;
        let preferred = if flags.intersects(AllocFlags::NOFRAGMENT | AllocFlags::FAIR) {
            self.preferred_zone(request.node, request.gfp)
        } else {
            None
        };
        let home = preferred.map(|id| self.zones[id.index()].node);
        loop {
            let mut has_skipped_depleted = false;
            let mut position = zonelist.start;
            while position < zonelist.end {
                let id = self.zonelist_entry(position);
                position += 1;
                let zone = &self.zones[id.index()];
                if zone.kind > highest_zoneidx {
                    continue;
                }
                if flags.intersects(AllocFlags::FAIR) {
                    if Some(zone.node) != home {
                        break;
                    }
                    if zone.flags.fair_depleted {
                        has_skipped_depleted = true;
                        continue;
                    }
                }
                if mark == Some(Mark::Low)
                    && request.gfp.contains(Gfp::WRITE)
                    && !self.dirty_ok(self.lru.of_zone(id))
                {
                    continue;
                }
                let zone = &self.zones[id.index()];
                if flags.intersects(AllocFlags::NOFRAGMENT) && Some(zone.node) != home {
                    // Another node is worse than a mixed pageblock: begin again without the wish; or not
                    // worse, where the walk goes on from here.
                    flags -= AllocFlags::NOFRAGMENT;
                    if self.policy.zone.fragment_avoidance == FragmentAvoidance::LowerZone {
                        position = zonelist.start;
                        continue;
                    }
                }
                if let Some(pfn) = self.take_from_zone(id, request, mark, flags) {
                    return Some(pfn);
                }
            }
            if flags.intersects(AllocFlags::FAIR) {
                // Every share is used up, or there is room on other nodes alone: better one of these than
                // to reclaim.
                flags -= AllocFlags::FAIR;
                if has_skipped_depleted && let Some(preferred) = preferred {
                    self.reset_alloc_batches(preferred);
                }
                if has_skipped_depleted || self.machine.nr_nodes() > 1 {
                    continue;
                }
            }
            // Where the walk goes on from its end there is nothing left of it.
            if !flags.intersects(AllocFlags::NOFRAGMENT)
                || self.policy.zone.fragment_avoidance != FragmentAvoidance::LowerZone
            {
                return None;
            }
            flags -= AllocFlags::NOFRAGMENT;
        }
    }

    /// Takes a block from a zone that stays above `mark`, as [`Self::get_page_from_freelist`] does.
    #[inline]
    pub fn get_page_from_zone(
        &mut self,
        id: ZoneId,
        request: Request,
        mark: Option<Mark>,
        flags: AllocFlags,
    ) -> Option<Pfn> {
        let pfn = self.take_from_zone(id, request, mark, flags)?;
        self.count_node(self.preferred_zone(request.node, request.gfp), pfn, request.cpu);
        Some(pfn)
    }

    /// As [`Self::get_page_from_zone`], but what was found is still to be counted.
    #[inline]
    fn take_from_zone(
        &mut self,
        id: ZoneId,
        request: Request,
        mark: Option<Mark>,
        flags: AllocFlags,
    ) -> Option<Pfn> {
        let highest_zoneidx = request.gfp.highest_zone();
        let is_above_high = self.probe_high(id, request, mark, highest_zoneidx, flags);
        if let Some(mark) = mark
            && !(is_above_high && mark <= Mark::High)
        {
            let pages = self.zones[id.index()].watermarks.pages(mark);
            if !self.watermark_ok(id, request.order, pages, highest_zoneidx, flags)
                && !self.atomic_below_boost(id, request, mark, highest_zoneidx, flags)
            {
                return None;
            }
        }
        let pfn = self.rmqueue(id, request, flags)?;
        if flags.intersects(AllocFlags::HIGHATOMIC) {
            self.reserve_highatomic(id, pfn);
        }
        self.init_page(request.order, request.gfp);
        Some(pfn)
    }

    /// Counts from where a block came: from the preferred zone's node or not, and from the CPU's own node or not. A block
    /// counts once, whatever its order.
    ///
    /// Models: `zone_statistics`, mm/page_alloc.c, v6.12.
    /// **Departs:** what khugepaged takes on another node before 4.10 (`__GFP_OTHER_NODE`) is counted by its CPU's node,
    /// as all else. Visible as: it is other where these kernels say local.
    /// **Departs:** blocks of interleaved mappings are not counted apart. Visible as: there is no such line.
    #[doc(alias = "zone_statistics")]
    #[inline]
    fn count_node(&mut self, preferred: Option<ZoneId>, pfn: Pfn, cpu: CpuId) {
        let node = self.node_of(pfn);
        if preferred.is_some_and(|id| self.zones[id.index()].node == node) {
            self.vm.add(Vm::NumaHit, 1);
        } else {
            self.vm.add(Vm::NumaMiss, 1);
            self.vm.add(Vm::NumaForeign, 1);
        }
        let is_local = node == self.machine.cpu_nodes[cpu.index()];
        self.vm.add(if is_local { Vm::NumaLocal } else { Vm::NumaOther }, 1);
    }

    /// Whether the kernel fills what such a request gets with zeros, though it does not ask for them.
    #[must_use]
    #[inline]
    pub const fn inits(&self, gfp: Gfp) -> bool {
        self.policy.freelist.init_on_alloc && !gfp.contains(Gfp::ZERO)
    }

    /// Fills what is handed out with zeros, where the kernel always does. Who asks for zeros counts them itself.
    ///
    /// Models: `post_alloc_hook`, `want_init_on_alloc`, mm/page_alloc.c, v6.12.
    #[doc(alias = "want_init_on_alloc")]
    #[doc(alias = "post_alloc_hook")]
    #[inline]
    pub(crate) fn init_page(&mut self, order: Order, gfp: Gfp) {
        if !self.inits(gfp) {
            return;
        }
        if order == self.policy.freelist.pageblock_order {
            self.work.huge_pages_cleared += 1;
        } else {
            self.work.pages_cleared += u64::from(order.pages());
        }
    }

    /// Renews the shares of a node's zones up to this one: as many pages as lie between the low and the
    /// high mark, which is in proportion to the zone's size.
    fn reset_alloc_batches(&mut self, preferred: ZoneId) {
        let Zone { node, kind, .. } = self.zones[preferred.index()];
        for zone in self.zones.iter_mut().filter(|zone| zone.node == node && zone.kind <= kind) {
            zone.alloc_batch = zone.fair_share();
            zone.flags.fair_depleted = false;
        }
    }

    /// As [`Self::get_page_from_freelist`], from the nodes allowed alone: a bit for each, all bits set if
    /// any will do (`nodemask`).
    #[inline]
    pub fn get_page_from_nodes(
        &mut self,
        request: Request,
        allowed: u64,
        mark: Option<Mark>,
        flags: AllocFlags,
    ) -> Option<Pfn> {
        if allowed == u64::MAX {
            return self.get_page_from_freelist(request, mark, flags);
        }
        let nodes = self.nodes_by_distance(request.node, allowed).into_iter();
        let mut each =
            nodes.map(|node| Request { node, gfp: request.gfp | Gfp::THISNODE, ..request });
        let pfn = each.clone().find_map(|request| self.walk_zonelist(request, mark, flags))?;
        let preferred = each.find_map(|of| self.preferred_zone(of.node, of.gfp));
        self.count_node(preferred, pfn, request.cpu);
        Some(pfn)
    }

    /// The nodes of a mask, nearest first.
    #[must_use]
    pub fn nodes_by_distance(&self, from: NodeId, allowed: u64) -> Vec<NodeId> {
        let distances = &self.machine.nodes[from.index()].distances;
        let every = NodeId::all(self.machine.nr_nodes());
        let mut nodes: Vec<NodeId> = every.filter(|n| allowed & n.bit() != 0).collect();
        nodes.sort_by_key(|&n| distances.get(n.index()).copied().unwrap_or(20));
        nodes
    }

    /// The zone that the walk for `request` would stop at: the first of its zonelist above `mark`.
    #[must_use]
    pub fn first_zone_above(&self, request: Request, mark: Mark) -> Option<ZoneId> {
        let highest_zoneidx = request.gfp.highest_zone();
        let flags = self.fast_path_flags(request);
        self.zonelist(request.node, request.gfp).map(|at| self.zonelist_entry(at)).find(|id| {
            let zone = &self.zones[id.index()];
            zone.kind <= highest_zoneidx
                && self.watermark_ok(
                    *id,
                    request.order,
                    zone.watermarks.pages(mark),
                    highest_zoneidx,
                    flags,
                )
        })
    }

    /// Allocates as the fast path does and, if that fails, at the min mark; then without marks, as a
    /// request whose reclaim has made room somewhere else would find it.
    ///
    /// There is no time here, so nobody reclaims: the caller who wants the slow path's flows has them
    /// from the layer above.
    pub fn alloc_without_reclaim(&mut self, request: Request) -> Option<Pfn> {
        let fast = self.fast_path_flags(request);
        self.get_page_from_freelist(request, Some(Mark::Low), fast)
            .or_else(|| self.alloc_after_reclaim(request))
    }

    /// As [`Self::alloc_without_reclaim`], for a request that is past the fast path: at the min mark
    /// first.
    pub fn alloc_after_reclaim(&mut self, request: Request) -> Option<Pfn> {
        let slow = AllocFlags::slow_path(request.gfp, request.order);
        self.get_page_from_freelist(request, Some(Mark::Min), slow).or_else(|| {
            let flags = AllocFlags::fast_path(request.gfp) | AllocFlags::NO_WATERMARKS;
            self.get_page_from_freelist(request, None, flags)
        })
    }

    /// Flags of the fast path: with the wish to avoid mixing where the preferred zone is Normal and the
    /// node has a lower zone to fall to.
    #[doc(alias = "alloc_flags_nofragment")]
    #[inline]
    #[must_use]
    pub fn fast_path_flags(&self, request: Request) -> AllocFlags {
        let flags = AllocFlags::fast_path(request.gfp);
        let flags = if self.policy.zone.fair_batches { flags | AllocFlags::FAIR } else { flags };
        if self.prefers_lower_zone(request) { flags | AllocFlags::NOFRAGMENT } else { flags }
    }

    /// Whether a request would rather have a page of the zone below than mix pageblocks of Normal.
    #[inline]
    fn prefers_lower_zone(&self, request: Request) -> bool {
        let avoidance = self.policy.zone.fragment_avoidance;
        let needs_kswapd = avoidance == FragmentAvoidance::LowerZoneThenOnIfKswapd;
        if avoidance == FragmentAvoidance::Off
            || needs_kswapd && !request.gfp.contains(Gfp::KSWAPD_RECLAIM)
        {
            return false;
        }
        // As merged it asks whether there is a lower zone only where there are several nodes.
        let trusts_one_node = avoidance == FragmentAvoidance::LowerZone;
        let Some(preferred) = self.preferred_zone(request.node, request.gfp) else {
            return false;
        };
        let zone = &self.zones[preferred.index()];
        let is_lower = |z: &Zone| z.node == zone.node && z.kind == ZoneKind::Dma32;
        let has_dma32 = || self.zones.iter().any(|z| is_lower(z) && z.present_pages > 0);
        zone.kind == ZoneKind::Normal
            && (trusts_one_node && self.machine.nr_nodes() == 1 || has_dma32())
    }

    /// Looks whether the zone is below its high mark for this request, and notes it if so (6.7). Once noted
    /// it is not looked at again until frees have raised it.
    ///
    /// Returns whether it was found to be above, so that no lower mark needs a look.
    #[inline]
    pub(crate) fn probe_high(
        &mut self,
        id: ZoneId,
        request: Request,
        mark: Option<Mark>,
        highest_zoneidx: ZoneKind,
        flags: AllocFlags,
    ) -> bool {
        if self.policy.pcp.high != PcpHigh::AutoTuned || self.zones[id.index()].flags.below_high {
            return false;
        }
        let high = self.zones[id.index()].watermarks.pages(Mark::High);
        let is_above = self.watermark_ok(id, request.order, high, highest_zoneidx, flags)
            || mark.is_some_and(|mark| {
                self.atomic_below_boost(id, request, mark, highest_zoneidx, flags)
            });
        self.zones[id.index()].flags.below_high = !is_above;
        is_above
    }

    /// Whether an urgent order-0 request that fails at the boosted min mark passes without the boost.
    fn atomic_below_boost(
        &self,
        id: ZoneId,
        request: Request,
        mark: Mark,
        highest_zoneidx: ZoneKind,
        flags: AllocFlags,
    ) -> bool {
        let watermarks = &self.zones[id.index()].watermarks;
        self.policy.watermark.boost_spares_urgent
            && request.order.0 == 0
            && mark == Mark::Min
            && watermarks.boost > 0
            && flags.intersects(AllocFlags::MIN_RESERVE)
            && self.watermark_ok(
                id,
                request.order,
                watermarks.raw(Mark::Min),
                highest_zoneidx,
                flags,
            )
    }

    /// Takes a block from one zone: from the CPU's lists if the order has any, else from the free lists.
    #[inline]
    pub fn rmqueue(&mut self, id: ZoneId, request: Request, flags: AllocFlags) -> Option<Pfn> {
        let migratetype = self.request_type(request.gfp);
        let is_cold = self.policy.pcp.cold && request.gfp.contains(Gfp::COLD);
        let flags = if is_cold { flags | AllocFlags::COLD } else { flags };
        let pfn = if self.has_pcp_list(request.order) && !request.past_lists {
            self.rmqueue_pcp(id, request.cpu, request.order, migratetype, flags)
        } else {
            None
        };
        let pfn = pfn.or_else(|| self.rmqueue_buddy(id, request.order, migratetype, flags))?;
        self.frames.set_movable(pfn, request.gfp.migratetype() == Migratetype::Movable);
        if self.policy.zone.fair_batches {
            let zone = &mut self.zones[id.index()];
            zone.alloc_batch -= i64::from(request.order.pages());
            zone.flags.fair_depleted |= zone.alloc_batch <= 0;
        }
        Some(pfn)
    }

    /// The mobility of what is asked for; all one where pageblocks have no types.
    #[inline]
    #[must_use]
    pub fn request_type(&self, gfp: Gfp) -> Migratetype {
        if self.policy.freelist.mobility_grouping {
            gfp.migratetype()
        } else {
            Migratetype::Unmovable
        }
    }

    /// Takes a block from the zone's free lists, the highatomic reserve included where the request may.
    pub fn rmqueue_buddy(
        &mut self,
        id: ZoneId,
        order: Order,
        migratetype: Migratetype,
        flags: AllocFlags,
    ) -> Option<Pfn> {
        let reserve =
            |memory: &mut Self| memory.rmqueue_smallest(id, order, Migratetype::HighAtomic);
        let first = if flags.intersects(AllocFlags::HIGHATOMIC) { reserve(self) } else { None };
        let pfn = first
            .or_else(|| {
                self.rmqueue_buddy_block(id, order, migratetype, flags, &mut SearchMode::Normal)
            })
            .or_else(|| {
                let last = AllocFlags::OOM | AllocFlags::NON_BLOCK;
                let may = self.policy.watermark.urgency == Urgency::HighThenNonBlocking;
                if may && flags.intersects(last) { reserve(self) } else { None }
            })?;
        debug_assert_eq!(self.frames.state(pfn), State::Allocated);
        Some(pfn)
    }
}
