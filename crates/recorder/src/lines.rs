//! Takes out of the kernel's text what is nobody's business.
//!
//! | kept | unless |
//! |---|---|
//! | names of kernel threads, which are the kernel's own | |
//! | names of processes: `<...>`, as the kernel prints one that it does not know | they are asked for |
//! | numbers of processes | the recording is anonymous: then they count from 1, as they appear |
//! | pointers to `struct page` | likewise: then they count from where the kernel has its map without KASLR |

use highorder_kernelfs::trace::Item;
use std::collections::BTreeMap;

/// What the kernel prints for a name that it does not know: kernel/trace/trace_sched_switch.c
/// (`__trace_find_cmdline`).
const UNKNOWN: &[u8] = b"<...>";

/// What names of kernel threads begin with, of those that reclaim, compact, scan, write back or do work for others;
/// `<idle>` is process 0.
const KERNEL_THREADS: [&[u8]; 14] = [
    b"<idle>",
    b"swapper",
    b"kswapd",
    b"kcompactd",
    b"khugepaged",
    b"ksmd",
    b"kworker/",
    b"kthreadd",
    b"ksoftirqd/",
    b"migration/",
    b"rcu",
    b"jbd2/",
    b"oom_reaper",
    b"writeback",
];

/// Where x86-64 has its `struct page`s without KASLR: Documentation/arch/x86/x86_64/mm.rst.
pub const VMEMMAP_BASE: u64 = 0xffff_ea00_0000_0000;

/// What is left in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// Names of processes.
    pub names: bool,
    /// Numbers of processes and addresses of the kernel's.
    pub numbers: bool,
}

/// Takes names and numbers out of lines, one after the other.
#[derive(Clone, Debug)]
pub struct Cleaner {
    keep: Keep,
    /// The numbers given to processes so far.
    pids: BTreeMap<u32, u32>,
    /// Where the kernel has its `struct page`s, if pointers to them are to be moved.
    vmemmap_base: Option<u64>,
}

impl Cleaner {
    /// Begins with the first line; `vmemmap_base` is where the kernel has its `struct page`s, where that is known.
    #[must_use]
    pub fn new(keep: Keep, vmemmap_base: Option<u64>) -> Self {
        let vmemmap_base = vmemmap_base.filter(|_| !keep.numbers);
        Self { keep, pids: BTreeMap::new(), vmemmap_base }
    }

    /// Appends a line, cleaned and with its newline; true if it is an event.
    pub fn line(&mut self, text: &[u8], out: &mut Vec<u8>) -> bool {
        let Ok(Item::Event(mut line)) = Item::parse(text) else {
            out.extend_from_slice(text);
            out.push(b'\n');
            return false;
        };
        line.comm = self.name(line.comm);
        line.pid = self.pid(line.pid);
        line.write_prefix(out);
        self.args(line.args, out);
        out.push(b'\n');
        true
    }

    fn name<'a>(&self, name: &'a [u8]) -> &'a [u8] {
        let is_kept = self.keep.names || KERNEL_THREADS.iter().any(|of| name.starts_with(of));
        if is_kept { name } else { UNKNOWN }
    }

    fn pid(&mut self, pid: u32) -> u32 {
        if self.keep.numbers || pid == 0 {
            return pid;
        }
        let next = self.pids.len() as u32 + 1;
        *self.pids.entry(pid).or_insert(next)
    }

    /// Arguments: `pid=` and `comm=` of the oom events, and pointers to pages of probes.
    fn args(&mut self, args: &[u8], out: &mut Vec<u8>) {
        let mut rest = args;
        while let Some(Field { before, key, value, after }) = next_field(rest) {
            out.extend_from_slice(before);
            out.extend_from_slice(key);
            match (key, number(value)) {
                (b"comm=", _) => out.extend_from_slice(self.name(value)),
                (b"pid=", Some(pid)) => {
                    out.extend_from_slice(self.pid(pid as u32).to_string().as_bytes());
                }
                (b"page=", Some(page)) => {
                    let page = match self.vmemmap_base {
                        Some(base) => page.wrapping_sub(base).wrapping_add(VMEMMAP_BASE),
                        None => page,
                    };
                    out.extend_from_slice(format!("{page:#x}").as_bytes());
                }
                _ => out.extend_from_slice(value),
            }
            rest = after;
        }
        out.extend_from_slice(rest);
    }
}

