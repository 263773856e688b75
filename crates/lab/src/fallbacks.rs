//! Fallbacks in a trace: which requests took blocks of another type, of which size, and when.
//!
//! It reads the `mm_page_alloc_extfrag` events of any kernel, and those of the model, which are the same text.
//! Departs: types have the numbers of 4.4 and later (016c13daa5c9). Visible as: in traces of older kernels Movable and
//! Reclaimable are exchanged.
//! Departs: an event does not tell its zone; it is that of an x86-64 machine by the frame's number. Visible as: Normal
//! stands for all nodes' zones above 4 GiB.

use highorder_input::InputError;
use highorder_kernelfs::trace::{Entry, Event, Item, MmPageAllocExtfrag, TraceReader};
use highorder_mm::types::{Migratetype, ZoneKind};
use highorder_report::{Caption, LineChart, Panel, Series};
use highorder_snapshot::recording_file::open_trace;
use highorder_tables::{Table, Value};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;

/// Blocks below this order are taken at the highest price: many more will be (`PAGE_ALLOC_COSTLY_ORDER` + 1, at which
/// the postings of November 2018 have requests wait).
const SERIOUS_BELOW: i32 = 4;
/// Rows of the table over time, and steps of its picture.
const PERIODS: u64 = 20;

/// How much a fallback mixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A whole pageblock changed its type: nothing is mixed.
    WholeBlock,
    /// Less than a pageblock was taken.
    Mixing,
    /// A block below order 4.
    Serious,
}

impl Severity {
    const fn name(self) -> &'static str {
        match self {
            Self::WholeBlock => "whole block",
            Self::Mixing => "mixing",
            Self::Serious => "serious",
        }
    }
}

/// Fallbacks of one kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// How much they mix.
    pub severity: Severity,
    /// Type asked for.
    pub alloc_migratetype: i32,
    /// Type of the list that served.
    pub fallback_migratetype: i32,
    /// Order asked for.
    pub alloc_order: i32,
    /// Order of the block found.
    pub fallback_order: i32,
    /// The zone, where the event tells a frame.
    pub zone: Option<ZoneKind>,
    /// Who asked.
    pub task: String,
}

/// All fallbacks of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fallbacks {
    /// When each happened, and how much it mixed.
    pub times: Vec<(u64, Severity)>,
    /// How many there were of each kind.
    pub kinds: BTreeMap<Kind, u64>,
    /// Events that the trace lost.
    pub nr_lost: u64,
    /// The trace's last line, where the trace ends in the middle of it: it was not read.
    pub cut_line: Option<u64>,
}

