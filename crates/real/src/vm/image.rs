//! Kernel images: a file, or one of Debian's packages.
//!
//! What a bzImage says of itself is in the boot protocol's header: Documentation/arch/x86/boot.rst.

use super::{VmError, modules};
use highorder_files::{ReadError, limits};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::str::FromStr;
use std::time::Duration;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// A kernel to boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// A bzImage. Its modules are taken from the folder `modules` beside it, or else from
    /// `/lib/modules/RELEASE`.
    Path(PathBuf),
    /// Debian's kernel of a release such as `6.12`, for virtual machines (`cloud`), fetched with apt-get.
    Debian(String),
}

impl FromStr for Image {
    type Err = String;

    /// `debian:6.12`, or a path.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("debian:") {
            Some(release) if is_release(release) => Ok(Self::Debian(release.to_owned())),
            Some(other) => Err(format!("`debian:{other}`, expected a release as in debian:6.12")),
            None if text.is_empty() => Err("no image, expected a path or debian:6.12".to_owned()),
            None => Ok(Self::Path(PathBuf::from(text))),
        }
    }
}

fn is_release(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    parts.len() == 2
        && parts.iter().all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

/// The packages of the recorded cases, so that all speak of the same kernels.
const PREFERRED: [(&str, &str); 2] = [
    ("6.1", "linux-image-6.1.0-53-cloud-amd64"),
    ("6.12", "linux-image-6.12.107+deb12-cloud-amd64"),
];

const DOWNLOAD_SECONDS: u64 = 300;
const UNPACK_SECONDS: u64 = 120;

/// A kernel that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) image: PathBuf,
    pub(super) release: String,
    pub(super) modules: Option<PathBuf>,
    /// Bytes that it needs before it can look for more (`init_size`).
    pub(super) init_bytes: u64,
}

/// What an image says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// The kernel's release, as `uname -r` prints it.
    pub release: String,
    /// The hash of its content, in hexadecimal digits.
    pub xxh3: String,
    /// The hash of the modules that guests load, their names and contents, unpacked; none if there are none
    /// or all are built in.
    pub modules_xxh3: Option<String>,
}

impl Image {
    /// Looks at the image, fetching it into the cache if need be.
    ///
    /// # Errors
    /// It cannot be had, or is no kernel.
    pub fn look(&self, cache: &Path) -> Result<Looked, VmError> {
        let Found { image, release, modules, .. } = self.resolve(cache)?;
        let bytes = read(&image)?;
        let xxh3 = format!("{:032x}", xxh3_128(&bytes));
        let loaded = modules.as_deref().map(modules::needed).transpose()?.unwrap_or_default();
        let modules_xxh3 = (!loaded.is_empty()).then(|| hash(&loaded));
        Ok(Looked { release, xxh3, modules_xxh3 })
    }

    /// Finds it, fetching it if need be.
    pub(super) fn resolve(&self, cache: &Path) -> Result<Found, VmError> {
        let image = match self {
            Self::Path(path) => path.clone(),
            Self::Debian(release) => {
                highorder_files::own_folder(cache)?;
                let folder = cache.join(release);
                if !folder.join("vmlinuz").is_file() {
                    fetch(release, cache)?;
                }
                folder.join("vmlinuz")
            }
        };
        let (release, init_bytes) = header(&image)?;
        let beside = image.with_file_name("modules");
        let installed = Path::new("/lib/modules").join(&release);
        let modules = [beside, installed].into_iter().find(|folder| folder.is_dir());
        Ok(Found { image, release, modules, init_bytes })
    }
}

