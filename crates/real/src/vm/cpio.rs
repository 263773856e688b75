//! The guest's first file system, in the format that kernels unpack (cpio, "newc"). Written by hand: an entry is a
//! row of numbers, a name and a content.

use std::collections::BTreeSet;

/// include/uapi/linux/stat.h
const DIRECTORY: u32 = 0o040_755;
const CONSOLE: u32 = 0o020_600;
const PROGRAM: u32 = 0o100_755;
const END: &str = "TRAILER!!!";

/// An archive that grows.
pub(super) struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<String>,
}

impl Archive {
    /// One with a console to print to.
    pub(super) fn new() -> Self {
        let mut archive = Self { bytes: Vec::new(), folders: BTreeSet::new() };
        archive.folder("dev");
        // Character device 5,1: Documentation/admin-guide/devices.txt.
        archive.entry("dev/console", CONSOLE, (5, 1), b"");
        archive
    }

    /// Adds a file, executable, and the folders it lies in.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) {
        let path = path.trim_start_matches('/');
        if let Some((folder, _)) = path.rsplit_once('/') {
            self.folder(folder);
        }
        self.entry(path, PROGRAM, (0, 0), content);
    }

    pub(super) fn folder(&mut self, path: &str) {
        if self.folders.contains(path) {
            return;
        }
        if let Some((above, _)) = path.rsplit_once('/') {
            self.folder(above);
        }
        self.entry(path, DIRECTORY, (0, 0), b"");
        self.folders.insert(path.to_owned());
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry(END, 0, (0, 0), b"");
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        // Number, mode, owner, group, links, time, size, device it is on (2), device it is (2), length of
        // the name with its zero, checksum.
        let (size, name_len) = (content.len() as u32, name.len() as u32 + 1);
        let fields = [1, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name_len, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_come_before_what_lies_in_them_and_once() {
        let mut archive = Archive::new();
        archive.file("/a/b/one", b"1234567");
        archive.file("a/b/two", b"");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let mut names = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            assert_eq!(&bytes[at..at + 6], b"070701");
            let field = |n: usize| {
                let text = std::str::from_utf8(&bytes[at + 6 + 8 * n..at + 14 + 8 * n]).unwrap();
                usize::from_str_radix(text, 16).unwrap()
            };
            let (size, name_len) = (field(6), field(11));
            let name = &bytes[at + 110..at + 110 + name_len - 1];
            names.push(String::from_utf8(name.to_vec()).unwrap());
            at = (at + 110 + name_len).next_multiple_of(4);
            at = (at + size).next_multiple_of(4);
        }
        assert_eq!(names, ["dev", "dev/console", "a", "a/b", "a/b/one", "a/b/two", END]);
    }
}
