//! One run of each variant over virtual time: a row of plots for each quantity, a column for each
//! variant, all of a row to one scale.
//!
//! Columns of the record's timeline are found by the names that [`highorder_record::timeline`] and
//! the crate's documentation list. Where a kernel counts by zone (`pgscan_direct_normal`,
//! `allocstall_movable`), zones are summed.

use highorder_record::{Record, TimelineColumn};
use highorder_report::axis::{Axis, Zero};
use highorder_tables::text::significant;
use serde::Serialize;

use crate::plot::{
    Data, DataRef, Direction, Key, Mark, Plane, Plot, Reader, Unit, Values, amount_axis,
};
use crate::series_class;

/// Samples of a run that are drawn at most: more than one for every two pixels of a column.
const SAMPLES_MAX: usize = 240;

/// The plot below that of free memory ends at so many times the highest watermark.
const NEAR_WATERMARKS: f64 = 3.0;

/// The zones' names inside counters, as in mm/vmstat.c (`TEXTS_FOR_ZONES`).
const ZONES: [&str; 6] = ["dma", "dma32", "normal", "high", "movable", "device"];

/// How a line is made from the timeline's columns.
#[derive(Clone, Copy, Debug)]
enum Pick {
    /// The first of these columns that there is.
    First(&'static [&'static str]),
    /// This column, or the sum of its like by zone.
    Family(&'static str),
    /// The first column less the second.
    Difference(&'static str, &'static str),
}

/// What the column's numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    One,
    /// Base pages, shown as bytes.
    Pages,
    /// KiB, shown as bytes.
    Kib,
}

/// A quantity.
struct Quantity {
    title: &'static str,
    unit: Unit,
    scale: Scale,
    /// Whether the columns count events since boot, so that their rise per second is drawn.
    is_rate: bool,
    /// Whether it is shown at once rather than folded away.
    is_main: bool,
    lines: &'static [(&'static str, Pick)],
}

const QUANTITIES: [Quantity; 12] = [
    Quantity {
        title: "Pages scanned",
        unit: Unit::PerSecond,
        scale: Scale::One,
        is_rate: true,
        is_main: true,
        lines: &[
            ("kswapd", Pick::Family("pgscan_kswapd")),
            ("direct", Pick::Family("pgscan_direct")),
            ("khugepaged", Pick::First(&["pgscan_khugepaged"])),
        ],
    },
    Quantity {
        title: "Pages reclaimed",
        unit: Unit::PerSecond,
        scale: Scale::One,
        is_rate: true,
        is_main: true,
        lines: &[
            ("kswapd", Pick::Family("pgsteal_kswapd")),
            ("direct", Pick::Family("pgsteal_direct")),
            ("khugepaged", Pick::First(&["pgsteal_khugepaged"])),
        ],
    },
    Quantity {
        title: "Swap traffic",
        unit: Unit::BytesPerSecond,
        scale: Scale::Pages,
        is_rate: true,
        is_main: true,
        lines: &[("out", Pick::First(&["pswpout"])), ("in", Pick::First(&["pswpin"]))],
    },
    Quantity {
        title: "Stalls",
        unit: Unit::PerSecond,
        scale: Scale::One,
        is_rate: true,
        is_main: true,
        lines: &[
            ("direct reclaim", Pick::Family("allocstall")),
            ("direct compaction", Pick::First(&["compact_stall"])),
            ("throttled", Pick::First(&["pgscan_direct_throttle"])),
        ],
    },
    Quantity {
        title: "Fragmentation events",
        unit: Unit::PerSecond,
        scale: Scale::One,
        is_rate: true,
        is_main: true,
        lines: &[
            ("unmovable", Pick::First(&["mm_page_alloc_extfrag_unmovable"])),
            ("movable", Pick::First(&["mm_page_alloc_extfrag_movable"])),
            ("reclaimable", Pick::First(&["mm_page_alloc_extfrag_reclaimable"])),
        ],
    },
    Quantity {
        title: "Major faults",
        unit: Unit::PerSecond,
        scale: Scale::One,
        is_rate: true,
        is_main: true,
        lines: &[("major", Pick::First(&["pgmajfault"]))],
    },
    Quantity {
        title: "Swap in use",
        unit: Unit::Bytes,
        scale: Scale::Kib,
        is_rate: false,
        is_main: false,
        lines: &[("used", Pick::Difference("SwapTotal", "SwapFree"))],
    },
    Quantity {
        title: "User memory",
        unit: Unit::Bytes,
        scale: Scale::Pages,
        is_rate: false,
        is_main: false,
        lines: &[
            ("anon, active", Pick::First(&["nr_active_anon", "nr_zone_active_anon"])),
            ("anon, inactive", Pick::First(&["nr_inactive_anon", "nr_zone_inactive_anon"])),
            ("file, active", Pick::First(&["nr_active_file", "nr_zone_active_file"])),
            ("file, inactive", Pick::First(&["nr_inactive_file", "nr_zone_inactive_file"])),
            ("anon, mapped", Pick::First(&["nr_anon_pages", "nr_anon_mapped"])),
        ],
    },
    Quantity {
        title: "Disk traffic",
        unit: Unit::BytesPerSecond,
        scale: Scale::Kib,
        is_rate: true,
        is_main: false,
        lines: &[("out", Pick::First(&["pgpgout"])), ("in", Pick::First(&["pgpgin"]))],
    },
    Quantity {
        title: "Faults",
        unit: Unit::PerSecond,
        scale: Scale::One,
        is_rate: true,
        is_main: false,
        lines: &[("all", Pick::First(&["pgfault"]))],
    },
    Quantity {
        title: "Huge page faults",
        unit: Unit::PerSecond,
        scale: Scale::One,
        is_rate: true,
        is_main: false,
        lines: &[
            ("huge page", Pick::First(&["thp_fault_alloc"])),
            ("fell back", Pick::First(&["thp_fault_fallback"])),
        ],
    },
    Quantity {
        title: "Tasks",
        unit: Unit::Count,
        scale: Scale::One,
        is_rate: false,
        is_main: false,
        lines: &[
            ("runnable", Pick::First(&["procs_running"])),
            ("blocked", Pick::First(&["procs_blocked"])),
        ],
    },
];

