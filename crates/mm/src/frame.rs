//! The frame table and the intrusive lists that run through it.
//!
//! Models: `struct page` as far as the page allocator uses it, include/linux/mm_types.h, v6.12.
//! Departs: 16 bytes a frame instead of 64; links are frame numbers. Visible as: nothing, but for
//! memory above 16 TiB, which a `u32` frame number does not reach.
//!
//! Blocks tile memory: every frame that exists is either the *head* of a block, whose word says in
//! which state and of which order the block is, or [`State::Inner`].

use crate::types::{CpuId, Migratetype, Order, Pfn};
use crate::warm::warm;
use bitflags::bitflags;
use std_alloc::vec;
use std_alloc::vec::Vec;

/// The link that leads nowhere.
pub const NIL: u32 = u32::MAX;

/// What the block that begins at a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// No memory here.
    Hole = 0,
    /// Memory the page allocator does not manage: firmware, kernel image, memory map.
    Reserved = 1,
    /// Not a head: inside the block that begins at a lower frame.
    Inner = 2,
    /// Head of a block on a zone's free list.
    Free = 3,
    /// Head of a block on a per-CPU list.
    Pcp = 4,
    /// Head of a block taken off the free lists for private use (pages that compaction moves others to).
    Isolated = 5,
    /// Head of a block in use.
    Allocated = 6,
}

const STATES: [State; 8] = [
    State::Hole,
    State::Reserved,
    State::Inner,
    State::Free,
    State::Pcp,
    State::Isolated,
    State::Allocated,
    State::Hole,
];

// Layout of `Frame::word`, lowest bits first. A page in use has its flags from bit 19 up, and its
// generation and three more flags where a page on a per-CPU list names the CPU.
const STATE_BITS: u32 = 0b111;
const ORDER_SHIFT: u32 = 3;
const ORDER_BITS: u32 = 0b1111 << ORDER_SHIFT;
const TYPE_SHIFT: u32 = 7;
const TYPE_BITS: u32 = 0b111 << TYPE_SHIFT;
const CPU_SHIFT: u32 = 10;
const CPU_BITS: u32 = 0xff << CPU_SHIFT;
const MOVABLE_BIT: u32 = 1 << 18;
const GENERATION_SHIFT: u32 = CPU_SHIFT;
const GENERATION_BITS: u32 = 0b111 << GENERATION_SHIFT;
/// In place of a generation, of which there are four: the kernel's own block.
const KERNEL_MARK: u32 = GENERATION_BITS;
const HOME_SHIFT: u32 = GENERATION_SHIFT + 3;
const HOME_BITS: u32 = 0b11 << HOME_SHIFT;

bitflags! {
    /// Flags of a page in use (`enum pageflags`), in the bits of a frame's word that state, order and type leave.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct PageFlags: u32 {
        /// Held by a device or a system call besides its mappings: it must not move.
        const PINNED = 1 << 15;
        /// No page of a file or a task, but its driver can move it (`PageMovable`).
        const MOVABLE_OPS = 1 << 16;
        /// Taken off its list to be moved; whoever holds it so frees it if it is left alone meanwhile.
        const ISOLATED = 1 << 17;
        /// On an LRU list.
        const LRU = 1 << 19;
        /// On an active list, or to go on one.
        const ACTIVE = 1 << 20;
        /// Referenced since it was last looked at.
        const REFERENCED = 1 << 21;
        /// Locked into memory.
        const UNEVICTABLE = 1 << 22;
        /// Anonymous (`PG_swapbacked`); a page on the LRU without it is a file's.
        const ANON = 1 << 23;
        /// Was in use when it was deactivated or evicted.
        const WORKINGSET = 1 << 24;
        /// Differs from its slot or file.
        const DIRTY = 1 << 25;
        /// Being written.
        const WRITEBACK = 1 << 26;
        /// In the swap cache: its owner is the slot.
        const SWAPCACHE = 1 << 27;
        /// To be freed once it is written.
        const RECLAIM = 1 << 28;
        /// Being read.
        const LOCKED = 1 << 29;
        /// In a CPU's batch, which holds it until it goes on a list.
        const BATCHED = 1 << 30;
        /// Read ahead and not used yet.
        const READAHEAD = 1 << 31;
    }
}

