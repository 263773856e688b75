//! kcompactd empties pageblocks that fallbacks have mixed.
//!
//! Models: `kcompactd_run_queue`, `compact_pageblock` of "mm: target compaction on pageblocks that were recently
//! fragmented", posted in October and on 7 November 2018 and never merged.
//! Departs: the free scanner begins at the zone's end for each pageblock, where the patch goes on from one to the
//! next. Visible as: targets that were given back are found again.
//! Departs: free pages that were isolated and not used go back to the lists, where the patch forgets them. Visible
//! as: no memory is lost.

use super::compaction::run_compaction;
use super::trace::TraceEvent;
use super::{Kernel, KernelCx, trace};
use highorder_mm::ZoneKind;
use highorder_mm::types::NodeId;
use highorder_mm::zone::ZoneId;

impl Kernel {
    /// Whether some zone of a node remembers a mixed pageblock.
    pub(super) fn has_mixed_blocks(&self, node: NodeId) -> bool {
        self.memory.zones.iter().any(|zone| zone.node == node && !zone.mixed_blocks.is_empty())
    }
}

/// Moves the movable pages out of the pageblocks that a node's zones remember: of each zone as many as it does at
/// the beginning, the last one first. Suspends.
#[doc(alias = "kcompactd_run_queue")]
#[doc(alias = "compact_pageblock")]
pub(super) fn empty_mixed_blocks(cx: &mut KernelCx<'_>, node: NodeId) {
    let zones: Vec<ZoneId> = cx.world().zones_of(node, ZoneKind::Movable).collect();
    for id in zones {
        for _ in 0..cx.world().memory.zones[id.index()].mixed_blocks.len() {
            let Some(block) = cx.world().memory.zones[id.index()].mixed_blocks.pop() else { break };
            let cpu = cx.cpu();
            let run = cx.world().memory.begin_emptying(id, block, cpu);
            trace::note_all(cx);
            let (nr_migrated, nr_failed) = run_compaction(cx, run).moved;
            trace::note(cx, TraceEvent::EmptiedBlock { zone: id, nr_migrated, nr_failed });
        }
    }
}
