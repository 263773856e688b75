//! What every frame of a model's memory holds, as a map, and the picture of it that a record keeps.
//!
//! Departs: of memory that was in use before the model began it knows the mobility alone. Visible as: a
//! machine that was restored from a snapshot shows slab as kernel memory, and page cache as anonymous.
//! Departs: of a machine from a file the few frames are not known that no zone has though they lie in its
//! span. Visible as: they are drawn as reserved.

use highorder_mm::filemap::FileId;
use highorder_mm::frame::{PageFlags, State};
use highorder_mm::kernel_use::KernelUse;
use highorder_mm::memory::Memory;
use highorder_mm::types::{Migratetype, Order, Pfn};
pub use highorder_model::Moment;
use highorder_record::Inputs;
use highorder_report::{Caption, Holders, MapZone, MemoryMap, picture};
use highorder_sim::kernel::Kernel;
use highorder_snapshot::FrameUse;

/// Most cells of a record's picture.
///
/// Our choice: a cell of three uses takes some 47 bytes, every run of an experiment keeps a picture, and a
/// page shows one for each column. On 64 GiB a cell is eight pageblocks, and up to 8 GiB a single one.
const CELLS_MAX: u64 = 4_200;

/// Draws what a run's memory holds, as SVG. Equal memory gives an equal picture.
#[must_use]
pub fn draw(machine: &Kernel, inputs: &Inputs, moment: Moment) -> String {
    let kernel = inputs.kernel.values.get("kernel").unwrap_or(&inputs.kernel.name);
    let when = match moment {
        Moment::Held => "while the workload's memory is mapped",
        Moment::End => "at the end",
    };
    let title = format!("{}, {kernel}, {when}", inputs.machine.name);
    let Inputs { scale, program_version, .. } = inputs;
    let run = format!("{}, scale {scale}, highorder {program_version}", inputs.readable_name());
    let caption = Caption { lines: vec![run], command: None };
    picture::render_coarse(&map_of(title, machine).with_caption(caption), CELLS_MAX)
}

/// The map of a running model, with an empty caption; zones without memory are left out.
#[must_use]
pub fn map_of(title: impl Into<String>, machine: &Kernel) -> MemoryMap {
    map_telling(title.into(), &machine.memory, &|file| machine.is_metadata(file))
}

/// As [`map_of`], of memory alone, which does not tell the pages of a disk's metadata from those of files.
#[must_use]
pub fn map(title: impl Into<String>, memory: &Memory) -> MemoryMap {
    map_telling(title.into(), memory, &|_| false)
}

/// `is_metadata` says which files hold the metadata of a disk, so that their pages are buffers.
fn map_telling(title: String, memory: &Memory, is_metadata: &dyn Fn(FileId) -> bool) -> MemoryMap {
    let zones = memory.zones.iter().filter(|zone| zone.present_pages > 0).map(|zone| MapZone {
        node: zone.node.0,
        kind: zone.kind,
        start: zone.start,
        spanned: u64::from(zone.end.0 - zone.start.0),
        present: zone.present_pages,
        managed: zone.managed_pages,
        per_cpu_somewhere: 0,
    });
    let order = memory.policy.freelist.pageblock_order;
    let (uses, holders) = uses(memory, is_metadata);
    MemoryMap::new(title, order, zones.collect(), uses, pageblocks(memory)).with_holders(holders)
}

/// What every frame is used for, and by whom where the use has no name of its own.
fn uses(memory: &Memory, is_metadata: &dyn Fn(FileId) -> bool) -> (Vec<FrameUse>, Holders) {
    let frames = memory.frames();
    let mut uses = vec![FrameUse::Hole; frames.len()];
    let mut holders = Holders::default();
    let mut pfn = Pfn(0);
    while pfn.index() < uses.len() {
        let order = frames.order(pfn);
        let (usage, pages) = match frames.state(pfn) {
            State::Hole => (FrameUse::Hole, 1),
            State::Reserved => (FrameUse::Reserved, 1),
            State::Free => (FrameUse::Free(order.0), order.pages()),
            State::Pcp => (FrameUse::PerCpu, order.pages()),
            State::Isolated | State::Allocated => {
                if let Some(holder) = holder(memory, pfn) {
                    holders.push(pfn, order.pages(), &holder);
                }
                (content_of(memory, pfn, is_metadata), order.pages())
            }
            State::Inner => panic!("{pfn} lies in no block"),
        };
        uses[pfn.index()..][..pages as usize].fill(usage);
        pfn.0 += pages;
    }
    for table in memory.spaces.table().tables() {
        uses[table.index()] = FrameUse::PageTable;
    }
    (uses, holders)
}

/// Who holds the kernel's block that begins at `head`, where it is a finer thing than its use.
fn holder(memory: &Memory, head: Pfn) -> Option<String> {
    match memory.kernel_use(head)? {
        KernelUse::Slab(cache) => Some(format!("slab {}", cache.name())),
        of @ (KernelUse::Pipe | KernelUse::Module | KernelUse::Metadata) => {
            Some(of.name().to_owned())
        }
        KernelUse::Unknown
        | KernelUse::PageTable
        | KernelUse::KernelStack
        | KernelUse::NetworkBuffer
        | KernelUse::Hugetlb => None,
    }
}