/// CPUs a machine may have: a frame on a per-CPU list names its CPU in eight bits.
pub const NR_CPUS_MAX: usize = 256;

/// One frame: 16 bytes, so that a list operation touches one cache line a frame.
#[derive(Clone, Copy)]
#[repr(C)]
struct Frame {
    next: u32,
    prev: u32,
    /// State, order, migratetype, CPU, flags; see the constants above.
    word: u32,
    /// Whom a page in use belongs to; the allocator only carries it.
    owner: u32,
}

const _: () = assert!(size_of::<Frame>() == 16);

/// A doubly linked list of blocks, through their heads' links. Order matters: allocation takes the
/// head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct List {
    head: u32,
    tail: u32,
    nr: u32,
}

impl List {
    /// The empty list.
    pub const EMPTY: Self = Self { head: NIL, tail: NIL, nr: 0 };

    /// The first block.
    #[inline]
    #[must_use]
    pub const fn head(&self) -> Option<Pfn> {
        if self.head == NIL { None } else { Some(Pfn(self.head)) }
    }

    /// The last block.
    #[inline]
    #[must_use]
    pub const fn tail(&self) -> Option<Pfn> {
        if self.tail == NIL { None } else { Some(Pfn(self.tail)) }
    }

    /// Whether nothing is on it.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// Number of blocks.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.nr
    }
}

/// Which end of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize),
    serde(rename_all = "kebab-case")
)]
pub enum End {
    /// Where allocation takes from.
    Head,
    /// The other one.
    Tail,
}

/// The frame table.
#[derive(Clone)]
pub struct Frames {
    frames: Vec<Frame>,
    /// Each frame as it was before a change, oldest first, while someone may want to go back.
    journal: Option<Vec<(u32, Frame)>>,
}

impl Frames {
    /// A table of `nr` frames, all holes.
    #[must_use]
    pub fn new(nr: usize) -> Self {
        Self { frames: vec![Frame { next: NIL, prev: NIL, word: 0, owner: 0 }; nr], journal: None }
    }

