//! A snapshot as a set of files, the form in which recordings of real kernels come.
//!
//! ```text
//! freelist.csv     node,zone,order,migratetype,pos,pfn       pos 0 is the head of its list
//! pcp.csv          node,zone,cpu,order,migratetype,pos,pfn   likewise
//! pcpmeta.csv      node,zone,cpu,count,high,...              the kernel's fields, by header name
//! pageblock.csv    pfn,migratetype,skip
//! lru.csv          node,list,pos,pfn
//! slab.csv         pfn,nr_pages                              slabs of reclaimable caches
//! zones.json       watermarks, spans, compaction state, nr_free of each order; nodes
//! kpageflags.bin   u64 little endian a frame, from frame 0
//! pagecounts.bin   i32 _mapcount, i32 _refcount, u64 private a frame
//! meta.json        how exact, what was inferred (not in recordings: they are exact)
//! buddyinfo ...    the kernel's text files, untouched
//! ```
//!
//! Each may be plain, gzipped (`.gz`) or zstd-compressed (`.zst`). [`parse`](crate::Snapshot::read)
//! checks them against each other: a frame on two lists, a gap in a list's positions, a per-CPU count
//! that its lists do not add up to, a free count that differs from `zones.json`, a block that is
//! misaligned or leaves its zone, a name that no kernel has.

use crate::folder::{DATA_FILES, Folder, ZONES};
use crate::problems::Problems;
use crate::state::{
    Exactness, FrameRun, FreeBlock, LruList, NodeState, PageCounts, PageblockState, PcpState,
    Snapshot, ZoneState,
};
use highorder_files::limits;
use highorder_input::InputError;
use highorder_kernelfs::{Buddyinfo, TextFile};
use highorder_mm::types::{MAX_PAGE_ORDER, Migratetype, NR_PAGE_ORDERS, Order, Pfn, ZoneKind};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Frames per pageblock as a binary logarithm on x86-64 with huge pages: 2 MiB ÷ 4 KiB = 512.
const PAGEBLOCK_ORDER_X86_64: Order = Order(9);
/// What a kernel lets these fields of a zone grow to (`COMPACT_MAX_DEFER_SHIFT`, and two to that power).
const ZONE_FIELDS_MOST: [(&str, i64); 2] = [("compact_defer_shift", 6), ("compact_considered", 64)];
/// What these fields of a CPU's lists can be at most. A kernel's batch is below a hundred pages; a factor is a power of
/// two that a batch grows by, as far as a CPU's lists may.
pub(crate) const PCP_FIELDS_MOST: [(&str, i64); 8] = [
    ("batch", 1024),
    ("alloc_factor", 20),
    ("free_factor", 20),
    ("count", i32::MAX as i64),
    ("high", i32::MAX as i64),
    ("high_min", i32::MAX as i64),
    ("high_max", i32::MAX as i64),
    ("free_count", i32::MAX as i64),
];
const WATERMARKS: [&str; 4] = ["min", "low", "high", "promo"];
/// Keys of a zone in `zones.json` that have a place of their own in [`ZoneState`].
const ZONE_KEYS: [&str; 11] = [
    "node",
    "zone",
    "watermark",
    "lowmem_reserve",
    "watermark_boost",
    "nr_reserved_highatomic",
    "zone_start_pfn",
    "managed_pages",
    "spanned_pages",
    "present_pages",
    "nr_free",
];

impl Snapshot {
    /// Writes the snapshot as a folder of files, in the form of the recordings.
    ///
    /// # Errors
    /// If a file cannot be written, or the snapshot contradicts itself and so could not be read back.
    pub fn write_dir(&self, path: impl AsRef<Path>) -> Result<(), InputError> {
        let path = path.as_ref();
        self.to_folder(&path.display().to_string())?.write_dir(path)
    }

    /// Reads a recorded folder such as `recordings/NAME/state0`.
    pub(crate) fn read_dir(path: &Path) -> Result<Self, InputError> {
        let mut problems = Problems::default();
        let folder = Folder::read_dir(path, &mut problems)?;
        let snapshot = parse(&folder, &mut problems).map(|mut snapshot| {
            if snapshot.kernel_release.is_none() {
                snapshot.kernel_release = release_of_recording(path);
            }
            snapshot
        });
        problems.into_result(snapshot)
    }

    /// Reads the sections of a container.
    pub(crate) fn from_folder(folder: &Folder) -> Result<Self, InputError> {
        let mut problems = Problems::default();
        let snapshot = parse(folder, &mut problems);
        problems.into_result(snapshot)
    }

    /// Renders the files, and proves that they read back as this very snapshot.
    pub(crate) fn to_folder(&self, label: &str) -> Result<Folder, InputError> {
        let folder = render(self, label)?;
        let back = Self::from_folder(&folder)?;
        if back != *self {
            let message = "the snapshot would not read back as it is: expected zones, CPUs, nodes \
                           and pageblocks in ascending order, lists without pages left out";
            return Err(InputError::file(label, message));
        }
        Ok(folder)
    }
}

/// A recording names its kernel in the `case.json` above its states.
fn release_of_recording(state: &Path) -> Option<String> {
    let path = state.canonicalize().ok()?.parent()?.join("case.json");
    let text = highorder_files::read(&path, limits::NOTES).ok()?;
    let case: Value = serde_json::from_slice(&text).ok()?;
    case.get("kernel_release")?.as_str().map(str::to_owned)
}

// ---------------------------------------------------------------------------------------------
// Reading

/// A frame range taken by a row, to find out whether another row takes it too.
struct Claim {
    pfn: u64,
    end: u64,
    file: usize,
    line: u64,
}

/// The rows of one CSV file whose header and column count are right.
struct Table {
    label: String,
    columns: Vec<String>,
    rows: Vec<(u64, csv::StringRecord)>,
}

struct Reader<'a> {
    folder: &'a Folder,
    problems: &'a mut Problems,
    /// Zones by node and kind, as indices into the snapshot's.
    zones: BTreeMap<(u32, ZoneKind), usize>,
    claims: Vec<Claim>,
    claim_files: Vec<String>,
}