/// KiB of a base page and of a huge page on x86-64.
const PAGE_KIB: f64 = 4.0;
const HUGE_KIB: f64 = 2048.0;

/// Columns times numbers, added up: KiB.
type Terms = &'static [(&'static str, f64)];

/// A part of memory in [`memory_by_use`].
struct Part {
    name: &'static str,
    class: &'static str,
    /// Ways to come by its size: the first counts of which every column is there.
    ways: &'static [Terms],
}

/// The parts from the bottom up: first what stays where it is, last what is free.
///
/// `AnonPages` counts huge pages in every kernel; `nr_anon_pages` does since 3.12 (3cd14fcd3f12).
/// `nr_anon_transparent_hugepages` is huge pages in all of them, `nr_file_pages` has the swap cache in it.
const PARTS: [Part; 7] = [
    Part {
        name: "slab, unreclaimable",
        class: "stack u-slab",
        ways: &[&[("SUnreclaim", 1.0)], &[("nr_slab_unreclaimable", PAGE_KIB)]],
    },
    Part {
        name: "stacks, page tables",
        class: "stack u-kernel",
        ways: &[&[("KernelStack", 1.0), ("PageTables", 1.0)]],
    },
    Part {
        name: "slab, reclaimable",
        class: "stack u-reclaimable",
        ways: &[&[("SReclaimable", 1.0)], &[("nr_slab_reclaimable", PAGE_KIB)]],
    },
    Part {
        name: "anon, huge pages",
        class: "stack u-huge",
        ways: &[&[("nr_anon_transparent_hugepages", HUGE_KIB)]],
    },
    Part {
        name: "files",
        class: "stack u-file",
        ways: &[
            &[("Buffers", 1.0), ("Cached", 1.0)],
            &[("nr_file_pages", PAGE_KIB), ("nr_swapcached", -PAGE_KIB)],
            &[("nr_file_pages", PAGE_KIB)],
        ],
    },
    Part {
        name: "anon, base pages",
        class: "stack u-anon",
        ways: &[
            &[("AnonPages", 1.0), ("nr_anon_transparent_hugepages", -HUGE_KIB)],
            &[("AnonPages", 1.0)],
            &[("nr_anon_pages", PAGE_KIB), ("nr_anon_transparent_hugepages", -HUGE_KIB)],
            &[("nr_anon_pages", PAGE_KIB)],
        ],
    },
    Part {
        name: "free",
        class: "stack u-free",
        ways: &[&[("nr_free_pages", PAGE_KIB)], &[("MemFree", 1.0)]],
    },
];

/// What is left of memory when [`PARTS`] are taken from it; it lies below what is free.
const REST: (&str, &str) = ("everything else", "stack u-rest");

/// The timelines of one run of each variant.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Timelines {
    /// Rows shown at once.
    pub(crate) main: Vec<RowView>,
    /// Rows that are folded: free memory by zone.
    pub(crate) zones: Vec<RowView>,
    /// Rows that are folded: the rest.
    pub(crate) more: Vec<RowView>,
    pub(crate) data: Vec<Data>,
    pub(crate) reader: Option<Reader>,
    /// What is not drawn, and why, a sentence each.
    pub(crate) remarks: Vec<String>,
}

/// A quantity, with a plot for each variant.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RowView {
    pub(crate) title: String,
    /// What the numbers at the axes are counted in.
    pub(crate) unit: String,
    pub(crate) plots: Vec<Plot>,
}

/// A line of a plot.
struct Line {
    name: String,
    class: &'static str,
    values: Option<Values>,
}

/// A row of plots: for each variant its lines.
struct Row {
    title: String,
    unit: Unit,
    is_rate: bool,
    /// The axis ends here, whatever lies above.
    top: Option<f64>,
    /// Whether the lines lie upon each other, the first at the bottom, as areas.
    is_stacked: bool,
    of_run: Vec<Vec<Line>>,
}

/// The classes of the lines of a quantity, in order.
const QUANTITY_CLASSES: [&str; 5] = ["q0", "q1", "q2", "q3", "q4"];

