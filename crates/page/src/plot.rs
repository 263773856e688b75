//! Plots: what the template draws and the script reads.
//!
//! The marks are paths of a [`Plane`], which is stretched to the room there is; every word and number stands beside
//! it as text of the page. So a plot is readable at any width, follows the page's colours, and needs no script.
//! Colours and dashes are classes of the style sheet. The charts of `report`, which are pictures, place their points
//! by the same plane and draw words as well, whose width they take from a font.

use highorder_report::axis::{Axis, Zero};
pub(crate) use highorder_report::plane::{Plane, Values};
use highorder_report::plane::{grid, percent};
use highorder_tables::text::{prefixed, significant};
use serde::Serialize;

/// What values are counted in, and how they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    BytesPerSecond,
    /// Plain numbers, with decimal prefixes.
    Count,
    PerSecond,
    Percent,
    Nanoseconds,
    Seconds,
}

impl Unit {
    /// The name that the script knows it by.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes/s",
            Self::Count => "count",
            Self::PerSecond => "count/s",
            Self::Percent => "percent",
            Self::Nanoseconds => "ns",
            Self::Seconds => "s",
        }
    }

    /// A value to three digits, with its unit.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Self::Bytes => bytes(value),
            Self::BytesPerSecond => format!("{}/s", bytes(value)),
            Self::Count => prefixed(value),
            Self::PerSecond => format!("{}/s", prefixed(value)),
            Self::Percent => format!("{} %", significant(value)),
            Self::Nanoseconds => nanoseconds(value),
            Self::Seconds => format!("{} s", significant(value)),
        }
    }
}

/// Binary units, largest first.
const BINARY: [(f64, &str); 4] = [
    ((1u64 << 40) as f64, "TiB"),
    ((1u64 << 30) as f64, "GiB"),
    ((1u64 << 20) as f64, "MiB"),
    (1024.0, "KiB"),
];

fn bytes(value: f64) -> String {
    match binary_unit(value) {
        Some((size, name)) => format!("{} {name}", significant(value / size)),
        None => format!("{} B", significant(value)),
    }
}

/// The largest unit of which there is at least one; 1000 KiB and above are MiB.
fn binary_unit(value: f64) -> Option<(f64, &'static str)> {
    BINARY.into_iter().find(|(size, _)| value.abs() >= size * (1000.0 / 1024.0))
}

fn nanoseconds(value: f64) -> String {
    let (size, name) = match value.abs() {
        v if v >= 0.9995e9 => (1e9, "s"),
        v if v >= 0.9995e6 => (1e6, "ms"),
        v if v >= 0.9995e3 => (1e3, "µs"),
        _ => (1.0, "ns"),
    };
    format!("{} {name}", significant(value / size))
}

/// One plot.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Plot {
    pub(crate) title: String,
    /// The class of the line before the title; empty for none.
    pub(crate) swatch: String,
    /// What the numbers at the axis are counted in; empty if they say it themselves.
    pub(crate) unit: String,
    /// What is seen, for those who do not see it.
    pub(crate) label: String,
    pub(crate) x: Direction,
    pub(crate) y: Direction,
    /// What stands under the horizontal axis.
    pub(crate) x_label: String,
    pub(crate) marks: Vec<Mark>,
    pub(crate) keys: Vec<Key>,
    /// Where the script finds the values; none in a plot without any.
    pub(crate) data: Option<DataRef>,
}

/// One direction of a plot.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Direction {
    pub(crate) ticks: Vec<Tick>,
    /// The grid's lines.
    pub(crate) grid: String,
}

/// A number at an axis.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Tick {
    /// Where, in percent from the left or the bottom.
    pub(crate) at: String,
    /// Empty where there is no room for it.
    pub(crate) text: String,
}

/// A path.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Mark {
    /// Classes of the style sheet.
    pub(crate) class: String,
    pub(crate) d: String,
}

/// An entry of the legend.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Key {
    /// Classes of its line.
    pub(crate) class: String,
    pub(crate) name: String,
    /// Whether there is such a line; if not, the legend says so.
    pub(crate) is_there: bool,
}

/// Where a plot's values are, and how the script finds its way.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DataRef {
    /// The element that holds them.
    pub(crate) source: String,
    /// Which of the plots in it.
    pub(crate) index: usize,
    /// Plots of one group move their cursors together.
    pub(crate) group: String,
    /// How a value is shown: a unit's word, or `plain` and what to put behind the number.
    pub(crate) unit: String,
    /// Whether a value holds from the sample before to its own, as a rate does.
    pub(crate) is_stepped: bool,
}

/// What moves the cursor of a group of plots from the keyboard.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Reader {
    pub(crate) group: String,
    /// Of what it tells, as in `time`.
    pub(crate) name: String,
    pub(crate) low: String,
    pub(crate) high: String,
    pub(crate) is_log: bool,
    pub(crate) unit: String,
}

impl Reader {
    pub(crate) fn new(group: &str, name: &str, axis: &Axis, unit: &str) -> Self {
        Self {
            group: group.to_owned(),
            name: name.to_owned(),
            low: number(axis.range.0),
            high: number(axis.range.1),
            is_log: axis.log,
            unit: unit.to_owned(),
        }
    }
}

