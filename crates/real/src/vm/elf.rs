//! What little is needed of the ELF format: sections by name, segments, and a program without what only
//! debuggers read. 64-bit, little endian.

/// A file that is such an ELF.
pub(super) struct Elf<'a>(&'a [u8]);

const PT_INTERP: u32 = 3;

impl<'a> Elf<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Option<Self> {
        let is_one = bytes.len() >= 64 && bytes.starts_with(b"\x7fELF\x02\x01");
        is_one.then_some(Self(bytes))
    }

    /// The content of a section.
    pub(super) fn section(&self, name: &str) -> Option<&'a [u8]> {
        let (table, size, count) = (self.u64(40)?, self.u16(58)?, self.u16(60)?);
        let header = |n: u16| usize::try_from(table).ok()?.checked_add(usize::from(n * size));
        let content = |n: u16| {
            let at = header(n)?;
            self.range(self.u64(at + 24)?, self.u64(at + 32)?)
        };
        let names = content(self.u16(62)?)?;
        (0..count).find_map(|n| {
            let at = self.u32(header(n)?)? as usize;
            let found = names.get(at..)?.split(|&b| b == 0).next()?;
            (found == name.as_bytes()).then(|| content(n))?
        })
    }

    /// The loader that the program asks for; none if it is linked statically.
    pub(super) fn interpreter(&self) -> Option<String> {
        let (at, _) = self.segments()?.into_iter().find(|(_, kind)| *kind == PT_INTERP)?;
        let path = self.range(self.u64(at + 8)?, self.u64(at + 32)?)?;
        let path = path.split(|&b| b == 0).next()?;
        Some(String::from_utf8_lossy(path).into_owned())
    }

    /// The program up to the end of what is loaded, and without a table of sections.
    pub(super) fn without_debugging(&self) -> Option<Vec<u8>> {
        let ends = self.segments()?.into_iter().map(|(at, _)| {
            let end = self.u64(at + 8)?.checked_add(self.u64(at + 32)?)?;
            usize::try_from(end).ok()
        });
        let end = ends.collect::<Option<Vec<usize>>>()?.into_iter().max()?;
        let mut program = self.0.get(..end)?.to_vec();
        program.get_mut(40..48)?.fill(0);
        program.get_mut(58..64)?.fill(0);
        Some(program)
    }

    /// Where each program header lies, and its type.
    fn segments(&self) -> Option<Vec<(usize, u32)>> {
        let (table, size, count) = (self.u64(32)?, self.u16(54)?, self.u16(56)?);
        let table = usize::try_from(table).ok()?;
        let all = (0..usize::from(count)).map(|n| {
            let at = table.checked_add(n * usize::from(size))?;
            Some((at, self.u32(at)?))
        });
        all.collect()
    }

    fn range(&self, from: u64, len: u64) -> Option<&'a [u8]> {
        let from = usize::try_from(from).ok()?;
        self.0.get(from..from.checked_add(usize::try_from(len).ok()?)?)
    }

    fn u16(&self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(*self.0.get(at..)?.first_chunk()?))
    }

    fn u32(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(*self.0.get(at..)?.first_chunk()?))
    }

    fn u64(&self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(*self.0.get(at..)?.first_chunk()?))
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
