//! What is compared of a run: counters, the huge share, success of passes, fragmentation events, free blocks.
//!
//! An error is the distance as a share of the real figure, which is not taken for smaller than the quantity's
//! floor: below it, differences are of no account.

use super::median;
use crate::free_running::{FallbackWay, variation};
use highorder_files::limits;
use highorder_input::InputError;
use highorder_mm::Order;
use highorder_record::{Record, State};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Counters that are compared where both kernels' records have them: name, and the floor below which a
/// difference is not taken for one. Kernels that count one by zone class have the sum of those.
pub const COUNTERS: [(&str, f64); 24] = [
    ("pgfault", PAGES),
    ("pgmajfault", EVENTS),
    ("pgalloc", PAGES),
    ("pgfree", PAGES),
    ("pswpin", PAGES),
    ("pswpout", PAGES),
    ("pgscan_kswapd", PAGES),
    ("pgscan_direct", PAGES),
    ("pgsteal_kswapd", PAGES),
    ("pgsteal_direct", PAGES),
    ("pgrefill", PAGES),
    ("pgactivate", PAGES),
    ("pgdeactivate", PAGES),
    ("workingset_refault_anon", PAGES),
    ("allocstall", EVENTS),
    ("pageoutrun", EVENTS),
    ("swap_ra", PAGES),
    ("numa_miss", PAGES),
    ("thp_fault_alloc", EVENTS),
    ("thp_fault_fallback", EVENTS),
    ("compact_stall", EVENTS),
    ("compact_migrate_scanned", PAGES),
    ("pgmigrate_success", PAGES),
    // Before 3.8 (397487db696c): of all that moves pages, compaction alone counts them.
    ("compact_pages_moved", PAGES),
];

/// Floor of counters in pages: 2 MiB, about what a guest's own programs move in the time of a run.
const PAGES: f64 = 512.0;
/// Floor of counters in events.
const EVENTS: f64 = 16.0;
/// Floor of the huge share: three runs of one recorded case (`612-usemem80-stream-madvise` and its
/// repetitions) lie 0.11 apart.
const HUGE_SHARE: f64 = 0.1;
/// Floor of a pass's success: the first passes of two runs of one recorded case (`35-highalloc` and its repetition)
/// lie 0.24 apart, the second ones 0.26, the last ones 0.02.
const SUCCESS: f64 = 0.1;
/// Floor of fallbacks: the same three runs have 11, 18 and 13.
const FALLBACKS: f64 = 8.0;
/// Two distributions lie at most this far apart, and a state no way from itself: their distance is the error.
const APART: f64 = 1.0;

/// What kind of figure a row compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// How far a counter rose.
    Counter,
    /// The share of anonymous memory that lay in huge pages at the workload's end, 0 to 1.
    HugeShare,
    /// The share of what a pass asked for that it was given, 0 to 1.
    Success,
    /// Requests served from another type's memory (`mm_page_alloc_extfrag`).
    Fallbacks,
    /// How far the free blocks after the run are from the real ones, 0 to 1; the real figure is 0.
    Distance,
}

/// How the names of passes' success end, after the pass.
const SUCCESS_ENDING: &str = ".pct";
/// Names of the rows that are no counters.
pub const HUGE_SHARE_NAME: &str = "huge share";
/// All fallbacks.
pub const FALLBACKS_NAME: &str = "fallbacks";
/// Those that mix types within a pageblock.
pub const FRAGMENTING_NAME: &str = "fragmenting fallbacks";
/// Free blocks over zones, orders and types.
pub const BLOCKS_NAME: &str = "free blocks apart";
/// The same by the pages in them.
pub const FREE_PAGES_NAME: &str = "free pages apart";

/// One figure of one case.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What kind it is.
    pub quantity: Quantity,
    /// The counter, or what else it is.
    pub name: String,
    /// Of the real kernel.
    pub real: f64,
    /// Of the model: the median of its runs.
    pub model: f64,
    /// The least and the most of the model's runs.
    pub range: (f64, f64),
    /// What the real figure is taken for if it is smaller.
    pub floor: f64,
    /// Their distance as a share of the real figure, or of the floor if that is larger.
    pub relative_error: f64,
}

impl Row {
    pub(super) fn new(quantity: Quantity, name: &str, real: f64, model: f64, floor: f64) -> Self {
        Self::of_runs(quantity, name, real, &[model], floor)
    }