/// A field among an event's arguments, with what stands around it.
struct Field<'a> {
    before: &'a [u8],
    key: &'static [u8],
    value: &'a [u8],
    after: &'a [u8],
}

/// The next field that tells of a process or a page.
fn next_field(args: &[u8]) -> Option<Field<'_>> {
    const KEYS: [&[u8]; 3] = [b"pid=", b"comm=", b"page="];
    let mut from = 0;
    loop {
        let equals = from + memchr::memchr(b'=', &args[from..])?;
        let start = args[..equals].iter().rposition(|&b| b == b' ').map_or(0, |blank| blank + 1);
        let found = KEYS.into_iter().find(|key| *key == &args[start..=equals]);
        let Some(key) = found else {
            from = equals + 1;
            continue;
        };
        let value = equals + 1;
        // A name may hold blanks: it ends where another field begins.
        let end = match key {
            b"comm=" => memchr::memchr(b'=', &args[value..])
                .and_then(|next| args[value..value + next].iter().rposition(|&b| b == b' '))
                .map_or(args.len(), |blank| value + blank),
            _ => memchr::memchr(b' ', &args[value..]).map_or(args.len(), |blank| value + blank),
        };
        let (before, value, after) = (&args[..start], &args[value..end], &args[end..]);
        return Some(Field { before, key, value, after });
    }
}

/// A decimal or hexadecimal number.
fn number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOC: &str = "         usemem-412     [001] d..2.    13.775943: mm_page_free: page=0xffffea00f pfn=0x1 order=1";

    fn cleaned(keep: Keep, base: Option<u64>, lines: &[&str]) -> Vec<String> {
        let mut cleaner = Cleaner::new(keep, base);
        let clean = |line: &&str| {
            let mut out = Vec::new();
            cleaner.line(line.as_bytes(), &mut out);
            String::from_utf8(out).unwrap().trim_end_matches('\n').to_owned()
        };
        lines.iter().map(clean).collect()
    }

    #[test]
    fn with_names_and_numbers_kept_every_line_is_as_it_was() {
        let keep = Keep { names: true, numbers: true };
        let lines = [
            ALLOC,
            "CPU:1 [LOST 12 EVENTS]",
            "           <...>-7       [000] .....     1.000001: mark_victim: pid=12 comm=a b total-vm=1kB",
        ];
        assert_eq!(cleaned(keep, Some(5), &lines), lines);
    }

    #[test]
    fn names_of_processes_go_and_those_of_kernel_threads_stay() {
        let keep = Keep { names: false, numbers: true };
        let lines = [
            ALLOC,
            "         kswapd0-51      [001] d..2.    13.775943: mm_vmscan_kswapd_wake: nid=0 order=0",
            "           <...>-7       [000] .....     1.000001: mark_victim: pid=12 comm=a b total-vm=1kB",
        ];
        let cleaned = cleaned(keep, None, &lines);
        assert_eq!(cleaned[0], ALLOC.replace("usemem", " <...>"));
        assert_eq!(cleaned[1], lines[1]);
        assert!(cleaned[2].ends_with("pid=12 comm=<...> total-vm=1kB"), "{}", cleaned[2]);
    }

    #[test]
    fn an_anonymous_recording_counts_processes_and_moves_pointers() {
        let probe = "           <...>-7       [000] .....     1.000001: isolate_free: (f+0x4/0x200) page=0xffffdd0000000040 order=0";
        let lines = [probe, ALLOC, &probe.replace("-7 ", "-9 "), probe];
        let cleaned = cleaned(Keep::default(), Some(0xffff_dd00_0000_0000), &lines);
        assert!(cleaned[0].contains("<...>-1 ") && cleaned[1].contains("<...>-2 "), "{cleaned:?}");
        assert!(cleaned[2].contains("<...>-3 ") && cleaned[3].contains("<...>-1 "), "{cleaned:?}");
        assert!(cleaned[0].ends_with("page=0xffffea0000000040 order=0"), "{}", cleaned[0]);
    }
}