/// The hash of modules, in the order in which they are loaded.
fn hash(modules: &[(String, Vec<u8>)]) -> String {
    let mut hash = Xxh3::new();
    for (name, content) in modules {
        for part in [name.as_bytes(), content.as_slice()] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    format!("{:032x}", hash.digest128())
}

/// Reads an image.
fn read(path: &Path) -> Result<Vec<u8>, VmError> {
    highorder_files::read(path, limits::KERNEL_IMAGE).map_err(|error| match error {
        ReadError::Io(source) => VmError::io(path, source),
        ReadError::Unfit { found, .. } => VmError::NotAKernel { path: path.to_owned(), found },
    })
}

/// The release in a bzImage's header, and what it needs to start.
fn header(path: &Path) -> Result<(String, u64), VmError> {
    let bytes = read(path)?;
    let not = |found: &str| VmError::NotAKernel { path: path.to_owned(), found: found.to_owned() };
    if bytes.get(0x1fe..0x200) != Some(b"\x55\xaa") || bytes.get(0x202..0x206) != Some(b"HdrS") {
        return Err(not(match bytes.get(..4) {
            Some(b"\x7fELF") => "an ELF file (a vmlinux?)",
            Some([0x1f, 0x8b, ..]) => "a file packed with gzip",
            _ => "no header of the boot protocol",
        }));
    }
    let number = |at: usize, len: usize| {
        let bytes = bytes.get(at..at + len)?;
        Some(bytes.iter().rev().fold(0_u64, |n, &b| n << 8 | u64::from(b)))
    };
    let short = || not("a file that is cut short");
    let text_at = number(0x20e, 2).ok_or_else(short)? as usize + 0x200;
    let text = bytes.get(text_at..).ok_or_else(short)?;
    let text = text.split(|&b| b == 0 || b == b' ').next().unwrap_or_default();
    let init_bytes = number(0x260, 4).ok_or_else(short)?;
    // What the header says of the rest: setup sectors, then 16-byte units.
    let setup = number(0x1f1, 1).ok_or_else(short)?.max(1);
    let whole = (setup + 1) * 512 + number(0x1f4, 4).ok_or_else(short)? * 16;
    if (bytes.len() as u64) < whole {
        return Err(short());
    }
    Ok((String::from_utf8_lossy(text).into_owned(), init_bytes))
}

/// Fetches a package and unpacks what is needed of it into the cache, whole or not at all.
fn fetch(release: &str, cache: &Path) -> Result<(), VmError> {
    let refuse = |why: String| VmError::Fetch { release: release.to_owned(), why };
    let work = tempfile::Builder::new().prefix(".part-").tempdir_in(cache);
    let work = work.map_err(|source| VmError::io(cache, source))?;
    let (root, part) = (work.path().join("root"), work.path().join("part"));
    let package = download(release, work.path()).map_err(refuse)?;
    let unpack = Command::new("dpkg-deb").arg("-x").arg(&package).arg(&root).spawn_quiet();
    finish(unpack, UNPACK_SECONDS).map_err(refuse)?;
    let boot = entry(&root.join("boot"), "vmlinuz-");
    let image = boot.ok_or_else(|| refuse("its package has no boot/vmlinuz-*".to_owned()))?;
    let name = image.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let full = name.trim_start_matches("vmlinuz-");
    let io = |source| VmError::io(&part, source);
    fs::create_dir(&part).map_err(io)?;
    let modules = ["lib/modules", "usr/lib/modules"].map(|folder| root.join(folder).join(full));
    if let Some(modules) = modules.iter().find(|folder| folder.is_dir()) {
        fs::rename(modules, part.join("modules")).map_err(io)?;
    }
    fs::write(part.join("release"), format!("{full}\n")).map_err(io)?;
    fs::rename(&image, part.join("vmlinuz")).map_err(io)?;
    let folder = cache.join(release);
    match fs::rename(&part, &folder) {
        // Somebody else was faster.
        Err(_) if folder.join("vmlinuz").is_file() => Ok(()),
        done => done.map_err(|source| VmError::io(&folder, source)),
    }
}

/// Downloads the package into a folder.
fn download(release: &str, folder: &Path) -> Result<PathBuf, String> {
    use std::os::unix::fs::PermissionsExt;
    // apt-get downloads as a user of its own when it is root.
    let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o755));
    let get = |package: &str| {
        let mut command = Command::new("apt-get");
        command.args(["download", "-qq", package]).current_dir(folder);
        finish(command.spawn_quiet(), DOWNLOAD_SECONDS)
    };
    let preferred = PREFERRED.iter().find(|(of, _)| *of == release);
    let mut first = None;
    if let Some((_, package)) = preferred {
        match get(package) {
            Ok(_) => return deb(folder),
            Err(why) => first = Some(why),
        }
    }
    let pattern = format!(r"^linux-image-{}\..*cloud-amd64$", release.replace('.', r"\."));
    let search = Command::new("apt-cache").args(["search", "--names-only", &pattern]).spawn_quiet();
    let found = finish(search, UNPACK_SECONDS)?;
    let names = String::from_utf8_lossy(&found.stdout).into_owned();
    let names = names.lines().filter_map(|line| line.split_ascii_whitespace().next());
    let newest = names.max_by_key(|name| numbers(name)).ok_or_else(|| {
        let also = first.map(|why| format!("; {why}")).unwrap_or_default();
        format!("no package matches {pattern} (apt-get update?){also}")
    })?;
    get(newest)?;
    deb(folder)
}

