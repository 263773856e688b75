//! One opener for plain, gzip and zstd files, told apart by their first bytes.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use highorder_files::limits::{self, Limit};
use highorder_input::InputError;

/// The first bytes of a gzip stream (RFC 1952).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// The first bytes of a zstd frame (RFC 8878), little endian 0xFD2FB528.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Bytes read to tell what a file is: `/proc/kpageflags` gives out multiples of 8 only.
const MAGIC_BYTES: usize = 8;
/// Bytes read at a time; a multiple of 8 for the same reason.
const CHUNK_BYTES: usize = 1 << 16;

/// A file opened for reading, uncompressed on the way if need be.
pub struct Source {
    file: String,
    packed: Option<&'static str>,
    reader: Box<dyn Read + Send>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("file", &self.file).field("packed", &self.packed).finish()
    }
}

/// Opens a file, plain or compressed.
///
/// # Errors
/// [`InputError`] if it cannot be opened or its first bytes cannot be read, if it is neither a
/// regular file nor a pipe.
pub fn open(path: impl AsRef<Path>) -> Result<Source, InputError> {
    let path = path.as_ref();
    let file = highorder_files::open(path).map_err(|error| InputError::read(path, error))?;
    Source::new(&path.display().to_string(), file)
}

/// Where a folder has a file of this name, plain, as `NAME.gz` or as `NAME.zst`, if it has it.
#[must_use]
pub fn find_packed(folder: &Path, name: &str) -> Option<PathBuf> {
    let paths = ["", ".gz", ".zst"].map(|suffix| folder.join(format!("{name}{suffix}")));
    paths.into_iter().find(|path| path.exists())
}

/// Reads a whole file, plain or compressed, to its last byte.
///
/// # Errors
/// [`InputError`] if it cannot be read, if compressed data is damaged or cut short, or if there
/// is more than a kernel's table can have ([`limits::TABLE`]).
pub fn read_bytes(path: impl AsRef<Path>) -> Result<Vec<u8>, InputError> {
    let path = path.as_ref();
    let file = highorder_files::open_within(path, limits::TABLE);
    let file = file.map_err(|error| InputError::read(path, error))?;
    Source::new(&path.display().to_string(), file)?.read_table()
}

/// Reads the first bytes, which a pipe may hand over in pieces.
fn read_magic(reader: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut magic = [0; MAGIC_BYTES];
    let mut filled = 0;
    while filled < magic.len() {
        match reader.read(&mut magic[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(magic[..filled].to_vec())
}

impl Source {
    /// Wraps any reader; `file` is the name that errors carry.
    ///
    /// # Errors
    /// [`InputError`] if the first bytes cannot be read.
    pub fn new(file: &str, reader: impl Read + Send + 'static) -> Result<Source, InputError> {
        let wrap = |source| InputError::io(file, "read", &source);
        let mut reader = reader;
        let magic = read_magic(&mut reader).map_err(wrap)?;
        let is_gzip = magic.starts_with(&GZIP_MAGIC);
        let is_zstd = magic.starts_with(&ZSTD_MAGIC);
        let whole = io::Cursor::new(magic).chain(reader);
        let (packed, reader): (_, Box<dyn Read + Send>) = if is_gzip {
            let reader = flate2::bufread::MultiGzDecoder::new(BufReader::new(whole));
            (Some("gzip"), Box::new(reader))
        } else if is_zstd {
            let reader = BufReader::with_capacity(1 << 17, whole);
            (Some("zstd"), Box::new(zstd::Decoder::with_buffer(ZstdInput(reader)).map_err(wrap)?))
        } else {
            (None, Box::new(whole))
        };
        Ok(Source { file: file.into(), packed, reader })
    }

    /// Returns the name that errors carry.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Reads all there is, to its last byte.
    ///
    /// # Errors
    /// [`InputError`] if it cannot be read, if compressed data is damaged or cut short, or if there is more than a
    /// kernel's table can have ([`limits::TABLE`]).
    pub fn read_table(mut self) -> Result<Vec<u8>, InputError> {
        let mut bytes = Vec::new();
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            match self.read(&mut chunk) {
                Ok(0) => return Ok(bytes),
                Ok(read) if (bytes.len() + read) as u64 > limits::TABLE.most => {
                    return Err(self.too_long(limits::TABLE));
                }
                Ok(read) => bytes.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.explain(error)),
            }
        }
    }

    /// The error of a file of which more comes than is read.
    pub(crate) fn too_long(&self, limit: Limit) -> InputError {
        let expected = format!("at most {}, the limit of {}", limit.told(), limit.of);
        InputError::whole(&self.file, format!("more than {} bytes", limit.most), expected)
    }

    /// Turns an error of reading from this source into ours: damaged compressed data is the
    /// file's fault, anything else the system's.
    pub fn explain(&self, error: io::Error) -> InputError {
        match self.packed {
            Some(packed) if error.raw_os_error().is_none() => InputError::whole(
                &self.file,
                format!("{packed} data that is damaged or cut short ({error})"),
                format!("a whole {packed} stream"),
            ),
            _ => InputError::io(&self.file, "read", &error),
        }
    }
}

impl Read for Source {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buf)
    }
}

