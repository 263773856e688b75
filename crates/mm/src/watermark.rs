//! Watermarks: how much a zone keeps free, and for whom.
//!
//! Models: `__setup_per_zone_wmarks`, `calculate_min_free_kbytes`, `setup_per_zone_lowmem_reserve`,
//! `boost_watermark`, `__zone_watermark_ok`, mm/page_alloc.c, v6.12;
//! `set_recommended_min_free_kbytes`, mm/khugepaged.c, v6.12; `__zone_watermark_ok`, mm/page_alloc.c, v4.4
//! and v3.3.
//! Departs: free pages are counted exactly, without the per-CPU deltas of a real machine's counters
//! (`vm_stat_diff`), which lag by up to the zone's stat threshold a CPU, at most 125 pages. Visible as: a
//! check near its mark may fall that much earlier or later than on the machine.
//! Departs: kernels from 4.7 to 6.3 check as 6.12 does. There `__GFP_ATOMIC` cut the mark by a quarter on
//! its own, and only such requests and OOM victims counted the highatomic reserve as theirs, `__GFP_HIGH`
//! alone did not; from 4.7 to 4.20 at least, requests of order 0 passed on the reserve's pages. Visible as:
//! on those kernels a request near its mark succeeds or fails otherwise than here.
//! Departs: a boost ends when the marks are set anew. From 5.0 until 5.4 at least marks set anew under a boost
//! kept it in low and high. Visible as: on those kernels kswapd works more after `min_free_kbytes` is written.
//! Departs: a Movable zone's pages have no part in sharing `min_free_kbytes` out, as in 6.12; in 6.1 they
//! have. Visible as: lower marks in the other zones of a 6.1 with a Movable zone.

use crate::gfp::AllocFlags;
use crate::memory::Memory;
use crate::policy::{BoostLimit, HighatomicReserve, Urgency, Watermark, WatermarkCheck};
use crate::types::{Migratetype, NR_ZONE_KINDS, Order, ZoneKind};
use crate::zone::{Zone, ZoneId};

/// A zone's marks in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Watermarks {
    /// min, low, high, promo without the boost.
    pub marks: [u64; 4],
    /// Temporary boost of all of them.
    pub boost: u64,
}

/// One of a zone's marks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mark {
    /// Below: direct reclaim.
    Min = 0,
    /// Below: kswapd wakes.
    Low = 1,
    /// Above: kswapd rests.
    High = 2,
    /// Above: memory tiering may promote.
    Promo = 3,
}

impl Watermarks {
    /// The mark with the boost.
    #[inline]
    #[must_use]
    pub const fn pages(&self, mark: Mark) -> u64 {
        self.marks[mark as usize] + self.boost
    }

    /// The mark without the boost.
    #[inline]
    #[must_use]
    pub const fn raw(&self, mark: Mark) -> u64 {
        self.marks[mark as usize]
    }
}

/// `min_free_kbytes` at boot: the square root of 16 times low memory, within bounds.
#[doc(alias = "calculate_min_free_kbytes")]
#[must_use]
pub fn min_free_kbytes(lowmem_kbytes: u64, max: u64) -> u64 {
    (lowmem_kbytes * 16).isqrt().clamp(128, max)
}

/// What khugepaged recommends for `min_free_kbytes`: two free pageblocks a zone, and three for each pair
/// of the three migratetypes, at most 5 % of low memory (pages of 4 KiB).
#[doc(alias = "set_recommended_min_free_kbytes")]
#[must_use]
pub fn recommended_min_free_kbytes(
    populated_zones: u64,
    pageblock: Order,
    lowmem_pages: u64,
) -> u64 {
    let per_zone = u64::from(pageblock.pages()) * (2 + 3 * 3);
    (per_zone * populated_zones).min(lowmem_pages / 20) * 4
}

