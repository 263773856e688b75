//! The running kernel's memory through `/proc/kcore`, and the page allocator's lists in it.
//!
//! Reads, never writes: node and zone structures, per-CPU lists, pageblock bits, LRU heads and the
//! whole `struct page` array are copied in large pieces into memory that was touched beforehand, so
//! that the copying itself allocates nothing. The copy is made twice; if both agree nothing moved
//! meanwhile, otherwise it is tried again. Lists are then walked inside the copy. The file's own headers are read
//! here and not by a library for ELF, which wants the file in memory: this one spans the kernel's address space.
//!
//! Models: include/linux/mmzone.h, mm_types.h and mm/slab.h of v6.1 and v6.12 on x86-64 with
//! SPARSEMEM_VMEMMAP. Offsets come from BTF, so that close relatives work too; a member that is
//! missing there is an error that names it.
//! Departs: pages in per-CPU folio batches, on their way to an LRU list, are on none here.

use crate::btf::Btf;
use crate::kallsyms::{Symbols, Vmcoreinfo};
use crate::state::{
    FrameRun, FreeBlock, LruList, NodeState, PageCounts, PageblockState, PcpState, ZoneState,
};
use highorder_input::InputError;
use highorder_kernelfs::PageFlags;
use highorder_mm::types::{COSTLY_ORDER, Migratetype, Order, Pfn, ZoneKind};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Binary logarithm of the frames in a memory section of x86-64: 128 MiB ÷ 4 KiB.
const SECTION_ORDER: u32 = 15;
/// A section's `section_mem_map` has this bit where the section has `struct page`s.
const SECTION_HAS_MEM_MAP: u64 = 1 << 1;
const PAGE_SIZE: usize = 4096;
/// The bit of `kmem_cache.allocflags` that a reclaimable cache asks the page allocator with
/// (`__GFP_RECLAIMABLE`; 0x10 in every kernel so far).
const GFP_RECLAIMABLE: u32 = 0x10;
/// `struct page`s copied by one read.
const PAGES_PER_READ: usize = 4096;
/// Memory cgroups walked before the tree is called broken.
const MEMCGS_MAX: usize = 1 << 16;
const KPF_SLAB: u64 = PageFlags::SLAB.bits();
const KPF_COMPOUND_TAIL: u64 = PageFlags::COMPOUND_TAIL.bits();
/// Members of `struct per_cpu_pages` that say nothing about its lists.
const PCP_FIELDS_IGNORED: [&str; 2] = ["lock", "lists"];

/// Symbols that reading the lists takes.
pub(crate) const SYMBOLS: [&str; 6] = [
    "node_data",
    "__per_cpu_offset",
    "mem_section",
    "vmemmap_base",
    "root_mem_cgroup",
    "contig_page_data",
];

/// The kernel's memory by virtual address: an ELF file whose segments are address ranges.
#[derive(Debug)]
pub struct Kcore {
    label: String,
    file: File,
    segments: Vec<Segment>,
    /// The note that crash dumps carry; empty where the kernel has none.
    pub vmcoreinfo: Vmcoreinfo,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    address: u64,
    offset: u64,
    len: u64,
}

impl Kcore {
    /// Opens `/proc/kcore` and reads its program headers.
    ///
    /// # Errors
    /// If it cannot be opened (not root, locked down, not there) or is no 64-bit ELF core.
    pub fn open(path: &Path) -> Result<Self, InputError> {
        const PT_LOAD: u32 = 1;
        const PT_NOTE: u32 = 4;
        let label = path.display().to_string();
        let file = File::open(path).map_err(|e| InputError::io(path, "open", &e))?;
        let read = |offset: u64, len: usize| {
            let mut bytes = vec![0; len];
            file.read_exact_at(&mut bytes, offset).map_err(|e| InputError::io(path, "read", &e))?;
            Ok::<_, InputError>(bytes)
        };
        let header = read(0, 64)?;
        if header[..6] != *b"\x7fELF\x02\x01" {
            let message = format!("begins with {:02x?}, expected 64-bit ELF", &header[..6]);
            return Err(InputError::file(label, message));
        }
        let (table, size, nr) =
            (u64_at(&header, 32), u16_at(&header, 54) as usize, u16_at(&header, 56));
        if size < 56 {
            return Err(InputError::file(
                label,
                format!("program headers of {size} bytes, expected 56"),
            ));
        }
        let headers = read(table, size * nr as usize)?;
        let mut segments = Vec::new();
        let mut vmcoreinfo = Vmcoreinfo::default();
        for header in headers.chunks_exact(size) {
            let segment = Segment {
                offset: u64_at(header, 8),
                address: u64_at(header, 16),
                len: u64_at(header, 32),
            };
            match u32_at(header, 0) {
                PT_LOAD => segments.push(segment),
                PT_NOTE => {
                    let notes = read(segment.offset, segment.len.min(1 << 24) as usize)?;
                    if let Some(text) = note(&notes, b"VMCOREINFO") {
                        vmcoreinfo = Vmcoreinfo::parse(text);
                    }
                }
                _ => {}
            }
        }
        segments.sort_by_key(|s| s.address);
        Ok(Self { label, file, segments, vmcoreinfo })
    }