fn parse(folder: &Folder, problems: &mut Problems) -> Option<Snapshot> {
    let meta = parse_meta(folder, problems);
    let Some(zones_file) = folder.files.get(ZONES) else {
        problems.add(&folder.label, "found no zones.json, expected one in every recorded state");
        return None;
    };
    let mut state = parse_zones(&zones_file.label, &zones_file.bytes, problems)?;
    let mut files = BTreeMap::new();
    for (name, file) in &folder.files {
        if !DATA_FILES.contains(&name.as_str()) {
            files.insert(name.clone(), file.bytes.clone());
        }
    }
    check_buddyinfo(folder, &state.zones, meta.exactness, problems);
    let pageblock_order = meta
        .pageblock_order
        .or_else(|| pageblock_order_of(files.get("pagetypeinfo")?))
        .unwrap_or(PAGEBLOCK_ORDER_X86_64);
    let mut inferred = meta.inferred;
    inferred.append(&mut state.notes);
    let mut snapshot = Snapshot {
        exactness: meta.exactness,
        kernel_release: meta.kernel_release,
        inferred,
        taken_at_s: meta.taken_at_s,
        nr_frames: state.nr_frames,
        pageblock_order,
        zones: state.zones,
        nodes: state.nodes,
        vmemmap_base: state.vmemmap_base,
        pageblocks: Vec::new(),
        kpageflags: Vec::new(),
        pagecounts: Vec::new(),
        lru: Vec::new(),
        reclaimable_slabs: None,
        reserved: Vec::new(),
        files,
    };
    let zones = snapshot.zones.iter().enumerate().map(|(i, z)| ((z.node, z.kind), i)).collect();
    let mut reader =
        Reader { folder, problems, zones, claims: Vec::new(), claim_files: Vec::new() };
    reader.free_lists(&mut snapshot);
    reader.check_nr_free(&snapshot, &state.nr_free, &zones_file.label);
    reader.pcp_meta(&mut snapshot);
    reader.pcp_lists(&mut snapshot);
    reader.check_claims();
    reader.pageblocks(&mut snapshot);
    reader.lru(&mut snapshot);
    reader.check_claims();
    reader.slabs(&mut snapshot);
    reader.check_claims();
    reader.kpageflags(&mut snapshot);
    reader.pagecounts(&mut snapshot);
    problems.is_empty().then_some(snapshot)
}

/// What counts alone are placed by has to be readable, and to count every zone's blocks where nothing else does.
fn check_buddyinfo(
    folder: &Folder,
    zones: &[ZoneState],
    exactness: Exactness,
    problems: &mut Problems,
) {
    let Some(file) = folder.files.get("buddyinfo") else { return };
    let table = match Buddyinfo::parse(&file.label, &file.bytes) {
        Ok(table) => table,
        Err(error) => return problems.append(&error),
    };
    for zone in zones.iter().filter(|_| exactness == Exactness::Counts) {
        if table.zone(zone.node, zone.kind.name()).is_none() {
            let zone = format!("node {} zone {}", zone.node, zone.kind);
            problems.add(&file.label, format!("found no {zone}, expected every zone of {ZONES}"));
        }
    }
}

