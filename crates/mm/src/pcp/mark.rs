//! How full a CPU's lists may get, how much a free then gives back, and how much a refill fetches.
//!
//! Models: `nr_pcp_alloc`, `nr_pcp_high`, `nr_pcp_free`, mm/page_alloc.c, v6.12 and v6.1; the fixed mark of
//! `free_hot_cold_page`, v4.4.
//!
//! A free puts its block on a list, and then a set that holds as many pages as it is *allowed*, or more, gives
//! some back to the zone. What is allowed and how much goes:
//!
//! **Six batches** (before 5.14). The mark is allowed, and a batch goes.
//!
//! **The low watermark's share** (5.14 to 6.6). The mark is allowed, but four batches at most while kswapd
//! reclaims in the zone. Drains follow each other in growing sizes, twice the one before each, until an
//! allocation halves the next again. A block of several pages that is freed while they grow takes the whole set
//! with it: nothing is allowed.
//!
//! **The self-tuning mark** (since 6.7). The set counts the pages freed lately, up to its largest batch; an
//! allocation halves the count. A drain gives back that count. The mark moves between its bounds, by
//! [`Pressure`]:
//!
//! | pressure | the mark | allowed |
//! | --- | --- | --- |
//! | a stream of blocks of several pages | falls by the largest batch | nothing: up to a largest batch goes |
//! | kswapd reclaims | falls by what was freed lately | the mark, four batches at most |
//! | the zone is below its high watermark | falls likewise | what the set holds, but its lower bound at least |
//! | none | rises, once reached, to hold what was freed lately and a batch more | where it was |
//!
//! Bounds that are equal leave the mark where it is, and the last two rows do not differ.
//!
//! In both of the younger kinds a drain is of at least a batch, and leaves a batch below what is allowed where
//! that leaves enough to drain; of sets that are allowed less than a batch a single page goes at a time.
//!
//! **A refill** fetches a batch of pages, as blocks of the order that was wanted, and two blocks at least, since a
//! single one would spare no lock. With the self-tuning mark a refill of single pages is of twice as many as the one
//! before while nothing is freed, but of no more than leave room for a batch below the mark, or of a batch where there
//! is less. Before that each refill raises the mark by what it wants, unless the zone is below its high watermark:
//! with a larger set it would not have been needed. A mark of less than a batch allows one block at a time.

use super::PerCpuPages;
use crate::policy::{Pcp, PcpHigh};
use crate::types::{COSTLY_ORDER, Order};
use crate::zone::ZoneFlags;

/// What a CPU's lists have to give way to; the first that applies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pressure {
    /// Blocks of several pages are freed one after the other: likely a server's buffers, which another CPU
    /// wants at once.
    Stream,
    /// Kswapd reclaims in the zone.
    Reclaim,
    /// The zone is below its high watermark.
    BelowHigh,
    None,
}

/// Whether per-CPU lists hold blocks of this order that are of several pages and no huge pages.
fn is_middle(order: Order) -> bool {
    (1..=COSTLY_ORDER.0).contains(&order.0)
}

impl PerCpuPages {
    /// Blocks of this order that a refill fetches for a set of a zone in this state.
    #[doc(alias = "nr_pcp_alloc")]
    pub(super) fn refill(&mut self, policy: &Pcp, zone: ZoneFlags, order: Order) -> u32 {
        let pages = match policy.high {
            PcpHigh::SixBatches | PcpHigh::LowWatermark => self.batch,
            PcpHigh::AutoTuned => self.tuned_refill(order, zone, policy.batch_scale_max),
        };
        if pages > 1 { (pages >> order.0).max(2) } else { pages }
    }

    /// Pages that a refill is of with the self-tuning mark.
    fn tuned_refill(&mut self, order: Order, zone: ZoneFlags, scale_max: u8) -> u32 {
        self.high = self.in_bounds(self.high);
        if self.high < self.batch {
            return 1;
        }
        let grows = order == Order(0);
        let wanted = if grows { self.batch << self.factor } else { self.batch };
        if self.high_min != self.high_max && !zone.below_high {
            self.high = self.high_max.min(self.high + wanted);
        }
        if !grows {
            return wanted;
        }
        let room = self.high.saturating_sub(self.count + self.batch).max(self.batch);
        if wanted <= room && self.factor < scale_max {
            self.factor += 1;
        }
        wanted.min(room)
    }

