//! The readers.

use crate::Target;
use crate::parts::{Parts, container, joined, split};
use highorder_kernelfs::{
    Buddyinfo, Extfrag, Meminfo, Pagetypeinfo, Settings, Slabinfo, Swaps, TextFile, Vmstat,
    Zoneinfo,
};
use highorder_kernels::KernelFile;
use highorder_lab::fallbacks::Fallbacks;
use highorder_lab::passes::Passes;
use highorder_lab::validate::Case;
use highorder_lab::{Experiment, Scale, machine};
use highorder_real::Image;
use highorder_record::store::read_record;
use highorder_record::{Inputs, Record, Store};
use highorder_report::{MemoryMap, TerminalOptions, render_terminal};
use highorder_snapshot::Snapshot;
use highorder_snapshot::btf::Btf;
use highorder_snapshot::kallsyms::{Symbols, Vmcoreinfo};
use highorder_words::NodeId;
use highorder_workload::recorded::Script;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Reports of guests.
const KERNEL_LOGS: [&str; 2] = [
    include_str!("../../explain/tests/data/oom-6.1.txt"),
    include_str!("../../explain/tests/data/oom-6.12.txt"),
];

/// Every reader of what users give and of what the kernel says.
pub const TARGETS: &[Target] = &[
    Target { name: "buddyinfo", corpus: |at| named(at, "buddyinfo"), read: table::<Buddyinfo> },
    Target { name: "extfrag", corpus: |at| named(at, "unusable_index"), read: table::<Extfrag> },
    Target { name: "meminfo", corpus: |at| named(at, "meminfo"), read: table::<Meminfo> },
    Target {
        name: "pagetypeinfo",
        corpus: |at| named(at, "pagetypeinfo"),
        read: table::<Pagetypeinfo>,
    },
    Target { name: "settings", corpus: |at| named(at, "settings"), read: table::<Settings> },
    Target { name: "slabinfo", corpus: |at| named(at, "slabinfo"), read: table::<Slabinfo> },
    Target { name: "swaps", corpus: |at| named(at, "swaps"), read: table::<Swaps> },
    Target { name: "vmstat", corpus: |at| named(at, "vmstat"), read: table::<Vmstat> },
    Target { name: "zoneinfo", corpus: |at| named(at, "zoneinfo"), read: table::<Zoneinfo> },
    Target { name: "trace", corpus: traces, read: trace },
    Target { name: "kernel-log", corpus: |_| KERNEL_LOGS.map(Into::into).into(), read: kernel_log },
    Target { name: "btf", corpus: |_| vec![a_btf()], read: btf },
    Target { name: "kallsyms", corpus: |_| vec![KALLSYMS.into()], read: kallsyms },
    Target { name: "snapshot-file", corpus: |at| vec![container(&state(at))], read: snapshot_file },
    Target {
        name: "snapshot",
        corpus: |at| vec![joined(&state(at)), joined(&counts(at))],
        read: snapshot,
    },
    Target { name: "experiment", corpus: |at| toml(at, "experiments"), read: experiment },
    Target { name: "kernel", corpus: |at| toml(at, "kernels"), read: kernel },
    Target { name: "machine", corpus: |at| toml(at, "machines"), read: machine_file },
    Target { name: "script", corpus: scripts, read: script },
    Target { name: "case", corpus: cases, read: case },
    Target { name: "record", corpus: |_| vec![joined(&record_files())], read: record },
    Target { name: "image", corpus: |_| vec![joined(&image_files())], read: image },
];

// What is read of each.

/// A table of the kernel's. What is read writes the same bytes.
fn table<T: TextFile>(bytes: &[u8]) {
    if let Ok(table) = T::parse("fuzzed", bytes) {
        assert_eq!(table.to_text().as_bytes(), bytes, "what is read is written the same");
    }
}

fn trace(bytes: &[u8]) {
    if let Ok(passes) = Passes::parse("fuzzed", bytes.to_vec()) {
        drop((passes.table().text(), passes.reclaim.taken().csv(), passes.reclaim.waits().csv()));
    }
    if let Ok(fallbacks) = Fallbacks::parse("fuzzed", bytes.to_vec()) {
        drop((fallbacks.table().text(), fallbacks.over_time().csv()));
    }
}

fn kernel_log(bytes: &[u8]) {
    for report in highorder_explain::read(bytes).into_iter().flatten() {
        drop(highorder_explain::judge::judge(&report));
    }
}

fn btf(bytes: &[u8]) {
    let Ok(btf) = Btf::parse("fuzzed", bytes) else { return };
    for strct in ["zone", "page", ""] {
        drop((btf.struct_size(strct), btf.integers(strct)));
        for path in ["count", "inner.count", "list.next.count", ""] {
            drop(btf.field(strct, path).map(|field| field.element_size()));
        }
    }
    let _ = btf.enum_value("NR_ZONES");
}

