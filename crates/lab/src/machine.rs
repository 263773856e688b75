//! From a snapshot to the model: the same machine, the same blocks on the same lists in the same order.

use highorder_input::InputError;
use highorder_kernelfs::PageFlags;
use highorder_kernels::KernelFile;
use highorder_mm::buddy::FreeTo;
use highorder_mm::fast_search::CompactZone;
use highorder_mm::frame::{NR_CPUS_MAX, State};
use highorder_mm::machine::{MachineError, NR_NODES_MAX};
use highorder_mm::policy::{ListType, PcpHigh};
use highorder_mm::types::{MAX_PAGE_ORDER, Migratetype, NR_ZONE_KINDS, NodeId, Order, Pfn};
use highorder_mm::watermark::Watermarks;
use highorder_mm::zone::ZoneId;
use highorder_mm::{CpuId, Machine, Memory, NodeSpec, ZoneSpec};
use highorder_snapshot::{
    Exactness, FilledFrom, FrameUse, FreeBlock, PcpState, Snapshot, ZoneState,
};

/// Distance of a node to itself, and to others where the machine does not say (ACPI's SLIT default).
const LOCAL_DISTANCE: u32 = 10;
const REMOTE_DISTANCE: u32 = 20;

/// The machine that a snapshot was taken from. `cpu_nodes` names each CPU's node; CPUs beyond it are
/// taken to be on node 0.
///
/// # Errors
/// A machine that there cannot be, or larger than the model has room for.
pub fn machine_of(snapshot: &Snapshot, cpu_nodes: &[NodeId]) -> Result<Machine, InputError> {
    let nr_frames = u32::try_from(snapshot.nr_frames).map_err(|_| {
        let found = snapshot.nr_frames;
        InputError::other(format!("the machine has {found} frames, expected at most {}", u32::MAX))
    })?;
    let nr_nodes = snapshot.zones.iter().map(|z| z.node as usize + 1).max().unwrap_or(1);
    let nr_cpus = snapshot
        .zones
        .iter()
        .flat_map(|z| &z.pcp)
        .map(|pcp| pcp.cpu as usize + 1)
        .max()
        .unwrap_or(1)
        .max(cpu_nodes.len());
    // Before tables are made that grow with these numbers.
    if nr_nodes > NR_NODES_MAX {
        return Err(InputError::other(MachineError::TooManyNodes(nr_nodes)));
    }
    if nr_cpus > NR_CPUS_MAX {
        return Err(InputError::other(MachineError::TooManyCpus(nr_cpus)));
    }
    let nr_nodes = nr_nodes as u32;
    let nodes = (0..nr_nodes)
        .map(|node| NodeSpec {
            distances: (0..nr_nodes)
                .map(|other| if other == node { LOCAL_DISTANCE } else { REMOTE_DISTANCE })
                .collect(),
            zones: populated(snapshot).filter(|z| z.node == node).map(zone_spec).collect(),
        })
        .collect();
    let cpu_nodes =
        (0..nr_cpus).map(|cpu| cpu_nodes.get(cpu).copied().unwrap_or(NodeId(0))).collect();
    let machine = Machine { nr_frames, nodes, cpu_nodes };
    machine.check().map_err(InputError::other)?;
    Ok(machine)
}

/// The zones that have memory: the model's zones, in its order.
pub(crate) fn populated(snapshot: &Snapshot) -> impl Iterator<Item = &ZoneState> {
    snapshot.zones.iter().filter(|z| z.spanned_pages > 0 && z.present_pages > 0)
}

/// Sizes that 32 bits do not hold become the largest that they do, which no machine has.
fn zone_spec(zone: &ZoneState) -> ZoneSpec {
    let pages = |nr: u64| u32::try_from(nr).unwrap_or(u32::MAX);
    ZoneSpec {
        kind: zone.kind,
        start: zone.start_pfn,
        spanned_pages: pages(zone.spanned_pages),
        present_pages: pages(zone.present_pages),
        managed_pages: zone.managed_pages,
    }
}