/// Draws the timelines; `runs` has a run, or none, for each variant, and `id` is the page's for them.
pub(crate) fn timelines(id: &str, runs: &[Option<&Record>], labels: &[String]) -> Timelines {
    let sampled: Vec<Option<Sampled<'_>>> =
        runs.iter().map(|run| run.map(Sampled::new).filter(|s| !s.at.is_empty())).collect();
    let mut remarks = Vec::new();
    if sampled.iter().all(Option::is_none) {
        remarks.push("No timeline was recorded.".to_owned());
        return Timelines {
            main: Vec::new(),
            zones: Vec::new(),
            more: Vec::new(),
            data: Vec::new(),
            reader: None,
            remarks,
        };
    }
    remarks.extend(thinning(&sampled, labels));

    let mut rows: Vec<(Section, Row)> = Vec::new();
    let mut missing: Vec<String> = Vec::new();
    match free_memory(&sampled) {
        (Some(free), near) => {
            rows.push((Section::Main, free));
            rows.extend(near.map(|near| (Section::Main, near)));
        }
        (None, _) => missing.push("free memory".to_owned()),
    }
    rows.extend(zone_rows(&sampled).into_iter().map(|row| (Section::Zones, row)));
    let quantities = QUANTITIES.iter().map(|quantity| {
        let section = if quantity.is_main { Section::Main } else { Section::More };
        (section, quantity_row(quantity, &sampled))
    });
    let mut nothing: Vec<String> = Vec::new();
    let by_use = [(Section::Main, memory_by_use(&sampled))].into_iter();
    for (section, row) in by_use.chain(quantities).chain([(Section::More, cpu_time(&sampled))]) {
        if !row.has_values() {
            missing.push(in_sentence(&row.title));
        } else if row.is_nothing() {
            nothing.push(in_sentence(&row.title));
        } else {
            rows.push((section, row));
        }
    }
    if !nothing.is_empty() {
        remarks.push(format!("Zero throughout, in every variant: {}.", nothing.join(", ")));
    }
    if !missing.is_empty() {
        remarks.push(format!("Not recorded: {}.", missing.join(", ")));
    }

    // The axis ends where the longest run does, so that no room is lost.
    let times = || sampled.iter().flatten().filter_map(|s| s.seconds.last().copied());
    let x = Axis::linear(times(), 6, Zero::Included);
    let last = times().fold(0.0, f64::max);
    let x = Axis { range: (0.0, if last > 0.0 { last } else { x.range.1 }), ..x };
    let drawing = Drawing { id, labels, x: &x, sampled: &sampled };
    let data = drawing.data(&rows);
    let (mut main, mut zones, mut more) = (Vec::new(), Vec::new(), Vec::new());
    for (index, (section, row)) in rows.iter().enumerate() {
        let plots = drawing.row(row, index);
        match section {
            Section::Main => main.push(plots),
            Section::Zones => zones.push(plots),
            Section::More => more.push(plots),
        }
    }
    let reader = (!rows.is_empty()).then(|| Reader::new(id, "time", &x, Unit::Seconds.word()));
    Timelines { main, zones, more, data, reader, remarks }
}

/// A title within a sentence; `CPU` keeps its capitals.
fn in_sentence(title: &str) -> String {
    match title.strip_prefix("CPU") {
        Some(_) => title.to_owned(),
        None => title.to_lowercase(),
    }
}

/// What to say if not every sample is drawn.
fn thinning(sampled: &[Option<Sampled<'_>>], labels: &[String]) -> Option<String> {
    let runs = sampled.iter().zip(labels).filter_map(|(sampled, label)| {
        let sampled = sampled.as_ref()?;
        let (drawn, all) = (sampled.at.len(), sampled.record.timeline.len());
        (drawn < all).then(|| format!("{drawn} of {all} samples of {label}"))
    });
    let runs: Vec<String> = runs.collect();
    (!runs.is_empty()).then(|| {
        format!(
            "Drawn are {}, the lows of free memory among them; rates are means between those.",
            runs.join(", ")
        )
    })
}

/// A value, or none, for each sample that is drawn.
type Column = Vec<Option<f64>>;

/// Where a row of plots stands.
#[derive(Clone, Copy, Debug)]
enum Section {
    Main,
    Zones,
    More,
}

/// A run's timeline, thinned to what is drawn.
struct Sampled<'a> {
    record: &'a Record,
    /// The samples that are drawn.
    at: Vec<usize>,
    /// When they were taken.
    seconds: Vec<f64>,
}

impl<'a> Sampled<'a> {
    fn new(record: &'a Record) -> Self {
        let at = thinned(record);
        let seconds = at.iter().map(|&i| record.timeline.time_ns[i] as f64 / 1e9).collect();
        Self { record, at, seconds }
    }

    fn level(&self, column: &TimelineColumn) -> Column {
        self.at.iter().map(|&i| column.values.get(i)).collect()
    }

    fn column(&self, name: &str) -> Option<Column> {
        self.record.timeline.column(name).map(|column| self.level(column))
    }

    fn pick(&self, pick: Pick) -> Option<Column> {
        match pick {
            Pick::First(names) => names.iter().find_map(|name| self.column(name)),
            Pick::Family(name) => self.column(name).or_else(|| {
                sum(ZONES.iter().filter_map(|zone| self.column(&format!("{name}_{zone}"))))
            }),
            Pick::Difference(from, less) => {
                let pairs = self.column(from)?.into_iter().zip(self.column(less)?);
                Some(pairs.map(|(from, less)| Some(from? - less?)).collect())
            }
        }
    }

    /// Whether a counter is known not to have moved: sampled or not, it rose by nothing at any time.
    /// Captures of real kernels leave such counters out of their samples.
    fn is_still(&self, pick: Pick) -> bool {
        match pick {
            Pick::First(names) => names.iter().any(|name| self.record.delta(name) == Some(0)),
            Pick::Family(name) => match self.record.delta(name) {
                Some(rise) => rise == 0,
                None => {
                    let zones = ZONES.iter();
                    let mut rises = zones
                        .filter_map(|zone| self.record.delta(&format!("{name}_{zone}")))
                        .peekable();
                    rises.peek().is_some() && rises.all(|rise| rise == 0)
                }
            },
            Pick::Difference(..) => false,
        }
    }

    fn bytes(&self, scale: Scale) -> f64 {
        match scale {
            Scale::One => 1.0,
            Scale::Pages => f64::from(self.record.page_bytes),
            Scale::Kib => 1024.0,
        }
    }

    /// The rise per second up to each sample; none for the first.
    fn rates(&self, values: &[Option<f64>]) -> Column {
        let mut rates = vec![None];
        for (pair, times) in values.windows(2).zip(self.seconds.windows(2)) {
            let rise = pair[0].zip(pair[1]).map(|(before, after)| after - before);
            rates.push(rise.map(|rise| rise / (times[1] - times[0])));
        }
        rates
    }

