//! What is needed of the ELF format: sections by name, the loader of a program, and a program without what only
//! debuggers read. 64-bit, little endian.

use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

type Header = FileHeader64<LittleEndian>;

/// A file that is such an ELF.
pub(super) struct Elf<'a> {
    bytes: &'a [u8],
    header: &'a Header,
}

impl<'a> Elf<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Option<Self> {
        Some(Self { bytes, header: Header::parse(bytes).ok()? })
    }

    /// The content of a section.
    pub(super) fn section(&self, name: &str) -> Option<&'a [u8]> {
        let sections = self.header.sections(LittleEndian, self.bytes).ok()?;
        let (_, section) = sections.section_by_name(LittleEndian, name.as_bytes())?;
        section.data(LittleEndian, self.bytes).ok()
    }

    /// The loader that the program asks for; none if it is linked statically.
    pub(super) fn interpreter(&self) -> Option<String> {
        let segments = self.header.program_headers(LittleEndian, self.bytes).ok()?;
        let path = segments.iter().find_map(|s| s.interpreter(LittleEndian, self.bytes).ok()?)?;
        Some(String::from_utf8_lossy(path).into_owned())
    }

    /// The program up to the end of what is loaded, and without a table of sections.
    pub(super) fn without_debugging(&self) -> Option<Vec<u8>> {
        /// Where the header says where the table of sections lies, and how large it is (`e_shoff`, and
        /// `e_shentsize` to `e_shstrndx`).
        const TABLE: [std::ops::Range<usize>; 2] = [40..48, 58..64];
        let segments = self.header.program_headers(LittleEndian, self.bytes).ok()?;
        let ends = segments.iter().map(|segment| {
            let (at, len) = segment.file_range(LittleEndian);
            usize::try_from(at.checked_add(len)?).ok()
        });
        let end = ends.collect::<Option<Vec<usize>>>()?.into_iter().max()?;
        let mut program = self.bytes.get(..end)?.to_vec();
        for field in TABLE {
            program.get_mut(field)?.fill(0);
        }
        Some(program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_program_runs_without_what_debuggers_read() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let elf = Elf::new(&bytes).unwrap();
        assert!(elf.section(".text").is_some_and(|text| !text.is_empty()));
        assert!(elf.section(".nothing").is_none());
        let small = elf.without_debugging().unwrap();
        assert!(small.len() < bytes.len());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        std::fs::write(&path, small).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        // A process that another test forks has the file open for writing until it is another program.
        let output = loop {
            match std::process::Command::new(&path).arg("--list").output() {
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                    std::thread::yield_now();
                }
                output => break output.unwrap(),
            }
        };
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).contains("a_program_runs_without"));
    }

    #[test]
    fn what_is_cut_short_is_no_program_and_no_panic() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        for len in [0, 4, 63, 64, 100, 1000] {
            if let Some(elf) = Elf::new(&bytes[..len]) {
                assert!(elf.section(".text").is_none());
                assert!(elf.without_debugging().is_none());
            }
        }
    }
}
