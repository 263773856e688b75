//! Fallbacks, which a kernel traces and does not count.
//!
//! Models: the tracepoint mm_page_alloc_extfrag, whose field `fragmenting` says that less than a pageblock was
//! found (include/trace/events/kmem.h, v4.20).

use highorder_mm::Memory;
use highorder_mm::types::Migratetype;
use highorder_record::{Better, Metric, Record, Statistic};

/// All fallbacks.
const ALL: &str = "mm_page_alloc_extfrag";
/// Those that mix types in a pageblock, by the type asked for.
const FRAGMENTING: [(Migratetype, &str, &str); 3] = [
    (Migratetype::Unmovable, "mm_page_alloc_extfrag_unmovable", "unmovable"),
    (Migratetype::Movable, "mm_page_alloc_extfrag_movable", "movable"),
    (Migratetype::Reclaimable, "mm_page_alloc_extfrag_reclaimable", "reclaimable"),
];

/// Fallbacks since boot.
pub(super) fn counters(memory: &Memory) -> impl Iterator<Item = (&'static str, u64)> + use<> {
    let counts = memory.fallbacks();
    let by_type = FRAGMENTING.map(|(asked, name, _)| (name, counts.fragmenting[asked.index()]));
    core::iter::once((ALL, counts.all)).chain(by_type)
}

/// Fragmenting fallbacks during a run, and by the type asked for: nothing of the latter where there was none.
pub(super) fn metrics(record: &Record) -> Vec<Metric> {
    let nr = |name: &str| record.delta(name).unwrap_or(0) as f64;
    let row = |name: String, value: f64| {
        Metric::new(name, "", Better::Lower).shown_as(&[Statistic::Plain], 0).with_samples([value])
    };
    let all: f64 = FRAGMENTING.iter().map(|&(_, name, _)| nr(name)).sum();
    let mut metrics = vec![row("Fragmentation events".to_owned(), all)];
    if all > 0.0 {
        let parts = FRAGMENTING.iter().map(|&(_, name, of)| (of, nr(name)));
        metrics.extend(parts.map(|(of, nr)| row(format!("Fragmentation events {of}"), nr)));
    }
    metrics
}
