//! One line of a trace: the prefix every event has, and lines that are no events.
//!
//! Models: kernel/trace/trace_output.c (`trace_print_context`): the task's name right-aligned to
//! 16 columns, `-`, the pid left-aligned to 7 (5 before v5.4), the thread group if asked for, the
//! CPU, the flags if asked for, seconds and microseconds. And tools/perf/builtin-script.c
//! (`perf_sample__fprintf_start`): the name right-aligned to 16 columns, a blank, the thread right-aligned to 5 (or
//! `PID/TID`), the CPU, the time, and the event with its subsystem, `kmem:mm_page_alloc`. Which of the two a line is in
//! its own text tells.

use super::value::{Mismatch, decimal, put_decimal};

/// Columns of a task's name.
const COMM_WIDTH: usize = 16;
/// Columns of a thread's number as perf prints it.
const PERF_PID_WIDTH: u8 = 5;

/// What a line says of its task, and the widths that it has so far.
struct Task<'a> {
    comm: &'a [u8],
    pid: u32,
    tgid: Tgid,
    form: Form,
}

/// An event: when and where it happened, what it is called, and its arguments as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The task's name; it may hold blanks, dashes and brackets.
    pub comm: &'a [u8],
    /// The task's thread id.
    pub pid: u32,
    /// The task's process id, with `record-tgid` on.
    pub tgid: Tgid,
    /// The CPU.
    pub cpu: u32,
    /// The flags as they are, e.g. `d..2.`: interrupts off, rescheduling needed, in interrupt,
    /// preemption depth, migration disabled. Empty with `irq-info` off.
    pub flags: &'a [u8],
    /// Time in nanoseconds. With a clock that counts something else (no point in the text), that
    /// count; see [`Form::decimals`].
    pub timestamp_ns: u64,
    /// The event's subsystem, which `perf script` alone prints; else empty.
    pub subsystem: &'a [u8],
    /// The event's name; empty where a line has none, as with the function tracer.
    pub event: &'a [u8],
    /// What follows the name.
    pub args: &'a [u8],
    /// The widths the line is written in.
    pub form: Form,
}

/// What a line says of its thread group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tgid {
    /// The trace has no such column.
    NoColumn,
    /// The kernel did not know: dashes.
    Unknown,
    /// The process id.
    Known(u32),
}

/// The widths of a line's columns.
///
/// The default is what kernels since v5.4 print; a line that was read keeps its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Whether it is `perf script`'s line, not ftrace's.
    pub is_perf: bool,
    /// Columns of the task's name, right-aligned.
    pub comm_width: u8,
    /// Columns of the pid, left-aligned; right-aligned by perf.
    pub pid_width: u8,
    /// Columns of the thread group, right-aligned.
    pub tgid_width: u8,
    /// Digits of the CPU, with leading zeros.
    pub cpu_width: u8,
    /// Columns of the seconds, right-aligned.
    pub time_width: u8,
    /// Digits after the point: 6 for microseconds, 9 for nanoseconds, 0 for a clock that counts.
    pub decimals: u8,
    /// Blanks between the time and the event's name.
    pub gap: u8,
    /// Blanks between the name and its arguments; `trace-cmd` aligns these.
    pub args_gap: u8,
}

impl Default for Form {
    fn default() -> Form {
        Form {
            is_perf: false,
            comm_width: COMM_WIDTH as u8,
            pid_width: 7,
            tgid_width: 7,
            cpu_width: 3,
            time_width: 5,
            decimals: 6,
            gap: 1,
            args_gap: 1,
        }
    }
}