    /// A figure of several runs of the model.
    fn of_runs(quantity: Quantity, name: &str, real: f64, models: &[f64], floor: f64) -> Self {
        let mut models = models.to_vec();
        let model = median(&mut models).unwrap_or(0.0);
        let range = (models.first().map_or(0.0, |&it| it), models.last().map_or(0.0, |&it| it));
        let relative_error = relative_error(real, model, floor);
        Self { quantity, name: name.to_owned(), real, model, range, floor, relative_error }
    }

    /// Whether there is nothing on either side. States lie no way apart if they are alike, and that is something.
    fn is_of_nothing(&self) -> bool {
        let nothing = self.real == 0.0 && self.range == (0.0, 0.0);
        nothing && self.quantity != Quantity::Distance
    }
}

/// The relative error of a model's figure, beside a real one that is not taken for smaller than `floor`.
#[must_use]
pub fn relative_error(real: f64, model: f64, floor: f64) -> f64 {
    (model - real).abs() / real.abs().max(floor)
}

/// Fallbacks during a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fallbacks {
    /// All of them.
    pub all: u64,
    /// Those that mix types within a pageblock.
    pub fragmenting: u64,
}

impl Fallbacks {
    fn add(&mut self, found: Order, pageblock: Order, change_ownership: bool, nr: u64) {
        self.all += nr;
        if FallbackWay::of(found, pageblock, change_ownership).is_fragmenting() {
            self.fragmenting += nr;
        }
    }

    /// Those of a model's run, what prepared it apart.
    #[must_use]
    pub fn of(record: &Record) -> Self {
        let nr =
            |counter: &str| record.delta(counter).and_then(|nr| nr.try_into().ok()).unwrap_or(0);
        let types = ["unmovable", "movable", "reclaimable"];
        let fragmenting = types.iter().map(|of| nr(&format!("mm_page_alloc_extfrag_{of}")));
        Self { all: nr("mm_page_alloc_extfrag"), fragmenting: fragmenting.sum() }
    }

    /// Reads a case's `extfrag.json`: events by what they were, counted. None if there is no such file.
    ///
    /// # Errors
    /// The file and line of what is malformed.
    pub fn read(path: &Path, pageblock: Order) -> Result<Option<Self>, InputError> {
        #[derive(Deserialize)]
        struct Counted {
            fallback_order: u8,
            change_ownership: u8,
            count: u64,
        }
        let text = match highorder_files::read_text(path, limits::NOTES) {
            Err(error) if error.is_not_found() => return Ok(None),
            text => text.map_err(|error| InputError::file(path, error))?,
        };
        let rows: Vec<Counted> = serde_json::from_str(&text)
            .map_err(|e| InputError::line(path, e.line(), e.to_string()))?;
        let mut counted = Self::default();
        for row in rows {
            let found = Order(row.fallback_order);
            counted.add(found, pageblock, row.change_ownership != 0, row.count);
        }
        Ok(Some(counted))
    }
}

/// Every row that has something of a real run's record and those of the model's runs of the same work: of each figure
/// the median. `recorded` are the real run's fallbacks, if they were.
pub(super) fn compare(real: &Record, models: &[&Record], recorded: Option<Fallbacks>) -> Vec<Row> {
    let runs: Vec<Vec<Row>> =
        models.iter().map(|model| compare_run(real, model, recorded)).collect();
    let together = |row: &Row| {
        let same = runs.iter().flatten().filter(|other| other.name == row.name);
        let models: Vec<f64> = same.map(|row| row.model).collect();
        Row::of_runs(row.quantity, &row.name, row.real, &models, row.floor)
    };
    let rows = runs.first().into_iter().flatten().map(together);
    rows.filter(|row| !row.is_of_nothing()).collect()
}