    /// Number of frames, holes included.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether the machine has no frames.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Bytes the table takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.frames.len() * size_of::<Frame>()
    }

    #[inline]
    fn word(&self, pfn: Pfn) -> u32 {
        self.frames[pfn.index()].word
    }

    /// Every change of a frame goes through here.
    #[inline]
    fn frame_mut(&mut self, at: usize) -> &mut Frame {
        let frame = &mut self.frames[at];
        if let Some(journal) = &mut self.journal {
            journal.push((at as u32, *frame));
        }
        frame
    }

    /// Keeps a journal of changes from now on, for [`Self::undo`].
    pub(crate) fn begin_journal(&mut self) {
        debug_assert!(self.journal.is_none(), "a journal is being kept");
        self.journal = Some(Vec::new());
    }

    /// Lets the changes since [`Self::begin_journal`] stay.
    pub(crate) fn end_journal(&mut self) {
        self.journal = None;
    }

    /// Takes the changes since [`Self::begin_journal`] back.
    pub(crate) fn undo(&mut self) {
        for (at, frame) in self.journal.take().into_iter().flatten().rev() {
            self.frames[at as usize] = frame;
        }
    }

    /// Asks for the frame at `pfn`, if there is one.
    #[inline]
    pub(crate) fn warm(&self, pfn: Pfn) {
        if let Some(frame) = self.frames.get(pfn.index()) {
            warm(frame);
        }
    }

    /// Asks for the frames that stand beside `pfn` on its list.
    #[inline]
    pub(crate) fn warm_beside(&self, pfn: Pfn) {
        let Frame { next, prev, .. } = self.frames[pfn.index()];
        self.warm(Pfn(next));
        self.warm(Pfn(prev));
    }

    /// State of the block that begins at `pfn`; a frame beyond the table is a hole.
    #[inline]
    #[must_use]
    pub fn state(&self, pfn: Pfn) -> State {
        self.frames.get(pfn.index()).map_or(State::Hole, |f| STATES[(f.word & STATE_BITS) as usize])
    }

    /// Order of the block that begins at `pfn`.
    #[inline]
    #[must_use]
    pub fn order(&self, pfn: Pfn) -> Order {
        Order(((self.word(pfn) & ORDER_BITS) >> ORDER_SHIFT) as u8)
    }

    /// The migratetype noted at `pfn`: of the list it is on, or of the request that took it.
    #[inline]
    #[must_use]
    pub fn migratetype(&self, pfn: Pfn) -> Migratetype {
        Migratetype::from_index(((self.word(pfn) & TYPE_BITS) >> TYPE_SHIFT) as usize)
    }

    /// The CPU on whose list the block is, for [`State::Pcp`].
    #[inline]
    #[must_use]
    pub fn cpu(&self, pfn: Pfn) -> CpuId {
        CpuId((self.word(pfn) & CPU_BITS) >> CPU_SHIFT)
    }

    /// Whether the allocated block at `pfn` counts as movable (on an LRU list, or with movable
    /// operations of its own).
    #[inline]
    #[must_use]
    pub fn is_movable(&self, pfn: Pfn) -> bool {
        self.word(pfn) & MOVABLE_BIT != 0
    }

    /// Marks the allocated block at `pfn` as movable or not.
    #[inline]
    pub fn set_movable(&mut self, pfn: Pfn, movable: bool) {
        let word = &mut self.frame_mut(pfn.index()).word;
        *word = if movable { *word | MOVABLE_BIT } else { *word & !MOVABLE_BIT };
    }

    /// Whether the page in use at `pfn` has any of these flags.
    #[inline]
    #[must_use]
    pub fn has(&self, pfn: Pfn, flags: PageFlags) -> bool {
        self.word(pfn) & flags.bits() != 0
    }

    /// Sets flags of the page in use at `pfn`.
    #[inline]
    pub fn set_flags(&mut self, pfn: Pfn, flags: PageFlags) {
        self.frame_mut(pfn.index()).word |= flags.bits();
    }

    /// Gives the page in use at `pfn` an owner and flags, in one go.
    #[inline]
    pub(crate) fn adopt(&mut self, pfn: Pfn, owner: u32, flags: PageFlags) {
        let frame = self.frame_mut(pfn.index());
        frame.owner = owner;
        frame.word |= flags.bits();
    }

    /// A page of a batch went on its LRU list.
    #[inline]
    pub(crate) fn turn_listed(&mut self, pfn: Pfn) {
        let word = &mut self.frame_mut(pfn.index()).word;
        *word = *word & !PageFlags::BATCHED.bits() | PageFlags::LRU.bits();
    }

    /// Clears flags of the page in use at `pfn`.
    #[inline]
    pub fn clear_flags(&mut self, pfn: Pfn, flags: PageFlags) {
        self.frame_mut(pfn.index()).word &= !flags.bits();
    }

    /// Clears flags and returns whether any was set.
    #[inline]
    pub fn test_clear(&mut self, pfn: Pfn, flags: PageFlags) -> bool {
        let was = self.has(pfn, flags);
        if was {
            self.clear_flags(pfn, flags);
        }
        was
    }

    /// The generation list, counted from 0, that the page at `pfn` is on, if it is on one.
    #[inline]
    #[must_use]
    pub fn generation(&self, pfn: Pfn) -> Option<u8> {
        (((self.word(pfn) & GENERATION_BITS) >> GENERATION_SHIFT) as u8).checked_sub(1)
    }

    /// Notes the generation list of the page at `pfn`.
    #[inline]
    pub fn set_generation(&mut self, pfn: Pfn, generation: Option<u8>) {
        let bits = generation.map_or(0, |g| u32::from(g) + 1) << GENERATION_SHIFT;
        let word = &mut self.frame_mut(pfn.index()).word;
        *word = *word & !GENERATION_BITS | bits;
    }

    /// The generation that the page at `pfn` belongs to, which may be younger than its list's.
    #[inline]
    #[must_use]
    pub fn home_generation(&self, pfn: Pfn) -> u8 {
        ((self.word(pfn) & HOME_BITS) >> HOME_SHIFT) as u8
    }

    /// Notes the generation that the page at `pfn` belongs to.
    #[inline]
    pub fn set_home_generation(&mut self, pfn: Pfn, generation: u8) {
        let word = &mut self.frame_mut(pfn.index()).word;
        *word = *word & !HOME_BITS | u32::from(generation) << HOME_SHIFT;
    }

    /// Makes `pfn` a head with this state, order and type, and forgets its flags.
    #[inline]
    pub fn set(&mut self, pfn: Pfn, state: State, order: Order, migratetype: Migratetype) {
        self.frame_mut(pfn.index()).word =
            state as u32 | u32::from(order.0) << ORDER_SHIFT | (migratetype as u32) << TYPE_SHIFT;
    }

    /// As [`Self::set`] for a block on a CPU's list.
    #[inline]
    pub fn set_pcp(&mut self, pfn: Pfn, order: Order, migratetype: Migratetype, cpu: CpuId) {
        debug_assert!(cpu.index() < NR_CPUS_MAX);
        self.set(pfn, State::Pcp, order, migratetype);
        self.frame_mut(pfn.index()).word |= cpu.0 << CPU_SHIFT;
    }

    /// Makes `pfn` no head.
    #[inline]
    pub fn set_inner(&mut self, pfn: Pfn) {
        self.frame_mut(pfn.index()).word = State::Inner as u32;
    }

    /// Whether a free block of exactly `order` begins at `pfn`.
    #[inline]
    #[must_use]
    pub fn is_free(&self, pfn: Pfn, order: Order) -> bool {
        self.frames.get(pfn.index()).is_some_and(|f| {
            f.word & (STATE_BITS | ORDER_BITS)
                == (State::Free as u32 | u32::from(order.0) << ORDER_SHIFT)
        })
    }

    /// Whether the block that begins at `pfn` is one page in use.
    #[inline]
    #[must_use]
    pub(crate) fn is_page_in_use(&self, pfn: Pfn) -> bool {
        let word = self.frames.get(pfn.index()).map_or(0, |frame| frame.word);
        word & (STATE_BITS | ORDER_BITS) == State::Allocated as u32
    }

    /// The head of the block that holds `pfn`: itself, or the head that an [`State::Inner`] frame
    /// belongs to.
    ///
    /// # Panics
    /// If `pfn` is inside no block, which [`crate::validate`] rules out.
    #[must_use]
    pub fn head_of(&self, pfn: Pfn) -> Pfn {
        let mut order = Order(0);
        loop {
            let head = pfn.align_down(order);
            if self.state(head) != State::Inner {
                assert!(head == pfn || self.order(head) >= order, "{pfn} lies in no block");
                return head;
            }
            order.0 += 1;
            assert!(order.0 < 32, "{pfn} lies in no block");
        }
    }

    /// Puts the head `pfn` at one end of `list`.
    #[inline]
    pub fn push(&mut self, list: &mut List, pfn: Pfn, end: End) {
        match end {
            End::Head => {
                let old = list.head;
                let frame = self.frame_mut(pfn.index());
                frame.prev = NIL;
                frame.next = old;
                list.head = pfn.0;
                if old == NIL {
                    list.tail = pfn.0;
                } else {
                    self.frame_mut(old as usize).prev = pfn.0;
                }
            }
            End::Tail => {
                let old = list.tail;
                let frame = self.frame_mut(pfn.index());
                frame.next = NIL;
                frame.prev = old;
                list.tail = pfn.0;
                if old == NIL {
                    list.head = pfn.0;
                } else {
                    self.frame_mut(old as usize).next = pfn.0;
                }
            }
        }
        list.nr += 1;
    }

    /// Takes the head `pfn` off `list`, on which it must be.
    #[inline]
    pub fn unlink(&mut self, list: &mut List, pfn: Pfn) {
        let Frame { next, prev, .. } = self.frames[pfn.index()];
        if prev == NIL {
            debug_assert_eq!(list.head, pfn.0, "{pfn} is not on this list");
            list.head = next;
        } else {
            self.frame_mut(prev as usize).next = next;
        }
        if next == NIL {
            debug_assert_eq!(list.tail, pfn.0, "{pfn} is not on this list");
            list.tail = prev;
        } else {
            self.frame_mut(next as usize).prev = prev;
        }
        list.nr -= 1;
    }

    /// The block behind `pfn` on its list.
    #[inline]
    #[must_use]
    pub fn next(&self, pfn: Pfn) -> Option<Pfn> {
        let next = self.frames[pfn.index()].next;
        if next == NIL { None } else { Some(Pfn(next)) }
    }

    /// The block before `pfn` on its list.
    #[inline]
    #[must_use]
    pub fn prev(&self, pfn: Pfn) -> Option<Pfn> {
        let prev = self.frames[pfn.index()].prev;
        if prev == NIL { None } else { Some(Pfn(prev)) }
    }

    /// The blocks of `list`, head first.
    pub fn iter<'a>(&'a self, list: &List) -> impl Iterator<Item = Pfn> + 'a {
        core::iter::successors(list.head(), |&pfn| self.next(pfn))
    }

    /// The blocks of `list`, tail first.
    pub fn iter_back<'a>(&'a self, list: &List) -> impl Iterator<Item = Pfn> + 'a {
        core::iter::successors(list.tail(), |&pfn| self.prev(pfn))
    }

    /// Brings `first` to the head of `list`: what stood before it goes, in order, behind the tail.
    pub fn rotate_to(&mut self, list: &mut List, first: Pfn) {
        if list.head == first.0 {
            return;
        }
        let (old_head, old_tail) = (list.head, list.tail);
        let new_tail = self.frames[first.index()].prev;
        self.frame_mut(old_tail as usize).next = old_head;
        self.frame_mut(old_head as usize).prev = old_tail;
        self.frame_mut(new_tail as usize).next = NIL;
        self.frame_mut(first.index()).prev = NIL;
        list.head = first.0;
        list.tail = new_tail;
    }

    /// What the kernel noted of the block of its own at `pfn`; `None` if it is not one.
    #[inline]
    #[must_use]
    pub fn kernel_owner(&self, pfn: Pfn) -> Option<u32> {
        let frame = &self.frames[pfn.index()];
        let is_kernels = frame.word & STATE_BITS == State::Allocated as u32
            && frame.word & GENERATION_BITS == KERNEL_MARK;
        is_kernels.then_some(frame.owner)
    }

    /// Notes what the kernel uses the block at `pfn` for, until it is freed.
    #[inline]
    pub(crate) fn set_kernel_owner(&mut self, pfn: Pfn, owner: u32) {
        let frame = self.frame_mut(pfn.index());
        frame.word |= KERNEL_MARK;
        frame.owner = owner;
    }

    /// Whom the page at `pfn` belongs to.
    #[inline]
    #[must_use]
    pub fn owner(&self, pfn: Pfn) -> u32 {
        self.frames[pfn.index()].owner
    }

    /// Notes whom the page at `pfn` belongs to.
    #[inline]
    pub fn set_owner(&mut self, pfn: Pfn, owner: u32) {
        self.frame_mut(pfn.index()).owner = owner;
    }
}