    /// The zones that the timeline tells the free memory of, by node and name.
    fn zones(&self) -> Vec<(String, String)> {
        let mut zones: Vec<(String, String)> = Vec::new();
        for column in &self.record.timeline.columns {
            if let Some((node, zone)) = zone_of(&column.name)
                && !zones.iter().any(|known| (known.0.as_str(), known.1.as_str()) == (node, zone))
            {
                zones.push((node.to_owned(), zone.to_owned()));
            }
        }
        zones
    }

    /// Free memory of a zone in bytes.
    fn free_in_zone(&self, node: &str, zone: &str) -> Option<Column> {
        let pages = self.column(&format!("free_pages/{node}/{zone}")).or_else(|| {
            let prefix = format!("buddyinfo {node} {zone} ");
            let columns = self.record.timeline.columns.iter().filter_map(|column| {
                let order: u32 = column.name.strip_prefix(&prefix)?.parse().ok()?;
                let blocks = self.level(column);
                let pages = f64::from(2.0_f32).powi(order.cast_signed());
                Some(blocks.into_iter().map(|n| n.map(|n| n * pages)).collect())
            });
            sum(columns)
        });
        Some(self.in_bytes(pages?, Scale::Pages))
    }

    /// The sum of columns times numbers; all have to be there. What differences of numbers that were read
    /// one after the other make less than nothing is nothing.
    fn weighted(&self, terms: Terms) -> Option<Column> {
        let of_term = |(name, factor): &(&str, f64)| {
            let column = self.column(name)?.into_iter();
            Some(column.map(|value| value.map(|value| value * factor)).collect())
        };
        let columns: Option<Vec<Column>> = terms.iter().map(of_term).collect();
        let sum = sum(columns?.into_iter())?;
        Some(sum.into_iter().map(|value| value.map(|value| value.max(0.0))).collect())
    }

    fn in_bytes(&self, values: Column, scale: Scale) -> Column {
        let bytes = self.bytes(scale);
        values.into_iter().map(|value| value.map(|value| value * bytes)).collect()
    }

    /// A watermark of a zone in bytes: sampled, or else as it was when the run began.
    fn watermark(&self, mark: &str, node: &str, zone: &str) -> Option<Values> {
        if let Some(pages) = self.column(&format!("watermark_{mark}/{node}/{zone}")) {
            return Some(level(self.in_bytes(pages, Scale::Pages)));
        }
        let state = self.record.before.zone(node.parse().ok()?, zone)?;
        let pages = *state.pages.get(mark)? as f64;
        Some(Values::Constant(pages * self.bytes(Scale::Pages)))
    }

    /// A watermark of all zones together in bytes.
    fn watermark_sum(&self, mark: &str) -> Option<Values> {
        let prefix = format!("watermark_{mark}/");
        let columns = self.record.timeline.columns.iter();
        let columns = columns.filter(|column| column.name.starts_with(&prefix));
        if let Some(pages) = sum(columns.map(|column| self.level(column))) {
            return Some(level(self.in_bytes(pages, Scale::Pages)));
        }
        let zones = &self.record.before.zones;
        let pages: Option<Vec<u64>> =
            zones.iter().map(|zone| zone.pages.get(mark).copied()).collect();
        let pages = pages.filter(|pages| !pages.is_empty())?;
        Some(Values::Constant(pages.iter().sum::<u64>() as f64 * self.bytes(Scale::Pages)))
    }
}

/// Values that hardly ever change: one number if they never do.
fn level(values: Column) -> Values {
    match values.first() {
        Some(Some(first)) if values.iter().all(|value| *value == Some(*first)) => {
            Values::Constant(*first)
        }
        _ => Values::Each(values),
    }
}

/// The node and the zone that a column tells the free memory of.
fn zone_of(column: &str) -> Option<(&str, &str)> {
    if let Some(rest) = column.strip_prefix("free_pages/") {
        return rest.split_once('/');
    }
    let (node, rest) = column.strip_prefix("buddyinfo ")?.split_once(' ')?;
    Some((node, rest.rsplit_once(' ')?.0))
}

/// The samples to draw: all, or of each of equal stretches the first and that with least free memory,
/// and the last of all.
fn thinned(record: &Record) -> Vec<usize> {
    let nr = record.timeline.len();
    if nr <= SAMPLES_MAX {
        return (0..nr).collect();
    }
    let free =
        record.timeline.column("nr_free_pages").or_else(|| record.timeline.column("MemFree"));
    let stretches = (SAMPLES_MAX - 1) / 2;
    let mut at = Vec::new();
    for stretch in 0..stretches {
        let (from, to) = (stretch * nr / stretches, (stretch + 1) * nr / stretches);
        at.push(from);
        let free = |i: usize| free.and_then(|column| column.values.get(i)).unwrap_or(f64::INFINITY);
        at.extend((from..to).min_by(|&a, &b| free(a).total_cmp(&free(b))));
    }
    at.push(nr - 1);
    at.sort_unstable();
    at.dedup();
    at
}

/// The sum of columns, where all have a value; none of no columns.
fn sum(columns: impl Iterator<Item = Column>) -> Option<Column> {
    columns.reduce(|mut sum, column| {
        for (into, value) in sum.iter_mut().zip(column) {
            *into = into.zip(value).map(|(a, b)| a + b);
        }
        sum
    })
}

const MARKS: [(&str, &str, &str); 3] = [
    ("high", "high watermark", "w-high"),
    ("low", "low watermark", "w-low"),
    ("min", "min watermark", "w-min"),
];

