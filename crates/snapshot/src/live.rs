//! A snapshot of the running kernel, as exact as permissions allow, changing nothing on it.
//!
//! | way | takes | gives |
//! |---|---|---|
//! | [`Way::Lists`] | root, `/proc/kcore`, BTF, `/proc/kallsyms` | every list in list order |
//! | [`Way::Frames`] | root, `/proc/kpageflags` | every frame's use and every free block |
//! | [`Way::Counts`] | nothing: `buddyinfo`, `zoneinfo` | counts |
//!
//! [`Way::Best`] goes down this table until one works. What a way could not read and so inferred is
//! a sentence in [`Snapshot::inferred`].
//!
//! Departs: a live machine goes on allocating. The lists are copied twice, and again until two copies
//! agree with each other and with what is read just before and after them: flags and text files. If they
//! never do, each difference is noted, and pages that moved between the reads are left out.

use crate::btf::Btf;
use crate::kallsyms::Symbols;
use crate::kcore::{Kcore, Lists, Machine, Plan, SYMBOLS};
use crate::placed::largest_order;
use crate::recorded::{PCP_FIELDS_MOST, most_of};
use crate::state::{Exactness, FrameUse, FreeBlock, PageblockState, PcpState, Snapshot, ZoneState};
use crate::torn;
use highorder_input::InputError;
use highorder_kernelfs::{Meminfo, PageFlags, Pagetypeinfo, TextFile, Zoneinfo, ZoneinfoZone};
use highorder_mm::types::{MAX_PAGE_ORDER, Migratetype, Order, Pfn, ZoneKind};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The text files that a snapshot keeps, those readable.
pub const TEXT_FILES: [&str; 6] =
    ["vmstat", "buddyinfo", "pagetypeinfo", "zoneinfo", "meminfo", "slabinfo"];
/// 2 MiB ÷ 4 KiB: what x86-64 with huge pages has, where `pagetypeinfo` may not be read.
const PAGEBLOCK_ORDER_X86_64: Order = Order(9);
/// A memory section of x86-64: 128 MiB ÷ 4 KiB.
const FRAMES_PER_SECTION: usize = 1 << 15;
/// A base page in the unit of `/proc/meminfo`.
const KIB_PER_PAGE: u64 = 4;
/// Pages on per-CPU lists may come and go between reading a count and reading the lists.
const PAUSE_BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// How to take a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The most exact way that works.
    Best,
    /// Lists in list order, through `/proc/kcore`.
    Lists,
    /// Frames, through `/proc/kpageflags`.
    Frames,
    /// Counts, through files that everyone may read.
    Counts,
}

/// Where and how to take a snapshot.
pub struct Options<'a> {
    /// How.
    pub way: Way,
    /// `/proc`, or a folder like it.
    pub proc: PathBuf,
    /// `/sys`, or a folder like it.
    pub sys: PathBuf,
    /// Pairs of copies to make before settling for lists that changed meanwhile, or that differ from
    /// the flags and text files read beside them.
    pub tries: u32,
    /// Called once, when the lists (or, without them, the flags) have been copied, before anything else is read. The
    /// moment is told then: what is read after it is noted if it differs, but not tried again.
    pub at_lists: Option<&'a mut dyn FnMut()>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self { way: Way::Best, proc: "/proc".into(), sys: "/sys".into(), tries: 8, at_lists: None }
    }
}

/// Takes a snapshot of the running kernel.
///
/// # Errors
/// If the way that was asked for does not work here; for [`Way::Best`], if none does.
pub fn take(mut options: Options<'_>) -> Result<Snapshot, InputError> {
    match options.way {
        Way::Lists => take_lists(&mut options),
        Way::Frames => take_frames(&mut options),
        Way::Counts => take_counts(&options),
        Way::Best => {
            let no_lists = match take_lists(&mut options) {
                Ok(snapshot) => return Ok(snapshot),
                Err(error) => format!("list order is not known: {error}"),
            };
            let no_frames = match take_frames(&mut options) {
                Ok(mut snapshot) => {
                    snapshot.inferred.insert(0, no_lists);
                    return Ok(snapshot);
                }
                Err(error) => format!("what each frame is used for is not known: {error}"),
            };
            let mut snapshot = take_counts(&options)?;
            snapshot.inferred.splice(0..0, [no_lists, no_frames]);
            Ok(snapshot)
        }
    }
}

/// What the text files said at one moment.
struct Texts {
    files: BTreeMap<String, Vec<u8>>,
}

