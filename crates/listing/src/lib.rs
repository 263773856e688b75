//! For build scripts: lists a folder of the project, so that a file that is added there comes with the program; and
//! hashes the program's sources, so that what one program made is not taken for another's.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};
use xxhash_rust::xxh3::Xxh3;

/// Writes into the build's folder for output, under the name of the folder with `.rs`, a list of the folder's TOML files,
/// each with its name and its text, sorted by name. `folder` is relative to the crate.
///
/// # Errors
/// The folder cannot be read, or the list not be written.
///
/// # Panics
/// It is not a build script that calls.
pub fn write(folder: &str) -> io::Result<()> {
    let of_cargo = |name: &str| PathBuf::from(env::var_os(name).expect("set for build scripts"));
    let folder = of_cargo("CARGO_MANIFEST_DIR").join(folder).canonicalize()?;
    println!("cargo::rerun-if-changed={}", folder.display());
    let files = toml_files(&folder)?;
    for file in &files {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    let list = folder.file_name().unwrap_or_default();
    fs::write(of_cargo("OUT_DIR").join(list).with_extension("rs"), listed(&files))
}

/// The hash of what the program is built from, in hexadecimal digits: `Cargo.lock`, `Cargo.toml` and of every crate its
/// manifest, its build script and what lies in `src`, by name and content, in the order of their names. Tests are none
/// of it; kernels, machines and experiments are told in a run's inputs anyway. `project` is relative to the crate.
///
/// # Errors
/// A file cannot be read.
///
/// # Panics
/// It is not a build script that calls.
pub fn sources_hash(project: &str) -> io::Result<String> {
    let project = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set for build scripts"))
        .join(project)
        .canonicalize()?;
    let mut files = vec![project.join("Cargo.lock"), project.join("Cargo.toml")];
    for entry in fs::read_dir(project.join("crates"))? {
        let krate = entry?.path();
        add_files(&krate.join("src"), &mut files)?;
        files.extend(["Cargo.toml", "build.rs"].map(|name| krate.join(name)));
    }
    // A crate that comes or goes; files of crates name themselves.
    println!("cargo::rerun-if-changed={}", project.join("crates").display());
    let mut named = BTreeMap::new();
    for file in files.into_iter().filter(|file| file.is_file()) {
        println!("cargo::rerun-if-changed={}", file.display());
        let name = file.strip_prefix(&project).unwrap_or(&file).to_string_lossy().into_owned();
        named.insert(name, fs::read(&file)?);
    }
    Ok(format!("{:032x}", hash(&named)))
}

fn add_files(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            add_files(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// No two sets of files are hashed as the same bytes: each part comes after its length.
fn hash(files: &BTreeMap<String, Vec<u8>>) -> u128 {
    let mut hash = Xxh3::new();
    for (name, content) in files {
        for part in [name.as_bytes(), content] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    hash.digest128()
}

/// By name, not by path: `linux-4.14` comes before `linux-4.14-direct-held`.
fn toml_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        files.push(entry?.path());
    }
    files.retain(|file| file.extension() == Some(OsStr::new("toml")));
    files.sort_by(|one, other| one.file_stem().cmp(&other.file_stem()));
    Ok(files)
}

/// As Rust's text of a list of names and texts.
fn listed(files: &[PathBuf]) -> String {
    let mut list = String::from("&[\n");
    for file in files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let path = file.display().to_string();
        writeln!(list, "    ({name:?}, include_str!({path:?})),").expect("a text takes all");
    }
    list.push_str("]\n");
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_name_or_content_is_another_hash() {
        let of = |files: &[(&str, &str)]| {
            hash(&files.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect())
        };
        let first = of(&[("a", "bc"), ("d", "")]);
        assert_eq!(first, of(&[("d", ""), ("a", "bc")]));
        for other in
            [of(&[("ab", "c"), ("d", "")]), of(&[("a", "bd"), ("d", "")]), of(&[("a", "bc")])]
        {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn a_list_has_the_names_in_their_order() {
        let files = ["/p/linux-4.14.toml", "/p/linux-4.14-tail.toml"].map(PathBuf::from);
        let expected = "&[\n    (\"linux-4.14\", include_str!(\"/p/linux-4.14.toml\")),\n    \
                        (\"linux-4.14-tail\", include_str!(\"/p/linux-4.14-tail.toml\")),\n]\n";
        assert_eq!(listed(&files), expected);
        let kernels = toml_files(Path::new("../../kernels")).unwrap();
        let at =
            |name: &str| kernels.iter().position(|file| file.file_stem() == Some(name.as_ref()));
        assert!(at("linux-4.14").unwrap() < at("linux-4.14-direct-held").unwrap());
    }
}
