//! Metrics over the number of threads: a line for each variant, with the spread of its samples.

use highorder_record::{Better, Group, Metric, Sorted, Statistic};
use highorder_report::axis::Axis;
use highorder_tables::text::prefixed;
use serde::Serialize;

use crate::plot::{
    Data, DataRef, Direction, Key, Mark, Plane, Plot, Reader, Unit, Values, amount_axis,
};
use crate::series_class;

/// Pictures shown at once; the rest is folded.
const SHOWN: usize = 6;

/// The pictures of all metrics that were measured with several thread counts.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct OverThreads {
    pub(crate) shown: Vec<Plot>,
    pub(crate) folded: Vec<Plot>,
    pub(crate) data: Vec<Data>,
    pub(crate) reader: Option<Reader>,
    /// Which metrics are not drawn because nothing but zeros was measured of them.
    pub(crate) nothing: Option<String>,
}

/// A metric without its thread count.
struct Stem<'a> {
    name: &'a str,
    like: &'a Metric,
    threads: Vec<u64>,
}

/// Splits a metric's name: `System-48` is `System` with 48 threads.
fn split(name: &str) -> Option<(&str, u64)> {
    let (stem, threads) = name.rsplit_once('-')?;
    Some((stem, threads.parse().ok().filter(|&threads| threads > 0)?))
}

/// Draws the pictures.
pub(crate) fn over_threads(groups: &[Group<'_>]) -> OverThreads {
    let mut stems: Vec<Stem<'_>> = Vec::new();
    for metric in groups.iter().flat_map(|g| &g.records).flat_map(|record| &record.metrics) {
        let Some((name, threads)) = split(&metric.name) else { continue };
        match stems.iter_mut().find(|stem| stem.name == name) {
            Some(stem) if stem.threads.contains(&threads) => {}
            Some(stem) => stem.threads.push(threads),
            None => stems.push(Stem { name, like: metric, threads: vec![threads] }),
        }
    }
    stems.retain(|stem| stem.threads.len() > 1);
    let (nothing, mut stems): (Vec<_>, Vec<_>) =
        stems.into_iter().partition(|stem| is_nothing(groups, stem));
    let nothing: Vec<&str> = nothing.iter().map(|stem| stem.name).collect();
    let nothing = (!nothing.is_empty())
        .then(|| format!("Zero throughout, in every variant: {}.", nothing.join(", ")));
    // What has no good direction says least: it comes last.
    stems.sort_by_key(|stem| stem.like.better == Better::Neutral);
    let all = stems.iter().flat_map(|stem| &stem.threads).map(|&threads| threads as f64);
    let (low, high) = all.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), threads| {
        (low.min(threads), high.max(threads))
    });
    if stems.is_empty() {
        return OverThreads { nothing, ..OverThreads::default() };
    }
    // A little room at both ends, so that no dot lies on the edge.
    let room = (high / low).powf(0.04);
    let range = (low / room, high * room);

    let mut pictures = OverThreads {
        reader: Some(Reader::new(
            "threads",
            "threads",
            &Axis { range, ticks: Vec::new(), log: true },
            "count",
        )),
        nothing,
        ..OverThreads::default()
    };
    for (i, stem) in stems.iter_mut().enumerate() {
        stem.threads.sort_unstable();
        let (plot, data) = picture(groups, stem, range, &format!("threads-{i}"));
        pictures.data.push(data);
        if i < SHOWN { pictures.shown.push(plot) } else { pictures.folded.push(plot) }
    }
    pictures
}