impl Texts {
    fn read(proc: &Path) -> Self {
        let read = |name: &&str| Some(((*name).to_owned(), fs::read(proc.join(name)).ok()?));
        Self { files: TEXT_FILES.iter().filter_map(read).collect() }
    }

    fn zoneinfo(&self, proc: &Path) -> Result<Zoneinfo, InputError> {
        let path = proc.join("zoneinfo");
        let label = path.display().to_string();
        match self.files.get("zoneinfo") {
            Some(text) => {
                Zoneinfo::parse(&label, text).map_err(|e| InputError::file(label, e.to_string()))
            }
            None => {
                Err(InputError::file(label, "cannot read, expected a file that everyone may read"))
            }
        }
    }

    /// Memory that the kernel manages, in base pages (`MemTotal`).
    fn total_pages(&self) -> Option<u64> {
        let meminfo = Meminfo::parse("meminfo", self.files.get("meminfo")?).ok()?;
        meminfo.get("MemTotal").map(|kib| kib / KIB_PER_PAGE)
    }

    fn pagetypeinfo(&self) -> Option<Pagetypeinfo> {
        Pagetypeinfo::parse("pagetypeinfo", self.files.get("pagetypeinfo")?).ok()
    }

    fn pageblock_order(&self) -> Order {
        let order = self.pagetypeinfo().and_then(|table| table.page_block_order());
        let order = order.and_then(|n| u8::try_from(n).ok()).filter(|&n| n <= MAX_PAGE_ORDER);
        order.map_or(PAGEBLOCK_ORDER_X86_64, Order)
    }
}

/// A snapshot without pages: zones and their counts as `zoneinfo` tells them.
fn skeleton(
    options: &Options<'_>,
    texts: &Texts,
    exactness: Exactness,
) -> Result<Snapshot, InputError> {
    let zoneinfo = texts.zoneinfo(&options.proc)?;
    let mut zones = Vec::new();
    let mut inferred = Vec::new();
    for row in &zoneinfo.zones {
        let Some(start_pfn) = row.start_pfn().filter(|_| row.pages.get("present") > Some(0)) else {
            continue;
        };
        match ZoneKind::from_name(&row.zone) {
            Some(kind) => zones.push(zone_of_row(row, kind, start_pfn)),
            None => {
                inferred.push(format!("node {} zone {} is left out", row.node, row.zone));
            }
        }
    }
    zones.sort_by_key(|zone| (zone.node, zone.kind));
    if zoneinfo.zones.iter().all(|row| row.managed().is_none()) && !zones.is_empty() {
        inferred.push(derive_managed(&mut zones, texts.total_pages()));
    }
    let release = fs::read_to_string(options.proc.join("sys/kernel/osrelease")).ok();
    Ok(Snapshot {
        exactness,
        kernel_release: release.map(|r| r.trim().to_owned()),
        inferred,
        taken_at_s: now_s(),
        nr_frames: zones.iter().map(ZoneState::end_pfn).max().unwrap_or(0),
        pageblock_order: texts.pageblock_order(),
        zones,
        nodes: Vec::new(),
        vmemmap_base: None,
        pageblocks: Vec::new(),
        kpageflags: Vec::new(),
        pagecounts: Vec::new(),
        lru: Vec::new(),
        reclaimable_slabs: None,
        reserved: Vec::new(),
        files: texts.files.clone(),
    })
}