/// All rows of two records of the same work.
fn compare_run(real: &Record, model: &Record, recorded: Option<Fallbacks>) -> Vec<Row> {
    let row = |quantity, name: &str, pair: Option<(f64, f64)>, floor| {
        pair.map(|(real, model)| Row::new(quantity, name, real, model, floor))
    };
    let mut rows: Vec<Row> = COUNTERS
        .iter()
        .filter_map(|&(counter, floor)| {
            let pair = rise(real, counter).zip(rise(model, counter));
            row(Quantity::Counter, counter, pair, floor)
        })
        .collect();
    let share = |record: &Record| record.held.as_ref().and_then(huge_share);
    let pair = share(real).zip(share(model));
    rows.extend(row(Quantity::HugeShare, HUGE_SHARE_NAME, pair, HUGE_SHARE));
    for (name, real) in successes(real) {
        let of_model = successes(model).into_iter().find(|(other, _)| *other == name);
        let pair = of_model.map(|(_, model)| (real, model));
        rows.extend(row(Quantity::Success, name, pair, SUCCESS));
    }
    let counted = |of: fn(&Fallbacks) -> u64| {
        recorded.map(|real| (of(&real) as f64, of(&Fallbacks::of(model)) as f64))
    };
    for (name, pair) in
        [(FALLBACKS_NAME, counted(|f| f.all)), (FRAGMENTING_NAME, counted(|f| f.fragmenting))]
    {
        rows.extend(row(Quantity::Fallbacks, name, pair, FALLBACKS));
    }
    let (real, model) = free_blocks(&real.after, &model.after);
    if !real.is_empty() && !model.is_empty() {
        let blocks = variation(&real, &model, |_| 1);
        let pages = variation(&real, &model, |&(.., order, _)| 1 << order);
        for (name, apart) in [(BLOCKS_NAME, blocks), (FREE_PAGES_NAME, pages)] {
            rows.push(Row::new(Quantity::Distance, name, 0.0, apart, APART));
        }
    }
    rows
}

/// How far a counter rose, under whichever names the kernel has it: its own, those of zone classes (allocations
/// always, reclaim before 4.8, stalls since 4.10), or those of before 3.4, which count all that was stolen by zone
/// and kswapd's part of it once (904249aa6834).
fn rise(record: &Record, counter: &str) -> Option<f64> {
    let plain = |name: &str| record.delta(name).map(|rise| rise as f64);
    plain(counter).or_else(|| rise_by_zone(record, counter)).or_else(|| match counter {
        "pgsteal_kswapd" => plain("kswapd_steal"),
        "pgsteal_direct" => Some(rise_by_zone(record, "pgsteal")? - plain("kswapd_steal")?),
        _ => None,
    })
}

/// The sum over the zone classes that the kernel counts this by.
fn rise_by_zone(record: &Record, counter: &str) -> Option<f64> {
    let rises: Vec<i64> = ZONE_CLASSES
        .iter()
        .filter_map(|class| record.delta(&format!("{counter}_{class}")))
        .collect();
    if rises.is_empty() { None } else { Some(rises.iter().sum::<i64>() as f64) }
}

/// As /proc/vmstat's names end (`TEXTS_FOR_ZONES`, mm/vmstat.c).
const ZONE_CLASSES: [&str; 6] = ["dma", "dma32", "normal", "highmem", "movable", "device"];

/// Passes by name, and the share of what each asked for that it was given.
fn successes(record: &Record) -> Vec<(&str, f64)> {
    let metrics = record.metrics.iter().filter(|metric| metric.name.ends_with(SUCCESS_ENDING));
    metrics
        .filter_map(|metric| Some((metric.name.as_str(), metric.samples.first()? / 100.0)))
        .collect()
}

/// The share of anonymous memory that lies in huge pages, by `/proc/meminfo` or else `/proc/vmstat`.
fn huge_share(state: &State) -> Option<f64> {
    let of = |fields: &BTreeMap<String, u64>, huge: &str, all: &str, each: u64| {
        let (huge, all) = (*fields.get(huge)? * each, *fields.get(all)?);
        (all > 0).then(|| huge as f64 / all as f64)
    };
    of(&state.meminfo, "AnonHugePages", "AnonPages", 1).or_else(|| {
        // Huge pages beside base pages: mm/vmstat.c (`vmstat_item_print_in_thp`).
        of(&state.counters, "nr_anon_transparent_hugepages", "nr_anon_pages", HUGE_PAGES)
    })
}

/// Base pages of a huge page on x86-64.
const HUGE_PAGES: u64 = 512;

/// Where free blocks lie: node, zone, order, and type if both sides tell types.
type Place = (u32, String, u8, String);

