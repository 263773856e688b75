//! The disk for a guest's files: a sparse file without a name, with an ext4 on it.

use super::VmError;
use rustix::fs::fstatvfs;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

const MIB: u64 = 1 << 20;

/// The program's name, if no other is given.
pub(super) const MKFS: &str = "mkfs.ext4";
/// Where administrators' programs lie, which other users may not have in their `PATH`.
const SBIN: [&str; 2] = ["/usr/sbin", "/sbin"];

/// The smallest disk for files: an ext4 with a journal takes some MiB for itself.
const LEAST_BYTES: u64 = 64 * MIB;

/// What kernels before 3.5 cannot mount for writing: checksums of the file system's own data.
const WITHOUT: &str = "^metadata_csum,^metadata_csum_seed";

/// So that a guest's disk does not differ from boot to boot: the identifier, the seed of folders' hashes.
const UUID: &str = "00000000-0000-4000-8000-000000000000";
/// The time that is written into it, in seconds since 1970: the first of January 2020.
const TIME: &str = "1577836800";

/// Makes the disk, in `scratch`; or says in words why there can be none.
///
/// It is as large as was asked for, or else as what the file system of `scratch` has free, since it may come
/// to be filled.
pub(super) fn make(
    bytes: u64,
    scratch: &Path,
    mkfs: &Path,
) -> Result<Result<OwnedFd, String>, VmError> {
    let io = |source| VmError::io(scratch, source);
    let mib = |bytes: u64| bytes / MIB;
    if bytes < LEAST_BYTES {
        return Ok(Err(format!(
            "its machine file leaves {} MiB for files, expected at least {}",
            mib(bytes),
            mib(LEAST_BYTES)
        )));
    }
    let file = tempfile::tempfile_in(scratch).map_err(io)?;
    let free = fstatvfs(&file).map_err(|error| io(error.into()))?;
    let free = free.f_bavail.saturating_mul(free.f_frsize);
    if free < LEAST_BYTES {
        return Ok(Err(format!(
            "{} has {} MiB free, expected at least {}",
            scratch.display(),
            mib(free),
            mib(LEAST_BYTES)
        )));
    }
    file.set_len(bytes.min(free) / MIB * MIB).map_err(io)?;
    Ok(match format(&file, mkfs) {
        Ok(()) => Ok(OwnedFd::from(file)),
        Err(Failed::Missing) => {
            Err(format!("{}: no such program; Debian's package is e2fsprogs", mkfs.display()))
        }
        Err(Failed::Said(why)) => {
            return Err(VmError::Mkfs { mkfs: mkfs.to_owned(), why });
        }
    })
}

enum Failed {
    Missing,
    Said(String),
}

fn format(file: &File, mkfs: &Path) -> Result<(), Failed> {
    // The child finds it among our files, as it is closed in its own.
    let file = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let extended = format!("lazy_itable_init=1,lazy_journal_init=1,nodiscard,hash_seed={UUID}");
    // Blocks are pages, as they are by default on any disk that is not tiny.
    let output = command(mkfs)
        .args(["-q", "-F", "-b", "4096", "-I", "256", "-m", "0", "-U", UUID, "-E", &extended])
        .args(["-O", WITHOUT])
        .arg(&file)
        .env("E2FSPROGS_FAKE_TIME", TIME)
        .env("SOURCE_DATE_EPOCH", TIME)
        .output();
    match output {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Failed::Missing),
        Err(error) => Err(Failed::Said(error.to_string())),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let last = said.lines().rfind(|line| !line.trim().is_empty());
            Err(Failed::Said(last.unwrap_or("failed without a word").to_owned()))
        }
    }
}

/// The program, looked for where administrators' programs lie too.
fn command(mkfs: &Path) -> Command {
    let in_sbin =
        SBIN.iter().map(|folder| Path::new(folder).join(mkfs)).find(|path| path.is_file());
    let is_name = mkfs.components().count() == 1;
    let mut command = Command::new(in_sbin.filter(|_| is_name).as_deref().unwrap_or(mkfs));
    command.stdin(Stdio::null());
    command
}

/// What it says of its version.
pub(super) fn version(mkfs: &Path) -> Result<String, String> {
    let output = command(mkfs).arg("-V").output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let first = said.lines().next().unwrap_or("no word").to_owned();
    if output.status.success() { Ok(first) } else { Err(first) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{FileExt, MetadataExt};

    #[test]
    fn a_disk_for_files_is_sparse_nameless_and_the_same_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let make = || make(1 << 30, folder.path(), Path::new(MKFS)).unwrap();
        let disk = match make() {
            Ok(disk) => File::from(disk),
            Err(why) => return eprintln!("SKIPPED: {why}"),
        };
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "it has no name");
        let found = disk.metadata().unwrap();
        assert_eq!(found.len(), 1 << 30);
        assert!(found.blocks() * 512 < 128 << 20, "{} blocks", found.blocks());
        // fs/ext4/ext4.h (`s_magic`): 0x38 into the superblock, which begins at 1024.
        let mut magic = [0; 2];
        disk.read_exact_at(&mut magic, 1024 + 0x38).unwrap();
        assert_eq!(magic, [0x53, 0xef]);
        // `s_feature_ro_compat`: 3.3 mounts nothing for writing that has EXT4_FEATURE_RO_COMPAT_METADATA_CSUM.
        let mut features = [0; 4];
        disk.read_exact_at(&mut features, 1024 + 0x64).unwrap();
        assert_eq!(u32::from_le_bytes(features) & 0x400, 0, "{features:x?}");
        let head = |disk: &File| {
            let mut bytes = vec![0; 1 << 20];
            disk.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        let again = File::from(make().unwrap());
        assert!(head(&disk) == head(&again), "superblock, groups and bitmaps are the same");
    }

    #[test]
    fn what_is_missing_for_a_disk_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let missing = Path::new("/no/such/mkfs.ext4");
        let why = make(1 << 30, folder.path(), missing).unwrap().unwrap_err();
        assert_eq!(why, "/no/such/mkfs.ext4: no such program; Debian's package is e2fsprogs");
        let why = make(1 << 20, folder.path(), missing).unwrap().unwrap_err();
        assert!(why.contains("leaves 1 MiB for files, expected at least 64"), "{why}");
        let error = make(1 << 30, folder.path(), Path::new("/bin/false")).unwrap_err();
        assert!(error.to_string().contains("/bin/false: failed without a word"), "{error}");
    }
}