/// Seconds since 1970.
#[expect(clippy::disallowed_types, reason = "a snapshot says when it was taken")]
fn now_s() -> Option<u64> {
    use std::time::{SystemTime, UNIX_EPOCH};
    SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

fn zone_of_row(row: &ZoneinfoZone, kind: ZoneKind, start_pfn: u64) -> ZoneState {
    // More than there can be frames becomes as many as that, which no machine has.
    let pages = |name: &str| row.pages.get(name).unwrap_or(0).min(u32::MAX.into());
    let boost = pages("boost");
    // zoneinfo prints the marks in force, the boost included.
    let watermark = ["min", "low", "high", "promo"].map(|name| pages(name).saturating_sub(boost));
    let pcp = row.pagesets.iter().flatten().map(|set| PcpState {
        cpu: set.cpu,
        fields: set.fields.iter().map(|(name, n)| (name.to_owned(), at_most(name, n))).collect(),
        blocks: Vec::new(),
    });
    ZoneState {
        node: row.node,
        kind,
        start_pfn: Pfn(start_pfn as u32),
        spanned_pages: pages("spanned"),
        present_pages: pages("present"),
        managed_pages: pages("managed"),
        watermark,
        watermark_boost: boost,
        lowmem_reserve: row.protection.pages.iter().map(|&n| n.min(u32::MAX.into())).collect(),
        nr_reserved_highatomic: 0,
        fields: BTreeMap::new(),
        free: Vec::new(),
        pcp: pcp.collect(),
    }
}

/// A field of a CPU's lists, as far as it can be so much.
fn at_most(name: &str, value: u64) -> i64 {
    let value = i64::try_from(value).unwrap_or(i64::MAX);
    most_of(&PCP_FIELDS_MOST, name, value).unwrap_or(value)
}

/// Says how much of each zone the allocator manages where zoneinfo does not (before 3.8, 9feedc9d831e): `MemTotal`
/// is what it manages in all (`totalram_pages`), of which each zone has the share that it has of what is present.
fn derive_managed(zones: &mut [ZoneState], total_pages: Option<u64>) -> String {
    let present: u64 = zones.iter().map(|zone| zone.present_pages).sum();
    let Some(total) = total_pages.filter(|&total| total <= present) else {
        for zone in zones {
            zone.managed_pages = zone.present_pages;
        }
        return "zones are taken to manage all pages that are present: zoneinfo has no `managed`, and \
                meminfo no MemTotal that fits"
            .to_owned();
    };
    let mut left = total;
    let (mut pages, mut of_present) = (total, present);
    for zone in zones {
        let share = u128::from(pages) * u128::from(zone.present_pages);
        // What rounding leaves is the last zone's.
        zone.managed_pages = share.checked_div(u128::from(of_present)).unwrap_or(0) as u64;
        left -= zone.managed_pages;
        (pages, of_present) = (left, of_present - zone.present_pages);
    }
    "managed pages of zones are derived from MemTotal and present pages: zoneinfo has no `managed`"
        .to_owned()
}

// ---------------------------------------------------------------------------------------------
// Counts

fn take_counts(options: &Options<'_>) -> Result<Snapshot, InputError> {
    let texts = Texts::read(&options.proc);
    if !texts.files.contains_key("buddyinfo") {
        let label = options.proc.join("buddyinfo").display().to_string();
        return Err(InputError::file(label, "cannot read, expected a file that everyone may read"));
    }
    let mut snapshot = skeleton(options, &texts, Exactness::Counts)?;
    snapshot.inferred.push("positions of free blocks and uses of frames are not known".into());
    if texts.pagetypeinfo().is_none() {
        snapshot.inferred.push(format!(
            "types of pageblocks are not known; their order is taken to be {PAGEBLOCK_ORDER_X86_64}"
        ));
    }
    snapshot.inferred.push("compaction's state and the highatomic reserve are not known".into());
    Ok(snapshot)
}

// ---------------------------------------------------------------------------------------------
// Frames

fn take_frames(options: &mut Options<'_>) -> Result<Snapshot, InputError> {
    // Once beforehand, to know its length and have memory for it: whoever allocates while reading the flags
    // changes what they say.
    let mut flags = Vec::new();
    read_kpageflags(&options.proc, &mut flags)?;
    let texts = Texts::read(&options.proc);
    let mut snapshot = skeleton(options, &texts, Exactness::Frames)?;
    read_kpageflags(&options.proc, &mut flags)?;
    if let Some(at_flags) = &mut options.at_lists {
        at_flags();
    }
    let after = Texts::read(&options.proc);
    if flags.len() < snapshot.nr_frames as usize {
        let label = options.proc.join("kpageflags").display().to_string();
        let (found, expected) = (flags.len(), snapshot.nr_frames);
        return Err(InputError::file(
            label,
            format!("{found} frames, expected {expected} as in zoneinfo"),
        ));
    }
    snapshot.inferred.extend(mark_absent_sections(&mut flags, &snapshot.zones));
    snapshot.nr_frames = flags.len() as u64;
    snapshot.kpageflags = flags;
    snapshot.inferred.extend([
        "a run of free frames is taken to be the largest aligned blocks that fit it".to_owned(),
        "the order of blocks within a free list is by frame number".to_owned(),
        "compaction's state, the highatomic reserve and LRU lists are not known".to_owned(),
    ]);
    infer_free_blocks(&mut snapshot);
    note_per_cpu_pages(&mut snapshot);
    note_unmanaged(&mut snapshot);
    infer_pageblocks(&mut snapshot, texts.pagetypeinfo().as_ref());
    pick_closer_texts(&mut snapshot, texts, after);
    Ok(snapshot)
}

/// Reads `/proc/kpageflags` into memory that is touched as it is read.
fn read_kpageflags(proc: &Path, flags: &mut Vec<u64>) -> Result<(), InputError> {
    let path = proc.join("kpageflags");
    let mut file = File::open(&path).map_err(|e| InputError::io(&path, "open", &e))?;
    let mut chunk = vec![1u8; 1 << 18];
    flags.clear();
    loop {
        // The kernel wants multiples of eight bytes.
        let mut len = 0;
        while len < chunk.len() {
            match file.read(&mut chunk[len..]) {
                Ok(0) => break,
                Ok(nr) => len += nr,
                Err(error) => return Err(InputError::io(&path, "read", &error)),
            }
        }
        if len == 0 {
            return Ok(());
        }
        flags.extend(chunk[..len].as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)));
    }
}