    /// Reads memory that must be there.
    ///
    /// # Errors
    /// If some of it is in no segment.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), InputError> {
        let found = self.read_present(address, bytes);
        if found == bytes.len() {
            return Ok(());
        }
        let message = format!("{found} bytes at {address:#x}, expected {}", bytes.len());
        Err(InputError::file(&self.label, message))
    }

    /// Reads what is there, zeroes the rest, and returns how many bytes were there.
    pub fn read_present(&self, address: u64, bytes: &mut [u8]) -> usize {
        let end = address.saturating_add(bytes.len() as u64);
        bytes.fill(0);
        let mut found = 0;
        for segment in &self.segments {
            let from = address.max(segment.address);
            let to = end.min(segment.address.saturating_add(segment.len));
            if from >= to {
                continue;
            }
            let part = &mut bytes[(from - address) as usize..(to - address) as usize];
            let offset = segment.offset + (from - segment.address);
            match self.file.read_exact_at(part, offset) {
                Ok(()) => found += part.len(),
                Err(_) => part.fill(0),
            }
        }
        found.min(bytes.len())
    }

    fn word(&self, address: u64) -> Result<u64, InputError> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// Returns the description of the note called `name`.
fn note<'a>(mut notes: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    while notes.len() >= 12 {
        let (name_len, len) = (u32_at(notes, 0) as usize, u32_at(notes, 4) as usize);
        let start = 12 + name_len.next_multiple_of(4);
        let found = notes.get(12..12 + name_len)?;
        let description = notes.get(start..start + len)?;
        if found.strip_suffix(b"\0").unwrap_or(found) == name {
            return Some(description);
        }
        notes = notes.get(start + len.next_multiple_of(4)..)?;
    }
    None
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn int_at(bytes: &[u8], at: usize, size: usize) -> i64 {
    match size {
        1 => i64::from(bytes[at]),
        2 => i64::from(u16_at(bytes, at)),
        4 => i64::from(u32_at(bytes, at) as i32),
        _ => u64_at(bytes, at) as i64,
    }
}

/// Where everything lies in this kernel's structures.
struct Layout {
    page_size: usize,
    page_lru: usize,
    page_mapcount: usize,
    page_refcount: usize,
    page_private: usize,
    /// `slab.slab_cache` and `kmem_cache.allocflags`, where the kernel has both.
    slab: Option<(usize, usize)>,
    pgdat_size: usize,
    node_zones: usize,
    nr_zones: usize,
    zone_size: usize,
    zone_name: usize,
    zone_pageset: usize,
    free_area: usize,
    free_area_size: usize,
    nr_orders: usize,
    free_list: usize,
    migratetypes: Vec<Option<Migratetype>>,
    watermark: (usize, usize),
    lowmem_reserve: (usize, usize),
    start_pfn: usize,
    spanned: usize,
    present: usize,
    managed: usize,
    boost: usize,
    highatomic: usize,
    zone_fields: Vec<(String, usize, usize)>,
    pcp_size: usize,
    pcp_lists: (usize, usize),
    pcp_fields: Vec<(String, usize, usize)>,
    lruvec_size: usize,
    lruvec_in_pgdat: usize,
    lru_lists: (usize, usize),
    lrugen: Option<LrugenLayout>,
    section_size: usize,
    section_mem_map: usize,
    section_usage: usize,
    usage_bits: usize,
    pageblock_bits: PageblockBits,
    memcg: Option<MemcgLayout>,
}

struct LrugenLayout {
    lists: usize,
    nr_gens: usize,
    max_seq: usize,
    min_seq: usize,
}

/// Which bits of a pageblock hold its type and compaction's skip hint.
#[derive(Clone, Copy)]
struct PageblockBits {
    nr: usize,
    type_mask: u64,
    skip: usize,
}

struct MemcgLayout {
    nodeinfo: usize,
    lruvec: usize,
    children: usize,
    sibling: usize,
    id: usize,
}

