//! The numbers of a map as JSON.
//!
//! What depends on frames of which the use is not known is an object of `least` and `most`.

use highorder_mm::types::Migratetype;
use highorder_report::{MapZone, MemoryMap, Mobility, Statistics, UseClass};
use highorder_snapshot::Snapshot;
use serde_json::{Map, Value, json};

/// All that the map shows but for where each frame lies.
pub(super) fn object(map: &MemoryMap, snapshot: &Snapshot) -> Value {
    let by_zone: Vec<Statistics> = map.zones.iter().map(|z| map.zone_statistics(z)).collect();
    let mut all = Statistics::default();
    by_zone.iter().for_each(|zone| all.add(zone));
    let zones: Vec<Value> = map.zones.iter().zip(&by_zone).map(|(z, s)| zone(map, z, s)).collect();
    json!({
        "title": map.title,
        "exactness": snapshot.exactness.name(),
        "kernel_release": snapshot.kernel_release,
        "taken_at_s": snapshot.taken_at_s,
        "inferred": snapshot.inferred,
        "pageblock_order": map.pageblock_order.0,
        "zones": zones,
        "all": numbers(map, &all, map.zones.iter().map(|zone| zone.per_cpu_somewhere).sum()),
    })
}

fn zone(map: &MemoryMap, zone: &MapZone, s: &Statistics) -> Value {
    let mut object = json!({
        "node": zone.node,
        "zone": zone.kind.name(),
        "start_pfn": zone.start.0,
        "spanned_pages": zone.spanned,
        "present_pages": zone.present,
    });
    let numbers = numbers(map, s, zone.per_cpu_somewhere);
    if let (Value::Object(object), Value::Object(numbers)) = (&mut object, numbers) {
        object.extend(numbers);
    }
    object
}

fn numbers(map: &MemoryMap, s: &Statistics, per_cpu_somewhere: u64) -> Value {
    let uses = UseClass::ALL.into_iter().filter(|class| *class != UseClass::Hole);
    let uses: Map<String, Value> =
        uses.map(|class| (class.key().to_owned(), s.of(class).into())).collect();
    let types = Migratetype::ALL.into_iter().filter(|of| s.pageblocks_by_type[of.index()] > 0);
    let types: Map<String, Value> =
        types.map(|of| (of.name().to_owned(), s.pageblocks_by_type[of.index()].into())).collect();
    let pinners: Vec<Value> = s
        .pinners
        .iter()
        .map(|pinner| {
            json!({
                "name": pinner.name,
                "mobility": pinner.mobility.name(),
                "pageblocks": pinner.pageblocks,
                "pages": pinner.pages,
            })
        })
        .collect();
    // Of what is not known nothing is said, rather than 0.
    let known = |value: Value| if s.knows_uses() { value } else { Value::Null };
    let range = |[least, most]: [u64; 2]| known(json!({ "least": least, "most": most }));
    json!({
        "managed_pages": s.managed_pages,
        "free_pages": s.free_pages(),
        "nr_free": s.nr_free,
        "unusable_index": s.unusable_index(map.pageblock_order),
        "pages_by_use": uses,
        "per_cpu_pages_among_unknown": per_cpu_somewhere,
        "movable_pages": known(s.of_mobility(Mobility::Movable).into()),
        "reclaimable_pages": known(s.of_mobility(Mobility::Reclaimable).into()),
        "pinned_pages": range(s.pinned_pages()),
        "pageblocks": s.pageblocks,
        "pageblocks_by_type": types,
        "pageblocks_free": known(s.pageblocks_free.into()),
        "pageblocks_mixed": range(s.mixed()),
        "pageblocks_nearly_free": range(s.nearly_free()),
        "pinned_by": pinners,
    })
}
