//! What state a run found memory in, and what state it left it in, as far as huge pages are concerned.
//!
//! [`EndState`] is read off a [`State`]; [`memory`] makes the table "Memory" of it. What `/proc` tells is known of
//! every system; what the pageblocks hold is known of the model alone.
//!
//! | row | what it is | known of |
//! | --- | --- | --- |
//! | Unusable for a huge page | the share of free memory that lies in blocks smaller than a huge page | all |
//! | Mixed pageblocks | those that hold allocated memory of more than one mobility | the model |
//! | Free pageblocks | those of which every page lies in a free block | all, but where the user may not read `pagetypeinfo` |
//! | Huge pages free | huge pages that the free blocks hold | all |
//! | Huge pages with compaction | those, and one for each pageblock that compaction could empty | the model |
//!
//! Per-CPU lists are no free blocks, as in `/proc/buddyinfo`.
//!
//! Compaction could empty a pageblock of which every page is free, on a per-CPU list, or a movable base page. Its
//! movable pages have to find room in free memory of the same zone that lies neither in it nor in other pageblocks
//! that are emptied nor in those that are free already. So the number of pageblocks that can be emptied together
//! is the number of such pageblocks, or that of pageblocks which the zone's free memory outside of free pageblocks
//! would fill, whichever is less: an emptied pageblock holds as many pages as were free in it and moved out of it.
//! What a compaction really does may be less: it stops at watermarks, passes by pageblocks of other types, and
//! leaves pages that are locked at the moment.

use crate::compare::{Comparison, Group, row_of_samples};
use crate::record::{Record, State};
use crate::stats::{Better, Sorted, Statistic};

/// Bytes of a huge page on x86-64 (`HPAGE_PMD_SIZE`).
const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// What a state says of huge pages. What is not known is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EndState {
    /// Of the free memory, what lies in blocks smaller than a huge page, in percent; missing where nothing is free.
    pub unusable_percent: Option<f64>,
    /// Pageblocks that hold allocated memory of more than one mobility.
    pub mixed_pageblocks: Option<u64>,
    /// Pageblocks that are wholly free.
    pub free_pageblocks: Option<u64>,
    /// Huge pages that the free blocks hold.
    pub huge_pages_free: Option<u64>,
    /// These, and those that compaction could make.
    pub huge_pages_with_compaction: Option<u64>,
}

impl EndState {
    /// What a state says, of a machine with such base pages.
    #[must_use]
    pub fn of(state: &State, page_bytes: u32) -> Self {
        let huge_order = (HUGE_PAGE_BYTES / u64::from(page_bytes).max(1)).max(1).ilog2();
        // Zones without memory are listed nowhere; what lists some of them lists all.
        let zones: Vec<_> =
            state.zones.iter().filter(|zone| !zone.free_blocks.is_empty()).collect();
        if zones.is_empty() {
            return Self::default();
        }
        // Free blocks of an order or more, counted in blocks of that order.
        let of_order = |least: u32| {
            let blocks = zones.iter().flat_map(|zone| zone.free_blocks.iter().zip(0_u32..));
            let large = blocks.filter(|(_, order)| *order >= least);
            large.map(|(nr, order)| nr << (order - least)).sum::<u64>()
        };
        let free_pages = of_order(0);
        let huge_pages_free = of_order(huge_order);
        let usable = huge_pages_free << huge_order;
        let order = state.pageblock_order.map(u32::from);
        let uses: Option<Vec<_>> = zones.iter().map(|zone| zone.pageblock_use).collect();
        let sum =
            |of: fn(&crate::PageblockUse) -> u64| uses.as_ref().map(|all| all.iter().map(of).sum());
        let could_be_emptied: Option<u64> = sum(|of| of.could_be_emptied);
        let huge_pages = |blocks: u64| {
            Some(match order? {
                order if order >= huge_order => blocks << (order - huge_order),
                order => blocks >> (huge_order - order),
            })
        };
        Self {
            unusable_percent: (free_pages > 0)
                .then(|| 100.0 * (free_pages - usable) as f64 / free_pages as f64),
            mixed_pageblocks: sum(|of| of.mixed),
            free_pageblocks: order.map(of_order),
            huge_pages_free: Some(huge_pages_free),
            huge_pages_with_compaction: could_be_emptied
                .and_then(huge_pages)
                .map(|more| huge_pages_free + more),
        }
    }
}

/// How a row's value is read off a state.
pub(crate) type Reading = fn(&EndState) -> Option<f64>;

