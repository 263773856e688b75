//! What a running system holds before anything is run: the pageblocks of unmovable pages, with their holes.
//!
//! From boot on the kernel and its drivers take pages that nobody can move, and give some back. Their pageblocks
//! stay what they are. The holes in them are free memory that huge pages cannot be made of, and that movable
//! pages get only when there is nothing else: they count towards the marks, and so decide how long reclaim waits.
//!
//! Departs: blocks lie together where the empty machine hands memory out first, where those of a running system
//! are strewn. Visible as: compaction meets them in one place. Reclaimable slab and programs' pages are missing.
//! Visible as: nothing of theirs can be reclaimed.

use crate::machine::{InUse, Machine, PAGE_BYTES};
use highorder_mm::alloc::Request;
use highorder_mm::gfp::Gfp;
use highorder_mm::kernel_use::KernelUse;
use highorder_mm::memory::Memory;
use highorder_mm::{Order, Pfn};
use rand_core::Rng;
use rand_pcg::Pcg64;

/// The random stream that says where holes lie: "in use" in ASCII. Every boot of a machine is the same.
const STREAM: u128 = 0x696e_2075_7365 << 64;
/// How often a place is looked for in vain before a hole is left out.
const TRIES: u32 = 64;
/// Pages of the pageblocks that the machine file speaks of.
const BLOCK: usize = 512;

/// Takes what a running system holds from an empty machine.
pub(super) fn hold(machine: &Machine, memory: &mut Memory) {
    let Some(in_use) = &machine.in_use else { return };
    let mut rng = Pcg64::new(0, STREAM);
    for (node, spec) in machine.nodes.iter().enumerate() {
        let cpu = spec.cpus.start as usize;
        if spec.cpus.is_empty() {
            continue;
        }
        let blocks = spec.memory_bytes / PAGE_BYTES / BLOCK as u64;
        let blocks = (blocks * u64::from(in_use.unmovable_blocks_per_1000) / 1000) as usize;
        let request = Request {
            order: Order(0),
            gfp: Gfp::KERNEL,
            cpu,
            node: node as u32,
            past_lists: false,
        };
        // Zones take turns before 4.8: each may end in the midst of a block.
        let pages = (blocks + memory.zones.len()) * BLOCK;
        let mut taken: Vec<Pfn> =
            (0..pages).map_while(|_| memory.alloc_without_reclaim(request)).collect();
        taken.sort_unstable();
        let mut whole = whole_blocks(&taken);
        whole.truncate(blocks);
        for pfn in taken {
            memory.take_kernel_block(pfn, Order(0), KernelUse::Unknown);
            let block = Pfn(pfn.0 / BLOCK as u32 * BLOCK as u32);
            if whole.binary_search(&block).is_err() {
                memory.free_kernel_block(pfn, Order(0), cpu);
            }
        }
        punch(in_use, memory, &whole, cpu, &mut rng);
    }
    memory.drain_all_pages(None);
    memory.take_work();
    memory.take_extfrag();
}

/// The pageblocks of which all pages are among these, which are sorted.
fn whole_blocks(pages: &[Pfn]) -> Vec<Pfn> {
    let is_whole = |part: &&[Pfn]| {
        (part[0].0 as usize).is_multiple_of(BLOCK)
            && part[BLOCK - 1].0 - part[0].0 == BLOCK as u32 - 1
    };
    pages.windows(BLOCK).filter(is_whole).map(|part| part[0]).collect()
}

/// Frees parts of these pageblocks, the large ones first.
fn punch(in_use: &InUse, memory: &mut Memory, blocks: &[Pfn], cpu: usize, rng: &mut Pcg64) {
    if blocks.is_empty() {
        return;
    }
    // By page: the order of the hole that it is in.
    let mut holes: Vec<Option<u8>> = vec![None; blocks.len() * BLOCK];
    for (order, &per_1000) in in_use.holes_per_1000_blocks.iter().enumerate().rev() {
        let pages = 1 << order;
        let wanted = blocks.len() as u64 * u64::from(per_1000) / 1000;
        for _ in 0..wanted {
            let place = (0..TRIES).find_map(|_| {
                let at = rng.next_u32() as usize % (holes.len() / pages) * pages;
                let is_held = holes[at..at + pages].iter().all(Option::is_none);
                // Two holes of a size side by side would be one.
                let is_alone = holes[at ^ pages] != Some(order as u8);
                (is_held && is_alone).then_some(at)
            });
            let Some(at) = place else { break };
            holes[at..at + pages].fill(Some(order as u8));
        }
    }
    for (at, hole) in holes.iter().enumerate() {
        if hole.is_some() {
            let pfn = Pfn(blocks[at / BLOCK].0 + (at % BLOCK) as u32);
            memory.free_kernel_block(pfn, Order(0), cpu);
        }
    }
}
