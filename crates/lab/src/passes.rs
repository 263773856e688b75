//! Runs of compaction in a trace: where their scanners were, and what each batch moved.
//!
//! It reads the `mm_compaction_*` events of any kernel that has ranges of frames in them (v4.0 and later), and
//! those of the model, which are the same text.
//! Departs: events between the begin and the end of a task's run are taken for that run's. Visible as:
//! `mm_compaction_isolate_migratepages` of a task that offlines memory within a run would be counted with it.

use crate::reclaim_events::ReclaimEvents;
use highorder_input::InputError;
use highorder_kernelfs::trace::{CompactionIsolate, Entry, Event, TraceReader};
use highorder_report::Caption;
use highorder_report::scanners::{PassLine, Scan, ScannerChart, ScannerZone};
use highorder_snapshot::recording_file::open_trace;
use highorder_tables::{Table, Value};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;

/// Frames that a scanner went over at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScannedRange {
    /// When that was told, in nanoseconds of the trace's clock.
    pub time_ns: u64,
    /// The free scanner, not the migrate scanner.
    pub is_free: bool,
    /// First frame.
    pub start: u64,
    /// One past the last frame.
    pub end: u64,
    /// Frames that count as scanned.
    pub nr_scanned: u64,
    /// Pages taken.
    pub nr_taken: u64,
}

/// Pages that were migrated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// When that was told.
    pub time_ns: u64,
    /// Pages that moved.
    pub nr_migrated: u64,
    /// Pages that did not.
    pub nr_failed: u64,
}

/// One run on a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Who compacted.
    pub task: String,
    /// Node and zone, where an event told.
    pub zone: Option<(i32, String)>,
    /// First frame of the zone.
    pub zone_start: u64,
    /// One past its last frame.
    pub zone_end: u64,
    /// `sync` or `async`.
    pub mode: String,
    /// The order wanted, where an event told; -1 for all there is.
    pub order: Option<i32>,
    /// What came of it; `None` if the trace ends before.
    pub status: Option<String>,
    /// When it began.
    pub begin_ns: u64,
    /// When it ended, or its last event.
    pub end_ns: u64,
    /// What its scanners went over, in order.
    pub scans: Vec<ScannedRange>,
    /// What it migrated, in order.
    pub batches: Vec<Batch>,
}

impl Pass {
    /// Sums over the run: frames scanned by the migrate and by the free scanner, pages moved, and not. Counts that no
    /// kernel writes may stand in a trace; a sum of them ends at the largest number.
    #[must_use]
    pub fn sums(&self) -> [u64; 4] {
        let [mut from, mut to, mut moved, mut failed] = [0_u64; 4];
        for scan in &self.scans {
            let sum = if scan.is_free { &mut to } else { &mut from };
            *sum = sum.saturating_add(scan.nr_scanned);
        }
        for batch in &self.batches {
            moved = moved.saturating_add(batch.nr_migrated);
            failed = failed.saturating_add(batch.nr_failed);
        }
        [from, to, moved, failed]
    }
}

/// All runs of a trace.
#[derive(Clone, Debug, Default)]
pub struct Passes {
    /// In the order in which they began.
    pub passes: Vec<Pass>,
    /// Events of compaction and migration in all.
    pub nr_events: u64,
    /// Events that belong to no run, since it began before the trace.
    pub nr_outside: u64,
    /// Events that the trace lost.
    pub nr_lost: u64,
    /// What else it tells of reclaim.
    pub reclaim: ReclaimEvents,
    /// The trace's last line, where the trace ends in the middle of it: it was not read.
    pub cut_line: Option<u64>,
}

impl Passes {
    /// Reads a trace (plain, .gz or .zst), or that of a recording.
    ///
    /// # Errors
    /// A bad line, or nothing of compaction.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, InputError> {
        let path = path.as_ref();
        let found = Self::from_reader(TraceReader::new(open_trace(path)?))?;
        if found.nr_events + found.reclaim.nr_events == 0 {
            return Err(InputError::file(
                path,
                "no event of compaction or reclaim, expected mm_compaction_* or mm_vmscan_* (ftrace's `compaction` \
                 and `vmscan` events)",
            ));
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
        let mut reading = Reading::default();
        let cut_line = reader.for_each(|entry| reading.entry(&entry))?;
        Ok(Self { cut_line, ..reading.passes })
    }

