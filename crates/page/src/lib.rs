//! A comparison as one HTML file.
//!
//! [`render`] turns groups of records into a page that needs nothing else: style, script and pictures
//! stand in the file, and it asks for nothing over the network. Everything is readable without the
//! script, which adds a choice of the thread step that is shown, and values under the pointer.
//!
//! The timelines are drawn from these columns of a record's timeline, where they are there; see
//! [`highorder_record::timeline`] for units:
//!
//! | picture | columns |
//! | --- | --- |
//! | free memory | `nr_free_pages` or `MemFree`; `watermark_high/NODE/ZONE`, `watermark_low/NODE/ZONE`, `watermark_min/NODE/ZONE`, or else the marks of the state before the run |
//! | memory by use | `nr_free_pages` or `MemFree`; `SUnreclaim`, `SReclaimable`, `KernelStack`, `PageTables`, `Buffers`, `Cached`, `AnonPages` or, of vmstat, `nr_slab_unreclaimable`, `nr_slab_reclaimable`, `nr_file_pages`, `nr_swapcached`, `nr_anon_pages`; `nr_anon_transparent_hugepages`; `MemTotal` of the state before the run |
//! | free memory by zone | `free_pages/NODE/ZONE` or `buddyinfo NODE ZONE ORDER`; the zone's watermarks |
//! | pages scanned | `pgscan_kswapd`, `pgscan_direct`, `pgscan_khugepaged` |
//! | pages reclaimed | `pgsteal_kswapd`, `pgsteal_direct`, `pgsteal_khugepaged` |
//! | swap traffic | `pswpout`, `pswpin` |
//! | stalls | `allocstall`, `compact_stall`, `pgscan_direct_throttle` |
//! | major faults, faults | `pgmajfault`, `pgfault` |
//! | swap in use | `SwapTotal`, `SwapFree` |
//! | user memory | `nr_active_anon`, `nr_inactive_anon`, `nr_active_file`, `nr_inactive_file` or their like as `nr_zone_…`; `nr_anon_pages` |
//! | disk traffic | `pgpgout`, `pgpgin` |
//! | huge page faults | `thp_fault_alloc`, `thp_fault_fallback` |
//! | CPU time | `cpu_user_ns`, `cpu_system_ns`, `cpu_iowait_ns`, `cpu_idle_ns`, `cpu_steal_ns` |
//! | tasks | `procs_running`, `procs_blocked` |
//!
//! Where a kernel counts by zone (`pgscan_direct_normal`, `allocstall_movable`), zones are summed. A rate
//! whose counter was not sampled is zero if the counter did not move over the run.
//!
//! Equal pages give equal bytes.

pub mod document;
mod heading;
mod latency;
mod memory;
mod plot;
pub mod reproduction;
mod tables;
mod threads;
mod timeline;

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use highorder_record::killed::{KILLED_MARK, KILLED_MEANS};
use highorder_record::verdict::{self, Paragraph};
use highorder_record::{
    Comparison, Form, Group, Identity, Record, compare, end_state, time_lines, vmstat_listing,
};
use highorder_report::palette::{Rgb, SERIES, UseClass};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior};
use serde::Serialize;

use heading::{Difference, Fact, Given, Variant};
use tables::{TableView, Tally, table};

/// Rows of a vmstat(8) listing, about: the listing is there to be read.
const LISTING_ROWS: u64 = 40;

/// What a page shows.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// The heading.
    pub title: &'a str,
    /// The command that repeats it; empty if there is none.
    pub command: &'a str,
    /// The variants; the first is what the others are compared with.
    pub groups: &'a [Group<'a>],
    /// Whose reports the tables follow.
    pub form: Form,
    /// Pictures of memory, at a moment or over time; only those of [`shown_runs`], and of each run each once.
    pub maps: &'a [Map<'a>],
}