impl Reader<'_> {
    fn free_lists(&mut self, snapshot: &mut Snapshot) {
        let columns = ["node", "zone", "order", "migratetype", "pos", "pfn"];
        let Some(table) = self.table("freelist.csv", &columns, snapshot.exactness) else { return };
        let file = self.claim_file(&table.label);
        let mut next_pos = BTreeMap::new();
        for (line, row) in &table.rows {
            let at = At { label: &table.label, line: *line };
            let zone = self.zone(&at, &row[0], &row[1]);
            let block = self.block(&at, &row[2], &row[3], &row[5]);
            let pos = self.number(&at, "pos", &row[4]);
            let (Some(zone), Some(block), Some(pos)) = (zone, block, pos) else { continue };
            let list = (zone, block.order, block.migratetype);
            self.check_pos(&at, next_pos.entry(list).or_insert(0), pos);
            self.check_in_zone(&at, &snapshot.zones[zone], &block);
            self.claim(file, *line, block.pfn, block.order.pages());
            snapshot.zones[zone].free.push(block);
        }
    }

    fn check_nr_free(&mut self, snapshot: &Snapshot, expected: &[Option<Vec<u64>>], label: &str) {
        for (zone, expected) in snapshot.zones.iter().zip(expected) {
            let Some(expected) = expected else { continue };
            for (order, found) in zone.nr_free().into_iter().enumerate() {
                let said = expected.get(order).copied().unwrap_or(0);
                if said != found {
                    let message = format!(
                        "node {} zone {}: nr_free of order {order} is {said}, expected {found}, \
                         the blocks in freelist.csv",
                        zone.node, zone.kind
                    );
                    self.problems.add(label, message);
                }
            }
        }
    }

    fn pcp_meta(&mut self, snapshot: &mut Snapshot) {
        let Some(table) =
            self.table("pcpmeta.csv", &["node", "zone", "cpu", ".."], snapshot.exactness)
        else {
            return;
        };
        for (line, row) in &table.rows {
            let at = At { label: &table.label, line: *line };
            let zone = self.zone(&at, &row[0], &row[1]);
            let cpu = self.number::<u32>(&at, "cpu", &row[2]);
            let mut fields = BTreeMap::new();
            for (name, text) in table.columns.iter().zip(row).skip(3) {
                let Some(value) = self.number::<i64>(&at, name, text) else { continue };
                match most_of(&PCP_FIELDS_MOST, name, value) {
                    Some(most) => self.bad(
                        &at,
                        format!("`{name}` is {value}, expected a whole number up to {most}"),
                    ),
                    None => drop(fields.insert(name.clone(), value)),
                }
            }
            let (Some(zone), Some(cpu)) = (zone, cpu) else { continue };
            let pcp = &mut snapshot.zones[zone].pcp;
            if pcp.iter().any(|p| p.cpu == cpu) {
                let message = format!("found cpu {cpu} of this zone again, expected it once");
                self.problems.add_line(at.label, at.line, message);
                continue;
            }
            pcp.push(PcpState { cpu, fields, blocks: Vec::new() });
        }
        for zone in &mut snapshot.zones {
            zone.pcp.sort_by_key(|p| p.cpu);
        }
    }

    fn pcp_lists(&mut self, snapshot: &mut Snapshot) {
        let columns = ["node", "zone", "cpu", "order", "migratetype", "pos", "pfn"];
        let Some(table) = self.table("pcp.csv", &columns, snapshot.exactness) else { return };
        let file = self.claim_file(&table.label);
        let mut next_pos = BTreeMap::new();
        for (line, row) in &table.rows {
            let at = At { label: &table.label, line: *line };
            let zone = self.zone(&at, &row[0], &row[1]);
            let cpu = self.number::<u32>(&at, "cpu", &row[2]);
            let block = self.block(&at, &row[3], &row[4], &row[6]);
            let pos = self.number(&at, "pos", &row[5]);
            let (Some(zone), Some(cpu), Some(block), Some(pos)) = (zone, cpu, block, pos) else {
                continue;
            };
            let list = (zone, cpu, block.order, block.migratetype);
            self.check_pos(&at, next_pos.entry(list).or_insert(0), pos);
            self.check_in_zone(&at, &snapshot.zones[zone], &block);
            self.claim(file, *line, block.pfn, block.order.pages());
            match snapshot.zones[zone].pcp.iter_mut().find(|p| p.cpu == cpu) {
                Some(pcp) => pcp.blocks.push(block),
                None => {
                    let message = format!("found cpu {cpu}, expected one that pcpmeta.csv has");
                    self.problems.add_line(at.label, at.line, message);
                }
            }
        }
        if snapshot.exactness == Exactness::Lists {
            self.check_pcp_counts(snapshot, &table.label);
        }
    }

    fn check_pcp_counts(&mut self, snapshot: &Snapshot, label: &str) {
        for zone in &snapshot.zones {
            for pcp in &zone.pcp {
                let listed: i64 = pcp.blocks.iter().map(|b| i64::from(b.order.pages())).sum();
                if let Some(&count) = pcp.fields.get("count")
                    && count != listed
                {
                    let message = format!(
                        "node {} zone {} cpu {}: the lists hold {listed} pages, expected {count}, \
                         the count in pcpmeta.csv",
                        zone.node, zone.kind, pcp.cpu
                    );
                    self.problems.add(label, message);
                }
            }
        }
    }

    fn pageblocks(&mut self, snapshot: &mut Snapshot) {
        let columns = ["pfn", "migratetype", "skip"];
        let Some(table) = self.table("pageblock.csv", &columns, snapshot.exactness) else { return };
        let order = snapshot.pageblock_order;
        for (line, row) in &table.rows {
            let at = At { label: &table.label, line: *line };
            let pfn = self.number::<u32>(&at, "pfn", &row[0]).map(Pfn);
            let migratetype = self.migratetype(&at, &row[1]);
            let skip = match &row[2] {
                "0" => Some(false),
                "1" => Some(true),
                other => {
                    self.bad(&at, format!("`skip` is `{other}`, expected 0 or 1"));
                    None
                }
            };
            let (Some(pfn), Some(migratetype), Some(skip)) = (pfn, migratetype, skip) else {
                continue;
            };
            if pfn != pfn.align_down(order) {
                let message = format!("pageblock {} is not aligned, expected order {order}", pfn.0);
                self.bad(&at, message);
            }
            if u64::from(pfn.0) >= snapshot.nr_frames {
                let message =
                    format!("pageblock {} lies beyond npfn {}", pfn.0, snapshot.nr_frames);
                self.bad(&at, message);
            }
            if let Some(last) = snapshot.pageblocks.last()
                && last.pfn >= pfn
            {
                let message =
                    format!("pageblock {} after {}, expected ascending ones", pfn.0, last.pfn.0);
                self.bad(&at, message);
            }
            snapshot.pageblocks.push(PageblockState { pfn, migratetype, skip });
        }
    }

    fn lru(&mut self, snapshot: &mut Snapshot) {
        if !self.folder.files.contains_key("lru.csv") {
            return;
        }
        let columns = ["node", "list", "pos", "pfn"];
        let Some(table) = self.table("lru.csv", &columns, snapshot.exactness) else { return };
        let file = self.claim_file(&table.label);
        let mut lists: BTreeMap<(u32, String), usize> = BTreeMap::new();
        for (line, row) in &table.rows {
            let at = At { label: &table.label, line: *line };
            let node = self.number::<u32>(&at, "node", &row[0]);
            let pos = self.number::<u64>(&at, "pos", &row[2]);
            let pfn = self.number::<u32>(&at, "pfn", &row[3]);
            let (Some(node), Some(pos), Some(pfn)) = (node, pos, pfn) else { continue };
            if u64::from(pfn) >= snapshot.nr_frames {
                self.bad(&at, format!("pfn {pfn} lies beyond npfn {}", snapshot.nr_frames));
            }
            let index = *lists.entry((node, row[1].to_owned())).or_insert_with(|| {
                let name = row[1].to_owned();
                snapshot.lru.push(LruList { node, name, pages: Vec::new() });
                snapshot.lru.len() - 1
            });
            let pages = &mut snapshot.lru[index].pages;
            self.check_pos(&at, &mut (pages.len() as u64), pos);
            pages.push(Pfn(pfn));
            self.claim(file, *line, Pfn(pfn), 1);
        }
    }

    fn slabs(&mut self, snapshot: &mut Snapshot) {
        if !self.folder.files.contains_key("slab.csv") {
            return;
        }
        let Some(table) = self.table("slab.csv", &["pfn", "nr_pages"], snapshot.exactness) else {
            return;
        };
        let file = self.claim_file(&table.label);
        let mut slabs: Vec<FrameRun> = Vec::new();
        for (line, row) in &table.rows {
            let at = At { label: &table.label, line: *line };
            let pfn = self.number::<u32>(&at, "pfn", &row[0]).map(Pfn);
            let nr_pages = self.number::<u32>(&at, "nr_pages", &row[1]);
            let (Some(pfn), Some(nr_pages)) = (pfn, nr_pages) else { continue };
            if nr_pages == 0 || u64::from(pfn.0) + u64::from(nr_pages) > snapshot.nr_frames {
                let message = format!(
                    "{nr_pages} pages from pfn {}, expected some below npfn {}",
                    pfn.0, snapshot.nr_frames
                );
                self.bad(&at, message);
            }
            if slabs.last().is_some_and(|last| last.pfn >= pfn) {
                self.bad(&at, format!("slab at pfn {}, expected ascending ones", pfn.0));
            }
            self.claim(file, *line, pfn, nr_pages);
            slabs.push(FrameRun { pfn, nr_pages });
        }
        snapshot.reclaimable_slabs = Some(slabs);
    }

    fn kpageflags(&mut self, snapshot: &mut Snapshot) {
        if let Some(bytes) = self.binary("kpageflags.bin", 8, snapshot) {
            let words = bytes.as_chunks::<8>().0.iter();
            snapshot.kpageflags = words.map(|word| u64::from_le_bytes(*word)).collect();
        }
    }

    fn pagecounts(&mut self, snapshot: &mut Snapshot) {
        if let Some(bytes) = self.binary("pagecounts.bin", 16, snapshot) {
            let records = bytes.as_chunks::<16>().0.iter();
            snapshot.pagecounts = records
                .map(|record| {
                    let word = u128::from_le_bytes(*record);
                    PageCounts {
                        mapcount: word as u32 as i32,
                        refcount: (word >> 32) as u32 as i32,
                        private: (word >> 64) as u64,
                    }
                })
                .collect();
        }
    }

    /// Returns a binary file of `size` bytes a frame, if the folder has it.
    fn binary(&mut self, name: &str, size: u64, snapshot: &Snapshot) -> Option<&[u8]> {
        let file = self.folder.files.get(name)?;
        let expected = snapshot.nr_frames.checked_mul(size);
        if expected != Some(file.bytes.len() as u64) {
            let message = format!(
                "holds {} bytes, expected {size} for each of npfn {} frames",
                file.bytes.len(),
                snapshot.nr_frames
            );
            self.problems.add(&file.label, message);
            return None;
        }
        Some(&file.bytes)
    }

    /// Returns the rows of a CSV file; `..` as the last of `columns` allows any more.
    ///
    /// A snapshot of lists must have the file, others may leave it out.
    fn table(&mut self, name: &str, columns: &[&str], exactness: Exactness) -> Option<Table> {
        let Some(file) = self.folder.files.get(name) else {
            if exactness == Exactness::Lists {
                self.problems.add(&self.folder.label, format!("found no {name}, expected one"));
            }
            return None;
        };
        let mut csv = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .from_reader(file.bytes.as_slice());
        let mut table = Table { label: file.label.clone(), columns: Vec::new(), rows: Vec::new() };
        // One record for all rows, which grows to the longest of them: what is kept of a row is as long as that is.
        let mut record = csv::StringRecord::new();
        loop {
            match csv.read_record(&mut record) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    let line = error.position().map_or(0, csv::Position::line);
                    self.problems.add_line(&table.label, line, format!("not CSV text: {error}"));
                    continue;
                }
            }
            let line = record.position().map_or(0, csv::Position::line);
            if let Err(message) = limits::COLUMNS.check(record.len() as u64) {
                self.problems.add_line(&table.label, line, message);
                return None;
            }
            if table.columns.is_empty() {
                table.columns = record.iter().map(str::to_owned).collect();
                let fixed = columns.strip_suffix(&[".."]).unwrap_or(columns);
                let open = fixed.len() < columns.len();
                let ok = table.columns.iter().zip(fixed).all(|(found, name)| found == name)
                    && (table.columns.len() == fixed.len()
                        || open && table.columns.len() > fixed.len());
                if !ok {
                    let message = format!(
                        "the header is `{}`, expected `{}`",
                        table.columns.join(","),
                        columns.join(",")
                    );
                    self.problems.add_line(&table.label, line, message);
                    return None;
                }
            } else if record.len() != table.columns.len() {
                let message = format!(
                    "found {} columns, expected {} ({})",
                    record.len(),
                    table.columns.len(),
                    table.columns.join(",")
                );
                self.problems.add_line(&table.label, line, message);
            } else {
                table.rows.push((line, record.iter().collect()));
            }
        }
        if table.columns.is_empty() {
            self.problems.add(&table.label, format!("is empty, expected `{}`", columns.join(",")));
            return None;
        }
        Some(table)
    }

    fn bad(&mut self, at: &At<'_>, message: impl Into<String>) {
        self.problems.add_line(at.label, at.line, message);
    }

    fn number<T: std::str::FromStr>(&mut self, at: &At<'_>, name: &str, text: &str) -> Option<T> {
        let number = text.parse().ok().filter(|_| !text.starts_with('+'));
        if number.is_none() {
            self.bad(at, format!("`{name}` is `{text}`, expected a whole number in range"));
        }
        number
    }

    fn zone(&mut self, at: &At<'_>, node: &str, name: &str) -> Option<usize> {
        let node = self.number::<u32>(at, "node", node)?;
        let Some(kind) = ZoneKind::from_name(name) else {
            let names: Vec<_> = ZoneKind::ALL.iter().map(|k| k.name()).collect();
            self.bad(at, format!("zone is `{name}`, expected one of {}", names.join(", ")));
            return None;
        };
        let index = self.zones.get(&(node, kind)).copied();
        if index.is_none() {
            self.bad(at, format!("found node {node} zone {kind}, expected one in zones.json"));
        }
        index
    }

    fn migratetype(&mut self, at: &At<'_>, name: &str) -> Option<Migratetype> {
        let migratetype = Migratetype::from_name(name);
        if migratetype.is_none() {
            let names: Vec<_> = Migratetype::ALL.iter().map(|m| m.name()).collect();
            self.bad(at, format!("migratetype is `{name}`, expected one of {}", names.join(", ")));
        }
        migratetype
    }

    fn block(&mut self, at: &At<'_>, order: &str, name: &str, pfn: &str) -> Option<FreeBlock> {
        let order = self.number::<u8>(at, "order", order).map(Order);
        let migratetype = self.migratetype(at, name);
        let pfn = self.number::<u32>(at, "pfn", pfn).map(Pfn);
        let order = order?;
        if order.0 > MAX_PAGE_ORDER {
            self.bad(at, format!("`order` is {order}, expected 0..={MAX_PAGE_ORDER}"));
            return None;
        }
        let block = FreeBlock { pfn: pfn?, order, migratetype: migratetype? };
        if block.pfn != block.pfn.align_down(order) {
            let pfn = block.pfn.0;
            self.bad(
                at,
                format!("pfn {pfn} is not aligned, expected a multiple of {}", order.pages()),
            );
        }
        Some(block)
    }

    fn check_in_zone(&mut self, at: &At<'_>, zone: &ZoneState, block: &FreeBlock) {
        if !zone.spans(block.pfn, block.order.pages()) {
            let message = format!(
                "the block of order {} at pfn {} leaves its zone, expected pfns in {}..{}",
                block.order,
                block.pfn.0,
                zone.start_pfn.0,
                zone.end_pfn()
            );
            self.bad(at, message);
        }
    }

    fn check_pos(&mut self, at: &At<'_>, next: &mut u64, pos: u64) {
        if pos != *next {
            self.bad(at, format!("`pos` is {pos}, expected {next}, the next of its list"));
        }
        *next = pos.saturating_add(1);
    }

    fn claim_file(&mut self, label: &str) -> usize {
        self.claim_files.push(label.to_owned());
        self.claim_files.len() - 1
    }

    fn claim(&mut self, file: usize, line: u64, pfn: Pfn, nr_pages: u32) {
        let pfn = u64::from(pfn.0);
        self.claims.push(Claim { pfn, end: pfn + u64::from(nr_pages), file, line });
    }

    /// Reports every row whose frames an earlier row has, and forgets the rows.
    fn check_claims(&mut self) {
        let mut claims = std::mem::take(&mut self.claims);
        claims.sort_by_key(|c| (c.pfn, c.file, c.line));
        let mut widest: Option<&Claim> = None;
        for claim in &claims {
            if let Some(other) = widest.filter(|w| claim.pfn < w.end) {
                let (first, second) = if (other.file, other.line) < (claim.file, claim.line) {
                    (other, claim)
                } else {
                    (claim, other)
                };
                let message = format!(
                    "pfn {} is already taken by {}:{}, expected every page on one list",
                    claim.pfn, self.claim_files[first.file], first.line
                );
                self.problems.add_line(&self.claim_files[second.file], second.line, message);
            }
            if widest.is_none_or(|w| claim.end > w.end) {
                widest = Some(claim);
            }
        }
    }
}