impl Layout {
    fn new(btf: &Btf) -> Result<Self, InputError> {
        let offset = |strct: &str, path: &str| btf.field(strct, path).map(|f| f.offset);
        let array = |strct: &str, path: &str| {
            btf.field(strct, path).map(|f| (f.offset, f.dims.first().copied().unwrap_or(1)))
        };
        let free_list = btf.field("free_area", "free_list")?;
        let nr_types = free_list.dims.first().copied().unwrap_or(0);
        let (free_area, nr_orders) = array("zone", "free_area")?;
        let mut zone_fields = Vec::new();
        for name in [
            "percpu_drift_mark",
            "compact_cached_free_pfn",
            "compact_init_migrate_pfn",
            "compact_init_free_pfn",
            "compact_considered",
            "compact_defer_shift",
            "compact_order_failed",
            "compact_blockskip_flush",
        ] {
            let field = btf.field("zone", name)?;
            zone_fields.push((name.to_owned(), field.offset, field.size));
        }
        let cached = btf.field("zone", "compact_cached_migrate_pfn")?;
        for (i, mode) in ["async", "sync"].into_iter().enumerate() {
            let name = format!("compact_cached_migrate_pfn_{mode}");
            zone_fields.push((name, cached.offset + i * cached.element_size(), 8));
        }
        let slab = offset("slab", "slab_cache").ok().zip(offset("kmem_cache", "allocflags").ok());
        let generations =
            btf.field("lruvec", "lrugen.folios").or_else(|_| btf.field("lruvec", "lrugen.lists"));
        let (node_zones, nr_zones) = array("pglist_data", "node_zones")?;
        let lrugen = match generations {
            Ok(lists) => {
                // Generation, anonymous or file, zone. BTF writes the three dimensions as one.
                let nr_lists: usize = lists.dims.iter().product();
                Some(LrugenLayout {
                    lists: lists.offset,
                    nr_gens: nr_lists / (2 * nr_zones),
                    max_seq: offset("lruvec", "lrugen.max_seq")?,
                    min_seq: offset("lruvec", "lrugen.min_seq")?,
                })
            }
            Err(_) => None,
        };
        let memcg = if btf.has_struct("mem_cgroup_per_node") {
            Some(MemcgLayout {
                nodeinfo: offset("mem_cgroup", "nodeinfo")?,
                lruvec: offset("mem_cgroup_per_node", "lruvec")?,
                children: offset("mem_cgroup", "css.children")?,
                sibling: offset("mem_cgroup", "css.sibling")?,
                id: offset("mem_cgroup", "css.id")?,
            })
        } else {
            None
        };
        let pcp_fields = btf
            .integers("per_cpu_pages")?
            .into_iter()
            .filter(|(name, ..)| !PCP_FIELDS_IGNORED.contains(&name.as_str()))
            .collect();
        Ok(Self {
            page_size: btf.struct_size("page")?,
            page_lru: offset("page", "lru")?,
            page_mapcount: offset("page", "_mapcount")?,
            page_refcount: offset("page", "_refcount")?,
            page_private: offset("page", "private")?,
            slab,
            pgdat_size: btf.struct_size("pglist_data")?,
            node_zones,
            nr_zones,
            zone_size: btf.struct_size("zone")?,
            zone_name: offset("zone", "name")?,
            zone_pageset: offset("zone", "per_cpu_pageset")?,
            free_area,
            free_area_size: btf.struct_size("free_area")?,
            nr_orders,
            free_list: free_list.offset,
            migratetypes: migratetypes(btf, nr_types)?,
            watermark: array("zone", "_watermark")?,
            lowmem_reserve: array("zone", "lowmem_reserve")?,
            start_pfn: offset("zone", "zone_start_pfn")?,
            spanned: offset("zone", "spanned_pages")?,
            present: offset("zone", "present_pages")?,
            managed: offset("zone", "managed_pages")?,
            boost: offset("zone", "watermark_boost")?,
            highatomic: offset("zone", "nr_reserved_highatomic")?,
            zone_fields,
            pcp_size: btf.struct_size("per_cpu_pages")?,
            pcp_lists: array("per_cpu_pages", "lists")?,
            pcp_fields,
            lruvec_size: btf.struct_size("lruvec")?,
            lruvec_in_pgdat: offset("pglist_data", "__lruvec")?,
            lru_lists: array("lruvec", "lists")?,
            lrugen,
            section_size: btf.struct_size("mem_section")?,
            section_mem_map: offset("mem_section", "section_mem_map")?,
            section_usage: offset("mem_section", "usage")?,
            usage_bits: offset("mem_section_usage", "pageblock_flags")?,
            pageblock_bits: pageblock_bits(btf)?,
            memcg,
        })
    }

    /// Compares with what the kernel itself says in VMCOREINFO: BTF of another build would not do.
    fn check(&self, info: &Vmcoreinfo) -> Result<(), InputError> {
        for (key, found) in [
            ("SIZE(page)", self.page_size),
            ("SIZE(zone)", self.zone_size),
            ("SIZE(pglist_data)", self.pgdat_size),
            ("SIZE(free_area)", self.free_area_size),
            ("OFFSET(page.lru)", self.page_lru),
            ("OFFSET(page._refcount)", self.page_refcount),
            ("OFFSET(zone.free_area)", self.free_area),
            ("OFFSET(free_area.free_list)", self.free_list),
            ("OFFSET(pglist_data.node_zones)", self.node_zones),
            ("LENGTH(zone.free_area)", self.nr_orders),
            ("LENGTH(free_area.free_list)", self.migratetypes.len()),
        ] {
            if let Some(said) = info.number(key)
                && said != found as u64
            {
                let message = format!("{key} is {said}, expected {found} as BTF has it");
                return Err(InputError::file("VMCOREINFO", message));
            }
        }
        Ok(())
    }
}

/// Maps the kernel's migratetype numbers to ours, by name: CMA and ISOLATE may be missing.
fn migratetypes(btf: &Btf, nr_types: usize) -> Result<Vec<Option<Migratetype>>, InputError> {
    let mut types = vec![None; nr_types];
    for (name, migratetype) in [
        ("MIGRATE_UNMOVABLE", Migratetype::Unmovable),
        ("MIGRATE_MOVABLE", Migratetype::Movable),
        ("MIGRATE_RECLAIMABLE", Migratetype::Reclaimable),
        ("MIGRATE_HIGHATOMIC", Migratetype::HighAtomic),
        ("MIGRATE_CMA", Migratetype::Cma),
        ("MIGRATE_ISOLATE", Migratetype::Isolate),
    ] {
        if let Some(number) = btf.enum_value(name)
            && let Some(slot) = types.get_mut(number as usize)
        {
            *slot = Some(migratetype);
        }
    }
    if types.iter().take(3).any(Option::is_none) {
        return Err(InputError::file(
            "BTF",
            "found no MIGRATE_UNMOVABLE, _MOVABLE and _RECLAIMABLE",
        ));
    }
    Ok(types)
}

