//! For build scripts: lists a folder of the project, so that a file that is added there comes with the program.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

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
