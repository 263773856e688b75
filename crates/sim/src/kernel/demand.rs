//! What the kernel wants for itself besides what workloads make it want: stacks, packets, page tables.
//!
//! A demand is a stream of requests at a rate, each of which is held for a time; both times between requests and
//! times held are exponentially distributed. A kernel thread makes the requests.
//!
//! Models: `skb_page_frag_refill`, net/core/sock.c, v4.4 and v6.12; `alloc_thread_stack_node`, kernel/fork.c;
//! `pte_alloc_one`, arch/x86/mm/pgtable.c; `pipe_write`, fs/pipe.c.
//! Departs: a demand waits for its own request, and one that comes meanwhile comes late. Visible as: where
//! requests sleep for long, the rate falls.

use super::slab::{KernelStack, alloc, free, free_block, free_stack, take_block};
use super::{Kernel, KernelCx, Stall};
use crate::sim::Sim;
use crate::task::TaskSpec;
use highorder_mm::gfp::Gfp;
use highorder_mm::kernel_use::KernelUse;
use highorder_mm::slab::{CacheId, Object};
use highorder_mm::{Order, Pfn};
use highorder_words::Ns;
use rand_core::Rng;
use rand_pcg::Pcg64;
use std::collections::BTreeMap;

/// Begins the number of each demand's random stream: "demand" in ASCII.
const STREAM: u128 = 0x6465_6d61_6e64 << 64;

/// A stream of requests for memory of the kernel's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// What for.
    pub kind: DemandKind,
    /// Order of a block. Stacks and objects have the kernel's own.
    pub order: Order,
    /// Bytes of an object, at most 8192; nothing for whole blocks.
    pub bytes: u32,
    /// Whether requests may wait for memory.
    pub sleeps: bool,
    /// Mean time between two requests.
    pub gap: Ns,
    /// Mean time that a block is held.
    pub lifetime: Ns,
}

impl Demand {
    /// The same on a machine with `numerator / denominator` of the memory: as large a share of it is held.
    ///
    /// # Panics
    /// If the numerator is 0.
    #[must_use]
    pub fn scaled(self, numerator: u32, denominator: u32) -> Self {
        let gap = u128::from(self.gap.0) * u128::from(denominator) / u128::from(numerator);
        Self { gap: Ns(u64::try_from(gap).unwrap_or(u64::MAX)), ..self }
    }
}

/// What memory is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DemandKind {
    /// Threads' stacks, of the order and kind that the kernel has.
    KernelStack,
    /// Packets: of a larger order without waiting, else single pages.
    NetworkBuffer,
    /// Page tables.
    PageTable,
    /// Data in pipes.
    Pipe,
    /// Blocks of any order for a driver, which cannot do with less.
    Module,
    /// Objects of a generic slab cache (`kmalloc`).
    Object,
}

impl DemandKind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::KernelStack,
        Self::NetworkBuffer,
        Self::PageTable,
        Self::Pipe,
        Self::Module,
        Self::Object,
    ];

    /// Its name in experiment files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::KernelStack => "kernel-stack",
            Self::NetworkBuffer => "network-buffer",
            Self::PageTable => "page-table",
            Self::Pipe => "pipe",
            Self::Module => "module",
            Self::Object => "object",
        }
    }
}

impl Demand {
    /// What its blocks are for.
    fn use_of(&self) -> KernelUse {
        match self.kind {
            DemandKind::KernelStack => KernelUse::KernelStack,
            DemandKind::NetworkBuffer => KernelUse::NetworkBuffer,
            DemandKind::PageTable => KernelUse::PageTable,
            DemandKind::Pipe => KernelUse::Pipe,
            DemandKind::Module => KernelUse::Module,
            DemandKind::Object => KernelUse::Slab(self.cache()),
        }
    }

    /// The cache of its objects.
    ///
    /// # Panics
    /// If no generic cache has objects that large.
    fn cache(&self) -> CacheId {
        let bytes = self.bytes;
        CacheId::kmalloc(bytes).unwrap_or_else(|| panic!("no generic cache has {bytes} bytes"))
    }
}

/// What became of a demand so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DemandStats {
    /// Requests.
    pub nr_asked: u64,
    /// Of those, served with less than the order asked for.
    pub nr_smaller: u64,
    /// Of those, not served.
    pub nr_failed: u64,
}

/// Starts the demands of a machine; `seed` is the root of their random streams.
pub fn start(sim: &mut Sim<Kernel>, demands: &[Demand], seed: u64) {
    for (number, &demand) in demands.iter().enumerate() {
        sim.world_mut().demands.push((demand, DemandStats::default()));
        let rng = Pcg64::new(u128::from(seed), STREAM | number as u128);
        let task = TaskSpec::kernel_thread(format!("demand{number}"));
        sim.spawn(task, move |cx| serve(cx, number, demand, rng));
    }
}

/// Blocks of one request.
enum Held {
    Block(Pfn, Order),
    Stack(KernelStack),
    Object(CacheId, Object),
}