fn pageblock_bits(btf: &Btf) -> Result<PageblockBits, InputError> {
    let value = |name: &str| {
        btf.enum_value(name)
            .and_then(|value| usize::try_from(value).ok())
            .ok_or_else(|| InputError::file("BTF", format!("found no {name}, expected it")))
    };
    if btf.enum_value("PB_migrate_isolate").is_some() {
        // 6.16 made isolation a bit of its own beside the type.
        let message = "found PB_migrate_isolate, expected the pageblock bits of 6.15 and before";
        return Err(InputError::file("BTF", message));
    }
    let (first, last) = (value("PB_migrate")?, value("PB_migrate_end")?);
    let bits = PageblockBits {
        nr: value("NR_PAGEBLOCK_BITS")?.next_power_of_two(),
        type_mask: (1u64 << (last - first + 1)) - 1,
        skip: value("PB_migrate_skip")?,
    };
    if first != 0 || bits.nr > 8 {
        return Err(InputError::file("BTF", "pageblock bits unlike those of 6.1 and 6.12"));
    }
    Ok(bits)
}

/// A piece of kernel memory that is copied whole, and where it is in the copy.
#[derive(Clone, Copy)]
struct Region {
    address: u64,
    at: usize,
    len: usize,
}

struct ZonePlan {
    node: u32,
    kind: ZoneKind,
    address: u64,
    at: usize,
    /// Per CPU: its number and the copy of its `per_cpu_pages`.
    pcp: Vec<(u32, Region)>,
}

struct LruPlan {
    node: u32,
    /// Appended to list names: empty for the root, `@memcg7` for the cgroup with that id.
    suffix: String,
    address: u64,
    at: usize,
    is_root: bool,
}

/// What to copy, decided before copying begins.
pub(crate) struct Plan {
    layout: Layout,
    vmemmap_base: u64,
    regions: Vec<Region>,
    regions_len: usize,
    zones: Vec<ZonePlan>,
    lru: Vec<LruPlan>,
    zone_names: Vec<String>,
    /// Sections that have `struct page`s: the first frame, and their pageblock bits in the copy.
    sections: Vec<(u64, usize)>,
    nr_frames: usize,
    pageblock_order: Order,
}

/// What the text files say, needed to find the structures.
pub(crate) struct Machine {
    pub(crate) nodes: Vec<u32>,
    pub(crate) cpus: Vec<u32>,
    pub(crate) nr_frames: u64,
    pub(crate) pageblock_order: Order,
}

/// One copy. All of its memory is touched when it is made.
pub(crate) struct Image {
    bytes: Vec<u8>,
    next: Vec<u64>,
    counts: Vec<PageCounts>,
    slab_cache: Vec<u64>,
    chunk: Vec<u8>,
}

/// Everything that the lists of a copy say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Lists {
    pub(crate) zones: Vec<ZoneState>,
    pub(crate) nodes: Vec<NodeState>,
    pub(crate) lru: Vec<LruList>,
    pub(crate) pageblocks: Vec<PageblockState>,
    /// What was wrong: lists that change while they are read break off.
    pub(crate) problems: Vec<String>,
}

impl Plan {
    pub(crate) fn new(
        kcore: &Kcore,
        btf: &Btf,
        symbols: &Symbols,
        machine: &Machine,
    ) -> Result<Self, InputError> {
        let layout = Layout::new(btf)?;
        layout.check(&kcore.vmcoreinfo)?;
        let symbol = |name: &str| {
            symbols
                .get(name)
                .or_else(|| kcore.vmcoreinfo.symbol(name))
                .ok_or_else(|| InputError::file("kallsyms", format!("found no symbol {name}")))
        };
        for name in SYMBOLS {
            if let (Some(a), Some(b)) = (symbols.get(name), kcore.vmcoreinfo.symbol(name))
                && a != b
                && name != "mem_section"
            {
                let message = format!("{name} is at {a:#x}, expected {b:#x} as VMCOREINFO has it");
                return Err(InputError::file("kallsyms", message));
            }
        }
        let vmemmap_base = kcore.word(symbol("vmemmap_base")?)?;
        let mut plan = Self {
            layout,
            vmemmap_base,
            regions: Vec::new(),
            regions_len: 0,
            zones: Vec::new(),
            lru: Vec::new(),
            zone_names: Vec::new(),
            sections: Vec::new(),
            nr_frames: machine.nr_frames as usize,
            pageblock_order: machine.pageblock_order,
        };
        let per_cpu_offset = symbol("__per_cpu_offset")?;
        let mut cpus = Vec::new();
        for &cpu in &machine.cpus {
            cpus.push((cpu, kcore.word(per_cpu_offset + 8 * u64::from(cpu))?));
        }
        for &node in &machine.nodes {
            let pgdat = match symbols.get("contig_page_data") {
                Some(address) => address,
                None => kcore.word(symbol("node_data")? + 8 * u64::from(node))?,
            };
            plan.add_node(kcore, node, pgdat, &cpus)?;
        }
        if let Some(root) = symbols.get("root_mem_cgroup") {
            plan.add_memcgs(kcore, kcore.word(root)?, &machine.nodes)?;
        }
        // The variable points to the array, whose address is what the crash dump is told.
        let sections = match symbols.get("mem_section") {
            Some(address) => kcore.word(address)?,
            None => symbol("mem_section")?,
        };
        plan.add_sections(kcore, sections)?;
        plan.zones.sort_by_key(|zone| (zone.node, zone.kind));
        Ok(plan)
    }