/// The model in the state of a snapshot, under this kernel's policy.
///
/// Where the policy has no place for what the machine had (blocks or per-CPU lists of an order, a list of a
/// type its pageblock is not of), the block goes where the policy would have put it.
///
/// # Errors
/// A machine that there cannot be or that the model has no room for, or pageblocks of another order than the policy's.
pub fn restore(
    snapshot: &Snapshot,
    kernel: &KernelFile,
    cpu_nodes: &[NodeId],
) -> Result<Memory, InputError> {
    let placed;
    let snapshot = if snapshot.exactness == Exactness::Counts {
        placed = snapshot.placed_on(filled_from(kernel));
        &placed
    } else {
        snapshot
    };
    let policy = kernel.policy.clone();
    if policy.freelist.pageblock_order != snapshot.pageblock_order {
        return Err(InputError::other(format!(
            "the snapshot has pageblocks of order {}, kernel {} has order {}",
            snapshot.pageblock_order, kernel.name, policy.freelist.pageblock_order
        )));
    }
    let mut memory = Memory::new(machine_of(snapshot, cpu_nodes)?, policy);
    for block in &snapshot.pageblocks {
        if block.pfn.index() < memory.frames().len() {
            memory.set_block_type(block.pfn, block.migratetype);
            memory.set_block_skip(block.pfn, block.skip);
        }
    }
    let mut homeless = Vec::new();
    for (index, zone) in populated(snapshot).enumerate() {
        restore_marks(&mut memory, ZoneId(index as u8), zone);
        for block in &zone.free {
            for (pfn, order) in pieces(block, memory.policy.freelist.max_order) {
                let migratetype = list_type(&memory, pfn, block.migratetype);
                memory.restore_free(pfn, order, migratetype);
            }
        }
        for pcp in &zone.pcp {
            for block in &pcp.blocks {
                if memory.has_pcp_list(block.order) {
                    let migratetype = list_type(&memory, block.pfn, block.migratetype);
                    memory.restore_pcp(CpuId(pcp.cpu), block.pfn, block.order, migratetype);
                } else {
                    memory.restore_allocated(block.pfn, block.order, block.migratetype, false);
                    homeless.push((block.pfn, block.order));
                }
            }
        }
    }
    restore_used(&mut memory, snapshot);
    memory.update_pcp_limits();
    for (index, zone) in populated(snapshot).enumerate() {
        for pcp in &zone.pcp {
            restore_tuning(&mut memory, index, pcp);
        }
    }
    for (pfn, order) in homeless {
        let zone = memory.zone_of(pfn);
        memory.free_to_buddy(zone, pfn, order, FreeTo::Policy);
    }
    Ok(memory)
}

/// From which end this kernel fills memory.
pub(crate) const fn filled_from(kernel: &KernelFile) -> FilledFrom {
    if kernel.policy.freelist.boot_to_tail { FilledFrom::Bottom } else { FilledFrom::Top }
}

/// A free block in pieces of the largest order there is: itself, unless the machine had larger ones.
fn pieces(block: &FreeBlock, max_order: Order) -> impl Iterator<Item = (Pfn, Order)> {
    let (first, order) = (block.pfn.0, block.order.min(max_order));
    let end = first + block.order.pages();
    (first..end).step_by(order.pages() as usize).map(move |pfn| (Pfn(pfn), order))
}

/// The type of the list a block goes to: its recorded one, unless the policy keeps lists by pageblock, or
/// has no types.
fn list_type(memory: &Memory, pfn: Pfn, recorded: Migratetype) -> Migratetype {
    let freelist = &memory.policy.freelist;
    if freelist.list_type == ListType::Remembered && freelist.mobility_grouping {
        recorded
    } else {
        memory.block_type(pfn)
    }
}

fn restore_marks(memory: &mut Memory, id: ZoneId, state: &ZoneState) {
    let zone = &mut memory.zones[id.index()];
    zone.set_watermarks(Watermarks { marks: state.watermark, boost: state.watermark_boost });
    zone.flags.boosted_watermark = state.watermark_boost > 0;
    zone.nr_reserved_highatomic = state.nr_reserved_highatomic;
    let pfn =
        |name: &str| Pfn(state.fields.get(name).and_then(|&v| u32::try_from(v).ok()).unwrap_or(0));
    let number =
        |name: &str| state.fields.get(name).and_then(|&v| u8::try_from(v).ok()).unwrap_or(0);
    zone.compact = CompactZone {
        cached_free_pfn: pfn("compact_cached_free_pfn"),
        cached_migrate_pfn: [
            pfn("compact_cached_migrate_pfn_async"),
            pfn("compact_cached_migrate_pfn_sync"),
        ],
        init_free_pfn: pfn("compact_init_free_pfn"),
        init_migrate_pfn: pfn("compact_init_migrate_pfn"),
        blockskip_flush: state.fields.get("compact_blockskip_flush").is_some_and(|&v| v != 0),
        considered: pfn("compact_considered").0,
        defer_shift: number("compact_defer_shift"),
        order_failed: Order(number("compact_order_failed")),
        ..CompactZone::NEW
    };
    for class in 0..NR_ZONE_KINDS {
        zone.lowmem_reserve[class] = state.lowmem_reserve.get(class).copied().unwrap_or(0);
    }
}