/// The most that a field can be, if it is more.
pub(crate) fn most_of(fields: &[(&str, i64)], name: &str, value: i64) -> Option<i64> {
    fields.iter().find(|&&(field, most)| field == name && value > most).map(|&(_, most)| most)
}

struct At<'a> {
    label: &'a str,
    line: u64,
}

/// What `meta.json` holds; a recording without it is exact.
struct Meta {
    exactness: Exactness,
    kernel_release: Option<String>,
    inferred: Vec<String>,
    taken_at_s: Option<u64>,
    pageblock_order: Option<Order>,
}

fn parse_meta(folder: &Folder, problems: &mut Problems) -> Meta {
    let mut meta = Meta {
        exactness: Exactness::Lists,
        kernel_release: None,
        inferred: Vec::new(),
        taken_at_s: None,
        pageblock_order: None,
    };
    let Some(file) = folder.files.get("meta.json") else { return meta };
    let value = match serde_json::from_slice::<Map<String, Value>>(&file.bytes) {
        Ok(value) => value,
        Err(error) => {
            problems.add_line(&file.label, error.line() as u64, format!("not JSON: {error}"));
            return meta;
        }
    };
    for (key, value) in &value {
        let ok = match key.as_str() {
            "exactness" => match value.as_str().and_then(Exactness::from_name) {
                Some(exactness) => {
                    meta.exactness = exactness;
                    true
                }
                None => false,
            },
            "kernel_release" => {
                meta.kernel_release = value.as_str().map(str::to_owned);
                meta.kernel_release.is_some()
            }
            "taken_at_s" => {
                meta.taken_at_s = value.as_u64();
                meta.taken_at_s.is_some()
            }
            "pageblock_order" => {
                let order = value.as_u64().and_then(|n| u8::try_from(n).ok());
                meta.pageblock_order = order.filter(|&n| n <= MAX_PAGE_ORDER).map(Order);
                meta.pageblock_order.is_some()
            }
            "inferred" => match value.as_array() {
                Some(notes) if notes.iter().all(Value::is_string) => {
                    meta.inferred.extend(notes.iter().filter_map(Value::as_str).map(str::to_owned));
                    true
                }
                _ => false,
            },
            _ => false,
        };
        if !ok {
            let message = format!(
                "`{key}` is {value}, expected exactness (counts, frames or lists), kernel_release, \
                 inferred (sentences), taken_at_s or pageblock_order (0..={MAX_PAGE_ORDER})"
            );
            problems.add(&file.label, message);
        }
    }
    meta
}

