//! The modules that a kernel needs for the guest's devices.
//!
//! Which others a module needs is what it says itself: the `depends=` of its section `.modinfo`
//! (scripts/mod/modpost.c, `add_depends`). So a modules folder does as a package has it, without the
//! `modules.dep` that depmod(8) makes at installation.

use super::VmError;
use super::elf::Elf;
use highorder_files::{Limited, ReadError, limits};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// What the guest's disks and the file system on one of them need, unless the kernel has it built in. Of
/// the checksum ext4 says no more than `softdep`: fs/ext4/super.c.
const WANTED: [&str; 4] = ["virtio_pci", "virtio_blk", "crc32c_generic", "ext4"];

const ENDINGS: [&str; 4] = [".ko", ".ko.xz", ".ko.zst", ".ko.gz"];

/// The content of the modules that are needed, each after those it needs; what is not there as a module
/// is taken for built in.
pub(super) fn needed(folder: &Path) -> Result<Vec<(String, Vec<u8>)>, VmError> {
    let mut files = BTreeMap::new();
    find(folder, &mut files).map_err(|source| VmError::io(folder, source))?;
    let mut loaded = Vec::new();
    for name in WANTED {
        add(name, &files, &mut Vec::new(), &mut loaded)?;
    }
    Ok(loaded)
}

/// Names as `depends=` has them: a file may have `-` where the module has `_`.
fn find(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        // `build` and `source` of an installed kernel are links to elsewhere.
        if kind.is_dir() {
            find(&entry.path(), files)?;
        } else if let Some(name) = entry.file_name().to_str()
            && let Some(name) = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending))
        {
            files.insert(name.replace('-', "_"), entry.path());
        }
    }
    Ok(())
}

fn add(
    name: &str,
    files: &BTreeMap<String, PathBuf>,
    above: &mut Vec<String>,
    loaded: &mut Vec<(String, Vec<u8>)>,
) -> Result<(), VmError> {
    let Some(path) = files.get(name) else { return Ok(()) };
    if loaded.iter().any(|(there, _)| there == name) || above.iter().any(|a| a == name) {
        return Ok(());
    }
    let module = unpacked(path)?;
    let depends = depends(&module)
        .ok_or_else(|| VmError::Module { path: path.clone(), found: "no module".to_owned() })?;
    above.push(name.to_owned());
    for other in depends {
        add(&other, files, above, loaded)?;
    }
    above.pop();
    loaded.push((name.to_owned(), module));
    Ok(())
}

fn depends(module: &[u8]) -> Option<Vec<String>> {
    let info = Elf::new(module)?.section(".modinfo")?;
    let values = info.split(|&b| b == 0).filter_map(|line| line.strip_prefix(b"depends="));
    let names = values.flat_map(|value| value.split(|&b| b == b','));
    let names = names.map(|name| String::from_utf8_lossy(name).replace('-', "_"));
    Some(names.filter(|name| !name.is_empty()).collect())
}

fn unpacked(path: &Path) -> Result<Vec<u8>, VmError> {
    let bytes = highorder_files::read(path, limits::MODULE).map_err(|error| match error {
        ReadError::Io(source) => VmError::io(path, source),
        ReadError::Unfit { found, .. } => VmError::Module { path: path.to_owned(), found },
    })?;
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or("");
    let mut module = Vec::new();
    let read = match ending {
        "xz" => unpack(lzma_rust2::XzReader::new(&bytes[..], true), &mut module),
        "zst" => zstd::stream::read::Decoder::new(&bytes[..])
            .and_then(|reader| unpack(reader, &mut module)),
        "gz" => unpack(flate2::read::MultiGzDecoder::new(&bytes[..]), &mut module),
        _ => return Ok(bytes),
    };
    let bad =
        |error: io::Error| VmError::Module { path: path.to_owned(), found: error.to_string() };
    read.map(|_| module).map_err(bad)
}

fn unpack(reader: impl Read, module: &mut Vec<u8>) -> io::Result<usize> {
    Limited::new(reader, limits::MODULE).read_to_end(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest ELF with a section `.modinfo`.
    fn module(info: &str) -> Vec<u8> {
        module_among(info, 0)
    }

    /// The same after so many sections without content.
    fn module_among(info: &str, nr_others: u16) -> Vec<u8> {
        let names = b"\0.modinfo\0.shstrtab\0";
        let mut bytes = vec![0; 64];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        let (info_at, names_at) = (64, 64 + info.len());
        bytes.extend_from_slice(info.as_bytes());
        bytes.extend_from_slice(names);
        let table = bytes.len();
        bytes.resize(table + 64 * usize::from(nr_others), 0);
        // SHT_PROGBITS and SHT_STRTAB.
        for (name, kind, at, len) in
            [(1_u32, 1_u32, info_at, info.len()), (10, 3, names_at, names.len())]
        {
            let mut header = vec![0; 64];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[24..32].copy_from_slice(&(at as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(len as u64).to_le_bytes());
            bytes.extend_from_slice(&header);
        }
        bytes[40..48].copy_from_slice(&(table as u64).to_le_bytes());
        bytes[58..60].copy_from_slice(&64_u16.to_le_bytes());
        bytes[60..62].copy_from_slice(&(nr_others + 2).to_le_bytes());
        bytes[62..64].copy_from_slice(&(nr_others + 1).to_le_bytes());
        bytes
    }

    #[test]
    fn each_module_comes_after_those_it_needs() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("kernel/drivers");
        fs::create_dir_all(&deep).unwrap();
        let write = |name: &str, info: &str| fs::write(deep.join(name), module(info)).unwrap();
        write("virtio_blk.ko", "license=GPL\0depends=\0");
        write("virtio_pci.ko", "depends=virtio,virtio-ring\0name=virtio_pci\0");
        write("virtio_ring.ko", "depends=virtio\0");
        let packed = zstd::encode_all(&module("depends=built_in\0")[..], 1).unwrap();
        fs::write(deep.join("virtio.ko.zst"), packed).unwrap();
        write("other.ko", "depends=virtio\0");
        write("ext4.ko", "depends=jbd2\0");
        write("jbd2.ko", "depends=\0");
        let names: Vec<String> =
            needed(folder.path()).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["virtio", "virtio_ring", "virtio_pci", "virtio_blk", "jbd2", "ext4"]);
    }

    #[test]
    fn a_module_may_have_more_sections_than_fit_64_kib_of_table() {
        assert_eq!(depends(&module_among("depends=virtio\0", 1100)).unwrap(), ["virtio"]);
    }

    #[test]
    fn a_damaged_module_is_named() {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in [("virtio_blk.ko", &b"nothing"[..]), ("virtio_blk.ko.xz", b"\xfd7zXZ")]
        {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            let error = needed(folder.path()).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
            fs::remove_file(path).unwrap();
        }
        assert!(needed(folder.path()).unwrap().is_empty());
    }
}
