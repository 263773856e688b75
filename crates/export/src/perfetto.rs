//! Traces for Perfetto: tasks as threads, with stalls, kswapd and compaction as slices; counters as tracks.
//!
//! Models: protos/perfetto/trace/trace_packet.proto, track_event/track_event.proto, track_event/track_descriptor.proto and
//! the descriptors of threads, processes and counters beside it, as of Perfetto 48: the few fields that are used.
//! The crate `perfetto-protos` has all of them, and takes longer to compile than the rest of the program.

use highorder_input::InputError;
use highorder_kernelfs::Source;
use highorder_kernelfs::trace::{Entry, Event, Line, TraceReader};
use highorder_record::Record;
use prost::Message;
use std::collections::BTreeMap;

/// A whole file.
#[derive(Clone, PartialEq, Message)]
pub struct Trace {
    /// Its packets, in any order of time.
    #[prost(message, repeated, tag = "1")]
    pub packet: Vec<TracePacket>,
}

/// One thing that is told.
#[derive(Clone, PartialEq, Message)]
pub struct TracePacket {
    /// When, in nanoseconds.
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    /// Which writer tells it.
    #[prost(uint32, optional, tag = "10")]
    pub trusted_packet_sequence_id: Option<u32>,
    /// Something that happened on a track.
    #[prost(message, optional, tag = "11")]
    pub track_event: Option<TrackEvent>,
    /// A track.
    #[prost(message, optional, tag = "60")]
    pub track_descriptor: Option<TrackDescriptor>,
}

/// What happened on a track.
#[derive(Clone, PartialEq, Message)]
pub struct TrackEvent {
    /// More about it.
    #[prost(message, repeated, tag = "4")]
    pub debug_annotations: Vec<DebugAnnotation>,
    /// A [`Kind`].
    #[prost(enumeration = "Kind", optional, tag = "9")]
    pub r#type: Option<i32>,
    /// On which track.
    #[prost(uint64, optional, tag = "11")]
    pub track_uuid: Option<u64>,
    /// What it is called.
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
    /// A counter's value.
    #[prost(double, optional, tag = "44")]
    pub double_counter_value: Option<f64>,
}

/// What an event of a track is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Kind {
    /// Nothing.
    Unspecified = 0,
    /// A slice begins.
    SliceBegin = 1,
    /// The slice that began last ends.
    SliceEnd = 2,
    /// A moment.
    Instant = 3,
    /// A counter has this value from now on.
    Counter = 4,
}

/// A name and a text.
#[derive(Clone, PartialEq, Message)]
pub struct DebugAnnotation {
    /// The text.
    #[prost(string, optional, tag = "6")]
    pub string_value: Option<String>,
    /// The name.
    #[prost(string, optional, tag = "10")]
    pub name: Option<String>,
}

/// A track.
#[derive(Clone, PartialEq, Message)]
pub struct TrackDescriptor {
    /// Its number.
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    /// Its name, of a counter.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// The thread whose it is.
    #[prost(message, optional, tag = "4")]
    pub thread: Option<ThreadDescriptor>,
    /// That it is a counter's.
    #[prost(message, optional, tag = "8")]
    pub counter: Option<CounterDescriptor>,
}

/// A thread.
#[derive(Clone, PartialEq, Message)]
pub struct ThreadDescriptor {
    /// Its process.
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    /// Itself.
    #[prost(int32, optional, tag = "2")]
    pub tid: Option<i32>,
    /// Its name.
    #[prost(string, optional, tag = "5")]
    pub thread_name: Option<String>,
}

/// A counter.
#[derive(Clone, PartialEq, Message)]
pub struct CounterDescriptor {
    /// What it counts in.
    #[prost(string, optional, tag = "6")]
    pub unit_name: Option<String>,
}

/// There is one writer.
const SEQUENCE: u32 = 1;
/// Tracks of threads are numbered from here by their thread's number, those of counters from 1.
const FIRST_THREAD: u64 = 1 << 32;
const NS_PER_US: u64 = 1000;

/// A trace in Perfetto's form, and what could not be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The file.
    pub bytes: Vec<u8>,
    /// Slices that are told.
    pub nr_slices: u64,
    /// Ends without a beginning: it was before the trace, or was lost.
    pub nr_without_begin: u64,
    /// Beginnings without an end: their slices end with the trace, or with the one around them.
    pub nr_without_end: u64,
}

