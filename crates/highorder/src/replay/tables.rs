//! The tables of a free-running replay: recorded, model, and models under other kernels, side by side.

use highorder_lab::free_running::{Comparison, FallbackKind, FreeKind, Side};
use highorder_mm::types::{MAX_PAGE_ORDER, Migratetype, Order};
use highorder_report::MemoryMap;
use highorder_tables::{Table, Value};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Every order.
pub(super) const ORDERS: RangeInclusive<u8> = 0..=MAX_PAGE_ORDER;

/// Pages that lie in free blocks of one order.
pub(super) fn free_pages_of_order(side: &Side, order: u8) -> u64 {
    let blocks = side.free_blocks.iter().filter(|((.., o, _), _)| o.0 == order);
    blocks.map(|(_, nr)| nr << order).sum()
}

/// The summary, fallbacks by kind, free blocks by place.
/// `maps` are those of the sides.
pub(super) fn all(comparison: &Comparison, maps: &[MemoryMap]) -> Vec<Table> {
    vec![summary(comparison, maps), fallbacks(comparison), free_blocks(comparison)]
}

/// A table with a column for what a row is, and one for each side.
fn table(title: &str, first: &[(&str, &str)], comparison: &Comparison) -> Table {
    let sides = sides(comparison).map(|side| (side.name.as_str(), side.name.as_str()));
    let columns: Vec<_> = first.iter().copied().chain(sides).collect();
    Table::new(title, &columns)
}

fn sides(comparison: &Comparison) -> impl Iterator<Item = &Side> {
    std::iter::once(&comparison.recorded).chain(&comparison.models)
}

fn summary(comparison: &Comparison, maps: &[MemoryMap]) -> Table {
    let mut table = table("At the end", &[("", "measure")], comparison);
    let recorded = &comparison.recorded;
    let mut row = |name: &str, value: &dyn Fn(&Side) -> Value| {
        let values = sides(comparison).map(value);
        table.push(std::iter::once(Value::from(name)).chain(values).collect());
    };
    let count = |n: u64| Value::Count(n as i64);
    let of_model = |side: &Side, value: Value| {
        if std::ptr::eq(side, recorded) { Value::Missing } else { value }
    };
    row("distance of free blocks, 0 to 1", &|s| of_model(s, Value::Real(s.distance(recorded), 4)));
    row("distance of free pages, 0 to 1", &|s| {
        of_model(s, Value::Real(s.distance_by_pages(recorded), 4))
    });
    row("frames used alike", &|s| of_model(s, Value::Percent(100.0 * s.same_use(recorded))));
    row("requests not served", &|s| of_model(s, count(s.unserved)));
    row("free pages", &|s| count(s.free_pages()));
    row("free blocks", &|s| count(s.free_blocks.values().sum()));
    row("free memory unusable for a huge page", &|s| {
        let usable: u64 = (9..=MAX_PAGE_ORDER).map(|order| free_pages_of_order(s, order)).sum();
        Value::Percent(100.0 * (1.0 - usable as f64 / s.free_pages().max(1) as f64))
    });
    row("fallbacks", &|s| count(s.nr_fallbacks()));
    row("  that mixed pageblocks", &|s| count(s.fragmenting()));
    for migratetype in Migratetype::ALL {
        let of_type = |s: &Side| s.pageblocks_by_type()[migratetype.index()];
        if sides(comparison).any(|side| of_type(side) > 0) {
            row(&format!("pageblocks {migratetype}"), &|s| count(of_type(s)));
        }
    }
    let mixed = maps.iter().map(|map| count(map.statistics().pageblocks_mixed));
    table.push(std::iter::once(Value::from("pageblocks mixed")).chain(mixed).collect());
    table
}

fn fallbacks(comparison: &Comparison) -> Table {
    let first = [("fallback", "way"), ("for", "migratetype"), ("from", "fallback_migratetype")];
    let mut table = table("Fallbacks by kind", &first, comparison);
    let kinds: BTreeSet<&FallbackKind> =
        sides(comparison).flat_map(|side| side.fallbacks.keys()).collect();
    for kind in kinds {
        let (way, migratetype, from) = kind;
        let mut row: Vec<Value> =
            vec![way.label().into(), migratetype.to_string().into(), from.to_string().into()];
        row.extend(sides(comparison).map(|side| nr(side.fallbacks.get(kind))));
        table.push(row);
    }
    table
}

fn free_blocks(comparison: &Comparison) -> Table {
    let first = [("node", "node"), ("zone", "zone"), ("order", "order"), ("type", "migratetype")];
    let mut table = table("Free blocks", &first, comparison);
    let kinds: BTreeSet<&FreeKind> =
        sides(comparison).flat_map(|side| side.free_blocks.keys()).collect();
    for kind in kinds {
        let (node, zone, Order(order), migratetype) = kind;
        let mut row: Vec<Value> = vec![
            node.0.into(),
            zone.to_string().into(),
            u32::from(*order).into(),
            migratetype.to_string().into(),
        ];
        row.extend(sides(comparison).map(|side| nr(side.free_blocks.get(kind))));
        table.push(row);
    }
    table
}

fn nr(count: Option<&u64>) -> Value {
    Value::Count(count.copied().unwrap_or(0) as i64)
}
