//! Page tables: what is mapped where.
//!
//! Models: include/asm/pgtable.h of x86-64, v6.12, two levels of it: entries of base pages, and entries
//! of 512 of them that hold a table or a huge page.
//! Departs: one flat table holds every task's memory, each task in ranges of its own; the
//! tables above, which hold gigabytes, are not there. Visible as: a page of page table too few per GiB
//! mapped and per task.

use crate::types::{NodeId, Pfn};
use core::fmt;
use std_alloc::vec::Vec;

/// Base pages that one table maps, and a huge page has.
pub const PTRS_PER_TABLE: u32 = 512;

/// A virtual page number: all tasks' memory, each mapping in a range of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vpn(pub u32);

impl Vpn {
    /// Index into a per-page table.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Which unit of 512 pages it lies in.
    #[inline]
    #[must_use]
    pub const fn unit(self) -> usize {
        (self.0 / PTRS_PER_TABLE) as usize
    }

    /// The first page of its unit of 512 pages.
    #[inline]
    #[must_use]
    pub const fn unit_start(self) -> Self {
        Self(self.0 & !(PTRS_PER_TABLE - 1))
    }
}

impl fmt::Debug for Vpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vpn {:#x}", self.0)
    }
}

impl fmt::Display for Vpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The number of a swap slot, counted through all areas.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u32);

impl Slot {
    /// Index into a per-slot table.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The entry of one base page: a frame or a slot above, bits below.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pte(u64);

impl Pte {
    /// Nothing there.
    pub const NONE: Self = Self(0);
    /// A frame is mapped, or the zero page.
    pub const PRESENT: u64 = 1;
    /// May be written.
    pub const WRITE: u64 = 1 << 1;
    /// Was read or written since this was last cleared.
    pub const ACCESSED: u64 = 1 << 2;
    /// Was written.
    pub const DIRTY: u64 = 1 << 3;
    /// The shared page of zeros.
    const ZERO: u64 = 1 << 4;
    /// Not mapped, but in this slot.
    const SWAP: u64 = 1 << 5;
    /// The page mapped has been migrated since it was mapped: for statistics alone.
    pub const MOVED: u64 = 1 << 6;
    /// Closed: the next touch is a hinting fault.
    pub const PROTNONE: u64 = 1 << 7;
    /// The node that the last hinting fault came from, counted from 1; 0 if there was none.
    const LAST_NODE_SHIFT: u32 = 8;
    const LAST_NODE: u64 = 0xff << Self::LAST_NODE_SHIFT;
    const PAYLOAD_SHIFT: u32 = 32;

    /// Maps a frame.
    #[must_use]
    pub const fn page(pfn: Pfn, bits: u64) -> Self {
        Self((pfn.0 as u64) << Self::PAYLOAD_SHIFT | Self::PRESENT | bits)
    }

    /// Maps the zero page, to be read.
    #[must_use]
    pub const fn zero() -> Self {
        Self(Self::PRESENT | Self::ZERO | Self::ACCESSED)
    }

    /// Names a slot.
    #[must_use]
    pub const fn swap(slot: Slot) -> Self {
        Self((slot.0 as u64) << Self::PAYLOAD_SHIFT | Self::SWAP)
    }

    /// Whether any of `bits` is set.
    #[inline]
    #[must_use]
    pub const fn has(self, bits: u64) -> bool {
        self.0 & bits != 0
    }

    /// Whether nothing was ever here, or it is gone.
    #[inline]
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether the zero page is mapped.
    #[inline]
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.has(Self::ZERO)
    }

    /// The frame mapped.
    #[inline]
    #[must_use]
    pub const fn pfn(self) -> Option<Pfn> {
        if self.0 & (Self::PRESENT | Self::ZERO) == Self::PRESENT {
            Some(Pfn((self.0 >> Self::PAYLOAD_SHIFT) as u32))
        } else {
            None
        }
    }