/// Newer kernels print no flags at all, not even NOPAGE, where there is no memory or where it is
/// offline. A whole section without a single flag is taken to be that: kernel pages without flags
/// never fill 128 MiB.
///
/// The same is seen of memory that is present and that the kernel will only make pages of when it needs
/// them. Returns a sentence for each of both, where there are such sections.
fn mark_absent_sections(flags: &mut [u64], zones: &[ZoneState]) -> Vec<String> {
    let mut absent = Vec::new();
    for (i, section) in flags.chunks_mut(FRAMES_PER_SECTION).enumerate() {
        if section.iter().all(|&flags| flags == 0) {
            section.fill(PageFlags::NOPAGE.bits());
            let start = (i * FRAMES_PER_SECTION) as u64;
            absent.push(start..start + section.len() as u64);
        }
    }
    let in_zone = |zone: &ZoneState| -> u64 {
        let start = u64::from(zone.start_pfn.0);
        let part = |s: &Range<u64>| s.end.min(zone.end_pfn()).saturating_sub(s.start.max(start));
        absent.iter().map(part).sum()
    };
    let mut notes = Vec::new();
    let mut nr_absent: u64 = absent.iter().map(|section| section.end - section.start).sum();
    for zone in zones {
        let nr_holes = zone.nr_holes();
        let nr_waiting = in_zone(zone).saturating_sub(nr_holes);
        if nr_waiting > 0 {
            nr_absent = nr_absent.saturating_sub(nr_waiting);
            notes.push(format!(
                "node {} zone {}: {nr_waiting} frames in sections without any flags are present, but the \
                 kernel has not made pages of them yet",
                zone.node, zone.kind
            ));
        }
    }
    if nr_absent > 0 {
        notes.insert(
            0,
            format!("{nr_absent} frames in sections without any flags are taken to be no memory"),
        );
    }
    notes
}

/// Kernels flag every frame of a free block (4.6 and later), but not where blocks begin: free
/// buddies merge, so that a run can only be its largest aligned blocks. Where buddies may not merge
/// (isolated, CMA and highatomic pageblocks), the counts in buddyinfo show it.
fn infer_free_blocks(snapshot: &mut Snapshot) {
    let is_free = |pfn: u64| {
        PageFlags::from_bits_retain(snapshot.kpageflags[pfn as usize]).contains(PageFlags::BUDDY)
    };
    let mut overlap = 0u64;
    let mut taken_to = 0;
    for zone in &mut snapshot.zones {
        let start = u64::from(zone.start_pfn.0);
        let end = start + zone.spanned_pages;
        // Spans of nodes may overlap; a frame then counts for the zone that comes first.
        let mut pfn = start.max(taken_to.min(end));
        overlap += pfn - start;
        while pfn < end {
            if !is_free(pfn) {
                pfn += 1;
                continue;
            }
            let run_end = (pfn..end).find(|&p| !is_free(p)).unwrap_or(end);
            while pfn < run_end {
                let order = largest_order(pfn, run_end);
                zone.free.push(FreeBlock {
                    pfn: Pfn(pfn as u32),
                    order: Order(order),
                    migratetype: Migratetype::Movable,
                });
                pfn += 1 << order;
            }
        }
        taken_to = taken_to.max(end);
    }
    if overlap > 0 {
        snapshot.inferred.push(format!(
            "{overlap} frames are spanned by two zones and taken to belong to the first"
        ));
    }
}

fn note_per_cpu_pages(snapshot: &mut Snapshot) {
    let nr: u64 = snapshot.zones.iter().map(ZoneState::nr_per_cpu_pages).sum();
    let uses = snapshot.frame_uses();
    let nr_unknown = uses.iter().filter(|usage| **usage == FrameUse::KernelOrPerCpu).count();
    snapshot.inferred.push(format!(
        "{nr} pages are on per-CPU lists, and not known which: {nr_unknown} frames have no flags, as such \
         pages and some of the kernel's have none"
    ));
}