impl Memory {
    /// Computes watermarks and reserves of every zone: each zone's share of `min_free_kbytes`. Where none is given, it
    /// comes from memory's size and, if khugepaged runs (`thp`), is at least what khugepaged recommends. What is given
    /// was written after that, and nobody raises it.
    #[doc(alias = "__setup_per_zone_wmarks")]
    pub fn setup_watermarks(&mut self, min_free_kbytes_set: Option<u64>, thp: bool) {
        let lowmem = |zone: &Zone| zone.kind != ZoneKind::Movable;
        let managed: u64 = self.zones.iter().filter(|z| lowmem(z)).map(|z| z.managed_pages).sum();
        let mut kbytes = min_free_kbytes_set.unwrap_or_else(|| {
            min_free_kbytes(managed * 4, self.policy.watermark.min_free_kbytes_max)
        });
        if min_free_kbytes_set.is_none() && thp && self.policy.watermark.thp_recommendation {
            let populated = |z: &&Zone| lowmem(z) && z.present_pages > 0;
            let populated = self.zones.iter().filter(populated).count() as u64;
            // khugepaged starts after the first set of marks and leaves what is below the high ones out of
            // its 5 % (`nr_free_buffer_pages`).
            self.set_marks(kbytes / 4, managed);
            let high = |zone: &Zone| zone.watermarks.raw(Mark::High);
            let above_high = |zone: &Zone| zone.managed_pages.saturating_sub(high(zone));
            let lowmem_pages = self.zones.iter().filter(|z| lowmem(z)).map(above_high).sum();
            let recommended = recommended_min_free_kbytes(
                populated,
                self.policy.freelist.pageblock_order,
                lowmem_pages,
            );
            kbytes = kbytes.max(recommended);
        }
        self.set_marks(kbytes / 4, managed);
        for zone in 0..self.zones.len() {
            self.setup_reserve(ZoneId(zone as u8));
        }
        self.setup_lowmem_reserve();
        self.update_pcp_limits();
    }

    /// Shares `pages_min` out among the zones, whose managed pages (Movable zones' apart) are `lowmem`.
    fn set_marks(&mut self, pages_min: u64, lowmem: u64) {
        for zone in &mut self.zones {
            let share = (u128::from(pages_min) * u128::from(zone.managed_pages)
                / u128::from(lowmem.max(1))) as u64;
            let min = match zone.kind {
                ZoneKind::Movable => (zone.managed_pages / 1024).clamp(32, 128),
                _ => share,
            };
            let gap = match self.policy.watermark.scale_factor {
                Some(scale) => (share / 4).max(zone.managed_pages * u64::from(scale) / 10_000),
                None => share / 4,
            };
            let marks = [min, min + gap, min + 2 * gap, min + 3 * gap];
            zone.set_watermarks(Watermarks { marks, boost: 0 });
        }
    }

    /// Computes what each zone keeps from requests that could use a higher one of its node.
    #[doc(alias = "setup_per_zone_lowmem_reserve")]
    fn setup_lowmem_reserve(&mut self) {
        let ratios = self.policy.watermark.lowmem_reserve_ratio;
        let pages: std_alloc::vec::Vec<_> =
            self.zones.iter().map(|z| (z.node, z.kind, z.managed_pages)).collect();
        for zone in &mut self.zones {
            zone.lowmem_reserve = [0; NR_ZONE_KINDS];
            let Some(&ratio) = ratios.get(zone.kind as usize) else { continue };
            for highest_zoneidx in zone.kind as usize + 1..NR_ZONE_KINDS {
                let above: u64 = pages
                    .iter()
                    .filter(|(node, kind, _)| {
                        *node == zone.node && *kind > zone.kind && *kind as usize <= highest_zoneidx
                    })
                    .map(|(_, _, managed)| managed)
                    .sum();
                zone.lowmem_reserve[highest_zoneidx] =
                    if ratio == 0 { 0 } else { above / u64::from(ratio) };
            }
        }
    }

    /// Raises the zone's watermarks by so many pageblocks, up to the boost factor's share of the high mark.
    ///
    /// Returns whether boosting is on for a zone of this size.
    pub fn boost_watermark(&mut self, id: ZoneId, pageblocks: u64) -> bool {
        let Watermark { boost_factor, boost_limit, boost_small_zones, .. } = self.policy.watermark;
        let pageblock = u64::from(self.policy.freelist.pageblock_order.pages());
        let zone = &mut self.zones[id.index()];
        // Four pageblocks would be all of a small zone.
        let is_small = zone.managed_pages < pageblock * 4;
        if boost_factor == 0 || is_small && !boost_small_zones {
            return false;
        }
        let high = match boost_limit {
            BoostLimit::High => zone.watermarks.raw(Mark::High),
            BoostLimit::BoostedHigh => zone.watermarks.pages(Mark::High),
        };
        let limit = high * u64::from(boost_factor) / 10_000;
        if limit == 0 {
            return false;
        }
        let boost = zone.watermarks.boost + pageblocks * pageblock;
        zone.watermarks.boost = boost.min(limit.max(pageblock));
        true
    }