/// Whether a metric was measured, and was zero in every sample of every variant.
fn is_nothing(groups: &[Group<'_>], stem: &Stem<'_>) -> bool {
    let names: Vec<String> =
        stem.threads.iter().map(|threads| format!("{}-{threads}", stem.name)).collect();
    let names = &names;
    let samples = groups.iter().flat_map(|group| names.iter().map(move |name| pooled(group, name)));
    let ends: Vec<f64> =
        samples.flat_map(|samples| [samples.min(), samples.max()]).flatten().collect();
    !ends.is_empty() && ends.iter().all(|&value| value == 0.0)
}

/// The samples of all of a group's runs.
fn pooled(group: &Group<'_>, name: &str) -> Sorted {
    let metrics = group.records.iter().filter_map(|record| record.metric(name));
    metrics.flat_map(|metric| metric.samples.iter().copied()).collect()
}

fn picture(groups: &[Group<'_>], stem: &Stem<'_>, range: (f64, f64), id: &str) -> (Plot, Data) {
    let threads: Vec<f64> = stem.threads.iter().map(|&threads| threads as f64).collect();
    let statistic = match stem.like.statistics.contains(&Statistic::Hmean) {
        true => Statistic::Hmean,
        false => Statistic::Amean,
    };
    let samples: Vec<Vec<Sorted>> = groups
        .iter()
        .map(|group| {
            let name = |threads: &u64| format!("{}-{threads}", stem.name);
            stem.threads.iter().map(|threads| pooled(group, &name(threads))).collect()
        })
        .collect();
    let means: Vec<Values> = samples
        .iter()
        .map(|steps| Values::Each(steps.iter().map(|samples| statistic.of(samples)).collect()))
        .collect();
    let x = Axis { range, ticks: threads.clone(), log: true };
    let largest = samples.iter().flatten().filter_map(Sorted::max);
    let smallest = samples.iter().flatten().filter_map(Sorted::min);
    let (y, _, texts) = amount_axis(largest.chain(smallest), Unit::Count, 5);
    let plane = Plane { x: &x, y: &y };

    let mut marks = Vec::new();
    for (i, (steps, means)) in samples.iter().zip(&means).enumerate() {
        let class = series_class(i);
        let mark = |kind: &str, d: String| Mark { class: format!("{kind} {class}"), d };
        // The variants' bars would hide each other at the same place.
        let aside =
            1.0 + 0.008 * (range.1 / range.0).ln() * (i as f64 - (groups.len() - 1) as f64 / 2.0);
        let spans: Vec<(f64, f64, f64)> = threads
            .iter()
            .zip(steps)
            .filter_map(|(x, samples)| Some((x * aside, samples.min()?, samples.max()?)))
            .collect();
        let dots: Vec<(f64, f64)> = match means {
            Values::Each(means) => {
                threads.iter().zip(means).filter_map(|(x, y)| Some((*x * aside, (*y)?))).collect()
            }
            Values::Constant(_) => Vec::new(),
        };
        let places: Vec<f64> = threads.iter().map(|x| x * aside).collect();
        marks.push(mark("spread", plane.bars(&spans)));
        marks.push(mark("line", plane.line(&places, means)));
        marks.push(mark("dots", plane.dots(&dots)));
    }
    let better = match stem.like.better {
        Better::Lower => "lower is better",
        Better::Higher | Better::Points => "higher is better",
        Better::Neutral => "",
    };
    let words: Vec<&str> =
        [stem.like.unit.as_str(), better].into_iter().filter(|word| !word.is_empty()).collect();
    let said = groups.iter().zip(&means).map(|(group, means)| {
        let ends: Vec<f64> = means.iter().collect();
        match (ends.first(), ends.last()) {
            (Some(first), Some(last)) => {
                format!("{} from {} to {}", group.label, prefixed(*first), prefixed(*last))
            }
            _ => format!("{} not measured", group.label),
        }
    });
    let label = format!(
        "{} in {} from {} to {} threads: {}.",
        stem.name,
        stem.like.unit,
        threads[0],
        threads[threads.len() - 1],
        said.collect::<Vec<_>>().join("; ")
    );
    let lines: Vec<Option<&Values>> = means.iter().map(Some).collect();
    let data = Data::new(id, &threads, &[lines]);
    let names: Vec<String> = stem.threads.iter().map(u64::to_string).collect();
    let plot = Plot {
        title: stem.name.to_owned(),
        swatch: String::new(),
        unit: words.join(", "),
        label,
        x: Direction::new(&x, &names, false, 0.07),
        y: Direction::new(&y, &texts, true, 0.0),
        x_label: "threads".to_owned(),
        marks,
        keys: variant_keys(groups, |i| means[i].iter().next().is_some()),
        data: Some(DataRef {
            source: id.to_owned(),
            index: 0,
            group: "threads".to_owned(),
            unit: format!("plain {}", stem.like.unit).trim_end().to_owned(),
            is_stepped: false,
        }),
    };
    (plot, data)
}

/// The legend of a plot with a line for each variant.
pub(crate) fn variant_keys(groups: &[Group<'_>], is_there: impl Fn(usize) -> bool) -> Vec<Key> {
    let key = |(i, group): (usize, &Group<'_>)| Key {
        class: series_class(i),
        name: group.label.clone(),
        is_there: is_there(i),
    };
    groups.iter().enumerate().map(key).collect()
}

#[cfg(test)]
mod tests {
    use highorder_record::{Inputs, Record};

    use super::*;

    fn record(metrics: &[(&str, &[f64])]) -> Record {
        let mut record = Record::new(Inputs::default());
        record.metrics = metrics
            .iter()
            .map(|(name, samples)| {
                Metric::new(*name, "s", Better::Lower).with_samples(samples.iter().copied())
            })
            .collect();
        record
    }

    #[test]
    fn only_metrics_of_several_thread_counts_are_drawn_in_their_order() {
        let records = [
            record(&[("System-12", &[4.0, 6.0]), ("Elapsd-12", &[1.0]), ("mmap", &[1.0])]),
            record(&[("System-2", &[1.0]), ("fault-base", &[2.0]), ("System-4", &[])]),
        ];
        let group = Group { label: "a".into(), records: records.iter().collect() };
        let pictures = over_threads(&[group]);
        let titles: Vec<&str> = pictures.shown.iter().map(|plot| plot.title.as_str()).collect();
        assert_eq!(titles, ["System"]);
        assert_eq!(pictures.data[0].json, r#"{"x":[2,4,12],"plots":[[[1,null,5]]]}"#);
        let names: Vec<&str> =
            pictures.shown[0].x.ticks.iter().map(|tick| tick.text.as_str()).collect();
        assert_eq!(names, ["2", "4", "12"]);
    }

    #[test]
    fn a_metric_that_is_zero_throughout_is_named_and_not_drawn() {
        let records = [
            record(&[("faults-2", &[1.0]), ("swapped-2", &[0.0]), ("killed-2", &[])]),
            record(&[("faults-4", &[0.0]), ("swapped-4", &[0.0, 0.0]), ("killed-4", &[])]),
        ];
        let group = Group { label: "a".into(), records: records.iter().collect() };
        let pictures = over_threads(&[group]);
        let plots = pictures.shown.iter().chain(&pictures.folded);
        let titles: Vec<&str> = plots.map(|plot| plot.title.as_str()).collect();
        assert_eq!(titles, ["faults", "killed"], "what was not measured is not zero");
        let said = pictures.nothing.as_deref();
        assert_eq!(said, Some("Zero throughout, in every variant: swapped."));
    }

    #[test]
    fn where_all_metrics_are_zero_no_picture_is_left() {
        let records = [record(&[("swapped-2", &[0.0])]), record(&[("swapped-4", &[0.0])])];
        let group = Group { label: "a".into(), records: records.iter().collect() };
        let pictures = over_threads(&[group]);
        assert!(pictures.shown.is_empty() && pictures.nothing.is_some());
    }

    #[test]
    fn without_thread_counts_there_is_no_picture() {
        let records = [record(&[("System-12", &[4.0]), ("a-b", &[1.0])])];
        let group = Group { label: "a".into(), records: records.iter().collect() };
        let pictures = over_threads(&[group]);
        assert!(pictures.shown.is_empty() && pictures.reader.is_none());
    }
}