/// Memory that is present but not managed and has no flags looks like kernel memory.
fn note_unmanaged(snapshot: &mut Snapshot) {
    let mut notes = Vec::new();
    for zone in &snapshot.zones {
        let frames = zone.start_pfn.index()..zone.end_pfn() as usize;
        let marked = snapshot.kpageflags[frames]
            .iter()
            .filter(|flags| {
                PageFlags::from_bits_retain(**flags)
                    .intersects(PageFlags::RESERVED | PageFlags::NOPAGE | PageFlags::OFFLINE)
            })
            .count() as u64;
        let unmanaged = zone.spanned_pages - zone.managed_pages.min(zone.spanned_pages);
        let unmarked = unmanaged.saturating_sub(marked);
        if unmarked > u64::from(snapshot.pageblock_order.pages()) {
            notes.push(format!(
                "node {} zone {}: {unmarked} frames are not the allocator's, which is not known of \
                 any page: they look like kernel pages",
                zone.node, zone.kind
            ));
        }
    }
    snapshot.inferred.append(&mut notes);
}

/// Gives each pageblock a type, so that the counts in pagetypeinfo come out.
///
/// In each zone the unmovable and reclaimable blocks are those with slab or page tables and no user
/// pages, then those with the most kernel pages (which per-CPU pages look like too, so that they
/// prove little); of these the ones with the largest share of slab are the reclaimable ones; of the rest,
/// those with the most free pages are the highatomic ones. A free block has its pageblock's type.
fn infer_pageblocks(snapshot: &mut Snapshot, pagetypeinfo: Option<&Pagetypeinfo>) {
    let order = snapshot.pageblock_order;
    let frames = snapshot.nr_frames as usize;
    let block_pages = order.pages() as usize;
    let has_memory: Vec<usize> = (0..frames)
        .step_by(block_pages)
        .filter(|&pfn| {
            let end = (pfn + block_pages).min(frames);
            (pfn..end).any(|p| snapshot.has_memory(Pfn(p as u32)))
        })
        .collect();
    snapshot.pageblocks = has_memory
        .iter()
        .map(|&pfn| PageblockState {
            pfn: Pfn(pfn as u32),
            migratetype: Migratetype::Movable,
            skip: false,
        })
        .collect();
    let Some(table) = pagetypeinfo else {
        snapshot
            .inferred
            .push("every pageblock is taken to be Movable: there is no pagetypeinfo".into());
        return;
    };
    let uses = snapshot.frame_uses();
    let mut types: BTreeMap<Pfn, Migratetype> = BTreeMap::new();
    for zone in &snapshot.zones {
        let wanted = |migratetype: Migratetype| {
            let nr = table.nr_blocks(zone.node, zone.kind.name(), migratetype.name());
            nr.unwrap_or(0) as usize
        };
        let mut blocks: Vec<BlockTally> = snapshot
            .pageblocks_of(zone)
            .filter(|block| !types.contains_key(&block.pfn))
            .map(|block| BlockTally::new(block.pfn, &uses, block_pages))
            .collect();
        let (nr_unmovable, nr_reclaimable) =
            (wanted(Migratetype::Unmovable), wanted(Migratetype::Reclaimable));
        blocks.sort_by_key(|b| std::cmp::Reverse((b.unmovable_rank(), b.pfn)));
        let nr_kernel = (nr_unmovable + nr_reclaimable).min(blocks.len());
        let rest = blocks.split_off(nr_kernel);
        blocks.sort_by_key(|b| (std::cmp::Reverse(b.slab_permille()), b.pfn));
        for (i, block) in blocks.iter().enumerate() {
            let migratetype =
                if i < nr_reclaimable { Migratetype::Reclaimable } else { Migratetype::Unmovable };
            types.insert(block.pfn, migratetype);
        }
        let mut rest = rest;
        rest.sort_by_key(|b| (std::cmp::Reverse(b.nr_free), b.pfn));
        let mut rest = rest.into_iter();
        for migratetype in [Migratetype::HighAtomic, Migratetype::Cma, Migratetype::Isolate] {
            for block in rest.by_ref().take(wanted(migratetype)) {
                types.insert(block.pfn, migratetype);
            }
        }
        types.extend(rest.map(|block| (block.pfn, Migratetype::Movable)));
    }
    for block in &mut snapshot.pageblocks {
        block.migratetype = types.get(&block.pfn).copied().unwrap_or(Migratetype::Movable);
    }
    for block in snapshot.zones.iter_mut().flat_map(|zone| &mut zone.free) {
        let pageblock = block.pfn.align_down(order);
        block.migratetype = types.get(&pageblock).copied().unwrap_or(Migratetype::Movable);
    }
    snapshot.inferred.push(
        "types of pageblocks are inferred from what they hold, to the counts of pagetypeinfo; free \
         blocks have their pageblock's type"
            .into(),
    );
}