fn free_blocks(a: &State, b: &State) -> (BTreeMap<Place, u64>, BTreeMap<Place, u64>) {
    let tells =
        |state: &State| state.zones.iter().any(|zone| !zone.free_blocks_by_migratetype.is_empty());
    let by_type = tells(a) && tells(b);
    let of = |state: &State| {
        let mut places = BTreeMap::new();
        let mut put = |node: u32, zone: &str, migratetype: &str, counts: &[u64]| {
            for (order, &nr) in (0..).zip(counts).filter(|(_, nr)| **nr > 0) {
                places.insert((node, zone.to_owned(), order, migratetype.to_owned()), nr);
            }
        };
        for zone in &state.zones {
            if by_type {
                for (migratetype, counts) in &zone.free_blocks_by_migratetype {
                    put(zone.node, &zone.zone, migratetype, counts);
                }
            } else {
                put(zone.node, &zone.zone, "", &zone.free_blocks);
            }
        }
        places
    };
    (of(a), of(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use highorder_record::{Better, Inputs, Metric};

    #[test]
    fn an_error_is_relative_to_the_real_figure_or_the_floor() {
        assert_eq!(relative_error(1000.0, 1500.0, 512.0), 0.5);
        assert_eq!(relative_error(0.0, 256.0, 512.0), 0.5);
        assert_eq!(relative_error(-1024.0, 0.0, 512.0), 1.0);
    }

    /// A state with these free blocks of one zone, by type, each order's in order.
    fn state(huge_kib: u64, anon_kib: u64, free: &[(&str, &[u64])]) -> State {
        let mut state = State::default();
        state.meminfo.insert("AnonHugePages".into(), huge_kib);
        state.meminfo.insert("AnonPages".into(), anon_kib);
        let zone = state.zone_mut(0, "DMA32");
        for (migratetype, counts) in free {
            zone.free_blocks_by_migratetype.insert((*migratetype).into(), counts.to_vec());
        }
        state
    }

    fn record(held: State, after: State) -> Record {
        Record { held: Some(held), after, ..Record::new(Inputs::default()) }
    }

    fn row<'a>(rows: &'a [Row], name: &str) -> &'a Row {
        rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("{name}: {rows:?}"))
    }

    #[test]
    fn huge_share_fallbacks_and_free_blocks_are_compared() {
        let real = record(
            state(500, 1000, &[]),
            state(0, 0, &[("Movable", &[6, 1]), ("Unmovable", &[2])]),
        );
        let mut model = record(state(300, 1000, &[]), state(0, 0, &[("Movable", &[2, 1])]));
        model.before.counters.insert("mm_page_alloc_extfrag".into(), 5);
        model.after.counters.insert("mm_page_alloc_extfrag".into(), 7);
        let recorded = Fallbacks { all: 18, fragmenting: 0 };
        let rows = compare(&real, &[&model], Some(recorded));
        let share = row(&rows, HUGE_SHARE_NAME);
        assert_eq!((share.real, share.model), (0.5, 0.3));
        assert!((share.relative_error - 0.4).abs() < 1e-9);
        let fallbacks = row(&rows, FALLBACKS_NAME);
        assert!((fallbacks.relative_error - 16.0 / 18.0).abs() < 1e-9);
        assert!(!rows.iter().any(|row| row.name == FRAGMENTING_NAME), "there were none");
        // Blocks: 6, 1 and 2 of 9 beside 2, 1 and 0 of 3.
        let blocks = row(&rows, BLOCKS_NAME);
        assert_eq!(blocks.real, 0.0);
        assert!((blocks.model - 2.0 / 9.0).abs() < 1e-9, "{}", blocks.model);
        // Pages: 6, 2 and 2 of 10 beside 2, 2 and 0 of 4.
        assert!((row(&rows, FREE_PAGES_NAME).model - 0.3).abs() < 1e-9);
        assert_eq!(row(&rows, FREE_PAGES_NAME).relative_error, row(&rows, FREE_PAGES_NAME).model);
    }

    /// A record whose counters rose by these, from 5 each.
    fn risen(counters: &[(&str, u64)]) -> Record {
        let mut record = record(State::default(), State::default());
        for (name, by) in counters {
            record.before.counters.insert((*name).into(), 5);
            record.after.counters.insert((*name).into(), 5 + by);
        }
        record
    }

    #[test]
    fn counters_by_zone_count_like_those_by_node() {
        let old = risen(&[
            ("pgscan_direct_dma", 1000),
            ("pgscan_direct_dma32", 2000),
            ("pgscan_direct_throttle", 77),
            ("pgsteal_kswapd_dma32", 900),
            ("pgrefill_normal", 600),
            ("allocstall", 40),
        ]);
        let new = risen(&[
            ("pgscan_direct", 3000),
            ("pgscan_direct_throttle", 77),
            ("pgsteal_kswapd", 900),
            ("pgrefill", 600),
            ("allocstall_movable", 30),
            ("allocstall_normal", 10),
        ]);
        let rows = compare(&old, &[&new], None);
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        let expected = ["pgscan_direct", "pgsteal_kswapd", "pgrefill", "allocstall"];
        assert_eq!(names, expected);
        assert!(rows.iter().all(|row| row.relative_error == 0.0), "{rows:?}");
    }

    #[test]
    fn what_kswapd_stole_before_3_4_is_told_from_what_all_stole() {
        let old =
            risen(&[("pgsteal_dma32", 1000), ("pgsteal_normal", 500), ("kswapd_steal", 1400)]);
        assert_eq!(rise(&old, "pgsteal_kswapd"), Some(1400.0));
        assert_eq!(rise(&old, "pgsteal_direct"), Some(100.0));
        assert_eq!(rise(&old, "pgscan_kswapd"), None);
    }

    #[test]
    fn the_success_of_passes_is_compared_by_name() {
        let passes = |names: &[(&str, f64)]| {
            let mut record = risen(&[]);
            for (name, percent) in names {
                let row = Metric::new(*name, "%", Better::Higher);
                record.metrics.push(row.with_samples([*percent]));
            }
            record
        };
        let real = passes(&[("highalloc.pass1.pct", 80.0), ("highalloc.rested.pct", 95.0)]);
        let model = passes(&[("highalloc.pass1.pct", 60.0), ("other.pct", 1.0)]);
        let rows = compare(&real, &[&model], None);
        assert_eq!(rows.len(), 1, "{rows:?}");
        let row = row(&rows, "highalloc.pass1.pct");
        assert_eq!((row.real, row.model), (0.8, 0.6));
        assert!((row.relative_error - 0.25).abs() < 1e-9);
    }

    #[test]
    fn a_small_share_is_measured_by_its_floor_and_none_is_no_row() {
        let with = |huge| record(state(huge, 1000, &[]), State::default());
        let rows = compare(&with(0), &[&with(20)], None);
        assert!((row(&rows, HUGE_SHARE_NAME).relative_error - 0.2).abs() < 1e-9);
        assert_eq!(compare(&with(0), &[&with(0)], None), []);
    }

    #[test]
    fn several_runs_of_the_model_are_compared_by_their_median() {
        let with = |stalls: u64, fallbacks: u64| {
            risen(&[("allocstall", stalls), ("mm_page_alloc_extfrag", fallbacks)])
        };
        let runs = [with(90, 0), with(400, 0), with(120, 7)];
        let models: Vec<&Record> = runs.iter().collect();
        let rows = compare(&with(100, 0), &models, Some(Fallbacks::default()));
        let stalls = row(&rows, "allocstall");
        assert_eq!((stalls.model, stalls.range), (120.0, (90.0, 400.0)));
        assert!((stalls.relative_error - 0.2).abs() < 1e-9);
        // None in two runs, nor in the real one; but one run has some.
        let fallbacks = row(&rows, FALLBACKS_NAME);
        assert_eq!((fallbacks.model, fallbacks.range), (0.0, (0.0, 7.0)));
        let alone = compare(&with(100, 0), &models[..1], Some(Fallbacks::default()));
        assert_eq!(row(&alone, "allocstall").range, (90.0, 90.0));
        assert!(alone.iter().all(|row| row.name != FALLBACKS_NAME), "{alone:?}");
    }

    #[test]
    fn the_share_is_counted_from_vmstat_where_meminfo_does_not_say() {
        let mut state = State::default();
        state.counters.insert("nr_anon_transparent_hugepages".into(), 3);
        state.counters.insert("nr_anon_pages".into(), 2048);
        assert_eq!(huge_share(&state), Some(0.75));
        assert_eq!(huge_share(&State::default()), None);
    }

    #[test]
    fn recorded_events_are_counted_by_whether_they_mix_types() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("extfrag.json");
        assert_eq!(Fallbacks::read(&path, Order(9)).unwrap(), None);
        let event = |order: u8, count: u64| {
            format!(
                "{{\"alloc_order\": 0, \"fallback_order\": {order}, \"change_ownership\": 1, \
                 \"alloc_migratetype\": 0, \"fallback_migratetype\": 1, \"count\": {count}}}"
            )
        };
        std::fs::write(&path, format!("[{},\n{}]", event(10, 3), event(8, 2))).unwrap();
        let expected = Fallbacks { all: 5, fragmenting: 2 };
        assert_eq!(Fallbacks::read(&path, Order(9)).unwrap(), Some(expected));
        std::fs::write(&path, "[\n{\"count\": 1}]").unwrap();
        let error = Fallbacks::read(&path, Order(9)).unwrap_err().to_string();
        assert!(error.contains("extfrag.json:2: "), "{error}");
    }
}