/// What only user memory is: on its way to the LRU lists, on one, or being read or written.
const USER: PageFlags =
    PageFlags::LRU.union(PageFlags::BATCHED).union(PageFlags::LOCKED).union(PageFlags::WRITEBACK);

/// The use of the block in use that begins at `head`, as far as the allocator knows it.
pub(crate) fn content(memory: &Memory, head: Pfn) -> FrameUse {
    content_of(memory, head, &|_| false)
}

/// As [`content`], and buffers are told from other files.
fn content_of(memory: &Memory, head: Pfn, is_metadata: &dyn Fn(FileId) -> bool) -> FrameUse {
    match memory.kernel_use(head) {
        Some(KernelUse::Slab(cache)) if cache.is_reclaimable(&memory.policy.slab) => {
            return FrameUse::SlabReclaimable;
        }
        Some(KernelUse::Slab(_)) => return FrameUse::Slab,
        Some(KernelUse::PageTable) => return FrameUse::PageTable,
        Some(KernelUse::KernelStack) => return FrameUse::KernelStack,
        Some(KernelUse::NetworkBuffer) => return FrameUse::NetworkBuffer,
        Some(KernelUse::Hugetlb) => return FrameUse::Hugetlb,
        Some(KernelUse::Pipe | KernelUse::Module | KernelUse::Metadata) => {
            return FrameUse::Kernel;
        }
        // Told by their mobility below.
        Some(KernelUse::Unknown) | None => {}
    }
    let frames = memory.frames();
    if frames.has(head, PageFlags::PINNED) {
        // Buffers that a journal holds are not told from others: no page flag of a real machine does.
        let of = memory.file_page_at(head);
        let is_buffer = of.is_some_and(|(file, _)| is_metadata(file));
        return if is_buffer { FrameUse::Buffers } else { FrameUse::Pinned };
    }
    let is_anon = frames.has(head, PageFlags::ANON);
    match frames.migratetype(head) {
        _ if is_anon && frames.order(head) > Order(0) => FrameUse::Huge,
        _ if !is_anon && frames.has(head, USER) => match memory.file_page_at(head) {
            Some((file, _)) if is_metadata(file) => FrameUse::Buffers,
            Some(_) if memory.files.mapcount(frames.owner(head)) > 0 => FrameUse::FileMapped,
            _ => FrameUse::File,
        },
        _ if frames.is_movable(head) => FrameUse::Anon,
        Migratetype::Reclaimable => FrameUse::SlabReclaimable,
        _ => FrameUse::Kernel,
    }
}