/// The values of one or several plots over the same places, for the script.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Data {
    pub(crate) id: String,
    /// JSON of numbers alone, so nothing in it can end the element that it stands in.
    pub(crate) json: String,
}

impl Data {
    /// `x` are the places; `plots` the values of each line of each plot, none where a line is missing.
    pub(crate) fn new(id: &str, x: &[f64], plots: &[Vec<Option<&Values>>]) -> Self {
        let list = |items: Vec<String>| format!("[{}]", items.join(","));
        let line = |values: &Option<&Values>| match values {
            None => "null".to_owned(),
            Some(Values::Constant(value)) => number(*value),
            Some(Values::Each(values)) => {
                list(values.iter().map(|v| v.map_or("null".to_owned(), number)).collect())
            }
        };
        let plots = plots.iter().map(|lines| list(lines.iter().map(line).collect())).collect();
        let x = list(x.iter().map(|x| number(*x)).collect());
        Self { id: id.to_owned(), json: format!(r#"{{"x":{x},"plots":{}}}"#, list(plots)) }
    }
}

/// A number for the script: six digits, which is more than is ever shown.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "null".to_owned();
    }
    if value == value.trunc() && value.abs() < 1e15 {
        return format!("{value}");
    }
    // Through text and back: the digits cut, the shortest form kept.
    format!("{value:.5e}").parse::<f64>().map_or("null".to_owned(), |rounded| rounded.to_string())
}

/// A linear axis of a unit: its ticks are round in the unit that the largest value asks for. Returns
/// what the ticks are counted in and how they are written; there are about `count` of them.
pub(crate) fn amount_axis(
    values: impl Iterator<Item = f64>,
    unit: Unit,
    count: usize,
) -> (Axis, String, Vec<String>) {
    let values: Vec<f64> = values.filter(|v| v.is_finite()).collect();
    let largest = values.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
    let (size, name) = match unit {
        Unit::Bytes | Unit::BytesPerSecond => binary_unit(largest).unwrap_or((1.0, "B")),
        _ => (1.0, ""),
    };
    let mut axis = Axis::linear(values.iter().map(|v| v / size), count, Zero::Included);
    let texts = axis.ticks.iter().map(|tick| match unit {
        Unit::Bytes | Unit::BytesPerSecond | Unit::Percent | Unit::Seconds => significant(*tick),
        _ => prefixed(*tick),
    });
    let texts = texts.collect();
    axis.ticks.iter_mut().for_each(|tick| *tick *= size);
    axis.range = (axis.range.0 * size, axis.range.1 * size);
    let name = match unit {
        Unit::Bytes => name.to_owned(),
        Unit::BytesPerSecond => format!("{name}/s"),
        Unit::Count | Unit::Nanoseconds => String::new(),
        Unit::PerSecond => "per second".to_owned(),
        Unit::Percent => "%".to_owned(),
        Unit::Seconds => "s".to_owned(),
    };
    (axis, name, texts)
}

impl Direction {
    /// The grid and the numbers of an axis; `texts` are what the ticks say.
    ///
    /// A number that would come nearer than `least` (a share of the axis) to the one before is left
    /// out.
    pub(crate) fn new(axis: &Axis, texts: &[String], is_vertical: bool, least: f64) -> Self {
        let mut ticks = Vec::new();
        let mut last: Option<f64> = None;
        for (tick, text) in axis.ticks.iter().zip(texts) {
            let Some(share) = axis.share_within(*tick) else { continue };
            let has_room = last.is_none_or(|last| share - last >= least);
            last = if has_room { Some(share) } else { last };
            let text = if has_room { text.clone() } else { String::new() };
            ticks.push(Tick { at: percent(share), text });
        }
        Self { ticks, grid: grid(axis, is_vertical) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_for_the_script_are_numbers_and_nothing_else() {
        let line = Values::Each(vec![Some(1.0), None, Some(1.0 / 3.0)]);
        let data = Data::new(
            "d",
            &[0.0, 0.1, 2.5e10],
            &[vec![Some(&line), None], vec![Some(&Values::Constant(7.0))]],
        );
        assert_eq!(
            data.json,
            r#"{"x":[0,0.1,25000000000],"plots":[[[1,null,0.333333],null],[7]]}"#
        );
        assert_eq!(number(f64::NAN), "null");
        assert_eq!(number(123_456_789.5), "123457000");
    }

    #[test]
    fn an_axis_of_bytes_is_round_in_its_own_unit() {
        let gib = (1u64 << 30) as f64;
        let (axis, unit, texts) = amount_axis([0.2 * gib, 3.7 * gib].into_iter(), Unit::Bytes, 4);
        assert_eq!((unit.as_str(), texts.join(" ").as_str()), ("GiB", "0 1 2 3 4"));
        assert_eq!(axis.range, (0.0, 4.0 * gib));
    }

    #[test]
    fn values_read_with_their_unit() {
        assert_eq!(Unit::Bytes.show(1_073_741_824.0), "1 GiB");
        assert_eq!(Unit::BytesPerSecond.show(512.0), "512 B/s");
        assert_eq!(Unit::Nanoseconds.show(1_250_000.0), "1.25 ms");
        assert_eq!(Unit::PerSecond.show(12_345.0), "12.3 k/s");
        assert_eq!(Unit::Percent.show(99.5), "99.5 %");
        assert_eq!(Unit::Seconds.show(0.25), "0.25 s");
    }
}