fn restore_tuning(memory: &mut Memory, zone: usize, state: &PcpState) {
    let auto_tuned = memory.policy.pcp.high == PcpHigh::AutoTuned;
    let pcp = &mut memory.zones[zone].pcp[state.cpu as usize];
    let field = |name: &str| state.fields.get(name).and_then(|&v| u32::try_from(v).ok());
    let set = |slot: &mut u32, name: &str| {
        if let Some(value) = field(name) {
            *slot = value;
        }
    };
    // What the policy computes from zone sizes is the machine's own where the machine has it.
    set(&mut pcp.batch, "batch");
    if auto_tuned && field("high_min").is_some() {
        set(&mut pcp.high, "high");
        set(&mut pcp.high_min, "high_min");
        set(&mut pcp.high_max, "high_max");
        set(&mut pcp.free_count, "free_count");
        pcp.factor = field("alloc_factor").unwrap_or(0) as u8;
    } else if !auto_tuned && field("high_min").is_none() {
        set(&mut pcp.high, "high");
        pcp.factor = field("free_factor").unwrap_or(0) as u8;
    }
}

/// Frames on no list: in use, reserved, or not there.
fn restore_used(memory: &mut Memory, snapshot: &Snapshot) {
    let uses = snapshot.frame_uses();
    let flags = |pfn: u32| {
        PageFlags::from_bits_retain(snapshot.kpageflags.get(pfn as usize).copied().unwrap_or(0))
    };
    let ends: Vec<_> = memory.zones.iter().map(|z| z.start.0..z.end.0).collect();
    for range in ends {
        let mut pfn = range.start;
        while pfn < range.end {
            let frame = Pfn(pfn);
            if memory.frames().state(frame) != State::Reserved {
                let is_head = memory.frames().state(frame) != State::Inner;
                pfn += if is_head { memory.frames().order(frame).pages() } else { 1 };
                continue;
            }
            let usage = uses.get(pfn as usize).copied().unwrap_or(FrameUse::Unknown);
            pfn += match usage {
                FrameUse::Hole => {
                    memory.restore_hole(frame);
                    1
                }
                FrameUse::Reserved => 1,
                _ => {
                    let is_tail = |p: &u32| {
                        flags(*p).contains(PageFlags::COMPOUND_TAIL)
                            && memory.frames().state(Pfn(*p)) == State::Reserved
                    };
                    let is_head = flags(pfn).contains(PageFlags::COMPOUND_HEAD);
                    let after = if is_head { pfn + 1..range.end } else { 0..0 };
                    let compound = 1 + after.take_while(is_tail).count() as u32;
                    let order = compound.ilog2();
                    let pages = if pfn.trailing_zeros() >= order { 1 << order } else { 1u32 };
                    // A gigantic page is larger than any block.
                    let order = Order(pages.ilog2().min(u32::from(MAX_PAGE_ORDER)) as u8);
                    let (migratetype, is_movable) = mobility(usage);
                    for piece in (pfn..pfn + pages).step_by(order.pages() as usize) {
                        memory.restore_allocated(Pfn(piece), order, migratetype, is_movable);
                    }
                    pages
                }
            };
        }
    }
}

/// The type such memory is asked for with, and whether it can be migrated.
const fn mobility(usage: FrameUse) -> (Migratetype, bool) {
    match usage {
        FrameUse::Anon | FrameUse::File | FrameUse::FileMapped | FrameUse::Huge => {
            (Migratetype::Movable, true)
        }
        FrameUse::SlabReclaimable => (Migratetype::Reclaimable, false),
        _ => (Migratetype::Unmovable, false),
    }
}