/// The kernel thread of a demand. Never returns.
fn serve(cx: &mut KernelCx<'_>, number: usize, demand: Demand, mut rng: Pcg64) -> ! {
    // By when they are given back, and which came first.
    let mut held: BTreeMap<(Ns, u64), Held> = BTreeMap::new();
    let mut serial = 0;
    let mut next = cx.now().saturating_add(exponential(&mut rng, demand.gap));
    loop {
        let due = held.first_key_value().map_or(Ns(u64::MAX), |(&(due, _), _)| due);
        let wait = next.min(due).saturating_sub(cx.now());
        if wait > Ns::ZERO {
            cx.sleep(wait);
        }
        while let Some(first) = held.first_entry()
            && first.key().0 <= cx.now()
        {
            match first.remove() {
                Held::Block(pfn, order) => free_block(cx, pfn, order),
                Held::Stack(stack) => free_stack(cx, stack),
                Held::Object(cache, object) => {
                    free(cx, cache, object);
                }
            }
        }
        if next > cx.now() {
            continue;
        }
        let lifetime = exponential(&mut rng, demand.lifetime);
        next = next.saturating_add(exponential(&mut rng, demand.gap));
        if let Some(block) = request(cx, number, demand) {
            serial += 1;
            held.insert((cx.now().saturating_add(lifetime), serial), block);
        }
    }
}

#[doc(alias = "pipe_write")]
#[doc(alias = "pte_alloc_one")]
#[doc(alias = "skb_page_frag_refill")]
fn request(cx: &mut KernelCx<'_>, number: usize, demand: Demand) -> Option<Held> {
    let gfp = if demand.sleeps { Gfp::KERNEL } else { Gfp::GFP_ATOMIC };
    let of = demand.use_of();
    let began = cx.now();
    let (found, is_smaller) = match demand.kind {
        DemandKind::KernelStack => (stack(cx).map(Held::Stack), false),
        DemandKind::Object => {
            let cache = demand.cache();
            (alloc(cx, cache, gfp, None).map(|object| Held::Object(cache, object)), false)
        }
        DemandKind::NetworkBuffer if demand.order > Order(0) => {
            let gentle = (gfp - Gfp::DIRECT_RECLAIM) | Gfp::COMP | Gfp::NOWARN | Gfp::NORETRY;
            match take_block(cx, demand.order, gentle, of, None) {
                Some(pfn) => (Some(Held::Block(pfn, demand.order)), false),
                None => {
                    let pfn = take_block(cx, Order(0), gfp, of, None);
                    (pfn.map(|pfn| Held::Block(pfn, Order(0))), true)
                }
            }
        }
        _ => {
            let comp = if demand.order > Order(0) { Gfp::COMP } else { Gfp::NONE };
            let pfn = take_block(cx, demand.order, gfp | comp, of, None);
            (pfn.map(|pfn| Held::Block(pfn, demand.order)), false)
        }
    };
    let took = cx.now() - began;
    (cx.world().on_stall)(Stall::Demand(demand.kind), took);
    let stats = &mut cx.world().demands[number].1;
    stats.nr_asked += 1;
    stats.nr_failed += u64::from(found.is_none());
    stats.nr_smaller += u64::from(found.is_some() && is_smaller);
    found
}

#[doc(alias = "alloc_thread_stack_node")]
fn stack(cx: &mut KernelCx<'_>) -> Option<KernelStack> {
    super::slab::alloc_stack(cx, None)
}

/// An exponentially distributed time of this mean.
///
/// Models: von Neumann's method of comparing uniform numbers, which needs no logarithm: the length of the first
/// run of falling numbers is odd with just the probability wanted.
fn exponential(rng: &mut Pcg64, mean: Ns) -> Ns {
    let mut whole = 0u64;
    loop {
        let first = rng.next_u32();
        let (mut last, mut length) = (first, 1u32);
        loop {
            let next = rng.next_u32();
            if next >= last {
                break;
            }
            (last, length) = (next, length + 1);
        }
        if length % 2 == 1 {
            let fraction = u128::from(whole) << 32 | u128::from(first);
            return Ns(((u128::from(mean.0) * fraction) >> 32).min(u128::from(u64::MAX)) as u64);
        }
        whole += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exponentially_distributed() {
        let mut rng = Pcg64::new(1, STREAM);
        let mean = Ns(1_000_000);
        let times: Vec<u64> = (0..100_000).map(|_| exponential(&mut rng, mean).0).collect();
        let average = times.iter().sum::<u64>() / 100_000;
        assert!(average.abs_diff(mean.0) < 10_000, "{average}");
        // Half are shorter than ln 2 of the mean, and e^-3 of them longer than three times the mean.
        let shorter = times.iter().filter(|&&time| time < 693_147).count();
        assert!(shorter.abs_diff(50_000) < 600, "{shorter}");
        let longer = times.iter().filter(|&&time| time > 3_000_000).count();
        assert!(longer.abs_diff(4_979) < 300, "{longer}");
    }
}