/// What `zones.json` holds.
struct ZonesFile {
    nr_frames: u64,
    vmemmap_base: Option<u64>,
    zones: Vec<ZoneState>,
    nr_free: Vec<Option<Vec<u64>>>,
    nodes: Vec<NodeState>,
    notes: Vec<String>,
}

fn parse_zones(label: &str, bytes: &[u8], problems: &mut Problems) -> Option<ZonesFile> {
    let value = match serde_json::from_slice::<Map<String, Value>>(bytes) {
        Ok(value) => value,
        Err(error) => {
            problems.add_line(label, error.line() as u64, format!("not JSON: {error}"));
            return None;
        }
    };
    let Some(nr_frames) = value.get("npfn").and_then(Value::as_u64) else {
        problems.add(label, "found no `npfn`, expected the number of frames");
        return None;
    };
    if let Err(message) = limits::FRAMES.check(nr_frames) {
        problems.add(label, format!("`npfn`: {message}"));
        return None;
    }
    let mut file = ZonesFile {
        nr_frames,
        vmemmap_base: None,
        zones: Vec::new(),
        nr_free: Vec::new(),
        nodes: Vec::new(),
        notes: Vec::new(),
    };
    if let Some(base) = value.get("vmemmap_base") {
        let hex = base.as_str().and_then(|text| text.strip_prefix("0x"));
        file.vmemmap_base = hex.and_then(|hex| u64::from_str_radix(hex, 16).ok());
        if file.vmemmap_base.is_none() {
            problems.add(label, format!("`vmemmap_base` is {base}, expected \"0x...\""));
        }
    }
    for note in value.get("problems").and_then(Value::as_array).into_iter().flatten() {
        file.notes.push(format!("the recorder reported: {note}"));
    }
    if let Some(failed) = value.get("failed_reads").and_then(Value::as_u64).filter(|&n| n > 0) {
        file.notes.push(format!("the recorder failed to read {failed} times"));
    }
    let Some(entries) = value.get("zones").and_then(Value::as_array) else {
        problems.add(label, "found no list `zones`, expected one");
        return None;
    };
    let mut zones = Vec::new();
    for (i, entry) in entries.iter().enumerate() {
        let mut entry =
            Entry { label, what: format!("entry {i} of `zones`"), value: entry, problems };
        if entry.value.get("zone").is_none() {
            let node = entry.number("node");
            let fields = entry.other_fields(&["node"]);
            file.nodes.extend(node.map(|node| NodeState { node, fields }));
        } else if let Some((zone, nr_free)) = entry.zone(nr_frames) {
            zones.push((zone, nr_free));
        }
    }
    zones.sort_by_key(|(zone, _)| (zone.node, zone.kind));
    file.nodes.sort_by_key(|node| node.node);
    for pair in zones.windows(2) {
        let (a, b) = (&pair[0].0, &pair[1].0);
        if (a.node, a.kind) == (b.node, b.kind) {
            problems.add(label, format!("found node {} zone {} twice", a.node, a.kind));
        }
    }
    for pair in file.nodes.windows(2).filter(|pair| pair[0].node == pair[1].node) {
        problems.add(label, format!("found node {} twice", pair[0].node));
    }
    let nr_nodes = file.nodes.len().max(zones.chunk_by(|a, b| a.0.node == b.0.node).count());
    for (count, found) in [(limits::ZONES, zones.len()), (limits::NODES, nr_nodes)] {
        if let Err(message) = count.check(found as u64) {
            problems.add(label, message);
        }
    }
    (file.zones, file.nr_free) = zones.into_iter().unzip();
    Some(file)
}

/// One object of `zones.json`, and where to complain about it.
struct Entry<'a> {
    label: &'a str,
    what: String,
    value: &'a Value,
    problems: &'a mut Problems,
}

