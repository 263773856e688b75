//! Free memory at the end of one run of each variant: how much of it lies in blocks of which order.

use highorder_record::compare::{self, ComparisonRow};
use highorder_record::{Better, Comparison, Group, Record, ZoneState};
use highorder_report::axis::Axis;
use highorder_tables::text::significant;
use serde::Serialize;

use crate::plot::{Data, DataRef, Direction, Mark, Plane, Plot, Reader, Unit, Values, amount_axis};
use crate::series_class;
use crate::threads::variant_keys;

/// The order of a huge page on x86-64: 2 MiB of 4 KiB pages.
const HUGE_ORDER: usize = 9;

/// The pictures of the zones and the numbers behind them.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FreeBlocks {
    pub(crate) plots: Vec<Plot>,
    pub(crate) data: Vec<Data>,
    pub(crate) reader: Option<Reader>,
    /// Where in the run this is.
    pub(crate) when: &'static str,
}

/// A zone of the machine.
type ZoneName = (u32, String);

/// The zones at the end of a run: while the workload's memory was mapped, if that was captured.
fn zones(record: &Record) -> &[ZoneState] {
    &record.held.as_ref().unwrap_or(&record.after).zones
}

fn zone_names(runs: &[Option<&Record>]) -> Vec<ZoneName> {
    let mut names: Vec<ZoneName> = Vec::new();
    for zone in runs.iter().flatten().flat_map(|record| zones(record)) {
        let name = (zone.node, zone.zone.clone());
        if !zone.free_blocks.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Free blocks by order of a zone; none if they were not recorded.
fn blocks<'a>(record: Option<&'a Record>, (node, zone): &ZoneName) -> Option<&'a [u64]> {
    let zone = zones(record?).iter().find(|z| z.node == *node && z.zone == *zone)?;
    (!zone.free_blocks.is_empty()).then_some(zone.free_blocks.as_slice())
}