/// A picture of what every page of memory holds.
#[derive(Clone, Copy, Debug)]
pub struct Map<'a> {
    /// The run whose memory it is.
    pub run: Identity,
    /// What is seen, for those who do not see it.
    pub description: &'a str,
    /// The picture itself.
    pub image: Image<'a>,
}

impl Map<'_> {
    fn is_of_same(&self, other: &Map<'_>) -> bool {
        self.run == other.run && self.description == other.description
    }
}

/// A picture.
#[derive(Clone, Copy, Debug)]
pub enum Image<'a> {
    /// The text of an SVG file.
    Svg(&'a str),
    /// The bytes of a PNG file.
    Png(&'a [u8]),
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// Nothing to show.
    #[error("a comparison of no runs, expected at least one variant with at least one run")]
    NoRuns,
    /// A map that belongs to nothing on the page.
    #[error("a map of run {0}, expected only maps of runs whose timeline is shown")]
    StrayMap(Identity),
    /// A map that is there twice.
    #[error("the same map of run {0} twice, expected once")]
    MapTwice(Identity),
    /// The template could not be filled: a fault of this crate.
    #[error("the page's template: {0}")]
    Template(#[from] minijinja::Error),
}

/// One run of each variant, of those with as many threads.
struct Step<'a> {
    /// What the choice calls it.
    name: String,
    runs: Vec<Option<&'a Record>>,
    /// Of how many runs each is one.
    counts: Vec<usize>,
}

/// Returns the runs whose timelines and end states the page shows: of each variant and number of
/// threads the one with the first iteration and, of those, the lowest seed.
#[must_use]
pub fn shown_runs<'a>(groups: &[Group<'a>]) -> Vec<&'a Record> {
    steps(groups).iter().flat_map(|step| step.runs.iter().flatten().copied()).collect()
}

fn steps<'a>(groups: &[Group<'a>]) -> Vec<Step<'a>> {
    let threads = |record: &Record| record.inputs.workload.values.get("threads").cloned();
    let mut names: Vec<Option<String>> = Vec::new();
    for record in groups.iter().flat_map(|group| &group.records) {
        let name = threads(record);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    // Counts by their number, whatever else there is behind them.
    names.sort_by_key(|name| {
        let count = name.as_ref().and_then(|name| name.parse::<u64>().ok());
        (count.is_none(), count, name.clone())
    });
    let step = |name: Option<String>| {
        let of_step = |group: &Group<'a>| -> Vec<&'a Record> {
            group.records.iter().copied().filter(|record| threads(record) == name).collect()
        };
        let all: Vec<Vec<&Record>> = groups.iter().map(of_step).collect();
        let first = |records: &Vec<&'a Record>| {
            let key = |record: &&&Record| (record.inputs.iteration, record.inputs.seed);
            records.iter().min_by_key(key).copied()
        };
        Step {
            runs: all.iter().map(first).collect(),
            counts: all.iter().map(Vec::len).collect(),
            name: match name.as_deref() {
                Some("1") => "1 thread".to_owned(),
                Some(threads) => format!("{threads} threads"),
                None => "one run".to_owned(),
            },
        }
    };
    names.into_iter().map(step).collect()
}

/// Draws the page.
///
/// # Errors
/// If there is no run at all, or a map belongs to none of [`shown_runs`].
pub fn render(page: &Page<'_>) -> Result<String, PageError> {
    if page.groups.iter().all(|group| group.records.is_empty()) {
        return Err(PageError::NoRuns);
    }
    let steps = steps(page.groups);
    let shown: Vec<Identity> =
        steps.iter().flat_map(|step| step.runs.iter().flatten()).map(|r| r.identity()).collect();
    for (i, map) in page.maps.iter().enumerate() {
        if !shown.contains(&map.run) {
            return Err(PageError::StrayMap(map.run));
        }
        if page.maps[..i].iter().any(|other| other.is_of_same(map)) {
            return Err(PageError::MapTwice(map.run));
        }
    }
    let view = View::new(page, &steps);
    Ok(environment()?.get_template("page.html")?.render(Serde(&view))?)
}

