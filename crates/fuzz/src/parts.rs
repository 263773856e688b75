//! Several named contents as one input: what is a folder or a container elsewhere.

/// Files or sections by name.
pub(crate) type Parts = Vec<(String, Vec<u8>)>;

/// As one input: for each its name's length in a byte, its content's in four, then both.
pub(crate) fn joined(parts: &Parts) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, content) in parts {
        bytes.push(name.len() as u8);
        bytes.extend_from_slice(&(content.len() as u32).to_le_bytes());
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(content);
    }
    bytes
}

/// The parts of any bytes: a length beyond the end is that of what there is.
pub(crate) fn split(mut bytes: &[u8]) -> Parts {
    let mut parts = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(5) {
        let nr_name = usize::from(head[0]).min(rest.len());
        let (name, rest) = rest.split_at(nr_name);
        let nr_content = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let (content, rest) = rest.split_at(nr_content.min(rest.len()));
        parts.push((String::from_utf8_lossy(name).into_owned(), content.to_vec()));
        bytes = rest;
    }
    parts
}

/// A snapshot file of these sections, with the checksum that fits (see `highorder_snapshot::container`).
pub(crate) fn container(parts: &Parts) -> Vec<u8> {
    let mut bytes = highorder_snapshot::container::MAGIC.to_vec();
    bytes.extend_from_slice(&highorder_snapshot::container::FORMAT_VERSION.to_le_bytes());
    bytes.extend_from_slice(&(parts.len() as u32).to_le_bytes());
    let length_at = bytes.len();
    bytes.extend_from_slice(&0_u64.to_le_bytes());
    for (name, content) in parts {
        let stored = zstd::bulk::compress(content, 1).unwrap_or_default();
        bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(&(content.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&(stored.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&stored);
    }
    let length = bytes.len() as u64 + 16;
    bytes[length_at..length_at + 8].copy_from_slice(&length.to_le_bytes());
    let checksum = xxhash_rust::xxh3::xxh3_128(&bytes).to_le_bytes();
    bytes.extend_from_slice(&checksum);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_joined_is_split_again() {
        let parts = vec![("a".to_owned(), vec![1, 2]), (String::new(), Vec::new())];
        assert_eq!(split(&joined(&parts)), parts);
        assert_eq!(split(b"\xff\xff\xff\xff\xffab"), [("ab".to_owned(), Vec::new())]);
    }
}
