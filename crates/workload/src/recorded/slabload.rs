//! `slabload`: many small files, half of which go again.

use super::Unknown;
use super::arguments::Arguments;
use crate::files::{Random, write_new};
use highorder_system::{Failure, System};

/// Begins the number of the random stream: "slabload" in ASCII.
const STREAM: u128 = 0x736c_6162_6c6f_6164 << 64;
/// Files of a directory, which needs an inode of its own.
const FILES_PER_DIRECTORY: u64 = 500;

/// What `slabload` was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slabload {
    /// Files.
    pub files: u64,
    /// Of so many bytes each.
    pub bytes: u64,
    /// Whether all is on the disk when it ends.
    pub syncs: bool,
    /// Inodes that its file system can give; when there are no more, it gives up and leaves all as it is.
    pub inodes: Option<u64>,
}

impl Slabload {
    pub(super) fn of(arguments: &Arguments) -> Result<Self, Unknown> {
        arguments.only("nsS")?;
        let missing = Unknown::Malformed("no `-n`, expected the number of files".to_owned());
        Ok(Self {
            files: arguments.number('n')?.ok_or(missing)?,
            bytes: arguments.number('s')?.unwrap_or(100),
            syncs: arguments.has('S'),
            inodes: None,
        })
    }

    pub(super) fn run(self, sys: &mut dyn System) -> Result<(), Failure> {
        let room = self.inodes.map(|n| n * FILES_PER_DIRECTORY / (FILES_PER_DIRECTORY + 1));
        let files = room.unwrap_or(self.files).min(self.files);
        let name = |file: u64| format!("small-{}/{file}", file / FILES_PER_DIRECTORY);
        for file in 0..files {
            write_new(sys, &name(file), self.bytes, self.bytes.max(1))?;
        }
        if files == self.files {
            let mut random = Random::new(sys.seed(), STREAM);
            for file in 0..files {
                if random.coin() {
                    sys.unlink(&name(file))?;
                }
            }
        }
        if self.syncs { sys.sync() } else { Ok(()) }
    }
}
