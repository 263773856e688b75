//! What a running system holds before anything is run: the pageblocks of unmovable pages, with their holes.
//!
//! From boot on the kernel and its drivers take pages that nobody can move, and give some back. Their pageblocks
//! stay what they are. The holes in them are free memory that huge pages cannot be made of, and that movable
//! pages get only when there is nothing else: they count towards the marks, and so decide how long reclaim waits.
//!
//! Departs: blocks lie together where the empty machine hands memory out first, where those of a running system
//! are strewn. Visible as: compaction meets them in one place. Reclaimable slab and programs' pages are missing.
//! Visible as: nothing of theirs can be reclaimed. A block that was only begun is free again, but stays unmovable.
//! Visible as: up to one such block more in each zone.

use crate::machine::{HOLE_ORDERS, InUse, Machine, PAGE_BYTES};
use highorder_mm::alloc::Request;
use highorder_mm::gfp::Gfp;
use highorder_mm::kernel_use::KernelUse;
use highorder_mm::memory::Memory;
use highorder_mm::types::NodeId;
use highorder_mm::{Order, Pfn};
use highorder_words::CpuId;
use rand_core::Rng;
use rand_pcg::Pcg64;
use std::collections::BTreeMap;

/// The random stream that says where holes lie: "in use" in ASCII. Every boot of a machine is the same.
const STREAM: u128 = 0x696e_2075_7365 << 64;
/// How often a place for a hole is drawn before the next one that is free is taken.
const TRIES: u32 = 64;
/// Of the pageblocks that the machine file speaks of: above all of their holes.
const BLOCK_ORDER: Order = Order(HOLE_ORDERS as u8);
/// Their pages.
const BLOCK: usize = 1 << HOLE_ORDERS;

/// Takes what a running system holds from an empty machine.
pub(super) fn hold(machine: &Machine, memory: &mut Memory) {
    let Some(in_use) = &machine.in_use else { return };
    let mut rng = Pcg64::new(0, STREAM);
    for (node, spec) in NodeId::all(machine.nodes.len()).zip(&machine.nodes) {
        // A node without CPUs is filled from the first of the machine.
        let cpu = CpuId(if spec.cpus.is_empty() { 0 } else { spec.cpus.start });
        let blocks = spec.memory_bytes / PAGE_BYTES / BLOCK as u64;
        let blocks = (blocks * u64::from(in_use.unmovable_blocks_per_1000) / 1000) as usize;
        let request = Request { order: Order(0), gfp: Gfp::KERNEL, cpu, node, past_lists: false };
        // Pages taken of each block. Zones take turns before 4.8: each may end in the midst of one.
        let mut taken: BTreeMap<Pfn, Vec<Pfn>> = BTreeMap::new();
        let mut nr_whole = 0;
        while nr_whole < blocks
            && let Some(pfn) = memory.alloc_without_reclaim(request)
        {
            memory.take_kernel_block(pfn, Order(0), KernelUse::Unknown);
            let pages = taken.entry(pfn.align_down(BLOCK_ORDER)).or_default();
            pages.push(pfn);
            nr_whole += usize::from(pages.len() == BLOCK);
        }
        let (whole, begun): (Vec<_>, Vec<_>) =
            taken.into_iter().partition(|(_, pages)| pages.len() == BLOCK);
        for pfn in begun.into_iter().flat_map(|(_, pages)| pages) {
            memory.free_kernel_block(pfn, Order(0), cpu);
        }
        let whole: Vec<Pfn> = whole.into_iter().map(|(block, _)| block).collect();
        punch(in_use, memory, &whole, cpu, &mut rng);
    }
    memory.drain_all_pages(None);
    memory.take_work();
    memory.take_extfrag();
}

/// Frees parts of these pageblocks, the large ones first.
fn punch(in_use: &InUse, memory: &mut Memory, blocks: &[Pfn], cpu: CpuId, rng: &mut Pcg64) {
    // By page: the order of the hole that it is in.
    let mut holes: Vec<Option<u8>> = vec![None; blocks.len() * BLOCK];
    for (order, &per_1000) in in_use.holes_per_1000_blocks.iter().enumerate().rev() {
        let pages = 1 << order;
        let nr_places = holes.len() / pages;
        let wanted = blocks.len() as u64 * u64::from(per_1000) / 1000;
        for _ in 0..wanted {
            let is_free = |at: &usize| {
                let is_held = holes[*at..at + pages].iter().all(Option::is_none);
                // Two holes of a size side by side would be one.
                is_held && holes[at ^ pages] != Some(order as u8)
            };
            let mut drawn = 0;
            let place = (0..TRIES)
                .map(|_| {
                    drawn = rng.next_u32() as usize % nr_places;
                    drawn * pages
                })
                .find(is_free);
            let behind = |n: usize| (drawn + n) % nr_places * pages;
            let Some(at) = place.or_else(|| (1..nr_places).map(behind).find(is_free)) else {
                break;
            };
            holes[at..at + pages].fill(Some(order as u8));
        }
    }
    for (at, hole) in holes.iter().enumerate() {
        if hole.is_some() {
            let pfn = blocks[at / BLOCK] + (at % BLOCK) as u32;
            memory.free_kernel_block(pfn, Order(0), cpu);
        }
    }
}