impl Fallbacks {
    /// Reads a trace (plain, .gz or .zst), or that of a recording.
    ///
    /// # Errors
    /// A bad line, or no fallback.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, InputError> {
        let path = path.as_ref();
        let found = Self::from_reader(TraceReader::new(open_trace(path)?))?;
        if found.times.is_empty() {
            let text = "no fallback, expected mm_page_alloc_extfrag (of ftrace's `kmem` events)";
            return Err(InputError::file(path, text));
        }
        Ok(found)
    }

    /// Reads the text of a trace.
    ///
    /// # Errors
    /// A bad line.
    pub fn parse(name: &str, text: Vec<u8>) -> Result<Self, InputError> {
        let source = highorder_kernelfs::Source::new(name, Cursor::new(text))?;
        Self::from_reader(TraceReader::new(source))
    }

    fn from_reader(reader: TraceReader) -> Result<Self, InputError> {
        let mut found = Self::default();
        let cut_line = reader.for_each(|entry| match &entry {
            Entry::Event(line, Event::MmPageAllocExtfrag(event)) => {
                found.note(line.timestamp_ns, line.comm, event);
            }
            Entry::Other(Item::Lost { events, .. }) => {
                found.nr_lost = found.nr_lost.saturating_add(events.unwrap_or(1));
            }
            _ => {}
        })?;
        Ok(Self { cut_line, ..found })
    }

    fn note(&mut self, time_ns: u64, task: &[u8], event: &MmPageAllocExtfrag<'_>) {
        let severity = if event.fallback_order >= event.pageblock_order {
            Severity::WholeBlock
        } else if event.fallback_order >= SERIOUS_BELOW {
            Severity::Mixing
        } else {
            Severity::Serious
        };
        let kind = Kind {
            severity,
            alloc_migratetype: event.alloc_migratetype,
            fallback_migratetype: event.fallback_migratetype,
            alloc_order: event.alloc_order,
            fallback_order: event.fallback_order,
            zone: event.pfn.map(|pfn| zone_of(pfn.value())),
            task: String::from_utf8_lossy(task).into_owned(),
        };
        self.times.push((time_ns, severity));
        *self.kinds.entry(kind).or_default() += 1;
    }

    /// How many mix pageblocks, and how many of these are serious.
    #[must_use]
    pub fn nr_mixing(&self) -> [u64; 2] {
        let at_least = |least| self.times.iter().filter(|(_, s)| *s >= least).count() as u64;
        [at_least(Severity::Mixing), at_least(Severity::Serious)]
    }

    /// A row a kind, the worst first.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut table = Table::new(
            "Fallbacks",
            &[
                ("asked for", "alloc_migratetype"),
                ("served from", "fallback_migratetype"),
                ("order", "alloc_order"),
                ("block's order", "fallback_order"),
                ("severity", "severity"),
                ("zone", "zone"),
                ("task", "task"),
                ("events", "events"),
            ],
        );
        for (kind, nr) in self.kinds.iter().rev() {
            table.push(vec![
                type_name(kind.alloc_migratetype).into(),
                type_name(kind.fallback_migratetype).into(),
                Value::Count(kind.alloc_order.into()),
                Value::Count(kind.fallback_order.into()),
                kind.severity.name().to_owned().into(),
                kind.zone.map_or(Value::Missing, |zone| zone.name().to_owned().into()),
                kind.task.clone().into(),
                Value::Count(*nr as i64),
            ]);
        }
        table
    }

    /// A row for each twentieth of the time between the first and the last.
    #[must_use]
    pub fn over_time(&self) -> Table {
        let mut table = Table::new(
            "Fallbacks over time",
            &[
                ("from, s", "begin_s"),
                ("whole blocks", "whole_block"),
                ("mixing", "mixing"),
                ("of them serious", "serious"),
            ],
        );
        for (begin, counts) in self.periods().1 {
            let counts = counts.map(|nr| Value::Count(nr as i64));
            let begin = Value::Real(begin as f64 / 1e9, 6);
            table.push(std::iter::once(begin).chain(counts).collect());
        }
        table
    }

    /// The same as a picture, a curve in steps for each column.
    #[must_use]
    pub fn chart(&self, title: String, caption: Caption) -> LineChart {
        let (period, periods) = self.periods();
        let first = periods.first().map_or(0, |(begin, _)| *begin);
        // All at one moment: a millisecond is seen.
        let step = if periods.len() < 2 { period.max(1_000_000) } else { period };
        let series = |(column, name): (usize, &str)| {
            let steps = periods.iter().flat_map(|(begin, counts)| {
                let at = |time_ns: u64| ((time_ns - first) as f64 / 1e9, counts[column] as f64);
                [at(*begin), at(begin + step)]
            });
            Series { name: name.to_owned(), points: steps.collect() }
        };
        let names = ["whole blocks", "mixing", "of them serious"];
        let series = names.into_iter().enumerate().map(series).collect();
        let unit = "events in a twentieth of the time".to_owned();
        LineChart {
            title,
            x_label: "seconds since the first fallback".to_owned(),
            panels: vec![Panel { title: "Fallbacks".to_owned(), unit, series }],
            caption,
        }
    }

    /// How long a twentieth of the time between the first and the last is, in nanoseconds; when each begins, and how many
    /// took whole blocks, mixed, and were serious in it.
    fn periods(&self) -> (u64, Vec<(u64, [u64; 3])>) {
        let times = || self.times.iter().map(|(time, _)| *time);
        let (first, last) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
        let period = (last - first) / PERIODS + 1;
        let of = |number: u64| {
            let begin = first + number * period;
            let within = || self.times.iter().filter(|(t, _)| (begin..begin + period).contains(t));
            let count = |is_it: fn(Severity) -> bool| {
                within().filter(|(_, severity)| is_it(*severity)).count() as u64
            };
            let counts = [
                count(|severity| severity == Severity::WholeBlock),
                count(|severity| severity >= Severity::Mixing),
                count(|severity| severity == Severity::Serious),
            ];
            (begin, counts)
        };
        (period, (0..(last - first) / period + 1).map(of).collect())
    }
}

/// The zone of a frame on x86-64 (`MAX_DMA_PFN`, `MAX_DMA32_PFN`, arch/x86/include/asm/dma.h).
const fn zone_of(pfn: u64) -> ZoneKind {
    match pfn {
        0..0x1000 => ZoneKind::Dma,
        0x1000..0x10_0000 => ZoneKind::Dma32,
        _ => ZoneKind::Normal,
    }
}

/// The name of a type by its number (`enum migratetype`).
fn type_name(number: i32) -> String {
    let known = [Migratetype::Unmovable, Migratetype::Movable, Migratetype::Reclaimable];
    let found = usize::try_from(number).ok().and_then(|number| known.get(number).copied());
    found.map_or_else(|| number.to_string(), |migratetype| migratetype.name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "\
# tracer: nop
          fio-1 [000] d..2     1.000000: mm_page_alloc_extfrag: page=000000001 pfn=2097152 alloc_order=0 fallback_order=1 pageblock_order=9 alloc_migratetype=1 fallback_migratetype=2 fragmenting=1 change_ownership=0
          fio-1 [000] d..2     3.000000: mm_page_alloc_extfrag: page=000000001 pfn=512 alloc_order=0 fallback_order=9 pageblock_order=9 alloc_migratetype=0 fallback_migratetype=1 fragmenting=0 change_ownership=1
";

    #[test]
    fn fallbacks_are_counted_by_kind_and_over_time() {
        let lines = LINES.replace("page=000000001", "page=0000000000000001");
        let found = Fallbacks::parse("lines", lines.into_bytes()).unwrap();
        assert_eq!(found.nr_mixing(), [1, 1]);
        let table = found.table().csv();
        assert!(table.contains("Movable,Reclaimable,0,1,serious,Normal,fio,1"), "{table}");
        assert!(table.contains("Unmovable,Movable,0,9,whole block,DMA,fio,1"), "{table}");
        let over_time = found.over_time().csv();
        assert_eq!(over_time.lines().count(), 1 + PERIODS as usize, "{over_time}");
    }

    #[test]
    fn more_lost_events_than_can_be_are_as_many_as_can_be() {
        let lost = format!("CPU:0 [LOST {} EVENTS]\n", u64::MAX);
        let lines = LINES.replace("page=000000001", "page=0000000000000001") + &lost + &lost;
        assert_eq!(Fallbacks::parse("lines", lines.into_bytes()).unwrap().nr_lost, u64::MAX);
    }
}