    fn add(&mut self, address: u64, len: usize) -> Region {
        let region = Region { address, at: self.regions_len, len };
        self.regions_len += len.next_multiple_of(8);
        self.regions.push(region);
        region
    }

    fn add_node(
        &mut self,
        kcore: &Kcore,
        node: u32,
        pgdat: u64,
        cpus: &[(u32, u64)],
    ) -> Result<(), InputError> {
        let mut bytes = vec![0; self.layout.pgdat_size];
        kcore.read(pgdat, &mut bytes)?;
        let region = self.add(pgdat, self.layout.pgdat_size);
        self.zone_names.clear();
        for i in 0..self.layout.nr_zones {
            let at = self.layout.node_zones + i * self.layout.zone_size;
            let mut name = [0; 16];
            kcore.read(u64_at(&bytes, at + self.layout.zone_name), &mut name)?;
            let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
            let name = String::from_utf8_lossy(&name[..end]).into_owned();
            let kind = ZoneKind::from_name(&name);
            self.zone_names.push(name);
            let Some(kind) = kind.filter(|_| u64_at(&bytes, at + self.layout.present) > 0) else {
                continue;
            };
            let pageset = u64_at(&bytes, at + self.layout.zone_pageset);
            let mut pcp = Vec::new();
            for &(cpu, offset) in cpus {
                pcp.push((cpu, self.add(pageset.wrapping_add(offset), self.layout.pcp_size)));
            }
            let (address, at) = (pgdat + at as u64, region.at + at);
            self.zones.push(ZonePlan { node, kind, address, at, pcp });
        }
        let offset = self.layout.lruvec_in_pgdat;
        self.lru.push(LruPlan {
            node,
            suffix: String::new(),
            address: pgdat + offset as u64,
            at: region.at + offset,
            is_root: true,
        });
        Ok(())
    }

    /// Adds the LRU lists of every memory cgroup: with cgroups on, the root's are not the node's.
    fn add_memcgs(&mut self, kcore: &Kcore, root: u64, nodes: &[u32]) -> Result<(), InputError> {
        let Some(memcg) = &self.layout.memcg else { return Ok(()) };
        let (nodeinfo, lruvec, id) = (memcg.nodeinfo, memcg.lruvec, memcg.id);
        let (children, sibling) = (memcg.children as u64, memcg.sibling as u64);
        let mut pending = vec![root];
        let mut nr_seen = 0;
        while let Some(memcg) = pending.pop().filter(|&m| m != 0) {
            nr_seen += 1;
            let mut id_bytes = [0; 4];
            kcore.read(memcg + id as u64, &mut id_bytes)?;
            let suffix = match memcg == root {
                true => String::new(),
                false => format!("@memcg{}", u32::from_le_bytes(id_bytes)),
            };
            for &node in nodes {
                let info = kcore.word(memcg + nodeinfo as u64 + 8 * u64::from(node))?;
                if info == 0 {
                    continue;
                }
                let region = self.add(info + lruvec as u64, self.layout.lruvec_size);
                let (suffix, is_root) = (suffix.clone(), memcg == root);
                let (address, at) = (region.address, region.at);
                self.lru.push(LruPlan { node, suffix, address, at, is_root });
            }
            let head = memcg + children;
            let mut child = kcore.word(head)?;
            while child != head && nr_seen + pending.len() < MEMCGS_MAX {
                pending.push(child - sibling);
                child = kcore.word(child)?;
            }
        }
        Ok(())
    }

    fn add_sections(&mut self, kcore: &Kcore, roots: u64) -> Result<(), InputError> {
        let per_root = PAGE_SIZE / self.layout.section_size;
        let pages_per_section = 1usize << SECTION_ORDER;
        let blocks = pages_per_section >> self.pageblock_order.0;
        let bits_len = (blocks * self.layout.pageblock_bits.nr).div_ceil(64) * 8;
        let mut section = vec![0; self.layout.section_size];
        for number in 0..self.nr_frames.div_ceil(pages_per_section) {
            let root = kcore.word(roots + 8 * (number / per_root) as u64)?;
            if root == 0 {
                continue;
            }
            let offset = number % per_root * self.layout.section_size;
            kcore.read(root + offset as u64, &mut section)?;
            let usage = u64_at(&section, self.layout.section_usage);
            if u64_at(&section, self.layout.section_mem_map) & SECTION_HAS_MEM_MAP == 0 {
                continue;
            }
            let bits = self.add(usage + self.layout.usage_bits as u64, bits_len);
            self.sections.push(((number * pages_per_section) as u64, bits.at));
        }
        if self.sections.is_empty() {
            return Err(InputError::file(
                "/proc/kcore",
                "no memory section has pages, expected some",
            ));
        }
        Ok(())
    }