    /// The slot named.
    #[inline]
    #[must_use]
    pub const fn slot(self) -> Option<Slot> {
        if self.has(Self::SWAP) { Some(Slot((self.0 >> Self::PAYLOAD_SHIFT) as u32)) } else { None }
    }

    /// The node that the last hinting fault came from.
    #[must_use]
    pub const fn last_node(self) -> Option<NodeId> {
        match (self.0 & Self::LAST_NODE) >> Self::LAST_NODE_SHIFT {
            0 => None,
            noted => Some(NodeId(noted as u32 - 1)),
        }
    }

    /// Notes the node that a hinting fault comes from; machines have fewer than 255.
    #[must_use]
    pub const fn with_last_node(self, node: NodeId) -> Self {
        Self(self.0 & !Self::LAST_NODE | ((node.0 as u64 + 1) << Self::LAST_NODE_SHIFT))
    }

    /// As it is with these bits set.
    #[inline]
    #[must_use]
    pub const fn with(self, bits: u64) -> Self {
        Self(self.0 | bits)
    }

    /// As it is without these bits.
    #[inline]
    #[must_use]
    pub const fn without(self, bits: u64) -> Self {
        Self(self.0 & !bits)
    }
}

/// The entry of 512 base pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pmd {
    /// Nothing there.
    #[default]
    None,
    /// A table of base pages' entries.
    Table,
    /// A huge page, with the bits of a [`Pte`].
    Huge(Pte),
    /// The shared huge page of zeros.
    HugeZero,
}

/// One unit of 512 pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Unit {
    pub(crate) pmd: Pmd,
    /// The frame that holds the table: in use under [`Pmd::Table`], deposited under a huge page.
    pub(crate) table: Option<Pfn>,
    /// Entries that are not none.
    pub(crate) nr_used: u16,
}

/// Every task's page tables.
#[derive(Clone, Debug, Default)]
pub struct PageTable {
    pub(crate) ptes: Vec<Pte>,
    pub(crate) units: Vec<Unit>,
}

impl PageTable {
    /// Makes room for pages below `end`.
    pub(crate) fn grow(&mut self, end: Vpn) {
        let units = end.0.div_ceil(PTRS_PER_TABLE) as usize;
        if units > self.units.len() {
            self.units.resize(units, Unit::default());
            self.ptes.resize(units * PTRS_PER_TABLE as usize, Pte::NONE);
        }
    }

    /// The entry of `vpn`; nothing under a huge page.
    #[inline]
    #[must_use]
    pub fn pte(&self, vpn: Vpn) -> Pte {
        self.ptes[vpn.index()]
    }

    /// The entry of the 512 pages around `vpn`.
    #[inline]
    #[must_use]
    pub fn pmd(&self, vpn: Vpn) -> Pmd {
        self.units[vpn.unit()].pmd
    }

    /// Sets the entry of `vpn`, and keeps the unit's count.
    #[inline]
    pub(crate) fn set_pte(&mut self, vpn: Vpn, pte: Pte) {
        let old = core::mem::replace(&mut self.ptes[vpn.index()], pte);
        let unit = &mut self.units[vpn.unit()];
        unit.nr_used = unit.nr_used + u16::from(!pte.is_none()) - u16::from(!old.is_none());
    }

    /// The frame that `vpn` is mapped to, through a huge page or not.
    #[must_use]
    pub fn frame_at(&self, vpn: Vpn) -> Option<Pfn> {
        match self.pmd(vpn) {
            Pmd::Huge(huge) => huge.pfn().map(|head| head + vpn.0 % PTRS_PER_TABLE),
            Pmd::Table => self.pte(vpn).pfn(),
            Pmd::None | Pmd::HugeZero => None,
        }
    }

    /// The frames that hold tables, those deposited under huge pages among them.
    pub fn tables(&self) -> impl Iterator<Item = Pfn> + '_ {
        self.units.iter().filter_map(|unit| unit.table)
    }
}