/// A `BufRead` by name only, so that the decoder may own a chain of readers.
struct ZstdInput<R>(BufReader<R>);

impl<R: Read> Read for ZstdInput<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl<R: Read> BufRead for ZstdInput<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.0.fill_buf()
    }
    fn consume(&mut self, amount: usize) {
        self.0.consume(amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    }

    fn read(bytes: &[u8]) -> Result<Vec<u8>, InputError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, bytes).unwrap();
        read_bytes(&path)
    }

    #[test]
    fn plain_gzip_and_zstd_files_give_the_same_bytes() {
        let text = b"nr_free_pages 12\n".repeat(1000);
        assert_eq!(read(&text).unwrap(), text);
        assert_eq!(read(&gzip(&text)).unwrap(), text);
        assert_eq!(read(&zstd::encode_all(&text[..], 3).unwrap()).unwrap(), text);
        assert_eq!(read(b"").unwrap(), b"");
        assert_eq!(read(b"x").unwrap(), b"x");
    }

    #[test]
    fn concatenated_streams_are_read_to_the_end() {
        let twice = [gzip(b"one\n"), gzip(b"two\n")].concat();
        assert_eq!(read(&twice).unwrap(), b"one\ntwo\n");
        let twice = [zstd::encode_all(&b"one\n"[..], 3), zstd::encode_all(&b"two\n"[..], 3)];
        let twice: Vec<u8> = twice.into_iter().flat_map(Result::unwrap).collect();
        assert_eq!(read(&twice).unwrap(), b"one\ntwo\n");
    }

    #[test]
    fn every_cut_of_a_compressed_file_is_an_error_that_names_the_file() {
        let text: Vec<u8> =
            (0..2000u32).flat_map(|i| format!("{}\n", i * 7919).into_bytes()).collect();
        for (whole, magic) in
            [(gzip(&text), 2), (zstd::encode_all(&text[..], 3).unwrap(), ZSTD_MAGIC.len())]
        {
            for end in (magic..whole.len()).step_by(whole.len() / 60).chain([whole.len() - 1]) {
                let error = read(&whole[..end]).expect_err("cut at {end}");
                let message = error.to_string();
                assert!(message.contains("cut short"), "{end}: {message}");
            }
        }
    }

    #[test]
    fn a_missing_file_is_an_io_error_with_its_name() {
        let error = read_bytes("/nonexistent/vmstat").unwrap_err();
        assert!(error.to_string().starts_with("/nonexistent/vmstat: "), "{error}");
        assert_eq!(error.refused(), Some(io::ErrorKind::NotFound));
    }
}