/// Free memory over all zones, and the same near the watermarks if those are too low to be seen.
fn free_memory(sampled: &[Option<Sampled<'_>>]) -> (Option<Row>, Option<Row>) {
    let lines = |sampled: &Sampled<'_>| {
        let pages = sampled.column("nr_free_pages").map(|v| sampled.in_bytes(v, Scale::Pages));
        let free =
            pages.or_else(|| sampled.column("MemFree").map(|v| sampled.in_bytes(v, Scale::Kib)));
        let mut lines =
            vec![Line { name: "free".to_owned(), class: "q0", values: free.map(Values::Each) }];
        lines.extend(MARKS.map(|(mark, name, class)| Line {
            name: name.to_owned(),
            class,
            values: sampled.watermark_sum(mark),
        }));
        lines
    };
    let row = |title: &str, top| Row {
        title: title.to_owned(),
        unit: Unit::Bytes,
        is_rate: false,
        top,
        is_stacked: false,
        of_run: sampled.iter().map(|s| s.as_ref().map_or(vec![], &lines)).collect(),
    };
    let all = row("Free memory", None);
    if !all.of_run.iter().flatten().any(|line| line.class == "q0" && line.values.is_some()) {
        return (None, None);
    }
    let largest = |class: &str| {
        let lines = all.of_run.iter().flatten().filter(|line| line.class == class);
        lines.filter_map(|line| line.values.as_ref()).flat_map(Values::iter).fold(0.0, f64::max)
    };
    let mark = MARKS.iter().map(|(_, _, class)| largest(class)).fold(0.0, f64::max);
    let top = NEAR_WATERMARKS * mark;
    let near = (mark > 0.0 && largest("q0") > 1.5 * top)
        .then(|| row("Free memory near the watermarks", Some(top)));
    (Some(all), near)
}

/// Free memory of each zone that any run tells of.
fn zone_rows(sampled: &[Option<Sampled<'_>>]) -> Vec<Row> {
    let mut zones: Vec<(String, String)> = Vec::new();
    for zone in sampled.iter().flatten().flat_map(Sampled::zones) {
        if !zones.contains(&zone) {
            zones.push(zone);
        }
    }
    let row = |(node, zone): &(String, String)| {
        let lines = |sampled: &Sampled<'_>| {
            let free = sampled.free_in_zone(node, zone).map(Values::Each);
            let mut lines = vec![Line { name: "free".to_owned(), class: "q0", values: free }];
            lines.extend(MARKS.map(|(mark, name, class)| Line {
                name: name.to_owned(),
                class,
                values: sampled.watermark(mark, node, zone),
            }));
            lines
        };
        Row {
            title: format!("Free in node {node}, zone {zone}"),
            unit: Unit::Bytes,
            is_rate: false,
            top: None,
            is_stacked: false,
            of_run: sampled.iter().map(|s| s.as_ref().map_or(vec![], lines)).collect(),
        }
    };
    zones.iter().map(row).collect()
}

/// What memory is used for, all of it: what no counter tells is the rest.
fn memory_by_use(sampled: &[Option<Sampled<'_>>]) -> Row {
    let lines = |sampled: &Sampled<'_>| -> Vec<Line> {
        let bytes = |part: &Part| {
            let kib = part.ways.iter().find_map(|terms| sampled.weighted(terms))?;
            Some(sampled.in_bytes(kib, Scale::Kib))
        };
        let parts = PARTS.each_ref().map(bytes);
        let known = parts.iter().flatten().cloned();
        let [before, after] = [&sampled.record.before, &sampled.record.after]
            .map(|state| state.meminfo.get("MemTotal").map(|kib| *kib as f64 * 1024.0));
        // Parts of two moments may overlap by a little: the rest is not less than nothing.
        let rest = before.or(after).zip(sum(known)).map(|(total, known)| -> Column {
            known.into_iter().map(|known| known.map(|known| (total - known).max(0.0))).collect()
        });
        let mut lines: Vec<Line> = PARTS
            .iter()
            .zip(parts)
            .map(|(part, values)| Line {
                name: part.name.to_owned(),
                class: part.class,
                values: values.map(Values::Each),
            })
            .collect();
        let (name, class) = REST;
        let rest = Line { name: name.to_owned(), class, values: rest.map(Values::Each) };
        lines.insert(PARTS.len() - 1, rest);
        lines
    };
    let mut row = Row {
        title: "Memory by use".to_owned(),
        unit: Unit::Bytes,
        is_rate: false,
        top: None,
        is_stacked: true,
        of_run: sampled.iter().map(|s| s.as_ref().map_or(vec![], lines)).collect(),
    }
    .without_unknown_lines();
    // Of a run that tells nothing but what is free, there is no use to show.
    let is_told = |lines: &Vec<Line>| {
        let told = |line: &&Line| line.values.is_some() && line.class != REST.1;
        lines.iter().filter(told).count() > 1
    };
    if !row.of_run.iter().any(is_told) {
        row.of_run.iter_mut().for_each(Vec::clear);
    }
    row
}

/// The sums of the lines up to each, from the first on; a line that is missing adds nothing, and where a
/// sample is missing, all sums above it are.
fn stacked(lines: &[Line]) -> Vec<Column> {
    let mut sums: Vec<Column> = Vec::new();
    let mut below: Option<Column> = None;
    for line in lines {
        if let Some(Values::Each(values)) = &line.values {
            below = sum(below.into_iter().chain([values.clone()]));
        }
        sums.push(below.clone().unwrap_or_default());
    }
    sums
}

fn quantity_row(quantity: &Quantity, sampled: &[Option<Sampled<'_>>]) -> Row {
    let line = |sampled: &Sampled<'_>, (name, pick): &(&str, Pick), class| {
        let values = sampled.pick(*pick).map(|values| {
            let values = sampled.in_bytes(values, quantity.scale);
            Values::Each(if quantity.is_rate { sampled.rates(&values) } else { values })
        });
        let still = || quantity.is_rate && sampled.is_still(*pick);
        let values = values.or_else(|| still().then_some(Values::Constant(0.0)));
        Line { name: (*name).to_owned(), class, values }
    };
    let lines = |sampled: &Sampled<'_>| -> Vec<Line> {
        let lines = quantity.lines.iter().zip(QUANTITY_CLASSES);
        lines.map(|(of, class)| line(sampled, of, class)).collect()
    };
    Row {
        title: quantity.title.to_owned(),
        unit: quantity.unit,
        is_rate: quantity.is_rate,
        top: None,
        is_stacked: false,
        of_run: sampled.iter().map(|s| s.as_ref().map_or(vec![], lines)).collect(),
    }
    .without_unknown_lines()
}