    pub(crate) fn vmemmap_base(&self) -> u64 {
        self.vmemmap_base
    }

    /// Makes the memory for a copy, all of it touched.
    pub(crate) fn new_copy(&self) -> Image {
        let one = PageCounts { mapcount: 1, refcount: 1, private: 1 };
        Image {
            bytes: vec![1; self.regions_len],
            next: vec![1; self.nr_frames],
            counts: vec![one; self.nr_frames],
            slab_cache: vec![1; if self.layout.slab.is_some() { self.nr_frames } else { 0 }],
            chunk: vec![1; PAGES_PER_READ * self.layout.page_size],
        }
    }

    /// Copies. Allocates nothing.
    pub(crate) fn copy(&self, kcore: &Kcore, copy: &mut Image) {
        for region in &self.regions {
            let part = &mut copy.bytes[region.at..region.at + region.len];
            kcore.read_present(region.address, part);
        }
        let size = self.layout.page_size;
        for &(first, _) in &self.sections {
            let end = (first as usize + (1 << SECTION_ORDER)).min(self.nr_frames);
            for start in (first as usize..end).step_by(PAGES_PER_READ) {
                let nr = PAGES_PER_READ.min(end - start);
                let chunk = &mut copy.chunk[..nr * size];
                kcore.read_present(self.vmemmap_base + (start * size) as u64, chunk);
                for (i, page) in chunk.chunks_exact(size).enumerate() {
                    let pfn = start + i;
                    copy.next[pfn] = u64_at(page, self.layout.page_lru);
                    copy.counts[pfn] = PageCounts {
                        mapcount: u32_at(page, self.layout.page_mapcount) as i32,
                        refcount: u32_at(page, self.layout.page_refcount) as i32,
                        private: u64_at(page, self.layout.page_private),
                    };
                    if let Some((slab_cache, _)) = self.layout.slab {
                        copy.slab_cache[pfn] = u64_at(page, slab_cache);
                    }
                }
            }
        }
    }

    /// Whether no list can have changed between two copies. Allocates nothing.
    pub(crate) fn is_same(&self, a: &Image, b: &Image) -> bool {
        let same = |at: usize, len: usize| a.bytes[at..at + len] == b.bytes[at..at + len];
        let (lists, nr) = self.layout.pcp_lists;
        let free_area_len = self.layout.nr_orders * self.layout.free_area_size;
        self.zones.iter().all(|zone| {
            same(zone.at + self.layout.free_area, free_area_len)
                && zone.pcp.iter().all(|(_, pcp)| same(pcp.at + lists, 16 * nr))
        }) && a.next == b.next
    }

    /// Walks every list of a copy.
    pub(crate) fn lists(&self, copy: &Image) -> Lists {
        let mut lists = Lists::default();
        for plan in &self.zones {
            let zone = self.zone(plan, copy, &mut lists.problems);
            lists.zones.push(zone);
        }
        for plan in &self.lru {
            self.lruvec(plan, copy, &mut lists);
        }
        let bits = self.layout.pageblock_bits;
        let block_pages = self.pageblock_order.pages() as usize;
        for &(first, at) in &self.sections {
            for i in 0..(1usize << SECTION_ORDER) / block_pages {
                let pfn = first as usize + i * block_pages;
                if pfn >= self.nr_frames {
                    break;
                }
                let bit = i * bits.nr;
                let word = u64_at(&copy.bytes, at + bit / 64 * 8) >> (bit % 64);
                let number = (word & bits.type_mask) as usize;
                match self.layout.migratetypes.get(number).copied().flatten() {
                    Some(migratetype) => lists.pageblocks.push(PageblockState {
                        pfn: Pfn(pfn as u32),
                        migratetype,
                        skip: word >> bits.skip & 1 == 1,
                    }),
                    None => lists.problems.push(format!("pageblock {pfn} has type {number}")),
                }
            }
        }
        lists
    }

    fn zone(&self, plan: &ZonePlan, copy: &Image, problems: &mut Vec<String>) -> ZoneState {
        let layout = &self.layout;
        let bytes = &copy.bytes[plan.at..plan.at + layout.zone_size];
        let mut free = Vec::new();
        for order in 0..layout.nr_orders {
            for (number, migratetype) in layout.migratetypes.iter().enumerate() {
                let list = layout.free_area
                    + order * layout.free_area_size
                    + layout.free_list
                    + 16 * number;
                let what = format_args!("node {} zone {} order {order}", plan.node, plan.kind);
                let head = plan.address + list as u64;
                let pages = self.walk(head, u64_at(bytes, list), copy, &what, problems);
                let Some(migratetype) = *migratetype else { continue };
                let order = Order(order as u8);
                free.extend(pages.into_iter().map(|pfn| FreeBlock { pfn, order, migratetype }));
            }
        }
        let mut watermark = [0; 4];
        for (i, mark) in watermark.iter_mut().enumerate().take(layout.watermark.1) {
            *mark = u64_at(bytes, layout.watermark.0 + 8 * i);
        }
        let reserve = (0..layout.lowmem_reserve.1)
            .map(|i| u64_at(bytes, layout.lowmem_reserve.0 + 8 * i))
            .collect();
        ZoneState {
            node: plan.node,
            kind: plan.kind,
            start_pfn: Pfn(u64_at(bytes, layout.start_pfn) as u32),
            spanned_pages: u64_at(bytes, layout.spanned),
            present_pages: u64_at(bytes, layout.present),
            managed_pages: u64_at(bytes, layout.managed),
            watermark,
            watermark_boost: u64_at(bytes, layout.boost),
            lowmem_reserve: reserve,
            nr_reserved_highatomic: u64_at(bytes, layout.highatomic),
            fields: ints(bytes, &layout.zone_fields),
            free,
            pcp: plan.pcp.iter().map(|(cpu, r)| self.pcp(*cpu, *r, copy, problems)).collect(),
        }
    }

