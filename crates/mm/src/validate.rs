//! The allocator's invariants, checked from scratch.

use crate::frame::State;
use crate::memory::Memory;
use crate::pcp::NR_PCP_LISTS;
use crate::policy::ListType;
use crate::types::{CpuId, Migratetype, NR_PAGE_ORDERS, Order, Pfn};
use crate::zone::ZoneId;
use std_alloc::format;
use std_alloc::string::String;
use std_alloc::vec;
use std_alloc::vec::Vec;

/// Frames of a zone by what their block is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// On free lists.
    pub free: u64,
    /// On per-CPU lists.
    pub pcp: u64,
    /// Isolated.
    pub isolated: u64,
    /// In use.
    pub allocated: u64,
    /// Not managed.
    pub reserved: u64,
    /// Not there.
    pub holes: u64,
}

impl Memory {
    /// Counts a zone's frames by the state of the block that holds them.
    ///
    /// # Errors
    /// The first frame that no block, or more than one, accounts for.
    pub fn census(&self, id: ZoneId) -> Result<Census, String> {
        let zone = &self.zones[id.index()];
        let mut census = Census::default();
        let mut pfn = zone.start;
        while pfn < zone.end {
            let state = self.frames.state(pfn);
            let pages = match state {
                State::Hole | State::Reserved => 1,
                State::Inner => return Err(format!("{pfn} is inside no block")),
                _ => self.frames.order(pfn).pages(),
            };
            if state != State::Hole && state != State::Reserved {
                if pfn.align_down(self.frames.order(pfn)) != pfn {
                    return Err(format!("the block at {pfn} is not aligned to its order"));
                }
                for inner in pfn.0 + 1..pfn.0 + pages {
                    if self.frames.state(Pfn(inner)) != State::Inner {
                        return Err(format!("{} is a head inside the block at {pfn}", Pfn(inner)));
                    }
                }
            }
            let count = match state {
                State::Free => &mut census.free,
                State::Pcp => &mut census.pcp,
                State::Isolated => &mut census.isolated,
                State::Allocated => &mut census.allocated,
                State::Reserved => &mut census.reserved,
                State::Hole | State::Inner => &mut census.holes,
            };
            *count += u64::from(pages);
            pfn.0 += pages;
        }
        if pfn > zone.end {
            return Err(format!("the last block of zone {} leaves it", zone.kind));
        }
        Ok(census)
    }

    /// Checks every invariant of the allocator.
    ///
    /// - Blocks tile memory; each is aligned to its order.
    /// - A block is on exactly the list that its state, order and type name, once; links agree both ways.
    /// - Free and per-CPU counts are the sums of the lists.
    /// - No two buddies are both free, except where their types forbid the merge.
    /// - Where lists follow pageblocks, every free block is on its pageblock's list.
    ///
    /// Not that a zone's blocks are its `managed_pages`, which holds for a state with every list alone:
    /// counts and flags do not tell of each page whether the allocator manages it, and before boot has
    /// released memory, what is managed is reserved yet.
    ///
    /// # Errors
    /// A sentence for the first invariant that does not hold.
    pub fn validate(&self) -> Result<(), String> {
        let mut on_list = vec![false; self.frames.len()];
        for zone in 0..self.zones.len() {
            let id = ZoneId(zone as u8);
            let census = self.census(id)?;
            let free = self.validate_free_lists(id, &mut on_list)?;
            let pcp = self.validate_pcp_lists(id, &mut on_list)?;
            if free != census.free {
                return Err(format!(
                    "zone {zone}: lists hold {free} free pages, frames say {}",
                    census.free
                ));
            }
            if pcp != census.pcp {
                return Err(format!(
                    "zone {zone}: per-CPU lists hold {pcp} pages, frames say {}",
                    census.pcp
                ));
            }
        }
        Ok(())
    }

