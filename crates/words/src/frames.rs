//! Frames and blocks of them.

use core::fmt;
use core::ops::{Add, AddAssign, Sub, SubAssign};

/// A page frame number: the index of a base page, never a byte address.
///
/// 32 bits reach 16 TiB of 4 KiB pages, and keep a list link at four bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pfn(pub u32);

impl Pfn {
    /// Index into a per-frame table.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The first frame of the aligned block of `order` that holds this frame.
    #[inline]
    #[must_use]
    pub const fn align_down(self, order: Order) -> Self {
        Self(self.0 & !((1u32 << order.0) - 1))
    }

    /// The buddy of the block of `order` that begins here.
    #[inline]
    #[must_use]
    pub const fn buddy(self, order: Order) -> Self {
        Self(self.0 ^ (1u32 << order.0))
    }

    /// Where the block begins that this one and its buddy of `order` make together.
    #[inline]
    #[must_use]
    pub const fn parent(self, order: Order) -> Self {
        Self(self.0 & self.buddy(order).0)
    }
}

/// The frame so many pages further on.
impl Add<u32> for Pfn {
    type Output = Self;
    #[inline]
    fn add(self, pages: u32) -> Self {
        Self(self.0 + pages)
    }
}

/// The frame so many pages before.
impl Sub<u32> for Pfn {
    type Output = Self;
    #[inline]
    fn sub(self, pages: u32) -> Self {
        Self(self.0 - pages)
    }
}

impl AddAssign<u32> for Pfn {
    #[inline]
    fn add_assign(&mut self, pages: u32) {
        self.0 += pages;
    }
}

impl SubAssign<u32> for Pfn {
    #[inline]
    fn sub_assign(&mut self, pages: u32) {
        self.0 -= pages;
    }
}

/// Base pages from `first` to this frame.
impl Sub for Pfn {
    type Output = u32;
    #[inline]
    fn sub(self, first: Self) -> u32 {
        self.0 - first.0
    }
}

impl fmt::Debug for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pfn {:#x}", self.0)
    }
}

impl fmt::Display for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The largest order any supported kernel has on x86-64 (`MAX_PAGE_ORDER`; `MAX_ORDER - 1` before 6.4).
pub const MAX_PAGE_ORDER: u8 = 10;
/// Number of orders, 0 included (`NR_PAGE_ORDERS`).
pub const NR_PAGE_ORDERS: usize = MAX_PAGE_ORDER as usize + 1;
/// Orders above this are "costly": the kernel tries less hard for them (`PAGE_ALLOC_COSTLY_ORDER`).
pub const COSTLY_ORDER: Order = Order(3);

/// Binary logarithm of a block's size in base pages, `0..=MAX_PAGE_ORDER`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Order(pub u8);

impl Order {
    /// Base pages in a block of this order.
    #[inline]
    #[must_use]
    pub const fn pages(self) -> u32 {
        1 << self.0
    }

    /// Index into a per-order table.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