    /// Pages to give back now that a block of this order came to a list of a zone in this state; `None` if the
    /// set holds less than it is allowed.
    #[doc(alias = "nr_pcp_high")]
    #[doc(alias = "nr_pcp_free")]
    #[inline]
    pub(super) fn surplus(&mut self, policy: &Pcp, zone: ZoneFlags, order: Order) -> Option<u32> {
        match policy.high {
            PcpHigh::SixBatches => (self.count >= self.high).then_some(self.batch),
            PcpHigh::LowWatermark => {
                self.surplus_of_fixed(order, zone.reclaim_active, policy.batch_scale_max)
            }
            PcpHigh::AutoTuned => {
                self.surplus_of_tuned(order, zone, self.batch << policy.batch_scale_max)
            }
        }
    }

    fn surplus_of_tuned(&mut self, order: Order, zone: ZoneFlags, largest: u32) -> Option<u32> {
        let is_stream = self.note_free(order, largest);
        let pressure = match zone {
            _ if is_stream => Pressure::Stream,
            ZoneFlags { reclaim_active: true, .. } => Pressure::Reclaim,
            ZoneFlags { below_high: true, .. } => Pressure::BelowHigh,
            _ => Pressure::None,
        };
        let allowed = self.move_mark(pressure, largest);
        (self.count >= allowed).then(|| match pressure {
            Pressure::Stream => self.count.min(largest),
            _ => self.drain_size(self.free_count, allowed),
        })
    }

    /// Counts a free. Whether it belongs to a stream: the last free was of such a block as well, and a batch
    /// has been freed lately (and is there, where the CPU's data cache is large).
    fn note_free(&mut self, order: Order, largest: u32) -> bool {
        let follows = core::mem::replace(&mut self.prev_free_high_order, is_middle(order));
        let is_stream = follows
            && is_middle(order)
            && self.free_count >= self.batch
            && (self.count >= self.batch || !self.free_high_batch);
        if self.free_count < largest {
            self.free_count += order.pages();
        }
        self.factor /= 2;
        is_stream
    }

    /// Moves the mark under a pressure, and returns how much is allowed. A set without a mark stays so.
    fn move_mark(&mut self, pressure: Pressure, largest: u32) -> u32 {
        let mark = self.in_bounds(self.high);
        if mark == 0 {
            return 0;
        }
        let lately = self.free_count.max(self.batch);
        let wanted = self.free_count + self.batch;
        let lowered = |by: u32| mark.saturating_sub(by).max(self.high_min);
        let (moved, allowed) = match pressure {
            Pressure::Stream => (lowered(largest), 0),
            Pressure::Reclaim => (lowered(lately), lowered(lately).min(4 * self.batch)),
            _ if self.high_min == self.high_max => (mark, mark),
            Pressure::BelowHigh => (lowered(lately), self.count.max(self.high_min)),
            Pressure::None if self.count >= mark && wanted > mark => (self.in_bounds(wanted), mark),
            Pressure::None => (mark, mark),
        };
        self.high = moved;
        allowed
    }

    fn surplus_of_fixed(&mut self, order: Order, reclaims: bool, scale_max: u8) -> Option<u32> {
        let takes_all = self.factor > 0 && is_middle(order);
        if takes_all {
            return Some(self.count);
        }
        let allowed = if reclaims { self.high.min(4 * self.batch) } else { self.high };
        if self.count < allowed {
            return None;
        }
        let wanted = self.batch << self.factor;
        if wanted + self.batch < allowed && self.factor < scale_max {
            self.factor += 1;
        }
        Some(self.drain_size(wanted, allowed))
    }

    /// Pages of a drain that is to be of `wanted` pages, of a set that is allowed so many.
    fn drain_size(&self, wanted: u32, allowed: u32) -> u32 {
        match allowed.checked_sub(self.batch) {
            Some(most) => clamp_like_kernel(wanted, self.batch, most),
            None => 1,
        }
    }

    /// A mark, brought between its bounds.
    pub(super) fn in_bounds(&self, mark: u32) -> u32 {
        clamp_like_kernel(mark, self.high_min, self.high_max)
    }
}

/// The kernel's `clamp` (`__clamp`, include/linux/minmax.h, v6.12). The bounds may cross: a large
/// min_free_kbytes raises a set's `high_min` above its `high_max`.
fn clamp_like_kernel(value: u32, low: u32, high: u32) -> u32 {
    if value >= high { high } else { value.max(low) }
}