/// The template engine: everything is escaped but what the template itself calls safe, and a name that
/// the view does not have is an error.
fn environment() -> Result<Environment<'static>, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_formatter(|out, _, value| {
        if value.is_safe() {
            return out.write_str(value.as_str().unwrap_or_default()).map_err(write_error);
        }
        out.write_str(&escaped(&value.to_string())).map_err(write_error)
    });
    environment.add_template("base.html", include_str!("base.html"))?;
    environment.add_template("page.html", include_str!("page.html"))?;
    environment.add_template("plots.html", include_str!("plots.html"))?;
    environment.add_template("document.html", include_str!("document.html"))?;
    environment.add_template("reproduction.html", include_str!("reproduction.html"))?;
    Ok(environment)
}

fn write_error(error: std::fmt::Error) -> minijinja::Error {
    minijinja::Error::new(ErrorKind::WriteFailure, "cannot write").with_source(error)
}

/// Text as it stands in HTML, within an element or a quoted attribute.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // HTML has no way to write other control characters.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// The class of a variant's colour; beyond the sixth they come again, dashed.
fn series_class(variant: usize) -> String {
    let colour = variant % SERIES.len();
    if variant < SERIES.len() { format!("s{colour}") } else { format!("s{colour} again") }
}

/// Everything that the template prints.
#[derive(Serialize)]
struct View {
    kind: &'static str,
    title: String,
    command: String,
    style: String,
    script: &'static str,
    facts: Vec<Fact>,
    variants: Vec<Variant>,
    differences: Vec<Difference>,
    given: Given,
    verdict: Vec<Paragraph>,
    killed_mark: char,
    killed_means: &'static str,
    labels: Vec<String>,
    tallies: Vec<Tally>,
    metrics: TableView,
    over_threads: threads::OverThreads,
    warning: Option<String>,
    duration: TableView,
    vmstat: TableView,
    memory: TableView,
    counters: TableView,
    latencies: TableView,
    classes: Vec<latency::ClassPictures>,
    steps: Vec<StepView>,
    notes: Vec<Note>,
}

/// What the page shows of one thread step.
#[derive(Serialize)]
struct StepView {
    id: String,
    name: String,
    columns: Vec<ColumnView>,
    timelines: timeline::Timelines,
    has_listings: bool,
    has_maps: bool,
    free_blocks: memory::FreeBlocks,
    free_numbers: TableView,
}

/// One run of a step.
#[derive(Serialize)]
struct ColumnView {
    label: String,
    class: String,
    /// Which run it is; empty if there is none.
    run: String,
    /// As vmstat(8) and time(1) show it.
    listing: String,
    time: String,
    maps: Vec<MapView>,
}

/// An embedded picture.
#[derive(Serialize)]
struct MapView {
    description: String,
    /// The address that holds the picture itself.
    data: String,
}

/// A note and the runs that carry it.
#[derive(Serialize)]
struct Note {
    text: String,
    runs: String,
}