    fn pcp(&self, cpu: u32, region: Region, copy: &Image, problems: &mut Vec<String>) -> PcpState {
        let bytes = &copy.bytes[region.at..region.at + region.len];
        let (lists, nr) = self.layout.pcp_lists;
        let mut blocks = Vec::new();
        for i in 0..nr {
            let (order, migratetype) = pcp_list(i, nr);
            let at = lists + 16 * i;
            let what = format_args!("per-CPU list {i} of cpu {cpu}");
            let head = region.address + at as u64;
            let pages = self.walk(head, u64_at(bytes, at), copy, &what, problems);
            blocks.extend(pages.into_iter().map(|pfn| FreeBlock { pfn, order, migratetype }));
        }
        PcpState { cpu, fields: ints(bytes, &self.layout.pcp_fields), blocks }
    }

    fn lruvec(&self, plan: &LruPlan, copy: &Image, lists: &mut Lists) {
        const CLASSIC: [&str; 5] =
            ["inactive_anon", "active_anon", "inactive_file", "active_file", "unevictable"];
        let bytes = &copy.bytes[plan.at..plan.at + self.layout.lruvec_size];
        let node = plan.node;
        let add = |at: usize, name: String, lists: &mut Lists| {
            let first = u64_at(bytes, at);
            // An unevictable list that the kernel no longer keeps has a poisoned head.
            if self.pfn_of(first).is_none() {
                return;
            }
            let what = format_args!("LRU list {name} of node {node}");
            let head = plan.address + at as u64;
            let pages = self.walk(head, first, copy, &what, &mut lists.problems);
            if !pages.is_empty() {
                let name = format!("{name}{}", plan.suffix);
                lists.lru.push(LruList { node, name, pages });
            }
        };
        for (i, name) in CLASSIC.into_iter().enumerate().take(self.layout.lru_lists.1) {
            add(self.layout.lru_lists.0 + 16 * i, name.to_owned(), lists);
        }
        let Some(lrugen) = &self.layout.lrugen else { return };
        let nr_zones = self.layout.nr_zones;
        for g in 0..lrugen.nr_gens {
            for (t, class) in ["anon", "file"].into_iter().enumerate() {
                for (z, zone) in self.zone_names.iter().enumerate() {
                    let at = lrugen.lists + 16 * ((g * 2 + t) * nr_zones + z);
                    add(at, format!("gen{g}_{class}_{zone}"), lists);
                }
            }
        }
        if plan.is_root {
            let mut fields = BTreeMap::new();
            for (name, at) in [
                ("lrugen_max_seq", lrugen.max_seq),
                ("lrugen_min_seq_anon", lrugen.min_seq),
                ("lrugen_min_seq_file", lrugen.min_seq + 8),
            ] {
                fields.insert(name.to_owned(), u64_at(bytes, at) as i64);
            }
            // With memory cgroups on, the root cgroup's come second and are the ones in use.
            lists.nodes.retain(|n| n.node != node);
            lists.nodes.push(NodeState { node, fields });
        }
    }

    /// Follows a list of pages from its head's `next` back to the head.
    fn walk(
        &self,
        head: u64,
        first: u64,
        copy: &Image,
        what: &std::fmt::Arguments<'_>,
        problems: &mut Vec<String>,
    ) -> Vec<Pfn> {
        let mut pages = Vec::new();
        let mut at = first;
        while at != head {
            match self.pfn_of(at) {
                Some(pfn) if pages.len() <= self.nr_frames => {
                    pages.push(pfn);
                    at = copy.next[pfn.index()];
                }
                _ => {
                    problems.push(format!("{what} leads to {at:#x} after {} pages", pages.len()));
                    break;
                }
            }
        }
        pages
    }

    /// The frame whose list node is at this address.
    fn pfn_of(&self, node: u64) -> Option<Pfn> {
        let offset =
            node.checked_sub(self.vmemmap_base)?.checked_sub(self.layout.page_lru as u64)?;
        let pfn = offset / self.layout.page_size as u64;
        let is_page = offset % self.layout.page_size as u64 == 0 && pfn < self.nr_frames as u64;
        is_page.then_some(Pfn(pfn as u32))
    }