fn deb(folder: &Path) -> Result<PathBuf, String> {
    let entries = fs::read_dir(folder).map_err(|e| e.to_string())?.flatten();
    let mut debs = entries.map(|entry| entry.path());
    debs.find(|path| path.extension().is_some_and(|e| e == "deb"))
        .ok_or_else(|| "apt-get downloaded nothing".to_owned())
}

fn entry(folder: &Path, prefix: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let mut paths = entries.filter(|e| e.file_name().to_string_lossy().starts_with(prefix));
    paths.next().map(|entry| entry.path())
}

/// The numbers in a name, to find the newest: 6.12.107 is newer than 6.12.9.
fn numbers(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

trait Quiet {
    fn spawn_quiet(&mut self) -> (String, std::io::Result<std::process::Child>);
}

impl Quiet for Command {
    fn spawn_quiet(&mut self) -> (String, std::io::Result<std::process::Child>) {
        self.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        (self.get_program().to_string_lossy().into_owned(), self.spawn())
    }
}

/// Waits for a command, at most so long.
fn finish(
    (name, child): (String, std::io::Result<std::process::Child>),
    seconds: u64,
) -> Result<Output, String> {
    let mut child = child.map_err(|e| format!("{name}: {e}"))?;
    let pause = Duration::from_millis(50);
    let mut waited = Duration::ZERO;
    while child.try_wait().map_err(|e| format!("{name}: {e}"))?.is_none() {
        if waited.as_secs() >= seconds {
            // It may have ended this moment.
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("{name} did not end within {seconds} s"));
        }
        std::thread::sleep(pause);
        waited += pause;
    }
    let output = child.wait_with_output().map_err(|e| format!("{name}: {e}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name}: {}", said.lines().next().unwrap_or("failed without a word")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_named_by_path_or_debian_release() {
        assert_eq!("debian:6.12".parse(), Ok(Image::Debian("6.12".into())));
        assert_eq!("./bzImage-a".parse(), Ok(Image::Path("./bzImage-a".into())));
        for bad in ["", "debian:", "debian:bookworm", "debian:6", "debian:../x", "debian:6.12.1"] {
            assert!(bad.parse::<Image>().is_err(), "{bad}");
        }
    }

    #[test]
    fn modules_that_differ_in_name_content_or_order_have_other_hashes() {
        let module = |name: &str, content: &[u8]| (name.to_owned(), content.to_vec());
        let base = [module("ext4", b"one"), module("jbd2", b"two")];
        let mut hashes = vec![
            hash(&base),
            hash(&[base[1].clone(), base[0].clone()]),
            hash(&[module("ext4", b"one!"), base[1].clone()]),
            hash(&[module("ext4o", b"ne"), base[1].clone()]),
            hash(&base[..1]),
        ];
        assert_eq!(hash(&base), hashes[0]);
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), 5);
    }

    #[test]
    fn the_newest_package_is_found_by_its_numbers() {
        let names = ["linux-image-6.12.9+deb12", "linux-image-6.12.107+deb12"];
        assert_eq!(names.iter().max_by_key(|name| numbers(name)), Some(&names[1]));
    }

    #[test]
    fn a_file_that_is_no_kernel_is_told_for_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let mut cut = vec![0_u8; 0x300];
        cut[0x1fe..0x200].copy_from_slice(b"\x55\xaa");
        cut[0x202..0x206].copy_from_slice(b"HdrS");
        cut[0x1f4..0x1f8].copy_from_slice(&[0xff; 4]);
        for (bytes, found) in [
            (&b"hello"[..], "no header of the boot protocol"),
            (b"\x7fELF.....", "an ELF file"),
            (&cut, "cut short"),
        ] {
            fs::write(&path, bytes).unwrap();
            let error = Image::Path(path.clone()).resolve(folder.path()).unwrap_err().to_string();
            assert!(error.contains(found) && error.contains("bzImage"), "{error}");
        }
        fs::File::create(&path).unwrap().set_len(2 << 30).unwrap();
        for (path, found) in
            [(path.clone(), "2147483648 bytes"), ("/dev/zero".into(), "a character device")]
        {
            let error = Image::Path(path).resolve(folder.path()).unwrap_err().to_string();
            assert!(error.contains(&format!(": {found}, expected a kernel image")), "{error}");
        }
        fs::remove_file(&path).unwrap();
        let error = Image::Path(path).resolve(folder.path()).unwrap_err();
        assert!(matches!(error, VmError::Io { .. }), "{error}");
    }
}
