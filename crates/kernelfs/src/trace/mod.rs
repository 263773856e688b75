//! ftrace's text: what `/sys/kernel/tracing/trace` holds, and what `trace-cmd report` and `perf script` print.
//!
//! Three layers, each usable alone and none of which allocates:
//!
//! - [`Line`]: the prefix every event has (task, CPU, flags, time), the event's name, and its
//!   arguments as they are;
//! - [`Event`]: the arguments of the memory-management events as numbers and words, and any other
//!   event as it is;
//! - [`TraceReader`]: the lines of a whole file, plain or compressed, with all its bad lines.
//!
//! Whatever is parsed writes back byte for byte, the typed events too.
//!
//! Models: kernel/trace/trace_output.c (`trace_print_context`, `trace_print_lat_fmt`'s flags),
//! kernel/trace/trace.c (the heading), and the `TP_printk` of include/trace/events/{kmem,
//! compaction, vmscan, migrate, huge_memory, oom}.h from v3.0 to v6.18: fields that some kernels
//! lack are `Option`s.
//!
//! Departs: the latency format (`trace_options/latency-format`) is not read.

mod event;
mod line;
mod reader;
mod value;

pub use event::*;
pub use line::{Form, Item, Line, Tgid};
pub use reader::{Entry, TraceReader, read_events};
pub use value::{
    BareHex, CompactionRange, Gfp, Mismatch, Name, Number, PaddedWord, Pointer, Scanner, Shrinker,
    Word,
};

/// Returns the comment lines that a trace in the default form starts with, for `entries` events
/// out of `written` (more if the buffer overflowed) on `cpus` CPUs.
pub fn heading(entries: u64, written: u64, cpus: u32) -> String {
    let mut text = String::from("# tracer: nop\n#\n");
    text.push_str(&format!(
        "# entries-in-buffer/entries-written: {entries}/{written}   #P:{cpus}\n#\n"
    ));
    // One line points at each flag: blanks up to its branch, and its name.
    for (column, flag) in [
        (FLAGS_COLUMN + 2, "_-----=> irqs-off/BH-disabled"),
        (FLAGS_COLUMN + 1, "/ _----=> need-resched"),
        (FLAGS_COLUMN, "| / _---=> hardirq/softirq"),
        (FLAGS_COLUMN, "|| / _--=> preempt-depth"),
        (FLAGS_COLUMN, "||| / _-=> migrate-disable"),
        (FLAGS_COLUMN, "|||| /     delay"),
    ] {
        text.push_str(&format!("#{:column$}{flag}\n", ""));
    }
    text.push_str("#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n");
    text.push_str("#              | |         |   |||||     |         |\n");
    text
}

/// Blanks between the `#` of a heading and the column of the flags.
const FLAGS_COLUMN: usize = 30;

/// Returns the value of `key` in arguments of the form `key=value key=value`.
///
/// For events without a type here, probes among them: values end at a blank, a comma before a
/// blank, or the end.
pub fn field<'a>(args: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let mut rest = args;
    loop {
        let at = memchr::memmem::find(rest, key.as_bytes())?;
        let starts = at == 0 || matches!(rest[at - 1], b' ' | b',' | b'(');
        let tail = &rest[at + key.len()..];
        if starts && tail.first() == Some(&b'=') {
            let value = &tail[1..];
            let end = memchr::memchr(b' ', value).unwrap_or(value.len());
            let value = &value[..end];
            return Some(value.strip_suffix(b",").unwrap_or(value));
        }
        rest = tail;
    }
}

#[cfg(test)]
mod tests {
    use super::{field, heading};

    #[test]
    fn the_heading_is_the_kernels() {
        let recorded =
            include_str!("../../../../tests/data/proc-recorded/6.12-trace/trace.fragslab.txt");
        assert!(recorded.starts_with(&heading(668_136, 668_136, 2)));
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let args = b"(f+0x4/0x200) xpage=1 page=0xffd4, order=0 nr_page=7";
        assert_eq!(field(args, "page"), Some(&b"0xffd4"[..]));
        assert_eq!(field(args, "order"), Some(&b"0"[..]));
        assert_eq!(field(args, "nr_page"), Some(&b"7"[..]));
        assert_eq!(field(args, "pag"), None);
        assert_eq!(field(args, "migratetype"), None);
    }
}
