//! Latencies of each class: how they are distributed, how the tail falls, and their percentiles.

use std::collections::BTreeMap;

use highorder_record::compare::LatencyUnit;
use highorder_record::{Better, Comparison, Group, Latencies, Record, compare};
use highorder_report::axis::Axis;
use serde::Serialize;

use crate::plot::{Data, DataRef, Direction, Mark, Plane, Plot, Reader, Unit, Values, amount_axis};
use crate::series_class;
use crate::threads::variant_keys;

/// Bins of the distribution in a decade: each 12 % wider than the one before it. The histograms are
/// finer, but a curve of their own buckets would show nothing but their widths.
const BINS_PER_DECADE: f64 = 20.0;

/// The pictures of one class.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClassPictures {
    pub(crate) name: String,
    pub(crate) distribution: Plot,
    pub(crate) tail: Plot,
    pub(crate) data: Vec<Data>,
    pub(crate) reader: Reader,
}

/// The latencies of every class, pooled over each group's runs.
pub(crate) fn pooled(groups: &[Group<'_>]) -> BTreeMap<String, Vec<Latencies>> {
    let mut pooled: BTreeMap<String, Vec<Latencies>> = BTreeMap::new();
    for (i, group) in groups.iter().enumerate() {
        for (class, latencies) in group.records.iter().flat_map(|record| &record.latencies) {
            let of_class =
                pooled.entry(class.clone()).or_insert_with(|| vec![Latencies::new(); groups.len()]);
            of_class[i].merge(latencies);
        }
    }
    pooled
}

/// Compares count, mean and percentiles of every class, in the class's unit.
pub(crate) fn percentiles(
    groups: &[Group<'_>],
    pooled: &BTreeMap<String, Vec<Latencies>>,
) -> Comparison {
    let quantiles = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];
    let labels: Vec<&str> = groups.iter().map(|group| group.label.as_str()).collect();
    let rows = pooled.iter().flat_map(|(class, of_class)| {
        let LatencyUnit { name, ns: unit_ns, decimals } = LatencyUnit::of_class(class, groups);
        let row = |statistic: &str, of: &dyn Fn(&Latencies) -> Option<f64>| {
            let values = of_class.iter().map(|l| of(l).map(|ns| ns / unit_ns)).collect();
            compare::row_of_values(statistic, class, name, Better::Lower, decimals, values)
        };
        let counts = of_class.iter().map(|l| Some(l.count() as f64)).collect();
        let mut rows = vec![compare::row_of_values("count", class, "", Better::Neutral, 0, counts)];
        rows.push(row("mean", &|l| l.mean_ns()));
        for (name, quantile) in quantiles {
            rows.push(row(name, &|l| l.quantile_ns(quantile).map(|ns| ns as f64)));
        }
        rows.push(row("max", &|l| l.max_ns().map(|ns| ns as f64)));
        // Of a class in which nothing happened, the count says so.
        rows.retain(|row| row.cells.iter().any(|cell| cell.value.is_some()));
        let has_part = |record: &Record| record.latencies.contains_key(class);
        rows.iter_mut().for_each(|row| row.count_killed(groups, has_part));
        rows
    });
    compare::values("", &labels, rows)
}

/// Draws every class that holds something.
pub(crate) fn pictures(
    groups: &[Group<'_>],
    pooled: &BTreeMap<String, Vec<Latencies>>,
) -> Vec<ClassPictures> {
    let some = pooled.iter().filter(|(_, of_class)| of_class.iter().any(|l| l.count() > 0));
    some.enumerate().map(|(i, (name, of_class))| class(groups, i, name, of_class)).collect()
}

/// The bin of a latency; what took less than 1 ns is put with what took that.
fn bin_of(ns: u64) -> i64 {
    ((ns.max(1) as f64).log10() * BINS_PER_DECADE).floor() as i64
}

/// Where a bin begins, in nanoseconds.
fn beginning(bin: i64) -> f64 {
    10f64.powf(bin as f64 / BINS_PER_DECADE)
}

fn class(groups: &[Group<'_>], i: usize, name: &str, of_class: &[Latencies]) -> ClassPictures {
    let Binned { ends, shares, slower } = Binned::new(of_class);
    let (low, high) = (ends[0], ends[ends.len() - 1]);
    let x = Axis { range: (low, high), ..Axis::logarithmic([low, high].into_iter()) };
    let x_texts: Vec<String> = x.ticks.iter().map(|tick| Unit::Nanoseconds.show(*tick)).collect();
    let (linear, _, linear_texts) =
        amount_axis(shares.iter().flat_map(Values::iter), Unit::Percent, 5);
    let smallest = slower.iter().flat_map(Values::iter).fold(10.0, f64::min);
    let log = Axis::logarithmic([smallest, 100.0].into_iter());
    let log_texts: Vec<String> = log.ticks.iter().map(|tick| format!("{tick}")).collect();

    let group = format!("latency-{i}");
    let plot = |curves: Curves<'_>| Plot {
        title: curves.title.to_owned(),
        swatch: String::new(),
        unit: curves.unit.to_owned(),
        x: Direction::new(&x, &x_texts, false, 0.1),
        y: Direction::new(curves.y, curves.y_texts, true, 0.0),
        x_label: "latency".to_owned(),
        marks: curves.marks(&x, &ends),
        keys: variant_keys(groups, |i| of_class[i].count() > 0),
        data: Some(DataRef {
            source: format!("{group}-{}", curves.which),
            index: 0,
            group: group.clone(),
            unit: Unit::Percent.word().to_owned(),
            is_stepped: curves.is_stepped,
        }),
        label: curves.label,
    };
    let ns = |ns: Option<u64>| ns.map(|ns| Unit::Nanoseconds.show(ns as f64));
    let median = said(groups, of_class, |l| Some(format!("median {}", ns(l.quantile_ns(0.5))?)));
    let worst = said(groups, of_class, |l| {
        Some(format!("p99 {}, max {}", ns(l.quantile_ns(0.99))?, ns(l.max_ns())?))
    });
    let distribution = plot(Curves {
        which: "bins",
        title: "Distribution",
        label: format!("Distribution of {name}: {median}."),
        unit: "% of all in each bin",
        y: &linear,
        y_texts: &linear_texts,
        is_stepped: true,
        values: &shares,
    });
    let tail = plot(Curves {
        which: "tail",
        title: "Slower than",
        label: format!("Share of {name} that took longer: {worst}."),
        unit: "% of all",
        y: &log,
        y_texts: &log_texts,
        is_stepped: false,
        values: &slower,
    });
    let data = |which: &str, values: &[Values]| {
        Data::new(&format!("{group}-{which}"), &ends, &[values.iter().map(Some).collect()])
    };
    ClassPictures {
        name: name.to_owned(),
        data: vec![data("bins", &shares), data("tail", &slower)],
        reader: Reader::new(&group, "latency", &x, Unit::Nanoseconds.word()),
        distribution,
        tail,
    }
}

/// What is said of each group's latencies, in words.
fn said(
    groups: &[Group<'_>],
    of_class: &[Latencies],
    of: impl Fn(&Latencies) -> Option<String>,
) -> String {
    let words = groups.iter().zip(of_class).map(|(group, latencies)| match of(latencies) {
        Some(words) => format!("{} {words}", group.label),
        None => format!("{} none", group.label),
    });
    words.collect::<Vec<_>>().join("; ")
}

/// The latencies of a class in bins, for each group.
struct Binned {
    /// A step reaches from the place before to its own: the bins' ends, behind the beginning of the first.
    ends: Vec<f64>,
    /// The share of all in each bin, in percent.
    shares: Vec<Values>,
    /// The share of all that is slower than each end, in percent.
    slower: Vec<Values>,
}

impl Binned {
    fn new(of_class: &[Latencies]) -> Self {
        let bins: Vec<BTreeMap<i64, u64>> = of_class.iter().map(bins).collect();
        let (first, last) = bins
            .iter()
            .flat_map(BTreeMap::keys)
            .fold((i64::MAX, 0), |(a, b), bin| (a.min(*bin), b.max(*bin)));
        // An empty bin on either side lets the curves begin and end on the ground.
        let range: Vec<i64> = (first - 1..=last + 1).collect();
        let ends = std::iter::once(range[0]).chain(range.iter().map(|bin| bin + 1));
        let in_range: Vec<Vec<u64>> = bins
            .iter()
            .map(|bins| range.iter().map(|bin| bins.get(bin).copied().unwrap_or(0)).collect())
            .collect();
        let of_all = || of_class.iter().map(Latencies::count).zip(&in_range);
        Self {
            ends: ends.map(beginning).collect(),
            shares: of_all().map(|(all, counts)| shares(all, counts)).collect(),
            slower: of_all().map(|(all, counts)| slower(all, counts)).collect(),
        }
    }
}

/// How many latencies lie in each bin that has any.
fn bins(latencies: &Latencies) -> BTreeMap<i64, u64> {
    let mut bins: BTreeMap<i64, u64> = BTreeMap::new();
    for bucket in latencies.buckets() {
        *bins.entry(bin_of(bucket.low_ns.midpoint(bucket.high_ns))).or_default() += bucket.count;
    }
    bins
}

/// See [`Binned::shares`].
fn shares(all: u64, counts: &[u64]) -> Values {
    let share = |count: &u64| (all > 0).then(|| 100.0 * *count as f64 / all as f64);
    Values::Each(std::iter::once(None).chain(counts.iter().map(share)).collect())
}

/// See [`Binned::slower`].
fn slower(all: u64, counts: &[u64]) -> Values {
    let mut left = all;
    let mut slower = vec![(left > 0).then_some(100.0)];
    for count in counts {
        left -= count;
        slower.push((left > 0).then(|| 100.0 * left as f64 / all as f64));
    }
    Values::Each(slower)
}

/// A line for each group: what one picture of a class has of its own.
struct Curves<'a> {
    /// By what its values are named for the script.
    which: &'a str,
    title: &'a str,
    label: String,
    unit: &'a str,
    y: &'a Axis,
    y_texts: &'a [String],
    is_stepped: bool,
    values: &'a [Values],
}

impl Curves<'_> {
    fn marks(&self, x: &Axis, ends: &[f64]) -> Vec<Mark> {
        let plane = Plane { x, y: self.y };
        let mut marks = Vec::new();
        for (i, values) in self.values.iter().enumerate() {
            let Values::Each(each) = values else { continue };
            let mark =
                |kind: &str, d: String| Mark { class: format!("{kind} {}", series_class(i)), d };
            if self.is_stepped {
                marks.push(mark("area", plane.area_under_steps(ends, each)));
                marks.push(mark("line", plane.steps(ends, each)));
            } else {
                marks.push(mark("line", plane.line(ends, values)));
            }
        }
        marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_equal_ratios_and_nothing_falls_between_them() {
        assert_eq!(bin_of(0), 0);
        assert_eq!(bin_of(1), 0);
        assert_eq!(bin_of(1000), 60);
        for ns in [1_u64, 7, 999, 1001, 123_456_789] {
            let bin = bin_of(ns);
            assert!(beginning(bin) <= ns as f64 * (1.0 + 1e-12), "{ns}");
            assert!(beginning(bin + 1) > ns as f64, "{ns}");
        }
    }

    #[test]
    fn shares_sum_to_all_and_the_tail_falls_from_all_to_none() {
        let mut latencies = Latencies::new();
        (1..=1000_u64).for_each(|i| latencies.record(i * i * 10));
        let groups = [Group { label: "a".into(), records: Vec::new() }];
        let drawn = class(&groups, 0, "fault-base", &[latencies]);
        let numbers = |json: &str| -> Vec<f64> {
            let values = json.split_once("\"plots\":[[[").unwrap().1.trim_end_matches(['}', ']']);
            values.split(',').filter_map(|n| n.parse().ok()).collect()
        };
        let total: f64 = numbers(&drawn.data[0].json).iter().sum();
        assert!((total - 100.0).abs() < 1e-3, "{total}");
        let tail = numbers(&drawn.data[1].json);
        assert_eq!(tail[0], 100.0);
        assert!(tail.windows(2).all(|pair| pair[0] >= pair[1]), "{tail:?}");
        assert!(drawn.data[1].json.ends_with("null,null]]]}"), "{}", drawn.data[1].json);
    }
}