impl View {
    fn new(page: &Page<'_>, steps: &[Step<'_>]) -> Self {
        let groups = page.groups;
        let metrics = compare::metrics("", groups);
        let metrics = table("metrics", "Metrics", "", &metrics);
        let has_huge = !metrics.rows.iter().any(|row| row.metric.starts_with("Percentage huge"));
        let huge = compare::percentage_huge("", groups);
        // However long, it is what one came for.
        let mut metrics = TableView { is_open: true, ..metrics };
        if has_huge {
            // Counted rather than reported: one value for each variant, so nothing to test.
            let mut huge = table("huge", "", "", &huge);
            if let Some(first) = huge.rows.first_mut() {
                first.is_first = true;
            }
            metrics.rows.append(&mut huge.rows);
        }
        let pooled = latency::pooled(groups);
        let counted = all_counters(groups);
        let sums = "Sums over the runs of each variant.";
        let views = steps.iter().enumerate().map(|(i, step)| StepView::new(page, i, step));
        Self {
            kind: "comparison",
            title: page.title.to_owned(),
            command: page.command.to_owned(),
            style: style(),
            script: include_str!("script.js"),
            facts: heading::facts(groups),
            variants: heading::variants(groups),
            differences: heading::differences(groups),
            given: heading::given(groups),
            verdict: verdict::find(groups, false).text,
            killed_mark: KILLED_MARK,
            killed_means: KILLED_MEANS,
            labels: groups.iter().map(|group| group.label.clone()).collect(),
            tallies: match metrics.has_noise {
                true => tables::tallies(&metrics, series_class),
                false => Vec::new(),
            },
            over_threads: threads::over_threads(groups),
            warning: compare::unequal_runs(groups),
            duration: table(
                "duration",
                "Duration",
                sums,
                &without_unknown(compare::duration("", groups, page.form)),
            ),
            vmstat: table(
                "vmstat",
                "Reclaim and compaction",
                sums,
                &compare::vmstat("", groups, page.form),
            ),
            memory: table(
                "memory",
                "Memory",
                "Before and after the workload; means over the runs of each variant.",
                &end_state::memory("", groups),
            ),
            counters: TableView {
                is_open: false,
                ..table("counters", "All counters that moved", sums, &counted)
            },
            latencies: table(
                "percentiles",
                "Percentiles",
                "All runs of each variant together; percentiles to three digits.",
                &latency::percentiles(groups, &pooled),
            ),
            classes: latency::pictures(groups, &pooled),
            steps: views.collect(),
            notes: notes(groups),
            metrics,
        }
    }
}

fn without_unknown(mut comparison: Comparison) -> Comparison {
    comparison.rows.retain(|row| row.cells.iter().any(|cell| cell.value.is_some()));
    comparison
}

/// Every counter of `/proc/vmstat` that rose or fell in some run, by name.
fn all_counters(groups: &[Group<'_>]) -> Comparison {
    let records = || groups.iter().flat_map(|group| group.records.iter().copied());
    let mut names: Vec<&str> = records()
        .flat_map(|record| record.before.counters.keys().chain(record.after.counters.keys()))
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| records().any(|record| record.delta(name).is_some_and(|delta| delta != 0)));
    compare::counters("", groups, &names)
}

