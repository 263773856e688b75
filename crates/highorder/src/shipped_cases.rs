//! The recorded cases that come with the program, so that `validate` needs no other file.

use crate::failure::Failure;
use std::path::Path;
use tempfile::TempDir;

/// `tests/data/cases` as `build.rs` packs it.
static ARCHIVE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/cases.tar.zst"));

/// The cases in a folder of their own, which goes when the value does.
///
/// # Errors
/// No folder can be made or written where temporary files belong.
pub(crate) fn unpack() -> Result<TempDir, Failure> {
    let unpacked = || {
        let folder = tempfile::tempdir()?;
        extract(folder.path())?;
        Ok(folder)
    };
    unpacked().map_err(|error: std::io::Error| {
        let folder = std::env::temp_dir();
        let folder = folder.display();
        Failure::input(format!("{folder}: the recorded cases cannot be unpacked here: {error}"))
    })
}

fn extract(folder: &Path) -> std::io::Result<()> {
    let mut archive = tar::Archive::new(zstd::Decoder::new(ARCHIVE)?);
    archive.set_preserve_mtime(false);
    archive.unpack(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cases_that_come_with_the_program_take_little_room() {
        // A few MiB would still be little; what is there takes a tenth of one.
        assert!(ARCHIVE.len() < 2 << 20, "{} bytes", ARCHIVE.len());
    }
}
