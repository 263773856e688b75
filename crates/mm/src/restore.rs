//! Building the state of a machine block by block, in list order, from a snapshot.

use crate::alloc::Request;
use crate::frame::{End, State};
use crate::memory::Memory;
use crate::pcp::pcp_index;
use crate::types::{CpuId, Migratetype, Order, Pfn};
use crate::watermark::Mark;
use crate::zone::ZoneId;

impl Memory {
    /// Puts a free block behind the others on a zone's list.
    ///
    /// # Panics
    /// If one of its frames is not reserved, that is, belongs to something restored before.
    pub fn restore_free(&mut self, pfn: Pfn, order: Order, migratetype: Migratetype) {
        self.restore_frames(pfn, order);
        let id = self.zone_of(pfn);
        self.link_free(id, pfn, order, migratetype, End::Tail);
        self.zones[id.index()].account_free(i64::from(order.pages()), migratetype);
    }

    /// Puts a block behind the others on a CPU's list. `migratetype` names the list.
    ///
    /// # Panics
    /// As [`Self::restore_free`].
    pub fn restore_pcp(&mut self, cpu: CpuId, pfn: Pfn, order: Order, migratetype: Migratetype) {
        self.restore_frames(pfn, order);
        let id = self.zone_of(pfn);
        self.link_pcp(id, cpu, pfn, order, (pcp_index(order, migratetype), migratetype), End::Tail);
    }

    /// Makes a page that is in use a free one behind the others on its zone's list, whatever is free beside it: requests for
    /// one page take such pages before they split a block.
    ///
    /// # Panics
    /// If it is not a base page in use.
    pub fn restore_free_page(&mut self, pfn: Pfn) {
        let in_use = (State::Allocated, Order(0));
        assert_eq!((self.frames.state(pfn), self.frames.order(pfn)), in_use, "{pfn}");
        self.frames.set_inner(pfn);
        let (id, migratetype) = (self.zone_of(pfn), self.block_type(pfn));
        self.link_free(id, pfn, Order(0), migratetype, End::Tail);
        self.zones[id.index()].account_free(1, migratetype);
    }

    /// Makes a block one that is in use.
    ///
    /// # Panics
    /// As [`Self::restore_free`].
    pub fn restore_allocated(
        &mut self,
        pfn: Pfn,
        order: Order,
        migratetype: Migratetype,
        is_movable: bool,
    ) {
        self.restore_frames(pfn, order);
        self.frames.set(pfn, State::Allocated, order, migratetype);
        self.frames.set_movable(pfn, is_movable);
    }

    /// Marks a frame of a zone as not there.
    pub fn restore_hole(&mut self, pfn: Pfn) {
        self.frames.set(pfn, State::Hole, Order(0), Migratetype::Unmovable);
    }

    fn restore_frames(&mut self, pfn: Pfn, order: Order) {
        for frame in pfn.0..pfn.0 + order.pages() {
            let frame = Pfn(frame);
            assert_eq!(self.frames.state(frame), State::Reserved, "{frame} is restored twice");
            self.frames.set_inner(frame);
        }
    }

    // What a replay in lockstep needs: doing what the kernel did instead of what the policy would.

    /// Lets `change` do something to one zone alone; unless it says, by the second value it returns, that
    /// this is to stay, everything is as before. `change` sees no fallbacks but its own. The cost is that of
    /// the change and of copies of the zone's lists of heads and of every pageblock's type, not of its frames.
    pub fn attempt<R>(&mut self, id: ZoneId, change: impl FnOnce(&mut Self) -> (R, bool)) -> R {
        let zone = self.zones[id.index()].clone();
        let block_types = self.block_types.clone();
        let (work, mut extfrag) = (self.work, self.take_extfrag());
        self.frames.begin_journal();
        let (result, stays) = change(self);
        if stays {
            self.frames.end_journal();
            extfrag.append(&mut self.extfrag);
        } else {
            self.frames.undo();
            self.zones[id.index()] = zone;
            self.block_types = block_types;
            self.work = work;
        }
        self.extfrag = extfrag;
        result
    }

    /// Takes the block `[pfn, pfn + 2^order)` off the free lists, whatever free block it is part of: what
    /// is left of that block is split off as `expand` would, each part to the head of its list.
    ///
    /// Returns the order of the block it was part of, or `None` (and does nothing) if it is not free.
    pub fn force_take(
        &mut self,
        pfn: Pfn,
        order: Order,
        migratetype: Migratetype,
    ) -> Option<Order> {
        let (head, found) = self.free_block_of(pfn)?;
        if found < order {
            return None;
        }
        let id = self.zone_of(pfn);
        let from = self.unlink_free(id, head, found);
        self.zones[id.index()].account_free(-i64::from(order.pages()), from);
        let mut kept = head;
        for half in (order.0..found.0).rev().map(Order) {
            let upper = kept + half.pages();
            let (keep, free) = if pfn >= upper { (upper, kept) } else { (kept, upper) };
            self.frames.set_inner(keep);
            self.link_free(id, free, half, from, End::Head);
            kept = keep;
        }
        self.frames.set(pfn, State::Allocated, order, migratetype);
        Some(found)
    }