struct BlockTally {
    pfn: Pfn,
    nr_pages: usize,
    nr_kernel: usize,
    nr_slab: usize,
    nr_tables: usize,
    nr_user: usize,
    nr_reserved: usize,
    nr_free: usize,
}

impl BlockTally {
    /// Higher for a block that is more likely to be unmovable or reclaimable.
    ///
    /// The last number is for blocks reserved as a whole: the memory map and other memory taken at
    /// boot is unmovable and lies at the end of its zone, whereas a wholly free block is movable.
    fn unmovable_rank(&self) -> (bool, bool, usize, usize) {
        let nr_sure = self.nr_slab + self.nr_tables;
        // A whole block without flags is rather a huge page on a per-CPU list.
        let nr_kernel = if self.nr_kernel == self.nr_pages { 0 } else { self.nr_kernel };
        (nr_sure > self.nr_user, self.nr_user == 0, nr_kernel + nr_sure, self.nr_reserved)
    }

    /// The share of slab among the block's kernel pages.
    fn slab_permille(&self) -> usize {
        1000 * self.nr_slab / (self.nr_kernel + self.nr_slab + self.nr_tables).max(1)
    }

    fn new(pfn: Pfn, uses: &[FrameUse], block_pages: usize) -> Self {
        let mut tally = Self {
            pfn,
            nr_pages: block_pages,
            nr_kernel: 0,
            nr_slab: 0,
            nr_tables: 0,
            nr_user: 0,
            nr_reserved: 0,
            nr_free: 0,
        };
        for frame in &uses[pfn.index()..(pfn.index() + block_pages).min(uses.len())] {
            match frame {
                FrameUse::Kernel | FrameUse::KernelOrPerCpu => tally.nr_kernel += 1,
                FrameUse::PageTable => tally.nr_tables += 1,
                FrameUse::Reserved => tally.nr_reserved += 1,
                FrameUse::Slab | FrameUse::SlabReclaimable => tally.nr_slab += 1,
                FrameUse::Free(_) => tally.nr_free += 1,
                FrameUse::Anon
                | FrameUse::File
                | FrameUse::FileMapped
                | FrameUse::Huge
                | FrameUse::Hugetlb => tally.nr_user += 1,
                _ => {}
            }
        }
        tally
    }
}

/// Keeps the texts, from before or after, that agree better, and notes where they do not.
///
/// Returns the number of differences.
fn pick_closer_texts(snapshot: &mut Snapshot, before: Texts, after: Texts) -> usize {
    snapshot.files = after.files;
    let differ_after = snapshot.check();
    let after = std::mem::replace(&mut snapshot.files, before.files);
    let differ_before = snapshot.check();
    let mut differ = if differ_after.len() < differ_before.len() {
        snapshot.files = after;
        differ_after
    } else {
        differ_before
    };
    let nr_all = differ.len();
    if snapshot.exactness == Exactness::Frames {
        // Types were inferred: that some are wrong is one fact, not a sentence for each order.
        differ.retain(|sentence| !sentence.contains("pagetypeinfo says"));
        if nr_all > differ.len() {
            let nr = nr_all - differ.len();
            differ
                .push(format!("{nr} of the counts in pagetypeinfo differ from the inferred types"));
        }
    }
    snapshot.inferred.extend(differ);
    nr_all
}

// ---------------------------------------------------------------------------------------------
// Lists

