//! What refused a request in each zone.
//!
//! Models: `__zone_watermark_ok`, mm/page_alloc.c, v6.12, and as it was before 4.4, when it looked at each order;
//! `__fragmentation_index`, mm/vmstat.c, v6.12.
//! Departs: a log shows memory a moment after the request gave up, and which nodes it might use is not looked at. Visible as:
//! a zone may look as if it could have served.

use crate::{Report, Zone};
use highorder_mm::gfp::Gfp;

/// Names of zones by the index that reserves have, with high memory and without.
const WITH_HIGHMEM: [&str; 4] = ["DMA", "Normal", "HighMem", "Movable"];
const WITHOUT_HIGHMEM: [&str; 5] = ["DMA", "DMA32", "Normal", "Movable", "Device"];
/// The first release that does not ask for a share of free pages in each order (97a16fc82a7c).
const NO_ORDERS_CHECK: (u32, u32) = (4, 4);

/// What refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request may not use the zone.
    NotAllowed,
    /// After the request the zone would have been below its mark.
    Watermark {
        /// Pages that had to be free beyond: mark, reserve, and what the request takes and may not take.
        needed: u64,
        /// Pages that were missing.
        missing: u64,
    },
    /// Before 4.4: of blocks of some order and larger there is too little.
    OrderShare {
        /// The order.
        order: u8,
    },
    /// There is no block as large.
    NoBlock {
        /// The largest order that there is one of.
        largest: Option<u8>,
    },
    /// There are blocks as large, but of types that this request may not take: letters.
    OtherTypes(String),
    /// The log has no free lists of it, and its marks did not refuse.
    NoLists,
    /// Nothing that the log shows.
    Nothing,
}

/// What is to be said of one zone.
#[derive(Clone, Debug, PartialEq)]
pub struct ZoneVerdict {
    /// What refused.
    pub refusal: Refusal,
    /// The mark that held for this request, in pages.
    pub mark: u64,
    /// Pages kept from it besides.
    pub reserve: u64,
    /// The fragmentation index: -1 where there is a block, towards 0 for lack of memory, towards 1 for fragmentation.
    pub fragmentation_index: Option<f64>,
}

/// A verdict for each zone of a report, in its order.
#[must_use]
pub fn judge(report: &Report) -> Vec<ZoneVerdict> {
    let has_highmem = report.zones.iter().any(|zone| zone.name == "HighMem");
    let names = if has_highmem { &WITH_HIGHMEM[..] } else { &WITHOUT_HIGHMEM[..] };
    let highest = highest_zone(report.gfp, has_highmem);
    let index = |name: &str| names.iter().position(|known| *known == name);
    report
        .zones
        .iter()
        .map(|zone| verdict(report, zone, index(&zone.name), index(highest)))
        .collect()
}

/// The highest zone that a request may use (`gfp_zone`).
fn highest_zone(gfp: Gfp, has_highmem: bool) -> &'static str {
    match () {
        () if gfp.contains(Gfp::DMA) => "DMA",
        () if gfp.contains(Gfp::DMA32) => "DMA32",
        () if gfp.contains(Gfp::HIGHMEM.union(Gfp::MOVABLE)) => "Movable",
        () if gfp.contains(Gfp::HIGHMEM) && has_highmem => "HighMem",
        () => "Normal",
    }
}

fn verdict(
    report: &Report,
    zone: &Zone,
    own: Option<usize>,
    highest: Option<usize>,
) -> ZoneVerdict {
    let order = report.order.unwrap_or(0);
    let reserve = highest.and_then(|index| zone.lowmem_reserve.get(index)).copied().unwrap_or(0);
    let is_urgent = report.gfp.contains(Gfp::HIGH);
    // An urgent request may go down to half of the mark, and to a quarter of that less if it cannot wait.
    let cannot_wait = report.names_flags && !report.gfp.contains(Gfp::DIRECT_RECLAIM);
    let mut mark = zone.marks[0];
    if is_urgent {
        mark -= mark / 2;
        if cannot_wait {
            mark -= mark / 4;
        }
    }
    let kept = if is_urgent { 0 } else { zone.reserved_highatomic };
    let needed = mark + reserve + kept + (1u64 << order) - 1;
    let refusal = match () {
        () if own > highest => Refusal::NotAllowed,
        () if zone.free <= needed => Refusal::Watermark { needed, missing: needed + 1 - zone.free },
        () if zone.lists.is_empty() => match order {
            0 => Refusal::Nothing,
            _ => Refusal::NoLists,
        },
        () => by_lists(report, zone, order, mark + reserve),
    };
    let fragmentation_index = (!zone.lists.is_empty()).then(|| fragmentation_index(zone, order));
    ZoneVerdict { refusal, mark, reserve, fragmentation_index }
}

/// What the free lists refuse, where the mark does not.
fn by_lists(report: &Report, zone: &Zone, order: u8, mark: u64) -> Refusal {
    if report.is_before(NO_ORDERS_CHECK) {
        let (mut free, mut min) = (zone.free + 1 - (1 << order), mark);
        for (smaller, list) in (0..order).zip(&zone.lists) {
            free = free.saturating_sub(list.blocks << smaller);
            min /= 2;
            if free <= min {
                return Refusal::OrderShare { order: smaller + 1 };
            }
        }
    }
    let largest = zone.lists.iter().rposition(|list| list.blocks > 0);
    let large = zone.lists.iter().skip(order.into()).filter(|list| list.blocks > 0);
    let mut types = String::new();
    for list in large {
        let refused = |letter: char| match letter {
            'H' => !report.gfp.contains(Gfp::HIGH),
            'C' => !report.gfp.contains(Gfp::MOVABLE),
            'I' => true,
            _ => false,
        };
        if list.types.is_empty() || !list.types.chars().all(refused) {
            return Refusal::Nothing;
        }
        types.extend(
            list.types.chars().filter(|letter| !types.contains(*letter)).collect::<Vec<_>>(),
        );
    }
    match types.is_empty() {
        true => Refusal::NoBlock { largest: largest.and_then(|order| u8::try_from(order).ok()) },
        false => Refusal::OtherTypes(types),
    }
}

fn fragmentation_index(zone: &Zone, order: u8) -> f64 {
    let blocks: u64 = zone.lists.iter().map(|list| list.blocks).sum();
    let pages: u64 = (0u32..).zip(&zone.lists).map(|(of, list)| list.blocks << of).sum();
    if zone.lists.iter().skip(order.into()).any(|list| list.blocks > 0) {
        return -1.0;
    }
    if blocks == 0 {
        return 0.0;
    }
    let requested = 1u64 << order;
    // In thousandths, as the kernel counts.
    let index = 1000 - ((1000 + pages * 1000 / requested) / blocks) as i64;
    index as f64 / 1000.0
}