    /// The free block that holds `pfn`: its head and order.
    #[must_use]
    pub fn free_block_of(&self, pfn: Pfn) -> Option<(Pfn, Order)> {
        (0..=self.policy.freelist.max_order.0)
            .map(|order| (pfn.align_down(Order(order)), Order(order)))
            .find(|&(head, order)| self.frames.is_free(head, order))
    }

    /// Takes a block off the CPU list it is on, as an allocation that found it there would.
    ///
    /// # Panics
    /// If it is on none.
    pub fn force_take_pcp(&mut self, pfn: Pfn) {
        assert_eq!(self.frames.state(pfn), State::Pcp, "{pfn} is on no per-CPU list");
        let (order, migratetype) = (self.frames.order(pfn), self.frames.migratetype(pfn));
        let (id, cpu) = (self.zone_of(pfn), self.frames.cpu(pfn));
        self.unlink_pcp(id, cpu, pfn, pcp_index(order, migratetype));
        self.frames.set(pfn, State::Allocated, order, migratetype);
    }

    /// Puts an allocated block at the tail of a CPU's list, as a refill would.
    pub fn force_refill(&mut self, pfn: Pfn, cpu: CpuId, migratetype: Migratetype) {
        let (id, order) = (self.zone_of(pfn), self.frames.order(pfn));
        self.link_pcp(id, cpu, pfn, order, (pcp_index(order, migratetype), migratetype), End::Tail);
    }

    /// Gives a block of a CPU's list back to the free lists, whichever it is.
    ///
    /// # Panics
    /// If it is on no CPU's list.
    pub fn force_drain(&mut self, pfn: Pfn) {
        assert_eq!(self.frames.state(pfn), State::Pcp, "{pfn} is on no per-CPU list");
        let (order, migratetype) = (self.frames.order(pfn), self.frames.migratetype(pfn));
        let (id, cpu) = (self.zone_of(pfn), self.frames.cpu(pfn));
        self.drain_pcp_block(id, cpu, pfn, pcp_index(order, migratetype));
    }

    /// Moves the free pages of a pageblock to another type's lists and changes its type, as a claim that
    /// the policy would not have made.
    pub fn force_claim(&mut self, pfn: Pfn, migratetype: Migratetype) {
        let id = self.zone_of(pfn);
        let start = pfn.align_down(self.policy.freelist.pageblock_order);
        let zone = &self.zones[id.index()];
        let end = start + self.policy.freelist.pageblock_order.pages();
        self.move_freepages(id, start.max(zone.start)..end.min(zone.end), migratetype, End::Tail);
        self.set_block_type(start, migratetype);
    }

    /// Moves the free block at `head` to another type's list, its pageblock staying as it is.
    ///
    /// # Panics
    /// If no free block begins at `head`.
    pub fn force_move(&mut self, head: Pfn, migratetype: Migratetype, end: End) {
        assert_eq!(self.frames.state(head), State::Free, "{head} is not free");
        let (id, order) = (self.zone_of(head), self.frames.order(head));
        self.move_to_free_list(id, head, order, migratetype, end);
    }

    /// Makes a reserved frame, or one that was not there, one in use.
    pub fn restore_used_frame(&mut self, pfn: Pfn) {
        self.frames.set(pfn, State::Allocated, Order(0), Migratetype::Unmovable);
    }

    /// The block a request of this type would be given first by its own lists, without taking it.
    #[must_use]
    pub fn peek_smallest(
        &self,
        id: ZoneId,
        order: Order,
        migratetype: Migratetype,
    ) -> Option<(Pfn, Order)> {
        let area = &self.zones[id.index()].free_area;
        let found = area.smallest(order, migratetype)?;
        area.list(found, migratetype).head().map(|pfn| (pfn, found))
    }

    /// Makes exactly `[pfn, pfn + 2^order)` one block in use of this type: see
    /// [`Self::reshape_allocated`] for what must be so before.
    pub fn force_allocated(
        &mut self,
        pfn: Pfn,
        order: Order,
        migratetype: Migratetype,
        is_movable: bool,
    ) {
        self.reshape_allocated(pfn, order, migratetype);
        self.frames.set(pfn, State::Allocated, order, migratetype);
        self.frames.set_movable(pfn, is_movable);
    }

    /// Notes that the walk over the zones for `request` came as far as `served`, which may raise the
    /// below-high flags of the zones on the way.
    pub fn note_zone_walk(&mut self, request: Request, served: ZoneId) {
        let highest_zoneidx = request.gfp.highest_zone();
        let flags = self.fast_path_flags(request);
        for position in self.zonelist(request.node, request.gfp) {
            let id = self.zonelist_entry(position);
            if self.zones[id.index()].kind > highest_zoneidx {
                continue;
            }
            self.probe_high(id, request, Some(Mark::Low), highest_zoneidx, flags);
            if id == served {
                break;
            }
        }
    }
}