    /// Whether taking a block of `order` leaves the zone above `mark` pages, for a request that may use
    /// zones up to `highest_zoneidx`.
    #[must_use]
    pub fn watermark_ok(
        &self,
        id: ZoneId,
        order: Order,
        mark: u64,
        highest_zoneidx: ZoneKind,
        flags: AllocFlags,
    ) -> bool {
        self.watermark_ok_with(
            id,
            order,
            mark,
            highest_zoneidx,
            flags,
            self.zones[id.index()].nr_free_pages,
        )
    }

    /// As [`Self::watermark_ok`], if this many pages were free.
    #[doc(alias = "__zone_watermark_ok")]
    #[must_use]
    pub fn watermark_ok_with(
        &self,
        id: ZoneId,
        order: Order,
        mark: u64,
        highest_zoneidx: ZoneKind,
        flags: AllocFlags,
        nr_free_pages: u64,
    ) -> bool {
        let zone = &self.zones[id.index()];
        let reserve = zone.lowmem_reserve[highest_zoneidx as usize];
        let mut unusable = u64::from(order.pages()) - 1;
        let (is_high, is_hard) = self.urgency(flags);
        let counts_reserve = match self.policy.watermark.urgency {
            Urgency::HighThenNonBlocking => flags.intersects(
                AllocFlags::NON_BLOCK
                    | AllocFlags::MIN_RESERVE
                    | AllocFlags::HIGHATOMIC
                    | AllocFlags::OOM,
            ),
            Urgency::Atomic | Urgency::NonBlockingAlone => {
                is_hard || flags.intersects(AllocFlags::OOM)
            }
        };
        if !counts_reserve {
            unusable += match self.policy.highatomic.reserve {
                HighatomicReserve::Off => 0,
                HighatomicReserve::PercentPlusBlock => zone.nr_reserved_highatomic,
                HighatomicReserve::PercentRoundedUp => zone.nr_free_highatomic,
            };
        }
        // CMA pages serve movable requests only; the check counts for all (no CMA in the kernels
        // modelled so far, so nothing is subtracted for it).
        let mut min = mark;
        if is_high {
            min -= min / 2;
        }
        if is_hard {
            min -= min / 4;
        }
        if flags.intersects(AllocFlags::OOM) {
            min -= min / 2;
        }
        let mut free = nr_free_pages as i64 - unusable as i64;
        if free <= (min + reserve) as i64 {
            return false;
        }
        if order.0 == 0 {
            return true;
        }
        if self.policy.watermark.check == WatermarkCheck::EachOrder {
            return (0..order.0).map(Order).all(|smaller| {
                free -= i64::from(zone.free_area.nr_free(smaller)) << smaller.0;
                min >>= 1;
                free > min as i64
            });
        }
        let mut usable =
            [Migratetype::Unmovable, Migratetype::Movable, Migratetype::Reclaimable].into_iter();
        usable.any(|mt| zone.free_area.any_from(order, mt))
            || zone.free_area.any_from(order, Migratetype::Cma)
            || (flags.intersects(AllocFlags::HIGHATOMIC | AllocFlags::OOM)
                || is_hard && self.policy.watermark.urgency == Urgency::Atomic)
                && zone.free_area.any_from(order, Migratetype::HighAtomic)
    }

    /// Whether a request may go below a mark by a half (`ALLOC_HIGH`), and whether by a quarter of what is
    /// left (`ALLOC_HARDER`).
    const fn urgency(&self, flags: AllocFlags) -> (bool, bool) {
        let is_high = flags.intersects(AllocFlags::MIN_RESERVE);
        let cannot_wait = flags.intersects(AllocFlags::NON_BLOCK);
        match self.policy.watermark.urgency {
            Urgency::HighThenNonBlocking | Urgency::Atomic => (is_high, is_high && cannot_wait),
            Urgency::NonBlockingAlone => (is_high, cannot_wait),
        }
    }
}