    /// A row a run.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut table = Table::new(
            "Runs of compaction",
            &[
                ("zone", "zone"),
                ("task", "task"),
                ("mode", "mode"),
                ("order", "order"),
                ("begin, s", "begin_s"),
                ("took, ms", "took_ms"),
                ("scanned for pages", "migrate_scanned"),
                ("for targets", "free_scanned"),
                ("moved", "moved"),
                ("not moved", "failed"),
                ("result", "status"),
            ],
        );
        for pass in &self.passes {
            let count = |n: u64| Value::Count(i64::try_from(n).unwrap_or(i64::MAX));
            let [migrate, free, moved, failed] = pass.sums();
            table.push(vec![
                pass.zone_name().into(),
                pass.task.clone().into(),
                pass.mode.clone().into(),
                pass.order.map_or(Value::Missing, |order| Value::Count(order.into())),
                Value::Real(pass.begin_ns as f64 / 1e9, 6),
                Value::Real(pass.end_ns.saturating_sub(pass.begin_ns) as f64 / 1e6, 3),
                count(migrate),
                count(free),
                count(moved),
                count(failed),
                pass.status.clone().map_or(Value::Missing, Value::from),
            ]);
        }
        table
    }

    /// Where the scanners were over time, and what each batch moved, a panel for each zone.
    #[must_use]
    pub fn chart(&self, title: String, clock: Clock, caption: Caption) -> ScannerChart {
        let mut zones: BTreeMap<(u64, u64), ScannerZone> = BTreeMap::new();
        let mut names: BTreeMap<(u64, u64), String> = BTreeMap::new();
        for pass in &self.passes {
            let span = (pass.zone_start, pass.zone_end);
            if pass.zone.is_some() {
                names.insert(span, pass.zone_name());
            }
            let zone = zones.entry(span).or_insert_with(|| ScannerZone {
                title: pass.zone_name(),
                span: pass.zone_start..pass.zone_end,
                passes: Vec::new(),
            });
            zone.passes.push(PassLine {
                name: pass.who(),
                status: pass.status.clone().unwrap_or_else(|| "not over".to_owned()),
                begin: clock.of(pass.begin_ns),
                end: clock.of(pass.end_ns),
                scans: pass.scans.iter().map(|scan| clock.scan(scan)).collect(),
                batches: pass
                    .batches
                    .iter()
                    .map(|b| (clock.of(b.time_ns), b.nr_migrated, b.nr_failed))
                    .collect(),
            });
        }
        for (span, name) in names {
            if let Some(zone) = zones.get_mut(&span) {
                zone.title = name;
            }
        }
        let zones = zones.into_values().collect();
        ScannerChart { title, x_label: clock.label().to_owned(), zones, caption }
    }
}

/// What the horizontal axis of a chart counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Milliseconds.
    Milliseconds,
    /// Events: of a model without time, whose events are a microsecond apart.
    Events,
}

impl Clock {
    fn of(self, ns: u64) -> f64 {
        match self {
            Self::Milliseconds => ns as f64 / 1e6,
            Self::Events => ns as f64 / 1e3,
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Milliseconds => "milliseconds of compaction; time between runs is left out",
            Self::Events => "events of compaction: the model has no time here",
        }
    }

    fn scan(self, scan: &ScannedRange) -> Scan {
        Scan {
            at: self.of(scan.time_ns),
            is_free: scan.is_free,
            frames: scan.start..scan.end,
            nr_taken: scan.nr_taken,
        }
    }
}

impl Pass {
    fn zone_name(&self) -> String {
        match &self.zone {
            Some((node, zone)) => format!("Node {node}, zone {zone}"),
            None => format!("frames {:#x} to {:#x}", self.zone_start, self.zone_end),
        }
    }

    /// Who ran, and how.
    fn who(&self) -> String {
        let order = match self.order {
            None => String::new(),
            Some(-1) => ", all".to_owned(),
            Some(order) => format!(", order {order}"),
        };
        format!("{} ({}{order})", self.task, self.mode)
    }
}