/// The type of every pageblock that some zone spans, ascending.
pub(crate) fn pageblocks(memory: &Memory) -> Vec<(Pfn, Migratetype)> {
    let order = memory.policy.freelist.pageblock_order;
    let of_zone = |zone: &highorder_mm::zone::Zone| {
        let first = zone.start.align_down(order).0 >> order.0;
        first..zone.end.0.div_ceil(order.pages())
    };
    let mut pageblocks: Vec<_> = memory
        .zones
        .iter()
        .flat_map(of_zone)
        .map(|block| Pfn(block << order.0))
        .map(|pfn| (pfn, memory.block_type(pfn)))
        .collect();
    pageblocks.sort_by_key(|(pfn, _)| *pfn);
    pageblocks.dedup();
    pageblocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use highorder_kernels::KernelFile;
    use highorder_kernels::machine;
    use highorder_mm::alloc::Request;
    use highorder_mm::gfp::Gfp;
    use highorder_mm::page_table::Vpn;
    use highorder_mm::slab::CacheId;
    use highorder_mm::types::{Access, CpuId, MemPolicy, NodeId, ZoneKind};
    use highorder_mm::vma::ProcessId;
    use highorder_report::UseClass;

    /// A block of memory that is nearly all free.
    fn block(memory: &mut Memory, order: u8, gfp: Gfp) -> Pfn {
        let request =
            Request { order: Order(order), gfp, cpu: CpuId(0), node: NodeId(0), past_lists: false };
        memory.alloc_without_reclaim(request).expect("memory is free")
    }

    #[test]
    fn huge_pages_their_tables_and_other_blocks_are_told_apart() {
        let machine = machine::load("one-node-8g").unwrap().scaled(1, 16).unwrap();
        let policy = KernelFile::load("linux-6.12").unwrap().policy;
        let memory = &mut Memory::new(machine.memory(), policy);
        let last = memory.zones.last().expect("a zone").clone();
        memory.release_boot_memory(last.start..last.start + last.managed_pages as u32);
        let at = memory.spaces.mmap(ProcessId(0), 2048, MemPolicy::Default);
        let (huge, table) = (block(memory, 9, Gfp::TRANSHUGE), block(memory, 0, Gfp::KERNEL));
        let fault = memory.touch(at, 1, Access::Write).fault.expect("nothing is mapped yet");
        memory.map_huge(&fault, huge, Some(table), CpuId(0));
        let (table, page) =
            (block(memory, 0, Gfp::KERNEL), block(memory, 0, Gfp::HIGHUSER_MOVABLE));
        let fault = memory.touch(Vpn(at.0 + 1024), 1, Access::Write).fault.expect("nor there");
        memory.map_table(&fault, table);
        memory.map_page(&fault, page, CpuId(0));
        let file = block(memory, 0, Gfp::HIGHUSER_MOVABLE);
        memory.lru_cache_add(file, CpuId(0));
        block(memory, 3, Gfp::KERNEL);
        block(memory, 2, Gfp::KERNEL | Gfp::RECLAIMABLE);
        let found = map("", memory).statistics();
        for (class, frames) in [
            (UseClass::Huge, 512),
            (UseClass::Anon, 1),
            (UseClass::File, 1),
            (UseClass::PageTable, 2),
            (UseClass::Kernel, 8),
            (UseClass::SlabReclaimable, 4),
            (UseClass::Unknown, 0),
        ] {
            assert_eq!(found.of(class), frames, "{class:?}");
        }
        let free: u64 = memory.zones.iter().map(|zone| zone.nr_free_pages).sum();
        assert_eq!(found.free_pages(), free);
    }

    #[test]
    fn the_kernels_own_blocks_and_pages_of_files_are_told_apart_and_named_where_they_pin() {
        let machine = machine::load("one-node-8g").unwrap().scaled(1, 16).unwrap();
        let policy = KernelFile::load("linux-6.12").unwrap().policy;
        let memory = &mut Memory::new(machine.memory(), policy);
        let last = memory.zones.last().expect("a zone").clone();
        memory.release_boot_memory(last.start..last.start + last.managed_pages as u32);
        let uses = [
            (KernelUse::Slab(CacheId::DENTRY), FrameUse::SlabReclaimable),
            (KernelUse::Slab(CacheId::BUFFER_HEAD), FrameUse::SlabReclaimable),
            (KernelUse::Slab(CacheId::kmalloc(64).unwrap()), FrameUse::Slab),
            (KernelUse::PageTable, FrameUse::PageTable),
            (KernelUse::KernelStack, FrameUse::KernelStack),
            (KernelUse::NetworkBuffer, FrameUse::NetworkBuffer),
            (KernelUse::Hugetlb, FrameUse::Hugetlb),
            (KernelUse::Pipe, FrameUse::Kernel),
            (KernelUse::Module, FrameUse::Kernel),
            (KernelUse::Metadata, FrameUse::Kernel),
            (KernelUse::Unknown, FrameUse::Kernel),
        ];
        let mut wanted = Vec::new();
        for (of, usage) in uses {
            let pfn = block(memory, 0, Gfp::KERNEL);
            memory.set_kernel_use(pfn, of);
            wanted.push((pfn, usage));
        }
        let (disk, file) = (memory.files.open(), memory.files.open());
        for (index, (of, usage)) in
            [(disk, FrameUse::Buffers), (file, FrameUse::File), (file, FrameUse::Pinned)]
                .into_iter()
                .enumerate()
        {
            let page = block(memory, 0, Gfp::HIGHUSER_MOVABLE);
            memory.add_to_page_cache(of, index as u64, page, false, CpuId(0));
            if usage == FrameUse::Pinned {
                memory.pin_page(page);
            }
            wanted.push((page, usage));
        }
        let map = map_telling(String::new(), memory, &|file| file == disk);
        for (pfn, usage) in wanted {
            assert_eq!(map.uses[pfn.index()], usage, "{pfn}");
        }
        let pinners = map.statistics().pinners;
        let of = |name: &str| pinners.iter().find(|pinner| pinner.name == name);
        for name in ["slab dentry", "slab kmalloc-64", "kernel stacks", "pipe", "module"] {
            assert_eq!(of(name).map(|pinner| pinner.pages), Some(1), "{name} in {pinners:?}");
        }
        assert!(of("hugetlb").is_none(), "{pinners:?}");
    }

    #[test]
    fn a_picture_of_64_gib_in_pieces_is_no_longer_than_a_page_can_bear() {
        let spanned = 64 << 18;
        let zone = MapZone {
            node: 0,
            kind: ZoneKind::Normal,
            start: Pfn(0),
            spanned,
            present: spanned,
            managed: spanned,
            per_cpu_somewhere: 0,
        };
        // Every pageblock has three uses, in shares that change from one to the next.
        let usage = |frame: u64| match frame % 512 {
            at if at < frame / 512 % 300 => FrameUse::Huge,
            at if at < 400 => FrameUse::Anon,
            _ => FrameUse::Free(0),
        };
        let uses = (0..spanned).map(usage).collect();
        let map = MemoryMap::new("in pieces", Order(9), vec![zone], uses, Vec::new());
        let bytes = picture::render_coarse(&map, CELLS_MAX).len();
        assert!(bytes < 200_000, "{bytes}");
    }
}
