//! The lines of a whole trace, plain or compressed, and all of its bad ones.

use highorder_files::limits::{self, Limit};
use std::io::Read;
use std::path::Path;

use super::event::Event;
use super::line::{Item, Line};
use super::value::Mismatch;
use crate::source::{Source, open};
use highorder_input::{InputError, Problem, quote};

/// Bytes read at a time; a longer line makes the buffer grow.
const CHUNK_BYTES: usize = 1 << 18;

/// Bad lines after which something is no trace, if not one event was among them.
const LINES_WITHOUT_EVENT: usize = TRACE_PROBLEMS_SHOWN;
/// How many bad lines of a trace are printed; a table prints all of its bad lines.
const TRACE_PROBLEMS_SHOWN: usize = 20;

/// What a line of a trace looks like, for those who gave something else.
const LINE_LOOKS: &str = "ftrace's text: `TASK-PID [CPU] FLAGS SECONDS: EVENT: ...`";

/// Reads a trace line by line without copying its lines.
///
/// A bad line does not end the reading: it is passed over and remembered, and [`Self::finish`]
/// returns them all. Reading that never asks `finish` has not checked the trace. What has no event among
/// its first lines is no trace, and its reading ends there.
///
/// What follows the last newline is no whole line, and is not read: so ends the text of a pipe whose
/// reader was stopped. [`Self::finish`] tells the number of that line.
#[derive(Debug)]
pub struct TraceReader {
    source: Source,
    buffer: Vec<u8>,
    /// Where the next line starts in `buffer`.
    start: usize,
    /// Where what was read ends in `buffer`.
    end: usize,
    is_at_end: bool,
    line: u64,
    /// Bytes read, unpacked.
    nr_bytes: u64,
    problems: Vec<Problem>,
    /// The first bad line, in quotes.
    first_bad: String,
    /// Whether there was a line as traces have them.
    is_trace: bool,
    /// The last line, where it is cut.
    cut: Option<u64>,
}

impl TraceReader {
    /// Opens a trace, plain or compressed.
    ///
    /// # Errors
    /// As [`open`].
    pub fn open(path: impl AsRef<Path>) -> Result<TraceReader, InputError> {
        Ok(TraceReader::new(open(path)?))
    }

    /// Reads a trace from anywhere.
    pub fn new(source: Source) -> TraceReader {
        TraceReader {
            source,
            buffer: vec![0; CHUNK_BYTES],
            start: 0,
            end: 0,
            is_at_end: false,
            line: 0,
            nr_bytes: 0,
            problems: Vec::new(),
            first_bad: String::new(),
            is_trace: false,
            cut: None,
        }
    }

    /// Returns the number of the line read last, counted from 1.
    pub fn line_number(&self) -> u64 {
        self.line
    }

    /// Returns the bad lines so far.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Returns the next line as it is, without its newline; `None` at the end.
    ///
    /// # Errors
    /// [`InputError`] if the file cannot be read on, if it is compressed and cut
    /// short, or has a line or is as a whole beyond its limit ([`limits::TRACE`]).
    #[inline]
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, InputError> {
        let Some((start, end)) = self.advance()? else { return Ok(None) };
        Ok(Some(&self.buffer[start..end]))
    }