/// Where the CPUs' time went between samples, in percent of all of it.
fn cpu_time(sampled: &[Option<Sampled<'_>>]) -> Row {
    let lines = |sampled: &Sampled<'_>| -> Vec<Line> {
        let parts = ["system", "user", "iowait", "idle", "steal"];
        let rates = parts.map(|part| {
            sampled.column(&format!("cpu_{part}_ns")).map(|values| sampled.rates(&values))
        });
        let all = sum(rates.iter().flatten().cloned());
        let lines = parts.into_iter().zip(rates).zip(QUANTITY_CLASSES);
        let line = |((part, rates), class): ((&str, Option<Column>), &'static str)| {
            let shares = rates.zip(all.as_ref()).map(|(rates, all)| {
                let share = |(part, all): (Option<f64>, &Option<f64>)| {
                    part.zip(all.filter(|all| *all > 0.0)).map(|(part, all)| 100.0 * part / all)
                };
                Values::Each(rates.into_iter().zip(all).map(share).collect())
            });
            Line { name: part.to_owned(), class, values: shares }
        };
        lines.map(line).collect()
    };
    Row {
        title: "CPU time".to_owned(),
        unit: Unit::Percent,
        is_rate: true,
        top: None,
        is_stacked: false,
        of_run: sampled.iter().map(|s| s.as_ref().map_or(vec![], lines)).collect(),
    }
    .without_unknown_lines()
}

impl Row {
    fn values(&self) -> impl Iterator<Item = f64> + '_ {
        self.of_run.iter().flatten().filter_map(|line| line.values.as_ref()).flat_map(Values::iter)
    }

    fn has_values(&self) -> bool {
        self.values().next().is_some()
    }

    fn is_nothing(&self) -> bool {
        self.values().all(|value| value == 0.0)
    }

    /// Takes out the lines that no run has; the others keep their colours.
    fn without_unknown_lines(mut self) -> Self {
        let known: Vec<&str> = {
            let lines = self.of_run.iter().flatten().filter(|line| line.values.is_some());
            lines.map(|line| line.class).collect()
        };
        for lines in &mut self.of_run {
            lines.retain(|line| known.contains(&line.class));
        }
        self
    }

    /// How high the marks reach.
    fn heights(&self) -> Vec<f64> {
        if !self.is_stacked {
            return self.values().collect();
        }
        let sums = self.of_run.iter().flat_map(|lines| stacked(lines));
        sums.flatten().flatten().collect()
    }
}

/// What the plots of one set of runs have in common.
struct Drawing<'a> {
    id: &'a str,
    labels: &'a [String],
    x: &'a Axis,
    sampled: &'a [Option<Sampled<'a>>],
}

impl Drawing<'_> {
    /// The values of every plot, an element for each run.
    fn data(&self, rows: &[(Section, Row)]) -> Vec<Data> {
        let sampled = self.sampled.iter().enumerate();
        let of_run = sampled.filter_map(|(i, sampled)| Some((i, sampled.as_ref()?)));
        let data = of_run.map(|(i, sampled)| {
            let lines = |(_, row): &(Section, Row)| {
                row.of_run[i].iter().map(|line| line.values.clone()).collect::<Vec<_>>()
            };
            let values: Vec<Vec<Option<Values>>> = rows.iter().map(lines).collect();
            let values: Vec<Vec<Option<&Values>>> =
                values.iter().map(|lines| lines.iter().map(Option::as_ref).collect()).collect();
            Data::new(&self.source(i), &sampled.seconds, &values)
        });
        data.collect()
    }

    fn source(&self, run: usize) -> String {
        format!("{}-{run}", self.id)
    }

    /// The plots of a row, all to one scale.
    fn row(&self, row: &Row, index: usize) -> RowView {
        let values = row.heights().into_iter();
        let values = values.map(|value| row.top.map_or(value, |top| value.min(top)));
        let (mut y, unit, texts) =
            amount_axis(values, row.unit, if row.top.is_some() { 8 } else { 4 });
        y.range.1 = row.top.unwrap_or(y.range.1);
        let seconds: Vec<String> = self.x.ticks.iter().map(|tick| significant(*tick)).collect();
        let plot = |(run, lines): (usize, &Vec<Line>)| {
            let plane = Plane { x: self.x, y: &y };
            let mut marks = Vec::new();
            if row.is_stacked {
                marks = self.areas(&plane, run, lines);
            } else {
                for line in lines {
                    marks.extend(self.marks(&plane, run, row, line));
                }
            }
            let key = |line: &Line| Key {
                class: line.class.to_owned(),
                name: line.name.clone(),
                is_there: line.values.is_some(),
            };
            let has_data = lines.iter().any(|line| line.values.is_some());
            Plot {
                title: self.labels[run].clone(),
                swatch: series_class(run),
                unit: String::new(),
                label: self.label(row, run, lines),
                x: Direction::new(self.x, &seconds, false, 0.08),
                y: Direction::new(&y, &texts, true, 0.0),
                x_label: "seconds".to_owned(),
                marks,
                keys: lines.iter().map(key).collect(),
                data: has_data.then(|| DataRef {
                    source: self.source(run),
                    index,
                    group: self.id.to_owned(),
                    unit: row.unit.word().to_owned(),
                    is_stepped: row.is_rate,
                }),
            }
        };
        let plots = row.of_run.iter().enumerate().map(plot).collect();
        RowView { title: row.title.clone(), unit, plots }
    }

    /// The areas of a stack: each reaches down to the axis, and those below cover its lower part.
    fn areas(&self, plane: &Plane<'_>, run: usize, lines: &[Line]) -> Vec<Mark> {
        let Some(sampled) = &self.sampled[run] else { return Vec::new() };
        let areas = lines.iter().zip(stacked(lines)).filter(|(line, _)| line.values.is_some());
        let mut marks: Vec<Mark> = areas
            .map(|(line, sums)| Mark {
                class: format!("area {}", line.class),
                d: plane.area_under_line(&sampled.seconds, &sums),
            })
            .collect();
        marks.reverse();
        marks
    }

    fn marks(&self, plane: &Plane<'_>, run: usize, row: &Row, line: &Line) -> Vec<Mark> {
        let (Some(sampled), Some(values)) = (&self.sampled[run], &line.values) else {
            return Vec::new();
        };
        let x = &sampled.seconds;
        let mut marks = Vec::new();
        let d = match values {
            Values::Each(each) if row.is_rate => {
                if line.class == "q0" {
                    marks.push(("area q0", plane.area_under_steps(x, each)));
                }
                plane.steps(x, each)
            }
            Values::Each(each) => {
                if line.class == "q0" {
                    marks.push(("area q0", plane.area_under_line(x, each)));
                }
                plane.line(x, values)
            }
            Values::Constant(_) => plane.line(x, values),
        };
        let mut marks: Vec<Mark> =
            marks.into_iter().map(|(class, d)| Mark { class: class.to_owned(), d }).collect();
        marks.push(Mark { class: format!("line {}", line.class), d });
        marks
    }

    /// What a plot shows, in words: the range of each line.
    fn label(&self, row: &Row, run: usize, lines: &[Line]) -> String {
        let line = |line: &Line| {
            let values: Vec<f64> = line.values.as_ref()?.iter().collect();
            let low = values.iter().copied().reduce(f64::min)?;
            let high = values.iter().copied().reduce(f64::max)?;
            let (low, high) = (row.unit.show(low), row.unit.show(high));
            Some(match low == high {
                true => format!("{} {low}", line.name),
                false => format!("{} {low} to {high}", line.name),
            })
        };
        let lines: Vec<String> = lines.iter().filter_map(line).collect();
        let what = if lines.is_empty() { "not recorded".to_owned() } else { lines.join("; ") };
        format!("{}, {}, over virtual time: {what}.", self.labels[run], row.title)
    }
}