fn kallsyms(bytes: &[u8]) {
    drop(Symbols::parse("fuzzed", bytes, &["contig_page_data", "vmemmap_base"]));
    let info = Vmcoreinfo::parse(bytes);
    drop((
        info.get("OSRELEASE").map(str::to_owned),
        info.symbol("mem_map"),
        info.number("PAGESIZE"),
    ));
}

fn snapshot_file(bytes: &[u8]) {
    if let Ok(snapshot) = Snapshot::from_bytes(bytes, "fuzzed") {
        look_at(&snapshot);
    }
}

fn snapshot(bytes: &[u8]) {
    snapshot_file(&container(&split(bytes)));
}

/// As `highorder map` does, and as a replay begins.
fn look_at(snapshot: &Snapshot) {
    let placed = snapshot.placed();
    let map = MemoryMap::from_snapshot("fuzzed", &placed, placed.frame_uses());
    drop(render_terminal(&map, TerminalOptions::default()));
    let kernel = KernelFile::load("linux-6.12").expect("it comes with the program");
    if let Ok(memory) = machine::restore(snapshot, &kernel, &[NodeId(0)]) {
        memory.validate().expect("what is restored is whole");
    }
}

fn experiment(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let path = crate::project().join("experiments/fuzzed.toml");
    if let Ok(experiment) = Experiment::parse(&path, text) {
        for scale in ["1", "1/16", "1/1000"] {
            let scale: Scale = scale.parse().expect("a scale");
            drop(experiment.plan(scale));
        }
    }
}

fn kernel(bytes: &[u8]) {
    let (_folder, path) = written(&vec![("fuzzed.toml".to_owned(), bytes.to_vec())]);
    let path = path.join("fuzzed.toml");
    if let Ok(kernel) = KernelFile::load(path.to_str().expect("a path of ours is UTF-8")) {
        drop((kernel.tables(), KernelFile::explain(path.to_str().unwrap_or_default())));
    }
}

fn machine_file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let path = crate::project().join("machines/fuzzed.toml");
    if let Ok(machine) = highorder_kernels::machine::parse(&path, text) {
        machine.memory().check().expect("what is read can be built");
        for denominator in [2, 16, 1000] {
            if let Ok(scaled) = machine.scaled(1, denominator) {
                scaled.memory().check().expect("a scaled machine can be built");
            }
        }
    }
}

fn script(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        drop(Script::parse(text));
    }
}

fn case(bytes: &[u8]) {
    let (_folder, path) = written(&split(bytes));
    if let Ok(case) = Case::read(&path) {
        drop((case.settings(), case.kernel(), case.work()));
    }
}

/// A record's files, whose checksums are made to fit; the document as it comes.
fn record(bytes: &[u8]) {
    let mut parts = split(bytes);
    let sums: Vec<(String, u64, String)> = parts
        .iter()
        .map(|(name, content)| {
            let hash = format!("{:032x}", xxhash_rust::xxh3::xxh3_128(content));
            (name.clone(), content.len() as u64, hash)
        })
        .collect();
    for (name, content) in &mut parts {
        if name == "record.json" {
            fit(content, &sums);
        }
    }
    let (_folder, path) = written(&parts);
    if let Ok(record) = read_record(&path) {
        drop((record.problems(), record.identity()));
    }
}

/// Puts the checksums of the other files, and its own, into a document.
fn fit(document: &mut Vec<u8>, sums: &[(String, u64, String)]) {
    let Ok(mut value) = serde_json::from_slice::<serde_json::Value>(document) else { return };
    for (name, bytes, hash) in sums {
        if let Some(file) = value.get_mut("files").and_then(|files| files.get_mut(name)) {
            *file = serde_json::json!({ "bytes": bytes, "xxh3_128": hash });
        }
    }
    if let Ok(inputs) = serde_json::from_value::<Inputs>(value["inputs"].clone()) {
        value["identity"] = inputs.identity().to_string().into();
    }
    // A document of before it had a checksum of its own.
    value["format"] = "highorder-record 1".into();
    if let Some(keys) = value.as_object_mut() {
        keys.remove("checksum");
    }
    *document = serde_json::to_vec(&value).unwrap_or_default();
}

fn image(bytes: &[u8]) {
    let (_folder, path) = written(&split(bytes));
    drop(Image::Path(path.join("bzImage")).look(&path));
}

// Good inputs.

/// The recorded files of this name, each content once.
fn named(project: &Path, name: &str) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut folders = vec![project.join("tests/data")];
    while let Some(folder) = folders.pop() {
        for path in listed(&folder) {
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|found| found == name)
                && let Ok(content) = fs::read(&path)
                && !found.contains(&content)
            {
                found.push(content);
            }
        }
    }
    found
}

