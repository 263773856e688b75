//! What the table parsers share: numbered lines, numbers, collected problems, kept spacing.

use crate::TextFile;
use highorder_files::limits;
use highorder_input::{InputError, Problem, quote};

/// The spacing of a line that is not laid out as the kernel's own code would.
///
/// Opaque: it rides along with the values of its line and is used when the line is written. Two
/// tables with equal values and different spacing are not equal, for they write differently.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spacing(Option<Box<str>>);

impl Spacing {
    /// The kernel's own.
    pub const KERNEL: Spacing = Spacing(None);

    /// Whether the line is laid out as the kernel's own code would.
    pub fn is_kernel(&self) -> bool {
        self.0.is_none()
    }

    /// Returns what to keep of `line`, read from a file, next to its `canonical` form; `None` if
    /// more than white space differs.
    fn of(line: &str, canonical: &str) -> Option<Spacing> {
        if line == canonical {
            return Some(Spacing::KERNEL);
        }
        line.split_ascii_whitespace()
            .eq(canonical.split_ascii_whitespace())
            .then(|| Spacing(Some(line.into())))
    }

    /// Keeps a line as it is until [`Spacing::resolve`] knows the kernel's layout of it.
    pub(crate) fn verbatim(line: &str) -> Spacing {
        Spacing(Some(line.into()))
    }

    /// Drops what was kept if it is the kernel's layout after all.
    pub(crate) fn resolve(&mut self, canonical: &str) {
        if self.0.as_deref() == Some(canonical) {
            *self = Spacing::KERNEL;
        }
    }

    /// Lays out `canonical`, which may have got other values since, in the kept spacing.
    ///
    /// A value that grew takes from the blanks before it, one that shrank gives to them, so that
    /// columns stay where they are.
    pub(crate) fn apply(&self, canonical: String) -> String {
        let Some(line) = &self.0 else { return canonical };
        let words: Vec<&str> = canonical.split_ascii_whitespace().collect();
        if line.split_ascii_whitespace().count() != words.len() {
            return canonical;
        }
        let mut out = String::with_capacity(line.len());
        let mut rest: &str = line;
        for word in words {
            let start = rest.find(|c: char| !c.is_ascii_whitespace()).unwrap_or(rest.len());
            let (blanks, tail) = rest.split_at(start);
            let end = tail.find(|c: char| c.is_ascii_whitespace()).unwrap_or(tail.len());
            let (old, tail) = tail.split_at(end);
            let (tabs, spaces) = blanks.split_at(blanks.trim_end_matches(' ').len());
            let room = (spaces.len() + old.len()).saturating_sub(word.len());
            let at_least = usize::from(!spaces.is_empty() && !out.is_empty() && tabs.is_empty());
            let width = if spaces.is_empty() { 0 } else { room.max(at_least) };
            out.push_str(tabs);
            out.extend(std::iter::repeat_n(' ', width));
            out.push_str(word);
            rest = tail;
        }
        out.push_str(rest);
        out
    }
}

/// One line of a file: its number from 1 and its text without the newline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    pub(crate) number: u64,
    pub(crate) text: &'a str,
}

impl<'a> Line<'a> {
    /// The words of the line, as white space divides it.
    pub(crate) fn words(&self) -> Vec<&'a str> {
        self.text.split_ascii_whitespace().collect()
    }
}

/// The bad lines found so far in one file.
#[derive(Debug)]
pub(crate) struct Problems {
    file: String,
    list: Vec<Problem>,
    /// How many more there are than are kept.
    dropped: usize,
}

impl Problems {
    pub(crate) fn new(file: &str) -> Problems {
        Problems { file: file.into(), list: Vec::new(), dropped: 0 }
    }

    /// Records that `found` stands at `line` where `expected` should.
    pub(crate) fn add(&mut self, line: u64, found: impl Into<String>, expected: impl Into<String>) {
        if limits::PROBLEMS.check(self.list.len() as u64 + 1).is_err() {
            self.dropped += 1;
            return;
        }
        let line = Some(line).filter(|line| *line > 0);
        self.list.push(Problem::new(&self.file, line, found, expected));
    }

    /// Records what is wrong with the file as a whole.
    pub(crate) fn message(&mut self, message: impl Into<String>) {
        self.list.push(Problem::message(&self.file, None, message));
    }

    /// Records counts of blocks that are more than there can be.
    pub(crate) fn check_blocks(&mut self, line: u64, counts: impl IntoIterator<Item = u64>) {
        let most = counts.into_iter().max().unwrap_or(0);
        if let Err(message) = limits::BLOCKS.check(most) {
            self.list.push(Problem::message(&self.file, Some(line), message));
        }
    }

    /// Records a line that is not what it should be.
    pub(crate) fn line(&mut self, line: Line<'_>, expected: impl Into<String>) {
        self.add(line.number, quote(line.text.as_bytes()), expected);
    }

    /// Returns what to keep of a line's spacing, or records that the line cannot be given back.
    pub(crate) fn spacing(&mut self, line: Line<'_>, canonical: &str) -> Spacing {
        match Spacing::of(line.text, canonical) {
            Some(spacing) => spacing,
            None => {
                self.line(line, quote(canonical.as_bytes()));
                Spacing::KERNEL
            }
        }
    }