/// The tasks of a trace, with what they did as slices.
///
/// # Errors
/// As [`TraceReader::for_each`].
pub fn of_trace(source: Source) -> Result<Told, InputError> {
    let mut slices = Slices::default();
    TraceReader::new(source).for_each(|entry| {
        if let Entry::Event(line, event) = entry {
            slices.add(&line, &event);
        }
    })?;
    Ok(slices.told())
}

/// A run's counters over time, a track each.
#[must_use]
pub fn of_run(record: &Record) -> Vec<u8> {
    let timeline = &record.timeline;
    let mut trace = Trace::default();
    for (uuid, column) in (1..).zip(&timeline.columns) {
        let unit_name = (!column.unit.is_empty()).then(|| column.unit.clone());
        trace.packet.push(descriptor(TrackDescriptor {
            uuid: Some(uuid),
            name: Some(column.name.clone()),
            counter: Some(CounterDescriptor { unit_name }),
            ..TrackDescriptor::default()
        }));
        for (sample, at) in timeline.time_ns.iter().enumerate() {
            if let Some(value) = column.values.get(sample) {
                let mut event = event(Kind::Counter, uuid);
                event.double_counter_value = Some(value);
                trace.packet.push(packet(*at, event));
            }
        }
    }
    trace.encode_to_vec()
}

fn event(kind: Kind, track_uuid: u64) -> TrackEvent {
    TrackEvent { r#type: Some(kind.into()), track_uuid: Some(track_uuid), ..TrackEvent::default() }
}

fn packet(at: u64, event: TrackEvent) -> TracePacket {
    TracePacket {
        timestamp: Some(at),
        trusted_packet_sequence_id: Some(SEQUENCE),
        track_event: Some(event),
        track_descriptor: None,
    }
}

fn descriptor(track: TrackDescriptor) -> TracePacket {
    TracePacket {
        trusted_packet_sequence_id: Some(SEQUENCE),
        track_descriptor: Some(track),
        ..TracePacket::default()
    }
}

/// What an event is to a track.
enum Step {
    Begin(&'static str, Vec<(&'static str, String)>),
    End(&'static str, Vec<(&'static str, String)>),
    /// It ends now and has lasted so many microseconds.
    Lasted(&'static str, u64),
    Instant(&'static str, Vec<(&'static str, String)>),
}

fn step(event: &Event<'_>) -> Option<Step> {
    use Step::{Begin, End, Instant, Lasted};
    let word = |text: &[u8]| String::from_utf8_lossy(text).trim().to_owned();
    Some(match event {
        Event::DirectReclaimBegin(begin) => {
            Begin("direct reclaim", vec![("order", begin.order.to_string())])
        }
        Event::DirectReclaimEnd(end) => {
            End("direct reclaim", vec![("reclaimed pages", end.nr_reclaimed.to_string())])
        }
        Event::CompactionBegin(_) => Begin("compaction", Vec::new()),
        Event::CompactionEnd(end) => {
            End("compaction", end.status.iter().map(|status| ("status", word(status.0))).collect())
        }
        Event::KswapdWake(wake) => Begin("kswapd awake", vec![("order", wake.order.to_string())]),
        Event::KswapdSleep(_) => End("kswapd awake", Vec::new()),
        Event::KcompactdWake(wake) => {
            Begin("kcompactd awake", vec![("order", wake.order.to_string())])
        }
        Event::KcompactdSleep(_) => End("kcompactd awake", Vec::new()),
        Event::CongestionWait(wait) => Lasted("congestion wait", wait.usec_delayed.into()),
        Event::WaitIffCongested(wait) => Lasted("conditional wait", wait.usec_delayed.into()),
        Event::MmPageAllocExtfrag(of) => Instant(
            "fallback",
            vec![
                ("order", of.alloc_order.to_string()),
                ("fallback order", of.fallback_order.to_string()),
            ],
        ),
        _ => return None,
    })
}

