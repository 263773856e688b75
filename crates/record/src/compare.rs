//! Records side by side, as the field's reports print them.
//!
//! The first group is the base. [`Comparison::text`] looks like the reports of mmtests:
//!
//! ```text
//!                                 vanilla           nodefrag
//! Amean    System-1  s   102.86 (  0.00%)   46.81 * 54.50%*
//! ```
//!
//! In brackets stands the change in percent, positive if it is an improvement; stars in their place
//! say that it is more than noise ([`noise`]). What is eleven times the base or more reads `11.0x`. A value that
//! is not known is `-`; one that runs have part in whose processes were killed has the mark [`KILLED_MARK`].
//! [`Comparison::table`] is the same for Markdown, CSV and JSON.

use std::collections::BTreeMap;

use highorder_tables::{Column, Table, Value, multiple};
use xxhash_rust::xxh3::xxh3_64;

use crate::killed::{KILLED_MARK, nr_killed};
use crate::latencies::Latencies;
use crate::noise::{self, Interval, Noise, Verdict};
use crate::published::{PublishedForm, PublishedRow, printed_change_percent};
use crate::published_rows;
use crate::record::{Durations, Metric, Record, Source};
use crate::stats::{Better, Sorted, Statistic, change_percent};
use crate::vmstat_rows::{Form, VmstatRow, vmstat_rows};

/// Records that are samples of one variant: iterations, seeds and thread steps of one kernel.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// The column's heading.
    pub label: String,
    /// The records.
    pub records: Vec<&'a Record>,
}

/// A table of values, a column for each group.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Printed above, where not empty.
    pub title: String,
    /// The groups' labels.
    pub labels: Vec<String>,
    /// Whether the text shows changes in brackets; the field's `duration` and `vmstat` have none.
    pub has_brackets: bool,
    /// Whether the text has a row's statistic behind the metric, as in 2012, rather than in front of it.
    pub has_statistics_last: bool,
    /// The rows.
    pub rows: Vec<ComparisonRow>,
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparisonRow {
    /// The statistic's name, such as `Amean`; empty for a plain value.
    pub statistic: String,
    /// The metric's name, such as `System-48`.
    pub metric: String,
    /// The unit of the values.
    pub unit: String,
    /// Which direction is the good one.
    pub better: Better,
    /// Digits after the point.
    pub decimals: u8,
    /// A cell for each group.
    pub cells: Vec<ComparisonCell>,
}

/// One value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ComparisonCell {
    /// The value; none if not known.
    pub value: Option<f64>,
    /// How much better than the first group's it is, in percent; none where nothing is better or
    /// there is nothing to compare.
    pub change_percent: Option<f64>,
    /// Whether that is more than noise; none where there is but one value.
    pub noise: Option<Noise>,
    /// Where the change in percent of the base's mean lies; none with fewer than two samples.
    pub change_interval: Option<Interval>,
    /// Of the runs that the value is of, those in which a process was killed for want of memory.
    pub killed_runs: u32,
}

/// How much [`Comparison::table`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Values and changes.
    Plain,
    /// The noise test and the interval beside them.
    Noise,
    /// That, and how many of a value's runs were killed in a column of its own: for programs, which see no marks.
    All,
}