fn take_lists(options: &mut Options<'_>) -> Result<Snapshot, InputError> {
    let texts = Texts::read(&options.proc);
    let zoneinfo = texts.zoneinfo(&options.proc)?;
    let kcore = Kcore::open(&options.proc.join("kcore"))?;
    let skeleton = skeleton(options, &texts, Exactness::Lists)?;
    // Once beforehand, to know its length and have memory for it.
    let mut flags = Vec::new();
    read_kpageflags(&options.proc, &mut flags)?;
    let populated = || zoneinfo.zones.iter().filter(|zone| zone.pagesets.is_some());
    let machine = Machine {
        nodes: populated().map(|z| z.node).collect::<BTreeSet<_>>().into_iter().collect(),
        cpus: populated()
            .flat_map(|z| z.pagesets.iter().flatten())
            .map(|set| set.cpu)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect(),
        nr_frames: (flags.len() as u64).max(skeleton.nr_frames),
        pageblock_order: skeleton.pageblock_order,
    };
    let plan = {
        // Dropped again before anything is copied: megabytes of text.
        let path = options.sys.join("kernel/btf/vmlinux");
        let bytes = fs::read(&path).map_err(|e| InputError::io(&path, "read", &e))?;
        let btf = Btf::parse(&path.display().to_string(), &bytes)?;
        let path = options.proc.join("kallsyms");
        let text = fs::read(&path).map_err(|e| InputError::io(&path, "read", &e))?;
        let symbols = Symbols::parse(&path.display().to_string(), &text, &SYMBOLS)?;
        Plan::new(&kcore, &btf, &symbols, &machine)?
    };
    let (mut first, mut second) = (plan.new_copy(), plan.new_copy());
    let tries = options.tries.max(1);
    let mut nr_tries = 0;
    let mut snapshot = loop {
        let before = Texts::read(&options.proc);
        plan.copy(&kcore, &mut first);
        plan.copy(&kcore, &mut second);
        nr_tries += 1;
        let is_stable = plan.is_same(&first, &second);
        if !is_stable && nr_tries < tries {
            std::thread::sleep(PAUSE_BETWEEN_TRIES);
            continue;
        }
        let is_told = options.at_lists.is_some();
        if let Some(at_lists) = &mut options.at_lists {
            at_lists();
        }
        read_kpageflags(&options.proc, &mut flags)?;
        let after = Texts::read(&options.proc);
        let mut snapshot = skeleton.clone();
        let mut lists = plan.lists(&second);
        if !is_stable {
            note_changes(&plan.lists(&first), &lists, nr_tries, &mut snapshot.inferred);
        }
        snapshot.inferred.append(&mut lists.problems);
        snapshot.nr_frames = machine.nr_frames;
        snapshot.vmemmap_base = Some(plan.vmemmap_base());
        snapshot.reclaimable_slabs = plan.reclaimable_slabs(&kcore, &second, &flags);
        set_lists(&mut snapshot, lists, &flags);
        if !is_stable {
            torn::mend(&mut snapshot, second.counts());
        }
        drop_contradictions(&mut snapshot);
        let nr_differ = pick_closer_texts(&mut snapshot, before, after);
        if nr_differ == 0 || is_told || nr_tries >= tries {
            break snapshot;
        }
        // A page that came or went between the reads is enough; nothing of this try is kept.
        drop(snapshot);
        std::thread::sleep(PAUSE_BETWEEN_TRIES);
    };
    snapshot.pagecounts = second.into_counts();
    Ok(snapshot)
}

/// Gives the snapshot what a copy's lists and the flags of all frames say.
fn set_lists(snapshot: &mut Snapshot, lists: Lists, flags: &[u64]) {
    snapshot.zones = lists.zones;
    snapshot.nodes = lists.nodes;
    snapshot.lru = lists.lru;
    snapshot.pageblocks = lists.pageblocks;
    snapshot.kpageflags = flags.to_vec();
    snapshot.kpageflags.resize(snapshot.nr_frames as usize, PageFlags::NOPAGE.bits());
    snapshot.inferred.extend(mark_absent_sections(&mut snapshot.kpageflags, &snapshot.zones));
    let has_memory: Vec<bool> =
        snapshot.pageblocks.iter().map(|b| block_has_memory(snapshot, b.pfn)).collect();
    let mut keep = has_memory.into_iter();
    snapshot.pageblocks.retain(|_| keep.next().unwrap_or(true));
}

fn block_has_memory(snapshot: &Snapshot, pfn: Pfn) -> bool {
    let end = (pfn.0 + snapshot.pageblock_order.pages()).min(snapshot.nr_frames as u32);
    (pfn.0..end).any(|p| snapshot.has_memory(Pfn(p)))
}

fn note_changes(first: &Lists, second: &Lists, nr_tries: u32, inferred: &mut Vec<String>) {
    for (a, b) in first.zones.iter().zip(&second.zones) {
        let blocks = |zone: &ZoneState| -> BTreeSet<(u32, u8)> {
            let pcp = zone.pcp.iter().flat_map(|pcp| &pcp.blocks);
            zone.free.iter().chain(pcp).map(|block| (block.pfn.0, block.order.0)).collect()
        };
        let moved = blocks(a).symmetric_difference(&blocks(b)).count();
        if a.free != b.free || a.pcp != b.pcp {
            inferred.push(format!(
                "node {} zone {}: lists changed while they were copied ({nr_tries} tries), {moved} \
                 blocks came or went",
                b.node, b.kind
            ));
        }
    }
    if first.lru != second.lru {
        inferred.push(format!("LRU lists changed while they were copied ({nr_tries} tries)"));
    }
}