/// Each note once, with the variants and steps that have it.
fn notes(groups: &[Group<'_>]) -> Vec<Note> {
    let mut found: Vec<(&str, Vec<(&str, usize)>)> = Vec::new();
    for group in groups {
        for note in group.records.iter().flat_map(|record| &record.notes) {
            let at = found.iter().position(|(text, _)| text == note).unwrap_or_else(|| {
                found.push((note, Vec::new()));
                found.len() - 1
            });
            match found[at].1.last_mut() {
                Some((label, count)) if *label == group.label => *count += 1,
                _ => found[at].1.push((&group.label, 1)),
            }
        }
    }
    let note = |(text, runs): (&str, Vec<(&str, usize)>)| {
        let runs = runs.iter().map(|(label, count)| match count {
            1 => format!("{label}, 1 run"),
            n => format!("{label}, {n} runs"),
        });
        Note { text: text.to_owned(), runs: runs.collect::<Vec<_>>().join("; ") }
    };
    found.into_iter().map(note).collect()
}

impl StepView {
    fn new(page: &Page<'_>, i: usize, step: &Step<'_>) -> Self {
        let labels: Vec<String> = page.groups.iter().map(|group| group.label.clone()).collect();
        let column = |(variant, label): (usize, &String)| {
            let Some(record) = step.runs[variant] else {
                return ColumnView {
                    label: label.clone(),
                    class: series_class(variant),
                    run: String::new(),
                    listing: String::new(),
                    time: String::new(),
                    maps: Vec::new(),
                };
            };
            let inputs = &record.inputs;
            let identity = record.identity();
            let maps = page.maps.iter().filter(|map| map.run == identity);
            ColumnView {
                label: label.clone(),
                class: series_class(variant),
                run: match step.counts[variant] {
                    1 => format!("seed {}", inputs.seed),
                    n => format!(
                        "seed {}, iteration {}; 1 of {n} runs",
                        inputs.seed, inputs.iteration
                    ),
                },
                listing: listing(record),
                time: time_lines(record),
                maps: maps
                    .map(|map| MapView {
                        description: map.description.to_owned(),
                        data: map.image.data(),
                    })
                    .collect(),
            }
        };
        let id = format!("step-{i}");
        let numbers = memory::numbers(page.groups, &step.runs);
        let columns: Vec<ColumnView> = labels.iter().enumerate().map(column).collect();
        Self {
            name: step.name.clone(),
            timelines: timeline::timelines(&format!("{id}-time"), &step.runs, &labels),
            has_listings: columns.iter().any(|column| !column.run.is_empty()),
            has_maps: columns.iter().any(|column| !column.maps.is_empty()),
            columns,
            free_blocks: memory::free_blocks(&format!("{id}-memory"), page.groups, &step.runs),
            free_numbers: TableView {
                is_open: false,
                ..table(&format!("{id}-blocks"), "Free blocks in numbers", "", &numbers)
            },
            id,
        }
    }
}

/// The timeline as vmstat(8) would have listed it; empty if there is none.
fn listing(record: &Record) -> String {
    let Some(last) = record.timeline.time_ns.last() else { return String::new() };
    vmstat_listing(record, last / LISTING_ROWS).text()
}

impl Image<'_> {
    /// An address that holds the picture itself. As an image, an SVG runs no script, loads nothing, and
    /// shares neither names nor style with the page.
    fn data(self) -> String {
        match self {
            Self::Svg(text) => format!("data:image/svg+xml;base64,{}", BASE64.encode(text)),
            Self::Png(bytes) => format!("data:image/png;base64,{}", BASE64.encode(bytes)),
        }
    }
}

/// The colours of memory by use: those of the map.
const USES: [(&str, UseClass); 8] = [
    ("slab", UseClass::Slab),
    ("kernel", UseClass::Kernel),
    ("reclaimable", UseClass::SlabReclaimable),
    ("huge", UseClass::Huge),
    ("file", UseClass::File),
    ("anon", UseClass::Anon),
    ("rest", UseClass::Unknown),
    ("free", UseClass::FreeMiddle),
];

/// A colour of [`USES`] on dark ground: light ones would glare there, dark ones would drown.
fn use_on_dark(class: UseClass) -> Rgb {
    let colour = class.swatch().colour;
    match class {
        UseClass::FreeMiddle => colour.mix(Rgb(0, 0, 0), 0.4),
        UseClass::Unknown => colour.mix(Rgb(0, 0, 0), 0.6),
        UseClass::Kernel | UseClass::Huge => colour.mix(Rgb(0xff, 0xff, 0xff), 0.1),
        _ => colour,
    }
}

/// The style sheet, with the colours of the variants and of memory by use.
fn style() -> String {
    let names = |colour: &dyn Fn(Rgb) -> Rgb| {
        let mut names = String::new();
        for (i, series) in SERIES.iter().enumerate() {
            let _ = write!(names, "--s{i}:{};", colour(*series));
        }
        names
    };
    // On dark ground the same hues, a good part of the way to white: lighter than the ground by as
    // much as they are darker than paper.
    let dark = |colour: Rgb| colour.mix(Rgb(0xff, 0xff, 0xff), 0.38);
    let uses = |colour: &dyn Fn(UseClass) -> Rgb| {
        let uses = USES.iter().map(|(name, class)| format!("--u-{name}:{};", colour(*class)));
        uses.collect::<String>()
    };
    include_str!("style.css")
        .replace("/*series*/", &names(&|colour| colour))
        .replace("/*series, dark*/", &names(&dark))
        .replace("/*uses*/", &uses(&|class| class.swatch().colour))
        .replace("/*uses, dark*/", &uses(&use_on_dark))
}

