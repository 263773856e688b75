//! Which frames a process of this machine has to itself.
//!
//! Models: fs/proc/task_mmu.c (`pagemap_read`), v6.12: eight bytes a virtual page, of which bits 0 to 54 are the frame,
//! 56 says that it is mapped once, 61 that it belongs to a file or is shared, 63 that it is in memory.

use highorder_input::InputError;
use highorder_mm::types::Pfn;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const PAGE_BYTES: u64 = 4096;
const FRAME: u64 = (1 << 55) - 1;
const MAPPED_ONCE: u64 = 1 << 56;
const OF_FILE: u64 = 1 << 61;
const PRESENT: u64 = 1 << 63;
/// Entries read at a time.
const CHUNK: u64 = 8192;

/// The frames of anonymous memory that only this process maps, ascending: what is free once it has ended. Pages of files
/// stay in the page cache.
///
/// # Errors
/// There is no such process, or who asks may not look at its memory.
pub fn frames_of_process(pid: u32) -> Result<Vec<Pfn>, InputError> {
    frames_in(&Path::new("/proc").join(pid.to_string()))
}

fn frames_in(process: &Path) -> Result<Vec<Pfn>, InputError> {
    let maps = process.join("maps");
    let text = fs::read_to_string(&maps).map_err(|e| cannot_read(&maps, &e))?;
    let path = process.join("pagemap");
    let pagemap = File::open(&path).map_err(|e| cannot_read(&path, &e))?;
    let mut frames = Vec::new();
    let mut nr_hidden = 0;
    for (start, end) in text.lines().filter_map(range) {
        let mut at = start;
        while at < end {
            let nr = (end - at).min(CHUNK);
            let mut bytes = vec![0; nr as usize * 8];
            // Mappings of the kernel's own, such as vsyscall, have no entries.
            if pagemap.read_exact_at(&mut bytes, at * 8).is_err() {
                break;
            }
            for entry in bytes.chunks_exact(8) {
                let entry = u64::from_le_bytes(entry.try_into().expect("eight bytes"));
                let is_own =
                    entry & PRESENT != 0 && entry & MAPPED_ONCE != 0 && entry & OF_FILE == 0;
                match u32::try_from(entry & FRAME) {
                    Ok(pfn) if is_own && pfn > 0 => frames.push(Pfn(pfn)),
                    _ => nr_hidden += u64::from(is_own),
                }
            }
            at += nr;
        }
    }
    if frames.is_empty() && nr_hidden > 0 {
        let message = "does not tell frames, expected root: the kernel hides them from others";
        return Err(InputError::file(&path, message));
    }
    frames.sort_unstable();
    frames.dedup();
    Ok(frames)
}

/// The virtual pages of a line of `maps`.
fn range(line: &str) -> Option<(u64, u64)> {
    let (start, rest) = line.split_once('-')?;
    let end = rest.split_once(' ')?.0;
    let page = |text| Some(u64::from_str_radix(text, 16).ok()? / PAGE_BYTES);
    Some((page(start)?, page(end)?))
}

fn cannot_read(path: &PathBuf, error: &std::io::Error) -> InputError {
    InputError::file(path, format!("cannot read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mapped_once_and_of_no_file_is_its_own() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("maps"), "1000-4000 rw-p 00000000 00:00 0\n").expect("a file");
        let own = PRESENT | MAPPED_ONCE;
        let entries = [0, own | 77, own | OF_FILE | 78, PRESENT | 79];
        let bytes: Vec<u8> = entries.iter().flat_map(|entry: &u64| entry.to_le_bytes()).collect();
        fs::write(folder.path().join("pagemap"), bytes).expect("a file");
        assert_eq!(frames_in(folder.path()).expect("frames"), [Pfn(77)]);
    }

    #[test]
    fn frames_that_the_kernel_hides_are_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("maps"), "0-1000 rw-p 00000000 00:00 0\n").expect("a file");
        let entry = (PRESENT | MAPPED_ONCE).to_le_bytes();
        fs::write(folder.path().join("pagemap"), entry).expect("a file");
        let error = frames_in(folder.path()).expect_err("hidden").to_string();
        assert!(error.contains("expected root"), "{error}");
    }
}