/// A slice of a task.
struct Slice {
    name: &'static str,
    begin: u64,
    end: u64,
    notes: Vec<(&'static str, String)>,
}

/// What is known of a task.
#[derive(Default)]
struct Task {
    name: String,
    open: Vec<Slice>,
    /// Those that have ended; what lies within another comes before it.
    done: Vec<Slice>,
    instants: Vec<Slice>,
}

impl Task {
    /// Ends the slice that began last.
    fn close(&mut self, at: u64) {
        if let Some(mut slice) = self.open.pop() {
            slice.end = at;
            self.done.push(slice);
        }
    }
}

/// Slices by task, as a trace is read.
#[derive(Default)]
struct Slices {
    tasks: BTreeMap<u32, Task>,
    last: u64,
    nr_without_begin: u64,
    nr_without_end: u64,
}

impl Slices {
    fn add(&mut self, line: &Line<'_>, event: &Event<'_>) {
        let at = line.timestamp_ns;
        self.last = self.last.max(at);
        let Some(step) = step(event) else { return };
        let task = self.tasks.entry(line.pid).or_default();
        if task.name.is_empty() || task.name == "<...>" {
            task.name = String::from_utf8_lossy(line.comm).trim().to_owned();
        }
        let slice = |name, begin, notes| Slice { name, begin, end: at, notes };
        match step {
            // kswapd is told to wake while it is awake too: for a higher order.
            Step::Begin(name, _) if task.open.last().is_some_and(|open| open.name == name) => {}
            Step::Begin(name, notes) => task.open.push(slice(name, at, notes)),
            Step::Lasted(name, us) => {
                let begin = at.saturating_sub(us * NS_PER_US);
                task.done.push(slice(name, begin, Vec::new()));
            }
            Step::Instant(name, notes) => task.instants.push(slice(name, at, notes)),
            Step::End(name, notes) => match task.open.iter().rposition(|open| open.name == name) {
                None => self.nr_without_begin += 1,
                Some(position) => {
                    while task.open.len() > position + 1 {
                        task.close(at);
                        self.nr_without_end += 1;
                    }
                    task.open[position].notes.extend(notes);
                    task.close(at);
                }
            },
        }
    }