    /// Finds the slabs whose cache is reclaimable; `None` where the kernel's types do not tell.
    pub(crate) fn reclaimable_slabs(
        &self,
        kcore: &Kcore,
        copy: &Image,
        kpageflags: &[u64],
    ) -> Option<Vec<FrameRun>> {
        let (_, allocflags) = self.layout.slab?;
        let mut caches: BTreeMap<u64, bool> = BTreeMap::new();
        let mut slabs = Vec::new();
        for (pfn, flags) in kpageflags.iter().enumerate() {
            if flags & KPF_SLAB == 0 || flags & KPF_COMPOUND_TAIL != 0 {
                continue;
            }
            let cache = copy.slab_cache[pfn];
            let is_reclaimable = *caches.entry(cache).or_insert_with(|| {
                let mut bytes = [0; 4];
                kcore.read(cache.wrapping_add(allocflags as u64), &mut bytes).is_ok()
                    && u32::from_le_bytes(bytes) & GFP_RECLAIMABLE != 0
            });
            if is_reclaimable {
                let tails = kpageflags[pfn + 1..]
                    .iter()
                    .take_while(|flags| **flags & KPF_COMPOUND_TAIL != 0)
                    .count();
                slabs.push(FrameRun { pfn: Pfn(pfn as u32), nr_pages: 1 + tails as u32 });
            }
        }
        Some(slabs)
    }
}

impl Image {
    /// The words of every `struct page`.
    pub(crate) fn counts(&self) -> &[PageCounts] {
        &self.counts
    }

    /// Gives the words of every `struct page` away.
    pub(crate) fn into_counts(self) -> Vec<PageCounts> {
        self.counts
    }
}

fn ints(bytes: &[u8], fields: &[(String, usize, usize)]) -> BTreeMap<String, i64> {
    fields.iter().map(|(name, at, size)| (name.clone(), int_at(bytes, *at, *size))).collect()
}

/// What the i-th of `nr` per-CPU lists holds.
///
/// Three mobility types for each order up to the costly one, then huge pages: one list for all of
/// them (6.1), or since 6.10 one for the unmovable kinds and one for movable pages.
fn pcp_list(i: usize, nr: usize) -> (Order, Migratetype) {
    const HUGE: Order = Order(9);
    let nr_low = 3 * (COSTLY_ORDER.index() + 1);
    match i.checked_sub(nr_low) {
        None => (Order((i / 3) as u8), Migratetype::from_index(i % 3)),
        Some(0) if nr == nr_low + 2 => (HUGE, Migratetype::Unmovable),
        Some(_) => (HUGE, Migratetype::Movable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn per_cpu_lists_are_three_types_an_order_then_huge_pages() {
        assert_eq!(pcp_list(0, 13), (Order(0), Migratetype::Unmovable));
        assert_eq!(pcp_list(5, 13), (Order(1), Migratetype::Reclaimable));
        assert_eq!(pcp_list(12, 13), (Order(9), Migratetype::Movable));
        assert_eq!(pcp_list(12, 14), (Order(9), Migratetype::Unmovable));
        assert_eq!(pcp_list(13, 14), (Order(9), Migratetype::Movable));
    }

    #[test]
    fn a_note_is_found_by_name_behind_another() {
        let mut notes = Vec::new();
        for (name, text) in [(&b"CORE\0"[..], &b"abc"[..]), (b"VMCOREINFO\0", b"OSRELEASE=6.1\n")] {
            notes.extend_from_slice(&(name.len() as u32).to_le_bytes());
            notes.extend_from_slice(&(text.len() as u32).to_le_bytes());
            notes.extend_from_slice(&0u32.to_le_bytes());
            for part in [name, text] {
                notes.extend_from_slice(part);
                notes.resize(notes.len().next_multiple_of(4), 0);
            }
        }
        assert_eq!(note(&notes, b"VMCOREINFO"), Some(&b"OSRELEASE=6.1\n"[..]));
        assert_eq!(note(&notes, b"ABSENT"), None);
        assert_eq!(note(&notes[..30], b"VMCOREINFO"), None);
    }

    #[test]
    fn memory_is_read_by_address_across_segments_and_holes_are_zero() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("core");
        let mut elf = vec![0u8; 64 + 2 * 56];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[32] = 64;
        elf[54] = 56;
        elf[56] = 2;
        for (i, (address, offset)) in [(0x1000u64, 512u64), (0x1010, 520)].into_iter().enumerate() {
            let at = 64 + 56 * i;
            elf[at] = 1;
            elf[at + 8..at + 16].copy_from_slice(&offset.to_le_bytes());
            elf[at + 16..at + 24].copy_from_slice(&address.to_le_bytes());
            elf[at + 32..at + 40].copy_from_slice(&8u64.to_le_bytes());
        }
        elf.resize(512, 0);
        elf.extend(1..=16u8);
        std::fs::write(&path, elf).unwrap();
        let kcore = Kcore::open(&path).unwrap();
        let mut bytes = [9; 24];
        assert_eq!(kcore.read_present(0x1000, &mut bytes), 16);
        assert_eq!(bytes[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bytes[8..16], [0; 8]);
        assert_eq!(bytes[16..], [9, 10, 11, 12, 13, 14, 15, 16]);
        assert!(kcore.read(0x1004, &mut [0; 8]).is_err());
    }
}
