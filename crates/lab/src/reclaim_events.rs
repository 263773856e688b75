//! What a trace tells of reclaim: waits for devices, pages written, pages taken beside victims.
//!
//! Models: the summaries of `writeback_congestion_wait`, `writeback_wait_iff_congested` and `mm_vmscan_writepage` that
//! mmtests made in 2012 (`FTrace congestion_wait`, `FTrace mm_vmscan_writepage`), for text of any kernel that has these
//! events and for the model's.
//! Departs: kswapd is known by its name. Visible as: where ftrace has forgotten that (`<...>`), its events count as
//! direct reclaim's.

use highorder_kernelfs::trace::{CongestionWait, Event, LruIsolate};
use highorder_tables::{Table, Value};
use std::collections::BTreeMap;

/// Who reclaims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Direct,
    Kswapd,
}

impl Who {
    const ALL: [Self; 2] = [Self::Direct, Self::Kswapd];

    fn of(comm: &[u8]) -> Self {
        if comm.trim_ascii_start().starts_with(b"kswapd") { Self::Kswapd } else { Self::Direct }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Direct => "Direct",
            Self::Kswapd => "KSwapd",
        }
    }
}

/// Waits of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    number: u64,
    /// Those that lasted as long as they were meant to at most.
    full: u64,
    delayed_us: u64,
}

/// Pages taken off lists of one kind for one order.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    batches: u64,
    scanned: u64,
    taken: u64,
    beside: u64,
    beside_dirty: u64,
    left_early: u64,
}

/// What a trace tells of reclaim, added up.
#[derive(Clone, Debug, Default)]
pub struct ReclaimEvents {
    /// Events in all.
    pub nr_events: u64,
    /// By who waited, and whether that depended on congestion.
    waits: BTreeMap<(Who, bool), Waits>,
    /// By who wrote, what, and whether that was waited for.
    writes: BTreeMap<(Who, &'static str, &'static str), u64>,
    /// By who took, for which order, active ones or not, of files or not.
    taken: BTreeMap<(Who, i32, bool, bool), Taken>,
}

const KINDS: [&str; 3] = ["anon", "file", "mixed"];
const WAYS: [&str; 2] = ["sync", "async"];

impl ReclaimEvents {
    /// Counts an event of a task.
    pub fn add(&mut self, comm: &[u8], event: &Event<'_>) {
        let who = Who::of(comm);
        self.nr_events += 1;
        match event {
            Event::CongestionWait(wait) => self.wait(who, false, wait),
            Event::WaitIffCongested(wait) => self.wait(who, true, wait),
            Event::VmscanWrite(write) => self.write(who, write.flags.0),
            Event::LruIsolate(isolate) => self.take(who, isolate),
            other if other.name().starts_with(b"mm_vmscan_") => {}
            _ => self.nr_events -= 1,
        }
    }

    fn wait(&mut self, who: Who, is_conditional: bool, wait: &CongestionWait<'_>) {
        let waits = self.waits.entry((who, is_conditional)).or_default();
        waits.number += 1;
        waits.full += u64::from(wait.usec_delayed >= wait.usec_timeout);
        waits.delayed_us += u64::from(wait.usec_delayed);
    }

    fn write(&mut self, who: Who, flags: &[u8]) {
        let has = |word: &[u8]| flags.split(|&byte| byte == b'|').any(|flag| flag == word);
        let kind = match () {
            () if has(b"RECLAIM_WB_MIXED") => "mixed",
            () if has(b"RECLAIM_WB_FILE") => "file",
            () => "anon",
        };
        let way = if has(b"RECLAIM_WB_SYNC") { "sync" } else { "async" };
        *self.writes.entry((who, kind, way)).or_default() += 1;
    }

    fn take(&mut self, who: Who, isolate: &LruIsolate<'_>) {
        let is_active = isolate.isolate_mode == Some(2);
        let key = (who, isolate.order, is_active, isolate.file == Some(1));
        let taken = self.taken.entry(key).or_default();
        taken.batches += 1;
        // Counts that no kernel writes may stand in a trace; a sum of them ends at the largest number.
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut taken.scanned, isolate.nr_scanned);
        add(&mut taken.taken, isolate.nr_taken);
        add(&mut taken.beside, isolate.contig_taken.unwrap_or(0));
        add(&mut taken.beside_dirty, isolate.contig_dirty.unwrap_or(0));
        add(&mut taken.left_early, isolate.contig_failed.unwrap_or(0));
    }

    /// Waits for devices, a row for each number.
    #[must_use]
    pub fn waits(&self) -> Table {
        let mut table = Table::new("Waits for congestion", &[("", "row"), ("", "value")]);
        for who in Who::ALL {
            for (is_conditional, kind) in [(false, "congest"), (true, "conditional")] {
                let waits = self.waits.get(&(who, is_conditional)).copied().unwrap_or_default();
                for (what, value) in [
                    ("number", waits.number),
                    ("time", waits.delayed_us / 1000),
                    ("full", waits.full),
                ] {
                    let unit = if what == "time" { ", ms" } else { "" };
                    let row = format!("{} {what} {kind} waited{unit}", who.word());
                    table.push(vec![
                        row.into(),
                        Value::Count(i64::try_from(value).unwrap_or(i64::MAX)),
                    ]);
                }
            }
        }
        table
    }

    /// Pages that reclaim wrote, a row for each kind and way.
    #[must_use]
    pub fn writes(&self) -> Table {
        let mut table = Table::new("Pages written by reclaim", &[("", "row"), ("pages", "pages")]);
        for who in Who::ALL {
            for kind in KINDS {
                for way in WAYS {
                    let pages = self.writes.get(&(who, kind, way)).copied().unwrap_or(0);
                    let row = format!("{} writes {kind} {way}", who.word());
                    table.push(vec![
                        row.into(),
                        Value::Count(i64::try_from(pages).unwrap_or(i64::MAX)),
                    ]);
                }
            }
        }
        table
    }

    /// Pages taken off lists, a row for each order and list.
    #[must_use]
    pub fn taken(&self) -> Table {
        let mut table = Table::new(
            "Pages taken off lists",
            &[
                ("by", "who"),
                ("order", "order"),
                ("list", "list"),
                ("batches", "batches"),
                ("scanned", "scanned"),
                ("taken", "taken"),
                ("beside victims", "contig_taken"),
                ("of them dirty", "contig_dirty"),
                ("blocks left early", "contig_failed"),
            ],
        );
        for (&(who, order, is_active, is_file), taken) in &self.taken {
            let count = |n: u64| Value::Count(i64::try_from(n).unwrap_or(i64::MAX));
            let state = if is_active { "active" } else { "inactive" };
            let kind = if is_file { "file" } else { "anon" };
            table.push(vec![
                who.word().into(),
                Value::Count(order.into()),
                format!("{state} {kind}").into(),
                count(taken.batches),
                count(taken.scanned),
                count(taken.taken),
                count(taken.beside),
                count(taken.beside_dirty),
                count(taken.left_early),
            ]);
        }
        table
    }
}