    fn walk(
        &self,
        list: &crate::frame::List,
        on_list: &mut [bool],
        mut each: impl FnMut(Pfn) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut previous = None;
        let mut nr = 0;
        for pfn in self.frames.iter(list) {
            if core::mem::replace(&mut on_list[pfn.index()], true) {
                return Err(format!("{pfn} is on two lists, or twice on one"));
            }
            if self.frames.prev(pfn) != previous {
                return Err(format!("the link back from {pfn} is wrong"));
            }
            previous = Some(pfn);
            nr += 1;
            each(pfn)?;
        }
        if list.tail() != previous || list.len() != nr {
            return Err(format!("a list of {nr} blocks claims {} or another tail", list.len()));
        }
        Ok(())
    }

    fn validate_free_lists(&self, id: ZoneId, on_list: &mut [bool]) -> Result<u64, String> {
        let zone = &self.zones[id.index()];
        let (mut pages, mut counted, mut highatomic) = (0, 0, 0);
        for order in (0..NR_PAGE_ORDERS as u8).map(Order) {
            for migratetype in Migratetype::ALL {
                let list = zone.free_area.list(order, migratetype);
                let smallest = zone.free_area.smallest(order, migratetype);
                if (smallest == Some(order)) == list.is_empty() {
                    return Err(format!("order {order} {migratetype}: occupied bit is wrong"));
                }
                self.walk(list, on_list, |pfn| {
                    if self.frames.state(pfn) != State::Free
                        || self.frames.order(pfn) != order
                        || self.frames.migratetype(pfn) != migratetype
                    {
                        return Err(format!("{pfn} is on a list of order {order} {migratetype}"));
                    }
                    if !zone.spans(pfn) {
                        return Err(format!("{pfn} is on a list of another zone"));
                    }
                    if self.policy.freelist.list_type == ListType::Pageblock
                        && self.block_type(pfn) != migratetype
                    {
                        return Err(format!(
                            "{pfn} is on the {migratetype} list, its pageblock is {}",
                            self.block_type(pfn)
                        ));
                    }
                    self.check_buddy(id, pfn, order)?;
                    pages += u64::from(order.pages());
                    if migratetype != Migratetype::Isolate {
                        counted += u64::from(order.pages());
                    }
                    if migratetype == Migratetype::HighAtomic {
                        highatomic += u64::from(order.pages());
                    }
                    Ok(())
                })?;
            }
        }
        if zone.nr_free_pages != counted || zone.nr_free_highatomic != highatomic {
            return Err(format!(
                "zone {}: nr_free_pages is {} ({} highatomic), the lists hold {counted} ({highatomic})",
                zone.kind, zone.nr_free_pages, zone.nr_free_highatomic
            ));
        }
        Ok(pages)
    }

    /// Free buddies stay apart only where their types keep them apart.
    fn check_buddy(&self, id: ZoneId, pfn: Pfn, order: Order) -> Result<(), String> {
        let buddy = pfn.buddy(order);
        if order >= self.policy.freelist.max_order
            || !self.frames.is_free(buddy, order)
            || !self.zones[id.index()].spans(buddy)
        {
            return Ok(());
        }
        if order < self.policy.freelist.pageblock_order {
            return Err(format!("{pfn} and its buddy {buddy} of order {order} are both free"));
        }
        Ok(())
    }

    fn validate_pcp_lists(&self, id: ZoneId, on_list: &mut [bool]) -> Result<u64, String> {
        let mut total = 0;
        let lists = &self.zones[id.index()].pcp;
        for (cpu, pcp) in CpuId::all(lists.len()).zip(lists) {
            let mut pages = 0;
            for index in 0..NR_PCP_LISTS {
                self.walk(pcp.list(index), on_list, |pfn| {
                    if self.frames.state(pfn) != State::Pcp || self.frames.cpu(pfn) != cpu {
                        return Err(format!("{pfn} is on CPU {cpu}'s list but does not say so"));
                    }
                    pages += self.frames.order(pfn).pages();
                    Ok(())
                })?;
            }
            if pages != pcp.count {
                return Err(format!("CPU {cpu} holds {pages} pages and counts {}", pcp.count));
            }
            total += u64::from(pages);
        }
        Ok(total)
    }

    /// The blocks of a list with their links followed, for those who compare states.
    #[must_use]
    pub fn list_blocks(&self, list: &crate::frame::List) -> Vec<Pfn> {
        self.frames.iter(list).collect()
    }
}