    /// Returns the next line taken apart; `None` at the end. Bad lines are passed over.
    ///
    /// # Errors
    /// As [`Self::next_line`], and [`InputError`] once it is clear that this is no trace.
    #[inline]
    pub fn next_item(&mut self) -> Result<Option<Item<'_>>, InputError> {
        // The loop can only tell that a line is good, not hand it out and go on borrowing the
        // buffer: a good line is parsed once more below. `for_each` does without.
        let (start, end) = loop {
            let Some((start, end)) = self.advance()? else { return Ok(None) };
            match Item::parse(&self.buffer[start..end]) {
                Ok(item) => {
                    self.is_trace |= is_of_a_trace(&item);
                    break (start, end);
                }
                Err(mismatch) => self.bad_line(start, end, 0, mismatch)?,
            }
        };
        Ok(Item::parse(&self.buffer[start..end]).ok())
    }

    /// Ends the reading; the number of the last line, if the trace ends in the middle of it.
    ///
    /// # Errors
    /// [`InputError`] if there was a bad line: it holds all of them and prints the first 20. One problem
    /// alone if there was not one event, lost ones included, beside the bad lines.
    pub fn finish(self) -> Result<Option<u64>, InputError> {
        if !self.first_bad.is_empty() && !self.is_trace {
            return Err(self.no_trace());
        }
        if self.problems.is_empty() {
            return Ok(self.cut);
        }
        Err(InputError::new(self.problems).showing(TRACE_PROBLEMS_SHOWN))
    }

    /// Calls `each` with every line and its event, and reports all bad ones at the end. Returns what
    /// [`Self::finish`] does.
    ///
    /// # Errors
    /// As [`Self::next_item`] and [`Self::finish`].
    pub fn for_each(mut self, mut each: impl FnMut(Entry<'_>)) -> Result<Option<u64>, InputError> {
        while let Some((start, end)) = self.advance()? {
            let text = &self.buffer[start..end];
            match Item::parse(text) {
                Ok(Item::Event(line)) => {
                    self.is_trace = true;
                    match line.parse_event() {
                        Ok(event) => each(Entry::Event(line, event)),
                        Err(mismatch) => {
                            let args_at = text.len() - line.args.len();
                            self.bad_line(start, end, args_at, mismatch)?;
                        }
                    }
                }
                Ok(item) => {
                    self.is_trace |= is_of_a_trace(&item);
                    each(Entry::Other(item));
                }
                Err(mismatch) => self.bad_line(start, end, 0, mismatch)?,
            }
        }
        self.finish()
    }

    /// Finds the next line in the buffer, reading on where needed.
    #[inline]
    fn advance(&mut self) -> Result<Option<(usize, usize)>, InputError> {
        let mut searched = self.start;
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[searched..self.end]) {
                let (start, end) = (self.start, searched + at);
                self.start = end + 1;
                self.line += 1;
                return Ok(Some((start, end)));
            }
            if self.is_at_end {
                self.last_line();
                return Ok(None);
            }
            searched = self.end - self.start;
            self.fill()?;
        }
    }

    /// What is left without a newline is no whole line.
    fn last_line(&mut self) {
        if self.start < self.end {
            self.line += 1;
            self.cut = Some(self.line);
            let text = &self.buffer[self.start..self.end];
            // Nothing but half a line may be half a line of anything.
            if Item::parse(text).is_err() && self.first_bad.is_empty() {
                self.first_bad = quote(text);
            }
            self.start = self.end;
        }
    }

    fn fill(&mut self) -> Result<(), InputError> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.buffer.len() {
            if self.buffer.len() as u64 >= limits::TRACE_LINE.most {
                return Err(self.too_long(limits::TRACE_LINE));
            }
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        loop {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.is_at_end = true,
                Ok(read) => {
                    self.end += read;
                    self.nr_bytes += read as u64;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.source.explain(error)),
            }
            if self.nr_bytes > limits::TRACE.most {
                return Err(self.too_long(limits::TRACE));
            }
            return Ok(());
        }
    }

    /// Remembers a bad line, and ends the reading if there have been nothing but such lines.
    #[cold]
    fn bad_line(
        &mut self,
        start: usize,
        end: usize,
        offset: usize,
        mismatch: Mismatch,
    ) -> Result<(), InputError> {
        let text = &self.buffer[start..end];
        if self.first_bad.is_empty() {
            self.first_bad = quote(text);
        }
        let found = found(text, offset + mismatch.at);
        self.problem(found, mismatch.expected);
        match !self.is_trace && self.problems.len() == LINES_WITHOUT_EVENT {
            true => Err(self.no_trace()),
            false => Ok(()),
        }
    }

    /// The error of a file without an event, in one problem.
    fn no_trace(&self) -> InputError {
        let first_line =
            self.problems.first().and_then(|problem| problem.line).unwrap_or(self.line);
        let found = format!("no trace: line {first_line} is {}", self.first_bad);
        InputError::whole(self.source.file(), found, LINE_LOOKS)
    }

    /// The error of a trace of which more comes than is read, in the line that is not over yet.
    fn too_long(&self, limit: Limit) -> InputError {
        self.source.too_long(limit).at_line(self.line + 1)
    }

    #[cold]
    fn problem(&mut self, found: String, expected: &str) {
        let file = self.source.file().to_string();
        self.problems.push(Problem::new(file, Some(self.line), found, expected));
    }
}

/// An event with its arguments taken apart, or a line that is none.
#[allow(clippy::large_enum_variant, reason = "nearly every entry is an event, and none is stored")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// An event: when and where, and what.
    Event(Line<'a>, Event<'a>),
    /// A line that is no event.
    Other(Item<'a>),
}

/// Whether a line is of a trace for sure: anything may have comments, empty lines and arrows.
fn is_of_a_trace(item: &Item<'_>) -> bool {
    matches!(item, Item::Event(_) | Item::Lost { .. })
}