impl Entry<'_> {
    fn bad(&mut self, message: &str) {
        self.problems.add(self.label, format!("{}: {message}", self.what));
    }

    fn number<T: TryFrom<u64>>(&mut self, key: &str) -> Option<T> {
        let number = self.value.get(key).and_then(Value::as_u64).and_then(|n| T::try_from(n).ok());
        if number.is_none() {
            let found = self.value.get(key).map_or("missing".to_owned(), Value::to_string);
            self.bad(&format!("`{key}` is {found}, expected a whole number in range"));
        }
        number
    }

    /// So many pages, if there can be so many frames.
    fn pages(&mut self, what: &str, pages: u64) -> u64 {
        if pages > u64::from(u32::MAX) {
            self.bad(&format!("`{what}` is {pages}, expected up to {} pages", u32::MAX));
        }
        pages
    }

    fn numbers(&mut self, key: &str) -> Option<Vec<u64>> {
        let array = self.value.get(key).and_then(Value::as_array);
        let numbers: Option<Vec<u64>> = array.and_then(|a| a.iter().map(Value::as_u64).collect());
        if numbers.is_none() {
            self.bad(&format!("found no `{key}`, expected a list of whole numbers"));
        }
        numbers
    }

    fn zone(&mut self, nr_frames: u64) -> Option<(ZoneState, Option<Vec<u64>>)> {
        let name = self.value.get("zone").and_then(Value::as_str).unwrap_or_default().to_owned();
        let Some(kind) = ZoneKind::from_name(&name) else {
            let names: Vec<_> = ZoneKind::ALL.iter().map(|k| k.name()).collect();
            self.bad(&format!("`zone` is `{name}`, expected one of {}", names.join(", ")));
            return None;
        };
        let node = self.number::<u32>("node");
        if let Some(node) = node {
            self.what = format!("node {node} zone {kind}");
        }
        let start_pfn = self.number::<u32>("zone_start_pfn").map(Pfn);
        let spanned_pages = self.number::<u64>("spanned_pages");
        let present_pages = self.number::<u64>("present_pages");
        let managed_pages = self.number::<u64>("managed_pages");
        let watermark_boost = self.number::<u64>("watermark_boost");
        let nr_reserved_highatomic = self.number::<u64>("nr_reserved_highatomic");
        let lowmem_reserve = self.numbers("lowmem_reserve");
        let nr_free = self.numbers("nr_free");
        if nr_free.as_ref().is_some_and(|n| n.len() != NR_PAGE_ORDERS) {
            self.bad(&format!("`nr_free` has not {NR_PAGE_ORDERS} numbers (NR_PAGE_ORDERS)"));
        }
        let marks = self.value.get("watermark").cloned().unwrap_or_default();
        let mut watermark = [0; 4];
        for (i, name) in WATERMARKS.into_iter().enumerate() {
            match marks.get(name).map(Value::as_u64) {
                Some(Some(pages)) => watermark[i] = self.pages(&format!("watermark.{name}"), pages),
                // Kernels before 5.17 have no promotion watermark.
                None if name == "promo" => {}
                _ => self.bad(&format!("found no `watermark.{name}`, expected pages")),
            }
        }
        let watermark_boost = watermark_boost.map(|boost| self.pages("watermark_boost", boost));
        for &reserve in lowmem_reserve.iter().flatten() {
            self.pages("lowmem_reserve", reserve);
        }
        let zone = ZoneState {
            node: node?,
            kind,
            start_pfn: start_pfn?,
            spanned_pages: spanned_pages?,
            present_pages: present_pages?,
            managed_pages: managed_pages?,
            watermark,
            watermark_boost: watermark_boost?,
            lowmem_reserve: lowmem_reserve?,
            nr_reserved_highatomic: nr_reserved_highatomic?,
            fields: self.other_fields(&ZONE_KEYS),
            free: Vec::new(),
            pcp: Vec::new(),
        };
        let end = u64::from(zone.start_pfn.0).checked_add(zone.spanned_pages);
        if end.is_none_or(|end| end > nr_frames) {
            self.bad(&format!(
                "spans {} pages from pfn {}, expected an end within npfn {nr_frames}",
                zone.spanned_pages, zone.start_pfn.0
            ));
            return None;
        }
        Some((zone, nr_free))
    }

    fn other_fields(&mut self, known: &[&str]) -> BTreeMap<String, i64> {
        let mut fields = BTreeMap::new();
        for (key, value) in self.value.as_object().into_iter().flatten() {
            if known.contains(&key.as_str()) {
                continue;
            }
            match value.as_i64() {
                Some(number) => match most_of(&ZONE_FIELDS_MOST, key, number) {
                    Some(most) => self
                        .bad(&format!("`{key}` is {number}, expected a whole number up to {most}")),
                    None => drop(fields.insert(key.clone(), number)),
                },
                None => self.bad(&format!("`{key}` is {value}, expected a whole number")),
            }
        }
        fields
    }
}

/// Reads the order from pagetypeinfo's first line, `Page block order: 9`.
fn pageblock_order_of(pagetypeinfo: &[u8]) -> Option<Order> {
    let text = std::str::from_utf8(pagetypeinfo).ok()?;
    let number = text.lines().find_map(|line| line.strip_prefix("Page block order:"))?;
    number.trim().parse().ok().filter(|&n| n <= MAX_PAGE_ORDER).map(Order)
}

// ---------------------------------------------------------------------------------------------
// Writing

/// Renders the files of a snapshot.
fn render(snapshot: &Snapshot, label: &str) -> Result<Folder, InputError> {
    let mut folder = Folder::new(label);
    for (name, bytes) in &snapshot.files {
        if name.is_empty() || name.contains(['.', '/', '\0']) || name.len() > 255 {
            let message = format!("the text file is called `{name}`, expected no dot and no slash");
            return Err(InputError::file(label, message));
        }
        folder.insert(name, bytes.clone());
    }
    folder.insert("meta.json", render_meta(snapshot));
    folder.insert("zones.json", render_zones(snapshot));
    folder.insert("freelist.csv", render_free_lists(snapshot).into_bytes());
    folder.insert("pcpmeta.csv", render_pcp_meta(snapshot).into_bytes());
    folder.insert("pcp.csv", render_pcp_lists(snapshot).into_bytes());
    folder.insert("pageblock.csv", render_pageblocks(snapshot).into_bytes());
    folder.insert("lru.csv", render_lru(snapshot).into_bytes());
    if let Some(slabs) = &snapshot.reclaimable_slabs {
        folder.insert("slab.csv", render_slabs(slabs).into_bytes());
    }
    if !snapshot.kpageflags.is_empty() {
        let bytes = snapshot.kpageflags.iter().flat_map(|flags| flags.to_le_bytes());
        folder.insert("kpageflags.bin", bytes.collect());
    }
    if !snapshot.pagecounts.is_empty() {
        let mut bytes = Vec::with_capacity(16 * snapshot.pagecounts.len());
        for counts in &snapshot.pagecounts {
            bytes.extend_from_slice(&counts.mapcount.to_le_bytes());
            bytes.extend_from_slice(&counts.refcount.to_le_bytes());
            bytes.extend_from_slice(&counts.private.to_le_bytes());
        }
        folder.insert("pagecounts.bin", bytes);
    }
    Ok(folder)
}

fn json_bytes(value: &Value) -> Vec<u8> {
    let mut text = serde_json::to_string_pretty(value).expect("a JSON value always prints");
    text.push('\n');
    text.into_bytes()
}

fn render_meta(snapshot: &Snapshot) -> Vec<u8> {
    let mut meta = Map::new();
    meta.insert("exactness".into(), snapshot.exactness.name().into());
    if let Some(release) = &snapshot.kernel_release {
        meta.insert("kernel_release".into(), release.as_str().into());
    }
    if let Some(taken_at_s) = snapshot.taken_at_s {
        meta.insert("taken_at_s".into(), taken_at_s.into());
    }
    meta.insert("pageblock_order".into(), snapshot.pageblock_order.0.into());
    meta.insert("inferred".into(), snapshot.inferred.clone().into());
    json_bytes(&Value::Object(meta))
}

