//! Mutations of good inputs, from a seed: the same seed gives the same inputs.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;

/// How long a mutated input may get, in bytes.
const LEN_MAX: usize = 1 << 20;
/// Numbers at which readers break.
const NUMBERS: [&str; 16] = [
    "0",
    "1",
    "-1",
    "255",
    "256",
    "257",
    "65535",
    "65536",
    "2147483648",
    "4294967295",
    "4294967296",
    "1000000000000",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "1e308",
];
/// Texts at which readers break.
const WORDS: [&[u8]; 14] = [
    b"",
    b"\n",
    b"\0",
    b"\xff",
    b"\x1b[31m",
    b"\"",
    b"`",
    b",",
    b"{",
    b"[",
    b"]]",
    b"nan",
    b"../",
    b"NULL",
];

/// Inputs of one target, one after another.
#[derive(Debug)]
pub struct Mutator {
    corpus: Vec<Vec<u8>>,
    random: Pcg64,
}

impl Mutator {
    /// Mutates these inputs; a corpus of none begins with nothing.
    #[must_use]
    pub fn new(mut corpus: Vec<Vec<u8>>, seed: u64) -> Self {
        if corpus.is_empty() {
            corpus.push(Vec::new());
        }
        Self { corpus, random: Pcg64::seed_from_u64(seed) }
    }

    fn below(&mut self, end: usize) -> usize {
        (self.random.next_u64() % end.max(1) as u64) as usize
    }

    /// The next input: one of the corpus with one to eight changes.
    #[must_use]
    pub fn next_input(&mut self) -> Vec<u8> {
        let from = self.below(self.corpus.len());
        let mut input = self.corpus[from].clone();
        let nr_changes = 1 << self.below(4);
        for _ in 0..nr_changes {
            self.change(&mut input);
            input.truncate(LEN_MAX);
        }
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        match self.below(10) {
            0 => {
                let bit = self.below(8);
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << bit;
                }
            }
            1 => {
                let value = [0, 1, 0x7f, 0x80, 0xff][self.below(5)];
                if let Some(byte) = input.get_mut(at) {
                    *byte = value;
                }
            }
            2 => input.truncate(at),
            3 => {
                let end = (at + 1 + self.below(64)).min(input.len());
                drop(input.drain(at.min(end)..end));
            }
            4 => {
                let word = WORDS[self.below(WORDS.len())];
                drop(input.splice(at..at, word.iter().copied()));
            }
            5 | 6 => self.change_number(input, at),
            7 => self.repeat_line(input, at),
            8 => {
                let other = self.below(self.corpus.len());
                let from = self.below(self.corpus[other].len() + 1);
                let tail: Vec<u8> = self.corpus[other][from..].to_vec();
                input.truncate(at);
                input.extend(tail);
            }
            _ => {
                let number = self.random.next_u64().to_le_bytes();
                let len = [1, 2, 4, 8][self.below(4)];
                let end = (at + len).min(input.len());
                input[at..end].copy_from_slice(&number[..end - at]);
            }
        }
    }

    /// The first number from a place on becomes another one.
    fn change_number(&mut self, input: &mut Vec<u8>, at: usize) {
        let digit = |byte: &u8| byte.is_ascii_digit();
        let Some(start) = input[at..].iter().position(digit).map(|n| at + n) else { return };
        let len = input[start..].iter().position(|byte| !digit(byte));
        let end = len.map_or(input.len(), |len| start + len);
        let number = NUMBERS[self.below(NUMBERS.len())];
        drop(input.splice(start..end, number.bytes()));
    }

    /// The line of a place comes again, up to a thousand times.
    fn repeat_line(&mut self, input: &mut Vec<u8>, at: usize) {
        let start = input[..at].iter().rposition(|&byte| byte == b'\n').map_or(0, |n| n + 1);
        let end =
            input[at..].iter().position(|&byte| byte == b'\n').map_or(input.len(), |n| at + n + 1);
        let line = input[start..end].to_vec();
        let times = 1 << self.below(11);
        let times = times.min(LEN_MAX / line.len().max(1));
        drop(input.splice(end..end, line.repeat(times)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_inputs_each_time() {
        let inputs = |seed| {
            let mut mutator = Mutator::new(vec![b"Node 0, zone 12\n".to_vec(), vec![0; 40]], seed);
            (0..1000).map(|_| mutator.next_input()).collect::<Vec<_>>()
        };
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
        assert!(inputs(1).iter().all(|input| input.len() <= LEN_MAX));
    }
}
