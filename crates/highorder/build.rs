//! Packs the recorded cases of `tests/data/cases` into one compressed file, which the program carries with it, and
//! hashes the program's sources.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Of 1 to 22: the archive is made once, read often and carried always.
const LEVEL: i32 = 19;

fn main() -> io::Result<()> {
    println!("cargo::rustc-env=HIGHORDER_SOURCES={}", highorder_listing::sources_hash("../..")?);
    let of = |name: &str| env::var_os(name).map(PathBuf::from).ok_or(io::ErrorKind::NotFound);
    let cases = of("CARGO_MANIFEST_DIR")?.join("../../tests/data/cases");
    println!("cargo::rerun-if-changed={}", cases.display());
    let out = fs::File::create(of("OUT_DIR")?.join("cases.tar.zst"))?;
    let mut archive = tar::Builder::new(zstd::Encoder::new(out, LEVEL)?);
    // Equal folders give equal bytes: no times, no owners, one order.
    archive.mode(tar::HeaderMode::Deterministic);
    let mut files = Vec::new();
    collect(&cases, &mut files)?;
    files.sort();
    for path in files {
        let name = path.strip_prefix(&cases).map_err(io::Error::other)?;
        archive.append_path_with_name(&path, name)?;
    }
    archive.into_inner()?.finish()?.flush()
}

/// The files of a folder and of those in it.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
