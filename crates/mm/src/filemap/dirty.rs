//! Which files have dirty pages: a bit for each file.

use super::FileId;
use std_alloc::vec::Vec;

/// Files, by their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct DirtyFiles {
    words: Vec<u64>,
}

impl DirtyFiles {
    pub(super) fn insert(&mut self, file: u32) {
        let (word, bit) = place(file);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= bit;
    }

    pub(super) fn remove(&mut self, file: u32) {
        let (word, bit) = place(file);
        self.words[word] &= !bit;
    }

    /// In the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = FileId> + '_ {
        self.words
            .iter()
            .zip(0..)
            .flat_map(|(&word, number)| Bits(word).map(move |bit| FileId(number * 64 + bit)))
    }
}

const fn place(file: u32) -> (usize, u64) {
    (file as usize / 64, 1 << (file % 64))
}

/// The bits of a word that are set, the lowest first.
struct Bits(u64);

impl Iterator for Bits {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let bit = self.0.trailing_zeros();
        self.0 &= self.0.checked_sub(1)?;
        Some(bit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_in_order_and_go() {
        let mut dirty = DirtyFiles::default();
        for file in [130, 0, 63, 64, 5] {
            dirty.insert(file);
        }
        dirty.insert(5);
        dirty.remove(63);
        assert_eq!(dirty.iter().map(|file| file.0).collect::<Vec<_>>(), [0, 5, 64, 130]);
    }
}
