//! What the kernel itself uses a block for, told from its first frame.
//!
//! Models: page types and owners as far as `/proc/kpageflags` and `struct page` tell them, v6.12; one word for
//! what kernels tell by flags, by `page->slab_cache` and by who keeps a pointer.
//! Departs: the use of memory that was in use before the model began is unknown. Visible as: a restored
//! machine's kernel memory is of one kind.

use crate::frame::{PageFlags, State};
use crate::memory::Memory;
use crate::slab::CacheId;
use crate::types::{CpuId, Order, Pfn};

/// What the kernel uses a block for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelUse {
    /// Nobody has said.
    Unknown,
    /// Objects of a cache.
    Slab(CacheId),
    /// A page table.
    PageTable,
    /// A thread's stack, or a page of one.
    KernelStack,
    /// Packets.
    NetworkBuffer,
    /// A pipe's data.
    Pipe,
    /// A huge page of the pool.
    Hugetlb,
    /// Whatever a module asked for.
    Module,
    /// Metadata of a file system outside the page cache.
    Metadata,
}

/// The kind is in the highest four bits of the owner.
const KIND_SHIFT: u32 = 28;

impl KernelUse {
    /// Its name in pictures and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "kernel",
            Self::Slab(_) => "slab",
            Self::PageTable => "page table",
            Self::KernelStack => "kernel stack",
            Self::NetworkBuffer => "network buffer",
            Self::Pipe => "pipe",
            Self::Hugetlb => "hugetlb",
            Self::Module => "module",
            Self::Metadata => "metadata",
        }
    }

    const fn to_owner(self) -> u32 {
        let (kind, rest) = match self {
            Self::Unknown => (0, 0),
            Self::Slab(cache) => (1, cache.0 as u32),
            Self::PageTable => (2, 0),
            Self::KernelStack => (3, 0),
            Self::NetworkBuffer => (4, 0),
            Self::Pipe => (5, 0),
            Self::Hugetlb => (6, 0),
            Self::Module => (7, 0),
            Self::Metadata => (8, 0),
        };
        kind << KIND_SHIFT | rest
    }

    const fn from_owner(owner: u32) -> Self {
        match owner >> KIND_SHIFT {
            1 => Self::Slab(CacheId(owner as u8)),
            2 => Self::PageTable,
            3 => Self::KernelStack,
            4 => Self::NetworkBuffer,
            5 => Self::Pipe,
            6 => Self::Hugetlb,
            7 => Self::Module,
            8 => Self::Metadata,
            _ => Self::Unknown,
        }
    }
}

impl Memory {
    /// What the kernel uses the block for that holds `pfn`; `None` for what is free, a user's or a file's, and
    /// what the allocator does not manage.
    #[must_use]
    pub fn kernel_use(&self, pfn: Pfn) -> Option<KernelUse> {
        let head = match self.frames.state(pfn) {
            State::Inner => self.frames.head_of(pfn),
            _ => pfn,
        };
        if self.frames.state(head) != State::Allocated {
            return None;
        }
        if let Some(owner) = self.frames.kernel_owner(head) {
            return Some(KernelUse::from_owner(owner));
        }
        // Pages of users and files are movable, or on their way to a list.
        let users = PageFlags::ANON | PageFlags::LRU | PageFlags::BATCHED | PageFlags::UNEVICTABLE;
        let is_users = self.frames.has(head, users) || self.frames.is_movable(head);
        if is_users { None } else { Some(KernelUse::Unknown) }
    }

    /// Notes what the kernel uses the block at `pfn` for, which it has just been given.
    pub fn set_kernel_use(&mut self, pfn: Pfn, of: KernelUse) {
        self.frames.set_kernel_owner(pfn, of.to_owner());
    }

    /// As [`Self::set_kernel_use`], and counts the block as allocated.
    pub fn take_kernel_block(&mut self, pfn: Pfn, order: Order, of: KernelUse) {
        self.set_kernel_use(pfn, of);
        self.count_alloc(pfn, u64::from(order.pages()));
        if of == KernelUse::KernelStack {
            self.nr_kernel_stack_pages += u64::from(order.pages());
        }
    }

    /// Frees a block that the kernel used.
    pub fn free_kernel_block(&mut self, pfn: Pfn, order: Order, cpu: CpuId) {
        if self.kernel_use(pfn) == Some(KernelUse::KernelStack) {
            self.nr_kernel_stack_pages -= u64::from(order.pages());
        }
        self.vm.add(crate::vmstat::Vm::PgFree, u64::from(order.pages()));
        self.free(pfn, order, cpu);
    }

    /// `nr_kernel_stack`: KiB of them, or how many there are.
    #[must_use]
    pub const fn nr_kernel_stack(&self) -> u64 {
        let unit = if self.policy.vmstat.kernel_stack_kib {
            1
        } else {
            4 * self.policy.stack.order.pages() as u64
        };
        4 * self.nr_kernel_stack_pages / unit
    }

    /// KiB of all kernel stacks (`KernelStack` of `/proc/meminfo`).
    #[must_use]
    pub const fn kernel_stack_kib(&self) -> u64 {
        4 * self.nr_kernel_stack_pages
    }
}