/// A quantity of a state.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    /// Its row's name.
    name: &'static str,
    /// The heading where it is a column, unit included.
    pub heading: &'static str,
    /// The name for programs, unit last.
    pub key: &'static str,
    unit: &'static str,
    better: Better,
    /// Digits after the point.
    pub decimals: u8,
    reading: Reading,
}

/// The quantities, in order.
pub const QUANTITIES: [Quantity; 5] = [
    Quantity {
        name: "Unusable for a huge page",
        heading: "unusable (%)",
        key: "unusable_percent",
        unit: "%",
        better: Better::Lower,
        decimals: 2,
        reading: |state| state.unusable_percent,
    },
    Quantity {
        name: "Mixed pageblocks",
        heading: "mixed pageblocks",
        key: "mixed_pageblocks",
        unit: "",
        better: Better::Lower,
        decimals: 0,
        reading: |state| state.mixed_pageblocks.map(|n| n as f64),
    },
    Quantity {
        name: "Free pageblocks",
        heading: "free pageblocks",
        key: "free_pageblocks",
        unit: "",
        better: Better::Higher,
        decimals: 0,
        reading: |state| state.free_pageblocks.map(|n| n as f64),
    },
    Quantity {
        name: "Huge pages free",
        heading: "huge pages free",
        key: "huge_pages_free",
        unit: "",
        better: Better::Higher,
        decimals: 0,
        reading: |state| state.huge_pages_free.map(|n| n as f64),
    },
    Quantity {
        name: "Huge pages with compaction",
        heading: "with compaction",
        key: "huge_pages_with_compaction",
        unit: "",
        better: Better::Higher,
        decimals: 0,
        reading: |state| state.huge_pages_with_compaction.map(|n| n as f64),
    },
];

/// The states at which it is read, by name; whether the workload made it.
type Moment = fn(&Record) -> &State;
const MOMENTS: [(&str, Moment, bool); 2] =
    [("before", |record| &record.before, false), ("after", |record| &record.after, true)];

/// A quantity in each run of a group; empty if one of them cannot tell.
fn readings(group: &Group<'_>, quantity: &Quantity, moment: Moment) -> Vec<f64> {
    let of_record =
        |record: &&Record| (quantity.reading)(&EndState::of(moment(record), record.page_bytes));
    let values: Option<Vec<f64>> = group.records.iter().map(of_record).collect();
    values.unwrap_or_default()
}

/// Each of [`QUANTITIES`] before the workload and after it, the mean of a group's runs; none where one of them
/// cannot tell.
#[must_use]
pub fn before_and_after(group: &Group<'_>) -> [[Option<f64>; 2]; QUANTITIES.len()] {
    QUANTITIES.map(|quantity| {
        MOMENTS.map(|(_, moment, _)| {
            let values = readings(group, &quantity, moment);
            let sum: f64 = values.iter().sum();
            (!values.is_empty()).then(|| sum / values.len() as f64)
        })
    })
}

/// Compares the states of memory before and after the workload, each group's the mean of its runs.
///
/// A value that one of a group's runs cannot tell is missing; rows that no group can tell are left out. What was
/// there before the workload is neither better nor worse.
#[must_use]
pub fn memory(title: &str, groups: &[Group<'_>]) -> Comparison {
    let mut rows = Vec::new();
    for quantity in QUANTITIES {
        let Quantity { name, unit, better, decimals, .. } = quantity;
        for (when, moment, is_result) in MOMENTS {
            let samples = |group: &Group<'_>| -> Sorted {
                readings(group, &quantity, moment).into_iter().collect()
            };
            let samples: Vec<Sorted> = groups.iter().map(samples).collect();
            if samples.iter().all(Sorted::is_empty) {
                continue;
            }
            let better = if is_result { better } else { Better::Neutral };
            let metric = format!("{name} {when}");
            let mut row =
                row_of_samples(&metric, unit, better, decimals, Statistic::Plain, &samples);
            // Before the workload nobody was killed yet.
            row.count_killed(groups, |_| is_result);
            rows.push(row);
        }
    }
    Comparison { rows, ..Comparison::new(title, groups, true) }
}