    /// Splits a file into its lines, recording bytes that are not text and a last line without
    /// a newline: kernel files end in one, so such a file is cut short.
    pub(crate) fn lines<'a>(&mut self, text: &'a [u8]) -> Vec<Line<'a>> {
        let mut lines = Vec::new();
        let body = text.strip_suffix(b"\n").unwrap_or(text);
        if text.is_empty() {
            return lines;
        }
        for (bytes, number) in body.split(|&b| b == b'\n').zip(1..) {
            match std::str::from_utf8(bytes) {
                Ok(text) => lines.push(Line { number, text }),
                Err(_) => self.add(number, quote(bytes), "text in UTF-8"),
            }
        }
        if body.len() == text.len() {
            let number = lines.last().map_or(0, |line| line.number);
            self.add(number, "no newline at the end of the file", "a whole last line");
        }
        lines
    }

    /// Gives `value`, read from `text`, if nothing was wrong and it writes that same text.
    ///
    /// The parsers see to each line; what is left for the comparison here are lines that are well
    /// formed but stand where the kernel would not have put them.
    pub(crate) fn finish<T: TextFile>(mut self, value: T, text: &[u8]) -> Result<T, InputError> {
        if self.list.is_empty() {
            let written = value.to_text();
            if written.as_bytes() == text {
                return Ok(value);
            }
            let pairs = text.split(|&b| b == b'\n').zip(written.as_bytes().split(|&b| b == b'\n'));
            let odd = pairs.zip(1..).find(|((found, expected), _)| found != expected);
            match odd {
                Some(((found, expected), line)) => self.add(line, quote(found), quote(expected)),
                None => self.add(0, "lines in another order or number", "the kernel's"),
            }
        }
        self.list.sort_by_key(|problem| problem.line);
        Err(InputError::new(self.list).showing(usize::MAX).and_more(self.dropped))
    }
}

/// Parses a number the way the kernel prints it: decimal digits, no sign, no leading zeros.
pub(crate) fn number(word: &str) -> Option<u64> {
    let plain =
        word == "0" || (word.starts_with(|c: char| c.is_ascii_digit()) && !word.starts_with('0'));
    plain.then(|| word.parse().ok()).flatten()
}

/// Parses a number that may be negative, the way the kernel prints it.
pub(crate) fn signed(word: &str) -> Option<i64> {
    match word.strip_prefix('-') {
        Some(digits) => {
            let magnitude = number(digits).filter(|&magnitude| magnitude != 0)?;
            0i64.checked_sub_unsigned(magnitude)
        }
        None => number(word)?.try_into().ok(),
    }
}

/// Parses `Node N, zone NAME` and returns node, name and the rest of the line.
pub(crate) fn node_zone(text: &str) -> Option<(u32, &str, &str)> {
    let (node, rest) = text.strip_prefix("Node")?.split_once(',')?;
    let node = number(node.trim())?.try_into().ok()?;
    let rest = rest.trim_start().strip_prefix("zone")?.strip_prefix(' ')?.trim_start();
    let end = rest.find([' ', ',']).unwrap_or(rest.len());
    (end > 0).then(|| (node, &rest[..end], &rest[end..]))
}

/// Returns the value that most items have (the first of them on a tie), to tell which of
/// several unequal columns counts is the odd one.
pub(crate) fn most_common(items: impl Iterator<Item = usize>) -> Option<usize> {
    let mut counts: Vec<(usize, usize)> = Vec::new();
    for item in items {
        match counts.iter_mut().find(|(value, _)| *value == item) {
            Some((_, count)) => *count += 1,
            None => counts.push((item, 1)),
        }
    }
    let best = counts.iter().map(|&(_, count)| count).max()?;
    counts.iter().find(|&&(_, count)| count == best).map(|&(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_only_as_the_kernel_prints_them() {
        assert_eq!(number("0"), Some(0));
        assert_eq!(number("18446744073709551615"), Some(u64::MAX));
        for bad in ["", "00", "01", "+1", "-1", "0x1", "1 ", "18446744073709551616", "1e3"] {
            assert_eq!(number(bad), None, "{bad:?}");
        }
        assert_eq!(signed("-1"), Some(-1));
        assert_eq!(signed("-9223372036854775808"), Some(i64::MIN));
        for bad in ["-0", "-", "--1", "-01", "9223372036854775808"] {
            assert_eq!(signed(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn kept_spacing_moves_only_what_changed() {
        let spacing = Spacing::of("Node 0,  zone  Normal\t  12   7 ", "Node 0, zone Normal 12 7")
            .expect("the words are the same");
        let apply = |text: &str| spacing.apply(text.into());
        assert_eq!(apply("Node 0, zone Normal 12 7"), "Node 0,  zone  Normal\t  12   7 ");
        assert_eq!(
            apply("Node 0, zone Normal 9 1234"),
            "Node 0,  zone  Normal\t   9 1234 ".to_string()
        );
        assert_eq!(apply("Node 0, zone Normal 12 1234567"), "Node 0,  zone  Normal\t  12 1234567 ");
        assert_eq!(Spacing::of("a 1", "a 2"), None);
    }

    #[test]
    fn a_line_with_another_number_of_words_gets_the_kernels_spacing() {
        let spacing = Spacing::of("a   1", "a 1").unwrap();
        assert_eq!(spacing.apply("a 1 2".into()), "a 1 2");
    }

    #[test]
    fn the_odd_one_out_is_told_from_the_rest() {
        assert_eq!(most_common([11, 9, 11].into_iter()), Some(11));
        assert_eq!(most_common([9, 11, 11].into_iter()), Some(11));
        assert_eq!(most_common([9, 11].into_iter()), Some(9));
        assert_eq!(most_common([].into_iter()), None);
    }
}