fn render_zones(snapshot: &Snapshot) -> Vec<u8> {
    let mut entries = Vec::new();
    for zone in &snapshot.zones {
        let marks: Map<_, _> = WATERMARKS
            .into_iter()
            .zip(zone.watermark)
            .map(|(name, pages)| (name.to_owned(), pages.into()))
            .collect();
        let mut entry = json!({
            "node": zone.node,
            "zone": zone.kind.name(),
            "watermark": marks,
            "lowmem_reserve": zone.lowmem_reserve,
            "watermark_boost": zone.watermark_boost,
            "nr_reserved_highatomic": zone.nr_reserved_highatomic,
            "zone_start_pfn": zone.start_pfn.0,
            "managed_pages": zone.managed_pages,
            "spanned_pages": zone.spanned_pages,
            "present_pages": zone.present_pages,
            "nr_free": zone.nr_free(),
        });
        for (name, value) in &zone.fields {
            entry[name] = (*value).into();
        }
        entries.push(entry);
    }
    for node in &snapshot.nodes {
        let mut entry = json!({ "node": node.node });
        for (name, value) in &node.fields {
            entry[name] = (*value).into();
        }
        entries.push(entry);
    }
    let mut value = json!({ "zones": entries, "npfn": snapshot.nr_frames });
    if let Some(base) = snapshot.vmemmap_base {
        value["vmemmap_base"] = format!("{base:#x}").into();
    }
    json_bytes(&value)
}

fn render_free_lists(snapshot: &Snapshot) -> String {
    let mut text = String::from("node,zone,order,migratetype,pos,pfn\n");
    for zone in &snapshot.zones {
        let mut next_pos = BTreeMap::new();
        for block in &zone.free {
            let pos = next(next_pos.entry((block.order, block.migratetype)).or_insert(0));
            let (node, kind, FreeBlock { pfn, order, migratetype }) = (zone.node, zone.kind, block);
            writeln!(text, "{node},{kind},{order},{migratetype},{pos},{}", pfn.0)
                .expect("writing to memory does not fail");
        }
    }
    text
}

fn render_pcp_meta(snapshot: &Snapshot) -> String {
    let mut text = String::from("node,zone,cpu");
    let names: Vec<&String> = snapshot
        .zones
        .iter()
        .find_map(|zone| zone.pcp.first())
        .map(|pcp| pcp.fields.keys().collect())
        .unwrap_or_default();
    for name in &names {
        text.push(',');
        text.push_str(name);
    }
    text.push('\n');
    for zone in &snapshot.zones {
        for pcp in &zone.pcp {
            write!(text, "{},{},{}", zone.node, zone.kind, pcp.cpu)
                .expect("writing to memory does not fail");
            for name in &names {
                let value = pcp.fields.get(*name).copied().unwrap_or_default();
                write!(text, ",{value}").expect("writing to memory does not fail");
            }
            text.push('\n');
        }
    }
    text
}

fn render_pcp_lists(snapshot: &Snapshot) -> String {
    let mut text = String::from("node,zone,cpu,order,migratetype,pos,pfn\n");
    for zone in &snapshot.zones {
        for pcp in &zone.pcp {
            let mut next_pos = BTreeMap::new();
            for FreeBlock { pfn, order, migratetype } in &pcp.blocks {
                let pos = next(next_pos.entry((order, migratetype)).or_insert(0));
                let (node, kind, cpu, pfn) = (zone.node, zone.kind, pcp.cpu, pfn.0);
                writeln!(text, "{node},{kind},{cpu},{order},{migratetype},{pos},{pfn}")
                    .expect("writing to memory does not fail");
            }
        }
    }
    text
}

fn render_pageblocks(snapshot: &Snapshot) -> String {
    let mut text = String::from("pfn,migratetype,skip\n");
    for block in &snapshot.pageblocks {
        let skip = u8::from(block.skip);
        writeln!(text, "{},{},{skip}", block.pfn.0, block.migratetype)
            .expect("writing to memory does not fail");
    }
    text
}

fn render_lru(snapshot: &Snapshot) -> String {
    let mut text = String::from("node,list,pos,pfn\n");
    for list in &snapshot.lru {
        for (pos, pfn) in list.pages.iter().enumerate() {
            writeln!(text, "{},{},{pos},{}", list.node, list.name, pfn.0)
                .expect("writing to memory does not fail");
        }
    }
    text
}

fn render_slabs(slabs: &[FrameRun]) -> String {
    let mut text = String::from("pfn,nr_pages\n");
    for slab in slabs {
        writeln!(text, "{},{}", slab.pfn.0, slab.nr_pages)
            .expect("writing to memory does not fail");
    }
    text
}