/// Draws the zones; `runs` has a run, or none, for each group.
pub(crate) fn free_blocks(id: &str, groups: &[Group<'_>], runs: &[Option<&Record>]) -> FreeBlocks {
    let held = runs.iter().flatten().filter(|record| record.held.is_some()).count();
    let when = match held {
        0 => "after the workload",
        n if n == runs.iter().flatten().count() => {
            "at the workload's end, while its memory was still mapped"
        }
        _ => {
            "at the end: where it was captured while the workload's memory was still mapped, else after"
        }
    };
    let names = zone_names(runs);
    let nr_orders = names.iter().flat_map(|name| runs.iter().filter_map(|run| blocks(*run, name)));
    let nr_orders = nr_orders.map(<[u64]>::len).max().unwrap_or(0);
    let x = Axis {
        range: (-0.5, nr_orders as f64 - 0.5),
        ticks: (0..nr_orders).map(|order| order as f64).collect(),
        log: false,
    };
    let mut drawn = FreeBlocks {
        plots: Vec::new(),
        data: Vec::new(),
        reader: (!names.is_empty()).then(|| Reader::new(id, "order", &x, "count")),
        when,
    };
    for (i, name) in names.iter().enumerate() {
        let (plot, data) = zone(id, i, name, groups, runs, &x);
        drawn.plots.push(plot);
        drawn.data.push(data);
    }
    drawn
}

fn zone(
    id: &str,
    i: usize,
    name: &ZoneName,
    groups: &[Group<'_>],
    runs: &[Option<&Record>],
    x: &Axis,
) -> (Plot, Data) {
    let source = format!("{id}-{i}");
    let bytes_of = |run: &Option<&Record>| {
        let page_bytes = f64::from((*run)?.page_bytes);
        let of_order = |(order, n): (usize, &u64)| *n as f64 * page_bytes * (1_u64 << order) as f64;
        let blocks = blocks(*run, name)?.iter().enumerate();
        Some(Values::Each(blocks.map(|block| Some(of_order(block))).collect()))
    };
    let bytes: Vec<Option<Values>> = runs.iter().map(bytes_of).collect();
    let all = bytes.iter().flatten().flat_map(Values::iter);
    let (y, unit, texts) = amount_axis(all, Unit::Bytes, 5);
    let plane = Plane { x, y: &y };
    let width = 0.8 / runs.len() as f64;
    let mut marks = Vec::new();
    for (run, values) in bytes.iter().enumerate() {
        let left = -0.4 + width * run as f64;
        let columns = values.iter().flat_map(|values| values.iter().enumerate());
        let columns = columns.map(|(order, bytes)| {
            let left = order as f64 + left;
            (left, left + 0.94 * width, bytes)
        });
        let d = plane.columns(&columns.collect::<Vec<_>>());
        marks.push(Mark { class: format!("bar {}", series_class(run)), d });
    }
    let (node, zone) = name;
    let said = groups.iter().zip(&bytes).zip(runs).map(|((group, bytes), run)| match bytes {
        Some(bytes) => {
            let free: f64 = bytes.iter().sum();
            let share = huge_share(blocks(*run, name)).map(|share| {
                format!(", {} % of it in blocks of order 9 and above", significant(share))
            });
            let share = share.unwrap_or_default();
            format!("{} {} free{share}", group.label, Unit::Bytes.show(free))
        }
        None => format!("{} not recorded", group.label),
    });
    let label = format!(
        "Free memory by order, node {node}, zone {zone}: {}.",
        said.collect::<Vec<_>>().join("; ")
    );
    let orders: Vec<String> = x.ticks.iter().map(f64::to_string).collect();
    let data = Data::new(&source, &x.ticks, &[bytes.iter().map(Option::as_ref).collect()]);
    let plot = Plot {
        title: format!("Node {node}, zone {zone}"),
        swatch: String::new(),
        unit,
        label,
        // Bars need no lines through them.
        x: Direction { grid: String::new(), ..Direction::new(x, &orders, false, 0.0) },
        y: Direction::new(&y, &texts, true, 0.0),
        x_label: "order".to_owned(),
        marks,
        keys: variant_keys(groups, |i| bytes[i].is_some()),
        data: Some(DataRef {
            source,
            index: 0,
            group: id.to_owned(),
            unit: Unit::Bytes.word().to_owned(),
            is_stepped: false,
        }),
    };
    (plot, data)
}

/// The share of a zone's free memory that lies in blocks of a huge page and above, in percent.
fn huge_share(blocks: Option<&[u64]>) -> Option<f64> {
    let pages = |(order, n): (usize, &u64)| (*n as f64) * (1_u64 << order) as f64;
    let all: f64 = blocks?.iter().enumerate().map(pages).sum();
    let huge: f64 = blocks?.iter().enumerate().skip(HUGE_ORDER).map(pages).sum();
    (all > 0.0).then(|| 100.0 * huge / all)
}

/// The numbers behind the pictures: free pages, the share fit for a huge page, and blocks by order.
pub(crate) fn numbers<'a>(groups: &[Group<'a>], runs: &[Option<&'a Record>]) -> Comparison {
    let mut rows: Vec<ComparisonRow> = Vec::new();
    for name in zone_names(runs) {
        let zone = format!("{} {}", name.0, name.1);
        let of_zone: Vec<Option<&[u64]>> = runs.iter().map(|run| blocks(*run, &name)).collect();
        let mut row = |statistic: &str, unit: &str, decimals, values: Vec<Option<f64>>| {
            let better = Better::Neutral;
            rows.push(compare::row_of_values(statistic, &zone, unit, better, decimals, values));
        };
        let pages = |blocks: &Option<&[u64]>| {
            let blocks = (*blocks)?.iter().enumerate();
            Some(blocks.map(|(order, n)| *n as f64 * (1_u64 << order) as f64).sum())
        };
        row("free", "pages", 0, of_zone.iter().map(pages).collect());
        row("order 9+", "%", 1, of_zone.iter().map(|blocks| huge_share(*blocks)).collect());
        let nr_orders = of_zone.iter().flatten().map(|blocks| blocks.len()).max().unwrap_or(0);
        for order in 0..nr_orders {
            let count =
                |blocks: &Option<&[u64]>| blocks.map(|b| b.get(order).map(|n| *n as f64))?;
            row(&format!("order {order}"), "blocks", 0, of_zone.iter().map(count).collect());
        }
    }
    let of_run = |(group, run): (&Group<'a>, &Option<&'a Record>)| Group {
        label: group.label.clone(),
        records: run.iter().copied().collect(),
    };
    let of_runs: Vec<Group<'_>> = groups.iter().zip(runs).map(of_run).collect();
    rows.iter_mut().for_each(|row| row.count_killed(&of_runs, |_| true));
    let labels: Vec<&str> = groups.iter().map(|group| group.label.as_str()).collect();
    Comparison { has_brackets: false, ..compare::values("", &labels, rows) }
}

#[cfg(test)]
mod tests {
    use highorder_record::{Inputs, State};

    use super::*;

    #[test]
    fn the_end_is_while_memory_is_held_if_that_was_captured() {
        let mut record = Record::new(Inputs::default());
        record.after.zone_mut(0, "Normal").free_blocks = vec![4, 0, 1];
        let groups = [Group { label: "a".into(), records: vec![&record] }];
        let drawn = free_blocks("m", &groups, &[Some(&record)]);
        assert_eq!(drawn.data[0].json, r#"{"x":[0,1,2],"plots":[[[16384,0,16384]]]}"#);
        assert_eq!(drawn.when, "after the workload");

        let mut held = record.clone();
        let mut state = State::default();
        state.zone_mut(1, "DMA32").free_blocks = vec![0; 11];
        state.zone_mut(1, "DMA32").free_blocks[9] = 3;
        held.held = Some(state);
        let drawn = free_blocks("m", &groups, &[Some(&held)]);
        assert_eq!(drawn.plots.len(), 1);
        assert_eq!(drawn.plots[0].title, "Node 1, zone DMA32");
        assert!(
            drawn.plots[0].label.contains("6 MiB free, 100 % of it"),
            "{}",
            drawn.plots[0].label
        );
        let table = numbers(&groups, &[Some(&held)]);
        let of = |name: &str| table.rows.iter().find(|row| row.statistic == name).unwrap().cells[0];
        assert_eq!((of("free").value, of("order 9").value), (Some(1536.0), Some(3.0)));
    }

    #[test]
    fn no_zones_no_picture() {
        let record = Record::new(Inputs::default());
        let groups = [Group { label: "a".into(), records: vec![&record] }];
        let drawn = free_blocks("m", &groups, &[Some(&record)]);
        assert!(drawn.plots.is_empty() && drawn.reader.is_none());
    }
}