impl<'a> Line<'a> {
    /// Parses a line without its newline.
    ///
    /// # Errors
    /// [`Mismatch`] says where the line is not what it should be.
    #[inline]
    pub fn parse(text: &'a [u8]) -> Result<Line<'a>, Mismatch> {
        // The kernel pads names to 16 columns and has none longer than 15, so a dash after
        // column 16 ends the name whatever else it holds.
        if text.get(COMM_WIDTH) == Some(&b'-')
            && let Ok(line) = Line::parse_after_comm(text, COMM_WIDTH)
        {
            return Ok(line);
        }
        let mut nearest = Mismatch { at: 0, expected: "a task's name, `-` and its pid" };
        for dash in memchr::memchr_iter(b'-', text) {
            match Line::parse_after_comm(text, dash) {
                Ok(line) => return Ok(line),
                Err(mismatch) if mismatch.at > nearest.at => nearest = mismatch,
                Err(_) => {}
            }
        }
        // A name may hold brackets: the CPU's are the first that do for a whole line.
        let brackets = memchr::memchr_iter(b'[', text);
        brackets.into_iter().find_map(|at| Line::parse_of_perf(text, at)).ok_or(nearest)
    }

    /// Parses a line of `perf script` whose CPU's bracket is at `bracket`.
    fn parse_of_perf(text: &'a [u8], bracket: usize) -> Option<Line<'a>> {
        let mut form = Form { is_perf: true, pid_width: PERF_PID_WIDTH, ..Form::default() };
        let before = text[..bracket].strip_suffix(b" ")?;
        let tasks_at = before.trim_ascii_end().iter().rposition(|&b| b == b' ')? + 1;
        let tasks = &before[tasks_at..];
        let comm_end = before[..tasks_at].trim_ascii_end().len();
        let comm = before[..comm_end].trim_ascii_start();
        form.comm_width = width(comm_end, comm_end - comm.len(), COMM_WIDTH as u8).ok()?;
        let gap = tasks_at - comm_end - 1;
        let (first, digits) = decimal(tasks)?;
        let first = u32::try_from(first).ok()?;
        form.pid_width = width(gap + digits, gap, PERF_PID_WIDTH).ok()?;
        let (tgid, pid) = match tasks[digits..].strip_prefix(b"/") {
            None => (Tgid::NoColumn, first),
            Some(second) => {
                let (pid, digits) = decimal(second)?;
                form.tgid_width =
                    width(second.len(), second.len() - digits, PERF_PID_WIDTH).ok()?;
                (Tgid::Known(first), u32::try_from(pid).ok()?)
            }
        };
        let line = Line::parse_from_cpu(text, bracket, Task { comm, pid, tgid, form }).ok()?;
        let mut out = Vec::with_capacity(text.len());
        line.write(&mut out);
        (out == text).then_some(line)
    }

    /// Parses a line whose task's name ends at `dash`.
    #[inline]
    fn parse_after_comm(text: &'a [u8], dash: usize) -> Result<Line<'a>, Mismatch> {
        let mut form = Form::default();
        let lead = text[..dash].iter().take_while(|&&b| b == b' ').count();
        let comm = &text[lead..dash];
        form.comm_width = width(dash, lead, COMM_WIDTH as u8)?;

        let mut at = dash + 1;
        let (pid, digits) = small(text, at, "a pid")?;
        at += digits;
        let gap = blanks(text, at);
        if gap == 0 {
            return Err(Mismatch { at, expected: "a blank after the pid" });
        }
        form.pid_width = width(digits + gap - 1, gap - 1, form.pid_width)?;
        at += gap;

        let mut tgid = Tgid::NoColumn;
        if text.get(at) == Some(&b'(') {
            at += 1;
            let pad = blanks(text, at);
            let dashes = text[at + pad..].iter().take_while(|&&b| b == b'-').count();
            let len = if dashes > 0 {
                tgid = Tgid::Unknown;
                dashes
            } else {
                let (id, digits) = small(text, at + pad, "a thread group's id")?;
                tgid = Tgid::Known(id);
                digits
            };
            form.tgid_width = width(pad + len, pad, form.tgid_width)?;
            if matches!(tgid, Tgid::Unknown) {
                // Dashes fill their column: its width is theirs, and they have no blanks.
                form.tgid_width = width(pad + len, 1, 0)?;
                if pad > 0 {
                    return Err(Mismatch { at, expected: "dashes without blanks" });
                }
            }
            at += pad + len;
            at = expect(text, at, b") ", "`) ` after the thread group")?;
        }

        Line::parse_from_cpu(text, at, Task { comm, pid, tgid, form })
    }

    /// Parses what follows the task.
    #[inline]
    fn parse_from_cpu(text: &'a [u8], at: usize, task: Task<'a>) -> Result<Line<'a>, Mismatch> {
        let Task { comm, pid, tgid, mut form } = task;
        let mut at = expect(text, at, b"[", "`[` and the CPU")?;
        let digits = text[at..].iter().take_while(|b| b.is_ascii_digit()).count();
        let zeros =
            text[at..].iter().take_while(|&&b| b == b'0').count().min(digits.saturating_sub(1));
        let (cpu, _) = small(text, at + zeros, "a CPU's number")?;
        form.cpu_width = width(digits, zeros, form.cpu_width)?;
        at = expect(text, at + digits, b"] ", "`] ` after the CPU")?;

        let mut flags: &[u8] = b"";
        if text.get(at).is_some_and(|b| *b != b' ' && !b.is_ascii_digit()) {
            let end = memchr::memchr(b' ', &text[at..]);
            let end = end.ok_or(Mismatch { at, expected: "flags and a time" })?;
            flags = &text[at..at + end];
            at += end + 1;
        }

        let pad = blanks(text, at);
        at += pad;
        let (whole, digits) = decimal(text.get(at..).unwrap_or_default())
            .ok_or(Mismatch { at, expected: "a time in seconds" })?;
        form.time_width = width(pad + digits, pad, form.time_width)?;
        at += digits;
        let mut timestamp_ns = whole;
        form.decimals = 0;
        if text.get(at) == Some(&b'.') {
            at += 1;
            let (fraction_ns, decimals) = fraction(&text[at..])
                .ok_or(Mismatch { at, expected: "1 to 9 digits of a second" })?;
            form.decimals = decimals as u8;
            timestamp_ns = whole
                .checked_mul(1_000_000_000)
                .and_then(|ns| ns.checked_add(fraction_ns))
                .ok_or(Mismatch { at, expected: "a time below 584 years" })?;
            at += decimals;
        }
        at = expect(text, at, b":", "`:` after the time")?;

        let gap = blanks(text, at);
        form.gap = width(gap, 1, 0)?;
        at += gap;
        let mut rest = &text[at..];
        let mut subsystem: &[u8] = b"";
        if form.is_perf {
            let colon = memchr::memchr(b':', rest).filter(|&colon| colon > 0);
            let expected = "an event with its subsystem";
            let colon = colon.ok_or(Mismatch { at, expected })?;
            (subsystem, rest) = (&rest[..colon], &rest[colon + 1..]);
        }
        let name = rest.iter().take_while(|&&b| b != b' ' && b != b':').count();
        let (event, args) = match rest.get(name) {
            Some(b':') if name > 0 => {
                let gap = blanks(rest, name + 1);
                form.args_gap = width(gap, 1, 0)?;
                (&rest[..name], &rest[name + 1 + gap..])
            }
            _ => (&rest[..0], rest),
        };
        Ok(Line { comm, pid, tgid, cpu, flags, timestamp_ns, subsystem, event, args, form })
    }

    /// Appends the line, without a newline.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_prefix(out);
        out.extend_from_slice(self.args);
    }

    /// Appends everything before the arguments.
    pub fn write_prefix(&self, out: &mut Vec<u8>) {
        let Form {
            is_perf,
            comm_width,
            pid_width,
            tgid_width,
            cpu_width,
            time_width,
            decimals,
            gap,
            args_gap,
        } = self.form;
        pad(comm_width, self.comm.len(), b' ', out);
        out.extend_from_slice(self.comm);
        match (is_perf, self.tgid) {
            (false, _) => {
                out.push(b'-');
                put_left(self.pid, pid_width, out);
            }
            (true, Tgid::Known(tgid)) => {
                out.push(b' ');
                put_padded(tgid.into(), pid_width, b' ', out);
                out.push(b'/');
                put_left(self.pid, tgid_width, out);
            }
            (true, _) => {
                out.push(b' ');
                put_padded(self.pid.into(), pid_width, b' ', out);
            }
        }
        out.push(b' ');
        match self.tgid {
            _ if is_perf => {}
            Tgid::NoColumn => {}
            Tgid::Unknown => {
                out.push(b'(');
                pad(tgid_width, 0, b'-', out);
                out.extend_from_slice(b") ");
            }
            Tgid::Known(tgid) => {
                out.push(b'(');
                put_padded(tgid.into(), tgid_width, b' ', out);
                out.extend_from_slice(b") ");
            }
        }
        out.push(b'[');
        put_padded(self.cpu.into(), cpu_width, b'0', out);
        out.extend_from_slice(b"] ");
        if !self.flags.is_empty() {
            out.extend_from_slice(self.flags);
            out.push(b' ');
        }
        if decimals == 0 {
            put_padded(self.timestamp_ns, time_width, b' ', out);
        } else {
            put_padded(self.timestamp_ns / 1_000_000_000, time_width, b' ', out);
            out.push(b'.');
            let unit = 10u64.pow(9 - u32::from(decimals.min(9)));
            put_padded(self.timestamp_ns % 1_000_000_000 / unit, decimals.min(9), b'0', out);
        }
        out.push(b':');
        pad(gap, 0, b' ', out);
        if !self.subsystem.is_empty() {
            out.extend_from_slice(self.subsystem);
            out.push(b':');
        }
        if !self.event.is_empty() {
            out.extend_from_slice(self.event);
            out.push(b':');
            pad(args_gap, 0, b' ', out);
        }
    }
}

#[inline]
fn blanks(text: &[u8], at: usize) -> usize {
    text.get(at..).unwrap_or_default().iter().take_while(|&&b| b == b' ').count()
}

/// Reads a decimal number of 32 bits at `at`.
#[inline]
fn small(text: &[u8], at: usize, expected: &'static str) -> Result<(u32, usize), Mismatch> {
    let (value, digits) =
        decimal(text.get(at..).unwrap_or_default()).ok_or(Mismatch { at, expected })?;
    Ok((value.try_into().map_err(|_| Mismatch { at, expected })?, digits))
}

#[inline]
fn expect(
    text: &[u8],
    at: usize,
    literal: &[u8],
    expected: &'static str,
) -> Result<usize, Mismatch> {
    let found = text.get(at..).unwrap_or_default().starts_with(literal);
    found.then_some(at + literal.len()).ok_or(Mismatch { at, expected })
}

/// Returns the width of a column that takes `len` and holds `pad` of filling.
///
/// A column without filling is no wider than `usual`: its width is then not visible.
#[inline]
fn width(len: usize, pad: usize, usual: u8) -> Result<u8, Mismatch> {
    if pad == 0 && len >= usize::from(usual) {
        return Ok(usual);
    }
    len.try_into().map_err(|_| Mismatch { at: 0, expected: "columns of less than 256 blanks" })
}

/// Reads the digits after the point: nanoseconds, and how many digits there are.
#[inline]
fn fraction(text: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    let mut digits = 0;
    while let Some(digit) = text.get(digits).map(|b| b.wrapping_sub(b'0')).filter(|&d| d < 10) {
        if digits == 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
        digits += 1;
    }
    const UNIT_NS: [u64; 10] =
        [0, 100_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10, 1];
    (digits > 0).then(|| (value * UNIT_NS[digits], digits))
}

#[inline]
fn pad(width: u8, len: usize, with: u8, out: &mut Vec<u8>) {
    out.extend(std::iter::repeat_n(with, usize::from(width).saturating_sub(len)));
}

/// Writes a number left-aligned.
#[inline]
fn put_left(value: u32, width: u8, out: &mut Vec<u8>) {
    let start = out.len();
    put_decimal(value.into(), out);
    pad(width, out.len() - start, b' ', out);
}

#[inline]
fn put_padded(value: u64, width: u8, with: u8, out: &mut Vec<u8>) {
    let mut digits = 1;
    let mut rest = value / 10;
    while rest > 0 {
        digits += 1;
        rest /= 10;
    }
    pad(width, digits, with, out);
    put_decimal(value, out);
}

/// A line of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// An event.
    Event(Line<'a>),
    /// A line of the heading, or another that starts with `#`; `trace-cmd`'s heading too.
    Comment(&'a [u8]),
    /// `CPU:1 [LOST 12 EVENTS]`: the buffer overflowed, the trace is not whole.
    Lost {
        /// The CPU whose events are lost.
        cpu: u32,
        /// How many, where the kernel knows.
        events: Option<u64>,
        /// The line as it is.
        text: &'a [u8],
    },
    /// Part of a stack trace, as it is.
    Stack(&'a [u8]),
    /// An empty line.
    Empty,
}

impl<'a> Item<'a> {
    /// Parses a line without its newline.
    ///
    /// # Errors
    /// [`Mismatch`] if the line is none of these.
    #[inline]
    pub fn parse(text: &'a [u8]) -> Result<Item<'a>, Mismatch> {
        match Line::parse(text) {
            Ok(line) => Ok(Item::Event(line)),
            Err(mismatch) => other(text).ok_or(mismatch),
        }
    }

    /// Appends the line, without a newline.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Item::Event(line) => line.write(out),
            Item::Comment(text) | Item::Stack(text) | Item::Lost { text, .. } => {
                out.extend_from_slice(text);
            }
            Item::Empty => {}
        }
    }
}

/// Tells what a line is that is no event.
fn other(text: &[u8]) -> Option<Item<'_>> {
    if text.is_empty() {
        return Some(Item::Empty);
    }
    if text.starts_with(b"#") || text.starts_with(b"cpus=") || text.starts_with(b"version = ") {
        return Some(Item::Comment(text));
    }
    if text.starts_with(b"CPU ") && text.ends_with(b" is empty") {
        return Some(Item::Comment(text));
    }
    if text.starts_with(b" => ") || text.starts_with(b"\t") || text.ends_with(b"<stack trace>") {
        return Some(Item::Stack(text));
    }
    let (cpu, digits) = decimal(text.strip_prefix(b"CPU:")?)?;
    let cpu = cpu.try_into().ok()?;
    let lost = text[4 + digits..].strip_prefix(b" [LOST ")?.strip_suffix(b"EVENTS]")?;
    let events = match lost.strip_suffix(b" ") {
        None => None,
        Some(count) => {
            let (events, digits) = decimal(count)?;
            Some((digits == count.len()).then_some(events)?)
        }
    };
    Some(Item::Lost { cpu, events, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn line(text: &str) -> Line<'_> {
        let line = Line::parse(text.as_bytes()).unwrap_or_else(|m| panic!("{text:?}: {m:?}"));
        let mut out = Vec::new();
        line.write(&mut out);
        assert_eq!(String::from_utf8_lossy(&out), text, "{line:?}");
        line
    }

    #[test]
    fn the_usual_form_is_the_default() {
        let line =
            line("     kworker/1:1-51      [001] d..2.    13.775943: mm_page_free: page=0 order=1");
        assert_eq!(line.form, Form::default());
        assert_eq!((line.comm, line.pid, line.cpu), (&b"kworker/1:1"[..], 51, 1));
        assert_eq!((line.tgid, line.flags), (Tgid::NoColumn, &b"d..2."[..]));
        assert_eq!(line.timestamp_ns, 13_775_943_000);
        assert_eq!((line.event, line.args), (&b"mm_page_free"[..], &b"page=0 order=1"[..]));
    }

    #[test]
    fn names_may_hold_what_they_like() {
        for comm in [
            "kworker/0:1-events",
            "my [odd] prog",
            "a-77 [000] 1.0:",
            "<idle>",
            "-1 (2) [3] 4",
            "x",
        ] {
            let comm = &comm[..comm.len().min(15)];
            let text = format!("{comm:>16}-{:<7} [000] ..... 1.500000: e: a-1 [001]", 77);
            let line = line(&text);
            assert_eq!((line.comm, line.pid), (comm.as_bytes(), 77), "{text}");
            assert_eq!(line.timestamp_ns, 1_500_000_000);
        }
        let line = line("kworker/0:1-events-12  [000] 1.5: e: x");
        assert_eq!((line.comm, line.pid), (&b"kworker/0:1-events"[..], 12));
    }

    #[test]
    fn columns_may_be_missing_or_added() {
        let plain = line("           <...>-2342  [001]  1234.567890: mm_page_free: page=0");
        assert_eq!((plain.flags, plain.form.pid_width), (&b""[..], 5));
        let four = line("           <...>-2342  [001] d..2  1234.567890: mm_page_free: page=0");
        assert_eq!(four.flags, b"d..2");
        let known = line("            bash-1    (      1) [001] .....  1.567890: e: ");
        assert_eq!((known.tgid, known.args), (Tgid::Known(1), &b""[..]));
        let unknown = line("            bash-1    (-------) [001] .....  1.567890: e: ");
        assert_eq!(unknown.tgid, Tgid::Unknown);
        let many = line("            bash-1234567 [1234] ..... 123456.567890123: e: x");
        assert_eq!((many.cpu, many.timestamp_ns), (1234, 123_456_567_890_123));
        let counting = line("            bash-1       [001] .....     123456: e: x");
        assert_eq!((counting.timestamp_ns, counting.form.decimals), (123_456, 0));
        let trace_cmd = line("          <idle>-0     [000]    20.1: sched_switch:         prev=1");
        assert_eq!((trace_cmd.event, trace_cmd.args), (&b"sched_switch"[..], &b"prev=1"[..]));
    }

    #[test]
    fn a_line_of_the_function_tracer_has_no_event() {
        let line =
            line("            bash-1       [001] .....     1.000001: schedule <-worker_thread");
        assert_eq!((line.event, line.args), (&b""[..], &b"schedule <-worker_thread"[..]));
    }

    #[test]
    fn lines_of_perf_are_told_by_their_text() {
        let plain = line(
            "            perf   157 [001]    29.062522:                       kmem:mm_page_alloc: page=0x3f734 order=0",
        );
        assert_eq!((plain.comm, plain.pid, plain.cpu), (&b"perf"[..], 157, 1));
        assert_eq!((plain.subsystem, plain.event), (&b"kmem"[..], &b"mm_page_alloc"[..]));
        assert_eq!(
            (plain.args, plain.timestamp_ns),
            (&b"page=0x3f734 order=0"[..], 29_062_522_000)
        );
        let blanks = line(" a b [0] c-3 [1]  1234567 [012] 12345.000001: oom:mark_victim: pid=1");
        assert_eq!((blanks.comm, blanks.pid), (&b"a b [0] c-3 [1]"[..], 1_234_567));
        let both = line(
            "            perf   157/158   [001]    29.062522: kmem:mm_page_free: page=0x3f734",
        );
        assert_eq!((both.tgid, both.pid), (Tgid::Known(157), 158));
        assert!(Line::parse(b"            perf   157 [001]    29.062522: cycles").is_err());
    }

    #[test]
    fn a_changed_value_keeps_the_columns() {
        let mut line = line("            bash-1       [001] .....     1.000001: e: x");
        line.pid = 12345;
        line.timestamp_ns = 20_000_000_000;
        let mut out = Vec::new();
        line.write(&mut out);
        assert_eq!(out, b"            bash-12345   [001] .....    20.000000: e: x");
    }

    #[test]
    fn a_bad_line_says_where_and_what() {
        for (text, at, expected) in [
            ("", 0, "a task's name, `-` and its pid"),
            ("bash", 0, "a task's name, `-` and its pid"),
            ("            bash-1", 18, "a blank after the pid"),
            ("            bash-1 001]", 19, "`[` and the CPU"),
            ("            bash-1 [x", 20, "a CPU's number"),
            ("            bash-1 [001] ..... x", 31, "a time in seconds"),
            ("            bash-1 [001] ..... 1.x", 33, "1 to 9 digits of a second"),
            ("            bash-1 [001] ..... 1.0000000000:", 33, "1 to 9 digits of a second"),
            ("            bash-1 [001] ..... 1.000001", 39, "`:` after the time"),
            ("            bash-1 [001] ..... 99999999999.1:", 43, "a time below 584 years"),
        ] {
            assert_eq!(Line::parse(text.as_bytes()), Err(Mismatch { at, expected }), "{text}");
        }
    }

    #[test]
    fn lines_that_are_no_events_are_told_apart() {
        let lost =
            |cpu, events, text: &'static str| Item::Lost { cpu, events, text: text.as_bytes() };
        for (text, item) in [
            ("", Item::Empty),
            ("# tracer: nop", Item::Comment(b"# tracer: nop")),
            ("cpus=2", Item::Comment(b"cpus=2")),
            ("CPU 1 is empty", Item::Comment(b"CPU 1 is empty")),
            (" => schedule", Item::Stack(b" => schedule")),
            ("CPU:1 [LOST 12 EVENTS]", lost(1, Some(12), "CPU:1 [LOST 12 EVENTS]")),
            ("CPU:1 [LOST EVENTS]", lost(1, None, "CPU:1 [LOST EVENTS]")),
        ] {
            assert_eq!(Item::parse(text.as_bytes()), Ok(item), "{text}");
            let mut out = Vec::new();
            item.write(&mut out);
            assert_eq!(out, text.as_bytes());
        }
        assert!(Item::parse(b"CPU:1 [LOST 01 EVENTS]").is_err());
        assert!(Item::parse(b"hello").is_err());
    }
}