/// The rows by name and unit, with which direction is the good one.
pub(crate) fn rows() -> impl Iterator<Item = (&'static str, &'static str, Better, Reading)> {
    QUANTITIES.into_iter().map(|q| (q.name, q.unit, q.better, q.reading))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Inputs, PageblockUse};

    /// 100 free pages in single pages, and these blocks of orders 9 and 10.
    fn state(of_order_9: u64, of_order_10: u64) -> State {
        let mut state = State { pageblock_order: Some(9), ..State::default() };
        let mut blocks = vec![0; 11];
        (blocks[0], blocks[9], blocks[10]) = (100, of_order_9, of_order_10);
        let zone = state.zone_mut(0, "Normal");
        zone.free_blocks = blocks;
        zone.pageblock_use = Some(PageblockUse { mixed: 3, could_be_emptied: 2 });
        // Listed by zoneinfo alone.
        state.zone_mut(0, "Movable").pages = [("managed".to_owned(), 0)].into();
        state
    }

    fn record(before: State, after: State) -> Record {
        Record { before, after, ..Record::new(Inputs::default()) }
    }

    #[test]
    fn free_blocks_are_counted_in_huge_pages() {
        let found = EndState::of(&state(1, 2), 4096);
        assert_eq!(found.huge_pages_free, Some(5));
        assert_eq!(found.free_pageblocks, Some(5));
        assert_eq!(found.huge_pages_with_compaction, Some(7));
        assert_eq!(found.mixed_pageblocks, Some(3));
        assert_eq!(found.unusable_percent, Some(100.0 * 100.0 / (100.0 + 5.0 * 512.0)));
    }

    #[test]
    fn pageblocks_of_a_kernel_without_huge_pages_are_twice_as_large() {
        let mut found = state(1, 2);
        found.pageblock_order = Some(10);
        let found = EndState::of(&found, 4096);
        assert_eq!((found.huge_pages_free, found.free_pageblocks), (Some(5), Some(2)));
        assert_eq!(found.huge_pages_with_compaction, Some(5 + 2 * 2));
    }

    #[test]
    fn what_a_system_does_not_tell_is_missing_and_not_zero() {
        let mut real = state(0, 0);
        real.zones[0].pageblock_use = None;
        real.pageblock_order = None;
        let found = EndState::of(&real, 4096);
        assert_eq!((found.unusable_percent, found.huge_pages_free), (Some(100.0), Some(0)));
        assert_eq!((found.mixed_pageblocks, found.free_pageblocks), (None, None));
        assert_eq!(found.huge_pages_with_compaction, None);
        assert_eq!(EndState::of(&State::default(), 4096), EndState::default());
        real.zones[0].free_blocks = vec![0; 11];
        assert_eq!(EndState::of(&real, 4096).unusable_percent, None, "nothing is free");
    }

    #[test]
    fn the_table_has_each_moment_and_leaves_out_what_nobody_knows() {
        let (mut old, new) = (record(state(4, 0), state(1, 0)), record(state(4, 0), state(2, 0)));
        for state in [&mut old.before, &mut old.after] {
            state.pageblock_order = None;
            state.zones[0].pageblock_use = None;
        }
        let group = |label: &str, record| Group { label: label.to_owned(), records: vec![record] };
        let table = memory("Memory", &[group("old", &old), group("new", &new)]);
        let row = |name: &str| table.rows.iter().find(|row| row.metric == name).unwrap();
        let values = |name: &str| row(name).cells.iter().map(|cell| cell.value).collect::<Vec<_>>();
        assert_eq!(values("Huge pages free after"), [Some(1.0), Some(2.0)]);
        assert_eq!(row("Huge pages free after").cells[1].change_percent, Some(100.0));
        assert_eq!(row("Huge pages free before").cells[1].change_percent, None);
        assert_eq!(values("Mixed pageblocks after"), [None, Some(3.0)]);
        assert_eq!(table.rows.len(), 10);
        let old = memory("Memory", &[group("old", &old)]);
        let names: Vec<&str> = old.rows.iter().map(|row| row.metric.as_str()).collect();
        assert_eq!(
            names,
            [
                "Unusable for a huge page before",
                "Unusable for a huge page after",
                "Huge pages free before",
                "Huge pages free after"
            ]
        );
        let nothing = Record::new(Inputs::default());
        assert_eq!(memory("Memory", &[group("nothing", &nothing)]).rows, []);
    }

    #[test]
    fn of_several_runs_the_mean_is_shown_and_of_one_that_does_not_tell_nothing() {
        let [a, b, mut c] = [1, 3, 5].map(|nr| record(state(nr, 0), state(nr, 0)));
        let value = |records: &[&Record]| {
            let group = Group { label: String::new(), records: records.to_vec() };
            let table = memory("", &[group]);
            table
                .rows
                .iter()
                .find(|row| row.metric == "Free pageblocks after")
                .map(|r| r.cells[0].value)
        };
        assert_eq!(value(&[&a, &b]), Some(Some(2.0)));
        c.after.pageblock_order = None;
        assert_eq!(value(&[&a, &b, &c]), None);
    }
}
