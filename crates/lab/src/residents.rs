//! Whose the pages of a snapshot are, as far as it tells.
//!
//! Departs: shared memory (tmpfs), which lies on the anonymous lists and is swapped as anonymous memory is, counts as
//! such. Visible as: that much more `nr_anon_pages`.

use crate::machine::populated;
use highorder_kernelfs::PageFlags;
use highorder_mm::Memory;
use highorder_mm::adopt::Listed;
use highorder_mm::anon::HUGE_ORDER;
use highorder_mm::frame::State;
use highorder_mm::types::{Order, Pfn};
use highorder_mm::zone::ZoneId;
use highorder_model::{Found, Residents};
use highorder_snapshot::{FrameUse, Snapshot};

/// Generations' lists are numbered by what is left of a generation's number (`MAX_NR_GENS`).
const NR_GENERATIONS: u64 = 4;

/// A restored machine with those whose pages they are.
#[must_use]
pub fn with_residents(snapshot: &Snapshot, memory: Memory) -> Found {
    let residents = residents(snapshot, &memory);
    Found { memory, residents, sets_marks: false }
}

/// The owners of a snapshot's pages: of pages that migration can move, on the lists that the snapshot has; where it
/// has none, by their flags, the highest frames at the lists' heads.
fn residents(snapshot: &Snapshot, memory: &Memory) -> Residents {
    let mut found = Residents::default();
    let uses = snapshot.frame_uses();
    let is_block = |pfn: Pfn, order: Order| {
        memory.frames().state(pfn) == State::Allocated && memory.frames().order(pfn) == order
    };
    for zone in &memory.zones {
        let mut cached = Vec::new();
        for pfn in (zone.start.0..zone.end.0).map(Pfn) {
            match uses.get(pfn.index()) {
                Some(FrameUse::Anon) if is_block(pfn, Order(0)) => found.anon.push((pfn, Order(0))),
                Some(FrameUse::Huge)
                    if is_block(pfn, HUGE_ORDER)
                        && flags_of(snapshot, pfn).contains(PageFlags::ANON) =>
                {
                    found.anon.push((pfn, HUGE_ORDER));
                }
                Some(FrameUse::File | FrameUse::FileMapped) if is_block(pfn, Order(0)) => {
                    match flags_of(snapshot, pfn).contains(PageFlags::SWAPBACKED) {
                        true => found.anon.push((pfn, Order(0))),
                        false => cached.push(pfn),
                    }
                }
                Some(FrameUse::PageTable) if is_block(pfn, Order(0)) => found.tables.push(pfn),
                _ => {}
            }
        }
        found.cached.push(cached);
    }
    found.generations = generations(snapshot);
    found.listed = if snapshot.lru.is_empty() {
        listed_by_flags(snapshot, &found)
    } else {
        listed(snapshot, &found.generations)
    };
    found
}

fn flags_of(snapshot: &Snapshot, pfn: Pfn) -> PageFlags {
    PageFlags::from_bits_retain(snapshot.kpageflags.get(pfn.index()).copied().unwrap_or(0))
}

/// The youngest and the oldest generations of each node, told for each of its zones.
fn generations(snapshot: &Snapshot) -> Vec<(ZoneId, u64, [u64; 2])> {
    let of_node = |node: u32| {
        let state = snapshot.nodes.iter().find(|state| state.node == node);
        let number =
            |name: &str| state?.fields.get(name).and_then(|&value| u64::try_from(value).ok());
        match (
            number("lrugen_max_seq"),
            number("lrugen_min_seq_anon"),
            number("lrugen_min_seq_file"),
        ) {
            (Some(max_seq), Some(anon), Some(file)) => Some((max_seq, [anon, file])),
            _ => youngest_of_slots(snapshot, node),
        }
    };
    let zones = populated(snapshot).enumerate();
    let known = zones.filter_map(|(index, zone)| {
        let (max_seq, min_seq) = of_node(zone.node)?;
        Some((ZoneId(index as u8), max_seq, min_seq))
    });
    known.collect()
}