fn listed(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// The beginnings of recorded traces, in whole lines.
fn traces(project: &Path) -> Vec<Vec<u8>> {
    const LEN: usize = 20_000;
    let recordings = listed(&project.join("tests/data/recordings"));
    let packed = recordings.iter().filter_map(|folder| fs::read(folder.join("trace.txt.zst")).ok());
    let mut all: Vec<Vec<u8>> = packed
        .filter_map(|packed| zstd::decode_all(&packed[..]).ok())
        .map(|mut text| {
            text.truncate(LEN);
            text.truncate(text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1));
            text
        })
        .collect();
    for name in ["proc-by-hand/trace", "proc-recorded/6.12-trace"] {
        let files = listed(&project.join("tests/data").join(name)).into_iter();
        all.extend(files.filter_map(|path| fs::read(path).ok()).filter(|text| text.len() < LEN));
    }
    all
}

fn toml(project: &Path, folder: &str) -> Vec<Vec<u8>> {
    listed(&project.join(folder)).into_iter().filter_map(|path| fs::read(path).ok()).collect()
}

/// The sections of a small state that knows lists.
fn state(_project: &Path) -> Parts {
    let zone = serde_json::json!({
        "node": 0, "zone": "Normal", "zone_start_pfn": 0, "spanned_pages": 4096, "present_pages": 4096,
        "managed_pages": 4000, "watermark": { "min": 10, "low": 20, "high": 30, "promo": 40 },
        "watermark_boost": 0, "nr_reserved_highatomic": 0, "lowmem_reserve": [0, 0],
        "nr_free": [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    });
    let zones = serde_json::json!({
        "npfn": 4096, "vmemmap_base": "0xffffea0000000000", "zones": [zone, { "node": 0, "flags": 1 }]
    });
    let flags = 0x1000_u64.to_le_bytes().repeat(4096);
    let blocks: String = (0..8).map(|n| format!("{},Movable,0\n", n * 512)).collect();
    let text = |name: &str, text: &str| (name.to_owned(), text.as_bytes().to_vec());
    vec![
        ("zones.json".to_owned(), zones.to_string().into_bytes()),
        text("meta.json", "{\"exactness\":\"lists\",\"pageblock_order\":9,\"inferred\":[\"x\"]}"),
        text(
            "freelist.csv",
            "node,zone,order,migratetype,pos,pfn\n0,Normal,0,Movable,0,5\n0,Normal,0,Movable,1,7\n\
             0,Normal,1,Unmovable,0,10\n0,Normal,10,Movable,0,1024\n",
        ),
        text("pcpmeta.csv", "node,zone,cpu,count,high\n0,Normal,0,1,63\n"),
        text("pcp.csv", "node,zone,cpu,order,migratetype,pos,pfn\n0,Normal,0,0,Movable,0,9\n"),
        ("pageblock.csv".to_owned(), format!("pfn,migratetype,skip\n{blocks}").into_bytes()),
        text("lru.csv", "node,list,pos,pfn\n0,inactive_anon,0,3000\n0,inactive_anon,1,3001\n"),
        text("slab.csv", "pfn,nr_pages\n3500,4\n"),
        ("kpageflags.bin".to_owned(), flags),
        text(
            "buddyinfo",
            "Node 0, zone   Normal      2      1      0      0      0      0      0      0      0      0      1 \n",
        ),
    ]
}

/// The sections of one that knows counts alone.
fn counts(project: &Path) -> Parts {
    let kept = ["zones.json", "buddyinfo"];
    let mut parts = state(project);
    parts.retain(|(name, _)| kept.contains(&name.as_str()));
    parts.push(("meta.json".to_owned(), b"{\"exactness\":\"counts\"}".to_vec()));
    parts
}

fn scripts(project: &Path) -> Vec<Vec<u8>> {
    let files = named(project, "case.json");
    let values =
        files.iter().filter_map(|file| serde_json::from_slice::<serde_json::Value>(file).ok());
    let lines = values.flat_map(|case| {
        let line = |key: &str| case.get(key).and_then(|line| line.as_str()).map(Into::into);
        ["workload", "setup"].map(line)
    });
    lines.flatten().collect()
}

/// Recorded cases, without what is packed or long.
fn cases(project: &Path) -> Vec<Vec<u8>> {
    let folders = listed(&project.join("tests/data/cases"));
    let folders = folders.iter().filter(|folder| folder.join("case.json").is_file()).take(4);
    let parts = folders.map(|folder| {
        let names = [
            "case.json",
            "workload.json",
            "before/vmstat",
            "before/zoneinfo",
            "before/buddyinfo",
            "after/vmstat",
            "settings",
        ];
        let read = |name: &str| Some((name.to_owned(), fs::read(folder.join(name)).ok()?));
        joined(&names.into_iter().filter_map(read).collect())
    });
    parts.collect()
}

/// The files of a record that has little in it.
fn record_files() -> Parts {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::open(folder.path()).expect("a store");
    let mut record = Record::new(Inputs::default());
    record.before.counters.insert("pgfault".to_owned(), 1);
    record.after.counters.insert("pgfault".to_owned(), 3);
    record.latencies.entry("fault".to_owned()).or_default().record(1000);
    record.timeline.push(5, [("pgfault", 2)]);
    store.put(&record).expect("a whole record");
    let entry = store.list().expect("a store").pop().expect("its record");
    let files = listed(&entry.path).into_iter();
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    files.filter_map(|path| Some((name(&path)?, fs::read(&path).ok()?))).collect()
}

/// The header of a kernel (Documentation/arch/x86/boot.rst) and a module of one section.
fn image_files() -> Parts {
    let mut image = vec![0; 2048];
    image[0x1f1] = 1;
    image[0x1fe..0x200].copy_from_slice(b"\x55\xaa");
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x20e..0x210].copy_from_slice(&0x300_u16.to_le_bytes());
    image[0x500..0x506].copy_from_slice(b"6.12.1");
    let info = b"license=GPL\0depends=\0";
    let names = b"\0.modinfo\0.shstrtab\0";
    let mut module = vec![0; 64];
    module[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    module.extend_from_slice(info);
    module.extend_from_slice(names);
    let table = module.len() as u64;
    for (name, kind, at, len) in
        [(1_u32, 1_u32, 64, info.len()), (10, 3, 64 + info.len(), names.len())]
    {
        let mut header = [0; 64];
        header[..4].copy_from_slice(&name.to_le_bytes());
        header[4..8].copy_from_slice(&kind.to_le_bytes());
        header[24..32].copy_from_slice(&(at as u64).to_le_bytes());
        header[32..40].copy_from_slice(&(len as u64).to_le_bytes());
        module.extend_from_slice(&header);
    }
    module[40..48].copy_from_slice(&table.to_le_bytes());
    for (at, number) in [(58, 64_u16), (60, 2), (62, 1)] {
        module[at..at + 2].copy_from_slice(&number.to_le_bytes());
    }
    vec![("bzImage".to_owned(), image), ("modules/virtio_blk.ko".to_owned(), module)]
}

/// Types as the kernel tells them (Documentation/bpf/btf.rst): an int, a structure of it and of itself, an enumeration,
/// an array, a pointer.
fn a_btf() -> Vec<u8> {
    let strings = b"\0int\0zone\0count\0inner\0NR_ZONES\0list\0";
    let at = |word: &str| {
        let named = [word.as_bytes(), b"\0"].concat();
        strings.windows(named.len()).position(|window| window == named).unwrap_or(0) as u32
    };
    let head = |name: &str, kind: u32, nr: u32, size: u32| [at(name), kind << 24 | nr, size];
    let mut types: Vec<u32> = Vec::new();
    types.extend(head("int", 1, 0, 4));
    types.push(32);
    types.extend(head("zone", 4, 3, 24));
    types.extend([at("count"), 1, 0, at("inner"), 3, 32, at("list"), 5, 64]);
    types.extend(head("inner", 4, 1, 8));
    types.extend([at("count"), 1, 0]);
    types.extend(head("", 6, 1, 4));
    types.extend([at("NR_ZONES"), 5]);
    types.extend(head("", 3, 0, 0));
    types.extend([3, 1, 2]);
    types.extend(head("", 2, 0, 2));
    let mut bytes = vec![0x9f, 0xeb, 1, 0];
    let type_bytes = types.len() as u32 * 4;
    for number in [24, 0, type_bytes, type_bytes, strings.len() as u32].iter().chain(&types) {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(strings);
    bytes
}

const KALLSYMS: &[u8] = b"ffffffff81000000 T _text\nffffffff82000000 D contig_page_data\n\
                          ffffffff82001000 d vmemmap_base\t[mod]\nOSRELEASE=6.12.1\nPAGESIZE=4096\n\
                          SYMBOL(mem_map)=ffffffff83000000\nNUMBER(phys_base)=0\n";

/// The parts as files below a folder that goes when it is dropped. What has a name that leads elsewhere is left out.
fn written(parts: &Parts) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("fuzzed");
    fs::create_dir(&path).expect("a folder");
    for (name, content) in parts {
        let is_plain = |part: &str| !part.is_empty() && part != ".." && !part.contains('\0');
        if !name.is_empty() && name.split('/').all(is_plain) {
            let file = path.join(name);
            let made = file.parent().map(fs::create_dir_all);
            // A name that is too long, or a file's and a folder's.
            drop((made, fs::write(file, content)));
        }
    }
    (folder, path)
}