#[cfg(test)]
mod tests {
    use highorder_record::Inputs;

    use super::*;

    fn record(threads: &str, seed: u64, iteration: u32) -> Record {
        let mut inputs = Inputs { seed, iteration, ..Inputs::default() };
        inputs.workload.values.insert("threads".into(), threads.into());
        Record::new(inputs)
    }

    #[test]
    fn a_step_shows_the_first_run_of_each_variant_and_steps_come_by_number() {
        let first = [record("12", 2, 0), record("12", 1, 1), record("4", 9, 0), record("12", 1, 0)];
        let second = [record("4", 3, 0)];
        let groups = [
            Group { label: "a".into(), records: first.iter().collect() },
            Group { label: "b".into(), records: second.iter().collect() },
        ];
        let steps = steps(&groups);
        let names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ["4 threads", "12 threads"]);
        let seeds = |step: &Step<'_>| -> Vec<Option<(u64, u32)>> {
            step.runs.iter().map(|run| run.map(|r| (r.inputs.seed, r.inputs.iteration))).collect()
        };
        assert_eq!(seeds(&steps[0]), [Some((9, 0)), Some((3, 0))]);
        assert_eq!(seeds(&steps[1]), [Some((1, 0)), None]);
        assert_eq!(steps[1].counts, [3, 0]);
    }

    #[test]
    fn uses_of_memory_are_told_apart_on_light_and_on_dark_ground_by_all_eyes() {
        let of = |colour: &dyn Fn(UseClass) -> Rgb, paper: Rgb| {
            let mut colours: Vec<Rgb> = USES.iter().map(|(_, class)| colour(*class)).collect();
            colours.push(paper);
            for (i, a) in colours.iter().enumerate() {
                for b in &colours[i + 1..] {
                    let difference = a.least_difference(*b);
                    assert!(difference >= 10.0, "{a} and {b}: {difference:.1}");
                }
            }
        };
        // The grounds are `--panel` and `--paper` of the style sheet.
        of(&|class| class.swatch().colour, Rgb(0xfd, 0xfc, 0xfa));
        of(&use_on_dark, Rgb(0x14, 0x17, 0x1b));
        let style = style();
        for (name, _) in USES {
            assert_eq!(style.matches(&format!("--u-{name}:")).count(), 2, "{name}");
            assert!(style.contains(&format!("path.u-{name} {{ color: var(--u-{name}); }}")));
        }
    }

    #[test]
    fn control_characters_and_markup_are_escaped() {
        assert_eq!(
            escaped("<a href=\"x\">'&\u{1}\n"),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;\u{fffd}\n"
        );
    }

    #[test]
    fn the_same_note_is_told_once_with_its_runs() {
        let mut records = [record("1", 1, 0), record("1", 2, 0), record("1", 3, 0)];
        records.iter_mut().for_each(|record| record.notes.push("sampled".into()));
        records[2].notes.push("late".into());
        let groups = [
            Group { label: "a".into(), records: records[..2].iter().collect() },
            Group { label: "b".into(), records: records[2..].iter().collect() },
        ];
        let found: Vec<(String, String)> =
            notes(&groups).into_iter().map(|note| (note.text, note.runs)).collect();
        let of = |text: &str, runs: &str| (text.to_owned(), runs.to_owned());
        assert_eq!(found, [of("sampled", "a, 2 runs; b, 1 run"), of("late", "b, 1 run")]);
    }

    #[test]
    fn every_variant_has_a_colour_of_its_own_or_a_dash() {
        let classes: Vec<String> = (0..12).map(series_class).collect();
        for (i, class) in classes.iter().enumerate() {
            assert!(!classes[..i].contains(class), "{class}");
        }
    }
}