/// Takes off the lists what cannot be: blocks torn by a change during the copy.
fn drop_contradictions(snapshot: &mut Snapshot) {
    let mut taken = vec![false; snapshot.nr_frames as usize];
    let mut dropped = 0usize;
    let mut keep = |block: &FreeBlock, zone: (Pfn, u64)| {
        let range = block.pfn.index()..block.pfn.index() + block.order.pages() as usize;
        let in_zone = block.pfn >= zone.0 && range.end as u64 <= zone.1;
        let is_aligned = block.pfn == block.pfn.align_down(block.order);
        let ok = in_zone && is_aligned && !taken[range.clone()].contains(&true);
        if ok {
            taken[range].fill(true);
        } else {
            dropped += 1;
        }
        ok
    };
    for zone in &mut snapshot.zones {
        let span = (zone.start_pfn, zone.end_pfn());
        zone.free.retain(|block| keep(block, span));
        for pcp in &mut zone.pcp {
            pcp.blocks.retain(|block| keep(block, span));
        }
    }
    let mut corrected = 0;
    for pcp in snapshot.zones.iter_mut().flat_map(|zone| &mut zone.pcp) {
        let listed = pcp.blocks.iter().map(|b| i64::from(b.order.pages())).sum();
        if let Some(count) = pcp.fields.get_mut("count")
            && *count != listed
        {
            *count = listed;
            corrected += 1;
        }
    }
    let mut on_lru = vec![false; snapshot.nr_frames as usize];
    for list in &mut snapshot.lru {
        list.pages.retain(|pfn| {
            let is_new = !std::mem::replace(&mut on_lru[pfn.index()], true);
            dropped += usize::from(!is_new);
            is_new
        });
    }
    snapshot.lru.retain(|list| !list.pages.is_empty());
    if dropped > 0 {
        snapshot
            .inferred
            .push(format!("{dropped} entries of lists that contradicted others were left out"));
    }
    if corrected > 0 {
        snapshot
            .inferred
            .push(format!("{corrected} per-CPU counts were set to what the lists hold"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::zone;

    #[test]
    fn managed_pages_are_shared_out_as_present_pages_are() {
        let zones = |present: [u64; 3]| {
            present.map(|pages| ZoneState { present_pages: pages, ..zone(0, 0, pages.max(1)) })
        };
        let derived = |present, total| {
            let mut zones = zones(present);
            let said = derive_managed(&mut zones, total);
            assert!(said.contains("zoneinfo has no `managed`"), "{said}");
            zones.map(|zone| zone.managed_pages)
        };
        assert_eq!(derived([0, 1000, 3000], Some(3600)), [0, 900, 2700]);
        let odd = derived([7, 11, 13], Some(29));
        assert_eq!(odd.iter().sum::<u64>(), 29, "{odd:?}");
        assert!(odd.iter().zip([7, 11, 13]).all(|(&managed, present)| managed <= present));
        // No MemTotal, or more than there is.
        for total in [None, Some(32)] {
            assert_eq!(derived([7, 11, 13], total), [7, 11, 13]);
        }
    }

    /// Four sections; those named have no flags.
    fn sections(without: &[usize]) -> Vec<u64> {
        let mut flags = vec![PageFlags::SLAB.bits(); 4 * FRAMES_PER_SECTION];
        for i in without {
            flags[i * FRAMES_PER_SECTION..(i + 1) * FRAMES_PER_SECTION].fill(0);
        }
        flags
    }

    #[test]
    fn memory_that_the_kernel_has_no_pages_of_yet_is_not_taken_for_none() {
        let section = FRAMES_PER_SECTION as u64;
        let mut with_hole = zone(0, 0, 2 * section);
        with_hole.present_pages = section;
        let whole = zone(0, 2 * section as u32, 2 * section);
        let zones = [with_hole, whole];
        let mut flags = sections(&[1, 3]);
        let notes = mark_absent_sections(&mut flags, &zones);
        assert_eq!(
            notes,
            [
                "32768 frames in sections without any flags are taken to be no memory",
                "node 0 zone DMA32: 32768 frames in sections without any flags are present, but the \
                 kernel has not made pages of them yet",
            ]
        );
        assert!(
            flags[FRAMES_PER_SECTION..][..FRAMES_PER_SECTION].contains(&PageFlags::NOPAGE.bits())
        );
        assert!(mark_absent_sections(&mut flags, &zones).is_empty());
    }
}