/// Reads a whole trace, calling `each` with every line. Returns what [`TraceReader::finish`] does.
///
/// # Errors
/// [`InputError`] if the file cannot be read, with all its bad lines.
pub fn read_events(
    path: impl AsRef<Path>,
    each: impl FnMut(Entry<'_>),
) -> Result<Option<u64>, InputError> {
    TraceReader::open(path)?.for_each(each)
}

/// Says what stands at `at`, and in which line.
fn found(text: &[u8], at: usize) -> String {
    let at = at.min(text.len());
    let rest = &text[at..];
    let here = if rest.is_empty() { "the end".into() } else { quote(&rest[..rest.len().min(24)]) };
    format!("{here} at column {} of {}", at + 1, quote(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(text: &str) -> TraceReader {
        let bytes = std::io::Cursor::new(text.as_bytes().to_vec());
        TraceReader::new(Source::new("t/trace.txt", bytes).unwrap())
    }

    const GOOD: &str = "            bash-1       [001] .....     1.000001: mm_page_free: \
                        page=0000000068058a4b pfn=0x1 order=0\n";

    #[test]
    fn bad_lines_are_passed_over_and_reported_together() {
        let bad_args = GOOD.replace("order=0", "order=x");
        let text = format!("# tracer: nop\n{GOOD}hello\n{bad_args}{GOOD}");
        let mut events = 0;
        let error = reader(&text)
            .for_each(|entry| events += u32::from(matches!(entry, Entry::Event(..))))
            .unwrap_err();
        assert_eq!(events, 2);
        let [first, second] = error.problems() else { panic!("{error}") };
        assert_eq!(
            first.to_string(),
            "t/trace.txt:3: `hello` at column 1 of `hello`, expected a task's name, `-` and its pid"
        );
        assert_eq!((second.line, second.expected.as_deref()), (Some(4), Some("a decimal number")));
        assert!(second.found.starts_with("`x` at column 102 of `            bash-1"), "{second}");
    }

    #[test]
    fn one_line_at_a_time_gives_the_same() {
        let text = format!("# tracer: nop\nhello\n{GOOD}\n");
        let mut reader = reader(&text);
        let mut out = Vec::new();
        while let Some(item) = reader.next_item().unwrap() {
            item.write(&mut out);
            out.push(b'\n');
        }
        assert_eq!(String::from_utf8(out).unwrap(), text.replace("hello\n", ""));
        assert_eq!(reader.line_number(), 4);
        assert_eq!(reader.finish().unwrap_err().problems()[0].line, Some(2));
    }

    #[test]
    fn a_long_list_of_bad_lines_is_kept_whole_and_printed_in_part() {
        let text = format!("{GOOD}{}", "nonsense\n".repeat(50));
        let error = reader(&text).for_each(|_| {}).unwrap_err();
        assert_eq!(error.problems().len(), 50);
        assert!(error.to_string().ends_with("\n... and 30 more"));
    }

    #[test]
    fn a_trace_cut_inside_its_last_line_is_read_up_to_there_and_says_where() {
        for cut in 1..GOOD.len() {
            let mut nr_events = 0;
            let text = format!("{GOOD}{}", &GOOD[..cut]);
            let ended = reader(&text).for_each(|_| nr_events += 1);
            assert_eq!((ended.unwrap(), nr_events), (Some(2), 1), "cut at {cut}");
        }
        assert_eq!(reader(GOOD).for_each(|_| {}).unwrap(), None);
        assert_eq!(reader("").for_each(|_| {}).unwrap(), None);
    }

    #[test]
    fn what_is_no_trace_is_told_by_its_first_lines_in_one_problem() {
        let told = |text: &str| {
            let error = reader(text).for_each(|_| panic!("there is no event")).unwrap_err();
            assert_eq!(error.problems().len(), 1, "{error}");
            error.to_string()
        };
        let expected = "expected ftrace's text: `TASK-PID [CPU] FLAGS SECONDS: EVENT: ...`";
        let hello = format!("t/trace.txt: no trace: line 1 is `hello`, {expected}");
        assert_eq!(told("hello\n"), hello);
        assert_eq!(told("hello"), hello);
        assert_eq!(told(&"hello\n".repeat(50)), hello);
        // What would follow is not looked at.
        assert_eq!(told(&format!("{}{GOOD}", "hello\n".repeat(20))), hello);
        let mut reader = reader(&"hello\n".repeat(50));
        assert_eq!(reader.next_item().unwrap_err().to_string(), hello);
    }

    #[test]
    fn a_line_that_does_not_end_is_refused() {
        let zeros = Source::new("zeros", std::io::repeat(0)).unwrap();
        let error = TraceReader::new(zeros).for_each(|_| {}).unwrap_err();
        let limit = "expected at most 1 MiB, the limit of a line of a trace";
        assert_eq!(error.to_string(), format!("zeros:1: more than 1048576 bytes, {limit}"));
    }

    #[test]
    fn a_compressed_trace_cut_short_is_an_error_after_what_could_be_read() {
        let packed = zstd::encode_all(GOOD.repeat(10_000).as_bytes(), 3).unwrap();
        let cut = std::io::Cursor::new(packed[..packed.len() - 4].to_vec());
        let mut events = 0;
        let error = TraceReader::new(Source::new("trace.zst", cut).unwrap())
            .for_each(|_| events += 1)
            .unwrap_err();
        assert!(events <= 10_000);
        assert!(error.to_string().starts_with("trace.zst: zstd data that is damaged"), "{error}");
    }

    #[test]
    fn lines_longer_than_the_buffer_are_read_whole() {
        let long = format!("#{}", "x".repeat(3 * CHUNK_BYTES));
        let text = format!("{GOOD}{long}\n{GOOD}");
        let mut reader = reader(&text);
        let mut lengths = Vec::new();
        while let Some(line) = reader.next_line().unwrap() {
            lengths.push(line.len());
        }
        assert_eq!(lengths, [GOOD.len() - 1, long.len(), GOOD.len() - 1]);
    }
}
