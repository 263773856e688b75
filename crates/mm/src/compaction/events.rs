//! What compaction does, told event by event, for whoever asks for it.
//!
//! Models: include/trace/events/compaction.h and migrate.h (`mm_compaction_*`, `mm_migrate_pages`): which
//! events there are, where in a run they come, and what they say; v4.4 to v6.12.
//! Departs: where reclaim asks whether compaction would be worth while, `mm_compaction_suitable` is not
//! told. Visible as: fewer of these events than a kernel under memory pressure has.

use super::{CompactResult, Scanned};
use crate::fast_search::MigrateMode;
use crate::memory::Memory;
use crate::types::{Order, Pfn};
use crate::zone::ZoneId;
use std_alloc::vec::Vec;

/// A zone's deferral of compaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deferral {
    /// The zone.
    pub zone: ZoneId,
    /// The order that was asked for.
    pub order: Order,
    /// The smallest order whose runs failed.
    pub order_failed: Order,
    /// Runs asked for since the last one that was made.
    pub considered: u32,
    /// Of `2^defer_shift` runs one is made.
    pub defer_shift: u8,
}

/// Where a run's scanners are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scanners {
    /// The zone.
    pub zone: ZoneId,
    /// Of the migrate scanner.
    pub migrate_pfn: Pfn,
    /// Of the free scanner.
    pub free_pfn: Pfn,
    /// Whether the run waits for anything.
    pub is_sync: bool,
}

/// Something that compaction did. The names are those of the kernel's events, without `mm_compaction_` but
/// for the last two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompactEvent {
    /// A run begins.
    Begin(Scanners),
    /// A run is over.
    End(Scanners, CompactResult),
    /// Whether a run would be worth while; the order is `None` for all there is (-1).
    Suitable(ZoneId, Option<Order>, CompactResult),
    /// Whether the run is done.
    Finished(ZoneId, Option<Order>, CompactResult),
    /// The migrate scanner went over frames.
    IsolateMigratepages(Scanned),
    /// The free scanner went over frames.
    IsolateFreepages(Scanned),
    /// The free lists were searched for pages to move to, between two frames.
    FastIsolateFreepages(Scanned),
    /// A batch was migrated.
    Migratepages {
        /// Base pages that moved.
        nr_migrated: u32,
        /// Base pages that did not.
        nr_failed: u32,
    },
    /// A run was put off.
    Deferred(Deferral),
    /// Runs are put off for longer from now on.
    DeferCompaction(Deferral),
    /// Runs are put off no more.
    DeferReset(Deferral),
    /// `mm_migrate_pages_start`: migration of a batch begins.
    MigratePagesStart(MigrateMode),
    /// `mm_migrate_pages`: what came of it.
    MigratePages {
        /// Base pages that moved.
        nr_succeeded: u32,
        /// Pages that count as failed.
        nr_failed: u32,
        /// How hard it tried.
        mode: MigrateMode,
    },
}

impl Memory {
    /// Keeps compaction's events for [`Self::take_compact_events`] from now on. Until then they cost
    /// nothing.
    pub fn keep_compact_events(&mut self) {
        self.compact_events.get_or_insert_default();
    }

    /// What compaction did since this was last asked for; nothing, unless events are kept.
    pub fn take_compact_events(&mut self) -> Vec<CompactEvent> {
        self.compact_events.as_mut().map(core::mem::take).unwrap_or_default()
    }

    #[inline]
    pub(super) fn note_compact(&mut self, event: CompactEvent) {
        if let Some(events) = &mut self.compact_events {
            events.push(event);
        }
    }

    /// Notes that it was asked whether a run would be worth while, and the answer.
    pub fn note_suitable(&mut self, id: ZoneId, order: Option<Order>, result: CompactResult) {
        self.note_compact(CompactEvent::Suitable(id, order, result));
    }

    /// How a zone's deferral stands, for its events.
    pub(super) fn deferral(&self, id: ZoneId, order: Order) -> Deferral {
        let compact = &self.zones[id.index()].compact;
        Deferral {
            zone: id,
            order,
            order_failed: compact.order_failed,
            considered: compact.considered,
            defer_shift: compact.defer_shift,
        }
    }
}