/// Returns what a reader should know before comparing sums: nothing, or a sentence.
#[must_use]
pub fn unequal_runs(groups: &[Group<'_>]) -> Option<String> {
    let first = groups.first()?.records.len();
    if groups.iter().all(|group| group.records.len() == first) {
        return None;
    }
    let counts: Vec<String> =
        groups.iter().map(|group| format!("{} {}", group.label, group.records.len())).collect();
    Some(format!(
        "The columns sum over different numbers of runs ({}): compare rates and shares, not totals.",
        counts.join(", ")
    ))
}

/// Compares the metrics that the workload reported, their samples pooled over each group.
///
/// Metrics of one name and different thread counts stand together, fewer threads first.
#[must_use]
pub fn metrics(title: &str, groups: &[Group<'_>]) -> Comparison {
    let rows = names(groups).into_iter().flat_map(|like| {
        like.statistics.clone().into_iter().map(move |statistic| {
            let samples: Vec<Sorted> =
                groups.iter().map(|group| pooled(group, &like.name)).collect();
            let mut row = row_of_samples(
                &like.name,
                &like.unit,
                like.better,
                like.decimals,
                statistic,
                &samples,
            );
            let has_part = |record: &Record| {
                record.metric(&like.name).is_some_and(|metric| !metric.samples.is_empty())
            };
            row.count_killed(groups, has_part);
            row
        })
    });
    Comparison { rows: rows.collect(), ..Comparison::new(title, groups, true) }
}

/// Compares the latencies of every class: percentiles from the pooled histograms, in the class's [`LatencyUnit`].
#[must_use]
pub fn latencies(title: &str, groups: &[Group<'_>]) -> Comparison {
    let mut pooled: BTreeMap<&str, Vec<Latencies>> = BTreeMap::new();
    for (i, group) in groups.iter().enumerate() {
        for (class, latencies) in group.records.iter().flat_map(|record| &record.latencies) {
            let of_class =
                pooled.entry(class).or_insert_with(|| vec![Latencies::new(); groups.len()]);
            of_class[i].merge(latencies);
        }
    }
    type Reading = fn(&Latencies) -> Option<f64>;
    let readings: [(&str, Reading); 6] = [
        ("Amean", |l| l.mean_ns()),
        ("Min", |l| l.min_ns().map(|ns| ns as f64)),
        ("Median", |l| l.quantile_ns(0.5).map(|ns| ns as f64)),
        ("Max-95%", |l| l.quantile_ns(0.95).map(|ns| ns as f64)),
        ("Max-99%", |l| l.quantile_ns(0.99).map(|ns| ns as f64)),
        ("Max", |l| l.max_ns().map(|ns| ns as f64)),
    ];
    let rows = pooled.iter().flat_map(|(class, of_class)| {
        let unit = LatencyUnit::of_class(class, groups);
        readings.iter().map(move |(statistic, reading)| {
            let values = of_class.iter().map(|l| reading(l).map(|ns| ns / unit.ns)).collect();
            let (name, decimals) = (unit.name, unit.decimals);
            let mut row = row_of_values(statistic, class, name, Better::Lower, decimals, values);
            row.count_killed(groups, |record| {
                record.latencies.get(*class).is_some_and(|latencies| latencies.count() > 0)
            });
            row
        })
    });
    Comparison { rows: rows.collect(), ..Comparison::new(title, groups, true) }
}

/// In what latencies of a class are told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyUnit {
    /// As tables have it.
    pub name: &'static str,
    /// Nanoseconds of one.
    pub ns: f64,
    /// Digits after the point.
    pub decimals: u8,
}

impl LatencyUnit {
    /// What a workload's own metrics are told in, if they are times, and microseconds first: what has no metric
    /// of its name is told in these.
    const ALL: [Self; 4] = [
        Self { name: "us", ns: 1e3, decimals: 2 },
        Self { name: "ns", ns: 1.0, decimals: 2 },
        Self { name: "ms", ns: 1e6, decimals: 4 },
        Self { name: "s", ns: 1e9, decimals: 6 },
    ];

    /// The unit of the metric of the class's name, so that one quantity has one unit; else microseconds.
    #[must_use]
    pub fn of_class(class: &str, groups: &[Group<'_>]) -> Self {
        let mut records = groups.iter().flat_map(|group| &group.records);
        let metric = records.find_map(|record| record.metric(class));
        let same = |metric: &Metric| Self::ALL.into_iter().find(|unit| unit.name == metric.unit);
        metric.and_then(same).unwrap_or(Self::ALL[0])
    }
}

/// Compares the share of huge pages among faults at each thread count N, in percent:
/// `100 * huge / (huge + base)` over the units of the metrics or latency classes `fault-huge-N` and
/// `fault-base-N`, or the metric `Percentage huge-N` where a workload reports it itself.
#[must_use]
pub fn percentage_huge(title: &str, groups: &[Group<'_>]) -> Comparison {
    let mut suffixes: Vec<String> = Vec::new();
    let names = groups.iter().flat_map(|group| &group.records).flat_map(|record| {
        let metrics = record.metrics.iter().map(|metric| metric.name.as_str());
        metrics.chain(record.latencies.keys().map(String::as_str))
    });
    for name in names {
        let kinds = ["fault-huge", "fault-base", "Percentage huge"];
        let suffix = kinds.iter().find_map(|kind| name.strip_prefix(kind));
        // Either nothing follows, or a thread count.
        let suffix = suffix.filter(|s| s.is_empty() || threads_of(s).is_some());
        if let Some(suffix) = suffix
            && !suffixes.iter().any(|known| known == suffix)
        {
            suffixes.push(suffix.to_owned());
        }
    }
    suffixes.sort_by_key(|suffix| threads_of(suffix));
    let rows = suffixes.iter().map(|suffix| {
        let share = |group: &Group<'_>| {
            let reported = pooled(group, &format!("Percentage huge{suffix}"));
            reported.amean().or_else(|| {
                let huge = units(group, &format!("fault-huge{suffix}"));
                let base = units(group, &format!("fault-base{suffix}"));
                (huge + base > 0).then(|| 100.0 * huge as f64 / (huge + base) as f64)
            })
        };
        let values = groups.iter().map(share).collect();
        let name = format!("Percentage huge{suffix}");
        let mut row = row_of_values("", &name, "%", Better::Higher, 2, values);
        let kinds = ["fault-huge", "fault-base", "Percentage huge"];
        row.count_killed(groups, |record| {
            let mut names = kinds.iter().map(|kind| format!("{kind}{suffix}"));
            names.any(|name| record.metric(&name).is_some() || record.latencies.contains_key(&name))
        });
        row
    });
    Comparison { rows: rows.collect(), ..Comparison::new(title, groups, true) }
}

/// Compares where the time went, in seconds summed over each group's runs.
#[must_use]
pub fn duration(title: &str, groups: &[Group<'_>], form: Form) -> Comparison {
    type Part = fn(&Durations) -> Option<u64>;
    let parts: &[(&str, Part)] = match form {
        Form::Y2012 => &[
            ("Sys Time Running Test (seconds)", |d| d.system_ns),
            ("User+Sys Time Running Test (seconds)", |d| Some(d.user_ns? + d.system_ns?)),
            ("Total Elapsed Time (seconds)", |d| d.elapsed_ns),
        ],
        Form::Y2016 => {
            &[("User", |d| d.user_ns), ("System", |d| d.system_ns), ("Elapsed", |d| d.elapsed_ns)]
        }
    };
    let rows = parts.iter().map(|(label, part)| {
        let values = groups.iter().map(|group| seconds(group, *part)).collect();
        row_of_totals(label, "s", Better::Lower, 2, values, groups)
    });
    Comparison { rows: rows.collect(), ..Comparison::new(title, groups, false) }
}

/// Compares what the kernel counted, summed over each group's runs; rows that no group can tell are
/// left out.
#[must_use]
pub fn vmstat(title: &str, groups: &[Group<'_>], form: Form) -> Comparison {
    let of_group = |group: &Group<'_>| -> Vec<VmstatRow> {
        let delta = |name: &str| sum(group.records.iter().map(|record| record.delta(name)));
        vmstat_rows(&delta, seconds(group, |d| d.elapsed_ns), form)
    };
    let all: Vec<Vec<VmstatRow>> = groups.iter().map(of_group).collect();
    let nr_rows = all.first().map_or(0, Vec::len);
    let rows = (0..nr_rows).map(|i| {
        let like = &all[0][i];
        let values = all.iter().map(|rows| rows[i].value).collect();
        row_of_totals(like.label, like.unit, like.better, like.decimals, values, groups)
    });
    let rows = rows.filter(|row| row.cells.iter().any(|cell| cell.value.is_some()));
    Comparison { rows: rows.collect(), ..Comparison::new(title, groups, false) }
}

/// Who waits in reclaim: the label in reports, and its word in the latency classes.
const RECLAIMERS: [(&str, &str); 2] = [("Direct", "direct"), ("KSwapd", "kswapd")];
/// For what it waits: the same.
const CONGESTION_WAITS: [(&str, &str); 2] =
    [("congest waited", "congestion-wait"), ("conditional waited", "wait-iff-congested")];
/// Behind the class of waits, that of those which took as long as they were asked to at most.
const FULL: &str = "-full";
/// The kernel's value that says for what reclaim waits, and how it begins if that is congestion.
const STALL_RULE: (&str, &str) = ("stall.rule", "congestion");

/// Compares how often and how long reclaim waited for congested devices, summed over each group's runs: the
/// rows that reports of 2012 made of the tracepoints `writeback_congestion_wait` and
/// `writeback_wait_iff_congested`.
///
/// They come from the latency classes `congestion-wait-WHO` and `wait-iff-congested-WHO`, where WHO is
/// `kswapd` or `direct`, which is anybody else. A class that a run does not have is 0 if it was on the model
/// under a kernel that waits so, since there every wait is told; else nobody looked, and it is missing. Rows
/// that no group can tell are left out.
#[must_use]
pub fn congestion_waits(title: &str, groups: &[Group<'_>]) -> Comparison {
    type Reading = fn(&Latencies) -> u64;
    // Whole milliseconds, rounded down, as shell arithmetic has them.
    let readings: [(&str, &str, &str, Reading); 3] = [
        ("number", "", "events", Latencies::count),
        ("time", "", "ms", |waits| waits.sum_ns() / 1_000_000),
        ("full", FULL, "events", Latencies::count),
    ];
    let mut rows = Vec::new();
    for (label, who) in RECLAIMERS {
        for (verb, wait) in CONGESTION_WAITS {
            for (what, ending, unit, reading) in readings {
                let class = format!("{wait}-{who}{ending}");
                let of_record = |record: &&Record| match record.latencies.get(&class) {
                    Some(waits) => i64::try_from(reading(waits)).ok(),
                    None => tells_congestion_waits(record).then_some(0),
                };
                let of_group = |group: &Group<'_>| {
                    sum(group.records.iter().map(of_record)).map(|total| total as f64)
                };
                let values = groups.iter().map(of_group).collect();
                let label = format!("{label} {what} {verb}");
                rows.push(row_of_totals(&label, unit, Better::Lower, 0, values, groups));
            }
        }
    }
    rows.retain(|row| row.cells.iter().any(|cell| cell.value.is_some()));
    Comparison { rows, ..Comparison::new(title, groups, false) }
}

fn tells_congestion_waits(record: &Record) -> bool {
    let (key, begins) = STALL_RULE;
    let rule = record.inputs.kernel.values.get(key);
    record.inputs.source == Source::Model && rule.is_some_and(|rule| rule.starts_with(begins))
}

/// Compares in a published form: its tables with their rows, in their order; where nobody measured a row,
/// its values are missing. What else is known follows, as far as it is not among these rows already.
#[must_use]
pub fn in_published_form(published: &PublishedForm, groups: &[Group<'_>]) -> Vec<Comparison> {
    let form = published.form;
    let mut own = published_rows::rows(published, groups);
    let mut known = [
        metrics("Other metrics", groups),
        latencies("Latencies", groups),
        percentage_huge("Huge pages", groups),
        duration("Duration", groups, form),
        vmstat("Other counters", groups, form),
        congestion_waits("Waits for congestion", groups),
    ];
    // A table's rows are taken out of the tables above as they are found there.
    let mut take = |wanted: &PublishedRow| {
        own.iter_mut().chain(&mut known).find_map(|table| {
            let is_it = |row: &ComparisonRow| {
                row.metric == wanted.metric && row.statistic.eq_ignore_ascii_case(wanted.statistic)
            };
            let at = table.rows.iter().position(is_it)?;
            Some(table.rows.remove(at))
        })
    };
    let mut tables = Vec::new();
    for table in &published.tables {
        let row = |wanted: &PublishedRow| ComparisonRow {
            statistic: wanted.statistic.to_owned(),
            decimals: wanted.decimals,
            ..take(wanted).unwrap_or_else(|| {
                let missing = vec![None; groups.len()];
                row_of_values("", &wanted.metric, wanted.unit, Better::Neutral, 0, missing)
            })
        };
        tables.push(Comparison {
            rows: table.rows.iter().map(row).collect(),
            has_statistics_last: form == Form::Y2012,
            ..Comparison::new(table.title, groups, table.has_brackets)
        });
    }
    tables.extend(known.into_iter().filter(|table| !table.rows.is_empty()));
    tables
}

/// Compares counters under the kernel's own names, summed over each group's runs, in the order of
/// `names`. Nothing is better or worse here.
#[must_use]
pub fn counters(title: &str, groups: &[Group<'_>], names: &[&str]) -> Comparison {
    let rows = names.iter().map(|name| {
        let of_group = |group: &Group<'_>| {
            sum(group.records.iter().map(|record| record.delta(name))).map(|n| n as f64)
        };
        let values = groups.iter().map(of_group).collect();
        row_of_totals(name, "", Better::Neutral, 0, values, groups)
    });
    Comparison { rows: rows.collect(), ..Comparison::new(title, groups, false) }
}

/// Compares values that were computed elsewhere: a row for each name, a value for each label.
#[must_use]
pub fn values(
    title: &str,
    labels: &[&str],
    rows: impl IntoIterator<Item = ComparisonRow>,
) -> Comparison {
    Comparison {
        title: title.to_owned(),
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
        has_brackets: true,
        has_statistics_last: false,
        rows: rows.into_iter().collect(),
    }
}

/// Makes a row of one value for each group: changes, but no noise.
#[must_use]
pub fn row_of_values(
    statistic: &str,
    metric: &str,
    unit: &str,
    better: Better,
    decimals: u8,
    values: Vec<Option<f64>>,
) -> ComparisonRow {
    let base = values.first().copied().flatten();
    let cell = |value: Option<f64>| ComparisonCell {
        value,
        change_percent: base.zip(value).and_then(|(b, n)| change_percent(better, b, n)),
        ..ComparisonCell::default()
    };
    ComparisonRow {
        statistic: statistic.to_owned(),
        metric: metric.to_owned(),
        unit: unit.to_owned(),
        better,
        decimals,
        cells: values.into_iter().map(cell).collect(),
    }
}

/// Makes a row of what was summed over each group's runs, the killed ones among them.
pub(crate) fn row_of_totals(
    metric: &str,
    unit: &str,
    better: Better,
    decimals: u8,
    values: Vec<Option<f64>>,
    groups: &[Group<'_>],
) -> ComparisonRow {
    let mut row = row_of_values("", metric, unit, better, decimals, values);
    row.count_killed(groups, |_| true);
    row
}

/// Makes a row of samples for each group. Only of what says where the samples lie (a mean, the median)
/// is it asked whether the difference is noise.
#[must_use]
pub fn row_of_samples(
    metric: &str,
    unit: &str,
    better: Better,
    decimals: u8,
    statistic: Statistic,
    samples: &[Sorted],
) -> ComparisonRow {
    let values = samples.iter().map(|samples| statistic.of(samples)).collect();
    let name = statistic.to_string();
    let better = statistic.better(better);
    let mut row = row_of_values(&name, metric, unit, better, decimals, values);
    let is_mean = matches!(
        statistic,
        Statistic::Plain | Statistic::Amean | Statistic::Hmean | Statistic::Mean
    );
    let Some(base) = samples.first() else { return row };
    if !is_mean && statistic != Statistic::SecondQuartile {
        return row;
    }
    let seed = xxh3_64(format!("{name} {metric}").as_bytes());
    for (cell, new) in row.cells.iter_mut().zip(samples).skip(1) {
        if base.is_empty() || new.is_empty() {
            continue;
        }
        let noise = noise::compare(base, new, seed);
        cell.noise = Some(noise);
        // The interval is one of arithmetic means.
        if is_mean && statistic != Statistic::Hmean {
            cell.change_interval =
                base.amean().zip(noise.difference).and_then(|(mean, d)| percent(better, mean, d));
        }
    }
    row
}

/// Turns a difference of means into a change in percent, positive for an improvement.
fn percent(better: Better, base: f64, difference: Interval) -> Option<Interval> {
    let scaled = |low: f64, high: f64, by: f64| {
        let (a, b) = (low * by, high * by);
        Interval { low: a.min(b), high: a.max(b) }
    };
    match better {
        Better::Neutral => None,
        Better::Points => Some(difference),
        _ if base == 0.0 => None,
        Better::Lower => Some(scaled(difference.low, difference.high, -100.0 / base)),
        Better::Higher => Some(scaled(difference.low, difference.high, 100.0 / base)),
    }
}

/// The metrics of all groups, each once: in the order in which a name first comes, without its thread
/// count, and then by thread count.
pub(crate) fn names<'a>(groups: &[Group<'a>]) -> Vec<&'a Metric> {
    let mut found: Vec<&Metric> = Vec::new();
    for metric in groups.iter().flat_map(|g| &g.records).flat_map(|record| &record.metrics) {
        if !found.iter().any(|known| known.name == metric.name) {
            found.push(metric);
        }
    }
    let stem = |metric: &Metric| match threads_of(&metric.name) {
        Some(_) => metric.name.rsplit_once('-').map_or("", |(stem, _)| stem).to_owned(),
        None => metric.name.clone(),
    };
    let stems: Vec<String> = found.iter().map(|metric| stem(metric)).collect();
    let first = |metric: &Metric| stems.iter().position(|other| *other == stem(metric));
    found.sort_by_key(|metric| (first(metric), threads_of(&metric.name)));
    found
}

/// The number behind the last dash: `System-48` has 48.
pub(crate) fn threads_of(name: &str) -> Option<u64> {
    name.rsplit_once('-')?.1.parse().ok()
}

/// The samples of all of a group's runs.
fn pooled(group: &Group<'_>, name: &str) -> Sorted {
    let metrics = group.records.iter().filter_map(|record| record.metric(name));
    metrics.flat_map(|metric| metric.samples.iter().copied()).collect()
}

/// How many units a group's runs timed of a kind.
fn units(group: &Group<'_>, name: &str) -> u64 {
    let of_record = |record: &&Record| match record.metric(name) {
        Some(metric) => metric.samples.len() as u64,
        None => record.latencies.get(name).map_or(0, Latencies::count),
    };
    group.records.iter().map(of_record).sum()
}

/// The sum, if every summand is known.
fn sum(values: impl Iterator<Item = Option<i64>>) -> Option<i64> {
    let values: Option<Vec<i64>> = values.collect();
    values.filter(|values| !values.is_empty()).map(|values| values.iter().sum())
}

fn seconds(group: &Group<'_>, part: fn(&Durations) -> Option<u64>) -> Option<f64> {
    let ns: Option<Vec<u64>> = group.records.iter().map(|record| part(&record.durations)).collect();
    let ns = ns.filter(|ns| !ns.is_empty())?;
    Some(ns.iter().sum::<u64>() as f64 / 1e9)
}

/// Significant digits that a value keeps where it is not whole: with fewer, `3` beside `3` could be 12.5 % apart.
const SIGNIFICANT_DIGITS: i32 = 3;
/// Digits after the point at most: those of nanoseconds in seconds.
const DECIMALS_MAX: u8 = 9;

impl ComparisonRow {
    /// Digits after the point that the row is shown with: its own, and as many more as its smallest value takes to
    /// have three significant digits, so that a reader sees in the values what the changes are of.
    #[must_use]
    pub fn decimals_shown(&self) -> u8 {
        let values = self.cells.iter().filter_map(|cell| cell.value);
        let wanted = values.filter(|value| value.fract() != 0.0).map(|value| {
            let magnitude = value.abs().log10().floor() as i32;
            (SIGNIFICANT_DIGITS - 1 - magnitude).clamp(0, DECIMALS_MAX.into()) as u8
        });
        wanted.max().map_or(self.decimals, |wanted| wanted.max(self.decimals))
    }

    /// Whether a group's value is better than the base's; none if they are equal, one is not known, or nothing is
    /// better here. Unlike a percentage it is there for a base of 0 too.
    #[must_use]
    pub fn is_better(&self, group: usize) -> Option<bool> {
        let (base, new) = (self.cells.first()?.value?, self.cells.get(group)?.value?);
        match self.better {
            _ if base == new => None,
            Better::Neutral => None,
            Better::Lower => Some(new < base),
            Better::Higher | Better::Points => Some(new > base),
        }
    }

    /// Counts for each group the runs that were killed, of those that have part in the row.
    pub fn count_killed(&mut self, groups: &[Group<'_>], has_part: impl Fn(&Record) -> bool) {
        for (cell, group) in self.cells.iter_mut().zip(groups) {
            if cell.value.is_some() {
                let runs = group.records.iter().filter(|record| has_part(record));
                cell.killed_runs = runs.filter(|record| nr_killed(record) > 0).count() as u32;
            }
        }
    }
}

impl Comparison {
    pub(crate) fn new(title: &str, groups: &[Group<'_>], has_brackets: bool) -> Self {
        let labels = groups.iter().map(|group| group.label.clone()).collect();
        let title = title.to_owned();
        Self { title, labels, has_brackets, has_statistics_last: false, rows: Vec::new() }
    }

    /// The table as the field prints it: columns aligned to the right, changes in brackets. Units stand behind the
    /// rows' names.
    #[must_use]
    pub fn text(&self) -> String {
        self.lines(Layout::ForPeople)
    }

    /// The table byte for byte as reports printed it, to be held against published ones: without units and marks,
    /// each value with its row's digits, and [`printed_change_percent`] in brackets.
    #[must_use]
    pub fn published_text(&self) -> String {
        self.lines(Layout::AsPublished)
    }

    fn lines(&self, layout: Layout) -> String {
        let statistic_width = self.rows.iter().map(|row| row.statistic.len()).max().unwrap_or(0);
        let head = |row: &ComparisonRow| match statistic_width {
            0 => row.metric.clone(),
            _ if self.has_statistics_last => format!("{}  {}", row.metric, row.statistic),
            _ => {
                format!("{:<width$} {}", row.statistic, row.metric, width = statistic_width.max(8))
            }
        };
        let heads: Vec<String> = self.rows.iter().map(head).collect();
        // A label that names its unit needs it no second time.
        let units: Vec<&str> = self
            .rows
            .iter()
            .map(|row| match layout {
                Layout::ForPeople if !row.metric.ends_with("(seconds)") => row.unit.as_str(),
                _ => "",
            })
            .collect();
        // Six characters hold `-99.99`; a column of larger changes is wider.
        let change_width = |i: usize| {
            let changes = self.rows.iter().filter_map(|row| layout.change(row, i));
            changes.map(|change| change.len() - 1).max().unwrap_or(0).max(6)
        };
        let change_widths: Vec<usize> = (0..self.labels.len()).map(change_width).collect();
        let cells: Vec<Vec<(String, String)>> = self
            .rows
            .iter()
            .map(|row| {
                let cells = change_widths.iter().enumerate();
                cells.map(|(i, &width)| self.cell_text(layout, row, i, width)).collect()
            })
            .collect();
        let width = |of: &dyn Fn(&(String, String)) -> usize, i: usize| {
            cells.iter().map(|row| of(&row[i])).max().unwrap_or(0)
        };
        let columns: Vec<(usize, usize)> = (0..self.labels.len())
            .map(|i| {
                let brackets = width(&|cell| cell.1.chars().count(), i);
                let label = self.labels[i].chars().count();
                // Three blanks between columns, as wide as the heading asks for.
                let values = width(&|cell| cell.0.len(), i).max(label.saturating_sub(brackets)) + 3;
                (values, brackets)
            })
            .collect();
        let head_width = heads.iter().map(|head| head.chars().count()).max().unwrap_or(0);
        let unit_width = units.iter().map(|unit| unit.chars().count()).max().unwrap_or(0);
        let head_and_unit = |head: &str, unit: &str| match unit_width {
            0 => format!("{head:<head_width$}"),
            _ => format!("{head:<head_width$}  {unit:<unit_width$}"),
        };
        let mut text = String::new();
        if !self.title.is_empty() {
            text.push_str(&format!("{}\n\n", self.title));
        }
        let mut line = head_and_unit("", "");
        for (label, (values, brackets)) in self.labels.iter().zip(&columns) {
            line.push_str(&format!("{label:>width$}", width = values + brackets));
        }
        text.push_str(line.trim_end());
        text.push('\n');
        for ((head, unit), row) in heads.iter().zip(&units).zip(&cells) {
            let mut line = head_and_unit(head, unit);
            for ((value, bracket), (values, brackets)) in row.iter().zip(&columns) {
                line.push_str(&format!("{value:>values$}{bracket:<brackets$}"));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// The table for Markdown, CSV and JSON: for each group the value and, from the second on, the
    /// change in percent; with [`Detail::Noise`] also the rank test's p, the interval of the change,
    /// and the verdict; with [`Detail::All`] at last how many of the runs behind each value were killed.
    #[must_use]
    pub fn table(&self, detail: Detail) -> Table {
        let column = |heading: String, key: String| Column { heading, key };
        let mut columns = Vec::new();
        let has_statistics = self.rows.iter().any(|row| !row.statistic.is_empty());
        if has_statistics {
            columns.push(column("statistic".into(), "statistic".into()));
        }
        columns.push(column("metric".into(), "metric".into()));
        columns.push(column("unit".into(), "unit".into()));
        for (i, label) in self.labels.iter().enumerate() {
            let of = |heading: &str, key: &str| {
                column(format!("{label} {heading}"), format!("{label} {key}"))
            };
            columns.push(column(label.clone(), label.clone()));
            if i == 0 {
                continue;
            }
            columns.push(of("change", "change_percent"));
            if detail != Detail::Plain {
                columns.extend([
                    of("p", "p"),
                    of("from", "change_percent_low"),
                    of("to", "change_percent_high"),
                    of("verdict", "verdict"),
                ]);
            }
        }
        if detail == Detail::All {
            columns.extend(self.labels.iter().map(|label| {
                column(format!("{label} killed runs"), format!("{label} killed_runs"))
            }));
        }
        let mut table = Table { title: self.title.clone(), columns, rows: Vec::new() };
        for row in &self.rows {
            let decimals = row.decimals_shown();
            let mut values = Vec::new();
            if has_statistics {
                values.push(Value::from(row.statistic.as_str()));
            }
            values.extend([Value::from(row.metric.as_str()), Value::from(row.unit.as_str())]);
            for (i, cell) in row.cells.iter().enumerate() {
                let value = number(cell.value, decimals);
                values.push(match cell.killed_runs {
                    0 => value,
                    _ => Value::Marked(Box::new(value), KILLED_MARK),
                });
                if i == 0 {
                    continue;
                }
                values.push(cell.change_percent.map_or(Value::Missing, Value::Change));
                if detail != Detail::Plain {
                    let p = cell.noise.and_then(|noise| noise.p);
                    let end = |of: fn(Interval) -> f64| {
                        cell.change_interval.map_or(Value::Missing, |i| Value::Change(of(i)))
                    };
                    values.extend([
                        number(p, 4),
                        end(|i| i.low),
                        end(|i| i.high),
                        cell.noise.map_or(Value::Missing, |noise| verdict(noise.verdict).into()),
                    ]);
                }
            }
            if detail == Detail::All {
                let killed = row.cells.iter().map(|cell| Value::from(cell.killed_runs));
                values.extend(killed);
            }
            table.push(values);
        }
        table
    }

    /// A cell's value and its bracket, the change in it `width` characters wide without the sign of percent.
    fn cell_text(
        &self,
        layout: Layout,
        row: &ComparisonRow,
        i: usize,
        width: usize,
    ) -> (String, String) {
        let cell = &row.cells[i];
        let (decimals, is_marked) = match layout {
            Layout::ForPeople => (row.decimals_shown(), cell.killed_runs > 0),
            Layout::AsPublished => (row.decimals, false),
        };
        let value = number(cell.value, decimals).show();
        let mark = if is_marked { KILLED_MARK } else { ' ' };
        let is_more = cell.noise.is_some_and(|noise| noise.verdict == Verdict::Difference);
        let width = width + 1;
        let bracket = match (layout.change(row, i), is_more) {
            _ if !self.has_brackets => mark.to_string(),
            (Some(change), true) => format!("{mark}*{change:>width$}*"),
            (Some(change), false) => format!("{mark}({change:>width$})"),
            // More than noise, but of a base of 0: by how much is no percentage.
            (None, true) => format!("{mark}*{:>width$}*", "-"),
            (None, false) => mark.to_string(),
        };
        (value, bracket.trim_end().to_owned())
    }
}

/// For whom a table is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    ForPeople,
    AsPublished,
}

impl Layout {
    /// The change in a cell's brackets, with its sign of percent.
    fn change(self, row: &ComparisonRow, i: usize) -> Option<String> {
        let percent = |percent: f64| format!("{}%", Value::Real(percent, 2).show());
        match self {
            Self::ForPeople => row.cells[i]
                .change_percent
                .map(|change| multiple(change).unwrap_or_else(|| percent(change))),
            Self::AsPublished => {
                let (base, new) = (row.cells.first()?.value?, row.cells[i].value?);
                printed_change_percent(row.better, base, new).map(percent)
            }
        }
    }
}

fn number(value: Option<f64>, decimals: u8) -> Value {
    match value {
        None => Value::Missing,
        // Counts stay whole in JSON; beyond 2^53 an f64 has none anyway.
        Some(x) if decimals == 0 && x.fract() == 0.0 && x.abs() < 9e15 => Value::Count(x as i64),
        Some(x) => Value::Real(x, decimals.into()),
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Difference => "difference",
        Verdict::NoDifference => "no difference",
        Verdict::TooFewSamples => "too few samples",
    }
}