fn next(pos: &mut u64) -> u64 {
    *pos += 1;
    *pos - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::zone;
    use std::fs;
    use std::io::Write;
    use std::path::PathBuf;

    /// A recorded folder of one zone with three free blocks and a per-CPU page.
    struct Recorded(tempfile::TempDir);

    impl Recorded {
        fn new() -> Self {
            let mut zone = zone(0, 4096, 4096);
            let block = |pfn, order| FreeBlock {
                pfn: Pfn(pfn),
                order: Order(order),
                migratetype: Migratetype::Movable,
            };
            zone.free = vec![block(4096, 0), block(4098, 0), block(4608, 9)];
            let fields = BTreeMap::from([("count".to_owned(), 2)]);
            zone.pcp = vec![PcpState { cpu: 0, fields, blocks: vec![block(4100, 1)] }];
            let block =
                PageblockState { pfn: Pfn(4096), migratetype: Migratetype::Movable, skip: false };
            let snapshot = Snapshot {
                exactness: Exactness::Lists,
                kernel_release: None,
                inferred: Vec::new(),
                taken_at_s: None,
                nr_frames: 8192,
                pageblock_order: Order(9),
                zones: vec![zone],
                nodes: Vec::new(),
                vmemmap_base: None,
                pageblocks: vec![block],
                kpageflags: vec![0; 8192],
                pagecounts: Vec::new(),
                lru: Vec::new(),
                reclaimable_slabs: None,
                reserved: Vec::new(),
                files: BTreeMap::new(),
            };
            let directory = tempfile::tempdir().unwrap();
            snapshot.write_dir(directory.path()).unwrap();
            Self(directory)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        /// Replaces a gzipped file by a plain one.
        fn set(&self, name: &str, text: &str) {
            let _ = fs::remove_file(self.path(&format!("{name}.gz")));
            fs::write(self.path(name), text).unwrap();
        }

        /// The problems that reading reports, each without the folder's path.
        fn problems(&self) -> Vec<String> {
            let error = Snapshot::read(self.0.path()).unwrap_err();
            let prefix = format!("{}/", self.0.path().display());
            error.problems().iter().map(|p| p.to_string().replace(&prefix, "")).collect()
        }
    }

    #[test]
    fn plain_gzipped_and_zstd_files_read_alike() {
        let recorded = Recorded::new();
        let gzipped = Snapshot::read(recorded.0.path()).unwrap();
        let text = render_free_lists(&gzipped);
        recorded.set("freelist.csv", &text);
        assert_eq!(Snapshot::read(recorded.0.path()).unwrap(), gzipped);
        fs::remove_file(recorded.path("freelist.csv")).unwrap();
        fs::write(recorded.path("freelist.csv.zst"), zstd::encode_all(text.as_bytes(), 3).unwrap())
            .unwrap();
        assert_eq!(Snapshot::read(recorded.0.path()).unwrap(), gzipped);
    }

    #[test]
    fn every_bad_line_of_a_free_list_is_named_at_once() {
        let recorded = Recorded::new();
        recorded.set(
            "freelist.csv",
            "node,zone,order,migratetype,pos,pfn\n\
             0,DMA32,0,Movable,0,4096\n\
             0,DMA32,0,Movable,2,4096\n\
             0,DMA33,0,Movable,0,4098\n\
             1,DMA32,0,Movable,0,4098\n\
             0,DMA32,0,Moveable,0,4098\n\
             0,DMA32,11,Movable,0,4096\n\
             0,DMA32,3,Movable,0,4105\n\
             0,DMA32,9,Movable,0,512\n\
             0,DMA32,1,Movable,0\n\
             0,DMA32,x,Movable,0,-1\n",
        );
        let problems = recorded.problems();
        let expected = [
            "freelist.csv:3: `pos` is 2, expected 1, the next of its list",
            "freelist.csv:3: pfn 4096 is already taken by ",
            "freelist.csv:4: zone is `DMA33`, expected one of DMA, DMA32, Normal, Movable",
            "freelist.csv:5: found node 1 zone DMA32, expected one in zones.json",
            "freelist.csv:6: migratetype is `Moveable`, expected one of Unmovable, Movable",
            "freelist.csv:7: `order` is 11, expected 0..=10",
            "freelist.csv:8: pfn 4105 is not aligned, expected a multiple of 8",
            "freelist.csv:9: the block of order 9 at pfn 512 leaves its zone, expected pfns in \
             4096..8192",
            "freelist.csv:10: found 5 columns, expected 6 (node,zone,order,migratetype,pos,pfn)",
            "freelist.csv:11: `order` is `x`, expected a whole number in range",
            "freelist.csv:11: `pfn` is `-1`, expected a whole number in range",
            "zones.json: node 0 zone DMA32: nr_free of order 3 is 0, expected 1, the blocks in",
        ];
        for expected in expected {
            assert!(problems.iter().any(|p| p.starts_with(expected)), "{expected}: {problems:#?}");
        }
    }

    #[test]
    fn numbers_that_no_kernel_has_are_refused() {
        let recorded = Recorded::new();
        recorded.set("pcpmeta.csv", "node,zone,cpu,count,batch\n0,DMA32,0,2,2147483648\n");
        let zones = std::fs::read_to_string(recorded.path("zones.json")).unwrap();
        let mut zones: Value = serde_json::from_str(&zones).unwrap();
        let zone = &mut zones["zones"][0];
        zone["watermark"]["low"] = u64::MAX.into();
        zone["compact_defer_shift"] = 40.into();
        recorded.set("zones.json", &zones.to_string());
        let problems = recorded.problems();
        let expected = [
            "zones.json: node 0 zone DMA32: `compact_defer_shift` is 40, expected a whole number up to 6",
            "zones.json: node 0 zone DMA32: `watermark.low` is 18446744073709551615, expected up to \
             4294967295 pages",
            "pcpmeta.csv:2: `batch` is 2147483648, expected a whole number up to 1024",
        ];
        for expected in expected {
            assert!(problems.iter().any(|p| p == expected), "{expected}: {problems:#?}");
        }
    }

    #[test]
    fn a_per_cpu_page_that_is_also_free_names_both_lines() {
        let recorded = Recorded::new();
        recorded.set(
            "pcp.csv",
            "node,zone,cpu,order,migratetype,pos,pfn\n0,DMA32,0,1,Movable,0,4098\n",
        );
        let problems = recorded.problems();
        assert_eq!(problems.len(), 1, "{problems:#?}");
        assert_eq!(
            problems[0],
            "pcp.csv:2: pfn 4098 is already taken by freelist.csv.gz:3, expected every page on one \
             list"
        );
    }

    #[test]
    fn a_per_cpu_count_that_the_lists_do_not_hold_is_an_error() {
        let recorded = Recorded::new();
        recorded.set("pcpmeta.csv", "node,zone,cpu,count,high\n0,DMA32,0,3,5\n");
        assert_eq!(
            recorded.problems(),
            [
                "pcp.csv.gz: node 0 zone DMA32 cpu 0: the lists hold 2 pages, expected 3, the count in \
              pcpmeta.csv"
            ]
        );
    }

    #[test]
    fn a_truncated_gzip_file_and_a_short_binary_are_both_reported() {
        let recorded = Recorded::new();
        let whole = fs::read(recorded.path("pcp.csv.gz")).unwrap();
        fs::write(recorded.path("pcp.csv.gz"), &whole[..whole.len() - 9]).unwrap();
        fs::remove_file(recorded.path("kpageflags.bin.gz")).unwrap();
        fs::File::create(recorded.path("kpageflags.bin")).unwrap().write_all(&[0; 12]).unwrap();
        let problems = recorded.problems();
        let has = |text: &str| problems.iter().any(|p| p.contains(text));
        assert!(has("pcp.csv.gz: not a whole gzip file"), "{problems:#?}");
        assert!(has("kpageflags.bin: holds 12 bytes, expected 8 for each of npfn 8192 frames"));
    }

    #[test]
    fn pageblocks_must_be_aligned_ascending_and_within_the_machine() {
        let recorded = Recorded::new();
        recorded.set(
            "pageblock.csv",
            "pfn,migratetype,skip\n4096,Movable,0\n4000,Movable,0\n9216,Movable,2\n8192,Movable,1\n",
        );
        let problems = recorded.problems();
        for expected in [
            "pageblock.csv:3: pageblock 4000 is not aligned, expected order 9",
            "pageblock.csv:3: pageblock 4000 after 4096, expected ascending ones",
            "pageblock.csv:4: `skip` is `2`, expected 0 or 1",
            "pageblock.csv:5: pageblock 8192 lies beyond npfn 8192",
        ] {
            assert!(problems.iter().any(|p| p == expected), "{expected}: {problems:#?}");
        }
    }

    #[test]
    fn a_wrong_header_and_a_missing_file_are_named() {
        let recorded = Recorded::new();
        recorded.set("lru.csv", "node,list,pfn,pos\n");
        fs::remove_file(recorded.path("pageblock.csv.gz")).unwrap();
        let problems = recorded.problems();
        assert!(problems.contains(
            &"lru.csv:1: the header is `node,list,pfn,pos`, expected `node,list,pos,pfn`".into()
        ));
        assert!(problems.iter().any(|p| p.ends_with("found no pageblock.csv, expected one")));
    }

    #[test]
    fn zones_that_make_no_sense_are_reported_by_name() {
        let recorded = Recorded::new();
        let text = fs::read_to_string(recorded.path("zones.json")).unwrap();
        let broken = text.replace("\"spanned_pages\": 4096", "\"spanned_pages\": 9999");
        fs::write(recorded.path("zones.json"), broken).unwrap();
        assert!(recorded.problems()[0].starts_with("zones.json: node 0 zone DMA32: spans 9999"));
        fs::write(recorded.path("zones.json"), "{\n \"npfn\": }").unwrap();
        assert!(recorded.problems()[0].starts_with("zones.json:2: not JSON"));
    }
}
