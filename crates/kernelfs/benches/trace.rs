//! How fast trace text is parsed on one core: `cargo bench -p highorder-kernelfs`.
//!
//! Three speeds over the `mm_page_*` lines of a recording's excerpt, repeated to 256 MB: lines
//! taken apart, lines and their events taken apart, and both read through [`TraceReader`]. The
//! bar is 300 MB/s for lines with their events.

// Results here are speeds to print, nothing else.
#![allow(clippy::disallowed_types)]

use std::hint::black_box;
use std::io::Cursor;
use std::path::Path;
use std::time::Instant;

use highorder_kernelfs::trace::{Entry, Event, Line, TraceReader};
use highorder_kernelfs::{Source, read_bytes};

const BYTES: usize = 256_000_000;

fn main() {
    let file = "../../tests/data/proc-recorded/6.12-trace/trace.fragslab-long.txt.zst";
    let text = read_bytes(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    let mut sample = Vec::new();
    for line in text.split_inclusive(|&b| b == b'\n') {
        if memchr::memmem::find(line, b": mm_page_").is_some() {
            sample.extend_from_slice(line);
        }
    }
    let input = sample.repeat(BYTES / sample.len());

    measure("lines", &input, |input| {
        let mut sum = 0;
        for line in lines(input) {
            let line = Line::parse(line).unwrap();
            sum += line.timestamp_ns + line.args.len() as u64;
        }
        sum
    });
    measure("lines and events", &input, |input| {
        let mut sum = 0;
        for line in lines(input) {
            sum += pfn(&Line::parse(line).unwrap().parse_event().unwrap());
        }
        sum
    });
    measure("reader, lines and events", &input, |input| {
        let source = Source::new("bench", Cursor::new(input.to_vec())).unwrap();
        let mut sum = 0;
        let each = |entry: Entry<'_>| {
            if let Entry::Event(_, event) = entry {
                sum += pfn(&event);
            }
        };
        TraceReader::new(source).for_each(each).unwrap();
        sum
    });
    measure("reader, one item at a time", &input, |input| {
        let mut reader =
            TraceReader::new(Source::new("bench", Cursor::new(input.to_vec())).unwrap());
        let mut sum = 0;
        while let Some(item) = reader.next_item().unwrap() {
            if let highorder_kernelfs::trace::Item::Event(line) = item {
                sum += pfn(&line.parse_event().unwrap());
            }
        }
        sum
    });
}

fn lines(input: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut start = 0;
    memchr::memchr_iter(b'\n', input).map(move |end| {
        let line = &input[start..end];
        start = end + 1;
        line
    })
}

fn pfn(event: &Event<'_>) -> u64 {
    let pfn = match event {
        Event::MmPageAlloc(e) => e.pfn,
        Event::MmPageFree(e) => e.pfn,
        Event::MmPageFreeBatched(e) => e.pfn,
        Event::MmPagePcpuDrain(e) => e.pfn,
        Event::MmPageAllocZoneLocked(e) => e.pfn,
        Event::MmPageAllocExtfrag(e) => e.pfn,
        _ => None,
    };
    pfn.map_or(0, |pfn| pfn.value())
}

/// Prints the best of five runs, the one least disturbed by others on the machine.
fn measure(what: &str, input: &[u8], run: impl Fn(&[u8]) -> u64) {
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        black_box(run(black_box(input)));
        best = best.min(start.elapsed().as_secs_f64());
    }
    let count = memchr::memchr_iter(b'\n', input).count() as f64;
    println!(
        "{what}: {:.0} MB/s, {:.1} million lines/s, {:.0} ns a line",
        input.len() as f64 / best / 1e6,
        count / best / 1e6,
        best / count * 1e9
    );
}