/// Where the numbers were not recorded: the fewest generations in a row that hold all lists with pages.
fn youngest_of_slots(snapshot: &Snapshot, node: u32) -> Option<(u64, [u64; 2])> {
    let lists = snapshot.lru.iter().filter(|list| list.node == node && !list.pages.is_empty());
    let mut used: Vec<u64> = lists.filter_map(|list| slot_of(&list.name)).collect();
    used.sort_unstable();
    used.dedup();
    let rounds = |first: u64, slot: u64| (slot + NR_GENERATIONS - first) % NR_GENERATIONS;
    let span = |first: u64| used.iter().map(|&slot| rounds(first, slot)).max().unwrap_or(0);
    let first = used.iter().copied().min_by_key(|&first| (span(first), first))?;
    // There are two at least (`MIN_NR_GENS`).
    let max_seq = first + span(first).max(1);
    Some((max_seq, [first; 2]))
}

/// The number of a generation's list, by its name.
fn slot_of(name: &str) -> Option<u64> {
    name.strip_prefix("gen")?.get(..1)?.parse().ok().filter(|&slot| slot < NR_GENERATIONS)
}

/// Pages by list, each list from head to tail.
fn listed(snapshot: &Snapshot, generations: &[(ZoneId, u64, [u64; 2])]) -> Vec<(Pfn, Listed)> {
    let mut pages = Vec::new();
    for list in &snapshot.lru {
        let zone = populated(snapshot).position(|zone| zone.node == list.node);
        let max_seq = zone.and_then(|zone| {
            generations.iter().find(|(id, ..)| id.index() == zone).map(|&(_, max_seq, _)| max_seq)
        });
        let Some(listed) = place_of(&list.name, max_seq) else { continue };
        pages.extend(list.pages.iter().map(|&pfn| (pfn, listed)));
    }
    pages
}

/// What a list's name says: `inactive_anon`, `active_file`, `unevictable`, `gen2_anon_DMA32`; lists of control groups
/// have their number behind it.
fn place_of(name: &str, max_seq: Option<u64>) -> Option<Listed> {
    if let Some(slot) = slot_of(name) {
        let max_seq = max_seq?;
        // The number up to the youngest that leaves this.
        let seq = max_seq.checked_sub((max_seq + NR_GENERATIONS - slot) % NR_GENERATIONS)?;
        return Some(Listed::Generation { seq });
    }
    if name.starts_with("unevictable") {
        return Some(Listed::Unevictable);
    }
    let is_active = name.starts_with("active");
    (is_active || name.starts_with("inactive")).then_some(Listed::Classic { active: is_active })
}

fn listed_by_flags(snapshot: &Snapshot, found: &Residents) -> Vec<(Pfn, Listed)> {
    let pages = found.anon.iter().map(|&(pfn, _)| pfn);
    let mut pages: Vec<Pfn> = pages.chain(found.cached.iter().flatten().copied()).collect();
    pages.sort_by_key(|&pfn| std::cmp::Reverse(pfn));
    let place = |pfn: Pfn| {
        let flags = flags_of(snapshot, pfn);
        match flags.contains(PageFlags::UNEVICTABLE) {
            true => Listed::Unevictable,
            false => Listed::Classic { active: flags.contains(PageFlags::ACTIVE) },
        }
    };
    pages.into_iter().map(|pfn| (pfn, place(pfn))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_known_by_its_name() {
        for (name, max_seq, expected) in [
            ("inactive_anon", None, Some(Listed::Classic { active: false })),
            ("active_file", Some(7), Some(Listed::Classic { active: true })),
            ("unevictable", None, Some(Listed::Unevictable)),
            ("gen3_anon_DMA32", Some(3), Some(Listed::Generation { seq: 3 })),
            ("gen3_anon_DMA32", Some(6), Some(Listed::Generation { seq: 3 })),
            ("gen0_file_Normal", Some(6), Some(Listed::Generation { seq: 4 })),
            ("gen1_file_Normal", None, None),
            ("something", None, None),
        ] {
            assert_eq!(place_of(name, max_seq), expected, "{name}");
        }
    }
}