#[cfg(test)]
mod tests {
    use highorder_record::{Inputs, TimelineValues};

    use super::*;

    fn record(samples: usize) -> Record {
        let mut record = Record::new(Inputs::default());
        for i in 0..samples as u64 {
            let free = if i == 777 { 5 } else { 100_000 - i };
            record.timeline.push(
                i * 500_000_000,
                [
                    ("nr_free_pages", free),
                    ("free_pages/0/DMA32", free / 2),
                    ("watermark_low/0/DMA32", 300),
                    ("watermark_low/0/Normal", 200),
                    ("pgscan_direct_dma32", 10 * i),
                    ("pgscan_direct_normal", 20 * i),
                    ("pgscan_direct_throttle", i),
                    ("cpu_user_ns", 100 * i),
                    ("cpu_idle_ns", 300 * i),
                    ("SwapTotal", 4096),
                    ("SwapFree", 4096 - i),
                ],
            );
        }
        record
    }

    #[test]
    fn a_thinned_timeline_keeps_its_ends_and_the_low_of_free_memory() {
        let long = record(4001);
        let at = thinned(&long);
        assert!(at.len() <= SAMPLES_MAX && at.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!((at[0], at[at.len() - 1]), (0, 4000));
        assert!(at.contains(&777), "the lowest sample of all");
        assert_eq!(thinned(&record(7)), [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn zones_of_a_counter_are_summed_and_its_namesakes_are_not() {
        let record = record(3);
        let sampled = Sampled::new(&record);
        let values = sampled.pick(Pick::Family("pgscan_direct")).unwrap();
        assert_eq!(values, [Some(0.0), Some(30.0), Some(60.0)]);
        assert_eq!(sampled.rates(&values), [None, Some(60.0), Some(60.0)]);
        assert_eq!(sampled.pick(Pick::Family("pgscan_kswapd")), None);
    }

    #[test]
    fn a_counter_that_was_not_sampled_and_did_not_move_is_zero() {
        let mut record = record(3);
        for (name, before, after) in [
            ("pswpin", 7, 7),
            ("pswpout", 7, 8),
            ("allocstall_dma", 2, 2),
            ("allocstall_normal", 3, 3),
        ] {
            record.before.counters.insert(name.to_owned(), before);
            record.after.counters.insert(name.to_owned(), after);
        }
        let sampled = [Some(Sampled::new(&record))];
        let of = |title: &str| {
            let quantity = QUANTITIES.iter().find(|quantity| quantity.title == title).unwrap();
            let row = quantity_row(quantity, &sampled);
            let lines = row.of_run[0].iter().map(|line| (line.name.clone(), line.values.clone()));
            lines.collect::<Vec<_>>()
        };
        assert_eq!(of("Swap traffic"), [("in".to_owned(), Some(Values::Constant(0.0)))]);
        assert_eq!(of("Stalls")[0], ("direct reclaim".to_owned(), Some(Values::Constant(0.0))));
    }

    #[test]
    fn watermarks_are_those_sampled_or_else_those_of_the_state_before() {
        let mut record = record(2);
        let sampled = Sampled::new(&record);
        assert_eq!(sampled.watermark_sum("low"), Some(Values::Constant(500.0 * 4096.0)));
        assert_eq!(sampled.watermark_sum("high"), None);
        let TimelineValues::Counts(low) = &mut record.timeline.columns[2].values else { panic!() };
        low[1] = Some(310);
        let boosted = vec![Some(500.0 * 4096.0), Some(510.0 * 4096.0)];
        assert_eq!(Sampled::new(&record).watermark_sum("low"), Some(Values::Each(boosted)));
        for (node, pages) in [(0, 7), (1, 9)] {
            let zone = record.before.zone_mut(node, "Normal");
            zone.pages = [("high".to_owned(), pages)].into();
        }
        let sampled = Sampled::new(&record);
        assert_eq!(sampled.watermark_sum("high"), Some(Values::Constant(16.0 * 4096.0)));
        let of_zone = sampled.watermark("high", "1", "Normal");
        assert_eq!(of_zone, Some(Values::Constant(9.0 * 4096.0)));
    }

    #[test]
    fn a_zones_free_memory_comes_from_its_column_or_from_buddyinfo() {
        let mut record = Record::new(Inputs::default());
        record.timeline.push(
            0,
            [("buddyinfo 1 DMA32 00", 3), ("buddyinfo 1 DMA32 09", 2), ("free_pages/0/Normal", 8)],
        );
        let sampled = Sampled::new(&record);
        let names = |node: &str, zone: &str| (node.to_owned(), zone.to_owned());
        assert_eq!(sampled.zones(), [names("1", "DMA32"), names("0", "Normal")]);
        let free = |node, zone| sampled.free_in_zone(node, zone).unwrap()[0].unwrap();
        assert_eq!(free("1", "DMA32"), (3.0 + 2.0 * 512.0) * 4096.0);
        assert_eq!(free("0", "Normal"), 8.0 * 4096.0);
    }

    #[test]
    fn shares_of_cpu_time_are_of_what_was_recorded() {
        let record = record(3);
        let row = cpu_time(&[Some(Sampled::new(&record)), None]);
        let shares: Vec<(&str, f64)> = row.of_run[0]
            .iter()
            .map(|line| (line.name.as_str(), line.values.as_ref().unwrap().iter().next().unwrap()))
            .collect();
        assert_eq!(shares, [("user", 25.0), ("idle", 75.0)]);
    }

    #[test]
    fn memory_by_use_adds_up_to_all_of_it_whichever_counters_a_kernel_has() {
        let meminfo = [
            ("SUnreclaim", 40),
            ("SReclaimable", 80),
            ("KernelStack", 16),
            ("PageTables", 24),
            ("Buffers", 8),
            ("Cached", 400),
            ("AnonPages", 5000),
            ("nr_anon_transparent_hugepages", 2),
            ("nr_free_pages", 500),
        ];
        let vmstat = [
            ("nr_slab_unreclaimable", 10),
            ("nr_slab_reclaimable", 20),
            ("nr_file_pages", 105),
            ("nr_swapcached", 3),
            ("nr_anon_pages", 1250),
            ("nr_anon_transparent_hugepages", 2),
            ("nr_free_pages", 500),
        ];
        let kib = |columns: &[(&str, u64)]| {
            let mut record = Record::new(Inputs::default());
            record.after.meminfo.insert("MemTotal".to_owned(), 10_000);
            record.timeline.push(0, columns.iter().copied());
            let sampled = [Some(Sampled::new(&record))];
            let row = memory_by_use(&sampled);
            let top = stacked(&row.of_run[0]).pop().unwrap()[0].unwrap();
            assert_eq!((top, row.heights().len()), (10_000.0 * 1024.0, row.of_run[0].len()));
            let lines = row.of_run[0].iter().map(|line| {
                (line.name.clone(), line.values.as_ref().unwrap().iter().next().unwrap() / 1024.0)
            });
            lines.collect::<Vec<_>>()
        };
        let part = |name: &str, kib| (name.to_owned(), kib);
        let mut wanted = vec![
            part("slab, unreclaimable", 40.0),
            part("stacks, page tables", 40.0),
            part("slab, reclaimable", 80.0),
            part("anon, huge pages", 4096.0),
            part("files", 408.0),
            part("anon, base pages", 904.0),
            part("everything else", 2432.0),
            part("free", 2000.0),
        ];
        assert_eq!(kib(&meminfo), wanted);
        // Without stacks and page tables, those are in the rest.
        wanted.remove(1);
        wanted[5].1 += 40.0;
        assert_eq!(kib(&vmstat), wanted);
    }

    #[test]
    fn a_stack_breaks_above_a_missing_sample_and_nowhere_else() {
        let line = |values| Line { name: String::new(), class: "", values };
        let each = |values: [Option<f64>; 2]| line(Some(Values::Each(values.into())));
        let lines = [
            each([Some(1.0), Some(2.0)]),
            line(None),
            each([None, Some(3.0)]),
            each([Some(5.0), Some(5.0)]),
        ];
        let sums = stacked(&lines);
        assert_eq!(sums[0], [Some(1.0), Some(2.0)]);
        assert_eq!(sums[1], sums[0]);
        assert_eq!(sums[2], [None, Some(5.0)]);
        assert_eq!(sums[3], [None, Some(10.0)]);
    }

    #[test]
    fn what_is_zero_and_what_is_missing_are_told_apart() {
        let record = record(3);
        let drawn = timelines("t", &[Some(&record)], &["a".to_owned()]);
        let of = |what: &str| drawn.remarks.iter().find(|r| r.starts_with(what)).unwrap().clone();
        assert!(of("Not recorded").contains("swap traffic"));
        assert!(!of("Not recorded").contains("pages scanned"));
        let titles: Vec<&str> = drawn.main.iter().map(|row| row.title.as_str()).collect();
        assert_eq!(
            titles,
            ["Free memory", "Free memory near the watermarks", "Pages scanned", "Stalls"]
        );
    }
}