    fn told(mut self) -> Told {
        let mut trace = Trace::default();
        let mut nr_slices = 0;
        for (pid, task) in &mut self.tasks {
            self.nr_without_end += task.open.len() as u64;
            while !task.open.is_empty() {
                task.close(self.last);
            }
            let uuid = FIRST_THREAD + u64::from(*pid);
            let number = i32::try_from(*pid).ok();
            trace.packet.push(descriptor(TrackDescriptor {
                uuid: Some(uuid),
                thread: Some(ThreadDescriptor {
                    pid: number,
                    tid: number,
                    thread_name: Some(task.name.clone()),
                }),
                ..TrackDescriptor::default()
            }));
            nr_slices += task.done.len() as u64;
            trace.packet.extend(packets(uuid, task));
        }
        Told {
            bytes: trace.encode_to_vec(),
            nr_slices,
            nr_without_begin: self.nr_without_begin,
            nr_without_end: self.nr_without_end,
        }
    }
}

/// A task's slices and moments, by time; of slices that begin together the longer one first, of ends the shorter one's.
fn packets(uuid: u64, task: &Task) -> Vec<TracePacket> {
    let mut slices: Vec<&Slice> = task.done.iter().collect();
    slices.sort_by_key(|slice| (slice.begin, std::cmp::Reverse(slice.end)));
    let mut packets = Vec::new();
    let mut ends: Vec<u64> = Vec::new();
    let end = |at| packet(at, event(Kind::SliceEnd, uuid));
    for slice in slices {
        while ends.last().is_some_and(|at| *at <= slice.begin) {
            packets.extend(ends.pop().map(end));
        }
        packets.push(packet(slice.begin, named(Kind::SliceBegin, uuid, slice)));
        // A slice does not outlast the one around it.
        ends.push(ends.last().map_or(slice.end, |around| slice.end.min(*around)));
    }
    packets.extend(ends.into_iter().rev().map(end));
    let instants = task.instants.iter();
    packets.extend(instants.map(|one| packet(one.begin, named(Kind::Instant, uuid, one))));
    packets
}

fn named(kind: Kind, uuid: u64, slice: &Slice) -> TrackEvent {
    let notes = slice.notes.iter().map(|(name, value)| DebugAnnotation {
        string_value: Some(value.clone()),
        name: Some((*name).to_owned()),
    });
    TrackEvent {
        name: Some(slice.name.to_owned()),
        debug_annotations: notes.collect(),
        ..event(kind, uuid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highorder_record::{Inputs, Timeline};

    /// Name, begin and end in microseconds, by thread, of all slices: decoded, and closed as Perfetto does.
    fn slices(bytes: &[u8]) -> Vec<(String, String, u64, u64)> {
        let trace = Trace::decode(bytes).expect("a trace");
        let mut names = BTreeMap::new();
        for track in trace.packet.iter().filter_map(|packet| packet.track_descriptor.as_ref()) {
            let thread = track.thread.as_ref().and_then(|thread| thread.thread_name.clone());
            names.insert(track.uuid(), thread.unwrap_or_default());
        }
        let mut open: BTreeMap<u64, Vec<(String, u64)>> = BTreeMap::new();
        let mut slices = Vec::new();
        for packet in &trace.packet {
            let Some(event) = &packet.track_event else { continue };
            let (uuid, at) = (event.track_uuid(), packet.timestamp() / NS_PER_US);
            match event.r#type() {
                Kind::SliceBegin => {
                    open.entry(uuid).or_default().push((event.name().to_owned(), at));
                }
                Kind::SliceEnd => {
                    let (name, begin) = open.get_mut(&uuid).and_then(Vec::pop).expect("it began");
                    slices.push((names[&uuid].clone(), name, begin, at));
                }
                _ => {}
            }
        }
        assert!(open.values().all(Vec::is_empty), "all slices end");
        slices
    }

    fn told(trace: &str) -> Told {
        let bytes = std::io::Cursor::new(trace.as_bytes().to_vec());
        of_trace(Source::new("trace", bytes).expect("text")).expect("a trace")
    }

    const TRACE: &str = "\
         usemem-100     [000] .....     1.000010: mm_vmscan_direct_reclaim_begin: order=9 gfp_flags=GFP_TRANSHUGE
         usemem-100     [000] .....     1.000020: mm_compaction_begin: zone_start=0x1000 migrate_pfn=0x1000 free_pfn=0x8000 zone_end=0x8000, mode=sync
        kswapd0-40      [001] .....     1.000030: mm_vmscan_kswapd_wake: nid=0 order=9
         usemem-100     [000] .....     1.000040: mm_compaction_end: zone_start=0x1000 migrate_pfn=0x1200 free_pfn=0x7000 zone_end=0x8000, mode=sync status=success
         usemem-100     [000] .....     1.000050: mm_vmscan_direct_reclaim_end: nr_reclaimed=64
         usemem-101     [000] .....     1.000060: mm_vmscan_direct_reclaim_end: nr_reclaimed=1
        kswapd0-40      [001] .....     1.000070: mm_vmscan_kswapd_wake: nid=0 order=9
         usemem-100     [000] .....     1.000080: mm_vmscan_direct_reclaim_begin: order=0 gfp_flags=GFP_KERNEL
        kswapd0-40      [001] .....     1.000090: mm_vmscan_kswapd_sleep: nid=0
";

    #[test]
    fn stalls_and_kswapd_are_slices_of_their_tasks() {
        let told = told(TRACE);
        let expected = [
            ("kswapd0", "kswapd awake", 1_000_030, 1_000_090),
            ("usemem", "compaction", 1_000_020, 1_000_040),
            ("usemem", "direct reclaim", 1_000_010, 1_000_050),
            ("usemem", "direct reclaim", 1_000_080, 1_000_090),
        ];
        let expected = expected.map(|(t, n, b, e)| (t.to_owned(), n.to_owned(), b, e));
        assert_eq!(slices(&told.bytes), expected);
        assert_eq!((told.nr_slices, told.nr_without_begin, told.nr_without_end), (4, 1, 1));
    }

    #[test]
    fn counters_of_a_run_are_tracks() {
        let mut record = Record::new(Inputs::default());
        record.timeline = Timeline::default();
        record.timeline.push(5_000, [("pgfault", 3), ("nr_free_pages", 70)]);
        record.timeline.push(9_000, [("pgfault", 4), ("nr_free_pages", 60)]);
        let trace = Trace::decode(of_run(&record).as_slice()).expect("a trace");
        let values: Vec<_> = trace
            .packet
            .iter()
            .filter_map(|packet| Some((packet, packet.track_event.as_ref()?)))
            .map(|(packet, event)| {
                (event.track_uuid(), packet.timestamp(), event.double_counter_value())
            })
            .collect();
        assert_eq!(values, [(1, 5_000, 3.0), (1, 9_000, 4.0), (2, 5_000, 70.0), (2, 9_000, 60.0)]);
    }
}