#[derive(Default)]
struct Reading {
    passes: Passes,
    /// The run that each task is in.
    running: BTreeMap<u32, usize>,
}

impl Reading {
    fn entry(&mut self, entry: &Entry<'_>) {
        let (line, event) = match entry {
            Entry::Event(line, event) => (line, event),
            Entry::Other(highorder_kernelfs::trace::Item::Lost { events, .. }) => {
                self.passes.nr_lost = self.passes.nr_lost.saturating_add(events.unwrap_or(1));
                return;
            }
            Entry::Other(_) => return,
        };
        let time_ns = line.timestamp_ns;
        match event {
            Event::CompactionBegin(begin) => {
                self.passes.nr_events += 1;
                let pass = Pass {
                    task: words(line.comm),
                    zone_start: begin.zone_start.value(),
                    zone_end: begin.zone_end.value(),
                    mode: begin.mode.map_or_else(String::new, |mode| words(mode.0)),
                    begin_ns: time_ns,
                    end_ns: time_ns,
                    ..Pass::default()
                };
                self.running.insert(line.pid, self.passes.passes.len());
                self.passes.passes.push(pass);
            }
            Event::CompactionEnd(end) => {
                let status = end.status.or(end.status_alone).map(|status| words(status.0));
                self.of(line.pid, time_ns, |pass| pass.status = status);
                self.running.remove(&line.pid);
            }
            Event::CompactionFinished(check) => {
                let zone = (check.node, words(check.zone.word));
                self.of(line.pid, time_ns, |pass| {
                    pass.order = Some(check.order);
                    pass.zone = Some(zone);
                });
            }
            Event::CompactionIsolateMigratepages(scan) => self.scan(line.pid, time_ns, false, scan),
            Event::CompactionIsolateFreepages(scan) => self.scan(line.pid, time_ns, true, scan),
            Event::CompactionMigratepages(batch) => {
                let (nr_migrated, nr_failed) = (batch.nr_migrated, batch.nr_failed);
                self.of(line.pid, time_ns, |pass| {
                    pass.batches.push(Batch { time_ns, nr_migrated, nr_failed });
                });
            }
            other if other.name().starts_with(b"mm_compaction_") => self.passes.nr_events += 1,
            other => self.passes.reclaim.add(line.comm, other),
        }
    }

    fn scan(&mut self, pid: u32, time_ns: u64, is_free: bool, scan: &CompactionIsolate<'_>) {
        let range = scan.range;
        let nr_scanned = scan.scanned().unwrap_or(0);
        let nr_taken = scan.nr_taken;
        self.of(pid, time_ns, |pass| {
            if let Some(range) = range {
                let (start, end) = (range.start_pfn.value(), range.end_pfn.value());
                pass.scans.push(ScannedRange {
                    time_ns,
                    is_free,
                    start,
                    end,
                    nr_scanned,
                    nr_taken,
                });
            }
        });
    }

    /// Does something to the run that a task is in.
    fn of(&mut self, pid: u32, time_ns: u64, change: impl FnOnce(&mut Pass)) {
        self.passes.nr_events += 1;
        match self.running.get(&pid) {
            Some(&at) => {
                let pass = &mut self.passes.passes[at];
                pass.end_ns = time_ns.max(pass.begin_ns);
                change(pass);
            }
            None => self.passes.nr_outside += 1,
        }
    }
}

fn words(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_impossible_counts_end_at_the_largest_number() {
        let scan = ScannedRange {
            time_ns: 5,
            is_free: false,
            start: 0,
            end: 512,
            nr_scanned: u64::MAX,
            nr_taken: 1,
        };
        let batch = Batch { time_ns: 6, nr_migrated: u64::MAX - 1, nr_failed: 2 };
        let pass = Pass { scans: vec![scan; 2], batches: vec![batch; 2], ..Pass::default() };
        assert_eq!(pass.sums(), [u64::MAX, 0, u64::MAX, 4]);
        let passes = Passes { passes: vec![pass], ..Passes::default() };
        assert_eq!(passes.table().rows.len(), 1);
    }
}
